"""What others give through Arrow's interfaces: broken, odd, unaligned; and producers that nobody here wrote."""

from __future__ import annotations

import ctypes
import io
import struct
import sys

import numpy as np
import pytest

import tensorferry as ferry

pa = pytest.importorskip("pyarrow")
torch = pytest.importorskip("torch")

_NEW = ctypes.pythonapi.PyCapsule_New
_NEW.restype, _NEW.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Schema(ctypes.Structure):
    _fields_ = [
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("metadata", ctypes.c_char_p),
        ("flags", ctypes.c_int64),
        ("n_children", ctypes.c_int64),
        ("children", ctypes.c_void_p),
        ("dictionary", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private", ctypes.c_void_p),
    ]


class Array(ctypes.Structure):
    _fields_ = [
        ("length", ctypes.c_int64),
        ("null_count", ctypes.c_int64),
        ("offset", ctypes.c_int64),
        ("n_buffers", ctypes.c_int64),
        ("n_children", ctypes.c_int64),
        ("buffers", ctypes.c_void_p),
        ("children", ctypes.c_void_p),
        ("dictionary", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private", ctypes.c_void_p),
    ]


@_RELEASE
def _nothing(_):
    """What releases memory that Python keeps."""


class Producer:
    """An array as a foreign library gives it, with nothing checked."""

    def __init__(
        self,
        code,
        length,
        buffers,
        *,
        nulls=0,
        offset=0,
        children=(),
        dictionary=None,
        released=False,
    ):
        self.kept = [buffers, children, dictionary]
        self.addresses = (ctypes.c_void_p * max(1, len(buffers)))(
            *[None if each is None else each.ctypes.data for each in buffers]
        )
        release = None if released else ctypes.cast(_nothing, ctypes.c_void_p)
        kinds = (ctypes.c_void_p * max(1, len(children)))(
            *[ctypes.addressof(each.schema) for each in children]
        )
        arrays = (ctypes.c_void_p * max(1, len(children)))(
            *[ctypes.addressof(each.array) for each in children]
        )
        self.kept += [kinds, arrays]
        kind_of, array_of = (
            (None, None)
            if dictionary is None
            else (ctypes.addressof(dictionary.schema), ctypes.addressof(dictionary.array))
        )
        name = b"x"
        self.schema = Schema(
            code,
            name,
            None,
            2,
            len(children),
            ctypes.addressof(kinds),
            kind_of,
            ctypes.cast(_nothing, ctypes.c_void_p),
        )
        self.array = Array(
            length,
            nulls,
            offset,
            len(buffers),
            len(children),
            ctypes.addressof(self.addresses),
            ctypes.addressof(arrays),
            array_of,
            release,
        )

    def __arrow_c_array__(self, requested_schema=None):
        return (
            _NEW(ctypes.addressof(self.schema), b"arrow_schema", None),
            _NEW(ctypes.addressof(self.array), b"arrow_array", None),
        )


VALUES = np.arange(20, dtype="int32")


def integers(length, **said):
    return Producer(b"i", length, [None, VALUES], **said)


def test_memory_of_a_foreign_producer_is_shared():
    """Read-only, from its offset on."""
    x = integers(5, offset=2)
    view = ferry.to_numpy(x, copy=False)
    assert view.tolist() == [2, 3, 4, 5, 6]
    assert np.shares_memory(view, VALUES)
    assert not view.flags.writeable
    assert ferry.to_torch(integers(3)).tolist() == [0, 1, 2]


def test_unaligned_memory_arrives():
    """Copied for who needs it aligned; right in any case."""
    raw = np.zeros(64, np.uint8)
    raw[1:21].view("V1").view(np.uint8)[:] = np.arange(5, dtype="int32").view(np.uint8)
    x = Producer(b"i", 5, [None, raw[1:]])
    for target in ("numpy", "torch", "python"):
        assert ferry.to_list(ferry.convert(x, target)) == [0, 1, 2, 3, 4]


def test_a_validity_bitmap_with_an_offset():
    """Bits are counted from the array's own offset, also where nobody counted the nulls."""
    bits = np.packbits([1, 0, 1, 1, 1, 0, 1, 1, 1, 1], bitorder="little")
    for nulls in (-1, 1):
        x = Producer(b"i", 4, [bits, VALUES], nulls=nulls, offset=2)
        with pytest.raises(ferry.UnsupportedTypeError, match="at row 3"):
            ferry.to_numpy(x)
        assert ferry.to_list(x, nulls=-1) == [2, 3, 4, -1]
    clear = Producer(b"i", 3, [bits, VALUES], nulls=-1, offset=2)
    assert ferry.to_list(clear) == [2, 3, 4]
    assert ferry.to_numpy(clear, copy=False).base is not None


@pytest.mark.parametrize(
    ("ends", "row"), [([0, 2, 1, 4], 1), ([-1, 1, 2, 3], 0), ([0, 2, 4, 21], 2)]
)
def test_offsets_that_are_not_so_are_refused(ends, row):
    """Going back, before the first element, past the last; the message names the row."""
    x = Producer(b"+l", 3, [None, np.array(ends, "int32")], children=[integers(20)])
    for said in ({}, {"ragged": "rows"}, {"pad": 0}, {"nulls": 0}):
        with pytest.raises(
            ferry.UnsupportedTypeError, match=rf"go back, or past their elements, at row {row}\."
        ):
            ferry.to_numpy(x, **said)


def test_offsets_that_are_sliced():
    """From the list's own offset."""
    x = Producer(
        b"+l", 2, [None, np.array([0, 2, 4, 6, 20], "int32")], offset=1, children=[integers(20)]
    )
    assert ferry.to_list(x) == [[2, 3], [4, 5]]


@pytest.mark.unwatched  # pyarrow ends the process over such an array
@pytest.mark.parametrize(
    "broken",
    [
        Producer(b"i", 3, [None, None]),
        Producer(b"i", 3, [None]),
        Producer(b"i", -1, [None, VALUES]),
        Producer(b"i", 3, [None, VALUES], offset=-1),
        Producer(b"i", 3, [None, VALUES], nulls=2),
        Producer(b"i", 3, [None, VALUES], released=True),
        Producer(b"+w:4", 6, [None], children=[integers(20)]),
        Producer(b"i", 3, [None, np.array([0, 7, 1], "int32")], dictionary=integers(2)),
        Producer(b"+s", 9, [None], children=[integers(5)]),
        Producer(b"?", 3, [None, VALUES]),
        Producer(b"", 3, [None, VALUES]),
        Producer(b"\xff", 3, [None, VALUES]),
        Producer(b"+l", 2, [None, VALUES]),
        Producer(b"+w:-2", 2, [None], children=[integers(8)]),
        Producer(b"+w:x", 2, [None], children=[integers(8)]),
        Producer(b"+w:", 2, [None], children=[integers(8)]),
        Producer(b"+w:2", 2, [None]),
        Producer(b"+r", 2, []),
        Producer(b"+r", 2, [], children=[integers(2)]),
        Producer(b"+r", 2, [], children=[Producer(b"g", 1, [None, np.array([2.0])]), integers(1)]),
        Producer(b"d:", 2, [None, VALUES]),
        Producer(b"d:5", 2, [None, VALUES]),
        Producer(b"d:5,0,77", 2, [None, VALUES]),
        Producer(b"t", 2, [None, VALUES]),
        Producer(b"tsq:", 2, [None, VALUES]),
        Producer(b"tdX", 2, [None, VALUES]),
        Producer(b"g", 2, [None, np.zeros(2)], dictionary=integers(2)),
        Producer(b"u", 2, [None, VALUES, VALUES], dictionary=integers(2)),
    ],
)
def test_what_is_broken_is_refused(broken):
    """Never read: a length without memory, a null without a bitmap, what was released, lists past their elements.

    Nor what has a format without its parameters, its children, or integers as indices.
    """
    for target in ("numpy", "torch", "python"):
        with pytest.raises(ferry.ConversionError):
            ferry.convert(broken, target)
    with pytest.raises(ferry.ConversionError):
        ferry.convert_tree(broken, "numpy")


def test_a_table_names_the_column_that_is_broken():
    broken = pa.DictionaryArray.from_arrays(pa.array([0, 9]), pa.array([5, 6]), safe=False)
    table = pa.table({"good": [1, 2], "broken": broken})
    for x in (table, Foreign(table)):
        with pytest.raises(
            ferry.UnsupportedTypeError, match=r"past its values, at row 1\. - in column 'broken'"
        ):
            ferry.to_numpy(x)
        with pytest.raises(
            ferry.UnsupportedTypeError, match=r"past its values, at row 1\. - at \$\[\"broken\"\]"
        ):
            ferry.convert_tree(x, "numpy")


def test_the_row_of_a_wrong_index_is_counted_over_all_chunks():
    """Of lists in lists, it is the row of the column, not that of the list inside."""
    good = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array([5, 6]))
    broken = pa.DictionaryArray.from_arrays(pa.array([0, None, 9]), pa.array([5, 6]), safe=False)
    with pytest.raises(ferry.UnsupportedTypeError, match=r"past its values, at row 5\."):
        ferry.to_numpy(pa.chunked_array([good, broken]), nulls=0)
    with pytest.raises(ferry.UnsupportedTypeError, match=r"past its values, at row 3\."):
        ferry.to_numpy(pa.chunked_array([good, broken.slice(2)]), nulls=0)
    pairs = pa.FixedSizeListArray.from_arrays(broken.take(pa.array([0, 0, 0, 2])), 2)
    with pytest.raises(ferry.UnsupportedTypeError, match=r"past its values, at row 1\."):
        ferry.to_numpy(pairs)
    none = pa.DictionaryArray.from_arrays(pa.array([None, 0]), pa.array([], "int64"), safe=False)
    with pytest.raises(ferry.UnsupportedTypeError, match="no values, and row 1 has"):
        ferry.to_numpy(none, nulls=0)


def test_an_array_with_other_children_than_its_type_is_refused():
    lists = Producer(b"+l", 2, [None, np.array([0, 1, 2], "int32")], children=[integers(2)])
    lists.array.n_children = 0
    with pytest.raises(ferry.UnsupportedTypeError, match="other children than its type"):
        ferry.to_numpy(lists)


GOOD = integers(3).__arrow_c_array__()


@pytest.mark.parametrize(
    "given", [None, (), (*GOOD, 1), GOOD[0], (1, 2), GOOD[::-1], NotImplementedError("not now")]
)
def test_a_producer_that_gives_no_capsules_is_refused(given):
    class Odd:
        def __arrow_c_array__(self, requested_schema=None):
            if isinstance(given, Exception):
                raise given
            return given

    for call in (ferry.to_numpy, ferry.describe, lambda x: ferry.convert_tree(x, "numpy")):
        with pytest.raises(ferry.UnsupportedTypeError, match=r"capsule|not now"):
            call(Odd())


class Tensors(Producer):
    """Storage with the name and the metadata of an extension type."""

    def __init__(self, name, said, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        pairs = [b"ARROW:extension:name", name, b"ARROW:extension:metadata", said]
        self.metadata = struct.pack("=i", 2) + b"".join(
            struct.pack("=i", len(each)) + each for each in pairs
        )
        self.schema.metadata = self.metadata


@pytest.mark.parametrize(
    "said",
    [
        *(b"", b"{", b"\xff", b"[]", b"null", b"3", b"{}"),
        *(
            b'{"shape": %s}' % shape
            for shape in (b"null", b'"ab"', b"[-2, -2]", b"[2.5, 2]", b"[[2], [2]]", b"[3, 3]")
        ),
        *(
            b'{"shape": [2, 2], "permutation": %s}' % axes
            for axes in (b"[0, 0]", b"[0, 5]", b"[1]", b"[]", b'"ab"')
        ),
        b'{"shape": [2, 2], "permutation": [1.0, 0]}',
    ],
)
def test_tensors_without_a_shape_are_refused(said):
    x = Tensors(b"arrow.fixed_shape_tensor", said, b"+w:4", 2, [None], children=[integers(8)])
    with pytest.raises(ferry.UnsupportedTypeError, match="shape"):
        ferry.to_numpy(x)


@pytest.mark.unwatched  # pyarrow ends the process over such an array
@pytest.mark.parametrize(
    ("said", "code", "children"),
    [
        (b"{", b"+s", [integers(4), integers(4)]),
        (b"[]", b"+s", [integers(4), integers(4)]),
        (b"", b"+s", [integers(4), integers(4)]),
        (b"", b"+s", [integers(4)]),
        (b"", b"i", []),
    ],
)
def test_tensors_of_any_shape_without_shapes_are_refused(said, code, children):
    x = Tensors(b"arrow.variable_shape_tensor", said, code, 2, [None, VALUES], children=children)
    with pytest.raises(ferry.UnsupportedTypeError, match="shape"):
        ferry.to_numpy(x)


def test_a_released_stream_is_refused():
    """It has been read; what has not says so too, and goes once."""

    class Once:
        def __init__(self, stream):
            self.stream = stream

        def __arrow_c_stream__(self, requested_schema=None):
            return self.stream

    stream = pa.chunked_array([[1, 2], [3]]).__arrow_c_stream__()
    assert ferry.to_list(Once(stream)) == [1, 2, 3]
    assert pa.chunked_array(Once(pa.chunked_array([[1]]).__arrow_c_stream__())).to_pylist() == [1]
    used = pa.chunked_array([[1, 2]]).__arrow_c_stream__()
    pa.chunked_array(Once(used))
    with pytest.raises(ferry.UnsupportedTypeError, match="released"):
        ferry.to_list(Once(used))
    # What was read here is not empty the second time.
    for _ in range(2):
        with pytest.raises(ferry.UnsupportedTypeError, match="read already") as caught:
            ferry.to_list(Once(stream))
        assert "A table that is made of it before" in caught.value.message
    rows = eval("pa.table(x)", {"pa": pa, "x": Once(pa.table({"a": [1, 2]}).__arrow_c_stream__())})  # noqa: S307 - that is what the hint is for
    for _ in range(2):
        assert ferry.convert_tree(rows, "numpy")["a"].tolist() == [1, 2]
    failing = Once(
        pa.RecordBatchReader.from_batches(
            pa.schema([("a", pa.int64())]), iter([1])
        ).__arrow_c_stream__()
    )
    for _ in range(2):
        with pytest.raises(ferry.UnsupportedTypeError, match="cannot be read"):
            ferry.convert_tree(failing, "numpy")


def test_a_table_with_metadata_is_a_table():
    """Those that pandas has written have some."""
    table = pa.table({"a": [1, 2], "b": [3, 4]}).replace_schema_metadata({"pandas": "{}"})
    for x in (pa.RecordBatchReader.from_batches(table.schema, table.to_batches()), Foreign(table)):
        found = ferry.convert_tree(x, "torch")
        assert {name: each.tolist() for name, each in found.items()} == {"a": [1, 2], "b": [3, 4]}
    assert ferry.to_torch(Foreign(table)).tolist() == [[1, 3], [2, 4]]


class Foreign:
    """A library's own table."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__()


def test_a_stream_that_fails_says_why():
    """In its own words."""
    schema = pa.schema([("a", pa.int64())])

    def batches():
        yield pa.record_batch({"a": [1]})
        raise ValueError("the disk is on fire")

    class Failing:
        def __arrow_c_stream__(self, requested_schema=None):
            return pa.RecordBatchReader.from_batches(schema, batches()).__arrow_c_stream__()

    with pytest.raises(ferry.UnsupportedTypeError, match="the disk is on fire"):
        ferry.convert_tree(Failing(), "numpy")


def test_encodings_that_are_seldom():
    """Runs, booleans of a byte, views of lists, unions, unknown extensions."""
    runs = pa.RunEndEncodedArray.from_arrays(
        pa.array([2, 5, 6], pa.int32()), pa.array([1.5, None, 2.5])
    )
    assert ferry.to_list(runs, nulls=0) == [1.5, 1.5, 0, 0, 0, 2.5]
    assert ferry.to_list(runs[1:4], nulls=0) == [1.5, 0, 0]
    with pytest.raises(ferry.UnsupportedTypeError, match="nulls"):
        ferry.to_list(runs)
    stored = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([0, 1, 5, None], pa.int8()))
    assert ferry.to_list(stored, nulls=False) == [False, True, True, False]
    assert ferry.to_list(stored[:2]) == [False, True]
    for x in (
        pa.array([[1, 2]], pa.list_view(pa.int64())),
        pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]),
        pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16], pa.binary(16))),
        pa.array([{"a": 1}]),
        pa.nulls(2),
    ):
        with pytest.raises(ferry.UnsupportedTypeError):
            ferry.to_numpy(x)


def test_booleans_of_a_byte_are_never_shared():
    """Their bytes may have any value: a tensor that could be written would be Arrow's memory."""
    stored = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([0, 1], pa.int8()))
    for x in (stored, pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), stored)):
        found = ferry.to_torch(x)
        found.fill_(True)
        assert stored.to_pylist() == [False, True]
        with pytest.raises(ferry.CopyRequiredError, match="may have any value"):
            ferry.to_numpy(x, copy=False)


