"""Small faults put into the source one at a time, to see whether a test finds each: run by `make mutants`.

Each drops a statement, flips a comparison, swaps ``and`` and ``or``, or negates a condition, in a
copy of the checkout. What no test finds is listed: a test is missing, or the fault changes nothing
that can be seen.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path("src", "tensorferry")

TESTS = {
    "planning": ("tests/planning", "tests/core"),
    "execution": (
        "tests/api",
        "tests/columns",
        "tests/sequences",
        "tests/execution/test_threads.py",
        "tests/trees",
        "tests/property/test_many.py",
        "tests/property/test_signatures.py",
        "tests/conformance",
    ),
    "host/casts.py": (
        "tests/property/test_casts.py",
        "tests/hazards/test_values.py",
        "tests/hazards/test_byte_order.py",
    ),
}
"""What is changed, and the tests that have to find it."""

FLIPPED = {
    ast.Eq: ast.NotEq,
    ast.Lt: ast.LtE,
    ast.Gt: ast.GtE,
    ast.In: ast.NotIn,
    ast.Is: ast.IsNot,
}
FLIPPED |= {other: one for one, other in FLIPPED.items()}
DROPPED = (
    ast.Assign,
    ast.AugAssign,
    ast.Expr,
    ast.Return,
    ast.Raise,
    ast.Continue,
    ast.Break,
    ast.Delete,
)
TOP = (ast.Module, ast.ClassDef)


def faults(tree):
    """Each fault as (line, what was there, what is there now, the whole source with it); `tree` stays as it is."""
    skipped = {id(part) for node in ast.walk(tree) for part in _unseen(node)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        for name, value in ast.iter_fields(node):
            for index, child in enumerate(value if isinstance(value, list) else [value]):
                if not isinstance(child, ast.AST) or id(child) in skipped:
                    continue
                for new in _instead(node, name, child):
                    whole = _replaced(
                        tree, node, name, index if isinstance(value, list) else None, new
                    )
                    line = getattr(child, "lineno", getattr(node, "lineno", 0))
                    yield line, _short(child), _short(new), whole


def _unseen(node):
    """What below a node no test could see: docstrings, types, what is for type checkers only."""
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return ast.walk(node)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return [node]
    parts = [getattr(node, name, None) for name in ("annotation", "returns")]
    return [part for each in parts if each is not None for part in ast.walk(each)]


def _instead(parent, name, child):
    """What can stand where `child` does."""
    # A name that is assigned at a function's own level would only be unknown.
    above = (*TOP, ast.FunctionDef) if isinstance(child, ast.Assign) else TOP
    if (
        name in ("body", "orelse", "finalbody")
        and isinstance(child, DROPPED)
        and not isinstance(parent, above)
    ):
        yield ast.Pass()
    if isinstance(child, ast.Compare) and len(child.ops) == 1:
        yield ast.Compare(child.left, [FLIPPED[type(child.ops[0])]()], child.comparators)
    if isinstance(child, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(child.op, ast.And) else ast.And(), child.values)
    if isinstance(child, ast.UnaryOp) and isinstance(child.op, ast.Not):
        yield child.operand
    elif name in ("test", "ifs") and not (isinstance(child, ast.Compare) and len(child.ops) == 1):
        yield ast.UnaryOp(ast.Not(), child)


def _replaced(tree, node, name, index, new):
    """The source of `tree` with one child exchanged."""
    old = getattr(node, name)
    setattr(node, name, new if index is None else [*old[:index], new, *old[index + 1 :]])
    try:
        return ast.unparse(tree)
    finally:
        setattr(node, name, old)


def _short(node):
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 70 else f"{text[:67]}..."


def passes(tests, folder, limit=None):
    """Whether the tests pass in a copy of the checkout; what hangs does not."""
    options = ["-x", "-q", "--benchmark-disable", "-m", "not slow", "-p", "no:cacheprovider"]
    # A run takes longer than the second by which Python tells that a compiled module is an older
    # one's.
    surroundings = {**os.environ, "PYTHONPATH": str(folder / "src")}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=folder, env=surroundings, timeout=limit, check=False, capture_output=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def main():
    """Put faults into the modules that are asked for, and list those that no test finds."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--module", action="append", help="below src/tensorferry: planning, or planning/rules.py"
    )
    parser.add_argument(
        "--count", type=int, default=60, help="how many faults, drawn from all; 0 for every one"
    )
    parser.add_argument("--seed", type=int, default=0, help="which ones are drawn")
    parser.add_argument("--tests", nargs="+", help="other tests than the module's own")
    asked = parser.parse_args()
    drawn = []
    for module in asked.module or TESTS:
        there = ROOT / PACKAGE / module
        for path in sorted(there.rglob("*.py")) if there.is_dir() else [there]:
            tests = asked.tests or next(
                tests for part, tests in TESTS.items() if module.startswith(part)
            )
            tree = ast.parse(path.read_text(encoding="utf-8"))
            drawn += [(path.relative_to(ROOT), tuple(tests), *fault) for fault in faults(tree)]
    found = len(drawn)
    if asked.count:
        drawn = random.Random(asked.seed).sample(drawn, min(asked.count, found))  # noqa: S311 - no secret
    print(f"{len(drawn)} of {found} faults, seed {asked.seed}", flush=True)
    survivors = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "copy")
        unwanted = shutil.ignore_patterns(
            ".venv*", ".git", ".*_cache", ".hypothesis", "__pycache__", "dist", "build"
        )
        shutil.copytree(ROOT, folder, ignore=unwanted)
        limits = {}
        for path, tests, line, before, after, source in sorted(
            drawn, key=lambda each: (each[0], each[2])
        ):
            if tests not in limits:
                begun = time.monotonic()
                if not passes(tests, folder):
                    sys.exit(f"without a fault these do not pass: {' '.join(tests)}")
                limits[tests] = 3 * (time.monotonic() - begun) + 60
            kept = (folder / path).read_text(encoding="utf-8")
            (folder / path).write_text(source, encoding="utf-8")
            lives = passes(tests, folder, limits[tests])
            (folder / path).write_text(kept, encoding="utf-8")
            survivors += [f"{path.relative_to(PACKAGE)}:{line}: {before}  ->  {after}"] * lives
            print(
                f"{'LIVES' if lives else 'found'}  {path.name}:{line}: {before}  ->  {after}",
                flush=True,
            )
    print(
        "\n".join(
            ["", f"{len(drawn) - len(survivors)} of {len(drawn)} found; no test finds:", *survivors]
        )
    )


if __name__ == "__main__":
    main()
