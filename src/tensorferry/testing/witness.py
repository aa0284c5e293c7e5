"""A witness: one framework's tensors made and looked at with that framework's own operations only.

The conformance suite believes no backend about itself. For each framework a `Witness` makes tensors
whose bytes are known beforehand, and tells where a tensor lies, what it holds and who may write it,
without tensorferry.
"""

from __future__ import annotations

import importlib.util
import pkgutil
import sys
from abc import ABC, abstractmethod
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from .bits import FORMATS
from .memory import LAYOUTS, image, read

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping
    from contextlib import AbstractContextManager

    from .memory import Image, Place

__all__ = ["COMPACT", "Sample", "Witness", "add_witness", "witness_for", "witness_named", "witnesses"]

COMPACT = ("aligned", "zero-d", "empty")


@dataclass
class Sample:
    """A tensor and everything that is known of it before anybody looks.

    Args:
        x: The tensor.
        dtype: Canonical name.
        shape: Lengths of the axes.
        content: The elements' bytes in C order and native byte order.
        writable: Whether it can be written through `x`.
        mutable: Whether somebody can write its memory.
        owns: Whether it has memory that can be shared; numbers and scalars have none.
        requires_grad: Whether it belongs to an autograd graph.
        lazy: Whether its memory holds other values than it means (conjugate, negative bit).
        swapped: Whether its bytes are in the other order.
        plain: Whether its own framework gives it back as it is.
        isolated: Whether what is written to it later goes into other memory (a variable).
        file: Whether it is a map, so that what is written to it may reach a file.
        fatal: Whether a write to its memory would end the process.
        poke: Writes other elements through the source's own side; ``None``: the witness knows how.
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
    poke: Callable[[bytes], None] | None = None

    @property
    def empty(self) -> bool:
        """Whether it has no elements."""
        return not self.content


class Witness(ABC):
    """What the suite needs to know of a framework; a subclass for each.

    A subclass sets `name` and implements `build`, `place` and `state`; the rest has defaults that
    suit a framework whose tensors are compact, of the host, and never written.
    """

    name: ClassVar[str]
    """The backend that it is about."""
    module: ClassVar[str]
    """What has to be importable."""
    layouts: ClassVar[tuple[str, ...]] = COMPACT
    """Names of what `make` can make; those of `memory.LAYOUTS`, and the framework's own."""
    modes: ClassVar[tuple[str, ...]] = ("",)
    """Ways in which the framework can be set up that decide what it can hold."""
    writes: ClassVar[bool] = False
    """Whether its tensors can be written in place."""

    def load(self) -> None:  # noqa: B027 - a framework may need nothing
        """Import what is needed."""

    def is_installed(self) -> bool:
        """Whether its framework is here to be imported, which it may be already."""
        return self.module in sys.modules or importlib.util.find_spec(self.module) is not None

    def missing(self) -> str | None:
        """Why there is nothing to be witnessed here, or ``None``."""
        try:
            importlib.import_module(self.module)
        except ImportError as error:
            return f"{self.module} cannot be imported: {error}"
        self.load()
        return None

    def mode(self, name: str) -> AbstractContextManager[Any]:
        """The framework set up in one of its `modes`."""
        return nullcontext(name)

    def knows(self, dtype: str) -> bool:
        """Whether the framework itself has this dtype, as it is set up now."""
        try:
            self.build(b"\x00" * FORMATS[dtype].itemsize, dtype, ())
        except (TypeError, ValueError, AttributeError, RuntimeError):
            return False
        return True

    # -- making -----------------------------------------------------------------------------------

    @abstractmethod
    def build(self, content: bytes, dtype: str, shape: tuple[int, ...]) -> Any:
        """A plain tensor with these bytes, in memory of its own."""

    def lay(self, image: Image, dtype: str) -> Any:
        """A plain tensor that lies in a block of memory as the image says, if it can lie so at all."""
        return self.build(image.content, dtype, image.shape)

    def make(self, layout: str, dtype: str) -> Sample | None:
        """A new tensor of a layout, or ``None`` where the framework has no such thing."""
        if layout not in LAYOUTS:
            return None
        found = image(layout, dtype)
        x = self.lay(found, dtype)
        return Sample(x, dtype, found.shape, found.content, self.writes, self.writes)

    def variants(self) -> Mapping[str, Callable[[Any], Any]]:
        """What a plain tensor can be made into that is converted in another way, by a word for it."""
        return {}

    # -- looking ----------------------------------------------------------------------------------

    @abstractmethod
    def place(self, x: Any) -> Place | None:
        """Where its elements lie, or ``None`` for what has no memory."""

    @abstractmethod
    def state(self, x: Any) -> Hashable:
        """All its metadata: what must be the same before and after."""

    def content(self, x: Any) -> object:
        """What it holds: the elements' bytes in C order, or what `expected` is compared with."""
        place = self.place(x)
        return b"" if place is None else read(place)

    def expected(self, dtype: str, shape: tuple[int, ...], content: bytes) -> object:
        """What a tensor with these elements holds, as `content` tells it."""
        return content

    def dtype(self, x: Any) -> str:
        """The canonical name of its dtype."""
        return str(getattr(x.dtype, "name", x.dtype)).rpartition(".")[2]

    def shape(self, x: Any) -> tuple[int, ...]:
        """Lengths of its axes."""
        return tuple(x.shape)

    def is_plain(self, x: Any) -> bool:
        """Whether it is of the very type that a conversion must give."""
        return True

    def writable(self, x: Any) -> bool:
        """Whether it can be written."""
        return self.writes

    def requires_grad(self, x: Any) -> bool:
        """Whether it belongs to an autograd graph."""
        return False

    def poke(self, x: Any, content: bytes) -> None:
        """Write other elements (their bytes in C order) in place."""
        raise TypeError(f"{self.name} tensors are immutable")


_outside: dict[str, Witness] = {}


@cache
def _own() -> dict[str, Witness]:
    from . import frameworks as package

    names = [f"{package.__name__}.{module.name}" for module in pkgutil.iter_modules(package.__path__)]
    found = [importlib.import_module(name).WITNESS for name in names]
    return {witness.name: witness for witness in found}


def witnesses() -> dict[str, Witness]:
    """This package's witnesses by name of backend, and those that were added."""
    return {**_own(), **_outside}


def add_witness(witness: Witness) -> None:
    """Make a witness known beside this package's own."""
    _outside[witness.name] = witness


def witness_named(name: str) -> Witness:
    """The witness of a backend.

    Raises:
        LookupError: There is none.
    """
    found = witnesses().get(name)
    if found is None:
        raise LookupError(f"no witness of {name!r} is known: tensorferry.testing.add_witness(...)")
    return found


def witness_for(name: str) -> Witness:
    """The witness of a backend, its framework imported.

    Raises:
        LookupError: There is none, or its framework is not installed.
    """
    found = witness_named(name)
    why = found.missing()
    if why is not None:
        raise LookupError(why)
    return found
