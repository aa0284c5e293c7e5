"""Dtypes as bit patterns: the bits that are stored, and the exact numbers that they mean.

This is written from the definitions of the formats, and uses neither NumPy, nor ml_dtypes, nor
tensorferry's own table of dtypes, so that those can be tested with it. The narrow floats are
defined in the OCP specifications of 8-bit and microscaling formats, and in StableHLO
(https://openxla.org/stablehlo/spec#types).
"""

from __future__ import annotations

import random
import struct
from functools import cache
from math import inf, ldexp, nan
from typing import Any, NamedTuple

__all__ = [
    "FORMATS",
    "ElementFormat",
    "decode",
    "encode",
    "flip_sign",
    "nested",
    "numbers",
    "patterns",
    "swap",
]


class ElementFormat(NamedTuple):
    """How the elements of one dtype are stored.

    Args:
        name: Canonical name.
        kind: ``"bool"``, ``"int"``, ``"uint"``, ``"float"`` or ``"complex"``.
        itemsize: Bytes of an element. An element of less than 8 bits is in the low bits of a byte.
        bits: How many bits have a meaning; for complex numbers, in each of the two parts.
        exponent: Bits of a float's exponent.
        mantissa: Bits of a float's mantissa.
        bias: The number that is subtracted from the exponent.
        specials: ``"ieee"`` has infinities and NaN, ``"fn"`` one NaN per sign and no infinity,
            ``"fnuz"`` one NaN in the place of -0, ``"finite"`` none, ``"scale"`` powers of two.
    """

    name: str
    kind: str
    itemsize: int
    bits: int
    exponent: int = 0
    mantissa: int = 0
    bias: int = 0
    specials: str = ""

    @property
    def part(self) -> int:
        """Bytes of an element, or of each part of a complex number."""
        return self.itemsize // 2 if self.kind == "complex" else self.itemsize


