"""What makes a conversion impossible: checked before any step is planned."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from .. import hints
from ..core.devices import HOST, kind_of, same_place
from ..core.dtypes import DTYPES, find, fitting_dtype
from ..core.layout import AXES
from ..core.request import LEAVE, PINNED
from ..errors import (
    CopyRequiredError,
    DeviceError,
    GradientError,
    ShapeError,
    UnsupportedTypeError,
    an,
)
from ..hints import Hint
from .rules import install_newer

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ..core.capabilities import Devices
    from ..core.declaration import Declaration
    from ..core.info import TensorInfo
    from ..core.request import Request
    from .step import Step

__all__ = [
    "refuse_abstract",
    "refuse_axes",
    "refuse_cast",
    "refuse_change",
    "refuse_move",
    "refuse_out",
    "refuse_place",
]


def refuse_abstract(
    info: TensorInfo, request: Request, source: Declaration, target: Declaration
) -> None:
    """Raise for an object without memory, unless it stays in its own framework and does not change.

    Raises:
        UnsupportedTypeError: It has no memory; the message says why, and what to do.
    """
    if info.abstract is None:
        return
    why, hint = source.capabilities.objects.abstract.get(
        info.abstract, (f"it is {info.abstract}", None)
    )
    objects = source.capabilities.objects
    is_copied = request.grad != LEAVE or info.abstract in objects.opaque
    if source is target and info.abstract in objects.inside_only and is_copied:
        for option in request.options:
            if option in target.capabilities.options.finishers or option == PINNED:
                raise UnsupportedTypeError(
                    f"{option}=True needs values, and this {source.name} object has none: {why}.",
                    hints.without(option),
                )
        return
    raise UnsupportedTypeError(f"This {source.name} object has no values to convert: {why}.", hint)


def refuse_change(info: TensorInfo, steps: Sequence[Step], source: Declaration) -> None:
    """Raise for an object that can only be returned as it is, if there is something to do.

    Raises:
        UnsupportedTypeError: There is; the message says why that is impossible.
    """
    objects = source.capabilities.objects
    if steps and info.abstract in objects.only_returned:
        why, hint = objects.abstract[info.abstract or ""]
        raise UnsupportedTypeError(
            f"This {source.name} object can only be returned as it is: {why}.", hint
        )


def refuse_cast(info: TensorInfo, dtype: str, source: Declaration) -> None:
    """Raise for values that only their framework reads, if they would have another dtype.

    Raises:
        UnsupportedTypeError: They would; the message says what they are.
    """
    objects = source.capabilities.objects
    if dtype != info.dtype and info.abstract in objects.opaque:
        why, hint = objects.abstract[info.abstract or ""]
        raise UnsupportedTypeError(f"This {source.name} object has no {dtype} values: {why}.", hint)


def refuse_axes(info: TensorInfo, source: Declaration, exchange: Declaration) -> None:
    """Raise for a tensor with more or fewer axes than the framework allows.

    Raises:
        ShapeError: It has too many or too few axes.
    """
    most, fewest = exchange.capabilities.memory.axes, exchange.capabilities.memory.fewest_axes
    if len(info.shape) < fewest:
        raise ShapeError(
            f"What {exchange.name} holds has at least {fewest} axis, and this tensor has "
            f"{len(info.shape)}.",
            Hint(hints.Lone("to_numpy(x).reshape(1)")),
        )
    if len(info.shape) > most:
        longer = tuple(length for length in info.shape if length != 1)
        leaves_out = "which leaves out the axes of length 1"
        shape = longer if len(longer) <= most else (-1,)
        is_table = len(info.shape) <= AXES
        if is_table and len(longer) > most:
            # The first axes stay: they are the rows.
            kept = int(most) - 1
            shape, leaves_out = (
                (*info.shape[:kept], prod(info.shape[kept:])),
                "which joins the last axes",
            )
        # Not every source can be reshaped, but what has too many axes even for an array has no
        # other form.
        if is_table:
            hint = Hint(hints.code(f"to_numpy(x).reshape({shape})"), f", {leaves_out}")
        elif info.kind.joined_by:
            raise ShapeError(
                f"{an(exchange.name, 'A')} array has at most {most} axes, and this tensor has "
                f"{len(info.shape)}.",
                Hint(hints.tree(), ", which converts each"),
            )
        else:
            function = source.capabilities.memory.reshape
            code = f"{function}(x, {shape})" if function else f"x.reshape({shape})"
            hint = Hint(hints.code(code))
            if len(longer) <= most:
                hint += f", {leaves_out}"
        raise ShapeError(
            f"{an(exchange.name, 'A')} array has at most {most} axes, and this tensor has "
            f"{len(info.shape)}.",
            hint,
        )


def refuse_move(info: TensorInfo, source: Declaration, device: str) -> None:
    """Raise for an object without memory that would go to another device.

    Raises:
        UnsupportedTypeError: It has no memory, and is not a tracer.
    """
    if info.abstract not in (None, "traced") and not same_place(info.device, device):
        why, hint = source.capabilities.objects.abstract[info.abstract or ""]
        raise UnsupportedTypeError(f"This {source.name} object cannot go to {device}: {why}.", hint)


def refuse_place(info: TensorInfo, source: Declaration) -> None:
    """Raise for a description of a tensor that cannot exist in its framework, or nowhere.

    Raises:
        DeviceError: The framework has no such device.
        UnsupportedTypeError: The framework does not have the dtype, gradients, lazy bits, the other
            byte order, or several devices for one tensor; or two things are said of the tensor that
            cannot both be true.
    """
    caps = source.capabilities
    known = caps.devices.kinds
    if (
        caps.dtypes.held
        and info.dtype not in caps.dtypes.held
        and info.dtype not in caps.dtypes.absent_reasons
    ):
        raise _no_such_dtype(info.dtype, source)
    if info.requires_grad and not caps.gradients.graph:
        raise UnsupportedTypeError(
            f"{source.name} tensors are in no autograd graph.",
            Hint(hints.described(requires_grad=False)),
        )
    if (info.conjugate or info.negative) and not caps.memory.lazy_bits:
        raise UnsupportedTypeError(
            f"{source.name} has no lazy bits.",
            Hint(hints.described(conjugate=False, negative=False)),
        )
    if info.swapped and not caps.memory.host_array:
        raise UnsupportedTypeError(
            f"{source.name} has the machine's byte order only.",
            Hint(hints.described(swapped=False)),
        )
    if info.shards > 1 and not caps.devices.shards:
        raise UnsupportedTypeError(
            f"{source.name} tensors lie on one device each.", Hint(hints.described(shards=1))
        )
    _refuse_contradiction(info, caps.devices)
    if info.abstract is None and not caps.devices.include(kind_of(info.device)):
        raise DeviceError(
            f"{source.name} does not support {info.device}, only {', '.join(known)}.",
            Hint(hints.described(device=known[0])),
        )
    if info.abstract is None and info.dtype in source.device_facts(kind_of(info.device)).absent:
        raise UnsupportedTypeError(
            f"{source.name} has no {info.dtype} on {info.device}.",
            Hint(hints.described(device="cpu")),
        )


def _most_like_held(dtype: str, held: Collection[str]) -> str:
    """The dtype of a framework that is most like another one."""
    return fitting_dtype(dtype, held) or next(name for name in DTYPES if name in held)


def _no_such_dtype(name: str, source: Declaration) -> UnsupportedTypeError:
    release = source.capabilities.dtypes.release(name)
    if release:
        return UnsupportedTypeError(
            f"{source.name} has no {name} before {release}.", install_newer(source, release)
        )
    return UnsupportedTypeError(
        f"{source.name} has no {name}.",
        Hint(hints.described(dtype=_most_like_held(name, source.capabilities.dtypes.held))),
    )


def _refuse_contradiction(info: TensorInfo, devices: Devices) -> None:
    """Raise for two things that cannot both be true of one tensor.

    Raises:
        UnsupportedTypeError: They are said of it.
    """
    kind = find(info.dtype).kind
    if info.requires_grad and kind not in ("float", "complex"):
        raise UnsupportedTypeError(
            f"{info.dtype} has no gradients: only floats and complex numbers require grad.",
            Hint(
                hints.described(requires_grad=False),
                ", or ",
                Hint(hints.described(dtype="float32")),
            ),
        )
    if info.conjugate and kind != "complex":
        raise UnsupportedTypeError(
            f"A conjugate bit is for complex numbers, and {info.dtype} is not.",
            Hint(
                hints.described(conjugate=False), ", or ", Hint(hints.described(dtype="complex64"))
            ),
        )
    if kind_of(info.device) == HOST:
        return
    if devices.include(HOST):
        elsewhere = Hint(", or ", Hint(hints.described(device=HOST)))
    else:
        elsewhere = Hint()
    if info.memory_map:
        raise UnsupportedTypeError(
            f"A mapped file is in host memory, and this tensor is on {info.device}.",
            Hint(hints.described(memory_map=False), elsewhere),
        )
    if info.pinned and not devices.offloads:
        raise UnsupportedTypeError(
            f"Page-locked memory is in host memory, and this tensor is on {info.device}.",
            Hint(hints.described(pinned=False), elsewhere),
        )


def refuse_out(info: TensorInfo, request: Request, target: Declaration) -> None:
    """Raise for an ``out`` that cannot be written to, or has another shape.

    Raises:
        UnsupportedTypeError: It cannot be written to, or an option needs memory of another kind.
        DeviceError: ``device=`` is not its device.
        GradientError: It requires grad: a write would bypass autograd.
        ShapeError: Its shape is not the source's.
        CopyRequiredError: ``copy=False`` is given as well.
    """
    out = request.out
    if out is None:
        return
    if out.abstract is not None:
        why = target.capabilities.objects.abstract.get(
            out.abstract, (f"it is {out.abstract}", None)
        )[0]
        raise UnsupportedTypeError(f"out= cannot be written: {why}.", hints.without("out"))
    _refuse_immutable(out, target)
    if target.capabilities.objects.reads(out.kind):
        raise UnsupportedTypeError(
            f"out= cannot be written: {an(str(out.kind))} has no memory of its own.",
            hints.without("out"),
        )
    if out.overlaps_itself:
        raise UnsupportedTypeError(
            "out= cannot be written: several of its elements lie in one place (broadcast, or "
            "windows overlap).",
            hints.without("out"),
        )
    if out.requires_grad:
        raise GradientError(
            "out= requires grad: writing into it would bypass autograd.",
            Hint(hints.keyword("out", hints.code("out.detach()"))),
        )
    if out.shape != info.shape:
        raise ShapeError(
            f"out= has shape {out.shape}, the source has {info.shape}.",
            Hint(hints.keyword("out", hints.code(f"out.reshape({info.shape})")))
            if out.size == info.size and out.is_compact
            else hints.without("out"),
        )
    if request.device is not None and not same_place(out.device, request.device):
        raise DeviceError(
            f"out= is on {out.device}, and device= asks for {request.device}.",
            hints.without("device"),
        )
    for option in request.options:
        if option in target.capabilities.options.finishers or (option == PINNED and not out.pinned):
            raise UnsupportedTypeError(
                f"out= is written into where it lies, and {option}=True asks for other memory.",
                hints.without(option) | hints.without("out"),
            )
    if request.copy is False:
        raise CopyRequiredError(
            "out= is written into, which is a copy; copy=False asks for none.",
            hints.without("copy") | hints.without("out"),
        )


def _refuse_immutable(out: TensorInfo, target: Declaration) -> None:
    """Raise for an ``out`` that nobody can write to."""
    memory = target.capabilities.memory
    is_assignable = out.kind.name in target.capabilities.objects.value_kinds
    if out.writable is None:
        is_writable = is_assignable or memory.writable
    else:
        is_writable = is_assignable or out.writable
    if not memory.out or not is_writable:
        if not memory.writable:
            what = f"{target.name} tensors are immutable"
        elif memory.out:
            what = "this one is read-only"
        else:
            what = f"{target.name} results are not memory to write to"
        raise UnsupportedTypeError(f"out= cannot be written: {what}.", hints.without("out"))
