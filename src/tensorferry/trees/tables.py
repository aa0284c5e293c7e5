"""What is said of the tables and columns in a tree, before it is converted: nulls, unequal lengths, indexes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends import registry
from ..backends.array_like import tables
from ..backends.columnar import ColumnBackend
from ..backends.nodes import dotted, item
from ..columns.column import Column
from ..core.leaf_dtypes import dtype_of_leaf, place_of_name, rule_of
from ..errors import UnsupportedTypeError
from ..execution.missing import Masked, Rows, given_in, said_of, validate
from .walk import take_apart

if TYPE_CHECKING:
    from ..core.leaf_dtypes import DtypeRule

__all__ = ["has_columns", "is_counted", "is_one_value", "said_in"]


def said_in(tree: Any, *, index: bool, dtype: object = None, casting: str | None = None, **said: Any) -> Any:
    """A tree in which columns know what was said of them, and tables are dicts of their columns.

    Args:
        tree: The tree.
        index: Whether the index of a table is one of its columns.
        dtype: What was asked of its leaves: dates, say, are counts where one is named.
        casting: What may be lost on the way to it.
        **said: ``nulls``, ``ragged`` and ``pad``, as `missing.said_of` takes them.

    Raises:
        TypeError: A keyword's value is none of those that it takes.
        UnsupportedTypeError: A mask would take the place of another column.
    """
    validate(**said)
    leaves, structure = take_apart(tree, _is_table)
    rule = rule_of(dtype)
    names = structure.names() if rule.names else [""] * len(leaves)
    found = [_said(leaf, index, rule, name, casting, said) for leaf, name in zip(leaves, names, strict=True)]
    if all(one is other for one, other in zip(leaves, found, strict=True)):
        return tree
    return _spread(structure.rebuild(found))


def _is_table(x: Any) -> bool:
    """Whether an object is a table: what its columns are is asked of it, not of the dict that it would become."""
    kind = type(x)
    if kind not in registry.BY_TYPE and not hasattr(kind, "columns"):
        return tables.opener_of(kind) is not None
    return has_columns(x)


def has_columns(x: Any) -> bool:
    """Whether an object is a table of a backend's: a loop over it gives columns, or their names, and no rows."""
    kind = type(x)
    owner = registry.BY_TYPE.get(kind)
    if owner is None and hasattr(kind, "columns"):
        with suppress(UnsupportedTypeError):
            owner = registry.backend_of(x)
    return isinstance(owner, ColumnBackend) and owner.is_table(kind)


def is_one_value(x: Any) -> bool:
    """Whether an object that can be iterated over is one value: a loop over it gives names, characters or columns."""
    return isinstance(x, (Mapping, str, bytes)) or has_columns(x)


def is_counted(x: Any, rule: DtypeRule, name: str) -> bool:
    """Whether what is no tensor by itself, a column of dates, is one as the dtype that its name is given."""
    if place_of_name(tuple([each for each, _ in rule.names]), name) is None:
        return False
    given = given_in(x, _asked(rule, name))
    return given is not None and isinstance(given.found, Column)


def _asked(rule: DtypeRule, name: str) -> str | None:
    """What is asked of a leaf of which it depends on that whether it is a number."""
    place = place_of_name(tuple([each for each, _ in rule.names]), name)
    return dict(rule.kinds).get("float") if place is None else rule.names[place][1]


def _said(x: Any, index: bool, rule: DtypeRule, name: str, casting: str | None, said: Mapping[str, Any]) -> Any:
    if isinstance(x, (str, bytes, dict, list, tuple)) or not _is_table(x):
        found = said_of(x, _asked(rule, name), casting, in_tree=partial(dtype_of_leaf, rule, name=name), **said)
        return x if isinstance(found, Masked) and found.mask is None else found
    owner = registry.BY_TYPE.get(type(x))
    columns = owner.named_columns(x, index=index) if isinstance(owner, ColumnBackend) else tables.named_columns(x)
    result = {}
    for key, each in columns.items():
        at = (name + dotted(item(key))).removeprefix(".")
        found = said_of(each, _asked(rule, at), casting, in_tree=partial(dtype_of_leaf, rule, name=at), **said)
        nowhere = isinstance(found, Masked) and found.mask is None
        result[key] = Masked(each, np.ones(len(each), bool)) if nowhere else found
    return result[None] if [*result] == [None] else result


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
            result[name], result[beside] = map(_spread, value)
        return result
    if type(x) is list or type(x) is Rows:
        return [_spread(each) for each in x]
    return tuple(map(_spread, x)) if type(x) is tuple else x
