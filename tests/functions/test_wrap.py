"""What a wrapped function takes and gives, what it refuses, and that it leaves everything as it was."""

from __future__ import annotations

import dataclasses
import gc
import inspect
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from tests.support import address, counted, lives

import tensorferry as ferry


def to_jax(function, **options):
    return ferry.wrap(function, inner="torch", **options)


def to_torch(function, **options):
    return ferry.wrap(function, inner="jax", **options)


ones = jnp.ones(3)

# -- trees, keywords, what is no tensor ------------------------------------------------------------


@dataclass
class Pair:
    left: Any
    right: Any


def test_trees_go_in_and_out():
    """Dataclasses, dicts and lists, with text and None in them; gradients come in the tree of the argument."""
    wrapped = to_torch(
        lambda pair, names: {"sum": pair.left + pair.right["x"], "names": names, "none": None}
    )
    pair = Pair(torch.ones(2, requires_grad=True), {"x": torch.ones(2)})
    found = wrapped(pair, ["a", "b"])
    assert found["names"] == ["a", "b"]
    assert found["none"] is None
    found["sum"].sum().backward()
    assert pair.left.grad.tolist() == [1, 1]


@pytest.mark.parametrize("jit", [False, True])
def test_keywords_and_fixed_values(jit):
    """Tensors by keyword are tensors; the rest decides which function it is, also where jit traces once."""
    wrapped = to_jax(
        lambda x, *, scale, mode, shift=0.0: x * scale + shift if mode == "up" else x - scale
    )
    inside = jax.jit if jit else lambda f: f
    assert inside(lambda x: wrapped(x, scale=2 * x, mode="up"))(ones).tolist() == [2, 2, 2]
    assert inside(lambda x: wrapped(x, scale=x, mode="down"))(ones).tolist() == [0, 0, 0]
    assert inside(lambda x: wrapped(x, scale=x, mode="up", shift=0.5))(ones).tolist() == [
        1.5,
        1.5,
        1.5,
    ]
    gradient = inside(jax.grad(lambda x, s: wrapped(x, scale=s, mode="up").sum(), argnums=1))(
        ones, ones
    )
    assert gradient.tolist() == [1, 1, 1]


def test_fixed_values_that_are_equal_are_not_the_same():
    """One is no True and no 1.0, and 0.0 is no -0.0."""
    wrapped = to_jax(
        lambda x, value: (
            x * (2 if value is True else 3 if type(value) is int else 1 / (value + 1e-30))
        )
    )
    assert [float(wrapped(ones, value)[0]) for value in (True, 1, True)] == [2, 3, 2]
    signs = to_jax(lambda x, value: x * float(np.copysign(1, value)))
    assert [float(signs(ones, value)[0]) for value in (0.0, -0.0, 0.0)] == [1, -1, 1]


def test_a_method_is_bound():
    """The decorator gives a plain function, with its name and its signature."""

    class Model:
        scale = 3.0

        @ferry.wrap(inner="torch")
        def call(self, x: Any) -> Any:
            """Doc."""
            return x * self.scale

    assert Model().call(ones).tolist() == [3, 3, 3]
    assert Model.call.__name__ == "call"
    assert Model.call.__doc__ == "Doc."
    assert list(inspect.signature(Model.call).parameters) == ["self", "x"]


def test_methods_of_no_object():
    """Above these decorators it does what it does below them."""

    class Model:
        scale = 3.0

        @ferry.wrap(inner="torch")
        @staticmethod
        def alone(x):
            return torch.sin(x)

        @ferry.wrap(inner="torch")
        @classmethod
        def of_class(cls, x):
            return torch.sin(x) * cls.scale

    expected = jnp.sin(ones)
    for model in (Model, Model()):
        assert jnp.allclose(model.alone(ones), expected)
        assert jnp.allclose(jax.jit(model.of_class)(ones), 3 * expected)


