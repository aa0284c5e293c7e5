"""The libraries whose objects are known better than their protocols tell, by the top-level module of their classes.

Each has a module beside this one, which is loaded when one of its objects comes in: the library is there then, and is
never imported to look.
"""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...core.info import TensorInfo
    from ..base import Backend

    Opened = tuple[Backend | None, TensorInfo, Any]

__all__ = ["MODULES", "KnownClass", "known_class"]

MODULES = {
    "PIL": "pillow",
    "dask": "dask",
    "datasets": "datasets",
    "h5py": "h5py",
    "scipy": "scipy",
    "xarray": "xarray",
    "zarr": "zarr",
}
"""For each library's top-level module, the module beside this one."""


class KnownClass(NamedTuple):
    """What is known of a class.

    Args:
        open: As `Backend.open`; ``None`` in place of a backend: the object is array-like.
        is_text: Whether an object holds text, and nothing else.
    """

    open: Callable[[Any, Any, Any], Opened]
    is_text: Callable[[Any], bool] = lambda _: False


def _look(kind: type) -> KnownClass | None:
    for base in kind.__mro__:
        name = MODULES.get(base.__module__.partition(".")[0])
        if name is not None:
            found: KnownClass | None = importlib.import_module(f"{__package__}.{name}").known_class(kind)
            if found is not None:
                return found
    return None


known_class: Callable[[type], KnownClass | None] = lru_cache(maxsize=4096)(_look)
"""What is known of a class; ``None``: its protocols tell all."""
