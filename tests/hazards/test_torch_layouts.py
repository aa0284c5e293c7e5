"""H75, H76, H78, and what PyTorch keeps that others do not: expanded memory, the order of axes, 65 axes, traces."""

from __future__ import annotations

import contextlib
import warnings

import numpy as np
import pytest
from tests.support import lives

import tensorferry as ferry
from tensorferry.backends import registry
from tensorferry.execution.run import verifying

torch = pytest.importorskip("torch")
tf = pytest.importorskip("tensorflow")
jax = pytest.importorskip("jax")

# -- H75: elements that lie in one place -----------------------------------------------------------

REPEATED = {
    "expanded": lambda: torch.arange(3.0).expand(4, 3),
    "expanded from one": lambda: torch.ones(1).expand(5),
    "windows": lambda: torch.arange(10).unfold(0, 3, 1),
    "as_strided": lambda: torch.arange(10.0).as_strided((4, 4), (2, 1)),
    "bfloat16": lambda: torch.ones(1, dtype=torch.bfloat16).expand(4),
    "a parameter": lambda: torch.nn.Parameter(torch.ones(1)).expand(3),
    "no gradient": lambda: torch.nn.Parameter(torch.arange(3.0).expand(2, 3), requires_grad=False),
}
APART = {
    "every other": lambda: torch.arange(10.0)[::2],
    "columns": lambda: torch.arange(12.0).reshape(3, 4)[:, ::2],
    "transposed": lambda: torch.arange(12.0).reshape(3, 4).T,
    "a length of 1": lambda: torch.arange(3.0).expand(1, 3),
    "windows side by side": lambda: torch.arange(9.0).unfold(0, 3, 3),
    "permuted and strided": lambda: torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1)[::3],
    "no elements": lambda: torch.ones(5, 1).expand(5, 0),
    "bfloat16, every other": lambda: torch.ones(6, dtype=torch.bfloat16)[::2],
}


@pytest.mark.parametrize("paths", [True, False], ids=["fast path", "planned"])
@pytest.mark.parametrize("name", REPEATED)
def test_H75_what_lies_in_one_place_is_read_only(name, paths):
    """One write through NumPy would change several elements; the memory is shared all the same."""
    x = REPEATED[name]()
    with verifying(not paths):
        array = ferry.to_numpy(x)

    assert not array.flags.writeable
    assert ferry.shares_memory(array, x)
    assert array.tolist() == x.tolist()
    assert ferry.to_numpy(x, copy=True).flags.writeable
    plan = ferry.explain(x, "numpy")
    assert plan.result.writable is False
    assert "in one place" in str(plan) or x.requires_grad
    names = {"x": x}
    exec(plan.code, names)  # noqa: S102 - that is what the code is for
    assert not names["y"].flags.writeable


@pytest.mark.parametrize("paths", [True, False], ids=["fast path", "planned"])
@pytest.mark.parametrize("name", APART)
def test_H75_what_lies_apart_stays_writable(name, paths):
    """Strides alone are no reason."""
    x = APART[name]()
    with verifying(not paths):
        array = ferry.to_numpy(x)

    assert array.flags.writeable
    assert ferry.shares_memory(array, x) == bool(x.numel())


# -- H76: memory that PyTorch gives away -----------------------------------------------------------


def resize(x):
    # PyTorch itself refuses that once NumPy has the memory.
    with contextlib.suppress(RuntimeError):
        x.resize_(1 << 20)


RELEASES = {
    "set_": lambda x: x.set_(torch.zeros(1)),
    "resize_": resize,
    "data": lambda x: setattr(x, "data", torch.zeros(1)),
}


