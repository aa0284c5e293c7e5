"""`load(slices=)` of what is in chunks, in blocks or made by a map: what a part does not need is not read.

What a part does not need is damaged here: with it, the part could not be read.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from tests.files.test_slices import FLAT, indexes

import tensorferry as ferry
from tensorferry.files import mapped
from tensorferry.files.base import stored as stored_module
from tensorferry.files.mapped import contents_map
from tensorferry.files.ranges import cutting
from tensorferry.files.ranges.boxes import box_of, chunk_counts, chunk_elements, in_chunks
from tensorferry.maps.moves import Move, of_part, steps_of

SHAPE, CHUNK = (13, 9, 32), (4, 2, 8)
VALUES = np.random.default_rng(7).standard_normal(SHAPE)
INDEXES = [
    *(np.s_[0], np.s_[3:5], np.s_[..., 9], np.s_[::9, 3:5], np.s_[:, 1:8:3, 30:], np.s_[-1, -1]),
    *indexes(SHAPE, 2, 12),
]


def chunks_of(index, shape=SHAPE, chunk=CHUNK):
    """The chunks in which an index has elements, found by looking at each element."""
    at = np.stack(
        [
            axis[index].ravel() // length
            for axis, length in zip(np.indices(shape), chunk, strict=True)
        ]
    )
    return {tuple(map(int, each)) for each in at.T}


def bytes_of(chunks, shape=SHAPE, chunk=CHUNK, itemsize=8):
    """How many bytes of values chunks have; the last of an axis is cut off."""
    return itemsize * sum(
        int(
            np.prod(
                [
                    min(length, whole - at * length)
                    for at, length, whole in zip(each, chunk, shape, strict=True)
                ]
            )
        )
        for each in chunks
    )


def damaged(files, wanted):
    """Files by their chunks, of which all that are not wanted are damaged; gives what they were."""
    before = {path: path.read_bytes() for at, path in files.items() if at not in wanted}
    for path, raw in before.items():
        path.write_bytes(bytes(len(raw)))
    return before


def zarr_files(folder):
    """The files of an array's chunks, by their places."""
    found = {}
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).as_posix().removeprefix("c/").replace(".", "/").split("/")
        if path.is_file() and all(part.isdigit() for part in parts):
            found[tuple(map(int, parts))] = path
    return found


@pytest.mark.parametrize("version", [2, 3])
def test_of_compressed_zarr_only_the_chunks_of_a_part_are_read(version, tmp_path):
    """Of both versions of the format, with what the plan says of the bytes."""
    zarr = pytest.importorskip("zarr", reason="zarr is not installed")
    path = tmp_path / "a.zarr"
    group = zarr.open_group(str(path), mode="w", zarr_format=version)
    group.create_array("x", shape=SHAPE, chunks=CHUNK, dtype="float64")[...] = VALUES
    files = zarr_files(path / "x")
    assert len(files) == 4 * 5 * 4
    for index in INDEXES:
        wanted = chunks_of(index)
        before = damaged(files, wanted)
        plan = ferry.explain_load(path, slices={"x": index})
        found = ferry.load(path, slices={"x": index})["x"]
        assert found.tobytes() == VALUES[index].tobytes(), index
        assert plan.bytes_read == bytes_of(wanted), index
        if wanted and found.shape != SHAPE:
            assert f"decoded: {len(wanted)} of 80 chunks" in str(plan)
        for each, raw in before.items():
            each.write_bytes(raw)
    damaged(files, chunks_of(np.s_[0]))
    with pytest.raises(ferry.FileFormatError):
        ferry.load(path, slices={"x": np.s_[4]})


