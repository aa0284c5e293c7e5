"""What ends a conversion from outside: a worker that is killed, a signal, a full disk; and what the bar shows of it."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

import tensorferry as ferry
from tensorferry import hints
from tensorferry.cli.outcome import as_options
from tensorferry.files.conversion import executors, jobs
from tensorferry.files.conversion.convert import convert_files
from tensorferry.hints import Hint

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def source(tmp_path):
    """Eight tensors of 16 KiB."""
    ferry.save(
        {f"t{number}": np.full((64, 64), number, "float32") for number in range(8)},
        tmp_path / "in.safetensors",
    )
    return tmp_path / "in.safetensors"


LISTENING = (
    "import os, signal, sys\n"
    "for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):\n"
    "    signal.signal(number, signal.SIG_DFL)\n"
    "os.execv(sys.argv[1], sys.argv[1:])"
)
"""What begins another program that signals end, also where those that began the tests ignore them."""


def command(*words, **keywords):
    for needed in ("typer", "rich"):
        pytest.importorskip(
            needed, reason=f"the command line needs {needed}, which is not installed"
        )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.Popen(
        [sys.executable, "-c", LISTENING, sys.executable, *map(str, words)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **keywords,
    )


def _killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_is_killed_leaves_what_can_be_resumed(source, tmp_path, monkeypatch):
    """In a pool of one's own executor as in ours; with no shard finished, and with some."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}{os.pathsep}{ROOT}")
    out = tmp_path / "out"
    keywords = {"to": "safetensors", "shard": "20KB"}
    with monkeypatch.context() as patched, ProcessPoolExecutor(1, get_context("spawn")) as pool:
        patched.setattr("tensorferry.files.conversion.work.run_job", _killed)
        with pytest.raises(
            ferry.ResumableError, match=r"0 of 8 shards finished .*worker process ended"
        ) as stopped:
            convert_files(source, out, executor=pool, **keywords)
    assert "resume=True" in stopped.value.hint
    with monkeypatch.context() as patched:
        patched.setattr("tensorferry.files.conversion.work.run_job", _killed)
        with pytest.raises(ferry.ResumableError):
            convert_files(source, out, engine="processes", resume=True, **keywords)
    report = convert_files(source, out, resume=True, **keywords)
    assert report.tensors == 8
    assert ferry.load(out)["t7"].sum() == 7 * 64 * 64


@pytest.mark.parametrize(
    ("engine", "start"), [("dask", "distributed.LocalCluster"), ("ray", "ray.init")]
)
def test_an_engine_that_cannot_start_leaves_what_can_be_resumed(
    source, tmp_path, monkeypatch, engine, start
):
    """Whatever its package raises then."""
    pytest.importorskip(start.partition(".")[0])

    def failing(*_, **__):
        raise RuntimeError("Worker failed to start.\nlong story")

    with monkeypatch.context() as patched:
        patched.setattr(start, failing)
        with pytest.raises(
            ferry.ResumableError, match=r"before its work was done: Worker failed to start\."
        ):
            convert_files(source, tmp_path / "out", to="safetensors", shard="20KB", engine=engine)
    convert_files(source, tmp_path / "out", to="safetensors", shard="20KB", resume=True)


def test_an_error_of_a_job_is_not_taken_for_a_lost_worker(source, tmp_path):
    """It comes as it is."""
    with pytest.raises(ferry.ConversionError, match="does not fit"):
        convert_files(
            source,
            tmp_path / "out",
            to="safetensors",
            shard="20KB",
            engine="processes",
            dtype="t*=bool",
        )
    assert not (tmp_path / "out").exists()


