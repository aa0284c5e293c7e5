"""The same leaf of all samples, a column: its kind, its plan, and the stack of it."""

from __future__ import annotations

from functools import lru_cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import hints
from ..backends import registry
from ..backends.lists import Members, look_at
from ..core import dtypes
from ..core.devices import HOST
from ..core.info import MANY, TensorInfo
from ..core.named_tuple import NamedTuple
from ..core.names import EXCHANGE
from ..core.request import Request
from ..errors import ConversionError, LossyCastError, ShapeError, UnsupportedTypeError, an, shown
from ..execution import run
from ..execution.recipes import conversion_of
from ..hints import Hint
from ..host.numpy_dtypes import has_dates, of_numpy
from ..planning import rules
from ..sequences import numbers
from ..sequences.columns import Wanted, read_lists, read_numbers, read_scalars
from ..sequences.diagnostics import shape_of
from ..sequences.reader import PYTHON_NUMBERS, NewArray, element_types
from ..trees.containers import PLAIN
from ..trees.failures import refuse_unknown_name
from .padding import APART, PaddedRows, common_dtype, filling, without_nothing

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from ..backends.base import Backend
    from ..execution.recipes import Conversion
    from ..execution.run import Prepared
    from ..sequences.numbers import Exact
    from ..trees.leaves import LeafRule
    from ..trees.targets import Targets
    from ..typing import Array
    from .padding import PaddedShapes, Padding


__all__ = ["ColumnPlan", "Columns", "NumberKinds", "dtype_together", "kinds_in"]

PYTHON = "python"


# -- kinds -----------------------------------------------------------------------------------------

_NUMBERS = (*PYTHON_NUMBERS, np.generic)
_READ = PYTHON_NUMBERS | {list}
"""The types of leaves whose columns are read at once."""
_NEVER_DATES = PLAIN | {list}
"""Types of leaves that are never columns of dates, whatever they hold."""
_WEAK = {bool: "bool", int: "int", float: "float", complex: "complex"}


class NumberKinds(NamedTuple):
    """The kinds of numbers in a column.

    Args:
        kind: The highest of them.
        floating: The common dtype of the float and complex tensors, if it is of that kind;
            otherwise empty.
        where: Two samples that differ, and their positions.
        differ: Whether two are of kinds that must not be mixed silently.
        numbers_among_tensors: Whether there are Python numbers beside tensors.
    """

    kind: str
    floating: str
    where: str
    differ: bool
    numbers_among_tensors: bool


def kinds_in(column: Sequence[Any], members: Members | None) -> NumberKinds | None:
    """The kinds of numbers in a column; ``None`` if all leaves have the same type and dtype.

    Args:
        column: The leaves.
        members: Their descriptions; ``None`` if they are numbers, or lists of numbers.
    """
    if members is not None and members.which is None:
        return None
    types = set(map(type, column))
    if len(types) == 1 and types <= PYTHON_NUMBERS:
        return None
    typed: dict[str, int] = {}
    weak: dict[str, int] = {}
    for number, leaf in enumerate(column):
        if type(leaf) is list:
            kinds = set(map(_dtype_of_type, element_types(leaf) if leaf else ()))
        elif isinstance(leaf, _NUMBERS):
            kinds = {_dtype_of_type(type(leaf))}
        else:
            kinds = set()
            if members is not None and members.which is not None:
                kinds = {_dtype_of(members.infos[members.which[number]])}
        for name, is_weak in filter(None, kinds):
            (weak if is_weak else typed).setdefault(name, number)
    floats = {name for name in typed if _kind(name) in ("float", "complex")}
    ranks = {name: _rank(_kind(name)) for name in (*typed, *weak)}
    if not ranks:
        return None
    places = {**weak, **typed}
    low, high = min(places, key=ranks.__getitem__), max(places, key=ranks.__getitem__)
    ends = {ranks[name] for name in typed or weak}
    differ = len(ends) > 1 or any(ranks[name] > max(ends) for name in weak)
    where = f"{low} and {high} in samples[{places[low]}]"
    if places[low] != places[high]:
        where = f"{low} in samples[{places[low]}], {high} in samples[{places[high]}]"
    kind, floating = _kind(high), _widest(floats) if floats else ""
    # Complex numbers of Python beside float tensors have no dtype of their own.
    if not (floating and _kind(floating) == kind):
        floating = ""
    return NumberKinds(kind, floating, where, differ, bool(typed and weak))


