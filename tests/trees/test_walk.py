"""Trees are opened and made again in one way, for whatever they are taken apart."""

from __future__ import annotations

import collections
import dataclasses
import gc
import threading
import types
import weakref
from typing import Any, NamedTuple

import numpy as np
import optree
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from optree.registry import __GLOBAL_NAMESPACE as EVERYWHERE
from tests.support import examples
from tests.trees.test_random_trees import MANY

import tensorferry as ferry
from tensorferry.trees import api, structure, walk
from tensorferry.trees.containers import BUILT_IN, openings_of
from tensorferry.trees.leaves import leaf_rule
from tensorferry.trees.structure import Container, Structure
from tensorferry.trees.walk import take_apart


class Point(NamedTuple):
    """A named tuple."""

    x: Any
    y: Any


class Both(NamedTuple):
    """Another one."""

    a: Any
    b: Any


def pairs(values):
    """Values below keys, some of which look alike."""
    return zip(["a", 1, "b.c", None, ("t", 2), 2.5, "d"], values, strict=False)


def containers(inside):
    """The containers that optree opens, too."""
    several = st.lists(inside, max_size=4)
    return st.one_of(
        several,
        several.map(tuple),
        several.map(lambda values: dict(pairs(values))),
        several.map(lambda values: collections.OrderedDict(pairs(values))),
        several.map(lambda values: collections.defaultdict(list, pairs(values))),
        several.map(lambda values: collections.deque(values, 4)),
        st.builds(Point, inside, inside),
    )


LEAVES = st.one_of(
    st.none(), st.integers(), st.text(max_size=2), st.builds(np.ones, st.integers(0, 2))
)
TREES = st.recursive(LEAVES, containers, max_leaves=10)
NAMESPACE = "tests"
_ORDERED = optree.dict_insertion_ordered(True, namespace=NAMESPACE)


def by_optree(tree):
    """The leaves and the structure of a tree, as optree finds them."""
    with _ORDERED_LOCK, optree.dict_insertion_ordered(True, namespace=NAMESPACE):
        return optree.tree_flatten(tree, none_is_leaf=True, namespace=NAMESPACE)


_ORDERED_LOCK = threading.Lock()


def shown(tree):
    """A tree with the types of its containers, and its leaves by their ids."""
    if isinstance(tree, dict):
        factory = getattr(tree, "default_factory", None)
        return type(tree), factory, [(type(key), key, shown(each)) for key, each in tree.items()]
    if isinstance(tree, (list, tuple, collections.deque)):
        return type(tree), getattr(tree, "maxlen", None), [*map(shown, tree)]
    return id(tree)


def check_against_optree(tree):
    """Leaves in order, their places, and the tree that is made of others."""
    leaves, found = take_apart(tree)
    theirs, spec = by_optree(tree)
    assert [*map(id, leaves)] == [*map(id, theirs)]
    assert shown(found.rebuild(leaves)) == shown(tree)
    others = [object() for _ in leaves]
    assert shown(found.rebuild(others)) == shown(optree.tree_unflatten(spec, others))
    accessors = [accessor.codify("$").replace("'", '"') for accessor in spec.accessors()]
    assert [path.replace("'", '"') for path in found.paths()] == accessors
    again, kept = [], []
    if found.root is not None:
        assert found.root.take(tree, again, kept, [])
        assert [*map(id, again)] == [*map(id, leaves)]
        assert shown(found.root.rebuild(iter(kept), iter(others))) == shown(found.rebuild(others))


@settings(MANY, max_examples=examples(300))
@given(tree=TREES)
def test_trees_are_taken_apart_as_optree_does(tree):
    """Leaves, paths and what is made again of others."""
    check_against_optree(tree)


