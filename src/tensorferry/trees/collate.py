"""`collate`: a list of trees as one tree of stacked tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..backends import registry
from ..core import dtypes
from ..core.leaf_dtypes import quoted
from ..core.names import EXCHANGE
from ..core.request import Request
from ..errors import ConversionError, LossyCastError, ShapeError, UnsupportedTypeError, shown
from ..execution import run
from ..execution.recipes import conversion_of
from ..sequences.reader import NewArray
from .failures import raise_all, refuse_unknown_name
from .kinds import dtype_together, kinds_met
from .padding import NOT_PADDED, Padding, carry_mark, common_dtype, describe_each, extent_of, filling, look_at, pad
from .rows import RowsRead
from .samples import columns_of
from .structure import placed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..backends.base import Backend
    from .kinds import Met
    from .leaves import LeafRule
    from .padding import Extent
    from .targets import Targets

__all__ = ["stack_samples"]


def stack_samples(samples: Sequence[Any], targets: Targets, rule: LeafRule, asked: dict[str, Any] | None) -> Any:
    """See `tensorferry.collate`.

    Args:
        samples: The samples.
        targets: Where their leaves go.
        rule: Which leaves are stacked.
        asked: How leaves are padded, as `Padding` takes it; ``None``: not at all.
    """
    padding = NOT_PADDED if asked is None else Padding(**asked)
    target = None if padding.on else _stacks_at_a_glance(targets, rule)
    if not samples:
        raise ShapeError("There are no samples to collate.", None)
    whole = None if target is None else target.stack_alike(samples)
    return _Batch(samples, targets, rule, padding, target).stack() if whole is None else whole


def _stacks_at_a_glance(targets: Targets, rule: LeafRule) -> Backend | None:
    """The target, if it may be asked to stack its own tensors as they are; ``None``: there is more to be done."""
    common = targets.common
    if common is None or targets.decides_by_leaf or not common.request.is_ordinary:
        return None
    return None if rule.chosen is not None or run.is_verifying() else registry.ready(common.target.name)


class _Batch:
    """Samples as columns, each of which becomes one tensor."""

    def __init__(
        self, samples: Sequence[Any], targets: Targets, rule: LeafRule, padding: Padding, glances: Backend | None
    ) -> None:
        self._glances = glances
        self._samples = samples
        self._targets = targets
        self._rule = rule
        self._padding = padding
        self._columns, self._structure = columns_of(samples, rule)
        self._paths: list[str] | None = None
        self._names: list[str] | None = None
        self._places: list[tuple[Any, str] | None] | None = None
        self._marks: list[tuple[int, str, Any]] = []

    def _path(self, index: int) -> str:
        if self._paths is None:
            self._paths = self._structure.paths()
        return self._paths[index]

    def _name(self, index: int) -> str:
        if self._names is None:
            self._names = self._structure.names()
        return self._names[index]

    def stack(self) -> Any:
        """The batch."""
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
                results.append(self._stack(index, column))
            except ConversionError as error:
                errors[index] = error
        if errors:
            raise_all(errors, self._path)
        batch = self._structure.rebuild(results, len(self._samples))
        if self._marks:
            self._put_marks(batch)
        return batch

    # -- one column ---------------------------------------------------------------------------------

    def _stack(self, index: int, column: Any) -> Any:
        if self._glances is not None and type(column) is list:
            result = self._glances.stack_alike(column)
            if result is not None:
                return result
        if type(column) is not RowsRead and not self._is_stacked(column):
            return None if all(each is None for each in column) else column
        conversion = self._targets.of(lambda: self._path(index))
        target, request = registry.ready(conversion.target.name), conversion.request
        value = self._padding.value_of(lambda: self._name(index)) if self._padding.on else None
        if value is not None:
            return self._pad(index, column, value, target, request)
        if type(column) is list and self._rule.takes_rows and not any(type(x) is not list or x for x in column):
            return []
        return self._stack_alike(index, column, target, request)

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

    def _stack_alike(self, index: int, column: Any, target: Backend, request: Request) -> Any:
        """Stack a column whose leaves are of one shape."""
        if type(column) is RowsRead:
            return self._stack_rows(index, column, target, request)
        met = kinds_met(column)
        decide = self._decider(index, target, request)
        if met is not None and decide is not None:
            request, decide = decide(dtype_together(describe_each(column))), None
        try:
            if met is not None and met.differ:
                self._refuse_mixture(index, met, request, target)
                column = [run.convert(leaf, conversion_of(target, request)) for leaf in column]
            elif met is not None and met.numbers_among_tensors:
                column = _of_one_kind(column, target, request)
            return _carried(column, target, request, decide)
        except ShapeError as error:
            if type(column[0]) is list:
                describe_each(column)  # raises if the rows inside one sample are of unequal lengths
            raise self._ragged(index, error.message.replace(" at x[", " in samples[", 2)) from error

    def _stack_rows(self, index: int, rows: RowsRead, target: Backend, request: Request) -> Any:
        lengths = rows.lengths
        odd = next((number for number, length in enumerate(lengths) if length != lengths[0]), None)
        if odd is not None:
            raise self._ragged(
                index,
                f"Rows of unequal lengths do not stack: {lengths[0]} in samples[0], {lengths[odd]} in samples[{odd}].",
            )
        whole = NewArray(rows.numbers.reshape(len(lengths), -1), weak=True)
        return _carried(whole, target, request, self._decider(index, target, request))

    def _decider(self, index: int, target: Backend, request: Request) -> Callable[[str], Request] | None:
        """Gives the request by the dtype of a column, where it depends on that."""
        targets = self._targets
        if not targets.decides_by_leaf:
            return None
        conversion = conversion_of(target, request)
        return lambda dtype: (
            targets.asked_of(conversion, dtype, lambda: self._name(index), lambda: self._path(index)).request
        )

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

    def _pad(self, index: int, column: Any, value: Any, target: Backend, request: Request) -> Any:
        """Stack a column whose leaves may be of unequal lengths, and make what is wanted beside it."""
        met = None if type(column) is RowsRead else kinds_met(column)
        seen = look_at(column, value, alike=met is None)
        extent = extent_of(seen.shapes, self._padding)
        if extent is None or not (extent.is_needed or seen.has_nothing):
            result = self._stack_alike(index, column, target, request)
        else:
            decide = self._decider(index, target, request)
            request = request if decide is None else decide(dtype_together(seen.infos))
            if met is not None and met.differ:
                self._refuse_mixture(index, met, request, target)
            dtype = common_dtype(seen.infos, target, request)
            result = pad(
                seen, self._filling(index, value, dtype, request), extent, target, request._replace(dtype=dtype)
            )
        if extent is not None and self._padding.marks:
            self._mark(index, extent, target, request, result)
        return result

    def _filling(self, index: int, value: Any, dtype: str, request: Request) -> Any:
        try:
            return filling(value, dtype, request)
        except LossyCastError as error:
            name = self._name(index)
            raise LossyCastError(
                f"pad= fills up with {shown(value)}, which {dtype} does not hold: {error.message}",
                f"pad={{{quoted(name)}: 0}}" if name else "pad=0",
            ) from error

    def _mark(self, index: int, extent: Extent, target: Backend, request: Request, result: Any) -> None:
        if self._places is None:
            self._places = list(self._structure.keys(self._samples[0]))
        place = self._places[index]
        for suffix, made in self._padding.marks_of(extent):
            keyword = suffix[1:]
            if place is None:
                raise UnsupportedTypeError(
                    f"{keyword}=True adds a leaf beside this one, which is below no str key of a dict.",
                    f'samples that are dicts, {{"x": x}}, or leave {keyword}= out',
                )
            mapping, key = place
            if key + suffix in mapping:
                raise UnsupportedTypeError(
                    f"{keyword}=True adds {quoted(key + suffix)} beside this leaf, and there is one.",
                    f"another name for it in the samples, or leave {keyword}= out",
                )
            self._marks.append((index, suffix, carry_mark(made, target, request, result)))

    def _put_marks(self, batch: Any) -> None:
        places = list(self._structure.keys(batch))
        for index, suffix, mark in self._marks:
            place = places[index]
            if place is None:
                raise placed(
                    UnsupportedTypeError(
                        "The mapping that was made of this one takes no more keys.", "a dict in its place"
                    ),
                    self._path(index),
                )
            mapping, key = place
            mapping[key + suffix] = mark


# -- how a column is carried ------------------------------------------------------------------------------


def _carried(x: Any, target: Backend, request: Request, decide: Callable[[str], Request] | None) -> Any:
    """What samples are together, as one tensor, by what is decided of that."""
    if decide is None:
        return run.convert(x, conversion_of(target, request))
    conversion = conversion_of(target, request)
    each = run.prepare(x, conversion, None, lambda info: conversion_of(target, decide(info.dtype)))
    result = run.execute(each.recipe.program, each.handle)
    if run.is_verifying():
        run.verify(each, result)
    return result


def _of_one_kind(column: Sequence[Any], target: Backend, request: Request) -> list[Any]:
    """Leaves of which the numbers among tensors are arrays of a dtype that holds all, whatever comes first.

    Raises:
        LossyCastError: A number does not fit into it.
    """
    infos = describe_each(column)
    dtype = common_dtype(infos, target, request)
    exchange = registry.backend_named(EXCHANGE)
    asked = Request(EXCHANGE, dtype=dtype, casting=request.casting, grad=request.grad)
    return [
        leaf
        if type(leaf) is not list and info.weak_dtype is None and info.dtype == dtype
        else run.convert(leaf, conversion_of(exchange, asked))
        for leaf, info in zip(column, infos, strict=True)
    ]
