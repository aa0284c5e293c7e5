"""A fast path gives what the planned path gives, in all that can be observed, or leaves it to it."""

from __future__ import annotations

import contextlib
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support import examples, few_are_many

import tensorferry as ferry
from tensorferry import testing
from tensorferry.backends import fast_paths, registry
from tensorferry.core.info import MANY
from tensorferry.execution.run import verifying
from tensorferry.sequences import numbers as python_numbers
from tensorferry.sequences import reader
from tensorferry.testing import strategies as these

pytestmark = pytest.mark.fast_paths

FRAMEWORKS = ("numpy", "torch", "tensorflow", "jax")
CALLS = {
    "numpy": ferry.to_numpy,
    "torch": ferry.to_torch,
    "tensorflow": ferry.to_tensorflow,
    "jax": ferry.to_jax,
    "python": ferry.to_list,
}


def outcome(target, x):
    """All that can be seen of a conversion: the error's class, or the result's type, bits and memory."""
    try:
        result = CALLS[target](x)
    except ferry.ConversionError as error:
        return type(error), str(error)
    if target == "python":
        return type(result), repr(result)
    looks = testing.witness_for(target)
    place = looks.place(result)
    shared = not isinstance(x, (list, tuple)) and ferry.shares_memory(x, result)
    # Without an element no stride means anything.
    strides = (
        place
        and looks.content(result)
        and tuple(step for n, step in zip(place.shape, place.strides, strict=True) if n > 1)
    )
    return (
        type(result),
        looks.dtype(result),
        looks.shape(result),
        looks.content(result),
        shared,
        place.address if shared and place else None,
        strides,
        looks.writable(result),
        looks.requires_grad(result),
        result is x,
    )


def both(target, x):
    fast = outcome(target, x)
    with verifying():
        assert outcome(target, x) == fast
    return fast


@pytest.mark.parametrize("target", CALLS)
@pytest.mark.parametrize("source", FRAMEWORKS)
@settings(max_examples=examples(40))
@given(data=st.data())
def test_a_tensor_comes_the_same_by_fast_path_and_by_plan(source, target, data):
    """Type, dtype, bits, sharing, address, strides, writability and identity agree; so do errors."""
    both(target, data.draw(these.tensors(source)))


@pytest.mark.parametrize("target", CALLS)
@pytest.mark.parametrize("source", FRAMEWORKS)
def test_the_odd_tensors_come_the_same(source, target):
    """Lazy bits, graphs, subclasses, maps, the other byte order: every layout that a witness can make."""
    witness = testing.witness_for(source)
    for layout in witness.layouts:
        for dtype in ("float32", "complex64", "bfloat16", "int64", "bool"):
            if witness.knows(dtype):
                sample = witness.make(layout, dtype)
                if sample is not None:
                    both(target, sample.x)


numbers = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.floats(width=32),
    st.integers(-(2**66), 2**66),
    st.integers(-5, 5),
    st.booleans(),
    st.complex_numbers(),
    st.sampled_from([0.0, -0.0, math.nan, 2.0**24, 2**24 + 1, 3.5e38, 2**31, 2**63, 2.0**-149]),
)


@pytest.mark.parametrize("target", CALLS)
@settings(max_examples=examples(125))
@given(
    x=st.one_of(
        st.lists(st.floats(width=32), max_size=4),
        st.lists(st.floats(), max_size=4),
        st.lists(numbers, max_size=5),
        st.lists(st.lists(numbers, min_size=2, max_size=2), max_size=3),
        st.lists(st.lists(st.floats(-10, 10), max_size=2), max_size=3),
        st.recursive(numbers, lambda each: st.lists(each, max_size=3), max_leaves=6).filter(
            lambda x: isinstance(x, list)
        ),
    )
)
@example(x=[1.0, True])
@example(x=[1.0, None])
@example(x=[1.5, 2**24 + 1])
@example(x=[2.0**24, 0.5])
@example(x=[[1.0], [2.0, 3.0]])
@example(x=[1.0, "2"])
@example(x=[math.nan, 2**60 + 1])
def test_a_list_comes_the_same_by_fast_path_and_by_plan(target, x):
    """A fast path that reads lists itself agrees with the plan about every mixture of numbers, and every error."""
    both(target, x)


def by_keywords(target, x, keywords):
    """What comes of a planned conversion: type, dtype, shape and bits, or the error with its words."""
    try:
        result = ferry.convert(x, target, **keywords)
    except ferry.ConversionError as error:
        return type(error), str(error)
    if target == "python":
        return repr(result)
    looks = testing.witness_for(target)
    return type(result), looks.dtype(result), looks.shape(result), looks.content(result)


