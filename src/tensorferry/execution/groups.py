"""Many tensors at once: those with the same signature share a recipe, whose steps take them together."""

from __future__ import annotations

from itertools import chain, count
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ..backends import registry
from ..core.named_tuple import NamedTuple
from ..core.signature import COMPACT, one_of_each, places_by
from ..host import memory
from ..host.numpy_dtypes import of_numpy
from .recipes import call_of
from .run import prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Mapping, Sequence

    from ..backends.columnar import ColumnBackend
    from ..core.info import TensorInfo
    from .recipes import Conversion, Recipe
    from .run import Prepared

    Indices = Sequence[int]

__all__ = [
    "AT_ONCE",
    "FEW",
    "Arrangement",
    "Groups",
    "LeafGroup",
    "LeafPart",
    "grouped_indices",
    "sharing_memory",
    "some_of",
]

AT_ONCE = 4096
"""How many tensors are handled at a time, to stay in the processor's cache between steps."""
_MOST = 1024
"""The most signatures that are remembered."""
FEW = 512
"""Up to so many tensors, their steps are found by the signatures of all of them together."""
_FEWEST = 32
"""The same, if these are read one by one, unless there is an `out` for each: pairs take longer to
tell apart."""
_MOST_TOGETHER = 2048
"""For how many tensors together their steps are remembered by the signatures of all of them."""


class LeafPart(NamedTuple):
    """Tensors of one type that are converted for one request.

    Args:
        kind: Their type.
        indices: Their indices among all leaves; ``None`` for all of them.
        conversion: The target and the request.
        decide: Chooses the conversion by the description of a tensor, instead of `conversion`.
        among: What `decide` depends on besides the description.
        owner: The backend of the table whose columns they are; they are arrays over its memory.
    """

    kind: type
    indices: list[int] | None
    conversion: Conversion
    decide: Callable[[TensorInfo], Conversion] | None = None
    among: Hashable = None
    owner: ColumnBackend | None = None


class LeafGroup(NamedTuple):
    """Tensors that take the same steps.

    Args:
        recipe: The recipe of one of them.
        indices: Their indices among all leaves.
        conversion: What they are converted for, if they were told by their signatures.
        prepared: The conversion of each, if they were described.
    """

    recipe: Recipe
    indices: Indices
    conversion: Conversion | None = None
    prepared: Sequence[Prepared] = ()

    def without(self, others: Collection[int]) -> LeafGroup:
        """The group without the tensors at some positions."""
        left = [at for at, index in enumerate(self.indices) if index not in others]
        return self._replace(
            indices=[self.indices[at] for at in left],
            prepared=[self.prepared[at] for at in left] if self.prepared else (),
        )


class Arrangement(NamedTuple):
    """Tensors by their steps.

    Args:
        groups: Those that take the same steps.
        crosses: Whether some are transferred over a bus.
        copied: The positions of those that are copied, and may share memory with others; with
            `out`, of all.
        is_compact: Whether the tensors, and their `out`, have no gaps in memory.
    """

    groups: list[LeafGroup]
    crosses: bool
    copied: Indices = ()
    is_compact: bool = False


class _Known(NamedTuple):
    """What is remembered of a signature.

    Args:
        recipe: The recipe.
        conversion: What it was made for.
        steps: A number, equal for tensors that differ only in address or strides: mostly they take
            the same steps.
        is_compact: Whether the tensors, and their `out`, have no gaps in memory.
        is_apart: Whether each of the tensors owns its memory.
    """

    recipe: Recipe
    conversion: Conversion
    steps: int
    is_compact: bool
    is_apart: bool


