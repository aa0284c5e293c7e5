"""One canonical table of dtypes, and what each cast can lose.

A dtype's identity is its name (``"bfloat16"``), never NumPy's ``kind`` or ``str``: those read
``"V"`` and ``"<V2"`` for every narrow type.
"""

from __future__ import annotations

from functools import cache
from re import search
from typing import TYPE_CHECKING, Literal

from .. import hints
from ..errors import LossyCastError
from ..hints import Hint
from .named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

__all__ = [
    "DLPACK_CODES",
    "DTYPES",
    "FINITE",
    "ORDINARY",
    "UNSAFE",
    "Check",
    "DType",
    "Kind",
    "Scale",
    "casting_scale",
    "common_dtype",
    "cuts_off",
    "find",
    "fitting_dtype",
    "have_common",
    "holds_exactly",
    "is_misrounded",
    "value_bits",
]

DEFAULT, FIT = KEYWORDS = ("default", "fit")
"""The values of ``dtype=`` that are not dtypes: see `rules.target_dtype`."""
CASTINGS = ("safe", "same_value", "same_kind", "unsafe")
Kind = Literal["bool", "uint", "int", "float", "complex"]
KINDS: tuple[Kind, ...] = ("bool", "uint", "int", "float", "complex")
Check = Literal["", "value", "number", "finite"]
"""How a cast checks each value: see `casts.check_values`."""
_ROUNDS = frozenset({"nan", "negative", "zero"})
"""What a float dtype must have, so that every number, infinity and NaN can be rounded to it."""


class DType(NamedTuple):
    """One row of the table.

    ``precision`` counts significant bits; a finite float's magnitude lies between ``2**lowest``
    (the smallest subnormal) and below ``2**highest``.
    """

    name: str
    kind: Kind
    itemsize: int
    precision: int
    lowest: int
    highest: int
    specials: frozenset[str] = frozenset()

    @property
    def alignment(self) -> int:
        """The alignment of an element in bytes, as in C."""
        if self.kind == "complex":
            return self.itemsize // 2
        return self.itemsize


_SIGNED = frozenset({"-0", "negative", "zero"})
_IEEE = _SIGNED | {"inf", "nan"}
_ONE_ZERO = frozenset({"nan", "negative", "zero"})

DTYPES: dict[str, DType] = {
    row.name: row
    for row in (
        DType("bool", "bool", 1, 1, 0, 1),
        DType("int2", "int", 1, 1, 0, 1),
        DType("int4", "int", 1, 3, 0, 3),
        DType("uint2", "uint", 1, 2, 0, 2),
        DType("uint4", "uint", 1, 4, 0, 4),
        DType("int8", "int", 1, 7, 0, 7),
        DType("int16", "int", 2, 15, 0, 15),
        DType("int32", "int", 4, 31, 0, 31),
        DType("int64", "int", 8, 63, 0, 63),
        DType("uint8", "uint", 1, 8, 0, 8),
        DType("uint16", "uint", 2, 16, 0, 16),
        DType("uint32", "uint", 4, 32, 0, 32),
        DType("uint64", "uint", 8, 64, 0, 64),
        DType("float4_e2m1fn", "float", 1, 2, -1, 3, _SIGNED),
        DType("float6_e2m3fn", "float", 1, 4, -3, 3, _SIGNED),
        DType("float6_e3m2fn", "float", 1, 3, -4, 5, _SIGNED),
        DType("float8_e3m4", "float", 1, 5, -6, 4, _IEEE),
        DType("float8_e4m3", "float", 1, 4, -9, 8, _IEEE),
        DType("float8_e4m3b11fnuz", "float", 1, 4, -13, 5, _ONE_ZERO),
        DType("float8_e4m3fn", "float", 1, 4, -9, 9, _SIGNED | {"nan"}),
        DType("float8_e4m3fnuz", "float", 1, 4, -10, 8, _ONE_ZERO),
        DType("float8_e5m2", "float", 1, 3, -16, 16, _IEEE),
        DType("float8_e5m2fnuz", "float", 1, 3, -17, 16, _ONE_ZERO),
        DType("float8_e8m0fnu", "float", 1, 1, -127, 128, frozenset({"nan"})),
        DType("bfloat16", "float", 2, 8, -133, 128, _IEEE),
        DType("float16", "float", 2, 11, -24, 16, _IEEE),
        DType("float32", "float", 4, 24, -149, 128, _IEEE),
        DType("float64", "float", 8, 53, -1074, 1024, _IEEE),
        DType("complex64", "complex", 8, 24, -149, 128, _IEEE),
        DType("complex128", "complex", 16, 53, -1074, 1024, _IEEE),
    )
}
"""All supported dtypes, by their canonical names."""

