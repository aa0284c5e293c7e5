"""What a person would type for each verb on Python's numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.dtypes import ORDINARY, find
from ...core.info import PADDED
from ..numpy import snippets as arrays

if TYPE_CHECKING:
    from ...core.info import TensorInfo

__all__ = ["exact_scalar", "snippet"]

# np.array rounds to these as it reads, to the same bits.
_NARROWED = {("float64", "float32"), ("complex128", "complex64")}


def snippet(verb: str, arguments: tuple[Any, ...], info: TensorInfo) -> str:
    """The code for a verb of the backend on ``{x}``; `info` is what it is then."""
    if verb == "adopt":
        wider = "" if info.dtype in ORDINARY else f".astype(np.{exact_scalar(info.dtype)})"
        return f"{{x}}{wider}.tolist()"
    if verb == "give_back":
        as_read = "np.array({x})" if arguments[0] == info.dtype else snippet("read", arguments, info)
        remark, line, as_read = as_read.rpartition("\n")
        return remark + line + snippet("adopt", (), info._replace(dtype=arguments[0])).format(x=as_read)
    if verb == "detach":
        # Members leave the graph one by one, when they become arrays.
        if info.kind in ("rows", PADDED):
            return "[ferry.to_numpy(row) for row in {x}]" if arguments else "{x}"
        return "[tensor.detach() for tensor in {x}]"
    if verb == "export":
        return "np.asarray(memoryview({x}))"
    return _read_code(arguments[0] if verb == "read" and arguments else info.dtype, arguments, info)


def _read_code(dtype: str, arguments: tuple[Any, ...], info: TensorInfo) -> str:
    """What is read, as an array of a dtype."""
    if info.kind == "objects" and not info.size:
        return f'np.empty({info.shape}, "{dtype}")'
    numbers = "{x}.tolist()" if info.kind == "objects" else "{x}"
    if (info.dtype, dtype) in _NARROWED:
        return f'np.array({numbers}, dtype="{dtype}")'
    # By itself NumPy takes integers of 64 bits beside negative or smaller ones for floats.
    read = f'np.array({numbers}, dtype="uint64")' if info.dtype == "uint64" else f"np.array({numbers})"
    if dtype == info.dtype:
        return read
    return arrays.snippet("cast", arguments, info).format(x=read)


def exact_scalar(name: str) -> str:
    """A dtype of the machine's that holds each value of a narrow one."""
    return {"int": "int8", "uint": "uint8", "float": "float32"}[find(name).kind]
