"""Steps in host memory: an array over the source's memory, cast or copied, made a target tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import hints
from ..core.declaration import (
    NO_DETAILS,
    VALUE,
    Code,
    Details,
    Snippet,
    VerbCall,
    code_of,
    snippet_of,
)
from ..core.devices import HOST, same_place
from ..core.kinds import PLAIN
from ..core.request import PINNED
from ..errors import DeviceError, ShapeError, an
from ..hints import Hint
from . import rules
from .step import Path

if TYPE_CHECKING:
    from ..core.declaration import Declaration
    from ..core.info import TensorInfo
    from ..core.labels import Labels
    from ..core.request import Request
    from .builder import PlanBuilder

__all__ = [
    "cast_array",
    "copy_array",
    "detached_in_hint",
    "framework_that_pins",
    "give_back",
    "is_to_be_locked",
    "label_result",
    "lock_array",
    "lock_tensor",
    "must_align",
    "obstacles_to_sharing",
    "pack_array",
    "present_read_only",
    "read_values",
    "refuse_misfit_labels",
    "refuse_pinned",
    "refuse_to_share",
    "resolve_lazy_bits",
    "take_foreign",
    "take_value",
    "to_target",
    "wants_pinned",
    "write_out",
]

_OWN: dict[str, Any] = {
    "writable": True,
    "mutable": True,
    "memory_map": False,
    "weak_dtype": None,
    "pinned": False,
}
"""What changes in the description of a value when it is copied into new memory."""
_NEWLY_ALLOCATED = Details(newly_allocated=True)
_ALIGNED: dict[str, Any] = {"misalignment": 0, "swapped": False}


# -- from the source ----------------------------------------------------------------------------


def take_value(plan: PlanBuilder) -> None:
    """Read the tensor in a variable."""
    name = plan.now.kind.name
    if name in plan.source.capabilities.objects.value_kinds:
        plan.add(plan.source, "value", (), f"{an(name)}'s value", kind=PLAIN)


def take_foreign(plan: PlanBuilder) -> None:
    """Take the memory of an object of another library on a device."""
    if plan.now.kind.name in plan.source.capabilities.objects.taken_kinds:
        plan.add(plan.source, "take", (), "the object's memory", kind=PLAIN)


def resolve_lazy_bits(plan: PlanBuilder) -> None:
    """Apply PyTorch's lazy bits (conjugation, negation) to the values."""
    now = plan.now
    if not (now.conjugate or now.negative):
        return
    bits = [
        word
        for word, is_set in (("conjugate", now.conjugate), ("negative", now.negative))
        if is_set
    ]
    why = f"memory holds the values before the {' and '.join(bits)} bit is applied"
    plan.refuse_copy([why])
    changes: dict[str, Any] = {"conjugate": False, "negative": False, "pinned": False}
    changes["strides"] = plan.packed(plan.source)
    plan.add(plan.source, "resolve", (), why, copies=plan.path, **changes)
    plan.reason = why


def read_values(plan: PlanBuilder) -> None:
    """Read the values of an object that has no memory to share, such as a list of numbers."""
    kind, target = plan.now.kind, plan.target
    why = rules.why_read(kind)
    plan.refuse_copy([why])
    if rules.fills_out(plan.now, plan.request, target):
        plan.add(plan.source, "look", (plan.dtype, plan.check), rules.READ_REASONS["out"])
        plan.check = ""
        return
    arguments: tuple[Any, ...] = ()
    changes: dict[str, Any] = {}
    if kind.is_numbers and rules.reads_as_asked(
        plan.now, target, plan.dtype, plan.device, plan.check
    ):
        arguments = (plan.dtype, plan.check, target.capabilities.memory.strides == "compact")
        changes = {"dtype": plan.dtype, "strides": plan.packed(target, plan.dtype)}
        changes |= {"misalignment": 0, "weak_dtype": None}
    joins = kind.joined_by
    # Python values have no memory, so NumPy joins them.
    if joins and plan.source.capabilities.memory.host_array:
        owner = plan.exchange
    else:
        owner = plan.source
    changes |= {"writable": True, "mutable": True, "kind": PLAIN}
    # The code of a column that is copied depends on what it is asked for, though the verb does not.
    out = plan.request.out
    details = NO_DETAILS
    if kind.copied:
        dtype = plan.request.dtype or (None if out is None else out.dtype)
        details = Details(dtype=dtype, casting=plan.request.casting)
    plan.add(owner, joins or "read", arguments, why, copies=plan.path, details=details, **changes)
    plan.reason = why


