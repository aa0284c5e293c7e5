"""Small tensors, 16 elements: what a call costs on the fast paths, against the sentences of every tutorial."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import Any

from .case import Case, Section, Target

__all__ = ["SECTIONS", "aligned", "bfloat16", "float32", "modules", "tensors"]


_MODULES = {
    "ferry": "tensorferry",
    "np": "numpy",
    "ml_dtypes": "ml_dtypes",
    "torch": "torch",
    "tf": "tensorflow",
    "jax": "jax",
    "jnp": "jax.numpy",
    "torch_dlpack": "torch.utils.dlpack",
}


def modules() -> dict[str, Any]:
    """What the lines call by a short name; a machine with a GPU need not have every framework."""
    found = {}
    for name, module in _MODULES.items():
        with suppress(ImportError):
            found[name] = import_module(module)
    if "tf" in found:
        found["tf_dlpack"] = found["tf"].experimental.dlpack
    return found


def aligned(like: Any) -> Any:
    """A copy at a 64-byte aligned address, which TensorFlow and JAX can adopt."""
    import numpy as np

    block = np.empty(like.nbytes + 64, np.uint8)
    start = -block.ctypes.data % 64
    result = block[start : start + like.nbytes].view(like.dtype).reshape(like.shape)
    result[...] = like
    return result


def tensors(length: int = 16, dtype: str = "float32") -> dict[str, Any]:
    """The same numbers in every framework: array, tensor, TensorFlow's, JAX's, list."""
    import jax.numpy as jnp
    import ml_dtypes
    import numpy as np
    import tensorflow as tf
    import torch

    numbers = np.arange(length) % 128
    array = aligned(numbers.astype(getattr(ml_dtypes, dtype, dtype)))
    return {
        "a": array,
        "t": torch.tensor(numbers, dtype=getattr(torch, dtype)),
        "x": tf.constant(array),
        "j": jnp.array(array),
        "l": array.tolist() if length <= 16 else None,
    }


def float32() -> dict[str, Any]:
    names = {**modules(), **tensors()}
    torch = names["torch"]
    return {
        **names,
        "g": names["t"].clone().requires_grad_(),
        "p": torch.nn.Parameter(names["t"].clone()),
        "s": torch.ones(4, 8)[:, ::2],
    }


def bfloat16() -> dict[str, Any]:
    return {**modules(), **tensors(dtype="bfloat16")}


_FAST_PATHS = (
    Case("ferry.to_numpy(t)", "t.detach().cpu().numpy()", Target(ratio=0.75)),
    Case("ferry.to_numpy(g)", "g.detach().cpu().numpy()", Target(ratio=1.2)),
    Case("ferry.to_numpy(p)", "p.detach().cpu().numpy()", Target(ratio=1.3)),
    Case("ferry.to_numpy(s)", "s.detach().cpu().numpy()", Target()),
    Case('ferry.convert(t, "numpy")', "ferry.to_numpy(t)", Target(ratio=1.6)),
    Case('ferry.convert(g, "numpy")', "ferry.to_numpy(g)", Target(ratio=1.6)),
    Case('ferry.convert(p, "numpy")', "ferry.to_numpy(p)", Target(ratio=1.6)),
    Case("ferry.to_torch(a)", "torch.as_tensor(a)", Target(ratio=0.6)),
    Case("ferry.to_numpy(x)", "x.numpy()", Target(ratio=1.2)),
    Case("ferry.to_numpy(j)", "np.asarray(j)", Target(ratio=1.5)),
    Case("ferry.to_tensorflow(a)", "tf.convert_to_tensor(a)", Target(ratio=1.0)),
    Case("ferry.to_jax(a)", "jnp.asarray(a)", Target(ratio=1.2)),
)

_NARROW_FAST_PATHS = (
    Case(
        "ferry.to_numpy(t)",
        "t.view(torch.int16).numpy().view(ml_dtypes.bfloat16)",
        Target(ratio=1.2),
    ),
)

SECTIONS = (
    Section("Small: 16 float32, as called", float32, _FAST_PATHS),
    Section("Small: 16 bfloat16, as called", bfloat16, _NARROW_FAST_PATHS),
)
