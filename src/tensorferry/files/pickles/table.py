"""The closed table: what the names and calls of Python and NumPy in a pickle mean.

Nothing is imported for them.
"""

from __future__ import annotations

import datetime as dt
import re
import uuid
from abc import ABC, abstractmethod
from fractions import Fraction
from math import prod
from pathlib import PurePath, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.dtypes import DTYPES
from ...host.numpy_dtypes import numpy_dtype, of_numpy
from ..base.contents import NotTensor
from ..base.objects import escaped
from .machine import Global, Ordered, UnreadBytes
from .standins import ArrayOf, DTypeOf, InstanceOf, KeptOf, VocabularyPart

if TYPE_CHECKING:
    from collections.abc import Callable

    from .machine import Vocabulary

__all__ = [
    "FACTORIES",
    "NUMPY_CALLS",
    "ODD",
    "PYTHON_CALLS",
    "TABLE_CALLS",
    "VALUES",
    "NumPyWords",
    "PythonWords",
    "public_name",
    "set_uuid",
]

FACTORIES = frozenset(
    f"builtins.{name}" for name in ("dict", "list", "set", "tuple", "int", "float", "str", "bool")
)
"""The allowed default factories of a ``defaultdict``."""


_ENTRY = 64
"""About the bytes that an entry of a dict or set takes."""


class PythonWords(VocabularyPart, ABC):
    """The meaning of Python's names."""

    allow: frozenset[str] = frozenset()

    @abstractmethod
    def call(self, function: Any, arguments: Any, keywords: Any = None) -> Any:
        """See `Vocabulary`."""

    def reconstructed(self, kind: Any, base: Any, state: Any) -> Any:
        """``copyreg._reconstructor(kind, base, state)``: an object in protocols 0 and 1."""
        return self._made(kind, () if base == Global("builtins.object") else (state,))

    def made_new(self, kind: Any, *arguments: Any) -> Any:
        """``copyreg.__newobj__(kind, …)``: an object in protocols 0 and 1."""
        return self._made(kind, arguments)

    def made_with(self, kind: Any, arguments: Any, keywords: Any) -> Any:
        """``copyreg.__newobj_ex__(kind, arguments, keywords)``."""
        return self._made(kind, arguments, keywords)

    def _made(self, kind: Any, arguments: Any, keywords: Any = None) -> Any:
        if type(kind) is not Global or kind.name.startswith("copyreg."):
            raise self.wrong("makes an object of what is no class")
        return self.call(kind, arguments, keywords)

    def ordered(self, pairs: Any = ()) -> Ordered:
        """``OrderedDict(pairs)``."""
        made = Ordered()
        self._put(made, pairs)
        return made

    def defaulting(self, factory: Any = None, pairs: Any = ()) -> Any:
        """``defaultdict(factory, pairs)``.

        With an allowed factory it is an object, whose factory is only named.
        """
        if type(factory) is InstanceOf or (
            type(factory) is Global and factory.name in self.allow - FACTORIES
        ):
            instance = InstanceOf("collections.defaultdict", (factory,), is_told=True)
            self._put(instance.entries, pairs)
            return instance
        if type(factory) is Global and factory.name not in FACTORIES:
            return self.refuse_call(factory.name, (pairs,))
        if factory is not None and type(factory) is not Global:
            raise self.wrong("has a defaultdict of what is no builtin type")
        made = Ordered("" if factory is None else factory.name.removeprefix("builtins."))
        self._put(made, pairs)
        return made

    def _put(self, made: dict[Any, Any], pairs: Any) -> None:
        if type(pairs) not in (list, tuple):
            raise self.wrong("has a dict of what are no pairs")
        self.spend(_ENTRY * len(pairs))
        for pair in pairs:
            if type(pair) not in (list, tuple) or len(pair) != 2 or not self.keys.takes(pair[0]):
                raise self.wrong("has a dict of what are no pairs")
            made[pair[0]] = pair[1]

    def set_of(self, values: Any = ()) -> set[Any]:
        """``set(values)``."""
        return set(self._elements(values))

    def frozenset_of(self, values: Any = ()) -> frozenset[Any]:
        """``frozenset(values)``."""
        return frozenset(self._elements(values))

    def _elements(self, values: Any) -> Any:
        if type(values) not in (list, tuple, set):
            raise self.wrong("has a set of what are no plain values")
        self.spend(_ENTRY * len(values))
        if not all(map(self.keys.takes, values)):
            raise self.wrong("has a set of what are no plain values")
        return values

    def complex_of(self, real: Any, imaginary: Any = 0.0) -> complex:
        """``complex(real, imaginary)``."""
        if type(real) not in (int, float) or type(imaginary) not in (int, float):
            raise self.wrong("has a complex number of no numbers")
        return complex(real, imaginary)

    def encoded(self, text: Any, encoding: Any = "latin1") -> bytes:
        """``_codecs.encode(text, encoding)``: bytes in protocol 2."""
        if (
            type(text) is not str
            or type(encoding) is not str
            or encoding.replace("-", "") not in ("latin1", "ascii")
        ):
            raise self.wrong("has bytes in an unknown encoding")
        self.spend(len(text))
        return text.encode("latin-1")

    def bytes_of(self) -> bytes:
        """``bytes()``: empty bytes in protocol 2."""
        return b""

    def bytearray_of(self, raw: Any = b"", encoding: Any = "latin1") -> bytearray | UnreadBytes:
        """``bytearray(text, encoding)``, or of bytes."""
        if type(raw) is UnreadBytes:
            return raw._replace(kind=bytearray)
        if type(raw) in (bytes, bytearray):
            content = raw
        else:
            content = self.encoded(raw, encoding)
        self.spend(len(content))
        return bytearray(content)


