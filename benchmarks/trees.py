"""Trees of small leaves, and batches of samples, against PyTorch's own."""

from __future__ import annotations

from typing import Any

from .case import LARGE, Case, Pace, Section, Target
from .gpu import accelerator, no_gpu
from .small import modules

__all__ = ["SECTIONS"]

SELDOM = Pace(rounds=3, batch=0.0, best=True)
"""For what takes a second."""

_CHAIN = "lambda t: t.detach().cpu().numpy()"
_LOOK = "{name: (t.shape, t.dtype, t.device) for name, t in many.items()}"


def _world() -> dict[str, Any]:
    import jax.numpy as jnp
    import numpy as np
    import optree
    import torch
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
        "tree": {name: torch.ones(16) for name in names},
        "others": {name: torch.ones(16) for name in names},
        "tracked": {name: torch.ones(16, requires_grad=True) for name in names},
        "params": {name: torch.nn.Parameter(torch.ones(16)) for name in names},
        "mixed": {"epoch": 3, "name": "x", **{name: torch.ones(16) for name in names}},
        "arrays": {name: np.ones(16, np.float32) for name in names},
        "jaxes": {name: jnp.ones(16) for name in names},
        "array": np.ones(16, np.float32),
        "tensor": torch.ones(16),
        "samples": samples,
        "tensors": [
            {key: torch.from_numpy(value) for key, value in sample.items()} for sample in samples
        ],
        "numbers": [{"label": number, "weight": number / 2} for number in range(256)],
        "small": [torch.ones(4) for _ in range(64)],
        "learnt": [torch.ones(4, requires_grad=True) for _ in range(64)],
        "weights": [torch.nn.Parameter(torch.ones(4)) for _ in range(64)],
        "dicts": samples[:64],
        "ragged": [torch.arange(1 + number % 16) for number in range(64)],
        "rows": [{"x": rng.random(64, np.float32).tolist()} for _ in range(64)],
        "pad_sequence": pad_sequence,
        "tree_map": optree.tree_map,
        "default_collate": default_collate,
    }


