"""The simulated accelerator of `tests.simulated` as a staging backend, with small sizes in the plans."""

from __future__ import annotations

from contextlib import contextmanager
from typing import ClassVar

import numpy as np
from tests.simulated import POISON, SimulatedBackend, Tensor, installed

from tensorferry.core.capabilities import Options
from tensorferry.devices import staging
from tensorferry.planning import device_steps as transport

__all__ = ["POISON", "StagedBackend", "staged"]

CHUNK = 1 << 12
"""Bytes of a slot in these tests: a tensor of some hundred thousand has many."""


class StagedBackend(staging.Staging, SimulatedBackend):
    """`simulated.Tensor`, whose large ones go through page-locked slots."""

    capabilities = SimulatedBackend.capabilities._replace(
        devices=SimulatedBackend.capabilities.devices._replace(stages=frozenset({"sim"})),
        options=Options(frozenset({"non_blocking", "pinned"})),
    )
    imports: ClassVar = SimulatedBackend.imports

    def __init__(self, **settings):
        super().__init__(**settings)
        self.crossed = []

    def flat(self, x):
        cells = x._storage.cells
        return Tensor(x._storage, (cells.nbytes,), "uint8", x.device)

    def _bytes(self, flat):
        return flat._storage.cells.reshape(-1).view(np.uint8)

    def room(self, shape, strides, dtype, device):
        return self._new(shape, dtype, self._indexed(device))

    def take_down(self, flat, start, block):
        assert self._block_of(block) is not None or self.lockable is not None, "a slot is page-locked"
        cells, held = self._bytes(flat)[start : start + block.size], self._held(block)
        self.crossed.append(("down", block.size))
        self._queue_copy(flat.device, block.size, lambda: np.copyto(held, cells))

    def put_up(self, flat, start, block):
        cells, held = self._bytes(flat)[start : start + block.size], self._held(block)
        self.crossed.append(("up", block.size))
        self._queue_copy(flat.device, block.size, lambda: np.copyto(cells, held))

    def _held(self, block):
        """The same memory, which the copy does not keep from being given back too early."""
        found = self._block_of(block)
        return block if found is None else found.within(block)

    def snippet(self, verb, arguments, info):
        if verb in ("compact", "stage", "unload", "land", "fill", "send", "pin_array"):
            return f"simulated.{verb}({{x}})"
        return super().snippet(verb, arguments, info)


@contextmanager
def staged(limit=1 << 14, **settings):
    """The staging backend instead of the plain one, for tensors from so many bytes on."""
    import tests.simulated as plain

    before = plain.SimulatedBackend, transport.STAGED, transport.CHUNK
    plain.SimulatedBackend, transport.STAGED, transport.CHUNK = StagedBackend, limit, CHUNK
    staging.release()
    try:
        with installed(**settings) as device:
            yield device
            staging.release()
    finally:
        plain.SimulatedBackend, transport.STAGED, transport.CHUNK = before
        staging.release()
