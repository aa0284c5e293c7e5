"""Columns of tables in files become what the same columns in memory become, whatever their type and the keywords."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import warnings
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file
from tests.support import COMMAND_LINE, examples, forked, forked_command

import tensorferry as ferry
from tensorferry.errors import (
    ConversionError,
    FormatLimitError,
    TreeError,
    UnsafeFileError,
    UnsupportedTypeError,
)

FORMS = ["arrow", "arrows", "parquet"]
KEYWORDS = [
    {},
    {"nulls": 0},
    {"nulls": False},
    {"nulls": "nan"},
    {"nulls": "mask"},
    {"ragged": "rows"},
    {"pad": 0},
    {"pad": 0, "nulls": 0},
    {"pad": 7, "nulls": "mask"},
    {"ragged": "rows", "nulls": "mask"},
    {"ragged": "rows", "nulls": 0},
]
NUMBERS = {"uint16": pa.uint16(), "int64": pa.int64(), "float16": pa.float16()}
NUMBERS |= {"float64": pa.float64(), "bool": pa.bool_()}


def saved(folder, table, form):
    """A file that pyarrow writes."""
    path = folder / f"table.{form}"
    if form == "parquet":
        pq.write_table(table, path)
        return path
    make = pa.ipc.new_file if form == "arrow" else pa.ipc.new_stream
    with pa.OSFile(str(path), "wb") as sink, make(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return path


def read(path):
    """The table that pyarrow reads."""
    if path.suffix == ".parquet":
        return pq.read_table(path)
    with pa.OSFile(str(path)) as source:
        opened = pa.ipc.open_file(source) if path.suffix == ".arrow" else pa.ipc.open_stream(source)
        return opened.read_all()


def test_the_command_names_each_of_several_columns(tmp_path):
    """It said "2 columns of … cannot be converted:", and nothing after that."""
    path = saved(tmp_path, pa.table({"a": [[1], [1, 2]], "b": [[1.5], [2.0, 3]]}), "parquet")
    command = ["convert", path, tmp_path / "a.npz", "--nulls", "0"]
    # The path is as long as the number of runs in the folder makes it, and would be broken.
    done = forked_command(COMMAND_LINE, command, COLUMNS="400")
    assert done.returncode == 2
    words = "".join(done.stderr.split())  # lines are broken anywhere in a long path
    assert f"2columnsof{path}cannotbeconverted:" in words
    assert all(f"'{name}'hasrowsofunequallengths" in words for name in "ab")
    assert "--excludea" in words
    done = forked_command(COMMAND_LINE, [*command, "--json"])
    error = json.loads(done.stdout)["error"]
    assert "'a' has rows" in error["message"]
    assert "'b' has rows" in error["message"]


def outcome(call):
    """What a call gives, or its error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return call()
        except ConversionError as error:
            return error


# -- by plain Python -------------------------------------------------------------------------------

ROWS = {
    "flat": [1, 0, 1, 1],
    "flat with nulls": [1, None, 0, None],
    "one length": [[1, 0], [0, 1], [1, 1]],
    "one length with nulls": [[1, None], [0, 1], [None, 1]],
    "several lengths": [[1, 0], [1], [], [1, 0, 1]],
    "several lengths with nulls": [[1, None], [1], [], [1, 0, None]],
    "a missing list": [[1, 0], None, [1, 1]],
    "lists in lists": [[[1], [0]], [[1], [1]]],
    "no rows": [],
}


def types_of(kind, shape):
    """Arrow's types for rows of this shape."""
    if shape.startswith("flat") or shape == "no rows":
        return [kind]
    if shape == "lists in lists":
        return [pa.list_(pa.list_(kind)), pa.large_list(pa.list_(kind))]
    fixed = [pa.list_(kind, 2)] if shape.startswith("one length") else []
    return [pa.list_(kind), pa.large_list(kind), *fixed]


def elements(rows):
    """All elements of rows, also of lists in them."""
    for each in rows:
        if isinstance(each, list):
            yield from elements(each)
        else:
            yield each


def replaced(rows, value):
    """Rows with a value in place of each null."""
    return [
        replaced(each, value) if isinstance(each, list) else value if each is None else each
        for each in rows
    ]


def present(rows):
    """Rows that say where there is a value."""
    return [present(each) if isinstance(each, list) else each is not None for each in rows]


