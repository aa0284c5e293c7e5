"""Rules of the source: where frameworks may be named, how long a module may be, what is documented."""

from __future__ import annotations

import ast
import doctest
import re
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from tests.imports.architecture import is_for_type_checkers, nodes_of, tree_of
from tests.support import ROOT, SOURCE

import tensorferry
from tensorferry.backends.array_like import libraries

PACKAGE = SOURCE / "tensorferry"
MODULES = sorted(PACKAGE.rglob("*.py"))
CORE = [path for path in MODULES if "cli" not in path.relative_to(PACKAGE).parts]
FRAMEWORKS = {
    "torch": "torch",
    "tensorflow": "tensorflow",
    "jax": "jax",
    "jaxlib": "jax",
    "cupy": "cupy",
}
"""Top-level modules, and the name of the file or folder that is each framework's own."""
TABLES = {"arrow": "pyarrow", "pandas": "pandas", "polars": "polars"}
"""The libraries of tables, by the folder in `backends/` that may import each."""
NAMING = {"api.py", "table.py", "typing.py"}
"""Where frameworks may be named in code, besides each one's own backend."""
FILES = {
    "base/contents.py": "torch",
    "formats/pytorch.py": "torch",
    "formats/tensorflow_checkpoint.py": "tensorflow",
    "formats/orbax/": "jax",
    "formats/distcp.py": "torch",
    "formats/torch": "torch",
    "pickles/table.py": "jax",
    "pickles/torch": "torch",
    "pickles/writer.py": "torch",
}
"""What the files of a framework's own formats may name."""
OWN = ("backends", "frameworks")
"""Folders with one file, or one folder, for each framework."""


def named(path):
    return str(path.relative_to(PACKAGE))


