"""A table for tensors in memory: the tree that it makes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..core.devices import HOST
from ..core.info import TensorInfo
from ..core.names import EXCHANGE
from ..errors import UnsupportedTypeError
from ..execution.run import described
from ..trees.api import convert_tree
from ..trees.leaves import leaf_rule
from ..trees.walk import take_apart
from .applying import made_array
from .lowering import Header

if TYPE_CHECKING:
    from ..typing import Array
    from .lowering import Lowered

__all__ = ["applied", "framework_in", "named_tensors", "tree_headers", "weights_in"]


def named_tensors(tree: Any, what: str = "tree") -> dict[str, Any]:
    """The tensors of a tree, by their dotted names.

    Raises:
        UnsupportedTypeError: There are none, or two have the same name.
    """
    rule = leaf_rule("tensors", infos=True, unknown="keep")
    leaves, structure = take_apart(tree, rule.chosen)
    found: dict[str, Any] = {}
    for name, leaf in zip(structure.names(), leaves, strict=True):
        if not (isinstance(leaf, TensorInfo) or rule.takes(leaf)):
            continue
        if name in found:
            raise UnsupportedTypeError(f"{what} has two tensors of the name {name}.")
        found[name] = leaf
    if not found:
        raise UnsupportedTypeError(f"{what} has no tensors.")
    return found


def tree_headers(tree: Any, what: str) -> dict[str, Header]:
    """The shapes and dtypes of the tensors of a tree, by their dotted names.

    Raises:
        UnsupportedTypeError: There are none.
    """
    infos = {
        name: leaf if isinstance(leaf, TensorInfo) else described(leaf)
        for name, leaf in named_tensors(tree, what).items()
    }
    return {name: Header(tuple(info.shape), info.dtype) for name, info in infos.items()}


def applied(
    lowered: Lowered, tree: Any, to: str | None, device: object, copy: bool | None
) -> dict[str, Any]:
    """The tensors that a table makes of a tree, by name.

    Args:
        lowered: The table for the tree.
        tree: The tree.
        to: The framework of the result; ``None``: that of the first tensor that each is made
            of, or of the first of the tree.
        device: As for `convert_tree`.
        copy: As for `convert_tree`.

    Raises:
        ConversionError: As for `convert_tree`; or tensors that have to be the same are not.
    """
    tensors = named_tensors(tree)
    sources = _Sources(tensors, lowered)
    found: dict[str, Any] = {}
    groups: dict[tuple[str, object], dict[str, Any]] = {}
    for name, made in lowered.tensors.items():
        first = made.sources[0] if made.sources else next(iter(tensors))
        is_as_it_is = (
            made.is_renamed and lowered_shape(tensors[made.sources[0]]) == made.header.shape
        )
        value = tensors[made.sources[0]] if is_as_it_is else made_array(made, sources.elements)
        sources.release(made.sources)
        if to is None and is_as_it_is and device is None and not copy:
            found[name] = value
            continue
        target, place = to or EXCHANGE, device
        if to is None:
            info = described(tensors[first])
            target = info.framework
            place = info.device if device is None and not is_as_it_is else device
        groups.setdefault((target, place), {})[name] = value
    for (target, place), some in groups.items():
        found |= convert_tree(some, target, copy=copy, device=None if place == HOST else place)
    return {name: found[name] for name in lowered.tensors}


class _InMemory(NamedTuple):
    """A tensor in memory, as `inferring` reads it."""

    dtype: str
    shape: tuple[int, ...]
    values: Array

    def array(self) -> Array:
        """All of it."""
        return self.values


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


def lowered_shape(x: Any) -> tuple[int, ...]:
    """The shape of a tensor."""
    return tuple(described(x).shape)


class _Sources:
    """The tensors of a tree as arrays, each as long as it is needed."""

    def __init__(self, tensors: dict[str, Any], lowered: Lowered) -> None:
        self._tensors = tensors
        self._uses = Counter(name for made in lowered.tensors.values() for name in made.sources)
        self._arrays: dict[str, Array] = {}

    def elements(self, name: str, first: int, last: int) -> Array:
        """Elements of a tensor, as an array of one axis."""
        found = self._arrays.get(name)
        if found is None:
            array = convert_tree(self._tensors[name], EXCHANGE)
            found = self._arrays[name] = np.ascontiguousarray(array).reshape(-1)
        return found[first:last]

    def release(self, names: tuple[str, ...]) -> None:
        """Say that these were used once."""
        for name in names:
            self._uses[name] -= 1
            if not self._uses[name]:
                self._arrays.pop(name, None)
