"""Conversions that must not be: over a source, onto what is there, on a full disk, of what changes or is corrupt."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.files.converting import (
    SUFFIXES,
    arrays_of,
    bits,
    checkpoint,
    model,
    names,
    same,
    write,
)

from tensorferry.errors import FileFormatError, OutputExistsError, ResumableError, VerificationError
from tensorferry.files.conversion.convert import convert_files
from tensorferry.files.opening.paths import format_named


def test_an_existing_target_is_refused_before_anything_is_read(tmp_path, monkeypatch):
    """Not even the source's header is looked at; with overwrite it is replaced."""
    start = write(tmp_path / "in.safetensors", model(1, 4))
    (tmp_path / "out.npz").write_bytes(b"old")
    with monkeypatch.context() as patch:
        patch.setattr(
            "tensorferry.files.conversion.convert.open_all",
            lambda *_, **__: pytest.fail("the source was read"),
        )
        with pytest.raises(OutputExistsError, match="overwrite=True"):
            convert_files(start, tmp_path / "out.npz")
    assert (tmp_path / "out.npz").read_bytes() == b"old"
    convert_files(start, tmp_path / "out.npz", overwrite=True)
    same(arrays_of(tmp_path / "out.npz"), model(1, 4))


def test_a_source_is_never_the_target(tmp_path):
    """Neither a file nor a shard, nor a folder around it."""
    start = write(tmp_path / "in.safetensors", model())
    convert_files(start, tmp_path / "shards", to="safetensors", shard="40KB")
    before = {each.name: each.read_bytes() for each in (tmp_path / "shards").iterdir()}
    for source, target in (
        (start, start),
        (tmp_path / "shards", tmp_path / "shards"),
        (tmp_path / "shards", tmp_path / "shards" / "all.safetensors"),
        (
            tmp_path / "shards" / "model.safetensors.index.json",
            tmp_path / "shards" / "model-00001-of-00004.safetensors",
        ),
        (start, tmp_path),
    ):
        with pytest.raises(OutputExistsError):
            convert_files(source, target, to="safetensors", dtype="float16", overwrite=True)
    assert {each.name: each.read_bytes() for each in (tmp_path / "shards").iterdir()} == before


def test_a_folder_of_shards_is_replaced_whole(tmp_path):
    """Shards of the old output do not stay among the new; a folder with other files in it is refused."""
    start = write(tmp_path / "in.safetensors", model())
    convert_files(start, tmp_path / "out", to="safetensors", shard="20KB")
    assert len(names(tmp_path / "out")) == 9
    convert_files(start, tmp_path / "out", to="safetensors", shard="80KB", overwrite=True)
    assert len(names(tmp_path / "out")) == 3
    same(arrays_of(tmp_path / "out"), model())
    (tmp_path / "out" / "config.json").write_text("{}")
    with pytest.raises(OutputExistsError, match=r"config\.json"):
        convert_files(start, tmp_path / "out", to="safetensors", shard="20KB", overwrite=True)
    assert len(names(tmp_path / "out")) == 4
    (tmp_path / "empty").mkdir()
    convert_files(start, tmp_path / "empty", to="safetensors", shard="80KB")
    assert len(names(tmp_path / "empty")) == 3


@pytest.mark.parametrize("to", ["tensorflow", "zarr", "orbax"])
def test_a_folder_of_a_format_keeps_what_is_not_the_formats(tmp_path, to):
    """An earlier output is replaced whole; if the folder holds anything else, that is named, and all of it stays."""
    form = format_named(to)
    pytest.importorskip(
        form.module or "tensorferry", reason=f"{to} needs {form.module}, which is not installed"
    )
    start, target = write(tmp_path / "in.safetensors", model(2, 4)), tmp_path / "train.d"
    convert_files(start, target, to=to)
    convert_files(start, target, to=to, overwrite=True, exclude=["layers.0.*"])
    assert list(arrays_of(target)) == ["layers.1.weight"]
    (target / "train.py").write_text("print()")
    before = sorted(target.rglob("*"))
    for dry_run in (True, False):
        with pytest.raises(OutputExistsError, match=r"lost with it: train\.py\.\n"):
            convert_files(start, target, to=to, overwrite=True, dry_run=dry_run)
    assert sorted(target.rglob("*")) == before


@pytest.mark.parametrize("keywords", [{"to": "tensorflow"}, {"to": "safetensors", "shard": "1KB"}])
def test_a_folder_that_goes_while_it_is_looked_at_is_no_hindrance(tmp_path, monkeypatch, keywords):
    """Another process may remove the old output at any moment; the new one is written."""
    start, target = write(tmp_path / "in.safetensors", model(2, 4)), tmp_path / "out"
    convert_files(start, target, **keywords)
    real, looks = Path.is_dir, []

    def late(path, **rest):
        found = real(path, **rest)
        if path == target and sys._getframe(1).f_code.co_name == "replaceable":
            shutil.rmtree(target, ignore_errors=True)
            looks.append(path)
        return found

    monkeypatch.setattr(Path, "is_dir", late)
    convert_files(start, target, overwrite=True, **keywords)
    assert looks
    same(arrays_of(target), model(2, 4))