def give_back(plan: PlanBuilder) -> None:
    """Make lists from many numbers, in chunks, without an array of all of them."""
    why = rules.READ_REASONS["lists"]
    changes = {**plan.as_targets(), "dtype": plan.dtype}
    plan.add(plan.source, "give_back", (plan.dtype, plan.check), why, copies=Path.HOST, **changes)
    plan.reason = why


# -- share or copy ------------------------------------------------------------------------------


def obstacles_to_sharing(plan: PlanBuilder) -> list[str]:
    """The reasons why the target cannot share the source's memory; empty if it can."""
    if plan.allocated:
        return []
    reasons = []
    if plan.dtype != plan.now.dtype:
        reasons.append(f"the dtype changes from {plan.now.dtype} to {plan.dtype}")
    if not same_place(plan.now.device, plan.device):
        reasons.append(plan.changes_device)
    return reasons + rules.layout_obstacles(plan.now, plan.target)


def refuse_to_share(plan: PlanBuilder, reasons: list[str], share: bool, reason: str) -> None:
    """Raise for ``copy=False`` if memory cannot be shared, or a tensor is in an autograd graph."""
    if reasons:
        plan.refuse_copy(reasons)
    elif not share and not plan.allocated and plan.request.copy is False:
        detached = detached_in_hint(plan.source, plan.source_info)
        call = hints.code(f'convert({detached}, "{plan.target.name}", copy=False)')
        plan.refuse_copy([reason], Hint(call, ", whose writes show in ", hints.code("x")))


def detached_in_hint(source: Declaration, info: TensorInfo) -> str:
    """The code that detaches `x`, as a hint says it."""
    return code_of(source, VerbCall("detach", (), info, details=Details(in_hint=True))).expression


def must_align(plan: PlanBuilder) -> str:
    """Why new memory must be copied again before the target can use it; empty if it need not be."""
    if not plan.target.capabilities.memory.exists:
        return ""
    return next(iter(rules.layout_obstacles(plan.now, plan.target)), "")


# -- an array -----------------------------------------------------------------------------------


def cast_array(plan: PlanBuilder) -> None:
    """Cast into newly allocated memory."""
    asked = rules.cast_reason(plan.source_info, plan.request, plan.target)
    if not plan.check:
        asked += rules.why_on_host(plan.source_info, plan.dtype)
    why = {
        "": asked,
        "value": f"{asked}; each value is compared",
        "number": f"{asked}; each value is looked at",
        "finite": f"Python numbers take {plan.target.name}'s own dtype",
    }[plan.check]
    arguments = (plan.dtype, plan.check, plan.target.capabilities.memory.strides == "compact")
    changes = {
        "dtype": plan.dtype,
        "strides": plan.packed(plan.target, plan.dtype),
        **_ALIGNED,
        **_OWN,
    }
    plan.add(plan.exchange, "cast", arguments, why, copies=Path.HOST, **changes)
    plan.reason = plan.reason or plan.changes_dtype


def copy_array(plan: PlanBuilder, why: str) -> None:
    """Copy into newly allocated memory, in the layout that the target needs."""
    arguments = (plan.target.capabilities.memory.strides == "compact",)
    changes = {"strides": plan.packed(plan.target), **_ALIGNED, **_OWN}
    plan.add(plan.exchange, "copy", arguments, why, copies=Path.HOST, **changes)
    plan.reason = why