def test_the_command_says_that_it_can_be_resumed(source, tmp_path):
    """Exit code 5 and one message, no traceback."""
    code = f"""
import os, signal, sys
from tensorferry.files.conversion import work
def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)
work.run_job = killed
if __name__ == "__main__":
    from tensorferry.cli import main
    sys.argv[1:] = ["convert", {str(source)!r}, {str(tmp_path / "out")!r}, "--to", "safetensors", "--shard", "20KB"]
    sys.argv += ["--engine", "processes"]
    main()
"""
    (tmp_path / "script.py").write_text(code)
    process = command(tmp_path / "script.py")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 5, err
    assert err.startswith("ResumableError: ")
    assert "--resume goes on" in err


SLOW = """
import sys, threading
from tensorferry.files.base.pump import Pump
copy = Pump.copy
def begun(self, *arguments, **keywords):
    print("begun", flush=True)
    threading.Event().wait(60)
Pump.copy = begun
from tensorferry.cli import main
main()
"""


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT], ids=lambda each: each.name
)
def test_a_signal_that_ends_it_cleans_up(source, tmp_path, number):
    """As Ctrl-C: nothing of ours is left; the exit code says which signal it was."""
    (tmp_path / "script.py").write_text(SLOW)
    process = command(tmp_path / "script.py", "convert", source, tmp_path / "out.pt")
    assert process.stdout.readline() == "begun\n"
    assert (tmp_path / ".out.pt.partial").exists()
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else 128 + number)
    assert "interrupted" in err
    assert "Traceback" not in err
    assert sorted(each.name for each in tmp_path.iterdir()) == ["in.safetensors", "script.py"]


def test_a_signal_that_is_ignored_stays_so(source, tmp_path):
    """As under nohup."""
    code = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n" + SLOW
    (tmp_path / "script.py").write_text(code)
    process = command(tmp_path / "script.py", "convert", source, tmp_path / "out.pt")
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".npz", ".gguf"])
def test_a_full_disk_names_the_target(suffix, tmp_path):
    """What the system says of a write has no path; nothing is left."""
    ferry.save({"w": np.zeros(1 << 20, "float32")}, tmp_path / "in.npz")
    code = """
import json, resource, sys, numpy as np, tensorferry as ferry
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
calls = [lambda: ferry.convert_files(sys.argv[1], sys.argv[2]),
         lambda: ferry.save({"w": np.ones(1 << 20, "float32")}, sys.argv[2])]
found = []
for call in calls:
    try:
        call()
    except OSError as error:
        found.append([error.errno, error.filename])
print(json.dumps(found))
"""
    process = command("-c", code, tmp_path / "in.npz", tmp_path / f"out{suffix}")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert json.loads(out) == [[errno.EFBIG, str(tmp_path / f"out{suffix}")]] * 2
    assert sorted(each.name for each in tmp_path.iterdir()) == ["in.npz"]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def test_verification_is_a_second_pass(source, tmp_path, monkeypatch):
    """The callback is told of each byte that is read back, after those that are written; the bar has both."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    nbytes = 8 * 64 * 64 * 4
    order = []
    verify = jobs.verify
    monkeypatch.setattr(jobs, "verify", lambda *a, **k: order.append("verify") or verify(*a, **k))
    convert_files(source, tmp_path / "a.pt", verify=True, progress=order.append)
    at = order.index("verify")
    assert sum(order[:at]) == sum(order[at + 1 :]) == nbytes
    moved = []
    shards = {"to": "safetensors", "shard": "20KB", "engine": "processes", "verify": True}
    convert_files(source, tmp_path / "b", progress=moved.append, **shards)
    assert sum(moved) == 2 * nbytes
    from tensorferry.cli import convert as command_

    options = {"to": None, "verify": True}
    assert command_._total([source], tmp_path / "c.pt", options) == 2 * nbytes
    assert command_._total([source], tmp_path / "c.pt", {**options, "verify": False}) == nbytes


def test_what_engines_raise_is_told_in_one_line():
    """Not a page of their logs."""
    assert "\n" not in str(executors._lost(RuntimeError("first\nsecond")))
    hint = Hint(hints.keyword("resume", True), " goes on from there")
    assert as_options(hint, "convert") == "--resume goes on from there"
