"""Containers, keys and leaves that others made: taken as they are meant, or refused where they stand."""

from __future__ import annotations

import dataclasses
import functools
import pickle

import numpy as np
import pytest
from tests.support import lives

import tensorferry as ferry
from tensorferry.execution.run import verifying

jax = pytest.importorskip("jax")
tf = pytest.importorskip("tensorflow")
torch = pytest.importorskip("torch")


@pytest.mark.parametrize("source", ["numpy", "torch", "jax"])
def test_a_callable_decides_on_the_fast_paths_too(source):
    """What it says no to stays as it is, the first time and when the type is known."""
    tree = {"yes": ferry.convert([1.0], source), "no": ferry.convert([1], source)}
    with verifying(on=False):
        for _ in range(3):
            ferry.convert_tree(tree, "torch")
            result = ferry.convert_tree(tree, "torch", leaves=lambda x: x is tree["yes"], copy=None)
            assert isinstance(result["yes"], torch.Tensor)
            assert result["no"] is tree["no"]


def test_a_numpy_scalar_among_tensors_keeps_its_dtype():
    """Not its value in a wider one: the first element says that the list is typed."""
    for scalar, other, target in (
        (np.float32(1), torch.tensor(1.0), "torch"),
        (np.float16(1), torch.tensor(1.0, dtype=torch.float16), "torch"),
        (np.uint8(3), np.array(4, "u1"), "numpy"),
        (np.float32(1), np.array(1, "f4"), "jax"),
        (np.int16(1), tf.constant(2, "int16"), "tensorflow"),
    ):
        for column in ([scalar, other], [other, scalar]):
            assert ferry.describe(ferry.collate(column, target)).dtype == scalar.dtype.name
            assert ferry.describe(ferry.convert(column, target)).dtype == scalar.dtype.name


def test_a_registered_object_that_contains_itself_is_refused():
    """And the interpreter is as deep as before."""
    lives(
        """
        import inspect, jax, torch, tensorferry as ferry
        from torch.utils import _pytree

        class Box:
            pass

        class Crate:
            pass

        jax.tree_util.register_pytree_node(Box, lambda box: ((box.a,), None), lambda _, values: None)
        _pytree.register_pytree_node(Crate, lambda box: ((box.a,), None), lambda values, _: None)

        def depth(level=0):
            try:
                return depth(level + 1)
            except RecursionError:
                return level

        before = depth()
        for kind in (Box, Crate):
            x = kind()
            x.a = x
            for _ in range(3):
                try:
                    ferry.convert_tree(x, "numpy")
                except ferry.UnsupportedTypeError as error:
                    assert "contains itself" in str(error)
                else:
                    raise SystemExit("nothing was refused")
        assert depth() >= before - 20
        """
    )


def test_keys_of_a_registrations_own_are_spelled_as_they_say():
    """They have no key and no index."""

    class Key:
        def __str__(self):
            return "<mine>"

    class Kept:
        def __init__(self, value):
            self.value = value

    jax.tree_util.register_pytree_with_keys(
        Kept, lambda x: (((Key(), x.value),), None), lambda _, values: Kept(values[0])
    )
    result = ferry.convert_tree(Kept(np.ones(2)), "torch")
    assert isinstance(result.value, torch.Tensor)
    with pytest.raises(ferry.LossyCastError, match="<mine>"):
        ferry.convert_tree(Kept(np.array([300])), "numpy", dtype="uint8")


@pytest.mark.parametrize(
    "make",
    [
        lambda: tf.sparse.eye(2),
        lambda: tf.IndexedSlices(tf.ones(1), tf.constant([0]), tf.constant([2])),
    ],
)
def test_a_tensor_that_cannot_be_carried_is_not_passed_over(make):
    """Its framework says why, and the path where."""
    with pytest.raises(ferry.UnsupportedTypeError, match=r"indices and values(.|\n)*k"):
        ferry.convert_tree({"k": make()}, "numpy")


def test_what_was_computed_of_the_old_values_is_not_carried_over():
    """A cached property of the result is computed of the result."""

    @dataclasses.dataclass
    class Batch:
        x: object

        @functools.cached_property
        def doubled(self):
            return self.x * 2

    batch = Batch(torch.ones(2))
    kept = batch.doubled
    assert isinstance(ferry.convert_tree(batch, "numpy").doubled, np.ndarray)
    copied = ferry.snapshot(batch)
    batch.x += 1
    assert copied.doubled.tolist() == [2.0, 2.0]
    assert batch.doubled is kept


def test_a_tree_error_is_made_anew_of_its_words():
    """As PyTorch does in the parent of a DataLoader's worker; pickle keeps each error."""
    again = ferry.TreeError(message="2 leaves cannot be converted")
    assert "2 leaves" in str(again)
    with pytest.raises(ferry.TreeError) as caught:
        ferry.collate(
            [{"a": np.ones(1), "b": np.ones(1)}, {"a": np.ones(2), "b": np.ones(2)}], "torch"
        )
    assert len(pickle.loads(pickle.dumps(caught.value)).exceptions) == 2  # noqa: S301 - our own bytes


def test_two_failing_leaves_in_a_worker_are_told_in_the_parent():
    """The error that arrives is ours, with the words of both."""
    lives(
        """
        import numpy as np, torch, tensorferry as ferry

        def batch(samples):
            return ferry.collate(samples, "torch")

        data = [{"x": np.zeros(i + 1), "y": np.zeros(i + 1)} for i in range(2)]
        loader = torch.utils.data.DataLoader(data, batch_size=2, num_workers=1, collate_fn=batch)
        try:
            list(loader)
        except ferry.TreeError as error:
            assert '$["x"]' in str(error) and '$["y"]' in str(error)
        else:
            raise SystemExit("nothing was refused")
        """
    )


@pytest.mark.parametrize("value", [[1, 2], "0", {"x": None}, {"x": "0"}, np.ones(1)])
def test_what_is_filled_in_is_a_number(value):
    """Nothing is broadcast over the places."""
    with pytest.raises(TypeError, match=r"pad.* must be a number"):
        ferry.collate([np.arange(3.0), np.arange(1.0)], "numpy", pad=value)
