"""What a program does for a tree is what is done leaf by leaf, whatever was converted before it."""

from __future__ import annotations

import collections
import gc
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import examples
from tests.trees.test_random_trees import (
    MANY,
    OTHERS,
    TENSORS,
    Pair,
    _frameworks_are_started,  # noqa: F401 - used by its name, as a fixture
    containers,
    leaves_of,
)

import tensorferry as ferry
from tensorferry.backends import fast_paths, registry
from tensorferry.execution import groups, run
from tensorferry.trees import api, grouped, program, shared_memory, structure
from tensorferry.trees.described import DescribedTree
from tensorferry.trees.leaves import leaf_rule

BASE = np.arange(64, dtype="float32")
"""Memory that several leaves have in common."""
VIEWS = st.builds(
    lambda start, length, step: BASE[start : start + length * step : step],
    st.integers(0, 8),
    st.integers(0, 8),
    st.integers(1, 3),
)
OVER_TORCH = VIEWS.map(lambda view: torch.from_numpy(view).reshape(-1))
TREES = st.recursive(
    st.one_of(TENSORS, OTHERS, VIEWS, OVER_TORCH, st.just(BASE)), containers, max_leaves=8
)
REQUESTS = st.sampled_from(
    [
        ("numpy", {}),
        ("torch", {}),
        ("jax", {}),
        ("python", {}),
        ("numpy", {"copy": True}),
        ("torch", {"copy": True}),
        ("torch", {"copy": False}),
        ("numpy", {"dtype": "float64"}),
        ("torch", {"dtype": {"float": "float16", "int64": "int32"}, "casting": "unsafe"}),
        ("numpy", {"dtype": {"*a*": "float64", "float": "float32"}, "casting": "unsafe"}),
        ("numpy", {"leaves": "numbers"}),
        ("torch", {"unknown": "keep", "device": "cpu"}),
    ]
)


def described(tree, targets, rule):
    """The tree, converted by the descriptions of its leaves, each of which was asked for."""
    found = DescribedTree(tree, targets, rule)
    return api.programs_of(targets, rule, coalesce=True)._converted_described(found)


def leaf_by_leaf(tree, to, keywords):
    """The same without signatures, and without programs that are kept; or its error."""
    names = ("like", "dtype", "device", "copy", "casting")
    asked = (to, *(keywords.get(name) for name in names), "detach", {})
    which = keywords.get("leaves", "tensors")
    targets = api.targets_of(asked, which)
    rule = leaf_rule(which, unknown=keywords.get("unknown", "error"), scalars=targets.are_numbers)
    return described(tree, targets, rule)


def outcome(function, *arguments):
    """What a call gives, or the type and message of its error."""
    try:
        return function(*arguments), None
    except ferry.ConversionError as error:
        return None, (type(error), error.message)


def facts(leaf, source):
    """All that can be told of a leaf of a result."""
    if leaf is source:
        return "itself"
    if not hasattr(leaf, "shape"):
        return type(leaf), repr(leaf)
    info = ferry.describe(leaf)
    if not info.size:
        info = info._replace(
            strides=ferry.TensorInfo(info.framework, info.shape).strides
        )  # of nothing
    shares = hasattr(source, "shape") and ferry.shares_memory(leaf, source)
    copy = ferry.to_numpy(leaf, copy=True)
    return info._replace(misalignment=0), copy.tobytes(), shares


def relations(leaves):
    """Which leaves of a result are the same object, and which share memory."""
    tensors = [leaf for leaf in leaves if hasattr(leaf, "shape")]
    return [
        (first is second, ferry.shares_memory(first, second))
        for first in tensors
        for second in tensors
    ]


def assert_alike(tree, to, keywords):
    """A program's result is that of the way without programs, in everything that can be told."""
    expected, refused = outcome(leaf_by_leaf, tree, to, keywords)
    found, error = outcome(lambda: ferry.convert_tree(tree, to, **keywords))
    assert (error is None) == (refused is None), (error, refused)
    if error is not None:
        assert error[0] is refused[0]
        return
    before, ours, theirs = leaves_of(tree), leaves_of(found), leaves_of(expected)
    assert types_of(found) == types_of(expected)
    assert occurrences_of(found) == occurrences_of(expected)
    assert len(before) == len(ours) == len(theirs) or to == "python"
    if to != "python":
        assert list(map(facts, ours, before)) == list(map(facts, theirs, before))
        assert relations(ours) == relations(theirs)
    else:
        assert repr(found) == repr(expected)


def types_of(tree):
    """The containers of a tree with their keys, and the types of those."""
    if isinstance(tree, (dict, collections.UserDict)):
        inside = [(type(key), key, types_of(value)) for key, value in tree.items()]
    elif isinstance(tree, (list, tuple, collections.deque)):
        inside = [types_of(value) for value in tree]
    else:
        inside = None
    return type(tree) if inside is not None else None, inside


def occurrences_of(tree):
    """For each container of a tree, the number of the first that is the same object."""
    met = []

    def visit(x):
        if isinstance(x, (dict, collections.UserDict, list, tuple, collections.deque)) and len(x):
            met.append(id(x))
            for inside in x.values() if hasattr(x, "values") else x:
                visit(inside)

    visit(tree)
    return [met.index(each) for each in met]


@pytest.mark.fast_paths
@settings(MANY, max_examples=examples(200))
@given(trees=st.lists(TREES, min_size=1, max_size=4), request=REQUESTS)
def test_programs_do_what_is_done_leaf_by_leaf(trees, request):
    """For each tree of a history, again and again: value, dtype, memory, who may write, ties, errors."""
    to, keywords = request
    for tree in (*trees, *trees):
        assert_alike(tree, to, keywords)


