"""Converting into, out of and between folders of shards."""

from __future__ import annotations

import json
from collections import OrderedDict

import numpy as np
import pytest
from tests.files.converting import (
    arrays_of,
    checkpoint,
    model,
    names,
    same,
    write,
)

from tensorferry.errors import ConversionError, FileFormatError
from tensorferry.files.api import save
from tensorferry.files.conversion.convert import convert_files


@pytest.mark.parametrize("target", ["safetensors", "pytorch"])
def test_shards_by_size_and_back_into_one(tmp_path, target):
    """No shard is larger than asked for, the index names each tensor, and one file comes back the same."""
    wanted = model()
    start = write(tmp_path / "in.safetensors", wanted)
    report = convert_files(start, tmp_path / "out", to=target, shard="40KB", verify=True)
    shards = [name for name in names(tmp_path / "out") if not name.endswith(".json")]
    assert len(shards) == 4
    index = json.loads(next((tmp_path / "out").glob("*.index.json")).read_text())
    assert list(index["weight_map"]) == list(wanted)
    assert sorted(set(index["weight_map"].values())) == shards
    assert len(report.written) == 5
    same(arrays_of(tmp_path / "out"), wanted)
    convert_files(tmp_path / "out", tmp_path / "back.safetensors", verify=True)
    assert (tmp_path / "back.safetensors").read_bytes() == start.read_bytes()


def test_as_many_shards_as_the_source_has(tmp_path):
    """Without a size, a folder of shards becomes a folder of as many, the same tensors in each."""
    wanted = model()
    convert_files(
        write(tmp_path / "in.safetensors", wanted), tmp_path / "a", to="safetensors", shard="40KB"
    )
    convert_files(tmp_path / "a", tmp_path / "b", to="pytorch", verify=True)
    assert len(list((tmp_path / "b").glob("*.bin"))) + len(list((tmp_path / "b").glob("*.pt"))) == 4
    same(arrays_of(tmp_path / "b"), wanted)
    first = json.loads(next((tmp_path / "a").glob("*.index.json")).read_text())["weight_map"]
    second = json.loads(next((tmp_path / "b").glob("*.index.json")).read_text())["weight_map"]
    groups = [
        {tuple(n for n in found if found[n] == file) for file in found.values()}
        for found in (first, second)
    ]
    assert groups[0] == groups[1]


def test_a_tree_survives_shards(tmp_path):
    """Values beside the tensors stand in the index, and come back."""
    torch = pytest.importorskip("torch")
    state = checkpoint(torch)
    torch.save(state, tmp_path / "in.pt")
    convert_files(tmp_path / "in.pt", tmp_path / "out", to="safetensors", shard="60", verify=True)
    assert len(list((tmp_path / "out").glob("*.safetensors"))) > 1
    convert_files(tmp_path / "out", tmp_path / "back.pt", verify=True)
    found = torch.load(tmp_path / "back.pt", weights_only=True)
    assert list(found) == list(state)
    assert found["optimizer"]["param_groups"] == state["optimizer"]["param_groups"]
    assert torch.equal(
        found["optimizer"]["state"][0]["exp_avg"], state["optimizer"]["state"][0]["exp_avg"]
    )


def test_several_sources_make_one_model(tmp_path):
    """Into one file, or as many shards; two tensors of one name are refused."""
    wanted = model(4)
    parts = []
    for number in range(2):
        part = {name: wanted[name] for name in list(wanted)[2 * number : 2 * number + 2]}
        parts.append(write(tmp_path / f"part{number}.safetensors", part))
    convert_files(parts, tmp_path / "one.npz", verify=True)
    same(arrays_of(tmp_path / "one.npz"), wanted)
    convert_files(parts, tmp_path / "many", to="safetensors", verify=True)
    assert len(list((tmp_path / "many").glob("*.safetensors"))) == 2
    same(arrays_of(tmp_path / "many"), wanted)
    with pytest.raises(FileFormatError, match=r"layers\.0\.weight"):
        convert_files([parts[0], parts[0], parts[1]], tmp_path / "twice.npz")


def test_state_dicts_in_several_files_make_one(tmp_path):
    """What torch saved in parts, without an index: one state dict again."""
    torch = pytest.importorskip("torch")
    for number in range(2):
        torch.save(
            OrderedDict({f"layer{number}": torch.full((2,), number)}),
            tmp_path / f"part{number}.bin",
        )
    convert_files(
        [tmp_path / "part0.bin", tmp_path / "part1.bin"], tmp_path / "out.pt", verify=True
    )
    found = torch.load(tmp_path / "out.pt", weights_only=True)
    assert list(found) == ["layer0", "layer1"]
    assert found["layer1"].tolist() == [1, 1]


def test_sources_that_do_not_go_together_are_refused(tmp_path):
    """Values of one name, a list among dicts, metadata that differ; the tensors alone still go together."""
    x = np.arange(3)
    trees = {
        "first.pt": {"a": x, "epoch": 1},
        "second.pt": {"b": x, "epoch": 2},
        "list.pt": [x, x],
        "one.safetensors": {"c": x},
        "two.safetensors": {"d": x},
    }
    for file, tree in trees.items():
        save(tree, tmp_path / file, metadata={"k": file} if file.endswith(".safetensors") else None)
    for files, why, wanted in (
        (("first.pt", "second.pt"), "two entries are named epoch", "ab"),
        (("first.pt", "list.pt"), "it holds a list", "a01"),
        (("one.safetensors", "two.safetensors"), "differ in the metadata 'k'", "cd"),
    ):
        sources = [tmp_path / file for file in files]
        with pytest.raises(FileFormatError, match=why) as caught:
            convert_files(sources, tmp_path / "out.npz")
        assert "tensors_only=True" in caught.value.hint
        convert_files(sources, tmp_path / "out.npz", tensors_only=True)
        same(arrays_of(tmp_path / "out.npz"), dict.fromkeys(wanted, x))
        (tmp_path / "out.npz").unlink()


@pytest.mark.parametrize(
    ("shard", "nbytes"),
    [("5GB", 5 * 10**9), ("2GiB", 2 << 30), ("500mb", 500 * 10**6), (1234, 1234), ("1.5KiB", 1536)],
)
def test_sizes(shard, nbytes):
    """Powers of ten, of two, and plain numbers."""
    from tensorferry.files.conversion.convert import shard_bytes

    assert shard_bytes(shard) == nbytes


@pytest.mark.parametrize(
    "shard",
    [
        "5 apples",
        "",
        "-1",
        0,
        "GB",
        "1e9",
        *(pytest.param(each, id="long") for each in ("9" * 400 + "GB", 10**5000)),
    ],
)
def test_what_is_no_size_is_refused(tmp_path, shard):
    """Before anything is written."""
    start = write(tmp_path / "in.safetensors", model(1, 4))
    with pytest.raises(ValueError, match="is not a size"):
        convert_files(start, tmp_path / "out", to="safetensors", shard=shard)
    assert names(tmp_path) == ["in.safetensors"]


def test_options_that_contradict_each_other_are_refused(tmp_path):
    """A format without shards, and no format; what is wrong whatever the file is has a page of its own."""
    start = write(tmp_path / "in.safetensors", model(1, 4))
    for target, keywords in (
        ("out", {"shard": 100, "to": "npz"}),
        ("out", {}),
        ("out.xyz", {}),
    ):
        with pytest.raises(ConversionError):
            convert_files(start, tmp_path / target, **keywords)
    with pytest.raises(FileNotFoundError):
        convert_files(tmp_path / "missing.pt", tmp_path / "out.npz")
    assert names(tmp_path) == ["in.safetensors"]
