"""A module as a pure function and its parameters, what cannot be one, and what is explained of wrapped calls."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from tests.support import survives
from torch import nn

import tensorferry as ferry

x = jnp.ones((5, 4))


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))


@pytest.mark.parametrize("jit", [False, True])
def test_gradients_are_pytorchs(jit):
    """Of every parameter, by name."""
    module = network()
    apply, params = ferry.wrap_module(module)
    gradient = jax.grad(lambda params: (apply(params, x) ** 2).sum())
    found = (jax.jit(gradient) if jit else gradient)(params)
    (module(torch.ones(5, 4)) ** 2).sum().backward()
    assert list(params) == [name for name, _ in module.named_parameters()]
    for name, parameter in module.named_parameters():
        np.testing.assert_allclose(found[name], parameter.grad, rtol=1e-5)


def test_every_transformation_holds():
    """Batches, forward mode and the second order, as of any function of JAX's."""
    apply, params = ferry.wrap_module(network())
    one = x[0]
    by_reverse = jax.jacrev(jax.jacrev(lambda x: apply(params, x)))(one)
    np.testing.assert_allclose(
        jax.jit(jax.hessian(lambda x: apply(params, x)))(one), by_reverse, rtol=1e-4, atol=1e-7
    )
    assert jax.vmap(apply, in_axes=(None, 0))(params, x).shape == (5, 1)


def test_parameters_are_copies():
    """The module is as it was, whatever becomes of them."""
    module = network()
    apply, params = ferry.wrap_module(module)
    before = apply(params, x)
    with torch.no_grad():
        module[0].weight.zero_()
    assert apply(params, x).tolist() == before.tolist()


def test_what_is_frozen_stays_with_the_module():
    module = network()
    module[0].requires_grad_(False)
    apply, params = ferry.wrap_module(module)
    assert list(params) == ["2.weight", "2.bias"]
    assert apply(params, x).shape == (5, 1)


def test_tied_parameters_are_one():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Linear(4, 4, bias=False)
            self.other = nn.Linear(4, 4, bias=False)
            self.other.weight = self.one.weight

        def forward(self, x):
            return self.other(self.one(x))

    module = Tied()
    apply, params = ferry.wrap_module(module)
    assert list(params) == ["one.weight"]
    found = jax.grad(lambda params: apply(params, x).sum())(params)["one.weight"]
    module(torch.ones(5, 4)).sum().backward()
    np.testing.assert_allclose(found, module.one.weight.grad, rtol=1e-5)


@pytest.mark.parametrize("jit", [False, True])
def test_buffers_that_change_are_refused_or_are_state(jit):
    """Batch normalization that trains: the module's own are never written."""
    inside = jax.jit if jit else lambda f: f
    module = nn.BatchNorm1d(4)
    apply, params = ferry.wrap_module(module)
    with pytest.raises(ferry.UnsupportedTypeError, match="changes its buffers") as caught:
        inside(apply)(params, x)
    assert "state=True" in caught.value.hint
    apply, params, state = ferry.wrap_module(module, state=True, dtype="fit")
    found, after = inside(apply)(params, state, x)
    assert found.shape == x.shape
    assert after["running_mean"].tolist() == pytest.approx([0.1] * 4)
    assert (int(after["num_batches_tracked"]), int(module.num_batches_tracked)) == (1, 0)
    assert module.running_mean.tolist() == [0] * 4
    module.eval()
    apply, params = ferry.wrap_module(module)
    assert inside(apply)(params, x).shape == x.shape


def test_a_buffer_that_is_replaced_is_seen():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            self.count = self.count + 1
            return x

    apply, params = ferry.wrap_module(Counts())
    with pytest.raises(ferry.UnsupportedTypeError, match="changes its buffers"):
        apply(params, x)
    apply, params, state = ferry.wrap_module(Counts(), state=True)
    for _ in range(3):
        _, state = apply(params, state, x)
    assert float(state["count"]) == 3


def test_dropout_that_trains_is_refused():
    apply, params = ferry.wrap_module(nn.Sequential(nn.Linear(4, 3), nn.Dropout()))
    with pytest.raises(ferry.UnsupportedTypeError, match="draws random numbers"):
        apply(params, x)


def test_what_is_no_module():
    with pytest.raises(ferry.UnsupportedTypeError, match="is wrapped, not 3"):
        ferry.wrap_module(3)


