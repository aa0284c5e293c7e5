"""`TorchBackend`: descriptions of PyTorch tensors, and the verbs."""

from __future__ import annotations

import importlib
import inspect
import sys
import warnings
from contextlib import nullcontext, suppress
from functools import cached_property, lru_cache, partial
from types import CellType, FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import hints
from ...core.devices import HOST, device_name
from ...core.dtypes import ORDINARY, find
from ...core.info import TensorInfo
from ...core.kinds import kind_named
from ...core.layout import AXES
from ...errors import UnsupportedTypeError, an
from ...hints import Hint
from ...host import memory
from ...host.numpy_dtypes import numpy_dtype, of_numpy
from .. import registry
from ..base import Backend, DeviceParts, kind_of_type
from .declared import (
    ABSTRACT,
    AS_INTEGERS,
    DECLARED,
    capabilities_by,
    snippet,
    snippet_with_a_warning,
    whole_strides,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...core.capabilities import Capabilities, DeviceFacts
    from ...core.declaration import Code, Placement, VerbCall
    from ...devices.streams import Stream
    from ...host.dlpack import DlpackExport
    from ...typing import Array
    from ..nodes import Node
    from .devices import Accelerators, PackedBuffers

__all__ = ["BACKEND", "TorchBackend"]

_QUANTIZED = {"torch.qint8": "int8", "torch.quint8": "uint8", "torch.qint32": "int32"}
"""The dtypes of the integers in quantized tensors."""


class TorchBackend(Backend):
    """`torch.Tensor`, its parameters and plain subclasses."""

    name = "torch"
    module = "torch"
    aliases = ("pt", "pytorch")
    owns = ("torch",)
    keeps_devices = True
    rank = 2
    is_traced = True
    install = "pip install torch"
    imports = DECLARED.imports
    quick_code = f"{__package__}.quick"
    takes_read_only = True
    """Whether PyTorch takes DLPack 1.0 (from 2.9 on), the first that can mark read-only memory."""

    # -- the framework -----------------------------------------------------------------------------

    def load(self) -> None:
        import torch

        self.torch: Any = torch
        # Looked up once, because a lookup takes as long as some of the calls.
        self.tensor, self.strided = torch.Tensor, torch.strided
        self.memories = frozenset({torch.Tensor, torch.nn.Parameter})
        self.uninitialized = self.torch.nn.parameter.UninitializedTensorMixin
        self.from_numpy, self.from_dlpack = torch.from_numpy, self.torch.utils.dlpack.from_dlpack
        # Dtypes.
        names = [*ORDINARY, *AS_INTEGERS]
        self.dtypes = {name: getattr(torch, name) for name in names if hasattr(torch, name)}
        self.names = {dtype: name for name, dtype in self.dtypes.items()}
        self.exported = {
            self.dtypes[name]: (getattr(torch, via), name)
            for name, via in AS_INTEGERS.items()
            if name in self.dtypes
        }
        self.adopted = _Adopted(self.dtypes)
        self.by_default = _ByDefault(self.dtypes)
        self.takes_read_only = _takes_read_only(self.from_dlpack)
        # Settings of PyTorch, and what traces, fakes or differentiates now.
        self.default_dtype, self.is_recording = torch.get_default_dtype, torch.is_grad_enabled
        self.forward: Any = torch.autograd.forward_ad
        self.compiling = torch.compiler.is_compiling
        self.is_tracing: Callable[[], bool] = getattr(
            self.torch._C, "_is_tracing", self.torch.jit.is_tracing
        )
        self.tracing: Callable[[], Any] = getattr(self.torch._C, "_get_tracing_state", lambda: None)
        self.wrapped = self.torch._C._functorch.is_functorch_wrapped_tensor
        self.functional: Callable[[Any], bool] = getattr(
            torch, "_is_functional_tensor", lambda _: False
        )
        self.faking, self.differentiates = _mode_that_fakes(torch), _differentiates(torch)
        # The number of active modes, which also counts a FakeTensorMode, in two thirds of the time.
        self.modes = getattr(self.torch._C, "_len_torch_dispatch_stack", lambda: 1)
        # Without it, `torch.autocast` casts tensors that are stacked or concatenated, or refuses
        # their dtype.
        self.without_autocast: Callable[[], Any] = getattr(
            self.torch._C, "_DisableAutocast", nullcontext
        )
        # Tensors in a loop are alike. If they have the same description object, their plan is found
        # faster.
        self.dense = lru_cache(maxsize=4096)(self._dense_info)

    @cached_property
    def accelerators(self) -> Accelerators:
        """What PyTorch can do on each kind of device."""
        # Here and below, because ordinary tensors need none of it.
        from .devices import Accelerators

        return Accelerators(self.torch, self.dtypes)

    @cached_property
    def buffers(self) -> PackedBuffers:
        """Many tensors in one."""
        from .devices import PackedBuffers

        return PackedBuffers(self.torch, self.memories, self.without_autocast)

    @property
    def capabilities(self) -> Capabilities:
        if not self.loaded:
            return DECLARED.capabilities
        return self.by_default[self.default_dtype(), self.is_recording(), self.is_tracing()]

    def devices(self) -> tuple[str, ...]:
        return (HOST, *self.accelerators.names())

    def device_facts(self, kind: str) -> DeviceFacts:
        if self.loaded:
            return self.accelerators.facts(kind)
        return DECLARED.device_facts(kind)

    def shield(self, function: Callable[..., Any]) -> Callable[..., Any]:
        torch: Any = importlib.import_module("torch")
        try:
            skip(torch, function)
        except AttributeError:
            return function
        # If the compiler has been imported, it may be running already.
        return torch.compiler.disable(function) if "torch._dynamo" in sys.modules else function

    # -- which types are its tensors ---------------------------------------------------------------

    def claims(self, kind: type) -> bool:
        return issubclass(kind, self.torch.Tensor) and not issubclass(kind, self.uninitialized)

    def stands_for(self, kind: type) -> bool:
        return kind is self.torch.Tensor

    def refusal(self, kind: type) -> tuple[str, str | Hint | None] | None:
        if issubclass(kind, self.uninitialized):
            return (
                (
                    f"This {kind.__name__} has no shape yet: "
                    "its module gives it one when it is called."
                ),
                Hint("module(inputs) first, or ", hints.code("x.materialize(shape)")),
            )
        if issubclass(kind, self.torch.nn.Module):
            return (
                f"{an(kind.__name__, 'A')} is a torch.nn.Module: it holds tensors, but is not one.",
                Hint(hints.tree("x.state_dict()")),
            )
        if issubclass(kind, self.torch.utils.data.DataLoader):
            return "A DataLoader is many batches, one after the other.", Hint(
                hints.call("prefetch")
            )
        if issubclass(kind, (self.torch.Size, tuple)):
            return None
        if kind.__name__ == "PackedSequence":
            return (
                "A PackedSequence is rows of unequal lengths.",
                "torch.nn.utils.rnn.pad_packed_sequence(x)",
            )
        return None

    # -- what a tensor is --------------------------------------------------------------------------

    def describe(self, x: Any) -> TensorInfo:
        plain = type(x) is self.tensor
        try:
            pointer = x.data_ptr() if plain else 0
        except RuntimeError:
            pointer = 0
        # A tensor with an address is strided, and neither traced, nor a meta tensor, nor autograd's
        # zeros.
        if (
            pointer < memory.LOWEST
            or self.compiling()
            or x.is_nested
            or self.modes()
            or self.differentiates()
        ):
            abstract = self.why_abstract(x)
            if abstract is not None:
                return self._abstract_info(x, abstract)
            pointer = x.data_ptr()
        on_host, dtype = x.is_cpu, x.dtype
        info: TensorInfo | None = self.dense(
            x.shape,
            dtype,
            HOST if on_host else device_name(x.device),
            x.stride(),
            pointer & 63,
            x.requires_grad or (self.forward._current_level >= 0 and self.is_dual(x)),
            dtype.is_complex and x.is_conj(),
            x.is_neg(),
            on_host and self.accelerators.is_pinned(x),
            "" if plain else kind_of_type(type(x)),
        )
        if info is None:
            if x.is_quantized:
                return self._abstract_info(x, "quantized")
            raise _no_such_dtype(x)
        return info

    def is_dual(self, x: Any) -> bool:
        """Whether the tensor has a tangent, for forward-mode differentiation."""
        try:
            return self.forward.unpack_dual(x).tangent is not None
        except RuntimeError:  # inside an operator, where there is no differentiation
            return False

    def why_abstract(self, x: Any) -> str | None:
        """Why a tensor has no memory that can be read; ``None`` if it has."""
        if self.compiling() or self.wrapped(x) or self.functional(x) or self.differentiates():
            return "traced"
        if type(x) not in self.memories and self._is_wrapper(x):
            known = type(x).__name__ in ABSTRACT and type(x).__module__.startswith("torch.")
            return type(x).__name__ if known else "wrapper"
        if x.is_nested:
            return "nested"
        if x.is_quantized:
            return "quantized"
        if x.layout is not self.strided:
            return "opaque" if x.is_mkldnn else "sparse"
        if x.is_meta:
            return "meta"
        if x._is_zerotensor():
            return "zero"
        if x.numel() and not x.untyped_storage().nbytes():
            return "freed"
        return None if self.faking() is None else "real"

    def _is_wrapper(self, x: Any) -> bool:
        from torch.utils._python_dispatch import is_traceable_wrapper_subclass

        if (
            is_traceable_wrapper_subclass(x)
            or type(x).__torch_dispatch__ is not self.torch.Tensor.__torch_dispatch__
        ):
            return True
        try:
            return bool(x.numel() and not x.data_ptr() and x.is_cpu)
        except RuntimeError:
            return True

    def _dense_info(
        self,
        shape: Sequence[int],
        dtype: Any,
        device: str,
        strides: Sequence[int],
        misalignment: int,
        *marks: Any,
    ) -> TensorInfo | None:
        """The description of a tensor with memory; ``None`` if its dtype is not supported."""
        name = self.names.get(dtype)
        if name is None:
            return None
        steps = [step * find(name).itemsize for step in strides]
        requires_grad, conjugate, negative, pinned, kind = marks
        bits = (requires_grad, conjugate, negative, False)
        return TensorInfo(
            self.name,
            shape,
            name,
            device,
            steps,
            misalignment,
            True,
            True,
            *bits,
            pinned=pinned,
            kind=kind_named(kind),
        )

    def _abstract_info(self, x: Any, abstract: str) -> TensorInfo:
        name = self.names.get(x.dtype) or _QUANTIZED.get(str(x.dtype))
        if name is None:
            raise _no_such_dtype(x)
        shape: list[int] = []
        if abstract != "nested":
            shape = [length if isinstance(length, int) else 1 for length in x.shape]
        return TensorInfo(
            self.name,
            shape,
            name,
            requires_grad=x.requires_grad,
            kind=kind_named(kind_of_type(type(x))),
            abstract=abstract,
            shards=self._distributed.shards_of(x) if abstract == "DTensor" else 1,
        )._replace(device=HOST if x.is_cpu else str(x.device))

    def pointer(self, x: Any) -> int | None:
        pointer: int = x.data_ptr()
        return pointer

    # -- containers and plain values, which are no tensors -----------------------------------------

    def opener_of(self, kind: type) -> Callable[[Any], Node | None] | None:
        from .containers import opener_of  # here and below, because tensors alone need none of it

        return opener_of(kind)

    def has_node(self, kind: type) -> bool:
        from .containers import is_registered

        return is_registered(kind)

    def open_node(self, x: Any) -> Node | None:
        from .containers import open_registered

        return open_registered(x)

    def plain_value(self, x: Any) -> tuple[str, str | list[int]] | None:
        from .containers import plain_value

        return plain_value(x)

    def value_of(self, kind: str, value: object) -> Any:
        from .containers import value_of

        return value_of(kind, value)

    # -- verbs on the host -------------------------------------------------------------------------

    def detach(self, x: Any) -> Any:
        """A tensor over the same memory, outside the autograd graph."""
        return x.detach()

    def resolve(self, x: Any) -> Any:
        """A copy in which the conjugate and negative bits are applied."""
        from .devices import resolved

        return resolved(x)

    def export(self, x: Any) -> Array:
        through_integer = self.exported.get(x.dtype)
        if through_integer is None:
            array: Array = x.numpy()
            return array
        as_integer, name = through_integer
        dtype = numpy_dtype(name)
        if self.tracing() is not None:
            return self._export_traced(x, as_integer).view(dtype)
        viewed: Array = x.view(as_integer).numpy().view(dtype)
        return viewed

    def _export_traced(self, x: Any, as_integer: Any) -> Array:
        """An array of another dtype over the same memory, hidden from `torch.jit.trace`.

        The tracer would record a view of another dtype, and fail at the end. As for other dtypes,
        it warns.
        """
        state = self.tracing()
        self.torch._C._set_tracing_state(None)
        try:
            array: Array = x.detach().view(as_integer).numpy()
        finally:
            self.torch._C._set_tracing_state(state)
        warnings.warn(
            "torch.jit.trace records no conversion to another framework: "
            "in the trace its result is a constant.",
            self.torch.jit.TracerWarning,
            stacklevel=2,
        )
        return array

    def adopt(self, array: Array) -> Any:
        through_integer = self.adopted[array.dtype]
        if through_integer is None:
            if array.flags.carray:
                try:
                    return self.from_numpy(array)
                except (TypeError, ValueError):  # see below
                    pass
            return self._from_numpy(array)
        via, dtype = through_integer
        return self._from_numpy(array.view(via)).view(dtype)

    def _from_numpy(self, array: Array) -> Any:
        if not array.flags.writeable:
            # Only with ``copy=False``. `from_numpy` would warn.
            return self._alias(array)
        try:
            return self.from_numpy(array)
        except ValueError:
            steps = whole_strides(array.shape, array.strides, array.itemsize)
            return self.torch.from_numpy(np.lib.stride_tricks.as_strided(array, strides=steps))
        except TypeError:
            # PyTorch knows only one of several C types of the same width: long, not long long.
            return self.torch.from_numpy(array.view(numpy_dtype(of_numpy(array.dtype) or "")))

    def _alias(self, array: Array) -> Any:
        """A tensor over read-only memory, though PyTorch has no read-only tensors."""
        if self.takes_read_only:
            with suppress(BufferError, TypeError, ValueError):
                return self.from_dlpack(array.__dlpack__(max_version=(1, 0)))
        return self._from_numpy(memory.over(array))

    def copy(self, x: Any) -> Any:
        """A copy, which stays in the graph of `x`."""
        return self._asked(x.clone)

    def _asked(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of a tensor, which a mode around the call may refuse.

        Raises:
            UnsupportedTypeError: It is refused.
        """
        try:
            return method(*arguments)
        except AssertionError as error:
            raise UnsupportedTypeError(
                f"PyTorch refuses: {ABSTRACT['real'][0]}.", ABSTRACT["real"][1]
            ) from error

    def cast(self, x: Any, dtype: str, check: str = "") -> Any:
        """A cast with the same bits as on the host, which stays in the graph of `x`."""
        if self.compiling() or self.tracing() is not None or self.why_abstract(x) is not None:
            return self._asked(x.to, self.dtypes[dtype])
        # Here, because a process that casts nothing needs neither.
        from ...host import casts
        from ...planning.rules import frameworks_agree

        if not x.is_cpu and not check and frameworks_agree(self.names[x.dtype], dtype):
            return x.to(self.dtypes[dtype])
        if x.dim() > AXES:  # more than an array has, so that most of them are of length 1
            return self.cast(x.squeeze(), dtype, check).reshape(x.shape)
        return self.in_graph(
            x, lambda x: self.adopt(casts.cast(self.export(self.resolve(x)), dtype, check))
        )

    def in_graph(self, x: Any, convert: Callable[[Any], Any]) -> Any:
        """Apply a conversion as one operation of autograd, whose gradient is converted back."""
        records = x.requires_grad and self.torch.is_grad_enabled()
        if records or (self.forward._current_level >= 0 and self.is_dual(x)):
            return self.recorded(x, convert)
        return convert(x.detach())

    @cached_property
    def recorded(self) -> Callable[[Any, Callable[[Any], Any]], Any]:
        from .devices import conversion_in_graph

        return conversion_in_graph(self.torch)

    def stack(self, tensors: Sequence[Any], shape: tuple[int, ...]) -> Any:
        """Stack tensors of equal shapes, in their graphs.

        Raises:
            UnsupportedTypeError: PyTorch does not stack such tensors.
        """
        try:
            with self.without_autocast():
                return self._asked(self.torch.stack, list(tensors)).reshape(shape)
        except (RuntimeError, ValueError) as error:
            raise UnsupportedTypeError(
                f"PyTorch does not stack these: {error}", Hint(hints.Each())
            ) from error

    def write(self, x: Any, out: Any, overlaps: bool = False) -> None:
        """Write an array's or tensor's values into `out`, in its dtype; increment its version."""
        if isinstance(x, self.tensor):
            if isinstance(out, self.tensor):
                into = out
            else:
                into = self.adopt(out)
            self._put(x, into, overlaps=overlaps)
            return
        from ...host import casts  # here, because only ``out=`` needs it

        if out.is_conj() or out.is_neg():
            out.copy_(self.adopt(casts.cast(x, self.names[out.dtype])))
            return
        casts.copy_into(self.export(out), x)
        self.torch.autograd.graph.increment_version(out)

    def _put(self, x: Any, out: Any, *, overlaps: bool) -> None:
        """Copy a tensor into another, on any devices.

        A copy to the host is complete when this returns.
        """
        storages = [tensor.untyped_storage().data_ptr() for tensor in (x, out)]
        if x.device == out.device and storages[0] == storages[1]:
            x = x.clone()  # PyTorch does not copy between overlapping tensors
        direct = out.is_cpu and not x.is_cpu and self.accelerators.is_pinned(out)
        out.copy_(x, non_blocking=direct or (overlaps and x.is_pinned()))
        if direct:
            self.accelerators.wait(x.device)

    def take(self, x: Any) -> Any:
        if isinstance(x, self.tensor):
            return x
        taken = self.torch.from_dlpack(x)
        # The storage of all views has one Python object, whose attributes live as long as the
        # memory.
        taken.untyped_storage().tensorferry_giver = x
        return taken

    # -- one tensor over the devices of several processes; see `devices` ---------------------------

    def placement(self, device: object) -> Placement | None:
        return self._distributed.placement_on_mesh(device) if type(device) is tuple else None

    @cached_property
    def _distributed(self) -> Any:
        return importlib.import_module(f"{__package__}.devices")

    def misfit(self, placement: Placement, shape: tuple[int, ...]) -> tuple[str, str | Hint] | None:
        return self._distributed.misfit_of(placement, shape)  # type: ignore[no-any-return]

    def place_over(self, x: Any, placement: Placement) -> Any:
        return self._distributed.laid_out(placement, x)

    def device_parts(self, placement: Placement, shape: tuple[int, ...], dtype: str) -> DeviceParts:
        def assemble(parts: Sequence[Array]) -> Any:
            local = self.adopt(parts[0]) if parts else self.torch.empty(0, dtype=self.dtypes[dtype])
            return self._distributed.over_mesh(placement, shape, local)

        return DeviceParts(self._distributed.boxes_here(placement, shape), assemble)

    # -- verbs on devices --------------------------------------------------------------------------

    def move(self, x: Any, device: str, non_blocking: bool = False) -> Any:
        """Copy to another device. A copy to the host is complete when this returns.

        With `non_blocking`, it does not wait if the source is in page-locked memory.
        """
        return x.to(device, non_blocking=non_blocking and x.is_pinned())

    def pin(self, x: Any, required: bool = False) -> Any:
        """A page-locked copy by PyTorch's caching host allocator, which waits for its transfers.

        Not `pin_memory()`, which returns a pinned tensor unchanged, so that a later write would
        change the transfer.
        """
        return self.accelerators.lock(x, required)

    def land(self, x: Any, required: bool = False) -> Any:
        """A complete copy of a device's tensor in page-locked memory."""
        return self.accelerators.land(x, required)

    def compact(self, x: Any) -> Any:
        """A C-contiguous copy on the same device."""
        return x.contiguous()

    def pack(self, tensors: Sequence[Any], alignment: int, lock: bool = False) -> tuple[Any, Any]:
        """A packed buffer of tensors, made with `torch.cat`, which copies hundreds of tensors with one launch."""
        return self.buffers.pack(tensors, alignment, lock)

    def unpack(self, packed: Any, layout: Any) -> list[Any]:
        """The tensors in a packed buffer, as views."""
        return self.buffers.unpack(packed, layout)

    def narrow(self, x: Any, axes: Sequence[int]) -> Any:
        """A view of the first element along these axes, along which all elements share memory."""
        return memory.first_along(x, axes)

    def span(self, x: Any, length: int) -> Any:
        """The memory that overlapping windows share, as a tensor of one axis."""
        return x.as_strided((length,), (1,))

    def spread(self, x: Any, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> Any:
        """A copy of the result of `narrow` or `span`, with separate memory for each element."""
        from .devices import spread

        return spread(x, shape, strides)

    def cross(self, x: Any, device: str, axes: Sequence[int], dtype: str, first: bool) -> Any:
        """Transfer only the memory that elements share, with a cast before or after, as one operation in the graph."""
        from .devices import spread

        def do(x: Any) -> Any:
            part = self.resolve(memory.first_along(x, axes))
            if first:
                return spread(self.cast(part, dtype).to(device), x.shape)
            return spread(self.cast(part.to(device), dtype), x.shape)

        return self.in_graph(x, do)

    def copy_together(self, tensors: Sequence[Any]) -> list[Any]:
        """Copies of overlapping tensors on one device, as views of one copy of their memory."""
        from .devices import copy_together

        return copy_together(self.torch, tensors)

    def export_dlpack(self, x: Any) -> DlpackExport:
        """Export a tensor's memory to another framework.

        PyTorch exports only from the current device, and names the stream that is current there.
        Its narrow floats are exported as integers, whose codes every version of it knows.
        """
        from ...host.dlpack import DlpackExport

        name = self.names[x.dtype]
        as_integer = AS_INTEGERS.get(name)
        # Not `x` itself, whose memory is freed when its owner calls `x.set_`, `x.resize_` or
        # assigns `x.data`.
        held = x.detach()
        if as_integer is not None:
            held = held.view(getattr(self.torch, as_integer))
        return DlpackExport(held, name, partial(self.accelerators.entered, x.device))

    def import_dlpack(self, x: Any, source: str = "") -> Any:
        """A tensor over another framework's memory on the same device.

        DLPack orders the streams: PyTorch's waits for the producer's.
        """
        from ...host.dlpack import DlpackExport

        if source:
            exported = registry.backend_named(source).export_dlpack(x)
        else:
            exported = x
        if isinstance(exported, DlpackExport):
            as_integer = AS_INTEGERS.get(exported.dtype)
        else:
            as_integer = None
        if as_integer is None:
            return self.torch.from_dlpack(exported)
        return self.torch.from_dlpack(exported.as_integers()).view(self.dtypes[exported.dtype])

    def current_stream(self, device: str) -> Stream | None:
        return self.accelerators.current_stream(device)

    def side_stream(self, device: str) -> Stream | None:
        return self.accelerators.side_stream(device)

    def wait(self, x: Any) -> Any:
        """The tensor, after its values have been computed."""
        self.accelerators.wait(x.device)
        return x

    # -- the code to show --------------------------------------------------------------------------

    def snippet(self, call: VerbCall) -> Code | str:
        if self.takes_read_only:
            return snippet(call)
        return snippet_with_a_warning(call)


class _Adopted(dict[Any, "tuple[Any, Any] | None"]):
    """By an array's dtype: the integers PyTorch takes it as, and its dtype; ``None`` for no change.

    It is filled when arrays are met, because the dtypes are those of ml_dtypes, which takes long to
    import.
    """

    def __init__(self, dtypes: Mapping[str, Any]) -> None:
        self._dtypes = dtypes

    def __missing__(self, dtype: np.dtype[Any]) -> tuple[Any, Any] | None:
        name = of_numpy(dtype) if dtype.isnative else None
        if name is None:
            return None  # not kept, because there are as many as there are lengths of text
        if name in self._dtypes:
            via = AS_INTEGERS.get(name)
        else:
            via = None
        return self.setdefault(dtype, None if via is None else (np.dtype(via), self._dtypes[name]))


class _ByDefault(dict[Any, "Capabilities"]):
    """The capabilities, by default dtype and by whether autograd and `torch.jit.trace` record.

    It is filled when they are asked for: most processes have one default dtype.
    """

    def __init__(self, dtypes: Mapping[str, Any]) -> None:
        self._dtypes = dtypes
        self._names = {dtype: name for name, dtype in dtypes.items()}

    def __missing__(self, settings: tuple[Any, bool, bool]) -> Capabilities:
        dtype, records, traces = settings
        defaults = capabilities_by(self._names[dtype], records, traces)
        # The first one that is kept, because those of equal settings must be the same object.
        return self.setdefault(settings, defaults.holding(self._dtypes))


def _takes_read_only(from_dlpack: Callable[[Any], Any]) -> bool:
    """Whether PyTorch takes DLPack 1.0 (from 2.9 on), the first that can mark read-only memory."""
    try:
        from_dlpack(np.zeros(1).__dlpack__(max_version=(1, 0)))
    except RuntimeError:
        return False
    return True


def _mode_that_fakes(torch: Any) -> Callable[[], Any]:
    """A function that gives the active FakeTensorMode, which refuses real tensors; or ``None``."""
    try:
        return partial(torch._C._get_dispatch_mode, torch._C._TorchDispatchModeKey.FAKE)
    except AttributeError:
        return lambda: None


def _differentiates(torch: Any) -> Callable[[], bool]:
    """A function that tells whether `torch.func` takes a gradient now.

    Then no tensor gives its memory away.
    """
    try:
        kinds = torch._C._functorch.TransformType
        stack, taking = torch._C._functorch.get_interpreter_stack, {kinds.Grad, kinds.Jvp}
    except AttributeError:
        return lambda: False

    def differentiates() -> bool:
        running = stack()
        return running is not None and any(level.key() in taking for level in running)

    return differentiates


def _no_such_dtype(x: Any) -> UnsupportedTypeError:
    text = str(x.dtype)
    if text == "torch.complex32":
        return UnsupportedTypeError(
            "torch.complex32 cannot be converted: no other framework has it.",
            "x.to(torch.complex64)",
        )
    return UnsupportedTypeError(
        f"{text} cannot be converted: its elements are packed or have no counterpart.",
        "x.view(torch.uint8)",
    )


# -- the compiler ----------------------------------------------------------------------------------


def skip(torch: Any, function: Callable[..., Any]) -> None:
    """Let the compiler skip a function and everything that it calls, from the next call on.

    This is like `torch.compiler.disable`, but without a wrapper around each call, and without
    importing the compiler, which takes a second.

    Raises:
        AttributeError: This release of PyTorch has no such way.
    """
    frames = torch._C._dynamo.eval_frame
    if not hasattr(frames, "skip_code_recursive_flag"):
        skipped = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
        frames.set_code_exec_strategy(function.__code__, skipped)
        return
    # In PyTorch 2.6, only what looks at each call that begins can say so; the answer is kept with
    # the code.
    call, arguments, keywords = _without_effect(function)
    before = frames.set_eval_frame(lambda *_: frames.skip_code_recursive_flag)
    try:
        # No other call of Python's may begin here.
        call(*arguments, **keywords)
    except Exception:  # noqa: BLE001, S110 - it ends at once, in one way or another
        pass
    finally:
        frames.set_eval_frame(before)


def _without_effect(
    function: Callable[..., Any],
) -> tuple[FunctionType, list[None], dict[str, None]]:
    """A function of the same code that ends where it needs a name, and arguments: all ``None``."""
    code: Any = function.__code__
    taken = inspect.signature(function, follow_wrapped=False).parameters.values()
    names = [parameter.name for parameter in taken if parameter.kind is parameter.KEYWORD_ONLY]
    cells = tuple(CellType() for _ in code.co_freevars)
    return (
        FunctionType(code, {"__builtins__": {}}, closure=cells),
        [None] * code.co_argcount,
        dict.fromkeys(names),
    )


BACKEND = TorchBackend()