@pytest.mark.fast_paths
@settings(MANY, max_examples=examples(100))
@given(tree=TREES, other=TREES)
def test_snapshots_by_programs_are_independent(tree, other):
    """Equal bits in new memory, and leaves that overlap still do."""
    for each in (tree, other, tree):
        rule = leaf_rule("tensors", unknown="error")
        own = api._in_its_framework(registry.revision)
        expected = described(each, own, rule)
        found = ferry.snapshot(each)
        assert types_of(found) == types_of(expected)
        ours, theirs = leaves_of(found), leaves_of(expected)
        assert list(map(facts, ours, leaves_of(each))) == list(map(facts, theirs, leaves_of(each)))
        assert relations(ours) == relations(theirs)


# -- faults that must be noticed -------------------------------------------------------------------


def reversed_leaves(monkeypatch):
    real = program.Program.take

    def take(self, tree, rule, _):
        taken = real(self, tree, rule, None)
        return taken and (taken[0][::-1], *taken[1:])

    monkeypatch.setattr(program.Program, "take", take)


def no_check_of_types(monkeypatch):
    real = program.Program.take

    def take(self, tree, rule, paths):
        opened = self.structure.opened(tree)
        return real(self, tree, rule, paths) if opened is None else (*opened[:2], None)

    monkeypatch.setattr(program.Program, "take", take)


def ties_are_missed(monkeypatch):
    """As if no two leaves were one object."""
    monkeypatch.setattr(program, "are_different", lambda *_: True)


def ties_of_memory_are_missed(monkeypatch):
    monkeypatch.setattr(shared_memory, "ties", lambda _: {})


def overlaps_are_missed(monkeypatch):
    monkeypatch.setattr(shared_memory, "sharing_memory", lambda *_, **__: ())


def containers_that_recur_are_missed(monkeypatch):
    monkeypatch.setattr(structure, "recurring", lambda _: None)


def buffers_are_shared(monkeypatch):
    real = grouped._run_together

    def run_together(recipe, steps, values):
        return [real(recipe, steps, values)[0]] * len(values)

    monkeypatch.setattr(grouped, "_run_together", run_together)


@pytest.mark.quick
@pytest.mark.fast_paths
@pytest.mark.parametrize(
    "plant",
    [
        reversed_leaves,
        no_check_of_types,
        ties_are_missed,
        ties_of_memory_are_missed,
        overlaps_are_missed,
        containers_that_recur_are_missed,
        buffers_are_shared,
    ],
)
def test_planted_faults_are_noticed(monkeypatch, plant):
    """The comparison above is one that can fail."""
    x, y, tensor = np.zeros(4, "float32"), np.ones(4, "float32"), torch.ones(2)
    inner = [y.copy()]
    history = [
        ([x, y], {"copy": True}),
        ([x, 3], {"copy": True}),
        ([x, x], {"copy": True}),
        ([tensor, tensor], {}),
        ([BASE[:8], BASE[:8]], {"copy": True}),
        ([BASE[:8], BASE[4:12]], {"copy": True}),
        ([inner, [inner]], {"copy": True}),
    ]
    expected = [leaf_by_leaf(tree, "numpy", keywords) for tree, keywords in history]
    for tree, keywords in history:
        assert_alike(tree, "numpy", keywords)
    plant(monkeypatch)
    api._forget()
    monkeypatch.setattr(sys.modules[__name__], "leaf_by_leaf", lambda *_: next(known))
    known = iter(expected)
    with pytest.raises((AssertionError, AttributeError)):  # noqa: PT012 - which of them notices is not the point
        for tree, keywords in history:
            assert_alike(tree, "numpy", keywords)


# -- leaves that depend on each other ----------------------------------------------------------------


@pytest.fixture
def nothing_is_described(monkeypatch):
    """No tree is described as a whole; gives the leaves that are described one by one."""
    api._forget()
    monkeypatch.setattr(DescribedTree, "prepare", None)
    found = []
    real = run.prepare

    def prepare(x, *given):
        found.append(x)
        return real(x, *given)

    with run.verifying(False):  # which describes all
        monkeypatch.setattr(run, "prepare", prepare)
        yield found


@pytest.mark.quick
def test_only_leaves_that_share_memory_are_described(nothing_is_described):
    """A tied weight costs nothing for the others; NumPy and PyTorch say what shares memory then."""
    weight = torch.arange(12.0).reshape(3, 4)
    for copies in ([weight, weight.view(3, 4)], [weight, weight[1:]], [weight[:2], weight[1:]]):
        tree = {
            "one": copies[0],
            "two": copies[1],
            **{f"x{n}": torch.ones(n + 1) for n in range(40)},
        }
        for _ in range(2):
            nothing_is_described.clear()
            made = ferry.snapshot(tree)
            asked = {id(x) for x in nothing_is_described}
            assert [name for name, x in tree.items() if id(x) in asked] == ["one", "two"]
            assert [x.tolist() for x in made.values()] == [x.tolist() for x in tree.values()]
            arrays = [x.numpy() for x in (made["one"], made["two"])]
            assert np.shares_memory(*arrays)
            assert not any(np.shares_memory(x, weight.numpy()) for x in arrays)
            alone = [each.numpy() for name, each in made.items() if name.startswith("x")]
            assert not any(np.shares_memory(x, y) for x in arrays for y in alone)
        made["one"][-1] = 100.0  # a write through the one shows in the other, as in the source
        assert 100.0 in made["two"]
        assert weight.max() == 11


