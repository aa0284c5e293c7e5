"""`Placement`: one tensor over several devices."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Placement"]


class Placement(NamedTuple):
    """Where a target lays out one tensor over several devices, as its own object says.

    Args:
        device: The canonical name of the device, or the kind of the devices.
        shards: On how many devices different parts lie; 1: each holds all of it.
        layout: The framework's object, which is what two placements are compared by.
        lies: Whether the tensor that comes in is laid out like that already.
    """

    device: str
    shards: int
    layout: object
    lies: bool = False
