"""The cases that every release must get right: what a person types today against the one call."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.support import TARGETS, address, bits, counted, dtype_name, memory_at, of_torch

import tensorferry as ferry
from tensorferry import TensorInfo

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
tf = pytest.importorskip("tensorflow")
torch = pytest.importorskip("torch")


def random(shape=(3, 4)):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


# -- torch to the host ----------------------------------------------------------------------------


def test_C01_plain_torch_to_ndarray():
    """Same bits, same dtype, same memory as ``t.numpy()``."""
    t = random()
    a = ferry.to_numpy(t)
    today = t.numpy()
    assert type(a) is np.ndarray
    assert a.dtype == today.dtype == np.float32
    assert a.tobytes() == today.tobytes()
    assert address(a) == address(today) == t.data_ptr()
    assert a.flags.writeable


@pytest.mark.parametrize("shape", [(), (3,), (3, 4), (2, 0, 3), (1, 1, 1)])
@pytest.mark.parametrize(
    "name", ["bool", "uint8", "int64", "float16", "bfloat16", "float32", "float64", "complex64"]
)
def test_C02_plain_torch_to_a_nested_list(name, shape):
    """Python scalars, equal to ``t.tolist()``; a 0-d tensor gives a scalar."""
    t = (
        (random(shape) * 4).to(getattr(torch, name))
        if name != "uint8"
        else random(shape).abs().to(torch.uint8)
    )
    listed = ferry.to_list(t)
    assert listed == t.tolist()
    leaf = listed
    while isinstance(leaf, list) and leaf:
        leaf = leaf[0]
    if shape == ():
        assert not isinstance(listed, list)
    assert type(leaf) in (bool, int, float, complex, list)


def test_C03_a_gradient_is_detached_and_the_graph_kept():
    """Where ``t.numpy()`` raises, one call gives the values, and the tensor can still be trained."""
    t = random().requires_grad_()
    with pytest.raises(RuntimeError, match="requires grad"):
        t.numpy()
    a = ferry.to_numpy(t)
    assert a.tobytes() == t.detach().numpy().tobytes()
    (t**2).sum().backward()
    assert torch.equal(t.grad, 2 * t.detach())
    result = t * 2
    ferry.to_numpy(result)
    assert result.grad_fn is not None


def test_C03_grad_error_refuses_with_why_and_what_to_type():
    """Refused on request; torch to torch stays in the graph and has nothing to refuse."""
    t = random().requires_grad_()
    for target in ("numpy", "tensorflow", "jax", "python"):
        with pytest.raises(ferry.GradientError, match="requires grad") as caught:
            ferry.convert(t, target, grad="error")
        assert isinstance(caught.value, RuntimeError)
        assert 'grad="detach"' in caught.value.hint
        assert "detach()" in caught.value.hint
    assert ferry.to_numpy(random(), grad="error").shape == (3, 4)
    assert ferry.to_torch(t, grad="error") is t


def test_C04_a_gradient_to_a_list():
    """Equal to ``t.tolist()``."""
    t = random().requires_grad_()
    assert ferry.to_list(t) == t.tolist()
    assert ferry.to_list((t * 2).sum()) == (t * 2).sum().item()


def on_cuda(dtype="float32", **fields):
    return TensorInfo("torch", (3, 4), dtype, "cuda:0", **fields)


def test_C05_cuda_to_ndarray_is_planned():
    """One transfer over the bus, and the code that a person would have typed."""
    plan = ferry.explain(on_cuda(), "numpy")
    assert plan.code == "y = x.cpu().numpy()"
    assert [(step.verb, step.path, step.bytes) for step in plan.steps if step.copies] == [
        ("move", "bus", 48)
    ]
    assert plan.result.framework == "numpy"
    assert plan.result.device == "cpu"
    assert plan.result.writable
    assert not plan.shares_memory
    with pytest.raises(ferry.CopyRequiredError, match="cuda:0"):
        ferry.explain(on_cuda(), "numpy", copy=False)


def test_C06_cuda_with_a_gradient_in_the_cheapest_order():
    """Detach comes first, so that the copy leaves no autograd node."""
    plan = ferry.explain(on_cuda(requires_grad=True), "numpy")
    assert plan.code == "y = x.detach().cpu().numpy()"
    assert plan.bytes_copied == 48
    assert not plan.keeps_gradient
    with pytest.raises(ferry.GradientError):
        ferry.explain(on_cuda(requires_grad=True), "numpy", grad="error")


@pytest.mark.parametrize("grad", [False, True])
def test_C07_cuda_to_a_list_is_planned(grad):
    """With or without a gradient: one transfer, then Python scalars."""
    plan = ferry.explain(on_cuda(requires_grad=grad), "python")
    assert [step.verb for step in plan.steps][-2:] == ["export", "adopt"] or plan.steps[
        -1
    ].verb == "adopt"
    assert sum(step.bytes for step in plan.steps if step.path == "bus") == 48
    assert plan.result.framework == "python"


@pytest.mark.gpu
@pytest.mark.parametrize("grad", [False, True])
def test_C05_C06_C07_on_a_gpu(grad):
    """The plans above, run: the values of ``x.detach().cpu().numpy()``."""
    x = random().cuda().requires_grad_(grad)
    expected = x.detach().cpu().numpy()
    before = x.grad_fn
    result = ferry.to_numpy(x)
    assert result.tobytes() == expected.tobytes()
    assert result.flags.writeable
    assert ferry.to_list(x) == expected.tolist()
    assert x.grad_fn is before
    with pytest.raises(ferry.CopyRequiredError, match="cuda"):
        ferry.to_numpy(x, copy=False)


# -- sequences, and the others --------------------------------------------------------------------


@pytest.mark.parametrize("form", [list, tuple])
def test_C08_a_list_or_tuple_to_each(form):
    """The values, dtype and shape of each framework's own constructor."""
    rows = form([form([1, 2, 3]), form([4, 5, 6])])
    floats = form([0.5, 1.5])
    for source in (rows, floats, form([True, False])):
        for ours, today in (
            (ferry.to_numpy(source), np.array(source)),
            (ferry.to_torch(source), torch.tensor(source)),
            (ferry.to_tensorflow(source), tf.constant(source)),
            (ferry.to_tensorflow(source, variable=True), tf.Variable(source)),
            (ferry.to_jax(source), jnp.array(source)),
        ):
            assert type(ours) is type(today)
            assert dtype_name(ours) == dtype_name(today)
            assert tuple(ours.shape) == tuple(today.shape)
            assert ferry.to_list(ours) == np.asarray(today).tolist()


