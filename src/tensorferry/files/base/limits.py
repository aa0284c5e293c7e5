"""What a file cannot hold, and what to do about it, in the words of the function that was called.

The code that raises the error knows tensors, keys and metadata. Which patterns and dtypes a call
has already, or how the tree in memory is nested, only the function that was called knows: it asks
the `FileHint` for its own ways.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from glob import escape
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol

import numpy as np

from ... import hints
from ...core.dtypes import fitting_dtype
from ...core.leaf_dtypes import DtypeRule, with_choice, with_others
from ...core.names import EXCHANGE
from ...errors import ConversionError, FormatLimitError, LossyCastError, TreeError
from ...hints import Hint, quoted
from .contents import MOST_TENSORS
from .format import INSTEAD
from .nesting import free_name, keys_of
from .wording import as_unicode, is_unicode, named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ...hints import Caller
    from .contents import Contents
    from .format import Format

__all__ = [
    "IN_SHARDS",
    "OTHER_FORMAT",
    "TENSORS_ONLY",
    "FileHint",
    "Given",
    "InPlace",
    "Keyed",
    "Leaving",
    "Metadataless",
    "OneOf",
    "OtherDtypes",
    "Renamed",
    "Saved",
    "Undecoded",
    "Without",
    "Words",
    "complete",
    "completed",
    "in_place_of_scalar",
    "other_names",
    "refuse_contents",
    "renamed_by",
    "text_keys",
    "uncast",
    "uncast_by",
]

_MOST_LISTED = 20
"""Of more tensors, a hint does not list the names."""
_MARKS = "/|#!,;%@"
"""What may stand between the parts of a substitution."""
_NO_TENSORS = ", which leaves out what is not a tensor"
TENSORS_ONLY = Hint(hints.keyword("tensors_only", True), _NO_TENSORS)
"""The hint to leave out what is not a tensor."""


class Given(NamedTuple):
    """What a call of `convert_files` or `load` has already.

    Args:
        exclude: What it leaves out.
        rename: Its substitutions.
        rule: Its rule for dtypes.
        metadata: What it puts among the metadata.
        sources: For the name of a tensor in the output, its name in the source, if that is another.
        dtypes: The dtype of each tensor in the source.
        nests: Whether the source has values that are no tensors, or nests.
        names: The names in the source of all that it takes; empty if they are not known.
        renamed: For each substitution, the names in the source that it changes.
    """

    exclude: tuple[str, ...] = ()
    rename: tuple[str, ...] = ()
    rule: DtypeRule = DtypeRule()
    metadata: Mapping[str, str] = {}
    sources: Mapping[str, str] = {}
    dtypes: Mapping[str, str] = {}
    nests: bool = False
    names: frozenset[str] = frozenset()
    renamed: Mapping[str, frozenset[str]] = {}

    def source(self, name: str) -> str:
        """The name in the source of a tensor in the output."""
        return self.sources.get(name, name)


class Saved(NamedTuple):
    """What a call of `save` has.

    Args:
        tree: The tree, which is `x` in a hint.
        metadata: The metadata.
        open_node: Gives the names, places and values in an object that is no dict, list or tuple;
            ``None`` if it has none.
    """

    tree: Any
    metadata: Mapping[str, str] = {}
    open_node: Callable[[Any], Any] = lambda _: None

    def at(self, keys: tuple[Any, ...]) -> tuple[str, Any]:
        """The code for a place in the tree, and what is there.

        Args:
            keys: The keys that lead to it in the file, perhaps as text.

        Raises:
            LookupError: They lead nowhere.
        """
        code, node = "x", self.tree
        for key in keys:
            entry, node = self._child(node, key)
            code += entry
        return code, node

    def _child(self, node: Any, key: Any) -> tuple[str, Any]:
        if isinstance(node, Mapping):
            if key in node:
                real_key = key
            else:
                real_key = next(
                    (other_key for other_key in node if str(other_key) == str(key)), None
                )
            if real_key is None:
                raise LookupError(key)
            return f"[{_plain(real_key)!r}]", node[real_key]
        if isinstance(node, (list, tuple)) and str(key).isdecimal():
            return f"[{int(key)}]", node[int(key)]
        opened = self.open_node(node)
        if opened is None and key in getattr(node, "_fields", ()):
            return f".{key}", getattr(node, key)
        for name, entry, child in opened or ():
            if name == str(key):
                return entry, child
        raise LookupError(key)


def _plain(key: Any) -> Any:
    """A key as it is written in code: a scalar of NumPy's is found by the number that it equals."""
    return key.item() if isinstance(key, np.generic) else key


