"""A list like one before it becomes what it becomes when every tensor of it is described."""

from __future__ import annotations

import contextlib
import gc
import weakref

import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import EVERYWHERE, TARGETS, examples

import tensorferry as ferry
from tensorferry.backends import fast_paths, registry, together
from tensorferry.execution import recipes, run, stacks
from tensorferry.host import memory
from tensorferry.testing import strategies as these

pytestmark = pytest.mark.fast_paths

extension = pytest.mark.skipif(
    memory._joins_extension() is None,
    reason="the extension was not built, or TENSORFERRY_NO_EXTENSION is set",
)


@contextlib.contextmanager
def described():
    """Each tensor is described, and each list joined by its framework, as if no list was like another."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(together, "signature", lambda _: None)
        patch.setattr(stacks, "_joined_at_once", lambda _: None)
        patch.setattr(memory, "_joins_extension", lambda: None)
        for name in TARGETS:
            patch.setattr(type(registry.ready(name).quick), "join", lambda *_: None)
        recipes.forget_recipes()
        before = fast_paths.open_all(False)
        yield
        fast_paths.open_all(before)
    recipes.forget_recipes()


def outcome(call):
    """All that can be seen: the error with its hint; or the result's type, dtype, bits and who may write."""
    try:
        result, own = call()
    except ferry.ConversionError as error:
        return type(error), str(error)
    if isinstance(result, (list, bool, int, float, complex)):
        return type(result), repr(result)
    info = ferry.describe(result)
    assert not any(ferry.shares_memory(each, result) for each in own)
    return info._replace(misalignment=0), ferry.to_numpy(result, copy=True).tobytes()


KEYWORDS = st.sampled_from(
    [
        {},
        {},
        {"copy": True},
        {"copy": False},
        {"dtype": "float64"},
        {"dtype": "float16"},
        {"dtype": "int32"},
        {"dtype": "float32", "casting": "unsafe"},
        {"dtype": "fit"},
        {"grad": "error"},
        {"device": "cpu"},
    ]
)


class Owned(np.ndarray):
    """Somebody's own arrays."""


ODD = {
    "numpy": [
        lambda x: x.astype("float16"),
        lambda x: x.astype(x.dtype.newbyteorder()),
        lambda x: x[None],
        lambda x: x.view(Owned),
        lambda x: np.ma.masked_array(x, mask=False),
        lambda x: x.astype(object),
        lambda x: np.stack([x, x], -1)[..., 0],
        lambda x: x.view() if x.setflags(write=False) is None else x,
        lambda x: np.broadcast_to(x.reshape(-1)[:1].reshape(()), x.shape) if x.size else x,
    ],
    "torch": [
        lambda x: x.half(),
        lambda x: x[None],
        torch.nn.Parameter,
        lambda x: torch._neg_view(x) if x.dtype != torch.bool else x,
        lambda x: x.clone().requires_grad_(),
        lambda x: torch.stack([x, x], -1)[..., 0],
        lambda x: x.to("meta"),
        lambda x: x.to_sparse(),
        lambda x: torch.complex(x.float(), x.float()).conj(),
    ],
    "jax": [lambda x: x.astype("float16"), lambda x: x[None], np.asarray],
    "tensorflow": [lambda x: tf.cast(x, tf.float16), lambda x: x[None], tf.Variable],
}
ANYWHERE = [lambda _: 1.5, lambda _: None, lambda _: np.float32(2), lambda x: [x], lambda _: "text"]


