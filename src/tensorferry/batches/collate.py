"""Samples become a batch: `Samples` are looked at, `Collation` plans and converts."""

from __future__ import annotations

from functools import lru_cache, partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import hints
from ..backends import fast_paths, registry
from ..backends.no_tensor import UNCALLED
from ..core import dtypes
from ..core.devices import HOST
from ..errors import ConversionError, ShapeError, UnsupportedTypeError, an
from ..execution import run
from ..execution.recipes import conversion_of
from ..hints import Hint, quoted
from ..host.numpy_dtypes import has_dates, of_numpy
from ..sequences import numbers
from ..sequences.columns import begins_with_number
from ..sequences.diagnostics import DEEPEST
from ..sequences.reader import NewArray
from ..trees.containers import PLAIN, openers_of
from ..trees.failures import raise_all, refuse_unknown_name
from ..trees.structure import Structure, at_path, equal
from ..trees.walk import columns_alike, is_row, take_apart
from .padding import NOT_PADDED, Padding
from .stacking import ColumnPlan, Columns, NotRowsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..execution.recipes import Conversion
    from ..trees.leaves import LeafRule
    from ..trees.targets import Targets
    from .plans import BatchPlan


__all__ = ["Collation"]


# -- samples ---------------------------------------------------------------------------------------

_ONE_LEAF = take_apart(None)[1]

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


class _PlainColumns:
    """The columns of samples that are plain dicts, lists and tuples: see `plain_columns`.

    Args:
        rows: Whether a plain list of numbers below a key is a leaf.
    """

    def __init__(self, *, rows: bool) -> None:
        self.columns: list[Any] = []
        self.kinds: list[set[type]] = []
        """The types of the leaves of each."""
        self._rows = rows

    def take(self, column: list[Any], depth: int = 0, *, below_key: bool = False) -> Any:
        """Add the columns within one; gives the containers around their leaves.

        Raises:
            _NotPlainError: Samples may have different structures, or other containers.
        """
        kinds, kind = numbers.types_in(column), type(column[0])
        if kinds.isdisjoint(_CONTAINERS):
            if not all(_are_leaves(each, column) for each in kinds):
                raise _NotPlainError
            return self._add(column, kinds)
        if len(kinds) > 1 or depth == DEEPEST:
            raise _NotPlainError
        if kind is dict:
            return self._take_dicts(column, depth + 1)
        if kind is list and below_key and self._rows:
            if begins_with_number(column):
                return self._add(column, kinds)
            if any(map(is_row, column)):
                raise _NotPlainError
        try:
            inside = list(map(list, zip(*column, strict=True)))
        except ValueError:  # of other lengths
            raise _NotPlainError from None
        return kind([self.take(inner, depth + 1) for inner in inside])

    def _add(self, column: list[Any], kinds: set[type]) -> None:
        self.columns.append(column)
        self.kinds.append(kinds)

    def _take_dicts(self, column: list[Any], depth: int) -> Any:
        keys = column[0].keys()
        inside: Iterable[Any]
        # Faster, for the usual case that all have the same order of keys.
        if len(set(map(tuple, column))) == 1:
            inside = zip(*map(_VALUES, column), strict=True)
        elif all(each.keys() == keys for each in column):
            inside = [map(itemgetter(key), column) for key in keys]
        else:
            raise _NotPlainError
        return {
            key: self.take(list(each), depth, below_key=True)
            for key, each in zip(keys, inside, strict=True)
        }


class _NotPlainError(Exception):
    """Samples whose structures differ, or that have other containers than plain ones."""


def plain_columns(
    samples: list[Any], rule: LeafRule
) -> tuple[list[Any], Structure, list[set[type]]] | None:
    """`columns_of` for samples that are plain dicts, lists and tuples, and the types of leaves.

    It is faster, and gives ``None`` for other samples. A list below a key that begins with a number
    is taken for a leaf; only when it is read is it known whether it is one.
    """
    if rule.chosen is not None or not samples:
        return None
    found = _PlainColumns(rows=rule.takes_rows)
    try:
        frame = found.take(samples)
    except _NotPlainError:
        return None
    return found.columns, take_apart(frame)[1], found.kinds


_VALUES = dict.values
_CONTAINERS = frozenset({dict, list, tuple})
_NEVER_DATES = PLAIN | {list}
"""Types of leaves that are never columns of dates, whatever they hold."""