def _many() -> dict[str, Any]:
    import torch

    return {
        **modules(),
        "many": {f"layers.{number}.weight": torch.ones(16) for number in range(300_000)},
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
    import numpy as np
    import torch

    names, gpu = [f"layers.{number}.weight" for number in range(1000)], accelerator()
    return {
        **_world(),
        "gpu": gpu,
        "leaves": {name: torch.ones(1024, device=gpu) for name in names},
        "arrays": {name: np.ones(1024, np.float32) for name in names},
    }


A_THIRD_MORE = Target(ratio=1.3)
HALF_MORE = Target(ratio=1.5)
INTO = Target(ratio=2.3)

_TREES = (
    Case('ferry.convert_tree(tree, "numpy")', f"tree_map({_CHAIN}, tree)", Target(ratio=0.75)),
    Case('ferry.convert_tree(tracked, "numpy")', f"tree_map({_CHAIN}, tracked)", Target(ratio=1.2)),
    Case('ferry.convert_tree(params, "numpy")', f"tree_map({_CHAIN}, params)", Target(ratio=1.2)),
    Case(
        'ferry.convert_tree(mixed, "numpy")',
        "tree_map(lambda t: t.detach().cpu().numpy() if torch.is_tensor(t) else t, mixed)",
        Target(ratio=0.8),
    ),
    Case('ferry.convert_tree(arrays, "torch")', "tree_map(torch.from_numpy, arrays)", Target()),
    Case(
        'ferry.convert_tree(jaxes, "numpy")', "jax.tree.map(np.asarray, jaxes)", Target(ratio=1.1)
    ),
    Case(
        'ferry.convert_tree(tree, "torch", device="cpu")',
        "tree_map(torch.Tensor.cpu, tree)",
        A_THIRD_MORE,
    ),
    Case(
        'ferry.convert_tree(params, "torch", device="cpu")',
        "tree_map(torch.Tensor.cpu, params)",
        A_THIRD_MORE,
    ),
    Case(
        'ferry.convert_tree(tree, "numpy", copy=True)',
        "tree_map(lambda t: t.numpy().copy(), tree)",
        HALF_MORE,
    ),
    Case('ferry.convert_tree(tree, "torch", copy=True)', "tree_map(torch.clone, tree)", HALF_MORE),
    Case('ferry.convert_tree(arrays, "numpy", copy=True)', "tree_map(np.copy, arrays)", HALF_MORE),
    Case(
        'ferry.convert_tree(tree, "numpy", dtype="float16")',
        "tree_map(lambda t: t.half().numpy(), tree)",
        HALF_MORE,
    ),
    Case(
        'ferry.convert_tree(tree, "torch", dtype="float16")',
        "tree_map(torch.Tensor.half, tree)",
        HALF_MORE,
    ),
    Case("ferry.convert_tree(tree, like=array)", "tree_map(torch.Tensor.numpy, tree)", HALF_MORE),
    Case(
        "ferry.convert_tree(arrays, like=tensor)", "tree_map(torch.from_numpy, arrays)", HALF_MORE
    ),
    Case(
        'ferry.convert_tree(tree, "numpy", out=arrays)',
        "tree_map(lambda t, out: np.copyto(out, t.numpy()) or out, tree, arrays)",
        INTO,
    ),
    Case(
        'ferry.convert_tree(tree, "torch", out=others)',
        "tree_map(torch.Tensor.copy_, others, tree)",
        INTO,
    ),
    Case("ferry.snapshot(tree)", "tree_map(torch.clone, tree)", A_THIRD_MORE),
    Case("ferry.snapshot(params)", "tree_map(lambda p: p.detach().clone(), params)", A_THIRD_MORE),
    Case("ferry.snapshot(arrays)", "tree_map(np.copy, arrays)", A_THIRD_MORE),
)

_MANY = (
    Case('ferry.explain_tree(many, "numpy")', _LOOK, Target(total=2.0)),
    Case("ferry.describe_tree(many)", _LOOK, Target(total=1.0)),
    Case("ferry.snapshot(many)", "{name: t.clone() for name, t in many.items()}", HALF_MORE),
    Case(
        'ferry.convert_tree(many, "torch", copy=True)',
        "{name: t.clone() for name, t in many.items()}",
        HALF_MORE,
    ),
    Case(
        'ferry.convert_tree(many, "numpy", copy=True)',
        "{name: t.numpy().copy() for name, t in many.items()}",
        HALF_MORE,
    ),
    Case(
        'ferry.convert_tree(many, "numpy")',
        "{name: t.numpy() for name, t in many.items()}",
        Target(),
    ),
)

_BATCHES = (
    Case('ferry.collate(samples, "torch")', "default_collate(samples)", Target(ratio=0.5)),
    Case('ferry.collate(tensors, "torch")', "default_collate(tensors)", Target()),
    Case('ferry.collate(numbers, "torch")', "default_collate(numbers)", Target()),
)

_FEW = (
    Case('ferry.collate(small, "torch")', "torch.stack(small)", Target(ratio=1.8)),
    Case('ferry.collate(small, "torch")', "default_collate(small)", Target(ratio=1.2)),
    Case('ferry.collate(learnt, "torch")', "torch.stack(learnt)", Target(ratio=1.8)),
    Case('ferry.collate(weights, "torch")', "torch.stack(weights)", Target(ratio=1.8)),
    Case('ferry.collate(dicts, "torch")', "default_collate(dicts)", Target(ratio=0.8)),
    Case(
        'ferry.collate(ragged, "torch", pad=0)',
        "pad_sequence(ragged, batch_first=True)",
        Target(ratio=1.5),
    ),
    Case(
        'ferry.collate(rows, "torch")["x"]',
        'np.array([row["x"] for row in rows])',
        Target(ratio=1.9),
    ),
)

_IMAGES = (
    Case('ferry.collate(pictures, "torch")', "default_collate(pictures)", Target(ratio=0.6)),
    Case('ferry.collate(images, "torch")', "default_collate(images)", Target(ratio=0.6)),
)

_GPU = (
    Case(
        'ferry.convert_tree(leaves, "numpy")',
        f"tree_map({_CHAIN}, leaves)",
        Target(ratio=1 / 15),
    ),
    Case(
        '(ferry.convert_tree(arrays, "torch", device=gpu), torch.accelerator.synchronize())',
        "(tree_map(lambda a: torch.from_numpy(a).to(gpu), arrays), torch.accelerator.synchronize())",
        Target(ratio=1 / 5),
    ),
)

SECTIONS = (
    Section("Trees of 400 leaves of 16 float32", _world, _TREES),
    Section("A flat dict of 300,000 tensors of 16 float32", _many, _MANY, SELDOM),
    Section("Batches of 256 samples", _world, _BATCHES),
    Section("Batches of 64 samples", _world, _FEW),
    Section("Batches of 64 images, 37 MB", _images, _IMAGES, pace=LARGE),
    Section("GPU: a tree of 1000 leaves of 4 KB", _on_gpu, _GPU, absent=no_gpu),
)
