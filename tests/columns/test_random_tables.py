"""Random columns and tables of Arrow: types, nulls, slices, chunks, lists in lists; against `to_pylist`."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorferry as ferry

pa = pytest.importorskip("pyarrow")
torch = pytest.importorskip("torch")

INTEGERS = {
    f"{sign}int{bits}": (bits, sign == "") for sign in ("", "u") for bits in (8, 16, 32, 64)
}
FLOATS = {"float16": 16, "float32": 32, "float64": 64}
FILLS = {"bool": True, **dict.fromkeys(INTEGERS, 3), **dict.fromkeys(FLOATS, -2.5)}


def type_of(name):
    return {
        "bool": pa.bool_(),
        "float16": pa.float16(),
        "float32": pa.float32(),
        "float64": pa.float64(),
    }.get(name) or getattr(pa, name)()


def numbers(name):
    """Values of a dtype as Python has them."""
    if name == "bool":
        return st.booleans()
    if name in FLOATS:
        return st.floats(width=FLOATS[name])
    bits, signed = INTEGERS[name]
    return (
        st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        if signed
        else st.integers(0, 2**bits - 1)
    )


@st.composite
def columns(draw, rows=None, depth=None):
    """(name of the dtype, a ChunkedArray or an Array)."""
    name = draw(st.sampled_from([*FILLS]))
    kind, each = type_of(name), numbers(name)
    if draw(st.booleans()):
        each = st.one_of(each, st.none())
    for _ in range(draw(st.integers(0, 2)) if depth is None else depth):
        width = draw(st.integers(1, 3))
        fixed = draw(st.booleans())
        lengths = (width, width) if fixed or draw(st.booleans()) else (0, 3)
        kind = (
            pa.list_(kind, width)
            if fixed
            else draw(st.sampled_from([pa.list_, pa.large_list]))(kind)
        )
        each = st.lists(each, min_size=lengths[0], max_size=lengths[1])
        if draw(st.integers(0, 3)) == 0:
            each = st.one_of(each, st.none())
    values = draw(st.lists(each, min_size=rows or 0, max_size=12 if rows is None else rows))
    if depth is None and kind == type_of(name) and draw(st.booleans()):
        made = pa.array(values, kind).dictionary_encode()
    else:
        before = draw(st.lists(each, max_size=3))
        after = draw(st.lists(each, max_size=3))
        made = pa.array([*before, *values, *after], kind)[len(before) : len(before) + len(values)]
    if draw(st.booleans()):
        cuts = sorted(draw(st.lists(st.integers(0, len(made)), max_size=3)))
        ends = [0, *cuts, len(made)]
        made = pa.chunked_array([made[a:b] for a, b in pairwise(ends)], made.type)
    return name, made


def has_none(value):
    return value is None or (isinstance(value, list) and any(map(has_none, value)))


def shape_of(values):
    """The shape of nested lists, of which a null has none; ``None``: they are ragged."""
    if not isinstance(values, list):
        return ()
    shapes = {shape_of(each) for each in values if each is not None}
    if None in shapes or len(shapes) > 1:
        return None
    return (len(values), *(shapes.pop() if shapes else ()))


def lacks_a_list(values, depth):
    """Whether a list is null: its elements are not there to be filled in, where lists are not of a fixed size."""
    if depth == 0 or values is None:
        return values is None and depth > 0
    return any(lacks_a_list(each, depth - 1) for each in values)


def depth_of(kind):
    return 1 + depth_of(kind.value_type) if pa.types.is_nested(kind) else 0


def fixed_all_down(kind):
    return not pa.types.is_nested(kind) or (
        pa.types.is_fixed_size_list(kind) and fixed_all_down(kind.value_type)
    )


def same(found, expected):
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, float) and math.isnan(expected):
        return math.isnan(found)
    return (
        found == expected
        and math.copysign(1, found) == math.copysign(1, expected)
        and type(found) is type(expected)
    )


def filled(value, fill, shape):
    if value is None:
        return [filled(None, fill, shape[1:]) for _ in range(shape[0])] if shape else fill
    return [filled(each, fill, shape[1:]) for each in value] if isinstance(value, list) else value


def judge(name, column):
    """A column becomes what `to_pylist` says, or is refused for what that shows."""
    values = column.to_pylist()
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    inner = shape_of(values)
    nulls = [row for row, value in enumerate(values) if has_none(value)]
    try:
        found = ferry.to_list(column)
    except ferry.UnsupportedTypeError as caught:
        found, message = None, caught.message
    if found is None:
        assert nulls or inner is None, message
        assert (
            not nulls or inner is None or not fixed_all_down(kind) or f"row {nulls[0]})" in message
        )
    else:
        assert not nulls
        assert inner is not None
        assert same(found, values)
        assert ferry.to_numpy(column).dtype == name
    if not fixed_all_down(kind):
        return
    shape = []
    while pa.types.is_nested(kind):
        shape.append(kind.list_size)
        kind = kind.value_type
    fill = FILLS[name]
    assert same(ferry.to_list(column, nulls=fill), [filled(value, fill, shape) for value in values])
    zeros, mask = ferry.convert(column, "numpy", nulls="mask")
    expected = [filled(value, np.zeros((), name).item(), shape) for value in values]
    assert same(zeros.tolist(), expected)
    assert mask.shape == zeros.shape == (len(values), *shape)
    marks = [filled(value, None, shape) for value in values]
    assert np.array_equal(
        mask, ~np.array([_nones(each) for each in marks], bool).reshape(mask.shape)
    )


def _nones(value):
    return [_nones(each) for each in value] if isinstance(value, list) else value is None


@settings(max_examples=100, deadline=None)
@given(columns())
def test_a_random_column_is_what_python_says(drawn):
    """Bit for bit, or refused by its first row."""
    judge(*drawn)


@pytest.mark.slow
@settings(max_examples=10_000, deadline=None)
@given(columns())
def test_ten_thousand_random_columns_are_what_python_says(drawn):
    """The same, for long."""
    judge(*drawn)


@st.composite
def tables(draw):
    rows = draw(st.integers(0, 6))
    made = [draw(columns(rows=rows, depth=0)) for _ in range(draw(st.integers(1, 4)))]
    return pa.table({f"c{index}": column for index, (_, column) in enumerate(made)}), [
        name for name, _ in made
    ]


def judge_table(drawn):
    table, names = drawn
    values = table.to_pydict()
    fills = [FILLS[name] for name in names]
    if any(None in column for column in values.values()):
        with pytest.raises(ferry.ConversionError):
            ferry.convert_tree(table, "numpy")
    else:
        found = ferry.convert_tree(table, "torch")
        for name, dtype in zip(found, names, strict=True):
            assert str(found[name].dtype) == f"torch.{dtype}"
            assert same(found[name].tolist(), values[name])
    masked = ferry.convert_tree(table, "numpy", nulls="mask")
    assert list(masked) == [each for name in values for each in (name, f"{name}_mask")]
    for name, column in values.items():
        assert masked[f"{name}_mask"].tolist() == [each is not None for each in column]
    if len(set(names)) == 1:
        whole = ferry.to_list(table, nulls=fills[0])
        expected = [
            [fill if each is None else each for each, fill in zip(row, fills, strict=True)]
            for row in zip(*values.values(), strict=True)
        ]
        assert same(whole, expected)


@settings(max_examples=50, deadline=None)
@given(tables())
def test_a_random_table_is_what_python_says(drawn):
    """A dict of columns; one tensor where the dtype is one."""
    judge_table(drawn)


@pytest.mark.slow
@settings(max_examples=3_000, deadline=None)
@given(tables())
def test_thousands_of_random_tables_are_what_python_says(drawn):
    """The same, for long."""
    judge_table(drawn)
