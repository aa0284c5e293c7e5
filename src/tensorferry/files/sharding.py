"""`Shards`: what the devices of this process have of a tensor in a file, of which nothing else is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..backends.registry import backend_named
from ..core.info import TensorInfo
from ..core.names import EXCHANGE
from ..core.request import make_request
from ..execution.recipes import conversion_of
from ..execution.run import convert, prepare_described
from .ranges.boxes import box_of
from .ranges.cutting import cut

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..execution.recipes import Conversion
    from ..typing import Array
    from .base.stored import Stored
    from .ranges.boxes import Box

__all__ = ["Shards", "shards_of"]


class Shards(NamedTuple):
    """What the devices of this process have of one tensor.

    Args:
        assemble: Puts it together: see `DeviceParts`.
        dtype: The dtype of the result.
        boxes: The different boxes that this process needs.
        parts: The tensor's part for each of them.
        numbers: For each device, the number of its box.
    """

    assemble: Callable[[Sequence[Array]], Any]
    dtype: str
    boxes: tuple[Box, ...]
    parts: tuple[Stored, ...]
    numbers: tuple[int, ...]

    def assembled(self, arrays: Sequence[Array]) -> Any:
        """The tensor, of an array for each part, whose memory is nobody else's.

        Raises:
            LossyCastError: The dtype does not hold a value.
        """
        host = backend_named(EXCHANGE)
        request = make_request(host, None, self.dtype, None, None, "detach", ())
        cast = [convert(array, conversion_of(host, request)) for array in arrays]
        return self.assemble([cast[number] for number in self.numbers])


def shards_of(stored: Stored, conversion: Conversion) -> Shards | None:
    """What this process needs of a tensor; ``None`` if the conversion is for one device.

    Raises:
        ConversionError: Such a tensor cannot be converted, or not be laid out so.
    """
    placement, target = conversion.request.placement, conversion.target
    if placement is None:
        return None
    # The plan of the whole tensor decides, as for one in memory.
    plan = prepare_described(TensorInfo(EXCHANGE, stored.shape, stored.dtype), conversion).plan
    parts = target.device_parts(placement, stored.shape, plan.result.dtype)
    if parts is None:
        return None
    numbers: dict[Box, int] = {}
    used = []
    for index in parts.boxes:
        box = box_of(index, stored.shape, "")
        used.append(numbers.setdefault(box, len(numbers)))
    return Shards(
        parts.assemble,
        plan.result.dtype,
        tuple(numbers),
        tuple(cut(stored, box) for box in numbers),
        tuple(used),
    )
