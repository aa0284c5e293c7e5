"""Arrays in NumPy's format: a header, the values, and after them strings that NumPy does not read.

The header is described at https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html.
`numpy.load` does not read the bytes after the values. So the name of a dtype that the header cannot
express, such as bfloat16, is put there.
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
from ...core.layout import compact_strides
from ...errors import FileFormatError, UnsafeFileError
from ...host.numpy_dtypes import numpy_dtype
from ..base.contents import NotTensor
from ..base.stored import Extent, View
from .array_parts import checked
from .json_scan import Cut, blank, strings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..base.stored import Record

__all__ = [
    "DTYPE",
    "LONGEST_TRAILER",
    "MAGIC",
    "NAME",
    "Header",
    "dtype_string",
    "header_of",
    "parse_header",
]
__all__ += ["parse_trailer", "stored_at", "trailer", "with_dtype"]

MAGIC = b"\x93NUMPY"
DTYPE = "tensorferry.dtype"
"""The key of the string with the dtype."""
NAME = "tensorferry.name"
"""The key of the string with the name of the tensor."""

_MARK = b"\ntensorferry "
_LONGEST_HEADER = 10_000
"""NumPy's limit, for ``ast``: https://numpy.org/doc/stable/reference/generated/numpy.load.html"""
LONGEST_TRAILER = 1 << 26
"""The most bytes after the values that are read."""

_USUAL = re.compile(
    r"\{'descr': '([^'\\]*)', 'fortran_order': (True|False), 'shape': \(((?:[0-9]{1,19}, "
    r")*(?:[0-9]{1,19},?)?)\), \}\s*"
)
_PLAIN = re.compile(r"([<>|=]?)([biufc])([0-9]{1,2})")
_OBJECTS = re.compile(r"[<>|=]?O[0-9]*|object")
_VOID = re.compile(r"[<>|=]?V([0-9]{1,9})")
_KINDS = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}
_TEXT = ("S", "U", "T")
_HEADER_LENGTHS = {1: "<H", 2: "<I", 3: "<I"}
_GROWTH = 21
"""The room for digits that NumPy leaves, so that an array can grow in place."""


class Header(NamedTuple):
    """The header of an array.

    Args:
        dtype: The canonical name of the dtype; empty if it has none.
        swapped: Whether the values are big-endian.
        void: The size in bytes of a value whose dtype only the strings after the values can tell;
            otherwise 0.
        why: Without a dtype: what the values are.
        fortran: Whether the first axis varies fastest.
        shape: Lengths of the axes.
        length: The length of the header in bytes.
        is_pickle: Whether the values are objects of Python: a pickle of the array.
    """

    dtype: str
    swapped: bool
    void: int
    why: str
    fortran: bool
    shape: tuple[int, ...]
    length: int
    is_pickle: bool = False

    @property
    def nbytes(self) -> int:
        """How many bytes the values take."""
        return prod(self.shape) * (find(self.dtype).itemsize if self.dtype else self.void)


