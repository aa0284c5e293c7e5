"""`collate`: a list of trees as one tree of stacked tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import dtypes, memory, registry, rules, run
from ..backend import EXCHANGE
from ..errors import ConversionError, CopyRequiredError, LossyCastError, ShapeError, UnsupportedTypeError, shown
from ..info import TensorInfo
from ..recipes import conversion_of
from ..request import Request
from .journey import raise_all, refuse_unknown_name
from .structure import Structure, equal, placed, take_apart, take_apart_alike

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..backend import Backend
    from ..recipes import Conversion
    from .journey import Aim
    from .leaves import LeafRule

__all__ = ["Padding", "stack_samples"]

Array = np.ndarray[Any, Any]

_NUMBERS = frozenset({bool, int, float, complex})


class Padding:
    """What is done about leaves of unequal shapes.

    Args:
        ragged: ``"error"``, or ``"pad"``.
        value: What the longer ones have and the shorter ones are filled up with.

    Raises:
        TypeError: `ragged` is neither.
    """

    def __init__(self, ragged: str, value: complex) -> None:
        if ragged not in ("error", "pad"):
            raise TypeError(f'ragged must be "error" or "pad", not {shown(ragged)}')
        if not isinstance(value, (int, float, complex, np.number, np.bool_)):
            raise TypeError(f"pad_value must be a number, not {shown(value)}")
        self.on = ragged == "pad"
        self.value = value

    def pad(self, column: Sequence[Any], target: Backend, request: Request) -> Array | None:
        """The leaves in one array, each in the first corner of its place; ``None`` if their shapes are equal.

        Args:
            column: The leaves.
            target: Whose tensor the array will be.
            request: As what.

        Raises:
            ShapeError: They have not the same number of axes.
            LossyCastError: The value, or a leaf, does not fit into the dtype.
            GradientError: A leaf would leave the graph, and must not.
        """
        infos = [_describe(each) for each in column]
        shapes = {info.shape for info in infos}
        if len(shapes) == 1:
            return None
        if len({len(shape) for shape in shapes}) != 1:
            few, many = min(shapes, key=len), max(shapes, key=len)
            raise ShapeError(
                f"Leaves with {len(few)} and with {len(many)} axes cannot be padded to one shape: {few}, {many}.",
                "give them as many axes first",
            )
        whole = tuple(max(lengths) for lengths in zip(*shapes, strict=True))
        dtype = _dtype_of(infos, target, request)
        asked = Request(EXCHANGE, dtype=dtype, casting=request.casting, grad=request.grad)
        exchange = registry.backend_named(EXCHANGE)
        block = memory.compact((len(column), *whole), dtypes.find(dtype).numpy)
        block[...] = run.convert(self.value, conversion_of(exchange, asked))
        for place, each in zip(block, column, strict=True):
            array: Array = run.convert(each, conversion_of(exchange, asked))
            place[tuple(map(slice, array.shape))] = array
        return block


def _describe(leaf: Any) -> TensorInfo:
    return registry.backend_of(leaf).preview(leaf)[1]


def _dtype_of(infos: Sequence[TensorInfo], target: Backend, request: Request) -> str:
    """The dtype that a batch of these leaves has: what was asked for, or what holds them all.

    Raises:
        LossyCastError: There is none, or the target has it not.
    """
    typed = {info.dtype for info in infos if info.weak_dtype is None}
    names = typed or {info.dtype for info in infos}
    info = TensorInfo(EXCHANGE, (len(infos),), dtypes.common(names))
    if not typed:
        info = info._replace(weak_dtype=dtypes.common({each.weak_dtype or each.dtype for each in infos}))
    return rules.target_dtype(info, request, target)


def _dtype_together(column: Sequence[Any]) -> str:
    """The dtype by which it is decided what a column is asked for: of its tensors, or of a number of a higher kind."""
    infos = [_describe(each) for each in column]
    typed = {info.dtype for info in infos if info.weak_dtype is None}
    numbers = {info.dtype for info in infos} - typed
    if not typed or not numbers:
        return _widest(typed or numbers)
    first, other = _widest(typed), _widest(numbers)
    return first if _rank(first) >= _rank(other) else other


def _widest(names: set[str]) -> str:
    try:
        return dtypes.common(names)
    except LossyCastError:
        return max(names, key=lambda name: (_rank(name), dtypes.width(name), name))


def _rank(name: str) -> int:
    return dtypes.KINDS.index(dtypes.find(name).kind)


def stack_samples(samples: Sequence[Any], aim: Aim, rule: LeafRule, padding: Padding) -> Any:
    """See `tensorferry.collate`."""
    if not samples:
        raise ShapeError("There are no samples to collate.", None)
    columns, structure = _columns(samples, rule)
    if aim.rule.names:
        stacked = (any(map(rule.takes, column)) for column in columns)
        refuse_unknown_name(aim.rule, [name for name, on in zip(structure.names(), stacked, strict=True) if on])
    results: list[Any] = []
    errors: dict[int, ConversionError] = {}
    for index, column in enumerate(columns):
        try:
            results.append(_stack(column, aim, rule, padding, structure, index))
        except ConversionError as error:
            errors[index] = error
    if errors:
        raise_all(errors, structure.paths().__getitem__)
    return structure.rebuild(results, len(samples))


def _columns(samples: Sequence[Any], rule: LeafRule) -> tuple[list[list[Any]], Structure]:
    """For each leaf of a sample, that leaf of all samples; and what is left of the first.

    Raises:
        UnsupportedTypeError: A sample is another tree than the first, or cannot be stacked.
    """
    chosen = rule.chosen
    alike = take_apart_alike(samples, chosen)
    if alike is not None:
        return alike
    first, structure = take_apart(samples[0], chosen)
    rule.check(structure)
    for node in structure.nodes():
        if node.no_batch is not None:
            raise placed(UnsupportedTypeError(*node.no_batch), structure.path_of(node))
    columns = [[leaf] for leaf in first]
    for number, sample in enumerate(samples[1:], 1):
        found, other = take_apart(sample, chosen)
        rule.check(other)
        if not structure.is_like(other):
            found = _in_order_of(structure, found, other, number)
        for column, leaf in zip(columns, found, strict=True):
            column.append(leaf)
    return columns, structure


def _in_order_of(structure: Structure, found: list[Any], other: Structure, number: int) -> list[Any]:
    """A sample's leaves in the order of the first one's.

    Raises:
        UnsupportedTypeError: It is another tree.
    """
    paths = structure.paths()
    by_path = dict(zip(other.paths(), found, strict=True))
    odd = [path for path in paths if path not in by_path] or [path for path in by_path if path not in set(paths)]
    if odd:
        raise UnsupportedTypeError(
            f"Samples 0 and {number} are different trees: only one of them has the leaf - at {odd[0]}",
            "leaves= a callable that says yes to what is one leaf, a list of numbers, say",
        )
    _compare(structure.statics(), other.statics(), number)
    return [by_path[path] for path in paths]


def _compare(first: dict[str, tuple[type, Any]], other: dict[str, tuple[type, Any]], number: int) -> None:
    """Refuse samples whose containers differ in what is not stacked.

    Raises:
        UnsupportedTypeError: They do.
    """
    for path in {**first, **other}:
        here, there = first.get(path), other.get(path)
        kinds = ["plain container" if each is None else each[0].__name__ for each in (here, there)]
        if here is None or there is None or here[0] is not there[0]:
            what = f"is a {kinds[0]} in one and a {kinds[1]} in the other"
        elif not equal(here[1], there[1]):
            what = f"is a {kinds[0]} with other static fields{_names(here[1], there[1])}"
        else:
            continue
        raise UnsupportedTypeError(
            f"Samples 0 and {number} are different trees: what is here {what} - at {path}",
            "make them equal in all samples first, or convert each by itself",
        )


def _names(x: Any, y: Any) -> str:
    """Which static fields differ, where they have names."""
    if not isinstance(x, tuple) or not isinstance(y, tuple):
        return ""
    found = [entry for entry in {**x[0], **y[0]} if not equal(x[0].get(entry), y[0].get(entry))]
    return ": " + ", ".join(found) if found else ""


def _stack(column: list[Any], aim: Aim, rule: LeafRule, padding: Padding, structure: Structure, index: int) -> Any:
    taken = rule.takes_each(column)
    if not any(taken):
        return None if all(each is None for each in column) else column
    if not all(taken):
        odd = taken.index(not taken[0])
        raise UnsupportedTypeError(
            f"Sample 0 has a {type(column[0]).__name__} there, sample {odd} a {type(column[odd]).__name__}: "
            "they do not stack.",
            "fill what is missing first, or leaves= a callable that says no to it",
        )
    conversion = aim.of(lambda: structure.paths()[index])
    target, request = registry.ready(conversion.target.name), conversion.request
    if aim.decides_by_leaf:
        asked, name, path = conversion, (lambda: structure.names()[index]), (lambda: structure.paths()[index])
        if not padding.on and _is_of_one_kind(column):
            return _stack_decided(column, conversion, lambda info: aim.asked_of(asked, info.dtype, name, path))
        request = aim.asked_of(asked, _dtype_together(column), name, path).request
    if padding.on:
        block = padding.pad(column, target, request)
        if block is not None:
            return _adopt(block, target, request)
    try:
        return run.convert(_of_one_kind(column, target, request), conversion_of(target, request))
    except ShapeError as error:
        raise _ragged(error) from error


def _stack_decided(column: list[Any], conversion: Conversion, decide: Callable[[TensorInfo], Conversion]) -> Any:
    """Stack leaves, and decide by what they are together what is asked for."""
    try:
        each = run.prepare(column, conversion, None, decide)
    except ShapeError as error:
        raise _ragged(error) from error
    result = run.execute(each.recipe.program, each.handle)
    if run.is_verifying():
        run.verify(each, result)
    return result


def _ragged(error: ShapeError) -> ShapeError:
    return ShapeError(error.message.replace(" at x[", " in samples[", 2), 'ragged="pad", pad_value=0')


def _is_of_one_kind(column: Sequence[Any]) -> bool:
    """Whether there are no Python numbers among tensors."""
    kinds = set(map(type, column))
    return kinds <= _NUMBERS or not kinds & _NUMBERS


def _of_one_kind(column: list[Any], target: Backend, request: Request) -> list[Any]:
    """Leaves of which the numbers among tensors are arrays of a dtype that holds all, whatever comes first.

    Raises:
        LossyCastError: A number does not fit into it.
    """
    if _is_of_one_kind(column):
        return column
    infos = [_describe(leaf) for leaf in column]
    dtype = _dtype_of(infos, target, request)
    exchange = registry.backend_named(EXCHANGE)
    asked = Request(EXCHANGE, dtype=dtype, casting=request.casting, grad=request.grad)
    return [
        leaf if info.weak_dtype is None and info.dtype == dtype else run.convert(leaf, conversion_of(exchange, asked))
        for leaf, info in zip(column, infos, strict=True)
    ]


def _adopt(block: Array, target: Backend, request: Request) -> Any:
    """An array of one's own as a tensor, over its memory if neither dtype nor device changes."""
    try:
        return run.convert(block, conversion_of(target, request._replace(copy=False)))
    except CopyRequiredError:
        return run.convert(block, conversion_of(target, request))
