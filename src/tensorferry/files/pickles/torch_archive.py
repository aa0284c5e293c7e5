"""Zip archives that hold a pickle and the storages that it names: `torch.save`'s, TorchScript's, and such in others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import FileFormatError
from .reader import described, globals_of, root_of
from .resolver import ArchiveResolver

if TYPE_CHECKING:
    from ..encodings.zip_archive import Archive
    from .reader import Unpickled
    from .torch import Names

__all__ = ["MOST_PICKLE", "asked_in", "stem_of", "unpickled_in"]

MOST_PICKLE = 128 << 20


def stem_of(archive: Archive) -> str:
    """The name of the folder that a pickle, ``data.pkl``, is in.

    Raises:
        FileFormatError: There is none.
    """
    stems = [
        name.removesuffix("/data.pkl") for name in archive.names if name.endswith("/data.pkl") and name.count("/") == 1
    ]
    if len(stems) != 1:
        raise FileFormatError(f"{archive.path} is a zip archive, but has no data.pkl as torch.save writes it.")
    return stems[0]


def unpickled_in(
    archive: Archive, stem: str, vocabulary: Names, folder: str = "data", *, wrap: Any = None
) -> tuple[Unpickled, dict[str, str]]:
    """What an archive's pickle holds, its leaves being tensors; and what of it cannot be carried.

    Args:
        archive: The archive.
        stem: The name of its folder.
        vocabulary: What the pickle's names mean.
        folder: The name of the storages' folder, and with ``.pkl`` of the pickle.
        wrap: Makes something else of what the pickle made.

    Raises:
        FileFormatError: It is damaged.
        UnsafeFileError: It asks for what is no data, or is out of all proportion.
    """
    pickle = archive[f"{stem}/{folder}.pkl"]
    resolve = ArchiveResolver(archive, stem, folder)
    archive.forget_names()
    root = root_of(lambda: archive.read_pages(pickle, MOST_PICKLE), vocabulary)
    found = described(wrap(root) if wrap else root, vocabulary, pickle.size)
    # They have the stand-ins, each of which goes as soon as its tensor is there.
    del root, vocabulary
    others = resolve.all(found.leaves)
    others |= {name if name not in found.leaves else f"{name}@": why for name, why in found.besides.items()}
    return found, others


def asked_in(archive: Archive, stem: str, vocabulary: Names, folder: str = "data") -> tuple[str, ...]:
    """The globals that an archive's pickle names, as far as it can be read."""
    pickle = archive[f"{stem}/{folder}.pkl"]
    return globals_of(lambda: archive.read_pages(pickle, MOST_PICKLE), vocabulary)
