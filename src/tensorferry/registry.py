"""From a type to its backend in one dict hit, and from a name to its backend.

Backends of this package are one file each in `backends/`; outside packages register theirs through
the entry-point group ``tensorferry.backends``. None of that is read before it is needed, and no
framework is imported to look whether an object is one of its tensors.
"""

from __future__ import annotations

import importlib
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from .errors import FrameworkNotInstalledError, UnsupportedTypeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from .backend import Backend
    from .nodes import Node

Function = TypeVar("Function", bound="Callable[..., Any]")

__all__ = [
    "REFUSALS",
    "backend_named",
    "backend_of",
    "backends",
    "is_known_tensor",
    "is_tensor",
    "lane_together",
    "lanes_to",
    "load",
    "may_be_traced",
    "open_lanes",
    "opener_of",
    "ready",
    "refusal_of",
    "register",
    "shield",
    "untraced",
]


REFUSALS = (AssertionError, RuntimeError, TypeError, ValueError)
"""What a fast lane may raise for what it does not accept; the planned path then has its own words."""


class _Lanes(dict[type, "Callable[[Any], Any]"]):
    """Fast lanes to one target; a type that has none gets the one that accepts nothing."""

    def __missing__(self, kind: type) -> Callable[[Any], Any]:
        # Kept, so that the next miss is a hit; not over a lane that opens meanwhile.
        return self.setdefault(kind, _no_lane)


def _no_lane(_: Any) -> None:
    return None


_lanes: dict[str, _Lanes] = {}
_together: dict[tuple[type, str], Callable[[list[Any]], list[Any] | None]] = {}
_lanes_open = True

_by_type: dict[type, Backend] = {}
_openers: dict[type, Callable[[Any], Node] | None] = {}
_MANY = 4096
_opened: set[str] = set()
_ready: dict[str, Backend] = {}
_unshielded: list[Backend] = []
_untraced: list[Callable[..., Any]] = []
may_be_traced = True
"""Whether a framework may yet be imported whose tracer has to be kept out; see `shield`."""
_by_name: dict[str, Backend] = {}
_by_module: dict[str, Backend] = {}
_lock = threading.RLock()
_complete = False


def register(backend: Backend) -> None:
    """Make a backend known under its name and for the modules that it owns.

    Args:
        backend: An instance; it has not loaded its framework yet.
    """
    global may_be_traced
    with _lock:
        _by_name[backend.name] = backend
        for module in backend.owns:
            _by_module[module] = backend
        if backend.is_traced:
            _unshielded.append(backend)
            may_be_traced = True
        _by_type.clear()
        _openers.clear()
        _ready.pop(backend.name, None)


def backends() -> dict[str, Backend]:
    """Every backend by name: this package's in a fixed order, then the outside ones."""
    global _complete
    with _lock:
        if not _complete:
            import pkgutil
            from importlib.metadata import entry_points

            from . import backends as package

            found = []
            for module in pkgutil.iter_modules(package.__path__):
                loaded = importlib.import_module(f"{package.__name__}.{module.name}")
                found.append(loaded.BACKEND)
            for backend in sorted(found, key=lambda each: (each.rank, each.name)):
                if backend.name not in _by_name:
                    register(backend)
            for point in entry_points(group="tensorferry.backends"):
                if point.name not in _by_name:
                    outside = point.load()
                    register(outside() if isinstance(outside, type) else outside)
            _complete = True
        return dict(_by_name)


def backend_named(name: str) -> Backend:
    """The backend of this name, not loaded yet.

    Raises:
        FrameworkNotInstalledError: There is no backend of this name.
    """
    found = _by_name.get(name) or backends().get(name)
    if found is None:
        known = ", ".join(each.name for each in backends().values() if each.is_target)
        raise FrameworkNotInstalledError(
            f"There is no backend named {name!r}.",
            f"one of {known}; or install the package that brings it",
        )
    return found


def lanes_to(target: str) -> dict[type, Callable[[Any], Any]]:
    """The fast lanes to a target, by type of source; the same dict for the life of the process."""
    return _lanes.setdefault(target, _Lanes())


def open_lanes(on: bool) -> bool:
    """Open the fast lanes, or close them so that every conversion is planned; what was before."""
    global _lanes_open
    with _lock:
        before, _lanes_open = _lanes_open, on
        for lanes in _lanes.values():
            lanes.clear()
        _together.clear()
        if on:
            for name in _opened:
                _add_lanes(_by_name[name])
        return before


