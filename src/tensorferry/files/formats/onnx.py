"""ONNX: the initializers of a model, read through its wire format, which holds them unparsed.

The message definitions: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto3.
"""

from __future__ import annotations

import os
import stat
from contextlib import closing
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...core.dtypes import find
from ...errors import FileFormatError, UnsafeFileError
from ...host.numpy_dtypes import numpy_dtype
from ..base.contents import Contents, NotTensor
from ..base.format import Format
from ..base.stored import Decoded, Extent
from ..base.wording import named
from ..encodings.array_parts import BITS, checked, packed_bytes, unpacked, varints
from ..encodings.protobuf import BYTES, VARINT, Message, varint_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...typing import Array
    from ..base.stored import Stored
    from ..encodings.protobuf import Field

__all__ = [
    "DOUBLES",
    "DTYPES",
    "FLOATS",
    "INT32",
    "INT64",
    "RAW",
    "STRING",
    "TEXTS",
    "TYPED",
    "UINT64",
    "ModelReader",
    "packed_nbytes",
]

# Names of dtypes by TensorProto.DataType.
DTYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    15: "complex128",
    16: "bfloat16",
    17: "float8_e4m3fn",
    18: "float8_e4m3fnuz",
    19: "float8_e5m2",
    20: "float8_e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4_e2m1fn",
    24: "float8_e8m0fnu",
    25: "uint2",
    26: "int2",
    27: "float6_e2m3fn",
    28: "float6_e3m2fn",
}
STRING = 8

# Fields of ModelProto that are texts of its own, by the names that they get among the metadata.
TEXTS = {
    2: "onnx.producer_name",
    3: "onnx.producer_version",
    4: "onnx.domain",
    6: "onnx.doc_string",
}

# Fields of TensorProto that hold elements: those of float and double are packed as they are in
# memory.
FLOATS, INT32, INT64, DOUBLES, UINT64 = 4, 5, 7, 10, 11
TYPED = {
    "float32": FLOATS,
    "complex64": FLOATS,
    "float64": DOUBLES,
    "complex128": DOUBLES,
    "int64": INT64,
    "uint32": UINT64,
    "uint64": UINT64,
}
RAW = 9


def packed_nbytes(dtype: str, shape: tuple[int, ...]) -> int:
    """The size of a tensor in ``raw_data``, in bytes."""
    size = prod(shape)
    if dtype in BITS:
        return packed_bytes(size, BITS[dtype])
    return size * find(dtype).itemsize


_DEEPEST = 16
_LONGEST_SHAPE = 1000


class ModelReader:
    """Finds the initializers of a model."""

    def __init__(self, message: Message) -> None:
        self._message = message
        self._path = Path(message.path)
        self._found = Contents("onnx", (message.path,))
        self._files: dict[str, tuple[str, int]] = {}

    def contents(self) -> Contents:
        """The contents of the model."""
        graphs = 0
        for field in self._message.fields():
            if field.number in TEXTS:
                text = self._message.text(field)
                if text:
                    self._found.metadata[TEXTS[field.number]] = text
            elif field.number == 14:
                self._string(field)
            elif field.number == 7:
                graphs += 1
                if graphs > 1:
                    raise FileFormatError(
                        f"{self._path} has two graphs; the second begins at byte {field.start}."
                    )
                self._graph(field, "", 0)
            elif field.number == 20:
                for part in self._message.inner(field):
                    if part.number in (1, 2):
                        self._graph(
                            part,
                            f"training.{'initialization' if part.number == 1 else 'algorithm'}.",
                            1,
                        )
            elif field.number == 25:
                self._function(field)
        if not graphs:
            raise FileFormatError(f"{self._path} has no graph, so it is no ONNX model.")
        self._found.paths = (*self._found.paths, *(path for path, _ in self._files.values()))
        return self._found

    def _string(self, field: Field) -> None:
        key, text = self._entry(field)
        if key in self._found.metadata:
            raise FileFormatError(f"{self._path} has two values of the metadata {key!r}.")
        self._found.metadata[key] = text

    def _function(self, field: Field) -> None:
        name = next(
            (self._message.text(part) for part in self._message.inner(field) if part.number == 1),
            "function",
        )
        for index, part in enumerate(
            part for part in self._message.inner(field) if part.number == 7
        ):
            self._node(part, f"{name}.", index, 1)

    def _graph(self, field: Field, prefix: str, depth: int) -> None:
        if depth > _DEEPEST:
            raise UnsafeFileError(
                f"{self._path} has graphs inside graphs, {depth} deep.", "get the file again"
            )
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
                return next(
                    (
                        self._message.text(inner)
                        for inner in self._message.inner(part)
                        if inner.number == 8
                    ),
                    "",
                )
        return ""

    def _free(self, name: str) -> str:
        free, number = name, 1
        while free in self._found.tensors or free in self._found.others:
            number += 1
            free = f"{name}#{number}"
        return free

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
            elif part.number in (FLOATS, INT32, INT64, DOUBLES, UINT64) and part.kind != BYTES:
                unlike = "its elements are not packed"
            elif part.number in single and part.number not in (6, 16):
                unlike = f"its field {part.number} is there twice"
            else:
                single[part.number] = part
        name = prefix + (self._message.text(single[8]) if 8 in single else "")
        if not prefix and (name in self._found.tensors or name in self._found.others):
            raise FileFormatError(
                f"{self._path} has two initializers named {name!r}.", "rename one of them"
            )
        name = self._free(name)
        code = single[2].value if 2 in single else 0
        if code not in DTYPES:
            if code == STRING:
                unlike = NotTensor("strings")
            else:
                unlike = f"elements of data type {code}, which is unknown"
        if 3 in single:
            unlike = "a segment of a tensor"
        if unlike:
            self._found.others[name] = unlike
            return
        dtype = DTYPES[code]
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
        """A StringStringEntryProto."""
        texts = {
            part.number: self._message.text(part)
            for part in self._message.inner(field)
            if part.number in (1, 2)
        }
        return texts.get(1, ""), texts.get(2, "")

    def _held(
        self, dtype: str, shape: tuple[int, ...], single: dict[int, Field], where: str
    ) -> Stored:
        typed = TYPED.get(dtype, INT32)
        held = [
            number for number in (FLOATS, INT32, INT64, RAW, DOUBLES, UINT64) if number in single
        ]
        held = [number for number in held if single[number].end > single[number].start]
        if len(held) > 1 or (held and held[0] not in (RAW, typed)):
            raise FileFormatError(f"{where} has elements in the fields {named(held)}.")
        path = str(self._path)
        if not held:
            return _stored(dtype, shape, path, 0, 0, where)
        field = single[held[0]]
        offset, nbytes = field.start, field.end - field.start
        if held[0] in (RAW, FLOATS, DOUBLES):
            return _stored(dtype, shape, path, offset, nbytes, where)
        extent = Extent("uint8", (nbytes,), path, offset)
        return _numbers(dtype, shape, extent, where)

    def _external(
        self, dtype: str, shape: tuple[int, ...], entries: dict[str, str], where: str
    ) -> Stored:
        location = entries.get("location", "")
        if location not in self._files:
            self._files[location] = _beside(self._path, location, where)
        path, size = self._files[location]
        numbers = []
        for key, usual in (("offset", 0), ("length", packed_nbytes(dtype, shape))):
            text = entries.get(key) or str(usual)
            if not (text.isascii() and text.isdigit() and len(text) < 20):
                raise FileFormatError(f"{where} has external data with the {key} {text[:40]!r}.")
            numbers.append(int(text))
        offset, nbytes = numbers
        if offset + nbytes > size:
            raise FileFormatError(
                f"{where} ends at byte {offset + nbytes:,} of {path}, which has {size:,}."
            )
        return _stored(dtype, shape, path, offset, nbytes, where)


