"""The conformance suite on this package's own backends: every source, layout, dtype, target and copy=."""

from __future__ import annotations

import pytest

from tensorferry import testing
from tensorferry.backends import registry

OWN = ("numpy", "torch", "tensorflow", "jax", "python")


def own(paths):
    return [
        group for group in testing.groups(paths=paths) if {group.source, group.target} <= set(OWN)
    ]


@pytest.mark.parametrize("group", own(paths=False), ids=str)
def test_each_cell_keeps_the_contract(group):
    """Values, dtype, type, memory, writability, the source unharmed, and a plan that said so before."""
    assert testing.check(group)


@pytest.mark.fast_paths
@pytest.mark.parametrize("group", own(paths=True), ids=str)
def test_each_cell_keeps_the_contract_through_the_fast_paths(group):
    """What a fast path gives is judged by the same contract as what the plan gives."""
    assert testing.check(group)


def test_every_backend_has_a_witness():
    """A backend file without a witness would be a framework that is not tested."""
    makers = {name for name, backend in registry.backends().items() if backend.is_target}
    assert makers - {"cupy"} <= set(testing.witnesses())
    assert set(OWN) <= makers


@pytest.mark.parametrize("name", [name for name in OWN if name != "python"])
def test_what_a_backend_declares_its_framework_has(name):
    """A dtype that is declared can be made with the framework's own operations; Python's numbers have none."""
    witness, declared = testing.witness_for(name), registry.ready(name).capabilities
    lacking = [dtype for dtype in sorted(declared.dtypes.held) if not witness.knows(dtype)]
    assert not lacking


def test_there_are_thousands_of_cells():
    """The suite is not empty by accident: it makes tens of thousands of conversions."""
    for witness in testing.witnesses().values():
        witness.missing()
    cells = 0
    for group in own(paths=False):
        source = testing.witness_for(group.source)
        if group.mode in ("", "32 bits"):
            cells += 3 * sum(
                source.make(group.layout, dtype) is not None for dtype in ("float32", "uint8")
            )
    assert cells > 1500  # with two dtypes of thirty
