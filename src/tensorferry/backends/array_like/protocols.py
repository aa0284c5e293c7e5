"""Open objects of other libraries by their protocols: over their memory, or as a copy.

The protocols are ``__dlpack__``, a buffer, ``__array_interface__``, ``__array_struct__``,
``__array__``, and CUDA's. The first of these that an object has is used, for every target. If it
fails, the object's own error is the cause of ours.

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

from ... import hints
from ...core.info import ANY_ADDRESS, TensorInfo
from ...core.kinds import Kind, Reason, kind_named, kind_with
from ...core.names import EXCHANGE
from ...errors import ConversionError, DeviceError, UnsupportedTypeError, an
from ...hints import Hint
from ...host import dlpack, memory
from ...host.masked import has_masked
from ...host.numpy_dtypes import has_dates, of_numpy
from .. import opening, registry
from ..base import kind_of_type
from .declared import NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...typing import Array
    from ..base import Backend, Opened, Opening

__all__ = [
    "from_array",
    "kind_of",
    "open_array",
    "open_by_protocol",
    "open_contents",
    "open_copy",
    "open_if_shared",
    "open_later_values",
    "open_view",
    "protocol_of",
    "values_of",
]


def kind_of(x: object) -> Kind:
    """The kind of an object: the name of its class."""
    return kind_named(kind_of_type(type(x)))


# -- an object as an array over its memory, or as a copy -------------------------------------------


def open_view(x: object, array: Array, kind: Kind) -> tuple[TensorInfo, Any]:
    """Open an array over memory of an object.

    The view keeps the object alive, since only that may own the memory.

    Raises:
        UnsupportedTypeError: Its dtype is not supported.
    """
    return _info_of(array, kind), memory.view_keeping(array, x)


def _info_of(array: Array, kind: Kind) -> TensorInfo:
    dtype = of_numpy(array.dtype)
    if dtype is None:
        raise UnsupportedTypeError(
            f"{an(str(kind), 'A')} gives an array of dtype {array.dtype}, which cannot be converted.",
            _hint_for_dtype(array),
        )
    writable = array.flags.writeable
    mutable = writable or bool(memory.writable_somewhere(array))
    return opening.over(NAME, array, dtype, mutable=mutable, kind=kind, writable=writable)


def open_later_values(
    x: object,
    read: Callable[[], Array],
    shape: tuple[int, ...],
    dtype: str,
    *,
    of_palette: bool = False,
) -> tuple[TensorInfo, Any]:
    """Open values whose shape and dtype are known before they are read.

    Args:
        x: The object.
        read: Reads the values.
        shape: Their shape.
        dtype: The name of their dtype.
        of_palette: Whether they are indices into a table of colours.
    """
    kind = kind_with(kind_of(x), copied=True, of_palette=of_palette)
    info = TensorInfo(NAME, shape, dtype, misalignment=ANY_ADDRESS, kind=kind)
    return info, opening.Unread(partial(_read_and_check, read, shape, dtype, type(x).__name__))


def open_array(x: Any, take: Callable[[Any], Array]) -> tuple[TensorInfo, Any]:
    """Open the array that `take` gets from an object, as a view or as a copy."""
    kind = kind_of(x)
    array = take(x)
    if _is_alone(_reference_counts(array)) and array.size:
        return open_copy(array, kind)
    return open_if_shared(x, array, kind, lambda: take(x))


def open_if_shared(
    x: object, array: Array, kind: Kind, again: Callable[[], Array]
) -> tuple[TensorInfo, Any]:
    """Open an array as a view of an object's memory if `again` gives its address; else as a copy.

    The object may still use such a copy, so it is made read-only, and `values_of` copies it again.
    """
    if not array.size or memory.address(array) == memory.address(again()):
        return open_view(x, array, kind)
    array = array.view()
    array.flags.writeable = False
    return open_copy(array, kind)


def open_copy(array: Array, kind: Kind) -> tuple[TensorInfo, Any]:
    """Open an array that was made from the object's values."""
    return _info_of(array, kind)._replace(kind=kind_with(kind, copied=True)), array


def values_of(x: Any) -> Array:
    """The values of an object that was opened as a copy, in memory that no other object has.

    Raises:
        UnsupportedTypeError: The array does not have the shape or dtype that the object says.
    """
    if isinstance(x, opening.Unread):
        return x.read()
    return x if x.flags.writeable else x.copy()  # type: ignore[no-any-return]


