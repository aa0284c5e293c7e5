"""`Padding`: which leaves are padded, with what, how far and on which side; masks and lengths."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import hints
from ..backends import registry
from ..core import dtypes
from ..core.declaration import VALUE, Code
from ..core.info import TensorInfo
from ..core.leaf_dtypes import place_of_name
from ..core.named_tuple import NamedTuple
from ..core.names import EXCHANGE
from ..core.request import Request
from ..errors import ShapeError, shown, validate_word
from ..execution import run
from ..execution.recipes import conversion_of
from ..hints import Hint
from ..host import memory
from ..planning import rules
from ..sequences.columns import ListLayout

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..backends.base import Backend
    from ..backends.lists import Members
    from ..typing import Array


__all__ = [
    "APART",
    "NOT_PADDED",
    "PaddedRows",
    "PaddedShapes",
    "Padding",
    "common_dtype",
    "filling",
    "without_nothing",
]

Shape = tuple[int, ...]

APART = Hint(hints.tree("samples"), ", which converts each")
"""For leaves that have no common number of axes: no tensor can be made of them."""

_NUMBERS = (int, float, complex, np.number, np.bool_)


class Padding:
    """The keywords of `collate` about padding.

    Args:
        pad: A number for all leaves, or a mapping from dotted names to numbers; ``None`` if nothing
            is padded.
        multiple: The length of a padded axis is a multiple of this.
        side: ``"right"`` or ``"left"``.
        mask: Whether each padded leaf gets a mask.
        lengths: Whether each padded leaf gets its lengths.

    Raises:
        TypeError: A keyword has a value that it does not take, or is given without `pad`.
        ValueError: `side` is another word, or `multiple` is less than 1.
    """

    def __init__(
        self, pad: object, multiple: int | None, side: str, mask: bool, lengths: bool
    ) -> None:
        validate_word("padding_side", side, ("right", "left"))
        for keyword, on in (("mask", mask), ("lengths", lengths)):
            if not isinstance(on, bool):
                raise TypeError(f"{keyword} must be True or False, not {shown(on)}")
        asked = {"pad_to_multiple_of": multiple is not None, "padding_side": side != "right"}
        odd = [keyword for keyword, on in {**asked, "mask": mask, "lengths": lengths}.items() if on]
        if pad is None and odd:
            raise TypeError(
                f"{odd[0]}= is about padded leaves, and pad= is not given: pad=0 pads all"
            )
        self.on = pad is not None
        if multiple is None:
            self.multiple = 1
        else:
            self.multiple = _positive(multiple)
        self.left = side == "left"
        self._mask = mask
        self._lengths = lengths
        if pad is None or isinstance(pad, Mapping):
            self._for_all = None
        else:
            self._for_all = _number("pad", pad)
        self.by_name: tuple[tuple[str, Any], ...] = ()
        """The numbers by dotted name, if `pad` is a mapping."""
        if isinstance(pad, Mapping):
            # The dotted name of an element of a list is its index.
            keys = [
                (str(name) if type(name) is int else name, value) for name, value in pad.items()
            ]
            self.by_name = tuple(
                (name, _number(f"pad[{shown(name)}]", value)) for name, value in keys
            )
        self._names = tuple(name for name, _ in self.by_name)
        if not all(isinstance(name, str) for name in self._names):
            raise TypeError('pad= takes names of leaves for its keys, as in pad={"input_ids": 0}')

    @property
    def adds(self) -> bool:
        """Whether padded leaves get a mask or their lengths."""
        return self._mask or self._lengths

    def layout_of(
        self, most: Shape, least: Shape, *, is_padded: bool = True
    ) -> tuple[ListLayout, bool]:
        """Where leaves are put that differ in lengths, and whether any is padded.

        Args:
            most: The greatest length on each axis.
            least: The least.
            is_padded: Whether these leaves are padded.
        """
        if not is_padded:
            return ListLayout(most), False
        whole, axis = self._whole_of(most, least)
        return ListLayout(whole, axis, self.left, self._mask, self._lengths), whole != least

    def extent_of(self, shapes: Sequence[Shape]) -> PaddedShapes | None:
        """How far a column is padded; ``None`` if its leaves have no axes.

        Raises:
            ShapeError: The numbers of axes differ.
        """
        try:
            axes = [*zip(*shapes, strict=True)]
        except ValueError:
            few, many = min(shapes, key=len), max(shapes, key=len)
            raise ShapeError(
                f"Leaves with {len(few)} and with {len(many)} axes cannot be padded to one shape: "
                f"{tuple(few)}, {tuple(many)}.",
                APART,
            ) from None
        if not axes:
            return None
        whole = self._whole_of(tuple(map(max, axes)), tuple(map(min, axes)))
        return PaddedShapes(shapes, *whole, self.left)

    def _whole_of(self, most: Shape, least: Shape) -> tuple[Shape, int]:
        """The shape of each padded leaf, and the axis for `multiple` and `side`."""
        axis = 0
        if most != least:
            axis = next(axis for axis, low in enumerate(least) if low != most[axis])
        length = most[axis] + -most[axis] % self.multiple
        return (*most[:axis], length, *most[axis + 1 :]), axis

    def marks_of(self, extent: PaddedShapes | PaddedRows) -> list[tuple[str, Array]]:
        """The mask and the lengths of a padded leaf, each with its keyword."""
        mask = [("mask", extent.mask)] if self._mask else []
        return mask + ([("lengths", extent.lengths)] if self._lengths else [])

    def code(self, value: Any) -> Code:
        """The code that pads a column of leaves with a value."""
        if self.multiple != 1:
            multiple = f", pad_to_multiple_of={self.multiple}"
        else:
            multiple = ""
        odd = isinstance(value, float) and not isfinite(value)
        number = f'float("{value}")' if odd else value
        keywords = f"pad={number}{multiple}" + (', padding_side="left"' if self.left else "")
        return Code(f'ferry.collate([{{"x": row}} for row in {VALUE}], "numpy", {keywords})["x"]')

    def with_number(self, name: str, number: object = 0) -> Hint:
        """The hint to pad the leaf of this name too."""
        value = {**dict(self.by_name), name: number} if name else number
        return Hint(hints.keyword("pad", value))

    def value_of(self, name: Callable[[], str]) -> Any:
        """The number with which a leaf is padded; ``None`` if it is not."""
        if not self.by_name:
            return self._for_all
        place = place_of_name(self._names, name())
        if place is None:
            return None
        return self.by_name[place][1]


def _number(what: str, value: object) -> object:
    if not isinstance(value, _NUMBERS):
        raise TypeError(f"{what} must be a number, not {shown(value)}")
    return value


def _positive(multiple: int) -> int:
    if isinstance(multiple, bool) or not hasattr(multiple, "__index__"):
        raise TypeError(f"pad_to_multiple_of must be an integer, not {shown(multiple)}")
    number = operator.index(multiple)
    if number < 1:
        raise ValueError(f"pad_to_multiple_of must be 1 or more, not {shown(multiple)}")
    return number


NOT_PADDED = Padding(None, None, "right", False, False)

# -- how far ---------------------------------------------------------------------------------------


class PaddedRows(NamedTuple):
    """How far lists of numbers are padded that have been read.

    Args:
        whole: The shape of each after padding.
        is_needed: Whether any list is padded.
        mask: For each list, a mask of the axis on which it is padded that is true where it has an
            element; ``None`` if it is not wanted.
        lengths: The length of each list on that axis; ``None`` if they are not wanted.
    """

    whole: Shape
    is_needed: bool
    mask: Any
    lengths: Any


class PaddedShapes(NamedTuple):
    """The shapes of the leaves of a column, before and after padding.

    Args:
        shapes: The shape of each.
        whole: The shape after padding.
        axis: The axis for `pad_to_multiple_of` and `padding_side`: the first on which shapes
            differ, or the first.
        left: Whether they are padded on the left of that axis.
    """

    shapes: Sequence[Shape]
    whole: Shape
    axis: int
    left: bool

    @property
    def lengths(self) -> Array:
        """The length of each leaf on that axis."""
        return _compact(np.array([shape[self.axis] for shape in self.shapes], np.int64))

    @property
    def mask(self) -> Array:
        """For each leaf, a mask of that axis that is true where it has data."""
        length, axis = self.whole[self.axis], self.axis
        lengths = np.array([shape[axis] for shape in self.shapes])[:, np.newaxis]
        if self.left:
            return _compact(np.arange(length) >= length - lengths)
        return _compact(np.arange(length) < lengths)

    def where(self, *, alike: bool) -> Any:
        """The index of each leaf's data after padding; or their lengths, if only these differ.

        Args:
            alike: Whether all leaves have one dtype.
        """
        if alike and (len(self.whole) == 1 or len({shape[1:] for shape in self.shapes}) == 1):
            return memory.RowLengths([shape[0] for shape in self.shapes], self.left)
        return [tuple(map(self._span, range(len(shape)), shape)) for shape in self.shapes]

    @property
    def is_needed(self) -> bool:
        """Whether any leaf is padded."""
        return any(shape != self.whole for shape in self.shapes)

    def _span(self, axis: int, length: int) -> slice:
        whole = self.whole[axis]
        if self.left and axis == self.axis:
            return slice(whole - length, whole)
        return slice(length)


def _compact(array: Array) -> Array:
    """The array, in memory that every framework shares."""
    result = memory.compact(array.shape, array.dtype)
    result[...] = array
    return result


# -- into one array --------------------------------------------------------------------------------


def common_dtype(infos: Sequence[TensorInfo], target: Backend, request: Request) -> str:
    """The dtype of a batch of these leaves: that asked for, or the narrowest with all their values.

    Raises:
        LossyCastError: No dtype has all values, or the target does not have the dtype.
    """
    if request.dtype not in (None, *dtypes.KEYWORDS):
        return rules.target_dtype(_array(infos[0].dtype, None), request, target)
    typed = {info.dtype for info in infos if info.weak_dtype is None}
    names = typed or {info.dtype for info in infos}
    if typed:
        weak = None
    else:
        weak = dtypes.common_dtype({one_info.weak_dtype or one_info.dtype for one_info in infos})
    return rules.target_dtype(_array(dtypes.common_dtype(names), weak), request, target)


@lru_cache(maxsize=256)
def _array(dtype: str, weak_dtype: str | None) -> TensorInfo:
    return TensorInfo(EXCHANGE, (1,), dtype, weak_dtype=weak_dtype)


def filling(value: Any, dtype: str, request: Request) -> Any:
    """A padding number, in a dtype.

    Raises:
        LossyCastError: The dtype does not have it.
    """
    # Floats are not cached, because 0.0 and -0.0 are equal.
    make = _filling if type(value) is int else _filling.__wrapped__
    return make(value, dtype, request.casting)


@lru_cache(maxsize=256)
def _filling(value: Any, dtype: str, casting: str | None) -> Any:
    asked = Request(EXCHANGE, dtype=dtype, casting=casting or dtypes.FINITE)
    return run.convert(value, conversion_of(registry.backend_named(EXCHANGE), asked))


def without_nothing(column: Sequence[Any], members: Members, value: Any) -> Members | None:
    """The members, in which lists without numbers have as many axes as the others, and their dtype.

    ``None`` if each has numbers.

    Args:
        column: The leaves.
        members: Their descriptions.
        value: The padding number, whose type decides if all lists are empty.
    """
    if members.which is None:
        return None
    pairs = [(members.infos[place], members.sources[place]) for place in members.which]
    # Also a list of empty lists, whose dtype nobody chose.
    empty = [type(leaf) is list and 0 in pairs[at][0].shape for at, leaf in enumerate(column)]
    if all(empty):
        empty = [not leaf for leaf in column]
    if not any(empty):
        return None
    tensors, left = [*column], [pair for pair, on in zip(pairs, empty, strict=True) if not on]
    # With the description of the first of the others, so that it does not change the dtype.
    first, source = (*left, (run.described(value), registry.backend_of(value)))[0]
    rank = len(first.shape) if left else 1
    for index in [index for index, on in enumerate(empty) if on]:
        shape = pairs[index][0].shape if column[index] else (0,) * rank
        pairs[index] = first._replace(shape=shape, strides=(0,) * len(shape)), source
        tensors[index] = np.empty(shape, np.bool_)
    sources = dict(pairs)
    infos = [*sources]
    which = [infos.index(info) for info, _ in pairs]
    return members._replace(tensors=tensors, infos=infos, sources=[*sources.values()], which=which)
