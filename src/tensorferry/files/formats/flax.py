"""Flax's MessagePack files (`flax.serialization`), without Flax and JAX."""

from __future__ import annotations

from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.dtypes import DTYPES, find
from ...errors import FileFormatError, UnsafeFileError, an
from ...host.numpy_dtypes import numpy_dtype
from ..base.contents import NOTHING, Contents, Ref, Special
from ..base.format import Format
from ..base.limits import FileHint, InPlace, Keyed, text_keys
from ..base.nesting import DEEPEST, MOST, names, relabel
from ..base.raw import mapped, write_fully
from ..base.stored import BLOCK_BYTES, Decoded, Extent, Stored
from ..base.tree_edits import with_scalars
from ..base.wording import as_unicode, is_unicode, named
from ..encodings import msgpack
from ..encodings.array_parts import checked, cuts, filled

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy as np

    from ..base.pump import Pump

__all__ = ["FORMAT"]

_NDARRAY, _COMPLEX, _SCALAR = 1, 2, 3
_CHUNKED = "__msgpack_chunked_array__"
_MOST_CHUNK = 1 << 30
_MOST_TEXT = 1 << 26
_FIRST = frozenset({*range(0x80, 0xA0), *range(0xC7, 0xCA), *range(0xD4, 0xD9), *range(0xDC, 0xE0)})
"""The possible first bytes of a map, an array or an extension."""


