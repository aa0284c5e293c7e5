"""SciPy: sparse matrices are refused, because they have no dense memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import UnsupportedTypeError
from .libraries import KnownClass

if TYPE_CHECKING:
    from .libraries import Opened

__all__ = ["known_class"]


def known_class(kind: type) -> KnownClass | None:
    """How to open a class of SciPy, or a subclass; ``None`` for others."""
    from scipy import sparse

    return KnownClass(_refuse) if issubclass(kind, (sparse.sparray, sparse.spmatrix)) else None


def _refuse(x: Any, _target: Any, _request: Any) -> Opened:
    raise UnsupportedTypeError(
        f"A {type(x).__name__} is sparse: indices and values, not one tensor.",
        "x.toarray(), which has every zero",
    )
