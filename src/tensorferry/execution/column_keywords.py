"""Apply ``nulls=``, ``ragged=`` and ``pad=`` to columns, tables and lists before conversion."""

from __future__ import annotations

from functools import cache, partial
from math import isnan, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import hints
from ..backends import registry
from ..backends.array_like.tables import ArrowColumn, found_in, is_known_by_arrow
from ..backends.columnar import ColumnBackend
from ..backends.lists import Members
from ..backends.opening import TableContents, dates_of
from ..columns.column import Column, Ragged, Refused, value_in
from ..columns.layouts import asked_of
from ..columns.pieces import Cast, Missing, Piece
from ..core.dtype_names import asked_dtype as dtype_asked
from ..core.dtypes import DTYPES, find
from ..core.info import TensorInfo
from ..core.kinds import Kind, Reason
from ..core.layout import ALIGNMENT
from ..core.leaf_dtypes import DtypeRule, is_of_its_kind
from ..core.named_tuple import NamedTuple
from ..core.names import EXCHANGE
from ..core.request import COLUMN_KEYWORDS, Request
from ..errors import LossyCastError, UnsupportedTypeError, an, shown, validate_word
from ..hints import Hint
from ..host.masked import is_masked_array
from ..host.numpy_dtypes import has_dates, of_numpy
from .list_keywords import apply_to_list, is_list
from .recipes import conversion_of
from .run import convert, described

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = [
    "Masked",
    "Rows",
    "apply_column_keywords",
    "contents_of",
    "filled_info",
    "full_mask",
    "take_column_keywords",
    "validate",
]


_PADDED = Reason("rows are padded")
_NO_COLUMNS = frozenset({type(None), bool, int, float, complex, str, list, tuple})
"""Types of elements of a list that is not one of columns."""


class Masked(NamedTuple):
    """A column or table for ``nulls="mask"``.

    Args:
        values: The values, with zeros in place of nulls.
        mask: True where there is a value; ``None`` if there are no nulls.
    """

    values: Any
    mask: Any


class Rows(list[Any]):
    """The rows of a column of lists, for ``ragged="rows"``: each becomes a tensor."""


def validate(nulls: object = None, ragged: object = None, pad: object = None) -> None:
    """Check the values of the keywords.

    Raises:
        TypeError, ValueError: A keyword has a value that it does not take; the message says which.
    """
    if isinstance(nulls, str) and nulls not in ("nan", "mask"):
        raise ValueError(f'nulls must be a value, "nan" or "mask", not {shown(nulls)}')
    if nulls is not None and not isinstance(nulls, (str, bool, int, float, complex, np.generic)):
        raise TypeError(f'nulls must be a value, "nan" or "mask", not {shown(nulls)}')
    if ragged is not None:
        validate_word("ragged", ragged, ("rows",), "None")
    if pad is not None and not isinstance(pad, (bool, int, float, complex, np.generic)):
        if pad == "nan":
            number = ': float("nan") is one'
        else:
            number = ""
        raise TypeError(f"pad must be a number or None, not {shown(pad)}{number}")
    if ragged is not None and pad is not None:
        raise TypeError('ragged="rows" keeps lengths, and pad= makes them equal: give one of them')


def contents_of(x: Any, dtype: str | None) -> TableContents | None:
    """The contents of a column or a table, read as `dtype`; ``None`` if `x` is neither."""
    if isinstance(x, TableContents):
        return x
    if isinstance(x, ArrowColumn):
        return found_in(x, dtype)
    try:
        owner = registry.backend_of(x)
    except UnsupportedTypeError:
        return None
    if isinstance(owner, ColumnBackend):
        return owner.contents_of(x, dtype)
    if has_dates(x):
        return dates_of(x, dtype)
    if is_masked_array(x):
        return _contents_of_masked(x)
    if is_known_by_arrow(type(x)):
        return found_in(x, dtype)
    return None


