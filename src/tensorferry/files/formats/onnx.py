"""ONNX: the initializers of a model, read and written through its wire format, which holds them unparsed.

The message definitions: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto3. External data:
https://github.com/onnx/onnx/blob/main/docs/ExternalData.md.
"""

from __future__ import annotations

import os
import stat
from contextlib import closing
from itertools import chain
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.dtypes import find
from ...errors import FileFormatError, FormatLimitError, UnsafeFileError
from ...host.numpy_dtypes import numpy_dtype
from ..contents import Contents
from ..encodings.packed import BITS, packed, packed_bytes, unpacked, varints
from ..encodings.paths import is_text
from ..encodings.protobuf import BYTES, VARINT, Message, bytes_field, number_field, varint_at
from ..encodings.shapes import checked
from ..format import Format, named
from ..stored import Decoded, Extent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..encodings.protobuf import Field
    from ..pump import Pump
    from ..stored import Stored

Array = np.ndarray[Any, Any]

# Names of dtypes by TensorProto.DataType, and the IR version that first had each after version 4.
_DTYPES = {
    1: ("float32", 8),
    2: ("uint8", 8),
    3: ("int8", 8),
    4: ("uint16", 8),
    5: ("int16", 8),
    6: ("int32", 8),
    7: ("int64", 8),
    9: ("bool", 8),
    10: ("float16", 8),
    11: ("float64", 8),
    12: ("uint32", 8),
    13: ("uint64", 8),
    14: ("complex64", 8),
    15: ("complex128", 8),
    16: ("bfloat16", 8),
    17: ("float8_e4m3fn", 9),
    18: ("float8_e4m3fnuz", 9),
    19: ("float8_e5m2", 9),
    20: ("float8_e5m2fnuz", 9),
    21: ("uint4", 10),
    22: ("int4", 10),
    23: ("float4_e2m1fn", 11),
    24: ("float8_e8m0fnu", 12),
    25: ("uint2", 13),
    26: ("int2", 13),
    27: ("float6_e2m3fn", 14),
    28: ("float6_e3m2fn", 14),
}
_CODES = {name: code for code, (name, _) in _DTYPES.items()}
_STRING = 8
_OPSET = 18

# Fields of ModelProto that are texts of its own, by the names that they get among the metadata.
_TEXTS = {2: "onnx.producer_name", 3: "onnx.producer_version", 4: "onnx.domain", 6: "onnx.doc_string"}

# Fields of TensorProto that hold elements: those of float and double are packed as they are in memory.
_FLOATS, _INT32, _INT64, _DOUBLES, _UINT64 = 4, 5, 7, 10, 11
_TYPED = {
    "float32": _FLOATS,
    "complex64": _FLOATS,
    "float64": _DOUBLES,
    "complex128": _DOUBLES,
    "int64": _INT64,
    "uint32": _UINT64,
    "uint64": _UINT64,
}
_RAW = 9

_DEEPEST = 16
_LONGEST_SHAPE = 1000
_MOST_BYTES = (1 << 31) - 1


