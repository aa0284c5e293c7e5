"""Pair x layout x dtype x keyword: what crosses the bus is what the plan says, and the bits are the CPU's."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.support import bits, dtype_name

import tensorferry as ferry

torch = pytest.importorskip("torch")

DTYPES = {
    "wide": (
        "bool",
        "uint8",
        "int16",
        "int32",
        "int64",
        "float16",
        "float32",
        "float64",
        "complex64",
    ),
    "narrow": ("bfloat16", "float8_e4m3fn", "float8_e5m2"),
}
EVERY = (*DTYPES["wide"], *DTYPES["narrow"])

LAYOUTS = {
    "compact": lambda x: x,
    "transposed": lambda x: x.T,
    "strided": lambda x: x[:, ::2],
    "offset": lambda x: x.reshape(-1)[1:],
    "expanded": lambda x: x[:1].expand(7, 6),
    "expanded in a graph": lambda x: x[:1].detach().requires_grad_().expand(7, 6),
    "expanded in the middle": lambda x: x[:, None, ::2].expand(4, 5, 3),
    "windows": lambda x: x.reshape(-1).unfold(0, 6, 2),
    "0-d": lambda x: x[1, 1],
    "empty": lambda x: x[:0],
    "conjugate": lambda x: x.conj(),
    "grad": lambda x: x.detach().requires_grad_(),
}
"""What becomes of a compact tensor of shape (4, 6)."""

CASTS = ("bool", "int8", "int64", "float16", "float64", "bfloat16", "float8_e4m3fn", "complex64")
"""What `dtype` names: narrower and wider, rounded and checked by value, done on a device and by the host only."""


class Transfer(NamedTuple):
    """From where to where, and with which keywords besides ``dtype``."""

    source: str
    target: str
    device: str | None = None
    keywords: tuple[dict[str, Any], ...] = ({},)


TRANSFERS = [
    Transfer("sim:0", "numpy", None, ({}, {"copy": True}, {"pinned": True})),
    Transfer("sim:1", "torch", "cpu", ({}, {"pinned": True}, {"non_blocking": True})),
    Transfer("sim:1", "python"),
    Transfer("sim:0", "jax"),
    Transfer("sim:0", "tensorflow"),
    Transfer("sim:0", "torch", "sim:1", ({}, {"non_blocking": True})),
    Transfer("sim:1", "torch", None, ({}, {"copy": True}, {"non_blocking": True})),
    Transfer("torch", "torch", "sim:1", ({}, {"non_blocking": True}, {"copy": True})),
    Transfer("pinned", "torch", "sim:1", ({}, {"non_blocking": True})),
    Transfer("numpy", "torch", "sim", ({}, {"non_blocking": True})),
    Transfer("jax", "torch", "sim:1", ({}, {"non_blocking": True})),
    Transfer("tensorflow", "torch", "sim:0", ({}, {"non_blocking": True})),
]


def _case(transfer, asked):
    words = [
        transfer.source,
        transfer.target,
        transfer.device or "stays",
        *(f"{key}={value}" for key, value in asked.items()),
    ]
    return pytest.param(transfer, asked, id="-".join(words))


CASES = [
    _case(transfer, asked)
    for transfer in TRANSFERS
    for asked in (*transfer.keywords, *({"dtype": name} for name in CASTS))
]


def cells(transfer):
    """The tensors that go a transfer: (layout, dtype)."""
    for layout, name in itertools.product(LAYOUTS, EVERY):
        if layout == "conjugate" and not name.startswith("complex"):
            continue
        if "gra" in layout and not name.startswith(("float", "bfloat", "complex")):
            continue
        if transfer.source in ("numpy", "jax", "tensorflow") and layout not in (
            "compact",
            "transposed",
            "0-d",
            "empty",
        ):
            continue
        if transfer.source == "jax" and name in ("int64", "float64"):
            continue
        yield layout, name


def test_the_table_is_large():
    """As many cells as were promised."""
    assert sum(len(list(cells(case.values[0]))) for case in CASES) >= 800


def on_host(layout, name):
    """The tensor of a cell in ordinary memory."""
    values = torch.arange(24).reshape(4, 6) % (2 if name == "bool" else 5)
    return LAYOUTS[layout](values.to(getattr(torch, name)))


def placed(layout, name, source):
    """The same where the transfer begins."""
    if source.startswith("sim"):
        whole = torch.arange(24).reshape(4, 6) % (2 if name == "bool" else 5)
        return LAYOUTS[layout](whole.to(getattr(torch, name)).to(source))
    x = on_host(layout, name)
    if source == "torch":
        return x
    if source == "pinned":
        whole = torch.empty_like(x, pin_memory=True)
        return whole.copy_(x) if not x.requires_grad else whole.copy_(x.detach()).requires_grad_()
    return ferry.convert(x.detach(), source, copy=True)


def outcome(x, target, keywords):
    """The result, or the kind of error."""
    try:
        return ferry.convert(x, target, **keywords), None
    except ferry.ConversionError as error:
        return None, type(error)


def wrong(sim, transfer, asked, layout, name):
    """What is wrong with a cell, or ``None``."""
    keywords = {**asked, **({} if transfer.device is None else {"device": transfer.device})}
    x = placed(layout, name, transfer.source)
    apart = {key: value for key, value in asked.items() if key in ("dtype", "copy")}
    expected, refused = outcome(on_host(layout, name), transfer.target, apart)
    with sim.tracing() as looked:
        ferry.describe(x)
        try:
            plan = ferry.explain(x, transfer.target, **keywords)
        except ferry.ConversionError as error:
            return (
                None
                if type(error) is refused
                else f"explain raises {error!r}, on the CPU {refused}"
            )
    if looked:
        return f"describe and explain are not only looking: {looked}"
    with sim.tracing() as seen:
        result, error = outcome(x, transfer.target, keywords)
    if error is not refused:
        return f"raises {error}, on the CPU {refused}"
    if refused is not None:
        return None
    planned = [step.bytes for step in plan.steps if step.path == "bus" and step.bytes]
    crossed = [each.bytes for each in seen.bus]
    if planned != crossed:
        return f"planned {planned}, crossed {crossed}: {[step.verb for step in plan.steps]} {seen.counts()}"
    kernels = [each for each in seen if each.kind == "kernel"]
    if len([step for step in plan.steps if step.path == "device" and step.bytes]) > len(kernels):
        return f"steps on the device that the device has not seen: {plan.steps}"
    if any(each.kind == "fallback" for each in seen):
        return f"the CPU has to help: {seen}"
    return differs(result, expected, plan, asked)


def content(x):
    """The bytes of a tensor in C order; of TensorFlow's, whose scalars of a narrow dtype are no arrays to NumPy."""
    return np.asarray(x.numpy()).tobytes() if hasattr(x, "backing_device") else bits(x)


