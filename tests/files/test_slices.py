"""`load(slices=)` and `explain_load`: parts of tensors, as NumPy's own indexing gives them, and nothing else read."""

from __future__ import annotations

import pickle
import tracemalloc
import warnings
import zlib

import numpy as np
import pytest
from tests.support import TARGETS

import tensorferry as ferry
from tensorferry.files.base import stored as stored_module
from tensorferry.files.ranges import cutting
from tensorferry.files.ranges.boxes import box_of, inside, rank, whole_box
from tensorferry.files.ranges.runs import ByteRuns, runs_of

VALUES = np.random.default_rng(5).integers(0, 2**31, (13, 8, 32)).astype(np.int64).view("float64")
FLAT = np.arange(8 * 64, dtype=np.float32).reshape(8, 64)


def indexes(shape, count, seed):
    """Indexes for a shape, drawn at random once and for all: integers, slices, dots, in every mixture."""
    drawn = np.random.default_rng(seed)
    for _ in range(count):
        parts = []
        for length in shape[: drawn.integers(0, len(shape) + 1)]:
            bounds = [
                None if drawn.random() < 0.3 else int(drawn.integers(-length - 2, length + 3))
                for _ in range(2)
            ]
            step = None if drawn.random() < 0.4 else int(drawn.integers(1, 5))
            is_integer = drawn.random() < 0.3
            parts.append(
                int(drawn.integers(-length, length)) if is_integer else slice(*bounds, step)
            )
        if drawn.random() < 0.4:
            parts.insert(int(drawn.integers(0, len(parts) + 1)), Ellipsis)
            # What stands behind the dots is for the last axes.
            if any(
                (isinstance(part, int) and part >= min(shape))
                or (isinstance(part, int) and part < -min(shape))
                for part in parts
            ):
                parts.remove(Ellipsis)
        yield tuple(parts) if len(parts) != 1 or drawn.random() < 0.5 else parts[0]


# -- files, each by the tool of its format ----------------------------------------------------------


def safetensors(folder):
    from safetensors.numpy import save_file

    save_file({"x": VALUES, "y": FLAT}, folder / "a.safetensors")
    return folder / "a.safetensors"


def npy(folder):
    np.save(folder / "a.npy", VALUES)
    return folder / "a.npy"


def npy_columns(folder):
    """In the other order of memory."""
    np.save(folder / "a.npy", np.asfortranarray(VALUES))
    return folder / "a.npy"


def npy_big(folder):
    """Of the other end first."""
    np.save(folder / "a.npy", VALUES.astype(">f8"))
    return folder / "a.npy"


def npz(folder):
    np.savez(folder / "a.npz", x=VALUES, y=FLAT)
    return folder / "a.npz"


def npz_compressed(folder):
    np.savez_compressed(folder / "a.npz", x=VALUES, y=FLAT)
    return folder / "a.npz"


def pt(folder):
    torch = pytest.importorskip("torch")
    torch.save({"x": torch.from_numpy(VALUES), "y": torch.from_numpy(FLAT)}, folder / "a.pt")
    return folder / "a.pt"


def pt_transposed(folder):
    """A view with strides of its own."""
    torch = pytest.importorskip("torch")
    held = torch.from_numpy(np.ascontiguousarray(VALUES.transpose(2, 0, 1)))
    torch.save({"x": held.permute(1, 2, 0)}, folder / "a.pt")
    return folder / "a.pt"


def pt_legacy(folder):
    torch = pytest.importorskip("torch")
    torch.save(
        {"x": torch.from_numpy(VALUES)}, folder / "a.pt", _use_new_zipfile_serialization=False
    )
    return folder / "a.pt"


def gguf(folder):
    library = pytest.importorskip("gguf", reason="the gguf library is not installed")
    writer = library.GGUFWriter(folder / "a.gguf", "test")
    writer.add_tensor("x", VALUES)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder / "a.gguf"


def zarr(folder):
    library = pytest.importorskip("zarr", reason="zarr is not installed")
    group = library.open_group(str(folder / "a.zarr"), mode="w")
    array = group.create_array("x", shape=VALUES.shape, chunks=(4, 4, 8), dtype="float64")
    array[...] = VALUES
    return folder / "a.zarr"


def hdf5(folder):
    library = pytest.importorskip("h5py", reason="h5py is not installed")
    with library.File(folder / "a.h5", "w") as file:
        file.create_dataset("x", data=VALUES, chunks=(4, 4, 8), compression="gzip")
        file.create_dataset("y", data=FLAT)
    return folder / "a.h5"


