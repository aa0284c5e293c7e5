"""Folders with a ``torch.save`` file per process: pieces of distributed tensors (FSDP, DTensor).

A ``ShardedTensor`` (of FSDP's ``SHARDED_STATE_DICT``) and a ``DTensor`` tell which regions of the
whole they have. All other values must be the same in all files, or the difference is reported.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.dtypes import DTYPES
from ...errors import FileFormatError
from ..base.contents import Contents, NotTensor
from ..base.format import Format
from ..base.wording import named
from ..encodings.paths import refuse_links_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from ..pickles.reader import Unpickled
    from ..pickles.torch import Names

__all__ = ["FORMAT", "SavedFile", "asked_by"]

_NAMED = re.compile(
    r"(.*?)(?:rank|shard)[-_.]?(\d{1,6})((?:[-_.].*)?\.(?:pt|pth|bin|ckpt))", re.IGNORECASE
)
"""A file's name: the part before the number of its process, the number, and the part after."""
_TENSORS = (".pt", ".pth", ".bin", ".ckpt", ".safetensors")
_MOST_RANKS = 100_000


class SavedFile:
    """A file of ``torch.save``, read with a vocabulary."""

    def __init__(self, path: Path, vocabulary: Names) -> None:
        from ..encodings.zip_archive import Archive
        from ..pickles.reader import root_of
        from ..pickles.torch_files import MOST_PICKLE, ArchiveResolver, stem_of

        archive = Archive(path, may_lack_sums=True)
        stem = stem_of(archive)
        pickle = archive[f"{stem}/data.pkl"]
        self.path = os.fspath(path)
        self.vocabulary = vocabulary
        self.root: Any = root_of(lambda: archive.read_pages(pickle, MOST_PICKLE), vocabulary)
        self.resolve = ArchiveResolver(archive, stem)
        self._nbytes = pickle.size

    def described(self, root: Any) -> Unpickled:
        """The tree of the result of the pickle, or of another value."""
        from ..pickles.reader import described

        return described(root, self.vocabulary, self._nbytes)


def asked_by(
    files: Iterable[Path], vocabulary: Callable[[str, frozenset[str]], Names]
) -> tuple[str, ...]:
    """The globals that files of ``torch.save`` ask for."""
    from ..encodings.zip_archive import Archive
    from ..pickles.torch_files import asked_in, stem_of

    asked: dict[str, None] = {}
    for file in files:
        archive = Archive(file, may_lack_sums=True)
        asked |= dict.fromkeys(
            asked_in(archive, stem_of(archive), vocabulary(os.fspath(file), frozenset()))
        )
    return tuple(asked)


class _Rank(NamedTuple):
    """The file of one process."""

    path: str
    found: Unpickled
    resolve: Callable[[str, Any], Any]


