"""Find the target of a conversion: the framework in ``to=``, or that of the tensor in ``like=``.

And the labels of the result: those in ``index=`` and ``columns=``, and those of the tensor in
``like=``.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .. import hints
from ..backends import registry
from ..core.devices import host_index
from ..core.info import TensorInfo
from ..core.names import EXCHANGE
from ..core.request import LABEL_KEYWORDS, Request, refuse_index, refuse_option
from ..errors import ConversionError, UnsupportedTypeError, an
from ..hints import Hint
from .recipes import conversion_as, conversion_of
from .run import convert, described

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ..core.labels import Labels
    from .recipes import Conversion

    _Followed = tuple[tuple[str, str | None, str | None], Conversion]

__all__ = [
    "describe_like",
    "follow_like",
    "follow_quickly",
    "known_like",
    "labels_like",
    "name_like_device",
    "take_labels",
    "target_of",
]


def name_like_device(to: object, like: object, device: object) -> tuple[str, str | None, object]:
    """The canonical name of the target, the dtype of `like`, and the device.

    One of `to` and `like` must be given.

    Raises:
        TypeError: Neither or both are given, or `to` is neither a name nor a framework's module.
        UnknownFrameworkError: No framework has the name in `to`.
        UnsupportedTypeError: `like` is not a tensor, or it has no memory.
        DeviceError: `like` is on a CPU device other than the first.
    """
    if (to is None) == (like is None):
        raise TypeError('give one of to and like: to="numpy", or like= a tensor')
    if to is not None:
        if isinstance(to, str):
            name = registry.NAMES.get(to)
        else:
            name = None
        return name or registry.canonical(to), None, device
    name, theirs, place = follow_like(like)
    if device is None and place is None:
        refuse_index(like.device)  # type: ignore[attr-defined]
    return name, theirs, place if device is None else device


def follow_like(like: object) -> tuple[str, str | None, str | None]:
    """The framework, dtype and device of a tensor in ``like=``, or of its description.

    The dtype is ``None`` for Python numbers. The device is ``None`` for a CPU device other than the
    first.

    Raises:
        UnsupportedTypeError: `like` is not a tensor, it has no memory, or no result can be one.
    """
    if isinstance(like, TensorInfo):
        info = like
    else:
        info = describe_like(like)
    owner = registry.backend_named(info.framework)
    if isinstance(like, TensorInfo):
        unlike = None
    else:
        unlike = owner.unlike(like)
    if unlike is not None:
        raise UnsupportedTypeError(f"like= is {an(type(like).__name__)}, {unlike[0]}.", unlike[1])
    if not owner.is_target:
        what = str(info.kind) or (
            info.framework if isinstance(like, TensorInfo) else type(like).__name__
        )
        hint = Hint(hints.keyword("to", EXCHANGE), ", ", hints.without("like"))
        if not isinstance(like, TensorInfo):
            array = hints.keyword("like", hints.code("np.asarray(like)"))
            hint |= Hint(array, ", which gives its dtype")
        raise UnsupportedTypeError(
            f"like= is {an(what)}, which only gives its memory: no result can be one.",
            hint,
        )
    if info.abstract is not None:
        abstract = registry.backend_named(info.framework).capabilities.objects.abstract
        why = abstract.get(info.abstract, (f"it is {info.abstract}", None))[0]
        raise UnsupportedTypeError(
            f"This {info.framework} object says no dtype and no device to follow: {why}.",
            f'convert(x, "{info.framework}")',
        )
    device = getattr(like, "device", None)
    elsewhere = hasattr(device, "platform") and host_index(device)
    return (
        info.framework,
        None if info.weak_dtype is not None else info.dtype,
        None if elsewhere else info.device,
    )


def describe_like(like: object) -> TensorInfo:
    """The description of ``like=``; of a column that needs ``nulls=`` or ``pad=``, without shape.

    A column of text or dates, and a table whose columns have no dtype in common, have labels to
    follow, if their library has labels, and no dtype. Python numbers have none either.

    Raises:
        UnsupportedTypeError: `like` is not a tensor.
    """
    try:
        return _described_like(like)
    except ConversionError:
        owner = registry.BY_TYPE.get(type(like))
        if owner is None or not owner.capabilities.options.labels:
            raise
        return TensorInfo(owner.name, (), "float64", weak_dtype="float64")


def _described_like(like: object) -> TensorInfo:
    try:
        return described(like)
    except UnsupportedTypeError as error:
        from .column_keywords import filled_info

        with suppress(UnsupportedTypeError):
            info = filled_info(like)
            if info is not None:
                return info
        name = registry.NAMES.get(like) if isinstance(like, str) else None
        raise UnsupportedTypeError(
            f"like= has to be a tensor. {error.message}",
            Hint(hints.keyword("to", name or EXCHANGE), ", ", hints.without("like")),
        ) from error


def follow_quickly(like: object) -> tuple[str, str | None, str | None] | None:
    """What `follow_like` gives, if it is known of a tensor like this; ``None`` if it must be described.

    Raises:
        ConversionError: As for `follow_like`.
    """
    known = known_like(like)
    return None if known is None else known[0]


def known_like(like: object) -> _Followed | None:
    """What `follow_quickly` gives, and the conversion for it without other keywords.

    Raises:
        ConversionError: As for `follow_like`.
    """
    kind = type(like)
    read = _readers.get(kind) or _likeness_reader(kind)
    likeness = None if read is None else read(like)
    if likeness is None:
        return None
    followed = _followed.get((kind, likeness))
    if followed is None:
        name, dtype, device = follow_like(like)
        followed = (name, dtype, device), conversion_as(name, dtype, device=device)
        if len(_followed) >= _MOST:
            _followed.clear()
        _followed[kind, likeness] = followed
    return followed


def _likeness_reader(kind: type) -> Callable[[Any], Hashable | None] | None:
    """The `Quick.likeness` of a type of tensors; ``None`` if it was never met."""
    owner = registry.BY_TYPE.get(kind)
    if owner is None:
        return None
    return _readers.setdefault(kind, owner.quick.likeness)


_readers: dict[type, Callable[[Any], Hashable | None]] = {}
"""The functions that read `Quick.likeness`, by the type of the tensor."""
_followed: dict[Hashable, _Followed] = {}
"""What `known_like` gives for tensors, by their types and likeness."""
_MOST = 256
registry.on_change.extend((_readers.clear, _followed.clear))


def target_of(to: object, like: object) -> str:
    """The canonical name of the target, for a hint; NumPy's if `to` and `like` name no target."""
    try:
        return name_like_device(to, like, None)[0]
    except (TypeError, ConversionError):
        return EXCHANGE


