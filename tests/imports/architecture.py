"""What the pages about the source list, read from it: `make architecture` writes it there.

The order of the floors is written by hand, and so is that of the folders of files: the tests hold the
imports against it. What follows from the source is written by this: which folder imports from which, and
what each module is about, in the words of its docstring.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "tensorferry"
MODULES = sorted(PACKAGE.rglob("*.py"))
PAGES = {
    path.name: path.read_text(encoding="utf-8")
    for path in (ROOT / "docs" / "architecture.md", ROOT / "docs" / "modules.md")
}
DRAWN = re.search(r"```floors\n(.*?)```", PAGES["architecture.md"], re.DOTALL)[1]
FLOORS = [line.split() for line in DRAWN.splitlines()]
"""From the top down, as `architecture.md` draws them: a folder imports from its own floor and from those below."""
LIST = re.compile(
    r"(?P<begin><!-- (?:(?P<arrows>all imports)|modules of (?P<part>\w+)(?P<order>(?:: \w+)(?: \w+)*)?)"
    r" -->\n).*?(?P<end><!-- end, written by `make architecture` -->)",
    re.DOTALL,
)
"""A list of a page, between two comments; after a colon, the order of the folders in it."""


def lists():
    """Each list of the pages."""
    return [found for page in PAGES.values() for found in LIST.finditer(page)]


def part_of(path):
    """The folder at the top, or the module, that a file is in."""
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


@cache
def tree_of(path):
    """A file as Python reads it, once for all who ask."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def nodes_of(tree):
    """All that is in a tree, in the order of `ast.walk`, which takes seconds for all files."""
    return tuple(ast.walk(tree))


def is_for_type_checkers(node):
    """Whether a node is an ``if TYPE_CHECKING:``."""
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


@cache
def nodes(path):
    """The import statements of a file that are run, in functions too."""
    every = nodes_of(tree_of(path))
    checked = {id(node) for each in every if is_for_type_checkers(each) for node in ast.walk(each)}
    return [
        node
        for node in every
        if isinstance(node, (ast.Import, ast.ImportFrom)) and id(node) not in checked
    ]


def inside(path):
    """The modules and folders of this package that a file imports, as tuples of names."""
    package = path.relative_to(PACKAGE).parent.parts
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif node.level:
            base = [
                *package[: len(package) - node.level + 1],
                *filter(None, (node.module or "").split(".")),
            ]
            names = [["tensorferry", *base, alias.name] for alias in node.names]
        else:
            names = [[*node.module.split("."), alias.name] for alias in node.names]
        for top, *rest in names:
            if top == "tensorferry":
                yield module_of(rest)


@cache
def _is_there(names):
    return (
        PACKAGE.joinpath(*names).is_dir() or PACKAGE.joinpath(*names).with_suffix(".py").is_file()
    )


def module_of(names):
    """The module that a dotted name is, or is in; the package itself is its ``__init__``."""
    while names and not _is_there(tuple(names)):
        names = names[:-1]
    return tuple(names) or ("__init__",)


def arrows():
    """(from, to) of two parts of the package, to the file that has it first."""
    found = {}
    for path in MODULES:
        for target in inside(path):
            if part_of(path) != target[0]:
                found.setdefault((part_of(path), target[0]), str(path.relative_to(PACKAGE)))
    return found


def arrows_drawn():
    """Each part with those that it imports from, in the order of the floors."""
    order = [name for floor in FLOORS for name in floor]
    found = arrows()
    imported = {name: [to for to in order if (name, to) in found] for name in order}
    width = max(len(name) for name, to in imported.items() if to)
    rows = [f"{name:{width}} -> {' '.join(to)}\n" for name, to in imported.items() if to]
    return "".join(["```floors\n", *rows, "```\n"])


def subject_of(path):
    """What a module is about: the first paragraph of its docstring, as one line of Markdown."""
    first = ast.get_docstring(tree_of(path)).partition("\n\n")[0]
    line = " ".join(first.split()).replace("``", "`").replace("|", "\\|")
    return line.removesuffix(".")


def modules_told(folder, order=()):
    """A table of the modules in a folder; a folder in it is one row, those in `order` come first.

    Args:
        folder: The path of the folder.
        order: Names of folders in it. Without them, they come last.
    """
    told = {
        path.stem: (f"`{path.stem}`", path)
        for path in sorted(folder.glob("*.py"))
        if path.stem != "__init__" or folder == PACKAGE
    }
    for path in sorted(folder.glob("*/__init__.py")):
        if folder == PACKAGE:
            break
        name = path.parent.name
        within = [f"`{each.stem}`" for each in sorted(path.parent.glob("*.py")) if each != path]
        within += [f"`{each.parent.name}/`" for each in sorted(path.parent.glob("*/__init__.py"))]
        told[name] = (f"`{name}/`: {', '.join(within)}", path)
    ordered = [*order, *(name for name in told if name not in order)]
    rows = [f"| {told[name][0]} | {subject_of(told[name][1])} |\n" for name in ordered]
    return "".join(["| module | subject |\n|---|---|\n", *rows])


def folders_in_order(part):
    """The folders in one at the top, in the order that its list gives them."""
    (order,) = (found["order"] for found in lists() if found["part"] == part)
    return (order or "").removeprefix(":").split()


def with_lists(page):
    """The text of a page, with its lists as they follow from the source."""

    def written(found):
        if found["arrows"]:
            made = arrows_drawn()
        else:
            part = found["part"]
            folder = PACKAGE if part == PACKAGE.name else PACKAGE / part
            made = modules_told(folder, folders_in_order(part))
        return f"{found['begin']}\n{made}\n{found['end']}"

    return LIST.sub(written, page)


if __name__ == "__main__":
    for name, page in PAGES.items():
        (ROOT / "docs" / name).write_text(with_lists(page), encoding="utf-8")
