"""What Python's numbers, sequences and buffers can do, and the code that a person would type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.capabilities import Capabilities, Dtypes, Memory, Objects
from ...core.declaration import Code, Declared
from ...core.dtypes import DTYPES, ORDINARY, find
from ...core.info import JOINS, NUMBERS, PADDED
from ...core.names import EXCHANGE_NUMBERS
from ..numpy import declared as arrays

if TYPE_CHECKING:
    from ...core.declaration import VerbCall
    from ...core.info import TensorInfo

__all__ = ["CAPABILITIES", "DECLARED", "exact_scalar", "snippet"]

# np.array with these dtypes gives the same bits as a cast afterwards.
_NARROWED = {("float64", "float32"), ("complex128", "complex64")}


def snippet(call: VerbCall) -> Code | str:
    """See `Backend.snippet`."""
    verb, arguments, info, x, details = call
    if verb == "adopt":
        return _list_code(x, info.dtype)
    if verb == "give_back":
        dtype, check = arguments
        if dtype == info.dtype:
            return _list_code(f"np.array({x})", dtype)
        read = _read_code(x, info, dtype, check)
        return read._replace(expression=_list_code(read.expression, dtype))
    if verb == "detach":
        if info.kind not in ("rows", PADDED):
            return f"[tensor.detach() for tensor in {x}]"
        # The members leave the graph when they become arrays.
        if details.in_hint:
            return f"[to_numpy(row) for row in {x}]"
        return x
    if verb == "export":
        return f"np.asarray(memoryview({x}))"
    if verb == "read" and arguments:
        return _read_code(x, info, *arguments)
    return _read_code(x, info, info.dtype)


def _list_code(x: str, dtype: str) -> str:
    """The code for the numbers of an array."""
    if dtype in ORDINARY:
        return f"{x}.tolist()"
    return f"{x}.astype(np.{exact_scalar(dtype)}).tolist()"


def _read_code(
    x: str, info: TensorInfo, dtype: str, check: str = "", compact: bool = False
) -> Code:
    """The code that reads numbers into an array of a dtype."""
    if info.kind == "objects" and not info.size:
        return Code(f'np.empty({info.shape}, "{dtype}")')
    if info.kind == "objects":
        numbers = f"{x}.tolist()"
    else:
        numbers = x
    if (info.dtype, dtype) in _NARROWED:
        return Code(f'np.array({numbers}, dtype="{dtype}")')
    # Without a dtype, NumPy makes floats from large integers beside small ones.
    if info.dtype == "uint64":
        read = f'np.array({numbers}, dtype="uint64")'
    else:
        read = f"np.array({numbers})"
    if dtype == info.dtype:
        return Code(read)
    return arrays.cast_code(read, info, dtype, check, compact)


def exact_scalar(name: str) -> str:
    """An ordinary dtype that has all values of a narrow one."""
    return {"int": "int8", "uint": "uint8", "float": "float32"}[find(name).kind]


CAPABILITIES = Capabilities(
    dtypes=Dtypes(frozenset(DTYPES), EXCHANGE_NUMBERS),
    memory=Memory(writable=True, exists=False, host_array=True),
    objects=Objects(ordinary_kind="numbers", read_kinds=NUMBERS | JOINS.keys() | {"new"}),
)

DECLARED = Declared(
    "python",
    CAPABILITIES,
    snippet,
    {"np": "import numpy as np", "ferry": "import tensorferry as ferry"},
)
