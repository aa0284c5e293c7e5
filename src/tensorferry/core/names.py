"""The names of frameworks, and what can be asked of all: the registry puts itself here, which nothing below imports."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, NoReturn

from ..errors import UnknownFrameworkError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .declaration import Declaration

__all__ = ["EXCHANGE", "EXCHANGE_NUMBERS", "NAMES", "Registry", "registry"]

EXCHANGE = "numpy"
"""The framework whose tensors are the common currency of host memory."""

EXCHANGE_NUMBERS: Mapping[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "int": ("int64", "uint64"),
    "float": ("float64",),
    "complex": ("complex128",),
}
"""The dtypes of Python numbers as they are read into an array of that currency."""

NAMES: dict[object, str] = {}
"""The canonical name by all that has been met for it: names, aliases, modules, tensor classes."""


class Registry(NamedTuple):
    """What can be asked of all frameworks.

    Args:
        canonical: The canonical name of what a caller has named; see `backends.registry.canonical`.
        named: What the framework of a canonical name declares; it raises `UnknownFrameworkError`.
        known: All that are known by now, by name.
        found: The same after those of outside packages were looked up.
    """

    canonical: Callable[[object], str]
    named: Callable[[str], Declaration]
    known: Callable[[], Mapping[str, Declaration]]
    found: Callable[[], Mapping[str, Declaration]]


def _unknown(name: object) -> NoReturn:
    raise UnknownFrameworkError(f"{name!r} is not the name of a framework.", "import tensorferry, which knows some")


registry = Registry(_unknown, _unknown, dict, dict)
"""Of no frameworks, until `backends.registry` is imported."""
