"""Stand-ins for what pickles of tensors make: storages, tensors, arrays, objects; and the base of vocabularies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import FileFormatError
from .words import Global

if TYPE_CHECKING:
    import numpy as np

__all__ = ["OPAQUE", "ArrayOf", "DTypeOf", "InstanceOf", "Leaf", "OtherOf", "StorageOf", "TensorOf", "Words"]


class Leaf:
    """A stand-in that becomes a tensor, or is listed among those that cannot."""

    __slots__ = ()


class StorageOf(Leaf):
    """Memory that tensors are views of.

    Args:
        key: Its name in the archive.
        dtype: Canonical name; ``"uint8"`` for untyped memory; ``None`` if it has no counterpart.
        size: The number of elements.
        kind: As for `Ref`.
    """

    __slots__ = ("dtype", "key", "kind", "size")

    def __init__(self, key: str, dtype: str | None, size: int, kind: str) -> None:
        self.key = key
        self.dtype = dtype
        self.size = size
        self.kind = kind


class TensorOf(Leaf):
    """A view of a storage; offset and strides count elements of the tensor's dtype.

    Args:
        storage: The storage.
        dtype: Canonical name.
        offset: Its first element.
        shape: Lengths of the axes.
        strides: Steps of the axes.
        requires_grad: Whether it requires grad.
    """

    __slots__ = ("conj", "dtype", "kind", "neg", "offset", "requires_grad", "shape", "storage", "strides")

    def __init__(
        self,
        storage: StorageOf,
        dtype: str,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        requires_grad: bool,
    ) -> None:
        self.storage = storage
        self.dtype = dtype
        self.offset = offset
        self.shape = shape
        self.strides = strides
        self.requires_grad = requires_grad
        self.kind = "tensor"
        self.conj = False
        self.neg = False

    def as_parameter(self, requires_grad: bool) -> TensorOf:
        """The same memory as a module's parameter."""
        made = TensorOf(self.storage, self.dtype, self.offset, self.shape, self.strides, requires_grad)
        made.kind, made.conj, made.neg = "parameter", self.conj, self.neg
        return made


class ArrayOf(Leaf):
    """An array or scalar of NumPy, whose values stand in the pickle itself.

    Args:
        kind: As for `Ref`.
        values: Its values; ``None`` until its state is known.
        reason: Why it cannot be carried, or ``None``.
    """

    __slots__ = ("kind", "reason", "requires_grad", "values")

    def __init__(self, kind: str, values: np.ndarray[Any, Any] | None = None, reason: str | None = None) -> None:
        self.kind = kind
        self.values = values
        self.reason = reason
        self.requires_grad = False


class OtherOf(Leaf):
    """What is no tensor that can be carried.

    Args:
        reason: Why not.
    """

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


class InstanceOf:
    """An object of a class that the caller allows: what it was given, never the object.

    Args:
        name: The class.
        arguments: What it was made from.
    """

    __slots__ = ("arguments", "items", "name", "state")

    def __init__(self, name: str, arguments: tuple[Any, ...]) -> None:
        self.name = name
        self.arguments = arguments
        self.state: Any = None
        self.items: list[Any] = []


class DTypeOf:
    """A dtype of NumPy; `numpy` is ``None`` for those whose arrays cannot be carried."""

    __slots__ = ("numpy",)

    def __init__(self, numpy: np.dtype[Any] | None) -> None:
        self.numpy = numpy


OPAQUE = Global("")
"""Stands for everything that comes of what was refused."""


class Words:
    """The base of a vocabulary's parts.

    Args:
        where: The file, for messages.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self.refused: dict[str, None] = {}

    def refuse(self, demand: str) -> None:
        """Note something that it asks for and will not get."""
        if len(self.refused) < 100:
            self.refused[demand[:200]] = None

    def wrong(self, what: str) -> FileFormatError:
        """The error for a pickle that breaks the rules."""
        return FileFormatError(f"{self.where}: its pickle {what}.")
