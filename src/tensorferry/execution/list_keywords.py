"""Apply ``nulls=``, ``ragged=`` and ``pad=`` to nested lists of numbers, before these are read."""

from __future__ import annotations

from array import array
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import hints
from ..backends import registry
from ..backends.array_like.tables import ArrowColumn
from ..backends.lists import look_at, members_of
from ..backends.no_number import refuse_without_dtypes
from ..backends.opening import TableContents
from ..columns.column import value_in
from ..core.declaration import VALUE, Code
from ..core.dtype_names import asked_dtype as dtype_asked
from ..core.dtypes import DTYPES, FINITE, common_dtype
from ..core.named_tuple import NamedTuple
from ..core.names import EXCHANGE
from ..core.request import Request
from ..errors import ConversionError, ShapeError, UnsupportedTypeError
from ..hints import Hint, quoted
from ..host import memory
from ..host.numpy_dtypes import of_numpy
from ..sequences.diagnostics import (
    APART,
    DEEPEST,
    KEEPS_NONE,
    ROWS,
    has_dtype,
    leaves_with_paths,
    value_for_none,
    why_ragged,
)
from ..sequences.reader import refuse_rounded_integers
from .run import opening_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..backends.lists import Members
    from ..planning.plan import Plan

__all__ = ["Filled", "apply_to_list", "is_list", "plan_from"]


class Filled(NamedTuple):
    """A list in which the keywords were applied.

    Args:
        values: The nested list, or its rows; tensors that are padded, as `Members`; the object
            itself if nothing changed.
        mask: For ``nulls="mask"``: a nested list or an array that is true where there is a value;
            ``None`` if all are there.
        are_rows: Whether it is several lists, which become a tensor each.
    """

    values: Any
    mask: Any
    are_rows: bool


def is_list(x: object) -> bool:
    """Whether the keywords may apply in it: a list or tuple, or an array of Python objects."""
    if isinstance(x, np.ndarray):
        return bool(x.dtype.hasobject) and x.dtype.names is None and x.ndim > 0
    return isinstance(x, (list, tuple)) and not hasattr(x, "_fields")


def apply_to_list(
    x: Any,
    dtype: object,
    casting: str | None = None,
    *,
    in_tree: Callable[[str], str | None] | None = None,
    nulls: object = None,
    ragged: object = None,
    pad: object = None,
) -> Filled:
    """Replace ``None`` in nested lists of numbers, and make their rows or tensors equally long.

    Args:
        x: For this, `is_list` is true.
        dtype: The dtype of the call, which has to hold the values of `nulls` and `pad`.
        casting: The keyword of the call.
        in_tree: In a tree, gives the dtype that numbers of a dtype become, in place of `dtype`.
        nulls: As for `apply_column_keywords`.
        ragged: See there.
        pad: See there.

    Raises:
        LossyCastError: The value in `nulls` or `pad` is of another kind than the numbers.
        ShapeError: Rows cannot be padded: some are numbers, or they are nested too deeply.
        UnsupportedTypeError: ``None`` is in the place of a row; or `nulls` is a value, and the list
            has tensors.
    """
    rows = x.tolist() if isinstance(x, np.ndarray) else x
    masks = isinstance(nulls, str) and nulls == "mask"
    numbers: list[Any] = [*rows]
    lengths: list[list[int]] = []
    if not _has_tensors(rows):
        numbers, lengths = _levels_of_rows(rows)
    if _has_tensors(numbers):
        if nulls is not None and not masks:
            # It has the error for None, and for every other element.
            with suppress(ShapeError):
                members_of(rows, opening_for())
            raise UnsupportedTypeError(
                "nulls= replaces None among numbers, and this list has tensors.",
                Hint(hints.again(), ", ", hints.without("nulls")),
            )
        if dtype is None or in_tree is not None:
            named = None
        else:
            named = _named_dtype(dtype)
        request = Request(EXCHANGE, dtype=named, casting=casting)
        if (pad is None and ragged is None) or not _lengths_differ(rows, request):
            return Filled(x, None, False)
        if ragged is not None:
            return Filled([*rows], None, True)
        members, mask = _padded_tensors(rows, lengths, pad, request, in_tree)
        return Filled(members, mask if masks else None, False)
    are_equal = all(len(set(length)) == 1 for length in lengths)
    if in_tree is None:
        _refuse_what_is_missing(rows, numbers, nulls, pad, ragged, are_equal=are_equal)
    mask = None
    if nulls is not None and any(number is None for number in numbers):
        if masks:
            value = _zero_of(numbers)
            mask = _mapped_rows(rows, lambda number: number is not None)
        else:
            value = _value_for_list("nulls", nulls, numbers, dtype, in_tree)
            mask = None
        if in_tree is None and any(isinstance(number, _FLOATS) for number in (*numbers, value)):
            refuse_rounded_integers(rows)
        x = rows = _mapped_rows(rows, lambda number: value if number is None else number)
    if are_equal or (pad is None and ragged is None):
        return Filled(x, mask, False)
    if ragged is not None:
        return Filled(list(rows), mask, True)
    whole = [max(length) for length in lengths]
    filling = _value_for_list("pad", pad, numbers, dtype, in_tree)
    if masks and mask is None:
        mask = _mapped_rows(rows, lambda _: True)
    return Filled(
        _padded_rows(rows, whole, filling),
        None if mask is None else _padded_rows(mask, whole, False),
        False,
    )


