"""Columns of tables in files: they are read, and become tensors, by the functions for tables in memory."""

from __future__ import annotations

import os
import re
from contextlib import closing, suppress
from copy import copy
from functools import cached_property, partial
from glob import escape
from math import prod
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ... import hints
from ...backends import registry
from ...backends.array_like.tables import ArrowColumn
from ...backends.opening import TableContents
from ...columns.column import CODES, Column, ColumnCode, Ragged, Refused
from ...columns.layouts import column_of
from ...columns.pieces import Missing, Piece
from ...core.dtypes import casting_scale, find
from ...core.leaf_dtypes import DtypeRule, dtype_of_leaf
from ...core.names import EXCHANGE
from ...errors import ConversionError, FileFormatError, LossyCastError, TreeError, UnsafeFileError
from ...execution.column_keywords import Masked, apply_column_keywords, contents_of
from ...execution.recipes import conversion_as
from ...execution.run import convert
from ...files.base.limits import uncast_by
from ...hints import Hint, quoted
from ...host import casts
from ...host.numpy_dtypes import numpy_dtype
from ...trees.failures import ask_for_all, hint_for_leaf
from ...trees.tables import apply_to_leaf, put_masks_beside
from ..base.contents import Columns, NotTensor, Ref
from ..base.nesting import MOST_LETTERS, NameCounts, is_flat, leaves, name_at, relabel
from ..base.stored import Decoded
from ..base.wording import named
from ..encodings.array_parts import checked, is_bomb

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence

    from ...columns.column import Found
    from ...columns.interface import Chunk, Type
    from ...typing import Array
    from ..base.contents import ColumnKeywords, Contents
    from ..base.stored import Extent, Stored

__all__ = [
    "Leaf",
    "TableColumn",
    "TableColumns",
    "has_fixed_shape",
    "look_at",
    "read_column",
    "validate_column",
]

_KIND = "column"
"""What messages call a column."""
_ROW = re.compile(r"(?<=\bat row )\d+|(?<=\brow )\d+(?= has an index)|(?<=the value at \[)\d+")
"""The number of a row in a message."""
_LISTS = ("+l", "+L", "+vl", "+vL")
_ANY_SHAPE = "arrow.variable_shape_tensor"


class TableColumn(NamedTuple):
    """A column of a table in a file. Nothing of it has been read, except its type.

    Args:
        path: The file.
        key: See `Stored.key`.
        name: Its name in the contents.
        kind: Its type.
        title: Its type, as its library writes it.
        rows: The number of rows, by the header.
        pieces: Reads it, some rows at a time, as Arrow's memory.
        whole: Reads it at once.
        in_place: Where its numbers are in the file, if they lie there as those of a tensor;
            ``None`` if they do not.
        code: Code of its library that reads it, as a template of a `Hint`.
    """

    path: str
    key: Hashable
    name: str
    kind: Type
    title: str
    rows: int
    pieces: Callable[[], Generator[Sequence[Chunk], None, None]]
    whole: Callable[[], Sequence[Chunk]]
    in_place: Extent | None
    code: str


class TableColumns(Columns):
    """The columns of a table, each a `TableColumn`."""

    def become_tensors(
        self,
        contents: Contents,
        keywords: ColumnKeywords,
        rule: DtypeRule,
        *,
        call: str,
        target: str,
        strict: bool,
        exclude: Sequence[str],
    ) -> Contents:
        made: dict[str, Any] = {}
        errors: list[tuple[ConversionError, str]] = []
        known = {**contents.tensors, **contents.others}
        # Without keywords and dtypes, a column is what its type says.
        is_plain = not keywords.given and rule == DtypeRule() and not exclude
        in_order = [name for name in self if name in known]
        for name in dict.fromkeys([*in_order, *known]):
            column = self.get(name)
            stored = contents.tensors.get(name)
            try:
                if column is None or (stored is not None and is_plain):
                    made[name] = Leaf(contents.others[name] if stored is None else stored)
                else:
                    made[name] = read_column(column, keywords.given, rule, tuple(exclude), target)
            except (FileFormatError, UnsafeFileError):
                raise
            except ConversionError as error:
                if strict:
                    errors.append((error, name))
                made[name] = Leaf(error.message)
        if errors:
            _raise_all(contents, errors, rule, call, target)
        try:
            return _put_together(contents, made)
        except ConversionError as error:
            error.complete_hint(registry.caller(call, target))
            raise

    def joined(self, others: Columns) -> Columns:
        return TableColumns({**self, **others})


