"""DLPack: make an array over a capsule's host memory, and export device memory to a framework.

NumPy's own `from_dlpack` refuses bfloat16 and float8, so the capsule is read here, for every dtype
that has a code. The layout of its structures is DLPack's
(https://dmlc.github.io/dlpack/latest/c_api.html).
"""

from __future__ import annotations

import ctypes
import weakref
from typing import TYPE_CHECKING, Any

from ..core.dtypes import DLPACK_CODES, DTYPES, ORDINARY
from ..core.layout import compact_strides
from ..core.named_tuple import NamedTuple
from ..errors import DeviceError, UnsupportedTypeError, an
from .memory import over_address
from .numpy_dtypes import numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    import numpy as np

__all__ = ["UNIFIED", "DlpackExport", "Taken", "end_of", "is_on_host", "is_read_only", "take_array"]

_HOST_DEVICES = {1: "cpu", 3: "pinned memory"}
_CUDA = 2
UNIFIED = 13
"""DLPack's device for CUDA's unified memory, which GPU and host share."""
_READ_ONLY = 1
_IS_COPIED = 2

_DTYPES = {key: name for name, key in DLPACK_CODES.items()}
_UNSIGNED = 1
"""The type code of unsigned integers, which stand for elements of the same width."""


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    """A ``DLManagedTensor`` without a version, which cannot say whether it is read-only."""

    # A capsule keeps only the address of its name, so these names are never freed.
    name, used = b"dltensor", b"used_dltensor"
    _fields_ = (
        ("tensor", _Tensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    )


class _Versioned(ctypes.Structure):
    """A ``DLManagedTensorVersioned``."""

    name, used = b"dltensor_versioned", b"used_dltensor_versioned"
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
_destructor = ctypes.pythonapi.PyCapsule_GetDestructor
_destructor.restype, _destructor.argtypes = ctypes.c_void_p, (ctypes.py_object,)
_rename = ctypes.pythonapi.PyCapsule_SetName
_rename.restype, _rename.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)


def end_of(capsule: object) -> int:
    """A nameless capsule's destructor address, which shows its maker; 0 for other objects."""
    if _is_valid(capsule, None):
        return _destructor(capsule) or 0
    return 0


class _Owner:
    """Keeps a producer's memory alive; calls its deleter once, when no array uses it any more."""

    __slots__ = ("__weakref__",)


class Taken(NamedTuple):
    """An array over memory that an object exported.

    Args:
        array: The array. It is read-only if the export has no version, because then it cannot say
            whether it is.
        versioned: Whether the export has a version.
        copied: Whether the export says that its memory is a copy.
    """

    array: np.ndarray[Any, Any]
    versioned: bool
    copied: bool


def is_on_host(x: Any) -> bool:
    """Whether an object with ``__dlpack_device__`` has its memory on the host."""
    device, _ = x.__dlpack_device__()
    return int(device) in _HOST_DEVICES


def is_read_only(x: Any) -> bool:
    """Whether an object says that the memory that it exports must not be written.

    Without a version it cannot say.
    """
    capsule = _export_capsule(
        x
    )  # kept while the structure is read, because the structure is freed with it
    managed = _managed_by(capsule)
    return isinstance(managed, _Versioned) and bool(managed.flags & _READ_ONLY)


