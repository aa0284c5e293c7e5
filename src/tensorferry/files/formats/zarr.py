"""Zarr v3, by zarr-python: a folder with an array for each tensor."""

from __future__ import annotations

import json
import os
import re
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.dtypes import DTYPES, find
from ...errors import FileFormatError, UnsafeFileError
from ...host.numpy_dtypes import numpy_dtype
from ..base.contents import Contents, NotTensor
from ..base.format import Format, owned
from ..base.stored import Decoded, Extent, Stored
from ..base.tree_strings import packed, unpacked
from ..base.wording import TENSORS_ONLY, is_unicode, named
from ..encodings.json_scan import loaded
from ..encodings.paths import NAMES, named_so, placed, refuse_links_out
from ..encodings.shapes import checked
from ..encodings.slabs import filled, is_bomb, slabs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ..base.pump import Pump

__all__ = ["FORMAT"]

_JSON = "zarr.json"
_DTYPE = "tensorferry.dtype"
"""The attribute that says what dtype the unsigned integers of an array stand for."""
_LONE = "tensor"
_DEEPEST = 64
_MOST_TEXT = 1 << 26
_CHUNK_BYTES = 1 << 22
_CHUNK = re.compile(r"c|(?:c[/.])?\d+(?:[/.]\d+)*")
"""The keys of chunks, in either encoding."""