class FileWay(Protocol):
    """One way of a hint about a file."""

    def for_files(self, given: Given) -> Hint | None:
        """What `convert_files` or `load` is told; ``None`` if there is nothing."""

    def for_save(self, saved: Saved) -> Hint | None:
        """What `save` is told; ``None`` if there is nothing."""


class FileHint(Hint):
    """A hint with ways for `convert_files`, and other ways for `save`, where `x` is the tree.

    >>> hint = FileHint(Leaving(), Without({"a": ("a",)}))
    >>> hint
    'tensors_only=True, which leaves out what is not a tensor;
    or exclude=["a"], which leaves it out'
    >>> hint.for_files(Given(exclude=("b",)))
    'tensors_only=True, which leaves out what is not a tensor;
    or exclude=["b", "a"], which leaves it out'
    >>> hint.for_save(Saved({"a": 1, "b": 2}))
    "{key: value for key, value in x.items() if key != 'a'} in its place, which leaves it out"

    Args:
        file_ways: The ways, the best one first.
    """

    __slots__ = ("file_ways",)
    file_ways: tuple[FileWay, ...]

    def __init__(self, *file_ways: FileWay) -> None:
        for_files = _either(way.for_files(Given()) for way in file_ways)
        super().__init__(*([] if for_files is None else [for_files]))
        self.file_ways = file_ways

    def __reduce__(self) -> tuple[Any, ...]:
        return _file_hint, (self.file_ways, self.caller)

    def for_call(self, caller: Caller) -> FileHint:
        """The hint, for the call that the user made."""
        return _file_hint(self.file_ways, caller)

    def for_files(self, given: Given) -> Hint | None:
        """The hint for a call that has some keywords already; ``None`` if there is no way."""
        return _either(way.for_files(given) for way in self.file_ways)

    def for_save(self, saved: Saved) -> Hint | None:
        """The hint for a call of `save`; ``None`` if there is no way."""
        return _either(way.for_save(saved) for way in self.file_ways)


def _file_hint(file_ways: Iterable[FileWay], caller: Caller) -> FileHint:
    made = FileHint(*file_ways)
    made.caller = caller
    return made


def _either(possible_hints: Iterable[Hint | None]) -> Hint | None:
    """One hint with the ways of several; ``None`` if they have none."""
    ways = [way for hint in possible_hints if hint is not None for way in hint.ways]
    return Hint.of_ways(ways) if ways else None


def complete(error: ConversionError, call: Given | Saved) -> None:
    """Put what a call has already into the hints of an error that depend on it."""
    for single in error.exceptions if isinstance(error, TreeError) else (error,):
        hint = single.advice
        if isinstance(hint, FileHint):
            if isinstance(call, Saved):
                hint = hint.for_save(call)
            else:
                hint = hint.for_files(call)
        if isinstance(call, Given):
            hint = leaving_something(hint, call)
        if hint is not single.advice:
            single.advise(hint)


def leaving_something(hint: Hint | None, given: Given) -> Hint | None:
    """A hint without the way that leaves out all that a call takes; ``None`` if it has no other.

    >>> hint = Hint(hints.keyword("pad", 0)) | Hint(
    ...     hints.keyword("exclude", ["a"]), ", and no more"
    ... )
    >>> leaving_something(hint, Given(names=frozenset("a")))
    'pad=0'
    >>> leaving_something(hint, Given(names=frozenset("ab"))) is hint
    True
    """
    if hint is None or not given.names:
        return hint
    if not any(_leaves_nothing(way, given.names) for way in hint.ways):
        return hint
    return hint.where(lambda way: not _leaves_nothing(way, given.names))


def _leaves_nothing(way: hints.Way, names: Iterable[str]) -> bool:
    globs = dict(hints.pairs_in(way)).get("exclude")
    if not isinstance(globs, list) or not globs:
        return False
    return all(any(fnmatchcase(name, glob) for glob in globs) for name in names)


@contextmanager
def completed(given: Callable[[], Given]) -> Iterator[None]:
    """A context whose errors have hints for a call that has some keywords already."""
    try:
        yield
    except ConversionError as error:
        complete(error, given())
        raise


