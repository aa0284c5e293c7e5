"""The code that a person would type for each of Arrow's verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...core.info import TensorInfo

__all__ = ["snippet"]


def snippet(verb: str, arguments: tuple[Any, ...], info: TensorInfo) -> str:  # noqa: ARG001 - one signature for all
    """See `Backend.snippet`."""
    if verb == "adopt":
        return "pa.array({x})" if len(info.shape) == 1 else "pa.FixedShapeTensorArray.from_numpy_ndarray({x})"
    if verb == "export" and len(info.shape) == 1 and not info.kind:
        return "{x}.to_numpy()"
    return "ferry.to_numpy({x})"
