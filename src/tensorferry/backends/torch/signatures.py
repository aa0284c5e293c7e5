"""Read the signatures and extents of PyTorch tensors, which is faster than to describe them."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.layout import spans
from ...core.places import places_by
from ...core.signature import COMPACT, layout_of
from ...host import memory

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    from ...typing import Array
    from .tensors import TorchBackend

__all__ = ["environment_reader", "extents", "group_reader", "likeness_reader", "signature_readers"]


LARGEST = 16
"""The alignment of the largest element in bytes."""
_IS_NESTED, _NBYTES = attrgetter("is_nested"), attrgetter("nbytes")
_MOST = 16
"""How many lists are remembered. A guard takes some hundred bytes for each tensor."""
Reader = Callable[[Any], "Hashable | None"]


def signature_readers(backend: TorchBackend) -> tuple[Reader, Callable[..., Reader]]:
    """See `Backend.signature` and `Backend.signature_reader`."""
    readers: dict[type, Reader] = {kind: _signature_reader(backend, kind) for kind in backend.memories}

    def signature(x: Any) -> Hashable | None:
        read = readers.get(type(x))
        return None if read is None else read(x)

    return signature, lambda kind, _target, _request: readers.get(kind, signature)


def _signature_reader(backend: TorchBackend, kind: type) -> Reader:
    """A function that reads the signatures of tensors or of parameters."""
    # Complex tensors, which may have lazy bits, are described; so are dual tensors, tensors without elements, and
    # pinned ones if that matters.
    dtypes = frozenset(dtype for dtype in backend.names if not dtype.is_complex)
    forward, modes, tracing, lowest = backend.forward, backend.modes, backend.tracing, memory.LOWEST

    def signature(x: Any) -> Hashable | None:
        dtype = x.dtype
        if dtype not in dtypes or forward._current_level >= 0:
            return None
        try:
            pointer, rank = x.data_ptr(), x.dim()
        except RuntimeError:
            return None
        if pointer < lowest or not x.is_cpu or x.is_nested or x.is_neg() or modes():
            return None
        layout: Hashable = COMPACT
        if not x.is_contiguous():
            if tracing() is not None:
                return None  # its lengths are symbols
            itemsize = x.itemsize
            layout = layout_of(x.shape, [step * itemsize for step in x.stride()], itemsize)
        return kind, dtype, rank, layout, pointer & 63, x.requires_grad

    return signature


def likeness_reader(backend: TorchBackend) -> Callable[[Any], Hashable | None]:
    """See `Backend.likeness`."""
    memories, modes, lowest = backend.memories, backend.modes, memory.LOWEST

    def likeness(x: Any) -> Hashable | None:
        if type(x) not in memories or not x.is_cpu or x.is_nested or modes():
            return None
        try:
            # Nothing is cached for a dtype that is not supported.
            return x.dtype if x.data_ptr() >= lowest else None
        except RuntimeError:
            return None

    return likeness


def environment_reader(backend: TorchBackend) -> Callable[[], Hashable]:
    """See `Backend.environment`."""
    default_dtype, is_recording, tracing = backend.default_dtype, backend.is_recording, backend.tracing
    return lambda: (default_dtype(), is_recording(), tracing() is None)


def group_reader(backend: TorchBackend) -> Callable[[Sequence[Any], int], Mapping[Hashable, Sequence[int]] | None]:
    """See `Backend.grouped`. Global settings are read once, and the tensors in one loop.

    The batches of a loop are alike, and so are the states of a training. So the results for the last few lists are
    kept, with a guard that tells whether the tensors of another list are like theirs.
    """
    memories, one = backend.memories, backend.signature
    known = frozenset(dtype for dtype in backend.names if not dtype.is_complex)
    forward, modes, lowest = backend.forward, backend.modes, memory.LOWEST
    address, records, guard_of = backend.tensor.data_ptr, backend.is_recording, _guard_maker(backend.torch)
    kept: dict[Any, tuple[Callable[..., bool], list[int], Mapping[Hashable, Sequence[int]]]] = {}

    def grouped(tensors: Sequence[Any], alignment: int) -> Mapping[Hashable, Sequence[int]] | None:
        if forward._current_level >= 0 or modes() or type(tensors[0]) not in memories:
            return None
        try:
            addresses = list(map(address, tensors))
            if min(addresses) < lowest:
                return None
            modulo = (alignment or LARGEST) - 1
            misalignments = [at & modulo for at in addresses]
            # A guard does not check `requires_grad` while autograd does not record.
            remembers = guard_of is not None and records()
            key = len(tensors), type(tensors[0]), tensors[0].dtype, tensors[0].shape[1:], alignment
            like = kept.get(key) if remembers else None
            if like is not None and like[1] == misalignments and like[0](*tensors):
                return like[2]
            found = read(tensors, misalignments)
            if remembers and found is not None and guard_of is not None:
                if len(kept) >= _MOST:
                    kept.clear()
                kept[key] = guard_of(tensors), misalignments, found
        except RuntimeError:
            return None
        return found

    def read(tensors: Sequence[Any], misalignments: Sequence[int]) -> Mapping[Hashable, Sequence[int]] | None:
        # As a set, because hundreds of thousands of tuples would start the garbage collector.
        kinds = set(_facts(tensors, misalignments))
        if None in kinds:
            return None
        every = range(len(tensors))
        by_facts = dict.fromkeys(kinds, every) if len(kinds) == 1 else places_by(list(_facts(tensors, misalignments)))
        found: dict[Hashable, Sequence[int]] = {}
        for (dtype, rank, contiguous, at, requires_grad), places in by_facts.items():
            if dtype not in known:
                return None
            if contiguous:
                found[type(tensors[0]), dtype, rank, COMPACT, at, requires_grad] = places
                continue
            by_layout = places_by([one(tensors[place]) for place in places])
            if None in by_layout:
                return None
            found.update((signature, [places[at] for at in inside]) for signature, inside in by_layout.items())
        return found

    return grouped


def _facts(tensors: Sequence[Any], misalignments: Sequence[int]) -> Iterator[Any]:
    """For each tensor: what distinguishes it from others, without strides; ``None`` if it must be described."""
    for x, at in zip(tensors, misalignments, strict=True):
        ordinary = x.is_cpu and not x.is_nested and not x.is_neg()
        yield (x.dtype, x.dim(), x.is_contiguous(), at, x.requires_grad) if ordinary else None


def _guard_maker(torch: Any) -> Callable[[Sequence[Any]], Callable[..., bool]] | None:
    """A function that makes guards, which tell whether tensors are like some others; ``None`` if PyTorch has none.

    A guard compares type, dtype, shape, strides, device, lazy bits and `requires_grad` in one call. Compiled functions
    use it to find out whether they were compiled for such tensors. It is not public, so it is tested here.
    """

    def guard_of(tensors: Sequence[Any]) -> Callable[..., bool]:
        shapes = [_lengths_that_count(x) for x in tensors]
        made = guards(*tensors, dynamic_dims_sizes=shapes, dynamic_dims_strides=[list(x.stride()) for x in tensors])
        check = made.check
        # A guard ends the process if it gets a nested tensor.
        return lambda *others: not any(map(_IS_NESTED, others)) and check(*others)

    x = torch.zeros(2, 3)
    odd = [
        x.double(),
        x.t().contiguous().t(),
        torch.zeros(2, 3, 1),
        torch.nn.Parameter(x),
        torch.zeros(2, 3, requires_grad=True),
        torch._neg_view(x),
        torch.zeros(2, 3, device="meta"),
    ]
    try:
        guards = torch._C._dynamo.guards.TensorGuards
        like = guard_of([x])
        works = like(torch.ones(2, 3)) and not any(map(like, odd))
    except (AttributeError, RuntimeError, TypeError):
        return None
    return guard_of if works else None


def _lengths_that_count(x: Any) -> list[int | None]:
    """The shape of a tensor, with ``None`` for the number of rows if more rows would have the same strides."""
    shape: list[int | None] = list(x.shape)
    if shape and x.is_contiguous() and x.shape[0] > 1:
        shape[0] = None
    return shape


def extents(tensors: Sequence[Any], *, compact: bool) -> tuple[Array, Array]:
    """See `Backend.extents`."""
    starts = np.fromiter(map(type(tensors[0]).data_ptr, tensors), np.uint64, len(tensors))
    return starts, starts + np.fromiter(map(_NBYTES if compact else _reach, tensors), np.uint64, len(tensors))


def _reach(x: Any) -> int:
    if x.is_contiguous():
        return x.nbytes  # type: ignore[no-any-return]
    itemsize = x.itemsize
    return spans(x.shape, [step * itemsize for step in x.stride()], itemsize)[1]
