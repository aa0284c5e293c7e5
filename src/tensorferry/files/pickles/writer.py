"""Write pickles as PyTorch reads them."""

from __future__ import annotations

import re
import struct
from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ...core.dtypes import DTYPES
from ...core.layout import compact_strides
from ...errors import FormatLimitError, an
from ...host.numpy_dtypes import numpy_dtype, of_numpy
from ..base.contents import NOTHING, Ref, Special
from ..base.limits import FileHint, InPlace, Keyed, in_place_of_scalar
from ..base.nesting import DEEPEST, is_plain
from .torch import ODD_DTYPES, STORAGES

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ..base.contents import Contents
    from ..base.pump import Pump
    from ..base.stored import Stored

__all__ = ["PickleWriter", "pickled", "place_of", "refuse_values"]

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
        if index < 256:
            self.out += b"q" + bytes((index,))
        else:
            self.out += b"r" + struct.pack("<I", index)
        if key is not None:
            if index < 256:
                self.memo[key] = b"h" + bytes((index,))
            else:
                self.memo[key] = b"j" + struct.pack("<I", index)

    def got(self, key: Hashable) -> bool:
        opcode = self.memo.get(key)
        if opcode is None:
            return False
        self.out += opcode
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
                    f"{place_of(keys)} is an integer of {len(raw)} bytes; "
                    "PyTorch reads no more than 255."
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
        self.items(sorted(node, key=lambda element: (type(element).__name__, repr(element))), keys)
        self.end_tuple(1)
        self.called()

    def items(self, node: list[Any], keys: tuple[Any, ...]) -> None:
        self.out += b"]"
        self.put()
        for start in range(0, len(node), _BATCH):
            batch = node[start : start + _BATCH]
            self.out += b"(" if len(batch) > 1 else b""
            for index, child in enumerate(batch, start):
                self.node(child, (*keys, index))
            self.out += b"e" if len(batch) > 1 else b"a"

    def entries(self, node: tuple[Any, ...], keys: tuple[Any, ...] = ()) -> None:
        if not node:
            self.out += b")"
            return
        if len(node) > 3:
            self.out += b"("
        for index, child in enumerate(node):
            self.node(child, (*keys, index))
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
                    what = f"has a key that is {an(_name_of(type(key)))}, with which it would not be read again"
                    raise FormatLimitError(f"{place_of(keys)} {what}.", FileHint(Keyed(keys)))
                self.node(key, (*keys, key))
                self.node(child, (*keys, key))
            self.out += b"u" if len(batch) > 1 else b"s"
        if hasattr(node, "__dict__"):
            attributes = vars(node)
        else:
            attributes = {}
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


_STORAGE_CLASSES = {dtype: kind for kind, dtype in STORAGES.items() if dtype and kind != "Untyped"}
"""The typed storages. Tensors of other dtypes use untyped ones."""
_DEVICE = re.compile(r"[a-z_0-9]{1,50}(?::[0-9]{1,5})?")
_LAYOUT = re.compile(r"[a-z_]{1,50}")
_VALUES = "mMSU"
"""The kinds of NumPy scalars that are times and texts: they stay values, others become tensors."""


def pickled(contents: Contents, pump: Pump) -> tuple[bytes, list[Stored]]:
    """The pickle for contents, and the tensors whose bytes are its storages, in order.

    Args:
        contents: The contents.
        pump: Reads the values of arrays and scalars of NumPy, which are in the pickle itself.
    """
    writer = _TorchWriter(contents, pump)
    writer.write()
    return bytes(writer.out), writer.storages


def refuse_values(contents: Contents) -> None:
    """Raise for values that such a pickle cannot hold.

    Raises:
        FormatLimitError: A value in the tree is neither plain nor a container of plain values, an
            integer takes more than 255 bytes, or the tree is nested too deeply; the message says
            where.
    """
    if contents.tree is not None:
        _TorchWriter(contents, None).write()


def _is_known(node: Special) -> bool:
    """Whether a value of PyTorch is one that a pickle may name.

    Other files tell it as text, which may say anything.
    """
    value = node.value
    if node == NOTHING:
        return True
    if node.kind == "size":
        return type(value) is list and all(type(element) is int for element in value)
    if type(value) is not str:
        return False
    if node.kind == "dtype":
        return value in DTYPES or value in ODD_DTYPES
    form = {"device": _DEVICE, "layout": _LAYOUT}.get(node.kind)
    return form is not None and form.fullmatch(value) is not None


