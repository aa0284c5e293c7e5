"""Hypothesis strategies: dtypes, bytes, blocks of memory with any layout, and tensors in them.

They need hypothesis (https://hypothesis.readthedocs.io), which tensorferry does not install.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from ..backends import registry
from .bits import FORMATS, patterns
from .memory import Image
from .witness import witness_for

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["contents", "dtypes", "images", "requests", "shapes", "tensors"]


def dtypes(*frameworks: str) -> st.SearchStrategy[str]:
    """Names of dtypes that all these frameworks have."""
    declared = [registry.ready(name).capabilities.dtypes.held for name in frameworks]
    return st.sampled_from([name for name in FORMATS if all(name in held for held in declared)])


def shapes(axes: int = 3, longest: int = 4) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes with at most this many axes. Lengths can be 0."""
    return st.lists(st.integers(0, longest), max_size=axes).map(tuple)


def contents(dtype: str, count: int) -> st.SearchStrategy[bytes]:
    """The bytes of elements of a dtype. About half of them are special values."""
    row = FORMATS[dtype]
    parts = row.itemsize // row.part
    width = 1 if row.kind == "bool" else row.bits
    anything = st.lists(st.integers(0, (1 << width) - 1), min_size=parts, max_size=parts).map(
        lambda patterns_drawn: b"".join(
            part.to_bytes(row.part, "little") for part in patterns_drawn
        )
    )
    special = st.sampled_from(patterns(dtype, 24))
    elements = st.lists(special | anything, min_size=count, max_size=count)
    return elements.map(b"".join)


@st.composite
def images(
    draw: Callable[[st.SearchStrategy[Any]], Any],
    dtype: str,
    *,
    plain: bool = False,
    block: bytes | None = None,
    shape: Sequence[int] | None = None,
) -> Image:
    """A tensor in a block of memory: any order of axes, steps, directions and offset.

    Args:
        draw: Given by hypothesis.
        dtype: Canonical name.
        plain: Whether the strides are non-negative multiples of the element's size, and the address
            is aligned.
        block: The block to use instead of a new one. It must have room for at least 64 elements.
        shape: Its shape; any small one by default.
    """
    itemsize = FORMATS[dtype].itemsize
    lengths: tuple[int, ...] = draw(shapes(3, 3)) if shape is None else tuple(shape)
    order = draw(st.permutations(range(len(lengths))))
    steps = [1, 1, 2, 0] if plain else [1, 1, 2, -1, -2, 0]
    strides, unit, low, high = [0] * len(lengths), itemsize, 0, 0
    for axis in order:
        step = draw(st.sampled_from(steps))
        strides[axis] = unit * step
        reach = (max(lengths[axis], 1) - 1) * strides[axis]
        low, high = low + min(reach, 0), high + max(reach, 0)
        unit *= max(lengths[axis] * abs(step), 1)
    shift = draw(st.integers(0, 7)) * itemsize
    if not plain and draw(st.booleans()):
        shift += draw(st.integers(0, 3))
    offset = shift - low
    size = offset + high + itemsize
    if block is not None and size > len(block):
        strides, offset, size = [0] * len(lengths), 0, itemsize
    memory = block
    if memory is None:
        # If elements overlapped in part, their bytes could not be chosen, so all start at multiples
        # of the size.
        start = offset % itemsize
        count = -(-(size - start) // itemsize)
        memory = bytes(start) + draw(contents(dtype, count))
    places = product(*map(range, lengths))
    content = b"".join(
        memory[at : at + itemsize]
        for index in places
        for at in [offset + sum(a * b for a, b in zip(index, strides, strict=True))]
    )
    return Image(memory, offset if prod(lengths) else 0, lengths, tuple(strides), content)


@st.composite
def tensors(
    draw: Callable[[st.SearchStrategy[Any]], Any],
    framework: str,
    dtype: str | None = None,
    shape: Sequence[int] | st.SearchStrategy[tuple[int, ...]] | None = None,
) -> Any:
    """A tensor of a framework, with any layout that it can have.

    Args:
        draw: Given by hypothesis.
        framework: The name of the framework.
        dtype: The canonical name of its dtype; any dtype by default.
        shape: Its shape, or a strategy for shapes, such as ``shapes(axes=2)``; any small shape by
            default.
    """
    witness = witness_for(framework)
    name = dtype or draw(dtypes(framework))
    strides = registry.ready(framework).capabilities.memory.strides
    lengths = draw(shape) if isinstance(shape, st.SearchStrategy) else shape
    return witness.lay(draw(images(name, plain=strides != "any", shape=lengths)), name)


def requests() -> st.SearchStrategy[dict[str, Any]]:
    """Keywords of a conversion that does not cast."""
    return st.fixed_dictionaries({"copy": st.sampled_from([None, True, False])})
