"""Many small leaves in one transfer: planned, packed, moved as one, unpacked as views; on a simulated device."""

from __future__ import annotations

import numpy as np
import pytest
from tests import simulated

import tensorferry as ferry
from tensorferry.host.packing import LARGEST


def gpu(shape=(4,), dtype="float32", framework="torch", device="cuda:0"):
    return ferry.TensorInfo(framework, shape, dtype, device)


def infos(many, **keywords):
    """Leaves that are alike, none of them the same object."""
    return {f"leaf {number}": gpu(**keywords) for number in range(many)}


# -- plans --------------------------------------------------------------------------------------


def test_small_leaves_leave_a_device_in_one_transfer():
    """The plan says so: from where to where, how many, how many bytes."""
    plan = ferry.explain_tree(infos(1000, shape=(1024,)), "numpy")
    (batch,) = plan.batches
    assert (batch.source, batch.target, batch.leaves, batch.bytes) == (
        "cuda:0",
        "cpu",
        1000,
        1000 * 4096,
    )
    assert {leaf.batch for leaf in plan.leaves} == {0}
    assert "One transfer from cuda:0 to cpu: 1000 leaves" in str(plan)


def test_small_leaves_reach_a_device_in_one_transfer():
    """From host memory, whatever its framework."""
    tree = {"a": np.ones(3), "b": [np.ones(2, "int8")]}
    info = {key: ferry.TensorInfo("numpy", (3,), "float64") for key in "ab"}
    (batch,) = ferry.explain_tree(info, "torch", device="cuda:0").batches
    assert (batch.source, batch.target, batch.leaves) == ("cpu", "cuda:0", 2)
    assert ferry.describe_tree(tree).keys() == {'$["a"]', '$["b"][0]'}


@pytest.mark.parametrize(("target", "nbytes"), [("numpy", 8 + 12 + 5), ("jax", 64 + 64 + 5)])
def test_gaps_that_align_leaves_are_counted(target, nbytes):
    """JAX takes only memory that is aligned to 64 bytes, so each leaf but the last takes as much."""
    tree = {"a": gpu((5,), "int8"), "b": gpu((3,)), "c": gpu((2,), dtype="float32")}
    plan = ferry.explain_tree(tree, target, device="cpu")
    assert plan.batches[0].bytes == nbytes
    assert f"3 leaves, {nbytes} B, packed" in str(plan)


def test_what_cannot_be_packed_is_started_together():
    """JAX's arrays: as many transfers as leaves, all under way at once."""
    plan = ferry.explain_tree(infos(100, framework="jax"), "numpy")
    (batch,) = plan.batches
    assert (batch.leaves, batch.transfers) == (100, 100)
    assert "100 transfers from cuda:0 to cpu, 1.56 KiB: all are started" in str(plan)


def test_one_transfer_for_each_pair_of_devices():
    """Two GPUs are two batches."""
    tree = [gpu(device="cuda:0"), gpu(device="cuda:1"), gpu(device="cuda:0"), gpu(device="cuda:1")]
    plan = ferry.explain_tree(tree, "numpy")
    assert sorted((batch.source, batch.leaves) for batch in plan.batches) == [
        ("cuda:0", 2),
        ("cuda:1", 2),
    ]
    assert [leaf.batch for leaf in plan.leaves] == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("tree", "keywords"),
    [
        pytest.param(infos(9), {"coalesce": False}, id="coalesce=False"),
        pytest.param([gpu()], {}, id="one leaf"),
        pytest.param([gpu((LARGEST,)), gpu((LARGEST,))], {}, id="large leaves"),
        pytest.param([gpu((0,)), gpu((0,))], {}, id="empty leaves"),
    ],
)
def test_what_goes_alone(tree, keywords):
    """Nothing is gained by packing these."""
    assert ferry.explain_tree(tree, "numpy", **keywords).batches == ()


def test_a_tensor_that_is_there_twice_crosses_once():
    """It is not packed twice."""
    one, other = gpu(), gpu()
    (batch,) = ferry.explain_tree([one, one, other._replace(shape=(5,))], "numpy").batches
    assert batch.leaves == 2


def test_a_graph_is_not_packed():
    """A move that autograd follows goes leaf by leaf."""
    tree = [
        ferry.TensorInfo("torch", (n,), "float32", "cuda:0", requires_grad=True) for n in (1, 2)
    ]
    assert ferry.explain_tree(tree, "torch", device="cpu").batches == ()
    assert len(ferry.explain_tree(tree, "numpy").batches) == 1


