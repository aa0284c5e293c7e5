"""Outside packages: load what they provide through entry points, only when it is needed.

A broken package is recorded with its error, and does not break anything else. No lock is held while
a package is imported, because its import may call tensorferry, in this thread or in another one.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

from ..core.generics import Generic, TypeVar
from ..core.named_tuple import NamedTuple
from ..errors import FrameworkNotInstalledError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from contextlib import AbstractContextManager
    from importlib import metadata

__all__ = ["EntryPoints", "Plugin"]

Thing = TypeVar("Thing")
_UNKNOWN = "an unknown package"


class Plugin(NamedTuple):
    """An entry point of an outside package.

    Args:
        group: The entry-point group.
        name: The name that users write.
        package: The distribution, with its version.
        error: Why it cannot be used, or what failed in it; ``None`` without an error.
    """

    group: str
    name: str
    package: str
    error: str | None


class _NotYetError(ImportError):
    """The entry point is being imported by this very thread."""


class EntryPoints(Generic[Thing]):
    """The entry points of one group.

    Args:
        group: Its name.
        what: A word for the things, for messages.
        known: Gives all things that are known now, by name.
        own: The names of tensorferry's own things.
        make: Makes the thing from the object of an entry point; raises if the object is wrong.
        keep: Makes the thing known.
        lock: Held while a thing is made known, but never while code of an outside package runs.
    """

    def __init__(
        self,
        group: str,
        what: str,
        *,
        known: Callable[[], Mapping[str, Thing]],
        own: Callable[[], Collection[object]],
        make: Callable[[str, object], Thing],
        keep: Callable[[Thing], object],
        lock: AbstractContextManager[object],
    ) -> None:
        self.group, self.what = group, what
        self._known, self._own, self._make, self._keep, self._lock = known, own, make, keep, lock
        self._packages: dict[str, str] = {}
        self._failed: dict[tuple[str, str], str] = {}
        self._being_loaded = threading.local()
        self._searched = False

    # -- loading ----------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """The names of all entry points. No package is imported."""
        return list(
            dict.fromkeys(
                point.name for point, _ in self._points() if point.name not in self._own()
            )
        )

    def open(self, name: str) -> Thing | None:
        """Load the entry point with this name; ``None`` if there is none.

        Raises:
            FrameworkNotInstalledError: It is broken; the message names the package and the reason.
        """
        failed: tuple[str, BaseException] | None = None
        for point, package in self._points():
            if point.name == name:
                error = self._try_to_load(point, package)
                if error is None:
                    return self._known().get(name)
                failed = failed or (package, error)
        if failed is None:
            return None
        raise self.broken(name, *failed) from failed[1]

    def search(self) -> None:
        """Load all entry points, once, because an unknown object was met."""
        if not self._searched:
            # Set afterwards, so that another thread does not miss what this one is loading.
            self._searched = self.open_all()

    def open_all(self) -> bool:
        """Load all entry points.

        Whether none has to be tried again (because it is being imported now).
        """
        errors = [self._try_to_load(point, package) for point, package in self._points()]
        return not any(isinstance(error, _NotYetError) for error in errors)

    def _try_to_load(self, point: metadata.EntryPoint, package: str) -> BaseException | None:
        """Load one entry point, and make its thing known.

        Gives the error, if any, which is also recorded.
        """
        key = point.name, package
        being_loaded = self._being_loaded.__dict__.setdefault("keys", set())
        if key in being_loaded:
            return _NotYetError("it was used while it was being made")
        being_loaded.add(key)
        try:
            self._load_and_keep(point, package)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a SystemExit, or a panic in Rust, is recorded too
            if _is_being_imported(point):
                return _NotYetError("it was used while its own package was being imported")
            self._failed[key] = _one_line(error)
            return error
        finally:
            being_loaded.discard(key)
        return None

    def _load_and_keep(self, point: metadata.EntryPoint, package: str) -> None:
        name = point.name
        if name in self._own():
            raise ValueError(
                f"{name!r} is the name of a {self.what} of tensorferry itself: use another name"
            )
        if name not in self._known():
            plugin = self._make(name, point.load())
            with self._lock:
                if name not in self._known():
                    self._keep(plugin)
                    self._packages[name] = package
            self._failed.pop((name, package), None)
        first = self._packages.get(name, package)
        if first != package:
            raise ValueError(f"{first} also has a {self.what} of that name, which is used instead")

    def _points(self) -> list[tuple[metadata.EntryPoint, str]]:
        """The entry points and their packages, sorted by name."""
        points = [(point, _package_of(point.dist)) for point in self._read()]
        return sorted(points, key=lambda named: (named[0].name, named[1]))

    def _read(self) -> list[metadata.EntryPoint]:
        # Here, because it takes as long as the rest of ``import tensorferry``.
        from importlib import metadata

        try:
            return list(metadata.entry_points(group=self.group))
        except Exception:  # noqa: BLE001 - the list of one package may be damaged; then read each by itself
            return self._read_one_by_one(metadata.distributions())

    def _read_one_by_one(
        self, packages: Iterable[metadata.Distribution]
    ) -> list[metadata.EntryPoint]:
        points: dict[tuple[str, str], metadata.EntryPoint] = {}
        for distribution in packages:
            package = _package_of(distribution)
            try:
                for point in distribution.entry_points:
                    if point.group == self.group:
                        points.setdefault((package, point.name), point)
            except Exception as error:  # noqa: BLE001 - damaged, as above
                if self.group in (distribution.read_text("entry_points.txt") or ""):
                    self._failed["entry_points.txt", package] = _one_line(error)
        return list(points.values())

    # -- errors -----------------------------------------------------------------------------------

    def plugins(self) -> list[Plugin]:
        """All entry points that have been loaded, also broken ones; see `open_all`."""
        failed = [
            Plugin(self.group, name, package, error)
            for (name, package), error in self._failed.items()
        ]
        known = self._known()
        whole = [
            Plugin(self.group, name, package, None)
            for name, package in self._packages.items()
            if name in known and (name, package) not in self._failed
        ]
        return sorted([*whole, *failed])

    def package_of(self, name: str) -> str | None:
        """The package that provided this name; ``None`` if none did."""
        if name in self._known():
            return self._packages.get(name)
        return None

    def record_if_outside(self, name: str, error: BaseException) -> bool:
        """Record an error, if the name was provided by an outside package. Whether it was."""
        package = self.package_of(name)
        if package is None or isinstance(error, KeyboardInterrupt):
            return False
        is_ours = isinstance(error, FrameworkNotInstalledError)
        self._failed[name, package] = _one_line((is_ours and error.__cause__) or error)
        return True

    def guarded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Make a function of an outside package give ``None`` when it fails.

        Other functions are returned unchanged.
        """
        if self.package_of(name) is None:
            return function

        def call(*arguments: Any) -> Any:
            with self.guard(name):
                return function(*arguments)
            return None

        return call

    def guard(self, name: str) -> _Guard:
        """A context that records errors of an outside package that the user has not named."""
        return _Guard(self, name)

    def forget_error(self, name: str) -> None:
        """Forget an error, because the package works now."""
        self._failed.pop((name, self._packages.get(name, "")), None)

    def failure(self, names: Collection[str]) -> FrameworkNotInstalledError | None:
        """The recorded error of the first of these names that has one; ``None`` without one."""
        failed = next((key for key in self._failed if key[0] in names), None)
        if failed is None:
            return None
        return self.broken(*failed, self._failed[failed])

    def broken(
        self, name: str, package: str, error: BaseException | str | None
    ) -> FrameworkNotInstalledError:
        """The error for a user who has named a broken package."""
        why = _one_line(error) if isinstance(error, BaseException) else error
        if package == _UNKNOWN:
            fix = "tensorferry doctor"
        else:
            fix = f"pip install --upgrade {package.partition(' ')[0]}"
        return FrameworkNotInstalledError(
            f"The {self.what} {name!r} of {package} is broken: {why}.", fix
        )