class Flax(Format):
    """Flax's msgpack, https://github.com/google/flax/blob/main/flax/serialization.py.

    What is written is what `flax.serialization.to_bytes` writes, so that Flax restores it into a
    template: lists and tuples are dicts of their positions, and all keys are text. Flax compares
    all keys with those of the template, so there is no place for anything else.
    """

    name = "flax"
    title = "Flax msgpack"
    suffixes = (".msgpack",)
    dtypes = frozenset(DTYPES)
    holds_tree = True
    ties = "copy"
    unicode_only = True
    rank = 90

    def recognises(self, path: Path, head: bytes) -> bool:
        return path.name.endswith(self.suffixes) and bool(head) and head[0] in _FIRST

    def is_named(self, path: Path, head: bytes) -> bool:
        # A number or a text alone begins with a byte that files of many other formats have, so the
        # name decides.
        return path.name.endswith(self.suffixes)

    def read(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        size = path.stat().st_size
        if not size:
            raise FileFormatError(f"{path} is empty.")
        contents = Contents(self.name, (str(path),))
        tree = _Tree(str(path), size, contents).read()
        labels = iter(names(tree, _FlaxLeaf))

        def label(leaf: _FlaxLeaf) -> Ref:
            name = next(labels)
            contents.tensors[name] = leaf.stored
            return Ref(name, leaf.kind)

        tree = relabel(tree, label, _FlaxLeaf)
        is_flat = isinstance(tree, dict) and all(
            isinstance(child, Ref) and child == Ref(key) for key, child in tree.items()
        )
        if not is_flat:
            contents.tree = NOTHING if tree is None else tree
        return contents

    def as_held(self, contents: Contents) -> Contents:
        return self._held(contents)[0]

    def changes(self, contents: Contents) -> Iterator[str]:
        changed = self._held(contents)[1]
        if changed:
            parts = (f"{change} ({named(places, 3)})" for change, places in changed.items())
            yield f"{self.title} has another form for some of it: {'; '.join(parts)}."

    def _held(self, contents: Contents) -> tuple[Contents, dict[str, list[str]]]:
        """The contents in Flax's form, and what that does not keep.

        Raises:
            FormatLimitError: A value has no such form, or two keys have the same.
        """
        form = _StateDict()
        contents = with_scalars(contents)
        if contents.tree is not None:
            tree = contents.tree
        else:
            tree = {name: Ref(name) for name in contents.tensors}
        tree = form.node(tree, ())
        self.refuse_any(form.refused, "has no form for these values", FileHint(*form.ways))
        tensors: dict[str, Stored] = {}
        labels = iter(names(tree))

        def label(ref: Ref) -> Ref:
            name, stored = next(labels), contents.tensors[ref.name]
            tensors[name] = stored
            return Ref(name, "tensor" if stored.shape else ref.kind)

        tree = relabel(tree, label)
        return contents._replace(tensors=tensors, tree=tree), form.changed

    def write(self, contents: Contents, path: Path, pump: Pump) -> None:
        with path.open("xb") as file:
            writer = _FlaxWriter(file.fileno(), contents, pump)
            writer.node(self.as_held(contents).tree)
            writer.flush()


class _FlaxLeaf(NamedTuple):
    stored: Stored
    kind: str


class _Tree:
    """The values of a file, with a `_FlaxLeaf` in place of each array."""

    def __init__(self, path: str, size: int, contents: Contents) -> None:
        self._path = path
        self._data = mapped(path)
        self._size = size
        self._others = contents.others
        self._values = 0
        self._text = 0

    def read(self) -> Any:
        reader = msgpack.Reader(self._data, self._path, 0, self._size)
        tree = self._node(reader, ())
        if reader.at != self._size:
            raise FileFormatError(f"{self._path} goes on after its value, at byte {reader.at}.")
        return None if tree is _OTHER else tree

    def _node(self, reader: msgpack.Reader, keys: tuple[str, ...]) -> Any:
        value = reader.next()
        self._values += 1
        if len(keys) > DEEPEST or self._values > MOST:
            raise UnsafeFileError(
                f"{self._path} nests deeper than {DEEPEST} or has more than {MOST} values, at "
                f"{'.'.join(keys[:8])}."
            )
        if isinstance(value, msgpack.Binary):
            return self._plain(reader, value)
        if isinstance(value, msgpack.Array):
            children = [self._node(reader, (*keys, str(index))) for index in range(value.length)]
            return [None if child is _OTHER else child for child in children]
        if isinstance(value, msgpack.Map):
            return self._map(reader, value.length, keys)
        if isinstance(value, msgpack.Extension):
            return self._extension(value, ".".join(keys))
        return value

    def _plain(self, reader: msgpack.Reader, value: msgpack.Binary) -> bytes | str:
        self._text += value.end - value.begin
        if self._text > _MOST_TEXT:
            raise UnsafeFileError(
                f"{self._path} has more than {_MOST_TEXT} bytes that are no tensors."
            )
        return reader.bytes_of(value)

    def _map(self, reader: msgpack.Reader, count: int, keys: tuple[str, ...]) -> Any:
        children: dict[Any, Any] = {}
        for _ in range(count):
            at = reader.at
            key = reader.next()
            if isinstance(key, msgpack.Binary):
                key = self._plain(reader, key)
            if isinstance(key, tuple):
                raise FileFormatError(
                    f"{self._path}: the key of a map, at byte {at}, is no plain value."
                )
            if key in children:
                raise FileFormatError(
                    f"{self._path}: the key {key!r}, at byte {at}, is there twice."
                )
            children[key] = self._node(reader, (*keys, str(key)))
        if children.get(_CHUNKED) is True:
            return self._chunked(children, ".".join(keys))
        return {key: child for key, child in children.items() if child is not _OTHER}

    def _extension(self, value: msgpack.Extension, name: str) -> Any:
        inner = msgpack.Reader(self._data, self._path, value.begin, value.end)
        if value.code == _COMPLEX:
            parts = [inner.next() for _ in range(3)]
            if parts[0] != msgpack.Array(2) or not all(
                isinstance(part, (int, float)) for part in parts[1:]
            ):
                raise FileFormatError(
                    f"{self._path}: {name!r}, at byte {value.begin}, is no complex number."
                )
            return complex(parts[1], parts[2])
        if value.code not in (_NDARRAY, _SCALAR):
            self._others[name] = (
                f"a MessagePack extension of type {value.code}, which is not Flax's"
            )
            return _OTHER
        where = f"{self._path}: {name!r}, at byte {value.begin},"
        begins = inner.next() == msgpack.Array(3), inner.next()
        if isinstance(begins[1], msgpack.Array):
            axes = begins[1].length
        else:
            axes = -1
        if not begins[0] or not 0 <= axes <= 64:
            raise FileFormatError(f"{where} is no array of Flax.")
        lengths = [inner.next() for _ in range(axes)]
        label, data = inner.next(), inner.next()
        fits = (
            isinstance(label, msgpack.Binary)
            and label.end - label.begin < 256
            and isinstance(data, msgpack.Binary)
        )
        if not fits or not all(type(length) is int for length in lengths) or inner.at != value.end:
            raise FileFormatError(f"{where} is no array of Flax.")
        dtype = inner.bytes_of(label._replace(is_text=True))
        if dtype not in DTYPES:
            self._others[name] = f"an array of {dtype!s}"
            return _OTHER
        shape = checked(lengths, find(str(dtype)).itemsize, where)
        stored = Extent(str(dtype), shape, self._path, data.begin)
        if stored.nbytes != data.end - data.begin:
            raise FileFormatError(
                f"{where} has {data.end - data.begin} bytes; its shape needs {stored.nbytes}."
            )
        return _FlaxLeaf(stored, "scalar" if value.code == _SCALAR and not shape else "tensor")

    def _chunked(self, children: dict[Any, Any], name: str) -> Any:
        wrong = FileFormatError(f"{self._path}: {name!r} is no array in chunks, as Flax has them.")
        shape, chunks = children.get("shape"), children.get("chunks")
        if not isinstance(shape, dict) or not isinstance(chunks, dict) or not chunks:
            raise wrong
        parts = [chunks.get(str(index)) for index in range(len(chunks))]
        lengths: list[Any] = [shape.get(str(index)) for index in range(len(shape))]
        if not all(isinstance(part, _FlaxLeaf) for part in parts) or not all(
            type(length) is int for length in lengths
        ):
            raise wrong
        pieces = [part.stored for part in parts if part is not None]
        dtype = pieces[0].dtype
        whole = checked(lengths, find(dtype).itemsize, f"{self._path}: {name!r}")
        if {piece.dtype for piece in pieces} != {dtype} or prod(whole) != sum(
            piece.size for piece in pieces
        ):
            raise wrong

        def read() -> Iterator[np.ndarray[Any, Any]]:
            for piece in pieces:
                yield from piece.blocks()

        return _FlaxLeaf(Decoded(dtype, whole, read, pieces[0].key), "tensor")


_OTHER = object()
"""A placeholder for something that cannot be loaded."""


class _StateDict:
    """Makes `flax.serialization.to_state_dict`'s form from a tree; notes what it does not keep."""

    def __init__(self) -> None:
        self.changed: dict[str, list[str]] = {}
        self.refused: list[str] = []
        self.ways: list[InPlace | Keyed] = []
        """What becomes of the first that is refused."""

    def node(self, node: Any, keys: tuple[str, ...]) -> Any:
        if isinstance(node, Ref):
            return self._ref(node, keys)
        if isinstance(node, dict):
            return self._dict(node, keys)
        if type(node) in (list, tuple):
            self._note("lists and tuples became dicts of their positions", keys)
            return {
                str(index): self.node(child, (*keys, str(index)))
                for index, child in enumerate(node)
            }
        if type(node) is bytearray:
            self._note("bytearrays became bytes", keys)
            return bytes(node)
        if not _is_plain(node):
            self._refuse(
                f"{_place(keys)} ({_kind_of(node)})",
                InPlace(keys, "hex({})" if type(node) is int else "repr({})"),
            )
        return node

    def _dict(self, node: dict[Any, Any], keys: tuple[str, ...]) -> dict[str, Any]:
        if type(node) is not dict:
            self._note(f"{type(node).__name__}s became dicts", keys)
        if getattr(node, "__dict__", None):
            self._note(f"attributes of {type(node).__name__}s were left out", keys)
        named_by_text = text_keys(node, keys)
        for key, text in zip(node, named_by_text, strict=True):
            if type(key) is not str:
                self._note("keys became text", (*keys, text))
            if text == _CHUNKED or not is_unicode(text):
                other = f"{as_unicode(text).strip('_')}_"
                self._refuse(
                    f"{ascii('.'.join((*keys, text)))[1:-1]} (this key)", Keyed(keys, {key: other})
                )
        return {key: self.node(child, (*keys, key)) for key, child in named_by_text.items()}

    def _ref(self, ref: Ref, keys: tuple[str, ...]) -> Ref:
        if ref.kind not in ("tensor", "scalar"):
            self._note("parameters, storages and arrays became tensors", keys)
        if ref.requires_grad:
            self._note("requires_grad was left out", keys)
        return Ref(ref.name, "scalar" if ref.kind == "scalar" else "tensor")

    def _refuse(self, what: str, way: InPlace | Keyed) -> None:
        self.refused.append(what)
        self.ways = self.ways or [way]

    def _note(self, change: str, keys: tuple[str, ...]) -> None:
        self.changed.setdefault(change, []).append(_place(keys))


def _place(keys: tuple[str, ...]) -> str:
    return ".".join(keys) or "the whole tree"


def _kind_of(node: Any) -> str:
    if type(node) is int:
        return f"an integer of {node.bit_length()} bits"
    if type(node) is str:
        return "text that is not valid Unicode"
    return an(node.kind if isinstance(node, Special) else type(node).__name__)


def _is_plain(node: Any) -> bool:
    """Whether MessagePack, as Flax uses it, has a form for a value."""
    if type(node) is int:
        return -(1 << 63) <= node < 1 << 64
    if type(node) is str:
        return is_unicode(node)
    if isinstance(node, Special):
        return node == NOTHING
    return (
        node is None
        or type(node) in (bool, float, complex)
        or (type(node) is bytes and len(node) < 1 << 31)
    )


class _FlaxWriter:
    def __init__(self, descriptor: int, contents: Contents, pump: Pump) -> None:
        self._descriptor = descriptor
        self._tensors = contents.tensors
        self._pump = pump
        self._waiting = bytearray()

    def node(self, node: Any) -> None:
        if isinstance(node, Ref):
            self._tensor(self._tensors[node.name], _SCALAR if node.kind == "scalar" else _NDARRAY)
        elif isinstance(node, dict):
            self._waiting += msgpack.map_header(len(node))
            for key, child in node.items():
                self._waiting += msgpack.packed(key)
                self.node(child)
        elif isinstance(node, complex):
            body = msgpack.packed([node.real, node.imag])
            self._waiting += msgpack.extension_header(_COMPLEX, len(body)) + body
        else:
            self._waiting += msgpack.packed(None if isinstance(node, Special) else node)
        if len(self._waiting) > BLOCK_BYTES:
            self.flush()

    def flush(self) -> None:
        write_fully(self._descriptor, bytes(self._waiting))
        self._waiting.clear()

    def _tensor(self, stored: Stored, code: int) -> None:
        if stored.nbytes > _MOST_CHUNK:
            self._chunks(stored)
            return
        self._begin(stored.dtype, stored.shape, code)
        self.flush()
        self._pump.copy(stored, self._descriptor)

    def _begin(self, dtype: str, shape: tuple[int, ...], code: int = _NDARRAY) -> None:
        nbytes = prod(shape) * find(dtype).itemsize
        head = msgpack.array_header(3) + msgpack.packed([*shape]) + msgpack.packed(dtype)
        head += msgpack.binary_header(nbytes)
        self._waiting += msgpack.extension_header(code, len(head) + nbytes) + head

    def _chunks(self, stored: Stored) -> None:
        """Write flat arrays of a GiB, by number, as Flax does."""
        most = max(_MOST_CHUNK // find(stored.dtype).itemsize, 1)
        sizes = cuts(stored.size, most)
        steps = [cuts(size, BLOCK_BYTES // find(stored.dtype).itemsize) for size in sizes]
        pieces = filled(
            self._pump.blocks(stored), chain.from_iterable(steps), numpy_dtype(stored.dtype)
        )
        lengths = {str(axis): length for axis, length in enumerate(stored.shape)}
        self._waiting += (
            msgpack.map_header(3) + msgpack.packed(_CHUNKED) + msgpack.packed(value=True)
        )
        self._waiting += msgpack.packed("shape") + msgpack.packed(lengths)
        self._waiting += msgpack.packed("chunks") + msgpack.map_header(len(sizes))
        for index, size in enumerate(sizes):
            self._waiting += msgpack.packed(str(index))
            self._begin(stored.dtype, (size,))
            for _ in steps[index]:
                self._waiting += next(pieces).tobytes()
                self.flush()


FORMAT = Flax()
