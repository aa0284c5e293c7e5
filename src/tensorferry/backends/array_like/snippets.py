"""The code that a person would type to get the values of another library's object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.dtypes import ORDINARY
from ...core.info import READ_AS

if TYPE_CHECKING:
    from ...core.info import TensorInfo

__all__ = ["COLUMN", "DLPACK", "FILLED", "PALETTE", "snippet"]

DLPACK = ".__dlpack__"
"""The end of a `TensorInfo.kind` if the object gives its memory by this method."""
COLUMN = "column"
"""In a `TensorInfo.kind`: a column that is known by Arrow's interfaces, or whose nulls were replaced."""
FILLED = " with nulls as "
"""In a `TensorInfo.kind`: before the value that replaces nulls."""
PALETTE = " of palette indices"
"""The end of a `TensorInfo.kind` if the numbers are indices into a table of colours."""


def snippet(verb: str, arguments: tuple[Any, ...], info: TensorInfo) -> str:  # noqa: ARG001 - one signature for all
    """See `Backend.snippet`."""
    native = info.dtype in ORDINARY
    if f" {COLUMN}" in f" {info.kind}":
        value = info.kind.partition(FILLED)[2].partition(": ")[0]
        number = f'"{value}"' if value == "nan" else f'float("{value}")' if value.endswith("inf") else value
        dtype = f'dtype="{info.dtype}", ' if READ_AS in info.kind else ""
        return f"ferry.to_numpy({{x}}, {dtype}nulls={number})" if value else "ferry.to_numpy({x})"
    if not info.kind.endswith(DLPACK):
        if verb == "read":
            return f'np.array({{x}}, dtype="{info.dtype}")' if native else "np.array({x})"
        return "np.asarray({x})"
    if native:
        return "np.from_dlpack({x}).copy()" if verb == "read" else "np.from_dlpack({x})"
    return f"# NumPy's from_dlpack does not know {info.dtype}\nferry.to_numpy({{x}})"
