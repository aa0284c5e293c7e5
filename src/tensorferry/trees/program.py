"""`Program`: how trees of one structure are converted, made for the first of them and found by the next.

What a recipe is for a tensor, a program is for a structure: the containers, the types of the leaves,
which of them are converted. `Programs` keeps those of one request. A tree is checked against a
program while it is taken apart; one that differs in anything gets a program of its own.

A tree is converted in three steps. Its leaves are found. They are arranged by the steps that they
take: by their signatures, or by their descriptions (`DescribedTree`) where signatures do not say
enough, and where something has failed. The steps are run for all leaves together.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ..backends import fast_paths, registry
from ..backends.nodes import Node
from ..core.devices import HOST
from ..core.info import TensorInfo
from ..core.leaf_dtypes import place_of_name
from ..core.named_tuple import NamedTuple
from ..errors import ConversionError
from ..execution.groups import FEW, Groups, LeafPart, sharing_memory, some_of
from .containers import is_opened, may_hold
from .failures import refuse_unknown_name
from .grouped import convert_groups, written
from .leaves import UNKNOWN
from .shared_memory import bindings_of
from .structure import are_different, have_equal_labels, labels_of
from .targets import copy_in_its_framework
from .walk import take_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from ..backends.columnar import ColumnBackend
    from ..execution.groups import Arrangement
    from ..execution.recipes import Conversion
    from ..planning.plan import Plan
    from .containers import Opening
    from .described import DescribedTree
    from .leaves import LeafRule
    from .structure import Structure
    from .targets import Targets

    Taken = tuple[list[Any], list[Any], Any]

__all__ = ["PreparedTree", "Program", "Programs"]

_ALTERNATIVES = 8
"""How many programs are kept for trees that look alike at first sight."""
_MOST = 64
"""For how many different first sights programs are kept."""
_MOST_LEAVES = 1 << 18
"""The most leaves of all programs of one request together."""
_SIZED = frozenset({dict, OrderedDict, defaultdict, list, tuple, deque})
"""Types whose objects are told apart by their size at first sight."""
_FAILURES = (ConversionError, LookupError, RuntimeError, TypeError, ValueError)
"""What is raised by a leaf that cannot be converted, a framework, or a container that changes."""


_UNTOLD: Any = object()
"""Given where signatures do not say enough."""


class Program(NamedTuple):
    """How trees of one structure are converted.

    Args:
        structure: The structure, with the types of the leaves, without what is in one tree only.
        nodes: The numbers of those that may have attributes beside their values.
        labels: What `labels_of` gives for them, if names matter; otherwise ``None``.
        size: The number of leaves.
        indices: The positions of the leaves that are converted; ``None`` for all.
        parts: The leaves that are converted, by type and request.
        texts: The positions of tensors of text, and for each type what says that it is one.
        unknown: The positions of objects that may hold a tensor, and must be searched.
        loose: The positions of such objects that stay as they are, unless their class has been
            registered as a container meanwhile.
        together: What `Groups.of` remembers of its leaves, if they are few.
        tables: The tables whose columns are read as arrays: the first leaf of each, and its number
            among the containers.
        has_checks: Whether there is something to check besides the structure: `nodes` or others.
        pairs: The types of the leaves that are converted, each with the target; ``None`` if fast
            paths are not for such trees.
        recast: Filled once a leaf has become another dtype: fast paths keep each dtype.
    """

    structure: Structure
    nodes: tuple[int, ...]
    labels: list[Any] | None
    size: int
    indices: list[int] | None
    parts: tuple[LeafPart, ...]
    texts: tuple[tuple[int, Callable[[Any], bool]], ...]
    unknown: tuple[int, ...]
    loose: tuple[int, ...]
    together: dict[Hashable, Arrangement] | None
    tables: tuple[tuple[int, int], ...]
    has_checks: bool
    pairs: frozenset[tuple[type, str]] | None
    recast: list[str]

    def take(self, tree: Any, rule: LeafRule, paths: _Paths | None) -> Taken | None:
        """The leaves of a tree, what its containers are made again from, and the result.

        ``None`` if it has another structure; in place of the result if there is no fast path to it.

        Args:
            tree: The tree.
            rule: The rule for which leaves are converted.
            paths: The fast paths for the request; ``None`` if it takes none.

        Raises:
            UnsupportedTypeError: An object holds a tensor, which would not be converted.
        """
        taken: Taken | None
        if paths is not None and paths.are_for(self):
            taken = self.structure.converted(tree, paths.by_type, self.indices, paths.dtypes)
        else:
            parts = self.structure.taken(tree)
            taken = None if parts is None else (*parts, None)
        if taken is None or not self.has_checks:
            return taken
        leaves, kept, _ = taken
        if self.labels is not None and labels_of(kept) != self.labels:
            return None
        for index, is_text in self.texts:
            if not is_text(leaves[index]):
                return None
        for index in self.unknown:
            if rule.takes(leaves[index]):
                return None
        for index in self.loose:
            if is_opened(leaves[index]):
                return None
        for number in self.nodes:
            static = kept[number].static
            if static and rule.refuses and not rule.is_free(static):
                return None
        return taken

    def original(self, leaves: list[Any], kept: list[Any], x: Any) -> Any:
        """The column of a table that an array is over; or `x` itself."""
        place = next(index for index, leaf in enumerate(leaves) if leaf is x)
        for first, container in self.tables:
            views = kept[container]
            if 0 <= place - first < len(views.arrays):
                return views.columns()[[*views.arrays][place - first]]
        return x


class _Paths(NamedTuple):
    """The fast paths whose results are what a request asks for.

    Args:
        by_type: Those to its target, by the type of the source.
        are_views: Whether only those are that give views: the request asks for no copy, for the
            host, or for a dtype.
        dtypes: The dtypes of results that the request leaves as they are, as far as they were met;
            ``None`` if it leaves all.
    """

    by_type: dict[type, Callable[[Any], Any]]
    are_views: bool
    dtypes: dict[Any, str] | None

    def are_for(self, tree_program: Program) -> bool:
        """Whether they may be used for all leaves of a program."""
        pairs = tree_program.pairs
        if pairs is None:
            return False
        if self.are_views:
            return fast_paths.are_views(pairs) and not tree_program.recast
        return tree_program.size == 1 or not fast_paths.may_copy(pairs)

    def learn(self, tree_program: Program, arrangement: Arrangement, results: list[Any]) -> None:
        """Remember what became of dtypes, where they were converted by their steps."""
        if self.dtypes is None or tree_program.pairs is None or not self.are_views:
            return
        for group in arrangement.groups:
            plan = group.recipe.plan
            before, after = plan.source.dtype, plan.result.dtype
            if before != after:
                tree_program.recast[:] = [after]
            elif fast_paths.are_views(tree_program.pairs):
                self.dtypes[results[group.indices[0]].dtype] = after


def _paths_for(targets: Targets) -> _Paths | None:
    common = targets.common
    if common is None or targets.rule.names:
        return None
    asked, name = common.request, common.target.name
    keeps_dtype = asked.dtype is asked.like is None and not targets.decides_by_leaf
    if asked.is_ordinary and keeps_dtype:
        return _Paths(fast_paths.paths_to(name), False, None)
    rest = asked._replace(dtype=None, like=None, copy=None, device=None)
    if asked.copy is True or asked.device not in (None, HOST) or not rest.is_ordinary:
        return None
    return _Paths(fast_paths.paths_to(name), True, None if keeps_dtype else {})


class PreparedTree(NamedTuple):
    """The conversion of a tree that is not run yet.

    Args:
        plans: For each kind of leaf, a plan: with the same devices, but perhaps with other sizes.
        run: Converts the tree. Its containers may have changed meanwhile, but what they held is
            converted. What is done depends on the settings of now.
    """

    plans: list[Plan]
    run: Callable[[], Any]


class Programs:
    """The programs of one request.

    Args:
        targets: The targets of the leaves.
        rule: The rule for which leaves are converted. With a user's callable, all are described.
        coalesce: Whether small leaves cross the bus together.
    """

    __slots__ = (
        "_asks",
        "_by_name",
        "_coalesce",
        "_groups",
        "_kept",
        "_leaves",
        "_paths",
        "_rule",
        "_targets",
        "target",
    )

    def __init__(self, targets: Targets, rule: LeafRule, *, coalesce: bool) -> None:
        self._targets = targets
        self._rule = rule
        self._coalesce = coalesce
        self._kept: dict[Any, tuple[Program, ...]] = {}
        self._leaves = 0
        self._groups: Groups | None = None
        self._by_name = bool(targets.rule.names)
        self._asks = rule.chosen is not None
        common = targets.common
        self._paths = _paths_for(targets)
        self.target = None if common is None else common.target.name
        """The name of the target; ``None`` if each leaf has its own."""

    def convert(self, tree: Any, out: Any = None) -> Any:
        """Convert a tree.

        Args:
            tree: The tree.
            out: A tree of the same structure, into whose tensors the results are written.

        Raises:
            ConversionError: A leaf cannot be converted; several raise a `TreeError`. Nothing has
                been written then.
        """
        try:
            program_found = self._find(tree, self._paths if out is None else None)
            if program_found is not None:
                tree_program, leaves, kept, result = program_found
                if result is None:
                    result = self._converted(tree_program, leaves, kept, out)
                if result is not _UNTOLD:
                    return result
        except _FAILURES:
            pass  # raised below, with the path of the leaf
        return self._converted_described(self._described(tree, out))

    def prepare(self, tree: Any) -> PreparedTree:
        """The conversion of a tree, to be run later.

        Raises:
            ConversionError: A leaf cannot be converted; several raise a `TreeError`.
        """
        with suppress(*_FAILURES):
            program_found = self._find(tree, None)
            arranged = None if program_found is None else self._arranged(*program_found[:3], None)
            if program_found is not None and arranged is not None:
                plans = [group.recipe.plan for group in arranged.groups]
                return PreparedTree(plans, partial(self._run, *program_found[:3]))
        described = self._described(tree, None)
        plans = [one.recipe.plan for one in described.prepare().values()]
        return PreparedTree(plans, partial(self._converted_described, described))

    def _run(self, tree_program: Program, leaves: list[Any], kept: list[Any]) -> Any:
        with suppress(*_FAILURES):
            result = self._converted(tree_program, leaves, kept, None)
            if result is not _UNTOLD:
                return result
        return self.convert(tree_program.structure.again(kept, leaves))

    # -- find -------------------------------------------------------------------------------------

    def _find(
        self, tree: Any, paths: _Paths | None
    ) -> tuple[Program, list[Any], list[Any], Any] | None:
        """The program for a tree, and what `Program.take` gives; ``None`` if there is no program.

        Raises:
            ConversionError: The tree cannot be converted.
        """
        if self._asks:
            return None
        kind = type(tree)
        sight = (kind, len(tree)) if kind in _SIZED else (kind, 0)
        programs = self._kept.get(sight, ())
        for tree_program in programs:
            taken = tree_program.take(tree, self._rule, paths)
            if taken is not None:
                if tree_program is not programs[0]:
                    # The one that was used last is tried first.
                    others = [other for other in programs if other is not tree_program]
                    self._kept[sight] = tree_program, *others
                return tree_program, *taken
        made = self._make(tree)
        if made is None:
            return None
        tree_program, leaves, kept = made
        self._keep(sight, programs, tree_program)
        result = None
        if paths is not None and paths.are_for(tree_program):
            places = tree_program.indices
            result = tree_program.structure.by_paths(
                leaves, kept, paths.by_type, places, paths.dtypes
            )
        return tree_program, leaves, kept, result

    def _keep(self, sight: Any, programs: Sequence[Program], made: Program) -> None:
        self._leaves += made.size
        if self._leaves > _MOST_LEAVES or len(self._kept) >= _MOST:
            self._kept = {}
            self._leaves = made.size
            programs = ()
        for dropped in programs[_ALTERNATIVES - 1 :]:
            self._leaves -= dropped.size
        self._kept[sight] = made, *programs[: _ALTERNATIVES - 1]

    # -- make -------------------------------------------------------------------------------------

    def _make(self, tree: Any) -> tuple[Program, list[Any], list[Any]] | None:
        """The program for a tree, its leaves, and what its containers are made again from.

        ``None`` if there is no program for it.

        Raises:
            ConversionError: The tree cannot be converted.
        """
        owners: dict[type, ColumnBackend] = {}
        leaves, structure = take_apart(
            tree, sharing=True, first=partial(self._openings_of_tables, owners)
        )
        self._rule.check(structure, leaves)
        if owners and structure.recurs is not None:
            return None
        kinds = list(map(type, leaves))
        each_kind = dict(zip(kinds, leaves, strict=True))
        answers = {kind: self._answer(kind, leaf) for kind, leaf in each_kind.items()}
        if None in answers.values() or (structure.root is None and answers[type(tree)] is not True):
            return None
        indices: list[int] = []
        texts: list[tuple[int, Callable[[Any], bool]]] = []
        unknown: list[int] = []
        loose: list[int] = []
        for index, (kind, leaf) in enumerate(zip(kinds, leaves, strict=True)):
            answer = answers[kind]
            if answer is UNKNOWN:
                unknown.append(index)
                self._rule.takes(leaf)
            elif answer is not True and answer and answer.is_text(leaf):
                texts.append((index, answer.is_text))
            elif answer:
                indices.append(index)
            elif self._rule.keeps and may_hold(kind):
                loose.append(index)
        names: list[str] = []
        if self._by_name:
            # Here, because most requests name no leaf, and have no columns.
            from .tables import is_counted

            names = structure.names()
            if any(
                is_counted(leaves[index], self._targets.rule, names[index]) for index, _ in texts
            ):
                return None
            rule, those = self._targets.rule, [names[index] for index in indices]
            refuse_unknown_name("dtype", rule.names, those, lambda _: None, rule.without_names)
        tables: list[tuple[int, int]] = []
        read_by: dict[int, ColumnBackend] = {}
        if owners:
            from .tables import tables_in

            tables, read_by = tables_in(structure, owners)
        parts = self._parts(leaves, kinds, indices, names, read_by)
        if parts is None:
            return None
        kept = [*structure.kept]
        nodes = tuple([at for at, value in enumerate(kept) if isinstance(value, Node)])
        labels = labels_of(kept) if self._by_name else None
        together: dict[Hashable, Arrangement] | None = {} if len(indices) <= FEW else None
        made = Program(
            structure.without_kept(kinds),
            nodes,
            labels,
            len(leaves),
            None if len(indices) == len(leaves) else indices,
            parts,
            tuple(texts),
            tuple(unknown),
            tuple(loose),
            together,
            tuple(tables),
            labels is not None or bool(nodes or texts or unknown or loose),
            _pairs_of(structure, parts),
            [],
        )
        return made, leaves, kept

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
        indices: list[int],
        names: list[str],
        read_by: dict[int, ColumnBackend],
    ) -> tuple[LeafPart, ...] | None:
        """The leaves that are converted, by type and request.

        `read_by` has the backends of tables, by the indices of the arrays over their columns.
        """
        targets = self._targets
        common = targets.common
        if common is None and not targets.copies:
            return None
        patterns = tuple([name for name, _ in targets.rule.names])
        by_key: dict[Any, list[int]] = {}
        for index in indices:
            among = place_of_name(patterns, names[index]) if names else None
            key = kinds[index], among, read_by.get(index)
            by_key.setdefault(key, []).append(index)
        parts = []
        for (kind, among, owner), those in by_key.items():
            leaf = leaves[those[0]]
            conversion = copy_in_its_framework(leaf) if common is None else common
            registry.ready(conversion.target.name)
            decide = None
            if targets.decides_by_leaf:
                name = names[those[0]] if names else ""
                decide = partial(self._decided, conversion, name)
            where = None if len(those) == len(leaves) else those
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

    def _converted(
        self, tree_program: Program, leaves: list[Any], kept: list[Any], out: Any
    ) -> Any:
        """The tree of the results; `_UNTOLD` if the leaves must be described.

        Raises:
            ConversionError: A leaf cannot be converted.
        """
        structure, outs, original, coalesce = tree_program.structure, None, None, self._coalesce
        if out is not None:
            outs = _outs(tree_program, kept, out)
            if outs is None:
                return _UNTOLD
        arrangement = self._arranged(tree_program, leaves, kept, outs)
        if arrangement is None:
            return _UNTOLD
        if tree_program.tables:
            original = partial(tree_program.original, leaves, kept)
        if outs is None:
            bindings = None
            if arrangement.copied or not are_different(leaves, tree_program.indices):
                bindings = bindings_of(arrangement, leaves, structure.twins, original)
            results = convert_groups(
                arrangement, leaves, None, bindings, coalesce=coalesce, original=original
            )
            if self._paths is not None:
                self._paths.learn(tree_program, arrangement, results)
            return structure.again(kept, results)
        some, into = some_of(leaves, arrangement.copied), some_of(outs, arrangement.copied)
        if sharing_memory(some, into, compact=arrangement.is_compact):
            return _UNTOLD
        # Made again before anything is written, because a container may refuse the values.
        made = structure.again(kept, written(arrangement, leaves, outs))
        convert_groups(arrangement, leaves, outs, coalesce=coalesce)
        return made

    def _arranged(
        self, tree_program: Program, leaves: list[Any], kept: list[Any], outs: list[Any] | None
    ) -> Arrangement | None:
        """The leaves by their steps; ``None`` if one must be described."""
        original = partial(tree_program.original, leaves, kept) if tree_program.tables else None
        parts, together = tree_program.parts, tree_program.together
        groups = self._groups = self._groups or Groups()
        return groups.of(leaves, parts, outs, together, original)

    def _described(self, tree: Any, out: Any) -> DescribedTree:
        from .described import DescribedTree  # here, because most trees are converted without it

        return DescribedTree(tree, self._targets, self._rule, out)

    def _converted_described(self, described: DescribedTree) -> Any:
        """The tree of the results, from the descriptions of its leaves.

        Raises:
            ConversionError: A leaf cannot be converted; several raise a `TreeError`.
        """
        prepared = described.prepare(with_values=True)
        arrangement, bindings = described.arranged(prepared)
        leaves, outs, made = described.leaves, described.outs, None
        if outs is not None:
            made = described.rebuild(written(arrangement, leaves, outs))
        try:
            results = convert_groups(arrangement, leaves, outs, bindings, coalesce=self._coalesce)
        except ConversionError:
            described.raise_errors_of_values(prepared)
            raise
        return described.rebuild(results) if outs is None else made


def _pairs_of(
    structure: Structure, parts: tuple[LeafPart, ...]
) -> frozenset[tuple[type, str]] | None:
    if structure.recurs is not None or any(part.owner is not None for part in parts):
        return None
    return frozenset([(part.kind, part.conversion.target.name) for part in parts])


def _outs(tree_program: Program, kept: list[Any], out: Any) -> list[Any] | None:
    """The tensors of ``out=`` in the order of the leaves; ``None`` if it is not alike at sight."""
    opened = None if tree_program.tables else tree_program.structure.opened(out)
    if opened is None:
        return None
    outs, theirs, _ = opened
    return outs if have_equal_labels(kept, theirs) else None
