"""Zip archives with a pickle and the storages that it names: of `torch.save`, of TorchScript, and inside others."""

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
    """The name of the folder that contains the pickle ``data.pkl``.

    Raises:
        FileFormatError: There is none.
    """
    stems = [
        name.removesuffix("/data.pkl")
        for name in archive.names
        if name.endswith("/data.pkl") and name.count("/") == 1
    ]
    if len(stems) != 1:
        raise FileFormatError(
            f"{archive.path} is a zip archive, but has no data.pkl as torch.save writes it."
        )
    return stems[0]


def unpickled_in(
    archive: Archive, stem: str, vocabulary: Names, folder: str = "data", *, wrap: Any = None
) -> tuple[Unpickled, dict[str, str]]:
    """Read the pickle of an archive, with tensors as leaves; and the names of those that cannot be loaded, and why.

    Args:
        archive: The archive.
        stem: The name of its top folder.
        vocabulary: Defines the meaning of the pickle's names.
        folder: The name of the folder of storages; with ``.pkl``, the name of the pickle.
        wrap: A function that is applied to the result of the pickle.

    Raises:
        FileFormatError: It is damaged.
        UnsafeFileError: It asks for something that is not data, or needs far too much memory or
            time.
    """
    pickle = archive[f"{stem}/{folder}.pkl"]
    resolve = ArchiveResolver(archive, stem, folder)
    archive.forget_names()
    root = root_of(lambda: archive.read_pages(pickle, MOST_PICKLE), vocabulary)
    found = described(wrap(root) if wrap else root, vocabulary, pickle.size)
    # They refer to the stand-ins. Without them, each stand-in is freed as soon as its tensor is
    # made.
    del root, vocabulary
    return found, resolve.all(found.leaves) | found.besides


def asked_in(
    archive: Archive, stem: str, vocabulary: Names, folder: str = "data"
) -> tuple[str, ...]:
    """The globals that an archive's pickle asks for, as far as it can be read."""
    pickle = archive[f"{stem}/{folder}.pkl"]
    return globals_of(lambda: archive.read_pages(pickle, MOST_PICKLE), vocabulary)
