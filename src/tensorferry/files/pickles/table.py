"""The closed table of classes and values of Python, NumPy, ml_dtypes and JAX that pickles of data have beside tensors.

Nothing in it is imported because a file names it, and nothing of a file is called. Each row is an
exact name, and what is made of it: a text for a name that stands alone, and for a call a function
here, which checks its arguments. The text is what Python prints. What is not in the table, or is
called in another way, is as unknown as any other name.
"""

from __future__ import annotations

import datetime as dt
import re
import uuid
from fractions import Fraction
from pathlib import PurePath, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any

from ...core.dtypes import DTYPES
from ..base.objects import escaped
from .standins import InstanceOf, KeptOf
from .words import Global

if TYPE_CHECKING:
    from collections.abc import Callable

    from .standins import ArrayOf, VocabularyPart
    from .words import Vocabulary

__all__ = ["ODD", "TABLE_CALLS", "VALUES", "set_uuid"]

ODD: Any = object()
"""What a row gives for a call in another form than data has: then the name is as unknown as any other."""

_BUILTINS = (
    *("bool", "bytearray", "bytes", "complex", "dict", "float", "frozenset", "int", "list"),
    *("object", "range", "set", "slice", "str", "tuple", "type"),
)
_SINGLETONS = {"Ellipsis": "ellipsis", "NotImplemented": "NotImplementedType"}
"""Values that are pickled as their names, and the names of their types."""
_TYPING = (
    *(
        "AbstractSet",
        "Annotated",
        "Any",
        "AnyStr",
        "AsyncGenerator",
        "AsyncIterable",
        "AsyncIterator",
    ),
    *("Awaitable", "BinaryIO", "ByteString", "Callable", "ChainMap", "ClassVar", "Collection"),
    *("Concatenate", "Container", "Coroutine", "Counter", "DefaultDict", "Deque", "Dict", "Final"),
    *("FrozenSet", "Generator", "Generic", "Hashable", "IO", "ItemsView", "Iterable", "Iterator"),
    *("KeysView", "List", "Literal", "LiteralString", "Mapping", "MappingView", "Match"),
    *("MutableMapping", "MutableSequence", "MutableSet", "Never", "NoReturn", "Optional"),
    *("OrderedDict", "Pattern", "Protocol", "Reversible", "Self", "Sequence", "Set", "Sized"),
    *("SupportsAbs", "SupportsBytes", "SupportsComplex", "SupportsFloat", "SupportsIndex"),
    *(
        "SupportsInt",
        "SupportsRound",
        "TextIO",
        "Tuple",
        "Type",
        "TypeGuard",
        "Union",
        "ValuesView",
    ),
)
_NUMPY = (
    *(
        "bool",
        "bool_",
        "bytes_",
        "character",
        "clongdouble",
        "complex64",
        "complex128",
        "complex256",
    ),
    *(
        "complexfloating",
        "datetime64",
        "dtype",
        "flexible",
        "float16",
        "float32",
        "float64",
        "float128",
    ),
    *(
        "floating",
        "generic",
        "inexact",
        "int8",
        "int16",
        "int32",
        "int64",
        "intc",
        "integer",
        "long",
    ),
    *("longdouble", "longlong", "ndarray", "number", "object_", "record", "signedinteger", "str_"),
    *("timedelta64", "uint8", "uint16", "uint32", "uint64", "uintc", "ulong", "ulonglong"),
    *("unsignedinteger", "void"),
)
_ML_DTYPES = (*DTYPES, "int1", "uint1", "bcomplex32", "complex32")
_JAX = (
    *_ML_DTYPES,
    "bool_",
    "complex_",
    "float_",
    "int_",
    "uint",
    "cdouble",
    "csingle",
    "double",
    "single",
)
_SYSTEMS: dict[str, type[PurePath]] = {"Posix": PurePosixPath, "Windows": PureWindowsPath}
_PATHS = {
    f"pathlib.{module}{pure}{system}Path": _SYSTEMS[system]
    for module in ("", "_local.")
    for pure in ("", "Pure")
    for system in ("Posix", "Windows")
}
"""The classes of paths; with `_local` in Python 3.13."""

