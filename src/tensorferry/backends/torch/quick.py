"""PyTorch's tensors, quickly: signatures, short ways for the verbs, many together, fast paths.

Dtype, layout and address of a tensor are read in C (`_tensors.c`), with PyTorch 2.10 or later,
where the extension was built. All that it reads can be read in Python too, in two to five times the
time. The functions that do this are given to it, for tensors that it leaves to them.
"""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.dtypes import DLPACK_CODES
from ...core.signature import COMPACT, layout_of
from ...host import memory
from ...host.extensions import c_extension
from ...host.numpy_dtypes import numpy_dtype
from ..fast_paths import NOT_ACCEPTED, made_when_called
from ..quick import Quick
from .declared import LISTED
from .tensors import TorchBackend

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from ...core.info import TensorInfo
    from ...planning.plan import Plan
    from ...planning.step import Step
    from ...typing import Array

__all__ = [
    "QUICK",
    "TorchQuick",
    "are_alike",
    "array_in_python",
    "environment_in_python",
    "likeness_in_python",
    "numbers_in_python",
    "reader",
    "signature_in_python",
]

_extension: Any = c_extension("backends.torch._tensors")
_DTYPE, _REQUIRES_GRAD, _NBYTES = map(attrgetter, ("dtype", "requires_grad", "nbytes"))
_IS_CPU, _IS_NESTED = attrgetter("is_cpu"), attrgetter("is_nested")
_LARGEST = 16
"""The alignment of the largest element in bytes."""
_TOGETHER = 1 << 20
"""Up to this many bytes, a list of tensors is joined faster without PyTorch."""


