"""What several processes of PyTorch save: whole tensors, bit by bit, from the folders that torch itself writes."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from tests.files import hostile
from tests.files.test_pickles import agrees
from tests.support import peak_of

import tensorferry as ferry
from tensorferry.errors import FileFormatError, UnsafeFileError
from tensorferry.files.base.stored import InMemory
from tensorferry.files.encodings.array_parts import Region, joined
from tensorferry.files.formats.distcp import FORMAT
from tensorferry.files.reports.check import check_path

torch = pytest.importorskip("torch", reason="the folders are written by torch itself")
dcp = pytest.importorskip(
    "torch.distributed.checkpoint", reason="this torch was built without torch.distributed"
)

# PyTorch 2.6 says so of what it does itself when it saves.
pytestmark = pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")

ROOT = Path(__file__).resolve().parents[2]
NO_PROCESSES = "ignore:torch.distributed is disabled, unavailable or uninitialized"


def tree():
    """A training state in one process, with every kind of place in it."""
    whole = torch.arange(60, dtype=torch.float32).reshape(3, 4, 5)
    model = {
        name: torch.arange(7).to(getattr(torch, name))
        for name in ("bool", "int8", "bfloat16", "float64", "complex64")
    }
    model |= {
        "whole": whole,
        "turned": whole.permute(2, 0, 1),
        "one": torch.tensor(2.5),
        "none": torch.ones(0, 3),
    }
    return {
        "model": model,
        "epoch": 3,
        "text": "é",
        "list": [1, torch.zeros(2), {"deep": None}],
        "size": torch.Size([2, 3]),
    }


@pytest.fixture
def checkpoint(tmp_path):
    """A folder that this process wrote."""
    path = tmp_path / "checkpoint"
    with pytest.warns(UserWarning, match="assuming the intent is to save in a single process"):
        dcp.save(tree(), checkpoint_id=path)
    return path


def metadata_of(path):
    return pickle.loads((path / ".metadata").read_bytes())  # noqa: S301 - our own


def with_metadata(path, change):
    """The same folder with other metadata."""
    metadata = metadata_of(path)
    change(metadata)
    (path / ".metadata").write_bytes(pickle.dumps(metadata))
    return path


def test_a_checkpoint_of_one_process(checkpoint, tmp_path):
    """Every tensor and value, and how they nest."""
    before = {each.name: each.read_bytes() for each in checkpoint.iterdir()}
    found = ferry.open(checkpoint)
    assert (found.format, found.others) == ("torch_distributed", {})
    loaded = ferry.load(checkpoint, "torch")
    assert all(agrees(loaded[name], tree()[name]) for name in ("model", "epoch", "text"))
    assert not list(check_path(checkpoint))
    ferry.convert_files(checkpoint, tmp_path / "a.pt", verify=True)
    assert agrees(torch.load(tmp_path / "a.pt", weights_only=True), tree())
    ferry.convert_files(checkpoint, tmp_path / "shards", to="safetensors", shard="1KB", verify=True)
    assert agrees(ferry.load(tmp_path / "shards", "torch")["model"], tree()["model"])
    assert {each.name: each.read_bytes() for each in checkpoint.iterdir()} == before


def test_one_file_of_several_leads_to_their_folder(checkpoint, monkeypatch):
    """The metadata stands for the checkpoint; a part of it is refused with its whole path."""
    assert agrees(ferry.load(checkpoint / ".metadata", "torch")["model"], tree()["model"])
    part = next(checkpoint.glob("*.distcp"))
    with pytest.raises(FileFormatError, match="is what one of several processes saved") as refused:
        ferry.open(part)
    assert refused.value.hint == f"load({str(checkpoint)!r})"
    assert agrees(ferry.load(checkpoint, "torch")["model"], tree()["model"])
    monkeypatch.chdir(checkpoint)
    with pytest.raises(FileFormatError) as refused:
        ferry.open(part.name)
    assert refused.value.hint == f"load({str(checkpoint)!r})"
    path = checkpoint.parent / "lone.pt"
    path.write_bytes(
        hostile.torch_zip(
            hostile.PROTO2 + hostile.named("torch.distributed.tensor", "DTensor") + b")R."
        )
    )
    with pytest.raises(UnsafeFileError, match=r"asks for torch\.distributed") as refused:
        ferry.open(path)
    assert "the path of its folder" in refused.value.hint


def test_a_state_dict_alone_is_flat(tmp_path):
    """Names with dots stay what they are."""
    state = {"a.weight": torch.arange(6.0), "a.bias": torch.ones(2)}
    with pytest.warns(UserWarning, match="single process"):
        dcp.save(state, checkpoint_id=tmp_path / "c")
    found = ferry.open(tmp_path / "c")
    assert found.tree is None
    assert agrees(ferry.load(tmp_path / "c", "torch"), state)


PROGRAM = """
import os, sys, warnings
warnings.simplefilter("ignore")
import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType, fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

