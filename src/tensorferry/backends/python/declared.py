"""What Python's numbers, sequences and buffers can do, and the code that a person would type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.capabilities import Capabilities, Dtypes, Memory, Objects
from ...core.declaration import Declared
from ...core.dtypes import DTYPES, ORDINARY, find
from ...core.names import EXCHANGE_NUMBERS
from ..numpy import declared as arrays

if TYPE_CHECKING:
    from ...core.info import TensorInfo

__all__ = ["CAPABILITIES", "DECLARED", "exact_scalar", "snippet"]

# np.array with these dtypes gives the same bits as a cast afterwards.
_NARROWED = {("float64", "float32"), ("complex128", "complex64")}


def snippet(verb: str, arguments: tuple[Any, ...], info: TensorInfo) -> str:
    """See `Backend.snippet`."""
    if verb == "adopt":
        if info.dtype in ORDINARY:
            wider = ""
        else:
            wider = f".astype(np.{exact_scalar(info.dtype)})"
        return f"{{x}}{wider}.tolist()"
    if verb == "give_back":
        if arguments[0] == info.dtype:
            as_read = "np.array({x})"
        else:
            as_read = snippet("read", arguments, info)
        remark, line, as_read = as_read.rpartition("\n")
        return (
            remark
            + line
            + snippet("adopt", (), info._replace(dtype=arguments[0])).format(x=as_read)
        )
    if verb == "detach":
        # The members leave the graph when they become arrays.
        if info.kind.name in ("rows", "padded"):
            if arguments:
                return "[ferry.to_numpy(row) for row in {x}]"
            return "{x}"
        return "[tensor.detach() for tensor in {x}]"
    if verb == "export":
        return "np.asarray(memoryview({x}))"
    return _read_code(arguments[0] if verb == "read" and arguments else info.dtype, arguments, info)


def _read_code(dtype: str, arguments: tuple[Any, ...], info: TensorInfo) -> str:
    """The code that reads numbers into an array of a dtype."""
    if info.kind.name == "objects" and not info.size:
        return f'np.empty({info.shape}, "{dtype}")'
    if info.kind.name == "objects":
        numbers = "{x}.tolist()"
    else:
        numbers = "{x}"
    if (info.dtype, dtype) in _NARROWED:
        return f'np.array({numbers}, dtype="{dtype}")'
    # Without a dtype, NumPy makes floats from large integers beside small ones.
    if info.dtype == "uint64":
        read = f'np.array({numbers}, dtype="uint64")'
    else:
        read = f"np.array({numbers})"
    if dtype == info.dtype:
        return read
    return arrays.snippet("cast", arguments, info).format(x=read)


def exact_scalar(name: str) -> str:
    """An ordinary dtype that has all values of a narrow one."""
    return {"int": "int8", "uint": "uint8", "float": "float32"}[find(name).kind]


CAPABILITIES = Capabilities(
    dtypes=Dtypes(frozenset(DTYPES), EXCHANGE_NUMBERS),
    memory=Memory(writable=True, exists=False, host_array=True),
    objects=Objects(
        ordinary_kind="numbers",
        read_kinds=frozenset({"numbers", "objects", "rows", "stack", "padded", "new"}),
    ),
)

DECLARED = Declared(
    "python",
    CAPABILITIES,
    snippet,
    {"np": "import numpy as np", "ferry": "import tensorferry as ferry"},
)
