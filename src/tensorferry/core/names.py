"""The names of frameworks, and where they are looked up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import UnknownFrameworkError
from .generics import TypeVar
from .named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .declaration import Declaration

__all__ = [
    "EXCHANGE",
    "EXCHANGE_NUMBERS",
    "LOOKUPS",
    "NAMES",
    "Lookup",
    "canonical",
    "found",
    "known",
    "named",
]

Answer = TypeVar("Answer")

EXCHANGE = "numpy"
"""The framework whose arrays all conversions through host memory use."""

EXCHANGE_NUMBERS: Mapping[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "int": ("int64", "uint64"),
    "float": ("float64",),
    "complex": ("complex128",),
}
"""The dtypes that Python numbers have when they are read into such an array."""

NAMES: dict[object, str] = {}
"""Canonical names by all that has been used for them: names, aliases, modules, tensor classes."""


class Lookup(NamedTuple):
    """Functions that find frameworks, of whom knows some: the registry of backends, for one.

    Args:
        canonical: The canonical name of what a user has given; see `backends.registry.canonical`.
        named: The declaration of a framework by its canonical name.
        known: All frameworks that are known now, by name.
        found: All frameworks, by name, after those of outside packages have been looked up.

    `canonical` and `named` raise `UnknownFrameworkError` for what they do not know.
    """

    canonical: Callable[[object], str]
    named: Callable[[str], Declaration]
    known: Callable[[], Mapping[str, Declaration]]
    found: Callable[[], Mapping[str, Declaration]]


LOOKUPS: list[Lookup] = []
"""Where frameworks are looked up: one after the other, as they were added (`codecs.register`).

A description and a dtype are written by people, with the name of any framework that is installed.
So no caller could hand over the frameworks. Who knows some adds its functions here.
"""


def canonical(framework: object) -> str:
    """The canonical name of a framework, given as a name, a module or a tensor class.

    Raises:
        UnknownFrameworkError: No framework has the name.
        TypeError: It is an object that cannot name a framework.
    """
    return _first_answer([lookup.canonical for lookup in LOOKUPS], framework)


def named(name: str) -> Declaration:
    """The declaration of a framework by its canonical name.

    Raises:
        UnknownFrameworkError: There is none of this name.
    """
    return _first_answer([lookup.named for lookup in LOOKUPS], name)


def known() -> Mapping[str, Declaration]:
    """All frameworks that are known now, by name. No package is looked up."""
    return {
        name: declaration
        for lookup in reversed(LOOKUPS)
        for name, declaration in lookup.known().items()
    }


def found() -> Mapping[str, Declaration]:
    """All frameworks, by name, after those of outside packages have been looked up."""
    return {
        name: declaration
        for lookup in reversed(LOOKUPS)
        for name, declaration in lookup.found().items()
    }


def _first_answer(lookups: Sequence[Callable[[Any], Answer]], about: object) -> Answer:
    """The answer of the first lookup that has one; the error of the first, if none has."""
    refused: UnknownFrameworkError | None = None
    for lookup in lookups:
        try:
            return lookup(about)
        except UnknownFrameworkError as error:
            refused = refused or error
    if refused is not None:
        raise refused
    raise UnknownFrameworkError(
        f"{about!r} is not the name of a framework.", "import tensorferry, which knows some"
    )
