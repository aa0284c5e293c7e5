"""The primitive is made on this version of JAX; on one with other interfaces another way stands in, and says so."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
import torch

import tensorferry as ferry
from tensorferry.backends.jax import functions as primitives
from tensorferry.backends.jax.functions import OUTER

x = jnp.arange(3.0)
PASSED = {"int4": "xi8>", "uint4": "xui8>", "int2": "xi8>", "float4_e2m1fn": "xf32>"}
"""As what packed elements are given to a callback, and taken from it."""


def test_this_version_has_what_the_primitive_takes():
    assert not OUTER.remarks()
    assert OUTER.call.by_buffer is not None


@pytest.fixture
def _no_buffers(monkeypatch):
    """As JAX 0.6.0 is, and as it is on a device."""
    primitive = primitives._Primitive(OUTER)
    monkeypatch.setattr(primitive, "by_buffer", None)
    monkeypatch.setattr(OUTER, "_call", primitive)


@pytest.mark.parametrize("fixture", ["_no_buffers", "_other_interfaces"])
@pytest.mark.parametrize("kind", PASSED)
def test_packed_elements_cross_as_whole_bytes(fixture, kind, request):
    """A device hands packed elements over as if each had a byte; the function gets and gives the dtype itself."""
    request.getfixturevalue(fixture)
    kinds = []

    def function(x):
        kinds.append(x.dtype.name)
        return x, x[..., None]

    step = jax.jit(ferry.wrap(function, inner="numpy", shapes=None))
    values = jnp.array([1, 0, 1]).astype(kind)
    same, longer = step(values)
    assert (same.dtype, longer.shape) == (values.dtype, (3, 1))
    assert same.astype("int32").tolist() == longer[:, 0].astype("int32").tolist() == [1, 0, 1]
    assert set(kinds) == {kind}
    calls = [
        line
        for line in step.lower(values).as_text().splitlines()
        if "callback" in line and "custom_call" in line
    ]
    assert len(calls) == 1
    types = calls[0].rpartition(" : ")[2]
    assert types.count(PASSED[kind]) == 3, types


@pytest.mark.usefixtures("_no_buffers")
def test_without_xlas_own_memory():
    wrapped = ferry.wrap(lambda x: (x**3, x.long() + 7), inner="torch", dtype="fit")
    cubes, numbers = jax.jit(wrapped)(x.astype("bfloat16"))
    assert (cubes.dtype, cubes.tolist(), numbers.dtype) == ("bfloat16", [0, 1, 8], "int32")
    assert jax.jit(jax.hessian(lambda x: wrapped(x)[0].sum()))(x).tolist() == [
        [0, 0, 0],
        [0, 6, 0],
        [0, 0, 12],
    ]


@pytest.mark.usefixtures("_no_buffers")
def test_64_bit_results_that_would_be_narrowed_are_refused():
    wrapped = ferry.wrap(lambda x: x.double() / 3, inner="torch")
    with jax.enable_x64(), pytest.raises(ferry.LossyCastError, match="only this thread"):
        jax.jit(wrapped)(x)


@pytest.fixture
def _other_interfaces(monkeypatch):
    monkeypatch.delattr(jax.interpreters.mlir, "emit_python_callback")
    monkeypatch.setattr(OUTER, "_call", None)
    with pytest.warns(UserWarning, match="jax_cpu_enable_async_dispatch"):
        assert OUTER.call.remarks


@pytest.mark.usefixtures("_other_interfaces")
def test_another_version_falls_back_and_says_so():
    """Values, batches and reverse mode of every order hold; forward mode is JAX's to refuse."""
    wrapped = ferry.wrap(lambda x: (x**3).sum(), inner="torch")
    assert any("jax.pure_callback is used" in note for note in ferry.explain_wrap(wrapped, x).notes)
    assert jax.jit(wrapped)(x) == 9
    assert jax.jit(jax.grad(wrapped))(x).tolist() == [0, 3, 12]
    assert jax.jit(jax.jacrev(jax.grad(wrapped)))(x).tolist() == [[0, 0, 0], [0, 6, 0], [0, 0, 12]]
    assert jax.vmap(jax.grad(wrapped))(jnp.stack([x, x])).tolist() == [[0, 3, 12]] * 2
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(wrapped, (x,), (x,))


@pytest.mark.parametrize("fixture", ["_no_buffers", "_other_interfaces"])
def test_an_empty_result_is_not_taken_on_trust(fixture, request):
    request.getfixturevalue(fixture)
    wrapped = ferry.wrap(lambda x: x[x > 1], inner="numpy")
    with pytest.raises(
        (RuntimeError, ValueError, ferry.UnsupportedTypeError),
        match=r"depend on values|not call it",
    ):
        jax.jit(wrapped)(x).block_until_ready()


@pytest.mark.usefixtures("_other_interfaces")
def test_complex_gradients_of_the_other_way():
    z = jnp.array([1 + 2j, 3 - 1j])
    wrapped = ferry.wrap(lambda z: (z * z).real.sum(), inner="torch")
    assert jax.grad(wrapped)(z).tolist() == jax.grad(lambda z: (z * z).real.sum())(z).tolist()
    assert torch.is_grad_enabled()


def test_where_jax_keeps_callbacks_otherwise_the_older_way_stands_in(monkeypatch):
    """What the newer one is lowered with is looked for when the primitive is made, not when it is used."""
    from jax.interpreters import mlir

    assert primitives._by_buffer(mlir) is not None
    monkeypatch.delattr(mlir.ModuleContext, "add_host_callback")
    assert primitives._by_buffer(mlir) is None