@st.composite
def histories(draw):
    """A few lists of tensors, most of one kind, some with one that is odd among them."""
    name = draw(st.sampled_from(TARGETS))
    dtype = draw(st.sampled_from(["float32", "float64", "int8", "uint8", "bool", "bfloat16"]))
    if name == "jax" and dtype == "float64":
        dtype = "float32"
    shape = draw(st.sampled_from([(), (1,), (3,), (2, 2), (0,)]))
    found = []
    for _ in range(draw(st.integers(2, 4))):
        count = draw(st.integers(1, 5))
        plain = np.arange(count * int(np.prod(shape)), dtype=np.float32).reshape(count, *shape) % 7
        made = [
            ferry.convert(each.copy(), name, dtype=dtype, copy=True, casting="unsafe")
            for each in plain
        ]
        if draw(st.integers(0, 2)) == 0:
            made = [draw(these.tensors(name, dtype, shape=shape)) for _ in range(count)]
        if draw(st.booleans()):
            odd = draw(st.sampled_from([*ODD[name], *ANYWHERE]))
            place = draw(st.integers(0, count - 1))
            with contextlib.suppress(Exception):  # not every tensor can be made so odd
                made[place] = odd(made[place])
        found.append(draw(st.sampled_from([list, list, list, tuple]))(made))
    return found


@settings(max_examples=examples(400))
@given(histories(), st.sampled_from(EVERYWHERE), KEYWORDS, st.booleans())
def test_a_list_becomes_the_same_whatever_came_before_it(history, target, keywords, verified):
    """Values, dtype, memory, gradients and errors; in verifying mode the plans are compared too."""
    call = lambda x: outcome(lambda: (ferry.convert(x, target, **keywords), flat(x)))  # noqa: E731
    with described():
        expected = [call(x) for x in history]
    with run.verifying(verified):
        assert [call(x) for x in history] == expected
        assert [call(x) for x in history[::-1]] == expected[::-1]


def flat(x):
    """The tensors of a list that have memory."""
    kinds = (np.ndarray, torch.Tensor, type(jnp.ones(1)), tf.Tensor)
    return [
        each
        for each in x
        if isinstance(each, kinds)
        and not getattr(each, "is_sparse", False)
        and np.dtype("O") != getattr(each, "dtype", None)
    ]


@settings(max_examples=examples(100))
@given(histories(), st.sampled_from(["numpy", "torch"]), st.sampled_from([None, "float64"]))
def test_out_takes_what_a_new_tensor_would_have(history, target, dtype):
    """The list's shape must be that of `out`; what was there stays if it is refused."""

    def call(x):
        shape = (len(x), *getattr(x[0], "shape", ()))
        out = ferry.convert(np.full(shape, 9.0), target)
        seen = outcome(lambda: (ferry.convert(x, target, out=out, dtype=dtype), ()))
        return seen, repr(ferry.to_list(out))

    with described():
        expected = [call(x) for x in history]
    for _ in range(2):
        assert [call(x) for x in history] == expected


@pytest.mark.parametrize("like", [np.zeros(2, "float16"), torch.zeros(2, dtype=torch.float64)])
@settings(max_examples=examples(60))
@given(history=histories())
def test_like_decides_by_the_dtype_of_each_list(like, history):
    call = lambda x: outcome(lambda: (ferry.convert(x, like=like), flat(x)))  # noqa: E731
    with described():
        expected = [call(x) for x in history]
    for _ in range(2):
        assert [call(x) for x in history] == expected


# -- by the frameworks' own words ------------------------------------------------------------------

ARRAYS = {
    "arrays": [np.arange(4.0) + row for row in range(1000)],
    "frames": list(np.arange(64 * 84 * 84, dtype="uint32").astype("uint8").reshape(64, 84, 84)),
    "scalars": [np.array(row, "int16") for row in range(9)],
    "rows of a matrix": list(np.arange(12.0).reshape(4, 3)),
    "columns of a matrix": list(np.arange(12.0).reshape(4, 3).T),
    "large": [np.full((1 << 19) + 1, row, "uint8") for row in range(3)],
}


