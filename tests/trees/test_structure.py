"""One container in two places, and samples whose containers differ in what is not stacked."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, NamedTuple

import numpy as np
import optree
import pytest

import tensorferry as ferry

torch = pytest.importorskip("torch")


@dataclasses.dataclass
class Pair:
    first: Any
    second: Any


@dataclasses.dataclass
class Other:
    first: Any
    second: Any


class Point(NamedTuple):
    x: Any


class Place(NamedTuple):
    x: Any


class Rows(list):
    """A list with attributes."""


FUNCTIONS = {
    "fast_paths": lambda tree: ferry.convert_tree(tree, "numpy"),
    "copies": lambda tree: ferry.convert_tree(tree, "torch", copy=True),
    "numbers": lambda tree: ferry.convert_tree(tree, "numpy", leaves="numbers"),
    "callable": lambda tree: ferry.convert_tree(
        tree, "jax", leaves=lambda x: isinstance(x, torch.Tensor)
    ),
    "snapshot": ferry.snapshot,
    "start": lambda tree: ferry.start(tree, "numpy").result(),
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_one_container_in_two_places_stays_one(function):
    """A dict, an empty list, a dataclass; beside each other, and in each other."""
    held, empty = {"x": torch.ones(2), "none": torch.ones(0), "n": 1}, []
    pair = Pair(held, [held])
    result = FUNCTIONS[function](
        [held, held, empty, empty, pair, (pair,), collections.deque([empty])]
    )
    assert result[0] is result[1] is result[4].first is result[4].second[0]
    assert result[0] is not held
    assert result[2] is result[3] is result[6][0]
    assert result[4] is result[5][0]
    assert result[4] is not pair


@pytest.mark.parametrize(
    "around",
    [
        lambda *values: list(values),
        lambda *values: {str(number): value for number, value in enumerate(values)},
        lambda *values: Pair(values[0], list(values[1:])),
        lambda *values: collections.deque(values),
        lambda *values: Rows(values),
    ],
)
@pytest.mark.parametrize(
    "held", [(0.5, 1.5), [0.5], {"x": 0.5, "y": [1.5, 2.5]}, Point(0.5), Pair(0.5, 1.5), [], {}]
)
def test_what_follows_a_container_that_recurs_is_its_own(around, held):
    """The second time, it is taken from the first: its leaves do not stand for the next ones."""
    tree = around(held, held, None, torch.ones(1), held, "last")
    result = ferry.convert_tree(tree, "numpy")
    values = [*result.values()] if isinstance(result, dict) else result
    if isinstance(result, Pair):
        values = [result.first, *result.second]
    first, second, none, tensor, third, last = values
    assert first is second is third
    assert first == held
    assert (none, tensor.tolist(), last) == (None, [1.0], "last")


def test_two_containers_that_are_equal_stay_two():
    """And so do two of the same tensors."""
    tensor = torch.ones(2)
    result = ferry.convert_tree([{"x": tensor}, {"x": tensor}, (), ()], "numpy")
    assert result[0] is not result[1]
    assert result[0]["x"] is result[1]["x"]


def test_a_container_that_goes_to_two_targets_becomes_two():
    """Each place has what was asked for it."""
    held = {"x": torch.ones(2)}
    result = ferry.convert_tree([held, held], like=[{"x": np.ones(1)}, {"x": torch.ones(1)}])
    assert isinstance(result[0]["x"], np.ndarray)
    assert isinstance(result[1]["x"], torch.Tensor)


def test_both_places_are_described():
    """A plan says that the one is the other."""
    held = {"x": torch.ones(2), "n": 1}
    tree = [held, held]
    assert list(ferry.describe_tree(tree)) == ['$[0]["x"]', '$[1]["x"]']
    plan = ferry.explain_tree(tree, "numpy", leaves="numbers")
    assert [leaf.same_as for leaf in plan.leaves] == [None, None, '$[0]["x"]', '$[0]["n"]']


def test_a_container_in_itself_is_refused():
    """It stands at as many places as one likes."""
    rows: list[Any] = []
    rows.append(rows)
    pair = Pair(1, 2)
    pair.first = [pair]
    for tree in (rows, [rows, rows], pair):
        for function in (ferry.snapshot, lambda x: ferry.convert_tree(x, "numpy")):
            with pytest.raises(ferry.UnsupportedTypeError, match="contains itself"):
                function(tree)


# -- samples that differ ---------------------------------------------------------------------------


def with_note(note):
    rows = Rows([torch.ones(1)])
    rows.note = note
    return rows


class Registered:
    """A container of optree's with something beside its values."""

    def __init__(self, values, unit):
        self.values = values
        self.unit = unit


