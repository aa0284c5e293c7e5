"""Make the environments of environments.txt, and run the tests here in each.

``python tests/readers/environments.py FOLDER`` needs nothing but pip and venv. What cannot be
installed, or imported, is skipped with the reason. A test that fails fails all of it, and so does
it if every environment is skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
LISTED = Path(__file__).with_suffix(".txt")
TOOLS = ("hypothesis", "pytest")
"""What runs the tests, as constraints.txt pins it."""
OLD = ("DeprecationWarning", "PendingDeprecationWarning", "FutureWarning")
"""What releases of that age and the newest of the rest say of each other, which is not ours."""


class Environment(NamedTuple):
    """A line of environments.txt."""

    name: str
    requirements: list[str]

    @property
    def library(self) -> str:
        """The library that is tried, by the name it is imported by."""
        return self.requirements[0].partition("==")[0]


def environments() -> list[Environment]:
    """The environments that are listed."""
    lines = LISTED.read_text(encoding="utf-8").splitlines()
    words = [line.split() for line in lines if line and not line.startswith("#")]
    return [Environment(name, requirements) for name, *requirements in words]


def made(environment: Environment, folder: Path) -> tuple[str, str]:
    """The interpreter of an environment, and why it cannot be used, which is empty if it can."""
    python = str(folder / environment.name / "bin" / "python")
    pip = (python, "-m", "pip", "--disable-pip-version-check", "install", "-q")
    steps = (
        (sys.executable, "-m", "venv", str(folder / environment.name)),
        # The pinned PyTorch goes first: once it is there, nothing else drags in another.
        (*pip, "-c", "constraints.txt", "torch"),
        (*pip, *environment.requirements),
        (*pip, "-c", "constraints.txt", *TOOLS),
        (*pip, "-e", ".[cli]"),
        (python, "-c", f"import torch, {environment.library}"),
    )
    for step in steps:
        done = subprocess.run(step, check=False, capture_output=True, text=True, cwd=ROOT)
        if done.returncode:
            words = (done.stderr or done.stdout).strip().splitlines()
            return python, words[-1] if words else f"{step[1]} ended with {done.returncode}"
    return python, ""


def passes(environment: Environment, python: str) -> bool:
    """Whether the tests of an environment pass."""
    ignored = [word for kind in OLD for word in ("-W", f"ignore::{kind}")]
    tests = f"tests/readers/test_{environment.library}.py"
    # Nothing may be loaded from a network, and nothing is told to one.
    offline = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    command = [python, "-m", "pytest", "-q", "-m", "", *ignored, tests]
    done = subprocess.run(command, check=False, cwd=ROOT, env={**os.environ, **offline})
    return done.returncode == 0


def main(folder: Path) -> int:
    """Try all, and print a line for each; the exit code."""
    results = {}
    for environment in environments():
        print(f"{environment.name}: {' '.join(environment.requirements)}", flush=True)
        python, why = made(environment, folder)
        if why:
            results[environment.name] = f"skipped: {why}"
        else:
            results[environment.name] = "passed" if passes(environment, python) else "FAILED"
    for name, result in results.items():
        print(f"{name:<20} {result}")
    tried = {result for result in results.values() if not result.startswith("skipped")}
    return int(tried != {"passed"})


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute()))
