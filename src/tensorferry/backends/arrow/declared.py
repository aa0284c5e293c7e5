"""What Arrow can do, and the code that a person would type for each of its verbs."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ...core.capabilities import Capabilities, Dtypes, Memory, Objects
from ...core.declaration import Declared
from ...core.dtypes import ORDINARY
from ...core.info import ANY_ADDRESS, BIT_PACKED, COPIED, COPIED_KINDS
from ..array_like.declared import column_code

if TYPE_CHECKING:
    from ...core.declaration import VerbCall

__all__ = ["CAPABILITIES", "DECLARED", "snippet"]


def snippet(call: VerbCall) -> str:
    """See `Backend.snippet`."""
    info, x = call.info, call.x
    if call.verb == "adopt" and len(info.shape) == 1:
        return f"pa.array({x})"
    if call.verb == "adopt" and 0 in info.shape:
        # pyarrow refuses arrays without elements.
        kind, (rows, *shape) = (
            "pa.bool_()" if info.dtype == "bool" else f"pa.{info.dtype}()",
            info.shape,
        )
        storage = f"pa.array([[]] * {rows}, pa.list_({kind}, {prod(shape)}))"
        return f"pa.ExtensionArray.from_storage(pa.fixed_shape_tensor({kind}, {shape}), {storage})"
    if call.verb == "adopt":
        return f"pa.FixedShapeTensorArray.from_numpy_ndarray({x})"
    if call.verb == "export" and len(info.shape) == 1 and not info.kind:
        return f"{x}.to_numpy()"
    return column_code(call)


CAPABILITIES = Capabilities(
    dtypes=Dtypes(
        held=frozenset(name for name in ORDINARY if not name.startswith("complex")),
        numbers={
            "bool": ("bool",),
            "int": ("int64", "uint64"),
            "float": ("float64",),
            "complex": (),
        },
        unshared=frozenset({"bool"}),
    ),
    memory=Memory(writable=False, strides="compact", fewest_axes=1),
    objects=Objects(
        read_kinds=COPIED_KINDS,
        kinds_by_dtype={"bool": f"{COPIED}BooleanArray: {BIT_PACKED}"},
        gathers_at=ANY_ADDRESS,
    ),
)

DECLARED = Declared(
    "arrow",
    CAPABILITIES,
    snippet,
    {"pa": "import pyarrow as pa", "ferry": "import tensorferry as ferry"},
)
