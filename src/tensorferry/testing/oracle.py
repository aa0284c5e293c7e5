"""The memory contract, written a second time: what must be the result of a conversion.

The planner and its rules are not used here, only what the backends declare.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..errors import (
    ConversionError,
    CopyRequiredError,
    LossyCastError,
    ShapeError,
    UnsupportedTypeError,
)
from .bits import FORMATS

if TYPE_CHECKING:
    from ..core.capabilities import Capabilities
    from .memory import Place
    from .witness import Sample

__all__ = ["Verdict", "number_dtype", "verdict"]


class Verdict(NamedTuple):
    """What a conversion must do.

    Args:
        error: The exact class of the error that it must raise, or ``None``.
        shares: Whether the result must share the source's memory; ``None`` without elements.
        writable: Whether the result must be writable; ``None`` if the contract does not say.
        hazard: Whether the plan must have a warning: because the caller allowed something
            dangerous, or because of something that cannot be seen.
        identical: Whether the result must be the same object.

    .. versionadded:: 0.1
    """

    error: type[ConversionError] | None = None
    shares: bool | None = False
    writable: bool | None = None
    hazard: bool = False
    identical: bool = False


def verdict(
    sample: Sample,
    place: Place | None,
    source: Capabilities,
    target: Capabilities,
    *,
    same: bool,
    copy: bool | None,
) -> Verdict:
    """What the contract demands of a conversion that does not change the dtype.

    Args:
        sample: The tensor.
        place: Its address, shape and strides; ``None`` if it has no memory.
        source: The capabilities of its backend.
        target: The capabilities of the target's backend.
        same: Whether source and target are the same framework.
        copy: The keyword ``copy=``.

    .. versionadded:: 0.1
    """
    if sample.dtype not in source.dtypes.held:
        return Verdict(UnsupportedTypeError)
    if not target.memory.fewest_axes <= len(sample.shape) <= target.memory.axes:
        return Verdict(ShapeError)
    if sample.dtype not in target.dtypes.held:
        return Verdict(LossyCastError)
    if sample.numbers and number_dtype(sample.numbers, target) is None:
        return Verdict(LossyCastError)
    if not target.memory.exists:
        return Verdict(CopyRequiredError) if copy is False else Verdict()
    newly_allocated = Verdict(
        shares=None if sample.empty else False, writable=target.memory.writable
    )
    if same and sample.owns and not sample.swapped:
        if copy is True:
            # The plan warns about gradients only for dtypes that can have one.
            differentiable = FORMATS[sample.dtype].kind in ("float", "complex")
            return newly_allocated._replace(hazard=bool(source.gradients.tape) and differentiable)
        shares = None if sample.empty else True
        return Verdict(None, shares, sample.writable, hazard=sample.file, identical=sample.plain)
    if sample.empty:
        return newly_allocated._replace(writable=target.memory.writable if copy else None)
    possible = _memory_usable(sample, place, source, target)
    if copy is False:
        # `copy=False` does not allow writes to a tensor that requires grad; its user has to call
        # `detach`.
        refused = sample.requires_grad and target.memory.writable and not target.memory.read_only
        return (
            _must_share(sample, place, target)
            if possible and not refused
            else Verdict(CopyRequiredError)
        )
    if copy is None and possible and _sharing_permitted(sample, target):
        return _must_share(sample, place, target)
    return newly_allocated


def number_dtype(kind: str, target: Capabilities) -> str | None:
    """The dtype that Python numbers of a kind get; ``None`` if they are refused.

    Floats get the first that the target declares, as its constructor rounds them. Integers get the
    first that has all of them exactly. Small ones count as int32, so that a dtype does not depend
    on how small they are.
    """
    candidates = target.dtypes.numbers[kind]
    if kind == "int":
        candidates = tuple(name for name in candidates if _has_int32(name))
    return next(iter(candidates), None)


def _has_int32(name: str) -> bool:
    """Whether a dtype has every int32 exactly."""
    row = FORMATS[name]
    if row.kind in ("float", "complex"):
        return row.mantissa + 1 >= 32
    return row.kind == "int" and row.bits >= 32


def _sharing_permitted(sample: Sample, target: Capabilities) -> bool:
    """Whether memory is shared with ``copy=None``: neither side can break the other's promise."""
    if not target.memory.writable:
        return not sample.mutable
    return target.memory.read_only or (sample.writable and not sample.requires_grad)


def _must_share(sample: Sample, place: Place | None, target: Capabilities) -> Verdict:
    written = sample.writable and not sample.requires_grad
    if not target.memory.writable:
        return Verdict(None, True, False, hazard=sample.mutable)
    if target.memory.read_only:
        return Verdict(None, True, written and not _has_repeats(place), hazard=sample.file)
    return Verdict(None, True, True, hazard=sample.file or not written)


def _has_repeats(place: Place | None) -> bool:
    """Whether several elements share memory, so that one write would change all of them."""
    return place is not None and any(
        length > 1 and not step for length, step in zip(place.shape, place.strides, strict=True)
    )


def _memory_usable(
    sample: Sample, place: Place | None, source: Capabilities, target: Capabilities
) -> bool:
    """Whether the target can use this memory at all."""
    if not sample.owns or sample.lazy or sample.swapped or place is None:
        return False
    if sample.dtype in source.dtypes.unshared | target.dtypes.unshared:
        return False
    if target.memory.by_columns and len(sample.shape) > 1:
        return False
    steps = [
        (length, step)
        for length, step in zip(place.shape, place.strides, strict=True)
        if length > 1
    ]
    if target.memory.strides == "non-negative" and any(
        step < 0 or step % place.itemsize for _, step in steps
    ):
        return False
    if target.memory.strides == "compact":
        expected = place.itemsize
        for length, step in reversed(steps):
            if step != expected:
                return False
            expected *= length
    return place.address % (target.memory.alignment or FORMATS[sample.dtype].part) == 0
