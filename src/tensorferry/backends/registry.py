"""The registry of backends: find the backend of a type, or of a name.

Each backend of this package has a folder in `backends/`. Outside packages register theirs through
the entry-point group ``tensorferry.backends``. They are looked up only for a name that no known
backend has, or for a type of a module that none owns. A broken one is recorded (`plugins`), and
does not matter to users who have not named it. No framework is imported to find out whether an
object is one of its tensors, and no backend of this package is imported before it is named or met:
until then, the registry has its row in `table`.
"""

from __future__ import annotations

import importlib
import sys
import threading
from contextlib import nullcontext, suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..core import names
from ..core.names import NAMES
from ..errors import ConversionError, UnsupportedTypeError, shown
from ..hints import Caller
from ..host.plugins import EntryPoints
from . import fast_paths
from .table import OWNERS, ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from ..errors import UnknownFrameworkError
    from .base import Backend
    from .table import Row

__all__ = [
    "BY_TYPE",
    "NAMES",
    "backend_named",
    "backend_of",
    "backend_that_knows",
    "backends",
    "caller",
    "canonical",
    "code_of",
    "first_path",
    "guard",
    "imported",
    "is_known_tensor",
    "is_outside",
    "is_tensor",
    "known",
    "listed",
    "load",
    "load_imported",
    "on_change",
    "outside",
    "ready",
    "refusal_of",
    "refusal_of_unrun",
    "register",
]


BY_TYPE: dict[type, Backend] = {}
"""The backends, by the types of tensors that have been used."""
_tensors: set[type] = set()
"""Those of them that have memory, and are not containers as tables are."""
_others: set[type] = set()
"""Types that have been looked up, and are no tensors with memory, or are containers."""
_ready: dict[str, Backend] = {}
on_change: list[Callable[[], Any]] = []
"""Functions to call when a backend is registered, because cached results may be wrong then."""
revision = 0
"""How many backends have been registered.

Cached results that depend on all backends are valid for one revision.
"""
_by_name: dict[str, Backend] = {}
"""The backends that have been imported or registered, by name."""
_by_module: dict[str, Backend] = {}
"""The same ones, by the top-level modules that they own."""
_lock = threading.RLock()
_loading: dict[str, threading.RLock] = {}
_failed_to_load: set[str] = set()


def register(backend: Backend) -> None:
    """Register a backend for its name and for the modules that it owns.

    It replaces a backend of the same name.

    Args:
        backend: An instance that has not loaded its framework.

    Raises:
        TypeError: It is not a backend, or declares an ability without the verb for it.
        ValueError: It owns a module that another backend owns.
    """
    # Here, because it takes half as long as the rest of ``import tensorferry``.
    from .verbs import validate

    validate(backend)
    with _lock:
        _add(backend)


def _add(backend: Backend) -> None:
    global revision
    if NAMES.get(backend.name, backend.name) != backend.name:
        raise ValueError(f"{backend.name!r} is another name of {NAMES[backend.name]}")
    for module in backend.owns:
        if module in _by_module:
            owner = _by_module[module].name
        else:
            owner = OWNERS.get(module, backend.name)
        if owner != backend.name:
            raise ValueError(
                f"the backend {backend.name!r} owns {module!r}, which {owner!r} owns already"
            )
    revision += 1
    _by_name[backend.name] = backend
    NAMES[backend.name] = backend.name
    for alias in backend.aliases:
        NAMES.setdefault(alias, backend.name)
    for module in backend.owns:
        _by_module[module] = backend
    BY_TYPE.clear()
    _tensors.clear()
    _others.clear()
    _ready.pop(backend.name, None)
    for forget in on_change:
        forget()


def code_of(name: str) -> str:
    """The module of this package that has the backend of this name, as `BACKEND`."""
    return f"{__package__}.{name.replace('-', '_')}.tensors"


def _own(name: str) -> Backend | None:
    """This package's backend of this name, imported if it was not; ``None`` if there is none."""
    if name not in ROWS:
        return None
    backend: Backend = importlib.import_module(code_of(name)).BACKEND
    # The table has said all of it that cached results depend on, so that none of them is forgotten.
    for module in backend.owns:
        _by_module.setdefault(module, backend)
    return _by_name.setdefault(name, backend)


