"""ONNX: the initializers of a model, read and written through its wire format, which holds them unparsed.

The message definitions: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto3.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from ....errors import FormatLimitError
from ...base.format import Format
from ...base.raw import write_fully
from ...base.tree_strings import packed as packed_strings
from ...base.tree_strings import unpacked as unpacked_strings
from ...base.wording import FileHint, named
from ...encodings.packed import BITS, packed
from ...encodings.protobuf import Message, bytes_field, number_field
from .model import CODES, DTYPES, RAW, TEXTS, packed_nbytes
from .reader import ModelReader

if TYPE_CHECKING:
    from pathlib import Path

    from ...base.contents import Contents
    from ...base.pump import Pump
    from ...base.stored import Stored

_OPSET = 18
_MOST_BYTES = (1 << 31) - 1
_OTHER_NAME = FileHint('rename=["s/^$/tensor/"]', 'save({key or "tensor": x[key] for key in x}, path)')


class Onnx(Format):
    """ONNX models, of which only the initializers are read: of the graph, and of the graphs inside its nodes.

    What is written is a model without nodes, in one file, which Protocol Buffers limit to 2 GiB.
    """

    name = "onnx"
    title = "ONNX"
    suffixes = (".onnx",)
    dtypes = frozenset(CODES)
    holds_tree = True
    holds_metadata = True
    unicode_only = True
    rank = 80

    def recognises(self, path: Path, head: bytes) -> bool:
        # The format has no magic bytes. A model begins with a field of ModelProto, nearly always ir_version.
        return path.name.lower().endswith(".onnx") and head[:1] in {bytes([n << 3 | k]) for n, k in _FIRST}

    def read(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        with closing(Message(str(path))) as message:
            return unpacked_strings(ModelReader(message).contents())

    def refuse(self, contents: Contents) -> None:
        super().refuse(contents)
        if "" in contents.tensors:
            raise FormatLimitError("ONNX cannot hold a tensor without a name.", _OTHER_NAME)
        total = sum(len(_head(name, stored)) + _nbytes(stored) + 32 for name, stored in contents.tensors.items())
        total += sum(len(key) + len(text.encode()) + 32 for key, text in contents.metadata.items())
        if total > _MOST_BYTES:
            largest = sorted(contents.tensors, key=lambda name: -contents.tensors[name].nbytes)
            raise FormatLimitError(
                f"An ONNX file holds 2 GiB at most, and this needs {total:,} bytes; the largest: {named(largest)}.",
                FileHint(
                    'to="safetensors", or include=[…] with some of the names',
                    'to="safetensors", or x with some of them',
                ),
            )

    def write(self, contents: Contents, path: Path, pump: Pump) -> None:
        strings = packed_strings(contents)
        ties = contents.ties
        tensors = {name: stored for name, stored in contents.tensors.items() if name not in ties}
        heads = {name: _head(name, stored) for name, stored in tensors.items()}
        graph = bytes_field(2, "initializers")
        length = len(graph) + sum(len(heads[name]) + _nbytes(stored) for name, stored in tensors.items())
        version = max([8, *(DTYPES[CODES[stored.dtype]][1] for stored in tensors.values())])
        model = number_field(1, version)
        model += b"".join(bytes_field(number, strings.pop(key)) for number, key in TEXTS.items() if key in strings)
        model += bytes_field(8, number_field(2, _OPSET))
        for key, text in strings.items():
            model += bytes_field(14, bytes_field(1, key) + bytes_field(2, text))
        with path.open("xb", buffering=0) as file:
            write_fully(file.fileno(), model + bytes_field(7, b"", length) + graph)
            for name, stored in tensors.items():
                write_fully(file.fileno(), heads[name])
                if stored.dtype in BITS:
                    for block in packed(pump.blocks(stored), stored.dtype, stored.size):
                        write_fully(file.fileno(), block.tobytes())
                else:
                    pump.copy(stored, file.fileno())


_FIRST = [(1, 0), (2, 2), (3, 2), (4, 2), (5, 0), (6, 2), (7, 2), (8, 2), (14, 2)]


def _head(name: str, stored: Stored) -> bytes:
    """The part of an initializer (a TensorProto) before the bytes of its elements."""
    head = b"".join(number_field(1, length) for length in stored.shape)
    head += number_field(2, CODES[stored.dtype]) + bytes_field(8, name)
    return bytes_field(5, head + bytes_field(RAW, b"", _nbytes(stored)), _nbytes(stored))


def _nbytes(stored: Stored) -> int:
    return packed_nbytes(stored.dtype, stored.shape)


FORMAT = Onnx()
