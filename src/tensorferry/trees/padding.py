"""`Padding`: which leaves of a batch are padded, with what, how far and on which side; their masks and lengths."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..backends import registry
from ..core import dtypes
from ..core.devices import HOST
from ..core.info import TensorInfo
from ..core.leaf_dtypes import place_of_name, unknown_key
from ..core.names import EXCHANGE
from ..core.request import Request
from ..errors import ShapeError, UnsupportedTypeError, shown
from ..execution import run
from ..execution.recipes import conversion_of
from ..host import memory
from ..planning import rules
from ..sequences.reader import NewArray
from .rows import RowsRead

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..backends.base import Backend

__all__ = [
    "NOT_PADDED",
    "Column",
    "Extent",
    "Padding",
    "carry_mark",
    "common_dtype",
    "describe",
    "describe_each",
    "extent_of",
    "filling",
    "look_at",
    "pad",
]

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

_NUMBERS = (int, float, complex, np.number, np.bool_)


class Padding:
    """What was asked for of leaves of unequal lengths.

    Args:
        pad: A number for all leaves, or one for each of several, by dotted name; ``None``: nothing is padded.
        multiple: What the length of a padded axis is a multiple of.
        side: ``"right"`` or ``"left"``.
        mask: Whether a mask is wanted beside each leaf.
        lengths: Whether lengths are wanted beside each leaf.

    Raises:
        TypeError: A keyword's value is none of those that it takes, or says how something is padded that is not.
        ValueError: `multiple` is less than 1.
    """

    def __init__(self, pad: object, multiple: int | None, side: str, *, mask: bool, lengths: bool) -> None:
        if side not in ("left", "right"):
            raise TypeError(f'padding_side must be "right" or "left", not {shown(side)}')
        for keyword, on in (("mask", mask), ("lengths", lengths)):
            if not isinstance(on, bool):
                raise TypeError(f"{keyword} must be True or False, not {shown(on)}")
        asked = {"pad_to_multiple_of": multiple is not None, "padding_side": side != "right"}
        odd = [keyword for keyword, on in {**asked, "mask": mask, "lengths": lengths}.items() if on]
        if pad is None and odd:
            raise TypeError(f"{odd[0]}= says how leaves are padded, and pad= names none that is: pad=0, for all")
        self.on = pad is not None
        self.multiple = 1 if multiple is None else _positive(multiple)
        self.left = side == "left"
        self._mask = mask
        self._lengths = lengths
        self._for_all = None if pad is None or isinstance(pad, Mapping) else _number("pad", pad)
        self._keys: tuple[tuple[str, Any], ...] = ()
        if isinstance(pad, Mapping):
            # A place in a list is its name.
            keys = [(str(name) if type(name) is int else name, value) for name, value in pad.items()]
            self._keys = tuple((name, _number(f"pad[{shown(name)}]", value)) for name, value in keys)
        self._names = tuple(name for name, _ in self._keys)
        if not all(isinstance(name, str) for name in self._names):
            raise TypeError('pad= takes names of leaves for its keys, as in pad={"input_ids": 0}')

    @property
    def goes_by_name(self) -> bool:
        """Whether it is a mapping."""
        return bool(self._keys)

    @property
    def marks(self) -> bool:
        """Whether something comes beside each padded leaf."""
        return self._mask or self._lengths

    def marks_of(self, extent: Extent) -> list[tuple[str, Array]]:
        """What comes beside a padded leaf, by what its name has at the end besides the leaf's."""
        mask = [("_mask", extent.mask)] if self._mask else []
        return mask + ([("_lengths", extent.lengths)] if self._lengths else [])

    def value_of(self, name: Callable[[], str]) -> Any:
        """What a leaf is padded with; ``None``: it is not."""
        if not self._keys:
            return self._for_all
        place = place_of_name(self._names, name())
        return None if place is None else self._keys[place][1]

    def refuse_unknown(self, names: Iterable[str]) -> None:
        """Raise if it has a name that no leaf has.

        Raises:
            UnsupportedTypeError: It has.
        """
        unknown = unknown_key("pad", self._keys, names)
        if unknown is not None:
            raise UnsupportedTypeError(*unknown)


def _number(what: str, value: object) -> object:
    if not isinstance(value, _NUMBERS):
        raise TypeError(f"{what} must be a number, not {shown(value)}")
    return value


def _positive(multiple: int) -> int:
    if isinstance(multiple, bool) or not hasattr(multiple, "__index__"):
        raise TypeError(f"pad_to_multiple_of must be an integer, not {shown(multiple)}")
    found = operator.index(multiple)
    if found < 1:
        raise ValueError(f"pad_to_multiple_of must be 1 or more, not {shown(multiple)}")
    return found