_NATIVE = frozenset(
    {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}
    | {"float16", "float32", "float64", "complex64", "complex128"}
)
"""https://zarr-specs.readthedocs.io/en/latest/v3/data-types/index.html"""
_EXTENDED = frozenset({"bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fnuz"}) | frozenset(
    {"float8_e4m3fn", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"}
)
"""Of https://github.com/zarr-developers/zarr-extensions/tree/main/data-types those that take whole bytes."""
_CODECS = frozenset({"blosc", "bytes", "crc32c", "gzip", "sharding_indexed", "transpose", "zstd"})


class Zarr(Format):
    """Zarr v3, https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html.

    What zarr-python has no dtype for (bfloat16, float8, int4) is written as unsigned integers of its size, with an
    attribute that names it.
    """

    name = "zarr"
    title = "Zarr"
    suffixes = (".zarr",)
    dtypes = frozenset(DTYPES)
    module = "zarr"
    is_folder = True
    holds_tree = True
    holds_metadata = True
    rank = 70

    def recognises(self, path: Path, head: bytes) -> bool:
        return not head and (path / _JSON).is_file()

    def read(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        self.ensure_loaded()
        refuse_links_out(path, _JSON)
        contents = Contents(self.name, (str(path),))
        _Walk(path, contents).node(path, "", 0)
        contents.tensors = dict(sorted(contents.tensors.items()))
        names = contents.metadata.pop(NAMES, None)
        if names is not None:
            contents.tensors = named_so(str(path), contents.tensors, names)
        return unpacked(contents)

    def own_entries(self, folder: Path) -> list[str]:
        arrays: dict[str, bool | None] = {}

        def is_array(inner: str) -> bool | None:
            """``None`` for what is neither an array nor a group."""
            if inner not in arrays:
                arrays[inner] = _is_array(folder / inner)
            return arrays[inner]

        def fits(inner: str) -> bool:
            node, _, rest = "", "", inner
            while is_array(node) is False and "/" in rest:
                name, _, rest = rest.partition("/")
                node = f"{node}/{name}" if node else name
            return is_array(node) is not None and (rest == _JSON or bool(is_array(node) and _CHUNK.fullmatch(rest)))

        return owned(folder, fits)

    def refuse(self, contents: Contents) -> None:
        super().refuse(contents)
        texts = [key for key, text in contents.metadata.items() if not (is_unicode(key) and is_unicode(text))]
        texts += [NAMES] if NAMES in contents.metadata else []
        self.refuse_any(map(repr, texts), "has no place for the metadata", TENSORS_ONLY)

    def write(self, contents: Contents, path: Path, pump: Pump) -> None:
        self.ensure_loaded()
        import zarr

        ties = contents.ties
        paths = placed((name for name in contents.tensors if name not in ties), _is_path)
        own: dict[str, dict[str, str]] = {place: {} for place in paths.values()}
        root = {NAMES: json.dumps([[name, place] for name, place in paths.items()])}
        for key, text in packed(contents).items():
            place, _, attribute = key.rpartition("@")
            if place in own and attribute not in ("", _DTYPE):
                own[place][attribute] = text
            else:
                root[key] = text
        group = zarr.create_group(str(path), zarr_format=3, attributes=root)
        for name, place in paths.items():
            self._write(group, place, contents.tensors[name], own[place], pump)

    def _write(self, group: Any, place: str, stored: Stored, attributes: dict[str, Any], pump: Pump) -> None:
        row = find(stored.dtype)
        dtype = numpy_dtype(row.name) if stored.dtype in _NATIVE else np.dtype(f"uint{8 * row.itemsize}")
        if stored.dtype not in _NATIVE:
            attributes = {**attributes, _DTYPE: stored.dtype}
        boxes = list(slabs(stored.shape, row.itemsize, nbytes=_CHUNK_BYTES))
        chunks = [each.stop - each.start for each in boxes[0]] if boxes else [max(each, 1) for each in stored.shape]
        array = group.create_array(
            place,
            shape=stored.shape,
            chunks=tuple(chunks),
            dtype=dtype,
            compressors=None,
            filters=None,
            fill_value=0,
            attributes=attributes,
            # Otherwise a chunk of negative zeros counts as empty.
            config={"write_empty_chunks": True},
        )
        lengths = [tuple(each.stop - each.start for each in box) for box in boxes]
        pieces = filled(pump.blocks(stored), map(prod, lengths), numpy_dtype(row.name))
        for box, length in zip(boxes, lengths, strict=True):
            array[box] = next(pieces).view(dtype).reshape(length)


def _is_array(folder: Path) -> bool | None:
    try:
        kind = json.loads((folder / _JSON).read_bytes()).get("node_type")
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
    return {"array": True, "group": False}.get(kind) if isinstance(kind, str) else None


def _is_path(name: str) -> bool:
    parts = name.split("/")
    fits = is_unicode(name) and not {"\\", "\0"} & set(name) and len(name.encode()) < 1000
    return fits and all(
        part not in ("", ".", "..", _JSON) and not part.startswith("__") and len(part.encode()) < 200 for part in parts
    )


class _Walk:
    """Collects the arrays of a folder from their descriptions; the library reads their values."""

    def __init__(self, root: Path, contents: Contents) -> None:
        self._root = root
        self._contents = contents
        self._text = 0

    def node(self, folder: Path, path: str, depth: int) -> None:
        where = str(folder / _JSON)
        self._text += (folder / _JSON).stat().st_size
        if self._text > _MOST_TEXT or depth > _DEEPEST:
            raise UnsafeFileError(
                f"{self._root} nests deeper than {_DEEPEST} or has more than {_MOST_TEXT} bytes of JSON, at {path!r}."
            )
        raw = (folder / _JSON).read_bytes()
        node = loaded(where, _JSON, raw, dict)
        kind = node.get("node_type")
        if node.get("zarr_format") != 3 or kind not in ("array", "group"):
            raise FileFormatError(f"{where} describes no array or group of Zarr v3.")
        attributes = node.get("attributes", {})
        if not isinstance(attributes, dict):
            raise FileFormatError(f"{where} has attributes that are no mapping.")
        if kind == "array":
            name = path or _LONE
            found = self._array(folder, where, node, attributes)
            if isinstance(found, str):
                self._contents.others[name] = found
            else:
                self._contents.tensors[name] = found
                attributes.pop(_DTYPE, None)
            if any(node.get("dimension_names") or ()):
                attributes.setdefault("dimension_names", node["dimension_names"])
        for key, value in attributes.items():
            text = value if isinstance(value, str) else json.dumps(value)
            self._contents.metadata[f"{path}@{key}" if path else key] = text
        if kind == "group":
            self._group(folder, path, depth)

    def _group(self, folder: Path, path: str, depth: int) -> None:
        with os.scandir(folder) as entries:
            inner = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
        for name, is_folder in inner:
            if name == _JSON:
                continue
            below = f"{path}/{name}" if path else name
            if is_folder and (folder / name / _JSON).is_file():
                self.node(folder / name, below, depth + 1)
            elif (folder / name).is_dir() and (folder / name / _JSON).is_file():
                self._contents.others[below] = NotTensor("a symbolic link to a folder, which is not followed")

    def _array(self, folder: Path, where: str, node: dict[str, Any], attributes: dict[str, Any]) -> Stored | str:
        kind = node.get("data_type")
        if not isinstance(kind, str) or kind not in _NATIVE | _EXTENDED:
            why = f"values of the type {json.dumps(kind):.80}, which is no tensor's"
            label = kind.get("name") if isinstance(kind, dict) else kind
            return NotTensor(why) if re.search("string|utf|bytes", str(label)) else why
        dtype = attributes.get(_DTYPE, kind)
        fits = isinstance(dtype, str) and dtype in DTYPES and find(dtype).itemsize == find(kind).itemsize
        if not fits or (dtype != kind and not kind.startswith("uint")):
            raise FileFormatError(f"{where}: the attribute {_DTYPE!r} says {dtype!r:.40}, which is no dtype of {kind}.")
        shape = checked(_lengths(node.get("shape"), where), find(dtype).itemsize, where)
        grid = node.get("chunk_grid")
        if not isinstance(grid, dict) or grid.get("name") != "regular":
            return "values in chunks of a kind that is not known here"
        settings = grid.get("configuration")
        chunks = checked(
            _lengths(settings.get("chunk_shape") if isinstance(settings, dict) else None, where),
            find(dtype).itemsize,
            where,
        )
        if len(chunks) != len(shape) or 0 in chunks:
            raise FileFormatError(f"{where} has chunks of shape {list(chunks)} for an array of shape {list(shape)}.")
        codecs = node.get("codecs")
        unknown = sorted(_codecs(codecs, where) - _CODECS)
        if unknown or node.get("storage_transformers"):
            return f"encoded by {named(unknown) or 'storage transformers'}, which is not known here"
        stored = _single(folder, node, dtype, shape, chunks)
        if stored is not None:
            return stored
        itemsize = find(dtype).itemsize
        declared = max(prod(shape), prod(chunks) if prod(shape) else 0) * itemsize
        # A look at the folder only for what would be large.
        if is_bomb(declared, 0) and is_bomb(declared, held := _size(folder)):
            raise UnsafeFileError(f"{folder} is out of all proportion: {declared} bytes are declared in {held}.")
        return Decoded(dtype, shape, _reading(folder, node, dtype, shape, chunks), (str(folder),))


def _lengths(found: Any, where: str) -> list[int]:
    if not isinstance(found, list) or not all(type(each) is int for each in found):
        raise FileFormatError(f"{where} has no shape, or no shape of its chunks.")
    return found


def _codecs(found: Any, where: str, depth: int = 0) -> set[str]:
    """The names of codecs, also of those inside shards."""
    names = set()
    for codec in found if isinstance(found, list) and depth < 4 else [None]:
        name = codec.get("name") if isinstance(codec, dict) else codec
        if not isinstance(name, str):
            raise FileFormatError(f"{where} has codecs without a name.")
        names.add(name)
        settings = codec.get("configuration", {}) if isinstance(codec, dict) else {}
        if name == "sharding_indexed" and isinstance(settings, dict):
            names |= _codecs(settings.get("codecs"), where, depth + 1)
            names |= _codecs(settings.get("index_codecs"), where, depth + 1)
    return names


def _single(
    folder: Path, node: dict[str, Any], dtype: str, shape: tuple[int, ...], chunks: tuple[int, ...]
) -> Extent | None:
    """An array whose values lie packed in one file; or ``None``."""
    little = [{"name": "bytes", "configuration": {"endian": "little"}}]
    plain = node["codecs"] == little or (
        find(dtype).itemsize == 1 and node["codecs"] in ([{"name": "bytes"}], [{"name": "bytes", "configuration": {}}])
    )
    encoding = node.get("chunk_key_encoding")
    if not plain or shape != chunks or not isinstance(encoding, dict) or encoding.get("name") != "default":
        return None
    settings = encoding.get("configuration") or {}
    separator = settings.get("separator", "/") if isinstance(settings, dict) else None
    if separator not in ("/", "."):
        return None
    file = folder / separator.join(["c"] + ["0"] * len(shape))
    if not file.is_file():
        return None
    stored = Extent(dtype, shape, str(file), 0)
    if file.stat().st_size != stored.nbytes:
        raise FileFormatError(f"{file} has {file.stat().st_size} bytes; its shape needs {stored.nbytes}.")
    return stored


def _size(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


def _reading(folder: Path, node: dict[str, Any], dtype: str, shape: tuple[int, ...], chunks: tuple[int, ...]) -> Any:
    row = find(dtype)
    raw = node["data_type"]
    if raw in _EXTENDED:
        raw = f"uint{8 * row.itemsize}"
    keys = ("shape", "chunk_grid", "chunk_key_encoding", "codecs", "zarr_format", "node_type")
    plain = {key: node[key] for key in keys if key in node}
    plain |= {"data_type": raw, "fill_value": _fill(node.get("fill_value"), node["data_type"]), "attributes": {}}

    def read() -> Iterator[np.ndarray[Any, Any]]:
        from zarr import Array, AsyncArray
        from zarr.core.metadata import ArrayV3Metadata
        from zarr.storage import LocalStore, StorePath

        try:
            described = ArrayV3Metadata.from_dict(plain)
            store = StorePath(LocalStore(str(folder), read_only=True), "")
            array: Any = Array(AsyncArray(metadata=described, store_path=store))
            for box in slabs(shape, row.itemsize, chunks, 2 * _CHUNK_BYTES):
                values = np.asarray(array[box])
                yield values.astype(values.dtype.newbyteorder("="), copy=False).view(numpy_dtype(row.name))
        except (OSError, ValueError, TypeError, KeyError, RuntimeError, NotImplementedError) as error:
            raise FileFormatError(f"{folder} cannot be read as Zarr: {type(error).__name__}: {error}.") from error

    return read


def _fill(value: Any, kind: str) -> Any:
    """The fill value of an extended dtype as the integer of its bits; others stay as they are."""
    if kind not in _EXTENDED:
        return value
    row = find(kind)
    unsigned = np.dtype(f"uint{8 * row.itemsize}")
    if isinstance(value, str) and value.startswith("0x"):
        return int(value, 16)
    try:
        return int(np.array(float(value or 0), np.float64).astype(numpy_dtype(row.name)).view(unsigned))
    except (TypeError, ValueError) as error:
        raise FileFormatError(f"{value!r:.40} is no fill value of {kind}.") from error


FORMAT = Zarr()
