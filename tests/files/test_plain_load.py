"""`load` gives a plain tree: complete, with memory of its own, whatever happens to the file afterwards."""

from __future__ import annotations

import copy
import gc
import glob
import json
import pickle
import struct
import tracemalloc
import warnings
import zipfile

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import load_file as load_torch_file
from safetensors.torch import save_file as save_torch_file
from tests import simulated
from tests.support import TARGETS, address, survives

import tensorferry as ferry
from tensorferry.execution import run
from tensorferry.files import loading
from tensorferry.files.base import stored as readers
from tensorferry.host.free_memory import free_memory

MANY = 40
_RANDOM = np.random.default_rng(5)


def arrays_of_all_sizes():
    """Empty, tiny, of a few pages, and larger than what one thread reads at a time."""
    sizes = [0, 1, 3, 1000, 70_000, (1 << 20) + 3, (3 << 20) + 5]
    return {f"t{size}": _RANDOM.integers(0, 256, size).astype("uint8") for size in sizes}


@pytest.fixture
def checkpoint(tmp_path):
    """A training script's file of torch.save, with what belongs in it."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 3))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(5, 64)).sum().backward()
    optimizer.step()
    path = tmp_path / "latest.pt"
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, path)
    return path, model, optimizer


# -- what people do with a checkpoint --------------------------------------------------------------


def test_a_loaded_checkpoint_can_be_saved_over_its_own_file(checkpoint):
    """As torch.load's can: torch.save truncates the file while it writes."""
    path, model, _ = checkpoint
    code = """
import sys, torch, tensorferry as ferry
ck = ferry.load(sys.argv[1], "torch")
torch.save(ck, sys.argv[1])
"""
    survives(code, str(path))
    found = torch.load(path, weights_only=True)
    assert found["epoch"] == 3
    for name, tensor in model.state_dict().items():
        assert torch.equal(found["model"][name], tensor), name


@pytest.mark.parametrize("to", ["numpy", "torch", "jax", "tensorflow"])
def test_what_is_written_into_the_file_later_changes_no_tensor(to, tmp_path):
    """By another tool, in the same place, while the tensors are in use."""
    path = tmp_path / "a.safetensors"
    wanted = {"w": np.arange(1 << 16, dtype="float32"), "b": np.ones(3, "float32")}
    save_file(wanted, path)
    loaded = ferry.load(path, to)
    raw = path.read_bytes()
    with path.open("r+b") as file:
        file.write(bytes(len(raw)))
        file.truncate(10)
    for name, array in wanted.items():
        assert ferry.to_numpy(loaded[name]).tobytes() == array.tobytes()


def test_an_optimizer_loads_its_state(checkpoint):
    """`torch.optim.Optimizer.load_state_dict` copies the dict that it is given."""
    path, model, optimizer = checkpoint
    again = torch.optim.AdamW(copy.deepcopy(model).parameters())
    again.load_state_dict(ferry.load(path, "torch")["optimizer"])
    theirs, ours = optimizer.state_dict(), again.state_dict()
    assert ours["param_groups"] == theirs["param_groups"]
    for key, entry in theirs["state"].items():
        assert all(torch.equal(entry[name], ours["state"][key][name]) for name in entry)


def test_pytrees_of_jax_and_torch_enter_it(checkpoint):
    """Because its containers are Python's."""
    import jax

    path, model, _ = checkpoint
    doubled = jax.tree.map(
        lambda x: x * 2, ferry.load(path, "jax", names="model.*", exclude="optimizer.*")["model"]
    )
    expected = model.state_dict()["0.weight"].numpy() * 2
    assert np.asarray(doubled["0.weight"]).tobytes() == expected.tobytes()
    assert len(torch.utils._pytree.tree_leaves(ferry.load(path, "torch")["model"])) == 4


@pytest.mark.parametrize("suffix", [".pt", ".safetensors", ".npz"])
def test_a_loaded_tree_is_copied_and_pickled_with_its_weights(suffix, tmp_path):
    """torch.save, pickle and deepcopy of it hold values, and no path."""
    path = tmp_path / f"a{suffix}"
    ferry.save({"model": {"w": np.arange(5000, dtype="float32")}, "n": 3}, path)
    loaded = ferry.load(path, "torch")
    torch.save(loaded, tmp_path / "q.pt")
    held = pickle.dumps(loaded), copy.deepcopy(loaded)
    path.unlink()
    for found in (torch.load(tmp_path / "q.pt", weights_only=True), pickle.loads(held[0]), held[1]):  # noqa: S301
        assert type(found) is type(found["model"]) is dict
        assert torch.equal(found["model"]["w"], torch.arange(5000, dtype=torch.float32))
        assert found["n"] == 3


