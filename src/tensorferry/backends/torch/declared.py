"""What PyTorch can do, and the code that a person would type for each of its verbs."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

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
from ...core.declaration import Code, Declared
from ...core.devices import HOST
from ...core.dtypes import ORDINARY, find, is_misrounded
from ...core.layout import packed_strides
from ...hints import Hint

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...core.declaration import VerbCall
    from ...core.info import TensorInfo

__all__ = [
    "ABSTRACT",
    "AS_INTEGERS",
    "CAST_ALIKE",
    "DECLARED",
    "LISTED",
    "capabilities_by",
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

LISTED = ORDINARY | {"bfloat16"}
"""Dtypes for which PyTorch's `tolist` gives the exact numbers, with NaN's sign and payload.

It does not for float8.
"""


def snippet(call: VerbCall) -> Code | str:
    """See `Backend.snippet`."""
    verb, arguments, info, x, details = call
    if verb in _SNIPPETS_BY_INFO:
        return _SNIPPETS_BY_INFO[verb](x, info)
    if verb == "cast":
        return _cast_code(x, info, *arguments, caster=details.caster)
    if verb == "view":
        return f"{x}.view(torch.{arguments[0]})"
    if verb == "move":
        return _move_code(x, *arguments)
    if verb == "place_over":
        code = (
            f"torch.distributed.tensor.distribute_tensor({x}, mesh, placements, src_data_rank=None)"
        )
        return Code(code, remarks=("mesh and placements are what was given as device=",))
    if verb == "narrow":
        # Here and below, because only code to show needs it.
        from ..numpy.declared import narrow_code

        return narrow_code(x, info, *arguments)
    if verb == "spread":
        return _spread_code(x, *arguments)
    if verb == "span":
        return f"{x}.as_strided(({arguments[0]},), (1,))"
    if verb == "cross":
        device, _, dtype, _ = arguments
        return _cross_code(x, info, device, dtype)
    if verb == "write" and details.out is not None and details.is_own:
        return _write_own_code(x, info, details.out, overlaps=bool(arguments))
    if verb == "write" and details.out is not None:
        return _write_code(x, info, details.out)
    return _SNIPPETS[verb](x)


def snippet_with_a_warning(call: VerbCall) -> Code | str:
    """The code for a PyTorch that takes no capsules of read-only memory."""
    if call.verb == "adopt" and not call.info.writable:
        code = _adopt_code(call.x, call.info._replace(writable=True))
        return Code(code, remarks=(_WARNS,))
    return snippet(call)


_WARNS = "PyTorch before 2.9 warns that the memory is read-only; the conversion does not"

_SNIPPETS: dict[str, Callable[[str], str]] = {
    "take": lambda x: f"torch.from_dlpack({x})",
    "resolve": lambda x: f"{x}.resolve_conj().resolve_neg()",
    "copy": lambda x: f"{x}.clone()",
    "wait": lambda x: f"torch.accelerator.current_stream().synchronize() or {x}",
    "import_dlpack": lambda x: f"torch.from_dlpack({x})",
    "compact": lambda x: f"{x}.contiguous()",
    "land": lambda x: f'torch.empty_like({x}, device="cpu", pin_memory=True).copy_({x})',
}


def _detach_code(x: str, info: TensorInfo) -> str:
    """The code that leaves the autograd graph, for a tensor or lists of tensors."""
    if info.kind.name == "stack":
        return f"[row.detach() for row in {x}]"
    if info.kind.name == "rows":
        return f"[[t.detach() for t in row] for row in {x}]"
    return f"{x}.detach()"


def _move_code(x: str, device: str, non_blocking: bool) -> str:
    """The code for a transfer."""
    if device == HOST:
        return f"{x}.cpu()"
    if non_blocking:
        return f'{x}.to("{device}", non_blocking=True)'
    return f'{x}.to("{device}")'


def _export_code(x: str, info: TensorInfo) -> str:
    """The code for an array over the memory of a tensor."""
    as_integer = AS_INTEGERS.get(info.dtype)
    if as_integer:
        return f"{x}.view(torch.{as_integer}).numpy().view(ml_dtypes.{info.dtype})"
    return f"{x}.numpy()"


def _stack_code(x: str, info: TensorInfo) -> str:
    """The code that joins tensors, or rows of them."""
    if info.kind.name == "rows":
        return f'torch.stack([ferry.to_torch(row, dtype="{info.dtype}") for row in {x}])'
    return f"torch.stack({x})"


def _pin_code(x: str, info: TensorInfo) -> str:
    """The code for a copy in page-locked memory."""
    if info.requires_grad and find(info.dtype).kind == "complex":
        return _SNIPPETS["land"](x)  # `pin_memory` has no gradient of complex numbers
    # `pin_memory` keeps strides, and cannot write elements that share memory.
    if info.overlaps_itself:
        return f"{x}.contiguous().pin_memory()"
    return f"{x}.pin_memory()"


def _spread_code(x: str, *whole: tuple[int, ...]) -> str:
    """The code that gives elements that share memory memory of their own."""
    method = "expand" if len(whole) == 1 else "as_strided"
    return f"{x}.{method}({', '.join(map(str, whole))}).contiguous()"


def _cast_code(x: str, info: TensorInfo, dtype: str, check: str = "", *, caster: str) -> Code:
    """A cast's code: by NumPy, or PyTorch with NumPy's values if that is short, or as it casts."""
    if caster == "host":
        if info.requires_grad:
            x = f"{x}.detach()"
        if info.conjugate or info.negative:
            x = _SNIPPETS["resolve"](x)
        return _adopt_cast(_export_code(x, info), info, dtype, check)
    values = x
    if find(info.dtype).kind == "complex" and find(dtype).kind not in ("complex", "bool"):
        # PyTorch warns if it has to leave out the imaginary part itself.
        values += ".real"
        if (info.dtype, dtype) in (("complex64", "float32"), ("complex128", "float64")):
            return Code(f"{values}.clone()")
    if not caster:
        return Code(f"{values}.to(torch.{dtype})")
    remarks = _REMARKS.get(dtype, ())
    if is_misrounded(info.dtype, dtype) or (
        dtype == "float16" and info.dtype in ("float64", "complex128")
    ):
        remarks = (_TWICE,)
    if dtype == "float8_e4m3fn":
        # PyTorch gives the largest number for larger ones.
        values = f"{values}.masked_fill({values}.abs() > 464, torch.nan)"
    return Code(f"{values}.to(torch.{dtype})", remarks=remarks)


_TWICE = "PyTorch rounds this to float32 first; what the conversion records rounds once"
_REMARKS = {
    "float8_e8m0fnu": ("what the conversion records gives NaN for zero and negative numbers",),
}
"""What to say of casts whose values PyTorch cannot be made to give in a line."""


def _cross_code(x: str, info: TensorInfo, device: str, dtype: str) -> Code:
    """The code for a cast and a transfer in a graph."""
    cast = _cast_code(x, info, dtype, caster="graph")
    if dtype == info.dtype or cast == Code(f"{x}.to(torch.{dtype})"):
        return Code(f'{x}.to("{device}", torch.{dtype})')
    return cast._replace(expression=f'{cast.expression}.to("{device}")')


def _adopt_cast(array: str, info: TensorInfo, dtype: str, check: str = "") -> Code:
    """The code for a tensor of an array's values, cast by NumPy."""
    from ..numpy.declared import cast_code

    steps = packed_strides(info.shape, info.strides, find(dtype).itemsize)
    adopted = info._replace(dtype=dtype, strides=steps, writable=True)
    cast = cast_code(array, info, dtype, check)
    return cast._replace(expression=_adopt_code(cast.expression, adopted))


