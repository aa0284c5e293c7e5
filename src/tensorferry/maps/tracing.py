"""Read a table off a converter: run it on dyed tensors, fit what comes out, and verify on random bits."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..backends import registry
from ..core.dtypes import find
from ..errors import ConversionError, NotEnoughMemoryError, UnsupportedTypeError
from ..host.casts import cast
from ..host.free_memory import free_memory
from ..host.numpy_dtypes import numpy_dtype
from .applying import viewed
from .child import Child, ConverterFailedError, Job, reference_to
from .dropping import dropped
from .dyes import MOST_ELEMENTS, Dye, Pass, total_bytes
from .expressions import Cast, View
from .fitting import NotFittedError, fitted
from .forms import Filled
from .generalizing import Model, Output, exact_rule, generalized
from .lowering import Constant, Header, lower
from .moves import copy_moves
from .table import Table
from .word_rules import folded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..typing import Array
    from .child import Output as Given
    from .dyes import Manner
    from .forms import Form
    from .lowering import MadeTensor

__all__ = ["trace"]

_MOST_CONSTANTS = 16
_CHUNK = 1 << 16
_KEPT = 1 << 28
"""How many bytes of random tensors are kept, which several outputs need."""
_VIAS = ("float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2")
_OTHER_SEED = 1 << 20
_VALUES = "depends on values"
_ARITHMETIC = "arithmetic"
_UNREAL = "not from the source"
_CHANCE = "depends on chance"


def trace(
    convert: Callable[..., Any] | str,
    source: Mapping[str, Header] | Sequence[tuple[Mapping[str, Header], Mapping[str, Any]]],
    *,
    framework: str | None = None,
    config: Mapping[str, Any] | None = None,
    files: Mapping[str, Sequence[str] | str] | str | None = None,
    dims: Mapping[str, Any] | None = None,
    verify_with: Mapping[str, Array] | None = None,
    seconds: float = 600,
    memory: int | None = None,
) -> Table:
    """The table that says what a converter does with weights.

    The converter runs in a process of its own, some ten times, on tensors that are made up. It has
    all rights of the caller: a child process bounds its time and memory, and is no sandbox.

    Args:
        convert: A function of a dict of tensors; or of the path of a folder, if its first parameter
            is annotated ``str`` or ``Path``. It gives a dict, which may be nested, or an object with
            ``state_dict()``. Or where the function is: ``"package.module:function"``.
        source: The tensors that it gets, by name. Or for several sizes of one architecture, pairs of
            these with their ``config.json``: then lengths have formulas.
        framework: Whose tensors a function of a dict gets; ``None`` for the first that may be on
            any devices.
        config: What is in ``config.json``, beside the file.
        files: The files of the folder, each with the names of its tensors, or with the path of a
            file that is copied there; a name alone if the converter gets the path of that file.
            ``None``, and for several sizes, if it is no name: ``model.safetensors``.
        dims: Names of lengths, with their values; for several sizes with a value for each.
        verify_with: Real weights, for several sizes those of the first, on which the table is
            compared with the converter. They decide where it depends on values.
        seconds: How long one run may take.
        memory: How many bytes one run may take; ``None`` for what is free.

    Raises:
        ConversionError: The converter fails, or gives no tensors.
        UnsupportedTypeError: Another process cannot get the function.
        NotEnoughMemoryError: The tensors are too many for this machine.
    """
    several = not hasattr(source, "keys")
    sizes: list[tuple[Mapping[str, Header], Mapping[str, Any] | None]]
    sizes = list(source) if several else [(source, config)]  # type: ignore[arg-type,list-item]
    if not sizes or not all(headers for headers, _ in sizes):
        raise UnsupportedTypeError("There are no tensors to trace with.")
    function = reference_to(convert)
    name = framework or _default_framework()
    models, reports = [], []
    for place, (headers, settings) in enumerate(sizes):
        given = {key: _at(value, place, several) for key, value in (dims or {}).items()}
        # Files with other tensors in other sizes: then one file for all.
        own = None if several and not isinstance(files, str) else files
        limit = memory or free_memory()
        job = Job(function, dict(headers), name, settings, own, seconds, limit, "")
        report = _Tracing(job, verify_with if not place else None).all()
        reports.append(report)
        models.append(Model(headers, report.outputs, numbers_in(settings or {}), given))
    return _table(models, reports)


def _at(value: Any, place: int, several: bool) -> int:
    if not several or isinstance(value, int):
        return int(value)
    return int(value[place])


def _default_framework() -> str:
    """The first of this package's frameworks whose tensors may be on any device."""
    known = registry.known().items()
    return next(name for name, backend in known if backend.capabilities.devices.others)


