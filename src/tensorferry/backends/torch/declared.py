"""What PyTorch can do, and the code that a person would type for each of its verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import hints
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
from ...core.devices import HOST
from ...core.dtypes import ORDINARY, find, is_misrounded
from ...core.layout import packed_strides
from ...hints import Hint
from ..numpy import declared as arrays

if TYPE_CHECKING:
    from ...core.info import TensorInfo

__all__ = [
    "ABSTRACT",
    "AS_INTEGERS",
    "BY_DEFAULT",
    "CAST_ALIKE",
    "DECLARED",
    "snippet",
    "snippet_with_a_warning",
    "whole_strides",
]

# PyTorch's conversions to and from NumPy do not support these, so they are converted as integers of
# the same width.
AS_INTEGERS = {
    "bfloat16": "int16",
    "float8_e4m3fn": "uint8",
    "float8_e4m3fnuz": "uint8",
    "float8_e5m2": "uint8",
    "float8_e5m2fnuz": "uint8",
    "float8_e8m0fnu": "uint8",
}


def snippet(verb: str, arguments: tuple[Any, ...], info: TensorInfo) -> str:
    """See `Backend.snippet`."""
    if verb == "cast":
        return _cast_code(*arguments, info=info)
    if verb == "view":
        return f"{{x}}.view(torch.{arguments[0]})"
    if verb == "move":
        device, non_blocking = arguments
        if device == HOST:
            return "{x}.cpu()"
        return (
            f'{{x}}.to("{device}", non_blocking=True)' if non_blocking else f'{{x}}.to("{device}")'
        )
    if verb == "detach" and info.kind in ("stack", "rows"):
        return (
            "[row.detach() for row in {x}]"
            if info.kind == "stack"
            else "[[t.detach() for t in row] for row in {x}]"
        )
    as_integer = AS_INTEGERS.get(info.dtype)
    if verb == "export" and as_integer:
        return f"{{x}}.view(torch.{as_integer}).numpy().view(ml_dtypes.{info.dtype})"
    if verb == "adopt":
        return _adopt_code(info, as_integer)
    if verb == "narrow":
        return arrays.snippet(verb, arguments, info)
    if verb in ("spread", "span"):
        return (
            _spread_code(arguments)
            if verb == "spread"
            else f"{{x}}.as_strided(({arguments[0]},), (1,))"
        )
    if verb == "cross":
        return _cross_code(arguments[0], arguments[2], info)
    if verb == "stack" and info.kind == "rows":
        return f'torch.stack([ferry.to_torch(row, dtype="{info.dtype}") for row in {{x}}])'
    if verb == "write":
        return _write_code(*arguments, info=info)
    if verb == "pin":
        return _pin_code(info)
    return _SNIPPETS[verb]


def snippet_with_a_warning(verb: str, arguments: tuple[Any, ...], info: TensorInfo) -> str:
    """The code for a PyTorch that takes no capsules of read-only memory."""
    if verb == "adopt" and not info.writable:
        return f"{_WARNS}{snippet(verb, arguments, info._replace(writable=True))}"
    return snippet(verb, arguments, info)


_WARNS = "# PyTorch before 2.9 warns that the memory is read-only; the conversion does not\n"

_SNIPPETS = {
    "take": "torch.from_dlpack({x})",
    "detach": "{x}.detach()",
    "resolve": "{x}.resolve_conj().resolve_neg()",
    "export": "{x}.numpy()",
    "copy": "{x}.clone()",
    "wait": "torch.accelerator.current_stream().synchronize() or {x}",
    "import_dlpack": "torch.from_dlpack({x})",
    "compact": "{x}.contiguous()",
    "land": 'torch.empty_like({x}, device="cpu", pin_memory=True).copy_({x})',
    "stack": "torch.stack({x})",
}


def _pin_code(info: TensorInfo) -> str:
    """The code for a copy in page-locked memory."""
    if info.requires_grad and find(info.dtype).kind == "complex":
        return _SNIPPETS["land"]  # `pin_memory` has no gradient of complex numbers
    # `pin_memory` keeps strides, and cannot write elements that share memory.
    if info.overlaps_itself:
        return "{x}.contiguous().pin_memory()"
    return "{x}.pin_memory()"


def _spread_code(arguments: tuple[Any, ...]) -> str:
    """The code that gives elements that share memory memory of their own."""
    whole = "expand" if len(arguments) == 1 else "as_strided"
    return f"{{x}}.{whole}({', '.join(map(str, arguments))}).contiguous()"


def _cast_code(dtype: str, check: str = "", caster: str = "", *, info: TensorInfo) -> str:
    """A cast's code: by NumPy, or PyTorch with NumPy's values if that is short, or as it casts."""
    if caster == "host":
        if info.requires_grad:
            values = "{x}.detach()"
        else:
            values = "{x}"
        if info.conjugate or info.negative:
            values = _SNIPPETS["resolve"].replace("{x}", values)
        return _adopt_cast(dtype, check, snippet("export", (), info).replace("{x}", values), info)
    values = "{x}"
    if find(info.dtype).kind == "complex" and find(dtype).kind not in ("complex", "bool"):
        # PyTorch warns if it has to leave out the imaginary part itself.
        values += ".real"
        if (info.dtype, dtype) in (("complex64", "float32"), ("complex128", "float64")):
            return f"{values}.clone()"
    if not caster:
        return f"{values}.to(torch.{dtype})"
    remark = _REMARKS.get(dtype, "")
    if is_misrounded(info.dtype, dtype) or (
        dtype == "float16" and info.dtype in ("float64", "complex128")
    ):
        remark = _TWICE
    if dtype == "float8_e4m3fn":
        # PyTorch gives the largest number for larger ones.
        values = f"{values}.masked_fill({values}.abs() > 464, torch.nan)"
    return f"{remark}{values}.to(torch.{dtype})"


_TWICE = "# PyTorch rounds this to float32 first; what the conversion records rounds once\n"
_REMARKS = {
    "float8_e8m0fnu": "# what the conversion records gives NaN for zero and negative numbers\n",
}
"""What to say of casts whose values PyTorch cannot be made to give in a line."""


def _cross_code(device: str, dtype: str, info: TensorInfo) -> str:
    """The code for a cast and a transfer in a graph."""
    cast = _cast_code(dtype, "", "graph", info=info)
    plain = dtype == info.dtype or cast == f"{{x}}.to(torch.{dtype})"
    if plain:
        return f'{{x}}.to("{device}", torch.{dtype})'
    return f'{cast}.to("{device}")'


def _adopt_cast(dtype: str, check: str, array: str, info: TensorInfo) -> str:
    """The code for a tensor of an array's values, cast by NumPy."""
    steps = packed_strides(info.shape, info.strides, find(dtype).itemsize)
    cast = info._replace(dtype=dtype, strides=steps, writable=True)
    remark, line, values = arrays.snippet("cast", (dtype, check), info).rpartition("\n")
    return (
        remark
        + line
        + _adopt_code(cast, AS_INTEGERS.get(dtype)).replace("{x}", values.replace("{x}", array))
    )


