"""The names of frameworks, and the registry, which puts itself here, as it is on a higher floor."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from ..errors import UnknownFrameworkError
from .named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .declaration import Declaration

__all__ = ["EXCHANGE", "EXCHANGE_NUMBERS", "NAMES", "Registry", "registry"]

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


class Registry(NamedTuple):
    """Functions of the registry.

    Args:
        canonical: The canonical name of what a user has given; see `backends.registry.canonical`.
        named: The declaration of a framework by its canonical name; raises `UnknownFrameworkError`.
        known: All frameworks that are known now, by name.
        found: All frameworks, by name, after those of outside packages have been looked up.
    """

    canonical: Callable[[object], str]
    named: Callable[[str], Declaration]
    known: Callable[[], Mapping[str, Declaration]]
    found: Callable[[], Mapping[str, Declaration]]


def _unknown(name: object) -> NoReturn:
    raise UnknownFrameworkError(
        f"{name!r} is not the name of a framework.", "import tensorferry, which knows some"
    )


registry = Registry(_unknown, _unknown, dict, dict)
"""Without frameworks, until `backends.registry` is imported."""
