"""Read PyTorch tensors in C (`_tensors.c`), with PyTorch 2.10 or later, where the extension was built.

All that it reads can be read in Python too, in two to five times the time. The functions that do
this are given to it, for tensors that it leaves to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.dtypes import DLPACK_CODES
from ...core.signature import COMPACT
from ...host import memory
from ...host.extensions import extension
from ...host.numpy_dtypes import numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Callable

    from .tensors import TorchBackend

__all__ = ["reader"]


def reader(
    backend: TorchBackend, signature: Callable[[Any], Any], array: Callable[[Any], Any]
) -> Any:
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
        rows.append((code, bits, dtype, *through, is_ambiguous, has_signature, may_be_negative))
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
            tracing=backend.tracing,
            view=backend.tensor.view,
            to_numpy=backend.tensor.numpy,
            view_as=np.ndarray.getfield,
            numpy_dtype=numpy_dtype,
            signature=signature,
            array=array,
            lowest=memory.LOWEST,
            header=memory.HEADER,
        )
    except ValueError:  # a version of DLPack that did not exist when this was written
        return None
