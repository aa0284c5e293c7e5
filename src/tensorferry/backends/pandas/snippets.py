"""The code that a person would type for each of pandas' verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...core.info import TensorInfo

__all__ = ["snippet"]


def snippet(verb: str, arguments: tuple[Any, ...], info: TensorInfo) -> str:  # noqa: ARG001 - one signature for all
    """See `Backend.snippet`."""
    if verb == "adopt":
        return f"pd.{'Series' if len(info.shape) == 1 else 'DataFrame'}({{x}}, copy=False)"
    if verb == "export" and "counting" not in info.kind:
        return "{x}.to_numpy()"
    return "ferry.to_numpy({x})"
