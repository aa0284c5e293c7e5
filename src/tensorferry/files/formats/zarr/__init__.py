"""Zarr, with zarr-python: a folder with an array for each tensor."""

from __future__ import annotations

import json
import os
import re
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ....core.dtypes import DTYPES, ORDINARY, find
from ....core.layout import compact_strides
from ....errors import FileFormatError, UnsafeFileError
from ....host.numpy_dtypes import numpy_dtype
from ...base.contents import Contents, NotTensor
from ...base.format import Format, owned
from ...base.limits import FileHint, Metadataless
from ...base.nesting import DEEPEST
from ...base.stored import BoxReader, Decoded, Extent, View
from ...base.tree_strings import packed, unpacked
from ...base.wording import is_unicode, named
from ...encodings.array_parts import checked, filled, is_bomb, lengths, slabs
from ...encodings.json_scan import loaded
from ...encodings.paths import NAMES, paths_for, refuse_links_out, restore_names, size_of
from ...ranges.boxes import chunk_counts, chunks_of
from .codecs import bounded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ....typing import Array
    from ...base.pump import Pump
    from ...base.stored import Stored
    from ...ranges.boxes import Box

__all__ = [
    "CHUNK_BYTES",
    "DTYPE",
    "FORMAT",
    "JSON",
    "ArrayCollector",
    "ArrayLayout",
    "ZarrNode",
    "description_of",
    "is_array",
    "is_own",
    "layout_of",
    "node_of",
]

JSON = "zarr.json"
_ARRAY, _GROUP, _ATTRIBUTES, _CONSOLIDATED = ".zarray", ".zgroup", ".zattrs", ".zmetadata"
"""Of version 2: https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html"""
_OWN = re.compile(r"zarr\.json|\.z(?:array|group|attrs|metadata)")
_CHUNK = re.compile(r"c|(?:c[/.])?\d+(?:[/.]\d+)*")
"""The possible keys of chunks."""

_EXTENDED = frozenset({"bfloat16", *(name for name in DTYPES if name.startswith("float8_"))})
"""Of the data types of zarr-extensions, those that take whole bytes.

https://github.com/zarr-developers/zarr-extensions/tree/main/data-types; TensorStore
has them in version 2 too, under the same names."""
_CODES = {f"{np.dtype(name).kind}{np.dtype(name).itemsize}": name for name in ORDINARY}
"""Those of the specification, as version 2 calls them.

See https://zarr-specs.readthedocs.io/en/latest/v3/data-types/index.html.
"""
_CODECS = frozenset({"blosc", "bytes", "crc32c", "gzip", "sharding_indexed", "transpose", "zstd"})
_CODECS_V2 = frozenset({"blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd"}) | frozenset(
    {"adler32", "bitround", "crc32", "crc32c", "delta", "fletcher32", "shuffle"}
)
"""Of numcodecs those that turn numbers into bytes and back, and run nothing.

See https://numcodecs.readthedocs.io.
"""


class ZarrNode(NamedTuple):
    """The description of a folder.

    Args:
        where: The file with the description.
        is_array: Whether it is an array, not a group.
        described: The description.
        attributes: The attributes.
    """

    where: str
    is_array: bool
    described: dict[str, Any]
    attributes: dict[str, Any]


class ChunkKey(NamedTuple):
    """How the file of a chunk is called.

    Args:
        prefix: What is before the numbers; empty for nothing.
        separator: What is between them.
    """

    prefix: str
    separator: str

    def file_of(self, at: tuple[int, ...]) -> str:
        """The path of the chunk's file in the folder of its array, by the chunk's place in the grid."""
        return self.separator.join([*filter(None, [self.prefix]), *map(str, at)]) or "0"


class ArrayLayout(NamedTuple):
    """The layout of an array in its folder.

    Args:
        kind: The canonical name of the dtype.
        shape: Lengths of the axes.
        chunks: The shape of a chunk.
        key: Where the files of chunks are, if they have the values as they are.
        plain: The description for the library, in which unsupported dtypes are unsigned integers.
    """

    kind: str
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    key: ChunkKey | None
    plain: dict[str, Any]

    @property
    def lone(self) -> str | None:
        """The file with all values without gaps and without encoding, if there is one."""
        if self.key is None or self.shape != self.chunks or not prod(self.shape):
            return None
        return self.key.file_of((0,) * len(self.shape))


