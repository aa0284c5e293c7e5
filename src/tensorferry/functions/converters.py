"""Conversions as functions of one tensor, which are made once and called many times."""

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
    """A function that converts one tensor."""
    return lambda x: convert(x, conversion)


def sharing_first(sharing: Conversion, copying: Conversion) -> Converter:
    """A function that converts one tensor by `sharing` if that is possible, and otherwise by `copying`."""

    def share(x: Any) -> Any:
        try:
            return convert(x, sharing)
        except CopyRequiredError:
            return convert(x, copying)

    return share


@lru_cache(maxsize=64)
def converter_to(name: str, *, lent: bool = False) -> Converter:
    """A function that converts one tensor to a framework, without keywords, by the fast path of its type if possible.

    Args:
        name: The name of the framework.
        lent: Whether the tensor is an array whose memory is only lent for the call, so that it must
            be copied.
    """
    conversion, paths, not_accepted = (
        conversion_as(name),
        fast_paths.paths_to(name),
        fast_paths.NOT_ACCEPTED,
    )

    def convert_here(x: Any) -> Any:
        if lent:
            x = x.copy()
        try:
            found = paths[type(x)](x)
        except not_accepted:
            found = None
        return convert(x, conversion) if found is None else found

    return convert_here


registry.on_change.append(converter_to.cache_clear)
