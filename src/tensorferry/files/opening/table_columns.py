"""Make tensors of the columns of tables in files, by the rules for tables in memory."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.leaf_dtypes import DtypeRule
from ...core.names import EXCHANGE
from ...errors import ConversionError, FileFormatError, FormatLimitError, TreeError, UnsafeFileError
from ...execution.column_keywords import validate
from ...trees.failures import ask_for_all, hint_for_leaf
from ...trees.tables import put_masks_beside
from ..base.contents import Ref
from ..base.nesting import is_flat, leaves, name_at, relabel
from ..base.wording import named
from ..encodings.columns import Leaf, read_column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..base.contents import Contents
    from ..base.stored import Stored

__all__ = ["ColumnKeywords", "lists_read", "with_columns"]

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
    exclude: Sequence[str] = (),
) -> Contents:
    """The contents, with the tensors that the columns of tables become.

    Columns are read for their shapes.

    Args:
        contents: The contents.
        keywords: The keywords for tables.
        rule: The rule for dtypes, by which dates and the like become numbers.
        call: The function that was called, for hints.
        target: Its target, for hints.
        strict: Whether a column that cannot be converted is an error. If not, it is among the
            ``others``.
        exclude: What the call leaves out, which hints add to.

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
            raise FormatLimitError(
                f"{why}, and {named(contents.paths)} has none.", f"without {words}"
            )
        return contents
    made: dict[str, Any] = {}
    errors: list[tuple[ConversionError, str]] = []
    known = {**contents.tensors, **contents.others}
    # Without keywords and dtypes, a column is what its type says.
    is_plain = not keywords.given and rule == DtypeRule() and not exclude
    in_order = [name for name in contents.columns if name in known]
    for name in dict.fromkeys([*in_order, *known]):
        column = contents.columns.get(name)
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
        error.complete_hint(call, target)
        raise


def lists_read(contents: Contents) -> Contents:
    """The contents, with columns of lists of one length as tensors.

    What is no tensor stays among the others.
    """
    return (
        with_columns(contents, ColumnKeywords(), DtypeRule(), strict=False)
        if contents.columns
        else contents
    )


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
        end = f" - at {name!r}"
        # An error that was placed already has the hint for its column.
        if not error.message.endswith(end):
            error.hint = hint_for_leaf(error.hint, f"$[{name!r}]", name, rule)
            error.message += end
            error.args = (error.message, error.hint)
        error.complete_hint(call, target)
        told.append(error)
    if len(told) == 1:
        raise told[0]
    raise TreeError(f"{len(told):,} columns of {named(contents.paths)} cannot be converted:", told)


def _put_together(contents: Contents, made: Mapping[str, Any]) -> Contents:
    """The contents with these leaves in place of the tensors.

    Raises:
        UnsupportedTypeError: A mask would have the name of another column.
    """
    tree = {name: Ref(name) for name in made} if contents.tree is None else contents.tree
    nested = put_masks_beside(relabel(tree, lambda ref: made.get(ref.name, ref)), [])
    tensors: dict[str, Stored] = {}
    others: dict[str, str] = {
        name: why for name, why in contents.others.items() if name not in made
    }
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
    return replace(contents, tensors=tensors, others=others, tree=None if flat else tree)
