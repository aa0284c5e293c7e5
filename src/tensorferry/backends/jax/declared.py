"""What JAX can do, and the code that a person would type for each of its verbs.

It has 64-bit dtypes only if they are switched on.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from ...core.capabilities import Capabilities, Devices, Dtypes, Gradients, Memory, Objects
from ...core.declaration import Code, Declared
from ...core.devices import HOST
from ...core.dtypes import DTYPES, find
from ...core.layout import ALIGNMENT
from ..numpy import declared as arrays

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...core.declaration import VerbCall
    from ...core.info import TensorInfo

__all__ = [
    "DECLARED",
    "NARROW",
    "PACKED",
    "SIX_BITS",
    "X64",
    "capabilities",
    "loses_imaginary",
    "snippet",
]


def snippet(call: VerbCall) -> Code | str:
    """See `Backend.snippet`."""
    verb, arguments, info, x, details = call
    if verb == "cast":
        return _cast_code(x, info, *arguments, caster=details.caster)
    if verb == "view":
        remark = "tensorferry uses this memory; view copies it in JAX"
        return Code(f'{x}.view("{arguments[0]}")', remarks=(remark,))
    if verb == "move":
        return f"jax.device_put({x}, {_device_code(arguments[0])})"
    if verb == "place_over":
        remark = "sharding is what was given as device="
        return Code(f"jax.device_put({x}, sharding)", remarks=(remark,))
    return _SNIPPETS[verb](x)


_SNIPPETS: dict[str, Callable[[str], str]] = {
    "export": lambda x: f"np.asarray({x})",
    "fetch": lambda x: f"np.array({x})",
    "adopt": lambda x: f"jax.device_put({x})",
    "wait": lambda x: f"{x}.block_until_ready()",
    "copy": lambda x: f"jnp.array({x}, copy=True)",
    "import_dlpack": lambda x: f"jax.dlpack.from_dlpack({x})",
}


def loses_imaginary(before: str, after: str) -> bool:
    """Whether a cast leaves out the imaginary part, for which JAX wants ``.real`` to be written."""
    return find(before).kind == "complex" and find(after).kind not in ("complex", "bool")


def _cast_code(x: str, info: TensorInfo, dtype: str, check: str = "", *, caster: str) -> Code:
    """The code for a cast by JAX, or by NumPy, which XLA does not always agree with."""
    if not caster:
        if loses_imaginary(info.dtype, dtype):
            real = ".real"
        else:
            real = ""
        return Code(f'{x}{real}.astype("{dtype}")')
    cast = arrays.cast_code(f"np.asarray({x})", info, dtype, check)
    if info.device == HOST and info.shards == 1:
        place = _device_code(HOST)
    else:
        place = f"{x}.sharding"
    return cast._replace(expression=f"jax.device_put({cast.expression}, {place})")


def _device_code(device: str) -> str:
    kind, _, index = device.partition(":")
    return f'jax.devices("{"gpu" if kind == "cuda" else kind}")[{index or 0}]'


_WIDE = ("int64", "uint64", "float64", "complex128")
PACKED = frozenset({"int2", "int4", "uint2", "uint4", "float4_e2m1fn"})
SIX_BITS = frozenset({"float6_e2m3fn", "float6_e3m2fn"})
"""JAX has arrays of these from 0.11 on, with a byte for each element."""
# The one without 64-bit dtypes, and the other with them.
_BY_X64 = {
    "int_": ("int32", "int64"),
    "uint": ("uint32", "uint64"),
    "float_": ("float32", "float64"),
    "complex_": ("complex64", "complex128"),
}
_TRACED = "it is a tracer, inside a traced function (jax.jit, jax.grad, jax.vmap): its values do not exist yet"
_NO_X64 = " while jax_enable_x64 is off (https://docs.jax.dev/en/latest/default_dtypes.html)"


@cache
def capabilities(*, x64: bool, six_bits: bool) -> Capabilities:
    """What JAX can do, with 64-bit dtypes and with those of six bits, or without them."""
    return Capabilities(
        dtypes=Dtypes(
            held=frozenset(DTYPES)
            - frozenset(() if six_bits else SIX_BITS)
            - frozenset(() if x64 else _WIDE),
            numbers={
                "bool": ("bool",),
                "int": ("int64",) if x64 else ("int32",),
                "float": ("float64",) if x64 else ("float32",),
                "complex": ("complex128",) if x64 else ("complex64",),
            },
            unshared=PACKED,
            # XLA cannot compile a cast from or to six bits for every processor.
            uncast=SIX_BITS,
            unexported=PACKED | SIX_BITS,
            absent_reasons={} if x64 else dict.fromkeys(_WIDE, _NO_X64),
            absent_hint='jax.config.update("jax_enable_x64", True) first',
            since=dict.fromkeys(SIX_BITS, "0.11"),
            words=_BY_X64,
        ),
        memory=Memory(writable=False, strides="compact", alignment=ALIGNMENT),
        devices=Devices(
            ("cpu", "cuda", "tpu"),
            shards=True,
            fetches=True,
            fetches_ahead=True,
            exports_dlpack=True,
            offloads=True,
        ),
        gradients=Gradients(stopped="jax.lax.stop_gradient(x)"),
        objects=Objects(
            abstract={
                "traced": (
                    _TRACED,
                    (
                        "convert before or after the traced function; inside it, stay in JAX, or call "
                        "a wrapped function"
                    ),
                ),
                "deleted": (
                    "it has been deleted or donated: its memory belongs to another array",
                    "convert before it is donated, or jit without donate_argnums",
                ),
                "key": ("it is an array of random keys", "jax.random.key_data(x)"),
            },
            inside_only=frozenset({"traced", "key"}),
            opaque=frozenset({"key"}),
        ),
    )


NARROW, X64 = capabilities(x64=False, six_bits=False), capabilities(x64=True, six_bits=False)

DECLARED = Declared("jax", NARROW, snippet, {"jax": "import jax", "jnp": "import jax.numpy as jnp"})