def imports(tree):
    """Each import as (node, top-level module), relative ones aside."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node, (node.module or "").partition(".")[0]


def framework_of(path):
    """The framework whose own a file is, or an empty string."""
    for place in (path, path.parent):
        if place.parent.name in OWN and place.stem in FRAMEWORKS.values():
            return place.stem
    return ""


def nodes_under(tree, kind):
    for node in nodes_of(tree):
        if isinstance(node, kind):
            yield from ast.walk(node)


def for_type_checkers(tree):
    """The nodes under ``if TYPE_CHECKING:``."""
    for node in nodes_of(tree):
        if is_for_type_checkers(node):
            for statement in node.body:
                yield from ast.walk(statement)


def docstrings(tree):
    for node in nodes_of(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.value


def framework_imports_out_of_place(path, tree):
    meant = [(node, module) for node, module in imports(tree) if module in FRAMEWORKS]
    if not meant:
        return []
    inside = {id(node) for node in nodes_under(tree, (ast.FunctionDef, ast.AsyncFunctionDef))}
    checked = {id(node) for node in for_type_checkers(tree)}
    found = []
    for node, module in meant:
        if id(node) in checked:
            continue
        if framework_of(path) != FRAMEWORKS[module] or id(node) not in inside:
            found.append(f"{path.name}:{node.lineno} imports {module}")
    return found


def framework_names_out_of_place(path, tree):
    """Names, attributes and strings of code, docstrings aside, that speak of a framework."""
    own = framework_of(path) or next(
        (name for place, name in FILES.items() if f"/files/{place}" in path.as_posix()), ""
    )
    skipped = {id(node) for node in docstrings(tree)} | {
        id(node) for node in for_type_checkers(tree)
    }
    words = re.compile(r"(?<![a-z])(torch|tensorflow|jax|jaxlib|cupy)(?![a-z])", re.IGNORECASE)
    found = []
    for node in nodes_of(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        elif isinstance(node, ast.Name):
            text = node.id
        elif isinstance(node, ast.Attribute):
            text = node.attr
        else:
            continue
        foreign = [
            word
            for word in words.findall(text.replace("_", " "))
            if not own or not word.lower().startswith(own)
        ]
        found += [f"{path.name}:{node.lineno} names {word} in {text!r}" for word in foreign]
    return found


def test_frameworks_are_imported_in_their_own_backend_inside_functions():
    """`import tensorferry` can load none, because no module imports one when it is loaded."""
    assert [
        line for path in CORE for line in framework_imports_out_of_place(path, tree_of(path))
    ] == []


def test_a_frameworks_name_is_in_its_own_backend_and_nowhere_else():
    """A sixth framework is one new file: no other file speaks of any by name."""
    elsewhere = [
        path for path in CORE if path.name not in NAMING and path != PACKAGE / "__init__.py"
    ]
    assert [
        line for path in elsewhere for line in framework_names_out_of_place(path, tree_of(path))
    ] == []


def test_the_rules_can_be_broken(tmp_path):
    """Each rule finds what it forbids."""
    bad = tmp_path / "planner.py"
    bad.write_text(
        '"""torch is fine in a docstring."""\nimport torch\n\ndef f():\n    import jax.numpy\n    return "torch"\n'
    )
    tree = tree_of(bad)
    assert len(framework_imports_out_of_place(bad, tree)) == 2
    assert [line.split(" ", 1)[1] for line in framework_names_out_of_place(bad, tree)] == [
        "names torch in 'torch'"
    ]
    backend = tmp_path / "backends" / "torch.py"
    backend.parent.mkdir()
    backend.write_text("import torch\n\ndef load():\n    import torch\n    import jax\n")
    assert len(framework_imports_out_of_place(backend, tree_of(backend))) == 2


def test_a_module_has_at_most_800_lines():
    """Small enough to be read at one sitting."""
    files = [*MODULES, *PACKAGE.rglob("*.[ch]")]
    assert len(files) > len(MODULES)
    lengths = {named(path): len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    assert {name: length for name, length in lengths.items() if length > 800} == {}


def nested_conditionals(tree):
    """The lines of the conditional expressions that have another one inside them."""
    return [
        node.lineno
        for node in nodes_of(tree)
        if isinstance(node, ast.IfExp)
        and any(isinstance(inner, ast.IfExp) for inner in ast.walk(node) if inner is not node)
    ]


def test_a_conditional_expression_has_no_other_inside():
    """A choice among three or more is written as statements."""
    found = {named(path): nested_conditionals(tree_of(path)) for path in MODULES}
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "code",
    ["a if b else c if d else e", "(a if b else c) if d else e", "f'{a if b else c}' if d else e"],
)
def test_a_conditional_expression_inside_another_is_found(code):
    """Wherever in the outer one it is."""
    assert nested_conditionals(ast.parse(code)) == [1]
    assert nested_conditionals(ast.parse("a if b else c\nd if e else f")) == []


@pytest.mark.parametrize(
    "name", ["Place", "Part", "Layout", "Record", "Finding", "Group", "Format"]
)
def test_a_common_word_is_the_name_of_one_class(name):
    """Two things of one name have two names."""
    found = [
        named(path)
        for path in MODULES
        for node in nodes_of(tree_of(path))
        if isinstance(node, ast.ClassDef) and node.name.lstrip("_") == name
    ]
    assert len(found) <= 1, found


def test_a_module_says_what_it_is():
    """Each has a docstring."""
    assert [named(path) for path in MODULES if not ast.get_docstring(tree_of(path))] == []


def test_the_core_imports_only_what_it_requires():
    """NumPy, ml_dtypes, the standard library; what is for type checkers aside."""
    assert {
        named(path): beyond for path in CORE if (beyond := imports_beyond_what_is_required(path))
    } == {}


def imports_beyond_what_is_required(path):
    """The modules that a file imports though not all who install this package have them."""
    tree = tree_of(path)
    checked = {id(node) for node in for_type_checkers(tree)}
    allowed = {
        "numpy",
        "ml_dtypes",
        "optree",
        "typing_extensions",
        "tomli",  # required below Python 3.11, which has it as tomllib
        *FRAMEWORKS,
        *sys.stdlib_module_names,
    }
    if path.name.startswith("testing") or "testing" in path.relative_to(PACKAGE).parts[0]:
        allowed |= {"hypothesis", "pytest"}
    found = {module: node for node, module in imports(tree) if id(node) not in checked}
    in_formats = not {"formats", "tables"}.isdisjoint(path.relative_to(PACKAGE).parts)
    inside_formats = path.relative_to(PACKAGE).parts[2:] if in_formats else ()
    if inside_formats and inside_formats != ("__init__.py",):
        name = inside_formats[0].removesuffix(".py")
        inside = {id(node) for node in nodes_under(tree, (ast.FunctionDef, ast.AsyncFunctionDef))}
        # Of its own name is what only some of its tensors need; zarr's codecs are numcodecs', which
        # it brings.
        own = {"numcodecs"} if name == "zarr" else set()
        folder = path.relative_to(PACKAGE).parts[1]
        module = import_module(f"tensorferry.files.{folder}.{name}")
        needs = module.FORMAT.module if hasattr(module, "FORMAT") else name
        for library in {needs, name, *own}:
            if id(found.get(library)) in inside:
                del found[library]
    if path.parent.name in TABLES:
        inside = {id(node) for node in nodes_under(tree, ast.FunctionDef)}
        if id(found.get(TABLES[path.parent.name])) in inside:
            del found[TABLES[path.parent.name]]
    if (path.parent.name, path.stem) == ("array_like", "libraries"):
        inside = {id(node) for node in nodes_under(tree, ast.FunctionDef)}
        for library in libraries.CLASSES:
            if id(found.get(library)) in inside:
                del found[library]
    return set(found) - allowed


@cache
def documentation():
    # The names of the pages that are made from the docstrings are in the extension.
    pages = [
        ROOT / "README.md",
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "docs" / "_ext" / "reference.py",
    ]
    return "\n".join(page.read_text(encoding="utf-8") for page in pages if page.exists())


@pytest.mark.parametrize("name", tensorferry.__all__)
def test_every_public_name_is_documented(name):
    """A docstring with a runnable example, or a place in the pages."""
    thing = getattr(tensorferry, name)
    text = thing.__doc__ or ""
    assert text.strip(), f"{name} has no docstring"
    examples = doctest.DocTestParser().get_examples(text)
    assert examples or re.search(rf"(?<!\w){name}(?!\w)", documentation()), (
        f"{name} has no example and is in no page"
    )


@pytest.mark.parametrize(
    "name",
    [
        "to_numpy",
        "to_torch",
        "to_tensorflow",
        "to_jax",
        "to_list",
        "convert",
        "describe",
        "explain",
        "shares_memory",
        "frameworks",
    ],
)
def test_every_function_has_an_example_and_says_what_it_raises(name):
    """The public functions: purpose in one line, an example, and, where they can fail, what is raised."""
    text = getattr(tensorferry, name).__doc__
    assert doctest.DocTestParser().get_examples(text)
    assert len(text.strip().splitlines()[0]) <= 120
    assert "Raises:" in text or name == "frameworks"


def test_errors_are_documented_as_a_tree():
    """Every error of the tree is drawn in the module's docstring with the builtin it also is."""
    from tensorferry import errors

    for name in errors.__all__:
        assert name in errors.__doc__
        for base in getattr(errors, name).__mro__[1:]:
            if base.__module__ == "builtins" and base in getattr(errors, name).__bases__:
                assert base.__name__ in errors.__doc__


