"""Columns of Parquet and Arrow files are what they are in memory: values, dtypes, shapes, keywords and errors."""

from __future__ import annotations

import ast
import datetime as dt
import decimal
import json
import math
import pickle
import re
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file
from tests.files.test_arrow import theirs
from tests.support import COMMAND_LINE, examples, forked, forked_command

import tensorferry as ferry
from tensorferry.errors import ConversionError, FormatLimitError, TreeError, UnsafeFileError
from tensorferry.files.tables.parquet import Pages

ROWS = 60
FORMS = {
    "one batch": ("a.arrow", {}),
    "batches": (
        "a.arrow",
        {"max_chunksize": 7, "options": pa.ipc.IpcWriteOptions(compression="zstd")},
    ),
    "stream": ("a.arrows", {"max_chunksize": 7}),
    "parquet": ("a.parquet", {}),
    "row groups": (
        "a.parquet",
        {"row_group_size": 7, "compression": "zstd", "data_page_version": "2.0"},
    ),
}
"""The names of files, and how pyarrow writes them."""


def every(*values, kind=None):
    """A column of values that are repeated."""
    return pa.array([values[row % len(values)] for row in range(ROWS)], kind)


def _tensors_of_any_shape():
    shapes = pa.array([[1, 2], [2, 1]] * (ROWS // 2), pa.list_(pa.int32(), 2))
    data = pa.array([[1.0, 2.0]] * ROWS, pa.list_(pa.float32()))
    return pa.StructArray.from_arrays([data, shapes], ["data", "shape"])


NUMBERS = {
    **{f"int{bits}": every(1, -2, 3, kind=f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": every(1, 2, 3, kind=f"uint{bits}") for bits in (8, 16, 32, 64)},
    "float16": every(1.5, -2, 0, kind="float16"),
    "float32": every(1.5, -2, 0, kind="float32"),
    "float64": every(1.5, -2, 0, kind="float64"),
    "large integers": every(2**53 + 1, 2**62, kind="int64"),
    "bool": every(True, False, False),
    "null in int64": every(1, 2, None, 4, kind="int64"),
    "null in uint8": every(None, 2, 3, kind="uint8"),
    "null in float32": every(1.5, None, kind="float32"),
    "null in bool": every(True, None, False),
    "null at the end": pa.array([*range(ROWS - 1), None], "int32"),
    "null in large integers": every(2**53 + 1, None, kind="int64"),
    "nan and null": every(math.nan, None, 1.0),
    "fixed": every([1, 2, 3], [4, 5, 6], kind=pa.list_(pa.int16(), 3)),
    "fixed with null inside": every([1, None, 3], [4, 5, 6], kind=pa.list_(pa.int16(), 3)),
    "fixed bool": every([True, False], kind=pa.list_(pa.bool_(), 2)),
    "lists": every([1.5, 2], [3, 4], kind=pa.list_(pa.float32())),
    "large lists": every([1.5, 2], [3, 4], kind=pa.large_list(pa.float64())),
    "lists of bool": every([True, False, True], kind=pa.list_(pa.bool_())),
    "lists in lists": every(
        [[1, 2], [3, 4], [5, 6]], [[7, 8], [9, 0], [1, 1]], kind=pa.list_(pa.list_(pa.int8()))
    ),
    "lists of fixed": every([[1, 2], [3, 4]], kind=pa.list_(pa.list_(pa.int32(), 2))),
    "null inside lists": every([1, None], [3, 4], kind=pa.list_(pa.int64())),
    "null inside lists of floats": every([1, None], [3, 4], kind=pa.list_(pa.float32())),
    "empty lists": every([], kind=pa.list_(pa.float32())),
    "empty lists in lists": every([[], []], kind=pa.list_(pa.list_(pa.int8()))),
    "ragged": every([1], [2, 3], [], [4], kind=pa.list_(pa.int64())),
    "ragged at the end": pa.array([[1, 2]] * (ROWS - 1) + [[3]], pa.list_(pa.int32())),
    "ragged by group": pa.array([[1, 2]] * 7 + [[1, 2, 3]] * (ROWS - 7), pa.list_(pa.float32())),
    "ragged large": every([1.5], [2, 3], kind=pa.large_list(pa.float32())),
    "ragged bool": every([True], [False, True], kind=pa.list_(pa.bool_())),
    "ragged of fixed": every([[1, 2]], [[3, 4], [5, 6]], kind=pa.list_(pa.list_(pa.int32(), 2))),
    "ragged with null inside": every([1], [2, None], kind=pa.list_(pa.int64())),
}
"""Columns whose values are numbers, as `to_pylist` has them."""
TEXT = {
    "text": every("a", "b", None),
    "bytes": every(b"a", None),
    "lists of text": every(["a"], ["b", "c"]),
    "categories": every("a", "b", "a").dictionary_encode(),
    "structs": every({"x": 1, "y": 2.5}),
    "nulls alone": pa.nulls(ROWS),
    "dates": every(dt.date(1970, 1, 2), dt.date(1969, 1, 1)),
    "dates with null": every(dt.date(1970, 1, 2), None),
    "timestamps": every(0, 1, 2, kind=pa.timestamp("ms", "Europe/Oslo")),
    "durations": every(0, 5, kind=pa.duration("us")),
}
"""Columns that stay as they are in a tree."""
OTHERS = {
    "tensors": pa.FixedShapeTensorArray.from_numpy_ndarray(
        np.arange(6 * ROWS, dtype="f4").reshape(ROWS, 2, 3)
    ),
    "permuted tensors": pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.int16(), [2, 3], permutation=[1, 0]),
        every([1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1], kind=pa.list_(pa.int16(), 6)),
    ),
    "null in the place of a list": every([1], None, [2], kind=pa.list_(pa.int64())),
    "null in the place of a fixed list": every([1, 2], None, kind=pa.list_(pa.int64(), 2)),
    "ragged in lists": every([[1], [2, 3]], [[4], [5]], kind=pa.list_(pa.list_(pa.int8()))),
    "views of lists": every([1], [2, 3], kind=pa.list_view(pa.int64())),
    "structs of tensors": _tensors_of_any_shape(),
    "integers in a dictionary": every(5, 7, 5).dictionary_encode(),
    "null in a dictionary": every(5, None, 7).dictionary_encode(),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([7, ROWS], "int32"), pa.array([1.5, 2.5])),
    "whole decimals": every(decimal.Decimal(1), decimal.Decimal(-20), kind=pa.decimal128(20, 0)),
    "decimals": every(
        decimal.Decimal("1.10"), decimal.Decimal("-20.55"), kind=pa.decimal128(20, 2)
    ),
    "null in decimals": every(decimal.Decimal("1.10"), None, kind=pa.decimal128(20, 2)),
    "decimals that do not fit": pa.array(
        [decimal.Decimal(1)] * 50 + [decimal.Decimal(2**70)] * 10, pa.decimal128(30, 0)
    ),
    "lists of decimals": every([decimal.Decimal("1.5")], kind=pa.list_(pa.decimal128(5, 1))),
    "lists of dates": every([dt.date(1970, 1, 2)], [dt.date(1970, 1, 3)]),
}
COLUMNS = {**NUMBERS, **TEXT, **OTHERS}
NOT_IN_PARQUET = {"views of lists", "runs", "durations", "null in the place of a fixed list"}
"""Types and values that pyarrow does not write into Parquet, or not in every release, or reads as something else."""

KEYWORDS = [
    {},
    {"nulls": 0},
    {"nulls": -1.5},
    {"nulls": False},
    {"nulls": "nan"},
    {"nulls": "mask"},
    {"ragged": "rows"},
    {"pad": 0},
    {"pad": -7},
    {"pad": False},
    {"pad": math.nan},
    {"pad": 0, "nulls": 0},
    {"pad": 0, "nulls": "mask"},
    {"ragged": "rows", "nulls": 9},
    {"ragged": "rows", "nulls": "mask"},
]
DTYPES = [
    {"dtype": {"x": "int64"}},
    {"dtype": {"x": "float32"}},
    {"dtype": "float32", "nulls": "nan"},
    {"dtype": {"int": "float64"}, "nulls": "nan"},
    {"dtype": {"int": "float64"}, "nulls": "nan", "pad": 0},
    {"dtype": {"x": "int32"}, "nulls": 0},
    {"dtype": {"x": "int64"}, "nulls": "mask"},
]


def read_by_pyarrow(path):
    """The table in a file, in memory."""
    if path.suffix == ".parquet":
        return pq.read_table(path)
    with pa.OSFile(str(path)) as source:
        return (pa.ipc.open_stream if path.suffix == ".arrows" else pa.ipc.open_file)(
            source
        ).read_all()


def outcome(call):
    """What a call gives, or its error."""
    try:
        return call()
    except ConversionError as error:
        return error


def said(error):
    """The message of an error, without what it calls a column and where that is."""
    return re.sub(r"^This \w+ ('x' )?", "This column ", error.message).partition(" - at ")[0]


def same(a, b):
    """Whether two trees have the same keys, dtypes, shapes and bits."""
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def written(tmp_path, form, name, **others):
    """A file with a column ``x``, written by pyarrow."""
    suffix, options = FORMS[form]
    if suffix == "a.parquet" and name in NOT_IN_PARQUET:
        pytest.skip(f"pyarrow does not write {name} into Parquet as they are")
    path = tmp_path / suffix
    theirs(path, pa.table({"x": COLUMNS[name], **others}), **options)
    return path


COMPARED = ["one batch", "batches", "row groups"]


@pytest.mark.parametrize("which", ["third", pytest.param("all", marks=pytest.mark.slow)])
@pytest.mark.parametrize("form", COMPARED)
@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_is_what_it_is_in_memory(tmp_path, form, name, which):
    """With every keyword: the same tree or the same error as `convert_tree` of the table that pyarrow reads.

    A third of the keywords for each form and column, another for the next form and the next column:
    each column meets each keyword, and each form does.
    """
    path = written(tmp_path, form, name)
    table = read_by_pyarrow(path)
    every = (*KEYWORDS, *DTYPES)
    first = (COMPARED.index(form) + list(COLUMNS).index(name)) % 3
    # A column that one of the forms cannot hold would meet two thirds.
    whole = which == "all" or name in NOT_IN_PARQUET
    for keywords in every if whole else every[first::3]:
        memory = outcome(lambda given=keywords: ferry.convert_tree(table, "numpy", **given))
        file = outcome(lambda given=keywords: ferry.load(path, **given))
        if isinstance(memory, dict) and isinstance(memory["x"], pa.ChunkedArray):
            assert isinstance(file, FormatLimitError), keywords
            assert re.search(r"holds what cannot be loaded: x \(", file.message), keywords
            assert file.hint == "strict=False"  # nothing is left without the only column
        elif isinstance(memory, ConversionError) and "no tensor" in memory.message:
            assert isinstance(file, ConversionError), keywords
        elif isinstance(memory, ConversionError):
            assert type(file) is type(memory), (keywords, memory, file)
            assert said(file) == said(memory), keywords
            assert file.message.endswith(" - at 'x'"), keywords
        else:
            assert not isinstance(file, ConversionError), (keywords, file)
            assert same(file, memory), keywords


def plain(value, nulls):
    """A value of `to_pylist`, with nulls replaced."""
    if isinstance(value, list):
        return [plain(each, nulls) for each in value]
    return nulls if value is None else value


def there(value):
    """The mask of a value."""
    return [there(each) for each in value] if isinstance(value, list) else value is not None


def equal(a, b):
    """Whether two plain values are equal, NaN too."""
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(equal, a, b))
    return a == b or (a != a and b != b)  # noqa: PLR0124 - that is what NaN is


