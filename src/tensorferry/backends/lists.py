"""Lists of what is no number of Python's: tensors, described together before they are stacked.

Beside tensors there are numbers, whose values are taken, and objects that are refused.
"""

from __future__ import annotations

from array import array as typed_array
from functools import lru_cache
from math import prod
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import hints
from ..core import dtypes
from ..core.devices import HOST, kind_of, same_place
from ..core.info import TensorInfo
from ..core.kinds import kind_named
from ..core.named_tuple import NamedTuple, fields_but
from ..core.names import EXCHANGE
from ..core.request import Request
from ..errors import (
    ConversionError,
    DeviceError,
    GradientError,
    ShapeError,
    UnsupportedTypeError,
    an,
)
from ..hints import Hint
from ..host import memory
from ..host.masked import is_masked_array
from ..host.numpy_dtypes import has_dates
from ..planning import rules
from ..sequences import reader
from ..sequences.diagnostics import (
    APART,
    DEEPEST,
    ROWS,
    STAYS_AS_IT_IS,
    are_few_others,
    at_member,
    leaves_with_paths,
    outer_shape,
    refuse_description,
)
from ..sequences.reader import PYTHON_NUMBERS, element_types, first_element
from . import registry
from .base import UNASKED, Opening
from .no_number import no_number
from .no_tensor import has_no_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from ..core.declaration import Code
    from ..typing import Array
    from .base import Backend

__all__ = [
    "Members",
    "gathered",
    "is_tensor",
    "look_at",
    "members_of",
    "read",
    "whole_of",
    "with_numbers",
]

_BUFFERS = (bytes, bytearray, memoryview, typed_array)


def is_tensor(element: Any) -> bool:
    """Whether an element is a tensor, or an object that is refused like one."""
    if type(element) in reader.PYTHON_NUMBERS or isinstance(element, (np.generic, *ROWS)):
        return False
    try:
        return registry.backend_of(element).name != "python" or isinstance(element, _BUFFERS)
    except ConversionError:
        return isinstance(element, np.ndarray)


def read(x: Any, head: Any, opening: Opening = UNASKED) -> tuple[Array, str | None]:
    """As `reader.read`; the values of tensors are read with the numbers around them.

    >>> read([[1, 2], [3, 4]], 1)
    (array([[1, 2],
           [3, 4]]), 'int32')
    """
    convert = opening.convert
    if convert is None:
        others = reader.Others(_without_tensors, no_number)
    else:
        others = reader.Others(lambda rows: _with_numbers(rows, convert), no_number)
    return reader.read(x, head, others)


def _without_tensors(rows: Any) -> Any:
    """The rows, if the only tensors among numbers are arrays, which NumPy reads itself.

    Raises:
        UnsupportedTypeError: There is another tensor.
    """
    for path, leaf in leaves_with_paths(rows):
        plain = type(leaf) is np.ndarray and not leaf.dtype.hasobject
        if not plain and is_tensor(leaf):
            raise no_number(path, leaf, rows)
    return rows


def _with_numbers(
    x: Any, convert: Callable[[Any, Backend, Request], Any], path: str = "x", depth: int = 0
) -> Any:
    """The rows, in which tensors among numbers are replaced by their values.

    Raises:
        UnsupportedTypeError: The values of a tensor cannot be read, for example because it is
            masked.
        GradientError: A tensor requires grad.
    """
    if isinstance(x, TensorInfo):
        raise refuse_description(path)
    if isinstance(x, (list, tuple)) and depth < DEEPEST:
        # Over a copy, because the code of a tensor's class could change the list.
        return [
            _with_numbers(member, convert, f"{path}[{index}]", depth + 1)
            for index, member in enumerate([*x])
        ]
    if not is_tensor(x):
        return x
    try:
        _, info, _ = registry.backend_of(x).open(x)
        if not info.requires_grad:
            return convert(x, registry.backend_named("python"), Request("python"))
    except ConversionError as error:
        raise at_member(error, path) from error
    raise GradientError(
        f"The {info.framework} tensor at {path} requires grad, and stands among numbers, "
        "which have no graph.",
        f"{path}.detach()",
    )