class TorchQuick(Quick[TorchBackend]):
    """What makes conversions of ordinary tensors fast."""

    lengths = staticmethod(attrgetter("shape"))  # pyright: ignore[reportAssignmentType]

    def __init__(self, backend: TorchBackend) -> None:
        super().__init__(backend)
        signature, environment = signature_in_python(backend), environment_in_python(backend)
        self.to_array, self.are_alike = array_in_python(backend), partial(are_alike, backend)
        self.reader = reader(backend, signature, self.to_array)
        if self.reader is not None:
            signature, environment = self.reader.signature, self.reader.environment
            self.to_array, self.are_alike = self.reader.array, self.reader.alike
        # In place of methods, whose calls would take longer.
        self.signature = signature  # type: ignore[method-assign]
        self.environment = environment  # type: ignore[method-assign]
        self.likeness = likeness_in_python(backend)  # type: ignore[method-assign]

    # -- many tensors ------------------------------------------------------------------------------

    def signatures(
        self, tensors: Sequence[Any], alignment: int, *, copies: bool = False
    ) -> Hashable | None:
        if self.reader is None:
            return None
        found: bytes | None = self.reader.signatures(tensors, alignment or _LARGEST)
        return found

    def grouped(
        self, tensors: Sequence[Any], alignment: int, *, copies: bool = False
    ) -> Mapping[Hashable, Sequence[int]] | None:
        if self.reader is None:
            return super().grouped(tensors, alignment)
        groups: dict[Hashable, Sequence[int]] | None
        groups = self.reader.grouped(tensors, alignment or _LARGEST)
        if groups is not None and len(groups) == 1:
            return dict.fromkeys(groups, range(len(tensors)))
        return groups

    def extents(
        self, tensors: Sequence[Any], *, compact: bool
    ) -> tuple[Sequence[int] | Array, Sequence[int] | Array]:
        extents_read = None if self.reader is None else self.reader.extents(tensors)
        if extents_read is not None:
            numbers = memoryview(extents_read).cast("Q")
            return numbers[: len(tensors)], numbers[len(tensors) :]
        from .devices import reach  # here, because the reader in C reads ordinary tensors

        starts = np.fromiter(map(type(tensors[0]).data_ptr, tensors), np.uint64, len(tensors))
        lengths = map(_NBYTES if compact else reach, tensors)
        return starts, starts + np.fromiter(lengths, np.uint64, len(tensors))

    def describe_alike(self, tensors: Sequence[Any]) -> TensorInfo | None:
        # Tensors with lazy bits or tangents are described one by one.
        first, backend = tensors[0], self.backend
        if first.is_complex() or backend.forward._current_level >= 0:
            return None
        if self.are_alike(tensors) is None:
            return None
        if any(map(_IS_NESTED, tensors)) or not all(map(_IS_CPU, tensors)):
            return None
        if not first.is_floating_point():
            return backend.describe(first)
        if any(map(backend.tensor.is_neg, tensors)):
            return None
        return backend.describe(first)._replace(requires_grad=any(map(_REQUIRES_GRAD, tensors)))

    def signature_together(self, tensors: Sequence[Any]) -> Hashable | None:
        if self.reader is not None:
            together = self.reader.together(tensors)
        else:
            together = self._described_together(tensors)
        if together is None:
            return None
        # Those that are large together are joined by NumPy.
        return together, tensors[0].nbytes * len(tensors) >= memory.MAPPED

    def _described_together(self, tensors: Sequence[Any]) -> Hashable | None:
        info = self.describe_alike(tensors)
        if info is None or not info.size or len(set(map(self.lengths, tensors))) > 1:
            return None
        return len(info.shape), info._replace(shape=(), strides=(), misalignment=0)

    def likeness_together(self, tensors: Sequence[Any]) -> Hashable | None:
        likeness = self.likeness(tensors[0])
        if likeness is None or self.are_alike(tensors) is None:
            return None
        return likeness, any(map(_REQUIRES_GRAD, tensors))

    def join(self, tensors: Sequence[Any]) -> Array | None:
        if self.reader is None or tensors[0].nbytes * len(tensors) > _TOGETHER:
            return None
        try:
            # What prevents it for one, such as a transformation that is going on, prevents it here.
            if self.to_array(tensors[0]) is None:
                return None
        except NOT_ACCEPTED:
            return None
        joined: Array | None = self.reader.join(tensors)
        return joined

    def join_alike(self, tensors: Sequence[Any]) -> Any:
        with self.backend.without_autocast():
            return self.backend.torch.cat(tensors)

    # -- steps -------------------------------------------------------------------------------------

    def specialised(self, step: Step, plan: Plan) -> Callable[..., Any] | None:
        from .bound import bound_stack, bound_step  # here, because fast paths need no plan

        if step.verb == "stack":
            return bound_stack(self.backend, self.join, plan)
        return bound_step(self.backend, step, plan)

    def for_many(self) -> Mapping[str, Callable[..., Any]]:
        from .bound import verbs_for_many  # here, because only trees and batches need it

        return verbs_for_many(self.backend)

    # -- whole conversions -------------------------------------------------------------------------

    def fast_paths(self) -> Mapping[tuple[type, str], Callable[[Any], Any]]:
        backend = self.backend
        tensor, parameter, name = backend.tensor, backend.torch.nn.Parameter, backend.name
        identity = _identity(backend)
        return {
            (tensor, "numpy"): self.to_array,
            (parameter, "numpy"): self.to_array,
            (tensor, "python"): self._to_list(tensor),
            (parameter, "python"): self._to_list(parameter),
            (tensor, name): identity,
            (parameter, name): identity,
            (np.ndarray, name): _from_numpy(backend),
            (list, name): made_when_called(list, name, lambda: _from_list(backend, self.are_alike)),
        }

    def _to_list(self, kind: type) -> Callable[[Any], Any]:
        if self.reader is not None:
            return self.reader.numbers  # type: ignore[no-any-return]
        return made_when_called(kind, "python", partial(numbers_in_python, self.backend))

    def views(self) -> frozenset[tuple[type, str]]:
        backend = self.backend
        own = backend.tensor, backend.torch.nn.Parameter
        return frozenset([*[(kind, "numpy") for kind in own], (np.ndarray, backend.name)])


# -- what is read of a tensor ----------------------------------------------------------------------


def signature_in_python(backend: TorchBackend) -> Callable[[Any], Hashable | None]:
    """`Quick.signature` for tensors that the reader in C leaves to Python, or for all."""
    # Complex tensors, which may have lazy bits, are described; so are dual tensors, tensors without
    # elements, and pinned ones if that matters.
    dtypes, memories = (
        frozenset(dtype for dtype in backend.names if not dtype.is_complex),
        backend.memories,
    )
    forward, modes, tracing, lowest = backend.forward, backend.modes, backend.tracing, memory.LOWEST

    def signature(x: Any) -> Hashable | None:
        kind = type(x)
        if kind not in memories or x.dtype not in dtypes or forward._current_level >= 0:
            return None
        try:
            pointer, rank = x.data_ptr(), x.dim()
        except RuntimeError:
            return None
        if pointer < lowest or x.is_nested or x.is_neg() or modes():
            return None
        on_host = x.is_cpu
        layout: Hashable = COMPACT
        if not x.is_contiguous():
            # A transfer depends on more than the layout; and the tracer's lengths are symbols.
            if not on_host or tracing() is not None:
                return None
            itemsize = x.itemsize
            layout = layout_of(x.shape, [step * itemsize for step in x.stride()], itemsize)
        signature_read = kind, x.dtype, rank, layout, pointer & 63, x.requires_grad
        return signature_read if on_host else (*signature_read, x.device)

    return signature


