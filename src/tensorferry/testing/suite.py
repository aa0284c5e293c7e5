"""The conformance suite: a check of each source, layout, dtype, target and ``copy=``.

A case is made for each tensor that a witness can make. So a new layout or dtype needs no new test
code: if the backends declare it, it must work, and otherwise it must raise the right error.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import api, inspection
from ..backends import registry
from ..errors import ConversionError, UnsupportedTypeError, an
from ..execution.run import verifying
from .bits import FORMATS, decode, encode
from .memory import Place, addresses
from .oracle import Verdict, number_dtype, verdict
from .witness import Sample, Witness, witness_for, witness_named, witnesses

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from ..planning.plan import Plan

__all__ = ["Cell", "Finding", "Group", "NonConformance", "Outcome", "check", "groups", "outcomes"]

COPIES = (None, True, False)


class Group(NamedTuple):
    """The cells of one test: one source, layout and target, with all dtypes and each ``copy=``.

    .. versionadded:: 0.1
    """

    source: str
    layout: str
    target: str
    mode: str = ""
    paths: bool = False

    def __str__(self) -> str:
        marks = [self.mode, "fast paths" if self.paths else ""]
        return ", ".join([f"{self.source} {self.layout} to {self.target}", *filter(None, marks)])


class Cell(NamedTuple):
    """One conversion to check.

    .. versionadded:: 0.1
    """

    group: Group
    dtype: str
    copy: bool | None

    def __str__(self) -> str:
        return f"{self.group}, {self.dtype}, copy={self.copy}"


class Finding(NamedTuple):
    """Something that is wrong with a conversion.

    .. versionadded:: 0.1
    """

    cell: Cell
    about: str
    text: str

    def __str__(self) -> str:
        return f"{self.cell}: {self.about}: {self.text}"


class Outcome(NamedTuple):
    """What one conversion had to do, and what is wrong with what it did.

    Args:
        cell: The conversion.
        verdict: What the contract demands of it. Without findings, this is what it did.
        reason: Why it shares or copies, in the words of its plan; or the message of its error.
        findings: What is wrong with it.
        error: What was raised when the witness made or read a tensor, which is a finding too.

    .. versionadded:: 0.1
    """

    cell: Cell
    verdict: Verdict
    reason: str
    findings: tuple[Finding, ...] = ()
    error: Exception | None = None


class NonConformance(AssertionError):  # noqa: N818 - it is not an error in the code that runs
    """A backend does not keep the contract. The message lists where.

    .. versionadded:: 0.1
    """

    def __init__(self, found: Iterable[Finding]) -> None:
        self.findings = tuple(found)
        shown = "\n".join(f"  {finding}" for finding in self.findings[:12])
        super().__init__(f"{len(self.findings)} findings\n{shown}")


# -- groups and cells -----------------------------------------------------------------------------


def groups(backend: str | None = None, *, paths: bool = False) -> list[Group]:
    """The groups of cells, in a fixed order.

    Args:
        backend: Only groups from or to this backend, and with installed frameworks. Without it, all
            groups.
        paths: Whether to check the fast paths: the calls without keywords.

    Raises:
        LookupError: `backend` has no witness.

    .. versionadded:: 0.1
    """
    all_witnesses = witnesses()
    if backend is not None:
        named = witness_named(backend)
        all_witnesses = {
            name: witness
            for name, witness in all_witnesses.items()
            if witness is named or witness.is_installed()
        }
    return [
        Group(source.name, layout, target.name, mode, paths)
        for source in all_witnesses.values()
        for target in all_witnesses.values()
        if backend in (None, source.name, target.name)
        for mode in _modes_of_pair(source, target)
        for layout in source.layouts
    ]


def _modes_of_pair(source: Witness, target: Witness) -> tuple[str, ...]:
    """The settings of one of the two frameworks under which to check."""
    return source.modes if source.modes != ("",) else target.modes


def check(group: Group) -> int:
    """Check all cells of a group. Gives their number.

    Raises:
        NonConformance: Some conversions do not keep the contract.
        LookupError: A framework is not installed, or has no witness.

    .. versionadded:: 0.1
    """
    judged = list(outcomes(group))
    wrong = [finding for outcome in judged for finding in outcome.findings]
    if wrong:
        errors = (outcome.error for outcome in judged if outcome.error is not None)
        raise NonConformance(wrong) from next(errors, None)
    return len(judged)


def outcomes(
    *groups: Group,
    dtypes: Collection[str] = tuple(FORMATS),
    copies: Collection[bool | None] = COPIES,
) -> Iterator[Outcome]:
    """Make the conversions of groups, and yield the outcome of each for which there is a tensor.

    >>> aligned = Group("numpy", "aligned", "numpy")
    >>> for found in outcomes(aligned, dtypes=["float32"], copies=[None, True]):
    ...     print(found.cell, found.verdict.shares, found.findings)
    numpy aligned to numpy, float32, copy=None True ()
    numpy aligned to numpy, float32, copy=True False ()

    Args:
        *groups: The groups. If the mode of one is none of its frameworks' modes, their settings
            stay as they are now.
        dtypes: Only these dtypes.
        copies: Only these values of ``copy=``. A group for fast paths has ``None`` only.

    Raises:
        LookupError: A framework is not installed, or has no witness.

    .. versionadded:: 0.1
    """
    # Groups beside each other share the context, because it closes or opens all fast paths.
    for paths, same in groupby(groups, key=attrgetter("paths")):
        with verifying(not paths):
            for group in same:
                yield from _outcomes_of(group, dtypes, (None,) if paths else copies)


def _outcomes_of(
    group: Group, dtypes: Collection[str], copies: Collection[bool | None]
) -> Iterator[Outcome]:
    source, target = witness_for(group.source), witness_for(group.target)
    with ExitStack() as stack:
        for witness in (source, target):
            if group.mode in witness.modes:
                stack.enter_context(witness.mode(group.mode))
        for dtype in dtypes:
            for copy in copies:
                outcome = _judge_cell(Cell(group, dtype, copy), source, target)
                if outcome is not None:
                    yield outcome


# -- one cell -----------------------------------------------------------------------------------


def _judge_cell(cell: Cell, source: Witness, target: Witness) -> Outcome | None:
    """The outcome of one conversion; ``None`` if the source has no such tensor.

    A witness that cannot look is a finding too: a result that is wrong may not be readable, and the
    next conversions can still be judged.
    """
    case: _Case | None = None
    try:
        is_known = source.knows(cell.dtype)
        sample = source.make(cell.group.layout, cell.dtype) if is_known else None
        if sample is None:
            return None
        case = _Case(cell, source, target, sample)
        case.run()
    except Exception as error:  # noqa: BLE001 - see the docstring
        raised = Finding(cell, "witness", f"{type(error).__name__}: {error}")
        if case is None:
            return Outcome(cell, Verdict(), "", (raised,), error)
        return Outcome(cell, case.must, case.reason, (*case.found, raised), error)
    return Outcome(cell, case.must, case.reason, tuple(case.found))


class _Case:
    """The check of one conversion."""

    def __init__(self, cell: Cell, source: Witness, target: Witness, sample: Sample) -> None:
        self.cell, self.source, self.target, self.sample = cell, source, target, sample
        self.found: list[Finding] = []
        self.reason = ""
        self.same = source.name == target.name
        self.place = source.place(sample.x) if sample.owns else None
        declared = registry.load(registry.backend_named(source.name)).capabilities
        wanted = registry.load(registry.backend_named(target.name)).capabilities
        # Python numbers have no dtype of their own: the target's constructor gives them one.
        self.dtype, self.content = sample.dtype, sample.content
        self.held: object = sample.content
        if sample.numbers:
            self.dtype = number_dtype(sample.numbers, wanted) or sample.dtype
            self.content = encode(self.dtype, decode(sample.dtype, sample.content))
            self.held = source.expected(sample.dtype, sample.shape, sample.content)
        arrives = replace(sample, dtype=self.dtype)
        self.must = verdict(arrives, self.place, declared, wanted, same=self.same, copy=cell.copy)
        self.expected = target.expected(self.dtype, sample.shape, self.content)

    def wrong(self, about: str, text: str) -> None:
        self.found.append(Finding(self.cell, about, text))

    def run(self) -> None:
        x, source = self.sample.x, self.source
        if source.content(x) != self.held:
            self.wrong("witness", "the source does not have the values that it was made of")
            return
        before = source.state(x)
        plan = self.attempt("explain", inspection.explain)
        if plan is not None:
            self.reason = plan.reason
        result = self.attempt("convert", self.convert)
        if source.state(x) != before:
            self.wrong("source", f"metadata changed from {before} to {source.state(x)}")
        if source.content(x) != self.held:
            self.wrong("source", "its elements changed")
        if self.must.error is None and result is not None and self.has_right_type(result):
            if not self.must.identical:
                self.judge_result(result)
            if plan is not None:
                self.judge_plan(plan, result)
            self.judge_memory(result)

    def convert(self, x: Any, to: str, **keywords: Any) -> Any:
        """Call `convert`; or, to check a fast path, the target's own function, without keywords."""
        if not self.cell.group.paths:
            return api.convert(x, to, **keywords)
        own = getattr(api, {"python": "to_list"}.get(to, f"to_{to}"), None)
        return own(x) if own else api.convert(x, to)

    def attempt(self, name: str, function: Any) -> Any:
        """The result of a function; ``None`` after an error, which is checked."""
        try:
            result = function(self.sample.x, self.target.name, copy=self.cell.copy)
        except Exception as error:  # noqa: BLE001 - any error is checked
            self.reason = error.message if isinstance(error, ConversionError) else str(error)
            self.judge_error(name, error)
            return None
        if self.must.error is not None:
            self.wrong("raises", f"{name} must raise {self.must.error.__name__}, and did not")
        elif result is None:
            self.wrong("type", f"{name} returned None")
        return result

    def judge_error(self, name: str, error: Exception) -> None:
        if not isinstance(error, ConversionError) or type(error) is not self.must.error:
            must = self.must.error.__name__ if self.must.error else "nothing"
            self.wrong(
                "raises", f"{name} must raise {must}, raised {type(error).__name__}: {error}"
            )
        elif not error.message:
            self.wrong("raises", f"{name}: the error has no message")
        elif self.must.error is not UnsupportedTypeError and not error.hint:
            self.wrong("raises", f"{name}: the error has no hint: {error}")

    @property
    def keeps_gradient(self) -> bool:
        return self.same and self.sample.requires_grad

    def has_right_type(self, result: Any) -> bool:
        """Whether the result has the type that it must have. If not, a witness cannot read it."""
        if self.must.identical:
            right, text = result is self.sample.x, "the result must be the same object"
        else:
            right = self.keeps_gradient or self.target.is_plain(result)
            text = f"{an(type(result).__qualname__)} is not the right type"
        if not right:
            self.wrong("type", text)
        return right

    def judge_result(self, result: Any) -> None:
        target, must = self.target, self.must
        if registry.backend_named(target.name).capabilities.memory.exists:
            if target.shape(result) != self.sample.shape:
                self.wrong("shape", f"{target.shape(result)} instead of {self.sample.shape}")
            if target.dtype(result) != self.dtype:
                self.wrong("dtype", f"{target.dtype(result)} instead of {self.dtype}")
            if must.writable is not None and target.writable(result) != must.writable:
                self.wrong("writable", f"must be {must.writable}")
        if target.requires_grad(result) != self.keeps_gradient:
            self.wrong("gradient", f"requires_grad must be {self.keeps_gradient}")
        content = target.content(result)
        if content != self.expected:
            self.wrong("values", _first_difference(self.dtype, content, self.expected))

    # -- memory -----------------------------------------------------------------------------------

    def judge_memory(self, result: Any) -> None:
        if self.place is None or self.must.identical or not self.sample.content:
            return
        place = self.target.place(result)
        if place is None:
            return
        if self.must.shares:
            if (place.address, _significant_strides(place)) != (
                self.place.address,
                _significant_strides(self.place),
            ):
                self.wrong("address", f"memory must be shared: {self.place} and {place}")
        elif addresses(place) & addresses(self.place):
            self.wrong("address", f"memory must not be shared: {self.place} and {place}")
        try:
            shares = inspection.shares_memory(self.sample.x, result)
        except Exception as error:  # noqa: BLE001 - any error is checked
            self.wrong("shares_memory", f"{type(error).__name__}: {error}")
        else:
            if shares != bool(self.must.shares):
                self.wrong("shares_memory", f"must return {bool(self.must.shares)}")
        self.judge_mutation(result)

    def judge_mutation(self, result: Any) -> None:
        """Write on one side, if it can be written, and look at the other."""
        sample, x = self.sample, self.sample.x
        if any(finding.about == "source" for finding in self.found):
            return  # a write to a damaged source could end the process
        other = bytes(byte ^ 1 for byte in sample.content)
        if sample.poke is not None or sample.writable:
            if sample.poke is not None:
                sample.poke(other)
            else:
                self.source.poke(x, other)
            if self.source.content(x) != other:
                self.wrong("witness", "the source does not have the values that were written")
            shows = bool(self.must.shares) and not sample.isolated
            now, side = self.target.content(result), "source"
            expected = self.target.expected(sample.dtype, sample.shape, other)
            unchanged = self.expected
        elif self.target.writable(result) and not sample.fatal:
            self.target.poke(result, other)
            shows = bool(self.must.shares)
            now, expected, unchanged, side = self.source.content(x), other, sample.content, "result"
        else:
            return
        if shows and now != expected:
            self.wrong("mutation", f"a write to the {side} does not show on the other side")
        if not shows and now != unchanged:
            self.wrong("mutation", f"a write to the {side} shows on the other side")

    # -- the plan ---------------------------------------------------------------------------------

    def judge_plan(self, plan: Plan, result: Any) -> None:
        target, claims = self.target, plan.result
        if plan.shares_memory != bool(self.must.shares):
            self.wrong("plan", f"claims shares_memory={plan.shares_memory}")
        if bool(plan.warnings) != self.must.hazard:
            self.wrong("plan", f"warnings {plan.warnings}, hazard {self.must.hazard}")
        if (claims.framework, claims.shape) != (target.name, self.sample.shape):
            self.wrong("plan", f"claims {claims.framework} of shape {claims.shape}")
        keeps_dtype = self.dtype == self.sample.dtype
        if claims.dtype != self.dtype or plan.keeps_dtype != keeps_dtype:
            self.wrong("plan", f"claims dtype {claims.dtype}, keeps_dtype={plan.keeps_dtype}")
        if claims.requires_grad != target.requires_grad(result):
            self.wrong("plan", f"claims requires_grad={claims.requires_grad}")
        if plan.keeps_gradient != self.keeps_gradient:
            self.wrong("plan", f"claims keeps_gradient={plan.keeps_gradient}")
        declared = registry.backend_named(target.name).capabilities
        if not declared.memory.exists:
            return
        if claims.writable != target.writable(result):
            self.wrong("plan", f"claims writable={claims.writable}")
        if self.must.shares and plan.bytes_copied:
            self.wrong("plan", f"claims to share and to copy {plan.bytes_copied} bytes")
        if self.must.shares is False and plan.bytes_copied < len(self.content):
            self.wrong("plan", f"claims a copy of {plan.bytes_copied} bytes only")
        place = target.place(result)
        if place is not None and self.sample.content:
            planned = Place(place.address, claims.shape, claims.strides, place.itemsize)
            if _significant_strides(planned) != _significant_strides(place):
                self.wrong("plan", f"claims strides {claims.strides}, they are {place.strides}")
            is_known = self.must.shares or declared.memory.alignment > 1
            if is_known and claims.misalignment != place.address % 64:
                self.wrong("plan", f"claims address % 64 == {claims.misalignment}")


def _significant_strides(place: Place) -> tuple[int, ...]:
    """The strides of the axes with more than one element."""
    return tuple(
        step for length, step in zip(place.shape, place.strides, strict=True) if length > 1
    )


def _first_difference(dtype: str, given_bits: object, expected: object) -> str:
    """Where two contents differ: the first element, as a number and as bytes."""
    if not isinstance(given_bits, bytes) or not isinstance(expected, bytes):
        return f"{given_bits!r} instead of {expected!r}"
    size = FORMATS[dtype].itemsize
    pairs = [
        (given_bits[at : at + size], expected[at : at + size])
        for at in range(0, len(expected), size)
    ]
    if len(given_bits) != len(expected):
        return f"{len(given_bits) / size:g} elements instead of {len(pairs)}"
    places = [index for index, (pair_of_bits, other) in enumerate(pairs) if pair_of_bits != other]
    value, other = (f"{decode(dtype, bits)[0]} ({bits.hex()})" for bits in pairs[places[0]])
    return (
        f"element {places[0]} is {value} instead of {other}; {len(places)} of {len(pairs)} differ"
    )
