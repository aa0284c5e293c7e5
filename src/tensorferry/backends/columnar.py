"""`ColumnBackend`: the base of the backends whose tensors are columns of tables, and what is given in their place.

A column is a tensor, a table is a container of columns, or one tensor if they have one dtype. What is in a column is
told by `tensorferry.columns`; here that becomes a description and the object that a plan's steps start from.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..columns.column import Column, Ragged, Refused
from ..columns.frames import frame_of, nulls_hint, refuse
from ..core.info import COPIED, TensorInfo
from ..core.layout import compact_strides
from ..core.names import EXCHANGE
from ..core.signature import COMPACT, layout_of
from ..hints import Hint
from ..host import memory
from ..host.numpy_dtypes import of_numpy
from . import registry
from .base import Backend
from .nodes import Node, item

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from ..columns.column import Found
    from ..columns.frames import Frame
    from ..core.request import Request

    Opened = tuple[TensorInfo, Any]

__all__ = [
    "COUNTING",
    "INDEXED",
    "ColumnBackend",
    "Gathered",
    "Given",
    "Later",
    "Table",
    "node_of",
    "open_column",
    "open_table",
    "remark_of",
]

Array = np.ndarray[Any, Any]

COUNTING, INDEXED = "counting ", "with an index"
"""What a kind says of numbers that stand for something, and of what does not come along."""


_APART = "a memory for each column"
_MOST = 1024
"""Dtypes of which is kept whether they are numbers: of categories each is another."""
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


class ColumnBackend(Backend):
    """The base of a backend of columns.

    A subclass has `found`, which tells what a column holds, `table`, and `is_table`; and ``adopt`` to be a target.
    """

    @abstractmethod
    def is_table(self, kind: type) -> bool:
        """Whether objects of a type that it claims are tables."""

    @abstractmethod
    def found(self, x: Any, asked: str | None) -> Found:
        """What is in a column; `asked` is the dtype that was named."""

    @abstractmethod
    def table(self, x: Any) -> Table:
        """A table's columns."""

    def quick(self, x: Any) -> Array | None:
        """A read-only array over the memory of a column, if one look shows that it is all that there is to it."""
        return None

    def whole(self, x: Any) -> Gathered | Array | None:
        """A table's values if they lie in one memory, or what gathers them if the library does that best itself.

        Its columns are of one dtype then, and nothing is missing.
        """
        return None

    def name_of(self, x: Any) -> object:
        """The name of a column; ``None``: it has none."""
        return getattr(x, "name", None)

    def note(self, x: Any) -> str:
        """What its kind says besides."""
        return ""

    # -- as a backend ---------------------------------------------------------------------------------

    def describe(self, x: Any) -> TensorInfo:
        return self._opened(x, None, None, exactly=False)[0]

    def open(
        self, x: Any, target: Backend | None = None, request: Request | None = None
    ) -> tuple[Backend, TensorInfo, Any]:
        exactly = request is not None and request.copy is False
        return self, *self._opened(x, target, request, exactly=exactly)

    def preview(
        self, x: Any, target: Backend | None = None, request: Request | None = None
    ) -> tuple[Backend, TensorInfo, Any]:
        return self, *self._opened(x, target, request, exactly=True)

    def _opened(self, x: Any, target: Backend | None, request: Request | None, *, exactly: bool) -> Opened:
        asked = None if request is None else request.dtype
        if self.is_table(type(x)):
            whole = self.whole(x)
            if whole is not None:
                return self._opened_whole(x, whole, target)
            table = self.table(x)
            columns = [(name, self.found(each, asked)) for name, each in table.columns]
            return open_table(self.name, x, table, columns, target, request, note=self.note(x))
        found = self.found(x, asked)
        return open_column(
            self.name,
            type(x).__name__,
            self.name_of(x),
            found,
            request,
            exactly=exactly,
            note=self.note(x),
            kept=x if target is self else None,
        )

    def _opened_whole(self, x: Any, whole: Gathered | Array, target: Backend | None) -> Opened:
        """The same of a table whose values its library has, or gathers, as one array."""
        if isinstance(whole, np.ndarray):
            info = _over(self.name, whole, mutable=True, kind=self.note(x))
            return info, x if target is self else whole
        itemsize = _itemsize(whole.dtype)
        said = " ".join(filter(None, [f"{COPIED}{type(x).__name__}", self.note(x)]))
        strides = (itemsize, itemsize * max(whole.shape[0], 1))
        by_rows = _takes_rows(target)
        info = TensorInfo(
            self.name,
            whole.shape,
            whole.dtype,
            strides=None if by_rows else strides,
            misalignment=_ANYWHERE,
            kind=f"{said}: {_APART}",
        )
        return info, Later(lambda: whole.read(by_rows))

    # -- without describing it ------------------------------------------------------------------------

    def signature(self, x: Any) -> Hashable | None:
        array = None if self.is_table(type(x)) else self.quick(x)
        if array is None:
            return None
        strides = array.strides
        layout = COMPACT if strides[0] == array.itemsize else layout_of(array.shape, strides, array.itemsize)
        return self.name, array.dtype, 1, layout, memory.address(array) & 63

    lengths = staticmethod(lambda x: (len(x),))

    def extents(self, tensors: Sequence[Any], *, compact: bool) -> tuple[Sequence[int], Sequence[int]] | None:
        arrays = [self.export(x) for x in tensors]
        starts = memory.addresses(arrays)
        ends = [at + max(x.strides[0], x.itemsize) * len(x) for at, x in zip(starts, arrays, strict=True)]
        return (starts, ends) if all(x.strides[0] > 0 for x in arrays) else None

    def fast_paths(self) -> Mapping[tuple[type, str], Callable[[Any], Any]]:
        return {(kind, EXCHANGE): self.quick for kind in self.plain_types()}

    def plain_types(self) -> Sequence[type]:
        """The types of columns that may be plain memory."""
        return ()

    # -- what it holds --------------------------------------------------------------------------------

    def given(self, x: Any, asked: str | None) -> Given:
        """What a column or a table holds."""
        kind = type(x).__name__
        if not self.is_table(type(x)):
            return Given(kind, self.name_of(x), self.found(x, asked))
        table = self.table(x)
        return Given(kind, None, None, table, [(name, self.found(each, asked)) for name, each in table.columns])

    def is_text(self, x: Any) -> bool:
        if self.is_table(type(x)):
            columns = self.table(x).columns
            return bool(columns) and all(self.is_text(each) for _, each in columns)
        dtype = self.dtype_of(x)
        stays = None if dtype is None else self._stays.get(dtype)
        if stays is None:
            found = self.found(x if dtype is None else self.empty(x), None)
            stays = isinstance(found, Refused) and found.stays
            if dtype is not None and len(self._stays) < _MOST:
                self._stays[dtype] = stays
        return stays

    def __init__(self) -> None:
        self._stays: dict[Hashable, bool] = {}

    @abstractmethod
    def dtype_of(self, x: Any) -> Hashable | None:
        """The library's dtype of a column, if that alone says whether it holds numbers."""

    @abstractmethod
    def empty(self, x: Any) -> Any:
        """A column of the same dtype without rows."""

    def remark(self, info: TensorInfo) -> str:
        return remark_of(info.kind)

    def pointer(self, x: Any) -> int | None:
        handle = x if isinstance(x, (Later, np.ndarray)) else self._opened(x, None, None, exactly=False)[1]
        return None if isinstance(handle, Later) else memory.address(self.export(handle))

    def read(self, x: Any) -> Array:
        """The values, in memory of one's own."""
        array: Array = x.read()
        return array

    def export(self, x: Any) -> Array:
        if isinstance(x, np.ndarray):
            return x
        array = self.whole(x) if self.is_table(type(x)) else self.quick(x)
        if isinstance(array, np.ndarray):
            return array
        found = self.found(x, None)
        assert isinstance(found, Column)  # noqa: S101 - it was described
        return found.view()

    def opener_of(self, kind: type) -> Callable[[Any], Node] | None:
        if not self.loaded:
            registry.load(self)
        return self._open_table if self.claims(kind) and self.is_table(kind) else None

    def _open_table(self, x: Any) -> Node:
        return node_of(self.named_columns(x))

    def named_columns(self, x: Any, *, index: bool = False) -> Mapping[object, Any]:
        """The columns of a table, by name, its index among them if that is wanted.

        Raises:
            UnsupportedTypeError: Two have one name.
        """
        columns = self.table(x).columns
        if index:
            columns = [*self.index_of(x), *columns]
        found: dict[object, Any] = {}
        for name, each in columns:
            if name in found:
                why = f"has two columns of the name {name!r}, of which one would be lost"
                raise refuse(f"This {type(x).__name__}", Refused(why, ""), self.renamed, None)
            found[name] = each
        return found

    renamed: str = ""
    """Code that gives a table's columns other names."""

    def index_of(self, x: Any) -> Sequence[tuple[object, Any]]:
        """What a table is indexed by, as columns."""
        return ()