# -- memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("threads", [1, 4])
def test_every_size_is_read_by_one_thread_and_by_several(threads, swapped, tmp_path, monkeypatch):
    """Each value once, in its place, in each byte order, also of shards in several files."""
    monkeypatch.setattr(readers, "processor_count", lambda: threads)
    monkeypatch.setattr(readers, "_ALONE", 1000)
    wanted = {}
    for name, array in arrays_of_all_sizes().items():
        whole = array[: array.size // 4 * 4].view(">i4" if swapped else "<i4")
        wanted[name] = whole
    np.savez(tmp_path / "a.npz", **wanted)
    loaded = ferry.load(tmp_path / "a.npz")
    assert list(loaded) == list(wanted)
    for name, array in wanted.items():
        assert loaded[name].dtype == np.dtype("int32")
        assert np.array_equal(loaded[name], array), name


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint8", "bool"])
def test_frameworks_take_over_memory_that_is_aligned(dtype, to, tmp_path):
    """At a multiple of 64, although the file has it elsewhere; in NumPy and PyTorch it can be written."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    wanted = {
        name: (_RANDOM.integers(0, 2, size)).astype(kind)
        for name, size in {"a": 7, "b": 3 << 20}.items()
    }
    save_file(wanted, tmp_path / "a.safetensors", {"shift": "x"})
    loaded = ferry.load(tmp_path / "a.safetensors", to)
    for name, array in wanted.items():
        assert ferry.describe(loaded[name]).framework == to
        assert ferry.to_numpy(loaded[name]).tobytes() == array.tobytes()
        assert address(loaded[name]) % 64 == 0
        assert not ferry.describe(loaded[name]).memory_map
        if to in ("numpy", "torch"):
            assert ferry.describe(loaded[name]).writable
            loaded[name][0] = 0


@pytest.mark.parametrize("to", ["numpy", "torch", "jax", "tensorflow"])
def test_a_framework_takes_the_very_memory_that_was_read(to, tmp_path, monkeypatch):
    """Without a second copy: the address is that of the array into which the file was read."""
    read = []

    def watched(tensors, most=None):
        for array in readers.read_ahead(tensors, most):
            read.append(address(array))
            yield array

    monkeypatch.setattr("tensorferry.files.source.read_ahead", watched)
    save_file(
        {"a": np.ones(5, "float32"), "b": np.ones(1 << 20, "float32")}, tmp_path / "a.safetensors"
    )
    loaded = ferry.load(tmp_path / "a.safetensors", to)
    assert [address(each) for each in loaded.values()] == read


def test_a_compressed_tensor_is_decoded_once_into_its_memory(tmp_path):
    """What the decoder holds beside it does not grow with the tensor."""
    wanted = np.arange(1 << 22, dtype="float64")
    np.savez_compressed(tmp_path / "a.npz", a=wanted)
    gc.collect()
    tracemalloc.start()
    loaded = ferry.load(tmp_path / "a.npz")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert np.array_equal(loaded["a"], wanted)
    assert most < wanted.nbytes / 2  # the tensor's own pages are the system's, and not counted


def test_tied_names_are_one_object(tmp_path):
    """Of one memory, as when they were saved; in another dtype too."""
    weight = torch.arange(5000.0)
    torch.save({"a": weight, "tied": weight, "b": weight.clone()}, tmp_path / "a.pt")
    for keywords in ({}, {"dtype": "float16"}):
        for to in ("torch", "numpy", "python"):
            loaded = ferry.load(tmp_path / "a.pt", to, **keywords)
            assert loaded["a"] is loaded["tied"]
            assert loaded["a"] is not loaded["b"]


def test_views_of_one_storage_have_memory_of_their_own(tmp_path):
    """Strided and overlapping ones have their values, in row-major order."""
    whole = torch.arange(12.0).reshape(3, 4)
    torch.save(
        {"whole": whole, "t": whole.T, "row": whole[1], "odd": whole[:, ::2]}, tmp_path / "a.pt"
    )
    loaded = ferry.load(tmp_path / "a.pt", "torch")
    for name, each in torch.load(tmp_path / "a.pt", weights_only=True).items():
        assert torch.equal(loaded[name], each)
    loaded["whole"].zero_()
    assert loaded["t"].sum() == 66


def test_a_file_with_many_shards_is_read_with_few_open_files(tmp_path):
    """Fewer than a process may have, however many files a model has."""
    resource = pytest.importorskip("resource", reason="no limits of processes on this system")
    index = {}
    for number in range(MANY):
        name = f"model-{number + 1:05}-of-{MANY:05}.safetensors"
        save_file({f"w{number}": np.full(1000, number, "float32")}, tmp_path / name)
        index[f"w{number}"] = name
    (tmp_path / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": index})
    )
    assert resource.getrlimit(resource.RLIMIT_NOFILE)
    code = """
import os, resource, sys, tensorferry as ferry
ferry.load(sys.argv[1], names="w0")
used = len(os.listdir("/proc/self/fd"))
resource.setrlimit(resource.RLIMIT_NOFILE, (used + 8, used + 8))
loaded = ferry.load(sys.argv[1])
assert all((loaded[f"w{n}"] == n).all() for n in range(40)), loaded
"""
    survives(code, str(tmp_path))


def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path, monkeypatch):
    """Rather than a tree of two files."""
    path = tmp_path / "a.safetensors"
    save_file({"a": np.ones(5000)}, path)

    def changed(tensors, most=None):
        yield from readers.read_ahead(tensors, most)
        with path.open("ab") as file:
            file.write(b"x")

    monkeypatch.setattr("tensorferry.files.source.read_ahead", changed)
    with pytest.raises(ferry.FileFormatError, match="has changed since it was opened"):
        ferry.load(path)


@pytest.mark.parametrize("threads", [1, 4])
def test_a_file_that_is_cut_off_meanwhile_is_an_error(threads, tmp_path, monkeypatch):
    """And no tensor of zeros; no thread is left."""
    path = tmp_path / "a.safetensors"
    save_file({"a": np.ones(5000), "b": np.ones(1 << 21)}, path)

    def cut(tensors, most=None):
        path.write_bytes(path.read_bytes()[:9000])
        yield from readers.read_ahead(tensors, most)

    monkeypatch.setattr(readers, "processor_count", lambda: threads)
    monkeypatch.setattr("tensorferry.files.source.read_ahead", cut)
    with pytest.raises(ferry.FileFormatError, match="has changed since it was opened"):
        ferry.load(path)


# -- more than the memory that is free -------------------------------------------------------------


@pytest.fixture
def free(monkeypatch):
    """A function that says how much memory is free."""

    def says(nbytes):
        monkeypatch.setattr("tensorferry.host.free_memory.free_memory", lambda: nbytes)

    return says


@pytest.mark.unwatched
@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".npz"])
def test_more_than_the_free_memory_is_refused_before_it_is_read(
    suffix, free, tmp_path, monkeypatch
):
    """With the sizes; the hint's two ways work."""
    path = tmp_path / f"a{suffix}"
    ferry.save({"large[0]": np.ones(4096), "small*": np.ones(8)}, path)
    free(4096 * 8 - 1)
    with monkeypatch.context() as patched:
        patched.setattr(
            "tensorferry.files.source.read_ahead", lambda *_: pytest.fail("it was read")
        )
        with pytest.raises(
            ferry.NotEnoughMemoryError, match=r"takes 32\.1 KiB of memory .* 32 KiB are free"
        ) as refused:
            ferry.load(path)
    assert isinstance(refused.value, MemoryError)
    assert path.name in str(refused.value)
    lazy, _, part = refused.value.hint.partition("; or ")
    assert (
        eval(f"load(path, {lazy.partition(', which')[0]})", {"load": ferry.load, "path": path})[  # noqa: S307
            "small*"
        ].sum()
        == 8
    )
    found = eval(f"load(path, {part.partition(', for')[0]})", {"load": ferry.load, "path": path})  # noqa: S307
    assert list(found) == ["small*"]
    free(4096 * 8 + 64)
    assert list(ferry.load(path)) == ["large[0]", "small*"]
    free(None)
    assert list(ferry.load(path)) == ["large[0]", "small*"]


def test_what_counts_is_what_is_loaded(free, tmp_path):
    """The chosen tensors, each tie once, in the dtype that is asked for; lists take what their elements do."""
    weight = torch.ones(1024)
    torch.save({"a": weight, "tied": weight, "b": torch.ones(1024)}, tmp_path / "a.pt")
    free(8192)
    assert len(ferry.load(tmp_path / "a.pt", "torch")) == 3
    free(8191)
    with pytest.raises(ferry.NotEnoughMemoryError):
        ferry.load(tmp_path / "a.pt", "torch")
    free(4096 + 4096)  # two results of half the size, and one that is read
    assert ferry.load(tmp_path / "a.pt", "torch", dtype="float16")["b"].dtype == torch.float16
    free(16384)
    with pytest.raises(ferry.NotEnoughMemoryError):
        ferry.load(tmp_path / "a.pt", "python")


def test_a_device_needs_host_memory_for_the_largest_tensor_only(free, tmp_path):
    """Each one leaves it when it has been transferred."""
    path = tmp_path / "a.safetensors"
    save_file({f"w{n}": np.full(1024, n, "float32") for n in range(9)}, path)
    with simulated.installed():
        free(4096)
        with pytest.raises(ferry.NotEnoughMemoryError, match="takes 36 KiB"):
            ferry.load(path, "simulated")
        loaded = ferry.load(path, "simulated", device="sim:0")
        assert {each.device for each in loaded.values()} == {"sim:0"}
        assert ferry.to_numpy(loaded["w7"]).tolist() == [7.0] * 1024
        free(4095)
        with pytest.raises(ferry.NotEnoughMemoryError, match="takes 4 KiB"):
            ferry.load(path, "simulated", device="sim:0")


def test_a_header_that_claims_more_than_there_is_memory_is_refused(free, tmp_path):
    """A sparse file of a tebibyte, and a thousand tensors over one memory."""
    path = tmp_path / "a.npy"
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f4", "fortran_order": False, "shape": (1 << 38,)}
        )
        file.truncate(file.tell() + (1 << 40))
    free(1 << 34)
    with pytest.raises(ferry.NotEnoughMemoryError, match="1 TiB"):
        ferry.load(path)
    whole = torch.ones(1 << 16)
    torch.save({f"part{n}": whole[n:] for n in range(1000)}, tmp_path / "a.pt")
    free(1 << 26)
    with pytest.raises(ferry.NotEnoughMemoryError, match="248 MiB"):
        ferry.load(tmp_path / "a.pt", "torch")