# -- packing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("alignment", [1, 64])
def test_torch_packs_every_dtype_and_layout(alignment):
    """Bits, shapes, dtypes, the order of axes; each a view of one memory, aligned to its element."""
    import torch

    from tensorferry.backends import registry

    backend = registry.ready("torch")
    tensors = [
        torch.arange(3, dtype=torch.int8),
        torch.arange(6, dtype=torch.float64).reshape(2, 3).T,
        torch.tensor(True),
        torch.arange(5, dtype=torch.bfloat16),
        torch.tensor([1 + 2j]),
        torch.arange(24.0).reshape(1, 2, 3, 4).permute(0, 3, 1, 2),
        torch.arange(10)[::2],
        torch.arange(3.0).expand(2, 3),
    ]
    packed, layout = backend.pack(tensors, alignment)
    parts = backend.unpack(packed, layout)
    assert packed.dim() == 1
    for tensor, part in zip(tensors, parts, strict=True):
        assert (part.shape, part.dtype) == (tensor.shape, tensor.dtype)
        assert torch.equal(part, tensor)
        assert part.data_ptr() % max(alignment, part.element_size()) == 0
        assert part.untyped_storage().data_ptr() == packed.untyped_storage().data_ptr()
        assert not ferry.shares_memory(part, tensor)


def test_torch_packs_under_autocast():
    """Which refuses to concatenate float16 beside bfloat16: the bits are what they were."""
    import torch

    from tensorferry.backends import registry

    backend = registry.ready("torch")
    tensors = [torch.arange(4, dtype=torch.float16), torch.arange(4, 8, dtype=torch.float16)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        first, second = backend.unpack(*backend.pack(tensors, 1))
    assert (first.dtype, first.tolist(), second.tolist()) == (
        torch.float16,
        [0, 1, 2, 3],
        [4, 5, 6, 7],
    )


def test_jax_starts_a_transfer_and_finishes_it():
    """What is started ahead gives the same values, in memory of one's own."""
    import jax.numpy as jnp

    from tensorferry.backends import registry

    backend, x = registry.ready("jax"), jnp.arange(5.0)
    backend.start_fetch(x)
    fetched = backend.fetch(x)
    assert fetched.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert not ferry.shares_memory(fetched, x)


# -- for real, on a simulated device ------------------------------------------------------------


def test_a_tree_crosses_the_bus_once_each_way_and_every_bit_arrives():
    """There and back; without coalescing leaf by leaf, with the same values."""
    generator = np.random.default_rng(5)
    tree = {
        f"{dtype} {number}": generator.integers(0, 100, (number, 3)).astype(dtype)
        for dtype in ("int8", "float32", "float64", "uint16")
        for number in range(1, 6)
    }
    with simulated.installed() as device:
        there = ferry.convert_tree(tree, "simulated", device="sim:0")
        assert [(each.source, each.target) for each in device.transfers] == [("cpu", "sim:0")]
        device.transfers.clear()
        back = ferry.convert_tree(there, "numpy")
        assert [(each.source, each.target) for each in device.transfers] == [("sim:0", "cpu")]
        device.transfers.clear()
        alone = ferry.convert_tree(there, "numpy", coalesce=False)
        assert len(device.transfers) == len(tree)
    for key, array in tree.items():
        assert back[key].dtype == alone[key].dtype == array.dtype
        assert back[key].tobytes() == alone[key].tobytes() == array.tobytes()


@pytest.mark.unwatched  # it counts copies
def test_leaves_of_a_batch_fail_under_their_own_paths():
    """Before the bus and after it; the others do not stand for them, and each has its own transfer then."""
    tree = {
        "good": np.ones(3),
        "bad": np.array([1.5]),
        "fine": np.zeros(1),
        "worse": np.array([np.nan]),
    }
    to_integers = {"float": "int32"}
    with simulated.installed() as device:
        with pytest.raises(ferry.TreeError) as caught:
            ferry.convert_tree(tree, "simulated", device="sim:0", dtype=to_integers)
        there = ferry.convert_tree(tree, "simulated", device="sim:0")
        device.transfers.clear()
        with pytest.raises(ferry.TreeError) as also_caught:
            ferry.convert_tree(there, "numpy", dtype=to_integers)
        together, *alone = [each.nbytes for each in device.transfers]
        assert together >= sum(alone)
        assert alone == [ferry.describe(each).nbytes for each in there.values()]
    for error in (caught.value, also_caught.value):
        assert [each.message.rpartition(" - at ")[2] for each in error.exceptions] == [
            '$["bad"]',
            '$["worse"]',
        ]


def test_a_batch_is_written_into_out():
    """On the device and on the host; nothing is, if one leaf fails."""
    tree = {"a": np.arange(3.0), "b": np.array([0.5])}
    with simulated.installed():
        there = ferry.convert_tree(tree, "simulated", device="sim:0")
        out = {"a": np.zeros(3, "float32"), "b": np.zeros(1, "float32")}
        result = ferry.convert_tree(there, "numpy", out=out)
        assert result["a"] is out["a"]
        assert [out["a"].tolist(), out["b"].tolist()] == [[0.0, 1.0, 2.0], [0.5]]
        untouched = {"a": np.zeros(3, "int32"), "b": np.zeros(1, "int32")}
        with pytest.raises(ferry.LossyCastError, match=r'\$\["b"\]'):
            ferry.convert_tree(there, "numpy", out=untouched)
        assert [each.tolist() for each in untouched.values()] == [[0, 0, 0], [0]]