@pytest.fixture
def registered():
    optree.register_pytree_node(
        Registered,
        lambda x: (x.values, x.unit),
        lambda unit, values: Registered(values, unit),
        namespace="tensorferry",
    )
    yield Registered
    optree.unregister_pytree_node(Registered, namespace="tensorferry")


def refused(samples, match):
    with pytest.raises(ferry.UnsupportedTypeError, match=match):
        ferry.collate(samples, "numpy")


def test_samples_with_other_static_fields_are_refused():
    """With the path, and the field's name."""
    refused([{"rows": with_note("a")}, {"rows": with_note("b")}], r'\.note - at \$\["rows"\]')
    assert ferry.collate([with_note("a"), with_note("a")], "numpy").note == "a"


def test_samples_with_another_registration_are_refused(registered):
    """What optree keeps of a node beside its values; with and without a leaf in it."""
    refused([[registered([torch.ones(1)], "m")], [registered([torch.ones(1)], "s")]], r"at \$\[0\]")
    refused(
        [[registered([], "m"), torch.ones(1)], [registered([], "s"), torch.ones(1)]], r"at \$\[0\]"
    )
    assert ferry.collate([registered([torch.ones(1)], "m")] * 2, "numpy").unit == "m"


def test_static_fields_of_jax_classes_are_compared():
    """A field that is no part of the tree."""
    struct = pytest.importorskip("flax.struct")

    @struct.dataclass
    class Step:
        image: Any
        unit: str = struct.field(pytree_node=False)

    refused([Step(torch.ones(1), "m"), Step(torch.ones(1), "s")], "Step with other static fields")
    assert ferry.collate([Step(torch.ones(1), "m")] * 2, "numpy").unit == "m"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Pair(torch.ones(1), 1), Other(torch.ones(1), 1)),
        (Point(torch.ones(1)), Place(torch.ones(1))),
        (collections.deque([1], maxlen=2), collections.deque([1], maxlen=3)),
        (collections.deque([1]), collections.deque([1], maxlen=3)),
    ],
)
@pytest.mark.parametrize("before", [0, 2], ids=["first", "known"])
@pytest.mark.fast_paths
def test_samples_of_other_classes_are_refused(one, other, before):
    """Though they have the same leaves; in a first batch, and after some that are alike."""
    for _ in range(before):
        ferry.collate([{"k": one}, {"k": one}], "numpy")
    for _ in range(2):
        refused([{"k": one}, {"k": other}], r'at \$\["k"\]')
        refused([{"k": other}, {"k": one}], r'at \$\["k"\]')


def test_plain_containers_may_differ():
    """They have nothing but their values, which are found by their keys."""
    batch = ferry.collate(
        [{"a": [1, None], "b": 2}, collections.OrderedDict(b=3, a=(4, None))], "numpy"
    )
    assert batch["a"][0].tolist() == [1, 4]
    assert batch["b"].tolist() == [2, 3]


def test_a_list_of_numbers_is_one_tensor_and_a_tuple_is_not():
    """Below a key: the one has one leaf, the other two."""
    refused([{"a": [1, 2]}, {"a": (1, 2)}], r'only one of them has the leaf - at \$\["a"\]')


@pytest.mark.fast_paths
def test_a_list_of_scalars_of_numpy_is_one_tensor_if_they_are_numbers():
    """Text and raw bytes are none, and stay in their list."""
    for _ in range(2):
        batch = ferry.collate([{"x": [np.float32(0.5), np.float32(1)]}] * 2, "numpy")
        assert batch["x"].tolist() == [[0.5, 1.0], [0.5, 1.0]]
        batch = ferry.collate([{"x": [np.str_("a"), np.bytes_(b"b")]}] * 2, "numpy")
        assert batch["x"] == [["a", "a"], [b"b", b"b"]]


def test_fields_that_are_leaves_become_lists():
    """They are values like any others."""
    batch = ferry.collate([Pair(torch.ones(1), "a"), Pair(torch.ones(1), "b")], "numpy")
    assert batch.second == ["a", "b"]


@pytest.mark.fast_paths
def test_packed_sequences_are_not_stacked():
    """What would come out is no PackedSequence; one alone is converted."""
    rnn = torch.nn.utils.rnn
    packed = rnn.pack_sequence([torch.ones(2), torch.ones(1)])
    for samples in ([{"p": packed}, {"p": packed}], [{"p": packed}], [packed]) * 2:
        refused(samples, r'unpack_sequence|at \$\["p"\]')
    assert isinstance(ferry.convert_tree(packed, "numpy").data, np.ndarray)
    samples = [packed, packed]
    assert [len(each) for each in [rnn.unpack_sequence(sample) for sample in samples]] == [2, 2]
