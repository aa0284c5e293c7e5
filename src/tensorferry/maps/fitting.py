"""From an index array to an expression: which elements of which sources an output has, in readable form.

Nothing is searched: along each axis the positions are taken apart into lengths and steps, which are
those of the axes of a source or of parts of them. Where they are not, the axis is cut at the
changes, or split by the period of the changes, and each part is fitted alone. Pieces along axes come
before accidents, such as a diagonal or two halves that are swapped.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from math import gcd, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from .forms import Filled, Joined, Piece, Placed, RawMoves, Stretch, Taken
from .moves import steps_of
from .spelling import expression_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..typing import Array
    from .expressions import Expression
    from .forms import Form
    from .index_boxes import IndexBox

    Box = Array | IndexBox

__all__ = ["NotFittedError", "fit", "fitted"]

_CHUNK = 1 << 18
_MOST_SEGMENTS = 4096
_MOST_JOINED = 1024
_MOST_RAW = 4096
_DEEPEST = 6


class NotFittedError(Exception):
    """An output that takes too many moves."""


def fit(
    index: Array,
    shape: Sequence[int],
    sources: Mapping[str, Sequence[int]],
    constants: Sequence[float] = (),
    dtype: str = "float32",
) -> Expression:
    """The expression for an output, from where each of its elements comes from.

    >>> import numpy as np
    >>> index = np.arange(12).reshape(3, 4).T + 12
    >>> print(fit(index, (4, 3), {"other": (12,), "weight": (3, 4)}))
    weight : a b -> b a

    It is for whoever knows this: a trace that reads it from dyed tensors, or an inference that
    compares values. Every element is compared with the form that is found.

    Args:
        index: For each element of the output, in row-major order, the number of the element of a
            source: sources are numbered through, in the order of `sources`. ``-1 - k`` is constant
            number k.
        shape: The shape of the output.
        sources: The shapes of the sources, by name.
        constants: The constants.
        dtype: The dtype of what is constant.

    Raises:
        NotFittedError: It takes too many moves.
    """
    return expression_of(fitted(index, shape, sources), constants=constants, dtype=dtype)


def fitted(
    index: Array | IndexBox, shape: Sequence[int], sources: Mapping[str, Sequence[int]]
) -> Form:
    """As `fit`, as numbers and names that can still be compared with those of other outputs.

    Raises:
        NotFittedError: It takes too many moves.
    """
    box = index.reshape(tuple(shape))
    if not box.size:
        return Filled(0, tuple(shape))
    return _Fitting(sources).all(box)


class _Atom:
    """A length and a step of the positions along an axis of an output."""

    def __init__(self, size: int, step: int, is_reversed: bool = False) -> None:
        self.size = size
        self.step = step
        self.is_reversed = is_reversed
        self.key = -1


class _Fitting:
    def __init__(self, sources: Mapping[str, Sequence[int]]) -> None:
        self._names = list(sources)
        self._shapes = [tuple(shape) for shape in sources.values()]
        starts = [0, *accumulate(prod(shape) for shape in self._shapes)]
        self._starts = np.array(starts, np.int64)
        self._random = np.random.default_rng(0)

    def all(self, box: Box) -> Form:
        """The form of a whole output."""
        form = self._form(box, 0)
        return self._raw(box) if form is None else form

    def _source_of(self, number: int) -> int:
        return int(np.searchsorted(self._starts, number, "right")) - 1

    def _sources_of(self, line: Array) -> Array:
        """Which source each element of a line is of; negative for constants."""
        sources = np.searchsorted(self._starts, line, "right") - 1
        return np.where(line < 0, line, sources)

    # -- forms ---------------------------------------------------------------------------------------

    def _form(self, box: Box, depth: int) -> Form | None:
        first = int(box[(0,) * box.ndim])
        odd: tuple[int, ...] | None = None
        if first < 0:
            if bool((np.asarray(box) == first).all()):
                return Filled(-1 - first, box.shape)
        else:
            piece = self._piece(box, first)
            if isinstance(piece, Piece):
                return piece
            if isinstance(piece, int):
                return self._joined(box, piece, [0, box.shape[piece] // 2], depth)
            odd = piece
        if depth >= _DEEPEST:
            return None
        cuts: list[tuple[int, int, list[int]]] = []
        for axis, length in enumerate(box.shape):
            if length > 1:
                starts = self._segments(box, axis, odd)
                if 1 < len(starts) <= _MOST_SEGMENTS:
                    cuts.append((len(starts), axis, starts))
        if not cuts and odd is not None:
            # Of two elements, any step may be meant.
            cuts = [(2, axis, [0, at]) for axis, at in enumerate(odd) if at]
        for _, axis, starts in sorted(cuts):
            form = self._cut(box, axis, starts, depth)
            if form is not None:
                return form
        return None

    def _cut(self, box: Box, axis: int, starts: list[int], depth: int) -> Form | None:
        """A form of parts along an axis."""
        length = box.shape[axis]
        period = self._period(box, axis, starts)
        if period is not None:
            count, size = period
            shape = (*box.shape[:axis], length // size, size, *box.shape[axis + 1 :])
            split = box.reshape(shape)
            form = self._joined(split, axis + 1, starts[:count], depth)
            if isinstance(form, Joined):
                return form._replace(is_merged=True)
        if len(starts) > _MOST_JOINED:
            return None
        return self._joined(box, axis, starts, depth)

    def _joined(self, box: Box, axis: int, starts: list[int], depth: int) -> Form | None:
        stops = [*starts[1:], box.shape[axis]]
        sizes = [stop - start for start, stop in zip(starts, stops, strict=True)]
        is_stack = set(sizes) == {1} and self._is_new(box, axis)
        parts = []
        for start, stop in zip(starts, stops, strict=True):
            place: Any = start if is_stack else slice(start, stop)
            part = self._form(box[_along_axis(axis, place)], depth + 1)
            if part is None:
                return None
            parts.append(part)
        return Joined(tuple(parts), axis, is_stack, box.ndim)

    def _is_new(self, box: Box, axis: int) -> bool:
        """Whether an axis is not one that the sources have."""
        line = _line(box, axis, (0,) * box.ndim)
        for number in line[line >= 0]:
            shape = self._shapes[self._source_of(int(number))]
            if len(shape) >= box.ndim and shape[min(axis, len(shape) - 1)] == 1:
                return False
        return True

    # -- cuts ----------------------------------------------------------------------------------------

    def _segments(self, box: Box, axis: int, odd: tuple[int, ...] | None) -> list[int]:
        """Where the parts along an axis begin, as lines through a few places show."""
        places = [tuple(0 for _ in box.shape), tuple(length - 1 for length in box.shape)]
        places += [
            tuple(int(self._random.integers(length)) for length in box.shape) for _ in range(2)
        ]
        if odd is not None:
            places.append(odd)
        begins = {0}
        for place in places:
            line = _line(box, axis, place)
            begins.update(self._breaks(line))
            if len(begins) > _MOST_SEGMENTS:
                break
        return sorted(begins)

    def _breaks(self, line: Array) -> list[int]:
        """Where a line is not the same numbers and steps any more."""
        sources = self._sources_of(line)
        edges = np.flatnonzero(np.diff(sources)) + 1
        if len(edges) > _MOST_SEGMENTS:
            return list(range(_MOST_SEGMENTS + 2))
        breaks = []
        starts, stops = [0, *edges.tolist()], [*edges.tolist(), len(line)]
        for start, stop in zip(starts, stops, strict=True):
            breaks.append(start)
            if line[start] < 0:
                continue
            at = start
            while at < stop and len(breaks) <= _MOST_SEGMENTS:
                if at > start:
                    breaks.append(at)
                part = line[at:stop]
                if _atoms_of(part - part[0]) is not None:
                    break
                at += _regular(part)
        return breaks

    def _period(self, box: Box, axis: int, starts: list[int]) -> tuple[int, int] | None:
        """How many parts there are in a period, and its length; ``None`` if there is none."""
        count = len(starts)
        if count < 4:
            return None
        sizes = np.diff([*starts, box.shape[axis]])
        line = _line(box, axis, (0,) * box.ndim)[starts]
        sources = self._sources_of(line)
        for period in range(1, count // 2 + 1):
            if count % period:
                continue
            same = bool((sizes.reshape(-1, period) == sizes[:period]).all())
            if same and bool((sources.reshape(-1, period) == sources[:period]).all()):
                return period, int(sizes[:period].sum())
        return None

    # -- one piece -----------------------------------------------------------------------------------

    def _piece(self, box: Box, first: int) -> Piece | int | tuple[int, ...] | None:
        """The one piece that a box is; or the axis of two halves that are swapped; or a place.

        A place is where a number is another than its row and column say.
        """
        lines = [_line(box, axis, (0,) * box.ndim) - first for axis in range(box.ndim)]
        axes: list[list[_Atom]] = []
        for line in lines:
            pairs = _atoms_of(line)
            if pairs is None:
                return None
            axes.append([_Atom(size, step) for size, step in pairs])
        odd = _difference(box, lines, first)
        if odd is not None:
            return odd
        source = self._source_of(first)
        if not self._is_within(lines, first, source):
            return None
        for axis, atoms in enumerate(axes):
            turned = atoms and atoms[0].size == 2 and atoms[0].step < 0
            if turned and box.shape[axis] > 2:
                return axis
        piece = _placed(first - int(self._starts[source]), axes, self._shapes[source])
        if piece is None:
            return None
        slices, left, right = piece
        return Piece(self._names[source], slices, left, right)

    def _is_within(self, lines: Sequence[Array], first: int, source: int) -> bool:
        """Whether all that lines reach is of one source."""
        low = first + sum(int(line.min()) for line in lines)
        high = first + sum(int(line.max()) for line in lines)
        return bool(low >= self._starts[source] and high < self._starts[source + 1])

    # -- moves ---------------------------------------------------------------------------------------

    def _raw(self, box: Box) -> RawMoves:
        """Moves of numbers for a box."""
        raw_moves: list[tuple[Any, tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = []
        steps = steps_of(box.shape)
        self._add_raw(box, 0, steps, raw_moves)
        return RawMoves(tuple(raw_moves), box.shape)

    def _add_raw(self, box: Box, start: int, steps: tuple[int, ...], raw_moves: list[Any]) -> None:
        first = int(box[(0,) * box.ndim])
        lines = [_line(box, axis, (0,) * box.ndim) - first for axis in range(box.ndim)]
        axes = [_atoms_of(line) for line in lines]
        source = self._source_of(first)
        are_regular = first >= 0 and None not in axes
        odd = _difference(box, lines, first) if are_regular else None
        if are_regular and odd is None and self._is_within(lines, first, source):
            boxes: list[tuple[int, int, int]] = []
            for pairs, step in zip(axes, steps, strict=True):
                inner = step
                part = []
                for size, by in reversed(pairs or []):
                    part.append((size, inner, by))
                    inner *= size
                boxes += reversed(part)
            sizes = tuple([size for size, _, _ in boxes])
            to = tuple([by for _, by, _ in boxes])
            of = tuple([by for _, _, by in boxes])
            at = first - int(self._starts[source])
            raw_moves.append((self._names[source], sizes, (start, *to), (at, *of)))
            if len(raw_moves) > _MOST_RAW:
                raise NotFittedError
            return
        if first < 0:
            raise NotFittedError
        for axis, step in enumerate(steps):
            starts = self._segments(box, axis, odd) if box.shape[axis] > 1 else [0]
            if 1 < len(starts) <= _MOST_RAW:
                stops = [*starts[1:], box.shape[axis]]
                for begin, end in zip(starts, stops, strict=True):
                    part_of = box[_along_axis(axis, slice(begin, end))]
                    self._add_raw(part_of, start + begin * step, steps, raw_moves)
                return
        for axis, at in enumerate(odd or ()):
            if at:
                for begin, end in ((0, at), (at, box.shape[axis])):
                    part_of = box[_along_axis(axis, slice(begin, end))]
                    self._add_raw(part_of, start + begin * steps[axis], steps, raw_moves)
                return
        raise NotFittedError


def _along_axis(axis: int, which: Any) -> tuple[Any, ...]:
    """An index that takes some of an axis."""
    return (*[slice(None)] * axis, which)


def _line(box: Box, axis: int, place: Sequence[int]) -> Array:
    """The elements along an axis through a place."""
    which: list[Any] = [*place]
    which[axis] = slice(None)
    line: Array = np.asarray(box[tuple(which)])
    return line


# -- positions along an axis -------------------------------------------------------------------------


def _atoms_of(line: Array) -> list[tuple[int, int]] | None:
    """The lengths and steps, from the outer one to the inner, of positions that begin at 0."""
    atoms: list[tuple[int, int]] = []
    while len(line) > 1:
        differences = np.diff(line)
        step = int(differences[0])
        breaks = np.flatnonzero(differences != step) + 1
        run = gcd(len(line), *np.unique(breaks[:_CHUNK]).tolist()[:_MOST_SEGMENTS])
        if run == 1:
            return None
        blocks = line.reshape(-1, run)
        if not bool((np.diff(blocks, axis=1) == step).all()):
            return None
        atoms.insert(0, (run, step))
        line = blocks[:, 0]
    return atoms


def _regular(line: Array) -> int:
    """How many elements from the beginning have lengths and steps."""
    size, length = 1, len(line)
    while length // size > 1:
        count = length // size
        blocks = line[: count * size].reshape(count, size)
        heads = blocks[:, 0]
        like_first = (blocks - heads[:, None] == blocks[0] - heads[0]).all(axis=1)
        steady = heads - heads[0] == (heads[1] - heads[0]) * np.arange(count)
        bad = np.flatnonzero(~(like_first & steady))
        good = int(bad[0]) if len(bad) else count
        if good < 2:
            break
        size *= good
    return size


def _difference(box: Box, lines: Sequence[Array], first: int) -> tuple[int, ...] | None:
    """Where a number is not the sum of those of the lines along the axes; ``None`` if all are."""
    if box.size > _CHUNK:
        # A few before all.
        random = np.random.default_rng(1)
        places = [random.integers(length, size=256) for length in box.shape]
        some = sum(line[at] for line, at in zip(lines, places, strict=True))
        bad = np.flatnonzero(box[tuple(places)] != some + first)
        if len(bad):
            return tuple(int(place[bad[0]]) for place in places)
    if isinstance(box, np.ndarray):
        return _first_difference(box, lines, first)
    for axes in box.separate_axes():
        # What the others add is the same wherever one is along these.
        which = [slice(None) if axis in axes else 0 for axis in range(box.ndim)]
        difference = _first_difference(box[tuple(which)], [lines[axis] for axis in axes], first)
        if difference is not None:
            at = dict(zip(axes, difference, strict=True))
            return tuple([at.get(axis, 0) for axis in range(box.ndim)])
    return None


def _first_difference(box: Box, lines: Sequence[Array], first: int) -> tuple[int, ...] | None:
    if not box.ndim:
        return None if int(np.asarray(box)) == first else ()
    rows = box.shape[0]
    inner = prod(box.shape[1:])
    if inner > _CHUNK:
        for row in range(rows):
            difference = _first_difference(box[row], lines[1:], first + int(lines[0][row]))
            if difference is not None:
                return row, *difference
        return None
    rest: Any = np.zeros((1,) * (box.ndim - 1), np.int64)
    for axis, line in enumerate(lines[1:]):
        rest = rest + line.reshape((1,) * axis + (-1,) + (1,) * (box.ndim - 2 - axis))
    count = max(_CHUNK // max(inner, 1), 1)
    for start in range(0, rows, count):
        heads = lines[0][start : start + count] + first
        there = heads.reshape((-1,) + (1,) * (box.ndim - 1)) + rest
        part = np.asarray(box[start : start + count])
        if not np.array_equal(part, there):
            at = np.unravel_index(int(np.argmax(part != there)), part.shape)
            return start + int(at[0]), *map(int, at[1:])
    return None


# -- positions in a source ---------------------------------------------------------------------------

_Sides = tuple[tuple[Taken, ...], tuple[tuple[Stretch, ...], ...], tuple[tuple[Placed, ...], ...]]


def _placed(first: int, axes: list[list[_Atom]], shape: tuple[int, ...]) -> _Sides | None:
    """The slices and parts that steps are; ``None`` if they do not go along axes."""
    steps = steps_of(shape)
    own = [
        own_axis
        for own_axis in zip(range(len(shape)), shape, steps, strict=True)
        if own_axis[1] > 1
    ]
    by_axis: dict[int, list[_Atom]] = {axis: [] for axis, _, _ in own}
    right: list[tuple[Placed, ...]] = []
    count = 0
    for atoms in axes:
        for atom in atoms:
            if atom.step < 0:
                first += (atom.size - 1) * atom.step
                atom.step = -atom.step
                atom.is_reversed = True
        split = _split(atoms, own, by_axis)
        if split is None:
            return None
        for key, atom in enumerate(split, count):
            atom.key = key
        count += len(split)
        right.append(
            tuple([Placed(placed.key, placed.size, placed.is_reversed) for placed in split])
        )
    index = [int(position) for position in np.unravel_index(first, shape)] if shape else []
    slices: list[Taken] = []
    left: list[tuple[Stretch, ...]] = []
    for axis, (length, step) in enumerate(zip(shape, steps, strict=True)):
        taken_and_parts = _along(length, index[axis], step, by_axis.get(axis, []))
        if taken_and_parts is None:
            return None
        taken, parts = taken_and_parts
        slices.append(taken)
        if not taken.is_index:
            left.append(parts)
    while slices and slices[-1] == Taken(None, None, None):
        slices.pop()
    return tuple(slices), tuple(left), tuple(right)


def _split(
    atoms: list[_Atom], own: list[tuple[int, int, int]], by_axis: dict[int, list[_Atom]]
) -> list[_Atom] | None:
    """The parts of an axis of an output, where each is of one axis of the source."""
    made: list[_Atom] = []
    waiting = atoms[::-1]
    while waiting:
        atom = waiting.pop()
        if not atom.step:
            made.append(atom)
            continue
        axis, length, step = next(
            (own_axis for own_axis in own if own_axis[2] <= atom.step), (-1, 0, 1)
        )
        if axis < 0 or atom.step % step:
            return None
        limit = step * length
        per = limit // atom.step
        if limit % atom.step or not 1 < per < atom.size:
            made.append(atom)
            by_axis[axis].append(atom)
            continue
        if atom.size % per:
            return None
        outer = _Atom(atom.size // per, limit, atom.is_reversed)
        waiting += [_Atom(per, atom.step, atom.is_reversed), outer]
    return made


def _along(
    length: int, first: int, step: int, atoms: list[_Atom]
) -> tuple[Taken, tuple[Stretch, ...]] | None:
    """What is taken of an axis of a source, and its parts."""
    if length == 1:
        return Taken(None, None, None), ()
    if not atoms:
        return Taken(first, None, None, is_index=True), ()
    atoms = sorted(atoms, key=lambda atom: -atom.step)
    units = [atom.step // step for atom in atoms]
    reach = first + sum(unit * (atom.size - 1) for unit, atom in zip(units, atoms, strict=True))
    if reach >= length:
        return None
    for atom, outer, inner in zip(atoms[1:], units, units[1:], strict=False):
        if outer % inner or outer < inner * atom.size:
            return None
    inner_unit = units[-1]
    count = prod(atom.size for atom in atoms)
    if units[0] * atoms[0].size == count * inner_unit:
        stop = first + inner_unit * (count - 1) + 1
        reaches = first + inner_unit * count >= length
        taken = Taken(
            first or None,
            None if reaches else stop,
            inner_unit if inner_unit > 1 else None,
        )
        return taken, tuple([Stretch(atom.key, atom.size, 0, atom.size) for atom in atoms])
    return _with_gaps(length, first, atoms, units)


def _with_gaps(
    length: int, first: int, atoms: list[_Atom], units: list[int]
) -> tuple[Taken, tuple[Stretch, ...]] | None:
    """The parts of an axis of which only some are taken, as of each head."""
    whole = length - length % units[0]
    if first >= whole:
        return None
    outer = whole // units[0]
    lengths = [outer, *[one // two for one, two in pairwise(units)]]
    parts = []
    rest = first
    for atom, unit, size in zip(atoms, units, lengths, strict=True):
        at, rest = divmod(rest, unit)
        if at + atom.size > size:
            return None
        parts.append(Stretch(atom.key, size, at, atom.size))
    if units[-1] > 1:
        parts.append(Stretch(None, units[-1], rest, 1))
    taken = Taken(None, whole if whole < length else None, None)
    return taken, tuple(parts)