def expected(rows, dtype, keywords):
    """Values and mask, in lists; ``None`` if there is an error."""
    nulls, pad = keywords.get("nulls"), keywords.get("pad")
    gone = None in [*elements(rows)]
    differ = (
        isinstance(rows[0], list) and len({len(each) for each in rows if each is not None}) > 1
        if rows
        else False
    )
    if any(each is None for each in rows) and any(isinstance(each, list) for each in rows):
        return None
    if gone and nulls is None:
        return None
    if gone and nulls == "nan" and not dtype.startswith("float"):
        return None
    if gone and nulls not in ("mask", "nan") and isinstance(nulls, bool) != (dtype == "bool"):
        return None
    if differ and pad is None and "ragged" not in keywords:
        return None
    if differ and pad is not None and dtype == "bool":
        return None  # 0 and 7 are no values of it
    filler = 0 if nulls == "mask" else float("nan") if nulls == "nan" else nulls
    values, mask = replaced(rows, filler), present(rows)
    if differ and pad is not None:
        longest = max(map(len, rows))
        values = [each + [pad] * (longest - len(each)) for each in values]
        mask = [each + [False] * (longest - len(each)) for each in mask]
    return values, mask if nulls == "mask" else None


def plain(found):
    """A tensor or a list of tensors as nested lists, with a word in place of NaN."""
    if isinstance(found, list):
        return [plain(each) for each in found]
    if isinstance(found, np.ndarray):
        return plain(found.tolist())
    return "nan" if found != found else found  # noqa: PLR0124 - that is what NaN is


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", ROWS)
@pytest.mark.parametrize("dtype", NUMBERS)
def test_columns_are_what_plain_python_says(tmp_path, form, shape, dtype):
    """Each type of numbers, in each kind of list, with each keyword, is what `to_pylist` and plain Python give."""
    rows = ROWS[shape]
    if dtype == "bool":
        rows = _as_bools(rows)
    if dtype == "float16":
        rows = _as_halves(rows)
    for kind in types_of(NUMBERS[dtype], shape):
        path = saved(tmp_path, pa.table({"x": pa.array(rows, kind)}), form)
        before = read(path)["x"].to_pylist()
        for keywords in KEYWORDS:
            wanted = expected(before, dtype, keywords)
            found = outcome(partial(ferry.load, path, **keywords))
            if wanted is None:
                assert isinstance(found, ConversionError), (kind, keywords)
                assert "'x'" in found.message
                continue
            assert not isinstance(found, ConversionError), (kind, keywords, found)
            values, mask = wanted
            assert plain(found["x"]) == plain(values), (kind, keywords)
            first = found["x"][0] if isinstance(found["x"], list) else found["x"]
            assert first.dtype == np.dtype(dtype)
            assert list(found) == (["x"] if mask is None else ["x", "x_mask"])
            assert mask is None or plain(found["x_mask"]) == mask


def _as_bools(rows):
    return [
        _as_bools(each) if isinstance(each, list) else each if each is None else bool(each)
        for each in rows
    ]


def _as_halves(rows):
    return [
        _as_halves(each) if isinstance(each, list) else each if each is None else np.float16(each)
        for each in rows
    ]


# -- as in memory ----------------------------------------------------------------------------------

TENSORS = pa.fixed_shape_tensor(pa.int32(), [2, 3], permutation=[1, 0])
OTHERS = {
    "permuted": pa.ExtensionArray.from_storage(
        TENSORS, pa.array([[*range(6)]] * 2, pa.list_(pa.int32(), 6))
    ),
    "tensors": pa.FixedShapeTensorArray.from_numpy_ndarray(
        np.arange(12, dtype="f4").reshape(2, 2, 3)
    ),
    "dictionary": pa.array([7, None]).dictionary_encode(),
    "categories": pa.array(["b", "a"]).dictionary_encode(),
    "days": pa.array([dt.date(1970, 1, 2), None]),
    "times": pa.array([5, 6], pa.timestamp("us", "UTC")),
    "prices": pa.array([decimal.Decimal("1.10"), decimal.Decimal("2.25")]),
    "whole decimals": pa.array([decimal.Decimal(12), None]),
    "structs": pa.array([{"a": 1}, {"a": 2}]),
    "map": pa.array([[(1, 2)], [(3, 4)]], pa.map_(pa.int8(), pa.int8())),
    "text": pa.array(["a", "b"]),
    "lists of text": pa.array([["a"], ["b"]]),
    "nothing": pa.nulls(2),
    "uneven": pa.array([[[1], [2]], [[3], [4, 5]]]),
    "missing": pa.array([[1, 2], None], pa.list_(pa.int16(), 2)),
    "views": pa.array([[1, 2], [3, 4]], pa.list_view(pa.int64())),
    "runs": pa.RunEndEncodedArray.from_arrays(
        pa.array([1, 2], pa.int32()), pa.array([3, None], pa.int8())
    ),
}
NAMED = [{}, {"nulls": 0}, {"nulls": "mask"}, {"ragged": "rows"}, {"pad": 0}]
NAMED += [
    {"dtype": {"x": name}, **more}
    for name in ("int64", "float64", "int32")
    for more in ({}, {"nulls": 0})
]


