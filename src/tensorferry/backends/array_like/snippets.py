"""What a person would type to get at the values of another library's object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.dtypes import ORDINARY

if TYPE_CHECKING:
    from ...core.info import TensorInfo

__all__ = ["COLUMN", "DLPACK", "PALETTE", "snippet"]

DLPACK = ".__dlpack__"
"""How a kind ends if the object has offered its memory by this method."""
COLUMN = " column"
"""What a kind says of a column that is known by Arrow's interfaces, or of which something was said."""
PALETTE = " of palette indices"
"""How a kind ends if the numbers stand for colours that another table has."""


def snippet(verb: str, arguments: tuple[Any, ...], info: TensorInfo) -> str:  # noqa: ARG001 - one signature for all
    """The code for a verb of the backend on ``{x}``; `info` is what it is then."""
    native = info.dtype in ORDINARY
    if COLUMN in f" {info.kind}":
        return "ferry.to_numpy({x})"
    if not info.kind.endswith(DLPACK):
        if verb == "read":
            return f'np.array({{x}}, dtype="{info.dtype}")' if native else "np.array({x})"
        return "np.asarray({x})"
    if native:
        return "np.from_dlpack({x}).copy()" if verb == "read" else "np.from_dlpack({x})"
    return f"# NumPy's from_dlpack does not know {info.dtype}\nferry.to_numpy({{x}})"
