"""Arrow: arrays without nulls as tensors over their memory, tables, arrays over other memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ... import hints
from ...columns.column import Column
from ...columns.interface import type_in
from ...columns.pieces import Piece
from ...columns.regular import arrays_of, regular_of
from ...errors import an
from ...hints import Hint
from ...host import memory
from ..columnar import ColumnBackend, Views
from ..opening import Gathered
from .declared import CAPABILITIES, DECLARED, snippet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...columns.column import Found
    from ...columns.regular import Regular
    from ...typing import Array

_OF_FILES = ("pyarrow._dataset", "pyarrow.dataset", "pyarrow.parquet.core")
_MOST = 64
"""The most schemas for which it is remembered how their columns are read."""


class ArrowBackend(ColumnBackend):
    """`pa.Array`, `pa.ChunkedArray`; `pa.Table` and `pa.RecordBatch` as containers."""

    name = "arrow"
    module = "pyarrow"
    aliases = ("pyarrow", "pa")
    owns = ("pyarrow",)
    rank = 60
    install = "pip install pyarrow"
    imports = DECLARED.imports
    renamed = "x.rename_columns([f'{index} {name}' for index, name in enumerate(x.column_names)])"
    capabilities = CAPABILITIES  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]
    snippet = staticmethod(snippet)  # pyright: ignore[reportAssignmentType]

    def load(self) -> None:
        import pyarrow as pa

        self._pa = pa
        self.table_types = (pa.Table, pa.RecordBatch)
        self.column_types = (pa.Array, pa.ChunkedArray)
        types = (
            pa.int8(),
            pa.int16(),
            pa.int32(),
            pa.int64(),
            pa.uint8(),
            pa.uint16(),
            pa.uint32(),
            pa.uint64(),
        )
        plain = {type_: str(type_) for type_ in types}
        self._plain = {
            **plain,
            pa.float16(): "float16",
            pa.float32(): "float32",
            pa.float64(): "float64",
        }
        self._types = {name: kind for kind, name in self._plain.items()}
        self._schemas: dict[tuple[str, ...], tuple[Any, list[Regular | None]]] = {}

    def refusal(self, kind: type) -> tuple[str, str | Hint | None] | None:
        if issubclass(kind, self._pa.RecordBatchReader):
            return (
                "A RecordBatchReader is record batches that are still to be read.",
                "x.read_all()",
            )
        if issubclass(kind, self._pa.Scalar):
            return "A Scalar of Arrow's is no array.", "x.as_py()"
        if kind.__module__ in _OF_FILES and hasattr(kind, "to_table"):
            return (
                f"{an(kind.__name__, 'A')} is rows in files that are still to be read.",
                "x.to_table()",
            )
        if kind.__module__ in _OF_FILES and hasattr(kind, "read"):
            return (
                f"{an(kind.__name__, 'A')} is rows in a file that are still to be read.",
                "x.read()",
            )
        return None

    def dtype_of(self, x: Any) -> Any:
        kind = x.type
        # An extension type of a user may not be hashable.
        if isinstance(kind, self._pa.BaseExtensionType):
            return kind.extension_name, kind.storage_type
        return kind

    def _name(self, kind: Any) -> str | None:
        """The dtype for a type of numbers; ``None`` for other types."""
        if isinstance(kind, self._pa.BaseExtensionType):
            return None
        return self._plain.get(kind)

    def empty(self, x: Any) -> Any:
        return x.slice(0, 0)

    def name_of(self, x: Any) -> object:
        return None

    def plain_array(self, x: Any) -> Array | None:
        if self._name(x.type) is None or x.null_count or not len(x):
            return None
        if isinstance(x, self._pa.ChunkedArray):
            if x.num_chunks != 1:
                return None
            x = x.chunk(0)
        return x.to_numpy()  # type: ignore[no-any-return]

    def whole(self, x: Any) -> Gathered | Array | None:
        names = set(map(self._name, x.schema.types))
        name = names.pop() if len(names) == 1 else None
        columns = x.columns
        if name is None or not x.num_rows or any(column.null_count for column in columns):
            return None
        if isinstance(x, self._pa.RecordBatch):
            batches = [x]
        else:
            batches = x.to_batches()
        if len(batches) != 1:
            return None
        return Gathered(
            (x.num_rows, len(columns)),
            name,
            lambda by_rows: batches[0].to_tensor(row_major=by_rows).to_numpy(),
        )

    def views(self, x: Any) -> Views | None:
        # The whole batch is exported, because to get each column as an object takes longer.
        if isinstance(x, self._pa.RecordBatch):
            batches = [x]
        else:
            batches = x.to_batches()
        names = tuple(x.schema.names)
        if len(batches) != 1 or len(set(names)) < len(names):
            return None
        schema, capsule = batches[0].__arrow_c_array__()
        kept = self._schemas.get(names)
        if kept is None or not kept[0].equals(x.schema):
            kept = x.schema, list(map(regular_of, type_in(schema).children))
            if len(self._schemas) >= _MOST:
                self._schemas.clear()
            self._schemas[names] = kept
        arrays = dict(zip(names, arrays_of(capsule, kept[1]), strict=True))
        return Views(arrays, lambda: self.named_columns(x))

    def plain_types(self) -> Sequence[type]:
        pa = self._pa
        return [pa.ChunkedArray, *(type(pa.array([], kind)) for kind in self._plain)]

    def contents_of_column(self, x: Any, asked: str | None) -> Found:
        pa = self._pa
        name = self._name(x.type)
        if name is not None and not x.null_count:
            if isinstance(x, pa.Array):
                return Column(name, (), [Piece(len(x), x.to_numpy())] if len(x) else [])
            return Column(
                name, (), [Piece(len(chunk), chunk.to_numpy()) for chunk in x.chunks if len(chunk)]
            )
        column = self.found_by_arrow(x, asked)
        if name not in (None, "float16") and isinstance(column, Column) and len(column.pieces) == 1:
            column.fill_all = lambda value: self._filled(x, value)
        return column

    def _filled(self, x: Any, value: Any) -> Array:
        """A new array, with a value in place of nulls."""
        from pyarrow import compute

        filled = compute.fill_null(x, self._pa.scalar(value.item(), x.type))
        if isinstance(filled, self._pa.ChunkedArray):
            filled = next(chunk for chunk in filled.chunks if len(chunk))
        return memory.over(filled.to_numpy())

    def columns_of(self, x: Any) -> Sequence[tuple[object, Any]]:
        return list(zip(x.column_names, x.columns, strict=True))

    def replaced(self, x: Any, name: object, code: str) -> str:
        return f"x.set_column({x.column_names.index(name)}, {name!r}, {code})"

    def without_nulls(self, name: object) -> str:
        return f"x.filter(x[{name!r}].is_valid())"

    def dropped(self, names: list[object]) -> str:
        return f"x.drop_columns({names!r})"

    def unlike(self, x: Any) -> tuple[str, str | Hint] | None:
        if not self.is_table(type(x)):
            return None
        if isinstance(x, self._pa.RecordBatch):
            make = "record_batch"
        else:
            make = "table"
        of_columns = hints.code(f"pa.{make}([*to_numpy(x).T], names=like.schema.names)")
        return (
            "which is several arrays: a result is one, whose elements are the rows",
            Hint(of_columns, ", which makes one of two axes")
            | Hint(hints.keyword("to", self.name), ", ", hints.without("like")),
        )

    def adopt(self, array: Array) -> Any:
        pa, flat = self._pa, array.reshape(-1)
        name = array.dtype.name
        if name == "bool":
            # Arrow packs eight booleans into a byte.
            values = pa.Array.from_buffers(
                pa.bool_(), flat.size, [None, pa.py_buffer(np.packbits(flat, bitorder="little"))]
            )
        else:
            kind = self._types[name]
            values = pa.Array.from_buffers(kind, flat.size, [None, pa.py_buffer(flat)])
        if array.ndim == 1:
            return values
        kind = pa.fixed_shape_tensor(values.type, array.shape[1:])
        width = int(np.prod(array.shape[1:]))
        storage = pa.Array.from_buffers(kind.storage_type, len(array), [None], children=[values])
        assert kind.storage_type.list_size == width  # noqa: S101 - the shape is that of the elements
        return pa.ExtensionArray.from_storage(kind, storage)


BACKEND = ArrowBackend()