class _TorchWriter(PickleWriter):
    def __init__(self, contents: Contents, pump: Pump | None) -> None:
        super().__init__()
        self.contents = contents
        self.pump = pump
        self.storages: list[Stored] = []
        self.places: dict[Hashable, int] = {}

    def write(self) -> None:
        tree = self.contents.tree
        if tree is None:
            tree = {name: Ref(name) for name in self.contents.tensors}
        self.node(tree, ())
        self.out += b"."

    def other(self, node: Any, keys: tuple[Any, ...]) -> None:
        if not isinstance(node, np.generic):
            super().other(node, keys)
        elif of_numpy(node.dtype) is None and node.dtype.kind not in _VALUES:
            raise FormatLimitError(
                f"{place_of(keys)} is a NumPy scalar of {node.dtype}, "
                "which would not be read again.",
                FileHint(in_place_of_scalar(node, keys)),
            )
        else:
            self.scalar(node.dtype, node.tobytes())

    def special(self, node: Special, keys: tuple[Any, ...]) -> None:
        if not _is_known(node):
            raise FormatLimitError(
                f"{place_of(keys)} is a {node.kind[:50]} that PyTorch does not have: "
                f"{str(node.value)[:50]!r}.",
                FileHint(InPlace(keys, "str({})")),
            )
        if node.kind == "dtype":
            self.name("torch", str(node.value))
            return
        if node == NOTHING:
            self.nothing(None)
            return
        if node.kind == "size":
            self.name("torch", "Size")
            self.entries(tuple(int(length) for length in node.value))
            self.end_tuple(1)
        elif node.kind == "device":
            kind, _, index = str(node.value).partition(":")
            self.name("torch", "device")
            self.text(kind)
            if index:
                self.integer(int(index))
            self.end_tuple(2 if index else 1)
        else:
            self.name("torch.serialization", "_get_layout")
            self.text(f"torch.{node.value!s}")
            self.end_tuple(1)
        self.called()

    # Tensors.

    def ref(self, ref: Ref, _: tuple[Any, ...]) -> None:
        stored = self.contents.tensors[ref.name]
        if ref.kind in ("array", "scalar"):
            self.numpy(ref, stored)
        elif ref.kind in ("storage", "untyped_storage"):
            self.storage(
                stored,
                untyped=ref.kind == "untyped_storage" or stored.dtype not in _STORAGE_CLASSES,
            )
        elif ref.kind == "parameter":
            self.name("torch._utils", "_rebuild_parameter")
            self.out += b"("
            self.tensor(stored, requires_grad=False)
            self.truth(ref.requires_grad)
            self.ordered()
            self.end_tuple(4)
            self.called()
        else:
            self.tensor(stored, requires_grad=ref.requires_grad)

    def tensor(self, stored: Stored, *, requires_grad: bool) -> None:
        untyped = stored.dtype not in _STORAGE_CLASSES
        self.name("torch._utils", "_rebuild_tensor_v3" if untyped else "_rebuild_tensor_v2")
        self.out += b"("
        self.storage(stored, untyped=untyped)
        self.out += b"K\0"
        self.entries(stored.shape)
        self.entries(compact_strides(stored.shape, 1))
        self.truth(requires_grad)
        self.ordered()
        if untyped:
            self.name("torch", stored.dtype)
        self.end_tuple(6)
        self.called()

    def storage(self, stored: Stored, *, untyped: bool) -> None:
        # torch.save refuses a typed and an untyped storage over the same memory, so these are
        # written separately.
        place = self.places.setdefault((stored.key, untyped), len(self.storages))
        if place == len(self.storages):
            self.storages.append(stored)
        self.out += b"("
        self.text("storage")
        if untyped:
            self.name("torch.storage", "UntypedStorage")
        else:
            self.name("torch", f"{_STORAGE_CLASSES[stored.dtype]}Storage")
        if not self.got(("key", place)):
            raw = str(place).encode()
            self.out += b"X" + struct.pack("<I", len(raw)) + raw
            self.put(("key", place))
        self.text("cpu")
        self.integer(stored.nbytes if untyped else stored.size)
        self.end_tuple(5)
        self.out += b"Q"

    def numpy(self, ref: Ref, stored: Stored) -> None:
        dtype = numpy_dtype(stored.dtype)
        if self.pump is None:
            raw = b""
        else:
            raw = np.ascontiguousarray(self.pump.array(stored)).tobytes()
        if ref.kind == "scalar" and not stored.shape:
            self.scalar(dtype, raw)
            return
        self.name("numpy._core.multiarray", "_reconstruct")
        self.name("numpy", "ndarray")
        self.entries((0,))
        self.raw(b"b")
        self.end_tuple(3)
        self.called()
        self.out += b"("
        self.integer(1)
        self.entries(stored.shape)
        self.dtype(dtype)
        self.truth(False)
        self.raw(raw)
        self.end_tuple(5)
        self.out += b"b"

    def scalar(self, dtype: np.dtype[Any], raw: bytes) -> None:
        self.name("numpy._core.multiarray", "scalar")
        self.dtype(dtype)
        self.raw(raw)
        self.end_tuple(2)
        self.called()

    def dtype(self, dtype: np.dtype[Any]) -> None:
        key = ("dtype", dtype.str, dtype.name)
        if self.got(key):
            return
        reduced: Any = dtype.__reduce__()
        _, (code, *flags), *state = reduced
        self.name("numpy", "dtype")
        if isinstance(code, type):
            self.name(code.__module__, code.__qualname__)
        else:
            self.text(code)
        for flag in flags:
            self.truth(bool(flag))
        self.end_tuple(1 + len(flags))
        self.out += b"R"
        self.put(key)
        if state and state[0] is not None:
            self.node(state[0], ())
            self.out += b"b"


_TorchWriter.handlers = {
    **PickleWriter.handlers,
    Ref: _TorchWriter.ref,
    Special: _TorchWriter.special,
}


def _name_of(kind: type) -> str:
    """The name of a type, with its module unless it is a builtin."""
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"
