"""Find faults of a nested sequence, and where: unequal rows, or elements that are not numbers."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import hints
from ..core.info import TensorInfo
from ..errors import ConversionError, LossyCastError, ShapeError, UnsupportedTypeError
from ..hints import Hint
from ..host.numpy_dtypes import of_numpy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = [
    "APART",
    "DEEPEST",
    "KEEPS_NONE",
    "ROWS",
    "STAYS_AS_IT_IS",
    "are_few_others",
    "at_member",
    "each_of",
    "each_rounded",
    "has_dtype",
    "leaves_with_paths",
    "length_of",
    "outer_shape",
    "refuse_description",
    "shape_of",
    "value_for_none",
    "why_no_number",
    "why_ragged",
    "why_unreadable",
]

ROWS = (list, tuple, range)
"""The types that are rows of elements."""
DEEPEST = 64
"""The deepest nesting. NumPy arrays cannot have more axes."""


def leaves_with_paths(x: Any, path: str = "x", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield each element, with its path."""
    if isinstance(x, ROWS) and depth < DEEPEST:
        for index, element in enumerate(x):
            yield from leaves_with_paths(element, f"{path}[{index}]", depth + 1)
    else:
        yield path, x


def outer_shape(x: Any) -> tuple[int, ...]:
    """The shape of the sequences around tensors.

    Raises:
        ShapeError: Rows of unequal lengths.
        UnsupportedTypeError: An element is a `TensorInfo`, not a tensor.
    """
    problem = _ragged_error(x, "x")
    if isinstance(problem, ShapeError):
        raise ShapeError(problem.message, APART)
    if problem is not None:
        raise problem
    shape = []
    while isinstance(x, (list, tuple)):
        shape.append(len(x))
        x = x[0]
    return tuple(shape)


def why_unreadable(
    x: Any,
    cause: Exception | None,
    refuse: Callable[[str, Any, Any], ConversionError],
    *,
    had_tensors: bool = False,
) -> ConversionError:
    """The error for a sequence that cannot be read. It says what is wrong, and where.

    Args:
        x: The sequence.
        cause: What NumPy raised.
        refuse: Gives the error for an object that is no number at a path in `x`.
        had_tensors: Whether some of these numbers are those of tensors.
    """
    ragged = _ragged_error(x, "x")
    if isinstance(ragged, ShapeError) and any(
        isinstance(leaf, (list, tuple)) for _, leaf in leaves_with_paths(x)
    ):
        # What contains itself is no tree either.
        return ShapeError(ragged.message, None)
    if ragged is not None and ragged.advice == APART and _have_one_depth(x):
        if all(isinstance(leaf, bool) for _, leaf in leaves_with_paths(x)):
            zero: int = False
        else:
            zero = 0
        return ShapeError(ragged.message, _hint_to_pad(zero))
    if ragged is not None:
        return ragged
    for path, leaf in leaves_with_paths(x):
        problem = _why_no_number(path, leaf, x, refuse)
        if leaf is None and had_tensors:
            return UnsupportedTypeError(f"None at {path} is not a number.", KEEPS_NONE)
        if problem is not None:
            return problem
    if cause is not None:
        return UnsupportedTypeError(f"This sequence cannot be read: {cause}", None)
    names = {leaf.dtype.name for _, leaf in leaves_with_paths(x) if isinstance(leaf, np.generic)}
    if names and not all(isinstance(leaf, (int, np.integer)) for _, leaf in leaves_with_paths(x)):
        return LossyCastError(
            f"NumPy has no dtype for a list of {' and '.join(sorted(names))} scalars.",
            each_rounded(x),
        )
    return LossyCastError(
        "No dtype holds all of these integers: int64 has no room for the largest, "
        "uint64 none for the negative.",
        each_rounded(x),
    )


def why_no_number(
    x: Any, refuse: Callable[[str, Any, Any], ConversionError]
) -> ConversionError | None:
    """The error for the first element that is neither a number with a dtype nor ``None``."""
    for path, leaf in leaves_with_paths(x):
        problem = _why_no_number(path, leaf, x, refuse)
        if problem is not None and leaf is not None:
            return problem
    return None


def why_ragged(x: Any) -> str:
    """Which rows of numbers have unequal lengths; empty if none have."""
    problem = _ragged_error(x, "x")
    return "" if problem is None else problem.message


