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

from ..backends import registry
from ..backends.base import Backend
from ..backends.nodes import Node
from ..core.info import TensorInfo
from ..core.leaf_dtypes import place_of_name
from ..core.named_tuple import NamedTuple
from ..errors import ConversionError
from ..execution.groups import Groups, LeafPart
from .containers import PLAIN, is_tuple_with_a_constructor, openers_of
from .failures import refuse_unknown_name
from .grouped import convert_by_fast_paths, convert_groups
from .leaves import UNKNOWN
from .structure import NAMESPACE, equal
from .targets import copy_in_its_framework
from .walk import take_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    from ..backends.columnar import ColumnBackend
    from ..execution.groups import Arrangement
    from ..execution.recipes import Conversion
    from ..planning.plan import Plan
    from .leaves import LeafRule
    from .targets import Targets

    Opened = tuple[Any, Iterable[Any]]

__all__ = ["PreparedTree", "Program", "Programs"]

_ALTERNATIVES = 8
"""How many programs are kept for trees that look alike at first sight."""
_MOST = 64
"""For how many different first sights programs are kept."""
_MOST_LEAVES = 1 << 18
"""The most leaves of all programs of one request together."""
_DEEPEST = 100
"""The deepest nesting of containers in a program."""
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
        return self.labels is None or equal(self.labels, _labels(whole))

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


def _labels(whole: Any) -> list[Any]:
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


# -- programs --------------------------------------------------------------------------------------


class _Table(NamedTuple):
    """A table whose columns are read as arrays: its first leaf, and its place among containers."""

    first: int
    container: int


class _Making:
    """What is found while a program is made.

    The `owners` are the backends of tables, by the places of the arrays over their columns.
    """

    __slots__ = ("containers", "leaves", "owners", "tables")

    def __init__(self) -> None:
        self.leaves: list[Any] = []
        self.owners: dict[int, ColumnBackend] = {}
        self.tables: list[_Table] = []
        self.containers = 0


class Program(NamedTuple):
    """How trees of one structure are converted.

    Args:
        root: The outermost container; ``None`` if the tree is one tensor.
        kinds: The type of each leaf.
        places: The positions of the leaves that are converted; ``None`` for all of them.
        parts: The same by type and request.
        texts: The positions of tensors of text, and for each type what says that it is one.
        unknown: The positions of objects that may hold a tensor, and must be searched.
        together: What `Groups.of` remembers of its leaves.
        tables: The tables whose columns are read as arrays.
    """

    root: Container | None
    kinds: list[type]
    places: list[int] | None
    parts: tuple[LeafPart, ...]
    texts: tuple[tuple[int, Callable[[Any], bool]], ...]
    unknown: tuple[int, ...]
    together: dict[Hashable, Arrangement]
    tables: tuple[_Table, ...]

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

    def originals(self, leaves: list[Any], kept: list[Any]) -> Callable[[Any], Any] | None:
        """A function that gives the column that an array is over; ``None`` without tables."""
        return partial(self._original, leaves, kept) if self.tables else None

    def _original(self, leaves: list[Any], kept: list[Any], x: Any) -> Any:
        place = next(index for index, leaf in enumerate(leaves) if leaf is x)
        for first, container in self.tables:
            views = kept[container]
            if 0 <= place - first < len(views.arrays):
                return views.columns()[[*views.arrays][place - first]]
        return x

    def chosen(self, leaves: list[Any]) -> list[Any]:
        """Those of all leaves that are converted."""
        return leaves if self.places is None else [leaves[place] for place in self.places]

    def whole(self, leaves: list[Any], results: list[Any]) -> list[Any]:
        """All leaves, with results in place of those that are converted."""
        if self.places is None:
            return results
        found = [*leaves]
        for place, result in zip(self.places, results, strict=True):
            found[place] = result
        return found

    def rebuild(self, kept: list[Any], leaves: list[Any]) -> Any:
        """Make a tree again, with other leaves."""
        if self.root is None:
            return leaves[0]
        return self.root.rebuild(iter(kept), iter(leaves))


