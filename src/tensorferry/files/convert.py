"""`convert_files`: plans a conversion, has its jobs done, and publishes what they wrote."""

from __future__ import annotations

import os
import re
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.leaf_dtypes import rule_of_words
from ..errors import FileFormatError, FormatLimitError
from .executors import ENGINES, run_all
from .format import Format, each_format, format_for, format_named, named
from .jobs import Recipe, open_all, prints, sizes, write_piece
from .overlaps import overlaps
from .publish import demand, publishing
from .pump import Pump
from .select import select
from .shards import index_of
from .work import Layout, Work, write_index

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .contents import Contents
    from .work import Outcome

__all__ = ["Report", "convert_files", "write_contents"]

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}

_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class Report:
    """What a conversion did, or would do.

    Args:
        source: The paths that were given.
        target: The file or folder.
        format: The name of its format.
        tensors: How many it has, further names of tied ones counted.
        bytes_read: Of tensors in the sources; ties once.
        bytes_written: Of tensors in the target; ties once.
        seconds: How long it took.
        warnings: What is not as it was, though nothing is lost.
        written: The paths that were written, or would be.
        skipped: The paths that were finished already.
        verified: Whether what was written was read back and compared.
        dry_run: Whether nothing was done.
    """

    source: tuple[str, ...]
    target: str
    format: str
    tensors: int
    bytes_read: int
    bytes_written: int
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    verified: bool = False
    dry_run: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}


