"""A tensor's signature: all that a plan can depend on, without exact shape, strides and address.

Tensors with the same signature are converted by the same steps, so a recipe that is made for one of
them is kept for all. What has equal signatures is found by `places_by`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .dtypes import find
from .info import TensorInfo, is_many
from .layout import are_apart, compact_strides, is_compact, packed_strides
from .named_tuple import fields_but

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

__all__ = [
    "COMPACT",
    "EMPTY",
    "SPREAD",
    "layout_of",
    "one_of_each",
    "places_by",
    "signature_of",
]

EMPTY, COMPACT, SPREAD = "empty", "compact", "spread"
"""Layouts of memory: no elements; C order without gaps; most others without overlaps.

In a layout that is `SPREAD`, all strides are positive multiples of the element's size, and no two
elements share a byte.
"""


def layout_of(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> Hashable:
    """The layout of a tensor, as a word; as shape and strides if there is no word for it.

    >>> layout_of((2, 3), (12, 4), 4), layout_of((2, 3), (4, 8), 4), layout_of((2,), (0,), 4)
    ('compact', 'spread', ((2,), (0,)))

    Args:
        shape: Lengths of the axes.
        strides: Bytes from one element to the next along each axis.
        itemsize: Bytes of an element.
    """
    if 0 in shape:
        return EMPTY
    if is_compact(tuple(shape), tuple(strides), itemsize):
        return COMPACT
    steps = [step for length, step in zip(shape, strides, strict=True) if length > 1]
    forward = all(step > 0 and not step % itemsize for step in steps)
    if forward and are_apart(shape, strides, itemsize):
        return SPREAD
    return tuple(shape), tuple(strides)


_without_lengths = fields_but(TensorInfo, "shape", "strides")
"""All that belongs to a signature as it is. The layout stands for shape and strides."""


@lru_cache(maxsize=256)
def signature_of(info: TensorInfo) -> Hashable:
    """The signature of a tensor, from its description.

    >>> from tensorferry import TensorInfo
    >>> signature_of(TensorInfo("numpy", (2, 3))) == signature_of(TensorInfo("numpy", (40, 50)))
    True

    It contains the sizes of a tensor without memory, or with several shards.
    """
    if info.abstract is not None or info.shards > 1:
        return info
    itemsize = find(info.dtype).itemsize
    layout = layout_of(info.shape, info.strides, itemsize)
    order: tuple[bool, ...] = ()
    if layout == SPREAD:
        # Whether it can be transferred without a copy, and whether it is in C order afterwards.
        packed = packed_strides(info.shape, info.strides, itemsize)
        order = info.is_packed, packed == compact_strides(info.shape, itemsize)
    return (len(info.shape), layout, is_many(info), *_without_lengths(info), *order)


# -- group what has equal signatures ---------------------------------------------------------------


def one_of_each(values: Sequence[Any]) -> dict[type, Any]:
    """One value of each type.

    >>> one_of_each([1, 2.5, 3])
    {<class 'int'>: 3, <class 'float'>: 2.5}
    """
    # Mostly all values have one type, which this finds out in a third of the time.
    kinds = set(map(type, values))
    if len(kinds) == 1:
        return {kinds.pop(): values[-1]}
    return dict(zip(map(type, values), values, strict=True))


def places_by(facts: Sequence[Hashable]) -> dict[Any, Sequence[int]]:
    """The positions of equal values.

    >>> places_by(["a", "b", "a"]), places_by("aa")
    ({'a': [0, 2], 'b': [1]}, {'a': range(0, 2)})
    """
    indices_by_fact: dict[Any, Any] = dict.fromkeys(facts)
    if len(indices_by_fact) == 1:
        return {next(iter(indices_by_fact)): range(len(facts))}
    for fact in indices_by_fact:
        indices_by_fact[fact] = []
    for index, fact in enumerate(facts):
        indices_by_fact[fact].append(index)
    return indices_by_fact