def numbers_in(config: Mapping[str, Any], before: str = "") -> dict[str, int]:
    """The whole numbers of ``config.json``, by keys with dots."""
    numbers: dict[str, int] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            numbers |= numbers_in(value, f"{before}{key}.")
        elif type(value) is int:
            numbers[f"{before}{key}"] = value
    return numbers


class Report(NamedTuple):
    """What was found out about a converter.

    Args:
        outputs: What it gives.
        touched: The sources of outputs whose rule says nothing.
        is_unsure: Whether there are outputs of which the sources are not known.
        seconds: How long the converter took, in all passes.
    """

    outputs: list[Output]
    touched: frozenset[str]
    is_unsure: bool
    seconds: float


def _table(models: Sequence[Model], reports: Sequence[Report]) -> Table:
    """The table for what came out, in which each rule is verified."""
    rules, formulas = generalized(models)
    ways = formulas.ways_of(rules)
    table = Table(tuple(rules), (), ways)
    drop = dropped(table, models, formulas, [report.touched for report in reports])
    # What an unknown output is made of may be any of the sources.
    is_unsure = any(report.is_unsure for report in reports)
    known = {output.name for model in models for output in model.outputs if output.form is None}
    is_unsure |= any(
        rule.expression is None and str(rule.target) not in known for rule in table.rules
    )
    if not is_unsure:
        table = Table(table.rules, drop, formulas.ways_of(rules, drop))
    for place, model in enumerate(models):
        given = formulas.unknown_in(table.dims, place)
        lowered = lower(table, model.source, config=model.config, dims=given)
        wrong = [
            finding for finding in lowered.findings if finding.kind not in ("unfilled", "unused")
        ]
        wanted = {output.name for output in model.outputs if output.form is not None}
        lost = wanted - lowered.tensors.keys() - lowered.unmade.keys()
        if wrong or lost:
            what = str(wrong[0]) if wrong else f"{min(lost)} is in no rule"
            raise ConversionError(f"The table that was traced does not make the same: {what}.")
    return folded(table, [model.source for model in models])


# -- one size ----------------------------------------------------------------------------------------


class _Runs(NamedTuple):
    """What a converter gave in all passes.

    Args:
        digits: On dyed tensors.
        others: On all else, by what it was; without what it did not take.
        real: On real weights; ``None`` without them.
    """

    digits: list[Given]
    others: dict[Pass, Given]
    real: Given | None


