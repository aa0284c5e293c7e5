"""Find the format of a path, and open it: a file or a folder of shards.

Outside packages may bring formats.
"""

from __future__ import annotations

import errno
import importlib
import importlib.util
import os
import pkgutil
import stat
import threading
from functools import cache
from typing import TYPE_CHECKING, Any

from ... import hints
from ...errors import (
    ConversionError,
    FileFormatError,
    FormatLimitError,
    UnsafeFileError,
    nearest,
    shown,
)
from ...hints import Hint
from ...host.plugins import EntryPoints
from ..base.contents import Contents, FileFinding
from ..base.format import Format
from ..base.raw import is_on_server, names_url
from ..base.wording import named, path_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ..base.stored import Stored
    from .shard_files import ShardIndex

__all__ = [
    "asked_for",
    "check_folder",
    "each_format",
    "format_for",
    "format_named",
    "format_of",
    "formats",
    "index_of",
    "lone",
    "may_end_process",
    "open_path",
    "outside",
    "own_formats",
    "place_of",
    "recognised",
    "refuse_name",
    "url_of_target",
    "validate_options",
]

_HEAD = 512
"""How many of the first bytes of a file are shown to the formats."""


_IMAGE = ("an image", "to_numpy(PIL.Image.open({path!r}))")
_READERS: dict[str, tuple[str, str]] = {
    ".csv": ("a table of text", 'convert_tree(pd.read_csv({path!r}), "numpy")'),
    ".tsv": ("a table of text", 'convert_tree(pd.read_csv({path!r}, sep="\\t"), "numpy")'),
    ".jsonl": ("rows of JSON", 'convert_tree(pd.read_json({path!r}, lines=True), "numpy")'),
    ".xlsx": ("a spreadsheet", 'convert_tree(pd.read_excel({path!r}), "numpy")'),
    ".json": ("JSON", "json.load(open({path!r})), whose lists of numbers to_numpy takes"),
    ".wav": ("sound", "to_numpy(scipy.io.wavfile.read({path!r})[1])"),
    ".mat": ("a file of MATLAB", 'convert_tree(scipy.io.loadmat({path!r}), "numpy")'),
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"), _IMAGE),
}
"""What files with these suffixes are, and the code of other libraries that reads them."""


def formats() -> dict[str, Format]:
    """All formats by name: this package's, and those of outside packages, which are looked up."""
    outside.open_all()
    return {
        format_.name: format_
        for format_ in sorted([*own_formats(), *_brought.values()], key=_rank_of)
    }


def each_format() -> Iterator[Format]:
    """Yield this package's formats, then those of outside packages, looked up only then."""
    yield from own_formats()
    yield from _others()


@cache
def own_formats() -> tuple[Format, ...]:
    """This package's formats."""
    return tuple(sorted(map(_format_in, _modules().values()), key=_rank_of))


@cache
def _format_in(module: str) -> Format:
    format_: Format = importlib.import_module(module).FORMAT
    return format_


@cache
def _modules() -> dict[str, str]:
    """The modules of this package's formats, by the last part of their names. None is imported."""
    from .. import formats as package

    folder = package.__name__
    tables = f"{folder.rpartition('.')[0]}.tables"
    modules = {
        module.name: f"{folder}.{module.name}" for module in pkgutil.iter_modules(package.__path__)
    }
    return modules | {name: f"{tables}.{name}" for name in package.TABLES}


def _others() -> Iterator[Format]:
    outside.search()
    yield from sorted(_brought.values(), key=_rank_of)


_brought: dict[str, Format] = {}


def _make(name: str, brought: Any) -> Format:
    """The format of an entry point, which may be an instance or a class."""
    if isinstance(brought, type) and issubclass(brought, Format):
        made = brought()
    else:
        made = brought
    kind = type(made).__qualname__
    if not isinstance(made, Format):
        raise TypeError(
            f"a format is an instance of tensorferry.files.base.format.Format, not of {kind}"
        )
    declared: dict[str, Any] = {
        field: getattr(made, field) for field in ("name", "suffixes", "dtypes", "rank")
    }
    if not isinstance(declared["suffixes"], tuple) or not all(
        isinstance(suffix, str) for suffix in declared["suffixes"]
    ):
        raise TypeError(f"{kind}.suffixes must be a tuple of strings")
    if not isinstance(declared["dtypes"], frozenset) or not isinstance(declared["rank"], int):
        raise TypeError(
            f"{kind}.dtypes must be a frozenset of names, and {kind}.rank a whole number"
        )
    if made.index_suffix and not made.suffixes:
        raise TypeError(f"{kind} has an index_suffix, and no suffix that it is put after")
    if declared["name"] != name:
        raise ValueError(
            f"its entry point is named {name!r}, and its format {made.name!r}: both need one name"
        )
    return made


