"""`Blocks`: ordinary memory of large results that are gone, kept for the next ones.

The kernel makes each page of fresh memory when it is first written, which takes longer than a bus takes to
deliver it. Memory that has been used has its pages.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np

from ..host import memory

__all__ = ["KEPT_BYTES", "Blocks", "forget", "take"]

Array = np.ndarray[Any, Any]

KEPT_BYTES = 1 << 30
"""How much memory of results that are gone is kept, so that its pages need not be made again."""


class _Lease:
    """Memory that goes back to its pool when the last array over it is gone."""

    __slots__ = ("block", "pool")

    def __init__(self, pool: Blocks, block: Array) -> None:
        self.pool, self.block = pool, block

    def __del__(self) -> None:
        self.pool.give(self.block)


class Blocks:
    """Memory of results that are gone, for the next ones."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.kept: list[Array] = []
        self.nbytes = 0
        self.lock = threading.Lock()

    def take(self, nbytes: int) -> Array:
        """Bytes of one's own, 64-byte aligned; from a block that is not much larger, if one is kept."""
        with self.lock:
            fitting = [block for block in self.kept if nbytes <= block.size <= nbytes + nbytes // 8]
            block = min(fitting, key=len, default=None)
            if block is not None:
                self.kept = [each for each in self.kept if each is not block]
                self.nbytes -= block.size
        if block is None:
            block = memory.compact((nbytes,), np.dtype(np.uint8))
        lease = _Lease(self, block)
        return memory.over_address(memory.address(block), (nbytes,), (1,), block.dtype, read_only=False, owner=lease)

    def give(self, block: Array) -> None:
        """Keep a block, the oldest of the others aside; never waits, for the collector may call from anywhere."""
        if block.size > self.bound or not self.lock.acquire(blocking=False):
            return
        dropped = []
        try:
            self.kept.append(block)
            self.nbytes += block.size
            while self.nbytes > self.bound:
                dropped.append(self.kept.pop(0))
                self.nbytes -= dropped[-1].size
        finally:
            self.lock.release()


_blocks = Blocks(KEPT_BYTES)


def take(nbytes: int) -> Array:
    """Bytes of one's own; they are kept for the next result when the last array over them is gone."""
    return _blocks.take(nbytes)


def forget() -> None:
    """Give back what is kept."""
    global _blocks
    _blocks = Blocks(KEPT_BYTES)


if hasattr(os, "register_at_fork"):
    # Another thread may have been at it when the child was made.
    os.register_at_fork(after_in_child=forget)
