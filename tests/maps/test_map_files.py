"""Files through a table: any format to any, in little memory, verified, resumed, as the official readers see them."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tempfile
import tracemalloc
from contextlib import suppress
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from tests.maps.support import CONFIG, LLAMA, assert_made, llama, table

import tensorferry as ferry
from tensorferry.errors import FileFormatError
from tensorferry.files import mapped
from tensorferry.files.mapped import contents_map
from tensorferry.files.opening.paths import open_path

FORMATS = {
    "a.safetensors": "b.npz",
    "a.npz": "b.safetensors",
    "a.pt": "b.h5",
    "a.h5": "b.pt",
    "a.zarr": "b.safetensors",
    "a.safetensors.index": "b.zarr",
}


@pytest.fixture
def model(tmp_path):
    """A folder with weights and config.json; the table; and what it makes."""
    source, expected = llama()
    folder = tmp_path / "model"
    folder.mkdir()
    ferry.save(source, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG), "utf-8")
    (tmp_path / "llama.toml").write_text(LLAMA, "utf-8")
    return folder, tmp_path / "llama.toml", expected


def in_order(found, expected):
    return {name: found[name] for name in expected}


@pytest.mark.parametrize(("before", "after"), FORMATS.items())
def test_any_format_to_any(tmp_path, before, after):
    for needed in ("h5py", "zarr", "torch"):
        pytest.importorskip(needed)
    source, expected = llama()
    if before.endswith(".index"):
        before = "folder"
        ferry.save(source, tmp_path / before, shard="4KB", to="safetensors")
    else:
        ferry.save(source, tmp_path / before)
    report = ferry.convert_files(
        tmp_path / before,
        tmp_path / after,
        map=table(LLAMA),
        dims={"h": 4, "kv": 2, "hd": 6},
        verify=True,
    )
    assert report.tensors == len(expected)
    assert_made(in_order(ferry.load(tmp_path / after), expected), expected)


def test_the_official_reader_sees_what_numpy_makes(model):
    safetensors = pytest.importorskip("safetensors.numpy")
    folder, path, expected = model
    ferry.convert_files(folder, folder.parent / "out.safetensors", map=path)
    found = safetensors.load_file(folder.parent / "out.safetensors")
    assert_made(in_order(found, expected), expected)


def test_load(model):
    folder, path, expected = model
    for keywords in ({}, {"lazy": True}):
        found = ferry.load(folder, map=path, **keywords)
        assert_made({name: found[name] for name in expected}, expected)
    some = ferry.load(folder, map=path, names="layers.1.*", dtype="float16")
    assert some.keys() == {name for name in expected if name.startswith("layers.1.")}
    assert all(x.dtype == np.float16 for x in some.values())


def test_a_lazy_reference_has_the_table(model):
    folder, path, expected = model
    pickled = pickle.dumps(ferry.load(folder, map=path, lazy=True).reference())
    reference = pickle.loads(pickled)  # noqa: S301 - our own
    path.unlink()
    found = reference.open()
    assert_made({name: found[name] for name in expected}, expected)


def test_keywords_are_about_what_the_table_makes(model):
    folder, path, expected = model
    ferry.convert_files(
        folder,
        folder.parent / "out.npz",
        map=path,
        include="layers.0.*",
        exclude="*.v_proj.weight",
        rename="s/^layers/blocks/",
        dtype="bfloat16",
    )
    found = ferry.load(folder.parent / "out.npz")
    assert set(found) == {
        "blocks.0.attn.q_proj.weight",
        "blocks.0.attn.k_proj.weight",
        "blocks.0.mlp.w13",
    }
    wanted = expected["layers.0.mlp.w13"].astype(ml_dtypes.bfloat16)
    assert found["blocks.0.mlp.w13"].tobytes() == wanted.tobytes()


def test_nothing_is_written_if_it_does_not_fit(model):
    folder, path, _ = model
    path.write_text(LLAMA.replace("drop", "#"), "utf-8")
    for target in ("out.safetensors", "out.npz"):
        with pytest.raises(ferry.FormatLimitError, match="inv_freq"):
            ferry.convert_files(folder, folder.parent / target, map=path)
        assert not (folder.parent / target).exists()
    with pytest.raises(ferry.FormatLimitError, match="inv_freq"):
        ferry.load(folder, map=path)
    assert sorted(each.name for each in folder.parent.iterdir()) == ["llama.toml", "model"]


def test_a_dry_run_says_the_same_and_writes_nothing(model):
    folder, path, expected = model
    report = ferry.convert_files(folder, folder.parent / "o.safetensors", map=path, dry_run=True)
    assert report.dry_run
    assert report.tensors == len(expected)
    assert not (folder.parent / "o.safetensors").exists()


def test_shards_are_resumed_only_with_the_same_table(model):
    folder, path, expected = model
    target = folder.parent / "shards"
    arguments = {"map": path, "shard": "4KB", "to": "safetensors"}
    ferry.convert_files(folder, target, **arguments, part=(1, 3))
    assert not target.exists()
    for number in (2, 3):
        ferry.convert_files(folder, target, **arguments, part=(number, 3))
    assert_made(in_order(ferry.load(target), expected), expected)
    other = folder.parent / "other"
    ferry.convert_files(folder, other, **arguments, part=(1, 3))
    path.write_text(LLAMA.replace("norm.scale", "norm.weight"), "utf-8")
    ferry.convert_files(folder, other, **arguments, part=(2, 3))
    with pytest.raises(ferry.OutputExistsError):
        ferry.convert_files(folder, target, **arguments, part=(3, 3))


def test_bytes_read_are_those_of_the_source(tmp_path):
    """Not what is made: repeated, cast, in parts, twice, or filled."""
    a, b = np.arange(600.0).reshape(30, 20), np.arange(8, dtype="float32")
    np.savez(tmp_path / "a.npz", a=a, b=b)
    made = {
        '"y" = "a"': (4800, 4800),
        '"y" = "a : x y -> y x"': (4800, 4800),
        '"y" = "a[:10]"': (1600, 1600),
        '"y" = "a[:10]"\n"z" = "a[10:]"': (4800, 4800),
        '"y" = "a"\n"z" = "a : x y -> y x"': (4800, 9600),
        '"y" = "b : x -> x 100"': (32, 3200),
        '"y" = { cast = "float64", of = "b : x -> x~" }': (32, 64),
        '"y" = { stack = ["b", "b"], axis = 0 }': (32, 64),
        '"y" = { same = ["a", "a : x y -> x y"] }': (4800, 4800),
        '"y" = { fill = 1, shape = [3], dtype = "float32" }': (0, 12),
    }
    for number, (text, sizes) in enumerate(made.items()):
        one = table(f'drop = ["*"]\n[map]\n{text}')
        for target in (f"{number}.safetensors", f"{number}.npz"):
            for dry_run in (True, False):
                report = ferry.convert_files(
                    tmp_path / "a.npz", tmp_path / target, map=one, dry_run=dry_run
                )
                assert (report.bytes_read, report.bytes_written) == sizes, text


def test_shards_of_a_folder_stay_with_a_table(tmp_path):
    """A tensor goes into the shard of its first source, as the renamed ones beside it."""
    source = {f"{i}.{name}": np.full((40, 50), i, "float32") for i in range(4) for name in "ab"}
    ferry.save(source, tmp_path / "in", shard="16KB", to="safetensors")
    one = table('"{i}.x" = "{i}.a"\n"{i}.y" = "{i}.b : x y -> y x"')
    ferry.convert_files(tmp_path / "in", tmp_path / "out", map=one)
    before, after = (
        sorted(each.name for each in (tmp_path / folder).iterdir()) for folder in ("in", "out")
    )
    assert before == after
    assert len(after) == 5


def test_progress_counts_what_is_written_and_read_again(model):
    folder, path, expected = model
    for target in ("o.safetensors", "o.npz", "o.h5"):
        if target.endswith("h5"):
            pytest.importorskip("h5py")
        moved = []
        report = ferry.convert_files(
            folder, folder.parent / target, map=path, verify=True, progress=moved.append
        )
        assert report.bytes_written == sum(x.nbytes for x in expected.values())
        assert sum(moved) == 2 * report.bytes_written


def test_an_executor_of_somebody(model):
    from concurrent.futures import ThreadPoolExecutor

    folder, path, expected = model
    target = folder.parent / "shards"
    with ThreadPoolExecutor(2) as executor:
        report = ferry.convert_files(
            folder, target, map=path, shard="4KB", to="safetensors", executor=executor
        )
    assert len(report.written) > 2
    assert_made(in_order(ferry.load(target), expected), expected)


def test_resume_goes_on_where_it_stopped(model):
    """The shards that are there are not made again; with another table all are."""
    folder, path, expected = model
    target = folder.parent / "shards"
    arguments = {"map": path, "shard": "4KB", "to": "safetensors"}

    class StoppedError(Exception):
        pass

    done = []

    def stop(count):
        done.append(count)
        if sum(done) > 8000:
            raise StoppedError

    with pytest.raises(ferry.ResumableError):
        ferry.convert_files(folder, target, **arguments, progress=stop)
    assert not target.exists()
    report = ferry.convert_files(folder, target, **arguments, resume=True)
    assert report.skipped
    assert report.written
    assert_made(in_order(ferry.load(target), expected), expected)


def test_verify_finds_what_was_written_wrongly(model, monkeypatch):
    """A moved tensor is made again, and compared with what is in the file."""
    from tensorferry.files.conversion import jobs

    folder, path, _ = model
    real = jobs.sync

    def damaged(place):
        real(place)
        data = bytearray(Path(place).read_bytes())
        data[-5] ^= 1
        Path(place).write_bytes(data)

    monkeypatch.setattr(jobs, "sync", damaged)
    target = folder.parent / "out.safetensors"
    with pytest.raises(ferry.VerificationError, match="does not read back the same"):
        ferry.convert_files(folder, target, map=path, verify=True)
    assert not target.exists()


@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_engines(model, engine):
    folder, path, expected = model
    target = folder.parent / "shards"
    ferry.convert_files(
        folder, target, map=path, shard="4KB", to="safetensors", engine=engine, jobs=2, verify=True
    )
    assert_made(in_order(ferry.load(target), expected), expected)


def test_values_that_are_no_tensors_are_named(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save({"state": {"w": torch.ones(2, 3)}, "epoch": 3}, tmp_path / "a.pt")
    one = table('"y" = "state.w : a b -> b a"')
    report = ferry.convert_files(tmp_path / "a.pt", tmp_path / "b.npz", map=one)
    assert any("epoch" in warning for warning in report.warnings)
    with pytest.warns(UserWarning, match="epoch"):
        assert ferry.load(tmp_path / "a.pt", map=one)["y"].shape == (3, 2)


def test_ties_stay_ties(tmp_path):
    """Two names of one tensor, and two that are made in the same way: written once where that can be said."""
    torch = pytest.importorskip("torch")
    x = torch.arange(6.0).reshape(2, 3)
    ferry.save({"w": x}, tmp_path / "a.safetensors")
    one = table('"a" = "w"\n"b" = "w"\n"c" = "w : a b -> b a"\n"d" = "w : a b -> b a"')
    ferry.convert_files(tmp_path / "a.safetensors", tmp_path / "b.pt", map=one)
    found = torch.load(tmp_path / "b.pt")
    assert found["a"].data_ptr() == found["b"].data_ptr()
    assert found["c"].data_ptr() == found["d"].data_ptr()
    assert torch.equal(found["c"], x.T)


def test_what_has_to_be_the_same_is_compared(tmp_path):
    same, other = np.arange(6.0), np.arange(6.0)
    one = table('"y" = { same = ["a", "b"] }')
    np.savez(tmp_path / "a.npz", a=same, b=other)
    ferry.convert_files(tmp_path / "a.npz", tmp_path / "ok.safetensors", map=one)
    other[3] = -1
    np.savez(tmp_path / "b.npz", a=same, b=other)
    with pytest.raises(ferry.VerificationError, match="a and b, which have to be the same"):
        ferry.convert_files(tmp_path / "b.npz", tmp_path / "not.safetensors", map=one)
    assert not (tmp_path / "not.safetensors").exists()
    with pytest.raises(ferry.VerificationError, match="a and b"):
        one.apply({"a": same, "b": other})


def test_the_inverse_of_a_tie_requires_both_to_be_the_same():
    x = np.arange(6.0).reshape(2, 3)
    back = table('"a" = "w"\n"b" = "w : x y -> y x"').inverse()
    assert_made(back.apply({"a": x, "b": x.T.copy()}), {"w": x})
    with pytest.raises(ferry.VerificationError, match="a and b, which have to be the same"):
        back.apply({"a": x, "b": x.T + 1})


def test_a_rename_shares_memory_as_a_conversion_does():
    x = np.arange(6.0)
    one = table('"y" = "a"')
    assert np.shares_memory(one.apply({"a": x})["y"], x)
    assert not np.shares_memory(one.apply({"a": x}, copy=True)["y"], x)


def test_checksums_of_sources_are_compared(tmp_path):
    """A moved tensor is read over a map: the archive's checksum is compared all the same."""
    np.savez(tmp_path / "a.npz", a=np.arange(1000.0).reshape(40, 25))
    data = bytearray((tmp_path / "a.npz").read_bytes())
    place = data.index(np.float64(500.0).tobytes())
    data[place] ^= 1
    (tmp_path / "a.npz").write_bytes(data)
    for dtype in (None, "float32"):
        with pytest.raises(ferry.FileFormatError, match=r"corrupt|CRC"):
            ferry.convert_files(
                tmp_path / "a.npz",
                tmp_path / "b.safetensors",
                map=table('"y" = "a : a b -> b a"'),
                dtype=dtype,
            )
        assert not (tmp_path / "b.safetensors").exists()