class _Tracing:
    def __init__(self, job: Job, real: Mapping[str, Array] | None) -> None:
        self._job = job
        self._dye = Dye(job.headers)
        self._starts = np.array(list(self._dye.starts.values()), np.int64)
        self._real = real
        self._refuse()
        self._manner: Manner = "whole"
        self._small: list[Given] | None = None
        self._again: Given | None = None
        self._kept: OrderedDict[tuple[Pass, str], Array] = OrderedDict()
        self._touched: set[str] = set()
        self._is_unsure = False
        self._shapes = {name: header.shape for name, header in job.headers.items()}

    def _refuse(self) -> None:
        needed = total_bytes(self._job.headers.values())
        free = free_memory()
        # The converter has its source and its result at once, and mostly something between.
        if self._dye.count >= MOST_ELEMENTS or (free is not None and 3 * needed > free):
            raise NotEnoughMemoryError(
                f"To trace with {self._dye.count:,} elements needs about {3 * needed:,} bytes of "
                f"memory, and {free or 0:,} are free.",
                "trace a smaller model of the same architecture, with fewer layers or a smaller "
                "vocabulary; its table is for all sizes if three are traced",
            )
        real = self._real
        if real is not None:
            for name, header in self._job.headers.items():
                if name not in real or real[name].shape != header.shape:
                    raise UnsupportedTypeError(f"verify_with has no {name} of {header.shape}.")

    def all(self) -> Report:
        """Run the converter, and find out what each output is."""
        with Child(self._job, self._real) as child:
            self._child = child
            runs = self._run()
            outputs = [self._output(name, runs) for name in self._names(runs)]
            return Report(outputs, frozenset(self._touched), self._is_unsure, child.seconds)

    def _run(self) -> _Runs:
        child = self._child
        passes = self._dye.passes()
        try:
            digits = [child.run(passes[0])]
        except ConverterFailedError as failed:
            self._manner = "near"
            passes = self._dye.passes("near")
            try:
                digits = [child.run(passes[0])]
            except ConverterFailedError:
                raise failed.error(self._hint(failed)) from None
        if not digits[0].headers:
            raise ConversionError(
                "The converter gives no tensors.",
                "return a dict of tensors, or an object that has a state_dict",
            )
        digits += [self._needed(one_pass) for one_pass in passes[1:]]
        others: dict[Pass, Given] = {}
        for one in (Pass("zeros"), Pass("ones"), Pass("bits", seed=2), Pass("floats", seed=3)):
            with suppress(ConverterFailedError):
                others[one] = child.run(one)
        if not any(one.kind in ("bits", "floats") for one in others):
            # It wants a range: all digits of numbers in it.
            others[Pass("near", seed=4)] = self._needed(Pass("near", seed=4))
        real = None if self._real is None else self._needed(Pass("given"))
        return _Runs(digits, others, real)

    def _needed(self, one: Pass) -> Given:
        try:
            return self._child.run(one)
        except ConverterFailedError as failed:
            raise failed.error(self._hint(failed)) from None

    def _hint(self, failed: ConverterFailedError) -> str | None:
        if failed.instead is not None:
            return failed.instead
        if "did not end" in failed.why:
            return "seconds=3600, or trace a smaller model of the same architecture"
        if "imported" in failed.why:
            return "put the converter into a module that can be imported"
        if "raised" in failed.why:
            return (
                "trace with the names, shapes and dtypes that it is made for, and config.json beside "
                "the source"
            )
        return None

    @staticmethod
    def _names(runs: _Runs) -> list[str]:
        """All names that came out in any pass."""
        names: dict[str, None] = {}
        every = [*runs.digits, *runs.others.values()]
        for given in every if runs.real is None else [*every, runs.real]:
            names |= dict.fromkeys([*given.headers, *given.others])
        return list(names)

    # -- one output ----------------------------------------------------------------------------------

    def _output(self, name: str, runs: _Runs) -> Output:
        first = runs.digits[0]
        if name not in first.headers:
            what = first.others.get(name)
            reason = _VALUES if what is None else f"no tensor ({what})"
            if what is None or ":" in what:
                self._is_unsure = True
            return Output(name, Header((), "float32"), None, reason)
        header = first.headers[name]
        if any(given.headers.get(name) != header for given in runs.digits):
            return self._unknown(name, header, _VALUES)
        if not header.size:
            return Output(name, header, Filled(0, header.shape), None, (0,), header.dtype)
        numbers = self._dye.numbers_of(header.size, _parts_of(name, runs.digits), self._manner)
        constants: tuple[float, ...] = ()
        lost = numbers < 0
        if lost.any():
            outcome = self._lost(name, header, runs, numbers, lost)
            if isinstance(outcome, Output):
                return outcome
            if isinstance(outcome, str):
                self._touch(numbers)
                return self._unknown(name, header, outcome)
            constants = outcome
        return self._fitted(name, header, runs, numbers, constants)

    def _unknown(self, name: str, header: Header, reason: str) -> Output:
        """An output whose rule says nothing, and whose sources are not known."""
        if reason in (_VALUES, _ARITHMETIC, _CHANCE):
            self._is_unsure = True
        return Output(name, header, None, reason)

    def _touch(self, numbers: Array) -> None:
        self._touched |= set(self._sources_of(numbers))

    def _sources_of(self, numbers: Array) -> list[str]:
        """The names of the sources that the elements with these numbers are of."""
        is_used = np.zeros(len(self._starts) + 1, bool)
        for start in range(0, numbers.size, _CHUNK):
            part = numbers[start : start + _CHUNK]
            # Neighbours are mostly of one source, and its first and last element tell it.
            ends = np.searchsorted(self._starts, (part.min(), part.max()), "right")
            is_one = ends[0] == ends[1]
            is_used[ends[0] if is_one else np.searchsorted(self._starts, part, "right")] = True
        return [name for name, used in zip(self._dye.starts, is_used[1:], strict=True) if used]

    def _lost(
        self,
        name: str,
        header: Header,
        runs: _Runs,
        numbers: Array,
        lost: Array,
    ) -> tuple[float, ...] | str | Output:
        """What elements are that are no copies: constants, or the reason why nobody knows.

        If all are the bits of others, it is the output.
        """
        arrays = [given.array(name) for given in runs.digits]
        steady = np.ones(len(lost), bool)
        for given in arrays[1:]:
            steady &= _words(given) == _words(arrays[0])
        if bool(steady[lost].all()):
            values = np.unique(_words(arrays[0])[lost])
            whole = bool(lost.all())
            is_plain = arrays[0].dtype.kind != "c"
            if not is_plain or len(values) > (1 if whole else _MOST_CONSTANTS):
                return "constant"
            elements = values.view(arrays[0].dtype)
            for code, value in enumerate(values):
                numbers[lost & (_words(arrays[0]) == value)] = -1 - code
            return tuple(_number(given) for given in elements)
        if self._again is None:
            first = self._dye.passes(self._manner)[0]
            self._again = self._needed(first._replace(seed=_OTHER_SEED))
        again = self._again.headers.get(name) == header and self._again.array(name)
        if again is False or not _equal(arrays[0], again):
            return _CHANCE if self._is_chosen(name, header, runs, lost) else _UNREAL
        output = self._view(name, header, runs, arrays)
        if output is not None:
            return output
        return self._affine(name, header, runs) or _ARITHMETIC

    @staticmethod
    def _is_chosen(name: str, header: Header, runs: _Runs, lost: Array) -> bool:
        """If what differs in each run is from the source all the same: some of it, by chance."""
        zeros, ones = runs.others.get(Pass("zeros")), runs.others.get(Pass("ones"))
        if zeros is None or ones is None:
            return False
        if zeros.headers.get(name) != header or ones.headers.get(name) != header:
            return False
        return bool(((zeros.array(name) == 0) & (ones.array(name) == 1))[lost].any())

    def _view(self, name: str, header: Header, runs: _Runs, arrays: list[Array]) -> Output | None:
        """An output whose bytes are elements of another dtype, if they are."""
        for dtype in dict.fromkeys(given.dtype for given in self._job.headers.values()):
            kind = numpy_dtype(dtype)
            if dtype == header.dtype or header.viewed_as(dtype) is None:
                continue
            views = [given.view(kind) for given in arrays]
            numbers = self._dye.numbers_of(views[0].size, _slices_of(views), self._manner)
            if bool((numbers >= 0).all()):
                return self._fitted(name, header, runs, numbers, (), view_of=dtype)
        return None

    def _affine(self, name: str, header: Header, runs: _Runs) -> str | None:
        """A factor and a summand, if they are the same for all elements."""
        zeros, ones = runs.others.get(Pass("zeros")), runs.others.get(Pass("ones"))
        if zeros is None or ones is None or find(header.dtype).kind in ("complex", "bool"):
            return None
        if zeros.headers.get(name) != header or ones.headers.get(name) != header:
            return None
        plus, total = [given.array(name).astype(np.float64) for given in (zeros, ones)]
        with np.errstate(all="ignore"):
            times = total - plus
        if not (np.isfinite(times).all() and (times == times[0]).all() and times[0]):
            return None
        if not (plus == plus[0]).all():
            return None
        if self._small is None:
            self._small = []
            # A converter that wants a range may not take them.
            with suppress(ConverterFailedError):
                self._small = [self._child.run(given) for given in self._dye.passes("small")]
        if not self._small or any(given.headers.get(name) != header for given in self._small):
            return None
        affine = float(times[0]), float(plus[0]) + 0.0  # no -0
        parts = _parts_of(name, self._small)
        numbers = self._dye.numbers_of(header.size, parts, "small", affine)
        if not bool((numbers >= 0).all()):
            return None
        self._touch(numbers)
        return f"affine {affine[0]:g}*x{affine[1]:+g}"

    def _fitted(
        self,
        name: str,
        header: Header,
        runs: _Runs,
        numbers: Array,
        constants: tuple[float, ...],
        view_of: str | None = None,
    ) -> Output:
        seen = None if view_of is None else header.viewed_as(view_of)
        sources = self._sources_of(numbers)
        dtypes = list(
            dict.fromkeys(self._job.headers[source_name].dtype for source_name in sources)
        )
        if len(dtypes) > 1:
            self._touched |= set(sources)
            return Output(name, header, None, f"made of {' and '.join(dtypes)}")
        dtype = dtypes[0] if dtypes else header.dtype
        if constants and dtype != header.dtype:
            # What is filled is written before the cast.
            kept = [_as(value, dtype) for value in constants]
            if None in kept:
                self._touched |= set(sources)
                return Output(name, header, None, _ARITHMETIC)
        try:
            form: Form = fitted(numbers, (seen or header).shape, self._shapes)
        except NotFittedError:
            self._touched |= set(sources)
            return Output(name, header, None, "more moves than a table may have")
        output = Output(name, header, form, None, constants, dtype, is_view=seen is not None)
        reason = self._verified(output, runs)
        if reason is None:
            return output
        self._touched |= set(sources)
        self._is_unsure |= reason in (_VALUES, _ARITHMETIC)
        return output._replace(form=None, reason=reason)

    # -- verify --------------------------------------------------------------------------------------

    def _verified(self, output: Output, runs: _Runs) -> str | None:
        """Why an output is not what was fitted; ``None`` if it is, in each pass."""
        rule, dims = exact_rule(output)
        used = {source_name: self._job.headers[source_name] for source_name in rule.sources}
        lowered = lower(Table((rule,), (), dims), used)
        made = lowered.tensors.get(output.name)
        if made is None or made.header != output.header:
            return _ARITHMETIC
        reason = None
        for one, given in runs.others.items():
            reason = self._compared(made, one, given, reason)
        if runs.real is None:
            return reason
        on_real = self._compared(made, Pass("given"), runs.real, None)
        if on_real is None and reason == _VALUES:
            return None
        return reason or (on_real and _VALUES)

    def _compared(
        self, made: MadeTensor, one: Pass, given: Given, reason: str | None
    ) -> str | None:
        """Compare an output in a pass; and what is known so far about why it is another."""
        if reason is not None and reason != _VALUES:
            return reason
        if given.headers.get(made.name) != made.header:
            return _VALUES
        made_array = given.array(made.name)
        plain = self._made(made, one)
        expected = _changed(plain, made)
        if _alike(made_array, expected, made):
            return reason
        if one.kind in ("zeros", "ones"):
            return _VALUES
        via = _via(plain, made_array, made)
        if via is not None:
            return f"narrowed through {via}"
        if np.array_equal(np.sort(_words(made_array)), np.sort(_words(expected))):
            return _VALUES
        return _ARITHMETIC if one.kind == "bits" or reason is None else reason

    def _made(self, made: MadeTensor, one: Pass) -> Array:
        """What the moves make of the tensors of a pass."""
        kind = numpy_dtype(made.source_dtype)
        target = np.empty(made.moved, kind)
        sources: dict[Any, Array] = {}
        for move in made.moves:
            if isinstance(move.source, Constant):
                sources[move.source] = _words(_constant(move.source.number, made.source_dtype))
            else:
                sources[move.source] = _words(self._source(str(move.source), one))
        copy_moves(made.moves, sources, _words(target))
        return target

    def _source(self, name: str, one: Pass) -> Array:
        if one.kind == "given":
            return np.ascontiguousarray((self._real or {})[name]).reshape(-1)
        key = one, name
        if key not in self._kept:
            self._kept[key] = self._dye.array(name, one).reshape(-1)
        self._kept.move_to_end(key)
        while len(self._kept) > 1 and sum(array.nbytes for array in self._kept.values()) > _KEPT:
            self._kept.popitem(last=False)
        return self._kept[key]


