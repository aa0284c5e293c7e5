"""A simulated asynchronous accelerator, to test on any machine what is true of a GPU's streams.

Its framework is made up: a `simulated.Tensor` lies on the host or on ``sim:0`` or ``sim:1``, whose
memory is reached only through the backend's verbs. What a GPU does in silence to those who do not
wait, it does as well:

- a stream is a thread that runs what is queued, each copy after a random delay; memory is full of
  `POISON` before that, so a reader that does not wait for the event reads garbage;
- a queued copy reads page-locked memory when it runs, not when it is queued: writing such memory
  too early changes what arrives, and giving back what `pinned_memory` gave too early makes it
  `POISON` (what `pin` made waits for its readers, as it does with the allocators that are simulated
  here);
- memory of a device is given away as soon as its tensor is gone, by the stream that allocated it:
  other streams that still work on it read `POISON`, unless they were recorded with `uses`.

    with simulated.installed(delay=(0.0, 0.002)) as device:
        x = ferry.convert(np.ones(3), "simulated", device="sim:0", non_blocking=True)
"""

from __future__ import annotations

import queue
import random
import sys
import threading
import time
import types
import weakref
from contextlib import contextmanager
from typing import ClassVar, NamedTuple

import numpy as np

from tensorferry.backends import fast_paths, registry
from tensorferry.backends.base import Backend
from tensorferry.core.capabilities import Capabilities, Devices, Dtypes, Memory, Options
from tensorferry.core.declaration import Code
from tensorferry.core.devices import HOST
from tensorferry.core.dtypes import DTYPES
from tensorferry.core.info import TensorInfo
from tensorferry.core.layout import ALIGNMENT
from tensorferry.devices import pinned
from tensorferry.host import casts, memory
from tensorferry.host.numpy_dtypes import numpy_dtype, of_numpy

__all__ = ["POISON", "SimulatedBackend", "Tensor", "installed"]

POISON = 0xA5
"""What every byte is that nobody has written yet, or that somebody else has by now."""

PATIENCE = 120.0
"""Seconds after which a wait is a deadlock."""


# -- the framework ------------------------------------------------------------------------------


class Tensor:
    """Shape, dtype, place; its values are reached through the backend alone."""

    __slots__ = ("__weakref__", "_storage", "device", "dtype", "shape")

    def __init__(self, storage, shape, dtype, device):
        self._storage = storage
        self.shape = tuple(shape)
        self.dtype = dtype
        self.device = device


Tensor.__module__ = "simulated"


class Storage:
    """Who owns memory: the host's array, or cells of a device, which are given away with it."""

    __slots__ = ("__weakref__", "cells", "users")

    def __init__(self, cells):
        self.cells = cells
        self.users = []


class Part(Storage):
    """A part of another tensor's memory."""

    __slots__ = ("whole",)

    def __init__(self, cells, whole):
        super().__init__(cells)
        self.whole = whole
        self.users = whole._storage.users


class Block:
    """Page-locked memory."""

    def __init__(self, nbytes, waits):
        self.array = memory.compact((nbytes,), np.dtype(np.uint8))
        self.array.fill(POISON)
        self.first = memory.address(self.array)
        self.waits = waits

    def within(self, array):
        """The same place, shape and dtype as `array`, held by the block instead of by its user."""
        return np.ndarray(
            array.shape, array.dtype, self.array, memory.address(array) - self.first, array.strides
        )


class Copied(NamedTuple):
    """One transfer over the simulated bus."""

    source: str
    target: str
    nbytes: int
    pinned: bool
    non_blocking: bool


class Event:
    """A place in a stream's work."""

    def __init__(self, lies):
        self.reached = threading.Event()
        self.lies = lies

    def wait(self):
        if not self.lies and not self.reached.wait(PATIENCE):
            raise RuntimeError("deadlock: nobody reaches this event")


class Stream:
    """A queue of a device's work, and the thread that does it."""

    def __init__(self, backend, device, name):
        self.backend = backend
        self.device = device
        self.work = queue.SimpleQueue()
        self.thread = threading.Thread(
            target=_work_off,
            args=(self.work, backend.failures),
            name=f"simulated {device} {name}",
            daemon=True,
        )
        self.thread.start()
        self.end = weakref.finalize(self, self.work.put, None)

    def __enter__(self):
        current = self.backend.current
        before = current.__dict__.setdefault("before", [])
        before.append((self.device, current.__dict__.get(self.device)))
        current.__dict__[self.device] = self
        return self

    def __exit__(self, kind, error, trace):
        device, stream = self.backend.current.before.pop()
        self.backend.current.__dict__[device] = stream

    def queue(self, do):
        """Do something when all that was queued before is done."""
        self.work.put(do)

    def record(self):
        event = Event(self.backend.events_lie)
        self.queue(event.reached.set)
        return event

    def wait_for(self, event):
        self.queue(event.wait)

    def uses(self, tensor):
        if tensor.device != HOST:
            tensor._storage.users.append(self)