def test_growth_is_bounded(tmp_path):
    """A few bytes that say `fill` or repeat do not fill a disk."""
    np.savez(tmp_path / "a.npz", a=np.zeros(4))
    for form in (
        '{ fill = 0, shape = [1000000, 1000000], dtype = "float64" }',
        '"a : a -> (a 1000000000)"',
    ):
        one = table(f'drop = ["*"]\n[map]\n"y" = {form}')
        with pytest.raises(ferry.FormatLimitError, match="out of all proportion"):
            ferry.convert_files(tmp_path / "a.npz", tmp_path / "b.npz", map=one)


LARGE = {
    "a b -> b a": lambda x: x.T,
    "(a 2) b -> (2 a) b": lambda x: np.concatenate([x[::2], x[1::2]]),
    "(2 a) b -> (a 2) b": lambda x: np.stack([x[:1500], x[1500:]], 1).reshape(x.shape),
    "a b -> b~ a": lambda x: x.T[::-1],
    # Axes so short that a tile has all of them, on either side.
    "a (2 b) -> a (b 2)": lambda x: np.stack([x[:, :1501], x[:, 1501:]], 2).reshape(x.shape),
    "a (b 2) -> a (2 b)": lambda x: np.concatenate([x[:, ::2], x[:, 1::2]], 1),
    "(3 2 a) b -> b (a 2~ 3)": lambda x: (
        x.reshape(3, 2, 500, 3002)[:, ::-1].transpose(3, 2, 1, 0).reshape(3002, 3000)
    ),
    "(a 3) (19 b) -> b 19~ (3 a)": lambda x: (
        x.reshape(1000, 3, 19, 158)[:, :, ::-1].transpose(3, 2, 1, 0).reshape(158, 19, 3000)
    ),
}


