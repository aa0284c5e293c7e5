"""Checks of a backend before it is registered."""

from __future__ import annotations

from typing import Any

from ..core.capabilities import Capabilities
from .base import Backend
from .verbs import verbs_needed

__all__ = ["missing_verbs", "validate"]


def missing_verbs(backend: Backend) -> list[str]:
    """For each verb that a backend lacks, a text with its name and the declaration that needs it.

    >>> from tensorferry.backends.registry import backends
    >>> missing_verbs(backends()["numpy"])
    []
    """
    return [
        f"{declared} and has no verb {verb}()"
        for declared, verbs in verbs_needed(backend.capabilities).items()
        for verb in verbs
        if not callable(getattr(backend, verb, None))
    ]


def validate(backend: object) -> None:
    """Raise for an object that cannot be registered as a backend.

    Raises:
        TypeError: It is not a backend, or a declaration has a wrong type, or an ability lacks its
            verb.
    """
    kind = type(backend).__qualname__
    if not isinstance(backend, Backend):
        raise TypeError(
            f"a backend is an instance of tensorferry.backends.base.Backend, not of {kind}"
        )
    declared: dict[str, Any] = {
        each: getattr(backend, each) for each in ("name", "owns", "aliases", "capabilities")
    }
    if not isinstance(declared["name"], str):
        raise TypeError(f"{kind}.name must be a string")
    for each in ("owns", "aliases"):
        if not isinstance(declared[each], tuple) or not all(
            isinstance(name, str) for name in declared[each]
        ):
            raise TypeError(f"{kind}.{each} must be a tuple of strings")
    if not isinstance(declared["capabilities"], Capabilities):
        raise TypeError(
            f"{kind}.capabilities must be of tensorferry.core.capabilities.Capabilities"
        )
    missing = missing_verbs(backend)
    if missing:
        raise TypeError(f"the backend {backend.name!r} declares {', '.join(missing)}")
