"""Jobs on threads, processes, Dask and Ray, each on its own local cluster: the same bytes, and errors come back."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from tensorferry.errors import FrameworkNotInstalledError, LossyCastError, ResumableError
from tensorferry.files.conversion.convert import convert_files
from tensorferry.files.conversion.executors import ENGINES, run_all
from tensorferry.files.opening.paths import open_path

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 120.0
"""Seconds after which a wait is a deadlock."""


@pytest.fixture
def source(tmp_path):
    """Eight tensors in one file."""
    from tensorferry.files.base.contents import Contents
    from tensorferry.files.base.stored import InMemory
    from tensorferry.files.conversion.convert import write_contents

    rng = np.random.default_rng(0)
    tensors = {
        f"layers.{i}.weight": InMemory(rng.standard_normal((64, 64), np.float32), "float32", i)
        for i in range(8)
    }
    write_contents(Contents("memory", (), tensors), tmp_path / "in.safetensors")
    return tmp_path / "in.safetensors"


@pytest.fixture
def importable(monkeypatch):
    """Other processes find this very package."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))


def in_one_go(source, **keywords):
    convert_files(source, source.parent / "expected", to="safetensors", shard="10KB", **keywords)
    return files(source.parent / "expected")


def files(folder):
    return {each.name: each.read_bytes() for each in folder.iterdir()}


def convert(source, **keywords):
    report = convert_files(
        source,
        source.parent / "out",
        to="safetensors",
        shard="10KB",
        dtype="bfloat16",
        verify=True,
        **keywords,
    )
    assert len(report.written) == 9
    assert report.bytes_written == 8 * 64 * 64 * 2
    return files(source.parent / "out")


def spoiled(source):
    """The same with one number that no float16 has room for."""
    arrays = {name: stored.array() for name, stored in open_path(source).tensors.items()}
    arrays["layers.5.weight"] = arrays["layers.5.weight"].copy()
    arrays["layers.5.weight"][1, 2] = 1e20
    np.savez(source.parent / "spoiled.npz", **arrays)
    return source.parent / "spoiled.npz"


def check(source, **keywords):
    """The same bytes as in one go, and an error is the job's own error."""
    moved = []
    expected = in_one_go(source, dtype="bfloat16")
    assert convert(source, progress=moved.append, **keywords) == expected
    # Written, and read back.
    assert sum(moved) == 2 * 8 * 64 * 64 * 2
    with pytest.raises(LossyCastError, match=r"layers\.5\.weight.*\[1, 2\]"):
        convert_files(
            spoiled(source),
            source.parent / "no",
            to="safetensors",
            shard="10KB",
            dtype="float16",
            **keywords,
        )
    left = sorted(each.name for each in source.parent.iterdir())
    assert left == ["expected", "in.safetensors", "out", "spoiled.npz"]


@pytest.mark.parametrize("jobs", [1, 3, 20])
def test_threads(source, jobs):
    """However many there are."""
    check(source, engine="threads", jobs=jobs)


def test_processes(source, importable):
    """Spawned, two of them."""
    check(source, engine="processes", jobs=2)


def test_any_executor_of_concurrent_futures(source, importable):
    """What the caller made is used, and left running."""
    with ThreadPoolExecutor(2) as pool:
        check(source, executor=pool)
        assert pool.submit(int, "7").result() == 7


