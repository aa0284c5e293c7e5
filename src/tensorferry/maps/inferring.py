"""A table from two files of the same weights: which tensors have the same elements, and how they lie.

Each element has a hash of 64 bits, and a tensor the sum of these, which does not depend on their
order. Equal sums are the same elements. The sums along an axis are as many marks of its lines: by
them a part of a tensor is found in another, and each line of one in the other. Nothing is taken for
found that a look at all values does not confirm.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from difflib import SequenceMatcher
from itertools import accumulate, islice, product
from math import gcd
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..core.dtypes import find
from ..host.casts import cast
from .applying import changed, filled, memory_for, words_of
from .arranging import arranged
from .expressions import AxisSlice, Cast, Reference
from .fitting import NotFittedError, fitted
from .foldings import foldings, is_long
from .forms import Filled, Joined, Piece, Placed, Stretch
from .formulas import Formula
from .generalizing import Model, Output, exact_rule, generalized
from .index_boxes import index_of_part, index_of_parts
from .line_sums import MOST_LINE, RANGE, LineSums, Window, view_as, whole_view
from .lowering import Header, lower
from .names import NameTemplate
from .rules import Rule
from .spelling import numbered
from .table import Table
from .word_rules import folded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ..typing import Array
    from .forms import Form
    from .index_boxes import IndexBox
    from .line_sums import TensorView, Weights
    from .lowering import MadeTensor
    from .moves import Move

__all__ = ["inferred"]

_EDGE = 64
"""How many elements along each axis are compared before a form is looked for."""
_WIDE = 16 << 20
"""How many bytes are made of a table at a time."""
_MOST_TRIES = 4096
_MOST_FITS = 64
_MOST_DIVISORS = 64


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
        self._target = {
            name: LineSums(name, weights, weights.dtype) for name, weights in target.items()
        }
        self._marks: dict[tuple[str, str], LineSums] = {}
        self._found: dict[str, _Found] = {}
        self._proved: dict[str, MadeTensor] = {}
        self._runs: dict[tuple[str, str], Array | None] = {}
        self._by_total: dict[tuple[str, int, int], list[str]] = defaultdict(list)
        self._dtypes_done: set[str] = set()

    def _marks_of(self, name: str, dtype: str) -> LineSums:
        marks = self._marks.get((name, dtype))
        if marks is None:
            marks = self._marks[name, dtype] = LineSums(name, self._source[name], dtype)
        return marks

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
        are_same = target.shape == marks.shape and (
            target.constant is not None or _are_alike(target, marks)
        )
        if are_same or (is_long(target.shape) and _long(target.shape) == _long(marks.shape)):
            form = _identity(source, marks.shape, target.shape)
            guess = self._of(name, form, (source,), is_assumed)
            if self._holds(name, guess):
                return True
        ways = product(foldings(target.shape, marks.shape), foldings(marks.shape, target.shape))
        for to, of in ways:
            views = view_as(target, to.shape), view_as(marks, of.shape)
            merges = not (to.is_folded or of.is_folded)
            for form, is_sure in self._forms(*views, of.shape, merges=merges):
                folded = to.target(of.source(form))
                guess = self._of(name, folded, (source,), is_assumed or not is_sure)
                if self._holds(name, guess):
                    return True
        return False

    def _forms(
        self,
        to: TensorView,
        of: TensorView,
        shape: tuple[int, ...],
        first: int = 0,
        *,
        merges: bool,
    ) -> Iterator[tuple[Form, bool]]:
        """Yield forms that a target, or a part of it, may have, and whether no two lines were equal.

        Args:
            to: The target.
            of: The source, or a part of it.
            shape: The shape of the source.
            first: Where that begins.
            merges: Whether several axes of the one may be one of the other.
        """
        fits = 0
        for way in islice(arranged(to, of, merges=merges), _MOST_TRIES):
            part = way.part
            if not self._may_be(to, [of.marks], index_of_part(to.shape, part)):
                continue
            index = index_of_part(to.shape, part._replace(start=part.start - first))
            form = _form(index, to.shape, {of.marks.name: shape})
            if form is not None:
                yield form, way.is_sure
            fits += 1
            if fits >= _MOST_FITS:
                return

    def _of(
        self,
        name: str,
        form: Form | None,
        sources: tuple[str, ...],
        is_assumed: bool,
        windows: tuple[tuple[str, Window], ...] = (),
    ) -> _Found | None:
        if form is None:
            return None
        kinds = {self._source[source].dtype for source in sources}
        (dtype,) = kinds if len(kinds) == 1 else {self._target[name].dtype}
        return _Found(form, sources, dtype, is_assumed, windows)

    def _holds(self, name: str, guess: _Found | None) -> bool:
        """Keep what a target is, if it makes the values that the target has, bit for bit."""
        if guess is None or len({self._source[source].dtype for source in guess.sources}) > 1:
            return False
        marks = self._target[name]
        output = _output(name, Header(marks.shape, marks.dtype), guess)
        rule, dims = exact_rule(output)
        used = {source_name: self._header(source_name) for source_name in rule.sources}
        made = lower(Table((rule,), (), dims), used).tensors.get(name)
        if made is None or not self._makes(made, marks):
            return False
        self._found[name], self._proved[name] = guess, made
        return True

    def _header(self, source: str) -> Header:
        weights = self._source[source]
        return Header(tuple(weights.shape), weights.dtype)

    def _may_be(self, target: TensorView, sources: Sequence[LineSums], index: IndexBox) -> bool:
        """Whether the first few values are the same, before a form is looked for.

        Args:
            target: The tensor, or a part of it.
            sources: What it is made of.
            index: Where its elements are, if the sources are numbered through.
        """
        dtypes = {marks.weights.dtype for marks in sources}
        if len(dtypes) > 1 or 0 in target.shape:
            return 0 in target.shape
        place = tuple([slice(min(length, _EDGE)) for length in target.shape[-2:]])
        place = (*[slice(1)] * (len(target.shape) - len(place)), *place)
        starts = [*accumulate((marks.size for marks in sources), initial=0)]
        gathered = _Gathered([marks.weights.array() for marks in sources], starts)
        part = gathered(np.asarray(index[place]))
        dtype = target.marks.dtype
        if dtype not in dtypes:
            part = cast(np.ascontiguousarray(part), dtype)
        return np.array_equal(_words(part), _words(target.array()[place]))

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
            guess.sources[0].rpartition(".")[0] == other
            for other_name, guess in self._found.items()
            if guess.sources and not guess.is_assumed and other_name.rpartition(".")[0] == module
        )
        words = SequenceMatcher(None, name, source, autojunk=False).ratio()
        return shapes * 0.5 + numbers * 1.0 + min(beside, 3) * 1.0 + words

    # -- parts ---------------------------------------------------------------------------------------

    def _joined(self, name: str) -> None:
        """A target that is made of whole sources, behind each other along an axis of rows."""
        target = self._target[name]
        candidates = [
            self._marks_of(marks, target.dtype) for marks in self._candidates(target.dtype)
        ]
        smaller = [marks for marks in candidates if 0 < marks.size < target.size]
        if is_long(target.shape) and len(target.shape) == 1:
            self._joined_flat(name, smaller)
            return
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
            arrangement = next(arranged(view, whole_view(marks)), None)
            if arrangement is None:
                return False
            is_assumed = is_assumed or not arrangement.is_sure
            parts.append(arrangement.part._replace(start=offsets[marks.name]))
        counts = [count for _, count, _ in chain]
        index = index_of_parts(target.shape, axis, period, counts, parts)
        if not self._may_be(whole_view(target), [*sources.values()], index):
            return False
        shapes = {source_name: marks.shape for source_name, marks in sources.items()}
        form = _form(index, target.shape, shapes)
        return form is not None and self._holds(
            name, self._of(name, form, tuple(sources), is_assumed)
        )

    def _joined_flat(self, name: str, smaller: list[LineSums]) -> None:
        """A long axis that is made of whole sources: each begins at a multiple of what divides all."""
        target = self._target[name]
        run = gcd(target.size, *[marks.size for marks in smaller])
        lines = view_as(target, (target.size // run, run)).sums(0, 1)
        chain = None if lines is None else _chain(lines, run, smaller)
        if not chain:
            return
        parts, is_assumed = [], False
        chosen = self._chosen(name, [marks for _, _, marks in chain])
        for (first, _, several), marks in zip(chain, chosen, strict=True):
            run_and_sure = self._run(target, first * run, marks)
            if run_and_sure is None:
                return
            parts.append(run_and_sure[0])
            is_assumed = is_assumed or len(several) > 1 or not run_and_sure[1]
        form = Joined(tuple(parts), 0, False, 1)
        sources = tuple(dict.fromkeys(marks.name for marks in chosen))
        self._holds(name, self._of(name, form, sources, is_assumed))

    def _run(self, target: LineSums, start: int, marks: LineSums) -> tuple[Form, bool] | None:
        """How a whole source is a run of a target of one axis, and whether no two lines were equal."""
        ways = product(foldings((marks.size,), marks.shape, 1), foldings(marks.shape, marks.shape))
        for to, of in ways:
            views = view_as(target, to.shape, start), view_as(marks, of.shape)
            for form, is_sure in self._forms(*views, of.shape, merges=False):
                folded = to.target(of.source(form))
                if folded is not None:
                    return folded, is_sure
        return None

    def _chosen(self, name: str, several: list[list[LineSums]]) -> list[LineSums]:
        """One tensor for each part, and each once, as long as there are enough."""
        chosen: list[LineSums] = []
        for some in several:
            free = [
                marks for marks in some if all(marks is not taken_marks for taken_marks in chosen)
            ] or some
            chosen.append(max(free, key=lambda marks: self._likeness(name, marks.name)))
        return chosen

    def _sliced(self, name: str) -> None:
        """A target that is a part of one source."""
        target = self._target[name]
        if target.constant is not None:
            return
        for source in self._candidates(target.dtype):
            marks = self._marks_of(source, target.dtype)
            if marks.size <= target.size:
                continue
            if is_long(marks.shape) and len(marks.shape) == 1:
                if self._cut(name, marks):
                    return
                continue
            for window in _windows(marks, target):
                view = window.view(marks)
                for to in foldings(target.shape, view.shape):
                    views = view_as(target, to.shape), view
                    merges = not to.is_folded
                    for form, is_sure in self._forms(*views, marks.shape, merges=merges):
                        guess = self._of(
                            name, to.target(form), (source,), not is_sure, ((source, window),)
                        )
                        if self._holds(name, guess):
                            return

    def _cut(self, name: str, marks: LineSums) -> bool:
        """Find a target in a long axis: it begins at a multiple of what divides all targets."""
        target = self._target[name]
        sizes = [other.size for other in self._target.values() if 0 < other.size < marks.size]
        run = gcd(marks.size, *sizes)
        key = marks.name, marks.dtype
        if key not in self._runs:
            self._runs[key] = view_as(marks, (marks.size // run, run)).sums(0, 1)
        lines = self._runs[key]
        if lines is None:
            return False
        for at in _places(lines, target.size // run, target.total):
            first = at * run
            window = Window(0, marks.size, first, target.size)
            ways = product(
                foldings(target.shape, target.shape), foldings((target.size,), target.shape, 1)
            )
            for to, of in ways:
                views = view_as(target, to.shape), view_as(marks, of.shape, first)
                for form, is_sure in self._forms(*views, of.shape, first, merges=False):
                    guess = self._of(
                        name,
                        to.target(of.source(form, first)),
                        (marks.name,),
                        not is_sure,
                        ((marks.name, window),),
                    )
                    if self._holds(name, guess):
                        return True
        return False

    # -- the table -----------------------------------------------------------------------------------

    def _made(self, config: Mapping[str, int], dims: Mapping[str, int]) -> Table:
        headers = {name: self._header(name) for name in self._source}
        outputs = [
            _output(
                name,
                Header(marks.shape, marks.dtype),
                self._found.get(name),
                None if name in self._found else self._why(marks),
            )
            for name, marks in self._target.items()
        ]
        rules, formulas = generalized([Model(headers, outputs, config, dims)])
        drop = tuple(self._dropped())
        table = Table(tuple(rules), drop, formulas.ways_of(rules, drop))
        return folded(self._compared(table, headers, config, dims), [headers])

    def _why(self, marks: LineSums) -> str:
        """Why a target was not found."""
        sources = self._by_total.get((marks.dtype, marks.size, marks.total))
        if sources:
            return f"the elements of {sources[0]}, in an order that was not found"
        others = [
            self._marks_of(candidate, marks.dtype) for candidate in self._candidates(marks.dtype)
        ]
        long = next((candidate for candidate in [marks, *others] if is_long(candidate.shape)), None)
        if long is not None:
            return (
                f"no tensor of the source has its elements, as far as {long.name} tells, of which an "
                f"axis has more than {MOST_LINE} lines: infer from files in which it has more axes"
            )
        return "no tensor of the source has its elements"

    def _dropped(self) -> Iterator[Reference]:
        """Yield what no tensor of the target has."""
        used = {source for guess in self._found.values() for source in guess.sources}
        unused = [name for name in self._source if name not in used]
        for name in dict.fromkeys(map(_glob, unused)):
            alike = [alike_name for alike_name in self._source if _glob(alike_name) == name]
            if all(alike_name in unused for alike_name in alike) and len(alike) > 1:
                yield Reference(NameTemplate((name,), ()))
            else:
                for alike_name in alike:
                    if alike_name in unused:
                        yield Reference(NameTemplate((alike_name,), ()))
        windows: dict[str, list[Window]] = defaultdict(list)
        whole = set()
        for guess in self._found.values():
            parts = dict(guess.windows)
            for source in guess.sources:
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
            and (name not in lowered.tensors or not self._is_as_found(lowered.tensors[name], marks))
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

    def _is_as_found(self, made: MadeTensor, marks: LineSums) -> bool:
        """Whether a rule makes a target: by the moves that have been carried out, or by others."""
        proved = self._proved.get(made.name)
        return (proved is not None and _are_same(made, proved)) or self._makes(made, marks)

    def _makes(self, made: MadeTensor, marks: LineSums) -> bool:
        """Whether moves make the values of a target, bit for bit."""
        if made.header != Header(marks.shape, marks.dtype):
            return False
        wanted = marks.weights.array().reshape(-1)
        flat: dict[str, Array] = {}
        weights = [marks.weights, *[self._source[name] for name in made.sources]]

        def whole(name: str) -> Array:
            if name not in flat:
                flat[name] = self._source[name].array().reshape(-1)
            return flat[name]

        def elements(move: Move) -> list[tuple[Move, Array]]:
            return [(move, whole(str(move.source)))]

        def release() -> None:
            for array in weights:
                array.release()

        # As a file is written: in wide blocks, so that pages of a source are read a few times.
        count = max(_WIDE // find(made.source_dtype).itemsize, 1)
        is_plain = len(made.moves) == 1 and made.moves[0].is_whole and bool(made.sources)
        size = 0 if is_plain else min(count, marks.size)
        memory = memory_for(max(size, 1), made.source_dtype)
        for start in range(0, marks.size, count):
            stop = min(start + count, marks.size)
            if is_plain:
                part = whole(made.sources[0])[start:stop]
            else:
                part = filled(made.moves, elements, made.source_dtype, start, stop, release, memory)
            part = changed(part, made.changes)
            if not np.array_equal(_words(part), _words(wanted[start:stop])):
                return False
            release()
        return True


def _output(name: str, header: Header, guess: _Found | None, reason: str | None = None) -> Output:
    """A tensor of the target, and what it is made of, or why that was not found."""
    if guess is None:
        return Output(name, header, None, reason)
    return Output(name, header, guess.form, None, guess.constants, guess.dtype, guess.is_assumed)


def _are_same(one: MadeTensor, other: MadeTensor) -> bool:
    """Whether two make the same: with the same moves and casts."""
    casts, others = [
        [(type(change), change.dtype) for change in made.changes if isinstance(change, Cast)]
        for made in (one, other)
    ]
    return (
        one.header == other.header
        and one.source_dtype == other.source_dtype
        and len(casts) == len(one.changes) == len(other.changes)
        and casts == others
        and set(one.moves) == set(other.moves)
        and one.equal == other.equal
    )


def _becomes(source: str, target: str) -> bool:
    """Whether elements of one dtype may have become those of another."""
    return source == target or find(source).kind == find(target).kind == "float"


def _are_alike(one: LineSums, other: LineSums) -> bool:
    """Whether all lines of two tensors of one shape have the same sums."""
    for axis in range(len(one.shape)):
        first, second = one.sums(axis, axis + 1), other.sums(axis, axis + 1)
        # Of long axes nothing is known.
        if first is not None and second is not None and not np.array_equal(first, second):
            return False
    return True


def _long(shape: tuple[int, ...]) -> list[int]:
    """The lengths without those of one element."""
    return [length for length in shape if length > 1]


def _identity(source: str, shape: tuple[int, ...], target: tuple[int, ...]) -> Form:
    """The form of a tensor as it is; axes of one element may be others."""
    keys = [*accumulate((length > 1 for length in shape), initial=0)]
    left = tuple(
        [
            (Stretch(key, length, 0, length),) if length > 1 else ()
            for key, length in zip(keys, shape, strict=False)
        ]
    )
    places = [*accumulate((length > 1 for length in target), initial=0)]
    right = tuple(
        [
            (Placed(key, length, False),) if length > 1 else ()
            for key, length in zip(places, target, strict=False)
        ]
    )
    return Piece(source, (), left, right)


class _Gathered:
    """Elements of several tensors that are numbered through, by their numbers.

    Args:
        arrays: The tensors.
        starts: The number of the first element of each, and how many there are.
    """

    def __init__(self, arrays: Sequence[Array], starts: Sequence[int]) -> None:
        self.arrays = [array.reshape(-1) for array in arrays]
        self._starts = np.array(starts, np.int64)

    def __call__(self, numbers: Array) -> Array:
        """The elements at numbers."""
        first, last = (
            int(np.searchsorted(self._starts, end, "right")) - 1
            for end in (numbers.min(), numbers.max())
        )
        if first == last:
            gathered: Array = self.arrays[first][numbers - self._starts[first]]
            return gathered
        gathered = np.empty(numbers.shape, self.arrays[first].dtype)
        for array_number in range(first, last + 1):
            is_here = (numbers >= self._starts[array_number]) & (
                numbers < self._starts[array_number + 1]
            )
            if is_here.any():
                gathered[is_here] = self.arrays[array_number][
                    numbers[is_here] - self._starts[array_number]
                ]
        return gathered


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
    divisors = [divisor for divisor in range(1, min(length, 1 << 16) + 1) if length % divisor == 0]
    return [length, *[divisor for divisor in reversed(divisors) if divisor < length]][
        :_MOST_DIVISORS
    ]


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
            for first in _places(lines, count, target.total):
                yield Window(axis, period, first, count)


def _places(lines: Array, count: int, total: int) -> list[int]:
    """Where so many neighbours among sums have a total."""
    before: Array = np.zeros(lines.size + 1, np.uint64)
    np.cumsum(lines, out=before[1:])
    places: list[int] = np.flatnonzero(
        before[count:] - before[:-count] == np.uint64(total)
    ).tolist()
    return places


def _left(source: str, shape: tuple[int, ...], windows: list[Window]) -> Iterator[Reference]:
    """Yield the parts of an axis that no window has, if all are of one axis and one period."""
    axes = {(window.axis, window.period) for window in windows}
    if len(axes) > 1:
        return
    ((axis, period),) = axes
    at, gaps = 0, []
    for window in [
        *sorted(windows, key=lambda window: window.first),
        Window(axis, period, period, 0),
    ]:
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
        for part in taken:
            yield Reference(NameTemplate((source,), ()), (*[whole] * axis, part))


def _glob(name: str) -> str:
    """A name with a star for each number."""
    parts = numbered(name)
    return "*".join(parts.texts)