def _known(name: str) -> Backend | None:
    """The backend with this name, if it is known now. None is looked up."""
    return _by_name.get(name) or _own(name)


def known() -> dict[str, Backend]:
    """The backends that are known now, by name: this package's in a fixed order, then others.

    None is looked up.

    All of this package's are imported. `imported` and `listed` are for what every process does.
    """
    return {**{name: backend_named(name) for name in ROWS}, **_by_name}


def listed() -> list[Backend | Row]:
    """The backends that are known now, in the order of `known`.

    One that has not been imported is its row.
    """
    by_name: dict[str, Backend | Row] = {**ROWS, **_by_name}
    return list(by_name.values())


def imported() -> list[Backend]:
    """The known backends whose frameworks have been imported, in the order of `known`."""
    return [backend_named(backend.name) for backend in listed() if backend.is_imported()]


def backends() -> dict[str, Backend]:
    """All backends by name: this package's in a fixed order, then those of outside packages."""
    outside.open_all()
    return dict(known())


def _backend_of_entry_point(name: str, loaded: object) -> Backend:
    """The backend of an entry point, which may be a class or an instance."""
    from .base import Backend
    from .verbs import validate

    if isinstance(loaded, type) and issubclass(loaded, Backend):
        backend: Any = loaded()
    else:
        backend = loaded
    validate(backend)
    if backend.name != name:
        raise ValueError(
            f"its entry point is named {name!r}, and its backend {backend.name!r}: "
            "both need one name"
        )
    return backend  # type: ignore[no-any-return]


outside: EntryPoints[Backend] = EntryPoints(
    "tensorferry.backends",
    "backend",
    known=lambda: _by_name,
    own=lambda: {type_ for type_, name in list(NAMES.items()) if name in ROWS},
    make=_backend_of_entry_point,
    keep=_add,
    lock=_lock,
)
"""The backends of outside packages."""


def is_outside(name: str) -> bool:
    """Whether the backend of this name came from an outside package."""
    return name not in ROWS and outside.package_of(name) is not None


def guard(name: str) -> AbstractContextManager[object]:
    """A context that records errors of an outside package that the user has not named.

    Those of this package's backends are raised.
    """
    return nullcontext() if name in ROWS else outside.guard(name)


def backend_named(name: str) -> Backend:
    """The backend with this canonical name. Its framework is not loaded.

    Raises:
        UnknownFrameworkError: There is no backend of this name.
        FrameworkNotInstalledError: It is a broken one of an outside package.
    """
    backend = _known(name) or outside.open(name)
    if backend is None:
        raise _no_framework(name)
    return backend


def _no_framework(name: str) -> UnknownFrameworkError:
    from .no_framework import no_framework  # here, because only an error needs it

    return no_framework(name, known().values(), outside.names())


def canonical(to: object) -> str:
    """The canonical name of a framework, given as a name or alias, a module, or a tensor class.

    >>> import numpy as np
    >>> canonical("np"), canonical(np), canonical(np.ndarray)
    ('numpy', 'numpy', 'numpy')

    Raises:
        UnknownFrameworkError: No backend has this name.
        TypeError: It is an object that cannot name a framework.
    """
    try:
        name = NAMES.get(to)
    except TypeError:  # it cannot be hashed
        name = None
    if name is not None:
        return name
    if isinstance(to, str):
        return _named(to)
    if isinstance(to, ModuleType):
        return NAMES.setdefault(to, _named(to.__name__))
    meant = ""
    if isinstance(to, type):
        owner = _owner_of(to.__module__.partition(".")[0])
        if owner is not None and owner.is_imported() and load(owner).stands_for(to):
            return NAMES.setdefault(to, owner.name)
        meant = "" if owner is None else f', "{owner.name}"'
    raise TypeError(
        f"to must be a framework (its name{meant}, "
        f"its module or its tensor class), not {shown(to)}; "
        "the tensor to convert comes first, one to follow goes into like=, a dtype into dtype="
    )


