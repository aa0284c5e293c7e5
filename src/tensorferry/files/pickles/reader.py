"""Read a pickle of tensors as a tree of plain values, without running or making anything that it asks for."""

from __future__ import annotations

import mmap
import re
from array import array
from bisect import bisect_right
from collections import OrderedDict, defaultdict
from contextlib import suppress
from operator import itemgetter
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...errors import FileFormatError, UnsafeFileError
from ..base.contents import NOTHING, Ref, Special
from ..base.nesting import CONTAINER, DEEPEST, MOST, PLAIN, are_plain, name_at
from ..base.objects import Attributes, Kept, Placeholder, Refusal, RefusedValue, escaped
from ..base.wording import named
from .machine import MOST_STEPS, Global, Machine, Ordered, UnreadBytes
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
from .table import VALUES

if TYPE_CHECKING:
    from collections.abc import Callable

    from .machine import Vocabulary
    from .torch import Names

__all__ = ["Unpickled", "described", "globals_of", "root_of", "run"]


def run(
    read: Callable[[], bytes | mmap.mmap],
    vocabulary: Vocabulary,
    where: str,
    begin: int = 0,
    most: int = MOST_STEPS,
) -> Any:
    """The result of a pickle, in plain values and stand-ins.

    `Vocabulary.machine` tells where the pickle ended.

    Args:
        read: Gives the pickle. It may be called again, because pages of a map are freed while it is
            read.
        vocabulary: Defines the meaning of its names.
        where: The file, for messages.
        begin: The position of the pickle.
        most: About how many steps it may take.
    """
    quick = _QuickMachine(read(), vocabulary, where, begin, most)
    try:
        return quick.run()
    except _Replay:
        return Machine(read(), vocabulary, where, begin, most - quick.steps).run()


class _Replay(Exception):  # noqa: N818 - a signal, not an error
    """The fast way has skipped a value that is needed now."""


_GET = rb"(h.|j....)"
_PUT = rb"(r....)"
_COUNT = rb"(K.|M..|J....|\x8a\x05.....|\x8a\x06......)"
_NUMBER = _COUNT.replace(b"(", b"(?:")
_SIZES = rb"(?:\)|(%b\x85|%b{2}\x86|%b{3}\x87|\(%b+t)%b)" % (*[_NUMBER] * 4, _PUT)
_TENSOR = re.compile(
    rb"\(\("
    + _GET * 2
    + rb"X(.)\0\0\0(0|[1-9][0-9]{0,8})"
    + _PUT
    + _GET
    + _COUNT
    + b"t"
    + _PUT
    + b"Q"
    rb""
    + _COUNT
    + _SIZES * 2
    + rb"([\x88\x89])"
    + _GET
    + rb"\)R"
    + _PUT
    + _GET
    + b"?t"
    + _PUT
    + b"R"
    + _PUT,
    re.DOTALL,
)
"""The bytes of a tensor after the name of its function, as ``torch.save`` writes nearly all of them."""
_LENGTH, _KEY = 2, 3
_PUTS = (4, 7, 10, 12, 15, 17, 18)
"""The places of the PUTs in the groups of `_TENSOR`. Two of them may be missing."""
_puts = itemgetter(*_PUTS)
_rest = itemgetter(*(group for group in range(19) if group not in (_LENGTH, _KEY, *_PUTS)))
_INDICES = {count: Struct("<" + "xI" * count) for count in range(5, 8)}
"""Read the memo indices of several PUTs."""
_MOST_KNOWN = 1000
_RELEASED = 1 << 18
"""After this many bytes, pages that have been read are freed."""