def lacks(value):
    return any(map(lacks, value)) if isinstance(value, list) else value is None


@pytest.mark.parametrize("form", ["batches", "row groups"])
@pytest.mark.parametrize("name", NUMBERS)
def test_the_values_are_those_of_pyarrow(tmp_path, form, name):
    """Plain Python over `to_pylist` says what each number is, which null is replaced, and where the padding is."""
    path = written(tmp_path, form, name)
    values = COLUMNS[name].to_pylist()
    lengths = {len(value) for value in values if isinstance(value, list)}
    zero = False if "bool" in name else 0
    padded = {"pad": zero} if len(lengths) > 1 else {}
    found = ferry.load(path, nulls="mask", **padded)
    expected, mask = plain(values, zero), there(values)
    if padded:
        inner = [[0, 0]] if "of fixed" in name else [zero]
        gone = [[False, False]] if "of fixed" in name else [False]
        expected = [each + inner * (max(lengths) - len(each)) for each in expected]
        mask = [each + gone * (max(lengths) - len(each)) for each in mask]
    assert equal(found["x"].tolist(), expected)
    assert found["x_mask"].tolist() == mask
    filled = ferry.load(path, nulls=zero, **padded)
    assert list(filled) == ["x"]
    assert equal(filled["x"].tolist(), expected)
    if len(lengths) > 1:
        rows = ferry.load(path, nulls=zero, ragged="rows")["x"]
        assert [each.tolist() for each in rows] == plain(values, zero)
    if any(map(lacks, values)):
        with pytest.raises(ferry.UnsupportedTypeError, match="null"):
            ferry.load(path, **padded)


