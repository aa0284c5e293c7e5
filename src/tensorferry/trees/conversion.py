"""Convert a tree, all of it or nothing: a plain table, or any tree leaf by leaf."""

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
from ..execution.groups import may_share_a_byte
from ..host.numpy_dtypes import of_numpy
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
    from ..backends.columnar import ColumnBackend, Views
    from ..execution.recipes import Conversion, Recipe
    from ..execution.run import Prepared
    from ..planning.plan import Plan
    from ..typing import Array
    from .leaves import LeafRule
    from .plans import KeptLeaf, LeafPlan, TreePlan
    from .targets import Targets

    Places = Sequence[int]

__all__ = ["TreeConversion", "convert", "convert_plainly"]


# -- tables whose columns are plain memory ---------------------------------------------------------


def convert_plainly(table: Any, targets: Targets) -> dict[object, Any] | None:
    """The columns of a table, converted. Columns of text stay as they are.

    Args:
        table: Any object.
        targets: One target for all columns, and a ``dtype=`` without names.

    Returns:
        The columns by name. ``None``: it is no table; a column has to be described; or two of those
        that are copied have memory in common.
    """
    from .tables import has_columns  # here, because most trees are no tables

    if not has_columns(table) or targets.common is None:
        return None
    if targets.common.described or not targets.common.is_for_host:
        return None
    owner: Any = registry.backend_of(table)
    if targets.common.target is owner:
        views = None
    else:
        views = owner.views(table)
    try:
        if views is None:
            return None
        return _converted(owner, views, targets)
    except ConversionError:
        return None  # the general way raises the error, with the name of the column


def _converted(owner: ColumnBackend, views: Views, targets: Targets) -> dict[object, Any] | None:
    results: dict[object, Any] = dict(views.arrays)
    names = [name for name, array in results.items() if array is not None]
    if not names:
        return None
    if len(names) < len(results):
        kept = {name: column for name, column in views.columns().items() if results[name] is None}
        if not all(map(owner.is_text, kept.values())):
            return None
        results.update(kept)
    arrays: list[Any] = [results[name] for name in names]
    common: Any = targets.common
    target = registry.ready(common.target.name)
    environment, alignment = common.environment(), target.capabilities.memory.alignment
    groups: list[tuple[Recipe, Conversion, Sequence[int]]] = []
    copied: list[Array] = []
    for signature, places in owner.grouped_views(arrays, alignment).items():
        conversion = common
        if targets.decides_by_leaf:
            info = TensorInfo(owner.name, (), of_numpy(arrays[places[0]].dtype) or "")
            conversion = targets.asked_of(common, info, str)
        recipe = conversion.find((signature, environment))
        if recipe is None:
            recipe = run.prepare(views.columns()[names[places[0]]], conversion).recipe
            conversion.keep((signature, environment), recipe)
        groups.append((recipe, conversion, places))
        if recipe.copies:
            copied += [arrays[place] for place in places]
    if may_share_a_byte(copied, compact=False):
        return None
    for recipe, _, places in groups:
        found = run.execute(recipe.bulk, [arrays[place] for place in places])
        for place, result in zip(places, found, strict=True):
            results[names[place]] = result
    for _, conversion, places in groups if run.is_verifying() else ():
        columns = views.columns()
        for name in [names[place] for place in places]:
            run.verify(run.prepare(columns[name], conversion), results[name])
    return results


# -- any tree --------------------------------------------------------------------------------------


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


def convert(tree: Any, targets: Targets, rule: LeafRule, out: Any, *, coalesce: bool) -> Any:
    """Convert a tree; the arguments are those of `TreeConversion`.

    Raises:
        ConversionError: As for `TreeConversion.convert`.
    """
    is_for_all = (
        targets.common is not None
        and out is None
        and rule.chosen is None
        and not targets.rule.names
    )
    if is_for_all and hasattr(type(tree), "columns"):
        result = convert_plainly(tree, targets)
        if result is not None:
            return result
    return TreeConversion(tree, targets, rule, out, coalesce=coalesce).convert()