def test_C08_a_variable_can_be_assigned():
    """``variable=True`` gives a tf.Variable with memory of its own."""
    source = np.float32([1, 2])
    variable = ferry.to_tensorflow(source, variable=True)
    variable.assign_add([1.0, 1.0])
    assert variable.numpy().tolist() == [2.0, 3.0]
    assert source.tolist() == [1.0, 2.0]
    with pytest.raises(ferry.CopyRequiredError):
        ferry.to_tensorflow(memory_at((16,)), variable=True, copy=False)


def test_C09_torch_and_tensorflow_seen_as_ndarray():
    """Both come with the values of their own ``.numpy()``."""
    a_torch, a_tf = random(), tf.constant(random().numpy())
    assert ferry.to_numpy(a_torch).tobytes() == a_torch.numpy().tobytes()
    assert ferry.to_numpy(a_tf).tobytes() == a_tf.numpy().tobytes()
    assert type(ferry.to_numpy(a_tf)) is np.ndarray


def test_C10_a_write_on_either_side_shows_on_the_other():
    """shares_memory says so, and explain said so before."""
    t = random()
    assert ferry.explain(t, "numpy").shares_memory
    a = ferry.to_numpy(t)
    assert ferry.shares_memory(a, t)
    a[0, 0] = 777
    assert t[0, 0] == 777
    t[1, 1] = 888
    assert a[1, 1] == 888
    t.add_(1)
    assert a[0, 0] == 778
    assert not ferry.shares_memory(a, t.clone())