def _beside(model: Path, location: str, where: str) -> tuple[str, int]:
    """The path and size of a file of external data, which must be in the folder of the model."""
    parts = Path(location).parts
    if (
        not location
        or "\0" in location
        or "\\" in location
        or ":" in location
        or Path(location).is_absolute()
    ):
        raise UnsafeFileError(
            f"{where} asks for the file {location!r}, which is no name in the model's folder."
        )
    if ".." in parts:
        raise UnsafeFileError(
            f"{where} asks for the file {location!r}, which leaves the model's folder."
        )
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
        raise FileFormatError(
            f"{where} lies in {location!r}, and there is no such file beside the model."
        ) from None
    if not stat.S_ISREG(status.st_mode):
        raise UnsafeFileError(f"{where} asks for {location!r}, which is no plain file.")
    return path, status.st_size


def _stored(
    dtype: str, shape: tuple[int, ...], path: str, offset: int, nbytes: int, where: str
) -> Stored:
    """A tensor over the bytes of raw_data."""
    expected = packed_nbytes(dtype, shape)
    if nbytes != expected:
        raise FileFormatError(
            f"{where} has {nbytes:,} bytes; its shape {shape} and {dtype} take {expected:,}."
        )
    if dtype not in BITS:
        return Extent(dtype, shape, path, offset)
    extent = Extent("uint8", (nbytes,), path, offset)
    size = prod(shape)
    return Decoded(
        dtype, shape, lambda: unpacked(extent.blocks(), dtype, size), (path, offset, shape, dtype)
    )


def _numbers(dtype: str, shape: tuple[int, ...], extent: Extent, where: str) -> Stored:
    """A tensor of variable-length numbers, each for one element, or as many as fit into a byte."""
    size = prod(shape)
    bits = BITS.get(dtype, 8)
    per_byte = 1 if bits == 6 else 8 // bits
    count = -(-size // per_byte)
    if not count <= extent.size <= 10 * count:
        raise FileFormatError(f"{where} has {extent.size:,} bytes for {count:,} numbers.")
    own = numpy_dtype(dtype)
    whole = np.dtype(f"uint{8 * own.itemsize}")

    def read() -> Iterator[Array]:
        integers = varints(extent, count)
        if dtype == "bool":
            return (numbers != 0 for numbers in integers)
        raw = (numbers.astype(whole) for numbers in integers)
        if per_byte > 1:
            return unpacked(raw, dtype, size)
        if bits == 6:
            return ((numbers & 63).view(own) for numbers in raw)
        return (numbers.view(own) for numbers in raw)

    return Decoded(dtype, shape, read, (extent.path, extent.offset, shape, dtype))


class Onnx(Format):
    """ONNX models: only the initializers are read, of the graph and of graphs inside its nodes."""

    name = "onnx"
    title = "ONNX"
    suffixes = (".onnx",)
    dtypes = frozenset(DTYPES.values())
    holds_metadata = True
    writes = False
    rank = 80

    def recognises(self, path: Path, head: bytes) -> bool:
        # The format has no magic bytes. A model begins with a field of ModelProto, nearly always
        # ir_version.
        return path.name.lower().endswith(".onnx") and head[:1] in {
            bytes([n << 3 | k]) for n, k in _FIRST
        }

    def read(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        with closing(Message(str(path))) as message:
            return ModelReader(message).contents()


_FIRST = [(1, 0), (2, 2), (3, 2), (4, 2), (5, 0), (6, 2), (7, 2), (8, 2), (14, 2)]


FORMAT = Onnx()
