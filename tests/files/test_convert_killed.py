"""``kill -9`` at random moments: the final name has the old output or the new one, whole, and the next run finishes."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from tensorferry.files.base.contents import Contents
from tensorferry.files.base.stored import InMemory
from tensorferry.files.conversion.convert import convert_files, write_contents
from tensorferry.files.opening.paths import open_path

ROOT = Path(__file__).resolve().parents[2]

CHILD = textwrap.dedent("""
    import json, os, sys
    from tensorferry.files.conversion.convert import convert_files
    from tensorferry.files.opening.paths import formats
    formats()
    if __name__ == "__main__":
        source, target, keywords = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
        # Begins when it is told to: the moment counts from here.
        print("ready", flush=True)
        convert_files(source, target, **keywords)
""")

SCENARIOS = {
    "one file": ("out.npz", {}),
    "one file, verified": ("out.safetensors", {"verify": True}),
    "shards": ("out", {"to": "safetensors", "shard": "10MB"}),
    "shards by processes": (
        "out",
        {"to": "safetensors", "shard": "10MB", "jobs": 2, "engine": "processes"},
    ),
}


def digest(target):
    """Of a file, or of all files in a folder with their names."""
    sha = hashlib.sha256()
    paths = sorted(target.iterdir()) if target.is_dir() else [target]
    for path in paths:
        sha.update(path.name.encode() if target.is_dir() else b"")
        sha.update(path.read_bytes())
    return sha.hexdigest()


def big(folder, mebibytes):
    rng = np.random.default_rng(0)
    side = 512
    tensors = {
        f"layers.{i}.weight": InMemory(
            rng.standard_normal((2 * side, side), np.float32), "float32", i
        )
        for i in range(mebibytes // 2)
    }
    write_contents(Contents("memory", (), tensors), folder / "in.safetensors")
    return folder / "in.safetensors"


def start(folder, source, target, keywords):
    """A process that is about to convert, in a group of its own."""
    import json

    script = folder / "child.py"
    script.write_text(CHILD)
    child = subprocess.Popen(
        [sys.executable, str(script), str(source), str(target), json.dumps(keywords)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdout.readline() == b"ready\n"
    return child


def end(child):
    child.stdout.close()
    return child.wait()


def kill_at_random_moments(folder, scenario, times, mebibytes):
    name, keywords = SCENARIOS[scenario]
    source = big(folder, mebibytes)
    before = source.read_bytes()
    outputs = folder / "outputs"
    outputs.mkdir()
    target = outputs / name

    # Two outputs that differ, so that each run replaces the one by the other.
    wanted = {}
    for dtype in ("bfloat16", "float16"):
        convert_files(
            source,
            target,
            dtype=dtype,
            overwrite=True,
            **{**keywords, "jobs": 1, "engine": "threads"},
        )
        wanted[dtype] = digest(target)
    child = start(folder, source, target, {**keywords, "dtype": "float16", "overwrite": True})
    began = time.monotonic()
    assert end(child) == 0
    longest = time.monotonic() - began

    now, interrupted = "float16", 0
    rng = random.Random(1)  # noqa: S311 - moments, not secrets
    for attempt in count():
        goal = "bfloat16" if now == "float16" else "float16"
        everything = {**keywords, "dtype": goal, "overwrite": True, "resume": True}
        child = start(folder, source, target, everything)
        time.sleep(rng.random() * longest)
        child.send_signal(signal.SIGKILL)
        killed = end(child) == -signal.SIGKILL
        interrupted += killed
        if not killed:
            longest *= 0.9  # it was quicker than the one that was timed
        found = digest(target)
        assert found in (wanted[now], wanted[goal]), (
            f"neither the old nor the new output, attempt {attempt}"
        )
        assert len(open_path(target).tensors) == mebibytes // 2
        if attempt % 2:
            # Every other time the next run goes on; else it begins the other one over the
            # leftovers.
            wait_for_workers(child.pid)
            convert_files(source, target, **{**everything, "jobs": 1, "engine": "threads"})
            assert digest(target) == wanted[goal]
            assert [each.name for each in outputs.iterdir()] == [name]
            found = wanted[goal]
        else:
            wait_for_workers(child.pid)
        now = next(dtype for dtype, value in wanted.items() if value == found)
        if interrupted == times:
            break
    assert source.read_bytes() == before


def wait_for_workers(session):
    """The workers of a killed parent end at once, but not in the same instant: they are all of its session."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        left = [process.name for process in Path("/proc").glob("[0-9]*") if is_of(process, session)]
        if not left:
            return
        time.sleep(0.02)
    pytest.fail(f"still there: {left}")


def is_of(process, session):
    """Whether a process is of a session, and not only left to be counted."""
    try:
        state, _, _, its_session = (process / "stat").read_text().rpartition(")")[2].split()[:4]
    except OSError:
        return False
    return int(its_session) == session and state != "Z"


@pytest.fixture
def folder(tmp_path):
    """One whose megabytes do not stay after the test."""
    yield tmp_path
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_killed_a_few_times(folder, scenario):
    """Two moments each."""
    kill_at_random_moments(folder, scenario, 2, 24)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_killed_at_fifty_random_moments(folder, scenario):
    """As promised."""
    kill_at_random_moments(folder, scenario, 50, 64)
