"""Measure what conversions do on this machine.

The sources are made by the frameworks, never by tensorferry: see `tensorferry.testing.witness`.
"""

from __future__ import annotations

import array
import re
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import tensorferry as ferry

from ..backends.registry import backends
from ..testing import witness_for, witnesses
from ..testing.bits import decode
from .observe import Observation, observe, witness_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

__all__ = ["Outcome", "Pair", "RoundTrips", "as_planned", "dtypes", "layouts", "pairs"]

SHAPE = (24, 16)
ALIGNMENT = 64


class Outcome(NamedTuple):
    """The result of a conversion.

    Args:
        seen: The observation of its memory; ``None`` if it was refused.
        planned: Whether memory is shared according to its plan; ``None`` if it was refused.
        reason: The reason in the plan, or the message of the error.
        equal: Whether all values are equal.
        crash: An error that is not one of tensorferry's, which must not happen.
    """

    seen: Observation | None
    planned: bool | None
    reason: str
    equal: bool = True
    crash: str | None = None

    @property
    def held(self) -> bool:
        """Whether the observation equals the plan, and all values are equal."""
        if self.seen is None:
            return self.crash is None
        return self.seen.agrees and self.seen.shared is self.planned and self.equal


class Pair(NamedTuple):
    """A source and a target: what happens by default, and with ``copy=False``."""

    source: str
    target: str
    default: Outcome
    forced: Outcome

    @property
    def word(self) -> str:
        """What happens by default, in a word."""
        seen = self.default.seen
        if seen is None:
            return "cannot"
        if not seen.shared:
            return "copies"
        return "shares (read-only)" if seen.writable is False else "shares"

    @property
    def can_share(self) -> bool:
        """Whether ``copy=False`` shares."""
        return self.forced.seen is not None and self.forced.seen.shared

    def to_dict(self) -> dict[str, Any]:
        """The pair as plain data."""
        return {
            "source": self.source,
            "target": self.target,
            "default": {"word": self.word, **_plain(self.default)},
            "copy=False": {"word": "shares" if self.can_share else "cannot", **_plain(self.forced)},
        }


class RoundTrips(NamedTuple):
    """The dtypes that a framework keeps bit for bit, and why it cannot keep others."""

    target: str
    exact: tuple[str, ...]
    refused: dict[str, str]
    wrong: tuple[str, ...]


def _plain(outcome: Outcome) -> dict[str, Any]:
    seen = outcome.seen
    return {
        "shared": None if seen is None else seen.shared,
        "by_address": None if seen is None else seen.by_address,
        "by_mutation": None if seen is None else seen.by_mutation,
        "writable": None if seen is None else seen.writable,
        "planned": outcome.planned,
        "reason": outcome.reason,
        "held": outcome.held,
    }


def as_planned(pair: Pair) -> bool:
    """Whether both conversions did what their plans said."""
    return pair.default.held and pair.forced.held


def pairs(frameworks: frozenset[str]) -> list[Pair]:
    """All pairs of sources and targets among the frameworks that work here."""
    return [
        Pair(name, target, _convert(make, target, None), _convert(make, target, False))
        for name, make in _sources(frameworks)
        for target in _targets(frameworks)
    ]


def layouts(frameworks: frozenset[str]) -> list[tuple[str, dict[str, Outcome]]]:
    """The results of ``copy=False`` for ndarrays of many layouts, for each target with memory."""
    targets = [target for target in _targets(frameworks) if target not in {"python", "numpy"}]
    return [
        (name, {target: _convert(make, target, False) for target in targets})
        for name, make in _layouts()
    ]


def dtypes(frameworks: frozenset[str]) -> list[RoundTrips]:
    """The results of conversions of all dtypes to each target and back."""
    names = backends()["numpy"].capabilities.dtypes.held
    rows = []
    for target in _targets(frameworks):
        exact: list[str] = []
        wrong: list[str] = []
        refused: dict[str, str] = {}
        for name in sorted(names, key=_by_kind):
            a = _bits(name)
            try:
                back = ferry.to_numpy(
                    ferry.convert(a, target), dtype=name if target == "python" else None
                )
            except ferry.ConversionError as error:
                refused[name] = error.message
            except Exception:  # noqa: BLE001 - the doctor goes on, and tells
                wrong.append(name)
            else:
                same = back.dtype == a.dtype and back.tobytes() == a.tobytes()
                (exact if same else wrong).append(name)
        rows.append(RoundTrips(target, tuple(exact), refused, tuple(wrong)))
    return rows


