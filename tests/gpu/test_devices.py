"""On a real CUDA device: large transfers, pinned results, DLPack between frameworks, two GPUs.

Skipped elsewhere.
"""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest
from tests.support import bits, dtype_name

import tensorferry as ferry
from tensorferry.core import dtypes
from tensorferry.host.numpy_dtypes import numpy_dtype

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu

FRAMEWORKS = ("torch", "jax", "tensorflow", "cupy")
PAIRS = [*itertools.permutations(FRAMEWORKS, 2)]
LARGE = 1 << 24
"""Bytes of what is large."""
NARROW = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


def needs(*names):
    """Skip where a framework is not installed, or sees no GPU."""
    for name in names:
        if name == "jax":
            jax = pytest.importorskip("jax")
            try:
                jax.devices("gpu")
            except RuntimeError as error:
                pytest.skip(f"JAX sees no GPU: {error}")
        elif name == "tensorflow":
            if not pytest.importorskip("tensorflow").config.list_physical_devices("GPU"):
                pytest.skip("TensorFlow sees no GPU")
        elif name == "cupy":
            cupy = pytest.importorskip("cupy")
            try:
                cupy.cuda.runtime.getDeviceCount()
            except RuntimeError as error:
                pytest.skip(f"CuPy sees no GPU: {error}")


def needs_two_gpus():
    if torch.cuda.device_count() < 2:
        pytest.skip(f"needs two CUDA devices; there is {torch.cuda.device_count()}")


def busy(stream=None, rounds=20):
    """Work that keeps the device occupied for some milliseconds, so that what comes after it has to wait."""
    with torch.cuda.stream(stream or torch.cuda.current_stream()):
        a = torch.randn(2048, 2048, device="cuda")
        for _ in range(rounds):
            a = a @ a
            a = a / a.norm()
    return a


def random_bits(name, nbytes):
    kind = numpy_dtype(name)
    raw = np.random.default_rng(1).integers(
        0, 256, nbytes // kind.itemsize * kind.itemsize, dtype=np.uint8
    )
    return (raw % 2 if name == "bool" else raw).view(kind)


# -- the bus --------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", ["torch", "cupy"])
@pytest.mark.parametrize("name", ["float32", "bool", "int64", "complex128", "float16", *NARROW])
@pytest.mark.parametrize("nbytes", [16, LARGE - 16, LARGE, 5 * LARGE + 16])
@pytest.mark.parametrize("non_blocking", [False, True])
def test_transfers_are_bit_exact(framework, name, nbytes, non_blocking):
    """Both ways, small and large, with and without page-locked memory."""
    needs(framework)
    array = random_bits(name, nbytes)
    options = {"non_blocking": True} if non_blocking and framework == "torch" else {}
    there = ferry.convert(array, framework, device="cuda", **options)
    assert dtype_name(there) == name
    back = ferry.to_numpy(there, non_blocking=non_blocking)
    assert back.dtype == array.dtype
    assert back.tobytes() == array.tobytes()
    assert back.flags.writeable


@pytest.mark.parametrize("layout", ["transposed", "strided", "conjugate", "offset"])
def test_layouts(layout):
    """What ``x.cpu()`` gives, whatever lies on the device."""
    base = torch.arange(4096 * 4096, dtype=torch.float32, device="cuda").reshape(4096, 4096)
    x = {
        "transposed": base.T,
        "strided": base[:, ::2],
        "conjugate": torch.complex(base, base).conj(),
        "offset": base[1:],
    }[layout]
    expected = x.cpu().resolve_conj()
    assert np.array_equal(ferry.to_numpy(x), expected.numpy())
    host = ferry.to_torch(x, device="cpu")
    assert torch.equal(host.resolve_conj(), expected)
    again = ferry.to_torch(expected.numpy(), device="cuda")
    assert torch.equal(again, x.resolve_conj())


