"""What CuPy can do, and the code that a person would type for each of its verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.capabilities import Capabilities, Devices, Dtypes, Memory, Objects
from ...core.declaration import Declared
from ...core.dtypes import DTYPES, ORDINARY
from ...core.names import EXCHANGE_NUMBERS
from ..numpy import declared as arrays

if TYPE_CHECKING:
    from ...core.info import TensorInfo

__all__ = ["AS_INTEGERS", "CAPABILITIES", "DECLARED", "snippet"]

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
        if index:
            return f"with cupy.cuda.Device({index}): {{y}} = {code.replace('{x}', '{y}')}"
        return code
    if verb == "write":
        return _write_code(*arguments, info=info)
    if verb == "take":
        if arguments[0] == "__dlpack__":
            return "cupy.from_dlpack({x})"
        return "cupy.asarray({x})"
    if verb in _COPIES:
        return _by_integers(_SNIPPETS[verb], info.dtype)
    return _SNIPPETS[verb]


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
    if dtype in AS_INTEGERS:
        return f"{code}.view(ml_dtypes.{dtype})"
    return f'{code}.view("{dtype}")'


def _by_integers(code: str, dtype: str) -> str:
    """Code that moves elements; of a dtype that CuPy only stores, as integers of the same width."""
    if dtype not in AS_INTEGERS:
        return code
    return _view_code(code.replace("{x}", _view_code("{x}", _integer(dtype))), dtype)


def _integer(dtype: str) -> str:
    return f"uint{8 * DTYPES[dtype].itemsize}"


def _write_code(out: TensorInfo, own: str = "", overlaps: bool = False, *, info: TensorInfo) -> str:  # noqa: ARG001 - as other backends
    """The code that writes an array, cast by NumPy, into `out`; or a CuPy array of its dtype."""
    if out.dtype in AS_INTEGERS:
        into = _view_code("out", _integer(out.dtype))
    else:
        into = "out"
    if own:
        if into == "out":
            values = "{y}"
        else:
            values = _view_code("{y}", _integer(out.dtype))
        return f"{into}[...] = {values}; {{y}} = out"
    values = "{y}"
    if info.dtype != out.dtype or info.swapped:
        values = arrays.snippet("cast", (out.dtype,), info).replace("{x}", values)
    if out.is_compact:
        return f"out.set({values}); {{y}} = out"
    if into != "out":
        values = _view_code(values, _integer(out.dtype))
    return f"{into}[...] = cupy.asarray({values}); {{y}} = out"


# CuPy compiles its kernels with -ftz=true, so these casts turn subnormal float32 into zero
# (measured on CuPy 14.2 and an H200 with random bits; its other casts gave NumPy's values).
_FLUSHED = frozenset(
    {
        ("float32", "float64"),
        ("float32", "complex128"),
        ("float64", "float32"),
        ("complex64", "complex128"),
        ("complex128", "complex64"),
    }
)
_WORDS = {
    "byte": ("int8",),
    "int_": ("int64",),
    "uint": ("uint64",),
    "float_": ("float64",),
    **dict.fromkeys(("complex_", "cfloat"), ("complex128",)),
}
_PACKED = frozenset(DTYPES) - ORDINARY - AS_INTEGERS

CAPABILITIES = Capabilities(
    dtypes=Dtypes(
        held=ORDINARY | AS_INTEGERS,
        numbers=EXCHANGE_NUMBERS,
        uncast=AS_INTEGERS,
        uncast_pairs=_FLUSHED,
        unnamed=AS_INTEGERS,
        absent_reasons=dict.fromkeys(_PACKED, ": its elements are narrower than a byte"),
        words=_WORDS,
    ),
    memory=Memory(writable=True, out=True, writes_own=True),
    devices=Devices(("cuda",), fetches=True, packs=True, exports_dlpack=True),
    objects=Objects(taken_kinds=frozenset({"__dlpack__", "__cuda_array_interface__"})),
)

DECLARED = Declared("cupy", CAPABILITIES, snippet, {"cupy": "import cupy"})
