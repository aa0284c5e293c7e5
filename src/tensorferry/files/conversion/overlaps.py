"""Find tensors of a file that share bytes, but are not the same tensor."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core.dtypes import find
from ..base.stored import Packed, Stored, View

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from ..base.contents import Contents

__all__ = ["overlaps"]

_CHECKS = 64
"""How many neighbours a tensor is compared with. If there are more, it counts as overlapping."""


class _Span(NamedTuple):
    path: str
    start: int
    end: int
    name: str
    stored: Any


def overlaps(contents: Contents) -> list[tuple[str, str]]:
    """Pairs of names of tensors that share bytes; at least one pair for each such tensor.

    Tied tensors do not count.

    If each is stored separately in a file, they do not share memory any more.
    """
    first: dict[Hashable, tuple[str, Stored]] = {}
    for name, stored in contents.tensors.items():
        inner = getattr(stored, "inner", stored)
        first.setdefault(inner.key, (name, inner))
    spans = _spans(first.values())
    found: list[tuple[str, str]] = []
    for _, group in groupby(sorted(spans, key=lambda span: span[:4]), key=lambda span: span.path):
        before: list[_Span] = []
        for span in group:
            before = [each for each in before if each.end > span.start]
            for each in before[:_CHECKS]:
                if _share(each.stored, span.stored):
                    found.append((span.name, each.name))
                    break
            else:
                if len(before) > _CHECKS:
                    found.append((span.name, before[_CHECKS].name))
            before.append(span)
    return found


def _spans(tensors: Iterable[tuple[str, Stored]]) -> Iterator[_Span]:
    for name, stored in tensors:
        if isinstance(stored, (Packed, View)) and stored.size:
            reach = find(stored.dtype).itemsize
            if isinstance(stored, View):
                reach += sum(
                    (length - 1) * step
                    for length, step in zip(stored.shape, stored.strides, strict=True)
                )
            else:
                reach = stored.nbytes
            yield _Span(stored.path, stored.offset, stored.offset + reach, name, stored)


def _share(first: Packed | View, second: Packed | View) -> bool:
    start = min(first.offset, second.offset)
    share: Any = np.shares_memory
    try:
        return bool(share(_ghost(first, start), _ghost(second, start), max_work=1 << 16))
    except np.exceptions.TooHardError:
        return True


class _At:
    """An array over an address, of which only the layout is used; its memory is never read."""

    def __init__(self, stored: Packed | View, start: int) -> None:
        self.__array_interface__ = {
            "version": 3,
            "shape": stored.shape,
            "strides": stored.strides if isinstance(stored, View) else None,
            "typestr": f"|V{find(stored.dtype).itemsize}",
            "data": (stored.offset - start + 64, True),
        }


def _ghost(stored: Packed | View, start: int) -> np.ndarray[Any, Any]:
    return np.asarray(_At(stored, start))
