"""Hugging Face datasets: a column is read when it is sliced; a dataset has several columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import UnsupportedTypeError, an
from ...hints import Hint
from .. import registry
from .libraries import KnownClass

if TYPE_CHECKING:
    from .libraries import Opened

__all__ = ["known_class"]


def known_class(kind: type) -> KnownClass | None:
    """How to open a class of datasets, or a subclass; ``None`` for others."""
    names = {base.__name__ for base in kind.__mro__}
    if "Column" in names:
        return KnownClass(_open_column, _is_text)
    return KnownClass(_refuse) if names & {"Dataset", "IterableDataset"} else None


def _open_column(x: Any, target: Any, request: Any) -> Opened:
    values = x[:]
    return registry.backend_of(values).open(values, target, request)


def _is_text(x: Any) -> bool:
    return len(x) > 0 and isinstance(x[0], (str, bytes))


def _refuse(x: Any, _target: Any, _request: Any) -> Opened:
    kind = type(x).__name__
    # Without a format, batches are lists of Python objects, which stay as they are in a tree.
    batches = '{prefetch:x.with_format("arrow").iter(32)}'
    hint = Hint(
        batches if kind == "IterableDataset" else f"{{tree:x}}, or batch by batch: {batches}"
    )
    raise UnsupportedTypeError(f"{an(kind, 'A')} of datasets is several columns.", hint)
