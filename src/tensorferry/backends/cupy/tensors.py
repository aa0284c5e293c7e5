"""CuPy: writable arrays on CUDA devices, never on the host."""

from __future__ import annotations

import ctypes
import importlib
from functools import cache, lru_cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.info import TensorInfo
from ...core.layout import byte_span, packed_strides
from ...core.signature import COMPACT
from ...errors import UnsupportedTypeError, an
from ...host import casts, memory, packing
from ...host.dlpack import UNIFIED, DlpackExport
from ...host.numpy_dtypes import by_numpy, numpy_dtype
from ...planning.rules import frameworks_agree
from .. import registry
from ..base import Backend
from ..quick import Quick
from .declared import AS_INTEGERS, CAPABILITIES, DECLARED, snippet

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from ...hints import Hint
    from ...typing import Array

_NAMES = by_numpy()


@lru_cache(maxsize=4096)
def _described(
    shape: tuple[int, ...], name: str, device: str, strides: tuple[int, ...], misalignment: int
) -> TensorInfo:
    return TensorInfo(
        "cupy", shape, name, device, strides, misalignment, writable=True, mutable=True
    )


class CupyBackend(Backend):
    """`cupy.ndarray`."""

    name = "cupy"
    module = "cupy"
    owns = ("cupy", "cupyx")
    keeps_devices = True
    rank = 5
    install = "pip install cupy-cuda12x"
    imports = DECLARED.imports
    capabilities = CAPABILITIES  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]
    snippet = staticmethod(snippet)  # pyright: ignore[reportAssignmentType]
    quick_code = __name__

    def load(self) -> None:
        self.cupy: Any = importlib.import_module(self.module)
        self.cuda: Any = self.cupy.cuda

    def devices(self) -> tuple[str, ...]:
        try:
            count = self.cuda.runtime.getDeviceCount()
        except self.cuda.runtime.CUDARuntimeError:
            return ()  # there is no driver, or it is too old
        return tuple(f"cuda:{index}" for index in range(count))

    def claims(self, kind: type) -> bool:
        return issubclass(kind, self.cupy.ndarray)

    def stands_for(self, kind: type) -> bool:
        return kind is self.cupy.ndarray

    def refusal(self, kind: type) -> tuple[str, str | Hint | None] | None:
        if kind.__module__.startswith("cupyx.scipy.sparse"):
            return (
                f"{an(kind.__name__, 'A')} of cupyx is sparse: indices and values, not one memory.",
                "x.toarray()",
            )
        return None

    # -- describe ----------------------------------------------------------------------------------

    def describe(self, x: Any) -> TensorInfo:
        name = _NAMES.get(x.dtype)
        if name not in CAPABILITIES.dtypes.held:
            raise UnsupportedTypeError(
                f"CuPy's {x.dtype} cannot be converted: no other framework has it.", None
            )
        return _described(x.shape, name, f"cuda:{x.device.id}", x.strides, x.data.ptr & 63)

    def pointer(self, x: Any) -> int | None:
        pointer: int = x.data.ptr
        return pointer

    # -- verbs -------------------------------------------------------------------------------------

    def export(self, x: Any) -> Array:
        return self.fetch(x)

    def adopt(self, array: Array) -> Any:
        return self.place(array, "cuda")

    def fetch(self, x: Any) -> Array:
        """A complete copy of an array in host memory."""
        result = memory.compact(x.shape, x.dtype)
        with x.device:
            source, stream = self.compact(x), self.cuda.get_current_stream()
            source.data.copy_to_host_async(_pointer(result), result.nbytes, stream)
            stream.synchronize()
        return result

    def place(self, x: Array, device: str) -> Any:
        """A copy of an array without gaps on a device. The array may change after this returns."""
        with self._device(device):
            result, stream = (
                self._empty(x.shape, x.strides, x.dtype),
                self.cuda.get_current_stream(),
            )
            result.data.copy_from_host_async(_pointer(x), x.nbytes, stream)
            stream.synchronize()
        return result

    def copy(self, x: Any) -> Any:
        """A copy on the same device."""
        with x.device:
            result = self._empty(
                x.shape, packed_strides(x.shape, x.strides, x.dtype.itemsize), x.dtype
            )
            self._integers(result)[...] = self._integers(x)
        return result

    def compact(self, x: Any) -> Any:
        """A C-contiguous copy on the same device."""
        with x.device:
            return self.cupy.ascontiguousarray(self._integers(x)).view(x.dtype).reshape(x.shape)

    def cast(self, x: Any, dtype: str, check: str = "") -> Any:
        """A cast with the same bits as on the host."""
        before = _NAMES[x.dtype]
        if (
            not check
            and CAPABILITIES.dtypes.casts_on_device(before, dtype)
            and frameworks_agree(before, dtype)
        ):
            kind = numpy_dtype(dtype)
            with x.device:
                result = self._empty(
                    x.shape, packed_strides(x.shape, x.strides, kind.itemsize), kind
                )
                result[...] = x
            return result
        return self.place(casts.cast(self.fetch(x), dtype, check), f"cuda:{x.device.id}")

    def move(self, x: Any, device: str, non_blocking: bool = False) -> Any:
        """A copy on another GPU, which is complete when this returns."""
        with x.device:
            source = self.compact(x)
            self.cuda.get_current_stream().synchronize()
        with self._device(device):
            result, stream = (
                self._empty(source.shape, source.strides, source.dtype),
                self.cuda.get_current_stream(),
            )
            result.data.copy_from_device_async(source.data, source.nbytes, stream)
            stream.synchronize()
        return result

    def wait(self, x: Any) -> Any:
        """The array, after its values have been computed."""
        with x.device:
            self.cuda.get_current_stream().synchronize()
        return x

    def export_dlpack(self, x: Any) -> Any:
        around, unified = (
            partial(self._device, f"cuda:{x.device.id}"),
            x.__dlpack_device__()[0] == UNIFIED,
        )
        return DlpackExport(self._integers(x), _NAMES[x.dtype], around, unified=unified)

    def take(self, x: Any) -> Any:
        """An array over the memory of another library's object, whose stream CuPy's waits for.

        See https://docs.cupy.dev/en/stable/user_guide/interoperability.html.
        """
        if isinstance(x, self.cupy.ndarray):
            return x
        if hasattr(x, "__dlpack__"):
            taken = self.cupy.from_dlpack(x)
        else:
            taken = self.cupy.asarray(x)
        if not taken.size:
            return taken
        low, high = byte_span(taken.shape, taken.strides, taken.itemsize)
        block = self.cuda.UnownedMemory(
            taken.data.ptr + low, high - low, (taken, x), taken.device.id
        )
        return self.cupy.ndarray(
            taken.shape, taken.dtype, self.cuda.MemoryPointer(block, -low), taken.strides
        )

    def import_dlpack(self, x: Any, source: str = "") -> Any:
        """An array over the memory of another framework's tensor on the same device.

        CuPy tells the producer its current stream.
        (https://docs.cupy.dev/en/stable/reference/generated/cupy.from_dlpack.html)
        """
        if source:
            exported = registry.backend_named(source).export_dlpack(x)
        else:
            exported = x
        if isinstance(exported, DlpackExport) and exported.dtype in AS_INTEGERS:
            return self.cupy.from_dlpack(exported.as_integers()).view(numpy_dtype(exported.dtype))
        return self.cupy.from_dlpack(exported)

    def write(self, x: Any, out: Any, overlaps: bool = False) -> None:
        """Write the values of a NumPy array, cast to its dtype, or of a CuPy array, into `out`."""
        device = f"cuda:{out.device.id}"
        if not isinstance(x, self.cupy.ndarray):
            x = self.place(casts.cast(x, _NAMES[out.dtype], compact=True), device)
        elif x.device.id != out.device.id:
            x = self.move(x, device)
        with out.device:
            self._integers(out)[...] = self._integers(x)

    def _integers(self, x: Any) -> Any:
        """The array, or its view as integers if CuPy has no reliable arithmetic for the dtype."""
        if _NAMES[x.dtype] in AS_INTEGERS:
            return x.view(np.dtype(f"u{x.dtype.itemsize}"))
        return x

    def _device(self, name: str) -> Any:
        _, _, index = name.partition(":")
        if index:
            return self.cuda.Device(int(index))
        return self.cuda.Device()

    def _empty(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> Any:
        """A new array without gaps on the current device."""
        nbytes = max(int(np.prod(shape)) * dtype.itemsize, 1)
        return self.cupy.ndarray(shape, dtype, self.cuda.alloc(nbytes), strides)

    def _flat(self, x: Any) -> Any:
        """The bytes of an array without gaps, as an array of one axis."""
        return self.cupy.ndarray((x.nbytes,), np.uint8, x.data)

    # -- many at once ------------------------------------------------------------------------------

    def pack(self, tensors: Sequence[Any], alignment: int, lock: bool = False) -> tuple[Any, Any]:
        """A packed buffer of arrays on one device, made with one launch."""
        with tensors[0].device:
            packed = [x if self.describe(x).is_packed else self.compact(x) for x in tensors]
            parts, _ = packing.lay_out(packed, [x.strides for x in packed], alignment)
            filling = cache(lambda nbytes: self.cupy.zeros(nbytes, np.uint8))
            return self.cupy.concatenate(
                packing.joined_bytes([self._flat(x) for x in packed], parts, filling)
            ), parts

    def unpack(self, packed: Any, layout: Any) -> list[Any]:
        """The arrays in a packed buffer, as views."""
        with packed.device:
            return [
                self.cupy.ndarray(part.shape, part.dtype, packed.data + part.start, part.strides)
                for part in layout
            ]


def _pointer(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(memory.address(array))


class CupyQuick(Quick[CupyBackend]):
    """What makes conversions of arrays without gaps fast."""

    lengths = staticmethod(attrgetter("shape"))  # pyright: ignore[reportAssignmentType]

    def signature(self, x: Any) -> Hashable | None:
        if (
            type(x) is not self.backend.cupy.ndarray
            or _NAMES.get(x.dtype) not in CAPABILITIES.dtypes.held
        ):
            return None
        if not x.size or not x.flags.c_contiguous:
            return None
        start = x.data
        return self.backend.name, x.dtype, x.ndim, COMPACT, start.ptr & 63, start.device_id

    def likeness(self, x: Any) -> Hashable | None:
        return None  # its device decides


BACKEND = CupyBackend()
QUICK = CupyQuick
