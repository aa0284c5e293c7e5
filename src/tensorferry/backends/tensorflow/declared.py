"""What TensorFlow can do, and the code that a person would type for each of its verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import hints
from ...core.capabilities import Capabilities, Devices, Dtypes, Gradients, Memory, Objects, Options
from ...core.declaration import Code, Declared
from ...core.devices import HOST, kind_of
from ...core.dtypes import DTYPES, ORDINARY
from ...core.layout import ALIGNMENT
from ...hints import Hint
from ..numpy import declared as arrays

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...core.declaration import VerbCall
    from ...core.info import TensorInfo

__all__ = [
    "CAPABILITIES",
    "COPIED",
    "DECLARED",
    "DEFAULT_STREAM",
    "HELD",
    "REFUSED",
    "UNEXPORTED",
    "device_code",
    "snippet",
]

# TensorFlow cannot export these: "… is not supported by dlpack".
UNEXPORTED = frozenset(
    name
    for name in DTYPES
    if name.startswith("float8") or name.endswith(("int2", "int4", "e2m1fn"))
)


def snippet(call: VerbCall) -> Code | str:
    """See `Backend.snippet`."""
    verb, arguments, info, x, details = call
    if verb == "cast":
        return _cast_code(x, info, *arguments, caster=details.caster)
    if verb == "view":
        return f"tf.bitcast({x}, tf.{arguments[0]})"
    if verb == "move":
        return _on_device(x, arguments[0], "tf.identity(y)")
    if verb == "adopt":
        return _adopt_code(x, info, is_new=details.newly_allocated)
    if verb == "copy":
        return _copy_code(x, info)
    if verb == "write" and details.out is not None:
        values = arrays.cast_code("y", info, details.out.dtype, compact=True)
        return Code(x, (f"out.assign({values.expression})", "y = out"))
    if verb == "export":
        return _export_code(x, info, is_result=details.read_only)
    return _SNIPPETS[verb](x)


_SNIPPETS: dict[str, Callable[[str], str]] = {
    "value": lambda x: f"{x}.read_value_no_copy()",
    "fetch": lambda x: f"{x}.numpy()",
    "wait": lambda x: f"tf.test.experimental.sync_devices() or {x}",
    "import_dlpack": lambda x: f"tf.experimental.dlpack.from_dlpack({x}.__dlpack__())",
    "variable": lambda x: f"tf.Variable({x})",
}


def _on_device(x: str, device: str, code: str) -> Code:
    """The code for what is made of `y` on a device."""
    return Code(x, (f'with tf.device("{device_code(device)}"): y = {code}',))


def _cast_code(x: str, info: TensorInfo, dtype: str, check: str = "", *, caster: str) -> Code:
    """The code for a cast by TensorFlow, or by NumPy, which TensorFlow does not always match."""
    if not caster:
        if dtype in UNEXPORTED:
            name = f'"{dtype}"'
        else:
            name = f"tf.{dtype}"
        if info.device == HOST:
            return Code(f"tf.cast({x}, {name})")
        return _on_device(x, info.device, f"tf.cast(y, {name})")
    cast = arrays.cast_code("y.numpy()", info, dtype, check)
    code = _on_device(x, info.device, f"tf.constant({cast.expression})")
    return code._replace(remarks=cast.remarks)


def _adopt_code(x: str, info: TensorInfo, *, is_new: bool) -> Code | str:
    # A person's copy may not be aligned as TensorFlow needs it, and with DLPack it does not check
    # that.
    if is_new:
        return f"tf.constant({x})"
    if info.writable and info.dtype in ORDINARY:
        return _SNIPPETS["import_dlpack"](x)
    if info.writable and info.dtype == "bfloat16":
        integers = f'{x}.view("int16")'
        return f"tf.bitcast({_SNIPPETS['import_dlpack'](integers)}, tf.bfloat16)"
    remark = "tensorferry uses this memory; tf.constant copies it"
    return Code(f"tf.constant({x})", remarks=(remark,))


def _copy_code(x: str, info: TensorInfo) -> Code | str:
    if info.abstract:
        return f"tf.identity({x})"
    if info.dtype not in UNEXPORTED:
        return f"tf.raw_ops.DeepCopy(x={x})"
    if info.device == HOST:
        return f"tf.constant({x}.numpy())"
    return _on_device(x, info.device, "tf.constant(y.numpy())")


def _export_code(x: str, info: TensorInfo, *, is_result: bool) -> Code:
    """The code for an array over the memory. For dtypes of ml_dtypes, it must be made read-only."""
    if info.shape:
        code = f"np.asarray({x})"
    else:
        code = f"np.asarray(tf.reshape({x}, [1])).reshape(())"
    if not is_result or info.dtype in ORDINARY:
        return Code(code)
    return Code(code, ("y.flags.writeable = False",))


def device_code(device: str) -> str:
    """TensorFlow's name for a device."""
    kind, _, index = device.partition(":")
    return f"/device:{'GPU' if kind_of(device) == 'cuda' else kind.upper()}:{index or 0}"


