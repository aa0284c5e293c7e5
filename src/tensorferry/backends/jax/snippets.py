"""The code that a person would type for each of JAX's verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...core.info import TensorInfo

__all__ = ["snippet"]


def snippet(verb: str, arguments: tuple[Any, ...], info: TensorInfo) -> str:  # noqa: ARG001 - one signature for all
    """See `Backend.snippet`."""
    if verb == "cast":
        return f'{{x}}.astype("{arguments[0]}")'
    if verb == "move":
        kind, _, index = arguments[0].partition(":")
        platform = "gpu" if kind == "cuda" else kind
        return f'jax.device_put({{x}}, jax.devices("{platform}")[{index or 0}])'
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
