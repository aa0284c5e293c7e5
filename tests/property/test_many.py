"""What is done for many tensors in one go is what is done for each."""

from __future__ import annotations

import gc
import weakref

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import TARGETS, examples

import tensorferry as ferry
from tensorferry import testing
from tensorferry.backends import registry
from tensorferry.core.signature import places_by
from tensorferry.execution import groups
from tensorferry.execution.run import verifying
from tensorferry.host import memory
from tensorferry.testing import strategies as these
from tensorferry.testing.bits import FORMATS

pytestmark = pytest.mark.fast_paths


def grouped(tensors, alignment):
    """Where tensors of each signature stand, whatever their types."""
    found = {}
    for kind, places in places_by(list(map(type, tensors))).items():
        inside = groups.grouped_indices([tensors[place] for place in places], kind, alignment)
        if inside is None:
            return None
        found |= {sig: [places[at] for at in those] for sig, those in inside.items()}
    return found


def bits(x):
    """A tensor's framework, description without its address, and values."""
    info = ferry.describe(x)
    return info._replace(misalignment=0), ferry.to_numpy(x, copy=True).tobytes()


# -- signatures and reach -----------------------------------------------------------------------


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=examples(50))
@given(data=st.data())
def test_many_are_grouped_by_their_signatures(name, data):
    """One that has none leaves all of them without; addresses count as far as they are asked for."""
    backend, dtypes = registry.ready(name), st.lists(these.dtypes(name), min_size=1, max_size=2)
    kinds = data.draw(dtypes)
    tensors = data.draw(
        st.lists(st.one_of([these.tensors(name, dtype) for dtype in kinds]), min_size=1, max_size=8)
    )
    assert_grouped(backend, tensors)


def assert_grouped(backend, tensors):
    """As the signatures of each say; a second time too, when they may be remembered."""
    one_by_one = [backend.quick.signature(x) for x in tensors]
    for _ in range(2):
        found = grouped(tensors, 64)
        if found is None:
            # Never more is refused than one by one but where many frameworks' types meet.
            assert None in one_by_one or len(set(map(type, tensors))) > 1
            return
        assert {sig: list(at) for sig, at in found.items()} == {
            sig: list(at) for sig, at in places_by(one_by_one).items()
        }


@pytest.mark.parametrize("name", ["torch", "numpy"])
def test_lists_like_one_before_are_told_from_others(name):
    """Each layout and dtype in the place of an ordinary one: what is remembered of a list is of no other."""
    backend, witness = registry.ready(name), testing.witness_for(name)
    plain = (
        [witness.make("compact", "float32").x for _ in range(3)]
        if "compact" in witness.layouts
        else None
    )
    plain = plain or [
        ferry.convert(np.zeros((2, 3), np.float32), name, copy=True) for _ in range(3)
    ]
    for layout in witness.layouts:
        for dtype in FORMATS:
            sample = witness.make(layout, dtype) if witness.knows(dtype) else None
            if sample is None:
                continue
            grouped(plain, 0)
            odd = [plain[0], sample.x, plain[2]]
            signatures = [backend.quick.signature(x) for x in odd]
            found = grouped(odd, 64)
            assert found is None or {sig: list(at) for sig, at in found.items()} == {
                sig: list(at) for sig, at in places_by(signatures).items()
            }


@pytest.mark.quick
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(
    "others",
    [
        torch._neg_view,
        lambda x: x.requires_grad_(),
        torch.nn.Parameter,
        lambda x: x.double(),
        lambda x: x.t().contiguous().t(),
        lambda x: x[:1].expand(2, 3),
        lambda x: x.to("meta"),
        lambda x: x.to_sparse(),
        lambda x: torch.nested.nested_tensor([x[0]]),
    ],
)
def test_a_list_of_the_same_length_is_not_taken_for_the_last(others):
    """It has one that is different in what decides; under no_grad nothing is remembered, where grads do not show."""
    signature = registry.ready("torch").quick.signature
    plain = [torch.zeros(2, 3), torch.zeros(2, 3)]
    odd = [torch.zeros(2, 3), others(torch.zeros(2, 3))]
    for context in (torch.enable_grad, torch.no_grad, torch.enable_grad):
        with context():
            assert list(grouped(plain, 64)) == [signature(plain[0])]
            signatures = {signature(x) for x in odd}
            assert set(grouped(odd, 64) or [None, signature(odd[0])]) == signatures


