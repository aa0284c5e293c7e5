"""Make tensors of the columns of tables in files, by the rules for tables in memory."""

from __future__ import annotations

import os
from copy import copy
from dataclasses import replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...backends.array_like.tables import ArrowColumn
from ...columns import producers
from ...columns.column import Column, Ragged, Refused
from ...core.dtypes import find
from ...core.leaf_dtypes import quoted
from ...core.names import EXCHANGE
from ...errors import (
    ConversionError,
    FileFormatError,
    FormatLimitError,
    TreeError,
    UnsafeFileError,
)
from ...execution.column_keywords import Masked, contents_of, validate
from ...trees.failures import ask_for_all, hint_for_leaf
from ...trees.tables import apply_to_leaf, put_masks_beside
from ..base.contents import NotTensor, Ref
from ..base.nesting import is_flat, leaves, name_at, relabel
from ..base.stored import BLOCK_BYTES, Decoded
from ..base.wording import named
from .column_values import ColumnValues, Leaf, refuse_bomb

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ...core.leaf_dtypes import DtypeRule
    from ...typing import Array
    from ..base.contents import Contents, TableColumn
    from ..base.stored import Stored

__all__ = ["ColumnKeywords", "with_columns"]

_LEAST = 8
"""How many bytes a row is taken to need in memory, before a column is read."""


class ColumnKeywords(NamedTuple):
    """The keywords for tables, as `validate` takes them.

    Args:
        nulls: What replaces nulls.
        ragged: ``"rows"`` for a list of tensors.
        pad: What makes rows equally long.
    """

    nulls: object = None
    ragged: object = None
    pad: object = None

    @classmethod
    def of(cls, nulls: object, ragged: object, pad: object) -> ColumnKeywords:
        """The keywords of a call.

        Raises:
            TypeError, ValueError: One has a value that it does not take.
        """
        validate(nulls, ragged, pad)
        return cls(nulls, ragged, pad)

    @property
    def given(self) -> dict[str, object]:
        """Those that have a value."""
        return {name: value for name, value in self._asdict().items() if value is not None}

    @property
    def masks(self) -> bool:
        """Whether each column gets a mask."""
        return isinstance(self.nulls, str) and self.nulls == "mask"


def with_columns(
    contents: Contents,
    keywords: ColumnKeywords,
    rule: DtypeRule,
    *,
    call: str = "convert_files",
    target: str = EXCHANGE,
    strict: bool = True,
) -> Contents:
    """The contents, with the tensors that the columns of tables become. Columns are read for their shapes.

    Args:
        contents: The contents.
        keywords: The keywords for tables.
        rule: The rule for dtypes, by which dates and the like become numbers.
        call: The function that was called, for hints.
        target: Its target, for hints.
        strict: Whether a column that cannot be converted is an error. If not, it is among the ``others``.

    Raises:
        FormatLimitError: There are keywords, and the file has no table.
        ConversionError: A column cannot be converted; the errors are those of a table in memory.
        TreeError: Several cannot be converted.
        FileFormatError: The file is damaged.
        UnsafeFileError: A column is out of all proportion to the file.
    """
    if contents.columns is None:
        if keywords.given:
            words = " and ".join(f"{name}=" for name in keywords.given)
            why = f"{words} is for columns of tables, as Parquet has them"
            raise FormatLimitError(f"{why}, and {named(contents.paths)} has none.", f"the same without {words}")
        return contents
    made: dict[str, Any] = {}
    errors: list[tuple[ConversionError, str]] = []
    known = {**contents.tensors, **contents.others}
    in_order = [name for name in contents.columns if name in known]
    for name in dict.fromkeys([*in_order, *known]):
        column = contents.columns.get(name)
        stored = contents.tensors.get(name)
        is_ready = stored is not None and not keywords.given
        try:
            if column is None or is_ready:
                made[name] = _as_it_is(stored, contents.others.get(name), keywords)
            else:
                made[name] = _tensors_of(column, stored, name, keywords, rule)
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
        error.complete_hint(call, target)
        raise


