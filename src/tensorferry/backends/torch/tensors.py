"""`TorchBackend`: descriptions of PyTorch tensors, and the verbs."""

# pyright: reportAssignmentType=false
# It does not take a function for a method of the base class. mypy does, and compares them.

from __future__ import annotations

import importlib
import sys
import warnings
from contextlib import nullcontext, suppress
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.devices import HOST
from ...core.dtypes import ORDINARY
from ...errors import UnsupportedTypeError, an
from ...hints import Hint
from ...host import casts, memory
from ...host.numpy_dtypes import numpy_dtype, of_numpy
from ...planning.rules import agrees
from .. import registry
from ..base import Backend
from . import crossing, describing, fast_paths, many, reading
from .bound import bound
from .containers import is_registered, open_registered, opener_of, plain_value, value_of
from .declared import ABSTRACT, BY_DEFAULT, DECLARED
from .signatures import environment_reader, extents, grouped, likeness_reader, signature_reader
from .snippets import AS_INTEGERS, snippet, snippet_with_a_warning, whole_strides
from .streams import Accelerators
from .untraced import skip

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...core.capabilities import Capabilities, DeviceFacts
    from ...devices.streams import Stream
    from ...typing import Array


def _mode_that_fakes(torch: Any) -> Callable[[], Any]:
    """A function that gives the active FakeTensorMode, which refuses real tensors; or ``None``."""
    try:
        return partial(torch._C._get_dispatch_mode, torch._C._TorchDispatchModeKey.FAKE)
    except AttributeError:
        return lambda: None


class _Adopted(dict[Any, "tuple[Any, Any] | None"]):
    """By the dtype of an array: the integers as which PyTorch takes it, and its own dtype; ``None`` if it needs none.

    It is filled when arrays are met, because the dtypes are those of ml_dtypes, which takes long to
    import.
    """

    def __init__(self, dtypes: Mapping[str, Any]) -> None:
        self._dtypes = dtypes

    def __missing__(self, dtype: np.dtype[Any]) -> tuple[Any, Any] | None:
        name = of_numpy(dtype) if dtype.isnative else None
        if name is None:
            return None  # not kept, because there are as many as there are lengths of text
        via = AS_INTEGERS.get(name) if name in self._dtypes else None
        return self.setdefault(dtype, None if via is None else (np.dtype(via), self._dtypes[name]))