def uncast(error: ConversionError, call: Given, name: str, target: Caller) -> Hint | None:
    """The hint of an error about a loaded tensor; not to cast it, if one value does not fit.

    Args:
        error: The error.
        call: What the call has already; of `dtypes`, that of the tensor.
        name: The name of the tensor.
        target: The call, with what is known of the framework.
    """
    if not (isinstance(error, LossyCastError) and error.is_of_value):
        return error.advice
    if target.lacks(call.dtypes[name]):
        without = leaving_something(Without({name: ()}).for_files(call), call)
        other = Hint(hints.keyword("to", EXCHANGE), f", which has {call.dtypes[name]}")
        return _either((without, other))
    return uncast_by(call.rule, name)


def uncast_by(rule: DtypeRule, name: str) -> Hint:
    """The hint not to cast one tensor, beside what a rule for dtypes says of others."""
    dtype = with_choice(rule, name, None).as_mapping()
    return Hint(hints.keyword("dtype", dtype), ", which leaves it as it is")


# -- the ways --------------------------------------------------------------------------------------


class Words(NamedTuple):
    """A way that does not depend on the call.

    Args:
        files: For `convert_files`.
        save: For `save`.
    """

    files: str | Hint
    save: str | Hint

    def for_files(self, given: Given) -> Hint:  # noqa: D102
        del given
        return Hint.of(self.files)

    def for_save(self, saved: Saved) -> Hint:  # noqa: D102
        del saved
        return Hint.of(self.save)


class Leaving(NamedTuple):
    """To leave out what is not a tensor.

    Args:
        save: What `save` does instead.
    """

    save: Hint | None = None

    def for_files(self, given: Given) -> Hint:  # noqa: D102
        del given
        return TENSORS_ONLY

    def for_save(self, saved: Saved) -> Hint | None:  # noqa: D102
        del saved
        return self.save


class Without(NamedTuple):
    """To leave out some tensors.

    Args:
        keys: For the name of each, the keys that lead to it.
    """

    keys: Mapping[str, tuple[Any, ...]]

    def for_files(self, given: Given) -> Hint | None:  # noqa: D102
        if not 0 < len(self.keys) <= _MOST_LISTED:
            return None
        gone = [given.source(name) for name in self.keys]
        globs = [*given.exclude, *map(escape, gone)]
        # A substitution has to change a name.
        rename = [text for text in given.rename if given.renamed.get(text, _NONE).difference(gone)]
        exclude = hints.keyword("exclude", globs)
        if len(rename) == len(given.rename):
            keywords = Hint(exclude)
        elif rename:
            keywords = Hint(hints.keywords(exclude=globs, rename=rename))
        else:
            keywords = Hint(exclude, ", ", hints.without("rename"))
        return keywords + f", which leaves {self._them} out"

    def for_save(self, saved: Saved) -> Hint | None:  # noqa: D102
        in_one_dict = _in_one_dict(saved, self.keys.values())
        if in_one_dict is None or len(self.keys) > _MOST_LISTED:
            return None
        code, keys = in_one_dict
        if len(keys) == 1:
            others = f"!= {keys[0]!r}"
        else:
            others = f"not in {tuple(keys)!r}"
        kept = f"{{key: value for key, value in {code}.items() if key {others}}}"
        return Hint(f"{kept} in its place, which leaves {self._them} out")

    @property
    def _them(self) -> str:
        return "it" if len(self.keys) == 1 else "them"


_NONE: frozenset[str] = frozenset()


class Renamed(NamedTuple):
    """To give some tensors other names.

    Args:
        keys: For the name of each, the keys that lead to it.
        taken: The names of all tensors.
        better: Makes a name that the format has of one that it has not.
    """

    keys: Mapping[str, tuple[Any, ...]]
    taken: frozenset[str]
    better: Callable[[str], str]
    in_tree: bool = True
    """Whether `save` may do so, too: the names are those of keys."""

    def for_files(self, given: Given) -> Hint | None:  # noqa: D102
        if not 0 < len(self.keys) <= _MOST_LISTED:
            return None
        new = _new_names(self.keys, self.taken, self.better)
        return renamed_by(
            [*given.rename, *(_substitution(*old_and_new) for old_and_new in new.items())]
        )

    def for_save(self, saved: Saved) -> Hint | None:  # noqa: D102
        if self.in_tree:
            in_one_dict = _in_one_dict(saved, self.keys.values())
        else:
            in_one_dict = None
        if in_one_dict is None or len(self.keys) > _MOST_LISTED:
            return None
        code, keys = in_one_dict
        taken = frozenset(map(str, saved.at(next(iter(self.keys.values()))[:-1])[1]))
        new = _new_names(map(str, keys), taken, self.better)
        return Hint(f"{_with_keys(code, new)} in its place")


