"""`examples/sharded_load.py`: four workers, and each reads a quarter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "sharded_load.py"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "library"), [("ray", "ray"), ("torchrun", "torch.distributed"), ("jax", "jax")]
)
def test_each_of_four_workers_reads_a_quarter(how, library):
    """As the program itself checks and says: a line from each, with a quarter of the tensor's 8 KiB."""
    pytest.importorskip(library, reason=f"{library} is not installed")
    source = str(EXAMPLE.parents[1] / "src")
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), how],
        env={**os.environ, "PYTHONPATH": source, "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    lines = [line for line in done.stdout.splitlines() if line.startswith("worker ")]
    assert sorted(line.partition(" of ")[0] for line in lines) == [
        f"worker {number}: 2048" for number in range(4)
    ]
