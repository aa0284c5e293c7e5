"""Read HDF5 files. Only hard links are followed, and no other file is read."""

# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false,
# reportArgumentType=false h5py has no types.

from __future__ import annotations

import json
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ....core.dtypes import DTYPES, find
from ....errors import FileFormatError, UnsafeFileError
from ....host.numpy_dtypes import numpy_dtype
from ...base.contents import Contents, NotTensor
from ...base.nesting import DEEPEST
from ...base.stored import Decoded, Extent, Stored
from ...encodings.json_scan import loaded
from ...encodings.paths import restore_names
from ...encodings.shapes import is_bomb
from ...encodings.slabs import lengths, slabs
from .dtypes import DTYPE, dtype_of
from .writer import MORE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .location import Location

__all__ = ["read_hdf5"]

_FILTERS = frozenset({1, 2, 3, 4, 5, 6, 32000})
"""Deflate, shuffle, Fletcher32, szip, n-bit, scale-offset, and h5py's LZF.

For others, HDF5 would load a library.
"""

_MOST_TEXT = 1 << 26
_MOST_STRINGS = 1 << 8
LARGEST_CHUNK = 1 << 26
"""The most bytes of a compressed chunk. HDF5 has it in memory twice while it is decompressed."""


def read_hdf5(form: str, location: Location) -> Contents:
    """Read an HDF5 file.

    The name of a tensor is the path of its dataset, or the one in an attribute.

    Raises:
        FileFormatError: It breaks the rules of HDF5.
        UnsafeFileError: It refers to other files, or needs far too much memory.
    """
    with location.opened() as file:
        collector = _ContentsCollector(location, Contents(form, (location.path,)))
        collector.object("", file.id)
        collector.group("", file.id, (collector.address(file.id),))
        collector.soft_links()
    contents = collector.contents
    more = contents.metadata.pop(MORE, None)
    if more is not None:
        contents.metadata.update(loaded(location.path, MORE, more, dict))
    restore_names(contents)
    if collector.unsafe:
        contents.refuses = tuple(collector.unsafe)
    return contents


