"""Hazards at the border: objects of other libraries, known only by the protocols that they have."""

from __future__ import annotations

import mmap
import re

import numpy as np
import pytest
from tests.support import EVERYWHERE, TARGETS, address, bits, counted, dtype_name, frozen

import tensorferry as ferry

jax = pytest.importorskip("jax")
torch = pytest.importorskip("torch")
tf = pytest.importorskip("tensorflow")


class Dlpack:
    """Has only ``__dlpack__``."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OldDlpack(Dlpack):
    """Knows no versions, as before DLPack 1.0."""

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__(stream=stream)


class Interface:
    """Has only ``__array_interface__``."""

    def __init__(self, array):
        self.array = array
        self.__array_interface__ = array.__array_interface__


class Array:
    """Has only ``__array__``."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array if dtype is None else self.array.astype(dtype)


PROTOCOLS = {
    "__dlpack__": Dlpack,
    "old __dlpack__": OldDlpack,
    "__array_interface__": Interface,
    "__array__": Array,
}


@pytest.mark.parametrize("target", EVERYWHERE)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_H61_each_protocol_is_a_source_for_every_target(protocol, target):
    """Values and dtype arrive from an object that has only one protocol."""
    array = counted((4, 16))
    foreign = PROTOCOLS[protocol](array)
    assert ferry.describe(foreign).framework == "array-like"
    result = ferry.convert(foreign, target)
    assert ferry.to_list(result) == array.tolist()
    assert target == "python" or dtype_name(result) == "float32"


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("target", TARGETS)
def test_H61_its_memory_is_shared_on_request(protocol, target):
    """``copy=False`` uses the producer's memory; the default follows the sharing rule."""
    array = counted((4, 16))
    foreign = PROTOCOLS[protocol](array)
    shared = ferry.convert(foreign, target, copy=False)
    assert address(shared) == address(array)
    default = ferry.convert(foreign, target)
    sharing = ("numpy",) if protocol == "old __dlpack__" else ("numpy", "torch")
    assert ferry.shares_memory(array, default) == (target in sharing)
    assert not ferry.shares_memory(array, ferry.convert(foreign, target, copy=True))


@pytest.mark.parametrize("protocol", ["__dlpack__", "__array_interface__", "__array__"])
def test_H61_the_read_only_bit_is_honoured(protocol):
    """A read-only producer stays read-only in NumPy, and is copied for torch."""
    array = frozen(np.arange(64, dtype=np.float32))
    foreign = PROTOCOLS[protocol](array)
    view = ferry.to_numpy(foreign)
    assert address(view) == address(array)
    assert not view.flags.writeable
    assert not ferry.shares_memory(ferry.to_torch(foreign), array)


def test_H61_one_order_for_every_target():
    """``__dlpack__`` is asked before ``__array_interface__``, and that before ``__array__``."""

    class Everything(Dlpack):
        asked = ()

        def __dlpack__(self, **keywords):
            Everything.asked += ("dlpack",)
            return super().__dlpack__(**keywords)

        def __array__(self, dtype=None, copy=None):
            Everything.asked += ("array",)
            return self.array

        @property
        def __array_interface__(self):
            Everything.asked += ("interface",)
            return self.array.__array_interface__

    for target in EVERYWHERE:
        Everything.asked = ()
        ferry.convert(Everything(counted((4,))), target)
        assert "dlpack" in Everything.asked
        assert "array" not in Everything.asked


def test_H61_the_buffer_protocol():
    """ctypes arrays and other buffers are sources too."""
    import ctypes

    numbers = (ctypes.c_int32 * 4)(1, 2, 3, 4)
    for target in TARGETS:
        result = ferry.convert(numbers, target)
        assert ferry.to_list(result) == [1, 2, 3, 4]
        assert dtype_name(result) == "int32"
    shared = ferry.to_numpy(numbers)
    shared[0] = 9
    assert numbers[0] == 9


def test_H61_the_producer_lives_as_long_as_the_result():
    """Memory that came through a capsule is freed by its deleter once, after the last view."""
    import gc
    import weakref

    class Tracked(np.ndarray):
        pass

    array = counted((1 << 16,)).view(Tracked)
    gone = weakref.ref(array)
    result = ferry.to_numpy(Dlpack(array))
    expected = bits(np.asarray(array))
    part = result[10:]
    del array, result
    gc.collect()
    assert gone() is not None
    assert part.tobytes() == expected[40:]
    del part
    gc.collect()
    assert gone() is None


def test_H61_a_gpu_interface_is_refused_with_the_way():
    """``__cuda_array_interface__`` alone, without CuPy: the message names it, and the hint who takes it."""

    class OnGpu:
        __cuda_array_interface__ = {  # noqa: RUF012
            "shape": (2,),
            "typestr": "<f4",
            "data": (64, False),
            "version": 3,
        }

    for target in EVERYWHERE:
        with pytest.raises(ferry.DeviceError, match="__cuda_array_interface__") as caught:
            ferry.convert(OnGpu(), target)
        assert caught.value.hint == "import cupy"


