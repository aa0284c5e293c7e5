"""Trees on a real CUDA device: one transfer each way, every bit, streams in order; skipped elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

import tensorferry as ferry

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu


def small_leaves(many=1000):
    """Arrays of several dtypes and shapes, with random bits."""
    rng = np.random.default_rng(11)
    dtypes = ["float32", "int8", "float64", "int64", "uint16"]
    return {
        f"layers.{number}": rng.integers(0, 100, (number % 7 + 1, 3)).astype(dtypes[number % 5])
        for number in range(many)
    }


def copies_of(function):
    """How many copies over the bus a function makes, counted by PyTorch's own profiler."""
    from torch.profiler import ProfilerActivity, profile

    function()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU], acc_events=True) as seen:
        function()
        torch.cuda.synchronize()
    return sum(
        "Memcpy DtoH" in event.name or "Memcpy HtoD" in event.name for event in seen.events()
    )


def test_a_thousand_leaves_cross_once_each_way_bit_for_bit():
    """There and back; with coalescing two transfers in all, without it two thousand."""
    tree = small_leaves()
    there = ferry.convert_tree(tree, "torch", device="cuda")
    assert all(leaf.is_cuda for leaf in there.values())
    back = ferry.convert_tree(there, "numpy")
    for key, array in tree.items():
        assert back[key].dtype == array.dtype
        assert back[key].tobytes() == array.tobytes()
    assert copies_of(lambda: ferry.convert_tree(there, "numpy")) == 1
    assert copies_of(lambda: ferry.convert_tree(there, "numpy", coalesce=False)) == len(tree)
    assert copies_of(lambda: ferry.convert_tree(tree, "torch", device="cuda")) == 1


def test_leaves_that_are_still_being_computed_arrive_complete():
    """The packed transfer waits for the work that its leaves wait for."""
    base = torch.randn(2048, 2048, device="cuda")
    for _ in range(20):
        product = base
        for _ in range(10):
            product = product @ base
            product = product / product.norm()
        leaves = [product[row, :64] for row in range(100)]
        found = ferry.convert_tree(leaves, "numpy")
        torch.cuda.synchronize()
        for row, leaf in enumerate(leaves):
            assert found[row].tobytes() == leaf.cpu().numpy().tobytes()


def test_ties_survive_the_bus():
    """A tied weight crosses once, under two names of one memory too."""
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False)
    ).cuda()
    model[1].weight = model[0].weight
    result = ferry.convert_tree(model.state_dict(), "numpy")
    assert result["0.weight"] is result["1.weight"]


def test_a_snapshot_stays_on_its_device():
    """In memory of its own, with the values of then; views stay views."""
    state = {
        name: torch.full((3,), float(number), device="cuda") for number, name in enumerate("abc")
    }
    state["part"] = state["c"][1:]
    before = ferry.snapshot(state)
    for leaf in state.values():
        leaf.zero_()
    assert [leaf.tolist() for leaf in before.values()] == [
        [0.0] * 3,
        [1.0] * 3,
        [2.0] * 3,
        [2.0] * 2,
    ]
    assert all(leaf.is_cuda for leaf in before.values())
    assert ferry.shares_memory(before["part"], before["c"])
    assert not ferry.shares_memory(before["c"], state["c"])


def test_jax_leaves_arrive_bit_for_bit():
    """As many transfers as leaves, all under way at once."""
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    if jax.default_backend() != "gpu":
        pytest.skip(f"JAX has no GPU here: its backend is {jax.default_backend()}")
    tree = {str(number): jax.numpy.arange(number, number + 5) for number in range(100)}
    result = ferry.convert_tree(tree, "numpy")
    assert all(result[key].tobytes() == np.asarray(leaf).tobytes() for key, leaf in tree.items())


def test_collate_puts_a_batch_on_the_device():
    """Samples on the host become one batch there; samples on the device are stacked there."""
    samples = [{"x": np.full(4, float(number), "float32"), "label": number} for number in range(8)]
    batch = ferry.collate(samples, "torch", device="cuda")
    assert batch["x"].is_cuda
    assert (
        batch["x"].cpu().numpy().tobytes()
        == np.stack([sample["x"] for sample in samples]).tobytes()
    )
    assert batch["label"].tolist() == list(range(8))
    on_device = [{"x": torch.full((4,), float(number), device="cuda")} for number in range(8)]
    assert ferry.collate(on_device, "torch")["x"].tolist() == batch["x"].tolist()


def test_a_padded_batch_is_where_its_samples_are():
    """As one that had nothing to be padded is; its marks too."""
    for lengths in ((1, 2), (2, 2)):
        samples = [{"x": torch.ones(length, device="cuda")} for length in lengths]
        batch = ferry.collate(samples, "torch", pad=0, mask=True, lengths=True)
        assert all(leaf.is_cuda for leaf in batch.values())
        assert batch["x"].sum().item() == sum(lengths)
        assert batch["x_lengths"].tolist() == list(lengths)


@pytest.mark.parametrize("target", ["torch", "jax", "cupy"])
def test_leaves_is_not_asked_about_the_one_tensor_of_like(target):
    """As for a tensor on the host: "like= has no tensor in it", said a function that knows arrays."""
    pytest.importorskip(target, reason=f"{target} is not installed")
    like = ferry.convert(np.ones(3, "float32"), target, device="cuda")
    found = ferry.convert_tree(
        {"a": np.ones(2, "float32"), "count": 2},
        like=like,
        leaves=lambda each: isinstance(each, np.ndarray),
    )
    seen = ferry.describe(found["a"])
    assert (seen.framework, seen.device, found["count"]) == (target, "cuda:0", 2)
