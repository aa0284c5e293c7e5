"""File formats of outside packages: looked up on a miss only; a broken one breaks reading and writing no other."""

from __future__ import annotations

import pytest
from tests.backends.plugins.packages import FORMAT, install, loads
from tests.support import lives

POINT = {"rows": "rows_ferry:Rows"}
ORDINARY = """
import os, tempfile, pathlib
import numpy as np
import tensorferry as ferry
from tensorferry.files.conversion.convert import convert_files
from tensorferry.files.reports.check import check_path
os.chdir(tempfile.mkdtemp())
tree = {"a": np.ones(3, np.float32), "b": np.zeros((2, 2))}
for name in ("x.npz", "x.safetensors"):
    ferry.save(tree, name)
    assert ferry.load(name)["a"].sum() == 3
    assert not list(check_path(pathlib.Path(name)))
convert_files("x.npz", "y.safetensors")
convert_files("x.npz", "folder", to="safetensors", shard=16)
assert ferry.load("folder")["a"].sum() == 3
os.mkdir("lone"); os.rename("y.safetensors", "lone/model.safetensors")
assert ferry.load("lone")["a"].sum() == 3
assert not list(check_path(pathlib.Path("lone"))), list(check_path(pathlib.Path("folder")))
os.rename("x.npz", "without_a_suffix")
assert ferry.load("without_a_suffix")["a"].sum() == 3
"""


def brings(folder, body=FORMAT, **settings):
    settings = {"points": POINT, **settings}
    return install(folder, "rows-ferry", "rows", body, group="formats", **settings)


def loaded(out):
    return out.splitlines()[-1].split()[1:]


def test_who_uses_the_built_in_formats_loads_no_outside_package(tmp_path):
    """To save, load, check and convert files, shards and folders opens no entry point."""
    brings(tmp_path)
    assert loaded(lives(loads(tmp_path, ORDINARY))) == []


@pytest.mark.parametrize(
    "code",
    [
        "pathlib.Path('x').write_bytes(b'ROWS'); assert ferry.load('x') == {}",
        "pathlib.Path('x.rows').write_bytes(b'ROWS'); assert ferry.load('x.rows') == {}",
        "from tensorferry.files.opening.paths import format_named; assert format_named('rows').title == 'Rows'",
        "import tensorferry.files.opening.paths as r; assert r.format_for(pathlib.Path('x.rows')).title == 'Rows'",
        "from tensorferry.files.opening.paths import formats; assert 'rows' in formats()",
    ],
)
def test_a_miss_opens_it(tmp_path, code):
    """Bytes, a name or a suffix that no format of tensorferry's has."""
    brings(tmp_path)
    head = "import os, tempfile, pathlib, tensorferry as ferry\nos.chdir(tempfile.mkdtemp())\n"
    assert loaded(lives(loads(tmp_path, head + code))) == ["rows_ferry"]