def _contents_of_masked(x: Any) -> TableContents | None:
    """A masked array's contents, masked ones as nulls; ``None`` if it has no axis or no numbers."""
    name = of_numpy(x.dtype)
    if name is None or not x.ndim:
        return None
    mask = np.ma.getmaskarray(x)
    missing = (Missing(mask.reshape(-1), prod(x.shape[1:])),) if mask.any() else ()
    pieces = [Piece(len(x), x.data, missing)]
    return TableContents(type(x).__name__, None, Column(name, x.shape[1:], pieces, mutable=True))


def filled_info(x: Any) -> TensorInfo | None:
    """Framework and dtype of a column or table that is converted only with ``nulls=`` or ``pad=``.

    It is ``None`` for everything else. The shape is left out: rows may have unequal lengths.

    Raises:
        UnsupportedTypeError: It is not a tensor, whatever the keywords are.
        LossyCastError: The columns of a table have no dtype in common.
    """
    owner = registry.backend_of(x)
    if not isinstance(owner, ColumnBackend):
        return None
    contents = owner.contents_of(x, None)
    column = contents.found.elements if isinstance(contents.found, Ragged) else contents.found
    if contents.table is not None:
        values = apply_column_keywords(contents, None, nulls="mask").values
        dtype = described(values).dtype
    elif isinstance(column, Column):
        dtype = column.dtype
    else:
        return None
    return TensorInfo(owner.name, (), dtype)


def apply_column_keywords(
    x: Any,
    dtype: object,
    casting: str | None = None,
    *,
    in_tree: Callable[[str], str | None] | None = None,
    like: str | None = None,
    nulls: object = None,
    ragged: object = None,
    pad: object = None,
) -> Any:
    """Replace the nulls of a column, a table or a list, and make its rows equally long.

    In a tree, everything that is no column and no array of Python numbers is returned unchanged.

    Args:
        x: The object to convert.
        dtype: The keyword of the call.
        casting: The keyword of the call.
        in_tree: In a tree, gives the dtype that a leaf of a dtype is converted to. `dtype` is then
            used only for columns that are not numbers without it, such as dates.
        like: The dtype of the tensor in ``like=``, which a column of its kind takes, if `dtype` is
            ``None``.
        nulls: A value that replaces nulls, ``"nan"``, or ``"mask"``, which gives a `Masked`.
        ragged: ``"rows"`` gives the `Rows` of a column whose rows have unequal lengths.
        pad: The value with which its short rows are padded.

    Raises:
        LossyCastError: The dtype of the column does not have the value in `nulls` or `pad`.
        UnsupportedTypeError: `x` is a tensor, which has no nulls and no rows of unequal lengths, or
            a table, whose columns have no rows.
    """
    if in_tree is None and is_list(x):
        return _applied_to_list(x, dtype, casting, nulls=nulls, ragged=ragged, pad=pad)
    if in_tree is not None and _is_array_of_objects(x):
        # As an array again: a list is a container in a tree.
        return _as_objects(
            _applied_to_list(x, None, casting, in_tree=in_tree, nulls=nulls, ragged=ragged, pad=pad)
        )
    name = _name_of_dtype(dtype)
    read_as = asked_of(name, casting)
    masks = isinstance(nulls, str) and nulls == "mask"
    decide = in_tree
    if like is not None and name is None:
        decide = partial(_if_of_its_kind, like)
        # Of decimals, whose fractions only floats have.
        read_as = asked_of(decide("float64"), casting)
    leaf = in_tree is not None
    fill = partial(
        _fill_nulls,
        nulls=nulls,
        becomes=decide or name,
        casting=casting,
        leaf=leaf,
        among_others=leaf,
    )
    if decide:
        contents, is_as_asked = _contents_as_decided(x, read_as, decide, casting)
    else:
        contents, is_as_asked = contents_of(x, read_as), False
    if contents is None:
        if in_tree:
            return x
        _refuse_of_tensor(x, nulls=nulls, ragged=ragged, pad=pad)
        return Masked(x, None) if masks else x
    if nulls is not None and not _is_nan(nulls):
        contents = _with_nan_missing(contents)
    if contents.table is not None:
        if not in_tree:
            _refuse_of_table(contents.kind, ragged=ragged, pad=pad)
        fill_among_others = partial(fill, among_others=True)
        return (
            x if nulls is None else _applied_to_table(x, contents, fill_among_others, masks=masks)
        )
    values = contents.found
    if isinstance(values, Ragged):
        values = values._replace(elements=fill(values.elements))
        return _apply_to_rows(contents, values, nulls, ragged, pad)
    if isinstance(values, Refused):
        stays = nulls is None or (leaf and values.stays)
        kept = x if stays else contents.with_found(fill(values))
        return Masked(kept, None) if masks and not values.stays else kept
    assert values is not None  # noqa: S101 - it is a column
    if nulls is None:
        return contents.with_found(values) if values.unit or is_as_asked else x
    filled = contents.with_found(fill(values))
    if not masks:
        return filled
    mask = _presence_mask(values, values.rows)
    return Masked(filled, mask.reshape(()) if contents.is_one else mask)


