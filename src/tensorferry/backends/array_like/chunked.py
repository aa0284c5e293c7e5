"""Arrays whose values are computed, or read from a file, at each access."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...host.numpy_dtypes import of_numpy
from .protocols import from_array, open_contents
from .sources import open_later_values

if TYPE_CHECKING:
    from collections.abc import Callable

    from .libraries import Opened

__all__ = ["is_text", "open_later"]


def open_later(
    x: Any, target: Any, request: Any, take: Callable[[Any], Any] = from_array, /
) -> Opened:
    """Open an array by its shape and dtype. Nothing is computed or read before `take` is called."""
    shape, dtype = x.shape, x.dtype
    name = of_numpy(dtype) if isinstance(dtype, np.dtype) else None
    # The shape may be unknown before the values are computed.
    if (
        name is None
        or shape is None
        or not all(isinstance(length, (int, np.integer)) for length in shape)
    ):
        return open_contents(x, take, target, request)
    return None, *open_later_values(x, partial(take, x), tuple(map(int, shape)), name)


def is_text(x: Any) -> bool:
    """Whether an array holds text or dates, by its dtype."""
    return x.dtype.kind in "USTmM"
