"""The witness for TensorFlow: eager tensors and variables."""

# ruff: noqa: D102 - the methods are documented in the base class

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..memory import image
from ..witness import COMPACT, Sample, Witness
from .numpy import dtype_of, place_of

if TYPE_CHECKING:
    from collections.abc import Hashable
    from contextlib import AbstractContextManager

    from ..memory import Place


class TensorflowWitness(Witness):
    """`tf.Tensor` and `tf.Variable` on the host."""

    name = "tensorflow"
    module = "tensorflow"
    layouts: ClassVar[tuple[str, ...]] = (*COMPACT, "row", "variable")

    def load(self) -> None:
        self.tf: Any = importlib.import_module("tensorflow")

    def build(self, content: bytes, dtype: str, shape: tuple[int, ...]) -> Any:
        with self._on_host():
            return self.tf.constant(
                np.frombuffer(bytearray(content), dtype_of(dtype)).reshape(shape)
            )

    def make(self, layout: str, dtype: str) -> Sample | None:
        with self._on_host():
            return self._make(layout, dtype)

    def _make(self, layout: str, dtype: str) -> Sample | None:
        if layout in COMPACT:
            return super().make(layout, dtype)
        source_image = image("aligned", dtype)
        x = self.build(source_image.content, dtype, source_image.shape)
        if layout == "row":
            size = len(source_image.content) // 4
            content = source_image.content[size : 2 * size]
            try:
                part = x[1]
            except (self.tf.errors.NotFoundError, self.tf.errors.InvalidArgumentError):
                return None  # TensorFlow cannot slice this dtype
            return Sample(part, dtype, source_image.shape[1:], content, False, False)
        try:
            variable = self.tf.Variable(x)
        except self.tf.errors.InvalidArgumentError:
            return None  # TensorFlow has no variables of this dtype
        return Sample(
            variable,
            dtype,
            source_image.shape,
            source_image.content,
            False,
            False,
            plain=False,
            isolated=True,
            poke=lambda content: variable.assign(self.build(content, dtype, source_image.shape)),
        )

    def _on_host(self) -> AbstractContextManager[Any]:
        """The suite is about host memory; where TensorFlow has a GPU, tensors are there otherwise."""
        return self.tf.device("CPU:0")  # type: ignore[no-any-return]

    def place(self, x: Any) -> Place:
        value = x.value() if isinstance(x, self.tf.Variable) else x
        # For shape (), `np.asarray` would copy. A reshaped tensor has the same memory.
        with self._on_host():
            array = np.asarray(value if value.shape.rank else self.tf.reshape(value, [1]))
        return place_of(array.reshape(tuple(value.shape)))

    def content(self, x: Any) -> bytes:
        return x.numpy().tobytes()  # type: ignore[no-any-return]

    def is_plain(self, x: Any) -> bool:
        return isinstance(x, self.tf.__internal__.EagerTensor)

    def state(self, x: Any) -> Hashable:
        place = self.place(x) if 0 not in x.shape else None
        return type(x), self.dtype(x), self.shape(x), x.device, place


WITNESS = TensorflowWitness()
