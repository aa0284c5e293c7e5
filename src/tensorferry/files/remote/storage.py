"""`StoragePlace`: a file of an object store, or of whatever else fsspec has a file system for."""

from __future__ import annotations

import errno
import importlib
import os
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn
from urllib.parse import unquote, urlsplit

from ...errors import FileFormatError, FrameworkNotInstalledError
from ...hints import Hint, Spoken
from ..base.wording import named
from .addresses import USUAL_FILES, scheme_of, validate_sibling
from .files import RemoteFile
from .pins import Pin, RemotePlace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


__all__ = [
    "StorageAddress",
    "StoragePlace",
    "address_in",
    "file_system",
    "made_system",
    "stored_file",
]

_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs"}
"""What has the file systems of these schemes, with fsspec; of others, fsspec knows the package."""
_PUBLIC = {"s3fs": '{"anon": True}', "gcsfs": '{"token": "anon"}'}
"""Options by which what is public is read without credentials."""
_TAGS = ("ETag", "etag", "generation", "VersionId", "version_id", "md5Hash", "sha")
"""What file systems call a name of a file's version, the best first."""
_TIMES = ("LastModified", "last_modified", "mtime", "updated", "modified", "modify")
"""What they call the time of its last change."""
_MOST_TOLD = 10


@dataclass(frozen=True)
class StorageAddress:
    """A file of a file system that fsspec has.

    Args:
        url: Its URL, with whatever is in it.
        options: What the file system is made with, keys and passwords too: pickles have them,
            messages do not.
        shown: The URL as messages show it.
    """

    url: str
    options: Mapping[str, Any] = field(hash=False, repr=False)
    shown: str

    def __repr__(self) -> str:
        return f"<StorageAddress {self.shown}>"

    @property
    def scheme(self) -> str:
        """What is before the ``://``."""
        return scheme_of(self.url)

    @property
    def source(self) -> str:
        """The URL of which a hint downloads it."""
        return self.url

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.shown.rstrip("/").rpartition("/")[2]

    def within(self, name: str) -> StorageAddress:
        """The address of a file in this folder."""
        url, mark, query = self.url.partition("?")
        told, _, _ = self.shown.partition("?")
        return replace(
            self,
            url=f"{url.rstrip('/')}/{name}{mark}{query}",
            shown=f"{told.rstrip('/')}/{name}",
        )

    def sibling(self, name: str) -> StorageAddress:
        """The address of another file in the same folder.

        Raises:
            UnsafeFileError: The name could lead out of the folder.
        """
        validate_sibling(name, self.shown)
        url, mark, query = self.url.partition("?")
        folder = url.rpartition("/")[0] + mark + query
        told = self.shown.partition("?")[0].rpartition("/")[0]
        return replace(self, url=folder, shown=told).within(name)


