"""What Arrow can do."""

from __future__ import annotations

from ...core.capabilities import Capabilities, Dtypes, Memory, Objects
from ...core.declaration import Declared
from ...core.dtypes import ORDINARY
from ...core.info import ANY_ADDRESS, BIT_PACKED, COPIED, COPIED_KINDS
from .snippets import snippet

__all__ = ["CAPABILITIES", "DECLARED"]

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