@pytest.fixture
def counted(monkeypatch):
    """The bytes that are copied out of maps and read out of files."""
    found = []
    copy, read = cutting.copy_part, stored_module.read_fully
    monkeypatch.setattr(
        cutting, "copy_part", lambda to, of: (found.append(to.nbytes), copy(to, of))
    )
    monkeypatch.setattr(
        stored_module,
        "read_fully",
        lambda file, view, *rest: (found.append(view.nbytes), read(file, view, *rest)),
    )
    return found


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_of_plain_zarr_only_the_bytes_of_a_part_are_read(dtype, tmp_path):
    """Chunks that are not compressed are places in files; those that are not there have the fill value."""
    zarr = pytest.importorskip("zarr", reason="zarr is not installed")
    path = tmp_path / "a.zarr"
    kind = {"float64": "float64", "bfloat16": "uint16"}[dtype]
    values = VALUES if dtype == "float64" else VALUES.view("uint16")[..., ::4].copy()
    group = zarr.open_group(str(path), mode="w")
    array = group.create_array(
        "x", shape=SHAPE, chunks=CHUNK, dtype=kind, compressors=None, fill_value=3
    )
    array[...] = values
    if dtype == "bfloat16":
        described = json.loads((path / "x/zarr.json").read_text())
        described["attributes"] = {"tensorferry.dtype": dtype}
        (path / "x/zarr.json").write_text(json.dumps(described))
    for index in INDEXES:
        want = values[index]
        plan = ferry.explain_load(path, slices={"x": index})
        found = ferry.load(path, slices={"x": index})["x"]
        assert found.dtype.name == dtype
        assert found.tobytes() == want.tobytes(), index
        if want.shape == SHAPE:
            continue
        assert plan.bytes_read == want.nbytes, index
        raw = [
            Path(runs.path).read_bytes()[start:stop]
            for runs in plan.requests
            for start, stop in runs.positions()
        ]
        assert sorted(b"".join(raw)) == sorted(want.tobytes())
    (path / "x/c/0/0/0").unlink()
    filled = values.copy()
    filled[:4, :2, :8] = 3
    found = ferry.load(path, slices={"x": np.s_[2:6, 1]})["x"]
    assert found.tobytes() == filled[2:6, 1].tobytes()
    (path / "x/c/1/0/0").write_bytes(b"short")
    with pytest.raises(ferry.FileFormatError):
        ferry.load(path, slices={"x": np.s_[4, 1]})


@pytest.mark.parametrize("compression", ["gzip", "lzf", None])
def test_of_hdf5_only_the_chunks_of_a_part_are_read(compression, tmp_path):
    """The library says where each chunk is."""
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        kept = file.create_dataset(
            "x", data=VALUES.astype(">f8"), chunks=CHUNK, compression=compression
        )
        places = [kept.id.get_chunk_info(number) for number in range(kept.id.get_num_chunks())]
    whole = path.read_bytes()
    for index in INDEXES:
        wanted = chunks_of(index)
        raw = bytearray(whole)
        for each in places:
            at = tuple(
                start // length for start, length in zip(each.chunk_offset, CHUNK, strict=True)
            )
            if at not in wanted:
                raw[each.byte_offset : each.byte_offset + each.size] = bytes(each.size)
        path.write_bytes(raw)
        plan = ferry.explain_load(path, slices={"x": index})
        found = ferry.load(path, slices={"x": index})["x"]
        assert found.tobytes() == VALUES[index].tobytes(), index
        assert plan.bytes_read == bytes_of(wanted), index


