"""DeepSpeed's ZeRO folders, in the layout of deepspeed 0.19 (``zero_to_fp32.py`` there): whole parameters, nothing run.

DeepSpeed itself is no dependency of these tests: the files here are made as it makes them, with its
classes by name. Folders that it wrote itself are read in tests/everyday/test_deepspeed.py.
"""

from __future__ import annotations

import sys
import types
from collections import OrderedDict
from math import prod

import numpy as np
import pytest
from tests.files import hostile
from tests.files.test_pickles import agrees

import tensorferry as ferry
from tensorferry.errors import FileFormatError, FormatLimitError, UnsafeFileError
from tensorferry.files.reports.check import check_path

torch = pytest.importorskip("torch", reason="the files are written by torch itself")

SHAPES = [
    OrderedDict(a=(7, 5), b=(7,)),
    OrderedDict([("norm.w", (7,)), ("one", ()), ("c", (3, 7))]),
]


@pytest.fixture
def made(monkeypatch):
    """Objects of DeepSpeed's classes, as far as a pickle sees them."""
    import enum

    for name in (
        "deepspeed",
        "deepspeed.runtime",
        "deepspeed.runtime.fp16",
        "deepspeed.runtime.zero",
    ):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    scaler = types.ModuleType("deepspeed.runtime.fp16.loss_scaler")
    scaler.LossScaler = type("LossScaler", (), {"__module__": scaler.__name__})
    config = types.ModuleType("deepspeed.runtime.zero.config")
    config.ZeroStageEnum = enum.IntEnum(
        "ZeroStageEnum", {"a": 1, "b": 2, "c": 3}, module=config.__name__
    )
    for module in (scaler, config):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    one = scaler.LossScaler()
    one.cur_scale = 1.0
    return one, config.ZeroStageEnum


def parameters(seed):
    rng = np.random.default_rng(seed)
    return {
        name: torch.from_numpy(rng.random(shape, np.float32).reshape(shape))
        for group in SHAPES
        for name, shape in group.items()
    }


