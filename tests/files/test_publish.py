"""Publishing: the target is the old file or the new one, never a part; a user who may not write is told before."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import textwrap
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tensorferry.errors import OutputExistsError
from tensorferry.files.conversion import publish
from tensorferry.files.conversion.publish import Workspace, publishing, validate_target

ROOT = Path(__file__).resolve().parents[2]


def started(code):
    """A process that runs code, and its output as it comes."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT / "src",
    )


def names(folder):
    return sorted(each.name for each in folder.iterdir())


@contextmanager
def nobody():
    """As a user without rights, if the tests run as root, who has them everywhere."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder():
    """A folder that another user can reach."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    for each in folder.rglob("*"):
        if each.is_dir():
            each.chmod(0o755)
    shutil.rmtree(folder)


def test_the_target_appears_whole_and_nothing_else_stays(tmp_path):
    """While the block runs there is no target; afterwards there is, and no other file."""
    target = tmp_path / "out.bin"
    with publishing(target) as path:
        path.write_bytes(b"new")
        assert path.name == "out.bin"
        assert path.parent.parent == tmp_path
        assert path.parent.name == ".out.bin.partial"
        assert not target.exists()
    assert target.read_bytes() == b"new"
    assert names(tmp_path) == ["out.bin"]


def write_half(target, error):
    with publishing(target, overwrite=True) as path:
        path.write_bytes(b"half")
        raise error


def write_beside_another(target):
    with publishing(target) as path:
        path.write_bytes(b"new")
        target.write_bytes(b"theirs")


def test_an_error_in_the_block_leaves_the_folder_as_it_was(tmp_path):
    """The old file stays, what was written goes, and the error passes through; Ctrl-C too."""
    target = tmp_path / "out.bin"
    target.write_bytes(b"old")
    for error in (RuntimeError, KeyboardInterrupt):
        with pytest.raises(error):
            write_half(target, error)
        assert target.read_bytes() == b"old"
        assert names(tmp_path) == ["out.bin"]


def test_an_existing_target_is_refused_before_the_block(tmp_path):
    """Without overwrite the block is not entered; with it the file is replaced."""
    target = tmp_path / "out.bin"
    target.write_bytes(b"old")
    with pytest.raises(OutputExistsError, match="exists already"), publishing(target):
        pytest.fail("the block was entered")
    with publishing(target, overwrite=True) as path:
        path.write_bytes(b"new")
    assert target.read_bytes() == b"new"
    assert names(tmp_path) == ["out.bin"]


@pytest.mark.parametrize("flags", [True, False])
def test_a_target_that_appears_meanwhile_is_not_replaced(tmp_path, monkeypatch, flags):
    """Somebody else's file stays, whether or not the file system can rename without replacing."""
    if not flags:
        monkeypatch.setattr(publish, "_rename", lambda *_: False)
    target = tmp_path / "out.bin"
    with pytest.raises(OutputExistsError):
        write_beside_another(target)
    assert target.read_bytes() == b"theirs"
    assert names(tmp_path) == ["out.bin"]


def test_a_second_writer_is_told(tmp_path):
    """Two at once: the second raises, and the first ends undisturbed."""
    target = tmp_path / "out.bin"
    with publishing(target) as path:
        path.write_bytes(b"first")
        with (
            pytest.raises(OutputExistsError, match="being written by another process"),
            publishing(target),
        ):
            pytest.fail("the block was entered")
    assert target.read_bytes() == b"first"


