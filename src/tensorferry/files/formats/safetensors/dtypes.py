"""The dtypes of safetensors, and dtypes of less than a byte."""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from ....host.numpy_dtypes import numpy_dtype
from ...base.stored import Decoded, Extent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ....typing import Array

__all__ = ["BITS", "DTYPES", "NAMES", "NIBBLES", "UNPACKED", "nibbles"]

DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E8M0": "float8_e8m0fnu",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "BF16": "bfloat16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "I64": "int64",
    "U64": "uint64",
    "F64": "float64",
    "C64": "complex64",
    "F4": "float4_e2m1fn",
}
NIBBLES = "float4_e2m1fn"
"""The dtype with two numbers in a byte, the first in the low half, as in ``torch.float4_e2m1fn_x2``."""
NAMES = {canonical: name for name, canonical in DTYPES.items()}
UNPACKED = ("F6_E2M3", "F6_E3M2")
BITS = {
    name: int("".join(re.findall(r"^[A-Z]+([0-9]+)", name)) or 8) for name in (*DTYPES, *UNPACKED)
}


def nibbles(shape: tuple[int, ...], path: str, offset: int) -> Decoded:
    """Numbers of four bits, two in a byte, at a position in a file."""
    packed = Extent("uint8", (prod(shape) // 2,), path, offset)

    def read() -> Iterator[Array]:
        for block in packed.blocks():
            halves = np.empty((block.size, 2), np.uint8)
            np.bitwise_and(block, 15, out=halves[:, 0])
            np.right_shift(block, 4, out=halves[:, 1])
            yield halves.reshape(-1).view(numpy_dtype(NIBBLES))

    return Decoded(NIBBLES, shape, read, (path, offset, shape, NIBBLES))