def _takes_read_only(from_dlpack: Callable[[Any], Any]) -> bool:
    """Whether PyTorch takes capsules of DLPack 1.0, the first that can say that memory is read-only (from 2.9 on)."""
    try:
        from_dlpack(np.zeros(1).__dlpack__(max_version=(1, 0)))
    except RuntimeError:
        return False
    return True


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
    snippet = staticmethod(snippet)

    # -- what the other modules of this folder do -------------------------------------------------

    describe = describing.describe
    describe_alike = many.describe_alike
    extents, grouped = staticmethod(extents), grouped
    bound = bound
    fast_paths_for_many = many.fast_paths
    opener_of = staticmethod(opener_of)
    has_node, open_node = staticmethod(is_registered), staticmethod(open_registered)
    plain_value, value_of = staticmethod(plain_value), staticmethod(value_of)
    narrow, span = staticmethod(memory.narrow), staticmethod(crossing.span)
    spread = staticmethod(crossing.spread)
    copy_together, export_dlpack = crossing.copy_together, crossing.export_dlpack
    pack, unpack, cross = crossing.pack, crossing.unpack, crossing.cross

    # -- the framework ----------------------------------------------------------------------------

    def load(self) -> None:
        import torch

        self.torch: Any = torch
        names = [*ORDINARY, *AS_INTEGERS]
        self.dtypes = {name: getattr(torch, name) for name in names if hasattr(torch, name)}
        self.names = {dtype: name for name, dtype in self.dtypes.items()}
        self.exported = {
            self.dtypes[name]: (getattr(torch, via), name)
            for name, via in AS_INTEGERS.items()
            if name in self.dtypes
        }
        self.adopted = _Adopted(self.dtypes)
        # Tensors in a loop are alike. If they have the same description object, their plan is found
        # faster.
        self.dense = lru_cache(maxsize=4096)(partial(describing.dense_info, self))
        self.strided = torch.strided
        self.wrapped = self.torch._C._functorch.is_functorch_wrapped_tensor
        self.functional: Callable[[Any], bool] = getattr(
            torch, "_is_functional_tensor", lambda _: False
        )
        self.faking, self.differentiates = _mode_that_fakes(torch), describing.differentiates(torch)
        # The number of active modes, which also counts a FakeTensorMode, in two thirds of the time.
        self.modes = getattr(self.torch._C, "_len_torch_dispatch_stack", lambda: 1)
        self.uninitialized = self.torch.nn.parameter.UninitializedTensorMixin
        self.forward: Any = torch.autograd.forward_ad
        self.tensor, self.compiling = torch.Tensor, torch.compiler.is_compiling
        self.accelerators = Accelerators(torch, self.dtypes)
        self.default_dtype, self.is_recording = torch.get_default_dtype, torch.is_grad_enabled
        self.is_tracing: Callable[[], bool] = getattr(
            self.torch._C, "_is_tracing", self.torch.jit.is_tracing
        )
        self.tracing: Callable[[], Any] = getattr(self.torch._C, "_get_tracing_state", lambda: None)
        self.memories = frozenset({torch.Tensor, torch.nn.Parameter})
        # As instance attributes instead of the methods, whose calls would take longer.
        signature, self.to_array = signature_reader(self), fast_paths.array_path(self)
        self.reader = reading.reader(self, signature, self.to_array)
        environment, self.are_alike = environment_reader(self), partial(many.are_alike, self)
        if self.reader is not None:
            signature, self.to_array, environment = (
                self.reader.signature,
                self.reader.array,
                self.reader.environment,
            )
            self.are_alike = self.reader.alike
        vars(self)["signature"], vars(self)["likeness"] = signature, likeness_reader(self)
        vars(self)["environment"] = environment
        self.by_default = {
            (self.dtypes[name], *marks): found.holding(self.dtypes)
            for (name, *marks), found in BY_DEFAULT.items()
        }
        self.from_numpy, self.from_dlpack = torch.from_numpy, self.torch.utils.dlpack.from_dlpack
        self.takes_read_only = _takes_read_only(self.from_dlpack)
        if not self.takes_read_only:
            vars(self)["snippet"] = snippet_with_a_warning
        lists = getattr(torch._C, "_nn", None)
        flatten, unflatten = (
            getattr(lists, f"{word}_dense_tensors", None) for word in ("flatten", "unflatten")
        )
        self.joins: tuple[Any, Any] | None = (flatten, unflatten) if flatten and unflatten else None
        # Without it, `torch.autocast` casts tensors that are stacked or concatenated, or refuses
        # their dtype.
        self.without_autocast: Callable[[], Any] = getattr(
            self.torch._C, "_DisableAutocast", nullcontext
        )
        self._for_many = many.verbs(self)

    @property
    def capabilities(self) -> Capabilities:
        if not self.loaded:
            return BY_DEFAULT["float32", True, False]
        return self.by_default[self.default_dtype(), self.is_recording(), self.is_tracing()]

    def devices(self) -> tuple[str, ...]:
        return (HOST, *self.accelerators.names())

    def device_facts(self, kind: str) -> DeviceFacts:
        return self.accelerators.facts(kind) if self.loaded else DECLARED.device_facts(kind)

    def claims(self, kind: type) -> bool:
        return issubclass(kind, self.torch.Tensor) and not issubclass(kind, self.uninitialized)

    def stands_for(self, kind: type) -> bool:
        return kind is self.torch.Tensor

    def refusal(self, kind: type) -> tuple[str, str | None] | None:
        if issubclass(kind, self.uninitialized):
            return (
                f"This {kind.__name__} has no shape yet: its module gives it one when it is called.",
                "module(inputs) first, or x.materialize(shape)",
            )
        if issubclass(kind, self.torch.nn.Module):
            return (
                f"{an(kind.__name__, 'A')} is a torch.nn.Module: it holds tensors, but is not one.",
                Hint("{tree:x.state_dict()}"),
            )
        if issubclass(kind, self.torch.utils.data.DataLoader):
            return "A DataLoader is many batches, one after the other.", Hint("{prefetch:x}")
        if issubclass(kind, (self.torch.Size, tuple)):
            return None
        if kind.__name__ == "PackedSequence":
            return (
                "A PackedSequence is rows of unequal lengths.",
                "torch.nn.utils.rnn.pad_packed_sequence(x)",
            )
        return None

    # -- describe ---------------------------------------------------------------------------------

    def for_many(self) -> Mapping[str, Callable[..., Any]]:
        return self._for_many if self.loaded else {}

    def pointer(self, x: Any) -> int | None:
        pointer: int = x.data_ptr()
        return pointer

    # -- verbs ------------------------------------------------------------------------------------

    def detach(self, x: Any) -> Any:
        """A tensor over the same memory, outside the autograd graph."""
        return x.detach()

    def resolve(self, x: Any) -> Any:
        """A copy in which the conjugate and negative bits are applied."""
        return x.resolve_conj().resolve_neg()

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
            "torch.jit.trace records no conversion to another framework: in the trace its result is a constant.",
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
        if (
            self.compiling()
            or self.tracing() is not None
            or describing.why_abstract(self, x) is not None
        ):
            return self._asked(x.to, self.dtypes[dtype])
        if not x.is_cpu and not check and agrees(self.names[x.dtype], dtype):
            return x.to(self.dtypes[dtype])
        return self.in_graph(
            x, lambda x: self.adopt(casts.cast(self.export(self.resolve(x)), dtype, check))
        )

    def in_graph(self, x: Any, convert: Callable[[Any], Any]) -> Any:
        """Apply a conversion as one operation of autograd, whose gradient is converted back."""
        records = x.requires_grad and self.torch.is_grad_enabled()
        if records or (self.forward._current_level >= 0 and describing.is_dual(self, x)):
            return self.recorded(x, convert)
        return convert(x.detach())

    @cached_property
    def recorded(self) -> Callable[[Any, Callable[[Any], Any]], Any]:
        """See `crossing.recorded`."""
        return crossing.recorded(self.torch)

    def move(self, x: Any, device: str, non_blocking: bool = False) -> Any:
        """Copy to another device. A copy to the host is complete when this returns.

        With `non_blocking`, it does not wait if the source is in page-locked memory.
        """
        return x.to(device, non_blocking=non_blocking and x.is_pinned())

    def pin(self, x: Any, required: bool = False) -> Any:
        """A copy in page-locked memory from PyTorch's caching host allocator, which waits for transfers from it.

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

    def current_stream(self, device: str) -> Stream | None:
        return self.accelerators.current_stream(device)

    def side_stream(self, device: str) -> Stream | None:
        return self.accelerators.side_stream(device)

    def wait(self, x: Any) -> Any:
        """The tensor, after its values have been computed."""
        self.accelerators.wait(x.device)
        return x

    def take(self, x: Any) -> Any:
        if isinstance(x, self.tensor):
            return x
        taken = self.torch.from_dlpack(x)
        # The storage of all views has one Python object, whose attributes live as long as the
        # memory.
        taken.untyped_storage().tensorferry_giver = x
        return taken

    def import_dlpack(self, x: Any, source: str = "") -> Any:
        """A tensor over another framework's memory on the same device.

        DLPack orders the streams.
        """
        return crossing.import_dlpack(
            self, registry.backend_named(source).export_dlpack(x) if source else x
        )

    def join_alike(self, tensors: Sequence[Any]) -> Any:
        with self.without_autocast():
            return self.torch.cat(tensors)

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
                f"PyTorch does not stack these: {error}", Hint("[{one:row} for row in x]")
            ) from error

    def write(self, x: Any, out: Any, overlaps: bool = False) -> None:
        """Write the values of an array or a tensor into `out`, cast to its dtype, and increment its version."""
        if isinstance(x, self.tensor):
            crossing.put(
                self, x, out if isinstance(out, self.tensor) else self.adopt(out), overlaps=overlaps
            )
            return
        if out.is_conj() or out.is_neg():
            out.copy_(self.adopt(casts.cast(x, self.names[out.dtype])))
            return
        casts.copy_into(self.export(out), x)
        self.torch.autograd.graph.increment_version(out)

    def shield(self, function: Callable[..., Any]) -> Callable[..., Any]:
        torch: Any = importlib.import_module("torch")
        try:
            skip(torch, function)
        except AttributeError:
            return function
        # If the compiler has been imported, it may be running already.
        return torch.compiler.disable(function) if "torch._dynamo" in sys.modules else function

    def fast_paths(self) -> Mapping[tuple[type, str], Callable[[Any], Any]]:
        return {**fast_paths.fast_paths(self), (list, self.name): many.list_path(self)}


BACKEND = TorchBackend()