def description_of(folder: Path | str) -> str | None:
    """The name of the file that describes a folder; ``None`` if it is no array and no group."""
    return next(
        (name for name in (JSON, _ARRAY, _GROUP) if os.path.isfile(os.path.join(folder, name))),
        None,
    )


def is_array(folder: Path) -> bool | None:
    """Whether a folder is an array, not a group; ``None`` if it is neither."""
    name = description_of(folder)
    if name != JSON:
        return None if name is None else name == _ARRAY
    try:
        kind = json.loads((folder / JSON).read_bytes()).get("node_type")
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
    if isinstance(kind, str):
        return {"array": True, "group": False}.get(kind)
    return None


def is_own(path: str, *, in_array: bool) -> bool:
    """Whether a file in the folder of a node belongs to the format."""
    return bool(_OWN.fullmatch(path) or (in_array and _CHUNK.fullmatch(path)))


def node_of(folder: str, name: str, read: Callable[[str], bytes]) -> ZarrNode:
    """The description of a folder, in the file with this name. `read` gives a file's bytes."""
    where = os.path.join(folder, name)
    described = loaded(where, name, read(where), dict)
    if name == JSON:
        kind, attributes = described.get("node_type"), described.get("attributes", {})
        fits = described.get("zarr_format") == 3 and kind in ("array", "group")
    else:
        kind, attributes = "array" if name == _ARRAY else "group", {}
        fits = described.get("zarr_format") == 2
        if os.path.isfile(beside := os.path.join(folder, _ATTRIBUTES)):
            attributes = loaded(beside, _ATTRIBUTES, read(beside), dict)
    if not fits:
        raise FileFormatError(f"{where} describes no array or group of Zarr, version 2 or 3.")
    if not isinstance(attributes, dict):
        raise FileFormatError(f"{where} has attributes that are no mapping.")
    return ZarrNode(where, kind == "array", described, attributes)


def layout_of(node: ZarrNode) -> ArrayLayout | str:
    """The layout of an array, or why it cannot be loaded."""
    if node.described["zarr_format"] == 3:
        return _layout_v3(node)
    return _layout_v2(node)


def _layout_v3(node: ZarrNode) -> ArrayLayout | str:
    where, described = node.where, node.described
    kind = described.get("data_type")
    if not isinstance(kind, str) or kind not in ORDINARY | _EXTENDED:
        if isinstance(kind, dict):
            label = kind.get("name")
        else:
            label = kind
        return _no_tensor(kind, is_text=bool(re.search("string|utf|bytes", str(label))))
    grid = described.get("chunk_grid")
    if not isinstance(grid, dict) or grid.get("name") != "regular":
        return "values in chunks of a kind that is not known here"
    settings = grid.get("configuration")
    if isinstance(settings, dict):
        chunk_shape = settings.get("chunk_shape")
    else:
        chunk_shape = None
    shape, chunks = _shapes(described.get("shape"), chunk_shape, kind, where)
    codecs = described.get("codecs")
    unknown = sorted(_names(codecs, where) - _CODECS)
    if unknown or described.get("storage_transformers"):
        return f"encoded by {named(unknown) or 'storage transformers'}, which is not known here"
    little = [{"name": "bytes", "configuration": {"endian": "little"}}]
    packed = codecs == little or (
        find(kind).itemsize == 1
        and codecs in ([{"name": "bytes"}], [{"name": "bytes", "configuration": {}}])
    )
    encoding = described.get("chunk_key_encoding")
    if isinstance(encoding, dict):
        settings = encoding.get("configuration") or {}
    else:
        settings = None
    if isinstance(settings, dict):
        separator = settings.get("separator", "/")
    else:
        separator = None
    packed = packed and isinstance(encoding, dict) and encoding.get("name") == "default"
    keys = ("shape", "chunk_grid", "chunk_key_encoding", "codecs", "zarr_format", "node_type")
    plain = {key: described[key] for key in keys if key in described}
    plain |= {
        "data_type": _held_as(kind),
        "fill_value": _fill(described.get("fill_value"), kind),
        "attributes": {},
    }
    return ArrayLayout(kind, shape, chunks, _key("c", separator) if packed else None, plain)


