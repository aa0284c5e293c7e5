"""The verbs that a declaration calls for: what each takes and gives.

A backend that declares one of these abilities has its verbs, or `backends.registry.register` refuses it. A verb
takes a value and gives the next one of a plan. Each protocol can be a base of a backend
(``class MyBackend(Backend, Writes)``): then a type checker compares the signatures, and Python makes no backend that
lacks one.

>>> from tensorferry.core.capabilities import Capabilities, Dtypes, Memory
>>> called_for(Capabilities(Dtypes(frozenset(), {}), Memory(writable=True, out=True)))
{'Memory(out=True)': ('write',)}
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

from ..core.devices import HOST
from ..core.info import JOINS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from ..core.capabilities import Capabilities

    Array = np.ndarray[Any, Any]

__all__ = [
    "Casts",
    "Copies",
    "Detaches",
    "Fetches",
    "FetchesAhead",
    "HandsOver",
    "HasValues",
    "Moves",
    "Packs",
    "Pins",
    "Places",
    "PresentsReadOnly",
    "Reads",
    "Resolves",
    "Spreads",
    "Stacks",
    "Straightens",
    "Writes",
    "called_for",
]

# -- host memory --------------------------------------------------------------------------------


class PresentsReadOnly(Protocol):
    """``Memory(read_only=True)``."""

    @abstractmethod
    def read_only(self, x: Any) -> Any:
        """A tensor of the backend's over the memory of `x`, that nobody can write through."""


class Writes(Protocol):
    """``Memory(out=True)``."""

    @abstractmethod
    def write(self, x: Array, out: Any) -> None:
        """Put an array's values into `out`, a tensor of the backend's, cast to its dtype.

        With ``Memory(writes_own=True)`` also those of a tensor of the backend's, of the same dtype, wherever both are;
        and from page-locked memory without waiting, if a third argument says so.
        """


class Reads(Protocol):
    """``Objects(read_kinds=…)``, those of stacks aside."""

    @abstractmethod
    def read(self, x: Any) -> Any:
        """The values of an object that owns no shareable memory, as a tensor of the backend's own."""


class HasValues(Protocol):
    """``Objects(value_kinds=…)``."""

    @abstractmethod
    def value(self, x: Any) -> Any:
        """The tensor that is the object's value now."""


# -- the framework's own operations, where its graph or its devices need them ---------------------


class Copies(Protocol):
    """What has to be copied where it is: on a device, in a graph, before a finisher."""

    @abstractmethod
    def copy(self, x: Any) -> Any:
        """The same values in memory of its own, in the same place."""


class Casts(Protocol):
    """What has to be cast where it is: on a device, or in a graph."""

    @abstractmethod
    def cast(self, x: Any, dtype: str, check: str = "") -> Any:
        """The same values in another dtype, by its canonical name, in the same place.

        Args:
            x: A tensor of the backend's.
            dtype: A canonical name.
            check: ``""``, or what each value is looked at for: see `casts.refuse`; what is lost raises.
        """


class Resolves(Protocol):
    """``Memory(lazy_bits=True)``."""

    @abstractmethod
    def resolve(self, x: Any) -> Any:
        """The values that are meant, in memory of their own."""


class Detaches(Protocol):
    """``Gradients(graph=True)``."""

    @abstractmethod
    def detach(self, x: Any) -> Any:
        """A tensor over the same memory that is in no graph."""


class Stacks(Protocol):
    """``Gradients(graph=True)``."""

    @abstractmethod
    def stack(self, tensors: Sequence[Any], shape: tuple[int, ...]) -> Any:
        """One tensor of this shape of equal ones, in the graph of each."""


# -- devices ------------------------------------------------------------------------------------


class Moves(Protocol):
    """``Devices(kinds)`` beside the host, ``Devices(others=True)``."""

    @abstractmethod
    def move(self, x: Any, device: str, non_blocking: bool = False) -> Any:
        """The same values on another device, by its canonical name; one to the host is complete when this returns."""


class HandsOver(Protocol):
    """``Devices(kinds)`` that others have as well, for dtypes that are not in ``Dtypes(unhanded)``."""

    @abstractmethod
    def wait(self, x: Any) -> Any:
        """The same tensor, whose values are there now: for who names no stream."""

    @abstractmethod
    def hand_over(self, x: Any, source: str = "") -> Any:
        """A tensor of the backend's over the memory of one on the same device.

        Args:
            x: The tensor of another framework's.
            source: The name of its backend, whose `Backend.offer` gives an object with ``__dlpack__``.
        """


class Places(Protocol):
    """``Devices(kinds)`` without the host."""

    @abstractmethod
    def place(self, x: Array, device: str) -> Any:
        """A tensor on a device with the values of a packed array, which may change when this returns."""


class Fetches(Protocol):
    """``Devices(fetches=True)``, ``Devices(shards=True)``, ``Devices(kinds)`` without the host."""

    @abstractmethod
    def fetch(self, x: Any) -> Array:
        """The values, from devices or from several shards, in a compact, writable array of their own."""