_SHAPE = attrgetter("shape")


# -- lists of tensors ------------------------------------------------------------------------------


_MEMORY = ("shape", "strides", "misalignment")
_without_memory = fields_but(TensorInfo, *_MEMORY)
"""The fields of a description on which the steps of a stack depend."""
_deciding = fields_but(TensorInfo, *_MEMORY, "writable", "mutable", "requires_grad")
"""Those of them that decide which steps convert a member."""


class Members(NamedTuple):
    """Tensors that become one tensor.

    Args:
        tensors: The tensors, in order.
        infos: Their different descriptions. If `which` is ``None``, it is one, whose shape is that
            of the first.
        sources: The backend of each of `infos`.
        which: For each tensor, the index of its description; ``None`` if all tensors are alike.
        shape: The shape of the result.
        asked: The request for each tensor, before they are joined; ``None`` if they are not
            converted.
        places: The place of each tensor in the result, if they are padded.
        value: The padding value.
        joined: The array of `shape` with the values of all, if they were read into it together.
        code: The code that pads them, if they are padded.
        stays: Whether they must not leave an autograd graph of the target when they are padded.
    """

    tensors: Sequence[Any]
    infos: Sequence[TensorInfo]
    sources: Sequence[Backend]
    which: Sequence[int] | None
    shape: tuple[int, ...] = ()
    asked: Request | None = None
    places: Any = None
    value: Any = None
    joined: Any = None
    code: Code | None = None
    stays: bool = False

    @property
    def signature(self) -> Hashable:
        """Everything that the steps depend on: neither shapes, strides nor addresses."""
        if self.which is None:
            is_joined = self.joined is not None
            return _without_memory(self.infos[0]), self.sources[0], self.asked, is_joined
        return tuple(map(_without_memory, self.infos)), tuple(self.sources), self.asked

    @property
    def take_the_same_steps(self) -> bool:
        """Whether the same steps convert all: they differ at most in gradients and writability."""
        return len(self.infos) == 1 or len(set(map(_deciding, self.infos))) == 1

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shape of each tensor."""
        if self.which is None:
            return list(map(_SHAPE, self.tensors))
        return [self.infos[place].shape for place in self.which]

    def stacked(self, outer: tuple[int, ...]) -> Members:
        """The members, with the shape of the result.

        Args:
            outer: The shape of the sequences around them.

        Raises:
            ShapeError: Their shapes are unequal; the message names two of them, and where they are.
        """
        shapes = self.shapes
        if len(set(shapes)) > 1:
            odd = next(index for index, shape in enumerate(shapes) if shape != shapes[0])
            held = sorted({info.dtype for info in self.infos})
            zero = False if held == ["bool"] else 0
            conversion_hint = Hint(hints.tree("x", held), ", which converts each")
            padded = Hint(hints.listed("x", held, pad=zero), ", which pads them")
            are_rows = len(set(map(len, shapes))) == 1 and len(shapes[0]) > 0
            raise ShapeError(
                f"Tensors of unequal shapes do not stack: {tuple(shapes[0])} at {_path(outer, 0)}, "
                f"{tuple(shapes[odd])} at {_path(outer, odd)}.",
                conversion_hint | padded if are_rows else conversion_hint,
            )
        return self._replace(shape=(*outer, *shapes[0]))

    def detached(self) -> Members:
        """The members, detached from autograd graphs."""
        grads, which = [info.requires_grad for info in self.infos], self.which
        places = [0] * len(self.tensors) if which is None else which
        pairs = zip(self.tensors, places, strict=True)
        tensors = [self.sources[place].detach(x) if grads[place] else x for x, place in pairs]  # type: ignore[attr-defined]
        return self._replace(tensors=tensors)

    def path(self, index: int) -> str:
        """The path of a tensor in the sequence."""
        return _path(
            self.shape[: len(self.shape) - len(self.infos[0].shape)] or (len(self.tensors),), index
        )


def members_of(x: Any, opening: Opening) -> Members | None:
    """The tensors of a nested sequence; ``None`` if its first element is a number.

    If there are rows of numbers among the tensors, all are read as numbers.

    Raises:
        ConversionError: An element is not a tensor, or lengths are unequal; the message says where.
    """
    if not isinstance(x, (list, tuple)) or not x or type(x[0]) in PYTHON_NUMBERS:
        return None
    kinds = set(map(type, x))
    alike = len(kinds) == 1 and registry.is_known_tensor(type(x[0])) and is_tensor(x[0])
    if not alike and (not _has_tensors(x, first_element(x)[0]) or _has_rows_of_numbers(x)):
        return None
    named = next((kind for kind in (type(x), *kinds) if _has_names(kind)), None)
    if named is not None:
        raise UnsupportedTypeError(
            f"{an(named.__name__, 'A')} is several tensors with names, not one tensor.",
            Hint(hints.tree()),
        )
    if not any(issubclass(kind, ROWS) for kind in kinds):
        return _looked_at(x, (len(x),), opening)
    outer = outer_shape(x)
    return _looked_at([leaf for _, leaf in leaves_with_paths(x)], outer, opening)


def _looked_at(tensors: Sequence[Any], outer: tuple[int, ...], opening: Opening) -> Members:
    """As `look_at`; only a list of columns takes ``nulls=``, so only it has that hint."""
    try:
        return look_at(tensors, outer, opening).stacked(outer)
    except ConversionError as error:
        names_nulls = error.advice is not None and error.advice.values_of("nulls")
        if not names_nulls or (len(outer) == 1 and all(map(_may_have_nulls, tensors))):
            raise
        raise type(error)(error.message, APART) from error


def _may_have_nulls(x: Any) -> bool:
    return _is_column(type(x)) or has_dates(x) or is_masked_array(x)


def _has_names(kind: type) -> bool:
    """Whether its tuples have names for elements: a named tuple, or a result of several tensors."""
    if issubclass(kind, TensorInfo):
        return False
    return issubclass(kind, tuple) and (hasattr(kind, "_fields") or hasattr(kind, "n_fields"))


def with_numbers(x: Any, opening: Opening) -> Members | None:
    """As `members_of`, if the first element is a number and others are in an autograd graph.

    It is ``None`` if there are rows of numbers beside tensors.

    Raises:
        ConversionError: Lengths are unequal; the message says where.
    """
    if _has_rows_of_numbers(x):
        return None
    outer = outer_shape(x)
    return look_at([leaf for _, leaf in leaves_with_paths(x)], outer, opening).stacked(outer)


def look_at(tensors: Sequence[Any], outer: tuple[int, ...], opening: Opening) -> Members:
    """Describe many tensors. No memory is read except that of Python objects.

    Args:
        tensors: The tensors, in order.
        outer: The shape of the sequences around them.
        opening: What they are opened for. Those that are numbers only if a dtype is named for them
            (dates) are read as the dtype of its request.

    Raises:
        ConversionError: One of them cannot be converted; the message says where it is.
    """
    tensors = _read_as_asked(tensors, opening)
    each_opening = Opening(convert=opening.convert)
    kind = type(tensors[0])
    if registry.is_known_tensor(kind) and set(map(type, tensors)) == {kind}:
        backend = registry.backend_of(tensors[0])
        alike = backend.quick.describe_alike(tensors)
        if alike is not None:
            return Members(tensors, [alike], [backend], None)
    known: dict[TensorInfo, int] = {}
    infos: list[TensorInfo] = []
    sources: list[Backend] = []
    which = []
    for index, tensor in enumerate(tensors):
        try:
            source, info, _ = registry.backend_of(tensor).preview(tensor, each_opening)
        except ConversionError as error:
            placed = at_member(error, _path(outer, index))
            if tensor is None:
                placed = UnsupportedTypeError(placed.message, _without_none(outer))
            if has_no_numbers(tensor):
                placed = UnsupportedTypeError(placed.message, STAYS_AS_IT_IS)
            elif _stands_among_many_others(tensor, tensors):
                placed = type(placed)(placed.message, STAYS_AS_IT_IS)
            raise placed from error
        key = info._replace(strides=(), misalignment=0)
        place = known.setdefault(key, len(infos))
        if place == len(infos):
            infos.append(info)
            sources.append(source)
        which.append(place)
    return Members(tensors, infos, sources, which)


def _stands_among_many_others(number: Any, tensors: Sequence[Any]) -> bool:
    """Whether it is a number without a dtype, beside so many that no hint is for one at a time."""
    from numbers import Number  # here, because only an error needs it

    others = [tensor for tensor in tensors if isinstance(tensor, Number)]
    return isinstance(number, Number) and not are_few_others(others)


def _without_none(outer: tuple[int, ...]) -> Hint:
    """The hint for ``None`` among tensors: it has no shape, so that no number can replace it."""
    if len(outer) > 1:
        return Hint(hints.tree(), ", which leaves None as it is")
    others = hints.code("[each for each in x if each is not None]", numbered=True)
    return Hint(others, ", which leaves it out") | Hint(hints.tree(), ", which keeps it")


def _read_as_asked(tensors: Sequence[Any], opening: Opening) -> Sequence[Any]:
    """The tensors; dates, and columns of them, as their contents, if the request names a dtype."""
    request = opening.request
    if request is None or request.dtype not in dtypes.DTYPES:
        return tensors
    columns = {kind for kind in set(map(type, tensors)) if _is_column(kind)}
    dates = [type(tensor) not in columns and has_dates(tensor) for tensor in tensors]
    if not columns and not any(dates):
        return tensors
    # Here, because they would make `import tensorferry` slower.
    from ..columns.layouts import asked_of
    from .opening import dates_of

    asked = asked_of(request.dtype, request.casting)
    read: list[Any] = []
    for tensor, is_date in zip(tensors, dates, strict=True):
        if is_date:
            read.append(dates_of(tensor, asked))
        elif type(tensor) in columns:
            read.append(_read(tensor, asked, request, opening))
        else:
            read.append(tensor)
    return read


def _is_column(kind: type) -> bool:
    return registry.is_tensor(kind) and hasattr(registry.BY_TYPE[kind], "contents_of")


def _read(column: Any, asked: str | None, request: Request, opening: Opening) -> Any:
    """A column of dates as counts, a table of several dtypes as a new array; all else as it is.

    Raises:
        ConversionError: The columns of the table cannot be converted.
    """
    source = registry.backend_of(column)
    contents = source.contents_of(column, asked)  # type: ignore[attr-defined]
    if contents.table is None:
        if getattr(contents.found, "unit", ""):
            return contents
        return column
    if len({getattr(column, "dtype", "") for _, column in contents.columns}) == 1:
        return column
    if opening.convert is None:
        return column
    return opening.convert(
        column,
        registry.backend_named(EXCHANGE),
        Request(EXCHANGE, dtype=request.dtype, casting=request.casting),
    )


def gathered(members: Members, target: Backend | None, request: Request | None) -> Members:
    """The members, with a request for one device and dtype, if they need one before the join.

    Raises:
        DeviceError: They would be stacked in their own framework, but are on several devices.
        GradientError: They would leave an autograd graph in which the result belongs.
        LossyCastError: No dtype has the values of all, and none was asked for.
    """
    if members.stays and target is not None and _are_in_the_graph(members, target):
        number = members.value.item()
        raise GradientError(
            "Tensors in an autograd graph are padded outside of it, and would leave it.",
            Hint(hints.listed('convert_tree(x, "numpy")', pad=number), ", which leaves it"),
        )
    members = _with_numbers_cast(_of_the_dtype_asked_for(members, request), target, request)
    if target is not None and _enter_the_graph(members, target):
        return _in_the_graph(members, target, request)
    infos, source = members.infos, members.sources[0]
    devices = dict.fromkeys(info.device for info in infos)
    if devices.keys() == {HOST} or any(other is not source for other in members.sources):
        return members
    if not source.capabilities.gradients.graph or members.places is not None:
        return members
    place = None  # on one device they are stacked there, and one tensor is moved
    if len(devices) > 1:
        if source is not target:
            place = HOST
        else:
            place = _one_device(devices, request)
    here = place is None or all(same_place(device, place) for device in devices)
    if here and (members.asked is not None or len({info.dtype for info in infos}) == 1):
        return members
    asked = members.asked or Request(
        EXCHANGE, dtype=dtypes.common_dtype(info.dtype for info in infos)
    )
    return members._replace(asked=asked._replace(device=place))


def _with_numbers_cast(
    members: Members, target: Backend | None, request: Request | None
) -> Members:
    """The members, cast one by one if Python numbers among them take the dtype of the tensors."""
    if members.asked is not None or all(info.weak_dtype is None for info in members.infos):
        return members
    dtype = _common_dtype(members.infos, target)
    names = {info.dtype for info in members.infos}
    if dtypes.have_common(names) and dtypes.common_dtype(names) == dtype:
        return members
    return members._replace(asked=Request(EXCHANGE, dtype=dtype, casting=_casting(request)))


def _casting(request: Request | None) -> str:
    """How members are cast to a dtype that nobody named."""
    if request is None or request.casting is None:
        return dtypes.FINITE
    return request.casting


def _one_device(devices: Iterable[str], request: Request | None) -> str:
    """The device on which tensors from several devices are stacked: the one that was asked for.

    Raises:
        DeviceError: None was.
    """
    says = _says_what_is_made(request)
    asked = None if says is None else says.device
    if asked is None:
        first, other = [*devices][:2]
        raise DeviceError(
            f"Tensors on several devices do not stack: they are on {', '.join(devices)}.",
            Hint(hints.keyword("device", first if other == HOST else other)),
        )
    if ":" in asked:
        return asked
    return next((device for device in devices if kind_of(device) == asked), asked)


def _says_what_is_made(request: Request | None) -> Request | TensorInfo | None:
    """What names the dtype and device of the result: the tensor in ``out=``, or the request."""
    if request is None or request.out is None:
        return request
    return request.out


def _common_dtype(infos: Sequence[TensorInfo], target: Backend | None) -> str:
    """The narrowest dtype that has the values of all tensors.

    Python numbers among them have no dtype of their own.

    Bools and integers are kept exactly by a dtype of a higher kind, or the cast raises. A number of
    the tensors' kind, or of a higher one, takes the dtype that the target gives it.

    Raises:
        LossyCastError: No dtype has.
    """
    typed = {info.dtype for info in infos if info.weak_dtype is None}
    numbers = [info for info in infos if info.weak_dtype is not None]
    if not typed or not numbers:
        return dtypes.common_dtype(info.dtype for info in infos)
    highest = max(_rank(name) for name in typed)
    higher = {
        _dtype_of_number(info, target) for info in numbers if not _is_kept_by(info.dtype, highest)
    }
    return dtypes.common_dtype(typed | higher)


def _rank(name: str) -> int:
    """The rank of a kind of numbers. Signed and unsigned integers have the same."""
    kind = dtypes.find(name).kind
    return dtypes.KINDS.index("int" if kind == "uint" else kind)


def _is_kept_by(number: str, rank: int) -> bool:
    """Whether dtypes of this rank keep a number of Python, or cannot have it at all.

    Floats may be rounded.
    """
    return _rank(number) < rank and dtypes.find(number).kind != "float"


def _dtype_of_number(info: TensorInfo, target: Backend | None) -> str:
    """The dtype that the target gives a Python number."""
    if target is None:
        return info.dtype
    return rules.target_dtype(info, Request(target.name), target)


def _enter_the_graph(members: Members, target: Backend) -> bool:
    """Whether a tensor of the target is in its autograd graph, and they are not padded.

    Then the others are converted, and join it there.
    """
    return members.places is None and _are_in_the_graph(members, target)


def _are_in_the_graph(members: Members, target: Backend) -> bool:
    """Whether a tensor of the target is in its autograd graph."""
    return target.capabilities.gradients.graph and any(
        info.requires_grad and source is target
        for info, source in zip(members.infos, members.sources, strict=True)
    )


def _in_the_graph(members: Members, target: Backend, request: Request | None) -> Members:
    """The members, with a request that makes all tensors of the target, of one dtype on one device.

    Raises:
        DeviceError: The tensors of the target are on several devices, and none was asked for.
        LossyCastError: No dtype has the values of all, and none was asked for.
    """
    own = [
        info
        for info, source in zip(members.infos, members.sources, strict=True)
        if source is target
    ]
    devices = list(dict.fromkeys(info.device for info in own))
    if len(devices) == 1:
        place = devices[0]
    else:
        place = _one_device(devices, request)
    asked = members.asked
    names = {info.dtype for info in members.infos}
    if asked is None and len(own) == len(members.infos) and len(names) == len(devices) == 1:
        return members
    if asked is None:
        asked = Request(
            target.name, dtype=_common_dtype(members.infos, target), casting=_casting(request)
        )
    return members._replace(asked=asked._replace(target=target.name, device=place))


def _of_the_dtype_asked_for(members: Members, request: Request | None) -> Members:
    """The members, converted one by one to the request's dtype if no dtype has all values."""
    says = _says_what_is_made(request)
    asked = None if says is None else says.dtype
    names = {info.dtype for info in members.infos}
    if (
        request is None
        or members.asked is not None
        or asked not in dtypes.DTYPES
        or dtypes.have_common(names)
    ):
        return members
    return members._replace(
        asked=Request(EXCHANGE, dtype=asked, casting=request.casting, grad=request.grad)
    )