def _write_code(out: TensorInfo, own: str = "", overlaps: bool = False, *, info: TensorInfo) -> str:
    """The code that writes values into `out`, cast by NumPy; or those of a tensor of its dtype."""
    if own:
        if out.framework == info.framework:
            destination = "out"
        else:
            destination = _adopt_code(out, AS_INTEGERS.get(out.dtype)).format(x="out")
        return f"{destination}.copy_({{y}}{', non_blocking=True' if overlaps else ''}); {{y}} = out"
    if out.device != HOST or out.conjugate or out.negative:
        return f"out.copy_({_adopt_cast(out.dtype, '', '{y}', info)}); {{y}} = out"
    array = snippet("export", (), out).format(x="out")
    return arrays.snippet("write", (out,), info).replace("copyto(out,", f"copyto({array},")


def _adopt_code(info: TensorInfo, as_integer: str | None) -> str:
    # As integers first, because `as_strided` does not know every dtype of ml_dtypes.
    if as_integer:
        array = f"{{x}}.view(np.{as_integer})"
    else:
        array = "{x}"
    if any(step < 0 or step % find(info.dtype).itemsize for step in info.strides):
        steps = whole_strides(info.shape, info.strides, find(info.dtype).itemsize)
        array = f"np.lib.stride_tricks.as_strided({array}, strides={steps})"
    # `from_numpy` warns about read-only memory; DLPack does not.
    code = f"torch.from_numpy({array})"
    if not info.writable:
        code = f"torch.utils.dlpack.from_dlpack({array}.__dlpack__(max_version=(1, 0)))"
    if as_integer:
        return f"{code}.view(torch.{info.dtype})"
    return code


def whole_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int
) -> tuple[int, ...]:
    """The strides, with ordinary ones for axes of length 1, whose strides PyTorch may refuse."""
    return tuple(
        step if length > 1 else itemsize for length, step in zip(shape, strides, strict=True)
    )


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
    (
        "it is traced (torch.compile, torch.export, torch.vmap or torch.func): "
        "its values do not exist yet"
    ),
    "convert before or after the traced function; inside it, stay in torch",
)
ABSTRACT: dict[str, tuple[str, str | Hint | None]] = {
    "traced": _TRACED,
    "meta": (
        "a meta tensor has a shape and a dtype, but no memory",
        Hint(hints.code('torch.zeros_like(x, device="cpu")'), ", whose values are zeros"),
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
        Hint(
            "convert it while its memory is there: ",
            hints.code("x.untyped_storage().nbytes()"),
            " says",
        ),
    ),
    "MaskedTensor": (
        "it is a MaskedTensor, values and a mask, and its mask would be lost",
        Hint(hints.code("x.to_tensor(0)"), ", or another value"),
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
"""The capabilities, by default dtype and by whether autograd and `torch.jit.trace` record."""

DECLARED = Declared(
    "torch",
    BY_DEFAULT["float32", True, False],
    snippet,
    {"torch": "import torch", "ferry": "import tensorferry as ferry"},
    # (https://docs.pytorch.org/docs/stable/notes/mps.html; Metal has no 64-bit floats)
    {"mps": DeviceFacts(absent=frozenset({"float64", "complex128"}))},
)