def _by_kind(name: str) -> tuple[str, int, str]:
    """Order dtypes as a person lists them: by kind, then by width."""
    letters, width = re.match(r"([a-z]+)(\d*)", name).groups()  # type: ignore[union-attr]
    return letters, int(width or 0), name


def _bits(name: str) -> NDArray[Any]:
    """A few values that every dtype has."""
    ones = np.array([0, 1, 1, 0, 1, 0, 0, 1], np.uint8)
    return ferry.to_numpy(ones, dtype=name, casting="unsafe", copy=True)


def _targets(frameworks: frozenset[str]) -> list[str]:
    return [
        name for name, b in backends().items() if name in frameworks and b.capabilities.dtypes.held
    ]


def _convert(make: Callable[[], Any], target: str, copy: bool | None) -> Outcome:
    source = make()
    try:
        plan = ferry.explain(source, target, copy=copy)
        result = ferry.convert(source, target, copy=copy)
    except ferry.ConversionError as error:
        return Outcome(None, None, error.message)
    except Exception as error:  # noqa: BLE001 - the doctor goes on, and tells
        crash = f"{type(error).__name__}: {error}"
        return Outcome(None, None, crash, crash=crash)
    expected, arrived = _values(source), _values(result)
    return Outcome(observe(source, result), plan.shares_memory, plan.reason, expected == arrived)


def _values(x: Any) -> list[Any]:
    """The values as Python numbers in a flat list, read by the framework itself."""
    if isinstance(x, (list, array.array)):
        return np.asarray(x).reshape(-1).tolist()  # type: ignore[no-any-return]
    witness: Any = witness_of(x)
    if witness is None:
        return ferry.to_numpy(x).reshape(-1).tolist()  # type: ignore[no-any-return]
    return decode(witness.dtype(x), witness.content(x))


def _aligned(offset: int = 0, dtype: str = "float32", *, swapped: bool = False) -> NDArray[Any]:
    """Values in memory whose address is `offset` past a multiple of 64."""
    kind = np.dtype(dtype).newbyteorder() if swapped else np.dtype(dtype)
    count = SHAPE[0] * SHAPE[1]
    raw = np.empty(count * kind.itemsize + 2 * ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT + offset
    a = raw[start : start + count * kind.itemsize].view(kind)
    a[:] = np.arange(count)
    return a.reshape(SHAPE)


_TRIES = 64


def _buffer() -> array.array[float]:
    """A typed buffer as the allocator usually gives it: not 64-byte aligned."""
    held = []
    for _ in range(_TRIES):
        held.append(array.array("f", _aligned().tobytes()))
        if held[-1].buffer_info()[0] % ALIGNMENT:
            break
    # Some allocators always give aligned memory. Then this is measured.
    return held[-1]


def _sources(frameworks: frozenset[str]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the names of sources, and functions that make them."""
    yield "list", lambda: _aligned().tolist()
    yield "array.array", _buffer
    for name, backend in backends().items():
        if name in frameworks and name in witnesses() and backend.capabilities.memory.exists:
            witness = witness_for(name)
            build = partial(witness.build, _aligned().tobytes(), "float32", SHAPE)
            yield name, build
            for word, vary in witness.variants().items():
                yield f"{name}, {word}", partial(_varied, vary, build)


def _varied(vary: Callable[[Any], Any], build: Callable[[], Any]) -> Any:
    return vary(build())


def _layouts() -> Iterator[tuple[str, Callable[[], NDArray[Any]]]]:
    yield "compact, 64-byte aligned", _aligned
    yield "16 bytes past that", lambda: _aligned(16)
    yield "transposed", lambda: _aligned().T
    yield "every second column", lambda: _aligned()[:, ::2]
    yield "reversed", lambda: _aligned()[::-1]
    yield "broadcast", lambda: np.broadcast_to(_aligned()[0], SHAPE)
    yield "other byte order", lambda: _aligned(swapped=True)
    yield "unaligned to the element", lambda: _aligned(2)
    yield "bfloat16", lambda: _aligned(dtype="bfloat16")
    yield "float8_e4m3fn", lambda: _aligned(dtype="float8_e4m3fn")
