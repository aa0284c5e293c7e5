"""As what an object of another library is opened: an array over its own memory, or one that has to be made first.

What an object gives is taken for a copy unless its address is shown to be the object's own: it is there again when
it is asked for a second time, while the first array is held.
"""

from __future__ import annotations

import sys
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core.info import COPIED, TensorInfo
from ...errors import ConversionError, UnsupportedTypeError, an
from ...host import memory
from ...host.numpy_dtypes import of_numpy
from ..base import kind_of_type
from .declared import NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "Later",
    "as_written",
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


class Later(NamedTuple):
    """Values that are read when they are wanted.

    Args:
        read: Gives them.
        shape: The shape that they have then.
        dtype: The name of the dtype that they have then.
        kind: The name of the object's class.
    """

    read: Callable[[], Array]
    shape: tuple[int, ...]
    dtype: str
    kind: str


def kind_of(x: object) -> str:
    """The name of an object's class, as a `TensorInfo.kind`."""
    return kind_of_type(type(x))


def over(array: Array, kind: str) -> tuple[TensorInfo, Any]:
    """An array over memory of the object's own."""
    writable = array.flags.writeable
    info = TensorInfo(
        NAME,
        array.shape,
        _name(array, kind),
        strides=array.strides,
        misalignment=memory.address(array),
        writable=writable,
        mutable=writable or bool(memory.writable_somewhere(array)),
        swapped=not array.dtype.isnative,
        memory_map=memory.is_mapped(array),
        kind=kind,
    )
    return info, array


def later(
    x: object, read: Callable[[], Array], shape: tuple[int, ...], dtype: str, kind: str = "", *, aligned: bool = False
) -> tuple[TensorInfo, Any]:
    """Values of a shape and dtype that are known before they are read, into aligned memory or wherever it is.

    Args:
        x: The object.
        read: Gives the values.
        shape: Their shape.
        dtype: The name of their dtype.
        kind: The object's `TensorInfo.kind`, if not the name of its class.
        aligned: Whether they are read into memory as `memory.compact` gives it.
    """
    info = TensorInfo(NAME, shape, dtype, misalignment=0 if aligned else _ANYWHERE, kind=COPIED + (kind or kind_of(x)))
    return info, Later(read, shape, dtype, type(x).__name__)


def taken(x: Any, take: Callable[[Any], Array], kind: str = "", *, read_only: bool = False) -> tuple[TensorInfo, Any]:
    """What an object gives when it is asked for an array: over its own memory if that can be shown.

    Args:
        x: The object.
        take: Asks it.
        kind: Its `TensorInfo.kind`, if not the name of its class.
        read_only: Whether nobody may write its memory, whatever the array says.
    """
    kind = kind or kind_of(x)
    array = take(x)
    if _is_alone(_references(array)) and array.size:
        return copied(array, kind)
    return shown(array, kind, lambda: take(x), read_only=read_only)


def shown(array: Array, kind: str, again: Callable[[], Array], *, read_only: bool = False) -> tuple[TensorInfo, Any]:
    """An array over the object's own memory if it is there `again`; else one of which that is not known.

    What is not known to be the object's is not known to be ours either, and not to be written: `own` copies it.
    """
    is_its = not array.size or memory.address(array) == memory.address(again())
    if read_only or not is_its:
        array = array.view()
        array.flags.writeable = False
    return over(array, kind) if is_its else copied(array, kind)


def copied(array: Array, kind: str) -> tuple[TensorInfo, Any]:
    """An array that was made of the object's values."""
    info, _ = over(array, kind)
    return info._replace(kind=COPIED + kind), array


def own(x: Any) -> Array:
    """What was opened as a copy, in memory that nobody else has.

    Raises:
        UnsupportedTypeError: The object says one shape or dtype, and gives another.
    """
    if not isinstance(x, Later):
        return x if x.flags.writeable else x.copy()  # type: ignore[no-any-return]
    with reading(x.kind):
        array = x.read()
    if array.shape != x.shape or of_numpy(array.dtype) != x.dtype:
        raise UnsupportedTypeError(
            f"This {x.kind} says that it is {x.dtype} of shape {x.shape}, and is {array.dtype} of shape {array.shape}.",
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


def as_written(array: Array) -> str:
    """Code for an array of an object `x`, whose dtype no tensor has, as numbers or as what they are."""
    return {
        "M": 'np.asarray(x).astype("int64"), a count of units',
        "m": 'np.asarray(x).astype("int64"), a count of units',
        "f": 'np.asarray(x).astype("float64"), which rounds',
        "c": 'np.asarray(x).astype("complex128"), which rounds',
    }.get(array.dtype.kind, "np.asarray(x).tolist()")


def _name(array: Array, kind: str) -> str:
    name = of_numpy(array.dtype)
    if name is None:
        raise UnsupportedTypeError(
            f"{an(kind, 'A')} gives an array of dtype {array.dtype}, which cannot be carried.",
            as_written(array),
        )
    return name


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
