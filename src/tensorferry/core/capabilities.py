"""What a backend declares about its framework, in groups by subject.

The planner knows nothing else.

>>> from tensorferry.core.capabilities import Capabilities, Dtypes, Memory
>>> one = ("float32",)
>>> numbers = {"bool": one, "int": one, "float": one, "complex": one}
>>> declared = Capabilities(
...     Dtypes(frozenset(one), numbers), Memory(writable=True, strides="compact")
... )
>>> declared.memory.strides, declared.devices.kinds
('compact', ('cpu',))
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from .named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..hints import Hint
    from .kinds import Kind

__all__ = [
    "Capabilities",
    "DeviceFacts",
    "Devices",
    "Dtypes",
    "Gradients",
    "Memory",
    "Objects",
    "Options",
]

_NONE: Mapping[str, str] = {}
_NO_KINDS_BY_DTYPE: Mapping[str, Kind] = {}
_NO_KINDS_BY_AXES: Mapping[int, Kind] = {}
_NO_WORDS: Mapping[str, tuple[str, ...]] = {}
_NONE_WHY: Mapping[str, tuple[str, str | Hint | None]] = {}


class Dtypes(NamedTuple):
    """The dtypes of a framework's tensors.

    Args:
        held: The canonical names of the dtypes that its tensors can have.
        numbers: For each kind of Python number, the dtypes that its own constructor gives it,
            narrowest first: the first that holds the values is taken.
        unshared: Those that it stores in another form than an ndarray, so that they are always
            copied.
        uncast: Those that its own operations do not cast on a device.
        uncast_pairs: Pairs, from and to, that its own operations do not cast on a device with the
            same bits as NumPy.
        cast_alike: Pairs between which its own cast, of tensors on the host, gives the same bits as
            NumPy's, but for the payload of a signalling NaN.
        unexported: Those that it cannot share with another framework on a device.
        unnamed: Those that its own functions for DLPack do not know, so that printed code shares
            them as integers.
        absent_reasons: For a dtype that it does not have now, but could have: why, as the end of a
            sentence.
        absent_hint: The code that gives it these dtypes, if there is any.
        since: For a dtype that the oldest supported release does not have: the first release that
            has it.
        words: What words mean in its own module (``"float"`` in ``"torch.float"``), if they mean
            something else, or several things, without it: see `dtype_names`.
    """

    held: frozenset[str]
    numbers: Mapping[str, tuple[str, ...]]
    unshared: frozenset[str] = frozenset()
    uncast: frozenset[str] = frozenset()
    uncast_pairs: frozenset[tuple[str, str]] = frozenset()
    cast_alike: frozenset[tuple[str, str]] = frozenset()
    unexported: frozenset[str] = frozenset()
    unnamed: frozenset[str] = frozenset()
    absent_reasons: Mapping[str, str] = _NONE
    absent_hint: str = ""
    since: Mapping[str, str] = _NONE
    words: Mapping[str, tuple[str, ...]] = _NO_WORDS

    def default(self, kind: str) -> str:
        """The dtype that the framework's own constructor gives a Python number of this kind."""
        return self.numbers[kind][0]

    def release(self, name: str) -> str:
        """The first release that has a dtype that this one does not have; empty if none has."""
        if name in self.held:
            return ""
        return self.since.get(name, "")

    def casts_on_device(self, before: str, after: str) -> bool:
        """Whether the framework itself may do a cast on a device, if frameworks agree about it."""
        return not {before, after} & self.uncast and (before, after) not in self.uncast_pairs


