"""What a person would type for each of polars' verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...core.info import TensorInfo

__all__ = ["snippet"]


def snippet(verb: str, arguments: tuple[Any, ...], info: TensorInfo) -> str:  # noqa: ARG001 - one signature for all
    """The code for a verb of the backend on ``{x}``; `info` is what it is then."""
    if verb == "adopt":
        return "pl.Series({x})" if len(info.shape) == 1 else "pl.from_numpy({x})"
    if verb == "export" and not info.kind:
        return "{x}.to_numpy()"
    return "ferry.to_numpy({x})"
