"""Find the canonical name of a dtype that is given as a name, a type or an object."""

from __future__ import annotations

import sys
from struct import calcsize
from typing import TYPE_CHECKING

from .. import hints
from ..errors import UnsupportedTypeError, shown
from ..hints import Hint
from . import names
from .dtypes import DTYPES, KEYWORDS, ORDINARY, find

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .declaration import Declaration

__all__ = ["asked_dtype", "convertible_dtypes", "meanings_of", "name_of"]

_LONG = f"int{8 * calcsize('l')}"
"""The dtype of C's ``long`` on this machine."""

_WORDS: dict[str, tuple[str, ...]] = {
    "bool_": ("bool",),
    "bf16": ("bfloat16",),
    **dict.fromkeys(("half", "fp16"), ("float16",)),
    **dict.fromkeys(("single", "fp32", "f32"), ("float32",)),
    **dict.fromkeys(("double", "fp64", "f64"), ("float64",)),
    **dict.fromkeys(("csingle", "c64"), ("complex64",)),
    **dict.fromkeys(("cdouble", "c128"), ("complex128",)),
    **dict.fromkeys(("short", "i16"), ("int16",)),
    **dict.fromkeys(("intc", "i32"), ("int32",)),
    **dict.fromkeys(("longlong", "i64"), ("int64",)),
    "ubyte": ("uint8",),
    **dict.fromkeys(("ushort", "u16"), ("uint16",)),
    **dict.fromkeys(("uintc", "u32"), ("uint32",)),
    **dict.fromkeys(("ulonglong", "u64"), ("uint64",)),
    "intp": (f"int{8 * calcsize('P')}",),
    "uintp": (f"uint{8 * calcsize('P')}",),
    "long": tuple({_LONG: "", "int64": ""}),
    "ulong": (f"u{_LONG}",),
    "byte": ("int8", "uint8"),
    # What frameworks give a number by default, or what C has: 32 or 64 bits wide.
    **dict.fromkeys(("int", "int_"), ("int32", "int64")),
    "uint": ("uint32", "uint64"),
    **dict.fromkeys(("float", "float_"), ("float32", "float64")),
    **dict.fromkeys(("complex", "complex_", "cfloat"), ("complex64", "complex128")),
    # NumPy counts bytes; JAX, safetensors and Rust count bits.
    "i8": ("int64", "int8"),
    "u8": ("uint64", "uint8"),
    "f16": ("float16", "float128"),
    # Eight bits are a float in two common ways; what nobody writes otherwise is short for one of
    # them.
    **dict.fromkeys(("fp8", "float8"), ("float8_e4m3fn", "float8_e5m2")),
    **dict.fromkeys(("e4m3", "fp8_e4m3", "f8_e4m3", "f8e4m3"), ("float8_e4m3fn", "float8_e4m3")),
    **dict.fromkeys(("e4m3fn", "fp8_e4m3fn", "f8_e4m3fn", "f8e4m3fn"), ("float8_e4m3fn",)),
    **dict.fromkeys(("e5m2", "fp8_e5m2", "f8_e5m2", "f8e5m2"), ("float8_e5m2",)),
    **dict.fromkeys(("e8m0", "fp8_e8m0", "f8_e8m0", "f8e8m0fnu"), ("float8_e8m0fnu",)),
    **dict.fromkeys(("fp4", "float4", "e2m1", "f4_e2m1", "f4e2m1fn"), ("float4_e2m1fn",)),
}
"""What other words may mean, in upper or lower case. A word with several meanings is refused.

After the name of a framework, `capabilities.Dtypes.words` of the framework wins.
"""

_CODES = {
    "?": "bool",
    "b": "int8",
    "h": "int16",
    "i": "int32",
    "l": _LONG,
    "q": "int64",
    "B": "uint8",
    "H": "uint16",
    "I": "uint32",
    "L": f"u{_LONG}",
    "Q": "uint64",
    "e": "float16",
    "f": "float32",
    "d": "float64",
    "F": "complex64",
    "D": "complex128",
    # The first letter of the kind, and the number of bytes: "f4".
    **{f"{find(name).kind[0]}{find(name).itemsize}": name for name in ORDINARY},
}
"""NumPy's codes, in which upper and lower case differ.

They may follow a sign for the byte order.
"""
_OTHER_ORDER = ">" if sys.byteorder == "little" else "<"


def name_of(dtype: object) -> str:
    """The canonical name of a dtype of any framework, or of a name.

    >>> import numpy as np
    >>> name_of("torch.float"), name_of(np.float32), name_of("half"), name_of(float), name_of("f4")
    ('float32', 'float32', 'float16', 'float64', 'float32')

    After the name of a framework, a name means what it means there. Without it, it must mean the
    same to all: ``"half"`` and ``"bf16"`` do; ``"float"`` and ``"u8"`` do not, and are refused.
    Python's types are the dtypes that NumPy makes of them.

    Args:
        dtype: A name, a NumPy dtype or scalar type, a Python type, or a framework's dtype object.

    Raises:
        UnsupportedTypeError: It is not the name of a supported dtype, or has several meanings; the
            hint has the nearest name, or all of them.
    """
    name: str | None = None
    is_dtype = "dtype" in type(dtype).__name__.lower()
    if isinstance(dtype, str):
        name = dtype if dtype in DTYPES else _meant_dtype(dtype)
    elif isinstance(dtype, type):
        name = _of_class(dtype)
    elif is_dtype:  # only dtypes: `str` of a tensor could wait for a device
        said = getattr(dtype, "name", None) or str(dtype).rpartition(".")[2]
        name = _meant_dtype(said) if isinstance(said, str) else None
    if name is not None:
        return name
    raise UnsupportedTypeError(
        f"{repr(dtype) if is_dtype else shown(dtype)} is not a dtype that tensorferry knows.",
        _hint_of_nearest(dtype),
    )


