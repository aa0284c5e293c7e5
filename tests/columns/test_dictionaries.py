"""Codes of categories mean the same in all chunks of a column, and a null among the categories is a null."""

from __future__ import annotations

import random

import numpy as np
import pytest

import tensorferry as ferry

pa = pytest.importorskip("pyarrow")


class ByStream:
    """An object of a library that is known by Arrow's streams only."""

    def __init__(self, x):
        self._x = x

    def __arrow_c_stream__(self, requested_schema=None):
        return self._x.__arrow_c_stream__()


def forms(chunked):
    """The same column as several objects."""
    table = pa.table({"x": chunked})
    yield chunked
    yield ByStream(chunked)
    yield table["x"]
    yield ferry.convert_tree(ByStream(table), "numpy")["x"]
    pd = pytest.importorskip("pandas")
    yield pd.Series(pd.array(chunked, dtype=pd.ArrowDtype(chunked.type)))


@pytest.mark.parametrize("seed", range(20))
def test_chunks_with_dictionaries_of_their_own(seed):
    chosen = random.Random(seed)  # noqa: S311 - not for secrets
    words = [chr(97 + number) * chosen.randint(0, 3) for number in range(8)]
    chunks = []
    for _ in range(chosen.randint(2, 4)):
        known = chosen.sample([*dict.fromkeys(words), None], chosen.randint(1, 5))
        indices = [chosen.choice([*range(len(known)), None]) for _ in range(chosen.randint(0, 6))]
        whole = pa.DictionaryArray.from_arrays(
            pa.array(indices, pa.int8()), pa.array(known, pa.string())
        )
        chunks.append(whole[chosen.randint(0, 1) :])
    chunked = pa.chunked_array(chunks, chunks[0].type)
    texts = chunked.to_pylist()
    for x in forms(chunked):
        codes, there = ferry.to_numpy(x, dtype="int64", nulls="mask")
        assert there.tolist() == [text is not None for text in texts]
        meaning = {}
        for code, text in zip(codes.tolist(), texts, strict=True):
            if text is not None:
                assert meaning.setdefault(code, text) == text, "one code has two meanings"
        assert len(set(meaning.values())) == len(meaning), "one text has two codes"


def test_the_codes_are_those_of_the_dictionaries_made_one():
    chunked = pa.chunked_array(
        [pa.array(["b", "a"]).dictionary_encode(), pa.array(["c", "b"]).dictionary_encode()]
    )
    unified = [
        code for chunk in chunked.unify_dictionaries().chunks for code in chunk.indices.to_pylist()
    ]
    assert ferry.to_list(chunked, dtype="int64") == unified
    assert "several dictionaries" in ferry.explain(chunked, "numpy", dtype="int64").reason
    with pytest.raises(ferry.CopyRequiredError, match="several dictionaries"):
        ferry.to_numpy(chunked, dtype="int32", copy=False)


def test_one_dictionary_is_not_read():
    """Its codes are shared, as they are in memory."""
    x = pa.array(["b", "a", "b"]).dictionary_encode()
    found = ferry.to_numpy(x, dtype="int32", copy=False)
    assert found.tolist() == [0, 1, 0]
    assert found.ctypes.data == x.indices.buffers()[1].address
    assert ferry.explain(pa.chunked_array([x, x]), "numpy", dtype="int32").reason == "2 chunks"


def test_a_null_among_the_categories_is_a_null():
    x = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), pa.array(["a", None]))
    with pytest.raises(ferry.UnsupportedTypeError, match=r"has nulls \(2, the first at row 1\)"):
        ferry.to_numpy(x, dtype="int64")
    assert ferry.to_list(x, dtype="int64", nulls=-1) == [0, -1, -1]
    values, there = ferry.to_numpy(x, dtype="int64", nulls="mask")
    assert values[0] == 0
    assert there.tolist() == [True, False, False]


def test_more_categories_than_the_codes_of_a_chunk_count():
    chunks = [
        pa.DictionaryArray.from_arrays(
            pa.array(range(100), pa.int8()), pa.array([f"{part}-{number}" for number in range(100)])
        )
        for part in range(3)
    ]
    assert ferry.to_list(pa.chunked_array(chunks), dtype="int64") == list(range(300))


def test_rows_of_categories():
    kind = pa.list_(pa.dictionary(pa.int8(), pa.string()), 2)
    x = pa.chunked_array([pa.array([["a", "b"]], kind), pa.array([["b", "c"], ["c", "c"]], kind)])
    found = np.array(ferry.to_list(x, dtype="int64"))
    assert (found == [[0, 1], [1, 2], [2, 2]]).all()


EMPTY = {
    "decimals": pa.decimal128(10, 2),
    "whole decimals": pa.decimal128(38, 0),
    "days": pa.date32(),
    "lists of days": pa.list_(pa.date32()),
    "lists of decimals": pa.list_(pa.decimal128(10, 2)),
    "categories": pa.dictionary(pa.int8(), pa.string()),
    "numbers in a dictionary": pa.dictionary(pa.int8(), pa.int64()),
}


@pytest.mark.parametrize("name", EMPTY)
def test_columns_without_rows_get_the_dtype_too(name):
    """So that an empty last batch has the type of the others."""
    kind = EMPTY[name]
    dtype = "float32" if "decimals" in name else "int64"
    x = pa.array([], kind)
    for source in (x, pa.chunked_array([], kind)):
        found = ferry.to_arrow(source, dtype=dtype)
        value = getattr(found.type, "value_type", found.type)
        assert value == {"float32": pa.float32(), "int64": pa.int64()}[dtype]
        assert len(found) == 0
        assert ferry.to_numpy(source, dtype=dtype).dtype == dtype
    tree = ferry.convert_tree(
        pa.table({"x": x, "n": pa.array([], pa.int64())}), "arrow", dtype={"x": dtype}
    )
    assert getattr(tree["x"].type, "value_type", tree["x"].type) == value


def test_codes_that_mean_something_else_do_not_stack():
    pd = pytest.importorskip("pandas")

    def arrow(*words):
        return pa.array(words).dictionary_encode()

    def pandas(*words):
        return pd.Series(words, dtype=pd.CategoricalDtype(sorted(set(words))))

    for make in (arrow, pandas):
        for keywords in ({}, {"nulls": 0}):
            for call in (ferry.collate, ferry.explain_collate):
                with pytest.raises(
                    ferry.UnsupportedTypeError, match=r"samples\[0\] and samples\[1\] differ"
                ):
                    call(
                        [{"c": make("a", "b")}, {"c": make("a", "c")}],
                        "numpy",
                        dtype={"c": "int64"},
                        **keywords,
                    )
            alike = [{"c": make("a", "b", "a")}, {"c": make("a", "b", "b")}]
            assert ferry.collate(alike, "numpy", dtype={"c": "int64"}, **keywords)[
                "c"
            ].tolist() == [
                [0, 1, 0],
                [0, 1, 1],
            ]
