"""docs/reference/files.md: its commands run, what it shows is what comes out."""

from __future__ import annotations

import re
import shlex
from collections import OrderedDict
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
import torch.distributed.checkpoint

from tensorferry.cli.app import app

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "files.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs a line of a shell in a folder with the documents' files; gives the exit code and stdout."""
    monkeypatch.chdir(tmp_path)
    state = OrderedDict({"embed.weight": torch.arange(15.0).reshape(5, 3)})
    for layer in range(2):
        state[f"layers.{layer}.weight"] = torch.arange(8.0).reshape(2, 4).bfloat16() + layer
    state["head.weight"] = state["embed.weight"]
    torch.save({**state, "epoch": 3}, "model.pt")
    writer, kind = gguf.GGUFWriter("model.gguf", "test"), gguf.GGMLQuantizationType.Q8_0
    writer.add_tensor("w", gguf.quantize(np.ones((2, 32), np.float32), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.warns(UserWarning, match="single process"):
        torch.distributed.checkpoint.save({"module": state, "epoch": 3}, checkpoint_id="run/step2")

    def do(line):
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            app(shlex.split(line, comments=True)[1:], prog_name="tensorferry")
        return ended.value.code, capsys.readouterr().out

    return do


def _blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def test_the_commands_run(run):
    """Every command of the document, in its order, does what it says without an error."""
    lines = [
        line
        for block in _blocks("sh")
        for line in block.splitlines()
        if line.startswith("tensorferry ")
    ]

    assert len(lines) > 8
    assert [(line, code) for line in lines for code in [run(line)[0]] if code] == []


def test_what_is_shown_is_what_comes_out(run):
    """The output of each example is that of the command, but for the lengths of columns and of the file."""
    import safetensors.torch

    good = {
        f"layers.{layer}.weight": torch.arange(8.0).reshape(2, 4).bfloat16() for layer in range(2)
    }
    good |= {"embed.weight": torch.ones(5, 3), "layers.1.bias": torch.zeros(4)}
    safetensors.torch.save_file(good, "model.safetensors")
    other = {**good, "layers.1.weight": good["layers.1.weight"].clone()}
    other["layers.1.weight"][1, 3] += 0.5
    safetensors.torch.save_file(other, "other.safetensors", {"note": "tuned"})
    broken = {"layers.0.weight": torch.ones(2, 4), "layers.1.bias": torch.zeros(4)}
    broken["layers.0.weight"][0, 2] = np.nan
    safetensors.torch.save_file(broken, "broken.safetensors")
    examples = [block.partition("\n") for block in _blocks("console")]

    assert len(examples) == 4
    for line, _, shown in examples:
        assert _plain(run(line.removeprefix("$ "))[1]) == _plain(shown)


def _plain(text):
    return [
        re.sub(r":\d+: |\d+\.\d+ KiB", ":", " ".join(line.split())) for line in text.splitlines()
    ]


def test_the_exit_codes_are_those_of_the_code():
    """The document, the help and the code have the same exit codes."""
    from tensorferry.cli import console

    codes = {value for name, value in vars(console).items() if name.startswith("EXIT_")} | {0}

    assert {int(code) for code in re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE)} == codes
    assert all(f"{code}, " in str(app.info.epilog) for code in codes)
