"""Many PyTorch tensors together: verbs and fast paths for lists of them, and those that are stacked.

Where PyTorch has a function for lists, it is called once. Otherwise, settings are read once for all
tensors.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ...host import casts, memory
from ...sequences import numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...core.info import TensorInfo
    from ...typing import Array
    from .tensors import TorchBackend

__all__ = ["are_alike", "describe_alike", "fast_paths", "list_path", "verbs"]

_DTYPE, _REQUIRES_GRAD = attrgetter("dtype"), attrgetter("requires_grad")
_IS_CPU, _IS_NESTED = attrgetter("is_cpu"), attrgetter("is_nested")


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


def fast_paths(
    backend: TorchBackend,
) -> Mapping[tuple[type, str], Callable[[list[Any]], list[Any] | None]]:
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
        return (
            None
            if False in {array.flags.carray for array in arrays}
            else list(map(from_numpy, arrays))
        )

    return path


# -- tensors that a quick check shows to be alike --------------------------------------------------


def list_path(backend: TorchBackend) -> Callable[[list[Any]], Any]:
    """The fast path of a list to PyTorch: a list of numbers, or of PyTorch tensors that are alike.

    `torch.stack` keeps them in their graph, and refuses different shapes and devices.
    """
    read, from_numpy = (
        numbers.list_reader({bool: "bool", int: "int64", float: "float32"}),
        backend.from_numpy,
    )
    default_dtype, single = backend.torch.get_default_dtype, backend.torch.float32
    memories, compiling, stack = backend.memories, backend.compiling, backend.torch.stack
    are_alike = backend.are_alike

    def path(x: list[Any]) -> Any:
        if not x or compiling():
            return None
        if type(x[0]) not in memories:
            array = read(x) if default_dtype() is single else None
            return None if array is None else from_numpy(array)
        # `torch.stack` would also read freed storage, which ends the process, and mix dtypes in
        # silence.
        if are_alike(x) is None or x[0].is_nested:
            return None
        return stack(x) if x[0].nbytes * len(x) < memory.MAPPED or not x[0].is_cpu else None

    return path


def describe_alike(backend: TorchBackend, tensors: Sequence[Any]) -> TensorInfo | None:
    """See `Backend.describe_alike`."""
    # Tensors with lazy bits or tangents are described one by one.
    first = tensors[0]
    if (
        first.is_complex()
        or backend.forward._current_level >= 0
        or backend.are_alike(tensors) is None
    ):
        return None
    if any(map(_IS_NESTED, tensors)) or not all(map(_IS_CPU, tensors)):
        return None
    if not first.is_floating_point():
        return backend.describe(first)
    if any(map(backend.tensor.is_neg, tensors)):
        return None
    return backend.describe(first)._replace(requires_grad=any(map(_REQUIRES_GRAD, tensors)))


def are_alike(backend: TorchBackend, tensors: Sequence[Any]) -> Any:
    """The dtype of all, if they are plain tensors or parameters with memory; else ``None``."""
    if not backend.memories.issuperset(map(type, tensors)) or len(set(map(_DTYPE, tensors))) > 1:
        return None
    try:
        has_memory = min(map(backend.tensor.data_ptr, tensors)) >= memory.LOWEST
    except RuntimeError:
        return None
    return tensors[0].dtype if has_memory and tensors[0].dtype in backend.names else None
