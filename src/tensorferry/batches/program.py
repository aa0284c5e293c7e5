"""`BatchPrograms`: how samples of one structure become a batch, found by the next samples.

As `trees.program`, for samples: the containers, the types of the leaves of each column, and what
becomes of it. Samples are checked against a program while they are taken apart into columns; those
that differ in anything get a program of their own. A `Batch` is samples that were taken apart: it
makes what becomes of each column, or says it (`Batch.plan`, for `explain_collate`), and raises the
errors of all columns together.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import hints
from ..backends import fast_paths, registry, together
from ..backends.base import Backend
from ..backends.nodes import Node
from ..core.info import TensorInfo
from ..core.leaf_dtypes import place_of_name
from ..core.named_tuple import NamedTuple
from ..core.signature import one_of_each
from ..errors import ConversionError, PlanViolation, ShapeError, UnsupportedTypeError
from ..execution import run
from ..hints import quoted
from ..sequences.numbers import PYTHON_NUMBERS, types_in
from ..trees.containers import PLAIN
from ..trees.failures import raise_all
from ..trees.structure import Structure, at_path, labels_of
from ..trees.walk import is_row
from .padding import NOT_PADDED
from .samples import columns_of, hide_containers, place_of, take_columns
from .stacking import ColumnPlan, Columns

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from ..execution.recipes import Conversion
    from ..execution.run import Prepared
    from ..sequences.reader import NewArray
    from ..trees.leaves import LeafRule
    from ..trees.structure import Container
    from ..trees.targets import Targets
    from .padding import PaddedShapes, Padding
    from .plans import BatchPlan

    Found = tuple["BatchProgram", list[list[Any]], Sequence[Any]]
    """A program, the columns of samples, and what containers are made from."""
    Mark = tuple[str, str, NewArray, Conversion]
    """The key of a mask or of lengths, the keyword, the array, and what converts it."""

__all__ = ["Batch", "BatchProgram", "BatchPrograms"]

_ALTERNATIVES = 8
"""How many programs are kept for samples that look alike at first sight."""
_MOST = 64
"""For how many different first sights programs are kept."""
_MOST_COLUMNS = 1 << 16
"""The most columns of all programs of one request together."""
_MOST_RECIPES = 256
"""The most recipes of one request, and the most kinds of leaves that are known."""
_SIZED = frozenset({dict, OrderedDict, list, tuple})
"""Types whose objects are told apart by their size at first sight."""
_NEVER_COLUMNS = PLAIN | {list, np.ndarray}
"""Types of leaves that are no columns of tables."""
_LOOKED_AT = (TensorInfo, np.void)
"""Types of leaves that are looked at one by one: they may have fields, or be a description."""


class _HiddenContainersError(Exception):
    """Objects of a column are containers, which their types do not tell."""


# -- programs --------------------------------------------------------------------------------------


class ColumnKind(NamedTuple):
    """The leaves of a column, and what becomes of them.

    Args:
        types: Their types.
        convert: Makes the tensor, or the list: a method of `Batch`.
        value: The number with which they are padded; ``None`` if they are not.
        among: Which name in ``dtype=`` is theirs, and which in ``pad=``; ``None`` if none is.
    """

    types: set[type]
    convert: Callable[[Batch, int, list[Any]], Any]
    value: Any
    among: Hashable


class BatchProgram(NamedTuple):
    """How samples of one structure become a batch.

    Args:
        root: The outermost container; ``None`` if each sample is one leaf.
        names: The dotted name of each leaf, if names matter; otherwise ``None``.
        labels: What `labels_of` gives for the containers, if names matter; otherwise ``None``.
        columns: The kind of each column.
        positions: The position of each leaf in its container, after those of the containers around.
        has_tables: Whether leaves may be columns of tables, which are changed before masks and
            lengths are put beside them.
    """

    root: Container | None
    names: list[str] | None
    labels: list[Any] | None
    columns: list[ColumnKind]
    positions: list[tuple[int, ...]]
    has_tables: bool

    def take(self, samples: list[Any], rule: LeafRule) -> tuple[list[list[Any]], list[Any]] | None:
        """The columns of samples, and what containers are made from; ``None`` for other samples."""
        taken = take_columns(self.root, samples)
        if taken is None or (taken[1] and not self._are_alike(taken[1], rule)):
            return None
        for column, kind in zip(taken[0], self.columns, strict=True):
            if types_in(column) != kind.types:
                return None
            if list in kind.types and not is_row(column[0][:1]):
                return None  # it is a container
        return taken

    def _are_alike(self, wholes: list[Any], rule: LeafRule) -> bool:
        """Whether containers have the names that matter, and no tensors beside their values."""
        if self.labels is not None and labels_of(wholes) != self.labels:
            return False
        if not rule.refuses:
            return True
        statics = [whole.static for whole in wholes if isinstance(whole, Node) and whole.static]
        return all(map(rule.is_free, statics))


class BatchPrograms:
    """The programs of one request.

    Args:
        targets: The targets of the leaves.
        rule: The rule for which leaves are stacked.
        padding: How leaves are padded.
        nulls: This keyword of the call.
        of_columns: The keywords ``dtype`` and ``casting`` of the call.
    """

    __slots__ = (
        "_by_name",
        "_columns",
        "_idle",
        "_is_ordinary",
        "_kept",
        "_nulls",
        "_of_columns",
        "_paths",
        "environment",
        "known",
        "padding",
        "rule",
        "targets",
    )

    def __init__(
        self,
        targets: Targets,
        rule: LeafRule,
        padding: Padding = NOT_PADDED,
        nulls: object = None,
        **of_columns: Any,
    ) -> None:
        self.targets = targets
        self.rule = rule
        self.padding = padding
        self.known: dict[Hashable, Prepared] = {}
        """How columns of tensors are converted, by what decides it: see `Batch.tensors`."""
        self._nulls = nulls
        self._of_columns = {**of_columns, "nulls": nulls}
        self._kept: dict[Any, tuple[BatchProgram, ...]] = {}
        self._columns = 0
        self._idle: dict[Hashable, bool] = {}
        self._by_name = bool(targets.rule.names or padding.by_name)
        self._paths: Mapping[type, Callable[[Any], Any]] = {}
        common = targets.common
        self._is_ordinary = False
        if common is not None and rule.chosen is None:
            self._is_ordinary = common.request.is_ordinary and not targets.decides_by_leaf
            self._paths = fast_paths.paths_to(common.target.name)
            self.environment: Callable[[], Hashable] = common.environment

    def open(self, samples: list[Any], prepare: Callable[..., Prepared] = run.prepare) -> Batch:
        """Take samples apart.

        Args:
            samples: The samples, in a list that nobody else changes.
            prepare: `run.prepare`; or `run.prepare_unread`, if only a plan is made.

        Raises:
            ShapeError: There are no samples.
            UnsupportedTypeError: They are different trees; or a name in a mapping is that of no
                tensor.
        """
        masks: list[Any] = []
        if self._nulls is not None:
            samples = self._without_tables(samples, masks)
        if not samples:
            raise ShapeError("There are no samples to collate.", None)
        batch_found = self._find(samples)
        if batch_found[0].has_tables and self._nulls is None:
            # A table must become a dict first, in which a mask can be put beside a column.
            samples = self._without_tables(samples, masks)
            batch_found = self._find(samples)
        return Batch(self, samples, batch_found, prepare, masks)

    def _without_tables(self, samples: list[Any], masks: list[Any]) -> list[Any]:
        from ..trees.tables import with_column_keywords  # here, because most batches have no tables

        change = self._of_columns
        return [
            with_column_keywords(sample, index=False, masks=masks, **change) for sample in samples
        ]

    # -- find -------------------------------------------------------------------------------------

    def _find(self, samples: list[Any]) -> Found:
        first = samples[0]
        kind = type(first)
        sight = kind, len(first) if kind in _SIZED else 0
        programs = self._kept.get(sight, ())
        for made in programs:
            taken = made.take(samples, self.rule)
            if taken is not None:
                if made is not programs[0]:
                    # The one that was used last is tried first.
                    self._kept[sight] = (
                        made,
                        *[one_program for one_program in programs if one_program is not made],
                    )
                return made, *taken
        made, columns, structure, are_alike = self.make(samples)
        if are_alike and self.rule.chosen is None:
            self._columns += len(made.columns)
            if self._columns > _MOST_COLUMNS or len(self._kept) >= _MOST:
                self._kept = {}
                self._columns = len(made.columns)
                programs = ()
            self._columns -= sum(
                len(one_program.columns) for one_program in programs[_ALTERNATIVES - 1 :]
            )
            self._kept[sight] = made, *programs[: _ALTERNATIVES - 1]
        return made, columns, structure.kept

    # -- make -------------------------------------------------------------------------------------

    def make(self, samples: list[Any]) -> tuple[BatchProgram, list[list[Any]], Structure, bool]:
        """The program for samples, their columns, and the structure of the first one.

        The last is whether other samples may be alike.

        Raises:
            UnsupportedTypeError: As for `open`.
        """
        columns, structure, are_alike = columns_of(samples, self.rule)
        names: list[str] | None = None
        labels: list[Any] | None = None
        if self._by_name:
            names, labels = structure.names(), labels_of(structure.kept)
            self.planner(structure, names).refuse_unknown_names(columns)
        kinds = list(map(self._kind_of, columns, names or [""] * len(columns)))
        has_tables = self.padding.adds and (
            self.rule.chosen is not None
            or any(self._may_be_columns(one_kind.types) for one_kind in kinds)
        )
        positions = structure.positions() if self.padding.adds else []
        made = BatchProgram(structure.root, names, labels, kinds, positions, has_tables)
        return made, columns, structure, are_alike

    def planner(
        self,
        structure: Structure,
        names: list[str] | None,
        prepare: Callable[..., Prepared] = run.prepare,
        masks: frozenset[int] = frozenset(),
    ) -> Columns:
        """What plans columns of samples with a structure: see `Columns`."""
        name = structure.name if names is None else names.__getitem__
        return Columns(self.targets, self.rule, self.padding, prepare, structure.path, name, masks)

    def _kind_of(self, column: list[Any], name: str) -> ColumnKind:
        types, targets = types_in(column), self.targets
        patterns = (targets.rule.names, self.padding.by_name)
        among = tuple(
            [place_of_name(tuple([name_asked for name_asked, _ in x]), name) for x in patterns]
        )
        convert: Any = Batch.planned
        value = self.padding.value_of(lambda: name)
        if self.rule.chosen is None and not any(issubclass(x, _LOOKED_AT) for x in types):
            answers = {self.rule.answer_of(kind, x) for kind, x in one_of_each(column).items()}
            # What `dtype=` names may be a date, which is no tensor, and becomes a number.
            is_named = among[0] is not None
            if answers == {False} and not is_named and (len(types) == 1 or types <= PLAIN):
                convert = Batch.kept
            elif len(types) == 1 and self._are_tensors(type(column[0]), *answers):
                convert = Batch.tensors
        if types <= PYTHON_NUMBERS:
            value = None
        return ColumnKind(types, convert, value, among)

    def _are_tensors(self, kind: type, answer: Any) -> bool:
        """Whether leaves of a type are tensors or numbers whose recipe may be known."""
        if kind is list or self.targets.common is None:
            return False
        if self.targets.decides_by_leaf and self._may_be_columns({kind}):
            return False
        return answer is True or isinstance(answer, Backend)

    def _may_be_columns(self, types: set[type]) -> bool:
        """Whether leaves may be columns of tables, which are read as the keywords ask for."""
        others = types - _NEVER_COLUMNS
        if not others:
            return False
        from ..trees.tables import may_be_column  # here, because most batches have no columns

        return any(
            may_be_column(one_type) or issubclass(one_type, np.ndarray) for one_type in others
        )

    # -- what columns have in common --------------------------------------------------------------

    def keep(self, key: tuple[Hashable, ...], plan: ColumnPlan, column: list[Any]) -> None:
        """Keep how a column is converted for others, unless a mode of the framework is in it."""
        prepared, members = plan.prepared, None
        if prepared is None or prepared.info.abstract is not None:
            return
        # Another thread may have changed one of the tensors meanwhile.
        if plan.extent is None or not plan.extent.is_needed:
            now = together.signature(column)
        else:
            members, now = prepared.handle, together.likeness(column)
            if members.which is not None:
                return  # they are not alike
            members = members._replace(tensors=(), places=None)
        if now == key[0]:
            if len(self.known) >= _MOST_RECIPES:
                self.known = {}
            self.known[key] = prepared._replace(handle=members)

    def by_fast_path(self, kind: ColumnKind, batch: Batch, index: int, column: list[Any]) -> Any:
        """The result of the target's fast path; ``None`` if there is none that takes the column."""
        path = self._paths.get(list)
        if path is None:
            return None
        if not (self._is_ordinary or self._asks_nothing(kind, batch, index, column[0])):
            return None
        try:
            return path(column)
        except fast_paths.NOT_ACCEPTED:
            return None

    def _asks_nothing(self, kind: ColumnKind, batch: Batch, index: int, first: Any) -> bool:
        """Whether the request asks of a column only the dtype and the device that it has anyway."""
        (only_type,), likeness = kind.types, None
        if only_type not in PYTHON_NUMBERS:
            owner = registry.BY_TYPE.get(only_type)
            likeness = None if owner is None else owner.quick.likeness(first)
            if likeness is None:
                return False
        key = only_type, likeness, kind.among, self.environment()
        known = self._idle.get(key)
        if known is None:
            if len(self._idle) >= _MOST_RECIPES:
                self._idle = {}
            known = self._idle[key] = batch.planner.asks_nothing(index, first)
        return known


