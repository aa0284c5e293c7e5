"""An argument that was given by its position, and has a name: the error that says which."""

from __future__ import annotations

import inspect
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from ..backends import registry
from ..core.devices import HOST, device_name, kind_of
from ..core.dtype_names import asked_dtype, meanings_of
from ..core.dtypes import CASTINGS, DTYPES
from ..errors import ConversionError, DeviceError, UnsupportedTypeError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["refuse_positions"]


def refuse_positions(
    function: Callable[..., Any], by_position: Sequence[Any], beyond: Sequence[Any]
) -> NoReturn:
    """Raise for arguments beyond those that a function takes by position.

    Args:
        function: The function.
        by_position: The arguments that it takes by position.
        beyond: The others.

    Raises:
        TypeError: Always. The message has the call with the names, for dtypes, devices and words of
            keywords.
    """
    name, parameters = function.__name__, inspect.signature(function).parameters
    first = [
        _shown_argument(word, value) for word, value in zip(parameters, by_position, strict=False)
    ]
    meant = [_meant_keywords(value) for value in beyond]
    taken = (
        f"{name}() takes {_counted_arguments(len(by_position))} by position, and all others by name"
    )
    if not all(meant):
        raise TypeError(f"{taken}, as in {name}({', '.join([*first, 'copy=True'])})") from None
    calls = [f"{name}({', '.join([*first, *(words_of_meaning[0] for words_of_meaning in meant)])})"]
    if len(meant) == 1:
        calls = [f"{name}({', '.join([*first, word])})" for word in meant[0]]
    raise TypeError(f"{taken}: {' or '.join(calls)}") from None


def _counted_arguments(count: int) -> str:
    return f"{count} argument{'' if count == 1 else 's'}"


def _shown_argument(word: str, value: object) -> str:
    """An argument as it stands in the call: a target by its name, others by the parameter."""
    with suppress(ConversionError, TypeError):
        if word == "to":
            return f'"{registry.canonical(value)}"'
        return word
    return word


def _meant_keywords(value: object) -> list[str]:
    """The keywords that a value was meant for, each with it; several if its name is ambiguous."""
    with suppress(UnsupportedTypeError, TypeError):
        if value is not None:
            return [f'dtype="{asked_dtype(value)}"']
        return []
    if not isinstance(value, str):
        return _device_keyword(value)
    if value in CASTINGS:
        return [f'casting="{value}"']
    with suppress(UnsupportedTypeError):
        meanings = [name for name in meanings_of(value) if name in DTYPES]
        if meanings:
            return [f'dtype="{name}"' for name in meanings]
    return _device_keyword(value)


def _device_keyword(value: object) -> list[str]:
    """The keyword for a value that names a device, or is the device of a framework."""
    if not isinstance(value, str) and "device" not in type(value).__name__.lower():
        return []
    with suppress(DeviceError):
        name = device_name(value)
        backends = registry.known().values()
        kinds = {
            HOST,
            *(kind for backend in backends for kind in backend.capabilities.devices.kinds),
        }
        if kind_of(name) in kinds or not isinstance(value, str):
            return [f'device="{name}"']
    return []