def _refuse_what_is_missing(
    rows: Any,
    numbers: Sequence[Any],
    nulls: object,
    pad: object,
    ragged: object,
    *,
    are_equal: bool,
) -> None:
    """Raise for a list that the keywords of the call do not make a tensor, before they are applied.

    Later, an error would be about another list than the one that was given, and its hint would not
    repeat the keywords.

    Raises:
        ConversionError: No dtype holds an element.
        UnsupportedTypeError: ``None`` stays, because `nulls` is ``None``.
        ShapeError: Rows have unequal lengths, because `pad` and `ragged` are ``None``.
    """
    kinds = set(map(type, numbers))
    others = kinds - {bool, float, complex, type(None)}
    if others and not all(has_dtype(number) for number in numbers if number is not None):
        refuse_without_dtypes(rows)
    known = [number for number in numbers if number is not None]
    if nulls is None and len(known) < len(numbers):
        path = next(path for path, leaf in leaves_with_paths(rows) if leaf is None)
        hint = Hint(hints.keyword("nulls", value_for_none(known)), ", which replaces None")
        raise UnsupportedTypeError(f"None at {path} is not a number.", hint)
    if ragged is not None:
        inner = next(filter(None, map(why_ragged, rows)), "") if not are_equal else ""
        if inner:
            raise ShapeError(f'{inner} ragged="rows" is for rows of numbers.', APART)
    if not are_equal and pad is None and ragged is None:
        zero = _zero_of(known)
        raise ShapeError(why_ragged(rows), Hint(hints.keyword("pad", zero), ", which pads them"))


def plan_from(plan: Plan, keywords: Mapping[str, object]) -> Plan:
    """The plan of a list with the keywords applied, as a plan of the list that was given."""
    if plan.request.dtype in DTYPES:
        asked = {"dtype": plan.request.dtype}
    else:
        asked = {}
    words = ", ".join(f"{name}={quoted(value)}" for name, value in {**keywords, **asked}.items())
    first_of_two = "[0]" if keywords.get("nulls") == "mask" else ""
    filled = Code(f"ferry.to_list({VALUE}, {words}){first_of_two}")
    if not plan.steps:
        return plan
    first = plan.steps[0]
    snippet = first.snippet.changed(lambda code: code.after(filled))
    steps = (first._replace(snippet=snippet), *plan.steps[1:])
    return plan._replace(
        steps=steps, modules=(*plan.modules, {"ferry": "import tensorferry as ferry"})
    )


def _levels_of_rows(x: Any) -> tuple[list[Any], list[list[int]]]:
    """The elements that are no rows, and the lengths of all rows of each level.

    Raises:
        ShapeError: Some elements of a level are rows, and some are numbers; or it is nested too
            deeply.
        UnsupportedTypeError: ``None`` is in the place of a row.
    """
    level: list[tuple[str, Any]] = [("x", x)]
    lengths: list[list[int]] = []
    while level and isinstance(level[0][1], ROWS):
        if len(lengths) == DEEPEST:
            raise ShapeError(f"x is nested deeper than {DEEPEST} levels, or contains itself.", None)
        lengths.append([len(row) for _, row in level])
        level = [
            (f"{path}[{index}]", element)
            for path, row in level
            for index, element in enumerate(row)
        ]
        level.sort(key=lambda pair: not isinstance(pair[1], ROWS))
        odd = next((pair for pair in level if not isinstance(pair[1], ROWS)), None)
        if odd is not None and isinstance(level[0][1], ROWS):
            if odd[1] is None:
                raise UnsupportedTypeError(
                    f"None at {odd[0]} stands in the place of a row, which has no length.",
                    "[row for row in x if row is not None]" if len(lengths) == 1 else KEEPS_NONE,
                )
            raise ShapeError(
                "Rows and numbers are no tensor: "
                f"the {type(odd[1]).__name__} at {odd[0]} is beside rows.",
                APART,
            )
    return [element for _, element in level], lengths


