"""polars: columns without nulls as they lie in memory, frames of one dtype, and what to type for the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.dtypes import DTYPES
from .columns import NULLS, TEXT, Column, Numbers, Refused, refuse, table
from .neighbours import Neighbour
from .sources import later, over

if TYPE_CHECKING:
    from ...core.request import Request
    from .neighbours import Opened

__all__ = ["neighbour"]


def neighbour(kind: type) -> Neighbour | None:
    """What is known of a class of polars, or of one that is derived from it."""
    import polars as pl

    if issubclass(kind, pl.DataFrame):
        return Neighbour(_open_frame, _is_text_frame)
    if issubclass(kind, pl.Series):
        return Neighbour(_open_column, _is_text)
    return Neighbour(_open_query) if issubclass(kind, pl.LazyFrame) else None


def _open_query(_x: Any, _target: Any, request: Request | None) -> Opened:
    raise refuse("A LazyFrame", "is a query that has not run", "x.collect()", request)


def _open_column(x: Any, _target: Any, request: Request | None) -> Opened:
    found = _look(x)
    if isinstance(found, Refused):
        what = f"This {type(x).__name__} {x.name!r}" if x.name else f"This {type(x).__name__}"
        raise refuse(what, found.why, found.hint.format(x="x"), request)
    return _open_numbers(x, x.dtype.shape if hasattr(x.dtype, "shape") else (), found.dtype)


def _open_frame(x: Any, _target: Any, request: Request | None) -> Opened:
    columns = [Column(each.name, _look(each, in_frame=True)) for each in x.get_columns()]
    names = {each.found.dtype for each in columns if isinstance(each.found, Numbers)}
    if len(names) == 1 and all(isinstance(each.found, Numbers) for each in columns):
        return _open_numbers(x, (x.width,), names.pop())
    return None, *table(
        x,
        columns,
        x.height,
        request,
        put=lambda name, code: _put(name, code.format(x=f"x[{name!r}]")),
        drop=lambda names: f"x.drop({names!r})",
        apart="x.to_dict()",
    )


def _put(name: object, code: str) -> str:
    code, comma, remark = code.partition(", which")
    if code.endswith(".to_list()"):
        return f"x.drop({[name]!r})"
    return f"x.with_columns({code}){comma}{remark}"


def _open_numbers(x: Any, inner: tuple[int, ...], dtype: str) -> Opened:
    """Numbers without nulls: polars says whether an array of them lies over its memory."""
    try:
        array = x.to_numpy(allow_copy=False)
    except RuntimeError:
        return None, *later(x, x.to_numpy, (len(x), *inner), dtype)
    return None, *over(array, type(x).__name__)


def _look(x: Any, *, in_frame: bool = False) -> Numbers | Refused:
    """What a column holds."""
    import polars as pl

    dtype = x.dtype
    name = "bool" if dtype == pl.Boolean else str(dtype).lower()
    if dtype == pl.Array and not in_frame:
        return _look_within(x)
    if name in DTYPES:
        return Numbers(name, x.to_numpy) if not x.null_count() else Refused(NULLS, _filled(x))
    if dtype in (pl.String, pl.Binary):
        return Refused(TEXT, "{x}.to_list()")
    if dtype.is_temporal():
        return Refused("holds dates or durations, which are counts of a unit", "{x}.to_physical(), which counts them")
    if dtype in (pl.Categorical, pl.Enum):
        return Refused("holds categories, which are no numbers", "{x}.to_physical(), which are their numbers")
    if dtype == pl.Decimal:
        return Refused("holds decimal numbers, which no dtype keeps", "{x}.cast(float), which rounds")
    if dtype in (pl.Int128, getattr(pl, "UInt128", pl.Int128)):
        return Refused("holds integers of 128 bits, which no dtype holds", "{x}.cast(int), which raises if one is lost")
    if dtype == pl.List:
        return Refused("holds rows whose lengths may differ", "{x}.to_list()")
    return Refused(f"has dtype {dtype}, which cannot be carried", "{x}.to_list()")


def _look_within(x: Any) -> Numbers | Refused:
    """What a column of rows of one length holds."""
    import polars as pl

    inner = x
    while inner.dtype == pl.Array:
        if inner.null_count():
            return Refused(NULLS, "{x}.to_list()")
        inner = inner.explode()
    found = _look(inner)
    if isinstance(found, Numbers):
        return Numbers(found.dtype, x.to_numpy)
    return Refused(found.why, "{x}.to_list()")


def _filled(x: Any) -> str:
    import polars as pl

    value = "False" if x.dtype == pl.Boolean else 'float("nan")' if x.dtype.is_float() else "0"
    return f"{{x}}.fill_null({value})"


def _is_text(x: Any) -> bool:
    import polars as pl

    return x.dtype in (pl.String, pl.Binary)


def _is_text_frame(x: Any) -> bool:
    return bool(x.width) and all(map(_is_text, x.get_columns()))
