"""Lists of tensors of equal shapes: stacked into one memory, or only described."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..backends import registry
from ..core import dtypes
from ..core.devices import HOST
from ..core.dtypes import find
from ..core.info import TensorInfo
from ..core.names import EXCHANGE
from ..core.request import Request
from ..errors import ShapeError, UnsupportedTypeError
from ..host import casts, memory
from ..host.numpy_dtypes import is_native_and_known, numpy_dtype, of_numpy
from ..planning import preconditions
from ..sequences.diagnostics import ROWS, leaves, outer_shape
from ..sequences.reader import PYTHON_NUMBERS, carry_at, element_types, first, open_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..backends.base import Backend

    Opened = tuple[str, Any, Backend, TensorInfo, Any]

__all__ = ["Stacked", "describe_stack", "stack"]

Array = np.ndarray[Any, Any]


class Stacked(NamedTuple):
    """Tensors of equal shapes as one.

    Args:
        framework: Whose tensor `value` is; ``None``: it is an array.
        value: The whole.
        requires_grad: Whether one of them does.
        kind: ``"stack"`` if a framework's own `stack` takes them as they are, else ``"rows"``.
    """

    framework: Backend | None
    value: Any
    requires_grad: bool
    kind: str


def stack(x: Any, target: Backend | None) -> Stacked | None:
    """Tensors of equal shapes in one memory: on the target if it keeps their graph, else an array.

    ``None`` if rows of Python numbers stand among them: then they are numbers, like those.

    Raises:
        ShapeError: Unequal shapes; the message says where, and both.
        UnsupportedTypeError: An element is not a tensor; the message says where.
        LossyCastError: No dtype holds the values of all.
    """
    own = _stack_quickly(x, target)
    if own is not None:
        return own
    arrays = _as_arrays(x)
    if arrays is not None and len({(each.dtype, each.shape) for each in arrays}) == 1:
        dtype = arrays[0].dtype
        if is_native_and_known(dtype):
            kind = "stack" if _stacks_by_itself(dtype, map(type, x)) else "rows"
            return Stacked(None, _stack_alike(arrays, dtype), requires_grad=False, kind=kind)
    if _has_rows_of_numbers(x):
        return None
    found = _open_all(x, looks=False)
    outer, whole = _shapes(x, found)
    requires_grad = any(info.requires_grad for *_, info, _ in found)
    if target is not None and _stays_with(target, found):
        value = target.stack([handle for *_, handle in found], whole)
        return Stacked(target, value, requires_grad, "stack" if len(outer) == 1 else "rows")
    return Stacked(None, _stack_arrays(found, whole), requires_grad, "rows")


def describe_stack(x: Any, target: Backend | None) -> tuple[Backend | None, TensorInfo] | None:
    """Whose tensor `stack` would give, and what it would be: no tensor is read for that.

    Raises:
        ConversionError: As for `stack`.
    """
    if _has_rows_of_numbers(x):
        return None
    found = _open_all(x, looks=True)
    outer, whole = _shapes(x, found)
    infos = [info for *_, info, _ in found]
    stays = target is not None and _stays_with(target, found)
    if not stays:
        exchange = registry.backend_named(EXCHANGE)
        for path, _, source, info, _ in found:
            _refuse(path, info, source, exchange)
    info = TensorInfo(
        target.name if target is not None and stays else "python",
        whole,
        dtypes.common(info.dtype for info in infos),
        infos[0].device if stays else HOST,
        writable=True,
        mutable=True,
        requires_grad=any(info.requires_grad for info in infos),
        abstract=infos[0].abstract if stays else None,
    )
    if stays:
        return target, info._replace(kind="stack" if len(outer) == 1 else "rows")
    alike = len(outer) == 1 and _are_arrays_alike(found)
    return None, info._replace(kind="stack" if alike else "rows")


def _open_all(x: Any, *, looks: bool) -> list[Opened]:
    """Each element with its path, opened or only looked at."""
    return [(path, leaf, *open_at(path, leaf, looks=looks)) for path, leaf in leaves(x)]


def _shapes(x: Any, found: Sequence[Opened]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of the nesting, and of the whole.

    Raises:
        ShapeError: Unequal shapes; the message says where, and both.
    """
    outer = outer_shape(x)
    first_path, _, _, head, _ = found[0]
    for path, _, _, info, _ in found:
        if info.shape != head.shape:
            raise ShapeError(
                f"Tensors of unequal shapes do not stack: {head.shape} at {first_path}, {info.shape} at {path}.",
                "pad them to one shape first",
            )
    return outer, (*outer, *head.shape)


def _has_rows_of_numbers(x: Any) -> bool:
    """Whether rows of Python numbers stand where others are tensors: ``[array([1, 2]), [3, 4]]``."""
    if not any(issubclass(kind, ROWS) for kind in element_types(x)):
        return False
    rows = [each for each in x if isinstance(each, ROWS)]
    if len(rows) == len(x):
        return _has_rows_of_numbers([each for row in rows for each in row])
    heads = [first(row)[0] for row in rows]
    return any(type(head) in PYTHON_NUMBERS or isinstance(head, range) for head in heads)


