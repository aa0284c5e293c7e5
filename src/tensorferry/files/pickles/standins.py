"""Stand-ins for what pickles of tensors make: storages, tensors, arrays, objects; and the base of vocabularies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.dtypes import find
from ...errors import FileFormatError, an
from ..base.keys import Keys
from .words import Global, Ordered

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "HINT",
    "OPAQUE",
    "ArrayOf",
    "DTypeOf",
    "InstanceOf",
    "Leaf",
    "OtherOf",
    "StorageOf",
    "TensorOf",
    "ViewOf",
    "Words",
    "title",
]


class Leaf:
    """A stand-in that becomes a tensor, or is listed among those that cannot."""

    __slots__ = ()


@dataclass(slots=True, eq=False)
class StorageOf(Leaf):
    """Memory that tensors are views of.

    Args:
        key: Its name in the archive.
        dtype: Canonical name; ``"uint8"`` for untyped memory; ``None`` if it has no counterpart.
        size: The number of elements.
        kind: As for `Ref`.
        raw: Canonical name of the integers that quantised elements are, if each has one of its own.
    """

    key: str
    dtype: str | None
    size: int
    kind: str
    raw: str | None = None

    @property
    def nbytes(self) -> int:
        """Its bytes; 0 if its dtype has no counterpart."""
        return self.size * find(self.dtype).itemsize if self.dtype else 0


class ViewOf(NamedTuple):
    """How a tensor views a storage; offset and strides count elements of the tensor's dtype.

    Args:
        storage: The storage.
        dtype: Canonical name.
        offset: Its first element.
        shape: Lengths of the axes.
        strides: Steps of the axes.
        requires_grad: Whether it requires grad.
        kind: As for `Ref`.
        conj: Whether its values are to be conjugated.
        neg: Whether they are to be negated, after that.
    """

    storage: StorageOf
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    requires_grad: bool
    kind: str = "tensor"
    conj: bool = False
    neg: bool = False


@dataclass(slots=True, eq=False)
class TensorOf(Leaf):
    """A tensor; thousands that are alike have one view, and each the number of a storage of its own.

    Args:
        view: How it views its storage.
        number: The name of its storage, which is otherwise like the view's; ``None`` for the view's itself.
    """

    view: ViewOf
    number: int | None = None

    @property
    def kind(self) -> str:
        """As for `Ref`."""
        return self.view.kind

    @property
    def requires_grad(self) -> bool:
        """Whether it requires grad."""
        return self.view.requires_grad

    @property
    def storage(self) -> StorageOf:
        """Its storage."""
        like = self.view.storage
        return like if self.number is None else StorageOf(str(self.number), like.dtype, like.size, like.kind)

    def but(self, **changes: Any) -> TensorOf:
        """The same memory viewed in another way."""
        return TensorOf(self.view._replace(storage=self.storage, **changes))


@dataclass(slots=True, eq=False)
class ArrayOf(Leaf):
    """An array or scalar of NumPy, whose values stand in the pickle itself.

    Args:
        kind: As for `Ref`.
        values: Its values; ``None`` until its state is known.
        reason: Why it cannot be carried, or ``None``.
        placed: Where its values stand if they were left there: first byte, dtype, shape, whether in Fortran's order.
    """

    kind: str
    values: np.ndarray[Any, Any] | None = None
    reason: str | None = None
    requires_grad: bool = False
    placed: tuple[int, np.dtype[Any], tuple[int, ...], bool] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known yet but that it is an array."""
        return self.values is None and self.reason is None and self.placed is None


@dataclass(slots=True, eq=False)
class OtherOf(Leaf):
    """What is no tensor that can be carried.

    Args:
        reason: Why not.
    """

    reason: str


@dataclass(slots=True, eq=False)
class InstanceOf:
    """An object of a class that the caller allows: what it was given, never the object.

    Args:
        name: The class.
        arguments: What it was made from.
    """

    name: str
    arguments: tuple[Any, ...]
    state: Any = None
    items: list[Any] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class DTypeOf:
    """A dtype of NumPy; `numpy` is ``None`` for those whose arrays cannot be carried.

    Args:
        numpy: The dtype.
        itemsize: Bytes of an element; 0 for objects.
    """

    numpy: np.dtype[Any] | None
    itemsize: int


def title(instance: Any) -> str:
    """What a stand-in is, for messages: in the words of who wrote the file."""
    if type(instance) is Global:
        return str(instance.name)
    return _TITLES.get(type(instance)) or an(type(instance).__name__.strip("_"))


_TITLES = {
    StorageOf: "a storage",
    TensorOf: "a tensor",
    ArrayOf: "an array of NumPy",
    OtherOf: "a tensor",
    InstanceOf: "an object",
    DTypeOf: "a dtype of NumPy",
    Ordered: "an OrderedDict",
}

HINT = (
    'allow=["NAME"] if it is the class of a plain container (it is never imported); otherwise ask its author for the '
    "weights alone"
)
"""What to do about a pickle that asks for what is not known."""

OPAQUE = Global("")
"""Stands for everything that comes of what was refused."""


class Words:
    """The base of a vocabulary's parts.

    Args:
        where: The file, for messages.
    """

    span_from = 1 << 62
    machine: Any = None

    def __init__(self, where: str) -> None:
        self.where = where
        self.keys = Keys()
        self.refused: dict[str, None] = {}

    def refuse(self, demand: str) -> None:
        """Note something that it asks for and will not get."""
        if len(self.refused) < 100:
            self.refused[demand[:200]] = None

    @property
    def hint(self) -> str:
        """What to do about what was refused."""
        return HINT

    def wrong(self, what: str) -> FileFormatError:
        """The error for a pickle that breaks the rules."""
        return FileFormatError(f"{self.where}: its pickle {what}.")
