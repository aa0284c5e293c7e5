"""Host memory: where a tensor lies, who may write, and how it is copied."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from functools import cache
from itertools import chain, pairwise
from math import prod
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.dtypes import find
from ..core.layout import ALIGNMENT, are_apart, byte_span
from ..core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..core.info import TensorInfo
    from ..typing import Array


__all__ = [
    "HEADER",
    "IN_ONE_RUN",
    "LOWEST",
    "MAPPED",
    "RowLengths",
    "address",
    "are_alike",
    "array_extents",
    "array_signatures",
    "can_join",
    "compact",
    "first_addresses",
    "first_along",
    "gather_rows",
    "is_mapped",
    "is_spread",
    "is_there",
    "joined_array",
    "make_pages",
    "over",
    "over_address",
    "padded_array",
    "paged_array",
    "processor_count",
    "root_owner",
    "share_a_byte",
    "sharing_runs",
    "span_view",
    "view_keeping",
    "writable_somewhere",
]


# -- where a tensor lies ---------------------------------------------------------------------------

LOWEST = 1 << 22
"""No memory of a process has a lower address; Linux loads programs above it."""
MAPPED = 1 << 25
"""From this many bytes on, allocations are new system memory. (`man mallopt`: M_MMAP_THRESHOLD)"""
_POPULATE = 23
"""MADV_POPULATE_WRITE, of Linux since 5.14: https://man7.org/linux/man-pages/man2/madvise.2.html"""
_C_ORDER, _F_ORDER, _ALIGNED, _WRITEABLE = 0x0001, 0x0002, 0x0100, 0x0400
IN_ONE_RUN = frozenset(
    order | aligned | writable
    for order in (_C_ORDER, _F_ORDER, _C_ORDER | _F_ORDER)
    for aligned in (0, _ALIGNED)
    for writable in (0, _WRITEABLE)
)
"""The values of ``array.flags.num`` of arrays without gaps that do not own their memory.

(https://numpy.org/doc/stable/reference/c-api/array.html#array-flags)
"""


def _slow_address(array: Array) -> int:
    data: int = array.__array_interface__["data"][0]
    return data


def _find_address() -> Callable[[Array], int]:
    """A function for an array's address, if possible in a seventh of the documented way's time.

    By NumPy's C interface, the address follows the header of the object. It is tried out here
    whether the header has the size of an `object`.
    """
    header = object.__basicsize__
    read = ctypes.c_size_t.from_address

    def fast(array: Array) -> int:
        return read(id(array) + header).value

    probe = np.arange(24, dtype=np.int16)
    probes = [probe, probe[5::-3]]
    works = sys.implementation.name == "cpython" and all(
        fast(probe) == _slow_address(probe) for probe in probes
    )
    return fast if works else _slow_address


address = _find_address()
"""The address of an array's first element."""
if address is _slow_address:
    HEADER = None
else:
    HEADER = object.__basicsize__
"""Where in an array object this address is stored, in bytes; ``None`` if that is not known."""


def first_addresses(arrays: Iterable[Array]) -> list[int]:
    """The address of the first element of each array."""
    if address is _slow_address:
        return list(map(address, arrays))
    read, header = ctypes.c_size_t.from_address, object.__basicsize__
    return [read(id(array) + header).value for array in arrays]


_FEW = 40
"""Up to this many runs of bytes, it is faster to sort them as Python numbers."""


