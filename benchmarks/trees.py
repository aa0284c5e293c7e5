"""Trees of small leaves, and batches of samples, against PyTorch's own."""

from __future__ import annotations

from typing import Any

from .case import LARGE, Case, Section, Target
from .gpu import no_cuda
from .small import modules

__all__ = ["SECTIONS"]


def _world() -> dict[str, Any]:
    import numpy as np
    import torch
    import torch.utils._pytree as pytree
    from torch.nn.utils.rnn import pad_sequence
    from torch.utils.data import default_collate

    rng = np.random.default_rng(7)
    names = [f"layers.{number}.weight" for number in range(400)]
    samples = [
        {
            "image": rng.random((3, 32)).astype(np.float32),
            "tokens": rng.integers(0, 9, 5),
            "mask": rng.random(16).astype(np.float32),
        }
        for _ in range(256)
    ]
    return {
        **modules(),
        "tree": {name: torch.ones(4) for name in names},
        "mixed": {"epoch": 3, "name": "x", **{name: torch.ones(4) for name in names}},
        "arrays": {name: np.ones(4, np.float32) for name in names},
        "samples": samples,
        "tensors": [{key: torch.from_numpy(value) for key, value in sample.items()} for sample in samples],
        "numbers": [{"label": number, "weight": number / 2} for number in range(256)],
        "small": [torch.ones(4) for _ in range(64)],
        "dicts": samples[:64],
        "ragged": [torch.arange(1 + number % 16) for number in range(64)],
        "rows": [{"x": rng.random(64).tolist()} for _ in range(64)],
        "pad_sequence": pad_sequence,
        "tree_map": pytree.tree_map,
        "default_collate": default_collate,
    }


def _images() -> dict[str, Any]:
    import numpy as np
    import torch
    from torch.utils.data import default_collate

    return {
        **modules(),
        "pictures": [{"image": np.ones((3, 224, 224), np.float32)} for _ in range(64)],
        "images": [{"image": torch.ones(3, 224, 224)} for _ in range(64)],
        "default_collate": default_collate,
    }


def _on_gpu() -> dict[str, Any]:
    import torch

    names = [f"layers.{number}.weight" for number in range(1000)]
    return {
        **_world(),
        "leaves": {name: torch.ones(1024, device="cuda") for name in names},
    }


_TREES = (
    Case(
        'ferry.convert_tree(tree, "numpy")',
        "tree_map(lambda t: t.detach().cpu().numpy(), tree)",
        Target(ratio=0.8),
    ),
    Case(
        'ferry.convert_tree(mixed, "numpy")',
        "tree_map(lambda t: t.detach().cpu().numpy() if torch.is_tensor(t) else t, mixed)",
        Target(ratio=0.8),
    ),
    Case('ferry.convert_tree(arrays, "torch")', "tree_map(torch.from_numpy, arrays)", Target()),
    Case(
        'ferry.convert_tree(tree, "numpy", copy=True)',
        "tree_map(lambda t: t.detach().clone().numpy(), tree)",
        Target(),
    ),
    Case("ferry.snapshot(tree)", "tree_map(torch.clone, tree)", Target()),
)

_BATCHES = (
    Case('ferry.collate(samples, "torch")', "default_collate(samples)", Target(ratio=0.5)),
    Case('ferry.collate(tensors, "torch")', "default_collate(tensors)", Target()),
    Case('ferry.collate(numbers, "torch")', "default_collate(numbers)", Target()),
)

_FEW = (
    Case('ferry.collate(small, "torch")', "torch.stack(small)", Target(ratio=1.8)),
    Case('ferry.collate(small, "torch")', "default_collate(small)", Target(ratio=1.2)),
    Case('ferry.collate(dicts, "torch")', "default_collate(dicts)", Target(ratio=0.8)),
    Case('ferry.collate(ragged, "torch", pad=0)', "pad_sequence(ragged, batch_first=True)", Target(ratio=1.5)),
    Case('ferry.collate(rows, "torch")', 'np.array([row["x"] for row in rows])', Target(ratio=1.9)),
)

_IMAGES = (
    Case('ferry.collate(pictures, "torch")', "default_collate(pictures)", Target(ratio=0.6)),
    Case('ferry.collate(images, "torch")', "default_collate(images)", Target(ratio=0.6)),
)

_GPU = (
    Case(
        'ferry.convert_tree(leaves, "numpy")',
        "tree_map(lambda t: t.detach().cpu().numpy(), leaves)",
        Target(ratio=1 / 15),
    ),
)

SECTIONS = (
    Section("Trees of 400 leaves of 4 float32", _world, _TREES),
    Section("Batches of 256 samples", _world, _BATCHES),
    Section("Batches of 64 samples", _world, _FEW),
    Section("Batches of 64 images, 37 MB", _images, _IMAGES, pace=LARGE),
    Section("GPU: a tree of 1000 leaves of 4 KB", _on_gpu, _GPU, absent=no_cuda),
)
"""Every section, in the order of the table."""