def test_C11_a_tensorflow_tensor_never_changes():
    """The shared view is read-only; a copy is writable and independent."""
    t = tf.constant([1.0, 2.0, 3.0, 4.0])
    view = ferry.to_numpy(t)
    assert ferry.explain(t, "numpy").bytes_copied == 0
    assert ferry.shares_memory(view, t)
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 888
    copied = ferry.to_numpy(t, copy=True)
    copied[0] = 888
    assert not ferry.shares_memory(copied, t)
    assert t.numpy().tolist() == [1.0, 2.0, 3.0, 4.0]


def test_C12_an_unlinked_ndarray_from_torch():
    """``copy=True`` is ``t.numpy().copy()``."""
    t = random()
    a = ferry.to_numpy(t, copy=True)
    expected = t.tolist()
    a += 1
    assert t.tolist() == expected
    assert not ferry.shares_memory(a, t)
    assert a.flags.writeable


# -- ndarray to the frameworks --------------------------------------------------------------------


def test_C13_ndarray_to_torch_shared():
    """Writes and in-place operators show on both sides."""
    a = np.ones(5)
    t = ferry.to_torch(a)
    assert t.data_ptr() == address(a)
    np.add(a, 1, out=a)
    assert t.tolist() == [2.0] * 5
    a += 1
    assert t.tolist() == [3.0] * 5
    t.add_(1)
    assert a.tolist() == [4.0] * 5
    t[0] = -1
    assert a[0] == -1


def test_C14_ndarray_to_torch_independent():
    """``copy=True`` is ``torch.tensor(a)``."""
    a = np.ones(5)
    t = ferry.to_torch(a, copy=True)
    np.add(a, 1, out=a)
    assert t.tolist() == [1.0] * 5
    assert torch.equal(t, torch.tensor(np.ones(5)))


def test_C15_ndarray_to_torch_shared_if_possible():
    """The default shares where it can and copies where it must, and explain tells which."""
    for a in (np.ones(5), np.ones((3, 4)).T, np.ones(8)[::2]):
        assert ferry.explain(a, "torch").shares_memory
        assert ferry.to_torch(a).data_ptr() == address(a)
    for a, reason in ((np.ones(5)[::-1], "negative stride"), (np.ones(5, ">f8"), "order")):
        plan = ferry.explain(a, "torch")
        assert not plan.shares_memory
        assert reason in plan.reason
        assert not ferry.shares_memory(ferry.to_torch(a), a)
        assert ferry.to_torch(a).tolist() == a.tolist()


def test_C16_ndarray_to_tensorflow_independent():
    """A constant stays what it was, and its dtype is the array's."""
    a = counted((4, 16))
    t = ferry.to_tensorflow(a)
    assert isinstance(t, tf.Tensor)
    assert t.dtype == tf.constant(a).dtype
    a[...] = -1
    assert t.numpy().ravel().tolist() == list(range(64))
    assert not ferry.shares_memory(a, t)


def test_C17_exact_by_default_and_the_default_on_request():
    """float64 stays float64; ``"default"`` is the framework's own float."""
    a = np.array([0.1, 0.2])
    assert ferry.to_torch(a).dtype == torch.float64
    assert ferry.to_tensorflow(a).dtype == tf.float64
    assert ferry.to_torch(a)[0].item() == 0.1
    for target in ("torch", "tensorflow", "jax"):
        for asked in ("float32", "default"):
            result = ferry.convert(a, target, dtype=asked)
            assert dtype_name(result) == "float32"
            assert bits(result) == a.astype(np.float32).tobytes()
    assert ferry.to_numpy(np.float32([0.5]), dtype="default").dtype == np.float64
    assert ferry.to_torch(np.array([2**40]), dtype="default").dtype == torch.int64
    with pytest.raises(ferry.LossyCastError) as caught:
        ferry.to_jax(a)
    assert caught.value.hint == 'dtype="fit", or jax.config.update("jax_enable_x64", True) first'


