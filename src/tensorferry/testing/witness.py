"""`Witness`: makes and reads the tensors of a framework, with the framework's own operations only.

The conformance suite does not trust a backend to report about itself. So a witness makes tensors
with known bytes, and reads their address, their values and whether they can be written, without
tensorferry.
"""

from __future__ import annotations

import importlib.util
import pkgutil
import sys
import threading
from abc import ABC, abstractmethod
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from ..host.plugins import EntryPoints
from .bits import FORMATS
from .memory import LAYOUTS, image, read

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping
    from contextlib import AbstractContextManager

    from .memory import Image, Place


__all__ = [
    "COMPACT",
    "ColumnWitness",
    "Sample",
    "Witness",
    "add_witness",
    "outside",
    "witness_for",
    "witness_named",
    "witnesses",
]


# -- witnesses -------------------------------------------------------------------------------------

COMPACT = ("aligned", "zero-d", "empty")


@dataclass
class Sample:
    """A tensor, and the facts about it that are known because a witness made it so.

    Args:
        x: The tensor.
        dtype: Canonical name.
        shape: The shape.
        content: The elements' bytes in C order and native byte order.
        writable: Whether it can be written through `x`.
        mutable: Whether its memory can be written through any object.
        owns: Whether it has memory that can be shared. Numbers and scalars have not.
        requires_grad: Whether it belongs to an autograd graph.
        lazy: Whether it has a conjugate or a negative bit, so that its memory holds other values.
        swapped: Whether its bytes are not in native order.
        plain: Whether a conversion to its own framework gives the same object.
        isolated: Whether later writes to it go into other memory (as for a variable).
        file: Whether it is over a file, so that writes may change the file.
        fatal: Whether a write to its memory would end the process.
        numbers: The kind of Python numbers that it is made of (``"bool"``, ``"int"``, ``"float"``).
            The target's own constructor then decides which dtype they get. Empty for a tensor.
        poke: Writes other elements into the memory; ``None`` if `Witness.poke` does it.

    .. versionadded:: 0.1
    """

    x: Any
    dtype: str
    shape: tuple[int, ...]
    content: bytes
    writable: bool
    mutable: bool
    owns: bool = True
    requires_grad: bool = False
    lazy: bool = False
    swapped: bool = False
    plain: bool = True
    isolated: bool = False
    file: bool = False
    fatal: bool = False
    numbers: str = ""
    poke: Callable[[bytes], None] | None = None

    @property
    def empty(self) -> bool:
        """Whether it has no elements."""
        return not self.content


class Witness(ABC):
    """Makes and reads the tensors of a framework for the suite. Each framework has a subclass.

    A subclass sets `name` and `module`, and implements `build`, `place` and `state`. The other
    methods have defaults, for a framework whose tensors have no gaps, are on the host, and cannot
    be written.

    .. versionadded:: 0.1
    """

    name: ClassVar[str]
    """The name of the backend."""
    module: ClassVar[str]
    """The module to import."""
    layouts: ClassVar[tuple[str, ...]] = COMPACT
    """The layouts that `make` can make: of `memory.LAYOUTS`, and others only this framework has."""
    everyday: ClassVar[Mapping[str, str]] = MappingProxyType({"aligned": ""})
    """Those of the layouts that people meet every day, each with a few words for them.

    ``tensorferry doctor`` has a row for each of them. The plain tensor needs no words.
    """
    modes: ClassVar[tuple[str, ...]] = ("",)
    """Names of settings of the framework that change which dtypes it has."""
    writes: ClassVar[bool] = False
    """Whether its tensors can be written in place."""

    def load(self) -> None:  # noqa: B027 - not all frameworks need this
        """Import the framework."""

    def is_installed(self) -> bool:
        """Whether the framework can be imported. It is not imported."""
        return self.module in sys.modules or importlib.util.find_spec(self.module) is not None

    def missing(self) -> str | None:
        """Import the framework. Gives the reason why that failed, or ``None``."""
        try:
            importlib.import_module(self.module)
        except ImportError as error:
            return f"{self.module} cannot be imported: {error}"
        self.load()
        return None

    def mode(self, name: str) -> AbstractContextManager[Any]:
        """A context with one of the settings in `modes`."""
        return nullcontext(name)

    def knows(self, dtype: str) -> bool:
        """Whether the framework has this dtype, with its present settings."""
        try:
            self.build(b"\x00" * FORMATS[dtype].itemsize, dtype, ())
        except (TypeError, ValueError, AttributeError, RuntimeError):
            return False
        return True

    # -- making -----------------------------------------------------------------------------------

    @abstractmethod
    def build(self, content: bytes, dtype: str, shape: tuple[int, ...]) -> Any:
        """A new tensor with these bytes, in its own memory."""

    def lay(self, image: Image, dtype: str) -> Any:
        """A new tensor, in an image's layout if the framework can have it, else only its values."""
        return self.build(image.content, dtype, image.shape)

    def make(self, layout: str, dtype: str) -> Sample | None:
        """A new tensor with a layout; ``None`` if the framework has no such tensor."""
        if layout not in LAYOUTS:
            return None
        source_image = image(layout, dtype)
        x = self.lay(source_image, dtype)
        return Sample(x, dtype, source_image.shape, source_image.content, self.writes, self.writes)

    # -- reading ----------------------------------------------------------------------------------

    @abstractmethod
    def place(self, x: Any) -> Place | None:
        """The address, shape and strides of a tensor; ``None`` if it has no memory."""

    @abstractmethod
    def state(self, x: Any) -> Hashable:
        """All metadata of a tensor. A conversion must not change them."""

    def content(self, x: Any) -> object:
        """A tensor's values: bytes in C order, or another object; to compare with `expected`."""
        place = self.place(x)
        return b"" if place is None else read(place)

    def expected(self, dtype: str, shape: tuple[int, ...], content: bytes) -> object:
        """What `content` gives for a tensor with these elements."""
        return content

    def dtype(self, x: Any) -> str:
        """The canonical name of a tensor's dtype."""
        return str(getattr(x.dtype, "name", x.dtype)).rpartition(".")[2]

    def shape(self, x: Any) -> tuple[int, ...]:
        """The shape of a tensor."""
        return tuple(x.shape)

    def is_plain(self, x: Any) -> bool:
        """Whether a tensor has the type that a conversion must give."""
        return True

    def writable(self, x: Any) -> bool:
        """Whether a tensor can be written."""
        return self.writes

    def requires_grad(self, x: Any) -> bool:
        """Whether a tensor belongs to an autograd graph."""
        return False

    def poke(self, x: Any, content: bytes) -> None:
        """Write other elements into a tensor, given as bytes in C order."""
        raise TypeError(f"{self.name} tensors are immutable")


