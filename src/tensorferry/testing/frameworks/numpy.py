"""The witness for NumPy: arrays with every layout, over every kind of memory."""

# ruff: noqa: D102 - the methods are documented in the base class

from __future__ import annotations

import ctypes
import tempfile
from typing import TYPE_CHECKING, Any, ClassVar

import ml_dtypes
import numpy as np

from ..bits import FORMATS, swap
from ..memory import LAYOUTS, Image, Place
from ..memory import image as image_of
from ..witness import Sample, Witness

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from ...typing import Array


class Subclass(np.ndarray[Any, Any]):
    """A subclass that adds nothing."""


def dtype_of(name: str) -> np.dtype[Any]:
    """The NumPy dtype of a canonical name."""
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def at_64(content: bytes) -> Array:
    """A writable copy of bytes, at an address that is a multiple of 64."""
    raw = np.empty(len(content) + 64, np.uint8)
    start = -raw.__array_interface__["data"][0] % 64
    aligned = raw[start : start + len(content)]
    aligned[...] = np.frombuffer(content, np.uint8)
    return aligned


def place_of(array: Array) -> Place:
    """The address, shape and strides of an array."""
    return Place(array.__array_interface__["data"][0], array.shape, array.strides, array.itemsize)


class NumpyWitness(Witness):
    """`np.ndarray`, its subclasses, memory maps and scalars."""

    name = "numpy"
    module = "numpy"
    writes = True
    layouts: ClassVar[tuple[str, ...]] = (
        *LAYOUTS,
        "frozen",
        "frozen offset",
        "frozen strided",
        "frozen zero-d",
        "owned read-only",
        "view read-only",
        "big-endian",
        "big-endian strided",
        "subclass",
        "map read-only",
        "map shared",
        "map private",
        "scalar",
    )
    everyday: ClassVar[Mapping[str, str]] = {"aligned": "", "view read-only": "read-only view"}

    def build(self, content: bytes, dtype: str, shape: tuple[int, ...]) -> Array:
        return at_64(content).view(dtype_of(dtype)).reshape(shape)

    def lay(self, image: Image, dtype: str) -> Array:
        block = at_64(image.block)
        laid: Array = np.ndarray(
            image.shape, dtype_of(dtype), block.data, image.offset, image.strides
        )
        return laid

    def knows(self, dtype: str) -> bool:
        return dtype in FORMATS

    def make(self, layout: str, dtype: str) -> Sample | None:
        if layout in LAYOUTS:
            image = image_of(layout, dtype)
            return Sample(WITNESS.lay(image, dtype), dtype, image.shape, image.content, True, True)
        makers: dict[str, Callable[[str, str], Sample | None]] = {
            "frozen": _frozen,
            "owned": _owned,
            "view": _view,
            "big-endian": _big_endian,
            "subclass": _subclass,
            "map": _map,
            "scalar": _scalar,
        }
        return makers[layout.partition(" ")[0]](layout, dtype)

    def place(self, x: Array) -> Place:
        return place_of(x)

    def content(self, x: Any) -> bytes:
        raw: bytes = x.tobytes()
        return raw if x.dtype.isnative else swap(self.dtype(x), raw)

    def is_plain(self, x: Any) -> bool:
        return type(x) is np.ndarray and x.dtype.isnative

    def writable(self, x: Array) -> bool:
        return x.flags.writeable

    def state(self, x: Any) -> Hashable:
        if isinstance(x, np.generic):
            return type(x), x.dtype
        flags = (x.flags.writeable, x.flags.c_contiguous, x.flags.owndata)
        return type(x), x.dtype, x.dtype.byteorder, self.place(x), flags

    def poke(self, x: Array, content: bytes) -> None:
        raw = content if x.dtype.isnative else swap(self.dtype(x), content)
        x[...] = np.frombuffer(raw, x.dtype).reshape(x.shape)


def _read_only(x: Array) -> Array:
    view: Array = x.view()
    view.flags.writeable = False
    return view


def _frozen(layout: str, dtype: str) -> Sample:
    """An array over the memory of a `bytes` object, which cannot be written."""
    image = image_of(layout.removeprefix("frozen").strip() or "aligned", dtype)
    held = bytes(len(image.block) + 64)
    start = ctypes.cast(ctypes.c_char_p(held), ctypes.c_void_p).value or 0
    shift = -start % 64
    # Only this function refers to these bytes yet, so that they may be set.
    ctypes.memmove(start + shift, image.block, len(image.block))
    x: Array = np.ndarray(image.shape, dtype_of(dtype), held, shift + image.offset, image.strides)
    return Sample(x, dtype, image.shape, image.content, writable=False, mutable=False)


def _owned(layout: str, dtype: str) -> Sample:  # noqa: ARG001
    image = image_of("aligned", dtype)
    x = np.frombuffer(image.content, dtype_of(dtype)).reshape(image.shape).copy()
    x = x if x.base is None else x.copy()
    x.flags.writeable = False
    return Sample(x, dtype, image.shape, image.content, writable=False, mutable=False)


def _view(layout: str, dtype: str) -> Sample:  # noqa: ARG001
    """A read-only view of a writable array."""
    image = image_of("aligned", dtype)
    base = WITNESS.lay(image, dtype)
    return Sample(
        _read_only(base),
        dtype,
        image.shape,
        image.content,
        writable=False,
        mutable=True,
        poke=lambda content: WITNESS.poke(base, content),
    )


def _big_endian(layout: str, dtype: str) -> Sample | None:
    kind = dtype_of(dtype)
    other = kind.newbyteorder("S") if kind.type.__module__ == "numpy" else kind
    if other.isnative:
        return None
    image = image_of(layout.removeprefix("big-endian").strip() or "aligned", dtype)
    x = WITNESS.lay(image, dtype).view(other)
    return Sample(
        x, dtype, image.shape, swap(dtype, image.content), writable=True, mutable=True, swapped=True
    )


def _subclass(layout: str, dtype: str) -> Sample:  # noqa: ARG001
    image = image_of("aligned", dtype)
    x = WITNESS.lay(image, dtype).view(Subclass)
    return Sample(x, dtype, image.shape, image.content, writable=True, mutable=True, plain=False)


def _map(layout: str, dtype: str) -> Sample:
    image = image_of("aligned", dtype)
    with tempfile.TemporaryFile() as file:
        file.write(image.content)
        file.flush()
        mode = {"read-only": "r", "shared": "r+", "private": "c"}[layout.partition(" ")[2]]
        x: Array = np.memmap(file, dtype_of(dtype), mode, 0, image.shape)  # type: ignore[call-overload]
    written = mode != "r"
    return Sample(
        x,
        dtype,
        image.shape,
        image.content,
        written,
        written,
        plain=False,
        file=written,
        fatal=not written,
    )


def _scalar(layout: str, dtype: str) -> Sample:  # noqa: ARG001
    content = image_of("aligned", dtype).content[: FORMATS[dtype].itemsize]
    x = np.frombuffer(content, dtype_of(dtype))[0]
    return Sample(x, dtype, (), content, writable=False, mutable=False, owns=False, plain=False)


WITNESS = NumpyWitness()