def take_array(x: Any) -> Taken:
    """The array over the host memory that an object exports through ``__dlpack__``.

    Args:
        x: An object with ``__dlpack__`` and ``__dlpack_device__``.

    Raises:
        DeviceError: Its memory is not on the host.
        UnsupportedTypeError: Its dtype is not supported.
    """
    if not is_on_host(x):
        raise DeviceError(
            f"{an(type(x).__name__, 'A')} is not in host memory.", "move it to the host first"
        )
    capsule = _export_capsule(x)
    managed = _managed_by(capsule)
    versioned = isinstance(managed, _Versioned)
    # An export without a version has no flags. NumPy makes the array read-only as well.
    flags = managed.flags if versioned else _READ_ONLY
    tensor = managed.tensor
    dtype = _DTYPES.get((tensor.code, tensor.bits))
    if dtype is None or tensor.lanes != 1:
        # The name of the capsule is not changed, so its own destructor frees the memory.
        raise UnsupportedTypeError(
            f"{an(type(x).__name__, 'A')} exports DLPack dtype code {tensor.code} with "
            f"{tensor.bits} bits and "
            f"{tensor.lanes} lanes, which has no name here.",
            "a dtype that has a name, such as float32, before it is exported",
        )
    row = DTYPES[dtype]
    shape = tuple(tensor.shape[: tensor.ndim])
    if tensor.strides:
        strides = tuple(step * row.itemsize for step in tensor.strides[: tensor.ndim])
    else:
        strides = compact_strides(shape, row.itemsize)
    owner = _Owner()
    _rename(capsule, managed.used)
    if managed.deleter:
        weakref.finalize(owner, managed.deleter, ctypes.addressof(managed)).atexit = False
    start = (tensor.data or 0) + tensor.byte_offset
    array = over_address(
        start,
        shape,
        strides,
        numpy_dtype(row.name),
        read_only=bool(flags & _READ_ONLY),
        owner=owner,
    )
    return Taken(array, versioned, bool(flags & _IS_COPIED))


class DlpackExport(NamedTuple):
    """A tensor on a device, for another framework to take through ``__dlpack__(stream=…)``.

    The consumer names its stream, and the producer makes that stream wait for its own
    https://data-apis.org/array-api/latest/API_specification/generated/array_api.array.__dlpack__.html

    Args:
        x: The producer's tensor, or integers of the same width over its memory.
        dtype: The dtype of the elements.
        around: A context in which the producer's device is the current one.
        streams: Whether the producer takes a stream. One that does not has finished its work when
            it exports.
        code: The dtype code for the capsule, if the producer would write another one.
        unified: Whether the memory is CUDA's unified memory, which has a device of its own in
            DLPack. It is exported as memory of the GPU, because most consumers know no other.
    """

    x: Any
    dtype: str
    around: Callable[[], AbstractContextManager[Any]]
    streams: bool = True
    code: int | None = None
    unified: bool = False

    def as_integers(self) -> DlpackExport:
        """The memory as unsigned integers as wide, for a consumer that does not know the dtype."""
        return self._replace(code=_UNSIGNED)

    def as_named(self) -> DlpackExport:
        """The same memory with the code of its own dtype, for a consumer that knows it."""
        if self.dtype in ORDINARY:
            return self  # every framework names these
        return self._replace(code=DLPACK_CODES[self.dtype][0])

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, index = self.x.__dlpack_device__()
        return _CUDA if self.unified else int(kind), int(index)

    def __dlpack__(self, *, stream: int | None = None, **asked: Any) -> Any:
        """A capsule of the producer. The consumer's stream waits for the producer's work."""
        with self.around():
            if self.streams:
                capsule = self.x.__dlpack__(stream=stream, **asked)
            else:
                capsule = self.x.__dlpack__()
        if self.code is not None:
            _managed_by(capsule).tensor.code = self.code
        if self.unified:
            _managed_by(capsule).tensor.device_type = _CUDA
        return capsule


def _managed_by(capsule: Any) -> Any:
    """The structure inside a capsule that has not been consumed."""
    if _is_valid(capsule, _Versioned.name):
        kind: Any = _Versioned
    else:
        kind = _Managed
    return ctypes.cast(_pointer(capsule, kind.name), ctypes.POINTER(kind)).contents


def _export_capsule(x: Any) -> Any:
    """A capsule, with a version if the producer supports that."""
    import inspect

    try:
        parameters = inspect.signature(x.__dlpack__).parameters
        knows = "max_version" in parameters or any(
            parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
        )
    except (TypeError, ValueError):
        knows = True
    if not knows:
        return x.__dlpack__()
    try:
        return x.__dlpack__(max_version=(1, 0))
    except TypeError as error:
        if "max_version" not in str(error):
            raise
        return x.__dlpack__()
