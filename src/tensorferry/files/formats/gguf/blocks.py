"""The kinds of quantised blocks in GGUF, and their numbers, with the gguf library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ....errors import FormatLimitError, FrameworkNotInstalledError
from ...base.blocks import Blocks
from ...base.file_hints import FileHint, Undecoded, Without
from ...base.stored import BLOCK_BYTES, Record, Stored
from ...encodings.slabs import cuts, filled

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

__all__ = ["BLOCKS_BY_CODE", "CODES_BY_BLOCKS", "Dequantised"]

_32 = {
    2: ("Q4_0", 18),
    3: ("Q4_1", 20),
    6: ("Q5_0", 22),
    7: ("Q5_1", 24),
    8: ("Q8_0", 34),
    9: ("Q8_1", 40),
}
_32 |= {20: ("IQ4_NL", 18), 39: ("MXFP4", 17)}
_256 = {
    10: ("Q2_K", 84),
    11: ("Q3_K", 110),
    12: ("Q4_K", 144),
    13: ("Q5_K", 176),
    14: ("Q6_K", 210),
}
_256 |= {
    15: ("Q8_K", 292),
    16: ("IQ2_XXS", 66),
    17: ("IQ2_XS", 74),
    18: ("IQ3_XXS", 98),
    19: ("IQ1_S", 50),
}
_256 |= {
    21: ("IQ3_S", 110),
    22: ("IQ2_S", 82),
    23: ("IQ4_XS", 136),
    29: ("IQ1_M", 56),
    34: ("TQ1_0", 54),
}
_256 |= {35: ("TQ2_0", 66)}
_ALL = {32: _32, 64: {40: ("NVFP4", 36)}, 128: {41: ("Q1_0", 18)}, 256: _256}
"""Names and bytes by ggml_type, https://github.com/ggml-org/ggml/blob/master/include/ggml.h, for each length."""
BLOCKS_BY_CODE = {
    code: Blocks(f"gguf.{name}", length, nbytes)
    for length, kinds in _ALL.items()
    for code, (name, nbytes) in kinds.items()
}
CODES_BY_BLOCKS = {blocks: code for code, blocks in BLOCKS_BY_CODE.items()}


class Dequantised(Stored):
    """The numbers of a tensor in blocks, as float32.

    Args:
        inner: The bytes.
        blocks: The kind of blocks.
        name: The name of the tensor in errors.

    Raises:
        FrameworkNotInstalledError: The library is not installed.
        FormatLimitError: It does not dequantise such blocks.
    """

    __slots__ = ("_kind", "blocks_held", "dtype", "inner", "shape")

    def __init__(self, inner: Stored, blocks: Blocks, name: str) -> None:
        try:
            import gguf
        except ImportError as error:
            raise FrameworkNotInstalledError(
                "Dequantising needs gguf, which is not installed.", "pip install gguf"
            ) from error
        self.inner = inner
        self.dtype = "float32"
        self.shape = blocks.shape(inner.shape)
        self.blocks_held = blocks
        try:
            self._kind: Any = gguf.GGMLQuantizationType(CODES_BY_BLOCKS[blocks])
            self._numbers(np.zeros(blocks.nbytes, np.uint8))
        except (KeyError, ValueError, NotImplementedError) as error:
            raise FormatLimitError(
                f"{name} is in blocks of {blocks.kind}, which the gguf library that is installed does not dequantise.",
                FileHint(Without({name: ()}), Undecoded()),
            ) from error

    @property
    def key(self) -> Hashable:
        return (self.inner.key, self.blocks_held)

    @property
    def record(self) -> Record | None:
        """The region with a checksum that contains the bytes."""
        return getattr(self.inner, "record", None)

    def blocks(self) -> Iterator[np.ndarray[Any, Any]]:
        step = max(BLOCK_BYTES // (4 * self.blocks_held.length), 1) * self.blocks_held.nbytes
        for piece in filled(self.inner.blocks(), cuts(self.inner.size, step), np.dtype(np.uint8)):
            yield self._numbers(piece)

    def _numbers(self, raw: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        import gguf

        # An infinite or NaN scale gives infinite or NaN numbers, without a warning.
        with np.errstate(all="ignore"):
            rows = raw.reshape(-1, self.blocks_held.nbytes)
            found: np.ndarray[Any, Any] = (
                gguf.dequantize(rows, self._kind).astype(np.float32, copy=False).reshape(-1)
            )
        return found