def differs(result, expected, plan, asked):
    """How a result is not what the CPU gives, or not what the plan says."""
    if isinstance(expected, (list, int, float, complex, bool)):
        return None if repr(result) == repr(expected) else f"{result} instead of {expected}"
    told = ferry.describe(result)
    if (
        plan.result.device not in (told.device, told.device.partition(":")[0])
        or told.dtype != plan.result.dtype
    ):
        return f"{told} instead of {plan.result}"
    if dtype_name(result) != dtype_name(expected) or tuple(result.shape) != tuple(expected.shape):
        return f"{result.dtype} {result.shape} instead of {expected.dtype} {expected.shape}"
    if content(result) != content(expected):
        return f"other bits: {result} instead of {expected}"
    if asked.get("pinned") and told.size:
        memory = (
            torch.from_numpy(np.ravel(result, "K").view(np.uint8))
            if isinstance(result, np.ndarray)
            else result
        )
        return None if memory.is_pinned() else "not in page-locked memory"
    return None


@pytest.mark.parametrize(("transfer", "asked"), CASES)
def test_the_bus_carries_what_the_plan_says_and_the_bits_are_the_cpus(sim, transfer, asked):
    """All layouts and dtypes of one transfer with one keyword."""
    if transfer.target in ("jax", "tensorflow"):
        pytest.importorskip(transfer.target)
    if transfer.source in ("jax", "tensorflow"):
        pytest.importorskip(transfer.source)
    found = {cell: wrong(sim, transfer, asked, *cell) for cell in cells(transfer)}
    failed = {cell: what for cell, what in found.items() if what is not None}
    shown = "\n".join(
        f"{' '.join(cell)}: {what}" for cell, what in itertools.islice(failed.items(), 8)
    )
    assert not failed, f"{len(failed)} of {len(found)} cells:\n{shown}"


def test_the_table_would_notice(sim):
    """A transfer that the plan does not have, and bits that are not the CPU's."""
    x = torch.arange(3.0, device="sim")
    plan = ferry.explain(x, "numpy")
    assert differs(np.float32([0, 1, 3]), np.float32([0, 1, 2]), plan, {})
    with sim.tracing() as seen:
        x.cpu(), x.to("sim:1")
    assert [each.bytes for each in seen.bus] == [12, 12]
