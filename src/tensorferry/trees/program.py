"""`Program`: how trees of one structure are converted, made for the first of them and found by the next.

What a recipe is for a tensor, a program is for a structure: the containers, the types of the leaves,
which of them are converted. `Programs` keeps those of one request. A tree is checked against a
program while it is taken apart; one that differs in anything gets a program of its own. What no
program is made for, and every error, is the matter of `TreeConversion`.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from functools import partial
from typing import TYPE_CHECKING, Any

from ..backends import registry
from ..backends.nodes import Node
from ..core.info import TensorInfo
from ..core.leaf_dtypes import place_of_name
from ..core.named_tuple import NamedTuple
from ..core.signature import one_of_each
from ..errors import ConversionError
from ..execution.groups import Groups, LeafPart
from .failures import refuse_unknown_name
from .grouped import convert_by_fast_paths, convert_groups
from .leaves import UNKNOWN
from .structure import have_equal_labels, labels_of
from .targets import copy_in_its_framework
from .walk import take_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from ..backends.columnar import ColumnBackend
    from ..execution.groups import Arrangement
    from ..execution.recipes import Conversion
    from ..planning.plan import Plan
    from .containers import Opening
    from .leaves import LeafRule
    from .structure import Container
    from .targets import Targets

__all__ = ["PreparedTree", "Program", "Programs"]

_ALTERNATIVES = 8
"""How many programs are kept for trees that look alike at first sight."""
_MOST = 64
"""For how many different first sights programs are kept."""
_MOST_LEAVES = 1 << 18
"""The most leaves of all programs of one request together."""
_SIZED = frozenset({dict, OrderedDict, defaultdict, list, tuple, deque})
"""Types whose objects are told apart by their size at first sight."""
_FAILURES = (LookupError, RuntimeError, TypeError, ValueError)
"""What a framework raises, and a container that changes meanwhile."""


class Program(NamedTuple):
    """How trees of one structure are converted.

    Args:
        root: The outermost container; ``None`` if the tree is one tensor.
        nodes: The numbers of those that may have attributes beside their values.
        labels: What `labels_of` gives for them, if names matter; otherwise ``None``.
        kinds: The type of each leaf.
        places: The positions of the leaves that are converted; ``None`` for all of them.
        parts: The same by type and request.
        texts: The positions of tensors of text, and for each type what says that it is one.
        unknown: The positions of objects that may hold a tensor, and must be searched.
        together: What `Groups.of` remembers of its leaves.
        tables: The tables whose columns are read as arrays: the first leaf of each, and its number
            among the containers.
    """

    root: Container | None
    nodes: tuple[int, ...]
    labels: list[Any] | None
    kinds: list[type]
    places: list[int] | None
    parts: tuple[LeafPart, ...]
    texts: tuple[tuple[int, Callable[[Any], bool]], ...]
    unknown: tuple[int, ...]
    together: dict[Hashable, Arrangement]
    tables: tuple[tuple[int, int], ...]

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
        if self.labels is not None and labels_of(kept) != self.labels:
            return None
        if [*map(type, leaves)] != self.kinds:
            return None
        for place, is_text in self.texts:
            if not is_text(leaves[place]):
                return None
        for place in self.unknown:
            if rule.takes(leaves[place]):
                return None
        for number in self.nodes:
            static = kept[number].static
            if static and rule.refuses and not rule.is_free(static):
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
        sight = kind, len(tree) if kind in _SIZED else 0
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
        owners: dict[type, ColumnBackend] = {}
        leaves, structure = take_apart(tree, first=partial(self._openings_of_tables, owners))
        kinds = list(map(type, leaves))
        answers = {kind: self._answer(kind, leaf) for kind, leaf in one_of_each(leaves).items()}
        if None in answers.values() or (structure.root is None and answers[type(tree)] is not True):
            return None
        places: list[int] = []
        texts: list[tuple[int, Callable[[Any], bool]]] = []
        unknown: list[int] = []
        for place, (kind, leaf) in enumerate(zip(kinds, leaves, strict=True)):
            answer = answers[kind]
            if answer is UNKNOWN:
                unknown.append(place)
            elif answer is not True and answer and answer.is_text(leaf):
                texts.append((place, answer.is_text))
            elif answer:
                places.append(place)
        names: list[str] = []
        if self._by_name:
            # Here, because most requests name no leaf, and have no columns.
            from .tables import is_counted

            names = structure.names()
            if any(
                is_counted(leaves[place], self._targets.rule, names[place]) for place, _ in texts
            ):
                return None
            rule, those = self._targets.rule, [names[place] for place in places]
            refuse_unknown_name("dtype", rule.names, those, lambda _: None, rule.without_names)
        tables: list[tuple[int, int]] = []
        read_by: dict[int, ColumnBackend] = {}
        if owners:
            from .tables import tables_in

            tables, read_by = tables_in(structure, owners)
        parts = self._parts(leaves, kinds, places, names, read_by)
        if parts is None:
            return None
        return Program(
            structure.root,
            tuple([at for at, kept in enumerate(structure.kept) if isinstance(kept, Node)]),
            labels_of(structure.kept) if self._by_name else None,
            kinds,
            None if len(places) == len(leaves) else places,
            parts,
            tuple(texts),
            tuple(unknown),
            {},
            tuple(tables),
        )

    def _answer(self, kind: type, leaf: Any) -> Any:
        """Whether leaves of a type are converted.

        Gives a backend whose tensors may be text, `leaves.UNKNOWN` if each is to be searched, and
        ``None`` if there is no program for trees with such leaves.
        """
        return None if issubclass(kind, TensorInfo) else self._rule.answer_of(kind, leaf)

    def _parts(
        self,
        leaves: list[Any],
        kinds: list[type],
        places: list[int],
        names: list[str],
        read_by: dict[int, ColumnBackend],
    ) -> tuple[LeafPart, ...] | None:
        """The leaves that are converted, by type and request.

        `read_by` has the backends of tables, by the places of the arrays over their columns.
        """
        targets = self._targets
        common = targets.common
        if common is None and not targets.copies:
            return None
        patterns = tuple([name for name, _ in targets.rule.names])
        found: dict[Any, list[int]] = {}
        for index, place in enumerate(places):
            among = place_of_name(patterns, names[place]) if names else None
            key = kinds[place], among, read_by.get(place)
            found.setdefault(key, []).append(index)
        parts = []
        for (kind, among, owner), those in found.items():
            leaf = leaves[places[those[0]]]
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

    def _openings_of_tables(
        self, owners: dict[type, ColumnBackend], kind: type
    ) -> tuple[Opening, ...]:
        """How tables of a type are opened, if their columns may be read together.

        Their backend is put into `owners`.
        """
        common = self._targets.common
        if not hasattr(kind, "columns") or common is None or self._by_name:
            return ()
        from .tables import opening_together, owner_of_tables  # most trees have no tables

        owner = owner_of_tables(kind)
        if owner is None or owner is common.target or common.described or not common.is_for_host:
            return ()
        owners[kind] = owner
        return (opening_together(owner),)

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


def _outs(tree_program: Program, kept: list[Any], out: Any) -> list[Any] | None:
    """The tensors of ``out=`` in the order of the leaves; ``None`` if it is not alike at sight."""
    if tree_program.root is None:
        return [out]
    outs: list[Any] = []
    theirs: list[Any] = []
    if not tree_program.root.take(out, outs, theirs, []):
        return None
    return outs if have_equal_labels(kept, theirs) else None
