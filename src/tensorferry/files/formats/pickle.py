"""Pickles: files of their own, and inside of other files."""

from __future__ import annotations

import os
import re
from math import prod
from typing import TYPE_CHECKING, Any

from ...core.dtypes import DTYPES
from ...errors import FileFormatError
from ..base.contents import Contents
from ..base.format import Format
from ..pickles.machine import Machine, UnreadBytes
from ..pickles.reader import globals_of, root_of
from ..pickles.standins import ArrayOf, DTypeOf, RefusedOf, StorageOf
from ..pickles.torch import Names
from ..pickles.torch_files import (
    FROM_BYTES,
    SPAN_FROM,
    FileResolver,
    LegacyNames,
    pages_of,
    read_legacy,
    resolved,
)

if TYPE_CHECKING:
    from pathlib import Path

    from ..base.stored import Record
    from ..pickles.reader import Unpickled

__all__ = [
    "LEGACY",
    "PICKLES",
    "BareNames",
    "asked_by_objects",
    "asked_in_pickle",
    "is_pickle",
    "read_objects",
    "read_pickle_file",
]

LEGACY = re.compile(
    rb"\x80[\2-\5](?:\x95.{8})?\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", re.DOTALL
)
"""The start of PyTorch files before 1.6: MAGIC_NUMBER of torch/serialization.py, pickled."""
PICKLES = (".pkl", ".pickle", ".p", ".joblib")
_MAY_BE = (*PICKLES, ".pt", ".pth", ".bin", ".ckpt")
_PICKLED = re.compile(rb"\x80[\2-\5]")
_PICKLED_AS_TEXT = re.compile(
    rb"\([dl]p\d+\n|c[\w.]+\n\w+\n|[}\])]q\0|\((?:[FILSV].*\n|[BGJKMNTUX\]}])", re.DOTALL
)
"""The beginning of a container in protocols 0 and 1, which have no mark.

It counts only together with a suffix.
"""


def is_pickle(path: Path, head: bytes) -> bool:
    """Whether a file looks like a pickle, by its first bytes and its name."""
    return bool(
        _PICKLED.match(head)
        or (path.name.lower().endswith(_MAY_BE) and _PICKLED_AS_TEXT.match(head))
    )


_NESTED_STEPS = 2_000_000
_DEEPEST = 8