class Groups:
    """Finds the recipes of many tensors, and remembers those of the signatures that it has met."""

    __slots__ = ("_known", "_numbers", "_steps")

    def __init__(self) -> None:
        self._known: dict[Hashable, _Known] = {}
        self._steps: dict[Hashable, int] = {}
        self._numbers = count()

    def of(
        self,
        leaves: Sequence[Any],
        parts: Sequence[LeafPart],
        outs: Sequence[Any] | None,
        together: dict[Hashable, Arrangement] | None = None,
        original: Callable[[Any], Any] | None = None,
    ) -> Arrangement | None:
        """The tensors by their steps; ``None`` if one must be described.

        Args:
            leaves: The tensors, and what stands between them.
            parts: The tensors by type and request.
            outs: For each tensor, the one that the result is written into; or ``None``.
            together: What has been found for few tensors of these parts, by the signatures of all.
            original: Gives the column that an array is over, if a part has an owner.

        Raises:
            ConversionError: A tensor cannot be converted.
        """
        key = None if together is None else _key_of_groups(leaves, parts, outs)
        groups = None if key is None or together is None else together.get(key)
        if groups is not None:
            return groups
        groups = self._arranged(leaves, parts, outs, original)
        # Otherwise another thread has changed a tensor meanwhile.
        if (
            groups is not None
            and together is not None
            and key is not None
            and key == _key_of_groups(leaves, parts, outs)
        ):
            if len(together) * len(leaves) >= _MOST_TOGETHER:
                together.clear()
            together[key] = groups
        return groups

    def _arranged(
        self,
        leaves: Sequence[Any],
        parts: Sequence[LeafPart],
        outs: Sequence[Any] | None,
        original: Callable[[Any], Any] | None,
    ) -> Arrangement | None:
        by_key: dict[Hashable, LeafGroup] = {}
        is_compact = is_apart = True
        for part in parts:
            known = self._of_part(leaves, part, outs, original)
            if known is None:
                return None
            for prepared, indices in known:
                is_compact = is_compact and prepared.is_compact
                is_apart = is_apart and prepared.is_apart
                key = prepared.conversion, prepared.steps
                before = by_key.get(key)
                joined = indices if before is None else [*before.indices, *indices]
                by_key[key] = LeafGroup(prepared.recipe, joined, prepared.conversion)
        groups = list(by_key.values())
        copied: Indices = ()
        if outs is not None or not is_apart:
            those = [group.indices for group in groups if outs is not None or group.recipe.copies]
            copied = those[0] if len(those) == 1 else [*chain(*those)]
            if len(copied) == len(leaves):
                copied = range(len(leaves))
        if outs is None and len(copied) < 2:
            copied = ()  # one leaf overlaps no other
        crosses = any(group.recipe.transfers for group in groups)
        return Arrangement(groups, crosses, copied, is_compact)

    def _of_part(
        self,
        leaves: Sequence[Any],
        part: LeafPart,
        outs: Sequence[Any] | None,
        original: Callable[[Any], Any] | None,
    ) -> list[tuple[_Known, Indices]] | None:
        conversion, indices = part.conversion, part.indices
        target = conversion.target
        if conversion.described:
            return None
        some = leaves if indices is None else [leaves[index] for index in indices]
        owner = part.owner or registry.backend_of(some[0])
        if owner is target and target.capabilities.options.labels:
            return None  # they have labels of their own
        alignment = target.capabilities.memory.alignment
        copies = bool(conversion.request.copy) or outs is not None
        if part.owner is None:
            signatures = grouped_indices(some, part.kind, alignment, copies=copies)
        else:
            signatures = part.owner.grouped_views(some, alignment)
        if signatures is None:
            return None
        into: list[Any] | None = None
        if outs is not None:
            into = [*outs] if indices is None else [outs[index] for index in indices]
            signatures = _with_outs(signatures, some, into, target)
            if signatures is None:
                return None
        environment = conversion.environment()
        known_groups = []
        for signature, at in signatures.items():
            key = conversion, part.among, signature, environment
            known = self._known.get(key)
            if known is None:
                first = at[0]
                out = None if into is None else into[first]
                if len(self._known) >= _MOST:
                    # All at once: to know which was used last would cost each tree some time.
                    self._known.clear()
                    self._steps.clear()
                x = some[first]
                leaf = x if part.owner is None or original is None else original(x)
                known = self._look_at(
                    x,
                    leaf,
                    out,
                    part,
                    signature,
                    environment,
                )
                if known is None:
                    return None
                self._known[key] = known
            known_groups.append(
                (known, at if indices is None else [indices[index] for index in at])
            )
        return known_groups

    def _look_at(
        self, x: Any, leaf: Any, out: Any, part: LeafPart, signature: Any, environment: Hashable
    ) -> _Known | None:
        """What is to be remembered of a signature; ``None`` if each such tensor must be described.

        Args:
            x: The tensor that has it, or the array over the memory of the column that has it.
            leaf: The tensor or the column.
            out: The tensor that the result is written into, or ``None``.
            part: See `of`.
            signature: The signature.
            environment: The settings of the target.

        Raises:
            ConversionError: The tensor cannot be converted.
        """
        own: Any = signature if out is None else signature[0]
        owner, conversion = registry.backend_of(leaf), part.conversion
        if part.decide is not None:
            conversion = part.decide(owner.describe(leaf))
        is_compact = _is_compact(own) and (out is None or _is_compact(signature[1]))
        # The transfer of a tensor with gaps depends on more than its signature.
        if conversion.described or not (is_compact or conversion.is_for_host):
            return None
        recipe = conversion.find((signature, environment))
        if recipe is None:
            prepared = prepare(leaf, conversion, out)
            recipe = prepared.recipe
            alignment = conversion.target.capabilities.memory.alignment
            copies = bool(part.conversion.request.copy) or out is not None
            if part.owner is None:
                alike = own in (grouped_indices([leaf], type(leaf), alignment, copies=copies) or ())
            else:
                alike = (prepared.info.dtype, prepared.info.shape) == (of_numpy(x.dtype), x.shape)
            if prepared.info.abstract is not None or not alike:
                return None  # another thread has changed the leaf meanwhile
            conversion.keep((signature, environment), recipe)
        plan = recipe.plan
        into = plan.request.out
        steps = (
            recipe.copies,
            plan.source._replace(shape=(), strides=(), misalignment=0),
            plan.source.is_compact,
            None if into is None else (into.dtype, into.is_compact),
            *map(call_of, plan.steps),
        )
        # A number is never given twice: what was forgotten may still be in use.
        number = self._steps.get(steps)
        if number is None:
            number = self._steps[steps] = next(self._numbers)
        is_apart = out is None and owner.quick.owns_memory(signature)
        return _Known(recipe, conversion, number, is_compact, is_apart)