_MOST_PARTS, _LONGEST_PATH = 10_000, 100_000
_LONGEST_TYPE = 1_000
_LONGEST_NUMBER = 4_000
_DECIMAL = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:E[+-]?[0-9]+)?|[+-]?(?:Infinity|s?NaN[0-9]*)"
)
_FRACTION = re.compile(r"(-?[0-9]+)(?:/([0-9]+))?")


def _own_name(name: str) -> str:
    """The text for a class: the name of a dtype for its scalar type, otherwise its full name."""
    module, _, last = name.rpartition(".")
    if module in ("numpy", "ml_dtypes", "jax.numpy") and last.removesuffix("_") in DTYPES:
        return last.removesuffix("_")
    return last if module == "builtins" else name


# Calls. `names` is the vocabulary.


def _path(names: VocabularyPart, kind: str, parts: tuple[Any, ...]) -> Any:
    if len(parts) > _MOST_PARTS or not all(type(part) is str for part in parts):
        return ODD
    if sum(map(len, parts)) > _LONGEST_PATH:
        raise names.bomb(f"has a path of more than {_LONGEST_PATH:,} characters")
    return names.kept(str(_PATHS[kind](*parts)), kind)


def _each_path(kind: str) -> Callable[..., Any]:
    return lambda names, *parts: _path(names, kind, parts)


def _raw(raw: Any, length: int) -> bytes | None:
    """The bytes in the pickle of a date or time."""
    return raw if type(raw) is bytes and len(raw) == length else None


def _date(names: VocabularyPart, raw: Any) -> Any:
    found = _raw(raw, 4)
    if found is None:
        return ODD
    year = int.from_bytes(found[:2], "big")
    return names.kept(dt.date(year, *found[2:]).isoformat(), "datetime.date")


def _time(names: VocabularyPart, raw: Any, zone: Any = None) -> Any:
    found = _raw(raw, 6)
    if found is None or not _is_zone(zone):
        return ODD
    hour, micros = found[0], int.from_bytes(found[3:], "big")
    own = dt.time(hour & 0x7F, found[1], found[2], micros, getattr(zone, "value", None))
    return names.kept(own.isoformat(), "datetime.time")


def _moment(names: VocabularyPart, raw: Any, zone: Any = None) -> Any:
    found = _raw(raw, 10)
    if found is None or not _is_zone(zone):
        return ODD
    year, micros = int.from_bytes(found[:2], "big"), int.from_bytes(found[7:], "big")
    hour, minute, second = found[4:7]
    zoned = getattr(zone, "value", None)
    own = dt.datetime(year, found[2] & 0x7F, found[3], hour, minute, second, micros, zoned)
    return names.kept(own.isoformat(), "datetime.datetime")


def _is_zone(zone: Any) -> bool:
    return zone is None or (type(zone) is KeptOf and zone.kind == "datetime.timezone")


def _duration(names: VocabularyPart, days: Any = 0, seconds: Any = 0, micros: Any = 0) -> Any:
    if not {type(days), type(seconds), type(micros)} <= {int}:
        return ODD
    own = dt.timedelta(days, seconds, micros)
    return names.kept(str(own), "datetime.timedelta", own)


def _zone(names: VocabularyPart, offset: Any, name: Any = None) -> Any:
    fits = type(offset) is KeptOf and offset.kind == "datetime.timedelta"
    if not fits or type(name) not in (str, type(None)):
        return ODD
    own = dt.timezone(offset.value) if name is None else dt.timezone(offset.value, name)
    return names.kept(str(own), "datetime.timezone", own)


def _decimal(names: VocabularyPart, text: Any) -> Any:
    if type(text) is not str:
        return ODD
    if len(text) > _LONGEST_NUMBER:
        raise names.bomb(f"has a number of {len(text):,} digits")
    if not _DECIMAL.fullmatch(text):
        raise names.wrong("has a Decimal that is no number")
    return names.kept(text, "decimal.Decimal")


def _fraction(names: VocabularyPart, above: Any, below: Any = 1) -> Any:
    if type(above) is str and below == 1:
        # Before Python 3.12.
        found = _FRACTION.fullmatch(above) if len(above) <= _LONGEST_NUMBER else None
        above, below = (int(found[1]), int(found[2] or 1)) if found else (0, 0)
    if type(above) is not int or type(below) is not int:
        return ODD
    if not below:
        raise names.wrong("has a Fraction that is no number")
    return names.kept(str(Fraction(above, below)), "fractions.Fraction")


