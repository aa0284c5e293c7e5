"""The commands of the lessons print what the lessons show."""

from __future__ import annotations

import doctest
import re
import shlex
import tempfile
from pathlib import Path

from tensorferry.cli.app import app

LESSON = Path(__file__).parents[2] / "docs" / "tutorial" / "03-checkpoint.md"


def _without_seconds(text):
    return re.sub(r"\d+\.\d s\b", "# s", text)


def test_the_commands_of_the_third_lesson_print_what_it_shows(tmp_path, monkeypatch, capsys):
    """On the checkpoint that the lesson itself saves; only the seconds may be others."""
    text = LESSON.read_text("utf-8")
    monkeypatch.setattr(tempfile, "mkdtemp", lambda: str(tmp_path))
    monkeypatch.chdir(tmp_path)
    names = {}
    for example in doctest.DocTestParser().get_examples(text.partition("## 2.")[0]):
        exec(example.source, names)  # noqa: S102 - our own page
    block = re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    shown = re.split(r"^\$ tensorferry (.*)\n", block[0], flags=re.MULTILINE)[1:]
    assert len(block) == 1
    assert len(shown) >= 8

    for command, expected in zip(shown[::2], shown[1::2], strict=True):
        code = app(shlex.split(command), standalone_mode=False)

        assert not code
        assert _without_seconds(capsys.readouterr().out) == _without_seconds(expected)