def likeness_in_python(backend: TorchBackend) -> Callable[[Any], Hashable | None]:
    """See `Quick.likeness`."""
    memories, modes, lowest = backend.memories, backend.modes, memory.LOWEST

    def likeness(x: Any) -> Hashable | None:
        if type(x) not in memories or not x.is_cpu or x.is_nested or modes():
            return None
        try:
            # Nothing is cached for a dtype that is not supported.
            return x.dtype if x.data_ptr() >= lowest else None
        except RuntimeError:
            return None

    return likeness


def environment_in_python(backend: TorchBackend) -> Callable[[], Hashable]:
    """`Quick.environment`, where there is no reader in C."""
    default_dtype, is_recording, is_tracing = (
        backend.default_dtype,
        backend.is_recording,
        backend.is_tracing,
    )
    return lambda: (default_dtype(), is_recording(), is_tracing())


def are_alike(backend: TorchBackend, tensors: Sequence[Any]) -> Any:
    """The dtype of all, if they are plain tensors or parameters with memory; else ``None``."""
    if not backend.memories.issuperset(map(type, tensors)) or len(set(map(_DTYPE, tensors))) > 1:
        return None
    try:
        has_memory = min(map(backend.tensor.data_ptr, tensors)) >= memory.LOWEST
    except RuntimeError:
        return None
    if has_memory and tensors[0].dtype in backend.names:
        return tensors[0].dtype
    return None


def reader(
    backend: TorchBackend, signature: Callable[[Any], Any], array: Callable[[Any], Any]
) -> Any:
    """The reader of tensors; ``None`` if there is none on this machine.

    Args:
        backend: The backend.
        signature: Reads the signatures of the tensors that it leaves to Python.
        array: The fast path to NumPy for these.
    """
    exchange = getattr(backend.tensor, "__dlpack_c_exchange_api__", None)
    if _extension is None or exchange is None or memory.HEADER is None:
        return None
    rows, names = [], backend.names

    def has_address(x: Any) -> bool:
        strided: bool = (
            x.is_cpu and x.layout is backend.strided and not x.is_nested and x.dtype in names
        )
        return strided and x.data_ptr() >= memory.LOWEST

    for dtype, name in names.items():
        if name not in DLPACK_CODES:
            continue
        code, bits = DLPACK_CODES[name]
        # PyTorch has other integers of one byte: uint1 to uint7, int1 to int7, and quantized ones.
        is_ambiguous = bits == 8 and name in ("int8", "uint8")
        # Complex tensors, which may have lazy bits, are described. A negative bit is all that
        # others can have.
        has_signature = not dtype.is_complex
        # `torch._neg_view` takes integers too.
        may_be_negative = has_signature and dtype is not backend.torch.bool
        through = backend.exported.get(dtype, (None, None))  # its integers, and the name
        facts = is_ambiguous, has_signature, may_be_negative, name in LISTED
        rows.append((code, bits, dtype, *through, *facts))
    try:
        return _extension.Reader(
            exchange=exchange,
            rows=tuple(rows),
            kinds=tuple(backend.memories),
            settings=(backend.default_dtype, backend.is_recording, backend.is_tracing),
            modes=backend.modes,
            forward=backend.forward,
            is_negative=backend.tensor.is_neg,
            has_address=has_address,
            array_type=np.ndarray,
            set_flags=np.ndarray.setflags,
            compact=COMPACT,
            tracing=backend.tracing,
            view=backend.tensor.view,
            to_numpy=backend.tensor.numpy,
            to_list=backend.tensor.tolist,
            view_as=np.ndarray.getfield,
            numpy_dtype=numpy_dtype,
            allocate=lambda shape, dtype: memory.compact(shape, numpy_dtype(names[dtype])),
            signature=signature,
            array=array,
            lowest=memory.LOWEST,
            header=memory.HEADER,
        )
    except ValueError:  # a version of DLPack that did not exist when this was written
        return None


# -- fast paths: PyTorch's own calls, for ordinary tensors -----------------------------------------


# Each checks attributes before the call: an attribute takes 0.05 us, an exception from `numpy()`
# takes 7 us.


def array_in_python(backend: TorchBackend) -> Callable[[Any], Array | None]:
    """Fast path to NumPy: an array over the tensor's memory, read-only if the tensor requires grad.

    PyTorch refuses tensors with lazy bits, and tensors on devices, which are left out before that,
    because an exception takes longer than their transfer. For a tensor whose storage was freed, for
    a functional tensor, and under a fake tensor mode, it gives an array that owns its memory, with
    values that were never set; for a view of freed storage, one at the address of its offset
    (measured on 2.13). It is for tensors that the reader in C leaves to Python, or for all if there
    is none.
    """
    makers, over_memory, is_spread = _array_makers(backend), memory.IN_ONE_RUN, memory.is_spread
    set_flags = np.ndarray.setflags

    def path(x: Any) -> Array | None:
        if not x.is_cpu:
            return None
        make, recorded = makers[x.dtype], x.requires_grad
        # Like `detach`, but without the version counter, which an array does not need, in half the
        # time.
        array: Array | None = make(x.data if recorded else x)
        if array is None or not (array.flags.num in over_memory or is_spread(array)):
            return None
        if not memory.is_there(array) and array.size:
            return None
        if recorded:
            set_flags(array, False)  # type: ignore[call-arg]  # by its name it takes as long again
        return array

    return path


