"""Every command at every width: no line is wider than the terminal, and no word is broken that fits a line."""

from __future__ import annotations

import re
import shutil
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from rich.cells import cell_len

import tensorferry as ferry
from tensorferry.cli import console

WIDTHS = [40, 60, 80, 100, 120, 200]
FEW_WIDTHS = [
    each if each in (40, 80, 200) else pytest.param(each, marks=pytest.mark.slow) for each in WIDTHS
]
"""For reports, which measure before they are drawn."""
WIDE = "한국어.日本語.層.중간"
LONG = ".".join(["encoder"] * 40)
COMMANDS = {
    "help": ["--help"],
    "convert-help": ["convert", "--help"],
    "explain-help": ["explain", "--help"],
    "explain": ["explain", "--from", "torch", "--to", "tensorflow", "--requires-grad"],
    "inspect": ["inspect", "model.safetensors"],
    "inspect-all": ["inspect", "model.safetensors", "--all"],
    "inspect-values": ["inspect", "model.safetensors", "--values"],
    "check": ["check", "cut.safetensors"],
    "diff": ["diff", "model.safetensors", "other.safetensors"],
    "diff-all": ["diff", "model.safetensors", "other.safetensors", "--all"],
    "convert": ["convert", "model.safetensors", "out.npz", "--dry-run"],
    "missing": ["inspect", "nothing.safetensors"],
    "usage": ["convert", "a", "b", "--ties", "both"],
}
REPORTS = {
    "doctor": ["doctor"],
    "roundtrip": ["roundtrip", "lone.npz"],
}


@pytest.fixture(scope="module")
def folder():
    """A folder with a short path: names as models have them, in wide characters, and a very long one."""
    tmp_path = Path(tempfile.mkdtemp(prefix="w"))
    names = [f"model.layers.{n}.self_attn.q_proj.weight" for n in range(12)]
    held = {name: np.linspace(-1, 1, 6, dtype=np.float32) for name in names}
    held |= {WIDE: np.ones(3, np.float32), LONG: np.ones(2, np.float16)}
    note = {"note": "words of a sentence " * 8, WIDE: "層" * 9}
    safetensors.numpy.save_file(held, tmp_path / "model.safetensors", note)
    other = {f"decoder.block.{n}.w": np.ones((n % 2 + 1, 2), np.int8) for n in range(30)}
    safetensors.numpy.save_file(
        other | {names[0]: np.zeros(6, np.float32)}, tmp_path / "other.safetensors"
    )
    (tmp_path / "cut.safetensors").write_bytes((tmp_path / "model.safetensors").read_bytes()[:-4])
    np.savez(tmp_path / "lone.npz", weight=np.ones((2, 3), np.float32))
    yield tmp_path
    shutil.rmtree(tmp_path)


def words_in(folder, words):
    """The words of a command, with the paths of its files."""
    return [
        str(folder / word) if word.endswith((".safetensors", ".npz")) else word for word in words
    ]


@pytest.fixture(scope="module")
def unbroken(forked_cli, folder):
    """What a command says in a pipe."""

    @cache
    def run(command):
        return forked_cli(*words_in(folder, COMMANDS[command]), env={"COLUMNS": "99999"})

    return run


def words_of(text):
    """The words of a text; a name that is broken after a dot is joined, because a dot ends no sentence here."""
    return set(re.sub(r"[^\w⁰¹²³⁴⁵⁶⁷⁸⁹*]+", " ", text).split())


def assert_fits(narrow, wide, columns):
    """No line is too wide, and each word of the narrow text is a word of the unbroken one."""
    for line in narrow.splitlines():
        assert cell_len(line) <= columns, line
        assert line == line.rstrip()
    fitting = {word for word in words_of(narrow) if len(word) < 30}
    assert fitting <= words_of(wide) | {"min", "max", "mean", "zeros", "spread"}


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_fit_the_terminal(forked_cli, unbroken, folder, command, columns):
    """Against the same command in a pipe, where nothing is broken."""
    done = forked_cli(*words_in(folder, COMMANDS[command]), env={"COLUMNS": str(columns)})
    whole = unbroken(command)
    assert done.returncode == whole.returncode
    assert "Traceback" not in done.stderr
    for narrow, wide in ((done.stdout, whole.stdout), (done.stderr, whole.stderr)):
        assert_fits(narrow, re.sub(r"\d\.\d s", "0.0 s", wide) + " 0 0s", columns)


