"""Casts that NumPy and ml_dtypes do not define as we do: rounded once, and floats that become integers.

ml_dtypes rounds float64 and wide integers to float32 first, and then again. What C makes of a float
that no integer of the target has the value of depends on the processor, and on the loop that NumPy
takes.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.dtypes import ORDINARY, cuts_off, find, is_misrounded
from .extensions import extension
from .numpy_dtypes import of_numpy, wide_float

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from ..core.dtypes import DType
    from ..typing import Array

    Step: TypeAlias = Callable[[Array, Array], None]

__all__ = ["cast_of_compact", "step_of"]

_extension: Any = extension("host._casts")
"""The same in C, in one pass, and for small arrays in a fraction of the calls; ``None`` if it was not built."""
_CODES = {"f": "d", "i": "q", "u": "Q"}
"""By NumPy's kind of dtype, the struct module's character for eight bytes."""


@cache
def step_of(source: np.dtype[Any], target: np.dtype[Any]) -> Step | None:
    """A function that casts an array, or one block of it, if NumPy's own cast does not give what is defined.

    Its arguments are the memory to write, and the array.
    """
    before, after = of_numpy(source), of_numpy(target)
    if before is None or after is None:
        return None
    if cuts_off(before, after):
        return _cut_off if _extension is None else partial(_cut_off_in_c, find(after))
    if not is_misrounded(before, after):
        return None
    if _extension is not None:
        return partial(_round_in_c, find(after), _read_as(source))
    return _round_to_bfloat16 if after == "bfloat16" else partial(_round_once, find(after))


def cast_of_compact(
    source: np.dtype[Any], target: np.dtype[Any]
) -> Callable[[Array], Array] | None:
    """As `step_of`, for small arrays, which are C-contiguous and of just this dtype: a function that makes a new one.

    It is ``None`` without the extension, and where memory of C cannot be read or written as it is.
    """
    before, after = of_numpy(source), of_numpy(target)
    if _extension is None or before is None or after is None:
        return None
    if cuts_off(before, after):
        if before not in ("float32", "float64") or after not in ORDINARY:
            return None
        return partial(_new_cut_off, _extension.cut_off, source.char, *_bits(find(after)), target)
    if before not in ("float64", "int64", "uint64") or "zero" not in find(after).specials:
        return None
    return partial(
        _new_rounded, _extension.round_to_odd, _CODES[source.kind], _lost(find(after)), target
    )


def _bits(row: DType) -> tuple[int, bool]:
    """How many bits an integer dtype has, and whether one is for the sign."""
    is_signed = row.kind == "int"
    return row.highest + is_signed, is_signed


def _lost(row: DType) -> int:
    """How many of float64's bits are not needed to round to a dtype: two more than it has are."""
    return 52 - (row.precision + 1)


def _aligned(x: Array) -> Array:
    return x if x.flags.aligned else x.copy()


