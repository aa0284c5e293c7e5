"""`load(device=)` with layouts over devices: what this process's devices have is read, once, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from tests.support import lives, survives

import tensorferry as ferry

VALUES = np.arange(16 * 24, dtype=np.float32).reshape(16, 24)


@pytest.fixture
def path(tmp_path):
    from safetensors.numpy import save_file

    save_file(
        {"w": VALUES, "b": np.arange(16, dtype=np.int32), "odd": np.ones((3, 5))},
        tmp_path / "a.safetensors",
    )
    np.savez_compressed(tmp_path / "a.npz", w=VALUES)
    return tmp_path / "a.safetensors"


COUNTED = """
import sys, numpy as np, tensorferry as ferry
from tensorferry.files.base import stored as stored_module
from tensorferry.files.ranges import cutting

path, counted = sys.argv[1], []
copy, read = cutting.copy_part, stored_module.read_fully
def copied(result, there):
    counted.append(result.nbytes)
    copy(result, there)
def read_counted(descriptor, view, *rest):
    counted.append(view.nbytes)
    read(descriptor, view, *rest)
cutting.copy_part, stored_module.read_fully = copied, read_counted
values = np.arange(16 * 24, dtype=np.float32).reshape(16, 24)
"""
ON_EIGHT_DEVICES = (
    COUNTED
    + """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P, SingleDeviceSharding

jax.config.update("jax_platforms", "cpu")
devices = np.array(jax.devices())
assert len(devices) == 8
rows = jax.sharding.Mesh(devices, ("x",))
grid = jax.sharding.Mesh(devices.reshape(4, 2), ("a", "b"))
half = jax.sharding.Mesh(devices[:4], ("x",))

def ours(asked, **keywords):
    plan = ferry.explain_load(path, "jax", names="w", device=asked, **keywords)
    counted.clear()
    found = ferry.load(path, "jax", names="w", device=asked, **keywords)["w"]
    assert sum(counted) == plan.bytes_read == plan.bytes_needed, (counted, str(plan))
    return found, plan

def same(found, wanted, asked):
    assert found.sharding == asked and found.dtype == wanted.dtype, (found.sharding, found.dtype)
    theirs = jax.make_array_from_callback(wanted.shape, asked, lambda index: wanted[index])
    for mine, other in zip(found.addressable_shards, theirs.addressable_shards, strict=True):
        assert mine.device == other.device and mine.index == other.index
        assert np.array_equal(np.asarray(mine.data), np.asarray(other.data))
"""
)


def on_eight_devices(path, code):
    return lives(
        f"{ON_EIGHT_DEVICES}{code}",
        str(path),
        XLA_FLAGS="--xla_force_host_platform_device_count=8",
    )


def test_jax_gets_what_its_own_function_makes(path):
    """Rows, columns, both, some devices, replicated in part and in all: each box is read once."""
    pytest.importorskip("jax")
    on_eight_devices(
        path,
        """
layouts = [NamedSharding(rows, P("x")), NamedSharding(rows, P(None, "x")), NamedSharding(rows, P())]
layouts += [NamedSharding(grid, spec) for spec in (P("a", "b"), P("b", "a"), P("b"), P(("a", "b")), P(None, "b"))]
layouts += [NamedSharding(half, P("x")), SingleDeviceSharding(devices[3])]
for asked in layouts:
    found, plan = ours(asked)
    same(found, values, asked)
    assert plan.bytes_read == values.nbytes
    with ferry.load(path, "jax", device=asked, lazy=True) as lazy:
        assert "odd" in lazy
        same(lazy["w"], values, asked)
        assert lazy["w"] is lazy["w"]
assert "[0:2, :] and 7 more boxes" in str(ours(NamedSharding(rows, P("x")))[1])
""",
    )


def test_a_sharding_is_for_what_is_cut_and_a_dtype_too(path):
    """Of a slice, the boxes of its own shape."""
    pytest.importorskip("jax")
    on_eight_devices(
        path,
        """
