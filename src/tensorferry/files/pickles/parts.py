"""Quantised and sparse tensors of PyTorch as dicts of the plain tensors that they are made of.

`names`, the first argument, is the vocabulary that met them, `tensorferry.files.pickles.torch.Names`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base.contents import Special
from .standins import OPAQUE, ArrayOf, OtherOf, StorageOf, TensorOf

__all__ = ["QUANTISED", "quantised", "sparse"]

QUANTISED = {"QInt8": "int8", "QUInt8": "uint8", "QInt32": "int32"}
"""The integers in storages of dtypes that torch only quantises with."""

_COMPRESSED = {
    "sparse_csr": ("crow_indices", "col_indices"),
    "sparse_bsr": ("crow_indices", "col_indices"),
    "sparse_csc": ("ccol_indices", "row_indices"),
    "sparse_bsc": ("ccol_indices", "row_indices"),
}
"""What torch calls the indices of each layout: https://docs.pytorch.org/docs/stable/sparse.html."""


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
    if OPAQUE in tensors:
        return OPAQUE
    lengths = size.value if type(size) is Special and size.kind == "size" else size
    whole = type(lengths) in (list, tuple) and all(type(each) is int and 0 <= each < 1 << 63 for each in lengths)
    views = [each.view for each in tensors if type(each) is TensorOf]
    if not whole or len(views) < len(tensors) or any(view.dtype not in ("int32", "int64") for view in views[:-1]):
        raise names.wrong("describes a sparse tensor without a size, indices or values")
    values = views[-1].shape
    if kind == "sparse_coo" and not (
        len(views[0].shape) == 2
        and views[0].shape[1:] == values[:1]
        and list(values[1:]) == list(lengths[views[0].shape[0] :])
        and views[0].shape[0] <= len(lengths)
    ):
        raise names.wrong("describes a sparse tensor whose indices, values and size do not fit each other")
    parts = dict(zip((*_COMPRESSED.get(str(kind), ("indices",)), "values"), tensors, strict=True))
    made = {"layout": kind, "size": _array([*lengths], "int64"), **parts}
    if rest and type(rest[0]) is bool:
        made["is_coalesced"] = rest[0]
    return made


def quantised(
    names: Any, storage: Any, offset: Any, size: Any, stride: Any, quantizer: Any, grad: Any = False, hooks: Any = ()
) -> Any:
    """``_rebuild_qtensor(…)``: the integers, their scale and zero point, or those of each index of an axis."""
    if storage is OPAQUE:
        return OPAQUE
    if type(storage) is not StorageOf or type(quantizer) is not tuple or len(quantizer) < 3:
        raise names.wrong("describes a quantised tensor without a storage or a scale")
    if storage.raw is None:
        return OtherOf("it is quantised to several numbers in a byte")
    scheme, scale, zero_point, *axes = quantizer
    raw = StorageOf(storage.key, storage.raw, storage.size, "storage")
    values = names.tensor_v2(raw, offset, size, stride, grad, hooks)
    if type(values) is not TensorOf:
        return values
    made: dict[str, Any] = {"scheme": scheme.value if type(scheme) is Special and scheme.kind == "qscheme" else None}
    made["dtype"] = f"q{storage.raw}"
    if not axes and made["scheme"] == "per_tensor_affine" and type(scale) is float and type(zero_point) is int:
        return {**made, "values": values, "scale": _array(scale, "float64"), "zero_point": _array(zero_point, "int64")}
    axis = axes[0] if len(axes) == 1 else None
    if not str(made["scheme"]).startswith("per_channel_affine") or type(axis) is not int or not 0 <= axis < len(size):
        raise names.wrong("describes a quantised tensor of no known scheme")
    floats = made["scheme"] == "per_channel_affine_float_qparams"
    scale = _of_list(scale, "float32" if floats else "float64")
    zero_point = _of_list(zero_point, "float32" if floats else "int64")
    if {_shape(scale), _shape(zero_point)} != {(size[axis],)}:
        raise names.wrong("describes a quantised tensor whose scales do not fit its axis")
    return {**made, "values": values, "scale": scale, "zero_point": zero_point, "axis": _array(axis, "int64")}


def _array(value: Any, dtype: str) -> ArrayOf:
    return ArrayOf("tensor", np.array(value, dtype))


def _of_list(found: Any, dtype: str) -> Any:
    """Numbers that files of before torch 1.2 have in a list."""
    plain = type(found) is list and all(type(each) in (int, float) and abs(each) < 1 << 62 for each in found)
    return _array(found, dtype) if plain else found


def _shape(found: Any) -> Any:
    if type(found) is ArrayOf and found.values is not None:
        return found.values.shape
    return found.view.shape if type(found) is TensorOf else None