def _named(name: str) -> str:
    if name not in NAMES and outside.open(name) is None:
        outside.search()  # it may be an alias of an outside backend
        if name not in NAMES:
            raise _no_framework(name)
    return NAMES[name]


def load(backend: Backend) -> Backend:
    """Load a backend's framework, and add its fast paths.

    Raises:
        FrameworkNotInstalledError: The framework cannot be imported, or the backend of an outside
            package is broken.
    """
    if not backend.loaded:
        # Without a lock, because another thread may be importing it, and its import may call
        # tensorferry.
        backend.import_framework()
        try:
            with _loading.setdefault(backend.name, threading.RLock()):
                backend.ensure_loaded()
        except BaseException as error:
            if outside.record_if_outside(backend.name, error):
                _failed_to_load.add(backend.name)
                raise outside.broken(
                    backend.name, outside.package_of(backend.name) or "", error
                ) from error
            raise
        if backend.name in _failed_to_load:
            _failed_to_load.discard(backend.name)
            outside.forget_error(backend.name)
        with _lock, guard(backend.name):
            fast_paths.add(backend, is_outside=is_outside(backend.name))
    return backend


def load_imported(backend: Backend) -> None:
    """Load a backend's framework if it is imported already; otherwise leave it."""
    if not backend.loaded and backend.is_imported():
        load(backend)


def ready(name: str) -> Backend:
    """The backend with this name, with its framework loaded.

    Raises:
        UnknownFrameworkError: There is no such backend.
        FrameworkNotInstalledError: The framework cannot be imported.
    """
    backend = _ready.get(name)
    if backend is None:
        backend = backend_named(name)
        if not backend.is_target:
            raise UnsupportedTypeError(f"{name} can only be a source, not a target.", "to_numpy(x)")
        _ready[name] = load(backend)
    return backend


def first_path(x: object, name: str) -> Callable[[Any], Any]:
    """The fast path to a target of a tensor whose type was never converted to it.

    If the type has one, it comes with the frameworks, which are loaded now. If not, it is
    remembered that it has none.

    Args:
        x: The tensor.
        name: The name of the target.
    """
    paths = fast_paths.paths_to(name)
    try:
        ready(name)
        if type(x) not in paths:
            backend_of(x)
    except (ConversionError, *fast_paths.NOT_ACCEPTED):
        pass  # it is raised again when it is converted
    # Unless another thread has just added one.
    return paths.setdefault(type(x), fast_paths.no_path)


def backend_of(x: object) -> Backend:
    """The backend of a tensor, with its framework loaded.

    Raises:
        UnsupportedTypeError: `x` is not a tensor.
    """
    backend = BY_TYPE.get(type(x))
    return backend if backend is not None else _find_backend(x)


def is_known_tensor(kind: type) -> bool:
    """Whether this is known as a type of tensors with memory, which are no containers.

    A type of a framework of this package's is looked up when it is met.
    """
    if kind in _tensors:
        return True
    if kind in _others:
        return False
    owner = BY_TYPE.get(kind)
    if owner is None:
        name = OWNERS.get(kind.__module__.partition(".")[0])
        if name is None or ROWS[name].module == "builtins":
            return False
        with suppress(UnsupportedTypeError):
            owner = _owner(kind)
    known = _others
    if owner is not None:
        with guard(owner.name):
            if owner.opener_of(kind) is None and owner.capabilities.memory.exists:
                known = _tensors
    known.add(kind)
    return known is _tensors


def is_tensor(kind: type) -> bool:
    """Whether objects of this type are tensors of a framework, with memory."""
    try:
        owner = _owner(kind, kind.__mro__[:-1])  # as an `object` nothing is one
    except UnsupportedTypeError:
        return False
    return owner is not None and owner.capabilities.memory.exists


def refusal_of(kind: type) -> UnsupportedTypeError | None:
    """A framework's error for a type of its own that is not a tensor; ``None`` without one."""
    try:
        _owner(kind)
    except UnsupportedTypeError as error:
        return error.with_traceback(None)  # because the traceback refers to what the callers have
    return None


