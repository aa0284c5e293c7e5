"""Libraries whose objects must be opened otherwise than by their protocols, by their top-level modules.

Each has a module beside this one. It is imported when one of the library's objects is met, so that
the library has been imported already.
"""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ...core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...core.info import TensorInfo
    from ..base import Backend

    Opened = tuple[Backend | None, TensorInfo, Any]

__all__ = ["MODULES", "KnownClass", "known_class"]

MODULES = {
    "PIL": "pillow",
    **{name: name for name in ("dask", "datasets", "h5py", "scipy", "xarray", "zarr")},
}
"""The module beside this one, by the library's top-level module."""


class KnownClass(NamedTuple):
    """How to open the objects of a class.

    Args:
        open: As `Backend.open`, with ``None`` in place of a backend for array-like objects.
        is_text: Whether an object has only text.
        made_like: Code that makes an object of the class of `x`, as one in ``like=``; then,
            perhaps, a comma and a remark.
    """

    open: Callable[[Any, Any, Any], Opened]
    is_text: Callable[[Any], bool] = lambda _: False
    made_like: str = ""


def _look(kind: type) -> KnownClass | None:
    for base in kind.__mro__:
        name = MODULES.get(base.__module__.partition(".")[0])
        if name is not None:
            found: KnownClass | None = importlib.import_module(f"{__package__}.{name}").known_class(
                kind
            )
            if found is not None:
                return found
    return None


known_class: Callable[[type], KnownClass | None] = lru_cache(maxsize=4096)(_look)
"""How to open a class; ``None`` if its protocols are enough."""