def _array_makers(backend: TorchBackend) -> dict[Any, Callable[[Any], Any]]:
    """By dtype, functions that give an array over the memory of a tensor that requires no grad.

    It gives ``None`` if the tensor must be converted in another way.
    """
    return {dtype: _array_maker(backend, dtype) for dtype in backend.names}


def _array_maker(backend: TorchBackend, dtype: Any) -> Callable[[Any], Any]:
    to_numpy, as_dtype, tracing = backend.tensor.numpy, backend.tensor.view, backend.tracing
    if dtype not in backend.exported:
        return to_numpy
    (as_integer, name), view_as = backend.exported[dtype], np.ndarray.getfield

    def through_integers(x: Any) -> Any:
        # A tracer would record a view of another dtype. `getfield` gives what `view` does, in two
        # thirds of the time.
        if tracing() is None:
            return view_as(to_numpy(as_dtype(x, as_integer)), numpy_dtype(name))
        return None

    return through_integers


def numbers_in_python(backend: TorchBackend) -> Callable[[Any], Any]:
    """The fast path to lists, where there is no reader in C: PyTorch's `tolist`.

    It would also read freed storage, so the address is checked.
    """
    from ...host.subnormals import are_flushed  # here, because only lists need it

    listed = frozenset(dtype for dtype, name in backend.names.items() if name in LISTED)
    to_list, modes, lowest = backend.tensor.tolist, backend.modes, memory.LOWEST

    def path(x: Any) -> Any:
        if x.dtype not in listed or not x.is_cpu or x.is_nested or modes() or are_flushed():
            return None
        # A tensor with another layout has no address, and raises.
        return to_list(x) if x.data_ptr() >= lowest else None

    return path


def _identity(backend: TorchBackend) -> Callable[[Any], Any]:
    strided, names, compiling = backend.strided, backend.names, backend.compiling

    def path(x: Any) -> Any:
        if compiling():
            # The compiler traces this function, and does not support storages.
            return x
        known = x.layout is strided and x.dtype in names and not x.is_nested
        # By the size of the storage, because to read the address would copy a copy-on-write tensor.
        if known and x.untyped_storage().nbytes():
            return x
        return None

    return path


def _from_numpy(backend: TorchBackend) -> Callable[[Any], Any]:
    from_numpy, adopted = backend.from_numpy, backend.adopted

    def path(x: Any) -> Any:
        flags = x.flags
        # Without gaps, by rows or by columns, aligned to the element and writable. All others are
        # for the planner. (NumPy's `farray` is also true of arrays that are none of it.)
        if not (flags.carray or (flags.behaved and flags.f_contiguous)):
            return None
        pair = adopted[x.dtype]
        if pair is None:
            return from_numpy(x)
        return from_numpy(x.view(pair[0])).view(pair[1])

    return path


def _from_list(
    backend: TorchBackend, are_alike: Callable[[Sequence[Any]], Any]
) -> Callable[[list[Any]], Any]:
    """The fast path of a list to PyTorch: a list of numbers, or of tensors that are alike.

    `torch.stack` keeps PyTorch's own in their graph, and refuses different shapes and devices.
    """
    from ...sequences import numbers  # here, because only lists need them
    from .. import together

    # For where the default dtype is float32.
    read = numbers.list_reader({bool: "bool", int: "int64", float: "float32"})
    from_numpy = backend.from_numpy
    default_dtype, single = backend.torch.get_default_dtype, backend.torch.float32
    memories, compiling, stack = backend.memories, backend.compiling, backend.torch.stack
    from_array = _from_numpy(backend)

    def path(x: list[Any]) -> Any:
        if not x or compiling():
            return None
        if type(x[0]) not in memories:
            if default_dtype() is single:
                array = read(x)
            else:
                array = None
            if array is not None:
                return from_numpy(array)
            array = together.join(x)
            return None if array is None else from_array(array)
        # `torch.stack` would also read freed storage, which ends the process, and mix dtypes in
        # silence.
        if are_alike(x) is None or x[0].is_nested:
            return None
        if x[0].nbytes * len(x) < memory.MAPPED or not x[0].is_cpu:
            return stack(x)
        return None

    return path


QUICK = TorchQuick
