"""The declaration for objects without a backend of their own."""

from __future__ import annotations

from ...core.capabilities import Capabilities, Dtypes, Memory, Objects
from ...core.declaration import Declared
from ...core.info import COPIED_KINDS
from .snippets import snippet

__all__ = ["CAPABILITIES", "DECLARED", "NAME"]

NAME = "array-like"


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