# -- values ------------------------------------------------------------------------------------------


def _parts_of(name: str, runs: Sequence[Given]) -> Callable[[int, int], list[Array]]:
    """What reads an output in several passes."""
    return lambda start, stop: [given.part(name, start, stop) for given in runs]


def _slices_of(arrays: Sequence[Array]) -> Callable[[int, int], list[Array]]:
    return lambda start, stop: [array[start:stop] for array in arrays]


def _words(array: Array) -> Array:
    """The elements as whole numbers, so that no NaN is like none."""
    width = array.dtype.itemsize
    return array.view(f"u{width}" if width in (1, 2, 4, 8) else f"V{width}")


def _equal(one: Array, other: Array) -> bool:
    return one.nbytes == other.nbytes and np.array_equal(one.view(np.uint8), other.view(np.uint8))


def _number(value: Any) -> float:
    number = value.item() if hasattr(value, "item") else value
    if isinstance(number, bool):
        return int(number)
    return number if isinstance(number, int) else float(number)


def _as(value: float, dtype: str) -> float | None:
    """A number, if a dtype has it."""
    with np.errstate(all="ignore"):
        kept = np.array([value]).astype(numpy_dtype(dtype)).astype(np.float64)[0]
    return value if kept == value else None


def _constant(number: float, dtype: str) -> Array:
    return np.array([number]).astype(numpy_dtype(dtype))


