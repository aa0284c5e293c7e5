"""The code that a person would type for each of PyTorch's verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.devices import HOST
from ...core.dtypes import find, is_misrounded
from ...core.layout import packed_strides
from ..numpy import snippets as arrays

if TYPE_CHECKING:
    from ...core.info import TensorInfo

__all__ = ["AS_INTEGERS", "snippet", "snippet_with_a_warning", "whole_strides"]

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
    return "{x}.contiguous().pin_memory()" if info.overlaps_itself else "{x}.pin_memory()"


def _spread_code(arguments: tuple[Any, ...]) -> str:
    """The code that gives elements that share memory memory of their own."""
    whole = "expand" if len(arguments) == 1 else "as_strided"
    return f"{{x}}.{whole}({', '.join(map(str, arguments))}).contiguous()"


def _cast_code(dtype: str, check: str = "", caster: str = "", *, info: TensorInfo) -> str:
    """The code for a cast: by NumPy, or by PyTorch with NumPy's values as far as that is short, or else as it casts."""
    if caster == "host":
        values = "{x}.detach()" if info.requires_grad else "{x}"
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
    return f'{{x}}.to("{device}", torch.{dtype})' if plain else f'{cast}.to("{device}")'


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
        destination = (
            "out"
            if out.framework == info.framework
            else _adopt_code(out, AS_INTEGERS.get(out.dtype)).format(x="out")
        )
        return f"{destination}.copy_({{y}}{', non_blocking=True' if overlaps else ''}); {{y}} = out"
    if out.device != HOST or out.conjugate or out.negative:
        return f"out.copy_({_adopt_cast(out.dtype, '', '{y}', info)}); {{y}} = out"
    array = snippet("export", (), out).format(x="out")
    return arrays.snippet("write", (out,), info).replace("copyto(out,", f"copyto({array},")


def _adopt_code(info: TensorInfo, as_integer: str | None) -> str:
    # As integers first, because `as_strided` does not know every dtype of ml_dtypes.
    array = f"{{x}}.view(np.{as_integer})" if as_integer else "{x}"
    if any(step < 0 or step % find(info.dtype).itemsize for step in info.strides):
        steps = whole_strides(info.shape, info.strides, find(info.dtype).itemsize)
        array = f"np.lib.stride_tricks.as_strided({array}, strides={steps})"
    # `from_numpy` warns about read-only memory; DLPack does not.
    code = f"torch.from_numpy({array})"
    if not info.writable:
        code = f"torch.utils.dlpack.from_dlpack({array}.__dlpack__(max_version=(1, 0)))"
    return f"{code}.view(torch.{info.dtype})" if as_integer else code


def whole_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int
) -> tuple[int, ...]:
    """The strides, with ordinary ones for axes of length 1, whose strides PyTorch may refuse."""
    return tuple(
        step if length > 1 else itemsize for length, step in zip(shape, strides, strict=True)
    )