def fits(pattern, tree):
    """Whether a tree has the containers of a pattern, whatever their keys, and whatever else."""
    if not isinstance(pattern, (dict, list, tuple, collections.deque)):
        return True
    if type(pattern) is not type(tree) or len(pattern) != len(tree):
        return False
    values = [[*(x.values() if isinstance(x, dict) else x)] for x in (pattern, tree)]
    return all(map(fits, *values))


@settings(MANY, max_examples=examples(300))
@given(pattern=TREES, tree=TREES)
def test_a_structure_is_found_in_a_tree_that_has_it_and_in_no_other(pattern, tree):
    """The guard of programs: types and sizes of all containers."""
    found = take_apart(pattern)[1]
    for each in (tree, pattern):
        if found.root is not None:
            assert found.root.take(each, [], [], []) == fits(pattern, each)


# -- planted faults --------------------------------------------------------------------------------


def values_in_wrong_order(monkeypatch):
    real = Container.rebuild

    def rebuild(self, kept, leaves):
        return real(self, kept, iter([*leaves][::-1]))

    monkeypatch.setattr(Container, "rebuild", rebuild)


def leaves_in_wrong_order(monkeypatch):
    real = Container.take

    def take(self, x, leaves, kept, met):
        found = []
        taken = real(self, x, found, kept, met)
        leaves += found[::-1]
        return taken

    monkeypatch.setattr(Container, "take", take)


def paths_in_wrong_places(monkeypatch):
    real = Container.put
    monkeypatch.setattr(
        Container,
        "put",
        lambda self, values, start, leaves: real(self, [*values][::-1], start, leaves),
    )


def keys_of_another(monkeypatch):
    opening = BUILT_IN[dict][0]
    changed = opening._replace(open=lambda x: (dict.fromkeys(range(len(x))), x.values()))
    monkeypatch.setitem(BUILT_IN, dict, (changed,))


@pytest.mark.quick
@pytest.mark.parametrize(
    "plant",
    [values_in_wrong_order, leaves_in_wrong_order, paths_in_wrong_places, keys_of_another],
)
def test_planted_faults_are_noticed_beside_optree(monkeypatch, plant):
    """The comparison above is one that can fail."""
    tree = {"a": 1, "b": [2, Point(3, {"c": 4})]}
    check_against_optree(tree)
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        check_against_optree(tree)


def guard_without_types(monkeypatch):
    """A container of another type that opens alike passes."""
    real = Container.take

    def take(self, x, leaves, kept, met):
        held = dict(x) if isinstance(x, dict) and self.kind is dict else x
        return real(self, held, leaves, kept, met)

    monkeypatch.setattr(Container, "take", take)


def guard_without_sizes(monkeypatch):
    real = Container.take

    def take(self, x, leaves, kept, met):
        return real(self, x, leaves, kept, met) or type(x) is self.kind

    monkeypatch.setattr(Container, "take", take)


@pytest.mark.quick
@pytest.mark.parametrize("plant", [guard_without_types, guard_without_sizes])
def test_stale_guards_are_noticed(monkeypatch, plant):
    """A program for another structure is not run."""
    history = [{"a": 1, "b": [2]}, collections.OrderedDict(a=1, b=[2]), {"a": 1, "b": [2, 3]}]

    def check():
        for pattern in history:
            for tree in history:
                found = take_apart(pattern)[1].root.take(tree, [], [], [])
                assert found == fits(pattern, tree)

    check()
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        check()


# -- one way for all -------------------------------------------------------------------------------


class Row(tuple):  # noqa: SLOT001 - a plain subclass
    """A tuple of a class of its own."""


@dataclasses.dataclass
class Box:
    """A dataclass, which may have attributes that are no fields."""

    a: Any
    b: Any


class Labelled(torch.Tensor):
    """A tensor of a class of its own."""


def with_note(**held):
    made = collections.OrderedDict(held)
    made.note = "n"
    return made


