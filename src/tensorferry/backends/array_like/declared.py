"""What is declared for objects without a backend of their own, and the code for their verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.capabilities import Capabilities, Dtypes, Memory, Objects
from ...core.declaration import Code, Declared
from ...core.dtypes import DTYPES, ORDINARY
from ...core.kinds import APART
from ...core.layout import compact_strides

if TYPE_CHECKING:
    from ...core.declaration import VerbCall
    from ...core.info import TensorInfo

__all__ = [
    "CAPABILITIES",
    "DECLARED",
    "LIBRARIES",
    "NAME",
    "column_code",
    "snippet",
]


def snippet(call: VerbCall) -> Code | str:
    """See `Backend.snippet`."""
    info, x = call.info, call.x
    native = info.dtype in ORDINARY
    if info.kind.is_column:
        return column_code(call)
    if not info.kind.by_dlpack:
        if call.verb == "read":
            if native:
                return f'np.array({x}, dtype="{info.dtype}")'
            return f"np.array({x})"
        return f"np.asarray({x})"
    if native:
        if call.verb == "read":
            return f"np.from_dlpack({x}).copy()"
        return f"np.from_dlpack({x})"
    remark = f"NumPy's from_dlpack does not know {info.dtype}"
    return Code(f"ferry.to_numpy({x})", remarks=(remark,))


def column_code(call: VerbCall) -> str:
    """The call for the values of a column or a table, except what comes from a later step."""
    info, details, kind = call.info, call.details, call.info.kind
    dtype = _dtype_in_call(info, details.dtype)
    inputs = [call.x]
    if dtype:
        inputs.append(f'dtype="{dtype}"')
    if dtype and details.casting:
        inputs.append(f'casting="{details.casting}"')
    if kind.filled == "nan":
        inputs.append('nulls="nan"')
    elif kind.filled:
        inputs.append(f"nulls={_number(kind.filled)}")
    if kind.padded:
        inputs.append(f"pad={_number(kind.padded)}")
    # NumPy gets a table in column order. The plan says if the target needs row order.
    by_rows = info.strides == compact_strides(info.shape, DTYPES[info.dtype].itemsize)
    if APART in kind.reasons and by_rows:
        in_rows = '.copy(order="C")'
    else:
        in_rows = ""
    return f"ferry.to_numpy({', '.join(inputs)}){in_rows}"


def _dtype_in_call(info: TensorInfo, asked: str | None) -> str:
    """The dtype that the call for a column names; empty if it names none."""
    named = {reason.names_dtype for reason in info.kind.reasons}
    if info.kind.counts:
        named.add("always")
    if asked in DTYPES and named & {"if asked", "always"}:
        return asked
    if "always" in named:
        return info.dtype
    return ""


def _number(text: str) -> str:
    """A number as code: NaN and infinity have no literals."""
    if text.endswith(("nan", "inf")):
        return f'float("{text}")'
    return text


NAME = "array-like"


LIBRARIES = ("PIL", "dask", "datasets", "h5py", "scipy", "xarray", "zarr")
"""The top-level modules of libraries whose objects are opened otherwise than by their protocols."""

CAPABILITIES = Capabilities(
    dtypes=Dtypes(frozenset(), {}),
    memory=Memory(writable=True, host_array=True),
    objects=Objects(ordinary_kind="object", reads_copies=True),
)

DECLARED = Declared(
    NAME,
    CAPABILITIES,
    snippet,
    {"np": "import numpy as np", "ferry": "import tensorferry as ferry"},
)
