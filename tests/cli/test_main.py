"""The command as a whole: its help, its version, wrong usage, and missing parts."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tensorferry

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


def test_version(cli):
    done = cli("--version")
    assert (done.returncode, done.stdout) == (0, f"tensorferry {tensorferry.__version__}\n")


@pytest.mark.parametrize("arguments", [["ferry"], ["doctor", "--no-such"], ["explain"], ["explain", "--from", "torch"]])
def test_wrong_usage_is_exit_code_2_on_stderr(cli, arguments):
    done = cli(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Usage" in done.stderr


@pytest.mark.parametrize("name", ["typer", "rich"])
def test_without_typer_or_rich_the_line_that_installs_them(cli, absent, name):
    done = cli("doctor", shadows=absent(name))
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"{name} is not installed" in done.stderr
    assert "pip install 'tensorferry[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_terminal_that_knows_ascii_only(cli):
    done = cli("explain", "--from", "jax", "--to", "python", env={"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams(closed):
    command = f"{sys.executable} -m tensorferry.cli explain --from numpy --to torch {closed}"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(["bash", "-c", command], env=environment, timeout=240, check=False)
    assert done.returncode == 0


def test_a_reader_that_leaves_early():
    command = f"set -o pipefail; {sys.executable} -m tensorferry.cli --help | true; echo ${{PIPESTATUS[0]}}"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, timeout=240, check=False)
    assert b"Traceback" not in done.stderr


def test_importing_the_library_loads_no_part_of_the_command_line():
    code = (
        "import sys, tensorferry\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "assert not loaded & {'typer', 'rich', 'click', 'sklearn'}, loaded\n"
        "assert 'tensorferry.cli' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=240)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk without room")
@pytest.mark.parametrize("words", ["explain --from numpy --to torch", "--version", "inspect {file}"])
def test_a_disk_without_room_is_one_line_and_no_success(words, tmp_path):
    """What cannot be written is said on stderr, without a traceback, and the exit code is not 0."""
    np.save(tmp_path / "x.npy", np.zeros(2))
    command = [sys.executable, "-m", "tensorferry.cli", *words.format(file=tmp_path / "x.npy").split()]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, env=environment, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert os.strerror(errno.ENOSPC) in line