def same(one, other):
    """Whether two results have the same bits."""
    if isinstance(one, np.ndarray):
        return (
            one.dtype == other.dtype
            and one.shape == other.shape
            and one.tobytes() == other.tobytes()
        )
    return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", OTHERS)
def test_other_types_are_as_in_memory(tmp_path, form, kind):
    """Tensors, dictionaries, dates, decimals and what has no numbers: the same values or the same error."""
    try:
        path = saved(tmp_path, pa.table({"x": OTHERS[kind]}), form)
        table = read(path)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        pytest.skip(f"pyarrow does not write {kind} to {form}: {error}")
    for keywords in NAMED:
        memory = outcome(partial(ferry.convert_tree, table, "numpy", **keywords))
        found = outcome(partial(ferry.load, path, **keywords))
        if isinstance(memory, ConversionError):
            assert isinstance(found, ConversionError), keywords
            # Both say why in the same words; only what they call the column differs.
            why = memory.message.partition(" - at ")[0].removeprefix("This ChunkedArray ")
            assert why in found.message or isinstance(found, FormatLimitError), keywords
            assert "'x'" in found.message or "x (" in found.message or '"x"' in found.message
        elif isinstance(memory["x"], (pa.Array, pa.ChunkedArray)):
            assert isinstance(found, FormatLimitError)
            assert found.hint == "strict=False"  # nothing is left without the only column
        else:
            assert list(found) == list(memory)
            assert all(same(memory[name], found[name]) for name in memory), keywords


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("keywords", [{"nulls": 0, "pad": 9}, {"nulls": "mask", "ragged": "rows"}])
def test_conversions_write_what_load_gives(tmp_path, form, keywords):
    """`convert_files` and the command write what the rules give, and the safetensors library reads it."""
    table = pa.table({"x": [[1, 2], [3]], "n": [1, None], "plain": [0.5, 1.5], "text": ["a", "b"]})
    path, target = saved(tmp_path, table, form), tmp_path / "out.safetensors"
    with pytest.raises(FormatLimitError, match="text"):
        ferry.convert_files(path, target, **keywords)
    ferry.convert_files(path, target, exclude="text", verify=True, **keywords)
    found = load_file(target)
    if "pad" in keywords:
        assert {name: each.tolist() for name, each in found.items()} == {
            "x": [[1, 2], [3, 9]],
            "n": [1, 0],
            "plain": [0.5, 1.5],
        }
    else:
        assert {name: each.tolist() for name, each in found.items()} == {
            "x.0": [1, 2],
            "x.1": [3],
            "x_mask.0": [True, True],
            "x_mask.1": [True],
            "n": [1, 0],
            "n_mask": [True, False],
            "plain": [0.5, 1.5],
            "plain_mask": [True, True],
        }
    options = [word for name, value in keywords.items() for word in (f"--{name}", str(value))]
    command = ["convert", path, tmp_path / "cli.safetensors", "--exclude", "text", *options]
    done = forked_command(COMMAND_LINE, command)
    assert done.returncode == 0, done.stderr
    written = load_file(tmp_path / "cli.safetensors")
    assert {name: each.tolist() for name, each in written.items()} == {
        n: e.tolist() for n, e in found.items()
    }


@pytest.mark.parametrize("form", FORMS)
def test_names_and_dtypes_apply_to_columns(tmp_path, form):
    """A column that is left out is not read; dates become numbers if a dtype is named, also in a conversion."""
    table = pa.table(
        {"x": [[1, 2], [3]], "day": [dt.date(1970, 1, 2), dt.date(1970, 1, 4)], "y": [[1.0], [2.0]]}
    )
    path, target = saved(tmp_path, table, form), tmp_path / "out.safetensors"
    assert {name: each.tolist() for name, each in ferry.load(path, names="y").items()} == {
        "y": [[1.0], [2.0]]
    }
    found = ferry.load(path, exclude="x", dtype={"day": "int32", "float": "float32"})
    assert {name: (each.dtype.name, each.tolist()) for name, each in found.items()} == {
        "day": ("int32", [1, 3]),
        "y": ("float32", [[1.0], [2.0]]),
    }
    report = ferry.convert_files(path, target, exclude="x", dtype={"day": "int32"})
    assert load_file(target)["day"].tolist() == [1, 3]
    assert not report.warnings
    lazy = ferry.load(path, lazy=True, exclude="day", ragged="rows")
    assert [each.tolist() for each in lazy["x"]] == [[1, 2], [3]]