def pack_array(plan: PlanBuilder, why: str) -> None:
    """Copy into memory without gaps."""
    plan.add(
        plan.exchange,
        "copy",
        (True,),
        why,
        copies=Path.HOST,
        strides=plan.c_order,
        **_ALIGNED,
        **_OWN,
    )


# -- page-locked memory -------------------------------------------------------------------------


def wants_pinned(plan: PlanBuilder) -> bool:
    """Whether ``pinned=True`` was given."""
    return PINNED in plan.request.options


def is_to_be_locked(plan: PlanBuilder) -> bool:
    """Whether the value must still be copied into page-locked memory."""
    return wants_pinned(plan) and not plan.now.pinned and plan.now.size > 0


def framework_that_pins(plan: PlanBuilder) -> Declaration | None:
    """The framework that can lock memory: the source's or the target's."""
    return next(
        (side for side in (plan.source, plan.target) if side.capabilities.devices.pins), None
    )


def refuse_pinned(plan: PlanBuilder) -> None:
    """Raise for ``pinned=True`` if there is no page-locked memory.

    Raises:
        DeviceError: The result is not on the host, or neither framework can lock memory.
    """
    if not wants_pinned(plan) or plan.now.abstract is not None:
        return
    if plan.device != HOST:
        raise DeviceError(
            "pinned=True asks for page-locked memory of the host, "
            f"and the result is on {plan.device}.",
            Hint(hints.keyword("device", HOST), ", or ", hints.without("pinned")),
        )
    if framework_that_pins(plan) is None and not plan.now.pinned:
        sides = dict.fromkeys([plan.source.name, plan.target.name])
        if len(sides) == 2:
            who = f"Neither {' nor '.join(sides)} can"
        else:
            who = f"{plan.source.name} cannot"
        hint = hints.without("pinned") + ", or go over a framework that can"
        raise DeviceError(f"{who} lock memory.", hint)


def lock_tensor(plan: PlanBuilder, by: Declaration) -> None:
    """Copy a framework's tensor into page-locked memory."""
    why = rules.PINNED_REASON
    plan.refuse_copy([why])
    changes: dict[str, Any] = {
        "strides": plan.packed(by),
        "misalignment": 0,
        "memory_map": False,
        "pinned": True,
    }
    plan.add(by, "pin", (True,), why, copies=Path.HOST, **changes)
    plan.reason = plan.reason or why


def lock_array(plan: PlanBuilder, by: Declaration) -> None:
    """Copy an array into page-locked memory, by means of a tensor over the array's memory."""
    if _ends_with_export(plan):
        plan.steps.pop()
    else:
        plan.add(by, "adopt", (), rules.ADOPT_REASONS[True])
    lock_tensor(plan, by)
    plan.add(by, "export", (), rules.EXPORT_REASON)
    plan.become(writable=True, mutable=True)


# -- to the target ------------------------------------------------------------------------------


def to_target(plan: PlanBuilder) -> None:
    """Make the array a tensor of the target."""
    target, memory, info = plan.target, plan.target.capabilities.memory, plan.source_info
    if not memory.host_array or not memory.exists:
        _adopt_array(plan)
        present_read_only(plan)
    elif (
        (info.writable or info.requires_grad)
        and rules.why_read_only(info, target)
        and not plan.allocated
    ):
        # The array of the source is writable, so a read-only view of it is made.
        plan.become(**plan.as_targets())
        present_read_only(plan)
    elif plan.allocated and not plan.now.writable:
        copy_array(plan, "a result of one's own is writable")
        plan.become(**plan.as_targets())
    else:
        read_only = memory.read_only and not plan.allocated and not info.writable
        if read_only and _ends_with_export(plan):
            snippet = _snippet_now(plan, plan.source, "export", Details(read_only=True))
            plan.steps[-1] = plan.steps[-1]._replace(snippet=snippet)
        if read_only:
            kept = {"writable": False, "mutable": info.mutable}
        else:
            kept = {}
        plan.become(**{**plan.as_targets(), **kept})


