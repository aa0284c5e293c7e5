"""Where a conversion goes: to the framework that is named, or to what the tensor in ``like=`` or ``out=`` is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..backends import registry
from ..core.devices import host_index
from ..core.info import TensorInfo
from ..core.names import EXCHANGE
from ..core.request import refuse_index
from ..errors import ConversionError, UnsupportedTypeError, an
from .recipes import conversion_as

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ..core.request import Request
    from .recipes import Conversion

__all__ = ["aim", "conversion_like", "follow", "target_of", "writing_into"]


def aim(to: object, like: object, dtype: object, device: object) -> tuple[str, Any, object]:
    """The target's canonical name, dtype and device from `to` or `like`, of which there must be one.

    Raises:
        TypeError: There is none, or there are both, or `to` is nothing that could name one.
        UnknownFrameworkError: `to` is a name, and no framework's.
        UnsupportedTypeError: `like` is no tensor, or one without memory.
        DeviceError: `like` is on another device of the host than its first.
    """
    if (to is None) == (like is None):
        raise TypeError('give one of to and like: to="numpy", or like= a tensor')
    if to is not None:
        name = registry.NAMES.get(to) if isinstance(to, str) else None
        return name or registry.canonical(to), dtype, device
    name, theirs, place = follow(like)
    if device is None and place is None:
        refuse_index(like.device)  # type: ignore[attr-defined]
    return name, theirs if dtype is None else dtype, place if device is None else device


def follow(like: object) -> tuple[str, str | None, str | None]:
    """The framework, dtype and device of a tensor in ``like=``, or of a description of one.

    Numbers say no dtype, and what lies on another device of the host than its first says no device.

    Raises:
        UnsupportedTypeError: It is no tensor, or one without memory.
    """
    info = like if isinstance(like, TensorInfo) else _describe(like, "like")
    if info.abstract is not None:
        abstract = registry.backend_named(info.framework).capabilities.objects.abstract
        why = abstract.get(info.abstract, (f"it is {info.abstract}", None))[0]
        raise UnsupportedTypeError(
            f"This {info.framework} object says no dtype and no device to follow: {why}.",
            f'convert(x, "{info.framework}")',
        )
    device = getattr(like, "device", None)
    elsewhere = hasattr(device, "platform") and host_index(device)
    return info.framework, None if info.weak_dtype is not None else info.dtype, None if elsewhere else info.device


def conversion_like(like: object) -> Conversion | None:
    """The conversion to what a tensor is, with nothing else asked; ``None``: it has to be described first.

    Raises:
        ConversionError: As for `follow`.
    """
    kind = type(like)
    owner = registry.BY_TYPE.get(kind)
    likeness = None if owner is None else owner.likeness(like)
    if likeness is None:
        return None
    found = _conversions.get((kind, likeness))
    if found is None:
        name, dtype, device = follow(like)
        found = conversion_as(name, dtype=dtype, device=device)
        if len(_conversions) >= _MOST:
            _conversions.clear()
        _conversions[kind, likeness] = found
    return found


_conversions: dict[Hashable, Conversion] = {}
"""The conversions to tensors in ``like=``, by their types and likeness."""
_MOST = 256
registry.on_change.append(_conversions.clear)


def target_of(to: object, like: object) -> str:
    """The canonical name of the target, to name it in a hint; NumPy's if what was asked for names none."""
    try:
        return aim(to, like, None, None)[0]
    except (TypeError, ConversionError):
        return EXCHANGE


def writing_into(request: Request, out: object) -> Request:
    """The same request with a tensor that the result is written into.

    Raises:
        UnsupportedTypeError: `out` is no tensor, or one of another framework than the target.
    """
    info = out if isinstance(out, TensorInfo) else _describe(out, "out")
    if info.framework != request.target:
        raise UnsupportedTypeError(
            f"out= is {an(info.framework)} tensor, the target is {request.target}.",
            f"out= {an(request.target)} tensor",
        )
    return request._replace(out=info)


def _describe(x: object, keyword: str) -> TensorInfo:
    try:
        return registry.backend_of(x).preview(x)[1]
    except UnsupportedTypeError as error:
        name = registry.NAMES.get(x) if isinstance(x, str) and keyword == "like" else None
        hint = f"{keyword}= a tensor" if name is None else f'to="{name}"'
        raise UnsupportedTypeError(f"{keyword}= has to be a tensor. {error.message}", hint) from error
