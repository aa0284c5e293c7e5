"""What a backend declares, in groups by subject; plans are made from this alone.

>>> from tensorferry.core.capabilities import Capabilities, Dtypes, Memory
>>> one = ("float32",)
>>> numbers = {"bool": one, "int": one, "float": one, "complex": one}
>>> declared = Capabilities(Dtypes(frozenset(one), numbers), Memory(writable=True, strides="compact"))
>>> declared.memory.strides, declared.devices.kinds
('compact', ('cpu',))
"""
# No ``from __future__ import annotations``: a `NamedTuple` compiles each annotation that is a string, which is a
# tenth of the time that importing tensorferry takes.

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

__all__ = ["Capabilities", "DeviceFacts", "Devices", "Dtypes", "Gradients", "Memory", "Objects", "Options"]

_NONE: Mapping[str, str] = {}
_NONE_WHY: Mapping[str, tuple[str, str | None]] = {}


class Dtypes(NamedTuple):
    """The dtypes of a framework's tensors.

    Args:
        held: Canonical names of those that its tensors can have.
        numbers: For each kind of Python number, the dtypes that its own constructor gives it,
            narrowest first: the first that holds the values is taken.
        unshared: Those that it stores in another form than an ndarray, so always copies.
        uncast: Those that its own operations do not cast on a device.
        unhanded: Those that it cannot give to another framework, or take from one, on a device.
        absent_reasons: For one that it lacks for now: why, as the end of a sentence.
        absent_hint: The code that makes it have those, if there is any.
    """

    held: frozenset[str]
    numbers: Mapping[str, tuple[str, ...]]
    unshared: frozenset[str] = frozenset()
    uncast: frozenset[str] = frozenset()
    unhanded: frozenset[str] = frozenset()
    absent_reasons: Mapping[str, str] = _NONE
    absent_hint: str = ""

    def default(self, kind: str) -> str:
        """The dtype that the framework's own constructor gives a Python number of this kind."""
        return self.numbers[kind][0]


class Memory(NamedTuple):
    """The memory of a framework's tensors on the host, and which it can adopt.

    Args:
        writable: Whether its tensors can be written.
        exists: Whether its values have memory at all (a list of numbers has none to share).
        strides: What it can adopt: ``"any"`` strides, ``"non-negative"`` whole elements, or ``"compact"`` only.
        alignment: Bytes of which an adopted address must be a multiple; 0 means the element's size,
            1 any address.
        axes: How many axes its tensors have at most.
        fewest_axes: How many they have at least.
        by_columns: Whether one of several axes is a table, with a memory for each column.
        host_array: Whether its tensors *are* ndarrays in host memory.
        lazy_bits: Whether its tensors can have a conjugate or a negative bit, which the verb ``resolve`` applies.
        read_only: Whether it can present memory read-only: its verb ``read_only``, which takes its own tensor and
            gives one over the same memory that nobody can write through.
        out: Whether its tensors can be given as ``out=``: its verb ``write``.
        writes_parts: Whether its verb ``write`` also takes `chunks.Chunks`, for an ``out=`` in host memory.
        writes_own: Whether its verb ``write`` also takes its own tensors, wherever they and ``out=`` are.
    """

    writable: bool
    exists: bool = True
    strides: Literal["any", "non-negative", "compact"] = "any"
    alignment: int = 1
    axes: float = math.inf
    fewest_axes: int = 0
    by_columns: bool = False
    host_array: bool = False
    lazy_bits: bool = False
    read_only: bool = False
    out: bool = False
    writes_parts: bool = False
    writes_own: bool = False


