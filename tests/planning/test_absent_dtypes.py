"""A dtype that a framework lacks for now, as JAX lacks 64 bits: what is there stays, and nothing new has it."""

from __future__ import annotations

import pytest

from tensorferry import LossyCastError, TensorInfo
from tensorferry.backends.numpy.declared import DECLARED as NUMPY
from tensorferry.core.capabilities import Capabilities, Devices, Dtypes, Memory, Options
from tensorferry.core.declaration import Declared
from tensorferry.core.request import Request
from tensorferry.planning.planner import make_plan

NUMBERS = {"bool": ("int32",), "int": ("int32",), "float": ("float32",), "complex": ()}
WIDE = TensorInfo("numpy", (2,), "float64")._replace(framework="mine")


def plan(info=WIDE, hint="widen() first", held=("float32", "int32"), **asked):
    """To a made-up framework that has float64 only where it is switched on, and never float16."""
    dtypes = Dtypes(
        frozenset(held),
        NUMBERS,
        absent_reasons={"float64": " until widen() is called"},
        absent_hint=hint,
    )
    capabilities = Capabilities(
        dtypes,
        Memory(writable=True),
        devices=Devices(("cpu",)),
        options=Options(frozenset({"fresh"})),
    )
    mine = Declared("mine", capabilities, lambda call: f"{call.verb}({call.x})", {})
    source = NUMPY if info.framework == "numpy" else mine
    return make_plan(info, Request("mine", **asked), source, mine, NUMPY)


@pytest.mark.parametrize("asked", [{}, {"dtype": "fit"}, {"copy": False}])
def test_what_is_there_already_is_given_back_as_it_is(asked):
    """Nothing has to be made: the tensor itself is the result."""
    made = plan(**asked)
    assert made.steps == ()
    assert (made.result.dtype, made.shares_memory) == ("float64", True)


@pytest.mark.parametrize("asked", [{"copy": True}, {"device": "cpu"}, {"options": ("fresh",)}])
def test_no_other_is_made_of_it(asked):
    """A copy, a move or an option is a new tensor, which cannot have the dtype; what fits is narrower."""
    with pytest.raises(LossyCastError, match="mine has no float64 until widen"):
        plan(**asked)
    assert plan(**asked, dtype="fit").result.dtype == "float32"


@pytest.mark.parametrize("info", [WIDE._replace(kind="rows"), TensorInfo("numpy", (2,), "float64")])
def test_none_is_made_of_several_nor_of_anothers(info):
    """A list of such tensors is stacked into a new one; an array of NumPy's is not the framework's."""
    with pytest.raises(LossyCastError, match="mine has no float64 until widen"):
        plan(info)
    assert plan(info, dtype="fit").result.dtype == "float32"


def test_the_switch_is_named_only_where_it_helps():
    """It brings what is lacking for now, and not what the framework never has; where there is none, none is named."""
    for info, dtype, hint, said in (
        (WIDE, "float64", "widen() first", 'dtype="float32", or widen() first'),
        (WIDE, "float64", "", 'dtype="float32"'),
        (TensorInfo("numpy", (2,), "float32"), "float16", "widen() first", 'dtype="float32"'),
    ):
        with pytest.raises(LossyCastError) as caught:
            plan(info, hint, dtype=dtype)
        assert caught.value.hint == said


@pytest.mark.parametrize(
    ("dtype", "hint"),
    [
        ("int64", 'dtype="fit"'),
        ("int8", 'dtype="fit"'),
        ("complex64", 'dtype="float32", which keeps each value or raises'),
    ],
)
def test_what_a_framework_never_has_is_refused_with_what_does_it(dtype, hint):
    """Another of its kind if there is one; else one that compares each value."""
    with pytest.raises(LossyCastError) as caught:
        plan(TensorInfo("numpy", (2,), dtype))
    assert caught.value.hint == hint


def test_a_kind_that_a_framework_lacks_is_held_by_the_narrowest_of_another():
    """Small unsigned integers are all among the signed ones; "fit" stays in the kind, and would not do."""
    with pytest.raises(LossyCastError) as caught:
        plan(TensorInfo("numpy", (2,), "uint16"), held={"int64", "int32", "float64"})
    assert caught.value.hint == 'dtype="int32"'
