"""Conversions as functions of one tensor, looked up once and called many times."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..backends import fast_paths, registry
from ..errors import CopyRequiredError
from ..execution.recipes import conversion_as
from ..execution.run import convert

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..execution.recipes import Conversion

    Converter = Callable[[Any], Any]

__all__ = ["converter", "converter_to", "sharing_first"]


def converter(conversion: Conversion) -> Converter:
    """One tensor by a conversion."""
    return lambda x: convert(x, conversion)


def sharing_first(sharing: Conversion, copying: Conversion) -> Converter:
    """One tensor over the same memory if that can be, else by another conversion."""

    def share(x: Any) -> Any:
        try:
            return convert(x, sharing)
        except CopyRequiredError:
            return convert(x, copying)

    return share


@lru_cache(maxsize=64)
def converter_to(name: str, *, lent: bool = False) -> Converter:
    """One tensor to a framework of which nothing is asked, by the fast path of its type if that takes it.

    Args:
        name: The framework.
        lent: Whether it is an array that is lent to us, to be copied first.
    """
    conversion, paths, refusals = conversion_as(name), fast_paths.paths_to(name), fast_paths.REFUSALS

    def convert_here(x: Any) -> Any:
        if lent:
            x = x.copy()
        try:
            found = paths[type(x)](x)
        except refusals:
            found = None
        return convert(x, conversion) if found is None else found

    return convert_here


registry.on_change.append(converter_to.cache_clear)
