"""Find everything that is wrong with a file and its values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...core.dtypes import find
from ...errors import ConversionError, FrameworkNotInstalledError, UnsafeFileError
from ..base.contents import FileFinding, lists_read
from ..base.pump import silent
from ..base.raw import names_url
from ..opening.paths import check_folder, format_of, index_of, lone, open_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from ...typing import Array
    from ..base.contents import Contents
    from ..base.stored import Stored

__all__ = ["check_path", "check_values"]

MOST_FINDINGS = 10_000
"""The most findings for one file. Nobody reads more, and they would take long."""


def check_path(
    path: Path,
    *,
    values: bool = False,
    allow: frozenset[str] = frozenset(),
    progress: Callable[[int], None] | None = None,
) -> Iterator[FileFinding]:
    """All that is wrong with a file, or a folder of shards and an index, up to `MOST_FINDINGS`.

    Args:
        path: The file, the folder, or its index; of one on a server, only headers are read.
        values: Also read all values, as `check_values` does.
        allow: As for `Format.read`.
        progress: Called with the number of bytes whenever some values have been checked.

    Raises:
        OSError: It cannot be read.
        FileFormatError: It is not of a known format.
        UnsafeFileError: It asks for code to be run, or needs far too much memory; raised after all
            other findings.
        FrameworkNotInstalledError: The library that its format needs is not installed.
    """
    contents, findings = _opened(path, allow)
    if isinstance(contents, ConversionError):
        wrong = contents
    else:
        wrong = None
    told = 0
    failed = False
    for finding in findings:
        # The exception itself names a class that is not allowed.
        if isinstance(wrong, UnsafeFileError) and finding.message == wrong.message:
            continue
        failed = failed or finding.error
        yield finding
        told += 1
        if told >= MOST_FINDINGS:
            yield FileFinding(
                str(path), None, None, f"after {told:,} findings no more is looked at."
            )
            return
    if isinstance(wrong, UnsafeFileError | FrameworkNotInstalledError):
        raise wrong
    if wrong is not None and not failed:
        yield FileFinding(str(path), None, None, wrong.message)
    if values and not isinstance(contents, ConversionError):
        contents = lists_read(contents)
        yield from check_values(contents, progress)


def _opened(
    path: Path, allow: frozenset[str]
) -> tuple[Contents | ConversionError, Iterable[FileFinding]]:
    """A file's or folder's contents, or the error; and its findings, found during iteration."""
    if names_url(path):
        return _opened_remotely(path, allow)
    index = index_of(path)
    if index is not None:
        try:
            return open_path(path, allow=allow), check_folder(index, allow=allow)
        except ConversionError as error:
            return error, check_folder(index, allow=allow)
    place = lone(path) if path.is_dir() else path
    form = format_of(place)
    try:
        form.ensure_loaded()
    except FrameworkNotInstalledError as error:
        return error, ()
    held = form.tried(place, allow)
    return held, form.check(place, allow=allow, found=held)


def _opened_remotely(
    path: Path, allow: frozenset[str]
) -> tuple[Contents | ConversionError, Iterable[FileFinding]]:
    """What headers say of a file on a server: the rest of it is read for its values only."""
    try:
        contents = open_path(path, allow=allow)
    except ConversionError as error:
        return error, ()
    records = (getattr(stored, "has_checksum", False) for stored in contents.tensors.values())
    if not any(records):
        return contents, ()
    note = "its checksums are compared when the values are read, by check --values."
    return contents, [FileFinding(str(path), None, None, note, error=False)]


def check_values(
    contents: Contents, progress: Callable[[int], None] | None = None
) -> Iterator[FileFinding]:
    """Find NaN and infinite values, and tensors that are all zero.

    Each tensor is read once, in blocks.

    NaN and infinities are errors. Only a note are a tensor of zeros, and a tensor of zeros and
    -infinity, as attention masks are.

    Args:
        contents: The contents of the file.
        progress: Called with the number of bytes whenever some have been checked.

    Raises:
        OSError: The file cannot be read.
        FileFormatError: It is cut off.
    """
    seen = set()
    for name, stored in contents.tensors.items():
        if stored.key not in seen:
            seen.add(stored.key)
            for place, message, error in _values(stored, progress or silent):
                file, offset = stored.where(place)
                yield FileFinding(
                    file or next(iter(contents.paths), ""), offset, name, message, error
                )


def _values(stored: Stored, progress: Callable[[int], None]) -> Iterator[tuple[int, str, bool]]:
    row = find(stored.dtype)
    special = row.kind in ("float", "complex") and bool(row.specials & {"nan", "inf"})
    counts = {"NaN": 0, "infinite": 0}
    first: dict[str, int] = {}
    masked, others, start = 0, 0, 0
    for block in stored.blocks():
        progress(block.nbytes)
        for word, is_special in _special(block) if special else ():
            count = int(np.count_nonzero(is_special))
            if count and word in counts:
                counts[word] += count
                first.setdefault(word, start + int(np.argmax(is_special)))
            elif row.kind == "float":
                masked += count
        if "zero" in row.specials or row.kind != "float":
            others += int(np.count_nonzero(block))
        else:
            others += block.size
        start += block.size
    mask = 0 < masked == others
    if mask:
        yield (
            first["infinite"],
            f"{masked:,} of {stored.size:,} are -infinity and the others 0, as in a mask",
            False,
        )
        return
    for word, count in counts.items():
        if count:
            are = "is" if count == 1 else "are"
            where = _index(first[word], stored.shape)
            yield (
                first[word],
                f"{count:,} of {stored.size:,} {are} {word}, the first at {where}",
                True,
            )
    if stored.size and not others:
        yield 0, f"all {stored.size:,} are 0", False


def _special(block: Array) -> list[tuple[str, Array]]:
    """Masks of the elements that are NaN, infinite, and -infinity; empty if all are finite."""
    # Any operation on a signalling NaN raises a floating-point flag.
    with np.errstate(all="ignore"):
        if np.isfinite(block).all():
            return []
        infinite = np.isinf(block)
        return [("NaN", np.isnan(block)), ("infinite", infinite), ("mask", infinite & (block < 0))]


def _index(place: int, shape: tuple[int, ...]) -> list[int]:
    if shape:
        return [int(index) for index in np.unravel_index(place, shape)]
    return []