def _read_as(source: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype as which numbers are rounded: a wide integer dtype has values that float64 does not have."""
    is_wide = source.kind in "iu" and source.itemsize == 8
    return source.newbyteorder("=") if is_wide else np.dtype(np.float64)


# -- floats to integers -------------------------------------------------------------------------


def _cut_off(target: Array, source: Array) -> None:
    """Cut off fractions, and count modulo 2**bits, as integers do; NaN and infinities become 0."""
    if not source.size:
        return
    floats = source.astype(wide_float(source.dtype), copy=False)
    # Of NaN, both are NaN, which is within no bounds.
    low, high = (
        float(np.minimum.reduce(floats, axis=None)),
        float(np.maximum.reduce(floats, axis=None)),
    )
    row = find(of_numpy(target.dtype) or "")
    if (-(2.0**row.highest) if row.kind == "int" else 0.0) - 1 < low and high < 2.0**row.highest:
        target[...] = floats
        return
    if low > -(2.0**31) and high < 2.0**31:
        whole = floats.astype(np.int32)
    elif low > -(2.0**63) and high < 2.0**63:
        whole = floats.astype(np.int64)
    else:
        rest = np.fmod(floats.astype(np.float64), 2.0**64)  # which is exact
        rest = np.where(np.isnan(rest), 0.0, rest)
        rest = np.where(rest >= 2.0**63, rest - 2.0**64, rest)
        whole = np.where(rest < -(2.0**63), rest + 2.0**64, rest).astype(np.int64)
    if row.highest + (row.kind == "int") < 8:
        # Of the integers that are narrower than a byte, the lowest bits, with the sign.
        bits = row.highest + (row.kind == "int")
        whole = whole & ((1 << bits) - 1)
        whole = np.where(whole >= 1 << row.highest, whole - (1 << bits), whole)
    target[...] = whole


def _cut_off_in_c(row: DType, target: Array, source: Array) -> None:
    floats = _aligned(source.astype(wide_float(source.dtype), "C", copy=False))
    bits, is_signed = _bits(row)
    is_written = bits >= 8 and target.flags.carray and target.dtype.isnative
    whole = target
    if not is_written:
        kind = "i" if is_signed else "u"
        whole = np.empty(target.shape, f"{kind}{max(bits, 8) // 8}")
    _extension.cut_off(floats, floats.dtype.char, bits, is_signed, whole)
    if not is_written:
        target[...] = whole


def _new_cut_off(
    cut_off: Callable[..., None],
    code: str,
    bits: int,
    is_signed: bool,
    target: np.dtype[Any],
    source: Array,
) -> Array:
    whole: Array = np.empty(source.shape, target)
    cut_off(source, code, bits, is_signed, whole)
    return whole


# -- rounded once -------------------------------------------------------------------------------


def _round_to_bfloat16(target: Array, source: Array) -> None:
    """Round values to bfloat16, which has the upper half of float32's bits: to the nearest, ties to even.

    To round to float32 first does harm only to a value that lands just halfway between two of
    bfloat16, and was not there. Such a value is moved by one bit of float32 to its side.
    """
    exact = _as_float64(source)
    single = exact.astype(np.float32, "C")
    halfway = single.view(np.uint32).astype(np.uint16) == 0x8000
    if np.count_nonzero(halfway):
        at = np.flatnonzero(halfway)
        flat = single.reshape(-1)
        wanted, found = np.abs(exact.reshape(-1)[at]), np.abs(flat[at])
        flat.view(np.int32)[at] += (wanted > found).astype(np.int32) - (wanted < found)
    target[...] = single


def _round_once(row: DType, target: Array, source: Array) -> None:
    """Round values to a float dtype of few significant bits: to the nearest, ties to even.

    float32 cannot have all bits of a value, but those that decide: two more than the target, of
    which the last is set if any bit behind it is ("rounded to odd"). So no value is halfway between
    two of the target unless it was.
    """
    bits = _as_float64(source).view(np.uint64)
    lost = _lost(row)
    below = np.uint64((1 << lost) - 1)
    kept = bits & below
    kept += below
    kept |= bits
    kept &= ~below
    single = kept.view(np.float64).astype(np.float32)
    target[...] = single if "zero" in row.specials else _without_slightly_more(row, single)


def _round_in_c(row: DType, read_as: np.dtype[Any], target: Array, source: Array) -> None:
    numbers = _aligned(source.astype(read_as, "C", copy=False))
    single = np.empty(numbers.shape, np.float32)
    _extension.round_to_odd(numbers, _CODES[read_as.kind], _lost(row), single)
    target[...] = single if "zero" in row.specials else _without_slightly_more(row, single)


def _new_rounded(
    round_to_odd: Callable[..., None], code: str, lost: int, target: np.dtype[Any], source: Array
) -> Array:
    single: Array = np.empty(source.shape, np.float32)
    round_to_odd(source, code, lost, single)
    return single.astype(target)


def _without_slightly_more(row: DType, single: Array) -> Array:
    """ml_dtypes takes all that is more than its smallest number, and subnormal in float32, for the next one."""
    smallest = 2.0**row.lowest
    return np.where((single > smallest) & (single < 1.5 * smallest), np.float32(smallest), single)


def _as_float64(source: Array) -> Array:
    """Numbers as float64. Integers that it does not have are rounded to odd."""
    if source.dtype.kind not in "iu":
        return source.astype(np.float64, copy=False)
    if source.dtype.itemsize == 8 and source.size:
        low, high = (
            int(np.minimum.reduce(source, axis=None)),
            int(np.maximum.reduce(source, axis=None)),
        )
        if low < -(2**53) or high > 2**53:
            whole = source.astype(source.dtype.newbyteorder("="))
            below = whole.dtype.type(0x7FF)
            odd = (whole | ((whole & below) + below)) & ~below
            large = (
                (whole > 2**53)
                if source.dtype.kind == "u"
                else (whole > 2**53) | (whole < -(2**53))
            )
            source = np.where(large, odd, whole)
    return source.astype(np.float64)
