"""Stand-ins for pickles' objects: storages, tensors, arrays, objects; and vocabularies' base."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ... import hints
from ...core.dtypes import find
from ...errors import FileFormatError, UnsafeFileError, an
from ...hints import Hint
from ...host.numpy_dtypes import of_numpy
from ..base.nesting import Keys
from ..base.objects import escaped
from .machine import Global, Ordered

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np

__all__ = [
    "ASK",
    "ArrayOf",
    "DTypeOf",
    "InstanceOf",
    "KeptOf",
    "OtherOf",
    "RefusedOf",
    "StorageOf",
    "TensorOf",
    "TensorStandIn",
    "ViewOf",
    "VocabularyPart",
    "refused_among",
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
        dtype: The canonical name of the dtype; ``"uint8"`` for untyped storages; ``None`` if it is
            not supported.
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
        if self.dtype:
            return self.size * find(self.dtype).itemsize
        return 0


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
        number: The name of its storage, which otherwise equals that of the view; ``None`` for the
            view's own storage.
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
        if self.number is None:
            return like
        return StorageOf(str(self.number), like.dtype, like.size, like.kind)

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
        placed: If its values were left in the file: the position, the dtype, the shape, and whether
            the first axis varies fastest.
        alone: If it is an array of one object without axes: a list of the object.
    """

    kind: str
    values: np.ndarray[Any, Any] | None = None
    reason: str | None = None
    requires_grad: bool = False
    placed: tuple[int, np.dtype[Any], tuple[int, ...], bool] | None = None
    alone: list[Any] | None = None

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
    """The arguments and attributes of an object of an allowed class.

    The object itself is never made.

    Args:
        name: The name of the class.
        arguments: The arguments of its constructor.
        keywords: Its keyword arguments.
        state: Its attributes.
        items: Its elements.
        entries: Its keys and values.
        is_told: Whether it is told that there is a dict in its place.
    """

    name: str
    arguments: tuple[Any, ...]
    keywords: dict[Any, Any] = field(default_factory=dict)
    state: Any = None
    items: list[Any] = field(default_factory=list)
    entries: dict[Any, Any] = field(default_factory=dict)
    is_told: bool = False


@dataclass(slots=True, eq=False)
class RefusedOf(TensorStandIn):
    """The result of a call that is not allowed.

    Args:
        demand: What was asked for.
        held: What was given to it, and became a part of it.
    """

    demand: str
    held: list[Any]


@dataclass(slots=True, eq=False)
class KeptOf:
    """A value of a class in the table, as text.

    Args:
        text: The text; ``None`` until its state is known.
        kind: The name of its class; see `Kept`.
        value: The value itself, if others are made from it.
    """

    text: str | None
    kind: str
    value: Any = None


@dataclass(slots=True, eq=False)
class DTypeOf:
    """A dtype of NumPy; `numpy` is ``None`` for those whose arrays cannot be loaded.

    Args:
        numpy: The dtype.
        itemsize: The size of an element in bytes; 0 for objects.
    """

    numpy: np.dtype[Any] | None
    itemsize: int

    @property
    def text(self) -> str:
        """Its name, as `numpy.dtype` takes it if its arrays can be loaded."""
        if self.numpy is None:
            if self.itemsize:
                return f"V{self.itemsize}"
            return "O"
        own = of_numpy(self.numpy)
        return own if own is not None and self.numpy.isnative else self.numpy.str


def refused_among(values: Iterable[Any]) -> RefusedOf | None:
    """The first result of a call that is not allowed, of several values."""
    # A loop, because it is run for each call, and takes half the time of a generator.
    for value in values:
        if type(value) is RefusedOf:
            return value
    return None


def title(instance: Any) -> str:
    """A name for a stand-in, for messages."""
    if type(instance) is Global:
        return escaped(instance.name)
    if type(instance) is KeptOf:
        return instance.kind
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

ASK = "ask its author for the weights alone"
"""The hint for what no keyword allows."""
_MOST_DEMANDS = 100
_MOST_COPIED = 1 << 28
_OBJECT = 100
"""About the bytes that a small object takes."""
_PLAIN_NAME = re.compile(r"[\w.<>]+")
"""A name that can be pasted."""


class VocabularyPart:
    """The base of a vocabulary's parts.

    Args:
        where: The file, for messages.
    """

    span_from = 1 << 62
    machine: Any = None
    allow: frozenset[str] = frozenset()
    """What the call allows."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.keys = Keys()
        self.partly = False
        """Whether calls not allowed are parts of the result, and no reason to refuse all of it."""
        self.refused: dict[str, str] = {}
        """Calls that are not allowed, and the name that allows each."""
        self.forbidden: dict[str, None] = {}
        """What nothing allows."""
        self.has_more = False
        self.spent = 0

    def refuse(self, demand: str) -> RefusedOf:
        """Note a demand that makes all of the pickle unsafe; gives what stands for its result."""
        if len(self.forbidden) < _MOST_DEMANDS:
            self.forbidden[escaped(demand)] = None
        return RefusedOf(escaped(demand), [])

    def refuse_call(self, name: str, held: Iterable[Any], what: str = "") -> RefusedOf:
        """Note a call that is not allowed; gives its result.

        Args:
            name: The name that allows it.
            held: What was given to it.
            what: What is asked for; if empty, the name.
        """
        demand = what or name
        if demand in self.refused or len(self.refused) < _MOST_DEMANDS:
            self.refused[demand] = name
        else:
            self.has_more = True
        return RefusedOf(escaped(demand), [*held])

    @property
    def demands(self) -> tuple[str, ...]:
        """All that is refused."""
        return (*self.forbidden, *map(escaped, self.refused))

    @property
    def hint(self) -> Hint:
        """The hint for what is refused: the code that allows all of it at once, if there is any."""
        names = [*dict.fromkeys((*sorted(self.allow), *self.refused.values()))]
        fitting = [name for name in names if len(name) <= 2_000 and _PLAIN_NAME.fullmatch(name)]
        if self.forbidden or not fitting or len(fitting) < len(names):
            return Hint(ASK)
        if self.has_more:
            first = f", the first {_MOST_DEMANDS}"
        else:
            first = ""
        reads = ", which reads each as a dict of what it was given (nothing is imported or run)"
        return Hint(hints.keyword("allow", fitting), first, reads) | ASK

    def kept(self, text: str, kind: str, value: Any = None) -> KeptOf:
        """The stand-in for a value as text; see `KeptOf`."""
        self.spend(_OBJECT + len(text))
        return KeptOf(text, kind, value)

    def spend(self, nbytes: int) -> None:
        """Count memory for copies, and raise if too much: a few bytes can copy a large value often.

        Raises:
            UnsafeFileError: It is.
        """
        self.spent += nbytes
        if self.spent > _MOST_COPIED:
            raise self.bomb(f"copies values of more than {_MOST_COPIED:,} bytes")

    def odd(self, key: Any) -> str:
        """What a key is that no dict may have, for messages."""
        if type(key) is RefusedOf:
            return key.demand
        if type(key) in (Global, KeptOf):
            return title(key)
        return ""

    def wrong(self, what: str) -> FileFormatError:
        """The error for a pickle that breaks the rules."""
        return FileFormatError(f"{self.where}: its pickle {what}.")

    def bomb(self, what: str) -> UnsafeFileError:
        """The error for a value that is larger than any that data needs."""
        return UnsafeFileError(f"{self.where}: its pickle {what}, out of all proportion.")
