"""Columns of Python numbers, and of lists of them: what a loop of Python writes, bit for bit.

By the extension and without it. Each promise is tried on a reader with one fault too, which must be
found.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import math
import random
import sys
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import examples, survives

import tensorferry as ferry
from tensorferry.batches import stacking
from tensorferry.execution import recipes
from tensorferry.sequences import columns, numbers

torch = pytest.importorskip("torch")

extension = pytest.mark.skipif(
    not numbers.HAS_EXTENSION,
    reason="the extension was not built, or TENSORFERRY_NO_EXTENSION is set",
)


@contextlib.contextmanager
def without_extension():
    """As where there is none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numbers, "_extension", None)
        for name in ("read_part", "look", "measure", "pad"):
            by_numpy = {"read_part": "read"}.get(name, name)
            patch.setattr(numbers, name, getattr(numbers, f"_{by_numpy}_by_numpy"))
        recipes.forget_recipes()
        yield
    recipes.forget_recipes()


WAYS = {"as it is": contextlib.nullcontext, "without the extension": without_extension}
ways = pytest.mark.parametrize("way", WAYS)

# -- plain Python ---------------------------------------------------------------------------------


def lengths_of(x):
    lengths = []
    while isinstance(x, list):
        lengths.append(len(x))
        if not x:
            break
        x = x[0]
    return tuple(lengths)


def filled(shape, value):
    return [filled(shape[1:], value) for _ in range(shape[0])] if shape else value


def padded(x, shape, value, lefts):
    """A nested list, made longer on each axis."""
    if not shape:
        return x
    inner = [padded(each, shape[1:], value, lefts[1:]) for each in x]
    more = [filled(shape[1:], value) for _ in range(shape[0] - len(x))]
    return more + inner if lefts[0] else inner + more


def by_hand(column, value, multiple=1, left=False):
    """The rows, padded; mask and lengths of the axis on which they differ first."""
    shapes = [lengths_of(each) for each in column]
    whole = [max(each) for each in zip(*shapes, strict=True)]
    differs = [len(set(each)) > 1 for each in zip(*shapes, strict=True)]
    axis = differs.index(True) if any(differs) else 0
    while whole[axis] % multiple:
        whole[axis] += 1
    lefts = [left and each == axis for each in range(len(whole))]
    rows = [padded(each, whole, value, lefts) for each in column]
    ones = [[True] * shape[axis] for shape in shapes]
    mask = [padded(each, [whole[axis]], False, [left]) for each in ones]
    return rows, mask, [shape[axis] for shape in shapes]


DTYPES = {
    bool: ("bool", "bool"),
    int: ("int64", "int64"),
    float: ("float64", "float32"),
    complex: ("complex128", "complex64"),
}
"""What NumPy and PyTorch make of numbers of a type."""


def as_array(rows, kind, target, dtype=None):
    name = dtype or DTYPES[kind][target == "torch"]
    with np.errstate(over="ignore"):
        return np.array(rows, DTYPES[kind][0]).astype(name)


def same(result, expected):
    result = np.asarray(result)
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    assert result.tobytes() == expected.tobytes()


# -- random columns -------------------------------------------------------------------------------

ELEMENTS = {
    bool: lambda at: at.random() < 0.5,
    int: lambda at: at.randrange(-9, 9) if at.random() < 0.9 else at.randrange(-(2**63), 2**63),
    float: lambda at: at.uniform(-9, 9) if at.random() < 0.9 else at.choice(SPECIAL),
    complex: lambda at: complex(at.uniform(-9, 9), at.choice(SPECIAL)),
}
SPECIAL = [math.nan, -math.nan, math.inf, -math.inf, -0.0, 5e-324, 1e-40, 0.1]
VALUES = {
    bool: [False, True],
    int: [0, -100, 1, 2**62],
    float: [0.0, -0.0, 0.5, math.nan, -math.inf],
    complex: [0j, 1 - 2j],
}


@st.composite
def batches(draw):
    """A column of lists of one kind of numbers, rectangular inside a sample, and a padding."""
    kind, depth = draw(st.sampled_from([*DTYPES])), draw(st.integers(1, 3))
    least, most = (0, 70) if depth == 1 else (1, 4)
    shape = st.lists(st.integers(least, most), min_size=depth, max_size=depth)
    shapes = draw(st.one_of(st.lists(shape, min_size=1, max_size=5), shape.map(lambda x: [x] * 3)))
    at = random.Random(draw(st.integers(0, 2**32)))  # noqa: S311 - no secret

    def nested(shape):
        if not shape:
            return ELEMENTS[kind](at)
        return [nested(shape[1:]) for _ in range(shape[0])]

    return kind, [nested(shape) for shape in shapes], at.choice(VALUES[kind])


