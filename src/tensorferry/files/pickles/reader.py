"""Read a pickle of tensors as a tree of plain values, running and making nothing it asks for."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...errors import FileFormatError, FormatLimitError, UnsafeFileError
from ..base.contents import NOTHING, Ref, Special
from ..base.nesting import (
    CONTAINER,
    DEEPEST,
    MOST,
    MOST_LETTERS,
    PLAIN,
    NameCounts,
    are_plain,
    is_taken,
    letters_in,
    letters_of,
    name_at,
)
from ..base.objects import Attributes, Kept, Placeholder, Refusal, RefusedValue, escaped
from ..base.wording import named
from .machine import Global, Machine, Ordered, UnreadBytes
from .standins import (
    ASK,
    DTypeOf,
    InstanceOf,
    KeptOf,
    OtherOf,
    RefusedOf,
    TensorOf,
    TensorStandIn,
    title,
)
from .table import VALUES, public_name

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable

    from .torch import Names

__all__ = ["Unpickled", "described", "globals_of", "root_of"]


_OTHERS = frozenset({complex, bytes, bytearray, Special})
_STEPS_FOR_GLOBALS = 200_000
_FACTORIES: dict[str, Any] = {
    kind.__name__: kind for kind in (dict, list, set, tuple, int, float, str, bool)
}
_MOST_SEARCHED = 1_000_000
_MOST_LETTERS = 1 << 28
"""Twice the bytes of a pickle beside arrays, which have each value once."""


class Unpickled(NamedTuple):
    """The contents of a pickle.

    Args:
        leaves: The stand-ins of tensors by name, in order.
        tree: See `Contents`.
        asks_for: The globals that it names.
        besides: Attributes of tensors, as ``NAME@ATTRIBUTE``, and what would be lost with each.
    """

    leaves: dict[str, Any]
    tree: Any
    asks_for: tuple[str, ...]
    besides: dict[str, str]


def root_of(read: Callable[[], bytes | mmap.mmap], vocabulary: Names, begin: int = 0) -> Any:
    """The result of a pickle, with stand-ins.

    If it asks for something that is not data, it is refused first.

    If the vocabulary reads `partly`, the results of calls that are not allowed are `RefusedOf`, and
    only what nothing allows is refused.

    Args:
        read: Gives the pickle.
        vocabulary: Defines the meaning of its names.
        begin: The position of the pickle.

    Raises:
        FileFormatError: It is damaged, or describes impossible tensors.
        UnsafeFileError: It asks for something that is not data, or needs far too much memory or
            time.
    """
    try:
        root = Machine(read(), vocabulary, vocabulary.where, begin).run()
    except FileFormatError:
        _refuse(vocabulary)
        raise
    if vocabulary.forbidden or not vocabulary.partly:
        _refuse(vocabulary)
    return root


def described(root: Any, vocabulary: Names, nbytes: int) -> Unpickled:
    """The tree of the result of a pickle.

    Args:
        root: The result.
        vocabulary: The vocabulary that was used.
        nbytes: The length of the pickle.

    Raises:
        UnsafeFileError: It has something that is not data, or needs far too much memory.
    """
    asks_for = tuple(vocabulary.asked)
    flat = _flat(root)
    if flat is not None:
        tree = None
        attributes = _TreeBuilder(vocabulary, nbytes).attributes(root)
        views = {id(leaf.view): leaf.view for leaf in flat.values()}.values()
        plain = all(view.kind == "tensor" and not view.requires_grad for view in views)
        if attributes or not plain or getattr(root, "factory", None) is not None:
            tree = _container(root, attributes)
            tree.update(
                (name, Ref(name, leaf.kind, leaf.requires_grad)) for name, leaf in flat.items()
            )
        flat_leaves = {**flat} if type(flat) is Ordered else flat
        return Unpickled(flat_leaves, tree, asks_for, _besides(vocabulary, flat_leaves))
    builder = _TreeBuilder(vocabulary, nbytes)
    whole = NOTHING if root is None else builder.node(root, ())
    return Unpickled(builder.leaves, whole, asks_for, _besides(vocabulary, builder.leaves))


def globals_of(
    read: Callable[[], bytes | mmap.mmap], vocabulary: Names, begin: int = 0
) -> tuple[str, ...]:
    """The globals that a pickle asks for, as far as it can be read.

    Args:
        read: Gives the pickle.
        vocabulary: Defines the meaning of its names.
        begin: The position of the pickle.
    """
    # The names until the error are given. The error itself comes from `root_of`.
    with suppress(FileFormatError, UnsafeFileError):
        Machine(read(), vocabulary, vocabulary.where, begin, _STEPS_FOR_GLOBALS).run()
    return tuple(dict.fromkeys([*vocabulary.asked, *vocabulary.demands]))


def _refuse(vocabulary: Names) -> None:
    if vocabulary.demands:
        raise UnsafeFileError(
            f"{vocabulary.where} asks for {named(vocabulary.demands)}; it was not run.",
            vocabulary.hint,
        )


def _besides(vocabulary: Names, leaves: dict[str, Any]) -> dict[str, str]:
    if not vocabulary.besides:
        return {}
    of = {id(leaf): besides for leaf, besides in vocabulary.besides}
    reasons = (
        (f"{name}@{key}", why)
        for name, leaf in leaves.items()
        for key, why in of.get(id(leaf), {}).items()
    )
    return {name if name not in leaves else f"{name}@": why for name, why in reasons}


def _flat(root: Any) -> dict[str, Any] | None:
    if type(root) not in (dict, Ordered):
        return None
    fits = all(type(name) is str and type(leaf) is TensorOf for name, leaf in root.items())
    return root if fits else None


def _container(node: dict[Any, Any], attributes: dict[str, Any]) -> dict[Any, Any]:
    if type(node) is not Ordered:
        return {}
    if node.factory is None:
        made: dict[Any, Any] = OrderedDict()
    else:
        made = defaultdict(_FACTORIES.get(node.factory))
    if attributes:
        vars(made).update(attributes)
    return made


class _TreeBuilder:
    """Turns the result of a pickle into a tree.

    A value that is used many times is counted each time.

    `leaves` are the stand-ins of tensors, by their names.
    """

    def __init__(self, vocabulary: Names, nbytes: int) -> None:
        self.vocabulary = vocabulary
        self.where = vocabulary.where
        self.placeholders: dict[str, Placeholder] = {}
        self.unseen = _MOST_SEARCHED
        self.machine = vocabulary.machine
        self.leaves: dict[str, Any] = {}
        self.counts = NameCounts(MOST_LETTERS)
        self.letters = _MOST_LETTERS
        self.left = self.most = min(MOST, CONTAINER * nbytes + 100_000)

    def node(self, node: Any, keys: tuple[Any, ...], *, is_value: bool = True) -> Any:
        """A node of the tree.

        Args:
            node: A value of the pickle.
            keys: The keys that lead to it.
            is_value: Whether tensors in it belong to the tree. In attributes of containers they do
                not.
        """
        kind = type(node)
        if kind in PLAIN:
            self.weigh(1)
            self.take(letters_in(node))
            return node
        if isinstance(node, np.generic):
            self.weigh(1)
            self.take(2 * node.nbytes)
            return node
        if isinstance(node, TensorStandIn):
            self.weigh(1)
            return self.label(node, keys) if is_value else self.of_attribute(node)
        self.weigh(CONTAINER)
        if kind in _OTHERS:
            self.take(len(node) if kind in (bytes, bytearray) else 16)
            return self.vocabulary.special(node) if isinstance(node, Special) else node
        if kind in (Global, KeptOf, DTypeOf):
            return self.object(node)
        if len(keys) >= DEEPEST:
            raise UnsafeFileError(
                f"{self.where}: its pickle nests values more than {DEEPEST} levels deep."
            )
        if kind is dict or kind is Ordered:
            made = _container(node, self.attributes(node, keys))
            return self.fill(made, node, keys, is_value=is_value)
        if kind is list or kind is tuple:
            if are_plain(node):
                self.weigh(len(node))
                self.take(letters_of(node))
                return kind(node)
            return kind(
                self.node(child, (*keys, index), is_value=is_value)
                for index, child in enumerate(node)
            )
        if kind is UnreadBytes:
            return node.kind(self.machine.take_left(node))
        if kind is set or kind is frozenset:
            self.weigh(len(node))
            self.take(sum(map(letters_in, node)))
            return node
        if kind is InstanceOf:
            made = {}
            if node.is_told:
                made = Attributes()
                made.kind = escaped(node.name)
            return self.fill(made, self.instance(node), keys, is_value=is_value)
        raise UnsafeFileError(f"{self.where} holds {title(node)}, which is no data.", ASK)

    def object(self, node: Any) -> Kept | Placeholder:
        """A value of the table, or what is only named."""
        if type(node) is DTypeOf:
            return Kept(node.text, "numpy.dtype")
        if type(node) is KeptOf:
            if node.text is None:
                raise self.vocabulary.wrong(f"has a {node.kind} without a state")
            self.take(len(node.text))
            return Kept(node.text, node.kind)
        text = VALUES.get(node.name)
        if text is not None:
            return Kept(text, f"the type {public_name(node.name)}")
        return self.placeholders.setdefault(node.name, Placeholder(node.name))

    def refused(self, node: RefusedOf) -> OtherOf:
        """What stands for the result of a call that is not allowed."""
        if self.has_tensors(node.held):
            kind = Refusal
        else:
            kind = RefusedValue
        return OtherOf(kind(node.demand, self.vocabulary.hint))

    def has_tensors(self, held: list[Any]) -> bool:
        """Whether there may be tensors in what an object was made from.

        Where it is too large to look, there may.
        """
        left: list[Any] = [held]
        seen = set()
        while left:
            node = left.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            kind = type(node)
            inside: Any = ()
            if kind is RefusedOf:
                inside = node.held
            elif kind is InstanceOf:
                inside = (node.arguments, node.keywords, node.state, node.items, node.entries)
            elif isinstance(node, TensorStandIn):
                return True
            elif kind is Ordered or kind is dict:
                inside = node.values()
                left.append(getattr(node, "attributes", None))
            elif kind in (list, tuple):
                inside = node
            self.unseen -= 1 + len(inside)
            if self.unseen < 0:
                return True
            left += inside
        return False

    def of_attribute(self, node: TensorStandIn) -> TensorStandIn:
        """What stands in the attributes of a container, where nothing can be left out."""
        if type(node) is RefusedOf:
            self.vocabulary.partly = False
            _refuse(self.vocabulary)
        return node

    def weigh(self, values: int) -> None:
        """Count values, and raise if there are too many."""
        self.left -= values
        if self.left < 0:
            what = (
                f"than {MOST:,} values (a container counts as {CONTAINER}), out of all proportion"
            )
            if self.most < MOST:
                what = "values than it has bytes, by using some many times over: a bomb"
            raise UnsafeFileError(f"{self.where}: its pickle makes more {what}.")

    def take(self, letters: int) -> None:
        """Count characters of values, and raise if a few bytes of the pickle make too many."""
        self.letters -= letters
        if self.letters < 0:
            raise self.vocabulary.bomb(
                f"makes values of more than {_MOST_LETTERS:,} characters, by using some many times "
                "over"
            )

    def label(self, leaf: Any, keys: tuple[Any, ...]) -> Ref:
        try:
            name = name_at(keys, self.leaves, self.counts)
        except FormatLimitError as error:
            raise UnsafeFileError(f"{self.where}: {error.message}") from None
        if type(leaf) is RefusedOf:
            self.leaves[name] = self.refused(leaf)
        else:
            self.leaves[name] = leaf
        return Ref(name, getattr(leaf, "kind", "tensor"), getattr(leaf, "requires_grad", False))

    def fill(
        self, made: dict[Any, Any], node: dict[Any, Any], keys: tuple[Any, ...], *, is_value: bool
    ) -> Any:
        self.take(sum(map(letters_in, node)))
        if are_plain(node.values()):
            self.weigh(len(node))
            self.take(letters_of(node.values()))
            made.update(node)
        else:
            for key, child in node.items():
                made[key] = self.node(child, (*keys, key), is_value=is_value)
        return made

    def attributes(self, node: Any, keys: tuple[Any, ...] = ()) -> dict[str, Any]:
        attributes = getattr(node, "attributes", None) or {}
        if any(type(name) is not str or is_taken(name) for name in attributes) or (
            attributes and node.factory is not None
        ):
            raise UnsafeFileError(
                f"{self.where} replaces what an OrderedDict does with attributes of that name."
            )
        return {
            name: self.node(value, (*keys, name), is_value=False)
            for name, value in attributes.items()
        }

    def instance(self, node: InstanceOf) -> dict[Any, Any]:
        states = node.state if type(node.state) is tuple and len(node.state) == 2 else (node.state,)
        made: dict[Any, Any] = {}
        rest: dict[str, Any] = {"arguments": node.arguments, "keywords": node.keywords}
        if all(state is None or type(state) is dict for state in states):
            for state in states:
                made |= state or {}
        else:
            rest["state"] = node.state
        rest["items"] = node.items
        if not made and not any(rest.values()):
            # A dict of a class of its own.
            return node.entries
        rest["entries"] = node.entries
        for name, value in rest.items():
            if value:
                made[_free_key(name, made)] = value
        return made


def _free_key(name: str, taken: dict[Any, Any]) -> str:
    """A name that the attributes of an object do not have."""
    while name in taken:
        name += "_"
    return name