asked, part = NamedSharding(rows, P("x")), NamedSharding(grid, P("a", "b"))
assert ours(asked, slices={"w": np.s_[:8, 3]})[1].bytes_read == 32
found, _ = ours(part, slices={"w": np.s_[::2, 1:9]})
same(found, values[::2, 1:9], part)
found = ferry.load(path, "jax", names="w", device=part, dtype="bfloat16")["w"]
same(found, values.astype(jnp.bfloat16), part)
counted.clear()
try:
    ferry.load(path, "jax", names="w", device=asked, slices={"w": np.s_[:3]})
except ferry.ShapeError as error:
    assert "at 'w'" in str(error), error
else:
    raise SystemExit("3 rows on 8 devices")
assert not counted
""",
    )


def test_a_mapping_has_a_layout_for_each(path):
    """By names and patterns; all others go to the default device."""
    pytest.importorskip("jax")
    on_eight_devices(
        path,
        """
by_rows, by_columns = NamedSharding(rows, P("x")), NamedSharding(rows, P(None, "x"))
found = ferry.load(path, "jax", device={"b": by_rows, "[bw]": by_columns}, dtype="fit")
same(found["w"], values, by_columns)
same(found["b"], np.arange(16, dtype=np.int32), by_rows)
assert found["odd"].devices() == {jax.devices()[0]}
with ferry.load(path, "jax", device={"w": by_rows}, dtype="fit", lazy=True) as lazy:
    same(lazy["w"], values, by_rows)
    assert lazy["odd"].devices() == {jax.devices()[0]}
for wrong in ({"q": by_rows}, {"*": by_rows}, {"w": by_rows, 3: by_rows}):
    counted.clear()
    try:
        ferry.load(path, "jax", device=wrong, dtype="fit")
    except (ferry.FormatLimitError, ferry.TreeError, ferry.ShapeError, TypeError) as error:
        assert "device" in str(error), error
    else:
        raise SystemExit(wrong)
    assert not counted
""",
    )


def test_a_sharding_of_what_a_map_makes_takes_its_own_bytes(path):
    """Rows of a target that are columns of its source: each byte once, and no decoding."""
    pytest.importorskip("jax")
    on_eight_devices(
        path,
        """
rest = {"b": np.arange(16, dtype=np.int32), "odd": np.ones((3, 5))}
table = ferry.WeightMap.infer({"w": values, **rest}, {"turned": values.T.copy(), **rest})
for asked in (NamedSharding(rows, P("x")), NamedSharding(grid, P("b", "a"))):
    plan = ferry.explain_load(path, "jax", names="turned", map=table, device=asked)
    at = [at for runs in plan.requests for at in runs.positions()]
    assert sum(stop - start for start, stop in set(at)) == values.nbytes == plan.bytes_read
    found = ferry.load(path, "jax", names="turned", map=table, device=asked)["turned"]
    same(found, values.T, asked)
""",
    )


PROCESSES = (
    COUNTED
    + """
import jax
from jax.sharding import NamedSharding, PartitionSpec as P

number, address = int(sys.argv[2]), sys.argv[3]
jax.config.update("jax_platforms", "cpu")
jax.distributed.initialize(address, num_processes=2, process_id=number)
assert jax.process_count() == 2 and len(jax.devices()) == 4 and len(jax.local_devices()) == 2
line = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
for spec, part in ((P("x"), np.s_[:]), (P(None, "x"), np.s_[:]), (P(), np.s_[:]), (P("x"), np.s_[4:12, ::3])):
    asked, wanted = NamedSharding(line, spec), values[part]
    plan = ferry.explain_load(path, "jax", names="w", device=asked, slices={"w": part})
    counted.clear()
    found = ferry.load(path, "jax", names="w", device=asked, slices={"w": part})["w"]
    own = wanted.nbytes if spec == P() else wanted.nbytes // 2
    assert sum(counted) == plan.bytes_read == own, (counted, str(plan))
    assert found.shape == wanted.shape and found.sharding == asked
    assert len(found.addressable_shards) == 2
    for shard in found.addressable_shards:
        assert np.array_equal(np.asarray(shard.data), wanted[shard.index])