def _changed(array: Array, made: MadeTensor) -> Array:
    with np.errstate(all="ignore"):
        for change in made.changes:
            if isinstance(change, Cast):
                array = cast(array, change.dtype)
            elif isinstance(change, View):
                array = viewed(array, change.dtype)
    return array


def _alike(given: Array, expected: Array, made: MadeTensor) -> bool:
    """Whether two arrays have the same bits; after a cast, any NaN is like another."""
    if given.dtype != expected.dtype:
        return False
    if _equal(given, expected):
        return True
    if not made.changes or find(made.header.dtype).kind not in ("float", "complex"):
        return False
    both = _is_nan(given) & _is_nan(expected)
    return bool((both | (_words(given) == _words(expected))).all())


def _is_nan(array: Array) -> Array:
    with np.errstate(all="ignore"):
        is_nan: Array = array != array  # noqa: PLR0124 - every dtype has it, as `isnan` has not
    return is_nan


def _via(plain: Array, given: Array, made: MadeTensor) -> str | None:
    """The dtype through which an output went that has fewer digits."""
    if find(made.header.dtype).kind != "float" or find(made.source_dtype).kind != "float":
        return None
    for via in _VIAS:
        if via in (made.source_dtype, made.header.dtype):
            continue
        narrow = cast(plain, via)
        again = cast(narrow, made.header.dtype)
        same = _is_nan(given) & _is_nan(again)
        if bool((same | (_words(given) == _words(again))).all()):
            return via
    return None
