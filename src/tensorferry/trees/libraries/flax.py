"""Flax: a ``flax.nnx`` module that is not a pytree is refused, with the hint to convert its state.

A module that is a pytree is opened by its registration with JAX.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import hints
from ...errors import an
from ...hints import Hint

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...backends.nodes import Node

__all__ = ["opener_of", "refusal"]


def opener_of(_kind: type) -> Callable[[Any], Node] | None:
    """``None``, because JAX knows the containers of Flax."""
    return None


def refusal(kind: type) -> tuple[str, Hint] | None:
    """Why a module of ``flax.nnx`` is refused, and the hint; ``None`` for other types."""
    if not any(
        base.__module__.startswith("flax.nnx.") and base.__name__ == "Module"
        for base in kind.__mro__
    ):
        return None
    return (
        f"{an(kind.__name__, 'A')} is a module of flax.nnx: it holds tensors, but is not one.",
        Hint(hints.tree("nnx.to_pure_dict(nnx.state(x))")),
    )