def test_dictionaries_and_runs_inside_lists():
    """Decoded where they stand, with their nulls."""
    encoded = pa.array([5, None, 5, 6]).dictionary_encode()
    runs = pa.RunEndEncodedArray.from_arrays(
        pa.array([1, 2, 4], pa.int16()), pa.array([5, None, 6])
    )
    ends = pa.array([0, 2, 4], pa.int32())
    for inside in (encoded, runs):
        values = inside.to_pylist()
        for x in (
            pa.ListArray.from_arrays(ends, inside),
            pa.FixedSizeListArray.from_arrays(inside, 2),
        ):
            assert ferry.to_list(x, nulls=0) == [
                [0 if each is None else each for each in row] for row in x.to_pylist()
            ]
            mask = ferry.to_numpy(x, nulls="mask")[1]
            assert mask.ravel().tolist() == [each is not None for each in values]
            assert ferry.to_list(x[1:], nulls=0)[0] == [
                0 if each is None else each for each in values[2:]
            ]


def test_nulls_of_rows_and_nulls_of_columns():
    """A table in which rows are missing: each column lacks those too, however it is encoded."""

    class Rows:
        def __arrow_c_array__(self, requested_schema=None):
            runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int16()), pa.array([7, 8]))
            columns = [pa.array([1, None, 2]), pa.array([1, None, 2]).dictionary_encode(), runs]
            gone = pa.array([True, False, False])
            return pa.StructArray.from_arrays(
                columns, ["p", "d", "r"], mask=gone
            ).__arrow_c_array__()

    found = ferry.convert_tree(Rows(), "numpy", nulls="mask")
    assert {name: each.tolist() for name, each in found.items()} == {
        "p": [0, 0, 2],
        "p_mask": [False, False, True],
        "d": [0, 0, 2],
        "d_mask": [False, False, True],
        "r": [0, 7, 8],
        "r_mask": [False, True, True],
    }


