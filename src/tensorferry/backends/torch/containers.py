"""PyTorch's own containers: parameter dicts and lists, and packed sequences."""

from __future__ import annotations

import copy
import sys
from typing import TYPE_CHECKING, Any

from ..nodes import Node, attribute, item

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["opener_of"]


def opener_of(kind: type) -> Callable[[Any], Node] | None:
    """The function that opens one of PyTorch's own containers; ``None`` for other types."""
    nn: Any = sys.modules["torch"].nn
    if issubclass(kind, nn.ParameterDict):
        return _open_parameter_dict
    if issubclass(kind, nn.ParameterList):
        return _open_parameter_list
    return _open_packed if issubclass(kind, nn.utils.rnn.PackedSequence) else None


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
    """Whether all parameters are still parameters. To wrap a plain tensor as one would cut it off its graph."""
    nn: Any = sys.modules["torch"].nn
    registers = (nn.Parameter, nn.Module)
    return all(
        isinstance(new, registers) or not isinstance(old, registers) for old, new in zip(before, after, strict=True)
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
    hint = "torch.nn.utils.rnn.unpack_sequence(x) in its place"

    def rebuild(values: Sequence[Any]) -> Any:
        # Not with its constructor, which checks the device of the lengths.
        return tuple.__new__(type(x), values)

    return Node([attribute(name) for name in x._fields], held, rebuild, no_batch=(why, hint))
