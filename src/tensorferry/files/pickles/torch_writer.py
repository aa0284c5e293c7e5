"""Trees of tensors as the pickles of ``torch.save``, opcode by opcode: nothing of PyTorch or NumPy is imported for it.

Protocol 2, with the opcodes and names that ``torch.load(weights_only=True)`` accepts
(https://docs.pytorch.org/docs/stable/notes/serialization.html#weights-only); arrays and scalars of NumPy are
among those for which it asks for ``torch.serialization.add_safe_globals``, as in files of ``torch.save`` itself.
"""

from __future__ import annotations

import re
import struct
from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import FormatLimitError
from ...host.numpy_dtypes import numpy_dtype
from ..contents import Ref, Special
from ..nesting import DEEPEST

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ..contents import Contents
    from ..pump import Pump
    from ..stored import Stored

__all__ = ["pickled", "refuse_values"]

STORAGE_CLASSES = {
    "float32": "Float",
    "float64": "Double",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "int64": "Long",
    "int32": "Int",
    "int16": "Short",
    "int8": "Char",
    "uint8": "Byte",
    "bool": "Bool",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
}
"""Classes of https://docs.pytorch.org/docs/stable/storage.html; tensors of other dtypes lie in untyped storages."""

_BATCH = 1000
_NUMPY_CODE = re.compile(r"[<>|=]?(?P<code>[a-zA-Z][0-9]*)")


def pickled(contents: Contents, pump: Pump) -> tuple[bytes, list[Stored]]:
    """The pickle of what a file is to hold, and the tensors whose bytes are its storages, in order.

    Args:
        contents: What it is to hold.
        pump: Gives the values of those that were arrays or scalars of NumPy, which stand in the pickle itself.

    Raises:
        FormatLimitError: As for `refuse_values`.
    """
    writer = _Writer(contents, pump)
    writer.write()
    return bytes(writer.out), writer.storages


def refuse_values(contents: Contents) -> None:
    """Refuse what such a pickle cannot hold.

    Raises:
        FormatLimitError: A value in the tree is neither plain nor a container of plain values, an integer takes more
            than 255 bytes, or it nests too deep; the message says where.
    """
    if contents.tree is not None:
        _Writer(contents, None).write()


