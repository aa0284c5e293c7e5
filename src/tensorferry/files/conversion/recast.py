"""`Recast`: a stored tensor that is cast to another dtype, a block at a time, when it is read."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core.dtypes import exact, find
from ...errors import LossyCastError
from ...host.casts import cast
from ...host.numpy_dtypes import of_numpy
from ..base.stored import BLOCK_BYTES, Record, Stored

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from ...typing import Array

__all__ = ["OVERFLOWS", "Recast"]

OVERFLOWS = ("raise", "saturate", "nan")

_ELEMENTS = BLOCK_BYTES // 4
_AHEAD = 8 * BLOCK_BYTES
"""From this size on, a block is read and cast while the one before is written."""


class Recast(Stored):
    """A stored tensor whose values are cast when they are read, with the same bits as by `tensorferry.host.casts`.

    Between two float dtypes, numbers are rounded to the nearest, ties to even. NaN stays NaN, and
    an infinity stays an infinity if the dtype has infinities; if not, it is too large, like a
    finite number outside of the dtype's range. `overflow` decides what becomes of these:

    - ``"raise"``: an error.
    - ``"saturate"``: the largest finite number of the dtype, with the sign.
    - ``"nan"``: NaN.

    A number or NaN for which the dtype has no place is an error in every mode. If one of the dtypes
    is not a float dtype, each value must be kept, whatever `overflow` is. A lost value is a
    `LossyCastError` with the name of the tensor and the position, when it is read.

    Args:
        inner: The tensor.
        dtype: The canonical name of the dtype to cast to.
        overflow: ``"raise"``, ``"saturate"`` or ``"nan"``.
        name: The name of the tensor in errors.
        spared: Gives the code that leaves this tensor as it is, for the hint of errors.
    """

    __slots__ = ("dtype", "inner", "name", "overflow", "shape", "spared")

    def __init__(
        self,
        inner: Stored,
        dtype: str,
        overflow: str = "raise",
        name: str = "",
        spared: Callable[[], str] | None = None,
    ) -> None:
        self.inner = inner
        self.dtype = dtype
        self.shape = inner.shape
        self.overflow = overflow
        self.name = name
        self.spared = spared

    @property
    def key(self) -> Hashable:
        return (self.inner.key, self.dtype, self.overflow)

    @property
    def record(self) -> Record | None:
        return getattr(self.inner, "record", None)

    def blocks(self) -> Iterator[Array]:
        if self.inner.nbytes < _AHEAD:
            yield from self._cast_all()
            return
        cast_blocks = self._cast_all()
        with ThreadPoolExecutor(1) as ahead:
            coming = ahead.submit(next, cast_blocks, None)
            while (block := coming.result()) is not None:
                coming = ahead.submit(next, cast_blocks, None)
                yield block

    def _cast_all(self) -> Iterator[Array]:
        done = 0
        for whole in self.inner.blocks():
            # A cast to a wider dtype makes a block larger, so it is divided first.
            for start in range(0, whole.size, _ELEMENTS):
                block = whole[start : start + _ELEMENTS]
                yield self._cast(block, done)
                done += block.size

    def _cast(self, block: Array, start: int) -> Array:
        source, target = find(self.inner.dtype), find(self.dtype)
        if exact(source.name, target.name):
            return cast(block, target.name)
        if (source.kind, target.kind) not in _ROUNDING:
            try:
                return cast(block, target.name, "value")
            except LossyCastError:
                raise self._lossy(start + _first_lost(block, target.name)) from None
        result = cast(block, target.name)
        if not _all_fit(result):
            self._settle(block, result, start)
        return result

    def _settle(self, block: Array, result: Array, start: int) -> None:
        """Replace each number that is too large as `overflow` says.

        Raises:
            LossyCastError: A number is lost; the message names the position of the first one.
        """
        per = 1
        if block.dtype.kind == "c":
            block, result, per = _parts(block), _parts(result), 2
        elif result.dtype.kind == "c":
            result = result.real
        ends = _ends(result.dtype)
        with np.errstate(all="ignore"):
            infinite, missing = np.isinf(block), np.isnan(block)
            too_large = np.abs(block.astype(np.float64)) > ends.largest
            if ends.has_nan:
                # A number slightly larger than the largest is rounded to it, which is not an
                # overflow.
                too_large &= ~np.isfinite(result)
            too_large &= ~infinite if ends.has_infinity else ~missing
            lost = missing if not ends.has_nan else ~missing & ~np.isfinite(result)
            if ends.has_infinity:
                lost &= ~infinite
            lost |= too_large
            if ends.lowest > 0:
                too_large &= block > 0
            if self.overflow == "saturate":
                result[too_large] = np.where(
                    block[too_large] < 0, ends.lowest, ends.largest
                ).astype(result.dtype)
                lost &= ~too_large
            elif self.overflow == "nan" and ends.has_nan:
                result[too_large] = np.nan
                lost &= ~too_large
        if np.any(lost):
            first = int(np.argmax(lost))
            modes = ["saturate", "nan"] if ends.has_nan else ["saturate"]
            raise self._lossy(start + first // per, modes if too_large[first] else [])

    def _lossy(self, position: int, modes: Sequence[str] = ()) -> LossyCastError:
        """The error for a lost value; `modes` are the values of `overflow` with which it would be none."""
        ways = [" or ".join(f'overflow="{mode}"' for mode in modes)] if modes else []
        if self.spared is not None:
            ways.append(self.spared())
        where = (
            [int(index) for index in np.unravel_index(position, self.shape)] if self.shape else []
        )
        return LossyCastError(
            f"{self.name or 'The tensor'}: {self.inner.dtype} to {self.dtype}: "
            f"the value{f' at {where}' if where else ''} does not fit.",
            "; or ".join(ways) or None,
        )


_ROUNDING = (("float", "float"), ("float", "complex"), ("complex", "complex"))
"""The kinds between which a cast may round. Between all others, it must keep each value."""


class _Ends(NamedTuple):
    lowest: float
    largest: float
    has_infinity: bool
    has_nan: bool


@cache
def _ends(dtype: np.dtype[Any]) -> _Ends:
    import ml_dtypes

    limits: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call, unused-ignore]
    specials = find(of_numpy(dtype) or "").specials
    return _Ends(float(limits.min), float(limits.max), "inf" in specials, "nan" in specials)


@cache
def _first_special(dtype: np.dtype[Any]) -> int | None:
    """The bit pattern from which on all numbers are infinite or NaN, if the dtype has such a pattern."""
    if not _ends(dtype).has_infinity:
        return None
    return int(np.array(np.inf).astype(dtype).view(f"u{dtype.itemsize}"))


def _parts(array: Array) -> Array:
    """The real and imaginary parts of complex numbers, alternately."""
    return array.view(f"f{array.dtype.itemsize // 2}")


def _all_fit(result: Array) -> bool:
    """Whether all numbers are finite, by two reductions."""
    if result.dtype.kind == "c":
        result = _parts(result)
    if not _ends(result.dtype).has_nan:
        return False
    special = _first_special(result.dtype)
    if special is None or not result.size:
        return bool(np.isfinite(result).all())
    width = result.dtype.itemsize
    sign = 1 << (8 * width - 1)
    positive = int(np.max(result.view(f"i{width}")))
    return positive < special and int(np.max(result.view(f"u{width}"))) < special + sign


def _first_lost(block: Array, dtype: str) -> int:
    """The position of the first value that a cast does not keep."""
    low, high = 0, block.size
    while high - low > 1:
        middle = (low + high) // 2
        try:
            cast(block[low:middle], dtype, "value")
            low = middle
        except LossyCastError:
            high = middle
    return low
