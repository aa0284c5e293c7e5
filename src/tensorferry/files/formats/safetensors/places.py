"""`misplaced`: find tensors that overlap in a safetensors file, that end past its end, and bytes between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["misplaced"]


def misplaced(
    names: list[str], places: Iterable[int], data: int, size: int
) -> Iterator[tuple[str, int, str | None]]:
    """Yield what is wrong with the places of tensors, its position in the file, and the name of the tensor.

    Args:
        names: The names of the tensors.
        places: For each name, where it begins and ends, in bytes from the start of the data.
        data: The position of the data in the file.
        size: How many bytes the file has.

    Yields:
        Findings in the order of the file. The last has no name if bytes at the end belong to no
        tensor.
    """
    begins, ends = np.fromiter(places, np.uint64, 2 * len(names)).reshape(-1, 2).T
    order = np.lexsort((ends, begins))
    starts, stops = begins[order], ends[order]
    reached = np.concatenate([np.zeros(1, np.uint64), np.maximum.accumulate(stops)])
    for place in np.flatnonzero(starts != reached[:-1]):
        name, start, before = names[order[place]], int(starts[place]), int(reached[place])
        if start < before:
            other = names[order[max(place - 1, 0)]]
            yield f"it overlaps what lies before it, {other!r}", data + start, name
        else:
            yield f"{start - before} bytes before it belong to no tensor", data + before, name
    for place in np.flatnonzero(stops > size - data):
        message = f"it ends at byte {data + int(stops[place])}, past the end of the file at {size}"
        yield message, data + int(starts[place]), names[order[place]]
    last = data + int(reached[-1])
    if last < size:
        yield f"its last {size - last} bytes belong to no tensor", last, None
