"""Whether two tensors share memory, observed without asking tensorferry.

Twice: by address, as each framework itself tells it, and by mutation, where one side can be
written: the first element is changed on one side, read on the other, and put back.
"""

from __future__ import annotations

import array
from typing import Any, NamedTuple

import numpy as np

from tensorferry import to_numpy
from tensorferry.backends.registry import backend_of

__all__ = ["Observation", "address", "array_of", "observe", "root_module"]

_BUFFERS = (bytes, bytearray, array.array, memoryview)
_LOOKED_AT = frozenset({"numpy", "torch", "jax", "tensorflow"})


class Observation(NamedTuple):
    """What was seen.

    Args:
        shared: Whether the memory is the same.
        by_address: What the addresses say; ``None`` where one side has none.
        by_mutation: What a write says; ``None`` where neither side can be written.
        writable: Whether the result permits writes; ``None`` where its framework has no such thing.
    """

    shared: bool
    by_address: bool | None
    by_mutation: bool | None
    writable: bool | None

    @property
    def agrees(self) -> bool:
        """Whether the two ways of looking tell the same."""
        return self.by_address is None or self.by_mutation in {None, self.by_address}

    @property
    def how(self) -> str:
        """The evidence, in words."""
        words = {
            (True, True): "same address, a write shows",
            (True, None): "same address",
            (False, False): "other address, a write does not show",
            (False, None): "other address",
            (None, None): "Python numbers have no memory to share",
        }
        return words.get((self.by_address, self.by_mutation), "address and mutation disagree")


def observe(source: Any, result: Any) -> Observation:
    """Look whether `result` shares `source`'s memory; neither is changed in the end."""
    first, second = address(source), address(result)
    by_address = None if first is None or second is None else first == second
    if first is None and result is source and not isinstance(source, list):
        # A frame has a memory for each column, and no address.
        return Observation(shared=True, by_address=True, by_mutation=None, writable=None)
    by_mutation = None
    if by_address is not None:
        for writer, reader in ((result, source), (source, result)):
            cell = _writable(writer)
            if cell is not None:
                by_mutation = _shows(cell, reader)
                break
    shared = bool(by_address if by_mutation is None else by_mutation)
    writable = _writable(result) is not None if root_module(result) in {"numpy", "torch"} else None
    return Observation(shared, by_address, by_mutation, writable)


def root_module(x: Any) -> str:
    """The framework that made `x`, by the module of its type."""
    root = type(x).__module__.partition(".")[0]
    return {"jaxlib": "jax", "ml_dtypes": "numpy"}.get(root, root)


def address(x: Any) -> int | None:
    """The address of the first element, as the framework itself tells it; ``None`` for lists."""
    match root_module(x):
        case "numpy":
            return int(x.ctypes.data)
        case "torch":
            return int(x.data_ptr())
        case "jax":
            return int(x.unsafe_buffer_pointer())
        case "tensorflow":
            return int(np.asarray(x).ctypes.data)
    if isinstance(x, _BUFFERS):
        return int(np.frombuffer(x, np.uint8).ctypes.data)
    return backend_of(x).pointer(x) if _is_of_another_package(x) else None


def array_of(x: Any) -> np.ndarray[Any, Any]:
    """The values, read by the framework itself; only what another package brings has nobody but its backend to ask."""
    return np.asarray(to_numpy(x) if _is_of_another_package(x) else x)


def _is_of_another_package(x: Any) -> bool:
    return not isinstance(x, (*_BUFFERS, list, tuple, int, float, complex)) and root_module(x) not in _LOOKED_AT


class _Cell:
    """The first element of something writable."""

    def __init__(self, flat: Any) -> None:
        self.flat = flat

    def read(self) -> Any:
        return self.flat[0].item()

    def write(self, value: Any) -> None:
        self.flat[0] = value


def _shows(cell: _Cell, reader: Any) -> bool:
    """Whether a write to `cell` is seen in `reader`; undone afterwards."""
    before, kept = _first(reader), cell.read()
    cell.write(1 if before != 1 else 2)
    seen = _first(reader)
    cell.write(kept)
    return bool(seen != before)


def _writable(x: Any) -> _Cell | None:
    """The first element of `x` to write to, or ``None`` where that is not permitted."""
    root = root_module(x)
    if root == "torch":
        return _Cell(x.detach().as_strided((1,), (1,)))
    if isinstance(x, _BUFFERS):
        view = np.asarray(memoryview(x))
        return _Cell(view.reshape(-1)) if view.flags.writeable else None
    if root == "numpy" and x.flags.writeable:
        return _Cell(np.lib.stride_tricks.as_strided(x, (1,), (x.itemsize,)))
    return None


def _first(x: Any) -> Any:
    """The first element as a Python number, read by the framework itself."""
    root = root_module(x)
    if root == "torch":
        return x.detach().reshape(-1)[0].item()
    if root in _LOOKED_AT or _is_of_another_package(x):
        return array_of(x).reshape(-1)[0].item()
    return np.asarray(memoryview(x)).reshape(-1)[0].item()