NOT_PADDED = Padding(None, None, "right", mask=False, lengths=False)

# -- how far ------------------------------------------------------------------------------------------


class Extent(NamedTuple):
    """How long a column's leaves are, and how long they will be.

    Args:
        shapes: The shape of each.
        whole: The shape that all will have.
        axis: The axis on which they are padded to a multiple and on a side: the first on which they differ, or else
            the first of all.
        left: Whether they are padded on the left there.
    """

    shapes: Sequence[Shape]
    whole: Shape
    axis: int
    left: bool

    @property
    def lengths(self) -> Array:
        """How long each leaf is on that axis."""
        return np.array([shape[self.axis] for shape in self.shapes], np.int64)

    @property
    def mask(self) -> Array:
        """For each leaf, where on that axis it has data."""
        length, lengths = self.whole[self.axis], self.lengths[:, np.newaxis]
        places = np.arange(length)
        return places >= length - lengths if self.left else places < lengths

    @property
    def is_needed(self) -> bool:
        """Whether a leaf is shorter than all will be."""
        return any(shape != self.whole for shape in self.shapes)

    def places(self) -> list[Any]:
        """For each leaf, where it lies in its place."""
        if len(self.whole) == 1:
            length = self.whole[0]
            return [slice(length - n, length) if self.left else slice(n) for (n,) in self.shapes]
        return [tuple(map(self._span, range(len(shape)), shape)) for shape in self.shapes]

    def _span(self, axis: int, length: int) -> slice:
        whole = self.whole[axis]
        return slice(whole - length, whole) if self.left and axis == self.axis else slice(length)


def extent_of(shapes: Sequence[Shape], padding: Padding) -> Extent | None:
    """How far a column is padded; ``None``: its leaves have no axis.

    Raises:
        ShapeError: They have not the same number of axes.
    """
    different = set(map(tuple, shapes))
    few, many = min(different, key=len), max(different, key=len)
    if len(few) != len(many):
        raise ShapeError(
            f"Leaves with {len(few)} and with {len(many)} axes cannot be padded to one shape: {few}, {many}.",
            "give them as many axes first",
        )
    if not many:
        return None
    longest = list(map(max, zip(*different, strict=True)))
    shortest = map(min, zip(*different, strict=True))
    axis = next((axis for axis, (low, high) in enumerate(zip(shortest, longest, strict=True)) if low != high), 0)
    longest[axis] += -longest[axis] % padding.multiple
    return Extent(shapes, tuple(longest), axis, padding.left)


# -- into one array -----------------------------------------------------------------------------------


def describe(leaf: Any) -> TensorInfo:
    """What a leaf is; nothing is read that is not Python's."""
    return registry.backend_of(leaf).preview(leaf)[1]


def describe_each(column: Iterable[Any]) -> list[TensorInfo]:
    """What each leaf of a column is.

    Raises:
        ShapeError: The rows inside one are of unequal lengths.
    """
    infos = []
    for number, leaf in enumerate(column):
        try:
            infos.append(describe(leaf))
        except ShapeError as error:
            raise ShapeError(error.message.replace(" at x[", f" in samples[{number}][", 2), error.hint) from error
    return infos


def common_dtype(infos: Sequence[TensorInfo], target: Backend, request: Request) -> str:
    """The dtype that a batch of these leaves has: what was asked for, or what holds them all.

    Raises:
        LossyCastError: There is none, or the target has it not.
    """
    if request.dtype not in (None, *dtypes.KEYWORDS):
        return rules.target_dtype(TensorInfo(EXCHANGE, (len(infos),), infos[0].dtype), request, target)
    typed = {info.dtype for info in infos if info.weak_dtype is None}
    names = typed or {info.dtype for info in infos}
    info = TensorInfo(EXCHANGE, (len(infos),), dtypes.common(names))
    if not typed:
        info = info._replace(weak_dtype=dtypes.common({each.weak_dtype or each.dtype for each in infos}))
    return rules.target_dtype(info, request, target)


class Column(NamedTuple):
    """The leaves of a column, looked at once.

    Args:
        leaves: Those.
        shapes: The shape of each.
        infos: What they are; of alike leaves the first one stands for all.
        numbers: If they are rows of Python numbers: those of all, one after the other.
        has_nothing: Whether a list without a number is among them.
    """

    leaves: Sequence[Any]
    shapes: Sequence[Shape]
    infos: Sequence[TensorInfo]
    numbers: Array | None = None
    has_nothing: bool = False


