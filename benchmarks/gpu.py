"""The same on a CUDA device: measured where there is one, and said where there is none."""

from __future__ import annotations

from typing import Any

from .case import LARGE, Case, Section, Target
from .small import modules

__all__ = ["SECTIONS", "no_cuda"]


def no_cuda() -> str | None:
    import torch

    return None if torch.cuda.is_available() else "no CUDA device"


def _world(length: int) -> dict[str, Any]:
    import numpy as np
    import torch

    array = np.arange(length, dtype=np.float32)
    return {
        **modules(),
        "a": array,
        "c": torch.from_numpy(array).cuda(),
        "h": torch.from_numpy(array).cuda().bfloat16(),
        "sync": torch.cuda.synchronize,
    }


_SMALL = (
    Case("ferry.to_numpy(c)", "c.detach().cpu().numpy()", Target(extra=5e-6)),
    Case("ferry.to_list(c)", "c.tolist()", Target(extra=5e-6)),
    Case('ferry.to_torch(a, device="cuda")', 'torch.as_tensor(a, device="cuda")', Target(extra=5e-6)),
    Case('ferry.to_torch(c, device="cpu")', "c.cpu()", Target(extra=5e-6)),
)

_LARGE = (
    Case("ferry.to_numpy(c)", "c.detach().cpu().numpy()", Target(ratio=1.1)),
    Case("ferry.to_numpy(h)", "h.cpu().view(torch.int16).numpy().view(ml_dtypes.bfloat16)", Target(ratio=1.1)),
    Case(
        'ferry.to_numpy(c, dtype="bfloat16")',
        "c.bfloat16().cpu().view(torch.int16).numpy().view(ml_dtypes.bfloat16)",
        Target(ratio=1.1),
    ),
    Case(
        '(ferry.to_torch(a, device="cuda"), sync())', '(torch.as_tensor(a, device="cuda"), sync())', Target(ratio=1.1)
    ),
    Case(
        '(ferry.to_torch(a, device="cuda", non_blocking=True), sync())',
        '(torch.from_numpy(a).pin_memory().to("cuda", non_blocking=True), sync())',
        Target(ratio=1.1),
    ),
)

SECTIONS = (
    Section("GPU: 16 float32", lambda: _world(16), _SMALL, absent=no_cuda),
    Section("GPU: 400 MB", lambda: _world(100_000_000), _LARGE, LARGE, absent=no_cuda),
)
