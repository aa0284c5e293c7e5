"""The places whose hints are not pasted, each with its reason."""

from __future__ import annotations

from typing import NamedTuple

MOST = 25
"""How many places there may be."""


class Place(NamedTuple):
    """A place whose hint cannot be tried."""

    module: str
    """The module in which the hint is written, below ``src/tensorferry``."""
    hint: str
    """A pattern for the whole hint."""
    reason: str
    """Why it cannot be tried."""


PLACES: tuple[Place, ...] = ()