@pytest.mark.parametrize(
    "asked",
    [
        "float32",
        torch.float32,
        np.float32,
        tf.float32,
        jnp.float32,
        np.dtype("float32"),
        "torch.float32",
        "single",
    ],
    ids=str,
)
@pytest.mark.parametrize("target", TARGETS)
def test_C18_the_dtype_in_any_frameworks_words(target, asked):
    """``dtype=`` takes the dtype of any framework."""
    x = np.arange(4.0)
    result = ferry.convert(x, target, dtype=asked)
    assert dtype_name(result) == "float32"
    assert ferry.to_list(result) == x.tolist()


def test_C18_a_cast_stays_in_the_graph_of_torch():
    """torch to torch with a dtype: the gradient comes back."""
    t = random().requires_grad_()
    ferry.to_torch(t, dtype=torch.float64).sum().backward()
    assert torch.equal(t.grad, torch.ones(3, 4))


def test_C19_shape_and_strides_are_kept_and_a_reshape_shares():
    """The conversion reshapes nothing; views of the result lie in the same memory."""
    a = counted((4, 6))
    t = ferry.to_torch(a)
    assert tuple(t.shape) == (4, 6)
    flat = t.reshape(2, 12).view(-1)
    flat[0] = 99
    assert a[0, 0] == 99
    assert ferry.shares_memory(flat, a)
    back = ferry.to_numpy(t.reshape(3, 8))
    assert ferry.shares_memory(back, a)
    assert back.shape == (3, 8)
    turned = ferry.to_torch(a.T)
    assert tuple(turned.shape) == (6, 4)
    assert turned.stride() == (1, 6)


def test_C20_a_device_that_is_there_and_one_that_is_not():
    """``device="cpu"`` is no move; a missing device is an error that lists those that are there."""
    a = np.ones(3, np.float32)
    for device in ("cpu", torch.device("cpu"), "CPU:0"):
        assert ferry.to_torch(a, device=device).data_ptr() == address(a)
    missing = f"cuda:{torch.cuda.device_count() + 3}"
    with pytest.raises(ferry.DeviceError) as caught:
        ferry.to_torch(a, device=missing)
    assert missing in caught.value.message
    assert all(name in caught.value.message for name in ferry.frameworks()["torch"].devices)
    with pytest.raises(ferry.DeviceError, match="numpy does not support cuda"):
        ferry.to_numpy(a, device="cuda")
    with pytest.raises(ferry.DeviceError, match="name of a device"):
        ferry.to_torch(a, device="over there!")


def test_C20_place_on_a_gpu_is_planned():
    """``torch.from_numpy(x).to("cuda")``: one transfer, no host copy."""
    plan = ferry.explain(TensorInfo("numpy", (3, 4)), "torch", device="cuda")
    assert plan.code == 'import torch\ny = torch.from_numpy(x).to("cuda")'
    assert [(step.path, step.bytes) for step in plan.steps if step.copies] == [("bus", 48)]


@pytest.mark.gpu
def test_C20_place_on_a_gpu():
    """The plan above, run."""
    a = counted((3, 4))
    t = ferry.to_torch(a, device="cuda")
    assert t.device.type == "cuda"
    a[...] = -1
    assert t.cpu().numpy().ravel().tolist() == list(range(12))


def test_C21_pinned_and_non_blocking_is_planned():
    """Staged through page-locked memory; the way back waits."""
    plan = ferry.explain(TensorInfo("numpy", (3, 4)), "torch", device="cuda", non_blocking=True)
    assert [step.verb for step in plan.steps] == ["adopt", "pin", "move"]
    assert plan.code.endswith('y = torch.from_numpy(x).pin_memory().to("cuda", non_blocking=True)')
    pinned = ferry.explain(
        TensorInfo("torch", (3, 4), pinned=True), "torch", device="cuda", non_blocking=True
    )
    assert [step.verb for step in pinned.steps] == ["move"]
    back = ferry.explain(on_cuda(), "numpy")
    assert "non_blocking" not in back.code


