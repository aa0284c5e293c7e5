"""What NumPy can do."""

from __future__ import annotations

from ...core.capabilities import Capabilities, Dtypes, Memory, Objects, Options
from ...core.declaration import Declared
from ...core.dtypes import DTYPES
from ...core.layout import AXES
from ...core.names import EXCHANGE_NUMBERS
from .snippets import snippet

__all__ = ["CAPABILITIES", "DECLARED"]

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
