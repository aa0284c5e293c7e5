"""The names of Python in pickles of data: containers, numbers, bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from .standins import InstanceOf, VocabularyPart
from .words import Global, Ordered, UnreadBytes

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FACTORIES", "PYTHON_CALLS", "PythonWords"]

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
        found = raw if type(raw) in (bytes, bytearray) else self.encoded(raw, encoding)
        self.spend(len(found))
        return bytearray(found)


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
