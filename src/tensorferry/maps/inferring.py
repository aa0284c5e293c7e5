"""A table from two files of the same weights: which tensors have the same elements, and how they lie.

Each element has a hash of 64 bits, and a tensor the sum of these, which does not depend on their
order. Equal sums are the same elements. The sums along an axis are as many marks of its lines: by
them a part of a tensor is found in another, and each line of one in the other. Nothing is taken for
found that a look at all values does not confirm.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from difflib import SequenceMatcher
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ..core.dtypes import find
from ..host.casts import cast
from .applying import changed, filled, words_of
from .expressions import AxisSlice, Reference
from .fitting import Filled, NotFittedError, Part, Piece, Placed, fitted
from .formulas import Formula
from .generalizing import Model, Output, generalized, numbered
from .lowering import Header, lower
from .moves import steps_of
from .names import NameTemplate
from .table import Rule, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ..typing import Array
    from .fitting import Form
    from .lowering import MadeTensor

    class Weights(Protocol):
        """A tensor, in a file or in memory."""

        @property
        def dtype(self) -> str:
            """The canonical name of its dtype."""
            ...  # for pyright, which otherwise takes it for a function that returns None

        @property
        def shape(self) -> tuple[int, ...]:
            """Lengths of the axes."""
            ...  # for pyright

        def array(self) -> Array:
            """All of it, over a map of the file if that can be."""
            ...  # for pyright


__all__ = ["inferred"]

_BLOCK = 1 << 18
"""How many elements are looked at at a time."""
_MOST_LINE = 1 << 22
"""The most lines of which each has a sum."""
_MOST_TRIES = 4096
_MOST_DIVISORS = 64
_RANGE = 1 << 64


# -- sums of hashes --------------------------------------------------------------------------------

_ONE = np.uint64(0x9E3779B97F4A7C15)
_TWO = np.uint64(0xBF58476D1CE4E5B9)
_THREE = np.uint64(0x94D049BB133111EB)


def _hashes(array: Array) -> Array:
    """A number of 64 bits for each element, by its bits."""
    words: Array = words_of(np.ascontiguousarray(array))
    width = words.dtype.itemsize
    if words.dtype.kind == "V":
        halves = words.view("u8").reshape(*words.shape, -1)
        found: Array = np.zeros(words.shape, np.uint64)
        for number in range(halves.shape[-1]):
            found = _mixed(found * _THREE + halves[..., number])
        return found
    if width <= 2:
        return _table(width)[words]
    return _mixed(words.astype(np.uint64))


def _mixed(words: Array) -> Array:
    found: Array = words + _ONE
    found ^= found >> np.uint64(30)
    found *= _TWO
    found ^= found >> np.uint64(27)
    found *= _THREE
    found ^= found >> np.uint64(31)
    return found


_tables: dict[int, Array] = {}


def _table(width: int) -> Array:
    """The hashes of all numbers of one or two bytes."""
    if width not in _tables:
        _tables[width] = _mixed(np.arange(1 << 8 * width, dtype=np.uint64))
    return _tables[width]


class _Marks:
    """The sums of a tensor's hashes.

    Args:
        name: Its name.
        weights: The tensor.
        dtype: The dtype in which its elements are compared.
    """

    def __init__(self, name: str, weights: Weights, dtype: str) -> None:
        self.name = name
        self.weights = weights
        self.dtype = dtype
        self.shape = tuple(weights.shape)
        self.size = prod(self.shape)
        self._sums: dict[tuple[int, int], Array] = {}
        self._total: int | None = None
        self.constant: Any = None
        """Its only number, as an array of one element; ``None`` if there are several."""

    @property
    def total(self) -> int:
        """The sum over all elements."""
        if self._total is None:
            self._look()
        return self._total or 0

    def _look(self) -> None:
        """One pass: the total, the sums along each axis, and whether all is one number."""
        sums = {
            (axis, axis + 1): np.zeros(length, np.uint64)
            for axis, length in enumerate(self.shape)
            if length <= _MOST_LINE
        }
        total, first, is_constant = 0, None, True
        for place, hashes in self._blocks():
            if first is None:
                first = hashes.reshape(-1)[0]
            is_constant = is_constant and bool((hashes == first).all())
            rows = {}
            for axis in range(hashes.ndim):
                others = tuple(each for each in range(hashes.ndim) if each != axis)
                rows[axis] = hashes.sum(axis=others, dtype=np.uint64) if others else hashes
            if not rows:
                total += int(hashes.sum(dtype=np.uint64))
            else:
                total += int(rows[0].sum(dtype=np.uint64))
            for axis, row in rows.items():
                if (axis, axis + 1) in sums:
                    sums[axis, axis + 1][place[axis]] += row
        self._sums |= sums
        self._total = total % _RANGE
        if is_constant and self.size:
            self.constant = self.weights.array().reshape(-1)[:1]

    def _blocks(self) -> Iterator[tuple[tuple[slice, ...], Array]]:
        """Yield hashes of parts, each with its place."""
        if not self.size:
            return
        array = self.weights.array().reshape(self.shape)
        for place in _boxes(self.shape):
            part = array[place]
            if self.dtype != self.weights.dtype:
                part = cast(np.ascontiguousarray(part), self.dtype)
            yield place, _hashes(part)

    def sums(self, first: int, last: int) -> Array | None:
        """The sums along axes `first` to before `last` as one; ``None`` if they are too long."""
        found = self._sums.get((first, last))
        if found is not None:
            return found
        shape = self.shape[first:last]
        if prod(shape) > _MOST_LINE:
            return None
        made = np.zeros(shape, np.uint64)
        for place, hashes in self._blocks():
            others = (*range(first), *range(last, hashes.ndim))
            made[place[first:last]] += hashes.sum(axis=others, dtype=np.uint64)
        found = self._sums[first, last] = made.reshape(-1)
        return found


def _boxes(shape: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Yield the places of parts of about `_BLOCK` elements that make up a shape."""
    steps = steps_of(shape)
    axis = next((axis for axis, step in enumerate(steps) if step <= _BLOCK), len(shape))
    if axis == len(shape):
        yield tuple(slice(0, length) for length in shape)
        return
    count = max(_BLOCK // max(steps[axis], 1), 1)
    for outer in np.ndindex(shape[:axis]):
        for start in range(0, shape[axis], count):
            stop = min(start + count, shape[axis])
            yield (
                *[slice(at, at + 1) for at in outer],
                slice(start, stop),
                *[slice(0, length) for length in shape[axis + 1 :]],
            )


# -- parts -----------------------------------------------------------------------------------------


class _View(NamedTuple):
    """A part of a tensor, as a box of its axes, with the sums along these.

    Args:
        marks: The tensor.
        shape: The lengths of the box.
        start: The row-major position of its first element.
        steps: The step of each axis.
        sums: Gives the sums along axes from one to before another, as one.
    """

    marks: _Marks
    shape: tuple[int, ...]
    start: int
    steps: tuple[int, ...]
    sums: Callable[[int, int], Array | None]

    def positions(self, lines: Sequence[tuple[tuple[int, int], Array]]) -> Array:
        """The positions of its elements, by the order of lines along groups of axes."""
        found: Array = np.array([self.start], np.int64)
        for (first, last), order in lines:
            along = _positions_along(self.shape[first:last], self.steps[first:last])
            found = (found[:, None] + along[order]).reshape(-1)
        return found


def _positions_along(shape: tuple[int, ...], steps: tuple[int, ...]) -> Array:
    found: Array = np.zeros(1, np.int64)
    for length, step in zip(shape, steps, strict=True):
        found = (found[:, None] + np.arange(length, dtype=np.int64) * step).reshape(-1)
    return found


def _whole(marks: _Marks) -> _View:
    return _View(marks, marks.shape, 0, steps_of(marks.shape), marks.sums)


class _Window(NamedTuple):
    """Lines of an axis, which is taken as rows of a period.

    Args:
        axis: The axis.
        period: The length of a row; that of the axis if there is one row.
        first: The first of each row.
        count: How many of each row.
    """

    axis: int
    period: int
    first: int
    count: int

    def view(self, marks: _Marks) -> _View:
        """The part of a tensor, with an axis for the rows, if there are several."""
        length, steps = marks.shape[self.axis], steps_of(marks.shape)
        rows = length // self.period
        step = steps[self.axis]
        shape = (*marks.shape[: self.axis], rows, self.count, *marks.shape[self.axis + 1 :])
        by = (*steps[: self.axis], step * self.period, step, *steps[self.axis + 1 :])
        start = self.first * step

        def sums(first: int, last: int) -> Array | None:
            """Those of the whole tensor, where they are not of other lines too."""
            part = _part_of(marks, shape, start, by)
            return part.sums(first, last)

        return _View(marks, shape, start, by, sums)


_parts: dict[Any, _Marks] = {}


class _PartOfWeights(NamedTuple):
    """A box of a tensor, as a tensor."""

    weights: Weights
    dtype: str
    shape: tuple[int, ...]
    start: int
    steps: tuple[int, ...]

    def array(self) -> Array:
        """Its elements, over the memory of the whole."""
        flat = self.weights.array().reshape(-1)
        return np.lib.stride_tricks.as_strided(
            flat[self.start :],
            self.shape,
            [step * flat.itemsize for step in self.steps],
            writeable=False,
        )


def _part_of(marks: _Marks, shape: tuple[int, ...], start: int, steps: tuple[int, ...]) -> _Marks:
    """The marks of a part of a tensor."""
    part = _PartOfWeights(marks.weights, marks.weights.dtype, shape, start, steps)
    return _Marks(marks.name, part, marks.dtype)


# -- how lines lie ---------------------------------------------------------------------------------


class _Arranged(NamedTuple):
    """Where the elements of one part are in another.

    Args:
        positions: For each element of the one, in row-major order, the position in the other tensor;
            ``None`` if it is the same box.
        is_sure: Whether no two lines were equal.
    """

    positions: Array
    is_sure: bool


def _arranged(target: _View, source: _View) -> Iterator[_Arranged]:
    """Yield ways in which a target's elements may lie in a source, by the sums of lines."""
    for lines, is_sure in _matches(target, source, 0, frozenset()):
        found = source.positions(lines)
        yield _Arranged(found, is_sure)


_Lines = list[tuple[tuple[int, int], "Array"]]


def _matches(
    target: _View, source: _View, axis: int, used: frozenset[int]
) -> Iterator[tuple[_Lines, bool]]:
    """Yield matches of groups of axes from one on: the source's axes, and the order of its lines."""
    if axis == len(target.shape):
        left = [at for at, length in enumerate(source.shape) if length > 1 and at not in used]
        if not left:
            yield [], True
        return
    if target.shape[axis] == 1:
        yield from _matches(target, source, axis + 1, used)
        return
    for last in range(axis + 1, len(target.shape) + 1):
        length = prod(target.shape[axis:last])
        for first, end in _groups(source.shape, length, used):
            order, is_sure = _order(target.sums(axis, last), source.sums(first, end))
            if order is None:
                continue
            taken = used | frozenset(range(first, end))
            for rest, rest_sure in _matches(target, source, last, taken):
                yield [((first, end), order), *rest], is_sure and rest_sure


def _groups(shape: tuple[int, ...], length: int, used: frozenset[int]) -> Iterator[tuple[int, int]]:
    """Yield groups of neighbouring axes of a length, none of which is used."""
    for first in range(len(shape)):
        if shape[first] == 1 or first in used:
            continue
        size = 1
        for last in range(first, len(shape)):
            if last in used:
                break
            size *= shape[last]
            if size == length and shape[last] > 1:
                yield first, last + 1
            if size > length:
                break


def _order(target: Array | None, source: Array | None) -> tuple[Array | None, bool]:
    """Which line of a source each line of a target is, and whether no two are equal."""
    if target is None or source is None or target.size != source.size:
        return None, False
    if np.array_equal(target, source):
        return np.arange(target.size), np.unique(target).size == target.size
    to, of = np.argsort(target, kind="stable"), np.argsort(source, kind="stable")
    ordered = target[to]
    if not np.array_equal(ordered, source[of]):
        return None, False
    order = np.empty(target.size, np.int64)
    order[to] = of
    return order, not bool((ordered[1:] == ordered[:-1]).any())


# -- all tensors -----------------------------------------------------------------------------------


class _Found(NamedTuple):
    """What a tensor of the target is.

    Args:
        form: Its form.
        sources: The tensors that it is made of.
        dtype: The dtype before a cast.
        is_assumed: Whether it is a guess.
        windows: The parts of sources that it has, if not all of them.
    """

    form: Form
    sources: tuple[str, ...]
    dtype: str
    is_assumed: bool
    windows: tuple[tuple[str, _Window], ...] = ()
    constants: tuple[float, ...] = ()


def inferred(
    source: Mapping[str, Weights],
    target: Mapping[str, Weights],
    *,
    config: Mapping[str, int] | None = None,
    dims: Mapping[str, int] | None = None,
) -> Table:
    """The table that makes one set of tensors from another, by their values.

    Args:
        source: The tensors of the source.
        target: Those of the target.
        config: Numbers of ``config.json``.
        dims: Lengths that are given.
    """
    return _Inference(source, target).table(config or {}, dims or {})


class _Inference:
    def __init__(self, source: Mapping[str, Weights], target: Mapping[str, Weights]) -> None:
        self._source = source
        self._target = {name: _Marks(name, each, each.dtype) for name, each in target.items()}
        self._marks: dict[tuple[str, str], _Marks] = {}
        self._found: dict[str, _Found] = {}
        self._by_total: dict[tuple[str, int, int], list[str]] = defaultdict(list)
        self._dtypes_done: set[str] = set()

    def _marks_of(self, name: str, dtype: str) -> _Marks:
        found = self._marks.get((name, dtype))
        if found is None:
            found = self._marks[name, dtype] = _Marks(name, self._source[name], dtype)
        return found

    def _candidates(self, dtype: str) -> list[str]:
        """The sources that may become tensors of a dtype."""
        return [name for name, weights in self._source.items() if _becomes(weights.dtype, dtype)]

    def _index(self, dtype: str) -> None:
        """Sort the sources by their sums in a dtype."""
        if dtype in self._dtypes_done:
            return
        self._dtypes_done.add(dtype)
        for name in self._candidates(dtype):
            marks = self._marks_of(name, dtype)
            self._by_total[dtype, marks.size, marks.total].append(name)

    def table(self, config: Mapping[str, int], dims: Mapping[str, int]) -> Table:
        """The table."""
        several: dict[tuple[str, int, int], list[str]] = defaultdict(list)
        for name, marks in self._target.items():
            self._index(marks.dtype)
            several[marks.dtype, marks.size, marks.total].append(name)
        unsure = []
        for key, names in several.items():
            sources = self._by_total.get(key, [])
            if len(sources) == 1:
                for name in names:
                    self._take(name, sources[0], is_assumed=self._target[name].constant is not None)
            elif sources:
                unsure.append((names, sources))
        for names, sources in unsure:
            self._assign(names, sources)
        for name in self._target:
            if name not in self._found:
                self._joined(name)
        for name in self._target:
            if name not in self._found:
                self._sliced(name)
        for name, marks in self._target.items():
            if name not in self._found and marks.constant is not None:
                number = _number(marks)
                if number is not None:
                    form = Filled(0, marks.shape)
                    self._found[name] = _Found(form, (), marks.dtype, True, (), (number,))
        return self._made(config, dims)

    # -- one source ----------------------------------------------------------------------------------

    def _take(self, name: str, source: str, *, is_assumed: bool = False) -> bool:
        """Find how a whole source lies in a target."""
        target = self._target[name]
        marks = self._marks_of(source, target.dtype)
        if target.shape == marks.shape and (
            target.constant is not None or _are_alike(target, marks)
        ):
            form = _identity(source, target.shape)
            if self._confirmed(target, {source: marks}, None):
                self._add(name, form, (source,), is_assumed=is_assumed)
                return True
        for tried, arranged in enumerate(_arranged(_whole(target), _whole(marks))):
            if tried >= _MOST_TRIES:
                break
            if self._confirmed(target, {source: marks}, arranged.positions):
                form = _form(arranged.positions, target.shape, {source: marks.shape})
                if form is None:
                    return False
                self._add(name, form, (source,), is_assumed=is_assumed or not arranged.is_sure)
                return True
        return False

    def _add(
        self,
        name: str,
        form: Form,
        sources: tuple[str, ...],
        *,
        is_assumed: bool,
        windows: tuple[tuple[str, _Window], ...] = (),
    ) -> None:
        kinds = {self._source[source].dtype for source in sources}
        (dtype,) = kinds if len(kinds) == 1 else {self._target[name].dtype}
        self._found[name] = _Found(form, sources, dtype, is_assumed, windows)

    def _confirmed(
        self, target: _Marks, sources: Mapping[str, _Marks], positions: Array | None
    ) -> bool:
        """Whether all values are the same, bit for bit."""
        wanted = words_of(np.ascontiguousarray(target.weights.array()).reshape(-1))
        arrays = [
            np.ascontiguousarray(each.weights.array()).reshape(-1) for each in sources.values()
        ]
        dtypes = {each.weights.dtype for each in sources.values()}
        if len(dtypes) > 1:
            return False
        whole = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
        for start in range(0, target.size, _BLOCK):
            stop = min(start + _BLOCK, target.size)
            part = whole[start:stop] if positions is None else whole[positions[start:stop]]
            if target.dtype not in dtypes:
                part = cast(part, target.dtype)
            if not np.array_equal(words_of(part), wanted[start:stop]):
                return False
        return True

    # -- equal tensors -------------------------------------------------------------------------------

    def _assign(self, names: list[str], sources: list[str]) -> None:
        """Choose among sources with the same elements, by names and neighbours."""
        scores = sorted(
            (
                (-self._likeness(name, source), abs(at - other), at, other)
                for at, name in enumerate(names)
                for other, source in enumerate(sources)
            )
        )
        free, left = Counter(range(len(sources))), set(range(len(names)))
        again = len(names) > len(sources)
        for _, _, at, other in scores:
            if (
                at in left
                and (free[other] or again)
                and self._take(names[at], sources[other], is_assumed=True)
            ):
                left.discard(at)
                free[other] = 0

    def _likeness(self, name: str, source: str) -> float:
        """How well two names go together."""
        shapes = self._target[name].shape == tuple(self._source[source].shape)
        numbers = numbered(name).numbers == numbered(source).numbers
        module, other = name.rpartition(".")[0], source.rpartition(".")[0]
        beside = sum(
            found.sources[0].rpartition(".")[0] == other
            for each, found in self._found.items()
            if found.sources and not found.is_assumed and each.rpartition(".")[0] == module
        )
        words = SequenceMatcher(None, name, source, autojunk=False).ratio()
        return shapes * 0.5 + numbers * 1.0 + min(beside, 3) * 1.0 + words

    # -- parts ---------------------------------------------------------------------------------------

    def _joined(self, name: str) -> None:
        """A target that is made of whole sources, behind each other along an axis of rows."""
        target = self._target[name]
        candidates = [self._marks_of(each, target.dtype) for each in self._candidates(target.dtype)]
        smaller = [each for each in candidates if 0 < each.size < target.size]
        for axis, length in enumerate(target.shape):
            sums = target.sums(axis, axis + 1)
            if sums is None or length < 2:
                continue
            for period in _divisors(length):
                if period < 2:
                    continue
                lines = sums.reshape(-1, period).sum(axis=0, dtype=np.uint64)
                chain = _chain(lines, target.size // period, smaller)
                if chain and self._take_chain(name, axis, period, chain):
                    return

    def _take_chain(
        self, name: str, axis: int, period: int, chain: list[tuple[int, int, list[_Marks]]]
    ) -> bool:
        target = self._target[name]
        offsets: dict[str, int] = {}
        sources: dict[str, _Marks] = {}
        index = np.empty(target.size, np.int64)
        is_assumed, start = False, 0
        chosen = self._chosen(name, [marks for _, _, marks in chain])
        for (first, count, several), marks in zip(chain, chosen, strict=True):
            is_assumed = is_assumed or len(several) > 1
            if marks.name not in offsets:
                offsets[marks.name], sources[marks.name] = start, marks
                start += marks.size
            window = _Window(axis, period, first, count)
            view = window.view(target)
            own = _positions_along(view.shape, view.steps) + view.start
            found = next(iter(_arranged(view, _whole(marks))), None)
            if found is None:
                return False
            is_assumed = is_assumed or not found.is_sure
            index[own] = found.positions + offsets[marks.name]
        if not self._confirmed(target, sources, index):
            return False
        shapes = {each: marks.shape for each, marks in sources.items()}
        form = _form(index, target.shape, shapes)
        if form is None:
            return False
        self._add(name, form, tuple(sources), is_assumed=is_assumed)
        return True

    def _chosen(self, name: str, several: list[list[_Marks]]) -> list[_Marks]:
        """One tensor for each part, and each once, as long as there are enough."""
        found: list[_Marks] = []
        for some in several:
            free = [marks for marks in some if all(marks is not each for each in found)] or some
            found.append(max(free, key=lambda marks: self._likeness(name, marks.name)))
        return found

    def _sliced(self, name: str) -> None:
        """A target that is a part of one source."""
        target = self._target[name]
        if target.constant is not None:
            return
        for source in self._candidates(target.dtype):
            marks = self._marks_of(source, target.dtype)
            if marks.size <= target.size:
                continue
            for window in _windows(marks, target):
                view = window.view(marks)
                for tried, arranged in enumerate(_arranged(_whole(target), view)):
                    if tried >= _MOST_TRIES:
                        break
                    if self._confirmed(target, {source: marks}, arranged.positions):
                        form = _form(arranged.positions, target.shape, {source: marks.shape})
                        if form is None:
                            return
                        self._add(
                            name,
                            form,
                            (source,),
                            is_assumed=not arranged.is_sure,
                            windows=((source, window),),
                        )
                        return

    # -- the table -----------------------------------------------------------------------------------

    def _made(self, config: Mapping[str, int], dims: Mapping[str, int]) -> Table:
        headers = {
            name: Header(tuple(each.shape), each.dtype) for name, each in self._source.items()
        }
        outputs = [self._output(name) for name in self._target]
        rules, ways, _ = generalized([Model(headers, outputs, config, dims)])
        table = Table(tuple(rules), tuple(self._dropped()), ways)
        return self._compared(table, headers, config, dims)

    def _output(self, name: str) -> Output:
        marks, found = self._target[name], self._found.get(name)
        header = Header(marks.shape, marks.dtype)
        if found is None:
            return Output(name, header, None, "no tensor of the source has its elements")
        return Output(
            name, header, found.form, None, found.constants, found.dtype, found.is_assumed
        )

    def _dropped(self) -> Iterator[Reference]:
        """Yield what no tensor of the target has."""
        used = {source for found in self._found.values() for source in found.sources}
        unused = [name for name in self._source if name not in used]
        for name in dict.fromkeys(map(_glob, unused)):
            alike = [each for each in self._source if _glob(each) == name]
            if all(each in unused for each in alike) and len(alike) > 1:
                yield Reference(NameTemplate((name,), ()))
            else:
                for each in alike:
                    if each in unused:
                        yield Reference(NameTemplate((each,), ()))
        windows: dict[str, list[_Window]] = defaultdict(list)
        whole = set()
        for found in self._found.values():
            parts = dict(found.windows)
            for source in found.sources:
                if source in parts:
                    windows[source].append(parts[source])
                else:
                    whole.add(source)
        for source, some in windows.items():
            if source not in whole:
                yield from _left(source, tuple(self._source[source].shape), some)

    def _compared(
        self,
        table: Table,
        headers: Mapping[str, Header],
        config: Mapping[str, int],
        dims: Mapping[str, int],
    ) -> Table:
        """The table, without a rule that makes other values than the target has."""
        lowered = lower(table, headers, config=config, dims=dims)
        wrong = {
            name
            for name, marks in self._target.items()
            if name in self._found
            and (name not in lowered.tensors or not self._makes(lowered.tensors[name], marks))
        }
        if not wrong:
            return table
        rules = []
        for rule in table.rules:
            names = {name for name in wrong if rule.target.match(name) is not None}
            if not names:
                rules.append(rule)
                continue
            for name in names:
                exact = NameTemplate((name,), ())
                rules.append(Rule(exact, None, reason="other values than the target has"))
        return Table(tuple(rules), table.drop, table.dims, table.about)

    def _makes(self, made: MadeTensor, marks: _Marks) -> bool:
        if made.header != Header(marks.shape, marks.dtype):
            return False
        wanted = words_of(np.ascontiguousarray(marks.weights.array()).reshape(-1))

        def flat(name: str) -> Array:
            return np.ascontiguousarray(self._source[name].array()).reshape(-1)

        for start in range(0, marks.size, _BLOCK * 4):
            stop = min(start + _BLOCK * 4, marks.size)
            part = changed(filled(made.moves, flat, made.source_dtype, start, stop), made.changes)
            if not np.array_equal(words_of(part), wanted[start:stop]):
                return False
        return True


def _becomes(source: str, target: str) -> bool:
    """Whether elements of one dtype may have become those of another."""
    return source == target or find(source).kind == find(target).kind == "float"


def _are_alike(one: _Marks, other: _Marks) -> bool:
    """Whether all lines of two tensors of one shape have the same sums."""
    for axis in range(len(one.shape)):
        first, second = one.sums(axis, axis + 1), other.sums(axis, axis + 1)
        if first is None or second is None or not np.array_equal(first, second):
            return False
    return True


def _identity(source: str, shape: tuple[int, ...]) -> Form:
    left = tuple([(Part(axis, length, 0, length),) for axis, length in enumerate(shape)])
    right = tuple([(Placed(axis, length, False),) for axis, length in enumerate(shape)])
    return Piece(source, (), left, right)


def _form(
    index: Array, shape: tuple[int, ...], sources: Mapping[str, tuple[int, ...]]
) -> Form | None:
    try:
        return fitted(index, shape, sources)
    except NotFittedError:
        return None


def _number(marks: _Marks) -> float | None:
    """The only number of a tensor, if a table can say it."""
    if find(marks.dtype).kind not in ("float", "int", "uint"):
        return None
    number: float = marks.constant[0].item()
    again = cast(np.array([number]), marks.dtype)
    return number if words_of(again).tolist() == words_of(marks.constant).tolist() else None


def _divisors(length: int) -> list[int]:
    """The divisors of a length, from itself down."""
    found = [each for each in range(1, min(length, 1 << 16) + 1) if length % each == 0]
    return [length, *[each for each in reversed(found) if each < length]][:_MOST_DIVISORS]


def _chain(
    lines: Array, per_line: int, sources: Iterable[_Marks]
) -> list[tuple[int, int, list[_Marks]]] | None:
    """Sources that are one behind the other along an axis: where each begins, and its length."""
    by_count: dict[int, dict[int, list[_Marks]]] = defaultdict(lambda: defaultdict(list))
    for marks in sources:
        if marks.size % per_line == 0 and marks.size // per_line <= lines.size:
            by_count[marks.size // per_line][marks.total].append(marks)
    if not by_count:
        return None
    before = np.zeros(lines.size + 1, np.uint64)
    np.cumsum(lines, out=before[1:])
    tries = 0
    waiting: list[tuple[int, list[tuple[int, int, list[_Marks]]]]] = [(0, [])]
    while waiting and tries < _MOST_TRIES:
        tries += 1
        at, chain = waiting.pop()
        if at == lines.size:
            return chain
        for count, totals in by_count.items():
            if at + count > lines.size:
                continue
            several = totals.get((int(before[at + count]) - int(before[at])) % _RANGE)
            if several:
                waiting.append((at + count, [*chain, (at, count, several)]))
    return None


def _windows(marks: _Marks, target: _Marks) -> Iterator[_Window]:
    """Yield the parts of a tensor whose elements are those of another."""
    total = np.uint64(target.total)
    for axis, length in enumerate(marks.shape):
        sums = marks.sums(axis, axis + 1)
        if sums is None or length < 2:
            continue
        for period in _divisors(length):
            per_line = marks.size // period
            count = target.size // per_line
            if target.size % per_line or not 0 < count < period:
                continue
            lines = sums.reshape(-1, period).sum(axis=0, dtype=np.uint64)
            before = np.zeros(period + 1, np.uint64)
            np.cumsum(lines, out=before[1:])
            for first in np.flatnonzero(before[count:] - before[:-count] == total).tolist():
                yield _Window(axis, period, first, count)


def _left(source: str, shape: tuple[int, ...], windows: list[_Window]) -> Iterator[Reference]:
    """Yield the parts of an axis that no window has, if all are of one axis and one period."""
    axes = {(window.axis, window.period) for window in windows}
    if len(axes) > 1:
        return
    ((axis, period),) = axes
    at, gaps = 0, []
    for window in [*sorted(windows, key=lambda each: each.first), _Window(axis, period, period, 0)]:
        if window.first > at:
            gaps.append((at, window.first))
        at = max(at, window.first + window.count)
    whole = AxisSlice(None, None, None)
    for first, last in gaps:
        if period == shape[axis]:
            taken = [AxisSlice(Formula.of(first), Formula.of(last), None)]
        else:
            step = Formula.of(period)
            taken = [AxisSlice(Formula.of(line), None, step) for line in range(first, last)]
        for each in taken:
            yield Reference(NameTemplate((source,), ()), (*[whole] * axis, each))


def _glob(name: str) -> str:
    """A name with a star for each number."""
    parts = numbered(name)
    return "*".join(parts.texts)
