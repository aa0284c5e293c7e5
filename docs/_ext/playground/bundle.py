"""What a page needs of our own to answer: the planner's sources, and those that answer for the page."""

from __future__ import annotations

import zipfile
from importlib.util import find_spec
from pathlib import Path

__all__ = ["bundle"]

HERE = Path(__file__).parent
PACKAGE = Path(next(iter(find_spec("tensorferry").submodule_search_locations)))


def bundle(path: Path) -> None:
    """Put them into an archive, which a Python without NumPy can import from."""
    light = [PACKAGE / f"{name}.py" for name in ("errors", "typing")]
    light += [
        *PACKAGE.glob("hints/*.py"),
        *PACKAGE.glob("core/*.py"),
        *PACKAGE.glob("planning/**/*.py"),
        PACKAGE / "backends" / "declared.py",
        *PACKAGE.glob("backends/*/declared.py"),
    ]
    folders = {
        folder / "__init__.py"
        for each in light
        for folder in each.parents
        if PACKAGE in folder.parents
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tensorferry/__init__.py", "")  # its own is all of tensorferry
        for each in sorted({*light, *folders}):
            archive.write(each, Path("tensorferry", each.relative_to(PACKAGE)))
        for name in ("__init__", "answers", "sentences", "settings"):
            archive.write(HERE / f"{name}.py", f"playground/{name}.py")
