"""NumPy: arrays in host memory, through which all conversions on the host go."""

# pyright: reportAssignmentType=false
# It does not take a function for a method of the base class. mypy does, and compares them.

from __future__ import annotations

from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.info import TensorInfo
from ...core.layout import compact_strides
from ...errors import ConversionError, ShapeError, UnsupportedTypeError, an
from ...hints import Hint
from ...host import casts, memory
from ...host.masked import has_masked, is_masked_array
from ...host.numpy_dtypes import NAMES, of_numpy
from ...sequences import numbers
from ...sequences.flags import EXPECTED
from .. import registry
from ..base import Backend, kind_of_type
from . import signatures, stacking
from .declared import CAPABILITIES, DECLARED
from .snippets import snippet

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from ...core.request import Request
    from ...planning.plan import Plan
    from ...planning.step import Step
    from ...typing import Array
    from ..base import Opened

_DTYPE = attrgetter("dtype")

_WRITTEN = 'x.astype("float64"), which reads numbers that are written out'
_WORDS = "np.unique(x, return_inverse=True)[1], which numbers the words"
_HOLDERS = {
    "U": (_WRITTEN, "text has no numbers"),
    "S": ("np.frombuffer(x.tobytes(), np.uint8)", "bytes can be converted as uint8"),
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
    signature, signature_reader = signatures.signature, signatures.signature_reader
    grouped, extents, owns_memory = signatures.grouped, signatures.extents, signatures.owns_memory

    def load(self) -> None:
        """There is nothing to load: NumPy is always imported."""

    def claims(self, kind: type) -> bool:
        if issubclass(kind, np.ndarray):
            return not issubclass(kind, (np.matrix, np.rec.recarray))
        return issubclass(kind, np.generic)

    def stands_for(self, kind: type) -> bool:
        return kind is np.ndarray

    def refusal(self, kind: type) -> tuple[str, str | None] | None:
        if issubclass(kind, np.lib.npyio.NpzFile):
            return "An NpzFile is a file of arrays, not one of them.", Hint(
                "{load:x.zip.filename} or {tree:dict(x)}"
            )
        if issubclass(kind, np.matrix):
            return "A matrix is not a plain array: its products and shapes differ.", "np.asarray(x)"
        if issubclass(kind, np.rec.recarray):
            return (
                "A recarray is fields of several dtypes.",
                Hint("{tree:x}"),
            )
        return None

    def fast_paths(self) -> Mapping[tuple[type, str], Callable[[Any], Any]]:
        as_they_are = numbers.list_reader({kind: exact.dtype for kind, exact in EXPECTED.items()})
        return {(np.ndarray, self.name): _plain, (list, self.name): as_they_are}

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
            return TensorInfo(self.name, (), name, writable=True, kind="scalar")
        return _info(x, name, kind_of_type(type(x)), memory.is_mapped(x))

    def likeness(self, x: Any) -> Hashable | None:
        return x.dtype if type(x) is np.ndarray and x.dtype in NAMES else None

    def for_many(self) -> Mapping[str, Callable[..., Any]]:
        return {"copy": self._copy_each, "cast": casts.cast_each, "write": casts.write_each}

    def _copy_each(self, arrays: Sequence[Array], compact: bool = False) -> list[Array]:
        if compact or not arrays[0].dtype.isnative:
            return [self.copy(x, compact) for x in arrays]
        return [x.copy("K") for x in arrays]

    def describe_alike(self, tensors: Sequence[Any]) -> TensorInfo | None:
        alike = set(map(type, tensors)) == {np.ndarray} and len(set(map(_DTYPE, tensors))) == 1
        return self.describe(tensors[0]) if alike and not tensors[0].dtype.hasobject else None

    def open(self, x: Any, target: Backend | None = None, request: Request | None = None) -> Opened:
        if x.dtype.hasobject:
            return _numbers_of(x, target, request, looks=False)
        if x.dtype.kind in "mM":
            return _dates_of(x, target, request)
        return self, self.describe(x), x

    def preview(
        self, x: Any, target: Backend | None = None, request: Request | None = None
    ) -> Opened:
        return (
            _numbers_of(x, target, request, looks=True)
            if x.dtype.hasobject
            else self.open(x, target, request)
        )

    def is_text(self, x: Any) -> bool:
        kind = x.dtype.kind
        return kind in "USTmM" or (kind == "O" and _is_all_text(x))

    def pointer(self, x: Any) -> int | None:
        return memory.address(x) if isinstance(x, np.ndarray) else None

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
        """A copy without gaps in native byte order: compact and aligned, or with the order of the axes kept."""
        native = x.dtype.isnative
        if not compact:
            packed: Array = (
                x.copy(order="K") if native else x.astype(x.dtype.newbyteorder("="), order="K")
            )
            return packed
        result = memory.compact(x.shape, x.dtype if native else x.dtype.newbyteorder("="))
        result[...] = x
        return result

    cast = staticmethod(casts.cast)
    """See `tensorferry.host.casts`.

    Not a method that calls it, because that would take as long as a small cast.
    """

    stack, pad = staticmethod(stacking.stack), staticmethod(stacking.pad)  # pyright: ignore[reportAssignmentType]

    def check(self, x: Array, dtype: str, check: str) -> Array:
        """The array, after a check that another dtype has all its values."""
        casts.check_values(x, dtype, check)
        return x

    narrow, span = staticmethod(memory.narrow), staticmethod(memory.span)

    def read_only(self, x: Array) -> Array:
        """A read-only view."""
        x.setflags(write=False)
        return x

    def write(self, x: Array, out: Array) -> None:
        """Write the values of `x` into the memory of `out`, cast to its dtype."""
        # A subclass may refuse plain numbers in its own `__setitem__`.
        casts.copy_into(np.asarray(out), x)

    def bound(self, step: Step, plan: Plan) -> Callable[..., Any] | None:
        before, verb = plan.source, step.verb
        if verb == "write":
            alike = (
                plan.written == plan.result.dtype and not before.swapped and not plan.result.kind
            )
            return _write_alike if alike else None
        if before.swapped or before.weak_dtype is not None:
            return None
        if verb == "copy" and before.is_compact and not any(step.arguments):
            return np.ndarray.copy
        if verb == "cast":
            return casts.direct_cast(before.dtype, *step.arguments)
        return None


def _write_alike(x: Array, out: Array) -> None:
    """`write` between arrays of one dtype."""
    # NumPy copies first if they overlap, but not along one axis, where its order is right only for
    # equal strides.
    if x.ndim == 1 and x.strides != out.strides and np.may_share_memory(x, out):
        x = x.copy()
    out[...] = x


def _plain(x: Array) -> Array | None:
    """The fast path from NumPy to NumPy."""
    return x if x.dtype in NAMES and x.dtype.isnative else None


def _info(x: Array, name: str, kind: str, mapped: bool) -> TensorInfo:
    writable, mutable, is_mapped = signatures.who_writes(x, x.flags.writeable)
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
        kind=kind,
    )


