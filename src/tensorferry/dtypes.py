"""One canonical table of dtypes, and what each cast can lose.

A dtype's identity is its name (``"bfloat16"``), never NumPy's ``kind`` or ``str``: those read
``"V"`` and ``"<V2"`` for every narrow type.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .errors import LossyCastError, UnsupportedTypeError, shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .backend import Backend

__all__ = [
    "DTYPES",
    "DType",
    "Scale",
    "by_numpy",
    "casting_scale",
    "common",
    "exact",
    "find",
    "name_of",
    "of_numpy",
]

CASTINGS = ("safe", "same_value", "same_kind", "unsafe")
KINDS = ("bool", "uint", "int", "float", "complex")
_ROUNDS = frozenset({"nan", "negative", "zero"})
"""What a float needs so that every number, infinity and NaN can be rounded to it."""


class DType(NamedTuple):
    """One row of the table.

    ``precision`` counts significant bits; a finite float's magnitude lies between ``2**lowest``
    (the smallest subnormal) and below ``2**highest``.
    """

    name: str
    kind: str
    itemsize: int
    numpy: np.dtype[Any]
    precision: int
    lowest: int
    highest: int
    specials: frozenset[str]


def _integer(name: str, bits: int | None = None) -> DType:
    import ml_dtypes

    numpy = np.dtype(getattr(ml_dtypes, name, None) or name)
    signed = not name.startswith("u")
    bits = bits or numpy.itemsize * 8
    kind = "int" if signed else "uint"
    precision = bits - signed
    return DType(name, kind, numpy.itemsize, numpy, precision, 0, precision, frozenset())


def _float(name: str) -> DType:
    import ml_dtypes

    numpy = np.dtype(getattr(ml_dtypes, name, None) or name)
    limits: Any = ml_dtypes.finfo(numpy)  # type: ignore[no-untyped-call, unused-ignore]
    with np.errstate(all="ignore"):
        special = {
            "inf": np.isinf(np.array(np.inf, np.float32).astype(numpy).astype(np.float64)).item(),
            "nan": np.isnan(np.array(np.nan, np.float32).astype(numpy).astype(np.float64)).item(),
            "negative": float(limits.min) < 0,
            "zero": float(np.array(0, np.float32).astype(numpy).astype(np.float64)) == 0,
            "-0": bool(np.signbit(np.array(-0.0, np.float32).astype(numpy).astype(np.float64))),
        }
    lowest = int(np.frexp(np.float64(limits.smallest_subnormal))[1]) - 1
    highest = int(np.frexp(np.float64(limits.max))[1])
    present = frozenset(name for name, has in special.items() if has)
    return DType(name, "float", numpy.itemsize, numpy, int(limits.nmant) + 1, lowest, highest, present)


def _complex(name: str, part: DType) -> DType:
    return part._replace(name=name, kind="complex", itemsize=2 * part.itemsize, numpy=np.dtype(name))


@cache
def _table() -> dict[str, DType]:
    # Made when it is first asked for: ml_dtypes is a third of what importing tensorferry would cost.
    rows = [DType("bool", "bool", 1, np.dtype(bool), 1, 0, 1, frozenset())]
    rows += [_integer(name, int(name.lstrip("uint"))) for name in ("int2", "int4", "uint2", "uint4")]
    rows += [_integer(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]
    narrow = (
        "float4_e2m1fn",
        "float6_e2m3fn",
        "float6_e3m2fn",
        "float8_e3m4",
        "float8_e4m3",
        "float8_e4m3b11fnuz",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
        "bfloat16",
    )
    rows += [_float(name) for name in (*narrow, "float16", "float32", "float64")]
    rows += [_complex("complex64", rows[-2]), _complex("complex128", rows[-1])]
    return {row.name: row for row in rows}


DTYPES: dict[str, DType]
"""Every dtype that tensorferry carries, by its canonical name."""


def __getattr__(name: str) -> Any:
    if name == "DTYPES":
        return _table()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_ALIASES = {
    "bf16": "bfloat16",
    "half": "float16",
    "float": "float64",
    "double": "float64",
    "single": "float32",
    "int": "int64",
    "complex": "complex128",
    "bool_": "bool",
    "cfloat": "complex64",
    "cdouble": "complex128",
    "fp16": "float16",
    "fp32": "float32",
    "fp64": "float64",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
}


_AMBIGUOUS = {"float": ("float32", "float64"), "int": ("int32", "int64"), "complex": ("complex64", "complex128")}
"""Aliases that are Python's alone: behind a framework's name they may mean another width."""


@cache
def by_numpy() -> dict[Any, str]:
    """The canonical name of each NumPy dtype in the machine's byte order."""
    return {row.numpy: row.name for row in _table().values()}


def of_numpy(dtype: np.dtype[Any]) -> str | None:
    """The canonical name of a NumPy dtype in either byte order, or ``None`` if it has none."""
    name = by_numpy().get(dtype)
    if name is None and not dtype.isnative:
        name = by_numpy().get(dtype.newbyteorder("="))
    return name


def is_native_and_known(dtype: np.dtype[Any]) -> bool:
    """Whether a NumPy dtype is one of the table's, in the machine's byte order."""
    return dtype in by_numpy() and dtype.isnative