@ways
@given(
    batch=batches(),
    target=st.sampled_from(["numpy", "torch"]),
    multiple=st.sampled_from([None, 1, 4]),
    left=st.booleans(),
)
@settings(max_examples=examples(150), deadline=None, derandomize=True, database=None)
def test_rows_are_padded_as_a_loop_pads_them(way, batch, target, multiple, left):
    """Values, NaN's bits, dtypes, masks and lengths; the samples stay as they are."""
    kind, column, value = batch
    if not any(map(lengths_of, column)) or not any(math.prod(lengths_of(x)) for x in column):
        return  # there is no number, whose kind the padding decides
    samples = [{"x": each} for each in column]
    before = copy.deepcopy(samples)
    rows, mask, lengths = by_hand(column, value, multiple or 1, left)
    side = "left" if left else "right"
    with WAYS[way]():
        result = ferry.collate(
            samples,
            target,
            pad=value,
            mask=True,
            lengths=True,
            pad_to_multiple_of=multiple,
            padding_side=side,
        )
    same(result["x"], as_array(rows, kind, target))
    same(result["x_mask"], np.array(mask, bool).reshape(len(column), -1))
    same(result["x_lengths"], np.array(lengths, "int64"))
    assert repr(samples) == repr(before)


@ways
@given(batch=batches(), target=st.sampled_from(["numpy", "torch"]), number=st.integers(0, 3))
@settings(max_examples=examples(100), deadline=None, derandomize=True, database=None)
def test_numbers_and_equal_rows_are_stacked_as_numpy_stacks_them(way, batch, target, number):
    """Below keys and, for numbers, in tuples."""
    kind, column, _ = batch
    row = column[0]
    while isinstance(row, list) and row and isinstance(row[0], list):
        row = row[0]
    if not row:
        return
    with WAYS[way]():
        inner = column[0]
        result = ferry.collate([{"x": inner} for _ in range(3)], target)["x"]
        same(result, as_array([inner] * 3, kind, target))
        result = ferry.collate([(each, number) for each in row], target)
        same(result[0], as_array(row, kind, target))
        same(result[1], np.array([number] * len(row), "int64"))


@ways
@pytest.mark.parametrize(
    ("rows", "dtype", "value"),
    [
        ([[1, 2], [3]], "int32", -1),
        ([[1, 2], [3]], "uint8", 255),
        ([[1, 2], [3]], "float32", 0.5),
        ([[1, 2], [3]], "float64", math.nan),
        ([[1.5, 2.25], [3.0]], "float16", -1e4),
        ([[1.5, math.nan], [1e-40]], "float32", math.nan),
        ([[1.5, 2.25], [3.0]], "bfloat16", 0.1),
        ([[1.5, 2.25], [3.0]], "complex64", 1j),
        ([[True], [False, True]], "uint8", 7),
        ([[1j], [2 + 1j, 0j]], "complex64", 0),
        ([[[1], [2]], [[3, 4]]], "int16", 9),
        ([[[1], [2]], [[3, 4]]], "float32", 0.25),
    ],
)
@pytest.mark.parametrize("target", ["numpy", "torch"])
def test_a_dtype_that_is_asked_for(way, rows, dtype, value, target):
    """By name of the leaf; the padding is a number of that dtype."""
    expected, _, _ = by_hand(rows, value)
    with WAYS[way]():
        result = ferry.collate([{"x": x} for x in rows], target, pad=value, dtype={"x": dtype})["x"]
    assert ferry.describe(result).dtype == dtype
    exact = ferry.to_numpy(ferry.to_numpy(expected, dtype=dtype), dtype="complex128")
    assert repr(ferry.to_numpy(result, dtype="complex128").tolist()) == repr(exact.tolist())


# -- what is unusual ------------------------------------------------------------------------------


class Own(int):
    """Somebody's own int."""


class OwnList(list):
    """Somebody's own list."""


