"""What the names of PyTorch in a pickle mean: tensors of every kind, their storages and classes."""

from __future__ import annotations

from itertools import islice
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ...core.dtypes import DTYPES
from ...core.layout import is_compact
from ...errors import UnsafeFileError
from ...hints import Hint
from ...host.numpy_dtypes import of_numpy
from ..base.contents import NotTensor, Special
from ..base.objects import Kept, escaped
from .machine import Global, Ordered
from .standins import (
    ArrayOf,
    DTypeOf,
    InstanceOf,
    KeptOf,
    OtherOf,
    RefusedOf,
    StorageOf,
    TensorOf,
    TensorStandIn,
    ViewOf,
    refused_among,
    title,
)
from .table import NUMPY_CALLS, ODD, PYTHON_CALLS, TABLE_CALLS, VALUES, NumPyWords, set_uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "ODD_DTYPES",
    "QUANTISED",
    "STORAGES",
    "Names",
    "jagged",
    "nested",
    "quantised",
    "sparse",
]

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
"""PyTorch's names for each layout's indices: https://docs.pytorch.org/docs/stable/sparse.html."""


def sparse(names: Any, layout: Any, data: Any) -> Any:
    """``_rebuild_sparse_tensor(layout, data)``: indices, values, layout and size."""
    if type(layout) is Special and layout.kind == "layout":
        kind = layout.value
    else:
        kind = None
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
    if type(size) is Special and size.kind == "size":
        lengths = size.value
    else:
        lengths = size
    whole = type(lengths) in (list, tuple) and all(
        type(length) is int and 0 <= length < 1 << 63 for length in lengths
    )
    views = [tensor.view for tensor in tensors if type(tensor) is TensorOf]
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
    """``_rebuild_qtensor(…)``: integers, their scale and zero point, or those along an axis."""
    if type(storage) is not StorageOf or type(quantizer) is not tuple or len(quantizer) < 3:
        raise names.wrong("describes a quantised tensor without a storage or a scale")
    raw = storage.raw
    if raw is None:
        raise names.wrong("describes a quantised tensor in a storage of no quantised dtype")
    packed = _IN_A_BYTE.get(raw)
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
    made: dict[str, Any] = {"scheme": None, "dtype": f"q{raw}"}
    if type(scheme) is Special and scheme.kind == "qscheme":
        made["scheme"] = scheme.value
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


def _lengths(value: Any) -> bool:
    return type(value) is tuple and all(
        type(length) is int and 0 <= length < 1 << 63 for length in value
    )


def _array(value: Any, dtype: str) -> ArrayOf:
    return ArrayOf("tensor", np.array(value, dtype))


def _of_list(value: Any, dtype: str) -> Any:
    """Numbers in a list, as in files before PyTorch 1.2."""
    plain = type(value) is list and all(
        type(number) in (int, float) and abs(number) < 1 << 62 for number in value
    )
    return _array(value, dtype) if plain else value


def _shape(value: Any) -> Any:
    if type(value) is ArrayOf and value.values is not None:
        return value.values.shape
    if type(value) is TensorOf:
        return value.view.shape
    return None


STORAGES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
    "Untyped": "uint8",
    "QInt8": None,
    "QUInt8": None,
    "QInt32": None,
    "QUInt4x2": None,
    "QUInt2x4": None,
}
"""The classes in https://docs.pytorch.org/docs/stable/storage.html and their dtypes.

Quantised ones have none.
"""
_STORAGE_CLASSES = {
    f"{module}.{kind}Storage": dtype
    for kind, dtype in STORAGES.items()
    for module in ("torch", "torch.cuda", "torch.storage")
}
ODD_DTYPES = frozenset(
    {"complex32", "qint8", "quint8", "qint32", "quint4x2", "quint2x4", "float4_e2m1fn_x2"}
    | {"bits1x8", "bits2x4", "bits4x2", "bits8", "bits16"}
    | {f"{kind}{bits}" for kind in ("int", "uint") for bits in range(1, 8)}
)
"""Dtypes that are packed, or only for quantisation.

See https://docs.pytorch.org/docs/stable/tensor_attributes.html.
"""
_SPECIALS = {f"torch.{name}": Special("dtype", name) for name in ODD_DTYPES}
_SPECIALS |= {
    f"torch.{name}": Special("qscheme", name)
    for name in (
        "per_tensor_affine",
        "per_tensor_symmetric",
        "per_channel_affine",
        "per_channel_symmetric",
        "per_channel_affine_float_qparams",
    )
}
_PLAIN = frozenset({str, int, float, bool, complex, bytes, Special, Global, KeptOf})
_CLASSES = frozenset(
    {"numpy.ndarray", "numpy.memmap", "torch.Tensor", "torch.nn.parameter.Parameter"}
)
_JAGGED = "torch.nested._internal.nested_tensor.NestedTensor"
_ARGUMENTS = _CLASSES | {_JAGGED}
"""Names that occur only as arguments."""
_TWICE = frozenset({"_ragged_idx", "_values", "_offsets", "_lengths", "_metadata_cache"})
"""Attributes of a jagged tensor that repeat its parts."""
_DYNAMO = ("_dynamo_", "_specialize_on", "_has_dynamo_dim_marking")
"""Prefixes of attributes in which ``torch.compile`` notes dynamic axes, also of jagged tensors."""
_MARK = "an axis that may change"