def renamed_by(substitutions: list[str]) -> Hint:
    """The hint to rename tensors by these substitutions."""
    return Hint(hints.keyword("rename", hints.Written(substitutions, repr(substitutions))))


class OtherDtypes(NamedTuple):
    """To cast some tensors.

    Args:
        dtypes: For the name of each, its dtype.
        casts: For each of these dtypes, another one; without those that have none.
        remark: What comes after it, such as ``", which rounds"``.
    """

    dtypes: Mapping[str, str]
    casts: Mapping[str, str]
    remark: str = ""

    def for_files(self, given: Given) -> Hint | None:  # noqa: D102
        if not self._for_all:
            return None
        asked = [
            (given.dtypes.get(given.source(name), dtype), given.source(name), self.casts[dtype])
            for name, dtype in self.dtypes.items()
        ]
        return Hint(hints.keyword("dtype", with_others(given.rule, asked)), self.remark)

    def for_save(self, saved: Saved) -> Hint | None:  # noqa: D102
        del saved
        casts = ", ".join(f"{quoted(own)}: {quoted(other)}" for own, other in self.casts.items())
        if self._for_all:
            code = f'save(convert_tree(x, "numpy", dtype={{{casts}}}), path)'
            return Hint(hints.Code(code, stays=True), self.remark)
        return None

    @property
    def _for_all(self) -> bool:
        return self.casts.keys() >= set(self.dtypes.values())


class Undecoded(NamedTuple):
    """To take the bytes of quantised blocks as they are, if no dtype is asked for."""

    def for_files(self, given: Given) -> Hint | None:  # noqa: D102
        if given.rule == DtypeRule():
            return hints.without("dequantize") + ", which keeps it as it is"
        return None

    def for_save(self, saved: Saved) -> Hint | None:  # noqa: D102
        del saved
        return None


class OneOf(NamedTuple):
    """To take one tensor alone.

    Args:
        name: Its name.
        keys: The keys that lead to it.
    """

    name: str
    keys: tuple[Any, ...]

    def for_files(self, given: Given) -> Hint | None:  # noqa: D102
        keywords: dict[str, object] = {"include": [escape(given.source(self.name))]}
        if given.nests:
            keywords["tensors_only"] = True
        return Hint(hints.keywords(**keywords), ", or another of them")

    def for_save(self, saved: Saved) -> Hint | None:  # noqa: D102
        place = _place(saved, self.keys)
        return None if place is None else Hint(f"save({place}, path), or another of them")


class Metadataless(NamedTuple):
    """To leave out some metadata.

    Args:
        keys: Their keys.
    """

    keys: tuple[str, ...]

    def for_files(self, given: Given) -> Hint | None:  # noqa: D102
        given_by_call = [key in given.metadata for key in self.keys]
        keywords: hints.Pairs = ()
        if any(given_by_call):
            keywords += (("metadata", _without(given.metadata, self.keys)),)
        if all(given_by_call):
            return Hint(hints.Keywords(keywords)) if keywords else None
        return Hint(hints.Keywords((*keywords, ("tensors_only", True))), _NO_TENSORS)

    def for_save(self, saved: Saved) -> Hint | None:  # noqa: D102
        return Hint(hints.keyword("metadata", _without(saved.metadata, self.keys)))


class InPlace(NamedTuple):
    """To put something else at the place of a value.

    Args:
        keys: The keys that lead to it.
        code: What to put there, with ``{}`` for the place.
        remark: What comes after it.
    """

    keys: tuple[Any, ...]
    code: str
    remark: str = ""

    def for_files(self, given: Given) -> Hint | None:  # noqa: D102
        del given
        return TENSORS_ONLY

    def for_save(self, saved: Saved) -> Hint | None:  # noqa: D102
        place = _place(saved, self.keys)
        if place is None:
            return None
        return Hint(f"{self.code.format(place)} in its place{self.remark}")


