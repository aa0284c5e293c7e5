"""`ColumnWitness`: the base of witnesses for libraries of columns and tables."""

# ruff: noqa: D102 - the methods are documented in the base class

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from .memory import image
from .witness import Sample, Witness

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ColumnWitness"]


class ColumnWitness(Witness):
    """A library of columns.

    `build` makes a column; with more than one axis, a table or a column of tensors.
    """

    layouts: ClassVar[tuple[str, ...]] = ("column", "aligned", "empty")
    mutable: ClassVar[bool] = False
    """Whether the memory of a column can be written through any object."""

    def knows(self, dtype: str) -> bool:
        try:
            self.build(b"", dtype, (0,))
        except (TypeError, ValueError, AttributeError, RuntimeError):
            return False
        return True

    def make(self, layout: str, dtype: str) -> Sample | None:
        found = image("aligned" if layout == "column" else layout, dtype)
        shape = (24,) if layout == "column" else found.shape
        x = self.build(found.content, dtype, shape)
        poke = self.poker(x) if found.content else None
        return Sample(x, dtype, shape, found.content, False, self.mutable, poke=poke)

    def poker(self, x: Any) -> Callable[[bytes], None] | None:
        """A function that writes other elements into a column; ``None`` if the library has no such operation."""
        return None
