"""`place_at`: what a URL is of; and what is read of a file on a server so that it can be opened."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from ...core.leaf_dtypes import fits_glob
from ...errors import FileFormatError
from ..base.stored import Conjugated, InMemory, Packed, View
from ..base.tree_strings import TIES, TREE
from ..base.urls import refuse_options
from ..ranges.requests import Elements, requests_for
from ..remote.addresses import address_of, is_url, scheme_of, takes_options
from ..remote.files import RemoteFile
from ..remote.tensors import RemoteTensor
from ..remote.transport import ServerPlace, run_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..base.contents import Contents
    from ..base.stored import Stored

__all__ = ["begin_all", "head_of", "needed", "place_at", "prepare", "remotely"]

_CHAIN = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*::|[^:]*://.*::[A-Za-z][A-Za-z0-9+.\-]*://")
_USUAL_HEADER = 320
"""How many bytes of a member of a .npz are read for the header of its array, beside its name."""
_TAIL = (64 << 10) + 256
"""How many bytes the end of an archive has at most before its directory, with a comment."""


def place_at(url: str, options: Mapping[str, Any] | None = None) -> Path:
    """The file that a URL is of: a `RemoteFile`, or for ``file://`` and the hub's cache a path.

    Args:
        url: The URL.
        options: What its file system is made with; for http and https, headers.

    Raises:
        FileFormatError: It is a URL of another scheme, or has no such options.
        ConversionError: As for `hub_file` and `stored_file`.
        OSError: As for `hub_file` and `stored_file`.
    """
    if isinstance(url, RemoteFile):
        return url  # type: ignore[return-value]
    _refuse_chain(url)
    if not is_url(url):
        return Path(url)
    if options and not takes_options(url):
        refuse_options(url)
    scheme = scheme_of(url)
    if scheme == "file":
        return _local_path(url)
    if scheme == "hf":
        from ..remote.hub import hub_file  # here, because most URLs are of other servers

        return hub_file(url)  # type: ignore[return-value]
    address = address_of(url, options or {})
    if address is None:
        from ..remote.storage import stored_file  # here, because most URLs are of servers

        return stored_file(url, options or {})  # type: ignore[return-value]
    return RemoteFile(ServerPlace(address))  # type: ignore[return-value]


def _local_path(url: str) -> Path:
    """The path that a URL of ``file://`` is of.

    Raises:
        FileFormatError: It names another machine, or has a part that no path has.
    """
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    told = parts._replace(netloc=place, query="", fragment="").geturl()[:200]
    if parts.netloc not in ("", "localhost"):
        raise FileFormatError(
            f"{told!r} is of another machine, and file:// is read on this one only.",
            "file:///folder/model.safetensors, with three slashes, for a file of this machine",
        )
    if parts.query or parts.fragment:
        raise FileFormatError(
            f"{told!r} has a part behind ? or #, which no path has.",
            "the path itself; or write %3F for ?, and %23 for #",
        )
    return Path(unquote(parts.path))


def _refuse_chain(text: str) -> None:
    """Raise for a chain of file systems, such as ``simplecache::https://…``."""
    if _CHAIN.match(text) and not os.path.lexists(text):
        raise FileFormatError(
            f"{text.partition('://')[0].partition('::')[0][:200]!r} and what follows it are a chain of file systems, "
            "which are not read.",
            "the URL that is last in the chain",
        )


def head_of(file: RemoteFile, nbytes: int) -> bytes:
    """The first bytes of a file, for which its first window is read, and of an archive the last."""
    file.begin()
    head = file.read_at(0, min(nbytes, file.size))
    if head[:2] == b"PK":
        file.hold([(max(file.size - _TAIL, 0), file.size)])
    return head


def begin_all(files: Iterable[Any]) -> None:
    """Read the first windows of files, side by side."""
    run_all([file.begin for file in files])


def prepare(file: RemoteFile, format: str) -> None:  # noqa: A002 - the term
    """Read the whole header of a file at once, where the first bytes or the last say how long it is."""
    if format == "safetensors":
        from ..formats.safetensors.header import HEADER_LIMIT

        length = int.from_bytes(file.read_at(0, min(8, file.size)), "little")
        if length <= HEADER_LIMIT and 8 + length <= file.size:
            file.hold([(0, 8 + length)])
    if format == "npz":
        from ..encodings.zip_archive import Archive

        archive: Any = Archive(file)
        elements = []
        for member in archive.values():
            stop = min(member.header + len(member.name.encode()) + _USUAL_HEADER, file.size)
            span = stop - member.header
            elements.append(Elements(member.header, (span,), (1,), 1, member.place, (0,)))
        file.hold([(request.start, request.stop) for request in requests_for(elements)])


def remotely(file: RemoteFile, contents: Contents) -> Contents:
    """The contents of a file on a server, with tensors that are read from it when they are used.

    Raises:
        FileFormatError: A tensor is compressed or encoded.
    """
    for name, stored in contents.tensors.items():
        contents.tensors[name] = _remote(file, name, stored)
    file.opened()
    return contents


def _remote(file: RemoteFile, name: str, stored: Stored) -> Stored:
    if isinstance(stored, (Packed, View)):
        return RemoteTensor(stored)
    if isinstance(stored, Conjugated):
        stored.source = _remote(file, name, stored.source)
        return stored
    if isinstance(stored, InMemory):
        return stored
    raise file.refuse(f"has {name[:200]!r} compressed or encoded, so that it is not read in parts")


def needed(
    where: Mapping[str, str], metadata: Mapping[str, str], names: Sequence[str]
) -> dict[str, str]:
    """Of the tensors of an index, those of shards that have one that is asked for.

    Args:
        where: The shard of each tensor.
        metadata: The strings of the index.
        names: The patterns; if one is for no tensor of the index, all shards are needed to tell why.
    """
    if TIES in metadata or TREE in metadata:
        return dict(where)
    shards = set()
    for pattern in names:
        fits = fits_glob(pattern)
        shards_there = {shard for name, shard in where.items() if fits(name)}
        if not shards_there:
            return dict(where)
        shards |= shards_there
    return {name: shard for name, shard in where.items() if shard in shards}
