"""Codecs of Zarr that give at most as many bytes as a chunk has, in place of the library's own."""

from __future__ import annotations

import bz2
import dataclasses
import lzma
import zlib
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ....errors import UnsafeFileError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["bounded"]

_OVERHEAD = 1 << 20
_MOST_WINDOW = 1 << 28
"""The most bytes for LZMA's dictionary: four times those of its highest preset."""
_MOST_WIDER = 16
"""How much wider numbers may become in the encoded form: from one byte to a complex128."""
_CHECKSUMS = frozenset({"adler32", "crc32", "crc32c", "fletcher32"})
_NUMBERS = frozenset({"astype", "bitround", "delta"})
_STREAMS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "gzip": lambda _: zlib.decompressobj(31),
    "zlib": lambda _: zlib.decompressobj(15),
    "bz2": lambda _: bz2.BZ2Decompressor(),
    "lzma": lambda settings: _lzma(settings.get("format", lzma.FORMAT_XZ), settings.get("filters")),
}
_PLACES = {"blosc": 4, "lz4": 0}
"""The position of the decompressed size.

See README_CHUNK_FORMAT.rst of c-blosc; numcodecs writes it before LZ4 data.
"""
_COMPRESSORS = frozenset({*_STREAMS, *_PLACES, "zstd"})


def _lzma(form: int, filters: Any) -> lzma.LZMADecompressor:
    if any(filter_.get("dict_size", 0) > _MOST_WINDOW for filter_ in filters or ()):
        raise UnsafeFileError(
            f"a chunk of it asks for more than {_MOST_WINDOW:,} bytes to look back at."
        )
    return lzma.LZMADecompressor(form, memlimit=None if filters else _MOST_WINDOW, filters=filters)


