"""PyTorch's verbs for values of which all is known that the methods look at: its own functions, nearly bare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.devices import HOST
from ...host import memory

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from ...planning.plan import Plan
    from ...planning.step import Step
    from .tensors import TorchBackend

    Array = np.ndarray[Any, Any]

__all__ = ["bound"]


def bound(backend: TorchBackend, step: Step, plan: Plan) -> Callable[..., Any] | None:
    """See `Backend.bound`."""
    before, after = plan.source, plan.result
    if before.abstract is not None or before.device != HOST or after.device != HOST:
        return None
    carried = {backend.names[dtype]: carrier for dtype, carrier in backend.exported.items()}
    found: Callable[..., Any] | None = None
    if step.verb == "detach":
        found = backend.tensor.detach
    elif _is_copied_by_torch(step, plan):
        found = _Write(backend) if step.verb == "write" else _Same(backend)
    elif step.verb == "export" and before.dtype not in carried:
        found = backend.tensor.numpy
    elif step.verb == "adopt" and (before.writable or not plan.shares_memory):
        found = _adopt(backend) if after.dtype not in carried else _adopt_carried(backend, after.dtype)
    elif step.verb == "copy" and not step.arguments:
        found = _copy(backend)
    return found


def _is_copied_by_torch(step: Step, plan: Plan) -> bool:
    """Whether a step is of those that put one tensor's, or array's, bits into another's, without gaps in either."""
    before, out, last = plan.source, plan.request.out, plan.steps[-1]
    if out is None or before.dtype != out.dtype or last.verb != "write" or not (before.is_compact and out.is_compact):
        return False
    if before.negative or before.conjugate or before.swapped or out.negative or out.conjugate or not before.writable:
        return False
    steps = [(each.backend, each.verb) for each in plan.steps]
    own = before.framework == out.framework and steps[-2:-1] == [(out.framework, "export")]
    return step is last if len(steps) == 1 else own and step in plan.steps[-2:]


def _adopt(backend: TorchBackend) -> Callable[[Array], Any]:
    from_numpy, adopt = backend.from_numpy, backend.adopt

    def bound(array: Array) -> Any:
        try:
            return from_numpy(array)
        except (TypeError, ValueError):
            return adopt(array)

    return bound


def _adopt_carried(backend: TorchBackend, dtype: str) -> Callable[[Array], Any]:
    """The same for a dtype that PyTorch takes as integers of its width."""
    of_torch, from_numpy, adopt = backend.dtypes[dtype], backend.from_numpy, backend.adopt
    via = next(via for via, found in backend.adopted.values() if found == of_torch)

    def bound(array: Array) -> Any:
        try:
            return from_numpy(array.view(via)).view(of_torch)
        except (TypeError, ValueError):
            return adopt(array)

    return bound


def _copy(backend: TorchBackend) -> Callable[[Any], Any]:
    clone, copy = backend.tensor.clone, backend.copy

    def bound(x: Any) -> Any:
        try:
            return clone(x)
        except AssertionError:  # which a mode around the call raises
            return copy(x)

    return bound


class _Same:
    """The tensor itself, outside its graph, as what is copied from."""

    def __init__(self, backend: TorchBackend) -> None:
        self._detach = backend.tensor.detach

    def __call__(self, x: Any) -> Any:
        return self._detach(x)

    def for_many(self, tensors: list[Any]) -> list[Any]:
        """The same of many."""
        return tensors


class _Write:
    """PyTorch's own copy of a tensor or an array, which counts a new version, where no byte is in common."""

    def __init__(self, backend: TorchBackend) -> None:
        self._backend, self._tensor, self._from_numpy = backend, backend.torch.Tensor, backend.from_numpy
        self._copy_all = getattr(backend.torch, "_foreach_copy_", None)

    def __call__(self, value: Any, out: Any) -> None:
        own = isinstance(value, self._tensor)
        begin, end, nbytes = value.data_ptr() if own else memory.address(value), out.data_ptr(), value.nbytes
        if begin + nbytes <= end or end + nbytes <= begin:
            out.copy_(value if own else self._from_numpy(value))
        else:
            self._backend.write(self._backend.export(value) if own else value, out)

    def for_many(self, values: list[Any], outs: list[Any]) -> None:
        """The same of many, none of which has a byte in common with another."""
        if not isinstance(values[0], self._tensor):
            values = list(map(self._from_numpy, values))
        if self._copy_all is None:
            for value, out in zip(values, outs, strict=True):
                out.copy_(value)
        else:
            with self._backend.torch.no_grad():
                self._copy_all(outs, values)
