"""Samples become a batch: `Samples` are looked at, `Collation` plans and converts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from .. import hints
from ..backends.no_tensor import UNCALLED
from ..errors import ConversionError, ShapeError, UnsupportedTypeError, an
from ..execution import run
from ..hints import Hint, quoted
from ..host.numpy_dtypes import has_dates
from ..sequences import numbers
from ..trees.containers import PLAIN
from ..trees.failures import raise_all, refuse_unknown_name
from ..trees.structure import Structure, at_path, equal
from ..trees.walk import columns_alike, take_apart
from .padding import NOT_PADDED, Padding
from .stacking import ColumnPlan, Columns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..execution.recipes import Conversion
    from ..sequences.reader import NewArray
    from ..trees.leaves import LeafRule
    from ..trees.targets import Targets
    from .plans import BatchPlan


__all__ = ["Collation"]


# -- samples ---------------------------------------------------------------------------------------

_ONE_LEAF = take_apart(None)[1]

_NEVER_DATES = PLAIN | {list}
"""Types of leaves that are never columns of dates, whatever they hold."""
_LISTS_ARE_LEAVES = "lambda x: isinstance(x, (list, tuple))"


def columns_of(samples: Sequence[Any], rule: LeafRule) -> tuple[list[Any], Structure]:
    """The columns of samples, and the structure of the first sample.

    A plain list of numbers below a key is a leaf, if numbers are tensors and there is no user's
    callable.

    Raises:
        UnsupportedTypeError: A sample has another structure than the first, or cannot be stacked.
    """
    if isinstance(samples[0], UNCALLED):
        rule.check(_ONE_LEAF, samples[:1])
    chosen, rows = rule.chosen, rule.takes_rows
    first, structure = take_apart(samples[0], chosen, rows=rows)
    rule.check(structure, first)
    for node in structure.nodes():
        if node.no_batch is not None:
            path = structure.path_of(node)
            why, hint = node.no_batch
            placed_hint = Hint.of(hint).at(f"sample{path[1:]}")
            raise at_path(UnsupportedTypeError(why, placed_hint), path)
    if chosen is None:
        columns = columns_alike(samples, first, structure, rule, rows=rows)
        if columns is not None:
            return columns, structure
    columns = [[leaf] for leaf in first]
    for number, sample in enumerate(samples[1:], 1):
        found, other = take_apart(sample, chosen, rows=rows)
        rule.check(other, found)
        if not structure.is_like(other):
            found = _in_order_of(structure, found, other, number)
        for column, leaf in zip(columns, found, strict=True):
            column.append(leaf)
    return columns, structure


def _in_order_of(
    structure: Structure, found: list[Any], other: Structure, number: int
) -> list[Any]:
    """The leaves of a sample, in the order of the first sample.

    Raises:
        UnsupportedTypeError: It has another structure.
    """
    paths = structure.paths()
    by_path = dict(zip(other.paths(), found, strict=True))
    odd = [path for path in paths if path not in by_path] or [
        path for path in by_path if path not in set(paths)
    ]
    if odd:
        raise UnsupportedTypeError(
            f"Samples 0 and {number} are different trees: "
            f"only one of them has the leaf - at {odd[0]}",
            Hint(
                hints.keyword("leaves", hints.Code(_LISTS_ARE_LEAVES, stays=True)),
                ", if a list of numbers is one leaf",
            )
            if odd[0].endswith("]") and not odd[0].endswith('"]')
            else None,
        )
    _compare(structure.statics(), other.statics(), number)
    return [by_path[path] for path in paths]


def _compare(
    first: dict[str, tuple[type, Any]], other: dict[str, tuple[type, Any]], number: int
) -> None:
    """Raise for samples whose containers differ in attributes that are not stacked.

    Raises:
        UnsupportedTypeError: They differ.
    """
    for path in {**first, **other}:
        here, there = first.get(path), other.get(path)
        kinds = ["plain container" if each is None else each[0].__name__ for each in (here, there)]
        if here is None or there is None or here[0] is not there[0]:
            what = f"is {an(kinds[0])} in one and {an(kinds[1])} in the other"
        elif not equal(here[1], there[1]):
            what = f"is {an(kinds[0])} with other static fields{_names(here[1], there[1])}"
        else:
            continue
        raise UnsupportedTypeError(
            f"Samples 0 and {number} are different trees, which do not stack: "
            f"what is here {what} - at {path}"
        )


def _names(x: Any, y: Any) -> str:
    """The names of static fields that differ, if they have names."""
    if not isinstance(x, tuple) or not isinstance(y, tuple):
        return ""
    found = [entry for entry in {**x[0], **y[0]} if not equal(x[0].get(entry), y[0].get(entry))]
    return ": " + ", ".join(found) if found else ""


# -- the batch, or only its plan -------------------------------------------------------------------


class Collation:
    """Samples, as columns that each become one tensor: see `tensorferry.collate`.

    Args:
        samples: The samples.
        targets: The targets of the leaves.
        rule: The rule for which leaves are stacked.
        asked: The keywords of `Padding`; ``None`` if nothing is padded.
        of_columns: The keywords of `with_column_keywords`, if samples that have columns of tables
            must be changed by it first; otherwise ``None``.
        looks: Whether only a plan is made, and no values are read.

    Raises:
        ShapeError: There are no samples.
        UnsupportedTypeError: The samples are different trees.
    """

    def __init__(
        self,
        samples: list[Any],
        targets: Targets,
        rule: LeafRule,
        asked: dict[str, Any] | None,
        of_columns: dict[str, Any] | None = None,
        *,
        looks: bool = False,
    ) -> None:
        if not samples and of_columns is None:
            raise ShapeError("There are no samples to collate.", None)
        self._targets = targets
        self._rule = rule
        self._padding = NOT_PADDED if asked is None else Padding(**asked)
        self._prepare = run.prepare_unread if looks else run.prepare
        masks: list[Any] = []
        if of_columns is not None:
            # A table must become a dict first, in which a mask can be put beside a column.
            from ..trees.tables import with_column_keywords

            samples = [
                with_column_keywords(each, index=False, masks=masks, **of_columns)
                for each in samples
            ]
            if not samples:
                raise ShapeError("There are no samples to collate.", None)
        self._samples = samples
        self._columns, self._structure = columns_of(samples, rule)
        self._kinds = list(map(numbers.types_in, self._columns))
        structure = self._structure
        self._planner = Columns(
            targets,
            rule,
            self._padding,
            self._prepare,
            structure.path,
            structure.name,
            frozenset(map(id, masks)),  # the samples keep them
        )
        self._places: list[tuple[Any, str] | None] | None = None

    def stack(self) -> Any:
        """Make the batch.

        Raises:
            ConversionError: A leaf cannot be stacked or converted; several raise a `TreeError`.
        """
        marks: list[tuple[int, str, Any]] = []

        def done(index: int, column: Any) -> Any:
            leaf = self._planner.leaf(index, column, self._kinds[index])
            result = leaf.run()
            marks.extend(
                (index, keyword, run.convert(mark, conversion))
                for keyword, mark, conversion in self._beside(index, leaf)
            )
            return result

        batch = self._structure.rebuild(self._each(done), len(self._samples))
        if marks:
            self._put_marks(batch, marks)
        return batch

    def plan(self) -> BatchPlan:
        """The plan of `stack`.

        Raises:
            ConversionError: As for `stack`, except errors that depend on values.
        """
        # Here, because a batch that is stacked needs none of them.
        from ..trees.plans import KeptLeaf
        from .plans import BatchPlan, StackedLeaf

        leaves: list[StackedLeaf] = []
        kept: list[KeptLeaf] = []

        def planned(index: int, column: Any) -> tuple[ColumnPlan, list[tuple[str, run.Prepared]]]:
            leaf = self._planner.leaf(index, column, self._kinds[index])
            if leaf.read is not None and leaf.conversion is not None:
                leaf = leaf._replace(prepared=self._prepare(leaf.read, leaf.conversion))
            beside = self._beside(index, leaf)
            marks = [
                (keyword, self._prepare(mark, conversion)) for keyword, mark, conversion in beside
            ]
            return leaf, marks

        for index, (leaf, beside) in enumerate(self._each(planned)):
            path, column = self._structure.path(index), self._columns[index]
            if leaf.prepared is None:
                # Here, because most batches have tensors only.
                from ..trees.tables import class_name

                kept.append(KeptLeaf(path, class_name(column[0]), _why_kept(leaf.kept, column)))
                continue
            if leaf.extent is None or not leaf.extent.is_needed:
                padded_to = None
            else:
                padded_to = leaf.extent.whole
            leaves.append(StackedLeaf(path, leaf.prepared.plan, padded_to))
            leaves += [
                StackedLeaf(
                    f'{path.removesuffix(chr(34) + "]")}_{keyword}"]', each.plan, None, keyword
                )
                for keyword, each in beside
            ]
        return BatchPlan(len(self._samples), tuple(leaves), tuple(kept))

    def _each(self, do: Callable[[int, Any], Any]) -> list[Any]:
        """Apply `do` to each column. Errors are raised together, with their paths.

        Raises:
            ConversionError: A leaf failed; if several did, a `TreeError`.
        """
        targets, padding = self._targets, self._padding
        if targets.decides_by_leaf:
            errors = self._read_as_asked()
        else:
            errors = {}
        if targets.rule.names or padding.by_name:
            takes = self._rule.takes
            tensors = [
                self._structure.name(index)
                for index, column in enumerate(self._columns)
                if any(map(takes, column))
            ]
            refuse_unknown_name(
                "dtype",
                targets.rule.names,
                tensors,
                self._why_no_tensor,
                targets.rule.without_names,
            )
            refuse_unknown_name("pad", padding.by_name, tensors, self._why_no_tensor)
        results: list[Any] = []
        for index, column in enumerate(self._columns):
            if index in errors:
                continue
            try:
                results.append(do(index, column))
            except ConversionError as error:
                errors[index] = _in_samples(error, self._structure.path(index))
        if errors:
            structure, rule = self._structure, self._targets.rule
            raise_all(errors, structure.path, rule, structure.name, "sample")
        return results

    def _why_no_tensor(self, name: str) -> tuple[str, str] | None:
        """Why the column with a dotted name is no tensor: see `refuse_unknown_name`."""
        # Here, because only an error needs what is for tables.
        from ..trees.tables import why_no_tensor

        names = self._structure.names()
        return why_no_tensor(self._columns[names.index(name)][0] if name in names else None)

    def _read_as_asked(self) -> dict[int, ConversionError]:
        """Read each column of a table as its dtype in ``dtype=``; errors are returned by leaf."""
        from ..trees.tables import may_be_column, read_as_asked

        errors: dict[int, ConversionError] = {}
        for index, column in enumerate(self._columns):
            kinds = self._kinds[index] - _NEVER_DATES
            if not (any(map(may_be_column, kinds)) or (kinds and any(map(has_dates, column)))):
                continue
            try:
                casting = self._targets.of(partial(self._structure.path, index)).request.casting
                name = self._structure.name(index)
                self._columns[index] = [
                    read_as_asked(leaf, self._targets.rule, name, casting) for leaf in column
                ]
                self._kinds[index] = set(map(type, self._columns[index]))
            except ConversionError as error:
                errors[index] = error
        return errors

    def _beside(self, index: int, leaf: ColumnPlan) -> list[tuple[str, NewArray, Conversion]]:
        """A padded leaf's mask and lengths: each a keyword, an array, and a conversion.

        Raises:
            UnsupportedTypeError: They cannot be put beside the leaf.
        """
        found = self._planner.marks_of(leaf)
        if not found:
            return []
        if self._places is None:
            self._places = list(self._structure.keys(self._samples[0]))
        place = self._places[index]
        for keyword, *_ in found:
            if place is None:
                raise UnsupportedTypeError(
                    f"{keyword}=True adds a leaf beside this one, "
                    "which is below no str key of a dict.",
                    hints.without(keyword),
                )
            mapping, key = place
            if f"{key}_{keyword}" in mapping:
                raise UnsupportedTypeError(
                    f"{keyword}=True adds {quoted(f'{key}_{keyword}')} beside this leaf, "
                    "and there is one.",
                    hints.without(keyword),
                )
        return found

    def _put_marks(self, batch: Any, marks: Sequence[tuple[int, str, Any]]) -> None:
        places = list(self._structure.keys(batch))
        for index, keyword, mark in marks:
            place = places[index]
            if place is None:
                raise at_path(
                    UnsupportedTypeError(
                        "The mapping that was made of this one takes no more keys.",
                        "a dict in its place",
                    ),
                    self._structure.path(index),
                )
            mapping, key = place
            mapping[f"{key}_{keyword}"] = mark


def _in_samples(error: ConversionError, path: str) -> ConversionError:
    """The error of the leaf at a path, with positions in samples instead of positions in a list."""
    message, hint = error.message.replace(" at x[", " in samples["), error.advice
    if message == error.message:
        return error
    return type(error)(message, hint and hint.for_sample(path.removeprefix("$")))


def _why_kept(kept: Any, column: Sequence[Any]) -> str:
    """What becomes of a leaf that is not a tensor, and why."""
    if kept is None:
        return "None in all samples: stays None"
    from ..trees.tables import class_name

    kinds = sorted(set(map(class_name, column)))
    return f"a list of {len(column)}: {' and '.join(kinds)} {'is' if len(kinds) == 1 else 'are'} no number or tensor"
