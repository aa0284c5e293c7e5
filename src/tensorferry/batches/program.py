"""`BatchPrograms`: how samples of one structure become a batch, found by the next samples.

As `trees.program`, for samples: the containers, the types of the leaves of each column, and what
becomes of it. A batch is checked against a program while its samples are taken apart. What no
program is made for, and every error, is the matter of `Collation`.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends import fast_paths, registry, together
from ..backends.base import Backend
from ..backends.nodes import Node
from ..core.info import TensorInfo
from ..core.leaf_dtypes import place_of_name
from ..core.named_tuple import NamedTuple
from ..errors import PlanViolation
from ..execution import run
from ..sequences.columns import apart
from ..sequences.numbers import PYTHON_NUMBERS, types_in
from ..trees.containers import PLAIN
from ..trees.failures import refuse_unknown_name
from ..trees.leaves import UNKNOWN
from ..trees.structure import Container, are_alike, labels_of
from ..trees.walk import is_row, take_apart
from .padding import NOT_PADDED
from .stacking import Columns

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from ..execution.recipes import Recipe
    from ..trees.leaves import LeafRule
    from ..trees.targets import Targets
    from .padding import Padding

    Marks = dict[int, list[tuple[str, Any]]]

__all__ = ["BatchProgram", "BatchPrograms"]

_ALTERNATIVES = 8
"""How many programs are kept for samples that look alike at first sight."""
_MOST = 64
"""For how many different first sights programs are kept."""
_MOST_COLUMNS = 1 << 16
"""The most columns of all programs of one request together."""
_MOST_RECIPES = 256
"""The most recipes of one request, and the most kinds of leaves that are known."""
_NEVER_COLUMNS = PLAIN | {list, np.ndarray}
"""Types of leaves that are no columns of tables."""


class _NoProgramError(Exception):
    """There is no program for a batch."""


# -- containers ------------------------------------------------------------------------------------


def take_columns(
    container: Container, samples: list[Any], columns: list[list[Any]], wholes: list[Any]
) -> bool:
    """Take samples apart. Whether they are such containers, all with the same keys.

    Args:
        container: The container.
        samples: The samples.
        columns: Their columns are added here: the values of all for each position.
        wholes: What the first of each container is made again from is added here.
    """
    found = _in_columns(container, samples)
    if found is None or len(found[1]) != container.size:
        return False
    whole, values = found
    wholes.append(whole)
    start = 0
    for at, inner in container.inner:
        columns += values[start:at]
        if not take_columns(inner, values[at], columns, wholes):
            return False
        start = at + 1
    columns += values[start:]
    return True


def _in_columns(container: Container, samples: list[Any]) -> tuple[Any, list[list[Any]]] | None:
    """What the first of some containers is made again from, and the columns of all."""
    kind = container.kind
    if types_in(samples) != {kind}:
        return None
    first = container.opened(samples[0])
    if first is None:
        return None
    whole = first[0]
    is_itself = first[1] is samples[0] and issubclass(kind, (list, tuple))
    if is_itself or type(whole) is kind:
        columns = apart([whole if type(whole) is kind else samples[0], *samples[1:]])
    else:
        others = list(map(container.opened, samples[1:]))
        if not all(other is not None and _are_alike(whole, other[0]) for other in others):
            return None
        columns = apart([tuple(values) for _, values in (first, *others)])  # type: ignore[misc]
    return None if columns is None else (whole, columns)


def _are_alike(whole: Any, other: Any) -> bool:
    """Whether containers have the same keys and attributes, and one stands in a batch."""
    return are_alike(whole, other) and not (isinstance(other, Node) and other.no_batch is not None)


def make_batch(
    container: Container, wholes: Iterator[Any], columns: Iterator[Any], count: int
) -> Any:
    """Make the container for a batch.

    Args:
        container: The container of a sample.
        wholes: What `take_columns` added.
        columns: What has become of the columns.
        count: The number of samples.
    """
    values: list[Any] = []
    whole, start = next(wholes), 0
    for at, inner in container.inner:
        values += islice(columns, at - start)
        values.append(make_batch(inner, wholes, columns, count))
        start = at + 1
    values += islice(columns, container.size - start)
    if isinstance(whole, Node) and whole.stack is not None:
        return whole.stack(values, count)
    return container.make(whole, values)


# -- programs --------------------------------------------------------------------------------------


class ColumnKind(NamedTuple):
    """The leaves of a column, and what becomes of them.

    Args:
        types: Their types.
        convert: Makes the tensor, or the list, by the arguments of `BatchPrograms.tensors`.
        value: The number with which they are padded; ``None`` if they are not.
        among: Which name in ``dtype=`` is theirs; ``None`` if none is.
    """

    types: set[type]
    convert: Callable[[BatchPrograms, BatchProgram, int, list[Any], Marks], Any]
    value: Any
    among: int | None


class BatchProgram(NamedTuple):
    """How samples of one structure become a batch.

    Args:
        root: The outermost container; ``None`` if each sample is one leaf.
        labels: What `labels_of` gives for the containers, if names matter; otherwise ``None``.
        columns: The kind of each column.
        routes: The position of each leaf in its container, after those of the containers around.
        planner: Plans what becomes of a column that is not known yet.
    """

    root: Container | None
    labels: list[Any] | None
    columns: list[ColumnKind]
    routes: list[tuple[int, ...]]
    planner: Columns

    def take(self, samples: list[Any], rule: LeafRule) -> tuple[list[list[Any]], list[Any]] | None:
        """The columns of samples, and what containers are made from; ``None`` for other samples."""
        columns: list[list[Any]] = []
        wholes: list[Any] = []
        if self.root is None:
            columns.append(samples)
        elif not take_columns(self.root, samples, columns, wholes):
            return None
        if wholes and not self._are_alike(wholes, rule):
            return None
        for column, kind in zip(columns, self.columns, strict=True):
            if types_in(column) != kind.types:
                return None
            if list in kind.types and not is_row(column[0][:1]):
                return None  # it is a container
        return columns, wholes

    def _are_alike(self, wholes: list[Any], rule: LeafRule) -> bool:
        """Whether containers have the names that matter, and no tensors beside their values."""
        if self.labels is not None and labels_of(wholes) != self.labels:
            return False
        if not rule.refuses:
            return True
        statics = [whole.static for whole in wholes if isinstance(whole, Node) and whole.static]
        return all(map(rule.is_free, statics))

    def put_marks(self, batch: Any, marks: Marks) -> None:
        """Put masks and lengths beside the leaves that they belong to.

        Raises:
            _NoProgramError: They cannot be put there, or not in this way.
        """
        for index, found in marks.items():
            mapping = batch
            *outer, last = self.routes[index]
            for at in outer:
                if isinstance(mapping, dict):
                    mapping = list(mapping.values())
                mapping = mapping[at]
            if not isinstance(mapping, dict):
                raise _NoProgramError
            key = list(mapping)[last]
            for keyword, mark in found:
                if not isinstance(key, str) or f"{key}_{keyword}" in mapping:
                    raise _NoProgramError
                mapping[f"{key}_{keyword}"] = mark


class BatchPrograms:
    """The programs of one request.

    Args:
        targets: The targets of the leaves, the same for all.
        rule: The rule for which leaves are stacked; without a user's callable.
        padding: How leaves are padded.
    """

    __slots__ = (
        "_by_name",
        "_columns",
        "_idle",
        "_is_ordinary",
        "_kept",
        "_padding",
        "_paths",
        "_recipes",
        "_rule",
        "_targets",
    )

    def __init__(self, targets: Targets, rule: LeafRule, padding: Padding = NOT_PADDED) -> None:
        self._targets = targets
        self._rule = rule
        self._padding = padding
        self._kept: dict[Any, tuple[BatchProgram, ...]] = {}
        self._columns = 0
        self._recipes: dict[Hashable, Recipe] = {}
        self._idle: dict[Hashable, bool] = {}
        self._by_name = bool(targets.rule.names or padding.by_name)
        common: Any = targets.common
        self._is_ordinary = common.request.is_ordinary and not targets.decides_by_leaf
        self._paths = fast_paths.paths_to(common.target.name)

    def collate(self, samples: list[Any]) -> Any:
        """Make a batch; `NotImplemented` if it is a matter for `Collation`."""
        try:
            # A copy, which no other thread can change.
            found = self._find(samples.copy())
            if found is None:
                return NotImplemented
            made, columns, wholes = found
            marks: Marks = {}
            if made.root is None:
                batch = made.columns[0].convert(self, made, 0, columns[0], marks)
            else:
                results = [
                    kind.convert(self, made, index, column, marks)
                    for index, (kind, column) in enumerate(zip(made.columns, columns, strict=True))
                ]
                batch = make_batch(made.root, iter(wholes), iter(results), len(samples))
            if marks:
                made.put_marks(batch, marks)
        except PlanViolation:
            raise
        except Exception:  # noqa: BLE001 - the error is raised there, with the path of the leaf
            return NotImplemented
        return batch

    # -- find -------------------------------------------------------------------------------------

    def _find(self, samples: list[Any]) -> tuple[BatchProgram, list[list[Any]], list[Any]] | None:
        first = samples[0]
        kind, size = type(first), 0
        if issubclass(kind, (dict, tuple, list)):
            size = len(first)
        sight = kind, size
        programs = self._kept.get(sight, ())
        for made in programs:
            taken = made.take(samples, self._rule)
            if taken is not None:
                if made is not programs[0]:
                    # The one that was used last is tried first.
                    self._kept[sight] = made, *[each for each in programs if each is not made]
                return made, *taken
        made = self._make(samples)
        taken = made.take(samples, self._rule)
        if taken is None:
            return None
        self._columns += len(made.columns)
        if self._columns > _MOST_COLUMNS or len(self._kept) >= _MOST:
            self._kept = {}
            self._columns = len(made.columns)
            programs = ()
        self._columns -= sum(len(each.columns) for each in programs[_ALTERNATIVES - 1 :])
        self._kept[sight] = made, *programs[: _ALTERNATIVES - 1]
        return made, *taken

    # -- make -------------------------------------------------------------------------------------

    def _make(self, samples: list[Any]) -> BatchProgram:
        """The program for samples.

        Raises:
            _NoProgramError: There is none.
            ConversionError: They cannot be stacked.
        """
        _, structure = take_apart(samples[0], rows=self._rule.takes_rows)
        root, routes = structure.root, structure.routes()
        if any(node.no_batch is not None for node in structure.nodes()):
            raise _NoProgramError
        columns: list[list[Any]] = []
        if root is None:
            columns.append(samples)
        elif not take_columns(root, samples, columns, []):
            raise _NoProgramError
        names = [""] * len(columns)
        if self._by_name:
            names = structure.names()
            if len(names) != len(columns):
                raise _NoProgramError
        kinds = list(map(self._kind_of, columns, names))
        if root is None and kinds[0].convert is BatchPrograms.kept:
            raise _NoProgramError
        if any(
            len(kind.types) > 1
            and kind.convert is BatchPrograms.planned
            and _is_in_list(root, route)
            for kind, route in zip(kinds, routes, strict=True)
        ):
            raise _NoProgramError  # of other types, the list may be one leaf
        if self._by_name:
            self._refuse_unknown_names(kinds, names)
        # By their names, or by none: errors are raised elsewhere.
        name = names.__getitem__
        planner = Columns(self._targets, self._rule, self._padding, run.prepare, name, name)
        labels = labels_of(structure.kept) if self._by_name else None
        return BatchProgram(root, labels, kinds, routes, planner)

    def _kind_of(self, column: list[Any], name: str) -> ColumnKind:
        """What becomes of a column.

        Raises:
            _NoProgramError: There is no program for samples with such a column.
        """
        types, rule = types_in(column), self._rule
        if self._may_be_columns(types):
            raise _NoProgramError
        answers = [rule.answer_of(type(x), x) for x in {type(x): x for x in column}.values()]
        kind, answer = type(column[0]), answers[0]
        are_tensors = all(each is True or isinstance(each, Backend) for each in answers)
        if any(issubclass(each, (TensorInfo, np.void)) for each in types):
            raise _NoProgramError
        if len(types) > 1 and are_tensors and list not in types:
            convert: Any = BatchPrograms.planned
        elif set(answers) == {False} and (len(types) == 1 or types <= PLAIN):
            convert = BatchPrograms.kept
        elif len(types) > 1 or answer is None:
            raise _NoProgramError
        elif answer is UNKNOWN:
            convert = BatchPrograms.searched
        elif kind is list:
            convert = BatchPrograms.planned
        elif kind in PYTHON_NUMBERS or issubclass(kind, np.generic):
            convert = BatchPrograms.numbers
        else:
            convert = BatchPrograms.tensors
        names = tuple([each for each, _ in self._targets.rule.names])
        value = self._padding.value_of(lambda: name)
        return ColumnKind(types, convert, value, place_of_name(names, name))

    def _may_be_columns(self, types: set[type]) -> bool:
        """Whether leaves may be columns of tables, which are read as the keywords ask for."""
        others = types - _NEVER_COLUMNS
        if not others or not (self._targets.decides_by_leaf or self._padding.adds):
            return False
        from ..trees.tables import may_be_column  # here, because most batches have no columns

        if any(map(may_be_column, others)):
            return True
        return self._padding.adds and any(issubclass(kind, np.ndarray) for kind in others)

    def _refuse_unknown_names(self, kinds: Sequence[ColumnKind], names: list[str]) -> None:
        """Raise if a mapping in ``dtype=`` or ``pad=`` has a name that no tensor has.

        Raises:
            UnsupportedTypeError: It has.
        """
        tensors = [
            name
            for name, kind in zip(names, kinds, strict=True)
            if kind.convert not in (BatchPrograms.kept, BatchPrograms.searched)
        ]
        refuse_unknown_name("dtype", self._targets.rule.names, tensors)
        refuse_unknown_name("pad", self._padding.by_name, tensors)

    # -- run --------------------------------------------------------------------------------------

    def kept(self, _made: BatchProgram, _index: int, column: list[Any], _marks: Marks) -> Any:
        """What becomes of objects that are no tensors: a list, or ``None``."""
        return None if all(each is None for each in column) else column

    def searched(self, _made: BatchProgram, _index: int, column: list[Any], _marks: Marks) -> Any:
        """The same of objects that may hold a tensor.

        Raises:
            UnsupportedTypeError: One does.
        """
        for each in column:
            if self._rule.takes(each):
                raise _NoProgramError
        return column

    def numbers(self, made: BatchProgram, index: int, column: list[Any], marks: Marks) -> Any:
        """The tensor of Python numbers of one type."""
        result = self._by_fast_path(made, index, column)
        if result is None:
            return self.planned(made, index, column, marks)
        return result

    def tensors(self, made: BatchProgram, index: int, column: list[Any], marks: Marks) -> Any:
        """The tensor of tensors of one type.

        Args:
            made: The program.
            index: The number of the column.
            column: Its leaves.
            marks: Its mask and lengths are added here, if they are wanted.

        Raises:
            _NoProgramError: They are text.
            ConversionError: They cannot be stacked or converted.
        """
        kind = made.columns[index]
        if kind.value is not None and len(column[0].shape):
            return self.planned(made, index, column, marks)
        result = self._by_fast_path(made, index, column)
        if result is not None:
            return result
        signature = together.signature(column)
        if signature is None:
            return self.planned(made, index, column, marks)
        conversion: Any = self._targets.common
        key = signature, kind.among, conversion.environment()
        recipe = self._recipes.get(key)
        if recipe is not None and not run.is_verifying():
            return run.execute(recipe.program, column)
        prepared = made.planner.leaf(index, column, kind.types).prepared
        if prepared is None:
            raise _NoProgramError
        if recipe is not None:
            result = run.execute(recipe.program, column)
            run.verify(prepared._replace(recipe=recipe), result)
            return result
        # Another thread may have changed one of them meanwhile.
        if prepared.info.abstract is None and together.signature(column) == signature:
            if len(self._recipes) >= _MOST_RECIPES:
                self._recipes = {}
            self._recipes[key] = prepared.recipe
        return run.complete(prepared)

    def _by_fast_path(self, made: BatchProgram, index: int, column: list[Any]) -> Any:
        """The result of the target's fast path; ``None`` if there is none that takes the column."""
        path = self._paths.get(list)
        if path is None or not (self._is_ordinary or self._asks_nothing(made, index, column[0])):
            return None
        try:
            return path(column)
        except fast_paths.NOT_ACCEPTED:
            return None

    def _asks_nothing(self, made: BatchProgram, index: int, first: Any) -> bool:
        """Whether the request asks of a column only the dtype and the device that it has anyway."""
        conversion: Any = self._targets.common
        kind, likeness = type(first), None
        if kind not in PYTHON_NUMBERS:
            owner = registry.BY_TYPE.get(kind)
            likeness = None if owner is None else owner.quick.likeness(first)
            if likeness is None:
                return False
        key = kind, likeness, made.columns[index].among, conversion.environment()
        known = self._idle.get(key)
        if known is None:
            if len(self._idle) >= _MOST_RECIPES:
                self._idle = {}
            known = self._idle[key] = made.planner.asks_nothing(index, first)
        return known

    def planned(self, made: BatchProgram, index: int, column: list[Any], marks: Marks) -> Any:
        """The tensor of a column that is planned as if it were the first one.

        Raises:
            _NoProgramError: One is a container: a list with something else than numbers, or an
                array with fields. Or they are text.
            ConversionError: They cannot be stacked or converted.
        """
        types, planner = made.columns[index].types, made.planner
        plan = planner.leaf(index, column, types)
        is_kept = plan.read is None and plan.prepared is None
        if is_kept or (plan.read is None and list in types and not all(map(is_row, column))):
            raise _NoProgramError
        if np.ndarray in types and any(x.dtype.names for x in column if type(x) is np.ndarray):
            raise _NoProgramError
        beside, result = planner.marks_of(plan), plan.run()
        if beside:
            marks[index] = [(keyword, run.convert(mark, by)) for keyword, mark, by in beside]
        return result


def _is_in_list(container: Container | None, route: tuple[int, ...]) -> bool:
    """Whether a leaf is in a list, at any depth."""
    for at in route:
        if container is None or container.kind is list:
            break
        container = dict(container.inner).get(at)
    return container is not None and container.kind is list