PYTHON_CALLS: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": PythonWords.ordered,
    "collections.defaultdict": PythonWords.defaulting,
    "builtins.set": PythonWords.set_of,
    "builtins.frozenset": PythonWords.frozenset_of,
    "builtins.complex": PythonWords.complex_of,
    "builtins.bytes": PythonWords.bytes_of,
    "builtins.bytearray": PythonWords.bytearray_of,
    "_codecs.encode": PythonWords.encoded,
    "copyreg._reconstructor": PythonWords.reconstructed,
    "copyreg.__newobj__": PythonWords.made_new,
    "copyreg.__newobj_ex__": PythonWords.made_with,
}
"""The functions of Python that pickles of data name, and their replacements."""


_MOST_AXES = 64
_MOST_BYTES = 1 << 63
_NUMPY_CODE = re.compile(
    r"\?|b1|[iu][1248]|f(?:2|4|8|12|16)|c(?:8|16|24|32)|[SU][0-9]{1,6}|[mM]8|O8?|V[0-9]{1,6}"
)


class NumPyWords(PythonWords):
    """The meaning of NumPy's names.

    See https://numpy.org/doc/stable/reference/generated/numpy.ndarray.__reduce__.html.
    """

    array_kind = "array"
    """What an array is called in a `Ref`: beside tensors of PyTorch, it has to stay an array."""

    def dtype_of(self, code: Any, *_: Any) -> DTypeOf:
        """``numpy.dtype(code, …)``."""
        if type(code) is Global:
            name = code.name.removeprefix("ml_dtypes.")
        else:
            name = ""
        if name in DTYPES:
            dtype = numpy_dtype(name)
            return DTypeOf(dtype, dtype.itemsize)
        if type(code) is not str or not _NUMPY_CODE.fullmatch(code.lstrip("<>=|")):
            raise self.wrong(
                "has a dtype of NumPy that is unknown: "
                f"{str(code)[:50] if type(code) is str else '?'}"
            )
        plain = code.lstrip("<>=|")
        if plain[0] == "O":
            itemsize = 0
        else:
            itemsize = np.dtype(code).itemsize
        return DTypeOf(None if plain[0] in "OV" else np.dtype(code), itemsize)

    def set_order(self, instance: DTypeOf, state: Any) -> None:
        """The state of a dtype: its byte order, and the unit of times."""
        if (
            type(state) is not tuple
            or len(state) < 5
            or type(state[1]) is not str
            or len(state[1]) != 1
        ):
            raise self.wrong("has a dtype of NumPy with a state that is unknown")
        if any(field is not None for field in state[2:5]) or instance.numpy is None:
            instance.numpy = None
        elif state[1] in "<>":
            instance.numpy = instance.numpy.newbyteorder("<" if state[1] == "<" else ">")
        if len(state) > 8 and instance.numpy is not None and instance.numpy.kind in "mM":
            instance.numpy = _timed(instance.numpy, state[8])

    def array_of(self, kind: Any, *_: Any) -> ArrayOf:
        """``_reconstruct(ndarray, …)``: an array, whose state follows."""
        if type(kind) is not Global or kind.name not in {"numpy.ndarray", *self.allow}:
            raise self.wrong("has an array of NumPy of no known class")
        return ArrayOf(self.array_kind)

    def fill_array(
        self,
        array: ArrayOf,
        _version: Any,
        shape: Any,
        dtype: Any,
        fortran: Any = False,
        raw: Any = None,
    ) -> None:
        """The state of an array: its shape, dtype, order and bytes."""
        self._fill(array, raw, dtype, shape, fortran is True or fortran == 1)

    def array_from_buffer(
        self, raw: Any, dtype: Any, shape: Any, order: Any = "C", *_: Any
    ) -> ArrayOf:
        """``_frombuffer(raw, dtype, shape, order)``: an array in protocol 5."""
        return self._fill(
            ArrayOf(self.array_kind), raw, dtype, shape, type(order) is str and order == "F"
        )

    def scalar_of(self, dtype: Any, raw: Any = None) -> Any:
        """``scalar(dtype, raw)``."""
        made = self._fill(ArrayOf("scalar"), raw, dtype, (), False)
        if (
            type(raw) is bytes
            and made.reason
            and dtype.numpy is not None
            and dtype.numpy.kind in "mMSU"
        ):
            return np.frombuffer(raw, dtype.numpy)[0]
        return made

    def _fill(self, array: ArrayOf, raw: Any, dtype: Any, shape: Any, fortran: bool) -> ArrayOf:
        if (
            type(dtype) is not DTypeOf
            or type(shape) is not tuple
            or not all(type(n) is int and n >= 0 for n in shape)
        ):
            raise self.wrong("has an array of NumPy without a shape or dtype")
        if dtype.numpy is None:
            array.reason = "it is an array of objects or records"
            if shape == () and type(raw) is list and len(raw) == 1 and not dtype.itemsize:
                array.alone = raw
            return array
        if type(raw) is str:
            raw = self.encoded(raw)  # bytes of Python 2
        nbytes = -1
        if type(raw) is UnreadBytes:
            nbytes = raw.nbytes
        elif type(raw) in (bytes, bytearray):
            nbytes = len(raw)
        if prod(shape) * dtype.numpy.itemsize != nbytes or len(shape) > _MOST_AXES:
            raise self.wrong(
                "has an array of NumPy of shape "
                f"{list(shape[:_MOST_AXES])} that its bytes do not fit"
            )
        if prod(length or 1 for length in shape) * dtype.numpy.itemsize >= _MOST_BYTES:
            array.reason = f"its shape {list(shape)} is larger than that of any array"
            return array
        if of_numpy(dtype.numpy) is None:
            why = f"its dtype is {dtype.numpy}, which has no counterpart"
            if dtype.numpy.kind in "SU":
                array.reason = NotTensor(why)
            else:
                array.reason = why
        elif type(raw) is UnreadBytes:
            array.placed = raw.start, dtype.numpy, shape, fortran
        else:
            held: Any = raw
            values = np.frombuffer(held, dtype.numpy).astype(
                dtype.numpy.newbyteorder("="), copy=False
            )
            array.values = values.reshape(shape, order="F" if fortran else "C")
        return array


