"""A million Python numbers, a thousand arrays, and back to lists."""

from __future__ import annotations

from typing import Any

from .case import Case, Pace, Section, Target
from .small import modules

__all__ = ["SECTIONS"]

READING = Pace(rounds=25, batch=0.0, best=False, limit=4.0)
"""JAX takes a second or more to read a million numbers, so few rounds have to do there."""

_TARGETS = {
    "torch": ("torch.tensor({0})", Target(ratio=0.25)),
    "tensorflow": ("tf.constant({0})", Target(ratio=1.1)),
    "jax": ("jnp.asarray({0})", Target(ratio=0.05)),
    "numpy": ("np.array({0})", Target(ratio=1.05)),
}


def _world() -> dict[str, Any]:
    import numpy as np

    rng = np.random.default_rng(3)
    numbers = rng.standard_normal(1_000_000)
    flat = numbers.tolist()
    whole = rng.integers(-(2**31), 2**31, 1_000_000).tolist()
    array = numbers.astype(np.float32)
    return {
        **modules(),
        "floats": flat,
        "rows": [flat[start : start + 1000] for start in range(0, 1_000_000, 1000)],
        "ints": whole,
        "int_rows": [whole[start : start + 1000] for start in range(0, 1_000_000, 1000)],
        "arrays": list(array.reshape(1000, 1000)),
        "a": array,
        "m": array.reshape(1000, 1000),
        "d": numbers,
    }


def _read(*names: str, bound: bool = True) -> tuple[Case, ...]:
    return tuple(
        Case(f"ferry.to_{target}({name})", theirs.format(name), limit if bound else Target())
        for name in names
        for target, (theirs, limit) in _TARGETS.items()
    )


_ARRAYS = (
    Case("ferry.to_torch(arrays)", "torch.tensor(arrays)", Target(ratio=0.02)),
    Case("ferry.to_numpy(arrays)", "np.array(arrays)", Target()),
    Case("ferry.to_tensorflow(arrays)", "tf.constant(arrays)", Target()),
    Case("ferry.to_jax(arrays)", "jnp.asarray(arrays)", Target()),
)

_LISTS = (
    Case("ferry.to_list(a)", "a.tolist()", Target(ratio=1.1)),
    Case("ferry.to_list(m)", "m.tolist()", Target(ratio=1.1)),
    Case("ferry.to_list(d)", "d.tolist()", Target(ratio=1.1)),
)

SECTIONS = (
    Section("1,000,000 Python floats, flat and 1000 x 1000", _world, _read("floats", "rows"), READING),
    Section("1,000,000 Python ints, likewise", _world, _read("ints", "int_rows", bound=False), READING),
    Section("1000 arrays of 1000 float32", _world, _ARRAYS, READING),
    Section("1,000,000 numbers to lists", _world, _LISTS, READING),
)