@pytest.mark.parametrize("form", LARGE)
def test_large_tensors_are_made_in_blocks(tmp_path, form):
    """Larger than a block, so that it is cut in the middle of rows and boxes."""
    x = np.random.default_rng(0).integers(0, 1 << 16, (3000, 3002)).astype("uint16")
    ferry.save({"a": x}, tmp_path / "a.safetensors")
    one = table(f'"y" = "a : {form}"')
    ferry.convert_files(tmp_path / "a.safetensors", tmp_path / "b.safetensors", map=one)
    assert np.array_equal(ferry.load(tmp_path / "b.safetensors")["y"], LARGE[form](x))


@pytest.mark.parametrize("axis", [0, 1])
def test_memory_that_is_used_again_has_no_other_block(tmp_path, axis):
    """Several sources, casts, a comparison of two, and a last block that is shorter."""
    random = np.random.default_rng(2)
    a, b = random.integers(0, 1 << 30, (2, 700, 901)).astype("int32")
    ferry.save({"a": a, "b": b, "c": a}, tmp_path / "a.safetensors")
    one = table(
        f"""
        "y" = {{ concat = ["a", "b : x y -> x y~", "c"], axis = {axis} }}
        "z" = {{ cast = "int64", of = {{ concat = ["b", "a : x y -> x~ y"], axis = {axis} }} }}
        "s" = {{ same = ["a : x y -> y x", "c : x y -> y x"] }}
        """
    )
    ferry.convert_files(
        tmp_path / "a.safetensors", tmp_path / "b.safetensors", map=one, verify=True
    )
    found = ferry.load(tmp_path / "b.safetensors")
    assert np.array_equal(found["y"], np.concatenate([a, b[:, ::-1], a], axis))
    assert np.array_equal(found["z"], np.concatenate([b, a[::-1]], axis).astype("int64"))
    assert np.array_equal(found["s"], a.T)