def _timed(dtype: np.dtype[Any], metadata: Any) -> np.dtype[Any] | None:
    told = type(metadata) is tuple and len(metadata) == 2 and type(metadata[1]) is tuple
    unit: tuple[Any, ...] = metadata[1][:2] if told else ()
    name = unit[0] if unit else None
    if len(unit) == 2 and type(name) is bytes:
        name = name.decode("ascii")
    if type(name) is not str or type(unit[1]) is not int or not re.fullmatch("[a-zA-Z]{1,7}", name):
        return None
    if name != "generic":
        return np.dtype(f"{dtype.str[:3]}[{unit[1]}{name}]")
    return dtype


_CALLS: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("multiarray._reconstruct", NumPyWords.array_of),
    ("multiarray.scalar", NumPyWords.scalar_of),
    ("numeric._frombuffer", NumPyWords.array_from_buffer),
)
NUMPY_CALLS: dict[str, Callable[..., Any]] = {"numpy.dtype": NumPyWords.dtype_of}
NUMPY_CALLS |= {
    f"numpy.{core}.{name}": function for core in ("core", "_core") for name, function in _CALLS
}
"""The functions of NumPy (before and since 2.0) that data pickles name, and replacements."""


ODD: Any = object()
"""A row's answer to a call in another form than data has: the name is as unknown as any other."""

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