@pytest.mark.parametrize("folder", ["src", "tests"])
def test_no_path_of_a_machine(folder):
    """The project speaks of no machine that it was written on."""
    this = Path(__file__).resolve()
    homes = re.compile(r"(?<![\w.])/(?:home|root|Users|work|tmp/dev)/\w")
    for path in (ROOT / folder).rglob("*.py"):
        if path.resolve() != this:
            assert not homes.search(path.read_text(encoding="utf-8")), path


def test_layers_know_only_what_lies_below():
    """A backend is asked, it asks nobody above it; and what converts one tensor knows no trees, files or commands."""
    folders = {"batches", "trees", "transfers", "maps", "files", "functions", "testing", "cli"}
    above = {"backends": folders | {"api", "inspection"}}
    odd = []
    for path in MODULES:
        inside = path.relative_to(PACKAGE).parts
        # The two ways in know all that they open, and so does what users have of maps and files.
        ways_in = ("__init__.py", "__main__.py", "weight_map.py")
        if path.name in ways_in or inside[0] in folders:
            continue
        for node in nodes_of(tree_of(path)):
            if isinstance(node, ast.ImportFrom) and node.level == len(inside):
                names = [node.module] if node.module else [alias.name for alias in node.names]
                reached = {name.partition(".")[0] for name in names} & above.get(inside[0], folders)
                odd += [f"{named(path)}: {name}" for name in reached]
    assert odd == []


