"""Stand-ins for the objects in pickles: storages, tensors, arrays, objects; and the base of vocabularies."""

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
    "OtherOf",
    "StorageOf",
    "TensorOf",
    "TensorStandIn",
    "ViewOf",
    "VocabularyPart",
    "title",
]


class TensorStandIn:
    """A stand-in that becomes a tensor, or is listed as one that cannot be loaded."""

    __slots__ = ()


@dataclass(slots=True, eq=False)
class StorageOf(TensorStandIn):
    """A storage, of which tensors are views.

    Args:
        key: Its name in the archive.
        dtype: The canonical name of the dtype; ``"uint8"`` for untyped storages; ``None`` if it is not supported.
        size: The number of elements.
        kind: See `Ref`.
        raw: The canonical name of the integers of quantised elements, if each takes whole bytes.
    """

    key: str
    dtype: str | None
    size: int
    kind: str
    raw: str | None = None

    @property
    def nbytes(self) -> int:
        """Its size in bytes; 0 if its dtype is not supported."""
        return self.size * find(self.dtype).itemsize if self.dtype else 0


class ViewOf(NamedTuple):
    """A view of a storage. Offset and strides count elements of the tensor's dtype.

    Args:
        storage: The storage.
        dtype: The canonical name of the dtype.
        offset: The position of its first element.
        shape: Lengths of the axes.
        strides: The strides of the axes.
        requires_grad: Whether it requires grad.
        kind: See `Ref`.
        conj: Whether its values are conjugated.
        neg: Whether they are negated, after that.
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
class TensorOf(TensorStandIn):
    """A tensor. Many tensors of the same layout share one view, with different storages.

    Args:
        view: Its view of a storage.
        number: The name of its storage, which otherwise equals that of the view; ``None`` for the view's own storage.
    """

    view: ViewOf
    number: int | None = None

    @property
    def kind(self) -> str:
        """See `Ref`."""
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
        """Another view of the same storage."""
        return TensorOf(self.view._replace(storage=self.storage, **changes))


@dataclass(slots=True, eq=False)
class ArrayOf(TensorStandIn):
    """An array or scalar of NumPy, whose values are in the pickle.

    Args:
        kind: See `Ref`.
        values: Its values; ``None`` until its state is known.
        reason: Why it cannot be loaded, or ``None``.
        placed: If its values were left in the file: the position, the dtype, the shape, and whether the first axis
            varies fastest.
    """

    kind: str
    values: np.ndarray[Any, Any] | None = None
    reason: str | None = None
    requires_grad: bool = False
    placed: tuple[int, np.dtype[Any], tuple[int, ...], bool] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether its state is not known yet."""
        return self.values is None and self.reason is None and self.placed is None


@dataclass(slots=True, eq=False)
class OtherOf(TensorStandIn):
    """An object that cannot be loaded.

    Args:
        reason: Why not.
    """

    reason: str


@dataclass(slots=True, eq=False)
class InstanceOf:
    """The arguments and attributes of an object of an allowed class. The object itself is never made.

    Args:
        name: The name of the class.
        arguments: The arguments of its constructor.
    """

    name: str
    arguments: tuple[Any, ...]
    state: Any = None
    items: list[Any] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class DTypeOf:
    """A dtype of NumPy; `numpy` is ``None`` for those whose arrays cannot be loaded.

    Args:
        numpy: The dtype.
        itemsize: The size of an element in bytes; 0 for objects.
    """

    numpy: np.dtype[Any] | None
    itemsize: int


def title(instance: Any) -> str:
    """A name for a stand-in, for messages."""
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
"""The hint for a pickle that asks for something unknown."""

OPAQUE = Global("")
"""A placeholder for the results of refused calls."""


class VocabularyPart:
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
        """Note a demand of the pickle that is refused."""
        if len(self.refused) < 100:
            self.refused[demand[:200]] = None

    @property
    def hint(self) -> str:
        """The hint for refused demands."""
        return HINT

    def wrong(self, what: str) -> FileFormatError:
        """The error for a pickle that breaks the rules."""
        return FileFormatError(f"{self.where}: its pickle {what}.")
