"""Arrow files, by pyarrow: a table with a column for each tensor."""

from __future__ import annotations

import json
import mmap
import os
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from ...core.dtypes import find
from ...errors import ConversionError, FileFormatError, FormatLimitError, UnsafeFileError
from ...host.numpy_dtypes import numpy_dtype
from ..contents import Contents
from ..encodings.flatbuffer import Table
from ..encodings.paths import is_text, loaded
from ..encodings.shapes import checked
from ..encodings.slabs import is_bomb
from ..format import Format, named
from ..stored import Decoded, Extent, Stored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ..pump import Pump

__all__ = ["FORMAT", "Arrow", "Column", "as_format_error", "column_of", "described", "is_table", "numbers"]
__all__ += ["schema_of", "shape_of"]

_MAGIC = b"ARROW1"
_LAYOUT, _ONE_ROW = "tensorferry.layout", "one row"
"""In the schema's metadata: each tensor is a single row, not a row for each of its first axis."""
_DTYPE, _SHAPE = "tensorferry.dtype", "tensorferry.shape"
"""In a column's metadata: the dtype that its numbers stand for; the shape of a tensor without elements."""
_MOST_LIST = (1 << 31) - 1
_MOST_TEXT = 1 << 26

_NATIVE = {
    "bool": "bool",
    "halffloat": "float16",
    "float": "float32",
    "double": "float64",
    **{name: name for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")},
}
"""The canonical names of Arrow's types, https://arrow.apache.org/docs/format/Columnar.html."""
_COMPLEX = {"complex64": "float32", "complex128": "float64"}
_NARROW = frozenset(
    {"int2", "int4", "uint2", "uint4", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3"}
    | {"float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"}
    | {"bfloat16"}
)


class Arrow(Format):
    """Tables of tensors, https://arrow.apache.org/docs/format/CanonicalExtensions.html#fixed-shape-tensor.

    Tensors with equal first axes are columns with a row for each index of that axis; others stand in a single row.
    What Arrow has no type for is written as unsigned integers of its size (bfloat16, float8, int4; bool, which Arrow
    packs into bits) or pairs of floats (complex), and the column's metadata names it.
    """

    name = "arrow"
    title = "Arrow"
    suffixes: ClassVar[tuple[str, ...]] = (".arrow", ".feather")
    dtypes = frozenset(_NATIVE.values()) | frozenset(_COMPLEX) | _NARROW
    module = "pyarrow"
    holds_tree = True
    holds_metadata = True
    rank = 80

    def recognises(self, path: Path, head: bytes) -> bool:
        return head.startswith(_MAGIC + b"\0\0")

    def read(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        self.ensure_loaded()
        contents = Contents(self.name, (str(path),))
        with as_format_error(str(path)):
            _read(str(path), contents)
        return self.finished(contents)

    def finished(self, contents: Contents) -> Contents:
        """What the metadata says about how tensors nest, put in its place."""
        from ..encodings.tree_strings import unpacked

        contents.metadata.pop(_LAYOUT, None)
        return unpacked(contents)

    def refuse(self, contents: Contents) -> None:
        super().refuse(contents)
        texts = [*contents.tensors, *(each for pair in contents.metadata.items() for each in pair)]
        odd = [text for text in texts if not is_text(text)]
        odd += [key for key in contents.metadata if _is_reserved(key)]
        if odd:
            raise FormatLimitError(
                f"{self.title} cannot hold these names or strings: {named(map(repr, odd))}.", "rename=[…]"
            )
        start = 1 if is_table(contents) else 0
        long = [
            name
            for name, stored in contents.tensors.items()
            if prod(stored.shape[start:]) * (1 + (stored.dtype in _COMPLEX)) > _MOST_LIST
        ]
        if long:
            raise FormatLimitError(
                f"{self.title} holds no more than {_MOST_LIST} numbers in a row, and these have more: {named(long)}.",
                "another to=, or exclude=[…]",
            )

    def write(self, contents: Contents, path: Path, pump: Pump) -> None:
        from ..encodings.tree_strings import packed

        self.ensure_loaded()
        _write(contents, packed(contents), path, pump)


def _is_reserved(key: str) -> bool:
    """Whether a string of this name says what a column is, or is a library's own, and so no metadata."""
    return key in (_LAYOUT, _DTYPE, _SHAPE) or key.startswith(("ARROW:", "PARQUET:"))


@contextmanager
def as_format_error(path: str) -> Iterator[None]:
    """Whatever the library says is wrong with a file is a `FileFormatError`."""
    import pyarrow as pa

    with open(path, "rb"):  # noqa: PTH123 - OSError with its own message
        pass

    try:
        yield
    except ConversionError:
        raise
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
        raise FileFormatError(f"{path} cannot be read as Arrow: {error}.") from error


# --- columns ------------------------------------------------------------------------------------


class Column(NamedTuple):
    """What a column's type says.

    Args:
        dtype: Canonical name.
        shape: Of each row; of the whole tensor, if it has no elements.
        raw: The dtype that the numbers are held in; ``"null"`` if there are none.
    """

    dtype: str
    shape: tuple[int, ...]
    raw: str


def _column(field: Any, where: str) -> Column | str:
    """What a column holds, or why it holds no tensor."""
    import pyarrow as pa

    kind = field.type
    shape: tuple[int, ...] = ()
    notes = {key.decode("utf-8", "replace"): value for key, value in (field.metadata or {}).items()}
    if isinstance(kind, pa.FixedShapeTensorType):
        if kind.permutation is not None and list(kind.permutation) != list(range(len(kind.shape))):
            return "tensors with permuted axes"
        kind, shape = kind.value_type, tuple(kind.shape)
    else:
        while pa.types.is_fixed_size_list(kind):
            kind, shape = kind.value_type, (*shape, kind.list_size)
    raw = _NATIVE.get(str(kind))
    dtype = notes.get(_DTYPE, b"").decode("utf-8", "replace") or raw
    if pa.types.is_null(kind) and _SHAPE in notes and dtype in Arrow.dtypes:
        lengths = loaded(where, _SHAPE, notes[_SHAPE], list)
        if not all(type(each) is int for each in lengths) or 0 not in lengths:
            raise FileFormatError(f"{where} has the shape {lengths!r:.40}, which is none without elements.")
        return Column(dtype, tuple(lengths), "null")
    if raw is None:
        return f"values of the type {kind}, which is no tensor's"
    if dtype == raw:
        return Column(raw, shape, raw)
    if _COMPLEX.get(str(dtype)) == raw and shape[-1:] == (2,):
        return Column(str(dtype), shape[:-1], raw)
    if dtype in _NARROW | {"bool"} and raw == f"uint{8 * find(dtype).itemsize}":
        return Column(dtype, shape, raw)
    raise FileFormatError(f"{where}: the metadata {_DTYPE!r} says {dtype!r:.40}, which {kind} cannot stand for.")


def _flat(array: Any, where: str) -> Any:
    """The numbers of a column of a record batch, without the lists around them."""
    import pyarrow as pa

    while True:
        if array.null_count:
            raise FormatLimitError(f"{where} has nulls, which tensors have not.", "exclude=[…] it")
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif pa.types.is_fixed_size_list(array.type):
            array = array.flatten()
        else:
            return array


def numbers(array: Any, column: Column, where: str) -> np.ndarray[Any, Any]:
    """The values of a column of a record batch, in one axis."""
    found = _flat(array, where).to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(found).view(numpy_dtype(column.dtype))


def described(path: str, schema: Any, contents: Contents) -> tuple[list[tuple[int, str, Column]], bool]:
    """The columns that are tensors, by place and name, and whether each tensor is a single row."""
    text = 0
    for place, entries in [("", schema.metadata), *((field.name, field.metadata) for field in schema)]:
        for key, value in (entries or {}).items():
            text += len(value)
            if text > _MOST_TEXT:
                raise UnsafeFileError(f"{path} has more than {_MOST_TEXT} bytes of metadata.")
            name = key.decode("utf-8", "replace")
            if name != _LAYOUT and _is_reserved(name):
                continue
            try:
                contents.metadata[f"{place}@{name}" if place else name] = value.decode()
            except UnicodeDecodeError:
                contents.others[f"{place}@{name}" if place else name] = "metadata that is no text"
    one_row = contents.metadata.get(_LAYOUT) == _ONE_ROW
    columns = []
    taken: set[str] = set()
    for index, field in enumerate(schema):
        name, count = field.name, 1
        while name in taken:
            count += 1
            name = f"{field.name}#{count}"
        taken.add(name)
        column = _column(field, f"{path}: {field.name!r}")
        if isinstance(column, str):
            contents.others[name] = column
        else:
            columns.append((index, name, column))
    return columns, one_row


def shape_of(path: str, name: str, column: Column, rows: int, *, one_row: bool) -> tuple[int, ...]:
    """The shape of the tensor that a column of so many rows is."""
    if one_row and rows != 1:
        raise FileFormatError(f"{path} says that each tensor is one row, and has {rows}.")
    if column.raw == "null":
        return checked(column.shape, 1, f"{path}: {name!r}")
    shape = column.shape if one_row else (rows, *column.shape)
    shape = checked(shape, find(column.dtype).itemsize, f"{path}: {name!r}")
    declared = prod(shape) * find(column.dtype).itemsize
    if is_bomb(declared, held := os.stat(path).st_size):  # noqa: PTH116 - a plain string
        raise UnsafeFileError(f"{path} is out of all proportion: {name!r} would be {declared} bytes; it has {held}.")
    return shape


# --- Arrow files --------------------------------------------------------------------------------


def _read(path: str, contents: Contents) -> None:
    import pyarrow as pa

    size = os.stat(path).st_size  # noqa: PTH116 - a plain string
    rows, is_compressed = _look_at_batches(path, size)
    with pa.memory_map(path) as source, pa.ipc.open_file(source) as reader:
        columns, one_row = described(path, reader.schema, contents)
        batch = reader.get_batch(0) if reader.num_record_batches == 1 and not is_compressed else None
        source.seek(0)
        base = source.read_buffer(1).address
        for index, name, column in columns:
            shape = shape_of(path, name, column, rows, one_row=one_row)
            stored: Stored | None = None
            if batch is not None and column.raw != "null":
                array = batch.column(index)
                array.validate()
                if _has_nulls(array):
                    contents.others[name] = "a column with nulls, which tensors have not"
                    continue
                stored = _in_place(path, column, shape, _flat(array, name), base, size)
            read = _batches_of(path, index, column, f"{path}: {name!r}")
            contents.tensors[name] = stored or Decoded(column.dtype, shape, read, (path, index))


def _look_at_batches(path: str, size: int) -> tuple[int, bool]:
    """The rows of all batches, and whether those are compressed; looked at before anything is made of them.

    The messages are those of https://github.com/apache/arrow/blob/main/format/File.fbs and Message.fbs.
    """
    rows = compressed = declared = 0
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor
        tail = os.pread(file.fileno(), 10, max(size - 10, 0))
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] != _MAGIC or length > size - 10:
            raise FileFormatError(f"{path} is cut off: it does not end as an Arrow file does.")
        footer = Table(os.pread(file.fileno(), length, size - 10 - length))
        for begin, described, _ in footer.structs(3, "<qi4xq"):
            if not 8 <= described <= size or not 0 <= begin <= size - described:
                raise FileFormatError(f"{path} has a record batch that lies outside of it, at byte {begin}.")
            raw = os.pread(file.fileno(), described, begin)
            batch = Table(raw[8:] if raw[:4] == b"\xff\xff\xff\xff" else raw[4:]).table(2)
            if batch is None:
                raise FileFormatError(f"{path} has no record batch at byte {begin}, where it says that one is.")
            length = batch.number(0, "<q")
            if length < 0:
                raise FileFormatError(f"{path} has a record batch of {length} rows.")
            rows += length
            if batch.table(3) is None:
                continue
            compressed += 1
            for at, held in batch.structs(2, "<qq"):
                if held >= 8:
                    prefix = os.pread(file.fileno(), 8, min(max(begin + described + at, 0), size))
                    declared += max(int.from_bytes(prefix, "little", signed=True), 0)
    if is_bomb(declared, size):
        raise UnsafeFileError(f"{path} is out of all proportion: it would inflate from {size} to {declared} bytes.")
    return rows, bool(compressed)


def _has_nulls(array: Any) -> bool:
    try:
        _flat(array, "")
    except FormatLimitError:
        return True
    return False


def _in_place(path: str, column: Column, shape: tuple[int, ...], array: Any, base: int, size: int) -> Extent | None:
    """A column whose numbers lie packed in the file; or ``None``."""
    dtype = column.dtype
    if column.raw == "bool" or not prod(shape):
        return None
    offset = array.buffers()[1].address - base + array.offset * find(column.raw).itemsize
    stored = Extent(dtype, shape, path, offset)
    if len(array) * find(column.raw).itemsize != stored.nbytes or not 0 <= offset <= size - stored.nbytes:
        raise FileFormatError(f"{path} has a column of shape {list(shape)} that does not lie inside of it.")
    return stored


def _batches_of(path: str, index: int, column: Column, where: str) -> Callable[[], Iterator[np.ndarray[Any, Any]]]:
    def read() -> Iterator[np.ndarray[Any, Any]]:
        import pyarrow as pa

        options = pa.ipc.IpcReadOptions(included_fields=[index], use_threads=False)
        with (
            as_format_error(path),
            pa.memory_map(path) as source,
            pa.ipc.open_file(source, options=options) as reader,
        ):
            if column.raw == "null":
                return
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                batch.validate()
                yield numbers(batch.column(0), column, where)

    return read


def _write(contents: Contents, metadata: dict[str, str], path: Path, pump: Pump) -> None:
    """Pyarrow lays the file out over memory that is never touched, then the values are copied to their places."""
    import pyarrow as pa

    filled_in = [stored for name, stored in contents.tensors.items() if name not in contents.ties and stored.size]
    empty = mmap.mmap(-1, max((stored.nbytes for stored in filled_in), default=1))
    room = pa.py_buffer(empty)
    schema, rows = schema_of(contents, metadata)
    columns = []
    for field in schema:
        stored = contents.tensors[field.name]
        columns.append(column_of(field.type, room.slice(0, stored.nbytes), rows))
    sink = _Holes(path, room.address)
    try:
        with pa.ipc.new_file(sink, schema) as writer:
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
        for offset, stored in zip(sink.holes, filled_in, strict=True):
            os.lseek(sink.descriptor, offset, os.SEEK_SET)
            pump.copy(stored, sink.descriptor)
    finally:
        sink.close()


class _Holes:
    """A file to write to that leaves out what lies at one address, and remembers where that would have gone."""

    def __init__(self, path: Path, address: int) -> None:
        self.descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self.holes: list[int] = []
        self.closed = False
        self._address = address
        self._at = 0

    def write(self, data: Any) -> int:
        import pyarrow as pa

        buffer = pa.py_buffer(data)
        if buffer.address == self._address:
            self.holes.append(self._at)
        else:
            view = memoryview(buffer)
            done = 0
            while done < view.nbytes:
                done += os.pwrite(self.descriptor, view[done:], self._at + done)
        self._at += buffer.size
        return int(buffer.size)

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        return

    def close(self) -> None:
        if not self.closed:
            os.close(self.descriptor)
        self.closed = True


# --- what is written ----------------------------------------------------------------------------


def is_table(contents: Contents) -> bool:
    """Whether the tensors have equal first axes, as the columns of a table do."""
    held = contents.tensors.values()
    return len({stored.shape[:1] for stored in held}) == 1 and all(stored.size and stored.shape for stored in held)


def schema_of(contents: Contents, metadata: dict[str, str]) -> tuple[Any, int]:
    """The columns, and how many rows they have."""
    import pyarrow as pa

    ties = contents.ties
    held = {name: stored for name, stored in contents.tensors.items() if name not in ties}
    has_rows = is_table(contents)
    rows = next(iter(held.values())).shape[0] if has_rows else 1
    notes: dict[str, dict[str, str]] = {name: {} for name in held}
    whole = {} if has_rows else {_LAYOUT: _ONE_ROW}
    for key, text in metadata.items():
        place, at, name = key.rpartition("@")
        if place in notes and bool(place) is bool(at) and name and not _is_reserved(name):
            notes[place][name] = text
        else:
            whole[key] = text
    native = {name: kind for kind, name in _NATIVE.items() if name != "bool"}
    fields = []
    for name, stored in held.items():
        note, shape = notes[name], stored.shape[1:] if has_rows else stored.shape
        if stored.dtype not in native:
            note[_DTYPE] = stored.dtype
        if not stored.size:
            note |= {_DTYPE: stored.dtype, _SHAPE: json.dumps(stored.shape)}
            fields.append(pa.field(name, pa.null(), metadata=note))
            continue
        raw = stored.dtype
        if raw in _COMPLEX:
            raw, shape = _COMPLEX[raw], (*shape, 2)
        elif raw not in native:
            raw = f"uint{8 * find(raw).itemsize}"
        kind = pa.type_for_alias(native[raw])
        kind = pa.fixed_shape_tensor(kind, shape) if shape else kind
        fields.append(pa.field(name, kind, nullable=False, metadata=note))
    return pa.schema(fields, metadata=whole), rows


def column_of(kind: Any, buffer: Any, rows: int) -> Any:
    """A column over memory."""
    import pyarrow as pa

    if pa.types.is_null(kind):
        return pa.nulls(rows)
    if not isinstance(kind, pa.FixedShapeTensorType):
        return pa.Array.from_buffers(kind, rows, [None, buffer])
    values = pa.Array.from_buffers(kind.value_type, rows * prod(kind.shape), [None, buffer])
    storage = pa.FixedSizeListArray.from_arrays(values, type=kind.storage_type)
    return pa.ExtensionArray.from_storage(kind, storage)


FORMAT = Arrow()