ORDINARY = frozenset(
    {
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    }
)
"""The dtypes that NumPy has itself. The others come from ml_dtypes."""

DLPACK_CODES = {
    **{f"int{bits}": (0, bits) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (1, bits) for bits in (8, 16, 32, 64)},
    **{f"float{bits}": (2, bits) for bits in (16, 32, 64)},
    "bfloat16": (4, 16),
    "complex64": (5, 64),
    "complex128": (5, 128),
    "bool": (6, 8),
    "float8_e3m4": (7, 8),
    "float8_e4m3": (8, 8),
    "float8_e4m3b11fnuz": (9, 8),
    "float8_e4m3fn": (10, 8),
    "float8_e4m3fnuz": (11, 8),
    "float8_e5m2": (12, 8),
    "float8_e5m2fnuz": (13, 8),
    "float8_e8m0fnu": (14, 8),
}
"""DLPack's type code and number of bits, by the name of the dtype.

(https://dmlc.github.io/dlpack/latest/c_api.html)
"""


def find(name: str) -> DType:
    """The row of the table for a canonical name."""
    return DTYPES[name]


@cache
def holds_exactly(source: str, target: str) -> bool:
    """Whether every value of one dtype is a value of the other.

    >>> (
    ...     holds_exactly("bfloat16", "float32"),
    ...     holds_exactly("float16", "bfloat16"),
    ...     holds_exactly("int64", "float64"),
    ... )
    (True, False, False)
    """
    if source == target:
        return True
    a, b = DTYPES[source], DTYPES[target]
    if KINDS.index(a.kind) > KINDS.index(b.kind) or (
        a.kind == "int" and "negative" not in _signs_and_specials(b)
    ):
        return False
    if a.kind in ("bool", "uint", "int"):
        if b.kind in ("float", "complex"):
            # The most negative integer, -2**precision, is a power of two: one exponent more.
            fits = a.precision <= b.precision and a.precision + (a.kind == "int") <= b.highest
            return fits and b.lowest <= 0 and "zero" in b.specials
        return a.precision <= b.precision
    return (
        a.precision <= b.precision
        and a.highest <= b.highest
        and a.lowest >= b.lowest
        and a.specials <= b.specials
    )


def _signs_and_specials(dtype: DType) -> frozenset[str]:
    if dtype.kind in ("bool", "uint"):
        return frozenset()
    if dtype.kind == "int":
        return frozenset({"negative"})
    return dtype.specials


@cache
def is_misrounded(source: str, target: str) -> bool:
    """Whether ml_dtypes, and frameworks, do not always give the nearest value.

    They round to float32 first, and then again. To float8_e8m0fnu, they round up what is subnormal
    in float32.

    >>> (
    ...     is_misrounded("float64", "bfloat16"),
    ...     is_misrounded("float32", "bfloat16"),
    ...     is_misrounded("float64", "float16"),
    ... )
    (True, False, False)
    """
    a, b, single = DTYPES[source], DTYPES[target], DTYPES["float32"]
    if b.kind != "float" or target in ORDINARY:
        return False
    if "zero" not in b.specials and a.lowest < b.lowest:
        return True
    # Integers that float32 does not have are far beyond the largest number of most narrow floats.
    return a.precision > single.precision and (
        a.kind in ("float", "complex") or b.highest > single.precision
    )


@cache
def cuts_off(source: str, target: str) -> bool:
    """Whether a cast makes integers of numbers that may have fractions, or fit no integer dtype."""
    return DTYPES[source].kind in ("float", "complex") and DTYPES[target].kind in ("int", "uint")


class Scale(NamedTuple):
    """An allowed cast: how it checks each value, see `casts.cast`."""

    exact: bool
    check: Check


FINITE = "finite"
"""For `casting_scale`: numbers take a dtype that nobody named, so none may become infinite."""


UNSAFE = Hint(hints.keyword("casting", "unsafe"), " casts anyway")
"""The hint for a cast that changes values."""


