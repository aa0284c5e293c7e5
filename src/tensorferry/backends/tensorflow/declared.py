"""What TensorFlow can do."""

from __future__ import annotations

from ...core.capabilities import Capabilities, Devices, Dtypes, Gradients, Memory, Objects, Options
from ...core.declaration import Declared
from ...core.dtypes import ORDINARY
from ...core.layout import ALIGNMENT
from .snippets import UNEXPORTED, snippet

__all__ = ["CAPABILITIES", "COPIED", "DECLARED", "DEFAULT_STREAM", "DTYPES", "REFUSED"]

DTYPES = ORDINARY | {
    *("int2", "int4", "uint2", "uint4", "bfloat16", "float4_e2m1fn"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2fnuz"),
}

CAPABILITIES = Capabilities(
    dtypes=Dtypes(
        held=DTYPES,
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
                "it is symbolic, inside a traced function (tf.function): its values do not exist yet",
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

REFUSED = {
    "RaggedTensor": (
        "rows of unequal lengths",
        "x.to_tensor(default_value=0), or x.values and x.row_splits",
    ),
    "SparseTensor": (
        "indices and values, not one memory",
        "tf.sparse.to_dense(x), or x.indices and x.values",
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
