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

__all__ = ["awaited", "may_be_met", "shield", "untraced"]

awaited: tuple[str, ...] | None = None
"""The modules of frameworks that may yet be imported, whose tracers have to be kept out; ``None``: to be looked up."""
_shielded: list[Backend] = []
"""Backends whose tracers are kept out."""
_untraced: list[Callable[..., Any]] = []
_lock = threading.RLock()


def _expect_another() -> None:
    global awaited
    awaited = None


registry.on_change.append(_expect_another)


def may_be_met() -> bool:
    """Whether a tracer may be at work that has not been kept out yet: then call what is `untraced` through `shield`."""
    return awaited is None or any(module in sys.modules for module in awaited)


def untraced(function: Function) -> Function:
    """Decorate a function that no framework's tracer is to look into; it is called through `shield` at first."""
    _untraced.append(function)
    # Read by torch.compile, should it come here before its backend has been asked.
    function.__dict__["_torchdynamo_disable"] = True
    return function


def shield(function: Callable[..., Any]) -> Callable[..., Any]:
    """Keep the tracers of imported frameworks out of what is `untraced`; what to call for a function this once."""
    global awaited
    called = function
    with _lock:
        known, revision = list(registry.known().values()), registry.revision
        for backend in known:
            with registry.outside.guard(backend.name):
                if backend.is_traced and backend not in _shielded and backend.is_imported():
                    _shielded.append(backend)
                    for each in _untraced:
                        shielded = backend.shield(each)
                        called = shielded if each is function else called
        left = tuple(backend.module for backend in known if backend.is_traced and backend not in _shielded)
        # One may have been registered meanwhile.
        awaited = left if registry.revision == revision else None
    return called
