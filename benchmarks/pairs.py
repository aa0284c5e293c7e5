"""Every pair of frameworks, plain and with every keyword, 16 elements: what a call costs over the line by hand."""

from __future__ import annotations

from typing import Any

from .case import Case, Pace, Section, Target
from .small import bfloat16, float32

__all__ = ["CASTS", "COPIES", "PLAIN", "SECTIONS", "TARGETS", "TRACKED", "cases", "world"]

OVER = Target(extra=2e-6)
OVER_OUT = Target(extra=3e-6)
OFTEN = Pace(rounds=60, batch=5e-4, best=True)
"""Fewer and shorter rounds than elsewhere: there are many rows."""

TARGETS = ("numpy", "torch", "tensorflow", "jax", "list")
"""The columns of the tables below, whose rows are the sources; `None` where the combination makes no sense."""

Hands = dict[str, tuple[str | None, ...]]

PLAIN: Hands = {
    "a": ("np.asarray(a)", "torch.from_numpy(a)", "tf.constant(a)", "jnp.asarray(a)", "a.tolist()"),
    "t": (
        "t.numpy()",
        "torch.as_tensor(t)",
        "tf.constant(t.numpy())",
        "jnp.asarray(t.numpy())",
        "t.tolist()",
    ),
    "x": (
        "x.numpy()",
        "torch.from_numpy(x.numpy())",
        "tf.convert_to_tensor(x)",
        "jnp.asarray(x.numpy())",
        "x.numpy().tolist()",
    ),
    "j": (
        "np.asarray(j)",
        "torch.from_numpy(np.array(j))",
        "tf.constant(np.asarray(j))",
        "jnp.asarray(j)",
        "j.tolist()",
    ),
    "l": ("np.array(l)", "torch.tensor(l)", "tf.constant(l)", "jnp.asarray(l)", "list(l)"),
}

TRACKED: Hands = {
    name: (
        f"{name}.detach().numpy()",
        f"torch.as_tensor({name})",
        f"tf.constant({name}.detach().numpy())",
        f"jnp.asarray({name}.detach().numpy())",
        f"{name}.tolist()",
    )
    for name in ("g", "p")
}

_BITS = "t.view(torch.int16).numpy().view(ml_dtypes.bfloat16)"
_NARROW: Hands = {
    "a": (
        "np.asarray(a)",
        "torch.from_numpy(a.view(np.int16)).view(torch.bfloat16)",
        "tf.constant(a)",
        "jnp.asarray(a)",
        "a.astype(np.float32).tolist()",
    ),
    "t": (
        _BITS,
        "torch.as_tensor(t)",
        f"tf.constant({_BITS})",
        f"jnp.asarray({_BITS})",
        "t.tolist()",
    ),
    "x": (
        "x.numpy()",
        "torch.from_numpy(x.numpy().view(np.int16)).view(torch.bfloat16)",
        "tf.convert_to_tensor(x)",
        "jnp.asarray(x.numpy())",
        "x.numpy().astype(np.float32).tolist()",
    ),
    "j": (
        "np.asarray(j)",
        "torch.from_numpy(np.array(j).view(np.int16)).view(torch.bfloat16)",
        "tf.constant(np.asarray(j))",
        "jnp.asarray(j)",
        "np.asarray(j).astype(np.float32).tolist()",
    ),
}

COPIES: Hands = {
    "a": ("a.copy()", "torch.from_numpy(a.copy())", "tf.constant(a)", "jnp.array(a)", "a.tolist()"),
    "t": (
        "t.numpy().copy()",
        "t.clone()",
        "tf.constant(t.numpy())",
        "jnp.array(t.numpy())",
        "t.tolist()",
    ),
    "x": (
        "x.numpy().copy()",
        "torch.from_numpy(x.numpy().copy())",
        "tf.constant(x.numpy())",
        "jnp.array(x.numpy())",
        "x.numpy().tolist()",
    ),
    "j": (
        "np.array(j)",
        "torch.from_numpy(np.array(j))",
        "tf.constant(np.asarray(j))",
        "jnp.array(j, copy=True)",
        "j.tolist()",
    ),
    "l": PLAIN["l"],
}

_SHARES: Hands = {
    "a": (
        "np.asarray(a, copy=False)",
        "torch.from_numpy(a)",
        "tf_dlpack.from_dlpack(a.__dlpack__())",
        "jnp.from_dlpack(a, copy=False)",
        None,
    ),
    "t": (
        "t.numpy()",
        "torch.as_tensor(t)",
        "tf_dlpack.from_dlpack(torch_dlpack.to_dlpack(t))",
        "jnp.from_dlpack(t, copy=False)",
        None,
    ),
    "x": (
        "np.from_dlpack(x)",
        "torch_dlpack.from_dlpack(tf_dlpack.to_dlpack(x))",
        "tf.convert_to_tensor(x)",
        "jnp.from_dlpack(x, copy=False)",
        None,
    ),
    "j": (
        "np.asarray(j)",
        "torch.from_dlpack(j)",
        "tf_dlpack.from_dlpack(j.__dlpack__())",
        "jnp.asarray(j)",
        None,
    ),
}

