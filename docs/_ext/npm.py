"""Fetch a package of npm, of a pinned version and content: `python docs/_ext/npm.py axe-core build/axe-core`."""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PINNED = {
    "axe-core": (
        "4.14.1",
        "sha512-FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==",
    ),
    "pyodide": (
        "314.0.7",
        "sha512-0YvXxEhfEdpLfb/XkM2BFAeMROq0iMUX2bzzH9pOttyMcWkwq+HbE5uyuGD82LN7y2q+SNvi/6V5JEsOlD2R1A==",
    ),
}
"""Version and integrity, as `npm view NAME dist.integrity` gives it."""


def fetch(name: str, folder: Path) -> None:
    """Put the files of a package into a folder, which appears whole or not at all; nothing is done if it is there."""
    version, integrity = PINNED[name]
    mark = folder / f".{version}"
    if mark.exists():
        return
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError(
            f"npm is not installed, and {name} comes from it (Debian: apt-get install npm)"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        subprocess.run(  # noqa: S603
            [npm, "pack", "--silent", f"{name}@{version}"],
            cwd=made,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        (archive,) = Path(made).glob("*.tgz")
        found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if integrity != f"sha512-{found}":
            raise ValueError(
                f"{name} {version} has another content than was pinned: sha512-{found}"
            )
        with tarfile.open(archive) as files:
            files.extractall(made, filter="data")
        Path(made, "package", mark.name).touch()
        shutil.rmtree(folder, ignore_errors=True)
        Path(made, "package").rename(folder)


if __name__ == "__main__":
    fetch(sys.argv[1], Path(sys.argv[2]))