HELD = ORDINARY | {
    *("int2", "int4", "uint2", "uint4", "bfloat16", "float4_e2m1fn"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2fnuz"),
}

CAPABILITIES = Capabilities(
    dtypes=Dtypes(
        held=HELD,
        numbers={
            "bool": ("bool",),
            "int": ("int32", "int64"),
            "float": ("float32",),
            "complex": ("complex128",),
        },
        unexported=UNEXPORTED,
        since={"int2": "2.20", "uint2": "2.20", "float4_e2m1fn": "2.21"},
    ),
    memory=Memory(
        writable=False,
        strides="compact",
        alignment=ALIGNMENT,
        out=True,
        reshape="tf.reshape",
    ),
    devices=Devices(
        ("cpu", "cuda", "tpu"), fetches=True, waits=True, exports_dlpack=True, prefers_dlpack=True
    ),
    gradients=Gradients(tape="tf.GradientTape", stopped="tf.stop_gradient(x)"),
    objects=Objects(
        value_kinds=frozenset({"Variable"}),
        abstract={
            "traced": (
                (
                    "it is symbolic, inside a traced function (tf.function): "
                    "its values do not exist yet"
                ),
                "convert before or after the traced function; inside it, stay in TensorFlow",
            ),
            "text": (
                "its dtype is string, variant or resource: there are no numbers",
                "x.numpy()",
            ),
        },
        inside_only=frozenset({"traced"}),
    ),
    options=Options(finishers=frozenset({"variable"})),
)

DECLARED = Declared("tensorflow", CAPABILITIES, snippet, {"tf": "import tensorflow as tf"})

REFUSED: dict[str, tuple[str, str | Hint]] = {
    "RaggedTensor": (
        "rows of unequal lengths",
        Hint(
            hints.code("x.to_tensor(default_value=0)"),
            ", or ",
            hints.code("x.values"),
            " and ",
            hints.code("x.row_splits"),
        ),
    ),
    "SparseTensor": (
        "indices and values, not one memory",
        Hint(
            hints.code("tf.sparse.to_dense(x)"),
            ", or ",
            hints.code("x.indices and x.values"),
        ),
    ),
    "IndexedSlices": ("indices and values, not one memory", "x.indices and x.values"),
    "KerasTensor": (
        "a place in a model that is being built, without values",
        "keras.Model(inputs, x)(values)",
    ),
    "TensorArray": ("a list of tensors that is written step by step", "x.stack()"),
}


# The dtypes that TensorFlow copies on a GPU. For others, the operation uses the host.
# (https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/kernels/inplace_ops.cc).
COPIED = frozenset(
    {"float16", "bfloat16", "float32", "float64", "int8", "uint8", "int64", "uint64"}
)

DEFAULT_STREAM = 1  # CUDA's legacy default stream in DLPack's numbering
