"""NumPy: arrays in host memory, through which all conversions on the host go."""

# pyright: reportAssignmentType=false
# It does not take a function for a method of the base class. mypy does, and compares them.

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import hints
from ...core.dtypes import common_dtype
from ...core.info import TensorInfo
from ...core.kinds import kind_named
from ...core.layout import compact_strides
from ...errors import ConversionError, ShapeError, UnsupportedTypeError, an
from ...hints import Hint
from ...host import casts, memory
from ...host.masked import has_masked, is_masked_array
from ...host.numpy_dtypes import NAMES, numpy_dtype, of_numpy
from .. import registry
from ..base import UNASKED, Backend, Opening, kind_of_type
from .declared import CAPABILITIES, DECLARED, snippet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...typing import Array
    from ..base import Opened

_WRITTEN = Hint(hints.code('x.astype("float64")'), ", which reads numbers that are written out")
_WORDS = Hint(hints.code("np.unique(x, return_inverse=True)[1]"), ", which numbers the words")
_BYTES = hints.code("np.frombuffer(x.tobytes(), np.uint8)")
_HOLDERS = {
    "U": (_WRITTEN, "text has no numbers"),
    "S": (Hint(_BYTES), "bytes can be converted as uint8"),
    "T": (_WRITTEN, "text has no numbers"),
}


class NumpyBackend(Backend):
    """`np.ndarray` and NumPy's scalars."""

    name = "numpy"
    module = "numpy"
    aliases = ("np",)
    owns = ("numpy", "ml_dtypes")
    rank = 1
    install = "pip install numpy"
    imports = DECLARED.imports
    capabilities = CAPABILITIES  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]
    snippet = staticmethod(snippet)
    quick_code = f"{__package__}.quick"

    def load(self) -> None:
        """There is nothing to load: NumPy is always imported."""

    def claims(self, kind: type) -> bool:
        if issubclass(kind, np.ndarray):
            return not issubclass(kind, (np.matrix, np.rec.recarray))
        return issubclass(kind, np.generic)

    def stands_for(self, kind: type) -> bool:
        return kind is np.ndarray

    def refusal(self, kind: type) -> tuple[str, str | Hint | None] | None:
        if issubclass(kind, np.lib.npyio.NpzFile):
            return "An NpzFile is a file of arrays, not one of them.", Hint(
                hints.call("load", "x.zip.filename"), " or ", hints.tree("dict(x)")
            )
        if issubclass(kind, np.matrix):
            return "A matrix is not a plain array: its products and shapes differ.", "np.asarray(x)"
        if issubclass(kind, np.rec.recarray):
            return (
                "A recarray is fields of several dtypes.",
                Hint(hints.tree()),
            )
        return None

    def describe(self, x: Any) -> TensorInfo:
        dtype = x.dtype
        if dtype.kind in "mM":
            return self.open(x)[1]
        if has_masked(x):
            raise _masked()
        name = NAMES.get(dtype)
        if name is None:
            name = of_numpy(dtype)
            if name is None:
                raise _no_such_dtype(dtype, x)
        if type(x) is np.ndarray:
            return _info(x, name, "", False)
        if isinstance(x, np.generic):
            return TensorInfo(self.name, (), name, writable=True, kind=_SCALAR)
        return _info(x, name, kind_of_type(type(x)), memory.is_mapped(x))

    def open(self, x: Any, opening: Opening = UNASKED) -> Opened:
        if x.dtype.hasobject:
            return _numbers_of(x, opening, looks=False)
        if x.dtype.kind in "mM":
            return _dates_of(x, opening)
        return self, self.describe(x), x

    def preview(self, x: Any, opening: Opening = UNASKED) -> Opened:
        if x.dtype.hasobject:
            return _numbers_of(x, opening, looks=True)
        return self.open(x, opening)

    def is_text(self, x: Any) -> bool:
        kind = x.dtype.kind
        return kind in "USTmM" or (kind == "O" and _is_all_text(x))

    def pointer(self, x: Any) -> int | None:
        if isinstance(x, np.ndarray):
            return memory.address(x)
        return None

    def export(self, x: Any) -> Array:
        return np.asarray(x)

    def adopt(self, array: Array) -> Any:
        return array

    def read(self, x: Any) -> Array:
        """A scalar as a new array of shape ``()``."""
        scalar = np.array(x)
        result = memory.compact((), scalar.dtype)
        result[...] = scalar
        return result

    def copy(self, x: Array, compact: bool = False) -> Array:
        """A copy without gaps in native byte order.

        It is compact and aligned, or keeps the order of the axes.
        """
        native = x.dtype.isnative
        if not compact:
            if native:
                packed: Array = x.copy(order="K")
            else:
                packed = x.astype(x.dtype.newbyteorder("="), order="K")
            return packed
        result = memory.compact(x.shape, x.dtype if native else x.dtype.newbyteorder("="))
        result[...] = x
        return result

    cast = staticmethod(casts.cast)
    """See `tensorferry.host.casts`.

    Not a method that calls it, because that would take as long as a small cast.
    """

    def stack(self, tensors: Sequence[Any], shape: tuple[int, ...]) -> Array:
        """Stack arrays of equal shapes into one of `shape`, in the dtype that has all their values."""
        result = memory.joined_array(tensors)
        if result is not None:
            return result.reshape(shape)
        inner = tensors[0].shape
        names = {of_numpy(dtype) or "" for dtype in {array.dtype for array in tensors}}
        if len(names) > 1:
            result = memory.compact((len(tensors), *inner), numpy_dtype(common_dtype(names)))
            for index, array in enumerate(tensors):
                casts.copy_into(result[index : index + 1], array[np.newaxis])
            return result.reshape(shape)
        result = memory.compact(shape, numpy_dtype(names.pop()))
        if inner:
            # Not `np.stack`, which makes a view of each array. For small arrays, that doubles the
            # memory.
            np.concatenate(tensors, out=result.reshape(len(tensors) * inner[0], *inner[1:]))
        else:
            np.stack(tensors, out=result.reshape(len(tensors)))
        return result

    def pad(self, arrays: Any, shape: tuple[int, ...], places: Any, value: Array) -> Array:
        """Put arrays of one dtype into a new array of `shape`, with a value in all other places.

        Args:
            arrays: The arrays; or one array with the rows of all, one after the other.
            shape: The shape of the result.
            places: The index of each array; or the lengths of all, if the others are their shapes.
            value: The value for all other elements.
        """
        if isinstance(places, memory.RowLengths):
            if not isinstance(arrays, np.ndarray):
                arrays = np.concatenate(arrays)
            return memory.padded_array(arrays, places, shape, value)
        result = memory.compact(shape, value.dtype)
        result[...] = value
        # Lists of tensors may be nested, and then several axes count the arrays.
        inner = shape[len(shape) - np.ndim(arrays[0]) :] or (1,)
        rows = result.reshape(len(places), *inner)
        for row, place, array in zip(rows, places, arrays, strict=True):
            row[place] = array
        return result

    def check(self, x: Array, dtype: str, check: str) -> Array:
        """The array, after a check that another dtype has all its values."""
        casts.check_values(x, dtype, check)
        return x

    narrow, span = staticmethod(memory.first_along), staticmethod(memory.span_view)

    def read_only(self, x: Array) -> Array:
        """A read-only view."""
        x.setflags(write=False)
        return x

    def write(self, x: Array, out: Array) -> None:
        """Write the values of `x` into the memory of `out`, cast to its dtype."""
        # A subclass may refuse plain numbers in its own `__setitem__`.
        casts.copy_into(np.asarray(out), x)


