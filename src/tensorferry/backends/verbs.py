"""The verbs that declared abilities need, as protocols.

`backends.registry.register` refuses a backend that declares one of these abilities without its
verbs. A verb takes the value of one step and gives that of the next. A protocol can be a base class
of a backend (``class MyBackend(Backend, Writes)``). Then a type checker compares the signatures,
and Python refuses to make an instance without the verb.

>>> from tensorferry.core.capabilities import Capabilities, Dtypes, Memory
>>> verbs_needed(Capabilities(Dtypes(frozenset(), {}), Memory(writable=True, out=True)))
{'Memory(out=True)': ('write',)}
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

from ..core.capabilities import Capabilities
from ..core.devices import HOST
from ..core.kinds import kind_named
from .base import Backend

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..core.labels import Labels
    from ..typing import Array

__all__ = [
    "Casts",
    "Copies",
    "Detaches",
    "Fetches",
    "FetchesAhead",
    "HasValues",
    "ImportsDlpack",
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
    "TakesLabels",
    "Writes",
    "missing_verbs",
    "validate",
    "verbs_needed",
]

# -- host memory -----------------------------------------------------------------------------------


class PresentsReadOnly(Protocol):
    """``Memory(read_only=True)``."""

    @abstractmethod
    def read_only(self, x: Any) -> Any:
        """A read-only tensor of the backend over the memory of `x`."""


class Writes(Protocol):
    """``Memory(out=True)``."""

    @abstractmethod
    def write(self, x: Array, out: Any) -> None:
        """Write an array's values into `out`, a tensor of the backend, cast to its dtype.

        With ``Memory(writes_own=True)``, also the values of a tensor of the backend with the same
        dtype, on any devices; and without waiting, from page-locked memory, if a third argument is
        true.
        """


class Reads(Protocol):
    """``Objects(read_kinds=…)``, except kinds of stacks, and ``Objects(reads_copies=True)``."""

    @abstractmethod
    def read(self, x: Any) -> Any:
        """The values of an object without memory to share, as a tensor of the backend."""


class HasValues(Protocol):
    """``Objects(value_kinds=…)``."""

    @abstractmethod
    def value(self, x: Any) -> Any:
        """The tensor that the object holds now."""


class Takes(Protocol):
    """``Objects(taken_kinds=…)``."""

    @abstractmethod
    def take(self, x: Any) -> Any:
        """A tensor of the backend over the memory of another library's object on a device; or `x`.

        The tensor and its views keep `x` alive: what `x` exports may not own the memory.
        """


class TakesLabels(Protocol):
    """``Options(labels=…)``."""

    @abstractmethod
    def labels_given(
        self, index: object, columns: object, to_array: Callable[[Any], Array]
    ) -> Labels:
        """The labels that are the values of ``index=`` and ``columns=``; one may be ``None``.

        `to_array` converts a tensor among them to an array.

        Raises:
            TypeError: A value is no labels.
            ShapeError: A name occurs twice.
        """

    @abstractmethod
    def label(self, x: Any, index: Labels | None, names: Labels | None) -> Any:
        """A tensor of the backend over the memory of `x`, with these labels' index and names."""


# -- the framework's own operations, where its graph or its devices need them ----------------------


class Copies(Protocol):
    """For copies on a device, in a graph, or before a finisher."""

    @abstractmethod
    def copy(self, x: Any) -> Any:
        """A copy on the same device."""


class Casts(Protocol):
    """For casts on a device or in a graph."""

    @abstractmethod
    def cast(self, x: Any, dtype: str, check: str = "") -> Any:
        """A copy with another dtype, on the same device.

        Args:
            x: A tensor of the backend.
            dtype: A canonical name.
            check: How each value is checked, see `casts.cast`; a lost value raises.
        """


class Resolves(Protocol):
    """``Memory(lazy_bits=True)``."""

    @abstractmethod
    def resolve(self, x: Any) -> Any:
        """A copy in which lazy bits are applied."""


class Detaches(Protocol):
    """``Gradients(graph=True)``."""

    @abstractmethod
    def detach(self, x: Any) -> Any:
        """A tensor over the same memory, outside the autograd graph."""


class Stacks(Protocol):
    """``Gradients(graph=True)``."""

    @abstractmethod
    def stack(self, tensors: Sequence[Any], shape: tuple[int, ...]) -> Any:
        """Stack tensors of equal shapes into one of this shape, in the autograd graph."""


