"""Inside `torch.compile` a function leaves the graph, or is one operator in it where the graph may not break."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
import torch
from tests.support import lives

import tensorferry as ferry


@ferry.wrap(inner="jax")
@jax.jit
def pair(x, y):
    return jnp.sin(x) * y, (x * y).sum()


SETTING = (
    "recompile_limit" if hasattr(torch._dynamo.config, "recompile_limit") else "cache_size_limit"
)
"""The name of PyTorch's limit, which is another in 2.6."""


@ferry.wrap(inner="jax")
def of_tree(params, x, *, scale, mode):
    return {"loss": ((params["w"] * x) ** 2).sum() * scale, "rest": [x, None, mode]}


def of_pair(x, y):
    a, b = pair(x * 2, y)
    return (a * 2).sum() + b


def of_a_tree(x, y):
    found = of_tree({"w": x}, y * 2, scale=3.0, mode="kept")
    assert found["rest"][2] == "kept"
    return found["loss"] * 2


def graphs_of(function, x, y, *, fullgraph, backend="eager"):
    """The value, the gradients, and how many graphs the compiler made."""
    torch._dynamo.reset()
    made = []

    def counted(graph, inputs):
        made.append(graph)
        return torch._dynamo.lookup_backend(backend)(graph, inputs)

    value = torch.compile(function, fullgraph=fullgraph, backend=counted)(x, y)
    return value, torch.autograd.grad(value, (x, y)), len(made)


@pytest.mark.parametrize(
    "backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("function", [of_pair, of_a_tree])
@pytest.mark.parametrize("fullgraph", [False, True])
def test_value_and_gradients(function, fullgraph, backend):
    """They are those without the compiler."""
    x, y = (torch.linspace(start, 1, 3).requires_grad_() for start in (0, 0.5))
    value, gradients, graphs = graphs_of(function, x, y, fullgraph=fullgraph, backend=backend)
    expected = function(x, y)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradients, torch.autograd.grad(expected, (x, y)))
    assert graphs == (1 if fullgraph else 2)


def test_a_second_shape():
    """What the operator promises is looked up by shape."""
    torch._dynamo.reset()
    compiled = torch.compile(of_pair, fullgraph=True, backend="aot_eager", dynamic=False)
    for length in (3, 5, 3):
        x = torch.ones(length)
        torch.testing.assert_close(compiled(x, x), of_pair(x, x))


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_length_that_changes(dynamic):
    """From the second on the compiler would take it for a symbol."""
    torch._dynamo.reset()
    compiled = torch.compile(of_pair, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for length in (3, 5, 4, 3):
        x = torch.ones(length, requires_grad=True)
        torch.testing.assert_close(
            *(torch.autograd.grad(each(x, x), x) for each in (compiled, of_pair))
        )


def test_more_lengths_than_pytorch_compiles_for():
    """Where the graph may break there is no limit."""

    def square(x):
        return of_square(x * 2)

    def call(compiled, lengths):
        for length in lengths:
            x = torch.ones(length, requires_grad=True)
            assert torch.autograd.grad(compiled(x), x)[0].tolist() == [8] * length

    torch._dynamo.reset()
    with torch._dynamo.config.patch({SETTING: 3}):
        call(torch.compile(square, backend="eager"), range(2, 8))


# In a process of its own: after its error PyTorch leaves its hook of frames behind, which changes
# counts of references.
LIMIT = """
import warnings
import torch, jax, tensorferry as ferry
square = ferry.wrap(jax.jit(lambda x: (x**2).sum()), inner="jax")

def of_square(x):
    return square(x * 2)

def call(compiled, lengths):
    for length in lengths:
        x = torch.ones(length, requires_grad=True)
        assert torch.autograd.grad(compiled(x), x)[0].tolist() == [8] * length

whole = torch.compile(of_square, fullgraph=True, backend="eager")
with torch._dynamo.config.patch(SETTING=3):
    call(whole, range(2, 4))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(whole, range(4, 5))
    said = [str(each.message) for each in caught if "fullgraph=True" in str(each.message)]
    assert len(said) == 1 and "of_square is compiled with fullgraph=True" in said[0], said
    assert "Hint: torch.compile(function) without fullgraph=" in said[0]
    try:
        call(whole, range(5, 6))
    except Exception as error:  # of another type in each release
        assert "Limit" in type(error).__name__, error
    else:
        raise AssertionError("PyTorch has no limit any more")
with torch._dynamo.config.patch(SETTING=64):
    call(whole, range(5, 9))
"""


def test_the_limit_of_a_whole_graph_is_said_before_it_is_met():
    """And what its hint says lifts it."""
    lives(LIMIT.replace("SETTING", SETTING))


def test_exported():
    """Without Dynamo, as torch.export traces."""

    class Module(torch.nn.Module):
        def forward(self, x):
            return of_pair(x, x)

    x = torch.ones(3)
    exported = torch.export.export(Module(), (x,), strict=False)
    torch.testing.assert_close(exported.module()(2 * x), of_pair(2 * x, 2 * x))


def test_transformed_by_torch_func():
    """The compiler looks at what autograd calls then."""
    torch._dynamo.reset()
    expected, found = [[2, 2, 2], [2, 2, 2]], {}
    for function in (untraced, of_square):
        gradients = torch.compile(torch.vmap(torch.func.grad(function)), backend="eager")
        try:
            found[function] = gradients(torch.ones(2, 3)).tolist()
        except AssertionError as error:
            found[function] = error
        if found[untraced] != expected:
            pytest.skip(
                "this PyTorch compiles no gradient of its own functions that are not traced (before 2.12)"
            )
    assert found[of_square] == expected


class Square(torch.autograd.Function):
    """A function of PyTorch's own whose gradient is not recorded."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return (x * x).sum()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, given):
        return 2 * ctx.saved_tensors[0] * given


@torch._dynamo.disable
def untraced(x):
    return Square.apply(x)


@ferry.wrap(inner="jax")
def of_square(x):
    return (x * x).sum()
