"""Whether a table fits its tensors: each element of the target is written once, each of the source used or dropped."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from .. import hints
from ..core.dtypes import find
from ..errors import FormatLimitError, TreeError
from ..hints import Hint
from .map_finding import MapFinding
from .moves import box_of, counts, covers_once, reach

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..errors import ConversionError
    from .lowering import Header, Lowered
    from .moves import Box, Move

__all__ = ["findings", "refuse", "refuse_growth"]

_MOST_IN_HINT = 20
_SOME_LENGTH = 32
_GROWS = 16
_GROWS_TO = 1 << 30
"""A target may be 16 times as large as its source, or have 1 GiB."""
_MOST_COUNTED = 1 << 28
"""Of how many elements each is looked at, if the steps alone do not tell."""


def findings(
    lowered: Lowered, source: Mapping[str, Header], target: Mapping[str, Header] | None = None
) -> list[MapFinding]:
    """What is wrong between a table, its source and a target.

    Args:
        lowered: The table for this source.
        source: The tensors of the source.
        target: Those that a target must have; ``None`` if it is not known.
    """
    all_findings = [*lowered.findings]
    # Layers are alike: moves that differ only in their sources write the same elements.
    known: dict[object, bool] = {}
    for name, made in lowered.tensors.items():
        size = made.moved
        for moves in (made.moves, *made.equal):
            key = size, tuple([move[1:4] for move in moves])
            is_covered = known.get(key)
            if is_covered is None:
                is_covered = known[key] = covers_once(map(box_of, moves), size)
            if not is_covered:
                all_findings.append(_uncovered(name, [box_of(move) for move in moves], size))
    all_findings += _unused(lowered, source)
    if target is not None:
        all_findings += _against(lowered, target)
    return all_findings


def _uncovered(name: str, boxes: list[Box], size: int) -> MapFinding:
    """Which elements of a tensor are not written, or twice."""
    if size > _MOST_COUNTED:
        return MapFinding("unfilled", name, f"its {size:,} elements are not each written once")
    often = counts(boxes, size)
    unfilled = int(np.count_nonzero(often == 0))
    if unfilled:
        first = int(np.argmin(often != 0))
        return MapFinding(
            "unfilled",
            name,
            f"{unfilled:,} of {size:,} elements are not written, the first is {first}",
        )
    first = int(np.argmax(often > 1))
    twice = int(np.count_nonzero(often > 1))
    return MapFinding(
        "twice", name, f"{twice:,} of {size:,} elements are written twice, the first is {first}"
    )


def _unused(lowered: Lowered, source: Mapping[str, Header]) -> list[MapFinding]:
    used: dict[str, list[Move]] = defaultdict(list)
    every = [moves for made in lowered.tensors.values() for moves in (made.moves, *made.equal)]
    for moves in (*every, *lowered.dropped.values()):
        for move in moves:
            if isinstance(move.source, str):
                used[move.source].append(move)
    unused_parts = []
    # Layers are alike: of most tensors the same elements are used.
    known: dict[object, tuple[set[Box], bool]] = {}
    for name, header in source.items():
        if name in lowered.doubtful:
            continue
        moves = used.get(name, ())
        key = header.shape, *[(move.sizes, move.source_start, move.source_steps) for move in moves]
        together = known.get(key)
        if together is None:
            boxes = {box_of(move, source=True) for move in moves}
            together = boxes, not header.size or covers_once(boxes, header.size)
            known[key] = together
        boxes, is_covered = together
        if is_covered:
            continue
        if not boxes:
            unused_parts.append(
                MapFinding("unused", name, "is in no tensor of the target, and not in drop")
            )
            continue
        unused = _left(boxes, header.size)
        if unused is None:
            unused_parts.append(
                MapFinding("unused", name, "it is not known whether all of it is used")
            )
        elif unused[0]:
            count, first = unused
            place = [int(coordinate) for coordinate in np.unravel_index(first, header.shape)]
            unused_parts.append(
                MapFinding(
                    "unused",
                    name,
                    f"{count:,} of {header.size:,} elements are in no tensor of the target, and not "
                    f"in drop; the first is at {place}",
                )
            )
    return unused_parts


def _left(boxes: set[Box], size: int) -> tuple[int, int] | None:
    """How many elements are in no box, and the first; ``None`` if there are too many to look."""
    whole = (0, ((size, 1),))
    if whole in boxes or size == 1:
        return 0, 0
    if any(reach(box)[1] >= size for box in boxes):
        return None
    if size > _MOST_COUNTED:
        return None
    often = counts(boxes, size)
    return int(np.count_nonzero(often == 0)), int(np.argmin(often != 0))


def _against(lowered: Lowered, target: Mapping[str, Header]) -> list[MapFinding]:
    differences = []
    for name, header in target.items():
        made = lowered.tensors.get(name)
        if made is None:
            if name not in lowered.unmade:
                differences.append(
                    MapFinding("unfilled", name, "the target has it, and the table does not")
                )
        elif made.header.shape != header.shape:
            differences.append(
                MapFinding(
                    "shape",
                    name,
                    f"is {list(made.header.shape)}, and the target has {list(header.shape)}",
                )
            )
        elif made.header.dtype != header.dtype:
            differences.append(
                MapFinding(
                    "dtype", name, f"is {made.header.dtype}, and the target has {header.dtype}"
                )
            )
    differences += [
        MapFinding("unknown", name, "the target has no such tensor")
        for name in lowered.tensors
        if name not in target
    ]
    return differences


def refuse(map_findings: Sequence[MapFinding]) -> None:
    """Raise what is wrong; what is alike but for numbers in names, once.

    Raises:
        FormatLimitError: Something is.
        TreeError: Several things are.
    """
    alike: dict[tuple[str, str, str], list[MapFinding]] = defaultdict(list)
    for finding in map_findings:
        alike[
            finding.kind, _without_numbers(finding.tensor), _without_numbers(finding.message)
        ].append(finding)
    ways = _Ways(map_findings)
    errors: list[ConversionError] = []
    for (kind, _, _), some in alike.items():
        first = some[0]
        more = f" (and {len(some) - 1:,} more like it)" if len(some) > 1 else ""
        about = f"{first.tensor}{more}: " if first.tensor else ""
        errors.append(FormatLimitError(f"{about}{first.message}.", ways.of(kind, first)))
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise TreeError(f"The table does not fit at {len(errors)} places:", errors)


def refuse_growth(lowered: Lowered, nbytes: int) -> None:
    """Raise for a target that is out of all proportion to its source.

    Args:
        lowered: The table for the source.
        nbytes: The size of the source.

    Raises:
        FormatLimitError: It is.
    """
    sizes = {
        name: made.header.size * find(made.header.dtype).itemsize
        for name, made in lowered.tensors.items()
    }
    total = sum(sizes.values())
    if total > max(_GROWS * nbytes, _GROWS_TO):
        largest = max(sizes, key=sizes.__getitem__)
        raise FormatLimitError(
            f"The table makes {total:,} bytes of {nbytes:,}, most of them in {largest}: "
            "that is out of all proportion."
        )


def _without_numbers(text: str) -> str:
    return re.sub(r"\d+", "*", text)


class _Ways:
    """What to do about findings: one hint for all of a kind, at the first of them.

    Args:
        map_findings: The findings.
    """

    def __init__(self, map_findings: Iterable[MapFinding]) -> None:
        unused = [finding.tensor for finding in map_findings if finding.kind == "unused"]
        globs = dict.fromkeys(map(_without_numbers, unused))
        exact = unused if len(unused) == 1 else globs
        self._drop = [*exact][:_MOST_IN_HINT]
        self._lengths = dict.fromkeys(
            [finding.length for finding in map_findings if finding.length is not None], _SOME_LENGTH
        )

    def of(self, kind: str, finding: MapFinding) -> Hint | None:
        """The hint for the first finding of a kind."""
        if kind == "unused" and self._drop:
            names = ", ".join(f'"{name}"' for name in self._drop)
            self._drop = []
            return Hint(f"drop = [{names}] in the table, if that is not wanted")
        if finding.length is not None and self._lengths:
            lengths, self._lengths = self._lengths, {}
            return Hint(hints.keyword("dims", lengths), ", with the lengths that they have")
        return None
