"""Short lists of Python numbers: their signature, which needs no array, and how they are read then."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import dtypes
from ...core.names import EXCHANGE_NUMBERS
from ...host import casts, memory
from ...sequences import flags, numbers, reader
from .. import elements
from ..base import unchanged

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from ...core.request import Request
    from ...planning.plan import Plan
    from ...planning.step import Step
    from ...typing import Array
    from ..base import Backend

__all__ = ["copied", "likeness", "read", "signature_reader"]


def signature_reader(target: Backend, request: Request) -> Callable[[Any], Hashable | None]:
    """See `Backend.signature_reader`: the exact dtype of numbers of one type, with their range if it matters."""
    takes_all = target.capabilities.dtypes.numbers is EXCHANGE_NUMBERS
    decides = not takes_all and request.dtype in (None, *dtypes.KEYWORDS)
    look, known = numbers.look, _exact() if decides else _dtypes()

    def signature(x: Any) -> Hashable | None:
        return known.get(look(x)) if type(x) is list and 0 < len(x) < numbers.FEW else None

    return signature


@cache
def _exact() -> Mapping[int, flags.Exact]:
    """The exact dtype of numbers of one type, by their flags."""
    alike = ((found, flags.alike(found)) for found in range(flags.MISFIT))
    return {
        found: exact for found, exact in alike if exact is not None and exact.dtype in flags.TYPES
    }


@cache
def _dtypes() -> Mapping[int, str]:
    return {found: exact.dtype for found, exact in _exact().items()}


def likeness(x: Any) -> Hashable | None:
    """See `Backend.likeness`. All numbers have the same likeness."""
    return (
        "numbers"
        if type(x) is list and 0 < len(x) < numbers.FEW and numbers.look(x) in _dtypes()
        else None
    )


def read(backend: Any, step: Step, plan: Plan) -> Callable[..., Any] | None:
    """The verb ``read``, for the list itself, or for an array of its numbers."""
    before = plan.source.dtype
    if plan.source.kind != "numbers" or before not in flags.TYPES:
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
            {flags.TYPES[before]: dtype}, _compact if compact else np.empty
        )

        def read_at_once(x: Any) -> Any:
            array = straight(x) if type(x) is list else None
            return whole(_read_again(x, before), *arguments) if array is None else array

        return read_at_once
    exactly, cast = (
        numbers.list_reader({flags.TYPES[before]: before}),
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
    """The array into which numbers were read when they were described; or, if the list has changed, a new one.

    Raises:
        ConversionError: They cannot be read any more, or not as this dtype.
    """
    if isinstance(x, np.ndarray):
        return x
    return casts.cast(elements.read(x, reader.first(x)[0])[0], dtype, "value")


def copied(x: Any) -> Any:
    """The fast path from a list to a list: a copy, if all its numbers are of one type."""
    result = x.copy() if 0 < len(x) < numbers.FEW else []
    return result if numbers.look(result) in _dtypes() else None
