"""Trees of a known structure are taken apart and made again in C as in Python; nothing is kept.

No framework is needed here, so that `make sanitize` can run it under the sanitizers.
"""

from __future__ import annotations

import collections
import gc
import sys
import threading
import weakref
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import examples

from tensorferry.errors import UnsupportedTypeError
from tensorferry.trees import structure
from tensorferry.trees.walk import take_apart

extension = pytest.mark.skipif(
    structure._walks() is None,
    reason="the extension was not built, or TENSORFERRY_NO_EXTENSION is set",
)


class Pair(NamedTuple):
    """A container that is made by a call of its type."""

    left: Any
    right: Any


class Backwards(Pair):
    """A named tuple that does not give its values in order."""

    def __iter__(self):
        return reversed([*tuple.__iter__(self)])


class Attributed(collections.OrderedDict):
    """A container that is opened and made by functions."""


LEAVES = st.sampled_from([None, 1, True, 2.5, "text", b"bytes", 1j, range(3)])
KEYS = st.one_of(
    st.sampled_from(["x", "y", "z", 1, True, 1.0, None, ("x", 1)]), st.text(max_size=2)
)
TREES = st.recursive(
    LEAVES,
    lambda inside: st.one_of(
        st.lists(inside, max_size=3),
        st.lists(inside, max_size=3).map(tuple),
        st.lists(inside, max_size=3).map(lambda x: collections.deque(x, 5)),
        st.tuples(inside, inside).map(lambda x: Pair(*x)),
        st.tuples(inside, inside).map(lambda x: Backwards(*x)),
        st.dictionaries(KEYS, inside, max_size=3),
        st.dictionaries(KEYS, inside, max_size=3).map(collections.OrderedDict),
        st.dictionaries(KEYS, inside, max_size=3).map(Attributed),
        st.dictionaries(KEYS, inside, max_size=3).map(lambda x: collections.defaultdict(list, x)),
        inside.map(lambda x: [x, x]),
    ),
    max_leaves=12,
)


def structures_of(tree):
    """The structure of a tree for the next one, with the extension and without it."""
    leaves, found = take_apart(tree, sharing=True)
    kinds = [*map(type, leaves)]
    ours, plain = found.without_kept(kinds), found.without_kept(kinds)
    plain._walk = None
    return ours, plain


def spelled(x):
    """A tree as text, in which `1` and `True` differ, and with the types of its containers."""
    if isinstance(x, dict):
        inside = [(repr(key), spelled(value)) for key, value in x.items()]
    elif isinstance(x, (list, tuple, collections.deque)):
        inside = [spelled(value) for value in x]
    else:
        inside = repr(x)
    return type(x).__name__, getattr(x, "maxlen", None), inside


def kept_as_text(kept):
    return [
        None if each is None else each if isinstance(each, int) else spelled(each)
        for each in kept
        if isinstance(each, (dict, list, int, type(None)))
    ]


@settings(max_examples=examples(600), deadline=None)
@given(TREES, TREES)
def test_a_tree_is_taken_apart_and_made_again_as_in_python(tree, other):
    """Itself, and another one, which mostly has another structure."""
    ours, plain = structures_of(tree)
    for each in (tree, other):
        found, expected = ours.taken(each), plain.taken(each)
        assert (found is None) is (expected is None)
        if found is None or expected is None:
            continue
        assert [*map(id, found[0])] == [*map(id, expected[0])]
        assert kept_as_text(found[1]) == kept_as_text(expected[1])
        leaves = [*range(len(found[0]))]
        made = spelled(plain.again(expected[1], leaves))
        assert spelled(ours.again(found[1], leaves)) == made
        assert spelled(ours.again(found[1], found[0])) == spelled(plain.again(found[1], found[0]))
    assert ours.taken(tree) is not None
    opened, expected = ours.opened(other), plain.opened(other)
    assert (opened is None) is (expected is None)
    assert opened is None or [*map(id, opened[0])] == [*map(id, expected[0])]


