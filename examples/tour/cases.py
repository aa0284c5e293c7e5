"""The cases, C01 to C27.

Each plays on a `Stage` whose names are the libraries (``np``, ``torch``, ``tf``, ``jnp``,
``ferry``), ``images`` and ``labels`` (ndarrays), and, where torch is installed, ``model`` and
``scores``, the model's predictions on the images, which are part of an autograd graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import tensorferry as ferry

if TYPE_CHECKING:
    from collections.abc import Callable

    from .stage import Stage

    Play = Callable[[Stage], None]

__all__ = ["CASES", "Case"]

NO_GPU = "no accelerator here: the plan is shown"


@dataclass(frozen=True)
class Case:
    """One case: what it is called, what it cannot do without, and how it plays.

    Args:
        id: Its name in every document and test.
        title: What is converted to what, in a few words.
        needs: The frameworks without which it cannot play.
        play: Runs its lines on a stage.
    """

    id: str
    title: str
    needs: tuple[str, ...]
    play: Play


CASES: dict[str, Case] = {}
"""Every case by its id."""


def case(number: int, title: str, *needs: str) -> Callable[[Play], Play]:
    """Enter a function into `CASES`."""

    def enter(play: Play) -> Play:
        name = f"C{number:02d}"
        CASES[name] = Case(name, title, needs, play)
        return play

    return enter


# -- from PyTorch and TensorFlow: C01 to C12, C22 to C27 ---------------------------------------------


@case(1, "a plain CPU tensor to ndarray", "torch")
def _plain(s: Stage) -> None:
    s.given("t = scores.detach()")
    s.today("t.numpy()")
    s.now("ferry.to_numpy(t)")
    s.memory("t", shared=True)
    s.check("same bits", "np.array_equal(y.view(np.uint32), today.view(np.uint32))")
    s.check("dtype float32", "y.dtype == np.float32")


@case(2, "a plain CPU tensor to a nested list", "torch")
def _to_list(s: Stage) -> None:
    s.given("t = scores.detach().argmax(1)[:8]")
    s.today("t.tolist()")
    s.now("ferry.to_list(t)")
    s.check("Python ints, equal", "y == today and type(y[0]) is int")
    s.now("ferry.to_list(t[0])")
    s.check("0-d gives a scalar", "type(y) is int and y == today[0]")


@case(3, "a tensor with a gradient to ndarray", "torch")
def _gradient(s: Stage) -> None:
    s.today("scores.detach().numpy()")
    s.fails("scores.numpy()")
    s.now("ferry.to_numpy(scores)")
    s.memory("scores", shared=True)
    s.check("same bits", "np.array_equal(y.view(np.uint32), today.view(np.uint32))")
    s.check("the original keeps its graph", "scores.requires_grad and scores.grad_fn is not None")
    s.refuses('ferry.to_numpy(scores, grad="error")', ferry.GradientError)


@case(4, "a tensor with a gradient to a list", "torch")
def _gradient_to_list(s: Stage) -> None:
    s.today("scores.tolist()")
    s.now("ferry.to_list(scores)")
    s.check("equal", "y == today")
    s.check("the original keeps its graph", "scores.grad_fn is not None")


@case(5, "a GPU tensor to ndarray", "torch")
def _gpu(s: Stage) -> None:
    _from_gpu(
        s, "t = scores.detach().to(torch.accelerator.current_accelerator())", "t.cpu().numpy()"
    )


@case(6, "a GPU tensor with a gradient to ndarray", "torch")
def _gpu_gradient(s: Stage) -> None:
    given = "t = scores.to(torch.accelerator.current_accelerator())"
    _from_gpu(s, given, "t.detach().cpu().numpy()", ", requires_grad=True")
    s.check(
        "detached before it moves",
        "plan.steps[0].verb == 'detach' and plan.steps[0].path == 'none'",
    )


def _from_gpu(s: Stage, given: str, today: str, flag: str = "") -> None:
    if s.accelerator:
        s.given(given)
        s.today(today)
        s.fails("t.numpy()")
        s.now("ferry.to_numpy(t)")
        s.check("same bits", "np.array_equal(y.view(np.uint32), today.view(np.uint32))")
        s.plan('ferry.explain(t, "numpy")')
    else:
        s.today_elsewhere(today)
        s.note("(torch's device 'meta' shows its words without a GPU)")
        s.fails('scores.detach().to("meta").numpy()')
        s.given(f'info = ferry.TensorInfo("torch", scores.shape, device="cuda:0"{flag})')
        s.plan('ferry.explain(info, "numpy")')
        s.only_planned(NO_GPU)
    s.check("crosses the bus once", "[step.path for step in plan.steps].count('bus') == 1")
    s.check("every byte once", "plan.bytes_copied == scores.nbytes and not plan.shares_memory")


@case(7, "a GPU tensor, with or without a gradient, to a list", "torch")
def _gpu_to_list(s: Stage) -> None:
    if s.accelerator:
        s.given("t = scores.to(torch.accelerator.current_accelerator())")
        s.today("t.tolist()")
        s.now("ferry.to_list(t)")
        s.check("equal, with a gradient", "y == today")
        s.check("equal, without", "ferry.to_list(t.detach()) == today")
        return
    s.today_elsewhere("t.tolist()")
    for words, flag in (("without a gradient", ""), ("with one", ", requires_grad=True")):
        s.given(f'info = ferry.TensorInfo("torch", scores.shape, device="cuda:0"{flag})')
        s.plan('ferry.explain(info, "python")')
        once = "[step.path for step in plan.steps].count('bus') == 1"
        s.check(f"{words}: crosses the bus once", once)
    s.only_planned(NO_GPU)


@case(8, "a list to ndarray, torch, TensorFlow and JAX")
def _from_list(s: Stage) -> None:
    s.given("pixels = images[0].reshape(8, 8).tolist()")
    s.today("np.array(pixels)")
    s.now("ferry.to_numpy(pixels)")
    s.check("NumPy", "y.dtype == today.dtype and np.array_equal(y, today)")
    if s.has("torch"):
        s.today("torch.tensor(pixels)")
        s.now("ferry.to_torch(pixels)")
        s.check("torch", "y.dtype == today.dtype and torch.equal(y, today)")
    if s.has("tensorflow"):
        s.today("tf.constant(pixels)")
        s.now("ferry.to_tensorflow(pixels)")
        s.check("TensorFlow", "y.dtype == today.dtype and np.array_equal(y, today)")
        s.today("tf.Variable(pixels)")
        s.now("ferry.to_tensorflow(tuple(pixels), variable=True)")
        s.check(
            "Variable", "isinstance(y, tf.Variable) and np.array_equal(y.numpy(), today.numpy())"
        )
    if s.has("jax"):
        s.today("jnp.asarray(pixels)")
        s.now("ferry.to_jax(pixels)")
        s.check("JAX", "y.dtype == today.dtype and np.array_equal(y, today)")


@case(9, "torch and TensorFlow tensors seen as ndarray", "torch", "tensorflow")
def _as_ndarray(s: Stage) -> None:
    s.given("a_torch, a_tf = scores.detach(), tf.constant(images)")
    s.today("a_torch.numpy()")
    s.now("ferry.to_numpy(a_torch)")
    s.memory("a_torch", shared=True)
    s.check("torch: equal", "np.array_equal(y, today)")
    s.today("a_tf.numpy()")
    s.now("ferry.to_numpy(a_tf)")
    s.memory("a_tf", shared=s.tensorflow_on_host)
    s.check("TensorFlow: equal", "np.array_equal(y, today)")


@case(10, "torch and its ndarray share memory, both ways", "torch")
def _both_ways(s: Stage) -> None:
    s.given("t = scores.detach()")
    s.plan('ferry.explain(t, "numpy")')
    s.check("explain said so before", "plan.shares_memory")
    s.now("ferry.to_numpy(t)")
    s.memory("t", shared=True)
    s.then("y[0] = 777")
    s.check("a write to the ndarray shows", "bool((t[0] == 777).all())")
    s.then("t[1] = -1")
    s.check("a write to the tensor shows", "bool((y[1] == -1).all())")
    s.check("shares_memory says so", "ferry.shares_memory(y, t)")


@case(11, "a TensorFlow tensor is immutable, and stays so", "tensorflow")
def _immutable(s: Stage) -> None:
    s.given("c = tf.constant(images); before = c.numpy().copy()")
    s.today("c.numpy().copy()")
    s.now("ferry.to_numpy(c)")
    s.memory("c", shared=s.tensorflow_on_host)
    if s.tensorflow_on_host:
        s.refuses("y[0] = 888", ValueError)
    s.now("ferry.to_numpy(c, copy=True)")
    s.memory("c", shared=False)
    s.then("y[0] = 888")
    s.check("the tensor never changes", "np.array_equal(c.numpy(), before)")


@case(12, "an unlinked ndarray from torch", "torch")
def _unlinked(s: Stage) -> None:
    s.given("t = scores.detach()")
    s.today("t.numpy().copy()")
    s.now("ferry.to_numpy(t, copy=True)")
    s.memory("t", shared=False)
    s.check("equal", "np.array_equal(y, today)")


@case(22, "the complete chain, for every source", "torch")
def _chain(s: Stage) -> None:
    s.today("scores.detach().cpu().numpy()")
    s.fails("images.detach().cpu().numpy()")
    s.given("sources = [scores, scores.detach(), scores.tolist(), today]")
    if s.has("tensorflow"):
        s.fails("tf.constant(today).detach().cpu().numpy()")
        s.given("sources += [tf.constant(today), tf.Variable(today)]")
    if s.has("jax"):
        s.fails("jnp.asarray(today).detach().cpu().numpy()")
        s.given("sources += [jnp.asarray(today)]")
    s.now("[ferry.to_numpy(x) for x in sources]")
    s.check("an ndarray each time", "all(type(a) is np.ndarray for a in y)")
    s.check(f"equal, {len(s.names['sources'])} sources", "all(np.array_equal(a, today) for a in y)")


@case(23, "round trip, bit for bit, in every dtype both know", "torch")
def _round_trip(s: Stage) -> None:
    s.given("import ml_dtypes; a = images.astype(ml_dtypes.bfloat16)")
    s.fails("torch.from_numpy(a)")
    s.now("ferry.to_torch(a)")
    s.memory("a", shared=True)
    s.given(
        "kinds = [np.dtype(each) for each in '?bhiqBHIQefdFD']\n"
        "scalars = [each for each in vars(ml_dtypes).values() if isinstance(each, type)]\n"
        "kinds += [np.dtype(each) for each in scalars if issubclass(each, np.generic)]"
    )
    s.given(
        "def there_and_back(kind):\n"
        "    a = (images.reshape(-1)[:64] > 0.5).astype(kind)\n"
        "    try:\n"
        "        t = ferry.to_torch(a)\n"
        "    except ferry.ConversionError:\n"
        "        return 'refused'\n"
        "    return ferry.to_numpy(t).tobytes() == a.tobytes()"
    )
    s.given("found = [there_and_back(kind) for kind in kinds]")
    equal = s.names["found"].count(True)
    s.check(f"{equal} dtypes bit for bit", "found.count(True) > 15 and False not in found")
    s.check(
        f"{len(s.names['found']) - equal} that torch does not have are refused",
        "'refused' in found",
    )


@case(24, "strided and transposed tensors share too", "torch")
def _strided(s: Stage) -> None:
    s.given("t = scores.detach()")
    s.now("ferry.to_numpy(t.T)")
    s.memory("t.T", shared=True)
    s.check("transposed: equal", "np.array_equal(y, t.T)")
    s.now("ferry.to_numpy(t[::2, 1::3])")
    s.memory("t[::2, 1::3]", shared=True)
    s.check("strided: equal", "np.array_equal(y, t[::2, 1::3])")
    s.plan('ferry.explain(t[::2, 1::3], "numpy")')
    s.check("explain says which", "plan.shares_memory")


@case(25, "CharTensor (int8) converts", "torch")
def _int8(s: Stage) -> None:
    s.given("t = (scores.detach() * 4).to(torch.int8)")
    s.today("t.numpy()")
    s.now("ferry.to_numpy(t)")
    s.memory("t", shared=True)
    s.check("int8, equal", "y.dtype == np.int8 and np.array_equal(y, today)")


@case(26, "predictions to NumPy, each link of the chain left out in turn", "torch")
def _links(s: Stage) -> None:
    s.given("x = model(torch.from_numpy(images[:8]))")
    s.today("x.detach().cpu().numpy()")
    s.note("without .detach()")
    s.fails("x.cpu().numpy()")
    s.note("without .cpu()")
    if s.accelerator:
        s.fails("x.to(torch.accelerator.current_accelerator()).detach().numpy()")
    else:
        s.note("(torch's device 'meta' shows its words without a GPU)")
        s.fails('x.to("meta").detach().numpy()')
    s.note("without .numpy()")
    s.fails('x.detach().cpu().astype("float64")')
    s.now("ferry.to_numpy(x)")
    s.memory("x", shared=True)
    s.check("none of the links needed", "np.array_equal(y, today)")
    s.check("the digits are right", "(y.argmax(1) == labels[:8]).mean() >= 0.75")


_MARKS = {"shares": "", "shares (read-only)": " (ro)"}
"""What is said after the name of a target that shares memory."""


@case(27, "which conversions share and which copy: measured, not memorised")
def _table(s: Stage) -> None:
    from tensorferry.cli.doctor import pairs

    measured = pairs(s.frameworks)
    s.note("from, and what shares memory with it (ro: read-only); all others copy")
    for name in dict.fromkeys(pair.source for pair in measured):
        own = [pair for pair in measured if pair.source == name]
        shared = [f"{pair.target}{_MARKS[pair.word]}" for pair in own if pair.word in _MARKS]
        refused = [pair.target for pair in own if pair.word == "cannot"]
        words = ", ".join(shared) or "none"
        s.row(name, f"{words}; cannot: {', '.join(refused)}" if refused else words)
    held = all(pair.held for pair in measured)
    s.check(f"{len(measured)} pairs, each as its plan said", str(held))
    s.note("tensorferry doctor prints the whole table, with reasons")


# -- from ndarrays: C13 to C21 -----------------------------------------------------------------------


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