CHAIN = {
    "torch": random,
    "torch, leaf": lambda: random().requires_grad_(),
    "torch, result": lambda: random().requires_grad_() * 2,
    "torch, parameter": lambda: torch.nn.Parameter(random()),
    "torch, bfloat16": lambda: random().to(torch.bfloat16),
    "torch, transposed": lambda: random().T,
    "torch, conjugate": lambda: random().to(torch.complex64).conj(),
    "tensorflow": lambda: tf.constant(random().numpy()),
    "tf.Variable": lambda: tf.Variable(random().numpy()),
    "jax": lambda: jnp.asarray(random().numpy()),
    "ndarray": lambda: random().numpy(),
    "list": lambda: random().tolist(),
}


@pytest.mark.parametrize("name", CHAIN)
def test_C22_one_call_for_the_complete_chain(name):
    """``to_numpy(x)`` for every x in this table."""
    x = CHAIN[name]()
    a = ferry.to_numpy(x)
    if isinstance(x, torch.Tensor):
        expected = (
            x.detach()
            .cpu()
            .resolve_conj()
            .to(torch.complex128 if x.is_complex() else torch.float64)
            .numpy()
        )
    else:
        expected = np.asarray(x)
    assert type(a) is np.ndarray
    assert a.tolist() == expected.tolist()


# -- round trips and the rules --------------------------------------------------------------------

TORCH_DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
]


@pytest.mark.parametrize("name", of_torch(*TORCH_DTYPES))
def test_C23_round_trip_is_bit_identical(name):
    """ndarray to torch to ndarray, for every dtype that both know, over random bits."""
    kind = np.dtype(getattr(ml_dtypes, name, None) or name)
    raw = np.random.default_rng(0).integers(0, 256, 4096 * kind.itemsize, dtype=np.uint8)
    a = (raw % 2 if name == "bool" else raw).view(kind)
    for copy in (None, True):
        t = ferry.to_torch(a, copy=copy)
        assert dtype_name(t) == name
        back = ferry.to_numpy(t, copy=copy)
        assert back.dtype == kind
        assert back.tobytes() == a.tobytes()


def test_C23_these_are_all_dtypes_that_both_know():
    """Those that this release of PyTorch has."""
    from tensorferry.backends.registry import backends

    here = {name for name in TORCH_DTYPES if hasattr(torch, name)}
    assert here == backends()["torch"].capabilities.dtypes.held


def test_C24_strided_and_transposed_views_share_too():
    """Not only contiguous ones; explain says which."""
    t = random((4, 6))
    for view in (t, t.T, t[:, ::2], t[1:3, 2:], t[:, 0], t.unfold(1, 2, 1), t[:1].expand(3, 6)):
        plan = ferry.explain(view, "numpy")
        assert plan.shares_memory, view.stride()
        a = ferry.to_numpy(view)
        assert address(a) == view.data_ptr()
        assert a.tolist() == view.tolist()
        assert "shares memory" in str(plan)
    assert not ferry.explain(t.to(torch.complex64).conj(), "numpy").shares_memory


def test_C25_char_tensors_convert():
    """int8 is a dtype as any other."""
    t = torch.tensor([-128, 0, 127], dtype=torch.int8)
    assert ferry.to_numpy(t).dtype == np.int8
    assert ferry.to_list(t) == [-128, 0, 127]
    assert ferry.to_tensorflow(t).dtype == tf.int8
    assert ferry.to_jax(t).dtype == np.int8


@pytest.fixture(scope="module")
def predictions():
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 10)
    return model(random((5, 64)))


def test_C26_predictions_of_a_model_in_one_call(predictions):
    """Every link of ``x.detach().cpu().numpy()`` left out fails or matters; the one call needs none."""
    with pytest.raises(RuntimeError, match=r"Use tensor.detach\(\)"):
        predictions.cpu().numpy()
    result = ferry.to_numpy(predictions)
    assert result.shape == (5, 10)
    assert result.tobytes() == predictions.detach().cpu().numpy().tobytes()
    for target in ("tensorflow", "jax", "python"):
        assert ferry.to_list(ferry.convert(predictions, target)) == result.tolist()
    assert predictions.grad_fn is not None
