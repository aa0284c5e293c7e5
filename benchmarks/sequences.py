"""A million Python numbers, a thousand arrays, and back to lists."""

from __future__ import annotations

from typing import Any

from .case import Case, Pace, Section, Target
from .small import modules

__all__ = ["SECTIONS"]

READING = Pace(rounds=25, batch=0.0, best=True, limit=4.0)
"""JAX takes a second or more to read a million numbers, so few rounds have to do there."""

_HANDS = {
    "torch": "torch.tensor({0})",
    "numpy": "np.array({0})",
    "tensorflow": "tf.constant({0})",
    "jax": "jnp.asarray({0})",
}
_TARGETS = {"torch": 0.04, "numpy": 0.3, "tensorflow": 0.9, "jax": 0.004}
_SHUFFLED = {**_TARGETS, "torch": 0.08, "jax": 0.01}
"""Where objects lie in another order than in the list, as after a sort, most of the time is waiting for memory."""


def _world() -> dict[str, Any]:
    import numpy as np

    rng = np.random.default_rng(3)
    numbers = rng.standard_normal(1_000_000)
    flat = numbers.tolist()
    whole = rng.integers(-(2**31), 2**31, 1_000_000).tolist()
    order = rng.permutation(1_000_000).tolist()
    array = numbers.astype(np.float32)
    return {
        **modules(),
        "floats": flat,
        "rows": [flat[start : start + 1000] for start in range(0, 1_000_000, 1000)],
        "shuffled": [flat[place] for place in order],
        "ints": whole,
        "shuffled_ints": [whole[place] for place in order],
        "mixed": [(number, place, place > 7)[place % 3] for place, number in enumerate(flat)],
        "int_rows": [whole[start : start + 1000] for start in range(0, 1_000_000, 1000)],
        "arrays": list(array.reshape(1000, 1000)),
        "a": array,
        "m": array.reshape(1000, 1000),
        "d": numbers,
    }


def _few() -> dict[str, Any]:
    return {**modules(), "three": [1.0, 2.0, 3.0], "three_ints": [1, 2, 3]}


def _read(limits: dict[str, float], *names: str) -> tuple[Case, ...]:
    return tuple(
        Case(f"ferry.to_{target}({name})", theirs.format(name), Target(ratio=limits[target]))
        for name in names
        for target, theirs in _HANDS.items()
    )


def _in_one_pass(target: str) -> tuple[Case, ...]:
    return tuple(
        Case(
            f'ferry.to_{target}({name}, dtype="{dtype}")',
            f"ferry.to_{target}({name})",
            Target(ratio=1.3),
        )
        for name, dtype in (
            ("floats", "float32"),
            ("floats", "bfloat16"),
            ("floats", "float16"),
            ("ints", "int32"),
        )
    )


_FEW = tuple(
    Case(f"ferry.to_{target}({name})", _HANDS[target].format(name), Target(ratio=limit))
    for name in ("three", "three_ints")
    for target, limit in (("torch", 1.0), ("numpy", 2.5), ("tensorflow", 1.0), ("jax", 1.0))
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
    Section("Three Python numbers", _few, _FEW),
    Section(
        "1,000,000 Python floats, flat and 1000 x 1000",
        _world,
        _read(_TARGETS, "floats", "rows"),
        READING,
    ),
    Section(
        "1,000,000 Python ints, likewise", _world, _read(_TARGETS, "ints", "int_rows"), READING
    ),
    Section("1,000,000 ints, floats and bools", _world, _read(_TARGETS, "mixed"), READING),
    Section(
        "1,000,000 objects in another order",
        _world,
        _read(_SHUFFLED, "shuffled", "shuffled_ints"),
        READING,
    ),
    Section(
        "1,000,000 numbers as another dtype",
        _world,
        (*_in_one_pass("torch"), *_in_one_pass("numpy")),
        READING,
    ),
    Section("1000 arrays of 1000 float32", _world, _ARRAYS, READING),
    Section("1,000,000 numbers to lists", _world, _LISTS, READING),
)