def _name_of_dtype(dtype: object) -> str | None:
    """The name of the dtype in ``dtype=``; ``None`` for a rule or a mapping: they name several."""
    if isinstance(dtype, DtypeRule) or hasattr(dtype, "keys"):
        return None
    return dtype_asked(dtype)


def _nulls_for(dtype: str, nulls: Any) -> object:
    """The value of ``nulls=`` in a call with a dtype; ``None`` if that does not have the value."""
    if isinstance(nulls, str):
        return nulls if nulls == "mask" or DTYPES[dtype].kind == "float" else None
    try:
        value_in(dtype, nulls)
    except LossyCastError:
        return None
    return _plain_value(nulls)


def _is_nan(nulls: object) -> bool:
    if isinstance(nulls, str):
        return nulls == "nan"
    return isinstance(nulls, float) and isnan(nulls)


def _with_nan_missing(contents: TableContents) -> TableContents:
    """The contents, in which NaN is a null where its library marks missing values by it."""

    def marked(values: Any) -> Any:
        mark = getattr(values, "with_nan_missing", None)
        return values if mark is None else mark()

    if contents.table is None:
        values = marked(contents.found)
        if values is contents.found:
            return contents
        return contents.with_found(values)
    columns = [(name, marked(column)) for name, column in contents.columns]
    return TableContents(
        contents.kind,
        contents.name,
        None,
        contents.table,
        columns,
        contents.note,
        labels=contents.labels,
    )


def _is_array_of_objects(x: Any) -> bool:
    """Whether it is an array of Python objects that are not text."""
    return isinstance(x, np.ndarray) and is_list(x) and not registry.backend_of(x).is_text(x)


def _as_objects(values: Any) -> Any:
    """An array of objects, or the rows as such arrays; what is one already is returned.

    A mask stays beside it.
    """
    if isinstance(values, Masked):
        return Masked(_as_objects(values.values), values.mask)
    if isinstance(values, Members):
        return _as_column(values)
    if type(values) is Rows:
        return Rows(map(_as_objects, values))
    if type(values) is list:
        return np.array(values, object)
    return values


def _as_column(members: Members) -> TableContents:
    """Padded tensors, as a column that is read into a new array: in a tree they are one leaf."""
    conversion = conversion_of(registry.backend_named(EXCHANGE), Request(EXCHANGE))
    column = _new_column(
        members.value.dtype.name,
        members.shape,
        lambda: convert(members, conversion),
        _PADDED,
    )
    note = Kind(is_column=True, padded=str(members.value.item()))
    return TableContents("ndarray", None, column, note=note)