def _uuid(_: VocabularyPart, *arguments: Any) -> Any:
    """``UUID.__new__(UUID)``, whose state follows."""
    return ODD if arguments else KeptOf(None, "uuid.UUID")


def set_uuid(names: VocabularyPart, instance: KeptOf, state: Any) -> None:
    """The state of a UUID: its integer.

    Raises:
        FileFormatError: It is not that.
    """
    number = (
        state.get("int") if type(state) is dict and state.keys() <= {"int", "is_safe"} else None
    )
    if type(number) is not int or not 0 <= number < 1 << 128:
        raise names.wrong("has a UUID without its 128 bits")
    instance.text = str(uuid.UUID(int=number))


def _slice(names: VocabularyPart, *parts: Any) -> Any:
    fits = len(parts) == 3 and all(part is None or type(part) in (int, float) for part in parts)
    return names.kept(f"slice({', '.join(map(repr, parts))})", "slice") if fits else ODD


def _range(names: VocabularyPart, *parts: Any) -> Any:
    if not 1 <= len(parts) <= 3 or not all(type(part) is int for part in parts):
        return ODD
    if parts[2:] == (0,):
        raise names.wrong("has a range whose step is 0")
    return names.kept(repr(range(*parts)), "range")


def _namespace(kind: str) -> Callable[..., Any]:
    return lambda _, *given: ODD if given else InstanceOf(kind, (), is_told=True)


def _counter(_: VocabularyPart, counts: Any = None) -> Any:
    fits = type(counts) in (dict, type(None))
    return InstanceOf("collections.Counter", (), state=counts or {}, is_told=True) if fits else ODD


def _deque(names: VocabularyPart, values: Any = (), length: Any = None) -> Any:
    """A list, whose values may follow."""
    if type(values) not in (list, tuple) or type(length) not in (int, type(None)):
        return ODD
    names.spend(8 * len(values))
    return [*values]


def _jax_array(
    names: Vocabulary, make: Any, arguments: Any, state: Any, about: Any
) -> ArrayOf | Any:
    """``_reconstruct_array(make, arguments, state, about)``: an array of NumPy, of which JAX makes its own."""
    fits = type(make) is Global and make.name in _NUMPY_MAKE and type(about) is dict
    if not fits or type(state) is not tuple or len(state) != 5:
        return ODD
    made: ArrayOf = names.call(make, arguments)
    names.build(made, state)
    made.kind = "tensor"
    return made


# Types.


def _type_of(names: VocabularyPart, *given: Any) -> Any:
    """``type(None)`` and the like."""
    (value,) = given if len(given) == 1 else ("",)
    if value is None:
        return names.kept("NoneType", "the type NoneType")
    name = value.name.removeprefix("builtins.") if type(value) is Global else ""
    return (
        names.kept(_SINGLETONS[name], f"the type {_SINGLETONS[name]}")
        if name in _SINGLETONS
        else ODD
    )


def _subscripted(names: VocabularyPart, outer: Any, inner: Any) -> Any:
    """``operator.getitem(typing.List, int)``: ``typing.List[int]``."""
    if (
        type(outer) is not Global
        or outer.name.partition(".")[0] != "typing"
        or outer.name not in VALUES
    ):
        return ODD
    # A tuple stands for several; but for `typing.Callable`, the first is a list.
    given = inner if type(inner) is tuple else (inner,)
    # `typing.Tuple[()]` before Python 3.11.
    given = () if given == ((),) else given
    free = outer.name in ("typing.Literal", "typing.Annotated")
    texts = _type_texts(names, given, is_free=free)
    if texts is None:
        return ODD
    if outer.name == "typing.Union" and len(texts) == 2 and "NoneType" in texts:
        return _type(
            names, f"typing.Optional[{next(text for text in texts if text != 'NoneType')}]"
        )
    return _type(names, f"{outer.name}[{', '.join(texts) or '()'}]")


def _generic(names: VocabularyPart, outer: Any, inner: Any) -> Any:
    """``types.GenericAlias(list, (int,))``: ``list[int]``."""
    given = inner if type(inner) is tuple else (inner,)
    own, texts = _type_texts(names, (outer,)), _type_texts(names, given)
    if type(outer) is not Global or own is None or texts is None:
        return ODD
    return _type(names, f"{own[0]}[{', '.join(texts) or '()'}]")