class Onnx(Format):
    """ONNX models, of which only the initializers are read: of the graph, and of the graphs inside its nodes.

    What is written is a model without nodes, in one file, which Protocol Buffers limit to 2 GiB.
    """

    name = "onnx"
    title = "ONNX"
    suffixes = (".onnx",)
    dtypes = frozenset(_CODES)
    holds_tree = True
    holds_metadata = True
    rank = 80

    def recognises(self, path: Path, head: bytes) -> bool:
        # The format has no magic bytes; a model begins with a field of ModelProto, nearly always ir_version.
        return path.name.lower().endswith(".onnx") and head[:1] in {bytes([n << 3 | k]) for n, k in _FIRST}

    def read(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        from ..encodings.tree_strings import unpacked as unpacked_strings

        with closing(Message(str(path))) as message:
            return unpacked_strings(_Reader(message).contents())

    def refuse(self, contents: Contents) -> None:
        super().refuse(contents)
        odd = [text for text in (*contents.tensors, *chain(*contents.metadata.items())) if not is_text(text)]
        if odd:
            raise FormatLimitError(f"ONNX cannot hold these names or strings: {named(map(repr, odd))}.", "rename=[…]")
        if "" in contents.tensors:
            raise FormatLimitError("ONNX cannot hold a tensor without a name.", 'rename=["s/^$/tensor/"]')
        heads = [len(_head(name, stored)) + 32 for name, stored in contents.tensors.items()]
        strings = sum(len(key) + len(text.encode()) + 32 for key, text in contents.metadata.items())
        total = sum(_nbytes(stored) for stored in contents.tensors.values()) + sum(heads) + strings
        if total > _MOST_BYTES:
            largest = sorted(contents.tensors, key=lambda name: -contents.tensors[name].nbytes)
            raise FormatLimitError(
                f"An ONNX file holds 2 GiB at most, and this needs {total:,} bytes; the largest: {named(largest)}.",
                'to="safetensors", or include=[…] with some of the names',
            )

    def write(self, contents: Contents, path: Path, pump: Pump) -> None:
        from ..encodings.tree_strings import packed as packed_strings

        strings = packed_strings(contents)
        ties = contents.ties
        tensors = {name: stored for name, stored in contents.tensors.items() if name not in ties}
        heads = {name: _head(name, stored) for name, stored in tensors.items()}
        graph = bytes_field(2, "initializers")
        length = len(graph)
        for name, stored in tensors.items():
            length += len(bytes_field(5, b"", len(heads[name]) + _nbytes(stored))) + len(heads[name]) + _nbytes(stored)
        version = max([8, *(_DTYPES[_CODES[stored.dtype]][1] for stored in tensors.values())])
        model = number_field(1, version)
        model += b"".join(bytes_field(number, strings.pop(key)) for number, key in _TEXTS.items() if key in strings)
        model += bytes_field(8, number_field(2, _OPSET))
        for key, text in strings.items():
            model += bytes_field(14, bytes_field(1, key) + bytes_field(2, text))
        with path.open("xb", buffering=0) as file:
            _write(file.fileno(), model + bytes_field(7, b"", length) + graph)
            for name, stored in tensors.items():
                _write(file.fileno(), bytes_field(5, b"", len(heads[name]) + _nbytes(stored)) + heads[name])
                if stored.dtype in BITS:
                    for block in packed(pump.blocks(stored), stored.dtype, stored.size):
                        _write(file.fileno(), block.tobytes())
                else:
                    pump.copy(stored, file.fileno())


class _Reader:
    """Finds the initializers of a model. Args: message: The model."""

    def __init__(self, message: Message) -> None:
        self._message = message
        self._path = Path(message.path)
        self._found = Contents("onnx", (message.path,))
        self._files: dict[str, tuple[str, int]] = {}

    def contents(self) -> Contents:
        graphs = 0
        for field in self._message.fields():
            if field.number in _TEXTS:
                text = self._message.text(field)
                if text:
                    self._found.metadata[_TEXTS[field.number]] = text
            elif field.number == 14:
                self._string(field)
            elif field.number == 7:
                graphs += 1
                if graphs > 1:
                    raise FileFormatError(f"{self._path} has two graphs; the second begins at byte {field.start}.")
                self._graph(field, "", 0)
            elif field.number == 20:
                for part in self._message.inner(field):
                    if part.number in (1, 2):
                        self._graph(part, f"training.{'initialization' if part.number == 1 else 'algorithm'}.", 1)
            elif field.number == 25:
                self._function(field)
        if not graphs:
            raise FileFormatError(f"{self._path} has no graph, so it is no ONNX model.")
        self._found.paths = (*self._found.paths, *(path for path, _ in self._files.values()))
        return self._found

    def _string(self, field: Field) -> None:
        key = text = ""
        for part in self._message.inner(field):
            if part.number == 1:
                key = self._message.text(part)
            elif part.number == 2:
                text = self._message.text(part)
        if key in self._found.metadata:
            raise FileFormatError(f"{self._path} has two values of the metadata {key!r}.")
        self._found.metadata[key] = text

    def _function(self, field: Field) -> None:
        name = next((self._message.text(part) for part in self._message.inner(field) if part.number == 1), "function")
        for index, part in enumerate(part for part in self._message.inner(field) if part.number == 7):
            self._node(part, f"{name}.", index, 1)

    def _graph(self, field: Field, prefix: str, depth: int) -> None:
        if depth > _DEEPEST:
            raise UnsafeFileError(f"{self._path} has graphs inside graphs, {depth} deep.", "get the file anew")
        nodes = 0
        for part in self._message.inner(field):
            if part.number == 5:
                self._initializer(part, prefix)
            elif part.number == 15:
                name = self._sparse_name(part)
                self._found.others[self._free(prefix + name)] = "a sparse tensor"
            elif part.number == 1:
                self._node(part, prefix, nodes, depth + 1)
                nodes += 1

    def _node(self, field: Field, prefix: str, index: int, depth: int) -> None:
        # The attributes that hold graphs: the branches of If, the bodies of Loop and Scan.
        name, graphs = f"node{index}", []
        for part in self._message.inner(field):
            if part.number == 3:
                name = self._message.text(part) or name
            elif part.number == 5:
                attribute = ""
                for inner in self._message.inner(part):
                    if inner.number == 1:
                        attribute = self._message.text(inner)
                    elif inner.number in (6, 11):
                        graphs.append((attribute, inner))
        for attribute, graph in graphs:
            self._graph(graph, f"{prefix}{name}.{attribute}.", depth)

    def _sparse_name(self, field: Field) -> str:
        for part in self._message.inner(field):
            if part.number == 1:
                return next((self._message.text(each) for each in self._message.inner(part) if each.number == 8), "")
        return ""

    def _free(self, name: str) -> str:
        found, number = name, 1
        while found in self._found.tensors or found in self._found.others:
            number += 1
            found = f"{name}#{number}"
        return found

    def _initializer(self, field: Field, prefix: str) -> None:
        dims: list[int] = []
        single: dict[int, Field] = {}
        external: dict[str, str] = {}
        unlike = ""
        for part in self._message.inner(field):
            if part.number == 1 and part.kind == VARINT:
                dims.append(part.signed)
            elif part.number == 1:
                dims += self._lengths(part)
            elif part.number == 13:
                external.update([self._entry(part)])
            elif part.number in (_FLOATS, _INT32, _INT64, _DOUBLES, _UINT64) and part.kind != BYTES:
                unlike = "its elements are not packed"
            elif part.number in single and part.number not in (6, 16):
                unlike = f"its field {part.number} is there twice"
            else:
                single[part.number] = part
        name = prefix + (self._message.text(single[8]) if 8 in single else "")
        if not prefix and (name in self._found.tensors or name in self._found.others):
            raise FileFormatError(f"{self._path} has two initializers named {name!r}.", "rename one of them")
        name = self._free(name)
        code = single[2].value if 2 in single else 0
        if code not in _DTYPES:
            unlike = "strings" if code == _STRING else f"elements of data type {code}, which is unknown"
        if 3 in single:
            unlike = "a segment of a tensor"
        if unlike:
            self._found.others[name] = unlike
            return
        dtype = _DTYPES[code][0]
        where = f"{self._path}: {name!r}"
        shape = checked(dims, find(dtype).itemsize, where)
        if 14 in single and single[14].value == 1:
            self._found.tensors[name] = self._external(dtype, shape, external, where)
        else:
            self._found.tensors[name] = self._held(dtype, shape, single, where)

    def _lengths(self, field: Field) -> Iterator[int]:
        data, at = self._message.payload(field)[:_LONGEST_SHAPE], 0
        while at < len(data):
            value, at = varint_at(data, at, str(self._path))
            yield value - (1 << 64) if value >> 63 else value

    def _entry(self, field: Field) -> tuple[str, str]:
        texts = {part.number: self._message.text(part) for part in self._message.inner(field) if part.kind == BYTES}
        return texts.get(1, ""), texts.get(2, "")

    def _held(self, dtype: str, shape: tuple[int, ...], single: dict[int, Field], where: str) -> Stored:
        typed = _TYPED.get(dtype, _INT32)
        held = [number for number in (_FLOATS, _INT32, _INT64, _RAW, _DOUBLES, _UINT64) if number in single]
        held = [number for number in held if single[number].end > single[number].start]
        if len(held) > 1 or (held and held[0] not in (_RAW, typed)):
            raise FileFormatError(f"{where} has elements in the fields {named(held)}.")
        path = str(self._path)
        if not held:
            return _stored(dtype, shape, path, 0, 0, where)
        field = single[held[0]]
        offset, nbytes = field.start, field.end - field.start
        if held[0] in (_RAW, _FLOATS, _DOUBLES):
            return _stored(dtype, shape, path, offset, nbytes, where)
        extent = Extent("uint8", (nbytes,), path, offset)
        return _numbers(dtype, shape, extent, where)

    def _external(self, dtype: str, shape: tuple[int, ...], entries: dict[str, str], where: str) -> Stored:
        location = entries.get("location", "")
        if location not in self._files:
            self._files[location] = _beside(self._path, location, where)
        path, size = self._files[location]
        numbers = {}
        for key in ("offset", "length"):
            text = entries.get(key, "0" if key == "offset" else "")
            if text and not (text.isascii() and text.isdigit() and len(text) < 20):
                raise FileFormatError(f"{where} has external data with the {key} {text[:40]!r}.")
            numbers[key] = int(text) if text else None
        offset = numbers["offset"] or 0
        length = numbers["length"]
        expected = _packed_nbytes(dtype, shape)
        nbytes = expected if length is None else length
        if offset + nbytes > size:
            raise FileFormatError(f"{where} ends at byte {offset + nbytes:,} of {path}, which has {size:,}.")
        return _stored(dtype, shape, path, offset, nbytes, where)


_FIRST = [(1, 0), (2, 2), (3, 2), (4, 2), (5, 0), (6, 2), (7, 2), (8, 2), (14, 2)]


def _beside(model: Path, location: str, where: str) -> tuple[str, int]:
    """The path and size of a file of external data, which has to lie in the model's folder."""
    parts = Path(location).parts
    if not location or "\0" in location or "\\" in location or ":" in location or Path(location).is_absolute():
        raise UnsafeFileError(f"{where} asks for the file {location!r}, which is no name in the model's folder.")
    if ".." in parts:
        raise UnsafeFileError(f"{where} asks for the file {location!r}, which leaves the model's folder.")
    folder = os.path.realpath(model.parent)
    path = os.path.realpath(model.parent / location)
    if os.path.commonpath([folder, path]) != folder:
        raise UnsafeFileError(
            f"{where} asks for the file {location!r}, a link that leads out of the model's folder.",
            "put a copy of the data beside the model",
        )
    try:
        status = os.stat(path)  # noqa: PTH116 - a plain string
    except FileNotFoundError:
        raise FileFormatError(f"{where} lies in {location!r}, and there is no such file beside the model.") from None
    if not stat.S_ISREG(status.st_mode):
        raise UnsafeFileError(f"{where} asks for {location!r}, which is no plain file.")
    return path, status.st_size


def _packed_nbytes(dtype: str, shape: tuple[int, ...]) -> int:
    size = prod(shape)
    return packed_bytes(size, BITS[dtype]) if dtype in BITS else size * find(dtype).itemsize


def _nbytes(stored: Stored) -> int:
    return _packed_nbytes(stored.dtype, stored.shape)


def _stored(dtype: str, shape: tuple[int, ...], path: str, offset: int, nbytes: int, where: str) -> Stored:
    """A tensor over bytes as raw_data has them."""
    expected = _packed_nbytes(dtype, shape)
    if nbytes != expected:
        raise FileFormatError(f"{where} has {nbytes:,} bytes; its shape {shape} and {dtype} take {expected:,}.")
    if dtype not in BITS:
        return Extent(dtype, shape, path, offset)
    extent = Extent("uint8", (nbytes,), path, offset)
    size = prod(shape)
    return Decoded(dtype, shape, lambda: unpacked(extent.blocks(), dtype, size), (path, offset, shape, dtype))


def _numbers(dtype: str, shape: tuple[int, ...], extent: Extent, where: str) -> Stored:
    """A tensor over numbers of variable length, each of which holds an element, or as many as fit into a byte."""
    size = prod(shape)
    bits = BITS.get(dtype, 8)
    each = 1 if bits == 6 else 8 // bits
    count = -(-size // each)
    if not count <= extent.size <= 10 * count:
        raise FileFormatError(f"{where} has {extent.size:,} bytes for {count:,} numbers.")
    row = find(dtype)
    whole = np.dtype(f"uint{8 * row.itemsize}")

    def read() -> Iterator[Array]:
        found = varints(extent, count)
        if dtype == "bool":
            return (numbers != 0 for numbers in found)
        raw = (numbers.astype(whole) for numbers in found)
        if each > 1:
            return unpacked(raw, dtype, size)
        if bits == 6:
            return ((numbers & 63).view(numpy_dtype(row.name)) for numbers in raw)
        return (numbers.view(numpy_dtype(row.name)) for numbers in raw)

    return Decoded(dtype, shape, read, (extent.path, extent.offset, shape, dtype))


def _head(name: str, stored: Stored) -> bytes:
    """What stands in a TensorProto before the bytes of its elements."""
    head = b"".join(number_field(1, length) for length in stored.shape)
    head += number_field(2, _CODES[stored.dtype]) + bytes_field(8, name)
    return head + bytes_field(_RAW, b"", _nbytes(stored))


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


FORMAT = Onnx()