def _stays_with(target: Backend, found: Iterable[Opened]) -> bool:
    """Whether the target stacks them itself, in their graph."""
    caps = target.capabilities
    return (
        caps.gradients.graph
        and all(source is target for _, _, source, _, _ in found)
        and len({info.dtype for *_, info, _ in found}) == 1
        and {info.abstract for *_, info, _ in found} <= {None, *caps.objects.inside_only}
    )


def _refuse(path: str, info: TensorInfo, source: Backend, exchange: Backend) -> None:
    """Raise for what cannot become an array.

    Raises:
        UnsupportedTypeError: It has no memory.
    """
    try:
        preconditions.refuse_abstract(info, Request(EXCHANGE), source, exchange)
    except UnsupportedTypeError as error:
        raise UnsupportedTypeError(f"{error.message} - at {path}", error.hint) from error


def _are_arrays_alike(found: Sequence[Opened]) -> bool:
    """Whether `np.stack` takes them as they are: see `_as_arrays`."""
    kinds = {type(leaf) for _, leaf, *_ in found}
    infos = {info._replace(strides=(), misalignment=0) for *_, info, _ in found}
    info = next(iter(infos))
    plain = info.device == HOST and not (info.requires_grad or info.conjugate or info.negative or info.swapped)
    has_lane = kinds == {np.ndarray} or kinds <= registry.lanes_to(EXCHANGE).keys()
    return len(kinds) == len(infos) == 1 and plain and has_lane and _stacks_by_itself(numpy_dtype(info.dtype), kinds)


def _stacks_by_itself(dtype: np.dtype[Any], kinds: Iterable[type]) -> bool:
    """Whether `np.stack` takes tensors of these types as they are: not every framework gives it the narrow dtypes."""
    return dtype.type.__module__ == "numpy" or set(kinds) == {np.ndarray}


def _stack_quickly(x: Any, target: Backend | None) -> Stacked | None:
    """Tensors of the target's own, stacked by it, if it sees at a glance that they are alike."""
    if target is None or not target.capabilities.gradients.graph:
        return None
    kinds = set(map(type, x))
    if len(kinds) > 1 or not registry.is_known_tensor(type(x[0])) or registry.backend_of(x[0]) is not target:
        return None
    value = target.stack_alike(x)
    return None if value is None else Stacked(target, value, target.describe(value).requires_grad, "stack")


def _as_arrays(x: Any) -> Sequence[Array] | None:
    """Tensors of one type as arrays, if a fast lane takes all of them, and none is in a graph."""
    kinds = set(map(type, x))
    if kinds == {np.ndarray}:
        return x  # type: ignore[no-any-return]
    kind = kinds.pop()
    if kinds or not registry.is_known_tensor(kind):
        return None
    try:
        arrays = list(map(registry.lanes_to(EXCHANGE)[kind], x))
    except registry.REFUSALS:
        return None
    if not all(map(memory.is_there, arrays)):
        return None
    # Read-only from who writes: it is in a graph, or an element lies in several places.
    written = registry.backend_of(x[0]).capabilities.memory.writable
    return None if written and not all(each.flags.writeable for each in arrays) else arrays


def _stack_arrays(found: Sequence[Opened], whole: tuple[int, ...]) -> Array:
    exchange = registry.backend_named(EXCHANGE)
    name = dtypes.common(info.dtype for *_, info, _ in found)
    dtype = numpy_dtype(name)
    preconditions.refuse_axes(TensorInfo(EXCHANGE, whole, name), exchange)
    arrays = [
        handle if source is exchange and not info.swapped else carry_at(path, leaf, exchange.name)
        for path, leaf, source, info, handle in found
    ]
    if all(array.dtype == dtype for array in arrays):
        return _stack_alike(arrays, dtype).reshape(whole)
    result = memory.compact((len(arrays), *arrays[0].shape), dtype)
    for index, array in enumerate(arrays):
        casts.copy_into(result[index : index + 1], array[np.newaxis])
    return result.reshape(whole)


def _stack_alike(arrays: Sequence[Array], dtype: np.dtype[Any]) -> Array:
    """Arrays of one dtype and shape in one memory, aligned so that any target can adopt it."""
    length, shape = len(arrays), arrays[0].shape
    exchange = registry.backend_named(EXCHANGE)
    if len(shape) >= exchange.capabilities.memory.axes:
        preconditions.refuse_axes(TensorInfo(EXCHANGE, (length, *shape), find(of_numpy(dtype) or "").name), exchange)
    result = memory.compact((length, *shape), dtype)
    if shape:
        # Not `np.stack`, which makes a view of each: where arrays are small, as much memory again.
        np.concatenate(arrays, out=result.reshape(length * shape[0], *shape[1:]))
    else:
        np.stack(arrays, out=result)
    return result