ODD = {
    "bools among ints": [[1, True], [2]],
    "ints among floats": [[1.5, 2], [2.5]],
    "another kind in the last row": [[1] * 40, [2.5]],
    "a late float": [[1] * 70 + [0.5], [2]],
    "None": [[1, None], [2]],
    "text": [[1, "a"], [2]],
    "an int beyond 64 bits": [[1, 2**64], [2]],
    "an unsigned int": [[1, 2**63], [2]],
    "own ints": [[Own(1), 2], [2]],
    "own lists": [OwnList([1, 2]), OwnList([2])],
    "a scalar of NumPy's": [[np.int32(1), 2], [2]],
    "rows of unequal depth": [[1, 2], [[3]]],
    "ragged within a sample": [[[1, 2], [3]], [[4, 5], [6, 7]]],
    "tuples": [[(1, 2)], [(3, 4)]],
    "tuples among lists": [[[1, 2], (3, 4)], [[5, 6], [7, 8]]],
    "an empty row": [[], [1]],
    "only empty rows": [[], []],
    "empty rows within": [[[], []], [[1], [2]]],
    "a number beside a row": [[1, [2]], [3, [4]]],
    "a float beyond float32": [[1e300, 1.0], [2.0]],
    "arrays": [[np.ones(2), np.ones(3)], [np.ones(2), np.ones(3)]],
    "a row beside a number": [[1, 2], 3],
}


def said(call):
    try:
        result = call()
    except (ferry.ConversionError, TypeError) as error:
        return type(error), str(error)
    return repr(result)


@pytest.mark.parametrize("pad", [None, 0, 0.5, False, {"x": -1}])
@pytest.mark.parametrize("keywords", [{}, {"mask": True}, {"dtype": "float32"}])
@pytest.mark.parametrize("name", ODD)
def test_what_is_unusual_is_the_same_with_and_without_the_extension(name, pad, keywords):
    """Result or error; never an error of another kind, and the samples stay as they are."""
    samples = [{"x": each, "y": 1} for each in ODD[name]]
    before = repr(samples)
    if pad is None:
        keywords = {key: value for key, value in keywords.items() if key != "mask"}
    for target in ("numpy", "torch"):
        call = partial(ferry.collate, samples, target, pad=pad, **keywords)
        found = said(call)
        with without_extension():
            assert said(call) == found
        assert repr(samples) == before


def test_a_list_that_begins_with_a_number_and_is_none_is_a_container():
    """Only when it is read is it known: the other leaves are as before."""
    samples = [{"x": [number, np.ones(2)], "ids": [1] * number} for number in (1, 2)]
    batch = ferry.collate(samples, "numpy", pad={"ids": 0})
    assert batch["x"][0].tolist() == [1, 2]
    assert batch["x"][1].tolist() == [[1, 1], [1, 1]]
    assert batch["ids"].tolist() == [[1, 0], [1, 1]]
    plan = ferry.explain_collate(samples, "numpy", pad={"ids": 0})
    assert [leaf.path for leaf in plan.leaves] == ['$["x"][0]', '$["x"][1]', '$["ids"]']


def test_a_table_in_a_list_that_begins_with_a_number():
    """Its masks of nulls come beside its columns, as if the list did not begin with one."""
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pd.DataFrame({"a": pd.array([1, None], "Int64")})
    batch = ferry.collate([{"x": [1, frame]}] * 2, "numpy", nulls="mask")
    assert batch["x"][0].tolist() == [1, 1]
    assert batch["x"][1]["a_mask"].tolist() == [[True, False]] * 2


def test_the_plan_has_the_bytes_that_are_written():
    """Rows are padded while they are read: nothing is written twice."""
    plan = ferry.explain_collate([{"x": [1, 2]}, {"x": [3]}], "numpy", pad=0)
    assert plan.bytes_copied == np.zeros((2, 2), np.int64).nbytes
    names = {"x": [[1, 2], [3]]}
    exec(plan.leaves[0].plan.code, names)  # noqa: S102 - the plan's own
    assert names["y"].tolist() == [[1, 2], [3, 0]]


def test_the_result_is_the_memory_that_was_written():
    """A batch of 64-bit integers for PyTorch is not copied once more; and it is the caller's alone."""
    first, second = (
        ferry.collate([{"x": [1, 2]}, {"x": [3]}], "torch", pad=0, mask=True) for _ in range(2)
    )
    first["x"].fill_(9)
    first["x_mask"].fill_(False)
    assert second["x"].tolist() == [[1, 2], [3, 0]]
    assert second["x_mask"].tolist() == [[True, True], [True, False]]


# -- the reader itself ----------------------------------------------------------------------------

COLUMN = [[float(number) for number in range(size)] for size in (40, 0, 3, 33, 64)]
LAYOUT = columns.ListLayout((66,), 0, left=False, mask=True, lengths=True)


def check_reader():
    """Compare a column that has been read with plain Python."""
    for left in (False, True):
        rows, mask, lengths = by_hand(COLUMN, -1.5, 66, left)
        wanted = columns.Wanted("float64", "", np.array(-1.5))
        read = columns.read_lists(COLUMN, LAYOUT._replace(left=left), lambda _, w=wanted: w)
        assert read.array.tolist() == rows
        assert read.mask.tolist() == mask
        assert read.lengths.tolist() == lengths