def whole_of(members: Members, target: Backend | None) -> tuple[Backend | None, TensorInfo]:
    """The stack's backend and description: the target's if it keeps autograd graphs, or an array's.

    Raises:
        LossyCastError: No dtype holds the values of all.
    """
    infos, asked = members.infos, members.asked
    dtype = asked.dtype if asked is not None else None
    if dtype is None and members.which is None:
        dtype = infos[0].dtype
    elif dtype is None:
        dtype = _common_dtype(infos, target)
    owner = None
    if target is not None and members.places is None:
        owner = _stacker(members, target)
    kind = _kind_of_stack(members, owner)
    requires_grad = any(info.requires_grad for info in infos)
    if owner is None:
        info = _info("python", members.shape, dtype, HOST, requires_grad, kind, None)
        return None, info
    device = infos[0].device
    if asked is not None and asked.device is not None:
        device = asked.device
    requires_grad = requires_grad and owner.capabilities.gradients.records
    abstract = _abstract_of(infos, owner)
    info = _info(owner.name, members.shape, dtype, device, requires_grad, kind, abstract)
    return owner, info


def _kind_of_stack(members: Members, owner: Backend | None) -> str:
    """Whether they are padded, joined in one call (a stack), or one after the other (rows).

    Args:
        members: The members.
        owner: The framework that stacks them; ``None`` for NumPy.
    """
    if members.places is not None:
        return "padded"
    if len(members.shape) - len(members.infos[0].shape) > 1:
        return "rows"
    if owner is not None and not _become_tensors_of(owner, members.asked):
        return "stack"
    if members.asked is None and members.take_the_same_steps:
        return "stack"
    return "rows"