@pytest.mark.parametrize("form", ["one batch", "row groups"])
@pytest.mark.parametrize(
    "keywords",
    [{"nulls": "mask", "pad": 0}, {"nulls": 0, "ragged": "rows"}, {"nulls": 0, "pad": 0}],
    ids=str,
)
def test_convert_files_writes_what_load_gives(tmp_path, form, keywords):
    """Safetensors' own reader finds each tensor: values, masks beside them, and rows under names of their own."""
    suffix, options = FORMS[form]
    names = [name for name in NUMBERS if "bool" not in name]
    path = tmp_path / suffix
    theirs(path, pa.table({name: COLUMNS[name] for name in names}), **options)
    loaded = ferry.load(path, **keywords)
    report = ferry.convert_files(path, tmp_path / "out.safetensors", verify=True, **keywords)
    flat = {}
    for name, value in loaded.items():
        rows = (
            {f"{name}.{number}": each for number, each in enumerate(value)}
            if isinstance(value, list)
            else {}
        )
        flat |= rows or {name: value}
    held = load_file(tmp_path / "out.safetensors")
    assert report.tensors == len(held)
    assert same(dict(sorted(held.items())), dict(sorted(flat.items())))
    assert same(ferry.load(tmp_path / "out.safetensors"), loaded)


