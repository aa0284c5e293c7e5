"""Carry out a lowered table: tensors in memory, or a part of one at a time."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np

from ..core.dtypes import find
from ..errors import FormatLimitError, VerificationError
from ..host.casts import cast
from ..host.memory import compact, paged_array
from ..host.numpy_dtypes import numpy_dtype
from .expressions import Cast, View
from .lowering import Constant
from .moves import clipped, copy_moves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..typing import Array
    from .expressions import Arithmetic
    from .lowering import MadeTensor
    from .moves import Move

    Elements = Callable[[Move], Iterable[tuple[Move, Array]]]

__all__ = [
    "changed",
    "filled",
    "made_array",
    "memory_for",
    "refuse_different",
    "viewed",
    "words_of",
]

_PAGED = 1 << 20


def words_of(array: Array) -> Array:
    """The elements of an array as whole numbers, so that a copy changes no NaN."""
    width = array.dtype.itemsize
    return array.view(f"u{width}" if width in (1, 2, 4, 8) else f"V{width}")


def filled(
    moves: Iterable[Move],
    sources: Elements,
    dtype: str,
    start: int,
    stop: int,
    release: Callable[[], None] | None = None,
    memory: Array | None = None,
) -> Array:
    """The elements of a tensor from one position to before another, as an array of one axis.

    Args:
        moves: All moves that fill the tensor, simplified.
        sources: Gives what a move reads, as moves out of arrays of one axis, of this dtype, one
            behind the other: an array is needed until the next is asked for.
        dtype: The dtype.
        start: The first position.
        stop: The position after the last.
        release: As for `copy_moves`.
        memory: Where they are put, as an array of one axis of the dtype that is long enough; new
            memory without it.
    """
    if memory is None:
        part_of_memory = memory_for(stop - start, dtype)
    else:
        part_of_memory = memory[: stop - start]
    target = words_of(part_of_memory)
    for move in moves:
        for part in clipped(move, start, stop):
            pieces: Iterable[tuple[Move, Array]]
            if isinstance(part.source, Constant):
                pieces = [(part, _constant(part.source, dtype))]
            else:
                pieces = sources(part)
            for piece, elements in pieces:
                copy_moves([piece], {piece.source: words_of(elements)}, target, start, release)
    return part_of_memory


def memory_for(count: int, dtype: str) -> Array:
    """New memory for elements, as an array of one axis."""
    kind = numpy_dtype(dtype)
    make = paged_array if count * kind.itemsize >= _PAGED else compact
    return make((count,), kind)


def _constant(constant: Constant, dtype: str) -> Array:
    if find(dtype).kind in ("float", "complex"):
        return cast(np.array([float(constant.number)]), dtype)
    return cast(np.array([constant.number]), dtype, "value")


def changed(array: Array, changes: Iterable[Cast | View | Arithmetic]) -> Array:
    """An array of one axis after casts, views and arithmetic, in order.

    Raises:
        LossyCastError: A value does not fit into a dtype that is not one of floats.
    """
    for change in changes:
        if isinstance(change, Cast):
            array = _cast(array, change.dtype)
        elif isinstance(change, View):
            array = viewed(array, change.dtype)
        else:
            array = _with_number(array, change)
    return array


def viewed(array: Array, dtype: str) -> Array:
    """The bytes of an array of one axis as elements of another dtype: little-endian, as in files."""
    kind = numpy_dtype(dtype)
    if sys.byteorder == "little" or kind.itemsize == array.itemsize:
        view: Array = array.view(kind)
        return view
    swapped: Array = array.byteswap().view(kind)
    back: Array = swapped.byteswap()
    return back


def _cast(array: Array, dtype: str) -> Array:
    source, target = find(_name(array)), find(dtype)
    if (source.kind, target.kind) in (
        ("float", "float"),
        ("float", "complex"),
        ("complex", "complex"),
    ):
        return cast(array, dtype)
    return cast(array, dtype, "value")


def _name(array: Array) -> str:
    from ..host.numpy_dtypes import of_numpy

    return of_numpy(array.dtype) or ""


def _with_number(array: Array, change: Arithmetic) -> Array:
    """Each element plus a number, or times one, in the dtype that it has."""
    dtype = _name(array)
    kind = find(dtype)
    if kind.kind not in ("float", "int", "uint"):
        raise FormatLimitError(f"{change.verb} is for numbers, not for {dtype}.")
    if kind.kind == "float":
        # As NumPy and JAX do: the number takes the dtype, and the result is rounded once.
        wide: Array = array.astype(np.float64)
        number = cast(np.array([float(change.number)]), dtype).astype(np.float64)
        with np.errstate(all="ignore"):
            wide = wide + number if change.verb == "add" else wide * number
        return cast(wide, dtype)
    limits = np.iinfo(array.dtype)
    if not isinstance(change.number, int):
        raise FormatLimitError(f"{change.verb} of {change.number} is not for whole numbers.")
    low, high = int(array.min(initial=0)), int(array.max(initial=0))
    ends = [_applied(end, change) for end in (low, high)]
    if min(ends) < limits.min or max(ends) > limits.max:
        raise FormatLimitError(f"{change.verb} of {change.number} leaves the range of {dtype}.")
    # Modulo its range, in which the result is.
    by = np.asarray(change.number % (1 << 8 * array.itemsize), f"u{array.itemsize}")
    words = words_of(array)
    made: Array = words + by if change.verb == "add" else words * by
    return made.view(array.dtype)


def _applied(number: int, change: Arithmetic) -> int:
    by = int(change.number)
    return number + by if change.verb == "add" else number * by


def made_array(made: MadeTensor, sources: Elements) -> Array:
    """One tensor of the target.

    Raises:
        VerificationError: Tensors that have to be the same are not.
    """
    size = made.moved
    result = filled(made.moves, sources, made.source_dtype, 0, size)
    for moves in made.equal:
        refuse_different(made, result, filled(moves, sources, made.source_dtype, 0, size), moves)
    return changed(result, made.changes).reshape(made.header.shape)


def refuse_different(made: MadeTensor, one: Array, other: Array, moves: Iterable[Move]) -> None:
    """Raise if two tensors that have to be the same are not.

    Raises:
        VerificationError: They differ.
    """
    if np.array_equal(words_of(one), words_of(other)):
        return
    names = [str(move.source) for move in (*made.moves, *moves)]
    raise VerificationError(
        f"{made.name} is made of {' and '.join(dict.fromkeys(names))}, which have to be the same "
        "and differ."
    )
