"""ONNX: the initializers of a model, read through its wire format, which holds them unparsed.

The message definitions: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto3.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from ...base.format import Format
from ...encodings.protobuf import Message
from .model import DTYPES
from .reader import ModelReader

if TYPE_CHECKING:
    from pathlib import Path

    from ...base.contents import Contents


class Onnx(Format):
    """ONNX models, of which only the initializers are read: of the graph, and of the graphs inside its nodes."""

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
