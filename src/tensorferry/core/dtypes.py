"""One canonical table of dtypes, and what each cast can lose.

A dtype's identity is its name (``"bfloat16"``), never NumPy's ``kind`` or ``str``: those read
``"V"`` and ``"<V2"`` for every narrow type.
"""

from __future__ import annotations

from functools import cache
from re import search
from struct import calcsize
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import LossyCastError, UnsupportedTypeError, shown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ..backends.base import Backend

__all__ = [
    "DTYPES",
    "DType",
    "Scale",
    "asked",
    "by_numpy",
    "casting_scale",
    "common",
    "exact",
    "find",
    "fit",
    "name_of",
    "of_numpy",
    "width",
]

DEFAULT, FIT = KEYWORDS = ("default", "fit")
"""What ``dtype=`` takes beside dtypes: see `rules.target_dtype`."""
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


_LONG = f"int{8 * calcsize('l')}"
"""What C calls long on this machine."""

_WORDS: dict[str, tuple[str, ...]] = {
    "bool_": ("bool",),
    "bf16": ("bfloat16",),
    **dict.fromkeys(("half", "fp16"), ("float16",)),
    **dict.fromkeys(("single", "fp32", "f32"), ("float32",)),
    **dict.fromkeys(("double", "float", "fp64", "f64"), ("float64",)),
    **dict.fromkeys(("cfloat", "csingle", "c64"), ("complex64",)),
    **dict.fromkeys(("cdouble", "complex", "c128"), ("complex128",)),
    **dict.fromkeys(("short", "i16"), ("int16",)),
    **dict.fromkeys(("intc", "i32"), ("int32",)),
    **dict.fromkeys(("int", "int_", "longlong", "i64"), ("int64",)),
    "ubyte": ("uint8",),
    **dict.fromkeys(("ushort", "u16"), ("uint16",)),
    **dict.fromkeys(("uintc", "u32"), ("uint32",)),
    **dict.fromkeys(("uint", "ulonglong", "u64"), ("uint64",)),
    "intp": (f"int{8 * calcsize('P')}",),
    "uintp": (f"uint{8 * calcsize('P')}",),
    "long": tuple({_LONG: "", "int64": ""}),
    "ulong": (f"u{_LONG}",),
    "byte": ("int8", "uint8"),
    # Bytes to NumPy, bits to JAX, safetensors and Rust.
    "i8": ("int64", "int8"),
    "u8": ("uint64", "uint8"),
    "f16": ("float16", "float128"),
}
"""What a word that is no dtype's own name may mean, upper or lower case: more than one thing is refused."""

_CODES = {
    "?": "bool",
    "b1": "bool",
    "b": "int8",
    "i1": "int8",
    "h": "int16",
    "i2": "int16",
    "i": "int32",
    "i4": "int32",
    "l": _LONG,
    "q": "int64",
    "B": "uint8",
    "u1": "uint8",
    "H": "uint16",
    "u2": "uint16",
    "I": "uint32",
    "u4": "uint32",
    "L": f"u{_LONG}",
    "Q": "uint64",
    "e": "float16",
    "f2": "float16",
    "f": "float32",
    "f4": "float32",
    "d": "float64",
    "f8": "float64",
    "F": "complex64",
    "c8": "complex64",
    "D": "complex128",
    "c16": "complex128",
}
"""NumPy's codes, in which upper and lower case are two."""
_ORDERED = _CODES | {"i8": "int64", "u8": "uint64"}
"""Those behind a sign for the order of bytes, which nobody writes but for NumPy."""

