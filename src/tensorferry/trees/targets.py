"""`Targets`: where the leaves of a tree go, and what is asked of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..backends import registry
from ..core.leaf_dtypes import dtype_of_leaf
from ..core.names import EXCHANGE
from ..core.request import LEAVE, OVERLAPS, Request, make_request
from ..errors import UnsupportedTypeError
from ..execution.recipes import conversion_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..core.leaf_dtypes import DtypeRule
    from ..execution.recipes import Conversion
    from .alike import Alike

__all__ = ["Targets", "copy_in_its_framework"]


class Targets:
    """Where the leaves go: one target for all, or each leaf's own by its path, or a copy in its own framework.

    Args:
        targets: The backend's name and device, for all; or by path, with the dtype that a leaf takes if `rule` says
            nothing of it; or ``None``: each is copied, outside its graph, in its own framework.
        rule: Which dtype each leaf takes.
        overlaps: Whether transfers go beside the host's work, where a target knows of that.
        keywords: ``copy``, ``casting``, ``grad`` and the target's options, as `make_request` takes them.
    """

    def __init__(
        self,
        targets: tuple[str, object] | Mapping[str, tuple[str, object, object]] | None,
        rule: DtypeRule,
        *,
        overlaps: bool = False,
        **keywords: Any,
    ) -> None:
        self._keywords, self._overlaps = keywords, overlaps
        self._common: Conversion | None = None
        self._by_path: Mapping[str, tuple[str, object, object]] = {}
        self.rule = rule
        for_all = rule.for_all
        self.decides_by_leaf = for_all is None
        """Whether the request depends on what a leaf is: see `asked_of`."""
        self._by_dtype: dict[tuple[Conversion, str], Conversion] = {}
        self.copies = targets is None
        self.last: Alike | None = None
        """What is remembered of the last tree that went there, if a tree like it can be converted by that alone."""
        if isinstance(targets, tuple):
            name, device = targets
            self._common = self._make(name, None if for_all is None else for_all[0], device)
        else:
            self._by_path = targets or {}
            self.decides_by_leaf = bool(any(rule))

    @property
    def common(self) -> Conversion | None:
        """What is asked for, if it is the same for all leaves; its dtype aside where `decides_by_leaf`."""
        return self._common

    def asked_of(self, conversion: Conversion, dtype: str, name: Callable[[], str]) -> Conversion:
        """What is asked for a leaf of a dtype, if that depends on what it is.

        Args:
            conversion: What `of` gives.
            dtype: Canonical name of the leaf's dtype.
            name: Gives the leaf's dotted name.
        """
        rule, request = self.rule, conversion.request
        if rule.names:
            said = dtype_of_leaf(rule, dtype, name(), request.dtype)
            return conversion_of(conversion.target, request._replace(dtype=said))
        # Alike leaves are asked the same.
        found = self._by_dtype.get((conversion, dtype))
        if found is None:
            said = dtype_of_leaf(rule, dtype, "", request.dtype)
            found = conversion_of(conversion.target, request._replace(dtype=said))
            self._by_dtype[conversion, dtype] = found
        return found

    def of(self, path: Callable[[], str], leaf: Any = None) -> Conversion:
        """What is asked for a leaf; its dtype aside where `decides_by_leaf`.

        Raises:
            UnsupportedTypeError: ``like`` has no such leaf.
        """
        if self._common is not None:
            return self._common
        if self.copies:
            return copy_in_its_framework(leaf)
        target = self._by_path.get(path())
        if target is None:
            raise UnsupportedTypeError("like= has no tensor there.", "like= one tensor, for all leaves")
        name, dtype, device = target
        return self._make(name, dtype, device)

    def _make(self, name: str, dtype: object, device: object) -> Conversion:
        backend = registry.backend_named(name)
        asked = self._keywords
        options = dict(asked["options"])
        if self._overlaps and OVERLAPS in backend.capabilities.options.names:
            options[OVERLAPS] = True
        said = tuple(options.items())
        request = make_request(backend, asked["copy"], dtype, asked["casting"], device, asked["grad"], said)
        return conversion_of(backend, request)


def copy_in_its_framework(leaf: Any) -> Conversion:
    """What gives a tensor in memory of its own, outside its graph, in its own framework if that can be a target."""
    backend = registry.backend_of(leaf)
    backend = backend if backend.is_target else registry.backend_named(EXCHANGE)
    return conversion_of(backend, Request(backend.name, copy=True, grad=LEAVE))
