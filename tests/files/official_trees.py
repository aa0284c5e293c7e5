"""Trees as people have them, and what stands in them, told without tensorferry."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

import ml_dtypes
import numpy as np
import torch

LONE = "tensor"
"""The name of a tensor that is the whole tree, in files that have names."""


class Point(NamedTuple):
    """A named tuple of tensors."""

    x: object
    y: object


def patterns(dtype, shape, seed=0):
    """An array of random bits: NaNs with payloads, both zeros and infinities among them."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    size = int(np.prod(shape))
    drawn = np.random.default_rng(seed).integers(0, 256, size * kind.itemsize, np.uint8)
    if dtype == "bool":
        drawn &= 1
    array = drawn.view(kind)
    special = np.array([-0.0, np.inf, -np.inf, np.nan]) if kind.kind in "fV" else np.zeros(0)
    array[: len(special)] = special[:size]
    return array.reshape(shape)


def as_torch(array):
    """The same bits as a tensor of PyTorch."""
    if array.dtype.name in dir(ml_dtypes):
        raw = torch.from_numpy(array.reshape(-1).view(f"i{array.itemsize}").copy())
        return raw.view(getattr(torch, array.dtype.name)).reshape(array.shape)
    return torch.from_numpy(array.copy())


def in_numpy(leaf):
    """A tensor of any framework as an array with the same bits; what is no tensor as it is."""
    if isinstance(leaf, torch.Tensor):
        leaf = leaf.detach().contiguous()
        name = str(leaf.dtype).removeprefix("torch.")
        kind = np.dtype(getattr(ml_dtypes, name, name))
        return leaf.reshape(-1).view(torch.uint8).numpy().view(kind).reshape(tuple(leaf.shape))
    return np.asarray(leaf) if type(leaf).__module__.startswith("jax") else leaf


def plain(tensor):
    return {
        "weight": tensor(patterns("float32", (3, 4))),
        "scale": tensor(patterns("float16", (5,))),
        "ids": tensor(patterns("int64", (6,))),
    }


def dtypes(tensor):
    kinds = ("bool", "uint8", "int8", "int16", "int32", "float64", "complex64", "complex128")
    return {kind: tensor(patterns(kind, (4, 2))) for kind in kinds}


def nested(tensor):
    layers = [{"w": tensor(patterns("float32", (2, 3), seed))} for seed in range(11)]
    return {
        "model": {"layers": layers, "head": {"b": tensor(patterns("float32", (3,)))}},
        "extra": [[tensor(patterns("int32", (4,)))]],
    }


def pairs(tensor):
    one, two, three = (tensor(patterns("float32", (3,), seed)) for seed in range(3))
    return {"pair": (one, two), "one": (three,)}


def named_tuple(tensor):
    one, two = (tensor(patterns("float32", (3,), seed)) for seed in range(2))
    return {"point": Point(one, two)}


def ties(tensor):
    shared = tensor(patterns("float32", (4, 3)))
    # The first name is not the first of the alphabet.
    return {
        "tok": shared,
        "norm": tensor(patterns("float32", (3,), 1)),
        "head": {"weight": shared},
        "again": shared,
    }


def bfloat16(tensor):
    return {
        "matrix": tensor(patterns("bfloat16", (4, 6))),
        "vector": tensor(patterns("bfloat16", (5,), 1)),
    }


def float8(tensor):
    return {
        "matrix": tensor(patterns("float8_e4m3fn", (4, 6))),
        "vector": tensor(patterns("float8_e5m2", (5,))),
    }


def scalars(tensor):
    return {
        "loss": tensor(patterns("float32", (), 1)),
        "count": tensor(patterns("int64", (), 2)),
        "scale": np.float32(1.1),
        "step": 7,
        "samples": 2**40,
        "rate": 0.1,
        "on": True,
    }


def values(tensor):
    return {"w": tensor(patterns("float32", (3,))), "name": "näme", "nothing": None}


def empty_tensors(tensor):
    return {
        "none": tensor(np.zeros((0, 3), np.float32)),
        "some": tensor(patterns("float32", (2,))),
    }


def empty_containers(tensor):
    return {"w": tensor(patterns("float32", (3,))), "dict": {}, "list": [], "tuple": ()}


def integer_keys(tensor):
    moments = {key: tensor(patterns("float32", (2,), key)) for key in (0, 1, 10)}
    return {"state": moments, "w": tensor(patterns("float32", (3,)))}


def alone(tensor):
    return tensor(patterns("float32", (3, 4)))


def alone_in_bfloat16(tensor):
    return tensor(patterns("bfloat16", (3, 4)))


def sequence(tensor):
    return [tensor(patterns("float32", (2,), seed)) for seed in range(3)]


def layers(tensor):
    """As layers of Keras are named."""
    return {
        "dense": {
            "kernel": tensor(patterns("float32", (3, 4))),
            "bias": tensor(patterns("float32", (4,))),
        },
        "dense_1": {
            "kernel": tensor(patterns("float32", (4, 2))),
            "bias": tensor(patterns("float32", (2,), 1)),
        },
    }


def layers_in_bfloat16(tensor):
    return {
        "dense": {
            "kernel": tensor(patterns("bfloat16", (3, 4))),
            "bias": tensor(patterns("bfloat16", (4,))),
        }
    }


def tied_layers(tensor):
    shared = tensor(patterns("float32", (3, 3)))
    return {"dense": {"kernel": shared}, "dense_1": {"kernel": shared}}