def vectors(values, stage, count, padded=True):
    """What each process has of the parameters, by group."""
    found = [[] for _ in range(count)]
    for group in SHAPES:
        if stage == 3:
            for rank in range(count):
                parts = []
                for name in group:
                    flat = values[name].reshape(-1)
                    most = -(-flat.numel() // count)
                    filled = torch.cat([flat, torch.full((most * count - flat.numel(),), -1.0)])
                    parts.append(filled[rank * most : (rank + 1) * most])
                found[rank].append(torch.cat(parts))
            continue
        whole = torch.cat([values[name].reshape(-1) for name in group])
        most = -(-whole.numel() // (2 * count)) * 2
        filled = (
            torch.cat([whole, torch.full((most * count - whole.numel(),), -1.0)])
            if padded
            else whole
        )
        for rank in range(count):
            found[rank].append(filled[rank * most : (rank + 1) * most].clone())
    return found


def written(folder, stage, count, made, prefix=""):
    """A folder of so many processes; gives what is in it, whole."""
    folder.mkdir()
    scaler, stages = made
    masters, first, second = (parameters(seed) for seed in range(3))
    own, frozen, buffer = masters["a"].bfloat16(), torch.arange(11).bfloat16(), torch.arange(4)
    for rank in range(count):
        module = OrderedDict(
            (name, each.bfloat16() if stage < 3 else torch.empty(0))
            for name, each in masters.items()
        )
        if stage < 3:
            module["a"] = module["tied"] = own
        module |= {"frozen": frozen if stage < 3 else torch.empty(0), "buffer": buffer}
        most = -(-11 // count)
        part = torch.cat([frozen, torch.zeros(most * count - 11).bfloat16()])[
            rank * most : (rank + 1) * most
        ].clone()
        model = {
            "module": module,
            "buffer_names": ["buffer"],
            "optimizer": None,
            "param_shapes": [
                OrderedDict((k, torch.Size(v)) for k, v in group.items()) for group in SHAPES
            ],
            "frozen_param_shapes": OrderedDict(frozen=torch.Size([11])),
            "frozen_param_fragments": OrderedDict(frozen=part if stage == 3 else frozen),
            "shared_params": {"shared": "b"},
            "global_steps": 2,
            "ds_config": {"zero_optimization": {"stage": stage}},
            "mine": {"epoch": 3, "seen": torch.arange(2)},
        }
        fp32 = vectors(masters, stage, count, padded=stage == 3)[rank]
        moments = [vectors(each, stage, count)[rank] for each in (first, second)]
        state = {
            group: {
                "step": torch.tensor(2.0),
                "exp_avg": moments[0][group],
                "exp_avg_sq": moments[1][group],
            }
            for group in range(2)
        }
        base = {
            "state": state,
            "param_groups": [{"lr": 0.1, "params": [0]}, {"lr": 0.01, "params": [1]}],
        }
        optimizer = {"loss_scaler": scaler, "zero_stage": stages(stage), "overflow": False}
        if stage == 3:
            optimizer |= {
                "partition_count": count,
                "optimizer_state_dict": base,
                "fp32_flat_groups": fp32,
            }
        else:
            optimizer |= {"partition_count": [count, count], "base_optimizer_state": base}
            optimizer |= {"single_partition_of_fp32_groups": fp32, "group_paddings": [0, 0]}
        torch.save(
            {"optimizer_state_dict": optimizer},
            folder / f"{prefix}zero_pp_rank_{rank}_mp_rank_00_optim_states.pt",
        )
        if stage == 3:
            torch.save(model, folder / f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt")
        elif rank == 0:
            torch.save(model, folder / "mp_rank_00_model_states.pt")
    whole = dict(masters) | {"frozen": frozen, "buffer": buffer, "shared": masters["b"]}
    return whole | ({"tied": masters["a"]} if stage < 3 else {}), first, second


@pytest.mark.parametrize("count", [1, 2, 3, 12])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_parameters_and_states_are_whole(stage, count, made, tmp_path):
    """Of any number of processes, more than some parameters have elements; padding is nowhere, ties are kept."""
    whole, first, second = written(
        tmp_path / "global_step2", stage, count, made, "bf16_" if stage == 2 else ""
    )
    (tmp_path / "latest").write_text("global_step2")
    for folder in (tmp_path, tmp_path / "global_step2"):
        found = ferry.open(folder)
        assert (found.format, found.others) == ("deepspeed", {})
        loaded = ferry.load(folder, "torch")
        assert set(loaded["module"]) == set(whole)
        assert agrees({name: loaded["module"][name] for name in whole}, whole)
        for name, expected in (("exp_avg", first), ("exp_avg_sq", second)):
            assert agrees(dict(loaded["optimizer"][name]), expected)
        assert loaded["optimizer"]["step"][1] == 2.0
        assert loaded["optimizer"]["param_groups"][1]["lr"] == 0.01
        assert (loaded["global_steps"], loaded["mine"]["epoch"]) == (2, 3)
        assert loaded["mine"]["seen"].tolist() == [0, 1]
        assert found.ties["module.shared"] == "module.b"
        assert not list(check_path(folder))
    out = tmp_path.parent / f"{stage}-{count}.safetensors"
    ferry.convert_files(
        tmp_path,
        out,
        include=["module.*"],
        rename=[r"s/^module\.//"],
        tensors_only=True,
        verify=True,
    )
    assert agrees(dict(ferry.load(out, "torch")), {name: whole[name] for name in ferry.load(out)})


def test_what_only_another_process_has_is_told_of(made, tmp_path):
    """Values are process 0's; where another's differ, that is listed."""
    folder = tmp_path / "global_step2"
    written(folder, 2, 2, made, "")
    path = folder / "zero_pp_rank_1_mp_rank_00_optim_states.pt"
    state = torch.load(path, weights_only=False)
    state["optimizer_state_dict"]["mine"] = 7
    torch.save(state, path)
    assert dict(ferry.open(folder).others) == {
        f"values ({path.name})": "its values are not those of process 0"
    }


@pytest.mark.parametrize("stage", [1, 3])
def test_states_that_are_one_for_a_group_are_compared(stage, made, tmp_path):
    """A step, or a learning rate, that is another in another process is listed by its name, and convert asks."""
    folder, key = (
        tmp_path / "global_step2",
        "optimizer_state_dict" if stage == 3 else "base_optimizer_state",
    )
    written(folder, stage, 3, made)

    def change(held):
        held["optimizer_state_dict"][key]["state"][1]["step"] = torch.tensor(9.0)

    saved_again(folder, OPTIM, change)
    told = {f"optimizer.step ({OPTIM})": "its values are not those of process 0"}
    assert dict(ferry.open(folder).others) == told
    with pytest.raises(
        FormatLimitError, match=r"optimizer\.step .*not those of process 0"
    ) as refused:
        ferry.load(folder, "torch")
    code = refused.value.hint.partition(", which")[0]
    assert (
        eval(f'load(folder, "torch", {code})', {"load": ferry.load, "folder": folder})["optimizer"][  # noqa: S307
            "step"
        ][1]
        == 2.0
    )
    with pytest.raises(FormatLimitError, match=r"optimizer\.step"):
        ferry.convert_files(folder, tmp_path / "out.safetensors")
    report = ferry.convert_files(folder, tmp_path / "out.safetensors", tensors_only=True)
    assert any("optimizer.step" in warning for warning in report.warnings)
    last = OPTIM.replace("rank_1", "rank_2")
    saved_again(
        folder,
        last,
        lambda held: held["optimizer_state_dict"][key]["param_groups"][0].update(lr=7.0),
    )
    assert dict(ferry.open(folder).others) == {
        **told,
        f"optimizer ({last})": "its values are not those of process 0",
    }


def test_the_model_beside_what_processes_saved_goes_first(made, tmp_path):
    """As a trainer leaves them: the folder is its model, and the checkpoint is the folder in it."""
    written(tmp_path / "global_step2", 2, 2, made, "")
    (tmp_path / "latest").write_text("global_step2")
    ferry.save({"weight": torch.ones(2)}, tmp_path / "model.safetensors")
    assert list(ferry.load(tmp_path)) == ["weight"]
    assert ferry.open(tmp_path / "global_step2").format == "deepspeed"


def saved_again(folder, name, change):
    path = folder / name
    held = torch.load(path, weights_only=False)
    change(held)
    torch.save(held, path)


OPTIM = "zero_pp_rank_1_mp_rank_00_optim_states.pt"
FIRST = OPTIM.replace("rank_1", "rank_0")


@pytest.mark.parametrize(
    ("stage", "name", "change", "what"),
    [
        (
            2,
            OPTIM,
            lambda held: held["optimizer_state_dict"].pop("single_partition_of_fp32_groups"),
            "has no single_part",
        ),
        (2, OPTIM, lambda held: held.pop("optimizer_state_dict"), "has no optimizer_state_dict"),
        (
            2,
            FIRST,
            lambda held: held["optimizer_state_dict"].update(zero_stage=7),
            "of no stage of ZeRO",
        ),
        (
            2,
            FIRST,
            lambda held: held["optimizer_state_dict"].update(partition_count=[3]),
            "is of 3 processes",
        ),
        (
            3,
            FIRST,
            lambda held: held["optimizer_state_dict"].update(partition_count=None),
            "is of None processes",
        ),
        (
            2,
            "mp_rank_00_model_states.pt",
            lambda held: held.pop("param_shapes"),
            "has no param_shapes",
        ),
        (
            2,
            "mp_rank_00_model_states.pt",
            lambda held: held["param_shapes"][0].update(a=(70, 5)),
            "do not cover it",
        ),
        (
            2,
            "mp_rank_00_model_states.pt",
            lambda held: held["param_shapes"][0].update(a="x"),
            "does not say of what shape",
        ),
        (
            3,
            OPTIM,
            lambda held: held["optimizer_state_dict"]["fp32_flat_groups"].pop(),
            "do not cover it",
        ),
        (
            2,
            OPTIM,
            lambda held: held["optimizer_state_dict"].update(
                single_partition_of_fp32_groups=[torch.ones(2, 2)]
            ),
            "is no flat vector",
        ),
    ],
)
def test_folders_that_contradict_themselves(stage, name, change, what, made, tmp_path):
    """What the files of all processes say is compared, before anything is read."""
    folder = tmp_path / "global_step2"
    written(folder, stage, 2, made)
    saved_again(folder, name, change)
    with pytest.raises(FileFormatError, match=what):
        ferry.open(folder)


def test_folders_that_lack_files(made, tmp_path):
    """Each is named; so are models in parts, which are not put together; a link out of the folder is refused."""
    folder = tmp_path / "global_step2"
    written(folder, 3, 3, made)
    middle = folder / OPTIM
    raw = middle.read_bytes()
    middle.unlink()
    with pytest.raises(FileFormatError, match="lacks the optimizers of processes 1"):
        ferry.open(folder)
    outside = tmp_path / "outside.pt"
    outside.write_bytes(raw)
    middle.symlink_to(outside)
    with pytest.raises(UnsafeFileError, match="leads out of its folder"):
        ferry.open(folder)
    middle.unlink()
    middle.write_bytes(raw)
    model = folder / OPTIM.replace("optim", "model")
    kept = model.read_bytes()
    model.unlink()
    with pytest.raises(FileFormatError, match=r"lacks zero_pp_rank_1_mp_rank_00_model_states\.pt"):
        ferry.open(folder)
    model.write_bytes(kept)
    (folder / "layer_00_expert_0_model_states.pt").write_bytes(b"")
    with pytest.raises(FormatLimitError, match="itself in parts"):
        ferry.open(folder)
    (folder / "layer_00_expert_0_model_states.pt").unlink()
    assert prod(ferry.open(folder).tensors["module.c"].shape) == 21


def test_damage_in_a_part_is_found(made, tmp_path):
    """By the checksum of the file that it is in."""
    folder = tmp_path / "global_step2"
    written(folder, 2, 2, made)
    path = folder / OPTIM
    good = path.read_bytes()
    value = vectors(parameters(0), 2, 2, padded=False)[1][0].numpy().tobytes()
    begin = good.index(value)
    path.write_bytes(good[:begin] + bytes([good[begin] ^ 1]) + good[begin + 1 :])
    assert {finding.tensor for finding in check_path(folder)} >= {"module.b"}


@pytest.mark.parametrize("route", sorted(hostile.code_pickles("x")))
def test_nothing_of_any_process_is_run(route, made, tmp_path, monkeypatch):
    """DeepSpeed's classes are kept as what they were given; any other is refused by name."""
    (tmp_path / "evil.py").write_text(hostile.EVIL)
    monkeypatch.syspath_prepend(tmp_path)
    canary = tmp_path / "canary"
    data, name = hostile.code_pickles(canary)[route]
    folder = tmp_path / "global_step2"
    written(folder, 2, 2, made)
    (folder / OPTIM).write_bytes(hostile.torch_zip(data))
    with pytest.raises(UnsafeFileError, match="asks for") as refused:
        ferry.open(folder)
    assert name in refused.value.message
    assert not canary.exists()
    assert "evil" not in sys.modules


@pytest.mark.parametrize("read", [ferry.open, ferry.load, lambda path: list(check_path(path))])
def test_what_cannot_be_read_is_named(read, made, tmp_path):
    """A folder in place of a process's file: the system's error over an open file names none."""
    folder = tmp_path / "global_step2"
    written(folder, 3, 2, made)
    (folder / FIRST).unlink()
    (folder / FIRST).mkdir()
    with pytest.raises(IsADirectoryError, match=FIRST):
        read(folder)
