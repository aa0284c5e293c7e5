"""How ``torch.save`` pickles a tensor, as one pattern of bytes, so that a hundred thousand of them are read quickly."""

from __future__ import annotations

import re
from struct import Struct

__all__ = ["PUTS", "PUT_GROUPS", "TENSOR", "index_of", "numbers"]

_GET = rb"(h.|j....)"
_PUT = rb"(r....)"
_COUNT = rb"(K.|M..|J....|\x8a\x05.....|\x8a\x06......)"
_SIZES = rb"(?:(\))|(\(?(?:K.|M..|J....|\x8a\x05.....|\x8a\x06......)+[\x85\x86\x87t])" + _PUT + rb")"
TENSOR = re.compile(
    rb"\(\(" + _GET * 2 + rb"X(.)\0\0\0([0-9]{1,9})" + _PUT + _GET + _COUNT + b"t" + _PUT + b"Q"
    rb"" + _COUNT + _SIZES * 2 + rb"([\x88\x89])" + _GET + rb"\)R" + _PUT + _GET + b"?t" + _PUT + b"R" + _PUT,
    re.DOTALL,
)
"""A tensor after the name of its function, as ``torch.save`` pickles nearly all of them: one step instead of forty."""
PUT_GROUPS = (5, 8, 12, 15, 18, 20, 21)
"""The groups of `TENSOR` that are PUTs; two of them may be missing."""
PUTS = {count: Struct("<" + "xI" * count) for count in range(5, 9)}
"""Reads the memo indices of so many PUTs."""


def index_of(raw: bytes) -> int:
    """The memo index of a GET."""
    return raw[1] if len(raw) == 2 else int(int.from_bytes(raw[1:], "little"))


def numbers(raw: bytes) -> tuple[int, ...] | None:
    """The integers of a tuple's opcodes; ``None`` if they are not as many as its last opcode says."""
    if not raw:
        return ()
    at, numbers = int(raw[0] == 0x28), []
    while at < len(raw) - 1:
        width, skipped, signed = {0x4B: (1, 1, False), 0x4D: (2, 1, False), 0x4A: (4, 1, True)}.get(
            raw[at], (raw[at + 1], 2, True)
        )
        at += skipped
        numbers.append(int.from_bytes(raw[at : at + width], "little", signed=signed))
        at += width
    marked, wanted = raw[0] == 0x28, {0x85: 1, 0x86: 2, 0x87: 3}.get(raw[-1])
    return tuple(numbers) if (wanted is None and marked) or (wanted == len(numbers) and not marked) else None