def swapped(found, array, mask, lengths):
    array[[0, 3]] = array[[3, 0]]


def over_a_value(found, array, mask, lengths):
    array[0, 39] = array[0, 26] = -1.5


def off_by_one(found, array, mask, lengths):
    mask[:] = np.roll(mask, 1, axis=1)


def another_length(found, array, mask, lengths):
    lengths[4] -= 1


@ways
def test_the_reader_is_as_plain_python(way):
    with WAYS[way]():
        check_reader()


@pytest.mark.parametrize("fault", [swapped, over_a_value, off_by_one, another_length])
def test_a_reader_with_a_fault_is_found(fault, monkeypatch):
    """The comparison above can fail."""
    right = numbers.pad

    def pad(array, dtype, lists, axis, left, value, mask, lengths):
        found = right(array, dtype, lists, axis, left, value, mask, lengths)
        fault(found, array, mask, lengths)
        return found

    monkeypatch.setattr(numbers, "pad", pad)
    with pytest.raises(AssertionError):
        check_reader()


@extension
@pytest.mark.parametrize(
    "change",
    [
        {0: bytes(32)},
        {0: np.ones(3, "int64")},
        {0: np.ones(8, "int64")[::2]},
        {1: "x"},
        {1: 7},
        {3: (2, 3)},
        {3: (2,)},
        {3: ()},
        {3: (2, -2)},
        {3: (2**62, 2**62, 2**62)},
        {3: [2, 2]},
        {4: 0},
        {4: 2},
        {4: "1"},
        {6: bytes(4)},
        {6: None},
        {7: np.ones((2, 3), bool)},
        {7: bytes(4)},
        {8: np.ones(3, "int64")},
        {8: np.ones(2, "int32")},
    ],
    ids=repr,
)
def test_no_memory_is_written_that_is_not_there(change):
    """Room, shape, axis, value, mask and lengths are compared before anything is read."""
    arguments = [np.empty((2, 2), "int64"), "q", [[1, 2], [3]], (2, 2), 1, False, bytes(8)]
    arguments += [np.empty((2, 2), bool), np.empty(2, "int64")]
    assert numbers._extension.pad(*arguments) == numbers.INT
    for place, value in change.items():
        arguments[place] = value
    with pytest.raises((TypeError, ValueError, BufferError, OverflowError, SystemError)):
        numbers._extension.pad(*arguments)
    with pytest.raises(TypeError):
        numbers._extension.pad(*arguments[:-1])


@extension
@pytest.mark.parametrize(
    "lists",
    [
        [[1, 2, 3], [4]],
        [[1, 2]],
        [[1, 2], (3,)],
        ([1, 2], [3]),
        [[1, 2], OwnList([3])],
        [[1, 2], [[3]]],
        [[1, 2], 3],
        [[1, 2], [None]],
        [[1, 2], [Own(3)]],
        [[1, 2], [2**64]],
        None,
    ],
    ids=repr,
)
def test_the_extension_leaves_alone_what_is_no_list_of_numbers(lists):
    """Other lengths than were measured, other types, and numbers that no dtype holds."""
    array = np.empty((2, 2), "int64")
    given = array, "q", lists, (2, 2), 1, False, bytes(8), None, None
    assert numbers._extension.pad(*given) == numbers.DOUBT


@extension
def test_lengths_are_measured_by_the_first_elements():
    """Of each axis the greatest and the least; nothing for what differs in depth, or is no list."""
    measure = numbers._extension.measure
    assert measure([[1, 2], [3], []]) == ((2,), (0,))
    assert measure([[[1], [2]], [[3, 4]]]) == ((2, 2), (1, 1))
    itself = []
    itself.append(itself)
    for odd in ([], [1], [[1], [[2]]], [[], [[2]]], [(1,)], ([1],), None, [itself], [OwnList([1])]):
        assert measure(odd) is None


@ways
@pytest.mark.parametrize(
    "row", [[], [1], [1, 2] * 40, [1] * 40 + [True], [None, 1], [Own(1)] * 3, [OwnList(), []]]
)
def test_the_types_in_a_list(way, row):
    """As Python's own `type` gives them, one by one."""
    with WAYS[way]():
        assert numbers.types_in(row) == {type(each) for each in row}
        assert numbers.types_in(OwnList(row)) == {type(each) for each in row}


def references_of(call, watched):
    """The counts of references before and after many calls."""
    call()
    before = list(map(sys.getrefcount, watched))
    for _ in range(200):
        call()
    return before, list(map(sys.getrefcount, watched))


KEPT = []


