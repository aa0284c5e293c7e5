"""`collate`: a list of trees as one tree of stacked tensors; `explain_collate`: the plans of those."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..backends import registry
from ..backends.base import EXCHANGE
from ..core import dtypes
from ..core.devices import HOST
from ..core.leaf_dtypes import quoted
from ..core.request import Request
from ..errors import ConversionError, LossyCastError, ShapeError, UnsupportedTypeError, shown
from ..execution import run
from ..execution.recipes import conversion_of
from ..host import memory
from ..sequences.members import Members, look_at
from ..sequences.reader import PYTHON_NUMBERS, NewArray
from .batch_plans import BatchPlan, KeptLeaf, StackedLeaf
from .kinds import dtype_together, kinds_met
from .padding import NOT_PADDED, Padding, common_dtype, extent_of, filling, without_nothing
from .rows import RowsRead
from .samples import columns_of
from .structure import placed
from .tree_conversion import raise_all, refuse_unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..backends.base import Backend
    from ..execution.recipes import Conversion
    from .kinds import Met
    from .leaves import LeafRule
    from .padding import Extent
    from .targets import Targets

__all__ = ["Batch"]


class _Leaf(NamedTuple):
    """What becomes of one leaf of all samples.

    Args:
        prepared: The conversion of what they are together; ``None``: they stay objects.
        kept: What they are then.
        extent: How far they are padded; ``None``: they are not.
        beside: What comes beside it: by which keyword, and its conversion.
    """

    prepared: run.Prepared | None
    kept: Any = None
    extent: Extent | None = None
    beside: Sequence[tuple[str, run.Prepared]] = ()


class Batch:
    """Samples as columns, each of which becomes one tensor: see `tensorferry.collate`.

    Args:
        samples: The samples.
        targets: Where their leaves go.
        rule: Which leaves are stacked.
        asked: How leaves are padded, as `Padding` takes it; ``None``: not at all.
        looks: Whether it is only looked what would be done.

    Raises:
        ShapeError: There are no samples.
        UnsupportedTypeError: They are different trees.
    """

    def __init__(
        self,
        samples: Sequence[Any],
        targets: Targets,
        rule: LeafRule,
        asked: dict[str, Any] | None,
        *,
        looks: bool = False,
    ) -> None:
        if not samples:
            raise ShapeError("There are no samples to collate.", None)
        self._samples = samples
        self._targets = targets
        self._rule = rule
        self._padding = NOT_PADDED if asked is None else Padding(**asked)
        self._prepare = run.foresee if looks else run.prepare
        self._columns, self._structure = columns_of(samples, rule)
        self._paths: list[str] | None = None
        self._names: list[str] | None = None
        self._places: list[tuple[Any, str] | None] | None = None

    def _path(self, index: int) -> str:
        if self._paths is None:
            self._paths = self._structure.paths()
        return self._paths[index]

    def _name(self, index: int) -> str:
        if self._names is None:
            self._names = self._structure.names()
        return self._names[index]

    def stack(self) -> Any:
        """The batch.

        Raises:
            ConversionError: A leaf cannot be stacked or converted; several raise a `TreeError`.
        """
        marks: list[tuple[int, str, Any]] = []
        path = self._fast_path()

        def done(index: int, column: Any) -> Any:
            if path is not None and type(column) is list and registry.is_known_tensor(type(column[0])):
                result = _tried(path, column)
                if result is not None:
                    return result
            leaf = self._leaf(index, column)
            if leaf.prepared is None:
                return leaf.kept
            result = run.convert_prepared(leaf.prepared)
            marks.extend((index, keyword, run.convert_prepared(each)) for keyword, each in leaf.beside)
            return result

        batch = self._structure.rebuild(self._each(done), len(self._samples))
        if marks:
            self._put_marks(batch, marks)
        return batch

    def plan(self) -> BatchPlan:
        """What `stack` would do.

        Raises:
            ConversionError: The same as `stack`, except for what only the values show.
        """
        leaves: list[StackedLeaf] = []
        kept: list[KeptLeaf] = []
        for index, leaf in enumerate(self._each(self._leaf)):
            path, column = self._path(index), self._columns[index]
            if leaf.prepared is None:
                kept.append(KeptLeaf(path, type(column[0]).__name__, _why_kept(leaf.kept, column)))
                continue
            padded_to = None if leaf.extent is None or not leaf.extent.is_needed else leaf.extent.whole
            leaves.append(StackedLeaf(path, leaf.prepared.plan, padded_to))
            leaves += [
                StackedLeaf(f'{path.removesuffix(chr(34) + "]")}_{keyword}"]', each.plan, None, keyword)
                for keyword, each in leaf.beside
            ]
        return BatchPlan(len(self._samples), tuple(leaves), tuple(kept))

    def _fast_path(self) -> Callable[[list[Any]], Any] | None:
        """The target's fast path for a list, if nothing is asked that it does not know."""
        common = self._targets.common
        if common is None or self._targets.decides_by_leaf or not common.request.is_ordinary:
            return None
        if self._rule.chosen is not None or self._padding.on:
            return None
        registry.ready(common.target.name)
        return registry.lanes_to(common.target.name).get(list)

    def _each(self, do: Callable[[int, Any], Any]) -> list[Any]:
        """What is done with each column; errors are raised together, with their paths.

        Raises:
            ConversionError: It fails for a leaf; for several, a `TreeError`.
        """
        targets, padding = self._targets, self._padding
        if targets.rule.names or padding.goes_by_name:
            takes = self._rule.takes
            tensors = [
                self._name(index)
                for index, column in enumerate(self._columns)
                if type(column) is RowsRead or any(map(takes, column))
            ]
            refuse_unknown_name(targets.rule, tensors)
            padding.refuse_unknown(tensors)
        results: list[Any] = []
        errors: dict[int, ConversionError] = {}
        for index, column in enumerate(self._columns):
            try:
                results.append(do(index, column))
            except ConversionError as error:
                errors[index] = _in_samples(error)
        raise_all(errors, self._path)
        return results

    # -- one column ---------------------------------------------------------------------------------

    def _leaf(self, index: int, column: Any) -> _Leaf:
        """What becomes of a column."""
        if type(column) is not RowsRead and not self._is_stacked(column):
            return _Leaf(None, None if all(each is None for each in column) else column)
        conversion = self._targets.of(lambda: self._path(index))
        target, request = registry.ready(conversion.target.name), conversion.request
        value = self._padding.value_of(lambda: self._name(index)) if self._padding.on else None
        nothing = type(column) is list and self._rule.takes_rows and not any(type(x) is not list or x for x in column)
        if nothing and value is None:
            return _Leaf(None, [])
        members = None if value is None and _are_numbers(column) else _looked_at(column)
        met = None if type(column) is RowsRead else kinds_met(column, members)
        if value is not None and members is not None:
            padded = self._padded(index, column, members, met, value, target, request)
            if padded is not None:
                return padded
            members = None if _are_numbers(column) else members
        prepared = self._stacked(index, column, members, met, target, request)
        return _Leaf(prepared, None, None)

    def _is_stacked(self, column: Sequence[Any]) -> bool:
        """Whether the leaves of a column are tensors.

        Raises:
            UnsupportedTypeError: Some are.
        """
        taken = self._rule.takes_each(column)
        if all(taken):
            return True
        if not any(taken):
            return False
        odd = taken.index(not taken[0])
        raise UnsupportedTypeError(
            f"Sample 0 has a {type(column[0]).__name__} there, sample {odd} a {type(column[odd]).__name__}: "
            "they do not stack.",
            "fill what is missing first, or leaves= a callable that says no to it",
        )

    def _stacked(
        self, index: int, column: Any, members: Members | None, met: Met | None, target: Backend, request: Request
    ) -> run.Prepared:
        """The conversion of a column whose leaves are of one shape.

        Raises:
            ShapeError: They are not.
            LossyCastError: Integers meet floats.
        """
        conversion, decide = conversion_of(target, request), self._decider(index, target, request)
        if type(column) is RowsRead:
            return self._prepare(NewArray(self._row_of(index, column), weak=True), conversion, None, decide)
        apart = met is not None and (met.differ or met.numbers_among_tensors)
        if members is None and not apart:
            try:
                return self._prepare(column, conversion, None, decide)
            except ShapeError as error:
                if type(column[0]) is list:
                    _looked_at(column)  # raises if the rows inside one sample are of unequal lengths
                raise self._ragged(index, error.message) from error
        members = _looked_at(column) if members is None else members
        if decide is not None:
            request, decide = _decided(decide, members).request, None
        if met is not None and met.differ:
            self._refuse_mixture(index, met, request, target)
            members = members._replace(asked=_asked(request, request.dtype))
        elif apart:
            members = members._replace(asked=_asked(request, common_dtype(members.infos, target, request)))
        try:
            members = members.stacked((len(column),))
        except ShapeError as error:
            raise self._ragged(index, error.message) from error
        return self._prepare(members, conversion_of(target, request))

    def _row_of(self, index: int, rows: RowsRead) -> Any:
        """The numbers of rows of one length."""
        lengths = rows.lengths
        odd = next((number for number, length in enumerate(lengths) if length != lengths[0]), None)
        if odd is not None:
            raise self._ragged(
                index,
                f"Rows of unequal lengths do not stack: {lengths[0]} in samples[0], {lengths[odd]} in samples[{odd}].",
            )
        return rows.numbers.reshape(len(lengths), -1)

    def _decider(self, index: int, target: Backend, request: Request) -> Callable[[Any], Conversion] | None:
        """Gives the conversion by what a column is together, where it depends on that."""
        targets = self._targets
        if not targets.decides_by_leaf:
            return None
        conversion, name, path = conversion_of(target, request), partial(self._name, index), partial(self._path, index)
        return lambda info: targets.asked_of(conversion, info.dtype, name, path)

    def _ragged(self, index: int, message: str) -> ShapeError:
        name = self._name(index)
        return ShapeError(message, f"pad={{{quoted(name)}: 0}}" if name else "pad=0")

    def _refuse_mixture(self, index: int, met: Met, request: Request, target: Backend) -> None:
        """Refuse a column in which integers meet floats, unless it has been said what they become.

        Raises:
            LossyCastError: It has not.
        """
        if request.dtype not in (None, *dtypes.KEYWORDS):
            return
        name = self._name(index)
        dtype = met.floating or target.capabilities.dtypes.default(met.kind)
        hints = [f'dtype="{dtype}"'] if met.kind == "float" else []
        hints += [f'dtype={{{quoted(name or met.kind)}: "{dtype}"}}'] if name or not hints else []
        raise LossyCastError(f"Numbers of different kinds do not stack: {met.where}.", " or ".join(hints))

    # -- padding --------------------------------------------------------------------------------------

    def _padded(
        self,
        index: int,
        column: Any,
        members: Members,
        met: Met | None,
        value: Any,
        target: Backend,
        request: Request,
    ) -> _Leaf | None:
        """What becomes of a column that is to be padded; ``None``: its leaves have no axis."""
        full = without_nothing(column, members, value)
        members, has_nothing = (members, False) if full is None else (full, True)
        shapes = [(length,) for length in column.lengths] if type(column) is RowsRead else members.shapes
        extent = extent_of(shapes, self._padding)
        if extent is None:
            return None
        if not (extent.is_needed or has_nothing):
            members_or_numbers = None if _are_numbers(column) else members
            prepared = self._stacked(index, column, members_or_numbers, met, target, request)
        else:
            decide = self._decider(index, target, request)
            request = request if decide is None else _decided(decide, members).request
            if met is not None and met.differ:
                self._refuse_mixture(index, met, request, target)
            dtype = common_dtype(members.infos, target, request)
            request = _where_they_are(members, target, request)._replace(dtype=dtype)
            members = members._replace(
                shape=(len(shapes), *extent.whole),
                asked=_asked(request, dtype),
                places=extent.mask if members.which is None and extent.is_short else extent.places(),
                value=self._filling(index, value, dtype, request),
                lengths=[shape[0] for shape in shapes],
                keywords=self._padding.keywords(value),
            )
            prepared = self._prepare(members, conversion_of(target, request))
        return _Leaf(prepared, None, extent, self._marks(index, extent, target, request, prepared))

    def _filling(self, index: int, value: Any, dtype: str, request: Request) -> Any:
        try:
            return filling(value, dtype, request)
        except LossyCastError as error:
            name = self._name(index)
            raise LossyCastError(
                f"pad= fills up with {shown(value)}, which {dtype} does not hold: {error.message}",
                f"pad={{{quoted(name)}: 0}}" if name else "pad=0",
            ) from error

    def _marks(
        self, index: int, extent: Extent, target: Backend, request: Request, prepared: run.Prepared
    ) -> list[tuple[str, run.Prepared]]:
        """What comes beside a padded leaf, on the device where that is.

        Raises:
            UnsupportedTypeError: There is no place for it.
        """
        found = self._padding.marks_of(extent)
        if not found:
            return []
        if self._places is None:
            self._places = list(self._structure.keys(self._samples[0]))
        place = self._places[index]
        if request.device is None and request.placement is None:
            device = prepared.recipe.plan.result.device
            request = request._replace(device=None if device == HOST else device)
        conversion = conversion_of(target, request._replace(dtype=dtypes.FIT, casting=None))
        made = []
        for keyword, mark in found:
            if place is None:
                raise UnsupportedTypeError(
                    f"{keyword}=True adds a leaf beside this one, which is below no str key of a dict.",
                    f'samples that are dicts, {{"x": x}}, or leave {keyword}= out',
                )
            mapping, key = place
            if f"{key}_{keyword}" in mapping:
                raise UnsupportedTypeError(
                    f'{keyword}=True adds {quoted(f"{key}_{keyword}")} beside this leaf, and there is one.',
                    f"another name for it in the samples, or leave {keyword}= out",
                )
            array = memory.compact(mark.shape, mark.dtype)
            array[...] = mark
            made.append((keyword, self._prepare(NewArray(array), conversion)))
        return made

    def _put_marks(self, batch: Any, marks: Sequence[tuple[int, str, Any]]) -> None:
        places = list(self._structure.keys(batch))
        for index, keyword, mark in marks:
            place = places[index]
            if place is None:
                raise placed(
                    UnsupportedTypeError(
                        "The mapping that was made of this one takes no more keys.", "a dict in its place"
                    ),
                    self._path(index),
                )
            mapping, key = place
            mapping[f"{key}_{keyword}"] = mark


