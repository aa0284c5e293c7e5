"""H87: links inside folders that lead out of them. H88: small files that would take seconds."""

from __future__ import annotations

import io
import json
import os
import struct
import sys
import zipfile
from itertools import count, islice

import h5py
import numpy as np
import pytest
import zarr
from tests.files.hostile import PROTO2, PROTO4, STOP, number, several, torch_zip

import tensorferry as ferry
from tensorferry.files.base.contents import MOST_TENSORS, Contents
from tensorferry.files.base.limits import refuse_contents
from tensorferry.files.base.nesting import Keys
from tensorferry.files.base.stored import Extent
from tensorferry.files.formats import hdf5 as reader
from tensorferry.files.opening.paths import asked_for, format_named
from tensorferry.files.pickles.machine import Machine
from tensorferry.files.reports.check import MOST_FINDINGS, check_path

MODULUS = sys.hash_info.modulus
"""Integers that differ by it have one hash."""


@pytest.fixture
def secret(tmp_path):
    """What a link would have read."""
    (tmp_path / "elsewhere").mkdir()
    path = tmp_path / "elsewhere" / "secret"
    path.write_bytes(np.array([9, 9], "f4").tobytes())
    return path


def _zarr(folder, **keywords):
    group = zarr.create_group(str(folder))
    array = group.create_array("a", shape=(2,), dtype="f4", **keywords)
    array[:] = [1, 2]
    return folder


def _files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "zarr.json")


@pytest.mark.parametrize(
    "keywords", [{"chunks": (1,)}, {"chunks": (2,), "compressors": None}], ids=["many", "one"]
)
@pytest.mark.parametrize("how", ["absolute", "relative", "folder"])
def test_a_link_in_a_zarr_folder_that_leads_out_is_refused(tmp_path, secret, keywords, how):
    """A chunk, by any path, or the folder of chunks: exit code 3, whatever asks for it."""
    chunk = _files(_zarr(tmp_path / "z.zarr", **keywords))[0]
    if how == "folder":
        (tmp_path / "elsewhere" / "0").write_bytes(secret.read_bytes())
        chunk = chunk.parent
        for each in chunk.iterdir():
            each.unlink()
        chunk.rmdir()
        chunk.symlink_to(secret.parent)
    else:
        chunk.unlink()
        chunk.symlink_to(secret if how == "absolute" else os.path.relpath(secret, chunk.parent))
    for use in (ferry.open, ferry.load, lambda path: list(check_path(path))):
        with pytest.raises(ferry.UnsafeFileError, match="leads out of its folder"):
            use(tmp_path / "z.zarr")


def test_a_link_in_an_orbax_folder_that_leads_out_is_refused(tmp_path, secret):
    """A file of the database, and the description itself."""
    ferry.save({"a": np.ones(4, "f4")}, tmp_path / "o.orbax")
    data = next((tmp_path / "o.orbax" / "d").iterdir())
    data.unlink()
    data.symlink_to(secret)
    with pytest.raises(ferry.UnsafeFileError, match="leads out of its folder"):
        ferry.open(tmp_path / "o.orbax")


def test_links_inside_a_folder_and_those_of_a_hub_are_followed(tmp_path):
    """A link to another chunk of the folder; and a cache, in which every file is a link to one folder beside."""
    chunks = _files(_zarr(tmp_path / "z.zarr", chunks=(1,)))
    chunks[1].unlink()
    chunks[1].symlink_to(chunks[0])
    assert ferry.load(tmp_path / "z.zarr")["a"].tolist() == [1, 1]
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    for number_, path in enumerate(
        sorted(each for each in (tmp_path / "z.zarr").rglob("*") if each.is_file())
    ):
        (blobs / str(number_)).write_bytes(path.read_bytes())
        path.unlink()
        path.symlink_to(blobs / str(number_))
    assert ferry.load(tmp_path / "z.zarr")["a"].tolist() == [1, 1]


def _alike():
    """Endless keys of one hash, of each kind that a pickle may have."""
    return {
        "integers": (number(MODULUS * each) for each in count(1)),
        "tuples": (several(number(MODULUS * each), number(1)) for each in count(1)),
        "nested": (several(several(number(MODULUS * each))) for each in count(1)),
    }


