"""PyTorch tensors that look ordinary and have no memory: no fast path may give what was never there (H29)."""

from __future__ import annotations

import warnings

import pytest
from tests.support import lives

import tensorferry as ferry
from tensorferry.execution.run import verifying

torch = pytest.importorskip("torch")

WAYS = {
    "to_numpy": ferry.to_numpy,
    "to_list": ferry.to_list,
    "to_jax": ferry.to_jax,
    "to_tensorflow": ferry.to_tensorflow,
    "copy": lambda x: ferry.to_numpy(x, copy=True),
    "tree": lambda x: ferry.convert_tree({"leaf": x}, "numpy"),
    "tied": lambda x: ferry.convert_tree([x, x], "numpy"),
    "snapshot": lambda x: ferry.snapshot([x]),
    "stack": lambda x: ferry.to_numpy([x, x]),
    "collate": lambda x: ferry.collate([{"leaf": x}, {"leaf": x}], "numpy"),
}


def convert_once():
    """Every path has been used."""
    for way in WAYS.values():
        way(torch.ones(2))


def refusal(way, x):
    """The words in which a conversion refuses a tensor."""
    with pytest.raises((ferry.UnsupportedTypeError, ferry.TreeError)) as caught:
        WAYS[way](x)
    return " ".join(map(str, getattr(caught.value, "exceptions", [caught.value])))


def freed():
    x = torch.arange(4.0)
    x.untyped_storage().resize_(0)
    return x


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["tensor", "parameter"])
def test_a_tensor_whose_storage_was_freed_is_refused(kind, way):
    """As FSDP frees it: PyTorch itself gives an array of what lay there before."""
    convert_once()
    x = freed() if kind == "tensor" else torch.nn.Parameter(torch.arange(4.0))
    if kind == "parameter":
        x.untyped_storage().resize_(0)
    assert "freed" in refusal(way, x)


@pytest.mark.parametrize("way", WAYS)
def test_a_view_of_freed_storage_is_refused(way):
    """Its address is its offset: PyTorch itself gives an array of it, which ends the process when it is read."""
    convert_once()
    whole = torch.arange(10.0)
    view = whole[3:]
    whole.untyped_storage().resize_(0)
    assert "freed" in refusal(way, view)


@pytest.mark.quick
def test_a_lazy_clone_stays_lazy():
    """Nothing is asked of a tensor that comes back as it is for which PyTorch would copy it."""
    convert_once()
    lazy = torch._lazy_clone(torch.arange(50.0))
    with verifying(on=False):
        ferry.to_torch(torch.ones(1))
        assert ferry.to_torch(lazy) is lazy
    assert torch._C._is_cow_tensor(lazy)


@pytest.mark.parametrize(
    "call",
    [
        "ferry.to_torch([x, x])",
        "ferry.to_torch(x, copy=True)",
        'ferry.to_torch(x, dtype="float64")',
        'ferry.collate([{"leaf": x}, {"leaf": x}], "torch")',
        'ferry.convert_tree({"leaf": x}, "torch", copy=True)',
        "ferry.to_torch([1.0, 2.0, 3.0, 4.0], out=x)",
        "ferry.to_torch(x)",
    ],
)
def test_a_freed_tensor_ends_no_process(call):
    """PyTorch's own copy of it, and its stack, do."""
    lives(
        "import torch, tensorferry as ferry\n"
        "x = torch.arange(4.0)\n"
        "ferry.to_torch(x)\n"
        "x.untyped_storage().resize_(0)\n"
        "try:\n"
        f"    {call}\n"
        "except ferry.UnsupportedTypeError as error:\n"
        "    assert 'freed' in str(error)\n"
        "else:\n"
        "    raise SystemExit('nothing was refused')\n"
    )


@pytest.mark.parametrize("way", WAYS)
def test_a_functional_tensor_is_refused(way):
    """Inside torch.func.functionalize a tensor's memory is another's."""
    convert_once()
    refused = []

    def inside(x):
        refused.append(refusal(way, x))
        return x

    torch.func.functionalize(inside)(torch.arange(5.0))
    assert "traced" in refused[0]


@pytest.mark.parametrize("way", WAYS)
def test_a_real_tensor_is_refused_where_tensors_are_faked(way):
    """Under FakeTensorMode PyTorch itself gives an array of what lay in memory."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    convert_once()
    x = torch.arange(6.0)
    with warnings.catch_warnings(), FakeTensorMode(allow_non_fake_inputs=True):
        # PyTorch's own, on the way to its array.
        warnings.simplefilter("ignore", UserWarning)
        words = refusal(way, x)
    assert "FakeTensorMode" in words


def test_an_empty_tensor_has_no_memory_and_is_none_of_these():
    """No address, and nothing to read: it converts, alone and in a list."""
    convert_once()
    assert ferry.to_numpy(torch.ones(0)).shape == (0,)
    assert ferry.to_list(torch.ones(2, 0)) == [[], []]
    assert ferry.to_torch([torch.ones(0), torch.ones(0)]).shape == (2, 0)
    empty = torch.ones(0)
    assert ferry.to_torch(empty) is empty
