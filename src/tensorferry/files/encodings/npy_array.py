"""Arrays as NumPy saves them: a header, the values, and behind them the names that NumPy has no place for.

https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html has the header. `numpy.load` does not look at
what stands behind the values: there is room for the dtype's name, which the header of a bfloat16 lacks.
"""

from __future__ import annotations

import ast
import json
import re
import struct
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.dtypes import DTYPES, find
from ...errors import FileFormatError, UnsafeFileError
from ...host.numpy_dtypes import numpy_dtype
from ..base.contents import NotTensor
from ..base.stored import Extent, View
from .json_scan import Cut, blank, strings
from .shapes import checked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..base.stored import Record

__all__ = ["DTYPE", "LONGEST_TRAILER", "MAGIC", "NAME", "Header", "dtype_string", "header_of", "parse_header"]
__all__ += ["parse_trailer", "stored_at", "trailer", "with_dtype"]

MAGIC = b"\x93NUMPY"
DTYPE = "tensorferry.dtype"
"""The string behind the values that names their dtype."""
NAME = "tensorferry.name"
"""The string behind the values that names the tensor."""

_MARK = b"\ntensorferry "
_LONGEST_HEADER = 10_000
"""NumPy's own limit, for the sake of ``ast``: https://numpy.org/doc/stable/reference/generated/numpy.load.html"""
LONGEST_TRAILER = 1 << 26
"""The most bytes behind the values that are looked at."""

_USUAL = re.compile(
    r"\{'descr': '([^'\\]*)', 'fortran_order': (True|False), 'shape': \(((?:[0-9]{1,19}, )*(?:[0-9]{1,19},?)?)\), \}\s*"
)
_PLAIN = re.compile(r"([<>|=]?)([biufc])([0-9]{1,2})")
_VOID = re.compile(r"[<>|=]?V([0-9]{1,9})")
_KINDS = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}
_TEXT = ("S", "U", "T")
_HEADER_LENGTHS = {1: "<H", 2: "<I", 3: "<I"}
_GROWTH = 21
"""Digits that NumPy leaves room for, so that an array can grow in place."""


class Header(NamedTuple):
    """What the header of an array says.

    Args:
        dtype: Canonical name; ``""`` if it has none.
        swapped: Whether the values are big-endian.
        void: The bytes of a value whose dtype only the trailer can name; else 0.
        why: If it has no dtype: what it is instead.
        fortran: Whether the first axis varies fastest.
        shape: Lengths of the axes.
        length: Bytes of the header.
    """

    dtype: str
    swapped: bool
    void: int
    why: str
    fortran: bool
    shape: tuple[int, ...]
    length: int

    @property
    def nbytes(self) -> int:
        """The bytes of the values."""
        return prod(self.shape) * (find(self.dtype).itemsize if self.dtype else self.void)


