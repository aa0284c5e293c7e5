"""What pandas can hold, adopt and promise."""

from __future__ import annotations

from ...core.capabilities import Capabilities, Dtypes, Memory, Objects
from ...core.declaration import Declared
from ...core.dtypes import ORDINARY
from ...core.info import COPIED_KINDS
from ...core.names import EXCHANGE_NUMBERS
from .snippets import snippet

__all__ = ["CAPABILITIES", "DECLARED"]

# Series can be written, and take for granted that nobody else writes their memory: views of one another copy on write.
CAPABILITIES = Capabilities(
    dtypes=Dtypes(held=ORDINARY, numbers=EXCHANGE_NUMBERS),
    memory=Memory(writable=False, fewest_axes=1, axes=2),
    objects=Objects(read_kinds=COPIED_KINDS),
)

DECLARED = Declared(
    "pandas", CAPABILITIES, snippet, {"pd": "import pandas as pd", "ferry": "import tensorferry as ferry"}
)
