"""The witness for Arrow: arrays of numbers, of bits, of tensors."""

# ruff: noqa: D102 - the methods are documented in the base class

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ..bits import FORMATS
from ..memory import Place, compact_strides, read
from ..witness import ColumnWitness

if TYPE_CHECKING:
    from collections.abc import Hashable

_NAMES = {"bool": "bool_"}
_OWN = {"double": "float64", "float": "float32", "halffloat": "float16"}


class ArrowWitness(ColumnWitness):
    """`pa.Array`; with more than one axis, `pa.FixedShapeTensorArray`."""

    name = "arrow"
    module = "pyarrow"

    def load(self) -> None:
        self.pa: Any = importlib.import_module("pyarrow")

    def build(self, content: bytes, dtype: str, shape: tuple[int, ...]) -> Any:
        pa = self.pa
        kind = getattr(pa, _NAMES.get(dtype, dtype))()
        if dtype == "bool":
            values = pa.array([byte != 0 for byte in content], kind)
        else:
            buffer = pa.allocate_buffer(len(content))
            memoryview(buffer).cast("B")[:] = content
            values = pa.Array.from_buffers(
                kind, len(content) // FORMATS[dtype].itemsize, [None, buffer]
            )
        if len(shape) == 1:
            return values
        tensors = pa.fixed_shape_tensor(kind, shape[1:])
        storage = pa.Array.from_buffers(tensors.storage_type, shape[0], [None], children=[values])
        return pa.ExtensionArray.from_storage(tensors, storage)

    def _values(self, x: Any) -> Any:
        return x.storage.flatten() if isinstance(x, self.pa.FixedShapeTensorArray) else x

    def dtype(self, x: Any) -> str:
        name = str(self._values(x).type)
        return _OWN.get(name, name)

    def shape(self, x: Any) -> tuple[int, ...]:
        inner = x.type.shape if isinstance(x, self.pa.FixedShapeTensorArray) else ()
        return (len(x), *inner)

    def place(self, x: Any) -> Place | None:
        values = self._values(x)
        if self.pa.types.is_boolean(values.type):
            return None
        itemsize, shape = values.type.bit_width // 8, self.shape(x)
        start = values.buffers()[1].address + values.offset * itemsize
        return Place(start, shape, compact_strides(shape, itemsize), itemsize)

    def content(self, x: Any) -> bytes:
        place = self.place(x)
        return bytes(self._values(x).to_pylist()) if place is None else read(place)

    def is_plain(self, x: Any) -> bool:
        return isinstance(x, self.pa.Array)

    def state(self, x: Any) -> Hashable:
        return type(x), str(x.type), len(x), x.null_count, x.offset, self.place(x)


WITNESS = ArrowWitness()
