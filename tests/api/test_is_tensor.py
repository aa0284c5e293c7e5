"""`is_tensor`: what counts as a tensor, in each framework, without importing one."""

from __future__ import annotations

import array
import collections

import numpy as np
import pytest
from tests.support import survives

import tensorferry as ferry

jax = pytest.importorskip("jax")
pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
tf = pytest.importorskip("tensorflow")
torch = pytest.importorskip("torch")


class Subclass(np.ndarray):
    """A user's own."""


class Lent:
    """An object of no framework, with a protocol."""

    def __init__(self):
        self.held = np.ones(2)

    def __dlpack__(self, **keywords):
        return self.held.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.held.__dlpack_device__()


def deleted():
    x = jax.numpy.ones(2)
    x.delete()
    return x


TENSORS = {
    "array": lambda: np.ones(2),
    "0-d array": lambda: np.array(1.0),
    "empty": lambda: np.ones((0, 3)),
    "subclass": lambda: np.ones(2).view(Subclass),
    "masked": lambda: np.ma.array([1, 2]),
    "tensor": lambda: torch.ones(2),
    "bfloat16": lambda: torch.ones(2, dtype=torch.bfloat16),
    "parameter": lambda: torch.nn.Parameter(torch.ones(2)),
    "meta": lambda: torch.ones(2, device="meta"),
    "sparse": lambda: torch.ones(2).to_sparse(),
    "quantized by bits": lambda: torch.ones(2).to(torch.float8_e5m2),
    "jax array": lambda: jax.numpy.ones(2),
    "deleted": deleted,
    "jax key": lambda: jax.random.key(0),
    "tf tensor": lambda: tf.constant([1.0]),
    "tf variable": lambda: tf.Variable([1.0]),
    "pandas column": lambda: pd.Series([1, 2]),
    "pandas index": lambda: pd.Index([1, 2]),
    "polars column": lambda: pl.Series([1, 2]),
    "arrow column": lambda: pa.array([1, 2]),
    "dlpack": Lent,
}
OTHERS = {
    "number": lambda: 1.5,
    "NumPy's scalar": lambda: np.float32(1),
    "list": lambda: [1.0, 2.0],
    "list of tensors": lambda: [np.ones(2)],
    "tuple": lambda: (1, 2),
    "dict of tensors": lambda: {"x": np.ones(2)},
    "range": lambda: range(3),
    "bytes": lambda: b"ab",
    "bytearray": lambda: bytearray(2),
    "memoryview": lambda: memoryview(np.ones(2)),
    "array.array": lambda: array.array("d", [1.0]),
    "deque": lambda: collections.deque([1]),
    "text": lambda: "text",
    "None": lambda: None,
    "class": lambda: torch.Tensor,
    "function": lambda: np.ones,
    "module": lambda: np,
    "torch module": lambda: torch.nn.Linear(1, 1),
    "description": lambda: ferry.TensorInfo("torch", (2,)),
    "jax description": lambda: jax.ShapeDtypeStruct((2,), "float32"),
    "pandas table": lambda: pd.DataFrame({"a": [1]}),
    "polars table": lambda: pl.DataFrame({"a": [1]}),
    "arrow table": lambda: pa.table({"a": [1]}),
    "structured": lambda: np.zeros(2, np.dtype([("a", "int8")])),
    "text array": lambda: np.array(["a"]),
    "dates": lambda: np.zeros(2, "datetime64[s]"),
    "text column": lambda: pd.Series(["a"]),
    "arrow text": lambda: pa.array(["a"]),
    "matrix": lambda: np.asmatrix(np.ones((1, 1))),
    "dtype": lambda: torch.float32,
    "device": lambda: torch.device("cpu"),
    "object": object,
}


@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.filterwarnings("ignore:.*:PendingDeprecationWarning")
def test_a_tensor_of_each_framework_is_one(name):
    """Whatever can be converted of it."""
    assert ferry.is_tensor(TENSORS[name]()) is True


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.filterwarnings("ignore:.*:PendingDeprecationWarning")
def test_everything_else_is_none(name):
    """Also what `convert` takes: numbers, lists, buffers, tables."""
    assert ferry.is_tensor(OTHERS[name]()) is False


@pytest.mark.parametrize(
    "name",
    [each for each in TENSORS if each not in ("masked", "meta", "sparse", "deleted", "jax key")],
)
def test_a_tensor_is_what_convert_tree_converts(name):
    """In a tree it becomes a tensor of the target, and nothing else does."""
    assert isinstance(
        ferry.convert_tree({"x": TENSORS[name]()}, "torch", dtype="fit")["x"], torch.Tensor
    )


@pytest.mark.parametrize(
    "name", ["number", "NumPy's scalar", "range", "bytes", "text array", "text column", "dtype"]
)
def test_what_is_none_stays_in_a_tree(name):
    """The same object."""
    x = OTHERS[name]()
    assert ferry.convert_tree({"x": x}, "torch")["x"] is x


# PyTorch 2.6 says so of `append`.
@pytest.mark.filterwarnings("ignore:Graph break due to unsupported builtin:UserWarning")
def test_tracers_are_tensors():
    """Inside of each tracer, with the answer of outside."""
    seen = []

    def look(x):
        seen.append(ferry.is_tensor(x))
        return x * 1

    jax.jit(look)(jax.numpy.ones(2))
    jax.vmap(look)(jax.numpy.ones(2))
    jax.grad(lambda x: look(x).sum())(jax.numpy.ones(2))
    tf.function(look)(tf.constant([1.0]))
    torch.func.vmap(look)(torch.ones(2))
    torch.compile(look, backend="eager")(torch.ones(2))
    assert seen == [True] * len(seen)
    assert len(seen) >= 6


class Hostile:
    """Each question about an attribute raises."""

    def __getattr__(self, name):
        raise RuntimeError(name)


class Shapeless(Hostile):
    @property
    def dtype(self):
        raise KeyError("dtype")

    @property
    def __dlpack__(self):
        raise MemoryError("dlpack")


class Nameless:
    __module__ = 5


class Released:
    def __array__(self, dtype=None, copy=None):
        raise ValueError("closed")


@pytest.mark.parametrize("kind", [Hostile, Shapeless, Nameless])
def test_it_raises_nothing(kind):
    """What a class of another library raises when it is asked is an answer: it is none."""
    assert ferry.is_tensor(kind()) is False


def test_it_computes_nothing():
    """An object that could be made into an array is not made into one."""
    calls = []

    class Counted:
        def __array__(self, dtype=None, copy=None):
            calls.append(1)
            return np.ones(2)

    ferry.is_tensor(Counted())
    assert calls == []


def test_it_imports_no_framework():
    """For a tensor of one that is imported, nothing else is."""
    survives(
        """
        import sys, numpy as np, tensorferry as ferry
        assert ferry.is_tensor(np.ones(2)) and not ferry.is_tensor([1.0]) and not ferry.is_tensor(object())
        loaded = [name for name in ("torch", "tensorflow", "jax", "pandas", "polars", "pyarrow") if name in sys.modules]
        assert loaded == [], loaded
        """
    )