@pytest.mark.parametrize("database", [True, False])
def test_of_orbax_only_the_chunks_of_a_part_are_read(database, tmp_path):
    """In files of their own those that are not needed are damaged; in a database they are read by tensorstore."""
    ocp = pytest.importorskip("orbax.checkpoint", reason="orbax-checkpoint is not installed")
    path = tmp_path / "orbax"
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=database, use_zarr3=False)
    with ocp.Checkpointer(handler) as checkpointer:
        save = ocp.args.PyTreeSave(
            {"x": FLAT}, save_args={"x": ocp.SaveArgs(chunk_byte_size=4 * 16 * 4)}
        )
        checkpointer.save(path, args=save)
    files = {} if database else zarr_files(path / "x")
    if not database:
        lengths = json.loads((path / "x/.zarray").read_text())["chunks"]
        assert len(files) > 4
    for index in (np.s_[3], np.s_[1:5, ::40], np.s_[..., -1], np.s_[8:], np.s_[::5, 3:20:4]):
        if not database:
            wanted = chunks_of(index, FLAT.shape, lengths)
            before = damaged(files, wanted)
        plan = ferry.explain_load(path, slices={"x": index})
        assert np.array_equal(ferry.load(path, slices={"x": index})["x"], FLAT[index])
        assert plan.bytes_read <= FLAT.nbytes
        if not database:
            assert plan.bytes_read == bytes_of(wanted, FLAT.shape, lengths, 4)
            for each, raw in before.items():
                each.write_bytes(raw)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_K"])
def test_of_quantised_blocks_only_those_of_a_part_are_read(kind, tmp_path):
    """Compared with what the library makes of the whole tensor."""
    library = pytest.importorskip("gguf", reason="the gguf library is not installed")
    code = library.GGMLQuantizationType[kind]
    length, nbytes = library.GGML_QUANT_SIZES[code]
    rows, columns, blocks = 3, 5, 4
    packed = np.random.default_rng(3).integers(0, 60, (rows, columns, blocks * nbytes), np.uint8)
    numbers = library.quants.dequantize(packed, code)
    writer = library.GGUFWriter(tmp_path / "a.gguf", "test")
    writer.add_tensor("x", packed, raw_dtype=code)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    contents = ferry.open(tmp_path / "a.gguf")
    begin = contents.tensors["x"].offset
    whole = (tmp_path / "a.gguf").read_bytes()
    shape, chunk = numbers.shape, (1, 1, length)
    for index in (
        *(np.s_[1], np.s_[::2, 3], np.s_[..., length + 1 : 2 * length : 7], np.s_[2, 1:, -1]),
        np.s_[:, ::4, :: 2 * length],
        np.s_[0, 0, 5 : 3 * length : length + 30],
    ):
        wanted = chunks_of(index, shape, chunk)
        raw = bytearray(whole)
        for at in np.ndindex(rows, columns, blocks):
            if at not in wanted:
                place = begin + int(np.ravel_multi_index(at, (rows, columns, blocks))) * nbytes
                raw[place : place + nbytes] = b"\xff" * nbytes
        (tmp_path / "a.gguf").write_bytes(raw)
        keywords = {"slices": {"x": index}, "dequantize": True}
        plan = ferry.explain_load(tmp_path / "a.gguf", **keywords)
        found = ferry.load(tmp_path / "a.gguf", **keywords)["x"]
        assert found.tobytes() == numbers[index].tobytes(), index
        assert plan.bytes_read == bytes_of(wanted, shape, chunk, 4)
    (tmp_path / "a.gguf").write_bytes(whole[: begin + nbytes])
    with pytest.raises(ferry.FileFormatError):
        ferry.load(tmp_path / "a.gguf", **keywords)


def test_a_compressed_member_is_inflated_up_to_the_last_byte_of_a_part(tmp_path):
    """What comes after it may be damaged."""
    values = np.random.default_rng(1).integers(0, 100, (512, 1024), np.int32)
    np.savez_compressed(tmp_path / "a.npz", x=values)
    raw = bytearray((tmp_path / "a.npz").read_bytes())
    place = len(raw) * 3 // 4
    raw[place:-1000] = b"\xff" * (len(raw) - place - 1000)
    (tmp_path / "a.npz").write_bytes(raw)
    for index in (np.s_[:200], np.s_[50:150:7, 3:9]):
        assert np.array_equal(
            ferry.load(tmp_path / "a.npz", slices={"x": index})["x"], values[index]
        )
    with (
        zipfile.ZipFile(tmp_path / "a.npz") as archive,
        pytest.raises(Exception, match=r"CRC|Error"),
    ):
        archive.read("x.npy")


