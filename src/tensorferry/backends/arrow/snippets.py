"""The code that a person would type for each of Arrow's verbs."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from ..array_like.snippets import column_code

if TYPE_CHECKING:
    from ...core.info import TensorInfo

__all__ = ["snippet"]


def snippet(verb: str, arguments: tuple[Any, ...], info: TensorInfo) -> str:
    """See `Backend.snippet`."""
    if verb == "adopt" and len(info.shape) == 1:
        return "pa.array({x})"
    if verb == "adopt" and 0 in info.shape:
        # pyarrow refuses arrays without elements.
        kind, (rows, *shape) = (
            "pa.bool_()" if info.dtype == "bool" else f"pa.{info.dtype}()",
            info.shape,
        )
        storage = f"pa.array([[]] * {rows}, pa.list_({kind}, {prod(shape)}))"
        return f"pa.ExtensionArray.from_storage(pa.fixed_shape_tensor({kind}, {shape}), {storage})"
    if verb == "adopt":
        return "pa.FixedShapeTensorArray.from_numpy_ndarray({x})"
    if verb == "export" and len(info.shape) == 1 and not info.kind:
        return "{x}.to_numpy()"
    return column_code(info, arguments)
