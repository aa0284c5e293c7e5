"""HDF5, by h5py: a dataset for each tensor."""

# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false, reportArgumentType=false
# h5py has no types.

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core.dtypes import find
from ...errors import ConversionError, FileFormatError, FormatLimitError, UnsafeFileError
from ...host.numpy_dtypes import numpy_dtype
from ..contents import Contents
from ..encodings.part import Part
from ..encodings.paths import NAMES, is_text, loaded, named_so, placed, walked
from ..encodings.slabs import is_bomb, slabs
from ..format import Format, named
from ..stored import Decoded, Extent, Record, Stored

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ..pump import Pump

__all__ = ["FORMAT", "MAGIC", "Region", "is_path", "read_hdf5", "refuse_axes", "write_hdf5"]

MAGIC = b"\x89HDF\r\n\x1a\n"

_MORE = "tensorferry.metadata"
_DTYPE = "dtype"
"""Keras's name for the attribute that says what opaque bytes are, https://github.com/keras-team/keras,
keras/src/saving/saving_lib.py, H5IOStore."""

_FILTERS = frozenset({1, 2, 3, 4, 5, 6, 32000})
"""Deflate, shuffle, Fletcher32, szip, n-bit, scale-offset, and h5py's LZF: others would have HDF5 load a library."""

_DEEPEST = 64
_MOST_AXES = 32
_MOST_TEXT = 1 << 26
_MOST_STRINGS = 1 << 8
_ALIGNED_FROM = 512

