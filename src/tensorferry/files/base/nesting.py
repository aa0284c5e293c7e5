"""Trees of tensors in files: their keys, their tensors and other values, and names of these by their paths."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING, Any

from ...errors import FormatLimitError
from .contents import Ref

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from .contents import Contents

__all__ = [
    "CONTAINER",
    "DEEPEST",
    "MOST",
    "MOST_LETTERS",
    "PLAIN",
    "Keys",
    "NameCounts",
    "are_plain",
    "children_of",
    "free_name",
    "is_container",
    "is_flat",
    "is_plain",
    "is_taken",
    "keys_of",
    "leaves",
    "letters_below",
    "letters_in",
    "letters_of",
    "name_at",
    "named_values",
    "names",
    "relabel",
    "same_dict",
    "written",
]

_OWN_HASH = (1 << 61) - 1
"""Integers that are smaller are their own hashes.

See https://docs.python.org/3/library/stdtypes.html#hashing-of-numeric-types.
"""
_MOST_ALIKE = 64


class Keys:
    """Decides which dict keys and set elements a file may have: plain values, small tuples of them.

    The hashes of numbers can be predicted, so a file could make them all equal; then a dict
    compares each key with all others. So only a few keys with the same hash are allowed. (The
    hashes of strings cannot be predicted.)
    """

    def __init__(self) -> None:
        self._alike: dict[int, list[Any]] = {}

    def takes(self, key: Any) -> bool:
        """Whether a key may be put into a dict."""
        return is_plain(key) and self.are_few(key)

    def are_few(self, key: Any) -> bool:
        """Whether there are not too many different keys with the same hash."""
        kind = type(key)
        if (
            kind in (str, float, bool, bytes)
            or key is None
            or (kind is int and -_OWN_HASH < key < _OWN_HASH)
        ):
            return True
        alike = self._alike.setdefault(hash(key), [])
        if key not in alike:
            alike.append(key)
        return len(alike) <= _MOST_ALIKE


def is_plain(key: Any) -> bool:
    """Whether a key is a plain value, or a small tuple of them, which may nest a little.

    >>> is_plain((1, ("a", None))), is_plain(frozenset()), is_plain((1,) * 65)
    (True, False, False)
    """
    if key is None or type(key) in _OF_KEYS:
        return True
    return type(key) is tuple and _elements_left(key, 4, _MOST_IN_A_KEY) >= 0


_OF_KEYS = frozenset({str, int, float, bool, bytes, complex})
_MOST_IN_A_KEY = 64
"""The most elements of a tuple that is a key, with those of tuples in it, which may be one tuple."""
_LONG = 1_000
"""As many characters of a text in such a tuple count as one more element."""


def _elements_left(key: tuple[Any, ...], depth: int, left: int) -> int:
    """How many more elements a key may have after these; negative if it is none."""
    left -= len(key)
    for element in key:
        if left < 0 or not depth:
            return -1
        if type(element) is tuple:
            left = _elements_left(element, depth - 1, left)
        elif type(element) in (str, bytes):
            left -= len(element) // _LONG
        elif element is not None and type(element) not in _OF_KEYS:
            return -1
    return left


def letters_in(value: Any) -> int:
    """About how many characters a plain value has as text, which is not made for it.

    A large integer counts as more, because the time for its text grows with the square of its size.
    """
    kind = type(value)
    if kind is str:
        return len(value)
    if kind is int:
        bits: int = value.bit_length()
        return 1 + bits // 3 + (bits >> 5) * (bits >> 5)
    if kind is tuple:
        return sum(map(letters_in, value)) + 2 * len(value)
    return 4 * len(value) if kind is bytes else 8


def letters_of(values: Collection[Any]) -> int:
    """As `letters_in`, for many plain values, most of which are small."""
    large = [value for value in values if type(value) is int and not -_OWN_HASH < value < _OWN_HASH]
    texts = [value for value in values if type(value) is str]
    rest = len(values) - len(texts)
    return sum(map(len, texts)) + 8 * rest + sum(map(letters_in, large))


class NameCounts(dict[str, int]):
    """How many of a tree's tensors or values would have one name, and what all names take.

    A long key that leads to many tensors is in the name of each: a few bytes of a file could take
    any amount of memory.

    Args:
        most: The most characters of all names.
    """

    __slots__ = ("left", "most")

    def __init__(self, most: int) -> None:
        super().__init__()
        self.left = self.most = most

    def take(self, letters: int) -> None:
        """Count characters of names, before they are made.

        Raises:
            FormatLimitError: There are too many.
        """
        self.left -= letters
        if self.left < 0:
            raise FormatLimitError(
                f"The names in the tree have more than {self.most:,} characters: long keys lead "
                "to many tensors or values."
            )


MOST_LETTERS = 1 << 26
"""The most characters of the names of a tree's tensors; its other values may have twice as many."""


