"""`Job`: the message for one output file (paths, names, options); `run_job`, for any process."""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ... import hints
from ...errors import ConversionError, FileFormatError, UnsafeFileError, VerificationError
from ...hints import Hint
from ..base.contents import Contents, Ref, blocks_of, with_block_kinds
from ..base.limits import refuse_contents
from ..base.nesting import written
from ..base.objects import in_text
from ..base.pump import Pump
from ..base.raw import fingerprints
from ..base.wording import named
from ..opening.paths import format_named, open_path, place_of
from ..opening.shard_files import merged_tree, pieces, sizes, untied
from ..reports.diff import pairs, words
from .publish import publishing, sync
from .select import select

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from ..base.contents import Blocks
    from ..base.format import Format
    from ..base.raw import Fingerprint
    from ..base.stored import Stored

__all__ = [
    "ContentsMapping",
    "Done",
    "FileRecipe",
    "Job",
    "chosen",
    "keep",
    "open_all",
    "run_job",
    "takes_a_part",
    "verify",
    "write_piece",
]


def verify(
    expected: Contents,
    path: Path,
    format: Format,  # noqa: A002 - the term
    *,
    allow: frozenset[str] = frozenset(),
    progress: Callable[[int], None] | None = None,
) -> None:
    """Compare names, dtypes, shapes and bits of tensors, then everything else.

    The sources are read a second time (their checksums were compared the first time). The output is
    read from the disk, not from the page cache, if it was flushed and the system drops its pages.

    Args:
        expected: The contents that were to be written.
        path: The written file or folder.
        format: Its format.
        allow: As for `Format.read`.
        progress: Called with the number of bytes whenever some of the output have been read.

    Raises:
        VerificationError: They differ; the message names the tensors.
    """
    _forget(path)
    try:
        read_back = format.read(path, allow=allow)
    except ConversionError as error:
        raise VerificationError(f"{path.name} does not read back: {error.message}") from error
    tensors = read_back.tensors
    if format.holds_one and len(tensors) == 1:
        tensors = dict(zip(expected.tensors, tensors.values(), strict=True))
    if list(tensors) != list(expected.tensors):
        how = _other_names(expected.tensors, tensors)
        raise VerificationError(f"{path.name} does not read back the same: {how}.")
    wrong = _different(expected, tensors, progress)
    if wrong:
        raise VerificationError(f"{path.name} does not read back the same: {named(wrong)}.")
    _beside(expected, read_back, path)


def _other_names(expected: Collection[str], names_read: Collection[str]) -> str:
    """How the names found differ from those expected."""
    absent = [name for name in expected if name not in names_read]
    if absent:
        return f"without {named(absent)}"
    added = [name for name in names_read if name not in expected]
    if added:
        return f"with {named(added)}"
    return "in another order"


def _different(
    expected: Contents, tensors: dict[str, Stored], progress: Callable[[int], None] | None
) -> list[str]:
    wrong = []
    for name, before in expected.tensors.items():
        after = tensors[name]
        if (before.dtype, before.shape) != (after.dtype, after.shape):
            wrong.append(f"{name} (dtype or shape)")
            continue
        # A format may store tied tensors once, or for each name. The expected tensor is read for
        # each name, in case that different tensors were taken for tied ones.
        try:
            for _, one, other in pairs(before, after):
                if not np.array_equal(words(one), words(other)):
                    wrong.append(name)
                    break
                if progress is not None:
                    progress(other.nbytes)
        except ConversionError as error:
            wrong.append(f"{name} ({error.message})")
    return wrong


def _beside(expected: Contents, read_back: Contents, path: Path) -> None:
    lost = [key for key, value in expected.metadata.items() if read_back.metadata.get(key) != value]
    if lost:
        raise VerificationError(
            f"{path.name} does not read back the same: its metadata {named(lost)}."
        )
    if expected.tree is not None and _tree(read_back) != _tree(expected):
        raise VerificationError(
            f"{path.name} does not read back the same: its values that are not tensors."
        )


def _tree(contents: Contents) -> str:
    # A dict from names to tensors equals a file without a tree. Some formats cannot distinguish an
    # OrderedDict from it.
    flat = {name: Ref(name) for name in contents.tensors}
    tree = flat if contents.tree is None else contents.tree
    return written(flat if tree == flat and type(tree) is OrderedDict and not vars(tree) else tree)


