"""`Goal`: what was asked for, once and for many tensors or trees."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .. import registry, rules, run
from ..api import convert
from ..info import TensorInfo
from ..inspection import explain
from ..request import aim, make_request
from ..trees.api import convert_tree, explain_tree
from ..trees.leaves import LeafRule
from ..trees.plans import LeafPlan
from ..trees.structure import take_apart

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..backend import Backend
    from ..typing import Unknown

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
        dtype: As for `convert`.
        device: As for `convert`.
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
    keywords: dict[str, Any] = field(default_factory=dict)
    options: dict[str, bool] = field(default_factory=dict)
    leaves: str | Callable[[Any], bool] = "tensors"
    unknown: Unknown = "error"
    coalesce: bool = True

    @classmethod
    def of(cls, to: str | None, like: Any, dtype: object, device: object, **rest: Any) -> Goal:
        """The goal of a call's keywords; a single tensor in `like` is looked at now and not kept.

        Raises:
            TypeError: A keyword's value is not one of those that it takes.
            ConversionError: There is no such target, dtype or device.
        """
        LeafRule(rest["leaves"], unknown=rest["unknown"])
        if to is None and like is not None and not isinstance(like, TensorInfo) and not _is_alone(like, "tensors"):
            return cls(None, like, dtype, device, **rest)
        name, dtype, device = aim(to, like, dtype, device)
        goal = cls(name, None, dtype, device, **rest)
        goal._check(registry.ready(name))
        return goal

    def _check(self, target: Backend) -> None:
        keywords = self.keywords
        request = make_request(
            target,
            keywords["copy"],
            self.dtype,
            keywords["casting"],
            self.device,
            keywords["grad"],
            None,
            tuple(self.options.items()),
        )
        probe = TensorInfo(target.name, (), _PROBE)
        rules.target_device(probe, run.here(request, probe, target), target, _PROBE)

    def without_waiting(self) -> Goal:
        """The same, where transfers to a device need not be complete, if the target knows of that."""
        if self.to is None or _OVERLAPS not in registry.backend_named(self.to).capabilities.options:
            return self
        return replace(self, options={**self.options, _OVERLAPS: True})

    def one_by_one(self) -> Goal:
        """The same with a transfer for each leaf."""
        return replace(self, coalesce=False)

    def among(self, chosen: set[int]) -> Goal:
        """The same for a tree whose leaves are the objects with these ids."""
        return replace(self, leaves=lambda x: id(x) in chosen)

    def _asked(self) -> dict[str, Any]:
        return {"like": self.like, "dtype": self.dtype, "device": self.device, **self.keywords, **self.options}

    def explain(self, x: Any) -> tuple[LeafPlan, ...]:
        """The plan of each leaf that would be converted; a tensor alone is its own leaf.

        Raises:
            ConversionError: There is no such plan.
        """
        asked = self._asked()
        if self.to is not None and _is_alone(x, self.leaves):
            plan = explain(x, self.to, **asked)
            return (LeafPlan("$", plan, bytes_copied=plan.bytes_copied),)
        return explain_tree(
            x, self.to, leaves=self.leaves, unknown=self.unknown, coalesce=self.coalesce, **asked
        ).leaves

    def convert(self, x: Any) -> Any:
        """What `convert` gives for a tensor, and `convert_tree` for anything else.

        Raises:
            ConversionError: As they do.
        """
        asked = self._asked()
        if self.to is not None and _is_alone(x, self.leaves):
            return convert(x, self.to, **asked)
        return convert_tree(x, self.to, leaves=self.leaves, unknown=self.unknown, coalesce=self.coalesce, **asked)


def _is_alone(x: Any, leaves: str | Callable[[Any], bool]) -> bool:
    """Whether an object is one tensor and no container."""
    rule = LeafRule(leaves)
    parts, _ = take_apart(x, rule.chosen)
    return len(parts) == 1 and parts[0] is x and rule.takes(x)
