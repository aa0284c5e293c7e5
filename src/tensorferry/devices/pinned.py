"""Page-locked host memory: a device reads and writes it while the host works, at full bus speed.

It comes from a framework's caching allocator, which reuses a block only after the transfers from it
and into it. Two things are left to do here:

- a transfer to the host is followed by an event, and the host waits for it before anybody sees the
  result;
- a transfer to a device starts from the very tensor that the allocator gave, because the allocator
  would not recognise its block by another tensor over the same memory.

If no more memory can be locked (``ulimit -l``), ordinary memory is used, with one warning, unless
it must be locked.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Protocol

from .. import hints
from ..core.layout import size_text
from ..errors import DeviceError, frames_of_ours

if TYPE_CHECKING:
    from collections.abc import Callable

    from .streams import Stream

__all__ = ["land", "lock", "locked_block"]

_warned: set[str] = set()
"""The warnings that have been given."""


class Tensor(Protocol):
    """What this module needs of a framework's tensor."""

    @property
    def nbytes(self) -> int:
        """The bytes of its elements."""
        ...

    def copy_(self, source: Any, non_blocking: bool = False) -> Any:
        """Copy another tensor's values into it; with `non_blocking`, the host does not wait."""


def lock(x: Tensor, allocate: Callable[[], Tensor], *, required: bool) -> Any:
    """A copy of a host tensor in page-locked memory; or `x`, if no memory can be locked.

    Args:
        x: The tensor.
        allocate: Gives page-locked memory for it, from the framework's allocator.
        required: Whether the result must be in page-locked memory.

    Raises:
        DeviceError: It has to be, and cannot be.
    """
    locked = locked_block(x.nbytes, allocate, required=required)
    return x if locked is None else locked.copy_(x)


def land(
    x: Tensor, allocate: Callable[[], Tensor], stream: Stream | None, *, required: bool
) -> Any:
    """A complete copy of a device's tensor in page-locked memory; ``None`` if none can be locked.

    Args:
        x: The tensor.
        allocate: Gives page-locked memory for it, from the framework's allocator.
        stream: The current stream of its device; ``None`` if it has no streams.
        required: See `lock`.

    Raises:
        DeviceError: As for `lock`.
    """
    landed = locked_block(x.nbytes, allocate, required=required)
    if landed is None:
        return None
    landed = landed.copy_(x, non_blocking=stream is not None)
    if stream is not None:
        stream.record().wait()
    return landed


def locked_block(nbytes: int, allocate: Callable[[], Tensor], *, required: bool) -> Tensor | None:
    """New page-locked memory; ``None`` if no memory can be locked, and it is not required.

    Raises:
        DeviceError: As for `lock`.
    """
    try:
        return allocate()
    except RuntimeError as error:
        size, why = size_text(nbytes), str(error).partition("\n")[0]
        if required:
            raise DeviceError(
                f"{size} of host memory cannot be page-locked: {why}", hints.without("pinned")
            ) from error
    if "pageable" not in _warned:
        _warned.add("pageable")
        text = (
            f"{size} of host memory cannot be page-locked ({why}): transfers go on without, slower."
        )
        warnings.warn(text, RuntimeWarning, stacklevel=frames_of_ours())
    return None