def take_labels(name: str, keywords: dict[str, Any]) -> Labels | None:
    """Take ``index=`` and ``columns=`` out of the keywords of a call; ``None`` if neither is given.

    Args:
        name: The name of the target.
        keywords: The keywords of the call.

    Raises:
        TypeError: The target has no such keyword, or it has a value that it does not take.
        ShapeError: A name occurs twice.
        FrameworkNotInstalledError: The target's framework is not installed.
    """
    labels = {keyword: keywords.pop(keyword) for keyword in LABEL_KEYWORDS if keyword in keywords}
    for option in sorted(labels):
        refuse_option(registry.backend_named(name), option)
    if all(value is None for value in labels.values()):
        return None
    target: Any = registry.ready(name)
    return target.labels_given(labels.get("index"), labels.get("columns"), _to_array)  # type: ignore[no-any-return]


def _to_array(x: Any) -> Any:
    return convert(x, conversion_of(registry.ready(EXCHANGE), Request(EXCHANGE)))


def labels_like(name: str, like: object) -> Labels | None:
    """The labels of the tensor in ``like=``; ``None`` without any, or if of another library.

    Args:
        name: The name of the target.
        like: The tensor, or its description, which has no labels.
    """
    if isinstance(like, TensorInfo):
        owner = None
    else:
        owner = registry.BY_TYPE.get(type(like))
    if owner is None or owner.name != name:
        return None
    return owner.labels_of(like)
