"""`Goal`: what was asked for, once and for many tensors or trees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..api import convert
from ..backends import registry
from ..core.devices import device_name
from ..core.info import TensorInfo
from ..core.leaf_dtypes import DtypeRule, rule_of
from ..core.request import make_request
from ..execution.recipes import conversion_of
from ..execution.target import aim
from ..inspection import explain
from ..planning import rules
from ..trees.api import convert_tree, explain_tree
from ..trees.leaves import LeafRule
from ..trees.plans import LeafPlan
from ..trees.walk import take_apart

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..backends.base import Backend
    from ..typing import Leaves, Unknown

__all__ = ["Goal"]

_PROBE = "uint8"
"""A dtype that every device has, to ask for the device alone."""
_OVERLAPS = "non_blocking"


@dataclass(frozen=True)
class Goal:
    """Where tensors go, and as what.

    Args:
        to: The target's name; ``None`` if `like` is a tree.
        like: A tree with a target for each leaf, or ``None``.
        dtype: As for `convert`, for a tensor alone.
        device: As for `convert`.
        rule: Which dtype each leaf of a tree takes.
        keywords: ``copy``, ``casting`` and ``grad``.
        options: The target's options.
        leaves: As for `convert_tree`.
        unknown: As for `convert_tree`.
        coalesce: As for `convert_tree`.
    """

    to: str | None
    like: Any
    dtype: object
    device: object
    rule: DtypeRule
    keywords: dict[str, Any] = field(default_factory=dict)
    options: Mapping[str, object] = field(default_factory=dict)
    leaves: Leaves = "tensors"
    unknown: Unknown = "error"
    coalesce: bool = True

    @classmethod
    def of(cls, to: object, like: Any, dtype: object, device: object, **rest: Any) -> Goal:
        """The goal of a call's keywords; a single tensor in `like` is looked at now and not kept.

        Raises:
            TypeError: A keyword's value is not one of those that it takes.
            ConversionError: There is no such target, dtype or device.
        """
        LeafRule(rest["leaves"], unknown=rest["unknown"])
        if to is None and like is not None and not isinstance(like, TensorInfo) and not _is_alone(like, "tensors"):
            return cls(None, like, dtype, device, rule_of(dtype), **rest)
        name, theirs, device = aim(to, like, None, device)
        goal = cls(name, None, theirs if dtype is None else dtype, device, rule_of(dtype, theirs), **rest)
        goal._check(registry.ready(name))
        return goal

    def _check(self, target: Backend) -> None:
        keywords = self.keywords
        request = make_request(
            target,
            keywords["copy"],
            None,
            keywords["casting"],
            self.device,
            keywords["grad"],
            tuple(self.options.items()),
        )
        probe = TensorInfo(target.name, (), _PROBE)
        rules.target_device(probe, conversion_of(target, request).here(probe, request), target, _PROBE)

    def __str__(self) -> str:
        place = "" if self.device is None else f" on {device_name(self.device)}"
        return f"{self.to or 'what like= names'}{place}"

    def without_waiting(self) -> Goal:
        """The same, where transfers to a device need not be complete, if the target knows of that."""
        if self.to is None or _OVERLAPS not in registry.backend_named(self.to).capabilities.options.names:
            return self
        return replace(self, options={**self.options, _OVERLAPS: True})

    def one_by_one(self) -> Goal:
        """The same with a transfer for each leaf."""
        return replace(self, coalesce=False)

    def among(self, chosen: set[int]) -> Goal:
        """The same for a tree whose leaves are the objects with these ids."""
        return replace(self, leaves=lambda x: id(x) in chosen)

    def as_planned(self, leaves: Iterable[LeafPlan]) -> Goal:
        """The same for leaves that may have another dtype already than the one by which theirs was decided."""
        if self.rule.is_settled:
            return self
        return replace(self, rule=DtypeRule(paths=tuple((leaf.path, leaf.plan.result.dtype) for leaf in leaves)))

    def _is_alone(self, x: Any) -> bool:
        """Whether an object is one tensor, for which one dtype was named at most."""
        one = not isinstance(self.dtype, Mapping)
        return one and self.to is not None and _is_alone(x, self.leaves)

    def _asked(self, dtype: object) -> dict[str, Any]:
        return {"like": self.like, "dtype": dtype, "device": self.device, **self.keywords, **self.options}

    def explain(self, x: Any) -> tuple[LeafPlan, ...]:
        """The plan of each leaf that would be converted; a tensor alone is its own leaf.

        Raises:
            ConversionError: There is no such plan.
        """
        if self._is_alone(x):
            plan = explain(x, self.to, **self._asked(self.dtype))
            return (LeafPlan("$", plan, bytes_copied=plan.bytes_copied),)
        asked = self._asked(self.rule)
        return explain_tree(
            x, self.to, leaves=self.leaves, unknown=self.unknown, coalesce=self.coalesce, **asked
        ).leaves

    def convert(self, x: Any) -> Any:
        """What `convert` gives for a tensor, and `convert_tree` for anything else.

        Raises:
            ConversionError: As they do.
        """
        if self._is_alone(x):
            return convert(x, self.to, **self._asked(self.dtype))  # type: ignore[arg-type]
        asked = self._asked(self.rule)
        return convert_tree(x, self.to, leaves=self.leaves, unknown=self.unknown, coalesce=self.coalesce, **asked)


def _is_alone(x: Any, leaves: Leaves) -> bool:
    """Whether an object is one tensor and no container."""
    rule = LeafRule(leaves)
    parts, _ = take_apart(x, rule.chosen)
    return len(parts) == 1 and parts[0] is x and rule.takes(x)
