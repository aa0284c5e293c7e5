"""`Contents`: the contents of a file, before any values are read; and `Blocks`, the kinds of its quantised tensors."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import hints
from ...core.leaf_dtypes import DtypeRule
from ...core.names import EXCHANGE
from ...errors import FormatLimitError
from ...hints import Hint
from ...hints.named_tuple import NamedTuple
from .wording import named

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from typing_extensions import Self

    from .stored import Stored

__all__ = [
    "BLOCKS",
    "MOST_TENSORS",
    "NOTHING",
    "Blocks",
    "ColumnKeywords",
    "Columns",
    "Contents",
    "FileFinding",
    "NotTensor",
    "Ref",
    "Special",
    "blocks_of",
    "lists_read",
    "with_block_kinds",
    "with_columns",
]

BLOCKS = "tensorferry.blocks"
"""The key of the metadata that has the kind of blocks of each tensor, as JSON; see `Blocks`."""
MOST_TENSORS = 150_000
"""The most tensors in one file. More would take seconds to list."""


class Ref(NamedTuple):
    """The place of a tensor in a tree of values.

    Args:
        name: Its name among the tensors, or among the `others` of `Contents`.
        kind: What stood there: ``"tensor"``, ``"parameter"`` (of a module), ``"storage"`` or
            ``"untyped_storage"`` (of PyTorch), ``"array"`` or ``"scalar"`` (of NumPy).
        requires_grad: Whether it required grad.
    """

    name: str
    kind: str = "tensor"
    requires_grad: bool = False


class Special(NamedTuple):
    """A value in a tree that is no tensor and no plain Python type, but told in plain values.

    Args:
        kind: ``"dtype"``, ``"device"``, ``"layout"`` or ``"size"``, of PyTorch; or that of
            `NOTHING`.
        value: Its name without the module (``"float16"``, ``"cuda:0"``); the lengths of a size.
    """

    kind: str
    value: str | bytes | list[Any]

    def __repr__(self) -> str:
        """As PyTorch names it, for those who look at a file.

        What a file says is never printed as it stands.
        """
        if self.kind == "size":
            return f"torch.Size({self.value!r})"
        if (
            self.kind in ("dtype", "layout")
            and isinstance(self.value, str)
            and self.value.isidentifier()
        ):
            return f"torch.{self.value}"
        if self.kind.isidentifier():
            return f"torch.{self.kind}({self.value!r})"
        return repr(tuple(self))


NOTHING = Special("None", "")
"""A tree that is ``None``, because ``Contents.tree`` is ``None`` for a plain mapping."""


class NotTensor(str):
    """Why something in a file, no tensor nor part of one, is not loaded: text, attribute, link."""

    __slots__ = ()


class FileFinding(NamedTuple):
    """A problem of a file.

    Args:
        path: The file.
        offset: The position of the problem in bytes, or ``None``.
        tensor: The name of the tensor that it concerns, or ``None``.
        message: The problem, in one line.
        error: Whether the check fails because of it. If not, it is only a note (a tensor of zeros).
    """

    path: str
    offset: int | None
    tensor: str | None
    message: str
    error: bool = True


class ColumnKeywords(NamedTuple):
    """The keywords for tables, which the caller has validated.

    Args:
        nulls: What replaces nulls.
        ragged: ``"rows"`` for a list of tensors.
        pad: What makes rows equally long.
    """

    nulls: object = None
    ragged: object = None
    pad: object = None

    @property
    def given(self) -> dict[str, object]:
        """Those that have a value."""
        return {name: value for name, value in self._asdict().items() if value is not None}

    @property
    def masks(self) -> bool:
        """Whether each column gets a mask."""
        return isinstance(self.nulls, str) and self.nulls == "mask"


class Columns(ABC, dict[str, Any]):
    """The columns of a table in a file, by name. Nothing of them has been read, except their types.

    What they become is decided by the code for tables in memory, above the formats.
    """

    @abstractmethod
    def become_tensors(
        self,
        contents: Contents,
        keywords: ColumnKeywords,
        rule: DtypeRule,
        *,
        call: str,
        target: str,
        strict: bool,
        exclude: Sequence[str],
    ) -> Contents:
        """See `with_columns`."""

    @abstractmethod
    def joined(self, others: Columns) -> Columns:
        """These and those of another file."""


# Tensors in files are not compared by values. `dataclass` takes as long as to import a module.
class Contents:
    """The contents of a file or of a folder of shards.

    Args:
        format: The name of the format.
        paths: The files.
        tensors: All tensors by name, in the order of the file. Tied tensors are under each of their
            names, with equal keys.
        metadata: Strings by name, as in safetensors and GGUF.
        own: The keys of metadata that belong to the format, and not to what was stored in it, each
            with the value of a new file: see `Format.own_metadata`.
        tree: The nesting of tensors and other values: dicts (with keys of any plain type),
            OrderedDicts, lists, tuples, plain values, and a `Ref` in place of each tensor; ``None``
            for a plain mapping from names to tensors, and `NOTHING` if it is ``None`` itself. In
            that of a pickle, a `Kept`, `Attributes` or `Placeholder` of the module `objects` is in
            place of an object.
        others: Names of things that cannot be loaded, and why; a `NotTensor` if it is not part of a
            tensor.
        asks_for: The globals that a pickle asks for.
        refuses: Those of them, and other demands, that make it unsafe to open.
        columns: The columns of a table by name; of those that only their rows can tell to be
            tensors, the name is among the `others` too. ``None`` for what is no table.

    .. versionadded:: 0.1
    """

    format: str
    paths: tuple[str, ...]
    tensors: dict[str, Stored]
    metadata: dict[str, str]
    tree: Any
    others: dict[str, str]
    asks_for: tuple[str, ...]
    refuses: tuple[str, ...]
    own: Mapping[str, str]
    columns: Columns | None

    def __init__(
        self,
        format: str,  # noqa: A002 - the term
        paths: tuple[str, ...],
        tensors: dict[str, Stored] | None = None,
        metadata: dict[str, str] | None = None,
        tree: Any = None,
        others: dict[str, str] | None = None,
        asks_for: tuple[str, ...] = (),
        refuses: tuple[str, ...] = (),
        own: Mapping[str, str] | None = None,
        columns: Columns | None = None,
    ) -> None:
        self.format = format
        self.paths = paths
        self.tensors = {} if tensors is None else tensors
        self.metadata = {} if metadata is None else metadata
        self.tree = tree
        self.others = {} if others is None else others
        self.asks_for = asks_for
        self.refuses = refuses
        self.own = {} if own is None else own
        self.columns = columns

    def _replace(self, **fields: Any) -> Contents:
        """The same with other values of some fields, as of a named tuple."""
        return Contents(**{**vars(self), **fields})

    __replace__ = _replace  # for `copy.replace`

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing has to be closed, because files are opened only while they are read."""

    def __repr__(self) -> str:
        return f"<Contents of {self.format or 'no file'}: {len(self.tensors):,} tensors>"

    @property
    def ties(self) -> dict[str, str]:
        """For each further name of a tensor, its first name."""
        # Most files have no ties, which hashes of eight bytes show. All keys would take ten times
        # as much memory.
        marks = np.fromiter(
            (hash(stored.key) for stored in self.tensors.values()), np.int64, len(self.tensors)
        )
        marks.sort()
        twice = set(marks[1:][marks[1:] == marks[:-1]].tolist())
        first: dict[Hashable, str] = {}
        tied: dict[str, str] = {}
        if not twice:
            return tied
        for name, stored in self.tensors.items():
            if hash(stored.key) in twice:
                kept = first.setdefault(stored.key, name)
                if kept != name and stored.size:
                    tied[name] = kept
        return tied

    def parameters(self, ties: Mapping[str, str] | None = None) -> Counter[str]:
        """The number of elements of each dtype, ties counted once.

        Args:
            ties: The `ties`, if they are known already.
        """
        ties = self.ties if ties is None else ties
        alike = Counter(
            (stored.dtype, stored.shape)
            for name, stored in self.tensors.items()
            if name not in ties
        )
        counts: Counter[str] = Counter()
        for (dtype, shape), count in alike.items():
            counts[dtype] += count * prod(shape)
        return counts


