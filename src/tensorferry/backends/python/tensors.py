"""Python: numbers, nested sequences of numbers or tensors, and typed buffers."""

from __future__ import annotations

import array as arrays
from collections import UserList, deque
from collections.abc import Mapping
from functools import lru_cache
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import hints
from ...core.dtypes import DTYPES, ORDINARY
from ...core.info import MANY, TensorInfo
from ...core.kinds import Kind, kind_named
from ...core.layout import ALIGNMENT
from ...core.names import EXCHANGE_NUMBERS
from ...errors import GradientError, UnsupportedTypeError, an
from ...hints import Hint
from ...host import casts, memory, subnormals
from ...host.numpy_dtypes import NAMES, numpy_dtype, of_numpy
from ...planning import rules
from ...sequences import numbers, reader
from .. import lists
from ..base import UNASKED, Backend, Opening
from .declared import CAPABILITIES, DECLARED, exact_scalar, snippet

if TYPE_CHECKING:
    from ...core.request import Request
    from ...typing import Array
    from ..base import Opened

_BUFFERS = (bytes, bytearray, memoryview, arrays.array)
_NUMBERS = (bool, int, float, complex)
_ROWS = (list, tuple, range)

_REFUSED: dict[type, tuple[str, str | Hint | None]] = {
    str: (
        "A str is text, not numbers.",
        Hint(
            hints.call("load"),
            " if it is a path; ",
            hints.one("[float(word) for word in x.split()]"),
            " if it is numbers",
        ),
    ),
    set: (
        "A set is not a tensor: it has no order.",
        Hint(hints.one("sorted(x)"), " or ", hints.one("list(x)")),
    ),
    frozenset: (
        "A frozenset is not a tensor: it has no order.",
        Hint(hints.one("sorted(x)"), " or ", hints.one("list(x)")),
    ),
    dict: ("A dict is several values with names, not one tensor.", Hint(hints.tree())),
    Mapping: ("A mapping is several values with names, not one tensor.", Hint(hints.tree())),
    deque: ("A deque is not read as a sequence: it is a queue.", Hint(hints.one("list(x)"))),
    UserList: ("A UserList wraps a list, but is not one.", Hint(hints.one("list(x)"))),
    PurePath: ("A path is where a file is, not what is in it.", Hint(hints.call("load"))),
    type(None): (
        "None is not a tensor.",
        'float("nan") for a number that is missing, or leave it out',
    ),
}
_LAZY = {
    "generator",
    "map",
    "filter",
    "zip",
    "dict_keys",
    "dict_values",
    "dict_items",
    "list_iterator",
}