def _applied_to_table(
    x: Any, contents: TableContents, fill: Callable[[Any], Any], *, masks: bool
) -> Any:
    """A table without its nulls, as the object to convert; it is `x` if there are none."""
    if contents.table is None or not contents.columns:
        return x
    columns = [(name, fill(column)) for name, column in contents.columns]
    filled = x
    if any(
        column is not before
        for (_, column), (_, before) in zip(columns, contents.columns, strict=True)
    ):
        note = _note_of(columns)
        filled = TableContents(
            contents.kind,
            contents.name,
            None,
            contents.table,
            columns,
            note,
            labels=contents.labels,
        )
    if not masks:
        return filled
    # A column of lists is refused when the table is converted.
    flat = [
        None if isinstance(column, Column) and column.inner else column
        for _, column in contents.columns
    ]
    return Masked(
        filled, np.stack([_presence_mask(column, contents.table.rows) for column in flat], axis=1)
    )


def _applied_to_list(
    x: Any,
    dtype: object,
    casting: str | None,
    *,
    in_tree: Callable[[str], str | None] | None = None,
    nulls: object,
    ragged: object,
    pad: object,
) -> Any:
    """A list with the keywords applied, as the object to convert."""
    if nulls is not None and _are_columns(x):
        return _applied_to_each(x, dtype, casting, nulls=nulls, ragged=ragged, pad=pad)
    filled = apply_to_list(x, dtype, casting, in_tree=in_tree, nulls=nulls, ragged=ragged, pad=pad)
    if filled.are_rows:
        values = Rows(filled.values)
    else:
        values = filled.values
    if not (isinstance(nulls, str) and nulls == "mask"):
        return values
    if filled.are_rows:
        masks = filled.mask or [None] * len(filled.values)
        rows = zip(filled.values, masks, strict=True)
        return Masked(
            values,
            Rows(full_mask(row) if mask is None else np.array(mask, bool) for row, mask in rows),
        )
    return Masked(values, None if filled.mask is None else np.array(filled.mask, bool))


def _are_columns(x: Any) -> bool:
    """Whether a list is of columns, of tables, or of masked arrays."""
    one_of_each = {type(row): row for row in x}
    if not one_of_each or not one_of_each.keys().isdisjoint(_NO_COLUMNS):
        return False
    return all(contents_of(kind_member, None) is not None for kind_member in one_of_each.values())


def _applied_to_each(
    columns: Any,
    dtype: object,
    casting: str | None,
    *,
    nulls: object,
    ragged: object,
    pad: object,
) -> Any:
    """Columns without their nulls, as the list to convert."""
    done = [apply_column_keywords(column, dtype, nulls=nulls) for column in columns]
    join = partial(_applied_to_list, nulls=None, ragged=ragged)
    if not (isinstance(nulls, str) and nulls == "mask"):
        return join(done, dtype, casting, pad=pad)
    done = [part if isinstance(part, Masked) else Masked(part, None) for part in done]
    masks = [full_mask(part.values) if part.mask is None else part.mask for part in done]
    return Masked(
        join([part.values for part in done], dtype, casting, pad=pad),
        join(masks, None, None, pad=None if pad is None else False),
    )


def _refuse_of_tensor(x: Any, **keywords: object) -> None:
    """Raise for keywords that a tensor does not take. A description of one takes all.

    Raises:
        UnsupportedTypeError: `x` is a tensor; or it is no tensor at all, which has its own message.
    """
    names = [name for name, value in keywords.items() if value is not None]
    if not names or isinstance(x, TensorInfo):
        return
    info = described(x)
    takes = names == ["nulls"] and keywords["nulls"] == "mask" and info.abstract is None
    if takes:
        return
    what = {
        "nulls": "no nulls",
        "ragged": "no rows of unequal lengths",
        "pad": "no rows of unequal lengths",
    }[names[0]]
    if info.abstract is not None:
        reasons = registry.backend_named(info.framework).capabilities.objects.abstract
        why, hint = reasons.get(info.abstract, (f"it is {info.abstract}", None))
        raise UnsupportedTypeError(
            f"{names[0]}= is for columns and lists, and this is none: {why}.", hint
        )
    raise UnsupportedTypeError(
        f"{names[0]}= is for columns of tables and for lists: "
        f"{an(info.framework)} tensor has {what}.",
        Hint(hints.again(), ", ", hints.without(names[0])),
    )