def convert_files(
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    target: str | os.PathLike[str],
    *,
    to: str | None = None,
    dtype: object = None,
    overflow: str = "raise",
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    rename: Sequence[str] = (),
    shard: int | str | None = None,
    tensors_only: bool = False,
    allow: Sequence[str] = (),
    verify: bool = False,
    dry_run: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    executor: Any = None,
    jobs: int = 1,
    engine: str = "threads",
    part: tuple[int, int] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Report:
    """Convert files; see `tensorferry.convert_files`, whose arguments and errors these are."""
    started = time.monotonic()
    given = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
    paths = tuple(os.fspath(path) for path in given)
    place = Path(target)
    continues = resume or part is not None
    _demand_options(paths, engine, part)
    demand(place, overwrite=overwrite or continues, sources=paths, is_folder=True)
    selection = {
        "include": tuple(include),
        "exclude": tuple(exclude),
        "rename": tuple(rename),
        "dtype": rule_of_words(dtype),
        "overflow": overflow,
        "tensors_only": tensors_only,
    }
    before = open_all(paths, frozenset(allow), tensors_only=tensors_only)
    marks = prints((*paths, *before.paths))
    format_ = _format(place, to)
    contents = select(before, **selection, held=format_.dtypes)  # type: ignore[arg-type]
    _demand_carriable(contents)
    shards = _shards(place, format_, shard, several=len(paths) > 1 or index_of(Path(given[0])) is not None)
    layout = Layout.of(contents, format_, place, shards)
    recipe = Recipe(paths, marks, frozenset(allow), tuple(selection.items()), format_.name, shards)
    report = _report(paths, layout, (*_warnings(before, contents),))
    demand(
        place,
        overwrite=overwrite or continues,
        sources=[mark.path for mark in marks],
        nbytes=0 if continues else report.bytes_written,
        is_folder=layout.is_folder,
        own=layout.replaceable(),
    )
    in_threads = executor is None and engine == "threads"
    run = partial(run_all, executor=executor, engine=engine, workers=jobs, progress=progress)
    work = Work(recipe, layout, run, in_threads=in_threads, verify=verify, overwrite=overwrite, resume=resume)
    if dry_run:
        work.rehearse(part)
        return replace(report, seconds=time.monotonic() - started, dry_run=True)
    done = work.whole(progress) if part is None else work.part(part, progress)
    return _finished(report, done, started, verified=verify)


def write_contents(
    contents: Contents,
    path: Path,
    *,
    to: str | None = None,
    shard: int | str | None = None,
    verify: bool = False,
    overwrite: bool = False,
) -> Report:
    """Write contents that are in this process, tensor by tensor, whole or not at all.

    Args:
        contents: What to write.
        path: As the target of `convert_files`.
        to: As for `convert_files`.
        shard: As for `convert_files`.
        verify: As for `convert_files`.
        overwrite: As for `convert_files`.

    Raises:
        FormatLimitError: The format cannot hold it; nothing is written.
        OutputExistsError: The target exists.
        OSError: It cannot be written.
        VerificationError: It did not read back the same; nothing is published.
    """
    started = time.monotonic()
    demand(path, overwrite=overwrite, is_folder=True)
    _demand_carriable(contents)
    format_ = _format(path, to)
    layout = Layout.of(contents, format_, path, _shards(path, format_, shard, several=False))
    report = _report((), layout, ())
    room, own, folder = report.bytes_written, layout.replaceable(), layout.is_folder
    demand(path, overwrite=overwrite, nbytes=room, is_folder=folder, own=own)
    with publishing(path, overwrite=overwrite, is_folder=folder) as output:
        if layout.names:
            output.mkdir()
        pump = Pump()
        for number, piece in enumerate(layout.pieces):
            write_piece(piece, format_, layout.file(number, output), pump, check=verify)
        if layout.names:
            write_index(layout, output)
    return replace(report, seconds=time.monotonic() - started, verified=verify)


def _report(paths: tuple[str, ...], layout: Layout, warnings: tuple[str, ...]) -> Report:
    read = written = 0
    for piece in layout.pieces:
        more_read, more_written = sizes(piece)
        read, written = read + more_read, written + more_written
    return Report(
        source=paths,
        target=str(layout.target),
        format=layout.format.name,
        tensors=len(layout.contents.tensors),
        bytes_read=read,
        bytes_written=written,
        warnings=warnings,
        written=tuple(layout.files()),
    )


def _finished(report: Report, done: Outcome, started: float, *, verified: bool) -> Report:
    return replace(
        report,
        bytes_read=done.bytes_read,
        bytes_written=done.bytes_written,
        seconds=time.monotonic() - started,
        written=tuple(done.written),
        skipped=tuple(done.skipped),
        verified=verified,
    )


def _demand_options(paths: tuple[str, ...], engine: str, part: tuple[int, int] | None) -> None:
    if not paths:
        raise FileFormatError("There is nothing to convert: no source was named.")
    if engine not in ENGINES:
        raise FormatLimitError(f"engine={engine!r} is not known.", "one of " + ", ".join(ENGINES))
    if part is not None and not 1 <= part[0] <= part[1]:
        raise FormatLimitError(
            f"part={part[0]}/{part[1]} is no part: the first is 1/{part[1]}, the last {part[1]}/{part[1]}."
        )


def _demand_carriable(contents: Contents) -> None:
    if contents.others:
        name, why = next(iter(contents.others.items()))
        raise FormatLimitError(
            f"Not all of it can be carried: {named(contents.others)} ({name}: {why}).",
            "exclude=[…] with their names, or tensors_only=True, which leaves them out",
        )


def _format(target: Path, to: str | None) -> Format:
    """The format to write.

    Raises:
        FileFormatError: Nothing says which.
        FormatLimitError: It can only be read.
    """
    format_ = format_for(target) if to is None else format_named(to)
    if not format_.writes:
        raise FormatLimitError(f"{format_.title or format_.name} can be read, not written.", "another to=")
    format_.ensure_loaded()
    return format_


def _shards(target: Path, format_: Format, shard: int | str | None, *, several: bool) -> int | None:
    """How the output is split, as `Recipe` says it."""
    name = target.name.lower()
    if shard is None and not several:
        return None
    names_a_file = "." in name and any(name.endswith(suffix) for each in each_format() for suffix in each.suffixes)
    if shard is None:
        return 0 if format_.index_suffix and not names_a_file else None
    if not format_.index_suffix:
        raise FormatLimitError(f"{format_.title or format_.name} has no shards.", "without shard=")
    if names_a_file:
        raise FormatLimitError(
            f"{target.name} is the name of one file, and shard= asks for a folder of them.",
            f'to="{format_.name}", and a target like {target.with_suffix("").name}',
        )
    return _bytes(shard)


def _bytes(size: int | str) -> int:
    """A number of bytes: ``5GB`` is 5,000,000,000, ``5GiB`` is 5 * 2**30.

    Raises:
        FormatLimitError: It is none, or not positive.
    """
    if isinstance(size, int) and abs(size) > _LARGEST:  # Python does not write one of more than 4,300 digits.
        raise FormatLimitError("shard= is a number that is not a size: no file has so many bytes.", "5GB")
    text = str(size)
    found = re.fullmatch(r"\s*(\d{1,20}(?:\.\d{1,20})?)\s*([KMGT]?I?)B?\s*", text.upper())
    if found is None or found[2] == "I":
        told = text if len(text) <= 40 else f"{text[:40]}…"
        raise FormatLimitError(f"{told!r} is not a size.", "5GB, 500MB, 2GiB, or a number of bytes")
    nbytes = int(float(found[1]) * _UNITS[found[2]])
    if nbytes <= 0:
        raise FormatLimitError("A shard of no bytes holds nothing.", "5GB")
    return nbytes


def _warnings(before: Contents, after: Contents) -> Iterable[str]:
    """What is not as it was, though nothing is lost."""
    shared = overlaps(after)
    if shared:
        pairs = named(f"{name} and {other}" for name, other in shared)
        yield f"These share memory in the source without being the same; each is written in full: {pairs}."
    cast = {name: getattr(stored, "inner", stored).key for name, stored in after.tensors.items()}
    first: dict[Any, str] = {}
    for name, key in cast.items():
        other = first.setdefault(key, name)
        if after.tensors[other].key != after.tensors[name].key:
            yield f"{other} and {name} are one tensor in the source, and two now: their dtypes differ."
    if before.tree is not None and after.tree is None:
        yield "What is not a tensor was left out."
