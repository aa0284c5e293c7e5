"""The order inside `tensorferry.files`: each folder imports only from those below it, and no module in a circle."""

from __future__ import annotations

import ast
from functools import cache

import pytest
from tests.imports.architecture import folders_in_order, nodes_of, tree_of
from tests.support import SOURCE

FILES = SOURCE / "tensorferry" / "files"
ORDER = (*folders_in_order("files"), "")
"""The folders from the lowest to the highest, as the page lists them; the last is `files` itself."""


def folder_of(path):
    """The name in `ORDER` of the folder that a module is in."""
    return path.relative_to(FILES).parts[0] if path.parent != FILES else ""


@cache
def module_at(*parts):
    """The file of a module inside `files`, or None."""
    place = FILES.joinpath(*parts)
    for path in (place.with_suffix(".py"), place / "__init__.py"):
        if path.is_file():
            return path
    return None


def imported(path, tree):
    """The modules inside `files` that a module imports, lazily or for type checkers too."""
    package = path.relative_to(FILES.parents[1]).parts[:-1]
    for node in nodes_of(tree):
        if isinstance(node, ast.ImportFrom):
            whole = [*package[: len(package) - node.level + 1]] if node.level else []
            whole += (node.module or "").split(".") if node.module else []
            for alias in node.names:
                if whole[:2] == ["tensorferry", "files"]:
                    yield module_at(*whole[2:], alias.name) or module_at(*whole[2:])


def arrows(folder=FILES):
    found = {}
    for path in sorted(folder.rglob("*.py")):
        found[path] = {
            each
            for each in imported(path, tree_of(path))
            if each not in (None, path, FILES / "__init__.py")
        }
    return found


def upwards(found):
    """The arrows that lead from a folder to one above it."""
    return [
        f"{path.relative_to(FILES)} -> {other.relative_to(FILES)}"
        for path, others in found.items()
        for other in sorted(others)
        if ORDER.index(folder_of(other)) > ORDER.index(folder_of(path))
    ]


def circle(found):
    """Modules that import each other in a circle; none: an empty list."""
    left = dict(found)
    while True:
        free = [path for path, others in left.items() if not others & left.keys()]
        if not free:
            return sorted(str(path.relative_to(FILES)) for path in left)
        for path in free:
            del left[path]


def test_arrows_lead_downwards():
    """What is read, what it is encoded in, and the formats know nothing of what is done with files."""
    assert upwards(arrows()) == []


def test_no_module_imports_in_a_circle():
    """Not even lazily, nor for type checkers."""
    assert circle(arrows()) == []


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("base/stored.py", "from ..opening.paths import format_of"),
        ("encodings/array_parts.py", "from ..formats.npy import FORMAT"),
        ("pickles/machine.py", "def f():\n    from ..conversion import select"),
        ("base/stored.py", "from tensorferry.files.encodings import array_parts"),
    ],
)
def test_an_arrow_upwards_is_found(where, line):
    """In each way of writing it."""
    found = arrows()
    found[FILES / where] = set(imported(FILES / where, ast.parse(line)))
    assert len(upwards(found)) == 1


BEHIND = set(ORDER) - {"tables", ""}
"""The folders behind the wall: the others are the door, where files and frameworks meet."""
THROUGH = {"errors", "hints", "host", "typing"}
THROUGH_CORE = {"dtypes", "kinds", "layout", "leaf_dtypes", "names", "version"}


def over_the_wall(path, tree):
    """The modules outside of `files` that a module behind the wall imports and may not, for type checkers too."""
    package = path.relative_to(SOURCE).parts[:-1]
    for node in nodes_of(tree):
        if not isinstance(node, ast.ImportFrom):
            continue
        base = [*package[: len(package) - node.level + 1]] if node.level else []
        base += (node.module or "").split(".") if node.module else []
        if base[:1] != ["tensorferry"] or base[:2] == ["tensorferry", "files"]:
            continue
        for alias in node.names:
            _, *inner = [*base, alias.name][:3]
            allowed = inner[1] in THROUGH_CORE if inner[0] == "core" else inner[0] in THROUGH
            if not allowed:
                yield f"{path.relative_to(FILES)} -> {'.'.join(inner)}"


def test_nothing_behind_the_wall_knows_of_frameworks():
    """Formats, and what is done with files, know values and host memory; backends, plans and trees they do not."""
    found = [
        arrow
        for folder in sorted(BEHIND)
        for path in sorted((FILES / folder).rglob("*.py"))
        for arrow in over_the_wall(path, tree_of(path))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ("base/stored.py", "from ...backends.nodes import dotted"),
        ("formats/npy.py", "def f():\n    from ...trees import failures"),
        ("formats/orbax/reader.py", "from ....core.request import make_request"),
        ("opening/paths.py", "from ... import backends"),
        ("pickles/writer.py", "from tensorferry.execution.run import convert"),
    ],
)
def test_an_arrow_over_the_wall_is_found(where, line):
    """In each way of writing it."""
    assert len(list(over_the_wall(FILES / where, ast.parse(line)))) == 1