MADE = {
    "dict": dict,
    "ordered": collections.OrderedDict,
    "ordered with an attribute": with_note,
    "default": lambda **held: collections.defaultdict(int, held),
    "named tuple": Both,
    "tuple": lambda **held: tuple(held.values()),
    "own tuple": lambda **held: Row(held.values()),
    "deque": lambda **held: collections.deque(held.values(), 3),
    "dataclass": Box,
    "namespace": types.SimpleNamespace,
    "user dict": lambda **held: collections.UserDict(held),
    "user list": lambda **held: collections.UserList(held.values()),
    "mapping": lambda **held: types.MappingProxyType(held),
    "result in C": lambda a, b: torch.return_types.max((a, b)),
}


@pytest.mark.fast_paths
@pytest.mark.parametrize("name", MADE)
def test_every_road_opens_and_makes_the_same(name):
    """A program, its second call, a user's callable, a snapshot, and a plan."""
    outer = MADE[name](a=torch.ones(1), b=torch.zeros(2))
    tree = {"x": outer, "y": [MADE[name](a=torch.ones(3), b=torch.ones(4))]}
    chosen = lambda x: isinstance(x, (torch.Tensor, np.ndarray))  # noqa: E731 - it is a value
    results = [
        ferry.convert_tree(tree, "torch"),
        ferry.convert_tree(tree, "torch"),
        ferry.convert_tree(tree, "torch", leaves=chosen),
        ferry.convert_tree(tree, "torch", unknown="keep"),
        ferry.snapshot(tree),
        take_apart(tree)[1].rebuild(take_apart(tree)[0]),
    ]
    paths = [*ferry.describe_tree(tree)]
    assert paths == [leaf.path for leaf in ferry.explain_tree(tree, "numpy").leaves]
    for made in results:
        inner = [made["x"], made["y"][0]]
        if name == "mapping":
            assert {*map(type, inner)} <= {dict, types.MappingProxyType}
        else:
            assert [*map(type, inner)] == [type(outer)] * 2
        found = [eval(path.replace("$", "made", 1), {"made": made}) for path in paths]  # noqa: S307 - our own
        assert [tuple(each.shape) for each in found] == [(1,), (2,), (3,), (4,)]
    if name == "ordered with an attribute":
        assert [made["x"].note for made in results] == ["n"] * len(results)
    if name == "default":
        assert {made["x"].default_factory for made in results} == {int}
    if name == "deque":
        assert {made["x"].maxlen for made in results} == {3}


class Registered:
    """A class that is registered for the time of a test."""

    def __init__(self, values, note):
        self.values, self.note = values, note


@pytest.fixture
def registers():
    """Register a class with optree; it is taken back."""
    kinds = []

    def register(kind, flatten, unflatten, **keywords):
        optree.register_pytree_node(kind, flatten, unflatten, namespace=EVERYWHERE, **keywords)
        kinds.append(kind)

    yield register
    for kind in kinds:
        optree.unregister_pytree_node(kind, namespace=EVERYWHERE)


@pytest.mark.fast_paths
def test_a_class_is_opened_as_it_is_registered_from_then_on(registers):
    """Before, it was refused, because it holds a tensor; programs of that time do not stand in the way."""

    class Own(Registered):
        pass

    tree = {"own": Own([torch.ones(2)], "n"), "x": torch.ones(1)}
    for _ in range(2):
        with pytest.raises(ferry.UnsupportedTypeError, match="not a container"):
            ferry.convert_tree(tree, "numpy")
    registers(Own, lambda x: (x.values, x.note), lambda note, values: Own([*values], note))
    for _ in range(3):
        made = ferry.convert_tree(tree, "numpy")["own"]
        assert (type(made), type(made.values[0]), made.note) == (Own, np.ndarray, "n")
    assert len(ferry.describe_tree(tree)) == 2


