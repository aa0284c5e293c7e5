"""What polars can do."""

from __future__ import annotations

from ...core.capabilities import Capabilities, Dtypes, Memory, Objects, Options
from ...core.declaration import Declared
from ...core.dtypes import ORDINARY
from ...core.info import ANY_ADDRESS, APART, BIT_PACKED, COPIED, COPIED_KINDS
from .snippets import snippet

__all__ = ["CAPABILITIES", "DECLARED"]

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
