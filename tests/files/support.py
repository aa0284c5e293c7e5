"""What the tests of the formats share: arrays whose bits are awkward, and a comparison that sees every bit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorferry.core.dtypes import DTYPES, find
from tensorferry.files.base.contents import Contents
from tensorferry.files.base.stored import InMemory
from tensorferry.host.numpy_dtypes import numpy_dtype

NARROW = {
    "int2": 2,
    "int4": 4,
    "uint2": 2,
    "uint4": 4,
    "float4_e2m1fn": 4,
    "float6_e2m3fn": 6,
    "float6_e3m2fn": 6,
}
"""The bits of the dtypes that NumPy holds in a byte each."""


def awkward(dtype):
    """An array of a dtype, by canonical name, with every pattern of bits that a copy could spoil.

    All patterns of the dtypes of up to two bytes: both zeros, subnormals, infinities, quiet and
    signalling NaNs with payloads. For the wider ones the patterns at both ends, around the sign and
    among the NaNs, and some in between.
    """
    row = find(dtype)
    if dtype == "bool":
        return np.array([False, True, True, False, True])
    if dtype in NARROW:
        patterns = np.arange(1 << NARROW[dtype], dtype=np.uint8)
        if row.kind == "int":
            # Signed ones are held with their sign in the whole byte.
            half = 1 << (NARROW[dtype] - 1)
            patterns = ((patterns.astype(np.int16) ^ half) - half).astype(np.int8).view(np.uint8)
        return patterns.view(numpy_dtype(row.name))
    size = row.itemsize // 2 if row.kind == "complex" else row.itemsize
    whole = np.dtype(f"uint{8 * size}")
    if size <= 2:
        return np.arange(1 << (8 * size), dtype=whole).view(numpy_dtype(row.name))
    top = (1 << (8 * size)) - 1
    sign = 1 << (8 * size - 1)
    fraction = {4: 23, 8: 52}[size]
    infinity = (sign - 1) >> fraction << fraction
    chosen = [
        0,
        1,
        2,
        top,
        top - 1,
        sign,
        sign + 1,
        sign - 1,
        infinity,
        infinity + 1,
        infinity | sign | 5,
    ]
    chosen += [
        infinity | (1 << (fraction - 1)) | 0x2A,
        (1 << fraction) - 1,
        1 << fraction,
        0x0102030405060708 & top,
    ]
    drawn = np.random.default_rng(7).integers(0, top, 512 + len(chosen) % 2, whole, endpoint=True)
    patterns = np.concatenate([np.array(chosen, whole), drawn])
    return patterns[: len(patterns) // 2 * 2].view(numpy_dtype(row.name))


def sample(dtypes=None):
    """Arrays by name for dtypes (default: all of them): awkward bits flat and in two axes, 0-d, and empty."""
    found = {}
    for dtype in sorted(DTYPES if dtypes is None else dtypes):
        flat = awkward(dtype)
        found[f"{dtype}.flat"] = flat
        found[f"{dtype}.matrix"] = flat[: len(flat) // 2 * 2].reshape(2, -1)
        found[f"{dtype}.scalar"] = flat[-1:].reshape(())
        found[f"{dtype}.empty"] = np.zeros((3, 0, 2), flat.dtype)
    return found


def contents(arrays, *, metadata=None, tree=None):
    """Contents to write, from arrays by name; the same array under two names is one tensor."""
    tensors = {}
    for name, array in arrays.items():
        dtype = next(row.name for row in DTYPES.values() if numpy_dtype(row.name) == array.dtype)
        tensors[name] = InMemory(array, dtype, id(array))
    return Contents("memory", (), tensors, dict(metadata or {}), tree)


class Moments(NamedTuple):
    """A named tuple, as optimizers have them."""

    mu: object
    nu: object


def training():
    """A tree as of a training, with a tie, and its arrays by the names that follow from their places."""
    weight = np.arange(6, dtype=np.float32).reshape(2, 3)
    half = np.arange(4).astype(numpy_dtype("bfloat16"))
    tree = {
        "model": {"embed": weight, "head": weight, 3: half},
        "opt": ({}, Moments({"embed": weight + 1}, (weight + 2, None)), []),
        "step": 7,
        "lr": np.float32(0.5),
        "name": "run",
    }
    named = {"model.embed": weight, "model.head": weight, "model.3": half}
    return tree, named | {"opt.1.mu.embed": weight + 1, "opt.1.nu.0": weight + 2}


def arrays(contents):
    """What is in a file, all of it, by name."""
    return {name: stored.array() for name, stored in contents.tensors.items()}


def same_bits(a, b):
    """Whether two arrays have the same dtype, shape and bytes, or two mappings the same names in order and those."""
    if hasattr(a, "items"):
        return list(a) == list(b) and all(same_bits(a[name], b[name]) for name in a)
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
