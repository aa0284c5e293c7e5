"""On a real CUDA device: the plans of tests/planning, run.

Skipped elsewhere, with the reason shown.
"""

from __future__ import annotations

import threading

import ml_dtypes
import numpy as np
import pytest
from tests.support import bits, counted, dtype_name

import tensorferry as ferry

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu

DTYPES = [
    *(
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "float16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    ),
    *("bfloat16", "float8_e4m3fn", "float8_e5m2"),
]


def random_bits(name, count=4096):
    """Random bit patterns of a dtype."""
    kind = np.dtype(getattr(ml_dtypes, name, None) or name)
    raw = np.random.default_rng(1).integers(0, 256, count * kind.itemsize, dtype=np.uint8)
    return (raw % 2 if name == "bool" else raw).view(kind)


def busy(stream=None, rounds=40):
    """Work that keeps the device occupied for some milliseconds, so that what comes after it has to wait."""
    a = torch.randn(2048, 2048, device="cuda")
    with torch.cuda.stream(stream or torch.cuda.current_stream()):
        for _ in range(rounds):
            a = a @ a
            a = a / a.norm()
    return a


# -- to the host ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_is_bit_exact_both_ways(name):
    """Host to device to host: the same bits, for every dtype."""
    array = random_bits(name)
    there = ferry.to_torch(array, device="cuda")
    assert there.is_cuda
    assert dtype_name(there) == name
    back = ferry.to_numpy(there)
    assert back.dtype == array.dtype
    assert back.tobytes() == array.tobytes()
    assert back.flags.writeable
    assert not ferry.shares_memory(back, array)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(
    "layout", ["compact", "transposed", "strided", "expanded", "conjugate", "0-d", "empty"]
)
def test_layouts_to_numpy_list_and_torch(layout, grad):
    """What ``x.detach().cpu().resolve_conj()`` gives, whatever lies on the device."""
    base = torch.arange(24, dtype=torch.float32, device="cuda").reshape(4, 6)
    x = {
        "compact": base,
        "transposed": base.T,
        "strided": base[:, ::2],
        "expanded": base[:1].expand(5, 6),
        "conjugate": torch.complex(base, base).conj(),
        "0-d": base[1, 1],
        "empty": base[:0],
    }[layout]
    x = (
        x.clone(memory_format=torch.preserve_format).requires_grad_()
        if grad and layout != "conjugate"
        else x
    )
    expected = x.detach().cpu().resolve_conj()
    assert ferry.to_numpy(x).tobytes() == expected.contiguous().numpy().tobytes()
    assert ferry.to_list(x) == expected.tolist()
    host = ferry.to_torch(x, device="cpu")
    assert torch.equal(host.detach().resolve_conj(), expected)
    assert host.requires_grad == x.requires_grad
    assert ferry.to_torch(x) is x


def test_describe_and_explain_do_not_wait():
    """Metadata of a tensor that is still being computed comes at once."""
    busy()
    torch.cuda.synchronize()
    done = torch.cuda.Event()
    a = busy(rounds=400)
    done.record()
    info = ferry.describe(a)
    plan = ferry.explain(a, "numpy")
    assert not done.query(), "describe or explain waited for the device (or the work was too short)"
    assert info.device == f"cuda:{a.device.index}"
    assert sum(step.bytes for step in plan.steps if step.path == "bus") == a.numel() * 4
    torch.cuda.synchronize()


def test_the_steps_are_the_cheapest_order():
    """No autograd node for the transfer, and a narrowing cast before it."""
    x = torch.ones(1000, device="cuda", requires_grad=True)
    plan = ferry.explain(x, "numpy", dtype="float16")
    assert [step.verb for step in plan.steps][:3] == ["detach", "cast", "move"]
    assert sum(step.bytes for step in plan.steps if step.path == "bus") == 2000
    assert ferry.to_numpy(x, dtype="float16").tolist() == [1.0] * 1000
    assert x.grad_fn is None


def test_a_cast_on_the_device_gives_the_hosts_bits():
    """Random floats to every narrower type that a device may cast to: the same bits as on the host."""
    for source, target in (
        ("float32", "float16"),
        ("float32", "bfloat16"),
        ("float64", "float32"),
        ("float64", "float16"),
        ("float32", "float8_e4m3fn"),
    ):
        values = random_bits(source)
        values = values[np.isfinite(values)]
        device = torch.from_numpy(values.copy()).cuda()
        assert bits(ferry.to_numpy(device, dtype=target)) == bits(
            ferry.to_numpy(values, dtype=target)
        )
        up = ferry.to_torch(values, device="cuda", dtype=target)
        assert bits(up) == bits(ferry.to_numpy(values, dtype=target))


def test_gradients_come_back_over_the_bus():
    """torch to torch stays in the graph: device and dtype change, the gradient arrives."""
    x = torch.ones(8, requires_grad=True)
    (ferry.to_torch(x, device="cuda", dtype="float64") * 3).sum().backward()
    assert x.grad.tolist() == [3.0] * 8
    assert x.grad.device.type == "cpu"


def test_copy_false_and_other_errors():
    """A transfer is a copy, a device that is not there is said, and a failed call changes nothing."""
    x = torch.ones(8, device="cuda")
    with pytest.raises(ferry.CopyRequiredError, match="cuda:0"):
        ferry.to_numpy(x, copy=False)
    missing = f"cuda:{torch.cuda.device_count()}"
    with pytest.raises(ferry.DeviceError, match=missing):
        ferry.to_torch(x, device=missing)
    out = np.zeros(8, np.int8)
    with pytest.raises(ferry.LossyCastError):
        ferry.to_numpy(x / 3, out=out)
    assert not out.any()
    ferry.to_numpy(x, out=out)
    assert out.all()
    ferry.to_torch(np.full(8, 5, np.float32), out=x)
    assert x.tolist() == [5.0] * 8


# -- H40, C21: pinned and asynchronous ------------------------------------------------------------


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_C21_pinned_non_blocking_up_is_correct_without_synchronising(dtype):
    """200 times under load: the source is overwritten right after the call, and the device has the old bytes."""
    load = busy()
    source = counted((1 << 20,))
    for round_ in range(200):
        source[...] = round_ % 128
        there = ferry.to_torch(source, device="cuda", dtype=dtype, non_blocking=True)
        source[...] = -1
        if round_ % 20 == 0:
            load = busy(rounds=4)
        assert bool((there == round_ % 128).all()), round_
    del load


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("asked", [False, True])
def test_H40_down_never_hands_out_unfinished_bytes(pinned, asked):
    """200 times under load: what is given on the host is read at once, and is complete."""
    x = torch.zeros(1 << 20, device="cuda")
    for round_ in range(200):
        load = busy(rounds=2)
        x.fill_(round_)
        if pinned:
            out = torch.empty(1 << 20, pin_memory=True)
            result = ferry.to_torch(x, out=out)
        elif asked:
            result = ferry.to_torch(x, device="cpu", non_blocking=True)
        else:
            result = ferry.to_numpy(x)
        assert bool((result == round_).all()), round_
        del load


def test_C21_a_pinned_source_is_not_staged_again():
    """Page-locked memory goes straight over the bus, and is not overwritten before it has been read."""
    source = torch.arange(1 << 20, dtype=torch.float32).pin_memory()
    torch.cuda.synchronize()
    assert ferry.describe(source).pinned
    plan = ferry.explain(source, "torch", device="cuda", non_blocking=True)
    assert [step.verb for step in plan.steps] == ["move"]
    there = ferry.to_torch(source, device="cuda", non_blocking=True)
    assert torch.equal(there.cpu(), source)


def test_from_eight_threads():
    """Both directions from eight threads: every result is its own."""
    failed = []

    def worker(number):
        try:
            for round_ in range(50):
                source = np.full(1 << 14, number * 100 + round_, np.float32)
                there = ferry.to_torch(source, device="cuda", non_blocking=bool(round_ % 2))
                assert (ferry.to_numpy(there) == number * 100 + round_).all()
        except BaseException as error:  # noqa: BLE001 - told by the test's own thread
            failed.append(error)

    threads = [threading.Thread(target=worker, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


# -- H41, H42: other frameworks on the device, streams, and several GPUs --------------------------


def jax_on_gpu():
    jax = pytest.importorskip("jax")
    try:
        jax.devices("gpu")
    except RuntimeError as error:
        pytest.skip(f"JAX sees no GPU: {error}")
    return jax


def tensorflow_on_gpu():
    tf = pytest.importorskip("tensorflow")
    if not tf.config.list_physical_devices("GPU"):
        pytest.skip("TensorFlow sees no GPU")
    return tf


@pytest.mark.parametrize("target", ["jax", "tensorflow"])
def test_H41_a_producer_on_another_stream_is_waited_for(target):
    """50 times: torch is still writing on a side stream when its tensor is exported."""
    jax_on_gpu() if target == "jax" else tensorflow_on_gpu()
    side = torch.cuda.Stream()
    for round_ in range(50):
        with torch.cuda.stream(side):
            load = busy(side, rounds=4)
            x = torch.full((1 << 20,), float(round_), device="cuda") + load.sum() * 0
            shared = ferry.convert(x, target, copy=False)
            copied = ferry.convert(x, target, copy=True)
        for result in (shared, copied):
            seen = np.asarray(result)
            assert (seen == round_).all(), round_
        del load


@pytest.mark.parametrize("source", ["jax", "tensorflow"])
def test_H41_torch_waits_for_the_others(source):
    """The way back: computed by JAX or TensorFlow, read by torch on its own stream."""
    for round_ in range(50):
        if source == "jax":
            jax = jax_on_gpu()
            x = jax.numpy.full((1 << 20,), float(round_)) + 0 * jax.numpy.ones((1024, 1024)).sum()
        else:
            tf = tensorflow_on_gpu()
            with tf.device("GPU:0"):
                x = tf.fill([1 << 20], float(round_)) + 0 * tf.reduce_sum(tf.ones((1024, 1024)))
        result = ferry.to_torch(x)
        assert result.is_cuda
        assert bool((result == round_).all())
        shared = ferry.to_torch(x, copy=False)
        assert shared.data_ptr() != result.data_ptr()


def test_H42_a_gpu_that_is_not_the_current_one():
    """Exports from cuda:1 while cuda:0 is current, and back."""
    if torch.cuda.device_count() < 2:
        pytest.skip(f"needs two CUDA devices; there is {torch.cuda.device_count()}")
    x = torch.arange(1 << 16, dtype=torch.float32, device="cuda:1")
    with torch.cuda.device(0):
        assert ferry.to_numpy(x).tolist() == list(range(1 << 16))
        moved = ferry.to_torch(x, device="cuda:0")
        assert moved.device.index == 0
        assert ferry.to_torch(x, device="cuda").device.index == 1
        assert torch.cuda.current_device() == 0
        jax_on_gpu()
        handed = ferry.to_jax(x, copy=False)
        assert ferry.describe(handed).device == "cuda:1"
        assert np.asarray(handed).tolist() == list(range(1 << 16))


def test_H45_int32_of_tensorflow_on_the_gpu():
    """TensorFlow keeps it in host memory: describe says where it really is."""
    tf = tensorflow_on_gpu()
    with tf.device("GPU:0"):
        x = tf.constant([1, 2, 3], tf.int32) + 1
    info = ferry.describe(x)
    assert info.device == ("cpu" if "CPU" in x.backing_device else "cuda:0")
    assert ferry.to_list(x) == [2, 3, 4]


def test_H43_a_default_device_moves_nothing():
    """With cuda as torch's default device, host memory stays on the host, and goes where it is told."""
    torch.set_default_device("cuda")
    try:
        assert ferry.to_torch(np.ones(3)).device.type == "cpu"
        assert ferry.to_torch([1.0, 2.0]).device.type == "cpu"
        assert ferry.to_torch([1.0, 2.0], device="cuda").device.type == "cuda"
    finally:
        torch.set_default_device(None)


def test_large_transfers_need_no_second_buffer():
    """A gigabyte down and up: the host takes the result, the device the result."""
    torch.cuda.reset_peak_memory_stats()
    x = torch.zeros(1 << 28, device="cuda")
    before = torch.cuda.max_memory_allocated()
    array = ferry.to_numpy(x)
    assert torch.cuda.max_memory_allocated() == before
    again = ferry.to_torch(array, device="cuda")
    assert torch.cuda.max_memory_allocated() <= before + array.nbytes
    assert again.numel() == x.numel()
