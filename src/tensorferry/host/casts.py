"""Change the dtype of an array, with the same bits for every target.

The casts of the frameworks differ: torch saturates at the edge of float8 where ml_dtypes gives NaN,
TensorFlow flushes subnormals, float64 is cast to float16 through float32, and the payload of a NaN
varies (measured on torch 2.13, TensorFlow 2.21, JAX 0.10). So casts on the host use NumPy and
ml_dtypes, unless a framework declares that its own cast gives the same bits (`Dtypes.cast_alike`).
They take one pass over blocks that fit into a cache; the values are compared if none may be lost.

Some of these casts are not defined as ours are: ml_dtypes rounds float64 and wide integers to
float32 first, and then again. What C makes of a float that no integer of the target has the value
of depends on the processor, and on the loop that NumPy takes.
"""

from __future__ import annotations

from functools import cache, partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import hints
from ..core.dtypes import ORDINARY, UNSAFE, cuts_off, find, is_misrounded
from ..errors import LossyCastError
from ..hints import Hint
from . import memory, subnormals
from .extensions import c_extension
from .numpy_dtypes import numpy_dtype, of_numpy, wide_float

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import TypeAlias

    from ..core.dtypes import DType
    from ..typing import Array

    Step: TypeAlias = Callable[[Array, Array], None]

__all__ = [
    "cast",
    "cast_each",
    "check_values",
    "copy_into",
    "direct_cast",
    "fill",
    "write_each",
]

_extension: Any = c_extension("host._casts")
"""The same in C, in one pass, for small arrays in a fraction of calls; ``None`` if not built."""
_CODES = {"f": "d", "i": "q", "u": "Q"}
"""By NumPy's kind of dtype, the struct module's character for eight bytes."""
BLOCK = 1 << 16
"""How many elements are cast and compared at a time."""
_IN_STEPS = 1 << 15
"""How many elements are cast at a time in several steps: results small enough for C to keep."""

_COMPARES = tuple(map(int, np.__version__.split(".")[:2])) >= (2, 4)
"""Whether `astype` knows ``casting="same_value"``.

See https://numpy.org/doc/2.4/release/2.4.0-notes.html.
"""


@subnormals.with_subnormals
def cast(x: Array, dtype: str, check: str = "", compact: bool = False) -> Array:
    """A packed, aligned array of another dtype.

    >>> import numpy as np
    >>> cast(np.array([1.0, 2.0]), "int8", "value")
    array([1, 2], dtype=int8)

    Args:
        x: Any host array of a dtype in the table.
        dtype: The canonical name of the dtype to cast to.
        check: ``"value"`` refuses every changed value, ``"finite"`` a finite number that becomes
            infinite, ``"number"`` a number that a float dtype without NaN, sign or zero does not
            have; ``""`` checks nothing.
        compact: Whether the result is C-contiguous; if not, its axes keep their order in memory.

    Raises:
        LossyCastError: A value was not kept; the message names the first position.
    """
    kind, after = find(dtype).kind, numpy_dtype(dtype)
    if not compact:
        if check == "value":
            kept = _same_integers(x, after)
            if kept is not None:
                return kept
        elif not check and x.dtype.kind != "c" and _casts_directly(x.dtype, after):
            return x.astype(after, subok=False)
    if compact:
        result = memory.compact(x.shape, after)
    else:
        result = np.empty_like(x, after, subok=False)
    if not check:
        _cast_into(result, x, kind)
    else:
        for index in _block_indices(x.shape):
            _cast_into(result[index], x[index], kind, check)
            _compare_block(x, result[index], index, dtype, check)
    return result


def direct_cast(
    source: str, dtype: str, check: str = "", compact: bool = False
) -> Callable[[Array], Array] | None:
    """A function that casts a dtype's arrays without checking values; ``None`` if it must check."""
    before, after = numpy_dtype(source), numpy_dtype(dtype)
    if check or compact or before.kind == "c":
        return None
    step = step_of(before, after)
    if step is not None:
        return _cast_by(step, before, after)
    if _has_numpy_cast(before, after):
        return subnormals.cast_to(after)
    return None