def _layout_v2(node: ZarrNode) -> ArrayLayout | str:
    where, described = node.where, node.described
    code = described.get("dtype")
    extended = isinstance(code, str) and code in _EXTENDED
    if extended:
        order, kind = "<", code
    else:
        order, kind = str(code)[:1], _CODES.get(str(code)[1:])
    if not isinstance(code, str) or kind is None or order not in "<>|":
        return _no_tensor(code, is_text=str(code)[1:2] in "OSU")
    shape, chunks = _shapes(described.get("shape"), described.get("chunks"), kind, where)
    codecs = [*(described.get("filters") or ()), *filter(None, [described.get("compressor")])]
    if not all(isinstance(codec, dict) and isinstance(codec.get("id"), str) for codec in codecs):
        raise FileFormatError(f"{where} has codecs without a name.")
    unknown = sorted({codec["id"] for codec in codecs} - _CODECS_V2)
    if unknown:
        return f"encoded by {named(unknown)}, which is not known here"
    separator = described.get("dimension_separator", ".")
    packed = (
        not codecs and described.get("order") == "C" and (order != ">" or find(kind).itemsize == 1)
    )
    keys = (
        "shape",
        "chunks",
        "compressor",
        "filters",
        "order",
        "zarr_format",
        "dimension_separator",
    )
    plain = {key: described[key] for key in keys if key in described}
    if extended:
        held = np.dtype(f"<u{find(kind).itemsize}").str
    else:
        held = code
    plain |= {
        "dtype": held,
        "fill_value": _fill(described.get("fill_value"), kind),
        "attributes": {},
    }
    return ArrayLayout(kind, shape, chunks, _key("", separator) if packed else None, plain)


def _no_tensor(kind: Any, *, is_text: bool) -> str:
    why = f"values of the type {json.dumps(kind):.80}, which is no tensor's"
    return NotTensor(why) if is_text else why


