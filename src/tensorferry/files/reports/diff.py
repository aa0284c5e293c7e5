"""Compare two files of any formats, a block of a tensor at a time."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core.dtypes import find
from ...errors import FileFormatError
from ..base.contents import NotTensor
from ..base.nesting import written
from ..base.objects import in_text
from ..base.pump import silent
from ..encodings.array_parts import bare
from .summary import values_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping

    from ...typing import Array
    from ..base.contents import Contents
    from ..base.stored import Stored

    Distances = tuple[Array, Array]

__all__ = ["Change", "Difference", "TensorDifference", "diff", "pairs", "words"]

_ELEMENTS = 1 << 16
"""How many elements are compared at a time."""

_WHOLE = ("bool", "int", "uint")


class Change(NamedTuple):
    """A difference outside the tensors.

    Args:
        place: Its path.
        a: The value in the first file, as Python code; ``None`` if there is none.
        b: The value in the second file.
    """

    place: str
    a: str | None
    b: str | None


@dataclass(frozen=True)
class TensorDifference:
    """The difference between two tensors of the same name.

    Args:
        name: Its name.
        dtypes: Their dtypes.
        shapes: Their shapes. If they differ, values are not compared.
        elements: How many elements have different bits; for different dtypes, different values.
        largest: The largest ``|a - b|``: exact for integers, otherwise in float64 (the magnitude
            for complex numbers); ``None`` if it cannot be computed.
        position: The index of that element.
        nans: How many elements are NaN in only one file.
        accepted: Whether the difference is within the tolerance.
    """

    name: str
    dtypes: tuple[str, str]
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    elements: int = 0
    largest: float | None = None
    position: tuple[int, ...] | None = None
    nans: int = 0
    accepted: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON. An infinite distance is ``"inf"``."""
        return {
            "name": self.name,
            "dtypes": list(self.dtypes),
            "shapes": [list(shape) for shape in self.shapes],
            "elements": self.elements,
            "largest": self.largest
            if self.largest is None or isfinite(self.largest)
            else str(self.largest),
            "position": None if self.position is None else list(self.position),
            "nans": self.nans,
            "accepted": self.accepted,
        }


@dataclass(frozen=True)
class Difference:
    """The differences between two files.

    Args:
        tensors: How many tensors have the same name in both.
        only_a: The names of tensors that only the first file has.
        only_b: The names of tensors that only the second file has.
        renamed: Pairs of names of bit-equal tensors, in the first file and in the second.
        differing: Different tensors of the same name, also within the tolerance; the largest
            difference first.
        values: Differences of values that are not tensors.
        metadata: Differences of the metadata.
        uncompared: Names of tensors that cannot be read, and why.
    """

    tensors: int
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    differing: tuple[TensorDifference, ...]
    values: tuple[Change, ...]
    metadata: tuple[Change, ...]
    uncompared: dict[str, str]
    renamed: tuple[tuple[str, str], ...] = ()

    @property
    def equal(self) -> bool:
        """Whether all differences are within the tolerance."""
        return not (
            self.only_a
            or self.only_b
            or self.renamed
            or self.values
            or self.metadata
            or self.uncompared
        ) and all(difference.accepted for difference in self.differing)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "equal": self.equal,
            "tensors": self.tensors,
            "only_a": list(self.only_a),
            "only_b": list(self.only_b),
            "renamed": [{"a": a, "b": b} for a, b in self.renamed],
            "differing": [difference.to_dict() for difference in self.differing],
            "values": [change._asdict() for change in self.values],
            "metadata": [change._asdict() for change in self.metadata],
            "uncompared": self.uncompared,
        }


