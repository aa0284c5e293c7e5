"""Which folder imports from which: downwards only; and what does with the standard library alone."""

from __future__ import annotations

import ast
import re
import sys
from itertools import pairwise

import pytest
from tests.imports.architecture import (
    FLOORS,
    MODULES,
    PACKAGE,
    PAGES,
    arrows,
    inside,
    lists,
    module_of,
    nodes,
    nodes_of,
    part_of,
    subject_of,
    tree_of,
    with_lists,
)
from tests.support import survives


def floor_of(name):
    return next(index for index, floor in enumerate(reversed(FLOORS)) if name in floor)


def outside(path):
    """The top-level modules, not of this package, that a file imports."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif not node.level:
            yield node.module.partition(".")[0]


def test_every_part_has_a_floor():
    """A new folder says where it stands."""
    assert {part_of(path) for path in MODULES} == set().union(*FLOORS)


def test_arrows_lead_downwards():
    """No folder imports from one above it."""
    assert {
        pair: path for pair, path in arrows().items() if floor_of(pair[0]) < floor_of(pair[1])
    } == {}


def modules_in(path, tree):
    """The names in a file that stand for modules of this package."""
    package = path.relative_to(PACKAGE).parent.parts
    found = {}
    for node in nodes_of(tree):
        if isinstance(node, ast.ImportFrom) and (
            node.level or node.module.partition(".")[0] == "tensorferry"
        ):
            base = [*package[: len(package) - node.level + 1]] if node.level else []
            base += [each for each in (node.module or "").split(".") if each]
            base = base if node.level else base[1:]
            for alias in node.names:
                parts = [*base, alias.name]
                if module_of(parts) == tuple(parts):
                    found[alias.asname or alias.name] = ".".join(parts)
    return found


def slots_in(path, tree):
    """Where a file sets a variable of another module."""
    modules = modules_in(path, tree)
    for node in nodes_of(tree):
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            targets = [node.target]
        elif isinstance(node, ast.Delete):
            targets = node.targets
        elif (
            isinstance(node, ast.Call)
            and getattr(node.func, "id", "") in ("setattr", "delattr", "vars")
            and node.args
        ):
            targets = [ast.Attribute(node.args[0], "", ast.Store())]
        else:
            continue
        yield from (
            f"{node.lineno}: {modules[each.value.id]}"
            for target in targets
            for each in ast.walk(target)
            if isinstance(each, ast.Attribute)
            and isinstance(each.ctx, (ast.Store, ast.Del))
            and isinstance(each.value, ast.Name)
            and each.value.id in modules
        )


def test_no_module_sets_a_variable_of_another():
    """What a module needs from one above it comes as an argument, or is added to a list.

    With `on_change`, `on_forget` and `LOOKUPS`, several may add something, and none replaces it.
    """
    assert {
        named: found
        for path in MODULES
        if (found := [*slots_in(path, tree_of(path))]) and (named := str(path.relative_to(PACKAGE)))
    } == {}


def test_a_variable_set_from_another_module_is_seen():
    """As the two were that there were once, and as others may write it."""
    path = PACKAGE / "execution" / "run.py"
    for lines in (
        "from ..core import names\nnames.registry = 1",
        "from ..backends import base as below\nbelow.convert: object = print",
        "from tensorferry.backends import base\nbase.convert, x = print, 1",
        "from ..core import names\ndef late():\n    setattr(names, 'registry', 1)",
        "from ..core import names\nvars(names)['registry'] = 1",
    ):
        assert len([*slots_in(path, ast.parse(lines))]) == 1, lines
    for lines in (
        "from ..core import names\nnames.LOOKUPS.append(1)",
        "from ..core.names import NAMES\nNAMES[1] = 2",
        "import numpy\nnumpy.x = 1",
    ):
        assert not [*slots_in(path, ast.parse(lines))], lines


LIGHT = [
    path
    for path in MODULES
    if part_of(path) in {"errors", "hints", "typing", "core", "planning"}
    or (part_of(path) == "backends" and path.name in ("__init__.py", "declared.py"))
]
"""What does with the standard library."""


@pytest.mark.parametrize("name", PAGES)
def test_a_page_lists_what_the_source_has(name):
    """All imports, and each module in the words of its docstring."""
    page = PAGES[name]
    assert with_lists(page) == page, f"docs/{name} is not as the source: run `make architecture`"


def test_the_pages_list_the_modules_of_every_folder_from_the_bottom_up():
    """A new folder has a list, as a new module has a row in one; all imports are drawn."""
    listed = [found["part"] for found in lists() if not found["arrows"]]
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert sorted(listed) == sorted([PACKAGE.name, *folders])
    assert sum(bool(found["arrows"]) for found in lists()) == 1
    told = re.findall(r"^## `(\w+)/`$", PAGES["modules.md"], re.MULTILINE)
    assert set(told) == folders
    assert all(floor_of(low) <= floor_of(high) for low, high in pairwise(told))


def test_a_list_that_is_not_as_the_source_is_seen():
    """A module that has gone, one that is new, another subject, an import that there is no longer."""
    for name, before, after in (
        ("modules.md", "| `casts` |", "| `no_module` |"),
        ("modules.md", f"| `casts` | {subject_of(PACKAGE / 'host' / 'casts.py')} |\n", ""),
        ("modules.md", "| `casts` | Change", "| `casts` | Changes"),
        ("architecture.md", "-> cli\n", "-> cli core\n"),
        ("architecture.md", "| `base/`: `box`, ", "| `base/`: "),
    ):
        other = PAGES[name].replace(before, after, 1)
        assert other != PAGES[name], before
        assert with_lists(other) == PAGES[name], before


def test_plans_and_what_they_are_made_from_need_the_standard_library_only():
    """Nor do they import, from this package, what needs more; `typing_extensions` stands in for `typing`."""
    light = {each.relative_to(PACKAGE).with_suffix("").parts for each in LIGHT}
    folders = {each[:-1] for each in light}
    more = {}
    for path in LIGHT:
        found = set(outside(path)) - {*sys.stdlib_module_names, "typing_extensions"}
        found |= {".".join(target) for target in inside(path) if target not in light | folders}
        if found:
            more[str(path.relative_to(PACKAGE))] = found
    assert more == {}


WITHOUT_NUMPY = """
import sys, types
for name in ("numpy", "ml_dtypes", "torch", "jax", "tensorflow", "cupy", "pyarrow", "pandas", "polars"):
    sys.modules[name] = None  # an import of it raises