outside: EntryPoints[Format] = EntryPoints(
    "tensorferry.formats",
    "format",
    known=lambda: _brought,
    own=lambda: {format_.name for format_ in own_formats()},
    make=_make,
    keep=lambda made: _brought.setdefault(made.name, made),
    lock=threading.RLock(),
)
"""The formats of outside packages."""


def _namesake(path: Path) -> list[Format]:
    """The format for the file's suffix.

    Mostly it is the right one, so that the others need not be imported.
    """
    from .. import formats as package

    suffix = path.suffix[1:].lower()
    wanted = package.MODULES.get(suffix, suffix)
    if wanted in package.TABLES:
        return [_format_in(_modules()[wanted])]
    # To list the modules takes as long as to import one.
    if not wanted.isidentifier() or wanted.startswith("_"):
        return []
    module = f"{package.__name__}.{wanted}"
    if importlib.util.find_spec(module) is None:
        return []
    return [_format_in(module)]


def _rank_of(format: Format) -> tuple[int, str]:  # noqa: A002 - the term
    return format.rank, format.name


def format_named(name: str) -> Format:
    """The format of this name.

    Raises:
        ValueError: No format has this name.
        FrameworkNotInstalledError: It is a broken one of an outside package.
    """
    format_ = next(
        (known_format for known_format in own_formats() if known_format.name == name), None
    ) or outside.open(name)
    if format_ is None:
        names = [*(known_format.name for known_format in own_formats()), *outside.names()]
        meant = nearest(str(name), names)
        raise ValueError(
            f"to must be the name of a format, one of {', '.join(names)}, not {shown(name)}"
            + (f". Did you mean {meant!r}?" if meant else "")
        )
    return format_


def format_of(path: Path) -> Format:
    """The format of a file that exists, by its first bytes.

    Raises:
        FileNotFoundError: There is no such file.
        FileFormatError: It is not of a known format, or a URL.
    """
    head = b""
    # A path that does not exist may still be the common prefix of the names of several files.
    mode = _mode(path)
    if mode is None:
        from ..base.urls import refuse_url  # here, because only an error needs it

        refuse_url(path)
    elif not stat.S_ISDIR(mode):
        if not stat.S_ISREG(mode):
            # To open a pipe would wait for a writer.
            raise FileFormatError(
                f"{path} is neither a file nor a folder, and cannot be read at any place.",
                "the path of a file that holds the same",
            )
        with path.open("rb") as file:
            head = file.read(_HEAD)
        if not head:
            raise FileFormatError(f"{path} is empty: it has no bytes.", "get the file again")
    # Outside packages are looked up only if needed, because that takes long.
    recognised_format = recognised(path, head, _namesake(path)) or recognised(
        path, head, each_format()
    )
    if recognised_format is not None:
        return recognised_format
    if mode is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    broken = outside.failure({suffix[1:].lower() for suffix in path.suffixes})
    if broken is not None:
        raise FileFormatError(
            f"{path} is of no format that tensorferry knows. {broken.message}", broken.advice
        )
    from ..encodings.wrapped import wrapped  # here, because only an error needs it

    inside = wrapped(path, head)
    if inside is not None:
        raise inside
    named = next(
        (known_format for known_format in own_formats() if known_format.is_named(path, head)), None
    )
    if named is not None:
        return named
    refused = f"{path} is of no format that tensorferry knows"
    reader = _READERS.get(path.suffix.lower())
    if reader is not None:
        kind, code = reader
        raise FileFormatError(f"{refused}: it is {kind}.", code.format(path=str(path)))
    raise FileFormatError(f"{refused}: it knows {', '.join(formats())}.")