@cache
def casting_scale(source: str, target: str, casting: str | None) -> Scale:
    """How an allowed cast checks each value.

    The words are NumPy's (https://numpy.org/doc/stable/reference/generated/numpy.can_cast.html),
    with one stricter reading: ``"safe"`` is exact for every value, so int64 to float64 is not.

    Args:
        source: The canonical name of the source's dtype.
        target: The canonical name of the requested dtype.
        casting: ``None`` rounds floats and keeps everything else; `FINITE` does too, and keeps
            finite floats finite; or one of NumPy's words.

    Raises:
        LossyCastError: `casting` does not allow this cast.
    """
    if holds_exactly(source, target):
        return Scale(exact=True, check="")
    a, b = DTYPES[source], DTYPES[target]
    if casting == "unsafe":
        return Scale(exact=False, check="")
    if casting == "same_value":
        return Scale(exact=False, check="value")
    keeps_kind = KINDS.index(a.kind) <= KINDS.index(b.kind)
    if casting in (None, FINITE):
        check: Check = "" if casting is None else "finite"
        if a.kind not in ("float", "complex") or not keeps_kind:
            check = "value"
        elif not b.specials >= _ROUNDS:
            check = "number"
        return Scale(exact=False, check=check)
    if casting == "same_kind" and keeps_kind:
        return Scale(exact=False, check="")
    raise LossyCastError(
        f'casting="{casting}" does not permit {source} to {target}: not every value of {source} is '
        f"one of {target}.",
        Hint(
            hints.keywords(dtype=target, casting="same_value"),
            " keeps each value or raises; ",
            UNSAFE,
        ),
    )


def value_bits(name: str) -> int:
    """The number of bits of a value; int4, for example, has 4, though each value takes a byte."""
    digits = search(r"\d+", name)
    return 1 if digits is None else int(digits[0])


def fitting_dtype(name: str, held: Collection[str]) -> str | None:
    """The best dtype in `held` for ``dtype="fit"``; ``None`` if none is of the same kind.

    It is the dtype itself; or the narrowest one of the same kind that has all values of the dtype;
    or, if none has them, the widest one of the same kind whose values the dtype all has.

    >>> (
    ...     fitting_dtype("int4", ["int2", "int8", "int16"]),
    ...     fitting_dtype("float64", ["float16", "float32"]),
    ...     fitting_dtype("bool", ["int8"]),
    ... )
    ('int8', 'float32', None)

    Args:
        name: The canonical name of a dtype.
        held: The canonical names to choose from.
    """
    if name in held:
        return name
    kind = find(name).kind
    kin = sorted(
        (other for other in held if find(other).kind == kind),
        key=lambda other: (_bits_and_precision(other), other),
    )
    narrower = [other for other in kin if holds_exactly(other, name)]
    wider = [other for other in kin if holds_exactly(name, other)]
    if wider:
        return wider[0]
    return narrower[-1] if narrower else None


def _bits_and_precision(name: str) -> tuple[int, int]:
    return value_bits(name), find(name).precision


def have_common(names: Iterable[str]) -> bool:
    """Whether some dtype has all values of all the named ones."""
    different = set(names)
    return len(different) == 1 or bool(_dtypes_that_hold(different))


def common_dtype(names: Iterable[str]) -> str:
    """The narrowest dtype that has all values of all the named ones.

    Raises:
        LossyCastError: No dtype has, as for int64 and float32.
    """
    different = set(names)
    if len(different) == 1:
        return next(iter(different))
    holders = _dtypes_that_hold(different)
    if not holders:
        listed = ", ".join(sorted(different))
        is_complex = any(find(name).kind == "complex" for name in different)
        if is_complex:
            hint = Hint(hints.DtypeOf(hints.WIDEST_COMPLEX))
        else:
            hint = Hint(hints.DtypeOf(hints.WIDEST), ", which each value must fit")
        error = LossyCastError(f"No dtype holds every value of {listed}.", hint)
        if is_complex:
            error.read_as = "complex128"
        else:
            error.read_as = "float64"
        raise error
    return min(holders, key=lambda row: (row.itemsize, KINDS.index(row.kind), row.precision)).name


def _dtypes_that_hold(names: set[str]) -> list[DType]:
    return [row for row in DTYPES.values() if all(holds_exactly(name, row.name) for name in names)]
