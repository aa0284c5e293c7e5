"""The contract as small pure functions: dtype, device, share or copy, and the plan's reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import hints
from ..core import dtypes
from ..core.devices import HOST, kind_of, meant_kind
from ..core.info import is_many
from ..core.layout import is_compact
from ..core.names import EXCHANGE_NUMBERS
from ..errors import DeviceError, LossyCastError, an
from ..hints import Hint

if TYPE_CHECKING:
    from ..core.declaration import Declaration
    from ..core.info import TensorInfo
    from ..core.kinds import Kind
    from ..core.request import Request

__all__ = [
    "ADOPT_REASONS",
    "EXPORT_REASON",
    "PINNED_REASON",
    "READ_ONLY_REASON",
    "READ_REASONS",
    "REPEATED_REASON",
    "cast_reason",
    "check_of",
    "fills_lists",
    "fills_out",
    "frameworks_agree",
    "install_newer",
    "layout_obstacles",
    "reads_as_asked",
    "reads_in_one_go",
    "sharing_rule",
    "target_device",
    "target_dtype",
    "why_on_host",
    "why_read",
    "why_read_only",
    "widens_later",
]

PINNED_REASON = "pinned=True asks for page-locked memory"

EXPORT_REASON = "an array over the same memory"
ADOPT_REASONS = {True: "a tensor over the array's memory", False: "Python scalars, one by one"}
READ_ONLY_REASON = "a write would bypass autograd's version check"
REPEATED_REASON = (
    "elements lie in one place (expanded, or windows overlap): one write would change several"
)
READ_REASONS = {
    "numbers": "Python numbers are objects: they are read into an array in one pass",
    "lists": "Python numbers are objects: they are read and given back part by part",
    "out": "Python numbers are objects: all are looked at part by part before the first is written",
    "scalar": "a scalar has no memory of its own to share",
    "objects": "an array of objects holds no numbers: they are read into one that does, in one pass",
    "rows": "a list of tensors is several blocks of memory: they are stacked into one",
    "stack": "a list of tensors is several blocks of memory: they are stacked into one",
    "new": "nobody else has its memory: it was made for this",
    "padded": "samples of unequal lengths are several blocks of memory: they are padded into one",
}


def why_read(kind: Kind) -> str:
    """The reason why an object without memory of its own to share is read, by its kind."""
    if kind.name in READ_REASONS and not kind.copied:
        return READ_REASONS[kind.name]
    what = an(kind.subject)
    return (
        kind.reason or f"what {what} gives is not shown to be its own memory, and counts as a copy"
    )


# -- which dtype --------------------------------------------------------------------------------


def target_dtype(info: TensorInfo, request: Request, target: Declaration) -> str:
    """The dtype of the result.

    Raises:
        LossyCastError: The target has no such dtype.
    """
    caps = target.capabilities
    if request.out is not None:
        asked = request.dtype
        if asked in dtypes.KEYWORDS:
            asked = target_dtype(info, request._replace(out=None), target)
        if asked not in (None, request.out.dtype):
            raise LossyCastError(
                f"out= is {request.out.dtype}, and dtype= asks for {asked}.",
                hints.without("dtype"),
            )
        return request.out.dtype
    if request.dtype not in (None, *dtypes.KEYWORDS):
        if request.dtype not in caps.dtypes.held:
            raise _no_such_dtype(request.dtype, info.dtype, target, asked=True)
        return request.dtype
    kind = dtypes.find(info.dtype).kind
    if request.dtype == dtypes.DEFAULT and kind == "float":
        return caps.dtypes.default("float")
    if info.weak_dtype is not None and caps.memory.exists:
        return _number_dtype(info.weak_dtype, kind, target, request.dtype)
    if request.dtype is None:
        if info.dtype not in caps.dtypes.held and not _stays_as_it_is(info, request, target):
            raise _no_such_dtype(info.dtype, info.dtype, target, asked=False)
        return info.dtype
    if request.dtype == dtypes.FIT and _stays_as_it_is(info, request, target):
        return info.dtype
    held = (
        caps.dtypes.held
        - target.device_facts(kind_of(_unchecked_device(info, request, target))).absent
    )
    if request.dtype == dtypes.DEFAULT:
        dtype = _widest_held(info.dtype, held)
    else:
        dtype = dtypes.fitting_dtype(info.dtype, held)
    if dtype is None:
        raise _no_such_dtype(info.dtype, info.dtype, target, asked=False)
    return dtype


def _widest_held(name: str, held: frozenset[str]) -> str | None:
    """The dtype, if it is among `held`; otherwise the widest of its kind."""
    if name in held:
        return name
    kind = dtypes.find(name).kind
    kin = sorted(other for other in held if dtypes.find(other).kind == kind)
    return max(
        kin,
        key=lambda other: (dtypes.value_bits(other), dtypes.find(other).precision),
        default=None,
    )


def _stays_as_it_is(info: TensorInfo, request: Request, target: Declaration) -> bool:
    """Whether the source is returned, though its framework lacks its dtype (JAX without x64)."""
    own = (
        info.framework == target.name
        and not info.kind
        and info.dtype in target.capabilities.dtypes.absent_reasons
    )
    return own and request.copy is not True and request.device is None and not request.options


def _number_dtype(weak: str, kind: str, target: Declaration, asked: str | None) -> str:
    caps = target.capabilities
    candidates = caps.dtypes.numbers["int" if kind == "uint" else kind]
    if not candidates:
        raise _no_such_dtype(weak, weak, target, asked=False)
    if kind in ("float", "complex"):
        return candidates[0]
    for name in candidates:
        if dtypes.holds_exactly(weak, name):
            return name
    if asked is not None:  # each number is compared
        return (
            dtypes.fitting_dtype(weak, caps.dtypes.held) if asked == dtypes.FIT else None
        ) or candidates[-1]
    if weak in caps.dtypes.absent_reasons:
        remedy = caps.dtypes.absent_hint
    else:
        remedy = ""
    if weak in caps.dtypes.held:
        wide = Hint(hints.keyword("dtype", weak))
    else:
        wide = Hint(remedy)
    as_floats = Hint(hints.keyword("dtype", "float32"), ", which keeps each value or raises")
    raise LossyCastError(
        f"These Python integers need {weak}; {target.name} gives integers "
        f"{' or '.join(candidates)} here.",
        Hint(wide, ", or ", as_floats) if str(wide) else as_floats,
    )


def check_of(info: TensorInfo, request: Request, dtype: str) -> dtypes.Check:
    """Which check of the values the cast to `dtype` needs: see `casts.cast`.

    Raises:
        LossyCastError: ``casting=`` does not allow this cast.
    """
    if dtype == info.dtype:
        return ""
    own = request.dtype in (None, dtypes.FIT) and request.out is None and request.casting is None
    if info.weak_dtype is not None and own:
        if dtypes.holds_exactly(info.weak_dtype, dtype):
            return ""
        if dtypes.find(dtype).kind in ("float", "complex"):
            return "finite"
    return dtypes.casting_scale(info.dtype, dtype, request.casting).check


def reads_as_asked(
    info: TensorInfo, target: Declaration, dtype: str, device: str, check: str
) -> bool:
    """Whether Python numbers are read straight as the result's dtype, without a cast afterwards."""
    as_it_is = (
        dtype == info.dtype and target.capabilities.memory.alignment <= dtypes.find(dtype).itemsize
    )
    return not as_it_is and not widens_later(info, target, dtype, device, check)


