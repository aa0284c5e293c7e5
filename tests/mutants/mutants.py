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
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from queue import SimpleQueue

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
    "trees": ("tests/trees", "tests/property/test_many.py", "tests/property/test_overlap.py"),
    "batches": ("tests/batches", "tests/property/test_lists_of_tensors.py"),
    "host/casts.py": (
        "tests/property/test_casts.py",
        "tests/hazards/test_values.py",
        "tests/hazards/test_byte_order.py",
    ),
}
"""What is changed, and the tests that have to find it."""

WITHOUT_EXTENSION = ("host/casts.py",)
"""What has parts that are used only without the extension: their tests are run in both ways."""

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


def run(tests, folder, limit=None, **surroundings):
    """Whether the tests pass in a copy of the checkout, and the end of what they print.

    What hangs does not pass.
    """
    options = ["-x", "-q", "--benchmark-disable", "-m", "not slow", "-p", "no:cacheprovider"]
    # A run takes longer than the second by which Python tells that a compiled module is an older
    # one's.
    # First the copy: the checkout itself may be on the path as well.
    paths = os.pathsep.join([str(folder / "src"), str(folder), os.environ.get("PYTHONPATH", "")])
    surroundings = {**os.environ, "PYTHONPATH": paths, **surroundings}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=folder, env=surroundings, timeout=limit, check=False, capture_output=True,
            text=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False, f"They took longer than {limit:.0f} s."
    return done.returncode == 0, done.stdout[-3000:]


def drawn_from(modules, tests, count, seed):
    """Some of the faults in modules, and how many there are; each with its file and its tests."""
    every = []
    for module in modules:
        there = ROOT / PACKAGE / module
        for path in sorted(there.rglob("*.py")) if there.is_dir() else [there]:
            find = tests or next(find for part, find in TESTS.items() if module.startswith(part))
            tree = ast.parse(path.read_text(encoding="utf-8"))
            every += [(path.relative_to(ROOT), tuple(find), *fault) for fault in faults(tree)]
    drawn = every
    if count:
        drawn = random.Random(seed).sample(every, min(count, len(every)))  # noqa: S311 - no secret
    return sorted(drawn, key=lambda each: (each[0], each[2])), len(every)


def lives(fault, folders, limits):
    """Put a fault into a copy of the checkout that is free. Whether its tests still pass."""
    path, tests, _, _, _, source = fault
    folder = folders.get()
    kept = (folder / path).read_text(encoding="utf-8")
    try:
        (folder / path).write_text(source, encoding="utf-8")
        if not run(tests, folder, limits[tests])[0]:
            return False
        if path.relative_to(PACKAGE).as_posix() not in WITHOUT_EXTENSION:
            return True
        return run(tests, folder, limits[tests], TENSORFERRY_NO_EXTENSION="1")[0]
    finally:
        (folder / path).write_text(kept, encoding="utf-8")
        folders.put(folder)


def limit_of(folders, tests):
    """How long tests may take with a fault, in seconds.

    Raises:
        SystemExit: They do not pass without one.
    """
    folder = folders.get()
    begun = time.monotonic()
    is_well, end = run(tests, folder)
    folders.put(folder)
    if not is_well:
        sys.exit(f"{end}\nWithout a fault these do not pass: {' '.join(tests)}")
    return 3 * (time.monotonic() - begun) + 60


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
    parser.add_argument("--jobs", type=int, default=1, help="how many are tried at the same time")
    parser.add_argument("--tests", nargs="+", help="other tests than the module's own")
    asked = parser.parse_args()
    drawn, found = drawn_from(asked.module or TESTS, asked.tests, asked.count, asked.seed)
    print(f"{len(drawn)} of {found} faults, seed {asked.seed}", flush=True)
    survivors = []
    unwanted = shutil.ignore_patterns(
        ".venv*", ".git", ".*_cache", ".hypothesis", "__pycache__", "dist", "build"
    )
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(asked.jobs) as pool:
        folders = SimpleQueue()
        for number in range(asked.jobs):
            folder = Path(place, f"copy{number}")
            shutil.copytree(ROOT, folder, ignore=unwanted)
            folders.put(folder)
        finding = list(dict.fromkeys(each[1] for each in drawn))
        limits = dict(zip(finding, pool.map(partial(limit_of, folders), finding), strict=True))
        running = {pool.submit(lives, each, folders, limits): each for each in drawn}
        for done in as_completed(running):
            path, _, line, before, after, _ = running[done]
            text = f"{path.relative_to(PACKAGE)}:{line}: {before}  ->  {after}"
            survivors += [text] * done.result()
            print(f"{'LIVES' if done.result() else 'found'}  {text}", flush=True)
    print(f"\n{len(drawn) - len(survivors)} of {len(drawn)} found; no test finds:")
    for text in sorted(survivors):
        print(text)


if __name__ == "__main__":
    main()
