"""Apply ``nulls=``, ``ragged=``, ``pad=`` and ``index=`` to the tables and columns of a tree."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from .. import hints
from ..backends import registry
from ..backends.array_like import tables
from ..backends.columnar import ColumnBackend
from ..backends.nodes import dotted, item
from ..backends.opening import TableContents
from ..columns.column import Column, Ragged, Refused
from ..core.leaf_dtypes import dtype_of_leaf, place_of_name, rule_of
from ..errors import ConversionError, UnsupportedTypeError
from ..execution.column_keywords import (
    Masked,
    Rows,
    apply_column_keywords,
    contents_of,
    full_mask,
    validate,
)
from ..hints import Hint
from .containers import PLAIN, Opening
from .walk import take_apart

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..backends.columnar import Views
    from ..core.leaf_dtypes import DtypeRule
    from .structure import Structure

__all__ = [
    "apply_to_leaf",
    "class_name",
    "has_columns",
    "is_counted",
    "is_one_value",
    "may_be_column",
    "opening_together",
    "owner_of_tables",
    "put_masks_beside",
    "read_as_asked",
    "tables_in",
    "why_no_tensor",
    "with_column_keywords",
]


_WITHOUT = "float64"
"""Rules' dtype for a column that is not numbers unless a dtype is named, such as dates."""


def with_column_keywords(
    tree: Any,
    *,
    index: bool,
    dtype: object = None,
    casting: str | None = None,
    masks: list[Any] | None = None,
    **keywords: Any,
) -> Any:
    """The tree, with the keywords applied to its columns, and with its tables as dicts of columns.

    Args:
        tree: The tree.
        index: Whether the index of a table becomes one of its columns.
        dtype: The keyword of the call. Dates become numbers if it names a dtype for them.
        casting: The keyword of the call.
        masks: The masks of ``nulls="mask"`` that are in the new tree are added to this list.
        **keywords: ``nulls``, ``ragged`` and ``pad``, as `apply_column_keywords` takes them.

    Raises:
        TypeError, ValueError: A keyword has a value that it does not take.
        UnsupportedTypeError: A mask would have the name of another column.
    """
    validate(**keywords)
    leaves, structure = take_apart(tree, _is_table)
    rule = rule_of(dtype)
    errors: dict[int, ConversionError] = {}
    applied: list[Any] = []
    for number, leaf in enumerate(leaves):
        name = structure.name(number) if rule.names else ""
        try:
            applied.append(apply_to_leaf(leaf, index, rule, name, casting, keywords))
        except ConversionError as error:
            errors[number] = error
    if errors:
        from .failures import raise_all

        raise_all(errors, structure.path, rule, structure.name)
    if all(one is other for one, other in zip(leaves, applied, strict=True)):
        return tree
    return put_masks_beside(structure.rebuild(applied), [] if masks is None else masks)


def _is_table(x: Any) -> bool:
    """Whether an object is a table.

    Tables are leaves here, so that their columns are still the library's own.
    """
    kind = type(x)
    if kind not in registry.BY_TYPE and not hasattr(kind, "columns"):
        return tables.opener_of(kind) is not None
    return has_columns(x)


def class_name(x: Any) -> str:
    """The class name of a leaf; for a column that has been read, of the class the user knows."""
    if isinstance(x, (TableContents, tables.ArrowColumn)):
        return x.kind
    return type(x).__name__


def why_no_tensor(x: Any) -> tuple[str, str] | None:
    """Why a column is no tensor, as the end of a sentence, and the dtype to name, if there is one.

    It is ``None`` for a tensor, and for everything that is no column.
    """
    if may_be_column(type(x)):
        contents = contents_of(x, None)
    else:
        contents = None
    contents_found = None if contents is None else contents.found
    if isinstance(contents_found, Refused):
        return contents_found.why, contents_found.asked
    return None


def may_be_column(kind: type) -> bool:
    """Whether objects of a type may be columns of a table."""
    if kind in PLAIN:
        return False
    if issubclass(kind, (TableContents, tables.ArrowColumn)) or tables.is_known_by_arrow(kind):
        return True
    return registry.is_tensor(kind) and isinstance(registry.BY_TYPE[kind], ColumnBackend)


def has_columns(x: Any) -> bool:
    """Whether an object is a table of a backend.

    To iterate over it gives columns or their names, not rows.
    """
    kind = type(x)
    owner = registry.BY_TYPE.get(kind)
    if owner is None and hasattr(kind, "columns"):
        with suppress(UnsupportedTypeError):
            owner = registry.backend_of(x)
    return isinstance(owner, ColumnBackend) and owner.is_table(kind)


def owner_of_tables(kind: type) -> ColumnBackend | None:
    """The backend whose tables have a type; ``None`` if objects of it are no tables of one."""
    owner = registry.BY_TYPE.get(kind) if registry.is_tensor(kind) else None
    return owner if isinstance(owner, ColumnBackend) and owner.is_table(kind) else None


def opening_together(owner: ColumnBackend) -> Opening:
    """How tables are opened whose columns are read together; ``None`` if not all can be.

    A plain column becomes an array over its memory, any other stays as it is.
    """

    def opened(x: Any) -> tuple[Views, list[Any]] | None:
        views = owner.views(x)
        if views is None:
            return None
        arrays = views.arrays
        if all(array is not None for array in arrays.values()):
            return views, [*arrays.values()]
        columns = views.columns()
        return views, [columns[name] if view is None else view for name, view in arrays.items()]

    return Opening(opened, _made_of_columns, _entries_of_columns)