def _mapped_rows(x: Any, do: Any) -> Any:
    if isinstance(x, ROWS):
        return [_mapped_rows(element, do) for element in x]
    return do(x)


def _padded_rows(x: Any, whole: Sequence[int], value: Any) -> Any:
    """Rows, filled up at their ends to these lengths."""
    length, *inner = whole
    missing = length - len(x)
    if not inner:
        return [*x, *[value] * missing]
    return [_padded_rows(row, inner, value) for row in (*x, *[()] * missing)]


# -- tensors ---------------------------------------------------------------------------------------


def _has_tensors(elements: list[Any]) -> bool:
    kinds = {
        type(element)
        for element in elements
        if element is not None and not isinstance(element, np.generic)
    }
    return any(kind in _AS_TENSORS or registry.is_tensor(kind) for kind in kinds)


_AS_TENSORS = frozenset({TableContents, ArrowColumn, bytes, bytearray, memoryview, array})
"""Columns from which nulls were taken, or which only Arrow's interfaces know; and buffers."""


def _lengths_differ(x: Any, request: Request) -> bool:
    """Whether the tensors of a list have unequal shapes, or its rows unequal lengths."""
    try:
        members = members_of(x, opening_for(request=request))
        if members is None:
            shapes = look_at(x, (len(x),), opening_for(request=request)).shapes
        else:
            shapes = []
    except ShapeError:
        return True
    except ConversionError:
        return False  # the conversion raises it again
    return len(set(shapes)) > 1


def _padded_tensors(
    x: Any,
    lengths: Sequence[Sequence[int]],
    pad: Any,
    request: Request,
    in_tree: Callable[[str], str | None] | None,
) -> tuple[Members, Any]:
    """The tensors of a list, which are padded and stacked, and a mask of their values.

    Args:
        x: The list.
        lengths: The lengths of the lists of each level; none if its elements are tensors.
        pad: The keyword of the call.
        request: The dtype that is named for the call, and its `casting`.
        in_tree: In a tree, gives the dtype that tensors of a dtype become.

    Raises:
        LossyCastError: No dtype has all values, or the dtype does not have the value in `pad`.
        ShapeError: The tensors have unequal numbers of axes.
        UnsupportedTypeError: An element is no tensor.
    """
    outer = tuple(max(length) for length in lengths) or (len(x),)
    slots = _flat_elements(_padded_rows(x, outer, _MISSING), len(outer))
    first = next(slot for slot in slots if slot is not _MISSING)
    members = look_at(
        [first if slot is _MISSING else slot for slot in slots], outer, opening_for(request=request)
    )
    shapes = members.shapes
    few, many = min(shapes, key=len), max(shapes, key=len)
    if len(few) != len(many):
        raise ShapeError(
            f"Tensors with {len(few)} and with {len(many)} axes cannot be padded to one shape: "
            f"{tuple(few)}, {tuple(many)}.",
            APART,
        )
    whole = tuple(map(max, zip(*shapes, strict=True)))
    named = request.dtype
    if named is None and in_tree is not None:
        named = in_tree(common_dtype(info.dtype for info in members.infos))
    dtype = named or common_dtype(info.dtype for info in members.infos)
    value = value_in(dtype, pad, "pad")
    missing = [slot is _MISSING for slot in slots]
    if any(missing):
        members = _without_missing(members, missing, value)
    # For a number, the padding of one element.
    places: Any = [tuple(map(slice, shape)) if shape else slice(1) for shape in members.shapes]
    mask = np.zeros((len(slots), *(whole or (1,))), bool)
    for row, place, is_missing in zip(mask, places, missing, strict=True):
        row[place] = not is_missing
    if members.which is None and whole and len({shape[1:] for shape in shapes}) == 1:
        places = memory.RowLengths([shape[0] for shape in shapes], left=False)
    asked = f', dtype="{dtype}"' if named else ""
    stacked = members._replace(
        shape=(*outer, *whole),
        asked=request._replace(dtype=dtype, casting=request.casting or (None if named else FINITE)),
        places=places,
        value=value,
        code=Code(f"ferry.to_numpy({VALUE}, pad={quoted(pad)}{asked})"),
        stays=True,
    )
    return stacked, mask.reshape(*outer, *whole)


