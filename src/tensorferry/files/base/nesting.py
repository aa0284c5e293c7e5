"""Trees of tensors in files: names of tensors by their paths, and trees with other names or fewer tensors."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from ...errors import FormatLimitError
from .contents import Ref
from .wording import TENSORS_ONLY, FileHint, named

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

__all__ = ["CONTAINER", "DEEPEST", "MOST", "PLAIN", "are_plain", "leaves", "like", "name_at", "names", "place_in_code"]
__all__ += ["relabel", "rename", "text_keys", "without", "written"]

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
    stack: list[tuple[tuple[Any, ...], Iterator[tuple[Any, Any]]]] = [((), _children(tree))]
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
            inside = child.values() if isinstance(child, dict) else child
            if leaf not in PLAIN and are_plain(inside):
                visited += len(inside)
            else:
                stack.append(((*keys, key), _children(child)))
        if depth > DEEPEST or visited > MOST:
            where = ".".join(map(str, keys[:8]))
            raise FormatLimitError(
                f"The tree nests deeper than {DEEPEST} or has more than {MOST:,} values (a container counts as "
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
    found: dict[str, None] = {}
    counts: dict[str, int] = {}
    for keys, _ in leaves(tree, leaf):
        found[name_at(keys, found, counts)] = None
    return list(found)


def name_at(keys: tuple[Any, ...], taken: Collection[str], counts: dict[str, int]) -> str:
    """The name of a tensor by its path.

    Args:
        keys: The keys that lead to it.
        taken: The names of the tensors before it.
        counts: How many tensors would have the same name. It is updated by calls for all tensors, in order.
    """
    plain = unique = ".".join(map(str, keys)) if keys else _LONE
    while unique in taken:
        counts[plain] = counts.get(plain, 1) + 1
        unique = f"{plain}#{counts[plain]}"
    return unique


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
                FileHint(TENSORS_ONLY, "another key for one of them in x"),
            )
        found[text] = child
    return found


def place_in_code(tree: Any, name: str) -> str:
    """The code for the tensor of this name in a tree `x`.

    >>> place_in_code({"a": [Ref("a.0")]}, "a.0"), place_in_code(None, "w")
    ("x['a'][0]", "x['w']")

    Args:
        tree: The tree; ``None`` for a plain mapping.
        name: Its name.
    """
    keys = next((keys for keys, ref in leaves(tree) if ref.name == name), (name,))
    return "x" + "".join(f"[{key!r}]" for key in keys)


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
        return like(tree, [(key, relabel(child, label, leaf)) for key, child in tree.items()])
    if type(tree) in (list, tuple):
        whole = leaf not in PLAIN and are_plain(tree)
        return type(tree)(tree if whole else (relabel(child, label, leaf) for child in tree))
    return tree


def rename(tree: Any, mapping: Mapping[str, str]) -> Any:
    """A tree with new names of tensors, and therefore new keys in its dicts.

    If the new name of a tensor does not begin with the path of its dict, the tensor moves up to a dict for which it
    does. If all tensors of a container move in the same way, the container moves with its other values. A dict that
    becomes empty is removed.

    >>> rename({"model": {"module.weight": Ref("model.module.weight")}}, {"model.module.weight": "model.weight"})
    {'model': {'weight': Ref(name='model.weight', kind='tensor', requires_grad=False)}}
    >>> rename({"model": {"weight": Ref("model.weight")}, "epoch": 3}, {"model.weight": "weight"})
    {'weight': Ref(name='weight', kind='tensor', requires_grad=False), 'epoch': 3}

    Args:
        tree: The tree; ``None`` stays ``None``.
        mapping: The new names of tensors.

    Raises:
        FormatLimitError: The key of a tensor is not a string, or the tensor is in a list whose other elements do not
            move with it, or the new key exists already.
    """
    changed = {old: new for old, new in mapping.items() if old != new}
    return _renamed(tree, (), changed)[0] if changed else tree


def without(tree: Any, excluded: Collection[str]) -> Any:
    """A tree without some of its tensors. A list or tuple with only such tensors becomes empty.

    >>> without({"a": Ref("a"), "b": [Ref("b.0"), Ref("b.1")], "step": 3}, {"a", "b.0", "b.1"})
    {'b': [], 'step': 3}

    Args:
        tree: The tree; ``None`` stays ``None``.
        excluded: The names of the tensors to leave out.

    Raises:
        FormatLimitError: Some elements of a list are left out, but not all: the positions of others would change.
    """
    if not excluded:
        return tree
    kept = _kept(tree, (), frozenset(excluded))
    return {} if kept is _GONE else kept


def written(value: Any) -> str:
    """A value as Python code, which is the same for equal values: sets are sorted, and attributes come last.

    (Python's own ``repr`` of a set depends on its history.)

    >>> written({"a": {32, 8}, "b": [frozenset(), set()]})
    "{'a': {32, 8}, 'b': [frozenset(), set()]}"

    Args:
        value: A tree, or a value in one.
    """
    kind = type(value)
    if kind in (set, frozenset) and value:
        elements = ", ".join(sorted(map(written, value)))
        return f"{{{elements}}}" if kind is set else f"frozenset({{{elements}}})"
    if kind is list:
        return f"[{', '.join(map(written, value))}]"
    if kind is tuple:
        return f"({', '.join(map(written, value))}{',' if len(value) == 1 else ''})"
    if not isinstance(value, dict):
        return repr(value)
    text = "{" + ", ".join(f"{written(key)}: {written(child)}" for key, child in value.items()) + "}"
    if isinstance(value, defaultdict):
        text = f"{kind.__name__}({value.default_factory!r}, {text})"
    elif kind is not dict:
        text = f"{kind.__name__}({text})"
    attributes = getattr(value, "__dict__", None)
    return f"{text} with {written(attributes)}" if attributes else text


def _children(node: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(node, dict):
        return iter(node.items())
    return enumerate(node) if type(node) in (list, tuple) else iter(())


def like(node: dict[Any, Any], items: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """A dict with other items, of the same type, with the same default factory and attributes."""
    result = type(node)()
    if hasattr(node, "default_factory"):
        result.default_factory = node.default_factory  # type: ignore[attr-defined]
    if hasattr(node, "__dict__"):
        vars(result).update(vars(node))
    result.update(items)
    return result


def _renamed(node: Any, keys: tuple[str, ...], mapping: Mapping[str, str]) -> tuple[Any, list[tuple[str, Any]]]:
    """A node with the new names; and the names, and tensors or containers, that move out of it."""
    if isinstance(node, Ref):
        return _relabelled(node, mapping), []
    if type(node) in (list, tuple):
        pairs = [_renamed(child, (*keys, str(place)), mapping) for place, child in enumerate(node)]
        for place, (child, (now, moved)) in enumerate(zip(node, pairs, strict=True)):
            if moved or (isinstance(child, Ref) and now != child):
                new = moved[0][0] if moved else now.name
                raise FormatLimitError(
                    f"{'.'.join((*keys, str(place)))} stands in a list, at place {place}: it cannot be named {new}.",
                    "tensors_only=True, which leaves out how they nest",
                )
        return type(node)(now for now, _ in pairs), []
    if not isinstance(node, dict):
        return node, []
    items: list[tuple[Any, Any]] = []
    leaving: list[tuple[str, Any]] = []
    prefix = "".join(f"{key}." for key in keys)

    def put(new: str, child: Any) -> None:
        if new.startswith(prefix) and new != prefix:
            items.append((new[len(prefix) :], child))
        else:
            leaving.append((new, child))

    for key, child in node.items():
        new = _new_name(child, (*keys, str(key)), mapping)
        if new is not None:
            if type(key) is not str or not new:
                old = child.name if isinstance(child, Ref) else f"{prefix}{key}"
                raise FormatLimitError(
                    f"{old} cannot be named {new}: it stands in the file's tree under {prefix or key!r}.",
                    "tensors_only=True, which leaves out how they nest",
                )
            put(new, _relabelled(child, mapping))
            continue
        now, moved = _renamed(child, (*keys, str(key)), mapping)
        for name, inner in moved:
            put(name, inner)
        if now or not moved:
            items.append((key, now))
    result = like(node, items)
    if len(result) != len(items):
        listed = [key for key, _ in items]
        twice = named(dict.fromkeys(f"{prefix}{key}" for key in listed if listed.count(key) > 1))
        raise FormatLimitError(f"After renaming there would be two of {twice}.")
    return result, leaving


def _new_name(node: Any, keys: tuple[str, ...], mapping: Mapping[str, str]) -> str | None:
    """The new name of a tensor, or of a container whose tensors are all renamed in the same way; or ``None``."""
    if isinstance(node, Ref):
        return mapping.get(node.name)
    if not isinstance(node, dict) and type(node) not in (list, tuple):
        return None
    old = ".".join(keys)
    found: str | None = None
    for _, ref in leaves(node):
        rest, new = ref.name[len(old) :], mapping.get(ref.name)
        if new is None or not rest.startswith(".") or not ref.name.startswith(old) or not new.endswith(rest):
            return None
        if found not in (None, new[: -len(rest)]):
            return None
        found = new[: -len(rest)]
    return found if found != old else None


def _relabelled(node: Any, mapping: Mapping[str, str]) -> Any:
    return relabel(node, lambda ref: ref._replace(name=mapping.get(ref.name, ref.name)))


class _Gone:
    """A placeholder for a tensor that is left out."""


_GONE = _Gone()


def _kept(node: Any, keys: tuple[str, ...], excluded: frozenset[str]) -> Any:
    if isinstance(node, Ref):
        return _GONE if node.name in excluded else node
    if isinstance(node, dict):
        items = [(key, _kept(child, (*keys, str(key)), excluded)) for key, child in node.items()]
        return like(node, [(key, child) for key, child in items if child is not _GONE])
    if type(node) in (list, tuple):
        children = [_kept(child, (*keys, str(place)), excluded) for place, child in enumerate(node)]
        staying = [child for child in children if child is not _GONE]
        if staying and len(staying) != len(children):
            gone = next(place for place, child in enumerate(children) if child is _GONE)
            raise FormatLimitError(
                f"{'.'.join((*keys, str(gone)))} cannot be left out of the {type(node).__name__} that it stands in: "
                "the places of the others would change.",
                "tensors_only=True, which leaves out how they nest",
            )
        return type(node)(staying)
    return node