def each_of(expression: str, x: Any) -> str:
    """Code for a nested list comprehension over `x` that applies an expression to each `number`.

    >>> each_of("float(number)", [[1, 2], [3, 4]])
    '[[float(number) for number in row] for row in x]'
    """
    depth = max((place.count("[") for place, _ in leaves_with_paths(x)), default=len(shape_of(x)))
    if not depth:
        return expression.replace("number", "x")
    rows = ["x", *("row" for _ in range(depth - 1))]
    for level, row in enumerate(reversed(rows)):
        expression = f"[{expression} for {'row' if level else 'number'} in {row}]"
    return expression


def each_rounded(x: Any, path: str = "") -> Hint | None:
    """The hint for numbers no dtype holds: all as floats; beside other things, the one at a path.

    Integers that are larger than every float stay as they are, and so does what stands among many
    other things.
    """
    deepest = {place.count("[") for place, _ in leaves_with_paths(x)}
    if len(deepest) > 1:
        return STAYS_AS_IT_IS  # no one loop reaches all of them
    numbers_in = [leaf for _, leaf in leaves_with_paths(x)]
    is_complex = any(isinstance(leaf, (complex, np.complexfloating)) for leaf in numbers_in)
    name = "complex" if is_complex else "float"
    expression = f"{name}(number)"
    if any(leaf is None for leaf in numbers_in):
        expression = f"None if number is None else {expression}"
    try:
        for leaf in numbers_in:
            complex(0 if leaf is None else leaf)
    except OverflowError:
        return STAYS_AS_IT_IS
    except (TypeError, ValueError):
        if not path:
            return None
        if are_few_others(numbers_in):
            return Hint(hints.code(f"{name}({path})"), _ROUNDS)
        return STAYS_AS_IT_IS
    return Hint(hints.code(each_of(expression, x)), _ROUNDS)


_ROUNDS = ", which rounds"
_FEW = 2


def are_few_others(numbers_in: Sequence[Any]) -> bool:
    """Whether so few are no numbers with a dtype that a hint can be for one of them at a time."""
    return sum(not has_dtype(leaf) for leaf in numbers_in) <= _FEW


def has_dtype(leaf: Any) -> bool:
    """Whether it is a number that a dtype holds."""
    if isinstance(leaf, np.generic):
        return of_numpy(leaf.dtype) is not None
    if isinstance(leaf, int):
        return -(2**63) <= leaf < 2**64
    return isinstance(leaf, (float, complex))


def _why_no_number(
    path: str, leaf: Any, x: Any, refuse: Callable[[str, Any, Any], ConversionError]
) -> ConversionError | None:
    if isinstance(leaf, np.generic):
        return _why_no_scalar(path, leaf, x)
    if isinstance(leaf, (bool, float, complex)):
        return None
    if isinstance(leaf, int):
        if has_dtype(leaf):
            return None
        return LossyCastError(
            f"The integer at {path} does not fit into 64 bits.", each_rounded(x, path)
        )
    if isinstance(leaf, (list, tuple)):
        return ShapeError(
            f"{path} is nested deeper than {DEEPEST} levels, or contains itself.", None
        )
    from fractions import Fraction  # here, because it takes long to import

    if isinstance(leaf, (Decimal, Fraction)):
        return UnsupportedTypeError(
            f"The {type(leaf).__name__} at {path} is an exact number that no dtype holds.",
            each_rounded(x, path),
        )
    if leaf is None:
        return UnsupportedTypeError(f"None at {path} is not a number.", _hint_for_none(x))
    return refuse(path, leaf, x)


def _hint_for_none(x: Any) -> Hint:
    """The hint for None in a list of numbers; with other things there, that each is converted."""
    numbers_in = [leaf for _, leaf in leaves_with_paths(x) if leaf is not None]
    large = any(
        isinstance(leaf, (int, np.integer)) and abs(int(leaf)) > 2**53 for leaf in numbers_in
    )
    if large or not all(map(has_dtype, numbers_in)):
        return KEEPS_NONE
    return Hint(hints.again(nulls=value_for_none(numbers_in)), ", which replaces None")


def value_for_none(numbers_in: Sequence[Any]) -> object:
    """The value of ``nulls=`` for a list with these numbers beside ``None``."""
    if any(isinstance(leaf, (float, complex, np.inexact)) for leaf in numbers_in) or not numbers_in:
        return "nan"
    return False if all(isinstance(leaf, (bool, np.bool_)) for leaf in numbers_in) else 0


KEEPS_NONE = Hint(hints.tree(), ", which leaves None as it is")


def _why_no_scalar(path: str, leaf: Any, x: Any) -> ConversionError | None:
    if of_numpy(leaf.dtype) is not None:
        return None
    return UnsupportedTypeError(
        f"The {type(leaf).__name__} at {path} has dtype {leaf.dtype}, which cannot be converted.",
        _scalar_hint(path, leaf, x),
    )


