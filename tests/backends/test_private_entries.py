"""Entries of a framework that are not public: the pinned versions have them, and without them the public ones serve."""

import numpy as np

import tensorferry as ferry
from tensorferry.backends import registry
from tensorferry.host import memory


class _NothingPrivate:
    """An importlib that finds no private module."""

    @staticmethod
    def import_module(name):
        raise ImportError(name)


def test_the_pinned_jax_has_the_fast_entry():
    """Arrays enter JAX below `jax.device_put`; were that entry gone, each would cost nine times as much."""
    backend = registry.ready("jax")

    assert backend._find_place().__name__ == "place"


def test_without_the_fast_entry_the_public_one_shares_as_well(monkeypatch):
    """The values and the memory are the same, whichever entry an array takes."""
    backend = registry.ready("jax")
    monkeypatch.setattr(backend, "_place", None)
    monkeypatch.setattr("tensorferry.backends.jax.tensors.importlib", _NothingPrivate)
    array = memory.compact((16,), np.dtype(np.float32))
    array[...] = range(16)

    shared = ferry.to_jax(array, copy=False)

    assert backend._place.__name__ == "public"
    assert ferry.shares_memory(shared, array)
    assert ferry.to_list(shared) == list(range(16))


def test_addresses_are_read_right_with_and_without_the_short_way():
    """The short way to an array's address gives what NumPy documents."""
    array = np.arange(60, dtype=np.int32).reshape(6, 10)[::-2, 1::3]

    assert memory.address(array) == memory._slow_address(array) == array.ctypes.data
