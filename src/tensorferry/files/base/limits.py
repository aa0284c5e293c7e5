"""What a format cannot hold: the errors, with the hints for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from ...core.dtypes import fit
from ...errors import FormatLimitError
from .contents import MOST_TENSORS
from .file_hints import (
    IN_SHARDS,
    OTHER_FORMAT,
    FileHint,
    Keyed,
    Metadataless,
    OneOf,
    OtherDtypes,
    Renamed,
    Without,
    Words,
)
from .format import INSTEAD
from .nesting import free_name, keys_of
from .wording import as_unicode, is_unicode, named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .contents import Contents
    from .format import Format

__all__ = ["other_names", "refuse_contents", "text_keys"]


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
            f"{format.title or format.name} has no place for what is not a tensor, nor for how they nest.",
            OTHER_FORMAT,
        )
    if not format.holds_metadata:
        hint = FileHint(Metadataless(tuple(contents.metadata)))
        format.refuse_any(contents.metadata, "has no place for metadata", hint)
    if len(contents.tensors) > MOST_TENSORS:
        raise FormatLimitError(
            f"{len(contents.tensors):,} tensors in one file are more than is read back, which is {MOST_TENSORS:,}.",
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
    held = {dtype: fit(dtype, format.dtypes) for dtype in sorted(set(own.values()))}
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
    found: dict[str, Any] = {}
    for key, child in node.items():
        text = key if type(key) is str else str(key)
        if text in found:
            other = next(each for each in node if str(each) == text)
            where = f"{'.'.join(map(str, keys))}: " if keys else ""
            raise FormatLimitError(
                f"{where}the keys {other!r} and {key!r} of a dict are both {text!r} as text, which the format needs.",
                FileHint(Keyed(keys, {key: free_name(text, [*map(str, node)], {})})),
            )
        found[text] = child
    return found
