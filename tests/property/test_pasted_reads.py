"""A plan's code for what has to be read first: pasted where x is, it gives what the conversion gives."""

from __future__ import annotations

import array

import ml_dtypes
import numpy as np
import pytest

import tensorferry as ferry
from tensorferry import testing

jax = pytest.importorskip("jax")
torch = pytest.importorskip("torch")
tf = pytest.importorskip("tensorflow")


def objects(*values):
    made = np.empty(len(values), object)
    made[:] = values
    return made


STACKS = {
    "arrays": lambda: [np.ones(2), np.zeros(2)],
    "a tuple of scalars": lambda: (torch.ones(()), torch.zeros(())),
    "bfloat16 arrays": lambda: [np.ones(2, ml_dtypes.bfloat16)] * 2,
    "arrays in the other byte order": lambda: [np.ones(2, ">f4")] * 2,
    "nested arrays": lambda: [[np.ones(2)], [np.zeros(2)]],
    "typed arrays": lambda: [array.array("f", [1, 2])] * 2,
    "bytes": lambda: [b"ab", b"cd"],
    "torch tensors": lambda: [torch.ones(2), torch.zeros(2)],
    "torch tensors with a graph": lambda: [torch.ones(2, requires_grad=True), torch.zeros(2)],
    "bfloat16 torch tensors": lambda: [torch.ones(2).bfloat16()] * 2,
    "conjugate torch tensors": lambda: [torch.tensor([1 + 2j]).conj()] * 2,
    "nested torch tensors": lambda: [[torch.ones(2)], [torch.zeros(2)]],
    "nested torch tensors with a graph": lambda: [
        [torch.ones(2, requires_grad=True)],
        [torch.zeros(2)],
    ],
    "tensors of two dtypes": lambda: [torch.ones(2), torch.zeros(2, dtype=torch.int16)],
    "variables": lambda: [tf.Variable([1.0, 2.0])] * 2,
    "tensors of every framework": lambda: [
        torch.ones(2),
        np.zeros(2, "float32"),
        jax.numpy.ones(2),
        tf.ones(2),
    ],
}
NUMBERS = {
    "floats and integers": lambda: objects(1, 2.5, 3),
    "nested integers": lambda: np.array([[1, 2], [3, 4]], object),
    "one object": lambda: np.array(5, object),
    "no objects": lambda: np.empty((2, 0, 3), object),
    "NumPy's scalars": lambda: objects(np.float32(1), np.float32(2)),
    "arrays as objects": lambda: objects(np.ones(2), np.zeros(2)),
    "large integers": lambda: objects(2**63, 1),
    "large integers in a list": lambda: [2**63, 1],
    "torch tensors as objects": lambda: objects(torch.ones(()), torch.zeros(())),
    "lists of tensors as objects": lambda: objects([np.ones(2)], [np.zeros(2)]),
}


@pytest.mark.parametrize(
    "keywords", [{}, {"dtype": "float16", "casting": "unsafe"}, {"copy": True}], ids=str
)
@pytest.mark.parametrize("target", ["numpy", "torch", "tensorflow", "jax", "python"])
@pytest.mark.parametrize("what", [*STACKS, *NUMBERS])
def test_the_code_of_what_is_read_pastes(what, target, keywords):
    """plan.code of a list of tensors and of an array of objects gives the type, dtype, shape and bits of the result."""
    x = {**STACKS, **NUMBERS}[what]()
    try:
        result = ferry.convert(x, target, **keywords)
    except ferry.LossyCastError:
        with pytest.raises(ferry.LossyCastError):
            ferry.explain(x, target, **keywords)
        return
    code = ferry.explain(x, target, **keywords).code
    names = {"x": x}
    with np.errstate(all="ignore"):
        exec(code, names)  # noqa: S102 - that is what the code is for
    looks, pasted = testing.witness_for(target), names["y"]
    assert type(pasted) is type(result), code
    if target == "python":
        assert repr(pasted) == repr(result), code
        return
    assert looks.dtype(pasted) == looks.dtype(result), code
    assert looks.shape(pasted) == looks.shape(result), code
    assert looks.content(pasted) == looks.content(result), code