@pytest.mark.parametrize("kind", _alike())
@pytest.mark.parametrize(
    "way", ["SETITEMS", "SETITEM", "ADDITEMS", "FROZENSET", "OrderedDict", "set"]
)
def test_keys_that_were_made_to_collide_are_refused(tmp_path, kind, way, monkeypatch):
    """After a few: a dict compares each with all that have its hash.

    By their number, not by the time that it took.
    """
    keys = list(islice(_alike()[kind], 1000))
    pairs = b"](" + b"".join(key + b"N\x86" for key in keys) + b"e"
    body = {
        "SETITEMS": b"}(" + b"".join(key + b"N" for key in keys) + b"u",
        "SETITEM": b"}" + b"".join(key + b"Ns" for key in keys),
        "ADDITEMS": b"\x8f(" + b"".join(keys) + b"\x90",
        "FROZENSET": b"(" + b"".join(keys) + b"\x91",
        "OrderedDict": b"ccollections\nOrderedDict\n" + pairs + b"\x85R",
        "set": b"c__builtin__\nset\n](" + b"".join(keys) + b"e\x85R",
    }[way]
    (tmp_path / "a.pt").write_bytes(torch_zip((PROTO4 if "S" in way else PROTO2) + body + STOP))
    asked = []
    monkeypatch.setattr(Keys, "are_few", _counting(Keys.are_few, asked))
    with pytest.raises((ferry.UnsafeFileError, ferry.FileFormatError)):
        ferry.open(tmp_path / "a.pt")
    assert len(asked) < 100


def _counting(method, asked):
    def counted(self, key):
        asked.append(key)
        return method(self, key)

    return counted


def test_complex_keys_that_were_made_to_collide_are_few():
    """The imaginary part can be made to undo the real one."""
    keys = Keys()
    assert not all(keys.takes(complex(-1000003.0 * each, each)) for each in range(1, 1000))


def test_keys_that_people_have_are_taken(tmp_path):
    """Thousands of numbers, and of pairs of them; integers of 64 bits; in pickles and beside tensors."""
    import torch

    rng = np.random.default_rng(0)
    large = {int(each): 0 for each in rng.integers(-(2**63), 2**63, 5000)}
    tree = {
        "ids": dict.fromkeys(range(5000)),
        "pairs": {(i, str(i)): i for i in range(5000)},
        "large": large,
    }
    torch.save({**tree, "w": torch.ones(1)}, tmp_path / "a.pt")
    assert ferry.load(tmp_path / "a.pt")["large"].keys() == large.keys()
    ferry.save({**tree, "w": np.ones(1)}, tmp_path / "a.safetensors")
    assert ferry.load(tmp_path / "a.safetensors")["pairs"].keys() == tree["pairs"].keys()


def test_a_tree_beside_tensors_with_keys_that_collide_is_refused(tmp_path):
    """In the string in which safetensors and others keep the tree."""
    ferry.save(
        {"d": {MODULUS * each: 1 for each in range(1, 60)}, "w": np.ones(1)},
        tmp_path / "few.safetensors",
    )
    assert len(ferry.load(tmp_path / "few.safetensors")["d"]) == 59
    ferry.save(
        {"d": {MODULUS * each: 1 for each in range(1, 500)}, "w": np.ones(1)},
        tmp_path / "many.safetensors",
    )
    with pytest.raises(ferry.FileFormatError, match="one hash"):
        ferry.open(tmp_path / "many.safetensors")


def _header(count_):
    entries = ",".join(
        f'"t{number_}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}'
        for number_ in range(count_)
    )
    header = f"{{{entries}}}".encode()
    return struct.pack("<Q", len(header)) + header