def look_at(column: Any, value: Any, *, alike: bool) -> Column:
    """A column, looked at once.

    Args:
        column: Leaves, or `RowsRead`.
        alike: Whether all are of one type and dtype.
        value: What it is padded with, whose type decides if there is nothing else that has one.
    """
    if type(column) is RowsRead:
        numbers = column.numbers
        infos = [describe(NewArray(numbers, weak=True))]
        return Column((), [(length,) for length in column.lengths], infos, numbers)
    shapes = _shapes(column) if alike else None
    if shapes is not None:
        return Column(column, shapes, [describe(column[0])])
    empty = [type(leaf) is list and not leaf for leaf in column]
    infos = describe_each(column)
    known = [info for info, is_empty in zip(infos, empty, strict=True) if not is_empty]
    # A list of nothing has as many axes as the others.
    nothing = (0,) * len(known[0].shape if known else (0,))
    shapes = [nothing if is_empty else info.shape for info, is_empty in zip(infos, empty, strict=True)]
    leaves = [np.empty(nothing, np.bool_) if is_empty else leaf for leaf, is_empty in zip(column, empty, strict=True)]
    return Column(leaves, shapes, known or [describe(value)], has_nothing=any(empty))


def filling(value: Any, dtype: str, request: Request) -> Any:
    """A number as one of a dtype.

    Raises:
        LossyCastError: It does not fit.
    """
    asked = Request(EXCHANGE, dtype=dtype, casting=request.casting)
    return run.convert(value, conversion_of(registry.backend_named(EXCHANGE), asked))


def _shapes(column: Sequence[Any]) -> list[Shape] | None:
    """The shapes of tensors, if all say them as tuples."""
    try:
        shapes = [leaf.shape for leaf in column]
    except Exception:  # noqa: BLE001 - whatever a tensor raises that has none, as nested ones do
        return None
    return shapes if all(isinstance(shape, tuple) for shape in shapes) else None


def pad(column: Column, value: Any, extent: Extent, target: Backend, request: Request) -> Any:
    """The leaves in one tensor of the target's, each in its place, and the value elsewhere.

    Args:
        column: The leaves.
        value: The value, as `filling` gives it.
        extent: Where they lie.
        target: Whose tensor it will be.
        request: As what, with a dtype.

    Raises:
        LossyCastError: A leaf does not fit into the dtype.
        GradientError: A leaf would leave the graph, and must not.
    """
    asked = Request(EXCHANGE, dtype=request.dtype, casting=request.casting, grad=request.grad)
    block = memory.compact((len(extent.shapes), *extent.whole), value.dtype)
    if extent.is_needed:
        block[...] = value
    infos, arrays = _arrays(column, asked)
    for row, place, array in zip(block, extent.places(), arrays, strict=True):
        row[place] = array
    devices = {info.device for info in infos}
    if request.device is None and request.placement is None and devices != {HOST} and len(devices) == 1:
        # As if they had been stacked where they are.
        own = all(info.framework == target.name for info in infos)
        request = request._replace(device=devices.pop() if own else None)
    return run.convert(NewArray(block), conversion_of(target, request))


def _arrays(column: Column, asked: Request) -> tuple[Sequence[TensorInfo], Iterable[Array]]:
    """The leaves as arrays of one dtype, and what they are."""
    infos, exchange = column.infos, registry.backend_named(EXCHANGE)
    whole: Any = None
    if column.numbers is not None:
        whole = NewArray(column.numbers, weak=True)
    elif len(infos) == 1 != len(column.leaves):
        if infos[0].framework == EXCHANGE and infos[0].dtype == asked.dtype and not infos[0].swapped:
            return infos, column.leaves
        whole = registry.backend_of(column.leaves[0]).join_alike(column.leaves)
        infos = infos if whole is not None else describe_each(column.leaves)
    if whole is None:
        return infos, [run.convert(leaf, conversion_of(exchange, asked)) for leaf in column.leaves]
    joined = run.convert(whole, conversion_of(exchange, asked))
    lengths = [shape[0] for shape in column.shapes]
    return infos, [joined[end - n : end] for end, n in zip(accumulate(lengths), lengths, strict=True)]


def carry_mark(mark: Array, target: Backend, request: Request, result: Any) -> Any:
    """A mask, or lengths, as a tensor of the target's that is where the batch is."""
    if request.device is None and request.placement is None and target.capabilities.memory:
        device = target.describe(result).device
        request = request._replace(device=None if device == HOST else device)
    block = memory.compact(mark.shape, mark.dtype)
    block[...] = mark
    return run.convert(NewArray(block), conversion_of(target, request._replace(dtype=dtypes.FIT, casting=None)))
