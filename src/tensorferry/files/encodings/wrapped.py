"""Recognise files that contain a file of tensors, or point to one, and say how to get it."""

from __future__ import annotations

import bz2
import lzma
import shlex
import zlib
from typing import TYPE_CHECKING

from ...errors import FileFormatError
from ...hints import Hint, InPython

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["wrapped"]

_MAGIC = {
    b"\x1f\x8b\x08": ("gzip", "gunzip -c {} > {}"),
    b"\x28\xb5\x2f\xfd": ("Zstandard", "zstd -d {} -o {}"),
    b"BZh": ("bzip2", "bunzip2 -c {} > {}"),
    b"\xfd7zXZ\0": ("xz", "unxz -c {} > {}"),
    b"\x04\x22\x4d\x18": ("LZ4", "lz4 -d {} {}"),
}
"""By their first bytes: the name for people, and the command that unpacks it."""
_SUFFIXES = (".gz", ".zst", ".zstd", ".bz2", ".xz", ".lz4", ".lzma", ".z")
_INFLATE = (
    "import zlib; from pathlib import Path; "
    "Path({1!r}).write_bytes(zlib.decompress(Path({0!r}).read_bytes()))"
)
_UNXZ = "import lzma; from pathlib import Path; Path({1!r}).write_bytes(lzma.open({0!r}).read())"
_SHOWN = 1 << 10
_POINTER = b"version https://git-lfs.github.com/spec/"
"""The beginning of a pointer file of Git LFS."""
_PAGES = (b"<!doctype html", b"<html")


def wrapped(path: Path, head: bytes) -> FileFormatError | None:
    """The error for such a file, with a hint; ``None`` for other files."""
    if head.startswith(_POINTER):
        quoted = shlex.quote(path.name)
        return FileFormatError(
            f"{path} is a pointer of Git LFS, which stands in the place of the file.",
            f"git lfs pull -I {quoted}, in its repository",
        )
    if head.lstrip().lower().startswith(_PAGES):
        return FileFormatError(
            f"{path} is a web page in HTML, perhaps what a server said instead of giving the file.",
            "get the file again, by the address of the file itself",
        )
    inside, out = _first(path), path.with_name(_plain(path.name))
    for magic, (what, command) in _MAGIC.items():
        if head.startswith(magic):
            hint = command.format(shlex.quote(str(path)), shlex.quote(str(out)))
            return FileFormatError(
                f"{path} is compressed, by {what}{_kind(inside)}: nothing in it has a place.", hint
            )
    if head[:1] == b"\x78" and int.from_bytes(head[:2], "big") % 31 == 0 and inside:
        what, hint = "zlib, as joblib does", _INFLATE
    elif head.startswith(b"\x5d\0\0") and inside:
        what, hint = "LZMA", _UNXZ
    else:
        return _tar(path)
    script = hint.format(str(path), str(out))
    return FileFormatError(
        f"{path} is compressed, by {what}{_kind(inside)}: nothing in it has a place.",
        Hint(InPython(script)),
    )


def _plain(name: str) -> str:
    suffix = next((ending for ending in _SUFFIXES if name.lower().endswith(ending)), "")
    if suffix:
        return name[: -len(suffix)]
    stem, dot, last = name.rpartition(".")
    if dot:
        return f"{stem}.unpacked.{last}"
    return f"{name}.unpacked"


def _first(path: Path) -> bytes:
    """The first unpacked bytes, if the standard library can unpack it."""
    with path.open("rb") as file:
        raw = file.read(_SHOWN)
    for make in (lambda: zlib.decompressobj(47), bz2.BZ2Decompressor, lzma.LZMADecompressor):
        try:
            return make().decompress(raw, 64)
        except (zlib.error, OSError, ValueError, lzma.LZMAError):
            continue
    return b""


def _kind(inside: bytes) -> str:
    if inside.startswith(b"PK\3\4"):
        return ", and has a zip archive inside"
    if inside[:1] == b"\x80":
        return ", and has a pickle inside"
    return ""


def _tar(path: Path) -> FileFormatError | None:
    with path.open("rb") as file:
        first = file.read(512)
    if first[257:262] != b"ustar":
        return None
    name = first[:100].rstrip(b"\0").decode(errors="replace")
    quoted = shlex.quote(str(path))
    return FileFormatError(
        f"{path} is a tar archive, which begins with {name[:80]!r}.",
        f"tar -C {shlex.quote(str(path.parent))} -xf {quoted}",
    )
