"""What Python's numbers, sequences and buffers can do."""

from __future__ import annotations

from ...core.capabilities import Capabilities, Dtypes, Memory, Objects
from ...core.declaration import Declared
from ...core.dtypes import DTYPES
from ...core.info import JOINS, NUMBERS
from ...core.names import EXCHANGE_NUMBERS
from .snippets import snippet

__all__ = ["CAPABILITIES", "DECLARED"]

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
