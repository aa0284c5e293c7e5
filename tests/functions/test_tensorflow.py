"""What is TensorFlow's own, on either side: variables, axes of unknown length, tracing, state."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
import torch

import tensorferry as ferry

square = ferry.wrap(lambda x: (x * x).sum(), inner="torch")


def test_a_variable_has_a_gradient():
    variable = tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        loss = square(variable)
    assert tape.gradient(loss, variable).numpy().tolist() == [2, 4]


def test_an_axis_of_unknown_length():
    """What is not known while it is traced is known when it runs."""
    wrapped = ferry.wrap(jax.jit(lambda x: jnp.sin(x) * 2), inner="jax")

    @tf.function(input_signature=[tf.TensorSpec([None, 3])], autograph=False)
    def run(x):
        y = wrapped(x)
        assert y.shape.rank == 2
        return y, tf.gradients(y, x)[0]

    for length in (1, 4):
        y, gradient = run(tf.zeros((length, 3)))
        assert y.shape == (length, 3)
        assert gradient.numpy().tolist() == [[2] * 3] * length


def test_a_tensor_without_known_axes_is_refused():
    with pytest.raises(ferry.UnsupportedTypeError, match="How many axes"):
        tf.function(square, input_signature=[tf.TensorSpec(None)], autograph=False)(tf.ones(3))


def test_second_order_and_autograph():
    """A tape in a tape, traced by tf.function as it comes."""

    @tf.function
    def second(x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = square(x) * x[0]
            first = inner.gradient(y, x)
        return outer.gradient(first, x)

    # x0 (x0² + x1²): the gradient is (3 x0² + x1², 2 x0 x1), that of its sum (6 x0 + 2 x1, 2 x1 + 2
    # x0).
    assert second(tf.constant([1.0, 2.0])).numpy().tolist() == [10, 6]


def test_what_is_missing_is_refused_while_it_is_traced():
    with pytest.raises(ferry.GradientError, match="no gradient of it is known"):
        tf.function(
            lambda x: tf.gradients(ferry.wrap(np.sin, inner="numpy")(x), x), autograph=False
        )(tf.ones(2))


@pytest.mark.parametrize("outer", ["torch", "jax"])
def test_state_of_its_functions_is_refused(outer):
    """Random numbers, variables that are trained, variables that are written; a constant one is no state."""
    x = ferry.convert(np.ones(3, np.float32), outer)
    weight, count = tf.Variable(2.0), tf.Variable(3.0, trainable=False)

    def call(function):
        return ferry.wrap(function, inner="tensorflow")(x)

    with pytest.raises(ferry.UnsupportedTypeError, match="draws random numbers"):
        call(lambda x: x + tf.random.normal([3]))
    with pytest.raises(ferry.GradientError, match="uses variables that are trained"):
        call(lambda x: x * weight)
    with pytest.raises(ferry.UnsupportedTypeError, match="changes a variable"):
        call(lambda x: x * count.assign_add(1.0))
    assert count.numpy() == 3
    assert call(lambda x: x * count).tolist() == [3, 3, 3]


def test_functions_that_cannot_be_traced_are_called_all_the_same():
    wrapped = ferry.wrap(lambda x: x * float(x.numpy()[0]), inner="tensorflow")
    assert wrapped(torch.full((2,), 3.0)).tolist() == [9, 9]
    with pytest.raises(ferry.UnsupportedTypeError, match="cannot be traced without values"):
        jax.jit(wrapped)(jnp.ones(2))


def test_python_that_autograph_rewrites():
    """A branch on a value, under jit."""

    def function(x):
        if tf.reduce_sum(x) > 0:
            return x * 2
        return -x

    wrapped = jax.jit(ferry.wrap(function, inner="tensorflow"))
    assert wrapped(jnp.ones(2)).tolist() == [2, 2]
    assert wrapped(-jnp.ones(2)).tolist() == [1, 1]


def test_a_layer_of_keras():
    """Its variables are arguments."""
    keras = pytest.importorskip("keras", reason="Keras is not installed")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("Keras runs on another framework here")
    layer = keras.layers.Dense(2)
    layer.build((None, 3))
    call = ferry.wrap(
        lambda weights, x: layer.stateless_call(weights, [], x)[0], inner="tensorflow"
    )
    weights = [torch.ones(3, 2, requires_grad=True), torch.zeros(2, requires_grad=True)]
    call(weights, torch.ones(4, 3)).sum().backward()
    assert weights[0].grad.tolist() == [[4, 4]] * 3
    assert weights[1].grad.tolist() == [4, 4]