def test_a_copy_of_a_lazy_tree_is_refused_too(free, tmp_path):
    """It would be as large; its hint is for a lazy tree."""
    save_file({"w": np.ones(1024)}, tmp_path / "a.safetensors")
    lazy = ferry.load(tmp_path / "a.safetensors", lazy=True)
    free(100)
    for use in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(ferry.NotEnoughMemoryError) as refused:
            use(lazy)
        assert "lazy=True" not in refused.value.hint
        assert ".reference()" in refused.value.hint


def system(folder, **files):
    """A folder that looks like the root of a system."""
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


MEMINFO = "MemTotal: 99 kB\nMemFree: 1 kB\nMemAvailable:    1000 kB\n"


def test_free_memory_is_what_the_system_and_each_limit_leave(tmp_path):
    """By both versions of control groups; files in the caches of a group count as free."""
    assert free_memory(tmp_path) is None
    system(tmp_path, proc__meminfo=MEMINFO)
    assert free_memory(tmp_path) == 1000 * 1024
    system(tmp_path, proc__self__cgroup="0::/jobs/one\n")
    assert free_memory(tmp_path) == 1000 * 1024
    inner, outer = "sys__fs__cgroup__jobs__one__memory_dot_", "sys__fs__cgroup__jobs__memory_dot_"
    system(tmp_path, **{f"{inner}max": "max\n", f"{inner}current": "10\n"})
    assert free_memory(tmp_path) == 1000 * 1024
    system(tmp_path, **{f"{outer}max": "90000\n", f"{outer}current": "70000\n"})
    assert free_memory(tmp_path) == 20_000
    system(tmp_path, **{f"{outer}stat": "anon 5\ninactive_file 300\nactive_file 40\n"})
    assert free_memory(tmp_path) == 20_340
    system(tmp_path, **{f"{inner}max": "5000\n", f"{inner}current": "6000\n"})
    assert free_memory(tmp_path) == 0