def _united(names: VocabularyPart, function: Any, given: Any) -> Any:
    """``functools.reduce(operator.or_, (int, str))``: ``int | str``."""
    fits = function in (Global("_operator.or_"), Global("operator.or_")) and type(given) is tuple
    texts = _type_texts(names, given) if fits else None
    if not texts:
        return ODD
    return _type(names, " | ".join("None" if text == "NoneType" else text for text in texts))


def _type(names: VocabularyPart, text: str) -> KeptOf:
    if len(text) > _LONGEST_TYPE:
        raise names.bomb(f"describes a type with more than {_LONGEST_TYPE:,} characters")
    return names.kept(text, f"the type {text.partition('[')[0]}")


def _type_texts(names: VocabularyPart, given: Any, *, is_free: bool = False) -> list[str] | None:
    """The texts of types; ``None`` if something else is among them.

    Args:
        names: The vocabulary.
        given: The types.
        is_free: Whether plain values may be among them.
    """
    if len(given) > _LONGEST_TYPE:
        return None
    found = [_type_text(names, each, is_free=is_free) for each in given]
    return None if None in found else found  # type: ignore[return-value]


def _type_text(names: VocabularyPart, given: Any, *, is_free: bool) -> str | None:
    kind = type(given)
    if kind is Global:
        if given.name == "builtins.Ellipsis":
            return "..."
        return escaped(given.name.removeprefix("builtins."))
    if kind is KeptOf:
        return given.text if given.kind.startswith("the type ") else None
    if kind is list:
        inside = (
            _type_texts(names, given) if not any(type(each) is list for each in given) else None
        )
        return None if inside is None else f"[{', '.join(inside)}]"
    is_short = kind is not str or len(given) <= _LONGEST_TYPE
    return (
        repr(given)
        if is_free and is_short and (given is None or kind in (str, int, bool))
        else None
    )


_CORES = ("core", "_core")
_NUMPY_MAKE = frozenset(f"numpy.{core}.multiarray._reconstruct" for core in _CORES)

VALUES: dict[str, str] = {
    **{f"builtins.{name}": name for name in (*_BUILTINS, *_SINGLETONS)},
    **{f"typing.{name}": f"typing.{name}" for name in _TYPING},
    **{name: _own_name(name) for name in (f"numpy.{each}" for each in _NUMPY)},
    **{name: _own_name(name) for name in (f"ml_dtypes.{each}" for each in _ML_DTYPES)},
    **{name: _own_name(name) for name in (f"jax.numpy.{each}" for each in _JAX)},
    **{name: name for name in _PATHS},
    **{
        f"datetime.{name}": f"datetime.{name}"
        for name in ("date", "datetime", "time", "timedelta", "timezone")
    },
    **{name: name for name in ("decimal.Decimal", "fractions.Fraction", "uuid.UUID")},
    **{name: name for name in ("argparse.Namespace", "types.SimpleNamespace")},
    **{
        f"collections.{name}": f"collections.{name}"
        for name in ("Counter", "OrderedDict", "defaultdict", "deque")
    },
}
"""What a name is as text, where it stands alone."""

TABLE_CALLS: dict[str, Callable[..., Any]] = {
    **{kind: _each_path(kind) for kind in _PATHS},
    "datetime.date": _date,
    "datetime.time": _time,
    "datetime.datetime": _moment,
    "datetime.timedelta": _duration,
    "datetime.timezone": _zone,
    "decimal.Decimal": _decimal,
    "fractions.Fraction": _fraction,
    "uuid.UUID": _uuid,
    "builtins.slice": _slice,
    "builtins.range": _range,
    "builtins.type": _type_of,
    "argparse.Namespace": _namespace("argparse.Namespace"),
    "types.SimpleNamespace": _namespace("types.SimpleNamespace"),
    "collections.Counter": _counter,
    "collections.deque": _deque,
    "_operator.getitem": _subscripted,
    "operator.getitem": _subscripted,
    "types.GenericAlias": _generic,
    "_functools.reduce": _united,
    "functools.reduce": _united,
    "jax._src.array._reconstruct_array": _jax_array,
    "jax._src.device_array.reconstruct_device_array": _jax_array,
}
"""What is called, and what makes its result."""