def _raise_all(
    contents: Contents,
    errors: list[tuple[ConversionError, str]],
    rule: DtypeRule,
    call: str,
    target: str,
) -> None:
    ask_for_all(rule, errors)
    told = []
    for found, name in errors:
        error = copy(found)
        error.hint = hint_for_leaf(error.hint, f"$[{name!r}]", name, rule)
        error.message = f"{error.message} - at {name!r}"
        error.args = (error.message, error.hint)
        error.complete_hint(call, target)
        told.append(error)
    if len(told) == 1:
        raise told[0]
    raise TreeError(f"{len(told):,} columns of {named(contents.paths)} cannot be converted:", told)


def _as_it_is(stored: Stored | None, why: str | None, keywords: ColumnKeywords) -> Any:
    """What is known without its values."""
    if stored is None:
        return Leaf(why)
    return Masked(Leaf(stored), Leaf(_full_mask(stored))) if keywords.masks else Leaf(stored)


def _full_mask(stored: Stored) -> Stored:
    def read() -> Iterator[Array]:
        for start in range(0, stored.size, BLOCK_BYTES):
            yield np.ones(min(BLOCK_BYTES, stored.size - start), bool)

    return Decoded("bool", stored.shape, read, (stored.key, "mask"))


def _tensors_of(
    column: TableColumn,
    plain: Stored | None,
    name: str,
    keywords: ColumnKeywords,
    rule: DtypeRule,
) -> Any:
    """The leaves that a column becomes; by its type alone if that tells that it has no numbers.

    Raises:
        ConversionError: It cannot be converted.
    """
    apply = partial(_applied, name=name, keywords=keywords, rule=rule)
    why = _why_it_stays(apply(column.empty), name)
    if why is not None:
        return Leaf(why)
    held = os.stat(column.path).st_size  # noqa: PTH116 - a plain string
    refuse_bomb(column, name, column.rows * _LEAST, held)
    before = contents_of(_column(column.read(), name), None)
    found = None if before is None else before.found
    if isinstance(found, Ragged) and keywords.pad is not None:
        refuse_bomb(column, name, prod(found.longest) * find(found.elements.dtype).itemsize, held)
    applied = apply(before if found is not None and not _reads_anew(found) else column.read())
    has_nulls = not isinstance(found, Column) or found.nulls[0] > 0
    if plain is not None and not has_nulls:
        return _as_it_is(plain, None, keywords)
    values = ColumnValues(column, apply)
    return values.leaves_of(applied, name)


def _reads_anew(found: object) -> bool:
    """Whether a named dtype may change how the column is read."""
    inside = found.elements if isinstance(found, Ragged) else found
    return isinstance(inside, Refused) or (isinstance(inside, Column) and inside.reads_as_asked)


def _column(x: Any, name: str) -> ArrowColumn:
    return ArrowColumn("column", name, *producers.read(x), "{x}")


def _applied(x: Any, *, name: str, keywords: ColumnKeywords, rule: DtypeRule) -> Any:
    given = x if isinstance(x, ArrowColumn) or not producers.gives_arrow(type(x)) else _column(x, name)
    return apply_to_leaf(given, False, rule, name, None, keywords.given)


def _why_it_stays(applied: Any, name: str) -> NotTensor | None:
    """Why a column has no numbers; ``None`` if it has, or if it is an error."""
    found = contents_of(applied, None)
    if found is None or not isinstance(found.found, Refused) or not found.found.stays:
        return None
    why = found.found.why
    if not found.found.asked:
        return NotTensor(why)
    return NotTensor(f"{why}; dtype={{{quoted(name)}: {quoted(found.found.asked)}}} makes numbers of them")


def _put_together(contents: Contents, made: Mapping[str, Any]) -> Contents:
    """The contents with these leaves in place of the tensors.

    Raises:
        UnsupportedTypeError: A mask would have the name of another column.
    """
    tree = {name: Ref(name) for name in made} if contents.tree is None else contents.tree
    nested = put_masks_beside(relabel(tree, lambda ref: made.get(ref.name, ref)), [])
    tensors: dict[str, Stored] = {}
    others: dict[str, str] = {name: why for name, why in contents.others.items() if name not in made}
    counts: dict[str, int] = {}
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
    return replace(contents, tensors=tensors, others=others, tree=None if flat else tree, columns=None)
