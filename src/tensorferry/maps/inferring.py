"""A table from two files of the same weights: which tensors have the same elements, and how they lie.

Each element has a hash of 64 bits, and a tensor the sum of these, which does not depend on their
order. Equal sums are the same elements. The sums along an axis are as many marks of its lines: by
them a part of a tensor is found in another, and each line of one in the other. Nothing is taken for
found that a look at all values does not confirm.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from difflib import SequenceMatcher
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..core.dtypes import find
from ..host.casts import cast
from .applying import changed, filled, memory_for, words_of
from .expressions import AxisSlice, Reference
from .fitting import NotFittedError, fitted
from .folding import folded
from .forms import Filled, Piece, Placed, Stretch
from .formulas import Formula
from .generalizing import Model, Output, generalized
from .index_boxes import index_of_part, index_of_parts
from .line_sums import RANGE, LineSums, Window, boxes, whole_view
from .lowering import Header, lower
from .names import NameTemplate
from .spelling import numbered
from .table import Rule, Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ..typing import Array
    from .forms import Form
    from .index_boxes import IndexBox, IndexPart
    from .line_sums import LineOrder, TensorView, Weights
    from .lowering import MadeTensor

__all__ = ["inferred"]

_BLOCK = 1 << 18
"""How many elements are looked at at a time."""
_EDGE = 512
"""How many of them along each axis, where the order of two tensors differs."""
_WIDE = 16 << 20
"""How many bytes are made of a table at a time."""
_PASSED = 4 << 20
"""After how many bytes the pages of files are freed."""
_MOST_TRIES = 4096
_MOST_DIVISORS = 64


# -- how lines lie ---------------------------------------------------------------------------------


class _Arranged(NamedTuple):
    """Where the elements of one part are in another.

    Args:
        part: The positions of the one's elements in the other tensor.
        is_sure: Whether no two lines were equal.
    """

    part: IndexPart
    is_sure: bool


def _arranged(target: TensorView, source: TensorView) -> Iterator[_Arranged]:
    """Yield ways in which a target's elements may lie in a source, by the sums of lines."""
    for lines, is_sure in _matches(target, source, 0, frozenset()):
        yield _Arranged(source.part(target.shape, lines), is_sure)


