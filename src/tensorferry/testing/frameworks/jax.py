"""The witness for JAX, with and without 64-bit dtypes."""

# ruff: noqa: D102 - the methods are documented in the base class

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..bits import FORMATS
from ..memory import Place, compact_strides
from ..witness import COMPACT, Sample, Witness
from .numpy import dtype_of

if TYPE_CHECKING:
    from collections.abc import Hashable
    from contextlib import AbstractContextManager


class JaxWitness(Witness):
    """`jax.Array` on the host."""

    name = "jax"
    module = "jax"
    layouts: ClassVar[tuple[str, ...]] = (*COMPACT, "result")
    modes: ClassVar[tuple[str, ...]] = ("32 bits", "64 bits")

    def load(self) -> None:
        self.jax: Any = importlib.import_module("jax")

    def mode(self, name: str) -> AbstractContextManager[Any]:
        # Before JAX 0.7, it is in the experimental module.
        home = (
            self.jax
            if hasattr(self.jax, "enable_x64")
            else importlib.import_module("jax.experimental")
        )
        return home.enable_x64(name == "64 bits")  # type: ignore[no-any-return]

    def knows(self, dtype: str) -> bool:
        # For a 64-bit dtype that is switched off, JAX makes an array of another dtype.
        return super().knows(dtype) and self.dtype(self.build(b"", dtype, (0,))) == dtype

    def build(self, content: bytes, dtype: str, shape: tuple[int, ...]) -> Any:
        with self._on_host():
            return self.jax.device_put(
                np.frombuffer(bytearray(content), dtype_of(dtype)).reshape(shape)
            )

    def make(self, layout: str, dtype: str) -> Sample | None:
        if layout != "result":
            return super().make(layout, dtype)
        sample = super().make("aligned", dtype)
        if sample is None or FORMATS[dtype].bits < 8:
            return sample
        # The result of an operation is in memory that XLA allocated. A transpose keeps all bits.
        with self._on_host():
            sample.x = self.jax.numpy.transpose(self.jax.numpy.transpose(sample.x))
        return sample

    def _on_host(self) -> AbstractContextManager[Any]:
        """The suite is about host memory; where JAX has a GPU, arrays are there otherwise."""
        return self.jax.default_device(self.jax.local_devices(backend="cpu")[0])  # type: ignore[no-any-return]

    def place(self, x: Any) -> Place | None:
        itemsize = x.dtype.itemsize
        if FORMATS[self.dtype(x)].bits <= 4 and self.dtype(x) != "bool":
            return (
                None  # several elements are in one byte; those of six bits have a byte of their own
            )
        return Place(
            x.unsafe_buffer_pointer(), x.shape, compact_strides(x.shape, itemsize), itemsize
        )

    def content(self, x: Any) -> bytes:
        # Of an array on a device, JAX keeps what it has copied to the host once, and does not look
        # at it again.
        seen = x if x.device.platform == "cpu" else self.jax.numpy.copy(x)
        return np.asarray(seen).tobytes()

    def is_plain(self, x: Any) -> bool:
        return isinstance(x, self.jax.Array) and not isinstance(x, self.jax.core.Tracer)

    def state(self, x: Any) -> Hashable:
        return type(x), x.dtype, x.shape, x.weak_type, x.is_deleted(), str(x.device), self.place(x)


WITNESS = JaxWitness()
