"""Conversions that are interrupted and go on, or are done in parts: no shard is written twice, none is mistaken."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from tests.files.converting import (
    ROOT,
    arrays_of,
    model,
    names,
    same,
    write,
)
from tests.support import python

from tensorferry.errors import LossyCastError, OutputExistsError, ResumableError
from tensorferry.files.conversion.convert import convert_files
from tensorferry.files.conversion.publish import Workspace
from tensorferry.files.opening.paths import format_named, open_path


class Failing:
    """Stops the n-th file that a format writes."""

    def __init__(self, monkeypatch, error, after, to="safetensors"):
        self.writer = type(format_named(to))
        self.real = self.writer.write
        self.left = after
        self.error = error
        self.written = []
        monkeypatch.setattr(self.writer, "write", lambda _, *rest: self.write(*rest))

    def write(self, piece, path, pump):
        if self.left == 0:
            path.write_bytes(b"half")
            raise self.error
        self.left -= 1
        self.written.append(path.name)
        self.real(format_named("safetensors"), piece, path, pump)


KEYWORDS = {"to": "safetensors", "shard": "20KB"}


@pytest.mark.parametrize(
    "error", [OSError(errno.EIO, "I/O error"), KeyboardInterrupt(), MemoryError()]
)
def test_finished_shards_are_kept_and_resumed(tmp_path, monkeypatch, error):
    """Ctrl-C passes through, other stops become `ResumableError`; the next run writes only the rest."""
    start = write(tmp_path / "in.safetensors", model())
    with monkeypatch.context() as patch:
        Failing(patch, error, 3)
        with pytest.raises(
            KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else ResumableError
        ) as raised:
            convert_files(start, tmp_path / "out", **KEYWORDS)
        if isinstance(error, Exception):
            assert raised.value.__cause__ is error
            assert "3 of 8" in str(raised.value)
            assert "resume=True" in str(raised.value)
    assert not (tmp_path / "out").exists()
    counting = Failing(monkeypatch, None, -1)
    report = convert_files(start, tmp_path / "out", resume=True, **KEYWORDS)
    assert len(counting.written) == 5
    assert [Path(each).name for each in report.skipped] == [
        f"model-0000{n}-of-00008.safetensors" for n in (1, 2, 3)
    ]
    assert len(report.written) == 6
    same(arrays_of(tmp_path / "out"), model())
    assert names(tmp_path) == ["in.safetensors", "out"]


def test_without_resume_it_begins_anew(tmp_path, monkeypatch):
    """What an interrupted run left is removed."""
    start = write(tmp_path / "in.safetensors", model())
    with monkeypatch.context() as patch:
        Failing(patch, OSError("no"), 3)
        with pytest.raises(ResumableError):
            convert_files(start, tmp_path / "out", **KEYWORDS)
    counting = Failing(monkeypatch, None, -1)
    report = convert_files(start, tmp_path / "out", **KEYWORDS)
    assert len(counting.written) == 8
    assert report.skipped == ()
    assert names(tmp_path) == ["in.safetensors", "out"]


@pytest.mark.parametrize("what", ["source", "dtype", "shard", "metadata"])
def test_finished_shards_of_another_conversion_are_not_used(tmp_path, monkeypatch, what):
    """Other sources or other options: begun anew, and the result is that of the new ones."""
    start = write(tmp_path / "in.safetensors", model())
    with monkeypatch.context() as patch:
        Failing(patch, OSError("no"), 3)
        with pytest.raises(ResumableError):
            convert_files(start, tmp_path / "out", **KEYWORDS)
    keywords, wanted = dict(KEYWORDS), model()
    if what == "source":
        wanted = {name: -array for name, array in wanted.items()}
        start.unlink()
        write(start, wanted)
    elif what == "dtype":
        keywords["dtype"] = "bfloat16"
        wanted = {name: array.astype(ml_dtypes.bfloat16) for name, array in wanted.items()}
    elif what == "metadata":
        keywords["metadata"] = {"note": "new"}
    else:
        keywords["shard"] = "40KB"
    report = convert_files(start, tmp_path / "out", resume=True, **keywords)
    assert report.skipped == ()
    same(arrays_of(tmp_path / "out"), wanted)
    assert open_path(tmp_path / "out").metadata.get("note") == (
        "new" if what == "metadata" else None
    )


def test_an_error_of_the_input_leaves_nothing(tmp_path):
    """A number that does not fit in the last shard will not fit the next time either: no shard is kept."""
    arrays = model()
    arrays["layers.7.weight"][0, 0] = 1e30
    start = write(tmp_path / "in.safetensors", arrays)
    with pytest.raises(LossyCastError, match=r"layers\.7"):
        convert_files(start, tmp_path / "out", dtype="float16", **{**KEYWORDS, "shard": "10KB"})
    assert names(tmp_path) == ["in.safetensors"]


def test_resuming_what_is_not_there_just_runs(tmp_path):
    """A first run may say resume; an existing target still needs overwrite."""
    start = write(tmp_path / "in.safetensors", model())
    convert_files(start, tmp_path / "out", resume=True, **KEYWORDS)
    with pytest.raises(OutputExistsError):
        convert_files(start, tmp_path / "out", resume=True, **KEYWORDS)
    assert names(tmp_path) == ["in.safetensors", "out"]
    convert_files(start, tmp_path / "out", resume=True, overwrite=True, **KEYWORDS)
    same(arrays_of(tmp_path / "out"), model())


@pytest.mark.parametrize(
    "options", [{"resume": True}, {"part": (1, 2)}, {"resume": True, "part": (1, 2)}, {}]
)
@pytest.mark.parametrize("keywords", [KEYWORDS, {"to": "npz"}])
def test_a_dry_run_refuses_what_the_run_does(tmp_path, options, keywords):
    """An output that exists already is refused by both; with overwrite by neither."""
    start, target = write(tmp_path / "in.safetensors", model()), tmp_path / "out"
    convert_files(start, target, **keywords)
    for dry_run in (True, False):
        with pytest.raises(OutputExistsError, match="exists already"):
            convert_files(start, target, dry_run=dry_run, **options, **keywords)
    assert convert_files(start, target, dry_run=True, overwrite=True, **options, **keywords).dry_run


@pytest.mark.parametrize("sharded", [True, False])
def test_a_run_that_was_killed_after_it_had_published_is_finished(tmp_path, monkeypatch, sharded):
    """Only its cleaning up was missing: resume does that, says that all was there, and needs no overwrite."""
    start = write(tmp_path / "in.safetensors", model())
    target, keywords = (tmp_path / "out", KEYWORDS) if sharded else (tmp_path / "out.npz", {})
    with monkeypatch.context() as patch:
        patch.setattr(Workspace, "discard", lambda _: None)
        wrote = convert_files(start, target, **keywords)
    assert len(names(tmp_path)) == 3
    report = convert_files(start, target, resume=True, **keywords)
    assert sorted(report.skipped) == sorted(wrote.written)
    assert report.written == ()
    same(arrays_of(target), model())
    assert names(tmp_path) == ["in.safetensors", target.name]


def test_an_old_folder_that_was_exchanged_is_not_taken_for_finished_shards(tmp_path, monkeypatch):
    """Killed while it removes the old folder, which then lies where the new one was made, under the same names."""
    start = write(tmp_path / "in.safetensors", model())
    convert_files(start, tmp_path / "out", dtype="bfloat16", **KEYWORDS)
    keywords = {**KEYWORDS, "dtype": "float16", "overwrite": True}

    def half(space):
        (space.folder / "published").unlink()

    with monkeypatch.context() as patch:
        patch.setattr(Workspace, "discard", half)
        convert_files(start, tmp_path / "out", **keywords)
    assert len(names(tmp_path / ".out.partial" / "out")) == 5
    report = convert_files(start, tmp_path / "out", resume=True, **keywords)
    assert report.skipped == ()
    same(
        arrays_of(tmp_path / "out"),
        {name: array.astype(np.float16) for name, array in model().items()},
    )
    assert names(tmp_path) == ["in.safetensors", "out"]


def test_a_single_file_in_parts(tmp_path):
    """The first part does it, the others have nothing to do."""
    start = write(tmp_path / "in.safetensors", model())
    assert convert_files(start, tmp_path / "out.npz", part=(2, 2)).written == ()
    assert not (tmp_path / "out.npz").exists()
    assert len(convert_files(start, tmp_path / "out.npz", part=(1, 2)).written) == 1
    same(arrays_of(tmp_path / "out.npz"), model())


def test_half_a_file_is_not_resumed(tmp_path, monkeypatch):
    """Killed in the middle of the only file: the next run begins it anew, with resume too."""
    start = write(tmp_path / "in.safetensors", model())
    code = f"""
