"""A table for the tensors of one source: which tensors there will be, and the moves that fill them."""

from __future__ import annotations

import fnmatch
from itertools import islice
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from ..core.dtypes import DTYPES, find
from .expressions import (
    Arithmetic,
    Cast,
    Concatenation,
    Fill,
    Moves,
    Reference,
    Same,
    Stack,
    View,
    lengths_in,
    names_in,
    positions_in,
    references_in,
    stacked_in,
)
from .formulas import NoValueError, formula
from .map_finding import MapFinding
from .moves import Move, NotMovedError, ends, restrided, simplified, steps_of
from .names import KnownNames, NameTemplate
from .rules import drop_of_each_word, unseen_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from .expressions import AxisSlice, Expression
    from .formulas import Formula
    from .patterns import Pattern
    from .rules import Rule
    from .table import Table

__all__ = ["Constant", "Header", "Lowered", "Lowering", "MadeTensor", "lower"]

_MOST_MADE = 200_000
"""The most tensors of one target."""
_MOST_INDEX = 1 << 20
_MOST_MOVES = 2_000_000
_LARGEST = 1 << 50
"""The most elements of one tensor."""
_NARROW = ("bool", "int2", "int4", "uint2", "uint4", "float4", "float6")
_PARTS_OF_BYTES = frozenset(name for name in DTYPES if name.partition("_")[0] in _NARROW)
"""Dtypes that use some bits of a byte only."""


