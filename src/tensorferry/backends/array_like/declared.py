"""What is declared of objects that belong to no framework's backend."""

from __future__ import annotations

from ...core.capabilities import Capabilities, Dtypes, Memory, Objects
from ...core.declaration import Declared
from ...core.info import COPIED
from .snippets import snippet

__all__ = ["CAPABILITIES", "DECLARED", "NAME"]

NAME = "array-like"


class _CopiedKinds(frozenset[str]):
    """Every `TensorInfo.kind` that says that the values are copied."""

    def __contains__(self, kind: object) -> bool:
        return isinstance(kind, str) and kind.startswith(COPIED)


CAPABILITIES = Capabilities(
    dtypes=Dtypes(frozenset(), {}),
    memory=Memory(writable=True, host_array=True),
    objects=Objects(ordinary_kind="object", read_kinds=_CopiedKinds()),
)

DECLARED = Declared(NAME, CAPABILITIES, snippet, {"np": "import numpy as np", "ferry": "import tensorferry as ferry"})