class _QuickMachine(Machine):
    """A machine that knows tensors again by their bytes, which differ only in the key and the memo indices."""

    def __init__(
        self, data: bytes | mmap.mmap, vocabulary: Vocabulary, where: str, begin: int, most: int
    ) -> None:
        super().__init__(data, vocabulary, where, begin, most)
        self.known: dict[Any, Any] = {}
        self.like: Any = None
        self.end = -1
        """The end of the tensor that is being read step by step. It is then known by `like`."""
        self.highest = -1
        self.released = 0
        # The memo of tensors that were not read step by step, in order: a dict would take three
        # times the memory.
        self.indices = array("I")
        self.values: list[Any] = []

    def get(self, index: int) -> None:
        value = self.memo[index] if index in self.memo else self.remembered(index)
        self.stack.append(value)
        if type(value) is Global and value in self.vocabulary.rebuilds:
            self.tensor(value)

    def put(self, index: int) -> None:
        value = self.memo[index] = self.stack[-1]
        if index > self.highest:
            self.highest = index
            if self.at == self.end and len(self.known) < _MOST_KNOWN:
                self.known[self.like] = value
        else:
            # What is known depends on the memo.
            self.known.clear()
            self.end = -1

    def memoize(self) -> None:
        if self.indices:
            raise _Replay
        self.put(len(self.memo))

    def remembered(self, index: int) -> Any:
        place = bisect_right(self.indices, index) - 1
        if place < 0 or self.indices[place] != index:
            raise _Replay if self.indices else KeyError(index)
        value = self.values[place]
        return str(value) if type(value) is int else value

    def tensor(self, function: Global) -> None:
        match = _TENSOR.match(self.data, self.at)
        if match is None:
            return
        found: tuple[bytes, ...] = match.groups(b"")
        puts = b"".join(_puts(found))
        indices = _INDICES[len(puts) // 5].unpack(puts)
        first, last = indices[0], indices[-1]
        key = found[_KEY]
        # Only numbers of memo entries that are new and count up are skipped.
        if (
            first <= self.highest
            or len(key) != found[_LENGTH][0]
            or indices != tuple(range(first, first + len(indices)))
        ):
            return
        like = function, *_rest(found)
        made = self.vocabulary.again(self.known.get(like), int(key))
        if made is None:
            self.end, self.like = match.end(), like
            return
        if type(self.memo.get(first - 1)) is str:
            self.indices.append(first - 1)
            self.values.append(self.memo.pop(first - 1))
        self.indices.extend((first, last))
        self.values += (made.number, made)
        self.stack[-1] = made
        self.highest, self.at = last, match.end()
        if self.at - self.released > _RELEASED and isinstance(self.data, mmap.mmap):
            end = self.at - self.at % mmap.PAGESIZE
            self.data.madvise(mmap.MADV_DONTNEED, self.released, end - self.released)
            self.released = end


_OTHERS = frozenset({complex, bytes, bytearray, Special})
_STEPS_FOR_GLOBALS = 200_000
_FACTORIES: dict[str, Any] = {
    each.__name__: each for each in (dict, list, set, tuple, int, float, str, bool)
}
_TAKEN = frozenset(dir(OrderedDict()))
_MOST_SEARCHED = 1_000_000


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
        read: Gives the pickle; see `run`.
        vocabulary: Defines the meaning of its names.
        begin: The position of the pickle.

    Raises:
        FileFormatError: It is damaged, or describes impossible tensors.
        UnsafeFileError: It asks for something that is not data, or needs far too much memory or
            time.
    """
    try:
        root = run(read, vocabulary, vocabulary.where, begin)
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
        found = {**flat} if type(flat) is Ordered else flat
        return Unpickled(found, tree, asks_for, _besides(vocabulary, found))
    builder = _TreeBuilder(vocabulary, nbytes)
    whole = NOTHING if root is None else builder.node(root, ())
    return Unpickled(builder.leaves, whole, asks_for, _besides(vocabulary, builder.leaves))


def globals_of(
    read: Callable[[], bytes | mmap.mmap], vocabulary: Names, begin: int = 0
) -> tuple[str, ...]:
    """The globals that a pickle asks for, as far as it can be read.

    Args:
        read: Gives the pickle; see `run`.
        vocabulary: Defines the meaning of its names.
        begin: The position of the pickle.
    """
    # The names until the error are given. The error itself comes from `root_of`.
    with suppress(FileFormatError, UnsafeFileError):
        run(read, vocabulary, vocabulary.where, begin, _STEPS_FOR_GLOBALS)
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
    found = (
        (f"{name}@{key}", why)
        for name, leaf in leaves.items()
        for key, why in of.get(id(leaf), {}).items()
    )
    return {name if name not in leaves else f"{name}@": why for name, why in found}


def _flat(root: Any) -> dict[str, Any] | None:
    if type(root) not in (dict, Ordered):
        return None
    fits = all(type(name) is str and type(leaf) is TensorOf for name, leaf in root.items())
    return root if fits else None


def _container(node: dict[Any, Any], attributes: dict[str, Any]) -> dict[Any, Any]:
    if type(node) is not Ordered:
        return {}
    made: dict[Any, Any] = (
        OrderedDict() if node.factory is None else defaultdict(_FACTORIES.get(node.factory))
    )
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
        self.counts: dict[str, int] = {}
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
        if kind in PLAIN or isinstance(node, np.generic):
            self.weigh(1)
            return node
        if isinstance(node, TensorStandIn):
            self.weigh(1)
            return self.label(node, keys) if is_value else self.of_attribute(node)
        self.weigh(CONTAINER)
        if kind in _OTHERS:
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
                return kind(node)
            return kind(
                self.node(child, (*keys, place), is_value=is_value)
                for place, child in enumerate(node)
            )
        if kind is UnreadBytes:
            return node.kind(self.machine.take_left(node))
        if kind is set or kind is frozenset:
            self.weigh(len(node))
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
            return Kept(node.text, node.kind)
        text = VALUES.get(node.name)
        if text is not None:
            return Kept(text, f"the type {node.name.removeprefix('builtins.')}")
        return self.placeholders.setdefault(node.name, Placeholder(node.name))

    def refused(self, node: RefusedOf) -> OtherOf:
        """What stands for the result of a call that is not allowed."""
        kind = Refusal if self.has_tensors(node.held) else RefusedValue
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

    def label(self, leaf: Any, keys: tuple[Any, ...]) -> Ref:
        name = name_at(keys, self.leaves, self.counts)
        self.leaves[name] = self.refused(leaf) if type(leaf) is RefusedOf else leaf
        return Ref(name, getattr(leaf, "kind", "tensor"), getattr(leaf, "requires_grad", False))

    def fill(
        self, made: dict[Any, Any], node: dict[Any, Any], keys: tuple[Any, ...], *, is_value: bool
    ) -> Any:
        if are_plain(node.values()):
            self.weigh(len(node))
            made.update(node)
        else:
            for key, child in node.items():
                made[key] = self.node(child, (*keys, key), is_value=is_value)
        return made

    def attributes(self, node: Any, keys: tuple[Any, ...] = ()) -> dict[str, Any]:
        found = getattr(node, "attributes", None) or {}
        if any(type(name) is not str or name in _TAKEN for name in found) or (
            found and node.factory is not None
        ):
            raise UnsafeFileError(
                f"{self.where} replaces what an OrderedDict does with attributes of that name."
            )
        return {
            name: self.node(value, (*keys, name), is_value=False) for name, value in found.items()
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
