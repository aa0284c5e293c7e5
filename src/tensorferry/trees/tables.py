"""What is said of the tables and columns in a tree, before it is converted: nulls, unequal lengths, indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..backends import registry
from ..backends.array_like import tables
from ..backends.columnar import ColumnBackend
from ..errors import UnsupportedTypeError
from ..execution.missing import Masked, Rows, said_of, validate
from .walk import take_apart

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["said_in"]


def said_in(tree: Any, *, index: bool, **said: Any) -> Any:
    """A tree in which columns know what was said of them, and tables are dicts of their columns.

    Args:
        tree: The tree.
        index: Whether the index of a table is one of its columns.
        **said: ``nulls``, ``ragged`` and ``pad``, as `missing.said_of` takes them.

    Raises:
        TypeError: A keyword's value is none of those that it takes.
        UnsupportedTypeError: A mask would take the place of another column.
    """
    validate(**said)
    if not index and all(value is None for value in said.values()):
        return tree
    leaves, structure = take_apart(tree, _is_table)
    found = [_said(leaf, index, said) for leaf in leaves]
    if all(one is other for one, other in zip(leaves, found, strict=True)):
        return tree
    return _spread(structure.rebuild(found))


def _is_table(x: Any) -> bool:
    """Whether an object is a table: what its columns are is asked of it, not of the dict that it would become."""
    kind = type(x)
    owner = registry.BY_TYPE.get(kind)
    if owner is None and not hasattr(kind, "columns"):
        return tables.opener_of(kind) is not None
    try:
        owner = owner or registry.backend_of(x)
    except UnsupportedTypeError:
        return False
    return isinstance(owner, ColumnBackend) and owner.is_table(kind)


def _said(x: Any, index: bool, said: Mapping[str, Any]) -> Any:
    if isinstance(x, (str, bytes, dict, list, tuple)) or not _is_table(x):
        return said_of(x, None, **said)
    owner = registry.BY_TYPE.get(type(x))
    columns = owner.named_columns(x, index=index) if isinstance(owner, ColumnBackend) else tables.named_columns(x)
    found = {name: said_of(each, None, **said) for name, each in columns.items()}
    return found[None] if [*found] == [None] else found


def _spread(x: Any) -> Any:
    """A tree in which each mask stands beside its values, under a name of its own."""
    if type(x) is dict:
        result: dict[Any, Any] = {}
        for name, value in x.items():
            if not isinstance(value, Masked):
                result[name] = _spread(value)
                continue
            beside = f"{name}_mask"
            if beside in x:
                raise UnsupportedTypeError(f"There is a {beside!r} already, beside which a mask has no place.", None)
            result[name], result[beside] = value
        return result
    if type(x) is list or type(x) is Rows:
        return [_spread(each) for each in x]
    return tuple(map(_spread, x)) if type(x) is tuple else x
