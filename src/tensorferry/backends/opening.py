"""What a column or a table is to a plan, and what the plan's steps start from."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..columns.column import Ragged, Refused
from ..columns.frames import frame_of, nulls_hint, refuse
from ..core.dtypes import find
from ..core.info import COPIED, TensorInfo
from ..core.layout import compact_strides
from ..hints import Hint
from ..host import memory
from ..host.numpy_dtypes import of_numpy
from .nodes import Node, item

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..columns.column import Found
    from ..columns.frames import Frame
    from ..core.request import Request
    from .base import Backend

    Opened = tuple[TensorInfo, Any]

__all__ = [
    "COUNTING",
    "INDEXED",
    "Gathered",
    "Given",
    "Later",
    "Table",
    "node_of",
    "open_column",
    "open_gathered",
    "open_table",
    "over",
    "remark_of",
]

Array = np.ndarray[Any, Any]

COUNTING, INDEXED = "counting ", "with an index"
"""What a kind says of numbers that stand for something, and of what does not come along."""


_APART = "a memory for each column"
_ANYWHERE = 16
"""Where a library's own memory may start, modulo 64."""


class Table(NamedTuple):
    """A table, as its columns.

    Args:
        columns: The columns as the library's own objects, by name; names may be there twice.
        rows: How many rows it has.
        put: Code that puts code in place of a column.
        drop: Code that leaves columns out.
        apart: Code that gives a dict of the columns.
    """

    columns: Sequence[tuple[object, Any]]
    rows: int
    put: Callable[[object, str], str]
    drop: Callable[[list[object]], str]
    apart: str


class Given:
    """What was found in a column or a table, with what was said about what is missing in it.

    Args:
        kind: The name of the class of what it was found in.
        name: The column's name.
        found: What the column is; ``None``: it is a table.
        table: The table.
        columns: What its columns are, by name.
    """

    __slots__ = ("columns", "found", "kind", "name", "table")

    def __init__(
        self,
        kind: str,
        name: object,
        found: Found | None,
        table: Table | None = None,
        columns: Sequence[tuple[object, Found]] = (),
    ) -> None:
        self.kind, self.name, self.found, self.table, self.columns = kind, name, found, table, columns


class Gathered(NamedTuple):
    """A table that its library gathers.

    Args:
        shape: Its rows and columns.
        dtype: Canonical name of the dtype of all.
        read: Gives the values, by rows or by columns, in memory of their own.
    """

    shape: tuple[int, int]
    dtype: str
    read: Callable[[bool], Array]


class Later(NamedTuple):
    """Values that are read when they are wanted.

    Args:
        read: Gives them, in memory of their own.
    """

    read: Callable[[], Array]


def remark_of(kind: str) -> str:
    """What a plan has to say of a column of a kind."""
    said = kind.partition(": ")[0]
    counted = said.partition(COUNTING)[2].partition(f" {INDEXED}")[0].partition(" column")[0]
    words = [f"the numbers count {counted}"] if counted else []
    if INDEXED in said:
        words.append("the index does not come along: index=True keeps it as a column, in a tree")
    return "; ".join(words)


def node_of(held: Mapping[object, Any]) -> Node:
    """A table as a container of its columns, which is made again as a dict; what has no name is one alone."""

    def rebuild(values: Sequence[Any]) -> Any:
        return dict(zip(held, values, strict=True))

    if [*held] == [None]:
        return Node([""], list(held.values()), lambda values: values[0])
    return Node([item(name) for name in held], list(held.values()), rebuild)