class _Guard:
    """Records an error of an outside package, and does not raise it."""

    __slots__ = ("_entry_points", "_name")

    def __init__(self, entry_points: EntryPoints[Any], name: str) -> None:
        self._entry_points, self._name = entry_points, name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        return error is not None and self._entry_points.record_if_outside(self._name, error)


def _package_of(distribution: metadata.Distribution | None) -> str:
    """The name and version of a distribution, if its metadata can be read."""
    try:
        if distribution is None:
            name, version = None, ""
        else:
            name, version = distribution.metadata["Name"], distribution.version
    except Exception:  # noqa: BLE001 - damaged metadata must not hide the entry point
        name, version = None, ""
    return f"{name} {version}" if name else _UNKNOWN


def _one_line(error: BaseException) -> str:
    """An error in one line, even if its ``__str__`` fails."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - see the docstring
        text = ""
    if text:
        return f"{type(error).__name__}: {text}"
    return type(error).__name__


def _is_being_imported(point: metadata.EntryPoint) -> bool:
    """Whether the module of an entry point, or a package that contains it, is being imported."""
    parts = point.value.partition(":")[0].strip().split(".")
    modules = (sys.modules.get(".".join(parts[: end + 1])) for end in range(len(parts)))
    return any(
        getattr(getattr(module, "__spec__", None), "_initializing", False) for module in modules
    )