def _cast_by(step: Step, before: np.dtype[Any], after: np.dtype[Any]) -> Callable[[Array], Array]:
    cast_small = cast_of_compact(before, after)

    def cast_any(x: Array) -> Array:
        if cast_small is not None and x.size <= _IN_STEPS and x.dtype == before and _is_as_in_c(x):
            return cast_small(x)
        result = np.empty_like(x, after, subok=False)
        _cast_in_steps(step, result, x)
        return result

    return subnormals.with_subnormals(cast_any)


def _is_as_in_c(x: Array) -> bool:
    flags = x.flags
    return flags.c_contiguous and flags.aligned


@subnormals.with_subnormals
def cast_each(
    arrays: Sequence[Array], dtype: str, check: str = "", compact: bool = False
) -> list[Array]:
    """`cast` for many arrays of one dtype.

    Raises:
        LossyCastError: A value of one array was not kept.
    """
    before, after = arrays[0].dtype, numpy_dtype(dtype)
    if not (check or compact) and before.kind != "c" and _casts_directly(before, after):
        return [x.astype(after) for x in arrays]
    return [cast(x, dtype, check, compact) for x in arrays]


@subnormals.with_subnormals
def check_values(array: Array, dtype: str, check: str) -> None:
    """Check whether a cast keeps each value, without memory for the result.

    Raises:
        LossyCastError: A value would not be kept; the message names the first position.
    """
    kind, after = find(dtype).kind, numpy_dtype(dtype)
    for index in _block_indices(array.shape):
        part = array[index]
        result = np.empty(part.shape, after)
        _cast_into(result, part, kind, check)
        _compare_block(array, result, index, dtype, check)


@subnormals.with_subnormals
def fill(result: Array, array: Array, check: str) -> None:
    """Cast a small array into new memory.

    Raises:
        LossyCastError: As for `cast`.
    """
    row = find(of_numpy(result.dtype) or "")
    _cast_into(result, array, row.kind, check)
    if check:
        _compare_block(array, result, (...,), row.name, check)


@subnormals.with_subnormals
def copy_into(out: Array, values: Array | Iterable[tuple[Any, Array]]) -> None:
    """Write values into `out`, cast to its dtype. An array may overlap with `out`.

    Args:
        out: The array that is written.
        values: An array; or for chunks of `out`, the index of each and its values.
    """
    kind = find(of_numpy(out.dtype) or "").kind
    if not isinstance(values, np.ndarray):
        for index, numbers in values:
            _cast_into(out[index], numbers, kind)
        return
    _cast_into(out, values.copy() if np.may_share_memory(out, values) else values, kind)


@subnormals.with_subnormals
def write_each(arrays: Sequence[Array], outs: Sequence[Array]) -> None:
    """`copy_into` for many arrays, each with an `out` of its own."""
    for array, out in zip(arrays, outs, strict=True):
        if array.dtype == out.dtype:
            np.copyto(out, array)
        else:
            copy_into(out, array)


def _same_integers(array: Array, dtype: np.dtype[Any]) -> Array | None:
    """Integers cast and checked by NumPy in one call; ``None`` if it cannot, or one does not fit.

    NumPy does not check integers in the other byte order: 2**40 in ``>i8`` becomes an int32 of 0
    (NumPy 2.4).
    """
    if not (_COMPARES and array.dtype.kind in "iu" and dtype.kind in "iu" and array.dtype.isnative):
        return None
    try:
        kept: Array = array.astype(dtype, casting="same_value", subok=False)
    except ValueError:
        return None
    return kept


def _cast_into(target: Array, source: Array, kind: str, check: str = "") -> None:
    """Cast into `target`, which is of a kind.

    With the check ``"value"``, a value that is not kept may become any.
    """
    if source.dtype.kind == "c" and kind not in ("complex", "bool"):
        source = source.real
    if _casts_directly(source.dtype, target.dtype):
        target[...] = source
        return
    step = step_of(source.dtype, target.dtype)
    if check == "value" and _has_numpy_cast(source.dtype, target.dtype):
        target[...] = source
    elif step is None:
        target[...] = source.astype(np.float32)
    else:
        _cast_in_steps(step, target, source)