import os, sys
import tensorferry
from tensorferry.files.base.pump import Pump
Pump.copy = lambda *_, **__: os._exit(7)
tensorferry.convert_files({str(start)!r}, {str(tmp_path / "out.npz")!r})
"""
    assert python(code).returncode == 7
    assert (tmp_path / ".out.npz.partial" / "out.npz").exists()
    convert_files(start, tmp_path / "out.npz", resume=True)
    same(arrays_of(tmp_path / "out.npz"), model())
    assert names(tmp_path) == ["in.safetensors", "out.npz"]


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2)])
def test_parts_one_after_the_other(tmp_path, order):
    """Each does its shards; the last one, in any order, writes the index and publishes."""
    start = write(tmp_path / "in.safetensors", model())
    written = []
    for number in order:
        assert not (tmp_path / "out").exists()
        report = convert_files(start, tmp_path / "out", part=(number, 3), verify=True, **KEYWORDS)
        written += [Path(each).name for each in report.written]
    assert sorted(written) == names(tmp_path / "out")
    assert written[-1] == "model.safetensors.index.json"
    same(arrays_of(tmp_path / "out"), model())
    assert names(tmp_path) == ["in.safetensors", "out"]


def test_parts_at_once(tmp_path):
    """Processes that begin and end together, more of them than there are shards: one publishes."""
    start = write(tmp_path / "in.safetensors", model())
    code = textwrap.dedent("""
        import sys
        from tensorferry.files.conversion.convert import convert_files
        convert_files(sys.argv[1], sys.argv[2], to="safetensors", shard="40KB", part=(int(sys.argv[3]), 6))
    """)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(start), str(tmp_path / "out"), str(number)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(1, 7)
    ]
    ended = [(each.communicate(timeout=600)[1], each.returncode) for each in running]
    assert ended == [("", 0)] * 6
    same(arrays_of(tmp_path / "out"), model())
    assert names(tmp_path) == ["in.safetensors", "out"]


def test_a_part_that_stopped_is_run_again(tmp_path, monkeypatch):
    """The other parts' shards are kept, and its own finished ones too."""
    start = write(tmp_path / "in.safetensors", model())
    convert_files(start, tmp_path / "out", part=(1, 2), **KEYWORDS)
    with monkeypatch.context() as patch:
        Failing(patch, OSError("no"), 2)
        with pytest.raises(ResumableError):
            convert_files(start, tmp_path / "out", part=(2, 2), **KEYWORDS)
    report = convert_files(start, tmp_path / "out", part=(2, 2), **KEYWORDS)
    assert len(report.skipped) == 2
    assert len(report.written) == 3
    same(arrays_of(tmp_path / "out"), model())


def test_a_part_does_not_mix_with_another_conversion(tmp_path):
    """Left by a killed run with other options: the first part begins anew."""
    start = write(tmp_path / "in.safetensors", model())
    convert_files(start, tmp_path / "out", part=(1, 2), dtype="float16", **KEYWORDS)
    for number in (1, 2):
        convert_files(start, tmp_path / "out", part=(number, 2), **KEYWORDS)
    same(arrays_of(tmp_path / "out"), model())