# -- one road -----------------------------------------------------------------------------------


def steps_run_out_of_place(path, tree):
    """What is done with a recipe's steps, other than to hand them to `run.execute`, and verbs looked up by a step.

    Each mention of `.program`, or of a variable of that name, is part of an argument of `execute`,
    of a length or a truth, or is kept under that name.
    """
    within = {id(child): node for node in nodes_of(tree) for child in ast.iter_child_nodes(node)}
    found = []
    for node in nodes_of(tree):
        name = (
            node.attr
            if isinstance(node, ast.Attribute)
            else node.id
            if isinstance(node, ast.Name)
            else ""
        )
        if name in ("program", "bulk") and isinstance(node.ctx, ast.Load):
            part, above = node, within[id(node)]
            while isinstance(above, (ast.Subscript, ast.IfExp)):
                part, above = above, within[id(above)]
            called = (
                isinstance(above, ast.Call)
                and part in above.args
                and ast.unparse(above.func).split(".")[-1]
            )
            kept = isinstance(above, ast.Assign) and ast.unparse(above.targets[0]) == name
            if called not in ("execute", "bool", "len") and not kept:
                found.append(f"{path.name}:{node.lineno} {function_of(node, within)}")
        if (
            isinstance(node, ast.Call)
            and getattr(node.func, "id", None) == "getattr"
            and ast.unparse(node.args[1])[-5:] == ".verb"
        ):
            found.append(f"{path.name}:{node.lineno} {function_of(node, within)}")
    return found


def function_of(node, within):
    """The name of the function that a node is in."""
    while not isinstance(node, ast.FunctionDef):
        node = within[id(node)]
    return node.name


def test_one_function_runs_the_steps_of_a_recipe():
    """It is `run.execute`, for one value as for a list of many; besides, one binds verbs to recipes.

    One puts what is done to the members of a stack before the step that joins them, and one makes
    functions of many values of those of one.
    """
    found = [line for path in MODULES for line in steps_run_out_of_place(path, tree_of(path))]
    assert {(line.partition(":")[0], line.rpartition(" ")[2]) for line in found} == {
        ("run.py", "execute"),
        ("recipes.py", "_bound_step"),
        ("recipes.py", "bulk"),
        ("stacks.py", "with_members"),
    }


@pytest.mark.parametrize(
    "line",
    [
        "for do in recipe.program: x = do(x)",
        "x = recipe.program[0](x)",
        "x = functools.reduce(lambda x, do: do(x), each.recipe.program, x)",
        "program = recipe.program; first, *others = program",
        "x = [do(x) for do in recipe.program[1:]]",
        "x = getattr(backend, step.verb)(x, *step.arguments)",
    ],
)
def test_other_ways_to_run_steps_are_found(line):
    """Each is one more road."""
    assert steps_run_out_of_place(
        PACKAGE / "other.py", ast.parse(f"def convert(x, recipe):\n    {line}")
    )


def descriptions_without_an_opening(tree):
    """Calls of a backend's `preview` without what a tensor is opened for."""
    return [
        ast.unparse(node)
        for node in nodes_of(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "preview"
        and len(node.args) < 2
    ]


def test_who_describes_a_tensor_gives_what_converts():
    """Tensors among the numbers of a list are converted by `run`: see `Opening` and `run.described`."""
    assert {
        named(path): found
        for path in MODULES
        if (found := descriptions_without_an_opening(tree_of(path)))
    } == {}
    forgotten = ast.parse("info = registry.backend_of(x).preview(x)[1]")
    assert descriptions_without_an_opening(forgotten)