alone = NamedSharding(jax.sharding.Mesh(np.array(jax.devices()[2:]), ("x",)), P("x"))
found = ferry.load(path, "jax", names="w", device=alone)["w"]  # the first process has nothing of it
assert len(found.addressable_shards) == 2 * number and found.shape == values.shape
jax.distributed.shutdown()
"""
)


@pytest.mark.slow
def test_each_process_of_jax_reads_what_its_devices_have(path):
    """Two of them, with two devices each: rows, columns, replicated, parts, and none at all."""
    pytest.importorskip("jax")
    import socket
    from concurrent.futures import ThreadPoolExecutor

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    flags = "--xla_force_host_platform_device_count=2"
    with ThreadPoolExecutor(2) as pool:
        jobs = [
            pool.submit(survives, PROCESSES, str(path), str(number), address, XLA_FLAGS=flags)
            for number in range(2)
        ]
        for job in jobs:
            job.result()


def test_what_is_decoded_is_decoded_for_each_box(path):
    """As the plan says."""
    pytest.importorskip("jax")
    on_eight_devices(
        path.with_suffix(".npz"),
        """
asked = NamedSharding(rows, P("x"))
plan = ferry.explain_load(path, "jax", device=asked)
assert plan.bytes_needed == values.nbytes < plan.bytes_read
assert "decoded up to its last element" in str(plan)
same(ferry.load(path, "jax", device=asked)["w"], values, asked)
""",
    )


MESH = (
    COUNTED
    + """
import datetime, torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

rank, world = int(sys.argv[2]), int(sys.argv[3])
# If one of them fails, the others do not wait for it until they are ended.
patience = datetime.timedelta(seconds=100)
dist.init_process_group("gloo", init_method=f"file://{sys.argv[4]}", rank=rank, world_size=world, timeout=patience)
line = init_device_mesh("cpu", (world,))

def same(found, wanted, mesh, placements):
    # NumPy has other strides for what is empty.
    whole = torch.tensor(wanted).clone(memory_format=torch.contiguous_format)
    theirs = distribute_tensor(whole, mesh, placements)
    assert type(found) is DTensor, type(found)
    assert found.placements == theirs.placements, (found.placements, theirs.placements)
    assert found.shape == theirs.shape, (found.shape, theirs.shape)
    assert found.stride() == theirs.stride(), (found.stride(), theirs.stride(), placements)
    assert found.dtype == theirs.dtype and torch.equal(found.to_local(), theirs.to_local())
    assert torch.equal(found.full_tensor(), torch.tensor(wanted))
"""
)
ALONE = """
for placements in ([Shard(0)], [Shard(1)], [Shard(-1)], [Replicate()]):
    found = ferry.load(path, "torch", names="w", device=(line, placements))["w"]
    same(found, values, line, placements)
    same(ferry.to_torch(values, device=(line, placements)), values, line, placements)
    with ferry.load(path, "torch", device=(line, placements), names="w", lazy=True) as lazy:
        same(lazy["w"], values, line, placements)
found = ferry.load(path, "torch", device={"w": (line, [Shard(0)])}, slices={"w": np.s_[1::3, 2]})
same(found["w"], values[1::3, 2], line, [Shard(0)])
assert type(found["b"]) is torch.Tensor
for wrong, why in (
    ([Partial()], "Partial among its placements"),
    ([Shard(2)], "is for axis 2, and there are 2"),
    ([Shard(0), Shard(1)], "2 placements, and the mesh has 1 axes"),
    (3, "int among its placements"),
):
    counted.clear()
    try:
        ferry.load(path, "torch", names="w", device=(line, wrong))
    except ferry.ConversionError as error:
        assert why in str(error) and "Replicate()" in str(error), error
    else:
        raise SystemExit(str(wrong))
    assert not counted
dist.destroy_process_group()
"""
EIGHT_RANKS = """
from torch.testing._internal.distributed.fake_pg import FakeStore