def main(rank, count, folder):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=count)
    mesh = init_device_mesh("cpu", (count,))
    whole = torch.arange(35.0).reshape(7, 5)
    state = {
        "rows": distribute_tensor(whole, mesh, [Shard(0)]),
        "columns": distribute_tensor(whole.bfloat16(), mesh, [Shard(1)]),
        "everywhere": distribute_tensor(whole, mesh, [Replicate()]),
        "few": distribute_tensor(torch.arange(2), mesh, [Shard(0)]),
        "plain": torch.ones(3),
    }
    if count == 4:
        square = init_device_mesh("cpu", (2, 2))
        state["both"] = distribute_tensor(whole, square, [Shard(0), Shard(1)])
        state["twice"] = distribute_tensor(torch.arange(11), square, [Shard(0), Shard(0)])
        state["half"] = distribute_tensor(whole, square, [Replicate(), Shard(0)])
    dcp.save({"model": state, "epoch": 3}, checkpoint_id=f"{folder}/dcp")
    os.makedirs(f"{folder}/dtensors", exist_ok=True)
    torch.save(state, f"{folder}/dtensors/model_rank_{rank}.pt")

    def model():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.BatchNorm1d(7), torch.nn.Linear(7, 3))

    if rank == 0:
        torch.save(model().state_dict(), f"{folder}/expected.pt")
    one = FullyShardedDataParallel(model(), device_id=torch.device("cpu"))
    with FullyShardedDataParallel.state_dict_type(one, StateDictType.SHARDED_STATE_DICT):
        sharded = one.state_dict()
    os.makedirs(f"{folder}/fsdp1", exist_ok=True)
    torch.save(sharded, f"{folder}/fsdp1/rank{rank}.pt")
    dcp.save(sharded, checkpoint_id=f"{folder}/fsdp1_dcp")
    two = fully_shard(model(), mesh=mesh)
    dcp.save(two.state_dict(), checkpoint_id=f"{folder}/fsdp2_dcp")
    os.makedirs(f"{folder}/fsdp2", exist_ok=True)
    torch.save(two.state_dict(), f"{folder}/fsdp2/rank{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()

main(*map(int, sys.argv[1:3]), sys.argv[3])
"""


@pytest.fixture(scope="module", params=[2, 4])
def folders(request, tmp_path_factory):
    """What so many processes wrote, once."""
    folder = tmp_path_factory.mktemp("processes")
    (folder / "program.py").write_text(textwrap.dedent(PROGRAM))
    command = [sys.executable, str(folder / "program.py")]
    running = [
        subprocess.Popen(
            [*command, str(rank), str(request.param), str(folder)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(request.param)
    ]
    told = [process.communicate()[1] for process in running]
    assert [process.returncode for process in running] == [0] * request.param, told[0][-2000:]
    return folder


@pytest.mark.slow
def test_what_several_processes_save(folders, tmp_path):
    """DTensors in every placement, FSDP1 and FSDP2, as checkpoints and as a file for each process."""
    whole = torch.arange(35.0).reshape(7, 5)
    for name in ("dcp", "dtensors"):
        state = ferry.load(folders / name, "torch")
        state = state["model"] if name == "dcp" else state
        expected = {
            "rows": whole,
            "columns": whole.bfloat16(),
            "everywhere": whole,
            "few": torch.arange(2),
        }
        expected |= {"plain": torch.ones(3)}
        if "both" in state:
            expected |= {"both": whole, "twice": torch.arange(11), "half": whole}
        assert set(state) == set(expected)
        assert agrees({key: state[key] for key in expected}, expected), name
    expected = torch.load(folders / "expected.pt")
    for name in ("fsdp1", "fsdp1_dcp", "fsdp2", "fsdp2_dcp"):
        found = ferry.open(folders / name)
        assert found.others == {}
        loaded = ferry.load(folders / name, "torch")
        assert set(loaded) == set(expected)
        assert agrees({key: loaded[key] for key in expected}, dict(expected)), name
        assert not list(check_path(folders / name))
        ferry.convert_files(folders / name, tmp_path / f"{name}.safetensors", verify=True)
        found = ferry.load(tmp_path / f"{name}.safetensors", "torch")
        assert agrees({key: found[key] for key in expected}, dict(expected))
    # A piece is missing: that of the last process.
    for name in ("dtensors", "fsdp1", "fsdp2"):
        left = tmp_path / name
        shutil.copytree(folders / name, left)
        names = sorted(each.name for each in left.iterdir())
        (left / names[-1]).unlink()
        with pytest.raises(FileFormatError, match="do not cover it"):
            ferry.open(left)
        shutil.copy(folders / name / names[-1], left)
        (left / names[0]).unlink()
        with pytest.raises(FileFormatError, match="lacks the files of processes 0"):
            ferry.open(left)


def test_pieces_that_are_no_tiling_are_refused():
    """Too few, too many, outside, of another dtype; what tiles is put together whatever its order."""
    values = np.arange(24.0).reshape(4, 6)

    def piece(rows, columns, dtype="float64"):
        part = values[slice(*rows), slice(*columns)].astype(dtype)
        return Region((rows[0], columns[0]), part.shape, InMemory(part, dtype, (rows, columns)))

    tiles = [piece((2, 4), (0, 6)), piece((0, 2), (3, 6)), piece((0, 2), (0, 3))]
    assert joined("folder", "a", "float64", (4, 6), tiles).load().tolist() == values.tolist()
    for odd, what in (
        (tiles[1:], "do not cover it: 12 of its 24"),
        ([*tiles, tiles[0]], "overlap"),
        ([tiles[0], tiles[0]], "overlap"),
        ([piece((0, 2), (0, 6)), piece((1, 3), (0, 6))], "overlap"),
        ([tiles[0], tiles[1], tiles[2]._replace(start=(0, 4))], "lie outside"),
        ([tiles[0], tiles[1], tiles[2]._replace(start=(0,))], "lie outside"),
        ([tiles[0], tiles[1], piece((0, 2), (0, 3), "float32")], "are of float32"),
    ):
        with pytest.raises(FileFormatError, match=what):
            joined("folder", "a", "float64", (4, 6), odd)
    runs = [
        Region((begin,), (8,), InMemory(values.reshape(-1)[begin : begin + 8], "float64", begin))
        for begin in (16, 0, 8)
    ]
    assert (
        joined("folder", "a", "float64", (4, 6), runs, flat=True).load().tolist() == values.tolist()
    )
    with pytest.raises(UnsafeFileError, match="out of all proportion"):
        joined(
            "f",
            "a",
            "float64",
            (1,) * 30,
            [Region((0,) * 30, (1,) * 30, InMemory(values[:1, 0], "float64", 0))],
        )


def test_large_tensors_in_pieces_take_no_memory(tmp_path):
    """64 MiB in columns, which are nowhere together in the file."""
    whole = torch.zeros(1024, 1 << 14)
    meta = metadata = None
    with pytest.warns(UserWarning, match="single process"):
        dcp.save(
            {f"{place}": part.contiguous() for place, part in enumerate(whole.chunk(4, 1))},
            checkpoint_id=tmp_path / "c",
        )
    metadata = metadata_of(tmp_path / "c")
    meta = metadata.state_dict_metadata
    one = meta["0"]
    one.size = torch.Size(whole.shape)
    places = {}
    for index, info in metadata.storage_data.items():
        start = torch.Size([0, (1 << 12) * int(index.fqn)])
        places[dcp.metadata.MetadataIndex("a", start)] = info
    one.chunks = [
        dcp.metadata.ChunkStorageMetadata(index.offset, torch.Size([1024, 1 << 12]))
        for index in places
    ]
    metadata.state_dict_metadata, metadata.storage_data, metadata.planner_data = (
        {"a": one},
        places,
        {"a": ("a",)},
    )
    (tmp_path / "c" / ".metadata").write_bytes(pickle.dumps(metadata))
    peak, _ = peak_of(
        lambda: ferry.convert_files(tmp_path / "c", tmp_path / "a.safetensors", verify=True)
    )
    assert peak < 24 << 20
    assert ferry.load(tmp_path / "a.safetensors")["a"].shape == (1024, 1 << 14)


def test_tens_of_thousands_of_empty_pieces_are_refused(tmp_path):
    """Before anything of them is read, with the command that puts them together; not where there is more in them."""
    from torch.distributed.checkpoint import metadata
    from torch.distributed.checkpoint.filesystem import _StorageInfo

    count, out = 6_000, io.BytesIO()
    torch.save(torch.ones(1), out)
    one = out.getvalue()
    (tmp_path / "__0_0.distcp").write_bytes(one * count)
    chunks = [metadata.ChunkStorageMetadata(torch.Size([n]), torch.Size([1])) for n in range(count)]
    properties = metadata.TensorProperties(dtype=torch.float32)
    whole = metadata.Metadata(
        {"x": metadata.TensorStorageMetadata(properties, torch.Size([count]), chunks)},
        {"x": ("x",)},
        {
            metadata.MetadataIndex("x", torch.Size([n]), n): _StorageInfo(
                "__0_0.distcp", n * len(one), len(one)
            )
            for n in range(count)
        },
    )
    (tmp_path / ".metadata").write_bytes(pickle.dumps(whole))
    with pytest.raises(UnsafeFileError, match="out of all proportion") as refused:
        ferry.open(tmp_path)
    assert f"dcp_to_torch {tmp_path} OUT.pt" in refused.value.hint
    with pytest.raises(UnsafeFileError):
        FORMAT.asks_for(tmp_path)
    os.truncate(tmp_path / "__0_0.distcp", 16 * len(pickle.dumps(whole)))
    assert ferry.open(tmp_path).tensors["x"].shape == (count,)


def _without(name):
    return lambda metadata: [
        metadata.storage_data.pop(index) for index in [*metadata.storage_data] if index.fqn == name
    ]


def _info(name, **changes):
    def change(metadata):
        for index, info in metadata.storage_data.items():
            if index.fqn == name:
                vars(info).update(changes)

    return change


def _chunk(**changes):
    return lambda metadata: vars(metadata.state_dict_metadata["model.whole"].chunks[0]).update(
        changes
    )


@pytest.mark.parametrize(
    ("change", "error", "what"),
    [
        (_without("model.whole"), FileFormatError, "does not say where the piece of model.whole"),
        (_without("epoch"), FileFormatError, "does not say where the value epoch"),
        (
            _info("model.whole", length=1 << 40),
            FileFormatError,
            "bytes long; model.whole should be at",
        ),
        (_info("model.whole", offset=-1), FileFormatError, "should be at -1"),
        (_info("model.whole", length=-5), FileFormatError, "and is -5 bytes"),
        (_info("model.whole", offset=1), UnsafeFileError, "overlaps"),
        (
            _info("model.whole", relative_path="../../secret"),
            UnsafeFileError,
            "leads out of its folder",
        ),
        (
            _info("model.whole", relative_path="/etc/passwd"),
            UnsafeFileError,
            "leads out of its folder",
        ),
        (_info("model.whole", relative_path=".."), UnsafeFileError, "leads out of its folder"),
        (
            _info("model.whole", relative_path="__9_9.distcp"),
            FileFormatError,
            "files that are missing: __9_9",
        ),
        (_info("model.whole", relative_path=5), FileFormatError, "has no name, file"),
        (
            _info("model.whole", transform_descriptors=["zstd"]),
            FileFormatError,
            "put through .*zstd",
        ),
        (_chunk(sizes=torch.Size([3, 4, 4])), FileFormatError, "do not cover it"),
        (_chunk(sizes=torch.Size([3, 4, 6])), FileFormatError, "lie outside of it"),
        (_chunk(sizes=None), FileFormatError, "without a place or size"),
        (
            lambda metadata: metadata.planner_data.update({"epoch": ("model",)}),
            FileFormatError,
            "two values|both a value",
        ),
        (
            lambda metadata: metadata.planner_data.update({"epoch": ("list", 9)}),
            FileFormatError,
            "a list with places",
        ),
        (
            lambda metadata: metadata.planner_data.update({"epoch": ()}),
            FileFormatError,
            "no name, or place",
        ),
        (
            lambda metadata: metadata.planner_data.update({"epoch": ("a",) * 99}),
            FileFormatError,
            "no name, or place",
        ),
        (
            lambda metadata: setattr(metadata, "storage_data", None),
            FileFormatError,
            "does not say which tensors",
        ),
    ],
)
def test_metadata_that_lies(change, error, what, checkpoint):
    """Places, sizes, files and trees are compared with what is there, before anything is read."""
    with pytest.raises(error, match=what):
        ferry.open(with_metadata(checkpoint, change))


def test_what_is_behind_the_metadata_is_compared_when_it_is_read(checkpoint):
    """Another tensor than the metadata says, and a flipped bit, are found; so is a file that is cut off."""
    path = with_metadata(
        checkpoint,
        lambda metadata: (
            [
                setattr(metadata.state_dict_metadata["model.whole"], name, value)
                for name, value in {
                    "size": torch.Size([60]),
                    "chunks": [
                        dcp.metadata.ChunkStorageMetadata(torch.Size([0]), torch.Size([60]))
                    ],
                }.items()
            ]
            and [
                metadata.storage_data.update({dcp.metadata.MetadataIndex("model.whole", [0]): info})
                for index, info in [*metadata.storage_data.items()]
                if index.fqn == "model.whole" and metadata.storage_data.pop(index)
            ]
        ),
    )
    with pytest.raises(
        FileFormatError, match=r"where the metadata has float32\[60\] of model\.whole"
    ):
        ferry.open(path).tensors["model.whole"].load()
    assert any("where the metadata has" in finding.message for finding in check_path(path))


def test_damage_in_a_checkpoint_is_found(checkpoint):
    """A bit of a value, by the checksum of its own archive; a file that ends too early, by its length."""
    file = next(checkpoint.glob("*.distcp"))
    good = file.read_bytes()
    begin = good.index(np.arange(60, dtype="<f4").tobytes()) + 8
    file.write_bytes(good[:begin] + bytes([good[begin] ^ 1]) + good[begin + 1 :])
    assert [finding.tensor for finding in check_path(checkpoint) if finding.error]
    with pytest.raises(FileFormatError, match="is corrupt"):
        ferry.convert_files(checkpoint, checkpoint.parent / "a.safetensors")
    file.write_bytes(good[:-10])
    with pytest.raises(FileFormatError, match="bytes long"):
        ferry.open(checkpoint)
    file.unlink()
    with pytest.raises(FileFormatError, match="files that are missing"):
        ferry.open(checkpoint)
    file.symlink_to("/etc/hostname")
    with pytest.raises(UnsafeFileError, match="leads out of its folder"):
        ferry.open(checkpoint)


def test_metadata_cut_off_or_changed_anywhere_is_an_error_of_ours(checkpoint):
    """Or still a checkpoint."""
    path = checkpoint / ".metadata"
    good = path.read_bytes()
    outcomes = set()
    for place in range(0, len(good), 13):
        for data in (
            good[:place],
            *(
                good[:place] + bytes([byte]) + good[place + 1 :]
                for byte in (0, 0xFF, good[place] ^ 1)
            ),
        ):
            path.write_bytes(data)
            try:
                ferry.open(checkpoint)
                outcomes.add("read")
            except (FileFormatError, UnsafeFileError) as error:
                outcomes.add(type(error).__name__)
    assert outcomes == {"read", "FileFormatError", "UnsafeFileError"}


@pytest.mark.parametrize("route", sorted(hostile.code_pickles("x")))
def test_nothing_in_a_checkpoint_is_run(route, checkpoint, tmp_path, monkeypatch):
    """Neither in the metadata, nor in a value; ``getattr`` is for the classes of torch alone."""
    (tmp_path / "evil.py").write_text(hostile.EVIL)
    monkeypatch.syspath_prepend(tmp_path)
    canary = tmp_path / "canary"
    data, name = hostile.code_pickles(canary)[route]
    (checkpoint / ".metadata").write_bytes(data)
    with pytest.raises(UnsafeFileError, match="asks for") as refused:
        ferry.open(checkpoint)
    assert name in refused.value.message
    reach = hostile.PROTO2 + hostile.named("__builtin__", "getattr") + hostile.named("evil", "Evil")
    (checkpoint / ".metadata").write_bytes(reach + hostile.text("touch") + b"\x86R.")
    with pytest.raises(UnsafeFileError, match=r"builtins\.getattr"):
        ferry.open(checkpoint)
    folder = tmp_path / "ranks"
    folder.mkdir()
    (folder / "rank0.pt").write_bytes(hostile.torch_zip(data))
    with pytest.raises(UnsafeFileError, match="asks for") as refused:
        ferry.open(folder)
    assert name in refused.value.message
    assert not canary.exists()
    assert "evil" not in sys.modules


def test_files_of_processes_that_do_not_go_together(tmp_path):
    """Several sets in one folder, other names, and what differs between them, are not passed over."""
    for rank in range(2):
        torch.save(
            {"a": torch.ones(2), "b": torch.full((2,), rank), "step": rank},
            tmp_path / f"m-rank{rank}.pt",
        )
    found = ferry.open(tmp_path)
    assert found.format == "torch_ranks"
    assert set(found.others) == {"b (process 1)", "values (process 1)"}
    with pytest.raises(ferry.errors.FormatLimitError, match="it is not what process 0 has"):
        ferry.convert_files(tmp_path, tmp_path.parent / "out.safetensors")
    torch.save({"c": torch.ones(2)}, tmp_path / "m-rank1.pt")
    with pytest.raises(FileFormatError, match="has other tensors than"):
        ferry.open(tmp_path)
    torch.save({"c": torch.ones(2)}, tmp_path / "o-rank1.pt")
    with pytest.raises(FileFormatError, match="several sets of processes"):
        ferry.open(tmp_path)
    # Beside a model, they are not what the folder is about.
    ferry.save({"whole": torch.ones(2)}, tmp_path / "model.safetensors")
    assert list(ferry.open(tmp_path).tensors) == ["whole"]