def _refuse_of_table(kind: str, **keywords: object) -> None:
    """Raise for keywords about the rows of one column, if a table is given.

    Raises:
        UnsupportedTypeError: One is given.
    """
    for name, value in keywords.items():
        if value is not None:
            raise UnsupportedTypeError(
                f"{name}= is about the rows of one column, and {an(kind)} is several.",
                Hint(hints.tree(**{name: _plain_value(value)})),
            )


def _plain_value(value: Any) -> object:
    """A value of a keyword, as one of Python's own."""
    return value.item() if isinstance(value, np.generic) else value


def _if_of_its_kind(like: str, dtype: str) -> str | None:
    return like if is_of_its_kind(dtype, like) else None


def _contents_as_decided(
    x: Any, read_as: str | None, becomes: Callable[[str], str | None], casting: str | None
) -> tuple[TableContents | None, bool]:
    """The contents of a column, and whether they were read as the dtype that was decided for them.

    Args:
        x: The column.
        read_as: The dtype for a column without numbers, such as dates.
        becomes: Gives the dtype that a column of a dtype is converted to.
        casting: The keyword of the call.
    """
    try:
        contents = contents_of(x, None)
    except LossyCastError as error:
        if error.read_as is None:
            asked = None
        else:
            asked = asked_of(becomes(error.read_as), casting)
        if asked is None:
            raise
        return contents_of(x, asked), True
    if contents is not None and contents.table is not None:
        dtypes = {
            becomes(column.dtype) for _, column in contents.columns if isinstance(column, Column)
        }
        if len(dtypes) == 1:
            asked = asked_of(dtypes.pop(), casting)
        else:
            asked = None
        if asked is None:
            return contents, False
        return contents_of(x, asked), True
    if contents is None or contents.found is None:
        return contents, False
    values = contents.found.elements if isinstance(contents.found, Ragged) else contents.found
    if isinstance(values, Refused):
        asked = read_as
    elif values.reads_as_asked:
        asked = asked_of(becomes(values.dtype), casting)
    else:
        asked = None
    if asked is None:
        return contents, False
    return contents_of(x, asked), True


def _apply_to_rows(
    contents: TableContents, ragged_values: Ragged, nulls: Any, ragged: object, pad: object
) -> Any:
    """Apply the keywords to a column with rows of unequal lengths, whose nulls are replaced."""
    elements = ragged_values.elements
    if (ragged is None and pad is None) or ragged_values.lacks:
        return contents.with_found(ragged_values)
    if isinstance(nulls, str) and nulls == "mask":
        mask = _presence_mask(elements, elements.rows)
    else:
        mask = None
    if elements.fill is None:
        note = Kind(is_column=True)
    else:
        note = Kind(is_column=True, filled=str(elements.fill.item()))
    if ragged is not None:
        rows = Rows(_rows_of(contents, ragged_values, note))
        if mask is None:
            return rows
        return Masked(rows, Rows(ragged_values.rows(mask)))
    value = elements.value_of(pad, "pad")
    padded = _new_column(
        elements.dtype,
        ragged_values.longest,
        lambda: ragged_values.padded(ragged_values.read(), value),
        _PADDED,
    )
    note = note._replace(padded=str(value.item()))
    result = TableContents(contents.kind, contents.name, padded, note=note, labels=contents.labels)
    if mask is None:
        return result
    return Masked(result, ragged_values.padded(mask, False))


