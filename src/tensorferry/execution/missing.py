"""What is said about nulls and unequal lengths in columns, before they go the road: `said_of`."""

from __future__ import annotations

from functools import partial
from math import isnan
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..backends import registry
from ..backends.array_like.tables import ArrowColumn, found_in, is_known_by_arrow
from ..backends.columnar import ColumnBackend
from ..backends.opening import Given
from ..columns.column import Column, Ragged, Refused
from ..columns.layouts import asked_of
from ..core.dtype_names import asked as dtype_asked
from ..core.dtypes import DTYPES
from ..core.leaf_dtypes import DtypeRule
from ..core.request import KEYWORDS_OF_COLUMNS
from ..errors import LossyCastError, UnsupportedTypeError, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Masked", "Rows", "everywhere", "given_in", "keywords_of_columns", "said_of", "validate"]


class Masked(NamedTuple):
    """What stands for what a mask is wanted of besides.

    Args:
        values: The values, with zeros where there is none.
        mask: Where there is one; ``None``: everywhere.
    """

    values: Any
    mask: Any


class Rows(list[Any]):
    """The rows of a column of lists, each a tensor for itself."""


def validate(nulls: object = None, ragged: object = None, pad: object = None) -> None:
    """Raise for what none of these keywords takes.

    Raises:
        TypeError: The message says which, and what it takes.
    """
    if isinstance(nulls, str) and nulls not in ("nan", "mask"):
        raise TypeError(f'nulls must be a value, "nan" or "mask", not {shown(nulls)}')
    if nulls is not None and not isinstance(nulls, (str, bool, int, float, complex, np.generic)):
        raise TypeError(f'nulls must be a value, "nan" or "mask", not {shown(nulls)}')
    if ragged not in (None, "rows"):
        raise TypeError(f'ragged must be "rows" or None, not {shown(ragged)}')
    if pad is not None and not isinstance(pad, (bool, int, float, complex, np.generic)):
        raise TypeError(f"pad must be a number or None, not {shown(pad)}")
    if ragged is not None and pad is not None:
        raise TypeError('ragged="rows" keeps lengths, and pad= makes them equal: give one of them')


def given_in(x: Any, asked: str | None) -> Given | None:
    """What a column or a table holds; ``None``: `x` is neither."""
    if isinstance(x, Given):
        return x
    if isinstance(x, ArrowColumn):
        return found_in(x, asked)
    try:
        owner = registry.backend_of(x)
    except UnsupportedTypeError:
        return None
    if isinstance(owner, ColumnBackend):
        return owner.given(x, asked)
    return found_in(x, asked) if is_known_by_arrow(type(x)) else None


def said_of(
    x: Any,
    dtype: object,
    casting: str | None = None,
    *,
    in_tree: Callable[[str], str | None] | None = None,
    nulls: object = None,
    ragged: object = None,
    pad: object = None,
) -> Any:
    """A column or a table with what was said of it; what else comes in as it is.

    Args:
        x: What is to be converted.
        dtype: The dtype that was named.
        casting: What may be lost on the way to it.
        in_tree: In a tree, what is asked of a leaf of a dtype: `dtype` then is only for what is no number without it.
        nulls: A value in place of what is missing, ``"nan"``, or ``"mask"``, which gives a `Masked`.
        ragged: ``"rows"`` gives `Rows` of a column whose rows are of unequal lengths.
        pad: What fills its rows up.

    Raises:
        LossyCastError: The column's dtype has no such value.
    """
    name = None if isinstance(dtype, DtypeRule) or hasattr(dtype, "keys") else dtype_asked(dtype)
    asked, masks = asked_of(name, casting), isinstance(nulls, str) and nulls == "mask"
    filled_in = partial(_filled, nulls=nulls, becomes=in_tree or name, casting=casting)
    given = given_in(x, None if in_tree else asked)
    if in_tree and given is not None and isinstance(given.found, Refused) and asked is not None:
        given = given_in(x, asked)
    if given is None:
        return Masked(x, None) if masks else x
    if given.table is not None:
        if nulls is None or not given.columns:
            return x
        columns = [(each, filled_in(found)) for each, found in given.columns]
        filled = Given(given.kind, given.name, None, given.table, columns)
        if not masks:
            return filled
        return Masked(filled, np.stack([_mask(found, given.table.rows) for _, found in given.columns], axis=1))
    found = given.found
    if isinstance(found, Ragged):
        found = found._replace(elements=filled_in(found.elements))
        return _said_of_rows(given, found, nulls, ragged, pad)
    if isinstance(found, Refused):
        return Masked(x, None) if masks and not found.stays else x
    assert found is not None  # noqa: S101 - it is a column
    if nulls is None:
        return Given(given.kind, given.name, found) if found.unit else x
    filled = Given(given.kind, given.name, filled_in(found))
    return Masked(filled, _mask(found, found.rows)) if masks else filled


def _said_of_rows(given: Given, found: Ragged, nulls: Any, ragged: object, pad: object) -> Any:
    """The same of a column whose rows are of unequal lengths."""
    elements = found.elements
    if (ragged is None and pad is None) or (elements.fill is None and elements.nulls[0]):
        return Given(given.kind, given.name, found)
    mask = _mask(elements, elements.rows) if isinstance(nulls, str) and nulls == "mask" else None
    if ragged is not None:
        rows = Rows(found.rows(elements.read()))
        return rows if mask is None else Masked(rows, Rows(found.rows(mask)))
    array = found.padded(elements.read(), elements.value_of(pad, "pad"))
    return array if mask is None else Masked(array, found.padded(mask, False))


def _filled(found: Any, nulls: Any, becomes: str | Callable[[str], str | None] | None, casting: str | None) -> Any:
    """A column with a value in the place of what is missing: one of its dtype, or else of the one that it becomes.

    Raises:
        LossyCastError: Neither has such a value.
    """
    if not isinstance(found, Column) or nulls is None or not found.lacks:
        return found
    zero = False if found.dtype == "bool" else 0
    if isinstance(nulls, str) and nulls == "mask":
        return found.filled(found.value_of(zero))
    asked = becomes(found.dtype) if callable(becomes) else becomes
    also = f'{{"{found.dtype}": "float64"}}' if callable(becomes) else '"float64"'
    is_nan = nulls == "nan" or (isinstance(nulls, float) and isnan(nulls))
    hint = f"nulls={zero}" + (f', or dtype={also}, nulls="nan"' if is_nan else "")
    try:
        return found.filled(found.value_of(nulls, hint=hint))
    except LossyCastError:
        if asked not in DTYPES or asked == found.dtype:
            raise
        value = found.cast(asked, casting)
        return value.filled(value.value_of(nulls))


def _mask(found: Any, rows: int) -> Any:
    """Where there is a value, in memory of its own."""
    return ~found.missing() if isinstance(found, Column) else np.ones(rows, bool)


def everywhere(values: Any) -> Any:
    """The mask of values of which none is missing."""
    return np.ones(registry.backend_of(values).describe(values).shape, bool)


def keywords_of_columns(keywords: dict[str, Any]) -> Mapping[str, Any]:
    """The keywords that speak of columns, taken out of others."""
    found = {name: keywords.pop(name) for name in KEYWORDS_OF_COLUMNS if name in keywords}
    validate(**found)
    return {name: value for name, value in found.items() if value is not None}
