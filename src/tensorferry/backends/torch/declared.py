"""What PyTorch can do."""

from __future__ import annotations

from ...core.capabilities import (
    Capabilities,
    DeviceFacts,
    Devices,
    Dtypes,
    Gradients,
    Memory,
    Objects,
    Options,
)
from ...core.declaration import Declared
from ...core.dtypes import ORDINARY
from .snippets import AS_INTEGERS, snippet

__all__ = ["ABSTRACT", "BY_DEFAULT", "CAST_ALIKE", "DECLARED"]

CAST_ALIKE = frozenset(
    {
        ("bfloat16", "float32"),
        ("bfloat16", "float64"),
        ("float32", "float16"),
        ("float32", "float64"),
        ("float64", "float32"),
    }
)
"""Measured on torch 2.13 with random bits. To bfloat16, PyTorch changes the sign of NaN."""

_TRACED = (
    "it is traced (torch.compile, torch.export, torch.vmap or torch.func): its values do not exist yet",
    "convert before or after the traced function; inside it, stay in torch",
)
ABSTRACT = {
    "traced": _TRACED,
    "meta": (
        "a meta tensor has a shape and a dtype, but no memory",
        'torch.zeros_like(x, device="cpu"), whose values are zeros',
    ),
    "FakeTensor": (
        "it is a FakeTensor, which has a shape and a dtype, but no memory",
        "use it outside FakeTensorMode",
    ),
    "real": (
        "FakeTensorMode is on, which takes no real tensor",
        "convert it outside FakeTensorMode",
    ),
    "freed": (
        "its storage was freed, as FSDP does between its uses, so it has no values",
        "convert it while its memory is there: x.untyped_storage().nbytes() says",
    ),
    "MaskedTensor": (
        "it is a MaskedTensor, values and a mask, and its mask would be lost",
        "x.to_tensor(0), or another value",
    ),
    "DTensor": (
        "it is a DTensor, a part of a tensor that lies on several devices",
        "x.full_tensor() or x.to_local()",
    ),
    "wrapper": (
        "it is a wrapper subclass, whose memory is elsewhere",
        "the method of its class that gives a plain tensor",
    ),
    "zero": ("it is an efficient zero tensor without memory", "torch.zeros_like(x)"),
    "sparse": ("it is sparse: indices and values, not one memory", "x.to_dense()"),
    "quantized": (
        "it is quantized: integers, scales and zero points",
        "x.dequantize() or x.int_repr()",
    ),
    "nested": ("it is nested: rows of unequal lengths", "x.to_padded_tensor(0.0) or x.unbind()"),
    "opaque": ("its memory is laid out by another library", "x.to_dense()"),
}


def _capabilities(default: str, records: bool, traces: bool) -> Capabilities:
    return Capabilities(
        dtypes=Dtypes(
            held=ORDINARY | AS_INTEGERS.keys(),
            numbers={
                "bool": ("bool",),
                "int": ("int64",),
                "float": (default,),
                "complex": ("complex128" if default == "float64" else "complex64",),
            },
            cast_alike=CAST_ALIKE,
            since={"float8_e8m0fnu": "2.7"},
            words={"float": ("float32",), "int": ("int32",), "cfloat": ("complex64",)},
        ),
        memory=Memory(
            writable=True,
            strides="non-negative",
            alignment=0,
            lazy_bits=True,
            out=True,
            writes_parts=True,
            writes_own=True,
        ),
        devices=Devices(others=True, packs=True, pins=True, spreads=True),
        gradients=Gradients(
            graph=True, records=records, parameter="Parameter", stopped="x.detach()"
        ),
        objects=Objects(
            read_kinds=frozenset({"rows", "stack"}),
            taken_kinds=frozenset({"__dlpack__"}),
            abstract=ABSTRACT,
            inside_only=frozenset(ABSTRACT)
            - {"freed", "zero", "sparse", "quantized", "nested", "opaque"},
            only_returned=frozenset({"real"}),
            tracer="torch.jit.trace" if traces else "",
        ),
        options=Options(frozenset({"non_blocking", "pinned"})),
    )


BY_DEFAULT = {
    (name, records, traces): _capabilities(name, records, traces)
    for name in ("float16", "bfloat16", "float32", "float64")
    for records in (True, False)
    for traces in (True, False)
}
"""The capabilities, by the default dtype, by whether autograd records, and by whether `torch.jit.trace` does."""

DECLARED = Declared(
    "torch",
    BY_DEFAULT["float32", True, False],
    snippet,
    {"torch": "import torch", "ferry": "import tensorferry as ferry"},
    # (https://docs.pytorch.org/docs/stable/notes/mps.html; Metal has no 64-bit floats)
    {"mps": DeviceFacts(absent=frozenset({"float64", "complex128"}))},
)
