"""What CuPy can do, and the code that a person would type for each of its verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.capabilities import Capabilities, Devices, Dtypes, Memory, Objects
from ...core.declaration import Code, Declared
from ...core.dtypes import DTYPES, ORDINARY
from ...core.names import EXCHANGE_NUMBERS
from ..numpy import declared as arrays

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...core.declaration import VerbCall
    from ...core.info import TensorInfo

__all__ = ["AS_INTEGERS", "CAPABILITIES", "DECLARED", "snippet"]

# CuPy stores these dtypes, but its arithmetic for them is not reliable
# (https://github.com/cupy/cupy/issues/9630). They are copied and exported as integers of the same
# width.
AS_INTEGERS = frozenset(name for name in DTYPES if name == "bfloat16" or name.startswith("float8"))


def snippet(call: VerbCall) -> Code | str:
    """See `Backend.snippet`."""
    verb, arguments, info, x, details = call
    if verb == "cast":
        return f'{x}.astype("{arguments[0]}")'
    if verb == "view":
        return _view_code(x, arguments[0])
    if verb in ("move", "place"):
        return _place_code(x, info.dtype, arguments[0])
    if verb == "write" and details.out is not None:
        return _write_code(x, info, details.out, is_own=details.is_own)
    if verb == "take":
        if info.kind == "__dlpack__":
            return f"cupy.from_dlpack({x})"
        return f"cupy.asarray({x})"
    if verb in _COPIES:
        return _by_integers(_COPIES[verb], x, info.dtype)
    return _SNIPPETS[verb](x)


_SNIPPETS: dict[str, Callable[[str], str]] = {
    "wait": lambda x: f"cupy.cuda.get_current_stream().synchronize() or {x}",
    "import_dlpack": lambda x: f"cupy.from_dlpack({x})",
}
_COPIES: dict[str, Callable[[str], str]] = {
    "fetch": lambda x: f"{x}.get()",
    "copy": lambda x: f"{x}.copy()",
    "compact": lambda x: f"cupy.ascontiguousarray({x})",
    "place": lambda x: f"cupy.asarray({x})",
}
"""Verbs whose functions CuPy does not have for every dtype that it stores."""


def _view_code(code: str, dtype: str) -> str:
    """The code for an array as another dtype of the same width."""
    if dtype in AS_INTEGERS:
        return f"{code}.view(ml_dtypes.{dtype})"
    return f'{code}.view("{dtype}")'


def _by_integers(code: Callable[[str], str], x: str, dtype: str) -> str:
    """Code that moves elements; of a dtype that CuPy only stores, as integers of the same width."""
    if dtype not in AS_INTEGERS:
        return code(x)
    return _view_code(code(_view_code(x, _integer(dtype))), dtype)


def _place_code(x: str, dtype: str, device: str) -> Code:
    """The code for an array on a device."""
    index = device.partition(":")[2]
    if not index:
        return Code(_by_integers(_COPIES["place"], x, dtype))
    placed = _by_integers(_COPIES["place"], "y", dtype)
    return Code(x, (f"with cupy.cuda.Device({index}): y = {placed}",))


def _integer(dtype: str) -> str:
    return f"uint{8 * DTYPES[dtype].itemsize}"


def _write_code(x: str, info: TensorInfo, out: TensorInfo, *, is_own: bool) -> Code:
    """The code that writes an array, cast by NumPy, into `out`; or a CuPy array of its dtype."""
    if out.dtype in AS_INTEGERS:
        into = _view_code("out", _integer(out.dtype))
    else:
        into = "out"
    values = "y"
    if not is_own and (info.dtype != out.dtype or info.swapped):
        values = arrays.cast_code(values, info, out.dtype).expression
    if not is_own and out.is_compact:
        return Code(x, (f"out.set({values})", "y = out"))
    if into != "out":
        values = _view_code(values, _integer(out.dtype))
    if not is_own:
        values = f"cupy.asarray({values})"
    return Code(x, (f"{into}[...] = {values}", "y = out"))


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