def dcp(folder):
    library = pytest.importorskip("torch.distributed.checkpoint")
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there is one process
        library.save({"x": torch.from_numpy(VALUES)}, checkpoint_id=folder / "dcp")
    return folder / "dcp"


def orbax(folder):
    library = pytest.importorskip("orbax.checkpoint", reason="orbax-checkpoint is not installed")
    with library.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(folder / "orbax", {"x": FLAT})
    return folder / "orbax"


FORMATS = [
    *(safetensors, npy, npy_columns, npy_big, npz, npz_compressed, pt, pt_transposed, pt_legacy),
    *(gguf, zarr, hdf5, dcp),
]


def one(path, **keywords):
    """The tensor with the name x, or the only one."""
    found = ferry.load(path, **keywords)
    return found["x"] if hasattr(found, "keys") and "x" in found else found


@pytest.mark.parametrize("write", FORMATS, ids=lambda write: write.__name__)
def test_every_index_gives_what_numpy_gives(write, tmp_path):
    """Of every format, into memory of its own and lazily: shape, dtype and bits."""
    path = write(tmp_path)
    (name,) = [
        name for name, each in ferry.open(path).tensors.items() if each.shape == VALUES.shape
    ]
    for index in indexes(VALUES.shape, 24, zlib.crc32(write.__name__.encode())):
        want = VALUES[index]
        found = one(path, slices={name: index}, names=name)
        assert (found.shape, found.dtype) == (want.shape, want.dtype), index
        assert found.tobytes() == want.tobytes(), index
        assert found.flags.carray, index
        with ferry.load(path, slices={name: index}, names=name, lazy=True) as lazy:
            assert lazy[name].tobytes() == want.tobytes(), index
            assert lazy[name].shape == want.shape, index


def test_orbax_gives_what_numpy_gives(tmp_path):
    """Its chunks are decoded by tensorstore."""
    path = orbax(tmp_path)
    for index in (np.s_[3], np.s_[1:5, ::7], np.s_[..., -1], np.s_[8:]):
        assert np.array_equal(ferry.load(path, slices={"x": index})["x"], FLAT[index])


@pytest.mark.parametrize("target", TARGETS)
def test_every_framework_gets_the_part(target, tmp_path):
    """With a dtype, which is for what is cut out."""
    path = safetensors(tmp_path)
    for index in (np.s_[2], np.s_[1:3, ::5], np.s_[..., 4], np.s_[5:5]):
        found = ferry.load(path, target, names="y", slices={"y": index}, dtype="float16")["y"]
        want = FLAT[index].astype(np.float16)
        got = ferry.to_numpy(found, dtype="float16")
        assert got.tobytes() == want.tobytes()
        assert got.shape == want.shape or not want.size


def test_numbers_that_do_not_fit_are_refused_only_if_they_are_taken(tmp_path):
    """The dtype is applied after the cut."""
    ferry.save({"x": np.array([1, 2, 300])}, tmp_path / "a.safetensors")
    found = ferry.load(tmp_path / "a.safetensors", slices={"x": np.s_[:2]}, dtype="int8")
    assert found["x"].tolist() == [1, 2]
    with pytest.raises(ferry.LossyCastError, match="at 'x'"):
        ferry.load(tmp_path / "a.safetensors", slices={"x": np.s_[1:]}, dtype="int8")


