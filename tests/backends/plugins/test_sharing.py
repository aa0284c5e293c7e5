"""The sharing rule for backends of others: what may not be written comes out read-only, or as a copy."""

from __future__ import annotations

import sys
import types
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from tests.backends.plugins.packages import BACKEND, READ_ONLY
from tests.support import address, frozen

import tensorferry as ferry
from tensorferry.backends import fast_paths, registry
from tensorferry.core.capabilities import Devices


class Tensor:
    def __init__(self, array):
        self.array = array


@contextmanager
def _registered(name, *, read_only):
    module = types.ModuleType(name)
    module.Tensor = type("Tensor", (Tensor,), {"__module__": name})
    sys.modules[name] = module
    body = BACKEND.format(module=name, kind="Mine", read_only=read_only)
    names = {}
    exec(body + (READ_ONLY.format(module=name) if read_only else ""), names)  # noqa: S102 - the source of a package
    backend = names["Mine"]()
    registry.register(backend)
    try:
        yield backend
    finally:
        del sys.modules[name]
        fast_paths._by_backend.pop(name, None)
        for table in (registry._by_name, registry._by_module, registry._ready, registry.BY_TYPE):
            for key in [key for key, each in table.items() if each is backend]:
                del table[key]


@pytest.fixture
def slabs():
    """A framework on the host whose tensors can always be written."""
    with _registered("slabs", read_only=False) as backend:
        yield backend


@pytest.fixture
def glass():
    """One that can present memory read-only."""
    with _registered("glass", read_only=True) as backend:
        yield backend


def in_a_graph():
    return torch.arange(3.0, requires_grad=True)


def non_leaf():
    return in_a_graph() * 2


SOURCES = {
    "a leaf of a graph": in_a_graph,
    "in a graph": non_leaf,
    "a parameter": lambda: torch.nn.Parameter(torch.arange(3.0)),
    "read-only": lambda: frozen(np.arange(3, dtype="float32")),
    "a read-only view": lambda: np.broadcast_to(np.arange(3, dtype="float32"), (3,)),
}
IN_A_GRAPH = [name for name, make in SOURCES.items() if isinstance(make(), torch.Tensor)]


def values(x):
    return ferry.to_list(x)


def write(y):
    y.array[0] = 7


@pytest.mark.parametrize("name", SOURCES)
def test_a_target_without_read_only_tensors_gets_a_copy(slabs, name):
    """What is written to it is nobody else's; the plan says why."""
    x = SOURCES[name]()
    before = values(x)
    y = ferry.convert(x, "slabs")
    plan = ferry.explain(x, "slabs")
    assert not plan.shares_memory
    assert "slabs has no read-only tensors" in plan.reason
    write(y)
    assert values(x) == before
    assert not ferry.shares_memory(x, y)


@pytest.mark.parametrize("name", IN_A_GRAPH)
@pytest.mark.parametrize("ask", [ferry.convert, ferry.explain])
def test_out_of_a_graph_there_is_no_consent_to_writes(slabs, name, ask):
    """copy=False is refused with the reason, and the hint shares: detach is how torch itself says it."""
    x = SOURCES[name]()
    with pytest.raises(
        ferry.CopyRequiredError, match="slabs has no read-only tensors: a write would bypass"
    ) as caught:
        ask(x, "slabs", copy=False)
    code = caught.value.hint.partition(", whose")[0]
    y = eval(code, {"x": x, "convert": ferry.convert})  # noqa: S307 - the hint that a person would paste
    assert ferry.shares_memory(x, y)
    write(y)
    assert x.detach()[0] == 7


@pytest.mark.parametrize("name", [name for name in SOURCES if name not in IN_A_GRAPH])
def test_of_what_is_read_only_copy_false_is_consent(slabs, name):
    """As for torch: shared without a copy, and the plan names the hazard."""
    x = SOURCES[name]()
    plan = ferry.explain(x, "slabs", copy=False)
    assert plan.shares_memory
    assert any("does not permit to write" in warning for warning in plan.warnings)
    assert ferry.shares_memory(x, ferry.convert(x, "slabs", copy=False))