class _Writer:
    def __init__(self, contents: Contents, pump: Pump | None) -> None:
        self.contents = contents
        self.pump = pump
        self.out = bytearray(b"\x80\x02")
        self.storages: list[Stored] = []
        self.places: dict[Hashable, int] = {}
        self.memo: dict[Hashable, bytes] = {}
        self.count = 0

    def write(self) -> None:
        tree = self.contents.tree
        if tree is None:
            tree = {name: Ref(name) for name in self.contents.tensors}
        self.node(tree, ())
        self.out += b"."

    def node(self, node: Any, keys: tuple[Any, ...]) -> None:
        kind = type(node)
        if len(keys) > DEEPEST:
            raise FormatLimitError(f"The tree nests more than {DEEPEST} levels deep, at {_at(keys[:8])}.")
        handler = _HANDLERS.get(kind)
        if handler is not None:
            handler(self, node, keys)
        elif isinstance(node, np.generic):
            self.scalar(node.dtype, node.tobytes(), keys)
        else:
            raise FormatLimitError(
                f"{_at(keys)} is a {kind.__module__}.{kind.__qualname__}, which no pickle of plain values can hold.",
                "tensors_only=True, which leaves out what is not a tensor",
            )

    # Opcodes.

    def put(self, key: Hashable = None) -> None:
        index, self.count = self.count, self.count + 1
        self.out += b"q" + bytes((index,)) if index < 256 else b"r" + struct.pack("<I", index)
        if key is not None:
            self.memo[key] = b"h" + bytes((index,)) if index < 256 else b"j" + struct.pack("<I", index)

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
                    f"{_at(keys)} is an integer of {len(raw)} bytes; PyTorch reads no more than 255."
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

    def integers(self, numbers: tuple[int, ...]) -> None:
        if not numbers:
            self.out += b")"
            return
        if len(numbers) > 3:
            self.out += b"("
        for each in numbers:
            self.integer(each)
        self.end_tuple(len(numbers))

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
        # In an order that does not change with the hash of strings: equal contents make equal bytes.
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

    def entries(self, node: tuple[Any, ...], keys: tuple[Any, ...]) -> None:
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

    def special(self, node: Special, keys: tuple[Any, ...]) -> None:
        if node.kind == "dtype":
            self.name("torch", str(node.value))
            return
        if node.kind == "size":
            self.name("torch", "Size")
            self.integers(tuple(int(each) for each in node.value))
            self.end_tuple(1)
        elif node.kind == "device":
            kind, _, index = str(node.value).partition(":")
            self.name("torch", "device")
            self.text(kind)
            if index:
                self.integer(int(index))
            self.end_tuple(2 if index else 1)
        elif node.kind == "layout":
            self.name("torch.serialization", "_get_layout")
            self.text(f"torch.{node.value!s}")
            self.end_tuple(1)
        else:
            raise FormatLimitError(f"{_at(keys)} is of a kind, {node.kind}, that PyTorch does not have.")
        self.called()

    # Tensors.

    def ref(self, ref: Ref, _: tuple[Any, ...]) -> None:
        stored = self.contents.tensors[ref.name]
        if ref.kind in ("array", "scalar"):
            self.numpy(ref, stored)
        elif ref.kind in ("storage", "untyped_storage"):
            self.storage(stored, untyped=ref.kind == "untyped_storage" or stored.dtype not in STORAGE_CLASSES)
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
        untyped = stored.dtype not in STORAGE_CLASSES
        self.name("torch._utils", "_rebuild_tensor_v3" if untyped else "_rebuild_tensor_v2")
        self.out += b"("
        self.storage(stored, untyped=untyped)
        self.out += b"K\0"
        self.integers(stored.shape)
        self.integers(_strides(stored.shape))
        self.truth(requires_grad)
        self.ordered()
        if untyped:
            self.name("torch", stored.dtype)
        self.end_tuple(6)
        self.called()

    def storage(self, stored: Stored, *, untyped: bool) -> None:
        # Typed and untyped storages over one memory are refused by torch.save, so they are two here.
        place = self.places.setdefault((stored.key, untyped), len(self.storages))
        if place == len(self.storages):
            self.storages.append(stored)
        self.out += b"("
        self.text("storage")
        if untyped:
            self.name("torch.storage", "UntypedStorage")
        else:
            self.name("torch", f"{STORAGE_CLASSES[stored.dtype]}Storage")
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
        raw = b"" if self.pump is None else np.ascontiguousarray(self.pump.array(stored)).tobytes()
        if ref.kind == "scalar" and not stored.shape:
            self.scalar(dtype, raw, ())
            return
        self.name("numpy._core.multiarray", "_reconstruct")
        self.name("numpy", "ndarray")
        self.integers((0,))
        self.raw(b"b")
        self.end_tuple(3)
        self.called()
        self.out += b"("
        self.integer(1)
        self.integers(stored.shape)
        self.dtype(dtype)
        self.truth(False)
        self.raw(raw)
        self.end_tuple(5)
        self.out += b"b"

    def scalar(self, dtype: np.dtype[Any], raw: bytes, _: tuple[Any, ...]) -> None:
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


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for length in reversed(shape):
        strides.append(step)
        step *= max(length, 1)
    return tuple(reversed(strides))


def _at(keys: tuple[Any, ...]) -> str:
    return ".".join(str(key)[:100] for key in keys) or "The whole"


_HANDLERS: dict[type, Any] = {
    Ref: _Writer.ref,
    Special: _Writer.special,
    str: _Writer.text,
    int: _Writer.integer,
    bool: _Writer.truth,
    float: _Writer.real,
    complex: _Writer.complex_number,
    bytes: _Writer.raw,
    bytearray: _Writer.byte_array,
    type(None): _Writer.nothing,
    dict: _Writer.mapping,
    OrderedDict: _Writer.mapping,
    defaultdict: _Writer.mapping,
    list: _Writer.items,
    tuple: _Writer.entries,
    set: _Writer.elements,
    frozenset: _Writer.elements,
}
