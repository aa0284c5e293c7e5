"""What NumPy can do, and the code that a person would type for each of its verbs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ...core.capabilities import Capabilities, Dtypes, Memory, Objects, Options
from ...core.declaration import Code, Declared
from ...core.dtypes import (
    DTYPES,
    ORDINARY,
    casting_scale,
    cuts_off,
    find,
    is_misrounded,
    value_bits,
)
from ...core.layout import AXES
from ...core.names import EXCHANGE_NUMBERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...core.declaration import VerbCall
    from ...core.info import TensorInfo

__all__ = ["CAPABILITIES", "DECLARED", "cast_code", "narrow_code", "snippet", "write_code"]


def snippet(call: VerbCall) -> Code | str:
    """See `Backend.snippet`."""
    verb, arguments, info, x, details = call
    if verb == "cast":
        return cast_code(x, info, *arguments)
    if verb == "check":
        dtype, check = arguments
        return Code(x, remarks=_remarks(dtype, check))
    if verb == "write" and details.out is not None:
        return write_code(x, info, details.out)
    if verb == "copy" and info.swapped:
        if arguments and arguments[0]:
            order = ', order="C"'
        else:
            order = ""
        return f'{x}.astype("{info.dtype}"{order})'
    if verb == "copy" and arguments and arguments[0]:
        return f'{x}.copy(order="C")'
    if verb == "stack" and info.kind.name == "rows":
        return f'np.stack([ferry.to_numpy(row, dtype="{info.dtype}") for row in {x}])'
    if verb == "narrow":
        return narrow_code(x, info, *arguments)
    if verb == "span":
        itemsize = find(info.dtype).itemsize
        return f"np.lib.stride_tricks.as_strided({x}, ({arguments[0]},), ({itemsize},))"
    if verb == "read_only":
        return Code(x, ("y.flags.writeable = False",))
    return _SNIPPETS[verb](x)


_SNIPPETS: dict[str, Callable[[str], str]] = {
    "export": lambda x: f"np.asarray({x})",
    "read": lambda x: f"np.array({x})",
    "stack": lambda x: f"np.stack({x})",
    "pad": lambda x: f'ferry.collate([{{"x": row}} for row in {x}], "numpy", pad=0)["x"]',
    "copy": lambda x: f'{x}.copy(order="K")',
}


def narrow_code(x: str, info: TensorInfo, axes: tuple[int, ...]) -> str:
    """The code for the first elements along these axes."""
    parts = [":1" if axis in axes else ":" for axis in range(len(info.shape))]
    return f"{x}[{', '.join(parts)}]"


def write_code(x: str, info: TensorInfo, out: TensorInfo, into: str = "out") -> Code:
    """The code that writes an array into `out`, over whose memory `into` is an array."""
    if _differs(info.dtype, out.dtype):
        written = f"np.copyto({into}, {_our_code('y', info.dtype, out.dtype)})"
    else:
        values = _values_code("y", info.dtype, out.dtype)
        written = f'np.copyto({into}, {values}, casting="unsafe")'
    return Code(x, (written, "y = out"))


def _remarks(dtype: str, check: str) -> tuple[str, ...]:
    """What to say of the look at values before a cast."""
    if not check:
        return ()
    refused = {
        "value": f"{dtype} does not keep",
        "number": f"{dtype} has no place for",
        "finite": f"becomes infinite as {dtype}",
    }[check]
    return (f"before this, each value is looked at: one that {refused} is refused",)


def _compares() -> bool:
    """Whether the imported NumPy, if any, knows ``casting="same_value"``.

    (https://numpy.org/doc/2.4/release/2.4.0-notes.html)
    """
    return _version("numpy", "2.4") >= (2, 4)


def _version(module: str, otherwise: str) -> tuple[int, ...]:
    """The first two numbers of the version of a module, if it is imported."""
    version = str(getattr(sys.modules.get(module), "__version__", otherwise))
    return tuple(map(int, version.split(".")[:2]))


_SMALL = {"int2", "int4", "uint2", "uint4"}


def _casts(source: str, dtype: str) -> bool:
    """Whether NumPy has a cast between two dtypes.

    Some between two of ml_dtypes are missing, in 0.5 most.
    """
    pair = {source, dtype}
    if len(pair) == 1 or pair & ORDINARY:
        return True
    if "float8_e8m0fnu" in pair:
        return "bfloat16" in pair
    if pair <= _SMALL or (pair & _SMALL and _version("ml_dtypes", "0.6") < (0, 6)):
        return find(source).kind == find(dtype).kind and value_bits(source) < value_bits(dtype)
    return "float6_e2m3fn" not in pair or not pair & {"int4", "uint4"}


def _differs(source: str, dtype: str) -> bool:
    """Whether NumPy's cast does not give the bits of `tensorferry.host.casts`."""
    return is_misrounded(source, dtype) or cuts_off(source, dtype)


def _our_code(code: str, source: str, dtype: str) -> str:
    """The code for an array cast by us: NumPy would round twice, or leave its integers to C."""
    if casting_scale(source, dtype, None).check:
        casting = ', casting="unsafe"'
    else:
        casting = ""
    return f'ferry.to_numpy({code}, dtype="{dtype}"{casting})'


def _values_code(code: str, source: str, dtype: str) -> str:
    """The code for an array that NumPy casts with the same bits as `tensorferry.host.casts`."""
    if find(source).kind == "complex" and find(dtype).kind not in ("complex", "bool"):
        code = f"{code}.real"
    if _casts(source, dtype):
        return code
    return f'{code}.astype("float32")'


def cast_code(x: str, info: TensorInfo, dtype: str, check: str = "", compact: bool = False) -> Code:
    """The code for a cast, with a comment about checks that NumPy does not make."""
    if check != "value" and _differs(info.dtype, dtype):
        code = _our_code(x, info.dtype, dtype)
        if compact and len(info.shape) > 1:
            code = f'{code}.copy(order="C")'
        return Code(code, remarks=_remarks(dtype, check))
    values = _values_code(x, info.dtype, dtype)
    compares = check == "value" and values == x and {info.dtype, dtype} <= ORDINARY and _compares()
    if compares and info.dtype == "float16":
        # NumPy 2.4 refuses -0.0 from float16 to integers.
        values = f'{x}.astype("float32")'
    elif compares and info.swapped:
        # NumPy 2.4 does not check values in the other byte order.
        values = f'{x}.astype("{info.dtype}")'
    if dtype in ORDINARY:
        name = f'"{dtype}"'
    else:
        name = f"ml_dtypes.{dtype}"
    options = (', order="C"' if compact else "") + (', casting="same_value"' if compares else "")
    code = f"{values}.astype({name}{options})"
    if compares:
        return Code(code)
    return Code(code, remarks=_remarks(dtype, check))


# NumPy 1 had some of them, and in old code they still are.
_WORDS = {
    "byte": ("int8",),
    "int_": ("int64",),
    "uint": ("uint64",),
    **dict.fromkeys(("float", "float_"), ("float64",)),
    **dict.fromkeys(("complex", "complex_", "cfloat"), ("complex128",)),
}

CAPABILITIES = Capabilities(
    dtypes=Dtypes(frozenset(DTYPES), EXCHANGE_NUMBERS, words=_WORDS),
    memory=Memory(
        writable=True, axes=AXES, host_array=True, read_only=True, out=True, writes_parts=True
    ),
    objects=Objects(read_kinds=frozenset({"scalar"})),
    options=Options(frozenset({"pinned", "non_blocking"})),
)

DECLARED = Declared(
    "numpy",
    CAPABILITIES,
    snippet,
    {
        "np": "import numpy as np",
        "ml_dtypes": "import ml_dtypes",
        "ferry": "import tensorferry as ferry",
    },
)
