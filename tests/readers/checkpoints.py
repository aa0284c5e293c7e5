"""The weights of a model in files, as people make them with tensorferry for other libraries."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch

import tensorferry as ferry

SOURCE = Path(ferry.__file__).parents[1]
SHARD = 2048
"""So few bytes in a shard that the smallest model here has several."""


def converted(state, folder, shard=None):
    """A `pytorch_model.bin` that `torch.save` made, through the command line."""
    source = folder.with_name("pytorch_model.bin")
    torch.save(state, source)
    target = [str(folder), "--to", "safetensors", "--shard", str(shard)]
    if shard is None:
        folder.mkdir()
        target = [str(folder / "model.safetensors")]
    paths = [str(SOURCE), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", "tensorferry", "convert", str(source), *target],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )
    assert done.returncode == 0, done.stderr


def saved(state, folder, shard=None):
    """A state dict in memory."""
    if shard is not None:
        ferry.save(state, folder, to="safetensors", shard=shard)
        return
    folder.mkdir()
    ferry.save(state, folder / "model.safetensors")


def saved_for_pickle(state, folder, shard=None):
    """A state dict in memory, for readers that want a `.bin`, which tensorferry writes whole."""
    assert shard is None
    folder.mkdir()
    ferry.save(state, folder / "pytorch_model.bin")


WAYS = {
    "convert": (converted, None),
    "convert in shards": (converted, SHARD),
    "save": (saved, None),
    "save in shards": (saved, SHARD),
    "save as .bin": (saved_for_pickle, None),
}
"""How the files are made: by what, and the bytes in a shard."""


def written(way, state, folder):
    """Write a state dict in one of `WAYS`."""
    make, shard = WAYS[way]
    make(state, folder, shard)
    found = len(list(folder.glob("*.safetensors")))
    assert shard is None or found > 1, f"{found} shards, which are to be several"


def same_bits(found, wanted):
    """Two state dicts have the same names, dtypes, shapes and bytes."""
    assert set(found) == set(wanted)
    for name, tensor in wanted.items():
        assert found[name].dtype == tensor.dtype, name
        assert found[name].shape == tensor.shape, name
        assert torch.equal(_bytes(found[name]), _bytes(tensor)), name


def _bytes(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)
