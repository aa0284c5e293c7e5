"""Folders that DeepSpeed itself writes, with its ZeRO stages 1 to 3, in two to four processes on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import tensorferry as ferry
from tensorferry.files.reports.check import check_path

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("deepspeed", reason="deepspeed is not installed; `make everyday` installs it")

TRAIN = """
import sys
import deepspeed
import torch

folder, stage, dtype = sys.argv[1], int(sys.argv[2]), getattr(torch, sys.argv[3])


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(7, 5), torch.nn.Linear(5, 3, bias=False)
        self.tied = torch.nn.Linear(5, 3, bias=False)
        self.tied.weight = self.last.weight
        self.register_buffer("scale", torch.arange(3.0))

    def forward(self, x):
        return (self.last(self.first(x)) * self.scale).sum()


deepspeed.init_distributed(dist_backend="gloo")
processes = torch.distributed.get_world_size()
torch.manual_seed(0)
model = Model()
engine = deepspeed.initialize(
    model=model,
    model_parameters=model.parameters(),
    config={
        "train_batch_size": 4 * processes,
        "optimizer": {"type": "Adam", "params": {"lr": 0.01, "torch_adam": True}},
        "bf16": {"enabled": dtype is torch.bfloat16},
        "zero_optimization": {"stage": stage},
    },
)[0]
for _ in range(2):
    engine.backward(engine(torch.randn(4, 7, dtype=dtype)))
    engine.step()
engine.save_checkpoint(folder)

from deepspeed.utils import safe_get_full_optimizer_state

averages = {}
for name, parameter in engine.module.named_parameters():
    averages[name] = safe_get_full_optimizer_state(parameter, "exp_avg").clone()
if torch.distributed.get_rank() == 0:
    torch.save(averages, folder + ".pt")
torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""


@pytest.fixture(
    scope="module",
    params=[
        (1, "float32", 2),
        (2, "bfloat16", 2),
        (2, "float32", 4),
        (3, "float32", 3),
        (3, "bfloat16", 4),
    ],
    ids=str,
)
def folder(request, tmp_path_factory):
    """A checkpoint that was written after two steps of training."""
    stage, dtype, processes = request.param
    found = tmp_path_factory.mktemp("deepspeed")
    (found / "train.py").write_text(TRAIN, encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    command += [str(found / "train.py"), str(found / "checkpoint"), str(stage), dtype]
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return found / "checkpoint"


def leaves(tree, before=""):
    """The tensors of nested mappings, by dotted name."""
    for name in tree:
        path = f"{before}.{name}" if before else str(name)
        if hasattr(tree[name], "keys"):
            yield from leaves(tree[name], path)
        elif isinstance(tree[name], torch.Tensor):
            yield path, tree[name]


def test_parameters_are_those_of_deepspeeds_own_script(folder):
    """Whole, in float32, with the buffers; tied names too."""
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    theirs = dict(get_fp32_state_dict_from_zero_checkpoint(str(folder)))
    ours = dict(leaves(ferry.load(folder, to="torch")["module"]))
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert ours[name].dtype == tensor.dtype
        assert torch.equal(ours[name], tensor), name
    assert ferry.shares_memory(ours["last.weight"], ours["tied.weight"])


def test_the_optimizers_state_is_that_of_the_engine(folder):
    """The parts of all processes, put together."""
    theirs = torch.load(f"{folder}.pt")
    ours = dict(leaves(ferry.load(folder, to="torch")["optimizer"]["exp_avg"]))
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name


def test_such_a_folder_is_checked_and_converted(folder, tmp_path):
    assert not list(check_path(folder))
    ferry.convert_files(
        folder, tmp_path / "model.safetensors", tensors_only=True, include="module.*"
    )
    written = dict(leaves(ferry.load(tmp_path / "model.safetensors", to="torch")))
    ours = dict(leaves(ferry.load(folder, to="torch")["module"]))
    assert {name.removeprefix("module."): tensor.tolist() for name, tensor in written.items()} == {
        name: tensor.tolist() for name, tensor in ours.items()
    }
