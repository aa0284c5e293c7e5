"""`Placement`: one tensor over several devices."""

from __future__ import annotations

from .named_tuple import NamedTuple

__all__ = ["Placement"]


class Placement(NamedTuple):
    """How a target lays out one tensor over several devices.

    Args:
        device: The canonical name of the device, or the kind of the devices.
        shards: How many different parts there are; 1 if each device has the whole tensor.
        layout: The framework's object for the layout. Two placements are compared by it.
        lies: Whether the source has this layout already.
    """

    device: str
    shards: int
    layout: object
    lies: bool = False
