"""The conformance suite on the libraries of columns: as sources and targets, among themselves and with others."""

from __future__ import annotations

import pytest

from tensorferry import testing
from tensorferry.backends import registry

COLUMNS = ("arrow", "pandas", "polars")
OTHERS = ("numpy", "torch", "python")


def groups(paths):
    return [
        group
        for group in testing.groups(paths=paths)
        if {group.source, group.target} & set(COLUMNS)
        and {group.source, group.target} <= {*COLUMNS, *OTHERS}
    ]


def judge(group):
    try:
        count = testing.check(group)
    except LookupError as error:
        pytest.skip(str(error))
    assert count


@pytest.mark.parametrize("group", groups(paths=False), ids=str)
def test_each_cell_keeps_the_contract(group):
    """Values, dtype, memory, writability, the source unharmed, and a plan that said so before."""
    judge(group)


@pytest.mark.fast_paths
@pytest.mark.parametrize("group", groups(paths=True), ids=str)
def test_each_cell_keeps_the_contract_through_the_fast_paths(group):
    """The same of what a fast path gives."""
    judge(group)


@pytest.mark.parametrize("name", COLUMNS)
def test_what_a_backend_declares_its_library_has(name):
    """Each dtype that is declared can be made with the library's own operations."""
    try:
        witness = testing.witness_for(name)
    except LookupError as error:
        pytest.skip(str(error))
    assert not [
        each for each in registry.ready(name).capabilities.dtypes.held if not witness.knows(each)
    ]