@pytest.mark.parametrize("how", ["set_", "resize_", "data"])
@pytest.mark.parametrize("target", ["numpy", "tensorflow", "jax"])
def test_H76_what_was_shared_outlives_the_tensors_own_memory(target, how):
    """`x.set_`, `x.resize_` and `x.data = …` free the memory of a DLPack view of `x` itself."""
    x = torch.arange(4096.0)
    shared = ferry.convert(x, target, copy=False)
    assert ferry.shares_memory(shared, x)

    RELEASES[how](x)
    del x
    crowd = [torch.full((4096,), -1.0) for _ in range(64)]

    assert ferry.to_list(shared) == list(range(4096))
    assert crowd


@pytest.mark.parametrize("how", ["set_", "data"])
def test_H76_what_is_exported_to_other_frameworks_outlives_it_too(how):
    """What stands for a tensor when memory of a device is exported holds the memory, not the tensor."""
    x = torch.arange(4096.0)
    taken = torch.from_dlpack(registry.ready("torch").export_dlpack(x))

    RELEASES[how](x)
    del x
    crowd = [torch.full((4096,), -1.0) for _ in range(64)]

    assert taken.tolist() == list(range(4096))
    assert crowd


def test_H76_the_code_that_shares_with_tensorflow_goes_over_numpy():
    """`x.numpy()` survives all three."""
    code = ferry.explain(torch.arange(64.0), "tensorflow", copy=False).code

    assert "x.numpy().__dlpack__()" in code


# -- H78: torch.jit.trace --------------------------------------------------------------------------

TRACED = """
import sys, warnings
import torch, tensorferry as ferry

seen = []

def function(x):
    seen.append(eval(sys.argv[1]))
    return x * 2

with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    torch.jit.trace(function, torch.arange(3.0), check_trace=False)
words = [str(each.message) for each in said if issubclass(each.category, torch.jit.TracerWarning)]
assert any("trace" in each and "constant" in each for each in words), words
assert ferry.to_list(seen[0], dtype="float64") == [0, 1, 2], seen
"""


@pytest.mark.parametrize(
    "call",
    [
        "ferry.to_numpy(x)",
        "ferry.to_numpy(x, copy=True)",
        "ferry.to_numpy(x.to(torch.bfloat16))",
        "ferry.to_numpy(x.requires_grad_())",
        "ferry.to_list(x)",
        "ferry.to_jax(x)",
        "ferry.to_tensorflow(x)",
        "ferry.convert_tree([x], 'jax')[0]",
        "ferry.to_jax(x, dtype='bfloat16')",
    ],
)
def test_H78_what_leaves_a_trace_is_warned_of_by_name(call):
    """In the trace it is a constant: PyTorch's TracerWarning says so, for every dtype and every target."""
    lives(TRACED, call)


