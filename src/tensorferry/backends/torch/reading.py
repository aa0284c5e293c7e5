"""Read PyTorch tensors in C (`_tensors.c`), with PyTorch 2.10 or later, where the extension was built.

All that it reads can be read in Python too, in two to five times the time. The functions that do this are given to it,
for tensors that it leaves to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.signature import COMPACT
from ...host import memory
from ...host.dlpack import CODES
from ...host.extensions import extension

if TYPE_CHECKING:
    from collections.abc import Callable

    from .tensors import TorchBackend

__all__ = ["array_makers", "reader"]


def array_makers(backend: TorchBackend) -> dict[Any, Callable[[Any], Any]]:
    """For each dtype, a function that gives an array over the memory of a tensor that does not require grad.

    It gives ``None`` if the tensor must be converted in another way.
    """
    return {dtype: _array_maker(backend, dtype) for dtype in backend.names}


def _array_maker(backend: TorchBackend, dtype: Any) -> Callable[[Any], Any]:
    to_numpy, as_dtype, tracing = backend.tensor.numpy, backend.tensor.view, backend.tracing
    if dtype not in backend.exported:
        return to_numpy
    (as_integer, of_numpy), view_as = backend.exported[dtype], np.ndarray.getfield

    def through_integers(x: Any) -> Any:
        # A tracer would record a view of another dtype. `getfield` gives the same array as `view` in less time.
        return view_as(to_numpy(as_dtype(x, as_integer)), of_numpy) if tracing() is None else None

    return through_integers


def reader(backend: TorchBackend, signature: Callable[[Any], Any], array: Callable[[Any], Any]) -> Any:
    """The reader of tensors; ``None`` if there is none on this machine.

    Args:
        backend: The backend.
        signature: Reads the signatures of the tensors that it leaves to Python.
        array: The fast path to NumPy for these.
    """
    module = extension("backends.torch._tensors")
    exchange = getattr(backend.tensor, "__dlpack_c_exchange_api__", None)
    if module is None or exchange is None or memory.HEADER is None:
        return None
    rows, makers, names = [], array_makers(backend), backend.names

    def has_address(x: Any) -> bool:
        strided: bool = x.is_cpu and x.layout is backend.strided and not x.is_nested and x.dtype in names
        return strided and x.data_ptr() >= memory.LOWEST

    for dtype, name in names.items():
        if name not in CODES:
            continue
        code, bits = CODES[name]
        # PyTorch has other integers of one byte: uint1 to uint7, int1 to int7, and quantized ones.
        is_ambiguous = bits == 8 and name in ("int8", "uint8")
        # Complex tensors, which may have lazy bits, are described. A negative bit is all that others can have.
        has_signature = not dtype.is_complex
        # `torch._neg_view` takes integers too.
        may_be_negative = has_signature and dtype is not backend.torch.bool
        rows.append((code, bits, dtype, makers[dtype], is_ambiguous, has_signature, may_be_negative))
    try:
        return module.Reader(
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
            signature=signature,
            array=array,
            lowest=memory.LOWEST,
            header=memory.HEADER,
        )
    except ValueError:  # a version of DLPack that did not exist when this was written
        return None
