"""The target and keywords of a call for many tensors or trees, and where results lie."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from ..backends import registry
from ..core.devices import HOST, device_name
from ..core.info import TensorInfo
from ..core.leaf_dtypes import rule_for_all, rule_of
from ..core.request import COLUMN_KEYWORDS, refuse_unknown
from ..devices.streams import Landed, PlaceEvent, StreamPlace
from ..errors import UnsupportedTypeError, validate_flags
from ..execution import run
from ..execution.target import labels_like, name_like_device
from ..planning import rules
from ..trees.api import is_ordinary_tensor, programs_of, targets_of, untraced
from ..trees.leaves import LeafRule, leaf_rule
from ..trees.tables import with_column_keywords
from ..trees.walk import take_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ..backends.base import Backend
    from ..core.labels import Labels
    from ..core.leaf_dtypes import DtypeRule
    from ..planning.plan import Plan
    from ..trees.program import PreparedTree, Programs
    from ..trees.targets import Targets
    from ..typing import Leaves, Unknown


__all__ = ["Target", "landed_result", "places_of", "tensors_in"]


# -- where results lie -----------------------------------------------------------------------------


def _stream_place(framework: str, device: str) -> StreamPlace | None:
    backend = registry.backend_named(framework)
    if backend.loaded:
        stream = backend.current_stream(device)
    else:
        stream = None
    if stream is None:
        return None
    return StreamPlace(backend, stream.device)


def _stream_places(infos: Iterable[TensorInfo]) -> tuple[StreamPlace, ...]:
    names = dict.fromkeys(
        (info.framework, info.device)
        for info in infos
        if info.device != HOST and info.abstract is None
    )
    return tuple(
        dict.fromkeys(place for name in names if (place := _stream_place(*name)) is not None)
    )


def places_of(plans: Sequence[Plan]) -> tuple[tuple[StreamPlace, ...], tuple[StreamPlace, ...]]:
    """The places that conversions read from; and all places, the one that must be current last.

    That is the one that is current now, if a result goes to any device of a kind; or else one that
    is written to.
    """
    sources, targets = (
        _stream_places(plan.source for plan in plans),
        _stream_places(plan.result for plan in plans),
    )
    current = _stream_places(plan.result for plan in plans if ":" not in plan.result.device)
    return sources, tuple(dict.fromkeys(reversed((*sources, *targets, *current))))[::-1]


def landed_result(value: Any, after: Sequence[PlaceEvent]) -> Landed:
    """A result, with the tensors of each place that has an event to wait for."""
    events = dict(after)
    parts: dict[StreamPlace, list[Any]] = defaultdict(list)
    for backend, tensor in tensors_in(value) if after else ():
        info = backend.describe(tensor)
        place = StreamPlace(backend, info.device)
        if place in events and info.abstract is None:
            parts[place].append(tensor)
    return Landed(
        value,
        tuple(
            (PlaceEvent(place, events[place]), part_tensors)
            for place, part_tensors in parts.items()
        ),
    )


def tensors_in(value: Any) -> Iterator[tuple[Backend, Any]]:
    """The tensors of a tree, and their backends."""
    rule = LeafRule("tensors")
    for leaf in take_apart(value)[0]:
        with suppress(UnsupportedTypeError):  # a tensor that cannot be converted was kept
            if rule.takes(leaf):
                yield registry.backend_of(leaf), leaf


# -- the target and the keywords of a call ---------------------------------------------------------

_PROBE = "uint8"
"""A dtype that every device has, to check only the device."""


@dataclass(frozen=True)
class Target:
    """The target and the keywords of `start` or `prefetch`.

    Args:
        to: The name of the target; ``None`` if `like` is a tree.
        like: A tree with a target for each leaf, or ``None``.
        dtype: The dtype for a single tensor, as for `convert`.
        rule: The rule for the dtypes of a tree.
        device: As for `convert`.
        said: The values of ``copy``, ``casting``, ``grad`` and the target's options.
        leaves: As for `convert_tree`.
        unknown: As for `convert_tree`.
        coalesce: As for `convert_tree`.
        overlaps: Whether transfers run beside the host's work, through page-locked memory if a
            target has some.
        columns: The values of ``nulls``, ``ragged`` and ``pad``.
        theirs: The dtype of one tensor in ``like=``.
        labels: The labels of that tensor.
    """

    to: str | None
    like: Any
    dtype: object
    rule: DtypeRule
    device: object
    said: tuple[bool | None, str | None, str, Mapping[str, object]]
    leaves: Leaves
    unknown: Unknown
    coalesce: bool
    overlaps: bool = False
    columns: Mapping[str, Any] = field(default_factory=dict)
    theirs: str | None = None
    labels: Labels | None = None

    @classmethod
    def of(
        cls,
        called: Callable[..., Any],
        to: object,
        like: Any,
        dtype: object,
        device: object,
        *rest: Any,
    ) -> Target:
        """The target for the keywords of a call of the function `called`.

        One tensor in `like` is not kept.

        Raises:
            TypeError, ValueError: A keyword has a value that it does not take.
            ConversionError: There is no such target, dtype or device.
        """
        said, leaves, unknown, coalesce = rest
        if "out" in said[3]:
            raise TypeError("There is no out= here: your code could read it before it is complete.")
        if said[3]:
            refuse_unknown(called, said[3])
        validate_flags(coalesce=coalesce)
        LeafRule(leaves, unknown=unknown)
        columns = {name: value for name, value in said[3].items() if name in COLUMN_KEYWORDS}
        if columns:
            options = {name: value for name, value in said[3].items() if name not in columns}
            for_each_batch = cls.of(
                called, to, like, dtype, device, (*said[:3], options), leaves, unknown, coalesce
            )
            return replace(for_each_batch, columns=columns)
        if (
            to is None
            and like is not None
            and not isinstance(like, TensorInfo)
            and not _is_alone(like, "tensors")
        ):
            return cls(None, like, dtype, rule_of(dtype), device, *rest)
        name, theirs, device = name_like_device(to, like, device)
        for_each_batch = cls(
            name,
            None,
            dtype,
            rule_of(dtype, theirs),
            device,
            said,
            leaves,
            unknown,
            coalesce,
            theirs=theirs,
            labels=labels_like(name, like),
        )
        asked = for_each_batch._of_one.common
        if asked is not None:
            probe, target = TensorInfo(name, (), _PROBE), registry.ready(name)
            rules.target_device(probe, asked.here(probe, asked.request), target, _PROBE)
        return for_each_batch

    def __str__(self) -> str:
        if self.device is None:
            place = ""
        else:
            place = f" on {device_name(self.device)}"
        return f"{self.to or 'what like= names'}{place}"

    def overlapping(self) -> Target:
        """The same target, with transfers that run beside the host's work."""
        return replace(self, overlaps=True)

    @cached_property
    def _of_trees(self) -> Targets:
        return self._targets(self.rule, None)

    @cached_property
    def _of_one(self) -> Targets:
        return self._targets(rule_for_all(self.dtype), self.theirs)

    def _targets(self, rule: DtypeRule, theirs: str | None) -> Targets:
        asked: Any = (self.to, self.like, rule, self.device, *self.said)
        return targets_of(
            asked, self.leaves, overlaps=self.overlaps, alone=theirs, labels=self.labels
        )

    def _is_one(self, x: Any) -> bool:
        return self.to is not None and _is_alone(x, self.leaves)

    def prepare(self, x: Any) -> PreparedTree:
        """Plan the conversion of a tensor or a tree.

        Raises:
            ConversionError: The conversion is impossible.
        """
        return untraced(self._prepare, x)  # type: ignore[no-any-return]

    def _said(self, x: Any) -> Any:
        """The tree, with ``nulls=``, ``ragged=`` and ``pad=`` applied to its columns."""
        if not self.columns:
            return x
        return with_column_keywords(
            x, index=False, dtype=self.rule, casting=self.said[1], **self.columns
        )

    def _prepare(self, x: Any) -> PreparedTree:
        x = self._said(x)
        targets = self._of_one if self._is_one(x) else self._of_trees
        prepared = self._programs(targets).prepare(x)
        return prepared._replace(run=partial(untraced, prepared.run))

    def _programs(self, targets: Targets) -> Programs:
        rule = leaf_rule(self.leaves, unknown=self.unknown)
        return programs_of(targets, rule, coalesce=self.coalesce)

    def convert(self, x: Any) -> Any:
        """Convert a tensor as `convert` does, and anything else as `convert_tree` does.

        Raises:
            ConversionError: As for these functions.
        """
        return untraced(self._convert, x)

    def _convert(self, x: Any) -> Any:
        x = self._said(x)
        targets, alone = self._of_trees, self._is_one(x)
        if alone:
            targets = self._of_one
            if targets.common is not None and not targets.decides_by_leaf:
                return run.convert(x, targets.common)
        return self._programs(targets).convert(x)


def _is_alone(x: Any, leaves: Leaves) -> bool:
    """Whether an object is one tensor, and not a container."""
    if not callable(leaves):
        if type(x) in _CONTAINERS:
            return False
        if is_ordinary_tensor(x):
            return True
    rule = leaf_rule(leaves)
    parts, _ = take_apart(x, rule.chosen)
    return len(parts) == 1 and parts[0] is x and rule.takes(x)


_CONTAINERS = (dict, list, tuple)