def _of_class(kind: type) -> str | None:
    """The dtype of a class of Python or of NumPy.

    NumPy is imported already if the class is one of its own.
    """
    if kind in _PYTHONS:
        return _PYTHONS[kind]
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    try:
        dtype = numpy.dtype(kind)
    except (DeprecationWarning, TypeError):
        return None
    if issubclass(kind, numpy.generic) and dtype.type is not kind:
        return None  # before NumPy 2.4, `numpy.floating` and the like become a dtype
    name: str = dtype.name
    return name if name in DTYPES else None


_PYTHONS: dict[type, str] = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}


def asked_dtype(dtype: object) -> str | None:
    """The value of ``dtype=`` for one tensor, as a canonical name, one of `KEYWORDS`, or ``None``.

    Raises:
        UnsupportedTypeError: As for `name_of`; or its byte order is not the machine's.
    """
    if dtype is None or (isinstance(dtype, str) and dtype in KEYWORDS):
        return dtype
    name = name_of(dtype)
    if not isinstance(dtype, str) and getattr(dtype, "isnative", True) is False:
        raise _in_the_other_order(dtype, name)
    return name


def _meant_dtype(text: str) -> str | None:
    """The dtype that a name means; ``None`` if it is not the name of one.

    Raises:
        UnsupportedTypeError: It has several meanings, or its byte order is not the machine's.
    """
    meanings = meanings_of(text)
    if len(meanings) > 1:
        raise _ambiguous_name(text, meanings)
    return meanings[0] if meanings else None


def meanings_of(text: str) -> tuple[str, ...]:
    """The dtypes that a name means to some or others, also one that cannot be converted; or empty.

    >>> meanings_of("torch.float"), meanings_of("float"), meanings_of("text")
    (('float32',), ('float32', 'float64'), ())

    Raises:
        UnsupportedTypeError: Its byte order is not the machine's.
    """
    prefix, _, last = text.rpartition(".")
    framework = _framework_of(prefix) if prefix else None
    if prefix and framework is None:
        return ()
    if not prefix and text[:1] in "<>=|" and (name := _CODES.get(text[1:])) is not None:
        if text[0] != _OTHER_ORDER or find(name).itemsize == 1:
            return (name,)
        raise _in_the_other_order(text, name)
    if last in DTYPES:
        return (last,)
    if not prefix and last in _CODES and last not in _WORDS:
        return (_CODES[last],)
    word = last.lower()
    if framework is not None:
        own = framework.capabilities.dtypes.words
    else:
        own = {}
    return own.get(word) or _WORDS.get(word, (word,) if word in DTYPES else ())


def _in_the_other_order(dtype: object, name: str) -> UnsupportedTypeError:
    return UnsupportedTypeError(
        f"{dtype!r} asks for bytes in the other order, and results are in the machine's.",
        Hint(hints.keyword("dtype", name)),
    )


def _ambiguous_name(text: str, meanings: tuple[str, ...]) -> UnsupportedTypeError:
    absent = [name for name in meanings if name not in DTYPES]
    if absent:
        also = f"; {' and '.join(absent)} cannot be converted"
    else:
        also = ""
    return UnsupportedTypeError(
        f"{text!r} means {' to some and '.join(meanings)} to others{also}.",
        hints.one_of([hints.keyword("dtype", name) for name in convertible_dtypes(meanings)]),
    )


def convertible_dtypes(meanings: Sequence[str]) -> list[str]:
    """Those of several dtypes that can be converted."""
    return [name for name in meanings if name in DTYPES]


def _hint_of_nearest(dtype: object) -> Hint:
    """The hint with the dtype whose name is most like the given one."""
    from difflib import get_close_matches  # here, since only a mistyped name needs it

    if isinstance(dtype, str) and len(dtype) <= _LONGEST:
        written = dtype.rpartition(".")[2].lower()
        words = {name: (name,) for name in (*DTYPES, *KEYWORDS)} | _WORDS
        near = get_close_matches(written, words, n=1, cutoff=_ALIKE)
        if near:
            return Hint(hints.keyword("dtype", words[near[0]][0]))
    return Hint(hints.keyword("dtype", "float32"), ", or the dtype of a tensor")


_LONGEST = 80
"""The longest name, in characters, for which a similar one is searched."""
_ALIKE = 0.7
"""How similar a name must be (`difflib`) to be suggested."""


def _framework_of(prefix: str) -> Declaration | None:
    """The framework whose module or usual short name is the text before a dtype's name."""
    # Outside packages are looked up only if no known framework has the name.
    first = prefix.partition(".")[0]
    return _owner_of(first, names.known()) or _owner_of(first, names.found())


def _owner_of(first: str, among: Mapping[str, Declaration]) -> Declaration | None:
    modules = {
        module: declaration
        for declaration in list(among.values())
        if declaration.module != "builtins"
        for module in declaration.owns
    }
    lines = {
        name: line for declaration in modules.values() for name, line in declaration.imports.items()
    }
    imported = lines.get(first, "").removeprefix("import ").partition(" ")[0]
    return modules.get(first) or modules.get(imported.partition(".")[0])