BROKEN = {
    "an import that fails": ("raise ImportError('no librows')", "ImportError: no librows"),
    "an import that ends the process": ("raise SystemExit('no licence')", "SystemExit: no licence"),
    "no format": ("Rows = 3", "not of int"),
    "another class": ("class Rows: pass", "not of type"),
    "an abstract class": (
        "from tensorferry.files.base.format import Format\nclass Rows(Format): pass",
        "TypeError",
    ),
    "a constructor that fails": (
        FORMAT + "    def __init__(self): raise OSError('no librows')",
        "OSError: no librows",
    ),
    "another name": (FORMAT.replace('"rows"', '"lines"'), "named 'rows', and its format 'lines'"),
    "a suffix that is no tuple": (
        FORMAT.replace('(".rows",)', '".rows"'),
        "suffixes must be a tuple",
    ),
    "a wrong rank": (FORMAT + "    rank = 'first'", "a whole number"),
    "no dtypes": (FORMAT.replace('frozenset({"float32"})', "None"), "dtypes must be a frozenset"),
    "an index without a suffix": (
        FORMAT.replace('(".rows",)', "()") + '    index_suffix = ".index.json"',
        "no suffix that it is put after",
    ),
}
UNTOUCHED = """
from tensorferry.files.opening.paths import format_named, formats, outside
pathlib.Path("nothing").write_bytes(b"1234")
try:
    ferry.load("nothing")
except ferry.FileFormatError as error:
    assert "no format that tensorferry knows" in str(error) and "rows-ferry" not in str(error), error
else:
    raise SystemExit("loaded")
assert "npz" in formats()
"""
NAMED = """
for call in (lambda: format_named("rows"), lambda: ferry.save(tree, "z", to="rows")):
    try:
        call()
    except ferry.FrameworkNotInstalledError as error:
        assert "The format 'rows' of rows-ferry 1.0 is broken" in error.message and {why!r} in str(error), error
        assert error.hint == "pip install --upgrade rows-ferry" and error.__cause__ is not None
    else:
        raise SystemExit("found")
pathlib.Path("x.rows").write_bytes(b"ROWS")
try:
    ferry.load("x.rows")
except ferry.FileFormatError as error:
    assert "rows-ferry 1.0" in str(error), error
else:
    raise SystemExit("loaded")
(plugin,) = outside.plugins()
assert plugin[:3] == ("tensorferry.formats", "rows", "rows-ferry 1.0") and plugin.error, plugin
assert "rows" not in formats()
"""


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_entry_point_reaches_only_who_names_it(tmp_path, what):
    """Known formats are read and written; who names it, also by its file's suffix, is told the package and why."""
    body, why = BROKEN[what]
    brings(tmp_path, body)
    lives(loads(tmp_path, ORDINARY + UNTOUCHED + NAMED.format(why=why)))


def test_one_that_cannot_recognise_is_left_aside(tmp_path):
    """It is recorded, the others are asked, and what is read otherwise is as ever."""
    brings(tmp_path, FORMAT.replace('return head[:4] == b"ROWS"', 'raise OSError("cannot tell")'))
    code = """
    assert outside.plugins()[0].error == "OSError: cannot tell", outside.plugins()
    os.mkdir("empty")
    try:
        ferry.load("empty")
    except ferry.FileFormatError:
        pass
    """
    lives(
        loads(
            tmp_path,
            ORDINARY + UNTOUCHED.replace(' and "rows-ferry" not in str(error)', "") + dedent(code),
        )
    )


def dedent(code):
    import textwrap

    return textwrap.dedent(code)


def test_tensorferrys_own_names_and_suffixes_are_its_own(tmp_path):
    """An outside format named npz is not used, nor imported; one with a suffix of ours is asked by its name only."""
    brings(
        tmp_path, FORMAT.replace('".rows"', '".npz"'), points={**POINT, "npz": "evil_ferry:Rows"}
    )
    (tmp_path / "evil_ferry.py").write_text(
        "raise SystemExit('must not be imported')", encoding="utf-8"
    )
    code = """
    from tensorferry.files.opening.paths import format_for, format_named, formats, outside
    import pathlib
    formats()
    assert format_named("npz").title != "Rows" and format_for(pathlib.Path("x.npz")).name == "npz"
    assert format_named("rows").title == "Rows"
    (error,) = [each.error for each in outside.plugins() if each.name == "npz"]
    assert "of tensorferry itself" in error, error
    """
    assert loaded(lives(loads(tmp_path, code))) == ["rows_ferry"]


def test_shards_of_an_outside_format(tmp_path):
    """A folder with an index of its shards: the format is found by the index's name."""
    body = FORMAT + '    index_suffix = ".index.json"\n'
    brings(tmp_path, body)
    code = """
    import os, tempfile, pathlib, tensorferry as ferry
    from tensorferry.files.opening.paths import index_of
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "model.rows.index.json").write_text("{}")
    assert index_of(folder) == folder / "model.rows.index.json"
    assert index_of(folder / "model.rows.index.json") is not None
    """
    assert loaded(lives(loads(tmp_path, code))) == ["rows_ferry"]
