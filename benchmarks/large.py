"""Large tensors, 400 MB: sharing takes no longer than for small ones, copying is one pass."""

from __future__ import annotations

from typing import Any

from .case import LARGE, Case, Section, Target
from .small import modules, tensors

__all__ = ["SECTIONS"]

BIG = 100_000_000
"""float32 elements, 400 MB."""
LITTLE = 1000
"""float32 elements, 4 KB."""

SAME_TIME = Target(ratio=1.25)
NINE_TENTHS = Target(ratio=1 / 0.9)


def _both_sizes() -> dict[str, Any]:
    names = modules()
    for suffix, length in (("400MB", BIG), ("4KB", LITTLE)):
        names |= {f"{name}_{suffix}": value for name, value in tensors(length).items()}
    return names


def _big() -> dict[str, Any]:
    return {**modules(), **tensors(BIG)}


def _wide() -> dict[str, Any]:
    import numpy as np

    rng = np.random.default_rng(2)
    return {
        **modules(),
        "f": rng.random(BIG // 2, np.float32),
        "d": rng.random(BIG // 2),
        "i": rng.integers(-(2**31), 2**31, BIG // 2),
    }


def _sharing(*calls: str) -> tuple[Case, ...]:
    return tuple(
        Case(call.format(size="400MB"), call.format(size="4KB"), SAME_TIME) for call in calls
    )


def _copying(*calls: str) -> tuple[Case, ...]:
    return tuple(Case(call, "a.copy()", NINE_TENTHS) for call in calls)


_SHARED = _sharing(
    "ferry.to_numpy(t_{size})",
    "ferry.to_numpy(x_{size})",
    "ferry.to_numpy(j_{size})",
    "ferry.to_torch(a_{size})",
    "ferry.to_torch(x_{size}, copy=False)",
    "ferry.to_torch(j_{size}, copy=False)",
    "ferry.to_tensorflow(a_{size}, copy=False)",
    "ferry.to_tensorflow(t_{size}, copy=False)",
    "ferry.to_tensorflow(j_{size})",
    "ferry.to_jax(a_{size}, copy=False)",
    "ferry.to_jax(t_{size}, copy=False)",
    "ferry.to_jax(x_{size})",
)

_COPIED = _copying(
    "ferry.to_numpy(a, copy=True)",
    "ferry.to_numpy(t, copy=True)",
    "ferry.to_numpy(x, copy=True)",
    "ferry.to_torch(a, copy=True)",
    "ferry.to_torch(x)",
    "ferry.to_torch(j)",
    "ferry.to_tensorflow(a)",
    "ferry.to_tensorflow(t)",
    "ferry.to_jax(a)",
    "ferry.to_jax(t)",
)

_CAST = (
    Case('ferry.to_numpy(f, dtype="float64")', 'f.astype("float64")', NINE_TENTHS),
    Case('ferry.to_numpy(d, dtype="float32")', 'd.astype("float32")', NINE_TENTHS),
    Case('ferry.to_numpy(f, dtype="bfloat16")', "f.astype(ml_dtypes.bfloat16)", NINE_TENTHS),
    Case('ferry.to_torch(f, dtype="float16")', 'f.astype("float16")', NINE_TENTHS),
    Case('ferry.to_jax(d, dtype="float32")', 'd.astype("float32")', NINE_TENTHS),
    Case('ferry.to_numpy(i, dtype="int32", casting="unsafe")', 'i.astype("int32")', NINE_TENTHS),
    Case(
        'ferry.to_torch(i, dtype="int32")', 'i.astype("int32", casting="same_value")', NINE_TENTHS
    ),
)

SECTIONS = (
    Section("Large, sharing: 400 MB over 4 KB, both ours", _both_sizes, _SHARED),
    Section("Large, copying 400 MB at 0.9 of the rate of ndarray.copy()", _big, _COPIED, LARGE),
    Section("Large, another dtype in one pass", _wide, _CAST, LARGE),
)
