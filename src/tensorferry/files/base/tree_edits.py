"""NumPy's scalars as tensors, for formats that have no other place for their dtypes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ... import hints
from ...errors import FormatLimitError
from ...hints import Hint
from ...host.numpy_dtypes import of_numpy
from .contents import Ref
from .nesting import (
    MOST_LETTERS,
    NameCounts,
    are_plain,
    children_of,
    is_container,
    leaves,
    name_at,
    relabel,
    same_dict,
)
from .stored import InMemory
from .wording import named

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from .contents import Contents
    from .stored import Stored

__all__ = ["rename", "with_scalars", "without"]

UNNESTED = Hint(hints.keyword("tensors_only", True), ", which leaves out how they nest")
"""The hint for tensors whose tree cannot be kept."""


def rename(tree: Any, mapping: Mapping[str, str]) -> Any:
    """A tree with new names of tensors, and therefore new keys in its dicts.

    If the new name of a tensor does not begin with the path of its dict, the tensor moves up to a
    dict for which it does. If all tensors of a container move in the same way, the container moves
    with its other values. A dict that becomes empty is removed.

    >>> rename(
    ...     {"model": {"module.weight": Ref("model.module.weight")}},
    ...     {"model.module.weight": "model.weight"},
    ... )
    {'model': {'weight': Ref(name='model.weight', kind='tensor', requires_grad=False)}}
    >>> rename({"model": {"weight": Ref("model.weight")}, "epoch": 3}, {"model.weight": "weight"})
    {'weight': Ref(name='weight', kind='tensor', requires_grad=False), 'epoch': 3}

    Args:
        tree: The tree; ``None`` stays ``None``.
        mapping: The new names of tensors.

    Raises:
        FormatLimitError: The key of a tensor is not a string, or the tensor is in a list whose
            other elements do not move with it, or the new key exists already.
    """
    changed = {old: new for old, new in mapping.items() if old != new}
    return _renamed(tree, (), changed)[0] if changed else tree


def without(
    tree: Any,
    excluded: Collection[str],
    dropped: Sequence[int] = b"",
    hint: Callable[[str], Hint] | None = None,
) -> Any:
    """A tree without some of its tensors and values.

    A container of nothing else goes with them, but for the root. The attributes of a container,
    such as the ``_metadata`` of a state dict, stay with it.

    >>> without({"a": Ref("a"), "b": [Ref("b.0"), Ref("b.1")], "step": 3}, {"a", "b.0", "b.1"})
    {'step': 3}
    >>> without({"a": Ref("a"), "optimizer": {"lr": 0.1, "state": {}}, "step": 3}, (), [0, 1, 1])
    {'a': Ref(name='a', kind='tensor', requires_grad=False), 'optimizer': {'lr': 0.1}}

    Args:
        tree: The tree; ``None`` stays ``None``.
        excluded: The names of the tensors to leave out.
        dropped: For each of `named_values`, 1 if it is left out, otherwise 0; empty if all stay.
        hint: Gives the hint for a list that cannot lose only some of its elements, from its path.

    Raises:
        FormatLimitError: Some elements of a list are left out, but not all: the positions of others
            would change.
    """
    is_empty = is_container(tree) and not tree
    if tree is None or is_empty or not (excluded or any(dropped)):
        return tree
    kept = _Rest(frozenset(excluded), bytes(dropped), hint).of(tree, ())
    if kept is not _GONE:
        return kept
    if isinstance(tree, dict):
        return same_dict(tree, [])
    return type(tree)() if is_container(tree) else {}


def _renamed(
    node: Any, keys: tuple[str, ...], mapping: Mapping[str, str]
) -> tuple[Any, list[tuple[str, Any]]]:
    """A node with the new names; and the names, and tensors or containers, that move out of it."""
    if isinstance(node, Ref):
        return _relabelled(node, mapping), []
    if type(node) in (list, tuple):
        pairs = [_renamed(child, (*keys, str(index)), mapping) for index, child in enumerate(node)]
        for index, (child, (now, moved)) in enumerate(zip(node, pairs, strict=True)):
            if moved or (isinstance(child, Ref) and now != child):
                new = moved[0][0] if moved else now.name
                raise FormatLimitError(
                    f"{'.'.join((*keys, str(index)))} stands in a list, at place {index}: it "
                    f"cannot be named {new}.",
                    UNNESTED,
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
                    f"{old} cannot be named {new}: it stands in the file's tree under "
                    f"{prefix or key!r}.",
                    UNNESTED,
                )
            put(new, _relabelled(child, mapping))
            continue
        now, moved = _renamed(child, (*keys, str(key)), mapping)
        for name, inner in moved:
            put(name, inner)
        if now or not moved:
            items.append((key, now))
    result = same_dict(node, items)
    if len(result) != len(items):
        listed = [key for key, _ in items]
        twice = named(dict.fromkeys(f"{prefix}{key}" for key in listed if listed.count(key) > 1))
        raise FormatLimitError(f"After renaming there would be two of {twice}.")
    return result, leaving


def _new_name(node: Any, keys: tuple[str, ...], mapping: Mapping[str, str]) -> str | None:
    """The new name of a tensor, or of a container with all tensors renamed alike; or ``None``."""
    if isinstance(node, Ref):
        return mapping.get(node.name)
    if not isinstance(node, dict) and type(node) not in (list, tuple):
        return None
    old = ".".join(keys)
    new_name: str | None = None
    for _, ref in leaves(node):
        rest, new = ref.name[len(old) :], mapping.get(ref.name)
        if (
            new is None
            or not rest.startswith(".")
            or not ref.name.startswith(old)
            or not new.endswith(rest)
        ):
            return None
        if new_name not in (None, new[: -len(rest)]):
            return None
        new_name = new[: -len(rest)]
    return new_name if new_name != old else None


def _relabelled(node: Any, mapping: Mapping[str, str]) -> Any:
    return relabel(node, lambda ref: ref._replace(name=mapping.get(ref.name, ref.name)))


class _Gone:
    """A placeholder for what is left out."""


_GONE = _Gone()


class _Rest:
    """Makes the rest of a tree; see `without`.

    It comes to the values in the order of `named_values`.
    """

    def __init__(
        self,
        excluded: frozenset[str],
        dropped: bytes,
        hint: Callable[[str], Hint] | None,
    ) -> None:
        self._excluded = excluded
        self._dropped = dropped
        self._hint = hint or (lambda _: UNNESTED)
        self._at = 0

    def of(self, node: Any, keys: tuple[str, ...]) -> Any:
        """What stays of a node."""
        if isinstance(node, Ref):
            if node.name in self._excluded:
                return _GONE
            return node
        if not is_container(node) or not node:
            return _GONE if any(self._next(1)) else node
        if isinstance(node, dict):
            inside = node.values()
        else:
            inside = node
        if are_plain(inside):
            return self._of_plain(node, keys)
        children = [self.of(child, (*keys, str(key))) for key, child in children_of(node)]
        return self._joined(node, keys, children)

    def _next(self, count: int) -> bytes:
        begin = self._at
        self._at += count
        return self._dropped[begin : self._at]

    def _of_plain(self, node: Any, keys: tuple[str, ...]) -> Any:
        """As `of`, for plain values, of which there may be many."""
        marks = self._next(len(node))
        if not any(marks):
            return node
        if isinstance(node, dict):
            inside = node.values()
        else:
            inside = node
        pairs = zip(marks, inside, strict=True)
        return self._joined(node, keys, [_GONE if mark else child for mark, child in pairs])

    def _joined(self, node: Any, keys: tuple[str, ...], children: list[Any]) -> Any:
        """A node with what stays of each child."""
        staying = [child for child in children if child is not _GONE]
        if not staying:
            return _GONE
        if isinstance(node, dict):
            pairs = zip(node, children, strict=True)
            return same_dict(node, [(key, child) for key, child in pairs if child is not _GONE])
        if len(staying) == len(children):
            return type(node)(staying)
        index = next(index for index, child in enumerate(children) if child is _GONE)
        what, where = ".".join((*keys, str(index))), type(node).__name__
        raise FormatLimitError(
            f"{what} cannot be left out of the {where} that it stands in: "
            "the places of the others would change.",
            self._hint(".".join(keys)),
        )


_LEAVES = (Ref, np.generic)


def with_scalars(contents: Contents) -> Contents:
    """Contents with NumPy's scalars as tensors, under the names that follow from their paths.

    Args:
        contents: The contents. Times and texts of NumPy stay values.
    """
    if contents.tree is None:
        scalars = []
    else:
        scalars = list(leaves(contents.tree, _LEAVES))
    dtypes = [of_numpy(leaf.dtype) if isinstance(leaf, np.generic) else None for _, leaf in scalars]
    if not any(dtypes):
        return contents
    tensors: dict[str, Stored] = {}
    counts = NameCounts(MOST_LETTERS)
    now: list[Any] = []
    for (keys, leaf), dtype in zip(scalars, dtypes, strict=True):
        if dtype is None and not isinstance(leaf, Ref):
            now.append(leaf)
            continue
        name = name_at(keys, tensors, counts)
        if dtype is None:
            now.append(leaf._replace(name=name))
            tensors[name] = contents.tensors[leaf.name]
        else:
            now.append(Ref(name, "scalar"))
            tensors[name] = InMemory(np.asarray(leaf), dtype, ("scalar", name))
    again = iter(now)
    return contents._replace(
        tensors=tensors, tree=relabel(contents.tree, lambda _: next(again), _LEAVES)
    )