class Devices(NamedTuple):
    """The devices of a framework, and how its tensors travel between them.

    Args:
        kinds: Kinds of device on which its tensors can live, were they present; the host, or else the usual one, first.
        others: Whether they can live on every other kind as well: what one has, `Declaration.device_facts` tells.
        shards: Whether the parts of one of its tensors can lie on several devices.
        fetches: Whether one call of its own brings a tensor from devices, or from several shards, into
            an ndarray: its verb ``fetch``.
        fetches_ahead: Whether its verb ``start_fetch`` starts such a transfer without waiting for it.
        packs: Whether many of its tensors can be packed into one, on any device: ``pack`` and ``unpack``.
        pins: Whether it page-locks host memory: its verbs ``pin`` and ``land``.
        spreads: Whether memory that elements, or tensors, share can be copied as such: its verbs ``narrow``,
            ``span``, ``spread``, ``cross`` and ``copy_together``.
        waits: Whether memory that it is handed on a device must be finished: it names no stream.
        offers: Whether its tensors have ``__dlpack__`` themselves.
        takes_offers: Whether code that shares gives it another's tensor over DLPack: it would copy an array between.
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
    offers: bool = False
    takes_offers: bool = False

    def include(self, kind: str) -> bool:
        """Whether its tensors can live on a kind of device."""
        return self.others or kind in self.kinds


class DeviceFacts(NamedTuple):
    """What a framework has on a kind of device, and what not; of a kind that is not here: what most have.

    Args:
        present: How many such devices there are here, as far as the framework was asked.
        streams: Whether work for it is queued on streams, and ordered by events.
        pins: Whether it page-locks host memory for transfers to and from it.
        absent: The dtypes, by their canonical names, that cannot live there.
        meant: The kind that was most likely meant, if the framework knows none of this name, or none with memory.
    """

    present: int = 0
    streams: bool = True
    pins: bool = True
    absent: frozenset[str] = frozenset()
    meant: str = ""


class Gradients(NamedTuple):
    """The autograd graph of a framework.

    Args:
        graph: Whether its tensors carry one.
        records: Whether what is done to one in a graph is recorded now; if not, the result is in none.
        tape: What may be recording its operations for gradients, if no tensor shows that it is.
        parameter: The kind of its tensors that are there to be learnt, of which what is detached is none.
    """

    graph: bool = False
    records: bool = True
    tape: str = ""
    parameter: str = ""


class Objects(NamedTuple):
    """The framework's objects that are no plain tensors, by what `TensorInfo` says of them.

    Args:
        ordinary_kind: The `TensorInfo.kind` of one that is written by hand and names none.
        read_kinds: Values of `TensorInfo.kind` that own no shareable memory and have to be read.
        value_kinds: Values of `TensorInfo.kind` whose value is another object (a variable's).
        abstract: For each reason why an object has no memory: why, and what to do.
        inside_only: Those of them that may still be converted inside their own framework.
        tracer: What records its operations on real values now: there what leaves the framework becomes a constant.
    """

    ordinary_kind: str = ""
    read_kinds: frozenset[str] = frozenset()
    value_kinds: frozenset[str] = frozenset()
    abstract: Mapping[str, tuple[str, str | None]] = _NONE_WHY
    inside_only: frozenset[str] = frozenset()
    tracer: str = ""


class Options(NamedTuple):
    """The keywords that a target has beside those of every target.

    Args:
        names: Those that it understands.
        finishers: Those that are a last step of their own, by the verb of that name.
    """

    names: frozenset[str] = frozenset()
    finishers: frozenset[str] = frozenset()


class _Groups(NamedTuple):
    dtypes: Dtypes
    memory: Memory
    devices: Devices = Devices()
    gradients: Gradients = Gradients()
    objects: Objects = Objects()
    options: Options = Options()


class Capabilities(_Groups):
    """What a framework can hold, adopt and promise, in groups by subject.

    Two are the same if they are one object: a backend makes its own once, and gives it as often as it is asked.

    Args:
        dtypes: The dtypes of its tensors.
        memory: Their memory on the host.
        devices: Their devices.
        gradients: Their autograd graph.
        objects: Its objects that are no plain tensors.
        options: The keywords that only it has.
    """

    __slots__ = ()

    # A part of the key of every plan that is kept: none of the fields is looked at.
    __hash__ = object.__hash__
    __eq__ = object.__eq__  # pyright: ignore[reportAssignmentType]
    __ne__ = object.__ne__