package = types.ModuleType("tensorferry")  # whose own __init__ is all of tensorferry
package.__path__ = [{path!r}]
sys.modules["tensorferry"] = package

from tensorferry.backends.declared import declarations, explain, stand_in
from tensorferry.core.info import TensorInfo

stand_in()
gpu = TensorInfo("torch", (3, 4), "bfloat16", device="cuda:0", requires_grad=True)
for to, code in (
    ("numpy", "y = x.detach().cpu().view(torch.int16).numpy().view(ml_dtypes.bfloat16)"),
    ("jax", "y = jax.dlpack.from_dlpack(x.detach().clone())"),
):
    found = explain(gpu, to)
    assert found.code.splitlines()[-1] == code, found.code
    assert str(found) and found.to_dict() and found._repr_html_()
    print(found)

made = 0
names = [name for name in declarations() if name != "array-like"]
for source in names:
    device = "cuda" if source == "cupy" else "cpu"
    for target in names:
        for dtype in ("float32", "bfloat16", "int64", "int4", "complex64"):
            for asked in ({{}}, {{"copy": True}}, {{"dtype": "float32"}}, {{"copy": False}}, {{"dtype": "int4"}}):
                try:
                    made += bool(str(explain(TensorInfo(source, (2, 3), dtype, device=device), target, **asked)))
                except Exception as error:
                    assert type(error).__module__ == "tensorferry.errors", repr(error)
assert made > 400, made
assert not [name for name in sys.modules if name.partition(".")[0] == "numpy" and sys.modules[name]]
"""


def test_plans_can_be_made_where_there_is_no_numpy():
    """From declarations alone, a GPU's bfloat16 tensor among them; each is printed, or refused in our words."""
    words = survives(WITHOUT_NUMPY.format(path=str(PACKAGE)))
    assert "torch bfloat16[3, 4] on cuda:0, requires grad" in words