_OPAQUE = frozenset(
    {"int2", "int4", "uint2", "uint4", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3"}
    | {"float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"}
)
_PLAIN = frozenset(
    {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "complex64", "complex128"}
    | {"float8_e5m2", "bfloat16", "float16", "float32", "float64"}
)


class Region(NamedTuple):
    """Where an HDF5 file lies: a file of its own, or part of another.

    Args:
        path: The file.
        offset: The first byte.
        nbytes: How many.
        record: The checksum that stands for it, if there is one.
    """

    path: str
    offset: int
    nbytes: int
    record: Record | None = None

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """The h5py.File; whatever goes wrong with it is a `FileFormatError`."""
        import h5py

        with open(self.path, "rb", buffering=0) as file:  # noqa: PTH123 - OSError with its own message, and a descriptor
            whole = self.offset == 0 and self.record is None
            try:
                # The chunk cache holds what a slab of a chunked dataset comes back for.
                with h5py.File(self.path if whole else Part(file, self.offset, self.nbytes), "r") as opened:
                    yield opened
            except ConversionError:
                raise
            except (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
                raise FileFormatError(f"{self.path} cannot be read as HDF5: {error}.") from error


class Hdf5(Format):
    """HDF5, https://support.hdfgroup.org/documentation/hdf5/latest/_f_m_t3.html."""

    name = "hdf5"
    title = "HDF5"
    suffixes = (".h5", ".hdf5", ".he5")
    dtypes = _PLAIN | _OPAQUE
    module = "h5py"
    holds_tree = True
    holds_metadata = True
    rank = 61

    def recognises(self, path: Path, head: bytes) -> bool:
        return head.startswith(MAGIC)

    def read(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        from ..encodings.tree_strings import unpacked

        self.ensure_loaded()
        return unpacked(read_hdf5(self.name, Region(str(path), 0, path.stat().st_size)))

    def refuse(self, contents: Contents) -> None:
        super().refuse(contents)
        refuse_axes(self, contents)

    def write(self, contents: Contents, path: Path, pump: Pump) -> None:
        from ..encodings.tree_strings import packed

        self.ensure_loaded()
        metadata = packed(contents, ties=False)
        write_hdf5(contents, metadata, placed(contents.tensors, is_path), path, pump, opaque=_OPAQUE)


def refuse_axes(form: Format, contents: Contents) -> None:
    """Refuse tensors of more axes than HDF5 has.

    Raises:
        FormatLimitError: It names them.
    """
    deep = [name for name, stored in contents.tensors.items() if len(stored.shape) > _MOST_AXES]
    if deep:
        raise FormatLimitError(
            f"{form.title} holds tensors of at most {_MOST_AXES} axes, unlike {named(deep)}.", "exclude=[…] them"
        )


# --- reading ------------------------------------------------------------------------------------


def read_hdf5(form: str, region: Region) -> Contents:
    """What an HDF5 file holds, each tensor under the path of its dataset or the name that it was given.

    Args:
        form: The name of the format.
        region: Where the file lies.

    Raises:
        FileFormatError: It breaks the rules of HDF5.
        UnsafeFileError: It reaches out of itself, or is out of all proportion.
    """
    with region.opened() as file:
        walk = _Walk(region, Contents(form, (region.path,)))
        walk.object("", file.id)
        walk.group("", file.id, (walk.address(file.id),))
        walk.soft_links()
    contents = walk.contents
    more = contents.metadata.pop(_MORE, None)
    if more is not None:
        contents.metadata.update(loaded(region.path, _MORE, more, dict))
    names = contents.metadata.pop(NAMES, None)
    if names is not None:
        contents.tensors = named_so(region.path, contents.tensors, names)
    if walk.unsafe:
        contents.refuses = tuple(walk.unsafe)
    return contents


class _Walk:
    """Collects what is in a file. Only hard links are followed, and each group is entered once."""

    def __init__(self, region: Region, contents: Contents) -> None:
        self.region = region
        self.contents = contents
        self.unsafe: list[str] = []
        self._soft: dict[str, bytes] = {}
        self._entered: dict[int, str] = {}
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
            kind = group.links.get_info(raw).type
            if kind == h5py.h5l.TYPE_SOFT:
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
            if isinstance(stored, str):
                self.contents.others[path] = stored
            else:
                self.contents.tensors[path] = stored
            self.object(path, found, skip=_DTYPE if isinstance(stored, Stored) else None)
        elif not isinstance(found, h5py.h5g.GroupID):
            self.contents.others[path] = "a named datatype"
        elif address in self._entered:
            self.contents.others[path] = f"a second link to the group {self._entered[address]!r}"
        elif len(above) > _DEEPEST:
            raise UnsafeFileError(f"{self.region.path} nests groups more than {_DEEPEST} deep, at {path!r}.")
        else:
            self.object(path, found)
            self.group(path, found, (*above, address))

    def soft_links(self) -> None:
        """Soft links to datasets are further names of them; they are looked up among what was found, not followed."""
        for path, target in self._soft.items():
            text = target.decode("utf-8", "surrogateescape")
            base = "" if text.startswith("/") else path.rpartition("/")[0]
            parts = [part for part in f"{base}/{text}".split("/") if part not in ("", ".")]
            stored = self.contents.tensors.get("/".join(parts))
            if stored is None:
                self.contents.others[path] = f"a soft link to {text!r}, which is no tensor of this file"
            else:
                self.contents.tensors[path] = stored

    def _dataset(self, path: str, found: Any, address: int) -> Stored | str:
        import h5py

        layout = found.get_create_plist()
        if layout.get_layout() == h5py.h5d.VIRTUAL or layout.get_external_count():
            self.unsafe.append(f"another file ({path})")
            return "its values lie in another file, which is not read"
        if found.get_space().get_simple_extent_type() == h5py.h5s.NULL:
            return "without a shape (a null dataspace)"
        dtype, swapped = _dtype(found)
        if dtype not in _PLAIN | _OPAQUE:
            return dtype
        shape = tuple(int(length) for length in found.shape)
        nbytes = prod(shape) * find(dtype).itemsize
        offset = found.get_offset() if layout.get_layout() == h5py.h5d.CONTIGUOUS else None
        if offset is not None or not nbytes:
            offset = offset or 0
            if offset + nbytes > self.region.nbytes:
                raise FileFormatError(
                    f"{self.region.path} is cut off: {path!r} ends at byte {offset + nbytes} of {self.region.nbytes}."
                )
            region = self.region
            return Extent(dtype, shape, region.path, region.offset + offset, region.record, swapped=swapped)
        filters = [layout.get_filter(index) for index in range(layout.get_nfilters())]
        unknown = [str(each[0]) for each in filters if each[0] not in _FILTERS]
        if unknown:
            return f"compressed by a filter that is not HDF5's own: {', '.join(unknown)}"
        chunk = layout.get_chunk() if layout.get_layout() == h5py.h5d.CHUNKED else ()
        declared = max(nbytes, prod(chunk) * find(dtype).itemsize if chunk else 0)
        if is_bomb(declared, self.region.nbytes):
            raise UnsafeFileError(
                f"{self.region.path} is out of all proportion: {path!r} would be {declared} bytes, "
                f"the file has {self.region.nbytes}."
            )
        return _decoded(self.region, path, dtype, shape, chunk, address, swapped=swapped)

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
                self.contents.others[key] = "an attribute that is neither text nor numbers"
                continue
            self._text += len(text)
            if self._text > _MOST_TEXT:
                raise UnsafeFileError(f"{self.region.path} has more than {_MOST_TEXT} bytes of attributes, at {key!r}.")
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
        if attribute.get_storage_size() > self.region.nbytes:
            raise FileFormatError(f"{self.region.path} declares an attribute {name!r} that is longer than the file.")
        if isinstance(kind, h5py.h5t.TypeStringID):
            if kind.is_variable_str() and count > _MOST_STRINGS:
                return None
        elif not isinstance(kind, (h5py.h5t.TypeIntegerID, h5py.h5t.TypeFloatID, h5py.h5t.TypeEnumID)):
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
    region: Region,
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

        with region.opened() as file:
            found = h5py.h5d.open(file.id, name.encode("utf-8", "surrogateescape"))
            space = found.get_space()
            for box in slabs(shape, find(dtype).itemsize, chunk):
                counts = tuple(each.stop - each.start for each in box)
                # As the file's own type, or HDF5 would convert, and quiet NaNs.
                raw = np.empty(counts, np.dtype(f"V{find(dtype).itemsize}"))
                if box:
                    space.select_hyperslab(tuple(each.start for each in box), counts)
                    found.read(h5py.h5s.create_simple(counts), space, raw, found.get_type())
                else:
                    found.read(h5py.h5s.ALL, h5py.h5s.ALL, raw, found.get_type())
                values = raw.view(numpy_dtype(dtype))
                yield values.byteswap() if swapped else values

    return Decoded(dtype, shape, read, (region.path, region.offset, address))


# --- dtypes -------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _types() -> dict[str, tuple[Any, Any]]:
    """The HDF5 types of the plain dtypes, little- and big-endian."""
    import h5py

    h5t = h5py.h5t
    found = {
        f"{sign}int{bits}": tuple(getattr(h5t, f"STD_{letter}{bits}{order}") for order in ("LE", "BE"))
        for sign, letter in (("", "I"), ("u", "U"))
        for bits in (8, 16, 32, 64)
    }
    found |= {
        f"float{bits}": (getattr(h5t, f"IEEE_F{bits}LE"), getattr(h5t, f"IEEE_F{bits}BE")) for bits in (16, 32, 64)
    }
    for name, fields, bias, size in (("bfloat16", (15, 7, 8, 0, 7), 127, 2), ("float8_e5m2", (7, 2, 5, 0, 2), 15, 1)):
        pair = (h5t.IEEE_F16LE.copy(), h5t.IEEE_F16BE.copy())
        for each in pair:
            each.set_fields(*fields)
            each.set_ebias(bias)
            each.set_precision(8 * size)
            each.set_size(size)
        found[name] = pair
    for name, part in (("complex64", "f4"), ("complex128", "f8")):
        found[name] = tuple(
            h5t.py_create(np.dtype([("r", order + part), ("i", order + part)]), logical=True) for order in "<>"
        )
    found["bool"] = (h5t.py_create(np.dtype(bool), logical=True),) * 2
    return found


def _dtype(found: Any) -> tuple[str, bool]:
    """The canonical name of a dataset's dtype and whether its bytes are swapped, or why it has none."""
    import h5py

    kind = found.get_type()
    for name, pair in _types().items():
        for swapped, each in enumerate(pair):
            if kind == each:
                return name, bool(swapped)
    if isinstance(kind, h5py.h5t.TypeOpaqueID):
        attributes = h5py.Dataset(found).attrs
        label = attributes.get(_DTYPE)
        if isinstance(label, str) and label in _OPAQUE | _PLAIN and find(label).itemsize == kind.get_size():
            return label, False
        return f"opaque values of {kind.get_size()} bytes, without an attribute {_DTYPE!r} that says of what", False
    if isinstance(kind, h5py.h5t.TypeStringID):
        return "strings", False
    described = type(kind).__name__.removeprefix("Type").removesuffix("ID").lower()
    return f"values of a type that is no tensor's ({described}, {kind.get_size()} bytes)", False


# --- writing ------------------------------------------------------------------------------------


def is_path(name: str) -> bool:
    """Whether HDF5 keeps a name exactly as it is, when it is the path of a dataset."""
    parts = name.split("/")
    return "\0" not in name and is_text(name) and all(part not in ("", ".") and len(part) < 1000 for part in parts)


def write_hdf5(
    contents: Contents,
    metadata: dict[str, str],
    paths: dict[str, str],
    path: Path,
    pump: Pump,
    *,
    opaque: frozenset[str],
) -> None:
    """Write a file: h5py lays it out with room for the values, then they are copied into it.

    Args:
        contents: The tensors; ties become hard links.
        metadata: Becomes attributes of the file, or of the object that stands before the last ``@``.
        paths: Where each tensor goes.
        path: The file.
        pump: Moves the bytes.
        opaque: The dtypes that are written as opaque bytes with an attribute ``dtype``.
    """
    import h5py

    room: list[tuple[int, Stored]] = []
    ties = contents.ties
    # Attributes of more than 64 KiB, and groups that keep their order, need the file format of HDF5 1.8 (2008).
    with h5py.File(
        path, "x", libver=("v108", "v108"), track_order=True, alignment_threshold=_ALIGNED_FROM, alignment_interval=64
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
            kind = h5py.h5t.create(h5py.h5t.OPAQUE, find(stored.dtype).itemsize) if is_opaque else None
            space = h5py.h5s.create_simple(stored.shape) if stored.shape else h5py.h5s.create(h5py.h5s.SCALAR)
            made = h5py.h5d.create(group.id, last.encode(), kind or _types()[stored.dtype][0], space, layout)
            if is_opaque:
                h5py.Dataset(made).attrs[_DTYPE] = stored.dtype
            if stored.size:
                room.append((made.get_offset(), stored))
        _describe(file, metadata, paths)
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
        fits = key and name and "\0" not in key + text and is_text(key) and is_text(text)
        if not fits or name in (_DTYPE, NAMES, _MORE):
            plain[key] = text
            continue
        if place and is_path(place) and place in file:
            file[place].attrs[name] = text
        else:
            file.attrs[key] = text
    if plain:
        file.attrs[_MORE] = json.dumps(plain)
    placed = list(paths.values())
    if list(paths) != placed or walked(placed) != placed:
        file.attrs[NAMES] = json.dumps(list(paths.items()))


FORMAT = Hdf5()
