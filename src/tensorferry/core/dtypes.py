"""One canonical table of dtypes, and what each cast can lose.

A dtype's identity is its name (``"bfloat16"``), never NumPy's ``kind`` or ``str``: those read
``"V"`` and ``"<V2"`` for every narrow type.
"""

from __future__ import annotations

import sys
from functools import cache
from re import search
from struct import calcsize
from typing import TYPE_CHECKING, Literal, NamedTuple

from ..errors import LossyCastError, UnsupportedTypeError, shown
from . import names as frameworks

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from .declaration import Declaration

__all__ = [
    "DTYPES",
    "ORDINARY",
    "Check",
    "DType",
    "Kind",
    "Scale",
    "asked",
    "casting_scale",
    "common",
    "exact",
    "find",
    "fit",
    "name_of",
    "width",
]

DEFAULT, FIT = KEYWORDS = ("default", "fit")
"""What ``dtype=`` takes beside dtypes: see `rules.target_dtype`."""
CASTINGS = ("safe", "same_value", "same_kind", "unsafe")
Kind = Literal["bool", "uint", "int", "float", "complex"]
KINDS: tuple[Kind, ...] = ("bool", "uint", "int", "float", "complex")
Check = Literal["", "value", "number", "finite"]
"""What a cast looks at each value for: see `casts.check_values`."""
_ROUNDS = frozenset({"nan", "negative", "zero"})
"""What a float needs so that every number, infinity and NaN can be rounded to it."""


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
        """Bytes of which the address of an element is a multiple, as C has it."""
        return self.itemsize // 2 if self.kind == "complex" else self.itemsize


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
"""Every dtype that tensorferry carries, by its canonical name."""

ORDINARY = frozenset(
    {
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    }
)
"""Those that NumPy has by itself; the others it has from ml_dtypes."""


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
_OTHER_ORDER = ">" if sys.byteorder == "little" else "<"

_OTHERWISE = {
    "float": ("float32", "float64"),
    "int": ("int32", "int64"),
    "complex": ("complex64", "complex128"),
}
"""Words that mean one thing to Python and NumPy, and may mean another width behind a framework's name."""


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
        name = dtype if dtype in DTYPES else _meant(dtype)
    elif isinstance(dtype, type):
        name = _of_class(dtype)
    elif is_dtype:  # nothing else is asked for its name: a tensor could wait for a device
        said = getattr(dtype, "name", None) or str(dtype).rpartition(".")[2]
        name = _meant(said) if isinstance(said, str) else None
    if name is not None:
        return name
    raise UnsupportedTypeError(
        f"{repr(dtype) if is_dtype else shown(dtype)} is not a dtype that tensorferry carries.", _nearest(dtype)
    )


def _of_class(kind: type) -> str | None:
    """The dtype that a class means to Python, or to NumPy, which is there if the class is one of those it knows."""
    if kind in _PYTHONS:
        return _PYTHONS[kind]
    numpy = sys.modules.get("numpy")
    try:
        name = None if numpy is None else numpy.dtype(kind).name
    except TypeError:
        return None
    return name if name in DTYPES else None


_PYTHONS: dict[type, str] = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}


def asked(dtype: object) -> str | None:
    """What ``dtype=`` asks of one tensor: a canonical name, one of `KEYWORDS`, or ``None``.

    Raises:
        UnsupportedTypeError: As for `name_of`; or it asks for an order of bytes that is not the machine's.
    """
    if dtype is None or (isinstance(dtype, str) and dtype in KEYWORDS):
        return dtype
    name = name_of(dtype)
    if not isinstance(dtype, str) and getattr(dtype, "isnative", True) is False:
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
        if text[0] != _OTHER_ORDER or find(name).itemsize == 1:
            return name
        raise _in_the_other_order(text, name)
    if last in DTYPES:
        return last
    if not prefix and last in _CODES:
        return _CODES[last]
    meanings = _WORDS.get(word, (word,) if word in DTYPES else ())
    if len(meanings) > 1:
        raise _ambiguous(text, meanings)
    return meanings[0] if meanings else None


def _in_the_other_order(dtype: object, name: str) -> UnsupportedTypeError:
    return UnsupportedTypeError(
        f"{dtype!r} asks for bytes in the other order, and results are in the machine's.", f'dtype="{name}"'
    )


def _ambiguous(text: str, meanings: tuple[str, ...]) -> UnsupportedTypeError:
    carried = [name for name in meanings if name in DTYPES]
    absent = [name for name in meanings if name not in DTYPES]
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
        words = {name: (name,) for name in (*DTYPES, *KEYWORDS)} | _WORDS
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
    # Outside packages are looked up if need be.
    first, registry = prefix.partition(".")[0], frameworks.registry
    return _is_module_of(first, registry.known()) or _is_module_of(first, registry.found())


def _is_module_of(first: str, among: Mapping[str, Declaration]) -> bool:
    modules = {module: each for each in list(among.values()) if each.module != "builtins" for module in each.owns}
    lines = {name: line for each in modules.values() for name, line in each.imports.items()}
    imported = lines.get(first, "").removeprefix("import ").partition(" ")[0]
    return first in modules or imported.partition(".")[0] in modules


def find(name: str) -> DType:
    """The table's row of a canonical name."""
    return DTYPES[name]


@cache
def exact(source: str, target: str) -> bool:
    """Whether every value of one dtype is a value of the other.

    >>> exact("bfloat16", "float32"), exact("float16", "bfloat16"), exact("int64", "float64")
    (True, False, False)
    """
    if source == target:
        return True
    a, b = DTYPES[source], DTYPES[target]
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
    check: Check


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
    a, b = DTYPES[source], DTYPES[target]
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
    holders = [row for row in DTYPES.values() if all(exact(name, row.name) for name in found)]
    if not holders:
        listed = ", ".join(sorted(found))
        raise LossyCastError(f"No dtype holds every value of {listed}.", "convert the parts to one dtype first")
    return min(holders, key=lambda row: (row.itemsize, KINDS.index(row.kind), row.precision)).name