def test_quantised_blocks_are_cut_by_their_bytes_or_by_their_numbers(tmp_path):
    """As `dequantize` says."""
    library = pytest.importorskip("gguf", reason="the gguf library is not installed")
    kind = library.GGMLQuantizationType.Q8_0
    packed = library.quants.quantize(FLAT, kind)
    writer = library.GGUFWriter(tmp_path / "a.gguf", "test")
    writer.add_tensor("x", packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    numbers = library.quants.dequantize(packed, kind)
    index = np.s_[3, 5:40:3]
    for keywords, want in (({}, packed), ({"dequantize": True}, numbers)):
        found = ferry.load(tmp_path / "a.gguf", slices={"x": index}, **keywords)["x"]
        assert np.array_equal(found, want[index])
        assert found.dtype == want.dtype
        with ferry.load(tmp_path / "a.gguf", slices={"x": 3}, lazy=True, **keywords) as lazy:
            assert np.array_equal(lazy["x"], want[3])
            assert "'x': " in repr(lazy)


def test_parts_of_what_a_map_makes(tmp_path):
    """Of the targets, whose elements are moved out of other tensors."""
    path = tmp_path / "a.npz"
    np.savez(path, y=FLAT)
    table = ferry.WeightMap.infer({"y": FLAT}, {"z": FLAT.T.copy()})
    for index in (np.s_[5], np.s_[2:60:7, 1:3], np.s_[..., 0]):
        found = ferry.load(path, map=table, slices={"z": index})
        assert np.array_equal(found["z"], FLAT.T[index])


# -- which tensors ----------------------------------------------------------------------------------


def test_a_name_is_first_and_then_the_first_pattern(tmp_path):
    """What fits none stays whole; names with brackets are names too."""
    tensors = {name: np.arange(6.0) for name in ("a.w", "a.b", "c", "d[0]")}
    ferry.save(tensors, tmp_path / "a.npz")
    slices = {"a.*": 0, "*": np.s_[1:], "a.b": 2, "d[0]": np.s_[:0]}
    found = ferry.load(tmp_path / "a.npz", slices=slices)
    assert found["a.w"] == 0
    assert found["a.b"] == 2
    assert found["c"].tolist() == [1, 2, 3, 4, 5]
    assert found["d[0]"].shape == (0,)
    only = ferry.load(tmp_path / "a.npz", slices={"a.b": 2})
    assert only["a.w"].shape == (6,)
    assert only["a.b"].shape == ()


def test_parts_of_tied_tensors_are_tied_if_they_are_equal(tmp_path):
    """Not if they differ."""
    torch = pytest.importorskip("torch")
    held = torch.arange(6.0)
    torch.save({"a": held, "b": held}, tmp_path / "a.pt")
    same = ferry.load(tmp_path / "a.pt", "torch", slices={"*": np.s_[2:]})
    assert same["a"] is same["b"]
    other = ferry.load(tmp_path / "a.pt", "torch", slices={"a": np.s_[2:]})
    assert other["a"].shape == (4,)
    assert other["b"].shape == (6,)


def test_another_process_gets_the_same_parts(tmp_path):
    """A reference has the indexes."""
    path = safetensors(tmp_path)
    lazy = ferry.load(path, slices={"y": np.s_[1:3, ..., 2]}, lazy=True)
    again = pickle.loads(pickle.dumps(lazy.reference())).open()  # noqa: S301 - its own
    assert np.array_equal(again["y"], FLAT[1:3, 2])


def test_a_lazy_part_is_a_view_of_the_map(tmp_path):
    """Writes to it show in the whole, and never in the file."""
    path = safetensors(tmp_path)
    before = path.read_bytes()
    with ferry.load(path, slices={"y": np.s_[::2, 3]}, lazy=True) as lazy:
        assert lazy["y"].base is not None
        assert lazy["y"].strides == (2 * 64 * 4,)
        lazy["y"][...] = 7
    assert path.read_bytes() == before


# -- what is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("index", "error", "why"),
    [
        (np.s_[::-1], ValueError, "a step is at least 1, not -1"),
        (np.s_[::0], ValueError, "a step is at least 1, not 0"),
        ([1, 2], TypeError, "not an object of type list"),
        (np.array([1]), TypeError, "not an object of type ndarray"),
        (np.array([True] * 8), TypeError, "not an object of type ndarray"),
        (True, TypeError, "not True"),
        (None, TypeError, "not None"),
        (np.s_[0, None], TypeError, "not None"),
        ("0:2", TypeError, "not '0:2'"),
        (np.s_[1.5:], TypeError, "bounds and steps of a slice are integers, not 1.5"),
        (1.0, TypeError, "not 1.0"),
        (np.s_[0, 0, 0], IndexError, "3 parts is too many for its 2 axes"),
        (np.s_[..., ...], IndexError, "only one"),
        (8, IndexError, "index 8 is outside of axis 0, which has 8 elements"),
        (np.s_[:, -65], IndexError, "index -65 is outside of axis 1, which has 64 elements"),
    ],
)
def test_what_is_no_index_is_refused_by_the_name_of_its_tensor(
    index, error, why, tmp_path, monkeypatch
):
    """Before a tensor is read, lazily too, and by `explain_load`."""
    path = safetensors(tmp_path)
    monkeypatch.setattr(stored_module, "_read", lambda _: pytest.fail("read"))
    for call in (
        lambda: ferry.load(path, slices={"y": index}),
        lambda: ferry.load(path, slices={"y": index}, lazy=True),
        lambda: ferry.explain_load(path, slices={"y": index}),
    ):
        with pytest.raises(error) as caught:
            call()
        assert "slices= of 'y'" in str(caught.value)
        assert why in str(caught.value)