def test_lists_in_no_chunks():
    """An axis without rows, and one without elements."""
    for kind in (pa.list_(pa.int8()), pa.large_list(pa.int8()), pa.list_(pa.list_(pa.int8()))):
        found = ferry.to_numpy(pa.chunked_array([], kind))
        assert (found.size, found.dtype) == (0, "int8")
        assert found.ndim == 2 + pa.types.is_list(kind.value_type)


def test_lists_without_elements_that_are_null():
    """Refused: there is no element that could be filled in or marked."""
    with pytest.raises(ferry.UnsupportedTypeError, match="null in the place of a list, at row 1"):
        ferry.to_numpy(pa.array([[], None], pa.list_(pa.int8(), 0)), nulls=0)
    assert ferry.to_numpy(pa.array([[], []], pa.list_(pa.int8(), 0))).shape == (2, 0)


@pytest.mark.parametrize("ends", [[2, 1], [0, 3], [2, 2], [-1, 3], [1, 2]])
def test_runs_that_are_not_so_are_refused(ends):
    """Going back, of no rows, ending before the array does."""
    values = Producer(b"i", 2, [None, VALUES])
    x = Producer(
        b"+r", 3, [], children=[Producer(b"s", 2, [None, np.array(ends, "int16")]), values]
    )
    for said in ({}, {"nulls": 0}):
        with pytest.raises(ferry.UnsupportedTypeError, match="go back, or end before"):
            ferry.to_numpy(x, **said)