class Memory(NamedTuple):
    """The memory of a framework's tensors on the host, and which memory of others it can adopt.

    Args:
        writable: Whether its tensors can be written.
        shows_writes: Whether its tensors may change though they cannot be written, since others can
            write their memory.
        exists: Whether its values have memory at all (a list of numbers has none to share).
        strides: What it can adopt: ``"any"`` strides, ``"non-negative"`` whole elements, or
            ``"compact"`` only.
        alignment: Bytes of which an adopted address must be a multiple; 0 means the element's size,
            1 any address.
        axes: How many axes its tensors have at most.
        fewest_axes: How many they have at least.
        reshape: The function of its module that gives a tensor another shape, for hints; empty if
            its tensors have a method for that.
        by_columns: Whether a tensor of several axes is a table, with separate memory for each
            column.
        host_array: Whether its tensors *are* ndarrays in host memory.
        lazy_bits: Whether its tensors can have a conjugate or a negative bit, which the verb
            ``resolve`` applies.
        read_only: Whether it has read-only tensors: its verb ``read_only`` takes one of its tensors
            and gives a read-only one over the same memory.
        out: Whether its tensors can be given as ``out=``: its verb ``write``.
        writes_parts: Whether its verb ``write`` also takes `chunks.Chunks`, for an ``out=`` in host
            memory.
        writes_own: Whether its verb ``write`` also takes its own tensors, wherever they and
            ``out=`` are.
    """

    writable: bool
    exists: bool = True
    strides: Literal["any", "non-negative", "compact"] = "any"
    alignment: int = 1
    axes: float = math.inf
    fewest_axes: int = 0
    reshape: str = ""
    by_columns: bool = False
    host_array: bool = False
    shows_writes: bool = False
    lazy_bits: bool = False
    read_only: bool = False
    out: bool = False
    writes_parts: bool = False
    writes_own: bool = False


class Devices(NamedTuple):
    """The devices of a framework, and how its tensors travel between them.

    Args:
        kinds: The kinds of device that it supports: first the host, or, if it has no host tensors,
            the usual kind.
        others: Whether it supports all other kinds as well: see `Declaration.device_facts`.
        shards: Whether one tensor can be spread over several devices.
        fetches: Whether one call of the framework brings a tensor from a device, or from several
            shards, into an ndarray: its verb ``fetch``.
        fetches_ahead: Whether its verb ``start_fetch`` starts such a transfer without waiting for
            it.
        packs: Whether many of its tensors can be packed into one, on any device: ``pack`` and
            ``unpack``.
        pins: Whether it page-locks host memory: its verbs ``pin`` and ``land``.
        spreads: Whether memory that elements, or tensors, share can be copied as such: its verbs
            ``narrow``, ``span``, ``spread``, ``cross`` and ``copy_together``.
        waits: Whether memory on a device must be complete before it takes it, because it names no
            stream.
        exports_dlpack: Whether its tensors have ``__dlpack__``.
        prefers_dlpack: Whether printed code gives it the source's tensor through DLPack, as it
            would copy an array.
        offloads: Whether a tensor of a device may lie in page-locked memory of the host.
    """

    kinds: tuple[str, ...] = ("cpu",)
    others: bool = False
    shards: bool = False
    fetches: bool = False
    fetches_ahead: bool = False
    packs: bool = False
    pins: bool = False
    spreads: bool = False
    waits: bool = False
    exports_dlpack: bool = False
    prefers_dlpack: bool = False
    offloads: bool = False

    def include(self, kind: str) -> bool:
        """Whether the framework supports a kind of device."""
        return self.others or kind in self.kinds


class DeviceFacts(NamedTuple):
    """What a framework can do on a kind of device.

    The defaults are for a kind that this machine does not have.

    Args:
        present: How many such devices this machine has, as far as the framework says.
        streams: Whether its work is queued on streams, and ordered by events.
        pins: Whether it has page-locked memory for transfers to and from such a device.
        absent: The canonical names of the dtypes that the device does not support.
        meant: The kind that the user most likely meant, if the framework has no such kind, or it
            has no memory.
    """

    present: int = 0
    streams: bool = True
    pins: bool = True
    absent: frozenset[str] = frozenset()
    meant: str = ""


