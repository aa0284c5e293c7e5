"""Large transfers through page-locked slots: the bus fills one while the host empties the ones before it.

A device copies to and from page-locked memory at the speed of its bus, and from ordinary memory at the
speed of a hidden copy by one thread. So a large tensor crosses in chunks, through slots that are locked
once and kept, and several threads move the bytes between the slots and ordinary memory. A slot is used
again only after the event of its copy. Whose streams and tensors they are is the backend's business.
"""

from __future__ import annotations

import os
import threading
import warnings
from abc import abstractmethod
from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.base import Backend
from ..core.layout import packed_strides
from ..errors import DeviceError
from ..host import memory
from ..host.numpy_dtypes import numpy_dtype, of_numpy
from . import buffer_pool, copy_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from ..core.info import TensorInfo
    from .streams import Event, Stream

__all__ = ["SLOTS", "Staging", "release", "say_once"]

Array = np.ndarray[Any, Any]

SLOTS = 16
"""How many slots of a device and size are kept between transfers."""


class Staging(Backend):
    """A backend whose device tensors cross the bus through page-locked slots.

    It implements the four methods that move plain bytes; the verbs are made of them. Its capabilities
    name the kinds of device (`stages`), for which `current_stream`, `side_stream` and `pinned_memory`
    give something.
    """

    # -- what a backend implements ------------------------------------------------------------------

    @abstractmethod
    def flat(self, x: Any) -> Any:
        """The bytes of a packed tensor on a device, as a tensor of one axis over the same memory."""

    @abstractmethod
    def room(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str, device: str) -> Any:
        """A tensor on a device whose values are not set; the strides are bytes."""

    @abstractmethod
    def take_down(self, flat: Any, start: int, block: Array) -> None:
        """Queue on the current stream: the bytes from `start` on are copied into host memory."""

    @abstractmethod
    def put_up(self, flat: Any, start: int, block: Array) -> None:
        """Queue on the current stream: host memory is copied over the bytes from `start` on."""

    def compact(self, x: Any) -> Any:
        """C-contiguous memory on the same device; only asked of a backend whose tensors may have other strides."""
        raise TypeError(f"{self.name} tensors are compact")

    # -- verbs: from a device ------------------------------------------------------------------------

    def stage(self, x: Any, chunk: int) -> Descent:
        """Begin to bring a packed tensor to the host, so many bytes at a time."""
        return Descent(self, x, chunk)

    def unload(self, x: Descent) -> Array:
        """All of what `stage` began, as an array in ordinary memory; complete."""
        return x.finish()

    def land(self, x: Any) -> Array:
        """A packed tensor of a device in page-locked memory of its own; complete.

        Raises:
            DeviceError: No more memory can be locked.
        """
        info = self.describe(x)
        block = _locked(self, info.nbytes, info.device)
        side, flat = _behind(self, x, info.device), self.flat(x)
        with side:
            self.take_down(flat, 0, block)
            event = side.record()
        event.wait()
        return _shaped(block, info)

    # -- verbs: to a device --------------------------------------------------------------------------

    def fill(self, x: Array, device: str, chunk: int) -> Ascent:
        """Begin to bring a packed array to a device, so many bytes at a time."""
        return Ascent(self, x, device, chunk)

    def send(self, x: Ascent, device: str) -> Any:
        """The tensor that `fill` began for a device, ordered on the current stream; the array may change now."""
        return x.finish()

    # -- verbs: on the host --------------------------------------------------------------------------

    def pin_array(self, x: Array, device: str) -> Array:
        """A compact copy of an array in page-locked memory.

        Raises:
            DeviceError: There is no device that could use it, or no more memory can be locked.
        """
        block = _locked(self, x.nbytes, device)
        result: Array = block[: x.nbytes].view(x.dtype).reshape(x.shape)
        result[...] = x
        return result


def _locked(backend: Backend, nbytes: int, device: str) -> Array:
    """Page-locked memory that was asked for."""
    try:
        block = backend.pinned_memory(nbytes, device)
    except (MemoryError, RuntimeError) as error:
        raise DeviceError(f"{backend.name} cannot page-lock this much memory: {error}", "pinned=False") from error
    if block is None:
        raise DeviceError(f"{backend.name} has no page-locked memory for {device}.", "pinned=False")
    return block


