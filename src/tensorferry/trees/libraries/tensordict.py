"""TensorDicts and tensorclasses.

They keep their type if their tensors stay in PyTorch; otherwise they become a dict.

Their other values (text, objects) are leaves too.
"""

from __future__ import annotations

import sys
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any

from ...backends import registry
from ...backends.nodes import Entries, Node, attribute, item
from . import is_a, same_framework

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["opener_of"]

_PLAIN = ("TensorDict", "_SubTensorDict", "PersistentTensorDict", "TensorDictParams")
_SIZE, _AXES = attrgetter("batch_size"), attrgetter("_td_dim_names")
"""Of a plain TensorDict. `names` makes a list at each call; without it they are read one by one."""
_OTHERS = _PLAIN[1:]
"""Types rebuilt as plain TensorDicts: their memory is another object's, a file's or a module's."""


def opener_of(kind: type) -> Callable[[Any], Node] | None:
    """The function that opens TensorDicts and tensorclasses; ``None`` for other types."""
    if getattr(kind, "_is_non_tensor", False):
        return _open_object
    if getattr(kind, "_is_tensorclass", False):
        return _open_class
    if is_a(kind, "tensordict", "LazyStackedTensorDict"):
        return _open_stack
    return _open if is_a(kind, "tensordict", *_PLAIN) else None


def _is_other(kind: type) -> bool:
    return kind is not _library().TensorDict and is_a(kind, "tensordict", *_OTHERS)


def _library() -> Any:
    return sys.modules["tensordict"]


def _open(x: Any) -> Node:
    kind, plain = type(x), _library().TensorDict
    held: dict[str, Any] = dict(x.items())
    objects = {
        key: value.data
        for key, value in held.items()
        if not (registry.is_known_tensor(type(value)) or type(value) is plain) and _is_object(value)
    }
    held |= objects
    size, axes = x.batch_size, _names_of(x)

    def made(values: Sequence[Any], count: int | None) -> Any:
        filled = dict(zip(held, values, strict=True))
        if not all(map(_stays, held.values(), values)):
            stay = (_stays(old, filled[key]) for key, old in held.items() if key not in objects)
            if not all(stay):
                return {key: _as_dict(value) for key, value in filled.items()}
        if _is_other(kind) and all(map(is_, held.values(), values)):
            return x
        return _filled(x, filled, objects, size, axes, count)

    return Node(
        Entries(list(held), item),
        list(held.values()),
        lambda values: made(values, None),
        {".batch_size": tuple(size), ".names": axes},
        stack=made,
        held=None if objects or kind is not plain else _held_alike,
    )


def _names_of(x: Any) -> tuple[str | None, ...]:
    """The names of the axes of a TensorDict, whose `names` would ask several times for each."""
    if type(x) is _library().TensorDict and _AXES(x) is None:
        return (None,) * len(x.batch_size)
    return tuple(x.names)


def _held_alike(samples: Sequence[Any]) -> list[dict[str, Any]] | None:
    """What TensorDicts hold; ``None`` if their batch sizes or the names of their axes differ."""
    for facts in (list(map(_SIZE, samples)), list(map(_AXES, samples))):
        if facts.count(facts[0]) < len(samples):
            return None
    return [dict(sample.items()) for sample in samples]


def _open_class(x: Any) -> Node:
    held, rest = vars(x)["_tensordict"], dict(vars(x)["_non_tensordict"])
    inside = _open(held)

    def made(values: Sequence[Any], count: int | None) -> Any:
        if count is None or inside.stack is None:
            found = inside.rebuild(values)
        else:
            found = inside.stack(values, count)
        if isinstance(found, dict):
            return found | rest
        return type(x).from_tensordict(found, dict(rest))

    return Node(
        [attribute(name) for name in held.keys()],  # noqa: SIM118 - to iterate over one goes along its batch
        inside.values,
        lambda values: made(values, None),
        {**inside.static, **{attribute(name): value for name, value in rest.items()}},
        stack=made,
    )


def _open_stack(x: Any) -> Node:
    """A lazily stacked TensorDict; it becomes a list of dicts if it cannot stay one."""
    held = list(x.tensordicts)

    def made(values: Sequence[Any], dim: int) -> Any:
        if not all(_library().is_tensor_collection(value) for value in values):
            return [_as_dict(value) for value in values]
        result = type(x)(*values, stack_dim=dim)
        return result.lock_() if x.is_locked else result

    return Node(
        [item(index) for index in range(len(held))],
        held,
        lambda values: made(values, x.stack_dim),
        {".stack_dim": x.stack_dim},
        stack=lambda values, _: made(values, x.stack_dim + 1),
    )


def _open_object(x: Any) -> Node:
    """The library's wrapper around an object that is not a tensor."""
    made = {".data": x.tolist(), ".batch_size": tuple(x.batch_size)}
    return Node(
        (), (), lambda _: x, made, stack=lambda _, count: _library().NonTensorStack(*[x] * count)
    )


def _is_object(value: Any) -> bool:
    return _library().is_non_tensor(value) and not hasattr(value, "tensordicts")


def _stays(before: Any, after: Any) -> bool:
    """Whether a tensor is still of the same framework, or a TensorDict still a TensorDict."""
    if type(before) is type(after):
        return True
    if type(after) is dict or registry.is_known_tensor(type(before)):
        return type(after) is not dict and same_framework(before, after)
    library = _library()
    if library.is_tensor_collection(before):
        return bool(library.is_tensor_collection(after))
    return same_framework(before, after)


def _as_dict(value: Any) -> Any:
    """A TensorDict without tensors as a dict, if it is inside a dict."""
    if type(value) is dict or registry.is_known_tensor(type(value)):
        return value  # as most are
    library = _library()
    if library.is_non_tensor(value):
        return value.tolist()
    if library.is_tensor_collection(value):
        return value.to_dict()
    return value


def _filled(
    x: Any,
    found: dict[str, Any],
    objects: dict[str, Any],
    size: Any,
    axes: tuple[str | None, ...],
    count: int | None,
) -> Any:
    """A TensorDict with these values, with the device and the lock of `x`.

    Args:
        x: The TensorDict.
        found: The values.
        objects: Those of `x` that are no tensors, by their keys.
        size: The batch size of `x`.
        axes: The names of the axes of `x`.
        count: The number of samples in a batch; ``None`` if it is none.
    """
    library = _library()
    kind = library.TensorDict if _is_other(type(x)) else type(x)
    names: list[Any] | None = None
    if axes.count(None) < len(axes):
        names = [*([] if count is None else [None]), *axes]
    device = None if x.device is None else _device_of(found.values())
    whole = size if count is None else [count, *size]
    plain = {key: found[key] for key in found if key not in objects} if objects else found
    result = kind(plain, batch_size=whole, names=names, device=device)
    for key in objects:
        value = found[key]
        if count is not None and isinstance(value, list) and len(value) == count:
            single_values = [library.NonTensorData(one, batch_size=size) for one in value]
            result.set(key, library.NonTensorStack(*single_values))
        else:
            result.set_non_tensor(key, value)
    return result.lock_() if x.is_locked else result


def _device_of(values: Iterable[Any]) -> Any:
    """The device of all tensors; ``None`` if they lie on several.

    `auto_device_` warns in older releases.
    """
    library, devices = _library(), set[Any]()
    for value in values:
        if library.is_tensor_collection(value):
            inside = value.values(True, True)
        else:
            inside = (value,)
        devices.update(getattr(inner, "device", None) for inner in inside)
    devices.discard(None)
    return devices.pop() if len(devices) == 1 else None
