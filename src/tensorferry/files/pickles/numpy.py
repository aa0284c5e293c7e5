"""The names of NumPy in pickles: arrays, scalars and dtypes.

Their values are in the pickle itself.
"""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.dtypes import DTYPES
from ...host.numpy_dtypes import numpy_dtype, of_numpy
from ..base.contents import NotTensor
from .python import PythonWords
from .standins import ArrayOf, DTypeOf
from .words import Global, UnreadBytes

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NUMPY_CALLS", "NumPyWords"]

_MOST_AXES = 64
_MOST_BYTES = 1 << 63
_NUMPY_CODE = re.compile(
    r"\?|b1|[iu][1248]|f(?:2|4|8|12|16)|c(?:8|16|24|32)|[SU][0-9]{1,6}|[mM]8|O8?|V[0-9]{1,6}"
)


class NumPyWords(PythonWords):
    """The meaning of NumPy's names: https://numpy.org/doc/stable/reference/generated/numpy.ndarray.__reduce__.html."""

    array_kind = "array"
    """What an array is called in a `Ref`: beside tensors of PyTorch, it has to stay an array."""

    def dtype_of(self, code: Any, *_: Any) -> DTypeOf:
        """``numpy.dtype(code, …)``."""
        name = code.name.removeprefix("ml_dtypes.") if type(code) is Global else ""
        if name in DTYPES:
            found = numpy_dtype(name)
            return DTypeOf(found, found.itemsize)
        if type(code) is not str or not _NUMPY_CODE.fullmatch(code.lstrip("<>=|")):
            raise self.wrong(
                f"has a dtype of NumPy that is unknown: {str(code)[:50] if type(code) is str else '?'}"
            )
        plain = code.lstrip("<>=|")
        itemsize = 0 if plain[0] == "O" else np.dtype(code).itemsize
        return DTypeOf(None if plain[0] in "OV" else np.dtype(code), itemsize)

    def set_order(self, instance: DTypeOf, state: Any) -> None:
        """The state of a dtype: its byte order, and the unit of times."""
        if (
            type(state) is not tuple
            or len(state) < 5
            or type(state[1]) is not str
            or len(state[1]) != 1
        ):
            raise self.wrong("has a dtype of NumPy with a state that is unknown")
        if any(each is not None for each in state[2:5]) or instance.numpy is None:
            instance.numpy = None
        elif state[1] in "<>":
            instance.numpy = instance.numpy.newbyteorder("<" if state[1] == "<" else ">")
        if len(state) > 8 and instance.numpy is not None and instance.numpy.kind in "mM":
            instance.numpy = _timed(instance.numpy, state[8])

    def array_of(self, kind: Any, *_: Any) -> ArrayOf:
        """``_reconstruct(ndarray, …)``: an array, whose state follows."""
        if type(kind) is not Global or kind.name not in {"numpy.ndarray", *self.allow}:
            raise self.wrong("has an array of NumPy of no known class")
        return ArrayOf(self.array_kind)

    def fill_array(
        self,
        array: ArrayOf,
        _version: Any,
        shape: Any,
        dtype: Any,
        fortran: Any = False,
        raw: Any = None,
    ) -> None:
        """The state of an array: its shape, dtype, order and bytes."""
        self._fill(array, raw, dtype, shape, fortran is True or fortran == 1)

    def array_from_buffer(
        self, raw: Any, dtype: Any, shape: Any, order: Any = "C", *_: Any
    ) -> ArrayOf:
        """``_frombuffer(raw, dtype, shape, order)``: an array in protocol 5."""
        return self._fill(
            ArrayOf(self.array_kind), raw, dtype, shape, type(order) is str and order == "F"
        )

    def scalar_of(self, dtype: Any, raw: Any = None) -> Any:
        """``scalar(dtype, raw)``."""
        made = self._fill(ArrayOf("scalar"), raw, dtype, (), False)
        if (
            type(raw) is bytes
            and made.reason
            and dtype.numpy is not None
            and dtype.numpy.kind in "mMSU"
        ):
            return np.frombuffer(raw, dtype.numpy)[0]
        return made

    def _fill(self, array: ArrayOf, raw: Any, dtype: Any, shape: Any, fortran: bool) -> ArrayOf:
        if (
            type(dtype) is not DTypeOf
            or type(shape) is not tuple
            or not all(type(n) is int and n >= 0 for n in shape)
        ):
            raise self.wrong("has an array of NumPy without a shape or dtype")
        if dtype.numpy is None:
            array.reason = "it is an array of objects or records"
            if shape == () and type(raw) is list and len(raw) == 1 and not dtype.itemsize:
                array.alone = raw
            return array
        if type(raw) is str:
            raw = self.encoded(raw)  # bytes of Python 2
        nbytes = (
            raw.nbytes
            if type(raw) is UnreadBytes
            else len(raw)
            if type(raw) in (bytes, bytearray)
            else -1
        )
        if prod(shape) * dtype.numpy.itemsize != nbytes or len(shape) > _MOST_AXES:
            raise self.wrong(
                f"has an array of NumPy of shape {list(shape[:_MOST_AXES])} that its bytes do not fit"
            )
        if prod(length or 1 for length in shape) * dtype.numpy.itemsize >= _MOST_BYTES:
            array.reason = f"its shape {list(shape)} is larger than that of any array"
            return array
        if of_numpy(dtype.numpy) is None:
            why = f"its dtype is {dtype.numpy}, which has no counterpart"
            array.reason = NotTensor(why) if dtype.numpy.kind in "SU" else why
        elif type(raw) is UnreadBytes:
            array.placed = raw.start, dtype.numpy, shape, fortran
        else:
            held: Any = raw
            values = np.frombuffer(held, dtype.numpy).astype(
                dtype.numpy.newbyteorder("="), copy=False
            )
            array.values = values.reshape(shape, order="F" if fortran else "C")
        return array


def _timed(dtype: np.dtype[Any], metadata: Any) -> np.dtype[Any] | None:
    told = type(metadata) is tuple and len(metadata) == 2 and type(metadata[1]) is tuple
    unit: tuple[Any, ...] = metadata[1][:2] if told else ()
    name = (
        unit[0].decode("ascii")
        if len(unit) == 2 and type(unit[0]) is bytes
        else unit[0]
        if unit
        else None
    )
    if type(name) is not str or type(unit[1]) is not int or not re.fullmatch("[a-zA-Z]{1,7}", name):
        return None
    return np.dtype(f"{dtype.str[:3]}[{unit[1]}{name}]") if name != "generic" else dtype


_CALLS: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("multiarray._reconstruct", NumPyWords.array_of),
    ("multiarray.scalar", NumPyWords.scalar_of),
    ("numeric._frombuffer", NumPyWords.array_from_buffer),
)
NUMPY_CALLS: dict[str, Callable[..., Any]] = {"numpy.dtype": NumPyWords.dtype_of}
NUMPY_CALLS |= {
    f"numpy.{core}.{name}": function for core in ("core", "_core") for name, function in _CALLS
}
"""The functions of NumPy (before and since 2.0) that pickles of data name, and their replacements."""