def _abstract_of(infos: Sequence[TensorInfo], owner: Backend) -> str | None:
    """Why the stack has no memory: what can only be returned does not become a part of one."""
    fixed = owner.capabilities.objects.only_returned
    return next((info.abstract for info in infos if info.abstract in fixed), infos[0].abstract)


@lru_cache(maxsize=1024)
def _info(
    framework: str,
    shape: tuple[int, ...],
    dtype: str,
    device: str,
    requires_grad: bool,
    kind: str,
    abstract: str | None,
) -> TensorInfo:
    """The description of a tensor in new memory."""
    info = TensorInfo(
        framework, shape, dtype, device, writable=True, mutable=True, requires_grad=requires_grad
    )
    return info._replace(kind=kind_named(kind), abstract=abstract)


def _stacker(members: Members, target: Backend) -> Backend | None:
    """The framework that stacks them: the target in a graph, or their own; ``None`` for NumPy."""
    source, infos = members.sources[0], members.infos
    caps = source.capabilities
    if _become_tensors_of(target, members.asked):
        return target
    if (
        not caps.gradients.graph
        or any(other is not source for other in members.sources)
        or _are_large(members)
    ):
        return None
    one_dtype = members.asked is not None or len({info.dtype for info in infos}) == 1
    if source is not target and any(info.device != HOST for info in infos):
        # Then one tensor crosses the bus, not many.
        if one_dtype and all(info.abstract is None for info in infos):
            return source
        return None
    if source is not target:
        one_call = members.which is None and members.asked is None and not caps.objects.tracer
        if one_call and not infos[0].requires_grad and infos[0].abstract is None:
            return source
        return None
    if one_dtype and {info.abstract for info in infos} <= {None, *caps.objects.inside_only}:
        return source
    return None


