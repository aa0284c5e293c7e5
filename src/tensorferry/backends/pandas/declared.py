"""What pandas can do."""

from __future__ import annotations

from ...core.capabilities import Capabilities, Dtypes, Memory, Objects, Options
from ...core.declaration import Declared
from ...core.dtypes import ORDINARY
from ...core.info import COPIED_KINDS
from ...core.names import EXCHANGE_NUMBERS
from .snippets import snippet

__all__ = ["CAPABILITIES", "DECLARED"]

# Series are writable, but assume that no other code writes their memory (views of a series copy on
# write).
CAPABILITIES = Capabilities(
    dtypes=Dtypes(held=ORDINARY, numbers=EXCHANGE_NUMBERS),
    memory=Memory(writable=False, shows_writes=True, fewest_axes=1, axes=2),
    objects=Objects(read_kinds=COPIED_KINDS),
    options=Options(labels=frozenset({"columns", "index"})),
)

DECLARED = Declared(
    "pandas",
    CAPABILITIES,
    snippet,
    {"pd": "import pandas as pd", "ferry": "import tensorferry as ferry"},
)
