"""The code that a person would type for each of CuPy's verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.dtypes import DTYPES
from ..numpy import snippets as arrays

if TYPE_CHECKING:
    from ...core.info import TensorInfo

__all__ = ["AS_INTEGERS", "snippet"]

# CuPy stores these dtypes, but its arithmetic for them is not reliable
# (https://github.com/cupy/cupy/issues/9630). They are copied and exported as integers of the same
# width.
AS_INTEGERS = frozenset(name for name in DTYPES if name == "bfloat16" or name.startswith("float8"))


def snippet(verb: str, arguments: tuple[Any, ...], info: TensorInfo) -> str:
    """See `Backend.snippet`."""
    if verb == "cast":
        return f'{{x}}.astype("{arguments[0]}")'
    if verb == "view":
        return _view_code("{x}", arguments[0])
    if verb in ("move", "place"):
        index = arguments[0].partition(":")[2]
        code = _by_integers("cupy.asarray({x})", info.dtype)
        return (
            f"with cupy.cuda.Device({index}): {{y}} = {code.replace('{x}', '{y}')}"
            if index
            else code
        )
    if verb == "write":
        return _write_code(*arguments, info=info)
    if verb == "take":
        return "cupy.from_dlpack({x})" if arguments[0] == "__dlpack__" else "cupy.asarray({x})"
    return _by_integers(_SNIPPETS[verb], info.dtype) if verb in _COPIES else _SNIPPETS[verb]


_SNIPPETS = {
    "fetch": "{x}.get()",
    "copy": "{x}.copy()",
    "compact": "cupy.ascontiguousarray({x})",
    "wait": "cupy.cuda.get_current_stream().synchronize() or {x}",
    "import_dlpack": "cupy.from_dlpack({x})",
}
_COPIES = ("fetch", "copy", "compact")
"""Verbs whose functions CuPy does not have for every dtype that it stores."""


def _view_code(code: str, dtype: str) -> str:
    """The code for an array as another dtype of the same width."""
    return f"{code}.view(ml_dtypes.{dtype})" if dtype in AS_INTEGERS else f'{code}.view("{dtype}")'


def _by_integers(code: str, dtype: str) -> str:
    """Code that moves elements; those of a dtype that CuPy only stores, as integers of the same width."""
    if dtype not in AS_INTEGERS:
        return code
    return _view_code(code.replace("{x}", _view_code("{x}", _integer(dtype))), dtype)


def _integer(dtype: str) -> str:
    return f"uint{8 * DTYPES[dtype].itemsize}"


def _write_code(out: TensorInfo, own: str = "", overlaps: bool = False, *, info: TensorInfo) -> str:  # noqa: ARG001 - as other backends
    """The code that writes an array, cast by NumPy, into `out`; or a CuPy array of its dtype."""
    into = _view_code("out", _integer(out.dtype)) if out.dtype in AS_INTEGERS else "out"
    if own:
        values = "{y}" if into == "out" else _view_code("{y}", _integer(out.dtype))
        return f"{into}[...] = {values}; {{y}} = out"
    values = "{y}"
    if info.dtype != out.dtype or info.swapped:
        values = arrays.snippet("cast", (out.dtype,), info).replace("{x}", values)
    if out.is_compact:
        return f"out.set({values}); {{y}} = out"
    values = values if into == "out" else _view_code(values, _integer(out.dtype))
    return f"{into}[...] = cupy.asarray({values}); {{y}} = out"
