"""HDF5, with h5py: a dataset for each tensor."""

from __future__ import annotations

import io
import json
import os
from contextlib import contextmanager
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core.dtypes import DTYPES, ORDINARY, find
from ...errors import ConversionError, FileFormatError, UnsafeFileError
from ...host.numpy_dtypes import numpy_dtype
from ..base.contents import Contents, NotTensor
from ..base.format import Format
from ..base.nesting import DEEPEST
from ..base.stored import BoxReader, Decoded, Extent, Stored
from ..base.tree_strings import packed, unpacked
from ..base.wording import is_unicode
from ..encodings.array_parts import is_bomb, slabs
from ..encodings.json_scan import loaded
from ..encodings.paths import NAMES, paths_for, restore_names, walked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from ...typing import Array
    from ..base.pump import Pump
    from ..base.stored import Record

__all__ = [
    "DTYPE",
    "FORMAT",
    "MAGIC",
    "MORE",
    "MOST_AXES",
    "OPAQUE",
    "Location",
    "dtype_of",
    "is_path",
    "read_hdf5",
    "types",
    "write_hdf5",
]

# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false,
# reportArgumentType=false h5py has no types.


DTYPE = "dtype"
"""Keras's name for the attribute that says what opaque bytes are.

See https://github.com/keras-team/keras,
keras/src/saving/saving_lib.py, H5IOStore."""

OPAQUE = frozenset(DTYPES) - ORDINARY - {"float8_e5m2", "bfloat16"}


@lru_cache(maxsize=1)
def types() -> dict[str, tuple[Any, Any]]:
    """The HDF5 types of ordinary dtypes, little- and big-endian."""
    import h5py

    h5t = h5py.h5t
    by_name = {
        f"{sign}int{bits}": tuple(
            getattr(h5t, f"STD_{letter}{bits}{order}") for order in ("LE", "BE")
        )
        for sign, letter in (("", "I"), ("u", "U"))
        for bits in (8, 16, 32, 64)
    }
    by_name |= {
        f"float{bits}": (getattr(h5t, f"IEEE_F{bits}LE"), getattr(h5t, f"IEEE_F{bits}BE"))
        for bits in (16, 32, 64)
    }
    for name, fields, bias, size in (
        ("bfloat16", (15, 7, 8, 0, 7), 127, 2),
        ("float8_e5m2", (7, 2, 5, 0, 2), 15, 1),
    ):
        pair = (h5t.IEEE_F16LE.copy(), h5t.IEEE_F16BE.copy())
        for type_ in pair:
            type_.set_fields(*fields)
            type_.set_ebias(bias)
            type_.set_precision(8 * size)
            type_.set_size(size)
        by_name[name] = pair
    for name, part in (("complex64", "f4"), ("complex128", "f8")):
        by_name[name] = tuple(
            h5t.py_create(np.dtype([("r", order + part), ("i", order + part)]), logical=True)
            for order in "<>"
        )
    by_name["bool"] = (h5t.py_create(np.dtype(bool), logical=True),) * 2
    return by_name


_KNOWN: dict[bytes, tuple[str, bool]] = {}
"""What `dtype_of` has found, by encoded type: dozens of comparisons for each dataset take long."""


def dtype_of(dataset: Any) -> tuple[str, bool]:
    """A dataset dtype's canonical name, and whether its bytes are swapped; or why it has none."""
    import h5py

    kind = dataset.get_type()
    encoded = kind.encode()
    if encoded not in _KNOWN:
        for name, pair in types().items():
            for swapped, type_ in enumerate(pair):
                if kind == type_:
                    _KNOWN.setdefault(encoded, (name, bool(swapped)))
    if encoded in _KNOWN:
        return _KNOWN[encoded]
    if isinstance(kind, h5py.h5t.TypeOpaqueID):
        attributes = h5py.Dataset(dataset).attrs
        label = attributes.get(DTYPE)
        if isinstance(label, str) and label in DTYPES and find(label).itemsize == kind.get_size():
            return label, False
        return (
            (
                f"opaque values of {kind.get_size()} bytes, "
                f"without an attribute {DTYPE!r} that says of what"
            ),
            False,
        )
    if isinstance(kind, h5py.h5t.TypeStringID):
        return NotTensor("strings"), False
    described = type(kind).__name__.removeprefix("Type").removesuffix("ID").lower()
    return f"values of a type that is no tensor's ({described}, {kind.get_size()} bytes)", False


# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false,
# reportArgumentType=false h5py has no types.