class Blocks(NamedTuple):
    """A kind of quantised blocks.

    Args:
        kind: The format of such blocks, and its name for them: ``"gguf.Q8_0"``.
        length: How many numbers a block has, along the last axis.
        nbytes: How many bytes a block has.
    """

    kind: str
    length: int
    nbytes: int

    def shape(self, held: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the numbers, from that of the bytes."""
        return (*held[:-1], held[-1] // self.nbytes * self.length)


def blocks_of(contents: Contents) -> dict[str, Blocks]:
    """The tensors in blocks, by name. Entries for tensors that cannot be blocks are ignored."""
    text = contents.metadata.get(BLOCKS)
    if text is None or not _is_short(text, contents.tensors):
        return {}
    try:
        noted_blocks = {
            name: Blocks(kind, length, nbytes)
            for name, (kind, length, nbytes) in json.loads(text).items()
        }
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}
    return {
        name: noted_blocks[name]
        for name, stored in contents.tensors.items()
        if name in noted_blocks
        and [*map(type, noted_blocks[name])] == [str, int, int]
        and 0 < noted_blocks[name].length < 1 << 16 > noted_blocks[name].nbytes > 0
        and stored.dtype == "uint8"
        and stored.shape
        and not stored.shape[-1] % noted_blocks[name].nbytes
    }


def _is_short(text: str, names: Iterable[str]) -> bool:
    """Whether the text is not longer than these tensors need.

    JSON takes twenty times its length in memory.
    """
    most = sum(8 + len(name) for name in names)
    return sum(map(text.count, "[{,")) <= most + 8


def with_block_kinds(metadata: Mapping[str, str], blocks: Mapping[str, Blocks]) -> dict[str, str]:
    """Metadata with the kinds of blocks of exactly these tensors."""
    kept = {key: text for key, text in metadata.items() if key != BLOCKS}
    if blocks:
        return {**kept, BLOCKS: json.dumps(blocks, separators=(",", ":"))}
    return kept


def with_columns(
    contents: Contents,
    keywords: ColumnKeywords,
    rule: DtypeRule,
    *,
    call: str = "convert_files",
    target: str = EXCHANGE,
    strict: bool = True,
    exclude: Sequence[str] = (),
) -> Contents:
    """The contents, with the tensors that the columns of tables become.

    Columns are read for their shapes.

    Args:
        contents: The contents.
        keywords: The keywords for tables.
        rule: The rule for dtypes, by which dates and the like become numbers.
        call: The function that was called, for hints.
        target: Its target, for hints.
        strict: Whether a column that cannot be converted is an error. If not, it is among the
            ``others``.
        exclude: What the call leaves out, which hints add to.

    Raises:
        FormatLimitError: There are keywords, and the file has no table.
        ConversionError: A column cannot be converted; the errors are those of a table in memory.
        TreeError: Several cannot be converted.
        FileFormatError: The file is damaged.
        UnsafeFileError: A column is out of all proportion to the file.
    """
    if contents.columns is not None:
        about: dict[str, Any] = {"call": call, "target": target, "strict": strict}
        return contents.columns.become_tensors(contents, keywords, rule, exclude=exclude, **about)
    if keywords.given:
        words = " and ".join(f"{name}=" for name in keywords.given)
        why = f"{words} is for columns of tables, as Parquet has them"
        hint = Hint("without ", hints.one_of([*map(hints.keyword, keywords.given)], "and"))
        raise FormatLimitError(f"{why}, and {named(contents.paths)} has none.", hint)
    return contents


def lists_read(contents: Contents) -> Contents:
    """The contents, with columns of lists of one length as tensors.

    What is no tensor stays among the others.
    """
    if contents.columns:
        return with_columns(contents, ColumnKeywords(), DtypeRule(), strict=False)
    return contents