rest = {"b": np.arange(16, dtype=np.int32), "odd": np.ones((3, 5))}
table = ferry.WeightMap.infer({"w": values, **rest}, {"turned": values.T.copy(), **rest})
def as_eight(name, part, **keywords):
    wanted = {"w": values, "turned": values.T}[name][part]
    seen, rows = [], []
    for number in range(8):
        dist.init_process_group("fake", store=FakeStore(), rank=number, world_size=8)
        asked = dict(device=(init_device_mesh("cpu", (8,)), [Shard(0)]), names=name, slices={name: part}, **keywords)
        plan = ferry.explain_load(path, "torch", **asked)
        counted.clear()
        found = ferry.load(path, "torch", **asked)[name]
        assert found.shape == wanted.shape, found.shape
        assert not counted or sum(counted) == plan.bytes_read == found.to_local().nbytes
        rows.append(found.to_local().numpy())
        seen += [at for runs in plan.requests for at in runs.positions()]
        dist.destroy_process_group()
    assert np.array_equal(np.concatenate(rows), wanted)
    at = np.concatenate([np.arange(start, stop) for start, stop in seen])
    assert len(set(at.tolist())) == at.size == wanted.nbytes, (at.size, wanted.nbytes)
    raw = np.fromfile(path, np.uint8)[at].view(np.float32)
    assert sorted(raw.tolist()) == sorted(wanted.ravel().tolist())
as_eight("w", np.s_[:])
as_eight("w", np.s_[1:14])  # 13 rows: uneven
as_eight("w", np.s_[:5, ::3])  # and empty
as_eight("turned", np.s_[:], map=table)
as_eight("turned", np.s_[2:13, 1:], map=table)
"""
TOGETHER = """
grid = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("a", "b"))
cases = [(line, [Shard(0)]), (line, [Shard(1)]), (line, [Replicate()])]
cases += [(grid, [Shard(0), Shard(1)]), (grid, [Shard(0), Shard(0)]), (grid, [Replicate(), Shard(1)])]
cases += [(grid, [Shard(1), Replicate()])]
for mesh, placements in cases:
    for part in (np.s_[:], np.s_[:9], np.s_[:3], np.s_[:0]):
        counted.clear()
        found = ferry.load(path, "torch", names="w", device=(mesh, placements), slices={"w": part})["w"]
        assert sum(counted) == found.to_local().nbytes, (counted, placements)
        same(found, values[part].copy(), mesh, placements)
    same(ferry.to_torch(values, device=(mesh, placements)), values, mesh, placements)
    plan = ferry.explain_load(path, "torch", names="w", device=(mesh, placements))
    total = torch.tensor([plan.bytes_read])
    dist.all_reduce(total)
    copies = world // (ferry.describe(found).shards)
    assert total.item() == values.nbytes * copies, (total, copies)
found = ferry.load(path, "torch", names="odd", device=(line, [Shard(0)]))["odd"]  # 3 rows, 4 processes
same(found, np.ones((3, 5)), line, [Shard(0)])
if rank == 0:  # alone: nothing is sent
    again = ferry.load(path, "torch", names="w", device=(line, [Shard(0)]))["w"]
    assert torch.equal(again.to_local(), torch.from_numpy(values)[: 16 // world])
dist.barrier()
dist.destroy_process_group()
"""


def test_pytorch_gets_what_its_own_function_makes(path, tmp_path):
    """In one process: every placement, and what is refused before anything is read.

    And as each of eight: together they read each byte once, of what a map makes too.
    """
    pytest.importorskip("torch.distributed.tensor")
    survives(MESH + ALONE + EIGHT_RANKS, str(path), "0", "1", str(tmp_path / "meeting"))


@pytest.mark.slow
def test_each_process_of_pytorch_reads_its_own_part(path, tmp_path):
    """Four of them, on lines and grids, uneven and empty parts, without communication."""
    pytest.importorskip("torch.distributed.tensor")
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as pool:
        meeting = str(tmp_path / "meeting")
        jobs = [
            pool.submit(survives, MESH + TOGETHER, str(path), str(rank), "4", meeting)
            for rank in range(4)
        ]
        for job in jobs:
            job.result()


def test_a_layout_of_another_framework_is_no_device(path):
    """It is refused by its name."""
    jax = pytest.importorskip("jax")
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("x",))
    asked = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    with pytest.raises(ferry.DeviceError):
        ferry.load(path, "torch", device=asked)