MAGIC = b"\x89HDF\r\n\x1a\n"


class Location(NamedTuple):
    """The place of an HDF5 file: a whole file, or a part of one.

    Args:
        path: The file.
        offset: The position of the first byte.
        nbytes: The number of bytes.
        record: The region with a checksum that contains it, if there is one.
    """

    path: str
    offset: int
    nbytes: int
    record: Record | None = None

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """The h5py.File, as a context in which all its errors become a `FileFormatError`."""
        import h5py

        with open(self.path, "rb", buffering=0) as file:  # noqa: PTH123 - OSError with its own message, and a descriptor
            whole = self.offset == 0 and self.record is None
            try:
                # The chunk cache keeps chunks that several slabs need.
                with h5py.File(
                    self.path if whole else Window(file, self.offset, self.nbytes), "r"
                ) as opened:
                    yield opened
            except ConversionError:
                raise
            except (
                OSError,
                RuntimeError,
                KeyError,
                ValueError,
                TypeError,
                AttributeError,
                OverflowError,
            ) as error:
                raise FileFormatError(f"{self.path} cannot be read as HDF5: {error}.") from error


class Window(io.RawIOBase):
    """A read-only part of an open file."""

    def __init__(self, file: io.FileIO, offset: int, nbytes: int) -> None:
        self._descriptor = file.fileno()
        self._offset = offset
        self._nbytes = nbytes
        self._at = 0

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._nbytes)[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        count = max(min(view.nbytes, self._nbytes - self._at), 0)
        if count:
            count = os.preadv(self._descriptor, [view[:count]], self._offset + self._at)
        else:
            count = 0
        self._at += count
        return count


# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false,
# reportArgumentType=false h5py has no types.


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
    """Write a file: h5py writes the structure with room for values, which are then copied in.

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
            if is_opaque:
                kind = h5py.h5t.create(h5py.h5t.OPAQUE, find(stored.dtype).itemsize)
            else:
                kind = None
            if stored.shape:
                space = h5py.h5s.create_simple(stored.shape)
            else:
                space = h5py.h5s.create(h5py.h5s.SCALAR)
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


# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false,
# reportArgumentType=false h5py has no types.


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

    def address(self, node: Any) -> int:
        import h5py

        return int(h5py.h5o.get_info(node).addr)

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
                if first in self.contents.tensors:
                    held: dict[str, Any] = self.contents.tensors
                else:
                    held = self.contents.others
                held[inner] = held[first]
            elif kind == h5py.h5l.TYPE_SOFT:
                self._soft[inner] = group.links.get_val(raw)
            elif kind != h5py.h5l.TYPE_HARD:
                self.contents.others[inner] = "a link into another file, which is not followed"
                self.unsafe.append(f"another file ({inner})")
            else:
                self._open(inner, h5py.h5o.open(group, raw), above)

    def _open(self, path: str, node: Any, above: tuple[int, ...]) -> None:
        import h5py

        address = self.address(node)
        if isinstance(node, h5py.h5d.DatasetID):
            stored = self._dataset(path, node, address)
            self._datasets[address] = path
            if isinstance(stored, str):
                self.contents.others[path] = stored
            else:
                self.contents.tensors[path] = stored
            self.object(path, node, skip=DTYPE if isinstance(stored, Stored) else None)
        elif not isinstance(node, h5py.h5g.GroupID):
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
            self.object(path, node)
            self.group(path, node, (*above, address))

    def soft_links(self) -> None:
        """Add soft links to datasets as further names.

        They are looked up among the datasets, and not followed.
        """
        for path, target in self._soft.items():
            text = target.decode("utf-8", "surrogateescape")
            if text.startswith("/"):
                base = ""
            else:
                base = path.rpartition("/")[0]
            parts = [part for part in f"{base}/{text}".split("/") if part not in ("", ".")]
            stored = self.contents.tensors.get("/".join(parts))
            if stored is None:
                self.contents.others[path] = NotTensor(
                    f"a soft link to {text!r}, which is no tensor of this file"
                )
            else:
                self.contents.tensors[path] = stored

    def _dataset(self, path: str, dataset: Any, address: int) -> Stored | str:
        import h5py

        layout = dataset.get_create_plist()
        if layout.get_layout() == h5py.h5d.VIRTUAL or layout.get_external_count():
            self.unsafe.append(f"another file ({path})")
            return "its values lie in another file, which is not read"
        if dataset.get_space().get_simple_extent_type() == h5py.h5s.NULL:
            return NotTensor("without a shape (a null dataspace)")
        dtype, swapped = dtype_of(dataset)
        if dtype not in DTYPES:
            return dtype
        shape = tuple(int(length) for length in dataset.shape)
        nbytes = prod(shape) * find(dtype).itemsize
        if layout.get_layout() == h5py.h5d.CONTIGUOUS:
            offset = dataset.get_offset()
        else:
            offset = None
        if offset is not None or not nbytes:
            offset = offset or 0
            if offset + nbytes > self.location.nbytes:
                raise FileFormatError(
                    f"{self.path} is cut off: {path!r} ends at byte {offset + nbytes} of "
                    f"{self.location.nbytes}."
                )
            place = self.location
            return Extent(
                dtype, shape, place.path, place.offset + offset, place.record, swapped=swapped
            )
        filters = [layout.get_filter(index) for index in range(layout.get_nfilters())]
        unknown = [str(filter_[0]) for filter_ in filters if filter_[0] not in _FILTERS]
        if unknown:
            return f"compressed by a filter that is not HDF5's own: {', '.join(unknown)}"
        chunk: tuple[int, ...] = ()
        piece = 0
        if layout.get_layout() == h5py.h5d.CHUNKED:
            chunk = layout.get_chunk()
            piece = prod(chunk) * find(dtype).itemsize
        if filters and piece > LARGEST_CHUNK:
            return (
                f"compressed in chunks of {piece:,} bytes, and a chunk is read whole: "
                f"{LARGEST_CHUNK:,} is the most"
            )
        declared = max(nbytes, piece)
        if is_bomb(declared, self.location.nbytes):
            raise UnsafeFileError(
                f"{self.path} is out of all proportion: {path!r} would be {declared} bytes, "
                f"the file has {self.location.nbytes}."
            )
        return _decoded(self.location, path, dtype, shape, chunk, address, swapped=swapped)

    def object(self, path: str, node: Any, skip: str | None = None) -> None:
        """The attributes of an object, as strings."""
        import h5py

        for index in range(h5py.h5a.get_num_attrs(node)):
            attribute = h5py.h5a.open(node, index=index)
            name = attribute.name.decode("utf-8", "surrogateescape")
            if name == skip:
                continue
            key = f"{path}@{name}" if path else name
            text = self._attribute(node, attribute, name)
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
        if isinstance(owner, h5py.h5d.DatasetID):
            holder = h5py.Dataset(owner)
        else:
            holder = h5py.Group(owner)
        value = holder.attrs[attribute.name]
        plain = _plain(value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value)
        if isinstance(plain, str):
            return plain
        return json.dumps(plain)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(element) for element in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return value


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
    def read(boxes: Iterable[tuple[slice, ...]]) -> Iterator[Array]:
        import h5py

        with location.opened() as file:
            dataset = h5py.h5d.open(file.id, name.encode("utf-8", "surrogateescape"))
            space = dataset.get_space()
            for box in boxes:
                counts = tuple(len(range(*axis.indices(axis.stop))) for axis in box)
                # With the type of the file. Otherwise HDF5 would convert, and change signalling
                # NaNs.
                raw = np.empty(counts, np.dtype(f"V{find(dtype).itemsize}"))
                if box:
                    starts = tuple(axis.start for axis in box)
                    steps = tuple(axis.step or 1 for axis in box)
                    space.select_hyperslab(starts, counts, steps)
                    dataset.read(h5py.h5s.create_simple(counts), space, raw, dataset.get_type())
                else:
                    dataset.read(h5py.h5s.ALL, h5py.h5s.ALL, raw, dataset.get_type())
                values = raw.view(numpy_dtype(dtype))
                yield values.byteswap() if swapped else values

    def whole() -> Iterator[Array]:
        return read(slabs(shape, find(dtype).itemsize, chunk))

    def one(box: tuple[slice, ...]) -> Array:
        (values,) = read([box])
        return values

    key = location.path, location.offset, address
    return Decoded(dtype, shape, whole, key, BoxReader(chunk, one) if chunk else None)


class Hdf5(Format):
    """HDF5, https://support.hdfgroup.org/documentation/hdf5/latest/_f_m_t3.html."""

    name = "hdf5"
    title = "HDF5"
    suffixes = (".h5", ".hdf5", ".he5")
    dtypes = frozenset(DTYPES)
    module = "h5py"
    holds_tree = True
    holds_metadata = True
    reserved = frozenset({NAMES})
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
        write_hdf5(contents, paths_for(contents.tensors, is_path), path, pump, opaque=OPAQUE)


FORMAT = Hdf5()