def name_of(dtype: object) -> str:
    """The canonical name of a dtype of any framework, or of a name.

    >>> import numpy as np
    >>> name_of("torch.bfloat16"), name_of(np.float32), name_of("half"), name_of(float)
    ('bfloat16', 'float32', 'float16', 'float64')

    Args:
        dtype: A name, a NumPy dtype or scalar type, a Python type, or a framework's dtype object.

    Raises:
        UnsupportedTypeError: It names no dtype that tensorferry carries.
    """
    name: str | None = None
    is_dtype = "dtype" in type(dtype).__name__.lower()
    if isinstance(dtype, str):
        prefix, _, last = dtype.rpartition(".")
        name = last if not prefix or _is_frameworks(prefix) else None
        if prefix and name in _AMBIGUOUS:
            raise UnsupportedTypeError(
                f"{dtype!r} is 32 bits wide for some and 64 for others.",
                " or ".join(map('dtype="{}"'.format, _AMBIGUOUS[name])),
            )
    elif isinstance(dtype, np.dtype):
        name = of_numpy(dtype)
    elif isinstance(dtype, type):
        try:
            name = of_numpy(np.dtype(dtype))
        except TypeError:
            name = None
    elif is_dtype:  # nothing else is asked for its name: a tensor could wait for a device
        said = getattr(dtype, "name", None) or str(dtype).rpartition(".")[2]
        name = said if isinstance(said, str) else None
    if name is not None:
        name = _ALIASES.get(name, name)
        if name in _table():
            return name
    raise UnsupportedTypeError(
        f"{repr(dtype) if is_dtype else shown(dtype)} is not a dtype that tensorferry carries.",
        'dtype="float32", or one of: ' + ", ".join(sorted(_table())),
    )


def _is_frameworks(prefix: str) -> bool:
    """Whether what stands before a dtype's name is a framework's module, or what its users import it as."""
    from .registry import backends, known

    # Outside packages are looked up if need be.
    return any(_is_module_of(prefix.partition(".")[0], list(each().values())) for each in (known, backends))


def _is_module_of(first: str, among: Iterable[Backend]) -> bool:
    modules = {module: each for each in among if each.module != "builtins" for module in each.owns}
    lines = {name: line for each in modules.values() for name, line in each.imports.items()}
    imported = lines.get(first, "").removeprefix("import ").partition(" ")[0]
    return first in modules or imported.partition(".")[0] in modules


def find(name: str) -> DType:
    """The table's row of a canonical name."""
    return _table()[name]


@cache
def exact(source: str, target: str) -> bool:
    """Whether every value of one dtype is a value of the other.

    >>> exact("bfloat16", "float32"), exact("float16", "bfloat16"), exact("int64", "float64")
    (True, False, False)
    """
    if source == target:
        return True
    a, b = _table()[source], _table()[target]
    if KINDS.index(a.kind) > KINDS.index(b.kind) or (a.kind == "int" and "negative" not in _signs(b)):
        return False
    if a.kind in ("bool", "uint", "int"):
        if b.kind in ("float", "complex"):
            # The most negative integer, -2**precision, is a power of two: one exponent more.
            fits = a.precision <= b.precision and a.precision + (a.kind == "int") <= b.highest
            return fits and b.lowest <= 0 and "zero" in b.specials
        return a.precision <= b.precision
    return a.precision <= b.precision and a.highest <= b.highest and a.lowest >= b.lowest and a.specials <= b.specials


def _signs(dtype: DType) -> frozenset[str]:
    if dtype.kind in ("bool", "uint"):
        return frozenset()
    return frozenset({"negative"}) if dtype.kind == "int" else dtype.specials


class Scale(NamedTuple):
    """What a permitted cast has to look at: see `casts.cast`."""

    exact: bool
    check: str


@cache
def casting_scale(source: str, target: str, casting: str | None) -> Scale:
    """Whether `casting` permits this cast, and whether each value has to be looked at.

    The words are NumPy's (https://numpy.org/doc/stable/reference/generated/numpy.can_cast.html),
    with one stricter reading: ``"safe"`` is exact for every value, so int64 to float64 is not.

    Args:
        source: Canonical name of the dtype that is.
        target: Canonical name of the dtype that was asked for.
        casting: ``None`` rounds floats and keeps everything else; or one of NumPy's words.

    Raises:
        LossyCastError: `casting` does not permit this cast.
    """
    if exact(source, target):
        return Scale(exact=True, check="")
    a, b = _table()[source], _table()[target]
    if casting == "unsafe":
        return Scale(exact=False, check="")
    rounds = a.kind in ("float", "complex") and KINDS.index(a.kind) <= KINDS.index(b.kind)
    if casting is None:
        return Scale(exact=False, check=("" if b.specials >= _ROUNDS else "number") if rounds else "value")
    if casting == "same_value":
        return Scale(exact=False, check="value")
    if casting == "same_kind" and KINDS.index(a.kind) <= KINDS.index(b.kind):
        return Scale(exact=False, check="")
    raise LossyCastError(
        f'casting="{casting}" does not permit {source} to {target}: not every {source} is a {target}.',
        f'dtype="{target}", casting="same_value" keeps each value or raises; casting="unsafe" takes what comes',
    )


def common(names: Iterable[str]) -> str:
    """The narrowest dtype that holds every value of all the named ones.

    Raises:
        LossyCastError: There is none, as for int64 beside float32.
    """
    found = set(names)
    if len(found) == 1:
        return next(iter(found))
    holders = [row for row in _table().values() if all(exact(name, row.name) for name in found)]
    if not holders:
        listed = ", ".join(sorted(found))
        raise LossyCastError(f"No dtype holds every value of {listed}.", "convert the parts to one dtype first")
    return min(holders, key=lambda row: (row.itemsize, KINDS.index(row.kind), row.precision)).name