@pytest.mark.parametrize("copy", [None, False])
@pytest.mark.parametrize("name", SOURCES)
def test_a_target_with_read_only_tensors_shares_and_cannot_be_written(glass, name, copy):
    """Its verb is called, although what it adopts would be writable; describe and the plan say so."""
    x = SOURCES[name]()
    y = ferry.convert(x, "glass", copy=copy)
    plan = ferry.explain(x, "glass", copy=copy)
    assert [step.verb for step in plan.steps][-2:] == ["adopt", "read_only"]
    assert plan.shares_memory
    assert plan.result.writable is False
    assert y.array.__array_interface__["data"][0] == address(
        x.detach() if isinstance(x, torch.Tensor) else x
    )
    with pytest.raises(ValueError, match="read-only"):
        write(y)
    assert ferry.describe(y).writable is False


@pytest.mark.parametrize("target", ["slabs", "glass"])
def test_what_may_be_written_is_shared_and_writable(slabs, glass, target):
    """Both sides know that writes show: no step and no flag more than before."""
    x = np.arange(3, dtype="float32")
    y = ferry.convert(x, target)
    assert "read_only" not in [step.verb for step in ferry.explain(x, target).steps]
    write(y)
    assert x[0] == 7


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("target", ["slabs", "glass"])
def test_a_copy_that_is_asked_for_is_writable(slabs, glass, target, name):
    """copy=True gives memory of one's own, whatever the source is."""
    x = SOURCES[name]()
    before = values(x)
    write(ferry.convert(x, target, copy=True))
    assert values(x) == before


def test_a_tree_of_them_has_the_same_rule(slabs, glass):
    """Leaves are planned as one call of convert each would be."""
    x = in_a_graph()
    (y,) = ferry.convert_tree([x], "slabs")
    write(y)
    assert x[0] == 0
    (y,) = ferry.convert_tree([x], "glass")
    with pytest.raises(ValueError, match="read-only"):
        write(y)


def test_where_there_are_read_only_tensors_or_none_is_needed_nothing_has_changed():
    """NumPy gets a read-only view, torch stays in the graph."""
    x = non_leaf()
    assert not ferry.to_numpy(x).flags.writeable
    assert not ferry.to_numpy(x, copy=False).flags.writeable
    assert ferry.to_torch(x) is x
    assert ferry.to_torch(x, copy=False) is x


ON_A_DEVICE = ferry.TensorInfo("torch", (3,), "float32", "cuda:0", requires_grad=True)


def test_on_a_device_a_tensor_in_a_graph_is_copied_for_a_writable_target():
    """CuPy has no read-only arrays: its own memory on the same device; copy=False is refused with the reason."""
    plan = ferry.explain(ON_A_DEVICE, "cupy")
    assert not plan.shares_memory
    assert [step.verb for step in plan.steps if step.copies] == ["copy"]
    assert {step.path for step in plan.steps if step.copies} == {"device"}
    assert "cupy has no read-only tensors" in plan.reason
    with pytest.raises(ferry.CopyRequiredError, match="cupy has no read-only tensors") as caught:
        ferry.explain(ON_A_DEVICE, "cupy", copy=False)
    assert caught.value.hint.startswith('convert(x.detach(), "cupy", copy=False)')
    assert ferry.explain(
        ON_A_DEVICE._replace(requires_grad=False), "cupy", copy=False
    ).shares_memory


@pytest.mark.parametrize("writable", [True, False])
def test_on_a_device_the_verb_is_called_too(glass, monkeypatch, writable):
    """A target that presents a device's memory read-only is asked to, after the import."""
    on_cuda = glass.capabilities._replace(devices=Devices(("cuda",)))
    monkeypatch.setattr(type(glass), "capabilities", on_cuda)
    monkeypatch.setattr(
        glass, "import_dlpack", None, raising=False
    )  # is planned here, and not called
    info = ON_A_DEVICE if writable else ON_A_DEVICE._replace(requires_grad=False, writable=False)
    plan = ferry.explain(info, "glass")
    assert [step.verb for step in plan.steps][-2:] == ["import_dlpack", "read_only"]
    assert plan.shares_memory
    assert plan.result.writable is False