def _work_off(work, failures):
    while (do := work.get()) is not None:
        try:
            do()
        except Exception as error:  # noqa: BLE001 - told to the test, which ends the thread
            failures.append(error)
        do = None


MODULE = types.ModuleType("simulated")
MODULE.Tensor = Tensor

# -- its backend --------------------------------------------------------------------------------

_ALL = frozenset(DTYPES)


class SimulatedBackend(Backend):
    """`simulated.Tensor`.

    Args:
        delay: The least and the greatest number of seconds before a queued copy begins, or a
            function that gives them for a number of bytes.
        lockable: How many bytes can be page-locked at once; ``None``: any number.
        events_lie: Whether events say that they are reached when they are not: what waits for them
            must break.
        seed: For the delays.
    """

    name = "simulated"
    module = "simulated"
    owns = ("simulated",)
    capabilities = Capabilities(
        dtypes=Dtypes(
            held=_ALL,
            numbers={
                "bool": ("bool",),
                "int": ("int64",),
                "float": ("float32",),
                "complex": ("complex64",),
            },
            unexported=_ALL,  # nobody else has such a device
        ),
        memory=Memory(writable=True, strides="compact", alignment=0, out=True),
        devices=Devices(("cpu", "sim"), packs=True, pins=True),
        options=Options(frozenset({"non_blocking", "pinned"})),
    )
    imports: ClassVar = {"simulated": "import simulated"}

    def __init__(self, delay=(0.0, 0.001), lockable=None, events_lie=False, seed=0):
        super().__init__()
        self.delay = delay
        self.gate = None
        self.gates = []
        self.lockable = lockable
        self.events_lie = events_lie
        self.random = random.Random(seed)  # noqa: S311 - for delays
        self.current = threading.local()
        self.default = {}
        self.streams = weakref.WeakSet()
        self.threads = []
        self.lock = threading.RLock()
        self.blocks = []
        self.transfers = []
        self.failures = []
        self.locked = 0
        self.pinnings = 0

    # -- what a test asks ------------------------------------------------------------------------

    def values(self, x):
        """What lies in a tensor's memory now, with no waiting at all."""
        return self._cells(x).copy()

    def compute(self, function, *tensors):
        """Queue a function of the values on the current stream; its result, whose values come later."""
        device = tensors[0].device
        inputs = [self._cells(x) for x in tensors]
        shaped = function(*[np.ones(x.shape, numpy_dtype(x.dtype)) for x in tensors])
        result = self._new(shaped.shape, of_numpy(shaped.dtype), device)
        cells = self._cells(result)
        self._queue_copy(device, 0, lambda: np.copyto(cells, function(*inputs)))
        return result

    def busy(self, seconds, device="sim:0"):
        """Keep the current stream busy."""
        self.current_stream(device).queue(lambda: time.sleep(seconds))

    def synchronize(self):
        """Wait until every stream has come to its end."""
        for event in [stream.record() for stream in list(self.streams)]:
            event.reached.wait(PATIENCE)

    @contextmanager
    def held(self):
        """What is queued meanwhile does not begin before the function that this gives is called."""
        gate = threading.Event()
        self.gates.append(gate)
        before, self.gate = self.gate, gate
        try:
            yield gate.set
        finally:
            self.gate = before

    def close(self):
        """End every stream's thread, after what is queued."""
        for gate in self.gates:
            gate.set()
        for stream in list(self.streams):
            stream.end()
        for thread in self.threads:
            thread.join(PATIENCE)
        self.default.clear()

    # -- describe --------------------------------------------------------------------------------

    def load(self):
        """There is nothing to take: the made-up framework is in this file."""

    def claims(self, kind):
        return issubclass(kind, Tensor)

    def devices(self):
        return ("cpu", "sim:0", "sim:1")

    def describe(self, x):
        on_host = x.device == HOST
        at = memory.address(x._storage.cells) % 64 if on_host else 0
        locked = on_host and self._block_of(x._storage.cells) is not None
        return TensorInfo(
            self.name,
            x.shape,
            x.dtype,
            x.device,
            misalignment=at,
            writable=True,
            mutable=True,
            pinned=locked,
        )

    def pointer(self, x):
        return memory.address(x._storage.cells)

    # -- streams and pinned memory ---------------------------------------------------------------

    def current_stream(self, device):
        if device == HOST:
            return None
        device = self._indexed(device)
        found = self.current.__dict__.get(device)
        if found is not None:
            return found
        with self.lock:
            if device not in self.default:
                self.default[device] = self._stream(device, "default")
            return self.default[device]

    def side_stream(self, device):
        return None if device == HOST else self._stream(self._indexed(device), "side")

    def _stream(self, device, name):
        stream = Stream(self, device, name)
        self.streams.add(stream)
        self.threads.append(stream.thread)
        return stream

    def _indexed(self, device):
        return device if ":" in device else f"{device}:0"

    def pinned_memory(self, nbytes):
        """Page-locked memory that does not wait for its readers, as a source may have it."""
        return self._lock(nbytes, waits=False)

    def _lock(self, nbytes, waits):
        with self.lock:
            if self.lockable is not None and self.locked + nbytes > self.lockable:
                raise RuntimeError(f"no more than {self.lockable} bytes can be locked")
            self.locked += nbytes
            self.pinnings += 1
            block = Block(nbytes, waits)
            self.blocks.append(block)
        token = Storage(None)
        # Not at exit: what another thread still writes to would be somebody else's memory by then.
        weakref.finalize(token, self._unlock, block).atexit = False
        return memory.over_address(
            block.first, (nbytes,), (1,), block.array.dtype, read_only=False, owner=token
        )

    def _unlock(self, block):
        block.array.fill(POISON)
        with self.lock:
            self.locked -= block.array.size
            self.blocks.remove(block)

    def _block_of(self, array):
        start = memory.address(array)
        with self.lock:
            for block in self.blocks:
                if array.size and block.first <= start < block.first + block.array.size:
                    return block
        return None

    # -- verbs -----------------------------------------------------------------------------------

    def export(self, x):
        assert x.device == HOST, "memory of a device is no array"
        return x._storage.cells

    def adopt(self, array):
        return Tensor(Storage(array), array.shape, of_numpy(array.dtype), HOST)

    def copy(self, x, *_):
        if x.device == HOST:
            return self.adopt(x._storage.cells.copy())
        return self._on_device(x, x.dtype, np.copyto)

    def cast(self, x, dtype, check=""):
        if x.device == HOST:
            return self.adopt(casts.cast(x._storage.cells, dtype, check))
        if check:
            there = self.move(x, HOST)
            return self.move(self.adopt(casts.cast(there._storage.cells, dtype, check)), x.device)
        return self._on_device(
            x, dtype, lambda out, values: np.copyto(out, casts.cast(values, dtype, ""))
        )

    def _on_device(self, x, dtype, write):
        result = self._new(x.shape, dtype, x.device)
        cells, source = self._cells(result), self._cells(x)
        self._queue_copy(x.device, 0, lambda: write(cells, source))
        return result

    def pin(self, x, required=False):
        cells = x._storage.cells
        block = pinned.locked_block(
            cells.nbytes, lambda: self._lock(cells.nbytes, waits=True), required=required
        )
        if block is None:
            return x
        held = block.view(cells.dtype).reshape(cells.shape)
        held[...] = cells
        return self.adopt(held)

    def land(self, x, required=False):
        """In page-locked memory on the host, or other; complete."""
        source = self._cells(x)
        block = pinned.locked_block(
            source.nbytes, lambda: self._lock(source.nbytes, waits=True), required=required
        )
        if block is None:
            return self.move(x, HOST)
        held = block.view(source.dtype).reshape(source.shape)
        self.transfers.append(Copied(x.device, HOST, source.nbytes, True, True))
        self._queue_copy(x.device, source.nbytes, lambda: np.copyto(held, source))
        self.current_stream(x.device).record().wait()
        return self.adopt(held)

    def move(self, x, device, non_blocking=False):
        """A copy on another device; complete on return unless asked otherwise, and always if it is the host's."""
        device = HOST if device == HOST else self._indexed(device)
        if device == x.device:
            return x
        source, locked = self._cells(x), False
        if x.device == HOST:
            block = self._block_of(source)
            locked = block is not None
            # The driver has read pageable memory when the call returns. Page-locked memory is read
            # when the copy runs.
            if block is None:
                source = source.copy()
            elif not block.waits:
                source = block.within(source)
        where = device if device != HOST else x.device
        result = self._new(x.shape, x.dtype, device)
        cells = self._cells(result)
        if HOST not in (x.device, device):
            self.current_stream(device).wait_for(self.current_stream(x.device).record())
        self.transfers.append(Copied(x.device, device, cells.nbytes, locked, bool(non_blocking)))
        self._queue_copy(where, cells.nbytes, lambda: np.copyto(cells, source))
        if HOST not in (x.device, device):
            self.current_stream(x.device).wait_for(self.current_stream(device).record())
        if device == HOST or not non_blocking:
            self._finish(where)
        return result

    def pack(self, tensors, alignment, lock=False):
        """The bytes of many, one after the other, each at a multiple of 64."""
        device = tensors[0].device
        ends = np.cumsum(
            [-(-self._cells(x).nbytes // ALIGNMENT) * ALIGNMENT for x in tensors]
        ).tolist()
        packed = self._new((ends[-1],), "uint8", device)
        packed = self.pin(packed) if lock else packed
        cells, sources = self._cells(packed), [self._cells(x) for x in tensors]
        layout = [(start, x.shape, x.dtype) for start, x in zip([0, *ends], tensors, strict=False)]

        def write():
            for (start, _, _), source in zip(layout, sources, strict=True):
                cells[start : start + source.nbytes] = source.reshape(-1).view(np.uint8)

        if device == HOST:
            write()
        else:
            self._queue_copy(device, 0, write)
        return packed, layout

    def unpack(self, packed, layout):
        """Views of the packed memory, which lives as long as one of them."""
        parts = []
        for start, shape, dtype in layout:
            kind = numpy_dtype(dtype)
            cells = np.ndarray(shape, kind, self._cells(packed), start)
            parts.append(Tensor(Part(cells, packed), shape, dtype, packed.device))
        return parts

    def wait(self, x):
        """The same tensor, whose values are there now."""
        if x.device != HOST:
            self._finish(x.device)
        return x

    def write(self, x, out):
        values = casts.cast(x, out.dtype, "") if of_numpy(x.dtype) != out.dtype else x.copy()
        if out.device == HOST:
            casts.copy_into(out._storage.cells, values)
            return
        cells = self._cells(out)
        self._queue_copy(out.device, cells.nbytes, lambda: np.copyto(cells, values))
        self._finish(out.device)

    def snippet(self, call):
        if call.verb == "write":
            return Code(call.x, ("simulated.write(y, out)", "y = out"))
        if call.verb in ("cast", "move"):
            return f'simulated.{call.verb}({call.x}, "{call.arguments[0]}")'
        return f"simulated.{call.verb}({call.x})"

    # -- the device ------------------------------------------------------------------------------

    def _cells(self, x):
        return x._storage.cells

    def _new(self, shape, dtype, device):
        kind = numpy_dtype(dtype)
        cells = memory.compact(shape, kind)
        cells.reshape(-1).view(np.uint8).fill(POISON)
        storage = Storage(cells)
        if device != HOST:
            stream = weakref.ref(self.current_stream(device))
            weakref.finalize(storage, _give_away, cells, stream, storage.users).atexit = False
        return Tensor(storage, shape, dtype, device)

    def _queue_copy(self, device, nbytes, do):
        seconds = self.delay(nbytes) if callable(self.delay) else self.random.uniform(*self.delay)

        gate = self.gate

        def later():
            if gate is not None and not gate.wait(PATIENCE):
                raise RuntimeError("deadlock: nobody lets this copy begin")
            time.sleep(seconds)
            do()

        self.current_stream(device).queue(later)

    def _finish(self, device):
        reached = threading.Event()
        self.current_stream(device).queue(reached.set)
        if not reached.wait(PATIENCE):
            raise RuntimeError("deadlock: a stream does not come to its end")


def _give_away(cells, stream, users):
    """What an allocator does with memory of a tensor that is gone: others write it, once its streams are past."""
    owner = stream()
    events = [user.record() for user in users]
    users.clear()

    def overwrite():
        for event in events:
            event.wait()
        cells.reshape(-1).view(np.uint8).fill(POISON)

    if owner is not None:
        owner.queue(overwrite)


# -- as a package of its own --------------------------------------------------------------------


@contextmanager
def installed(**settings):
    """The simulated framework imported and its backend registered; gone again afterwards.

    Args:
        **settings: Those of `SimulatedBackend`.
    """
    known = dict(registry.backends())
    pinned._warned.clear()
    backend = SimulatedBackend(**settings)
    sys.modules["simulated"] = MODULE
    registry.register(backend)
    try:
        yield backend
        backend.synchronize()
        assert not backend.failures, backend.failures
    finally:
        # At the end of the interpreter nobody takes a device apart. From Python 3.13 on its
        # threads, which are daemons, never run again by then, and nobody could wait for them.
        if not sys.is_finalizing():
            _uninstall(backend, known)


def _uninstall(backend, known):
    """End the threads of a simulated device, and forget its framework."""
    backend.close()
    del sys.modules["simulated"]
    fast_paths._by_backend.pop("simulated", None)
    for table in (registry._by_name, registry._by_module, registry._ready, registry.BY_TYPE):
        for key in [key for key, each in table.items() if each.name not in known]:
            del table[key]
    for key in [key for key, name in registry.NAMES.items() if name not in known]:
        del registry.NAMES[key]
