"""`Work`: run a conversion's jobs and publish the output; also continue after an interruption."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from ... import hints
from ...core.version import __version__
from ...errors import ConversionError, OutputExistsError, ResumableError
from ...hints import Hint
from ..base.limits import refuse_contents
from ..opening.paths import refuse_name
from ..opening.shard_files import index_name, index_text, pieces, shard_names, sizes, untied
from .jobs import Job, keep, run_job
from .publish import Workspace, identity, naming, remove, validate_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from ..base.contents import Contents
    from ..base.format import Format
    from .jobs import Done, FileRecipe

__all__ = ["Layout", "Work", "Written", "write_index"]

_STATE = "job.json"
_STATE_VERSION = 1
_TRIES = 100


@dataclass(frozen=True)
class Layout:
    """The division of contents into files.

    Args:
        contents: All contents.
        pieces: The contents of each file.
        format: The format.
        target: The file or folder.
        names: The names of the files in a folder of shards; empty for one file, and for formats
            that are folders.
    """

    contents: Contents
    pieces: list[Contents]
    format: Format
    target: Path
    names: tuple[str, ...]

    @classmethod
    def of(
        cls,
        contents: Contents,
        format_: Format,
        target: Path,
        shards: int | None,
        ties: str = "copy",
    ) -> Layout:
        """The layout for a number of bytes in each file: see `FileRecipe`.

        Raises:
            FormatLimitError: The format cannot hold the contents, or no file of it can have this
                name.
        """
        contents = untied(contents, format_, ties)
        parts = pieces(contents, shards, format_)
        for piece in parts:
            refuse_contents(format_, piece)
        names = () if shards is None else tuple(shard_names(format_, len(parts)))
        made = cls(contents, parts, format_, target, names)
        if not names:
            refuse_name(target, format_)
        return made

    @property
    def is_folder(self) -> bool:
        """Whether the output is a folder."""
        return bool(self.names) or self.format.is_folder

    def file(self, number: int, output: Path) -> Path:
        """The path of a piece, if the output is made at `output`."""
        if self.names:
            return output / self.names[number]
        return output

    def files(self) -> list[str]:
        """The paths of the finished output."""
        if not self.names:
            return [str(self.target)]
        return [str(self.target / name) for name in (*self.names, index_name(self.format))]

    def replaceable(self) -> list[str] | None:
        """The names in an existing target folder that may be replaced; ``None`` if no folder."""
        try:
            return self._replaceable() if self.target.is_dir() else None
        except FileNotFoundError:
            return None  # another process has removed it

    def _replaceable(self) -> list[str]:
        if self.names:
            stem, ending = re.escape(self.names[0]).split("00001\\-of\\-", 1)
            one = re.compile(rf"{stem}\d{{5,}}-of-\d{{5,}}{ending[5:]}")
            index = index_name(self.format)
            return [
                entry.name
                for entry in self.target.iterdir()
                if one.fullmatch(entry.name) or entry.name == index
            ]
        if self.format.is_folder and self.format.recognises(self.target, b""):
            return self.format.own_entries(self.target)
        return []


@dataclass
class Written:
    """The result of a conversion."""

    bytes_read: int = 0
    bytes_written: int = 0
    written: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Work:
    """Runs the jobs of a conversion, and publishes their output.

    Args:
        recipe: The sources and options.
        layout: The layout of the output.
        run: `run_all` with its keywords.
        in_threads: Whether the jobs run in this process.
        verify: Whether each file is read again.
        overwrite: Whether an existing output is replaced.
        resume: Whether an interrupted run is continued.
    """

    recipe: FileRecipe
    layout: Layout
    run: Callable[..., None]
    in_threads: bool
    verify: bool
    overwrite: bool
    resume: bool

    def rehearse(self, part: tuple[int, int] | None = None) -> None:
        """Raise the errors that `whole` or `part` would raise at the beginning. Nothing is changed.

        Raises:
            OutputExistsError: The target exists.
            OSError: It cannot be written there.
        """
        if part is not None and self.layout.names:
            if part[0] <= len(self.layout.pieces):
                self._validate()
            return
        space = Workspace(self.layout.target)
        if not (self.resume and space.has_published() and self._is_ours(space, anywhere=True)):
            self._validate()

    def whole(self, progress: Callable[[int], None] | None = None) -> Written:
        """Run all jobs.

        Raises:
            ResumableError: It was stopped, and some shards are complete.
            ConversionError: A job failed; nothing is left behind.
            OSError: A job failed, and no shard is complete.
        """
        with Workspace(self.layout.target) as space:
            published = space.recover()
            if self.resume and published and self._is_ours(space, anywhere=True):
                space.discard()
                return Written(skipped=self.layout.files())
            try:
                self._validate()
                if self.resume and self._is_ours(space):
                    space.clear(keep=(_STATE, space.output.name))
                else:
                    space.clear()
                    self._begin(space)
                with naming(self.layout.target):
                    outcome = self._do(space, range(len(self.layout.pieces)), progress)
                    self._publish(space, outcome)
            except BaseException as error:
                self._stop(space, error)
                raise
            space.discard()
            return outcome

    def part(self, part: tuple[int, int], progress: Callable[[int], None] | None = None) -> Written:
        """Run the jobs of one of several parts. The last part publishes the output.

        Raises:
            OutputExistsError: The target exists, or is being made by a conversion with other
                options.
            ResumableError: It was stopped, and some shards are complete.
        """
        number, count = part
        numbers = range(number - 1, len(self.layout.pieces), count)
        if not numbers:
            return Written()
        if not self.layout.names:
            return self.whole(progress)
        space = Workspace(self.layout.target)
        self._join(space)
        try:
            with naming(self.layout.target):
                outcome = self._do(space, numbers, progress)
        except BaseException as error:
            if self._keeps(space, error) and isinstance(error, Exception):
                raise self._resumable(space, error) from error
            raise
        finally:
            space.unlock()
        # The last part finds all shards. If two parts end at the same time, the second finds the
        # published output.
        space.lock(wait=True)
        try:
            if not (space.folder / _STATE).exists():
                space.discard()  # to lock it has created it again
            elif self._is_ours(space) and len(self._finished(space)) == len(self.layout.pieces):
                self._publish(space, outcome)
                space.discard()
        finally:
            space.unlock()
        return outcome

    def _join(self, space: Workspace) -> None:
        """Lock the folder together with other parts. The first of them makes it."""
        problem: OutputExistsError | None = None
        for _ in range(_TRIES):
            try:
                space.lock(shared=True)
                if self._is_ours(space):
                    break
                space.unlock()
                space.lock()
            except OutputExistsError as error:
                # Another part may be making or publishing the folder, which is quick; a whole
                # conversion is not.
                problem = error
                time.sleep(0.05)
                continue
            try:
                space.recover()
                if not self._is_ours(space):
                    self._validate()
                    space.clear()
                    self._begin(space)
            except BaseException:
                space.discard()
                raise
            finally:
                space.unlock()
        else:
            raise problem or OutputExistsError(
                f"{self.layout.target} is being made by several conversions at once."
            )
        try:
            self._validate()
        except BaseException:
            space.unlock()
            raise

    def _validate(self) -> None:
        layout = self.layout
        validate_target(
            layout.target,
            overwrite=self.overwrite,
            is_folder=layout.is_folder,
            own=layout.replaceable(),
        )

    def _begin(self, space: Workspace) -> None:
        if self.layout.names:
            space.output.mkdir()
        state = {"conversion": self._conversion(), "folder": identity(space.output)}
        (space.folder / _STATE).write_text(json.dumps(state), "utf-8")

    def _do(
        self, space: Workspace, numbers: Iterable[int], progress: Callable[[int], None] | None
    ) -> Written:
        layout, outcome = self.layout, Written()
        finished = self._finished(space)
        left = []
        passes = 2 if self.verify else 1
        for number in numbers:
            if number not in finished:
                left.append(number)
                continue
            outcome.skipped.append(str(layout.file(number, layout.target)))
            if progress is not None:
                progress(sizes(layout.pieces[number])[1] * passes)
        needed = sum(sizes(layout.pieces[number])[1] for number in left)
        validate_target(layout.target, overwrite=True, nbytes=needed, is_folder=layout.is_folder)

        def done(result: Done) -> None:
            outcome.bytes_read += result.bytes_read
            outcome.bytes_written += result.bytes_written
            outcome.written.append(str(layout.file(result.number, layout.target)))
            if progress is not None and not self.in_threads:
                progress(result.bytes_written * passes)

        alone = self.in_threads and not layout.names
        stop = space.folder / f"stop-{uuid4().hex}"
        jobs = [
            Job(
                self.recipe,
                number,
                str(layout.file(number, space.output)),
                self.verify,
                str(stop),
                alone=alone,
            )
            for number in left
        ]
        try:
            with keep(self.recipe, layout.pieces):
                self.run(run_job, jobs, done, abort=stop.touch)
        finally:
            stop.unlink(missing_ok=True)
        return outcome

    def _publish(self, space: Workspace, outcome: Written) -> None:
        if self.layout.names:
            own = set(self.layout.names)
            for entry in list(space.output.iterdir()):
                if entry.name not in own:
                    remove(entry)
            index = write_index(self.layout, space.output)
            outcome.written.append(str(self.layout.target / index))
        space.publish(overwrite=self.overwrite)

    def _stop(self, space: Workspace, error: BaseException) -> None:
        if not self._keeps(space, error):
            space.discard()
        elif isinstance(error, Exception):
            raise self._resumable(space, error) from error

    def _keeps(self, space: Workspace, error: BaseException) -> bool:
        """Whether another run could continue. After an error of the input it could not."""
        if isinstance(error, ChildProcessError):
            return True
        return not isinstance(error, ConversionError) and bool(self._finished(space))

    def _resumable(self, space: Workspace, error: Exception) -> ResumableError:
        done, count = len(self._finished(space)), len(self.layout.pieces)
        return ResumableError(
            f"Stopped with {done} of {count} shards finished ({type(error).__name__}: {error}); "
            f"they are kept in {space.folder}.",
            Hint(hints.keyword("resume", True), " goes on from there"),
        )

    def _finished(self, space: Workspace) -> set[int]:
        """The shards that exist. Each got its name only when it was complete and verified."""
        names = self.layout.names
        if not names or not space.output.is_dir():
            return set()
        there = {entry.name for entry in space.output.iterdir()}
        return {number for number, name in enumerate(names) if name in there}

    def _is_ours(self, space: Workspace, *, anywhere: bool = False) -> bool:
        """Whether the existing shards belong to the same conversion of the same sources.

        While a new folder replaces an old one, the old one is for a moment at the place of the new
        one. So the identity of the folder is compared, unless `anywhere`.
        """
        try:
            state: Any = json.loads((space.folder / _STATE).read_text("utf-8"))
            same = state["conversion"] == self._conversion()
            folder = state["folder"]
        except (OSError, ValueError, TypeError, KeyError):
            return False
        if anywhere:
            return bool(same)
        # A single file is started again, because it is not known how much of it was written.
        return bool(same and self.layout.names and folder == identity(space.output))

    def _conversion(self) -> Any:
        recipe = self.recipe
        state = {
            "version": _STATE_VERSION,
            "tensorferry": __version__,
            "sources": [
                (source.path, source.nbytes, source.changed) for source in recipe.fingerprints
            ],
            "format": recipe.format,
            "selection": {
                **dict(recipe.selection),
                "columns": repr(dict(recipe.selection)["columns"]),
            },
            "allow": sorted(recipe.allow),
            "ties": recipe.ties,
            "mapping": repr(recipe.mapping),
            "verify": self.verify,
            "shards": self.layout.names,
        }
        return json.loads(json.dumps(state))


def write_index(layout: Layout, folder: Path) -> str:
    """Write the index of a folder of shards; gives its name."""
    form, name = layout.format, index_name(layout.format)
    # What belongs to a file of the format is in each shard. Other writers have it not in the index.
    carried = form.metadata_of(layout.contents).items()
    strings = {key: text for key, text in carried if key not in form.own_metadata}
    contents = layout.contents._replace(metadata=strings)
    text = index_text(contents, dict(zip(layout.names, layout.pieces, strict=True)))
    (folder / name).write_text(text, "utf-8")
    return name
