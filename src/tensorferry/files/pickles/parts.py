"""Quantised, sparse and nested tensors of PyTorch, as dicts of plain tensors.

The first argument, `names`, is the vocabulary, `tensorferry.files.pickles.torch.Names`.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...core.layout import is_compact
from ..base.contents import Special
from .standins import ArrayOf, OtherOf, StorageOf, TensorOf, refused_among

__all__ = ["QUANTISED", "jagged", "nested", "quantised", "sparse"]

QUANTISED = {
    "QInt8": "int8",
    "QUInt8": "uint8",
    "QInt32": "int32",
    "QUInt4x2": "uint4x2",
    "QUInt2x4": "uint2x4",
}
"""The integers in storages of PyTorch's quantised dtypes."""
_IN_A_BYTE = {"uint4x2": 2, "uint2x4": 4}
_PACKING = {
    2: "two in a byte, the first in the low bits",
    4: "four in a byte, the first in the low bits",
}

_COMPRESSED = {
    "sparse_csr": ("crow_indices", "col_indices"),
    "sparse_bsr": ("crow_indices", "col_indices"),
    "sparse_csc": ("ccol_indices", "row_indices"),
    "sparse_bsc": ("ccol_indices", "row_indices"),
}
"""PyTorch's names for the indices of each layout: https://docs.pytorch.org/docs/stable/sparse.html."""


def sparse(names: Any, layout: Any, data: Any) -> Any:
    """``_rebuild_sparse_tensor(layout, data)``: the indices, the values, the layout and the size."""
    kind = layout.value if type(layout) is Special and layout.kind == "layout" else None
    count = 2 if kind in _COMPRESSED else 1
    if (
        type(data) is not tuple
        or not (kind in _COMPRESSED or kind == "sparse_coo")
        or not 2 < len(data) - count + 1 < 5
    ):
        raise names.wrong("describes a sparse tensor of no known layout")
    tensors, size, rest = data[: count + 1], data[count + 1], data[count + 2 :]
    refused = refused_among(tensors)
    if refused is not None:
        return refused
    lengths = size.value if type(size) is Special and size.kind == "size" else size
    whole = type(lengths) in (list, tuple) and all(
        type(each) is int and 0 <= each < 1 << 63 for each in lengths
    )
    views = [each.view for each in tensors if type(each) is TensorOf]
    if (
        not whole
        or len(views) < len(tensors)
        or any(view.dtype not in ("int32", "int64") for view in views[:-1])
    ):
        raise names.wrong("describes a sparse tensor without a size, indices or values")
    values = views[-1].shape
    if kind == "sparse_coo" and not (
        len(views[0].shape) == 2
        and views[0].shape[1:] == values[:1]
        and list(values[1:]) == list(lengths[views[0].shape[0] :])
        and views[0].shape[0] <= len(lengths)
    ):
        raise names.wrong(
            "describes a sparse tensor whose indices, values and size do not fit each other"
        )
    parts = dict(zip((*_COMPRESSED.get(str(kind), ("indices",)), "values"), tensors, strict=True))
    made = {"layout": kind, "size": _array([*lengths], "int64"), **parts}
    if rest and type(rest[0]) is bool:
        made["is_coalesced"] = rest[0]
    return made


