"""What differs between two files: every bit counts, and distances are those of exact arithmetic."""

from __future__ import annotations

import json
import math
import tracemalloc
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.files.support import awkward, contents, sample

import tensorferry
from tensorferry.core.dtypes import DTYPES
from tensorferry.files.base.contents import Contents, NotTensor, Ref
from tensorferry.files.base.stored import Decoded, Extent, InMemory, View
from tensorferry.files.reports.diff import Change, diff
from tensorferry.host.numpy_dtypes import numpy_dtype


def _of(array, dtype=None):
    return contents({"x": np.asarray(array, dtype)})


def _only(a, b, **options):
    """The one tensor that differs."""
    (found,) = diff(a, b, **options).differing
    return found


def test_a_file_is_equal_to_itself_whatever_its_bits():
    """No pattern of bits of any dtype, NaN included, differs from itself."""
    arrays = sample()

    found = diff(contents(arrays), contents({name: array.copy() for name, array in arrays.items()}))

    assert found.equal
    assert found.differing == ()
    assert found.tensors == len(arrays)


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_one_other_bit_differs(dtype):
    """One bit of one element, of any dtype, makes two files differ, and is found where it is."""
    array = np.repeat(awkward(dtype), 2)
    other = array.copy()
    other.view(np.uint8)[3 * array.itemsize] ^= 1

    found = _only(_of(array), _of(other))

    assert (found.elements, found.accepted) == (1, False)
    assert found.nans or found.position == (3,)


REALS = sorted(name for name, row in DTYPES.items() if row.kind != "complex")
WHOLE = {name for name in REALS if DTYPES[name].kind != "float"}


@given(st.sampled_from(REALS), st.sampled_from(REALS), st.data())
def test_the_largest_distance_is_that_of_exact_arithmetic(one, other, data):
    """Between any two real dtypes: the largest |a - b| as fractions have it, rounded once; NaN counted apart."""

    def drawn(dtype):
        patterns = awkward(dtype)
        return patterns[
            data.draw(st.lists(st.integers(0, patterns.size - 1), min_size=4, max_size=4))
        ]

    a, b = drawn(one), drawn(other)
    numbers = [
        [int(x) if name in WHOLE else float(x) for x in array]
        for name, array in ((one, a), (other, b))
    ]
    distances = [_distance(x, y) for x, y in zip(*numbers, strict=True)]
    known = [each for each in distances if each is not None]

    result = diff(_of(a), _of(b))

    if result.equal:
        assert (one, a.tobytes()) == (other, b.tobytes())
        return
    found = result.differing[0]
    assert found.nans == distances.count(None)
    if one != other:
        assert found.elements == sum(each != 0 for each in distances)
    if one in WHOLE and other in WHOLE:
        assert found.largest == max(known)
    elif known and max(known) > 0:
        assert found.largest == pytest.approx(_rounded(max(known)), rel=2**-52)


def _distance(x, y):
    """|x - y|, exact; ``None`` if one is NaN, 0 if both are or if they are one infinity."""
    if math.isnan(x) or math.isnan(y):
        return 0 if math.isnan(x) and math.isnan(y) else None
    if math.isinf(x) or math.isinf(y):
        return 0 if x == y else math.inf
    return abs(Fraction(x) - Fraction(y))


def _rounded(distance):
    try:
        return float(distance)
    except OverflowError:
        return math.inf