_MISSING: Any = object()
"""Where a shorter list of tensors has no tensor."""


def _flat_elements(x: Any, levels: int) -> list[Any]:
    if levels == 1:
        return [*x]
    return [number for row in x for number in _flat_elements(row, levels - 1)]


def _without_missing(members: Members, missing: Sequence[bool], value: Any) -> Members:
    """The members: missing ones have no elements, or, as numbers, the padding value."""
    which = list(members.which or [0] * len(missing))
    rank = len(members.shapes[0])
    if rank:
        empty = np.empty((0,) * rank, value.dtype)
    else:
        empty = np.asarray(value)
    info = members.infos[0]._replace(shape=empty.shape, strides=(0,) * rank)
    for index in np.flatnonzero(missing).tolist():
        which[index] = len(members.infos)
    infos, sources = [*members.infos, info], [*members.sources, members.sources[0]]
    if members.which is None:
        shapes = {shape: place for place, shape in enumerate(dict.fromkeys(members.shapes))}
        infos = [members.infos[0]._replace(shape=shape) for shape in shapes] + [info]
        sources = [members.sources[0]] * len(infos)
        which = [
            len(shapes) if is_missing else shapes[shape]
            for shape, is_missing in zip(members.shapes, missing, strict=True)
        ]
    tensors = [
        empty if is_missing else tensor
        for tensor, is_missing in zip(members.tensors, missing, strict=True)
    ]
    return members._replace(tensors=tensors, infos=infos, sources=sources, which=which)


def _named_dtype(dtype: object) -> str | None:
    """The dtype of a call, if it names one."""
    name = dtype_asked(dtype)
    return name if name in DTYPES else None


# -- the values ------------------------------------------------------------------------------------

_KINDS: dict[type, str] = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}
_FLOATS = (float, complex, np.inexact)
_ORDER = ("bool", "uint", "int", "float", "complex")


def _value_for_list(
    keyword: str,
    value: Any,
    numbers: list[Any],
    dtype: object,
    in_tree: Callable[[str], str | None] | None,
) -> Any:
    """A value for a list of numbers.

    Raises:
        LossyCastError: It is of another kind than the numbers, or the dtype that was asked for does
            not have it.
    """
    number = float("nan") if isinstance(value, str) else value
    own = _dtype_of(numbers)
    named = dtype_asked(dtype)
    other: object = "float64"
    if in_tree is not None:
        named, other = in_tree(own) if own else None, {own: "float64"}
    held = named if named in DTYPES else own
    if held:
        hint = None
        if isinstance(number, float) and not _is_float(held):
            zero = False if held == "bool" else 0
            floats = hints.keywords(**{"dtype": other, keyword: value})
            hint = Hint(hints.keyword(keyword, zero), ", or ", floats)
        exact = value_in(held, number, keyword, hint)
        if any(isinstance(number, np.generic) for number in numbers):
            return exact[()]  # among NumPy's scalars, it is one of them
    return number


def _is_float(dtype: str) -> bool:
    return DTYPES[dtype].kind in ("float", "complex")


def _dtype_of(numbers: list[Any]) -> str:
    """The dtype of the widest kind among numbers; empty if there are none."""
    names = {
        _KINDS.get(kind) or _of_scalar(kind)
        for kind in {type(number) for number in numbers if number is not None}
    }
    known = [name for name in names if name]
    if known:
        return max(known, key=lambda name: (_ORDER.index(DTYPES[name].kind), DTYPES[name].itemsize))
    return ""


def _of_scalar(kind: type) -> str:
    if issubclass(kind, np.generic):
        return of_numpy(np.dtype(kind)) or ""
    return ""


def _zero_of(numbers: list[Any]) -> Any:
    """What stands for ``None`` under a mask."""
    return False if _dtype_of(numbers) == "bool" else 0
