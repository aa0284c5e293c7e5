"""What holds numbers and is no tensor is refused in the core's words, as an argument and as a result."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
import torch
from jax.experimental import sparse

import tensorferry as ferry

double = ferry.wrap(lambda x: x * 2, inner="jax")
RAGGED = tf.ragged.constant([[1.0, 2.0], [3.0]])
ROWS = "rows of unequal lengths"


def jagged():
    return torch.nested.nested_tensor(
        [torch.ones(2), torch.ones(3)], layout=torch.jagged, requires_grad=True
    )


@pytest.mark.parametrize(
    ("wrapped", "make", "words"),
    [
        (double, lambda: RAGGED, ROWS),
        (double, lambda: tf.sparse.from_dense(tf.eye(2)), "indices and values"),
        (double, lambda: torch.eye(2).to_sparse(), "is sparse"),
        (double, jagged, "wrapper subclass"),
        (double, lambda: tf.constant(["a"]), "strings"),
    ],
    ids=["ragged", "sparse-tf", "sparse-torch", "jagged", "strings"],
)
def test_an_argument(wrapped, make, words):
    with pytest.raises(ferry.UnsupportedTypeError, match=f"{words}(.|\\n)*args") as caught:
        wrapped(make())
    assert caught.value.hint


def test_beside_a_tensor_and_where_it_is_traced():
    """As a fixed value it would reach the inner framework as it is, and its gradient nobody."""
    both = ferry.wrap(lambda x, tree: x, inner="jax")
    with pytest.raises(ferry.UnsupportedTypeError, match=rf'{ROWS}. - at args\[1\]\["r"\] of'):
        both(tf.ones(2), {"r": RAGGED})
    for x, words in ((RAGGED, ROWS), (tf.constant(["a"]), "string")):
        with pytest.raises(ferry.UnsupportedTypeError, match=words):
            tf.function(lambda x: double(x), autograph=False)(x)  # noqa: PLW0108 - a signature is read of it


@pytest.mark.parametrize("nested", [False, True])
def test_a_result(nested):
    def function(x):
        rows = tf.RaggedTensor.from_row_lengths(x, [1, 2])
        return {"rows": rows, "x": x} if nested else rows

    with pytest.raises(ferry.UnsupportedTypeError, match=f"{ROWS}. - at what"):
        ferry.wrap(function, inner="tensorflow")(torch.ones(3))
    with pytest.raises(ferry.UnsupportedTypeError, match="is sparse"):
        ferry.wrap(torch.Tensor.to_sparse, inner="torch")(jnp.ones((3, 3)))


@pytest.mark.parametrize(
    ("inner", "argmax"), [("torch", torch.argmax), ("tensorflow", tf.argmax), ("numpy", np.argmax)]
)
def test_a_result_whose_dtype_the_caller_does_not_have(inner, argmax):
    """It is named, and the hint is for `wrap`: as a keyword of the call, ``dtype=`` would reach the function."""
    if jax.config.jax_enable_x64:
        pytest.skip("JAX has int64 here")
    for function, where, result in (
        (lambda x: argmax(x), "result", lambda y: y),  # noqa: PLW0108 - a signature is read of it
        (lambda x: {"x": x, "best": [argmax(x)]}, r'result\["best"\]\[0\]', lambda y: y["best"][0]),
    ):
        with pytest.raises(
            ferry.LossyCastError, match=f"no int64(.|\n)* - at {where} of .*<lambda>"
        ) as caught:
            ferry.wrap(function, inner=inner)(jnp.array([1.0, 3.0]))
        assert caught.value.hint == f'wrap(function, inner="{inner}", dtype="fit")'
        wrapped = eval(caught.value.hint, {"wrap": ferry.wrap, "function": function})  # noqa: S307 - what hints are for
        assert result(wrapped(jnp.array([1.0, 3.0]))).tolist() == 1


def test_sparse_arrays_of_jax_are_trees():
    """As for `convert_tree`: what they are made of crosses."""
    x = sparse.BCOO.fromdense(jnp.eye(2))
    assert ferry.wrap(lambda x: x.data * 2, inner="torch")(x).tolist() == [2, 2]


def test_what_holds_no_numbers_is_fixed():
    """Text, nothing, classes, and objects of the inner framework's own."""
    wrapped = ferry.wrap(lambda x, *rest: (x, *rest), inner="jax")
    rest = ("a", None, b"", float, jax.ShapeDtypeStruct((3,), "float32"))
    found = wrapped(torch.ones(3), *rest[:4])
    assert found[1:] == rest[:4]
    assert ferry.wrap(lambda x, like: x.reshape(like.shape), inner="jax")(
        torch.ones(3), rest[4]
    ).shape == (3,)


class Held:
    """No container."""

    def __init__(self, held):
        self.held = held


def gives(x):
    yield x


async def awaits(x):
    return x


async def gives_later(x):
    yield x


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: Held([x * 2]), r"a Held, .* its tensor at .held\[0\] would stay {}'s"),
        (lambda x: (x, {"k": Held(x)}), r"a Held, .* its tensor at .held would stay {}'s"),
        (gives, "a generator, whose tensors would stay {}'s, without a gradient: a look would"),
        (lambda x: map(abs, [x]), "a map, whose tensors would stay {}'s"),
        (
            awaits,
            "a coroutine, whose tensors would stay {}'s, without a gradient: they are not there yet",
        ),
        (gives_later, "an async_generator, whose tensors would stay {}'s"),
    ],
    ids=["object", "object in a tree", "generator", "map", "async", "async generator"],
)
@pytest.mark.parametrize("inner", ["jax", "torch", "tensorflow"])
def test_a_result_that_holds_tensors_or_gives_them_later(function, words, inner):
    """They came out as they were: of the other framework, and outside of the graph."""
    x = torch.ones(2, requires_grad=True) if inner != "torch" else jnp.ones(2)
    with pytest.raises(ferry.UnsupportedTypeError, match=words.format(inner)) as caught:
        ferry.wrap(function, inner=inner)(x)
    assert caught.value.hint


def test_a_result_without_tensors_in_it_stays_as_it_is():
    plain = Held([1, "a"])
    x, kept, numbers = ferry.wrap(lambda x: (x * 2, plain, {1, 2}), inner="jax")(torch.ones(2))
    assert (x.tolist(), kept, numbers) == ([2, 2], plain, {1, 2})


def test_each_result_has_its_path_in_the_explanation():
    """Three lines that began with "result" did not say which was which."""
    function = ferry.wrap(lambda x: (x, {"a": [x, x.sum()]}), inner="jax")
    plan = ferry.explain_wrap(function, torch.ones(2))
    paths = ["result[0]", 'result[1]["a"][0]', 'result[1]["a"][1]']
    assert [path for path, _ in plan.outputs] == paths
    assert [line.strip().partition(":")[0] for line in str(plan).splitlines()[2:5]] == paths
    assert [path for path, _ in ferry.explain_wrap(double, torch.ones(2)).outputs] == ["result"]
    assert plan.bytes_copied == sum(each.bytes_copied for _, each in (*plan.inputs, *plan.outputs))
