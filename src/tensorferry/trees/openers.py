"""Find the functions that may open objects of a type as containers, in the order in which they are tried."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends import registry
from ..core.info import TensorInfo
from ..host.masked import has_masked
from . import libraries
from .containers import is_tuple_with_a_constructor, open_structured, opener_of
from .unknown import PLAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..backends.nodes import Node

    Opener = Callable[[Any], Node | None]

__all__ = ["openers_of"]

_DTYPE = attrgetter("dtype")


def openers_of(kind: type, leaves: Sequence[Any]) -> tuple[Opener, ...]:
    """The functions that may open objects of a type, in order; none if they are certainly leaves."""
    if kind in PLAIN or issubclass(kind, TensorInfo):
        return ()
    if issubclass(kind, (np.ndarray, np.void)):
        arrays = (
            leaves
            if set(map(type, leaves)) == {kind}
            else [leaf for leaf in leaves if type(leaf) is kind]
        )
        names = any(dtype.names for dtype in set(map(_DTYPE, arrays)))
        return (_open_fields,) if names else ()
    if registry.is_known_tensor(kind):
        return ()
    known = _of_frameworks(kind) or libraries.opener_of(kind)
    if known is not None:
        return (known,)
    # Registrations with frameworks lose the same attributes as those with optree.
    registered = [] if _is_lossy(kind) else _registered(kind)
    own = opener_of(kind)
    if (registered or own is not None) and registry.is_tensor(kind):
        return ()
    if (
        own is not None
        and issubclass(kind, Mapping)
        and registry.backend_that_knows(kind) is not None
    ):
        return ()
    return (*registered, *(() if own is None else (own,)))


def _is_lossy(kind: type) -> bool:
    return kind is OrderedDict or is_tuple_with_a_constructor(kind)


def _open_fields(x: Any) -> Node | None:
    # A masked array stays a leaf, and is refused with the message for masked arrays.
    return None if x.dtype.names is None or has_masked(x) else open_structured(x)


# -- what frameworks know --------------------------------------------------------------------------

_found: dict[tuple[type, int], Opener | None] = {}
_MOST = 4096
"""The most types that are remembered, in case a program makes new ones all the time."""


def _of_frameworks(kind: type) -> Opener | None:
    """The function that opens a container of an imported framework; ``None`` if the type is not one."""
    key = kind, registry.revision
    try:
        return _found[key]
    except KeyError:
        pass
    found = None
    for backend in registry.imported():
        with registry.outside.guard(backend.name):
            found = found or backend.opener_of(kind)
    if len(_found) >= _MOST:
        _found.clear()
    _found[key] = found
    return found


def _registered(kind: type) -> list[Opener]:
    """The functions that open a type that is registered as a container with an imported framework."""
    found: list[Opener] = []
    for backend in registry.imported():
        with registry.outside.guard(backend.name):
            if backend.has_node(kind):
                found.append(registry.outside.guarded(backend.name, backend.open_node))
    return found
