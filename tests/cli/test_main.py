"""The command as a whole: its help, its version, wrong usage, and missing parts."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tensorferry

for needed in ("typer", "rich"):
    pytest.importorskip(needed, reason=f"the command line needs {needed}, which is not installed")

SOURCE = Path(__file__).resolve().parents[2] / "src"


def test_help_names_every_command(cli):
    done = cli("--help")
    assert done.returncode == 0
    assert all(name in done.stdout for name in ("doctor", "explain", "tour", "--version"))
    assert done.stderr == ""


def test_without_arguments_it_helps_and_says_that_this_was_not_usage(cli):
    done = cli()
    assert done.returncode == 2
    assert "doctor" in done.stdout + done.stderr


@pytest.mark.parametrize("name", [None, "typer", "rich"])
def test_version(cli, absent, name):
    """It needs neither Typer nor Rich."""
    done = cli("--version", shadows=name and absent(name))
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        f"tensorferry {tensorferry.__version__}\n",
        "",
    )


COMMANDS = ["doctor", "tour", "explain", "inspect", "check", "convert", "diff", "roundtrip"]


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_help_shows_what_is_typed_and_nothing_else(forked_cli, command):
    """Behind a flag nothing is typed; no argument has the name of a type of Python."""
    done = forked_cli(*filter(None, [command]), "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "--help" in done.stdout
    assert "<" not in done.stdout.replace("[0<=x<=63]", "")


@pytest.mark.parametrize(
    ("words", "near"), [(["inspct", "a"], "inspect"), (["inspect", "--jsn", "a"], "--json")]
)
def test_a_word_that_is_nearly_right(forked_cli, words, near):
    done = forked_cli(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert near in done.stderr


@pytest.mark.parametrize(
    ("words", "missing"), [([], "IN"), (["a.pt"], "OUT"), (["a.pt", "--verify"], "OUT")]
)
def test_the_argument_that_is_missing(forked_cli, words, missing):
    """Of one path it is OUT that is missing, though IN takes as many as there are."""
    done = forked_cli("convert", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"Missing argument '{missing}'" in done.stderr


def test_completion_is_installed_and_completes(cli, tmp_path):
    """What Typer gives: a script for the shell, which asks the command itself."""
    # Else Typer asks the operating system which shell started it, and there is none.
    env = {"HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = cli("--install-completion", "bash", env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert "tensorferry" in (tmp_path / ".bash_completions" / "tensorferry.sh").read_text(
        encoding="utf-8"
    )
    asked = {
        "_TENSORFERRY_COMPLETE": "complete_bash",
        "COMP_WORDS": "tensorferry ins",
        "COMP_CWORD": "1",
    }
    assert cli(env=asked).stdout.split() == ["inspect"]


def test_the_project_names_its_authors():
    """`pip show` has an author."""
    tomllib = pytest.importorskip("tomllib", reason="in Python since 3.11")
    project = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    assert [each["name"] for each in project["authors"]] == ["The tensorferry developers"]


@pytest.mark.parametrize(
    "arguments", [["ferry"], ["doctor", "--no-such"], ["explain"], ["explain", "--from", "torch"]]
)
def test_wrong_usage_is_exit_code_2_on_stderr(forked_cli, arguments):
    done = forked_cli(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Usage" in done.stderr


@pytest.mark.parametrize("name", ["typer", "rich"])
def test_without_typer_or_rich_the_line_that_installs_them(cli, absent, name):
    done = cli("doctor", shadows=absent(name))
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"{name} is not installed" in done.stderr
    assert "Hint: pip install typer rich\n" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_terminal_that_knows_ascii_only(cli):
    done = cli("explain", "--from", "jax", "--to", "python", env={"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams(closed):
    command = f"{sys.executable} -m tensorferry explain --from numpy --to torch {closed}"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(["bash", "-c", command], env=environment, timeout=240, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize(
    "words",
    [
        "--help",
        "convert --help",
        "explain --from numpy --to torch",
        "explain --from numpy --to torch --json",
    ],
)
def test_a_reader_that_leaves_early_is_no_error(words):
    command = f"{sys.executable} -m tensorferry {words} | true; exit ${{PIPESTATUS[0]}}"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        ["bash", "-c", command], env=environment, capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_no_character_is_lost_where_the_terminal_does_not_have_it(cli, tmp_path):
    """Escaped as Python writes it, and in JSON as JSON does: two names stay two."""
    for name in ("ä.npy", "ö.npy"):
        np.save(tmp_path / name, np.zeros(2))
    paths = [str(tmp_path / name) for name in ("ä.npy", "ö.npy")]
    plain = {"PYTHONIOENCODING": "ascii"}
    assert [
        word in cli("inspect", *paths, env=plain).stdout for word in ("\\xe4.npy", "\\xf6.npy")
    ] == [True, True]
    told = json.loads(cli("inspect", *paths, "--json", env=plain).stdout)
    assert [each["path"] for each in told["files"]] == paths


def test_importing_the_library_loads_no_part_of_the_command_line():
    code = (
        "import sys, tensorferry\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "assert not loaded & {'typer', 'rich', 'click', 'sklearn'}, loaded\n"
        "assert 'tensorferry.cli' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=240)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk without room")
@pytest.mark.parametrize(
    "words", ["explain --from numpy --to torch", "--version", "inspect {file}"]
)
def test_a_disk_without_room_is_one_line_and_no_success(words, tmp_path):
    """What cannot be written is said on stderr, without a traceback, and the exit code is not 0."""
    np.save(tmp_path / "x.npy", np.zeros(2))
    command = [sys.executable, "-m", "tensorferry", *words.format(file=tmp_path / "x.npy").split()]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, env=environment, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert os.strerror(errno.ENOSPC) in line
