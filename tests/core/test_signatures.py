"""What belongs to the signature of a description: all but its lengths."""

from __future__ import annotations

import pytest

from tensorferry import TensorInfo
from tensorferry.backends.lists import Members
from tensorferry.core.signature import signature_of

PLAIN = TensorInfo("torch", (2, 3), "complex64")
OTHERS = {
    "framework": "numpy",
    "dtype": "float64",
    "device": "cuda:0",
    "misalignment": 8,
    "writable": False,
    "mutable": False,
    "requires_grad": True,
    "conjugate": True,
    "negative": True,
    "swapped": True,
    "weak_dtype": "float32",
    "memory_map": True,
    "pinned": True,
    "shards": 2,
    "kind": TensorInfo("torch", kind="Parameter").kind,
    "abstract": "meta",
}
"""Another value of each field that belongs to a signature."""


def test_each_field_is_looked_at():
    """A new one has to be decided about here."""
    assert {*OTHERS} == {*TensorInfo._fields} - {"shape", "strides"}


@pytest.mark.parametrize("field", OTHERS)
def test_another_value_is_another_signature(field):
    """Since a plan can depend on it."""
    assert signature_of(PLAIN._replace(**{field: OTHERS[field]})) != signature_of(PLAIN)


def test_lengths_alone_are_not_in_a_signature():
    """So that one recipe converts tensors of all lengths."""
    assert signature_of(TensorInfo("torch", (5, 7), "complex64")) == signature_of(PLAIN)


@pytest.mark.parametrize("field", [name for name in OTHERS if name != "framework"])
def test_the_steps_of_a_stack_depend_on_all_but_lengths_and_addresses(field):
    """The members' backends tell their frameworks."""

    def signature(**changes):
        return Members([], [PLAIN._replace(**changes)], ["its backend"], None).signature

    same = signature(**{field: OTHERS[field]}) == signature()
    assert same is (field == "misalignment")
    assert signature(shape=(4,), strides=(8,)) == signature()


@pytest.mark.parametrize("field", OTHERS)
def test_members_that_differ_in_gradients_and_writability_take_the_same_steps(field):
    """And those that differ in their addresses."""
    infos = [PLAIN, PLAIN._replace(**{field: OTHERS[field]})]
    alike = field in ("misalignment", "writable", "mutable", "requires_grad")
    assert Members([], infos, [], [0, 1]).take_the_same_steps is alike