_SCALAR = kind_named("scalar")
_IN_OBJECTS = {
    kind_named("numbers"): kind_named("objects"),
    kind_named("stack"): kind_named("rows"),
}
"""The kinds of lists, and what they are in an array of objects."""


def _info(x: Array, name: str, kind: str, mapped: bool) -> TensorInfo:
    writable, mutable, is_mapped = who_writes(x, x.flags.writeable)
    mapped = mapped or is_mapped
    at, swapped = memory.address(x) & 63, not x.dtype.isnative
    return _described(x.shape, name, x.strides, at, writable, mutable, swapped, mapped, kind)


@lru_cache(maxsize=4096)
def _described(
    shape: tuple[int, ...],
    name: str,
    strides: tuple[int, ...],
    misalignment: int,
    writable: bool,
    mutable: bool,
    swapped: bool,
    mapped: bool,
    kind: str,
) -> TensorInfo:
    bits = (False, False, False, swapped)
    return TensorInfo(
        "numpy",
        shape,
        name,
        "cpu",
        strides,
        misalignment,
        writable,
        mutable,
        *bits,
        memory_map=mapped,
        kind=kind_named(kind),
    )


def who_writes(x: Array, writable: bool) -> tuple[bool, bool, bool]:
    """Whether an array is writable, whether its memory can be at all, whether it is over a file."""
    if writable and x.base is None:
        return True, True, False
    return writable, writable or _is_mutable(x), memory.is_mapped(x)


def _is_mutable(x: Array) -> bool:
    """Whether the memory of a read-only array can be written through another object.

    If unknown, yes.
    """
    writable = memory.writable_somewhere(x)
    if isinstance(writable, bool):
        return writable
    if type(writable).__name__ == "PyCapsule":
        # It may have been exported by an object that can write it, such as a writable array.
        return not _immutable_holds(writable)
    try:
        return registry.backend_of(writable).capabilities.memory.writable
    except UnsupportedTypeError:
        return True