def test_duckdb():
    """Its results are tables; text can be read without pyarrow too."""
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not in this environment")
    sql = "select i::int as i, i * 1.5::double as d, 'x' || i as t, nullif(i, 1) as n, [i, i] as l from range(3) t(i)"
    found = ferry.convert_tree(duckdb.sql(sql), "torch", nulls="mask")
    assert [*found] == ["i", "i_mask", "d", "d_mask", "t", "n", "n_mask", "l", "l_mask"]
    assert found["i"].tolist() == [0, 1, 2]
    assert found["n_mask"].tolist() == [True, False, True]
    assert found["l"].tolist() == [[0, 0], [1, 1], [2, 2]]
    assert found["t"].tolist() == ["x0", "x1", "x2"]
    assert ferry.to_torch(duckdb.sql("select i from range(3) t(i)")).tolist() == [[0], [1], [2]]
    relation = duckdb.sql("select i::int as i from range(3) t(i)")
    for call in (ferry.prefetch, ferry.collate):  # it has no rows to loop over
        with pytest.raises((TypeError, ferry.UnsupportedTypeError), match="is one value"):
            call(relation, "numpy")
    assert [each["i"].tolist() for each in ferry.prefetch([relation], "numpy")] == [[0, 1, 2]]


def test_nanoarrow():
    """Arrays, and their C structures."""
    na = pytest.importorskip("nanoarrow", reason="nanoarrow is not in this environment")
    assert ferry.to_torch(na.Array([1, 2, 3], na.int32())).tolist() == [1, 2, 3]
    with pytest.raises(ferry.UnsupportedTypeError, match="at row 2"):
        ferry.to_numpy(na.c_array([True, False, None], na.bool_()))
    assert ferry.to_list(na.c_array([True, False, None], na.bool_()), nulls=True) == [
        True,
        False,
        True,
    ]


