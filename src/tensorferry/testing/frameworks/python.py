"""The witness for Python: typed buffers, and nested lists of numbers."""

# ruff: noqa: D102 - the methods are documented in the base class

from __future__ import annotations

import array as arrays
import ctypes
from typing import TYPE_CHECKING, Any, ClassVar

from ..bits import FORMATS, decode, encode, nested
from ..memory import Place, image
from ..witness import Sample, Witness

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

_CODES = {
    "int8": "b",
    "uint8": "B",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "float32": "f",
    "float64": "d",
}
_CASTS = {**_CODES, "bool": "?"}


class PythonWitness(Witness):
    """`bytes`, `bytearray`, `array.array` and `memoryview`; lists of numbers."""

    name = "python"
    module = "builtins"
    layouts: ClassVar[tuple[str, ...]] = (
        "bytes",
        "bytearray",
        "array",
        "view",
        "view read-only",
        "view of two axes",
        "view strided",
        "view reversed",
        "view empty",
        "list",
    )
    everyday: ClassVar[Mapping[str, str]] = {"array": "array.array", "list": "list"}

    def knows(self, dtype: str) -> bool:
        return dtype in _CASTS

    def build(self, content: bytes, dtype: str, shape: tuple[int, ...]) -> Any:
        whole: Any = memoryview(bytearray(content))
        view = whole.cast(_CASTS[dtype])
        return view.cast("B").cast(_CASTS[dtype], list(shape)) if len(shape) > 1 else view

    def make(self, layout: str, dtype: str) -> Sample | None:
        source_image, size = image("aligned", dtype), FORMATS[dtype].itemsize
        content, count = source_image.content, len(source_image.content) // size
        if layout in ("bytes", "bytearray"):
            if dtype != "uint8":
                return None
            x: Any = bytes(bytearray(content)) if layout == "bytes" else bytearray(content)
            written = layout == "bytearray"
            return Sample(x, dtype, (count,), content, written, written, plain=False)
        if layout == "list":
            return _list(dtype)
        if layout == "array":
            if dtype not in _CODES:
                return None
            return Sample(
                arrays.array(_CODES[dtype], content), dtype, (count,), content, True, True
            )
        code: Any = _CASTS[dtype]
        if layout == "view read-only":
            x = memoryview(bytes(bytearray(content))).cast(code)
            return Sample(x, dtype, (count,), content, writable=False, mutable=False)
        whole: Any = memoryview(bytearray(content))
        if layout == "view empty":
            return Sample(whole[:0].cast(code), dtype, (0,), b"", True, True)
        if layout == "view of two axes":
            return Sample(whole.cast(code, [4, 6]), dtype, (4, 6), content, True, True)
        elements = [content[at : at + size] for at in range(0, len(content), size)]
        step = {"view": 1, "view strided": 2, "view reversed": -1}[layout]
        x, kept = whole.cast(code)[::step], b"".join(elements[::step])
        return Sample(x, dtype, (len(elements[::step]),), kept, True, True)

    def place(self, x: Any) -> Place | None:
        if not isinstance(x, (bytes, bytearray, arrays.array, memoryview)):
            return None
        view = memoryview(x)
        strides = view.strides or (view.itemsize,)
        return Place(_address(view), view.shape or (), strides, view.itemsize)

    def state(self, x: Any) -> Hashable:
        if isinstance(x, list):
            return type(x), repr(x)
        view = memoryview(x)
        return type(x), view.format, view.shape, view.strides, view.readonly, len(x), _address(view)

    def content(self, x: Any) -> object:
        if isinstance(x, (bytes, bytearray, arrays.array, memoryview)):
            return memoryview(x).tobytes()
        # The repr of -0.0 and 0.0 differs, as that of True and 1; that of all NaNs is the same.
        return repr(x)

    def expected(self, dtype: str, shape: tuple[int, ...], content: bytes) -> object:
        return repr(nested(dtype, shape, content))

    def is_plain(self, x: Any) -> bool:
        while isinstance(x, list) and x:
            x = x[0]
        return type(x) in (list, bool, int, float, complex)

    def writable(self, x: Any) -> bool:
        return not memoryview(x).readonly

    def poke(self, x: Any, content: bytes) -> None:
        view: Any = memoryview(x)
        values: Any = memoryview(content)
        values = values.cast(view.format, list(view.shape))
        if view.ndim == 1:
            view[:] = values
            return
        for row in range(len(values)):
            for column in range(len(values.tolist()[0])):
                view[row, column] = values[row, column]


_KINDS = {"bool": ("bool", "bool"), "int64": ("int", "uint8"), "float64": ("float", "float32")}
"""For each dtype that a list of numbers can be said to have: their kind; and of which dtype they are,
so that every dtype that a constructor may choose has them exactly."""


def _list(dtype: str) -> Sample | None:
    """A list of lists of Python numbers; ``None`` for a dtype that Python has no numbers of."""
    if dtype not in _KINDS:
        return None
    kind, narrow = _KINDS[dtype]
    source_image = image("aligned", narrow)
    values = decode(narrow, source_image.content)
    if kind == "int":
        values = [value % 128 for value in values]  # signed integers have these too
    if kind == "float":
        values = [value if value == value else 1.5 for value in values]  # noqa: PLR0124 - NaN has no one pattern
    content = encode(dtype, values)
    return Sample(
        nested(dtype, source_image.shape, content),
        dtype,
        source_image.shape,
        content,
        writable=False,
        mutable=False,
        owns=False,
        plain=False,
        numbers=kind,
    )


class _Buffer(ctypes.Structure):
    """CPython's ``Py_buffer`` (https://docs.python.org/3/c-api/buffer.html)."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


def _address(view: memoryview) -> int:
    """The address of a view's first element."""
    full = 0x011C  # PyBUF_FULL_RO
    buffer = _Buffer()
    get = ctypes.pythonapi.PyObject_GetBuffer
    get(ctypes.py_object(view), ctypes.byref(buffer), full)
    start: int = buffer.buf or 0
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))
    return start


WITNESS = PythonWitness()