_SEVERAL = ("torch.distributed.", "deepspeed.")
"""Prefixes of class names in files that one of several processes has saved."""

_TAKE_ANY = frozenset(
    {"_operator.getitem", "operator.getitem", "_functools.reduce", "functools.reduce"}
    | {"types.GenericAlias", "collections.defaultdict", "builtins.type"}
    | {"copyreg._reconstructor", "copyreg.__newobj__", "copyreg.__newobj_ex__"}
)
"""Functions that decide themselves about the names that are given to them."""
_MOST_LOOKED_AT = 1_000

_MOST_AXES = 64
_MOST_ELEMENTS = 1 << 62
_MOST_BYTES = 1 << 63


class Names(NumPyWords):
    """The vocabulary of `torch.save`, NumPy and plain Python.

    Args:
        where: The file, for messages.
        allow: Names of classes whose arguments and attributes are kept.
    """

    calls: ClassVar[dict[str, Callable[..., Any]]]
    """The known functions by name, and their replacements."""

    def __init__(self, where: str, allow: frozenset[str]) -> None:
        super().__init__(where)
        self.allow = allow
        self.asked: dict[str, None] = {}
        self.storages: dict[str, StorageOf] = {}
        self.besides: list[tuple[TensorStandIn, dict[str, str]]] = []

    @property
    def hint(self) -> Hint:
        if any(name.startswith(_SEVERAL) for name in self.demands):
            return Hint(
                "the path of its folder, with what the other processes saved: "
                "a part alone cannot be put together"
            )
        return super().hint

    def find(self, name: str) -> Any:
        self.asked[escaped(name)] = None
        special = _SPECIALS.get(name)
        if special is not None:
            return special
        module, _, last = name.rpartition(".")
        if module == "torch" and last in DTYPES:
            return Special("dtype", last)
        return Global(name)

    def knows(self, name: str) -> bool:
        """Whether the calls of this vocabulary know what a name means that is given to them."""
        if name in self.calls or name in _STORAGE_CLASSES or name in VALUES or name in _ARGUMENTS:
            return True
        return name in self.allow

    def call(self, function: Any, arguments: Any, keywords: Any = None) -> Any:
        if type(arguments) is not tuple or type(keywords) not in (dict, type(None)):
            raise self.wrong("calls with what are no arguments")
        refused = refused_among((function, *arguments))
        if refused is not None:
            return RefusedOf(refused.demand, [function, *arguments, keywords])
        if type(function) is InstanceOf and function.is_told:
            return InstanceOf(function.name, (function, *arguments), keywords or {}, is_told=True)
        if type(function) is not Global:
            raise self.wrong("calls what is no function")
        if keywords:
            made = ODD
        else:
            made = self._known_call(function.name, arguments)
        if made is not ODD:
            return made
        if function.name in self.allow:
            return InstanceOf(function.name, arguments, keywords or {}, is_told=True)
        if self.knows(function.name):
            what = f"a call of {function.name}"
        else:
            what = ""
        return self.refuse_call(function.name, (*arguments, keywords), what)

    def _known_call(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """A known function's result; `ODD` if it is unknown, or not called as data calls it."""
        handler = self.calls.get(name)
        if handler is None:
            return ODD
        for argument in arguments:
            if type(argument) is Global and not self.knows(argument.name) and name not in _TAKE_ANY:
                return self.refuse_call(argument.name, arguments)
        return handler(self, *arguments)

    def special(self, node: Special) -> Special | Kept:
        """What stands in the tree for a special value."""
        if node.kind == "qscheme":
            return Kept(f"torch.{node.value!s}", "torch.qscheme")
        return node

    def build(self, instance: Any, state: Any) -> Any:
        kind = type(instance)
        if kind is Ordered and type(state) is dict:
            instance.attributes = state
        elif kind is InstanceOf:
            if instance.state is not None:
                raise self.wrong("sets the state of an object twice")
            instance.state = state
        elif kind is ArrayOf and instance.is_empty:
            self.fill_array(instance, *state)
        elif kind is DTypeOf:
            self.set_order(instance, state)
        elif kind is RefusedOf:
            instance.held.append(state)
        elif kind is KeptOf and instance.text is None:
            set_uuid(self, instance, state)
        elif instance is not _MARK:
            self.refuse(f"the state of {title(instance)} to be set")
        return instance

    def fill(self, instance: Any, values: list[Any]) -> None:
        if type(instance) is InstanceOf:
            instance.items += values
        elif type(instance) is RefusedOf:
            instance.held += values
        else:
            self.refuse(f"items to be put into {title(instance)}")

    def put(self, instance: Any, values: list[Any]) -> None:
        if type(instance) is not InstanceOf:
            self.fill(instance, values)
            return
        for key, value in zip(values[::2], values[1::2], strict=True):
            if not self.keys.takes(key):
                raise UnsafeFileError(
                    f"{self.where}: its pickle has an object with a key that is no plain value."
                )
            instance.entries[key] = value

    def load(self, key: Any) -> Any:
        if (
            type(key) is not tuple
            or len(key) not in (5, 6)
            or type(key[0]) is not str
            or key[0] != "storage"
        ):
            return self.refuse("a persistent id that is no storage")
        _, kind, name, _, size, *_ = key
        if type(kind) is RefusedOf:
            return kind
        if type(kind) is not Global or kind.name not in _STORAGE_CLASSES:
            return self.refuse(f"a persistent id of a storage of {title(kind)}")
        if type(name) is not str or type(size) is not int or not 0 <= size < _MOST_ELEMENTS:
            raise self.wrong("describes a storage without a name or a possible size")
        dtype = _STORAGE_CLASSES[kind.name]
        if kind.name.endswith(".UntypedStorage"):
            named = "untyped_storage"
        else:
            named = "storage"
        storage = self.known(name)
        if storage is None:
            if dtype is None:
                raw = QUANTISED.get(kind.name.rpartition(".")[2].removesuffix("Storage"))
            else:
                raw = None
            storage = self.storages[name] = StorageOf(name, dtype, size, named, raw)
        elif storage.kind != named or storage.dtype != dtype or storage.size != size:
            raise self.wrong(f"describes storage {name[:100]!r} in two ways")
        return storage

    def known(self, name: str) -> StorageOf | None:
        """The storage with this name, if it has been described."""
        return self.storages.get(name)

    def tensor_v2(
        self,
        storage: Any,
        offset: Any,
        size: Any,
        stride: Any,
        grad: Any = False,
        hooks: Any = (),
        bits: Any = None,
    ) -> Any:
        """``_rebuild_tensor_v2(…)``, and its shorter predecessor."""
        return self._tensor(
            storage, offset, size, stride, grad, hooks, getattr(storage, "dtype", None), bits
        )

    def tensor_v3(
        self,
        storage: Any,
        offset: Any,
        size: Any,
        stride: Any,
        grad: Any,
        hooks: Any,
        dtype: Any,
        bits: Any = None,
    ) -> Any:
        """``_rebuild_tensor_v3(…)``, which has the dtype and an untyped storage."""
        if type(dtype) is not Special or dtype.kind != "dtype":
            raise self.wrong("describes a tensor without a dtype")
        name = str(dtype.value)
        if name in ODD_DTYPES:
            return OtherOf(f"its dtype is torch.{name}, which has no counterpart")
        return self._tensor(storage, offset, size, stride, grad, hooks, name, bits)

    def _tensor(
        self,
        storage: Any,
        offset: Any,
        size: Any,
        stride: Any,
        grad: Any,
        hooks: Any,
        dtype: str | None,
        bits: Any,
    ) -> Any:
        if type(storage) is not StorageOf:
            raise self.wrong("describes a tensor without a storage")
        if (
            type(size) is not tuple
            or type(stride) is not tuple
            or len(size) != len(stride)
            or len(size) > _MOST_AXES
        ):
            raise self.wrong("describes a tensor whose sizes and strides do not fit each other")
        last = count = 1
        for length, step in zip(size, stride, strict=True):
            if type(length) is not int or type(step) is not int or length < 0 or step < 0:
                raise self.wrong("describes a tensor with a negative size or stride")
            count *= length
            last += (length - 1) * step
        if type(offset) is not int or offset < 0 or count >= _MOST_ELEMENTS:
            raise self.wrong(
                "describes a tensor with a negative offset, or more elements than can be counted"
            )
        if dtype is None or storage.dtype is None:
            return OtherOf("it is quantised")
        if prod(length or 1 for length in size) * DTYPES[dtype].itemsize >= _MOST_BYTES:
            return OtherOf(f"its shape {list(size)} is larger than that of any array")
        if count:
            have = storage.size * DTYPES[storage.dtype].itemsize
            if (offset + last) * DTYPES[dtype].itemsize > have:
                raise self.wrong(
                    f"describes a tensor of shape {list(size)} that reaches past its storage "
                    f"{storage.key!r}"
                )
            if count > 1 << 28 and count * DTYPES[dtype].itemsize > 1024 * have:
                raise UnsafeFileError(
                    f"{self.where}: a tensor of shape {list(size)} repeats {have:,} bytes: a bomb."
                )
        if type(grad) is not bool or hooks:
            raise self.wrong(
                "describes a tensor with hooks, "
                "or with requires_grad that is neither true nor false"
            )
        if bits:
            conj, neg = self._bits(bits)
        else:
            conj, neg = False, False
        return TensorOf(ViewOf(storage, dtype, offset, size, stride, grad, conj=conj, neg=neg))

    def _bits(self, bits: Any) -> tuple[bool, bool]:
        if (
            type(bits) is not dict
            or not bits.keys() <= {"conj", "neg"}
            or not {*map(type, bits.values())} <= {bool}
        ):
            raise self.wrong("describes a tensor with unknown bits")
        return bits.get("conj", False), bits.get("neg", False)

    def parameter(self, data: Any, grad: Any = True, hooks: Any = (), state: Any = None) -> Any:
        """``_rebuild_parameter(…)``, with or without a state."""
        if type(data) is dict and type(data.get("values")) is TensorOf:
            return {**data, "values": self.parameter(data["values"], grad, hooks, state)}
        if type(data) is not TensorOf:
            return data
        if type(grad) is not bool or hooks:
            raise self.wrong("describes a parameter with hooks")
        refused = _refused_in(state)
        if refused is not None:
            return RefusedOf(refused.demand, [data, state])
        return self._with_attributes(
            data.but(requires_grad=grad, kind="parameter"), _attributes(state)
        )

    def of_type(self, function: Any, kind: Any, arguments: Any, state: Any) -> Any:
        """``_rebuild_from_type_v2(…)``: tensors of a subclass, or with attributes."""
        whole = made = self.call(function, arguments)
        if type(made) is dict:
            # The attributes of a tensor in parts are listed with its values.
            made = made.get("values")
        if not isinstance(made, TensorStandIn) or type(kind) is not Global:
            return whole
        refused = _refused_in(state)
        if refused is not None:
            return RefusedOf(refused.demand, [made, state])
        besides = _attributes(state)
        if kind.name == _JAGGED:
            besides = {name: why for name, why in besides.items() if name not in _TWICE}
        elif kind.name not in _CLASSES:
            besides["class"] = NotTensor(f"that it is of the class {kind.name}")
        if whole is not made:
            self._with_attributes(made, besides)
            return whole
        if type(made) is TensorOf and kind.name == "torch.nn.parameter.Parameter":
            made = made.but(kind="parameter")
        return self._with_attributes(made, besides)

    def _with_attributes(self, made: TensorStandIn, besides: dict[str, str]) -> TensorStandIn:
        if besides:
            self.besides.append((made, besides))
        return made

    def from_array(self, array: Any, dtype: Any, _device: Any, grad: Any = False) -> Any:
        """``_rebuild_device_tensor_from_numpy(…)``."""
        if (
            type(array) is not ArrayOf
            or array.values is None
            or type(dtype) is not Special
            or type(grad) is not bool
        ):
            return OtherOf("it was saved from a device that has no storages")
        if of_numpy(array.values.dtype) != dtype.value:
            return OtherOf(f"it is kept as {array.values.dtype}, though it was {dtype.value!s}")
        made = ArrayOf("tensor", array.values)
        made.requires_grad = grad
        return made

    def from_cpu(self, tensor: Any, dtype: Any, _device: Any, grad: Any = False) -> Any:
        """``_rebuild_device_tensor_from_cpu_tensor(…)``."""
        fits = (
            type(tensor) is TensorOf and type(dtype) is Special and tensor.view.dtype == dtype.value
        )
        if fits and type(grad) is bool:
            return tensor.but(requires_grad=grad)
        return OtherOf("it was saved from a device that has no storages")

    def size(self, lengths: Any = ()) -> Special:
        """``torch.Size(lengths)``."""
        if type(lengths) not in (tuple, list) or not all(type(length) is int for length in lengths):
            raise self.wrong("describes a size that is no tuple of integers")
        return Special("size", list(lengths))

    def device(self, kind: Any, index: Any = None) -> Special:
        """``torch.device(kind, index)``."""
        if type(kind) is not str or type(index) not in (int, type(None)):
            raise self.wrong("describes a device without a name")
        return Special("device", kind if index is None else f"{kind}:{index}")

    def layout(self, name: Any) -> Special:
        """``_get_layout(name)``."""
        if type(name) is not str:
            raise self.wrong("describes a layout without a name")
        return Special("layout", name.removeprefix("torch."))


def _refused_in(state: Any) -> RefusedOf | None:
    """The first result of a call that is not allowed, in the state of a tensor."""
    left, seen = [state], 0
    while left and seen < _MOST_LOOKED_AT:
        node = left.pop()
        seen += 1
        if type(node) is RefusedOf:
            return node
        if isinstance(node, dict):
            left += islice(node.values(), _MOST_LOOKED_AT)
        elif type(node) in (list, tuple):
            left += islice(node, _MOST_LOOKED_AT)
        elif type(node) is InstanceOf:
            left += [node.arguments, node.keywords, node.state, node.items, node.entries]
    return None


def _attributes(state: Any) -> dict[str, str]:
    """The attributes of a tensor by name, and what each is."""
    reasons: dict[str, str] = {}
    for part in state if type(state) is tuple else (state,):
        attributes = part
        if type(part) is not dict:
            attributes = {"state": part} if part else {}
        for name, value in attributes.items():
            if str(name).startswith(_DYNAMO):
                continue
            if _is_plain(value):
                reasons[str(name)] = NotTensor("an attribute of a tensor")
            else:
                reasons[str(name)] = "an attribute that may hold tensors"
    return reasons


def _is_plain(value: Any) -> bool:
    """Whether a value, or each value in a container, is one that holds no tensors."""
    inside: Iterable[Any] = (value,)
    if type(value) is dict:
        inside = value.values()
    elif type(value) in (list, tuple):
        inside = value
    return all(element is None or type(element) in _PLAIN for element in inside)


def _other(reason: str) -> Callable[..., OtherOf]:
    return lambda *_: OtherOf(reason)


Names.calls = {
    "torch._utils._rebuild_tensor": Names.tensor_v2,
    "torch._utils._rebuild_tensor_v2": Names.tensor_v2,
    "torch._utils._rebuild_tensor_v3": Names.tensor_v3,
    "torch._utils._rebuild_parameter": Names.parameter,
    "torch._utils._rebuild_parameter_with_state": Names.parameter,
    "torch._utils._rebuild_device_tensor_from_numpy": Names.from_array,
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": Names.from_cpu,
    "torch._utils._rebuild_sparse_tensor": sparse,
    "torch._utils._rebuild_sparse_csr_tensor": sparse,
    "torch._utils._rebuild_qtensor": quantised,
    "torch._utils._rebuild_nested_tensor": nested,
    "torch.nested._internal.nested_tensor._rebuild_njt": jagged,
    "torch._dynamo.decorators._DimRange": lambda *_: _MARK,
    "torch._utils._rebuild_meta_tensor_no_storage": _other(
        "it is on the meta device, without values"
    ),
    "torch._utils._rebuild_wrapper_subclass": _other(
        "it is of a class that holds no memory of its own"
    ),
    "torch._tensor._rebuild_from_type_v2": Names.of_type,
    "torch.Size": Names.size,
    "torch.device": Names.device,
    "torch.serialization._get_layout": Names.layout,
}
Names.calls |= PYTHON_CALLS | NUMPY_CALLS | TABLE_CALLS
"""The functions of PyTorch (torch/_utils.py), NumPy and Python in data pickles, and replacements.

https://docs.pytorch.org/docs/stable/notes/serialization.html lists those of
``torch.load(weights_only=True)``.
"""
