"""Arrow's extension types whose values are tensors, or booleans of a byte each.

(https://arrow.apache.org/docs/format/CanonicalExtensions.html)
"""

from __future__ import annotations

import json
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UnsupportedTypeError
from .code import STORAGE
from .column import Column, Ragged, Refused
from .pieces import Piece

if TYPE_CHECKING:
    from .column import Found

__all__ = ["LISTED", "listed_tensors", "nested", "tensors", "tensors_of_any_shape", "truths"]


def truths(found: Found) -> Found:
    """Bytes as booleans: all except 0 are true."""
    if not isinstance(found, Column):
        return found
    pieces = [
        Piece(piece.rows, piece.values != 0, piece.missing)
        for piece in found.pieces
        if isinstance(piece.values, np.ndarray)
    ]
    return Column(
        "bool", found.inner, pieces, reasons=("booleans of a byte that may have any value",)
    )


def tensors(metadata: bytes, found: Found, inner: tuple[int, ...]) -> Found:
    """A column of tensors of one shape.

    Raises:
        UnsupportedTypeError: The shape does not fit the number of elements, or there is none.
    """
    said = _said_in(metadata)
    shape = _lengths_in(said.get("shape"))
    order = (
        None
        if shape is None or said.get("permutation") is None
        else _lengths_in(said["permutation"]) or ()
    )
    if shape is None or (order is not None and sorted(order) != [*range(len(shape))]):
        raise UnsupportedTypeError(_WITHOUT_SHAPE, None)
    if not isinstance(found, Column):
        return found
    if prod(shape) != prod(found.inner[len(inner) :]):
        raise UnsupportedTypeError(
            "The shape of these tensors is not that of their elements.", None
        )
    before = len(inner)
    found = _reshaped(found, (*inner, *shape))
    if order is not None:
        found.order = (*range(before), *(before + axis for axis in order))
    return found


LISTED = frozenset({"ray.data.arrow_tensor", "ray.data.arrow_tensor_v2"})
"""Types of tensors of one shape, whose storage are lists of their elements, and whose metadata are the shape in JSON.

(https://github.com/ray-project/ray/blob/master/python/ray/data/_internal/tensor_extensions/arrow.py)
"""


def listed_tensors(metadata: bytes, found: Found) -> Found | None:
    """A column of tensors of a type in `LISTED`; ``None`` if its metadata are no JSON, or its rows do not fit them."""
    try:
        shape = _lengths_in(json.loads(metadata))
    except ValueError:  # pickled by an old version
        return None
    if shape is None or isinstance(found, Ragged):
        return None
    if not isinstance(found, Column):
        return found
    if found.rows and (len(found.inner) != 1 or prod(shape) != found.inner[0]):
        return None
    return _reshaped(found, shape)


def nested(metadata: bytes, found: Found) -> Found:
    """A column without rows of nested lists, with the lengths that the metadata of datasets' `Array3D` and others say.

    (https://github.com/huggingface/datasets/blob/main/src/datasets/features/features.py)
    """
    if not isinstance(found, Column):
        return found
    try:
        said = json.loads(metadata)
    except ValueError:
        return found
    shape = (
        _lengths_in([each or 0 for each in said[0]])
        if type(said) is list and said and type(said[0]) is list
        else None
    )
    return (
        _reshaped(found, shape) if shape is not None and len(shape) == len(found.inner) else found
    )


_WITHOUT_SHAPE = "The metadata of these tensors does not say what their shape is."


def _said_in(metadata: bytes) -> dict[str, Any]:
    """What an extension type says in JSON."""
    try:
        said = json.loads(metadata or b"{}")
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise UnsupportedTypeError(_WITHOUT_SHAPE, None)
    return said


def _lengths_in(x: object) -> tuple[int, ...] | None:
    """A list from JSON, as lengths; ``None`` if it is not a list of integers from 0 on."""
    return (
        tuple(x)
        if isinstance(x, list) and all(type(each) is int and each >= 0 for each in x)
        else None
    )


def _reshaped(found: Column, inner: tuple[int, ...]) -> Column:
    pieces = [
        piece._replace(values=piece.values.reshape(piece.rows, *inner))
        if isinstance(piece.values, np.ndarray)
        else piece
        for piece in found.pieces
    ]
    return Column(found.dtype, inner, pieces, unit=found.unit, reasons=found.reasons)


def tensors_of_any_shape(metadata: bytes, data: Found, shape: Found) -> Found:
    """A column of tensors with different shapes.

    Raises:
        UnsupportedTypeError: A shape does not fit the number of elements.
    """
    if _said_in(metadata).get("permutation"):
        return Refused("has tensors whose axes are permuted", STORAGE)
    if isinstance(data, Refused):
        return data
    if not isinstance(shape, Column) or len(shape.inner) != 1 or shape.dtype != "int32":
        return Refused("has tensors without shapes", STORAGE)
    if shape.nulls[0]:
        return Refused(f"has a null in the shape of a tensor, at row {shape.nulls[1]}", STORAGE)
    sizes = shape.whatever()
    counts = np.full(data.rows, prod(data.inner)) if isinstance(data, Column) else data.lengths
    if (sizes.prod(1) != counts).any() or (sizes < 0).any():
        raise UnsupportedTypeError(
            "The shapes of these tensors are not those of their elements.", None
        )
    if len(sizes) and (sizes != sizes[0]).any():
        elements = data.elements if isinstance(data, Ragged) else None
        if elements is None and isinstance(data, Column):
            flat = [
                Piece(piece.rows * prod(data.inner), piece.values.reshape(-1), ())
                for piece in data.pieces
                if isinstance(piece.values, np.ndarray) and not piece.missing
            ]
            if len(flat) != len(data.pieces):
                return Refused("has tensors of unequal shapes with nulls, or of bits", STORAGE)
            elements = Column(data.dtype, (), flat)
        assert elements is not None  # noqa: S101 - for the type checker
        return Ragged(elements, counts, sizes)
    if not isinstance(data, Column):
        return data
    return _reshaped(data, tuple(map(int, sizes[0])) if len(sizes) else (0,) * shape.inner[0])