class FetchesAhead(Protocol):
    """``Devices(fetches_ahead=True)``."""

    @abstractmethod
    def start_fetch(self, x: Any) -> None:
        """Start what `fetch` will wait for."""


class Packs(Protocol):
    """``Devices(packs=True)``."""

    @abstractmethod
    def pack(self, tensors: Sequence[Any], alignment: int, lock: bool = False) -> tuple[Any, Any]:
        """One tensor that holds the bytes of many on one device, and what `unpack` needs to part them again.

        Each lies at a multiple of `alignment` bytes, and of its own element's size; with `lock`, which only a
        backend that `pins` is asked for, in page-locked memory.
        """

    @abstractmethod
    def unpack(self, parcel: Any, layout: Any) -> Sequence[Any]:
        """The tensors of a packed one, as views of its memory."""


class Straightens(Protocol):
    """``Devices(kinds)`` that others have as well, and ``Memory(strides=…)`` other than compact."""

    @abstractmethod
    def compact(self, x: Any) -> Any:
        """C-contiguous memory on the same device."""


class Spreads(Protocol):
    """``Devices(spreads=True)``."""

    @abstractmethod
    def narrow(self, x: Any, axes: Sequence[int]) -> Any:
        """The first element along each of these axes, along which all share their memory."""

    @abstractmethod
    def span(self, x: Any, length: int) -> Any:
        """The memory of a tensor whose elements overlap: so many elements, along one axis, from its first on."""

    @abstractmethod
    def spread(self, x: Any, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> Any:
        """What `narrow` had, in its shape again, or `span`, in its strides (in elements); in memory of its own."""

    @abstractmethod
    def cross(self, x: Any, device: str, axes: Sequence[int], dtype: str, first: bool) -> Any:
        """All of that in one, to another device and to a dtype, cast before or there; in the graph of `x`."""

    @abstractmethod
    def copy_together(self, tensors: Sequence[Any]) -> Sequence[Any]:
        """Copies of tensors that overlap on one device, which overlap as they do."""


class Pins(Protocol):
    """``Devices(pins=True)``."""

    @abstractmethod
    def pin(self, x: Any, required: bool = False) -> Any:
        """A host tensor's values in page-locked memory of their own.

        Args:
            x: A tensor of the backend's.
            required: Whether to raise `DeviceError` where no memory can be locked, instead of giving `x`.
        """

    @abstractmethod
    def land(self, x: Any, required: bool = False) -> Any:
        """A device's tensor on the host, in page-locked memory of its own, or else in other; complete."""


def called_for(declared: Capabilities) -> dict[str, tuple[str, ...]]:
    """The verbs that a backend must have, by the declaration that calls for them."""
    memory, devices, objects, options = declared.memory, declared.devices, declared.objects, declared.options
    graph, inside = declared.gradients.graph, bool(objects.inside_only or objects.tracer)
    away, homeless = devices.others or set(devices.kinds) != {HOST}, HOST not in devices.kinds
    handed = away and bool(declared.dtypes.held - declared.dtypes.unhanded)
    table: list[tuple[str, bool, tuple[type, ...]]] = [
        ("Memory(read_only=True)", memory.read_only, (PresentsReadOnly,)),
        ("Memory(out=True)", memory.out, (Writes,)),
        ("Memory(lazy_bits=True)", memory.lazy_bits, (Resolves,)),
        ("Devices(kinds=…) beside the host", away, (Copies, Casts, Moves)),
        ("Devices(kinds=…) and dtypes that are not unhanded", handed, (HandsOver,)),
        ("Devices(kinds=…) without the host", homeless, (Places, Fetches)),
        ("Devices(shards=True)", devices.shards, (Fetches,)),
        ("Devices(fetches=True)", devices.fetches, (Fetches,)),
        ("Devices(fetches_ahead=True)", devices.fetches_ahead, (FetchesAhead, Fetches)),
        ("Devices(packs=True)", devices.packs, (Packs,)),
        ("Devices(pins=True)", devices.pins, (Pins,)),
        ("Devices(spreads=True)", devices.spreads, (Spreads,)),
        ("Devices(kinds=…) and Memory(strides=…)", handed and memory.strides != "compact", (Straightens,)),
        ("Gradients(graph=True)", graph, (Detaches, Stacks, Copies, Casts)),
        ("Objects(read_kinds=…)", bool(objects.read_kinds - JOINS.keys()), (Reads,)),
        ("Objects(value_kinds=…)", bool(objects.value_kinds), (HasValues,)),
        ("Objects(inside_only=…) or a tracer", inside, (Copies, Casts)),
        ("Options(finishers=…)", bool(options.finishers), (Copies,)),
    ]
    found = {word: tuple(verb for kind in kinds for verb in _named(kind)) for word, holds, kinds in table if holds}
    if options.finishers:
        found["Options(finishers=…)"] += tuple(sorted(options.finishers))
    return found


def _named(kind: type) -> tuple[str, ...]:
    """The verbs of a protocol, in its own order."""
    return tuple(name for name, verb in vars(kind).items() if getattr(verb, "__isabstractmethod__", False))