@pytest.mark.fast_paths
def test_a_registered_tuple_is_opened_as_it_is_registered(registers):
    """By programs too, which opened it as any tuple."""

    class Kept(tuple):  # noqa: SLOT001 - a plain subclass
        pass

    registers(Kept, lambda x: (x[:1], x[1:]), lambda rest, values: Kept((*values, *rest)))
    tree = [Kept((torch.ones(1), torch.ones(2)))]
    for call in (lambda x: ferry.convert_tree(x, "numpy"), ferry.snapshot):
        made = call(tree)[0]
        assert type(made) is Kept
        assert made[1] is tree[0][1]
        assert made[0] is not tree[0][0]
    assert [*ferry.describe_tree(tree)] == ["$[0][0]"]


@pytest.mark.fast_paths
def test_a_tensor_is_a_leaf_even_if_it_is_registered_with_optree(registers):
    """In the first call and in the next."""
    registers(Labelled, lambda x: ((), x), lambda x, _: x)
    x = torch.ones(2).as_subclass(Labelled)
    for _ in range(2):
        assert [*ferry.describe_tree([x])] == ["$[0]"]
        assert type(ferry.convert_tree([x], "numpy")[0]) is np.ndarray


def test_steps_of_a_registered_mapping_are_its_keys(registers):
    """The path is the code that leads to the leaf."""

    class Own(dict):
        __hash__ = object.__hash__

    registers(
        Own,
        lambda x: ([*x.values()], [*x], [*x]),
        lambda keys, values: Own(zip(keys, values, strict=True)),
        path_entry_type=optree.MappingEntry,
    )
    assert [*ferry.describe_tree([Own(w=np.ones(1))])] == ['$[0]["w"]']


@pytest.mark.fast_paths
def test_arrays_with_fields_are_opened_wherever_one_is():
    """Also if all arrays before it had none."""
    plain, structured = np.ones(2), np.zeros(2, [("f", "f4"), ("g", "i4")])
    for tree in ([plain, [plain]], [plain, [structured]], [structured, plain], [plain, [plain]]):
        made = ferry.convert_tree(tree, "torch")
        kinds = [type(x) for x in (made[0], made[1][0] if isinstance(made[1], list) else made[1])]
        before = [tree[0], tree[1][0] if isinstance(tree[1], list) else tree[1]]
        assert kinds == [dict if x is structured else torch.Tensor for x in before]


# -- recurring, cycles, depth ----------------------------------------------------------------------


def recurring():
    """Trees in which a container occurs again, and how often each container is there."""
    x = {"x": np.ones(2), "n": [3]}
    yield [x, x], lambda made: made[0] is made[1]
    yield {"a": [x], "b": x}, lambda made: made["a"][0] is made["b"]
    yield [x, [x, x["n"]]], lambda made: made[1][1] is made[0]["n"] and made[1][0] is made[0]
    box = Box(np.ones(1), 2)
    yield (box, {"again": box}), lambda made: made[0] is made[1]["again"]
    pair = Point(np.ones(1), [np.ones(2)])
    yield [pair, pair.y, pair], lambda made: made[0] is made[2] and made[0].y is made[1]


@pytest.mark.parametrize("call", [ferry.snapshot, lambda x: ferry.convert_tree(x, "torch")])
def test_a_container_that_recurs_stays_one(call):
    """In any depth, also inside another that recurs; and again in the next call."""
    for tree, is_one in recurring():
        assert is_one(tree)
        for _ in range(2):
            assert is_one(call(tree))
            leaves, found = take_apart(tree, sharing=True)
            assert is_one(found.rebuild(leaves))
            # With other leaves in the second place it is another one.
            assert not is_one(found.rebuild([object() for _ in leaves]))
            # The twin of a leaf is the same object.
            assert found.twins
            assert all(leaves[index] is leaves[first] for index, first in found.twins.items())


def test_recurring_containers_that_are_missed_are_noticed(monkeypatch):
    """The test above is one that can fail."""
    monkeypatch.setattr(Structure, "_find_twins", lambda self, recurs: None)
    api._forget()
    tree, is_one = next(recurring())
    assert not is_one(ferry.snapshot(tree))


