"""Read files that are one pickle, by `pickle.dump` or joblib. Large values in them stay in the file.

joblib writes the bytes of an array after the BUILD opcode of its wrapper (joblib/numpy_pickle.py).
"""

from __future__ import annotations

import os
from math import prod
from typing import TYPE_CHECKING, Any

from ...errors import FileFormatError
from .machine import Machine
from .reader import globals_of, root_of
from .resolver import FileResolver
from .standins import OPAQUE, ArrayOf, DTypeOf, StorageOf
from .torch import Names
from .torch_legacy import FROM_BYTES, SPAN_FROM, LegacyNames, pages_of, read_legacy, resolved
from .words import UnreadBytes

if TYPE_CHECKING:
    from pathlib import Path

    from .reader import Unpickled

__all__ = ["asked_in_pickle", "read_pickle_file"]

_NESTED_STEPS = 2_000_000
_DEEPEST = 8


class BareNames(Names):
    """The vocabulary of `pickle.dump` and joblib: arrays after their wrappers, and tensors as whole files of PyTorch.

    Args:
        where: The file, for messages.
        allow: As for `Names`.
        data: The file.
    """

    span_from = SPAN_FROM

    def __init__(self, where: str, allow: frozenset[str], data: Any) -> None:
        super().__init__(where, allow)
        self.data = data
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
        return ArrayOf("array")

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
        self._fill(array, UnreadBytes(machine.leave(nbytes), nbytes, bytes), dtype, shape, order == "F")

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
            data = self.encoded(raw) if type(raw) is str else bytes(raw) if type(raw) in (bytes, bytearray) else b""
            begin, end = 0, len(data)
        inner = LegacyNames(self.where, self.allow)
        try:
            storage, places = read_legacy(data, begin, end, inner)
        finally:
            self.asked |= inner.asked
            for demand in inner.refused:
                self.refuse(demand)
        if type(storage) is not StorageOf:
            if storage is OPAQUE:
                return OPAQUE
            raise self.wrong("has a storage that holds something else")
        start = places[storage.key]
        key = f"{len(self.places)}"
        self.places[key] = start if data is self.data else data[start : start + storage.nbytes]
        return StorageOf(key, storage.dtype, storage.size, storage.kind)


BareNames.calls = Names.calls | {
    FROM_BYTES: BareNames.from_bytes,
    "joblib.numpy_pickle.NumpyArrayWrapper": BareNames.inline_array,
}


def read_pickle_file(path: Path, allow: frozenset[str]) -> tuple[Unpickled, dict[str, str]]:
    """Read a file that is one pickle, of joblib or not; gives the result and why some leaves cannot be loaded.

    Raises:
        FileFormatError: It is damaged, or there is something after the pickle.
        UnsafeFileError: It asks for something that is not data, or needs far too much memory or time.
    """
    data = pages_of(path)
    vocabulary = BareNames(os.fspath(path), allow, data)
    root = root_of(lambda: data, vocabulary)
    end = vocabulary.machine.at
    if end != len(data):
        more = "another pickle" if data[end : end + 1] == b"\x80" else "something else"
        raise FileFormatError(
            f"{vocabulary.where}: its pickle ends at byte {end:,} of {len(data):,}, and {more} follows.",
            "a file with one object, such as a dict of them all",
        )
    return resolved(root, vocabulary, FileResolver(vocabulary.where, vocabulary.places), len(data))


def asked_in_pickle(path: Path) -> tuple[str, ...]:
    """The globals that a pickle asks for, as far as it can be read."""
    data = pages_of(path)
    return globals_of(lambda: data, BareNames(os.fspath(path), frozenset(), data))
