"""What TensorFlow can do, and the code that a person would type for each of its verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import hints
from ...core.capabilities import Capabilities, Devices, Dtypes, Gradients, Memory, Objects, Options
from ...core.declaration import Declared
from ...core.devices import HOST, kind_of
from ...core.dtypes import DTYPES, ORDINARY
from ...core.layout import ALIGNMENT
from ...hints import Hint
from ..numpy import declared as arrays

if TYPE_CHECKING:
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


def snippet(verb: str, arguments: tuple[Any, ...], info: TensorInfo) -> str:
    """See `Backend.snippet`."""
    if verb == "cast":
        return _cast_code(*arguments, info=info)
    if verb == "view":
        return f"tf.bitcast({{x}}, tf.{arguments[0]})"
    if verb == "move":
        return f'with tf.device("{device_code(arguments[0])}"): {{y}} = tf.identity({{y}})'
    if verb == "adopt":
        return _adopt_code(info, is_new=bool(arguments))
    if verb == "copy":
        return _copy_code(info)
    if verb == "write":
        values = arrays.snippet("cast", (arguments[0].dtype, "", True), info)
        return f"out.assign({values.format(x='{y}')}); {{y}} = out"
    if verb == "export":
        return _export_code(info, is_result=bool(arguments))
    return _SNIPPETS[verb]


_SNIPPETS = {
    "value": "{x}.read_value_no_copy()",
    "fetch": "{x}.numpy()",
    "wait": "tf.test.experimental.sync_devices() or {x}",
    "import_dlpack": "tf.experimental.dlpack.from_dlpack({x}.__dlpack__())",
    "variable": "tf.Variable({x})",
}


def _cast_code(dtype: str, check: str = "", caster: str = "", *, info: TensorInfo) -> str:
    """The code for a cast by TensorFlow, or by NumPy, which TensorFlow does not always match."""
    there = f'with tf.device("{device_code(info.device)}"): {{y}} = '
    if not caster:
        if dtype in UNEXPORTED:
            name = f'"{dtype}"'
        else:
            name = f"tf.{dtype}"
        if info.device == HOST:
            return f"tf.cast({{x}}, {name})"
        return f"{there}tf.cast({{y}}, {name})"
    remark, line, values = arrays.snippet("cast", (dtype, check), info).rpartition("\n")
    return f"{remark}{line}{there}tf.constant({values.replace('{x}', '{y}.numpy()')})"


def _adopt_code(info: TensorInfo, *, is_new: bool) -> str:
    # A person's copy may not be aligned as TensorFlow needs it, and with DLPack it does not check
    # that.
    if is_new:
        return "tf.constant({x})"
    if info.writable and info.dtype in ORDINARY:
        return _SNIPPETS["import_dlpack"]
    if info.writable and info.dtype == "bfloat16":
        return 'tf.bitcast(tf.experimental.dlpack.from_dlpack({x}.view("int16").__dlpack__()), tf.bfloat16)'
    return "# tensorferry uses this memory; tf.constant copies it\ntf.constant({x})"


def _copy_code(info: TensorInfo) -> str:
    if info.abstract:
        return "tf.identity({x})"
    if info.dtype not in UNEXPORTED:
        return "tf.raw_ops.DeepCopy(x={x})"
    if info.device == HOST:
        return "tf.constant({x}.numpy())"
    return f'with tf.device("{device_code(info.device)}"): {{y}} = tf.constant({{y}}.numpy())'


def _export_code(info: TensorInfo, *, is_result: bool) -> str:
    """The code for an array over the memory. For dtypes of ml_dtypes, it must be made read-only."""
    if info.shape:
        code = "np.asarray({x})"
    else:
        code = "np.asarray(tf.reshape({x}, [1])).reshape(())"
    if not is_result or info.dtype in ORDINARY:
        return code
    return f"{{y}} = {code}; {{y}}.flags.writeable = False"


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
        reshape="tf.reshape({x}, {shape})",
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