CASTS: Hands = {
    "a": (
        "a.astype(np.float16)",
        "torch.from_numpy(a).half()",
        "tf.constant(a, tf.float16)",
        "jnp.asarray(a.astype(np.float16))",
        "a.astype(np.float16).tolist()",
    ),
    "t": (
        "t.half().numpy()",
        "t.half()",
        "tf.constant(t.half().numpy())",
        "jnp.asarray(t.half().numpy())",
        "t.half().tolist()",
    ),
    "x": (
        "x.numpy().astype(np.float16)",
        "torch.from_numpy(x.numpy()).half()",
        "tf.cast(x, tf.float16)",
        "jnp.asarray(x.numpy().astype(np.float16))",
        "x.numpy().astype(np.float16).tolist()",
    ),
    "j": (
        "np.asarray(j).astype(np.float16)",
        "torch.from_numpy(np.asarray(j).astype(np.float16))",
        "tf.constant(np.asarray(j).astype(np.float16))",
        "j.astype(jnp.float16)",
        "np.asarray(j).astype(np.float16).tolist()",
    ),
    "l": (
        "np.array(l, np.float16)",
        "torch.tensor(l, dtype=torch.float16)",
        "tf.constant(l, tf.float16)",
        "jnp.asarray(l, jnp.float16)",
        "np.array(l, np.float16).tolist()",
    ),
}

_ON_HOST: Hands = {**PLAIN, "t": ("t.cpu().numpy()", "t.cpu()", *PLAIN["t"][2:])}

_LIKE: Hands = {
    **PLAIN,
    "l": (
        "np.array(l, np.float32)",
        "torch.tensor(l)",
        "tf.constant(l)",
        "jnp.asarray(l)",
        "list(l)",
    ),
}

_INTO: Hands = {
    "a": (
        "np.copyto(array, a) or array",
        "tensor.copy_(torch.from_numpy(a))",
        "variable.assign(a, read_value=False) or variable",
    ),
    "t": (
        "np.copyto(array, t.numpy()) or array",
        "tensor.copy_(t)",
        "variable.assign(t.numpy(), read_value=False) or variable",
    ),
    "x": (
        "np.copyto(array, x.numpy()) or array",
        "tensor.copy_(torch.from_numpy(x.numpy()))",
        "variable.assign(x, read_value=False) or variable",
    ),
    "j": (
        "np.copyto(array, np.asarray(j)) or array",
        "tensor.copy_(torch.from_numpy(np.array(j)))",
        "variable.assign(np.asarray(j), read_value=False) or variable",
    ),
    "l": (
        "np.copyto(array, l) or array",
        "tensor.copy_(torch.tensor(l))",
        "variable.assign(l, read_value=False) or variable",
    ),
}


def cases(hands: Hands, target: Target, *calls: str) -> tuple[Case, ...]:
    """The rows of a table.

    Args:
        hands: By source, the line by hand for each target.
        target: The bound of all.
        *calls: How the conversion is called, for each target, or for all alike.
    """
    return tuple(
        Case(calls[column % len(calls)].format(source=source, to=TARGETS[column]), hand, target)
        for source, row in hands.items()
        for column, hand in enumerate(row)
        if hand is not None
    )


def world() -> dict[str, Any]:
    """The same 16 numbers in every framework, and what can be written into."""
    names = float32()
    np, torch, tf = names["np"], names["torch"], names["tf"]
    written = {
        "array": np.empty(16, np.float32),
        "tensor": torch.empty(16),
        "variable": tf.Variable(tf.zeros(16)),
    }
    return {**names, **written}


def _section(title: str, hands: Hands, *calls: str, target: Target = OVER) -> Section:
    return Section(f"Every pair, 16 float32: {title}", world, cases(hands, target, *calls), OFTEN)


_CALL = "ferry.to_{to}({source})"

SECTIONS = (
    _section("plain", PLAIN, _CALL),
    _section("a gradient, a Parameter", TRACKED, _CALL),
    Section("Every pair, 16 bfloat16: plain", bfloat16, cases(_NARROW, OVER, _CALL), OFTEN),
    _section("copy=True", COPIES, "ferry.to_{to}({source}, copy=True)"),
    _section("copy=False", _SHARES, "ferry.to_{to}({source}, copy=False)"),
    _section("dtype=", CASTS, 'ferry.to_{to}({source}, dtype="float16")'),
    _section('device="cpu"', _ON_HOST, 'ferry.to_{to}({source}, device="cpu")'),
    _section("like=", _LIKE, *(f"ferry.convert({{source}}, like={like})" for like in "atxjl")),
    _section(
        "out=",
        _INTO,
        *(f"ferry.to_{{to}}({{source}}, out={out})" for out in ("array", "tensor", "variable")),
        target=OVER_OUT,
    ),
    # What a fast path is worth: the same calls without one.
    Section(
        "Every pair, 16 float32: plain, with the fast paths closed",
        world,
        cases({**PLAIN, **TRACKED}, Target(), _CALL),
        OFTEN,
        paths=False,
    ),
)
