"""`Contents`: what a file holds, before any of it is read."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from typing_extensions import Self

    from .stored import Stored

__all__ = ["MOST_TENSORS", "Contents", "FileFinding", "NotTensor", "Ref", "Special"]


MOST_TENSORS = 150_000
"""In one file, where each takes a few bytes: more are out of all proportion, and would take seconds to list."""


class Ref(NamedTuple):
    """The place of a tensor in a tree of values.

    Args:
        name: Its name among the tensors, or among the `others` of `Contents`.
        kind: What stood there: ``"tensor"``, ``"parameter"`` (of a module), ``"storage"`` or ``"untyped_storage"`` (of
            PyTorch), ``"array"`` or ``"scalar"`` (of NumPy).
        requires_grad: Whether it required grad.
    """

    name: str
    kind: str = "tensor"
    requires_grad: bool = False


class Special(NamedTuple):
    """A value in a tree that is neither a tensor nor of a plain Python type, and yet can be told in plain values.

    Args:
        kind: ``"dtype"``, ``"device"``, ``"layout"`` or ``"size"``, of PyTorch.
        value: Its name without the module (``"float16"``, ``"cuda:0"``); the lengths of a size.
    """

    kind: str
    value: str | bytes | list[Any]


class NotTensor(str):
    """Why something in a file cannot be carried that is no tensor, nor a part of one: text, an attribute, a link."""

    __slots__ = ()


class FileFinding(NamedTuple):
    """Something that is wrong with a file.

    Args:
        path: The file.
        offset: The byte at which it is wrong, or ``None`` if that is nowhere in particular.
        tensor: The tensor that it concerns, or ``None``.
        message: What is wrong, in one line.
        error: Whether the file fails the check for it; else it is only worth a look (all zero).
    """

    path: str
    offset: int | None
    tensor: str | None
    message: str
    error: bool = True


@dataclass(repr=False)
class Contents:
    """What a file, or a folder of shards, holds.

    Args:
        format: The format's name.
        paths: The files that it consists of.
        tensors: Every tensor by name, in the file's order; tensors that are one in the file (tied weights)
            stand under each of their names and have equal keys.
        metadata: Strings by name, as safetensors and GGUF have them.
        tree: How tensors and other values nest: dicts (with keys of any plain type), OrderedDicts, lists,
            tuples, plain values, and a `Ref` in the place of each tensor; ``None`` for a plain mapping from
            the names to the tensors.
        others: What is in the file and cannot be carried, by name: why not, a `NotTensor` if nothing of a tensor
            would be lost with it.
        asks_for: The globals that a pickle asks for.
        refuses: Those of them, and other demands, that make it unsafe to open.
    """

    format: str
    paths: tuple[str, ...]
    tensors: dict[str, Stored] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    tree: Any = None
    others: dict[str, str] = field(default_factory=dict)
    asks_for: tuple[str, ...] = ()
    refuses: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """There is nothing to close: files are opened when something in them is read."""

    def __repr__(self) -> str:
        return f"<Contents of {self.format or 'no file'}: {len(self.tensors):,} tensors>"

    @property
    def ties(self) -> dict[str, str]:
        """For each further name of a tensor, its first name."""
        # Most files have none: eight bytes for each tensor tell that, where all the keys would be ten times as many.
        marks = np.fromiter((hash(stored.key) for stored in self.tensors.values()), np.int64, len(self.tensors))
        marks.sort()
        twice = set(marks[1:][marks[1:] == marks[:-1]].tolist())
        first: dict[Hashable, str] = {}
        found = {}
        for name, stored in self.tensors.items() if twice else ():
            if hash(stored.key) in twice:
                kept = first.setdefault(stored.key, name)
                if kept != name and stored.size:
                    found[name] = kept
        return found

    def parameters(self, ties: Mapping[str, str] | None = None) -> Counter[str]:
        """The number of elements of each dtype, ties counted once.

        Args:
            ties: The `ties`, if they are known already.
        """
        ties = self.ties if ties is None else ties
        alike = Counter((stored.dtype, stored.shape) for name, stored in self.tensors.items() if name not in ties)
        counts: Counter[str] = Counter()
        for (dtype, shape), count in alike.items():
            counts[dtype] += count * prod(shape)
        return counts