def test_only_columns_that_are_taken_are_read(tmp_path):
    """What is left out raises no error, and its keywords are not needed; masks and rows go with their columns."""
    path = tmp_path / "a.parquet"
    names = ["int64", "ragged", "null in int64", "text"]
    theirs(path, pa.table({name: COLUMNS[name] for name in names}))
    assert list(ferry.load(path, names="int64")) == ["int64"]
    assert list(ferry.load(path, exclude=["text", "ragged"], nulls=0)) == ["int64", "null in int64"]
    found = ferry.load(path, names="null*", nulls="mask")
    assert list(found) == ["null in int64", "null in int64_mask"]
    with pytest.raises(FormatLimitError, match=r"holds what cannot be loaded: text \(holds text"):
        ferry.load(path, nulls=0, pad=0)
    with pytest.warns(UserWarning, match="text"):
        assert list(ferry.load(path, nulls=0, pad=0, strict=False)) == names[:3]
    ferry.convert_files(
        path, tmp_path / "a.npz", include=["ragged"], ragged="rows", rename=["s/^ragged/r/"]
    )
    with np.load(tmp_path / "a.npz") as held:
        assert [held[f"r.{row}"].tolist() for row in range(4)] == [[1], [2, 3], [], [4]]
    report = ferry.convert_files(
        path, tmp_path / "b.safetensors", tensors_only=True, nulls=0, pad=0
    )
    assert "text" in report.warnings[0]
    assert sorted(load_file(tmp_path / "b.safetensors")) == sorted(names[:3])


