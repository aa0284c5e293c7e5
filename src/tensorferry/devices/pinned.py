"""Page-locked host memory, which a device reads and writes beside the host's work, at the speed of its bus.

It is a framework's own: its caching allocator gives a block to somebody else only when the transfers are over that
were queued from it, or into it. So a block is asked for, used and let go. Two things are left to do here:

- what comes to the host is waited for, by an event behind the copy, before anybody sees it;
- what goes to a device is sent as the tensor that the allocator gave, and not as another one over its memory, by
  which the allocator would not know its block.

Where no more memory can be locked (``ulimit -l``), what need not be locked goes on without, and says so once.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Protocol

from ..core.sizes import size_text
from ..errors import DeviceError, frames_of_ours

if TYPE_CHECKING:
    from collections.abc import Callable

    from .streams import Stream

__all__ = ["block", "land", "lock"]

_warned: set[str] = set()
"""Of what there has been a warning."""


class Tensor(Protocol):
    """A framework's tensor, as far as this module is concerned."""

    @property
    def nbytes(self) -> int:
        """The bytes of its elements."""
        ...

    def copy_(self, source: Any, non_blocking: bool = False) -> Any:
        """Put another tensor's values into its memory; with `non_blocking` the host goes on meanwhile."""


def lock(x: Tensor, allocate: Callable[[], Tensor], *, required: bool) -> Any:
    """A host tensor's values in page-locked memory of their own; or `x`, where there is none to be had.

    Args:
        x: The tensor.
        allocate: Gives page-locked memory for it, from the framework's allocator.
        required: Whether it has to be page-locked.

    Raises:
        DeviceError: It has to be, and cannot be.
    """
    found = block(x.nbytes, allocate, required=required)
    return x if found is None else found.copy_(x)


def land(x: Tensor, allocate: Callable[[], Tensor], stream: Stream | None, *, required: bool) -> Any:
    """A device's tensor in page-locked memory; complete. ``None``: there is none to be had.

    Args:
        x: The tensor.
        allocate: Gives page-locked memory for it, from the framework's allocator.
        stream: The current stream of its device; ``None``: it has none.
        required: As for `lock`.

    Raises:
        DeviceError: As for `lock`.
    """
    found = block(x.nbytes, allocate, required=required)
    if found is None:
        return None
    found = found.copy_(x, non_blocking=stream is not None)
    if stream is not None:
        stream.record().wait()
    return found


def block(nbytes: int, allocate: Callable[[], Tensor], *, required: bool) -> Tensor | None:
    """Page-locked memory; ``None``: there is none to be had, and it need not be.

    Raises:
        DeviceError: As for `lock`.
    """
    try:
        return allocate()
    except RuntimeError as error:
        size, why = size_text(nbytes), str(error).partition("\n")[0]
        if required:
            raise DeviceError(f"{size} of host memory cannot be page-locked: {why}", "leave pinned= out") from error
    if "pageable" not in _warned:
        _warned.add("pageable")
        text = f"{size} of host memory cannot be page-locked ({why}): transfers go on without, slower."
        warnings.warn(text, RuntimeWarning, stacklevel=frames_of_ours())
    return None