def reads_in_one_go(request: Request, target: Declaration) -> bool:
    """Whether Python numbers become an array of their own dtype, whichever that is."""
    takes_all = (
        target.capabilities.dtypes.numbers is EXCHANGE_NUMBERS and target.capabilities.memory.exists
    )
    return takes_all and request.is_ordinary


def fills_lists(info: TensorInfo, target: Declaration) -> bool:
    """Whether Python numbers are read in chunks, and written into lists."""
    return is_many(info) and not target.capabilities.memory.exists and target.name == info.framework


def fills_out(info: TensorInfo, request: Request, target: Declaration) -> bool:
    """Whether Python numbers are read in chunks, and written into `out`."""
    out = request.out
    if out is None or not is_many(info) or not target.capabilities.memory.writes_parts:
        return False
    return out.device == HOST and not out.conjugate and not out.negative


def widens_later(
    info: TensorInfo, target: Declaration, dtype: str, device: str, check: str
) -> bool:
    """Whether the cast is on the device, after the transfer, so that fewer bytes cross the bus."""
    wider = dtypes.find(dtype).itemsize > dtypes.find(info.dtype).itemsize
    late = wider and device != HOST and not check and frameworks_agree(info.dtype, dtype)
    able = target.capabilities.dtypes.casts_on_device(info.dtype, dtype)
    return late and able and info.dtype in target.capabilities.dtypes.held


def cast_reason(info: TensorInfo, request: Request, target: Declaration) -> str:
    """The reason why the dtype changes."""
    if request.dtype == dtypes.FIT and request.out is None:
        return f"{target.name} has no {info.dtype} here"
    return "the dtype that was asked for"