def test_several_errors_are_raised_together(tmp_path):
    """Each with the name of its column."""
    path = tmp_path / "a.parquet"
    theirs(path, pa.table({name: COLUMNS[name] for name in ("ragged", "int64", "decimals")}))
    with pytest.raises(TreeError) as caught:
        ferry.load(path)
    assert [each.message.rpartition(" - at ")[2] for each in caught.value.exceptions] == [
        "'ragged'",
        "'decimals'",
    ]


@pytest.mark.parametrize("form", ["one batch", "parquet"])
@pytest.mark.parametrize("name", [*NUMBERS, *OTHERS])
def test_the_code_in_hints_can_be_pasted(tmp_path, form, name):
    """Each way out is keywords of the call with which it works, or a call with the column as pyarrow reads it."""
    path = written(tmp_path, form, name, beside=COLUMNS["int64"])
    for call, out in ((ferry.load, []), (ferry.convert_files, [tmp_path / "out.npz"])):
        error = outcome(lambda: call(path, *out))  # noqa: B023
        if not isinstance(error, ConversionError):
            continue
        ways = [
            each.partition(", which")[0] for each in re.split(r"; or |, or (?=\w+=)", error.hint)
        ]
        assert ways[-1].startswith(("exclude=", "tensors_only=", "strict="))
        for each in ways:
            if re.match(r"(nulls|pad|ragged|dtype|exclude)=", each):
                call(
                    path,
                    *out,
                    **eval(f"dict({each})", {"dict": dict}),  # noqa: S307
                    **({"overwrite": True} if out else {}),
                )
            elif each.startswith("convert"):
                code = ast.unparse(ast.parse(each).body[0].value.args[0])
                assert eval(code, {"pa": pa, "pq": pq}) is not None  # noqa: S307
            else:
                assert each.startswith(("tensors_only=", "strict="))


@pytest.mark.parametrize(
    ("column", "options", "expected"),
    [
        ("null in int64", ["--nulls", "0"], {"x": [1, 2, 0, 4]}),
        ("null in float32", ["--nulls", "nan"], {"x": [1.5, math.nan] * 2}),
        ("null in bool", ["--nulls", "False"], {"x": [True, False, False, True]}),
        (
            "null in int64",
            ["--nulls", "mask"],
            {"x": [1, 2, 0, 4], "x_mask": [True, True, False, True]},
        ),
        ("ragged", ["--pad", "-1"], {"x": [[1, -1], [2, 3], [-1, -1], [4, -1]]}),
        ("ragged", ["--ragged", "rows"], {"x.0": [1], "x.1": [2, 3], "x.2": [], "x.3": [4]}),
        ("dates", ["--dtype", "x=int64"], {"x": [1, -365, 1, -365]}),
    ],
)
def test_the_command_has_the_keywords(tmp_path, column, options, expected):
    """As options with values; safetensors' own reader finds the result."""
    path, out = tmp_path / "a.parquet", tmp_path / "out.safetensors"
    theirs(path, pa.table({"x": COLUMNS[column][:4]}))
    done = forked_command(COMMAND_LINE, ["convert", path, out, *options])
    assert done.returncode == 0, done.stderr
    found = {name: each.tolist() for name, each in load_file(out).items()}
    assert sorted(found) == sorted(expected)
    assert all(equal(found[name], value) for name, value in expected.items())


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            [],
            "--nulls 0, which replaces them; or --nulls mask; or --exclude x, which leaves it out",
        ),
        (["--nulls", "much"], "'much' is no number, nor true or false"),
        (["--ragged", "row"], "is not one of rows"),
        (["--ragged", "rows", "--pad", "0"], "--ragged and --pad contradict each other"),
        (["--nulls", "nan"], "--nulls 0, or --dtype"),
    ],
)
def test_the_command_says_which_options_there_are(tmp_path, options, told):
    """In hints, and for values that they do not take."""
    path = tmp_path / "a.parquet"
    theirs(path, pa.table({"x": COLUMNS["null in int64"], "beside": COLUMNS["int64"]}))
    words = ["convert", path, tmp_path / "o.npz", *options]
    done = forked_command(COMMAND_LINE, words, COLUMNS="500")
    assert done.returncode == 2
    assert told in done.stderr
    assert not (tmp_path / "o.npz").exists()


