"""A snapshot never shares memory; `convert_tree` may."""

from __future__ import annotations

import numpy as np
import pytest
from tests import simulated

import tensorferry as ferry


def mixed():
    """Tensors of each framework, some of them awkward, and things that are none."""
    import jax.numpy as jnp
    import tensorflow as tf
    import torch

    return {
        "numpy": np.arange(6.0).reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "reversed": np.arange(4)[::-1],
        "big-endian": np.arange(3, dtype=">i4"),
        "broadcast": np.broadcast_to(np.float32(3), (2, 2)),
        "empty": np.zeros((0, 3)),
        "scalar": np.array(7, "int8"),
        "torch": torch.arange(3),
        "bfloat16": torch.arange(3, dtype=torch.bfloat16),
        "conjugate": torch.tensor([1 + 2j]).conj(),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "tensorflow": tf.range(3),
        "variable": tf.Variable([1.0, 2.0]),
        "jax": jnp.arange(3, dtype="int8"),
        "list": [1, "text", None],
    }


def test_a_snapshot_has_the_same_values_in_the_same_frameworks():
    """Bit for bit; what is no tensor stays."""
    tree = mixed()
    copied = ferry.snapshot(tree)
    assert copied["list"] == tree["list"]
    for path, info in ferry.describe_tree(tree).items():
        found = ferry.describe_tree(copied)[path]
        assert (found.framework, found.shape, found.dtype) == (
            info.framework,
            info.shape,
            info.dtype,
        )
    for key in tree:
        if key != "list":
            assert ferry.to_numpy(copied[key]).tobytes() == ferry.to_numpy(tree[key]).tobytes()


def test_a_snapshot_never_shares_memory():
    """Not with the tree, whatever is in it."""
    tree = mixed()
    copied = ferry.snapshot(tree)
    for key in tree:
        if key != "list":
            assert not ferry.shares_memory(copied[key], tree[key])


def test_a_snapshot_is_what_was_then_convert_tree_what_is_now():
    """Two names for two meanings."""
    import torch

    weights = {"w": torch.zeros(2)}
    before, view = ferry.snapshot(weights), ferry.convert_tree(weights, "numpy")
    weights["w"] += 1
    assert before["w"].tolist() == [0.0, 0.0]
    assert view["w"].tolist() == [1.0, 1.0]


def test_a_part_of_a_snapshot_keeps_nothing_else_alive():
    """Each tensor has memory of its own, not a piece of one that is as long as the tree."""
    import torch

    tree = {"a": np.ones(5), "b": np.ones((2, 2), "int8"), "c": torch.ones(7), "d": torch.ones(3)}
    copied = ferry.snapshot(tree)
    assert all(copied[key].flags.owndata for key in "ab")
    assert [copied[key].untyped_storage().nbytes() for key in "cd"] == [28, 12]


def test_ties_and_views_survive():
    """One tensor twice is one; two views of one memory are two views of the copy."""
    import torch

    base = torch.arange(8.0)
    copied = ferry.snapshot({"a": base, "b": base, "part": base[2:5], "numpy": base.numpy()[4:]})
    assert copied["a"] is copied["b"]
    copied["part"][0] = 99
    assert copied["a"][2] == 99
    copied["numpy"][0] = 77
    assert copied["a"][4] == 77
    assert base.tolist() == list(range(8))


@pytest.mark.parametrize("framework", ["jax", "tensorflow"])
def test_what_can_be_written_shares_nothing_with_what_cannot(framework):
    """An array over a constant's memory becomes memory of its own, and the constant stays constant."""
    constant = ferry.convert(np.arange(16.0, dtype="float32"), framework)
    array, copied = ferry.snapshot([ferry.to_numpy(constant), constant])
    array[0] = 99
    assert ferry.to_list(copied)[0] == 0


def test_a_broadcast_copy_is_ones_own_element_by_element():
    """Also beside another view of the same memory."""
    base = np.arange(3.0)
    for tree in (ferry.snapshot, lambda tree: ferry.convert_tree(tree, "numpy", copy=True)):
        row, rows = tree([base, np.broadcast_to(base, (2, 3))])
        rows[0, 0] = 9
        assert rows.tolist() == [[9, 1, 2], [0, 1, 2]]
        assert row.tolist() == [0, 1, 2]


def test_a_sparse_view_does_not_part_those_that_are_close():
    """Whether two views stay one memory does not depend on a third."""
    base = np.arange(10_000.0)
    tree = {"y": base[5:10], "z": base[6:11], "x": base[::1000]}
    for result in (ferry.snapshot(tree), ferry.convert_tree(tree, "torch", copy=True)):
        assert ferry.shares_memory(result["y"], result["z"])
        assert not ferry.shares_memory(result["x"], result["y"])
        assert ferry.to_list(result["x"]) == tree["x"].tolist()


def test_what_is_twice_on_a_device_is_copied_once():
    """The same tensor is one copy there too."""
    with simulated.installed():
        x = ferry.convert(np.arange(4.0), "simulated", device="sim:0")
        copied = ferry.snapshot({"a": x, "b": x})
        assert copied["a"] is copied["b"]
        assert not ferry.shares_memory(copied["a"], x)
        assert ferry.to_list(copied["a"]) == [0.0, 1.0, 2.0, 3.0]


def test_an_object_array_of_numbers_stays_an_array():
    """Its framework is NumPy, whatever its elements are."""
    copied = ferry.snapshot([np.array([1, 2], dtype=object)])[0]
    assert (type(copied), copied.tolist()) == (np.ndarray, [1, 2])


def test_a_snapshot_is_writable_and_outside_the_graph():
    """A plain tensor, whatever it was taken of."""
    import torch

    frozen = np.arange(3)
    frozen.flags.writeable = False
    copied = ferry.snapshot([frozen, torch.nn.Parameter(torch.ones(1))])
    assert copied[0].flags.writeable
    assert type(copied[1]) is torch.Tensor
    assert not copied[1].requires_grad


def test_the_order_of_axes_in_memory_is_kept():
    """Fortran order stays Fortran order."""
    assert ferry.snapshot(np.asfortranarray(np.ones((2, 3)))).flags.f_contiguous


def test_a_snapshot_lives_without_its_source():
    """And one part of it without the others."""
    import gc

    tree = {"a": np.arange(1000.0), "b": np.arange(10)}
    part = ferry.snapshot(tree)["b"]
    del tree
    gc.collect()
    assert part.tolist() == list(range(10))


def test_what_has_not_one_memory_is_refused_by_path():
    """All of it at once."""
    import torch

    with pytest.raises(ferry.TreeError) as caught:
        ferry.snapshot(
            {"a": torch.eye(2).to_sparse(), "b": [np.ma.array([1], mask=[True])], "c": np.ones(1)}
        )
    assert [each.message.rpartition(" - at ")[2] for each in caught.value.exceptions] == [
        '$["a"]',
        '$["b"][0]',
    ]
