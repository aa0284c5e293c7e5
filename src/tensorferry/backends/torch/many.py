"""Verbs and fast paths for many PyTorch tensors together.

Where PyTorch has a function for lists, it is called once. Otherwise, settings are read once for all tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...host import casts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ...typing import Array
    from .tensors import TorchBackend

__all__ = ["fast_paths", "verbs"]


def verbs(backend: TorchBackend) -> Mapping[str, Callable[..., Any]]:
    """See `Backend.for_many`."""
    clone = backend.tensor.clone
    clone_all: Callable[[list[Any]], Any] | None = getattr(backend.torch, "_foreach_clone", None)

    def copy(tensors: list[Any]) -> list[Any]:
        # In a graph, each tensor needs its own node.
        if clone_all is None or tensors[0].requires_grad:
            return list(map(clone, tensors))
        return list(clone_all(tensors))

    def write(arrays: list[Array], outs: list[Any]) -> None:
        casts.write_each(arrays, list(map(backend.export, outs)))
        backend.torch.autograd.graph.increment_version(outs)

    return {"copy": copy, "write": write}


def fast_paths(backend: TorchBackend) -> Mapping[tuple[type, str], Callable[[list[Any]], list[Any] | None]]:
    """See `Backend.fast_paths_for_many`."""
    tensor, parameter = backend.tensor, backend.torch.nn.Parameter
    to_numpy = _to_numpy(backend)
    return {
        (tensor, "numpy"): to_numpy,
        (parameter, "numpy"): to_numpy,
        (np.ndarray, backend.name): _from_numpy(backend),
    }


def _to_numpy(backend: TorchBackend) -> Callable[[list[Any]], list[Any] | None]:
    to_array = backend.to_array

    def path(tensors: list[Any]) -> list[Any] | None:
        if to_array(tensors[0]) is None:
            return None
        arrays = list(map(to_array, tensors))
        return arrays if set(map(type, arrays)) == {np.ndarray} else None

    return path


def _from_numpy(backend: TorchBackend) -> Callable[[list[Any]], list[Any] | None]:
    from_numpy = backend.from_numpy

    def path(arrays: list[Array]) -> list[Any] | None:
        return None if False in {array.flags.carray for array in arrays} else list(map(from_numpy, arrays))

    return path