def test_integers_and_bools_pass():
    """They have no gradient, and their dtype is kept both ways."""
    wrapped = to_jax(lambda x, k, flag: ((x * k * flag).sum(), (k + 1), flag))
    k, flag = jnp.arange(3), jnp.array([True, False, True])
    value, other, same = jax.jit(wrapped)(ones, k, flag)
    assert (float(value), other.dtype, same.dtype) == (2, jnp.int32, jnp.bool_)
    (gx, gk, gflag) = jax.grad(lambda *a: wrapped(*a)[0], argnums=(0, 1, 2), allow_int=True)(
        ones, k, flag
    )
    assert gx.tolist() == [0, 0, 2]
    assert gk.dtype == gflag.dtype == jax.dtypes.float0
    x = torch.ones(3, requires_grad=True)
    index = torch.arange(3)
    with jax.enable_x64():
        y, i = to_torch(lambda x, i: (x * i, i + 1))(x, index)
    assert (i.dtype, i.requires_grad) == (torch.int64, False)
    y.sum().backward()
    assert x.grad.tolist() == [0, 1, 2]


def test_numbers_that_a_function_gives_are_tensors():
    assert ferry.wrap(lambda x: float(x.sum()), inner="numpy")(torch.ones(3)).item() == 3
    assert to_jax(lambda x: (x, 2.5))(ones)[1] == 2.5


def test_other_tensors_among_the_arguments():
    """NumPy's are data; the inner framework's too, unless a gradient would be lost."""
    wrapped = to_torch(lambda x, y: x * y)
    x = torch.ones(2, requires_grad=True)
    wrapped(x, np.full(2, 3, np.float32)).sum().backward()
    assert x.grad.tolist() == [3, 3]
    assert wrapped(x, jnp.full(2, 4.0)).tolist() == [4, 4]
    with pytest.raises(ferry.GradientError) as caught:
        to_jax(lambda x, y: x * y)(jnp.ones(2), x)
    assert "grad=" not in caught.value.hint  # wrap takes none
    assert to_jax(lambda x, y: x * y)(jnp.ones(2), x.detach()).tolist() == [1, 1]


@pytest.mark.parametrize("inside", [lambda function: function, jax.jit])
def test_arrays_of_numpys_beside_the_inner_frameworks_tensors_become_its(inside):
    """They say nothing about who calls, so the call is the function's own; in trees and by keyword, too."""
    array = np.full(3, 2, np.float32)
    wrapped = to_torch(lambda x, tree, *, y: x * tree["a"] * y)
    assert jax.grad(lambda x: inside(wrapped)(x, {"a": array}, y=array).sum())(ones).tolist() == [
        4,
        4,
        4,
    ]
    x = torch.ones(3, requires_grad=True)
    to_jax(torch.mul)(x, array).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]
    assert ferry.explain_wrap(to_jax(torch.mul), x, array).derivatives == "its own"
    with pytest.raises(ferry.LossyCastError, match=r'args\[1\]\["a"\] of') as caught:
        wrapped(ones, {"a": np.ones(3)}, y=array)
    assert caught.value.hint == 'wrap(function, inner="jax", dtype="fit")'


def test_which_framework_calls():
    """By the arguments, by name, or nobody knows."""
    own = to_jax(lambda x: x * 2)
    x = torch.ones(2, requires_grad=True)
    assert own(x).grad_fn is not None
    assert isinstance(own(np.ones(2)), np.ndarray)
    with pytest.raises(ferry.UnsupportedTypeError, match="there are no tensors") as caught:
        own(2.0)
    assert "outer=" in caught.value.hint
    made = to_jax(torch.ones, outer="jax")(3)
    assert isinstance(made, jax.Array)
    with pytest.raises(ferry.UnsupportedTypeError, match="in whose graph is it to be"):
        ferry.wrap(lambda x, y: x, inner="numpy")(ones, torch.ones(2))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"inner": "torch", "vjp": print}, TypeError),
        ({"inner": "torch", "dtype": "float32"}, ValueError),
        ({"inner": "torch", "copy": True}, TypeError),
        ({"inner": "nobody"}, ferry.UnknownFrameworkError),
    ],
)
def test_what_cannot_be_asked(options, error):
    with pytest.raises(error):
        ferry.wrap(lambda x: x, **options)


def test_a_backend_without_functions_is_refused_by_name():
    """It need not be installed for that."""
    with pytest.raises(ferry.UnsupportedTypeError, match="'cupy' brings nothing for them"):
        ferry.wrap(lambda x: x, inner="cupy")(ones)


# -- memory ----------------------------------------------------------------------------------------