@pytest.mark.parametrize("name", ARRAYS)
def test_a_list_of_arrays_is_numpys_own_stack(name):
    """In new, writable, aligned memory, which is one block in C order."""
    x = ARRAYS[name]
    for keywords in ({}, {"copy": True}, {"dtype": x[0].dtype}):
        made = ferry.to_numpy(x, **keywords)
        assert made.dtype == x[0].dtype
        assert np.array_equal(made, np.stack(x))
        assert made.flags.writeable
        assert made.flags.c_contiguous
        assert made.ctypes.data % 64 == 0
        assert not any(np.shares_memory(made, each) for each in x)
        assert torch.equal(ferry.to_torch(x, **keywords), torch.from_numpy(np.stack(x)))


def test_a_list_of_losses_is_a_list_of_their_numbers():
    """With and without a graph, which stays as it is."""
    weight = torch.arange(3.0, requires_grad=True)
    for losses in (
        [weight.detach()[at] for at in range(3)],
        [(weight * at).sum() for at in range(3)],
    ):
        for _ in range(3):
            assert ferry.to_list(losses) == [each.item() for each in losses]
            assert ferry.to_numpy(losses).tolist() == [each.item() for each in losses]
            assert ferry.to_numpy(losses).flags.writeable
    assert all(each.requires_grad for each in losses)
    with pytest.raises(ferry.GradientError):
        ferry.to_list(losses, grad="error")


def test_a_list_in_a_graph_stays_there_in_every_call():
    """The gradient is that of `torch.stack`; without a graph to record, there is none."""
    weight = torch.tensor([1.0, 2.0], requires_grad=True)
    for dtype in (None, "float64"):
        for _ in range(3):
            made = ferry.to_torch([weight * 2, weight * 3], dtype=dtype)
            (gradient,) = torch.autograd.grad(made.sum(), weight)
            assert gradient.tolist() == [5.0, 5.0]
            with torch.no_grad():
                assert not ferry.to_torch([weight * 2, weight * 3], dtype=dtype).requires_grad


CHANGES = {
    "another dtype in the place of one": (
        "numpy",
        lambda x: x.__setitem__(2, x[2].astype("int32")),
    ),
    "another dtype of one": ("numpy", lambda x: setattr(x[2], "dtype", "int64")),
    "other lengths of one": ("numpy", lambda x: setattr(x[2], "shape", (2, 2))),
    "a longer list": ("numpy", lambda x: x.append(np.zeros(4))),
    "a shorter list": ("numpy", lambda x: x.pop()),
    "a graph": ("torch", lambda x: x[2].requires_grad_()),
    "other memory": ("torch", lambda x: x[2].set_(torch.full((4,), 9.0, dtype=torch.float64))),
    "other lengths": ("torch", lambda x: x[2].resize_(2, 2)),
    "freed memory": ("torch", lambda x: x[2].untyped_storage().resize_(0)),
    "other values": ("torch", lambda x: x[2].fill_(7)),
}


@pytest.mark.quick
@pytest.mark.parametrize("target", EVERYWHERE)
@pytest.mark.parametrize("keywords", [{}, {"dtype": "float32"}], ids=str)
@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.filterwarnings("ignore:Setting the .* on a NumPy array has been deprecated")
def test_a_list_that_was_changed_is_looked_at_again(name, keywords, target):
    """The same list, with the same tensors in it, one of which is no longer what it was."""
    framework, change = CHANGES[name]

    def seen():
        rows = [np.arange(4.0) + row for row in range(4)]
        x = [torch.tensor(row) for row in rows] if framework == "torch" else rows
        before = [outcome(lambda: (ferry.convert(x, target, **keywords), ())) for _ in range(2)]
        change(x)
        return before, [
            outcome(lambda: (ferry.convert(x, target, **keywords), ())) for _ in range(2)
        ]

    with described():
        expected = seen()
    assert seen() == expected


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_what_a_mode_changes_is_not_taken_for_what_it_was():
    """Tensors of a transformation have no memory of their own, though their types are the usual ones."""
    plain = [torch.ones(2), torch.ones(2)]
    for _ in range(2):
        assert ferry.to_numpy(plain).tolist() == [[1, 1], [1, 1]]
    with pytest.raises(ferry.ConversionError):
        torch.func.vmap(lambda x: ferry.to_numpy([x, x]))(torch.ones(2, 2))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(torch.ones(2), torch.ones(2))
        alone, together = (
            outcome(lambda: (ferry.to_numpy(dual), ())),
            outcome(lambda: (ferry.to_numpy([dual, dual]), ())),
        )
        assert together[0] == alone[0] or together[0].shape == (2, 2)


