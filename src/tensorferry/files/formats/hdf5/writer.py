"""Write HDF5 files: h5py writes the structure, then the values are copied into it."""

# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false,
# reportArgumentType=false h5py has no types.

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from ....core.dtypes import find
from ...base.tree_strings import packed
from ...base.wording import is_unicode
from ...encodings.paths import NAMES, walked
from .dtypes import DTYPE, types

if TYPE_CHECKING:
    from pathlib import Path

    from ...base.contents import Contents
    from ...base.pump import Pump
    from ...base.stored import Stored

__all__ = ["MORE", "MOST_AXES", "is_path", "write_hdf5"]

MORE = "tensorferry.metadata"
"""The attribute for metadata that has no other place."""
MOST_AXES = 32
_ALIGNED_FROM = 512


def is_path(name: str) -> bool:
    """Whether HDF5 keeps a name unchanged as the path of a dataset."""
    parts = name.split("/")
    return (
        "\0" not in name
        and is_unicode(name)
        and all(part not in ("", ".") and len(part) < 1000 for part in parts)
    )


def write_hdf5(
    contents: Contents, paths: dict[str, str], path: Path, pump: Pump, *, opaque: frozenset[str]
) -> None:
    """Write a file: h5py writes the structure with room for the values, then they are copied into it.

    Ties become hard links. Metadata become attributes of the file, or of the object before the last
    ``@`` of the key.

    Args:
        contents: The contents.
        paths: The path of each tensor in the file.
        path: The file.
        pump: Copies the bytes.
        opaque: The dtypes that are written as opaque bytes with an attribute ``dtype``.
    """
    import h5py

    room: list[tuple[int, Stored]] = []
    ties = contents.ties
    # Attributes of more than 64 KiB, and groups that keep their order, need the file format of HDF5
    # 1.8 (2008).
    with h5py.File(
        path,
        "x",
        libver=("v108", "v108"),
        track_order=True,
        alignment_threshold=_ALIGNED_FROM,
        alignment_interval=64,
    ) as file:
        layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        layout.set_layout(h5py.h5d.CONTIGUOUS)
        layout.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        layout.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        layout.set_obj_track_times(False)
        groups = {"": file}
        for name, stored in contents.tensors.items():
            group, last = _group(groups, paths[name])
            if name in ties:
                group[last] = file[paths[ties[name]]]
                continue
            is_opaque = stored.dtype in opaque
            kind = (
                h5py.h5t.create(h5py.h5t.OPAQUE, find(stored.dtype).itemsize) if is_opaque else None
            )
            space = (
                h5py.h5s.create_simple(stored.shape)
                if stored.shape
                else h5py.h5s.create(h5py.h5s.SCALAR)
            )
            made = h5py.h5d.create(
                group.id, last.encode(), kind or types()[stored.dtype][0], space, layout
            )
            if is_opaque:
                h5py.Dataset(made).attrs[DTYPE] = stored.dtype
            if stored.size:
                room.append((made.get_offset(), stored))
        _describe(file, packed(contents, ties=False), paths)
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        for offset, stored in room:
            os.lseek(descriptor, offset, os.SEEK_SET)
            pump.copy(stored, descriptor)
    finally:
        os.close(descriptor)


def _group(groups: dict[str, Any], path: str) -> tuple[Any, str]:
    above, _, last = path.rpartition("/")
    if above not in groups:
        outer, name = _group(groups, above)
        groups[above] = outer.create_group(name, track_order=True)
    return groups[above], last


def _describe(file: Any, metadata: dict[str, str], paths: dict[str, str]) -> None:
    plain = {}
    for key, text in metadata.items():
        place, _, name = key.rpartition("@")
        fits = key and name and "\0" not in key + text and is_unicode(key) and is_unicode(text)
        if not fits or name in (DTYPE, NAMES, MORE):
            plain[key] = text
            continue
        if place and is_path(place) and place in file:
            file[place].attrs[name] = text
        else:
            file.attrs[key] = text
    if plain:
        file.attrs[MORE] = json.dumps(plain)
    placed = list(paths.values())
    if list(paths) != placed or walked(placed) != placed:
        file.attrs[NAMES] = json.dumps(list(paths.items()))
