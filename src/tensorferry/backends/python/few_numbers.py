"""A list of few Python numbers of one type: its signature, for which it need not be read, and how it is read then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...core import dtypes
from ...core.names import EXCHANGE_NUMBERS
from ...host import subnormals
from ...host.numpy_dtypes import numpy_dtype
from ...sequences.reader import FEW, fit_float32, narrowest
from ..base import unchanged

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ...core.request import Request
    from ...planning.plan import Plan
    from ...planning.step import Step
    from ..base import Backend

    Array = np.ndarray[Any, Any]

__all__ = ["copied", "likeness", "read", "reader"]

_INTEGERS, _FLOATS = {int}, {float}
_EXACT_KINDS = ({float}, {bool})
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
_READ_AS_ASKED = frozenset(
    {("float64", "float64"), ("float64", "float32"), ("float64", "float16"), ("int64", "int64")},
)
"""Dtypes, by what the numbers are, as which NumPy reads them to the bits of a cast: it rounds once."""


def reader(target: Backend, request: Request) -> Callable[[Any], Hashable | None]:
    """See `Backend.signature_reader`: floats or 64-bit integers, and the narrowest dtype of them where it decides."""
    takes_all = target.capabilities.dtypes.numbers is EXCHANGE_NUMBERS
    decides = not takes_all and request.dtype in (None, *dtypes.KEYWORDS)

    def signature(x: Any) -> Hashable | None:
        if type(x) is not list or not 0 < len(x) < FEW:
            return None
        kinds = set(map(type, x))
        if kinds == _FLOATS:
            if not decides:
                return "floats"
            return "float32" if fit_float32(x) else narrowest(np.array(x))
        if kinds != _INTEGERS:
            return None
        low, high = min(x), max(x)
        if low < _LOWEST or high > _HIGHEST:
            return None
        if not decides:
            return "integers"
        return "int32" if low >= -(2**31) and high < 2**31 else "int64"

    return signature


def likeness(x: Any) -> Hashable | None:
    """See `Backend.likeness`: numbers say nothing but that they are some."""
    if type(x) is not list or not 0 < len(x) < FEW:
        return None
    kinds = set(map(type, x))
    return "numbers" if kinds == _FLOATS or kinds == _INTEGERS else None  # noqa: PLR1714, SIM109 - no tuple is made


def read(backend: Any, step: Step, plan: Plan) -> Callable[..., Any] | None:
    """The verb of that name, for an array that they were read into or for the list itself."""
    before = plan.source.dtype
    if plan.source.kind != "numbers" or before not in ("float64", "int64"):
        return None
    whole, arguments = backend.read, step.arguments
    dtype, check, compact = arguments or (before, "", False)
    into_list = plan.steps[-1].backend == plan.result.framework == plan.source.framework and plan.steps[-1] is not step
    if into_list and dtype == before == plan.result.dtype:
        return unchanged
    stored = numpy_dtype(before)
    if (before, dtype) not in _READ_AS_ASKED or check or compact:
        return lambda x: whole(np.array(x, stored) if type(x) is list else x, *arguments)
    after = numpy_dtype(dtype)
    if after == stored:
        return lambda x: np.array(x, after) if type(x) is list else x
    return subnormals.kept_of(lambda x: np.array(x, after) if type(x) is list else whole(x, *arguments))


def copied(x: Any) -> Any:
    """The fast path of a list to one: of numbers of one type, a copy of it."""
    if not 0 < len(x) < FEW:
        return None
    kinds = set(map(type, x))
    exact = kinds in _EXACT_KINDS or (kinds == _INTEGERS and min(x) >= _LOWEST and max(x) <= _HIGHEST)
    return x.copy() if exact else None