def may_end_process(path: Path) -> bool:
    """Whether a path's library may end the process: by a file's first bytes or a folder's names."""
    from ..formats import is_fragile, is_fragile_folder

    if names_url(path):
        return False  # no library reads it
    mode = _mode(path)
    if mode is None or not stat.S_ISREG(mode):
        return mode is not None and stat.S_ISDIR(mode) and is_fragile_folder(path)
    with path.open("rb") as file:
        return is_fragile(path.name, file.read(_HEAD))


def _mode(path: Path) -> int | None:
    """The mode of a path; ``None`` if it does not exist."""
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None


def recognised(path: Path, head: bytes, among: Iterable[Format]) -> Format | None:
    """The first format that recognises a file or a folder."""
    for format_ in among:
        with outside.guard(format_.name):
            if format_.recognises(path, head):
                return format_
    return None


def format_for(path: Path) -> Format:
    """The format to write to a path, by suffix; one that can only be read if no other has it.

    Raises:
        FileFormatError: No format has this suffix.
    """
    name = path.name.lower()
    for among in (own_formats, _others):
        fitting = [
            (format_.writes, len(suffix), format_)
            for format_ in among()
            for suffix in format_.suffixes
            if name.endswith(suffix)
        ]
        if fitting:
            # The first of those that are equally good.
            return max(fitting, key=lambda fit: fit[:2])[2]
    if path.suffix:
        other = f", in a file such as {path.stem}.safetensors"
    else:
        other = ""
    raise FileFormatError(
        f"The name {path.name} does not say which format to write.",
        Hint(hints.keyword("to", "safetensors"), other),
    )


_MOST_TOLD = 3


def open_path(
    path: Path,
    *,
    allow: frozenset[str] = frozenset(),
    lacking: list[FileFormatError] | None = None,
    partly: bool = False,
    names: Sequence[str] = (),
) -> Contents:
    """The contents of a file, or of all shards of a folder together.

    Args:
        path: A file, a folder of shards, or the index of one; or a URL of one, as a string.
        allow: As for `Format.read`.
        lacking: A list to which the error for missing shards is appended; then their tensors are in
            ``others``. Without it, the error is raised.
        partly: Whether only a part of it is used, as for `Format.read_partly`.
        names: Patterns of the tensors that are used, if there are others: a server is asked for no
            shard that has none of them.

    Raises:
        OSError: It cannot be read.
        FileFormatError: It breaks the rules of its format, or is not of a known one; or index and
            shards differ, which the message names.
        UnsafeFileError: As for `Format.read`; or the index leads out of the folder.
        FrameworkNotInstalledError: The library that its format needs is not installed.
    """
    if names_url(path) and not is_on_server(path):
        path = place_of(path, "open(path)")
    index = index_of(path)
    if index is not None:
        format_ = _format_of_index(index)
        return _together(index, format_, allow, lacking, partly=partly, names=names)
    if is_on_server(path):
        return _read_remotely(path, allow, partly=partly)
    if path.is_dir():
        path = lone(path)
    format_ = format_of(path)
    format_.ensure_loaded()
    contents = (format_.read_partly if partly else format_.read)(path, allow=allow)
    contents.own = format_.owned(contents.metadata)
    return contents


def place_of(path: object, call: str, options: Mapping[str, Any] | None = None) -> Path:
    """The path that was given to a function, or the `RemoteFile` that a URL is of.

    Args:
        path: What was given: only a string is a URL.
        call: The function and its argument, for messages.
        options: What the file system of a URL is made with.

    Raises:
        TypeError: It is neither; or `options` is no mapping from names.
        UnsupportedTypeError: It is a buffer or an open file.
        FileFormatError: It is a URL that cannot be read, or `options` are for none.
    """
    if options is not None:
        validate_options(options)
    if isinstance(path, str) and "://" in path:
        from .servers import place_at  # here, because most files are on this machine

        return place_at(path, options)
    local = path_of(path, call)
    if options:
        from ..base.urls import refuse_options  # here, because only an error needs it

        refuse_options(local)
    return local


def url_of_target(path: object, options: Mapping[str, Any] | None = None) -> str | None:
    """A target, if it is a URL; ``None`` if it is a path of this machine.

    Args:
        path: What was given: only a string is a URL.
        options: What its file system is made with.

    Raises:
        TypeError: `options` is no mapping from names.
        FileFormatError: `options` are for no URL.
    """
    if options is not None:
        validate_options(options)
    if isinstance(path, str) and "://" in path:
        from ..remote.addresses import is_url  # here, because most files are on this machine

        if is_url(path):
            return path
    if options and isinstance(path, (str, os.PathLike)):
        from ..base.urls import refuse_options  # here, because only an error needs it

        refuse_options(os.fspath(path))
    return None