def install_newer(framework: Declaration, release: str) -> str:
    """The command that installs a release of a framework, or a later one."""
    return f'pip install "{framework.name}>={release}"'


def why_on_host(info: TensorInfo, dtype: str) -> str:
    """Why a device's value is cast on the host, as the end of a reason; empty if none is needed."""
    if info.device == HOST or frameworks_agree(info.dtype, dtype):
        return ""
    twice = dtypes.is_misrounded(info.dtype, dtype) or (
        dtype == "float16" and not dtypes.holds_exactly(info.dtype, "float32")
    )
    if twice:
        return "; on the host, because devices may round it twice"
    return "; on the host, because devices differ"


def _no_such_dtype(name: str, source: str, target: Declaration, *, asked: bool) -> LossyCastError:
    caps = target.capabilities
    why, remedy = caps.dtypes.absent_reasons.get(name, ""), caps.dtypes.absent_hint
    release = caps.dtypes.release(name)
    if release:
        why, remedy = f" before {release}", install_newer(target, release)
    remedy = f", or {remedy}" if why and remedy else ""
    return _absent_dtype(
        f"{target.name} has no {name}{why}.", name, source, caps.dtypes.held, remedy, asked=asked
    )


def _absent_dtype(
    message: str, name: str, source: str, held: frozenset[str], remedy: str | Hint, *, asked: bool
) -> LossyCastError:
    """The error for a dtype that does not exist there. Its hint names another dtype."""
    fitting, remark = dtypes.fitting_dtype(name, held), ""
    if fitting is None:
        holders = sorted(
            (other for other in sorted(held) if dtypes.holds_exactly(name, other)),
            key=dtypes.value_bits,
        )
        instead = holders[0] if holders else "float32"
        if holders:
            remark = ""
        else:
            remark = ", which keeps each value or raises"
    else:
        instead = fitting if asked else dtypes.FIT
    error = LossyCastError(message, Hint(hints.DtypeOf(instead), remark, remedy))
    error.instead = source, instead
    return error


# -- which device -------------------------------------------------------------------------------


def target_device(info: TensorInfo, request: Request, target: Declaration, dtype: str) -> str:
    """The device of the result.

    Raises:
        DeviceError: The target cannot use the device, or this machine does not have it.
        LossyCastError: The device has no such dtype.
    """
    caps = target.capabilities
    present = request.present
    device = _unchecked_device(info, request, target)
    if (
        request.out is None
        and request.device is not None
        and not caps.devices.include(kind_of(device))
    ):
        kinds = ", ".join(caps.devices.kinds)
        hint = Hint(hints.keyword("device", meant_kind(device, caps.devices.kinds)))
        raise DeviceError(f"{target.name} does not support {device}, only {kinds}.", hint)
    named = request.device is not None and present is None
    if named:
        unknown = target.device_facts(kind_of(device)).meant
    else:
        unknown = ""
    if unknown:
        raise DeviceError(
            f"{target.name} has no kind of device {kind_of(device)} for values.",
            Hint(hints.keyword("device", unknown)),
        )
    asked = request.device is not None or caps.devices.kinds[0] != HOST
    if asked and present is not None and not _is_here(device, target, present):
        if present:
            seen = f"sees {', '.join(present)}"
        else:
            seen = "sees no device"
        firsts = {kind_of(name): name for name in reversed(present)}
        raise DeviceError(
            f"There is no {device} here: {target.name} {seen}.",
            Hint(hints.keyword("device", firsts[meant_kind(device, [*firsts])]))
            if firsts
            else None,
        )
    absent = target.device_facts(kind_of(device)).absent
    if dtype in absent:
        named = request.dtype is not None or request.out is not None
        message, held = f"{device} does not support {dtype}.", caps.dtypes.held - absent
        on_host = Hint(", or ", hints.keyword("device", HOST))
        raise _absent_dtype(message, dtype, info.dtype, held, on_host, asked=named)
    return device


def _unchecked_device(info: TensorInfo, request: Request, target: Declaration) -> str:
    """The device of the result, before it is checked."""
    if request.out is not None:
        return request.out.device
    if request.device is not None:
        return request.device
    if info.abstract is not None or _stays_on_device(info, target, request.present):
        return info.device
    return target.capabilities.devices.kinds[0]


def _stays_on_device(
    info: TensorInfo, target: Declaration, present: tuple[str, ...] | None
) -> bool:
    """Whether the result stays on the source's device when no device is named."""
    if target.name == info.framework:
        return True
    able = info.shards == 1 and target.capabilities.devices.include(kind_of(info.device))
    return able and (present is None or _is_here(info.device, target, present))