def public_name(name: str) -> str:
    """The name of a class as a person writes it, in every release of Python."""
    return name.removeprefix("builtins.").replace("pathlib._local.", "pathlib.")


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
    return names.kept(str(_PATHS[kind](*parts)), public_name(kind))


def _each_path(kind: str) -> Callable[..., Any]:
    return lambda names, *parts: _path(names, kind, parts)


def _raw(raw: Any, length: int) -> bytes | None:
    """The bytes in the pickle of a date or time."""
    if type(raw) is bytes and len(raw) == length:
        return raw
    return None


def _date(names: VocabularyPart, raw: Any) -> Any:
    packed = _raw(raw, 4)
    if packed is None:
        return ODD
    year = int.from_bytes(packed[:2], "big")
    return names.kept(dt.date(year, *packed[2:]).isoformat(), "datetime.date")


def _time(names: VocabularyPart, raw: Any, zone: Any = None) -> Any:
    packed = _raw(raw, 6)
    if packed is None or not _is_zone(zone):
        return ODD
    hour, micros = packed[0], int.from_bytes(packed[3:], "big")
    own = dt.time(hour & 0x7F, packed[1], packed[2], micros, getattr(zone, "value", None))
    return names.kept(own.isoformat(), "datetime.time")


def _moment(names: VocabularyPart, raw: Any, zone: Any = None) -> Any:
    packed = _raw(raw, 10)
    if packed is None or not _is_zone(zone):
        return ODD
    year, micros = int.from_bytes(packed[:2], "big"), int.from_bytes(packed[7:], "big")
    hour, minute, second = packed[4:7]
    zoned = getattr(zone, "value", None)
    own = dt.datetime(year, packed[2] & 0x7F, packed[3], hour, minute, second, micros, zoned)
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
    if name is None:
        own = dt.timezone(offset.value)
    else:
        own = dt.timezone(offset.value, name)
    return names.kept(str(own), "datetime.timezone", own)


def _decimal(names: VocabularyPart, text: Any) -> Any:
    if type(text) is not str:
        return ODD
    if len(text) > _LONGEST_NUMBER:
        raise names.bomb(f"has a number of {len(text):,} digits")
    if not _DECIMAL.fullmatch(text):
        raise names.wrong("has a Decimal that is no number")
    return names.kept(text, "decimal.Decimal")


def _number_text(names: VocabularyPart, *numbers: Any) -> None:
    """Count the work of making text of integers, which grows with the square of their length.

    Raises:
        UnsafeFileError: It is out of all proportion.
    """
    for number in numbers:
        if type(number) is int:
            names.spend((number.bit_length() >> 4) ** 2)


def _fraction(names: VocabularyPart, above: Any, below: Any = 1) -> Any:
    if type(above) is str and below == 1:
        # Before Python 3.12.
        if len(above) <= _LONGEST_NUMBER:
            match = _FRACTION.fullmatch(above)
        else:
            match = None
        if match:
            above, below = int(match[1]), int(match[2] or 1)
        else:
            above, below = 0, 0
    if type(above) is not int or type(below) is not int:
        return ODD
    if not below:
        raise names.wrong("has a Fraction that is no number")
    _number_text(names, above, below)
    return names.kept(str(Fraction(above, below)), "fractions.Fraction")


