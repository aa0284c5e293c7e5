"""NumPy's ``.npy``: one array.

https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ...core.dtypes import DTYPES
from ...errors import ConversionError, FileFormatError, FormatLimitError
from ..base.contents import Contents, FileFinding, NotTensor, Ref
from ..base.format import Format
from ..base.limits import OTHER_FORMAT
from ..base.raw import bytes_of, held_open, read_at
from ..base.tree_strings import TREE, pack, unpack
from ..encodings import npy_array as arrays

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ..base.pump import Pump

_LONE = Ref("tensor")
"""The tree of a file whose array has no name."""


class _Npy(Format):
    """One array, as `numpy.save` writes it.

    See https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html.
    """

    name = "npy"
    title = "NumPy's .npy"
    suffixes = (".npy",)
    dtypes = frozenset(DTYPES)
    holds_tree = True
    holds_metadata = True
    reserved = frozenset({arrays.DTYPE, arrays.NAME})
    unicode_only = True
    holds_one = True
    rank = 14
    first_class = True

    def recognises(self, path: Path, head: bytes) -> bool:
        return head[:6] == arrays.MAGIC

    def is_named(self, path: Path, head: bytes) -> bool:
        return path.name.lower().endswith(self.suffixes)

    def read(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        return self._read(path, allow, partly=False)

    def read_partly(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        return self._read(path, allow, partly=True)

    def _read(self, path: Path, allow: frozenset[str], *, partly: bool) -> Contents:
        where = str(path)
        with held_open(where) as descriptor:
            size = bytes_of(where, descriptor)

            def head(count: int) -> bytes:
                return read_at(where, 0, min(count, size), descriptor)

            header = arrays.parse_header(head, where)
            if header.is_pickle:
                return self._objects(path, header, size, allow, partly=partly)
            if header.dtype or header.void:
                end = header.length + header.nbytes
            else:
                end = size
            if end > size:
                raise FileFormatError(
                    f"{where} ends at byte {size}, "
                    f"its array of shape {list(header.shape)} at {end}."
                )
            behind = read_at(where, end, min(size - end, arrays.LONGEST_TRAILER), descriptor)
        contents = Contents(self.name, (where,))
        held = arrays.parse_trailer(behind, where)
        if held is None:
            if behind[:6] == arrays.MAGIC:
                what = "another array, as of several calls of numpy.save"
            else:
                what = "which are no array's"
            why = f"{size - end} bytes behind the array: {what}"
            if behind[:6] == arrays.MAGIC:
                contents.others["trailing"] = why
            else:
                contents.others["trailing"] = NotTensor(why)
            held = {}
        if arrays.DTYPE in held:
            header = arrays.with_dtype(header, held.pop(arrays.DTYPE), where)
        lone = arrays.NAME not in held and TREE not in held
        name = held.pop(arrays.NAME, _LONE.name)
        if header.dtype:
            contents.tensors[name] = arrays.stored_at(header, where, 0)
            contents.tree = _LONE if lone else None
        else:
            contents.others[name] = header.why
        contents.metadata = held
        return unpack(contents)

    def _objects(
        self, path: Path, header: arrays.Header, size: int, allow: frozenset[str], *, partly: bool
    ) -> Contents:
        """The contents of a file with Python objects, which is a pickle after the header."""
        from ..pickles.torch_files import pages_of
        from .pickle import BareNames, read_objects

        vocabulary = BareNames(str(path), allow, pages_of(path))
        vocabulary.partly = partly
        unpickled, others = read_objects(vocabulary, header.length, size)
        return Contents(
            self.name,
            (str(path),),
            unpickled.leaves,
            {},
            unpickled.tree,
            others,
            unpickled.asks_for,
        )

    def asks_for(self, path: Path) -> tuple[str, ...]:
        from ..pickles.torch_files import pages_of
        from .pickle import BareNames, asked_by_objects

        with path.open("rb", buffering=0) as file:
            descriptor = file.fileno()
            header = arrays.parse_header(lambda count: os.pread(descriptor, count, 0), str(path))
        if not header.is_pickle:
            return ()
        return asked_by_objects(BareNames(str(path), frozenset(), pages_of(path)), header.length)

    def refuse(self, contents: Contents) -> None:
        length = len(_strings(contents))
        if length > arrays.LONGEST_TRAILER:
            raise FormatLimitError(
                f"{self.title} holds {arrays.LONGEST_TRAILER} bytes of "
                f"what is not a tensor, not {length}.",
                OTHER_FORMAT,
            )

    def write(self, contents: Contents, path: Path, pump: Pump) -> None:
        (stored,) = contents.tensors.values()
        with path.open("xb") as file:
            file.write(arrays.header_of(stored.dtype, stored.shape))
            file.flush()
            pump.copy(stored, file.fileno())
            file.write(_strings(contents))

    def check(
        self,
        path: Path,
        *,
        allow: frozenset[str] = frozenset(),
        found: Contents | ConversionError | None = None,
    ) -> Iterator[FileFinding]:
        if found is None:
            contents = self.tried(path, allow)
        else:
            contents = found
        if isinstance(contents, ConversionError):
            yield FileFinding(str(path), 0, None, contents.message)
            return
        for name, why in contents.others.items():
            yield FileFinding(str(path), None, name, why, error=False)


def _strings(contents: Contents) -> bytes:
    """The strings after the array; empty without a name and with a dtype of NumPy."""
    ((name, stored),) = contents.tensors.items()
    lone = contents.tree == _LONE and name == _LONE.name
    strings = pack(contents._replace(tree=None) if lone else contents)
    if not lone and (contents.tree is None or name != _LONE.name):
        strings[arrays.NAME] = name
    return arrays.trailer(strings | arrays.dtype_string(stored.dtype))


FORMAT = _Npy()