@pytest.mark.parametrize(
    ("slices", "error", "why"),
    [
        ({"z": 0}, ferry.FormatLimitError, "the name 'z', which no tensor has"),
        ({"y": 0, "q*": 0}, ferry.FormatLimitError, "the name 'q*', which no tensor has"),
        ({"*": 0, "x*": 0}, ferry.FormatLimitError, "other keys take all that fits it"),
        ([0], TypeError, "a mapping from names or patterns, not an object of type list"),
        ({0: 0}, TypeError, "which are strings, not 0"),
    ],
)
def test_a_name_that_is_for_no_tensor_is_refused(slices, error, why, tmp_path):
    """Nothing is left out in silence."""
    with pytest.raises(error) as caught:
        ferry.load(safetensors(tmp_path), slices=slices)
    assert why in str(caught.value)
    assert "slices=" in str(caught.value)


def test_a_file_that_was_cut_short_is_an_error(tmp_path):
    """Whether a part is one run or many."""
    path = safetensors(tmp_path)
    for index in (np.s_[:, 1:3], np.s_[2:]):
        contents = ferry.open(path)
        source = cutting.cut(contents.tensors["y"], box_of(index, (8, 64), "y"))
        whole = path.read_bytes()
        path.write_bytes(whole[: contents.tensors["y"].offset + 10])
        with pytest.raises(ferry.FileFormatError, match="in the middle of a tensor"):
            source.load()
        path.write_bytes(whole)


# -- what is read -----------------------------------------------------------------------------------


@pytest.fixture
def counted(monkeypatch):
    """The bytes that are copied out of maps and read out of files."""
    found = []
    copy, read = cutting.copy_part, stored_module.read_fully
    monkeypatch.setattr(
        cutting,
        "copy_part",
        lambda result, there: (found.append(result.nbytes), copy(result, there)),
    )
    monkeypatch.setattr(
        stored_module,
        "read_fully",
        lambda descriptor, view, *rest: (found.append(view.nbytes), read(descriptor, view, *rest)),
    )
    return found


@pytest.mark.parametrize("write", [safetensors, npy, npy_columns, npz, pt, pt_transposed, dcp])
def test_the_bytes_of_a_part_and_no_others_are_read(write, tmp_path, counted):
    """As many as `explain_load` says."""
    path = write(tmp_path)
    (name,) = [
        name for name, each in ferry.open(path).tensors.items() if each.shape == VALUES.shape
    ]
    for index in indexes(VALUES.shape, 12, 77):
        if VALUES[index].shape == VALUES.shape:
            continue  # whole tensors with strides are read block by block
        plan = ferry.explain_load(path, names=name, slices={name: index})
        counted.clear()
        assert one(path, names=name, slices={name: index}).nbytes == VALUES[index].nbytes
        assert sum(counted) == plan.bytes_read == plan.bytes_needed == VALUES[index].nbytes, index


def test_a_part_takes_memory_of_its_own_and_no_more(tmp_path):
    """A thousandth of a tensor, by columns and by rows, also of one that is compressed."""
    big = np.zeros((1000, 4000), np.float32)
    np.save(tmp_path / "a.npy", big)
    np.savez_compressed(tmp_path / "a.npz", x=big)
    for path in (tmp_path / "a.npy", tmp_path / "a.npz"):
        (name,) = ferry.open(path).tensors
        for index in (np.s_[:, 5:9], np.s_[999]):
            one(path, slices={name: index})  # what is imported is not counted
            tracemalloc.start()
            one(path, slices={name: index})
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < (5 << 20 if path.suffix == ".npz" else 1 << 20), (path, index)


def test_what_is_decoded_is_decoded_up_to_the_part(tmp_path, monkeypatch):
    """And the plan says so."""
    values = np.zeros((4096, 1024), np.float32)
    values[300:400] = np.arange(1024)
    np.savez_compressed(tmp_path / "a.npz", x=values)
    plan = ferry.explain_load(tmp_path / "a.npz", slices={"x": np.s_[300:400, :2]})
    assert plan.bytes_needed == 800
    assert plan.bytes_read == 399 * 4096 + 8
    assert plan.bytes_wasted == plan.bytes_read - 800
    assert not plan.requests
    assert plan.tensors[0].how == "decoded up to its last element"
    assert "only what is needed is read" in str(plan)
    done = []
    blocks = stored_module.Decoded.blocks
    monkeypatch.setattr(
        stored_module.Decoded,
        "blocks",
        lambda stored: (done.append(block.nbytes) or block for block in blocks(stored)),
    )
    ferry.load(tmp_path / "a.npz", slices={"x": np.s_[300:400, :2]})
    assert plan.bytes_read <= sum(done) <= plan.bytes_read + stored_module.BLOCK_BYTES