def test_many_writers_at_once(tmp_path):
    """Processes that begin together: each writes the whole file or is refused and tries again; no leftover stays."""
    script = tmp_path / "writer.py"
    script.write_text(
        textwrap.dedent("""
            import sys
            from pathlib import Path
            from tensorferry.errors import OutputExistsError
            from tensorferry.files.conversion.publish import publishing
            won = 0
            while won < 20:
                try:
                    with publishing(Path(sys.argv[1]), overwrite=True) as path:
                        path.write_bytes(sys.argv[2].encode() * 1000)
                    won += 1
                except OutputExistsError:
                    pass
            print(won)
        """)
    )
    folder = tmp_path / "out"
    folder.mkdir()
    target = folder / "out.bin"
    command = [sys.executable, str(script), str(target)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    writers = [
        subprocess.Popen([*command, letter], env=environment, stdout=subprocess.PIPE, text=True)
        for letter in "abc"
    ]
    won = [int(writer.communicate(timeout=600)[0]) for writer in writers]
    assert won == [20, 20, 20]
    assert target.read_bytes() in {letter * 1000 for letter in (b"a", b"b", b"c")}
    assert names(folder) == ["out.bin"]


def test_the_folder_may_go_while_another_asks_for_it(tmp_path, monkeypatch):
    """Whoever finds the folder there, and sees it removed a moment later, makes it; it is not called a file."""
    target = tmp_path / "out.bin"
    gone = Workspace(target).folder
    make, asked = Path.mkdir, []

    def found_and_removed(path, *arguments, **keywords):
        asked.append(path)
        if len(asked) == 1:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        make(path, *arguments, **keywords)

    monkeypatch.setattr(Path, "mkdir", found_and_removed)
    with publishing(target) as path:
        path.write_bytes(b"1")
    assert asked == [gone, gone]
    assert names(tmp_path) == ["out.bin"]


def test_many_wait_for_a_folder_that_others_remove(tmp_path):
    """Processes that lock the folder and remove it, over and over: nobody is refused, and it is gone at the end."""
    code = textwrap.dedent("""
        import sys
        from pathlib import Path
        from tensorferry.files.conversion.publish import Workspace
        for _ in range(200):
            space = Workspace(Path(sys.argv[1]))
            space.lock(wait=True)
            space.discard()
            space.unlock()
    """)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", code, str(tmp_path / "out.bin")]
    running = [
        subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    assert [(each.communicate(timeout=600)[1], each.returncode) for each in running] == [
        ("", 0)
    ] * 6
    assert names(tmp_path) == []


def test_what_a_killed_run_left_is_removed(tmp_path):
    """A process that is killed while it writes leaves the old file, and its lock dies with it: the next one writes."""
    target = tmp_path / "out.bin"
    target.write_bytes(b"old")
    child = started(
        f"""
        import time
        from pathlib import Path
        from tensorferry.files.conversion.publish import publishing
        with publishing(Path({str(target)!r}), overwrite=True) as path:
            path.write_bytes(b"half")
            print("ready", flush=True)
            time.sleep(600)
        """
    )
    assert child.stdout.readline() == "ready\n"
    child.kill()
    child.communicate()
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == [".out.bin.partial", "out.bin"]
    with publishing(target, overwrite=True) as path:
        assert not path.exists()
        path.write_bytes(b"new")
    assert target.read_bytes() == b"new"
    assert names(tmp_path) == ["out.bin"]


def test_everything_is_flushed_in_order(tmp_path, monkeypatch):
    """The file, then the folder it is made in, then (after the rename) the folder that it appears in."""
    target = tmp_path / "out.bin"
    seen = []
    real = os.fsync

    def record(descriptor):
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        seen.append((path, target.exists()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    with publishing(target) as path:
        path.write_bytes(b"new")
    made = tmp_path / ".out.bin.partial"
    assert (made / "out.bin", False) in seen
    assert (made, False) in seen
    assert seen[-1] == (tmp_path, True)


def test_every_file_of_a_folder_is_flushed(tmp_path, monkeypatch):
    """A folder is flushed with its files and its folders, the inner ones first."""
    target = tmp_path / "out"
    seen = []
    real = os.fsync
    monkeypatch.setattr(
        os,
        "fsync",
        lambda number: (seen.append(Path(f"/proc/self/fd/{number}").readlink()), real(number))[1],
    )
    with publishing(target, is_folder=True) as path:
        (path / "inner").mkdir(parents=True)
        (path / "inner" / "a").write_bytes(b"a")
        (path / "b").write_bytes(b"b")
    made = tmp_path / ".out.partial" / "out"
    wanted = [made / "inner" / "a", made / "inner", made / "b", made]
    assert set(wanted) <= set(seen)
    assert seen.index(wanted[0]) < seen.index(wanted[1]) < seen.index(made)


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_the_umask_is_honoured(tmp_path, mask):
    """The mode is that of any new file, whatever the mode of the file that is made, or that is replaced."""
    target = tmp_path / "out.bin"
    before = os.umask(mask)
    try:
        for mode in (0o600, 0o644):
            with publishing(target, overwrite=True) as path:
                path.write_bytes(b"new")
                path.chmod(mode)
            assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~mask
            target.chmod(0o700)
    finally:
        os.umask(before)


@pytest.mark.parametrize("flags", [True, False])
def test_a_folder_takes_the_place_of_a_folder(tmp_path, monkeypatch, flags):
    """The old folder goes whole and the new one comes whole; an empty one needs no overwrite."""
    if not flags:
        monkeypatch.setattr(publish, "_rename", lambda *_: False)
    target = tmp_path / "out"
    target.mkdir()
    for overwrite in (False, True):
        with publishing(target, overwrite=overwrite, is_folder=True) as path:
            path.mkdir()
            (path / f"new{overwrite}").write_bytes(b"new")
        assert names(target) == [f"new{overwrite}"]
        assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("killed_after", [1, 2])
def test_a_run_that_is_killed_between_two_renames_is_recovered(tmp_path, monkeypatch, killed_after):
    """Where a file system cannot exchange two names, the next run ends what the killed one had begun."""
    monkeypatch.setattr(publish, "_rename", lambda *_: False)
    target = tmp_path / "out"
    target.mkdir()
    (target / "old").write_bytes(b"old")
    child = started(
        f"""
        import os
        from pathlib import Path
        from tensorferry.files.conversion import publish
        done = []
        def rename(path, to, real=Path.rename):
            result = real(path, to)
            done.append(path)
            if len(done) == {killed_after}:
                os._exit(7)
            return result
        Path.rename = rename
        publish._rename = lambda *_: False
        with publish.publishing(Path({str(target)!r}), overwrite=True, is_folder=True) as path:
            path.mkdir()
            (path / "new").write_bytes(b"new")
        """
    )
    child.communicate()
    assert child.returncode == 7
    assert target.exists() == (killed_after == 2)
    with Workspace(target) as work:
        assert work.recover()
        assert names(target) == ["new"]
        work.discard()
    assert names(tmp_path) == ["out"]


def test_the_old_folder_comes_back_if_the_new_one_is_gone(tmp_path):
    """Killed between two renames, and the new output lost: the old one is put back."""
    target = tmp_path / "out"
    with Workspace(target) as work:
        (work.folder / "previous").mkdir()
        (work.folder / "previous" / "old").write_bytes(b"old")
        assert not work.recover()
    assert names(target) == ["old"]


def test_a_symlink_stays_and_what_it_points_to_is_replaced(tmp_path):
    """As `cp` does."""
    real = tmp_path / "elsewhere" / "real.bin"
    real.parent.mkdir()
    real.write_bytes(b"old")
    link = tmp_path / "link.bin"
    link.symlink_to(real)
    with pytest.raises(OutputExistsError), publishing(link):
        pytest.fail("the block was entered")
    with publishing(link, overwrite=True) as path:
        path.write_bytes(b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    assert names(real.parent) == ["real.bin"]


def test_a_source_is_never_the_target(tmp_path):
    """By path, by symlink, by hard link, within a folder that is read, or around what is read."""
    source = tmp_path / "model" / "in.bin"
    source.parent.mkdir()
    source.write_bytes(b"source")
    linked, hard = tmp_path / "linked.bin", tmp_path / "hard.bin"
    linked.symlink_to(source)
    hard.hardlink_to(source)
    for target in (source, linked, hard, tmp_path / "model" / ".." / "model" / "in.bin"):
        with pytest.raises(OutputExistsError, match="never changed"):
            validate_target(target, overwrite=True, sources=[source])
    with pytest.raises(OutputExistsError, match="never changed"):
        validate_target(source.parent / "out.bin", overwrite=True, sources=[source.parent])
    with pytest.raises(OutputExistsError, match="contains"):
        validate_target(source.parent, overwrite=True, sources=[source], is_folder=True)
    assert source.read_bytes() == b"source"


def test_a_folder_with_other_things_in_it_is_not_replaced(tmp_path):
    """What no conversion wrote is named, and stays."""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "old-1").write_text("")
    with pytest.raises(OutputExistsError, match=r"config\.json"):
        validate_target(tmp_path, overwrite=True, is_folder=True, own=["old-1"])
    validate_target(tmp_path, overwrite=True, is_folder=True, own=["old-1", "config.json"])


def test_a_device_is_not_replaced():
    """Nor is it taken for a file that is in the way."""
    for overwrite in (True, False):
        with pytest.raises(OutputExistsError, match="/dev/null is a device"):
            validate_target(Path("/dev/null"), overwrite=overwrite)


@pytest.mark.parametrize("kind", ["file", "folder"])
@pytest.mark.parametrize("look", ["access", "iterdir", "samefile"])
def test_a_target_that_goes_between_two_looks_is_no_target(tmp_path, monkeypatch, kind, look):
    """Another process may remove it at any moment: then there is nothing to refuse."""
    target, source = tmp_path / "target", tmp_path / "source"
    source.write_bytes(b"source")
    if kind == "file":
        target.write_bytes(b"")
    else:
        target.mkdir()
        (target / "x").write_bytes(b"")

    def gone():
        with suppress(OSError):
            (target / "x").unlink()
        with suppress(OSError):
            target.rmdir()
        target.unlink(missing_ok=True)

    owner = os if look == "access" else Path
    real = getattr(owner, look)

    def late(path, *rest, **keywords):
        if Path(path) == target:
            gone()
        return real(path, *rest, **keywords)

    monkeypatch.setattr(owner, look, late)
    if look == "access":
        monkeypatch.setattr("os.supports_effective_ids", {late})
    validate_target(target, overwrite=True, sources=[source], is_folder=kind == "folder", own=["x"])
    monkeypatch.undo()
    assert target.exists() == (kind == "file" and look == "iterdir")


def test_a_folder_that_goes_between_two_looks_is_named(tmp_path, monkeypatch):
    """The error is that there is no folder, not that there is no permission."""
    folder = tmp_path / "folder"
    folder.mkdir()
    real = os.access
    monkeypatch.setattr(
        "os.access", lambda *rest, **keywords: (folder.rmdir(), real(*rest, **keywords))[1]
    )
    monkeypatch.setattr("os.supports_effective_ids", {os.access})
    with pytest.raises(FileNotFoundError, match="does not exist"):
        validate_target(folder / "out.bin")


def test_a_file_does_not_take_the_place_of_a_folder(tmp_path):
    """Not even of an empty one."""
    for overwrite in (True, False):
        with pytest.raises(OutputExistsError, match="is a folder"):
            validate_target(tmp_path, overwrite=overwrite)


def test_a_missing_folder_is_named(tmp_path):
    """The error says which folder is not there, and none is made."""
    with (
        pytest.raises(FileNotFoundError, match="does not exist") as raised,
        publishing(tmp_path / "no" / "out.bin"),
    ):
        pytest.fail("the block was entered")
    assert raised.value.filename == str(tmp_path / "no")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError), publishing(tmp_path / "file" / "out.bin"):
        pytest.fail("the block was entered")
    assert names(tmp_path) == ["file"]


def test_a_folder_without_permission_is_refused(open_folder):
    """Before anything is written; likewise a file that may not be written."""
    with nobody():
        inner = open_folder
        with pytest.raises(PermissionError, match="no permission"), publishing(inner / "out.bin"):
            pytest.fail("the block was entered")
    assert names(open_folder) == []
    open_folder.chmod(0o777)
    (open_folder / "out.bin").write_bytes(b"old")
    (open_folder / "out.bin").chmod(0o444)
    with nobody(), pytest.raises(PermissionError, match="may not be written"):
        validate_target(open_folder / "out.bin", overwrite=True)
    assert (open_folder / "out.bin").read_bytes() == b"old"


def test_too_little_room_is_refused_before(tmp_path):
    """As many bytes as no disk has: an error with the system's own number, and nothing is touched."""
    with pytest.raises(OSError, match="are free") as raised:
        validate_target(tmp_path / "out.bin", nbytes=1 << 62)
    assert raised.value.errno == errno.ENOSPC
    assert names(tmp_path) == []


def test_a_partial_folder_that_is_not_ours_is_not_touched(tmp_path):
    """A symlink or a file in its place is refused, and stays."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_bytes(b"1")
    for make in (lambda path: path.symlink_to(elsewhere), lambda path: path.write_bytes(b"2")):
        path = tmp_path / ".out.bin.partial"
        make(path)
        with pytest.raises(OutputExistsError, match="folder"), publishing(tmp_path / "out.bin"):
            pytest.fail("the block was entered")
        path.unlink()
    assert names(elsewhere) == ["precious"]


def test_a_very_long_name_works(tmp_path):
    """The hidden folder's name is cut where the file system's limit is near."""
    target = tmp_path / ("x" * 255)
    with publishing(target) as path:
        path.write_bytes(b"new")
    assert names(tmp_path) == [target.name]