def test_the_empty_tuple_is_one_in_python_and_recurs_nowhere():
    """It is no reason to convert a tree in another way."""
    tree = [(), (np.ones(1), ()), ()]
    found = take_apart(tree, sharing=True)[1]
    assert found.twins == {}
    assert ferry.convert_tree(tree, "torch")[1][1] == ()


class Counted(list):
    """A list that counts how often it is opened."""

    opened = 0

    def __len__(self):
        type(self).opened += 1
        return list.__len__(self)


def endless():
    """A tree that contains itself twice in each place."""
    tree = Counted()
    tree += [[tree, 1], {"again": tree}]
    return tree


CALLS = {
    "convert_tree": lambda x: ferry.convert_tree(x, "numpy"),
    "a callable": lambda x: ferry.convert_tree(x, "numpy", leaves=lambda _: False),
    "snapshot": ferry.snapshot,
    "describe_tree": ferry.describe_tree,
    "explain_tree": lambda x: ferry.explain_tree(x, "numpy"),
    "collate": lambda x: ferry.collate([x, x], "numpy"),
    "like": lambda x: ferry.convert_tree([np.ones(1)], like=x),
}


@pytest.mark.parametrize("name", [name for name in CALLS if name != "like"])
def test_a_tree_that_contains_itself_is_seen_at_once(name):
    """Not only when Python's stack is full: what is beside the circle would be held as often."""
    Counted.opened = 0
    with pytest.raises(ferry.UnsupportedTypeError, match="contains itself"):
        CALLS[name](endless())
    assert Counted.opened < 20


def test_circles_that_are_not_looked_for_are_noticed(monkeypatch):
    """The test above is one that can fail."""

    class Blind(set):
        def __contains__(self, _):
            return False

    real = walk._Walk.__init__

    def blind(self, *given, **keywords):
        real(self, *given, **keywords)
        self._around = Blind()

    monkeypatch.setattr(walk._Walk, "__init__", blind)
    Counted.opened = 0
    with pytest.raises(ferry.UnsupportedTypeError):
        ferry.snapshot(endless())
    assert Counted.opened > 20


def nested(depth, make=lambda x: [x]):
    tree = np.ones(1)
    for _ in range(depth):
        tree = make(tree)
    return tree


@pytest.mark.parametrize("make", [lambda x: [x], lambda x: {"k": x}, lambda x: Box(x, 1)])
@pytest.mark.parametrize("name", CALLS)
def test_trees_deeper_than_pythons_stack_are_refused_in_words(name, make):
    """Neither a `RecursionError` nor the end of the process."""
    with pytest.raises(ferry.UnsupportedTypeError, match="nested too deep"):
        CALLS[name](nested(20_000, make))


def test_a_stack_that_is_full_is_noticed(monkeypatch):
    """The test above is one that can fail: without its own words it is Python's error."""
    monkeypatch.setattr(walk, "too_deep", lambda: RecursionError("as Python says it"))
    with pytest.raises(RecursionError):
        ferry.describe_tree(nested(20_000))


@pytest.mark.parametrize("depth", [50, 150, 300, 500])
def test_deep_trees_are_converted(depth):
    """By programs, and without them."""
    for _ in range(2):
        made = ferry.convert_tree(nested(depth), "torch")
        snapshot = ferry.snapshot(nested(depth, lambda x: Box(x, 1)))
        for _ in range(depth):
            made, snapshot = made[0], snapshot.a
        assert (type(made), type(snapshot)) == (torch.Tensor, np.ndarray)
    assert [*ferry.describe_tree(nested(depth))] == ["$" + "[0]" * depth]


# -- containers that raise -------------------------------------------------------------------------


class Refusing:
    """A class that is opened and made again, if nothing goes wrong."""

    fails = ""

    def __init__(self, held):
        self.held = held

    def opened(self):
        if self.fails == "open":
            raise LookupError("not to be opened")
        return (self.held,), None

    @classmethod
    def made(cls, _, values):
        if cls.fails == "make":
            raise LookupError("not to be made")
        return cls(*values)


