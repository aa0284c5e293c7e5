"""The table that stands for the backends of this package until they are imported."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import pytest
from tests.support import survives

from tensorferry import backends
from tensorferry.backends.array_like import libraries
from tensorferry.backends.array_like.declared import LIBRARIES
from tensorferry.backends.registry import code_of
from tensorferry.backends.table import OWNERS, ROWS, Row

FOLDERS = [module.name for module in pkgutil.iter_modules(backends.__path__) if module.ispkg]


def test_each_folder_has_a_row_and_each_row_a_folder():
    assert sorted(code_of(name).split(".")[-2] for name in ROWS) == sorted(FOLDERS)


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
def test_a_row_says_what_the_backend_says(row):
    """The registry believes the table, so a difference would be two truths."""
    backend = import_module(code_of(row.name)).BACKEND
    assert [getattr(backend, field) for field in Row._fields] == list(row)
    assert backend.is_imported() == row.is_imported()


def test_the_rows_are_in_the_order_of_their_ranks():
    ranks = [import_module(code_of(name)).BACKEND.rank for name in ROWS]
    assert ranks == sorted(ranks)


def test_no_module_has_two_owners():
    assert len(OWNERS) == sum(len(row.owns) for row in ROWS.values())


MET = """
import sys
import numpy as np
import tensorferry as ferry

def imported():
    mine = [name.split(".") for name in sys.modules if name.startswith("tensorferry.backends.")]
    return {name[2] for name in mine if name[3:] == ["tensors"]}

assert imported() == set(), imported()
ferry.to_numpy(np.ones(3))
assert imported() == {"numpy"}, imported()
ferry.to_list(np.ones(3))
assert imported() == {"numpy", "python"}, imported()
assert ferry.convert(np.ones(3), "np").shape == (3,)
assert imported() == {"numpy", "python"}, imported()
import torch
assert imported() == {"numpy", "python"}, imported()
ferry.convert_tree({"a": torch.ones(3)}, "numpy")
assert imported() <= {"numpy", "python", "torch"}, imported()
import jax.numpy
ferry.to_numpy(jax.numpy.ones(3))
assert imported() == {"numpy", "python", "torch", "jax"}, imported()
assert list(ferry.frameworks())[:3] == ["numpy", "torch", "tensorflow"]
"""


def test_a_backend_is_imported_when_it_is_named_or_met():
    """Nine of ten backends would be imported in vain in most processes."""
    survives(MET)


REGISTERED_FIRST = """
import numpy as np
from tensorferry.backends import registry
from tensorferry.backends.numpy.tensors import NumpyBackend

class Other(NumpyBackend):
    pass

mine = Other()
registry.register(mine)
assert registry.backend_named("numpy") is mine
assert registry.backend_of(np.ones(3)) is mine
assert registry.known()["numpy"] is mine and list(registry.known())[1] == "numpy"
"""


def test_a_backend_that_was_registered_before_is_not_replaced():
    """Who registers a backend of the same name has replaced it, whether it was imported before or not."""
    survives(REGISTERED_FIRST)


def test_the_libraries_of_array_like_objects_are_declared():
    """By their names, for the error that knows them without the code that opens their objects."""
    assert {*libraries.CLASSES} == {*LIBRARIES}