_SHAPE = attrgetter("shape")


def _key_of_groups(
    leaves: Sequence[Any], parts: Sequence[LeafPart], outs: Sequence[Any] | None
) -> Hashable | None:
    """The signatures of tensors, of their `out`, and the settings of their targets.

    ``None`` if a tensor has none, if an `out` has another shape, or if it would take too long.
    """
    key: list[Hashable] = []
    conversion = None
    for part in parts:
        if part.conversion is not conversion:
            conversion = part.conversion
            key.append(conversion.environment())
        kind, indices = part.kind, part.indices
        some = leaves if indices is None else [leaves[index] for index in indices]
        read: Callable[[Any], Hashable | None] | None
        found = together = None
        if part.owner is not None:
            read = part.owner.signature_of_view
        else:
            read = conversion.readers.get(kind) or conversion.reader(kind)
            together = conversion.together.get(kind)
        if together is not None:
            copies = bool(conversion.request.copy) or outs is not None
            alignment = conversion.target.capabilities.memory.alignment
            found = together(some, alignment, copies=copies)
        if read is None or (found is None and outs is None and len(some) > _FEWEST):
            return None
        key += map(read, some) if found is None else (found,)
        if outs is not None:
            into = outs if indices is None else [outs[index] for index in indices]
            found = conversion.quick.signatures(into, 0)
            key += map(conversion.quick.signature, into) if found is None else (found,)
            lengths = registry.BY_TYPE[kind].quick.lengths
            if None in key or [*map(lengths, some)] != [*map(_SHAPE, into)]:
                return None
    return None if None in key else tuple(key)


