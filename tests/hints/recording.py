"""Watch the public functions while tests run, and paste the hint of each error that one raises."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.hints.exceptions import PLACES, Place
from tests.hints.pasting import Called, Failed, error_text, paste

import tensorferry as ferry

if TYPE_CHECKING:
    from collections.abc import Iterator

_ONE = {"convert", "explain", "describe", "shares_memory"}
"""Functions that take one tensor, beside those whose names begin with ``to_``."""

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
        self._seen: set[tuple[object, ...]] = set()
        self._thread = threading.local()

    @contextlib.contextmanager
    def watching(self) -> Iterator[Watch]:
        """Watch the public functions of the package."""
        before = {}
        for name in (*ferry.__all__, "open"):
            function = getattr(ferry, name)
            if callable(function) and not isinstance(function, type):
                before[name] = function
                setattr(ferry, name, self._watched(name, function))
        try:
            yield self
        finally:
            for name, function in before.items():
                setattr(ferry, name, function)

    def _watched(self, name: str, function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if getattr(self._thread, "inside", False):
                return function(*args, **kwargs)
            self._thread.inside = True
            try:
                return function(*args, **kwargs)
            except ferry.ConversionError as error:
                for each in getattr(error, "exceptions", (error,)):
                    self.look_at(Called(name, function, args, kwargs, each.hint, error_text(each)))
                raise
            finally:
                self._thread.inside = False

        call.__wrapped_by_harness__ = function
        # As pickle finds it.
        call.__module__, call.__qualname__ = ferry.__name__, name
        return call

    def look_at(self, call: Called) -> None:
        """Paste the hint of an error, unless one like it was pasted before."""
        hint = _PATH.sub("/…", call.hint or "")
        x = call.args[0] if call.args else None
        key = call.name, hint, type(x), tuple(sorted(call.kwargs))
        if key in self._seen or threading.current_thread() is not threading.main_thread():
            return
        self._seen.add(key)
        if not hint:
            return
        self.tried += 1
        try:
            paste(call)
        except Failed as error:
            self._found(call, hint, str(error))

    def _found(self, call: Called, hint: str, why: str) -> None:
        place = next((each for each in self.places if re.fullmatch(each.hint, hint, re.DOTALL)), None)
        if place is not None:
            self.needed.add(place.hint)
            if not is_single_host_tensor(call):
                return
            why = f"a single host tensor, which the list may not have: {why}"
        shown = f"{call.name}({type(call.args[0]).__qualname__ if call.args else ''}, {sorted(call.kwargs)})"
        self.findings.append(Finding(shown, hint, call.message, why))


def is_single_host_tensor(call: Called) -> bool:
    """Whether a call is of a function for one tensor, with a tensor in host memory."""
    if not (call.name in _ONE or call.name.startswith("to_")) or not call.args or "device" in call.kwargs:
        return False
    try:
        found = ferry.describe(call.args[0])
    except Exception:  # noqa: BLE001 - it is no tensor
        return False
    return found.abstract is None and str(found.device) == "cpu"


def write(watch: Watch, folder: str) -> None:
    """Write what one process found, for the process that asked for it."""
    told = {"findings": watch.findings, "needed": sorted(watch.needed), "tried": watch.tried}
    with open(os.path.join(folder, f"{os.getpid()}.json"), "w", encoding="utf-8") as file:  # noqa: PTH118, PTH123
        json.dump(told, file)