def in_place_of_scalar(scalar: np.generic[Any], keys: tuple[Any, ...]) -> InPlace:
    """The way for a scalar of NumPy's whose dtype a file does not have.

    Args:
        scalar: The scalar.
        keys: The keys that lead to it.
    """
    code = {"f": "float({})", "c": "complex({})"}.get(scalar.dtype.kind)
    if code is None:
        return InPlace(keys, "str({})")
    return InPlace(keys, code, ", which rounds")


class Keyed(NamedTuple):
    """To give a dict other keys.

    Args:
        keys: The keys that lead to the dict.
        new: The new key for each that needs one; all become plain values without it.
    """

    keys: tuple[Any, ...]
    new: Mapping[Any, str] = {}

    def for_files(self, given: Given) -> Hint | None:  # noqa: D102
        del given
        return TENSORS_ONLY

    def for_save(self, saved: Saved) -> Hint | None:  # noqa: D102
        place = _place(saved, self.keys)
        if place is None:
            return None
        if self.new:
            return Hint(f"{_with_keys(place, self.new)} in its place")
        node = saved.at(self.keys)[1]
        if all(isinstance(_plain(key), (str, bytes, int, float)) for key in node):
            key = 'getattr(key, "item", lambda: key)()'
        elif len(set(map(str, node))) == len(node):
            key = "str(key)"
        else:
            key = "repr(key)"
        return Hint(f"{{{key}: value for key, value in {place}.items()}} in its place")


IN_SHARDS = FileHint(
    Words(
        Hint(hints.keyword("shard", "5GB")),
        'save(x, os.path.splitext(path)[0], to="safetensors", shard="5GB"), which makes a folder',
    )
)
OTHER_FORMAT = FileHint(Leaving(INSTEAD + " that has a place for it"))


def _place(saved: Saved, keys: tuple[Any, ...]) -> str | None:
    try:
        return saved.at(keys)[0]
    except LookupError:
        return None


def _in_one_dict(saved: Saved, places: Iterable[tuple[Any, ...]]) -> tuple[str, list[Any]] | None:
    """The code for the dict with the first of these places, and the keys of all in that dict."""
    places = list(places)
    if not places or not places[0]:
        return None
    above = places[0][:-1]
    try:
        code, node = saved.at(above)
    except LookupError:
        return None
    if not isinstance(node, Mapping):
        return None
    known = {str(key): key for key in node}
    keys = [known.get(str(place[-1]), place[-1]) for place in places if place[:-1] == above]
    return code, [_plain(key) for key in keys if key in node]


def _new_names(
    names: Iterable[str], taken: frozenset[str], better: Callable[[str], str]
) -> dict[str, str]:
    """A new name for each, which no other tensor has."""
    new: dict[str, str] = {}
    for name in names:
        wanted = better(name) or "tensor"
        free, number = wanted, 2
        while free in taken or free in new.values():
            free, number = better(f"{wanted}_{number}"), number + 1
        new[name] = free
    return new


def _with_keys(code: str, new: Mapping[Any, str]) -> str:
    """Code for a dict with some other keys."""
    return f"{{{dict(new)!r}.get(key, key): value for key, value in {code}.items()}}"


def _substitution(old: str, new: str) -> str:
    """The substitution for `rename` that gives one tensor another name."""
    pattern, text = re.escape(old), new.replace("\\", r"\\")
    mark = next((mark for mark in _MARKS if mark not in pattern + text), "/")
    pattern, text = (part.replace(mark, f"\\{mark}") for part in (pattern, text))
    return f"s{mark}^{pattern}${mark}{text}{mark}"


def _without(metadata: Mapping[str, str], keys: Iterable[str]) -> hints.Written | None:
    """The metadata without some keys; ``None`` if nothing is left."""
    rest = {key: text for key, text in metadata.items() if key not in set(keys)}
    return hints.Written(rest, repr(rest)) if rest else None


