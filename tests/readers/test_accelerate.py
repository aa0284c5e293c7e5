"""accelerate loads what tensorferry writes into a model; see `make readers`."""

from __future__ import annotations

import pytest
import torch
from tests.readers.checkpoints import WAYS, same_bits, written

pytestmark = pytest.mark.slow


class Model(torch.nn.Module):
    def __init__(self, dtype, *, tied):
        super().__init__()
        self.embed = torch.nn.Embedding(32, 16, dtype=dtype)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16, dtype=dtype) for _ in range(2))
        self.norm = torch.nn.BatchNorm1d(16, dtype=dtype)
        self.head = torch.nn.Linear(16, 32, bias=False, dtype=dtype)
        self.tied = tied
        self.tie_weights()

    def tie_weights(self):
        if self.tied:
            self.head.weight = self.embed.weight


def model(dtype, seed, *, tied):
    torch.manual_seed(seed)
    made = Model(dtype, tied=tied)
    made.norm.running_mean += seed
    return made


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_a_model_is_filled(tmp_path, caplog, way, tied, dtype):
    """Expected: a model that had other weights has the file's, bit for bit, without a warning."""
    import accelerate

    wanted = model(dtype, 7, tied=tied)
    folder = str(tmp_path / "model")
    written(way, wanted.state_dict(), tmp_path / "model")
    # The second name of a tied weight is not in the file, as with safetensors' own writer. And
    # accelerate 0.34 is strict with each shard for itself.
    strict = {} if tied or "shards" in way else {"strict": True}

    found = model(dtype, 8, tied=tied)
    accelerate.load_checkpoint_in_model(found, folder, **strict)
    same_bits(found.state_dict(), wanted.state_dict())

    found = model(dtype, 9, tied=tied)
    accelerate.load_checkpoint_and_dispatch(found, folder, device_map={"": "cpu"}, **strict)
    same_bits(found.state_dict(), wanted.state_dict())

    with accelerate.init_empty_weights():
        empty = Model(dtype, tied=tied)
    empty.tie_weights()
    found = accelerate.load_checkpoint_and_dispatch(empty, folder, device_map={"": "cpu"})
    found.tie_weights()
    same_bits(found.state_dict(), wanted.state_dict())
    assert not caplog.messages


@pytest.mark.parametrize("way", ["convert", "save"])
def test_a_file_is_loaded_by_its_name(tmp_path, way):
    """Expected: the path of the file does as well as that of its folder."""
    import accelerate

    wanted = model(torch.float32, 7, tied=False)
    written(way, wanted.state_dict(), tmp_path / "model")
    found = model(torch.float32, 8, tied=False)
    path = str(tmp_path / "model" / "model.safetensors")
    accelerate.load_checkpoint_in_model(found, path, strict=True)
    same_bits(found.state_dict(), wanted.state_dict())