class Leaf(NamedTuple):
    """A leaf of the tree that a table becomes.

    Args:
        held: A `Stored`; or why there is none.
    """

    held: Stored | str


def look_at(column: TableColumn) -> Stored | str:
    """The tensor in a column, or why there is none, by its type alone: what `open` says.

    Raises:
        FileFormatError: It has a shape that no array has.
        UnsafeFileError: It has far more rows than the size of its file allows.
    """
    reader = _Reader(column, {}, DtypeRule())
    try:
        typed = reader.typed
    except ConversionError as error:
        return error.message
    if isinstance(typed, Refused):
        return _why(column, typed)
    if not isinstance(typed, Column) or not has_fixed_shape(column.kind):
        return f"{column.title}: the lengths of its lists are known when load or convert reads it"
    return reader.of_fixed_shape(typed)


def read_column(
    column: TableColumn,
    keywords: Mapping[str, Any],
    rule: DtypeRule,
    exclude: tuple[str, ...] = (),
    target: str = EXCHANGE,
) -> Any:
    """What `convert_tree` would make of a column: dtype and shape known, its values read later.

    A column whose type has a shape is not read yet. Another one is read once, some rows at a time;
    and a second time, as a whole, if its rows differ.

    Args:
        column: The column.
        keywords: ``nulls``, ``ragged`` and ``pad``, those that are given.
        rule: The rule for dtypes.
        exclude: What the call leaves out, which hints add to.
        target: The target of the call, for hints.

    Returns:
        A `Leaf`, or a list of them for rows; with ``nulls="mask"`` a `Masked` of them.

    Raises:
        ConversionError: As for `convert_tree`; the message ends in the name of the column.
        FileFormatError: The file is damaged.
        UnsafeFileError: It has far more elements than the size of its file allows.
    """
    reader = _Reader(column, keywords, rule, exclude, target)
    typed = reader.typed
    if isinstance(typed, Refused) and typed.stays:
        return Leaf(_why(column, typed))
    if isinstance(typed, Refused):
        raise reader.refusal(typed._replace(lacks=bool(typed.asked) and reader.lacks(typed.asked)))
    if isinstance(typed, Column) and typed.unit != CODES and has_fixed_shape(column.kind):
        return reader.streamed(typed)
    if isinstance(typed, Column) and typed.unit != CODES:
        alike = reader.measured()
    else:
        alike = None
    if alike is None:
        return reader.as_a_whole()
    return reader.streamed(alike)


def validate_column(column: TableColumn) -> None:
    """Read a column, whatever it holds, and compare what can be compared.

    Nulls and unequal rows are no damage.

    Raises:
        ConversionError: The column is damaged.
    """
    for chunks in _parts(column):
        typed = _found(
            ArrowColumn(
                _KIND, column.name, column.kind, chunks, hints.Code(column.code, stays=True)
            )
        )
        elements = typed.elements if isinstance(typed, Ragged) else typed
        if isinstance(elements, Column):
            with suppress(LossyCastError):  # a number that int64 does not hold
                elements.values_with_any_nulls()


def _parts(column: TableColumn) -> Generator[Sequence[Chunk], None, None]:
    """Read a column, some rows at a time.

    Raises:
        FileFormatError: The file is damaged.
        UnsafeFileError: It has far more elements than the size of the file allows.
    """
    seen = 0
    # Closed at once, because the traceback of an error would keep the file open.
    with closing(column.pieces()) as pieces:
        for chunks in pieces:
            seen += sum(map(_elements, chunks))
            _refuse_bomb(column, seen)
            yield chunks


def _refuse_bomb(column: TableColumn, nbytes: int) -> None:
    """Raise if the size of a column is implausible for the size of the file.

    Raises:
        UnsafeFileError: It is.
    """
    held = os.stat(column.path).st_size  # noqa: PTH116 - a plain string
    if is_bomb(nbytes, held):
        raise UnsafeFileError(
            f"{column.path} is out of all proportion: "
            f"{column.name!r} would be {nbytes} bytes; it has {held}."
        )


