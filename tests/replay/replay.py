"""Compares every text of this checkout with that of another commit: run by `make replay BASE=<commit>`.

Both write the text of each plan and error of a grid, each help, each signature and docstring, in
one environment. The first texts that differ are shown, grouped by how they differ, and the exit
code is then 1.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECORD = Path(__file__).with_name("record.py")


def main() -> int:
    """Record both, and show what differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", help="a commit")
    parser.add_argument("--show", type=int, default=20, help="how many ways to differ are shown")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="replay-") as folder:
        base = Path(folder, "base")
        _git("worktree", "add", "--quiet", "--detach", str(base), asked.base)
        try:
            _build_extensions(base)
            before, after = recorded([base, ROOT], Path(folder))
        finally:
            _git("worktree", "remove", "--force", str(base))
    differing = ways(before, after)
    print(report(before, after, differing, asked.show))  # noqa: T201 - it is a command
    return 1 if differing else 0


def recorded(checkouts, folder, *arguments):
    """The texts of each checkout, recorded at the same time; `arguments` are for `record.py`."""
    running = []
    for index, checkout in enumerate(checkouts):
        out = Path(folder, f"{index}.json")
        command = [sys.executable, str(RECORD), str(out), *arguments]
        path = {"PYTHONPATH": str(Path(checkout, "src")), "PYTHONHASHSEED": "0"}
        running.append((out, subprocess.Popen(command, env={**os.environ, **path}, cwd=folder)))
    codes = [process.wait() for _, process in running]
    if any(codes):
        raise RuntimeError(f"recording ended with {codes}")
    return [json.loads(out.read_text(encoding="utf-8")) for out, _ in running]


def ways(before, after):
    """The ways in which texts differ: (group, changed lines) to the keys of the texts.

    A text that is on one side alone differs from nothing.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for group in {**before, **after}:
        one, other = before.get(group, {}), after.get(group, {})
        for key in {**one, **other}:
            if one.get(key) != other.get(key):
                way = group, changed_lines(one.get(key, ""), other.get(key, ""))
                found.setdefault(way, []).append(key)
    return found


def changed_lines(one, other):
    """The lines that are gone, and those that are new."""
    lines = difflib.unified_diff(one.splitlines(), other.splitlines(), "", "", lineterm="", n=0)
    return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))


def report(before, after, differing, shown):
    """What is printed: the ways to differ, the most frequent first, each with its first text."""
    count = sum(len(texts) for texts in after.values())
    lines = []
    ordered = sorted(differing.items(), key=lambda item: -len(item[1]))
    for (group, changed), keys in ordered[:shown]:
        lines += [f"{group}: {len(keys)} so, first {keys[0]}", _indented(changed), ""]
    if len(ordered) > shown:
        lines += [f"… and {len(ordered) - shown} more ways to differ", ""]
    total = sum(len(keys) for keys in differing.values())
    groups = ", ".join(f"{len(texts)} {group}" for group, texts in after.items())
    if before == after:
        lines.append(f"All {count} texts are equal: {groups}.")
    else:
        lines.append(f"{total} of {count} texts differ, in {len(ordered)} ways: {groups}.")
    return "\n".join(lines)


def _indented(text):
    return "\n".join(f"    {line}" for line in text.splitlines())


def _build_extensions(base):
    """Give the other checkout its extensions: copies of ours where the sources are equal."""
    for built in ROOT.glob("src/**/*.abi3.so"):
        folder = base / built.relative_to(ROOT).parent
        source = built.name.replace(".abi3.so", ".c")
        ours = built.with_name(source).read_bytes()
        if not (folder / source).exists():
            continue
        if (folder / source).read_bytes() == ours:
            shutil.copy(built, folder)
        else:
            _compile(folder / source, folder / built.name)


def _compile(source, built):
    import sysconfig

    compiler = os.environ.get("CC", "cc").split()
    headers = f"-I{sysconfig.get_paths()['include']}"
    options = ["-shared", "-fPIC", "-O2", "-std=c11", headers]
    subprocess.run([*compiler, *options, str(source), "-o", str(built)], check=True)


def _git(*words):
    subprocess.run(["git", "-C", str(ROOT), *words], check=True)


if __name__ == "__main__":
    sys.exit(main())
