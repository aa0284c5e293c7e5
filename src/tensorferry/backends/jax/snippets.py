"""The code that a person would type for each of JAX's verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.devices import HOST
from ...core.dtypes import find
from ..numpy import snippets as arrays

if TYPE_CHECKING:
    from ...core.info import TensorInfo

__all__ = ["loses_imaginary", "snippet"]


def snippet(verb: str, arguments: tuple[Any, ...], info: TensorInfo) -> str:
    """See `Backend.snippet`."""
    if verb == "cast":
        return _cast_code(*arguments, info=info)
    if verb == "view":
        return (
            f'# tensorferry uses this memory; view copies it in JAX\n{{x}}.view("{arguments[0]}")'
        )
    if verb == "move":
        return f"jax.device_put({{x}}, {_device_code(arguments[0])})"
    return _SNIPPETS[verb]


_SNIPPETS = {
    "export": "np.asarray({x})",
    "fetch": "np.array({x})",
    "adopt": "jax.device_put({x})",
    "wait": "{x}.block_until_ready()",
    "copy": "jnp.array({x}, copy=True)",
    "import_dlpack": "jax.dlpack.from_dlpack({x})",
    "place_over": "# sharding is what was given as device=\njax.device_put({x}, sharding)",
}


def loses_imaginary(before: str, after: str) -> bool:
    """Whether a cast leaves out the imaginary part, for which JAX wants ``.real`` to be written."""
    return find(before).kind == "complex" and find(after).kind not in ("complex", "bool")


def _cast_code(dtype: str, check: str = "", caster: str = "", *, info: TensorInfo) -> str:
    """The code for a cast by JAX, or by NumPy, which XLA does not always agree with."""
    if not caster:
        real = ".real" if loses_imaginary(info.dtype, dtype) else ""
        return f'{{x}}{real}.astype("{dtype}")'
    remark, line, values = arrays.snippet("cast", (dtype, check), info).rpartition("\n")
    place = _device_code(HOST) if info.device == HOST and info.shards == 1 else "{x}.sharding"
    return f"{remark}{line}jax.device_put({values.replace('{x}', 'np.asarray({x})')}, {place})"


def _device_code(device: str) -> str:
    kind, _, index = device.partition(":")
    return f'jax.devices("{"gpu" if kind == "cuda" else kind}")[{index or 0}]'
