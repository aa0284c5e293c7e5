"""What is promised of devices, one test or more each: any device that PyTorch knows, lists, `out=`, trees, forks."""

from __future__ import annotations

import os
import threading
import time
import warnings

import numpy as np
import pytest
from tests.support import ROOT, SOURCE, forked, python

import tensorferry as ferry
from tensorferry.execution.run import verifying

torch = pytest.importorskip("torch")

SIZE = 4096


def values(value, device="sim:0", size=SIZE):
    return torch.full((size,), float(value), device=device)


def bus(plan):
    """The bytes of each step over the bus, as planned."""
    return [step.bytes for step in plan.steps if step.path == "bus"]


def crossed(seen):
    return [each.bytes for each in seen.bus]


HEAD = "import numpy as np, torch, tensorferry as ferry\nfrom tests.device import sim\n"


def apart(code, **environment):
    """Run code in a process of its own that has the device; what it printed.

    It is forked from one with PyTorch, in which the device is not.
    """
    path = f"import sys\nsys.path.append({str(ROOT)!r})\n"
    status, out, err = forked(("pytest", "torch"), f"{path}{HEAD}{code}", **environment)
    assert status == 0, f"ended with {status}\n{out[-2000:]}\n{err[-4000:]}"
    return out


def started(code, **environment):
    """The same in a process that is started, and ends as Python does."""
    done = python(HEAD + code, PYTHONPATH=f"{SOURCE}:{ROOT}", FERRY_TEST_DEVICE="1", **environment)
    assert done.returncode == 0, (
        f"ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    )
    return done.stdout


# -- any device that PyTorch knows ----------------------------------------------------------------


def test_a_device_that_nobody_has_named_is_one_like_the_others(sim):
    """By its own name, with and without an index, as a `torch.device`, of another tensor."""
    x = ferry.to_torch(np.ones(3, np.float32), device="sim:1")
    assert str(x.device) == ferry.describe(x).device == "sim:1"
    assert ferry.to_torch([1.0], device=torch.device("sim:1")).get_device() == 1
    assert (
        ferry.to_torch([1.0], device="sim").get_device() == torch.accelerator.current_device_index()
    )
    assert ferry.convert([1, 2], like=x).device == x.device
    assert ferry.to_torch(x, device="sim") is x
    assert {"cpu", "sim:0", "sim:1"} <= set(ferry.frameworks()["torch"].devices)
    assert ferry.to_list(x) == [1.0, 1.0, 1.0]
    assert (
        ferry.convert_tree({"x": [1.0], "y": np.ones(2)}, "torch", device="sim:1")["y"].device
        == x.device
    )


def test_a_device_that_is_not_there_is_said(sim):
    """One too many, and one of a kind that is not here, with those that are."""
    for name in ("sim:2", "cuda:0", "xpu", "npu:1"):
        with pytest.raises(ferry.DeviceError, match=r"sim:1|sim:0"):
            ferry.to_torch(np.ones(3), device=name)
    with pytest.raises(ferry.DeviceError):
        ferry.to_torch(np.ones(3), device="no such device")
    with pytest.raises(ferry.DeviceError):
        ferry.to_numpy(np.ones(3), device="sim")


def test_a_plan_for_a_device_that_is_not_here():
    """From a description alone, also of a kind that this PyTorch has no memory of."""
    for kind in ("cuda:0", "xpu:1", "mps", "npu:0", "hpu", "mtia:0"):
        plan = ferry.explain(ferry.TensorInfo("torch", (1000,), "float32", kind), "numpy")
        assert bus(plan) == [4000]


def test_H84_a_tensor_stays_on_its_device(sim):
    """The first call of a process as well as the next."""
    apart("""
x = torch.ones(3, device="sim:1")
for _ in range(3):
    assert ferry.to_torch(x) is x
assert ferry.convert(x, "torch", copy=True).device == x.device
assert ferry.to_torch(x, dtype="float16").device == x.device
assert ferry.convert_tree({"x": x}, "torch")["x"] is x
assert ferry.convert(x, like=torch.ones(2)).device.type == "cpu"
""")


def test_a_device_whose_module_has_no_names_for_streams(sim):
    """PyTorch itself has: ``torch.Stream``, ``torch.Event``, ``torch.accelerator``."""
    apart(
        """
from tests.device import probes
for name in (
    "a_started_transfer_is_complete", "pinned_results_are_complete", "the_source_may_change_at_once",
    "the_current_device_is_nobodys_business", "packed_leaves_may_change_at_once", "batches_of_a_device_are_complete",
    "a_started_transfer_keeps_its_source", "a_batch_on_a_device_is_its_samples",
):
    probes.PROBES[name]()
with sim.tracing() as seen:
    ferry.start(torch.ones(9, device="sim"), "numpy").result()
assert [each.stream for each in seen.bus] != [0], "not on a side stream"
""",
        FERRY_DEVICE_LIKE="plain",
    )


def test_a_device_without_streams_is_slower_and_never_wrong(sim):
    """As MPS: no streams, nothing page-locked, no float64; nothing is refused for the first two, nor warned of."""
    apart(
        """
a = np.arange(6, dtype=np.float32)
x = ferry.to_torch(a, device="sim:1")
assert ferry.to_numpy(x).tolist() == a.tolist()
assert ferry.to_torch(a, device="sim", non_blocking=True).cpu().tolist() == a.tolist()
assert ferry.to_torch(x, device="cpu", non_blocking=True).tolist() == a.tolist()
assert ferry.to_torch(x, device="sim:0", non_blocking=True).cpu().tolist() == a.tolist()
assert ferry.start(x, "numpy").result().tolist() == a.tolist()
assert ferry.start({"x": a}, "torch", device="sim").result()["x"].cpu().tolist() == a.tolist()
assert [b.cpu().tolist() for b in ferry.prefetch([a, a + 1], "torch", device="sim:1")] == [a.tolist(), (a + 1).tolist()]
assert [b.tolist() for b in ferry.prefetch([x, x + 1], "numpy")] == [a.tolist(), (a + 1).tolist()]
tree = {str(n): np.full(n, n, np.float32) for n in range(1, 9)}
there = ferry.convert_tree(tree, "torch", device="sim", non_blocking=True)
back = ferry.convert_tree(there, "numpy")
assert all(back[n].tobytes() == tree[n].tobytes() for n in tree)
assert ferry.collate([{"x": a}, {"x": a}], "torch", device="sim", non_blocking=True)["x"].shape == (2, 6)
""",
        FERRY_DEVICE_LIKE="mps",
    )


def test_a_device_without_float64_says_so(sim):
    """``dtype="fit"`` is the way, and a hint that works."""
    apart(
        """
a = np.ones(3)
for call in (
    lambda **more: ferry.to_torch(a, device="sim", **more),
    lambda **more: ferry.convert_tree([a], "torch", device="sim", **more)[0],
    lambda **more: ferry.start(a, "torch", device="sim", **more).result(),
    lambda **more: ferry.to_torch(torch.ones(3, dtype=torch.float64), device="sim", **more),
):
    try:
        call()
    except ferry.LossyCastError as error:
        assert 'dtype="fit"' in str(error), error
        assert "float64" in str(error), error
    else:
        raise SystemExit("no error")
    assert call(dtype="fit").dtype == torch.float32
assert ferry.to_torch(a, device="sim", dtype="float32").dtype == torch.float32
x = ferry.to_torch(a, device="sim", dtype="fit")
assert ferry.to_numpy(x, dtype="float64").dtype == np.float64
""",
        FERRY_DEVICE_LIKE="mps",
    )


@pytest.mark.parametrize("dtype", ["float16", "float64", "bfloat16"])
def test_pinned_sources_are_cast_into_pinned_memory_if_that_is_asked(sim, dtype):
    """The cast makes ordinary memory of page-locked memory, as the plan says."""
    x = torch.ones(3).pin_memory()
    for keywords in ({}, {"pinned": True}):
        found = ferry.to_torch(x, dtype=dtype, **keywords)
        assert found.is_pinned() is ferry.explain(x, "torch", dtype=dtype, **keywords).result.pinned
        assert found.is_pinned() is bool(keywords)
    assert ferry.to_torch(
        x.to(torch.complex64).pin_memory().conj(), dtype="complex128", pinned=True
    ).is_pinned()


@pytest.mark.parametrize("shape", ["whole", "transposed", "expanded", "conjugate"])
@pytest.mark.parametrize(
    "keywords",
    [
        {"pinned": True},
        {"pinned": True, "dtype": "complex128"},
        {"device": "sim:1", "non_blocking": True},
        {"device": "sim:1", "non_blocking": True, "dtype": "complex128"},
    ],
)
def test_the_code_pins_complex_numbers_in_a_graph(sim, shape, keywords):
    """PyTorch's `pin_memory` refuses them; the code has the values, memory and gradients of the conversion."""
    leaves = [torch.tensor([[1 + 2j, 3 - 1j]]).requires_grad_() for _ in range(2)]
    view = {
        "whole": lambda x: x,
        "transposed": lambda x: x.T,
        "expanded": lambda x: x.expand(3, 2),
        "conjugate": lambda x: x.conj(),
    }[shape]
    x, y = map(view, leaves)
    plan = ferry.explain(x, "torch", **keywords)
    names = {"x": x}
    exec(plan.code, names)  # noqa: S102 - that is what the code is for
    pasted, result = names["y"], ferry.to_torch(y, **keywords)
    assert pasted.tolist() == result.tolist()
    for found in (pasted, result):
        assert (found.dtype, found.device, found.is_pinned()) == (
            result.dtype,
            result.device,
            "pinned" in keywords,
        )
        (found.cpu() * (2 + 1j)).abs().sum().backward()
    assert torch.equal(leaves[0].grad, leaves[1].grad)


@pytest.mark.parametrize("keywords", [{"pinned": True}, {"device": "sim:1", "non_blocking": True}])
def test_the_code_pins_elements_that_share_memory(sim, keywords):
    """Each gets memory of its own, as in the conversion."""
    for x in (
        torch.arange(6).expand(7, 6),
        torch.arange(6).expand(7, 6).T,
        torch.arange(9).unfold(0, 6, 1),
    ):
        names = {"x": x}
        exec(ferry.explain(x, "torch", **keywords).code, names)  # noqa: S102 - that is what the code is for
        found = ferry.to_torch(x, **keywords)
        assert names["y"].tolist() == found.tolist() == x.tolist()
        assert names["y"].is_contiguous()


@pytest.mark.parametrize(
    "keywords",
    [{"device": "cpu"}, {"device": "sim:1", "dtype": "float64"}, {"dtype": "float8_e5m2"}],
)
def test_an_expanded_tensor_is_in_no_graph_where_none_is_recorded(sim, keywords):
    """The plan says so, and is right where all plans are checked."""
    x = torch.ones(1, 6, device="sim:0", requires_grad=True).expand(7, 6)
    for recording in (torch.no_grad(), torch.inference_mode(), torch.enable_grad()):
        with recording, verifying():
            found = ferry.to_torch(x, **keywords)
            planned = ferry.explain(x, "torch", **keywords).result
            assert found.requires_grad is planned.requires_grad is torch.is_grad_enabled()


def test_pinned_memory_that_a_device_has_not_is_said(sim):
    """Where ``pinned=True`` asks for it, and only there."""
    apart(
        """
x = torch.ones(3, device="sim")
for call in (lambda: ferry.to_numpy(x, pinned=True), lambda: ferry.to_torch(np.ones(3), pinned=True)):
    try:
        call()
    except ferry.DeviceError as error:
        assert "Hint:" in str(error)
    else:
        raise SystemExit("no error")
""",
        FERRY_DEVICE_LIKE="mps",
    )


def test_exhausted_page_locked_memory_is_one_warning(sim):
    """Which says how much was asked for; what was asked to *be* page-locked is an error."""
    told = apart("""
import warnings
sim.set_pinned_limit(0)
a = np.ones(1 << 16, np.float32)
x = torch.ones(1 << 16, device="sim")
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for _ in range(2):
        assert ferry.to_torch(a, device="sim", non_blocking=True).cpu().sum() == a.size
        assert ferry.start(a, "torch", device="sim").result().cpu().sum() == a.size
        assert ferry.start(x, "numpy").result().sum() == a.size
        assert [b.cpu().sum() for b in ferry.prefetch([a, a], "torch", device="sim")] == [a.size] * 2
assert len(seen) == 1, [str(each.message) for each in seen]
assert seen[0].category is RuntimeWarning
print(seen[0].message)
try:
    ferry.to_numpy(x, pinned=True)
except ferry.DeviceError as error:
    assert "Hint:" in str(error)
else:
    raise SystemExit("no error")
sim.set_pinned_limit()
assert ferry.to_numpy(x, pinned=True).sum() == a.size
""")
    assert any(words in told for words in ("256 KiB", "262,144", "262144")), told


# -- lists of tensors of a device (H85) -----------------------------------------------------------


@pytest.mark.fast_paths
@pytest.mark.parametrize(
    ("start", "target", "keywords"),
    [
        ("sim:0", "numpy", {}),
        ("sim:0", "python", {}),
        ("sim:0", "torch", {"device": "cpu"}),
        ("sim:0", "torch", {"device": "sim"}),
        ("sim:0", "torch", {"device": "sim:1"}),
        ("sim:0", "torch", {"copy": True}),
        ("sim:0", "torch", {"dtype": "float64"}),
        ("cpu", "torch", {"device": "sim:1"}),
        ("numpy", "torch", {"device": "sim:1", "dtype": "float64"}),
    ],
)
@pytest.mark.parametrize("grad", [False, True])
def test_a_tensor_like_one_before_is_not_described_again(
    sim, monkeypatch, start, target, keywords, grad
):
    """Neither it nor its device is looked at as if nothing was known, and PyTorch raises no exception in vain."""
    if start == "numpy" and grad:
        pytest.skip("an array has no gradient")

    def made(count):
        if start == "numpy":
            return np.arange(count, dtype=np.float32)
        return torch.arange(float(count)).to(start).requires_grad_(grad)

    from tensorferry.backends import registry

    for count in (2, 3):  # the first call of all finds out whose type it is
        ferry.convert(made(count), target, **keywords)
    for backend in map(registry.backend_named, ("torch", "numpy")):
        monkeypatch.setattr(backend, "describe", None)
        monkeypatch.setattr(backend, "devices", None)
    result = ferry.convert(made(5), target, **keywords)
    assert (result if target == "python" else result.tolist()) == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_H85_looking_at_a_list_crosses_nothing(sim):
    """While the device has not even computed it."""
    with sim.gate(0) as gate, sim.tracing() as seen:
        xs = [values(each) for each in range(8)]
        info = ferry.describe(xs)
        plan = ferry.explain(xs, "numpy")
        ferry.explain_tree({"x": xs}, "numpy")
        ferry.explain_collate([{"x": x} for x in xs], "numpy")
        ferry.describe_tree({"x": xs})
        assert not gate.is_open()
    assert crossed(seen) == []
    assert info.shape == plan.result.shape == (8, SIZE)


@pytest.mark.parametrize("target", ["numpy", "python", "jax", "torch"])
def test_a_list_is_stacked_on_its_device_and_crosses_once(sim, target):
    """As planned; also where `collate` makes a batch of it."""
    if target == "jax":
        pytest.importorskip("jax")
    xs = [values(each, size=64) for each in range(8)]
    keywords = {"device": "cpu"} if target == "torch" else {}
    plan = ferry.explain(xs, target, **keywords)
    with sim.tracing() as seen:
        found = ferry.convert(xs, target, **keywords)
    assert crossed(seen) == bus(plan) == [8 * 64 * 4]
    rows = found if target == "python" else found.tolist()
    assert [row[0] for row in rows] == list(range(8))
    with sim.tracing() as seen:
        batch = ferry.collate([{"x": x} for x in xs], target, **keywords)
    assert seen.counts() == {"d2h": 1}
    assert [float(row[0]) for row in batch["x"]] == list(range(8))


def test_starting_a_list_does_not_block(sim):
    """It returns while the device has not begun to compute what it is of."""
    with sim.nothing_left():
        with sim.gate(0) as gate:
            xs = [values(each) for each in range(4)]
            transfer = ferry.start(xs, "numpy")
            assert not gate.is_open()
            assert not transfer.done()
        assert [x[-1] for x in transfer.result()] == [0, 1, 2, 3]
        del transfer, xs


# -- casts that only the host can do --------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn", "float8_e5m2"])
def test_casts_by_the_host_are_planned_where_they_happen(sim, dtype):
    """To another device in one crossing each way; to the host in one."""
    x = values(3)
    plan = ferry.explain(x, "torch", device="sim:1", dtype=dtype)
    with sim.tracing() as seen:
        there = ferry.to_torch(x, device="sim:1", dtype=dtype)
    assert crossed(seen) == bus(plan)
    assert seen.counts() in ({"d2h": 1, "h2d": 1}, {"p2p": 1})
    assert sorted(crossed(seen)) in ([SIZE, 4 * SIZE], [SIZE])
    assert (there.cpu().float() == 3).all()
    plan = ferry.explain(x, "numpy", dtype=dtype)
    with sim.tracing() as seen:
        ferry.to_numpy(x, dtype=dtype)
    assert crossed(seen) == bus(plan)
    assert len(seen.bus) == 1


# -- out= -----------------------------------------------------------------------------------------


def test_out_on_the_same_device_crosses_nothing(sim):
    """Nor does it on a peer go by the host."""
    x, out, peer = values(3), values(0), values(0, "sim:1")
    plan = ferry.explain(x, "torch", out=out)
    with sim.tracing() as seen:
        assert ferry.to_torch(x, out=out) is out
    assert crossed(seen) == bus(plan) == []
    plan = ferry.explain(x, "torch", out=peer)
    with sim.tracing() as seen:
        assert ferry.to_torch(x, out=peer) is peer
    assert seen.counts() == {"p2p": 1}
    assert crossed(seen) == bus(plan) == [4 * SIZE]
    assert (out == 3).all()
    assert (peer == 3).all()


@pytest.mark.parametrize("keywords", [{}, {"non_blocking": True}])
def test_out_on_a_device_is_written_from_the_host(sim, keywords):
    """Once over the bus; with ``non_blocking`` through page-locked memory, as other transfers."""
    array, out = np.full(SIZE, 3, np.float32), values(0, "sim:1")
    plan = ferry.explain(array, "torch", out=out, **keywords)
    with sim.tracing() as seen:
        ferry.to_torch(array, out=out, **keywords)
    array[...] = -1
    assert crossed(seen) == bus(plan) == [4 * SIZE]
    assert [each.pinned for each in seen.bus] == [bool(keywords)]
    assert (out == 3).all()


def test_pinned_out_is_written_directly(sim):
    """By the bus itself: no other host memory is asked for, and nothing is copied again."""
    x, out = values(3), torch.zeros(SIZE, pin_memory=True)
    before = sim.pinned().asked
    with sim.tracing() as seen:
        assert ferry.to_torch(x, out=out) is out
    assert (out == 3).all()
    assert [(each.kind, each.bytes, each.pinned) for each in seen.bus] == [("d2h", 4 * SIZE, True)]
    assert sim.pinned().asked == before
    array = torch.zeros(SIZE, pin_memory=True).numpy()
    with sim.tracing() as seen:
        ferry.to_numpy(x, out=array)
    assert (array == 3).all()
    assert [each.pinned for each in seen.bus] == [True]


def test_a_failed_call_leaves_out_as_it_was(sim):
    """On every side."""
    x = torch.full((SIZE,), 0.5, device="sim")
    for out in (np.zeros(SIZE, np.int8), torch.zeros(SIZE, dtype=torch.int8, device="sim:1")):
        with pytest.raises(ferry.LossyCastError):
            ferry.convert(x, "numpy" if isinstance(out, np.ndarray) else "torch", out=out)
        assert not out.any()


# -- trees ----------------------------------------------------------------------------------------


def test_packed_leaves_are_page_locked_once(sim):
    """Not one by one and then packed into pageable memory."""
    tree = {str(each): np.full(each + 1, each, np.float32) for each in range(50)}
    before = sim.pinned().asked
    with sim.tracing() as seen:
        found = ferry.convert_tree(tree, "torch", device="sim", non_blocking=True)
    assert [(each.kind, each.pinned, each.queued) for each in seen.bus] == [("h2d", True, True)]
    assert sim.pinned().asked == before + 1
    assert all((found[key].cpu().numpy() == tree[key]).all() for key in tree)


def thousand():
    """1,000 leaves of several dtypes and shapes, on two devices and the host."""
    dtypes = (torch.float32, torch.int8, torch.float64, torch.bfloat16, torch.bool)
    return {
        f"layers.{each}.weight": (torch.arange(3 * (each % 7 + 1)) % 2)
        .reshape(-1, 3)
        .to(dtypes[each % 5])
        .to(("sim:0", "sim:1", "cpu")[each % 3])
        for each in range(1000)
    }


@pytest.mark.parametrize(
    ("target", "keywords"),
    [
        ("numpy", {}),
        ("numpy", {"dtype": "float64"}),
        ("jax", {"dtype": "bfloat16"}),
        ("tensorflow", {}),
        ("torch", {"device": "sim:1", "dtype": "float16"}),
    ],
)
def test_what_crosses_together_has_the_size_that_is_planned(sim, target, keywords):
    """With the gaps that align the leaves for the target; also of leaves with strides, or cast on the way."""
    pytest.importorskip(target)
    dtypes = (torch.int8, torch.float64, torch.bfloat16, torch.float32, torch.bool, torch.complex64)
    tree = [torch.ones(3 + index).to(dtype).to("sim:0") for index, dtype in enumerate(dtypes)]
    tree += [
        torch.ones(1).to("sim:0").expand(40),
        torch.ones(10).to("sim:0")[::3],
        torch.ones(2, 3).to("sim:0").T,
    ]
    plan = ferry.explain_tree(tree, target, **keywords)
    with sim.tracing() as seen:
        ferry.convert_tree(tree, target, **keywords)
    alone = sum(
        step.bytes
        for leaf in plan.leaves
        if leaf.batch is None
        for step in leaf.plan.steps
        if step.path == "bus"
    )
    assert sum(batch.bytes for batch in plan.batches) + alone == seen.bus_bytes


@pytest.mark.parametrize("keywords", [{}, {"device": "sim:1"}])
def test_leaves_that_are_not_to_cross_together_cross_alone(sim, keywords):
    """Each in a transfer of its own, as planned."""
    tree = {str(each): torch.full((3,), float(each), device="sim:0") for each in range(9)}
    target = "torch" if keywords else "numpy"
    plan = ferry.explain_tree(tree, target, coalesce=False, **keywords)
    with sim.tracing() as seen:
        found = ferry.convert_tree(tree, target, coalesce=False, **keywords)
    assert not plan.batches
    assert len(seen.bus) == len(tree)
    assert [leaf.tolist() for leaf in found.values()] == [[float(each)] * 3 for each in range(9)]


@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize(
    ("source", "target"), [("sim:0", "cpu"), ("sim:0", "sim:1"), ("cpu", "sim:1")]
)
def test_leaves_with_an_odd_stride_or_lazy_bits_are_packed(
    sim, monkeypatch, source, target, public
):
    """A stride along an axis of length 1 means nothing, and a leaf may be the only one of its dtype."""
    from tensorferry.backends import registry

    if public:
        monkeypatch.setattr(registry.ready("torch").buffers, "joins", None)
    numbers = torch.tensor([[1 + 2j, 3 - 4j]])
    for odd in (
        lambda x: x.real.contiguous()[:, ::2][:, :1],
        lambda x: x.as_strided((1,), (0,)),
        lambda x: x.conj(),
        lambda x: x.conj().imag,
        lambda x: x.conj().imag[0, 0],
    ):
        tree = [odd(numbers.to(source)), torch.arange(3, device=source)]
        with sim.tracing() as seen:
            found = ferry.convert_tree(tree, "torch", device=target)
        assert len(seen.bus) == 1
        assert found[0].tolist() == odd(numbers).tolist()
        assert found[1].tolist() == [0, 1, 2]


@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize("keywords", [{}, {"non_blocking": True}])
def test_leaves_of_any_size_and_dtype_are_taken_apart_again(sim, monkeypatch, public, keywords):
    """In their order, with and without the two functions for lists that PyTorch has for itself."""
    from tensorferry.backends import registry

    if public:
        monkeypatch.setattr(registry.ready("torch").buffers, "joins", None)
    dtypes = (torch.uint8, torch.float64, torch.bfloat16, torch.float32, torch.bool, torch.int16)
    shapes = ((), (1,), (3, 5), (2, 1, 7), (1 << 18,), (1 << 19,))
    tree = [torch.randint(0, 2, shape).to(dtype) for shape in shapes for dtype in dtypes]
    there = ferry.convert_tree(tree, "torch", device="sim:1", **keywords)
    back = ferry.convert_tree(there, "torch", device="cpu", **keywords)
    for before, up, down in zip(tree, there, back, strict=True):
        assert up.device == torch.device("sim:1")
        assert (up.shape, up.dtype) == (down.shape, down.dtype) == (before.shape, before.dtype)
        assert torch.equal(down, before)


@pytest.mark.parametrize(
    ("target", "keywords", "expected"),
    [
        ("numpy", {}, {"d2h": 2}),
        ("torch", {"device": "cpu"}, {"d2h": 2}),
        ("torch", {"device": "sim:0"}, {"h2d": 1, "p2p": 1}),
        ("torch", {"device": "sim:1", "non_blocking": True}, {"h2d": 1, "p2p": 1}),
        ("torch", {}, {}),
    ],
)
def test_a_thousand_leaves_cross_once_for_each_device_and_direction(
    sim, target, keywords, expected
):
    """As planned: as many transfers, and as many bytes, with those that align the leaves."""
    with sim.nothing_left():
        tree = thousand()
        plan = ferry.explain_tree(tree, target, **keywords)
        with sim.tracing() as seen:
            found = ferry.convert_tree(tree, target, **keywords)
        assert seen.counts() == expected
        assert sum(batch.transfers for batch in plan.batches) == len(seen.bus)
        assert sum(batch.bytes for batch in plan.batches) == seen.bus_bytes
        for key, x in tree.items():
            whole = found[key] if target == "torch" else torch.from_numpy(found[key].view(np.uint8))
            assert (
                whole.cpu().contiguous().view(torch.uint8).tolist()
                == x.cpu().view(torch.uint8).tolist()
            ), key
        with sim.tracing() as seen:
            result = ferry.start(tree, target, **keywords).result()
        assert seen.counts() == expected
        assert result.keys() == tree.keys()
        del tree, found, whole, x, plan, result


def test_a_snapshot_keeps_views_views(sim):
    """On a device as on the host: in memory of their own, with the values of then."""
    base = torch.arange(12.0, device="sim:1").reshape(3, 4)
    state = {
        "whole": base,
        "row": base[1],
        "column": base[:, 2],
        "other": torch.ones(3, device="sim:0"),
    }
    with sim.tracing() as seen:
        before = ferry.snapshot(state)
    assert crossed(seen) == []
    base.zero_()
    assert before["whole"].cpu().tolist() == torch.arange(12.0).reshape(3, 4).tolist()
    assert before["column"].cpu().tolist() == [2, 6, 10]
    assert {each.device for each in before.values()} == {each.device for each in state.values()}
    before["whole"].fill_(7)
    assert before["row"].cpu().tolist() == [7] * 4
    assert before["column"].cpu().tolist() == [7] * 3


@pytest.mark.parametrize("device", ["sim:0", "sim:1", "cpu"])
def test_a_batch_of_samples_from_several_devices(sim, device):
    """Where ``device`` says, each having crossed once."""
    places = ("sim:0", "sim:1", "cpu")
    samples = [
        {"x": torch.full((8,), float(each), device=places[each % 3]), "n": each}
        for each in range(9)
    ]
    batch = ferry.collate(samples, "torch", device=device)
    assert str(batch["x"].device) == device
    assert batch["x"][:, 0].tolist() == list(range(9))
    assert batch["n"].tolist() == list(range(9))
    stacked = ferry.to_torch([sample["x"] for sample in samples], device=device)
    assert str(stacked.device) == device
    assert stacked[:, 0].tolist() == list(range(9))


# -- the rest -------------------------------------------------------------------------------------


def test_a_memory_map_goes_to_a_device_as_planned(sim, tmp_path):
    """A device never reads a file's pages behind the host."""
    path = tmp_path / "x.npy"
    np.save(path, np.arange(SIZE, dtype=np.float32))
    for keywords in ({}, {"non_blocking": True}):
        mapped = np.load(path, mmap_mode="r")
        plan = ferry.explain(mapped, "torch", device="sim", **keywords)
        with sim.tracing() as seen:
            x = ferry.to_torch(mapped, device="sim", **keywords)
        assert crossed(seen) == bus(plan) == [4 * SIZE]
        assert not {"fill", "send", "stage", "unload"} & {step.verb for step in plan.steps}
        assert x.cpu().tolist() == list(range(SIZE))


@pytest.mark.parametrize("target", ["numpy", "jax", "python", "torch"])
def test_expanded_tensors_cross_at_the_size_of_their_memory(sim, target):
    """Where that is smaller than their shape's."""
    if target == "jax":
        pytest.importorskip("jax")
    x = torch.arange(64.0, device="sim").expand(50, 64)
    keywords = {"device": "cpu"} if target == "torch" else {}
    plan = ferry.explain(x, target, **keywords)
    with sim.tracing() as seen:
        found = ferry.convert(x, target, **keywords)
    assert crossed(seen) == bus(plan) == [64 * 4]
    rows = found if target == "python" else found.tolist()
    assert rows == [list(range(64))] * 50


def test_expanded_tensors_go_to_a_device_at_that_size_too(sim):
    """From PyTorch and from NumPy, and from one device to the other."""
    row = torch.arange(64.0)
    for x in (
        row.expand(50, 64),
        np.broadcast_to(row.numpy(), (50, 64)),
        row.to("sim:0").expand(50, 64),
    ):
        plan = ferry.explain(x, "torch", device="sim:1")
        with sim.tracing() as seen:
            there = ferry.to_torch(x, device="sim:1")
        assert crossed(seen) == bus(plan) == [64 * 4]
        assert there.cpu().tolist() == [list(range(64))] * 50


@pytest.mark.parametrize(
    ("start", "end", "dtype", "crossings"),
    [
        ("cpu", "sim", None, [64 * 4]),
        ("sim", "cpu", None, [64 * 4]),
        ("sim:0", "sim:1", None, [64 * 4]),
        ("cpu", "sim", "bfloat16", [64 * 2]),
        ("cpu", "sim", "float64", [64 * 4]),
        ("sim", "cpu", "float16", [64 * 2]),
        ("cpu", "sim", "float8_e4m3fn", [64]),
        ("sim", "sim", "float8_e4m3fn", [64 * 4, 64]),
        ("sim", "sim:1", "float8_e4m3fn", [64 * 4, 64]),
    ],
)
def test_expanded_tensors_cross_at_that_size_in_a_graph(sim, start, end, dtype, crossings):
    """And each element has a gradient of its own, as with PyTorch's `to`: for who listens at it as well."""
    before = torch.arange(64.0, device=start)
    weights = torch.arange(50 * 64.0).reshape(50, 64)
    found = []
    for convert in (
        ferry.to_torch,
        lambda x, device, dtype: x.to(device, dtype and getattr(torch, dtype)),
    ):
        row = before.clone().requires_grad_()
        x = (row * 2).expand(50, 64)
        heard = []
        x.register_hook(heard.append)
        with sim.tracing() as seen:
            y = convert(x, device=end, dtype=dtype)
        if convert is ferry.to_torch:
            assert (
                crossed(seen)
                == bus(ferry.explain(x, "torch", device=end, dtype=dtype))
                == crossings
            )
            assert y.requires_grad
            assert y.is_contiguous()
        values = y.detach().to("cpu", torch.float64)
        (y.to("cpu", torch.float32) * weights).sum().backward()
        found.append((values.tolist(), heard[0].cpu().tolist(), heard[0].device, row.grad.tolist()))
    assert found[0] == found[1]


def test_windows_go_to_a_device_at_the_size_of_their_memory(sim):
    """An array's, which are read-only, as well as a tensor's."""
    line = np.arange(64, dtype=np.float32)
    for x in (
        torch.from_numpy(line).unfold(0, 10, 1),
        np.lib.stride_tricks.sliding_window_view(line, 10),
    ):
        plan = ferry.explain(x, "torch", device="sim", dtype="float64")
        with sim.tracing() as seen:
            there = ferry.to_torch(x, device="sim", dtype="float64")
        assert crossed(seen) == bus(plan) == [64 * 4]
        assert there.cpu().tolist() == [[float(at + i) for i in range(10)] for at in range(55)]


@pytest.mark.parametrize("of", ["torch", "numpy"])
def test_expanded_values_that_are_looked_at_cross_at_that_size(sim, of):
    """A cast that looks at each value tells which one in the whole tensor it is."""
    row = torch.arange(64)
    x = row.expand(50, 64) if of == "torch" else np.broadcast_to(row.numpy(), (50, 64))
    plan = ferry.explain(x, "torch", device="sim", dtype="int32")
    with sim.tracing() as seen:
        there = ferry.to_torch(x, device="sim", dtype="int32")
    assert crossed(seen) == bus(plan) == [64 * 4]
    assert there.cpu().tolist() == [list(range(64))] * 50
    row[3] = 1 << 40
    with pytest.raises(ferry.LossyCastError, match=r"at \[0, 3\]"):
        ferry.to_torch(x, device="sim", dtype="int32")


@pytest.mark.parametrize("through", ["start", "prefetch"])
def test_a_tree_in_like_goes_through_page_locked_memory_too(sim, through):
    """As one that is named; what goes elsewhere is not asked for that."""
    tree = {"a": np.ones(SIZE, np.float32), "b": np.ones(3)}
    like = {"a": torch.zeros(1, device="sim"), "b": np.zeros(1)}
    with sim.tracing() as seen:
        if through == "start":
            found = ferry.start(tree, like=like).result()
        else:
            (found,) = ferry.prefetch([tree], like=like)
    assert [(each.bytes, each.pinned) for each in seen.bus] == [(4 * SIZE, True)]
    assert found["a"].device.type == "sim"
    assert found["b"].tolist() == [1.0] * 3


FORK = """
import os
x = torch.arange(4.0, device="sim")
done, asked = ferry.start(x, "numpy"), ferry.start({"x": x}, "numpy")
up = ferry.start(np.ones(4, np.float32), "torch", device="sim")
asked.result()
while not (done.done() and up.done()):
    pass
sim.synchronize(0)
gate = sim.close_gate(0, 60)
unfinished = ferry.start(x, "numpy")
batches = iter(ferry.prefetch([np.ones(2)] * 9, "torch", device="sim"))
import warnings
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    child = os.fork()
if child == 0:
    import signal, sys, traceback
    signal.alarm(60)
    status = 1
    try:
        assert done.result().tolist() == [0, 1, 2, 3]
        assert asked.result()["x"].tolist() == [0, 1, 2, 3]
        for call in (up.result, unfinished.result, lambda: next(batches), lambda: ferry.to_numpy(x),
                     lambda: ferry.to_torch(np.ones(3), device="sim"), lambda: ferry.start(x, "numpy").result()):
            try:
                call()
            except (RuntimeError, ferry.ConversionError) as error:
                assert any(word in str(error).lower() for word in ("fork", "process")), error
            else:
                assert call == up.result, call
        assert ferry.to_torch(np.ones(3)).tolist() == [1, 1, 1]
        status = 0
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(status)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
gate.open()
assert unfinished.result().tolist() == [0, 1, 2, 3]
assert up.result().cpu().tolist() == [1, 1, 1, 1]
raise SystemExit(status)
"""


@pytest.mark.parametrize("current", [0, 1])
def test_any_device_is_the_current_one_whatever_the_others_are(sim, current):
    """A leaf of the host goes where `convert_tree` brings it, though other leaves stay on other devices."""
    tree = {
        "a": values(1, "sim:0"),
        "b": values(2, "sim:1"),
        "h": np.ones(SIZE, np.float32),
        "c": values(3, "sim:0"),
    }
    before = torch.accelerator.current_device_index()
    torch.accelerator.set_device_index(current)
    try:
        expected = ferry.convert_tree(tree, "torch", device="sim")
        started = ferry.start(tree, "torch", device="sim").result()
        (fetched,) = ferry.prefetch([tree], "torch", device="sim")
    finally:
        torch.accelerator.set_device_index(before)
    assert expected["h"].device.index == current
    for found in (started, fetched):
        assert [leaf.device for leaf in found.values()] == [
            leaf.device for leaf in expected.values()
        ]


def test_a_forked_child_has_no_recipes_for_devices(sim):
    """It is told that there is no device, however often its parent has been there."""
    from tensorferry.execution.recipes import conversion_as

    ferry.to_torch(np.ones(3, np.float32), device="sim:0")
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that other threads are not in the child
        child = os.fork()
    if child == 0:
        os.write(writing, str(conversion_as("torch", device="sim:0").kept).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert conversion_as("torch", device="sim:0").kept
    assert os.read(reading, 10) == b"0"


def test_a_forked_child_has_host_results_or_a_named_error(sim):
    """And never waits for threads and streams that are its parent's; the parent goes on as before."""
    started(FORK)


def test_a_process_ends_in_the_middle(sim):
    """Of transfers and loops, with all that is queued."""
    started("""
import itertools
import os
import warnings
sim.set_delays(copy=0.02)
batches = ferry.prefetch((np.ones(1 << 12, np.float32) for _ in itertools.count()), "torch", device="sim")
next(batches)
ferry.start(np.ones(1 << 12, np.float32), "torch", device="sim:1")
ferry.start(torch.ones(1 << 12, device="sim"), "numpy")
""")


@pytest.mark.slow
def test_six_threads_for_half_a_minute(sim):
    """Both directions, both devices, trees, transfers and loops, each thread with streams of its own."""
    failed, until = [], time.monotonic() + 30

    def work(number):
        own = [sim.Stream(f"sim:{index}") for index in range(2)]
        round_ = 0
        while time.monotonic() < until and not failed:
            value, here, there = float(number * 1000 + round_ % 1000), round_ % 2, 1 - round_ % 2
            with sim.stream(own[here]):
                array = np.full(SIZE, value, np.float32)
                x = ferry.to_torch(array, device=f"sim:{here}", non_blocking=bool(round_ % 3))
                array[...] = -1
                x += 1
                started = ferry.start({"a": x, "b": array}, "torch", device=f"sim:{there}")
                down = ferry.start(x, "numpy")
                assert (ferry.to_numpy(x, pinned=bool(round_ % 2)) == value + 1).all()
                tree = ferry.convert_tree([x, x * 2, array], "numpy")
                assert (tree[0] == value + 1).all()
                assert (tree[1] == 2 * value + 2).all()
                assert (down.result() == value + 1).all()
                found = started.result()
                assert (found["a"].cpu() == value + 1).all()
                assert (found["b"].cpu() == -1).all()
                for n, batch in enumerate(
                    ferry.prefetch([tree[0] + n for n in range(3)], "torch", device=f"sim:{here}")
                ):
                    assert (batch.cpu() == value + 1 + n).all()
            round_ += 1

    def working(number):
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001 - told by the test's own thread
            failed.append(error)

    with sim.nothing_left():
        sim.set_delays(copy=0.001, kernel=0.0005)
        threads = [threading.Thread(target=working, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        del threads, thread
    assert not failed


def test_leaves_is_not_asked_about_the_one_tensor_of_like(sim):
    """As for a tensor on the host: "like= has no tensor in it", said a function that knows arrays."""
    tree = {"a": np.ones(2, "float32"), "count": 2}
    found = ferry.convert_tree(
        tree, like=values(1), leaves=lambda each: isinstance(each, np.ndarray)
    )
    assert (str(found["a"].device), found["count"]) == ("sim:0", 2)