def _adopt_array(plan: PlanBuilder) -> None:
    target, caps = plan.target, plan.target.capabilities
    if not caps.memory.exists or plan.now.dtype in caps.dtypes.unshared:
        copies = Path.HOST
    else:
        copies = Path.NONE
    why = rules.ADOPT_REASONS[caps.memory.exists]
    # The printed code gives the target the source's own tensor, if it takes it, and not the array
    # over its memory.
    able = plan.now.dtype not in plan.source.capabilities.dtypes.unexported | caps.dtypes.unexported
    preferred = caps.devices.prefers_dlpack and plan.source.capabilities.devices.exports_dlpack
    through_dlpack = preferred and able and not plan.allocated and _ends_with_export(plan)
    imported = _snippet_now(plan, target, "import_dlpack") if through_dlpack else None
    details = _NEWLY_ALLOCATED if plan.allocated else NO_DETAILS
    plan.add(target, "adopt", (), why, copies=copies, details=details, **plan.as_targets())
    if imported is not None:
        export, adopt = plan.steps[-2:]
        unchanged = Snippet(lambda: Code(VALUE))
        plan.steps[-2:] = [export._replace(snippet=unchanged), adopt._replace(snippet=imported)]


def _snippet_now(
    plan: PlanBuilder, owner: Declaration, verb: str, details: Details = NO_DETAILS
) -> Snippet:
    """The code for a verb without arguments of its own, of the value as it is now."""
    return snippet_of(owner, VerbCall(verb, (), plan.now, VALUE, details))


def _ends_with_export(plan: PlanBuilder) -> bool:
    """Whether the last step gave an array over the memory of the source."""
    return bool(plan.steps) and (plan.steps[-1].verb, plan.steps[-1].backend) == (
        "export",
        plan.source.name,
    )


def present_read_only(plan: PlanBuilder) -> None:
    """Make the result read-only if it shares memory not to be written to and the target can."""
    info = plan.source_info
    why = rules.why_read_only(info, plan.target)
    if why and plan.target.capabilities.memory.writable and not plan.allocated:
        plan.add(plan.target, "read_only", (), why, writable=False, mutable=info.mutable)


def write_out(plan: PlanBuilder, out: TensorInfo) -> None:
    """Write the values into `out`."""
    if plan.check and plan.now.dtype != plan.dtype:
        why = "each value is compared before the first is written"
        plan.add(plan.exchange, "check", (plan.dtype, plan.check), why)
    copies, why = Path.HOST if out.device == HOST else Path.BUS, "into the memory that was given"
    details = Details(out=out)
    plan.add(plan.target, "write", (), why, copies=copies, details=details, dtype=plan.dtype)
    plan.now = out
    plan.reason = "out= is written into"


def refuse_misfit_labels(info: TensorInfo, request: Request, target: Declaration) -> None:
    """Raise if ``index=`` or ``columns=`` does not fit the result.

    Raises:
        ShapeError: It has another number of labels than the result has rows, or columns; or the
            result is one column.
    """
    if request.labels is None:
        labels = None
    else:
        labels = request.labels.given
    if labels is None:
        return
    rows, columns = _rows_and_columns(info)
    if labels.index is not None and len(labels.index) != rows:
        raise ShapeError(
            f"index= has {_number_of(len(labels.index), 'label')}, and the result has "
            f"{_number_of(rows, 'row')}.",
            hints.without("index"),
        )
    if labels.names is None:
        return
    if len(info.shape) == 1:
        raise ShapeError(
            "columns= names the columns of a table. A tensor with one axis becomes a column of "
            f"{target.name}, whose "
            "name is set by its method rename.",
            hints.without("columns"),
        )
    if len(labels.names) != columns:
        raise ShapeError(
            f"columns= has {_number_of(len(labels.names), 'name')}, and the result has "
            f"{_number_of(columns, 'column')}.",
            hints.without("columns"),
        )


