"""What CuPy can do."""

from __future__ import annotations

from ...core.capabilities import Capabilities, Devices, Dtypes, Memory, Objects
from ...core.declaration import Declared
from ...core.dtypes import DTYPES, ORDINARY
from ...core.names import EXCHANGE_NUMBERS
from .snippets import AS_INTEGERS, snippet

__all__ = ["AS_INTEGERS", "CAPABILITIES", "DECLARED"]

# CuPy compiles its kernels with -ftz=true, so these casts turn subnormal float32 into zero
# (measured on CuPy 14.2 and an H200 with random bits; its other casts gave NumPy's values).
_FLUSHED = frozenset(
    {
        ("float32", "float64"),
        ("float32", "complex128"),
        ("float64", "float32"),
        ("complex64", "complex128"),
        ("complex128", "complex64"),
    }
)
_WORDS = {
    "byte": ("int8",),
    "int_": ("int64",),
    "uint": ("uint64",),
    "float_": ("float64",),
    **dict.fromkeys(("complex_", "cfloat"), ("complex128",)),
}
_PACKED = frozenset(DTYPES) - ORDINARY - AS_INTEGERS

CAPABILITIES = Capabilities(
    dtypes=Dtypes(
        held=ORDINARY | AS_INTEGERS,
        numbers=EXCHANGE_NUMBERS,
        uncast=AS_INTEGERS,
        uncast_pairs=_FLUSHED,
        unnamed=AS_INTEGERS,
        absent_reasons=dict.fromkeys(_PACKED, ": its elements are narrower than a byte"),
        words=_WORDS,
    ),
    memory=Memory(writable=True, out=True, writes_own=True),
    devices=Devices(("cuda",), fetches=True, packs=True, exports_dlpack=True),
    objects=Objects(taken_kinds=frozenset({"__dlpack__", "__cuda_array_interface__"})),
)

DECLARED = Declared("cupy", CAPABILITIES, snippet, {"cupy": "import cupy"})