# -- explain_wrap ----------------------------------------------------------------------------------


def test_what_crosses_is_what_the_plans_say():
    """Of each tensor that crosses, its own plan; nothing is called."""
    called = []

    @ferry.wrap(inner="torch")
    def loss(params, x):
        called.append(type(x).__name__)
        return (params["w"] * x).sum()

    plan = ferry.explain_wrap(loss, {"w": jnp.ones(3)}, jnp.ones(3))
    assert [path for path, _ in plan.inputs] == ['args[0]["w"]', "args[1]"]
    assert plan.inputs[0][1] == ferry.explain(jnp.ones(3), "torch")
    assert plan.bytes_copied == 12 + 12 + 4
    assert (plan.inner, plan.outer, plan.derivatives) == (
        "torch",
        "jax",
        "of every order, in reverse and in forward mode",
    )
    assert set(called) == {"FakeTensor"}
    assert "jit" in plan.modes
    assert "args[1]: jax float32[3] -> torch, copies 12 B" in str(plan)


def test_a_bound_method_is_explained():
    """With what it is bound to, as it is called."""

    class Scaled:
        factor = 2

        @ferry.wrap(inner="torch")
        def apply(self, x):
            return x * self.factor

    plan = ferry.explain_wrap(Scaled().apply, jnp.ones(3))
    assert [path for path, _ in plan.inputs] == ["args[1]"]


def test_notes_say_what_to_know():
    slow = ferry.explain_wrap(ferry.wrap(jnp.sin, inner="jax"), torch.ones(3))
    assert not slow.notes or "not jitted" not in slow.notes[-1]
    slow = ferry.explain_wrap(ferry.wrap(lambda x: jnp.sin(x), inner="jax"), torch.ones(3))  # noqa: PLW0108
    assert any("jax.jit(function)" in note for note in slow.notes)
    values = ferry.explain_wrap(ferry.wrap(torch.nonzero, inner="torch"), jnp.ones(3))
    assert values.outputs is None
    assert any("cannot be told without values" in note for note in values.notes)
    numpys = ferry.explain_wrap(ferry.wrap(np.sin, inner="numpy", jvp=print), jnp.ones(3))
    assert numpys.derivatives == "of the first order in forward mode"
    own = ferry.explain_wrap(ferry.wrap(np.sin, inner="numpy"), np.ones(3))
    assert str(own) == "sin: numpy's own function, called as it is"
    with pytest.raises(TypeError, match=r"a function that ferry\.wrap gave"):
        ferry.explain_wrap(np.sin, np.ones(3))


def test_under_jit_there_are_no_plans_yet():
    seen = []
    wrapped = ferry.wrap(torch.sin, inner="torch")
    jax.jit(lambda x: seen.append(ferry.explain_wrap(wrapped, x)) or x)(jnp.ones(3))
    assert seen[0].inputs == (("args[0]", None),)
    assert "when the compiled code runs" in str(seen[0])


def test_arguments_meet_on_one_device():
    """As in JAX: what nobody has put on a device goes to where the others were put, as parameters of a module are."""
    survives(
        """
        import jax, jax.numpy as jnp
        from tensorferry.backends.jax.functions import _together as together

        first, second = jax.devices("cpu")
        free, here, there = jnp.ones(3), jax.device_put(jnp.ones(3), first), jax.device_put(jnp.ones(3), second)
        assert [x.device for x in together([free, there, free])] == [second] * 3 == [(free + there).device] * 3
        assert [x.device for x in together([here, there, free])] == [first, second, first]
        assert together([free, free]) == [free, free]
        """,
        JAX_PLATFORMS="cpu",
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
    )


@pytest.mark.gpu
@pytest.mark.parametrize("jit", [False, True])
def test_a_module_on_the_host_where_jax_has_a_gpu(jit):
    apply, params = ferry.wrap_module(network())
    found = (jax.jit(apply) if jit else apply)(params, jnp.ones((5, 4)))
    assert found.device == params["0.weight"].device
    np.testing.assert_allclose(found, network()(torch.ones(5, 4)).detach(), rtol=1e-5)
    gradients = jax.grad(lambda params: (apply(params, jnp.ones((5, 4))) ** 2).sum())(params)
    assert {each.device for each in gradients.values()} == {found.device}
