"""Descriptions of arrays and groups in Zarr 3 and 2, in a common form."""

from __future__ import annotations

import json
import os
import re
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ....core.dtypes import DTYPES, ORDINARY, find
from ....errors import FileFormatError
from ....host.numpy_dtypes import numpy_dtype
from ...base.contents import NotTensor
from ...base.wording import named
from ...encodings.json_scan import loaded
from ...encodings.shapes import checked

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = [
    "JSON",
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
"""Of https://github.com/zarr-developers/zarr-extensions/tree/main/data-types those that take whole bytes; TensorStore
has them in version 2 too, under the same names."""
_CODES = {f"{np.dtype(name).kind}{np.dtype(name).itemsize}": name for name in ORDINARY}
"""Those that https://zarr-specs.readthedocs.io/en/latest/v3/data-types/index.html has, as version 2 calls them."""
_CODECS = frozenset({"blosc", "bytes", "crc32c", "gzip", "sharding_indexed", "transpose", "zstd"})
_CODECS_V2 = frozenset({"blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd"}) | frozenset(
    {"adler32", "bitround", "crc32", "crc32c", "delta", "fletcher32", "shuffle"}
)
"""Of numcodecs those that turn numbers into bytes and back, and run nothing: https://numcodecs.readthedocs.io."""


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


class ArrayLayout(NamedTuple):
    """The layout of an array in its folder.

    Args:
        kind: The canonical name of the dtype.
        shape: Lengths of the axes.
        chunks: The shape of a chunk.
        lone: The file with all values without gaps and without encoding, if there is one.
        plain: The description for the library, in which unsupported dtypes are unsigned integers.
    """

    kind: str
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    lone: str | None
    plain: dict[str, Any]


def description_of(folder: Path | str) -> str | None:
    """The name of the file with the description of a folder; ``None`` if it is neither an array nor a group."""
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
    return {"array": True, "group": False}.get(kind) if isinstance(kind, str) else None


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
    return _layout_v3(node) if node.described["zarr_format"] == 3 else _layout_v2(node)


def _layout_v3(node: ZarrNode) -> ArrayLayout | str:
    where, found = node.where, node.described
    kind = found.get("data_type")
    if not isinstance(kind, str) or kind not in ORDINARY | _EXTENDED:
        label = kind.get("name") if isinstance(kind, dict) else kind
        return _no_tensor(kind, is_text=bool(re.search("string|utf|bytes", str(label))))
    grid = found.get("chunk_grid")
    if not isinstance(grid, dict) or grid.get("name") != "regular":
        return "values in chunks of a kind that is not known here"
    settings = grid.get("configuration")
    chunk_shape = settings.get("chunk_shape") if isinstance(settings, dict) else None
    shape, chunks = _shapes(found.get("shape"), chunk_shape, kind, where)
    codecs = found.get("codecs")
    unknown = sorted(_names(codecs, where) - _CODECS)
    if unknown or found.get("storage_transformers"):
        return f"encoded by {named(unknown) or 'storage transformers'}, which is not known here"
    little = [{"name": "bytes", "configuration": {"endian": "little"}}]
    packed = codecs == little or (
        find(kind).itemsize == 1
        and codecs in ([{"name": "bytes"}], [{"name": "bytes", "configuration": {}}])
    )
    encoding = found.get("chunk_key_encoding")
    settings = (encoding.get("configuration") or {}) if isinstance(encoding, dict) else None
    separator = settings.get("separator", "/") if isinstance(settings, dict) else None
    packed = packed and isinstance(encoding, dict) and encoding.get("name") == "default"
    keys = ("shape", "chunk_grid", "chunk_key_encoding", "codecs", "zarr_format", "node_type")
    plain = {key: found[key] for key in keys if key in found}
    plain |= {
        "data_type": _held_as(kind),
        "fill_value": _fill(found.get("fill_value"), kind),
        "attributes": {},
    }
    return ArrayLayout(
        kind, shape, chunks, _lone("c", shape, chunks, separator) if packed else None, plain
    )


def _layout_v2(node: ZarrNode) -> ArrayLayout | str:
    where, found = node.where, node.described
    code = found.get("dtype")
    extended = isinstance(code, str) and code in _EXTENDED
    order, kind = ("<", code) if extended else (str(code)[:1], _CODES.get(str(code)[1:]))
    if not isinstance(code, str) or kind is None or order not in "<>|":
        return _no_tensor(code, is_text=str(code)[1:2] in "OSU")
    shape, chunks = _shapes(found.get("shape"), found.get("chunks"), kind, where)
    codecs = [*(found.get("filters") or ()), *filter(None, [found.get("compressor")])]
    if not all(isinstance(codec, dict) and isinstance(codec.get("id"), str) for codec in codecs):
        raise FileFormatError(f"{where} has codecs without a name.")
    unknown = sorted({codec["id"] for codec in codecs} - _CODECS_V2)
    if unknown:
        return f"encoded by {named(unknown)}, which is not known here"
    separator = found.get("dimension_separator", ".")
    packed = not codecs and found.get("order") == "C" and (order != ">" or find(kind).itemsize == 1)
    keys = (
        "shape",
        "chunks",
        "compressor",
        "filters",
        "order",
        "zarr_format",
        "dimension_separator",
    )
    plain = {key: found[key] for key in keys if key in found}
    held = np.dtype(f"<u{find(kind).itemsize}").str if extended else code
    plain |= {"dtype": held, "fill_value": _fill(found.get("fill_value"), kind), "attributes": {}}
    return ArrayLayout(
        kind, shape, chunks, _lone("", shape, chunks, separator) if packed else None, plain
    )


def _no_tensor(kind: Any, *, is_text: bool) -> str:
    why = f"values of the type {json.dumps(kind):.80}, which is no tensor's"
    return NotTensor(why) if is_text else why


def _shapes(
    shape: Any, chunks: Any, kind: str, where: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    for found in (shape, chunks):
        if not isinstance(found, list) or not all(type(each) is int for each in found):
            raise FileFormatError(f"{where} has no shape, or no shape of its chunks.")
    lengths, parts = (checked(found, find(kind).itemsize, where) for found in (shape, chunks))
    if len(parts) != len(lengths) or 0 in parts:
        raise FileFormatError(
            f"{where} has chunks of shape {list(parts)} for an array of shape {list(lengths)}."
        )
    return lengths, parts


def _names(found: Any, where: str, depth: int = 0) -> set[str]:
    """The names of codecs, also inside shards."""
    names = set()
    for codec in found if isinstance(found, list) and depth < 4 else [None]:
        name = codec.get("name") if isinstance(codec, dict) else codec
        if not isinstance(name, str):
            raise FileFormatError(f"{where} has codecs without a name.")
        names.add(name)
        settings = codec.get("configuration", {}) if isinstance(codec, dict) else {}
        if name == "sharding_indexed" and isinstance(settings, dict):
            names |= _names(settings.get("codecs"), where, depth + 1)
            names |= _names(settings.get("index_codecs"), where, depth + 1)
    return names


def _lone(
    prefix: str, shape: tuple[int, ...], chunks: tuple[int, ...], separator: Any
) -> str | None:
    """The key of the only chunk of an array."""
    if shape != chunks or not prod(shape) or separator not in ("/", "."):
        return None
    return str(separator).join([*filter(None, [prefix]), *["0"] * len(shape)]) or "0"


def _held_as(kind: str) -> str:
    return f"uint{8 * find(kind).itemsize}" if kind in _EXTENDED else kind


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