def _matches(
    target: TensorView, source: TensorView, axis: int, used: frozenset[int]
) -> Iterator[tuple[list[LineOrder], bool]]:
    """Yield matches of groups of axes from one on, and whether no two lines were equal."""
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
                yield [((axis, last), (first, end), order), *rest], is_sure and rest_sure


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
    windows: tuple[tuple[str, Window], ...] = ()
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
        self._target = {name: LineSums(name, each, each.dtype) for name, each in target.items()}
        self._marks: dict[tuple[str, str], LineSums] = {}
        self._found: dict[str, _Found] = {}
        self._by_total: dict[tuple[str, int, int], list[str]] = defaultdict(list)
        self._dtypes_done: set[str] = set()
        self._read = 0

    def _passed(self, nbytes: int, *weights: Weights) -> None:
        """Free the pages of files, now and then: they count as memory."""
        self._read += nbytes
        if self._read >= _PASSED:
            self._read = 0
            for each in weights:
                each.release()

    def _marks_of(self, name: str, dtype: str) -> LineSums:
        found = self._marks.get((name, dtype))
        if found is None:
            found = self._marks[name, dtype] = LineSums(name, self._source[name], dtype)
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
        for tried, arranged in enumerate(_arranged(whole_view(target), whole_view(marks))):
            if tried >= _MOST_TRIES:
                break
            index = index_of_part(target.shape, arranged.part)
            if self._confirmed(target, {source: marks}, index):
                found = _form(index, target.shape, {source: marks.shape})
                if found is None:
                    return False
                self._add(name, found, (source,), is_assumed=is_assumed or not arranged.is_sure)
                return True
        return False

    def _add(
        self,
        name: str,
        form: Form,
        sources: tuple[str, ...],
        *,
        is_assumed: bool,
        windows: tuple[tuple[str, Window], ...] = (),
    ) -> None:
        kinds = {self._source[source].dtype for source in sources}
        (dtype,) = kinds if len(kinds) == 1 else {self._target[name].dtype}
        self._found[name] = _Found(form, sources, dtype, is_assumed, windows)

    def _confirmed(
        self, target: LineSums, sources: Mapping[str, LineSums], index: IndexBox | None
    ) -> bool:
        """Whether all values are the same, bit for bit.

        Args:
            target: The tensor.
            sources: What it is made of.
            index: Where its elements are, if the sources are numbered through; ``None`` for one
                source of the same shape.
        """
        dtypes = {each.weights.dtype for each in sources.values()}
        if len(dtypes) > 1:
            return False
        starts = [*accumulate((each.size for each in sources.values()), initial=0)]
        gather = _Gathered([each.weights.array() for each in sources.values()], starts)
        wanted = target.weights.array().reshape(target.shape)
        # Tiles, because lines of the one may be columns of the other.
        edge = _EDGE if index is not None else None
        for place in boxes(target.shape, _BLOCK, edge) if target.size else ():
            if index is None:
                (whole,) = gather.arrays
                part = whole.reshape(target.shape)[place]
            else:
                part = gather(np.asarray(index[place]))
            if target.dtype not in dtypes:
                part = cast(np.ascontiguousarray(part), target.dtype)
            if not np.array_equal(_words(part), _words(wanted[place])):
                return False
            self._passed(part.nbytes, target.weights, *[each.weights for each in sources.values()])
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
        self, name: str, axis: int, period: int, chain: list[tuple[int, int, list[LineSums]]]
    ) -> bool:
        target = self._target[name]
        offsets: dict[str, int] = {}
        sources: dict[str, LineSums] = {}
        is_assumed, start = False, 0
        parts = []
        chosen = self._chosen(name, [marks for _, _, marks in chain])
        for (first, count, several), marks in zip(chain, chosen, strict=True):
            is_assumed = is_assumed or len(several) > 1
            if marks.name not in offsets:
                offsets[marks.name], sources[marks.name] = start, marks
                start += marks.size
            view = Window(axis, period, first, count).view(target)
            found = next(iter(_arranged(view, whole_view(marks))), None)
            if found is None:
                return False
            is_assumed = is_assumed or not found.is_sure
            parts.append(found.part._replace(start=offsets[marks.name]))
        counts = [count for _, count, _ in chain]
        index = index_of_parts(target.shape, axis, period, counts, parts)
        if not self._confirmed(target, sources, index):
            return False
        shapes = {each: marks.shape for each, marks in sources.items()}
        form = _form(index, target.shape, shapes)
        if form is None:
            return False
        self._add(name, form, tuple(sources), is_assumed=is_assumed)
        return True

    def _chosen(self, name: str, several: list[list[LineSums]]) -> list[LineSums]:
        """One tensor for each part, and each once, as long as there are enough."""
        found: list[LineSums] = []
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
                for tried, arranged in enumerate(_arranged(whole_view(target), view)):
                    if tried >= _MOST_TRIES:
                        break
                    index = index_of_part(target.shape, arranged.part)
                    if self._confirmed(target, {source: marks}, index):
                        form = _form(index, target.shape, {source: marks.shape})
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
        rules, formulas = generalized([Model(headers, outputs, config, dims)])
        drop = tuple(self._dropped())
        table = Table(tuple(rules), drop, formulas.ways_of(rules, drop))
        return folded(self._compared(table, headers, config, dims), [headers])

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
        windows: dict[str, list[Window]] = defaultdict(list)
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

    def _makes(self, made: MadeTensor, marks: LineSums) -> bool:
        if made.header != Header(marks.shape, marks.dtype):
            return False
        wanted = marks.weights.array().reshape(-1)
        flat: dict[str, Array] = {}
        weights = [marks.weights, *[self._source[name] for name in made.sources]]

        def elements(name: str, first: int, last: int) -> Array:
            if name not in flat:
                flat[name] = self._source[name].array().reshape(-1)
            return flat[name][first:last]

        def release() -> None:
            for each in weights:
                each.release()

        # As a file is written: in wide blocks, so that pages of a source are read a few times.
        count = max(_WIDE // find(made.source_dtype).itemsize, 1)
        memory = memory_for(min(count, max(marks.size, 1)), made.source_dtype)
        for start in range(0, marks.size, count):
            stop = min(start + count, marks.size)
            part = filled(made.moves, elements, made.source_dtype, start, stop, release, memory)
            part = changed(part, made.changes)
            if not np.array_equal(_words(part), _words(wanted[start:stop])):
                return False
            release()
        return True


def _becomes(source: str, target: str) -> bool:
    """Whether elements of one dtype may have become those of another."""
    return source == target or find(source).kind == find(target).kind == "float"


def _are_alike(one: LineSums, other: LineSums) -> bool:
    """Whether all lines of two tensors of one shape have the same sums."""
    for axis in range(len(one.shape)):
        first, second = one.sums(axis, axis + 1), other.sums(axis, axis + 1)
        if first is None or second is None or not np.array_equal(first, second):
            return False
    return True


def _identity(source: str, shape: tuple[int, ...]) -> Form:
    left = tuple([(Stretch(axis, length, 0, length),) for axis, length in enumerate(shape)])
    right = tuple([(Placed(axis, length, False),) for axis, length in enumerate(shape)])
    return Piece(source, (), left, right)


class _Gathered:
    """Elements of several tensors that are numbered through, by their numbers.

    Args:
        arrays: The tensors.
        starts: The number of the first element of each, and how many there are.
    """

    def __init__(self, arrays: Sequence[Array], starts: Sequence[int]) -> None:
        self.arrays = [each.reshape(-1) for each in arrays]
        self._starts = np.array(starts, np.int64)

    def __call__(self, numbers: Array) -> Array:
        """The elements at numbers."""
        first, last = (
            int(np.searchsorted(self._starts, end, "right")) - 1
            for end in (numbers.min(), numbers.max())
        )
        if first == last:
            found: Array = self.arrays[first][numbers - self._starts[first]]
            return found
        found = np.empty(numbers.shape, self.arrays[first].dtype)
        for each in range(first, last + 1):
            is_here = (numbers >= self._starts[each]) & (numbers < self._starts[each + 1])
            if is_here.any():
                found[is_here] = self.arrays[each][numbers[is_here] - self._starts[each]]
        return found


def _words(array: Array) -> Array:
    return words_of(np.ascontiguousarray(array))


def _form(
    index: IndexBox, shape: tuple[int, ...], sources: Mapping[str, tuple[int, ...]]
) -> Form | None:
    try:
        return fitted(index, shape, sources)
    except NotFittedError:
        return None


def _number(marks: LineSums) -> float | None:
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
    lines: Array, per_line: int, sources: Iterable[LineSums]
) -> list[tuple[int, int, list[LineSums]]] | None:
    """Sources that are one behind the other along an axis: where each begins, and its length."""
    by_count: dict[int, dict[int, list[LineSums]]] = defaultdict(lambda: defaultdict(list))
    for marks in sources:
        if marks.size % per_line == 0 and marks.size // per_line <= lines.size:
            by_count[marks.size // per_line][marks.total].append(marks)
    if not by_count:
        return None
    before = np.zeros(lines.size + 1, np.uint64)
    np.cumsum(lines, out=before[1:])
    tries = 0
    waiting: list[tuple[int, list[tuple[int, int, list[LineSums]]]]] = [(0, [])]
    while waiting and tries < _MOST_TRIES:
        tries += 1
        at, chain = waiting.pop()
        if at == lines.size:
            return chain
        for count, totals in by_count.items():
            if at + count > lines.size:
                continue
            several = totals.get((int(before[at + count]) - int(before[at])) % RANGE)
            if several:
                waiting.append((at + count, [*chain, (at, count, several)]))
    return None


def _windows(marks: LineSums, target: LineSums) -> Iterator[Window]:
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
                yield Window(axis, period, first, count)


def _left(source: str, shape: tuple[int, ...], windows: list[Window]) -> Iterator[Reference]:
    """Yield the parts of an axis that no window has, if all are of one axis and one period."""
    axes = {(window.axis, window.period) for window in windows}
    if len(axes) > 1:
        return
    ((axis, period),) = axes
    at, gaps = 0, []
    for window in [*sorted(windows, key=lambda each: each.first), Window(axis, period, period, 0)]:
        if window.first > at:
            gaps.append((at, window.first))
        at = max(at, window.first + window.length)
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