def _behind(backend: Backend, x: Any, device: str) -> Stream:
    """A stream beside the current one, which waits for what is queued there now and works on `x`."""
    now, side = backend.current_stream(device), _side_stream(backend, device)
    if now is None or side is None:
        raise DeviceError(f"{backend.name} names no streams of {device}.", None)
    side.wait_for(now.record())
    side.uses(x)
    return side


def _shaped(block: Array, info: TensorInfo) -> Array:
    """The array that a tensor's bytes are."""
    dtype = numpy_dtype(info.dtype)
    return memory.over_address(memory.address(block), info.shape, info.strides, dtype, read_only=False, owner=block)


# -- one transfer -------------------------------------------------------------------------------


class Descent:
    """A tensor on its way to the host: queued into slots, out of which other threads copy it."""

    def __init__(self, backend: Staging, x: Any, chunk: int) -> None:
        self.backend, self.info = backend, backend.describe(x)
        self.jobs: deque[tuple[Array, Future[None]]] = deque()
        self.lot = _lot(backend, self.info.device, chunk)
        self.side, self.flat = _behind(backend, x, self.info.device), backend.flat(x)
        self.nbytes, self.next = self.info.nbytes, 0
        self.block = buffer_pool.take(self.nbytes)
        self.lot.each(-(-self.nbytes // chunk), self._launch)

    def finish(self) -> Array:
        """Everything, in ordinary memory."""
        while self.next < self.nbytes:
            slot, job = self.jobs.popleft()
            with self.lot.forgetting():
                job.result()
                self._launch(slot)
        self._drain()
        return _shaped(self.block, self.info)

    def _launch(self, slot: Array) -> None:
        start = self.next
        self.next = min(start + slot.size, self.nbytes)
        piece = slot[: self.next - start]
        with self.side:
            self.backend.take_down(self.flat, start, piece)
            event = self.side.record()
        self.jobs.append((slot, copy_threads.submit(_empty, event, self.block[start : self.next], piece)))

    def _drain(self) -> None:
        """Wait for every job, and give the slots back."""
        failed: BaseException | None = None
        while self.jobs:
            slot, job = self.jobs.popleft()
            failed = job.exception() or failed
            self.lot.give(slot)
        if failed is not None:
            raise failed

    def __del__(self) -> None:
        with suppress(Exception):
            self._drain()


def _empty(event: Event, into: Array, slot: Array) -> None:
    event.wait()
    np.copyto(into, slot)


class Ascent:
    """An array on its way to a device: other threads copy it into slots, from where it is queued."""

    def __init__(self, backend: Staging, x: Array, device: str, chunk: int) -> None:
        self.backend = backend
        self.jobs: deque[tuple[Array, int, Future[None]]] = deque()
        self.sent: deque[tuple[Array, Event]] = deque()
        # An axis of length 1 may have any stride, of which a framework may take but one.
        steps = packed_strides(x.shape, x.strides, x.itemsize)
        self.tensor = backend.room(x.shape, steps, of_numpy(x.dtype) or "", device)
        self.device = backend.describe(self.tensor).device
        self.lot = _lot(backend, self.device, chunk)
        self.flat = backend.flat(self.tensor)
        self.bytes = memory.over_address(
            memory.address(x), (x.nbytes,), (1,), np.dtype(np.uint8), read_only=True, owner=x
        )
        self.next = 0
        self.lot.each(-(-x.nbytes // chunk), self._fill)

    def finish(self) -> Any:
        """The tensor, whose bytes are queued behind the current stream's work."""
        stream = self.backend.current_stream(self.device)
        if stream is None:
            raise DeviceError(f"{self.backend.name} names no streams of {self.device}.", None)
        while self.jobs:
            slot, start, job = self.jobs.popleft()
            with self.lot.forgetting():
                job.result()
                size = min(slot.size, self.bytes.size - start)
                self.backend.put_up(self.flat, start, slot[:size])
                self.sent.append((slot, stream.record()))
            # Half of the slots are on the bus while the other half are filled.
            if self.next < self.bytes.size and len(self.sent) > len(self.jobs):
                again, event = self.sent.popleft()
                event.wait()
                self._fill(again)
        self._give_back()
        return self.tensor

    def _fill(self, slot: Array) -> None:
        start = self.next
        self.next = min(start + slot.size, self.bytes.size)
        piece = slot[: self.next - start]
        self.jobs.append((slot, start, copy_threads.submit(np.copyto, piece, self.bytes[start : self.next])))

    def _give_back(self) -> None:
        while self.jobs:
            slot, _, job = self.jobs.popleft()
            job.exception()
            self.lot.give(slot)
        while self.sent:
            self.lot.give(*self.sent.popleft())

    def __del__(self) -> None:
        with suppress(Exception):
            self._give_back()


class _Reached:
    """The event of a slot that nothing was queued from."""

    def done(self) -> bool:
        return True

    def wait(self) -> None:
        return None


_REACHED = _Reached()

# -- page-locked slots, kept between transfers --------------------------------------------------


class _Lot:
    """The slots of one size of a device."""

    def __init__(self, backend: Backend, device: str, size: int) -> None:
        self.backend, self.device, self.size = backend, device, size
        self.free: deque[tuple[Array, Event]] = deque()
        self.lock = threading.Lock()
        self.made = 0

    def take(self, count: int) -> list[Array]:
        """At most so many slots, and at least one; nobody is waited for but the events of those that are free.

        Where all are taken, a transfer gets one of its own, which is not kept: two transfers that wait
        for each other's slots cannot be.
        """
        with self.lock:
            taken = [self.free.popleft() for _ in range(min(count, len(self.free)))]
            new = min(count - len(taken), max(SLOTS - self.made, 0 if taken else 1))
            self.made += new
        for _, event in taken:
            event.wait()
        return [slot for slot, _ in taken] + [self._make() for _ in range(new)]

    def each(self, count: int, use: Callable[[Array], None]) -> None:
        """Take at most so many slots and use each; those that an error leaves over go back."""
        slots = deque(self.take(count))
        try:
            while slots:
                with self.forgetting():
                    use(slots.popleft())
        finally:
            for slot in slots:
                self.give(slot)

    @contextmanager
    def forgetting(self) -> Iterator[None]:
        """Forget the slot in use after an error: nobody knows what the device still does with it."""
        try:
            yield
        except BaseException:
            with self.lock:
                self.made -= 1
            raise

    def give(self, slot: Array, event: Event = _REACHED) -> None:
        """Take a slot back; it is used again after the event."""
        with self.lock:
            if len(self.free) < SLOTS:
                self.free.append((slot, event))
                return
            self.made -= 1
        event.wait()

    def _make(self) -> Array:
        try:
            found = self.backend.pinned_memory(self.size, self.device)
        except (MemoryError, RuntimeError) as error:
            say_once(f"No memory can be page-locked ({error}): transfers of {self.device} go on without, slower.")
            found = None
        return memory.compact((self.size,), np.dtype(np.uint8)) if found is None else found


_lots: dict[tuple[Backend, str, int], _Lot] = {}
_lots_lock = threading.Lock()
_said: set[str] = set()


def _lot(backend: Backend, device: str, size: int) -> _Lot:
    with _lots_lock:
        found = _lots.get((backend, device, size))
        if found is None:
            found = _lots[backend, device, size] = _Lot(backend, device, size)
        return found


class _Sides(threading.local):
    """This thread's streams beside the current ones."""

    def __init__(self) -> None:
        self.streams: dict[tuple[Backend, str], Stream | None] = {}


_sides = _Sides()


def _side_stream(backend: Backend, device: str) -> Stream | None:
    """This thread's stream beside the current one: whoever enters a stream has it for himself."""
    key = (backend, device)
    if key not in _sides.streams:
        _sides.streams[key] = backend.side_stream(device)
    return _sides.streams[key]


def say_once(text: str) -> None:
    """Warn of something that makes transfers slower, the first time."""
    if text not in _said:
        _said.add(text)
        warnings.warn(text, RuntimeWarning, stacklevel=2)


def release() -> None:
    """Give back all memory that is kept between transfers: page-locked slots, and blocks of results that are gone.

    >>> from tensorferry.devices import staging
    >>> staging.release()
    """
    with _lots_lock:
        lots = list(_lots.values())
        _lots.clear()
    _sides.streams.clear()
    for lot in lots:
        for _, event in lot.free:
            event.wait()
    buffer_pool.forget()


_inherited: list[object] = []
"""What a forked child cannot give back: an allocator asks the device then, which is not the child's."""


def _begin_anew() -> None:
    """A forked child has none of its parent's devices."""
    global _lots_lock
    _lots_lock = threading.Lock()
    _inherited.append((_lots.copy(), _sides.streams))
    _lots.clear()
    _sides.streams = {}


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
