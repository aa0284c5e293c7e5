"""From a type to its backend in one dict hit, and from a name to its backend.

Backends of this package are one file each in `backends/`; outside packages register theirs through
the entry-point group ``tensorferry.backends``. None of that is read before it is needed, and no
framework is imported to look whether an object is one of its tensors.
"""

from __future__ import annotations

import importlib
import threading
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from .errors import UnknownFrameworkError, UnsupportedTypeError, nearest, shown
from .hints import Hint

if TYPE_CHECKING:
    from collections.abc import Callable

    from .backend import Backend
    from .nodes import Node

Function = TypeVar("Function", bound="Callable[..., Any]")

__all__ = [
    "NAMES",
    "REFUSALS",
    "backend_named",
    "backend_of",
    "backends",
    "canonical",
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
NAMES: dict[object, str] = {}
"""The canonical name by all that has been met for it: names, aliases, modules, tensor classes."""
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
        NAMES[backend.name] = backend.name
        for alias in backend.aliases:
            NAMES.setdefault(alias, backend.name)
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
    """The backend of this canonical name, not loaded yet.

    Raises:
        UnknownFrameworkError: There is no backend of this name.
    """
    found = _by_name.get(name) or backends().get(name)
    if found is None:
        raise _unknown(name)
    return found


def canonical(to: object) -> str:
    """The canonical name of what a caller has named: by a name or an alias, a module, or a tensor class.

    >>> import numpy as np
    >>> canonical("np"), canonical(np), canonical(np.ndarray)
    ('numpy', 'numpy', 'numpy')

    Raises:
        UnknownFrameworkError: It is a name, and no backend's.
        TypeError: It is nothing that could name one.
    """
    try:
        found = NAMES.get(to)
    except TypeError:  # it cannot be hashed
        found = None
    if found is not None:
        return found
    backends()
    if isinstance(to, str):
        if to not in NAMES:
            raise _unknown(to)
        return NAMES[to]
    if isinstance(to, ModuleType):
        if to.__name__ not in NAMES:
            raise _unknown(to.__name__)
        return NAMES.setdefault(to, NAMES[to.__name__])
    meant = ""
    if isinstance(to, type):
        owner = _by_module.get(to.__module__.partition(".")[0])
        if owner is not None and owner.is_imported() and load(owner).stands_for(to):
            return NAMES.setdefault(to, owner.name)
        meant = "" if owner is None else f', "{owner.name}"'
    raise TypeError(
        f"to must be a framework (its name{meant}, its module or its tensor class), not {shown(to)}; "
        "a tensor goes into like="
    )


def _unknown(name: str) -> UnknownFrameworkError:
    """The error for a name that is no backend's, with the one that was meant."""
    targets = [each for each in backends().values() if each.is_target]
    if any(name.partition(":")[0] in each.capabilities.devices for each in targets):
        return UnknownFrameworkError(f"{name!r} is a device, and not the name of a framework.", f'device="{name}"')
    names = {each.name for each in targets}
    meant = nearest(name, [word for word in NAMES if isinstance(word, str) and NAMES[word] in names])
    return UnknownFrameworkError(
        f"{name!r} is not the name of a framework.",
        f'to="{NAMES[meant]}"' if meant else "one of " + ", ".join(f'"{each.name}"' for each in targets),
    )


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
        UnknownFrameworkError: There is none.
        FrameworkNotInstalledError: Its framework cannot be imported.
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
    if isinstance(x, type):
        raise UnsupportedTypeError(f"{_full_name(x)} is a class, not an object: it has no values.", "an object of it")
    owner = _owner(kind)
    if owner is not None:
        return owner
    for backend in backends().values():
        if backend.accepts_foreign(x):
            return load(backend)
    raise UnsupportedTypeError(
        f"An object of type {_full_name(kind)} is not a tensor.",
        Hint(
            "pass a tensor, a sequence of numbers, or an object with __dlpack__, a buffer, "
            "__array_interface__ or __array__; {tree:x} for the tensors inside a container"
        ),
    )


def _full_name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