def test_datasets():
    """A dataset in any format, a slice of one, batches of one; images stay as they are."""
    datasets = pytest.importorskip("datasets", reason="datasets is not in this environment")
    features = datasets.Features(
        {
            "pixels": datasets.Array3D((2, 3, 4), "uint8"),
            "label": datasets.Value("int64"),
            "text": datasets.Value("string"),
            "image": datasets.Image(),
        }
    )
    pixels = np.arange(72, dtype="uint8").reshape(3, 2, 3, 4)
    made = datasets.Dataset.from_dict(
        {"pixels": pixels, "label": [0, 1, 2], "text": ["a", "b", "c"], "image": [None] * 3},
        features=features,
    )
    for x in (
        made,
        made.with_format("torch"),
        made.with_format("arrow"),
        made.with_format("arrow")[:],
    ):
        found = ferry.convert_tree(x, "numpy")
        assert found["pixels"].tolist() == pixels.tolist()
        assert found["pixels"].dtype == "uint8"
        assert found["label"].tolist() == [0, 1, 2]
        assert found["text"].to_pylist() == ["a", "b", "c"]
        assert found["image"].to_pylist() == [None] * 3
    plain = made.remove_columns("image")
    for name in ("numpy", "torch", "pandas", "polars"):
        for batch in (plain.with_format(name)[:], next(plain.with_format(name).iter(3))):
            found = ferry.convert_tree(batch, "numpy", leaves="numbers")
            assert found["pixels"].tolist() == pixels.tolist()
            assert found["label"].tolist() == [0, 1, 2]
            assert list(found["text"]) == ["a", "b", "c"]
    assert [*ferry.convert_tree(made.with_format("torch", columns=["label"]), "numpy")] == ["label"]
    assert ferry.convert_tree(made.select([2, 0]), "torch")["label"].tolist() == [2, 0]
    batches = [*ferry.prefetch(made.with_format("arrow").iter(2), "torch")]
    assert [each["label"].tolist() for each in batches] == [[0, 1], [2]]