@pytest.mark.quick
def test_fewer_rows_are_still_like_the_last():
    """The last batch of a loop is shorter; one of a single row too, whose stride says nothing."""
    signature = registry.ready("torch").quick.signature
    for rows in (4, 4, 3, 1, 4):
        batch = [torch.zeros(rows, 3), torch.zeros(rows)]
        assert set(grouped(batch, 64)) == set(map(signature, batch))
    gap = torch.zeros(4, 7)[:, :3]
    assert set(grouped([gap, torch.zeros(4)], 64)) == {signature(gap), signature(torch.zeros(4))}


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {3: torch.Tensor.double},
        {4: torch.Tensor.t},
        {0: torch.nn.Parameter, 5: torch._neg_view},
    ],
)
def test_parts_of_a_long_list_are_told_apart(odd, monkeypatch):
    """One like the first is like it, and another is not; places are those in the list."""
    monkeypatch.setattr(groups, "AT_ONCE", 2)
    assert_grouped(
        registry.ready("torch"),
        [odd.get(place, torch.clone)(torch.zeros(2, 3)) for place in range(7)],
    )


@given(st.lists(st.tuples(st.integers(0, 120), st.integers(0, 6)), min_size=1, max_size=24))
def test_runs_that_share_a_byte_are_found(runs):
    """Compared with each two of them, of few and of many; one without bytes counts as a byte."""
    spans = [set(range(start, start + max(length, 1))) for start, length in runs]
    expected = [
        index
        for index, a in enumerate(spans)
        if any(a & b for other, b in enumerate(spans) if other != index)
    ]
    assert memory.sharing_runs([s for s, _ in runs], [s + n for s, n in runs]) == expected


# -- verbs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("to", ["numpy", "torch"])
@pytest.mark.parametrize(
    "keywords", [{"copy": True}, {"dtype": "float16"}, {"dtype": "bfloat16"}, {"device": "cpu"}]
)
def test_leaves_of_every_layout_become_what_each_alone_becomes(to, keywords, requires_grad):
    """Values, strides, gradients and who may write."""
    leaves = [
        torch.arange(6.0).reshape(2, 3),
        torch.arange(6.0).reshape(2, 3).t(),
        torch.arange(12.0)[::2],
        torch.zeros(0, 3),
        torch.tensor(2.5),
        torch.arange(6, dtype=torch.bfloat16),
        torch.arange(6),
        torch.nn.Parameter(torch.ones(2)),
        torch.ones(3).expand(2, 3),
    ]
    leaves = [
        x.requires_grad_() if requires_grad and x.is_floating_point() and x.is_leaf else x
        for x in leaves
    ]
    for some in (leaves, leaves[:3], leaves[:1] * 2, leaves[7:8]):
        found = ferry.convert_tree(some, to, **keywords)
        of_kind = [keywords if x.is_floating_point() else keywords | {"dtype": None} for x in some]
        alone = [ferry.convert(x, to, **asked) for x, asked in zip(some, of_kind, strict=True)]
        assert [bits(x) for x in found] == [bits(x) for x in alone]


def test_copies_in_a_graph_have_nodes_of_their_own():
    """A gradient of one leaf is not one of another's, and a leaf outside the graph stays outside."""
    a, b, c = (torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True), torch.ones(2))
    x, y, z = ferry.convert_tree([a, b, c], "torch", copy=True)
    (x * 3).sum().backward()
    assert a.grad.tolist() == [3.0, 3.0]
    assert b.grad is None
    assert not z.requires_grad
    assert y.requires_grad