def _module():
    torch.manual_seed(7)
    module = torch.nn.Sequential(
        OrderedDict(
            embed=torch.nn.Embedding(5, 3),
            norm=torch.nn.BatchNorm1d(3),
            head=torch.nn.Linear(3, 5, bias=False),
        )
    )
    module.head.weight = module.embed.weight
    return module


def tied_model(tensor):
    """The state dict of a module: two of its tensors are one parameter."""
    return _module().state_dict()


def torch_training(tensor):
    """A real AdamW after a step, with its model."""
    module = _module()
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
    module(torch.arange(5)).square().sum().backward()
    optimizer.step()
    return {"model": module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}


def _train_state():
    import jax.numpy as jnp
    import optax
    from flax.training.train_state import TrainState

    arrays = {"kernel": patterns("int8", (3, 2)), "bias": patterns("int8", (2,))}
    params = {"dense": {name: jnp.asarray(array, jnp.float32) for name, array in arrays.items()}}
    made = TrainState.create(apply_fn=None, params=params, tx=optax.adamw(1e-3))
    return made.apply_gradients(grads=params)


def optax_training(tensor):
    """The parameters, a real optax state after a step, and the step, in a dict."""
    state = _train_state()
    return {"params": state.params, "opt_state": state.opt_state, "step": state.step}


def train_state(tensor):
    """The same as Flax's own dataclass."""
    return _train_state()


class Sample(NamedTuple):
    """A tree, and the ways in which its files are made."""

    build: object
    routes: tuple[str, ...] = ("save numpy", "save torch", "convert")


IN_TORCH = ("save torch", "convert")
SAMPLES = {
    "plain": Sample(plain),
    "dtypes": Sample(dtypes),
    "nested": Sample(nested),
    "tuple": Sample(pairs),
    # A pickle of it asks for its class.
    "named tuple": Sample(named_tuple, ("save numpy", "save torch")),
    "ties": Sample(ties),
    "tied model": Sample(tied_model, IN_TORCH),
    "bfloat16": Sample(bfloat16),
    "float8": Sample(float8),
    "scalars": Sample(scalars),
    "values": Sample(values),
    "empty tensors": Sample(empty_tensors),
    "empty containers": Sample(empty_containers),
    "integer keys": Sample(integer_keys),
    "alone": Sample(alone),
    "alone in bfloat16": Sample(alone_in_bfloat16),
    "list": Sample(sequence),
    "layers": Sample(layers),
    "layers in bfloat16": Sample(layers_in_bfloat16),
    "tied layers": Sample(tied_layers),
    "torch training": Sample(torch_training, IN_TORCH),
    # JAX's own, which `torch.save` has no way for.
    "optax training": Sample(optax_training, ("save jax",)),
    "train state": Sample(train_state, ("save jax",)),
}


def children(node):
    """The keys and values of a container; ``None`` for anything else."""
    if isinstance(node, dict):
        return list(node.items())
    if isinstance(node, tuple) and hasattr(node, "_fields"):
        return list(zip(node._fields, node, strict=True))
    return list(enumerate(node)) if isinstance(node, (list, tuple)) else None


def mapped(tree, leaf, container):
    """A tree with each leaf and each container made anew.

    Args:
        tree: The tree.
        leaf: Called with what is no container.
        container: Called with a container and its new children.
    """
    found = children(tree)
    if found is None:
        return leaf(tree)
    return container(tree, [(key, mapped(child, leaf, container)) for key, child in found])


def as_it_was(node, pairs):
    """A container of the same class."""
    if isinstance(node, dict):
        return type(node)(pairs)
    inside = [child for _, child in pairs]
    return type(node)(*inside) if hasattr(node, "_fields") else type(node)(inside)


def arrays(tree):
    """The tree in arrays of NumPy, one object where the tensors are one memory."""
    seen = {}

    def leaf(value):
        array = in_numpy(value)
        if not isinstance(array, np.ndarray) or not array.size:
            return array
        key = (array.__array_interface__["data"][0], array.shape, array.strides, array.dtype)
        return seen.setdefault(key, array)

    return mapped(tree, leaf, as_it_was)


def names(tree, prefix=""):
    """The arrays of a tree by their dotted names, in order."""
    found = children(tree)
    if found is None:
        return {prefix or LONE: tree} if isinstance(tree, np.ndarray) else {}
    result = {}
    for key, child in found:
        result |= names(child, f"{prefix}.{key}" if prefix else str(key))
    return result


def later_names(named):
    """The names of arrays that have another name before, and that name."""
    first = {}
    pairs = {name: first.setdefault(id(array), name) for name, array in named.items()}
    return {name: before for name, before in pairs.items() if before != name}


def same_bits(found, wanted):
    """Two arrays have one dtype, shape and bytes."""
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    assert np.ascontiguousarray(found).tobytes() == np.ascontiguousarray(wanted).tobytes()


def same_tree(found, wanted):
    """Two trees have the same containers, keys and values, and all bits of their tensors."""
    inside = children(wanted)
    if inside is None:
        _same_leaf(found, wanted)
        return
    assert type(found) is type(wanted), (type(found), type(wanted))
    if isinstance(wanted, dict):
        assert set(found) == set(wanted)
    assert len(found) == len(wanted)
    there = dict(children(found))
    for key, child in inside:
        same_tree(there[key], child)


def _same_leaf(found, wanted):
    found, wanted = in_numpy(found), in_numpy(wanted)
    assert type(found) is type(wanted), (found, wanted)
    if isinstance(wanted, (np.ndarray, np.generic)):
        same_bits(found, wanted)
    else:
        assert found == wanted
