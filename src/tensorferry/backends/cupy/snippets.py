"""The code that a person would type for each of CuPy's verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...core.info import TensorInfo

__all__ = ["snippet"]


def snippet(verb: str, arguments: tuple[Any, ...], info: TensorInfo) -> str:  # noqa: ARG001 - one signature for all
    """See `Backend.snippet`."""
    if verb == "cast":
        return f'{{x}}.astype("{arguments[0]}")'
    if verb in ("move", "place"):
        index = arguments[0].partition(":")[2]
        return f"with cupy.cuda.Device({index}): {{y}} = cupy.asarray({{y}})" if index else "cupy.asarray({x})"
    if verb == "write" and len(arguments) > 1:
        return "out[...] = {y}; {y} = out"
    return _SNIPPETS[verb]


_SNIPPETS = {
    "fetch": "{x}.get()",
    "copy": "{x}.copy()",
    "compact": "cupy.ascontiguousarray({x})",
    "wait": "cupy.cuda.get_current_stream().synchronize() or {x}",
    "import_dlpack": "cupy.from_dlpack({x})",
    "write": "out.set({y}); {y} = out",
}