@pytest.mark.fast_paths
@pytest.mark.parametrize("where", ["open", "make"])
def test_what_a_container_raises_comes_through(registers, where):
    """In a first call, and from a program that was made while it did not raise; the tree is as before."""

    class Own(Refusing):
        pass

    registers(Own, Own.opened, Own.made)
    tree = {"a": [1, Own(np.ones(2))]}
    for warm in (False, True):
        if warm:
            Own.fails = ""
            assert type(ferry.convert_tree(tree, "torch")["a"][1].held) is torch.Tensor
        Own.fails = where
        for call in (lambda x: ferry.convert_tree(x, "torch"), ferry.snapshot):
            with pytest.raises(LookupError, match="not to be") as caught:
                call(tree)
            if where == "make":
                assert 'Own at $["a"][1]' in caught.value.__notes__[0]
        assert type(tree["a"][1].held) is np.ndarray


def test_an_error_names_the_container_that_failed_among_many(registers):
    """Of two places with equal containers it is the one that could not be made."""

    class Own(Refusing):
        @classmethod
        def made(cls, _, values):
            if isinstance(values[0], torch.Tensor) and values[0].shape == (3,):
                raise ValueError("three are too many")
            return cls(*values)

    registers(Own, Own.opened, Own.made)
    tree = [Own(np.ones(2)), {"deep": [Own(np.ones(3))]}, Own(np.ones(4))]
    with pytest.raises(ValueError, match="too many") as caught:
        ferry.convert_tree(tree, "torch")
    assert '$[1]["deep"][0]' in caught.value.__notes__[0]


def test_a_structure_refuses_another_number_of_leaves():
    """A list would be made shorter, without a word."""
    leaves, found = take_apart([1, [2, 3]])
    for wrong in (leaves[:-1], [*leaves, 4]):
        with pytest.raises(ValueError, match="leaves for a tree of 3"):
            found.rebuild(wrong)


# -- what a structure knows ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda x: [x],
        lambda x: (x,),
        lambda x: {"k": [x]},
        lambda x: collections.OrderedDict(k=x),
        lambda x: collections.defaultdict(list, k=x),
        lambda x: Point(x, (x,)),
        lambda x: collections.deque([x]),
    ],
)
def test_a_structure_keeps_no_leaf_alive(make):
    """It is kept for the functions that were wrapped, and for programs."""
    x = np.ones(3)
    watched = weakref.ref(x)
    tree = make(x)
    found = take_apart(tree)[1]
    del tree, x
    gc.collect()
    assert watched() is None
    assert len(take_apart(found.rebuild([0] * found.size))[0]) == found.size


def test_a_structure_of_a_dict_that_changes_keeps_its_keys():
    """It is not a view of the tree."""
    tree = {"a": 1, "b": {"c": 2}}
    leaves, found = take_apart(tree)
    tree["d"] = tree["b"].pop("c")
    assert found.rebuild(leaves) == {"a": 1, "b": {"c": 2}}
    assert found.paths() == ['$["a"]', '$["b"]["c"]']
    assert found.names() == ["a", "b.c"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1}, {"b": 1}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ([1], (1,)),
        ([1], [1, 2]),
        ([[1], 2], [1, [2]]),
        ({"a": 1}, collections.OrderedDict(a=1)),
        (collections.defaultdict(int, a=1), collections.defaultdict(list, a=1)),
        (collections.deque([1], 2), collections.deque([1], 3)),
        (with_note(a=1), collections.OrderedDict(a=1)),
        (1, [1]),
    ],
)
def test_structures_that_differ_are_not_alike(one, other):
    """Nor is a wrapped function called as if they were."""
    first, second = (take_apart(x)[1] for x in (one, other))
    assert not first.is_like(second)
    assert not second.is_like(first)
    for x in (one, other):
        assert take_apart(x)[1].is_like(take_apart(x)[1])


