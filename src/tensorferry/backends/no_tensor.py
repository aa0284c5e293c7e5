"""Objects that are no tensors: plain values without numbers, and the error for all others."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import date, time, timedelta, tzinfo
from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
)
from typing import Any

from .. import hints
from ..errors import UnsupportedTypeError
from ..hints import Call, Hint

__all__ = [
    "KEEPS_TEXT",
    "TAKEN",
    "UNCALLED",
    "full_name",
    "has_no_numbers",
    "method_for_array",
    "refusal_to_convert",
    "state_of",
    "takes_nothing",
]

_FUNCTIONS = (
    BuiltinFunctionType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
)
UNCALLED = (type, *_FUNCTIONS)
"""Types of functions and classes. The user may have forgotten to call one."""

_VALUES = (str, bytes, date, time, timedelta, tzinfo)

_TO_NUMPY = ("numpy", "to_numpy", "asnumpy")
"""The names of methods that give an array, in libraries whose objects have no interface for it."""
_LATER = (("pathlib", "PurePath"), ("uuid", "UUID"))
"""Types in modules that take long to import. Without the module, there are no such objects."""


TAKEN = Hint(
    "pass a tensor, a sequence of numbers, or an object with __dlpack__, a buffer, "
    "__array_interface__, __array_struct__ or __array__; ",
    hints.tree(),
    " for the tensors inside a container",
)
"""The hint for an object of which nothing else is known."""
KEEPS_TEXT = Hint(hints.tree(), ", which leaves text as it is")
"""The hint to convert a list as a tree. A leaf of a batch is no tree of its own."""
_CALLED = hints.one("x()")


def has_no_numbers(x: object) -> bool:
    """Whether an object is a plain value without numbers: text, a date, a path, a UUID.

    >>> has_no_numbers("text"), has_no_numbers(1)
    (True, False)
    """
    loaded = sys.modules
    return isinstance(x, _VALUES) or any(
        isinstance(x, getattr(loaded[name], kind))
        for name, kind in _LATER
        if loaded.get(name) is not None
    )


def method_for_array(kind: type) -> str | None:
    """The method that gives another library's object as a NumPy array; ``None`` if it is not known.

    >>> method_for_array(int) is None
    True
    """
    return next((name for name in _TO_NUMPY if callable(getattr(kind, name, None))), None)


def state_of(kind: type) -> str:
    """The code for the state of `x` (an optimizer, say), if its class gives it as a dict; or empty.

    >>> state_of(dict)
    ''
    """
    if callable(getattr(kind, "state_dict", None)):
        return "x.state_dict()"
    return ""


def refusal_to_convert(x: Any, call: Call = _CALLED) -> UnsupportedTypeError:
    """The error for an object that is not a tensor.

    Args:
        x: The object.
        call: What to do with a function.
    """
    if isinstance(x, type):
        return UnsupportedTypeError(
            f"{full_name(x)} is a class, not an object: it has no values.", "an object of it"
        )
    if isinstance(x, _FUNCTIONS):
        hint = Hint(call) if takes_nothing(x) else None
        return UnsupportedTypeError(
            f"{x.__name__} is a function that was not called: it has no values.", hint
        )
    refused = f"An object of type {full_name(type(x))} is not a tensor."
    if isinstance(x, (date, timedelta)):
        if isinstance(x, timedelta):
            kind = "timedelta64"
        else:
            kind = "datetime64"
        code = hints.code(f'np.{kind}(x).astype("int64")')
        return UnsupportedTypeError(refused, Hint(code, ", which is a count"))
    if isinstance(x, Iterator) and not hasattr(x, "read"):  # an open file is an iterator too
        return UnsupportedTypeError(
            f"{refused} It gives its elements once, one after the other.",
            Hint(hints.either("list(x)")),
        )
    method = method_for_array(type(x))
    if method is not None:
        words = f"An object of type {full_name(type(x))} has none of the interfaces of a tensor."
        return UnsupportedTypeError(words, Hint(hints.one(f"x.{method}()")))
    state = state_of(type(x))
    return UnsupportedTypeError(refused, Hint(hints.tree(state)) if state else TAKEN)


def takes_nothing(function: Any) -> bool:
    """Whether a function can be called without arguments, as far as it says what it takes."""
    from inspect import signature  # here, because only an error needs it

    try:
        signature(function).bind()
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def full_name(kind: type) -> str:
    """The name of a type, with its module unless it is a builtin.

    >>> full_name(int)
    'int'
    """
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"