def validate_options(options: Any) -> None:
    """Raise for ``storage_options`` that are no mapping from names; no message has a value.

    Raises:
        TypeError: They are not.
    """
    if not hasattr(options, "keys") or not all(isinstance(key, str) for key in options.keys()):  # noqa: SIM118 - a mapping of any kind
        raise TypeError(
            "storage_options must be a mapping from names to values, such as {'anon': True}, not "
            f"{type(options).__name__}"
        )


def _read_remotely(file: Any, allow: frozenset[str], *, partly: bool) -> Contents:
    """The contents of one file on a server, of which only headers are read.

    Raises:
        FileFormatError: It is of no format of which parts can be read.
    """
    from .servers import head_of, prepare, remotely

    head = head_of(file, _HEAD)
    among = [format_named(name) for name in _REMOTE]
    format_: Any = recognised(file, head, among)
    if format_ is None:
        titles = ", ".join(known_format.title for known_format in among)
        raise file.refuse(f"is of no format that is read from servers in parts, as {titles} are")
    prepare(file, format_.name)
    contents = (format_.read_partly if partly else format_.read)(file, allow=allow)
    contents.own = format_.owned(contents.metadata)
    return remotely(file, contents)


_REMOTE = ("safetensors", "pytorch", "npy", "npz", "gguf")
"""The formats that are read from servers, in the order in which they are tried."""


def asked_for(path: Path) -> tuple[str, tuple[str, ...]]:
    """The format of a file that `open_path` refuses, and the globals it asks for, as far as found.

    Raises:
        OSError: As for `open_path`.
        FileFormatError: It is not of a known format.
    """
    index = index_of(path)
    if index is None:
        place = lone(path) if path.is_dir() else path
        format_ = format_of(place)
        return format_.name, _asks(format_, place)
    from .shard_files import ShardIndex  # here, because most models are one file

    format_ = _format_of_index(index)
    asks: dict[str, None] = {}
    try:
        for name in ShardIndex.read(index).files():
            shard = _shard_path(index, name)
            asks |= dict.fromkeys(_asks(format_, shard) if shard is not None else ())
    except ConversionError:
        pass  # names that lead out of the folder are not followed
    return format_.name, tuple(asks)


def _asks(format_: Format, path: Path) -> tuple[str, ...]:
    try:
        return format_.asks_for(path)
    except ConversionError:
        return ()


def index_of(path: Path) -> Path | None:
    """The index at a path, or in the folder at a path; ``None`` if there is none.

    Raises:
        FileFormatError: There are several, and none has the usual name.
    """
    if not path.is_dir():
        if _format_named_in(path) is not None and path.is_file():
            return path
        return None
    names = {entry.name for entry in path.iterdir()}
    index = _index_among(path, names, own_formats())
    if index is None and _lone_among(path, own_formats()) is None:
        index = _index_among(path, names, each_format())
    return index


def _index_among(folder: Path, names: Collection[str], among: Iterable[Format]) -> Path | None:
    from .shard_files import index_name

    for format_ in among:
        if not format_.index_suffix:
            continue
        if index_name(format_) in names:
            return folder / index_name(format_)
        indexes = sorted(name for name in names if _is_index(name, format_))
        if len(indexes) > 1:
            from ..base.urls import path_hint  # here, because only an error needs it

            raise FileFormatError(
                f"{folder} has several indexes: {named(indexes)}.", path_hint(folder / indexes[0])
            )
        if indexes:
            return folder / indexes[0]
    return None


def _is_index(name: str, format: Format) -> bool:  # noqa: A002 - the term
    suffix = format.index_suffix
    return bool(suffix) and any(
        name.lower().endswith(suffix_of_file + suffix) for suffix_of_file in format.suffixes
    )


