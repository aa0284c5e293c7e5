"""`Labels`: an index and names for the rows and columns of a result.

`Wanted`: where they come from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Labels", "Wanted"]


class Labels:
    """Labels for the rows and the columns of a table, or for a column, which has one name.

    Two are equal only if they have the same index, or views of it. To compare many labels would
    take too long.

    Args:
        library: The name of the backend whose objects they are.
        index: The labels of the rows, as an object of the library; ``None`` if the rows are only
            numbered.
        names: The names of the columns; ``None`` if they have none.
        is_table: Whether they are those of a table, and not of a column.
    """

    __slots__ = ("index", "is_table", "library", "names")

    def __init__(
        self, library: str, index: Any, names: Sequence[Any] | None, *, is_table: bool = True
    ) -> None:
        self.library = library
        self.index = index
        self.names = names
        self.is_table = is_table

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Labels) or not _is_same(self.index, other.index):
            return False
        same_names = _is_same(self.names, other.names) or (
            isinstance(self.names, tuple)
            and isinstance(other.names, tuple)
            and self.names == other.names
        )
        return same_names and (self.library, self.is_table) == (other.library, other.is_table)

    def __hash__(self) -> int:
        return hash((self.library, self.is_table, 0 if self.index is None else len(self.index)))


def _is_same(index: Any, other: Any) -> bool:
    """Whether an index is another, or, by its library's method `is_`, a view of the same labels."""
    if index is other or index is None or other is None:
        return index is other
    is_view = getattr(index, "is_", None)
    return is_view is not None and bool(is_view(other))


class Wanted(NamedTuple):
    """The labels for a result, by where they come from. Those that come first here win.

    Args:
        given: Those of ``index=`` and ``columns=``. They have to fit.
        own: Those of the source, which is of the target's library already.
        like: Those of the tensor in ``like=``. They are taken where they fit.
    """

    given: Labels | None = None
    own: Labels | None = None
    like: Labels | None = None
