"""Open objects of other libraries: as an array over their memory, or as a copy.

An array that an object gives shares the object's memory if a second one has the same address while
the first one is alive. Otherwise it counts as a copy.
"""

from __future__ import annotations

import sys
import weakref
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.info import ANY_ADDRESS, COPIED, TensorInfo
from ...errors import ConversionError, UnsupportedTypeError, an
from ...host import memory
from ...host.numpy_dtypes import of_numpy
from .. import opening
from ..base import kind_of_type
from .declared import NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...typing import Array

__all__ = [
    "kind_of",
    "open_array",
    "open_copy",
    "open_if_shared",
    "open_later_values",
    "open_view",
    "values_of",
]


def kind_of(x: object) -> str:
    """The name of an object's class, as a `TensorInfo.kind`."""
    return kind_of_type(type(x))


def open_view(x: object, array: Array, kind: str) -> tuple[TensorInfo, Any]:
    """Open an array over memory of an object.

    The view keeps the object alive, since only that may own the memory.

    Raises:
        UnsupportedTypeError: Its dtype is not supported.
    """
    return _info_of(array, kind), memory.keeping(array, x)


def _info_of(array: Array, kind: str) -> TensorInfo:
    dtype = of_numpy(array.dtype)
    if dtype is None:
        raise UnsupportedTypeError(
            f"{an(kind, 'A')} gives an array of dtype {array.dtype}, which cannot be converted.",
            _hint_for_dtype(array),
        )
    writable = array.flags.writeable
    mutable = writable or bool(memory.writable_somewhere(array))
    return opening.over(NAME, array, dtype, mutable=mutable, kind=kind, writable=writable)


def open_later_values(
    x: object, read: Callable[[], Array], shape: tuple[int, ...], dtype: str, kind: str = ""
) -> tuple[TensorInfo, Any]:
    """Open values whose shape and dtype are known before they are read.

    Args:
        x: The object.
        read: Reads the values.
        shape: Their shape.
        dtype: The name of their dtype.
        kind: The object's `TensorInfo.kind`, if not the name of its class.
    """
    info = TensorInfo(
        NAME, shape, dtype, misalignment=ANY_ADDRESS, kind=COPIED + (kind or kind_of(x))
    )
    return info, opening.Later(partial(_read_and_check, read, shape, dtype, type(x).__name__))


def open_array(x: Any, take: Callable[[Any], Array]) -> tuple[TensorInfo, Any]:
    """Open the array that `take` gets from an object, as a view or as a copy."""
    kind = kind_of(x)
    array = take(x)
    if _is_alone(_reference_counts(array)) and array.size:
        return open_copy(array, kind)
    return open_if_shared(x, array, kind, lambda: take(x))


def open_if_shared(
    x: object, array: Array, kind: str, again: Callable[[], Array]
) -> tuple[TensorInfo, Any]:
    """Open an array as a view of an object's memory, if `again` gives the same address; otherwise as a copy.

    The object may still use such a copy, so it is made read-only, and `values_of` copies it again.
    """
    if not array.size or memory.address(array) == memory.address(again()):
        return open_view(x, array, kind)
    array = array.view()
    array.flags.writeable = False
    return open_copy(array, kind)


def open_copy(array: Array, kind: str) -> tuple[TensorInfo, Any]:
    """Open an array that was made from the object's values."""
    return _info_of(array, kind)._replace(kind=COPIED + kind), array


def values_of(x: Any) -> Array:
    """The values of an object that was opened as a copy, in memory that no other object has.

    Raises:
        UnsupportedTypeError: The array does not have the shape or dtype that the object says.
    """
    if isinstance(x, opening.Later):
        return x.read()
    return x if x.flags.writeable else x.copy()  # type: ignore[no-any-return]


def _read_and_check(
    read: Callable[[], Array], shape: tuple[int, ...], dtype: str, kind: str
) -> Array:
    """Read the values into memory that no other object has, and check that they have this shape and dtype."""
    with reading(kind):
        array = read()
    if array.shape != shape or of_numpy(array.dtype) != dtype:
        raise UnsupportedTypeError(
            f"This {kind} says that it is {dtype} of shape {shape}, and is {array.dtype} of shape {array.shape}.",
            "np.asarray(x), which is what it gives",
        )
    ours = (
        _is_alone(_reference_counts(array)) and array.flags.writeable and array.flags.c_contiguous
    )
    if ours and array.dtype.isnative:
        return array
    result = memory.compact(array.shape, array.dtype.newbyteorder("="))
    result[...] = array
    return result


@contextmanager
def reading(what: str) -> Iterator[None]:
    """A context in which any exception of a library becomes the cause of our error.

    Raises:
        UnsupportedTypeError: The library raised an exception.
    """
    try:
        yield
    except ConversionError:
        raise
    except Exception as error:
        raise UnsupportedTypeError(
            f"This {what} cannot be read: {type(error).__name__}: {error}",
            "np.asarray(x), which has to work by itself",
        ) from error


def _hint_for_dtype(array: Array) -> str:
    """The code for a hint about an object `x` whose array has an unsupported dtype."""
    return {
        "f": 'np.asarray(x).astype("float64"), which rounds',
        "c": 'np.asarray(x).astype("complex128"), which rounds',
    }.get(array.dtype.kind, "np.asarray(x).tolist()")


# -- whether other objects refer to an array -------------------------------------------------------


def _reference_counts(array: Array) -> list[int]:
    """The reference counts of an array and of the arrays under it; empty if they cannot be known."""
    if not hasattr(sys, "getrefcount"):
        return []
    found = [sys.getrefcount(array) + weakref.getweakrefcount(array)]
    base, owns = array.base, array.flags.owndata
    while isinstance(base, np.ndarray):
        found.append(sys.getrefcount(base) + weakref.getweakrefcount(base))
        owns = base.flags.owndata
        base = base.base
    return found if owns and base is None else []


def _count_references() -> list[int]:
    array = np.empty(4)[1:]
    return _reference_counts(array)


_FEWEST_REFERENCES = _count_references()


def _is_alone(found: list[int]) -> bool:
    """Whether only the calling function refers to the array and its memory, so that it was made for us."""
    return (
        bool(found)
        and found[0] <= _FEWEST_REFERENCES[0]
        and all(each <= _FEWEST_REFERENCES[1] for each in found[1:])
    )