_OTHERWISE = {
    "float": ("float32", "float64"),
    "int": ("int32", "int64"),
    "complex": ("complex64", "complex128"),
}
"""Words that mean one thing to Python and NumPy, and may mean another width behind a framework's name."""


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
    >>> name_of("torch.bfloat16"), name_of(np.float32), name_of("half"), name_of(float), name_of("f4")
    ('bfloat16', 'float32', 'float16', 'float64', 'float32')

    A name means what it means to NumPy; what else people write is known too (``"bf16"``, ``"Float32"``), unless it
    is another dtype to some (``"u8"``). Python's types are the dtypes that NumPy makes of them.

    Args:
        dtype: A name, a NumPy dtype or scalar type, a Python type, or a framework's dtype object.

    Raises:
        UnsupportedTypeError: It names no dtype that tensorferry carries, or may be one of two; the hint has the
            nearest, or both.
    """
    name: str | None = None
    is_dtype = "dtype" in type(dtype).__name__.lower()
    if isinstance(dtype, str):
        name = dtype if dtype in _table() else _meant(dtype)
    elif isinstance(dtype, np.dtype):
        name = of_numpy(dtype)
    elif isinstance(dtype, type):
        try:
            name = of_numpy(np.dtype(dtype))
        except TypeError:
            name = None
    elif is_dtype:  # nothing else is asked for its name: a tensor could wait for a device
        said = getattr(dtype, "name", None) or str(dtype).rpartition(".")[2]
        name = _meant(said) if isinstance(said, str) else None
    if name is not None:
        return name
    raise UnsupportedTypeError(
        f"{repr(dtype) if is_dtype else shown(dtype)} is not a dtype that tensorferry carries.", _nearest(dtype)
    )


def asked(dtype: object) -> str | None:
    """What ``dtype=`` asks of one tensor: a canonical name, one of `KEYWORDS`, or ``None``.

    Raises:
        UnsupportedTypeError: As for `name_of`; or it asks for an order of bytes that is not the machine's.
    """
    if dtype is None or (isinstance(dtype, str) and dtype in KEYWORDS):
        return dtype
    name = name_of(dtype)
    if isinstance(dtype, np.dtype) and not dtype.isnative:
        raise _in_the_other_order(dtype, name)
    return name


def _meant(text: str) -> str | None:
    """The dtype that a name means; ``None`` if it is none.

    Raises:
        UnsupportedTypeError: It may mean one of two, or asks for an order of bytes.
    """
    prefix, _, last = text.rpartition(".")
    if prefix and not _is_frameworks(prefix):
        return None
    word = last.lower()
    if prefix and word in _OTHERWISE:
        raise _ambiguous(text, _OTHERWISE[word])
    if not prefix and text[:1] in "<>=|" and (name := _ORDERED.get(text[1:])) is not None:
        if np.dtype(text).isnative:
            return name
        raise _in_the_other_order(text, name)
    if last in _table():
        return last
    if not prefix and last in _CODES:
        return _CODES[last]
    meanings = _WORDS.get(word, (word,) if word in _table() else ())
    if len(meanings) > 1:
        raise _ambiguous(text, meanings)
    return meanings[0] if meanings else None


def _in_the_other_order(dtype: str | np.dtype[Any], name: str) -> UnsupportedTypeError:
    return UnsupportedTypeError(
        f"{dtype!r} asks for bytes in the other order, and results are in the machine's.", f'dtype="{name}"'
    )


def _ambiguous(text: str, meanings: tuple[str, ...]) -> UnsupportedTypeError:
    carried = [name for name in meanings if name in _table()]
    absent = [name for name in meanings if name not in _table()]
    also = f"; {' and '.join(absent)} cannot be carried" if absent else ""
    return UnsupportedTypeError(
        f"{text!r} means {' to some and '.join(meanings)} to others{also}.",
        " or ".join(map('dtype="{}"'.format, carried)),
    )


def _nearest(dtype: object) -> str:
    """The code with the name of a dtype that is like what was written, if there is one."""
    from difflib import get_close_matches  # only whoever mistypes a name pays for it

    if isinstance(dtype, str) and len(dtype) <= _LONGEST:
        written = dtype.rpartition(".")[2].lower()
        words = {name: (name,) for name in (*_table(), *KEYWORDS)} | _WORDS
        found = get_close_matches(written, words, n=1, cutoff=_ALIKE)
        if found:
            return f'dtype="{words[found[0]][0]}"'
    return 'dtype="float32", or x.dtype of a tensor that has the one you mean'


_LONGEST = 80
"""Characters up to which it is looked for what a name is like."""
_ALIKE = 0.7
"""How like two names are (`difflib`) of which the one is offered for the other."""


def _is_frameworks(prefix: str) -> bool:
    """Whether what stands before a dtype's name is a framework's module, or what its users import it as."""
    from ..backends.registry import backends, known

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


def width(name: str) -> int:
    """How many bits a value has: fewer than a byte for some that take one."""
    digits = search(r"\d+", name)
    return 1 if digits is None else int(digits[0])


def fit(name: str, held: Collection[str]) -> str | None:
    """The dtype among those that somebody has which fits one best; ``None`` if none of its kind does.

    Itself; else the widest narrower one of its kind, each of whose values is one of its own; else the narrowest of
    its kind that holds each of its values.

    >>> fit("float64", ["float16", "float32", "int64"]), fit("int4", ["int8", "int16"]), fit("bool", ["int8"])
    ('float32', 'int8', None)

    Args:
        name: The canonical name of a dtype.
        held: Those of the dtypes that there are.
    """
    if name in held:
        return name
    kind = find(name).kind
    kin = sorted((other for other in held if find(other).kind == kind), key=lambda other: (_size(other), other))
    narrower = [other for other in kin if exact(other, name)]
    wider = [other for other in kin if exact(name, other)]
    return narrower[-1] if narrower else wider[0] if wider else None


def _size(name: str) -> tuple[int, int]:
    return width(name), find(name).precision


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
