"""The code that a person would type for each of pandas' verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.info import COUNTING
from ..array_like.snippets import column_code

if TYPE_CHECKING:
    from ...core.info import TensorInfo

__all__ = ["snippet"]


def snippet(verb: str, arguments: tuple[Any, ...], info: TensorInfo) -> str:
    """See `Backend.snippet`."""
    if verb == "adopt":
        return f"pd.{'Series' if len(info.shape) == 1 else 'DataFrame'}({{x}}, copy=False)"
    if verb == "label":
        return _labelled(*arguments, is_column=len(info.shape) == 1)
    # A series of lists in Arrow's memory, which nobody writes to, gives pandas' arrays of objects.
    if verb == "export" and COUNTING not in info.kind and (len(info.shape) == 1 or info.mutable):
        return "{x}.to_numpy()"
    return column_code(info, arguments)


def _labelled(index: str | None, names: str | None, *, is_column: bool) -> str:
    """The code for an index and names, which are given as code."""
    code = "{x}" if index is None else f"{{x}}.set_axis({index})"
    if names is None:
        return code
    return f"{code}.rename({names})" if is_column else f"{code}.set_axis({names}, axis=1)"
