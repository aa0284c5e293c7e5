"""PyTorch's verbs without the checks whose results the plan knows: almost PyTorch's own functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.devices import HOST
from ...core.dtypes import ORDINARY
from ...host import memory, subnormals
from ...planning.rules import agrees
from .. import registry
from ..base import unchanged
from .declared import CAST_ALIKE
from .snippets import AS_INTEGERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...core.info import TensorInfo
    from ...planning.plan import Plan
    from ...planning.step import Step
    from ...typing import Array
    from .tensors import TorchBackend

__all__ = ["LISTED", "bound"]


def bound(backend: TorchBackend, step: Step, plan: Plan) -> Callable[..., Any] | None:
    """See `Backend.bound`."""
    before, after = plan.source, plan.result
    if before.abstract is not None:
        return None
    if step.verb == "detach":
        return backend.tensor.detach
    if step.verb == "copy" and not step.arguments:
        return _copy(backend)
    if before.device != HOST or after.device != HOST:
        return _bound_on_devices(backend, step, plan)
    integers = {backend.names[dtype] for dtype in backend.exported}
    found: Callable[..., Any] | None = None
    if _is_copied_by_torch(step, plan) and (
        before.framework == after.framework or after.dtype not in integers
    ):
        found = (
            _write(backend, writable=bool(before.writable)) if step.verb == "write" else unchanged
        )
    elif _becomes_numbers(step, plan):
        found = unchanged
    elif step.verb == "export" and before.dtype not in integers:
        found = backend.tensor.numpy
    elif step.verb == "adopt":
        if before.writable or not plan.shares_memory:
            found = (
                _adopt(backend)
                if after.dtype not in integers
                else _adopt_as_integer(backend, after.dtype)
            )
        elif after.dtype not in integers:
            found = _alias(backend)
    elif step.verb == "cast" and _is_cast_alike(step, before) and not backend.is_tracing():
        found = _cast(backend, after.dtype)
    return found


def _bound_on_devices(backend: TorchBackend, step: Step, plan: Plan) -> Callable[..., Any] | None:
    """The same for a tensor that is on a device, or goes to one."""
    before, after = plan.source, plan.result
    from ...planning.step import Path  # here, because most processes have no other device

    integers = {backend.names[dtype] for dtype in backend.exported}
    crossed = any(each.path == Path.BUS for each in plan.steps[: plan.steps.index(step)])
    on_device = crossed is (before.device == HOST)
    found: Callable[..., Any] | None = None
    if step.verb == "move" and not step.arguments[1]:
        found = _move(backend, step.arguments[0])
    elif step.verb == "export" and not integers.intersection((before.dtype, after.dtype)):
        found = backend.tensor.numpy
    elif step.verb == "adopt" and before.writable and after.dtype not in integers:
        found = _adopt(backend)
    elif step.verb == "cast" and on_device and not step.arguments[1] and not backend.is_tracing():
        found = _cast_on_device(backend, before.dtype, step.arguments[0])
    return found


def _move(backend: TorchBackend, device: str) -> Callable[[Any], Any]:
    if device == HOST:
        to_host: Callable[[Any], Any] = backend.tensor.cpu
        return to_host
    move, there = backend.tensor.to, backend.torch.device(device)
    return lambda x: move(x, there)


def _cast_on_device(backend: TorchBackend, before: str, dtype: str) -> Callable[[Any], Any] | None:
    if not agrees(before, dtype):
        return None
    to_dtype, cast, of_torch = backend.tensor.to, backend.cast, backend.dtypes[dtype]

    def bound(x: Any) -> Any:
        try:
            return to_dtype(x, of_torch)
        except AssertionError:  # raised by a mode around the call
            return cast(x, dtype)

    return bound


LISTED = ORDINARY | {"bfloat16"}
"""Dtypes for which PyTorch's `tolist` gives the exact numbers, with NaN's sign and payload.

It does not for float8.
"""


def _becomes_numbers(step: Step, plan: Plan) -> bool:
    """Whether a step is an export before Python numbers are made, which PyTorch's `tolist` does without an array."""
    before, steps = plan.source, plan.steps
    then = steps[-1] if step in steps[-2:-1] else None
    plain = before.dtype in LISTED and not (before.conjugate or before.negative)
    if not plain or step.verb != "export" or then is None or then.verb != "adopt":
        return False
    return not registry.backend_named(then.backend).capabilities.memory.exists


def _is_cast_alike(step: Step, before: TensorInfo) -> bool:
    """Whether PyTorch's own cast gives the same bits as NumPy's."""
    dtype, check = step.arguments
    return (before.dtype, dtype) in CAST_ALIKE and not (check or before.requires_grad)


