"""Python's numbers, quickly: signatures of lists, short ways for verbs, fast paths."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import dtypes
from ...core.dtypes import ORDINARY
from ...core.layout import ALIGNMENT
from ...core.names import EXCHANGE_NUMBERS
from ...host import casts, memory, subnormals
from ...host.numpy_dtypes import NAMES, of_numpy
from ...sequences import numbers, reader
from ...sequences.reader import PYTHON_NUMBERS
from .. import lists, registry, together
from ..quick import Quick, unchanged
from .tensors import WIDER, PythonBackend, to_scalars

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from ...core.request import Request
    from ...planning.plan import Plan
    from ...planning.step import Step
    from ...typing import Array
    from ..quick import Described

__all__ = ["QUICK", "PythonQuick"]


class PythonQuick(Quick[PythonBackend]):
    """What makes conversions of lists fast."""

    def signature_reader(
        self, kind: type, target: Described, request: Request
    ) -> Callable[[Any], Hashable | None]:
        if kind is reader.NewArray:
            return _signature_of_new if target.capabilities.memory.exists else _no_signature
        if kind is lists.Members:
            return _signature_of_members
        return _signature_reader(target, request)

    def lengths(self, x: Any) -> tuple[int, ...]:
        if type(x[0]) in PYTHON_NUMBERS:
            return (len(x),)
        return together.shape_of(x)

    def signature_together(self, tensors: Sequence[Any]) -> Hashable | None:
        return None

    def likeness(self, x: Any) -> Hashable | None:
        # All numbers have the same likeness.
        are_few = type(x) is list and 0 < len(x) < numbers.FEW
        if are_few and numbers.look(x) in _dtypes():
            return "numbers"
        return None

    def specialised(self, step: Step, plan: Plan) -> Callable[..., Any] | None:
        if step.verb == "read":
            return _read(self.backend, step, plan)
        if step.verb != "adopt":
            return None
        if plan.result.dtype in ORDINARY:
            return _ordinary_scalars
        before = plan.steps[-2:-1]
        if before:
            return _scalars_of(registry.backend_named(before[0].backend).export)
        return None

    def fast_paths(self) -> Mapping[tuple[type, str], Callable[[Any], Any]]:
        name = self.backend.name
        return {(np.ndarray, name): _list_path, (list, name): _from_list}


# -- short lists of numbers ------------------------------------------------------------------------


def _signature_reader(target: Described, request: Request) -> Callable[[Any], Hashable | None]:
    """The exact dtype of numbers of one type, with their range if it matters."""
    takes_all = target.capabilities.dtypes.numbers is EXCHANGE_NUMBERS
    decides = not takes_all and request.dtype in (None, *dtypes.KEYWORDS)
    look, known = numbers.look, _exact() if decides else _dtypes()

    def signature(x: Any) -> Hashable | None:
        if type(x) is list and 0 < len(x) < numbers.FEW:
            exact = known.get(look(x))
            if exact is not None:
                return exact
        if type(x) in (list, tuple) and x and type(x[0]) not in PYTHON_NUMBERS:
            return together.signature(x)
        return None

    return signature


def _signature_of_new(x: reader.NewArray) -> Hashable | None:
    """Of an array that was made for a list: its dtype, and that of the numbers in it."""
    array = x.array
    if not array.size:
        return None
    return array.dtype, x.exact, x.scalars, memory.address(array) & (ALIGNMENT - 1)


def _signature_of_members(x: lists.Members) -> Hashable | None:
    """Of tensors that have been joined; the others are described, and gathered on one device."""
    if x.joined is None or not x.joined.size:
        return None
    return x.signature


def _no_signature(_: Any) -> None:
    """For a target that takes Python numbers as they were, which need no array."""


@cache
def _exact() -> Mapping[int, numbers.Exact]:
    """The exact dtype of numbers of one type, by their flags."""
    alike = ((flags, numbers.exact_if_alike(flags)) for flags in range(numbers.MISFIT))
    return {
        flags: exact for flags, exact in alike if exact is not None and exact.dtype in numbers.TYPES
    }


@cache
def _dtypes() -> Mapping[int, str]:
    return {flags: exact.dtype for flags, exact in _exact().items()}


def _read(backend: PythonBackend, step: Step, plan: Plan) -> Callable[..., Any] | None:
    """The verb ``read``, for the list itself, or for an array of its numbers."""
    before = plan.source.dtype
    if plan.source.kind.name != "numbers" or before not in numbers.TYPES:
        return None
    whole, arguments = backend.read, step.arguments
    dtype, check, compact = arguments or (before, "", False)
    into_list = (
        plan.steps[-1].backend == plan.result.framework == plan.source.framework
        and plan.steps[-1] is not step
    )
    if into_list and dtype == before == plan.result.dtype:
        return unchanged
    if numbers.is_filled(before, dtype, check):
        straight = numbers.list_reader(
            {numbers.TYPES[before]: dtype}, _compact if compact else np.empty
        )

        def read_at_once(x: Any) -> Any:
            array = straight(x) if type(x) is list else None
            if array is None:
                return whole(_read_again(x, before), *arguments)
            return array

        return read_at_once
    exactly, cast = (
        numbers.list_reader({numbers.TYPES[before]: before}),
        casts.direct_cast(before, dtype, check, compact),
    )

    def read_and_cast(x: Any) -> Any:
        array = exactly(x) if type(x) is list else None
        if array is None or cast is None:
            return whole(_read_again(x, before) if array is None else array, *arguments)
        return cast(array)

    return read_and_cast


def _compact(length: int, dtype: np.dtype[Any]) -> Array:
    return memory.compact((length,), dtype)


def _read_again(x: Any, dtype: str) -> Array:
    """The array into which the numbers were read to describe them; a new one if the list changed.

    Raises:
        ConversionError: They cannot be read any more, or not as this dtype.
    """
    if isinstance(x, np.ndarray):
        return x
    if type(x) is reader.NewArray:
        return x.array
    return casts.cast(lists.read(x, reader.first_element(x)[0])[0], dtype, "value")


def _from_list(x: Any) -> Any:
    """The fast path from a list to a list: numbers of one type, or the numbers of tensors."""
    result = x.copy() if 0 < len(x) < numbers.FEW else []
    if numbers.look(result) in _dtypes():
        return result
    array = together.join(x)
    return None if array is None else _list_path(array)


# -- lists that are made ---------------------------------------------------------------------------


def _ordinary_scalars(x: Any) -> Any:
    """`to_scalars` for a dtype of which NumPy makes Python scalars, or a short list of numbers."""
    if type(x) is list:
        return x.copy()
    if subnormals.are_flushed():
        return to_scalars(np.asarray(x))
    return x.tolist()


def _scalars_of(export: Callable[[Any], Array]) -> Callable[[Any], Any]:
    """`to_scalars` for any dtype, of an array or a tensor whose framework makes lists itself."""

    def scalars(x: Any) -> Any:
        if isinstance(x, np.ndarray):
            return to_scalars(x)
        if subnormals.are_flushed():
            return to_scalars(export(x))
        return x.tolist()

    return scalars


def _list_path(x: Array) -> Any:
    name = NAMES.get(x.dtype)
    if name in WIDER:
        return to_scalars(x)
    if name is None and (x.dtype.isnative or of_numpy(x.dtype) is None):
        return None  # no dtype of ours, or the first array of ml_dtypes
    return None if subnormals.are_flushed() else x.tolist()


QUICK = PythonQuick