# -- batches ---------------------------------------------------------------------------------------


class Batch:
    """Samples that were taken apart, and what becomes of each column.

    Args:
        programs: The programs of the request.
        samples: The samples.
        batch_found: The program, the columns, and what containers are made from.
        prepare: As for `Columns`.
        masks: The leaves that are masks of nulls.
    """

    _is_sure = False
    _is_other_text = False
    _planner: Columns | None = None
    _structure: Structure | None = None

    def __init__(
        self,
        programs: BatchPrograms,
        samples: list[Any],
        batch_found: Found,
        prepare: Callable[..., Prepared],
        masks: Sequence[Any],
    ) -> None:
        self._programs = programs
        self._samples = samples
        self._made, self._columns, self._kept = batch_found
        self._prepare = prepare
        self._masks = masks
        self._marks: list[tuple[int, str, Any]] = []

    @property
    def structure(self) -> Structure:
        """The structure of the first sample."""
        if self._structure is None:
            self._structure = Structure(self._made.root, self._kept)
        return self._structure

    @property
    def planner(self) -> Columns:
        """What plans each column."""
        if self._planner is None:
            masks = frozenset(map(id, self._masks))
            names = self._made.names
            self._planner = self._programs.planner(self.structure, names, self._prepare, masks)
        return self._planner

    def stack(self) -> Any:
        """Make the batch.

        Raises:
            ConversionError: A column cannot be stacked or converted; several raise a `TreeError`.
        """
        results = self._each(Batch.planned if self._masks else None)
        if self._made.root is None:
            return results[0]
        batch = self.structure.rebuild(results, len(self._samples))
        if self._marks:
            self._put_marks(batch)
        return batch

    def plan(self) -> BatchPlan:
        """The plan of `stack`.

        Raises:
            ConversionError: As for `stack`, except errors that depend on values.
        """
        # Here, because a batch that is stacked needs none of them.
        from ..trees.plans import KeptLeaf
        from .plans import BatchPlan, StackedLeaf, why_kept

        leaves: list[StackedLeaf] = []
        kept: list[KeptLeaf] = []
        for index, (leaf, beside) in enumerate(self._each(Batch._explained)):
            path, column = self.structure.path(index), self._columns[index]
            if leaf.prepared is None:
                from ..trees.tables import class_name  # most batches have tensors only

                kept.append(KeptLeaf(path, class_name(column[0]), why_kept(leaf.kept, column)))
                continue
            is_padded = leaf.extent is not None and leaf.extent.is_needed
            padded_to = leaf.extent.whole if is_padded else None
            leaves.append(StackedLeaf(path, leaf.prepared.plan, padded_to))
            outer = path.removesuffix('"]')
            leaves += [
                StackedLeaf(f'{outer}_{keyword}"]', mark_plan.plan, None, keyword)
                for keyword, mark_plan in beside
            ]
        return BatchPlan(len(self._samples), tuple(leaves), tuple(kept))

    def _each(self, do: Callable[[Batch, int, list[Any]], Any] | None) -> list[Any]:
        """Apply `do` to each column, or what its kind says. Errors are raised together.

        Raises:
            ConversionError: A column failed; if several did, a `TreeError`.
        """
        results: list[Any] = []
        errors: dict[int, ConversionError] = {}
        kinds = self._made.columns
        try:
            for index, column in enumerate(self._columns):
                try:
                    results.append((do or kinds[index].convert)(self, index, column))
                except ConversionError as error:
                    errors[index] = _in_samples(error, self.structure.path(index))
        except _HiddenContainersError:
            self._made, self._columns, self._structure, _ = self._programs.make(self._samples)
            self._is_sure, self._planner = True, None
            self._marks.clear()
            return self._each(do)
        if self._is_other_text and self._made.names is not None:
            self.planner.refuse_unknown_names(self._columns)
        if errors:
            structure, rule = self.structure, self._programs.targets.rule
            raise_all(errors, structure.path, rule, structure.name, "sample")
        return results

    # -- columns ----------------------------------------------------------------------------------

    def kept(self, _index: int, column: list[Any]) -> Any:
        """What becomes of objects that are no tensors: a list, or ``None``."""
        return None if all(value is None for value in column) else column

    def tensors(self, index: int, column: list[Any]) -> Any:
        """The tensor of tensors, or of numbers, of one type.

        Raises:
            ConversionError: They cannot be stacked or converted.
        """
        programs, kind, key = self._programs, self._made.columns[index], None
        extent = None
        try:
            is_padded = kind.value is not None and len(column[0].shape) > 0
            signature = together.likeness(column) if is_padded else None
            if signature is not None:
                extent = programs.padding.extent_of([x.shape for x in column])
                is_padded = extent is None or extent.is_needed or programs.padding.adds
            if not is_padded:
                extent, result = None, programs.by_fast_path(kind, self, index, column)
                if result is not None:
                    return result
                signature = together.signature(column)
            if signature is not None:
                rank = extent and len(extent.whole)
                key = signature, kind.among, rank, programs.environment()
                known = programs.known.get(key)
                if known is not None and (extent is None or extent.is_needed):
                    return self._executed(known, index, column, extent)
        except PlanViolation:
            raise
        except Exception:  # noqa: BLE001 - what a framework raises; the description may tell why
            key = None
        return self.planned(index, column, key)

    def _executed(
        self, known: Prepared, index: int, column: list[Any], extent: PaddedShapes | None
    ) -> Any:
        """The tensor of a column that is converted as another one was."""
        value: Any = column
        if extent is not None:
            value = known.handle._replace(
                tensors=column,
                shape=(len(column), *extent.whole),
                places=extent.where(alike=True),
            )
        result = run.execute(known.recipe.program, value)
        if run.is_verifying():
            prepared = self.planner.leaf(index, column, self._made.columns[index].types).prepared
            if prepared is not None:
                run.verify_result(prepared._replace(recipe=known.recipe), result)
        if extent is not None and self._programs.padding.adds:
            self._add_marks(index, self._beside(index, ColumnPlan(known, extent=extent)))
        return result

    def planned(
        self, index: int, column: list[Any], key: tuple[Hashable, ...] | None = None
    ) -> Any:
        """What becomes of any other column: it is planned by itself.

        Args:
            index: The number of the column.
            column: Its leaves.
            key: What its recipe is kept by; ``None`` if it is not kept.

        Raises:
            ConversionError: They cannot be stacked or converted.
        """
        plan, beside = self._planned(index, column)
        if key is not None:
            self._programs.keep(key, plan, column)
        result = plan.run()
        self._add_marks(index, beside)
        return result

    def _explained(
        self, index: int, column: list[Any]
    ) -> tuple[ColumnPlan, list[tuple[str, Prepared]]]:
        plan, beside = self._planned(index, column)
        if plan.read is not None and plan.conversion is not None:
            plan = plan._replace(prepared=self._prepare(plan.read, plan.conversion))
        return plan, [(keyword, self._prepare(mark, by)) for _, keyword, mark, by in beside]

    def _planned(self, index: int, column: list[Any]) -> tuple[ColumnPlan, list[Mark]]:
        """The plan of a column; and its mask and lengths, each with its key in the batch.

        Raises:
            _HiddenContainersError: Some leaves are containers.
            ConversionError: They cannot be stacked or converted.
        """
        kind, planner, column_plan = self._made.columns[index], self.planner, None
        try:
            column_plan = planner.leaf(index, column, kind.types)
        finally:
            is_read = self._is_sure or (column_plan is not None and column_plan.read is not None)
            if not is_read and hide_containers(column, kind.types, rows=planner.rule.takes_rows):
                raise _HiddenContainersError
        if kind.convert is not Batch.kept and column_plan.prepared is column_plan.read is None:
            self._is_other_text = True
        return column_plan, self._beside(index, column_plan)

    # -- masks and lengths ------------------------------------------------------------------------

    def _beside(self, index: int, plan: ColumnPlan) -> list[Mark]:
        """The mask and the lengths of a column.

        Raises:
            UnsupportedTypeError: The leaf has no key, or there is such a leaf.
        """
        return [
            (self._name_beside(index, keyword), keyword, mark, conversion)
            for keyword, mark, conversion in self.planner.marks_of(plan)
        ]

    def _add_marks(self, index: int, beside: list[Mark]) -> None:
        for name, _, mark, conversion in beside:
            self._marks.append((index, name, run.convert(mark, conversion)))

    def _name_beside(self, index: int, keyword: str) -> str:
        position = self._made.positions[index]
        place = place_of(self._samples[0], position)
        if place is None:
            # What is no mapping may become one in a batch: an array with fields.
            with suppress(Exception):
                firsts = [column[0] for column in self._columns]
                place = place_of(self.structure.rebuild(firsts), position)
        if place is None:
            raise UnsupportedTypeError(
                f"{keyword}=True adds a leaf beside this one, which is below no str key of a dict.",
                hints.without(keyword),
            )
        mapping, key = place
        name = f"{key}_{keyword}"
        if name in mapping:
            raise UnsupportedTypeError(
                f"{keyword}=True adds {quoted(name)} beside this leaf, and there is one.",
                hints.without(keyword),
            )
        return name

    def _put_marks(self, batch: Any) -> None:
        for index, name, mark in self._marks:
            place = place_of(batch, self._made.positions[index])
            if place is None:
                raise at_path(
                    UnsupportedTypeError(
                        "The mapping that was made of this one takes no more keys.",
                        "a dict in its place",
                    ),
                    self.structure.path(index),
                )
            place[0][name] = mark


def _in_samples(error: ConversionError, path: str) -> ConversionError:
    """The error of the leaf at a path, with positions in samples instead of positions in a list."""
    message, hint = error.message.replace(" at x[", " in samples["), error.advice
    if message == error.message:
        return error
    return type(error)(message, hint and hint.for_sample(path.removeprefix("$")))
