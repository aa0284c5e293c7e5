"""Write trees of tensors as pickles of ``torch.save``, without importing PyTorch.

To load arrays and scalars of NumPy, ``torch.serialization.add_safe_globals`` is needed, as for
files of ``torch.save``.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.dtypes import DTYPES
from ...core.layout import compact_strides
from ...errors import FormatLimitError
from ...host.numpy_dtypes import numpy_dtype, of_numpy
from ..base.contents import NOTHING, Ref, Special
from ..base.file_hints import FileHint, InPlace, in_place_of_scalar
from .torch import ODD_DTYPES, STORAGES
from .writer import PickleWriter, place_of

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ..base.contents import Contents
    from ..base.pump import Pump
    from ..base.stored import Stored

__all__ = ["pickled", "refuse_values"]

_STORAGE_CLASSES = {dtype: kind for kind, dtype in STORAGES.items() if dtype and kind != "Untyped"}
"""The typed storages. Tensors of other dtypes use untyped ones."""
_DEVICE = re.compile(r"[a-z_0-9]{1,50}(?::[0-9]{1,5})?")
_LAYOUT = re.compile(r"[a-z_]{1,50}")
_VALUES = "mMSU"
"""The kinds of NumPy's scalars that are times and texts: they stay values, and all others become tensors."""


def pickled(contents: Contents, pump: Pump) -> tuple[bytes, list[Stored]]:
    """The pickle for contents, and the tensors whose bytes are its storages, in order.

    Args:
        contents: The contents.
        pump: Reads the values of arrays and scalars of NumPy, which are in the pickle itself.
    """
    writer = _TorchWriter(contents, pump)
    writer.write()
    return bytes(writer.out), writer.storages


def refuse_values(contents: Contents) -> None:
    """Raise for values that such a pickle cannot hold.

    Raises:
        FormatLimitError: A value in the tree is neither plain nor a container of plain values, an
            integer takes more than 255 bytes, or the tree is nested too deeply; the message says
            where.
    """
    if contents.tree is not None:
        _TorchWriter(contents, None).write()


def _is_known(node: Special) -> bool:
    """Whether a value of PyTorch is one that a pickle may name.

    Other files tell it as text, which may say anything.
    """
    value = node.value
    if node == NOTHING:
        return True
    if node.kind == "size":
        return type(value) is list and all(type(each) is int for each in value)
    if type(value) is not str:
        return False
    if node.kind == "dtype":
        return value in DTYPES or value in ODD_DTYPES
    form = {"device": _DEVICE, "layout": _LAYOUT}.get(node.kind)
    return form is not None and form.fullmatch(value) is not None