def test_arguments_are_lent_to_a_jitted_function_and_results_are_ones_own():
    """No copy on the way in; what comes back can be written, and changes nobody's constant."""
    met = []
    x = ferry.to_torch(counted((64,)))
    constant = jnp.ones(64)

    @jax.jit
    def function(x):
        jax.debug.callback(lambda y: met.append(y.shape), x)
        return x, constant

    wrapped = to_torch(function)
    assert ferry.explain_wrap(wrapped, x).inputs[0][1].shares_memory
    same, other = wrapped(x)
    same += 1
    other += 1
    assert x.tolist() == list(range(64))
    assert float(constant.sum()) == 64
    assert wrapped(x)[1].tolist() == [1] * 64
    jax.effects_barrier()
    assert met


def test_nothing_is_lent_where_jit_is_switched_off():
    """The function sees the arrays themselves then, and may keep them."""
    kept = []
    wrapped = to_torch(jax.jit(lambda x: kept.append(x) or x))
    x = ferry.to_torch(counted((64,)))
    with jax.disable_jit():
        wrapped(x)
    x += 1
    assert kept[0].tolist() == list(range(64))


def test_a_donated_argument_is_not_written():
    x = ferry.to_torch(counted((64,)))
    found = to_torch(jax.jit(lambda x: x + 1, donate_argnums=0))(x)
    assert x.tolist() == list(range(64))
    assert found.tolist() == list(range(1, 65))


@pytest.mark.parametrize("jit", [False, True])
def test_writing_into_an_argument_reaches_no_immutable_tensor(jit):
    """The function gets memory of its own; its gradient is right all the same."""
    wrapped = to_jax(lambda x: x.mul_(3) + 1)
    inside = jax.jit if jit else lambda f: f
    x = jnp.ones(4)
    assert inside(wrapped)(x).tolist() == [4] * 4
    assert inside(jax.grad(lambda x: wrapped(x).sum()))(x).tolist() == [3] * 4
    assert x.tolist() == [1] * 4


def test_a_function_of_numpy_may_keep_its_arguments_and_its_results():
    """What jit gives lies in memory that is gone after the call, so they are copies; results are too."""
    kept = []
    state = np.zeros(3, np.float32)

    def function(x):
        kept.append(x)
        np.add(state, x, out=state)
        return state

    wrapped = ferry.wrap(function, inner="numpy", shapes=lambda x: x)
    first = jax.jit(wrapped)(ones)
    assert kept[0].flags.owndata or kept[0].base.flags.owndata
    second = wrapped(torch.ones(3))
    third = wrapped(torch.ones(3))
    assert [x.tolist() for x in (first, second, third)] == [[1] * 3, [2] * 3, [3] * 3]


def test_a_function_of_numpy_cannot_write_into_its_arguments():
    def function(x):
        x += 1
        return x

    x = torch.ones(3)
    with pytest.raises(ValueError, match="read-only"):
        ferry.wrap(function, inner="numpy")(x)
    assert x.tolist() == [1] * 3


def test_consent_to_share():
    """With copy=False a function that is not jitted gets the memory itself, and the result uses it."""
    x = ferry.to_torch(counted((64,)))
    assert address(to_torch(lambda x: x, copy=False)(x)) == address(x)
    assert address(to_torch(lambda x: x)(x)) != address(x)


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize("jit", [lambda f: f, jax.jit])
def test_consent_to_share_is_not_of_gradients(jit):
    """Those of a sum have no compact memory, which nobody has chosen."""
    x = torch.ones(3, requires_grad=True)
    to_torch(jit(lambda x: x * 2), copy=False)(x).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]
    assert jit(jax.grad(to_jax(lambda x: x.sum(), copy=False)))(ones).tolist() == [1, 1, 1]


def test_tensors_that_require_grad_and_are_no_arguments():
    weight = torch.ones(3, requires_grad=True)
    wrapped = to_jax(lambda x: x * weight)
    for call in (wrapped, jax.jit(wrapped), jax.grad(lambda x: wrapped(x).sum())):
        with pytest.raises(ferry.GradientError, match="are not among its arguments"):
            call(ones)
    weight.requires_grad_(False)
    assert to_jax(lambda x: x * weight)(ones).tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "draw", [torch.randn_like, torch.nn.functional.dropout, lambda x: torch.randperm(3) * x]
)
def test_random_numbers_without_a_generator(draw):
    for call in (to_jax(lambda x: x + draw(x)), jax.jit(to_jax(lambda x: x + draw(x)))):
        with pytest.raises(ferry.UnsupportedTypeError, match="draws random numbers"):
            call(ones)


