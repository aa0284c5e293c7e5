"""A file's name is not what it is: its first bytes are, and what stands in a file's place is named."""

from __future__ import annotations

import gzip
import re
import shutil

import numpy as np
import pytest

import tensorferry as ferry
from tensorferry.files.opening.paths import format_named

torch = pytest.importorskip("torch")

WRITTEN = {"pt": "pytorch", "safetensors": "safetensors", "npz": "npz", "npy": "npy"}


@pytest.fixture
def files(tmp_path):
    """A file of each format."""
    weight = np.arange(6, dtype="float32").reshape(2, 3)
    torch.save({"weight": torch.from_numpy(weight)}, tmp_path / "in.pt")
    np.savez(tmp_path / "in.npz", weight=weight)
    np.save(tmp_path / "in.npy", weight)
    ferry.save({"weight": weight}, tmp_path / "in.safetensors")
    return tmp_path


@pytest.mark.parametrize("named", [*WRITTEN, "h5", "gguf", "dat"])
@pytest.mark.parametrize("suffix", WRITTEN)
def test_a_file_under_another_name_is_read_as_what_it_is(files, suffix, named):
    """Nothing is left out of it, as of an archive of PyTorch that is taken for one of NumPy."""
    shutil.copy(files / f"in.{suffix}", files / f"other.{named}")
    contents = ferry.open(files / f"other.{named}")
    assert (contents.format, [*contents.others]) == (WRITTEN[suffix], [])
    found = ferry.load(files / f"other.{named}")
    found = found if suffix == "npy" else found["weight"]
    assert found.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_an_array_with_a_long_name_comes_first(tmp_path):
    """An archive is one of NumPy's by the whole name of its first member."""
    np.savez(tmp_path / "in.npz", **{"a" * 300: np.ones(1)})
    shutil.copy(tmp_path / "in.npz", tmp_path / "in.dat")
    assert ferry.open(tmp_path / "in.dat").format == "npz"


BROKEN = {
    "safetensors": (b"\xff" * 64, "breaks the rules of safetensors"),
    "npy": (b"\xff" * 64, "is not a NumPy array"),
    "npz": (b"PK\5\6" + b"\0" * 64, "in.npz"),
}


@pytest.mark.parametrize("suffix", BROKEN)
def test_what_is_broken_is_told_by_its_name(tmp_path, suffix):
    """No format knows its first bytes."""
    content, match = BROKEN[suffix]
    (tmp_path / f"in.{suffix}").write_bytes(content)
    with pytest.raises(ferry.FileFormatError, match=match) as caught:
        ferry.open(tmp_path / f"in.{suffix}")
    assert "of no format" not in str(caught.value)


STANDING_FOR = {
    "pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
        "Git LFS",
        "git lfs pull",
    ),
    "page": (b"\n<!DOCTYPE html>\n<html></html>", "a web page in HTML", "get the file again"),
    "compressed": (gzip.compress(b"\x80\x02}."), "compressed, by gzip", "gunzip -c"),
}


@pytest.mark.parametrize("suffix", ["safetensors", "npy", "pt", "bin"])
@pytest.mark.parametrize("kind", STANDING_FOR)
def test_what_stands_for_a_file_is_named(tmp_path, kind, suffix):
    """Under the name of the file that was meant."""
    content, what, hint = STANDING_FOR[kind]
    (tmp_path / f"in.{suffix}").write_bytes(content)
    with pytest.raises(ferry.FileFormatError, match=what) as caught:
        ferry.load(tmp_path / f"in.{suffix}")
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize("to", ["safetensors", "npz"])
@pytest.mark.parametrize(
    ("name", "kind", "better"),
    [
        ("a.safetensors.index.json", "an index of shards", "a"),
        ("a.bin.index.json", "an index of shards", "a"),
        ("b.distcp", "another format .PyTorch, distributed.", "b"),
        (".metadata", "another format .PyTorch, distributed.", "model"),
        ("c.pt2", "another format .torch.export.", "c"),
        ("d.bin", "another format .PyTorch.", "d"),
        ("E.ONNX", "another format .ONNX.", "E"),
        ("f.weights.h5", "another format .Keras.", "f"),
        ("g.hdf5", "another format .HDF5.", "g"),
    ],
)
def test_a_name_of_something_else_is_refused_when_it_is_written(tmp_path, to, name, kind, better):
    """A file of that name would not be read; the hint has one that is."""
    np.savez(tmp_path / "in.npz", a=np.ones(2))
    for write in (
        lambda path: ferry.save({"a": np.ones(2)}, path, to=to),
        lambda path: ferry.convert_files(tmp_path / "in.npz", path, to=to, overwrite=True),
    ):
        with pytest.raises(
            ferry.FormatLimitError, match=f"^{name} is the name of {kind}, so"
        ) as refused:
            write(tmp_path / name)
        assert not (tmp_path / name).exists()
        hinted = re.search(r", '(.*)'\)$", refused.value.hint)[1]
        assert hinted == str(tmp_path / f"{better}.{to}")
        write(hinted)
        assert ferry.load(hinted)["a"].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("name", "to"), [("a.npz", "zarr"), ("a.safetensors", "orbax"), ("a.pt", "tensorflow")]
)
def test_a_folder_does_not_have_the_name_of_a_file_either(tmp_path, name, to):
    module = format_named(to).module
    if module:
        pytest.importorskip(module, reason="writes the format, and is not installed")
    with pytest.raises(ferry.FormatLimitError, match="is the name of another format"):
        ferry.save({"a": np.ones(2)}, tmp_path / name, to=to)
    assert not list(tmp_path.iterdir())
