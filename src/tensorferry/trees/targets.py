"""`Targets`: the target and the request of each leaf of a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import hints
from ..backends import registry
from ..core.leaf_dtypes import dtype_of_leaf, place_of_name
from ..core.names import EXCHANGE
from ..core.request import LEAVE, OVERLAPS, Request, make_request
from ..errors import UnsupportedTypeError
from ..execution.recipes import conversion_of
from ..hints import Hint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..core.info import TensorInfo
    from ..core.labels import Labels
    from ..core.leaf_dtypes import DtypeRule
    from ..execution.recipes import Conversion
    from .leaves import LeafRule

    LikeLeaf = tuple[str, str | None, object, Labels | None]

__all__ = ["Targets", "copy_in_its_framework"]


_UNMENTIONED = ""
"""What `dtype_of_leaf` gives for a leaf that the rule does not mention. It is no dtype."""


class Targets:
    """The targets of leaves: one for all, one for each path, or a copy in each leaf's framework.

    Args:
        targets: The name of the backend and the device, for all leaves; or, by path, the name of
            the backend, the dtype of the tensor in ``like=``, the device, and the labels of that
            tensor; or ``None`` to copy each leaf in its own framework, outside its graph.
        rule: The rule for the dtype of each leaf. What it does not mention takes the dtype of the
            tensor in ``like=``, if it is of its kind.
        like: The dtype of the tensor in ``like=``, if all there is to convert is one tensor.
        labels: The labels of the tensor in ``like=``, if it is one for all leaves.
        overlaps: Whether transfers run beside the host's work, if the target can do that.
        keywords: ``copy``, ``casting``, ``grad`` and the target's options, as `make_request` takes
            them.
    """

    def __init__(
        self,
        targets: tuple[str, object] | Mapping[str, LikeLeaf] | None,
        rule: DtypeRule,
        *,
        like: str | None = None,
        overlaps: bool = False,
        labels: Labels | None = None,
        **keywords: Any,
    ) -> None:
        self._keywords, self._overlaps = keywords, overlaps
        self.common: Conversion | None = None
        """The conversion, if the same for all leaves; without the dtype if `decides_by_leaf`."""
        self._by_path: Mapping[str, LikeLeaf] = {}
        self.rule = rule
        for_all = rule.for_all
        self.decides_by_leaf = for_all is None
        """Whether the request depends on the description of a leaf: see `asked_of`."""
        self._by_dtype: dict[tuple[Conversion, str], Conversion] = {}
        self.copies = targets is None
        self.programs: dict[tuple[LeafRule, bool], Any] = {}
        """What has been made for them: see `api.programs_of`."""
        if isinstance(targets, tuple):
            name, device = targets
            self.common = self._make(
                name, None if for_all is None else for_all[0], device, like, labels
            )
        else:
            self._by_path = targets or {}
            self.decides_by_leaf = bool(any(rule))

    @property
    def are_numbers(self) -> bool:
        """Whether all leaves become Python numbers, or lists of them."""
        return self.common is not None and not self.common.target.capabilities.memory.exists

    def asked_of(
        self, conversion: Conversion, info: TensorInfo, name: Callable[[], str]
    ) -> Conversion:
        """The conversion for a leaf with this description, if `decides_by_leaf`.

        Args:
            conversion: The conversion from `of`.
            info: The description of the leaf.
            name: Gives the leaf's dotted name.
        """
        rule, request, dtype = self.rule, conversion.request, info.dtype
        if info.abstract is not None and _is_opaque(info) and not self._has_name(name()):
            # A dtype of a kind is not meant for values that are no numbers.
            return conversion_of(conversion.target, request._replace(dtype=None, like=None))
        if rule.names:
            return self._asked_of(conversion, dtype, name())
        # Leaves of the same dtype mostly have the same request.
        conversion_asked = self._by_dtype.get((conversion, dtype))
        if conversion_asked is None:
            conversion_asked = self._by_dtype[conversion, dtype] = self._asked_of(
                conversion, dtype, ""
            )
        return conversion_asked

    def _has_name(self, name: str) -> bool:
        names = tuple([name_asked for name_asked, _ in self.rule.names])
        return bool(names) and place_of_name(names, name) is not None

    def _asked_of(self, conversion: Conversion, dtype: str, name: str) -> Conversion:
        choice = dtype_of_leaf(self.rule, dtype, name, _UNMENTIONED)
        if choice == _UNMENTIONED:
            return conversion
        return conversion_of(
            conversion.target, conversion.request._replace(dtype=choice, like=None)
        )

    def of(self, path: Callable[[], str], leaf: Any = None) -> Conversion:
        """The conversion for a leaf; if `decides_by_leaf`, without the dtype.

        Raises:
            UnsupportedTypeError: ``like`` has no such leaf.
        """
        if self.common is not None:
            return self.common
        if self.copies:
            return copy_in_its_framework(leaf)
        target = self._by_path.get(path())
        if target is None:
            name = next(
                (conversion_there[0] for conversion_there in self._by_path.values()), "numpy"
            )
            raise UnsupportedTypeError(
                "like= has no tensor there.",
                Hint(hints.keyword("to", name), ", ", hints.without("like")),
            )
        name, like, device, labels = target
        return self._make(name, None, device, like, labels)

    def _make(
        self, name: str, dtype: object, device: object, like: str | None, labels: Labels | None
    ) -> Conversion:
        backend = registry.backend_named(name)
        asked = self._keywords
        options = dict(asked["options"])
        if self._overlaps and OVERLAPS in backend.capabilities.options.names:
            options[OVERLAPS] = True
        pairs = tuple(options.items())
        request = make_request(
            backend, asked["copy"], dtype, asked["casting"], device, asked["grad"], pairs, like
        )
        made = conversion_of(backend, request)
        return made if labels is None else made.labelled(like=labels)


def _is_opaque(info: TensorInfo) -> bool:
    return info.abstract in registry.backend_named(info.framework).capabilities.objects.opaque


def copy_in_its_framework(leaf: Any) -> Conversion:
    """What copies a tensor in its framework, outside its graph; in NumPy if that is no target."""
    backend = registry.backend_of(leaf)
    if not backend.is_target:
        backend = registry.backend_named(EXCHANGE)
    return conversion_of(backend, Request(backend.name, copy=True, grad=LEAVE))