class PythonBackend(Backend):
    """Lists, tuples, `range`, numbers, `bytes`, `bytearray`, `array.array`, `memoryview`."""

    name = "python"
    module = "builtins"
    aliases = ("list",)
    owns = ("builtins", "array", "collections", "decimal", "fractions", "pathlib", "tensorferry")
    rank = 0
    imports = DECLARED.imports
    capabilities = CAPABILITIES  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]
    snippet = staticmethod(snippet)  # pyright: ignore[reportAssignmentType]
    quick_code = f"{__package__}.quick"

    def load(self) -> None:
        """There is no framework to load."""

    def claims(self, kind: type) -> bool:
        own = (list, tuple, range, reader.NewArray, *_BUFFERS, *_NUMBERS)
        return issubclass(kind, own) and not issubclass(kind, TensorInfo)

    def stands_for(self, kind: type) -> bool:
        return kind is list

    def refusal(self, kind: type) -> tuple[str, str | Hint | None] | None:
        if issubclass(kind, TensorInfo):
            return "A TensorInfo describes a tensor, and has no values.", Hint(
                hints.call("explain"), " says what would be done"
            )
        for base, words in _REFUSED.items():
            if issubclass(kind, base):
                return words
        if kind.__name__ in _LAZY:
            return (
                (
                    f"{an(kind.__name__, 'A')} is not a sequence: "
                    "it has no length or no order of its own."
                ),
                Hint(hints.either("list(x)")),
            )
        if kind.__name__ in ("Decimal", "Fraction"):
            return (
                f"{an(kind.__name__, 'A')} is an exact number that no dtype holds.",
                Hint(hints.one("float(x)"), ", which rounds"),
            )
        return None

    def describe(self, x: Any) -> TensorInfo:
        """Describe the array into which a sequence is read, or which is over a buffer."""
        return self.open(x)[1]

    def open(self, x: Any, opening: Opening = UNASKED) -> Opened:
        if type(x) is not list:
            if isinstance(x, _BUFFERS):
                array = _over_buffer(x)
                return self, self._info(array, kind_named("buffer")), array
            if isinstance(x, reader.NewArray):
                return self, self._info_of_new(x, opening.target), x.array
        members = x if isinstance(x, lists.Members) else lists.members_of(x, opening)
        if members is not None:
            return self._opened_together(members, opening)
        target, request = opening.target, opening.request
        first, size = reader.first_element(x)
        if (
            size > MANY
            and target is not None
            and request is not None
            and not rules.reads_in_one_go(request, target)
        ):
            read = self._read_many(x, first, target, request)
            if read is not None:
                return self, _info_of_many(read.shape, read.exact, target, request), read.value
        try:
            array, weak = lists.read(x, first, opening)
        except GradientError:
            members = lists.with_numbers(x, opening)
            if members is None:
                raise
            return self._opened_together(members, opening)
        name = NAMES[array.dtype]
        return self, _numbers_info(array.shape, name, weak and _weak(name, weak, target)), array

    def _opened_together(self, members: lists.Members, opening: Opening) -> Opened:
        members = lists.gathered(members, opening.target, opening.request)
        owner, info = lists.whole_of(members, opening.target)
        return owner or self, info, members

    def _read_many(
        self, x: Any, first: Any, target: Backend, request: Request
    ) -> reader.Read | None:
        """Read many numbers straight into the result of the plan; ``None`` if they are unusual."""
        if request.is_for_host(target):
            here = request
        else:
            here = request._replace(present=target.devices())

        def decide(shape: tuple[int, ...], exact: numbers.Exact) -> reader.Wanted:
            info = _info_of_many(shape, exact, target, request)
            asked = here.asked_by(info)
            dtype = rules.target_dtype(info, asked, target)
            check = rules.check_of(info, asked, dtype)
            if rules.fills_lists(info, target):
                return reader.Wanted(dtype, check, "lists")
            if rules.fills_out(info, asked, target):
                return reader.Wanted(dtype, check, "")
            device = rules.target_device(info, asked, target, dtype)
            if not rules.reads_as_asked(info, target, dtype, device, check):
                dtype, check = exact.dtype, ""
            return reader.Wanted(dtype, check, "array")

        return reader.read_into(x, first, decide, to_scalars)

    def _info_of_new(self, x: reader.NewArray, target: Backend | None) -> TensorInfo:
        array, name = x.array, NAMES[x.array.dtype]
        if x.scalars:
            return _numbers_info(array.shape, name, None)
        if x.exact is None:
            return self._info(array, kind_named("new"))
        return _numbers_info(array.shape, name, _weak(name, x.exact.weak, target))

    def _info(self, array: Array, kind: Kind) -> TensorInfo:
        name = NAMES.get(array.dtype) or of_numpy(array.dtype)
        if name is None:
            raise UnsupportedTypeError(
                f"A buffer of format {array.dtype.str!r} has no numbers to convert.",
                Hint(hints.code("memoryview(x).tobytes()"), ", which are uint8"),
            )
        writable = array.flags.writeable
        mutable = writable or bool(memory.writable_somewhere(array))
        from ..opening import over  # here, because numbers are described without it

        return over(self.name, array, name, mutable=mutable, kind=kind, writable=writable)

    def pointer(self, x: Any) -> int | None:
        if isinstance(x, np.ndarray):
            return memory.address(x)
        return None

    # -- verbs: a Python value was opened as an array ----------------------------------------------

    def read(
        self,
        x: Array | reader.NewArray,
        dtype: str | None = None,
        check: str = "",
        compact: bool = False,
    ) -> Array:
        """The array into which the numbers were read when they were described, cast to `dtype`."""
        array = x.array if isinstance(x, reader.NewArray) else x
        if dtype is None or (
            array.dtype == numpy_dtype(dtype)
            and not (compact and memory.address(array) % ALIGNMENT)
        ):
            return array
        return casts.cast(array, dtype, check, compact=compact)

    def give_back(self, x: Any, dtype: str, check: str = "") -> Any:
        """The lists that were made, with the values of `dtype`, when the numbers were described."""
        if isinstance(x, np.ndarray):
            return to_scalars(self.read(x, dtype, check))
        return x

    def look(self, x: Any, dtype: str, check: str = "") -> Any:
        """The numbers, which were checked against `dtype` when they were described."""
        if check and isinstance(x, np.ndarray):
            casts.check_values(x, dtype, check)
        return x

    def detach(self, x: Any) -> Any:
        """The members of a stack, detached from their graphs."""
        return x.detached()

    def export(self, x: Array) -> Array:
        return x

    def adopt(self, array: Array) -> Any:
        return to_scalars(array)


