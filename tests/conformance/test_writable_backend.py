"""A writable backend of an outside package, of host memory and without a graph, held to the whole contract.

Its framework is made up: a `Slate` is memory at an address with any strides, that it keeps alive
and that may be closed to writes. No ndarray is in it, so nothing of what NumPy promises holds by
itself.
"""

from __future__ import annotations

import ctypes
import types
from typing import ClassVar

import numpy as np
import pytest
from tests.conformance.outside import groups, installed

import tensorferry as ferry
from tensorferry import testing
from tensorferry.backends import registry, verbs
from tensorferry.backends.base import Backend
from tensorferry.core.capabilities import Capabilities, Dtypes, Memory
from tensorferry.core.info import TensorInfo
from tensorferry.testing.memory import LAYOUTS, Place

# -- the framework ------------------------------------------------------------------------------

ITEMSIZES = {"bool": 1, "uint8": 1, "int64": 8, "float32": 4, "complex64": 8}


class Slate:
    """Memory with any strides, its owner, and whether it can be written."""

    def __init__(self, owner, address, dtype, shape, strides, writable=True):
        self.owner = owner
        self.address = address
        self.dtype = dtype
        self.shape = shape
        self.strides = strides
        self.writable = writable


Slate.__module__ = "slates"
MODULE = types.ModuleType("slates")
MODULE.Slate = Slate

# -- its backend --------------------------------------------------------------------------------


class SlateBackend(Backend, verbs.PresentsReadOnly, verbs.Writes):
    """`slates.Slate`."""

    name = "slates"
    module = "slates"
    owns = ("slates",)
    capabilities = Capabilities(
        dtypes=Dtypes(
            held=frozenset(ITEMSIZES),
            numbers={
                "bool": ("bool",),
                "int": ("int64",),
                "float": ("float32",),
                "complex": ("complex64",),
            },
        ),
        memory=Memory(writable=True, read_only=True, out=True),
    )
    imports: ClassVar = {"slates": "import slates", "np": "import numpy as np"}

    def load(self):
        """There is nothing to take: the made-up framework is in this file."""

    def claims(self, kind):
        return issubclass(kind, Slate)

    def describe(self, x):
        # Memory that is closed here may be open through another slate.
        return TensorInfo(
            self.name,
            x.shape,
            x.dtype,
            None,
            x.strides,
            x.address,
            writable=x.writable,
            mutable=True,
        )

    def pointer(self, x):
        return x.address

    def export(self, x):
        ends = [
            (length - 1) * step
            for length, step in zip(x.shape, x.strides, strict=True)
            if length > 1
        ]
        low = sum(end for end in ends if end < 0)
        size = sum(map(abs, ends)) + ITEMSIZES[x.dtype] if 0 not in x.shape else 0
        block = (ctypes.c_char * size).from_address(x.address + low)
        block.owner = x.owner
        array = np.ndarray(x.shape, x.dtype, block, -low, x.strides)
        array.flags.writeable = x.writable
        return array

    def adopt(self, array):
        return Slate(
            array,
            array.__array_interface__["data"][0],
            str(array.dtype),
            array.shape,
            array.strides,
        )

    def read_only(self, x):
        return Slate(x.owner, x.address, x.dtype, x.shape, x.strides, writable=False)

    def write(self, x, out):
        self.export(out)[...] = x

    def snippet(self, call):
        if call.verb == "write":
            return f"slates.write({call.x}, out)"
        return f"slates.{call.verb}({call.x})"


# -- its witness --------------------------------------------------------------------------------


