"""HDF5, with h5py: a dataset for each tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....core.dtypes import DTYPES
from ...base.format import Format
from ...base.tree_strings import unpacked
from ...encodings.paths import placed
from .dtypes import OPAQUE
from .location import MAGIC, Location
from .reader import read_hdf5
from .writer import MOST_AXES, is_path, write_hdf5

if TYPE_CHECKING:
    from pathlib import Path

    from ...base.contents import Contents
    from ...base.pump import Pump

__all__ = ["FORMAT"]


class Hdf5(Format):
    """HDF5, https://support.hdfgroup.org/documentation/hdf5/latest/_f_m_t3.html."""

    name = "hdf5"
    title = "HDF5"
    suffixes = (".h5", ".hdf5", ".he5")
    dtypes = frozenset(DTYPES)
    module = "h5py"
    holds_tree = True
    holds_metadata = True
    ties = "own"
    most_axes = MOST_AXES
    rank = 61

    def recognises(self, path: Path, head: bytes) -> bool:
        return head.startswith(MAGIC)

    def read(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        self.ensure_loaded()
        return unpacked(read_hdf5(self.name, Location(str(path), 0, path.stat().st_size)))

    def write(self, contents: Contents, path: Path, pump: Pump) -> None:
        self.ensure_loaded()
        write_hdf5(contents, placed(contents.tensors, is_path), path, pump, opaque=OPAQUE)


FORMAT = Hdf5()