@pytest.mark.parametrize(
    ("a", "b", "largest"),
    [
        (np.array([2**63 - 1, 0]), np.array([-(2**63), 0]), 2**64 - 1),
        (np.array([2**64 - 1], np.uint64), np.array([-(2**63)]), 2**64 + 2**63 - 1),
        (np.array([2**64 - 1], np.uint64), np.array([0], np.uint8), 2**64 - 1),
        (np.array([2**53 + 1]), np.array([2.0**53]), 1.0),
        (np.array([-1]), np.array([-1 + 2.0**-53]), 2.0**-53),
        (np.array([2**64 - 1], np.uint64), np.array([2.0**64]), 1.0),
        (np.array([3 + 4j]), np.array([0j]), 5.0),
        (np.array([3 + 4j], "complex64"), np.array([0], ml_dtypes.bfloat16), 5.0),
        (np.array([2**53 + 1]), np.array([2.0**53 + 0j]), 1.0),
        (np.array([np.inf]), np.array([1.0]), math.inf),
        (np.array([np.inf]), np.array([-np.inf]), math.inf),
        (np.array([0.0]), np.array([-0.0]), 0.0),
    ],
)
def test_distances_at_the_edges(a, b, largest):
    """Integers do not wrap, integers beside floats are not rounded to them, and infinities are apart."""
    found = _only(_of(a), _of(b))

    assert found.largest == largest
    assert _only(_of(b), _of(a)).largest == largest
    assert found.elements == 1
    json.dumps(found.to_dict(), allow_nan=False)


def test_equal_infinities_of_two_dtypes_are_equal_values():
    """Infinity in one dtype is infinity in another: only the dtypes differ."""
    found = _only(_of([np.inf, 1.0], "float32"), _of([np.inf, 1.0], "float64"))

    assert (found.elements, found.largest, found.position, found.accepted) == (0, 0.0, None, False)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e5m2", "complex64"])
def test_nan_is_accepted_by_no_tolerance_unless_both_are(dtype):
    """A NaN beside a number differs under any tolerance; two NaNs of other bits only without one."""
    kind = numpy_dtype(dtype)
    number, nan = np.array([1, 2, 3]).astype(kind), np.array([1, np.nan, 3]).astype(kind)

    found = _only(_of(number), _of(nan), tolerance=1e9)
    assert (found.nans, found.largest, found.elements, found.accepted) == (1, None, 1, False)
    other = nan.copy()
    other.view(np.uint8)[kind.itemsize] ^= 1
    assert not diff(_of(nan), _of(other)).equal
    assert diff(_of(nan), _of(other), tolerance=0).equal


def test_a_nan_does_not_hide_the_largest_distance():
    """Where NaN and a small distance are in one tensor, both are told."""
    found = _only(_of([np.nan, 1.0, 2.0]), _of([0.0, 1.0, 2.5]), tolerance=1)

    assert (found.nans, found.largest, found.position, found.elements, found.accepted) == (
        1,
        0.5,
        (2,),
        2,
        False,
    )


@pytest.mark.parametrize(
    ("tolerance", "equal"), [(None, False), (0.2, False), (0.25, True), (1, True)]
)
def test_tolerance_covers_what_it_says(tolerance, equal):
    """|a - b| <= tolerance is equal, the edge included; without one every bit counts.

    It is told all the same.
    """
    found = diff(_of([1.0, 2.0]), _of([1.0, 2.25]), tolerance=tolerance)

    assert found.equal is equal
    assert found.differing[0].accepted is equal
    assert found.differing[0].largest == 0.25


@pytest.mark.parametrize(
    ("options", "equal"),
    [
        ({}, False),
        ({"tolerance": 1}, False),
        ({"any_dtype": True}, False),
        ({"any_dtype": True, "tolerance": 1}, True),
    ],
)
def test_two_dtypes_differ_unless_any_will_do(options, equal):
    """Another dtype is a difference that no tolerance covers by itself; the values are compared all the same."""
    found = diff(_of([1.0, 2.125], "float32"), _of([1.0, 2.0], ml_dtypes.bfloat16), **options)

    assert found.equal is equal
    assert (found.differing[0].largest, found.differing[0].elements) == (0.125, 1)
    assert diff(_of([1.5], "float32"), _of([1.5], ml_dtypes.bfloat16), any_dtype=True).equal


def test_names_and_shapes():
    """Names of one file only are told in order, and two shapes are no pair to compare."""
    a = contents({"a": np.zeros(2), "b": np.zeros(2), "c": np.zeros((2, 3))})
    b = contents({"c": np.zeros((3, 2)), "b": np.zeros(2), "d": np.zeros(1)})

    found = diff(a, b, tolerance=math.inf)

    assert (found.only_a, found.only_b, found.tensors) == (("a",), ("d",), 2)
    assert [(each.name, each.shapes, each.largest) for each in found.differing] == [
        ("c", ((2, 3), (3, 2)), None)
    ]
    assert not found.equal
    assert not diff(contents({}), b).equal
    assert diff(a, contents({"c": np.zeros((2, 3)), "b": np.zeros(2), "a": np.zeros(2)})).equal