def _is_here(device: str, target: Declaration, present: tuple[str, ...]) -> bool:
    """Whether this machine has the device: the target lists it, or has as many of its kind."""
    kind, _, index = device.partition(":")
    if device in present or (not index and kind in map(kind_of, present)):
        return True
    return int(index or 0) < target.device_facts(kind).present


# -- share or copy ------------------------------------------------------------------------------


def sharing_rule(
    info: TensorInfo, target: Declaration, request: Request
) -> tuple[bool, str, list[str]]:
    """The sharing rule: whether memory may be shared, the reason, and warnings."""
    caps = target.capabilities
    if not caps.memory.exists:
        return False, f"{target.name} values have no memory to share", []
    if request.copy is True:
        return False, "copy=True asks for independent memory", []
    if not caps.memory.writable:
        if not info.mutable:
            return True, "neither side can write", []
        if request.copy is False:
            risk = f"a later write to the source shows in the {target.name} tensor, a constant"
            return True, "copy=False consents to share", [risk]
        return False, f"a later write to the source would change {an(target.name)} constant", []
    read_only = why_read_only(info, target)
    if read_only:
        return True, f"read-only: {read_only}", []
    if info.writable and not info.requires_grad:
        return True, "both sides know that writes show", []
    if info.requires_grad:
        # `copy=False` does not help: to share and to write, the user must detach the tensor first.
        return False, f"{target.name} has no read-only tensors: {READ_ONLY_REASON}", []
    if request.copy is False:
        risk = f"a write to the {target.name} tensor changes memory that the source does not permit to write"
        return True, "copy=False consents to share", [risk]
    return False, f"{target.name} has no read-only tensors: a write would change the source", []


def why_read_only(info: TensorInfo, target: Declaration) -> str:
    """The reason why the result is a read-only view; empty if it is not."""
    if not target.capabilities.memory.read_only:
        return ""
    if info.requires_grad:
        return READ_ONLY_REASON
    if not info.writable:
        return "the source does not permit writes"
    foreign = info.framework != target.name
    if foreign and info.overlaps_itself:
        return REPEATED_REASON
    return ""


def layout_obstacles(info: TensorInfo, target: Declaration) -> list[str]:
    """The reasons why the target cannot share host memory with this layout; empty if it can."""
    caps = target.capabilities
    reasons: list[str] = []
    if info.swapped:
        reasons.append("its bytes are in the other order")
    if info.size == 0:
        return reasons
    row = dtypes.find(info.dtype)
    if info.dtype in caps.dtypes.unshared:
        reasons.append(f"{target.name} stores {info.dtype} in another form")
    if caps.memory.by_columns and len(info.shape) > 1:
        reasons.append("each column has its own memory")
    if caps.memory.strides != "any":
        reasons += _stride_obstacles(info, row.itemsize)
    if (
        caps.memory.strides == "compact"
        and not reasons
        and not is_compact(info.shape, info.strides, row.itemsize)
    ):
        reasons.append(f"strides {info.strides} bytes of shape {info.shape} are not compact")
    alignment = caps.memory.alignment or row.alignment
    if info.misalignment % alignment:
        reasons.append(f"address % {alignment} == {info.misalignment % alignment}")
    return reasons


def _stride_obstacles(info: TensorInfo, itemsize: int) -> list[str]:
    reasons = []
    for axis, (length, stride) in enumerate(zip(info.shape, info.strides, strict=True)):
        if length > 1 and stride < 0:
            reasons.append(f"negative stride on axis {axis}")
        elif length > 1 and stride % itemsize:
            reasons.append(
                f"stride of {stride} bytes on axis {axis} is not a whole number of elements"
            )
    return reasons


# -- casts on devices ---------------------------------------------------------------------------

_ROUNDED_ALIKE = frozenset(
    {
        ("float64", "float32"),
        ("float32", "float16"),
        ("float32", "bfloat16"),
        ("complex128", "complex64"),
    }
)


def frameworks_agree(source: str, target: str) -> bool:
    """Whether all frameworks cast every value to one result, so that a device may make the cast.

    Measured on torch 2.13 and NumPy 2.4 with random bits. The casts that are not in the list
    (float64 to the 16-bit floats, every float8) differ in values; the others differ at most in the
    payload of a NaN.
    """
    if dtypes.holds_exactly(source, target) or (source, target) in _ROUNDED_ALIKE:
        return True
    return {dtypes.find(source).kind, dtypes.find(target).kind} <= {"int", "uint", "bool"}