def _is_compact(signature: Hashable) -> bool:
    return isinstance(signature, tuple) and COMPACT in signature


def grouped_indices(
    leaves: Sequence[Any], kind: type, alignment: int, *, copies: bool = False
) -> Mapping[Any, Sequence[int]] | None:
    """Positions of tensors of one type by signatures; ``None`` if one must be described.

    Args:
        leaves: The tensors.
        kind: Their type.
        alignment: See `Quick.grouped`.
        copies: See `Quick.grouped`.
    """
    quick = (registry.BY_TYPE.get(kind) or registry.backend_of(leaves[0])).quick
    if len(leaves) <= AT_ONCE:
        return quick.grouped(leaves, alignment, copies=copies)
    indices_by_signature: dict[Hashable, list[int]] = {}
    for start in range(0, len(leaves), AT_ONCE):
        inside = quick.grouped(leaves[start : start + AT_ONCE], alignment, copies=copies)
        if inside is None:
            return None
        for signature, indices in inside.items():
            indices_by_signature.setdefault(signature, []).extend(
                index + start for index in indices
            )
    return indices_by_signature


def _with_outs(
    signatures: Mapping[Any, Indices], leaves: Sequence[Any], outs: Sequence[Any], target: Any
) -> Mapping[Any, Indices] | None:
    """The positions of tensors by two signatures: their own, and that of the `out` tensor.

    ``None`` if an `out` is none of the target's tensors, must be described or has another shape.
    """
    kinds = one_of_each(outs)
    if len(kinds) > 1 or registry.BY_TYPE.get(next(iter(kinds))) is not target:
        return None
    written = grouped_indices(outs, next(iter(kinds)), 0)
    lengths = registry.backend_of(leaves[0]).quick.lengths
    if written is None or list(map(lengths, leaves)) != list(map(_SHAPE, outs)):
        return None
    # A number for each pair of signatures: to compare numbers takes a tenth of the time.
    numbers = [0] * len(leaves)
    for number, indices in enumerate(signatures.values()):
        for index in indices:
            numbers[index] = number * len(written)
    for number, indices in enumerate(written.values()):
        for index in indices:
            numbers[index] += number
    first, second = [*signatures], [*written]
    return {
        (first[number // len(second)], second[number % len(second)]): indices
        for number, indices in places_by(numbers).items()
    }


def some_of(leaves: Sequence[Any], indices: Indices) -> list[Any]:
    """The leaves at some positions."""
    if type(leaves) is list and type(indices) is range and len(indices) == len(leaves):
        return leaves
    return [leaves[index] for index in indices]


def sharing_memory(*lists: Sequence[Any], compact: bool) -> Sequence[int]:
    """The positions of those of many tensors that may share a byte with another.

    They are all if it would take too long to find out.

    Args:
        *lists: Tensors of any frameworks, each with a signature. Positions are those in one list
            after the other.
        compact: Whether all signatures are compact.
    """
    count = sum(map(len, lists))
    if count < 2:
        return ()
    if len(lists) > 1 and len({*map(type, chain(*lists))}) == 1:
        lists = ([*chain(*lists)],)
    runs: list[Any] = []
    places: list[Indices] = []
    before = 0
    for tensors in lists:
        if not tensors:
            continue
        alike = len({*map(type, tensors)}) < 2
        parts = {None: range(len(tensors))} if alike else places_by([*map(type, tensors)])
        for indices in parts.values():
            some = tensors if alike else some_of(tensors, indices)
            extents = registry.backend_of(some[0]).quick.extents(some, compact=compact)
            if extents is None:
                return range(count)
            runs += extents
            places.append(indices if before == 0 else [before + index for index in indices])
        before += len(tensors)
    indices_sharing = memory.sharing_runs(*runs)
    if not indices_sharing:
        return ()
    order = [*chain(*places)]
    return sorted([order[at] for at in indices_sharing])