def _shown(url: str) -> str:
    """A URL for messages."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return f"{scheme_of(url)}://…"
    # Not `geturl`, which leaves out the slashes where no host is named.
    place = parts.netloc.rpartition("@")[2]
    query = "?…" if parts.query else ""
    return f"{parts.scheme}://{place}{parts.path}{query}"


class _Version(NamedTuple):
    """A file as its file system has it.

    Args:
        pin: What the file system tells of it.
        read: What gives bytes of this version; `None` if another one could come.
        is_folder: Whether it is a folder.
    """

    pin: Pin
    read: Callable[[int, int], bytes] | None
    is_folder: bool = False


class StoragePlace(RemotePlace):
    """A file of a file system that fsspec has.

    Of S3, a request asks for the entity tag that the file had when it was opened; of Google Cloud
    Storage for its generation. Of others, what is told of the file is compared after each request.

    Args:
        address: Its address.
        pin: What it was; ``None`` before the first answer.
    """

    def __init__(self, address: StorageAddress, pin: Pin | None = None) -> None:
        super().__init__(address, pin)
        self._version: tuple[int, _Version] | None = None

    def look(self) -> _Version:
        """What the file is now, which is what it was.

        Raises:
            FileFormatError: It has changed.
            OSError: As for `fetch`.
        """
        version: _Version = self.tried(_versions.get(self.address.scheme, _compared), self.address)
        if not version.is_folder:
            self.check(version.pin)
            # The process is beside it: a connection of a parent is its own.
            self._version = os.getpid(), version
        return version

    def fetch(self, start: int, views: Sequence[memoryview], *, is_first: bool = False) -> int:
        """See `RemotePlace.fetch`."""
        held = self._version
        version = held[1] if held is not None and held[0] == os.getpid() else self.look()
        nbytes = version.pin.nbytes
        stop = start + sum(view.nbytes for view in views)
        if is_first:
            stop = min(stop, nbytes)
        if not nbytes:
            raise FileFormatError(f"{self} is empty: it has no bytes.", "get the file again")
        data = self._bytes(version, start, stop)
        if len(data) != stop - start:
            self.refuse_changed()
        at = 0
        for view in views:
            part = data[at : at + view.nbytes]
            view[: len(part)] = part
            at += len(part)
        return len(data)

    def _bytes(self, version: _Version, start: int, stop: int) -> memoryview:
        if version.read is not None:
            try:
                return memoryview(self.tried(version.read, start, stop))
            except FileNotFoundError:
                self.look()  # it may be gone, and not only this version of it
            self.refuse_changed()
        system, path = file_system(self.address)
        data = memoryview(self.tried(partial(system.cat_file, path, start=start, end=stop)))
        self.look()
        return data

    def tried(self, call: Callable[..., Any], *given: Any) -> Any:
        """What a call of a file system gives.

        Raises:
            OSError: It fails.
        """
        failed: Exception
        try:
            return call(*given)
        except (FileFormatError, FrameworkNotInstalledError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 - of many libraries
            failed = error
        # Not in the `except`: what a library raises may have the whole URL, and keys.
        if type(failed).__name__ == "FileExpired":
            self.refuse_changed()
        return _refuse_failed(failed, self.address)

    def __str__(self) -> str:
        return str(self.address.shown)


def _refuse_failed(failed: Exception, address: StorageAddress) -> NoReturn:
    """Raise for what a file system raised, without what it says: that may have keys.

    Raises:
        FileNotFoundError: There is no such file.
        FileExistsError: It exists already.
        PermissionError: It is not given with these credentials.
        OSError: Anything else.
    """
    shown, kind = address.shown, type(failed).__name__
    if isinstance(failed, FileNotFoundError):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), shown)
    if isinstance(failed, FileExistsError):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), shown)
    if "Credential" in kind or isinstance(failed, PermissionError):
        public = _PUBLIC.get(_PACKAGES.get(address.scheme, ""))
        what = "it is not given without other credentials"
        if public is not None:
            what += f". Hint: storage_options={public} reads what is public"
        raise PermissionError(errno.EACCES, what, shown)
    if isinstance(failed, TypeError) and address.options:
        raise FileFormatError(
            f"{shown}: the file system of {address.scheme}:// takes no such storage_options as "
            f"{named(sorted(map(str, address.options)))}.",
            "other storage_options; the documentation of its file system has them",
        )
    raise OSError(errno.EIO, f"the file system of {address.scheme}:// fails ({kind})", shown)


# -- how a version is read -------------------------------------------------------------------------


def _compared(address: StorageAddress) -> _Version:
    """A file of which any version may come, so that what is told of it is compared afterwards."""
    system, path = file_system(address)
    system.invalidate_cache(path)
    info = system.info(path)
    if info.get("type") == "directory":
        return _Version(Pin(0, "", ""), None, is_folder=True)
    return _Version(_pin(info, address, system, path), None)


def _by_tag(address: StorageAddress) -> _Version:
    """A file of S3: its entity tag, or the number of its version, is sent with each request."""
    system, path = file_system(address)
    system.invalidate_cache(path)
    try:
        opened = system.open(path, "rb", cache_type="none", fill_cache=False)
    except (FileNotFoundError, ValueError):
        # Of a bucket, or of what only begins names.
        return _compared(address)
    info = opened.details
    if info.get("type") == "directory":
        return _compared(address)
    return _Version(_pin(info, address), opened._fetch_range)  # noqa: SLF001 - what fsspec's caches call


def _by_generation(address: StorageAddress) -> _Version:
    """A file of Google Cloud Storage: the number of its version is sent with each request."""
    system, path = file_system(address)
    system.invalidate_cache(path)
    info = system.info(path)
    generation = info.get("generation")
    if info.get("type") == "directory" or not generation:
        return _compared(address)

    def read(start: int, stop: int) -> bytes:
        data: bytes = system.cat_file(path, start=start, end=stop, generation=generation)
        return data

    return _Version(_pin(info, address), read)


_versions: Mapping[str, Callable[[StorageAddress], _Version]] = {
    "s3": _by_tag,
    "s3a": _by_tag,
    "gs": _by_generation,
    "gcs": _by_generation,
}
"""How a version is read, for file systems that are asked for one."""


def _pin(
    info: Mapping[str, Any], address: StorageAddress, system: Any = None, path: str = ""
) -> Pin:
    """What a file system tells of a file, in its own words.

    Args:
        info: What it tells.
        address: The file.
        system: The file system, if it may be asked when the file was changed.
        path: What that calls the file.

    Raises:
        FileFormatError: It does not tell the size.
    """
    tag = next((str(info[key]) for key in _TAGS if info.get(key)), "")
    when = next((str(info[key]) for key in _TIMES if info.get(key)), "")
    if not (tag or when) and system is not None:
        try:
            when = str(system.modified(path))
        except (NotImplementedError, KeyError, AttributeError, ValueError):
            when = str(info.get("created") or "")
    size = info.get("size")
    if not isinstance(size, int):
        raise FileFormatError(
            f"The file system of {address.scheme}:// does not tell how long {address.shown} is.",
            "a copy of it on this machine",
        )
    return Pin(size, tag, when)


# -- file systems ----------------------------------------------------------------------------------


def file_system(address: StorageAddress) -> tuple[Any, str]:
    """The file system of an address, and what it calls the file.

    Raises:
        FileFormatError: fsspec has none for this scheme.
        FrameworkNotInstalledError: fsspec, or the package that has it, is not installed.
    """
    _, path, given = _kind_of(address)
    # Of one process only, and all of its threads: fsspec's own are of one thread.
    for pid, scheme, options, system in _systems:
        if (pid, scheme, options) == (os.getpid(), address.scheme, given):
            return system, path
    system, _ = made_system(address)
    _systems.insert(0, (os.getpid(), address.scheme, given, system))
    del _systems[_MOST_SYSTEMS:]
    return system, path


def made_system(address: StorageAddress) -> tuple[Any, str]:
    """A file system of its own, which nobody else uses, and what it calls the file.

    Raises:
        ConversionError: As for `file_system`.
    """
    kind, path, given = _kind_of(address)
    return kind(**{**given, "skip_instance_cache": True}), path


def _kind_of(address: StorageAddress) -> tuple[Any, str, dict[str, Any]]:
    kind = _class_of(address.scheme)
    # As fsspec.core.url_to_fs, which also takes chains and caches.
    given = {**kind._get_kwargs_from_urls(address.url), **address.options}  # noqa: SLF001
    return kind, kind._strip_protocol(address.url), given  # noqa: SLF001


_systems: list[tuple[int, str, Mapping[str, Any], Any]] = []
"""File systems that were made: the process, the scheme, what they were made with."""
_MOST_SYSTEMS = 16


def _class_of(scheme: str) -> Any:
    """The class of a file system.

    Raises:
        FileFormatError: fsspec has none for this scheme.
        FrameworkNotInstalledError: fsspec, or the package that has it, is not installed.
    """
    try:
        registered = importlib.import_module("fsspec.registry")
    except ImportError:
        _refuse_absent(scheme, _PACKAGES.get(scheme, "fsspec"))
    if scheme not in registered.known_implementations and scheme not in registered.registry:
        raise FileFormatError(
            f"{scheme}:// is no kind of URL that is read: http://, https://, hf:// and file:// are, "
            "and those for which fsspec has a file system, such as s3://, gs:// and memory://.",
            Hint(
                Spoken(
                    'load("https://example.org/model.safetensors")',
                    "tensorferry inspect https://example.org/model.safetensors",
                )
            ),
        )
    failed: ImportError
    try:
        return registered.get_filesystem_class(scheme)
    except ImportError as error:
        failed = error
    missing = str(getattr(failed.__cause__, "name", None) or "fsspec[full]")
    return _refuse_absent(scheme, _PACKAGES.get(scheme, missing.partition(".")[0]))


def _refuse_absent(scheme: str, package: str) -> NoReturn:
    raise FrameworkNotInstalledError(
        f"{scheme}:// needs {package}, which is not installed.", f"pip install {package}"
    )


def address_in(url: str, options: Mapping[str, Any]) -> StorageAddress:
    """The address of a URL of a file system."""
    url = url.strip()
    return StorageAddress(url, dict(options), _shown(url))


def stored_file(url: str, options: Mapping[str, Any]) -> RemoteFile:
    """The file that a URL is of; of a folder, its index of shards, or else its usual file.

    Args:
        url: The URL.
        options: What its file system is made with.

    Raises:
        FileFormatError: There is no file system for it; or the folder has no model.
        FrameworkNotInstalledError: The package that has the file system is not installed.
        FileNotFoundError: There is no such file.
        OSError: As for `RemotePlace.fetch`.
    """
    address = address_in(url, options)
    place = StoragePlace(address)
    if not place.look().is_folder:
        return RemoteFile(place)
    system, path = file_system(address)
    listed_paths = place.tried(partial(system.ls, path, detail=False))
    names = sorted(str(entry).rstrip("/").rpartition("/")[2] for entry in listed_paths)
    for usual in (*USUAL_FILES, *(name for name in names if name.endswith(".index.json"))):
        if usual in names:
            return RemoteFile(StoragePlace(address.within(usual)))
    listed = named([repr(unquote(name)[:200]) for name in names], _MOST_TOLD) or "no files"
    raise FileFormatError(
        f"{address.shown} has no {' and no '.join(USUAL_FILES)}: it has {listed}.",
        "the URL of one of these files",
    )