@contextlib.contextmanager
def a_few_at_a_time():
    """Two numbers are many, and two are read at a time."""
    with few_are_many(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "_CHUNK", 2)
        yield


ODD_LISTS = st.one_of(
    st.lists(st.floats(-10, 10), min_size=3, max_size=8),
    st.lists(st.integers(-5, 5) | st.integers(-(2**40), 2**40), min_size=3, max_size=8),
    st.lists(numbers, min_size=3, max_size=8),
    st.lists(
        st.lists(st.floats(-10, 10) | numbers, min_size=3, max_size=3), min_size=1, max_size=3
    ),
    st.lists(
        st.lists(st.lists(numbers, min_size=1, max_size=2), min_size=1, max_size=2),
        min_size=2,
        max_size=2,
    ),
    st.builds(range, st.integers(-9, 9), st.integers(2**31 - 3, 2**31 + 3), st.just(2**29)),
    st.lists(st.builds(range, st.just(0), st.integers(3, 4)), min_size=2, max_size=3),
)


@pytest.mark.parametrize("target", CALLS)
@settings(max_examples=examples(125))
@given(
    x=ODD_LISTS,
    keywords=st.sampled_from(
        [
            {},
            {"copy": True},
            *({"dtype": name} for name in ("default", "float16", "bfloat16", "int8", "int32")),
            {"dtype": "int8", "casting": "unsafe"},
            {"dtype": "float32", "casting": "same_value"},
        ]
    ),
)
@example(x=[1.0, 2.0, 3.0, 2**53 + 1], keywords={})
@example(x=[1.0, 2.0, 3.0, 1e39], keywords={})
@example(x=[1.0, 2.0, 3.0, math.nan, 4.0], keywords={})
@example(x=[1.0, 2.0, 3.0, 1j], keywords={})
@example(x=[1, 2, 3, 2**31, 5], keywords={})
@example(x=[1, 2, 3, 2.5], keywords={})
@example(x=[1.0, 2.0, 3.0, None], keywords={})
@example(x=[1.0, 2.0, 3.0, [4.0]], keywords={})
@example(x=[[1.0, 2.0, 3.0], [4.0, 5.0]], keywords={})
@example(x=[[1.0, 2.0, 3.0], 4.0], keywords={})
@example(x=[np.float16(1), np.float16(2), np.float16(3), 4.0], keywords={})
@example(x=[1.5, True, np.float64(3), False], keywords={})
@example(x=[1, 2, 3.5, 4.5, 2**53 + 1, 6], keywords={})
@example(x=[1, 2, 2**63, 2**63], keywords={})
@example(x=[1, -2, 2**63, 2**63], keywords={})
@example(x=[True, 1, 2**63, 2**63], keywords={})
@example(x=[True, False, 2, 3, 4.5, 5.5, 6j], keywords={})
@example(x=[1, 2, np.uint64(3), np.uint64(4)], keywords={})
@example(x=[0.5, -0.0, math.nan, math.inf], keywords={})
def test_numbers_come_the_same_in_parts_and_in_one(target, x, keywords):
    """Many numbers are read in parts: same dtype, bits and errors, wherever in the list something is odd."""
    with verifying():
        whole = by_keywords(target, x, keywords)
        with a_few_at_a_time():
            assert by_keywords(target, x, keywords) == whole


def into_out(target, x, dtype, casting):
    """The bits of `out` after a conversion, and the error with its words if there is one."""
    try:
        shape = ferry.describe(x).shape
    except ferry.ConversionError:
        shape = (len(x),)
    out = ferry.convert(np.ones(shape), target, dtype=dtype)
    looks = testing.witness_for(target)
    try:
        assert ferry.convert(x, target, out=out, casting=casting) is out
    except ferry.ConversionError as error:
        assert looks.content(out) == looks.content(
            ferry.convert(np.ones(shape), target, dtype=dtype)
        )
        return type(error), str(error)
    return looks.content(out)