def test_a_generator_that_is_passed():
    generator = torch.Generator()

    def function(x, seed):
        return x + torch.randn(3, generator=generator.manual_seed(int(seed)))

    wrapped = to_jax(function, shapes=lambda x, seed: x)
    assert jax.jit(wrapped)(ones, jnp.int32(7)).tolist() == wrapped(ones, jnp.int32(7)).tolist()


def test_a_generator_as_it_is_found_has_no_gradient():
    """The function is called again for that, and would draw others."""
    generator = torch.Generator().manual_seed(5)
    wrapped = to_jax(lambda x, g: (x * torch.rand(3, generator=g)).sum())
    assert wrapped(ones, generator) != wrapped(ones, generator)
    for gradient in (jax.grad(wrapped), jax.jit(jax.grad(wrapped), static_argnums=1)):
        with pytest.raises(
            (ferry.GradientError, jax.errors.JaxRuntimeError), match="would draw others"
        ):
            gradient(ones, generator).block_until_ready()
    seeded = to_jax(lambda x, g: (x * torch.rand(3, generator=g.manual_seed(7))).sum())
    assert (
        seeded(jax.grad(seeded)(ones, generator) * 0 + 1, generator)
        == jax.grad(seeded)(ones, generator).sum()
    )


@pytest.mark.parametrize("options", [{}, {"shapes": lambda x, seed: x}])
def test_a_generator_that_the_function_makes(options):
    """It is another one in each call."""

    def function(x, seed):
        return x * torch.rand(3, generator=torch.Generator().manual_seed(int(seed)))

    wrapped = to_jax(function, **options)
    gradient = jax.grad(lambda x, seed: wrapped(x, seed).sum())
    expected = wrapped(ones, 7).tolist()
    assert wrapped(ones, 7).tolist() == gradient(ones, 7).tolist() == expected
    assert jax.jit(gradient, static_argnums=1)(ones, 7).tolist() == expected
    if options:
        assert jax.jit(gradient)(ones, jnp.int32(7)).tolist() == expected


def test_a_generator_is_kept_no_longer_than_by_others():
    """Also where PyTorch has no weak references to generators."""
    from tensorferry.backends.torch.autograd import _Reference

    generator, other = torch.Generator(), torch.Generator()
    reference = _Reference(generator)
    assert reference() is generator
    assert len({reference, _Reference(generator), _Reference(other)}) == 2
    del generator
    assert reference() is None


def test_random_numbers_where_shapes_are_told():
    for function in (lambda x: x + torch.randn(3), lambda x: x + torch.randn(3) * float(x.sum())):
        with pytest.raises(
            (ferry.UnsupportedTypeError, jax.errors.JaxRuntimeError), match="draws random numbers"
        ):
            jax.jit(to_jax(function, shapes=lambda x: x))(ones).block_until_ready()


def test_random_numbers_that_only_values_lead_to():
    """A function that cannot be looked at is watched while it runs."""
    wrapped = to_jax(lambda x: x * torch.randn(3) if x.sum() > 0 else x)
    assert wrapped(-ones).tolist() == [-1, -1, -1]
    with pytest.raises(ferry.UnsupportedTypeError, match="draws random numbers"):
        wrapped(ones)


def test_shapes_that_depend_on_values():
    """Eagerly they are what they are; under jit they are refused, or said by the caller, and then checked."""
    positive = to_jax(lambda x: x[x > 0])
    assert positive(jnp.array([1.0, -1, 2])).tolist() == [1, 2]
    with pytest.raises(ferry.UnsupportedTypeError, match="cannot be told without values") as caught:
        jax.jit(positive)(ones)
    assert "shapes=" in caught.value.hint
    told = to_jax(lambda x: x[x > 0], shapes=lambda x: x)
    assert jax.jit(told)(ones).tolist() == [1, 1, 1]
    with pytest.raises((RuntimeError, ValueError), match="depend on values"):
        jax.jit(told)(-ones).block_until_ready()


def picked_above_one(*, both=False):
    """A function of NumPy whose result is empty where its shapes are looked for, with ones."""

    def pick(q):
        return (q[q > 1], q * 2) if both else q[q > 1]

    def vjp(primals, outputs, cotangents):
        assert outputs[0].shape == cotangents[0].shape
        return (np.where(primals[0] > 1, cotangents[0].sum(), 0).astype(primals[0].dtype),)

    return ferry.wrap(
        pick, inner="numpy", **({} if both else {"vjp": vjp, "jvp": lambda p, t: (t[0][p[0] > 1],)})
    )