def _forget(path: Path) -> None:
    """Ask the system to drop the pages of a file from its cache, if they are on the disk."""
    if path.is_dir():
        files: list[Any] = [file for file in path.rglob("*") if file.is_file()]
    else:
        files = [path]
    for file in files:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


class ContentsMapping(Protocol):
    """Gives the tensors of contents other names and shapes. It is a plain value."""

    def mapped(self, contents: Contents) -> Contents:
        """The contents that become of these."""
        ...  # for pyright, which otherwise takes it for a function that returns None


@dataclass(frozen=True)
class FileRecipe:
    """The sources and options of a conversion, which are the same for all its jobs.

    Args:
        sources: Files and folders.
        fingerprints: The fingerprints of all their files.
        allow: As for `Format.read`.
        selection: The keywords of `select`.
        format: The name of the output's format.
        shards: How the output is split: ``None`` not at all, ``0`` like the source, otherwise into
            this many bytes.
        ties: As for `untied`.
        mapping: What gives the tensors other names and shapes, before they are chosen; or ``None``.
    """

    sources: tuple[str, ...]
    fingerprints: tuple[Fingerprint, ...]
    allow: frozenset[str]
    selection: tuple[tuple[str, Any], ...]
    format: str
    shards: int | None
    ties: str = "copy"
    mapping: ContentsMapping | None = None


@dataclass(frozen=True)
class Job:
    """The job to write one file.

    Args:
        recipe: The sources and options.
        number: The number of the piece, from 0.
        target: The path.
        verify: Whether to read the file again before it appears.
        alone: Whether no other process can write there, so that the file may be visible while it
            grows.
        stop: A path. If it exists, the job does not begin. It also distinguishes jobs of different
            runs, for executors that cache results.
    """

    recipe: FileRecipe
    number: int
    target: str
    verify: bool
    stop: str
    alone: bool = False


class Done(NamedTuple):
    """A file that has been written."""

    number: int
    bytes_read: int
    bytes_written: int


def run_job(job: Job, progress: Callable[[int], None] | None = None) -> Done:
    """Open the sources, and write one piece of the output.

    Raises:
        FileFormatError: A source has changed since the job was planned, or breaks its format's
            rules.
        VerificationError: The file does not read back the same.
        OSError: It cannot be written.
    """
    recipe = job.recipe
    if Path(job.stop).exists():
        raise InterruptedError(errno.EINTR, "not begun, because another job had failed", job.target)
    _validate_unchanged(recipe)
    piece = _pieces(recipe)[job.number]
    format_ = format_named(recipe.format)
    pump = Pump(progress)
    if job.alone:
        write_piece(piece, format_, Path(job.target), pump, check=job.verify, allow=recipe.allow)
        _validate_unchanged(recipe)
    else:
        with publishing(Path(job.target), is_folder=format_.is_folder) as path:
            write_piece(piece, format_, path, pump, check=job.verify, allow=recipe.allow)
            _validate_unchanged(recipe)
    read, written = sizes(piece)
    return Done(job.number, read, written)


def write_piece(
    piece: Contents,
    format_: Format,
    path: Path,
    pump: Pump,
    *,
    check: bool,
    allow: frozenset[str] = frozenset(),
) -> None:
    """Write contents to a path, and, with `check`, read them again and compare.

    Raises:
        FormatLimitError: The format cannot hold them; nothing is written.
        VerificationError: They do not read back the same.
    """
    format_.ensure_loaded()
    refuse_contents(format_, piece)
    with pump.deferring():
        format_.write(piece, path, pump)
    if check:
        sync(path)
        verify(piece, path, format_, allow=allow, progress=pump.progress)


