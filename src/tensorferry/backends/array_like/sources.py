"""As what an object of another library is opened: an array over its own memory, or one that has to be made first.

What an object gives is taken for a copy unless its address is shown to be the object's own: it is there again when
it is asked for a second time, while the first array is held.
"""

from __future__ import annotations

import sys
import weakref
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.info import COPIED, TensorInfo
from ...errors import ConversionError, UnsupportedTypeError, an
from ...host import memory
from ...host.numpy_dtypes import of_numpy
from .. import opening
from ..base import kind_of_type
from .declared import NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "copied",
    "kind_of",
    "later",
    "over",
    "own",
    "shown",
    "taken",
]

Array = np.ndarray[Any, Any]

_ANYWHERE = 16
"""Where NumPy's own memory may start, modulo 64."""


def kind_of(x: object) -> str:
    """The name of an object's class, as a `TensorInfo.kind`."""
    return kind_of_type(type(x))


def over(array: Array, kind: str) -> tuple[TensorInfo, Any]:
    """An array over memory of the object's own.

    Raises:
        UnsupportedTypeError: Its dtype is no tensor's.
    """
    dtype = of_numpy(array.dtype)
    if dtype is None:
        raise UnsupportedTypeError(
            f"{an(kind, 'A')} gives an array of dtype {array.dtype}, which cannot be carried.", _as_written(array)
        )
    writable = array.flags.writeable
    mutable = writable or bool(memory.writable_somewhere(array))
    return opening.over(NAME, array, dtype, mutable=mutable, kind=kind, writable=writable), array


def later(
    x: object, read: Callable[[], Array], shape: tuple[int, ...], dtype: str, kind: str = ""
) -> tuple[TensorInfo, Any]:
    """Values of a shape and dtype that are known before they are read.

    Args:
        x: The object.
        read: Gives the values.
        shape: Their shape.
        dtype: The name of their dtype.
        kind: The object's `TensorInfo.kind`, if not the name of its class.
    """
    info = TensorInfo(NAME, shape, dtype, misalignment=_ANYWHERE, kind=COPIED + (kind or kind_of(x)))
    return info, opening.Later(partial(_as_said, read, shape, dtype, type(x).__name__))


def taken(x: Any, take: Callable[[Any], Array]) -> tuple[TensorInfo, Any]:
    """What an object gives when it is asked for an array by `take`: over its own memory if that can be shown."""
    kind = kind_of(x)
    array = take(x)
    if _is_alone(_references(array)) and array.size:
        return copied(array, kind)
    return shown(array, kind, lambda: take(x))


def shown(array: Array, kind: str, again: Callable[[], Array]) -> tuple[TensorInfo, Any]:
    """An array over the object's own memory if it is there `again`; else one of which that is not known.

    What is not known to be the object's is not known to be ours either, and not to be written: `own` copies it.
    """
    if not array.size or memory.address(array) == memory.address(again()):
        return over(array, kind)
    array = array.view()
    array.flags.writeable = False
    return copied(array, kind)


def copied(array: Array, kind: str) -> tuple[TensorInfo, Any]:
    """An array that was made of the object's values."""
    info, _ = over(array, kind)
    return info._replace(kind=COPIED + kind), array


def own(x: Any) -> Array:
    """What was opened as a copy, in memory that nobody else has.

    Raises:
        UnsupportedTypeError: The object says one shape or dtype, and gives another.
    """
    if isinstance(x, opening.Later):
        return x.read()
    return x if x.flags.writeable else x.copy()  # type: ignore[no-any-return]


def _as_said(read: Callable[[], Array], shape: tuple[int, ...], dtype: str, kind: str) -> Array:
    """Values in memory that nobody else has, of the shape and dtype that an object of a class said."""
    with reading(kind):
        array = read()
    if array.shape != shape or of_numpy(array.dtype) != dtype:
        raise UnsupportedTypeError(
            f"This {kind} says that it is {dtype} of shape {shape}, and is {array.dtype} of shape {array.shape}.",
            "np.asarray(x), which is what it gives",
        )
    ours = _is_alone(_references(array)) and array.flags.writeable and array.flags.c_contiguous
    if ours and array.dtype.isnative:
        return array
    result = memory.compact(array.shape, array.dtype.newbyteorder("="))
    result[...] = array
    return result


@contextmanager
def reading(what: str) -> Iterator[None]:
    """What a library raises while it is read is the cause of an error that says so.

    Raises:
        UnsupportedTypeError: Something was raised.
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


def _as_written(array: Array) -> str:
    """Code for an array of an object `x`, whose dtype no tensor has, as numbers or as what they are."""
    return {
        "M": 'np.asarray(x).astype("int64"), a count of units',
        "m": 'np.asarray(x).astype("int64"), a count of units',
        "f": 'np.asarray(x).astype("float64"), which rounds',
        "c": 'np.asarray(x).astype("complex128"), which rounds',
    }.get(array.dtype.kind, "np.asarray(x).tolist()")


# -- whether an array is anybody else's ------------------------------------------------------------


def _references(array: Array) -> list[int]:
    """How many hold an array and the arrays that it lies over; empty if that cannot be told."""
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
    return _references(array)


_FEWEST = _count_references()


def _is_alone(found: list[int]) -> bool:
    """Whether nobody but the function that asked holds the array or its memory: it was made for us."""
    return bool(found) and found[0] <= _FEWEST[0] and all(each <= _FEWEST[1] for each in found[1:])