def open_column(
    framework: str,
    kind: str,
    name: object,
    found: Found,
    request: Request | None,
    *,
    exactly: bool,
    note: str = "",
    kept: object = None,
    as_it_is: bool = False,
) -> Opened:
    """What a column is, and what a plan's steps start from.

    Args:
        framework: The name of its backend.
        kind: The name of its class.
        name: Its own name.
        found: What it holds.
        request: What was asked for.
        exactly: Whether reasons have numbers, which are not the same for other columns.
        note: What its kind says besides.
        kept: The column, where the steps start from it and not from an array over its memory.
        as_it_is: Whether it is what is to come out.

    Raises:
        UnsupportedTypeError: It is no tensor, or has nulls.
        CopyRequiredError: It has nulls, and memory was to be shared.
    """
    what = f"This {kind}" if name is None or name == "" else f"This {kind} {name!r}"
    if isinstance(found, Refused):
        counted = Hint(f'{{again:x|dtype="{found.asked}"}}').before(found.hint)
        raise refuse(what, found, counted if found.asked else found.hint.format(x="x"), request)
    if isinstance(found, Ragged):
        hint = Hint('{again:x|ragged="rows"}, which gives a list of tensors; or {again:x|pad=0}, which fills them up')
        raise refuse(what, found, hint, request)
    if found.fill is None and found.nulls[0]:
        raise refuse(what, found, nulls_hint(found), request)
    said = [f"{COUNTING}{found.unit}"] if found.unit else []
    said += [note] if note else []
    obstacles = found.obstacles(exactly=exactly)
    if not obstacles:
        view = found.view()
        info = over(framework, view, mutable=found.mutable, kind=" ".join(said))
        return info, view if kept is None else kept
    if as_it_is and obstacles == ["bit-packed"]:
        return TensorInfo(framework, found.shape, found.dtype, kind=" ".join(said)), kept
    kind = " ".join([f"{COPIED}{kind}", *said])
    itemsize = find(found.dtype).itemsize
    physical = compact_strides((found.rows, *found.inner), itemsize)
    strides = physical if found.order is None else (physical[0], *(physical[1 + axis] for axis in found.order))
    info = TensorInfo(framework, found.shape, found.dtype, strides=strides, kind=f"{kind}: {', '.join(obstacles)}")
    return info, Later(found.read)


def open_table(
    framework: str,
    kind: str,
    table: Table,
    columns: Sequence[tuple[object, Found]],
    target: Backend | None,
    request: Request | None,
    *,
    note: str = "",
    kept: object = None,
    as_it_is: bool = False,
) -> Opened:
    """The same of a table as one array, which is laid out as the target takes it.

    Raises:
        ConversionError: As `frames.frame_of`.
    """
    frame: Frame = frame_of(kind, columns, table.rows, request, put=table.put, drop=table.drop, apart=table.apart)
    by_rows = _takes_rows(target)
    if not table.rows:
        view = frame.read(by_rows=by_rows)
        view.flags.writeable = False
        return over(framework, view, mutable=False, kind=note), view if kept is None else kept
    if as_it_is and all(column.dtype == frame.dtype for _, column in frame.columns):
        return TensorInfo(framework, frame.shape, frame.dtype, kind=note), kept
    itemsize = find(frame.dtype).itemsize
    strides = compact_strides(frame.shape, itemsize) if by_rows else (itemsize, itemsize * max(frame.rows, 1))
    said = " ".join([f"{COPIED}{kind}", *([note] if note else [])])
    info = TensorInfo(framework, frame.shape, frame.dtype, strides=strides, kind=f"{said}: {_APART}")
    return info, Later(lambda: frame.read(by_rows=by_rows))


def open_gathered(
    framework: str, kind: str, whole: Gathered, target: Backend | None, *, note: str, kept: object = None
) -> Opened:
    """The same of a table that its library gathers; if it is kept, of itself."""
    if kept is not None:
        return TensorInfo(framework, whole.shape, whole.dtype, kind=note), kept
    by_rows = _takes_rows(target)
    said = f"{COPIED}{kind} {note}" if note else f"{COPIED}{kind}"
    return _gathered(framework, *whole[:2], by_rows, said), Later(lambda: whole.read(by_rows))


@lru_cache(maxsize=256)
def _gathered(framework: str, shape: tuple[int, int], dtype: str, by_rows: bool, said: str) -> TensorInfo:
    itemsize = find(dtype).itemsize
    return TensorInfo(
        framework,
        shape,
        dtype,
        strides=None if by_rows else (itemsize, itemsize * max(shape[0], 1)),
        misalignment=_ANYWHERE,
        kind=f"{said}: {_APART}",
    )


def _takes_rows(target: Backend | None) -> bool:
    """Whether the values of a row are to lie together: else those of a column do, as they lie in the table."""
    memory_of = None if target is None else target.capabilities.memory
    return memory_of is None or memory_of.strides == "compact" or not memory_of.exists


def over(
    framework: str, array: Array, dtype: str = "", *, mutable: bool, kind: str, writable: bool = False
) -> TensorInfo:
    """What an array over an object's memory is: an object of a framework, or a column of one."""
    return TensorInfo(
        framework,
        array.shape,
        dtype or of_numpy(array.dtype) or "",
        strides=array.strides,
        misalignment=memory.address(array) if array.size else 0,
        writable=writable,
        mutable=mutable,
        swapped=not array.dtype.isnative,
        memory_map=memory.is_mapped(array),
        kind=kind,
    )
