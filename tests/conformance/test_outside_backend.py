"""A backend of an outside package: one small file, registered, and held to the whole contract.

Its framework is made up: `Tape`, a constant vector or matrix of float32 or uint8 on a `bytearray`.
What is here is all that such a package has to write, with its witness.
"""

from __future__ import annotations

import types
from typing import ClassVar

import numpy as np
import pytest
from tests.conformance.outside import groups, installed

import tensorferry as ferry
from tensorferry import testing
from tensorferry.backends.base import Backend
from tensorferry.core.capabilities import Capabilities, Dtypes, Memory
from tensorferry.core.info import TensorInfo
from tensorferry.testing.memory import Place

# -- the framework ------------------------------------------------------------------------------

ITEMSIZES = {"float32": 4, "uint8": 1}


class Tape:
    """Constant, compact memory at any address, or over another's that it keeps alive."""

    def __init__(self, memory, dtype, shape):
        self.memory = memory
        self.dtype = dtype
        self.shape = shape


Tape.__module__ = "tapes"
MODULE = types.ModuleType("tapes")
MODULE.Tape = Tape

# -- its backend --------------------------------------------------------------------------------


class TapeBackend(Backend):
    """`tapes.Tape`."""

    name = "tapes"
    module = "tapes"
    owns = ("tapes",)
    capabilities = Capabilities(
        dtypes=Dtypes(
            held=frozenset(ITEMSIZES),
            numbers={
                "bool": ("uint8",),
                "int": ("uint8",),
                "float": ("float32",),
                "complex": ("float32",),
            },
        ),
        memory=Memory(writable=False, strides="compact", alignment=0),
    )
    imports: ClassVar = {"tapes": "import tapes", "np": "import numpy as np"}

    def load(self):
        """There is nothing to take: the made-up framework is in this file."""

    def claims(self, kind):
        return issubclass(kind, Tape)

    def describe(self, x):
        return TensorInfo(
            self.name,
            x.shape,
            x.dtype,
            misalignment=self.pointer(x) or 0,
            writable=False,
            mutable=False,
        )

    def pointer(self, x):
        return (
            np.frombuffer(x.memory, np.uint8).__array_interface__["data"][0] if x.memory else None
        )

    def export(self, x):
        array = np.frombuffer(x.memory, x.dtype).reshape(x.shape)
        array.flags.writeable = False
        return array

    def adopt(self, array):
        memory = memoryview(array).cast("B") if array.size else b""
        return Tape(memory, str(array.dtype), array.shape)

    def copy(self, x):
        return Tape(bytearray(x.memory), x.dtype, x.shape)

    def snippet(self, call):
        x = call.x
        return {
            "export": f"np.frombuffer({x}.memory, {x}.dtype).reshape({x}.shape)",
            "adopt": f'tapes.Tape(memoryview({x}).cast("B"), str({x}.dtype), {x}.shape)',
            "copy": f"tapes.Tape(bytearray({x}.memory), {x}.dtype, {x}.shape)",
        }[call.verb]


# -- its witness --------------------------------------------------------------------------------


class TapeWitness(testing.Witness):
    """Tapes made and looked at by hand."""

    name = "tapes"
    module = "tapes"

    def build(self, content, dtype, shape):
        if dtype not in ITEMSIZES:
            raise TypeError(dtype)
        return Tape(bytearray(content), dtype, shape)

    def place(self, x):
        strides = [ITEMSIZES[x.dtype]]
        for length in reversed(x.shape[1:]):
            strides.insert(0, strides[0] * max(length, 1))
        start = np.frombuffer(x.memory, np.uint8).__array_interface__["data"][0] if x.memory else 0
        return Place(start, x.shape, tuple(strides[: len(x.shape)]), ITEMSIZES[x.dtype])

    def state(self, x):
        return x.dtype, x.shape, self.place(x) if x.memory else None

    def is_plain(self, x):
        return type(x) is Tape


@pytest.fixture(autouse=True, scope="module")
def tapes():
    """The package installed, its backend registered; gone again when the module's tests are done."""
    with installed(MODULE, TapeBackend(), TapeWitness()):
        yield


@pytest.mark.parametrize("group", groups(TapeWitness()), ids=str)
def test_an_outside_backend_keeps_the_contract(group):
    """A backend that is registered from outside passes the suite, from and to every other."""
    assert testing.check(group)


def test_it_is_a_target_and_a_source_like_any_other():
    """convert, explain, describe and like= know the outside framework without a change to this package."""
    tape = ferry.convert([1.5, 2.5], "tapes")
    assert type(tape) is Tape
    assert ferry.describe(tape).dtype == "float32"
    assert ferry.to_list(tape) == [1.5, 2.5]
    assert type(ferry.convert(np.zeros(2, np.uint8), like=tape)) is Tape
    assert ferry.explain(tape, "torch").result.framework == "torch"


def test_a_framework_without_a_witness_is_said_to_have_none():
    """The suite names what is missing instead of testing nothing."""
    with pytest.raises(LookupError, match="add_witness"):
        testing.witness_for("nobody")
