"""What pandas can do, and the code that a person would type for each of its verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.capabilities import Capabilities, Dtypes, Memory, Objects, Options
from ...core.declaration import Declared
from ...core.dtypes import ORDINARY
from ...core.names import EXCHANGE_NUMBERS
from ..array_like.declared import column_code

if TYPE_CHECKING:
    from ...core.info import TensorInfo

__all__ = ["CAPABILITIES", "DECLARED", "snippet"]


def snippet(verb: str, arguments: tuple[Any, ...], info: TensorInfo) -> str:
    """See `Backend.snippet`."""
    if verb == "adopt":
        return f"pd.{'Series' if len(info.shape) == 1 else 'DataFrame'}({{x}}, copy=False)"
    if verb == "label":
        return _labelled(*arguments, is_column=len(info.shape) == 1)
    # A series of lists in Arrow's memory, which nobody writes to, gives pandas' arrays of objects.
    if verb == "export" and not info.kind.counts and (len(info.shape) == 1 or info.mutable):
        return "{x}.to_numpy()"
    return column_code(info, arguments)


def _labelled(index: str | None, names: str | None, *, is_column: bool) -> str:
    """The code for an index and names, which are given as code."""
    if index is None:
        code = "{x}"
    else:
        code = f"{{x}}.set_axis({index})"
    if names is None:
        return code
    if is_column:
        return f"{code}.rename({names})"
    return f"{code}.set_axis({names}, axis=1)"


# Series are writable, but assume that no other code writes their memory (views of a series copy on
# write).
CAPABILITIES = Capabilities(
    dtypes=Dtypes(held=ORDINARY, numbers=EXCHANGE_NUMBERS),
    memory=Memory(writable=False, shows_writes=True, fewest_axes=1, axes=2),
    objects=Objects(reads_copies=True),
    options=Options(labels=frozenset({"columns", "index"})),
)

DECLARED = Declared(
    "pandas",
    CAPABILITIES,
    snippet,
    {"pd": "import pandas as pd", "ferry": "import tensorferry as ferry"},
)
