"""What a backend has for speed only: its defaults are right, and without it every result is the same."""

from __future__ import annotations

import ast
import inspect
import os
from functools import cached_property
from operator import attrgetter

import numpy as np
import pytest
from tests.support import TARGETS

import tensorferry as ferry
from tensorferry.backends import base, fast_paths, registry
from tensorferry.backends.quick import Quick, quick_of
from tensorferry.execution import recipes, run, target

EVERYWHERE = (*TARGETS, "python")


@pytest.fixture
def slow(monkeypatch):
    """Each backend with the default, as it is when its `quick_code` is deleted."""
    for name in EVERYWHERE:
        registry.ready(name)
    monkeypatch.setattr(base, "quick_of", Quick)
    for backend in registry.known().values():
        monkeypatch.setattr(backend, "quick", Quick(backend))
    forget()
    yield
    monkeypatch.undo()
    forget()


def forget():
    """Forget what is kept of conversions, and so of each `Quick`."""
    recipes.forget_recipes()
    target._readers.clear()
    target._followed.clear()


@pytest.mark.parametrize("name", EVERYWHERE)
def test_it_is_made_when_the_framework_is_loaded(name):
    """Of the type that the backend names; in a run without any of them, of the default's."""
    backend = registry.ready(name)
    expected = Quick if "FERRY_NO_QUICK" in os.environ else type(quick_of(backend))
    assert type(backend.quick) is expected
    assert (expected is Quick) == ("FERRY_NO_QUICK" in os.environ)


@pytest.mark.quick
@pytest.mark.parametrize("name", EVERYWHERE)
def test_what_is_read_at_every_call_is_where_the_interpreter_finds_it_fast(name):
    """It does not for attributes of an object that has a dict of its own, as `cached_property` makes it."""
    kinds = type(quick_of(registry.ready(name))).__mro__
    assert not any(
        isinstance(value, cached_property) for kind in kinds for value in vars(kind).values()
    )


def test_a_call_reads_a_slot_before_it_calls_what_is_in_it():
    """The interpreter speeds up to read a slot, but not to call what is in one, as in `x.slot()`."""
    tree = ast.parse(inspect.getsource(run.convert))
    functions = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    methods = {function.attr for function in functions if isinstance(function, ast.Attribute)}
    assert "find" in methods
    assert methods.isdisjoint(recipes.Conversion.__slots__)


@pytest.mark.parametrize("name", TARGETS)
def test_by_default_each_tensor_is_described(name):
    """No signature, no likeness, no groups, no extents, and nothing that many have in common."""
    backend = registry.ready(name)
    quick, x = Quick(backend), ferry.convert([1.0, 2.0], name)
    request = recipes.conversion_as("numpy").request
    read = quick.signature_reader(type(x), registry.ready("numpy"), request)
    assert quick.signature(x) is read(x) is quick.likeness(x) is None
    assert quick.grouped([x, x], 64) is quick.extents([x, x], compact=True) is None
    assert quick.describe_alike([x, x]) is quick.join_alike([x, x]) is None
    assert quick.owns_memory(("any",)) is False


@pytest.mark.parametrize("name", TARGETS)
def test_by_default_each_step_calls_the_verb(name):
    """And no conversion goes past the plan."""
    quick = Quick(registry.ready(name))
    plan = ferry.explain(ferry.TensorInfo(name, (2,)), "numpy", copy=True)
    assert all(quick.specialised(step, plan) is None for step in plan.steps)
    assert quick.for_many() == quick.fast_paths() == {}


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 3)])
def test_by_default_lengths_are_the_shape(name, shape):
    x = ferry.convert(np.zeros(shape, np.float32), name)
    assert Quick(registry.ready(name)).lengths(x) == tuple(x.shape) == shape


def test_by_default_the_environment_is_what_the_backend_can_do_now():
    """It changes with a setting on which plans depend."""
    torch = pytest.importorskip("torch", reason="PyTorch is in the test environment")
    quick = Quick(registry.ready("torch"))
    before = quick.environment()
    torch.set_default_dtype(torch.float64)
    try:
        assert quick.environment() != before
    finally:
        torch.set_default_dtype(torch.float32)
    assert quick.environment() == before


class Shapely(Quick):
    """A signature, and nothing else: what is built on it by default."""

    def signature(self, x):
        return ("shape", x.shape) if x.ndim else None


def test_what_is_built_on_a_signature():
    """Groups, a likeness, and what is read for a target."""
    quick = Shapely(registry.ready("numpy"))
    short, long, none = np.zeros(2), np.zeros(3), np.zeros(())
    assert quick.grouped([short, long, short], 1) == {
        ("shape", (2,)): [0, 2],
        ("shape", (3,)): [1],
    }
    assert quick.grouped([short, none], 1) is quick.likeness(none) is None
    assert quick.likeness(long) == ("shape", (3,))
    request = recipes.conversion_as("numpy").request
    read = quick.signature_reader(np.ndarray, registry.ready("numpy"), request)
    assert read(short) == ("shape", (2,))


ASKED = [{}, {"copy": True}, {"dtype": "float16"}, {"device": "cpu"}]


def results(name, source):
    """What comes of a tensor: alone, as a leaf, in a batch, in a list, by ``like=`` and into ``out=``."""
    x = ferry.convert(np.arange(6, dtype=np.float32).reshape(2, 3), source)
    found = [ferry.convert(x, name, **asked) for asked in ASKED]
    found.append(ferry.convert(x, like=ferry.convert([1.0], name)))
    if source != "python":  # whose lists are containers in a tree
        found += ferry.convert_tree([x, x + 1], name, copy=True)
        found.append(ferry.collate([{"a": x}, {"a": x}], name)["a"])
        found.append(ferry.convert([x, x], name))
    if name in ("numpy", "torch"):
        found.append(ferry.convert(x, name, out=ferry.convert(np.zeros((2, 3)), name, copy=True)))
    return [(type(each), ferry.to_numpy(each).dtype, ferry.to_list(each)) for each in found]


@pytest.mark.fast_paths
@pytest.mark.parametrize("name", EVERYWHERE)
@pytest.mark.parametrize("source", EVERYWHERE)
def test_without_it_every_result_is_the_same(name, source, request):
    """Each way on which it is asked."""
    before = fast_paths.open_all(False)
    try:
        expected = results(name, source)
        request.getfixturevalue("slow")
        assert results(name, source) == expected
    finally:
        fast_paths.open_all(before)


@pytest.mark.quick
def test_lengths_are_read_without_a_description(monkeypatch):
    """By each backend of this package that has them for tensors: else `out=` would describe twice."""
    for name in TARGETS:
        backend = registry.ready(name)
        x = ferry.convert([1.0, 2.0], name)
        with monkeypatch.context() as patch:
            patch.setattr(backend, "describe", attrgetter("nothing"))
            assert backend.quick.lengths(x) == (2,)
