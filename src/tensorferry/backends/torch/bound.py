"""Steps of plans, bound to almost PyTorch's own functions: without the checks whose results the plan knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.devices import HOST
from ...host import memory
from .. import registry
from ..quick import unchanged
from .declared import AS_INTEGERS, CAST_ALIKE, LISTED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...core.info import TensorInfo
    from ...planning.plan import Plan
    from ...planning.step import Step
    from ...typing import Array
    from .tensors import TorchBackend

__all__ = ["bound_stack", "bound_step", "verbs_for_many"]

_ALONE = 1 << 15
"""From this many elements on, PyTorch casts on several threads.

One of them may flush subnormals to zero, if it was
started by a thread that did."""
_SMALL = 1 << 15
"""Up to this many bytes, NumPy copies faster than PyTorch, which starts threads."""


def bound_step(backend: TorchBackend, step: Step, plan: Plan) -> Callable[..., Any] | None:
    """See `Quick.specialised`."""
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
    verb: Callable[..., Any] | None = None
    if _is_copied_by_torch(step, plan) and (
        before.framework == after.framework or after.dtype not in integers
    ):
        if step.verb == "write":
            verb = _write(backend, writable=bool(before.writable))
        else:
            verb = unchanged
    elif _becomes_numbers(step, plan):
        verb = unchanged
    elif step.verb == "export" and before.dtype not in integers:
        verb = backend.tensor.numpy
    elif step.verb == "adopt":
        if before.writable or not plan.shares_memory:
            if after.dtype not in integers:
                verb = _adopt(backend)
            else:
                verb = _adopt_as_integer(backend, after.dtype)
        elif after.dtype not in integers:
            verb = _alias(backend)
    elif step.verb == "cast" and _is_cast_alike(step, before) and not backend.is_tracing():
        verb = _cast(backend, after.dtype)
    return verb


def _bound_on_devices(backend: TorchBackend, step: Step, plan: Plan) -> Callable[..., Any] | None:
    """The same for a tensor that is on a device, or goes to one."""
    before, after = plan.source, plan.result
    from ...planning.step import Path  # here, because most processes have no other device

    integers = {backend.names[dtype] for dtype in backend.exported}
    crossed = any(crossing.path == Path.BUS for crossing in plan.steps[: plan.steps.index(step)])
    on_device = crossed is (before.device == HOST)
    verb: Callable[..., Any] | None = None
    if step.verb == "move" and not step.arguments[1]:
        verb = _move(backend, step.arguments[0])
    elif step.verb == "export" and not integers.intersection((before.dtype, after.dtype)):
        verb = backend.tensor.numpy
    elif step.verb == "adopt" and before.writable and after.dtype not in integers:
        verb = _adopt(backend)
    elif step.verb == "cast" and on_device and not step.arguments[1] and not backend.is_tracing():
        verb = _cast_on_device(backend, before.dtype, step.arguments[0])
    return verb


def _move(backend: TorchBackend, device: str) -> Callable[[Any], Any]:
    if device == HOST:
        to_host: Callable[[Any], Any] = backend.tensor.cpu
        return to_host
    move, there = backend.tensor.to, backend.torch.device(device)
    return lambda x: move(x, there)


def _cast_on_device(backend: TorchBackend, before: str, dtype: str) -> Callable[[Any], Any] | None:
    # Here, because most processes have no other device.
    from ...planning.rules import frameworks_agree

    if not frameworks_agree(before, dtype):
        return None
    to_dtype, cast, of_torch = backend.tensor.to, backend.cast, backend.dtypes[dtype]

    def bound(x: Any) -> Any:
        try:
            return to_dtype(x, of_torch)
        except AssertionError:  # raised by a mode around the call
            return cast(x, dtype)

    return bound


def _becomes_numbers(step: Step, plan: Plan) -> bool:
    """Whether a step exports before Python numbers are made: PyTorch's `tolist` needs no array."""
    before, steps = plan.source, plan.steps
    then = steps[-1] if step in steps[-2:-1] else None
    plain = before.dtype in LISTED and not (before.conjugate or before.negative)
    if not plain or step.verb != "export" or then is None or then.verb != "adopt":
        return False
    return not registry.backend_named(then.backend).capabilities.memory.exists


def bound_stack(
    backend: TorchBackend, join: Callable[[Sequence[Any]], Any], plan: Plan
) -> Callable[..., Any] | None:
    """PyTorch's own stack; of a few bytes that leave PyTorch a copy, in a fourth of the time."""
    before = plan.source
    on_host = before.device == HOST and before.abstract is None
    if not on_host or before.requires_grad or before.framework == plan.result.framework:
        return None
    stack, adopt = backend.stack, backend.adopt

    def bound(tensors: Sequence[Any], shape: tuple[int, ...]) -> Any:
        array = join(tensors)
        if array is None:
            return stack(tensors, shape)
        return adopt(array.reshape(shape))

    return bound


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
    if before.framework == out.framework and before.dtype == out.dtype:
        exports = plan.steps[-2:-1]
    else:
        exports = ()
    return step is last or any(step is export and export.verb == "export" for export in exports)


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


def _cast(backend: TorchBackend, dtype: str) -> Callable[[Any], Any]:
    """PyTorch's own cast of small tensors: half the time of NumPy's and two conversions."""
    from ...host import subnormals  # here, because only casts need it

    # The method for each dtype takes half the time of `Tensor.to`.
    to_dtype = getattr(
        backend.tensor, {"float16": "half", "float32": "float", "float64": "double"}[dtype]
    )
    count, cast, are_flushed = backend.tensor.numel, backend.cast, subnormals.are_flushed

    def bound(x: Any) -> Any:
        try:
            if count(x) >= _ALONE or are_flushed():
                return cast(x, dtype)
            return to_dtype(x)
        except AssertionError:  # raised by a mode around the call
            return cast(x, dtype)

    def for_many(tensors: list[Any]) -> list[Any]:
        return list(
            map(bound if max(map(count, tensors)) >= _ALONE or are_flushed() else to_dtype, tensors)
        )

    bound.for_many = for_many  # type: ignore[attr-defined]
    return bound


def _write(backend: TorchBackend, *, writable: bool) -> Callable[[Any, Any], None]:
    """A function that copies a tensor's or array's bits into `out` and increments its version."""
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


def verbs_for_many(backend: TorchBackend) -> Mapping[str, Callable[..., Any]]:
    """See `Quick.for_many`."""
    clone = backend.tensor.clone
    clone_all: Callable[[list[Any]], Any] | None = getattr(backend.torch, "_foreach_clone", None)

    def copy(tensors: list[Any]) -> list[Any]:
        # In a graph, each tensor needs its own node.
        if clone_all is None or tensors[0].requires_grad:
            return list(map(clone, tensors))
        return list(clone_all(tensors))

    def write(arrays: list[Array], outs: list[Any]) -> None:
        from ...host import casts  # here, because only ``out=`` needs it

        casts.write_each(arrays, list(map(backend.export, outs)))
        backend.torch.autograd.graph.increment_version(outs)

    return {"copy": copy, "write": write}
