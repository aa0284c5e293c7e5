"""A made-up framework as an installed package would bring it, for as long as some tests need it."""

from __future__ import annotations

import sys
from contextlib import contextmanager

from tensorferry import testing
from tensorferry.backends import fast_paths, registry
from tensorferry.testing import witness as known

__all__ = ["groups", "installed"]


@contextmanager
def installed(module, backend, witness):
    """The package is there, and its backend registered; both are gone again afterwards."""
    before = dict(registry.backends())
    is_made_up = (
        sys.modules.setdefault(module.__name__, module) is module and module.__spec__ is None
    )
    registry.register(backend)
    testing.add_witness(witness)
    try:
        yield
    finally:
        if is_made_up:
            del sys.modules[module.__name__]
        known._added.pop(witness.name, None)
        fast_paths._by_backend.pop(module.__name__, None)
        for table in (registry._by_name, registry._by_module, registry._ready, registry.BY_TYPE):
            for key in [key for key, each in table.items() if each.name not in before]:
                del table[key]


def groups(witness):
    """The same groups that `testing.groups` gives while the witness is known."""
    testing.add_witness(witness)
    try:
        return list(testing.groups(witness.name))
    finally:
        known._added.pop(witness.name)