def _elements(chunk: Chunk) -> int:
    """The most elements of an array, or of an array inside it."""
    return max(chunk.length, *map(_elements, chunk.children), 0)


def _why(column: TableColumn, refused: Refused) -> str:
    """Why a column is no tensor, for the contents of a file."""
    if refused.asked:
        return f"{refused.why}: dtype={{{quoted(column.name)}: {quoted(refused.asked)}}} makes numbers of it"
    return NotTensor(refused.why)


def has_fixed_shape(kind: Type) -> bool:
    """Whether a type says the shape of its rows."""
    if kind.extension == _ANY_SHAPE or kind.format in _LISTS:
        return False
    return all(
        map(has_fixed_shape, (*kind.children, *([] if kind.values is None else [kind.values])))
    )


def _found(leaf: Any) -> Found:
    """The contents of a column to which the keywords were applied."""
    contents = contents_of(leaf.values if isinstance(leaf, Masked) else leaf, None)
    assert contents is not None and contents.found is not None  # noqa: S101, PT018 - it is a column
    return contents.found


class _Reader:
    """Reads a column with the keywords of a call."""

    def __init__(
        self,
        column: TableColumn,
        keywords: Mapping[str, Any],
        rule: DtypeRule,
        exclude: tuple[str, ...] = (),
        target: str = EXCHANGE,
    ) -> None:
        self.column, self.keywords, self.rule, self.exclude = column, keywords, rule, exclude
        self.target = target
        nulls = keywords.get("nulls")
        self._masks_nulls = isinstance(nulls, str) and nulls == "mask"

    def leaf(self, chunks: Sequence[Chunk], **keywords: Any) -> Any:
        """The column in some memory, as `convert_tree` would have it before it is converted."""
        column = self.column
        x = ArrowColumn(
            _KIND, column.name, column.kind, chunks, hints.Code(column.code, stays=True)
        )
        return apply_to_leaf(x, False, self.rule, column.name, None, keywords)

    def found(self, chunks: Sequence[Chunk], **keywords: Any) -> Found:
        """The contents of the column in some memory."""
        if not keywords and self.rule == DtypeRule():
            return column_of(self.column.kind, chunks)
        return _found(self.leaf(chunks, **keywords))

    @cached_property
    def typed(self) -> Found:
        """What the type says of the column."""
        try:
            return self.found([])
        except ConversionError as error:
            raise self.in_column(error) from error

    def of_fixed_shape(self, typed: Column) -> Stored:
        """The tensor of a column whose rows have a shape: in the file, if it lies there so."""
        there = self.column.in_place
        shape = self.shape_of(typed)
        if there is not None and (there.dtype, there.shape) == (typed.dtype, shape):
            return there
        dtype = self._filled_dtype(typed)
        return Decoded(dtype, shape, partial(self._values, typed, dtype), self.column.key)

    def streamed(self, typed: Column) -> Any:
        """A column whose rows have one shape. It is read some rows at a time."""
        values = self.of_fixed_shape(typed)
        if not self._masks_nulls:
            return Leaf(values)
        return Masked(
            Leaf(values),
            Leaf(Decoded("bool", values.shape, self._masks, (self.column.key, "mask"))),
        )

    def shape_of(self, typed: Column) -> tuple[int, ...]:
        """The shape of the tensor, with the rows of the header."""
        column, itemsize = self.column, find(typed.dtype).itemsize
        where = f"{column.path}: {column.name!r}"
        shape = checked((column.rows, *typed.shape[1:]), itemsize, where)
        _refuse_bomb(column, prod(shape) * itemsize)
        return shape

    # -- rows of one shape -------------------------------------------------------------------------

    def _filled_dtype(self, typed: Column) -> str:
        """The dtype of a column whose nulls are replaced, if it has any."""
        nulls, name, rule = self.keywords.get("nulls"), self.column.name, self.rule
        if nulls is None:
            return typed.dtype
        one = Piece(1, np.zeros(1, numpy_dtype(typed.dtype)), (Missing(np.ones(1, bool), 1),))
        x = TableContents(_KIND, None, Column(typed.dtype, (), [one]))
        becomes = partial(dtype_of_leaf, rule, name=name)
        try:
            filled = _found(
                apply_column_keywords(x, becomes("float64"), in_tree=becomes, nulls=nulls)
            )
        except LossyCastError:
            return typed.dtype  # an error only if there are nulls
        assert isinstance(filled, Column)  # noqa: S101 - it was one
        return filled.dtype

    def _values(self, typed: Column, dtype: str) -> Iterator[Array]:
        """Yield the values, some rows at a time.

        Raises:
            ConversionError: As for `convert_tree`, with the rows of the whole column.
        """
        before = 0
        with closing(_parts(self.column)) as parts:
            for chunks in parts:
                try:
                    piece = self.found(chunks, **self.keywords)
                    if isinstance(piece, Column) and piece.fill is None and piece.nulls[0]:
                        more = sum(self._nulls_in(rest) for rest in parts)
                        piece.nulls = (piece.nulls[0] + more, piece.nulls[1])
                        raise self.refusal(piece, before)
                    if isinstance(piece, Refused):
                        raise self.refusal(piece, before)
                    array = self._array(piece, typed, dtype)
                except ConversionError as error:
                    raise self.in_column(error, before) from error
                yield array
                before += len(array)
        if before != self.column.rows:
            raise self.changed()

    def _array(self, piece: Found, typed: Column, dtype: str) -> Array:
        if not isinstance(piece, Column) or piece.shape[1:] != typed.shape[1:]:
            raise self.changed()
        array = piece.read()
        # Rows without nulls have their own dtype, also where the value for nulls asks for another.
        check = casting_scale(typed.dtype, dtype, None).check
        if piece.dtype == dtype:
            return array
        return casts.cast(array, dtype, check)

    def _nulls_in(self, chunks: Sequence[Chunk]) -> int:
        piece = self.found(chunks)
        if isinstance(piece, Column):
            return piece.nulls[0]
        return 0

    def _masks(self) -> Iterator[Array]:
        """Yield the mask, some rows at a time."""
        for chunks in _parts(self.column):
            leaf = self.leaf(chunks, nulls="mask")
            yield leaf.mask

    # -- rows whose shapes their values tell -------------------------------------------------------

    def measured(self) -> Column | None:
        """Some rows of a column, if all its rows have the same shape; otherwise ``None``.

        It is read once for that.

        Raises:
            UnsupportedTypeError: They have, and there are nulls that are not replaced.
        """
        seen: dict[tuple[str, tuple[int, ...]], Column] = {}
        rows, is_regular, nulls = 0, True, 0
        first: tuple[Column, int] | None = None
        with closing(_parts(self.column)) as parts:
            for chunks in parts:
                if is_regular:
                    piece = self._found_in(chunks)
                else:
                    piece = None
                is_regular = isinstance(piece, Column) and len(seen) <= 1
                if isinstance(piece, Column) and piece.rows:
                    seen.setdefault((piece.dtype, piece.shape[1:]), piece)
                    nulls += piece.nulls[0]
                    if first is None and piece.nulls[0]:
                        first = piece, rows
                rows += sum(chunk.length for chunk in chunks)
        if len(seen) != 1 or not is_regular or rows != self.column.rows:
            return None
        if first is not None and "nulls" not in self.keywords:
            column, before = first
            column.nulls = (nulls, column.nulls[1])
            raise self.refusal(column, before)
        return next(iter(seen.values()))

    def _found_in(self, chunks: Sequence[Chunk]) -> Found:
        try:
            return self.found(chunks)
        except ConversionError as error:
            raise self.in_column(error) from error

    def as_a_whole(self) -> Any:
        """A column whose rows may differ: read whole, now for its shapes, and again for its values.

        Raises:
            ConversionError: As for `convert_tree`.
        """
        leaf = self._whole()
        if isinstance(leaf, Masked):
            values, mask = leaf.values, leaf.mask
        else:
            values, mask = leaf, None
        if isinstance(values, ArrowColumn | TableContents):
            typed = _found(values)
            if isinstance(typed, Refused) and typed.stays:
                return Leaf(_why(self.column, typed))
            if not isinstance(typed, Column) or (typed.fill is None and typed.nulls[0]):
                raise self.refusal(typed)
        key = self.column.key
        if mask is None:
            return self._held(values, key, self._whole)
        return Masked(
            self._held(values, key, lambda: self._whole().values),
            self._held(mask, (key, "mask"), lambda: self._whole().mask),
        )

    def _whole(self) -> Any:
        for _ in _parts(self.column):
            pass  # a look at its size, before all of it is in memory
        chunks = self.column.whole()
        if "pad" in self.keywords:
            typed = self._found_in(chunks)
        else:
            typed = None
        if isinstance(typed, Ragged):
            # Padding makes its mask at once.
            _refuse_bomb(self.column, prod(typed.longest) * find(typed.elements.dtype).itemsize)
        try:
            return self.leaf(chunks, **self.keywords)
        except ConversionError as error:
            raise self.in_column(error) from error

    def _held(self, value: Any, key: Hashable, again: Callable[[], Any]) -> Leaf | list[Leaf]:
        """The tensor in a column that was read as a whole, or those of its rows."""
        if not isinstance(value, list):
            dtype, shape = self._described(value)
            held = _Held(lambda: [again()], 1, self)
            return Leaf(Decoded(dtype, shape, partial(held.blocks, 0), key))
        held = _Held(again, len(value), self)
        described = map(self._described, value)
        return [
            Leaf(Decoded(dtype, shape, partial(held.blocks, number), (key, number)))
            for number, (dtype, shape) in enumerate(described)
        ]

    def _described(self, value: Any) -> tuple[str, tuple[int, ...]]:
        """The dtype and shape of what becomes a tensor."""
        of = value if isinstance(value, np.ndarray) else _found(value)
        assert not isinstance(of, Ragged | Refused)  # noqa: S101 - those were refused
        if isinstance(of, Column):
            dtype = of.dtype
        else:
            dtype = of.dtype.name
        _refuse_bomb(self.column, prod(of.shape) * find(dtype).itemsize)
        return dtype, of.shape

    def changed(self) -> FileFormatError:
        """The error for a column without the rows that it had, or that its header declares."""
        column = self.column
        return FileFormatError(
            f"{column.path}: {column.name!r} does not have the rows that it had, or declares."
        )

    def lacks(self, asked: str) -> bool:
        """Whether it has nulls, if it is read as a dtype: the hint then says what replaces them."""
        column = self.column
        counts = (column_of(column.kind, chunks, asked) for chunks in _parts(column))
        return any(isinstance(typed, Column) and typed.nulls[0] for typed in counts)

    # -- errors ------------------------------------------------------------------------------------

    def refusal(self, typed: Found, before: int = 0) -> ConversionError:
        """The error for a column that cannot be converted, which `convert_tree` would raise."""
        try:
            convert(TableContents(_KIND, self.column.name, typed), conversion_as(EXCHANGE))
        except ConversionError as error:
            placed = self.in_column(error, before)
            if isinstance(typed, Refused) and not typed.asked:
                last = [] if placed.advice is None else placed.advice.ways[-1:]
                placed.advise(Hint.of_ways((*self._converted(typed.hint).ways, *last)))
            return placed
        raise AssertionError(self.column.name)

    def _converted(self, hint: ColumnCode) -> Hint:
        """The hint to convert what is made of the column: the call has a path, and no column."""
        code = hint.of(self.column.code)
        call = "convert_tree" if code.startswith("pa.Table") else "convert"
        return Hint(f'{call}({code}, "{self.target}")', hint.remark) if code else Hint()

    def in_column(self, error: ConversionError, before: int = 0) -> ConversionError:
        """An error about rows, with their numbers in the whole column, and the column's name.

        Args:
            error: The error.
            before: How many rows of the column are before them.
        """
        end = f" - at {self.column.name!r}"
        if isinstance(error, FileFormatError | UnsafeFileError) or error.message.endswith(end):
            return error
        message = _ROW.sub(lambda row: str(int(row[0]) + before), error.message)
        name = self.column.name
        hint = hint_for_leaf(self._hint_of(error), f"$[{name!r}]", name, self.rule)
        globs = [*self.exclude, escape(name)]
        without = Hint(hints.keyword("exclude", globs), ", which leaves it out")
        made = type(error)(f"{message}{end}", without if hint is None else hint | without)
        made.complete_hint(registry.caller("load", EXCHANGE))
        made.advise(self._without_other_keyword(made.advice))
        return made

    def _hint_of(self, error: ConversionError) -> Hint | None:
        """The hint of an error. If a value does not fit, the column is left as it is, or out."""
        if not (isinstance(error, LossyCastError) and error.is_of_value):
            return error.advice
        try:
            plain = column_of(self.column.kind, [])
        except ConversionError:
            plain = None
        if not isinstance(plain, Column) or plain.asked or self._lacks(plain.dtype):
            return None
        return uncast_by(self.rule, self.column.name)

    def _lacks(self, dtype: str) -> bool:
        """Whether the target of the call does not have a dtype."""
        return registry.caller("load", self.target).lacks(dtype)

    def _without_other_keyword(self, hint: Hint | None) -> Hint | None:
        """The hint with no way against the call's keywords: ragged= and pad= exclude each other."""
        other = {"ragged": "pad", "pad": "ragged"}
        odd = {keyword for given, keyword in other.items() if given in self.keywords}
        return hint and hint.where(lambda way: odd.isdisjoint(dict(hints.pairs_in(way))))