def test_what_stands_beside_the_tensors_counts_unless_it_is_left_out():
    """Values, metadata and what cannot be compared make files differ; with tensors_only they do not."""
    tree_a = {"x": Ref("x"), "epoch": 1, "lr": math.nan, "flag": True, "gone": None}
    tree_b = {"x": Ref("x"), "epoch": 2, "lr": math.nan, "flag": 1}
    array = np.zeros(2)
    a = contents({"x": array}, tree=tree_a, metadata={"format": "pt", "same": "s"})
    b = contents({"x": array}, tree=tree_b, metadata={"same": "s"})
    b.others["words"] = NotTensor("strings")

    found = diff(a, b)

    assert found.values == (
        Change("epoch", "1", "2"),
        Change("flag", "True", "1"),
        Change("gone", "None", None),
    )
    assert found.metadata == (Change("format", "'pt'", None),)
    assert found.uncompared == {"words": "strings"}
    assert not found.equal
    assert diff(a, b, tensors_only=True).equal
    b.others["sparse"] = "it is sparse"
    assert diff(a, b, tensors_only=True).uncompared == {"sparse": "it is sparse"}
    for tree in (tree_b, tree_a):
        assert diff(
            contents({"x": array}, tree=tree), contents({"x": array}, tree=tree_a)
        ).equal is (tree is tree_a)
    assert diff(
        contents({"x": array}, tree={"x": Ref("x", "parameter")}), contents({"x": array})
    ).equal


def test_sets_are_compared_by_what_they_hold():
    """Not by how Python writes them, which depends on what they were before."""
    ups, downs = set(range(0, 16, 8)), set(range(8, -8, -8))
    assert repr(ups) != repr(downs)
    a, b = (
        contents({"x": np.zeros(2)}, tree={"x": Ref("x"), "s": s, "t": [frozenset(s)]})
        for s in (ups, downs)
    )
    assert diff(a, b).equal
    other = contents({"x": np.zeros(2)}, tree={"x": Ref("x"), "s": {0, 16}, "t": [frozenset(ups)]})
    assert [change.place for change in diff(a, other).values] == ["s"]


def _blocks(values, sizes):
    start = 0
    for size in sizes:
        yield values[start : start + size]
        start += size


@given(st.lists(st.integers(0, 5), max_size=8), st.lists(st.integers(0, 5), max_size=8), st.data())
def test_blocks_of_any_sizes_are_compared_element_by_element(one, other, data):
    """Two formats that cut a tensor into blocks of their own are compared as if each gave it whole."""
    total = sum(one) + sum(other)
    a = np.arange(total, dtype=np.int32)
    b = a.copy()
    changed = data.draw(st.sets(st.integers(0, total - 1))) if total else set()
    for place in changed:
        b[place] += place + 1
    first = Decoded("int32", (total,), lambda: _blocks(a, [*one, *other]), "a")
    second = Decoded("int32", (total,), lambda: _blocks(b, [*reversed(other), *one]), "b")

    found = diff(Contents("a", (), {"x": first}), Contents("b", (), {"x": second})).differing

    assert bool(found) is bool(changed)
    if changed:
        last = max(changed)
        assert (found[0].elements, found[0].largest, found[0].position) == (
            len(changed),
            last + 1,
            (last,),
        )


def test_layouts_in_files_do_not_matter(tmp_path):
    """Packed, big-endian and transposed values of one tensor are equal, across the borders of blocks too."""
    array = np.arange(1000 * 700, dtype=np.float32).reshape(1000, 700)
    files = {
        "packed": array,
        "swapped": array.astype(">f4"),
        "transposed": np.ascontiguousarray(array.T),
    }
    for name, values in files.items():
        (tmp_path / name).write_bytes(values.tobytes())
    held = [
        Extent("float32", array.shape, str(tmp_path / "packed"), 0),
        Extent("float32", array.shape, str(tmp_path / "swapped"), 0, swapped=True),
        View("float32", array.shape, str(tmp_path / "transposed"), 0, (4, 4000)),
        InMemory(array, "float32", "memory"),
    ]
    for stored in held:
        told = []
        a, b = (Contents("x", (), {"x": each}) for each in (held[0], stored))
        assert diff(a, b, progress=told.append).equal
        assert sum(told) == 2 * array.nbytes


