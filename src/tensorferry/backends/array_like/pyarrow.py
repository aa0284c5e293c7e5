"""Arrow: arrays without nulls as they lie in memory, tables of one dtype, and what to type for the rest."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ...core.dtypes import DTYPES
from .columns import NULLS, TEXT, Column, Numbers, Refused, refuse, table
from .neighbours import Neighbour
from .protocols import open_offered
from .snippets import ROWS
from .sources import kind_of, later, over

if TYPE_CHECKING:
    from ...core.request import Request
    from .neighbours import Opened

__all__ = ["neighbour"]

_ROWS = "holds rows or fields, which are no numbers"
_NAMES = {"halffloat": "float16", "float": "float32", "double": "float64"}


def neighbour(kind: type) -> Neighbour | None:
    """What is known of a class of Arrow's, or of one that is derived from it."""
    import pyarrow as pa

    if issubclass(kind, (pa.Table, pa.RecordBatch)):
        return Neighbour(_open_table, _is_text_table)
    if issubclass(kind, (pa.Array, pa.ChunkedArray)):
        return Neighbour(_open_array, lambda x: _is_text(x.type))
    return None


def _open_array(x: Any, target: Any, request: Request | None) -> Opened:
    import pyarrow as pa

    whole = x.chunk(0) if isinstance(x, pa.ChunkedArray) and x.num_chunks == 1 else x
    found = _look(whole)
    if isinstance(found, Refused):
        raise refuse(f"This {type(x).__name__}", found.why, found.hint.format(x="x"), request)
    if isinstance(whole, pa.ChunkedArray) or pa.types.is_boolean(whole.type):
        return None, *later(x, found.read, (len(x),), found.dtype)
    if isinstance(whole, pa.FixedShapeTensorArray):
        return open_offered(whole, target, request)
    if pa.types.is_fixed_size_list(whole.type):
        return None, *over(found.read(), kind_of(x) + ROWS)
    return None, *over(found.read(), kind_of(x))


def _open_table(x: Any, _target: Any, request: Request | None) -> Opened:
    columns = [Column(name, _look_flat(each)) for name, each in zip(x.column_names, x.columns, strict=True)]
    return None, *table(
        x,
        columns,
        x.num_rows,
        request,
        put=partial(_put, x.column_names),
        drop=lambda names: f"x.drop_columns({names!r})",
        apart="dict(zip(x.column_names, x.columns))",
    )


def _put(names: list[str], name: Any, code: str) -> str:
    code, comma, remark = code.format(x=f"x[{name!r}]").partition(", which")
    if code.endswith((".to_pylist()", ".combine_chunks()")):
        return f"x.drop_columns({[name]!r})"
    return f"x.set_column({names.index(name)}, {name!r}, {code}){comma}{remark}"


def _look(x: Any) -> Numbers | Refused:
    """What an array holds, which may be one of rows of one length."""
    import pyarrow as pa

    if not isinstance(x, pa.FixedSizeListArray) or x.null_count:
        return _look_flat(x)
    flat = x.flatten()
    found = _look_flat(flat)
    if isinstance(found, Refused) or found.dtype == "bool":
        return Refused(NULLS if flat.null_count else _ROWS, "{x}.to_pylist()")
    return Numbers(found.dtype, lambda: flat.to_numpy().reshape(len(x), x.type.list_size))


def _look_flat(x: Any) -> Numbers | Refused:
    """What an array of numbers, or a column of chunks, holds."""
    import pyarrow as pa

    kind, types = x.type, pa.types
    name = _NAMES.get(str(kind), str(kind))
    if isinstance(x, pa.FixedShapeTensorArray):
        name = _NAMES.get(str(kind.value_type), str(kind.value_type))
        nulls = x.null_count or x.storage.flatten().null_count
        if name in DTYPES and not nulls:
            return Numbers(name, x.to_numpy_ndarray)
        return Refused(NULLS if nulls else f"has elements of type {name}", "{x}.to_pylist()")
    if name in DTYPES:
        if x.null_count:
            value = "False" if name == "bool" else 'float("nan")' if types.is_floating(kind) else "0"
            return Refused(NULLS, f"{{x}}.fill_null({value})")
        keywords = {"zero_copy_only": name != "bool"} if isinstance(x, pa.Array) else {}
        return Numbers(name, partial(x.to_numpy, **keywords))
    if _is_text(kind):
        return Refused(TEXT, "{x}.to_pylist()")
    if types.is_dictionary(kind):
        return Refused("holds categories, which are no numbers", "{x}.dictionary_decode()")
    if types.is_temporal(kind) and kind != pa.month_day_nano_interval():
        integer = f"int{kind.bit_width}"
        return Refused(
            "holds dates or durations, which are counts of a unit", f'{{x}}.cast("{integer}"), which counts them'
        )
    if types.is_decimal(kind):
        return Refused("holds decimal numbers, which no dtype keeps", '{x}.cast("float64"), which rounds')
    if isinstance(x, pa.ChunkedArray) and isinstance(kind, (pa.FixedSizeListType, pa.FixedShapeTensorType)):
        return Refused("holds rows in several pieces", "{x}.combine_chunks()")
    if types.is_nested(kind):
        return Refused(_ROWS, "{x}.to_pylist()")
    return Refused(f"has type {kind}, which cannot be carried", "{x}.to_pylist()")


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    types = pa.types
    views = types.is_string_view(kind) or types.is_binary_view(kind)
    binary = types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    return bool(views or binary or types.is_string(kind) or types.is_large_string(kind))


def _is_text_table(x: Any) -> bool:
    return bool(x.num_columns) and all(_is_text(each.type) for each in x.columns)