class _Size(NamedTuple):
    """A number of bytes: the most, and whether it is exact."""

    most: int
    exact: bool = True

    def after(self, name: str) -> _Size:
        """The size after a codec with this name."""
        if name in _COMPRESSORS:
            return _Size(self.most + self.most // 8 + _OVERHEAD, False)
        if name in _CHECKSUMS:
            return _Size(self.most + 4, self.exact)
        if name in _NUMBERS:
            return _Size(self.most * _MOST_WIDER, False)
        return self


def bounded(described: Any, nbytes: int, itemsize: int) -> tuple[Any, int]:
    """Replace the codecs in the library's description of an array by bounded ones.

    Args:
        described: The library's ``ArrayV2Metadata`` or ``ArrayV3Metadata``.
        nbytes: The size of a chunk in bytes.
        itemsize: The size of an element in bytes.

    Returns:
        The description, and the most bytes of a chunk's file.
    """
    if hasattr(described, "codecs"):
        codecs, size = _bounded_v3(described.codecs, _Size(nbytes), itemsize)
        return dataclasses.replace(described, codecs=codecs), size.most
    size = _Size(nbytes)
    filters = []
    for filter_ in described.filters or ():
        filters.append(_bounded_v2(filter_, size))
        size = size.after(filter_.codec_id)
    compressor = described.compressor
    if compressor is not None:
        compressor, size = _bounded_v2(compressor, size), size.after(compressor.codec_id)
    # Set directly, because the constructor accepts only the library's codecs.
    object.__setattr__(described, "filters", tuple(filters) or None)
    object.__setattr__(described, "compressor", compressor)
    return described, size.most


def _bounded_v3(codecs: Any, size: _Size, itemsize: int) -> tuple[tuple[Any, ...], _Size]:
    from zarr.codecs import ShardingCodec

    bounded_codecs = []
    for codec in codecs:
        name, settings = codec.to_dict()["name"], codec.to_dict().get("configuration") or {}
        if isinstance(codec, ShardingCodec):
            piece = _Size(prod(codec.chunk_shape) * itemsize)
            inner, encoded = _bounded_v3(codec.codecs, piece, itemsize)
            bounded_codecs.append(
                ShardingCodec(
                    chunk_shape=codec.chunk_shape,
                    codecs=inner,
                    index_codecs=codec.index_codecs,
                    index_location=codec.index_location,
                )
            )
            # Each piece has 16 bytes in the index, and a writer may leave unused bytes.
            size = _Size(
                2 * (size.most // max(piece.most, 1)) * (encoded.most + 16) + _OVERHEAD, False
            )
        else:
            bounded_codecs.append(
                _codec_v3(name, settings, size) if name in _COMPRESSORS else codec
            )
            size = size.after(name)
    return tuple(bounded_codecs), size


def _codec_v3(name: str, settings: dict[str, Any], size: _Size) -> Any:
    from zarr.abc.codec import BytesBytesCodec

    class Bounded(BytesBytesCodec):  # type: ignore[misc, unused-ignore]  # without zarr it has no types
        is_fixed_size = False

        def to_dict(self) -> dict[str, Any]:
            return {"name": name, "configuration": settings}

        def _decode_sync(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
            raw = _expanded(name, settings, chunk_bytes.to_bytes(), size)
            return chunk_spec.prototype.buffer.from_bytes(raw)

        async def _decode_single(self, chunk_data: Any, chunk_spec: Any) -> Any:
            import asyncio  # here, because it imports ssl; zarr has imported it

            return await asyncio.to_thread(self._decode_sync, chunk_data, chunk_spec)

        def compute_encoded_size(self, input_byte_length: int, chunk_spec: Any) -> int:
            raise NotImplementedError  # as in zarr's own codecs of variable size: asked for when a shard is written

    return Bounded()


def _bounded_v2(codec: Any, size: _Size) -> Any:
    if codec.codec_id not in _COMPRESSORS:
        return codec
    from numcodecs.abc import Codec

    decode = partial(_expanded, codec.codec_id, codec.get_config())

    class Bounded(Codec):  # type: ignore[misc, unused-ignore]  # it has no types
        codec_id = codec.codec_id

        def encode(self, buf: Any) -> Any:
            return codec.encode(buf)

        def decode(self, buf: Any, out: Any = None) -> Any:
            return decode(np.ascontiguousarray(buf).tobytes(), size)

    return Bounded()


def _expanded(name: str, settings: dict[str, Any], raw: bytes, size: _Size) -> Any:
    """Decompress a chunk, or a part of one.

    Raises:
        UnsafeFileError: It has more bytes than declared.
    """
    if name in _STREAMS:
        return _streamed(partial(_STREAMS[name], settings), raw, size.most)
    import numcodecs

    codec = {
        "blosc": numcodecs.Blosc,
        "lz4": getattr(numcodecs, "LZ4", None),
        "zstd": numcodecs.Zstd,
    }[name]()
    if name == "zstd":
        told = _told(raw)
    else:
        told = int.from_bytes(raw[_PLACES[name] :][:4], "little")
    if told is None:
        if not size.exact:
            raise ValueError(
                "a chunk of it is compressed twice, and does not say to how many bytes"
            )
        told = size.most
    _refuse_more(told, size.most)
    if name == "blosc" and int.from_bytes(raw[12:16], "little") != len(raw):
        # Otherwise the library would read past the end.
        raise ValueError("a chunk of it is cut off")
    # Into memory of that size, because another frame without a declared size may follow.
    if name == "zstd":
        return codec.decode(raw, out=np.empty(told, np.uint8))
    return codec.decode(raw)


def _streamed(start: Callable[[], Any], raw: bytes, most: int) -> bytes:
    pieces, left = [], most + 1
    while raw:
        stream = start()
        piece = stream.decompress(raw, left)
        pieces.append(piece)
        left -= len(piece)
        _refuse_more(most + 1 - left, most)
        if not stream.eof:
            raise ValueError("a chunk of it is cut off")
        # Another stream may follow, and zeros after the last one.
        raw = stream.unused_data.lstrip(b"\0")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _told(raw: bytes) -> int | None:
    """The size that the first frame of Zstandard declares: RFC 8878, 3.1.1.1."""
    if raw[:4] == b"\x28\xb5\x2f\xfd" and len(raw) > 4:
        flags = raw[4]
    else:
        flags = 0
    is_single = flags >> 5 & 1
    width = (is_single, 2, 4, 8)[flags >> 6]
    start = 5 + (1 - is_single) + (0, 1, 2, 4)[flags & 3]
    if not width:
        return None
    size = int.from_bytes(raw[start : start + width], "little")
    return size + 256 if width == 2 else size


def _refuse_more(nbytes: int, most: int) -> None:
    if nbytes > most:
        raise UnsafeFileError(
            f"a chunk of it holds {nbytes:,} bytes or more, where {most:,} are declared: a bomb."
        )
