"""xarray: a `DataArray` is opened as its array; a dataset has several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import UnsupportedTypeError
from ...hints import Hint
from .chunked import is_text, open_later
from .libraries import KnownClass
from .protocols import open_by_protocol

if TYPE_CHECKING:
    from .libraries import Opened

__all__ = ["known_class"]


def known_class(kind: type) -> KnownClass | None:
    """How to open a class of xarray, or a subclass; ``None`` for others."""
    import xarray as xr

    if issubclass(kind, xr.Dataset):
        return KnownClass(_refuse)
    if issubclass(kind, getattr(xr, "DataTree", xr.Dataset)):
        return KnownClass(_refuse_tree)
    made_like = "like.copy(data=to_numpy(x)), which keeps its dimensions and coordinates"
    is_array = issubclass(kind, (xr.DataArray, xr.Variable))
    return KnownClass(_open, is_text, made_like) if is_array else None


def _open(x: Any, target: Any, request: Any) -> Opened:
    # Through the private attribute, because the public one would read the data. Unknown data count
    # as read later.
    lies_here = isinstance(getattr(getattr(x, "variable", x), "_data", None), np.ndarray)
    return (open_by_protocol if lies_here else open_later)(x, target, request)


def _refuse(_x: Any, _target: Any, _request: Any) -> Opened:
    raise UnsupportedTypeError(
        "A Dataset is several arrays with names.", Hint("{tree:dict(x.variables)}")
    )


def _refuse_tree(_x: Any, _target: Any, _request: Any) -> Opened:
    hint = Hint(
        '{tree:dict(((node.path + "/" + name).strip("/"), value)'
        " for node in x.subtree for name, value in node.to_dataset().variables.items())}"
    )
    raise UnsupportedTypeError("A DataTree is several datasets with names.", hint)
