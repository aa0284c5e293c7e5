"""Convert a tree leaf by leaf, all of it or nothing."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from .. import hints
from ..backends import registry
from ..core.info import TensorInfo
from ..errors import ConversionError, UnsupportedTypeError
from ..execution import run
from .failures import raise_all, refuse_unknown_name
from .grouped import convert_parts, prepared_part, shipments
from .shared_memory import (
    Cluster,
    converted_together,
    in_order_of,
    overlapping,
    refused,
    ties,
    write_all,
)
from .walk import take_apart

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..backends.base import Backend
    from ..execution.recipes import Conversion
    from ..execution.run import Prepared
    from ..planning.plan import Plan
    from .leaves import LeafRule
    from .plans import KeptLeaf, LeafPlan, TreePlan
    from .targets import Targets

    Places = Sequence[int]

__all__ = ["TreeConversion"]


class TreeConversion:
    """The conversion of one tree.

    Args:
        tree: The tree.
        targets: The targets of its leaves.
        rule: The rule for which leaves are converted.
        out: A tree of the same structure, into whose tensors the results are written; or ``None``.
        coalesce: Whether small leaves cross the bus together.

    Raises:
        ConversionError: The tree cannot be taken apart, or `out` has another structure.
    """

    def __init__(
        self, tree: Any, targets: Targets, rule: LeafRule, out: Any, *, coalesce: bool
    ) -> None:
        self._targets = targets
        self._rule = rule
        self._coalesce = coalesce
        self._prepares = run.prepare
        self.leaves, self._structure = take_apart(tree, rule.chosen, sharing=True)
        rule.check(self._structure, self.leaves)
        self.errors: dict[int, ConversionError] = {}
        self._known: dict[int, Prepared] = {}
        self._ready: Backend | None = None
        self.outs: list[Any] | None = None if out is None else self._match(out)

    def _match(self, out: Any) -> list[Any]:
        leaves, structure = take_apart(out, self._rule.chosen)
        if structure.is_in_order_of(self._structure):
            return leaves
        return in_order_of(self._structure.paths(), leaves, structure.paths())

    # -- plan -------------------------------------------------------------------------------------

    def prepare(self) -> dict[int, Prepared]:
        """Plan the conversion of each leaf that is converted.

        Raises:
            UnsupportedTypeError: ``dtype=`` has a name that no leaf has.
            ConversionError: A leaf cannot be converted; several raise a `TreeError`.
        """
        prepared = self._prepare_each()
        self.raise_errors()
        return prepared

    def _prepare_each(self) -> dict[int, Prepared]:
        """Plan the conversion of each leaf, and keep errors."""
        taken = self._taken()
        if self._targets.decides_by_leaf or self.outs is not None:
            known = None
        else:
            known = self._known
        each = (
            (index, self._prepare(index, leaf, known))
            for index, (leaf, on) in enumerate(zip(self.leaves, taken, strict=True))
            if on
        )
        prepared = {index: found for index, found in each if found is not None}
        if self._targets.rule.names:
            names = map(self._structure.name, sorted({*prepared, *self.errors}))
            refuse_unknown_name(
                "dtype",
                self._targets.rule.names,
                names,
                self._why_no_tensor,
                self._targets.rule.without_names,
            )
        for index, earlier in refused(prepared, self.outs) if self.outs is not None else ():
            path = self._structure.path(earlier)
            self.errors[index] = UnsupportedTypeError(
                f"out= has the same memory here as at {path}: the one would overwrite the other.",
                hints.without("out") + ", which makes new tensors",
            )
        return prepared

    def _why_no_tensor(self, name: str) -> tuple[str, str] | None:
        """Why the column with a dotted name is no tensor: see `refuse_unknown_name`."""
        from .tables import why_no_tensor  # here, because only an error needs what is for tables

        return why_no_tensor(self._leaf_named(name))

    def _leaf_named(self, name: str) -> Any:
        """The leaf with a dotted name; ``None`` if there is none."""
        names = map(self._structure.name, range(len(self.leaves)))
        return next(
            (leaf for each, leaf in zip(names, self.leaves, strict=True) if each == name), None
        )

    def _taken(self) -> list[bool]:
        """Whether each leaf is converted. Errors are kept."""
        with suppress(ConversionError):
            found = self._rule.takes_each(self.leaves)
            if self._targets.rule.names:
                from .tables import is_counted

                for index, leaf in enumerate(self.leaves):
                    found[index] = found[index] or is_counted(
                        leaf, self._targets.rule, self._structure.name(index)
                    )
            return found
        found = [False] * len(self.leaves)
        for index, leaf in enumerate(self.leaves):
            try:
                found[index] = self._rule.takes(leaf)
            except ConversionError as error:
                self.errors[index] = error
        return found

    def _prepare(self, index: int, leaf: Any, known: dict[int, Prepared] | None) -> Prepared | None:
        try:
            targets = self._targets
            conversion = targets.common or targets.of(lambda: self._structure.path(index), leaf)
            if self.outs is None:
                out = None
            else:
                out = self.outs[index]
            if targets.decides_by_leaf:
                decide = partial(self._decided, conversion, index)
            else:
                decide = None
            if isinstance(leaf, TensorInfo):
                return run.prepare_described(
                    leaf, conversion if decide is None else decide(leaf), out
                )
            if conversion.target is not self._ready:
                self._ready = registry.ready(conversion.target.name)
            return self._prepares(leaf, conversion, out, decide, known)
        except ConversionError as error:
            if not self._rule.keeps_refused(leaf, error):
                self.errors[index] = error
            return None

    def _decided(self, conversion: Conversion, index: int, info: TensorInfo) -> Conversion:
        """The conversion of a leaf, by its description."""
        return self._targets.asked_of(conversion, info, partial(self._structure.name, index))

    def bind(self, prepared: Mapping[int, Prepared]) -> tuple[dict[int, int], list[Cluster]]:
        """The leaves that are the same as an earlier one, and those that are copied together."""
        if self.outs is not None:
            return {}, []
        same = {**self._twins(prepared), **ties(prepared)}
        return same, overlapping(prepared, same)

    def _parts(
        self, prepared: Mapping[int, Prepared], same: Mapping[int, int], groups: list[Cluster]
    ) -> list[list[int]]:
        """The leaves that are converted one by one, by their recipes."""
        together = {index for group in groups for index in group.members}
        found: dict[int, list[int]] = defaultdict(list)
        for index, each in prepared.items():
            if index not in same and index not in together:
                found[id(each.recipe)].append(index)
        return list(found.values())

    def _twins(self, prepared: Mapping[int, Prepared]) -> dict[int, int]:
        """Leaves of recurring containers, if they have the targets of the first occurrence."""
        return {
            index: first
            for index, first in self._structure.twins.items()
            if index in prepared
            and first in prepared
            and prepared[index].request == prepared[first].request
        }

    def plan(self) -> TreePlan:
        """The plan of the tree.

        Raises:
            ConversionError: A leaf cannot be converted; several raise a `TreeError`.
        """
        from .plans import TreePlan  # here, because a tree that is converted needs no plans

        self._prepares = run.prepare_unread
        prepared = self.prepare()
        same, groups = self.bind(prepared)
        indices = self._parts(prepared, same, groups)
        parts = [prepared_part([prepared[index] for index in some]) for some in indices]
        sent = shipments(parts) if self._coalesce else []
        batches = {
            indices[part][place]: number
            for number, shipment in enumerate(sent)
            for part, _, places in shipment.members
            for place in places
        }
        return TreePlan(
            leaves=self._plans(prepared, same, groups, batches),
            kept=tuple(
                self._kept(index, leaf)
                for index, leaf in enumerate(self.leaves)
                if index not in prepared
            ),
            batches=tuple(shipment.batch(parts) for shipment in sent),
        )

    def _kept(self, index: int, leaf: Any) -> KeptLeaf:
        from .plans import KeptLeaf

        path, inside = self._structure.path(index), self._rule.tensor_inside(leaf)
        return KeptLeaf(path, type(leaf).__name__, tensor=None if inside is None else path + inside)

    def _plans(
        self,
        prepared: Mapping[int, Prepared],
        same: Mapping[int, int],
        groups: list[Cluster],
        batches: Mapping[int, int],
    ) -> tuple[LeafPlan, ...]:
        from .plans import LeafPlan

        together = {index: group for group in groups for index in group.members}
        # By the id of the description, which lives as long as `prepared`.
        plans: dict[tuple[int, int], tuple[Plan, int]] = {}
        found = []
        path = self._structure.path
        for index, each in prepared.items():
            key = id(each.info), id(each.request)
            planned = plans.get(key)
            if planned is None:
                plan = each.plan
                planned = plans[key] = plan, plan.bytes_copied
            same_as = same.get(index)
            group = together.get(index if same_as is None else same_as)
            if same_as is None and group is None:
                found.append(
                    LeafPlan(path(index), planned[0], None, None, batches.get(index), planned[1])
                )
            else:
                found.append(self._bound_plan(index, each, planned[0], same_as, group))
        return tuple(found)

    def _bound_plan(
        self, index: int, each: Prepared, plan: Plan, same: int | None, group: Cluster | None
    ) -> LeafPlan:
        from .plans import LeafPlan

        path = self._structure.path(index)
        if group is not None:
            # In the copy it has the same strides.
            result = plan.result._replace(
                strides=each.info.strides, misalignment=each.info.misalignment
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

    # -- run --------------------------------------------------------------------------------------

    def convert(self) -> Any:
        """Convert the tree.

        Raises:
            ConversionError: A leaf cannot be converted; several raise a `TreeError`. Nothing has
                been written then.
        """
        return self.run(self._prepare_each())

    def run(self, prepared: dict[int, Prepared]) -> Any:
        """Convert the tree.

        Args:
            prepared: The conversion of each leaf, as `prepare` gives it.

        Raises:
            ConversionError: As for `convert`.
        """
        results = self._run(prepared)
        self.raise_errors()
        if self.outs is not None:
            # Rebuilt before anything is written, because a container may refuse the values.
            self._structure.rebuild(
                [self.outs[i] if i in prepared else leaf for i, leaf in enumerate(self.leaves)]
            )
            write_all(prepared, results, self.outs)
        if run.is_verifying():
            for index, each in prepared.items():
                run.verify(each, results[index])
        return self._structure.rebuild(results)

    def _run(self, prepared: Mapping[int, Prepared]) -> list[Any]:
        same, groups = self.bind(prepared)
        done: dict[int, Any] = {}
        for group in groups:
            done.update(converted_together(group, prepared))
        indices = self._parts(prepared, same, groups)
        parts = [prepared_part([prepared[index] for index in some]) for some in indices]
        end = None if self.outs is None else -1
        try:
            if self._coalesce:
                results = convert_parts(parts, end=end)
            else:
                results = [part.run(slice(end), part.leaves) for part in parts]
            for some, found in zip(indices, results, strict=True):
                done.update(zip(some, found, strict=True))
        except ConversionError:
            # One by one, for the errors of all.
            for some, part in zip(indices, parts, strict=True):
                for index, value in zip(some, part.leaves, strict=True):
                    try:
                        (done[index],) = part.run(slice(end), [value])
                    except ConversionError as error:
                        self.errors[index] = error
        if self.errors:
            return []
        return [
            done[same.get(index, index)] if index in prepared else leaf
            for index, leaf in enumerate(self.leaves)
        ]

    def raise_errors(self) -> None:
        """Raise all kept errors."""
        raise_all(self.errors, self._structure.path, self._targets.rule, self._structure.name)