_added: dict[str, Witness] = {}
_brought: dict[str, Witness] = {}


@cache
def _own_witnesses() -> dict[str, Witness]:
    from . import frameworks as package

    names = [
        f"{package.__name__}.{module.name}" for module in pkgutil.iter_modules(package.__path__)
    ]
    own = [importlib.import_module(name).WITNESS for name in names]
    return {witness.name: witness for witness in own}


def _witness_of_entry_point(name: str, loaded: object) -> Witness:
    """The witness of an entry point, which may be a class or an instance."""
    witness = loaded() if isinstance(loaded, type) else loaded
    if not isinstance(witness, Witness):
        raise TypeError(f"{type(witness).__qualname__} is no tensorferry.testing.Witness")
    if witness.name != name:
        raise ValueError(
            f"its entry point is named {name!r}, and its witness {witness.name!r}: "
            "both need the name of the backend"
        )
    return witness


outside: EntryPoints[Witness] = EntryPoints(
    "tensorferry.witnesses",
    "witness",
    known=lambda: _brought,
    own=_own_witnesses,
    make=_witness_of_entry_point,
    keep=lambda witness: _brought.setdefault(witness.name, witness),
    lock=threading.RLock(),
)
"""The witnesses of outside packages."""


def witnesses() -> dict[str, Witness]:
    """The witnesses of this package, of outside packages, and those that were added.

    They are by the name of the backend. Outside packages register theirs through the entry-point
    group ``tensorferry.witnesses``.

    .. versionadded:: 0.1
    """
    outside.search()
    return {**_own_witnesses(), **_brought, **_added}


def add_witness(witness: Witness) -> None:
    """Add a witness. It replaces one of the same name.

    .. versionadded:: 0.1
    """
    _added[witness.name] = witness


def witness_named(name: str) -> Witness:
    """The witness of a backend.

    Raises:
        LookupError: It has none, or that of its package is broken.
    """
    witness = witnesses().get(name)
    broken = None if witness else outside.failure([name])
    if broken is not None:
        raise LookupError(broken.message) from broken
    if witness is None:
        raise LookupError(
            f"the backend {name!r} has no witness: add one with "
            "tensorferry.testing.add_witness(...), or with an entry point in the group "
            f"{outside.group!r}"
        )
    return witness


def witness_for(name: str) -> Witness:
    """The witness of a backend, with its framework imported.

    Raises:
        LookupError: It has none, or its framework cannot be imported.

    .. versionadded:: 0.1
    """
    witness = witness_named(name)
    why = witness.missing()
    if why is not None:
        raise LookupError(why)
    return witness


# -- witnesses of columns --------------------------------------------------------------------------

# ruff: noqa: D102 - the methods are documented in the base class


class ColumnWitness(Witness):
    """A library of columns.

    `build` makes a column; with more than one axis, a table or a column of tensors.
    """

    layouts: ClassVar[tuple[str, ...]] = ("column", "aligned", "empty")
    everyday: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"column": "one column", "aligned": ""}
    )
    mutable: ClassVar[bool] = False
    """Whether the memory of a column can be written through any object."""

    def knows(self, dtype: str) -> bool:
        try:
            self.build(b"", dtype, (0,))
        except (TypeError, ValueError, AttributeError, RuntimeError):
            return False
        return True

    def make(self, layout: str, dtype: str) -> Sample | None:
        source_image = image("aligned" if layout == "column" else layout, dtype)
        shape = (24,) if layout == "column" else source_image.shape
        x = self.build(source_image.content, dtype, shape)
        poke = self.poker(x) if source_image.content else None
        return Sample(x, dtype, shape, source_image.content, False, self.mutable, poke=poke)

    def poker(self, x: Any) -> Callable[[bytes], None] | None:
        """A function that writes other elements into a column; ``None`` if the library has none."""
        return None