@pytest.mark.parametrize("columns", FEW_WIDTHS)
@pytest.mark.parametrize("command", REPORTS)
def test_reports_fit_the_terminal(forked_cli_with_frameworks, folder, command, columns):
    """No line of a report is wider than the terminal, and no name of a framework or dtype is broken."""
    done = forked_cli_with_frameworks(
        *words_in(folder, REPORTS[command]), env={"COLUMNS": str(columns)}
    )
    assert done.returncode == 0
    assert max(map(cell_len, done.stdout.splitlines())) <= columns
    if command == "roundtrip":
        return
    assert {"tensorflow", "polars"} <= words_of(done.stdout)
    assert {"float8_e4m3b11fnuz", "array"} <= words_of(done.stdout)
    notes = set(re.findall(r"^ +([⁰¹²³⁴⁵⁶⁷⁸⁹]+) ", done.stdout, re.MULTILINE))
    marks = set(re.findall(r"[⁰¹²³⁴⁵⁶⁷⁸⁹]+", done.stdout))
    assert marks == notes
    assert "¹³" in marks


def test_in_a_pipe_each_row_is_one_line(forked_cli, folder):
    """Without COLUMNS and without a terminal nothing is broken, so that lines can be searched."""
    lines = forked_cli("inspect", str(folder / "model.safetensors"), "--all").stdout.splitlines()
    assert [line for line in lines if line.split()[:2] == [LONG, "float16"]]
    assert [line for line in lines if line.split()[:2] == [WIDE, "float32"]]


@pytest.mark.parametrize("width", [1, 2, 7, 30])
@pytest.mark.parametrize(
    "text", ["", "a", "two words", WIDE, LONG, "層" * 9, "  x = 1\ny", "a/b-c_d.e"]
)
def test_no_character_is_lost_when_text_is_broken(text, width):
    """Only spaces and line feeds may go."""
    lines = console.wrapped(text, width)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "").replace("\n", "")
    assert all(cell_len(line) <= max(width, 2) for line in lines)


def test_diff_of_unrelated_models_folds(forked_cli, folder):
    """Names that differ only in numbers are one line; --all lists each, and the counts stay."""
    paths = [str(folder / name) for name in ("model.safetensors", "other.safetensors")]
    done = forked_cli("diff", *paths)
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) < 12
    assert "decoder.block.#.w" in done.stdout
    every = forked_cli("diff", *paths, "--all").stdout
    assert all(f"decoder.block.{n}.w" in every for n in range(30))


def test_a_folder_of_unrelated_files_lists_each(forked_cli, tmp_path):
    """What is of no known format is named, and nothing is silently left out."""
    np.save(tmp_path / "one.npy", np.ones(2))
    np.savez(tmp_path / "two.npz", w=np.ones(3))
    (tmp_path / "notes.md").write_text("text")
    for command in ("inspect", "check"):
        done = forked_cli(command, str(tmp_path))
        assert done.returncode == 0
        assert [name in done.stdout for name in ("one.npy", "two.npz", "notes.md")] == [
            True,
            True,
            False,
        ]
        assert "notes.md" in done.stderr


def test_models_in_a_folder_are_listed_and_other_folders_named(forked_cli, tmp_path):
    """A folder of shards is a model; it was said to be "not of a format that is known"."""
    np.save(tmp_path / "one.npy", np.ones(2))
    ferry.save(
        {"w": np.ones(30), "v": np.ones(30)}, tmp_path / "shards", to="safetensors", shard="300"
    )
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.txt").write_text("text")
    done = forked_cli("inspect", str(tmp_path))
    assert done.returncode == 0
    assert "2 of 2, complete" in done.stdout
    assert "folders that are not looked into: logs" in done.stderr
    assert "not of a format" not in done.stderr