def test_memory_that_was_freed_is_refused_among_others():
    """As when it is alone; the process lives."""
    gone = torch.ones(1000)
    gone.untyped_storage().resize_(0)
    x = [torch.ones(1000)] * 3
    for target in EVERYWHERE:
        ferry.convert(x, target)
        for odd in ([*x, gone], [gone, *x]):
            with pytest.raises(ferry.ConversionError):
                ferry.convert(odd, target)


def test_a_recipe_keeps_no_tensor():
    """As it keeps none of a tensor that is converted alone."""
    x = [np.ones(3) * row for row in range(4)]
    for _ in range(2):
        ferry.to_jax(x, dtype="float32")
        ferry.to_torch(x, dtype="float32")
    kept = weakref.ref(x[2])
    del x
    gc.collect()
    assert kept() is None


# -- faults ----------------------------------------------------------------------------------------


def plain_history():
    """Lists of one kind; then one with another dtype, and one with other lengths, in the place of one."""
    arrays = [np.arange(4.0) + row for row in range(8)]
    return [arrays, [*arrays[:5], np.arange(4), *arrays[6:]], [*arrays[:5], np.arange(5.0)], arrays]


def is_seen(make=np.asarray):
    """Whether the lists become something else than when each tensor is described."""
    call = lambda x: outcome(lambda: (ferry.convert(x, "numpy"), flat(x)))  # noqa: E731
    history = [list(map(make, x)) for x in plain_history()]
    with described():
        expected = [call(x) for x in history]
    try:
        return [call(x) for x in history] != expected
    except AssertionError:
        return True


class Extension:
    """The extension with a fault in it."""

    def __init__(self, **faults):
        self.are_alike, self.join = (
            memory._joins_extension().are_alike,
            memory._joins_extension().join,
        )
        for name, fault in faults.items():
            setattr(self, name, fault)


def wrong_order(arrays, out, kind):
    """The last first."""
    if {(x.dtype, x.shape) for x in arrays} != {(out.dtype, out.shape[1:])}:
        return False
    out[...] = arrays[::-1]
    return True


def no_look(arrays, out, kind):
    """Whatever the others are, they are taken for what the first is."""
    out[...] = [np.resize(x, out.shape[1:]) for x in arrays]
    return True


@pytest.mark.quick
@extension
@pytest.mark.parametrize("fault", [wrong_order, no_look])
def test_a_planted_fault_of_the_extension_is_seen(fault, monkeypatch):
    assert not is_seen()
    faulty = Extension(join=fault)
    monkeypatch.setattr(memory, "_joins_extension", lambda: faulty)
    assert is_seen()


def test_a_result_that_shares_memory_with_a_member_is_seen(monkeypatch):
    def shared(_, arrays):
        return np.lib.stride_tricks.as_strided(arrays[0], (len(arrays), *arrays[0].shape), (0, 8))

    monkeypatch.setattr(type(registry.ready("numpy").quick), "join", shared)
    assert is_seen()


@pytest.mark.quick
def test_a_stale_signature_is_seen(monkeypatch):
    """All lists that begin alike are taken for alike, where no fast path comes before."""
    stale = lambda x: (type(x[0]), x[0].dtype)  # noqa: E731
    monkeypatch.setattr(together, "signature", stale)
    monkeypatch.setattr(type(registry.ready("torch").quick), "join", lambda *_: None)
    recipes.forget_recipes()
    assert is_seen(torch.from_numpy)
    monkeypatch.undo()
    recipes.forget_recipes()
