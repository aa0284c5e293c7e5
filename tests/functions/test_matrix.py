"""Every inner framework with every outer one, in every mode, every kind of function: it holds, or is refused by name.

The oracle is the same formula written in the outer framework.
"""

from __future__ import annotations

from itertools import product

import jax
import numpy as np
import pytest
from tests.functions import formulas as own

import tensorferry as ferry

INNER = ("torch", "jax", "tensorflow", "numpy")
OUTER = ("torch", "jax", "tensorflow")
FORMULAS = {
    "plain": own.plain,
    "several outputs": own.several,
    "integer output": own.integer_output,
    "unused input": own.unused_input,
    "tree": own.of_tree,
    "integer input": own.integer_input,
}
MODES = {
    "torch": (
        "eager",
        "backward",
        "vmap",
        "vmap of grad",
        "compile",
        "jvp",
        "order 1",
        "order 2",
        "order 3",
    ),
    "jax": (
        "eager",
        "jit",
        "vmap",
        "vmap of grad",
        "jit of grad",
        "jvp",
        "order 1",
        "order 2",
        "order 3",
    ),
    "tensorflow": ("eager", "tf.function", "tf.function of grad", "order 1", "order 2", "order 3"),
}
RARELY = {"backward", "jit of grad", "tf.function of grad"}
"""The modes that `make test` tries with other formulas than the plain one, and with complex numbers."""


def cells():
    for inner, outer in product(INNER, OUTER):
        for mode, formula in product(MODES[outer], FORMULAS):
            often = (
                mode != "compile"
                if formula == "plain"
                else mode in RARELY and formula in ("tree", "integer output")
            )
            dtypes = ("float64",) if formula != "plain" else (*own.REAL, *own.COMPLEX)
            for dtype in dtypes:
                if inner != outer and not (inner == "numpy" and formula == "tree"):
                    quick = often and (
                        dtype == "float64" or (dtype == "complex128" and mode in RARELY)
                    )
                    marks = () if quick else pytest.mark.slow
                    yield pytest.param(inner, outer, mode, formula, dtype, marks=marks)


@pytest.fixture(autouse=True)
def _wide():
    with jax.enable_x64():
        yield


def tensors(there, formula, dtype):
    numbers = np.random.default_rng(3)
    values = numbers.normal(size=(2, 3)) + (
        1j * numbers.normal(size=(2, 3)) if dtype in own.COMPLEX else 0
    )
    x, w = (there.array(ferry.to_numpy(each, dtype=dtype, casting="unsafe")) for each in values)
    return (
        (x, w, there.array(np.arange(3, dtype=np.int32))) if formula == "integer input" else (x, w)
    )


def leaves(result):
    """The tensors of what a formula gave."""
    if isinstance(result, dict):
        return [result["y"], result["kept"][2]]
    return list(result) if isinstance(result, tuple) else [result]


def checked(formula, inner):
    """A formula of the inner framework, wrapped; called as one of the outer is."""
    mine, function = own.OWN[inner](), FORMULAS[formula]
    derivatives = own.numpys_derivatives(function) if inner == "numpy" else {}
    wrapped = ferry.wrap(lambda *arguments: function(mine, *arguments), inner=inner, **derivatives)
    if formula == "tree":
        return lambda there, x, w: wrapped({"x": x, "rest": (w,)})
    return lambda there, *arguments: wrapped(*arguments)


def in_mode(there, mode, function, x, rest):
    """What a mode makes of a function: of its outputs, or of a loss of them."""

    def outputs(x):
        return leaves(function(there, x, *rest))[0]

    def loss(x):
        found = leaves(function(there, x, *rest))
        return sum(
            there.sum(y * y) * (index + 1)
            for index, y in enumerate(found)
            if "int" not in str(y.dtype)
        )

    if mode == "jvp":
        return there.jvp(outputs)(x)
    if mode.startswith("order"):
        return there.nth(loss, int(mode[-1]))(x)
    return there.modes[mode](loss if "grad" in mode or mode == "backward" else outputs)(x)


def whole(formula):
    return FORMULAS[formula] if formula != "tree" else own.tree_of(own.of_tree)


@pytest.mark.parametrize(("inner", "outer", "mode", "formula", "dtype"), list(cells()))
def test_cell(inner, outer, mode, formula, dtype):
    """Equal to the formula in the outer framework; of NumPy's, no derivative of a derivative."""
    there = own.OWN[outer]()
    x, *rest = tensors(there, formula, dtype)
    call = checked(formula, inner)
    if inner == "numpy" and mode in ("order 2", "order 3"):
        with pytest.raises(ferry.GradientError, match="has no second derivative"):
            in_mode(there, mode, call, x, rest)
        return
    found = in_mode(there, mode, call, x, rest)
    expected = in_mode(there, mode, whole(formula), x, rest)
    if expected is None:
        # TensorFlow's word for a gradient that is zero everywhere.
        expected = 0 * x
    assert type(found) is type(expected)
    assert found.dtype == expected.dtype
    one, other = (
        ferry.to_numpy(each, dtype="complex128", casting="unsafe") for each in (found, expected)
    )
    np.testing.assert_allclose(one, other, rtol=own.CLOSE[dtype], atol=own.CLOSE[dtype])