@pytest.mark.parametrize(
    "call",
    [
        jax.jit(picked_above_one()),
        jax.jit(lambda q: picked_above_one()(q).sum()),
        jax.jit(lambda q: picked_above_one(both=True)(q)[0]),
        lambda x: jax.jit(jax.vmap(picked_above_one()))(jnp.stack([x, x])),
        jax.jit(jax.grad(lambda q: picked_above_one()(q).sum())),
        lambda x: jax.lax.scan(
            lambda carry, q: (carry, picked_above_one()(q)), 0.0, jnp.stack([x, x])
        ),
    ],
    ids=["jit", "sum", "one of two", "vmap", "grad", "scan"],
)
def test_a_result_that_is_empty_only_where_shapes_are_looked_for(call):
    """XLA makes no call for an empty result, so the call is marked as one that has to be made."""
    with pytest.raises((RuntimeError, ValueError), match="depend on values"):
        jax.block_until_ready(call(jnp.array([1.0, 2.0, 3.0])))


def test_a_result_that_is_empty_is_one():
    assert jax.jit(picked_above_one())(ones).shape == (0,)
    assert jax.jit(ferry.wrap(lambda q: q[:0], inner="numpy"))(ones).shape == (0,)


def test_derivatives_have_the_shape_that_the_outputs_have():
    """Not that of a call with ones; nothing is traced here."""
    x, picked = jnp.array([1.0, 2.0, 3.0]), picked_above_one()
    value, gradient = jax.value_and_grad(lambda q: picked(q).sum())(x)
    assert (value, gradient.tolist()) == (5, [0, 2, 2])
    outputs, tangents = jax.jvp(picked, (x,), (jnp.arange(3.0),))
    assert (outputs.tolist(), tangents.tolist()) == ([2, 3], [1, 2])


def test_a_number_of_results_that_changes():
    """It is promised to jit, as shapes are."""
    repeated = [1]
    wrapped = to_jax(lambda x: [x] * repeated[0])
    assert len(wrapped(ones)) == 1
    repeated[0] = 2
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"ShapeError.*it promised"):
        jax.block_until_ready(jax.jit(wrapped)(ones))


def test_shapes_of_numpys_functions():
    """Without shapes= the function is called once, with ones; if that fails, it is said so."""
    calls = []

    def function(x):
        calls.append(x.copy())
        return {"twice": np.concatenate([x, x])}

    wrapped = jax.jit(ferry.wrap(function, inner="numpy"))
    assert wrapped(2 * ones)["twice"].tolist() == [2] * 6
    assert [each.tolist() for each in calls] == [[1] * 3, [2] * 3]
    told = ferry.wrap(
        function, inner="numpy", shapes=lambda x: {"twice": jax.ShapeDtypeStruct((6,), "float32")}
    )
    calls.clear()
    assert jax.jit(told)(2 * ones)["twice"].tolist() == [2] * 6
    assert len(calls) == 1
    with pytest.raises(ferry.UnsupportedTypeError, match="by calling it once with ones"):
        jax.jit(ferry.wrap(lambda x: x[5], inner="numpy"))(ones)


def test_numbers_that_jax_has_not():
    """They are refused with the path of the argument; `dtype="fit"` narrows them, gradients stay as wide."""
    loss = jax.jit(lambda params: (params["w"] ** 2).sum())
    params = {"w": torch.ones(2, dtype=torch.float64, requires_grad=True)}
    with pytest.raises(ferry.LossyCastError, match=r'args\[0\]\["w"\]') as caught:
        to_torch(loss)(params)
    assert 'dtype="fit"' in caught.value.hint
    to_torch(loss, dtype="fit")(params).backward()
    assert params["w"].grad.tolist() == [2, 2]
    assert params["w"].grad.dtype is torch.float64
    wide = to_jax(lambda x: x.double())
    for call in (wide, jax.jit(wide)):
        with pytest.raises(ferry.LossyCastError):
            call(ones)
    with pytest.raises(ferry.LossyCastError, match="does not fit") as caught:
        to_torch(loss, dtype="fit")({"w": torch.tensor([2**40])})
    assert 'dtype="fit"' not in (caught.value.hint or "")  # which has been said
    narrow = to_jax(lambda x: (x.double(), x.argmax()), dtype="fit")
    for call in (narrow, jax.jit(narrow)):
        assert [y.dtype for y in call(ones)] == [jnp.float32, jnp.int32]