@pytest.mark.parametrize(
    ("keywords", "error"),
    [
        ({"nulls": []}, TypeError),
        ({"nulls": "much"}, ValueError),
        ({"ragged": "row"}, ValueError),
        ({"pad": "0"}, TypeError),
        ({"ragged": "rows", "pad": 0}, TypeError),
    ],
)
def test_values_that_a_keyword_does_not_take_are_refused_as_in_memory(tmp_path, keywords, error):
    """By the same words, for files with and without tables."""
    table = pa.table({"x": [1, 2]})
    theirs(tmp_path / "a.parquet", table)
    np.savez(tmp_path / "a.npz", x=np.ones(2))
    with pytest.raises(error) as memory:
        ferry.convert_tree(table, "numpy", **keywords)
    for name in ("a.parquet", "a.npz"):
        with pytest.raises(error, match=re.escape(str(memory.value))):
            ferry.load(tmp_path / name, **keywords)
        with pytest.raises(error, match=re.escape(str(memory.value))):
            ferry.convert_files(tmp_path / name, tmp_path / "out.npz", **keywords)


def test_a_lazy_tree_has_the_keywords_too(tmp_path):
    """Also after it was pickled; columns without nulls of a mapped file are used where they lie."""
    path = tmp_path / "a.arrow"
    theirs(path, pa.table({"x": [1, None, 3], "r": [[1.0], [2.0, 3.0], []], "y": [1.5, 2.5, 3.5]}))
    lazy = ferry.load(path, "torch", lazy=True, nulls=0, ragged="rows")
    for tree in (lazy, pickle.loads(pickle.dumps(lazy))):  # noqa: S301 - its own
        assert tree["x"].tolist() == [1, 0, 3]
        assert [row.tolist() for row in tree["r"]] == [[1.0], [2.0, 3.0], []]
        assert tree["y"].tolist() == [1.5, 2.5, 3.5]


def test_open_says_what_it_knows_of_lists(tmp_path):
    """The header tells the shapes of fixed lists, and only the type of others; the commands read them."""
    path = tmp_path / "a.parquet"
    theirs(path, pa.table({name: COLUMNS[name] for name in ("fixed", "lists", "ragged", "dates")}))
    contents = ferry.open(path)
    assert contents.tensors["fixed"].shape == (ROWS, 3)
    assert set(contents.others) == {"lists", "ragged", "dates"}
    assert contents.others["lists"].startswith("list<")
    assert 'dtype={"dates": "int64"}' in contents.others["dates"]
    for more, expected in (([], {"fixed"}), (["--values"], {"fixed", "lists"})):
        done = forked_command(COMMAND_LINE, ["inspect", path, "--json", *more])
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)["files"][0]
        assert found["tensors"] == len(expected)
        assert set(found["others"]) == {"fixed", "lists", "ragged", "dates"} - expected


def test_diff_compares_lists(tmp_path):
    """A number that differs in a list of one table is found; lists that differ in length are told."""
    one, other = tmp_path / "a.parquet", tmp_path / "b.arrow"
    theirs(one, pa.table({"x": [[1.0, 2.0], [3.0, 4.0]]}))
    for value, code in ((4.0, 0), (5.0, 1)):
        theirs(other, pa.table({"x": [[1.0, 2.0], [3.0, value]]}))
        assert forked_command(COMMAND_LINE, ["diff", one, other]).returncode == code


