"""NumPy's arrays, quickly: signatures and extents, short ways for the verbs, fast paths."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.layout import byte_span
from ...core.signature import COMPACT, layout_of, places_by
from ...host import casts, memory
from ...host.numpy_dtypes import NAMES
from .. import together
from ..fast_paths import made_when_called
from ..quick import Quick
from .tensors import NumpyBackend, who_writes

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from ...core.info import TensorInfo
    from ...core.request import Request
    from ...planning.plan import Plan
    from ...planning.step import Step
    from ...typing import Array
    from ..quick import Described

__all__ = ["QUICK", "NumpyQuick"]

_ARRAY = np.ndarray
"""A name of ours: one in NumPy's module, which has a ``__getattr__``, takes as long as a call."""
_DTYPE, _RANK, _SIZE, _FLAG_BITS = map(attrgetter, ("dtype", "ndim", "size", "flags.num"))
_address = memory.address
_C_ORDER, _ALIGNED, _WRITEABLE = 0x0001, 0x0100, 0x0400
_FITS = _C_ORDER | _ALIGNED
_OPENED = "mM"
"""Kinds of dates and durations.

The first step takes the counts in them, so that each has to be opened.
"""
_OWN = frozenset({0x0505, 0x0507})
"""``array.flags.num`` of a writable array that owns its memory, in C order (one axis: also F)."""


class NumpyQuick(Quick[NumpyBackend]):
    """What makes conversions of arrays fast."""

    lengths = staticmethod(attrgetter("shape"))  # pyright: ignore[reportAssignmentType]

    # -- one array ---------------------------------------------------------------------------------

    def signature(self, x: Any) -> Hashable | None:
        if type(x) is not _ARRAY:
            return None
        dtype = x.dtype
        if dtype.hasobject or dtype.kind in _OPENED:
            return None
        # One number that tells whether it is in C order and writable.
        flags, base = x.flags.num, x.base
        # It owns its memory, or is a writable view of an array that does, so it is not over a file.
        own = base is None or (flags & _WRITEABLE and type(base) is _ARRAY and base.base is None)
        if own and flags & _C_ORDER and x.size:
            return dtype, x.ndim, COMPACT, _address(x) & 63, flags
        layout = layout_of(x.shape, x.strides, x.itemsize)
        if own:
            facts = None
        else:
            facts = who_writes(x, x.flags.writeable)
        return dtype, x.ndim, layout, _address(x) & 63, flags, facts

    def signature_reader(
        self, kind: type, target: Described, request: Request
    ) -> Callable[[Any], Hashable | None]:
        needs_address = kind is not np.ndarray or target.capabilities.memory.alignment > 1
        return self.signature if needs_address else self._unaddressed

    def _unaddressed(self, x: Any) -> Hashable | None:
        """The signature without the address, whose reading takes a third of the time.

        The flags say whether the address fits the element.
        """
        flags, base, dtype = x.flags.num, x.base, x.dtype
        own = base is None or (flags & _WRITEABLE and type(base) is _ARRAY and base.base is None)
        if (
            own
            and flags & _FITS == _FITS
            and x.size
            and not dtype.hasobject
            and dtype.kind not in _OPENED
        ):
            return dtype, x.ndim, COMPACT, 0, flags
        return self.signature(x)

    def likeness(self, x: Any) -> Hashable | None:
        return x.dtype if type(x) is _ARRAY and x.dtype in NAMES else None

    # -- many arrays -------------------------------------------------------------------------------

    def signatures(
        self, tensors: Sequence[Any], alignment: int, *, copies: bool = False
    ) -> Hashable | None:
        found = memory.array_signatures(tensors, max(alignment, 1))
        for dtype, _rank, flags in () if found is None else found[0]:
            if dtype.hasobject or dtype.kind in _OPENED or not _is_plain(flags, copies=copies):
                return None
        return found

    def grouped(
        self, tensors: Sequence[Any], alignment: int, *, copies: bool = False
    ) -> Mapping[Hashable, Sequence[int]] | None:
        alike = _alike(tensors)
        if alike is None:
            return self._grouped_one_by_one(tensors, alignment)
        places_by_signature: dict[Hashable, Sequence[int]] = {}
        for (dtype, rank, flags), places in alike.items():
            if dtype.hasobject or dtype.kind in _OPENED:
                return None
            # Who else may write is read of one after the other, if it matters.
            if not _is_plain(flags, copies=copies):
                return self._grouped_one_by_one(tensors, alignment)
            # The flags say that each is aligned to its elements.
            if alignment <= dtype.alignment:
                places_by_signature[dtype, rank, COMPACT, 0, flags] = places
                continue
            addresses = memory.first_addresses([tensors[place] for place in places])
            for at, some in places_by([address & (alignment - 1) for address in addresses]).items():
                places_by_signature[dtype, rank, COMPACT, at, flags] = [
                    places[index] for index in some
                ]
        return places_by_signature

    def _grouped_one_by_one(
        self, tensors: Sequence[Any], alignment: int
    ) -> Mapping[Hashable, Sequence[int]] | None:
        facts_of_all: list[Any] = []
        for x in tensors:
            signature = self.signature(x)
            if signature is None:
                return None
            known: Any = signature
            dtype, rank, layout, address, flags, *facts = known
            # As for arrays that are alike: a group has one key, whatever it is read beside.
            if flags & _FITS == _FITS:
                address = address & (alignment - 1) if alignment > dtype.alignment else 0
            facts_of_all.append((dtype, rank, layout, address, flags, *facts))
        return places_by(facts_of_all)

    def extents(
        self, tensors: Sequence[Any], *, compact: bool
    ) -> tuple[Sequence[int] | Array, Sequence[int] | Array]:
        found = memory.array_extents(tensors) if compact else None
        if found is not None:
            return found
        starts = memory.first_addresses(tensors)
        if compact:
            return starts, [at + x.nbytes for x, at in zip(tensors, starts, strict=True)]
        starts, ends = [], []
        for x, at in zip(tensors, memory.first_addresses(tensors), strict=True):
            if x.flags.forc:
                low, high = 0, x.nbytes
            else:
                low, high = byte_span(x.shape, x.strides, x.itemsize)
            starts.append(at + low)
            ends.append(at + high)
        return starts, ends

    def owns_memory(self, signature: Any) -> bool:
        _dtype, _rank, _layout, _address, flags, *_ = signature
        return flags in _OWN

    def signature_together(self, tensors: Sequence[Any]) -> Hashable | None:
        # Of the members, the steps depend on what the first one is, but for dtype and shape: their
        # values are copied.
        first = tensors[0]
        if first.size and memory.are_alike(tensors):
            return self._unaddressed(first)
        return None

    def likeness_together(self, tensors: Sequence[Any]) -> Hashable | None:
        alike = set(map(type, tensors)) == {np.ndarray} and len(set(map(_DTYPE, tensors))) == 1
        return self.likeness(tensors[0]) if alike else None

    def join(self, tensors: Sequence[Any]) -> Array | None:
        return memory.joined_array(tensors) if tensors[0].dtype in NAMES else None

    def describe_alike(self, tensors: Sequence[Any]) -> TensorInfo | None:
        alike = set(map(type, tensors)) == {np.ndarray} and len(set(map(_DTYPE, tensors))) == 1
        if not alike or tensors[0].dtype.hasobject:
            return None
        return self.backend.describe(tensors[0])

    # -- steps -------------------------------------------------------------------------------------

    def specialised(self, step: Step, plan: Plan) -> Callable[..., Any] | None:
        before, verb = plan.source, step.verb
        if verb == "write":
            alike = (
                plan.written == plan.result.dtype and not before.swapped and not plan.result.kind
            )
            return _write_alike if alike else None
        if before.swapped or before.weak_dtype is not None:
            return None
        if verb == "copy" and before.is_compact and not any(step.arguments):
            return _copy
        if verb == "cast":
            return casts.direct_cast(before.dtype, *step.arguments)
        return None

    def for_many(self) -> Mapping[str, Callable[..., Any]]:
        return {"copy": self._copy_each, "cast": casts.cast_each, "write": casts.write_each}

    def _copy_each(self, arrays: Sequence[Array], compact: bool = False) -> list[Array]:
        if compact or not arrays[0].dtype.isnative:
            return [self.backend.copy(x, compact) for x in arrays]
        return [x.copy("K") for x in arrays]

    # -- whole conversions -------------------------------------------------------------------------

    def fast_paths(self) -> Mapping[tuple[type, str], Callable[[Any], Any]]:
        name = self.backend.name
        return {
            (np.ndarray, name): _plain,
            (list, name): made_when_called(list, name, _list_reader),
        }