def remark_of(kind: str) -> str:
    """What a plan has to say of a column of a kind."""
    said = kind.partition(": ")[0]
    counted = said.partition(COUNTING)[2].partition(f" {INDEXED}")[0].removesuffix(" column")
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

    Raises:
        UnsupportedTypeError: It is no tensor, or has nulls.
        CopyRequiredError: It has nulls, and memory was to be shared.
    """
    what = f"This {kind}" if name is None or name == "" else f"This {kind} {name!r}"
    if isinstance(found, Refused):
        code, comma, remark = found.hint.partition(", which")
        keywords = Hint(f"{{again:x|{code}}}{comma}{remark}") if found.keywords else None
        raise refuse(what, found, keywords or found.hint.format(x="x"), request)
    if isinstance(found, Ragged):
        hint = Hint('{again:x|ragged="rows"}, which gives a list of tensors; or {again:x|pad=0}, which fills them up')
        raise refuse(what, found, hint, request)
    if found.fill is None and found.nulls[0]:
        raise refuse(what, found, nulls_hint(found.dtype), request)
    said = [f"{COUNTING}{found.unit}"] if found.unit else []
    said += [note] if note else []
    obstacles = found.obstacles(exactly=exactly)
    if not obstacles:
        view = found.view()
        info = _over(framework, view, mutable=found.mutable, kind=" ".join(said))
        return info, view if kept is None else kept
    kind = " ".join([f"{COPIED}{kind}", *said])
    itemsize = _itemsize(found.dtype)
    physical = compact_strides((found.rows, *found.inner), itemsize)
    strides = physical if found.order is None else (physical[0], *(physical[1 + axis] for axis in found.order))
    info = TensorInfo(framework, found.shape, found.dtype, strides=strides, kind=f"{kind}: {', '.join(obstacles)}")
    return info, Later(found.read)


def open_table(
    framework: str,
    x: object,
    table: Table,
    columns: Sequence[tuple[object, Found]],
    target: Backend | None,
    request: Request | None,
    *,
    kind: str = "",
    note: str = "",
) -> Opened:
    """The same of a table as one array, which is laid out as the target takes it.

    Raises:
        ConversionError: As `frames.frame_of`.
    """
    frame: Frame = frame_of(
        kind or type(x).__name__, columns, table.rows, request, put=table.put, drop=table.drop, apart=table.apart
    )
    by_rows = _takes_rows(target)
    itemsize = _itemsize(frame.dtype)
    strides = compact_strides(frame.shape, itemsize) if by_rows else (itemsize, itemsize * max(frame.rows, 1))
    said = " ".join([f"{COPIED}{kind or type(x).__name__}", *([note] if note else [])])
    info = TensorInfo(framework, frame.shape, frame.dtype, strides=strides, kind=f"{said}: {_APART}")
    return info, Later(lambda: frame.read(by_rows=by_rows))


def _itemsize(dtype: str) -> int:
    from ..core.dtypes import find

    return find(dtype).itemsize


def _takes_rows(target: Backend | None) -> bool:
    """Whether the values of a row are to lie together: else those of a column do, as they lie in the table."""
    memory_of = None if target is None else target.capabilities.memory
    return memory_of is None or memory_of.strides == "compact" or not memory_of.exists


def _over(framework: str, array: Array, *, mutable: bool, kind: str) -> TensorInfo:
    """What an array over a column's memory is."""
    return TensorInfo(
        framework,
        array.shape,
        of_numpy(array.dtype) or "",
        strides=array.strides,
        misalignment=memory.address(array) if array.size else 0,
        writable=False,
        mutable=mutable,
        swapped=not array.dtype.isnative,
        memory_map=memory.is_mapped(array),
        kind=kind,
    )
