"""`tensorferry roundtrip`: every first-class format, every framework, and bits that are really compared."""

from __future__ import annotations

import json

import jsonschema
import ml_dtypes
import numpy as np
import pytest
from tests.support import ROOT

import tensorferry
from tensorferry.cli import roundtrip
from tensorferry.files.opening.paths import formats


@pytest.fixture
def weights(tmp_path):
    """A small file with bfloat16, int64 (which JAX has not) and a NaN."""
    path = tmp_path / "weights.safetensors"
    state = {
        "a": np.array([1, float("nan"), -0.0, 2] * 8, ml_dtypes.bfloat16),
        "b": np.arange(8).reshape(2, 4),
        "c": np.ones(64, "float32"),
    }
    tensorferry.save(state, path)
    return path


def test_every_first_class_format_and_framework_is_gone_through(weights, capsys):
    """Each format from the file, each pair of formats, a lone array, and each framework from each format."""
    assert roundtrip.run(weights, as_json=True) == 0
    data = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(
        json.loads((ROOT / "docs" / "reference" / "files-schema.json").read_text())
    ).validate(data)
    whole = {name for name, each in formats().items() if each.first_class and not each.holds_one}
    assert whole == {"safetensors", "pytorch", "npz"}
    pairs = [(row["from"], row["to"]) for row in data["journeys"]]
    assert {(one, other) for one in whole for other in whole if one != other} <= set(pairs)
    assert ("safetensors", "npy") in pairs
    assert data["equal"]
    loaded = {(row["from"], row["to"]): row for row in data["loaded"]}
    assert set(loaded) == {
        (one, to) for one in whole for to in ("numpy", "torch", "jax", "tensorflow")
    }
    for (_, to), row in loaded.items():
        assert row["tensors"] == (2 if to == "jax" else 3)
        assert list(row["refused"]) == (["b"] if to == "jax" else [])
        assert row["shared"] == row["tensors"]


def test_a_nested_checkpoint_is_gone_through(tmp_path, capsys):
    """Its tensors are asked for where they stand, in lists too."""
    import torch

    state = {"model": {"w.x": torch.ones(2)}, "l": [torch.zeros(3), {0: torch.ones(1)}], "epoch": 3}
    torch.save(state, tmp_path / "nested.pt")
    assert roundtrip.run(tmp_path / "nested.pt", as_json=True) == 0
    data = json.loads(capsys.readouterr().out)
    assert {row["tensors"] for row in data["loaded"]} == {3}


def test_a_bit_that_is_lost_is_seen(weights, capsys, monkeypatch):
    """A conversion that loses a sign ends with exit code 1, in the table and in the data."""
    real = tensorferry.convert_files

    def lossy(source, target, **keywords):
        report = real(source, target, **keywords)
        contents = tensorferry.load(target)
        if isinstance(contents, dict) and "a" in contents:
            contents["a"] = np.abs(contents["a"])
            tensorferry.save(contents, target, overwrite=True)
        return report

    monkeypatch.setattr(tensorferry, "convert_files", lossy)
    assert roundtrip.run(weights, as_json=False) == 1
    assert "different" in capsys.readouterr().out


@pytest.mark.parametrize("tree", [{}, {"epoch": 3}])
def test_a_file_without_tensors_is_gone_through(tree, tmp_path, capsys):
    """There is no largest tensor to convert alone; everything else is done."""
    tensorferry.save(tree, tmp_path / "none.safetensors")
    assert roundtrip.run(tmp_path / "none.safetensors", as_json=True) == 0
    data = json.loads(capsys.readouterr().out)
    whole = {name for name, each in formats().items() if each.first_class and not each.holds_one}
    assert {row["to"] for row in data["journeys"]} == whole


def test_what_is_no_file_of_weights_is_an_error(tmp_path, capsys):
    """A text file: what is wrong on stderr, exit code 2."""
    (tmp_path / "notes.txt").write_text("weights")
    assert roundtrip.run(tmp_path / "notes.txt", as_json=False) == 2
    captured = capsys.readouterr()
    assert not captured.out
    assert "FileFormatError" in captured.err


def test_nothing_is_listed_twice(weights, capsys):
    """Each way from one format to another is gone once."""
    assert roundtrip.run(weights, as_json=False) == 0
    lines = [
        line.split()[:2]
        for line in capsys.readouterr().out.splitlines()
        if line.split()[-1:] == ["equal"]
    ]
    assert len(lines) > 10
    assert len({tuple(line) for line in lines}) == len(lines)
    assert roundtrip.run(weights, as_json=True) == 0
    data = json.loads(capsys.readouterr().out)
    assert len(lines) == len(data["journeys"] + data["loaded"])