def test_a_plan_reads_headers_only_and_has_runs(tmp_path, monkeypatch):
    """Runs are positions in the file: their bytes are those of the part."""
    path = safetensors(tmp_path)
    monkeypatch.setattr(stored_module, "_read", lambda _: pytest.fail("read"))
    plan = ferry.explain_load(path, "torch", slices={"y": np.s_[1:7:2, 3:8]})
    row = next(each for each in plan.tensors if each.names == ("y",))
    assert row.shape == (8, 64)
    assert row.part == "[1:6:2, 3:8]"
    assert row.bytes_needed == 60
    raw = path.read_bytes()
    (runs,) = row.requests
    assert (
        b"".join(raw[start:stop] for start, stop in runs.positions()) == FLAT[1:7:2, 3:8].tobytes()
    )
    assert runs.number == 3
    assert runs.nbytes == 60
    assert runs.path == str(path)
    assert plan.bytes_needed == 60 + VALUES.nbytes
    assert plan.bytes_wasted == 0
    assert "copied from a map: 3 runs of 20 B, gaps of 492 B" in str(plan)
    assert plan.peak == plan.bytes_needed
    assert "LoadPlan of 2 tensors" in repr(plan)


@pytest.mark.parametrize(
    ("keywords", "peak"),
    [
        ({}, 2048),
        ({"slices": {"y": 0}}, 256),
        ({"dtype": "float64"}, 2 * 2048 + 2048),
    ],
)
def test_the_peak_of_a_plan(keywords, peak, tmp_path):
    """The results, and what is held beside them while they are made."""
    plan = ferry.explain_load(safetensors(tmp_path), names="y", **keywords)
    assert plan.peak == peak


def test_a_plan_raises_what_the_load_raises(tmp_path):
    """With the same words."""
    path = safetensors(tmp_path)
    for keywords in ({"names": "q"}, {"device": "nowhere"}, {"dtype": "no"}, {"slices": {"q": 0}}):
        with pytest.raises(Exception, match=r"\w") as planned:
            ferry.explain_load(path, "torch", **keywords)
        with pytest.raises(type(planned.value)) as loaded:
            ferry.load(path, "torch", **keywords)
        assert str(planned.value) == str(loaded.value)


def test_a_million_runs_are_four_numbers():
    """A plan does not list them."""
    stored = stored_module.Extent("float32", (655360, 4096), "a", 64)
    part = cutting.cut(stored, box_of(np.s_[:, :2], stored.shape, "x"))
    assert runs_of(part) == [ByteRuns("a", 64, 8, (655360,), (16384,))]


# -- the arithmetic of boxes ------------------------------------------------------------------------


def test_a_box_of_a_box_is_numpys_index_of_an_index():
    """Through each of them."""
    shape = (5, 7, 4)
    values = np.arange(140).reshape(shape)
    for number, first in enumerate(indexes(shape, 60, 3)):
        outer = box_of(first, shape, "x")
        part = values[first]
        assert outer.shape == part.shape
        for second in indexes(part.shape, 3, number) if part.ndim and part.size else ():
            found = inside(outer, box_of(second, part.shape, "x"))
            cut = tuple(
                start if axis in found.dropped else slice(start, start + count * step, step)
                for axis, (start, count, step) in enumerate(zip(*found[:3], strict=True))
            )
            assert np.array_equal(values[cut], part[second]) or not part[second].size


def test_the_rank_of_a_position_is_how_many_elements_are_before_it():
    """Counted one by one."""
    shape = (3, 4, 5)
    numbers = np.arange(60).reshape(shape)
    for index in indexes(shape, 40, 11):
        box = box_of(index, shape, "x")
        inside_it = np.atleast_1d(numbers[index]).ravel()
        for position in range(61):
            assert rank(box, shape, position) == (inside_it < position).sum(), (index, position)


def test_all_of_a_tensor_is_the_tensor_itself():
    """Nothing is cut then."""
    stored = stored_module.Extent("float32", (3, 4), "a", 0)
    assert cutting.cut(stored, whole_box((3, 4))) is stored
    assert cutting.cut(stored, box_of(np.s_[:, 0:9], (3, 4), "x")) is stored


def test_what_is_decoded_is_held_beside_its_part(tmp_path):
    """The plan says at most how much memory: a block of what is decoded, and the part itself."""
    np.savez_compressed(tmp_path / "a.npz", x=np.arange(1000, dtype="int64"))

    plan = ferry.explain_load(tmp_path / "a.npz", slices={"x": np.s_[990:]})

    assert plan.peak >= 8 * 10 + 8 * 1000
