"""`PickleWriter`: write plain values as a pickle of protocol 2.

The opcodes and names are those that ``torch.load(weights_only=True)`` accepts
(https://docs.pytorch.org/docs/stable/notes/serialization.html#weights-only).
"""

from __future__ import annotations

import struct
from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING, Any, ClassVar

from ...backends.no_tensor import full_name
from ...errors import FormatLimitError, an
from ..base.file_hints import FileHint, InPlace, Keyed
from ..base.keys import is_plain
from ..base.nesting import DEEPEST

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["PickleWriter", "place_of"]

_BATCH = 1000


class PickleWriter:
    """Writes values, one after the other. `out` is the pickle so far."""

    handlers: ClassVar[dict[type, Any]] = {}
    """The method that writes the values of each type."""

    def __init__(self) -> None:
        self.out = bytearray(b"\x80\x02")
        self.memo: dict[Hashable, bytes] = {}
        self.count = 0

    def node(self, node: Any, keys: tuple[Any, ...]) -> None:
        """Write a value, to which these keys lead.

        Raises:
            FormatLimitError: It is neither plain nor a container of plain values, an integer takes
                more than 255 bytes, or it nests too deep; the message says where.
        """
        if len(keys) > DEEPEST:
            raise FormatLimitError(
                f"The tree nests more than {DEEPEST} levels deep, at {place_of(keys[:8])}."
            )
        handler = self.handlers.get(type(node))
        if handler is not None:
            handler(self, node, keys)
        else:
            self.other(node, keys)

    def other(self, node: Any, keys: tuple[Any, ...]) -> None:
        """Write a value of another type, or raise."""
        kind = f"{type(node).__module__}.{type(node).__qualname__}"
        raise FormatLimitError(
            f"{place_of(keys)} is {an(kind)}, which no pickle of plain values can hold.",
            FileHint(InPlace(keys, "str({})")),
        )

    # Opcodes.

    def put(self, key: Hashable = None) -> None:
        index, self.count = self.count, self.count + 1
        self.out += b"q" + bytes((index,)) if index < 256 else b"r" + struct.pack("<I", index)
        if key is not None:
            self.memo[key] = (
                b"h" + bytes((index,)) if index < 256 else b"j" + struct.pack("<I", index)
            )

    def got(self, key: Hashable) -> bool:
        found = self.memo.get(key)
        if found is None:
            return False
        self.out += found
        return True

    def name(self, module: str, name: str) -> None:
        key = ("global", module, name)
        if not self.got(key):
            self.out += f"c{module}\n{name}\n".encode()
            self.put(key)

    def text(self, node: str, _: tuple[Any, ...] = ()) -> None:
        if not self.got(("text", node)):
            raw = node.encode("utf-8", "surrogatepass")
            self.out += b"X" + struct.pack("<I", len(raw)) + raw
            self.put(("text", node))

    def integer(self, node: int, keys: tuple[Any, ...] = ()) -> None:
        if 0 <= node < 256:
            self.out += b"K" + bytes((node,))
        elif 0 <= node < 65536:
            self.out += b"M" + struct.pack("<H", node)
        elif -(1 << 31) <= node < 1 << 31:
            self.out += b"J" + struct.pack("<i", node)
        else:
            raw = node.to_bytes(node.bit_length() // 8 + 1, "little", signed=True)
            if len(raw) > 255:
                raise FormatLimitError(
                    f"{place_of(keys)} is an integer of {len(raw)} bytes; PyTorch reads no more than 255."
                )
            self.out += b"\x8a" + bytes((len(raw),)) + raw

    def real(self, node: float, _: tuple[Any, ...] = ()) -> None:
        self.out += b"G" + struct.pack(">d", node)

    def truth(self, node: bool, _: tuple[Any, ...] = ()) -> None:
        self.out += b"\x88" if node else b"\x89"

    def nothing(self, _node: None, _: tuple[Any, ...] = ()) -> None:
        self.out += b"N"

    def end_tuple(self, length: int) -> None:
        self.out += {1: b"\x85", 2: b"\x86", 3: b"\x87"}.get(length, b"t")
        self.put()

    def called(self) -> None:
        self.out += b"R"
        self.put()

    # Values.

    def complex_number(self, node: complex, _: tuple[Any, ...] = ()) -> None:
        self.name("__builtin__", "complex")
        self.real(node.real)
        self.real(node.imag)
        self.end_tuple(2)
        self.called()

    def raw(self, node: bytes, _: tuple[Any, ...] = ()) -> None:
        self.name("_codecs", "encode")
        self.text_once(node.decode("latin-1"))
        self.text("latin1")
        self.end_tuple(2)
        self.called()

    def text_once(self, node: str) -> None:
        encoded = node.encode()
        self.out += b"X" + struct.pack("<I", len(encoded)) + encoded
        self.put()

    def byte_array(self, node: bytearray, _: tuple[Any, ...] = ()) -> None:
        self.name("__builtin__", "bytearray")
        self.text_once(node.decode("latin-1"))
        self.text("latin-1")
        self.end_tuple(2)
        self.called()

    def elements(self, node: set[Any] | frozenset[Any], keys: tuple[Any, ...]) -> None:
        self.name("__builtin__", type(node).__name__)
        # In an order that does not change with the hash of strings: equal contents make equal
        # bytes.
        self.items(sorted(node, key=lambda each: (type(each).__name__, repr(each))), keys)
        self.end_tuple(1)
        self.called()

    def items(self, node: list[Any], keys: tuple[Any, ...]) -> None:
        self.out += b"]"
        self.put()
        for start in range(0, len(node), _BATCH):
            batch = node[start : start + _BATCH]
            self.out += b"(" if len(batch) > 1 else b""
            for place, child in enumerate(batch, start):
                self.node(child, (*keys, place))
            self.out += b"e" if len(batch) > 1 else b"a"

    def entries(self, node: tuple[Any, ...], keys: tuple[Any, ...] = ()) -> None:
        if not node:
            self.out += b")"
            return
        if len(node) > 3:
            self.out += b"("
        for place, child in enumerate(node):
            self.node(child, (*keys, place))
        self.end_tuple(len(node))

    def mapping(self, node: dict[Any, Any], keys: tuple[Any, ...]) -> None:
        if type(node) is OrderedDict:
            self.ordered()
        elif isinstance(node, defaultdict):
            self.name("collections", "defaultdict")
            if node.default_factory is None:
                self.out += b")"
            else:
                self.name("__builtin__", node.default_factory.__name__)  # type: ignore[attr-defined, unused-ignore]
                self.end_tuple(1)
            self.called()
        else:
            self.out += b"}"
            self.put()
        items = list(node.items())
        for start in range(0, len(items), _BATCH):
            batch = items[start : start + _BATCH]
            self.out += b"(" if len(batch) > 1 else b""
            for key, child in batch:
                if not is_plain(key):
                    what = f"has a key that is {an(full_name(type(key)))}, with which it would not be read again"
                    raise FormatLimitError(f"{place_of(keys)} {what}.", FileHint(Keyed(keys)))
                self.node(key, (*keys, key))
                self.node(child, (*keys, key))
            self.out += b"u" if len(batch) > 1 else b"s"
        attributes = vars(node) if hasattr(node, "__dict__") else {}
        if attributes:
            self.mapping(dict(attributes), keys)
            self.out += b"b"

    def ordered(self) -> None:
        self.name("collections", "OrderedDict")
        self.out += b")"
        self.called()


def place_of(keys: tuple[Any, ...]) -> str:
    """The path of a value, for a message."""
    return ".".join(str(key)[:100] for key in keys) or "The whole"


PickleWriter.handlers = {
    str: PickleWriter.text,
    int: PickleWriter.integer,
    bool: PickleWriter.truth,
    float: PickleWriter.real,
    complex: PickleWriter.complex_number,
    bytes: PickleWriter.raw,
    bytearray: PickleWriter.byte_array,
    type(None): PickleWriter.nothing,
    dict: PickleWriter.mapping,
    OrderedDict: PickleWriter.mapping,
    defaultdict: PickleWriter.mapping,
    list: PickleWriter.items,
    tuple: PickleWriter.entries,
    set: PickleWriter.elements,
    frozenset: PickleWriter.elements,
}