def test_a_thousand_results_under_load_are_those_of_a_synchronised_reference():
    """Down, from the current stream and from a side stream, while the device is busy."""
    count = LARGE // 4 + 1000
    side = torch.cuda.Stream()
    reference = torch.arange(count, dtype=torch.float32)
    x = reference.cuda()
    torch.cuda.synchronize()
    for round_ in range(1000):
        with torch.cuda.stream(side if round_ % 2 else torch.cuda.current_stream()):
            load = busy(rounds=1) if round_ % 10 == 0 else None
            y = x + round_
            got = ferry.to_numpy(y)
        assert np.array_equal(got, (reference + round_).numpy()), round_
        del load, y
        side.wait_stream(torch.cuda.current_stream())


def test_a_thousand_tensors_sent_up_under_load():
    """Up: the source is overwritten at once, and the device has the old values."""
    count = LARGE // 4 + 1000
    source = np.zeros(count, np.float32)
    for round_ in range(1000):
        source.fill(round_)
        load = busy(rounds=1) if round_ % 10 == 0 else None
        there = ferry.to_torch(source, device="cuda", non_blocking=bool(round_ % 2))
        source.fill(-1)
        assert bool((there == round_).all()), round_
        del load


def test_threads_on_streams_of_their_own():
    """Eight threads, both directions, each on a stream of its own: every result is its own."""
    failed = []

    def worker(number):
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                for round_ in range(20):
                    source = np.full(LARGE // 4, number * 100 + round_, np.float32)
                    there = ferry.to_torch(source, device="cuda", non_blocking=True)
                    assert (
                        ferry.to_numpy(there, pinned=bool(round_ % 2)) == number * 100 + round_
                    ).all()
        except BaseException as error:  # noqa: BLE001 - told by the test's own thread
            failed.append(error)

    threads = [threading.Thread(target=worker, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed[0]


@pytest.mark.parametrize("count", [10, LARGE])
def test_pinned_results(count):
    """They are page-locked, complete, and right."""
    array = np.arange(count, dtype=np.float32)
    there = ferry.to_torch(array, device="cuda")
    for result in (
        ferry.to_numpy(there, pinned=True),
        ferry.to_torch(there, device="cpu", pinned=True),
        ferry.to_torch(array, pinned=True),
    ):
        tensor = torch.as_tensor(result)
        assert tensor.is_pinned()
        assert np.array_equal(tensor.numpy(), array)


@pytest.mark.parametrize("framework", ["torch", "cupy"])
@pytest.mark.parametrize("count", [100, LARGE])
def test_a_memory_map_is_copied_before_the_device_reads_it(framework, count, tmp_path):
    """Small and large."""
    needs(framework)
    np.arange(count, dtype=np.float32).tofile(tmp_path / "values")
    mapped = np.memmap(tmp_path / "values", np.float32, "r")
    copies = [
        step.path for step in ferry.explain(mapped, framework, device="cuda").steps if step.copies
    ]
    assert copies == ["host", "bus"]
    assert np.array_equal(ferry.to_numpy(ferry.convert(mapped, framework, device="cuda")), mapped)


# -- between frameworks on one GPU ----------------------------------------------------------------


def made(framework, name="float32", count=1 << 16):
    """The same numbers on the GPU of a framework."""
    array = random_bits(name, count * dtypes.find(name).itemsize)
    return ferry.convert(ferry.to_torch(array, device="cuda"), framework, copy=True), array


@pytest.mark.parametrize(("source", "target"), PAIRS)
@pytest.mark.parametrize("name", ["float32", "int32", "bool", *NARROW])
def test_same_gpu_moves_no_bytes(source, target, name):
    """The same memory, the same bits, for every dtype that both can name."""
    needs(source, target)
    if "tensorflow" in (source, target) and (name.startswith("float8") or name == "int32"):
        pytest.skip("TensorFlow exports no float8, and keeps int32 on the host")
    x, array = made(source, name)
    plan = ferry.explain(x, target, copy=False)
    assert plan.bytes_copied == 0
    y = ferry.convert(x, target, copy=False)
    assert ferry.describe(y).device == "cuda:0"
    assert ferry.to_numpy(y).tobytes() == array.tobytes()
    if "tensorflow" not in (source, target):
        assert ferry.shares_memory(x, y)


@pytest.mark.parametrize(
    ("source", "target"), [("torch", "jax"), ("torch", "cupy"), ("jax", "torch"), ("cupy", "torch")]
)
def test_a_thousand_tensors_exported_under_load(source, target):
    """Each is still being computed on another stream when it is exported, and is whole when it is read."""
    needs(source, target)
    side = torch.cuda.Stream()
    for round_ in range(1000):
        load = busy(side, rounds=1) if round_ % 10 == 0 else None
        with torch.cuda.stream(side):
            first = torch.full((1 << 18,), float(round_), device="cuda") + (
                0 if load is None else load.sum() * 0
            )
            x = first if source == "torch" else ferry.convert(first, source, copy=True)
            y = ferry.convert(x, target, copy=False)
            got = ferry.to_numpy(y)
        assert (got == round_).all(), round_
        del load


def test_cupys_own_streams():
    """A tensor computed on a CuPy stream is waited for, and one handed to it is ordered there."""
    needs("cupy")
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    for round_ in range(200):
        with stream:
            a = cupy.random.rand(1024, 1024)
            for _ in range(3):
                a = a @ a / 1024
            x = cupy.full((1 << 18,), float(round_), cupy.float32) + (a.sum() * 0).astype(
                cupy.float32
            )
            y = ferry.to_torch(x, copy=False)
            z = ferry.to_numpy(x)
        assert bool((y == round_).all()), round_
        assert (z == round_).all()


def test_cupy_is_a_framework_like_the_others():
    """Sources of every kind, out=, casts, errors."""
    needs("cupy")
    import cupy

    x = ferry.convert([[1.5, 2.5], [3.5, 4.5]], "cupy")
    assert isinstance(x, cupy.ndarray)
    assert ferry.describe(x).device == "cuda:0"
    assert ferry.to_list(x) == [[1.5, 2.5], [3.5, 4.5]]
    assert ferry.to_list(x[:, ::-1].T) == [[2.5, 4.5], [1.5, 3.5]]
    assert ferry.to_numpy(x, dtype="float16").tolist() == x.tolist()
    assert ferry.to_numpy(x, dtype="bfloat16").dtype.name == "bfloat16"
    out = cupy.zeros((2, 2), cupy.float32)
    ferry.convert(np.ones((2, 2)), "cupy", out=out)
    assert out.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert ferry.convert(x, "cupy") is x
    copied = ferry.convert(x, "cupy", copy=True)
    assert not ferry.shares_memory(copied, x)
    assert bits(ferry.to_torch(x)) == ferry.to_numpy(x).tobytes()
    with pytest.raises(ferry.DeviceError, match="cupy does not support cpu"):
        ferry.convert(np.ones(2), "cupy", device="cpu")
    with pytest.raises(ferry.DeviceError, match="There is no cuda:99 here"):
        ferry.convert(np.ones(2), "cupy", device="cuda:99")


def test_unified_memory_of_cupy_is_memory_of_the_gpu():
    """Other frameworks share it, and it is fetched, like any other."""
    needs("cupy")
    import cupy

    x = cupy.ndarray((16,), cupy.float32, cupy.cuda.malloc_managed(64))
    x[:] = cupy.arange(16, dtype=cupy.float32)
    for target in ("torch", "jax"):
        needs(target)
        y = ferry.convert(x, target, copy=False)
        assert ferry.describe(y).device == "cuda:0"
        assert ferry.to_list(y) == list(range(16))
    assert ferry.to_numpy(x).tolist() == list(range(16))


@pytest.mark.parametrize("target", ["numpy", "torch", "cupy", "jax"])
def test_jax_arrays_in_host_memory_for_the_gpu(target):
    """Offloaded arrays go over the host, since no other framework shares their memory on the GPU."""
    needs("jax", "cupy")
    import jax

    there = jax.sharding.SingleDeviceSharding(jax.devices("gpu")[0], memory_kind="pinned_host")
    x = jax.device_put(np.arange(3, dtype=np.float32), there)
    assert ferry.describe(x).pinned
    for keywords in ({}, {"copy": True}):
        result = ferry.convert(x, target, **keywords)
        assert ferry.to_list(result) == [0, 1, 2]
    if target in ("torch", "cupy"):
        assert [step.path for step in ferry.explain(x, target).steps if step.copies] == [
            "bus",
            "bus",
        ]
        with pytest.raises(ferry.CopyRequiredError):
            ferry.convert(x, target, copy=False)


class Dlpack:
    """A tensor of another library on the GPU."""

    def __init__(self, x):
        self.x = x

    def __dlpack__(self, **asked):
        return self.x.__dlpack__(**asked)

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()


class Interface:
    """One that has CUDA's array interface only."""

    def __init__(self, x):
        self.x = x

    @property
    def __cuda_array_interface__(self):
        return self.x.__cuda_array_interface__


@pytest.mark.parametrize("kind", [Dlpack, Interface])
@pytest.mark.parametrize("target", ["numpy", "python", "torch", "jax", "cupy"])
@pytest.mark.parametrize("keywords", [{}, {"copy": True}])
def test_objects_of_other_libraries(kind, target, keywords):
    """They are shared on the GPU, fetched to the host, and ordered after the work that computes them."""
    needs("cupy", "jax")
    import cupy

    for round_ in range(20):
        load = busy(rounds=4)
        values = (
            torch.full((1 << 18,), float(round_), device="cuda") + load.sum() * 0
        ).contiguous()
        x = kind(values if kind is Dlpack else cupy.from_dlpack(values))
        result = ferry.convert(x, target, **keywords)
        plan, names = ferry.explain(x, target, **keywords), {"x": x}
        exec("\n".join([*plan.imports, plan.code]), names)  # noqa: S102 - that is what the code is for
        for found in (result, names["y"]):
            assert set(ferry.to_list(found)) == {float(round_)}
        if target not in ("numpy", "python"):
            assert ferry.describe(result).device == "cuda:0"
        if target in ("torch", "cupy"):
            assert ferry.shares_memory(result, values) is (not keywords)


# -- two GPUs -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_two_gpus_are_one_copy(source, target):
    """From cuda:0 to another framework on cuda:1 and back, while cuda:0 is current."""
    needs_two_gpus()
    needs(source, target)
    x, array = made(source)
    y = ferry.convert(x, target, device="cuda:1")
    assert ferry.describe(y).device == "cuda:1"
    assert torch.cuda.current_device() == 0
    assert ferry.to_numpy(y).tobytes() == array.tobytes()
    z = ferry.convert(y, source, device="cuda:0")
    assert ferry.describe(z).device == "cuda:0"
    assert ferry.to_numpy(z).tobytes() == array.tobytes()


def test_H42_every_framework_takes_from_a_gpu_that_is_not_the_current_one():
    """Shared where it lies; the current device is what it was."""
    needs_two_gpus()
    x = torch.arange(1 << 16, dtype=torch.float32, device="cuda:1")
    for target in FRAMEWORKS[1:]:
        needs(target)
        y = ferry.convert(x, target, copy=False)
        assert ferry.describe(y).device == "cuda:1"
        assert ferry.to_list(y) == list(range(1 << 16))
        assert torch.cuda.current_device() == 0


def test_sharded_over_gpus():
    """JAX over two GPUs: gathered to the host, or to one of them."""
    needs_two_gpus()
    needs("jax")
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices("gpu")[:2]), ("a",))
    whole = np.arange(64, dtype=np.float32).reshape(8, 8)
    x = jax.device_put(whole, NamedSharding(mesh, PartitionSpec("a")))
    assert np.array_equal(ferry.to_numpy(x), whole)
    assert np.array_equal(ferry.to_torch(x, device="cuda:1").cpu().numpy(), whole)
    with pytest.raises(ferry.CopyRequiredError, match="its 2 shards have to be gathered"):
        ferry.to_numpy(x, copy=False)