def test_a_compressed_tensor_is_not_held_whole(tmp_path):
    """It is decoded into a file without a name: 34 MB are turned in less memory, whatever they are made into."""
    x = np.repeat(np.arange(1 << 12, dtype="float32"), 2100).reshape(4096, 2100)
    np.savez_compressed(tmp_path / "a.npz", a=x, b=x[:1])
    one = table('"t" = "a : x y -> y x"\n"y" = { concat = ["a[100:]", "b"], axis = 0 }')
    tracemalloc.start()
    try:
        ferry.convert_files(tmp_path / "a.npz", tmp_path / "b.safetensors", map=one)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20
    found = ferry.load(tmp_path / "b.safetensors")
    assert np.array_equal(found["t"], x.T)
    assert np.array_equal(found["y"], np.concatenate([x[100:], x[:1]]))


def test_a_cast_takes_no_panel_of_its_own(tmp_path):
    """What is turned and cast is cast a block at a time: 34 MB that become 69."""
    x = np.arange(4096 * 2100, dtype="int32").reshape(4096, 2100)
    ferry.save({"a": x}, tmp_path / "a.safetensors")
    one = table('"y" = { add = 3, of = { cast = "int64", of = "a : x y -> y x" } }')
    tracemalloc.start()
    try:
        ferry.convert_files(tmp_path / "a.safetensors", tmp_path / "b.safetensors", map=one)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20
    assert np.array_equal(ferry.load(tmp_path / "b.safetensors")["y"], x.T.astype("int64") + 3)


