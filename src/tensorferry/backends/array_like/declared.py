"""What is declared for objects without a backend of their own, and the code for their verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.capabilities import Capabilities, Dtypes, Memory, Objects
from ...core.declaration import Code, Declared
from ...core.dtypes import DTYPES, ORDINARY
from ...core.info import APART, COPIED_KINDS, COUNTING, READ_AS
from ...core.layout import compact_strides

if TYPE_CHECKING:
    from ...core.declaration import VerbCall

__all__ = [
    "CAPABILITIES",
    "COLUMN",
    "DECLARED",
    "DLPACK",
    "FILLED",
    "LIBRARIES",
    "NAME",
    "PADDED_WITH",
    "PALETTE",
    "column_code",
    "snippet",
]

DLPACK = ".__dlpack__"
"""The end of a `TensorInfo.kind` if the object gives its memory by this method."""
COLUMN = "column"
"""In a `TensorInfo.kind`: a column known by Arrow's interfaces, or whose nulls were replaced."""
PALETTE = " of palette indices"
"""The end of a `TensorInfo.kind` if the numbers are indices into a table of colours."""

FILLED, PADDED_WITH = " with nulls as ", " padded with "
"""In a `TensorInfo.kind`: before the value that replaces nulls, and the one that pads rows."""
_AS_ASKED = (READ_AS, "decimals", "encoded ", "Python objects")
"""In the reasons for a copy: the values may be read differently if a dtype is named."""


def snippet(call: VerbCall) -> Code | str:
    """See `Backend.snippet`."""
    info, x = call.info, call.x
    native = info.dtype in ORDINARY
    if f" {COLUMN}" in f" {info.kind}":
        return column_code(call)
    if not info.kind.endswith(DLPACK):
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
    info, details = call.info, call.details
    text, _, reasons = info.kind.partition(": ")
    dtype = _dtype_in_call(info.dtype, details.dtype, COUNTING in text, reasons)
    inputs = [call.x]
    if dtype:
        inputs.append(f'dtype="{dtype}"')
    if dtype and details.casting:
        inputs.append(f'casting="{details.casting}"')
    filled, _, padded = text.partition(PADDED_WITH)
    value = filled.partition(FILLED)[2]
    if value == "nan":
        inputs.append('nulls="nan"')
    elif value:
        inputs.append(f"nulls={_number(value)}")
    if padded:
        inputs.append(f"pad={_number(padded)}")
    # NumPy gets a table in column order. The plan says if the target needs row order.
    by_rows = info.strides == compact_strides(info.shape, DTYPES[info.dtype].itemsize)
    if reasons == APART and by_rows:
        in_rows = '.copy(order="C")'
    else:
        in_rows = ""
    return f"ferry.to_numpy({', '.join(inputs)}){in_rows}"


def _dtype_in_call(own: str, asked: str | None, counts: bool, reasons: str) -> str:
    """The dtype that the call for a column names; empty if it names none."""
    if not counts and reasons != APART and not any(word in reasons for word in _AS_ASKED):
        return ""
    if asked in DTYPES:
        return asked
    if counts or READ_AS in reasons:
        return own
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
    objects=Objects(ordinary_kind="object", read_kinds=COPIED_KINDS),
)

DECLARED = Declared(
    NAME,
    CAPABILITIES,
    snippet,
    {"np": "import numpy as np", "ferry": "import tensorferry as ferry"},
)