def _immutable_holds(owner: object) -> bool:
    """Whether the owner of an array's memory belongs to a known framework's immutable tensor."""
    for backend in registry.imported():
        with registry.outside.guard(backend.name):
            if not backend.capabilities.memory.writable and backend.holds(owner):
                return True
    return False


def _is_all_text(x: Any) -> bool:
    """Whether an array of objects has only text and the like, arrays of text, and ``None``."""
    return bool(x.size) and not is_masked_array(x) and all(map(_is_text_or_none, x.flat))


def _is_text_or_none(x: Any) -> bool:
    from ..no_tensor import has_no_numbers  # here, because only arrays of objects need it

    if not isinstance(x, np.ndarray):
        return x is None or has_no_numbers(x)
    return x.dtype.kind in "USTmM" or (x.dtype.kind == "O" and (not x.size or _is_all_text(x)))


def _masked() -> UnsupportedTypeError:
    return UnsupportedTypeError(
        "A MaskedArray is values and a mask, and its mask would be lost.",
        Hint(hints.code("x.filled(0)"), ", or another value"),
    )


def _no_such_dtype(dtype: np.dtype[Any], x: Any) -> UnsupportedTypeError:
    if not dtype.itemsize and dtype.names is not None:
        return UnsupportedTypeError(
            f"dtype {dtype} cannot be converted: it has no bytes: integers have no gradient.",
            "np.zeros(x.shape)",
        )
    if dtype.names is not None:
        return UnsupportedTypeError(
            f"dtype {dtype} is structured: several tensors in one memory.",
            Hint(hints.tree()),
        )
    if dtype.kind in _HOLDERS:
        from ...columns.column import is_number  # here, because only an error needs it

        hint, why = _HOLDERS[dtype.kind]
        if hint is _WRITTEN and not is_number(next(iter(np.asarray(x).flat), None)):
            hint = _WORDS
        return UnsupportedTypeError(f"dtype {dtype} cannot be converted: {why}.", hint)
    if dtype.kind in "fc":
        wide = "float64" if dtype.kind == "f" else "complex128"
        return UnsupportedTypeError(
            f"dtype {dtype} cannot be converted: no framework but NumPy has extended precision.",
            Hint(hints.code(f'x.astype("{wide}")'), ", which rounds"),
        )
    return UnsupportedTypeError(
        f"dtype {dtype} cannot be converted: its bytes have no name.",
        Hint(_BYTES, ", which has its bytes") | "the view of the dtype that is meant",
    )


def _dates_of(x: Any, opening: Opening) -> Opened:
    """Open dates or durations: as their integers, if an integer dtype is named; else refused."""
    from ...columns.layouts import asked_of
    from ..opening import dates_of

    if has_masked(x):
        raise _masked()
    request = opening.request
    contents = dates_of(x, None if request is None else asked_of(request.dtype, request.casting))
    return registry.backend_of(contents).open(contents, opening)


def _numbers_of(x: Any, opening: Opening, *, looks: bool) -> Opened:
    """Open (or, with `looks`, describe) an object array as the nested list of its elements.

    Raises:
        UnsupportedTypeError: An array of shape ``()`` has an element that is not a number.
        ShapeError: It contains itself.
    """
    if x.dtype.names is not None:
        raise _no_such_dtype(x.dtype, x)
    if has_masked(x):
        raise _masked()
    # A nested list cannot show the axes after one of length 0.
    values = x.tolist() if x.size else []
    if values is None:
        raise UnsupportedTypeError("None at x[()] is not a number.", 'float("nan")')
    if x.shape == () and not isinstance(values, (complex, float, int, np.generic)):
        held = type(values).__name__
        raise UnsupportedTypeError(
            f"An array of objects of shape () holds {an(held)}, not a number.", "x.item()"
        )
    try:
        owner = registry.backend_of(values)
        source, info, handle = (owner.preview if looks else owner.open)(values, opening)
    except RecursionError as error:
        raise ShapeError("This array of objects contains itself, so it has no end.") from error
    except ConversionError as error:
        if error.advice is not None:
            error.advise(error.advice.for_list("np.asarray(x).tolist()"))
        raise
    info = info._replace(kind=_IN_OBJECTS.get(info.kind, info.kind))
    if not x.size:
        steps = compact_strides(x.shape, handle.itemsize)
        return source, info._replace(shape=x.shape, strides=steps), handle.reshape(x.shape)
    return source, info, handle


BACKEND = NumpyBackend()
