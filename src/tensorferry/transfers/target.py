"""`Target`: what was asked for, once and for many tensors or trees; `Pending`: one of those, planned once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..backends import registry
from ..core.devices import device_name
from ..core.info import TensorInfo
from ..core.leaf_dtypes import DtypeRule, rule_of
from ..core.request import OVERLAPS, make_request
from ..execution import run
from ..execution.recipes import conversion_as, conversion_of
from ..execution.target import aim
from ..planning import rules
from ..trees.api import targets_of, untraced
from ..trees.leaves import LeafRule, leaf_rule
from ..trees.tree_conversion import TreeConversion, convert
from ..trees.walk import take_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ..backends.base import Backend
    from ..execution.recipes import Conversion
    from ..execution.run import Prepared
    from ..planning.plan import Plan
    from ..trees.targets import Targets
    from ..typing import Leaves, Unknown

__all__ = ["Pending", "Target"]

_PROBE = "uint8"
"""A dtype that every device has, to ask for the device alone."""


@dataclass(frozen=True)
class Target:
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
    def of(cls, to: object, like: Any, dtype: object, device: object, **rest: Any) -> Target:
        """The target of a call's keywords; a single tensor in `like` is looked at now and not kept.

        Raises:
            TypeError: A keyword's value is not one of those that it takes.
            ConversionError: There is no such target, dtype or device.
        """
        LeafRule(rest["leaves"], unknown=rest["unknown"])
        if to is None and like is not None and not isinstance(like, TensorInfo) and not _is_alone(like, "tensors"):
            return cls(None, like, dtype, device, rule_of(dtype), **rest)
        name, theirs, device = aim(to, like, None, device)
        target = cls(name, None, theirs if dtype is None else dtype, device, rule_of(dtype, theirs), **rest)
        target._check(registry.ready(name))
        return target

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

    def without_waiting(self) -> Target:
        """The same, through page-locked memory and beside the host's work, if the target knows of that."""
        if self.to is None or OVERLAPS not in registry.backend_named(self.to).capabilities.options.names:
            return self
        return replace(self, options={**self.options, OVERLAPS: True})

    def _is_alone(self, x: Any) -> bool:
        """Whether an object is one tensor, for which one dtype was named at most."""
        one = not isinstance(self.dtype, Mapping)
        return one and self.to is not None and _is_alone(x, self.leaves)

    @cached_property
    def _of_one(self) -> Conversion:
        """What is asked for a tensor alone."""
        name: Any = self.to
        keywords = {"dtype": self.dtype, "device": self.device, **self.keywords, **self.options}
        try:
            return conversion_as(name, **keywords)
        except TypeError:
            # Without the cache: what cannot be hashed is refused in our words.
            return conversion_as.__wrapped__(name, **keywords)

    @cached_property
    def _of_trees(self) -> Targets:
        keywords = self.keywords
        said: Any = (keywords["copy"], keywords["casting"], keywords["grad"], self.options)
        return targets_of((self.to, self.like, self.rule, self.device, *said), self.leaves)

    def _tree(self, x: Any) -> TreeConversion:
        rule = leaf_rule(self.leaves, unknown=self.unknown)
        return TreeConversion(x, self._of_trees, rule, None, coalesce=self.coalesce)

    def prepare(self, x: Any) -> Pending:
        """The conversion of a tensor, or of a tree, planned and not run.

        Raises:
            ConversionError: There is no such plan.
        """
        return untraced(self._prepare, x)  # type: ignore[no-any-return]

    def _prepare(self, x: Any) -> Pending:
        if self._is_alone(x):
            return Pending(lambda: {0: run.prepare(x, self._of_one)}, _run_one)
        tree = self._tree(x)
        return Pending(tree.prepare, tree.run)

    def convert(self, x: Any) -> Any:
        """What `convert` gives for a tensor, and `convert_tree` for anything else.

        Raises:
            ConversionError: As they do.
        """
        return untraced(self._convert, x)

    def _convert(self, x: Any) -> Any:
        if self._is_alone(x):
            return run.convert(x, self._of_one)
        return convert(x, self._of_trees, leaf_rule(self.leaves, unknown=self.unknown), None, coalesce=self.coalesce)


class Pending:
    """A conversion that has been planned, and can be run once.

    Args:
        prepare: Gives the conversion of each leaf.
        run: Runs them.

    Raises:
        ConversionError: There is no such plan.
    """

    def __init__(self, prepare: Callable[[], dict[int, Prepared]], run: Callable[[dict[int, Prepared]], Any]) -> None:
        self._prepare, self._run = prepare, run
        self._prepared = prepare()
        self._environments = self._seen()
        self.plans: list[Plan] = [each.recipe.plan for each in self._prepared.values()]
        """Of each leaf, that of the first tensor of its signature: on the same devices, perhaps of another size."""

    def _seen(self) -> list[Hashable]:
        return [backend.environment() for backend in {each.target: None for each in self._prepared.values()}]

    def run(self) -> Any:
        """The result.

        Raises:
            ConversionError: What the values show.
        """
        return untraced(self._run_here)

    def _run_here(self) -> Any:
        # Each thread decides for itself whether PyTorch records gradients, which the plan depends on.
        return self._run(self._prepared if self._environments == self._seen() else self._prepare())


def _run_one(prepared: dict[int, Prepared]) -> Any:
    (each,) = prepared.values()
    return run.complete(each)


def _is_alone(x: Any, leaves: Leaves) -> bool:
    """Whether an object is one tensor and no container."""
    if type(x) in _CONTAINERS and not callable(leaves):
        return False
    rule = leaf_rule(leaves)
    parts, _ = take_apart(x, rule.chosen)
    return len(parts) == 1 and parts[0] is x and rule.takes(x)


_CONTAINERS = (dict, list, tuple)
