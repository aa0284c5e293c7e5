"""Build the simulated device into a folder that git ignores: ``python tests/device/build.py``, or ``make test-device``.

It belongs to one version of PyTorch, of Python and of its source, and is built again where one of
them is another.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path

SOURCE = Path(__file__).with_name("device.cpp")
CACHE = Path(__file__).resolve().parents[2] / ".device"


class BuildError(Exception):
    """What is missing here: a compiler, PyTorch, headers."""


def built() -> Path:
    """Where the extension module is, built if it is not there.

    Raises:
        BuildError: There is no compiler, no PyTorch or no header of one of both.
        CalledProcessError: The compiler does not take the source.
    """
    torch, version = _torch()
    key = hashlib.sha256(f"{version} {sys.version} {SOURCE.read_text()}".encode()).hexdigest()[:16]
    found = CACHE / key / f"_device{EXTENSION_SUFFIXES[0]}"
    if not found.exists():
        _compile(torch, found)
    return found


def _torch() -> tuple[Path, str]:
    """PyTorch's folder and version, without importing it."""
    from importlib.metadata import version

    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        raise BuildError("PyTorch is not installed")
    return Path(spec.origin).parent, version("torch")


def _compile(torch: Path, to: Path) -> None:
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        raise BuildError("there is no C++ compiler (g++, or what CXX names)")
    python = Path(sysconfig.get_paths()["include"])
    for header in (torch / "include" / "ATen" / "ATen.h", python / "Python.h"):
        if not header.exists():
            raise BuildError(f"{header} is missing")
    to.parent.mkdir(parents=True, exist_ok=True)
    apart = to.with_name(f"{os.getpid()}{to.name}")  # two builds at once do no harm
    includes = [
        f"-I{torch / 'include'}",
        f"-I{torch / 'include' / 'torch' / 'csrc' / 'api' / 'include'}",
    ]
    links = [
        f"-L{torch / 'lib'}",
        f"-Wl,-rpath,{torch / 'lib'}",
        "-ltorch",
        "-ltorch_cpu",
        "-lc10",
        "-ltorch_python",
    ]
    told = "-DTORCH_API_INCLUDE_EXTENSION_H", "-DTORCH_EXTENSION_NAME=_device"
    flags = [
        "-std=c++20",
        "-O1",
        "-fPIC",
        "-shared",
        "-s",
        "-fvisibility=hidden",
        "-pthread",
        "-Wall",
        "-Wextra",
    ]
    # What PyTorch's headers warn of is not ours.
    quiet = [each.replace("-I", "-isystem", 1) for each in (*includes, f"-I{python}")]
    done = subprocess.run(
        [compiler, *flags, *told, *quiet, str(SOURCE), "-o", str(apart), *links],
        check=False,
        capture_output=True,
        text=True,
    )
    sys.stderr.write(done.stderr)
    done.check_returncode()
    apart.replace(to)


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{built()}\n")
    except BuildError as error:
        sys.stdout.write(f"The simulated device cannot be built, its tests are skipped: {error}\n")
