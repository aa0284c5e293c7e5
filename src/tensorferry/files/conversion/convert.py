"""`convert_files`: plan a conversion of files, run its jobs, and publish the output."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ... import hints
from ...core.dtypes import find
from ...core.leaf_dtypes import rule_of_words, why_idle
from ...errors import FileFormatError, FormatLimitError, shown, validate_flags, validate_word
from ...hints import Hint
from ..base.contents import ColumnKeywords, NotTensor
from ..base.limits import FileHint, Given, Leaving, Without, Words, completed
from ..base.nesting import named_values
from ..base.pump import Pump
from ..base.raw import fingerprints, is_on_server
from ..base.stored import Packed, Stored, View
from ..base.urls import refuse_options, url_told
from ..base.wording import named, path_of, several, strings_of
from ..opening.paths import (
    each_format,
    format_for,
    format_named,
    index_of,
    place_of,
    url_of_target,
    validate_options,
)
from ..opening.shard_files import WAYS_OF_TIES as TIES
from ..opening.shard_files import repeated, sizes
from .executors import run_all, validate_engine
from .jobs import FileRecipe, chosen, open_all, takes_a_part, write_piece
from .publish import naming, publishing, validate_target
from .select import left_by_tensors_only, names_taken, substitution
from .work import Layout, Work, write_index

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ..base.contents import Contents
    from ..base.format import Format
    from .jobs import ContentsMapping
    from .work import Written

__all__ = ["Report", "convert_files", "overlaps", "shard_bytes", "shards_of", "write_contents"]

_CHECKS = 64
"""How many neighbours a tensor is compared with. If there are more, it counts as overlapping."""


class _Span(NamedTuple):
    path: str
    start: int
    end: int
    name: str
    stored: Any


def overlaps(contents: Contents) -> list[tuple[str, str]]:
    """Pairs of names of tensors that share bytes; at least one pair for each such tensor.

    Tied tensors do not count.

    If each is stored separately in a file, they do not share memory any more.
    """
    first: dict[Hashable, tuple[str, Stored]] = {}
    for name, stored in contents.tensors.items():
        inner = getattr(stored, "inner", stored)
        first.setdefault(inner.key, (name, inner))
    spans = _spans(first.values())
    pairs: list[tuple[str, str]] = []
    for _, group in groupby(sorted(spans, key=lambda span: span[:4]), key=lambda span: span.path):
        before: list[_Span] = []
        for span in group:
            before = [open_span for open_span in before if open_span.end > span.start]
            for other in before[:_CHECKS]:
                if _share(other.stored, span.stored):
                    pairs.append((span.name, other.name))
                    break
            else:
                if len(before) > _CHECKS:
                    pairs.append((span.name, before[_CHECKS].name))
            before.append(span)
    return pairs


def _spans(tensors: Iterable[tuple[str, Stored]]) -> Iterator[_Span]:
    for name, stored in tensors:
        if isinstance(stored, (Packed, View)) and stored.size:
            reach = find(stored.dtype).itemsize
            if isinstance(stored, View):
                reach += sum(
                    (length - 1) * step
                    for length, step in zip(stored.shape, stored.strides, strict=True)
                )
            else:
                reach = stored.nbytes
            yield _Span(stored.path, stored.offset, stored.offset + reach, name, stored)


def _share(first: Packed | View, second: Packed | View) -> bool:
    start = min(first.offset, second.offset)
    share: Any = np.shares_memory
    try:
        return bool(share(_ghost(first, start), _ghost(second, start), max_work=1 << 16))
    except np.exceptions.TooHardError:
        return True


class _At:
    """An array over an address, of which only the layout is used; its memory is never read."""

    def __init__(self, stored: Packed | View, start: int) -> None:
        self.__array_interface__ = {
            "version": 3,
            "shape": stored.shape,
            "strides": stored.strides if isinstance(stored, View) else None,
            "typestr": f"|V{find(stored.dtype).itemsize}",
            "data": (stored.offset - start + 64, True),
        }


def _ghost(stored: Packed | View, start: int) -> np.ndarray[Any, Any]:
    return np.asarray(_At(stored, start))


_UNITS = {
    "": 1,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "KI": 2**10,
    "MI": 2**20,
    "GI": 2**30,
    "TI": 2**40,
}

_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class Report:
    """What a conversion of files did, or would do.

    Args:
        source: The paths that were given.
        target: The file or folder.
        format: The name of its format.
        tensors: The number of names of tensors in it; tied tensors count once for each name.
        bytes_read: The bytes of the tensors in the sources; tied tensors count once.
        bytes_written: The bytes of the tensors in the target; tied tensors count once, unless they
            are written for each name.
        seconds: How long it took.
        warnings: What has changed, though no tensor is lost: what was written twice, what the
            format has in another form; with `tensors_only`, what was left out.
        written: The paths that were written, or would be written.
        skipped: The paths that were complete already.
        verified: Whether the output was read again and compared.
        dry_run: Whether nothing was written.

    .. versionadded:: 0.1
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
        """The report as plain data for JSON."""
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in asdict(self).items()
        }


