"""What pandas can do, and the code that a person would type for each of its verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.capabilities import Capabilities, Dtypes, Memory, Objects, Options
from ...core.declaration import Declared
from ...core.dtypes import ORDINARY
from ...core.info import COPIED_KINDS, COUNTING
from ...core.names import EXCHANGE_NUMBERS
from ..array_like.declared import column_code

if TYPE_CHECKING:
    from ...core.declaration import Details, VerbCall

__all__ = ["CAPABILITIES", "DECLARED", "snippet"]


def snippet(call: VerbCall) -> str:
    """See `Backend.snippet`."""
    info, x = call.info, call.x
    if call.verb == "adopt":
        return f"pd.{'Series' if len(info.shape) == 1 else 'DataFrame'}({x}, copy=False)"
    if call.verb == "label":
        return _labelled(x, call.details, is_column=len(info.shape) == 1)
    # A series of lists in Arrow's memory, which nobody writes to, gives pandas' arrays of objects.
    is_plain = COUNTING not in info.kind and (len(info.shape) == 1 or info.mutable)
    if call.verb == "export" and is_plain:
        return f"{x}.to_numpy()"
    return column_code(call)


def _labelled(x: str, labels: Details, *, is_column: bool) -> str:
    """The code for an index and names, which are given as code."""
    if labels.index_code is not None:
        x = f"{x}.set_axis({labels.index_code})"
    if labels.names_code is None:
        return x
    if is_column:
        return f"{x}.rename({labels.names_code})"
    return f"{x}.set_axis({labels.names_code}, axis=1)"


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