@extension
@pytest.mark.parametrize("leaks", [False, True])
def test_nothing_is_kept(leaks, monkeypatch):
    """Good columns and bad ones leave the counts of references as they were; a leak is found."""
    elements = [float("1.25e10"), int("98765432101"), complex("1+2j"), int("1" * 30)]
    good = [[[each] * 3, [each] * 40, []] for each in elements[:3]]
    bad = [[[1.5] * 40, [elements[-1]]], [[1.5] * 40, [1.5, None]], [[elements[0]], [[2]]]]
    memory = np.empty((3, 40), "complex128")
    mask, lengths = np.empty((3, 40), bool), np.empty(3, "int64")
    watched = [list, float, *elements, *good, *bad, *good[0], *bad[0], memory, mask, lengths]

    def call():
        for column in (*good, *bad):
            numbers._extension.measure(column)
            numbers._extension.type_of(column)
            with contextlib.suppress(ValueError):
                numbers._extension.pad(
                    memory, "D", column, (3, 40), 1, True, bytes(16), mask, lengths
                )
        if leaks:
            KEPT.append(good[0])

    before, after = references_of(call, watched)
    KEPT.clear()
    assert (before != after) == leaks


class Wiper:
    """Empties a list when it is collected."""

    def __init__(self, x):
        self.x, self.itself = x, self

    def __del__(self):
        self.x.clear()


@extension
@pytest.mark.parametrize("place", [0, 31, 32, 70])
def test_lists_that_are_emptied_by_a_collection_while_they_are_read(place):
    """The error that Python makes of a long int may start one: what comes after it is not touched."""
    before = gc.get_threshold()
    column = [[number + 0.5 for number in range(100)] for _ in range(3)]
    column[1][place] = 10**30
    memory = np.empty((3, 100))
    gc.disable()
    Wiper(column)
    gc.set_threshold(1, 1, 1)
    gc.enable()
    try:
        given = memory, "d", column, (3, 100), 1, False, bytes(8), None, None
        assert numbers._extension.pad(*given) == numbers.DOUBT
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert column == []


def test_a_batch_that_another_thread_changes():
    """What comes is an error, or numbers that were there at some time; the process goes on."""
    survives(
        """
        import threading
        import tensorferry as ferry

        samples = [{"x": [1.5] * size} for size in (40, 3, 60)]
        stop = threading.Event()

        def change():
            while not stop.is_set():
                for sample in samples:
                    sample["x"][1:3] = []
                    sample["x"].extend((1.5, 1.5))
                    sample["x"][0] = None
                    sample["x"][0] = 1.5

        thread = threading.Thread(target=change)
        thread.start()
        try:
            for _ in range(2000):
                try:
                    batch = ferry.collate(samples, "numpy", pad=2.5, mask=True)
                except ferry.ConversionError:
                    continue
                assert set(batch["x"].ravel().tolist()) <= {1.5, 2.5}
                assert (batch["x"][batch["x_mask"]] == 1.5).all()
        finally:
            stop.set()
            thread.join()
        """
    )


@ways
@pytest.mark.parametrize(
    ("late", "dtype"),
    [(2**40, "int64"), (-(2**31) - 1, "int64"), (7, "int32"), (math.nan, "float32")],
)
def test_the_first_numbers_do_not_decide_the_dtype(way, late, dtype):
    """TensorFlow makes int32 of small integers, and int64 of others, wherever the large one is."""
    tf = pytest.importorskip("tensorflow")
    rows = [[type(late)(1)] * 40 + [late], [type(late)(2)]]
    with WAYS[way]():
        result = ferry.collate([{"x": row} for row in rows], "tensorflow", pad=3)["x"]
    assert result.dtype.name == dtype
    expected = tf.ragged.constant(rows, dtype).to_tensor(default_value=3)
    assert result.numpy().tobytes() == expected.numpy().tobytes()


def test_lists_are_read_once_and_no_list_is_made_of_each(monkeypatch):
    """One call of the reader for each column, whatever is asked for."""
    ferry.collate([{"ids": [1] * size} for size in (3, 1)], "torch", pad=0)  # which reads the 0
    called = []
    for name in ("pad", "read"):
        right = getattr(numbers, name)
        monkeypatch.setattr(
            numbers,
            name,
            lambda *given, right=right, name=name: (called.append(name), right(*given))[1],
        )
    monkeypatch.setattr(stacking, "look_at", None)
    samples = [{"ids": [1] * size, "label": 1, "score": 0.5} for size in (3, 1)]
    ferry.collate(samples, "torch", pad=0, mask=True, lengths=True)
    assert called == ["pad", "read", "read"]
