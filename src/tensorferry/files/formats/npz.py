"""NumPy's ``.npz``: a zip archive of arrays by name.

https://numpy.org/doc/stable/reference/generated/numpy.savez.html. Other values are in the archive's
comment, or, if they are too long for it, after the values of the first array. So `numpy.load` lists
only the arrays.
"""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.dtypes import DTYPES
from ...errors import ConversionError, FileFormatError, FormatLimitError, UnsafeFileError
from ...host.numpy_dtypes import numpy_dtype
from ..base.contents import Contents, FileFinding, NotTensor, Ref
from ..base.format import Format
from ..base.limits import OTHER_FORMAT, other_names
from ..base.objects import Refusal
from ..base.raw import read_at
from ..base.stored import Decoded
from ..base.tree_strings import pack, unpack
from ..base.wording import named
from ..encodings import npy_array as arrays
from ..encodings.json_scan import Cut, strings
from ..encodings.zip_archive import STORED, Archive
from ..encodings.zip_writer import ArchiveWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...typing import Array
    from ..base.pump import Pump
    from ..base.stored import Record, Stored
    from ..encodings.zip_archive import Member
    from .pickle import BareNames

_SUFFIX = ".npy"
_MARK = b"tensorferry "
_LONGEST_COMMENT = 0xFFFF
_COMMENT = "comment"
"""The key for the comment of another program."""
_OUTSIDE = re.compile(r"^/|^[A-Za-z]:|(?:^|/)\.\.(?:/|$)|[\\\0]", re.MULTILINE)
"""Names that would lead out of the folder when the archive is unpacked."""


_MOST_INFLATED = 1 << 27
"""The most bytes of a pickle that are read into memory."""
_USUAL = 256
"""The usual size of the header of an array in bytes."""


def _inside(name: str) -> str:
    """A name that does not lead out of the archive."""
    return re.sub(r"\.\.|[\\:\0]", "_", name).lstrip("/")


def _shortened(name: str) -> str:
    return name[-_USUAL:]


