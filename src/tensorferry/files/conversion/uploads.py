"""`uploaded`: a file that is written here, and then put where a URL says, at once when it is complete."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from ... import hints
from ...errors import FormatLimitError, OutputExistsError
from ...hints import Hint
from ..base.urls import refuse_target
from ..remote.addresses import scheme_of
from ..remote.files import RemoteFile
from ..remote.storage import StoragePlace, address_in, made_system

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ..remote.storage import StorageAddress

__all__ = ["uploaded"]

_Report = TypeVar("_Report")
_AT_ONCE = ("s3", "s3a", "gs", "gcs", "memory")
"""Schemes whose file systems show a file when all of it is there, and not before."""
_PART_BYTES = 16 << 20
"""How many bytes are sent at a time; S3 takes 10,000 parts of a file."""
_MOST_PARTS = 9_000
_INDEX = ".index.json"


def uploaded(
    url: str,
    options: Mapping[str, Any] | None,
    write: Callable[[Path], _Report],
    *,
    sources: Iterable[object] = (),
    overwrite: bool = False,
    dry_run: bool = False,
) -> _Report:
    """Write a file into a temporary folder, and upload it.

    Of a folder of shards, the index is uploaded last: before it is there, nobody reads the shards.

    Args:
        url: Where to.
        options: What the file system is made with.
        write: What writes a file, or a folder of shards, to a path, and gives a report of it.
        sources: What is read, which must not be the target.
        overwrite: Whether to replace what exists; a folder is never replaced.
        dry_run: Whether nothing is written and uploaded.

    Raises:
        FileFormatError: It is a URL to which nothing is uploaded; the hint is another way.
        OutputExistsError: There is something already.
        FormatLimitError: What is written is a folder without an index, which would be seen in parts.
        OSError: It cannot be uploaded; nothing is there then.
        ConversionError: As for `write`.
    """
    if scheme_of(url) not in _AT_ONCE:
        refuse_target(url)
    address = address_in(url, options or {})
    if any(
        isinstance(source, RemoteFile) and source.place.address.url == url for source in sources
    ):
        raise OutputExistsError(
            f"{address.shown} is what would be read, and a source is never changed.",
            "another target",
        )
    target = _Target(address)
    is_there = target.exists(address)
    if is_there and not overwrite:
        target.refuse_existing()
    with tempfile.TemporaryDirectory(prefix="tensorferry-") as folder:
        place = Path(folder) / address.name
        report: Any = write(place)
        names = {str(place / name): name for name in _names_in(place)}
        told = {str(place): address.shown}
        told |= {path: f"{address.shown}/{name}" for path, name in names.items()}
        if place.is_dir():
            if is_there:
                raise OutputExistsError(
                    f"{address.shown} exists already, and a folder of shards in its place would be "
                    "a mixture of both for some time.",
                    "another target",
                )
            target.put_folder(place, sorted(names.values(), key=_index_last))
        elif not dry_run:
            target.put(place, address, overwrite=overwrite)
    written = tuple(told.get(path, path) for path in report.written)
    result: _Report = replace(report, target=address.shown, written=written)
    return result


def _names_in(folder: Path) -> list[str]:
    """The files of a folder of shards.

    Raises:
        FormatLimitError: It has no index.
    """
    if not folder.is_dir():
        return []
    names = [file.name for file in folder.iterdir()]
    if not any(name.endswith(_INDEX) for name in names):
        raise FormatLimitError(
            "A format that is a folder without an index would be seen in parts while it is uploaded.",
            Hint(hints.keyword("to", "safetensors"), ", which is one file"),
        )
    return names


def _index_last(name: str) -> tuple[bool, str]:
    return name.endswith(_INDEX), name


class _Target:
    """Where files are uploaded to.

    Args:
        address: The address of the file or folder.
    """

    def __init__(self, address: StorageAddress) -> None:
        self._address = address

    def exists(self, address: StorageAddress) -> bool:
        """Whether there is a file at an address.

        Raises:
            OutputExistsError: There is a folder, which is never replaced.
            OSError: That cannot be seen.
        """
        try:
            version = StoragePlace(address).look()
        except FileNotFoundError:
            return False
        if version.is_folder:
            raise OutputExistsError(
                f"{address.shown} is a folder, which is never replaced.",
                f"a file in it, such as '{address.within('model.safetensors').shown}'",
            )
        return True

    def refuse_existing(self) -> NoReturn:
        """Raise, because there is something.

        Raises:
            OutputExistsError: Always.
        """
        raise OutputExistsError(
            f"{self._address.shown} exists already.",
            Hint(hints.keyword("overwrite", True), ", which replaces it"),
        )

    def put_folder(self, folder: Path, names: list[str]) -> None:
        """Upload a folder of shards; if that fails, what was uploaded is removed."""
        done: list[StorageAddress] = []
        try:
            for name in names:
                there = self._address.within(name)
                self.put(folder / name, there, overwrite=False)
                done.append(there)
        except BaseException:
            for there in done:
                system, path = made_system(there)
                with suppress(Exception):
                    system.rm_file(path)
            raise

    def put(self, local: Path, address: StorageAddress, *, overwrite: bool) -> None:
        """Upload a file, which is seen when all of it is there.

        Raises:
            OutputExistsError: There is one by now.
            OSError: It cannot be uploaded; nothing is there then.
        """
        place = StoragePlace(address)
        try:
            place.tried(_put, local, address, overwrite)
        except OSError:
            if not overwrite and self.exists(address):
                self.refuse_existing()
            raise


def _put(local: Path, address: StorageAddress, overwrite: bool) -> None:
    # Of its own, because a transaction is of all that a file system writes.
    system, path = made_system(address)
    if address.scheme == "memory":
        system.pipe_file(path, local.read_bytes(), mode="overwrite" if overwrite else "create")
    else:
        _in_parts(local, system, path, "wb" if overwrite else "xb")


def _in_parts(local: Path, system: Any, path: str, mode: str) -> None:
    """Send a file in parts; it is seen when the transaction ends without an error."""
    size = local.stat().st_size
    part = max(_PART_BYTES, -(-size // _MOST_PARTS))
    with (
        system.transaction,
        local.open("rb") as source,
        system.open(path, mode, block_size=part) as out,
    ):
        shutil.copyfileobj(source, out, part)