@pytest.mark.quick
def test_tensors_without_elements_are_tied_if_they_are_one_object(nothing_is_described):
    """Their memory does not tell, since nothing is in it."""
    empty = np.ones((0, 2))
    for tree in ([empty, empty], [empty, np.ones((0, 2))], [empty, empty[:]]):
        for _ in range(2):
            made = ferry.convert_tree([*tree, np.ones(1)], "torch", copy=True)
            assert (made[0] is made[1]) == (tree[0] is tree[1])


@pytest.mark.quick
def test_containers_that_recur_have_programs(nothing_is_described):
    """One object stays one, and two that are equal stay two, whatever came before."""
    inner, other = {"x": np.ones(2), "n": 1}, {"x": np.zeros(2), "n": 2}
    for tree in (
        [inner, inner],
        [inner, other],
        [other, inner],
        [[inner], inner],
        [inner, [inner]],
    ):
        for convert in (ferry.snapshot, lambda tree: ferry.convert_tree(tree, "torch")):
            for _ in range(2):
                made = convert(tree)
                assert occurrences_of(made) == occurrences_of(tree)
                assert [x.tolist() for x in leaves_of(made) if hasattr(x, "shape")] == [
                    x.tolist() for x in leaves_of(tree) if hasattr(x, "shape")
                ]
    assert nothing_is_described == []


@pytest.mark.parametrize("keywords", [{}, {"copy": True}])
def test_equal_numbers_are_not_tied(keywords):
    """Python has one object for each small number: that says nothing. One container is one."""
    for _ in range(2):
        one, two = ferry.convert_tree([1, 1], "numpy", leaves="numbers", **keywords)
        assert one is not two
        one[...] = 5
        assert two == 1
        held = [1]
        made = ferry.convert_tree((held, (held, 1)), "numpy", leaves="numbers", **keywords)
        assert made[0] is made[1][0]
        assert made[1][1] is not made[0][0]


def test_the_error_of_a_tied_leaf_is_raised_once():
    """It is converted once; another leaf with the same values is another error."""
    lossy = np.array([0.5, 300.0])
    with pytest.raises(ferry.LossyCastError, match=r"at \$\[0\]\[1\]|at \$\[0\]"):
        ferry.convert_tree([lossy, lossy], "torch", dtype={"float": "int8"})
    with pytest.raises(ferry.TreeError) as raised:
        ferry.convert_tree([lossy, lossy, lossy.copy()], "torch", dtype={"float": "int8"})
    assert [each.message.rpartition(" - at ")[2][:4] for each in raised.value.exceptions] == [
        "$[0]",
        "$[2]",
    ]


def test_out_over_its_own_memory_twice_names_the_first_leaf():
    """Of several earlier leaves that the `out` of one overlaps, wherever they lie in memory."""
    memory = np.zeros(8)
    for parts in ([memory[:4], memory[4:], memory[2:6]], [memory[4:], memory[:4], memory[2:6]]):
        tree = [np.ones(4), np.ones(4), np.ones(4)]
        with pytest.raises(ferry.UnsupportedTypeError, match=r"as at \$\[0\]: .* at \$\[2\]"):
            ferry.convert_tree(tree, "numpy", out=parts)
        assert not memory.any()


@pytest.mark.parametrize("shift", [-2, -1, 0, 1, 2])
def test_out_that_overlaps_sources_gets_the_values_from_before(shift):
    """Each leaf moves within one memory; NumPy copies all of them first."""
    memory = np.arange(12.0)
    starts = [2, 4, 6]
    expected = memory.copy()
    for start in starts:
        expected[start + shift : start + shift + 2] = memory[start : start + 2]
    tree = [memory[start : start + 2] for start in starts]
    outs = [memory[start + shift : start + shift + 2] for start in starts]
    ferry.convert_tree(tree, "numpy", out=outs)
    assert memory.tolist() == expected.tolist()


# -- guards ----------------------------------------------------------------------------------------


def test_a_tensor_put_into_an_attribute_is_found_in_the_next_call():
    """The metadata of a state dict is looked at each time."""
    state = torch.nn.Linear(2, 2).state_dict()
    assert hasattr(state, "_metadata")
    for _ in range(2):
        ferry.convert_tree(state, "numpy")
    state._metadata[""]["version"] = torch.ones(1)
    with pytest.raises(ferry.UnsupportedTypeError, match="_metadata"):
        ferry.convert_tree(state, "numpy")
    state._metadata[""]["version"] = {"deeper": torch.ones(1)}
    with pytest.raises(ferry.UnsupportedTypeError, match="_metadata"):
        ferry.convert_tree(state, "numpy")
    state._metadata[""]["version"] = 1
    made = ferry.convert_tree(state, "numpy")
    assert type(made) is collections.OrderedDict
    assert made._metadata == state._metadata


def test_keys_that_are_equal_stay_what_they_are():
    """1, True and 1.0 are equal, and so are their hashes."""
    for key in (1, True, 1.0, 1, 1.0):
        for value in (np.ones(1), torch.ones(1)):
            (found,) = ferry.convert_tree({key: value}, "torch")
            assert type(found) is type(key)


class Strange:
    """A key whose comparison is counted, and raises."""

    compared = 0

    def __hash__(self):
        return 1

    def __eq__(self, other):
        type(self).compared += 1
        raise RuntimeError("this comparison is broken")


def test_keys_are_not_compared():
    """Neither with those of the last tree, nor with those of `out`: a comparison may take long, or raise."""
    Strange.compared = 0
    for _ in range(3):
        key = Strange()
        tree = {key: np.ones(2), "b": np.zeros(2)}
        made = ferry.convert_tree(tree, "torch")
        assert next(iter(made)) is key
        ferry.snapshot({"inner": tree})
    assert Strange.compared == 0