@pytest.mark.parametrize("form", FORMS)
def test_check_finds_damage_and_not_what_tables_may_hold(tmp_path, form):
    """Nulls, unequal lists and decimals that no integer holds are no damage; an index outside of a dictionary is."""
    suffix, options = FORMS[form]
    path = tmp_path / suffix
    names = [name for name in COLUMNS if suffix != "a.parquet" or name not in NOT_IN_PARQUET]
    theirs(path, pa.table({name: COLUMNS[name] for name in names}), **options)
    words = ["check", path, "--json"]
    done = forked_command(COMMAND_LINE, words)
    assert done.returncode == 0, done.stdout
    bad = pa.DictionaryArray.from_arrays(
        pa.array([0, 5] * 30, "int32"), pa.array([1.5, 2.5]), safe=False
    )
    if suffix != "a.parquet":
        theirs(path, pa.table({"x": bad}), **options)
        done = forked_command(COMMAND_LINE, words)
        assert done.returncode == 1
        assert "at row 1" in done.stdout


_BIG = """
import sys
import pyarrow as pa
import tensorferry as ferry

path, small, out = sys.argv[1:]
ferry.convert_files(small, out, overwrite=True, nulls=0)
pool, held_before = pa.default_memory_pool(), pa.total_allocated_bytes()
report = ferry.convert_files(path, out, overwrite=True, nulls=0)
print(report.bytes_written, pool.max_memory() - held_before)
"""


@pytest.mark.parametrize("name", ["arrow", pytest.param("parquet", marks=pytest.mark.slow)])
@pytest.mark.parametrize("column", ["lists", "nulls"])
def test_memory_does_not_grow_with_columns_of_one_shape(tmp_path, name, column):
    """Lists of one length and nulls are read some rows at a time: 256 MiB in a fraction of it."""
    path, small = tmp_path / f"big.{name}", tmp_path / f"small.{name}"
    numbers = pa.array(np.arange(1 << 18, dtype="f4"))
    if column == "lists":
        offsets = pa.array(np.arange(0, (1 << 18) + 1, 256, dtype="i4"))
        numbers = pa.ListArray.from_arrays(offsets, numbers)
    else:
        numbers = pa.array(np.arange(1 << 18, dtype="f4"), mask=np.arange(1 << 18) % 7 == 0)
    group = pa.table({"x": numbers})
    for file, count in ((small, 2), (path, 256)):
        make = pq.ParquetWriter if name == "parquet" else pa.ipc.new_file
        with make(str(file), group.schema) as writer:
            for _ in range(count):
                writer.write_table(group)
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        _BIG,
        str(path),
        str(small),
        str(tmp_path / "out.safetensors"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    nbytes, library = map(int, done.stdout.split())
    assert nbytes == 256 << 20
    assert library < 64 << 20


def test_a_list_of_a_billion_in_a_few_bytes_is_refused(tmp_path):
    """Before it is decoded: by the headers of pages, by the rows of runs, by the size that padding would take."""
    zeros = pa.ListArray.from_arrays(
        pa.array([0, 70_000_000], "int32"), pa.array(np.zeros(70_000_000, "i1"))
    )
    # Without a dictionary, which PyArrow would look for in all of them.
    pq.write_table(
        pa.table({"x": zeros}), tmp_path / "a.parquet", compression="zstd", use_dictionary=False
    )
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([(1 << 31) - 1], "int64"), pa.array([1.5]))
    theirs(tmp_path / "a.arrow", pa.table({"x": runs}))
    ragged = pa.ListArray.from_arrays(
        pa.array([0, *[1 << 16] * (1 << 14)], "int32"), pa.array(np.arange(1 << 16, dtype="f4"))
    )
    theirs(tmp_path / "b.parquet", pa.table({"x": ragged}))
    assert len(ferry.load(tmp_path / "b.parquet", ragged="rows")["x"]) == 1 << 14
    code = "import sys, tensorferry as ferry, pyarrow as pa\ntry: ferry.load(sys.argv[1], pad=0)\n"
    code += "except ferry.UnsafeFileError as error: print(pa.default_memory_pool().max_memory(), error.message)"
    for name in ("a.parquet", "a.arrow", "b.parquet"):
        status, out, err = forked(COMMAND_LINE, code, tmp_path / name)
        assert status == 0, err
        used, _, message = out.partition(" ")
        assert "out of all proportion" in message
        assert int(used) < 64 << 20


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
def test_values_are_counted_as_pyarrow_counts_them(tmp_path, version, compression):
    """For each column of Parquet, over several groups of rows and pages, with dictionaries and without."""
    names = [name for name in COLUMNS if name not in NOT_IN_PARQUET]
    table = pa.concat_tables([pa.table({name: COLUMNS[name] for name in names})] * 9)
    options = {
        "compression": compression,
        "data_page_version": version,
        "data_page_size": 64,
        "row_group_size": 100,
    }
    pq.write_table(table, tmp_path / "a.parquet", write_batch_size=16, **options)
    metadata = pq.ParquetFile(tmp_path / "a.parquet").metadata
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    pages = Pages(str(tmp_path / "a.parquet"), metadata.num_columns)
    for column in range(metadata.num_columns):
        expected = sum(group.column(column).num_values for group in groups)
        assert pages.values(range(column, column + 1)) == expected
    assert len(groups) > 1