def _is_copied_by_torch(step: Step, plan: Plan) -> bool:
    """Whether a step belongs to a copy of bits into `out`, where neither side has gaps."""
    before, out, last = plan.source, plan.request.out, plan.steps[-1]
    if (
        out is None
        or plan.written != out.dtype
        or last.verb != "write"
        or not (before.is_compact and out.is_compact)
    ):
        return False
    if before.negative or before.conjugate or before.swapped or out.negative or out.conjugate:
        return False
    exports = (
        plan.steps[-2:-1] if before.framework == out.framework and before.dtype == out.dtype else ()
    )
    return step is last or any(step is each and each.verb == "export" for each in exports)


def _adopt(backend: TorchBackend) -> Callable[[Array], Any]:
    from_numpy, adopt = backend.from_numpy, backend.adopt

    def bound(array: Array) -> Any:
        try:
            return from_numpy(array)
        except (TypeError, ValueError):
            return adopt(array)

    def for_many(arrays: list[Array]) -> list[Any]:
        try:
            return list(map(from_numpy, arrays))
        except (TypeError, ValueError):
            return list(map(adopt, arrays))

    bound.for_many = for_many  # type: ignore[attr-defined]
    return bound


def _alias(backend: TorchBackend) -> Callable[[Array], Any]:
    """`_adopt` for read-only memory, for ``copy=False``."""
    from_dlpack, adopt = backend.from_dlpack, backend.adopt
    if not backend.takes_read_only:
        return adopt

    def bound(array: Array) -> Any:
        try:
            return from_dlpack(array.__dlpack__(max_version=(1, 0)))
        except (BufferError, TypeError, ValueError):
            return adopt(array)

    return bound


def _adopt_as_integer(backend: TorchBackend, dtype: str) -> Callable[[Array], Any]:
    """`_adopt` for a dtype that PyTorch takes as integers of the same width."""
    of_torch, from_numpy, adopt = backend.dtypes[dtype], backend.from_numpy, backend.adopt
    via = np.dtype(AS_INTEGERS[dtype])

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
        except AssertionError:  # raised by a mode around the call
            return copy(x)

    return bound


_ALONE = 1 << 15
"""From this many elements on, PyTorch casts on several threads. One of them may flush subnormals to zero, if it was
started by a thread that did."""


def _cast(backend: TorchBackend, dtype: str) -> Callable[[Any], Any]:
    """PyTorch's own cast of small tensors, which takes half the time of NumPy's and two conversions."""
    # The method for each dtype takes half the time of `Tensor.to`.
    to_dtype = getattr(
        backend.tensor, {"float16": "half", "float32": "float", "float64": "double"}[dtype]
    )
    count, cast, are_flushed = backend.tensor.numel, backend.cast, subnormals.are_flushed

    def bound(x: Any) -> Any:
        try:
            return cast(x, dtype) if count(x) >= _ALONE or are_flushed() else to_dtype(x)
        except AssertionError:  # raised by a mode around the call
            return cast(x, dtype)

    def for_many(tensors: list[Any]) -> list[Any]:
        return list(
            map(bound if max(map(count, tensors)) >= _ALONE or are_flushed() else to_dtype, tensors)
        )

    bound.for_many = for_many  # type: ignore[attr-defined]
    return bound


_SMALL = 1 << 15
"""Up to this many bytes, NumPy copies faster than PyTorch, which starts threads."""


def _write(backend: TorchBackend, *, writable: bool) -> Callable[[Any, Any], None]:
    """A function that copies the bits of a tensor or an array into `out`, and increments the version of `out`."""
    tensor, from_numpy, to_numpy = backend.torch.Tensor, backend.from_numpy, backend.tensor.numpy
    address, count = memory.address, backend.torch.autograd.graph.increment_version
    copy_all = getattr(backend.torch, "_foreach_copy_", None)

    def bound(value: Any, out: Any) -> None:
        own, nbytes = isinstance(value, tensor), value.nbytes
        if not own and (nbytes < _SMALL or not writable):
            # NumPy handles overlaps.
            to_numpy(out)[...] = value
            count(out)
            return
        try:
            # PyTorch handles overlaps only within one storage.
            if (
                not -nbytes
                < (value.data_ptr() if own else address(value)) - out.data_ptr()
                < nbytes
            ):
                out.copy_(value if own else from_numpy(value))
                return
        except RuntimeError:  # `out` was made in inference mode
            pass
        backend.write(backend.export(value) if own else value, out)

    def for_many(values: list[Any], outs: list[Any]) -> None:
        # They do not overlap.
        if copy_all is None or not writable:
            for value, out in zip(values, outs, strict=True):
                bound(value, out)
        else:
            copy_all(
                outs, values if isinstance(values[0], tensor) else list(map(from_numpy, values))
            )

    bound.for_many = for_many  # type: ignore[attr-defined]
    return bound