@pytest.mark.parametrize(
    "changes",
    [
        lambda tree: tree.update(a=1),
        lambda tree: tree.update(a=[np.ones(1)]),
        lambda tree: tree.update(a=torch.ones(2, requires_grad=True) * 2),
        lambda tree: tree.update(a=np.array(["text"])),
        lambda tree: tree.update(a=np.ones(2, ">f4")),
        lambda tree: tree.update(a=np.ma.masked_array([1.0, 2.0], [True, False])),
        lambda tree: tree.update(a=np.zeros(2, [("x", "f4"), ("y", "i4")])),
        lambda tree: tree.update(a=torch.ones(2, dtype=torch.complex64).conj()),
        lambda tree: tree.update(a=tree["b"]),
        lambda tree: tree.pop("a"),
        lambda tree: tree.update(c=np.ones(3)),
        lambda tree: tree["d"].append(np.ones(1)),
        lambda tree: tree.update(d=(np.ones(1), 5)),
        lambda tree: tree.update(d=tree),
    ],
)
@pytest.mark.parametrize("to", ["numpy", "torch"])
def test_what_has_changed_since_the_last_call_is_seen(changes, to):
    """Whatever a program takes for granted may be otherwise in the next tree."""
    for keywords in ({}, {"copy": True}):
        tree = {"a": np.ones(2), "b": np.zeros(2), "d": [np.ones(1), 5]}
        for _ in range(2):
            ferry.convert_tree(tree, to, **keywords)
        changes(tree)
        expected, refused = outcome(leaf_by_leaf, tree, to, keywords)
        found, error = outcome(lambda: ferry.convert_tree(tree, to, **keywords))  # noqa: B023
        assert error == refused
        if error is None:
            assert types_of(found) == types_of(expected)
            before, ours, theirs = map(leaves_of, (tree, found, expected))
            if len(before) < len(ours):  # a structured array becomes a dict
                before = [None] * len(ours)
            assert list(map(facts, ours, before)) == list(map(facts, theirs, before))


def registered_with_optree(kind):
    import optree

    optree.register_pytree_node(
        kind, lambda x: ((x.held,), None), lambda _, held: kind(*held), namespace="tensorferry"
    )
    return lambda: optree.unregister_pytree_node(kind, namespace="tensorferry")


def registered_with_torch(kind):
    from torch.utils import _pytree

    _pytree.register_pytree_node(kind, lambda x: ([x.held], None), lambda held, _: kind(*held))
    return lambda: _pytree._deregister_pytree_node(kind)


@pytest.mark.parametrize("register", [registered_with_optree, registered_with_torch])
@pytest.mark.parametrize(
    "convert", [ferry.convert_tree, lambda tree, _, **kw: ferry.snapshot(tree, **kw)]
)
def test_a_class_that_is_registered_after_the_first_call_is_opened(register, convert):
    """Its objects were kept as they are: a program that was made for that is not used any more."""

    class Late:
        def __init__(self, held):
            self.held = held

    tree = {"late": Late(np.ones(2)), "x": np.zeros(1), "name": "text"}
    for _ in range(2):
        assert convert(tree, "numpy", unknown="keep")["late"] is tree["late"]
    forget = register(Late)
    try:
        for _ in range(2):
            made = convert(tree, "torch", unknown="keep")["late"]
            assert type(made) is Late
            assert made is not tree["late"]
            assert made.held is not tree["late"].held
            assert made.held.tolist() == [1, 1]
    finally:
        forget()


def test_text_that_became_numbers_is_converted():
    """An array of text stays; the next one in its place need not be text."""
    for values in (["a"], ["a"], [1.0], ["b"], [2]):
        (found,) = ferry.convert_tree([np.array(values)], "torch")
        assert isinstance(found, torch.Tensor) == (not isinstance(values[0], str))


def test_values_go_into_out_by_programs_too(monkeypatch):
    """A tree of the same structure; keys in another order, and other shapes, are seen."""
    tree = {"a": np.ones(2, "float32"), "b": [np.full(3, 2.0)]}
    for _ in range(3):
        out = {"a": torch.zeros(2), "b": [torch.zeros(3, dtype=torch.float64)]}
        made = ferry.convert_tree(tree, "torch", out=out)
        assert made["a"] is out["a"]
        assert made["b"][0] is out["b"][0]
        assert (out["a"].tolist(), out["b"][0].tolist()) == ([1, 1], [2, 2, 2])
    turned = {"b": [torch.zeros(3, dtype=torch.float64)], "a": torch.zeros(2)}
    made = ferry.convert_tree(tree, "torch", out=turned)
    assert (turned["a"].tolist(), turned["b"][0].tolist()) == ([1, 1], [2, 2, 2])
    small = {"a": torch.zeros(2), "b": [torch.zeros(1, dtype=torch.float64)]}
    with pytest.raises(ferry.ShapeError, match=r'\$\["b"\]\[0\]'):
        ferry.convert_tree(tree, "torch", out=small)
    assert small["a"].tolist() == [0, 0]


class Named(dict):
    """A dict of a class of its own."""


def with_attribute(**held):
    made = collections.OrderedDict(held)
    made.note = "an attribute"
    return made