def check_folder(index: Path, *, allow: frozenset[str] = frozenset()) -> Iterator[FileFinding]:
    """Find what is wrong with an index's shards, by their format's rules, and against the index.

    Raises:
        OSError: A file cannot be read.
        UnsafeFileError: As for `open_path`.
    """
    from .shard_files import ShardIndex

    format_ = _format_of_index(index)
    try:
        plan = ShardIndex.read(index)
    except FileFormatError as error:
        yield FileFinding(str(index), None, None, error.message)
        return
    shards: dict[str, Contents] = {}
    for name in plan.files():
        shard = _shard_path(index, name)
        if shard is None:
            yield FileFinding(
                str(index), None, None, f"the shard {name} is missing, with {named(plan.of(name))}"
            )
            continue
        held = format_.tried(shard, allow)
        findings = list(format_.check(shard, allow=allow, found=held))
        yield from findings
        if not isinstance(held, ConversionError):
            shards[name] = held
        elif not findings:
            yield FileFinding(str(shard), None, None, held.message)
    for tensor, message in plan.differences(shards):
        yield FileFinding(str(index), None, tensor, message)
    if set(shards) == set(plan.files()):
        try:
            _merged(index, format_, plan, shards)
        except FileFormatError as error:
            if not any(plan.differences(shards)):
                yield FileFinding(str(index), None, None, error.message)


def _format_of_index(index: Path) -> Format:
    format_ = _format_named_in(index)
    if format_ is None:
        raise FileFormatError(
            f"The name {index.name} does not say of which format's shards it is the index."
        )
    return format_


def _format_named_in(path: Path) -> Format | None:
    """The format whose index has such a name; ``None`` if it is not the name of an index."""
    among = each_format() if path.name.lower().endswith(".json") else ()
    return next((format_ for format_ in among if _is_index(path.name, format_)), None)


def refuse_name(path: Path, format: Format) -> None:  # noqa: A002 - the term
    """Raise for a new file's name that could be read as something else, here or by other programs.

    Raises:
        FormatLimitError: The message says as what.
    """
    if _format_named_in(path) is not None:
        kind = "an index of shards"
    else:
        other = next(
            (
                claimant
                for claimant in own_formats()
                if claimant is not format and claimant.claims(path.name)
            ),
            None,
        )
        other = other or _said_by_suffix(path, format)
        if other is None:
            return
        kind = f"another format ({other.title or other.name})"
    from ..base.limits import FileHint, Words  # here, because only an error needs it

    better = f"{path.name.partition('.')[0] or format.shard_stem}{''.join(format.suffixes[:1])}"
    other_path = path.with_name(better)
    raise FormatLimitError(
        f"{path.name} is the name of {kind}, so it cannot be that of a file of "
        f"{format.title or format.name}.",
        FileHint(
            Words(Hint(hints.OtherOutput(str(other_path))), f"save(x, {str(other_path)!r})"),
        ),
    )


def _said_by_suffix(path: Path, format: Format) -> Format | None:  # noqa: A002 - the term
    """The other format here whose suffix a name has; ``None`` if it has this format's, or none."""
    name = path.name.lower()
    if name.endswith((*format.suffixes, *format.other_suffixes)):
        return None
    named_so = [
        (len(suffix), other)
        for other in own_formats()
        for suffix in other.suffixes
        if name.endswith(suffix)
    ]
    if named_so:
        return max(named_so, key=lambda pair: pair[0])[1]
    return None


def lone(folder: Path) -> Path:
    """The folder itself, for formats that are folders; otherwise the usually named file in it.

    Raises:
        FileFormatError: There is no such file, and the folder is not of a known format.
    """
    file = _lone_among(folder, own_formats()) or _lone_among(folder, each_format())
    if file is not None:
        return file
    known = [
        f"*{format_.suffixes[0]}{format_.index_suffix}"
        for format_ in formats().values()
        if format_.index_suffix
    ]
    raise FileFormatError(
        f"{folder} is a folder without an index of shards ({', '.join(known)}), and of no format "
        "that is a folder.",
        "the path of a file in it",
    )


def _lone_among(folder: Path, among: Iterable[Format]) -> Path | None:
    among = list(among)
    # A trainer may save the file of the model beside the files of its processes.
    usual = (
        folder / f"{format_.shard_stem}{format_.suffixes[0]}"
        for format_ in among
        if format_.index_suffix
    )
    file = next((path for path in usual if path.is_file()), None)
    if file is None and recognised(folder, b"", among) is not None:
        return folder
    return file