def quantised(
    names: Any,
    storage: Any,
    offset: Any,
    size: Any,
    stride: Any,
    quantizer: Any,
    grad: Any = False,
    hooks: Any = (),
) -> Any:
    """``_rebuild_qtensor(…)``: the integers, their scale and zero point, or those of each index of an axis."""
    if type(storage) is not StorageOf or type(quantizer) is not tuple or len(quantizer) < 3:
        raise names.wrong("describes a quantised tensor without a storage or a scale")
    raw, packed = storage.raw, _IN_A_BYTE.get(storage.raw or "")
    if raw is None:
        raise names.wrong("describes a quantised tensor in a storage of no quantised dtype")
    scheme, scale, zero_point, *axes = quantizer
    plain = StorageOf(storage.key, "uint8" if packed else raw, storage.size, "storage")
    if packed:
        if not _lengths(size) or not _lengths(stride) or len(size) != len(stride):
            raise names.wrong(
                "describes a quantised tensor whose sizes and strides do not fit each other"
            )
        if offset != 0 or not is_compact(size, stride, 1):
            return OtherOf(
                "it is a part of a tensor that is quantised to several numbers in a byte"
            )
        values = names.tensor_v2(plain, 0, (-(-prod(size) // packed),), (1,), grad, hooks)
    else:
        values = names.tensor_v2(plain, offset, size, stride, grad, hooks)
    if type(values) is not TensorOf:
        return values
    made: dict[str, Any] = {
        "scheme": scheme.value if type(scheme) is Special and scheme.kind == "qscheme" else None
    }
    made["dtype"] = f"q{raw}"
    if packed:
        made |= {"packing": _PACKING[packed], "size": _array([*size], "int64")}
    if (
        not axes
        and made["scheme"] == "per_tensor_affine"
        and type(scale) is float
        and type(zero_point) is int
    ):
        return {
            **made,
            "values": values,
            "scale": _array(scale, "float64"),
            "zero_point": _array(zero_point, "int64"),
        }
    axis = axes[0] if len(axes) == 1 else None
    if (
        not str(made["scheme"]).startswith("per_channel_affine")
        or type(axis) is not int
        or not 0 <= axis < len(size)
    ):
        raise names.wrong("describes a quantised tensor of no known scheme")
    floats = made["scheme"] == "per_channel_affine_float_qparams"
    scale = _of_list(scale, "float32" if floats else "float64")
    zero_point = _of_list(zero_point, "float32" if floats else "int64")
    if {_shape(scale), _shape(zero_point)} != {(size[axis],)}:
        raise names.wrong("describes a quantised tensor whose scales do not fit its axis")
    return {
        **made,
        "values": values,
        "scale": scale,
        "zero_point": zero_point,
        "axis": _array(axis, "int64"),
    }


def nested(names: Any, buffer: Any, sizes: Any, strides: Any, offsets: Any) -> Any:
    """``_rebuild_nested_tensor(…)``: one buffer, and how each tensor views it."""
    offsets = _of_list(offsets, "int64")
    if (
        type(buffer) is not TensorOf
        or len(buffer.view.shape) != 1
        or len(_shape(sizes) or ()) not in (1, 2)
        or _shape(strides) != _shape(sizes)
        or _shape(offsets) != _shape(sizes)[:1]
    ):
        raise names.wrong(
            "describes a nested tensor whose sizes, strides and offsets do not fit each other"
        )
    return {
        "layout": "nested",
        "sizes": sizes,
        "strides": strides,
        "offsets": offsets,
        "values": buffer,
    }


def jagged(names: Any, made_of: Any) -> Any:
    """``_rebuild_njt(…)``: the values of all, and where along one axis each begins."""
    if type(made_of) is not dict:
        raise names.wrong("describes a nested tensor without values")
    values, offsets, lengths = (made_of.get(part) for part in ("values", "offsets", "lengths"))
    refused = refused_among((values, offsets, lengths))
    if refused is not None:
        return refused
    axis, grad = made_of.get("_ragged_idx", 1), made_of.get("requires_grad", False)
    if (
        type(values) is not TensorOf
        or len(_shape(offsets) or ()) != 1
        or (lengths is not None and len(_shape(lengths) or ()) != 1)
        or type(axis) is not int
        or not 0 < axis <= len(values.view.shape)
        or type(grad) is not bool
    ):
        raise names.wrong(
            "describes a nested tensor whose values, offsets and axis do not fit each other"
        )
    made = {"layout": "jagged", "offsets": offsets, "jagged_dim": _array(axis, "int64")}
    if lengths is not None:
        made["lengths"] = lengths
    return {**made, "values": values.but(requires_grad=grad)}


def _lengths(found: Any) -> bool:
    return type(found) is tuple and all(type(each) is int and 0 <= each < 1 << 63 for each in found)


def _array(value: Any, dtype: str) -> ArrayOf:
    return ArrayOf("tensor", np.array(value, dtype))


def _of_list(found: Any, dtype: str) -> Any:
    """Numbers in a list, as in files before PyTorch 1.2."""
    plain = type(found) is list and all(
        type(each) in (int, float) and abs(each) < 1 << 62 for each in found
    )
    return _array(found, dtype) if plain else found


def _shape(found: Any) -> Any:
    if type(found) is ArrayOf and found.values is not None:
        return found.values.shape
    return found.view.shape if type(found) is TensorOf else None