class SlateWitness(testing.Witness):
    """Slates made and looked at by hand, byte by byte."""

    name = "slates"
    module = "slates"
    writes = True
    layouts = (*LAYOUTS, "closed")

    def build(self, content, dtype, shape):
        strides = [ITEMSIZES[dtype]] if dtype in ITEMSIZES else self._refuse(dtype)
        for length in reversed(shape[1:]):
            strides.insert(0, strides[0] * max(length, 1))
        memory = ctypes.create_string_buffer(content, max(len(content), 1))
        return Slate(memory, ctypes.addressof(memory), dtype, shape, tuple(strides[: len(shape)]))

    def _refuse(self, dtype):
        raise TypeError(dtype)

    def lay(self, image, dtype):
        memory = ctypes.create_string_buffer(len(image.block) + 64)
        start = ctypes.addressof(memory) + -ctypes.addressof(memory) % 64
        ctypes.memmove(start, image.block, len(image.block))
        return Slate(memory, start + image.offset, dtype, image.shape, image.strides)

    def make(self, layout, dtype):
        sample = super().make(layout.replace("closed", "aligned"), dtype)
        if layout == "closed":
            whole = sample.x
            sample.x = SlateBackend().read_only(whole)
            # Closed itself; the slate that it was made of can still be written.
            sample.writable, sample.poke = False, lambda content: self.poke(whole, content)
        return sample

    def place(self, x):
        return Place(x.address, x.shape, x.strides, ITEMSIZES[x.dtype])

    def state(self, x):
        return x.dtype, x.writable, self.place(x)

    def is_plain(self, x):
        return type(x) is Slate

    def writable(self, x):
        return x.writable

    def poke(self, x, content):
        starts = [x.address]
        for length, step in zip(x.shape, x.strides, strict=True):
            starts = [start + at * step for start in starts for at in range(length)]
        size = ITEMSIZES[x.dtype]
        for at, start in enumerate(starts):
            ctypes.memmove(start, content[at * size : (at + 1) * size], size)


@pytest.fixture(autouse=True, scope="module")
def slates():
    """The package installed, its backend registered; gone again when the module's tests are done."""
    with installed(MODULE, SlateBackend(), SlateWitness()):
        yield


@pytest.mark.parametrize("group", groups(SlateWitness()), ids=str)
def test_a_writable_backend_keeps_the_contract(group):
    """From and to every framework, in every layout of host memory: values, memory, writes, and what the plan said."""
    assert testing.check(group)


def silent_copy(self, array):
    return SlateWitness().build(array.tobytes(), str(array.dtype), array.shape)


def same(self, x):
    return x


def never_mutable(self, x):
    return SlateBackend.describe(self, x)._replace(mutable=x.writable)


@pytest.mark.parametrize(
    ("verb", "lie", "cells"),
    [
        ("adopt", silent_copy, testing.Group("numpy", "aligned", "slates")),
        ("read_only", same, testing.Group("numpy", "view read-only", "slates")),
        ("describe", never_mutable, testing.Group("slates", "closed", "jax")),
    ],
    ids=[
        "a silent copy",
        "a read-only view that can be written",
        "memory that is said to be nobody's to write",
    ],
)
def test_the_suite_finds_what_breaks_the_contract(verb, lie, cells):
    """Each of three lies of such a backend is a finding: none of them passes because nobody looks."""
    true = registry.backend_named("slates")
    registry.register(type("LyingBackend", (SlateBackend,), {verb: lie})())
    try:
        with pytest.raises(testing.NonConformance):
            testing.check(cells)
    finally:
        registry.register(true)
    assert testing.check(cells)


def test_it_is_written_into_and_stands_in_trees_like_any_other():
    """out=, trees, batches and snapshots know the outside framework by what it declares alone."""
    slate = ferry.convert([[1.5, 2.5], [3.5, 4.5]], "slates")
    assert type(slate) is Slate
    filled = ferry.convert([[5, 6], [7, 8]], "slates", dtype="float32", out=slate)
    assert filled is slate
    assert ferry.to_list(slate) == [[5.0, 6.0], [7.0, 8.0]]
    tree = ferry.convert_tree({"a": np.arange(3), "b": [slate]}, "slates")
    assert ferry.to_list(tree["a"]) == [0, 1, 2]
    assert tree["b"][0] is slate
    kept = ferry.snapshot(tree)
    assert type(kept["b"][0]) is Slate
    SlateWitness().poke(slate, bytes(16))
    assert ferry.to_list(kept["b"][0]) == [[5.0, 6.0], [7.0, 8.0]]
    assert ferry.to_list(ferry.collate([slate, slate], "slates")) == [[[0.0, 0.0]] * 2] * 2
    closed = ferry.convert(np.frombuffer(b"abcd", np.uint8), "slates")
    assert closed.writable is False
    with pytest.raises(ferry.UnsupportedTypeError, match="read-only"):
        ferry.convert([1, 2, 3, 4], "slates", dtype="uint8", out=closed)
    assert registry.backend_of(slate).name == "slates"