DEEPEST = 64
"""How deep a tree may nest."""
MOST = 1_500_000
"""The most values of a tree, so that they can be listed in a second or two; see `CONTAINER`."""
CONTAINER = 4
"""A container counts as this many values, because it takes that much longer."""
PLAIN = frozenset({str, int, float, bool, type(None)})
"""The types of ordinary values, of which there may be many."""

_LONE = "tensor"
"""The name of a tensor without a container."""


def leaves(tree: Any, leaf: type | tuple[type, ...] = Ref) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the keys that lead to each tensor of a tree, and the tensor, in order.

    Args:
        tree: Dicts, lists and tuples of tensors and of anything else.
        leaf: The type that stands for a tensor, or several.

    Raises:
        FormatLimitError: It is nested too deeply, or contains itself.
    """
    if isinstance(tree, leaf):
        yield (), tree
        return
    stack: list[tuple[tuple[Any, ...], Iterator[tuple[Any, Any]]]] = [((), children_of(tree))]
    visited = 0
    while stack:
        keys, children = stack[-1]
        pair = next(children, None)
        if pair is None:
            stack.pop()
            continue
        key, child = pair
        visited += 1
        depth = len(stack)
        if isinstance(child, leaf):
            yield (*keys, key), child
        elif isinstance(child, dict) or type(child) in (list, tuple):
            depth += 1
            visited += CONTAINER - 1
            if isinstance(child, dict):
                inside = child.values()
            else:
                inside = child
            if leaf not in PLAIN and are_plain(inside):
                visited += len(inside)
            else:
                stack.append(((*keys, key), children_of(child)))
        if depth > DEEPEST or visited > MOST:
            where = ".".join(str(key)[:100] for key in keys[:8])
            raise FormatLimitError(
                f"The tree nests deeper than {DEEPEST} or has more than {MOST:,} values (a "
                "container counts as "
                f"{CONTAINER}), at {where}."
            )


def are_plain(values: Iterable[Any]) -> bool:
    """Whether all values have types in `PLAIN`."""
    return PLAIN.issuperset(map(type, values))


def names(tree: Any, leaf: type = Ref) -> list[str]:
    """The names of tensors by their paths, in the order of the tree.

    >>> names({"model": {"weight": Ref("")}, "model.weight": Ref(""), "state": [1, (Ref(""),)]})
    ['model.weight', 'model.weight#2', 'state.1.0']
    """
    taken: dict[str, None] = {}
    counts = NameCounts(MOST_LETTERS)
    for keys, _ in leaves(tree, leaf):
        taken[name_at(keys, taken, counts)] = None
    return list(taken)


def name_at(keys: tuple[Any, ...], taken: Collection[str], counts: NameCounts) -> str:
    """The name of a tensor by its path.

    Args:
        keys: The keys that lead to it.
        taken: The names of the tensors before it.
        counts: How many tensors would have the same name. It is updated by calls for all tensors,
            in order.

    Raises:
        FormatLimitError: All names together have too many characters.
    """
    counts.take(sum(map(letters_in, keys)) + len(keys))
    return free_name(".".join(map(str, keys)) if keys else _LONE, taken, counts)


def free_name(plain: str, taken: Collection[str], counts: dict[str, int]) -> str:
    """A name that is not taken: this one, or the next with a suffix.

    Args:
        plain: The name.
        taken: The names before it.
        counts: As for `name_at`.
    """
    unique = plain
    while unique in taken:
        counts[plain] = counts.get(plain, 1) + 1
        unique = f"{plain}#{counts[plain]}"
    return unique


def keys_of(contents: Contents, names: Iterable[str]) -> dict[str, tuple[Any, ...]]:
    """For some tensors, the keys that lead to them in the tree."""
    wanted = dict.fromkeys(names)
    if contents.tree is None or not wanted:
        return {name: (name,) for name in wanted}
    by_name = {ref.name: keys for keys, ref in leaves(contents.tree)}
    return {name: by_name.get(name, (name,)) for name in wanted}


def relabel(tree: Any, label: Callable[[Any], Any], leaf: type | tuple[type, ...] = Ref) -> Any:
    """A new tree with something else in place of each tensor.

    Args:
        tree: As for `leaves`, not nested too deeply.
        label: Called with each tensor, in order; gives the replacement.
        leaf: As for `leaves`.
    """
    if isinstance(tree, leaf):
        return label(tree)
    if isinstance(tree, dict):
        return same_dict(tree, [(key, relabel(child, label, leaf)) for key, child in tree.items()])
    if type(tree) in (list, tuple):
        whole = leaf not in PLAIN and are_plain(tree)
        return type(tree)(tree if whole else (relabel(child, label, leaf) for child in tree))
    return tree


def named_values(tree: Any) -> dict[str, Any]:
    """The values of a tree that are not tensors, by their paths, in order.

    An empty container is a value, too. If two have the same path, because a key contains a dot, the
    second gets a suffix.

    >>> named_values({"w": Ref("w"), "epoch": 3, "optimizer": {"lr": [0.1], "state": {}}})
    {'epoch': 3, 'optimizer.lr.0': 0.1, 'optimizer.state': {}}

    Args:
        tree: The tree; ``None``, or an empty container, has none.

    Raises:
        FormatLimitError: All paths together have too many characters.
    """
    named: dict[str, Any] = {}
    counts = NameCounts(2 * MOST_LETTERS)
    has_none = tree is None or (is_container(tree) and not tree)
    if has_none:
        left: list[tuple[str, Any]] = []
    else:
        left = [("", tree)]
    while left:
        place, node = left.pop()
        # First, because there may be many plain values.
        is_leaf = type(node) in PLAIN or not is_container(node) or not node
        if is_leaf and not isinstance(node, Ref):
            named[free_name(place, named, counts)] = node
        if is_leaf:
            continue
        above = f"{place}." if node is not tree else ""
        if isinstance(node, dict):
            inside = node.values()
        else:
            inside = node
        counts.take(letters_below(above, node))
        paths = [f"{above}{key}" for key, _ in children_of(node)]
        # The keys 1 and "1" have the same path.
        differ = inside is node or len(set(paths)) == len(paths)
        if differ and are_plain(inside) and named.keys().isdisjoint(paths):
            named.update(zip(paths, inside, strict=True))
        else:
            left.extend(reversed([*zip(paths, inside, strict=True)]))
    return named


def letters_below(above: str, node: Any) -> int:
    """How many characters the paths of a container's children have.

    Args:
        above: What each begins with.
        node: The container.
    """
    own = sum(map(letters_in, node)) if isinstance(node, dict) else 6 * len(node)
    return len(above) * len(node) + own


_TAKEN = frozenset(dir(OrderedDict()))


def is_taken(name: str) -> bool:
    """Whether an attribute of that name would replace what an ordered dict does, or its copies do.

    >>> is_taken("items"), is_taken("__deepcopy__"), is_taken("_metadata")
    (True, True, False)
    """
    return name in _TAKEN or (name.startswith("__") and name.endswith("__"))


def is_flat(tree: Any, names: Iterable[str]) -> bool:
    """Whether a tree says no more than the names of its tensors, which a file has without it.

    >>> is_flat({"w": Ref("w")}, ["w"]), is_flat({"w": Ref("w", "parameter")}, ["w"])
    (True, False)
    >>> is_flat({0: Ref("0")}, ["0"])
    False

    Args:
        tree: The tree.
        names: The names of the tensors, in the order of the file.
    """
    plain = {name: Ref(name) for name in names}
    is_plain = type(tree) in (dict, OrderedDict) and not getattr(tree, "__dict__", None)
    return is_plain and list(tree) == list(plain) and dict(tree) == plain


def written(value: Any) -> str:
    """A value as Python code, the same for equal values: sets are sorted, attributes come last.

    (Python's own ``repr`` of a set depends on its history.)

    >>> written({"a": {32, 8}, "b": [frozenset(), set()]})
    "{'a': {32, 8}, 'b': [frozenset(), set()]}"

    Args:
        value: A tree, or a value in one.
    """
    kind = type(value)
    if kind in (set, frozenset) and value:
        elements = ", ".join(sorted(map(written, value)))
        if kind is set:
            return f"{{{elements}}}"
        return f"frozenset({{{elements}}})"
    if kind is list:
        return f"[{', '.join(map(written, value))}]"
    if kind is tuple:
        return f"({', '.join(map(written, value))}{',' if len(value) == 1 else ''})"
    if not isinstance(value, dict):
        return repr(value)
    text = (
        "{" + ", ".join(f"{written(key)}: {written(child)}" for key, child in value.items()) + "}"
    )
    if isinstance(value, defaultdict):
        text = f"{kind.__name__}({value.default_factory!r}, {text})"
    elif kind is not dict:
        text = f"{kind.__name__}({text})"
    attributes = getattr(value, "__dict__", None)
    if attributes:
        return f"{text} with {written(attributes)}"
    return text


def is_container(node: Any) -> bool:
    """Whether a node of a tree has children; others are values, also of other types."""
    return isinstance(node, dict) or type(node) in (list, tuple)


def children_of(node: Any) -> Iterator[tuple[Any, Any]]:
    """The children of a node with their keys or places; none of a value."""
    if isinstance(node, dict):
        return iter(node.items())
    if type(node) in (list, tuple):
        return enumerate(node)
    return iter(())


def same_dict(node: dict[Any, Any], items: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """A dict with other items, of the same type, with the same default factory and attributes."""
    result = type(node)()
    if hasattr(node, "default_factory"):
        result.default_factory = node.default_factory  # type: ignore[attr-defined]
    if hasattr(node, "__dict__"):
        vars(result).update(vars(node))
    result.update(items)
    return result
