"""The numbers of fields in the messages of an ONNX model: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto3."""

from __future__ import annotations

from math import prod

from ....core.dtypes import find
from ...encodings.packed import BITS, packed_bytes

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
]
__all__ += ["packed_nbytes"]

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
    return packed_bytes(size, BITS[dtype]) if dtype in BITS else size * find(dtype).itemsize
