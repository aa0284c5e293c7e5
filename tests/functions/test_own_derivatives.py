"""H110: functions that take derivatives themselves, as force fields do; and gradients that are lost on the way.

The oracle is PyTorch, TensorFlow or JAX alone, with the same function.
"""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
import torch

import tensorferry as ferry

VALUES = np.array([0.5, 1.0, 2.0])
LOST = "would be zeros, though"


def energy(x):
    return (x**4).sum()


# What each of these gives is -4 x³, so that its derivative is -12 x².


def in_place(x):
    x.requires_grad_()
    return -torch.autograd.grad(energy(x), x, create_graph=True)[0]


def by_attribute(x):
    x.requires_grad = True
    return -torch.autograd.grad(energy(x), x, create_graph=True)[0]


def of_a_copy(x):
    x = x.clone().requires_grad_()
    return -torch.autograd.grad(energy(x), x, create_graph=True)[0]


def by_backward(x):
    x.requires_grad_()
    with warnings.catch_warnings():
        # PyTorch warns of the reference from the gradient to its tensor.
        warnings.simplefilter("ignore", UserWarning)
        energy(x).backward(create_graph=True)
    return -x.grad


def by_functional(x):
    return -torch.autograd.functional.jacobian(energy, x, create_graph=True)


def by_transformation(x):
    return -torch.func.grad(energy)(x)


class Scripted(torch.nn.Module):
    def forward(self, x: torch.Tensor):
        x.requires_grad_(True)
        found = torch.autograd.grad([(x**4).sum()], [x], create_graph=True)[0]
        assert found is not None
        return -found


FORCES = [in_place, by_attribute, of_a_copy, by_backward, by_functional, by_transformation]


def by_jax(x):
    return -4 * x**3


@pytest.fixture(autouse=True)
def _wide():
    with jax.enable_x64():
        yield


MODES = {
    "value": lambda f: f,
    "jit": jax.jit,
    "grad": lambda f: jax.grad(lambda x: f(x).sum()),
    "jit of grad": lambda f: jax.jit(jax.grad(lambda x: f(x).sum())),
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (x * x,))[1],
    "vmap": lambda f: lambda x: jax.vmap(f)(jnp.stack([x, 2 * x])),
    "vmap of grad": lambda f: (
        lambda x: jax.vmap(jax.grad(lambda x: f(x).sum()))(jnp.stack([x, 2 * x]))
    ),
    "jacfwd": jax.jacfwd,
    "jacrev": jax.jacrev,
    "hessian": lambda f: jax.hessian(lambda x: f(x).sum()),
    "third order": lambda f: jax.jacfwd(jax.jacrev(jax.jacfwd(f))),
    "jit of vmap of jacfwd": lambda f: (
        lambda x: jax.jit(jax.vmap(jax.jacfwd(f)))(jnp.stack([x, 2 * x]))
    ),
    "checkpoint": lambda f: jax.grad(jax.checkpoint(lambda x: f(x).sum())),
    "scan": lambda f: jax.grad(
        lambda x: jax.lax.scan(lambda c, _: (c + f(c) / 99, 0.0), x, None, 2)[0].sum()
    ),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("force", FORCES)
def test_a_function_that_differentiates_its_argument(force, mode):
    x = jnp.array(VALUES)
    found = MODES[mode](ferry.wrap(force, inner="torch"))(x)
    np.testing.assert_allclose(found, MODES[mode](by_jax)(x), rtol=1e-12)


@pytest.mark.filterwarnings("ignore:.torch.jit.:DeprecationWarning")
@pytest.mark.parametrize("mode", ["value", "grad", "vmap", "jacfwd", "hessian"])
def test_a_scripted_function_that_differentiates_its_argument(mode):
    x = jnp.array(VALUES)
    found = MODES[mode](ferry.wrap(torch.jit.script(Scripted()), inner="torch"))(x)
    np.testing.assert_allclose(found, MODES[mode](by_jax)(x), rtol=1e-12)