def test_tied_tensors_are_compared_once_and_told_under_each_name():
    """A pair of tensors that has several names is read once, and differs under each of them."""
    a, b = np.zeros(3), np.ones(3)
    told = []

    found = diff(
        contents({"x": a, "y": a, "z": a}), contents({"x": b, "y": b, "z": a}), progress=told.append
    )

    assert [each.name for each in found.differing] == ["x", "y"]
    assert sum(told) == 2 * (a.nbytes + b.nbytes)


def test_memory_does_not_grow_with_the_file(tmp_path):
    """64 MiB that differ everywhere are compared in less than 16 MiB."""
    size = 1 << 24
    for name, fill in (("a", 1.0), ("b", 2.0)):
        np.full(size, fill, np.float32).tofile(tmp_path / name)
    a, b = (
        Contents("x", (), {"x": Extent("float32", (size,), str(tmp_path / name), 0)})
        for name in "ab"
    )
    tracemalloc.start()
    try:
        found = diff(a, b, tolerance=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert (found.differing[0].elements, found.differing[0].largest, found.equal) == (
        size,
        1.0,
        True,
    )
    assert peak < 16 << 20


def test_the_unused_bits_of_a_narrow_integer_are_no_difference(tmp_path):
    """An int4 fills a byte with its sign or with zeros: the number is the same, and so is the file."""
    import ml_dtypes

    cast = np.array([-1, 3], np.int8).astype(ml_dtypes.int4)
    filled = np.array([0xFF, 3], np.uint8).view(ml_dtypes.int4)
    assert cast.tobytes() != filled.tobytes()
    for name, array in (("a", cast), ("b", filled), ("c", filled[::-1].copy())):
        tensorferry.save({"x": array}, tmp_path / f"{name}.npz")
    a, b, c = (tensorferry.open(tmp_path / f"{name}.npz") for name in "abc")
    assert diff(a, b).equal
    assert not diff(a, c).equal


def test_renamed_tensors_are_found_by_their_bits():
    """Each once, of the same dtype and shape; of several that are alike the one whose name ends alike."""
    same, nan = np.arange(6, dtype="f4"), np.array([np.nan, -0.0])
    zeros = {"x.bias": np.zeros(3), "x.beta": np.zeros(3), "x.more": np.zeros(3)}
    a = contents(
        {"kept": same, "a.w": same + 1, "a.n": nan, "a.turned": same.reshape(2, 3), "a.other": same}
        | zeros
    )
    zeros = {"y.beta": np.zeros(3), "y.bias": np.zeros(3)}
    b = {
        "kept": same,
        "b.n": nan.copy(),
        "b.w": same + 1,
        "b.turned": same.reshape(3, 2),
        "b.wide": same.astype("f8"),
    }
    b = contents(b | zeros)
    found = diff(a, b)
    assert found.renamed == (
        ("a.w", "b.w"),
        ("a.n", "b.n"),
        ("x.bias", "y.bias"),
        ("x.beta", "y.beta"),
    )
    assert (found.only_a, found.only_b) == (
        ("a.turned", "a.other", "x.more"),
        ("b.turned", "b.wide"),
    )
    assert not found.equal
    signed = diff(contents({"a": np.array([0.0])}), contents({"b": np.array([-0.0])}))
    assert (signed.renamed, signed.only_a) == ((), ("a",))


def test_what_cannot_be_renamed_is_not_read():
    """A tensor whose dtype and shape nothing in the other file has costs no reading."""

    def never():
        raise AssertionError

    lone = Contents("memory", (), {"a": Decoded("float32", (5,), never, 0)})
    assert diff(lone, contents({"b": np.zeros(4, "f4")})).only_a == ("a",)