def _float_formats() -> list[ElementFormat]:
    rows = [
        ("float4_e2m1fn", 2, 1, 1, "finite"),
        ("float6_e2m3fn", 2, 3, 1, "finite"),
        ("float6_e3m2fn", 3, 2, 3, "finite"),
        ("float8_e3m4", 3, 4, 3, "ieee"),
        ("float8_e4m3", 4, 3, 7, "ieee"),
        ("float8_e4m3fn", 4, 3, 7, "fn"),
        ("float8_e4m3fnuz", 4, 3, 8, "fnuz"),
        ("float8_e4m3b11fnuz", 4, 3, 11, "fnuz"),
        ("float8_e5m2", 5, 2, 15, "ieee"),
        ("float8_e5m2fnuz", 5, 2, 16, "fnuz"),
        ("bfloat16", 8, 7, 127, "ieee"),
        ("float16", 5, 10, 15, "ieee"),
        ("float32", 8, 23, 127, "ieee"),
        ("float64", 11, 52, 1023, "ieee"),
    ]
    return [
        ElementFormat(name, "float", -(-(1 + e + m) // 8), 1 + e + m, e, m, bias, specials)
        for name, e, m, bias, specials in rows
    ]


def _all_formats() -> dict[str, ElementFormat]:
    rows = [ElementFormat("bool", "bool", 1, 1)]
    for bits in (2, 4, 8, 16, 32, 64):
        rows.append(ElementFormat(f"int{bits}", "int", max(bits // 8, 1), bits))
        rows.append(ElementFormat(f"uint{bits}", "uint", max(bits // 8, 1), bits))
    rows += _float_formats()
    rows.append(ElementFormat("float8_e8m0fnu", "float", 1, 8, 8, 0, 127, "scale"))
    for name, part in (("complex64", rows[-3]), ("complex128", rows[-2])):
        rows.append(part._replace(name=name, kind="complex", itemsize=2 * part.itemsize))
    return {row.name: row for row in rows}


FORMATS: dict[str, ElementFormat] = _all_formats()
"""Every dtype that some framework knows, by its canonical name."""


_NATIVE = {
    "bool": "?",
    **dict(zip(("int8", "int16", "int32", "int64"), "bhiq", strict=True)),
    **dict(zip(("uint8", "uint16", "uint32", "uint64"), "BHIQ", strict=True)),
    **dict(zip(("float16", "float32", "float64"), "efd", strict=True)),
}
"""For each dtype that `struct` knows, its code there."""

_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
"""For each width in bytes, the code of `struct` for an unsigned integer."""


# -- from numbers to bits, and back -----------------------------------------------------------------------


def decode(dtype: str, content: bytes) -> list[Any]:
    """The Python scalars that these bytes mean, in the machine's byte order.

    >>> decode("float8_e4m3fn", bytes([0x38, 0xB8, 0x01])), decode("int4", bytes([0x0F]))
    ([1.0, -1.0, 0.001953125], [-1])
    """
    row = FORMATS[dtype]
    code = "f" if row.bits == 32 else "d"
    if row.kind == "complex":
        parts = struct.unpack(f"={len(content) * 2 // row.itemsize}{code}", content)
        return [complex(*pair) for pair in zip(parts[::2], parts[1::2], strict=True)]
    if row.kind == "float" and row.bits >= 32:
        return list(struct.unpack(f"={len(content) // row.itemsize}{code}", content))
    return [numbers(dtype, pattern) for pattern in _split_content(content, row.itemsize)]


def encode(dtype: str, values: list[Any]) -> bytes:
    """The bytes of Python scalars that a dtype has exactly, in the machine's byte order.

    >>> (
    ...     encode("float32", [1.5]).hex(),
    ...     encode("float64", [1, True]) == encode("float64", [1.0, 1.0]),
    ... )
    ('0000c03f', True)

    Raises:
        ValueError: `struct` has no such numbers.
    """
    if dtype not in _NATIVE:
        raise ValueError(f"no Python number is written as {dtype}")
    return struct.pack(f"={len(values)}{_NATIVE[dtype]}", *values)


def _split_content(content: bytes, itemsize: int) -> list[int]:
    return list(struct.unpack(f"={len(content) // itemsize}{_CODES[itemsize]}", content))


def numbers(dtype: str, pattern: int) -> Any:
    """The Python scalar that a bit pattern means, for dtypes that are not complex."""
    row = FORMATS[dtype]
    pattern &= (1 << row.bits) - 1
    if row.kind == "bool":
        return bool(pattern)
    if row.kind == "uint":
        return pattern
    if row.kind == "int":
        return pattern - (1 << row.bits) * (pattern >> (row.bits - 1))
    return _float_of_pattern(row, pattern)


def _float_of_pattern(row: ElementFormat, pattern: int) -> float:
    if row.specials == "scale":
        return nan if pattern == 0xFF else ldexp(1.0, pattern - row.bias)
    sign = -1.0 if pattern >> (row.bits - 1) else 1.0
    exponent = pattern >> row.mantissa & ((1 << row.exponent) - 1)
    mantissa = pattern & ((1 << row.mantissa) - 1)
    full = (1 << row.exponent) - 1
    if row.specials == "ieee" and exponent == full:
        return nan if mantissa else sign * inf
    if row.specials == "fn" and exponent == full and mantissa == (1 << row.mantissa) - 1:
        return nan
    if row.specials == "fnuz" and sign < 0 and not exponent and not mantissa:
        return nan
    if exponent == 0:
        return sign * ldexp(mantissa, 1 - row.bias - row.mantissa)
    return sign * ldexp((1 << row.mantissa) | mantissa, exponent - row.bias - row.mantissa)


# -- patterns for tests -------------------------------------------------------------------------


@cache
def patterns(dtype: str, count: int) -> tuple[bytes, ...]:
    """Elements of a dtype, always the same: first its special values, then others.

    Special values are zeros, the smallest and the largest subnormal, the ends of the range,
    infinities, and quiet and signalling NaNs with a payload, with both signs; of integers, the
    largest and the smallest.
    """
    row = FORMATS[dtype]
    chosen = _special_patterns(row)
    source = random.Random(dtype)  # noqa: S311 - it is not for cryptography
    width = 1 if row.kind == "bool" else row.bits
    while len(chosen) < 2 * count:
        chosen.append(source.getrandbits(width))
    code = _CODES[row.part]
    if row.kind != "complex":
        return tuple(struct.pack(f"={code}", pattern) for pattern in chosen[:count])
    # Two different special values in each complex number: a NaN beside a -0, an infinity beside a
    # subnormal.
    pairs = zip(chosen[:count], chosen[3 : count + 3], strict=True)
    return tuple(struct.pack(f"=2{code}", *pair) for pair in pairs)


def _special_patterns(row: ElementFormat) -> list[int]:
    if row.kind == "bool":
        return [1, 0, 0, 1, 1, 0]
    top = 1 << (row.bits - 1)
    if row.kind in ("int", "uint"):
        return [pattern % (2 * top) for pattern in (0, 1, 2 * top - 1, top, top - 1, top + 1, 2)]
    if row.specials == "scale":
        return [0, 1, 0x7F, 0xFE, 0xFF]
    unit, full = row.bias << row.mantissa, (1 << row.exponent) - 1 << row.mantissa
    tail = (1 << row.mantissa) - 1
    quiet = 1 << max(row.mantissa - 1, 0)
    positive = [0, 1, tail, tail + 1, unit, full - 1, full]
    if row.mantissa > 2:
        positive += [full | quiet, full | 1, full | quiet | 1, full | tail]
    else:
        positive += [full | tail]
    return [sign | pattern for pattern in positive for sign in (0, top)]


def flip_sign(dtype: str, content: bytes, *, imaginary_only: bool = False) -> bytes:
    """The bytes of the negated numbers; with `imaginary_only`, of their conjugates."""
    row = FORMATS[dtype]
    elements = _split_content(content, row.part)
    start, step = (1, 2) if imaginary_only else (0, 1)
    elements[start::step] = [pattern ^ 1 << (row.bits - 1) for pattern in elements[start::step]]
    return struct.pack(f"={len(elements)}{_CODES[row.part]}", *elements)


def swap(dtype: str, content: bytes) -> bytes:
    """The same elements in the other byte order.

    The parts of complex numbers are swapped each by itself.
    """
    size = FORMATS[dtype].part
    return b"".join(content[at : at + size][::-1] for at in range(0, len(content), size))


def nested(dtype: str, shape: tuple[int, ...], content: bytes) -> Any:
    """The nested list of the elements; for shape ``()``, the number itself."""
    flat: list[Any] = decode(dtype, content)
    if not shape:
        return flat[0]
    for length in reversed(shape[1:]):
        if not length:
            return _hollow_list(shape)
        flat = [flat[at : at + length] for at in range(0, len(flat), length)]
    return flat


def _hollow_list(shape: tuple[int, ...]) -> Any:
    return [] if not shape or not shape[0] else [_hollow_list(shape[1:]) for _ in range(shape[0])]
