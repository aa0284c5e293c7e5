"""Fast paths: functions that go straight to a framework's own call, for calls without keywords.

Backends define them. A fast path accepts only ordinary tensors; all others are converted in the
general way.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.named_tuple import NamedTuple
from ..core.names import EXCHANGE
from ..host.memory import is_there

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .base import Backend

__all__ = [
    "NOT_ACCEPTED",
    "PATHS",
    "add",
    "are_views",
    "made_when_called",
    "may_copy",
    "no_path",
    "open_all",
    "paths_to",
]

NOT_ACCEPTED = (AssertionError, KeyError, RuntimeError, TypeError, ValueError)
"""The exceptions that a fast path may raise for a tensor that it does not accept.

They are not shown to the user.
"""

PATHS: dict[str, dict[type, Callable[[Any], Any]]] = {}
"""The fast paths, by the canonical name of the target and the type of the source."""
_copying: set[tuple[type, str]] = set()
"""The fast paths that copy, by type of source and target."""
_views: set[tuple[type, str]] = set()
"""The fast paths that give views: see `are_views`."""
_owners: dict[type, Backend] = {}
"""The backend of each type that has a fast path to NumPy."""
_open = True
_lock = threading.RLock()


class _BackendPaths(NamedTuple):
    """The fast paths of a backend whose framework is loaded."""

    backend: Backend
    paths: Mapping[tuple[type, str], Callable[[Any], Any]]


_by_backend: dict[str, _BackendPaths] = {}
"""The fast paths of all loaded backends, by name."""


def no_path(_: Any) -> None:
    """The fast path of a type without one: it accepts nothing."""


def made_when_called(
    kind: type, target: str, make: Callable[[], Callable[[Any], Any]]
) -> Callable[[Any], Any]:
    """A fast path that is made at its first call, and then stands in its own place.

    For one that needs modules which most processes can do without.

    Args:
        kind: The type of the source.
        target: The canonical name of the target.
        make: Makes the fast path.
    """

    def path(x: Any) -> Any:
        ready = make()
        # Unless the fast paths were closed, or replaced, meanwhile.
        if paths_to(target).get(kind) is path:
            paths_to(target)[kind] = ready
        return ready(x)

    return path


def paths_to(target: str) -> dict[type, Callable[[Any], Any]]:
    """The fast paths to a target, by type of source; the same dict for the life of the process."""
    return PATHS.setdefault(target, {})


def may_copy(pairs: frozenset[tuple[type, str]]) -> bool:
    """Whether a fast path copies, so that it must not be used for leaves that share memory.

    Args:
        pairs: The types of the sources, each with the name of the target.
    """
    return not _copying.isdisjoint(pairs)


def are_views(pairs: frozenset[tuple[type, str]]) -> bool:
    """Whether fast paths give views of memory on the host, in the dtype of the source.

    Then their results are also those of requests that ask for that: see `Quick.views`.
    """
    return _views.issuperset(pairs)


def open_all(on: bool) -> bool:
    """Open the fast paths, or close them, so that all conversions go the general way.

    Gives the state before.
    """
    global _open
    with _lock:
        before, _open = _open, on
        for paths in PATHS.values():
            paths.clear()
        _copying.clear()
        _owners.clear()
        if on:
            for entry in list(_by_backend.values()):
                _open_paths_of(entry)
    return before


def add(backend: Backend, *, is_outside: bool) -> None:
    """Add the fast paths of a backend whose framework is loaded, once.

    Args:
        backend: The backend.
        is_outside: Whether an outside package brought it: its paths are from or to its own tensors.

    Raises:
        ValueError: A fast path of an outside package is between two other frameworks.
    """
    with _lock:
        known = _by_backend.get(backend.name)
        if known is not None and known.backend is backend:
            return
        entry = _BackendPaths(backend, backend.quick.fast_paths())
        if is_outside:
            _validate_paths(entry)
        _by_backend[backend.name] = entry
        _views.update(backend.quick.views())
        if _open:
            _open_paths_of(entry)


def _validate_paths(entry: _BackendPaths) -> None:
    """Raise if a path is neither from nor to the backend's own tensors.

    Raises:
        ValueError: It is between two other frameworks.
    """
    for kind, target in entry.paths:
        if target != entry.backend.name and not entry.backend.claims(kind):
            raise ValueError(
                f"its fast path from {kind.__qualname__} to {target!r} is between two others"
            )


def _open_paths_of(entry: _BackendPaths) -> None:
    for (kind, target), path in entry.paths.items():
        paths_to(target)[kind] = path
        if target == EXCHANGE:
            _owners[kind] = entry.backend
    _join()


def _join() -> None:
    """Add fast paths through an array: for types with one to NumPy, and targets with one from it.

    What is immutable comes as a read-only view, which is copied, or as a new array.
    """
    for kind, owner in _owners.items():
        for name, (target, *_) in _by_backend.items():
            takes = paths_to(name).get(np.ndarray)
            if takes is None or PATHS[name].get(kind, no_path) is not no_path or owner is target:
                continue
            memory = target.capabilities.memory
            if not memory.exists:
                PATHS[name][kind] = _joined(PATHS[EXCHANGE][kind], takes, copies=False)
            elif (
                memory.writable
                and not owner.capabilities.memory.writable
                and not _is_shared(owner, target)
            ):
                PATHS[name][kind] = _joined(PATHS[EXCHANGE][kind], takes, copies=True)
                _copying.add((kind, name))


def _is_shared(owner: Backend, target: Backend) -> bool:
    """Whether the planner's rule shares the memory of a framework's ordinary tensors."""
    # Here, because most processes have no framework whose tensors are immutable.
    from ..core.info import TensorInfo
    from ..core.request import Request
    from ..planning.rules import sharing_rule

    return sharing_rule(TensorInfo(owner.name, (1,)), target, Request(target.name))[0]


def _joined(
    to_array: Callable[[Any], Any], takes: Callable[[Any], Any], *, copies: bool
) -> Callable[[Any], Any]:
    def path(x: Any) -> Any:
        array = to_array(x)
        if not is_there(array):
            return None
        return takes(array.copy() if copies and not array.flags.writeable else array)

    return path