@pytest.mark.parametrize(
    "kind", [dict, Named, with_attribute, collections.UserDict, collections.OrderedDict]
)
def test_out_is_matched_by_its_keys_whatever_their_order(kind):
    """Containers of classes too, in each call: the values of one tensor do not come into another."""
    tree = kind(a=np.full(2, 1, "float32"), b=np.full(2, 2, "float32"))
    for _ in range(3):
        for names in ("ab", "ba"):
            out = kind(**{name: torch.zeros(2) for name in names})
            ferry.convert_tree(tree, "torch", out=out)
            assert {name: out[name].tolist() for name in "ab"} == {"a": [1, 1], "b": [2, 2]}


@pytest.mark.parametrize(
    "kind", [dict, Named, with_attribute, collections.UserDict, collections.OrderedDict]
)
def test_dtypes_by_name_follow_the_keys(kind):
    """The next tree may have other names in the same places."""
    for _ in range(3):
        for names in ("ab", "ba", "ac"):
            tree = kind(**{name: np.ones(2) for name in names})
            made = ferry.convert_tree(tree, "torch", dtype={"a": "float16"})
            expected = {name: torch.float16 if name == "a" else torch.float64 for name in names}
            assert {name: made[name].dtype for name in names} == expected


@pytest.mark.quick
@pytest.mark.parametrize(
    "kind", [dict, collections.OrderedDict, lambda **held: collections.defaultdict(int, held)]
)
def test_keys_that_change_meanwhile_do_not_get_the_values_of_others(monkeypatch, kind):
    """As if another thread had changed the dict while its tensors were copied."""
    ferry.convert_tree(kind(a=np.full(2, 1), b=np.full(2, 2)), "numpy", copy=True)
    tree = kind(a=np.full(2, 1), b=np.full(2, 2))
    real = groups.Groups.of

    def change(self, *given):
        found = real(self, *given)
        tree.pop("a", None)
        tree["c"] = np.full(2, 3)
        return found

    monkeypatch.setattr(groups.Groups, "of", change)
    made = ferry.convert_tree(tree, "numpy", copy=True)
    assert {name: each.tolist() for name, each in made.items()} == {"a": [1, 1], "b": [2, 2]}


@pytest.mark.parametrize("most", [1, 2, 3])
def test_signatures_that_are_forgotten_in_the_middle_of_a_call(monkeypatch, most):
    """Each leaf takes its own steps, however few of them are remembered."""
    api._forget()
    monkeypatch.setattr(groups, "_MOST", most)
    dtypes = ["float64", "int32", "float32", "int8", "bool"]
    for _ in range(3):
        tree = [np.ones((2,) * (1 + place % 2), dtype) for place, dtype in enumerate(dtypes)]
        for request in ({"dtype": "float32"}, {"copy": True}, {"dtype": {"int": "int64"}}):
            assert_alike(tree, "torch", request)


@pytest.mark.fast_paths
def test_fast_paths_that_are_said_to_give_views():
    """Each gives memory of its source, in the same dtype, on the host."""
    kinds = {torch.Tensor: torch.ones, torch.nn.Parameter: parameter, np.ndarray: np.ones}
    assert {kind for kind, _ in fast_paths._views} <= kinds.keys()
    for kind, target in fast_paths._views:
        for shape in ((), (3,), (2, 3)):
            x = kinds[kind](shape)
            made = fast_paths.PATHS[target][kind](x)
            before, after = ferry.describe(x), ferry.describe(made)
            assert after.framework == target
            assert ferry.shares_memory(x, made)
            assert (after.dtype, after.shape, after.device) == (before.dtype, shape, "cpu")


def parameter(shape):
    return torch.nn.Parameter(torch.ones(shape))


# -- what is kept ----------------------------------------------------------------------------------


def programs_for(**keywords):
    return api._programs(None, "numpy", **keywords)


@pytest.mark.quick
@pytest.mark.fast_paths
def test_a_second_tree_is_not_looked_at_anew(monkeypatch):
    """Nor are eight structures in turn, nor trees with keys that were never seen."""
    api._forget()
    made = []
    real = program.Programs._make
    monkeypatch.setattr(
        program.Programs, "_make", lambda self, tree: made.append(tree) or real(self, tree)
    )
    monkeypatch.setattr(DescribedTree, "prepare", None)  # nothing comes here
    eight = [{"a": [np.ones(1)] * 0 + [np.ones(1) for _ in range(n + 1)]} for n in range(8)]
    for _ in range(4):
        for tree in eight:
            ferry.convert_tree(tree, "torch")
    assert len(made) == 8
    made.clear()
    for number in range(20):
        ferry.convert_tree({f"layer{number}": np.ones(2), number: np.ones(3)}, "torch")
    assert len(made) == 1


def test_the_programs_that_are_kept_are_bounded():
    """By how many structures there are, and by their leaves."""
    api._forget()
    for number in range(300):
        ferry.convert_tree([np.ones(1) for _ in range(number % 100)], "numpy", copy=True)
        ferry.convert_tree({"x": [0] * (number + 1), "y": np.ones(1)}, "numpy", copy=True)
    kept = programs_for(copy=True)
    assert len(kept._kept) <= program._MOST
    assert all(len(each) <= program._ALTERNATIVES for each in kept._kept.values())
    for _ in range(3):
        ferry.convert_tree([1] * program._MOST_LEAVES + [np.ones(1)], "numpy", copy=True)
        ferry.convert_tree((*[1] * program._MOST_LEAVES, np.ones(1)), "numpy", copy=True)
    assert sum(each.size for many in kept._kept.values() for each in many) < (
        2 * program._MOST_LEAVES
    )