def sharing_runs(*runs: Sequence[int] | Array) -> list[int]:
    """The positions of runs of bytes that share a byte with another, in one pass after sorting.

    A run without bytes counts as one of a byte: two may be one object.

    Args:
        *runs: The first bytes of some, then those after their last ones; and so on for others, whose
            positions come after theirs.

    >>> (
    ...     sharing_runs([0, 8], [8, 9]),
    ...     sharing_runs([0, 8, 4], [8, 9, 5]),
    ...     sharing_runs([0, 4], [4, 4]),
    ... )
    ([], [0, 2], [])
    """
    extension, (starts, ends) = _joins_extension(), (runs[::2], runs[1::2])
    if extension is not None:
        if extension.are_apart(*runs):
            return []
    elif sum(map(len, starts)) < _FEW:
        in_order = sorted(zip(chain(*starts), chain(*ends), strict=True))
        if all(run[1] <= then[0] > run[0] for run, then in pairwise(in_order)):
            return []
    first = _joined_numbers(starts)
    after = np.maximum(_joined_numbers(ends), first + np.uint64(1))
    # Each run but the last ends before the next one begins: so it is almost always.
    if (np.sort(after)[:-1] <= np.sort(first)[1:]).all():
        return []
    order = first.argsort(kind="stable")
    # How far those before reach.
    touches = np.maximum.accumulate(after[order])[:-1] > first[order][1:]
    shared = np.zeros(len(order), bool)
    shared[1:] = touches
    shared[:-1] |= touches
    pairs: list[int] = np.sort(order[shared]).tolist()
    return pairs


def _joined_numbers(parts: Sequence[Sequence[int] | Array]) -> Array:
    return np.concatenate([np.asarray(part, np.uint64) for part in parts])


