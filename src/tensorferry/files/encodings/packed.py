"""Elements of fewer than eight bits, which files pack, and numbers of variable length."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...errors import FileFormatError
from ...host.numpy_dtypes import numpy_dtype
from ..base.stored import BLOCK_BYTES, Extent
from .slabs import cuts, filled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...typing import Array

__all__ = ["BITS", "bare", "packed_bytes", "unpacked", "varints"]

BITS = {
    "int2": 2,
    "uint2": 2,
    "int4": 4,
    "uint4": 4,
    "float4_e2m1fn": 4,
    "float6_e2m3fn": 6,
    "float6_e3m2fn": 6,
}
"""The bits of the dtypes for which NumPy uses a whole byte."""

_GROUPS = BLOCK_BYTES // 4


def packed_bytes(size: int, bits: int) -> int:
    """How many bytes `size` packed elements take."""
    return -(-size * bits // 8)


def unpacked(raw: Iterable[Array], dtype: str, size: int) -> Iterator[Array]:
    """Unpack elements, the first of which is in the lowest bits of a byte.

    In the result each element is in the low bits of its byte, as in ml_dtypes and JAX. The other
    bits are zero.
    """
    bits, left = BITS[dtype], size
    for piece in filled(raw, cuts(packed_bytes(size, bits), 3 * _GROUPS), np.dtype(np.uint8)):
        codes = _codes(piece, bits)[:left]
        left -= codes.size
        yield codes.view(numpy_dtype(dtype))


def bare(block: Array, dtype: str) -> Array:
    """A block with its unused bits set to zero, which arithmetic fills with the sign."""
    if dtype not in BITS:
        return block
    return (block.view(np.uint8) & ((1 << BITS[dtype]) - 1)).view(block.dtype)


def _codes(raw: Array, bits: int) -> Array:
    if bits == 6:
        groups = np.zeros(-(-raw.size // 3) * 3, np.uint8)
        groups[: raw.size] = raw
        a, b, c = groups.reshape(-1, 3).T
        return np.stack(
            [a & 63, a >> 6 | (b & 15) << 2, b >> 4 | (c & 3) << 4, c >> 2], axis=1
        ).reshape(-1)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes: Array = (raw[:, None] >> shifts & ((1 << bits) - 1)).reshape(-1)
    return codes


def varints(extent: Extent, size: int) -> Iterator[Array]:
    """Read numbers of variable length (https://protobuf.dev/programming-guides/encoding/), as uint64.

    Raises:
        FileFormatError: There are more or fewer than `size`, or one is too long.
    """
    rest = np.empty(0, np.uint8)
    for block in extent.blocks():
        raw = np.concatenate([rest, block])
        last = np.flatnonzero(raw < 0x80)
        used = int(last[-1]) + 1 if last.size else 0
        rest = raw[used:].copy()
        first = np.concatenate([[0], last[:-1] + 1]) if last.size else last
        lengths = last - first + 1
        if rest.size > 10 or (last.size and int(lengths.max()) > 10):
            raise FileFormatError(
                f"{extent.path} has a number that does not end, after byte {extent.offset}."
            )
        numbers = np.zeros(last.size, np.uint64)
        for place in range(int(lengths.max()) if last.size else 0):
            longer = np.flatnonzero(lengths > place)
            numbers[longer] |= (raw[first[longer] + place] & 0x7F).astype(np.uint64) << np.uint64(
                7 * place
            )
        size -= numbers.size
        if size < 0:
            break
        yield numbers
    if size or rest.size:
        raise FileFormatError(
            f"{extent.path} has {'more' if size < 0 else 'fewer'} numbers at byte {extent.offset} than its shape says."
        )