@pytest.mark.parametrize("keywords", [{"to": "safetensors"}, {"to": "safetensors", "shard": "1KB"}])
def test_a_pipe_or_device_is_never_replaced(tmp_path, keywords):
    """Neither with overwrite nor without; it is still one afterwards."""
    start = write(tmp_path / "in.safetensors", model(2, 4))
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for target in (tmp_path / "pipe", tmp_path / "link"):
        for overwrite in (True, False):
            with pytest.raises(OutputExistsError, match="a device, a pipe or a socket"):
                convert_files(start, target, overwrite=overwrite, **keywords)
    assert (tmp_path / "pipe").is_fifo()


def test_too_little_room_is_refused_before(tmp_path, monkeypatch):
    """By what is free, before the writer is called."""
    start = write(tmp_path / "in.safetensors", model())
    usage = type("usage", (), {"free": 1000})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    with pytest.raises(OSError, match="are free") as raised:
        convert_files(start, tmp_path / "out.npz")
    assert raised.value.errno == errno.ENOSPC
    assert names(tmp_path) == ["in.safetensors"]


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MiB, if this user may make one."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(
            f"needs a small file system, and cannot mount one: {made.stderr.decode().strip()}"
        )
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.parametrize("target", ["out.npz", "out.pt", "out.safetensors"])
def test_a_disk_that_fills_up_in_the_middle(tmp_path, small_disk, monkeypatch, target):
    """The system's error, the old output untouched, no part of the new one left."""
    start = write(tmp_path / "in.safetensors", model(8, 256))
    old = small_disk / target
    old.write_bytes(b"old")
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("usage", (), {"free": 1 << 40}))
    with pytest.raises(OSError, match="No space left") as raised:
        convert_files(start, old, overwrite=True)
    assert raised.value.errno == errno.ENOSPC
    assert old.read_bytes() == b"old"
    assert names(small_disk) == [target]


def test_a_full_disk_keeps_finished_shards(tmp_path, small_disk, monkeypatch):
    """What fits is kept for resume, which goes on when there is room again."""
    wanted = model(8, 192)  # 147,456 bytes each
    start = write(tmp_path / "in.safetensors", wanted)
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("usage", (), {"free": 1 << 40}))
    with pytest.raises(ResumableError, match="No space left"):
        convert_files(start, small_disk / "out", to="safetensors", shard="150KB")
    assert not (small_disk / "out").exists()
    subprocess.run(["mount", "-o", "remount,size=4m", str(small_disk)], check=True)
    report = convert_files(start, small_disk / "out", to="safetensors", shard="150KB", resume=True)
    assert len(report.skipped) >= 4
    assert len(report.skipped) + len(report.written) == 9
    same(arrays_of(small_disk / "out"), wanted)
    assert names(small_disk) == ["out"]


def test_an_error_of_the_system_in_the_middle(tmp_path, monkeypatch):
    """Where no small disk can be made: the error stands for it, at each of the first writes."""
    start = write(tmp_path / "in.safetensors", model())
    real = os.write
    for allowed in range(4):
        left = [allowed]

        def limited(descriptor, data, left=left):
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(descriptor, data)

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", limited)
            with pytest.raises(OSError, match="No space left"):
                convert_files(start, tmp_path / "out.safetensors", dtype="float16")
        assert names(tmp_path) == ["in.safetensors"]


@pytest.mark.parametrize("target", ["out.safetensors", "out.npz", "out.pt", "shards"])
def test_an_output_that_is_not_what_was_read_is_not_published(tmp_path, monkeypatch, target):
    """A bit that flips on the way to the disk: an error that names the tensor, and the old output stays."""
    start = write(tmp_path / "in.safetensors", model(2))
    keywords = {"to": "safetensors", "shard": "1MB"} if target == "shards" else {}
    to = next((name for name, suffix in SUFFIXES.items() if target.endswith(suffix)), "safetensors")
    writer = type(format_named(to))
    real = writer.write

    def flipping(self, piece, path, pump):
        real(self, piece, path, pump)
        data = bytearray(path.read_bytes())
        place = data.index(piece.tensors["layers.1.weight"].array().tobytes())
        data[place + 100] ^= 4
        path.write_bytes(data)

    monkeypatch.setattr(writer, "write", flipping)
    with pytest.raises(VerificationError, match=r"layers\.1\.weight"):
        convert_files(start, tmp_path / target, verify=True, **keywords)
    assert names(tmp_path) == ["in.safetensors"]