def label_result(plan: PlanBuilder) -> None:
    """Label the result, if there are labels for it that it has not got already."""
    wanted = plan.request.labels
    if wanted is None or plan.now.abstract is not None:
        return
    rows, columns = _rows_and_columns(plan.now)
    index, index_from, index_left = _first_fitting_labels(wanted._asdict(), "index", rows)
    names, names_from, names_left = _first_fitting_labels(wanted._asdict(), "names", columns)
    if not plan.steps and plan.source is plan.target:
        # The result is the source itself, which keeps its own.
        index = None if index_from == "own" else index
        names = None if names_from == "own" else names
    remarks = _labels_left_out(index_left, names_left, rows, columns)
    if index is not None or names is not None:
        if plan.steps:
            plan.reason = plan.reason
        else:
            plan.reason = "the same memory"
        _add_host_step(plan, (index, index_from), (names, names_from))
    plan.reason = "; ".join([plan.reason, *remarks])


def _add_host_step(
    plan: PlanBuilder, index: tuple[Labels | None, str], names: tuple[Labels | None, str]
) -> None:
    is_column = len(plan.now.shape) == 1
    details = Details(
        index_code=None if index[0] is None else _INDEX[index[1]][0],
        names_code=None
        if names[0] is None
        else _code_of_names(names[0], names[1], is_column=is_column),
    )
    words = [] if index[0] is None else [_INDEX[index[1]][1]]
    words += [] if names[0] is None else [_NAMES[names[1]]]
    why = f"labelled by {' and '.join(words)}"
    plan.add(plan.target, "label", (index[0], names[0]), why, details=details)


_INDEX = {
    "given": ("index", "index="),
    "own": ("x.index", "the index of x"),
    "like": ("like.index", "the index of like="),
}
"""By where an index comes from: the code for it, and the words."""
_NAMES = {"given": "columns=", "own": "the names of x", "like": "the names of like="}
"""By where names come from: the words for them."""


def _code_of_names(names: Labels, origin: str, *, is_column: bool) -> str:
    """The code for the name of a column, or for the names of a table."""
    if origin == "given":
        return "columns"
    owner = "x" if origin == "own" else origin
    if names.is_table:
        if is_column:
            return f"{owner}.columns[0]"
        return f"{owner}.columns"
    return f"{owner}.name" if is_column else f"[{owner}.name]"


def _rows_and_columns(info: TensorInfo) -> tuple[int, int]:
    """The numbers of rows and columns. A column is one."""
    return info.shape[0], 1 if len(info.shape) == 1 else info.shape[1]


def _first_fitting_labels(
    wanted: dict[str, Labels | None], part: str, length: int
) -> tuple[Labels | None, str, int | None]:
    """The first labels that have this part in the right number, and where they come from.

    The last is the number of those of ``like=`` that do not fit; ``None`` if they are not needed.
    """
    for origin, labels in wanted.items():
        if labels is None:
            chosen = None
        else:
            chosen = getattr(labels, part)
        if chosen is not None and len(chosen) == length:
            return labels, origin, None
    if wanted["like"] is None:
        theirs = None
    else:
        theirs = getattr(wanted["like"], part)
    return None, "", None if theirs is None else len(theirs)


def _labels_left_out(index: int | None, names: int | None, rows: int, columns: int) -> list[str]:
    """What a reason says of labels of ``like=`` that do not fit."""
    left = []
    if index is not None:
        left.append(
            f"the index of like= has {_number_of(index, 'label')} for {_number_of(rows, 'row')}, which "
            "are only numbered"
        )
    if names is not None:
        left.append(
            f"like= has {_number_of(names, 'name')} for "
            f"{_number_of(columns, 'column')}, and is not taken"
        )
    return left


def _number_of(number: int, noun: str) -> str:
    if number == 1:
        return f"{number:,} {noun}"
    return f"{number:,} {noun}s"