def _weak(name: str, narrowest: str, target: Backend | None) -> str:
    # A target that takes the exact dtype does not need a narrower one.
    as_read = target is not None and target.capabilities.dtypes.numbers is EXCHANGE_NUMBERS
    return name if as_read else narrowest


def _info_of_many(
    shape: tuple[int, ...], exact: numbers.Exact, target: Backend, request: Request
) -> TensorInfo:
    weak = exact.weak if request.out is None else exact.dtype
    return _numbers_info(shape, exact.dtype, _weak(exact.dtype, weak, target))


@lru_cache(maxsize=1024)
def _numbers_info(shape: tuple[int, ...], name: str, weak: str | None) -> TensorInfo:
    return TensorInfo(
        "python", shape, name, writable=True, mutable=True, weak_dtype=weak, kind="numbers"
    )


@subnormals.with_subnormals
def to_scalars(array: Array) -> Any:
    """Nested lists of Python scalars.

    Narrow dtypes are first cast to a wider one, which is exact.
    """
    # This raises no floating-point flags, because ml_dtypes only moves bits.
    wider = WIDER.get(of_numpy(array.dtype) or "")
    return (array if wider is None else array.astype(wider)).tolist()


WIDER = {name: np.dtype(exact_scalar(name)) for name in DTYPES if name not in ORDINARY}
"""The dtype of Python's numbers for each of ml_dtypes'."""


def _over_buffer(x: Any) -> Array:
    if isinstance(x, arrays.array) and x.typecode in "uw":
        raise UnsupportedTypeError(
            "An array of characters has no numbers to convert.", "x.tounicode().encode()"
        )
    try:
        view = memoryview(x)
    except ValueError as error:
        raise UnsupportedTypeError(
            f"This {type(x).__name__} has no memory any more: {error}.",
            Hint("convert it before ", hints.code("x.release()")),
        ) from error
    try:
        # For the buffer protocol characters are bytes, but for NumPy they are text.
        if view.format == "c":
            return np.asarray(view).view(np.uint8)
        return np.asarray(view)
    except (ValueError, TypeError, RuntimeError) as error:
        raise UnsupportedTypeError(
            f"A buffer of format {view.format!r} has no numbers to convert.",
            Hint(hints.code("memoryview(x).tobytes()"), ", which are uint8"),
        ) from error


BACKEND = PythonBackend()