@pytest.mark.parametrize(
    "keywords", [{}, {"dtype": "float16"}, {"copy": True}, {"device": "cpu"}], ids=str
)
def test_H78_what_stays_in_pytorch_is_recorded(keywords):
    """A conversion from PyTorch to PyTorch is an operation of the trace, not a constant in it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        traced = torch.jit.trace(
            lambda x: ferry.to_torch(x, **keywords) * 2, torch.arange(3.0), check_trace=False
        )

    assert traced(torch.full((3,), 7.0)).tolist() == [14, 14, 14]


def test_H78_a_cast_that_looks_at_values_is_refused_in_a_trace():
    """The look would not be part of the trace."""

    def narrow(x):
        with pytest.raises(ferry.LossyCastError, match=r"torch\.jit\.trace"):
            ferry.to_torch(x, dtype="int8")
        return ferry.to_torch(x, dtype="int8", casting="unsafe")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        traced = torch.jit.trace(narrow, torch.arange(3.0), check_trace=False)

    assert traced(torch.full((3,), 7.0)).tolist() == [7, 7, 7]


# -- the order of axes -----------------------------------------------------------------------------

ORDERS = {
    "conjugate, transposed": lambda a: torch.complex(a, -a).T.conj(),
    "conjugate, permuted": lambda a: torch.complex(a, a).reshape(3, 2, 2).permute(2, 0, 1).conj(),
    "negative, transposed": lambda a: torch._neg_view(a.T),
    "negative bfloat16": lambda a: torch._neg_view(a.to(torch.bfloat16).T),
    "conjugate with a graph": lambda a: torch.complex(a, a).requires_grad_().T.conj(),
}


@pytest.mark.parametrize("keywords", [{}, {"copy": True}, {"dtype": "complex64"}], ids=str)
@pytest.mark.parametrize("target", ["numpy", "torch", "tensorflow", "jax", "python"])
@pytest.mark.parametrize("name", ORDERS)
def test_lazy_bits_and_an_order_of_axes_of_ones_own(name, target, keywords):
    """PyTorch keeps the order of axes where it resolves bits, which TensorFlow and JAX do not take as it is."""
    x = ORDERS[name](torch.arange(12.0).reshape(3, 4))
    result = ferry.convert(x, target, **keywords)

    expected = x.detach().resolve_conj().resolve_neg().to(torch.complex64).tolist()
    assert np.array(ferry.to_list(result)).astype(complex).tolist() == expected


@pytest.mark.parametrize("keywords", [{}, {"copy": True}, {"dtype": "complex64"}], ids=str)
@pytest.mark.parametrize("target", ["numpy", "torch"])
@pytest.mark.parametrize("name", ORDERS)
def test_the_plan_says_the_strides_that_come_out(name, target, keywords):
    """Of what is newly made the plan knows the strides."""
    x = ORDERS[name](torch.arange(12.0).reshape(3, 4))
    plan = ferry.explain(x, target, **keywords)
    if not plan.shares_memory:
        assert ferry.describe(ferry.convert(x, target, **keywords)).strides == plan.result.strides


# -- more axes than an array has -------------------------------------------------------------------

MANY = {"torch": lambda: torch.ones((1,) * 65), "tensorflow": lambda: tf.ones((1,) * 65)}


@pytest.mark.parametrize("source", MANY)
@pytest.mark.parametrize("target", ["numpy", "python", "jax"])
def test_more_axes_than_an_array_has_are_refused(source, target):
    """The message has the limit, and the hint works when it is pasted."""
    x = MANY[source]()
    with pytest.raises(ferry.ShapeError, match=r"at most 64 axes.*has 65") as caught:
        ferry.convert(x, target)
    code = caught.value.hint.partition(", which")[0]
    found = eval(code, {"x": x, "tf": tf})  # noqa: S307 - the hint's own code
    assert ferry.to_list(ferry.convert(found, target)) == 1
    assert ferry.describe(x).shape == (1,) * 65
    assert ferry.shares_memory(x, x)


def test_more_axes_stay_where_no_array_is_needed():
    """PyTorch and TensorFlow themselves have no such limit."""
    x, y = MANY["torch"](), MANY["tensorflow"]()

    assert ferry.to_torch(x) is x
    assert ferry.to_tensorflow(y) is y
    assert ferry.shares_memory(x, x.view(-1))


def test_a_stack_of_too_many_axes_is_refused():
    """64 axes and one more for the list."""
    with pytest.raises(ferry.ShapeError, match="at most 64 axes"):
        ferry.to_numpy([np.ones((1,) * 64)] * 2)


# -- torch.compile ---------------------------------------------------------------------------------


@pytest.mark.fast_paths
@pytest.mark.parametrize("kind", ["tensor", "parameter"])
def test_to_torch_is_the_identity_in_a_whole_graph(kind):
    """`torch.compile(fullgraph=True)` allows no break of the graph: `to_torch` of a PyTorch tensor makes none."""
    lives(
        """
        import sys, torch
        import tensorferry as ferry

        x = torch.arange(4.0) if sys.argv[1] == "tensor" else torch.nn.Parameter(torch.arange(4.0))
        assert ferry.to_torch(x) is x
        compiled = torch.compile(lambda x: ferry.to_torch(x) * 2, fullgraph=True, backend="eager")
        assert compiled(x).tolist() == [0, 2, 4, 6]
        """,
        kind,
    )