# -- what a map makes -------------------------------------------------------------------------------

A, B = np.arange(24 * 16, dtype=np.float32).reshape(24, 16), -np.ones((8, 16), np.float32)
MADE = {
    "transposed": A.T,
    "joined": np.concatenate([A, B]),
    "beside": np.concatenate([A.T, B.T], axis=1),
    "heads": A.reshape(3, 2, 4, 16).transpose(1, 0, 2, 3),
    "interleaved": A.reshape(2, 12, 16).transpose(1, 0, 2).reshape(24, 16),
    "repeated": np.repeat(A, 3, axis=0),
}


@pytest.fixture
def taken(monkeypatch):
    """How many bytes are read of sources, part by part; to read a tensor whole is a failure."""
    found, read = [], mapped.read_fully

    def counting(descriptor, part, offset, path):
        found.append(len(part))
        read(descriptor, part, offset, path)

    monkeypatch.setattr(mapped, "read_fully", counting)
    monkeypatch.setattr(
        stored_module, "read_fully", lambda *_: pytest.fail("a whole tensor was read")
    )
    return found


@pytest.mark.parametrize("name", MADE)
def test_a_part_of_what_a_map_makes_takes_its_own_bytes_of_the_sources(name, tmp_path, taken):
    """As NumPy makes it, and as many as the plan says."""
    path = tmp_path / "a.safetensors"
    from safetensors.numpy import save_file

    save_file({"a": A, "b": B}, path)
    table = ferry.WeightMap.infer({"a": A, "b": B}, {"z": np.ascontiguousarray(MADE[name])})
    want = MADE[name]
    for index in [np.s_[1], np.s_[..., 2:9:3], *indexes(want.shape, 10, len(name))]:
        taken.clear()
        plan = ferry.explain_load(path, map=table, slices={"z": index})
        if want[index].shape == want.shape or not want[index].size:
            continue
        found = ferry.load(path, map=table, slices={"z": index})["z"]
        assert found.tobytes() == want[index].tobytes(), index
        assert plan.bytes_read == sum(taken), index
        assert plan.bytes_read <= want[index].nbytes, index
        raw = path.read_bytes()
        values = [
            np.frombuffer(raw[start:stop], "float32")
            for runs in plan.requests
            for start, stop in runs.positions()
        ]
        assert set(np.concatenate(values).tolist()) == set(want[index].ravel().tolist())


def test_a_dtype_of_a_map_is_applied_after_the_cut(tmp_path, taken):
    """The bytes are those of the source."""
    path = tmp_path / "a.safetensors"
    from safetensors.numpy import save_file

    save_file({"a": A}, path)
    table = ferry.WeightMap.infer({"a": A}, {"z": A.T.astype(np.float16)})
    taken.clear()
    plan = ferry.explain_load(path, map=table, slices={"z": np.s_[3:5]})
    found = ferry.load(path, map=table, slices={"z": np.s_[3:5]})["z"]
    assert found.tobytes() == A.T[3:5].astype(np.float16).tobytes()
    assert plan.bytes_read == sum(taken) == 2 * 24 * 4


def test_a_source_that_was_cut_short_is_an_error(tmp_path):
    """Not an end of the process, nor an error of NumPy."""
    path = tmp_path / "a.safetensors"
    ferry.save({"a": A}, path)
    table = ferry.WeightMap.infer({"a": A}, {"z": np.ascontiguousarray(A.T)})
    contents = contents_map(table, None, [str(path)]).mapped(ferry.open(path))
    part = cutting.cut(contents.tensors["z"], box_of(np.s_[3:5], (16, 24), "z"))
    place = ferry.open(path).tensors["a"].offset
    for kept in (place + 200, 0):
        path.write_bytes(path.read_bytes()[:kept])
        with pytest.raises(ferry.FileFormatError, match="in the middle of a tensor"):
            part.load()


