"""Find out which kinds of numbers are in a column, because integers and floats must not be mixed silently."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import dtypes
from ..core.named_tuple import NamedTuple
from ..host.numpy_dtypes import of_numpy
from ..sequences.reader import PYTHON_NUMBERS, element_types

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..backends.lists import Members
    from ..core.info import TensorInfo

__all__ = ["NumberKinds", "dtype_together", "kinds_in"]

_NUMBERS = (*PYTHON_NUMBERS, np.generic)
_WEAK = {bool: "bool", int: "int", float: "float", complex: "complex"}


class NumberKinds(NamedTuple):
    """The kinds of numbers in a column.

    Args:
        kind: The highest of them.
        floating: The common dtype of the float and complex tensors, if it is of that kind;
            otherwise empty.
        where: Two samples that differ, and their positions.
        differ: Whether two are of kinds that must not be mixed silently.
        numbers_among_tensors: Whether there are Python numbers beside tensors.
    """

    kind: str
    floating: str
    where: str
    differ: bool
    numbers_among_tensors: bool


def kinds_in(column: Sequence[Any], members: Members | None) -> NumberKinds | None:
    """The kinds of numbers in a column; ``None`` if all leaves have the same type and dtype.

    Args:
        column: The leaves.
        members: Their descriptions; ``None`` if they are numbers, or lists of numbers.
    """
    if members is not None and members.which is None:
        return None
    types = set(map(type, column))
    if len(types) == 1 and types <= PYTHON_NUMBERS:
        return None
    typed: dict[str, int] = {}
    weak: dict[str, int] = {}
    for number, leaf in enumerate(column):
        if type(leaf) is list or isinstance(leaf, _NUMBERS):
            found = _dtypes_in(leaf) if type(leaf) is not list or leaf else set()
        else:
            found = (
                set()
                if members is None or members.which is None
                else {_dtype_of(members, members.which[number])}
            )
        for name, is_weak in found:
            (weak if is_weak else typed).setdefault(name, number)
    floats = {name for name in typed if _kind(name) in ("float", "complex")}
    ranks = {name: _rank(_kind(name)) for name in (*typed, *weak)}
    if not ranks:
        return None
    places = {**weak, **typed}
    low, high = min(places, key=ranks.__getitem__), max(places, key=ranks.__getitem__)
    ends = {ranks[name] for name in typed or weak}
    differ = len(ends) > 1 or any(ranks[name] > max(ends) for name in weak)
    where = f"{low} and {high} in samples[{places[low]}]"
    if places[low] != places[high]:
        where = f"{low} in samples[{places[low]}], {high} in samples[{places[high]}]"
    kind, floating = _kind(high), _widest(floats) if floats else ""
    # Complex numbers of Python beside float tensors have no dtype of their own.
    floating = floating if floating and _kind(floating) == kind else ""
    return NumberKinds(kind, floating, where, differ, bool(typed and weak))


def _dtypes_in(leaf: Any) -> set[tuple[str, bool]]:
    """The dtypes in a leaf; for each, whether it is of Python numbers, for which the target chooses a dtype."""
    types = element_types(leaf) if type(leaf) is list else {type(leaf)}
    return {found for kind in types if (found := _dtype_of_type(kind)) is not None}


def _dtype_of_type(kind: type) -> tuple[str, bool] | None:
    """The dtype of a type of numbers, and whether it is Python's; ``None`` if the type does not tell."""
    if not issubclass(kind, np.generic):
        return next(((_WEAK[base], True) for base in kind.__mro__ if base in PYTHON_NUMBERS), None)
    name = of_numpy(np.dtype(kind))
    return None if name is None else (name, False)


def _dtype_of(members: Members, place: int) -> tuple[str, bool]:
    info = members.infos[place]
    if info.weak_dtype is None:
        return info.dtype, False
    kind = _kind(info.dtype)
    return ("int" if kind == "uint" else kind), True


def _kind(name: str) -> str:
    """The kind of a dtype, or of Python numbers."""
    return name if name in _WEAK.values() else dtypes.find(name).kind


def _rank(kind: str) -> int:
    """The rank of a kind. Signed and unsigned integers have the same rank."""
    return dtypes.KINDS.index("int" if kind == "uint" else kind)


def dtype_together(infos: Sequence[TensorInfo]) -> str:
    """The dtype of a column for the rules of ``dtype=``: that of its tensors, or of a number of a higher kind."""
    typed = {info.dtype for info in infos if info.weak_dtype is None}
    numbers = {info.dtype for info in infos} - typed
    if not typed or not numbers:
        return _widest(typed or numbers)
    first, other = _widest(typed), _widest(numbers)
    return first if _rank(_kind(first)) >= _rank(_kind(other)) else other


def _widest(names: set[str]) -> str:
    if dtypes.have_common(names):
        return dtypes.common(names)
    return max(names, key=lambda name: (_rank(_kind(name)), dtypes.width(name), name))