class PreparedTree(NamedTuple):
    """The conversion of a tree that is not run yet.

    Args:
        plans: For each kind of leaf, a plan: with the same devices, but perhaps with other sizes.
        found: The program, the leaves, and what the containers are made again from.
    """

    plans: list[Plan]
    found: tuple[Program, list[Any], list[Any]]

    def tree(self) -> Any:
        """A tree of the same leaves, whatever has become of its containers."""
        tree_program, leaves, kept = self.found
        return tree_program.rebuild(kept, leaves)


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
        "_rule",
        "_target",
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
        self._target = "" if common is None else common.target.name

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
            return self._converted(*found) if out is None else self._written(*found, out)
        except (ConversionError, *_FAILURES):
            return NotImplemented  # the error is raised there, with the path of the leaf

    def prepare(self, tree: Any) -> PreparedTree | None:
        """The conversion of a tree, to be run later; ``None`` if it is not for a program."""
        try:
            found = self._find(tree)
            if found is None:
                return None
            tree_program, leaves, kept = found
            chosen = tree_program.chosen(leaves)
            if len(set(map(id, chosen))) < len(chosen):
                return None
            original = tree_program.originals(leaves, kept)
            together = tree_program.together
            arranged = self._groups.of(chosen, tree_program.parts, None, together, original)
        except (ConversionError, *_FAILURES):
            return None
        if arranged is None:
            return None
        return PreparedTree([group.recipe.plan for group in arranged.groups], found)

    def run(self, prepared: PreparedTree) -> Any:
        """Convert the tree; `NotImplemented` if it is a matter for `TreeConversion`.

        Its containers may have changed meanwhile, but what they held is converted. What is done
        depends on the settings of now.
        """
        try:
            return self._converted(*prepared.found)
        except (ConversionError, *_FAILURES):
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
        making = _Making()
        leaves = making.leaves
        try:
            root = self._container(tree, making, 0)
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
            rule, those = self._targets.rule, [names[place] for place in places]
            refuse_unknown_name("dtype", rule.names, those, lambda _: None, rule.without_names)
        parts = self._parts(making, kinds, places, names)
        if parts is None:
            return None
        return Program(
            root,
            kinds,
            None if len(places) == len(leaves) else places,
            parts,
            tuple(texts),
            tuple(unknown),
            {},
            tuple(making.tables),
        )

    def _answer(self, kind: type, leaf: Any) -> Any:
        """Whether leaves of a type are converted.

        Gives a backend whose tensors may be text, `leaves.UNKNOWN` if each is to be searched, and
        ``None`` if there is no program for trees with such leaves.
        """
        return None if issubclass(kind, TensorInfo) else self._rule.answer_of(kind, leaf)

    def _parts(
        self, making: _Making, kinds: list[type], places: list[int], names: list[str]
    ) -> tuple[LeafPart, ...] | None:
        """The leaves that are converted, by type and request."""
        targets = self._targets
        common = targets.common
        if common is None and not targets.copies:
            return None
        patterns = tuple([name for name, _ in targets.rule.names])
        found: dict[Any, list[int]] = {}
        for index, place in enumerate(places):
            among = place_of_name(patterns, names[place]) if names else None
            key = kinds[place], among, making.owners.get(place)
            found.setdefault(key, []).append(index)
        parts = []
        for (kind, among, owner), those in found.items():
            leaf = making.leaves[places[those[0]]]
            conversion = copy_in_its_framework(leaf) if common is None else common
            registry.ready(conversion.target.name)
            decide = None
            if targets.decides_by_leaf:
                name = names[places[those[0]]] if names else ""
                decide = partial(self._decided, conversion, name)
            alone = len(those) == len(places)
            where = None if alone else those
            parts.append(LeafPart(kind, where, conversion, decide, among, owner))
        return tuple(parts)

    def _decided(self, conversion: Conversion, name: str, info: TensorInfo) -> Conversion:
        return self._targets.asked_of(conversion, info, lambda: name)

    def _container(self, x: Any, making: _Making, depth: int) -> Container | None:
        """The container that an object is, whose leaves are added; ``None`` if it is a leaf.

        Raises:
            _NoProgramError: There is no program for such a tree.
        """
        kind = type(x)
        if kind in PLAIN or (
            not issubclass(kind, (np.ndarray, np.void)) and registry.is_known_tensor(kind)
        ):
            return None
        if depth > _DEEPEST:
            raise _NoProgramError
        table = self._table(x, making)
        if table is not None:
            return table
        found = self._way_to_open(x)
        if found is None:
            return None
        opened, make = found
        taken = opened(x)
        if taken is None:
            raise _NoProgramError
        making.containers += 1
        whole, values = taken
        values = list(values)
        inner = []
        for at, value in enumerate(values):
            container = self._container(value, making, depth + 1)
            if container is None:
                making.leaves.append(value)
            else:
                inner.append((at, container))
        labels = _labels(whole) if self._by_name else None
        return Container(kind, len(values), tuple(inner), opened, make, labels)

    def _table(self, x: Any, making: _Making) -> Container | None:
        """The container that a table is, whose columns are read together; else ``None``."""
        common, kind = self._targets.common, type(x)
        if not hasattr(kind, "columns") or common is None or self._by_name:
            return None
        from .tables import has_columns, open_together, rebuilt  # most trees have no tables

        if common.described or not common.is_for_host or not has_columns(x):
            return None
        owner: Any = registry.backend_of(x)
        opened = partial(open_together, owner)
        taken = None if common.target is owner else opened(x)
        if taken is None:
            return None
        views, columns = taken
        start = len(making.leaves)
        making.tables.append(_Table(start, making.containers))
        making.containers += 1
        for place, array in enumerate(views.arrays.values(), start):
            if array is not None:
                making.owners[place] = owner
        making.leaves += columns
        return Container(kind, len(columns), (), opened, rebuilt, None)

    def _way_to_open(
        self, x: Any
    ) -> tuple[Callable[[Any], Opened | None], Callable[[Any, Any], Any]] | None:
        """How an object is opened and made again; ``None`` if it is a leaf."""
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
        return _opened_by(openers, self._rule.is_free if self._rule.refuses else None), _make_node

    # -- run --------------------------------------------------------------------------------------

    def _converted(self, tree_program: Program, leaves: list[Any], kept: list[Any]) -> Any:
        """The tree of the results; `NotImplemented` if a leaf must be described.

        Raises:
            ConversionError: A leaf cannot be converted.
        """
        is_whole, tables = tree_program.places is None, tree_program.tables
        chosen = leaves if is_whole else tree_program.chosen(leaves)
        original = tree_program.originals(leaves, kept) if tables else None
        results = self._results(tree_program, chosen, original)
        if results is None:
            return NotImplemented
        try:
            return tree_program.rebuild(
                kept, results if is_whole else tree_program.whole(leaves, results)
            )
        except Exception:  # noqa: BLE001 - what the class of a container raises, is noted there
            return NotImplemented

    def _results(
        self,
        tree_program: Program,
        chosen: list[Any],
        original: Callable[[Any], Any] | None,
    ) -> list[Any] | None:
        """The results for leaves.

        ``None``: one must be described, or two of those that are copied share memory.

        Raises:
            ConversionError: A leaf cannot be converted.
        """
        count, alone, parts = len(chosen), chosen, tree_program.parts
        together: dict[Hashable, Arrangement] | None = tree_program.together
        if count > 1 and len(set(map(id, chosen))) < count:
            if self._by_name:
                return None  # one object may become several
            # An object that occurs several times is converted once.
            alone = list({id(leaf): leaf for leaf in chosen}.values())
            parts, together = self._parts_of_different(tree_program, chosen, alone), None
        results = None
        if self._is_ordinary and alone:
            results = convert_by_fast_paths(parts, alone, self._target)
        if results is None:
            found = self._groups.of(alone, parts, None, together, original)
            if found is None:
                return None
            results = convert_groups(found, alone, None, coalesce=self._coalesce, original=original)
        if alone is chosen:
            return results
        done = dict(zip(map(id, alone), results, strict=True))
        return [done[id(leaf)] for leaf in chosen]

    def _written(self, tree_program: Program, leaves: list[Any], kept: list[Any], out: Any) -> Any:
        """The tree with the tensors of ``out=``, into which the results have been written.

        Raises:
            ConversionError: A leaf cannot be converted.
        """
        outs = None if tree_program.tables else _outs(tree_program, kept, out)
        chosen = tree_program.chosen(leaves)
        if outs is None or len(set(map(id, chosen))) < len(chosen):
            return NotImplemented
        outs = tree_program.chosen(outs)
        # Made again before anything is written, because a container may refuse the values.
        made = tree_program.rebuild(kept, tree_program.whole(leaves, outs))
        found = self._groups.of(chosen, tree_program.parts, outs, tree_program.together)
        if found is None:
            return NotImplemented
        convert_groups(found, chosen, outs, coalesce=self._coalesce)
        return made

    def _parts_of_different(
        self, tree_program: Program, chosen: list[Any], alone: list[Any]
    ) -> tuple[LeafPart, ...]:
        """The parts of a program, for its leaves without those that occur again."""
        at = {id(leaf): index for index, leaf in enumerate(alone)}
        found = []
        for part in tree_program.parts:
            places = range(len(chosen)) if part.places is None else part.places
            left = dict.fromkeys([at[id(chosen[place])] for place in places])
            found.append(part._replace(places=[*left]))
        return tuple(found)


class _NoProgramError(Exception):
    """There is no program for a tree."""


def _outs(tree_program: Program, kept: list[Any], out: Any) -> list[Any] | None:
    """The tensors of ``out=`` in the order of the leaves; ``None`` if it is not alike at sight."""
    if tree_program.root is None:
        return [out]
    outs: list[Any] = []
    theirs: list[Any] = []
    if not tree_program.root.take(out, outs, theirs, []):
        return None
    return outs if all(map(_have_equal_keys, kept, theirs)) else None


def _have_equal_keys(mine: Any, other: Any) -> bool:
    """Whether containers have the same keys in the same order, from what `take` kept of them."""
    if isinstance(mine, Node) and isinstance(other, Node):
        return equal(mine.entries, other.entries)
    if isinstance(mine, dict) and {*map(type, mine), *map(type, other)} <= {str}:
        return [*mine] == [*other]
    return equal(_labels(mine), _labels(other))
