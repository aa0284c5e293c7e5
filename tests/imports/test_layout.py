"""Which folder imports from which: downwards only; and what does with the standard library alone."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
from tests.support import SOURCE, survives

PACKAGE = SOURCE / "tensorferry"
MODULES = sorted(PACKAGE.rglob("*.py"))

FLOORS = [
    {"errors", "hints", "typing"},
    {"core"},
    {"planning"},
    {"host"},
    {"sequences", "devices"},
    {"backends"},
    {"execution"},
    {"trees", "transfers"},
    {"files"},
    {"api", "inspection"},
    {"testing", "cli", "__init__", "__main__"},
]
"""From the ground up, as docs/architecture.md draws them: a folder imports from its own floor and from those below."""

UPWARDS = {
    # `like=` and `out=` are described by their backend: this goes to execution/.
    ("core", "backends"),
    # Lists of tensors are stacked where they are opened.
    ("backends", "execution"),
    # A sequence is looked at for tensors, and its backend is asked what they are.
    ("sequences", "backends"),
    # Transfers through page-locked slots are a base of backends.
    ("devices", "backends"),
    # Hints name the function that was called, which finds its target's backend.
    ("errors", "backends"),
}
"""Arrows that still lead up, each with why; one that is gone fails the test, so that this list only gets shorter."""


def floor_of(name):
    return next(index for index, floor in enumerate(FLOORS) if name in floor)


def part_of(path):
    """The folder at the top, or the module, that a file is in."""
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imported(path):
    """The modules of the package that a file imports when it runs, as tuples of names."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    checked = {
        id(node)
        for each in ast.walk(tree)
        if isinstance(each, ast.If) and ast.unparse(each.test) == "TYPE_CHECKING"
        for node in ast.walk(each)
    }
    package = path.relative_to(PACKAGE).parent.parts
    for node in ast.walk(tree):
        if id(node) in checked or not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        if isinstance(node, ast.Import):
            yield from (
                tuple(alias.name.split("."))[1:] for alias in node.names if alias.name.startswith("tensorferry")
            )
        elif node.level:
            base = package[: len(package) - node.level + 1] + tuple(
                (node.module or "").split(".") if node.module else ()
            )
            yield from (base or (alias.name,) for alias in node.names)
        elif (node.module or "").partition(".")[0] == "tensorferry":
            yield tuple(node.module.split("."))[1:] or ("__init__",)


def arrows():
    """(from, to) of two parts of the package, to the file that has it first."""
    found = {}
    for path in MODULES:
        for target in imported(path):
            pair = part_of(path), target[0] if target else "__init__"
            if pair[0] != pair[1]:
                found.setdefault(pair, str(path.relative_to(PACKAGE)))
    return found


def test_every_part_has_a_floor():
    """A new folder says where it stands."""
    assert {part_of(path) for path in MODULES} == set().union(*FLOORS)


def test_arrows_lead_downwards():
    """No folder imports from one above it, but for those that are listed, which are there."""
    found = arrows()
    upwards = {pair: path for pair, path in found.items() if floor_of(pair[0]) < floor_of(pair[1])}
    for pair in sorted(upwards):
        print(f"upwards: {pair[0]} -> {pair[1]}, first in {upwards[pair]}")
    assert not set(upwards) - UPWARDS, {pair: upwards[pair] for pair in set(upwards) - UPWARDS}
    assert not UPWARDS - set(upwards), f"gone, so take them off the list: {UPWARDS - set(upwards)}"


LIGHT = [
    path
    for path in MODULES
    if part_of(path) in {"errors", "hints", "typing", "core", "planning"}
    or (part_of(path) == "backends" and path.name in ("__init__.py", "declared.py", "snippets.py"))
]
"""What does with the standard library."""