@pytest.mark.fast_paths
def test_nothing_of_a_tree_is_kept():
    """A program knows types, and what is made of them; no tensor, and no container."""
    tree = Pair(np.ones(3), collections.UserDict(a=torch.ones(2)))
    watched = [weakref.ref(tree.left), weakref.ref(tree.right), weakref.ref(tree.right["a"])]
    for keywords in ({}, {"copy": True}, {"dtype": {"left": "float16"}}):
        ferry.convert_tree(tree, "numpy", **keywords)
    ferry.snapshot(tree)
    del tree
    gc.collect()
    assert [each() for each in watched] == [None, None, None]


@pytest.mark.fast_paths
def test_programs_are_shared_by_threads():
    """Many threads convert trees of many structures at the same time, each to its own values."""
    failed = []

    def work(seed):
        generator = np.random.default_rng(seed)
        for _ in range(150):
            count = int(generator.integers(1, 12))
            values = [generator.random(2) for _ in range(count)]
            tree = {"a": values[:-1], "b": (values[-1], seed)}
            for keywords in ({}, {"copy": True}, {"dtype": "float32"}):
                made = ferry.convert_tree(tree, "torch", **keywords)
                expected = [value.astype("float32").tolist() for value in values]
                found = [x.float().tolist() for x in (*made["a"], made["b"][0])]
                if found != expected or made["b"][1] != seed:
                    failed.append((seed, found, expected))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_programs_are_forgotten_with_recipes():
    """They have recipes of backends and devices of their time."""
    from tensorferry.execution import recipes

    ferry.convert_tree([np.ones(1)], "numpy")
    before = programs_for()
    recipes.forget_recipes()
    assert programs_for() is not before


@pytest.mark.quick
def test_results_of_programs_are_verified(monkeypatch):
    """In verifying mode each leaf's result is compared with its plan."""
    ferry.convert_tree([np.ones(1), np.ones(2)], "numpy", dtype="float32")
    real = grouped._run_together
    monkeypatch.setattr(
        grouped, "_run_together", lambda *given: [x.astype("int8") for x in real(*given)]
    )
    with run.verifying(), pytest.raises(ferry.PlanViolation, match="dtype"):
        ferry.convert_tree([np.ones(1), np.ones(2)], "numpy", dtype="float32")


# -- few leaves, whose steps are found by the signatures of all of them -----------------------------

DTYPES = ("float32", "float64", "int32", "uint8", "bool")


def by_hand(values, to, keywords):
    """What NumPy and PyTorch make of arrays: each alone."""
    found = []
    for value in values:
        wanted = keywords.get("dtype") if value.dtype.kind == "f" else None
        array = value if wanted is None else value.astype(wanted)
        found.append(torch.from_numpy(np.array(array)) if to == "torch" else np.array(array))
    return found


def compared(history, *, out=False):
    """Convert each tree of a history, and compare it with the same by hand."""
    for values, kind, to, keywords in history:
        made = [torch.from_numpy(value.copy()) if kind == "torch" else value for value in values]
        tree = {"a": made[0], "b": made[1:]}
        expected = by_hand(values, to, keywords)
        if out:
            place = torch.zeros if to == "torch" else np.zeros
            outs = [place(tuple(each.shape), dtype=each.dtype) for each in expected]
            said = {**keywords, "out": {"a": outs[0], "b": outs[1:]}}
        else:
            said = keywords
        found = ferry.convert_tree(tree, to, **said)
        ours = [found["a"], *found["b"]]
        assert [str(x.dtype) for x in ours] == [str(x.dtype) for x in expected]
        assert [x.tolist() for x in ours] == [x.tolist() for x in expected]
        if out:
            assert list(map(id, ours)) == list(map(id, outs))
        elif keywords.get("copy"):
            assert not any(ferry.shares_memory(x, y) for x in ours for y in made)