@pytest.mark.parametrize("target", EVERYWHERE)
def test_H62_random_keys_of_jax_are_refused_by_name(target):
    """The hint is jax.random.key_data, which has numbers."""
    keys = jax.random.split(jax.random.key(0), 3)
    if target == "jax":
        assert ferry.to_jax(keys) is keys  # nothing is converted
        return
    with pytest.raises(ferry.UnsupportedTypeError, match="random keys") as caught:
        ferry.convert(keys, target)
    assert caught.value.hint == "jax.random.key_data(x)"
    assert ferry.to_numpy(jax.random.key_data(keys)).dtype == np.uint32


class Failing:
    """Raises when it is asked for an attribute, though not as Python expects it."""

    def __init__(self, name, error):
        self.name, self.error = name, error

    def __getattr__(self, name):
        if name == self.name:
            raise self.error
        raise AttributeError(name)


def closed_map():
    found = mmap.mmap(-1, 32)
    found.close()
    return found


def released_view():
    view = memoryview(bytearray(8))
    view.release()
    return view


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: Failing("__dlpack__", RuntimeError("off")), RuntimeError),
        (lambda: Failing("__array_interface__", ValueError("off")), ValueError),
        (lambda: Failing("__array__", KeyError("off")), KeyError),
        (closed_map, ValueError),
        (released_view, ValueError),
    ],
)
def test_H63_what_fails_when_it_is_looked_at_is_refused(make, kind):
    """Properties that raise, a closed map and a released view: the producer's error is the cause."""
    for call in (ferry.describe, ferry.to_numpy, ferry.to_torch):
        with pytest.raises(ferry.UnsupportedTypeError) as caught:
            call(make())
        assert isinstance(caught.value.__cause__, kind)


def test_H61_characters_are_bytes_at_any_step():
    """A buffer of format "c" cannot be cast where it has gaps, and its bytes are numbers all the same."""
    view = memoryview(b"abcdef").cast("c")
    assert ferry.to_list(view[::2]) == [97, 99, 101]
    assert ferry.to_numpy(view).tolist() == list(b"abcdef")


def test_H62_a_description_is_no_tensor():
    """A TensorInfo is a tuple by its class, and says what it is."""
    for call in (ferry.describe, ferry.to_numpy):
        with pytest.raises(ferry.UnsupportedTypeError, match="A TensorInfo describes a tensor"):
            call(ferry.TensorInfo("numpy", (2,)))


@pytest.mark.parametrize("target", EVERYWHERE)
@pytest.mark.unwatched
def test_H63_the_producersthe_producers_own_error_is_the_cause(target):
    """A TypeError inside ``__dlpack__`` is neither swallowed nor tried again."""
    calls = []

    class Broken:
        def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
            calls.append(max_version)
            raise TypeError("the sensor is not ready")

        def __dlpack_device__(self):
            return (1, 0)

        def __array__(self, dtype=None, copy=None):
            calls.append("array")
            return np.zeros(2)

    with pytest.raises(ferry.UnsupportedTypeError, match="the sensor is not ready") as caught:
        ferry.convert(Broken(), target)
    assert isinstance(caught.value.__cause__, TypeError)
    assert len(calls) == 1


@pytest.mark.parametrize(
    "call", [ferry.to_numpy, ferry.describe, lambda x: ferry.explain(x, "torch")]
)
def test_a_list_of_descriptions_is_not_read_as_rows(call):
    """A `TensorInfo` is a named tuple: its fields are no row of numbers."""
    info = ferry.TensorInfo("torch", (2,))

    with pytest.raises(
        ferry.UnsupportedTypeError, match=r"The TensorInfo at x\[0\] describes a tensor"
    ):
        call([info, info])


@pytest.mark.parametrize("call", [ferry.collate, ferry.explain_collate, ferry.convert_tree])
def test_a_description_is_a_leaf_of_every_tree(call):
    """It is no container of its fields: where no plan is asked for it is refused, with its path."""
    within = [{"x": {"y": ferry.TensorInfo("torch", (2,))}}] * 2

    with pytest.raises(ferry.ConversionError) as refused:
        call(within, "numpy")
    assert re.search(
        r'A TensorInfo describes a tensor, and has no values\. - at .*\["y"\]', str(refused.value)
    )


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda x: ferry.convert(x, "python"), 'explain(x, "python") says what would be done'),
        (
            lambda x: ferry.convert_tree({"a": x}, "python"),
            'explain(x["a"], "python") says what would be done',
        ),
        (
            lambda x: ferry.to_list([x, x]),
            'explain_tree(x, "python") says what would be done with each',
        ),
    ],
)
def test_the_hint_about_a_description_has_the_target(call, hint):
    with pytest.raises(ferry.ConversionError) as refused:
        call(ferry.TensorInfo("torch", (2,)))
    assert str(refused.value).endswith(f"Hint: {hint}")
