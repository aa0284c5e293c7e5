"""PyTorch's own containers and plain values, and the containers that others register with it.

Registered with `torch.utils._pytree` are model outputs, caches and tensordicts:
`register_pytree_node` is what torch.export asks libraries to call for their classes.
(https://docs.pytorch.org/docs/stable/export.html)
"""

from __future__ import annotations

import copy
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from ... import hints
from ...hints import Hint
from ..nodes import Entries, Node, attribute, entry_of, item

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["is_registered", "open_registered", "opener_of", "plain_value", "value_of"]


# -- its own: parameter dicts and lists, packed sequences ------------------------------------------


def opener_of(kind: type) -> Callable[[Any], Node] | None:
    """The function that opens one of PyTorch's own containers; ``None`` for other types."""
    nn: Any = sys.modules["torch"].nn
    if issubclass(kind, nn.ParameterDict):
        return _open_parameter_dict
    if issubclass(kind, nn.ParameterList):
        return _open_parameter_list
    if issubclass(kind, nn.utils.rnn.PackedSequence):
        return _open_packed
    return None


def _open_parameter_dict(x: Any) -> Node:
    keys = list(x.keys())
    held = [x[key] for key in keys]

    def rebuild(values: Sequence[Any]) -> Any:
        if not _are_parameters(held, values):
            return dict(zip(keys, values, strict=True))
        result = _like(x)
        for key, value in zip(keys, values, strict=True):
            result[key] = value
        return result

    return Node([item(key) for key in keys], held, rebuild)


def _open_parameter_list(x: Any) -> Node:
    held = list(x)

    def rebuild(values: Sequence[Any]) -> Any:
        if not _are_parameters(held, values):
            return list(values)
        result = _like(x)
        for index, value in enumerate(values):
            result[index] = value
        return result

    return Node([item(index) for index in range(len(held))], held, rebuild)


def _are_parameters(before: Sequence[Any], after: Sequence[Any]) -> bool:
    """Whether all parameters are still parameters.

    To wrap a plain tensor as one would cut it off its graph.
    """
    nn: Any = sys.modules["torch"].nn
    registers = (nn.Parameter, nn.Module)
    return all(
        isinstance(new, registers) or not isinstance(old, registers)
        for old, new in zip(before, after, strict=True)
    )


def _like(x: Any) -> Any:
    """A copy of the module, with its own dicts."""
    result = copy.copy(x)
    for name, value in vars(x).items():
        if isinstance(value, dict):
            result.__dict__[name] = value.copy()
    return result


def _open_packed(x: Any) -> Node:
    held = list(tuple.__iter__(x))
    why = "A PackedSequence holds its sequences step by step, all in one: stacked ones are none."
    hint = Hint(hints.code("torch.nn.utils.rnn.unpack_sequence(x)"), " in its place")

    def rebuild(values: Sequence[Any]) -> Any:
        # Not with its constructor, which checks the device of the lengths.
        return tuple.__new__(type(x), values)

    return Node([attribute(name) for name in x._fields], held, rebuild, no_batch=(why, hint))


# -- registered ones -------------------------------------------------------------------------------


def _pytree() -> Any:
    """The module of the registry, if it has been imported. Before that, nothing is registered."""
    return sys.modules.get("torch.utils._pytree")


def is_registered(kind: type) -> bool:
    """Whether a type is registered as a container.

    `torch.Size` does not count, because it would become a tuple.
    """
    pytree = _pytree()
    return (
        pytree is not None
        and kind in pytree.SUPPORTED_NODES
        and kind is not sys.modules["torch"].Size
    )


def open_registered(x: Any) -> Node | None:
    """Open a registered container; ``None`` if its type is registered no longer."""
    pytree = _pytree()
    how = pytree.SUPPORTED_NODES.get(type(x))
    if how is None:
        return None
    values, context = how.flatten_fn(x)
    values = list(values)
    entries: Sequence[str] = Entries(range(len(values)), item)
    if how.flatten_with_keys_fn is not None:  # a registration may lack the names of the values
        keys = [key for key, _ in how.flatten_with_keys_fn(x)[0]]
        if len(keys) == len(values):
            entries = Entries(keys, partial(entry_of, of_attributes=pytree.GetAttrKey))

    def rebuild(others: Sequence[Any]) -> Any:
        return how.unflatten_fn(list(others), context)

    return Node(entries, values, rebuild, registered=(context, len(values)))


# -- no tensors, and yet plain values: dtypes, devices, layouts, sizes -----------------------------


def plain_value(x: Any) -> tuple[str, str | list[int]] | None:
    """The kind and the value of an object; ``None`` if it is none of these."""
    torch: Any = sys.modules["torch"]
    if isinstance(x, torch.Size):
        return "size", list(x)
    if isinstance(x, torch.device):
        return "device", str(x)
    name = str(x).removeprefix("torch.")
    if isinstance(x, torch.dtype):
        return "dtype", name
    if isinstance(x, torch.layout):
        return "layout", name
    return None


def value_of(kind: str, value: object) -> Any:
    """The object with this kind and value; ``None`` if this version of PyTorch has none."""
    torch: Any = sys.modules["torch"]
    if kind == "size" and isinstance(value, list) and all(type(length) is int for length in value):
        return torch.Size(value)
    if not isinstance(value, str):
        return None
    if kind == "device":
        try:
            return torch.device(value)
        except (RuntimeError, ValueError):
            return None
    # Not with `getattr`, by which a name in a file could import a module of PyTorch.
    constant = vars(torch).get(value)
    if kind in ("dtype", "layout") and isinstance(constant, getattr(torch, kind)):
        return constant
    return None
