"""A table for tensors in memory: the tree that it makes."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..core.devices import HOST
from ..core.info import TensorInfo
from ..core.names import EXCHANGE
from ..errors import ConversionError, UnsupportedTypeError
from ..execution.run import described
from ..trees.api import convert_tree
from ..trees.failures import raise_all
from ..trees.leaves import leaf_rule
from ..trees.walk import take_apart
from .applying import made_array
from .lowering import Header

if TYPE_CHECKING:
    from ..typing import Array
    from .lowering import Lowered
    from .moves import Move

__all__ = ["applied", "framework_in", "headers_of_tensors", "named_tensors", "weights_in"]


def named_tensors(
    tree: Any, what: str = "tree", *, unknown: str = "error", warns: bool = False
) -> dict[str, Any]:
    """The tensors of a tree, by their dotted names.

    Args:
        tree: The tree.
        what: What it is called, for errors.
        unknown: As for `convert_tree`.
        warns: Whether a warning names what is no tensor.

    Raises:
        UnsupportedTypeError: There are none, or two have the same name; or an object holds tensors
            and is no container.
    """
    rule = leaf_rule("tensors", infos=True, unknown=unknown)
    leaves, structure = take_apart(tree, rule.chosen)
    rule.check(structure, leaves)
    named: dict[str, Any] = {}
    left: list[str] = []
    errors: dict[int, ConversionError] = {}
    for index, (name, leaf) in enumerate(zip(structure.names(), leaves, strict=True)):
        try:
            is_tensor = isinstance(leaf, TensorInfo) or rule.takes(leaf)
        except ConversionError as error:
            errors[index] = error
            continue
        if not is_tensor:
            left.append(name)
            continue
        if name in named:
            raise UnsupportedTypeError(f"{what} has two tensors of the name {name}.")
        named[name] = leaf
    raise_all(errors, structure.path, name=structure.name)
    if not named:
        raise UnsupportedTypeError(f"{what} has no tensors.")
    if left and warns:
        more = f", and {len(left) - 20} more" if len(left) > 20 else ""
        warnings.warn(
            f"What is not a tensor was left out: {', '.join(left[:20])}{more}.", stacklevel=4
        )
    return named


def headers_of_tensors(tensors: dict[str, Any]) -> dict[str, Header]:
    """The shapes and dtypes of tensors."""
    infos = {
        name: leaf if isinstance(leaf, TensorInfo) else described(leaf)
        for name, leaf in tensors.items()
    }
    return {name: Header(tuple(info.shape), info.dtype) for name, info in infos.items()}


def applied(
    lowered: Lowered, tensors: dict[str, Any], to: str | None, device: object, copy: bool | None
) -> dict[str, Any]:
    """The tensors that a table makes of others, by name.

    Args:
        lowered: The table for these tensors.
        tensors: The tensors, by name.
        to: The framework of the result; ``None``: that of the first tensor that each is made
            of, or of the first of all.
        device: As for `convert_tree`.
        copy: As for `convert_tree`.

    Raises:
        ConversionError: As for `convert_tree`; or tensors that have to be the same are not.
    """
    sources = _Sources(tensors, lowered)
    results: dict[str, Any] = {}
    groups: dict[tuple[str, object], dict[str, Any]] = {}
    for name, made in lowered.tensors.items():
        first = made.sources[0] if made.sources else next(iter(tensors))
        is_as_it_is = made.is_renamed and _shape_of(tensors[made.sources[0]]) == made.header.shape
        value = tensors[made.sources[0]] if is_as_it_is else made_array(made, sources.elements)
        sources.release(made.sources)
        if to is None and is_as_it_is and device is None and not copy:
            results[name] = value
            continue
        target, place = to or EXCHANGE, device
        if to is None:
            info = described(tensors[first])
            target = info.framework
            place = info.device if device is None and not is_as_it_is else device
        groups.setdefault((target, place), {})[name] = value
    for (target, place), some in groups.items():
        results |= convert_tree(some, target, copy=copy, device=None if place == HOST else place)
    return {name: results[name] for name in lowered.tensors}


class _InMemory(NamedTuple):
    """A tensor in memory, as `inferring` reads it."""

    dtype: str
    shape: tuple[int, ...]
    values: Array

    def array(self) -> Array:
        """All of it."""
        return self.values

    def release(self) -> None:
        """Nothing: it is in memory."""


def weights_in(tree: Any, what: str) -> dict[str, _InMemory]:
    """The tensors of a tree, by their dotted names, as arrays of the host.

    Raises:
        UnsupportedTypeError: There are none.
    """
    tensors = named_tensors(tree, what)
    arrays = convert_tree(tensors, EXCHANGE)
    return {
        name: _InMemory(described(array).dtype, array.shape, array)
        for name, array in arrays.items()
    }


def framework_in(tree: Any) -> str:
    """The framework of the first tensor of a tree."""
    first = next(iter(named_tensors(tree).values()))
    return described(first).framework


def _shape_of(x: Any) -> tuple[int, ...]:
    """The shape of a tensor."""
    return tuple(described(x).shape)


class _Sources:
    """The tensors of a tree as arrays, each as long as it is needed."""

    def __init__(self, tensors: dict[str, Any], lowered: Lowered) -> None:
        self._tensors = tensors
        self._uses = Counter(name for made in lowered.tensors.values() for name in made.sources)
        self._arrays: dict[str, Array] = {}

    def elements(self, move: Move) -> list[tuple[Move, Array]]:
        """What a move reads: the move out of all of a tensor, as an array of one axis."""
        name = str(move.source)
        flat = self._arrays.get(name)
        if flat is None:
            array = convert_tree({name: self._tensors[name]}, EXCHANGE)[name]
            flat = self._arrays[name] = np.ascontiguousarray(array).reshape(-1)
        return [(move, flat)]

    def release(self, names: tuple[str, ...]) -> None:
        """Say that these were used once."""
        for name in names:
            self._uses[name] -= 1
            if not self._uses[name]:
                self._arrays.pop(name, None)
