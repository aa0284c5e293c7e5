"""CRC-32C (Castagnoli), the checksum of TensorFlow files: by google-crc32c if installed, or NumPy.

The library uses an instruction of the processor. Without it, a block is divided into lanes that are
computed together. Their remainders are combined by tables for appended zeros, as in zlib's
``crc32_combine``.
"""

from __future__ import annotations

import warnings
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...typing import Array

__all__ = ["crc32c", "masked"]

_POLYNOMIAL = 0x82F63B78
_LANE = 256
_MASK = 0xA282EAD8


def crc32c(data: Any, before: int = 0) -> int:
    """The checksum of a contiguous buffer; `before` is the checksum of the bytes before it."""
    raw = np.frombuffer(data, np.uint8)
    extend = _library()
    if extend is not None:
        return extend(before, raw)
    lanes = raw.size // _LANE
    state = np.zeros(max(lanes, 1), np.uint32)
    state[0] = before ^ 0xFFFFFFFF
    table = _table(16)
    if lanes:
        words = raw[: lanes * _LANE].view("<u2").reshape(lanes, -1).T
        for word in np.ascontiguousarray(words):
            state = table[(state ^ word) & 0xFFFF] ^ (state >> 16)
    level = 0
    while state.size > 1:
        # A lane of zeros at the front does not change the checksum, and makes the number of lanes
        # even.
        if state.size % 2:
            state = np.concatenate([np.zeros(1, np.uint32), state])
        tables = _zeros(level)
        left = state[0::2]
        for index in range(4):
            state[1::2] ^= tables[index][left >> (8 * index) & 0xFF]
        state = state[1::2]
        level += 1
    rest, table = int(state[0]), _table(8)
    for byte in raw[lanes * _LANE :].tobytes():
        rest = int(table[(rest ^ byte) & 0xFF]) ^ rest >> 8
    return rest ^ 0xFFFFFFFF


@cache
def _library() -> Callable[[int, Any], int] | None:
    """The library's function, if it is installed and compiled, since its Python version is slow."""
    try:
        # It warns if it is not compiled.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            library = import_module("google_crc32c")
    except Exception:  # noqa: BLE001 - without it, or with one that is broken, all goes on
        return None
    return library.extend if library.implementation == "c" else None


def masked(checksum: int) -> int:
    """A checksum in the form in which it is stored.

    Masked as in https://github.com/google/crc32c and LevelDB, since the checksum of bytes that
    contain their own checksum is a constant.
    """
    return ((checksum >> 15 | checksum << 17) + _MASK) & 0xFFFFFFFF


@cache
def _table(bits: int) -> Array:
    """The remainders of all numbers of `bits` bits."""
    state = np.arange(1 << bits, dtype=np.uint32)
    for _ in range(bits):
        state = np.where(state & 1, state >> 1 ^ np.uint32(_POLYNOMIAL), state >> 1)
    return state


@cache
def _zeros(level: int) -> Array:
    """The effect of ``_LANE << level`` zero bytes on a remainder: a table for each of its bytes."""
    values = np.arange(256, dtype=np.uint32) << (8 * np.arange(4, dtype=np.uint32)[:, None])
    if level:
        half = _zeros(level - 1)
        for _ in range(2):
            values = (
                half[0][values & 0xFF]
                ^ half[1][values >> 8 & 0xFF]
                ^ half[2][values >> 16 & 0xFF]
                ^ half[3][values >> 24]
            )
        return values
    table = _table(16)
    for _ in range(_LANE // 2):
        values = table[values & 0xFFFF] ^ values >> 16
    return values