def _dtype_of_type(kind: type) -> tuple[str, bool] | None:
    """The dtype of a type of numbers, and whether it is Python's; ``None`` if it does not tell."""
    if not issubclass(kind, np.generic):
        return next(((_WEAK[base], True) for base in kind.__mro__ if base in PYTHON_NUMBERS), None)
    name = of_numpy(np.dtype(kind))
    return None if name is None else (name, False)


def _dtype_of(info: TensorInfo) -> tuple[str, bool]:
    if info.weak_dtype is None:
        return info.dtype, False
    kind = _kind(info.dtype)
    return ("int" if kind == "uint" else kind), True


def _kind(name: str) -> str:
    """The kind of a dtype, or of Python numbers."""
    if name in _WEAK.values():
        return name
    return dtypes.find(name).kind


def _rank(kind: str) -> int:
    """The rank of a kind. Signed and unsigned integers have the same rank."""
    return dtypes.KINDS.index("int" if kind == "uint" else kind)


def dtype_together(infos: Sequence[TensorInfo]) -> str:
    """A column's dtype for rules of ``dtype=``: of its tensors, or a number of a higher kind."""
    typed = {info.dtype for info in infos if info.weak_dtype is None}
    weak = {info.dtype for info in infos} - typed
    if not typed or not weak:
        return _widest(typed or weak)
    first, other = _widest(typed), _widest(weak)
    if _rank(_kind(first)) >= _rank(_kind(other)):
        return first
    return other


def _widest(names: set[str]) -> str:
    if dtypes.have_common(names):
        return dtypes.common_dtype(names)
    return max(names, key=lambda name: (_rank(_kind(name)), dtypes.value_bits(name), name))


# -- columns: the same leaf of all samples ---------------------------------------------------------


class ColumnPlan(NamedTuple):
    """What becomes of a column.

    Args:
        prepared: The conversion to one tensor; ``None`` if the leaves stay objects, or were read.
        kept: The objects, in that case.
        extent: How far the leaves are padded; ``None`` if they are not padded.
        read: What Python numbers were read into; ``None`` if they are described with the rest.
        conversion: The conversion of that, in place of `prepared`.
    """

    prepared: Prepared | None
    kept: Any = None
    extent: PaddedShapes | PaddedRows | None = None
    read: Any = None
    conversion: Conversion | None = None

    def run(self) -> Any:
        """The tensor, or the objects.

        Raises:
            ConversionError: The values do not allow the conversion.
        """
        if self.read is not None and self.conversion is not None:
            return run.convert(self.read, self.conversion)
        if self.prepared is not None:
            return run.complete_conversion(self.prepared)
        return self.kept


