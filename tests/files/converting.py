"""What the tests of conversions share: arrays, files made of them, and what is in a file."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import numpy as np

from tensorferry.core.dtypes import DTYPES
from tensorferry.files.base.contents import Contents
from tensorferry.files.base.pump import Pump
from tensorferry.files.base.stored import InMemory
from tensorferry.files.opening.paths import format_named, open_path
from tensorferry.host.numpy_dtypes import numpy_dtype

ROOT = Path(__file__).resolve().parents[2]
SUFFIXES = {"safetensors": ".safetensors", "pytorch": ".pt", "npz": ".npz", "npy": ".npy"}
MANY = ["safetensors", "pytorch", "npz"]


def names(folder):
    return sorted(each.name for each in folder.iterdir())


def bits(dtype, shape, seed=0):
    """Random patterns of bits, NaNs with payloads among them."""
    row = DTYPES[dtype]
    count = int(np.prod(shape)) * row.itemsize
    raw = np.random.default_rng(seed).integers(0, 256, count, np.uint8)
    if row.kind == "bool":
        raw &= 1
    return raw.view(numpy_dtype(row.name)).reshape(shape)


def contents(arrays, tree=None, metadata=None):
    of = {numpy_dtype(row.name): row.name for row in DTYPES.values()}
    tensors = {name: InMemory(array, of[array.dtype], id(array)) for name, array in arrays.items()}
    return Contents("memory", (), tensors, dict(metadata or {}), tree)


def write(path, arrays, **keywords):
    """A file of a format that its suffix names; made without the code under test, but for the format's own."""
    made = contents(arrays, **keywords)
    form = format_named(
        next(name for name, suffix in SUFFIXES.items() if path.name.endswith(suffix))
    )
    form.write(made._replace(metadata=form.metadata_of(made)), path, Pump())
    return path


def arrays_of(path):
    return {name: stored.array() for name, stored in open_path(Path(path)).tensors.items()}


def same(found, wanted):
    assert list(found) == list(wanted)
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype, name
        assert found[name].shape == array.shape, name
        assert found[name].tobytes() == array.tobytes(), name


def sample(dtypes=("float32", "bfloat16", "float8_e4m3fn", "int64", "bool", "float16")):
    made = {}
    for seed, dtype in enumerate(dtypes):
        made[f"{dtype}.matrix"] = bits(dtype, (5, 7), seed)
        made[f"{dtype}.scalar"] = bits(dtype, (), seed)
        made[f"{dtype}.empty"] = bits(dtype, (0, 3), seed)
    return made


def model(count=8, side=64):
    """Floats that every narrower dtype has room for."""
    rng = np.random.default_rng(0)
    return {
        f"layers.{i}.weight": rng.standard_normal((side, side), np.float32) for i in range(count)
    }


def checkpoint(torch):
    weight = torch.nn.Parameter(torch.randn(4, 3))
    return {
        "model": OrderedDict(weight=weight.detach(), bias=torch.zeros(4, dtype=torch.bfloat16)),
        "optimizer": {
            "state": {0: {"step": torch.tensor(3.0), "exp_avg": torch.randn(4, 3)}},
            "param_groups": [{"lr": 0.1, "betas": (0.9, 0.999), "params": [0]}],
        },
        "epoch": 7,
        "loss": float("inf"),
        "name": "näme",
        "nothing": None,
    }