class Gradients(NamedTuple):
    """The autograd graph of a framework.

    Args:
        graph: Whether its tensors have one.
        records: Whether operations are recorded now. If not (PyTorch's ``no_grad``), results are in
            no graph.
        tape: What may record its operations for gradients, if tensors do not show it (TensorFlow's
            ``GradientTape``).
        parameter: The kind of its trainable tensors. A detached one is an ordinary tensor.
        stopped: The code that gives a tensor ``x`` without its gradient, for hints.
    """

    graph: bool = False
    records: bool = True
    tape: str = ""
    parameter: str = ""
    stopped: str = ""


class Objects(NamedTuple):
    """The objects of a framework that are not plain tensors.

    Args:
        ordinary_kind: The name of the kind of a description that names none.
        kinds_by_dtype: Instead of it, that of an ordinary tensor of a dtype.
        kinds_by_axes: Instead of both, that of an ordinary tensor with so many axes.
        gathers_at: The assumed address, modulo 64, of the array that its library makes of a table.
        read_kinds: The names of kinds without memory to share, whose values must be read.
        reads_copies: Whether those of all kinds must be read of which an array is made that may not
            share their memory: `Kind.copied`.
        value_kinds: The names of kinds that hold a tensor (variables).
        taken_kinds: Those of objects of other libraries on a device, whose memory it takes by a
            protocol of this name: its verb ``take``.
        abstract: For each `TensorInfo.abstract`: why the object has no memory, and what to do.
        inside_only: Those of them that can still be converted inside their own framework.
        only_returned: Those of `inside_only` that can only be returned as they are.
        opaque: Those of `inside_only` whose values only the framework reads: they are returned or
            copied.
        tracer: What records its operations on real values now (``torch.jit.trace``). There, a value
            that leaves the framework becomes a constant.
    """

    ordinary_kind: str = ""
    kinds_by_dtype: Mapping[str, Kind] = _NO_KINDS_BY_DTYPE
    kinds_by_axes: Mapping[int, Kind] = _NO_KINDS_BY_AXES
    gathers_at: int = 0
    read_kinds: frozenset[str] = frozenset()
    reads_copies: bool = False
    value_kinds: frozenset[str] = frozenset()
    taken_kinds: frozenset[str] = frozenset()
    abstract: Mapping[str, tuple[str, str | Hint | None]] = _NONE_WHY
    inside_only: frozenset[str] = frozenset()
    only_returned: frozenset[str] = frozenset()
    opaque: frozenset[str] = frozenset()
    tracer: str = ""

    def reads(self, kind: Kind) -> bool:
        """Whether the values of such an object must be read, as it has no memory to share."""
        if kind.copied:
            return self.reads_copies
        return kind.name in self.read_kinds


class Options(NamedTuple):
    """The keywords that only this target has.

    Args:
        names: Their names.
        finishers: Those that add a last step, which calls the verb of the same name.
        labels: ``index`` and ``columns``, as far as its tensors have labels for rows and columns:
            its verbs ``labels_given`` and ``label``.
    """

    names: frozenset[str] = frozenset()
    finishers: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()


class _Groups(NamedTuple):
    dtypes: Dtypes
    memory: Memory
    devices: Devices = Devices()
    gradients: Gradients = Gradients()
    objects: Objects = Objects()
    options: Options = Options()


class Capabilities(_Groups):
    """What a framework can do, in groups by subject.

    Two are equal only if they are the same object. A backend makes its capabilities once.

    Args:
        dtypes: The dtypes of its tensors.
        memory: Their memory on the host.
        devices: Their devices.
        gradients: Their autograd graph.
        objects: Its objects that are not plain tensors.
        options: The keywords that only it has.
    """

    __slots__ = ()

    # By identity, because capabilities are a part of the key of every cached plan.
    __hash__ = object.__hash__
    __eq__ = object.__eq__  # pyright: ignore[reportAssignmentType]
    __ne__ = object.__ne__

    def holding(self, names: Iterable[str]) -> Capabilities:
        """The same, but with these dtypes: those that the installed release has."""
        return self._replace(dtypes=self.dtypes._replace(held=frozenset(names)))
