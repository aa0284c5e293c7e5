"""The cases that convert ndarrays to tensors of the frameworks: C13 to C21."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorferry as ferry

from .case import NO_GPU, case

if TYPE_CHECKING:
    from ..stage import Stage


@case(13, "ndarray to torch, shared", "torch")
def _shared(s: Stage) -> None:
    s.given("a = images.copy()")
    s.today("torch.from_numpy(a)")
    s.now("ferry.to_torch(a)")
    s.memory("a", shared=True)
    s.then("y.add_(1)")
    s.check("y.add_(1) shows in a", "np.array_equal(a, images + 1)")
    s.then("a += 1")
    s.check("a += 1 shows in y", "np.array_equal(y, images + 1 + 1)")
    s.then("np.add(a, 1, out=a)")
    s.check("np.add(a, 1, out=a) too", "np.array_equal(y, a)")


@case(14, "ndarray to torch, independent", "torch")
def _independent(s: Stage) -> None:
    s.given("a = images.copy()")
    s.today("torch.from_numpy(a).clone()")
    s.today("torch.tensor(a)")
    s.now("ferry.to_torch(a, copy=True)")
    s.memory("a", shared=False)
    s.then("a[0] = 777")
    s.check("a later write does not show", "torch.equal(y, today)")


@case(15, "ndarray to torch, shared if possible, else copied", "torch")
def _if_possible(s: Stage) -> None:
    s.given("a = images.copy()")
    s.today("torch.as_tensor(a)")
    s.now("ferry.to_torch(a)")
    s.memory("a", shared=True)
    s.fails("torch.as_tensor(a[::-1])")
    s.plan('ferry.explain(a[::-1], "torch")')
    s.check("explain says that it copies", "not plan.shares_memory")
    s.now("ferry.to_torch(a[::-1])")
    s.memory("a[::-1]", shared=False)
    s.check("equal", "np.array_equal(y, a[::-1])")
    s.refuses("ferry.to_torch(a[::-1], copy=False)", ferry.CopyRequiredError)


@case(16, "ndarray to TensorFlow, independent", "tensorflow")
def _constant(s: Stage) -> None:
    s.given("a = images.copy()")
    s.today("tf.constant(a)")
    s.today("tf.convert_to_tensor(a)")
    s.now("ferry.to_tensorflow(a)")
    s.memory("a", shared=False)
    s.then("a[0] = 888")
    s.check("a later write does not show", "np.array_equal(y, today)")


@case(17, "NumPy's float64 and the frameworks' float32", "torch")
def _default_float(s: Stage) -> None:
    s.given("a = images.astype(np.float64) / 3")
    s.fails("model(torch.from_numpy(a))")
    s.today("torch.from_numpy(a).float()")
    s.now("ferry.to_torch(a)")
    s.check("exact by default", "y.dtype == torch.float64 and np.array_equal(y, a)")
    s.now('ferry.to_torch(a, dtype="default")')
    s.check("the target's own default", "torch.equal(y, today)")
    s.check('dtype="float32" is the same', 'torch.equal(ferry.to_torch(a, dtype="float32"), today)')
    if s.has("jax"):
        s.note("JAX narrows in silence:")
        s.today("jnp.asarray(a)")
        if s.names["today"].dtype != s.names["a"].dtype:
            s.refuses("ferry.to_jax(a)", ferry.LossyCastError)
            s.now('ferry.to_jax(a, dtype="fit")')
            s.check("JAX on request", "np.array_equal(y, a.astype(np.float32))")


@case(18, "another dtype on the way", "torch")
def _dtype(s: Stage) -> None:
    s.given("x = images.astype(np.float64)")
    s.today("torch.from_numpy(x).type(torch.float32)")
    s.now('ferry.to_torch(x, dtype="float32")')
    s.memory("x", shared=False)
    s.check("equal", "torch.equal(y, today)")
    words = ["torch.float32", "np.float32"]
    words += ["tf.float32"] if s.has("tensorflow") else []
    words += ["jnp.float32"] if s.has("jax") else []
    for word in words:
        s.check(word, f"torch.equal(ferry.to_torch(x, dtype={word}), today)")


@case(19, "another shape on the way", "torch")
def _shape(s: Stage) -> None:
    s.given("a = images.copy()")
    s.today("torch.from_numpy(a).reshape(-1, 8, 8)")
    s.now("ferry.to_torch(a).reshape(-1, 8, 8)")
    s.memory("a", shared=True)
    s.check("the reshaped result still shares", "ferry.shares_memory(y, a)")
    s.check("equal", "torch.equal(y, today)")
    s.now("ferry.to_torch(a.T)")
    s.check("a transpose keeps its strides", "y.stride() == (1, 64) and np.array_equal(y, a.T)")


@case(20, "another device on the way", "torch")
def _device(s: Stage) -> None:
    if s.accelerator:
        s.given("device = torch.accelerator.current_accelerator()")
        s.today("torch.from_numpy(images).to(device)")
        s.now("ferry.to_torch(images, device=device)")
        s.check("there, and equal", "y.device.type == device.type and torch.equal(y, today)")
        s.refuses(f'ferry.to_torch(images, device="{s.accelerator}:99")', ferry.DeviceError)
        return
    s.fails('torch.from_numpy(images).to("cuda")')
    s.refuses('ferry.to_torch(images, device="cuda")', ferry.DeviceError)
    s.plan('ferry.explain(ferry.TensorInfo("numpy", images.shape), "torch", device="cuda")')
    s.check("crosses the bus once", "[step.path for step in plan.steps].count('bus') == 1")
    s.check("every byte once", "plan.bytes_copied == images.nbytes")
    s.only_planned(NO_GPU)


@case(21, "through pinned memory, without waiting", "torch")
def _pinned(s: Stage) -> None:
    if s.accelerator:
        s.given("device = torch.accelerator.current_accelerator()")
        s.today("torch.from_numpy(images).pin_memory().to(device, non_blocking=True)")
        s.now("ferry.to_torch(images, device=device, non_blocking=True)")
        s.check("correct without synchronising", "torch.equal(y, today)")
        s.now("ferry.to_numpy(y)")
        s.check("back, with every byte arrived", "np.array_equal(y, images)")
        return
    s.today_elsewhere('torch.from_numpy(images).pin_memory().to("cuda", non_blocking=True)')
    s.given('info = ferry.TensorInfo("numpy", images.shape)')
    s.plan('ferry.explain(info, "torch", device="cuda", non_blocking=True)')
    s.check("through pinned memory", "'pin' in ' '.join(step.code for step in plan.steps)")
    s.check("crosses the bus once", "[step.path for step in plan.steps].count('bus') == 1")
    s.plan('ferry.explain(ferry.TensorInfo("torch", images.shape, device="cuda:0"), "numpy")')
    s.check(
        "the way back waits", "'non_blocking' not in ' '.join(step.code for step in plan.steps)"
    )
    s.only_planned(NO_GPU)
