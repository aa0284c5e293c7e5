"""Objects of a pickle in the tree of a file: none is ever made, and each says what it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import UnsafeFileError
from .contents import NotTensor
from .nesting import (
    MOST_LETTERS,
    PLAIN,
    NameCounts,
    are_plain,
    children_of,
    free_name,
    is_container,
    letters_below,
    same_dict,
)
from .wording import named

if TYPE_CHECKING:
    from typing_extensions import Self

    from ...hints import Hint
    from .contents import Contents

__all__ = ["Attributes", "Kept", "Placeholder", "Refusal", "RefusedValue", "escaped", "objects_in"]
__all__ += ["in_plain_values", "in_text", "refuse_demands"]

_LONGEST = 200
"""The most characters of a name that are shown."""


def escaped(name: str) -> str:
    r"""The name of a class or function in a pickle, for people: short, no control characters.

    >>> escaped("pkg.f"), escaped("a\n\x1b[2J"), len(escaped("x" * 1_000_000))
    ('pkg.f', 'a\\n\\x1b[2J', 201)
    """
    if len(name) <= _LONGEST:
        cut = name
    else:
        cut = f"{name[:_LONGEST]}…"
    if cut.isprintable():
        return cut
    shown = (
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in cut
    )
    return "".join(shown)


class Kept(NamedTuple):
    """A value of a class that a file does not have, as the text that Python prints for it.

    Args:
        text: The text.
        kind: The name of its class: ``"pathlib.PosixPath"``; or what it is: ``"the type
            numpy.float32"``.
    """

    text: str
    kind: str

    def __repr__(self) -> str:
        return f"{self.text!r} ({self.kind})"


class Attributes(dict[Any, Any]):
    """The attributes of an object, in its place.

    Its own attribute `kind` is the name of the object's class.
    """

    kind: str = ""


class Placeholder:
    """The place of a class or function that a pickle only names.

    It can be neither called nor found.

    It is equal to nothing but itself.

    >>> Placeholder("pkg.activation")
    <pkg.activation, which is only named>

    Args:
        name: The name, in which control characters are escaped.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = escaped(name)

    def __repr__(self) -> str:
        return f"<{self.name}, which is only named>"


class Refusal(str):
    """Why an object is not read: a pickle asks to call something that is not allowed.

    Args:
        demand: What it asks for.
        hint: The code that allows it.
    """

    __slots__ = ("demand", "hint")
    demand: str
    hint: Hint

    def __new__(cls, demand: str, hint: Hint) -> Self:  # noqa: D102
        made = super().__new__(cls, f"it asks for {demand}, which was not run")
        made.demand, made.hint = demand, hint
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.demand, self.hint)


class RefusedValue(Refusal, NotTensor):
    """The same for an object in which there is no tensor."""

    __slots__ = ()


def refuse_demands(contents: Contents) -> None:
    """Raise if contents have something that asks for a call that is not allowed.

    Raises:
        UnsafeFileError: The message says what it asks for, and where.
    """
    refused = {name: why for name, why in contents.others.items() if isinstance(why, Refusal)}
    if not refused:
        return
    demands = dict.fromkeys(why.demand for why in refused.values())
    raise UnsafeFileError(
        f"{named(contents.paths)} asks for {named(demands)}; it was not run (at {named(refused)}).",
        next(iter(refused.values())).hint,
    )


def objects_in(tree: Any) -> dict[str, str]:
    """What the objects in a tree were, by their paths.

    Those in attributes of containers are named as ``PATH@NAME``.

    >>> objects_in({"a": [Kept("/tmp", "pathlib.PosixPath"), 1], "f": Placeholder("pkg.f")})
    {'a.0': 'pathlib.PosixPath', 'f': 'only named: pkg.f'}

    Args:
        tree: The tree.

    Raises:
        FormatLimitError: All paths together have too many characters.
    """
    objects: dict[str, str] = {}
    counts = NameCounts(2 * MOST_LETTERS)
    left: list[tuple[str, Any]] = [("", tree)]
    while left:
        place, node = left.pop()
        kind = type(node)
        if kind in PLAIN:
            continue
        told = _told(node)
        if told:
            objects[free_name(place or "The whole", objects, counts)] = told
        above = f"{place}." if place else ""
        if is_container(node) and not are_plain(child for _, child in children_of(node)):
            counts.take(letters_below(above, node))
            children = [*children_of(node)]
        else:
            children = []
        inside = [(f"{above}{key}", child) for key, child in children]
        inside += [(f"{place}@{key}", child) for key, child in _attributes(node).items()]
        left.extend(reversed(inside))
    return objects


def _told(node: Any) -> str:
    if type(node) is Placeholder:
        return f"only named: {node.name}"
    return node.kind if type(node) in (Kept, Attributes) else ""


def _attributes(node: Any) -> dict[str, Any]:
    """The attributes of a container, such as the ``_metadata`` of a state dict."""
    if not isinstance(node, dict) or type(node) is Attributes:
        return {}
    return getattr(node, "__dict__", None) or {}


def in_plain_values(contents: Contents) -> Contents:
    """Contents with plain values in place of objects. What is only named stays a `Placeholder`."""
    # Other files than pickles have no objects, and their trees may be large.
    if not contents.asks_for or contents.tree is None:
        return contents
    return contents._replace(tree=_plain(contents.tree, as_text=False))


def in_text(contents: Contents) -> tuple[Contents, dict[str, str]]:
    """Contents for any file: what is only named is a text, its name; and `objects_in` the tree."""
    if not contents.asks_for or contents.tree is None:
        return contents, {}
    objects = objects_in(contents.tree)
    return (
        contents._replace(tree=_plain(contents.tree, as_text=True)) if objects else contents
    ), objects


def _plain(node: Any, *, as_text: bool) -> Any:
    kind = type(node)
    if kind in PLAIN:
        return node
    if kind is Kept:
        return node.text
    if kind is Placeholder:
        return node.name if as_text else node
    if isinstance(node, dict):
        items = [(key, _plain(child, as_text=as_text)) for key, child in node.items()]
        if kind is Attributes:
            made = dict(items)
        else:
            made = same_dict(node, items)
        for name, value in _attributes(node).items():
            vars(made)[name] = _plain(value, as_text=as_text)
        return made
    if kind in (list, tuple) and not are_plain(node):
        return kind(_plain(child, as_text=as_text) for child in node)
    return node