@pytest.mark.slow
def test_the_callers_own_process_pool(source, importable):
    """Spawned by the caller."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        check(source, executor=pool)


def test_an_executor_is_whatever_has_submit(source):
    """Its futures only need a result."""

    class Simple:
        def __init__(self):
            self.calls = 0

        def submit(self, call, /, *arguments):
            self.calls += 1
            future = Future()
            future.set_result(call(*arguments))
            return future

    simple = Simple()
    convert(source, executor=simple)
    assert simple.calls == 8


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_dask(source, importable, tmp_path):
    """On a local cluster of two processes: one that the engine makes, and one that the caller has."""
    distributed = pytest.importorskip("distributed", reason="needs dask")
    check(source, engine="dask", jobs=2)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        for name in ("out", "expected"):
            for each in (tmp_path / name).iterdir():
                each.unlink()
        (tmp_path / "spoiled.npz").unlink()
        check(source, executor=client)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ray(source, importable):
    """On a local cluster of its own, which is shut down; one that is there is used and left alone."""
    ray = pytest.importorskip("ray", reason="needs ray")
    check(source, engine="ray", jobs=2)
    assert not ray.is_initialized()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        with ENGINES["ray"](2) as executor:
            assert [executor.submit(abs, number).result() for number in (-1, -2)] == [1, 2]
        assert ray.is_initialized()
    finally:
        ray.shutdown()


@pytest.mark.parametrize(("engine", "module"), [("dask", "distributed"), ("ray", "ray")])
def test_a_missing_engine_says_what_to_install(source, monkeypatch, engine, module):
    """Before anything is written, with the extra."""
    import sys

    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(FrameworkNotInstalledError, match=f"pip install {module}"):
        convert_files(
            source, source.parent / "out", to="safetensors", shard="20KB", engine=engine, jobs=2
        )
    assert sorted(each.name for each in source.parent.iterdir()) == ["in.safetensors"]


def test_an_unknown_engine_is_refused():
    """With the names that there are."""
    with pytest.raises(ValueError, match='"threads", "processes", "dask" or "ray"'):
        run_all(print, [], print, engine="hamsters")


def test_a_worker_that_dies_leaves_what_is_finished(source, importable, monkeypatch):
    """Killed for its memory, say: an error that says how to go on."""
    flag = source.parent / "flag"
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        executor = Dying(pool, flag, after=3)
        with pytest.raises(ResumableError, match="3 of 8"):
            convert_files(
                source, source.parent / "out", to="safetensors", shard="20KB", executor=executor
            )
    report = convert_files(
        source, source.parent / "out", to="safetensors", shard="20KB", resume=True
    )
    assert len(report.skipped) == 3


class Dying:
    """Hands on some jobs, and then one that ends its process."""

    def __init__(self, pool, flag, after):
        self.pool = pool
        self.after = after

    def submit(self, call, /, *arguments):
        self.after -= 1
        if self.after < 0:
            return self.pool.submit(os._exit, 9)
        return self.pool.submit(call, *arguments)


def test_the_first_error_stops_the_others(monkeypatch):
    """Those that have not begun are not done, and those that report progress stop there."""
    begun, asked, reported, all_asked = [], [], threading.Event(), threading.Event()
    cancel = Future.cancel

    def counted(future):
        found = cancel(future)
        asked.append(future)
        if len(asked) == 50:
            all_asked.set()
        return found

    def call(job, progress):
        begun.append(job)
        if job == 0:
            assert reported.wait(PATIENCE)
            raise ZeroDivisionError
        try:
            while True:
                progress(1)
                reported.set()
                time.sleep(0.001)
        finally:
            # Until then its thread could begin another.
            assert all_asked.wait(PATIENCE)

    monkeypatch.setattr(Future, "cancel", counted)
    with pytest.raises(ZeroDivisionError):
        run_all(call, range(50), lambda _: None, workers=2)
    assert set(begun) <= {0, 1, 2}


def test_progress_is_never_told_from_two_threads_at_once():
    """A callback needs no lock of its own."""
    inside = []

    def progress(_):
        assert not inside
        inside.append(1)
        time.sleep(0.0001)
        inside.pop()

    def call(_, report):
        for _ in range(50):
            report(1)

    run_all(call, range(8), lambda _: None, workers=8, progress=progress)


def test_workers_do_not_outlive_a_killed_parent(tmp_path, importable):
    """Killed with -9 while its processes work: they end too, and let go of what they had locked."""
    import signal
    import subprocess
    import sys

    code = (
        "import os, sys, time\n"
        "from tensorferry.files.conversion.executors import ENGINES\n"
        "if __name__ == '__main__':\n"
        "    with ENGINES['processes'](2) as executor:\n"
        "        futures = [executor.submit(os.getpid) for _ in range(4)]\n"
        "        print(*{future.result() for future in futures}, flush=True)\n"
        "        executor.submit(time.sleep, 600)\n"
        "        time.sleep(600)\n"
    )
    script = tmp_path / "parent.py"
    script.write_text(code)
    # What tracks its semaphores says on stderr that it left some.
    quiet = subprocess.DEVNULL
    parent = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=quiet, text=True
    )
    workers = [int(number) for number in parent.stdout.readline().split()]
    assert workers
    assert os.getpid() not in workers
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + PATIENCE
    while any(Path(f"/proc/{worker}").exists() and not is_gone(worker) for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_gone(process):
    """Whether a process has ended, and only waits to be reaped."""
    try:
        return "Z" in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
