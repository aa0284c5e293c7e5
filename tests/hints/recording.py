"""Watch the public functions while tests run, and paste the hint of each error that one raises."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.hints import commands
from tests.hints.exceptions import PLACES, Place
from tests.hints.pasting import Called, Failed, clean, error_text, paste

import tensorferry as ferry
from tensorferry.functions.wrap import Wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

_ONE = {"convert", "explain", "describe", "shares_memory"}
"""Functions that take one tensor, beside those whose names begin with ``to_``."""

_READERS = {"convert_files", "load", "open"}
"""Functions that read a path: of one that is not there, nothing can be read."""

_PATH = re.compile(r"(/[\w.+@=-]+){2,}")


class Finding(NamedTuple):
    """A hint that does not work."""

    call: str
    hint: str
    message: str
    why: str

    def __str__(self) -> str:
        return f"{self.call}: {self.message}\n  Hint: {self.hint}\n  {self.why}"


class Watch:
    """What was found while tests ran."""

    def __init__(self, places: tuple[Place, ...] = PLACES) -> None:
        self.places = places
        self.findings: list[Finding] = []
        self.needed: set[str] = set()
        """The patterns of the places that were needed."""
        self.tried = 0
        self.seconds = 0.0
        """How long that took."""
        self._seen: set[tuple[object, ...]] = set()
        # By what was begun: the call.
        self._begun: Any = weakref.WeakKeyDictionary()
        self._thread = threading.local()
        # Those that are imported when they are first used are imported here.
        found = {name: getattr(ferry, name) for name in (*ferry.__all__, "open")}
        functions = {
            name: each
            for name, each in found.items()
            if callable(each) and not isinstance(each, type)
        }
        self._calls = {name: self._watched(name, function) for name, function in functions.items()}

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the public functions of the package."""
        before = {name: vars(ferry)[name] for name in self._calls}
        vars(ferry).update(self._calls)
        with contextlib.ExitStack() as patches:
            for kind, name in (
                (ferry.Transfer, "result"),
                (ferry.Prefetch, "__next__"),
                (Wrapped, "__call__"),
            ):
                patches.callback(setattr, kind, name, vars(kind)[name])
                setattr(kind, name, self._watched_later(vars(kind)[name]))
            patches.enter_context(commands.watching(self._look_at_command))
            try:
                yield
            finally:
                vars(ferry).update(before)
                self._begun.clear()

    def _watched(self, name: str, function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if getattr(self._thread, "inside", False):
                return function(*args, **kwargs)
            self._thread.inside = True
            try:
                return self._noted(function(*args, **kwargs), name, function, args, kwargs)
            except ferry.ConversionError as error:
                self._look_at_all(error, name, function, args, kwargs)
                raise
            finally:
                self._thread.inside = False

        call.__wrapped_by_harness__ = function
        # As pickle finds it.
        call.__module__, call.__qualname__ = ferry.__name__, name
        return call

    def _noted(self, result: Any, *call: Any) -> Any:
        """The result of a call, of which it is noted what it began."""
        if isinstance(result, (ferry.Transfer, ferry.Prefetch)):
            self._begun[result] = call
        return result

    def _watched_later(self, method: Any) -> Any:
        """A method of what a call gave, whose errors are about that call; or of a wrapped function."""

        @functools.wraps(method)
        def later(owner: Any, *args: Any, **kwargs: Any) -> Any:
            if getattr(self._thread, "inside", False):
                return method(owner, *args, **kwargs)
            self._thread.inside = True
            try:
                return method(owner, *args, **kwargs)
            except ferry.ConversionError as error:
                if isinstance(owner, Wrapped):
                    self._look_at_all(error, "wrapped", owner, args, {})
                elif owner in self._begun and not any(
                    hasattr(each, "__next__") for each in self._begun[owner][2]
                ):
                    self._look_at_all(error, *self._begun[owner])
                raise
            finally:
                self._thread.inside = False

        return later

    def _look_at_all(self, error: Any, name: str, function: Any, args: Any, kwargs: Any) -> None:
        # In a frame of its own: a frame of the traceback must not refer to the error, which would
        # keep `x` alive.
        for each in getattr(error, "exceptions", (error,)):
            self.look_at(Called(name, function, args, kwargs, each.hint, error_text(each)))

    def look_at(self, call: Called) -> None:
        """Paste the hint of an error, unless one like it was pasted before."""
        hint = _PATH.sub("/…", call.hint or "")
        x = call.args[0] if call.args else None
        key = call.name, hint, type(x), tuple(sorted(call.kwargs))
        if key in self._seen or threading.current_thread() is not threading.main_thread():
            return
        self._seen.add(key)
        if not hint or (
            call.name in _READERS and isinstance(x, (str, os.PathLike)) and not os.path.lexists(x)
        ):
            return
        self.tried += 1
        started = time.monotonic()
        try:
            paste(call, (), self._excused)
        except Failed as error:
            self._found(call, hint, str(error))
        finally:
            clean()
            self.seconds += time.monotonic() - started

    def _look_at_command(self, command: commands.Command) -> None:
        """Type the hint of an error of the command line, unless one like it was typed before."""
        hint = _PATH.sub("/…", command.hint)
        kinds = [Path(word).suffix for word in command.words if not word.startswith("-")]
        key = ("tensorferry", command.words[:1], hint, *kinds)
        if key in self._seen or getattr(self._thread, "inside", False):
            return
        self._seen.add(key)
        self.tried += 1
        started = time.monotonic()
        self._thread.inside = True
        try:
            commands.type_ways(command, (), self._excused)
        except Failed as error:
            if not self._excused(hint):
                typed = f"tensorferry {_PATH.sub('/…', ' '.join(command.words))}"
                self.findings.append(Finding(typed, hint, command.message, str(error)))
        finally:
            self._thread.inside = False
            clean()
            self.seconds += time.monotonic() - started

    def _excused(self, hint: str) -> bool:
        """Whether the list has a hint to which another leads."""
        place = self._place(_PATH.sub("/…", hint))
        self.needed.update([] if place is None else [place.hint])
        return place is not None

    def _place(self, hint: str) -> Place | None:
        return next(
            (each for each in self.places if re.fullmatch(each.hint, hint, re.DOTALL)), None
        )

    def _found(self, call: Called, hint: str, why: str) -> None:
        place = self._place(hint)
        if place is not None:
            self.needed.add(place.hint)
            if not is_single_host_tensor(call):
                return
            why = f"a single host tensor, which the list may not have: {why}"
        shown = f"{call.name}({type(call.args[0]).__qualname__ if call.args else ''}, {sorted(call.kwargs)})"
        self.findings.append(Finding(shown, hint, call.message, why))


def is_single_host_tensor(call: Called) -> bool:
    """Whether a call is of a function for one tensor, with a tensor in host memory that can be read."""
    given = x = next(iter(call.args), None)
    if not (call.name in _ONE or call.name.startswith("to_")) or "device" in call.kwargs:
        return False
    if call.message.startswith(ferry.FrameworkNotInstalledError.__name__):
        return False  # it is about the target, whatever the tensor
    while isinstance(x, (list, tuple)) and not isinstance(x, ferry.TensorInfo) and len(x):
        x = x[0]
        if not isinstance(x, (list, tuple, int, float, complex)):
            return False  # several tensors
    if isinstance(x, ferry.TensorInfo):
        return False  # a description, which has no values
    try:
        found = ferry.describe(x)
        ferry.to_list(given)
    except Exception:  # noqa: BLE001 - it is no tensor, or cannot be read
        return False
    return found.abstract is None and str(found.device) == "cpu"


def write(watch: Watch, folder: Path) -> None:
    """Write what one process found, for `unneeded`."""
    told = {"needed": sorted(watch.needed), "tried": watch.tried, "seconds": round(watch.seconds)}
    (folder / f"{os.getpid()}.json").write_text(json.dumps(told), encoding="utf-8")


def unneeded(folder: Path, places: tuple[Place, ...] = PLACES) -> tuple[list[Place], int]:
    """The places of the list that no process needed, and how many hints all of them tried."""
    told = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")]
    needed = {hint for each in told for hint in each["needed"]}
    return [place for place in places if place.hint not in needed], sum(
        each["tried"] for each in told
    )


if __name__ == "__main__":
    left, tried = unneeded(Path(sys.argv[1]))
    told = [
        f"No longer needed in tests/hints/exceptions.py: {each.hint}  ({each.reason})"
        for each in left
    ]
    sys.stdout.write("\n".join([f"{tried} hints were pasted.", *told, ""]))
    sys.exit(bool(left) or not tried)