def _become_tensors_of(target: Backend, asked: Request | None) -> bool:
    """Whether all members become tensors of the target first: one is in its autograd graph."""
    return asked is not None and asked.target == target.name and target.capabilities.gradients.graph


def _are_large(members: Members) -> bool:
    """Whether members are so large that NumPy stacks them faster: on the host, without gradients.

    NumPy uses huge pages for large memory; the allocators of other frameworks do not.
    """
    if prod(members.shape) * dtypes.find(members.infos[0].dtype).itemsize < memory.MAPPED:
        return False
    return all(
        info.device == HOST and info.abstract is None and not info.requires_grad
        for info in members.infos
    )


def _path(outer: tuple[int, ...], index: int) -> str:
    return "x" + "".join(f"[{place}]" for place in np.unravel_index(index, outer))


def _has_tensors(x: Any, head: Any) -> bool:
    """Whether a sequence contains tensors, by its first element."""
    if is_tensor(head):
        return True
    if not isinstance(head, np.generic):
        return False
    # A NumPy scalar may be followed by tensors.
    others = [
        kind
        for kind in element_types(x)
        if not issubclass(kind, (np.generic, *PYTHON_NUMBERS, *ROWS))
    ]
    return any(map(registry.is_tensor, others))


def _has_rows_of_numbers(x: Any) -> bool:
    """Whether there are rows of Python numbers beside tensors: ``[array([1, 2]), [3, 4]]``."""
    if not any(issubclass(kind, ROWS) for kind in element_types(x)):
        return False
    rows = [row for row in x if isinstance(row, ROWS)]
    if len(rows) == len(x):
        return _has_rows_of_numbers([element for row in rows for element in row])
    heads = [first_element(row)[0] for row in rows]
    return any(type(head) in PYTHON_NUMBERS or isinstance(head, range) for head in heads)