class _TorchWriter(PickleWriter):
    def __init__(self, contents: Contents, pump: Pump | None) -> None:
        super().__init__()
        self.contents = contents
        self.pump = pump
        self.storages: list[Stored] = []
        self.places: dict[Hashable, int] = {}

    def write(self) -> None:
        tree = self.contents.tree
        if tree is None:
            tree = {name: Ref(name) for name in self.contents.tensors}
        self.node(tree, ())
        self.out += b"."

    def other(self, node: Any, keys: tuple[Any, ...]) -> None:
        if not isinstance(node, np.generic):
            super().other(node, keys)
        elif of_numpy(node.dtype) is None and node.dtype.kind not in _VALUES:
            raise FormatLimitError(
                f"{place_of(keys)} is a NumPy scalar of {node.dtype}, which would not be read again.",
                FileHint(in_place_of_scalar(node, keys)),
            )
        else:
            self.scalar(node.dtype, node.tobytes())

    def special(self, node: Special, keys: tuple[Any, ...]) -> None:
        if not _is_known(node):
            raise FormatLimitError(
                f"{place_of(keys)} is a {node.kind[:50]} that PyTorch does not have: {str(node.value)[:50]!r}.",
                FileHint(InPlace(keys, "str({})")),
            )
        if node.kind == "dtype":
            self.name("torch", str(node.value))
            return
        if node == NOTHING:
            self.nothing(None)
            return
        if node.kind == "size":
            self.name("torch", "Size")
            self.entries(tuple(int(each) for each in node.value))
            self.end_tuple(1)
        elif node.kind == "device":
            kind, _, index = str(node.value).partition(":")
            self.name("torch", "device")
            self.text(kind)
            if index:
                self.integer(int(index))
            self.end_tuple(2 if index else 1)
        else:
            self.name("torch.serialization", "_get_layout")
            self.text(f"torch.{node.value!s}")
            self.end_tuple(1)
        self.called()

    # Tensors.

    def ref(self, ref: Ref, _: tuple[Any, ...]) -> None:
        stored = self.contents.tensors[ref.name]
        if ref.kind in ("array", "scalar"):
            self.numpy(ref, stored)
        elif ref.kind in ("storage", "untyped_storage"):
            self.storage(
                stored,
                untyped=ref.kind == "untyped_storage" or stored.dtype not in _STORAGE_CLASSES,
            )
        elif ref.kind == "parameter":
            self.name("torch._utils", "_rebuild_parameter")
            self.out += b"("
            self.tensor(stored, requires_grad=False)
            self.truth(ref.requires_grad)
            self.ordered()
            self.end_tuple(4)
            self.called()
        else:
            self.tensor(stored, requires_grad=ref.requires_grad)

    def tensor(self, stored: Stored, *, requires_grad: bool) -> None:
        untyped = stored.dtype not in _STORAGE_CLASSES
        self.name("torch._utils", "_rebuild_tensor_v3" if untyped else "_rebuild_tensor_v2")
        self.out += b"("
        self.storage(stored, untyped=untyped)
        self.out += b"K\0"
        self.entries(stored.shape)
        self.entries(compact_strides(stored.shape, 1))
        self.truth(requires_grad)
        self.ordered()
        if untyped:
            self.name("torch", stored.dtype)
        self.end_tuple(6)
        self.called()

    def storage(self, stored: Stored, *, untyped: bool) -> None:
        # torch.save refuses a typed and an untyped storage over the same memory, so these are
        # written separately.
        place = self.places.setdefault((stored.key, untyped), len(self.storages))
        if place == len(self.storages):
            self.storages.append(stored)
        self.out += b"("
        self.text("storage")
        if untyped:
            self.name("torch.storage", "UntypedStorage")
        else:
            self.name("torch", f"{_STORAGE_CLASSES[stored.dtype]}Storage")
        if not self.got(("key", place)):
            raw = str(place).encode()
            self.out += b"X" + struct.pack("<I", len(raw)) + raw
            self.put(("key", place))
        self.text("cpu")
        self.integer(stored.nbytes if untyped else stored.size)
        self.end_tuple(5)
        self.out += b"Q"

    def numpy(self, ref: Ref, stored: Stored) -> None:
        dtype = numpy_dtype(stored.dtype)
        raw = b"" if self.pump is None else np.ascontiguousarray(self.pump.array(stored)).tobytes()
        if ref.kind == "scalar" and not stored.shape:
            self.scalar(dtype, raw)
            return
        self.name("numpy._core.multiarray", "_reconstruct")
        self.name("numpy", "ndarray")
        self.entries((0,))
        self.raw(b"b")
        self.end_tuple(3)
        self.called()
        self.out += b"("
        self.integer(1)
        self.entries(stored.shape)
        self.dtype(dtype)
        self.truth(False)
        self.raw(raw)
        self.end_tuple(5)
        self.out += b"b"

    def scalar(self, dtype: np.dtype[Any], raw: bytes) -> None:
        self.name("numpy._core.multiarray", "scalar")
        self.dtype(dtype)
        self.raw(raw)
        self.end_tuple(2)
        self.called()

    def dtype(self, dtype: np.dtype[Any]) -> None:
        key = ("dtype", dtype.str, dtype.name)
        if self.got(key):
            return
        reduced: Any = dtype.__reduce__()
        _, (code, *flags), *state = reduced
        self.name("numpy", "dtype")
        if isinstance(code, type):
            self.name(code.__module__, code.__qualname__)
        else:
            self.text(code)
        for flag in flags:
            self.truth(bool(flag))
        self.end_tuple(1 + len(flags))
        self.out += b"R"
        self.put(key)
        if state and state[0] is not None:
            self.node(state[0], ())
            self.out += b"b"


_TorchWriter.handlers = {
    **PickleWriter.handlers,
    Ref: _TorchWriter.ref,
    Special: _TorchWriter.special,
}