def test_no_room_to_decode_is_said(tmp_path, monkeypatch):
    x = np.zeros((4096, 2100), "float32")
    np.savez_compressed(tmp_path / "a.npz", a=x)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match="nowhere"):
        ferry.convert_files(
            tmp_path / "a.npz", tmp_path / "b.safetensors", map=table('"t" = "a : x y -> y x"')
        )
    assert [each.name for each in tmp_path.iterdir()] == ["a.npz"]


def test_runs_of_bytes_and_blocks_give_the_same(tmp_path):
    """What is copied by the system, and what is moved in memory."""
    random = np.random.default_rng(1)
    a, b = random.random((2, 300, 400)).astype("float32")
    ferry.save({"a": a, "b": b}, tmp_path / "a.safetensors")
    one = table('"y" = { concat = ["a", "b[:200]", "a[100:]"], axis = 0 }\n"z" = "b[200:]"')
    ferry.convert_files(
        tmp_path / "a.safetensors", tmp_path / "b.safetensors", map=one, verify=True
    )
    found = ferry.load(tmp_path / "b.safetensors")
    assert np.array_equal(found["y"], np.concatenate([a, b[:200], a[100:]]))
    assert np.array_equal(found["z"], b[200:])


def test_quantised_blocks_are_renamed_and_not_taken_apart(tmp_path):
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    blocks = np.arange(34 * 2, dtype=np.uint8).reshape(1, 68)
    writer.add_tensor("w", blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    ferry.convert_files(tmp_path / "a.gguf", tmp_path / "b.gguf", map=table('"y" = "w"'))
    (found,) = gguf.GGUFReader(tmp_path / "b.gguf").tensors
    assert (found.name, found.tensor_type) == ("y", gguf.GGMLQuantizationType.Q8_0)
    with pytest.raises(ferry.FormatLimitError, match="quantised blocks"):
        ferry.convert_files(
            tmp_path / "a.gguf", tmp_path / "c.gguf", map=table('"y" = "w : a b -> b a"')
        )


# -- bad input -------------------------------------------------------------------------------------

HOSTILE = {
    "no TOML": "x = [",
    "another key": "[maps]\n",
    "a number": '[map]\n"y" = 3\n',
    "no form": '[map]\n"y" = { what = 3 }\n',
    "two forms": '[map]\n"y" = { fill = 0, concat = ["a"] }\n',
    "a path": '[map]\n"../../x" = "a : a b c d e f -> a"\n',
    "deep": "[map]\n" + '"y" = ' + "{ cast = 'float32', of = " * 5000 + '"a"' + " }" * 5000,
    "deep lists": "[map]\n" + '"y" = ' + "[" * 100_000,
    "a long formula": f'[map]\n"y" = "a[{"1+" * 1000}1]"\n',
    "a deep formula": f'[map]\n"y" = "a[{"(" * 90}1{")" * 90}]"\n',
    "a large number": '[map]\n"y" = "a[99999999999999999999]"\n',
    "powers": '[map]\n"y" = "a[(a+b)*(c+d)*(e+f)*(g+h)*(i+j)*(k+l)*(m+n)]"\n',
    "code": '[map]\n"y" = "a[__import__(\'os\')]"\n',
    "division by zero": '[map]\n"y" = "a[1/0]"\n',
    "a lone brace": '[map]\n"y{" = "a"\n',
    "numbers side by side": '[map]\n"y.{i}{j}" = "a.{i}.{j}"\n',
    "a digit after a number": '[map]\n"y.{i}2" = "a.{i}"\n',
    "an axis that is lost": '[map]\n"y" = "a : a b -> b"\n',
    "an axis twice": '[map]\n"y" = "a : a a -> a a"\n',
    "rest on one side": '[map]\n"y" = "a : a ... -> a"\n',
    "no arrow": '[map]\n"y" = "a : a b"\n',
    "no dtype": '[map]\n"y" = { cast = "float99", of = "a" }\n',
    "moves of nothing": '[map]\n"y" = { moves = [["a", [0], [0, 1], [0, 1]]], shape = [1] }\n',
    "moves of text": '[map]\n"y" = { moves = "a", shape = [1] }\n',
    "a shape of text": '[map]\n"y" = { fill = 0, shape = "all" }\n',
    "drop of numbers": "drop = [3]\n[map]\n",
    "a length without a name": '[dims]\n"h h" = 3\n',
    "a length of text": "[dims]\nh = [[3]]\n",
    "many moves": '[map]\n"y" = { moves = ['
    + '["a", [1], [0, 1], [0, 1]],' * 20_000
    + "], shape = [1] }\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_table_is_refused(name, tmp_path):
    """In little time and memory, and without a trace of its own."""
    path = tmp_path / "t.toml"
    path.write_text(HOSTILE[name], "utf-8")
    with pytest.raises(ferry.ConversionError):
        ferry.WeightMap.read(path).apply({"a": np.zeros((2, 3))})
    np.savez(tmp_path / "a.npz", a=np.zeros((2, 3)))
    with pytest.raises(ferry.ConversionError):
        ferry.convert_files(tmp_path / "a.npz", tmp_path / "b.npz", map=path)
    assert not (tmp_path / "b.npz").exists()


ENDLESS = {
    "a fill": '{ fill = 0, shape = [1099511627776], dtype = "int8" }',
    "a fill that overflows": "{ fill = 0, shape = [4611686018427387904, 4611686018427387904] }",
    "a repetition": '"a : p q -> (p 100000000000) q"',
    "a repetition that overflows": '"a : p q -> (p 1000000000000000000) q"',
    "a stack of one": f"{{ stack = [{', '.join(['{ fill = 0, shape = [1000000000] }'] * 3)}] }}",
    "a list": f"{{ concat = [{','.join(['%a%'] * 20_000)}], axis = 0 }}".replace("%", '"'),
    "a move": '{ moves = [["a", [1000000000], [0, 1], [0, 0]]], shape = [1000000000] }',
    "a move that writes once": '{ moves = [["a", [1000000000], [0, 0], [0, 0]]], shape = [24] }',
    "a formula": '"a[9223372036854775*9223372036854775*9223372036854775:]"',
    "names": '"a : p q -> p q"\n"z.{i}.{j}" = { concat = ["b.{i}", "c.{j}"], axis = 0 }',
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_table_that_makes_too_much_is_refused_before_it_does(name, tmp_path):
    """In memory as for files: what Python and NumPy allocate stays below what the table itself may take."""
    one = f'drop = ["a", "b.*", "c.*"]\n[map]\n"y" = {ENDLESS[name]}\n'
    source = {"a": np.zeros((4, 6))}
    if name == "names":
        source |= {f"{word}.{i}": np.zeros(1) for i in range(450) for word in "bc"}
    np.savez(tmp_path / "a.npz", **source)
    (tmp_path / "t.toml").write_text(one, "utf-8")
    calls = (
        lambda: ferry.WeightMap.parse(one).apply(source),
        lambda: ferry.load(tmp_path / "a.npz", map=tmp_path / "t.toml"),
        lambda: ferry.convert_files(
            tmp_path / "a.npz", tmp_path / "b.npz", map=tmp_path / "t.toml"
        ),
    )
    for call in calls[: 1 if name == "names" else None]:
        tracemalloc.start()
        try:
            with pytest.raises(ferry.ConversionError):
                call()
            assert tracemalloc.get_traced_memory()[1] < 128 << 20
        finally:
            tracemalloc.stop()
    assert not (tmp_path / "b.npz").exists()


def test_names_of_a_table_are_no_paths(tmp_path):
    """They are names in a file, and where a format makes files of names, it refuses them as ever."""
    np.savez(tmp_path / "a.npz", a=np.zeros((2, 3)))
    one = table('"../../x" = "a"')
    for target in ("b.npz", "b.zarr", "b.safetensors"):
        before = sorted(tmp_path.parent.iterdir())
        with suppress(ferry.ConversionError):
            ferry.convert_files(tmp_path / "a.npz", tmp_path / target, map=one)
        assert sorted(tmp_path.parent.iterdir()) == before


def test_a_table_too_long_is_not_read(tmp_path):
    path = tmp_path / "t.toml"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ferry.FileFormatError, match="too long"):
        ferry.WeightMap.read(path)


@pytest.mark.parametrize("given", [3, b"x", ["a"], {"a": "b"}])
def test_what_is_no_table(given, tmp_path):
    np.savez(tmp_path / "a.npz", a=np.zeros(2))
    with pytest.raises(ferry.UnsupportedTypeError):
        ferry.load(tmp_path / "a.npz", map=given)


@pytest.mark.parametrize("dims", [{"h": 1.5}, {"h": -1}, {"h": True}, {3: 4}, [("h", 3)], "h=3"])
def test_what_are_no_lengths(dims):
    with pytest.raises(ferry.UnsupportedTypeError):
        table('"y" = "a"').apply({"a": np.zeros(2)}, dims=dims)


def test_a_table_imports_and_runs_nothing(tmp_path):
    """Reading, checking, inverting and applying: no framework is imported, no process started."""
    source = Path(__file__).resolve().parents[2]
    code = f"""
import sys
sys.path[:0] = [{str(source / "src")!r}, {str(source)!r}]
import numpy as np
import tensorferry as ferry
import subprocess, os
subprocess.Popen = os.fork = None
one = ferry.WeightMap.parse('about = "torch:load"\\n[map]\\n"y" = "a : a b -> b a"\\n')
one.check({{"a": np.zeros((2, 3))}}), one.inverse(), one.apply({{"a": np.zeros((2, 3))}})
print([name for name in ("torch", "jax", "tensorflow", "optree") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


# -- nothing in silence ----------------------------------------------------------------------------


def test_apply_says_what_it_leaves_out():
    one = table('"y" = "w : a b -> b a"')
    with pytest.warns(UserWarning, match="left out: epoch"):
        assert list(one.apply({"w": np.ones((2, 3)), "epoch": 3})) == ["y"]


def test_apply_refuses_objects_that_hold_tensors():
    torch = pytest.importorskip("torch")
    one = table('"y" = "w : a b -> b a"')
    tree = {"w": torch.ones(2, 3), "m": torch.nn.Linear(2, 2)}
    with pytest.raises(ferry.UnsupportedTypeError, match="holds a tensor") as raised:
        one.apply(tree)
    assert 'unknown="keep"' in raised.value.hint
    with pytest.warns(UserWarning, match="left out: m"):
        assert list(one.apply(tree, unknown="keep")) == ["y"]


def test_a_table_that_is_no_text_is_refused(tmp_path):
    """A byte that is none of UTF-8 does not become another name."""
    (tmp_path / "t.toml").write_bytes(b'[map]\n"y\xff" = "w"\n')
    with pytest.raises(ferry.FileFormatError, match=r"t\.toml is no text in UTF-8: byte 8"):
        ferry.WeightMap.read(tmp_path / "t.toml")


def test_a_table_replaces_no_file_in_silence(tmp_path):
    one = table('"y" = "w"')
    one.save(tmp_path / "t.toml")
    with pytest.raises(ferry.OutputExistsError, match="exists already") as raised:
        table('"z" = "w"').save(tmp_path / "t.toml")
    assert raised.value.hint == "overwrite=True"
    assert ferry.WeightMap.read(tmp_path / "t.toml") == one
    table('"z" = "w"').save(tmp_path / "t.toml", overwrite=True)
    assert ferry.WeightMap.read(tmp_path / "t.toml") == table('"z" = "w"')


def test_where_gaps_are_looked_for_is_another_place_in_each_process():
    """Else somebody could write a table whose gaps do not show, and unwritten memory would be read."""
    code = "from tensorferry.maps import moves; print(moves._POINT)"
    source = Path(__file__).resolve().parents[2] / "src"
    run = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(source)!r}); {code}"]
    points = {subprocess.run(run, capture_output=True, text=True, check=True).stdout for _ in "ab"}
    assert len(points) == 2


def test_a_file_that_is_cut_meanwhile_is_said(tmp_path):
    """Over a map of it, zeros would be read from there on, or the process would end."""
    path = tmp_path / "a.safetensors"
    ferry.save({"w": np.ones((4096, 4096), "uint16")}, path)
    moved = contents_map(table('[map]\n"y" = "w : a b -> b a"'), None, [str(path)])
    blocks = moved.mapped(open_path(path)).tensors["y"].blocks()
    assert next(blocks).all()
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 32)
    with pytest.raises(FileFormatError, match=r"ends at byte \d+, in the middle of a tensor"):
        list(blocks)


def test_a_source_that_is_cut_while_it_is_converted_leaves_nothing(tmp_path):
    path, out = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    ferry.save({"w": np.ones((4096, 4096), "uint16")}, path)
    seen = []

    def cut(done):
        # Between two blocks, when some has been written.
        seen.append(done)
        if len(seen) == 1:
            with path.open("r+b") as file:
                file.truncate(path.stat().st_size // 2)

    with pytest.raises(FileFormatError, match=r"a\.safetensors ends at byte \d+, in the middle"):
        ferry.convert_files(path, out, map=table('"y" = "w : a b -> b a"'), progress=cut)
    assert seen
    assert [each.name for each in tmp_path.iterdir()] == ["a.safetensors"]


@pytest.mark.parametrize("cost", [0, 64, 1 << 20])
@pytest.mark.parametrize("most", [1, 100, 1 << 20])
def test_a_tensor_is_read_in_runs_of_any_length(tmp_path, monkeypatch, most, cost):
    """However much is read at a time, and however much is read with it of what lies between."""
    monkeypatch.setattr(mapped, "_MOST_READ", most)
    monkeypatch.setattr(mapped, "_COST_OF_READ", cost)
    w = np.arange(4 * 6 * 10, dtype="uint16").reshape(4, 6, 10)
    forms = {
        "w : a b c -> c b a": w.transpose(2, 1, 0),
        "w : a b c -> c~ a~ b": w.transpose(2, 0, 1)[::-1, ::-1],
        "w : a b~ c -> a c b": w[:, ::-1].transpose(0, 2, 1),
        "w[1:, ::2, 3:9:3]": w[1:, ::2, 3:9:3],
        "w[2, :, 1:] : b c -> c b": w[2, :, 1:].T,
        "w[3, 5, 9:] : a -> a 3": w[3, 5, 9:, None].repeat(3, 1),
        "w : a (b 2) (c 5) -> (c b) (a 2 5)": w.reshape(4, 3, 2, 2, 5)
        .transpose(3, 1, 0, 2, 4)
        .reshape(6, 40),
    }
    ferry.save({"w": w}, tmp_path / "a.safetensors")
    for number, (form, expected) in enumerate(forms.items()):
        out = tmp_path / f"{number}.safetensors"
        drop = 'drop = ["w"]\n' if "[" in form else ""
        one = ferry.WeightMap.parse(f'{drop}[map]\n"y" = "{form}"')
        ferry.convert_files(tmp_path / "a.safetensors", out, map=one)
        np.testing.assert_array_equal(ferry.load(out, "numpy")["y"], expected, form)


CUT = """
import sys
from pathlib import Path

import numpy as np

import tensorferry as ferry
from tensorferry.maps import applying

place = Path(sys.argv[1])
path, out = place / "a.safetensors", place / "b.safetensors"
table = ferry.WeightMap.parse('[map]\\n"y" = "w : a b -> b a"')
copy, counts = applying.copy_moves, []


def cut(*args):
    # Right before the elements are copied: over a map, these very pages would be gone.
    counts.append(size)
    if len(counts) == at:
        with path.open("r+b") as file:
            file.truncate(size)
    copy(*args)


applying.copy_moves = cut
whole = None
for at in (1, 3):
    for size in (0, 1, 4095, 4096, 4097, 1 << 20, 3 << 20, (8 << 20) - 1, 8 << 20):
        ferry.save({"w": np.ones((4096, 1024), "uint16")}, path, overwrite=True)
        counts.clear()
        try:
            ferry.convert_files(path, out, map=table)
        except ferry.FileFormatError as error:
            assert f"a.safetensors ends at byte" in str(error), error
        else:
            # All had been read.
            assert (ferry.load(out, "numpy")["y"] == 1).all()
            out.unlink()
        assert [each.name for each in place.iterdir()] == ["a.safetensors"], size
print("done")
"""


@pytest.mark.slow
def test_a_source_that_is_cut_at_the_very_page_ends_no_process(tmp_path):
    """At many places, right before the elements there are copied: an error, and never a signal."""
    run = [sys.executable, "-c", CUT, str(tmp_path)]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