class _ContentsCollector:
    """Collects the contents of a file.

    Only hard links are followed, and each group is entered once.
    """

    def __init__(self, location: Location, contents: Contents) -> None:
        self.location = location
        self.path = location.path
        self.contents = contents
        self.unsafe: list[str] = []
        self._soft: dict[str, bytes] = {}
        self._entered: dict[int, str] = {}
        self._datasets: dict[int, str] = {}
        self._text = 0

    def address(self, found: Any) -> int:
        import h5py

        return int(h5py.h5o.get_info(found).addr)

    def group(self, path: str, group: Any, above: tuple[int, ...]) -> None:
        import h5py

        self._entered[above[-1]] = path
        for name in h5py.Group(group):
            inner = f"{path}/{name}" if path else name
            raw = name.encode("utf-8", "surrogateescape")
            link = group.links.get_info(raw)
            kind = link.type
            if kind == h5py.h5l.TYPE_HARD and link.u in self._datasets:
                # A further name. The dataset and its attributes were read under the first one.
                first = self._datasets[link.u]
                held: dict[str, Any] = (
                    self.contents.tensors
                    if first in self.contents.tensors
                    else self.contents.others
                )
                held[inner] = held[first]
            elif kind == h5py.h5l.TYPE_SOFT:
                self._soft[inner] = group.links.get_val(raw)
            elif kind != h5py.h5l.TYPE_HARD:
                self.contents.others[inner] = "a link into another file, which is not followed"
                self.unsafe.append(f"another file ({inner})")
            else:
                self._open(inner, h5py.h5o.open(group, raw), above)

    def _open(self, path: str, found: Any, above: tuple[int, ...]) -> None:
        import h5py

        address = self.address(found)
        if isinstance(found, h5py.h5d.DatasetID):
            stored = self._dataset(path, found, address)
            self._datasets[address] = path
            if isinstance(stored, str):
                self.contents.others[path] = stored
            else:
                self.contents.tensors[path] = stored
            self.object(path, found, skip=DTYPE if isinstance(stored, Stored) else None)
        elif not isinstance(found, h5py.h5g.GroupID):
            self.contents.others[path] = NotTensor("a named datatype")
        elif address in self._entered:
            self.contents.others[path] = NotTensor(
                f"a second link to the group {self._entered[address]!r}"
            )
        elif len(above) > DEEPEST:
            raise UnsafeFileError(
                f"{self.path} nests groups more than {DEEPEST} deep, at {path!r}."
            )
        else:
            self.object(path, found)
            self.group(path, found, (*above, address))

    def soft_links(self) -> None:
        """Add soft links to datasets as further names.

        They are looked up among the datasets, and not followed.
        """
        for path, target in self._soft.items():
            text = target.decode("utf-8", "surrogateescape")
            base = "" if text.startswith("/") else path.rpartition("/")[0]
            parts = [part for part in f"{base}/{text}".split("/") if part not in ("", ".")]
            stored = self.contents.tensors.get("/".join(parts))
            if stored is None:
                self.contents.others[path] = NotTensor(
                    f"a soft link to {text!r}, which is no tensor of this file"
                )
            else:
                self.contents.tensors[path] = stored

    def _dataset(self, path: str, found: Any, address: int) -> Stored | str:
        import h5py

        layout = found.get_create_plist()
        if layout.get_layout() == h5py.h5d.VIRTUAL or layout.get_external_count():
            self.unsafe.append(f"another file ({path})")
            return "its values lie in another file, which is not read"
        if found.get_space().get_simple_extent_type() == h5py.h5s.NULL:
            return NotTensor("without a shape (a null dataspace)")
        dtype, swapped = dtype_of(found)
        if dtype not in DTYPES:
            return dtype
        shape = tuple(int(length) for length in found.shape)
        nbytes = prod(shape) * find(dtype).itemsize
        offset = found.get_offset() if layout.get_layout() == h5py.h5d.CONTIGUOUS else None
        if offset is not None or not nbytes:
            offset = offset or 0
            if offset + nbytes > self.location.nbytes:
                raise FileFormatError(
                    f"{self.path} is cut off: {path!r} ends at byte {offset + nbytes} of {self.location.nbytes}."
                )
            place = self.location
            return Extent(
                dtype, shape, place.path, place.offset + offset, place.record, swapped=swapped
            )
        filters = [layout.get_filter(index) for index in range(layout.get_nfilters())]
        unknown = [str(each[0]) for each in filters if each[0] not in _FILTERS]
        if unknown:
            return f"compressed by a filter that is not HDF5's own: {', '.join(unknown)}"
        chunk = layout.get_chunk() if layout.get_layout() == h5py.h5d.CHUNKED else ()
        piece = prod(chunk) * find(dtype).itemsize if chunk else 0
        if filters and piece > LARGEST_CHUNK:
            return f"compressed in chunks of {piece:,} bytes, and a chunk is read whole: {LARGEST_CHUNK:,} is the most"
        declared = max(nbytes, piece)
        if is_bomb(declared, self.location.nbytes):
            raise UnsafeFileError(
                f"{self.path} is out of all proportion: {path!r} would be {declared} bytes, "
                f"the file has {self.location.nbytes}."
            )
        return _decoded(self.location, path, dtype, shape, chunk, address, swapped=swapped)

    def object(self, path: str, found: Any, skip: str | None = None) -> None:
        """The attributes of an object, as strings."""
        import h5py

        for index in range(h5py.h5a.get_num_attrs(found)):
            attribute = h5py.h5a.open(found, index=index)
            name = attribute.name.decode("utf-8", "surrogateescape")
            if name == skip:
                continue
            key = f"{path}@{name}" if path else name
            text = self._attribute(found, attribute, name)
            if text is None:
                self.contents.others[key] = NotTensor(
                    "an attribute that is neither text nor numbers"
                )
                continue
            self._text += len(text)
            if self._text > _MOST_TEXT:
                raise UnsafeFileError(
                    f"{self.path} has more than {_MOST_TEXT} bytes of attributes, at {key!r}."
                )
            self.contents.metadata[key] = text

    def _attribute(self, owner: Any, attribute: Any, name: str) -> str | None:
        import h5py

        kind = attribute.get_type()
        space = attribute.get_space()
        if space.get_simple_extent_type() == h5py.h5s.NULL:
            return "null"
        count = prod(attribute.shape)
        if not count:
            return "[]"
        if attribute.get_storage_size() > self.location.nbytes:
            raise FileFormatError(
                f"{self.path} declares an attribute {name!r} that is longer than the file."
            )
        if isinstance(kind, h5py.h5t.TypeStringID):
            if kind.is_variable_str() and count > _MOST_STRINGS:
                return None
        elif not isinstance(
            kind, (h5py.h5t.TypeIntegerID, h5py.h5t.TypeFloatID, h5py.h5t.TypeEnumID)
        ):
            return None
        holder = h5py.Dataset(owner) if isinstance(owner, h5py.h5d.DatasetID) else h5py.Group(owner)
        value = holder.attrs[attribute.name]
        plain = _plain(value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value)
        return plain if isinstance(plain, str) else json.dumps(plain)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def _decoded(
    location: Location,
    name: str,
    dtype: str,
    shape: tuple[int, ...],
    chunk: tuple[int, ...],
    address: int,
    *,
    swapped: bool,
) -> Decoded:
    def read() -> Iterator[np.ndarray[Any, Any]]:
        import h5py

        with location.opened() as file:
            found = h5py.h5d.open(file.id, name.encode("utf-8", "surrogateescape"))
            space = found.get_space()
            for box in slabs(shape, find(dtype).itemsize, chunk):
                counts = lengths(box)
                # With the type of the file. Otherwise HDF5 would convert, and change signalling
                # NaNs.
                raw = np.empty(counts, np.dtype(f"V{find(dtype).itemsize}"))
                if box:
                    space.select_hyperslab(tuple(each.start for each in box), counts)
                    found.read(h5py.h5s.create_simple(counts), space, raw, found.get_type())
                else:
                    found.read(h5py.h5s.ALL, h5py.h5s.ALL, raw, found.get_type())
                values = raw.view(numpy_dtype(dtype))
                yield values.byteswap() if swapped else values

    return Decoded(dtype, shape, read, (location.path, location.offset, address))