def test_keys_and_foreign_results_are_refused():
    with pytest.raises(ferry.UnsupportedTypeError, match="no other framework has it"):
        to_jax(lambda x, key: x)(ones, jax.random.key(0))
    with pytest.raises(ferry.UnsupportedTypeError, match="gave a tensor of torch's"):
        to_torch(lambda x: torch.ones(2))(torch.ones(2))


def test_numpys_derivatives_are_what_was_given():
    """Without one it is refused; a second is refused; what is no tuple, or has another shape, is said."""
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    run = ferry.wrap(np.sin, inner="numpy", vjp=lambda p, o, c: (np.cos(p[0]) * c[0],))
    assert torch.autograd.gradcheck(run, x)
    with pytest.raises(ferry.GradientError, match="has no second derivative"):
        torch.func.jacrev(torch.func.jacrev(run))(x)
    with pytest.raises(ferry.GradientError, match="no forward mode"):
        torch.func.jvp(run, (x,), (x,))
    with pytest.raises(ferry.GradientError, match="no gradient of it is known"):
        ferry.wrap(np.sin, inner="numpy")(x).sum().backward()
    for wrong, error in (
        (lambda p, o, c: c[0], TypeError),
        (lambda p, o, c: (c[0][:2],), ferry.ShapeError),
        (lambda p, o, c: (c[0] * 1j,), TypeError),
    ):
        with pytest.raises(error):
            ferry.wrap(np.sin, inner="numpy", vjp=wrong)(x).sum().backward()


def test_numpys_adjoint_is_told_the_outputs_once():
    """The function is run once for a value and its gradient."""
    calls = []

    def run(x):
        calls.append(1)
        return x * 2

    wrapped = ferry.wrap(run, inner="numpy", vjp=lambda p, o, c: (o[0] * c[0],), shapes=lambda x: x)
    value, gradient = jax.jit(jax.value_and_grad(lambda x: wrapped(x).sum()))(3 * ones)
    assert (float(value), gradient.tolist(), len(calls)) == (18, [6, 6, 6], 1)


def test_sharded_arrays_are_refused():
    lives(
        """
import jax, jax.numpy as jnp, tensorferry as ferry
mesh = jax.sharding.Mesh(jax.devices(), ("i",))
x = jax.device_put(jnp.ones(4), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("i")))
double = ferry.wrap(lambda x: 2 * x, inner="torch")
for call in (double, jax.jit(double)):
    try:
        call(x)
    except ferry.UnsupportedTypeError as error:
        assert "is on 2 devices" in str(error), error
    else:
        raise AssertionError("it was taken")
""",
        JAX_PLATFORMS="cpu",
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
    )


# -- contexts, threads -----------------------------------------------------------------------------


def test_gradients_do_not_depend_on_no_grad():
    """Of the framework inside; outside it means what it always does."""
    wrapped = to_jax(lambda x: (x**3).sum())
    with torch.no_grad():
        assert jax.grad(wrapped)(ones).tolist() == [3, 3, 3]
        assert not torch.is_grad_enabled()
        assert not to_torch(jnp.sin)(torch.ones(3, requires_grad=True)).requires_grad
    with torch.inference_mode():
        assert jax.jit(jax.grad(wrapped))(ones).tolist() == [3, 3, 3]
        assert jax.grad(to_jax(lambda x: (x**2).sum()))(ones).tolist() == [2, 2, 2]
    assert torch.is_grad_enabled()


def test_autocast_is_as_it_was_when_it_was_called():
    """Also on the thread where jit calls back, and for the gradient; afterwards nothing is left of it."""
    wrapped = to_jax(lambda a: (a @ a).float())
    a = jnp.full((2, 2), 1 + 2.0**-10)
    exact = wrapped(a)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded, jitted = wrapped(a), jax.jit(wrapped)(a)
    assert jitted.tolist() == rounded.tolist() != exact.tolist()
    assert not torch.is_autocast_enabled("cpu")
    assert wrapped(a).tolist() == exact.tolist()


