"""Why a name is no framework's: it names a device, a dtype or another library, or is misspelt."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from .. import hints
from ..core.devices import device_name, kind_of
from ..core.dtype_names import convertible_dtypes, meanings_of
from ..core.names import EXCHANGE, NAMES
from ..errors import DeviceError, UnknownFrameworkError, UnsupportedTypeError, nearest
from ..hints import Hint

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .base import Backend

__all__ = ["no_framework"]

_SIMILAR = 0.7
"""How similar a name is to one that is misspelt, at least. scipy is 0.67 like cupy."""


def no_framework(
    name: str, known: Iterable[Backend], others: Iterable[str]
) -> UnknownFrameworkError:
    """The error for a name that no framework has, with the most similar known one.

    Args:
        name: The name.
        known: The known backends.
        others: The names of those that outside packages have.
    """
    targets = [backend for backend in known if backend.is_target]
    device = ""
    with suppress(DeviceError):
        device = device_name(name)
    kinds = {kind for target in targets for kind in target.capabilities.devices.kinds}
    kinds.update(kind_of(name) for target in targets if target.loaded for name in target.devices())
    if kind_of(device) in kinds:
        return UnknownFrameworkError(
            f"{name!r} is a device, and not the name of a framework.",
            Hint(hints.keywords(to=_with(device, targets), device=device)),
        )
    with suppress(UnsupportedTypeError):
        if meanings := meanings_of(name):
            return UnknownFrameworkError(
                f"{name!r} is a dtype, and not the name of a framework.",
                hints.one_of(
                    [
                        hints.keywords(to=EXCHANGE, dtype=dtype)
                        for dtype in convertible_dtypes(meanings)
                    ]
                ),
            )
    names = dict.fromkeys([*(target.name for target in targets), *others])
    first, *rest = names
    others = ", ".join(f'"{name}"' for name in rest)
    listed = Hint(hints.keyword("to", first), f", or one of {others}")
    if _is_library(name):
        return UnknownFrameworkError(
            f"{name!r} is a library of which tensorferry makes no tensors.", listed
        )
    words = [*names, *(word for word in NAMES if isinstance(word, str) and NAMES[word] in names)]
    meant = nearest(name, words, least=_SIMILAR)
    return UnknownFrameworkError(
        f"{name!r} is not the name of a framework.",
        Hint(hints.keyword("to", NAMES.get(meant, meant))) if meant else listed,
    )


def _with(device: str, targets: Iterable[Backend]) -> str:
    """A framework that has a device; the first of those imported, if one of them has it."""
    kind = kind_of(device)
    able = [target for target in targets if kind in target.capabilities.devices.kinds]
    here = [
        target for target in targets if target.loaded and kind in map(kind_of, target.devices())
    ]
    return (here or able)[0].name


def _is_library(name: str) -> bool:
    """Whether a name is another library's: one whose objects are read, or one that is installed."""
    from importlib.util import find_spec

    from .array_like.declared import LIBRARIES

    if name.casefold() in {module.casefold() for module in LIBRARIES}:
        return True
    return (
        name.isidentifier() and name not in sys.stdlib_module_names and find_spec(name) is not None
    )