def _write_own_code(x: str, info: TensorInfo, out: TensorInfo, *, overlaps: bool) -> Code:
    """The code that writes a tensor into `out`, which has its dtype."""
    if out.framework == info.framework:
        destination = "out"
    else:
        destination = _adopt_code("out", out)
    if overlaps:
        written = f"{destination}.copy_(y, non_blocking=True)"
    else:
        written = f"{destination}.copy_(y)"
    return Code(x, (written, "y = out"))


def _write_code(x: str, info: TensorInfo, out: TensorInfo) -> Code:
    """The code that writes the values of an array into `out`, cast by NumPy."""
    if out.device != HOST or out.conjugate or out.negative:
        cast = _adopt_cast("y", info, out.dtype)
        return Code(x, (f"out.copy_({cast.expression})", "y = out"))
    from ..numpy.declared import write_code

    return write_code(x, info, out, _export_code("out", out))


def _adopt_code(x: str, info: TensorInfo) -> str:
    """The code for a tensor over the memory of an array."""
    # As integers first, because `as_strided` does not know every dtype of ml_dtypes.
    as_integer = AS_INTEGERS.get(info.dtype)
    if as_integer:
        array = f"{x}.view(np.{as_integer})"
    else:
        array = x
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


_SNIPPETS_BY_INFO: dict[str, Callable[[str, TensorInfo], str]] = {
    "detach": _detach_code,
    "export": _export_code,
    "adopt": _adopt_code,
    "stack": _stack_code,
    "pin": _pin_code,
}


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


@cache
def capabilities_by(default: str, records: bool, traces: bool) -> Capabilities:
    """The capabilities, by default dtype and by whether autograd and `torch.jit.trace` record."""
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


DECLARED = Declared(
    "torch",
    capabilities_by("float32", True, False),
    snippet,
    {"torch": "import torch", "ferry": "import tensorferry as ferry"},
    # (https://docs.pytorch.org/docs/stable/notes/mps.html; Metal has no 64-bit floats)
    {"mps": DeviceFacts(absent=frozenset({"float64", "complex128"}))},
)