def test_a_parquet_file_that_a_package_ships():
    """Real data, of pyarrow's own tests: numbers, text, and an index that pandas wrote."""
    from pathlib import Path

    parquet = pytest.importorskip("pyarrow.parquet")
    path = Path(pa.__file__).parent / "tests/data/parquet/v0.7.1.parquet"
    if not path.is_file():
        pytest.skip("pyarrow comes without its tests here")
    table = parquet.read_table(path)
    values = table.to_pydict()
    found = ferry.convert_tree(table, "torch", nulls="mask")
    numbers = [name for name in found if isinstance(found[name], torch.Tensor)]
    assert {"carat", "depth", "price", "x", "y", "z"} <= {*numbers}
    for name in values:
        if f"{name}_mask" in found:
            assert found[name].tolist() == values[name]
            assert found[f"{name}_mask"].all()
        else:
            assert found[name].to_pylist() == values[name]
    sizes = table.select(["x", "y", "z"])
    assert ferry.to_torch(sizes).tolist() == [
        list(row) for row in zip(*(values[name] for name in "xyz"), strict=True)
    ]
    batches = [
        *ferry.prefetch(parquet.ParquetFile(path).iter_batches(4, columns=["price"]), "torch")
    ]
    assert torch.cat([each["price"] for each in batches]).tolist() == values["price"]


