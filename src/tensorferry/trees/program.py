"""`Program`: how trees of one structure are converted, made for the first of them and found by the next.

What a recipe is for a tensor, a program is for a structure: the containers, the types of the leaves,
which of them are converted. `Programs` keeps those of one request. A tree is checked against a
program while it is taken apart; one that differs in anything gets a program of its own. What no
program is made for, and every error, is the matter of `TreeConversion`.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import optree

from ..backends import fast_paths, registry
from ..backends.base import Backend
from ..backends.nodes import Node
from ..core.info import TensorInfo
from ..core.leaf_dtypes import place_of_name
from ..core.named_tuple import NamedTuple
from ..errors import ConversionError
from ..execution import run
from ..execution.groups import AT_ONCE, Groups, LeafPart, some_of
from .containers import PLAIN, is_tuple_with_a_constructor, openers_of
from .failures import refuse_unknown_name
from .grouped import sent_together
from .leaves import UNKNOWN
from .structure import NAMESPACE, equal
from .targets import copy_in_its_framework
from .walk import take_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ..execution.groups import LeafGroup
    from ..execution.recipes import Conversion, Recipe
    from .leaves import LeafRule
    from .targets import Targets

    Opened = tuple[Any, Iterable[Any]]

__all__ = ["DEEPEST", "Container", "Program", "Programs", "labels_of", "way_to_open"]

_ALTERNATIVES = 8
"""How many programs are kept for trees that look alike at first sight."""
_MOST = 64
"""For how many different first sights programs are kept."""
_MOST_LEAVES = 1 << 18
"""The most leaves of all programs of one request together."""
DEEPEST = 100
"""The deepest nesting of containers in a program."""
_FEW = 8
"""Up to so many leaves, all are tried by a fast path."""
_FAILURES = (KeyError, RuntimeError, TypeError, ValueError)
"""What a framework raises, and a container that changes meanwhile."""


# -- containers ------------------------------------------------------------------------------------


class Container:
    """A container in a program.

    Args:
        kind: Its type.
        size: The number of its values.
        inner: Those values that are containers, by position.
        opened: Gives what the container is made again from, and its values; ``None`` if it has
            become another one.
        make: Makes the container again from what `opened` gave, and other values.
        labels: Its keys, if names matter; ``None`` if not.
    """

    __slots__ = ("inner", "kind", "labels", "make", "opened", "size")

    def __init__(
        self,
        kind: type,
        size: int,
        inner: tuple[tuple[int, Container], ...],
        opened: Callable[[Any], Opened | None],
        make: Callable[[Any, Any], Any],
        labels: list[Any] | None,
    ) -> None:
        self.kind = kind
        self.size = size
        self.inner = inner
        self.opened = opened
        self.make = make
        self.labels = labels

    def take(self, x: Any, leaves: list[Any], kept: list[Any], met: list[int]) -> bool:
        """Take an object apart. Whether it is such a container.

        Args:
            x: The object.
            leaves: Its leaves are added here.
            kept: What it and each container inside are made again from is added here.
            met: The `id` of each of them is added here.
        """
        if type(x) is not self.kind:
            return False
        opened = self.opened(x)
        if opened is None:
            return False
        whole, values = opened
        kept.append(whole)
        if not self.inner:
            before = len(leaves)
            leaves += values
            if len(leaves) - before != self.size:
                return False
        else:
            values = list(values)
            if len(values) != self.size:
                return False
            start = 0
            for at, inner in self.inner:
                leaves += values[start:at]
                if not inner.take(values[at], leaves, kept, met):
                    return False
                start = at + 1
            leaves += values[start:]
        if self.size or self.kind is not tuple:  # there is only one empty tuple
            met.append(id(x))
        return self.labels is None or equal(self.labels, labels_of(whole))

    def rebuild(self, kept: Iterator[Any], leaves: Iterator[Any]) -> Any:
        """Make the container again.

        Args:
            kept: What `take` kept of it and of those inside.
            leaves: Other leaves.
        """
        whole = next(kept)
        if not self.inner:
            return self.make(whole, islice(leaves, self.size))
        values: list[Any] = []
        start = 0
        for at, inner in self.inner:
            values += islice(leaves, at - start)
            values.append(inner.rebuild(kept, leaves))
            start = at + 1
        values += islice(leaves, self.size - start)
        return self.make(whole, values)


def labels_of(whole: Any) -> list[Any]:
    """The keys or entries of a container, with their types: ``1`` and ``True`` are equal.

    A key of another class, whose comparison may do anything, is told by its `id`.
    """
    if isinstance(whole, Node):
        return [*whole.entries]
    if isinstance(whole, dict):
        return [(type(key), key if type(key) in PLAIN else id(key)) for key in whole]
    return [whole] if isinstance(whole, optree.PyTreeSpec) else []


def _open_itself(x: Any) -> Opened:
    return x, x


def _open_dict(x: dict[Any, Any]) -> Opened:
    # Another thread may put other keys into it before it is made again.
    held = x.copy()
    return held, held.values()


def _open_ordered(x: OrderedDict[Any, Any]) -> Opened | None:
    if x.__dict__:
        return None  # with attributes it is opened as a container of a class of its own
    held = dict(x.items())
    return held, held.values()


def _make_dict(x: dict[Any, Any], values: Iterable[Any]) -> Any:
    return dict(zip(x, values, strict=True))


def _make_ordered(x: OrderedDict[Any, Any], values: Iterable[Any]) -> Any:
    return OrderedDict(zip(x, values, strict=True))


def _make_default(x: defaultdict[Any, Any], values: Iterable[Any]) -> Any:
    return defaultdict(x.default_factory, zip(x, values, strict=True))


def _make_list(_: list[Any], values: Iterable[Any]) -> Any:
    return list(values)


def _make_tuple(_: tuple[Any, ...], values: Iterable[Any]) -> Any:
    return tuple(values)


def _make_deque(x: deque[Any], values: Iterable[Any]) -> Any:
    return deque(values, x.maxlen)


def _make_named(x: Any, values: Iterable[Any]) -> Any:
    return type(x)(*values)


def _make_sequence(x: Any, values: Iterable[Any]) -> Any:
    return type(x)(values)


_BUILT_IN: dict[type, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    dict: (_open_dict, _make_dict),
    OrderedDict: (_open_ordered, _make_ordered),
    defaultdict: (_open_dict, _make_default),
    list: (_open_itself, _make_list),
    tuple: (_open_itself, _make_tuple),
    deque: (_open_itself, _make_deque),
}
"""The types that optree opens too, and how."""


def _open_registered(x: Any) -> Opened | None:
    """Open an object of a class that is registered with optree."""
    values, spec = optree.tree_flatten(
        x, lambda y: y is not x, none_is_leaf=True, namespace=NAMESPACE
    )
    return None if spec.is_leaf() else (spec, values)


def _make_registered(spec: Any, values: Iterable[Any]) -> Any:
    return optree.tree_unflatten(spec, values)


def _make_node(node: Node, values: Iterable[Any]) -> Any:
    return node.rebuild(list(values))


def _opened_by(
    openers: Sequence[Callable[[Any], Node | None]], is_free: Callable[[Any], bool] | None
) -> Callable[[Any], Opened | None]:
    """A function that opens objects of a class as those openers do.

    Args:
        openers: The openers, in order.
        is_free: Whether attributes that are not values hold no tensor; ``None`` if they may.
    """

    def opened(x: Any) -> Opened | None:
        for opener in openers:
            node = opener(x)
            if node is not None:
                if node.static and is_free is not None and not is_free(node.static):
                    return None
                return node, node.values
        return None

    return opened


def way_to_open(
    x: Any, is_free: Callable[[Any], bool] | None
) -> tuple[Callable[[Any], Opened | None], Callable[[Any, Any], Any]] | None:
    """How an object is opened and made again; ``None`` if it is a leaf.

    Args:
        x: The object.
        is_free: See `_opened_by`.
    """
    kind = type(x)
    if kind in _BUILT_IN and not (kind is OrderedDict and x.__dict__):
        return _BUILT_IN[kind]
    if issubclass(kind, tuple) and not is_tuple_with_a_constructor(kind):
        if optree.is_namedtuple_class(kind):
            return _open_itself, _make_named
        if optree.is_structseq_class(kind):
            return _open_itself, _make_sequence
    is_ours = kind is OrderedDict or issubclass(kind, (tuple, np.ndarray, np.void))
    if not is_ours and _open_registered(x) is not None:
        return _open_registered, _make_registered
    openers = openers_of(kind, [x])
    if not any(opener(x) is not None for opener in openers):
        return None
    return _opened_by(openers, is_free), _make_node


# -- programs --------------------------------------------------------------------------------------


class Program(NamedTuple):
    """How trees of one structure are converted.

    Args:
        root: The outermost container; ``None`` if the tree is one tensor.
        kinds: The type of each leaf.
        places: The positions of the leaves that are converted; ``None`` for all of them.
        parts: The same by type and request.
        texts: The positions of tensors of text, and for each type what says that it is one.
        unknown: The positions of objects that may hold a tensor, and must be searched.
    """

    root: Container | None
    kinds: list[type]
    places: list[int] | None
    parts: tuple[LeafPart, ...]
    texts: tuple[tuple[int, Callable[[Any], bool]], ...]
    unknown: tuple[int, ...]

    def take(self, tree: Any, rule: LeafRule) -> tuple[list[Any], list[Any]] | None:
        """The leaves of a tree, and what its containers are made again from.

        ``None`` if it has another structure, or if an object occurs in it as two containers.

        Raises:
            UnsupportedTypeError: An object holds a tensor, which would not be converted.
        """
        leaves: list[Any] = []
        kept: list[Any] = []
        if self.root is None:
            leaves.append(tree)
        else:
            met: list[int] = []
            if not self.root.take(tree, leaves, kept, met):
                return None
            if len(met) > 1 and len(set(met)) < len(met):
                return None
        if [*map(type, leaves)] != self.kinds:
            return None
        for place, is_text in self.texts:
            if not is_text(leaves[place]):
                return None
        for place in self.unknown:
            if rule.takes(leaves[place]):
                return None
        return leaves, kept

    def rebuild(self, kept: list[Any], leaves: list[Any]) -> Any:
        """Make a tree again, with other leaves."""
        if self.root is None:
            return leaves[0]
        return self.root.rebuild(iter(kept), iter(leaves))


class Programs:
    """The programs of one request.

    Args:
        targets: The targets of the leaves.
        rule: The rule for which leaves are converted; without a user's callable.
        coalesce: Whether small leaves cross the bus together.
    """

    __slots__ = (
        "_by_name",
        "_coalesce",
        "_groups",
        "_is_ordinary",
        "_kept",
        "_leaves",
        "_path_to",
        "_rule",
        "_targets",
    )

    def __init__(self, targets: Targets, rule: LeafRule, *, coalesce: bool) -> None:
        self._targets = targets
        self._rule = rule
        self._coalesce = coalesce
        self._kept: dict[Any, tuple[Program, ...]] = {}
        self._leaves = 0
        self._groups = Groups()
        self._by_name = bool(targets.rule.names)
        common = targets.common
        self._is_ordinary = (
            common is not None and not targets.decides_by_leaf and common.request.is_ordinary
        )
        self._path_to = "" if common is None else common.target.name

    def convert(self, tree: Any, out: Any = None) -> Any:
        """Convert a tree; `NotImplemented` if it is a matter for `TreeConversion`.

        Args:
            tree: The tree.
            out: A tree of the same structure, into whose tensors the results are written.
        """
        try:
            found = self._find(tree)
            if found is None:
                return NotImplemented
            tree_program, leaves, kept = found
            outs = None
            if out is not None:
                outs = _outs(tree_program, kept, out)
                if outs is None:
                    return NotImplemented
            results = self._converted(tree_program, leaves, outs, kept)
        except (ConversionError, *_FAILURES):
            return NotImplemented  # the error is raised there, with the path of the leaf
        if results is None:
            return NotImplemented
        try:
            return tree_program.rebuild(kept, results)
        except Exception:  # noqa: BLE001 - what the class of a container raises, is noted there
            return NotImplemented

    # -- find -------------------------------------------------------------------------------------

    def _find(self, tree: Any) -> tuple[Program, list[Any], list[Any]] | None:
        kind = type(tree)
        sight = kind, len(tree) if kind in _BUILT_IN else 0
        programs = self._kept.get(sight, ())
        for tree_program in programs:
            taken = tree_program.take(tree, self._rule)
            if taken is not None:
                if tree_program is not programs[0]:
                    # The one that was used last is tried first.
                    others = [each for each in programs if each is not tree_program]
                    self._kept[sight] = tree_program, *others
                return tree_program, *taken
        made = self._make(tree)
        if made is None:
            return None
        taken = made.take(tree, self._rule)
        if taken is None:
            return None
        self._keep(sight, programs, made)
        return made, *taken

    def _keep(self, sight: Any, programs: Sequence[Program], made: Program) -> None:
        self._leaves += len(made.kinds)
        if self._leaves > _MOST_LEAVES or len(self._kept) >= _MOST:
            self._kept = {}
            self._leaves = len(made.kinds)
            programs = ()
        for dropped in programs[_ALTERNATIVES - 1 :]:
            self._leaves -= len(dropped.kinds)
        self._kept[sight] = made, *programs[: _ALTERNATIVES - 1]

    # -- make -------------------------------------------------------------------------------------

    def _make(self, tree: Any) -> Program | None:
        """The program for a tree; ``None`` if there is none.

        Raises:
            ConversionError: The tree cannot be converted.
        """
        if hasattr(type(tree), "columns"):
            return None  # a table has a faster way
        leaves: list[Any] = []
        try:
            root = self._container(tree, leaves, 0)
        except _NoProgramError:
            return None
        if root is None:
            leaves.append(tree)
        kinds = list(map(type, leaves))
        answers = {kind: self._answer(kind, leaf) for kind, leaf in zip(kinds, leaves, strict=True)}
        if None in answers.values() or (root is None and answers[type(tree)] is not True):
            return None
        places: list[int] = []
        texts: list[tuple[int, Callable[[Any], bool]]] = []
        unknown: list[int] = []
        for place, (kind, leaf) in enumerate(zip(kinds, leaves, strict=True)):
            answer = answers[kind]
            if answer is UNKNOWN:
                unknown.append(place)
            elif isinstance(answer, Backend):
                if answer.is_text(leaf):
                    texts.append((place, answer.is_text))
                else:
                    places.append(place)
            elif answer:
                places.append(place)
        names: list[str] = []
        if self._by_name:
            # Here, because most requests name no leaf, and have no columns.
            from .tables import is_counted

            names = take_apart(tree)[1].names()
            if any(
                is_counted(leaves[place], self._targets.rule, names[place]) for place, _ in texts
            ):
                return None
            self._refuse_unknown_names([names[place] for place in places])
        parts = self._parts(leaves, kinds, places, names)
        if parts is None:
            return None
        return Program(
            root,
            kinds,
            None if len(places) == len(leaves) else places,
            parts,
            tuple(texts),
            tuple(unknown),
        )

    def _answer(self, kind: type, leaf: Any) -> Any:
        """Whether leaves of a type are converted.

        Gives a backend whose tensors may be text, `leaves.UNKNOWN` if each is to be searched, and
        ``None`` if there is no program for trees with such leaves.
        """
        return None if issubclass(kind, TensorInfo) else self._rule.answer_of(kind, leaf)

    def _parts(
        self, leaves: list[Any], kinds: list[type], places: list[int], names: list[str]
    ) -> tuple[LeafPart, ...] | None:
        """The leaves that are converted, by type and request."""
        targets = self._targets
        common = targets.common
        if common is None and not targets.copies:
            return None
        found: dict[Any, list[int]] = {}
        for index, place in enumerate(places):
            among = place_of_name(self._patterns, names[place]) if names else None
            found.setdefault((kinds[place], among), []).append(index)
        parts = []
        for (kind, among), those in found.items():
            leaf = leaves[places[those[0]]]
            conversion = copy_in_its_framework(leaf) if common is None else common
            registry.ready(conversion.target.name)
            decide = None
            if targets.decides_by_leaf:
                name = names[places[those[0]]] if names else ""
                decide = partial(self._decided, conversion, name)
            alone = len(those) == len(places)
            parts.append(LeafPart(kind, None if alone else those, conversion, decide, among))
        return tuple(parts)

    def _refuse_unknown_names(self, names: list[str]) -> None:
        rule = self._targets.rule
        refuse_unknown_name("dtype", rule.names, names, lambda _: None, rule.without_names)

    @property
    def _patterns(self) -> tuple[str, ...]:
        return tuple([name for name, _ in self._targets.rule.names])

    def _decided(self, conversion: Conversion, name: str, info: TensorInfo) -> Conversion:
        return self._targets.asked_of(conversion, info, lambda: name)

    def _container(self, x: Any, leaves: list[Any], depth: int) -> Container | None:
        """The container that an object is, whose leaves are added; ``None`` if it is a leaf.

        Raises:
            _NoProgramError: There is no program for such a tree.
        """
        kind = type(x)
        if kind in PLAIN or (
            not issubclass(kind, (np.ndarray, np.void)) and registry.is_known_tensor(kind)
        ):
            return None
        if depth > DEEPEST:
            raise _NoProgramError
        found = way_to_open(x, self._rule.is_free if self._rule.refuses else None)
        if found is None:
            return None
        opened, make = found
        taken = opened(x)
        if taken is None:
            raise _NoProgramError
        whole, values = taken
        values = list(values)
        inner = []
        for at, value in enumerate(values):
            container = self._container(value, leaves, depth + 1)
            if container is None:
                leaves.append(value)
            else:
                inner.append((at, container))
        labels = labels_of(whole) if self._by_name else None
        return Container(kind, len(values), tuple(inner), opened, make, labels)

    # -- run --------------------------------------------------------------------------------------

    def _converted(
        self, tree_program: Program, leaves: list[Any], outs: list[Any] | None, kept: list[Any]
    ) -> list[Any] | None:
        """The leaves of the result; ``None`` if one must be described.

        Raises:
            ConversionError: A leaf cannot be converted.
        """
        places = tree_program.places
        chosen = leaves if places is None else [leaves[place] for place in places]
        if not chosen:
            return leaves
        if outs is None:
            results = self._results(tree_program, chosen)
        else:
            into = outs if places is None else [outs[place] for place in places]
            if len(set(map(id, chosen))) < len(chosen):
                return None
            # Made again before anything is written, because a container may refuse the values.
            tree_program.rebuild(kept, outs)
            results = self._by_groups(tree_program.parts, chosen, into)
        if results is None or places is None:
            return results
        whole = [*leaves]
        for place, result in zip(places, results, strict=True):
            whole[place] = result
        return whole

    def _results(self, tree_program: Program, chosen: list[Any]) -> list[Any] | None:
        count = len(chosen)
        if count > 1 and len(set(map(id, chosen))) < count:
            if self._by_name:
                return None  # one object may become several
            # An object that occurs several times is converted once.
            alone = list({id(leaf): leaf for leaf in chosen}.values())
            parts = self._parts_of_different(tree_program, chosen, alone)
            results = self._of_different(parts, alone)
            if results is None:
                return None
            done = dict(zip(map(id, alone), results, strict=True))
            return [done[id(leaf)] for leaf in chosen]
        return self._of_different(tree_program.parts, chosen)

    def _parts_of_different(
        self, tree_program: Program, chosen: list[Any], alone: list[Any]
    ) -> tuple[LeafPart, ...]:
        """The parts of a program, for its leaves without those that occur again."""
        at = {id(leaf): index for index, leaf in enumerate(alone)}
        found = []
        for part in tree_program.parts:
            places = range(len(chosen)) if part.places is None else part.places
            found.append(
                part._replace(places=list(dict.fromkeys(at[id(chosen[place])] for place in places)))
            )
        return tuple(found)

    def _of_different(self, parts: Sequence[LeafPart], leaves: list[Any]) -> list[Any] | None:
        if self._is_ordinary:
            results = self._by_fast_paths(parts, leaves)
            if results is not None:
                return results
        return self._by_groups(parts, leaves, None)

    def _by_fast_paths(self, parts: Sequence[LeafPart], leaves: list[Any]) -> list[Any] | None:
        """The results of fast paths, if they accept all leaves."""
        target = self._path_to
        paths = fast_paths.paths_to(target)
        results: list[Any] = [None] * len(leaves)
        try:
            for part in parts:
                path = paths[part.kind]
                if len(leaves) > 1 and fast_paths.copies(part.kind, target):
                    return None
                some = leaves if part.places is None else [leaves[place] for place in part.places]
                # One is tried first: on a device, say, none is accepted.
                if len(some) > _FEW and path(some[0]) is None:
                    return None
                found = [*map(path, some)]
                if part.places is None:
                    results = found
                    continue
                for place, result in zip(part.places, found, strict=True):
                    results[place] = result
        except fast_paths.NOT_ACCEPTED:
            return None
        return None if type(None) in set(map(type, results)) else results

    def _by_groups(
        self, parts: Sequence[LeafPart], leaves: list[Any], outs: list[Any] | None
    ) -> list[Any] | None:
        """The results by recipes, each step for all leaves of one.

        ``None``: a leaf must be described, or two of those that are copied or written share memory.

        Raises:
            ConversionError: A leaf cannot be converted.
        """
        groups = self._groups.of(leaves, parts, outs)
        if groups is None:
            return None
        if any(group.recipe.transfers for group in groups):
            values = self._sent(groups, leaves, outs)
            if values is None:
                return None
        else:
            steps = slice(None) if outs is None else slice(-1)
            values = [
                _in_parts(group.recipe, steps, some_of(leaves, group.places)) for group in groups
            ]
        if outs is None:
            results = _in_order(values, groups, len(leaves))
        else:
            for group, some in zip(groups, values, strict=True):
                run.execute(group.recipe.bulk[-1:], some, some_of(outs, group.places))
            results = outs
        if run.is_verifying():
            _verify(groups, leaves, outs, results)
        return results

    def _sent(
        self, groups: list[LeafGroup], leaves: list[Any], outs: list[Any] | None
    ) -> list[list[Any]] | None:
        """The results of leaves of which some cross a bus; ``None`` if not in this way."""
        targets = {group.conversion.target for group in groups}
        if outs is not None or not self._coalesce or len(targets) > 1:
            return None
        several = [(group.recipe, some_of(leaves, group.places)) for group in groups]
        return sent_together(several, targets.pop())


class _NoProgramError(Exception):
    """There is no program for a tree."""


def _in_parts(recipe: Recipe, steps: slice, leaves: list[Any]) -> list[Any]:
    """The results of steps of a recipe, for many leaves."""
    if len(leaves) <= AT_ONCE:
        return run.execute(recipe.bulk[steps], leaves)  # type: ignore[no-any-return]
    found: list[Any] = []
    for start in range(0, len(leaves), AT_ONCE):
        found += run.execute(recipe.bulk[steps], leaves[start : start + AT_ONCE])
    return found


def _in_order(values: list[list[Any]], groups: list[LeafGroup], count: int) -> list[Any]:
    """The results of all groups, in the order of the leaves."""
    if len(values) == 1 and type(groups[0].places) is range:
        return values[0]
    results: list[Any] = [None] * count
    for some, group in zip(values, groups, strict=True):
        for place, value in zip(group.places, some, strict=True):
            results[place] = value
    return results


def _verify(
    groups: list[LeafGroup], leaves: list[Any], outs: list[Any] | None, results: list[Any]
) -> None:
    for group in groups:
        for place in group.places:
            out = None if outs is None else outs[place]
            run.verify(run.prepare(leaves[place], group.conversion, out), results[place])


def _outs(tree_program: Program, kept: list[Any], out: Any) -> list[Any] | None:
    """The tensors of ``out=`` in the order of the leaves; ``None`` if it is not alike at sight."""
    if tree_program.root is None:
        return [out]
    outs: list[Any] = []
    theirs: list[Any] = []
    if not tree_program.root.take(out, outs, theirs, []):
        return None
    for mine, other in zip(kept, theirs, strict=True):
        if not equal(labels_of(mine), labels_of(other)):
            return None
    return outs
