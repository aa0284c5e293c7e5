"""H71: the same bits come out on every thread, also where a framework has subnormals flushed to zero."""

from __future__ import annotations

import threading

import ml_dtypes
import numpy as np
import pytest

import tensorferry as ferry
from tensorferry.execution.run import verifying
from tensorferry.host import subnormals

jax = pytest.importorskip("jax")
torch = pytest.importorskip("torch")
tf = pytest.importorskip("tensorflow")

TINY = 1e-40
"""A number that is subnormal in float32 and bfloat16, and none in float64."""


def in_py_function(work):
    tf.py_function(lambda: work() and None, [], [])


def in_data_map(work):
    def call(x):
        work()
        return x

    list(tf.data.Dataset.range(1).map(lambda x: tf.numpy_function(call, [x], tf.int64)))


def in_pure_callback(work):
    def call(x):
        work()
        return np.float32(0)

    jax.jit(lambda x: jax.pure_callback(call, jax.ShapeDtypeStruct((), np.float32), x))(
        0.0
    ).block_until_ready()


def with_flush_denormal(work):
    def flushing():
        torch.set_flush_denormal(True)
        work()

    # A thread of its own: the switch is the thread's.
    thread = threading.Thread(target=flushing)
    thread.start()
    thread.join()


def in_a_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


PLACES = {
    "tf.py_function": in_py_function,
    "tf.data": in_data_map,
    "jax.pure_callback": in_pure_callback,
    "set_flush_denormal": with_flush_denormal,
    "a plain thread": in_a_thread,
}

# Made beforehand: on such a thread NumPy itself would make zeros.
WIDE = np.array([TINY, 5e-324, -3e-310, 1.5])
SINGLE = np.array([1, 0x80000001, 0x007FFFFF, 0x3FC00000], np.uint32).view(np.float32)
NARROW = np.array([1, 0x8001, 0x007F, 0x3FC0], np.uint16).view(ml_dtypes.bfloat16)
HALF = np.array([1, 0x8001, 0x03FF, 0x3E00], np.uint16).view(np.float16)
COMPLEX = np.array([complex(TINY, 5e-324), complex(1.5, TINY)])
RECORDED = torch.tensor(WIDE, requires_grad=True)

CALLS = {
    "float64 to float32": lambda: ferry.to_numpy(WIDE, dtype="float32"),
    "float64 to float32 in torch": lambda: ferry.to_torch(WIDE, dtype="float32").numpy(),
    "float64 to float32 in tensorflow": lambda: np.asarray(
        ferry.to_tensorflow(WIDE, dtype="float32")
    ),
    "float64 to bfloat16": lambda: ferry.to_numpy(WIDE, dtype="bfloat16"),
    "float32 to float64": lambda: ferry.to_numpy(SINGLE, dtype="float64"),
    "float32 to bfloat16": lambda: ferry.to_numpy(SINGLE, dtype="bfloat16"),
    "float32 to float8": lambda: ferry.to_numpy(SINGLE, dtype="float8_e5m2"),
    "bfloat16 to float32": lambda: ferry.to_numpy(NARROW, dtype="float32"),
    "float16 to float32": lambda: ferry.to_numpy(HALF, dtype="float32"),
    "complex128 to complex64": lambda: ferry.to_numpy(COMPLEX, dtype="complex64"),
    "a cast in a graph": lambda: ferry.to_torch(RECORDED, dtype="float32").detach().numpy(),
    "into out": lambda: ferry.to_numpy(WIDE, out=np.ones(4, np.float32)),
    "float32 to a list": lambda: np.array(ferry.to_list(SINGLE)),
    "bfloat16 to a list": lambda: np.array(ferry.to_list(NARROW)),
    "torch to a list": lambda: np.array(ferry.to_list(torch.from_numpy(SINGLE))),
    "a list to torch": lambda: ferry.to_torch([TINY, 1.5]).numpy(),
    "a list to tensorflow": lambda: np.asarray(ferry.to_tensorflow([TINY, 1.5])),
    "a list of scalars": lambda: ferry.to_numpy([SINGLE[0], np.float64(1.5)]),
    "a tree": lambda: np.asarray(ferry.convert_tree({"x": WIDE}, "torch", dtype="float32")["x"]),
    "a batch": lambda: ferry.collate([WIDE, WIDE], "numpy", dtype="float32"),
    "float64 to int32": lambda: ferry.to_numpy(WIDE, dtype="int32"),
    "float64 to bool": lambda: ferry.to_numpy(WIDE, dtype="bool", casting="same_value"),
    "float64 to float32, kept": lambda: ferry.to_numpy(WIDE, dtype="float32", casting="same_value"),
    "described": lambda: ferry.describe([TINY, 1.5]),
}


def outcome(call):
    """The bits that a call gives, or its error."""
    try:
        result = call()
    except ferry.ConversionError as error:
        return type(error), str(error)
    return (result.dtype, result.tobytes()) if isinstance(result, np.ndarray) else result


@pytest.mark.parametrize("paths", [True, False], ids=["fast paths", "planned"])
@pytest.mark.parametrize("place", PLACES)
def test_H71_every_thread_gives_the_same_bits(place, paths):
    """What callbacks and `set_flush_denormal` do to the processor changes no conversion."""
    seen, flushed = {}, []

    def work():
        flushed.append(subnormals.are_flushed())
        with verifying(not paths):
            seen.update({name: outcome(call) for name, call in CALLS.items()})
        flushed.append(subnormals.are_flushed())

    with verifying(not paths):
        expected = {name: outcome(call) for name, call in CALLS.items()}
    PLACES[place](work)

    assert flushed[0] == flushed[1], "the thread's own setting is left as it was"
    assert seen == expected


def test_H71_such_threads_do_flush():
    """The places above are what they are for: NumPy's own cast loses a subnormal on one of them at least."""
    lost = []
    with_flush_denormal(lambda: lost.append(WIDE.astype(np.float32)[0] == 0))

    assert lost == [True]
