"""pandas: columns without nulls as they lie in memory, frames of one dtype, and what to type for the rest."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.names import EXCHANGE
from ...host.numpy_dtypes import of_numpy
from .. import registry
from .columns import NULLS, TEXT, Column, Numbers, Refused, refuse, table
from .neighbours import Neighbour
from .sources import taken

if TYPE_CHECKING:
    from ...core.request import Request
    from .neighbours import Opened

__all__ = ["neighbour"]

_DATES = "holds dates or durations, which are counts of a unit"
_CATEGORIES = "holds categories, which are no numbers"
_OBJECTS = "holds Python objects"


def neighbour(kind: type) -> Neighbour | None:
    """What is known of a class of pandas, or of one that is derived from it."""
    import pandas as pd

    if issubclass(kind, pd.DataFrame):
        return Neighbour(_open_frame, _is_text_frame)
    if issubclass(kind, pd.MultiIndex):
        return Neighbour(_open_levels)
    if issubclass(kind, (pd.Series, pd.Index, pd.api.extensions.ExtensionArray)):
        return Neighbour(_open_column, _is_text)
    return None


def _open_levels(_x: Any, _target: Any, request: Request | None) -> Opened:
    raise refuse("A MultiIndex", "is several columns", "x.to_frame()", request)


def _open_column(x: Any, target: Any, request: Request | None) -> Opened:
    import pandas as pd

    found = _look(x)
    if isinstance(found, Numbers):
        # An index is never to be written, though its array may.
        info, handle = taken(x, lambda _: found.read(), read_only=isinstance(x, pd.Index))
        return None, info, handle
    if found.why is _OBJECTS:
        return registry.backend_named(EXCHANGE).open(np.asarray(x), target, request)
    name = getattr(x, "name", None)
    what = f"This {type(x).__name__}" if name is None else f"This {type(x).__name__} {name!r}"
    raise refuse(what, found.why, found.hint.format(x="x"), request)


def _open_frame(x: Any, _target: Any, request: Request | None) -> Opened:
    dtypes = set(x.dtypes)
    if len(dtypes) == 1 and _is_plain(next(iter(dtypes))):
        info, handle = taken(x, np.asarray)
        return None, info, handle
    columns = [Column(name, _look(x.iloc[:, index])) for index, name in enumerate(x.columns)]
    return None, *table(
        x,
        columns,
        len(x),
        request,
        put=lambda name, code: _put(name, code.format(x=f"x[{name!r}]")),
        drop=lambda names: f"x.drop(columns={names!r})",
        apart="dict(x)",
    )


def _put(name: object, code: str) -> str:
    code, comma, remark = code.partition(", which")
    # Only names that are text can be keywords.
    table = "x" if isinstance(name, str) else "x.rename(columns=str)"
    return f"{table}.assign(**{{{str(name)!r}: {code}}}){comma}{remark}"


def _is_plain(dtype: Any) -> bool:
    """Whether a dtype is NumPy's own, of numbers."""
    return isinstance(dtype, np.dtype) and dtype.kind in "biufc" and of_numpy(dtype) is not None


def _look(x: Any) -> Numbers | Refused:
    """What a column, an index or an array of pandas holds."""
    import pandas as pd

    dtype = x.dtype
    if _is_plain(dtype):
        return Numbers(of_numpy(dtype) or "", partial(np.asarray, x))
    if isinstance(dtype, pd.CategoricalDtype):
        return _look_at_categories(x, dtype)
    if isinstance(dtype, pd.SparseDtype) and _is_plain(dtype.subtype):
        return Numbers(of_numpy(dtype.subtype) or "", partial(np.asarray, x))
    if isinstance(dtype, pd.StringDtype) or dtype.kind in "US" or _holds_text(x):
        return Refused(TEXT, "{x}.tolist()")
    kind = "M" if isinstance(dtype, pd.PeriodDtype) else dtype.kind
    if kind in "mM":
        # A date of Arrow's has no integer of its own in pandas.
        is_day = isinstance(dtype, pd.ArrowDtype) and str(dtype).startswith("date")
        days = '{x}.astype("datetime64[s]").astype("int64"), which counts seconds'
        return Refused(_DATES, days if is_day else '{x}.astype("int64"), which counts units')
    plain = getattr(dtype, "numpy_dtype", None)
    if kind in "biuf" and isinstance(plain, np.dtype) and _is_plain(plain):
        if not x.isna().any():
            return Numbers(of_numpy(plain) or "", partial(_without_mask, x, plain))
        fill = {"b": "fillna(False)", "f": f'to_numpy("{plain}", na_value=float("nan"))'}.get(kind, "fillna(0)")
        return Refused(NULLS, "{x}." + fill)
    if dtype.kind == "O" and isinstance(dtype, np.dtype):
        return Refused(_OBJECTS, "{x}.infer_objects(), which makes numbers of it where all are")
    return Refused(f"has dtype {dtype}, which cannot be carried", "{x}.tolist()")


def _look_at_categories(x: Any, dtype: Any) -> Numbers | Refused:
    numbers = dtype.categories.dtype
    if _is_plain(numbers) and not x.isna().any():
        return Numbers(of_numpy(numbers) or "", partial(np.asarray, x))
    codes = "{x}.cat.codes" if hasattr(x, "cat") else "{x}.codes"
    return Refused(_CATEGORIES, f"{codes}, which are their numbers, -1 for none")


def _without_mask(x: Any, dtype: Any) -> Any:
    """The values of a column with a mask that is empty."""
    array = np.asarray(x)
    return array if array.dtype == dtype else x.to_numpy(dtype=dtype)


def _holds_text(x: Any) -> bool:
    """Whether a column of Python objects holds text, and nothing else."""
    return (
        isinstance(x.dtype, np.dtype)
        and x.dtype.kind == "O"
        and registry.backend_named(EXCHANGE).is_text(np.asarray(x))
    )


def _is_text(x: Any) -> bool:
    found = _look(x)
    return isinstance(found, Refused) and found.why is TEXT


def _is_text_frame(x: Any) -> bool:
    return bool(len(x.columns)) and all(_is_text(x.iloc[:, index]) for index in range(len(x.columns)))