def diff(
    a: Contents,
    b: Contents,
    *,
    tolerance: float | None = None,
    any_dtype: bool = False,
    tensors_only: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Difference:
    """Compare the contents of two files: names, dtypes, shapes, bits, other values, and metadata.

    Ties and the order of names are not compared, because they depend on the format.

    Args:
        a: The contents of one file.
        b: The contents of the other file.
        tolerance: Accept tensors of the same dtype whose values differ by at most this; ``None`` if
            their bits must be equal.
        any_dtype: Accept different dtypes, if the values are equal, or within `tolerance`.
        tensors_only: Compare only tensors.
        progress: Called with the number of bytes whenever some have been compared.

    Raises:
        OSError: A file cannot be read.
        FileFormatError: A file is cut off.
    """
    progress = progress or silent
    accepts = partial(_accepted, tolerance=tolerance, any_dtype=any_dtype)
    seen: dict[tuple[Hashable, Hashable], TensorDifference | None] = {}
    differing = []
    common = [name for name in a.tensors if name in b.tensors]
    for name in common:
        one, other = a.tensors[name], b.tensors[name]
        keys = (one.key, other.key)
        if keys not in seen:
            seen[keys] = _compared(one, other, progress)
        difference = seen[keys]
        if difference is not None:
            differing.append(replace(difference, name=name, accepted=accepts(difference)))
    differing.sort(key=_prominence)
    only_a = [name for name in a.tensors if name not in b.tensors]
    only_b = [name for name in b.tensors if name not in a.tensors]
    renamed = _renamed(
        {name: a.tensors[name] for name in only_a},
        {name: b.tensors[name] for name in only_b},
        progress,
    )
    olds, news = dict(renamed), {new for _, new in renamed}
    return Difference(
        tensors=len(common),
        only_a=tuple(name for name in only_a if name not in olds),
        only_b=tuple(name for name in only_b if name not in news),
        renamed=renamed,
        differing=tuple(differing),
        values=()
        if tensors_only
        else _changes(*(values_of(in_text(contents)[0]) for contents in (a, b))),
        metadata=() if tensors_only else _changes(_strings(a, b), _strings(b, a)),
        uncompared={
            name: why
            for name, why in {**a.others, **b.others}.items()
            if not (tensors_only and isinstance(why, NotTensor))
        },
    )


def _prominence(difference: TensorDifference) -> tuple[bool, bool, bool, float, int]:
    """A sort key, largest differences first: shapes, dtypes, NaN on one side, then the distance."""
    same = difference.shapes[0] == difference.shapes[1]
    return (
        difference.accepted,
        same,
        not difference.nans,
        -float(difference.largest or 0),
        -difference.elements,
    )


def _renamed(
    a: Mapping[str, Stored], b: Mapping[str, Stored], progress: Callable[[int], None]
) -> tuple[tuple[str, str], ...]:
    """Pairs of tensors with the same dtype, shape and bytes.

    Tensors without a possible partner are not read.
    """
    kinds = [
        {(tensor.dtype, tensor.shape) for tensor in side.values() if tensor.size} for side in (a, b)
    ]
    there: dict[Any, list[str]] = {}
    known: dict[Hashable, bytes] = {}
    for name, stored in b.items():
        if (stored.dtype, stored.shape) in kinds[0]:
            there.setdefault(_digest(stored, known, progress), []).append(name)
    renamed = []
    for name, stored in a.items():
        if (stored.dtype, stored.shape) in kinds[1]:
            others = there.get(_digest(stored, known, progress))
            if others:
                # If several are equal (biases of 0, say), take one whose name ends in the same way.
                last = name.rpartition(".")[2]
                other = next(
                    (name_there for name_there in others if name_there.rpartition(".")[2] == last),
                    others[0],
                )
                others.remove(other)
                renamed.append((name, other))
    return tuple(renamed)


def _digest(
    stored: Stored, known: dict[Hashable, bytes], progress: Callable[[int], None]
) -> Hashable:
    if stored.key not in known:
        digest = hashlib.blake2b(digest_size=20)
        for block in stored.blocks():
            digest.update(np.ascontiguousarray(bare(block, stored.dtype)).view(np.uint8).data)
            progress(block.nbytes)
        known[stored.key] = digest.digest()
    return stored.dtype, stored.shape, known[stored.key]


def _compared(
    one: Stored, other: Stored, progress: Callable[[int], None]
) -> TensorDifference | None:
    """The difference between two tensors; ``None`` if they are equal."""
    dtypes, shapes = (one.dtype, other.dtype), (one.shape, other.shape)
    same_dtype = one.dtype == other.dtype
    if one.shape != other.shape:
        return TensorDifference("", dtypes, shapes)
    tally = _DifferenceCounts(*dtypes)
    for start, x, y in pairs(one, other):
        progress(x.nbytes + y.nbytes)
        if same_dtype and np.array_equal(words(x), words(y)):
            continue
        for first in range(0, x.size, _ELEMENTS):
            tally.add(start + first, x[first : first + _ELEMENTS], y[first : first + _ELEMENTS])
    if same_dtype and not tally.elements:
        return None
    position = None
    if tally.elements and tally.place is not None:
        position = tuple(int(index) for index in np.unravel_index(tally.place, one.shape))
    return TensorDifference("", dtypes, shapes, tally.elements, tally.largest, position, tally.nans)


def _accepted(difference: TensorDifference, *, tolerance: float | None, any_dtype: bool) -> bool:
    same_dtype = difference.dtypes[0] == difference.dtypes[1]
    if (
        difference.shapes[0] != difference.shapes[1]
        or difference.nans
        or not (same_dtype or any_dtype)
    ):
        return False
    if tolerance is None:
        return not same_dtype and not difference.elements
    return difference.largest is None or difference.largest <= tolerance


def pairs(one: Stored, other: Stored) -> Iterator[tuple[int, Array, Array]]:
    """Yield matching parts of two tensors of one shape, and the position of their first element."""
    start, total = 0, one.size
    first, second = one.blocks(), other.blocks()
    x = y = np.empty(0)
    while start < total:
        x = x if x.size else _next(first, one)
        y = y if y.size else _next(second, other)
        count = min(x.size, y.size)
        yield start, x[:count], y[:count]
        start, x, y = start + count, x[count:], y[count:]


def _next(blocks: Iterator[Array], stored: Stored) -> Array:
    for block in blocks:
        if block.size:
            return bare(block, stored.dtype)
    raise FileFormatError(f"A tensor of {stored.size} elements ends before.")


def words(block: Array) -> Array:
    """The bytes of a block as the widest possible integers, which are the fastest to compare."""
    block = np.ascontiguousarray(block)
    return block.view(np.uint64 if not block.nbytes % 8 else np.uint8)


class _DifferenceCounts:
    """Counts the elements that differ, and keeps the largest distance."""

    def __init__(self, dtype_a: str, dtype_b: str) -> None:
        self.elements = 0
        self.nans = 0
        self.largest: float | None = None
        self.place: int | None = None
        self._same_dtype = dtype_a == dtype_b
        self._distance = _distance_between(dtype_a, dtype_b)

    def add(self, start: int, x: Array, y: Array) -> None:
        """Compare some elements, the first of which is at `start`."""
        places = None
        if self._same_dtype:
            places = np.flatnonzero(_bits_differ(x, y))
            if not places.size:
                return
            self.elements += places.size
            x, y = x[places], y[places]
        with np.errstate(all="ignore"):
            distances, lone = self._distance(x, y)
        nans = int(np.count_nonzero(lone))
        self.nans += nans
        if not self._same_dtype:
            self.elements += int(np.count_nonzero(distances)) + nans
        if nans == x.size:
            return
        index = int(np.argmax(distances))
        if isinstance(distances[index], np.generic):
            largest = distances[index].item()
        else:
            largest = distances[index]
        # An element that is NaN on one side has the distance 0, but may not be the position of the
        # largest.
        if nans and lone[index]:
            index = int(np.flatnonzero(~lone)[0])
        if self.largest is None or largest > self.largest:
            self.largest = largest
            self.place = start + (index if places is None else int(places[index]))


def _bits_differ(x: Array, y: Array) -> Array:
    size = x.dtype.itemsize
    if size <= 8:
        word = np.dtype(f"uint{8 * size}")
        return np.asarray(x.view(word) != y.view(word))
    differ = (x.view(np.uint64) != y.view(np.uint64)).reshape(x.size, -1)
    return np.asarray(differ.any(axis=1))


def _distance_between(dtype_a: str, dtype_b: str) -> Callable[[Array, Array], Distances]:
    """A function for elements' distances, and which are NaN on only one side (with distance 0)."""
    kinds = (find(dtype_a).kind, find(dtype_b).kind)
    if all(kind in _WHOLE for kind in kinds):
        wide = "uint64" in (dtype_a, dtype_b)
        if wide and "int" in kinds:
            return _of_mixed_integers
        return partial(_of_integers, np.dtype("uint64" if wide else "int64"))
    if "complex" in kinds:
        return _of_complex
    return _of_reals


def _of_integers(wide: np.dtype[Any], x: Array, y: Array) -> Distances:
    a, b = x.astype(wide), y.astype(wide)
    # As uint64, because the difference of two int64 may need 64 bits.
    return np.maximum(a, b).view(np.uint64) - np.minimum(a, b).view(np.uint64), np.zeros(
        x.shape, bool
    )


def _of_mixed_integers(x: Array, y: Array) -> Distances:
    return np.abs(x.astype(object) - y.astype(object)), np.zeros(x.shape, bool)


def _of_reals(x: Array, y: Array) -> Distances:
    a, b = _high_and_low(x), _high_and_low(y)
    nan_a, nan_b = np.isnan(a[0]), np.isnan(b[0])
    # The high parts first, which is exact for close numbers; equal infinities give NaN.
    distances = np.abs((a[0] - b[0]) + (a[1] - b[1]))
    distances[(nan_a | nan_b) | (np.isinf(a[0]) & (a[0] == b[0]))] = 0
    return distances, nan_a != nan_b


def _of_complex(x: Array, y: Array) -> Distances:
    real, lone_real = _of_reals(x.real, y.real)
    imaginary, lone_imaginary = _of_reals(x.imag, y.imag)
    distances, lone = np.hypot(real, imaginary), lone_real | lone_imaginary
    distances[lone] = 0
    return distances, lone


def _high_and_low(x: Array) -> tuple[Array, Array | float]:
    """Numbers as sums of two float64. The second is 0 except for 64-bit integers."""
    if x.dtype.kind in "iu" and x.dtype.itemsize == 8:
        # With the sign of the number, so that a small number has only a low part.
        low = np.fmod(x, x.dtype.type(1 << 32))
        return (x - low).astype(np.float64), low.astype(np.float64)
    return x.astype(np.float64), 0.0


def _strings(one: Contents, other: Contents) -> dict[str, str]:
    """The metadata of the first, without those of its format that the second lacks."""
    alone = one.own.keys() - other.metadata.keys()
    return {key: text for key, text in one.metadata.items() if key not in alone}


def _changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[Change, ...]:
    # As Python code, 1, 1.0 and True differ, and NaN equals itself.
    x, y = ({place: written(value) for place, value in side.items()} for side in (a, b))
    places = [*x, *(place for place in y if place not in x)]
    return tuple(
        Change(place, x.get(place), y.get(place))
        for place in places
        if x.get(place) != y.get(place)
    )
