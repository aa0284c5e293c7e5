"""What polars can do, and the code that a person would type for each of its verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.capabilities import Capabilities, Dtypes, Memory, Objects, Options
from ...core.declaration import Declared
from ...core.dtypes import ORDINARY
from ...core.info import ANY_ADDRESS, APART, BIT_PACKED, COPIED, COPIED_KINDS
from ..array_like.declared import column_code

if TYPE_CHECKING:
    from ...core.declaration import VerbCall

__all__ = ["CAPABILITIES", "DECLARED", "snippet"]


def snippet(call: VerbCall) -> str:
    """See `Backend.snippet`."""
    info, x = call.info, call.x
    if call.verb == "adopt":
        if len(info.shape) == 1:
            return f"pl.Series({x})"
        return f"pl.from_numpy({x})"
    if call.verb == "label":
        names = call.details.names_code
        if len(info.shape) == 1:
            return f"{x}.alias({names})"
        return f"{x}.rename(dict(zip({x}.columns, {names})))"
    # A series of lists gives an array of objects.
    if call.verb == "export" and len(info.shape) == 1 and not info.kind:
        return f"{x}.to_numpy()"
    return column_code(call)


_HELD = frozenset(name for name in ORDINARY if not name.startswith("complex"))

CAPABILITIES = Capabilities(
    dtypes=Dtypes(
        held=_HELD,
        numbers={
            "bool": ("bool",),
            "int": ("int64", "uint64"),
            "float": ("float64",),
            "complex": (),
        },
        unshared=frozenset({"bool"}),
        since={"float16": "1.36"},
    ),
    memory=Memory(
        writable=False, strides="compact", alignment=0, fewest_axes=1, axes=2, by_columns=True
    ),
    objects=Objects(
        read_kinds=COPIED_KINDS,
        kinds_by_dtype={"bool": f"{COPIED}Series: {BIT_PACKED}"},
        kinds_by_axes={2: f"{COPIED}DataFrame: {APART}"},
        gathers_at=ANY_ADDRESS,
    ),
    options=Options(labels=frozenset({"columns"})),
)

DECLARED = Declared(
    "polars",
    CAPABILITIES,
    snippet,
    {"pl": "import polars as pl", "ferry": "import tensorferry as ferry"},
)