# -- devices ---------------------------------------------------------------------------------------


class Moves(Protocol):
    """``Devices(kinds)`` with other kinds than the host, ``Devices(others=True)``."""

    @abstractmethod
    def move(self, x: Any, device: str, non_blocking: bool = False) -> Any:
        """A copy on another device, given by its canonical name.

        A copy on the host is complete when this returns.
        """


class ImportsDlpack(Protocol):
    """``Devices(kinds)`` that others have too, for dtypes not in ``Dtypes(unexported)``."""

    @abstractmethod
    def wait(self, x: Any) -> Any:
        """The tensor, after its values have been computed: for a consumer without streams."""

    @abstractmethod
    def import_dlpack(self, x: Any, source: str = "") -> Any:
        """A tensor of the backend over the memory of another framework's tensor on the same device.

        Args:
            x: The tensor of the other framework.
            source: The name of its backend, whose `Backend.export_dlpack` gives an object with
                ``__dlpack__``.
        """


class Places(Protocol):
    """``Devices(kinds)`` without the host."""

    @abstractmethod
    def place(self, x: Array, device: str) -> Any:
        """A copy of an array without gaps on a device. The array may change after this returns."""


class Fetches(Protocol):
    """``Devices(fetches=True)``, ``Devices(shards=True)``, ``Devices(kinds)`` without the host."""

    @abstractmethod
    def fetch(self, x: Any) -> Array:
        """The values, from a device or from several shards, in a new, compact, writable array."""


class FetchesAhead(Protocol):
    """``Devices(fetches_ahead=True)``."""

    @abstractmethod
    def start_fetch(self, x: Any) -> None:
        """Start the transfer that `fetch` will wait for."""


class Packs(Protocol):
    """``Devices(packs=True)``."""

    @abstractmethod
    def pack(self, tensors: Sequence[Any], alignment: int, lock: bool = False) -> tuple[Any, Any]:
        """A packed buffer of many tensors on one device, and what `unpack` needs to separate them.

        Each tensor is aligned to `alignment` bytes, and to the size of its elements. With `lock`,
        only for a backend that `pins`, the buffer is in page-locked memory.
        """

    @abstractmethod
    def unpack(self, packed: Any, layout: Any) -> Sequence[Any]:
        """The tensors in a packed buffer, as views of its memory."""


class Straightens(Protocol):
    """``Devices(kinds)`` that others have too, with ``Memory(strides=…)`` other than compact."""

    @abstractmethod
    def compact(self, x: Any) -> Any:
        """A C-contiguous copy on the same device."""


