"""CuPy: writable arrays in the memory of CUDA devices; there is none on the host."""

from __future__ import annotations

import ctypes
import importlib
import os
from collections import deque
from contextlib import suppress
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.dtypes import ORDINARY
from ...core.info import TensorInfo
from ...core.layout import packed_strides
from ...devices.staging import Staging
from ...errors import UnsupportedTypeError
from ...host import casts, memory, packing
from ...host.dlpack import Offer
from ...host.numpy_dtypes import by_numpy, numpy_dtype
from ...planning.rules import agrees
from .. import registry
from .declared import CAPABILITIES, CARRIED, DECLARED
from .snippets import snippet

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from typing_extensions import Self

    from ...core.capabilities import Capabilities
    from ...devices.streams import Stream

Array = np.ndarray[Any, Any]

_NAMES = by_numpy()


@lru_cache(maxsize=4096)
def _described(
    shape: tuple[int, ...], name: str, device: str, strides: tuple[int, ...], misalignment: int
) -> TensorInfo:
    return TensorInfo("cupy", shape, name, device, strides, misalignment, writable=True, mutable=True)


class CupyBackend(Staging):
    """`cupy.ndarray`."""

    name = "cupy"
    module = "cupy"
    owns = ("cupy", "cupyx")
    rank = 5
    install = "pip install cupy-cuda12x"
    imports = DECLARED.imports
    snippet = staticmethod(snippet)  # pyright: ignore[reportAssignmentType]

    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    def load(self) -> None:
        self.cupy: Any = importlib.import_module(self.module)
        self.cuda: Any = self.cupy.cuda

    def devices(self) -> tuple[str, ...]:
        try:
            count = self.cuda.runtime.getDeviceCount()
        except self.cuda.runtime.CUDARuntimeError:
            return ()  # no driver, or one that is too old
        return tuple(f"cuda:{index}" for index in range(count))

    def claims(self, kind: type) -> bool:
        return issubclass(kind, self.cupy.ndarray)

    def stands_for(self, kind: type) -> bool:
        return kind is self.cupy.ndarray

    def refusal(self, kind: type) -> tuple[str, str | None] | None:
        if kind.__module__.startswith("cupyx.scipy.sparse"):
            return f"A {kind.__name__} of cupyx is sparse: indices and values, not one memory.", "x.toarray()"
        return None

    # -- describe ---------------------------------------------------------------------------------

    def describe(self, x: Any) -> TensorInfo:
        name = _NAMES.get(x.dtype)
        if name not in CAPABILITIES.dtypes.held:
            raise UnsupportedTypeError(f"CuPy's {x.dtype} cannot be carried: no other framework has it.", None)
        return _described(x.shape, name, f"cuda:{x.device.id}", x.strides, x.data.ptr & 63)

    def pointer(self, x: Any) -> int | None:
        pointer: int = x.data.ptr
        return pointer

    # -- verbs ------------------------------------------------------------------------------------

    def export(self, x: Any) -> Array:
        return self.fetch(x)

    def adopt(self, array: Array) -> Any:
        return self.place(array, "cuda")

    def fetch(self, x: Any) -> Array:
        """An array on a device, in host memory of one's own; complete."""
        result = memory.compact(x.shape, x.dtype)
        with x.device:
            source, stream = self.compact(x), self.cuda.get_current_stream()
            source.data.copy_to_host_async(_pointer(result), result.nbytes, stream)
            stream.synchronize()
        return result

    def place(self, x: Array, device: str) -> Any:
        """A packed array on a device; the array may change when this returns."""
        with self._device(device):
            result, stream = self._empty(x.shape, x.strides, x.dtype), self.cuda.get_current_stream()
            result.data.copy_from_host_async(_pointer(x), x.nbytes, stream)
            stream.synchronize()
        return result

    def copy(self, x: Any) -> Any:
        """Other memory on the same device."""
        with x.device:
            result = self._empty(x.shape, packed_strides(x.shape, x.strides, x.dtype.itemsize), x.dtype)
            self._integers(result)[...] = self._integers(x)
        return result

    def compact(self, x: Any) -> Any:
        """C-contiguous memory on the same device."""
        with x.device:
            return self.cupy.ascontiguousarray(self._integers(x)).view(x.dtype).reshape(x.shape)

    def cast(self, x: Any, dtype: str, check: str = "") -> Any:
        """Another dtype, to the same bits as on the host."""
        before = _NAMES[x.dtype]
        if not check and {before, dtype} <= ORDINARY and agrees(before, dtype):
            kind = numpy_dtype(dtype)
            with x.device:
                result = self._empty(x.shape, packed_strides(x.shape, x.strides, kind.itemsize), kind)
                result[...] = x
            return result
        return self.place(casts.cast(self.fetch(x), dtype, check), f"cuda:{x.device.id}")

    def move(self, x: Any, device: str, non_blocking: bool = False) -> Any:
        """To another GPU: one copy, behind the work on either."""
        with x.device:
            source, behind = self.compact(x), self.cuda.get_current_stream()
            ready = behind.record()
        with self._device(device):
            stream = self.cuda.get_current_stream()
            stream.wait_event(ready)
            result = self._empty(source.shape, source.strides, source.dtype)
            result.data.copy_from_device_async(source.data, source.nbytes, stream)
            done = stream.record()
        with x.device:
            # Before this the source's memory is not given to anybody else.
            behind.wait_event(done)
        return result

    def wait(self, x: Any) -> Any:
        """The same array, whose values are there now."""
        with x.device:
            self.cuda.get_current_stream().synchronize()
        return x

    def offer(self, x: Any) -> Any:
        return Offer(self._integers(x), _NAMES[x.dtype], lambda: self._device(f"cuda:{x.device.id}"))

    def hand_over(self, x: Any, source: str = "") -> Any:
        """An array over another framework's memory on the same device.

        CuPy names its current stream to the producer.
        (https://docs.cupy.dev/en/stable/reference/generated/cupy.from_dlpack.html)
        """
        offered = registry.backend_named(source).offer(x) if source else x
        if isinstance(offered, Offer) and offered.dtype in CARRIED:
            return self.cupy.from_dlpack(offered.as_integers()).view(numpy_dtype(offered.dtype))
        return self.cupy.from_dlpack(offered)

    def write(self, x: Array, out: Any) -> None:
        """Put an array's values into `out`'s memory, cast to its dtype."""
        values = casts.cast(x, _NAMES[out.dtype], compact=True)
        with out.device:
            self._integers(out)[...] = self._integers(self.place(values, f"cuda:{out.device.id}"))

    def _integers(self, x: Any) -> Any:
        """The same memory as integers, where CuPy has no arithmetic for the dtype."""
        return x.view(np.dtype(f"u{x.dtype.itemsize}")) if _NAMES[x.dtype] in CARRIED else x

    def _device(self, name: str) -> Any:
        _, _, index = name.partition(":")
        return self.cuda.Device(int(index)) if index else self.cuda.Device()

    def _empty(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> Any:
        """Packed memory on the current device, which streams besides the current one may come to use."""
        _let_go()
        nbytes = max(int(np.prod(shape)) * dtype.itemsize, 1)
        found = self.cuda.alloc(nbytes)
        own = self.cuda.UnownedMemory(found.ptr, nbytes, _Lease(found), found.device_id)
        return self.cupy.ndarray(shape, dtype, self.cuda.MemoryPointer(own, 0), strides)

    # -- plain bytes over the bus -------------------------------------------------------------------

    def flat(self, x: Any) -> Any:
        return self.cupy.ndarray((x.nbytes,), np.uint8, x.data)

    def room(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str, device: str) -> Any:
        with self._device(device):
            return self._empty(shape, strides, numpy_dtype(dtype))

    # On page-locked memory neither waits
    # (https://docs.cupy.dev/en/stable/reference/generated/cupy.cuda.MemoryPointer.html).

    def take_down(self, flat: Any, start: int, block: Array) -> None:
        with flat.device:
            (flat.data + start).copy_to_host_async(_pointer(block), block.nbytes, self.cuda.get_current_stream())

    def put_up(self, flat: Any, start: int, block: Array) -> None:
        with flat.device:
            (flat.data + start).copy_from_host_async(_pointer(block), block.nbytes, self.cuda.get_current_stream())

    # -- many at once -------------------------------------------------------------------------------

    def pack(self, tensors: Sequence[Any], alignment: int) -> tuple[Any, Any]:
        """The bytes of many on one device, in one launch."""
        with tensors[0].device:
            packed = [x if self.describe(x).is_packed else self.compact(x) for x in tensors]
            parts, _ = packing.lay_out(packed, [x.strides for x in packed], alignment)
            filling = cache(lambda nbytes: self.cupy.zeros(nbytes, np.uint8))
            return self.cupy.concatenate(packing.joined([self.flat(x) for x in packed], parts, filling)), parts

    def unpack(self, parcel: Any, layout: Any) -> list[Any]:
        """Each array, as a view of the packed memory."""
        with parcel.device:
            return [
                self.cupy.ndarray(part.shape, part.dtype, parcel.data + part.start, part.strides) for part in layout
            ]

    # -- streams ------------------------------------------------------------------------------------

    def current_stream(self, device: str) -> Stream | None:
        there = self._device(device)
        with there:
            return CupyStream(self.cuda, self.cuda.get_current_stream(), there.id)

    def side_stream(self, device: str) -> Stream | None:
        there = self._device(device)
        with there:
            return CupyStream(self.cuda, self.cuda.Stream(non_blocking=True), there.id)

    def pinned_memory(self, nbytes: int, device: str) -> Array | None:
        try:
            block = self.cuda.alloc_pinned_memory(max(nbytes, 1))
        except RuntimeError as error:
            raise MemoryError(f"{nbytes} bytes cannot be page-locked: {str(error).splitlines()[0]}") from error
        result: Array = np.ndarray((nbytes,), np.uint8, block)
        return result


def _pointer(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(memory.address(array))


class CupyEvent:
    """`cupy.cuda.Event`."""

    def __init__(self, event: Any) -> None:
        self.event = event

    def done(self) -> bool:
        return bool(self.event.done)

    def wait(self) -> None:
        self.event.synchronize()


class CupyStream:
    """`cupy.cuda.Stream` of a device."""

    def __init__(self, cuda: Any, stream: Any, index: int) -> None:
        self.cuda, self.stream, self.index = cuda, stream, index
        self._entered: list[tuple[Any, Any]] = []
        self._used: list[Any] = []
        self._held: deque[tuple[CupyEvent, list[Any]]] = deque()

    @property
    def device(self) -> str:
        """The device's canonical name."""
        return f"cuda:{self.index}"

    def __enter__(self) -> Self:
        device = self.cuda.Device(self.index)
        device.__enter__()
        self.stream.__enter__()
        self._entered.append((device, self.stream))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        device, stream = self._entered.pop()
        stream.__exit__(kind, error, trace)
        device.__exit__(kind, error, trace)

    def record(self) -> CupyEvent:
        with self.cuda.Device(self.index):
            event = CupyEvent(self.stream.record(self.cuda.Event(block=True, disable_timing=True)))
        if self._used:
            self._held.append((event, self._used))
            self._used = []
        while self._held and self._held[0][0].done():
            self._held.popleft()
        return event

    def wait_for(self, event: Any) -> None:
        self.stream.wait_event(event.event)

    def uses(self, tensor: Any) -> None:
        # CuPy's pool knows one stream for each block. Memory that this backend has made waits for the others when
        # it is dropped; an array over somebody else's memory is held by this object until its stream has come past.
        owner = getattr(tensor.data.mem, "_owner", None)
        if isinstance(owner, _Lease):
            owner.streams[self.index, self.stream] = self
        else:
            self._used.append(tensor)


class _Lease:
    """Memory of CuPy's pool, which goes back once all other streams that have used it have come past.

    The pool would give it away as soon as the last array over it is gone, to what is queued next on the stream on
    which it was allocated. (https://docs.cupy.dev/en/stable/user_guide/memory.html)
    """

    __slots__ = ("memory", "streams")

    def __init__(self, memory: Any) -> None:
        self.memory = memory
        self.streams: dict[tuple[int, Any], CupyStream] = {}

    def __del__(self) -> None:
        if not self.streams:
            return
        with suppress(Exception):  # the interpreter may be gone already
            try:
                _dropped.append(([stream.record() for stream in self.streams.values()], self.memory))
            except Exception:  # noqa: BLE001 - whatever the driver says: nobody knows who still reads it
                _kept.append(self.memory)


_dropped: deque[tuple[list[CupyEvent], Any]] = deque()
"""Memory that nobody holds, and what it still waits for."""
_kept: list[Any] = []
"""Memory that cannot be given back: nobody knows what it waits for."""


def _let_go() -> None:
    """Give back what waits for nothing any more."""
    for _ in range(len(_dropped)):
        try:
            events, found = _dropped.popleft()
        except IndexError:  # another thread was faster
            return
        try:
            reached = all(event.done() for event in events)
        except Exception:  # noqa: BLE001 - whatever the driver says: it is not this conversion's affair
            reached = False
        if not reached:
            _dropped.append((events, found))


def _begin_anew() -> None:
    """A forked child cannot ask its parent's device."""
    _kept.append(list(_dropped))
    _dropped.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


BACKEND = CupyBackend()