def test_a_header_of_too_many_tensors_is_refused(tmp_path, monkeypatch):
    """And so many are not written either."""
    assert MOST_TENSORS >= 100_000
    monkeypatch.setattr("tensorferry.files.formats.safetensors.header.MOST_TENSORS", 100)
    monkeypatch.setattr("tensorferry.files.encodings.zip_archive.MOST_TENSORS", 100)
    monkeypatch.setattr("tensorferry.files.base.limits.MOST_TENSORS", 100)
    (tmp_path / "fits.safetensors").write_bytes(_header(100))
    assert len(ferry.open(tmp_path / "fits.safetensors").tensors) == 100
    (tmp_path / "many.safetensors").write_bytes(_header(101))
    np.savez(tmp_path / "many.npz", **{f"t{number_}": np.ones(1) for number_ in range(101)})
    for name in ("many.safetensors", "many.npz"):
        with pytest.raises(ferry.UnsafeFileError, match="out of all proportion"):
            ferry.open(tmp_path / name)
    with pytest.raises(ferry.FormatLimitError, match="101 tensors") as refused:
        ferry.save(
            {f"t{number_}": np.ones(1) for number_ in range(101)}, tmp_path / "new.safetensors"
        )
    assert "shard=" in refused.value.hint


def _of_axes(*shapes):
    entries = ",".join(
        f'"t{place}":{{"dtype":"F32","shape":[{",".join(map(str, shape))}],"data_offsets":[0,0]}}'
        for place, shape in enumerate(shapes)
    )
    header = f"{{{entries}}}".encode()
    return struct.pack("<Q", len(header)) + header


def test_lengths_whose_product_would_take_seconds_are_not_multiplied(tmp_path, monkeypatch):
    """Of a shape as long as no array has one: not beyond what is too large, and so many in all are refused."""
    largest = (1 << 63) - 1

    class Counted(int):
        def __rmul__(self, other):
            multiplied.append(self)
            return int(self) * other

    multiplied = []
    loads = json.loads
    monkeypatch.setattr(
        json, "loads", lambda text, **keywords: loads(text, parse_int=Counted, **keywords)
    )
    monkeypatch.setattr("tensorferry.files.formats.safetensors.header._whole", lambda numbers: True)
    (tmp_path / "long.safetensors").write_bytes(_of_axes([largest] * 2999 + [0]))
    with pytest.raises(ferry.FileFormatError, match="too large for any machine"):
        ferry.open(tmp_path / "long.safetensors")
    assert 0 < len(multiplied) < 10
    monkeypatch.undo()

    monkeypatch.setattr("tensorferry.files.formats.safetensors.header._MOST_MORE_AXES", 200)
    (tmp_path / "few.safetensors").write_bytes(_of_axes([0] * 65, [0] * 66, *([[0] * 64] * 10)))
    assert len(ferry.open(tmp_path / "few.safetensors").others) == 2
    (tmp_path / "many.safetensors").write_bytes(_of_axes([0] * 65, [0] * 66, [0] * 70))
    with pytest.raises(ferry.UnsafeFileError, match="more than 64 axes with more than 200 in all"):
        ferry.open(tmp_path / "many.safetensors")