@pytest.mark.parametrize("target", ["numpy", "torch"])
@settings(max_examples=examples(125))
@given(
    x=ODD_LISTS,
    dtype=st.sampled_from(["float64", "float32", "bfloat16", "int64", "int8", "bool", "complex64"]),
    casting=st.sampled_from([None, "unsafe", "same_value"]),
)
@example(x=[1.0, 2.0, 3.0, None], dtype="float32", casting=None)
@example(x=[1.0, 2.0, 3.0, 4.5], dtype="int8", casting=None)
@example(x=[1, 2, 3.5, 4.5, 2**53 + 1, 6], dtype="float64", casting=None)
@example(x=[[1.0, 2.0, 3.0], [4.0, 5.0]], dtype="float32", casting="unsafe")
def test_numbers_come_into_out_the_same_in_parts_and_in_one(target, x, dtype, casting):
    """Many numbers are written in parts: the same bits, or the same error and nothing written."""
    with verifying():
        whole = into_out(target, x, dtype, casting)
        with a_few_at_a_time():
            assert into_out(target, x, dtype, casting) == whole


@pytest.mark.parametrize(
    ("target", "out", "keywords"),
    [
        ("torch", None, {}),
        ("tensorflow", None, {}),
        ("jax", None, {}),
        ("numpy", None, {"dtype": "float16"}),
        ("python", None, {}),
        ("python", None, {"dtype": "bfloat16"}),
        ("numpy", "float64", {}),
        ("numpy", "int8", {}),
        ("torch", "float32", {}),
    ],
)
@pytest.mark.parametrize("numbers", [[0.0] * (MANY + 1), [0] * MANY + [0.0] * MANY])
def test_chunks_are_what_is_read(target, out, keywords, numbers, monkeypatch):
    """The comparisons above are not of the whole with itself: many numbers that are cast are read a few at a time."""
    given = None if out is None else ferry.convert(np.ones(len(numbers)), target, dtype=out)
    read, sizes = python_numbers.read_part, []

    def counted(x, shape, dtype, start, stop):
        sizes.append(stop - start)
        return read(x, shape, dtype, start, stop)

    monkeypatch.setattr(python_numbers, "read_part", counted)
    with verifying():
        ferry.convert(numbers, target, out=given, **keywords)
    alike = not keywords or len(set(map(type, numbers))) == 1
    if python_numbers.HAS_EXTENSION and alike and out is None and target != "python":
        assert sizes == []  # in one pass, into what is wanted
    else:
        assert len(sizes) > 2
        assert max(sizes) < MANY


def test_a_list_that_changes_while_it_is_read_is_an_error():
    """What was looked at is looked at once more as it is written: a row that has become another is no row of zeros."""
    x = [0.5] * 10
    again = reader.Chunks(x, (10,), "float64")
    x[3] = None
    with pytest.raises(ferry.ConversionError):
        list(again)
    x[3:] = []
    with pytest.raises(ferry.ConversionError):
        list(again)
    with pytest.raises(ferry.ShapeError):
        list(reader.Chunks([[0.5] * 20_000] * 2, (3, 20_000), "float64"))


@pytest.mark.quick
@pytest.mark.parametrize("target", ["numpy", "torch", "tensorflow"])
def test_there_are_fast_paths_and_they_are_taken(target):
    """The comparison is not one of the road with itself: the fast path is there, and accepts the common case."""
    # Paths open with their backend, which another test of this process may or may not have asked
    # for.
    registry.ready(target)
    x = testing.witness_for(target).build(bytes(64), "float32", (16,))
    path = fast_paths.paths_to(target)[type(x)]
    assert path(x) is x
    assert fast_paths.paths_to("numpy")[type(x)](x) is not None
    with verifying():
        assert type(x) not in dict(fast_paths.paths_to(target))


def test_a_path_that_is_made_when_called_is_made_once_and_stands_for_itself():
    """It makes way for what it has made, unless it was closed or replaced before."""
    made = []

    def make():
        made.append(None)
        return lambda x: [*x, 0]

    paths = fast_paths.paths_to("nowhere")
    try:
        paths[list] = first = fast_paths.made_when_called(list, "nowhere", make)
        assert first([1]) == [1, 0]
        assert paths[list] is not first
        assert paths[list]([2]) == [2, 0]
        assert len(made) == 1
        paths.clear()
        assert first([3]) == [3, 0]  # another thread may have looked it up before
        assert list not in paths
    finally:
        del fast_paths.PATHS["nowhere"]


def test_objects_that_are_not_tensors_are_refused_alike():
    """Object arrays, strings, masked arrays and sets: the same error either way."""
    odd = [
        np.array([1, 2.5], object),
        np.array(["a"]),
        np.ma.MaskedArray([1.0], mask=[True]),
        {1.0},
        "text",
        None,
    ]
    for target in CALLS:
        for x in odd:
            fast = seen(target, x)
            with verifying():
                assert seen(target, x) == fast


def seen(target, x):
    try:
        result = CALLS[target](x)
    except ferry.ConversionError as error:
        return type(error)
    return type(result), repr(result)
