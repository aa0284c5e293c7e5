"""The code that a person would type for each of polars' verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..array_like.snippets import column_code

if TYPE_CHECKING:
    from ...core.info import TensorInfo

__all__ = ["snippet"]


def snippet(verb: str, arguments: tuple[Any, ...], info: TensorInfo) -> str:
    """See `Backend.snippet`."""
    if verb == "adopt":
        return "pl.Series({x})" if len(info.shape) == 1 else "pl.from_numpy({x})"
    if verb == "label":
        _, names = arguments
        return (
            f"{{x}}.alias({names})"
            if len(info.shape) == 1
            else f"{{x}}.rename(dict(zip({{x}}.columns, {names})))"
        )
    # A series of lists gives an array of objects.
    if verb == "export" and len(info.shape) == 1 and not info.kind:
        return "{x}.to_numpy()"
    return column_code(info, arguments)
