"""Small tensors, 16 float32: what a call costs, and what the general planned path adds to a call."""

from __future__ import annotations

from typing import Any

from .case import Case, Section, Target

__all__ = ["SECTIONS", "aligned", "modules", "tensors"]

PLANNED = Target(extra=5e-6)


def modules() -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    import ml_dtypes
    import numpy as np
    import tensorflow as tf
    import torch

    import tensorferry as ferry

    return {
        "ferry": ferry,
        "np": np,
        "ml_dtypes": ml_dtypes,
        "torch": torch,
        "tf": tf,
        "jax": jax,
        "jnp": jnp,
        "tf_dlpack": tf.experimental.dlpack,
        "torch_dlpack": torch.utils.dlpack,
    }


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


def _float32() -> dict[str, Any]:
    names = {**modules(), **tensors()}
    torch = names["torch"]
    return {
        **names,
        "g": names["t"].clone().requires_grad_(),
        "p": torch.nn.Parameter(names["t"].clone()),
        "s": torch.arange(32, dtype=torch.float32)[::2],
    }


def _bfloat16() -> dict[str, Any]:
    return {**modules(), **tensors(dtype="bfloat16")}


def _pairs(table: str, keywords: str = "") -> tuple[Case, ...]:
    """Cases from lines of target, source and the framework's own line."""
    cases = []
    for line in table.strip().splitlines():
        target, source, theirs = line.split(None, 2)
        cases.append(Case(f"ferry.to_{target}({source}{keywords})", theirs, PLANNED))
    return tuple(cases)


_LANES = (
    Case("ferry.to_numpy(t)", "t.detach().cpu().numpy()", Target(ratio=0.8)),
    Case("ferry.to_numpy(g)", "g.detach().cpu().numpy()", Target(ratio=1.3)),
    Case("ferry.to_numpy(p)", "p.detach().cpu().numpy()", Target(ratio=1.3)),
    Case("ferry.to_numpy(s)", "s.detach().cpu().numpy()", Target()),
    Case("ferry.to_list(g)", "g.tolist()", Target()),
    Case("ferry.to_torch(a)", "torch.as_tensor(a)", Target(ratio=0.6)),
    Case("ferry.to_numpy(x)", "x.numpy()", Target(ratio=1.2)),
    Case("ferry.to_numpy(j)", "np.asarray(j)", Target(ratio=1.5)),
    Case("ferry.to_tensorflow(a)", "tf.convert_to_tensor(a)", Target(ratio=1.0)),
    Case("ferry.to_jax(a)", "jnp.asarray(a)", Target(ratio=1.2)),
    Case("ferry.to_list(a)", "a.tolist()", Target()),
)

_NARROW_LANES = (
    Case("ferry.to_numpy(t)", "t.detach().view(torch.int16).numpy().view(ml_dtypes.bfloat16)", Target(ratio=1.3)),
)

_DEFAULT = """
numpy       a  np.asarray(a)
torch       a  torch.from_numpy(a)
tensorflow  a  tf.convert_to_tensor(a)
jax         a  jnp.asarray(a)
list        a  a.tolist()
numpy       t  t.numpy()
torch       t  torch.as_tensor(t)
tensorflow  t  tf.convert_to_tensor(t.numpy())
jax         t  jnp.asarray(t.numpy())
list        t  t.tolist()
numpy       x  x.numpy()
torch       x  torch.tensor(x.numpy())
tensorflow  x  tf.convert_to_tensor(x)
jax         x  jnp.asarray(x.numpy())
list        x  x.numpy().tolist()
numpy       j  np.asarray(j)
torch       j  torch.tensor(np.asarray(j))
tensorflow  j  tf.convert_to_tensor(np.asarray(j))
jax         j  jnp.asarray(j)
list        j  j.tolist()
numpy       l  np.array(l)
torch       l  torch.tensor(l)
tensorflow  l  tf.constant(l)
jax         l  jnp.asarray(l)
list        l  list(l)
"""

_COPY = """
numpy       a  a.copy()
torch       a  torch.tensor(a)
tensorflow  a  tf.constant(a)
jax         a  jnp.array(a)
numpy       t  t.numpy().copy()
torch       t  t.clone()
tensorflow  t  tf.constant(t.numpy())
jax         t  jnp.array(t.numpy())
numpy       x  x.numpy().copy()
torch       x  torch.tensor(x.numpy())
jax         x  jnp.array(x.numpy())
numpy       j  np.array(j)
torch       j  torch.tensor(np.asarray(j))
tensorflow  j  tf.constant(np.asarray(j))
jax         j  jnp.array(j, copy=True)
"""

_SHARE = """
numpy       a  np.asarray(a, copy=False)
torch       a  torch.from_numpy(a)
tensorflow  a  tf_dlpack.from_dlpack(a.__dlpack__())
jax         a  jnp.from_dlpack(a, copy=False)
numpy       t  t.numpy()
torch       t  torch.as_tensor(t)
tensorflow  t  tf_dlpack.from_dlpack(torch_dlpack.to_dlpack(t))
jax         t  jnp.from_dlpack(t, copy=False)
numpy       x  x.numpy()
torch       x  torch_dlpack.from_dlpack(tf_dlpack.to_dlpack(x))
jax         x  jnp.from_dlpack(x, copy=False)
numpy       j  np.asarray(j)
torch       j  torch.from_dlpack(j)
tensorflow  j  tf_dlpack.from_dlpack(j.__dlpack__())
"""

_NARROW = """
numpy       a  np.asarray(a)
torch       a  torch.from_numpy(a.view(np.int16)).view(torch.bfloat16)
tensorflow  a  tf.convert_to_tensor(a)
jax         a  jnp.asarray(a)
numpy       t  t.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
tensorflow  t  tf.constant(t.view(torch.int16).numpy().view(ml_dtypes.bfloat16))
jax         t  jnp.asarray(t.view(torch.int16).numpy().view(ml_dtypes.bfloat16))
list        t  t.tolist()
numpy       x  x.numpy()
torch       x  torch.tensor(x.numpy().view(np.int16)).view(torch.bfloat16)
jax         x  jnp.asarray(x.numpy())
numpy       j  np.asarray(j)
torch       j  torch.tensor(np.asarray(j).view(np.int16)).view(torch.bfloat16)
tensorflow  j  tf.convert_to_tensor(np.asarray(j))
"""

_GRADIENT = """
numpy       g  g.detach().numpy()
torch       g  torch.as_tensor(g)
tensorflow  g  tf.convert_to_tensor(g.detach().numpy())
jax         g  jnp.asarray(g.detach().numpy())
list        g  g.tolist()
"""

SECTIONS = (
    Section("Small: 16 float32, as called", _float32, _LANES),
    Section("Small: 16 bfloat16, as called", _bfloat16, _NARROW_LANES),
    Section("Planned path: 16 float32", _float32, _pairs(_DEFAULT), lanes=False),
    Section("Planned path: copy=True", _float32, _pairs(_COPY, ", copy=True"), lanes=False),
    Section("Planned path: copy=False", _float32, _pairs(_SHARE, ", copy=False"), lanes=False),
    Section("Planned path: 16 bfloat16", _bfloat16, _pairs(_NARROW), lanes=False),
    Section("Planned path: a tensor that requires grad", _float32, _pairs(_GRADIENT), lanes=False),
)