class Header(NamedTuple):
    """A tensor before its values are read.

    Args:
        shape: Lengths of the axes.
        dtype: The canonical name of the dtype.
    """

    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    def viewed_as(self, dtype: str) -> Header | None:
        """The header if the bytes are elements of another dtype; ``None`` if they cannot be."""
        before, after = find(self.dtype).itemsize, find(dtype).itemsize
        if before == after:
            return Header(self.shape, dtype)
        if not self.shape or self.shape[-1] * before % after:
            return None
        return Header((*self.shape[:-1], self.shape[-1] * before // after), dtype)


class Constant(NamedTuple):
    """A source of one number."""

    number: float


class MadeTensor(NamedTuple):
    """A tensor of the target.

    Args:
        name: Its name.
        header: Its shape and dtype.
        source_dtype: The dtype of what is moved, before `changes`.
        moves: The moves that fill it, with names of sources or a `Constant`.
        moved: How many elements they fill, before `changes`.
        changes: What is done to the elements then: casts, views and arithmetic, in order.
        equal: Names of tensors that must be the same as the source that stands beside them, for
            each: the name, its moves.
        assumed: Whether its rule was guessed.
    """

    name: str
    header: Header
    source_dtype: str
    moves: tuple[Move, ...]
    moved: int
    changes: tuple[Cast | View | Arithmetic, ...] = ()
    equal: tuple[tuple[Move, ...], ...] = ()
    assumed: bool = False

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the tensors that it is made of."""
        every = [*self.moves, *(move for moves in self.equal for move in moves)]
        return tuple(dict.fromkeys(move.source for move in every if isinstance(move.source, str)))

    @property
    def is_renamed(self) -> bool:
        """Whether it is one whole tensor as it is; the shape may differ."""
        return (
            len(self.moves) == 1
            and not self.changes
            and not self.equal
            and (self.moves[0].is_whole and isinstance(self.moves[0].source, str))
        )


class Lowered(NamedTuple):
    """A table for the tensors of one source.

    Args:
        tensors: The tensors of the target, by name.
        dropped: The positions of elements that the table drops, by the name of the tensor, as moves
            out of it.
        findings: What is wrong.
        dims: The lengths.
        unmade: Why tensors are not made, by name: the reasons of rules that say nothing else.
        doubtful: Names of the source that a rule has which could not be lowered.
    """

    tensors: dict[str, MadeTensor]
    dropped: dict[str, list[Move]]
    findings: list[MapFinding]
    dims: dict[str, int]
    unmade: dict[str, str]
    doubtful: frozenset[str] = frozenset()


def lower(
    table: Table,
    source: Mapping[str, Header],
    *,
    config: Mapping[str, int] | None = None,
    dims: Mapping[str, int] | None = None,
) -> Lowered:
    """Lower a table to moves between the tensors of a source and those that it makes.

    Args:
        table: The table.
        source: The tensors of the source, by name.
        config: Numbers of ``config.json``, by their keys with dots.
        dims: Lengths that are given.
    """
    return Lowering(table, source, config or {}, dims or {}).all()


class _Made(NamedTuple):
    """What an expression makes: the moves into a shape, and what is done then.

    Args:
        shape: The shape, after all changes.
        dtype: The dtype of what is moved, before the changes.
        moves: The moves.
        changes: What is done then.
        equal: As for `MadeTensor`.
        moved: How many elements are moved, if they are others than those of the shape.
    """

    shape: tuple[int, ...]
    dtype: str
    moves: Sequence[Move]
    changes: tuple[Cast | View | Arithmetic, ...] = ()
    equal: tuple[tuple[Move, ...], ...] = ()
    moved: int | None = None

    @property
    def made_dtype(self) -> str:
        """The dtype after all changes."""
        dtypes = [change.dtype for change in self.changes if isinstance(change, (Cast, View))]
        return dtypes[-1] if dtypes else self.dtype


class _Parts(NamedTuple):
    """What a reference makes of the tensors whose names it has.

    Args:
        reference: The reference, which is the key as the object that it is, and has to stay.
        fill: Gives the name of a tensor.
        used: The names in it that stand for lengths and places.
        made: What it makes, without a source, by the header and the values of these names.
    """

    reference: Reference
    fill: Callable[[Mapping[str, int]], str]
    used: tuple[str, ...]
    made: dict[object, _Made]


class _WrongError(Exception):
    """An expression that does not fit its tensors."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Lowering:
    """A table and the tensors of a source, while they are put together: see `lower`."""

    def __init__(
        self,
        table: Table,
        source: Mapping[str, Header],
        config: Mapping[str, int],
        dims: Mapping[str, int],
    ) -> None:
        self._table = table
        self._source = source
        self._findings: list[MapFinding] = []
        self._dims = self._known_dims(config, dims)
        self.names = KnownNames(source)
        self._doubtful: set[str] = set()
        self._seen_words: set[tuple[str, str]] = set()
        self._headers: dict[Header, Header] = {}
        self._parts: dict[int, _Parts] = {}

    def _known_dims(self, config: Mapping[str, int], given: Mapping[str, int]) -> dict[str, int]:
        """The lengths that are given, or in ``config.json``."""
        known: dict[str, int] = {}
        unknown = [name for name in given if name not in self._table.dims]
        if unknown:
            names = {
                name
                for rule in self._table.rules
                if rule.expression
                for name in lengths_in(rule.expression)
            }
            for name in unknown:
                if name in names:
                    known[name] = given[name]
                else:
                    self._add("unknown", "", f"dims has {name}, which is no length of this table")
        for name, ways in self._table.dims.items():
            if name in given:
                known[name] = given[name]
                continue
            for way in ways:
                try:
                    value = (
                        formula(way).value({**config, **known})
                        if way and isinstance(way, str)
                        else way
                    )
                except NoValueError:
                    continue
                if isinstance(value, int):
                    known[name] = value
                    break
        return known

    def _add(self, kind: str, tensor: str, message: str) -> None:
        self._findings.append(MapFinding(kind, tensor, message))

    # -- all -----------------------------------------------------------------------------------------

    def all(self) -> Lowered:
        """All tensors of the target."""
        instances = self._instances()
        total = sum(len(every) for _, every in instances)
        if total > _MOST_MADE:
            self._add("length", "", f"the table makes {total:,} tensors, which are too many")
            return Lowered({}, {}, self._findings, self._dims, {})
        self._solve(instances)
        made: dict[str, MadeTensor] = {}
        unmade: dict[str, str] = {}
        count = 0
        fillers = [rule.target.filler() for rule, _ in instances]
        for rule, fill, values in (
            (own_rule, filler, numbers)
            for (own_rule, every), filler in zip(instances, fillers, strict=True)
            for numbers in every
        ):
            try:
                name = fill(values)
            except NoValueError as error:
                self._add("unknown", str(rule.target), error.why)
                continue
            if name in made or name in unmade:
                self._add("twice", name, "two rules make it")
                continue
            if rule.expression is None:
                unmade[name] = rule.reason or "not known"
                self._add("unfilled", name, f"the table does not say what it is: {unmade[name]}")
                continue
            tensor = self._tensor(rule, name, values)
            if tensor is not None:
                made[name] = tensor
                count += len(tensor.moves)
            if count > _MOST_MOVES:
                self._add("length", name, "takes more moves than a table may have")
                break
        dropped = self._dropped()
        for message in unseen_words(self._table.words, self._seen_words):
            self._add("unknown", "", message)
        doubtful = frozenset(self._doubtful)
        return Lowered(made, dropped, self._findings, self._dims, unmade, doubtful)

    def _instances(self) -> list[tuple[Rule, list[dict[str, int]]]]:
        """The rules, one for each word in their names, with the numbers for which they are."""
        instances: list[tuple[Rule, list[dict[str, int]]]] = []
        for rule, every in self._table.expanded:
            before = len(instances)
            for one_rule in every:
                values = self.values_of(one_rule)
                if values:
                    instances.append((one_rule, values))
                    self._seen_words.update(one_rule.words)
            if len(instances) == before and every[0].words:
                self._add("unfilled", str(rule.target), "the source has no name for any word of it")
        return instances

    def header_of(self, expression: Expression, values: Mapping[str, int]) -> Header | None:
        """The shape and dtype of a part of a rule; ``None`` if it does not fit."""
        try:
            made = self._made(expression, dict(values))
        except (_WrongError, NoValueError, NotMovedError):
            return None
        return Header(made.shape, made.made_dtype)

    def _tensor(self, rule: Rule, name: str, values: Mapping[str, int]) -> MadeTensor | None:
        if rule.expression is None:
            return None
        try:
            made = self._made(rule.expression, dict(values))
        except _WrongError as error:
            self._add(error.kind, name, str(error))
        except NoValueError as error:
            self._findings.append(MapFinding("length", name, self._why(error), error.name))
        except NotMovedError:
            self._add("length", name, "takes more moves than a table may have")
        else:
            size = prod(made.shape)
            if size > _LARGEST:
                self._add("length", name, f"has {size:,} elements, which are too many")
                return None
            header = Header(made.shape, made.made_dtype)
            return MadeTensor(
                name,
                # One for all that are alike: the fewer objects there are, the faster is the check.
                self._headers.setdefault(header, header),
                made.dtype,
                tuple(made.moves),
                size if made.moved is None else made.moved,
                made.changes,
                made.equal,
                rule.assumed,
            )
        self._doubtful |= set(self._sources_of(rule.expression, values))
        return None

    def _sources_of(self, expression: Expression, values: Mapping[str, int]) -> Iterator[str]:
        """Yield the names of the source that are in an expression, as far as they are there."""
        for name, _ in names_in(expression):
            yield from (source_name for source_name, _ in self.names.matching(name, values))

    def _why(self, error: NoValueError) -> str:
        if error.name is None:
            return error.why
        if error.name in self._table.dims:
            keys = [way for way in self._table.dims[error.name] if isinstance(way, str) and way]
            where = f", nor {' or '.join(keys)} in config.json" if keys else ""
            return f"the length {error.name} is not given{where}, and no shape tells it"
        return f"the length {error.name} is not given, and no shape tells it"

    def _dropped(self) -> dict[str, list[Move]]:
        dropped: dict[str, list[Move]] = {}
        for reference, words in drop_of_each_word(self._table.drop, self._table.words):
            for name, values in self._globbed(reference.name):
                self._seen_words.update(words.items())
                if reference.slices or reference.pattern is not None:
                    try:
                        moves = self._reference(
                            reference._replace(name=NameTemplate.exactly(name)), values
                        ).moves
                    except (_WrongError, NoValueError, NotMovedError) as error:
                        self._add("bounds", name, f"what is dropped of it does not fit: {error}")
                        continue
                else:
                    size = self._source[name].size
                    moves = [Move(name, (size,), 0, (1,), 0, (1,))]
                dropped.setdefault(name, []).extend(moves)
        return dropped

    def _globbed(self, name: NameTemplate) -> Iterator[tuple[str, dict[str, int]]]:
        """The names that are dropped, with the numbers in them."""
        if not any("*" in text for text in name.texts):
            yield from self.names.matching(name)
            return
        glob = name.texts[0] + "".join(f"[0-9]*{text}" for text in name.texts[1:])
        for source_name in self._source:
            if fnmatch.fnmatchcase(source_name, glob):
                yield source_name, {}

    # -- which rules, for which numbers -------------------------------------------------------------

    def values_of(self, rule: Rule) -> list[dict[str, int]]:
        """The numbers in names for which a rule makes a tensor."""
        if rule.expression is None:
            return [{}] if not rule.target.fields else []
        wanted = rule.target.names
        bound = stacked_in(rule.expression)
        refs = [index for index, inner in names_in(rule.expression) if not inner]
        refs += [index for index, inner in names_in(rule.expression) if inner]
        all_values: dict[tuple[int, ...], dict[str, int]] = {}
        by_position = positions_in(rule.expression) & wanted
        first = next((ref for ref in refs if wanted - by_position <= ref.names), None)
        if first is None and refs and wanted:
            return self._joined(rule, refs, wanted)
        if first is None and wanted:
            self._add("unknown", str(rule.target), f"no name tells {', '.join(sorted(wanted))}")
            return []
        if first is None:
            return [{}]
        before = len(self._findings)
        for name, values in self.names.matching(first):
            kept = values
            if bound:
                kept = {index: number for index, number in values.items() if index not in bound}
            if not by_position:
                # The numbers stand in the same order for all names that match.
                all_values[tuple(kept.values())] = kept
                continue
            unknown = by_position - kept.keys()
            for more in self._positions(rule.expression, name, kept, unknown):
                all_values[tuple([number for _, number in sorted(more.items())])] = more
        # For some words there may be none: whether there is any is seen for all of them.
        if not all_values and not rule.words and len(self._findings) == before:
            self._add("unfilled", str(rule.target), f"the source has no {first}")
        return list(all_values.values())

    def _joined(
        self, rule: Rule, refs: list[NameTemplate], wanted: frozenset[str]
    ) -> list[dict[str, int]]:
        """The numbers of a rule whose names have them only together."""
        joined: list[dict[str, int]] = [{}]
        for ref in refs:
            if not ref.names - frozenset().union(*map(frozenset, joined)):
                continue
            pairs = (
                {**values, **more}
                for values in joined
                for _, more in self.names.matching(ref, values)
            )
            joined = list(islice(pairs, _MOST_MADE + 1))
        missing = wanted - frozenset().union(*map(frozenset, joined)) if joined else wanted
        if missing and rule.words:
            return []
        if missing:
            self._add("unfilled", str(rule.target), f"no name tells {', '.join(sorted(missing))}")
            return []
        return joined

    def _positions(
        self, expression: Expression, name: str, values: dict[str, int], names: frozenset[str]
    ) -> Iterator[dict[str, int]]:
        """Yield numbers, with those that are positions in a tensor: all that an axis has."""
        if not names:
            yield values
            return
        for reference in references_in(expression):
            for axis, cut in enumerate(reference.slices):
                if not cut.is_index or cut.start is None or cut.start.name not in names:
                    continue
                shape = self._source[name].shape
                if axis >= len(shape):
                    continue
                if shape[axis] > _MOST_INDEX:
                    what = f"{shape[axis]:,} tensors along an axis of {name} are too many"
                    self._add("length", str(reference), what)
                    return
                for number in range(shape[axis]):
                    more = {**values, cut.start.name: number}
                    yield from self._positions(expression, name, more, names - {cut.start.name})
                return

    # -- lengths -------------------------------------------------------------------------------------

    def _solve(self, instances: Sequence[tuple[Rule, list[dict[str, int]]]]) -> None:
        """Find lengths of the table that only shapes tell."""
        unknown = self._table.dims.keys() - self._dims.keys()
        goes_on = bool(unknown)
        while goes_on:
            goes_on = False
            for rule, every in instances:
                if rule.expression is None:
                    continue
                for reference in references_in(rule.expression):
                    names = frozenset() if reference.pattern is None else reference.pattern.names
                    for values in every:
                        if not names & unknown:
                            break
                        lengths = self._lengths(reference, values)
                        goes_on |= bool(lengths.keys() & unknown)
                        self._dims |= {name: lengths[name] for name in lengths.keys() & unknown}
                        unknown -= self._dims.keys()

    def _lengths(self, reference: Reference, values: Mapping[str, int]) -> dict[str, int]:
        known = {**self._dims, **values}
        try:
            header = self._source.get(reference.name.fill(values))
            if header is None or reference.pattern is None:
                return {}
            shape = _sliced(header.shape, reference.slices, known)[0]
            return reference.pattern.solve(shape, known)
        except (NoValueError, _WrongError):
            return {}

    # -- expressions ---------------------------------------------------------------------------------

    def _made(self, expression: Expression, values: dict[str, int]) -> _Made:
        if isinstance(expression, Reference):
            return self._reference(expression, values)
        if isinstance(expression, Concatenation):
            parts = [self._made(part, values) for part in expression.parts]
            return self._with_pattern(
                _concatenated(parts, expression.axis), expression.pattern, values
            )
        if isinstance(expression, Stack):
            return self._with_pattern(self._stacked(expression, values), expression.pattern, values)
        if isinstance(expression, Same):
            return self._same(expression, values)
        if isinstance(expression, (Cast, View, Arithmetic)):
            inner = self._made(expression.of, values)
            if not isinstance(expression, Arithmetic):
                _refuse_other_dtype(inner, expression)
            if isinstance(expression, View):
                inner = _viewed(inner, expression.dtype)
            return inner._replace(changes=(*inner.changes, expression))
        if isinstance(expression, Fill):
            shape = tuple([_length(n, {**self._dims, **values}) for n in expression.shape])
            size = prod(shape)
            moves = [Move(Constant(expression.number), (size,), 0, (1,), 0, (0,))] if size else []
            return _Made(shape, expression.dtype, moves)
        return self._written(expression, values)

    def _header(self, name: str) -> Header:
        header = self._source.get(name)
        if header is None:
            raise _WrongError("unfilled", f"the source has no {name}")
        return header

    def _reference(self, reference: Reference, values: Mapping[str, int]) -> _Made:
        # Layers are alike: what is made of one is made of all.
        parts = self._parts.get(id(reference))
        if parts is None:
            used = tuple(sorted(lengths_in(reference)))
            parts = self._parts[id(reference)] = _Parts(
                reference, reference.name.filler(), used, {}
            )
        name = parts.fill(values)
        header = self._header(name)
        key = header, tuple([values.get(index) for index in parts.used])
        made = parts.made.get(key)
        if made is None:
            made = parts.made[key] = self._part(reference, header, values)
        # `_replace` takes three times as long, and there are many names.
        moves = tuple([Move(name, *move[1:]) for move in made.moves])
        return _Made(made.shape, made.dtype, moves, *made[3:])

    def _part(self, reference: Reference, header: Header, values: Mapping[str, int]) -> _Made:
        """What a reference makes of any tensor with this header."""
        known = {**self._dims, **values}
        shape, start, steps = _sliced(header.shape, reference.slices, known)
        pattern = reference.pattern
        if pattern is not None and pattern.takes:
            values = {**values, **pattern.solve(shape, known)}
            pattern, shape, start, steps = pattern.opened(shape, start, steps, {**known, **values})
        move = Move(None, shape, 0, steps_of(shape), start, steps)
        made = _Made(shape, header.dtype, [simplified(move)] if prod(shape) else [])
        return self._with_pattern(made, pattern, values)

    def _with_pattern(
        self, made: _Made, pattern: Pattern | None, values: Mapping[str, int]
    ) -> _Made:
        if pattern is None:
            return made
        known = {**self._dims, **values}
        known |= pattern.solve(made.shape, known)
        moves, shape = pattern.apply(made.moves, made.shape, known)
        equal = [tuple(pattern.apply(same, made.shape, known)[0]) for same in made.equal]
        return made._replace(moves=moves, shape=shape, equal=tuple(equal))

    def _stacked(self, expression: Stack, values: dict[str, int]) -> _Made:
        if expression.over is None:
            parts = [self._made(part, values) for part in expression.parts]
        else:
            (part,) = expression.parts
            numbers = self._numbers_of(part, expression.over, values)
            parts = [
                self._made(part, {**values, expression.over: part_made}) for part_made in numbers
            ]
        axis = expression.axis
        if axis < 0:
            axis += len(parts[0].shape) + 1
        if not 0 <= axis <= len(parts[0].shape):
            raise _WrongError("shape", f"there is no axis {expression.axis} to stack along")
        inserted = [
            part_made._replace(shape=(*part_made.shape[:axis], 1, *part_made.shape[axis:]))
            for part_made in parts
        ]
        return _concatenated(inserted, axis)

    def _numbers_of(self, part: Expression, index: str, values: Mapping[str, int]) -> range:
        """The numbers that stand at a name in the names of a stack: all from 0."""
        indices: set[int] = set()
        for name, _ in names_in(part):
            if index not in name.names:
                continue
            indices.update([numbers[index] for _, numbers in self.names.matching(name, values)])
            break
        if not indices:
            raise _WrongError("unfilled", f"the source has nothing to stack for {index}")
        if indices != set(range(len(indices))):
            missing = next(number for number in range(len(indices)) if number not in indices)
            raise _WrongError("unfilled", f"what is stacked has no {index} = {missing}")
        return range(len(indices))

    def _same(self, expression: Same, values: dict[str, int]) -> _Made:
        parts = [self._made(part, values) for part in expression.parts]
        first = parts[0]
        for part in parts[1:]:
            if (part.shape, part.dtype) != (first.shape, first.dtype):
                raise _WrongError("shape", f"{_what(first)} and {_what(part)} cannot be the same")
        if any(part.changes for part in parts):
            raise _WrongError("shape", "a cast has to stand outside of same")
        equal = [tuple(moves) for part in parts[1:] for moves in (part.moves, *part.equal)]
        return first._replace(equal=(*first.equal, *equal))

    def _written(self, expression: Moves, values: Mapping[str, int]) -> _Made:
        moves, dtypes = [], {}
        size = prod(expression.shape)
        for written_move in expression.moves:
            name = written_move.source.fill(values)
            header = self._header(name)
            dtypes[header.dtype] = name
            move = Move(
                name,
                written_move.sizes,
                written_move.target[0],
                written_move.target[1:],
                written_move.of[0],
                written_move.of[1:],
            )
            low, high = ends(simplified(move))
            if low < 0 or high >= size:
                raise _WrongError("bounds", f"a move writes {low} to {high} of {size} elements")
            low, high = ends(move, source=True)
            if low < 0 or high >= header.size:
                raise _WrongError(
                    "bounds", f"a move reads {low} to {high} of the {header.size} of {name}"
                )
            moves.append(simplified(move))
        if len(dtypes) > 1:
            raise _WrongError("dtype", f"is made of different dtypes: {', '.join(dtypes)}")
        if not dtypes:
            raise _WrongError("unfilled", "has no moves")
        return _Made(expression.shape, next(iter(dtypes)), moves)


def _what(made: _Made) -> str:
    return f"{made.dtype}{list(made.shape)}"


def _refuse_other_dtype(made: _Made, change: Cast | View) -> None:
    """Raise for a tensor that has another dtype than its cast or view says."""
    if change.before not in (None, made.made_dtype):
        raise _WrongError("dtype", f"is from {change.before}, and there is {made.made_dtype}")


def _viewed(made: _Made, dtype: str) -> _Made:
    """A tensor whose bytes are elements of another dtype."""
    for one_dtype in (made.made_dtype, dtype):
        if one_dtype in _PARTS_OF_BYTES:
            raise _WrongError(
                "dtype", f"{one_dtype} uses some bits of a byte only, so it cannot be viewed"
            )
    header = Header(made.shape, made.made_dtype)
    viewed = header.viewed_as(dtype)
    if viewed is None and not made.shape:
        raise _WrongError("shape", f"has no axis along which {header.dtype} could be {dtype}")
    if viewed is None:
        count = made.shape[-1] * find(header.dtype).itemsize
        raise _WrongError(
            "shape", f"its last axis has {count} bytes, of which no whole number of {dtype} is made"
        )
    moved = prod(made.shape) if made.moved is None else made.moved
    return made._replace(shape=viewed.shape, moved=moved)


def _concatenated(parts: Sequence[_Made], axis: int) -> _Made:
    """Tensors behind each other."""
    first = parts[0]
    at = axis + len(first.shape) if axis < 0 else axis
    if not 0 <= at < len(first.shape):
        raise _WrongError("shape", f"there is no axis {axis} to join along")
    if any(part.changes for part in parts):
        raise _WrongError("shape", "a cast, a view or a sum has to stand outside of what is joined")
    dtype = first.dtype
    for part in parts[1:]:
        rest = [*part.shape]
        if len(rest) == len(first.shape):
            rest[at] = first.shape[at]
        if tuple(rest) != first.shape:
            raise _WrongError("shape", f"{list(first.shape)} and {list(part.shape)} do not join")
        if part.dtype != dtype:
            raise _WrongError("dtype", f"{dtype} and {part.dtype} do not join without a cast")
    shape = [*first.shape]
    shape[at] = sum(part.shape[at] for part in parts)
    steps = steps_of(shape)
    placed: list[list[Move]] = []
    equal: list[tuple[int, list[Move]]] = []
    start = 0
    # Parts are alike, as experts are: where one lies, all others do, but for where they begin.
    known: dict[object, list[Move]] = {}
    for place, part in enumerate(parts):
        for moves in (part.moves, *part.equal):
            there: list[Move] = []
            for move in moves:
                key = move[1:], part.shape
                if key not in known:
                    known[key] = list(restrided(move, part.shape, steps))
                there += [
                    Move(move.source, taken[1], taken[2] + start * steps[at], *taken[3:])
                    for taken in known[key]
                ]
            if moves is part.moves:
                placed.append(there)
            else:
                equal.append((place, there))
        start += part.shape[at]
    every = [move for moves in placed for move in moves]
    # What one part has to be equal to, with the others as they are.
    others = [
        (*there, *(move for at, some in enumerate(placed) if at != place for move in some))
        for place, there in equal
    ]
    return _Made(tuple(shape), dtype, every, equal=tuple(others))


def _sliced(
    shape: tuple[int, ...], slices: tuple[AxisSlice, ...], known: Mapping[str, int]
) -> tuple[tuple[int, ...], int, tuple[int, ...]]:
    """The shape of a part, its first position, and the steps between its elements."""
    if len(slices) > len(shape):
        raise _WrongError("shape", f"has {len(shape)} axes, and {len(slices)} are taken apart")
    start, lengths, steps = 0, [], []
    for axis, (length, step) in enumerate(zip(shape, steps_of(shape), strict=True)):
        if axis >= len(slices):
            lengths.append(length)
            steps.append(step)
            continue
        taken = slices[axis]
        first = 0 if taken.start is None else _place(taken.start, length, known)
        if taken.is_index:
            if not 0 <= first < length:
                raise _WrongError("bounds", f"has no index {first} in an axis of {length}")
            start += first * step
            continue
        last = length if taken.stop is None else _place(taken.stop, length, known)
        by = 1 if taken.step is None else taken.step.value(known)
        if not 0 <= first <= last <= length:
            raise _WrongError("bounds", f"has no [{taken}] ({first}:{last}) in an axis of {length}")
        start += first * step
        lengths.append(max(-(-(last - first) // by), 0))
        steps.append(step * by)
    return tuple(lengths), start, tuple(steps)


def _place(place: Formula, length: int, known: Mapping[str, int]) -> int:
    """A place in an axis; from its end, if it is negative."""
    place_value = place.value(known)
    return place_value + length if place_value < 0 else place_value


def _length(length: Formula, known: Mapping[str, int]) -> int:
    value = length.value(known)
    if value < 0:
        raise NoValueError(None, f"{length} is {value}, which is no length")
    return value