class Columns(NamedTuple):
    """Plans what becomes of each column.

    Args:
        targets: The targets of the leaves.
        rule: The rule for which leaves are stacked.
        padding: How leaves are padded.
        prepare: `run.prepare`; or `run.prepare_unread`, if only a plan is made.
        path: Gives the path of a leaf.
        name: Gives the dotted name of a leaf.
        masks: The ids of the leaves that are masks of nulls.
    """

    targets: Targets
    rule: LeafRule
    padding: Padding
    prepare: Callable[..., Prepared]
    path: Callable[[int], str]
    name: Callable[[int], str]
    masks: frozenset[int] = frozenset()

    def leaf(self, index: int, column: list[Any], kinds: set[type]) -> ColumnPlan:
        """What becomes of a column.

        Args:
            index: Its number.
            column: Its leaves.
            kinds: The types of these.

        Raises:
            ConversionError: It cannot be stacked or converted.
        """
        if self.targets.decides_by_leaf:
            column = self._read_as_asked(index, column, kinds)
            kinds = numbers.types_in(column)
        try:
            if self._is_stacked(index, column, kinds):
                return self._tensor(index, column, kinds)
        except UnsupportedTypeError as error:
            if not any(self.rule.keeps_refused(leaf, error) for leaf in column):
                raise
            return ColumnPlan(None, column)
        return ColumnPlan(None, None if all(value is None for value in column) else column)

    def refuse_unknown_names(self, columns: list[list[Any]]) -> None:
        """Raise if a mapping in ``dtype=`` or ``pad=`` has a name that no tensor has.

        Raises:
            UnsupportedTypeError: It has.
        """
        names = [*map(self.name, range(len(columns)))]
        tensors = [name for index, name in enumerate(names) if self._has_tensors(index, columns)]

        def why_no_tensor(name: str) -> tuple[str, str] | None:
            from ..trees.tables import why_no_tensor as why  # here, because only an error needs it

            return why(columns[names.index(name)][0] if name in names else None)

        rule = self.targets.rule
        refuse_unknown_name("dtype", rule.names, tensors, why_no_tensor, rule.without_names)
        refuse_unknown_name("pad", self.padding.by_name, tensors, why_no_tensor)

    def _has_tensors(self, index: int, columns: list[list[Any]]) -> bool:
        column = columns[index]
        try:
            if self.targets.decides_by_leaf:
                column = self._read_as_asked(index, column, numbers.types_in(column))
            return any(map(self.rule.takes, column))
        except ConversionError:
            return True  # the error is raised when it is planned, with its path

    def _read_as_asked(self, index: int, column: list[Any], kinds: set[type]) -> list[Any]:
        """Columns of tables, and dates, read as their dtype in ``dtype=``."""
        others = kinds - _NEVER_DATES
        if not others:
            return column
        from ..trees.tables import may_be_column, read_as_asked

        if not any(map(may_be_column, others)) and not any(map(has_dates, column)):
            return column
        casting = self.targets.of(partial(self.path, index)).request.casting
        name = self.name(index)
        return [read_as_asked(leaf, self.targets.rule, name, casting) for leaf in column]

    def _tensor(self, index: int, column: list[Any], types: set[type]) -> ColumnPlan:
        conversion = self.targets.of(partial(self.path, index))
        target = registry.ready(conversion.target.name)
        if conversion.quick is not target.quick:  # the target has been loaded meanwhile
            conversion = conversion_of(target, conversion.request)
        if self.padding.on:
            value = self._value_of(index, column)
        else:
            value = None
        if len(types) == 1 and (types <= _READ or isinstance(column[0], np.generic)):
            if list in types:
                column_plan = self._lists(index, column, value, conversion)
            else:
                column_plan = self._numbers(index, column, conversion)
            if column_plan is not None:
                return column_plan
        _refuse_other_categories(column)
        are_numbers, members = _are_numbers(types), None
        if value is not None or not are_numbers:
            members = look_at(column, (len(column),), run.opening_for())
        kinds = kinds_in(column, members)
        extent, is_padded = None, False
        if value is not None and members is not None:
            full = without_nothing(column, members, value)
            members = members if full is None else full
            extent = self.padding.extent_of(members.shapes)
            is_padded = extent is not None and (extent.is_needed or full is not None)
        if is_padded and members is not None and extent is not None:
            prepared = self._padded(index, members, kinds, value, conversion, extent)
        else:
            members = None if are_numbers else members
            prepared = self._stacked(index, column, members, kinds, conversion)
        return ColumnPlan(prepared, None, extent)

    def _numbers(self, index: int, column: list[Any], conversion: Conversion) -> ColumnPlan | None:
        """The plan of a column of numbers of one kind, which are read; ``None`` for others."""
        if isinstance(column[0], np.generic):
            array = read_scalars(column)
            if array is None:
                return None
            return self._of_read(index, array, None, conversion)
        if len(column) > MANY:
            return None  # they are read into the result, without an array of all of them
        read = read_numbers(column)
        if read is None:
            return None
        return self._of_read(index, read.array, read.exact, conversion)

    def _of_read(
        self,
        index: int,
        array: Array,
        exact: Exact | None,
        conversion: Conversion,
        extent: PaddedRows | None = None,
    ) -> ColumnPlan:
        decide = self.decider(index, conversion)
        if decide is not None:
            info = _info_of_array(of_numpy(array.dtype) or "")
            if exact is not None:
                info = _info_of(exact)
            conversion = decide(info)
        new = NewArray(array, exact, scalars=exact is None)
        return ColumnPlan(None, None, extent, new, conversion)

    def _lists(
        self, index: int, column: list[Any], value: Any, conversion: Conversion
    ) -> ColumnPlan | None:
        """The plan of a column of lists of Python numbers of one kind, which are read.

        ``None`` for others, and for lists that cannot be stacked.

        Raises:
            ShapeError: Lists of numbers have unequal lengths, and are not padded.
        """
        lengths = numbers.measure(column)
        if lengths is None:
            return None
        layout, is_needed = self.padding.layout_of(*lengths, is_padded=value is not None)
        if not is_needed and lengths[0] != lengths[1]:
            self._refuse_unequal(index, column)
            return None
        padded: list[Any] = []

        def wanted(exact: Exact) -> Wanted:
            """What the numbers become; dtype and conversion of all are put into `padded`."""
            if not is_needed:
                return Wanted(exact.dtype)
            decide, info = self.decider(index, conversion), _info_of(exact)
            chosen = conversion if decide is None else decide(info)
            dtype, check, whole = _padded_as(chosen, exact, chosen.environment())
            padded[:] = dtype, whole
            return Wanted(dtype, check, self.filling(index, value, dtype, chosen.request, (info,)))

        read = read_lists(column, layout, wanted)
        if read is None:
            return None
        extent = None
        if value is not None:
            extent = PaddedRows(layout.whole, is_needed, read.mask, read.lengths)
        if not is_needed:
            return self._of_read(index, read.array, read.exact, conversion, extent)
        dtype, whole = padded
        joined = Members(
            column,
            (_info_of_array(dtype),),
            (registry.backend_named(PYTHON),),
            None,
            (len(column), *layout.whole),
            places=(),
            joined=read.array,
            code=self.padding.code(value),
        )
        return ColumnPlan(None, None, extent, joined, whole)

    def marks_of(self, leaf: ColumnPlan) -> list[tuple[str, NewArray, Conversion]]:
        """A padded leaf's mask and lengths: each a keyword, an array, and a conversion."""
        marks = []
        if leaf.extent is not None:
            marks = self.padding.marks_of(leaf.extent)
        if not marks:
            return []
        conversion = leaf.conversion
        if leaf.prepared is not None:
            # On the device of the leaf.
            request = leaf.prepared.request
            if request.device is None and request.placement is None:
                device = leaf.prepared.recipe.plan.result.device
                request = request._replace(device=None if device == HOST else device)
            conversion = conversion_of(leaf.prepared.target, request)
        return [(keyword, NewArray(mark), _of_marks(conversion)) for keyword, mark in marks]

    def _is_stacked(self, index: int, column: list[Any], types: set[type]) -> bool:
        """Whether the leaves of a column are tensors.

        Raises:
            UnsupportedTypeError: Some are tensors, and some are not.
        """
        if types <= _READ and len(types) == 1 and self.rule.chosen is None:
            return self.rule.takes(column[0])
        taken = self.rule.takes_each(column)
        if all(taken):
            return True
        if not any(taken):
            return False
        # Here, because only an error needs what is for tables.
        from ..trees.tables import class_name

        odd = taken.index(not taken[0])
        raise UnsupportedTypeError(
            f"Sample 0 has {an(class_name(column[0]))} there, sample {odd} "
            f"{an(class_name(column[odd]))}: "
            "they do not stack.",
            _of_one_kind(self.path(index).removeprefix("$"), column),
        )

    def _stacked(
        self,
        index: int,
        column: list[Any],
        members: Members | None,
        kinds: NumberKinds | None,
        conversion: Conversion,
    ) -> Prepared:
        """The conversion of a column whose leaves have the same shape.

        Raises:
            ShapeError: The shapes differ.
            LossyCastError: There are integers and floats.
        """
        apart = kinds is not None and (kinds.differ or kinds.numbers_among_tensors)
        try:
            if members is None and not apart:
                decide = self.decider(index, conversion)
                return self.prepare(column, conversion, None, decide)
            if members is None:
                members = look_at(column, (len(column),), run.opening_for())
            target, request = self._decided(index, members, kinds, conversion)
            if apart:
                common = kinds is not None and not kinds.differ
                dtype = common_dtype(members.infos, target, request) if common else request.dtype
                members = members._replace(asked=_asked(request, dtype))
            members = members.stacked((len(column),))
        except ShapeError as error:
            if members is None and type(column[0]) is list:
                # It raises if the rows within one sample have unequal lengths.
                look_at(column, (len(column),), run.opening_for())
            raise self._ragged(index, error.message, column) from error
        return self.prepare(members, conversion_of(target, request))

    def _decided(
        self, index: int, members: Members, kinds: NumberKinds | None, conversion: Conversion
    ) -> tuple[Backend, Request]:
        """The target and the request of a column, by the dtype that its leaves have together.

        Raises:
            LossyCastError: There are integers and floats.
        """
        target, request = conversion.target, conversion.request
        decide = self.decider(index, conversion)
        if decide is not None:
            first = members.infos[0]
            are_numbers = all(info.weak_dtype is not None for info in members.infos)
            weak = first.weak_dtype if are_numbers else None
            info = first._replace(dtype=dtype_together(members.infos), weak_dtype=weak)
            request = decide(info).request
        if kinds is not None and kinds.differ:
            self._refuse_mixture(index, kinds, request, target)
        return target, request

    def _refuse_unequal(self, index: int, column: list[Any]) -> None:
        """Raise for lists of numbers of one kind that have unequal lengths.

        Raises:
            ShapeError: They are such lists.
        """
        flat = list(chain.from_iterable(column))
        if not flat or type(flat[0]) is list or read_numbers(flat) is None:
            return
        lengths = list(map(len, column))
        odd = next(number for number, length in enumerate(lengths) if length != lengths[0])
        raise self._ragged(
            index,
            f"Rows of unequal lengths do not stack: {lengths[0]} in samples[0], {lengths[odd]} "
            f"in samples[{odd}].",
        )

    def decider(self, index: int, conversion: Conversion) -> Callable[[Any], Conversion] | None:
        """What chooses the conversion by a column's description; ``None`` if none is needed."""
        targets = self.targets
        if targets.decides_by_leaf:
            name = partial(self.name, index)
            return lambda info: targets.asked_of(conversion, info, name).asked_by(info)
        if conversion.request.like is None:
            return None
        return conversion.asked_by

    def asks_nothing(self, index: int, leaf: Any) -> bool:
        """Whether the request asks only for the dtype and device that a column of such leaves has.

        Args:
            index: The number of the column.
            leaf: One of its tensors, or Python numbers.

        Raises:
            ConversionError: The target has no such dtype.
        """
        conversion: Any = self.targets.common
        if type(leaf) in PYTHON_NUMBERS:
            info = _info_of(numbers.EXPECTED[type(leaf)])
            own = common_dtype((info,), conversion.target, Request(conversion.target.name))
        else:
            info = run.described(leaf)
            own = info.dtype
        decide = self.decider(index, conversion)
        if decide is not None:
            conversion = decide(info)
        request = conversion.request
        return (
            request.dtype in (None, own)
            and request.device in (None, info.device)
            and request._replace(dtype=None, device=None).is_ordinary
        )

    def _ragged(self, index: int, message: str, column: Sequence[Any] = ()) -> ShapeError:
        """The error for shapes that differ, with the hint to pad them if they have as many axes."""
        axes = {
            len(value.shape) if hasattr(value, "shape") else len(shape_of(value))
            for value in column
            if hasattr(value, "shape") or isinstance(value, (*PYTHON_NUMBERS, list, tuple))
        }
        if len(axes) > 1:
            return ShapeError(message, APART)
        return ShapeError(message, self.padding.with_number(self.name(index)))

    def _refuse_mixture(
        self, index: int, kinds: NumberKinds, request: Request, target: Backend
    ) -> None:
        """Raise for a column with integers and floats, unless `dtype=` says what they become.

        Raises:
            LossyCastError: It does not.
        """
        if request.dtype not in (None, *dtypes.KEYWORDS):
            return
        name = self.name(index)
        dtypes_there = target.capabilities.dtypes
        if kinds.floating in dtypes_there.held:
            floating = kinds.floating
        else:
            floating = ""
        if not floating and not dtypes_there.numbers[kinds.kind]:
            return  # the target has no such dtype, which the plan says
        dtype = floating or dtypes_there.default(kinds.kind)
        if kinds.kind == "float":
            ways = [hints.keyword("dtype", dtype)]
        else:
            ways = []
        if name or not ways:
            ways.append(hints.keyword("dtype", {name or kinds.kind: dtype}))
        raise LossyCastError(
            f"Numbers of different kinds do not stack: {kinds.where}.", hints.one_of(ways)
        )

    # -- padding -----------------------------------------------------------------------------------

    def _value_of(self, index: int, column: Any) -> Any:
        """The number with which the leaves of a column are padded; ``None`` if they are not."""
        value = self.padding.value_of(lambda: self.name(index))
        if self.masks and id(column[0]) in self.masks:
            # Where values are padded there is none, whatever the number is.
            beside = self.padding.value_of(lambda: self.name(index).removesuffix("_mask"))
            if value is None and beside is None:
                return None
            return False
        return value

    def _padded(
        self,
        index: int,
        members: Members,
        kinds: NumberKinds | None,
        value: Any,
        conversion: Conversion,
        extent: PaddedShapes,
    ) -> Prepared:
        """The conversion of a column that is padded."""
        target, request = self._decided(index, members, kinds, conversion)
        dtype = common_dtype(members.infos, target, request)
        asked = _asked(request, dtype)
        request = _where_they_are(members, target, request)._replace(dtype=dtype)
        members = members._replace(
            shape=(len(extent.shapes), *extent.whole),
            asked=asked,
            places=extent.where(alike=members.which is None),
            value=self.filling(index, value, dtype, request, members.infos),
            code=self.padding.code(value),
        )
        return self.prepare(members, conversion_of(target, request))

    def filling(
        self, index: int, value: Any, dtype: str, request: Request, infos: Sequence[TensorInfo]
    ) -> Any:
        """A padding number, as an array in the dtype of a column.

        Raises:
            LossyCastError: The dtype does not have it, or it is a bool, and the leaves are not.
        """
        if isinstance(value, (bool, np.bool_)) and all(info.dtype != "bool" for info in infos):
            raise LossyCastError(
                f"pad= is a bool, but the leaf has {infos[0].dtype}.",
                self.padding.with_number(self.name(index)),
            )
        try:
            return filling(value, dtype, request)
        except LossyCastError as error:
            if isinstance(value, np.generic):
                number = value.item()
            else:
                number = value
            message = f"pad= is {shown(number)}, which {dtype} does not hold: {error.message}"
            raise LossyCastError(message, self.padding.with_number(self.name(index))) from error


