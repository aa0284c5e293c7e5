"""Arrow's extension types whose values are tensors, or booleans of a byte each.

(https://arrow.apache.org/docs/format/CanonicalExtensions.html)
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UnsupportedTypeError
from .column import Column, Ragged, Refused
from .pieces import Piece

if TYPE_CHECKING:
    from .column import Found

__all__ = ["tensors", "tensors_of_any_shape", "truths"]


def truths(found: Found) -> Found:
    """Bytes as booleans: all except 0 are true."""
    if not isinstance(found, Column):
        return found
    pieces = [
        Piece(piece.rows, piece.values != 0, piece.missing)
        for piece in found.pieces
        if isinstance(piece.values, np.ndarray)
    ]
    return Column("bool", found.inner, pieces, reasons=("booleans of a byte that may have any value",))


def tensors(said: dict[str, Any], found: Found, inner: tuple[int, ...]) -> Found:
    """A column of tensors of one shape.

    Raises:
        UnsupportedTypeError: The shape does not fit the number of elements.
    """
    if not isinstance(found, Column):
        return found
    shape = tuple(said["shape"])
    if prod(shape) != prod(found.inner[len(inner) :]):
        raise UnsupportedTypeError("The shape of these tensors is not that of their elements.", None)
    order = said.get("permutation")
    before = len(inner)
    found = _reshaped(found, (*inner, *shape))
    if order is not None:
        found.order = (*range(before), *(before + axis for axis in order))
    return found


def _reshaped(found: Column, inner: tuple[int, ...]) -> Column:
    pieces = [
        piece._replace(values=piece.values.reshape(piece.rows, *inner))
        if isinstance(piece.values, np.ndarray)
        else piece
        for piece in found.pieces
    ]
    return Column(found.dtype, inner, pieces, unit=found.unit, reasons=found.reasons)


def tensors_of_any_shape(said: dict[str, Any], data: Found, shape: Found) -> Found:
    """A column of tensors with different shapes.

    Raises:
        UnsupportedTypeError: A shape does not fit the number of elements.
    """
    if said.get("permutation"):
        return Refused("has tensors whose axes are permuted", "{x}.storage")
    if not isinstance(shape, Column) or not isinstance(data, (Column, Ragged)):
        return data if isinstance(data, Refused) else Refused("has tensors without shapes", "{x}.storage")
    sizes = shape.whatever()
    counts = np.full(data.rows, prod(data.inner)) if isinstance(data, Column) else data.lengths
    if (sizes.prod(1) != counts).any() or (sizes < 0).any():
        raise UnsupportedTypeError("The shapes of these tensors are not those of their elements.", None)
    if len(sizes) and (sizes != sizes[0]).any():
        elements = data.elements if isinstance(data, Ragged) else None
        if elements is None and isinstance(data, Column):
            flat = [
                Piece(piece.rows * prod(data.inner), piece.values.reshape(-1), ())
                for piece in data.pieces
                if isinstance(piece.values, np.ndarray) and not piece.missing
            ]
            if len(flat) != len(data.pieces):
                return Refused("has tensors of unequal shapes with nulls, or of bits", "{x}.storage")
            elements = Column(data.dtype, (), flat)
        assert elements is not None  # noqa: S101 - for the type checker
        return Ragged(elements, counts, sizes)
    if not isinstance(data, Column):
        return data
    return _reshaped(data, tuple(map(int, sizes[0])) if len(sizes) else (0,) * shape.inner[0])