@pytest.mark.parametrize("traced", [False, True])
def test_from_tensorflow(traced):
    wrapped = ferry.wrap(in_place, inner="torch")

    def second(x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = wrapped(x)
            first = inner.gradient(y, x)
        return y, first, outer.gradient(first, x)

    found = (tf.function(second, autograph=False) if traced else second)(tf.constant(VALUES))
    for one, expected in zip(found, (-4 * VALUES**3, -12 * VALUES**2, -24 * VALUES), strict=True):
        np.testing.assert_allclose(one, expected, rtol=1e-12)


@pytest.mark.parametrize("around", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_the_callers_grad_mode_does_not_count(around):
    wrapped = ferry.wrap(in_place, inner="torch")
    with around():
        assert wrapped(VALUES).tolist() == [-0.5, -4, -32]
        assert jax.grad(lambda x: wrapped(x).sum())(jnp.array(VALUES)).tolist() == [-3, -12, -48]


def test_the_energy_has_a_gradient_though_the_force_has_no_graph():
    """PyTorch alone frees the graph of the energy with the force's."""

    def both(x):
        x.requires_grad_()
        found = energy(x)
        return found, -torch.autograd.grad(found, x)[0]

    wrapped, x = ferry.wrap(both, inner="torch"), jnp.array(VALUES)
    assert wrapped(x)[1].tolist() == [-0.5, -4, -32]
    assert jax.grad(lambda x: wrapped(x)[0])(x).tolist() == [0.5, 4, 32]
    assert jax.jit(jax.grad(lambda x: wrapped(x)[0]))(x).tolist() == [0.5, 4, 32]
    for loss in (lambda x: wrapped(x)[1].sum(), lambda x: wrapped(x)[0] + wrapped(x)[1].sum()):
        with pytest.raises(
            ferry.GradientError, match="takes derivatives without a graph"
        ) as caught:
            jax.grad(loss)(x)
        assert "create_graph=True" in str(caught.value.hint)


class ForceField(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)
        ).double()

    def forward(self, x):
        x.requires_grad_()
        found = self.net(x).sum()
        return found, -torch.autograd.grad(found, x, create_graph=True)[0]


def test_a_force_field():
    """Its loss on forces reaches the parameters, as in PyTorch alone; as constants they are none of the arguments."""
    torch.manual_seed(0)
    module = ForceField()
    apply, params = ferry.wrap_module(module)

    def loss(params, x):
        found, force = apply(params, x)
        return found + (force**2).sum()

    of_params, of_x = jax.jit(jax.grad(loss, argnums=(0, 1)))(params, jnp.array(VALUES))
    x = torch.tensor(VALUES)
    found, force = module(x)
    alone = torch.autograd.grad(
        found + (force**2).sum(), [*module.parameters(), x], allow_unused=True
    )
    np.testing.assert_allclose(of_x, alone[-1], rtol=1e-10)
    for (name, _), expected in zip(module.named_parameters(), alone[:-1], strict=True):
        np.testing.assert_allclose(of_params[name], expected, rtol=1e-10, atol=1e-14)
    closed = ferry.wrap(module, inner="torch")
    with pytest.raises(ferry.GradientError, match="are not among its arguments") as caught:
        closed(jnp.array(VALUES))
    assert "module.requires_grad_(False)" in str(caught.value.hint)
    module.requires_grad_(False)
    frozen = ferry.wrap(module, inner="torch")
    gradient = jax.grad(lambda x: frozen(x)[0] + (frozen(x)[1] ** 2).sum())(jnp.array(VALUES))
    np.testing.assert_allclose(gradient, alone[-1], rtol=1e-10)


def test_closed_over_tensors_are_found_beside_those_of_the_function():
    weight = torch.ones(3, dtype=torch.float64, requires_grad=True)

    def function(x):
        x.requires_grad_()
        return torch.autograd.grad((weight * x**2).sum(), x, create_graph=True)[0]

    with pytest.raises(ferry.GradientError, match="are not among its arguments"):
        ferry.wrap(function, inner="torch")(jnp.array(VALUES))
    wrapped = ferry.wrap(function, inner="torch")
    weight.requires_grad_(False)
    assert wrapped(jnp.array(VALUES)).tolist() == [1, 2, 4]
    weight.requires_grad_()
    with pytest.raises(ferry.GradientError, match="are not among its arguments"):
        wrapped(jnp.array(VALUES))


def test_a_derivative_that_is_meant_as_a_constant():
    """A step of gradient descent whose own gradient is not wanted: PyTorch alone does not give it either."""

    def stepped(x):
        x.requires_grad_()
        return energy(x - 0.1 * torch.autograd.grad(energy(x), x)[0])

    x = torch.tensor(VALUES, requires_grad=True)
    stepped(x).backward()
    found = jax.grad(ferry.wrap(stepped, inner="torch"))(jnp.array(VALUES))
    np.testing.assert_allclose(found, x.grad, rtol=1e-12)


def test_a_leaf_of_the_functions_own():
    """It is no argument, and needs no gradient."""

    def function(x, unused):
        t = torch.zeros(3, dtype=torch.float64, requires_grad=True)
        return torch.autograd.grad((x * x * t).sum(), t, create_graph=True)[0]

    wrapped = ferry.wrap(function, inner="torch")
    x = jnp.array(VALUES)
    found = jax.grad(lambda *some: wrapped(*some).sum(), argnums=(0, 1))(x, x)
    assert [each.tolist() for each in found] == [[1, 2, 4], [0, 0, 0]]


def test_calls_that_share_an_argument_do_not_share_its_gradient():
    """One after the other, they would add to the same ``grad``."""

    def function(x, w):
        w.requires_grad_()
        (x * w).sum().backward()
        return w.grad

    found = jax.vmap(ferry.wrap(function, inner="torch"), in_axes=(0, None))(
        jnp.ones((3, 2)), jnp.ones(2)
    )
    assert found.tolist() == [[1, 1]] * 3


# -- gradients that are lost -----------------------------------------------------------------------


def without_graph(x):
    x.requires_grad_()
    return torch.autograd.grad(energy(x), x)[0]


def backward_without_graph(x):
    x.requires_grad_()
    energy(x).backward()
    return x.grad


def detached_first(x):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(energy(x), x)[0]


def recording_off(x):
    with torch.no_grad():
        return x * 2


def inference(x):
    with torch.inference_mode():
        return x * 2


def through_numpy(x):
    return torch.from_numpy(x.detach().numpy() * 2)


def of_a_detached_copy(x):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(energy(x), x, create_graph=True)[0]


LOSING = {
    "without graph": without_graph,
    "backward": backward_without_graph,
    "detached first": detached_first,
    "no_grad": recording_off,
    "inference_mode": inference,
    "detach": lambda x: x.detach() * 2,
    "detach_": lambda x: x.detach_() * 2,
    "data": lambda x: x.data * 2,
    "item": lambda x: x.sum().item(),
    "numpy": through_numpy,
    "functional": lambda x: torch.autograd.functional.hessian(energy, x),
}


def tape_gradient(function):
    def gradient(x):
        x = tf.constant(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(function(x))
        return tape.gradient(y, x)

    return gradient


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad:UserWarning")
@pytest.mark.parametrize("way", ["tape", "jvp", "vjp", "jit"])
@pytest.mark.parametrize("name", LOSING)
def test_a_gradient_that_is_lost_is_no_zero(name, way):
    """PyTorch alone raises too: its result has no graph."""
    wrapped = ferry.wrap(LOSING[name], inner="torch")
    x = jnp.array(VALUES)
    assert np.asarray(wrapped(x)).any()
    ways = {
        "tape": lambda: tape_gradient(wrapped)(VALUES),
        "jvp": lambda: jax.jvp(wrapped, (x,), (x,)),
        "vjp": lambda: jax.vjp(wrapped, x)[1](wrapped(x)),
        "jit": lambda: jax.block_until_ready(jax.jit(jax.grad(lambda x: wrapped(x).sum()))(x)),
    }
    traceable = name not in ("item", "numpy")
    if way in ("tape", "jvp") or traceable:
        kinds = (
            ferry.GradientError
            if way != "jit"
            else (ferry.GradientError, jax.errors.JaxRuntimeError)
        )
        with pytest.raises(kinds, match=LOST):
            ways[way]()
    else:
        with pytest.raises(ferry.UnsupportedTypeError, match="cannot be told without values"):
            ways[way]()


@pytest.mark.parametrize("name", ["without graph", "detach", "no_grad"])
def test_in_a_batch(name):
    x = jnp.array([VALUES, VALUES])
    for derivative in (jax.grad(lambda x: ferry.wrap(LOSING[name], inner="torch")(x).sum()),):
        with pytest.raises(ferry.GradientError, match=LOST):
            jax.vmap(derivative)(x)


def test_what_the_hint_says():
    """No derivative is asked of an argument whose gradient is stopped."""
    wrapped, x = ferry.wrap(without_graph, inner="torch"), jnp.array(VALUES)
    with pytest.raises(ferry.GradientError) as caught:
        jax.grad(lambda x: wrapped(x).sum())(x)
    assert "stop_gradient(x) as its argument" in str(caught.value.hint)
    assert jax.grad(lambda x: wrapped(jax.lax.stop_gradient(x)).sum())(x).tolist() == [0, 0, 0]
    assert jax.jvp(lambda x: wrapped(jax.lax.stop_gradient(x)), (x,), (x,))[1].tolist() == [0, 0, 0]


@pytest.mark.parametrize("way", [lambda f: jax.grad(lambda x: f(x).sum()), jax.jacfwd, jax.hessian])
def test_a_derivative_of_a_detached_copy(way):
    with pytest.raises(ferry.GradientError, match=r"a copy of args\[0\] that is detached from it"):
        way(ferry.wrap(of_a_detached_copy, inner="torch"))(jnp.array(VALUES))


@pytest.mark.parametrize(
    "constant",
    [
        lambda x: torch.ones(3, dtype=torch.float64),
        lambda x: torch.zeros_like(x) + 1,
        lambda x: (x > 0.7).double(),
        lambda x: torch.nn.functional.one_hot(x.argmax(), 3).double(),
    ],
)
@pytest.mark.parametrize("way", [lambda f: jax.grad(lambda x: f(x).sum()), jax.jacfwd, jax.jacrev])
def test_a_gradient_that_is_zero(constant, way):
    """Of results that do not depend on the arguments, or only by integers."""
    assert not np.asarray(way(ferry.wrap(constant, inner="torch"))(jnp.array(VALUES))).any()


def test_what_is_detached_beside_a_loss():
    """A log has no gradient, and the loss has its own."""
    wrapped = ferry.wrap(lambda x: (energy(x), {"log": energy(x).detach()}), inner="torch")
    x = jnp.array(VALUES)
    (_, log), gradient = jax.value_and_grad(wrapped, has_aux=True)(x)
    assert log["log"] == wrapped(x)[0]
    np.testing.assert_allclose(gradient, 4 * VALUES**3)
    np.testing.assert_allclose(tape_gradient(lambda x: wrapped(x)[0])(VALUES), 4 * VALUES**3)


def detached_beside(x):
    return x * 2, {"log": x.detach() * 3, "ones": torch.ones(2, dtype=x.dtype)}


def by_numpy_beside(x):
    return x * 2, {"log": torch.from_numpy(x.detach().numpy() * 3)}


def by_tensorflow_beside(x):
    return x * 2, {"log": tf.constant(x.numpy() * 3)}


def like_both(x):
    return x, {"log": x}


BESIDE = {
    "detach": (detached_beside, "torch", None),
    "numpy": (by_numpy_beside, "torch", like_both),
    "tensorflow": (by_tensorflow_beside, "tensorflow", like_both),
}


@pytest.mark.parametrize("name", BESIDE)
def test_forward_mode_warns_of_what_is_detached_beside_others(name):
    """Its tangents were zeros without a word, where a gradient of it is an error."""
    function, inner, shapes = BESIDE[name]
    wrapped, x = ferry.wrap(function, inner=inner, shapes=shapes), jnp.array(VALUES)
    with pytest.warns(
        RuntimeWarning, match=r'^The tangents of result\[1\]\["log"\] of .* are zeros'
    ):
        tangents = jax.jvp(wrapped, (x,), (jnp.ones_like(x),))[1]
    assert (tangents[0].tolist(), tangents[1]["log"].tolist()) == ([2, 2, 2], [0, 0, 0])
    # Reverse mode knows what is used.
    assert jax.grad(lambda x: wrapped(x)[0].sum())(x).tolist() == [2, 2, 2]
    with pytest.raises(ferry.GradientError, match=LOST):
        jax.grad(lambda x: wrapped(x)[1]["log"].sum())(x)


@pytest.mark.parametrize(
    ("function", "inner"),
    [
        (lambda x: (x * 2, torch.ones(3, dtype=x.dtype), (x > 0.7).double()), "torch"),
        (lambda x: (x * 2, tf.ones(3, x.dtype), tf.cast(x > 0.7, x.dtype)), "tensorflow"),
        (lambda x: (x * 2, tf.stop_gradient(x) * 3), "tensorflow"),
    ],
)
def test_forward_mode_does_not_warn_of_constants(function, inner):
    """Of what does not depend on the arguments, depends by integers, or is stopped on purpose."""
    x = jnp.array(VALUES)
    tangents = jax.jvp(ferry.wrap(function, inner=inner), (x,), (jnp.ones_like(x),))[1]
    assert [np.asarray(each).any() for each in tangents] == [True, *[False] * (len(tangents) - 1)]


@pytest.mark.parametrize("way", [jax.jacfwd, jax.jacrev])
def test_forward_and_reverse_mode_agree_about_no_grad(way):
    """PyTorch's forward mode differentiates what is computed under no_grad; its backward does not."""

    def function(x):
        with torch.no_grad():
            y = x * 2
        return x * y

    assert (
        way(ferry.wrap(function, inner="torch"))(jnp.array(VALUES)).diagonal().tolist()
        == (2 * VALUES).tolist()
    )


class Cube(torch.autograd.Function):
    """Without the rules that `torch.func` asks for."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 3 * x * x * gradient


@pytest.mark.parametrize(
    "mode", ["value", "grad", "jvp", "vmap", "vmap of grad", "jacfwd", "hessian"]
)
def test_a_function_without_rules_for_transformations(mode):
    x = jnp.array(VALUES)
    found = MODES[mode](ferry.wrap(lambda x: Cube.apply(x), inner="torch"))(x)  # noqa: PLW0108 - a signature is read
    np.testing.assert_allclose(found, MODES[mode](lambda x: x**3)(x), rtol=1e-12)


# -- functions of TensorFlow and JAX ---------------------------------------------------------------


def by_tape(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        found = tf.reduce_sum(x**4)
    return -tape.gradient(found, x)


@pytest.mark.parametrize(
    "mode", ["value", "jit", "grad", "jvp", "vmap", "jacfwd", "jacrev", "hessian"]
)
def test_a_function_of_tensorflow_that_watches_its_argument(mode):
    x = jnp.array(VALUES)
    found = MODES[mode](ferry.wrap(by_tape, inner="tensorflow"))(x)
    np.testing.assert_allclose(found, MODES[mode](by_jax)(x), rtol=1e-12)


def of_a_variable(x):
    variable = tf.Variable(x)
    with tf.GradientTape() as tape:
        found = tf.reduce_sum(variable**4)
    return tape.gradient(found, variable)


def by_numpy_function(x):
    found = tf.numpy_function(lambda x: x * 2, [x], x.dtype)
    found.set_shape(x.shape)
    return found


@pytest.mark.parametrize(
    "function",
    [
        of_a_variable,
        by_numpy_function,
        lambda x: tf.constant(x.numpy() * 2),
        lambda x: float(tf.reduce_sum(x)),
    ],
    ids=["variable", "numpy_function", "numpy", "float"],
)
def test_a_gradient_that_is_lost_in_tensorflow(function):
    """TensorFlow alone gives None."""
    wrapped = ferry.wrap(function, inner="tensorflow")
    x = torch.tensor(VALUES, requires_grad=True)
    assert wrapped(x).detach().numpy().any()
    with pytest.raises(ferry.GradientError, match=LOST):
        wrapped(x).sum().backward()
    with pytest.raises(ferry.GradientError, match=LOST):
        torch.func.jvp(wrapped, (x,), (x,))


@pytest.mark.parametrize(
    ("inner", "stopped"),
    [("tensorflow", lambda x: tf.stop_gradient(x) * 2), ("jax", jax.lax.stop_gradient)],
)
def test_a_gradient_that_is_stopped_on_purpose(inner, stopped):
    """It is zero in JAX alone; TensorFlow alone has no value for it."""
    x = torch.tensor(VALUES, requires_grad=True)
    ferry.wrap(stopped, inner=inner)(x).sum().backward()
    assert x.grad.tolist() == [0, 0, 0]


def test_constants_of_tensorflow():
    x = torch.tensor(VALUES, requires_grad=True)
    for function in (tf.ones_like, tf.floor, lambda x: tf.cast(x > 1, x.dtype)):
        ferry.wrap(function, inner="tensorflow")(x).sum().backward()
    assert x.grad.tolist() == [0, 0, 0]


def test_a_function_of_jax_that_differentiates_its_argument():
    x = torch.tensor(VALUES, requires_grad=True)
    wrapped = ferry.wrap(jax.grad(lambda x: -(x**4).sum()), inner="jax")
    wrapped(x).sum().backward()
    np.testing.assert_allclose(x.grad, -12 * VALUES**2)
