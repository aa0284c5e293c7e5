"""Describe a PyTorch tensor by its metadata, and say why some tensors have no memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.devices import HOST, device_name
from ...core.dtypes import find
from ...core.info import TensorInfo
from ...errors import UnsupportedTypeError
from ...host import memory
from ..base import kind_of_type
from .declared import ABSTRACT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .tensors import TorchBackend

__all__ = ["dense_info", "describe", "differentiates", "is_dual", "why_abstract"]

_QUANTIZED = {"torch.qint8": "int8", "torch.quint8": "uint8", "torch.qint32": "int32"}
"""The dtypes of the integers in quantized tensors."""


def describe(backend: TorchBackend, x: Any) -> TensorInfo:
    """See `Backend.describe`."""
    plain = type(x) is backend.tensor
    try:
        pointer = x.data_ptr() if plain else 0
    except RuntimeError:
        pointer = 0
    # A tensor with an address is strided, and neither traced, nor a meta tensor, nor autograd's
    # zeros.
    if (
        pointer < memory.LOWEST
        or backend.compiling()
        or x.is_nested
        or backend.modes()
        or backend.differentiates()
    ):
        abstract = why_abstract(backend, x)
        if abstract is not None:
            return _abstract_info(backend, x, abstract)
        pointer = x.data_ptr()
    on_host, dtype = x.is_cpu, x.dtype
    found: TensorInfo | None = backend.dense(
        x.shape,
        dtype,
        HOST if on_host else device_name(x.device),
        x.stride(),
        pointer & 63,
        x.requires_grad or (backend.forward._current_level >= 0 and is_dual(backend, x)),
        dtype.is_complex and x.is_conj(),
        x.is_neg(),
        on_host and backend.accelerators.is_pinned(x),
        "" if plain else kind_of_type(type(x)),
    )
    if found is None:
        if x.is_quantized:
            return _abstract_info(backend, x, "quantized")
        raise _no_such_dtype(x)
    return found


def differentiates(torch: Any) -> Callable[[], bool]:
    """A function that says whether `torch.func` takes a gradient now, in which no tensor gives its memory away."""
    try:
        kinds = torch._C._functorch.TransformType
        stack, taking = torch._C._functorch.get_interpreter_stack, {kinds.Grad, kinds.Jvp}
    except AttributeError:
        return lambda: False

    def differentiates() -> bool:
        running = stack()
        return running is not None and any(each.key() in taking for each in running)

    return differentiates


def is_dual(backend: TorchBackend, x: Any) -> bool:
    """Whether the tensor has a tangent, for forward-mode differentiation."""
    try:
        return backend.forward.unpack_dual(x).tangent is not None
    except RuntimeError:  # inside an operator, where there is no differentiation
        return False


def dense_info(
    backend: TorchBackend,
    shape: Sequence[int],
    dtype: Any,
    device: str,
    strides: Sequence[int],
    misalignment: int,
    *marks: Any,
) -> TensorInfo | None:
    """The description of a tensor with memory; ``None`` if its dtype is not supported."""
    name = backend.names.get(dtype)
    if name is None:
        return None
    steps = [step * find(name).itemsize for step in strides]
    requires_grad, conjugate, negative, pinned, kind = marks
    bits = (requires_grad, conjugate, negative, False)
    return TensorInfo(
        backend.name,
        shape,
        name,
        device,
        steps,
        misalignment,
        True,
        True,
        *bits,
        pinned=pinned,
        kind=kind,
    )


def why_abstract(backend: TorchBackend, x: Any) -> str | None:
    """Why a tensor has no memory that can be read; ``None`` if it has."""
    if (
        backend.compiling()
        or backend.wrapped(x)
        or backend.functional(x)
        or backend.differentiates()
    ):
        return "traced"
    if type(x) not in backend.memories and _is_wrapper(backend, x):
        known = type(x).__name__ in ABSTRACT and type(x).__module__.startswith("torch.")
        return type(x).__name__ if known else "wrapper"
    if x.is_nested:
        return "nested"
    if x.is_quantized:
        return "quantized"
    if x.layout is not backend.strided:
        return "opaque" if x.is_mkldnn else "sparse"
    if x.is_meta:
        return "meta"
    if x._is_zerotensor():
        return "zero"
    if x.numel() and not x.untyped_storage().nbytes():
        return "freed"
    return None if backend.faking() is None else "real"


def _is_wrapper(backend: TorchBackend, x: Any) -> bool:
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    if (
        is_traceable_wrapper_subclass(x)
        or type(x).__torch_dispatch__ is not backend.torch.Tensor.__torch_dispatch__
    ):
        return True
    try:
        return bool(x.numel() and not x.data_ptr() and x.is_cpu)
    except RuntimeError:
        return True


def _abstract_info(backend: TorchBackend, x: Any, abstract: str) -> TensorInfo:
    name = backend.names.get(x.dtype) or _QUANTIZED.get(str(x.dtype))
    if name is None:
        raise _no_such_dtype(x)
    shape = (
        ()
        if abstract == "nested"
        else [length if isinstance(length, int) else 1 for length in x.shape]
    )
    return TensorInfo(
        backend.name,
        shape,
        name,
        requires_grad=x.requires_grad,
        kind=kind_of_type(type(x)),
        abstract=abstract,
    )._replace(device=HOST if x.is_cpu else str(x.device))


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