@lru_cache(maxsize=256)
def _of_marks(conversion: Conversion) -> Conversion:
    """The conversion of masks and lengths beside a leaf with this conversion."""
    request = conversion.request._replace(dtype=dtypes.FIT, casting=None)
    return conversion_of(conversion.target, request)


@lru_cache(maxsize=256)
def _padded_as(
    conversion: Conversion, exact: Exact, _environment: Hashable
) -> tuple[str, str, Conversion]:
    """The dtype that padded numbers become, the check of the cast, and the conversion of both."""
    target, request, info = conversion.target, conversion.request, _info_of(exact)
    dtype = common_dtype((info,), target, request)
    check = rules.check_of(info, _asked(request, dtype), dtype)
    return dtype, check, conversion_of(target, request._replace(dtype=dtype))


@lru_cache(maxsize=64)
def _info_of(exact: Exact) -> TensorInfo:
    """The description of numbers of Python with an exact dtype."""
    return TensorInfo(
        PYTHON, (1,), exact.dtype, writable=True, weak_dtype=exact.weak, kind="numbers"
    )


@lru_cache(maxsize=64)
def _info_of_array(dtype: str) -> TensorInfo:
    return TensorInfo(PYTHON, (1,), dtype, writable=True)


def _refuse_other_categories(column: list[Any]) -> None:
    """Raise for codes of categories that mean something else in another sample.

    Raises:
        UnsupportedTypeError: The categories differ.
    """
    if type(column[0]) in _READ or registry.is_known_tensor(type(column[0])):
        return
    from ..backends.opening import TableContents  # here, because most batches have no columns

    if type(column[0]) is not TableContents:
        return
    known = [
        contents.found.categories()
        for contents in column
        if getattr(contents.found, "categories", None) is not None
    ]
    odd = next((number for number, categories in enumerate(known) if categories != known[0]), None)
    if odd is not None:
        raise UnsupportedTypeError(
            f"The categories in samples[0] and samples[{odd}] differ, "
            "so their codes do not mean the same: "
            "give all the same categories, or make one table of the samples."
        )