def _is_plain(flags: int, *, copies: bool) -> bool:
    """Whether arrays with these flags are aligned, in C order, and written by nobody unknown.

    Args:
        flags: Their ``flags.num``.
        copies: Whether it does not matter who writes.
    """
    return flags in _OWN or (copies and flags & _FITS == _FITS)


def _alike(tensors: Sequence[Any]) -> Mapping[Any, Sequence[int]] | None:
    """Positions of arrays by dtype, number of axes and flags; ``None`` for others, or empty ones."""
    facts = memory.array_facts(tensors) if len(tensors) > _FEW else None
    if facts is None:
        if type(tensors[0]) is not np.ndarray or not all(map(_SIZE, tensors)):
            return None
        attributes = (map(fact, tensors) for fact in (_DTYPE, _RANK, _FLAG_BITS))
        return places_by(list(zip(*attributes, strict=True)))
    if not facts.sizes.all():
        return None
    places_by_fact: dict[Any, Sequence[int]] = {}
    for number, first in enumerate(facts.firsts):
        x = tensors[first]
        key = x.dtype, x.ndim, x.flags.num
        if len(facts.firsts) == 1:
            places: Sequence[int] = range(len(tensors))
        else:
            places = np.flatnonzero(facts.groups == number).tolist()
        # Equal dtypes may be different objects.
        places_by_fact[key] = [*places_by_fact[key], *places] if key in places_by_fact else places
    return places_by_fact


_FEW = 16
"""Up to so many arrays, their attributes are read in Python."""


_copy: Callable[[Array], Array] = partial(np.ndarray.copy)
"""`copy` of an array without gaps: NumPy's own, but it takes an attribute."""
_copy.for_many = lambda arrays: list(map(np.ndarray.copy, arrays))  # type: ignore[attr-defined]


def _write_alike(x: Array, out: Array) -> None:
    """`write` between arrays of one dtype."""
    # NumPy copies first if they overlap, but not along one axis, where its order is right only for
    # equal strides.
    if x.ndim == 1 and x.strides != out.strides and np.may_share_memory(x, out):
        x = x.copy()
    out[...] = x


def _list_reader() -> Callable[[Any], Any]:
    """The fast path of a list to NumPy."""
    from ...sequences import numbers  # here, because only lists need it

    dtypes = {kind: exact.dtype for kind, exact in numbers.EXPECTED.items()}
    return numbers.list_reader(dtypes, otherwise=together.join)


def _plain(x: Array) -> Array | None:
    """The fast path from NumPy to NumPy."""
    return x if x.dtype in NAMES and x.dtype.isnative else None


QUICK = NumpyQuick