def _made_of_columns(views: Views, values: Iterable[Any]) -> dict[object, Any]:
    return dict(zip(views.arrays, values, strict=True))


def _entries_of_columns(views: Views, _: int) -> list[str]:
    return [*map(item, views.arrays)]


def tables_in(
    structure: Structure, owners: Mapping[type, ColumnBackend]
) -> tuple[list[tuple[int, int]], dict[int, ColumnBackend]]:
    """The tables of a tree whose columns are read together.

    Args:
        structure: The structure of the tree.
        owners: The backend of each type of tables.

    Returns:
        The first leaf of each, and its number among the containers; and by their places, the
        backends of the arrays over columns.
    """
    tables, backends = [], {}
    containers = zip(structure.containers(), structure.kept, strict=True)
    for number, ((container, first), kept) in enumerate(containers):
        if container.make is not _made_of_columns:
            continue
        tables.append((first, number))
        for index, array in enumerate(kept.arrays.values(), first):
            if array is not None:
                backends[index] = owners[container.kind]
    return tables, backends


def is_one_value(x: Any) -> bool:
    """Whether an object is one value.

    To iterate over it gives keys, characters or columns, or a table cannot do it.
    """
    if isinstance(x, (Mapping, str, bytes)) or has_columns(x):
        return True
    return not hasattr(type(x), "__iter__") and tables.is_known_by_arrow(type(x))


def is_counted(x: Any, rule: DtypeRule, name: str) -> bool:
    """Whether a column, as of dates, becomes numbers: ``dtype=`` names a dtype for its path."""
    if not _names(rule, name):
        return False
    contents = contents_of(x, dtype_of_leaf(rule, _WITHOUT, name))
    return contents is not None and isinstance(contents.found, (Column, Ragged))


def _names(rule: DtypeRule, name: str) -> bool:
    return place_of_name(tuple([name_asked for name_asked, _ in rule.names]), name) is not None


def read_as_asked(x: Any, rule: DtypeRule, name: str, casting: str | None) -> Any:
    """A column, read as the dtype that ``dtype=`` names; `x` itself if it is read in one way only.

    Args:
        x: A leaf.
        rule: The rule for dtypes.
        name: Its dotted name.
        casting: The keyword of the call.
    """
    becomes = partial(dtype_of_leaf, rule, name=name)
    return apply_column_keywords(x, becomes(_WITHOUT), casting, in_tree=becomes)


def apply_to_leaf(
    x: Any,
    index: bool,
    rule: DtypeRule,
    name: str,
    casting: str | None,
    keywords: Mapping[str, Any],
) -> Any:
    """Apply the keywords to a leaf; a table becomes a dict of its columns."""

    def apply(column: Any, path: str) -> Any:
        if keywords.get("ragged") is not None and not _names(rule, path):
            path = f"{path}.0"  # the leaves are its rows, which have names of their own
        if _is_text_without_rows(column) and not _names(rule, path):
            return column
        becomes = partial(dtype_of_leaf, rule, name=path)
        applied = apply_column_keywords(
            column, becomes(_WITHOUT), casting, in_tree=becomes, **keywords
        )
        if isinstance(applied, Masked) and applied.mask is None:
            return _with_full_mask(applied.values)
        return applied

    if isinstance(x, (str, bytes, dict, list, tuple)) or not _is_table(x):
        return apply(x, name)
    owner = registry.BY_TYPE.get(type(x))
    columns = (
        owner.named_columns(x, index=index)
        if isinstance(owner, ColumnBackend)
        else tables.named_columns(x)
    )
    if not isinstance(columns, Mapping):
        return apply(columns, name)
    result = {}
    for key, one_column in columns.items():
        try:
            result[key] = apply(one_column, (name + dotted(item(key))).removeprefix("."))
        except ConversionError as error:
            error.inside = item(key) + error.inside
            raise
    return result


def _is_text_without_rows(x: Any) -> bool:
    """Whether a column has no rows, and stays as it is because those with rows do."""
    owner = registry.BY_TYPE.get(type(x))
    return (
        isinstance(owner, ColumnBackend)
        and not owner.is_table(type(x))
        and not len(x)
        and owner.is_text(x)
    )


def _with_full_mask(column: Any) -> Any:
    """A column without nulls, with its mask; alone if not convertible, which is an error later."""
    try:
        return Masked(column, full_mask(column))
    except ConversionError:
        return column


def put_masks_beside(x: Any, masks: list[Any]) -> Any:
    """The tree, with each mask as a leaf ``<name>_mask`` beside its values.

    The masks are added to a list, too.
    """
    if type(x) is dict:
        result: dict[Any, Any] = {}
        for name, value in x.items():
            if not isinstance(value, Masked):
                result[name] = put_masks_beside(value, masks)
                continue
            beside = f"{name}_mask"
            if beside in x or beside in result:
                # Two columns may have names that differ only in their types: 0 and "0".
                if beside in x:
                    what = "such a column"
                else:
                    what = "such a mask"
                raise UnsupportedTypeError(
                    f"The mask of {name!r} would be named {beside!r}, and there is {what} already.",
                    Hint(hints.again(nulls=0), ", which replaces nulls")
                    | Hint("give that column another name"),
                )
            masks.append(value.mask)
            result[name], result[beside] = (put_masks_beside(child, masks) for child in value)
        return result
    if type(x) is list or type(x) is Rows:
        return [put_masks_beside(child, masks) for child in x]
    if isinstance(x, Masked):
        masks.append(x.mask)
    if type(x) is tuple:
        return tuple(put_masks_beside(child, masks) for child in x)
    return x