def _uuid(_: VocabularyPart, *arguments: Any) -> Any:
    """``UUID.__new__(UUID)``, whose state follows."""
    return ODD if arguments else KeptOf(None, "uuid.UUID")


def set_uuid(names: VocabularyPart, instance: KeptOf, state: Any) -> None:
    """The state of a UUID: its integer.

    Raises:
        FileFormatError: It is not that.
    """
    if type(state) is dict and state.keys() <= {"int", "is_safe"}:
        number = state.get("int")
    else:
        number = None
    if type(number) is not int or not 0 <= number < 1 << 128:
        raise names.wrong("has a UUID without its 128 bits")
    instance.text = str(uuid.UUID(int=number))


def _slice(names: VocabularyPart, *parts: Any) -> Any:
    fits = len(parts) == 3 and all(part is None or type(part) in (int, float) for part in parts)
    if fits:
        _number_text(names, *parts)
        return names.kept(f"slice({', '.join(map(repr, parts))})", "slice")
    return ODD


def _range(names: VocabularyPart, *parts: Any) -> Any:
    if not 1 <= len(parts) <= 3 or not all(type(part) is int for part in parts):
        return ODD
    if parts[2:] == (0,):
        raise names.wrong("has a range whose step is 0")
    _number_text(names, *parts)
    return names.kept(repr(range(*parts)), "range")


def _namespace(kind: str) -> Callable[..., Any]:
    return lambda _, *given: ODD if given else InstanceOf(kind, (), is_told=True)


def _counter(_: VocabularyPart, counts: Any = None) -> Any:
    fits = type(counts) in (dict, type(None))
    if fits:
        return InstanceOf("collections.Counter", (), state=counts or {}, is_told=True)
    return ODD


def _deque(names: VocabularyPart, values: Any = (), length: Any = None) -> Any:
    """A list, whose values may follow."""
    if type(values) not in (list, tuple) or type(length) not in (int, type(None)):
        return ODD
    names.spend(8 * len(values))
    return [*values]


def _jax_array(
    names: Vocabulary, make: Any, arguments: Any, state: Any, about: Any
) -> ArrayOf | Any:
    """``_reconstruct_array(make, arguments, state, about)``: a NumPy array; JAX makes its own."""
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
    if type(value) is Global:
        name = value.name.removeprefix("builtins.")
    else:
        name = ""
    if name in _SINGLETONS:
        return names.kept(_SINGLETONS[name], f"the type {_SINGLETONS[name]}")
    return ODD


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
    texts = [_type_text(names, type_, is_free=is_free) for type_ in given]
    return None if None in texts else texts  # type: ignore[return-value]


def _type_text(names: VocabularyPart, given: Any, *, is_free: bool) -> str | None:
    kind = type(given)
    if kind is Global:
        if given.name == "builtins.Ellipsis":
            return "..."
        return escaped(given.name.removeprefix("builtins."))
    if kind is KeptOf:
        return given.text if given.kind.startswith("the type ") else None
    if kind is list:
        if not any(type(part) is list for part in given):
            inside = _type_texts(names, given)
        else:
            inside = None
        if inside is None:
            return None
        return f"[{', '.join(inside)}]"
    is_short = kind is not str or len(given) <= _LONGEST_TYPE
    if is_free and is_short and (given is None or kind in (str, int, bool)):
        return repr(given)
    return None


_CORES = ("core", "_core")
_NUMPY_MAKE = frozenset(f"numpy.{core}.multiarray._reconstruct" for core in _CORES)

VALUES: dict[str, str] = {
    **{f"builtins.{name}": name for name in (*_BUILTINS, *_SINGLETONS)},
    **{f"typing.{name}": f"typing.{name}" for name in _TYPING},
    **{name: _own_name(name) for name in (f"numpy.{word}" for word in _NUMPY)},
    **{name: _own_name(name) for name in (f"ml_dtypes.{word}" for word in _ML_DTYPES)},
    **{name: _own_name(name) for name in (f"jax.numpy.{word}" for word in _JAX)},
    **{name: public_name(name) for name in _PATHS},
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