def _scalar_hint(path: str, leaf: Any, x: Any) -> Hint | None:
    if leaf.dtype.kind in "fc":
        return each_rounded(x, path)
    if leaf.dtype.kind not in "mM":
        return None
    scalars = [scalar for _, scalar in leaves_with_paths(x)]
    alike = all(isinstance(scalar, np.generic) for scalar in scalars)
    if (
        alike
        and {scalar.dtype.kind for scalar in scalars} == {leaf.dtype.kind}
        and not why_ragged(x)
    ):
        code = 'np.array(x).astype("int64")'
    elif are_few_others(scalars):
        code = f'{path}.astype("int64")'
    else:
        return STAYS_AS_IT_IS
    return Hint(hints.code(code), ", a count of units")


def refuse_description(path: str) -> UnsupportedTypeError:
    """The error for a `TensorInfo` among numbers or tensors."""
    return UnsupportedTypeError(
        f"The TensorInfo at {path} describes a tensor, and has no values.",
        Hint(hints.call("explain_tree"), " says what would be done with each"),
    )


def _ragged_error(x: Any, path: str, depth: int = 0) -> ConversionError | None:
    """The error for the first row with another length, or ``None`` if all have the same."""
    if not isinstance(x, ROWS) or not len(x) or depth > DEEPEST:
        return None
    for index, element in enumerate(x):
        if isinstance(element, TensorInfo):  # a tuple, but not a row
            return refuse_description(f"{path}[{index}]")
    lengths = [length_of(element) for element in x]
    for index, length in enumerate(lengths):
        if length != lengths[0]:
            here, there = (
                _as_row(row, size) for row, size in ((x[0], lengths[0]), (x[index], length))
            )
            return ShapeError(
                f"Rows of unequal lengths are no tensor: {here} at {path}[0], {there} at "
                f"{path}[{index}].",
                APART,
            )
    if lengths[0] is None:
        return None
    for index, element in enumerate(x):
        ragged = _ragged_error(element, f"{path}[{index}]", depth + 1)
        if ragged is not None:
            return ragged
    return _ragged_across(x, path)


def _as_row(row: Any, length: int | None) -> str:
    if length is not None:
        return f"length {length}"
    if isinstance(row, (int, float, complex, np.generic)):
        return "a number"
    return f"the {type(row).__name__}"


def _ragged_across(x: Any, path: str) -> ShapeError | None:
    """The error for rows whose elements have unequal lengths from one row to the next."""
    shapes = [shape_of(element) for element in x]
    for index, shape in enumerate(shapes):
        if shape != shapes[0]:
            return ShapeError(
                f"Rows of unequal lengths are no tensor: shape {shapes[0]} at {path}[0], {shape} "
                f"at {path}[{index}].",
                APART,
            )
    return None


APART = Hint(hints.tree(), ", which converts each")
STAYS_AS_IT_IS = Hint(hints.tree(), ", which leaves it as it is")


def _hint_to_pad(zero: int) -> Hint:
    return Hint(hints.listed(pad=zero), ", which pads them")


def _have_one_depth(x: Any) -> bool:
    """Whether rows of numbers with a dtype are equally deep: ``pad=`` makes them equally long."""
    level = list(x)
    for _ in range(DEEPEST):
        are_rows = {isinstance(row, ROWS) for row in level}
        if are_rows != {True}:
            return are_rows <= {False} and all(map(has_dtype, level))
        level = [element for row in level for element in row]
    return False


def length_of(x: Any) -> int | None:
    """The length of a row; ``None`` if it is an element."""
    return len(x) if isinstance(x, ROWS) else None


def shape_of(x: Any) -> tuple[int, ...]:
    """The shape of nested sequences, by the first row of each level."""
    shape: list[int] = []
    while isinstance(x, ROWS) and len(shape) < DEEPEST:
        shape.append(len(x))
        if not len(x):
            break
        x = x[0]
    return tuple(shape)


def at_member(error: ConversionError, path: str) -> ConversionError:
    """The error of a member of a stack, with the position of the member."""
    inside = error.message.replace(" at x[", f" at {path}[")
    if inside == error.message:
        message = f"{error.message} - at {path}"
    else:
        message = inside
    hint = error.advice
    # The rows of one member are not those of `x`.
    if hint == _hint_to_pad(0):
        hint = APART
    elif hint is not None and hint != STAYS_AS_IT_IS:
        hint = hint.at(path)
    return type(error)(message, hint)
