"""`run_all`: run jobs on threads, processes, Dask, Ray, or any object with ``submit``.

A job is a small message of paths and options; tensors are never sent. Each job writes one file, and
the executor's own queue schedules the jobs.
"""

from __future__ import annotations

import errno
import importlib
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from ...errors import FrameworkNotInstalledError, validate_word

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["ENGINES", "Executor", "Stopped", "run_all", "validate_engine"]

Progress = Callable[[int], None]


class Submitted(Protocol):
    """The result of `Executor.submit`."""

    def result(self) -> Any:
        """The result of the call, or its exception."""
        ...


class Executor(Protocol):
    """For ``executor=``: `concurrent.futures.Executor`, ``dask.distributed.Client``, and such."""

    def submit(self, call: Callable[..., Any], /, *arguments: Any) -> Submitted:
        """Schedule a call."""
        ...


class Stopped(BaseException):
    """Ends a job in a thread, because its result is not needed any more."""


def run_all(
    call: Callable[..., Any],
    jobs: Sequence[Any],
    done: Callable[[Any], None],
    *,
    executor: Executor | None = None,
    engine: str = "threads",
    workers: int = 1,
    progress: Progress | None = None,
    abort: Callable[[], object] | None = None,
) -> None:
    """Call a function for each job.

    Args:
        call: A function that takes a job and, if it runs in this process, a function for the
            progress. It must be importable by its name.
        jobs: The jobs, which can be pickled.
        done: Called with each result, in the order of the jobs.
        executor: Runs the jobs; ``None`` to use `engine`.
        engine: A name in `ENGINES`.
        workers: How many jobs run at the same time.
        progress: Called with numbers of bytes, if jobs run in this process; never by two threads at
            the same time.
        abort: Called after the first error, to stop jobs that have not begun; then all are waited
            for.

    Raises:
        ValueError: There is no such engine.
        FrameworkNotInstalledError: The engine's package is not installed.
        ChildProcessError: A worker ended before its job was complete, or could not be started.
        Exception: The exception of the first job that failed. Jobs that had not begun are not run.
    """
    validate_engine(engine)
    try:
        if executor is not None:
            _gather([executor.submit(call, job) for job in jobs], done, abort)
        elif engine == "threads":
            _in_threads(call, jobs, done, workers, progress)
        else:
            with ENGINES[engine](min(workers, len(jobs)) or 1) as made:
                _gather([made.submit(call, job) for job in jobs], done, abort)
    except BrokenExecutor as error:
        raise _lost(error) from error


def _lost(error: Exception) -> ChildProcessError:
    """The error for a worker that ended, or could not be started, for all engines."""
    what = str(error).partition("\n")[0][:200] or type(error).__name__
    return ChildProcessError(
        errno.ECHILD, f"a worker process ended before its work was done: {what}"
    )


def validate_engine(engine: object) -> None:
    """Check the name of an engine.

    Raises:
        TypeError: It is not a string.
        ValueError: It is not in `ENGINES`.
    """
    validate_word("engine", engine, [*ENGINES])


def _gather(
    futures: list[Any], done: Callable[[Any], None], abort: Callable[[], object] | None
) -> None:
    """Wait for all. After the first error no job is begun, and running ones are waited for."""
    try:
        for future in futures:
            done(future.result())
    except BaseException:
        if abort is not None:
            abort()
        # A future of another library may say that it is cancelled while its job is still writing.
        running = [
            pending for pending in futures if not (isinstance(pending, Future) and pending.cancel())
        ]
        for future in running:
            with suppress(Exception, Stopped):
                future.result()
        raise


def _in_threads(
    call: Callable[..., Any],
    jobs: Sequence[Any],
    done: Callable[[Any], None],
    workers: int,
    progress: Progress | None,
) -> None:
    if workers <= 1 or len(jobs) <= 1:
        for job in jobs:
            done(call(job, progress))
        return
    stop, turn = threading.Event(), threading.Lock()

    def report(nbytes: int) -> None:
        if stop.is_set():
            raise Stopped
        if progress is not None:
            with turn:
                progress(nbytes)

    with _threads(workers) as pool:
        _gather([pool.submit(call, job, report) for job in jobs], done, stop.set)


def _threads(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="tensorferry")


@contextmanager
def _processes(workers: int) -> Iterator[Executor]:
    import multiprocessing

    # Not by fork, which is not safe with threads and with some frameworks.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin_worker)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _begin_worker() -> None:
    """Ignore Ctrl-C in a worker, and end it when its parent ends."""
    import multiprocessing
    from multiprocessing.connection import wait

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch(sentinel: int) -> None:
        wait([sentinel])
        os._exit(1)

    threading.Thread(target=watch, args=(parent.sentinel,), daemon=True).start()


@contextmanager
def _dask(workers: int) -> Iterator[Executor]:
    distributed: Any = _needed("distributed", "dask")
    with ExitStack() as started:
        try:
            cluster = started.enter_context(
                distributed.LocalCluster(
                    n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=":0"
                )
            )
            client = started.enter_context(distributed.Client(cluster))
        except Exception as error:
            raise _lost(error) from error
        try:
            yield client
        except (distributed.KilledWorker, distributed.CancelledError, CancelledError) as error:
            raise _lost(error) from error


@contextmanager
def _ray(workers: int) -> Iterator[Executor]:
    ray: Any = _needed("ray", "ray")
    mine = not ray.is_initialized()
    try:
        if mine:
            ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
    except Exception as error:
        raise _lost(error) from error
    try:
        yield _RayExecutor(ray)
    except ray.exceptions.RayError as error:
        raise _lost(error) from error
    finally:
        if mine:
            ray.shutdown()


class _RayExecutor:
    """Ray's tasks, with the interface of the other executors."""

    def __init__(self, ray: Any) -> None:
        self.ray = ray

    def submit(self, call: Callable[..., Any], /, *arguments: Any) -> Submitted:
        return _RayFuture(
            self.ray, self.ray.remote(max_retries=0)(_called).remote(call, *arguments)
        )


def _called(call: Callable[..., Any], *arguments: Any) -> Any:
    return call(*arguments)


class _RayFuture:
    def __init__(self, ray: Any, reference: Any) -> None:
        self.ray = ray
        self.reference = reference

    def result(self) -> Any:
        try:
            return self.ray.get(self.reference)
        except self.ray.exceptions.RayTaskError as error:
            # Ray wraps the exception of a task. Callers expect the exception itself.
            raise error.cause from None


def _needed(module: str, engine: str) -> Any:
    try:
        return importlib.import_module(module)
    except Exception as error:
        raise FrameworkNotInstalledError(
            f'engine="{engine}" needs {module}, which cannot be imported ({type(error).__name__}: '
            f"{error}).",
            f"pip install {module}",
        ) from error


ENGINES: dict[str, Callable[[int], AbstractContextManager[Executor]]] = {
    "threads": _threads,
    "processes": _processes,
    "dask": _dask,
    "ray": _ray,
}
"""The context managers that make the executor of each engine."""
