"""Pillow: the pixels of an image are decoded when it is read; those of a palette image are indices."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...host.numpy_dtypes import of_numpy
from .declared import PALETTE
from .libraries import KnownClass
from .protocols import open_by_protocol
from .sources import kind_of, open_later_values

if TYPE_CHECKING:
    from .libraries import Opened

__all__ = ["known_class"]


def known_class(kind: type) -> KnownClass | None:
    """How to open a class of Pillow, or a subclass; ``None`` for others."""
    from PIL import Image

    return KnownClass(_open) if issubclass(kind, Image.Image) else None


def _open(x: Any, target: Any, request: Any) -> Opened:
    from PIL import ImageMode

    mode = ImageMode.getmode(x.mode)
    dtype = of_numpy(np.dtype(mode.typestr))
    if dtype is None:
        return open_by_protocol(x, target, request)
    bands = (len(mode.bands),) if len(mode.bands) > 1 else ()
    kind = f"{kind_of(x)}{PALETTE}" if x.mode in ("P", "PA") else ""
    return None, *open_later_values(x, partial(_read, x), (x.height, x.width, *bands), dtype, kind)


def _read(x: Any) -> Any:
    # This raises for a broken file, from which NumPy would make an image of zeros.
    x.load()
    return np.array(x)