def test_default_dtypes_are_the_callers():
    """The function meets PyTorch's as it is, and it is so afterwards, also where it raised."""

    def function(x):
        if x.dim() > 1:
            raise KeyError("no such thing")
        return x.sum() * torch.zeros(()).to(torch.float32) + x.sum(), torch.ones(2)

    wrapped = to_jax(function)
    assert [str(y.dtype) for y in jax.jit(wrapped)(ones)] == ["float32", "float32"]
    torch.set_default_dtype(torch.float64)
    try:
        with jax.enable_x64():
            assert [str(y.dtype) for y in jax.jit(lambda x: wrapped(x))(ones)] == [  # noqa: PLW0108
                "float32",
                "float64",
            ]
            gradient = jax.jit(jax.grad(lambda x: to_jax(function)(x)[0]))(ones)
        assert (gradient.tolist(), str(gradient.dtype)) == ([1, 1, 1], "float32")
        with pytest.raises(KeyError):
            to_jax(function)(jnp.ones((2, 2)))
        assert torch.get_default_dtype() is torch.float64
        assert not jax.config.jax_enable_x64
    finally:
        torch.set_default_dtype(torch.float32)


def test_x64_reaches_the_gradient_outside_of_its_block():
    """A backward pass is not in the block, and may be on another thread."""
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    with jax.enable_x64():
        loss = to_torch(jax.jit(lambda x: (x / 3).sum()))(x)
    assert not jax.config.jax_enable_x64
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join()
    assert x.grad.tolist() == [1 / 3, 1 / 3]
    assert not jax.config.jax_enable_x64


def test_64_bit_results_where_only_this_thread_has_them():
    """JAX would narrow them on its callback thread."""
    wrapped = to_jax(lambda x: (x / 3, torch.complex(x, -x), x.long() + 2**40, x.float()))
    with jax.enable_x64():
        found = jax.jit(wrapped)(jnp.arange(3.0))
    assert [str(y.dtype) for y in found] == ["float64", "complex128", "int64", "float32"]
    assert [y.tolist() for y in found] == [
        [0, 1 / 3, 2 / 3],
        [0, 1 - 1j, 2 - 2j],
        [2**40, 2**40 + 1, 2**40 + 2],
        [0, 1, 2],
    ]


@pytest.mark.parametrize("shape", [(5,), (), (0,), (2, 0, 3)])
@pytest.mark.parametrize(
    "kind", ["bool", "int4", "uint8", "int32", "float16", "bfloat16", "float8_e5m2", "complex64"]
)
def test_every_dtype_crosses_under_jit(kind, shape):
    """XLA's own memory is read and written, also where there is none."""
    x = jnp.ones(shape, kind)
    found = jax.jit(ferry.wrap(lambda x: (x, x[..., None]), inner="numpy", shapes=None))(x)
    assert [y.dtype for y in found] == [x.dtype] * 2
    assert [y.shape for y in found] == [shape, (*shape, 1)]
    assert (np.asarray(found[0]) == np.asarray(x)).all()


@pytest.mark.parametrize("inner", ["torch", "tensorflow", "numpy"])
def test_what_a_function_keeps_under_jit_is_its_own(inner):
    """Not XLA's memory, which is there for the time of the call."""
    kept, given = [], []

    def function(x):
        kept.append(x)
        given.append(x + 1)
        return given[-1]

    step = (
        jax.jit(ferry.wrap(function, inner=inner, shapes=lambda x: x))
        .lower(jnp.ones(1000))
        .compile()
    )
    kept.clear()
    given.clear()
    for number in range(8):
        step(jnp.full(1000, float(number))).block_until_ready()
    assert [float(x[-1]) for x in kept] == list(range(8))
    assert [float(x[-1]) for x in given] == list(range(1, 9))


def test_random_state_of_both_sides_is_as_it_was():
    torch.manual_seed(3)
    before, numbers = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002 - the global state is meant
    with pytest.raises(ferry.UnsupportedTypeError):
        jax.jit(to_jax(lambda x: x + torch.randn(3)))(ones)
    jax.jit(jax.hessian(to_jax(lambda x: x.prod())))(ones)
    assert torch.equal(torch.get_rng_state(), before)
    assert (np.random.get_state()[1] == numbers).all()  # noqa: NPY002


def test_subnormals_are_kept_on_callback_threads():
    tiny = jnp.full(3, 1e-40, jnp.float32)
    wrapped = ferry.wrap(
        lambda x: (x * np.float32(0.5) > 0).astype(np.float32), inner="numpy", shapes=lambda x: x
    )
    assert jax.jit(wrapped)(tiny).tolist() == [1, 1, 1]


