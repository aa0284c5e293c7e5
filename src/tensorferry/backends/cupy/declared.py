"""What CuPy can do."""

from __future__ import annotations

from ...core.capabilities import Capabilities, Devices, Dtypes, Memory
from ...core.declaration import Declared
from ...core.dtypes import DTYPES, ORDINARY
from ...core.names import EXCHANGE_NUMBERS
from .snippets import snippet

__all__ = ["AS_INTEGERS", "CAPABILITIES", "DECLARED"]

# CuPy stores these dtypes, but its arithmetic for them is not reliable
# (https://github.com/cupy/cupy/issues/9630). They are copied and exported as integers of the same width.
AS_INTEGERS = frozenset(name for name in DTYPES if name == "bfloat16" or name.startswith("float8"))
_PACKED = frozenset(DTYPES) - ORDINARY - AS_INTEGERS

CAPABILITIES = Capabilities(
    dtypes=Dtypes(
        held=ORDINARY | AS_INTEGERS,
        numbers=EXCHANGE_NUMBERS,
        uncast=AS_INTEGERS,
        absent_reasons=dict.fromkeys(_PACKED, ": its elements are narrower than a byte"),
    ),
    memory=Memory(writable=True, out=True, writes_own=True),
    devices=Devices(("cuda",), fetches=True, packs=True, exports_dlpack=True),
)

DECLARED = Declared("cupy", CAPABILITIES, snippet, {"cupy": "import cupy"})