def parse_header(read: Callable[[int], bytes], where: str) -> Header:
    """Read the header of an array.

    Args:
        read: Gives the first bytes: as many as requested, or all that there are.
        where: The file or member, for messages.

    Raises:
        FileFormatError: It is missing or malformed.
        UnsafeFileError: The values are records with Python objects in them, that is, a pickle.
    """
    head = read(256)
    if head[:6] != MAGIC:
        raise FileFormatError(f"{where} is not a NumPy array: it does not begin with {MAGIC!r}.")
    if len(head) > 7:
        pattern = _HEADER_LENGTHS.get(head[6])
    else:
        pattern = None
    if pattern is None or head[7]:
        raise FileFormatError(
            f"{where} has version {tuple(head[6:8])} of NumPy's format; known are 1.0, 2.0 and 3.0."
        )
    begin = 8 + struct.calcsize(pattern)
    if len(head) >= begin:
        length = struct.unpack_from(pattern, head, 8)[0]
    else:
        length = 0
    if length > _LONGEST_HEADER:
        raise FileFormatError(
            f"{where} has a header of {length} bytes; no more than {_LONGEST_HEADER} are read."
        )
    if begin + length > len(head):
        head = read(begin + length)
    if begin + length > len(head) or not length:
        raise FileFormatError(f"{where} ends in the middle of its header.")
    try:
        text = head[begin : begin + length].decode("utf-8" if head[6] == 3 else "latin1")
        descr, fortran, shape = _fields(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        raise FileFormatError(
            f"{where} has a header that cannot be read: {type(error).__name__}."
        ) from error
    is_pickle = isinstance(descr, str) and _OBJECTS.fullmatch(descr) is not None
    if is_pickle:
        dtype, swapped, void, why = "", False, 0, ""
    else:
        dtype, swapped, void, why = _described(descr, where)
    itemsize = find(dtype).itemsize if dtype else max(void, 1)
    return Header(
        dtype,
        swapped,
        void,
        why,
        fortran,
        checked(shape, itemsize, where),
        begin + length,
        is_pickle,
    )


def stored_at(header: Header, path: str, begin: int, record: Record | None = None) -> Extent | View:
    """The tensor after a header, which begins at `begin`. It must have a dtype."""
    offset, shape = begin + header.length, header.shape
    if not header.fortran or sum(length > 1 for length in shape) < 2:
        return Extent(header.dtype, shape, path, offset, record, swapped=header.swapped)
    strides = compact_strides(shape[::-1], find(header.dtype).itemsize)[::-1]
    return View(header.dtype, shape, path, offset, strides, record, swapped=header.swapped)


def header_of(dtype: str, shape: tuple[int, ...]) -> bytes:
    """The header that NumPy writes, byte for byte.

    For a dtype that NumPy cannot load, it is a header of bytes.
    """
    extents = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
    text = f"{{'descr': {_descr(dtype)!r}, 'fortran_order': False, 'shape': ({extents}), }}"
    text += " " * (_GROWTH - len(str(shape[0])) if shape else 0)
    text += " " * (-(10 + len(text) + 1) % 64) + "\n"
    return MAGIC + b"\x01\x00" + struct.pack("<H", len(text)) + text.encode("latin1")


def parse_trailer(raw: bytes, where: str) -> dict[str, str] | None:
    """The strings after the values; ``None`` if there is something else.

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
        raise FileFormatError(
            f"{where} has strings behind its values that cannot be read: {cut}."
        ) from cut
    if len(dict(pairs)) != len(pairs) or blank(raw, end) != len(raw):
        raise FileFormatError(
            f"{where} has strings behind its values of which one stands there twice, or more."
        )
    return dict(pairs)


def trailer(held: Mapping[str, str]) -> bytes:
    """The bytes for strings after the values; empty without strings."""
    if held:
        return _MARK + json.dumps(held, separators=(",", ":")).encode()
    return b""


def dtype_string(dtype: str) -> dict[str, str]:
    """The string for a dtype that NumPy's header cannot express; otherwise none."""
    return {DTYPE: dtype} if "V" in _descr(dtype) else {}


def with_dtype(header: Header, name: str, where: str) -> Header:
    """The header, with the dtype from the strings after the values.

    Raises:
        FileFormatError: There is no such dtype, or its values have another size.
    """
    if name not in DTYPES or find(name).itemsize != header.void:
        raise FileFormatError(
            f"{where} has values of {header.void} bytes, and names their dtype {name[:80]!r}."
        )
    return header._replace(dtype=name, void=0, why="")


def _descr(dtype: str) -> str:
    text = numpy_dtype(dtype).str
    return f"<V{find(dtype).itemsize}" if text == "<f1" else text


@lru_cache(256)
def _fields(text: str) -> tuple[Any, bool, tuple[int, ...]]:
    usual = _USUAL.fullmatch(text)
    if usual is not None:
        lengths = [length for length in usual[3].replace(" ", "").split(",") if length]
        # "(3)" is a number in Python, not a tuple.
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
    if (
        not isinstance(shape, tuple)
        or any(type(axis_length) is not int for axis_length in shape)
        or not isinstance(fortran, bool)
    ):
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
            if kind == "bool":
                name = kind
            else:
                name = f"{kind}{8 * size}"
            if name in DTYPES and size == find(name).itemsize:
                return name, plain[1] == ">" and size > 1, 0, ""
            if name == "float8":
                # ml_dtypes gives NumPy the kind "f" only for this dtype of one byte.
                return "float8_e5m2", False, 0, ""
        void = _VOID.fullmatch(descr)
        if void is not None and 0 < int(void[1]) <= 2:
            return "", False, int(void[1]), f"values of {void[1]} bytes whose dtype is not named"
    why = f"values of {str(descr)[:80]}, which are no numbers that tensors have"
    return (
        "",
        False,
        0,
        NotTensor(why) if isinstance(descr, str) and descr.lstrip("<>=|")[:1] in _TEXT else why,
    )


def _has_objects(descr: Any) -> bool:
    if isinstance(descr, str):
        return _OBJECTS.fullmatch(descr) is not None
    return isinstance(descr, (list, tuple)) and any(_has_objects(field) for field in descr)