def test_each_calls_the_other():
    """JAX calls PyTorch, which calls JAX, which calls NumPy; with gradients, eagerly and jitted."""
    square = ferry.wrap(lambda x: x * x, inner="numpy", vjp=lambda p, o, c: (2 * p[0] * c[0],))
    middle = to_torch(lambda x: square(x) + x)
    outer = to_jax(
        lambda x: (middle(x) * 2).sum(), shapes=lambda x: jax.ShapeDtypeStruct((), "float32")
    )
    for gradient in (jax.grad(outer), jax.jit(jax.grad(outer))):
        assert gradient(3 * ones).tolist() == [14, 14, 14]


def test_many_threads():
    """One function, called with several shapes at once, gives each its own."""
    wrapped = to_jax(lambda x, tree: {"y": x * tree["s"]})
    jitted = jax.jit(jax.grad(lambda x, s: wrapped(x, {"s": s})["y"].sum()))

    def work(number):
        x = jnp.full(number % 5 + 1, float(number))
        one, other = wrapped(x, {"s": x})["y"], jitted(x, x)
        return (
            one.shape == other.shape == x.shape
            and float(one[0]) == number**2
            and float(other[0]) == number
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(200)))


def test_what_is_kept_is_bounded():
    """Each shape and each fixed value is remembered for a while; functions that are gone are gone."""
    from tensorferry.functions.wrap import WRAPPED

    wrapped = ferry.wrap(lambda x, k: x * k, inner="numpy", shapes=lambda x, k: x)
    kept = wrapped.__dict__[WRAPPED]
    for number in range(600):
        wrapped(ones, number)
    assert kept._function.cache_info().currsize == 256
    flat = kept.ready((ones, 2), {}).function.flat
    for length in range(600):
        flat.output_specs((((length,), "float32"),))
    assert flat.output_specs.cache_info().currsize == 256


def test_unused_outputs_and_inputs_cost_nothing():
    """Only the gradients that are asked for are computed, from the outputs that were used."""
    asked = []

    def vjp(primals, outputs, cotangents):
        asked.append([bool(np.any(ct)) for ct in cotangents])
        return tuple(ct * 2 for ct in cotangents)

    pair = ferry.wrap(lambda x, y: (x * 2, y * 2), inner="numpy", vjp=vjp)
    x = torch.ones(2, requires_grad=True)
    pair(x, torch.ones(2))[1].sum().requires_grad_()
    pair(x, torch.ones(2))[0].sum().backward()
    assert asked == [[True, False]]
    assert x.grad.tolist() == [2, 2]


def test_a_function_is_collected():
    """Nothing keeps a wrapped function alive once nobody has it."""
    import weakref

    def make():
        def function(x):
            return x * 2

        wrapped = to_jax(function)
        wrapped(ones)
        return weakref.ref(function)

    gone = make()
    gc.collect()
    assert gone() is None


def test_a_class_is_not_wrapped():
    """What comes of calling one is no tensor: said when it is wrapped, not when it is made."""

    @dataclasses.dataclass
    class Point:
        x: float

    with pytest.raises(TypeError, match="a function is wrapped"):
        ferry.wrap(Point, inner="numpy")


@pytest.mark.parametrize("keyword", ["inner", "outer"])
def test_an_unknown_framework_is_answered_with_the_keyword_that_named_it(keyword):
    """The hint can be typed where the mistake was made."""
    with pytest.raises(ferry.UnknownFrameworkError) as caught:
        ferry.wrap(lambda x: x, **{"inner": "torch", keyword: "jaxx"})
    assert str(caught.value.hint) == f'{keyword}="jax"'


@pytest.mark.parametrize("keyword", ["inner", "outer"])
@pytest.mark.parametrize("name", ["cpu", "float32"])
def test_a_device_or_dtype_for_a_framework_is_answered_with_frameworks(keyword, name):
    """`wrap` has no keyword for the device or the dtype."""
    with pytest.raises(ferry.UnknownFrameworkError) as caught:
        ferry.wrap(lambda x: x, **{"inner": "torch", keyword: name})
    ways = str(caught.value.hint).split(" or ")
    assert f'{keyword}="torch"' in ways
    for way in ways:
        changes = eval(f"dict({way})", {"dict": dict})  # noqa: S307 - the code of the hint
        assert callable(ferry.wrap(lambda x: x, **{"inner": "torch", **changes}))