def _shard_path(index: Path, name: str) -> Path | None:
    """A shard's path: by the index or, if both are links (hub cache), its target; or ``None``."""
    if is_on_server(index):
        remote: Any = index
        return remote.sibling(name)  # type: ignore[no-any-return]
    shard = index.parent / name
    if not shard.is_file():
        return None
    real = shard.resolve().parent
    if real not in (index.parent.resolve(), index.resolve().parent):
        raise UnsafeFileError(
            f"{shard} is a link that leads out of its folder, to {shard.resolve()}."
        )
    return shard


def _together(
    index: Path,
    format_: Format,
    allow: frozenset[str],
    lacking: list[FileFormatError] | None = None,
    *,
    partly: bool = False,
    names: Sequence[str] = (),
) -> Contents:
    from .shard_files import ShardIndex

    plan = ShardIndex.read(index)
    if names and is_on_server(index):
        from .servers import needed

        plan.weight_map = needed(plan.weight_map, plan.metadata, names)
    places = {name: _shard_path(index, name) for name in plan.files()}
    missing = {name: plan.of(name) for name, place in places.items() if place is None}
    if missing:
        told = "; ".join(
            f"{name}, with {named(of)}" for name, of in [*missing.items()][:_MOST_TOLD]
        )
        if len(missing) > _MOST_TOLD:
            more = f"; {len(missing) - _MOST_TOLD} more"
        else:
            more = ""
        error = FileFormatError(
            f"{index} names shards that are missing: {told}{more}.", "get them too"
        )
        if lacking is None:
            raise error
        lacking.append(error)
    format_.ensure_loaded()
    if is_on_server(index):
        from .servers import begin_all

        begin_all(places.values())
        shards = {
            name: _read_remotely(place, allow, partly=partly) for name, place in places.items()
        }
    else:
        read = format_.read_partly if partly else format_.read
        shards = {
            name: read(place, allow=allow) for name, place in places.items() if place is not None
        }
    different = list(plan.differences(shards))
    if different:
        first = "; ".join(f"{tensor}: {message}" for tensor, message in different[:3])
        if len(different) > 3:
            more = f"; {len(different) - 3} more"
        else:
            more = ""
        raise FileFormatError(f"{index} and its shards contradict each other: {first}{more}.")
    if not missing:
        return _merged(index, format_, plan, shards)
    from ..base.tree_strings import TIES, TREE  # here and below, because most models are one file

    # The tree and the ties are for all shards, so they are left out if some are missing.
    plan.metadata = {key: text for key, text in plan.metadata.items() if key not in (TIES, TREE)}
    there = _merged(index, format_, plan, shards)
    there.others |= {
        tensor: f"its shard {name} is missing" for name, of in missing.items() for tensor in of
    }
    return there


def _merged(
    index: Path, format_: Format, plan: ShardIndex, shards: Mapping[str, Contents]
) -> Contents:
    paths = tuple(path for shard in shards.values() for path in shard.paths)
    whole = Contents(format_.name, (*paths, str(index)), metadata=dict(plan.metadata))
    tied: dict[str, Stored] = {}
    for name, shard in shards.items():
        tied |= {
            tensor: stored
            for tensor, stored in shard.tensors.items()
            if tensor not in plan.weight_map
        }
        whole.others |= shard.others
        for key, text in shard.metadata.items():
            if whole.metadata.setdefault(key, text) != text:
                whole.metadata[f"{key} ({name})"] = text
        whole.asks_for = tuple(dict.fromkeys((*whole.asks_for, *shard.asks_for)))
        whole.refuses = tuple(dict.fromkeys((*whole.refuses, *shard.refuses)))
    for tensor, file in plan.weight_map.items():
        if file in shards and tensor in shards[file].tensors:
            whole.tensors[tensor] = shards[file].tensors[tensor]
    from ..base.tree_strings import TIES, unpack

    if TIES not in whole.metadata:
        whole.tensors |= tied
    unpacked = unpack(whole)
    lost = [tensor for tensor in tied if tensor not in unpacked.tensors]
    if lost:
        raise FileFormatError(f"{index} does not mention {named(lost)}, which its shards have.")
    if unpacked.tree is None and any(shard.tree is not None for shard in shards.values()):
        from .shard_files import merged_tree  # here, because most models are one file

        unpacked.tree = merged_tree(list(shards.values()))
    unpacked.own = format_.owned(unpacked.metadata)
    return unpacked