@pytest.mark.parametrize("count", [0, 1, 5, 16, 17, 300, 5000])
def test_what_occurs_twice_is_found(count):
    """Among objects, and among containers, however many there are."""
    objects: list[Any] = [[] for _ in range(count)]
    assert structure.are_different(objects, None)
    assert structure.are_different(objects, [*range(0, count, 2)])
    ours, plain = structures_of(objects)
    assert ours.taken(objects) is not None
    for first, second in ((0, count - 1), (count // 2, count - 1), (0, 1)):
        if not 0 <= first < second < count:
            continue
        twice = objects.copy()
        twice[second] = twice[first]
        assert not structure.are_different(twice, None)
        assert not structure.are_different(objects, [first, second, first])
        assert structure.are_different(twice, [second])
        assert ours.taken(twice) is plain.taken(twice) is None
        again, _ = structures_of(twice)
        found = again.taken(twice)
        assert found is not None
        made = again.again(found[1], found[0])
        assert made[first] is made[second]


def test_leaves_are_converted_until_a_function_gives_nothing():
    """In order, and only at the positions that are given, each by the function of its type."""
    met = []

    def double(x):
        met.append(x)
        return None if x == 3 else 2 * x

    def refused(x):
        raise ValueError(x)

    tree = {"x": [1, (2, "s")], "y": 3, "z": 4.5}
    leaves, kept = [1, 2, "s", 3, 4.5], structures_of(tree)[0].taken(tree)[1]
    for walk in structures_of(tree):
        paths = {int: double, float: double}
        assert walk.converted(tree, paths, [0, 1, 4]) == (
            leaves,
            kept,
            {"x": [2, (4, "s")], "y": 3, "z": 9.0},
        )
        assert walk.converted(tree, paths, []) == (leaves, kept, tree)
        assert met == [1, 2, 4.5]
        # Something gives nothing; has no function; is refused.
        assert walk.converted(tree, paths, [1, 3, 4]) == (leaves, kept, None)
        assert met[3:] == [2, 3]
        assert walk.converted(tree, paths, None) == (leaves, kept, None)
        assert walk.converted(tree, {int: refused}, [0]) == (leaves, kept, None)
        with pytest.raises(ZeroDivisionError):
            walk.converted(tree, {int: lambda x: x / 0}, [0])
        assert walk.converted({**tree, "y": 4.5}, paths, [0]) is None
        assert walk.converted({**tree, "w": 1}, paths, [0]) is None
        met.clear()
    for walk in structures_of(3):
        assert walk.converted(2, {int: double}, None) == ([2], [], 4)
    x, y = [], 2.5
    for walk in structures_of([x, y, (1,)]):
        # One object at two places: they stay one, which is not the matter of such functions.
        assert walk.converted([y, y, (y,)], {float: double}, [0, 1]) is None
        assert walk.converted([[], y, (1,)], {float: double}, [1, 1])[2] is None


def test_a_container_that_is_not_made_of_what_functions_give():
    """It is left to what says which one that was."""

    @dataclass
    class Fixed:
        a: Any

    tree = [1, {"x": Fixed(2)}]
    Fixed.a = property(lambda _: 2)
    for walk in structures_of(tree):
        leaves, kept, made = walk.converted(tree, {int: lambda x: x + 1}, None)
        assert (leaves, made) == ([1, 2], None)
        with pytest.raises(AttributeError) as caught:
            walk.again(kept, leaves)
        assert 'at $[1]["x"]' in caught.value.__notes__[0]


def test_a_list_that_changes_meanwhile_is_read_once():
    """What is inside it was there when it was opened."""
    outer: list[Any] = []

    class Emptying(collections.UserList):
        """Empties another list when it is opened."""

        @property
        def data(self):
            outer.clear()
            return self.held

        @data.setter
        def data(self, held):
            self.held = held

    def fill():
        outer[:] = [1, Emptying([object()]), object(), [object()]]
        return outer

    for known in structures_of([*fill()]):
        found = known.taken(fill())
        assert found is not None
        assert len(found[0]) == 4
        assert outer == []


def test_keys_may_run_any_code():
    """A key that raises when it is compared raises; one that is slow, or changes what is there, does not harm."""

    class Key:
        raises = False

        def __hash__(self):
            return 1

        def __eq__(self, other):
            if self.raises:
                raise ZeroDivisionError("no comparison")
            gc.collect()
            return self is other

    tree = {Key(): 1, Key(): 2, 1: 3}
    ours, plain = structures_of([tree, 4])
    for known in (ours, plain):
        leaves, kept = known.taken([tree, 4])
        assert [*known.again(kept, leaves)[0].values()] == [1, 2, 3]
        Key.raises = True
        with pytest.raises(ZeroDivisionError) as caught:
            known.again(kept, leaves)
        assert caught.value.__notes__ == [
            "raised when the dict at $[0] was made again of its new values"
        ]
        Key.raises = False


def test_a_class_that_refuses_its_values_is_named():
    """With the path of the container, and with no other exception than its own."""

    class Made(NamedTuple):
        a: Any
        b: Any

    real = Made.__new__

    def refuse(cls, a, b):
        if a == "odd":
            raise KeyError("odd")
        return real(cls, a, b)

    Made.__new__ = refuse
    tree = {"x": [Made(1, 2)]}
    for known in structures_of(tree):
        _, kept = known.taken(tree)
        assert known.again(kept, [3, 4]) == {"x": [(3, 4)]}
        with pytest.raises(KeyError, match="odd") as caught:
            known.again(kept, ["odd", 4])
        assert 'the Made at $["x"][0]' in caught.value.__notes__[0]


def test_the_ends_of_a_process_are_not_held_up():
    """What is no `Exception` goes through, as it is."""

    def stop(cls, a):
        raise KeyboardInterrupt

    class One(NamedTuple):
        a: Any

    tree = [One(1)]
    structures = structures_of(tree)
    One.__new__ = stop
    for known in structures:
        _, kept = known.taken(tree)
        with pytest.raises(KeyboardInterrupt):
            known.again(kept, [2])


def test_a_deep_tree_is_an_error_and_no_crash():
    """As deep as Python lets functions call each other, and no deeper."""
    tree: Any = 1
    for _ in range(150):
        tree = [tree]
    ours, plain = structures_of(tree)
    leaves, kept = ours.taken(tree)
    limit = sys.getrecursionlimit()

    def below(depth):
        if depth:
            return below(depth - 1)
        for known in (ours, plain):
            with pytest.raises(RecursionError):
                known.taken(tree)
            with pytest.raises(UnsupportedTypeError, match="nested too deep"):
                known.again(kept, leaves)
        return True

    depth = 0
    frame = sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    assert below(limit - depth - 100)
    assert ours.again(kept, leaves) == tree


@extension
def test_what_is_no_structure_is_refused():
    """Data that would lead outside of memory makes no walk."""
    made, one = structure._walks().Walk, (list, 2, 1, (), None, None, None)
    for rows, kinds in (
        ((one, one), (int, int)),
        ((one,), ()),
        ((one,), (int, int)),
        (((list, 2, 1, (0,), None, None, None),), ()),
        (((list, 2, 1, (1,), None, None, None), one), (int,)),
        (((list, 2, 2, (1, 0), None, None, None), one, one), (int, int)),
        (((list, 2, 2, (0, 0), None, None, None), one, one), (int, int)),
        (((list, 2, 2, (-1,), None, None, None), one), (int, int)),
        (((list, 2, -1, (), None, None, None),), ()),
        (((list, 9, 1, (), None, None, None),), (int,)),
        (((list, -1, 1, (), None, None, None),), (int,)),
        (((list, 2, sys.maxsize, (), None, None, None), one), (int,)),
        ((), ()),
        ((), (int, int)),
    ):
        with pytest.raises(ValueError, match=r"structure|other leaves"):
            made(rows, kinds, ValueError)
    for arguments in (
        (),
        ([one], (int,), ValueError),
        ((one,), [int], ValueError),
        ((one[:6],), (int,), ValueError),
        (([*one],), (int,), ValueError),
        ((one,), ("int",), ValueError),
        (((3, *one[1:]),), (int,), ValueError),
    ):
        with pytest.raises(TypeError):
            made(*arguments)
    known = made((one,), (int,), ValueError)
    for kept, leaves in (([], [1]), ([None], []), ([None], [1, 2]), ([None, None], [1])):
        with pytest.raises(ValueError, match="another structure"):
            known.make(kept, leaves)
    with pytest.raises(TypeError):
        known.make([None])
    with pytest.raises(TypeError):
        structure._walks().are_different((1, 2))
    paths: dict = {int: repr}
    for places in ([1], [-1], [0, 1]):
        with pytest.raises(IndexError):
            known.convert([1], paths, places, None, ())
    for arguments in (
        ([1], None, None, None, ()),
        ([1], paths, (0,), None, ()),
        ([1], paths, None, [], ()),
        ([1], paths, None, None, []),
        ([1],),
    ):
        with pytest.raises(TypeError):
            known.convert(*arguments)
    keys = made(((dict, 1, 2, (), None, None, None),), (int, int), ValueError)
    for kept in ({}, {"x": 1}, ["x"], ["x", "y", "z"]):
        with pytest.raises(ValueError, match="as many keys"):
            keys.make([kept], [1, 2])


@extension
def test_nothing_is_kept():
    """Neither of a tree that is taken, nor of one that has another structure, nor of one that fails."""

    class Held:
        def __repr__(self):
            return "held"

    class One(NamedTuple):
        a: Any

    held = [Held() for _ in range(4)]
    tree = {"x": [held[0], (held[1],)], "y": One(held[2]), "z": collections.deque([held[3]])}
    ours, _ = structures_of(tree)
    others = [
        {**tree, "x": [held[0], [held[1]]]},
        {**tree, "z": [held[0]]},
        {**tree, "y": One(1)},
        {**tree, "w": held[0]},
        {**tree, "z": collections.deque([held[3]] * 2)},
    ]
    objects = [tree, *tree.values(), *held, Held, One, "x", *others]

    def all_of_it():
        leaves, kept = ours.taken(tree)
        ours.again(kept, leaves)
        assert not any(map(ours.taken, others))
        for give in (lambda x: None if x is held[2] else [x], lambda x: [x], len, int):
            with suppress(TypeError):
                ours._walk.convert(
                    tree, {Held: give}, None, None, (TypeError,) if give is len else ()
                )
        structure.are_different(held, [0, 1])
        with pytest.raises(TypeError):
            ours.again([None, *kept[1:3], 3, kept[4]], leaves)
        known, _ = structures_of(tree)
        with pytest.raises(ValueError, match="another structure"):
            known._walk.make(kept, leaves[1:])

    all_of_it()
    gc.collect()
    before = list(map(sys.getrefcount, objects))
    for _ in range(50):
        all_of_it()
    gc.collect()
    assert [b - a < 20 for a, b in zip(before, map(sys.getrefcount, objects), strict=True)] == [
        True
    ] * len(objects)


@extension
def test_a_walk_is_collected_with_its_types():
    """A class that refers to a walk that refers to the class goes when nobody else does."""
    kind = type("Kind", (), {})
    kind.walk = structure._walks().Walk(((kind, 0, 0, (), None, None, None),), (), ValueError)
    watched = weakref.ref(kind)
    del kind
    gc.collect()
    assert watched() is None


@pytest.mark.unwatched
def test_other_threads_may_change_what_is_taken_apart():
    """It is taken as it was at some time, or has another structure."""
    inner = [1, 2]
    tree = {"x": [inner, 3], "y": [inner.copy(), {"z": 4}]}
    ours, _ = structures_of(tree)
    ends = threading.Event()

    def change():
        while not ends.is_set():
            inner.append(5)
            tree["y"].append(6)
            tree["w"] = 7
            del inner[2:], tree["y"][2:], tree["w"]

    other = threading.Thread(target=change)
    other.start()
    try:
        found = [ours.taken(tree) for _ in range(3000)]
    finally:
        ends.set()
        other.join()
    assert {tuple(each[0]) for each in found if each is not None} <= {(1, 2, 3, 1, 2, 4)}


# -- plain values ----------------------------------------------------------------------------------


def holds_only_plain(x, levels):
    """What is asked, one object after the other, as a definition has it."""
    kind = type(x)
    if kind in structure.PLAIN:
        return True
    if levels == 1 or kind not in (list, tuple, dict, collections.OrderedDict):
        return False
    if kind is collections.OrderedDict and vars(x):
        return False
    values = x.values() if isinstance(x, dict) else x
    return all(holds_only_plain(each, levels - 1) for each in values)


def ordered(pairs, attribute):
    made = collections.OrderedDict(pairs)
    if attribute is not None:
        made.note = attribute
    return made


NEITHER = st.one_of(
    LEAVES,
    st.builds(object),
    st.builds(lambda: {1}),
    st.builds(Attributed),
    st.builds(collections.deque),
)
NESTED = st.recursive(
    NEITHER,
    lambda inside: st.one_of(
        st.lists(inside, max_size=3),
        st.lists(inside, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=2), inside, max_size=3),
        st.builds(
            ordered,
            st.dictionaries(st.text(max_size=2), inside, max_size=3),
            st.sampled_from([None, None, 1, object()]),
        ),
    ),
    max_leaves=8,
)


@settings(max_examples=examples(300))
@given(st.lists(NESTED, max_size=3), st.integers(1, 5))
def test_plain_values_are_told_from_what_may_hold_a_tensor(values, levels):
    plain = all(holds_only_plain(each, levels) for each in values)
    assert structure.are_plain(values, levels) is plain
    assert structure.are_plain(dict(enumerate(values)).values(), levels) is plain


def test_a_list_that_changes_while_it_is_looked_at_is_no_danger():
    """Another thread empties and fills lists and dicts, some of which hold what is not plain."""
    held: list = [[1], {"a": [2]}]
    done = threading.Event()

    def change():
        while not done.is_set():
            held[:] = []
            held[:] = [[index] for index in range(20)]
            held.append({"a": [object()], "b": 1})

    other = threading.Thread(target=change)
    other.start()
    try:
        for _ in range(500):
            with suppress(RuntimeError):  # without the extension: it changed size meanwhile
                assert structure.are_plain([held]) in (True, False)
    finally:
        done.set()
        other.join()


@extension
def test_what_is_plain_is_asked_for_in_its_own_way_alone():
    ask, order = structure._walks().are_plain, collections.OrderedDict
    for arguments in (
        ([], (int,), order),
        ([], {int}, order, 4),
        ([], (int,), list, 4),
        ([], (int,), "dict", 4),
        ([], (int,), order, "4"),
        (3, (int,), order, 4),
    ):
        with pytest.raises(TypeError):
            ask(*arguments)