def convert_files(
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    target: str | os.PathLike[str],
    *,
    to: str | None = None,
    dtype: object = None,
    overflow: str = "raise",
    include: str | Sequence[str] = (),
    exclude: str | Sequence[str] = (),
    rename: str | Sequence[str] = (),
    metadata: Mapping[str, str] | None = None,
    shard: int | str | None = None,
    tensors_only: bool = False,
    ties: str = "copy",
    dequantize: bool = False,
    nulls: object = None,
    ragged: object = None,
    pad: object = None,
    allow: str | Sequence[str] = (),
    verify: bool = False,
    dry_run: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    executor: Any = None,
    jobs: int = 1,
    engine: str = "threads",
    part: tuple[int, int] | None = None,
    progress: Callable[[int], None] | None = None,
    mapping_of: Callable[[Sequence[str]], ContentsMapping] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Report:
    """Convert files; see `tensorferry.convert_files`, whose arguments and errors these are."""
    asked = dict(locals())
    started = time.monotonic()
    given = list(sources) if isinstance(sources, Iterable) and not _is_one(sources) else [sources]
    paths = _places(given, target, storage_options)
    url = url_of_target(target)
    if url is not None:
        if resume or part is not None:
            raise FileFormatError(
                f"{url_told(url)} is a URL, and what is continued is on this machine.",
                "a folder of this machine as the target",
            )
        return _uploaded(paths, asked)
    place = path_of(target, "the target of convert_files(sources, target)")
    continues = resume or part is not None
    _validate_options(paths, part, jobs, engine, executor, progress)
    validate_flags(
        tensors_only=tensors_only,
        dequantize=dequantize,
        verify=verify,
        dry_run=dry_run,
        resume=resume,
        overwrite=overwrite,
    )
    validate_word("ties", ties, TIES)
    validate_target(place, overwrite=overwrite or continues, sources=paths, is_folder=True)
    selection = {
        "include": several("include", include),
        "exclude": several("exclude", exclude),
        "rename": several("rename", rename),
        "dtype": rule_of_words(dtype),
        "overflow": overflow,
        "metadata": strings_of(metadata),
        "tensors_only": tensors_only,
        "dequantize": dequantize,
        "columns": ColumnKeywords(nulls, ragged, pad),
    }
    allowed = frozenset(several("allow", allow))
    differing: dict[str, list[str]] = {}
    before = open_all(
        paths,
        allowed,
        tensors_only=tensors_only,
        differing=differing,
        partly=takes_a_part(selection),
    )
    unmapped, mapping = before, None
    if mapping_of is not None:
        mapping = mapping_of((*paths, *before.paths))
        before = mapping.mapped(before)
    # A path may be the common prefix of the names of several files.
    seen = fingerprints((*filter(os.path.exists, paths), *before.paths))
    is_several = len(paths) > 1 or any(index_of(place_of(path, "")) is not None for path in paths)
    with completed(partial(_given, before, selection)):
        format_ = _format(place, to, before.format if is_several or shard is not None else None)
        contents, objects = chosen(before, selection, format_)
        _validate_carriable(contents)
        shards = shards_of(place, format_, shard, several=is_several)
        layout = Layout.of(contents, format_, place, shards, ties)
        recipe = FileRecipe(
            paths, seen, allowed, tuple(selection.items()), format_.name, shards, ties, mapping
        )
        warnings = [*_warnings(before, contents, selection), *_of_objects(objects)]
        warnings += _of_metadata(before, layout, selection, differing)
        if mapping is not None:
            warnings += _of_values(unmapped)
        report = _report(paths, layout, tuple(warnings))
        validate_target(
            place,
            overwrite=overwrite or continues,
            sources=[opened.path for opened in seen],
            nbytes=0 if continues else report.bytes_written,
            is_folder=layout.is_folder,
            own=layout.replaceable(),
        )
        in_threads = executor is None and engine == "threads"
        run = partial(run_all, executor=executor, engine=engine, workers=jobs, progress=progress)
        work = Work(
            recipe,
            layout,
            run,
            in_threads=in_threads,
            verify=verify,
            overwrite=overwrite,
            resume=resume,
        )
        if dry_run:
            work.rehearse(part)
            return replace(report, seconds=time.monotonic() - started, dry_run=True)
        if part is None:
            done = work.whole(progress)
        else:
            done = work.part(part, progress)
    return _finished(report, done, started, verified=verify)


def _uploaded(paths: tuple[str, ...], asked: dict[str, Any]) -> Report:
    """Convert into a temporary file, which is uploaded; `asked` is what `convert_files` was given."""
    from .uploads import uploaded  # here, because most targets are on this machine

    target, options = asked.pop("target"), asked.pop("storage_options")

    def write(place: Path) -> Report:
        return convert_files(**{**asked, "sources": paths, "target": place})

    keywords: dict[str, Any] = {name: asked[name] for name in ("overwrite", "dry_run")}
    return uploaded(target, options, write, sources=paths, **keywords)


def _places(
    given: Sequence[Any], target: object, options: Mapping[str, Any] | None
) -> tuple[str, ...]:
    """The paths of sources.

    Args:
        given: The sources.
        target: Where they go.
        options: For those of them that are URLs of file systems, and for the target.

    Raises:
        FileFormatError: `options` are for none of them.
        ConversionError: As for `place_of`.
    """
    call = "convert_files(sources, target)"
    if options is not None:
        validate_options(options)
    if not options:
        return tuple(os.fspath(place_of(path, call)) for path in given)
    from ..remote.addresses import takes_options  # here, because most have none

    takes = [takes_options(path) or is_on_server(path) for path in given]
    if not any(takes) and not takes_options(target):
        refuse_options(os.fspath(path_of(target, call)))
    return tuple(
        os.fspath(place_of(path, call, options if may else None))
        for path, may in zip(given, takes, strict=True)
    )


def _given(before: Contents, selection: Mapping[str, Any]) -> Given:
    """What a call has already, for hints."""
    substitutes = [substitution(text) for text in selection["rename"]]
    sources = {}
    taken = names_taken(before, selection["include"], selection["exclude"])
    renamed: dict[str, frozenset[str]] = dict.fromkeys(selection["rename"], frozenset())
    if substitutes:
        for name in before.tensors:
            new = name
            for text, substitute in zip(selection["rename"], substitutes, strict=True):
                old, new = new, substitute(new)
                if new != old and name in taken:
                    renamed[text] |= {name}
            sources[new] = name
    return Given(
        exclude=selection["exclude"],
        rename=selection["rename"],
        rule=selection["dtype"],
        metadata=selection["metadata"],
        sources=sources,
        dtypes={name: stored.dtype for name, stored in before.tensors.items()},
        nests=before.tree is not None or bool(before.metadata),
        names=taken,
        renamed=renamed,
    )


def write_contents(
    contents: Contents,
    path: Path,
    *,
    to: str | None = None,
    shard: int | str | None = None,
    ties: str = "copy",
    verify: bool = False,
    overwrite: bool = False,
) -> Report:
    """Write this process's contents, tensor by tensor, to a file that appears only when complete.

    Args:
        contents: What to write.
        path: As the target of `convert_files`.
        to: As for `convert_files`.
        shard: As for `convert_files`.
        ties: As for `convert_files`.
        verify: As for `convert_files`.
        overwrite: As for `convert_files`.

    Raises:
        FormatLimitError: The format cannot hold it; nothing is written.
        OutputExistsError: The target exists.
        OSError: It cannot be written.
        VerificationError: It did not read back the same; nothing is published.
    """
    started = time.monotonic()
    validate_flags(verify=verify, overwrite=overwrite)
    validate_word("ties", ties, TIES)
    validate_target(path, overwrite=overwrite, is_folder=True)
    _validate_carriable(contents)
    format_ = _format(path, to)
    layout = Layout.of(
        contents, format_, path, shards_of(path, format_, shard, several=False), ties
    )
    report = _report((), layout, ())
    room, own, folder = report.bytes_written, layout.replaceable(), layout.is_folder
    validate_target(path, overwrite=overwrite, nbytes=room, is_folder=folder, own=own)
    with naming(path), publishing(path, overwrite=overwrite, is_folder=folder) as output:
        if layout.names:
            output.mkdir()
        pump = Pump()
        for number, piece in enumerate(layout.pieces):
            write_piece(piece, format_, layout.file(number, output), pump, check=verify)
        if layout.names:
            write_index(layout, output)
    return replace(report, seconds=time.monotonic() - started, verified=verify)


def _is_one(sources: object) -> bool:
    """Whether something is one source, or something in its place, though it can be iterated."""
    return isinstance(sources, (str, os.PathLike, bytes, bytearray, memoryview)) or hasattr(
        sources, "read"
    )


def _report(paths: tuple[str, ...], layout: Layout, warnings: tuple[str, ...]) -> Report:
    read = written = 0
    for piece in layout.pieces:
        more_read, more_written = sizes(piece)
        read, written = read + more_read, written + more_written
    there = layout.contents.tensors
    made = [name for piece in layout.pieces for name in piece.tensors if name not in there]
    title = layout.format.title or layout.format.name
    if made:
        warnings += (f"{title} has NumPy's scalars as tensors; these were values: {named(made)}.",)
    warnings += tuple(layout.format.changes(layout.contents))
    again = repeated(layout.contents)
    if again:
        pairs = named(
            f"{name or ascii(name)} is {first or ascii(first)}" for name, first in again.items()
        )
        warnings += (f"Written twice, since {title} has no way to say that they are one: {pairs}.",)
    return Report(
        source=paths,
        target=str(layout.target),
        format=layout.format.name,
        tensors=len(there) + len(made),
        bytes_read=read,
        bytes_written=written,
        warnings=warnings,
        written=tuple(layout.files()),
    )


def _finished(report: Report, done: Written, started: float, *, verified: bool) -> Report:
    return replace(
        report,
        bytes_read=done.bytes_read,
        bytes_written=done.bytes_written,
        seconds=time.monotonic() - started,
        written=tuple(done.written),
        skipped=tuple(done.skipped),
        verified=verified,
    )


def _validate_options(
    paths: tuple[str, ...], part: Any, jobs: Any, engine: object, executor: Any, progress: object
) -> None:
    """Check keywords, without a look at the files.

    Raises:
        TypeError: One has a value of the wrong type.
        ValueError: One has a value that it does not take.
    """
    if not paths:
        raise ValueError("There is nothing to convert: no source was named.")
    validate_engine(engine)
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise TypeError(
            "executor must have a method submit, as those of concurrent.futures do, not "
            f"{shown(executor)}"
        )
    if progress is not None and not callable(progress):
        raise TypeError(
            f"progress must be a function of the number of bytes, not {shown(progress)}"
        )
    if type(jobs) is not int:
        raise TypeError(f"jobs must be a whole number, not {shown(jobs)}")
    if jobs < 1:
        raise ValueError(f"jobs must be 1 or more, not {shown(jobs)}")
    if part is None:
        return
    if not isinstance(part, tuple) or [type(number) for number in part] != [int, int]:
        raise TypeError(f"part must be two whole numbers, as in part=(1, 4), not {shown(part)}")
    if not 1 <= part[0] <= part[1]:
        raise ValueError(
            f"part={part} is no part: the first is (1, {part[1]}), the last ({part[1]}, {part[1]})"
        )


def _validate_carriable(contents: Contents) -> None:
    if contents.others:
        # Tensors that only `exclude` leaves out come first, because with the other hint the next
        # try would fail too.
        tensors = [name for name, why in contents.others.items() if not isinstance(why, NotTensor)]
        if tensors:
            name = tensors[0]
        else:
            name = next(iter(contents.others))
        without = Without(dict.fromkeys(contents.others, ()))
        raise FormatLimitError(
            f"Not all of it can be converted: {named(contents.others)} ({name}: "
            f"{contents.others[name]}).",
            FileHint(without) if tensors else FileHint(without, Leaving()),
        )


def _format(target: Path, to: str | None, source: str | None = None) -> Format:
    """The format to write.

    Args:
        target: The file or folder.
        to: Its name, if it is given.
        source: The format of the sources, if the target is a folder of shards, whose name need not
            say the format.

    Raises:
        FileFormatError: Neither `to` nor the suffix names a format.
        FormatLimitError: The format can only be read.
    """
    if to is None:
        format_ = _of_shards(target, source)
    else:
        format_ = format_named(to)
    if not format_.writes:
        # Not `to` alone: the name of the file is that of the format.
        other = target.with_suffix(".safetensors")
        raise FormatLimitError(
            f"{format_.title or format_.name} can be read, not written.",
            FileHint(
                Words(
                    Hint(hints.OtherOutput(str(other)), ", or another format"),
                    f'save(x, "{other.name}"), or another format',
                )
            ),
        )
    format_.ensure_loaded()
    return format_


def _of_shards(target: Path, source: str | None) -> Format:
    """The format that the target's name says; or for a folder of shards, that of the source."""
    try:
        return format_for(target)
    except FileFormatError:
        if source is None:
            format_ = None
        else:
            format_ = format_named(source)
        if format_ is None or not format_.writes or not format_.index_suffix:
            raise
        return format_


def shards_of(
    target: Path, format_: Format, shard: int | str | None, *, several: bool
) -> int | None:
    """How the output is split: see `FileRecipe`.

    Args:
        target: The file or folder.
        format_: Its format.
        shard: As for `convert_files`.
        several: Whether the source is several files.

    Raises:
        FormatLimitError: The format has no shards.
        ValueError: `shard` is not a size, or the target has the name of one file.
    """
    name = target.name.lower()
    if shard is None and not several:
        return None
    names_a_file = "." in name and any(
        name.endswith(suffix) for one_format in each_format() for suffix in one_format.suffixes
    )
    if shard is None:
        if format_.index_suffix and not names_a_file:
            return 0
        return None
    if not format_.index_suffix:
        raise FormatLimitError(
            f"{format_.title or format_.name} has no shards.", hints.without("shard")
        )
    if names_a_file:
        folder = target.with_suffix("").name
        raise ValueError(
            f"{target.name} is the name of one file, and shards are several in a folder: name a "
            "folder, such as "
            f"{folder}, and the format, {format_.name}"
        )
    return shard_bytes(shard)


def shard_bytes(size: int | str) -> int:
    """Read a number of bytes: ``5GB`` is 5,000,000,000, ``5GiB`` is 5 * 2**30.

    Raises:
        ValueError: It is malformed, or not positive.
    """
    if not isinstance(size, int) or abs(size) <= _LARGEST:
        text = str(size)
    else:
        text = "a huge number"
    match = re.fullmatch(r"\s*(\d{1,20}(?:\.\d{1,20})?)\s*([KMGT]?I?)B?\s*", text.upper())
    if match is not None and match[2] in _UNITS:
        nbytes = int(float(match[1]) * _UNITS[match[2]])
    else:
        nbytes = 0
    if nbytes <= 0:
        told = text if len(text) <= 20 else f"{text[:20]}…"
        raise ValueError(f"{told!r} is not a size, such as 5GB, 500MB, 2GiB or a number of bytes")
    return nbytes


def _warnings(before: Contents, after: Contents, selection: Mapping[str, Any]) -> Iterable[str]:
    """Warnings about changes, though nothing is lost; and about options that apply to no tensor."""
    if before.columns:
        own = {**after.tensors, **before.tensors}.items()
    else:
        own = before.tensors.items()
    idle = why_idle(
        selection["dtype"], ((name, getattr(tensor, "inner", tensor).dtype) for name, tensor in own)
    )
    if idle is not None:
        yield idle
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
    if selection["tensors_only"]:
        left = left_by_tensors_only(before, after)
        if left or before.tree is not None:
            yield f"What is not a tensor was left out: {named(left, 20) or 'how they nest'}."


def _of_values(unmapped: Contents) -> Iterable[str]:
    """Warnings about what a table has no names for."""
    left = [*named_values(unmapped.tree)]
    if left:
        yield f"What is not a tensor was left out: {named(left, 20)}."


def _of_objects(objects: Mapping[str, str]) -> Iterable[str]:
    """Warnings about the objects of a pickle, which are plain values in a file."""
    if objects:
        told = (f"{name} ({kind})" for name, kind in objects.items())
        yield f"Kept as text, or as a dict of attributes: {named(told, 20)}."


def _of_metadata(
    before: Contents,
    layout: Layout,
    selection: Mapping[str, Any],
    differing: Mapping[str, Sequence[str]],
) -> Iterable[str]:
    """Warnings about the metadata that belong to a format."""
    given, title = selection["metadata"], layout.format.title or layout.format.name
    for key in differing:
        taken = layout.pieces[0].metadata.get(key)
        if taken is not None and key not in given:
            values = named(map(repr, differing[key]))
            yield f"The sources differ in the metadata {key!r} ({values}): {taken!r} is taken."
    for key, text in layout.format.foreign(before.metadata).items():
        if key not in given and not selection["tensors_only"]:
            taken = layout.pieces[0].metadata[key]
            yield (
                f"The metadata {key!r} was {text!r}, with which readers of {title} refuse a file. "
                f"It is {taken!r} now. To keep the other, give {key!r} as metadata."
            )