def test_free_memory_knows_the_older_control_groups(tmp_path):
    """In a container, whose own folder is the root of what it sees."""
    system(
        tmp_path,
        proc__meminfo=MEMINFO,
        proc__self__cgroup="4:cpu,cpuacct:/x\n3:memory:/docker/abc\n0::/\n",
    )
    place = "sys__fs__cgroup__memory__memory_dot_"
    system(
        tmp_path,
        **{f"{place}limit_in_bytes": "9223372036854771712\n", f"{place}usage_in_bytes": "500\n"},
    )
    assert free_memory(tmp_path) == 1000 * 1024
    system(
        tmp_path,
        **{
            f"{place}limit_in_bytes": "4000\n",
            f"{place}stat": "cache 9\ntotal_inactive_file 100\n",
        },
    )
    assert free_memory(tmp_path) == 3600


# -- nothing is left out in silence ----------------------------------------------------------------


def mixed(path, names):
    """An .npz with arrays, and with members that are none."""
    np.savez(path, w=np.ones(2))
    with zipfile.ZipFile(path, "a") as archive:
        for name in names:
            archive.writestr(name, "text")


@pytest.mark.unwatched
def test_all_that_cannot_be_loaded_is_named_at_once(tmp_path):
    """With the reasons; the code of the hint leaves out exactly that."""
    path = tmp_path / "a.npz"
    mixed(path, ["notes[1].txt", "other.txt"])
    with pytest.raises(ferry.FormatLimitError) as refused:
        ferry.load(path)
    for name in (
        "notes[1].txt (a member that is no array)",
        "other.txt (a member that is no array)",
    ):
        assert name in refused.value.message
    code = refused.value.hint.partition(", which")[0]
    assert code == f'exclude=["{glob.escape("notes[1].txt")}", "other.txt"]'
    assert list(eval(f"load(path, {code})", {"load": ferry.load, "path": path})) == ["w"]  # noqa: S307
    with pytest.warns(UserWarning, match=r"notes\[1\]\.txt .*, other\.txt ") as told:
        assert list(ferry.load(path, strict=False)) == ["w"]
    assert len(told) == 1
    assert told[0].filename == __file__