VALUES = st.builds(
    lambda dtype, shape, start: (
        np.arange(24)[: np.prod(shape, dtype=int)].reshape(shape) + start
    ).astype(dtype),
    st.sampled_from(DTYPES),
    st.sampled_from([(2,), (3,), (2, 3), (1, 2, 2)]),
    st.integers(0, 9),
)
HISTORIES = st.lists(
    st.tuples(
        st.lists(VALUES, min_size=1, max_size=5),
        st.sampled_from(["numpy", "torch"]),
        st.sampled_from(["numpy", "torch"]),
        st.sampled_from([{}, {"copy": True}, {"dtype": "float64"}, {"device": "cpu"}]),
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.fast_paths
@settings(MANY, max_examples=examples(150))
@given(history=HISTORIES, out=st.booleans())
def test_few_leaves_against_numpy_and_torch(history, out):
    """Dtypes, numbers of axes, frameworks and keywords change from call to call, and come again."""
    compared([*history, *history], out=out)


def signatures_are_not_compared(monkeypatch):
    monkeypatch.setattr(groups, "_key_of_groups", lambda *_: "the same for all")


def signatures_of_the_first_alone(monkeypatch):
    real = groups._key_of_groups
    monkeypatch.setattr(
        groups,
        "_key_of_groups",
        lambda leaves, parts, outs: real([leaves[0]] * len(leaves), parts, outs),
    )


def results_in_another_order(monkeypatch):
    real = grouped.convert_groups
    monkeypatch.setattr(
        program, "convert_groups", lambda *given, **said: real(*given, **said)[::-1]
    )


@pytest.mark.fast_paths
@pytest.mark.parametrize(
    "keywords",
    [
        {"copy": False},
        {"device": "cpu"},
        {"dtype": "float32"},
        {"dtype": "float32", "copy": False, "device": "cpu"},
        {"dtype": {"float64": "float32", "int64": "int32"}},
        {"like": True},
    ],
)
def test_keywords_that_ask_for_nothing_else(monkeypatch, keywords):
    """A view is the result, until a leaf needs more: another dtype, or a copy that may not be."""
    api._forget()
    arrays = [np.ones(3, "float32"), np.arange(2, dtype="int32"), np.array([True])]
    trees = [
        ("torch", {"x": arrays[0], "rest": arrays[1:]}),
        ("numpy", {"x": torch.from_numpy(arrays[0]), "rest": [*map(torch.from_numpy, arrays[1:])]}),
    ]
    for target, tree in trees:
        said = dict(keywords)
        if said.pop("like", None):
            said["like"] = torch.ones(1) if target == "torch" else np.ones(1, "float32")
        else:
            said["to"] = target
        ferry.convert_tree(tree, **said)
        with monkeypatch.context() as patched:
            patched.setattr(groups.Groups, "of", None)  # signatures are not looked at
            found = ferry.convert_tree(tree, **said)
        ours, theirs = [found["x"], *found["rest"]], [tree["x"], *tree["rest"]]
        assert all(map(ferry.shares_memory, ours, theirs))
        assert [str(x.dtype).removeprefix("torch.") for x in ours] == ["float32", "int32", "bool"]
        double = tree["x"].double() if target == "numpy" else tree["x"].astype("float64")
        wide = {**tree, "x": double}
        casts = "dtype" in keywords or "like" in keywords
        for _ in range(3):
            if keywords.get("copy") is False and casts:
                with pytest.raises(ferry.CopyRequiredError):
                    ferry.convert_tree(wide, **said)
            else:
                made = ferry.convert_tree(wide, **said)["x"]
                assert str(made.dtype).endswith("float32" if casts else "float64")
                assert ferry.shares_memory(made, wide["x"]) is not casts
            assert str(ferry.convert_tree(tree, **said)["x"].dtype).endswith("float32")
        frozen = np.ones(3, "float32")
        frozen.flags.writeable = False
        if target == "torch":
            made = ferry.convert_tree({**tree, "x": frozen}, **said)["x"]
            assert ferry.shares_memory(made, frozen) == (keywords.get("copy") is False)


def dtypes_are_not_compared(monkeypatch):
    """As if ``dtype=`` changed no leaf once it has changed none."""
    real = structure.Structure.converted
    monkeypatch.setattr(
        structure.Structure, "converted", lambda self, *given: real(self, *given[:3], None)
    )


@pytest.mark.quick
@pytest.mark.fast_paths
@pytest.mark.parametrize(
    "plant",
    [
        signatures_are_not_compared,
        signatures_of_the_first_alone,
        results_in_another_order,
        dtypes_are_not_compared,
    ],
)
def test_planted_faults_among_few_leaves_are_noticed(monkeypatch, plant):
    """The comparison with NumPy and PyTorch is one that can fail."""
    x, y, z = np.arange(3.0), np.arange(4, dtype="int32"), np.arange(4.0).astype("float32")
    history = [
        ([x, y], "numpy", "torch", {"dtype": "float64"}),
        ([x, x], "numpy", "torch", {"dtype": "float64"}),
        ([x, z], "numpy", "torch", {"dtype": "float64"}),
        ([z, y], "torch", "numpy", {"dtype": "float64"}),
    ]
    api._forget()  # what another fault has left behind
    compared(history)
    plant(monkeypatch)
    api._forget()
    with pytest.raises((AssertionError, AttributeError)):
        compared(history)


@pytest.mark.quick
@pytest.mark.parametrize("name", ["torch", "tensorflow", "jax"])
def test_extents_are_those_of_the_memory(name):
    """From the first byte to the one after the last, of views with gaps too; with and without the extension."""
    arrays = [np.arange(start, start + 6, dtype="float32").reshape(2, 3) for start in range(20)]
    tensors = [ferry.convert(x, to=name) for x in arrays]
    if name == "torch":
        tensors += [x[:, 1:] for x in tensors] + [x.t() for x in tensors] + [torch.tensor(2.0)]
    quick = registry.backend_named(name).quick
    views = [ferry.to_numpy(x, copy=False) for x in tensors]
    expected = [np.lib.array_utils.byte_bounds(view) for view in views]
    starts, ends = quick.extents(tensors, compact=False)
    assert list(zip(map(int, starts), map(int, ends), strict=True)) == expected
    if getattr(quick, "reader", None) is not None:
        without = type(quick)(quick.backend)
        without.reader = None
        slow = without.extents(tensors, compact=False)
        assert list(zip(*(each.tolist() for each in slow), strict=True)) == expected


@pytest.mark.fast_paths
@pytest.mark.parametrize("copied", [True, False])
def test_tensors_of_tensorflow_that_share_memory_are_tied(copied):
    """Two of one memory become one in PyTorch, and others two: as if each was described."""
    tf = pytest.importorskip("tensorflow")
    x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    same = tf.reshape(x, (2, 2)) if copied else tf.constant([[1.0, 2.0], [3.0, 4.0]])
    shares = ferry.shares_memory(x, same)
    for _ in range(3):
        found = ferry.convert_tree({"x": x, "y": same}, "torch")
        assert found["x"].tolist() == found["y"].tolist() == [[1, 2], [3, 4]]
        assert ferry.shares_memory(found["x"], found["y"]) == shares
        assert not ferry.shares_memory(found["x"], x)


def test_what_was_asked_for_before_a_framework_was_loaded_is_fast_afterwards():
    """The first call of a process, in which PyTorch is not loaded yet, leaves nothing slow behind."""
    code = (
        "import numpy as np, torch, tensorferry as ferry\n"
        "from tensorferry.trees import api\n"
        "out = {'a': torch.zeros(2)}\n"
        "for _ in range(2): ferry.convert_tree({'a': torch.ones(2)}, 'torch', out=out)\n"
        "found = api._programs(None, 'torch')\n"
        "quick = ferry.backends.registry.backend_named('torch').quick\n"
        "assert found._targets.common.quick is quick\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.quick
def test_a_start_converts_what_the_tree_held(monkeypatch):
    """Whatever becomes of its containers between the plan and the run; and errors name the leaf."""
    from tensorferry.transfers.target import Target

    target = Target.of(
        ferry.start,
        "torch",
        None,
        "float32",
        None,
        (True, None, "detach", {}),
        "tensors",
        "error",
        True,
    )
    tree = {"a": np.ones(2), "b": [np.zeros(3)]}
    monkeypatch.setattr(DescribedTree, "prepare", None)  # nothing comes here
    pending = target.prepare(tree)
    tree["a"], tree["c"] = np.full(2, 7.0), np.ones(1)
    tree["b"].append(np.ones(1))
    found = pending.run()
    assert found["a"].tolist() == [1, 1]
    assert found["b"][0].tolist() == [0, 0, 0]
    assert [*found] == ["a", "b"]
    assert len(found["b"]) == 1
    monkeypatch.undo()
    lossy = Target.of(
        ferry.start,
        "torch",
        None,
        {"float": "int8"},
        None,
        (None, None, "detach", {}),
        "tensors",
        "error",
        True,
    )
    pending = lossy.prepare({"a": np.ones(2), "b": [np.full(2, 0.5)]})
    with pytest.raises(ferry.LossyCastError, match=r'\$\["b"\]\[0\]'):
        pending.run()


@pytest.mark.quick
@pytest.mark.fast_paths
def test_what_is_remembered_of_few_leaves_is_bounded(monkeypatch):
    """Of one structure, leaves of hundreds of dtypes and ranks together."""
    monkeypatch.setattr(groups, "_MOST_TOGETHER", 128)
    api._forget()
    for first in range(20):
        for second in range(20):
            tree = [np.ones((1,) * first), np.ones((1,) * second)]
            made = ferry.convert_tree(tree, "numpy", copy=True)
            assert [x.ndim for x in made] == [first, second]
    (kept,) = [each for many in programs_for(copy=True)._kept.values() for each in many]
    assert 0 < len(kept.together) <= 64


@pytest.mark.fast_paths
@pytest.mark.parametrize("size", [1, 3, 100])
def test_settings_that_change_are_looked_at_in_each_call(size):
    """JAX's width of dtypes here: also where the signatures of few leaves are remembered together."""
    jax = pytest.importorskip("jax")
    tree = {f"x{index}": np.arange(index + 1.0) for index in range(size)}
    for wide in (True, False, True, False):
        with (jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64)(wide):
            for _ in range(3):
                found = ferry.convert_tree(tree, "jax", dtype="fit")
                assert {str(each.dtype) for each in found.values()} == {
                    "float64" if wide else "float32"
                }


@pytest.mark.fast_paths
@pytest.mark.parametrize("batch", [False, True], ids=["tree", "batch"])
def test_a_mapping_in_dtype_means_the_same_in_each_call(batch):
    """Beside ``like=`` too, whose dtype is for what it does not name; and after trees with other keys."""

    def convert(tree, **keywords):
        if batch:
            found = ferry.collate([tree] * 2, **keywords)
        else:
            found = ferry.convert_tree(tree, **keywords)
        return {name: str(each.dtype).removeprefix("torch.") for name, each in found.items()}

    like = torch.ones(1, dtype=torch.float16)
    one, other = {"a": np.ones(2), "b": np.ones(2)}, {"b": np.ones(2), "a": np.ones(2)}
    for _ in range(3):
        for tree in (one, other, {**one, "c": np.ones(2)}, {"c": np.ones(2), **one}):
            others = dict.fromkeys(tree, "float64") | {"a": "float32"}
            assert convert(tree, to="torch", dtype={"a": "float32"}) == others
            liked = dict.fromkeys(tree, "float16") | {"a": "float32"}
            assert convert(tree, like=like, dtype={"a": "float32"}) == liked
            assert convert(tree, like=like, dtype={"float": "float32"}) == dict.fromkeys(
                tree, "float32"
            )
        with pytest.raises(ferry.UnsupportedTypeError, match="which no tensor has"):
            convert({"b": np.ones(2), "d": np.ones(2)}, to="torch", dtype={"a": "float32"})


def test_a_program_remembers_once_that_dtypes_change():
    """However often it is run: what it keeps does not grow."""
    known = api._programs(None, "numpy", dtype="float16")
    tree = {"a": torch.ones(2), "b": torch.ones(3)}
    for _ in range(20):
        assert known.convert(tree, None)["b"].tolist() == [1.0, 1.0, 1.0]
    ((made,),) = known._kept.values()
    assert made.recast == ["float16"]


@pytest.mark.parametrize("to", [("numpy", "float64", "cpu"), ("numpy", None, None)])
@pytest.mark.parametrize(
    "call",
    [
        ferry.convert_tree,
        lambda tree, to: ferry.collate([tree, tree], to),
    ],
    ids=["convert_tree", "collate"],
)
def test_a_target_is_a_framework_and_nothing_besides(call, to):
    """Framework, dtype and device together are what is followed by ``like=``, and no `to`."""
    with pytest.raises(TypeError, match="to must be a framework"):
        call({"a": torch.ones(2)}, to)