# -- what a column is -------------------------------------------------------------------------------------


def _are_numbers(column: Any) -> bool:
    """Whether all leaves are numbers, or lists of them."""
    if type(column) is RowsRead:
        return True
    return all(kind in PYTHON_NUMBERS or kind is list or issubclass(kind, np.generic) for kind in set(map(type, column)))


def _looked_at(column: Any) -> Members:
    """What the leaves of a column are.

    Raises:
        ConversionError: One of them is no tensor; the rows inside one are of unequal lengths.
    """
    if type(column) is RowsRead:
        numbers = NewArray(column.numbers, weak=True)
        source = registry.backend_of(numbers)
        return Members(column.lengths, [source.preview(numbers)[1]], [source], None, joined=numbers)
    return look_at(column, (len(column),))


def _decided(decide: Callable[[Any], Conversion], members: Members) -> Conversion:
    """What is asked of a column for the dtype that its leaves have together."""
    return decide(members.infos[0]._replace(dtype=dtype_together(members.infos)))


def _asked(request: Request, dtype: str | None) -> Request:
    """As what each leaf is converted, before they are one."""
    return Request(EXCHANGE, dtype=dtype, casting=request.casting, grad=request.grad)


def _where_they_are(members: Members, target: Backend, request: Request) -> Request:
    """The request with the device on which all leaves are, as if they had been stacked there."""
    devices = {info.device for info in members.infos}
    if request.device is not None or request.placement is not None or devices == {HOST} or len(devices) > 1:
        return request
    own = all(info.framework == target.name for info in members.infos)
    return request._replace(device=devices.pop() if own else None)


def _in_samples(error: ConversionError) -> ConversionError:
    """The error that says in which samples something is, which were looked at as a list."""
    message = error.message.replace(" at x[", " in samples[")
    return error if message == error.message else type(error)(message, error.hint)


def _tried(path: Callable[[list[Any]], Any], column: list[Any]) -> Any:
    """What a fast path gives; ``None``: it does not accept this."""
    try:
        return path(column)
    except registry.REFUSALS:
        return None


def _why_kept(kept: Any, column: Sequence[Any]) -> str:
    """What a leaf becomes that is no tensor, and why."""
    if kept is None:
        return "None in all samples: stays None"
    if not kept:
        return "empty lists, which say no dtype: one empty list"
    kinds = sorted({type(each).__name__ for each in column})
    return f"a list of {len(column)}: {' and '.join(kinds)} {'is' if len(kinds) == 1 else 'are'} no number or tensor"