def test_frames_of_scikit_learn():
    """Real data: as one tensor, and as columns."""
    pd = pytest.importorskip("pandas", reason="pandas is not in this environment")
    data = pytest.importorskip("sklearn.datasets", reason="scikit-learn is not in this environment")
    pl = pytest.importorskip("polars", reason="polars is not in this environment")
    for name in ("iris", "wine", "breast_cancer", "diabetes"):
        bunch = getattr(data, f"load_{name}")(as_frame=True)
        frame = bunch.data
        expected = [list(map(float, row)) for row in frame.itertuples(index=False)]
        for x in (frame, pl.from_pandas(frame), pa.Table.from_pandas(frame)):
            assert ferry.to_torch(x).tolist() == expected
            assert ferry.to_torch(x, dtype="float32").dtype == torch.float32
        columns = ferry.convert_tree(bunch.frame, "torch")
        assert list(columns) == list(bunch.frame.columns)
        assert columns["target"].tolist() == bunch.target.tolist()
        assert pd.Series(columns["target"].numpy()).equals(pd.Series(bunch.target.to_numpy()))


HINTED = {
    "text": (["a"], [0]),
    "bytes": ([b"x"], [b"x"]),
    "a null for a list": ([[1], None], [[1]]),
    "lists in lists": ([[[1, 2], [3]]], [[[1, 2], [3]]]),
}


@pytest.mark.parametrize("case", HINTED)
def test_hints_for_others_go_through_pyarrow(case):
    """An object that only gives Arrow data has no methods of pyarrow's."""
    values, expected = HINTED[case]

    class Array:
        def __arrow_c_array__(self, requested_schema=None):
            return pa.array(values).__arrow_c_array__()

    class Column:
        def __len__(self):
            return 1

        def __arrow_c_stream__(self, requested_schema=None):
            return pa.chunked_array([values]).__arrow_c_stream__()

    for x in (Array(), Column()):
        with pytest.raises(ferry.UnsupportedTypeError) as caught:
            ferry.to_numpy(x)
        made = eval(caught.value.hint.partition(", which")[0], {"np": np, "pa": pa, "x": x})  # noqa: S307 - that is what it is for
        if case == "text":
            made = made.tolist()
        assert (made if isinstance(made, list) else made.to_pylist()) == expected
    if "list" in case:
        x = Foreign(pa.table({"c": values}))
        with pytest.raises(ferry.UnsupportedTypeError) as caught:
            ferry.convert_tree(x, "numpy")
        made = eval(caught.value.hint.partition(", which")[0], {"pa": pa, "x": x})  # noqa: S307 - that is what the hint is for
        assert (made if isinstance(made, list) else made.to_pylist()) == expected