def _read_and_check(
    read: Callable[[], Array], shape: tuple[int, ...], dtype: str, kind: str
) -> Array:
    """Read the values into memory that no other object has, and check their shape and dtype."""
    with reading(kind):
        array = read()
    if array.shape != shape or of_numpy(array.dtype) != dtype:
        raise UnsupportedTypeError(
            f"This {kind} says that it is {dtype} of shape {shape}, "
            f"and is {array.dtype} of shape {array.shape}.",
            Hint(hints.code("np.asarray(x)"), ", which is what it gives"),
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
            Hint(hints.code("np.asarray(x)"), ", which has to work by itself"),
        ) from error


def _hint_for_dtype(array: Array) -> str:
    """The code for a hint about an object `x` whose array has an unsupported dtype."""
    return {
        "f": 'np.asarray(x).astype("float64"), which rounds',
        "c": 'np.asarray(x).astype("complex128"), which rounds',
    }.get(array.dtype.kind, "np.asarray(x).tolist()")


# -- whether other objects refer to an array -------------------------------------------------------


def _reference_counts(array: Array) -> list[int]:
    """Reference counts of an array and of the arrays under it; empty if they cannot be known."""
    if not hasattr(sys, "getrefcount"):
        return []
    counts = [sys.getrefcount(array) + weakref.getweakrefcount(array)]
    base, owns = array.base, array.flags.owndata
    while isinstance(base, np.ndarray):
        counts.append(sys.getrefcount(base) + weakref.getweakrefcount(base))
        owns = base.flags.owndata
        base = base.base
    return counts if owns and base is None else []


def _count_references() -> list[int]:
    array = np.empty(4)[1:]
    return _reference_counts(array)


_FEWEST_REFERENCES = _count_references()


def _is_alone(counts: list[int]) -> bool:
    """Whether only the caller refers to the array and its memory, so that it was made for us."""
    return (
        bool(counts)
        and counts[0] <= _FEWEST_REFERENCES[0]
        and all(count <= _FEWEST_REFERENCES[1] for count in counts[1:])
    )


# -- which protocol, and what it gives -------------------------------------------------------------


def protocol_of(x: object) -> str | None:
    """The first protocol that an object has."""
    if _has(x, "__dlpack__") and _has(x, "__dlpack_device__"):
        return "__dlpack__"
    try:
        memoryview(x)  # type: ignore[arg-type]
    except TypeError:
        pass
    except Exception as error:
        raise _failed(x, "the buffer protocol", error) from error
    else:
        return "the buffer protocol"
    if _has(x, _CUDA) and _carriers(_CUDA):
        return _CUDA
    for name in ("__array_interface__", "__array_struct__", "__array__", _CUDA):
        if _has(x, name):
            return name
    return None


def open_by_protocol(x: Any, opening: Opening) -> tuple[Backend | None, TensorInfo, Any]:
    """Open an object by the first protocol that it has, with ``None`` in place of a backend."""
    name = protocol_of(x) or "__array__"
    try:
        if name == "the buffer protocol":
            return None, *open_view(x, np.asarray(memoryview(x)), kind_of(x))
        if name == _CUDA or (name == _DLPACK and not dlpack.is_on_host(x)):
            return _open_on_device(x, name, opening.target)
        if name == _DLPACK:
            return None, *_over_dlpack(x)
        return open_contents(x, _TAKEN[name], opening)
    except (UnsupportedTypeError, DeviceError):
        raise
    except Exception as error:
        raise _failed(x, name, error) from error


def _carriers(protocol: str, *, imported: bool = True) -> list[Backend]:
    """The frameworks that take memory of a device by this protocol, the usual one first."""
    backends = [
        backend
        for backend in list(registry.known().values())
        if protocol in backend.capabilities.objects.taken_kinds
    ]
    return sorted(
        (backend for backend in backends if backend.is_imported() or not imported),
        key=lambda backend: backend.rank,
    )


def _open_on_device(x: Any, protocol: str, target: Backend | None) -> Opened:
    """Open a device's object as a framework's tensor over its memory: the target's, if it takes it.

    Raises:
        DeviceError: No framework that takes it has been imported, or its memory must not be
            written.
    """
    carriers, what = _carriers(protocol), an(type(x).__name__, "A")
    if not carriers:
        why = f"no framework is imported that takes its memory by {protocol}"
        usual = _carriers(protocol, imported=False)[0]
        raise DeviceError(f"{what} is on a device, and {why}.", f"import {usual.module}")
    if protocol == _DLPACK and dlpack.is_read_only(x):
        why = "its memory must not be written, which no framework there can promise"
        raise DeviceError(f"{what} is on a device, and {why}.", "a copy of it, by its own library")
    owner: Any = registry.load(target if target in carriers else carriers[0])
    handle = owner.take(x)
    return owner, owner.describe(handle)._replace(kind=kind_named(protocol)), handle