class BareNames(Names):
    """The vocabulary of `pickle.dump` and joblib: wrapped arrays, tensors as whole PyTorch files.

    Args:
        where: The file, for messages.
        allow: As for `Names`.
        data: The file.
        path: Its path, if it is not `where`; empty if `data` are bytes in memory, in which all
            values stay.
    """

    span_from = SPAN_FROM
    array_kind = "tensor"  # as in .npz: other formats write it as their own tensors

    def __init__(
        self, where: str, allow: frozenset[str], data: Any, path: str | None = None
    ) -> None:
        super().__init__(where, allow)
        self.data = data
        self.path = where if path is None else path
        if not self.path:
            # Larger than any array; and yet the machine is needed here.
            self.span_from = (1 << 62) - 1
        self.places: dict[str, int | bytes] = {}
        self._spare = _NESTED_STEPS
        self._depth = 0

    def build(self, instance: Any, state: Any) -> Any:
        if type(instance) is ArrayOf and instance.is_empty and type(state) is dict:
            self._fill_inline(instance, state)
            return instance
        return super().build(instance, state)

    def inline_array(self, *_: Any) -> ArrayOf:
        """``NumpyArrayWrapper(…)`` of joblib. Its state and then the array follow."""
        return ArrayOf(self.array_kind)

    def _fill_inline(self, array: ArrayOf, state: dict[Any, Any]) -> None:
        dtype, shape, order = (state.get(name) for name in ("dtype", "shape", "order"))
        alignment = state.get("numpy_array_alignment_bytes")
        if type(dtype) is not DTypeOf or type(shape) is not tuple or order not in ("C", "F"):
            raise self.wrong("has an array of joblib's without a dtype, shape or order")
        if not all(type(length) is int and length >= 0 for length in shape):
            raise self.wrong("has an array of joblib's without a possible shape")
        machine = self.machine
        if not dtype.itemsize:
            self._pass_objects(machine)
            array.reason = "it is an array of objects or records"
            return
        if alignment is not None:
            machine.leave(machine.take(1)[0])
        nbytes = prod(shape) * dtype.itemsize
        self._fill(
            array, UnreadBytes(machine.leave(nbytes), nbytes, bytes), dtype, shape, order == "F"
        )

    def _pass_objects(self, machine: Any) -> None:
        """Read the nested pickle of an array of objects."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise machine.bomb(f"nests objects in arrays more than {_DEEPEST} levels deep")
        inner = Machine(self.data, self, self.where, machine.at, self._spare)
        inner.run()
        self._depth -= 1
        self._spare -= inner.at - inner.begin
        if self._spare < 0:
            raise inner.bomb(f"has objects of more than {_NESTED_STEPS:,} bytes in arrays")
        machine.at = inner.at
        self.machine = machine

    def from_bytes(self, raw: Any) -> Any:
        """``_load_from_bytes(raw)``: a storage as a whole file of PyTorch."""
        if type(raw) is UnreadBytes:
            data, begin, end = self.data, raw.start, raw.start + raw.nbytes
        else:
            data = b""
            if type(raw) is str:
                data = self.encoded(raw)
            elif type(raw) in (bytes, bytearray):
                data = bytes(raw)
            begin, end = 0, len(data)
        inner = LegacyNames(self.where, self.allow)
        # What is refused in it is told together with what is refused around it.
        inner.partly = True
        try:
            storage, places = read_legacy(data, begin, end, inner)
        finally:
            self.asked |= inner.asked
            self.refused |= inner.refused
            self.forbidden |= inner.forbidden
        if type(storage) is RefusedOf:
            return storage
        if type(storage) is not StorageOf:
            raise self.wrong("has a storage that holds something else")
        start = places[storage.key]
        key = f"{len(self.places)}"
        in_file = data is self.data and self.path
        if in_file:
            self.places[key] = start
        else:
            self.places[key] = data[start : start + storage.nbytes]
        return StorageOf(key, storage.dtype, storage.size, storage.kind)


BareNames.calls = Names.calls | {
    FROM_BYTES: BareNames.from_bytes,
    "joblib.numpy_pickle.NumpyArrayWrapper": BareNames.inline_array,
}


def read_pickle_file(
    path: Path, allow: frozenset[str], *, partly: bool = False
) -> tuple[Unpickled, dict[str, str]]:
    """Read a file of one pickle, joblib's or not; gives the result and why leaves fail to load.

    Args:
        path: The file.
        allow: As for `Names`.
        partly: As for `Names`.

    Raises:
        FileFormatError: It is damaged, or there is something after the pickle.
        UnsafeFileError: It asks for something that is not data, or needs far too much memory or
            time.
    """
    data = pages_of(path)
    vocabulary = BareNames(os.fspath(path), allow, data)
    vocabulary.partly = partly
    root = root_of(lambda: data, vocabulary)
    end = vocabulary.machine.at
    if end != len(data):
        if data[end : end + 1] == b"\x80":
            more = "another pickle"
        else:
            more = "something else"
        raise FileFormatError(
            f"{vocabulary.where}: its pickle ends at byte {end:,} of {len(data):,}, "
            f"and {more} follows.",
            "a file with one object, such as a dict of them all",
        )
    return resolved(root, vocabulary, FileResolver(vocabulary.where, vocabulary.places), len(data))


def read_objects(
    vocabulary: BareNames,
    begin: int,
    end: int,
    *,
    member: str | None = None,
    record: Record | None = None,
) -> tuple[Unpickled, dict[str, str]]:
    """Read the pickle of an array of objects.

    The object of an array without axes stands for itself.

    Args:
        vocabulary: Defines the meaning of its names; its data are those of the file.
        begin: The position of the pickle.
        end: Its end.
        member: The name of the array; ``None`` if it has none.
        record: The region with a checksum that it is in.

    Raises:
        FileFormatError: It is damaged, or of another length.
        UnsafeFileError: As for `read_pickle_file`.
    """
    root = root_of(lambda: vocabulary.data, vocabulary, begin)
    if vocabulary.machine.at != end:
        raise vocabulary.wrong(
            f"ends at byte {vocabulary.machine.at:,}, and what it is in at {end:,}"
        )
    if type(root) is ArrayOf and root.alone is not None:
        (root,) = root.alone
    resolve = FileResolver(vocabulary.path or vocabulary.where, vocabulary.places, record)
    named = root if member is None else {member: root}
    return resolved(named, vocabulary, resolve, end - begin)


def asked_by_objects(vocabulary: BareNames, begin: int) -> tuple[str, ...]:
    """The globals that the pickle of an array of objects asks for, as far as it can be read."""
    return globals_of(lambda: vocabulary.data, vocabulary, begin)


def asked_in_pickle(path: Path) -> tuple[str, ...]:
    """The globals that a pickle asks for, as far as it can be read."""
    data = pages_of(path)
    return globals_of(lambda: data, BareNames(os.fspath(path), frozenset(), data))


class Pickle(Format):
    """Pickles of any protocol, and joblib's.

    See https://joblib.readthedocs.io/en/stable/persistence.html.
    """

    name = "pickle"
    title = "Pickle, joblib"
    suffixes = PICKLES
    dtypes = frozenset(DTYPES)
    holds_tree = True
    writes = False
    rank = 90

    def recognises(self, path: Path, head: bytes) -> bool:
        return is_pickle(path, head) and not LEGACY.match(head)

    def read(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        return self._read(path, allow, partly=False)

    def read_partly(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        return self._read(path, allow, partly=True)

    def _read(self, path: Path, allow: frozenset[str], *, partly: bool) -> Contents:

        unpickled, others = read_pickle_file(path, allow, partly=partly)
        return Contents(
            self.name,
            (os.fspath(path),),
            unpickled.leaves,
            {},
            unpickled.tree,
            others,
            unpickled.asks_for,
        )

    def asks_for(self, path: Path) -> tuple[str, ...]:

        return asked_in_pickle(path)


FORMAT = Pickle()
