"""The same on an accelerator of PyTorch's: measured where there is one, and said where there is none."""

from __future__ import annotations

import importlib
from typing import Any

from .case import LARGE, SMALL, Case, Section, Target
from .small import modules

__all__ = ["SECTIONS", "accelerator", "no_gpu"]

FOUR_FIFTHS = Target(ratio=1 / 0.8)
"""Of the rate of a copy from or to page-locked memory, as this machine does it in the same run."""
AS_FAST = Target(ratio=1.05)
TWICE = Target(ratio=2.0)

QUARTER = 64_000_000
"""float32 elements, 256 MB."""


def accelerator() -> str:
    """The kind of device that PyTorch has here."""
    import torch

    return (
        str(torch.accelerator.current_accelerator().type)
        if torch.accelerator.is_available()
        else ""
    )


def no_gpu() -> str | None:
    """Why nothing can be measured on a GPU here, if nothing can."""
    return None if accelerator() else "PyTorch has no accelerator here"


def _no_jax() -> str | None:
    import jax

    try:
        jax.devices("gpu")
    except RuntimeError:
        return no_gpu() or "JAX sees no GPU"
    return no_gpu()


def _no_cupy() -> str | None:
    try:
        importlib.import_module("cupy")
    except ImportError:
        return no_gpu() or "CuPy is not installed"
    return no_gpu()


def _world(length: int) -> dict[str, Any]:
    import numpy as np
    import torch

    array, gpu = np.arange(length, dtype=np.float32), accelerator()
    return {
        **modules(),
        "gpu": gpu,
        "a": array,
        "c": torch.from_numpy(array).to(gpu),
        "h": torch.from_numpy(array).to(gpu).bfloat16(),
        "sync": torch.accelerator.synchronize,
    }


def _with_locked() -> dict[str, Any]:
    """Page-locked memory and memory of the device to copy to and from, allocated beforehand."""
    import torch

    names = _world(QUARTER)
    locked = torch.empty(QUARTER, pin_memory=True)
    return {
        **names,
        "locked": locked.fill_(1.0),
        "there": torch.empty(QUARTER, device=names["gpu"]),
    }


def _with_jax() -> dict[str, Any]:
    import torch

    names = _world(QUARTER)
    return {**names, "j": names["jax"].dlpack.from_dlpack(torch.ones(QUARTER, device=names["gpu"]))}


def _with_cupy() -> dict[str, Any]:
    cupy = importlib.import_module("cupy")
    return {**_world(QUARTER), "cupy": cupy, "k": cupy.ones(QUARTER, "float32")}


_SMALL = (
    Case("ferry.to_numpy(c)", "c.detach().cpu().numpy()", Target(extra=5e-6)),
    Case("ferry.to_list(c)", "c.tolist()", Target(extra=5e-6)),
    Case("ferry.to_torch(a, device=gpu)", "torch.as_tensor(a, device=gpu)", Target(extra=5e-6)),
    Case('ferry.to_torch(c, device="cpu")', "c.cpu()", Target(extra=5e-6)),
)

# Beside the plain line, which is by pageable memory, and beside what the bus can do.
_DOWN = (
    Case("ferry.to_numpy(c)", "c.detach().cpu().numpy()", AS_FAST),
    Case("ferry.to_numpy(c)", "(locked.copy_(c, non_blocking=True), sync())", Target()),
    Case(
        "ferry.to_numpy(c, pinned=True)",
        "(locked.copy_(c, non_blocking=True), sync())",
        FOUR_FIFTHS,
    ),
    Case(
        'ferry.start(c, "numpy").result()',
        "(locked.copy_(c, non_blocking=True), sync())",
        FOUR_FIFTHS,
    ),
    Case(
        "ferry.to_numpy(h)", "h.cpu().view(torch.int16).numpy().view(ml_dtypes.bfloat16)", AS_FAST
    ),
    Case(
        'ferry.to_numpy(c, dtype="bfloat16")',
        "c.bfloat16().cpu().view(torch.int16).numpy().view(ml_dtypes.bfloat16)",
        AS_FAST,
    ),
)

_UP = (
    Case(
        "(ferry.to_torch(a, device=gpu), sync())", "(torch.from_numpy(a).to(gpu), sync())", AS_FAST
    ),
    Case(
        "(ferry.to_torch(a, device=gpu), sync())",
        "(there.copy_(locked, non_blocking=True), sync())",
        Target(),
    ),
    Case(
        "(ferry.to_torch(locked, device=gpu, non_blocking=True), sync())",
        "(there.copy_(locked, non_blocking=True), sync())",
        FOUR_FIFTHS,
    ),
    Case(
        "(ferry.to_torch(a, device=gpu, non_blocking=True), sync())",
        "(torch.from_numpy(a).pin_memory().to(gpu, non_blocking=True), sync())",
        AS_FAST,
    ),
)

_TO_JAX = (
    Case("ferry.to_jax(c, copy=False)", "jax.dlpack.from_dlpack(c)", TWICE),
    Case("ferry.to_torch(j, copy=False)", "torch.from_dlpack(j)", TWICE),
)

_TO_CUPY = (
    Case('ferry.convert(c, "cupy", copy=False)', "cupy.from_dlpack(c)", TWICE),
    Case("ferry.to_torch(k, copy=False)", "torch.from_dlpack(k)", TWICE),
)

SECTIONS = (
    Section("GPU: 16 float32", lambda: _world(16), _SMALL, absent=no_gpu),
    Section("GPU: 256 MB to the host", _with_locked, _DOWN, LARGE, absent=no_gpu),
    Section("GPU: 256 MB from the host", _with_locked, _UP, LARGE, absent=no_gpu),
    Section("GPU: 256 MB to and from JAX on the device", _with_jax, _TO_JAX, SMALL, absent=_no_jax),
    Section(
        "GPU: 256 MB to and from CuPy on the device", _with_cupy, _TO_CUPY, SMALL, absent=_no_cupy
    ),
)