def test_the_hint_keeps_what_was_excluded_already(tmp_path):
    """It can be pasted in place of the exclude= that was there."""
    mixed(tmp_path / "a.npz", ["x.txt", "y.txt"])
    with pytest.raises(ferry.FormatLimitError, match=r"y\.txt") as refused:
        ferry.load(tmp_path / "a.npz", exclude="x.*")
    code = refused.value.hint.partition(", which")[0]
    assert list(eval(f"load(path, {code})", {"load": ferry.load, "path": tmp_path / "a.npz"})) == [  # noqa: S307
        "w"
    ]


def test_a_message_names_some_of_many(tmp_path):
    """And says how many more there are."""
    mixed(tmp_path / "a.npz", [f"{n}.txt" for n in range(3000)])
    with pytest.raises(ferry.FormatLimitError, match="and 2,992 more") as refused:
        ferry.load(tmp_path / "a.npz")
    assert len(str(refused.value)) < 2000
    assert refused.value.hint.startswith("strict=False")


@pytest.mark.unwatched
def test_tensors_that_no_plan_converts_are_refused_together_before_any_is_read(
    tmp_path, monkeypatch
):
    """Each with its name, and with one hint that is right for all."""
    save_file(
        {f"i{n}": np.ones(2, "int64") for n in range(3)} | {"f": np.ones(2, "float32")},
        tmp_path / "a.safetensors",
    )
    with monkeypatch.context() as patched:
        patched.setattr(
            "tensorferry.files.source.read_ahead", lambda *_: pytest.fail("it was read")
        )
        with pytest.raises(ferry.TreeError, match="3 tensors") as refused:
            ferry.load(tmp_path / "a.safetensors", "jax")
    assert [type(error) for error in refused.value.exceptions] == [ferry.LossyCastError] * 3
    assert [error.message.rpartition("at ")[2] for error in refused.value.exceptions] == [
        "'i0'",
        "'i1'",
        "'i2'",
    ]
    hints = {error.hint for error in refused.value.exceptions}
    assert len(hints) == 1
    code = hints.pop().partition(", or")[0]
    loaded = eval(  # noqa: S307
        f"load(path, 'jax', {code})", {"load": ferry.load, "path": tmp_path / "a.safetensors"}
    )
    assert str(loaded["i0"].dtype) == "int32"


