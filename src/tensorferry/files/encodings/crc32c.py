"""CRC-32C (Castagnoli), which TensorFlow's files carry: by google-crc32c where it is installed, else here.

The library uses the processor's own instruction for it. Here a block is cut into lanes that go through the table
together; their remainders are then put together with tables of what appended zeros do to a remainder, as zlib's
``crc32_combine`` does.
"""

from __future__ import annotations

import warnings
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["crc32c", "masked"]

Array = np.ndarray[Any, Any]

_POLYNOMIAL = 0x82F63B78
_LANE = 256
_MASK = 0xA282EAD8


def crc32c(data: Any, before: int = 0) -> int:
    """The checksum of the bytes of a contiguous buffer; `before` is the checksum of what stands before them."""
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
        # A leading lane of zeros changes nothing: it makes the number of them even.
        if state.size % 2:
            state = np.concatenate([np.zeros(1, np.uint32), state])
        tables = _zeros(level)
        left = state[0::2]
        for place in range(4):
            state[1::2] ^= tables[place][left >> (8 * place) & 0xFF]
        state = state[1::2]
        level += 1
    rest, table = int(state[0]), _table(8)
    for byte in raw[lanes * _LANE :].tobytes():
        rest = int(table[(rest ^ byte) & 0xFF]) ^ rest >> 8
    return rest ^ 0xFFFFFFFF


@cache
def _library() -> Callable[[int, Any], int] | None:
    """The library's function, if it is there and compiled: the one in Python reads a megabyte in a second."""
    try:
        # Where it is not compiled, it warns.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            library = import_module("google_crc32c")
    except Exception:  # noqa: BLE001 - without it, or with one that is broken, all goes on
        return None
    return library.extend if library.implementation == "c" else None


def masked(checksum: int) -> int:
    """A checksum as it is stored beside the bytes that it is of.

    Masked as in https://github.com/google/crc32c and LevelDB, since the checksum of bytes that contain
    their own checksum is a constant.
    """
    return ((checksum >> 15 | checksum << 17) + _MASK) & 0xFFFFFFFF


@cache
def _table(bits: int) -> Array:
    """The remainder of each number of so many bits."""
    state = np.arange(1 << bits, dtype=np.uint32)
    for _ in range(bits):
        state = np.where(state & 1, state >> 1 ^ np.uint32(_POLYNOMIAL), state >> 1)
    return state


@cache
def _zeros(level: int) -> Array:
    """What ``_LANE << level`` bytes of zero do to a remainder, as a table for each of its bytes."""
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