class Loud:
    """A key whose comparison is an error."""

    def __hash__(self):
        return 1

    def __eq__(self, other):
        raise RuntimeError("this comparison is broken")


def test_keys_are_compared_with_care():
    """Whether structures are alike is no reason to raise."""
    key, other = Loud(), Loud()
    first, second, third = (take_apart({x: 1})[1] for x in (key, key, other))
    assert first.is_like(second)
    assert not first.is_like(third)


@pytest.mark.quick
def test_the_names_of_a_program_are_those_of_the_tree(monkeypatch):
    """Guards that do not look at keys give the dtypes of other leaves: that is noticed."""

    def check():
        asked = ("torch", None, {"*.a": "float16"}, None, None, None, "detach", {})
        targets = api.targets_of(asked, "tensors")
        programs = api.programs_of(targets, leaf_rule("tensors", unknown="error"), coalesce=True)
        for names in ("ab", "ba", "ab"):
            made = programs.convert([{name: np.ones(2) for name in names}])[0]
            assert (made["a"].dtype, made["b"].dtype) == (torch.float16, torch.float64)

    check()
    monkeypatch.setattr(structure, "_labels", lambda kept: None)
    with pytest.raises(AssertionError):
        check()


# -- samples ---------------------------------------------------------------------------------------


def stacked(samples):
    """The batch of samples with attributes ``a`` and ``b``, by NumPy."""
    return [np.stack([np.asarray(getattr(each, name)) for each in samples]) for name in "ab"]


@pytest.mark.parametrize("make", [Box, lambda a, b: types.SimpleNamespace(a=a, b=b)])
def test_samples_of_a_class_become_a_batch(make):
    """Each column has the values of all samples, in order."""
    samples = [make(np.full(2, n), n * 1.5) for n in range(9)]
    batch = ferry.collate(samples, "numpy")
    for found, expected in zip((batch.a, batch.b), stacked(samples), strict=True):
        assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("place", [1, 5])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda box: setattr(box, "note", "other"), r"other static fields: \.note"),
        (lambda box: setattr(box, "b", [1, 2]), "different trees"),
        (lambda box: setattr(box, "b", np.zeros(1, [("f", "f4")])), "different trees"),
        (lambda box: setattr(box, "b", Box(1, 2)), "different trees"),
    ],
)
def test_a_sample_that_is_another_tree_is_refused(change, message, place):
    """Wherever it is among the samples."""
    samples = [Box(np.ones(2), 1) for _ in range(6)]
    for each in samples:
        each.note = "same"
    change(samples[place])
    with pytest.raises(ferry.UnsupportedTypeError, match=message):
        ferry.collate(samples, "torch")


class Own(dict):
    """A dict of a class of its own."""


def test_keys_of_samples_may_have_another_order():
    """Values go to their keys, not to their places."""
    samples = [Own(a=1, b=2), Own(b=20, a=10), Own(a=100, b=200)]
    batch = ferry.collate(samples, "numpy")
    assert (batch["a"].tolist(), batch["b"].tolist()) == ([1, 10, 100], [2, 20, 200])


@pytest.mark.unwatched  # these lists are no numbers, whoever is asked
def test_a_list_that_is_a_row_in_one_sample_only_is_another_tree():
    """It is opened in one and one value in the other, whichever comes first."""
    for values in ([["s"], [2]], [[2], ["s"]]):
        with pytest.raises(ferry.UnsupportedTypeError, match="different trees"):
            ferry.collate([Own(a=value) for value in values], "numpy")


def test_openings_are_found_for_types_not_for_objects():
    """Of a type that is known, nothing is asked again; a plain value is never opened."""
    assert openings_of(dict) is openings_of(dict)
    assert [openings_of(kind) for kind in (int, str, type(None), torch.Tensor)] == [()] * 4
