"""Encode trees of values as JSON text, and decode them, bit for bit.

Dicts with strings as keys, lists, strings, ``None``, bools, finite floats and integers of up to 64
bits are plain JSON. Everything else is an object whose key ``"@"`` names its type. A tensor whose
name follows from its path is just ``{"@":"ref"}``.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.dtypes import DTYPES
from ...errors import FileFormatError, FormatLimitError, an
from ...host.numpy_dtypes import numpy_dtype, of_numpy
from .contents import Ref, Special
from .limits import FileHint, InPlace, Keyed, Leaving, in_place_of_scalar
from .nesting import DEEPEST, MOST, Keys, is_taken, names, relabel
from .wording import named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["FACTORIES", "MOST_BITS", "decode", "encode"]

_TAG = "@"
_KINDS = ("tensor", "parameter", "storage", "untyped_storage", "array", "scalar")
FACTORIES: dict[str, Any] = {
    kind.__name__: kind for kind in (dict, list, set, tuple, int, float, str, bool)
}
"""The default factories of a ``defaultdict`` that can be stored, by name."""
MOST_BITS = 8192
"""Of an integer; Python writes no more than 4,300 decimal digits, which is 14,000 bits
(https://docs.python.org/3/library/stdtypes.html#integer-string-conversion-length-limitation)."""
_OTHER_SCALAR = re.compile(r"[<|][mMSU][0-9]{1,6}(\[[0-9]{0,9}[a-zA-Z]{1,7}\])?")
"""NumPy's dtypes of scalars without a canonical name: times, bytes and strings."""


def encode(tree: Any) -> str:
    """A tree as JSON text.

    Raises:
        FormatLimitError: Something in it is neither a plain value nor a container of them, or it is
            nested too deeply; the message says where.
    """
    return json.dumps(_Encoder(tree).node(tree, ()), separators=(",", ":"), allow_nan=False)


def decode(text: str, paths: Sequence[str]) -> Any:
    """Decode a tree from JSON text.

    Args:
        text: The text, which is not trusted.
        paths: The files that it comes from, for messages.

    Raises:
        FileFormatError: It was not made by `encode`.
    """
    try:
        raw = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
        tree = _Decoder().node(raw, 0)
        own = iter(names(tree))
        # `next` is called for every tensor, also for those with a name, so that the others stay in
        # step.
        return relabel(tree, lambda ref: ref._replace(name=_first(ref.name, next(own))))
    except (
        ValueError,
        TypeError,
        KeyError,
        RecursionError,
        OverflowError,
        FormatLimitError,
    ) as error:
        if isinstance(error, RecursionError):
            what = "it nests too deep"
        else:
            what = str(error)
        raise FileFormatError(
            f"The tree that {named(paths)} describes cannot be read: {what}."
        ) from error


def _first(name: str | None, own: str) -> str:
    return own if name is None else name


class _Encoder:
    def __init__(self, tree: Any) -> None:
        self.names = iter(names(tree))
        self.left = MOST

    def node(self, node: Any, keys: tuple[Any, ...]) -> Any:
        """A value of the tree as a JSON value."""
        kind = type(node)
        if kind is str or kind is bool or node is None:
            return node
        if kind is int:
            return (
                node
                if -(1 << 63) <= node < 1 << 64
                else {_TAG: "int", "hex": _hexadecimal(node, keys)}
            )
        if kind is float:
            return (
                node
                if math.isfinite(node)
                else {_TAG: "float", "bits": struct.pack(">d", node).hex()}
            )
        self.left -= 1
        if len(keys) > DEEPEST or self.left < 0:
            raise FormatLimitError(
                f"The tree nests deeper than {DEEPEST} or has more than {MOST} containers, at "
                f"{_at(keys[:8])}.",
                FileHint(Leaving()),
            )
        if kind is Ref:
            return self._ref(node)
        if kind is Special:
            return {
                _TAG: "special",
                "kind": node.kind,
                "value": self.node(node.value, (*keys, node.kind)),
            }
        if kind is list:
            return [self.node(child, (*keys, index)) for index, child in enumerate(node)]
        if kind in (tuple, set, frozenset):
            return {
                _TAG: kind.__name__,
                "items": [self.node(child, (*keys, n)) for n, child in enumerate(node)],
            }
        if kind in (dict, OrderedDict, defaultdict):
            return self._mapping(node, keys)
        if kind in (bytes, bytearray):
            return {_TAG: kind.__name__, "base64": base64.b64encode(node).decode()}
        if kind is complex:
            return {_TAG: "complex", "bits": struct.pack(">dd", node.real, node.imag).hex()}
        if isinstance(node, np.generic):
            return self._scalar(node, keys)
        name = f"{kind.__module__}.{kind.__qualname__}"
        raise FormatLimitError(
            f"{_at(keys)} is {an(name)}, which cannot be kept as JSON beside the tensors.",
            FileHint(InPlace(keys, "str({})")),
        )

    def _ref(self, ref: Ref) -> dict[str, Any]:
        result: dict[str, Any] = {_TAG: "ref"}
        if ref.name != next(self.names):
            result["name"] = ref.name
        if ref.kind != "tensor":
            result["kind"] = ref.kind
        if ref.requires_grad:
            result["requires_grad"] = True
        return result

    def _mapping(self, node: dict[Any, Any], keys: tuple[Any, ...]) -> dict[str, Any]:
        plain = all(type(key) is str for key in node)
        content: Any
        if plain:
            content = {key: self.node(child, (*keys, key)) for key, child in node.items()}
        else:
            content = [
                [self._key(key, keys), self.node(child, (*keys, key))]
                for key, child in node.items()
            ]
        if type(node) is dict and plain and _TAG not in content:
            return content  # type: ignore[no-any-return]
        result = {_TAG: type(node).__name__, "items": content}
        if isinstance(node, defaultdict):
            factory = getattr(node.default_factory, "__name__", None)
            if factory is not None and FACTORIES.get(factory) is not node.default_factory:
                raise FormatLimitError(
                    f"{_at(keys)} makes its missing values by {factory}, which is code."
                )
            result["factory"] = factory
        if getattr(node, "__dict__", None):
            result["attributes"] = self.node(vars(node), (*keys, "__dict__"))
        return result

    def _key(self, key: Any, keys: tuple[Any, ...]) -> Any:
        if type(key) is tuple or key is None or type(key) in (str, int, float, bool, bytes):
            return self.node(key, (*keys, "a key"))
        raise FormatLimitError(
            f"{_at(keys)} has a key that is {an(type(key).__name__)}, which cannot be kept as JSON "
            "beside the tensors.",
            FileHint(Keyed(keys)),
        )

    @staticmethod
    def _scalar(node: Any, keys: tuple[Any, ...]) -> dict[str, Any]:
        dtype = of_numpy(node.dtype) or node.dtype.str
        if dtype not in DTYPES and not _OTHER_SCALAR.fullmatch(dtype):
            raise FormatLimitError(
                f"{_at(keys)} is a NumPy scalar of {node.dtype}, which cannot be kept as JSON "
                "beside the tensors.",
                FileHint(in_place_of_scalar(node, keys)),
            )
        return {_TAG: "numpy", "dtype": dtype, "hex": node.tobytes().hex()}


class _Decoder:
    def __init__(self) -> None:
        self.keys = Keys()
        self.kinds: dict[str, Callable[[dict[str, Any], int], Any]] = {
            "ref": self._ref,
            "special": self._special,
            "tuple": lambda node, depth: tuple(self._items(node, depth)),
            "set": lambda node, depth: set(map(self.validate, self._items(node, depth))),
            "frozenset": lambda node, depth: frozenset(
                map(self.validate, self._items(node, depth))
            ),
            "dict": self._mapping,
            "OrderedDict": self._mapping,
            "defaultdict": self._mapping,
            "bytes": lambda node, _: base64.b64decode(_text(node, "base64"), validate=True),
            "bytearray": lambda node, _: bytearray(
                base64.b64decode(_text(node, "base64"), validate=True)
            ),
            "int": self._integer,
            "float": lambda node, _: struct.unpack(">d", bytes.fromhex(_text(node, "bits")))[0],
            "complex": lambda node, _: complex(
                *struct.unpack(">dd", bytes.fromhex(_text(node, "bits")))
            ),
            "numpy": self._scalar,
        }

    def node(self, node: Any, depth: int) -> Any:
        """A value of the tree from a JSON value."""
        if depth > 2 * DEEPEST:
            raise ValueError(f"it nests deeper than {DEEPEST}")
        if isinstance(node, list):
            return [self.node(child, depth + 1) for child in node]
        if not isinstance(node, dict):
            return node
        if _TAG not in node:
            return {key: self.node(child, depth + 1) for key, child in node.items()}
        kind = self.kinds.get(node[_TAG]) if isinstance(node[_TAG], str) else None
        if kind is None:
            raise ValueError(f"{str(node[_TAG])[:80]!r} is nothing that this version knows")
        try:
            return kind(node, depth)
        except struct.error as error:
            raise ValueError(str(error)) from error

    def _items(self, node: dict[str, Any], depth: int) -> Iterator[Any]:
        if not isinstance(node["items"], list):
            raise TypeError("items are a list")
        return (self.node(child, depth + 1) for child in node["items"])

    def validate(self, key: Any) -> Any:
        """Check a key of a dict, or an element of a set."""
        if not self.keys.are_few(key):
            raise ValueError("many keys were made to have one hash")
        return key

    @staticmethod
    def _integer(node: dict[str, Any], _: int) -> int:
        text = _text(node, "hex")
        value = int(text[:MOST_BITS], 16)
        if len(text) > MOST_BITS or value.bit_length() > MOST_BITS:
            raise ValueError(f"an integer has more than {MOST_BITS} bits")
        return value

    @staticmethod
    def _ref(node: dict[str, Any], _: int) -> Ref:
        name, kind = node.get("name"), node.get("kind", "tensor")
        if not isinstance(name, (str, type(None))) or kind not in _KINDS:
            raise ValueError("a tensor's place has no such name or kind")
        return Ref(name, kind, requires_grad=node.get("requires_grad") is True)  # type: ignore[arg-type]

    def _special(self, node: dict[str, Any], depth: int) -> Special:
        value = self.node(node["value"], depth + 1)
        if not isinstance(value, (str, bytes, list)):
            raise TypeError("a special value is a string, bytes or a list")
        return Special(_text(node, "kind"), value)

    def _mapping(self, node: dict[str, Any], depth: int) -> dict[Any, Any]:
        items = node["items"]
        result: Any = {"dict": dict, "OrderedDict": OrderedDict, "defaultdict": defaultdict}[
            node[_TAG]
        ]()
        if isinstance(result, defaultdict):
            if node["factory"] is None:
                result.default_factory = None
            else:
                result.default_factory = FACTORIES[_text(node, "factory")]
        pairs = (
            items.items()
            if isinstance(items, dict)
            else [(self.node(key, depth + 1), child) for key, child in items]
        )
        for key, child in pairs:
            self.validate(key)
            result[key] = self.node(child, depth + 1)
        if len(result) != len(items):
            raise ValueError("a key stands there twice")
        attributes = self.node(node.get("attributes", {}), depth + 1)
        if any(type(name) is not str or is_taken(name) for name in attributes):
            raise ValueError("an attribute would replace what a dict does")
        if attributes:
            vars(result).update(attributes)
        return result  # type: ignore[no-any-return]

    @staticmethod
    def _scalar(node: dict[str, Any], _: int) -> Any:
        name, raw = _text(node, "dtype"), bytes.fromhex(_text(node, "hex"))
        if name not in DTYPES and not _OTHER_SCALAR.fullmatch(name):
            raise ValueError(f"{name[:80]!r} is no dtype of a scalar")
        if name in DTYPES:
            dtype = numpy_dtype(name)
        else:
            dtype = np.dtype(name)
        if not dtype.itemsize:
            return np.zeros((), dtype)[()]
        if len(raw) != dtype.itemsize:
            raise ValueError(f"a scalar of {name} has {dtype.itemsize} bytes")
        return np.frombuffer(raw, dtype)[0]


def _hexadecimal(node: int, keys: tuple[Any, ...]) -> str:
    if node.bit_length() > MOST_BITS:
        raise FormatLimitError(
            f"{_at(keys)} is an integer of {node.bit_length()} bits; the tree beside the tensors "
            f"holds {MOST_BITS}.",
            FileHint(InPlace(keys, "hex({})")),
        )
    return hex(node)


def _text(node: dict[str, Any], key: str) -> str:
    value = node[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} is a string")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a name stands there twice")
    return result


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _at(keys: tuple[Any, ...]) -> str:
    if keys:
        return ".".join(map(str, keys))
    return "What the file holds"