def open_all(
    sources: tuple[str, ...],
    allow: frozenset[str],
    *,
    tensors_only: bool = False,
    differing: dict[str, list[str]] | None = None,
    partly: bool = False,
) -> Contents:
    """The contents of several files and folders together.

    Args:
        sources: Their paths.
        allow: As for `Format.read`.
        tensors_only: Whether only their tensors must fit together.
        differing: A dict that gets the metadata of their format in which they differ: the values,
            by key. The first is taken.
        partly: As for `open_path`.

    Raises:
        UnsafeFileError: One asks for a class that is not allowed.
        FileFormatError: Two have tensors with the same name, or do not fit together.
    """
    opened = [open_path(place_of(source, ""), allow=allow, partly=partly) for source in sources]
    for contents in opened:
        if contents.refuses:
            raise UnsafeFileError(
                f"{named(contents.paths)} asks for {named(contents.refuses)}, which is not run."
            )
    if len(opened) == 1:
        return opened[0]
    whole = Contents(opened[0].format, tuple(path for one in opened for path in one.paths))
    whole.asks_for = tuple(dict.fromkeys(name for one in opened for name in one.asks_for))
    blocks: dict[str, Blocks] = {}
    for one in opened:
        _validate_new("tensors", whole.tensors, one.tensors)
        _validate_new("values", whole.others, one.others)
        if one.columns is not None:
            known = whole.columns
            if known is None:
                whole.columns = one.columns
            else:
                whole.columns = known.joined(one.columns)
        whole.tensors.update(one.tensors)
        whole.others.update(one.others)
        blocks |= blocks_of(one)
        for key, value in with_block_kinds(one.metadata, {}).items():
            if key in one.own:
                continue
            if whole.metadata.setdefault(key, value) != value and not tensors_only:
                raise FileFormatError(
                    f"The sources do not go together: they differ in the metadata {key!r}.",
                    Hint(hints.keyword("tensors_only", True), ", which leaves it out"),
                )
    own_values = _own_metadata(opened)
    if differing is not None:
        differing |= {key: values for key, values in own_values.items() if len(values) > 1}
    # What somebody stored goes before what belongs to a format.
    own = {key: text for one in opened for key, text in one.own.items()}
    whole.own = {key: text for key, text in own.items() if key not in whole.metadata}
    taken = {key: values[0] for key, values in own_values.items()}
    whole.metadata = with_block_kinds({**taken, **whole.metadata}, blocks)
    if tensors_only:
        # Only to list what is left out.
        whole.tree = [one.tree for one in opened if one.tree is not None] or None
    elif any(one.tree is not None for one in opened):
        whole.tree = merged_tree(opened)
    return whole


def takes_a_part(selection: Mapping[str, Any]) -> bool:
    """Whether these keywords of `select` may leave out an object of a pickle."""
    return bool(selection["include"] or selection["exclude"] or selection["tensors_only"])


def chosen(
    opened: Contents, selection: Mapping[str, Any], format_: Format
) -> tuple[Contents, dict[str, str]]:
    """What is written of contents; the objects in it, texts and dicts in a file: see `objects_in`.

    Raises:
        FormatLimitError: As for `select`.
        UnsafeFileError: As for `select`.
    """
    return in_text(select(opened, **selection, to=format_))


def _own_metadata(opened: Sequence[Contents]) -> dict[str, list[str]]:
    """The different values of the metadata that belong to the formats of several sources."""
    own_values: dict[str, dict[str, None]] = {}
    for contents in opened:
        for key in contents.own:
            own_values.setdefault(key, {})[contents.metadata[key]] = None
    return {key: list(values) for key, values in own_values.items()}


def _validate_new(what: str, there: Collection[str], more: Iterable[str]) -> None:
    twice = [name for name in more if name in there]
    if twice:
        raise FileFormatError(
            f"The sources do not go together: two {what} are named {named(twice)}."
        )


_kept: tuple[FileRecipe, list[Contents]] | None = None


@contextmanager
def keep(recipe: FileRecipe, made: list[Contents]) -> Iterator[None]:
    """Keep the opened sources of a recipe, inside the block, for jobs that run in this process."""
    global _kept
    _kept = (recipe, made)
    try:
        yield
    finally:
        _kept = None


def _pieces(recipe: FileRecipe) -> list[Contents]:
    """The pieces of the output.

    They are cached between jobs, because a long header takes time to read.
    """
    global _kept
    kept = _kept
    if kept is None or kept[0] != recipe:
        selection = dict(recipe.selection)
        opened = open_all(
            recipe.sources,
            recipe.allow,
            tensors_only=selection["tensors_only"],
            partly=takes_a_part(selection),
        )
        if recipe.mapping is not None:
            opened = recipe.mapping.mapped(opened)
        format_ = format_named(recipe.format)
        contents = untied(chosen(opened, selection, format_)[0], format_, recipe.ties)
        kept = _kept = (recipe, pieces(contents, recipe.shards, format_))
    return kept[1]


def _validate_unchanged(recipe: FileRecipe) -> None:
    now = set(fingerprints(tuple(fingerprint.path for fingerprint in recipe.fingerprints)))
    changed = [fingerprint.path for fingerprint in recipe.fingerprints if fingerprint not in now]
    if changed:
        raise FileFormatError(
            f"{named(changed)} has changed since the conversion began.", "begin anew"
        )
