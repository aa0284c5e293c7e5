"""`LoadPlan`: what a `load` reads of a file for each tensor, made from headers alone."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from ..core.layout import size_text
from .base.nesting import leaves
from .loading import AHEAD, readings_of, result_bytes
from .ranges.boxes import chunk_counts, index_text, whole_box
from .ranges.cutting import CutTensor
from .ranges.runs import runs_of
from .slicing import SlicedTensors

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .base.stored import Stored
    from .ranges.runs import ByteRuns
    from .source import Reading, Source

__all__ = ["LoadPlan", "LoadedTensor", "plan_of"]

_WASTE = 1.5
"""From this factor between what is read and what is needed on, a plan says what would be cheaper."""
_WIDTH = 48
_SHOWN = 40


class LoadedTensor(NamedTuple):
    """What a `load` reads for one tensor.

    Args:
        names: Its name, and those that are tied to it.
        shape: Its shape in the file.
        dtype: Its dtype in the file.
        part: Which part of it is loaded, as an index or as a number of boxes; empty for all of it.
        bytes_needed: How many bytes of values this process needs.
        bytes_read: How many it reads or decodes for that.
        requests: Where these are in files; empty if they are decoded.
        how: How they are read, in a few words.

    .. versionadded:: 0.1
    """

    names: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    part: str
    bytes_needed: int
    bytes_read: int
    requests: tuple[ByteRuns, ...]
    how: str


@dataclass(frozen=True, repr=False)
class LoadPlan:
    """What a `load` reads, before it reads anything. The `load` reads exactly this.

    >>> import numpy as np, tempfile, tensorferry as ferry
    >>> path = f"{tempfile.mkdtemp()}/model.safetensors"
    >>> _ = ferry.save({"emb": np.zeros((1000, 64), "float32")}, path)
    >>> plan = ferry.explain_load(path, slices={"emb": np.s_[:, :16]})
    >>> plan.bytes_needed, plan.bytes_read, plan.bytes_wasted, plan.requests[0].number
    (64000, 64000, 0, 1000)

    Args:
        path: What is loaded.
        target: The framework.
        tensors: A row for each tensor; tied names have one.
        peak: How many bytes of host memory the results take, with what is held beside them
            meanwhile.
        fetched: What is asked of servers, headers too: the requests themselves.
        unpinned: Files on servers of which only the size is told: a change that leaves the size is
            not seen.

    .. versionadded:: 0.1
    """

    path: str
    target: str
    tensors: tuple[LoadedTensor, ...]
    peak: int
    fetched: tuple[ByteRuns, ...] = ()
    unpinned: tuple[str, ...] = ()

    @property
    def bytes_needed(self) -> int:
        """How many bytes of values this process needs."""
        return sum(tensor.bytes_needed for tensor in self.tensors)

    @property
    def bytes_read(self) -> int:
        """How many bytes are read for that; of tensors that are decoded, bytes of values.

        From a server, it is what is asked for: with headers, and with what is between parts.
        """
        if self.fetched:
            return sum(runs.nbytes for runs in self.fetched)
        return sum(tensor.bytes_read for tensor in self.tensors)

    @property
    def bytes_wasted(self) -> int:
        """How many bytes are read and not needed."""
        return self.bytes_read - self.bytes_needed

    @property
    def requests(self) -> tuple[ByteRuns, ...]:
        """What is read of which file, as runs of bytes, except what is decoded."""
        if self.fetched:
            return self.fetched
        return tuple(runs for tensor in self.tensors for runs in tensor.requests)

    @property
    def cheaper(self) -> tuple[str, ...]:
        """What would read less, for each tensor of which far more is read than needed."""
        wasteful = [
            tensor for tensor in self.tensors if tensor.bytes_read > _WASTE * tensor.bytes_needed
        ]
        return tuple(
            f"{tensor.names[0]}: {size_text(tensor.bytes_read)} for "
            f"{size_text(tensor.bytes_needed)} ({tensor.how}): {_cheaper_way(tensor)}"
            for tensor in wasteful
        )

    def __repr__(self) -> str:
        return (
            f"<LoadPlan of {len(self.tensors):,} tensors: {size_text(self.bytes_needed)} needed, "
            f"{size_text(self.bytes_read)} read>"
        )

    def __str__(self) -> str:
        head = ("tensor", "shape", "part", "needed", "read", "how")
        rows = [_row(tensor) for tensor in self.tensors[:_SHOWN]]
        if len(self.tensors) > _SHOWN:
            rows.append((f"and {len(self.tensors) - _SHOWN:,} more", "", "", "", "", ""))
        read = (size_text(self.bytes_needed), size_text(self.bytes_read))
        rows.append(("all", "", "", *read, f"at most {size_text(self.peak)} of memory"))
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        table = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in (head, *rows)
        ]
        warned = [
            f"{path}: only its size is told, so that a change that leaves the size is not seen"
            for path in self.unpinned
        ]
        head_line = f"load {self.path} to {self.target}"
        return "\n".join([head_line, *table, *self.cheaper, *warned])


def _cheaper_way(tensor: LoadedTensor) -> str:
    """How less of a tensor could be read."""
    if tensor.requests:
        return (
            f"it is {tensor.requests[0]}, and parts along its first axis are one run each, so that "
            "it is cheaper to load those, and to lay them out anew afterwards"
        )
    return (
        "in a file that has it as it is (tensorferry convert … model.safetensors), only what is "
        "needed is read"
    )


def _row(tensor: LoadedTensor) -> tuple[str, ...]:
    name = " = ".join(tensor.names)
    return (
        name if len(name) <= _WIDTH else f"{name[: _WIDTH - 1]}…",
        f"{tensor.dtype}{list(tensor.shape)}",
        tensor.part or "all",
        size_text(tensor.bytes_needed),
        size_text(tensor.bytes_read),
        tensor.how,
    )


def plan_of(source: Source) -> LoadPlan:
    """What a load of everything in a source reads.

    Raises:
        ConversionError: A tensor cannot be converted, or not be loaded.
        TreeError: Several cannot.
    """
    names = [ref.name for _, ref in leaves(source.tree) if ref.name in source.tensors]
    readings = readings_of(source, dict.fromkeys(names))
    sizes, copied = result_bytes(source, readings)
    read = [part.nbytes for reading in readings for part in reading.parts]
    ahead = 0 if copied is None else min(sum(read), max(copied, AHEAD))
    if source.is_remote:
        from .remote.reading import hold_headers

        hold_headers([part for reading in readings for part in reading.parts])
    tensors = tuple(_planned(source, reading) for reading in readings)
    held = [part.held_bytes() for reading in readings for part in reading.parts]
    peak = sum(sizes.values()) + max([ahead, *held])
    if source.is_remote:
        from .remote.plans import remote_plan

        most = None if copied is None else AHEAD
        remote = remote_plan(
            [file.path for file in source.seen], [reading.parts for reading in readings], most
        )
        return LoadPlan(
            source.path,
            source.target.name,
            tuple(map(_fetched, tensors, remote.read)),
            peak + remote.in_flight,
            remote.fetched,
            remote.unpinned,
        )
    return LoadPlan(source.path, source.target.name, tensors, peak)


def _fetched(tensor: LoadedTensor, fetched: tuple[int, int] | None) -> LoadedTensor:
    """The row of a tensor on a server: how much of how many requests is for it."""
    if fetched is None:
        return tensor
    nbytes, number = fetched
    how = f"{number:,} request{'s'[: number != 1]}"
    return tensor._replace(bytes_read=nbytes, how=how)


def _planned(source: Source, reading: Reading) -> LoadedTensor:
    """What is read for one tensor."""
    cuts = source.tensors.boxes if isinstance(source.tensors, SlicedTensors) else {}
    shape, box = cuts.get(reading.names[0], (reading.stored.shape, None))
    words = [] if box is None else [index_text(box, shape)]
    if reading.shards is not None:
        boxes = reading.shards.boxes
        texts = [index_text(one_box, reading.stored.shape) for one_box in boxes[:1]]
        texts += [f"and {len(boxes) - 1:,} more boxes"] if len(boxes) > 1 else []
        words += [" ".join(texts) or "nothing"]
    runs: list[ByteRuns] = []
    read = 0
    hows = []
    for part in reading.parts:
        accessed, nbytes, how = _access(part)
        runs += accessed
        read += nbytes
        hows.append(how)
    return LoadedTensor(
        tuple(reading.names),
        shape,
        reading.stored.dtype,
        ", of it ".join(words),
        sum(part.nbytes for part in reading.parts),
        read,
        tuple(runs),
        ", ".join(dict.fromkeys(hows)) or "nothing is read",
    )


def _access(part: Stored) -> tuple[Iterable[ByteRuns], int, str]:
    """Where a part's bytes are, how many are read, and how."""
    runs = runs_of(part)
    if runs is not None:
        number = sum(family.number for family in runs)
        words = str(runs[0]) if len(runs) == 1 else f"{number:,} runs"
        how = "read" if number <= 1 else "copied from a map"
        return runs, sum(family.nbytes for family in runs), f"{how}: {words}"
    if not isinstance(part, CutTensor):
        return (), part.nbytes, "decoded"
    pieces = part.pieces()
    if pieces is None:
        reader = part.inner.box_reader()
        how = "decoded up to its last element"
        if reader is not None:
            here = prod(chunk_counts(part.box, reader.chunk))
            every = prod(chunk_counts(whole_box(part.inner.shape), reader.chunk))
            how = f"decoded: {here:,} of {every:,} chunks"
        return (), part.decoded_bytes(), how
    all_accessed = [_access(piece) for _, piece in pieces]
    return (
        [run for accessed in all_accessed for run in accessed[0]],
        sum(accessed[1] for accessed in all_accessed),
        "decoded in pieces",
    )