def _are_leaves(kind: type, column: Sequence[Any]) -> bool:
    """Whether objects of a type are leaves."""
    if kind in PLAIN:
        return True
    return (registry.is_known_tensor(kind) or registry.is_tensor(kind)) and not openers_of(
        kind, column
    )


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
        self._samples = samples
        self._targets = targets
        self._rule = rule
        self._of_columns = of_columns
        if asked is None:
            self._padding = NOT_PADDED
        else:
            self._padding = Padding(**asked)
        self._prepare = run.prepare_unread if looks else run.prepare
        plain = plain_columns(samples, rule)
        if plain is None or (
            of_columns is not None and any(map(may_have_columns, plain[0], plain[2]))
        ):
            self._look_at_all()
        else:
            self._look(*plain)

    def _look_at_all(self) -> None:
        """Find the columns of any samples."""
        masks: list[Any] = []
        if self._of_columns is not None:
            # A table must become a dict first, in which a mask can be put beside a column.
            from ..trees.tables import with_column_keywords

            self._samples = [
                with_column_keywords(each, index=False, masks=masks, **self._of_columns)
                for each in self._samples
            ]
        if not self._samples:
            raise ShapeError("There are no samples to collate.", None)
        columns, structure = columns_of(self._samples, self._rule)
        self._look(columns, structure, list(map(numbers.types_in, columns)), masks)

    def _look(
        self,
        columns: list[Any],
        structure: Structure,
        kinds: list[set[type]],
        masks: Sequence[Any] = (),
    ) -> None:
        self._columns, self._structure, self._kinds = columns, structure, kinds
        known = frozenset(map(id, masks))  # the samples keep them
        self._planner = Columns(
            self._targets,
            self._rule,
            self._padding,
            self._prepare,
            structure.path,
            structure.name,
            known,
        )
        self._places: list[tuple[Any, str] | None] | None = None

    def stack(self) -> Any:
        """Make the batch.

        Raises:
            ConversionError: A leaf cannot be stacked or converted; several raise a `TreeError`.
        """
        try:
            return self._stack()
        except NotRowsError:
            self._look_at_all()
            return self._stack()

    def _stack(self) -> Any:
        marks: list[tuple[int, str, Any]] = []
        path = self._fast_path()

        def done(index: int, column: Any) -> Any:
            if path is not None and registry.is_known_tensor(type(column[0])):
                result = _tried(path, column)
                if result is not None:
                    return result
            leaf = self._planner.leaf(index, column, self._kinds[index])
            if leaf.read is not None and leaf.conversion is not None:
                result = run.convert(leaf.read, leaf.conversion)
            elif leaf.prepared is not None:
                result = run.complete(leaf.prepared)
            else:
                return leaf.kept
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
        try:
            return self._plan()
        except NotRowsError:
            self._look_at_all()
            return self._plan()

    def _plan(self) -> BatchPlan:
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

    def _fast_path(self) -> Callable[[list[Any]], Any] | None:
        """The target's fast path for a list of samples, if no keyword prevents it."""
        common = self._targets.common
        if common is None or self._targets.decides_by_leaf or not common.request.is_ordinary:
            return None
        if self._rule.chosen is not None or self._padding.on:
            return None
        registry.ready(common.target.name)
        return fast_paths.paths_to(common.target.name).get(list)

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

        return why_no_tensor(self._leaf_named(name))

    def _leaf_named(self, name: str) -> Any:
        """The first sample's leaf with a dotted name; ``None`` if there is none."""
        names = map(self._structure.name, range(len(self._columns)))
        return next(
            (column[0] for each, column in zip(names, self._columns, strict=True) if each == name),
            None,
        )

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
        if leaf.extent is None:
            found = []
        else:
            found = self._padding.marks_of(leaf.extent)
        if not found:
            return []
        if leaf.conversion is not None:
            conversion = _of_marks(leaf.conversion)
        elif leaf.prepared is not None:
            # On the device of the leaf.
            request = leaf.prepared.request
            if request.device is None and request.placement is None:
                device = leaf.prepared.recipe.plan.result.device
                request = request._replace(device=None if device == HOST else device)
            conversion = _of_marks(conversion_of(leaf.prepared.target, request))
        else:
            return []
        if self._places is None:
            self._places = self._keys(self._samples[0])
        place = self._places[index]
        for keyword, _ in found:
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
        return [(keyword, NewArray(mark), conversion) for keyword, mark in found]

    def _keys(self, tree: Any) -> list[tuple[Any, str] | None]:
        """For each leaf, the mapping that holds it, and its key there: see `Structure.keys`."""
        return self._structure.keys(tree)

    def _put_marks(self, batch: Any, marks: Sequence[tuple[int, str, Any]]) -> None:
        places = self._keys(batch)
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


@lru_cache(maxsize=256)
def _of_marks(conversion: Conversion) -> Conversion:
    """The conversion of masks and lengths beside a leaf with this conversion."""
    request = conversion.request._replace(dtype=dtypes.FIT, casting=None)
    return conversion_of(conversion.target, request)


def may_have_columns(column: list[Any], kinds: set[type]) -> bool:
    """Whether a leaf of plain samples may be a column of a table, or an array of another's nulls.

    The others are left as they are by the keywords for columns.
    """
    kinds = kinds - _NEVER_DATES
    if not kinds:
        return False
    from ..trees.tables import may_be_column  # here, because most batches have no columns

    kinds.discard(np.ndarray)
    if any(issubclass(kind, (np.ndarray, np.generic)) or may_be_column(kind) for kind in kinds):
        return True
    return any(of_numpy(each.dtype) is None for each in column if type(each) is np.ndarray)


def _tried(path: Callable[[list[Any]], Any], column: list[Any]) -> Any:
    """The result of a fast path; ``None`` if it does not accept the column."""
    try:
        return path(column)
    except fast_paths.NOT_ACCEPTED:
        return None


def _why_kept(kept: Any, column: Sequence[Any]) -> str:
    """What becomes of a leaf that is not a tensor, and why."""
    if kept is None:
        return "None in all samples: stays None"
    from ..trees.tables import class_name

    kinds = sorted(set(map(class_name, column)))
    return f"a list of {len(column)}: {' and '.join(kinds)} {'is' if len(kinds) == 1 else 'are'} no number or tensor"