def refuse_contents(format: Format, contents: Contents) -> None:  # noqa: A002 - the term
    """Raise for contents that a format cannot hold, before anything is written.

    Raises:
        FormatLimitError: The message names the tensors.
    """
    lacking = format.lacks(contents)
    kinds = ", ".join(sorted({contents.tensors[name].dtype for name in lacking}))
    format.refuse_any(lacking, f"cannot hold {kinds}", _other_dtypes(format, contents, lacking))
    if format.holds_one and len(contents.tensors) != 1:
        _refuse_number(format, contents)
    if contents.tree is not None and not format.holds_tree:
        raise FormatLimitError(
            f"{format.title or format.name} has no place for what is not a tensor, "
            "nor for how they nest.",
            OTHER_FORMAT,
        )
    if not format.holds_metadata:
        hint = FileHint(Metadataless(tuple(contents.metadata)))
        format.refuse_any(contents.metadata, "has no place for metadata", hint)
    ours = [key for key in contents.metadata if key in format.reserved]
    hint = FileHint(Metadataless(tuple(ours)))
    format.refuse_any(map(repr, ours), "needs these names of metadata itself", hint)
    if len(contents.tensors) > MOST_TENSORS:
        raise FormatLimitError(
            f"{len(contents.tensors):,} tensors in one file are more than is read back, which is "
            f"{MOST_TENSORS:,}.",
            IN_SHARDS,
        )
    deep = [
        name for name, stored in contents.tensors.items() if len(stored.shape) > format.most_axes
    ]
    without = FileHint(Without(keys_of(contents, deep)))
    format.refuse_any(deep, f"holds tensors of at most {format.most_axes} axes, unlike", without)
    if format.unicode_only:
        odd = [name for name in contents.tensors if not is_unicode(name)]
        hint = other_names(contents, odd, as_unicode)
        what = "holds names in UTF-8, and these are not valid Unicode"
        format.refuse_any((repr(name)[:80] for name in odd), what, hint)
        strings = {
            key: text for key, text in contents.metadata.items() if not is_unicode(key + text)
        }
        shown = (f"{key!r}: {text!r}"[:80] for key, text in strings.items())
        hint = FileHint(Metadataless(tuple(strings)))
        format.refuse_any(shown, "holds metadata in UTF-8, and these are not valid Unicode", hint)
    format.refuse(contents)


def _refuse_number(format: Format, contents: Contents) -> NoReturn:  # noqa: A002 - the term
    """Raise for contents that do not have exactly one tensor."""
    what = f"{format.title or format.name} holds one tensor, not {len(contents.tensors)}"
    if not contents.tensors:
        raise FormatLimitError(f"{what}.", FileHint(Words(INSTEAD, INSTEAD)))
    first = next(iter(contents.tensors))
    hint = FileHint(OneOf(first, keys_of(contents, [first])[first]))
    raise FormatLimitError(f"{what}: {named(contents.tensors)}.", hint)


def _other_dtypes(
    format: Format,  # noqa: A002 - the term
    contents: Contents,
    lacking: Iterable[str],
) -> FileHint:
    """The hint for tensors with dtypes that it cannot hold."""
    own = {name: contents.tensors[name].dtype for name in lacking}
    held = {dtype: fitting_dtype(dtype, format.dtypes) for dtype in sorted(set(own.values()))}
    instead = {dtype: other for dtype, other in held.items() if other is not None}
    return FileHint(OtherDtypes(own, instead), Without(keys_of(contents, own)))


def other_names(contents: Contents, names: Iterable[str], better: Callable[[str], str]) -> FileHint:
    """The hint for tensors with names that it cannot hold.

    Args:
        contents: The contents.
        names: The names.
        better: Makes a name that it can hold of one of them.
    """
    keys = keys_of(contents, names)
    return FileHint(Renamed(keys, frozenset(contents.tensors), better), Without(keys))


def text_keys(node: Mapping[Any, Any], keys: tuple[Any, ...]) -> dict[str, Any]:
    """A dict with its keys as text, for formats that have no other keys.

    >>> text_keys({0: "a", None: "b"}, ())
    {'0': 'a', 'None': 'b'}

    Args:
        node: The dict.
        keys: The keys that lead to it, for messages.

    Raises:
        FormatLimitError: Two keys are the same as text.
    """
    by_text: dict[str, Any] = {}
    for key, child in node.items():
        text = key if type(key) is str else str(key)
        if text in by_text:
            other = next(key_before for key_before in node if str(key_before) == text)
            if keys:
                where = f"{'.'.join(map(str, keys))}: "
            else:
                where = ""
            raise FormatLimitError(
                f"{where}the keys {other!r} and {key!r} of a dict are both {text!r} as text, which "
                "the format needs.",
                FileHint(Keyed(keys, {key: free_name(text, [*map(str, node)], {})})),
            )
        by_text[text] = child
    return by_text
