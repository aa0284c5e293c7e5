"""`Repeated`: a tensor that is written again under a further name, for formats that cannot say that two are one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .raw import mapped
from .stored import Stored

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable, Hashable, Iterator

    from ...typing import Array

__all__ = ["Repeated"]


class Repeated(Stored):
    """The values of a tensor for a further name, to be written again: a tensor of its own.

    Args:
        inner: The tensor.
        name: The further name.
    """

    __slots__ = ("dtype", "inner", "name", "shape")

    def __init__(self, inner: Stored, name: str) -> None:
        self.dtype = inner.dtype
        self.shape = inner.shape
        self.inner = inner
        self.name = name

    @property
    def key(self) -> Hashable:
        return self.inner.key, self.name

    def where(self, element: int) -> tuple[str | None, int | None]:
        return self.inner.where(element)

    def blocks(self) -> Iterator[Array]:
        return self.inner.blocks()

    def array(self, map_of: Callable[[str], mmap.mmap] = mapped) -> Array:
        return self.inner.array(map_of)

    def load(self) -> Array:
        return self.inner.load()