def compact(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Uninitialised memory, C-contiguous and 64-byte aligned."""
    block = np.empty(prod(shape) * dtype.itemsize + ALIGNMENT, np.uint8)
    result: Array = np.ndarray(shape, dtype, block, -address(block) % ALIGNMENT)
    return result


class _Pages(mmap.mmap):
    """New memory in pages of its own, which is no map of a file."""


def paged_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """As `compact_array`, for large arrays: in whole pages, which go back as soon as the array is gone.

    The system makes the pages when they are written; see `make_pages`. Huge pages are not asked
    for: if memory is full of cached files, the system moves these to make room for them, which
    takes ten times as long as ordinary pages.

    Args:
        shape: Lengths of the axes, none of them 0.
        dtype: The dtype of the elements.

    Raises:
        MemoryError: The system has no such memory.
    """
    nbytes = prod(shape) * dtype.itemsize
    try:
        pages = _Pages(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"{nbytes:,} bytes for an array cannot be allocated: {error}") from error
    result: Array = np.ndarray(shape, dtype, pages)
    return result


def make_pages(array: Array) -> None:
    """Let the system make the pages of a part of `paged_array` memory in one call, not a fault for each.

    Nothing happens on systems that cannot do that. No value changes. The interpreter's lock is
    released.

    Args:
        array: Contiguous memory that other code will write.
    """
    advise = _find_madvise()
    if advise is not None:
        start = -(-address(array) // mmap.PAGESIZE) * mmap.PAGESIZE
        advise(start, max(address(array) + array.nbytes - start, 0), _POPULATE)


@cache
def _find_madvise() -> Callable[[int, int, int], int] | None:
    if sys.platform != "linux":
        return None
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    return advise


class _Window:
    """Memory at an address, with the object that keeps it alive, and an object that gave it."""

    __slots__ = ("__array_interface__", "giver", "owner")

    def __init__(self, interface: dict[str, Any], owner: object, giver: object) -> None:
        self.__array_interface__ = interface
        self.owner, self.giver = owner, giver


def over(array: Array) -> Array:
    """A writable array over the memory of a read-only one, for ``copy=False``."""
    return over_address(
        address(array), array.shape, array.strides, array.dtype, read_only=False, owner=array
    )


def view_keeping(array: Array, giver: object) -> Array:
    """A view of an array that another object gave, which keeps that object alive too.

    The array may only refer to something inside of the object, which does not own the memory.
    """
    return over_address(
        address(array),
        array.shape,
        array.strides,
        array.dtype,
        read_only=not array.flags.writeable,
        owner=array,
        giver=giver,
    )


def first_along(x: Any, axes: Sequence[int]) -> Any:
    """The first element along each of these axes of an array or a tensor, as a view."""
    return x[tuple([slice(1) if axis in axes else slice(None) for axis in range(x.ndim)])]


def span_view(array: Array, length: int) -> Array:
    """A view of `length` elements from the array's first one on: the memory its elements share."""
    return np.lib.stride_tricks.as_strided(array, (length,), (array.itemsize,))


def over_address(
    start: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: np.dtype[Any],
    *,
    read_only: bool,
    owner: object,
    giver: object = None,
) -> Array:
    """An array over memory at an address, which keeps the owner of the memory alive.

    Args:
        start: The address of the first element; 0 for an empty array.
        shape: Lengths of the axes.
        strides: Bytes from one element to the next.
        dtype: The dtype of the elements.
        read_only: Whether the array is read-only.
        owner: The object that must live as long as the array.
        giver: Another object that must live as long.
    """
    if 0 in shape:
        return np.empty(shape, dtype)
    interface = {
        "version": 3,
        "shape": shape,
        "strides": strides,
        "typestr": f"|V{dtype.itemsize}",
        "data": (start, read_only),
    }
    array: Array = np.asarray(_Window(interface, owner, giver)).view(dtype)
    return array


def is_there(array: Array | None) -> bool:
    """Whether a fast path's array can be read: a freed view's address is at most its offset."""
    return array is not None and address(array) >= LOWEST


def root_owner(array: Array) -> object:
    """The object at the end of an array's chain of bases, which owns the memory."""
    owner: object = array
    while True:
        base = _base_of(owner)
        if base is None:
            return owner
        owner = base


def _base_of(owner: object) -> object:
    """The object whose memory an array, memoryview or window uses; ``None`` if it owns it."""
    if isinstance(owner, np.ndarray):
        return owner.base
    if isinstance(owner, memoryview):
        return owner.obj
    return owner.owner if isinstance(owner, _Window) else None


def writable_somewhere(array: Array) -> bool | object:
    """Whether a read-only array is writable through a base; the owner if that is not known."""
    owner: object = array
    while True:
        if isinstance(owner, np.ndarray) and owner.flags.writeable:
            return True
        if isinstance(owner, (memoryview, bytes, mmap.mmap)) and not memoryview(owner).readonly:
            return True
        base = _base_of(owner)
        if base is None:
            if isinstance(owner, (np.ndarray, memoryview, bytes, mmap.mmap)):
                return False
            return owner
        owner = base


def is_mapped(array: Array) -> bool:
    """Whether an array is over a memory map of a file."""
    owner = root_owner(array)
    return isinstance(owner, mmap.mmap) and not isinstance(owner, _Pages)


def share_a_byte(first: TensorInfo, at: int, second: TensorInfo, also_at: int) -> bool:
    """Whether two tensors share a byte: exact, by NumPy's solver, without a look at the memory.

    Args:
        first: The description of one tensor.
        at: The address of its first element.
        second: The description of the other tensor.
        also_at: The address of its first element.
    """
    if first.device != second.device:
        return False
    low, high = byte_span(first.shape, first.strides, find(first.dtype).itemsize)
    other_low, other_high = byte_span(second.shape, second.strides, find(second.dtype).itemsize)
    if at + high <= also_at + other_low or also_at + other_high <= at + low:
        return False
    return bool(np.shares_memory(_array_at(first, at), _array_at(second, also_at)))


def is_spread(array: Array) -> bool:
    """Whether an array does not own its memory, and its elements surely do not overlap."""
    # Not by `array.base`: PyTorch sets it even if there is no memory.
    if array.flags.owndata:
        return False
    strides, itemsize = array.strides, array.itemsize
    if len(strides) == 2 and 0 not in array.shape:
        # A shortcut for most views.
        (rows, columns), (row, column) = array.shape, strides
        if (column >= itemsize or columns == 1) and (
            row >= (columns - 1) * column + itemsize or rows == 1
        ):
            return True
    return are_apart(array.shape, strides, itemsize)


def _array_at(info: TensorInfo, start: int) -> Array:
    """An array over an address, of which only the layout is used; its memory is never read."""
    void = np.dtype(f"V{find(info.dtype).itemsize}")
    # Without axes of length 1, because a tensor may have more axes than an array can.
    axes = [axis for axis in zip(info.shape, info.strides, strict=True) if axis[0] != 1]
    if axes:
        shape, strides = zip(*axes, strict=True)
    else:
        shape, strides = (), ()
    return over_address(start, shape, strides, void, read_only=True, owner=None)


# -- many arrays: what they are, and how they become one ------------------------------------------

_DTYPE, _SHAPE = map(attrgetter, ("dtype", "shape"))


@cache
def _joins_extension() -> Any:
    """The extension that compares and joins arrays; ``None`` if it does not read them rightly."""
    from .extensions import c_extension  # here, because most processes have no such lists

    joins = c_extension("host._joins")
    probe = np.arange(24, dtype=np.int16)
    for array in (probe, probe[5:], probe[::-3], probe.reshape(4, 6).T, np.array(1.0)):
        words = address(array), array.shape, array.dtype, array.flags.num
        if HEADER is None or joins is None or joins.seen(array) != words:
            return None
    return joins


class Facts(NamedTuple):
    """What many plain arrays are.

    Args:
        firsts: The position of the first of each group. A group has one dtype, number of axes, and
            ``flags.num``; equal dtypes may be different objects.
        groups: The group of each array.
        sizes: The number of elements of each.
    """

    firsts: tuple[int, ...]
    groups: Array
    sizes: Array


def array_facts(arrays: Sequence[Any]) -> Facts | None:
    """What arrays are, in a tenth of the time that their attributes take.

    >>> import numpy as np
    >>> found = array_facts([np.ones(2), np.zeros((2, 3))])
    >>> found is None or found.sizes.tolist()  # without the extension it is None
    [2, 6]

    Returns:
        The facts; ``None`` if an object is no plain array, if they are of very many kinds, or if
        there is no extension.
    """
    extension = _joins_extension()
    facts_of_all = None if extension is None else extension.facts(arrays, np.ndarray)
    if facts_of_all is None:
        return None
    firsts, numbers = facts_of_all
    return Facts(firsts, *np.frombuffer(numbers, np.int64).reshape(2, -1))


def array_extents(arrays: Sequence[Any]) -> tuple[memoryview, memoryview] | None:
    """The addresses of the first bytes of arrays without gaps, and of those after the last ones.

    ``None`` if an object is no plain array, if they are of very many kinds, or if there is no
    extension.
    """
    extension = _joins_extension()
    found = None if extension is None else extension.extents(arrays, np.ndarray)
    if found is None:
        return None
    numbers = memoryview(found).cast("Q")
    return numbers[: len(arrays)], numbers[len(arrays) :]


def array_signatures(
    arrays: Sequence[Any], modulo: int
) -> tuple[tuple[tuple[np.dtype[Any], int, int], ...], bytes] | None:
    """What is equal only for as many arrays that are the same, but for shape and address, in order.

    >>> import numpy as np
    >>> pairs = [array_signatures([np.ones(2), np.ones(length)], 8) for length in (3, 4)]
    >>> pairs[0] == pairs[1]
    True

    Args:
        arrays: The arrays.
        modulo: A power of two up to 256, modulo which addresses count.

    Returns:
        Each dtype with a number of axes and ``flags.num``, once; and bytes that say which array has
        which. ``None`` if an object is no plain array or has no elements, if they are of very many
        kinds, or if there is no extension.
    """
    extension = _joins_extension()
    if extension is None:
        return None
    return extension.signatures(arrays, np.ndarray, modulo)  # type: ignore[no-any-return]


def can_join() -> bool:
    """Whether `joined_array` may give an array: whether the extension is there."""
    return _joins_extension() is not None


def are_alike(arrays: Sequence[Any]) -> bool:
    """Whether objects are plain arrays of one dtype and of equal shapes.

    >>> import numpy as np
    >>> are_alike([np.ones(2), np.zeros(2)]), are_alike([np.ones(2), np.ones(3)])
    (True, False)
    """
    extension = _joins_extension()
    if extension is not None and extension.are_alike(arrays, np.ndarray):
        return True
    return (
        set(map(type, arrays)) == {np.ndarray}
        and len(set(map(_DTYPE, arrays))) == 1
        and len(set(map(_SHAPE, arrays))) == 1
    )


def joined_array(arrays: Sequence[Any]) -> Array | None:
    """Arrays of one dtype and of equal shapes as one compact array, in a tenth of NumPy's time.

    >>> import numpy as np
    >>> made = joined_array([np.ones(2), np.zeros(2)])
    >>> made is None or made.tolist()  # without the extension it is None
    [[1.0, 1.0], [0.0, 0.0]]

    Returns:
        The array; ``None`` if an object is no plain array, or has another dtype or shape than the
        first, no elements, gaps, or another order of bytes; or if there is no extension.
    """
    first, extension = arrays[0], _joins_extension()
    if extension is None or type(first) is not np.ndarray:
        return None
    if not first.size or not first.dtype.isnative or first.dtype.hasobject:
        return None
    result = compact((len(arrays), *first.shape), first.dtype)
    return result if extension.join(arrays, result, np.ndarray) else None


class RowLengths(NamedTuple):
    """Where rows of unequal lengths stand in an array that is long enough for each.

    Args:
        lengths: The length of each.
        left: Whether there is room on their left; otherwise it is on their right.
    """

    lengths: Sequence[int]
    left: bool


def padded_array(values: Array, rows: RowLengths, shape: tuple[int, ...], value: Array) -> Array:
    """Rows in a new array, with a value in all other places.

    >>> import numpy as np
    >>> rows = RowLengths([1, 2], left=True)
    >>> padded_array(np.array([5, 7, 2]), rows, (2, 3), np.array(0)).tolist()
    [[0, 0, 5], [0, 7, 2]]

    Args:
        values: The rows, one after the other.
        rows: The length of each.
        shape: The shape of the result: its last axes are those of a row, the others count the rows.
        value: The value, as an array of the same dtype without axes.
    """
    result, extension = compact(shape, value.dtype), _joins_extension()
    # Their bytes are copied: an order of bytes of their own is seen to by NumPy.
    if extension is not None and values.dtype == value.dtype:
        extension.pad(np.ascontiguousarray(values), rows.lengths, result, value, rows.left)
        return result
    result[...] = value
    length, *inner = shape[-values.ndim :]
    places, lengths = np.arange(length), np.array(rows.lengths)[:, np.newaxis]
    where = places >= length - lengths if rows.left else places < lengths
    result.reshape(len(lengths), length, *inner)[where] = values
    return result


# -- copies ----------------------------------------------------------------------------------------

_MOST = 4
"""The most threads that copy at the same time. A few use all the bandwidth of memory."""


def processor_count() -> int:
    """The number of processors on which this process may run."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def gather_rows(rows: Sequence[Array], out: Array) -> None:
    """Copy arrays of one axis into the rows of another array of the same dtype.

    One thread does not use all the bandwidth of memory, and waits while the system gives new memory
    page by page. So from `memory.MAPPED` bytes on several threads copy, because NumPy releases the
    interpreter's lock.

    >>> import numpy as np
    >>> result = np.empty((2, 3))
    >>> gather_rows([np.ones(3), np.zeros(3)], result)
    >>> result.tolist()
    [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]

    Args:
        rows: The arrays.
        out: The array that is written, C-contiguous, which no other code uses meanwhile.
    """
    if out.nbytes >= MAPPED:
        threads = min(_MOST, len(rows), processor_count())
    else:
        threads = 1
    if threads < 2:
        _copy_rows(rows, out)
        return
    # Here, because it imports logging, which takes long.
    from concurrent.futures import ThreadPoolExecutor

    ends = [len(rows) * share // threads for share in range(threads + 1)]
    parts = [slice(start, end) for start, end in pairwise(ends)]
    with ThreadPoolExecutor(threads - 1, thread_name_prefix="tensorferry") as others:
        try:
            copies = [others.submit(_copy_rows, rows[part], out[part]) for part in parts[1:]]
        except (
            RuntimeError
        ):  # no thread can be started: the interpreter is ending, or the system has no more
            copies, parts = [], [slice(None)]
        _copy_rows(rows[parts[0]], out[parts[0]])
        for copy in copies:
            copy.result()


def _copy_rows(rows: Sequence[Array], out: Array) -> None:
    np.concatenate(rows, out=out.reshape(-1))