def test_images_stay_and_the_hint_decodes_them():
    """As datasets stores them: their files, and where they were."""
    image = pytest.importorskip("PIL.Image", reason="Pillow is not in this environment")
    pixels, files = [np.full((2, 3, 3), number, "uint8") for number in range(2)], []
    for each in pixels:
        file = io.BytesIO()
        image.fromarray(each).save(file, "png")
        files.append({"bytes": file.getvalue(), "path": None})
    table = pa.table(
        {
            "image": pa.array(files, pa.struct({"bytes": pa.binary(), "path": pa.string()})),
            "label": [0, 1],
        }
    )
    assert isinstance(ferry.convert_tree(table, "torch")["image"], pa.ChunkedArray)
    with pytest.raises(
        ferry.UnsupportedTypeError, match="Column 'image' of this Table holds files"
    ) as caught:
        ferry.to_torch(table)
    without, decoded = caught.value.hint.split("; or ")
    assert ferry.to_torch(eval(without, {"x": table})).tolist() == [[0], [1]]  # noqa: S307 - that is what the hint is for
    with pytest.raises(ferry.UnsupportedTypeError, match="holds files") as caught:
        ferry.to_torch(table["image"])
    for x, code in ((table, decoded), (table["image"], caught.value.hint)):
        made = eval(code.partition(", which")[0], {"x": x, "PIL": sys.modules["PIL"], "io": io})  # noqa: S307 - that is what the hint is for
        assert ferry.to_numpy(made).tolist() == np.stack(pixels).tolist()


def test_a_query_is_refused_in_a_tree_too():
    """Its data would be left behind, and nobody would see it: it has no columns to look at before it runs."""
    pl = pytest.importorskip("polars", reason="polars is not in this environment")
    query = pl.LazyFrame({"a": [1]})
    tree = {"query": query, "x": np.ones(1)}
    for do in (
        lambda: ferry.convert_tree(tree, "torch"),
        lambda: ferry.explain_tree(tree, "torch"),
        lambda: ferry.describe_tree(tree),
        lambda: ferry.snapshot(tree),
        lambda: ferry.start(tree, "torch"),
        lambda: ferry.collate([tree], "torch"),
        lambda: next(ferry.prefetch([tree], "torch")),
        lambda: ferry.convert_tree(tree, "torch", leaves=lambda x: isinstance(x, np.ndarray)),
    ):
        with pytest.raises(ferry.UnsupportedTypeError, match="query that has not run") as caught:
            do()
        assert '["query"]' in caught.value.message
        assert caught.value.hint.partition(".collect(); ")[0] in ('x["query"]', 'sample["query"]')
    with pytest.raises(ferry.UnsupportedTypeError, match="has not run") as caught:
        ferry.convert_tree(query, "numpy")
    x = eval(caught.value.hint.partition(";")[0], {"x": query})  # noqa: S307 - that is what the hint is for
    assert ferry.to_list(ferry.convert_tree(x, "numpy")["a"]) == [1]
    assert ferry.convert_tree(tree, "torch", unknown="keep")["query"] is query
    (kept,) = ferry.explain_tree(tree, "torch", unknown="keep").kept
    assert (kept.path, kept.type) == ('$["query"]', "LazyFrame")


def test_a_query_is_not_iterated_over():
    """polars would raise an error of its own."""
    pl = pytest.importorskip("polars", reason="polars is not in this environment")
    query = pl.LazyFrame({"a": [1]})
    names = {"x": query, "to": "numpy", "collate": ferry.collate, "prefetch": ferry.prefetch}
    for do, one in ((ferry.prefetch, next), (ferry.collate, dict)):
        with pytest.raises(ferry.UnsupportedTypeError, match="has not run") as caught:
            do(query, "numpy")
        code = caught.value.hint.partition(", which")[0].partition(", for")[0]
        assert ferry.to_list(one(eval(code, names))["a"]) in ([1], [[1]])  # noqa: S307 - that is what the hint is for
