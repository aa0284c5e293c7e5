"""Names of the frameworks' types for type checkers; at run time they are `Any`, and nothing is imported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

__all__ = [
    "Casting",
    "JaxArray",
    "NumpyArray",
    "Target",
    "TensorflowTensor",
    "TensorflowVariable",
    "TorchTensor",
]

if TYPE_CHECKING:
    import jax
    import numpy as np
    import tensorflow as tf  # type: ignore[import-untyped, unused-ignore]
    import torch

    NumpyArray: TypeAlias = np.ndarray[Any, np.dtype[Any]]
    TorchTensor: TypeAlias = torch.Tensor
    TensorflowTensor: TypeAlias = tf.Tensor
    TensorflowVariable: TypeAlias = tf.Variable
    JaxArray: TypeAlias = jax.Array
else:
    NumpyArray = TorchTensor = TensorflowTensor = TensorflowVariable = JaxArray = Any

Target: TypeAlias = Literal["numpy", "torch", "tensorflow", "jax", "python"]
Casting: TypeAlias = Literal["safe", "same_value", "same_kind", "unsafe"]
Grad: TypeAlias = Literal["detach", "error"]
Unknown: TypeAlias = Literal["error", "keep"]