class Spreads(Protocol):
    """``Devices(spreads=True)``."""

    @abstractmethod
    def narrow(self, x: Any, axes: Sequence[int]) -> Any:
        """A view of the first element along these axes, along which all elements share memory."""

    @abstractmethod
    def span(self, x: Any, length: int) -> Any:
        """A view of `length` elements along an axis: memory of a tensor whose elements overlap."""

    @abstractmethod
    def spread(self, x: Any, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> Any:
        """A copy of `narrow`'s argument, by its shape, or `span`'s, by its strides in elements."""

    @abstractmethod
    def cross(self, x: Any, device: str, axes: Sequence[int], dtype: str, first: bool) -> Any:
        """`narrow`, a transfer, a cast before or after, `spread`: one operation of `x`'s graph."""

    @abstractmethod
    def copy_together(self, tensors: Sequence[Any]) -> Sequence[Any]:
        """Copies of overlapping tensors on one device, which overlap in the same way."""


class Pins(Protocol):
    """``Devices(pins=True)``."""

    @abstractmethod
    def pin(self, x: Any, required: bool = False) -> Any:
        """A copy of a host tensor in page-locked memory.

        Args:
            x: A tensor of the backend.
            required: Whether to raise `DeviceError` if no memory can be locked, instead of giving
                `x`.
        """

    @abstractmethod
    def land(self, x: Any, required: bool = False) -> Any:
        """A complete copy of a device's tensor on the host, in page-locked memory if possible."""


def verbs_needed(declared: Capabilities) -> dict[str, tuple[str, ...]]:
    """The verbs that a backend must have, by the declarations that need them."""
    memory, devices, objects, options = (
        declared.memory,
        declared.devices,
        declared.objects,
        declared.options,
    )
    graph, inside = declared.gradients.graph, bool(objects.inside_only or objects.tracer)
    off_host, without_host = (
        devices.others or set(devices.kinds) != {HOST},
        HOST not in devices.kinds,
    )
    shared_on_device = off_host and bool(declared.dtypes.held - declared.dtypes.unexported)
    table: list[tuple[str, bool, tuple[type, ...]]] = [
        ("Memory(read_only=True)", memory.read_only, (PresentsReadOnly,)),
        ("Memory(out=True)", memory.out, (Writes,)),
        ("Memory(lazy_bits=True)", memory.lazy_bits, (Resolves,)),
        ("Devices(kinds=…) beside the host", off_host, (Copies, Casts, Moves)),
        ("Devices(kinds=…) and dtypes that are not unexported", shared_on_device, (ImportsDlpack,)),
        ("Devices(kinds=…) without the host", without_host, (Places, Fetches)),
        ("Devices(shards=True)", devices.shards, (Fetches,)),
        ("Devices(fetches=True)", devices.fetches, (Fetches,)),
        ("Devices(fetches_ahead=True)", devices.fetches_ahead, (FetchesAhead, Fetches)),
        ("Devices(packs=True)", devices.packs, (Packs,)),
        ("Devices(pins=True)", devices.pins, (Pins,)),
        ("Devices(spreads=True)", devices.spreads, (Spreads,)),
        (
            "Devices(kinds=…) and Memory(strides=…)",
            shared_on_device and memory.strides != "compact",
            (Straightens,),
        ),
        ("Gradients(graph=True)", graph, (Detaches, Stacks, Copies, Casts)),
        ("Objects(read_kinds=…)", not all(map(_is_joined, objects.read_kinds)), (Reads,)),
        ("Objects(reads_copies=True)", objects.reads_copies, (Reads,)),
        ("Objects(value_kinds=…)", bool(objects.value_kinds), (HasValues,)),
        ("Objects(taken_kinds=…)", bool(objects.taken_kinds), (Takes,)),
        ("Objects(inside_only=…) or a tracer", inside, (Copies, Casts)),
        ("Options(finishers=…)", bool(options.finishers), (Copies,)),
        ("Options(labels=…)", bool(options.labels), (TakesLabels,)),
    ]
    needed = {
        word: tuple(verb for kind in kinds for verb in _named(kind))
        for word, holds, kinds in table
        if holds
    }
    if options.finishers:
        needed["Options(finishers=…)"] += tuple(sorted(options.finishers))
    return needed


def _is_joined(name: str) -> bool:
    """Whether the kind of this name is several tensors, which are joined instead of read."""
    return bool(kind_named(name).joined_by)


def _named(kind: type) -> tuple[str, ...]:
    """The verbs of a protocol, in order."""
    return tuple(
        name for name, verb in vars(kind).items() if getattr(verb, "__isabstractmethod__", False)
    )


def missing_verbs(backend: Backend) -> list[str]:
    """For each verb that a backend lacks, a text with its name and the declaration that needs it.

    >>> from tensorferry.backends.registry import backends
    >>> missing_verbs(backends()["numpy"])
    []
    """
    return [
        f"{declared} and has no verb {verb}()"
        for declared, verbs in verbs_needed(backend.capabilities).items()
        for verb in verbs
        if not callable(getattr(backend, verb, None))
    ]


def validate(backend: object) -> None:
    """Raise for an object that cannot be registered as a backend.

    Raises:
        TypeError: It is not a backend, or a declaration has a wrong type, or an ability lacks its
            verb.
    """
    kind = type(backend).__qualname__
    if not isinstance(backend, Backend):
        raise TypeError(
            f"a backend is an instance of tensorferry.backends.base.Backend, not of {kind}"
        )
    declared: dict[str, Any] = {
        attribute: getattr(backend, attribute)
        for attribute in ("name", "owns", "aliases", "capabilities")
    }
    if not isinstance(declared["name"], str):
        raise TypeError(f"{kind}.name must be a string")
    for attribute in ("owns", "aliases"):
        if not isinstance(declared[attribute], tuple) or not all(
            isinstance(name, str) for name in declared[attribute]
        ):
            raise TypeError(f"{kind}.{attribute} must be a tuple of strings")
    if not isinstance(declared["capabilities"], Capabilities):
        raise TypeError(
            f"{kind}.capabilities must be of tensorferry.core.capabilities.Capabilities"
        )
    missing = missing_verbs(backend)
    if missing:
        raise TypeError(f"the backend {backend.name!r} declares {', '.join(missing)}")