def _is_all_text(x: Any) -> bool:
    """Whether an array of objects has only text and the like, arrays of text, and ``None``."""
    return bool(x.size) and not is_masked_array(x) and all(map(_is_text_or_none, x.flat))


def _is_text_or_none(each: Any) -> bool:
    from ..no_tensor import has_no_numbers  # here, because only arrays of objects need it

    if not isinstance(each, np.ndarray):
        return each is None or has_no_numbers(each)
    return each.dtype.kind in "USTmM" or (
        each.dtype.kind == "O" and (not each.size or _is_all_text(each))
    )


def _masked() -> UnsupportedTypeError:
    return UnsupportedTypeError(
        "A MaskedArray is values and a mask, and its mask would be lost.",
        "x.filled(0), or another value",
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
            Hint("{tree:x}"),
        )
    if dtype.kind in _HOLDERS:
        from ...columns.code import is_number  # here, because only an error needs it

        hint, why = _HOLDERS[dtype.kind]
        if hint is _WRITTEN and not is_number(next(iter(np.asarray(x).flat), None)):
            hint = _WORDS
        return UnsupportedTypeError(f"dtype {dtype} cannot be converted: {why}.", hint)
    if dtype.kind in "fc":
        wide = "float64" if dtype.kind == "f" else "complex128"
        return UnsupportedTypeError(
            f"dtype {dtype} cannot be converted: no framework but NumPy has extended precision.",
            f'x.astype("{wide}"), which rounds',
        )
    return UnsupportedTypeError(
        f"dtype {dtype} cannot be converted: its bytes have no name.",
        "np.frombuffer(x.tobytes(), np.uint8), which has its bytes; or the view of the dtype that is meant",
    )


def _dates_of(x: Any, target: Backend | None, request: Request | None) -> Opened:
    """Open dates or durations: as the integers that they are, if an integer dtype is named; otherwise refused."""
    from ...columns.layouts import asked_of
    from ..dates import dates_of

    if has_masked(x):
        raise _masked()
    contents = dates_of(x, None if request is None else asked_of(request.dtype, request.casting))
    return registry.backend_of(contents).open(contents, target, request)


def _numbers_of(x: Any, target: Backend | None, request: Request | None, *, looks: bool) -> Opened:
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
        source, info, handle = (owner.preview if looks else owner.open)(values, target, request)
    except RecursionError as error:
        raise ShapeError("This array of objects contains itself, so it has no end.") from error
    except ConversionError as error:
        if isinstance(error.hint, Hint):
            error.hint = error.hint.for_list("np.asarray(x).tolist()")
            error.args = error.message, error.hint
        raise
    info = info._replace(kind={"numbers": "objects", "stack": "rows"}.get(info.kind, info.kind))
    if not x.size:
        steps = compact_strides(x.shape, handle.itemsize)
        return source, info._replace(shape=x.shape, strides=steps), handle.reshape(x.shape)
    return source, info, handle


BACKEND = NumpyBackend()