@pytest.mark.parametrize("form", FORMS)
def test_damaged_tables_end_nothing(tmp_path, form):
    """Whatever bit is flipped in columns of every type, there are arrays or a named error."""
    suffix, options = FORMS[form]
    path = tmp_path / suffix
    names = [
        "int64",
        "null in float32",
        "lists",
        "ragged",
        "null inside lists",
        "lists in lists",
        "fixed",
    ]
    names += [
        "tensors",
        "integers in a dictionary",
        "null in a dictionary",
        "decimals",
        "structs of tensors",
        "text",
    ]
    theirs(path, pa.table({name: COLUMNS[name] for name in names}), **options)
    code = """
import random, sys, warnings
import tensorferry as ferry
warnings.simplefilter("ignore")
path, count, draw, refused = sys.argv[1], int(sys.argv[2]), random.Random(5), 0
raw = open(path, "rb").read()
for _ in range(count):
    changed = bytearray(raw)
    changed[draw.randrange(8, len(raw))] ^= 1 << draw.randrange(8)
    open(path, "wb").write(changed)
    try:
        ferry.load(path, nulls=0, pad=0, strict=False)
    except ferry.ConversionError:
        refused += 1
print(refused)
"""
    status, out, err = forked(COMMAND_LINE, code, path, examples(250))
    assert status == 0, (status, err[-2000:])
    assert int(out) > 0


def test_an_interrupted_conversion_goes_on_with_nan(tmp_path):
    """Two parts of one conversion know each other, though NaN is not equal to itself."""
    path = tmp_path / "a.parquet"
    theirs(path, pa.table({name: COLUMNS[name] for name in ("null in float32", "float64")}))
    for part in ((1, 2), (2, 2)):
        ferry.convert_files(
            path, tmp_path / "out", to="safetensors", shard=300, nulls=math.nan, part=part
        )
    found = ferry.load(tmp_path / "out")
    assert equal(found["null in float32"].tolist(), [1.5, math.nan] * (ROWS // 2))


def test_an_unsafe_table_is_unsafe_for_every_keyword(tmp_path):
    """A table of far more rows than its bytes can hold is refused when it is opened."""
    theirs(tmp_path / "a.arrow", pa.table({"x": pa.nulls(5, pa.int64())}))
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([(1 << 31) - 1], "int64"), pa.array([1.5]))
    theirs(tmp_path / "b.arrow", pa.table({"x": runs}))
    with pytest.raises(UnsafeFileError, match="out of all proportion"):
        ferry.open(tmp_path / "b.arrow")