@pytest.mark.parametrize("form", FORMS)
def test_errors_name_all_columns(tmp_path, form):
    """Several columns that cannot be converted are one error; without `strict` they are left out, and told."""
    table = pa.table({"x": [[1, 2], [3]], "n": [[1, None], [2, 3]], "good": [1, 2]})
    path = saved(tmp_path, table, form)
    with pytest.raises(TreeError) as caught:
        ferry.load(path)
    assert "'x'" in str(caught.value)
    assert "'n'" in str(caught.value)
    assert "good" not in str(caught.value)
    with pytest.warns(UserWarning, match="unequal lengths"):
        assert list(ferry.load(path, strict=False)) == ["good"]
    assert [*ferry.load(path, nulls=0, pad=0)] == ["x", "n", "good"]
    with pytest.raises(TreeError):
        ferry.convert_files(path, tmp_path / "out.safetensors")
    assert not (tmp_path / "out.safetensors").exists()


def test_a_mask_with_the_name_of_a_column_is_refused(tmp_path):
    """As in memory."""
    path = saved(tmp_path, pa.table({"x": [1, None], "x_mask": [1, 2]}), "parquet")
    with pytest.raises(UnsupportedTypeError, match="there is such a column already"):
        ferry.load(path, nulls="mask")


@pytest.mark.parametrize("keywords", [{"nulls": 0}, {"ragged": "rows"}, {"pad": 1.5}])
def test_keywords_for_what_is_no_table_are_refused(tmp_path, keywords):
    """They are never passed over in silence."""
    path = tmp_path / "a.npz"
    np.savez(path, x=np.ones(2))
    for call in (
        lambda: ferry.load(path, **keywords),
        lambda: ferry.convert_files(path, tmp_path / "b.npz", **keywords),
    ):
        with pytest.raises(
            FormatLimitError, match=f"{next(iter(keywords))}= is for columns of tables"
        ):
            call()
    for wrong in (
        {"nulls": "zero"},
        {"ragged": "columns"},
        {"pad": "x"},
        {"pad": 0, "ragged": "rows"},
    ):
        with pytest.raises((TypeError, ValueError)):
            ferry.load(path, **wrong)
        with pytest.raises((TypeError, ValueError)):
            ferry.convert_files(path, tmp_path / "b.npz", **wrong)


def test_rows_are_padded_in_proportion(tmp_path):
    """One long row among many short ones would need terabytes, and is refused before they are made."""
    lengths = np.ones(1 << 20, "i8")
    lengths[0] = 1 << 20
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    rows = pa.ListArray.from_arrays(offsets, pa.array(np.zeros(int(lengths.sum()), "i1")))
    for form in FORMS:
        path = saved_whole(tmp_path, pa.table({"x": rows}), form)
        for nulls in (None, "mask"):
            with pytest.raises(UnsafeFileError, match="out of all proportion"):
                ferry.load(path, pad=0, nulls=nulls)


def saved_whole(folder, table, form):
    """A file with one batch."""
    path = folder / f"whole.{form}"
    if form == "parquet":
        pq.write_table(table, path)
        return path
    with pa.OSFile(str(path), "wb") as sink:
        make = pa.ipc.new_file if form == "arrow" else pa.ipc.new_stream
        with make(sink, table.schema) as writer:
            writer.write_table(table)
    return path


def test_many_runs_in_few_bytes_are_refused(tmp_path):
    """A run may say that it has any number of rows."""
    runs = pa.RunEndEncodedArray.from_arrays(
        pa.array([(1 << 31) - 1], pa.int32()), pa.array([1], pa.int8())
    )
    for form in ("arrow", "arrows"):
        path = saved_whole(tmp_path, pa.table({"x": runs}), form)
        with pytest.raises(UnsafeFileError, match="out of all proportion"):
            ferry.load(path)


_DAMAGED = """
import sys, warnings
import numpy as np
import tensorferry as ferry
from tensorferry.errors import ConversionError

warnings.simplefilter("ignore")
path = sys.argv[1]
raw = open(path, "rb").read()
generator = np.random.default_rng(11)
for place in generator.integers(8, len(raw), int(sys.argv[2])):
    changed = bytearray(raw)
    changed[place] ^= 1 << int(generator.integers(0, 8))
    with open(path, "wb") as file:
        file.write(changed)
    for keywords in ({}, {"nulls": "mask", "pad": 0}):
        try:
            ferry.load(path, strict=False, **keywords)
        except ConversionError:
            pass
print("alive")
"""


@pytest.mark.parametrize("form", FORMS)
def test_damaged_lists_do_not_end_the_process(tmp_path, form):
    """Offsets, dictionaries and null marks with a flipped bit give values or a named error."""
    table = pa.table(
        {
            "x": pa.array([[1, 2], [3], None, [4, None]] * 20, pa.list_(pa.int32())),
            "y": pa.array([[[1.0]], [[2.0]]] * 40),
            "d": pa.array([5, 6, None, 5] * 20).dictionary_encode(),
        }
    )
    path = saved(tmp_path, table, form)
    status, out, err = forked(COMMAND_LINE, _DAMAGED, path, examples(250))
    assert status == 0, (status, err[-2000:])
    assert out.strip().endswith("alive")
