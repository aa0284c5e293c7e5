"""Dtypes, strings and entries in the index of a checkpoint."""

from __future__ import annotations

import base64
import struct

from ...encodings.crc32c import crc32c, masked
from ...encodings.protobuf import bytes_field, number_field, varint

__all__ = [
    "CODES",
    "DTYPES",
    "OTHERS",
    "STRING",
    "as_metadata",
    "entry_of",
    "from_metadata",
    "string_of",
]

DTYPES = {
    1: "float32",
    2: "float64",
    3: "int32",
    4: "uint8",
    5: "int16",
    6: "int8",
    8: "complex64",
    9: "int64",
    10: "bool",
    14: "bfloat16",
    17: "uint16",
    18: "complex128",
    19: "float16",
    22: "uint32",
    23: "uint64",
    24: "float8_e5m2",
    25: "float8_e4m3fn",
    26: "float8_e4m3fnuz",
    27: "float8_e4m3b11fnuz",
    28: "float8_e5m2fnuz",
    29: "int4",
    30: "uint4",
    31: "int2",
    32: "uint2",
    33: "float4_e2m1fn",
}
"""https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/framework/types.proto"""
CODES = {name: code for code, name in DTYPES.items()}
STRING = 7
OTHERS = {
    11: "qint8",
    12: "quint8",
    13: "qint32",
    15: "qint16",
    16: "quint16",
    20: "a resource",
    21: "a variant",
}

_BASE64 = "tensorflow.base64:"


def as_metadata(text: bytes) -> str:
    """Bytes as metadata: as text if they are UTF-8 and do not look encoded; otherwise in base64."""
    try:
        plain = text.decode()
    except UnicodeDecodeError:
        plain = None
    if plain is not None and from_metadata(plain) == text:
        return plain
    return _BASE64 + base64.b64encode(text).decode()


def from_metadata(text: str) -> bytes:
    """The bytes for a text from `as_metadata`."""
    if text.startswith(_BASE64):
        try:
            raw = base64.b64decode(text[len(_BASE64) :], validate=True)
        except ValueError:
            return text.encode()
        if as_metadata(raw) == text:
            return raw
    return text.encode()


def string_of(text: bytes) -> tuple[bytes, int]:
    """The encoding of a string without axes, and its checksum, in which the length counts as four or eight bytes."""
    width = "<I" if len(text) < 1 << 32 else "<Q"
    checksum = crc32c(struct.pack(width, len(text)))
    own = struct.pack("<I", masked(checksum))
    return varint(len(text)) + own + text, crc32c(own + text, checksum)


def entry_of(code: int, shape: tuple[int, ...], offset: int, nbytes: int, checksum: int) -> bytes:
    """A BundleEntryProto."""
    axes = b"".join(bytes_field(2, number_field(1, length)) for length in shape)
    entry = (
        number_field(1, code)
        + bytes_field(2, axes)
        + number_field(4, offset)
        + number_field(5, nbytes)
    )
    return entry + varint(6 << 3 | 5) + struct.pack("<I", masked(checksum))