@pytest.mark.parametrize("path", LIGHT, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_plans_and_what_they_are_made_from_need_the_standard_library_only(path):
    """Nor do they import, from this package, what needs more; `typing_extensions` is for type checkers below 3.11."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    checked = {
        id(node)
        for each in ast.walk(tree)
        if isinstance(each, ast.If) and ast.unparse(each.test) == "TYPE_CHECKING"
        for node in ast.walk(each)
    }
    for node in ast.walk(tree):
        if id(node) in checked:
            continue
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
        for name in names:
            assert name.partition(".")[0] in {*sys.stdlib_module_names, "typing_extensions"}, f"line {node.lineno}"
    light = {path.relative_to(PACKAGE).with_suffix("").parts for path in LIGHT}
    for target in imported(path):
        modules = {each[: len(target)] for each in light}
        assert target in modules or (part_of(path), target[0]) == ("core", "backends"), f"imports {'.'.join(target)}"


def test_every_framework_declares_and_shows_code_in_files_of_their_own():
    """A folder in `backends/` has `declared.py` and `snippets.py`, and its name in the declaration."""
    folders = [path.parent for path in MODULES if path.parent.parent == PACKAGE / "backends"]
    for folder in sorted(set(folders)):
        assert {"declared.py", "snippets.py", "tensors.py"} <= {path.name for path in folder.iterdir()}, folder


WITHOUT_NUMPY = """
import sys, types
for name in ("numpy", "ml_dtypes", "torch", "jax", "tensorflow", "cupy"):
    sys.modules[name] = None  # an import of it raises
package = types.ModuleType("tensorferry")  # whose own __init__ is all of tensorferry
package.__path__ = [{path!r}]
sys.modules["tensorferry"] = package

from importlib import import_module
from tensorferry.core.info import TensorInfo
from tensorferry.core.request import Request
from tensorferry.planning.planner import make_plan

names = ("numpy", "torch", "tensorflow", "jax", "python", "cupy", "array_like")
declared = {{name: import_module(f"tensorferry.backends.{{name}}.declared").DECLARED for name in names}}

def plan(info, to, **asked):
    return make_plan(info, Request(to, **asked), declared[info.framework], declared[to], declared["numpy"])

gpu = TensorInfo("torch", (3, 4), "bfloat16", device="cuda:0", requires_grad=True)
for to, code in (
    ("numpy", "y = x.detach().cpu().view(torch.int16).numpy().view(ml_dtypes.bfloat16)"),
    ("jax", "y = jax.dlpack.from_dlpack(x.detach())"),
):
    found = plan(gpu, to)
    assert found.code.splitlines()[-1] in (code, code + ".copy()", "y = jax.dlpack.from_dlpack(x.detach().clone())"), found.code
    assert str(found) and found.to_dict() and found._repr_html_()
    print(found)

made = 0
for source in ("numpy", "torch", "tensorflow", "jax", "python", "cupy"):
    device = "cuda" if source == "cupy" else "cpu"
    for target in ("numpy", "torch", "tensorflow", "jax", "python", "cupy"):
        for dtype in ("float32", "bfloat16", "int64", "int4", "complex64"):
            for asked in ({{}}, {{"copy": True}}, {{"dtype": "float32"}}, {{"copy": False}}, {{"dtype": "int4"}}):
                try:
                    made += bool(str(plan(TensorInfo(source, (2, 3), dtype, device=device), target, **asked)))
                except Exception as error:
                    assert type(error).__module__ == "tensorferry.errors", repr(error)
assert made > 400, made
assert not [name for name in sys.modules if name.partition(".")[0] == "numpy" and sys.modules[name]]
"""


def test_plans_can_be_made_where_there_is_no_numpy():
    """From declarations alone, a GPU's bfloat16 tensor among them; each is printed, or refused in our words."""
    words = survives(WITHOUT_NUMPY.format(path=str(PACKAGE)))
    assert "torch bfloat16[3, 4] on cuda:0, requires grad" in words
    assert Path(PACKAGE).is_dir()