def lane_together(kind: type, target: str) -> Callable[[list[Any]], list[Any] | None] | None:
    """The fast lane for many tensors of a type at once, or ``None``."""
    return _together.get((kind, target))


def _add_lanes(backend: Backend) -> None:
    for (kind, target), lane in backend.lanes().items():
        lanes_to(target)[kind] = lane
    _together.update(backend.lanes_together())


def load(backend: Backend) -> Backend:
    """The backend with its framework loaded and its fast lanes open."""
    if not backend.loaded:
        with _lock:
            backend.ensure_loaded()
            if backend.name not in _opened:
                _opened.add(backend.name)
                if _lanes_open:
                    _add_lanes(backend)
    return backend


def untraced(function: Function) -> Function:
    """Decorate a function that no framework's tracer is to look into; it is called through `shield` at first."""
    _untraced.append(function)
    # Read by torch.compile, should it come here before its backend has been asked.
    function.__dict__["_torchdynamo_disable"] = True
    return function


def shield(function: Callable[..., Any]) -> Callable[..., Any]:
    """Keep the tracers of imported frameworks out of what is `untraced`; what to call for a function this once."""
    global may_be_traced
    backends()
    called = function
    with _lock:
        for backend in [each for each in _unshielded if each.is_imported()]:
            _unshielded.remove(backend)
            for each in _untraced:
                shielded = backend.shield(each)
                called = shielded if each is function else called
        may_be_traced = bool(_unshielded)
    return called


def ready(name: str) -> Backend:
    """The backend of this name, loaded.

    Raises:
        FrameworkNotInstalledError: There is none, or its framework cannot be imported.
    """
    found = _ready.get(name)
    if found is None:
        found = backend_named(name)
        if not found.is_target:
            raise UnsupportedTypeError(f"{name} is what comes in, never what comes out.", "to_numpy(x)")
        _ready[name] = load(found)
    return found


def backend_of(x: object) -> Backend:
    """The backend whose tensor `x` is, loaded.

    Raises:
        UnsupportedTypeError: It is no tensor.
    """
    found = _by_type.get(type(x))
    return found if found is not None else _find(x)


def opener_of(kind: type) -> Callable[[Any], Node] | None:
    """What opens objects of a type that is a framework's own container; ``None``: it is none."""
    try:
        return _openers[kind]
    except KeyError:
        pass
    imported = [each for each in backends().values() if each.is_imported()]
    found = next((found for each in imported if (found := each.opener_of(kind)) is not None), None)
    if len(_openers) >= _MANY:
        _openers.clear()
    _openers[kind] = found
    return found


def is_known_tensor(kind: type) -> bool:
    """Whether objects of this type have been met as tensors with memory of their own."""
    found = _by_type.get(kind)
    return found is not None and found.capabilities.memory


def is_tensor(kind: type) -> bool:
    """Whether objects of this type are tensors of a framework, with memory of their own."""
    try:
        owner = _owner(kind)
    except UnsupportedTypeError:
        return False
    return owner is not None and owner.capabilities.memory


def refusal_of(kind: type) -> UnsupportedTypeError | None:
    """Why a framework says that a type of its own is no tensor; ``None``: none says anything."""
    try:
        _owner(kind)
    except UnsupportedTypeError as error:
        return error
    return None


def _owner(kind: type) -> Backend | None:
    """The backend that claims a type, loaded; ``None``: none does.

    Raises:
        UnsupportedTypeError: It is of a framework's, and no tensor that can be carried.
    """
    backends()
    for base in kind.__mro__:
        owner = _by_module.get(base.__module__.partition(".")[0])
        if owner is None or not owner.is_imported():
            continue
        load(owner)
        if owner.claims(kind):
            _by_type[kind] = owner
            return owner
        refused = owner.refusal(kind)
        if refused is not None:
            raise UnsupportedTypeError(*refused)
    return None


def _find(x: object) -> Backend:
    kind = type(x)
    owner = _owner(kind)
    if owner is not None:
        return owner
    for backend in backends().values():
        if backend.accepts_foreign(x):
            return load(backend)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    raise UnsupportedTypeError(
        f"An object of type {name} is not a tensor.",
        "pass a tensor, a sequence of numbers, or an object with __dlpack__, a buffer, "
        "__array_interface__ or __array__",
    )