def _rows_of(contents: TableContents, ragged_values: Ragged, note: Kind) -> list[Any]:
    """A column's rows: views of its memory, or of the array into which reading them copies it."""
    elements = ragged_values.elements
    reasons = elements.obstacles(exactly=True)
    if not reasons:
        return ragged_values.rows(ragged_values.read())

    @cache
    def rows() -> list[Any]:
        return ragged_values.rows(ragged_values.read())

    row_contents, at, size = [], 0, prod(elements.inner) * find(elements.dtype).itemsize
    if ragged_values.shapes is None:
        shapes = [(length,) for length in ragged_values.lengths.tolist()]
    else:
        shapes = ragged_values.shapes.tolist()
    for number, shape in enumerate(shapes):
        whole = (*shape, *elements.shape[1:])
        row = _new_column(elements.dtype, whole, lambda number=number: rows()[number], *reasons)  # type: ignore[misc]
        row.at = at % ALIGNMENT if prod(whole) else 0
        row_contents.append(TableContents(contents.kind, contents.name, row, note=note))
        at += prod(shape) * size
    return row_contents


def _new_column(
    dtype: str, shape: tuple[int, ...], read: Callable[[], Any], *reasons: Reason
) -> Column:
    """A column that is read into a new array."""
    column = Column(dtype, shape[1:], [Piece(shape[0], Cast(read))], reasons=reasons)
    column.fill, column.fill_all = np.bool_(False), lambda _: read()
    return column


def _fill_nulls(
    values: Any,
    nulls: Any,
    becomes: str | Callable[[str], str | None] | None,
    casting: str | None,
    *,
    leaf: bool,
    among_others: bool,
) -> Any:
    """Replace the nulls of a column.

    If its own dtype does not have the value, the column is first cast to `becomes`.

    In a hint, ``dtype=`` is a mapping if the column is a leaf of a tree. If it is one column
    `among_others`, the value may be one of theirs, and the hint must be right for all.

    Raises:
        LossyCastError: Neither dtype has the value.
    """
    if isinstance(values, Refused) and values.asked and nulls is not None:
        # Its error repeats the keyword.
        return values._replace(nulls=_nulls_for(values.asked, nulls))
    if not isinstance(values, Column) or nulls is None or not values.lacks:
        return values
    zero = False if values.dtype == "bool" else 0
    if isinstance(nulls, str) and nulls == "mask":
        return values.filled(values.value_of(zero))
    if callable(becomes):
        dtype = becomes(values.dtype)
    else:
        dtype = becomes
    is_nan = _is_nan(nulls)
    hint = Hint(hints.keyword("nulls", zero))
    if is_nan:
        also = {values.dtype: "float64"} if leaf else "float64"
        hint += ", or "
        hint += hints.keywords(dtype=also, nulls="nan")
    if among_others and isinstance(nulls, bool) != (values.dtype == "bool") and not is_nan:
        # No value is one of booleans and of numbers.
        hint = Hint(hints.keyword("nulls", "mask"))
    try:
        value = values.value_of(nulls, hint=hint)
        if (
            dtype in DTYPES
            and casting is None
            and DTYPES[dtype].kind == DTYPES[values.dtype].kind == "float"
        ):
            # The cast would make infinity of a number that is too large.
            value_in(dtype, nulls, hint=hint)
        return values.filled(value)
    except LossyCastError:
        if dtype not in DTYPES or dtype == values.dtype:
            raise
        value = values.cast(dtype, casting)
        return value.filled(value.value_of(nulls))


def _note_of(columns: Sequence[tuple[object, Any]]) -> Kind:
    """What a plan says of the nulls of a table that were replaced."""
    values = (
        str(column.fill.item())
        for _, column in columns
        if isinstance(column, Column) and column.fill is not None
    )
    return Kind(is_column=True, filled=next(values, ""))


def _presence_mask(values: Any, rows: int) -> Any:
    """A new array that is true where there is a value."""
    return ~values.missing() if isinstance(values, Column) else np.ones(rows, bool)


def full_mask(values: Any) -> Any:
    """A mask for values without nulls: true everywhere."""
    return np.ones(described(values).shape, bool)


def take_column_keywords(keywords: dict[str, Any]) -> Mapping[str, Any]:
    """Take the keywords for columns out of the keywords of a call, and check them."""
    keywords_of_columns = {name: keywords.pop(name) for name in COLUMN_KEYWORDS if name in keywords}
    validate(**keywords_of_columns)
    return {name: value for name, value in keywords_of_columns.items() if value is not None}