def parse_header(read: Callable[[int], bytes], where: str) -> Header:
    """The header of an array.

    Args:
        read: Gives the first bytes, as many as asked for, or all that there are.
        where: The file or member, for messages.

    Raises:
        FileFormatError: It is missing or malformed.
        UnsafeFileError: The values are Python objects, which are a pickle.
    """
    head = read(256)
    if head[:6] != MAGIC:
        raise FileFormatError(f"{where} is not a NumPy array: it does not begin with {MAGIC!r}.")
    pattern = _HEADER_LENGTHS.get(head[6]) if len(head) > 7 else None
    if pattern is None or head[7]:
        raise FileFormatError(f"{where} has version {tuple(head[6:8])} of NumPy's format; known are 1.0, 2.0 and 3.0.")
    begin = 8 + struct.calcsize(pattern)
    length = struct.unpack_from(pattern, head, 8)[0] if len(head) >= begin else 0
    if length > _LONGEST_HEADER:
        raise FileFormatError(f"{where} has a header of {length} bytes; no more than {_LONGEST_HEADER} are read.")
    if begin + length > len(head):
        head = read(begin + length)
    if begin + length > len(head) or not length:
        raise FileFormatError(f"{where} ends in the middle of its header.")
    try:
        text = head[begin : begin + length].decode("utf-8" if head[6] == 3 else "latin1")
        descr, fortran, shape = _fields(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        raise FileFormatError(f"{where} has a header that cannot be read: {type(error).__name__}.") from error
    dtype, swapped, void, why = _described(descr, where)
    itemsize = find(dtype).itemsize if dtype else max(void, 1)
    return Header(dtype, swapped, void, why, fortran, checked(shape, itemsize, where), begin + length)


def stored_at(header: Header, path: str, begin: int, record: Record | None = None) -> Extent | View:
    """The tensor whose values stand behind a header, which begins at a byte of a file; its dtype must have a name."""
    offset, shape = begin + header.length, header.shape
    if not header.fortran or sum(length > 1 for length in shape) < 2:
        return Extent(header.dtype, shape, path, offset, record, swapped=header.swapped)
    strides, step = [], find(header.dtype).itemsize
    for length in shape:
        strides.append(step)
        step *= length
    return View(header.dtype, shape, path, offset, tuple(strides), record, swapped=header.swapped)


def header_of(dtype: str, shape: tuple[int, ...]) -> bytes:
    """The header that NumPy writes for an array, byte for byte; of bytes for a dtype that it cannot load."""
    extents = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
    text = f"{{'descr': {_descr(dtype)!r}, 'fortran_order': False, 'shape': ({extents}), }}"
    text += " " * (_GROWTH - len(str(shape[0])) if shape else 0)
    text += " " * (-(10 + len(text) + 1) % 64) + "\n"
    return MAGIC + b"\x01\x00" + struct.pack("<H", len(text)) + text.encode("latin1")


def parse_trailer(raw: bytes, where: str) -> dict[str, str] | None:
    """The strings that stand behind the values, or ``None`` if something else does.

    Raises:
        FileFormatError: They are malformed.
    """
    if not raw:
        return {}
    if not raw.startswith(_MARK):
        return None
    try:
        pairs, end = strings(raw, len(_MARK))
    except Cut as cut:
        raise FileFormatError(f"{where} has strings behind its values that cannot be read: {cut}.") from cut
    if len(dict(pairs)) != len(pairs) or blank(raw, end) != len(raw):
        raise FileFormatError(f"{where} has strings behind its values of which one stands there twice, or more.")
    return dict(pairs)


def trailer(held: Mapping[str, str]) -> bytes:
    """The bytes behind the values that hold strings; none for none."""
    return _MARK + json.dumps(held, separators=(",", ":")).encode() if held else b""


def dtype_string(dtype: str) -> dict[str, str]:
    """The string that names a dtype, if NumPy's header cannot."""
    return {DTYPE: dtype} if "V" in _descr(dtype) else {}


def with_dtype(header: Header, name: str, where: str) -> Header:
    """The header with the dtype that the trailer names.

    Raises:
        FileFormatError: There is no such dtype, or its values have another size.
    """
    if name not in DTYPES or find(name).itemsize != header.void:
        raise FileFormatError(f"{where} has values of {header.void} bytes, and names their dtype {name[:80]!r}.")
    return header._replace(dtype=name, void=0, why="")


def _descr(dtype: str) -> str:
    text = numpy_dtype(dtype).str
    return f"<V{find(dtype).itemsize}" if text == "<f1" else text


@lru_cache(256)
def _fields(text: str) -> tuple[Any, bool, tuple[int, ...]]:
    usual = _USUAL.fullmatch(text)
    if usual is not None:
        lengths = [length for length in usual[3].replace(" ", "").split(",") if length]
        # "(3)" is a number, not a tuple.
        if len(lengths) != 1 or usual[3].endswith(","):
            return usual[1], usual[2] == "True", tuple(map(int, lengths))
    try:
        fields = ast.literal_eval(text.strip())
    except SyntaxError:
        # Python 2 wrote its long integers with an L.
        text, count = re.subn(r"\b([0-9]+)L\b", r"\1", text.strip())
        if not count:
            raise
        fields = ast.literal_eval(text)
    if not isinstance(fields, dict) or set(fields) != {"descr", "fortran_order", "shape"}:
        raise ValueError("its fields are descr, fortran_order and shape")
    shape, fortran = fields["shape"], fields["fortran_order"]
    if not isinstance(shape, tuple) or any(type(each) is not int for each in shape) or not isinstance(fortran, bool):
        raise TypeError("a shape is a tuple of integers")
    return fields["descr"], fortran, shape


def _described(descr: Any, where: str) -> tuple[str, bool, int, str]:
    if _has_objects(descr):
        raise UnsafeFileError(
            f"{where} holds Python objects: that is a pickle, which can run any code.",
            "save it again, where it was made, as an array of numbers",
        )
    if isinstance(descr, str):
        plain = _PLAIN.fullmatch(descr)
        if plain is not None:
            kind, size = _KINDS[plain[2]], int(plain[3])
            name = kind if kind == "bool" else f"{kind}{8 * size}"
            if name in DTYPES and size == find(name).itemsize:
                return name, plain[1] == ">" and size > 1, 0, ""
            if name == "float8":
                # The one of its size that ml_dtypes calls a float to NumPy.
                return "float8_e5m2", False, 0, ""
        void = _VOID.fullmatch(descr)
        if void is not None and 0 < int(void[1]) <= 2:
            return "", False, int(void[1]), f"values of {void[1]} bytes whose dtype is not named"
    why = f"values of {str(descr)[:80]}, which are no numbers that tensors have"
    return "", False, 0, NotTensor(why) if isinstance(descr, str) and descr.lstrip("<>=|")[:1] in _TEXT else why


def _has_objects(descr: Any) -> bool:
    if isinstance(descr, str):
        return re.fullmatch(r"[<>|=]?O[0-9]*|object", descr) is not None
    return isinstance(descr, (list, tuple)) and any(_has_objects(each) for each in descr)
