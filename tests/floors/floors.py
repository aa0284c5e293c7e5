"""The oldest releases that pyproject.toml allows, as a requirements file: ``python tests/floors/floors.py``.

The floors stand in pyproject.toml and nowhere else. It needs nothing but pip, and so runs in an
empty environment.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]

UNTRIED = {
    "cupy": "needs a GPU",
    "docs": "pinned in constraints.txt",
    "lint": "pinned in constraints.txt",
    "test": "pinned in constraints.txt",
}
"""Extras whose floors `make floors` does not install, and why."""
BUILDS = {"tensorflow": "tensorflow-cpu"}
"""The same release under another name, built for the CPU alone."""
TOOLS = ("hypothesis", "pytest", "pytest-benchmark", "pytest-xdist", "safetensors")
"""What runs the tests, as constraints.txt pins it: nobody's floor."""

_FLOOR = re.compile(r"(?P<name>[\w.-]+)\s*>=\s*(?P<version>[\w.]+)\s*(?P<marker>;.*)?")
_PIN = re.compile(r"(?P<name>[\w.-]+)==[^;]+(?:;.*)?")


def requirements() -> list[str]:
    """What the package and each extra that is tried ask for, other extras of this package aside."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    asked = [
        *project["dependencies"],
        *(line for name in extras if name not in UNTRIED for line in extras[name]),
    ]
    return [line for line in asked if not line.startswith(f"{project['name']}[")]


def floors() -> dict[str, str]:
    """Each requirement's name and the line that pins it to its floor.

    ``TORCH=2.8`` in the environment pins a release of PyTorch between its floor and the newest.

    Raises:
        ValueError: A requirement is not written as a floor.
    """
    pinned = {}
    for line in requirements():
        found = _FLOOR.fullmatch(line)
        if found is None:
            raise ValueError(f"pyproject.toml: {line!r} is no floor: write it as name>=version")
        name, version, marker = found["name"], found["version"], found["marker"] or ""
        tried = os.environ.get(name.upper()) or version
        pinned[name] = f"{BUILDS.get(name, name)}=={tried}{marker}"
    return pinned


def tools() -> list[str]:
    """The lines of constraints.txt for what runs the tests."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if (pin := _PIN.fullmatch(line)) and pin["name"] in TOOLS]


if __name__ == "__main__":
    sys.stdout.write("\n".join([*floors().values(), *tools()]) + "\n")