class _Held:
    """The arrays of a column that was read as a whole, kept until the last of them is used.

    Args:
        read: Reads the column, and gives what becomes of it, in order.
        count: How many there are.
        reader: The reader of the column, for errors.
    """

    def __init__(self, read: Callable[[], list[Any]], count: int, reader: _Reader) -> None:
        self._read, self._count, self._reader = read, count, reader
        self._lock = Lock()
        self._kept: list[Any] | None = None

    def blocks(self, number: int) -> Iterator[Array]:
        """Yield one of them, as `Decoded` reads it."""
        with self._lock:
            kept = self._kept or self._read()
            if len(kept) != self._count:
                raise self._reader.changed()
            if number < self._count - 1:
                self._kept = kept
            else:
                self._kept = None
        value = kept[number]
        try:
            yield value if isinstance(value, np.ndarray) else _found(value).read()  # type: ignore[union-attr]
        except ConversionError as error:
            raise self._reader.in_column(error) from error


def _raise_all(
    contents: Contents,
    errors: list[tuple[ConversionError, str]],
    rule: DtypeRule,
    call: str,
    target: str,
) -> None:
    ask_for_all(rule, errors)
    told = []
    for raised, name in errors:
        error = copy(raised)
        end = f" - at {name!r}"
        # An error that was placed already has the hint for its column.
        if not error.message.endswith(end):
            error.message += end
            error.advise(hint_for_leaf(error.advice, f"$[{name!r}]", name, rule))
        error.complete_hint(registry.caller(call, target))
        told.append(error)
    if len(told) == 1:
        raise told[0]
    raise TreeError(f"{len(told):,} columns of {named(contents.paths)} cannot be converted:", told)


def _put_together(contents: Contents, made: Mapping[str, Any]) -> Contents:
    """The contents with these leaves in place of the tensors.

    Raises:
        UnsupportedTypeError: A mask would have the name of another column.
    """
    if contents.tree is None:
        tree = {name: Ref(name) for name in made}
    else:
        tree = contents.tree
    nested = put_masks_beside(relabel(tree, lambda ref: made.get(ref.name, ref)), [])
    tensors: dict[str, Stored] = {}
    others: dict[str, str] = {
        name: why for name, why in contents.others.items() if name not in made
    }
    counts = NameCounts(MOST_LETTERS)
    names: dict[str, None] = {}
    for keys, leaf in leaves(nested, Leaf):
        name = name_at(keys, names, counts)
        names[name] = None
        if isinstance(leaf.held, str):
            others[name] = leaf.held
        else:
            tensors[name] = leaf.held
    labels = iter(names)
    tree = relabel(nested, lambda _: Ref(next(labels)), Leaf)
    flat = contents.tree is None and is_flat(tree, names)
    return contents._replace(tensors=tensors, others=others, tree=None if flat else tree)
