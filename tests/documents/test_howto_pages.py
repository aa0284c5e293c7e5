"""The how-to pages: every page is in the list of questions, and its commands print what it shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch

import tensorferry as ferry
from tensorferry.cli.app import app

FOLDER = Path(__file__).parents[2] / "docs" / "howto"
PAGES = sorted(page for page in FOLDER.glob("*.md") if page.name != "index.md")
ENDS = {
    "tensorferry inspect stranger.pt": 3,
    "tensorferry diff before.safetensors after.pt": 1,
    "tensorferry diff before.safetensors after.pt --tensors-only --json": 1,
    "tensorferry diff before.safetensors missing.pt": 2,
}
"""Commands that end with another exit code than 0, and which."""


class Trap:
    """What a pickle would run while it is loaded."""

    def __reduce__(self):
        return os.system, ("touch owned",)


def _checkpoints():
    torch.save({"weight": torch.ones(2), "epoch": 3}, "model.pt")
    torch.save({"weight": torch.ones(2), "extra": Trap()}, "stranger.pt")


def _training():
    state = {"model": {"weight": torch.linspace(0, 1, 2**16).reshape(256, 256)}, "epoch": 3}
    torch.save({**state, "optimizer": {"m": torch.ones(256, 256)}}, "model.pt")


def _two():
    before = {
        "embed": torch.arange(6.0).reshape(3, 2),
        "head": torch.zeros(2),
        "old": torch.ones(1),
    }
    after = {
        "embed": before["embed"].clone(),
        "head": torch.zeros(2),
        "new": torch.ones(1),
        "epoch": 4,
    }
    after["embed"][2, 1] += 0.25
    ferry.save(before, "before.safetensors")
    torch.save(after, "after.pt")
    ferry.save({name: value.bfloat16() for name, value in before.items()}, "half.safetensors")


def _model():
    Path("model").mkdir()
    safetensors.torch.save_file(
        {"norm.weight": torch.ones(8).bfloat16()}, "model/model.safetensors"
    )


def _converter():
    Path("converter.py").write_text(
        """
def convert(weights):
    return {
        name.replace("h.", "layers."): x.T if x.ndim == 2 else x for name, x in weights.items()
    }
""",
        "utf-8",
    )
    shapes = {"h.0.attn.weight": (6, 4), "h.1.attn.weight": (6, 4), "norm": (4,)}
    ferry.save({name: torch.zeros(shape) for name, shape in shapes.items()}, "theirs.safetensors")


FILES = {
    "checkpoints-without-running-code": _checkpoints,
    "compare-two-checkpoints": _two,
    "pt-into-jax": _training,
    "shrink-a-checkpoint": _training,
    "transformers-files": _model,
    "weights-under-another-name": _converter,
}
"""What makes the files that a page's commands are about, in the current folder."""


def _commands(page):
    """Each command of a page, with what the page shows below it, if anything."""
    found = re.findall(
        r"^```sh\n(.*?)^```\n(?:```text\n(.*?)^```)?",
        page.read_text("utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    for block, shown in found:
        lines = block.replace("\\\n", "").splitlines()
        assert len(lines) == 1 or not shown
        yield from ((line, shown) for line in lines)


def _run(line, capsys):
    """The exit code and what is printed, messages last, as a terminal shows it."""
    if line.startswith("python "):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        words = [sys.executable, *shlex.split(line)[1:]]
        ended = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        return ended.returncode, ended.stdout + ended.stderr
    name, *words = shlex.split(line)
    assert name == "tensorferry"
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        app(words, prog_name=name)
    return ended.value.code, "".join(capsys.readouterr())


def _plain(text):
    """Lines without the width of their columns, the size of a file, and the time that it took."""
    return [
        re.sub(r"\d+(\.\d+)? (B|KiB|s)\b", "", " ".join(line.split())) for line in text.splitlines()
    ]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(_commands(page))], ids=lambda page: page.stem
)
def test_commands_print_what_is_shown(page, tmp_path, monkeypatch, capsys):
    """Every command of a page runs, in its order, and prints what stands below it."""
    monkeypatch.chdir(tmp_path)
    FILES.get(page.stem, lambda: None)()

    for line, shown in _commands(page):
        code, printed = _run(line, capsys)
        assert (line, code) == (line, ENDS.get(line, 0))
        assert not shown or _plain(printed) == _plain(shown)
    assert not (tmp_path / "owned").exists()


def test_what_is_compiled_gives_what_is_shown():
    """Doctest clears its names, which PyTorch's guards still refer to; so these lines run in a module of their own."""
    text = (FOLDER / "inside-jit.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n((?!>>> ).*?)^```", text, re.MULTILINE | re.DOTALL)
    names = sys.modules[__name__].__dict__

    assert len(blocks) == 2
    for block in blocks:
        *lines, last = block.splitlines()
        call, shown = last.split("  # ")
        exec("\n".join(lines), names)  # noqa: S102 - our own pages
        assert repr(eval(call, names)) == shown  # noqa: S307


def test_every_page_is_among_the_questions():
    """The list, the contents and the folder have the same pages; a question is asked in one way."""
    text = (FOLDER / "index.md").read_text("utf-8")
    contents = re.search(r"```{toctree}\n(.*?)```", text, re.DOTALL)[1].split("\n\n")[-1].split()
    listed = dict(re.findall(r"^- \[(.+)\]\((.+)\.md\)", text, re.MULTILINE))

    assert sorted(contents) == sorted(listed.values()) == [page.stem for page in PAGES]
    titles = {
        page.read_text("utf-8").partition("\n")[0].removeprefix("# "): page.stem for page in PAGES
    }
    assert listed == titles


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.stem != "add-a-framework"], ids=lambda page: page.stem
)
def test_the_answer_comes_first(page):
    """The first block of code begins within the first lines, and the page leads on to others."""
    lines = page.read_text("utf-8").splitlines()

    assert any(line.startswith("```") for line in lines[:6])
    assert lines[0].endswith("?")
    assert re.search(r"\]\([^)]*\.md[^)]*\)", lines[-1] + lines[-2])