def _shapes(
    shape: Any, chunks: Any, kind: str, where: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    for numbers in (shape, chunks):
        if not isinstance(numbers, list) or not all(type(number) is int for number in numbers):
            raise FileFormatError(f"{where} has no shape, or no shape of its chunks.")
    lengths, parts = (checked(numbers, find(kind).itemsize, where) for numbers in (shape, chunks))
    if len(parts) != len(lengths) or 0 in parts:
        raise FileFormatError(
            f"{where} has chunks of shape {list(parts)} for an array of shape {list(lengths)}."
        )
    return lengths, parts


def _names(codecs: Any, where: str, depth: int = 0) -> set[str]:
    """The names of codecs, also inside shards."""
    names = set()
    for codec in codecs if isinstance(codecs, list) and depth < 4 else [None]:
        if isinstance(codec, dict):
            name = codec.get("name")
        else:
            name = codec
        if not isinstance(name, str):
            raise FileFormatError(f"{where} has codecs without a name.")
        names.add(name)
        if isinstance(codec, dict):
            settings = codec.get("configuration", {})
        else:
            settings = {}
        if name == "sharding_indexed" and isinstance(settings, dict):
            names |= _names(settings.get("codecs"), where, depth + 1)
            names |= _names(settings.get("index_codecs"), where, depth + 1)
    return names


def _key(prefix: str, separator: Any) -> ChunkKey | None:
    return ChunkKey(prefix, separator) if separator in ("/", ".") else None


def _held_as(kind: str) -> str:
    if kind in _EXTENDED:
        return f"uint{8 * find(kind).itemsize}"
    return kind


def _fill(value: Any, kind: str) -> Any:
    """The fill value; for an extended dtype, the integer with its bits."""
    if kind not in _EXTENDED:
        return value
    if isinstance(value, str) and value.startswith("0x"):
        return int(value, 16)
    try:
        number = np.array(float(value or 0), np.float64).astype(numpy_dtype(kind))
    except (TypeError, ValueError) as error:
        raise FileFormatError(f"{value!r:.40} is no fill value of {kind}.") from error
    return int(number.view(_held_as(kind)))


DTYPE = "tensorferry.dtype"
"""The attribute with the dtype, for an array of unsigned integers that stand for it."""
CHUNK_BYTES = 1 << 22
_LONE = "tensor"
_MOST_PIECES = 1 << 14
"""From more chunks on, the library is asked."""
_MOST_TEXT = 1 << 26


class ArrayCollector:
    """Collects the arrays of a folder in contents."""

    def __init__(self, root: Path, contents: Contents) -> None:
        self._root = root
        self._contents = contents
        self._text = 0

    def node(self, folder: str, description: str, path: str, depth: int) -> None:
        """Collect an array, or all arrays of a group, by their paths.

        `description` is the name of the file with it.
        """
        if depth > DEEPEST:
            raise UnsafeFileError(f"{self._root} nests deeper than {DEEPEST} groups, at {path!r}.")
        node = node_of(folder, description, self._read)
        attributes = node.attributes
        if node.is_array:
            name = path or _LONE
            array = _array(folder, node)
            if isinstance(array, str):
                self._contents.others[name] = array
            else:
                self._contents.tensors[name] = array
                attributes.pop(DTYPE, None)
            if any(node.described.get("dimension_names") or ()):
                attributes.setdefault("dimension_names", node.described["dimension_names"])
        for key, value in attributes.items():
            if isinstance(value, str):
                text = value
            else:
                text = json.dumps(value)
            self._contents.metadata[f"{path}@{key}" if path else key] = text
        if not node.is_array:
            self._group(folder, path, depth)

    def _read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            self._text += os.fstat(file.fileno()).st_size
            if self._text > _MOST_TEXT:
                raise UnsafeFileError(
                    f"{self._root} has more than {_MOST_TEXT} bytes of JSON, at {path}."
                )
            return file.read()

    def _group(self, folder: str, path: str, depth: int) -> None:
        with os.scandir(folder) as entries:
            inner = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
        for name, is_folder in inner:
            below = f"{path}/{name}" if path else name
            place = os.path.join(folder, name)
            description = description_of(place)
            if description is None:
                continue
            if is_folder:
                self.node(place, description, below, depth + 1)
            else:
                self._contents.others[below] = NotTensor(
                    "a symbolic link to a folder, which is not followed"
                )


def _array(folder: str, node: ZarrNode) -> Stored | str:
    layout = layout_of(node)
    if isinstance(layout, str):
        return layout
    kind, shape = layout.kind, layout.shape
    dtype, itemsize = node.attributes.get(DTYPE, kind), find(kind).itemsize
    fits = isinstance(dtype, str) and dtype in DTYPES and find(dtype).itemsize == itemsize
    if not fits or (dtype != kind and not kind.startswith("uint")):
        raise FileFormatError(
            f"{node.where}: the attribute {DTYPE!r} says {dtype!r:.40}, "
            f"which is no dtype of {kind}."
        )
    if layout.lone is not None and os.path.isfile(
        lone := os.path.join(folder, *layout.lone.split("/"))
    ):
        stored = Extent(dtype, shape, lone, 0)
        held = os.path.getsize(lone)
        if held != stored.nbytes:
            raise FileFormatError(f"{lone} has {held} bytes; its shape needs {stored.nbytes}.")
        return stored
    declared = max(prod(shape), prod(layout.chunks) if prod(shape) else 0) * itemsize
    # The size of the folder is read only for large arrays.
    if is_bomb(declared, 0) and is_bomb(declared, held := size_of(folder)):
        raise UnsafeFileError(
            f"{folder} is out of all proportion: {declared} bytes are declared in {held}."
        )
    return _Chunked(dtype, layout, folder)


class _Chunked(Decoded):
    """An array in chunks, of which only those are read in which a part is.

    Args:
        dtype: The canonical name of the dtype.
        layout: Its layout.
        folder: Its folder.
    """

    __slots__ = ("_folder", "_layout")

    def __init__(self, dtype: str, layout: ArrayLayout, folder: str) -> None:
        self._layout = layout
        self._folder = folder
        of_boxes = _reading(Path(folder), layout, dtype)

        def whole() -> Iterator[Array]:
            itemsize = find(dtype).itemsize
            return of_boxes(slabs(layout.shape, itemsize, layout.chunks, 2 * CHUNK_BYTES))

        def box(slices: tuple[slice, ...]) -> Array:
            return next(of_boxes(iter([slices])))

        reader = BoxReader(layout.chunks, box)
        super().__init__(dtype, layout.shape, whole, (folder,), reader)

    def pieces_in(self, box: Box) -> list[tuple[tuple[int, ...], Stored]] | None:
        """See `Stored.pieces_in`: chunks whose values stand in their files as they are."""
        layout = self._layout
        number = prod(chunk_counts(box, layout.chunks))
        if layout.key is None or number > _MOST_PIECES:
            return None
        nbytes = prod(layout.chunks) * find(self.dtype).itemsize
        strides = compact_strides(layout.chunks, find(self.dtype).itemsize)
        pieces: list[tuple[tuple[int, ...], Stored]] = []
        for at in chunks_of(box, layout.chunks):
            path = os.path.join(self._folder, *layout.key.file_of(at).split("/"))
            # One that is not there has the fill value.
            if not os.path.isfile(path) or os.path.getsize(path) != nbytes:
                return None
            starts = tuple(index * length for index, length in zip(at, layout.chunks, strict=True))
            # The last one along an axis goes beyond it.
            lengths = tuple(
                min(length, whole - start)
                for length, whole, start in zip(layout.chunks, layout.shape, starts, strict=True)
            )
            if lengths == layout.chunks:
                pieces.append((starts, Extent(self.dtype, lengths, path, 0)))
            else:
                pieces.append((starts, View(self.dtype, lengths, path, 0, strides)))
        return pieces


def _reading(
    folder: Path, layout: ArrayLayout, dtype: str
) -> Callable[[Iterator[tuple[slice, ...]]], Iterator[Array]]:
    """What yields the values in each of some boxes."""
    itemsize = find(dtype).itemsize

    def read(boxes: Iterator[tuple[slice, ...]]) -> Iterator[Array]:
        from zarr import Array, AsyncArray
        from zarr.core.metadata import ArrayV2Metadata, ArrayV3Metadata
        from zarr.storage import LocalStore, StorePath

        class Store(LocalStore):  # type: ignore[misc, unused-ignore]  # without zarr it has no types
            async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
                _refuse_long(folder / key, most)
                return await super().get(key, prototype, byte_range)

        try:
            described: Any = (
                ArrayV3Metadata if layout.plain["zarr_format"] == 3 else ArrayV2Metadata
            ).from_dict(dict(layout.plain))
            described, most = bounded(described, prod(layout.chunks) * itemsize, itemsize)
            store = StorePath(Store(str(folder), read_only=True), "")
            array: Any = Array(AsyncArray(metadata=described, store_path=store))
            for box in boxes:
                values = np.asarray(array[box])
                yield values.astype(values.dtype.newbyteorder("="), copy=False).view(
                    numpy_dtype(dtype)
                )
        except UnsafeFileError as error:
            raise UnsafeFileError(f"{folder}: {error}") from error
        except Exception as error:  # each codec has its own exceptions
            raise FileFormatError(
                f"{folder} cannot be read as Zarr: {type(error).__name__}: {error}."
            ) from error

    return read


def _refuse_long(path: Path, most: int) -> None:
    """Raise for a chunk file that is longer than a chunk can be, before it is read."""
    held = path.stat().st_size if path.is_file() else 0
    if held > most:
        raise UnsafeFileError(
            f"{path.name} has {held:,} bytes, where a chunk has {most:,} at most: a bomb."
        )


class Zarr(Format):
    """Zarr, https://zarr-specs.readthedocs.io: versions 2 and 3 are read, 3 is written.

    Dtypes that zarr-python does not have (bfloat16, float8, int4) are written as unsigned integers
    of the same size, with an attribute that names the dtype.
    """

    name = "zarr"
    title = "Zarr"
    suffixes = (".zarr",)
    dtypes = frozenset(DTYPES)
    module = "zarr"
    is_folder = True
    holds_tree = True
    holds_metadata = True
    reserved = frozenset({NAMES})
    rank = 70

    def recognises(self, path: Path, head: bytes) -> bool:
        return not head and description_of(path) is not None

    def read(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        self.ensure_loaded()
        description = description_of(path) or JSON
        refuse_links_out(path, description)
        contents = Contents(self.name, (str(path),))
        ArrayCollector(path, contents).node(str(path), description, "", 0)
        contents.tensors = dict(sorted(contents.tensors.items()))
        restore_names(contents)
        return unpacked(contents)

    def own_entries(self, folder: Path) -> list[str]:
        arrays: dict[str, bool | None] = {}

        def at(inner: str) -> bool | None:
            if inner not in arrays:
                arrays[inner] = is_array(folder / inner)
            return arrays[inner]

        def fits(inner: str) -> bool:
            node, _, rest = "", "", inner
            while at(node) is False and "/" in rest:
                name, _, rest = rest.partition("/")
                node = f"{node}/{name}" if node else name
            return at(node) is not None and is_own(rest, in_array=bool(at(node)))

        return owned(folder, fits)

    def refuse(self, contents: Contents) -> None:
        texts = [
            key
            for key, text in contents.metadata.items()
            if not (is_unicode(key) and is_unicode(text))
        ]
        hint = FileHint(Metadataless(tuple(texts)))
        self.refuse_any(map(repr, texts), "has no place for the metadata", hint)

    def write(self, contents: Contents, path: Path, pump: Pump) -> None:
        self.ensure_loaded()
        import zarr

        ties = contents.ties
        paths = paths_for((name for name in contents.tensors if name not in ties), _is_path)
        own: dict[str, dict[str, str]] = {place: {} for place in paths.values()}
        root = {NAMES: json.dumps([[name, place] for name, place in paths.items()])}
        for key, text in packed(contents).items():
            place, _, attribute = key.rpartition("@")
            if place in own and attribute not in ("", DTYPE):
                own[place][attribute] = text
            else:
                root[key] = text
        group = zarr.create_group(str(path), zarr_format=3, attributes=root)
        for name, place in paths.items():
            self._write(group, place, contents.tensors[name], own[place], pump)

    def _write(
        self, group: Any, place: str, stored: Stored, attributes: dict[str, Any], pump: Pump
    ) -> None:
        own = dtype = numpy_dtype(stored.dtype)
        if stored.dtype not in ORDINARY:
            dtype = np.dtype(f"uint{8 * own.itemsize}")
            attributes = {**attributes, DTYPE: stored.dtype}
        boxes = list(slabs(stored.shape, own.itemsize, nbytes=CHUNK_BYTES))
        array = group.create_array(
            place,
            shape=stored.shape,
            chunks=lengths(boxes[0]) if boxes else tuple(max(length, 1) for length in stored.shape),
            dtype=dtype,
            compressors=None,
            filters=None,
            fill_value=0,
            attributes=attributes,
            # Otherwise a chunk of negative zeros would count as empty.
            config={"write_empty_chunks": True},
        )
        pieces = filled(pump.blocks(stored), (prod(lengths(box)) for box in boxes), own)
        for box, piece in zip(boxes, pieces, strict=True):
            array[box] = piece.view(dtype).reshape(lengths(box))


def _is_path(name: str) -> bool:
    parts = name.split("/")
    fits = is_unicode(name) and not {"\\", "\0"} & set(name) and len(name.encode()) < 1000
    return fits and all(
        part not in ("", ".", "..", JSON) and not part.startswith("__") and len(part.encode()) < 200
        for part in parts
    )


FORMAT = Zarr()