def _are_numbers(types: set[type]) -> bool:
    """Whether all leaves of these types are numbers, or lists of them."""
    return all(kind in _READ or issubclass(kind, np.generic) for kind in types)


def _asked(request: Request, dtype: str | None) -> Request:
    """The request for each leaf, before they are joined."""
    casting = request.casting
    if casting is None and dtype is not None and request.dtype in (None, *dtypes.KEYWORDS):
        casting = dtypes.FINITE
    return Request(EXCHANGE, dtype=dtype, casting=casting, grad=request.grad)


def _where_they_are(members: Members, target: Backend, request: Request) -> Request:
    """The request, with the device on which all leaves are, so that they are stacked there."""
    devices = {info.device for info in members.infos}
    if (
        request.device is not None
        or request.placement is not None
        or devices == {HOST}
        or len(devices) > 1
    ):
        return request
    own = all(info.framework == target.name for info in members.infos)
    return request._replace(device=devices.pop() if own else None)


def _of_one_kind(place: str, column: Sequence[Any]) -> Hint:
    """The hint for a column with only some tensors: the samples in which it is like the first."""
    here = f"sample{place}"
    if any(value is None for value in column):
        alike = f"{here} is not None"
    else:
        alike = f"type({here}) is type(samples[0]{place})"
    code = hints.code(f"[sample for sample in samples if {alike}]")
    return Hint(code, ", which leaves the other samples out")