def test_a_source_that_a_part_does_not_need_is_not_decoded(tmp_path, monkeypatch):
    """Of compressed sources, only those of which the part has something are."""
    np.savez_compressed(tmp_path / "a.npz", a=A, b=B)
    table = ferry.WeightMap.infer({"a": A, "b": B}, {"z": np.concatenate([A, B])})
    decoded = []
    blocks = stored_module.Decoded.blocks

    def counting(stored):
        decoded.append(stored.shape)
        return blocks(stored)

    monkeypatch.setattr(stored_module.Decoded, "blocks", counting)
    found = ferry.load(tmp_path / "a.npz", map=table, slices={"z": np.s_[3:20, 1]})["z"]
    assert np.array_equal(found, A[3:20, 1])
    assert set(decoded) == {A.shape}
    assert np.array_equal(ferry.load(tmp_path / "a.npz", map=table)["z"], MADE["joined"])
    assert set(decoded) == {A.shape, B.shape}


# -- the arithmetic ---------------------------------------------------------------------------------


def test_a_part_of_moves_is_what_numpy_cuts_out_of_what_they_make():
    """For moves with steps on both sides, backwards too, drawn once and for all."""
    drawn = np.random.default_rng(4)
    shape = (4, 6, 10)
    source = np.arange(1, 1 << 11)
    for number in range(300):
        axes = int(drawn.integers(1, 4))
        sizes = tuple(int(size) for size in drawn.integers(1, 6, axes))
        steps = sorted((int(step) for step in drawn.integers(1, 60, axes)), reverse=True)
        start = int(drawn.integers(0, 20))
        if start + sum((size - 1) * step for size, step in zip(sizes, steps, strict=True)) >= 240:
            continue
        of = tuple(int(step) for step in drawn.integers(-9, 30, axes))
        begin = 200
        whole = np.zeros(240, np.int64)

        def carry(move, into):
            for at in np.ndindex(move.sizes):
                to = move.target_start + sum(
                    i * step for i, step in zip(at, move.target_steps, strict=True)
                )
                out = move.source_start + sum(
                    i * step for i, step in zip(at, move.source_steps, strict=True)
                )
                into[to] = source[out]

        move = Move("a", sizes, start, tuple(steps), begin, of)
        positions = {
            start + sum(i * step for i, step in zip(at, steps, strict=True))
            for at in np.ndindex(sizes)
        }
        if len(positions) < move.size:
            continue  # it writes one position twice
        carry(move, whole)
        for index in indexes(shape, 4, number):
            box = box_of(index, shape, "x")
            if not box.size:
                continue
            part = np.zeros(box.size, np.int64)
            for each in of_part(move, shape, *box[:3]):
                carry(each, part)
            assert np.array_equal(part, whole.reshape(shape)[index].ravel()), (move, index)
        assert steps_of(shape) == (60, 10, 1)


def test_boxes_end_where_chunks_end():
    """Together they are the box, none is larger than asked unless it is of one chunk."""
    for index in indexes(SHAPE, 60, 9):
        box = box_of(index, SHAPE, "x")
        if not box.size:
            continue
        wanted = chunks_of(index)
        assert int(np.prod(chunk_counts(box, CHUNK))) == len(wanted)
        assert chunk_elements(box, CHUNK, SHAPE) * 8 == bytes_of(wanted)
        seen = np.zeros(SHAPE, int)
        for most in (1, 50, 300):
            seen[...] = 0
            for part in in_chunks(box, CHUNK, most):
                cut = tuple(
                    slice(start, start + (count - 1) * step + 1, step)
                    for start, count, step in zip(*part[:3], strict=True)
                )
                seen[cut] += 1
                assert part.size <= most or int(np.prod(chunk_counts(part, CHUNK))) == 1
            want = np.zeros(SHAPE, int)
            want[index] = 1
            assert np.array_equal(seen, want)