class TorchRanks(Format):
    """Sharded state dicts, one file per process: https://docs.pytorch.org/docs/stable/fsdp.html."""

    name = "torch_ranks"
    title = "PyTorch, a file per process"
    dtypes = frozenset(DTYPES)
    is_folder = True
    holds_tree = True
    writes = False
    rank = 6

    def recognises(self, path: Path, head: bytes) -> bool:
        return not head and path.is_dir() and len(_sets(path)) > 0

    def read(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        files = _files(path)
        refuse_links_out(path, files[0].name)
        return _merged(os.fspath(path), [_opened(file, allow) for file in files])

    def asks_for(self, path: Path) -> tuple[str, ...]:
        from ..pickles.torch_distributed import RankNames

        return asked_by(_files(path), RankNames)


def _sets(folder: Path) -> dict[tuple[str, str], dict[int, str]]:
    """A folder's files with a process's number in their names: by the name's rest, and by number.

    Empty if there are other files with tensors, because then the folder is something else.
    """
    ranks_of: dict[tuple[str, str], dict[int, str]] = {}
    for name in os.listdir(folder):  # noqa: PTH208 - names only
        match = _NAMED.fullmatch(name)
        if match is not None:
            ranks_of.setdefault((match[1], match[3]), {})[int(match[2])] = name
        elif name.lower().endswith(_TENSORS):
            return {}
    return ranks_of


def _files(folder: Path) -> list[Path]:
    sets = _sets(folder)
    if len(sets) != 1:
        several = [f"{before}…{behind}" for before, behind in sets]
        raise FileFormatError(
            f"{folder} has files of several sets of processes: {named(several)}.",
            "a folder with one of them each",
        )
    (ranks,) = sets.values()
    missing = sorted(set(range(max(ranks) + 1 if max(ranks) < _MOST_RANKS else 0)) - ranks.keys())
    if missing or max(ranks) >= _MOST_RANKS:
        raise FileFormatError(
            f"{folder} lacks the files of processes {named(missing)}.", "get them too"
        )
    return [folder / ranks[rank] for rank in sorted(ranks)]


def _opened(path: Path, allow: frozenset[str]) -> _Rank:
    from ..pickles.torch_distributed import RankNames

    saved = SavedFile(path, RankNames(os.fspath(path), allow))
    return _Rank(saved.path, saved.described(saved.root), saved.resolve)


def _merged(where: str, ranks: list[_Rank]) -> Contents:
    from ..encodings.array_parts import differ, values_of
    from ..pickles.torch_distributed import PiecesOf

    first = ranks[0].found
    contents = Contents("torch_ranks", tuple(rank.path for rank in ranks), tree=first.tree)
    contents.asks_for = tuple(dict.fromkeys(name for rank in ranks for name in rank.found.asks_for))
    contents.others |= first.besides
    for rank in ranks[1:]:
        if rank.found.leaves.keys() != first.leaves.keys():
            odd = rank.found.leaves.keys() ^ first.leaves.keys()
            raise FileFormatError(
                f"{rank.path} has other tensors than {ranks[0].path}: {named(sorted(odd))}."
            )
    for name, leaf in first.leaves.items():
        leaves = [rank.found.leaves[name] for rank in ranks]
        if type(leaf) is PiecesOf:
            _join(where, name, ranks, contents)
            continue
        if len({type(value) for value in leaves}) > 1:
            raise FileFormatError(
                f"{where}: {name[:200]} is shared out by some of the processes only."
            )
        stored = ranks[0].resolve(name, leaf)
        if isinstance(stored, str):
            contents.others[name] = stored
            continue
        contents.tensors[name] = stored
        for number, (rank, other) in enumerate(zip(ranks[1:], leaves[1:], strict=True), 1):
            if differ(stored, rank.resolve(name, other)):
                contents.others[f"{name} (process {number})"] = (
                    "it is not what process 0 has under that name"
                )
    plain = [values_of(rank.found.tree) for rank in ranks]
    for number, text in enumerate(plain):
        if text != plain[0]:
            contents.others[f"values (process {number})"] = NotTensor(
                "its values are not those of process 0"
            )
    return contents


def _join(where: str, name: str, ranks: list[_Rank], contents: Contents) -> None:
    from ..encodings.array_parts import Region, differ, joined
    from ..pickles.torch_distributed import PiecesOf

    regions: dict[Any, Region] = {}
    whole: Any = None
    for rank in ranks:
        leaf = rank.found.leaves[name]
        if type(leaf) is not PiecesOf or (whole or (leaf.dtype, leaf.shape)) != (
            leaf.dtype,
            leaf.shape,
        ):
            raise FileFormatError(
                f"{rank.path}: {name[:200]} is not what it is in {ranks[0].path}."
            )
        whole = leaf.dtype, leaf.shape
        for start, tensor in leaf.pieces:
            stored = rank.resolve(name, tensor)
            if isinstance(stored, str):
                contents.others[name] = stored
                return
            before = regions.setdefault((start, stored.shape), Region(start, stored.shape, stored))
            if differ(before.stored, stored):
                contents.others[f"{name} ({rank.path})"] = (
                    "it is not what another process has of the same region"
                )
    if whole[0] not in DTYPES:
        contents.others[name] = f"its dtype is torch.{whole[0]}, which has no counterpart"
        return
    contents.tensors[name] = joined(where, name, whole[0], whole[1], [*regions.values()])


FORMAT = TorchRanks()