def test_nothing_is_written_if_one_value_does_not_fit():
    """Of many alike, the last: the values of all are there before the first is written."""
    tree = {str(index): np.array([index], np.int64) for index in range(5)} | {
        "last": np.array([1 << 40])
    }
    outs = {name: np.full(1, -1, np.int32) for name in tree}
    with pytest.raises(ferry.LossyCastError, match="last"):
        ferry.convert_tree(tree, "numpy", out=outs)
    assert [out.tolist() for out in outs.values()] == [[-1]] * 6


@pytest.mark.parametrize("make", [np.ones, torch.ones, jnp.ones])
def test_a_tree_like_the_last_is_converted_like_the_last(make):
    """And one that is not, as it would be without: another key, dtype, type, leaf that is there twice, or container."""
    first = {"a": make(2), "b": make(3)}
    twice = make(2)
    others = [
        {"a": make(2), "b": make(4)},
        {"b": make(2), "a": make(3)},
        {"a": make(2), "b": make(3).astype("int32") if make is not torch.ones else make(3).int()},
        {"a": make(2), "b": 3},
        {"a": twice, "b": twice},
        [make(2), make(3)],
    ]
    for to in ("numpy", "torch"):
        for other in others:
            ferry.convert_tree(first, to)
            found = ferry.convert_tree(other, to)
            with verifying():
                expected = ferry.convert_tree(other, to)
            values = found.values() if isinstance(found, dict) else found
            wanted = expected.values() if isinstance(expected, dict) else expected
            assert type(found) is type(other)
            for x, y in zip(values, wanted, strict=True):
                assert x == 3 if isinstance(y, int) else bits(x) == bits(y)
            if other is others[4]:
                assert found["a"] is found["b"]


@pytest.mark.parametrize("keywords", [{}, {"copy": True}, {"device": "cpu"}])
def test_what_is_remembered_of_a_tree_keeps_no_leaf_alive(keywords):
    """Only its keys, types and dtypes, and what its tensors' shapes are."""
    tree = {"a": torch.ones(3), "b": torch.ones(4)}
    watched = list(map(weakref.ref, tree.values()))
    result = ferry.convert_tree(tree, "torch", **keywords)
    del tree, result
    gc.collect()
    assert [each() for each in watched] == [None, None]


@pytest.mark.quick
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_many_arrays_are_grouped_as_few_are(data):
    """Those that the extension looks at together; with gaps, empty ones and views among them."""
    dtypes = st.sampled_from(["f4", "f8", "u1", ">f4"])
    shapes = st.sampled_from([(2,), (2, 3), (), (3, 2), (0,)])
    array = st.builds(lambda dtype, shape: np.zeros(shape, dtype), dtypes, shapes)
    views = st.sampled_from([lambda x: x, lambda x: x[...], lambda x: x.T, lambda x: x[::-1]])
    made = [
        view(each) if each.ndim else each
        for each, view in zip(
            data.draw(st.lists(array, min_size=20, max_size=30)),
            data.draw(st.lists(views, min_size=30, max_size=30)),
            strict=False,
        )
    ]
    quick = registry.backend_named("numpy").quick
    for alignment in (1, 16, 64):
        for copies in (False, True):
            found = quick.grouped(made, alignment, copies=copies)
            expected = {}
            for place, each in enumerate(made):
                (signature,) = quick.grouped([each], alignment, copies=copies)
                expected.setdefault(signature, []).append(place)
            if found is not None and len(found) == len(expected):
                assert {key: sorted(places) for key, places in found.items()} == expected
            else:  # empty ones: all are read one by one
                assert not all(each.size for each in made)
    starts, ends = quick.extents([x for x in made if x.flags.c_contiguous], compact=True)
    for at, end, each in zip(starts, ends, [x for x in made if x.flags.c_contiguous], strict=True):
        assert (at, end) == (memory.address(each), memory.address(each) + each.nbytes)