def open_contents(
    x: Any, take: Callable[[Any], Array], opening: Opening
) -> tuple[Backend | None, TensorInfo, Any]:
    """Open an object as the array that it gives: of Python objects as these, of dates as counts."""
    try:
        return None, *open_array(x, take)
    except _Objects as found:
        if has_dates(found.array):
            return _open_dates(x, found.array, opening)
        return registry.backend_named(EXCHANGE).open(found.array, opening)


def _open_dates(x: Any, array: Array, opening: Opening) -> Opened:
    """Open an array of dates that an object gave, as a copy, since it may be one."""
    # Here, because they would make `import tensorferry` slower.
    from ...columns.column import Column
    from ...columns.layouts import asked_of
    from ..opening import dates_of

    request = opening.request
    contents = dates_of(
        array, None if request is None else asked_of(request.dtype, request.casting)
    )
    contents.kind = kind_of(x).name
    if isinstance(contents.found, Column):
        contents.found.reasons = (Reason("an array that the object gives"),)
    return registry.backend_of(contents).open(contents, opening)


class _Objects(Exception):  # noqa: N818 - no error: an array of objects may hold numbers
    """The object gave an array of Python objects, or of dates."""

    def __init__(self, array: Array) -> None:
        self.array = array


def _has(x: object, name: str) -> bool:
    """Whether an object has an attribute. The check may run code of its class, which may fail."""
    try:
        return hasattr(x, name)
    except Exception as error:
        raise _failed(x, name, error) from error


def _failed(x: object, name: str, error: Exception) -> UnsupportedTypeError:
    call = {"__array__": "np.asarray(x)", "__dlpack__": "x.__dlpack__()"}
    hint = Hint(hints.code(call.get(name, f"x.{name}")), ", which has to work by itself")
    if name == "the buffer protocol":
        hint = Hint(hints.code('np.frombuffer(x, "uint8")'), ", or the dtype that is meant")
    return UnsupportedTypeError(
        f"{an(type(x).__name__, 'A')} has {name}, which failed: {type(error).__name__}: {error}",
        hint,
    )


def _over_dlpack(x: Any) -> tuple[TensorInfo, Any]:
    capsule = dlpack.take_array(x)
    kind = kind_with(kind_of(x), by_dlpack=True)
    if capsule.versioned:
        if capsule.copied:
            return open_copy(capsule.array, kind)
        return open_view(x, capsule.array, kind)
    # An export without a version cannot say whether it is a copy.
    return open_if_shared(x, capsule.array, kind, lambda: dlpack.take_array(x).array)


def from_array(x: Any, code: str = "np.asanyarray(x)") -> Array:
    """The array that an object's ``__array__`` gives.

    Args:
        x: The object, or the result of its computation.
        code: The code for the array, for hints.

    Raises:
        UnsupportedTypeError: It has masked elements.
    """
    array = np.asanyarray(x)
    if has_masked(array):
        raise _masked(x, f"{code}.filled(0)")
    if (array.dtype.hasobject and array.dtype.names is None) or array.dtype.kind in "mM":
        raise _Objects(np.asarray(array))
    return np.asarray(array)


def _from_interface(x: Any) -> Array:
    interface = x.__array_interface__
    if interface.get("mask") is not None:
        # Its mask tells which elements are valid
        # (https://numpy.org/doc/stable/reference/arrays.interface.html).
        raise _masked(x, 'np.where(x.__array_interface__["mask"], np.asarray(x), 0)')
    data = interface.get("data")
    empty = 0 in interface["shape"]
    if empty and data is not None and not data[0]:
        # An empty array may have no address, which NumPy refuses.
        return np.empty(interface["shape"], interface["typestr"])
    return np.asarray(x)


def _masked(x: object, code: str) -> UnsupportedTypeError:
    return UnsupportedTypeError(
        f"{an(type(x).__name__, 'A')} is values and a mask, and its mask would be lost.",
        Hint(hints.code(code), ", or another value"),
    )


_TAKEN: dict[str, Callable[[Any], Array]] = {
    "__array_interface__": _from_interface,
    "__array_struct__": np.asarray,
    "__array__": from_array,
}
_DLPACK, _CUDA = "__dlpack__", "__cuda_array_interface__"
