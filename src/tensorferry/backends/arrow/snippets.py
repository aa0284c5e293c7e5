"""The code that a person would type for each of Arrow's verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..array_like.snippets import column_code

if TYPE_CHECKING:
    from ...core.info import TensorInfo

__all__ = ["snippet"]


def snippet(verb: str, arguments: tuple[Any, ...], info: TensorInfo) -> str:
    """See `Backend.snippet`."""
    if verb == "adopt":
        return "pa.array({x})" if len(info.shape) == 1 else "pa.FixedShapeTensorArray.from_numpy_ndarray({x})"
    if verb == "export" and len(info.shape) == 1 and not info.kind:
        return "{x}.to_numpy()"
    return column_code(info, arguments)
