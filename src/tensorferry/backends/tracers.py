"""Keep the tracers of frameworks (torch.compile …) out of tensorferry's own functions."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

from ..core.generics import TypeVar
from . import registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from .base import Backend

Function = TypeVar("Function", bound="Callable[..., Any]")

__all__ = ["all_kept_out", "may_be_active", "shield", "untraced"]

all_kept_out = False
"""Whether no tracer is left that is not kept out: then `may_be_active` need not be asked."""
_not_imported: tuple[str, ...] | None = None
"""Modules of frameworks with tracers not imported yet; ``None`` if they must be looked up again."""
_shielded: list[Backend] = []
"""The backends whose tracers are kept out already."""
_untraced: list[Callable[..., Any]] = []
_lock = threading.RLock()


def _expect_another() -> None:
    global _not_imported, all_kept_out
    _not_imported, all_kept_out = None, False


registry.on_change.append(_expect_another)


def may_be_active() -> bool:
    """Whether a tracer that is not kept out may be running.

    Then call `untraced` functions by means of `shield`.
    """
    if _not_imported is None:
        return True
    # Not `any`, whose generator takes twice as long, for each call in a process with one framework.
    modules = sys.modules
    for module in _not_imported:  # noqa: SIM110
        if modules.get(module) is not None:
            return True
    return False


def untraced(function: Function) -> Function:
    """Decorate a function that tracers must not trace.

    At first, it is called by means of `shield`.
    """
    # torch.compile reads this attribute if it comes here before its tracer is kept out.
    function.__dict__["_torchdynamo_disable"] = True
    with _lock:
        _untraced.append(function)
        # A module may be imported after tracers were kept out of what was there.
        for backend in _shielded:
            with registry.guard(backend.name):
                backend.shield(function)
    return function


def shield(function: Callable[..., Any]) -> Callable[..., Any]:
    """Keep imported frameworks' tracers out of `untraced` functions; gives what to call now."""
    global _not_imported, all_kept_out
    called = function
    with _lock:
        traced, revision = [row for row in registry.listed() if row.is_traced], registry.revision
        for row in traced:
            with registry.guard(row.name):
                if sys.modules.get(row.module) is not None:
                    called = _shield_from(registry.backend_named(row.name), function, called)
        left = tuple(
            row.module for row in registry.listed() if row.is_traced and row not in _shielded
        )
        # Another backend may have been registered meanwhile.
        if registry.revision == revision:
            _not_imported, all_kept_out = left, not left
        else:
            _not_imported, all_kept_out = None, False
    return called


def _shield_from(
    backend: Backend, function: Callable[..., Any], called: Callable[..., Any]
) -> Callable[..., Any]:
    """Keep a backend's tracer out of all `untraced` functions, once.

    Gives what to call for `function`.
    """
    if backend in _shielded:
        return called
    _shielded.append(backend)
    for shielding in _untraced:
        shielded = backend.shield(shielding)
        called = shielded if shielding is function else called
    return called
