"""What has to hold of an object before it is registered as a backend."""

from __future__ import annotations

from typing import Any

from ..core.capabilities import Capabilities
from .base import Backend
from .verbs import called_for

__all__ = ["validate", "verbs_lacking"]


def verbs_lacking(backend: Backend) -> list[str]:
    """What a backend declares without the verb for it, in words; a verb of `Backend` itself only says that it is none.

    >>> from tensorferry.backends.registry import backends
    >>> verbs_lacking(backends()["numpy"])
    []
    """
    return [
        f"{declared} and has no verb {verb}()"
        for declared, verbs in called_for(backend.capabilities).items()
        for verb in verbs
        if not _has(backend, verb)
    ]


def _has(backend: Backend, verb: str) -> bool:
    found, by_default = getattr(backend, verb, None), getattr(Backend, verb, None)
    return callable(found) and (by_default is None or getattr(found, "__func__", None) is not by_default)


def validate(backend: object) -> None:
    """Raise for what cannot be registered as a backend.

    Raises:
        TypeError: It is none, or declares something of another type, or what it has no verb for.
    """
    kind = type(backend).__qualname__
    if not isinstance(backend, Backend):
        raise TypeError(f"a backend is an instance of tensorferry.backends.base.Backend, not of {kind}")
    declared: dict[str, Any] = {each: getattr(backend, each) for each in ("name", "owns", "aliases", "capabilities")}
    if not isinstance(declared["name"], str):
        raise TypeError(f"{kind}.name must be a string")
    for each in ("owns", "aliases"):
        if not isinstance(declared[each], tuple) or not all(isinstance(name, str) for name in declared[each]):
            raise TypeError(f"{kind}.{each} must be a tuple of strings")
    if not isinstance(declared["capabilities"], Capabilities):
        raise TypeError(f"{kind}.capabilities must be of tensorferry.core.capabilities.Capabilities")
    lacking = verbs_lacking(backend)
    if lacking:
        raise TypeError(f"the backend {backend.name!r} declares {', '.join(lacking)}")
