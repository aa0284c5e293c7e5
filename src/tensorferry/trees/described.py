"""`DescribedTree`: what becomes of each leaf of a tree, when all leaves are described one by one.

`explain_tree` shows it. A program asks for it where signatures are not enough, and for the errors
of all leaves where something has failed. It converts nothing: `Programs` runs what it arranges.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from .. import hints
from ..backends import registry
from ..core.info import TensorInfo
from ..errors import ConversionError, UnsupportedTypeError
from ..execution import run
from ..execution.groups import Arrangement, LeafGroup
from .failures import raise_all, refuse_unknown_name
from .grouped import alone, bus_groups, part_of
from .shared_memory import Bindings, bind, in_order_of, written_over
from .walk import take_apart

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from ..backends.base import Backend
    from ..execution.recipes import Conversion
    from ..execution.run import Prepared
    from ..planning.plan import Plan
    from .leaves import LeafRule
    from .plans import KeptLeaf, LeafPlan, TreePlan
    from .shared_memory import Cluster
    from .targets import Targets

__all__ = ["DescribedTree"]


class DescribedTree:
    """A tree whose leaves are described one by one.

    Args:
        tree: The tree.
        targets: The targets of its leaves.
        rule: The rule for which leaves are converted.
        out: A tree of the same structure, into whose tensors the results are written; or ``None``.

    Raises:
        ConversionError: The tree cannot be taken apart, or `out` has another structure.
    """

    def __init__(self, tree: Any, targets: Targets, rule: LeafRule, out: Any = None) -> None:
        self._targets = targets
        self._rule = rule
        self._prepares = run.prepare
        self.leaves, self._structure = take_apart(tree, rule.chosen, sharing=True)
        rule.check(self._structure, self.leaves)
        self.errors: dict[int, ConversionError] = {}
        self._known: dict[int, Prepared] = {}
        self._ready: Backend | None = None
        self._overwritten: set[int] = set()
        self._prepared: dict[int, Prepared] = {}
        self._settings: list[Hashable] = []
        self.outs: list[Any] | None = None
        if out is not None:
            leaves, structure = take_apart(out, rule.chosen)
            self.outs = in_order_of(self._structure.paths(), leaves, structure.paths())

    # -- plan -------------------------------------------------------------------------------------

    def prepare(self, *, with_values: bool = False) -> dict[int, Prepared]:
        """Plan the conversion of each leaf that is converted, anew if settings have changed.

        Args:
            with_values: Whether an error comes with those of all leaves whose values do not allow
                their conversion.

        Raises:
            UnsupportedTypeError: ``dtype=`` has a name that no leaf has.
            ConversionError: A leaf cannot be converted; several raise a `TreeError`.
        """
        if self._prepared and self._settings == _settings_of(self._prepared):
            return self._prepared
        all_prepared = {index: self._prepare(index, leaf) for index, leaf in enumerate(self.leaves)}
        prepared = {index: one for index, one in all_prepared.items() if one is not None}
        if self._targets.rule.names:
            names = map(self._structure.name, sorted({*prepared, *self.errors}))
            refuse_unknown_name(
                "dtype",
                self._targets.rule.names,
                names,
                self._why_no_tensor,
                self._targets.rule.without_names,
            )
        refused: dict[int, int] = {}
        if self.outs is not None:
            refused, self._overwritten = written_over(prepared, self.outs)
        for index, earlier in refused.items():
            path = self._structure.path(earlier)
            self.errors[index] = UnsupportedTypeError(
                f"out= has the same memory here as at {path}: the one would overwrite the other.",
                hints.without("out") + ", which makes new tensors",
            )
        if self.errors and with_values:
            self.raise_errors_of_values(prepared)
        self.raise_errors()
        # PyTorch's grad mode, on which the plan depends, may be different on another thread.
        self._prepared, self._settings = prepared, _settings_of(prepared)
        return prepared

    def _why_no_tensor(self, name: str) -> tuple[str, str] | None:
        """Why the column with a dotted name is no tensor: see `refuse_unknown_name`."""
        from .tables import why_no_tensor  # here, because only an error needs what is for tables

        names = [self._structure.name(index) for index in range(len(self.leaves))]
        return why_no_tensor(self.leaves[names.index(name)]) if name in names else None

    def _is_taken(self, index: int, leaf: Any) -> bool:
        """Whether a leaf is converted.

        Raises:
            UnsupportedTypeError: It is refused.
        """
        if self._rule.takes(leaf):
            return True
        if not self._targets.rule.names:
            return False
        from .tables import is_counted

        return is_counted(leaf, self._targets.rule, self._structure.name(index))

    def _prepare(self, index: int, leaf: Any) -> Prepared | None:
        """The conversion of a leaf; ``None`` if it stays, or has an error, which is kept."""
        targets, decide = self._targets, None
        out = None if self.outs is None else self.outs[index]
        is_taken = False
        try:
            is_taken = self._is_taken(index, leaf)
            if not is_taken:
                return None
            conversion = targets.common or targets.of(lambda: self._structure.path(index), leaf)
            if targets.decides_by_leaf:
                decide = partial(self._decided, conversion, index)
            if isinstance(leaf, TensorInfo):
                conversion = conversion if decide is None else decide(leaf)
                return run.prepare_described(leaf, conversion, out)
            if conversion.target is not self._ready:
                self._ready = registry.ready(conversion.target.name)
            known = self._known if decide is None and out is None else None
            return self._prepares(leaf, conversion, out, decide, known)
        except ConversionError as error:
            if not is_taken or not self._rule.keeps_refused(leaf, error):
                self.errors[index] = error
            return None

    def _decided(self, conversion: Conversion, index: int, info: TensorInfo) -> Conversion:
        """The conversion of a leaf, by its description."""
        return self._targets.asked_of(conversion, info, partial(self._structure.name, index))

    def arranged(self, prepared: Mapping[int, Prepared]) -> tuple[Arrangement, Bindings]:
        """The leaves by their steps, and what they have in common.

        Args:
            prepared: What `prepare` gives.
        """
        by_recipe: dict[int, list[int]] = {}
        for index, one in prepared.items():
            by_recipe.setdefault(id(one.recipe), []).append(index)
        groups = [
            LeafGroup(prepared[indices[0]].recipe, indices, None, [prepared[at] for at in indices])
            for indices in by_recipe.values()
        ]
        bindings = Bindings(overwritten=self._overwritten)
        if self.outs is None:
            bindings = bind(prepared, self._structure.twins)
        crosses = any(group.recipe.transfers for group in groups)
        return Arrangement(groups, crosses), bindings

    def rebuild(self, leaves: list[Any]) -> Any:
        """Make the tree again, with other leaves."""
        return self._structure.rebuild(leaves)

    def plan(self, *, coalesce: bool) -> TreePlan:
        """The plan of the tree.

        Args:
            coalesce: Whether small leaves cross the bus together.

        Raises:
            ConversionError: A leaf cannot be converted; several raise a `TreeError`.
        """
        from .plans import TreePlan  # here, because a tree that is converted needs no plans

        self._prepares = run.prepare_unread
        prepared = self.prepare()
        arrangement, bindings = self.arranged(prepared)
        groups = alone(arrangement.groups, bindings)
        parts = [part_of(group, self.leaves) for group in groups]
        sent = bus_groups(parts) if coalesce else []
        batches = {
            groups[part].indices[at]: number
            for number, group in enumerate(sent)
            for part, _, indices in group.members
            for at in indices
        }
        return TreePlan(
            leaves=self._plans(prepared, bindings, batches),
            kept=tuple(
                self._kept(index, leaf)
                for index, leaf in enumerate(self.leaves)
                if index not in prepared
            ),
            batches=tuple(group.batch(parts) for group in sent),
        )

    def _kept(self, index: int, leaf: Any) -> KeptLeaf:
        from .plans import KeptLeaf

        path, inside = self._structure.path(index), self._rule.tensor_inside(leaf)
        return KeptLeaf(path, type(leaf).__name__, tensor=None if inside is None else path + inside)

    def _plans(
        self,
        prepared: Mapping[int, Prepared],
        bindings: Bindings,
        batches: Mapping[int, int],
    ) -> tuple[LeafPlan, ...]:
        from .plans import LeafPlan

        same = bindings.same
        together = {index: group for group in bindings.together for index in group.members}
        # By the id of the description, which lives as long as `prepared`.
        plans: dict[tuple[int, int], tuple[Plan, int]] = {}
        leaf_plans = []
        path = self._structure.path
        for index, one in prepared.items():
            key = id(one.info), id(one.request)
            planned = plans.get(key)
            if planned is None:
                plan = one.plan
                planned = plans[key] = plan, plan.bytes_copied
            same_as = same.get(index)
            group = together.get(index if same_as is None else same_as)
            if same_as is None and group is None:
                leaf_plans.append(
                    LeafPlan(path(index), planned[0], None, None, batches.get(index), planned[1])
                )
            else:
                leaf_plans.append(self._bound_plan(index, one, planned[0], same_as, group))
        return tuple(leaf_plans)

    def _bound_plan(
        self, index: int, prepared: Prepared, plan: Plan, same: int | None, group: Cluster | None
    ) -> LeafPlan:
        from .plans import LeafPlan

        path = self._structure.path(index)
        if group is not None:
            # In the copy it has the same strides.
            result = plan.result._replace(
                strides=prepared.info.strides, misalignment=prepared.info.misalignment
            )
            plan = plan._replace(result=result)
        if same is not None or group is None:
            return LeafPlan(
                path, plan, same_as=None if same is None else self._structure.path(same)
            )
        # The bytes of the copy are counted for the first leaf.
        first = group.members[0]
        if index == first:
            return LeafPlan(path, plan, bytes_copied=group.end - group.start)
        return LeafPlan(path, plan, view_with=self._structure.path(first))

    # -- errors -----------------------------------------------------------------------------------

    def raise_errors(self) -> None:
        """Raise all kept errors."""
        raise_all(self.errors, self._structure.path, self._targets.rule, self._structure.name)

    def raise_errors_of_values(self, prepared: Mapping[int, Prepared]) -> None:
        """Raise kept errors, and those of all leaves whose values do not allow their conversion.

        Args:
            prepared: What `prepare` gives.

        Raises:
            ConversionError: There is one; several raise a `TreeError`.
        """
        end = None if self.outs is None else -1
        arrangement, bindings = self.arranged(prepared)
        for group in alone(arrangement.groups, bindings):
            for index, one in zip(group.indices, group.prepared, strict=True):
                try:
                    run.execute(group.recipe.program[:end], one.handle)
                except ConversionError as error:
                    self.errors[index] = error
        self.raise_errors()


def _settings_of(prepared: Mapping[int, Prepared]) -> list[Hashable]:
    """The settings of all targets, on which plans depend."""
    targets = {one.target: None for one in prepared.values()}
    return [target.quick.environment() for target in targets]