def refusal_of_unrun(kind: type) -> UnsupportedTypeError | None:
    """The error for a type that has no values yet to look into; ``None`` for other types."""
    refused = refusal_of(kind)  # which loads the framework
    if any(issubclass(kind, backend.not_yet_run) for backend in list(_by_name.values())):
        return refused
    return None


def backend_that_knows(kind: type) -> Backend | None:
    """The backend that knows another library's type, whatever its base class is; or ``None``."""
    for backend in list(known().values()):
        with guard(backend.name):
            if backend.knows(kind):
                return load(backend)
    return None


def _owner(kind: type, bases: Sequence[type] | None = None) -> Backend | None:
    """The backend that claims a type, with its framework loaded; ``None`` if none does.

    Args:
        kind: The type.
        bases: The classes whose backends are asked; ``None``: it and all its bases.

    Raises:
        UnsupportedTypeError: The type belongs to a framework, but is not a tensor that can be
            converted.
    """
    for base in kind.__mro__ if bases is None else bases:
        owner = _owner_of(base.__module__.partition(".")[0])
        if owner is None:
            continue
        refused = None
        with guard(owner.name):
            if not owner.is_imported():
                continue
            if load(owner).claims(kind) and _says_what_it_can(owner):
                BY_TYPE[kind] = owner
                return owner
            refused = owner.refusal(kind)
        if refused is not None:
            raise UnsupportedTypeError(*refused)
    return None


def _says_what_it_can(owner: Backend) -> bool:
    """Whether a backend of an outside package has capabilities; this package's all have."""
    return owner.name in ROWS or owner.capabilities is not None


def _owner_of(module: str) -> Backend | None:
    """The backend that owns a top-level module.

    If no known one does, outside packages are looked up.
    """
    owner = _by_module.get(module)
    if owner is not None:
        return owner
    if module in OWNERS:
        return backend_named(OWNERS[module])
    if module not in _OWNED_BY_NO_BACKEND:
        outside.search()
    return _by_module.get(module)


_OWNED_BY_NO_BACKEND = frozenset({*sys.stdlib_module_names, "__main__"})
"""Modules that cannot belong to the framework of an outside package."""


def _find_backend(x: object) -> Backend:
    kind = type(x)
    if isinstance(x, type):
        raise _no_tensor(x)
    try:
        owner = _owner(kind)
    except UnsupportedTypeError:
        owner = backend_that_knows(kind)
        if owner is None:
            raise
    if owner is not None:
        return owner
    for backend in _known_then_outside():
        with guard(backend.name):
            if backend.accepts_foreign(x):
                if backend.knows(kind) and backend.opener_of(kind) is None:
                    # Then every object of the type is accepted, and none is a table.
                    BY_TYPE[kind] = load(backend)
                return load(backend)
    modules = {base.__module__.partition(".")[0] for base in kind.__mro__} - _OWNED_BY_NO_BACKEND
    broken = outside.failure(
        {*modules, *(_by_module[module].name for module in modules if module in _by_module)}
    )
    if broken is not None:
        from .no_tensor import full_name  # here, because only an error needs it

        raise UnsupportedTypeError(
            f"An object of type {full_name(kind)} is not a tensor. {broken.message}", broken.advice
        )
    raise _no_tensor(x)


def _no_tensor(x: object) -> UnsupportedTypeError:
    from .no_tensor import refusal_to_convert  # here, because only an error needs it

    return refusal_to_convert(x)


def caller(function: str, target: str) -> Caller:
    """The call of a function with a target, for hints: with what is known of the target."""
    from ..core.declaration import caller_of  # here, because only an error needs it

    backend = _known(target)
    return Caller(function, target) if backend is None else caller_of(function, backend)


def _known_then_outside() -> Iterator[Backend]:
    """Yield the known backends, then those of outside packages, which are looked up only then."""
    before = list(known().values())
    yield from before
    outside.search()
    yield from (backend for backend in list(_by_name.values()) if backend not in before)


for _row in ROWS.values():
    for _word in (_row.name, *_row.aliases):
        NAMES[_word] = _row.name
names.LOOKUPS.append(names.Lookup(canonical, backend_named, known, backends))