class _Npz(Format):
    """Arrays by name, as `numpy.savez` writes them.

    See https://numpy.org/doc/stable/reference/generated/numpy.savez.html.
    """

    name = "npz"
    title = "NumPy's .npz"
    suffixes = (".npz",)
    dtypes = frozenset(DTYPES)
    holds_tree = True
    holds_metadata = True
    unicode_only = True
    rank = 15
    first_class = True

    def recognises(self, path: Path, head: bytes) -> bool:
        if head[:4] not in (b"PK\3\4", b"PK\5\6"):
            return False
        length = int.from_bytes(head[26:28], "little")
        return len(head) >= 30 + length and head[30 : 30 + length].endswith(b".npy")

    def is_named(self, path: Path, head: bytes) -> bool:
        return head[:4] in (b"PK\3\4", b"PK\5\6") and path.name.lower().endswith(self.suffixes)

    def read(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        return self._read(path, allow, partly=False)

    def read_partly(self, path: Path, *, allow: frozenset[str] = frozenset()) -> Contents:
        return self._read(path, allow, partly=True)

    def _read(self, path: Path, allow: frozenset[str], *, partly: bool) -> Contents:
        archive = Archive(path)
        contents = Contents(self.name, (str(path),))
        contents.metadata = _commented(archive.comment, str(path))
        nodes: dict[str, Any] = {}
        with archive.held_open() as descriptor:
            for member_name in archive:
                name, stored, held = _array(archive, archive[member_name], descriptor)
                nodes[name] = Ref(name)
                if isinstance(stored, _Pickled):
                    stored.partly = partly
                    nodes[name] = stored.put(contents, name, allow)
                else:
                    _put(contents, name, stored, held)
        if any(node != Ref(name) for name, node in nodes.items()):
            contents.tree = nodes
        return unpack(contents)

    def asks_for(self, path: Path) -> tuple[str, ...]:
        archive, asked = Archive(path), dict[str, None]()
        with archive.held_open() as descriptor:
            for member_name in archive:
                _, stored, _ = _array(archive, archive[member_name], descriptor)
                if isinstance(stored, _Pickled):
                    asked |= dict.fromkeys(stored.asks_for())
        return tuple(asked)

    def refuse(self, contents: Contents) -> None:
        outside = [name for name in contents.tensors if _OUTSIDE.search(name + _SUFFIX)]
        hint = other_names(contents, outside, _inside)
        self.refuse_any(outside, "would have these names lead out of the archive", hint)
        packed = _packed(pack(contents))
        lengths = [len(f"{name}{_SUFFIX}".encode()) for name in contents.tensors]
        if lengths and max(lengths) > 0xFFFF - 64:
            longest = max(contents.tensors, key=len)
            hint = other_names(contents, [longest], _shortened)
            raise FormatLimitError(
                f"A name in a zip archive has at most 65,535 bytes: {longest[:80]} …", hint
            )
        if len(packed) > (arrays.LONGEST_TRAILER if contents.tensors else _LONGEST_COMMENT):
            raise FormatLimitError(
                f"{self.title} has no place for {len(packed)} bytes of what is not a tensor.",
                OTHER_FORMAT,
            )

    def write(self, contents: Contents, path: Path, pump: Pump) -> None:
        held = pack(contents)
        comment = _packed(held) if held else b""
        fits = len(comment) <= _LONGEST_COMMENT
        behind = {} if fits else held
        ties = contents.ties
        with path.open("xb", buffering=0) as file:
            archive = ArchiveWriter(file.fileno())
            for name, stored in contents.tensors.items():
                if name not in ties:
                    header = arrays.header_of(stored.dtype, stored.shape)
                    suffix = arrays.trailer(arrays.dtype_string(stored.dtype) | behind)
                    archive.add(name + _SUFFIX, header, stored, suffix, pump)
                    behind = {}
            archive.finish(comment if fits else b"")

    def check(
        self,
        path: Path,
        *,
        allow: frozenset[str] = frozenset(),
        found: Contents | ConversionError | None = None,
    ) -> Iterator[FileFinding]:
        try:
            archive = Archive(path, tolerant=True)
        except ConversionError as error:
            yield FileFinding(str(path), None, None, error.message)
            return
        damaged = set()
        contents = Contents(self.name, (str(path),))
        with archive.held_open() as descriptor:
            for finding in archive.findings(_tensor):
                damaged.add(finding.tensor)
                yield finding
            if isinstance(found, Contents):
                yield from _of_others(archive, found, damaged)
                return
            for member_name in archive:
                member = archive[member_name]
                if _tensor(member_name) in damaged:
                    continue
                try:
                    told = len(contents.others)
                    name, stored, held = _array(archive, member, descriptor)
                    if isinstance(stored, _Pickled):
                        stored.put(contents, name, allow)
                    else:
                        _put(contents, name, stored, held)
                except ConversionError as error:
                    damaged.add(_tensor(member_name))
                    yield FileFinding(str(path), member.header, _tensor(member_name), error.message)
                    continue
                for other in list(contents.others)[told:]:
                    yield FileFinding(
                        str(path), member.header, other, contents.others[other], error=False
                    )
        if not damaged:
            try:
                contents.metadata |= _commented(archive.comment, str(path))
                unpack(contents)
            except ConversionError as error:
                yield FileFinding(str(path), None, None, error.message)


def _of_others(
    archive: Archive, contents: Contents, damaged: set[str | None]
) -> Iterator[FileFinding]:
    """Yield what has been said already of members that are no tensors, without the damaged ones."""
    for member_name in archive:
        own = _tensor(member_name)
        if own in damaged:
            continue
        where = archive[member_name].header
        for name, why in contents.others.items():
            if name == own or name.startswith(f"{own}."):
                yield FileFinding(archive.path, where, name, why, error=False)


def _put(contents: Contents, name: str, stored: Stored | str, held: dict[str, str]) -> None:
    if name in contents.tensors or name in contents.others:
        raise FileFormatError(f"{contents.paths[0]} has two arrays named {name!r}.")
    if isinstance(stored, str):
        contents.others[name] = stored
    else:
        contents.tensors[name] = stored
    contents.metadata |= held


@dataclass(slots=True)
class _Pickled:
    """A member with Python objects, which is a pickle after the header.

    Args:
        archive: The archive.
        member: The member.
        length: The length of the header.
        partly: As for `open_path`.
    """

    archive: Archive
    member: Member
    length: int
    partly: bool = False

    def put(self, contents: Contents, name: str, allow: frozenset[str]) -> Any:
        """Add what is in it to contents; gives its place in their tree."""
        from .pickle import read_objects

        if self.member.method != STORED and self.member.size > _MOST_INFLATED:
            _put(
                contents,
                name,
                f"Python objects: a compressed pickle of {self.member.size:,} bytes",
                {},
            )
            return Ref(name)
        vocabulary, begin, end, record = self._opened(allow)
        vocabulary.partly = self.partly
        try:
            unpickled, others = read_objects(vocabulary, begin, end, member=name, record=record)
        except UnsafeFileError:
            if not vocabulary.demands:
                raise
            # The other arrays can be read.
            _put(contents, name, Refusal(named(vocabulary.demands), vocabulary.hint), {})
            contents.asks_for = tuple(dict.fromkeys((*contents.asks_for, *vocabulary.asked)))
            return Ref(name)
        for key, stored in (*unpickled.leaves.items(), *others.items()):
            _put(contents, key, stored, {})
        contents.asks_for = tuple(dict.fromkeys((*contents.asks_for, *unpickled.asks_for)))
        if unpickled.tree is None:
            return Ref(name)
        return unpickled.tree[name]

    def asks_for(self) -> tuple[str, ...]:
        """The globals that it asks for."""
        from .pickle import asked_by_objects

        if self.member.method != STORED and self.member.size > _MOST_INFLATED:
            return ()
        vocabulary, begin, *_ = self._opened(frozenset())
        return asked_by_objects(vocabulary, begin)

    def _opened(self, allow: frozenset[str]) -> tuple[BareNames, int, int, Record | None]:
        """The vocabulary, the begin and the end of the pickle, and the region with a checksum."""
        from ..pickles.torch_files import pages_of
        from .pickle import BareNames

        archive, member = self.archive, self.member
        where = f"{archive.path}: {member.name}"
        if member.method != STORED:
            data = archive.read_bytes(member, _MOST_INFLATED)
            return BareNames(where, allow, data, ""), self.length, member.size, None
        if member.size <= _MOST_INFLATED:
            # Only to compare the checksum: values have none of their own.
            archive.read_bytes(member, _MOST_INFLATED)
        begin = archive.offset(member)
        vocabulary = BareNames(where, allow, pages_of(Path(archive.path)), archive.path)
        return vocabulary, begin + self.length, begin + member.size, archive.record(member, begin)


def _tensor(member_name: str) -> str:
    return member_name.removesuffix(_SUFFIX)


def _array(
    archive: Archive, member: Member, descriptor: int | None
) -> tuple[str, Stored | _Pickled | str, dict[str, str]]:
    """The name of a member, its array (or why it has none), and the strings after the array."""
    where, name = f"{archive.path}: {member.name}", _tensor(member.name)
    if member.method == STORED:
        begin = archive.offset(member)
    else:
        begin = 0

    def start(count: int) -> bytes:
        if member.method == STORED:
            return read_at(archive.path, begin, min(count, member.size), descriptor)
        return next(archive.open_blocks(member), b"")[:count]

    head = start(_USUAL)
    if not head.startswith(arrays.MAGIC):
        return name, NotTensor("a member that is no array"), {}
    try:
        header = arrays.parse_header(
            lambda count: start(count) if count > _USUAL else head[:count], where
        )
    except UnsafeFileError:
        return name, NotTensor("Python objects: a pickle, which could run any code"), {}
    if header.is_pickle:
        return name, _Pickled(archive, member, header.length), {}
    if header.dtype or header.void:
        end = header.length + header.nbytes
    else:
        end = member.size
    if end > member.size:
        raise FileFormatError(
            f"{where} has {member.size} bytes, "
            f"its array of shape {list(header.shape)} ends at byte {end}."
        )
    held = arrays.parse_trailer(_behind(archive, member, descriptor, begin, end), where)
    if held is None:
        raise FileFormatError(f"{where} goes on behind its array, with {member.size - end} bytes.")
    if arrays.DTYPE in held:
        header = arrays.with_dtype(header, held.pop(arrays.DTYPE), where)
    if not header.dtype:
        return name, header.why, held
    if member.method == STORED:
        return (
            name,
            arrays.stored_at(header, archive.path, begin, archive.record(member, begin)),
            held,
        )
    if header.fortran and sum(length > 1 for length in header.shape) > 1:
        read = _by_columns
    else:
        read = _by_rows
    return (
        name,
        Decoded(
            header.dtype, header.shape, read(archive, member, header), (archive.path, member.header)
        ),
        held,
    )


def _behind(
    archive: Archive, member: Member, descriptor: int | None, begin: int, end: int
) -> bytes:
    """The bytes after the values."""
    count = member.size - end
    if count > arrays.LONGEST_TRAILER:
        raise UnsafeFileError(f"{archive.path}: {member.name} has {count} bytes behind its array.")
    if not count:
        return b""
    if member.method == STORED:
        return read_at(archive.path, begin + end, count, descriptor)
    done, parts = 0, []
    for block in archive.open_blocks(member):
        if done + len(block) > end:
            parts.append(block[max(end - done, 0) :])
        done += len(block)
    return b"".join(parts)


def _by_rows(
    archive: Archive, member: Member, header: arrays.Header
) -> Callable[[], Iterator[Array]]:
    dtype = numpy_dtype(header.dtype)

    def read() -> Iterator[Array]:
        skipped, left, rest = header.length, header.nbytes, b""
        for block in archive.open_blocks(member):
            values = rest + block[skipped:]
            skipped = max(skipped - len(block), 0)
            whole = min(len(values) // dtype.itemsize * dtype.itemsize, left)
            if whole < left:
                rest = values[whole:][: dtype.itemsize]
            else:
                rest = b""
            left -= whole
            part = np.frombuffer(values[:whole], dtype)
            # Read to the end, because the archive compares its checksum there.
            yield part.byteswap() if header.swapped else part

    return read


def _by_columns(
    archive: Archive, member: Member, header: arrays.Header
) -> Callable[[], Iterator[Array]]:
    def read() -> Iterator[Array]:
        # Rows need the whole array, so it is written to a temporary file, to save memory.
        with tempfile.NamedTemporaryFile() as inflated:
            for block in archive.open_blocks(member):
                inflated.write(block)
            inflated.flush()
            yield from arrays.stored_at(header, inflated.name, 0).blocks()

    return read


def _packed(held: dict[str, str]) -> bytes:
    return _MARK + json.dumps(held, separators=(",", ":")).encode()


def _commented(comment: bytes, where: str) -> dict[str, str]:
    if not comment.startswith(_MARK):
        if comment:
            return {_COMMENT: comment.decode("utf-8", "replace")}
        return {}
    try:
        pairs, end = strings(comment, len(_MARK))
    except Cut as cut:
        raise FileFormatError(f"The comment of {where} cannot be read: {cut}.") from cut
    if len(dict(pairs)) != len(pairs) or end != len(comment):
        raise FileFormatError(f"The comment of {where} has a string twice, or more than strings.")
    return dict(pairs)


FORMAT = _Npz()