def test_no_copy_is_for_lazy_trees(tmp_path):
    """A tensor that was read has memory of its own always; the hint keeps the promise."""
    save_file({"w": np.ones(100)}, tmp_path / "a.safetensors")
    with pytest.raises(ferry.CopyRequiredError, match="copy=False") as refused:
        ferry.load(tmp_path / "a.safetensors", copy=False)
    assert isinstance(refused.value, ValueError)
    code = refused.value.hint.partition(", for")[0]
    lazy = eval(f"load(path, {code})", {"load": ferry.load, "path": tmp_path / "a.safetensors"})  # noqa: S307
    assert ferry.describe(lazy["w"]).memory_map
    for copied in (None, True):
        assert not ferry.describe(
            ferry.load(tmp_path / "a.safetensors", copy=copied)["w"]
        ).memory_map
    assert not ferry.describe(
        ferry.load(tmp_path / "a.safetensors", lazy=True, copy=True)["w"]
    ).memory_map


@pytest.mark.parametrize("lazy", [False, True])
def test_a_dtype_that_is_for_no_tensor_is_told(lazy, tmp_path):
    """By the words of a conversion's report."""
    path = tmp_path / "a.safetensors"
    save_file({"ids": np.ones(3, "int64")}, path)
    with pytest.warns(UserWarning, match="dtype changes nothing") as told:
        ferry.load(path, dtype="float16", lazy=lazy)
    report = ferry.convert_files(path, tmp_path / "b.safetensors", dtype="float16")
    assert [str(each.message) for each in told] == [
        each for each in report.warnings if "dtype" in each
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ferry.load(path, dtype="int32", lazy=lazy)
        ferry.load(path, dtype={"float": "float16", "int64": "int32"}, lazy=lazy)


def test_the_header_alone_says_what_a_dtype_is_for(tmp_path):
    """A file without tensors has none of any kind."""
    header = json.dumps({"__metadata__": {"a": "b"}}).encode()
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.warns(UserWarning, match="dtype changes nothing"):
        assert ferry.load(tmp_path / "a.safetensors", dtype="float16") == {}


def test_tensors_that_only_overlap_become_independent(tmp_path):
    """As the page says: a write into one does not show in the other; a tie is still one tensor."""
    whole = torch.arange(6.0)
    torch.save({"a": whole[:4], "b": whole[2:], "again": whole[:4]}, tmp_path / "a.pt")
    found = ferry.load(tmp_path / "a.pt", "torch")
    found["a"][3] = 9
    assert found["b"].tolist() == [2, 3, 4, 5]
    assert found["again"] is found["a"]


# -- the fast path ---------------------------------------------------------------------------------


@pytest.mark.quick
@pytest.mark.fast_paths
@pytest.mark.parametrize("lazy", [False, True])
def test_no_plan_is_made_for_ordinary_tensors(tmp_path, monkeypatch, lazy):
    """Each as safetensors' own reader gives it; what is cast is planned, and so is what PyTorch does not have."""
    tensors = {
        f"{dtype}.{axes}": torch.ones((2,) * axes).to(getattr(torch, dtype))
        for dtype in ("float32", "bfloat16", "float8_e4m3fn", "int64", "bool")
        for axes in range(3)
    }
    tensors["empty"] = torch.empty(0, 3)
    path = tmp_path / "a.safetensors"
    save_torch_file(tensors, path)
    planned = []

    def noting(function):
        return lambda *given, **keywords: planned.append(given) or function(*given, **keywords)

    monkeypatch.setattr(run, "convert", noting(run.convert))
    monkeypatch.setattr(loading, "prepare_described", noting(loading.prepare_described))
    found = ferry.load(path, "torch", lazy=lazy)
    for name, tensor in load_torch_file(path).items():
        assert found[name].dtype is tensor.dtype
        assert found[name].shape == tensor.shape
        assert found[name].reshape(-1).view(torch.uint8).tolist() == (
            tensor.reshape(-1).view(torch.uint8).tolist()
        )
    assert planned == []
    narrow = ferry.load(path, "torch", lazy=lazy, dtype={"int64.1": "int8"})
    assert narrow["int64.1"].dtype is torch.int8
    assert planned