def test_an_object_of_hdf5_is_looked_at_once_however_many_names_it_has(tmp_path, monkeypatch):
    """Each name is there, and is the same tensor; check reads it once."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.ones(3)
        file["text"] = "words"
        for number_ in range(50):
            file[f"l{number_}"] = file["x"]
            file[f"t{number_}"] = file["text"]
    looked = []
    dtype_of = reader.dtype_of
    monkeypatch.setattr(reader, "dtype_of", lambda found: looked.append(found) or dtype_of(found))
    contents = ferry.open(tmp_path / "a.h5")
    assert len(looked) == 2
    assert (len(contents.tensors), len(contents.others), len(contents.ties)) == (51, 51, 50)
    read = []
    blocks = Extent.blocks
    monkeypatch.setattr(Extent, "blocks", lambda self: read.append(self) or blocks(self))
    assert not list(format_named("hdf5").check(tmp_path / "a.h5"))
    assert len(read) == 1


@pytest.mark.parametrize("suffix", ["pt", "npz", "safetensors", "npy", "h5"])
def test_check_reads_a_header_once(tmp_path, monkeypatch, suffix):
    """What was read tells that it can be; a good file is not looked through a second time."""
    ferry.save({"a": np.ones(3)}, tmp_path / f"a.{suffix}")
    asked = []
    form = type(format_named(ferry.open(tmp_path / f"a.{suffix}").format))
    read = form.read
    monkeypatch.setattr(
        form,
        "read",
        lambda self, path, **keywords: asked.append(path) or read(self, path, **keywords),
    )
    assert list(check_path(tmp_path / f"a.{suffix}")) == []
    assert len(asked) == 1


def test_what_is_wrong_is_told_up_to_a_bound(tmp_path):
    """Of an archive of bad members as of anything; and that there is more."""
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        for number_ in range(MOST_FINDINGS + 5):
            archive.writestr(f"a{number_}.npy", b"\x93NUMPY\x01\x00\x10\x00garbagegarbage!!")
    (tmp_path / "bad.npz").write_bytes(raw.getvalue())
    found = list(check_path(tmp_path / "bad.npz"))
    assert len(found) == MOST_FINDINGS + 1
    assert "no more is looked at" in found[-1].message
    assert json.dumps([each._asdict() for each in found])


def test_contents_of_too_many_are_refused_before_they_are_written():
    """Whatever the format."""
    tensors = dict.fromkeys(
        map(str, range(MOST_TENSORS + 1)), Extent("float32", (1,), "nowhere", 0)
    )
    with pytest.raises(ferry.FormatLimitError, match="more than is read back"):
        refuse_contents(format_named("npz"), Contents("memory", (), tensors))


def _archive(body):
    return torch_zip(PROTO2 + body + STOP)


@pytest.mark.parametrize(
    ("limit", "body", "what"),
    [
        ("base.nesting.MOST", b"(" + number(5) * 1001 + b"l", "more than 1,000 values"),
        ("base.nesting.MOST", b"(" + b"]" * 251 + b"l", "more than 1,000 values"),
        (
            "base.nesting.MOST",
            b"}(" + b"".join(number(each) + b"N" for each in range(1001)) + b"u",
            "1,000 values",
        ),
        ("pickles.machine.MOST_STEPS", b"(" + b"N" * 40_000 + b"l", "takes more than 1,000 steps"),
        (
            "pickles.machine._MOST_CONTAINERS",
            b"(" + b"]" * 1001 + b"l",
            "more than 1,000 containers",
        ),
        (
            "pickles.machine._MOST_CONTAINERS",
            b"(" + b"ctorch\nfloat32\n" * 251 + b"l",
            "more than 1,000 containers",
        ),
        (
            "pickles.machine._MOST_CONTAINERS",
            b"(" + b"I5\n" * 1001 + b"l",
            "more than 1,000 containers",
        ),
    ],
    ids=["numbers", "lists", "a dict", "steps", "containers", "globals", "lines"],
)
def test_a_pickle_that_would_take_seconds_is_refused_with_its_size(
    tmp_path, monkeypatch, limit, body, what
):
    """By what it makes and does, each counted as what it costs; the limits are what people do not reach."""
    (tmp_path / "a.pt").write_bytes(_archive(body))
    ferry.open(tmp_path / "a.pt")
    module, _, name = f"tensorferry.files.{limit}".rpartition(".")
    assert getattr(sys.modules[module], name) >= 1_000_000
    for place in (module, "tensorferry.files.pickles.reader"):
        if hasattr(sys.modules[place], name):
            monkeypatch.setattr(f"{place}.{name}", 1000)
    if name == "MOST_STEPS":
        monkeypatch.setattr(Machine.__init__, "__defaults__", (0, 1000))
    with pytest.raises(ferry.UnsafeFileError, match=what):
        ferry.open(tmp_path / "a.pt")


def test_what_a_refused_pickle_asks_for_is_told_in_few_steps(tmp_path, monkeypatch):
    """It has been run already: names that come late are in the refusal."""
    (tmp_path / "a.pt").write_bytes(_archive(b"(cevil\nx\n)R" + b"N" * 50_000 + b"cevil\ny\n)Rl"))
    with pytest.raises(ferry.UnsafeFileError, match=r"evil\.x, evil\.y"):
        ferry.open(tmp_path / "a.pt")
    monkeypatch.setattr("tensorferry.files.pickles.reader._STEPS_FOR_GLOBALS", 1000)
    assert asked_for(tmp_path / "a.pt") == ("pytorch", ("evil.x",))
