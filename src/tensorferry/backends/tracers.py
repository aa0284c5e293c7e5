"""Keep the tracers of frameworks out of tensorferry's own functions, from the moment that one is imported."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from . import registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from .base import Backend

Function = TypeVar("Function", bound="Callable[..., Any]")

__all__ = ["may_be_met", "shield", "untraced"]

_may_be_traced = True
"""Whether a framework may yet be imported whose tracer has to be kept out; see `shield`."""
_looked_at = 0
"""How many modules had been imported when it was last looked which frameworks are."""
_shielded: list[Backend] = []
"""Backends whose tracers are kept out."""
_untraced: list[Callable[..., Any]] = []
_lock = threading.RLock()


def _expect_another() -> None:
    global _looked_at, _may_be_traced
    _may_be_traced, _looked_at = True, 0


registry.on_change.append(_expect_another)


def may_be_met() -> bool:
    """Whether a tracer may be at work that has not been kept out yet: then call what is `untraced` through `shield`."""
    return _may_be_traced and len(sys.modules) != _looked_at


def untraced(function: Function) -> Function:
    """Decorate a function that no framework's tracer is to look into; it is called through `shield` at first."""
    _untraced.append(function)
    # Read by torch.compile, should it come here before its backend has been asked.
    function.__dict__["_torchdynamo_disable"] = True
    return function


def shield(function: Callable[..., Any]) -> Callable[..., Any]:
    """Keep the tracers of imported frameworks out of what is `untraced`; what to call for a function this once."""
    global _looked_at, _may_be_traced
    called = function
    with _lock:
        imported = len(sys.modules)
        known, revision = list(registry.known().values()), registry.revision
        for backend in known:
            with registry.outside.guard(backend.name):
                if backend.is_traced and backend not in _shielded and backend.is_imported():
                    _shielded.append(backend)
                    for each in _untraced:
                        shielded = backend.shield(each)
                        called = shielded if each is function else called
        _may_be_traced = any(backend.is_traced and backend not in _shielded for backend in known)
        if registry.revision != revision:
            _may_be_traced = True  # one was registered meanwhile
        else:
            _looked_at = imported
    return called