def _cast_in_steps(step: Step, target: Array, source: Array) -> None:
    if source.size <= _IN_STEPS:
        step(target, source)
        return
    if source.flags.f_contiguous and target.flags.f_contiguous:
        target, source = target.T, source.T
    for index in _block_indices(source.shape, _IN_STEPS):
        step(target[index], source[index])


@cache
def _has_numpy_cast(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Whether NumPy has the cast. It may not have it between two dtypes of ml_dtypes."""
    return np.can_cast(source, target, "unsafe")


@cache
def _casts_directly(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Whether NumPy has the cast, and gives what is defined."""
    return _has_numpy_cast(source, target) and step_of(source, target) is None


def _block_indices(shape: tuple[int, ...], most: int = BLOCK) -> Iterator[tuple[Any, ...]]:
    """Indices of consecutive parts of at most so many elements, which cover the shape."""
    if not shape:
        yield (...,)
        return
    inner = prod(shape[1:])
    if inner <= most:
        rows = max(1, most // max(inner, 1))
        for start in range(0, shape[0], rows):
            yield (slice(start, start + rows),)
        return
    for row in range(shape[0]):
        for rest in _block_indices(shape[1:], most):
            yield (row, *rest)


def _compare_block(
    array: Array, result: Array, index: tuple[Any, ...], dtype: str, check: str
) -> None:
    source = array[index]
    if check == "value" and _all_inside(source, dtype):
        return
    if check == "number":
        kept = _has_place(source, result, dtype)
    elif check == "finite":
        kept = np.isfinite(result)
    else:
        kept = _value_kept(source, result)
    if np.logical_and.reduce(kept, axis=None):
        return
    if check == "finite":
        kept = _stays_finite(source.real, result.real) & _stays_finite(source.imag, result.imag)
        if np.logical_and.reduce(kept, axis=None):
            return
    inner = np.argwhere(~kept)[0].tolist()
    position: list[int] = []
    for part in index:
        if isinstance(part, slice):
            position.append(part.start + inner.pop(0))
        elif isinstance(part, int):
            position.append(part)
    position += inner
    if position:
        where = f"the value at {position}"
    else:
        where = "the value"
    name = of_numpy(array.dtype) or ""
    why, hint = _why_lost(source[tuple(np.argwhere(~kept)[0])], name, dtype)
    error = LossyCastError(f"{name} to {dtype}: {where} {why}.", hint)
    error.is_of_value = True
    raise error


def _why_lost(value: Any, name: str, dtype: str) -> tuple[str, Hint]:
    """Why a cast does not keep a value, and the hint."""
    before, after = find(name), find(dtype)
    if before.kind == "complex" and after.kind != "complex" and value.imag:
        real, size = _of_array("to_numpy(x).real"), _of_array("np.abs(to_numpy(x))")
        return (
            f"has an imaginary part, which {dtype} has not",
            Hint(real, ", which leaves those parts out") | Hint(size),
        )
    if before.kind != "float" or after.kind not in ("int", "uint"):
        return "does not fit", Hint(UNSAFE)
    if not np.isfinite(value):
        return "is NaN or infinite, which no integer is", _hint_for_finite(name)
    if float(value).is_integer():
        return "does not fit", Hint(UNSAFE)
    return (
        "has a fraction, which no integer has",
        Hint(hints.keyword("casting", "unsafe"), " cuts fractions off")
        | Hint(_of_array(f"np.rint({_as_array(name)})"), ", which rounds"),
    )


def _of_array(text: str) -> Hint:
    """Code for an array, which stands in the place of the tensor."""
    return Hint(hints.code(text, numbered=True), " in its place")


def _as_array(name: str) -> str:
    """The code for an array of a tensor of a dtype, in which NumPy computes."""
    wider = "" if name in ORDINARY else ', dtype="float32"'
    return f"to_numpy(x{wider})"


def _hint_for_finite(name: str) -> Hint:
    """The hint for NaN and infinity of a dtype: what a person does with them.

    An unsafe cast makes numbers of them.
    """
    array = _as_array(name)
    zeros = _of_array(f"np.nan_to_num({array}, posinf=0, neginf=0)")
    others = hints.code(f"{array}[np.isfinite({array})]", numbered=True)
    return Hint(zeros, ", which makes 0 of them") | Hint(others, ", which leaves them out")


def _all_inside(source: Array, dtype: str) -> bool:
    """Whether all integers are in another integer dtype's range, by their minimum and maximum."""
    after = find(dtype)
    if source.dtype.kind not in "iu" or after.kind not in ("int", "uint") or not source.size:
        return False
    low = -(1 << after.precision) if after.kind == "int" else 0
    high = (1 << after.precision) - 1
    return (
        low <= int(np.minimum.reduce(source, axis=None))
        and int(np.maximum.reduce(source, axis=None)) <= high
    )


def _has_place(source: Array, result: Array, dtype: str) -> Array:
    """Where a cast to a float dtype without NaN, sign or zero only rounded the value."""
    row = find(dtype)
    if "nan" in row.specials:
        return np.asarray(np.isnan(source) | ~np.isnan(result))
    wide = source.astype(wide_float(source.dtype), copy=False)
    # Half a step above the largest number.
    return np.asarray(np.abs(wide) < 2.0**row.highest - 2.0 ** (row.highest - row.precision - 1))


def _stays_finite(source: Array, result: Array) -> Any:
    return np.isfinite(result) | ~np.isfinite(source)


def _value_kept(source: Array, result: Array) -> Array:
    """Where a cast keeps the value, also NaN.

    Floats are compared directly, other values after a cast back.
    """
    before, after = find(of_numpy(source.dtype) or ""), find(of_numpy(result.dtype) or "")
    if before.kind == after.kind == "float":
        # Without a cast back: a narrow float dtype without infinity turns it into its largest
        # number, and back.
        wide = np.promote_types(wide_float(source.dtype), wide_float(result.dtype))
        here, there = source.astype(wide, copy=False), result.astype(wide, copy=False)
        return np.asarray((here == there) | (np.isnan(here) & np.isnan(there)))
    back: Any = np.empty(source.shape, numpy_dtype(before.name))
    if after.kind == "complex" and before.kind != "complex":
        _cast_into(back, result.real, before.kind)
    else:
        _cast_into(back, result, before.kind)
    kept: Array = np.asarray(back == source)
    if before.kind in ("float", "complex"):
        if before.kind == "complex" and after.kind in ("float", "complex"):
            # If one part is NaN, the other part must be equal still.
            return np.asarray(
                _same_or_nan(source.real, back.real, result.real)
                & _same_or_nan(source.imag, back.imag, result.imag)
            )
        if after.kind in ("float", "complex"):
            # Cast back, a NaN may become the very number of the source, if the source's dtype has
            # no NaN.
            kept = np.where(np.isnan(result), np.isnan(source), kept)
        elif after.kind in ("int", "uint"):
            kept = kept & _inside_range(source.real, after.highest, signed=after.kind == "int")
    elif before.kind in ("int", "uint"):
        if after.kind in ("int", "uint"):
            kept = kept & ((source < 0) == (result < 0))
        elif after.kind in ("float", "complex"):
            # Cast back, 2**63 may saturate to the int64 that was rounded up to it.
            kept = kept & _inside_range(result.real, before.highest, signed=before.kind == "int")
    return kept


def _same_or_nan(source: Array, back: Array, result: Array) -> Any:
    return (back == source) | (np.isnan(source) & np.isnan(result))


def _inside_range(values: Array, bits: int, *, signed: bool) -> Array:
    wide = values.astype(np.float64)
    low = -(2.0**bits) if signed else 0.0
    inside: Array = (wide >= low) & (wide < 2.0**bits)
    return inside


# -- what NumPy and ml_dtypes do not define as we do ----------------------------------------------


@cache
def step_of(source: np.dtype[Any], target: np.dtype[Any]) -> Step | None:
    """A function that casts an array, or one block, if NumPy's cast does not give what is defined.

    Its arguments are the memory to write, and the array.
    """
    before, after = of_numpy(source), of_numpy(target)
    if before is None or after is None:
        return None
    if cuts_off(before, after):
        if _extension is None:
            return _cut_off
        return partial(_cut_off_in_c, find(after))
    if not is_misrounded(before, after):
        return None
    if _extension is not None:
        return partial(_round_in_c, find(after), _read_as(source))
    if after == "bfloat16":
        return _round_to_bfloat16
    return partial(_round_once, find(after))


def cast_of_compact(
    source: np.dtype[Any], target: np.dtype[Any]
) -> Callable[[Array], Array] | None:
    """As `step_of`, for small C-contiguous arrays of just this dtype: a function for a new one.

    It is ``None`` without the extension, and where memory of C cannot be read or written as it is.
    """
    before, after = of_numpy(source), of_numpy(target)
    if _extension is None or before is None or after is None:
        return None
    if cuts_off(before, after):
        if before not in ("float32", "float64") or after not in ORDINARY:
            return None
        return partial(
            _new_cut_off, _extension.cut_off, source.char, *_bits_and_sign(find(after)), target
        )
    if before not in ("float64", "int64", "uint64") or "zero" not in find(after).specials:
        return None
    return partial(
        _new_rounded, _extension.round_to_odd, _CODES[source.kind], _lost_bits(find(after)), target
    )


def _bits_and_sign(row: DType) -> tuple[int, bool]:
    """How many bits an integer dtype has, and whether one is for the sign."""
    is_signed = row.kind == "int"
    return row.highest + is_signed, is_signed


def _lost_bits(row: DType) -> int:
    """How many of float64's bits are not needed to round to a dtype: two more than it has are."""
    return 52 - (row.precision + 1)


def _aligned_array(x: Array) -> Array:
    return x if x.flags.aligned else x.copy()


def _read_as(source: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype as which numbers are rounded: wide integer dtypes have values float64 lacks."""
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
    floats = _aligned_array(source.astype(wide_float(source.dtype), "C", copy=False))
    bits, is_signed = _bits_and_sign(row)
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
    """Round values to bfloat16, the upper half of float32's bits: to the nearest, ties to even.

    To round to float32 first does harm only to a value that lands just halfway between two of
    bfloat16, and was not there. Such a value is moved by one bit of float32 to its side.
    """
    exact = _as_float64(source)
    single = exact.astype(np.float32, "C")
    halfway = single.view(np.uint32).astype(np.uint16) == 0x8000
    if np.count_nonzero(halfway):
        at = np.flatnonzero(halfway)
        flat = single.reshape(-1)
        wanted, rounded = np.abs(exact.reshape(-1)[at]), np.abs(flat[at])
        flat.view(np.int32)[at] += (wanted > rounded).astype(np.int32) - (wanted < rounded)
    target[...] = single


def _round_once(row: DType, target: Array, source: Array) -> None:
    """Round values to a float dtype of few significant bits: to the nearest, ties to even.

    float32 cannot have all bits of a value, but those that decide: two more than the target, of
    which the last is set if any bit behind it is ("rounded to odd"). So no value is halfway between
    two of the target unless it was.
    """
    bits = _as_float64(source).view(np.uint64)
    lost = _lost_bits(row)
    below = np.uint64((1 << lost) - 1)
    kept = bits & below
    kept += below
    kept |= bits
    kept &= ~below
    single = kept.view(np.float64).astype(np.float32)
    if "zero" in row.specials:
        target[...] = single
    else:
        target[...] = _without_slightly_more(row, single)


def _round_in_c(row: DType, read_as: np.dtype[Any], target: Array, source: Array) -> None:
    numbers = _aligned_array(source.astype(read_as, "C", copy=False))
    single = np.empty(numbers.shape, np.float32)
    _extension.round_to_odd(numbers, _CODES[read_as.kind], _lost_bits(row), single)
    if "zero" in row.specials:
        target[...] = single
    else:
        target[...] = _without_slightly_more(row, single)


def _new_rounded(
    round_to_odd: Callable[..., None], code: str, lost: int, target: np.dtype[Any], source: Array
) -> Array:
    single: Array = np.empty(source.shape, np.float32)
    round_to_odd(source, code, lost, single)
    return single.astype(target)


def _without_slightly_more(row: DType, single: Array) -> Array:
    """ml_dtypes takes all above its smallest number, if subnormal in float32, for the next one."""
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
            if source.dtype.kind == "u":
                large = whole > 2**53
            else:
                large = (whole > 2**53) | (whole < -(2**53))
            source = np.where(large, odd, whole)
    return source.astype(np.float64)