def test_what_is_lost_beside_the_tensors_is_noticed(tmp_path, monkeypatch):
    """Metadata, a value of the tree, a name, the order."""
    torch = pytest.importorskip("torch")
    torch.save(checkpoint(torch), tmp_path / "in.pt")
    reader = type(format_named("safetensors"))
    real = reader.read

    def change(how):
        def read(self, path, **keywords):
            found = real(self, path, **keywords)
            how(found)
            return found

        return read

    def rename(found):
        found.tensors = {("x" if n == "model.bias" else n): t for n, t in found.tensors.items()}

    for how, message in (
        (lambda found: found.tree.update(epoch=8), "not tensors"),
        (rename, r"without model\.bias"),
        (
            lambda found: found.tensors.update({"model.weight": found.tensors.pop("model.weight")}),
            "order",
        ),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(reader, "read", change(how))
            with pytest.raises(VerificationError, match=message):
                convert_files(tmp_path / "in.pt", tmp_path / "out.safetensors", verify=True)
    assert names(tmp_path) == ["in.pt"]


@pytest.mark.parametrize("source", ["pytorch", "npz"])
@pytest.mark.parametrize("keywords", [{}, {"dtype": "float16"}, {"verify": True}])
@pytest.mark.parametrize("target", ["out.safetensors", "out.npz"])
def test_a_bit_flipped_in_a_source_with_checksums_is_caught(tmp_path, source, keywords, target):
    """By the zip's CRC, on the way, also without verify and under a cast; nothing is published."""
    start = write(tmp_path / f"in{SUFFIXES[source]}", model(3))
    data = bytearray(start.read_bytes())
    place = data.index(model(3)["layers.1.weight"].tobytes())
    data[place + 7] ^= 1
    start.write_bytes(data)
    with pytest.raises(FileFormatError, match="CRC"):
        convert_files(start, tmp_path / target, **keywords)
    assert names(tmp_path) == [start.name]


@pytest.mark.parametrize("layer", [0, 2])
@pytest.mark.parametrize("behind", [0, 1 << 40])
def test_a_bit_flipped_in_what_is_checked_beside_the_copying_is_caught(
    tmp_path, monkeypatch, layer, behind
):
    """Large regions are checked by other threads, while the next is copied or after the last; nothing is published."""
    monkeypatch.setattr("tensorferry.files.base.pump._BEHIND", behind)
    large = model(3, 1100)
    start = write(tmp_path / "in.pt", large)
    convert_files(start, tmp_path / "good.safetensors")
    same(arrays_of(tmp_path / "good.safetensors"), large)
    data = bytearray(start.read_bytes())
    data[data.index(large[f"layers.{layer}.weight"].tobytes()) + 4_000_000] ^= 1
    start.write_bytes(data)
    with pytest.raises(FileFormatError, match="CRC"):
        convert_files(start, tmp_path / "out.safetensors")
    assert names(tmp_path) == ["good.safetensors", "in.pt"]


def test_checksums_computed_beside_the_copying_are_right(tmp_path):
    """Of large tensors, whatever part of a block is left over: the standard library compares them."""
    arrays = {
        f"x{left}": bits("uint8", ((5 << 20) + left,), left) for left in (0, 1, (1 << 20) - 1)
    }
    start = write(tmp_path / "in.safetensors", arrays)
    convert_files(start, tmp_path / "out.npz")
    with zipfile.ZipFile(tmp_path / "out.npz") as archive:
        assert archive.testzip() is None
    same(arrays_of(tmp_path / "out.npz"), arrays)


@pytest.mark.parametrize("replaced", [True, False])
@pytest.mark.parametrize("sharded", [True, False])
def test_a_source_that_changes_while_it_is_read_is_noticed(
    tmp_path, monkeypatch, sharded, replaced
):
    """Even if the bytes that were read are the same, or a folder takes its place; nothing is published."""
    start = write(tmp_path / "in.safetensors", model())
    writer = type(format_named("safetensors"))
    real = writer.write

    def meddling(self, piece, path, pump):
        real(self, piece, path, pump)
        if replaced and start.is_file():
            start.unlink()
            start.mkdir()
        os.utime(start, ns=(1, 1))

    monkeypatch.setattr(writer, "write", meddling)
    target, keywords = (
        (tmp_path / "out", {"to": "safetensors", "shard": "40KB"})
        if sharded
        else (tmp_path / "o.safetensors", {})
    )
    with pytest.raises(FileFormatError, match="changed since"):
        convert_files(start, target, **keywords)
    assert names(tmp_path) == ["in.safetensors"]
