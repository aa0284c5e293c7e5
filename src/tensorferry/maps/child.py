"""The process that runs a converter: it imports once, and is forked for each pass.

It is no sandbox: a converter has all rights of who runs it. Time and memory are bounded, and the
process that traces imports nothing because of a converter.

Both sides speak through files in a folder of their own; a line on a pipe says that a pass is to be
run, and another that it is over.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import pickle
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import ConversionError, UnsupportedTypeError, shown
from ..host.numpy_dtypes import numpy_dtype
from .lowering import Header

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from typing_extensions import Self

    from ..typing import Array
    from .dyes import Pass

__all__ = ["Child", "ConverterFailedError", "Job", "Output", "reference_to"]

_START = "import sys; from tensorferry.maps.running import main; main(sys.argv[1])"
_PREFIX = "tensorferry-trace-"
_LOCK = "lock"
_YOUNG = 60
"""A folder of fewer seconds may not be locked yet."""
_LONGEST_LOG = 2000
_FOR_IMPORTS = 120
"""How many seconds a pass may take besides, for imports and for what is ours."""


class ConverterFailedError(Exception):
    """A pass of a converter that gave nothing.

    Args:
        why: What happened, in a few words.
        detail: The exception and where it was raised, or what the converter wrote last.
        instead: What to do about it, if the process knows that.
    """

    def __init__(self, why: str, detail: str = "", instead: str | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.detail = detail
        self.instead = instead

    def error(self, hint: str | None = None) -> ConversionError:
        """The error for the user."""
        detail = " ".join(self.detail.split())
        return ConversionError(f"The converter {self.why}{f': {detail}' if detail else '.'}", hint)


class Job(NamedTuple):
    """What a process has to know to run a converter.

    Args:
        function: ``("module:name", None)``; or the function as bytes, and nothing.
        headers: The tensors of the source.
        framework: Whose tensors the converter takes.
        config: What is in ``config.json``; ``None`` without one.
        files: For a converter that takes a path: the files, each with the names of the tensors in
            it, or with the path of a file that it is a copy of; a name alone if the path is that of
            the file; ``None`` for ``model.safetensors`` in a folder.
        seconds: How long one pass may take.
        memory: How many bytes of memory a pass may take beyond what is imported.
        folder: Where both sides write.
    """

    function: tuple[str, bytes | None]
    headers: dict[str, Header]
    framework: str
    config: Mapping[str, Any] | None
    files: Mapping[str, Sequence[str] | str] | str | None
    seconds: float
    memory: int | None
    folder: str


class Output(NamedTuple):
    """What a converter gave in a pass.

    Args:
        headers: The tensors, by dotted name, in its order.
        others: What is no tensor, by name: the name of its type.
        starts: Where each tensor begins in the file.
        file: The file.
        seconds: How long the converter itself took.
    """

    headers: dict[str, Header]
    others: dict[str, str]
    starts: dict[str, int]
    file: Path
    seconds: float

    def array(self, name: str) -> Array:
        """A tensor, flat."""
        return self.part(name, 0, self.headers[name].size)

    def part(self, name: str, start: int, stop: int) -> Array:
        """The elements of a tensor from one place to before another."""
        kind = numpy_dtype(self.headers[name].dtype)
        place = self.starts[name] + start * kind.itemsize
        return np.fromfile(self.file, kind, stop - start, offset=place)


def reference_to(convert: Callable[..., Any] | str) -> tuple[str, bytes | None]:
    """How another process gets a function.

    Raises:
        UnsupportedTypeError: It cannot.
    """
    if isinstance(convert, str):
        module, colon, name = convert.partition(":")
        if not (module and colon and name):
            raise UnsupportedTypeError(
                f"{shown(convert)} names no converter.", '"package.module:function"'
            )
        return convert, None
    if not callable(convert):
        raise UnsupportedTypeError(
            f"{shown(convert)} is no function.", "WeightMap.trace(convert, source)"
        )
    module = getattr(convert, "__module__", None) or ""
    name = getattr(convert, "__qualname__", "")
    if module != "__main__" and _names(sys.modules.get(module), name) is convert:
        with suppress(ImportError, ValueError, AttributeError):
            if importlib.util.find_spec(module) is not None:
                return f"{module}:{name}", None
    return name or type(convert).__qualname__, _pickled(convert, module)


def _names(module: Any, name: str) -> Any:
    named = module
    for part in name.split("."):
        named = getattr(named, part, None)
    return named


def _pickled(convert: Callable[..., Any], module: str) -> bytes:
    way = (
        f"put {getattr(convert, '__qualname__', 'the function')} into a module that can be "
        "imported; or `pip install cloudpickle`"
    )
    try:
        cloudpickle: Any = importlib.import_module("cloudpickle")
    except ImportError:
        raise UnsupportedTypeError(
            "The converter is a lambda, a closure or a function of this program, which another "
            "process cannot import.",
            way,
        ) from None
    known = sys.modules.get(module)
    with suppress(Exception):
        if known is not None and importlib.util.find_spec(module) is None:
            cloudpickle.register_pickle_by_value(known)
    try:
        pickled: bytes = cloudpickle.dumps(convert)
    except Exception as error:
        raise UnsupportedTypeError(
            f"The converter holds what cannot be sent to another process: {error}.", way
        ) from error
    return pickled


class Child:
    """The process that runs a converter, for the process that traces.

    Args:
        job: The converter, and what it gets.
        given: Real weights, for passes of the kind ``"given"``.
    """

    def __init__(self, job: Job, given: Mapping[str, Array] | None = None) -> None:
        _remove_what_is_left()
        self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._lock = _locked(self._folder / _LOCK)
        self._job = job._replace(folder=str(self._folder))
        self._process: subprocess.Popen[bytes] | None = None
        self._count = 0
        self.seconds = 0.0
        """How long the converter itself took, in all passes."""
        (self._folder / "job.pickle").write_bytes(pickle.dumps(self._job))
        if given is not None:
            with (self._folder / "given.bin").open("wb") as file:
                for name in job.headers:
                    file.write(np.ascontiguousarray(given[name]).reshape(-1).view(np.uint8).data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process, and remove its files."""
        self._stop()
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            paths = [str(Path(__file__).resolve().parents[2]), *sys.path]
            environment = {
                **os.environ,
                # Threads of these begin at import, and a process with threads cannot be forked.
                "OPENBLAS_NUM_THREADS": "1",
                "PYTHONPATH": os.pathsep.join(
                    dict.fromkeys(path or str(Path.cwd()) for path in paths)
                ),
            }
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter
                [sys.executable, "-c", _START, str(self._folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                start_new_session=True,
            )
        return self._process

    def run(self, one: Pass) -> Output:
        """Run the converter once.

        Raises:
            ConverterFailedError: It gave nothing.
            ConversionError: The process could not begin.
        """
        number, self._count = self._count, self._count + 1
        process = self._start()
        line = json.dumps([number, *one]) + "\n"
        try:
            if process.stdin is not None:
                process.stdin.write(line.encode())
                process.stdin.flush()
            answer = self._answer(process)
        except (BrokenPipeError, EOFError):
            self._stop()
            raise ConverterFailedError("ended the process", self._log()) from None
        if "failed" in answer:
            if answer.get("is_over"):
                self._stop()
            raise ConverterFailedError(
                answer["failed"], answer.get("detail") or self._log(), answer.get("instead")
            )
        if answer.get("is_over"):
            self._stop()
        self.seconds += answer["seconds"]
        headers = {name: Header(tuple(shape), dtype) for name, shape, dtype, _ in answer["tensors"]}
        starts = {name: start for name, _, _, start in answer["tensors"]}
        file = self._folder / f"{number}.bin"
        return Output(headers, answer["others"], starts, file, answer["seconds"])

    def forget(self, output: Output) -> None:
        """Remove what a pass wrote."""
        output.file.unlink(missing_ok=True)

    def _log(self) -> str:
        """What the converter wrote last."""
        with suppress(OSError):
            text = (self._folder / "log.txt").read_text(errors="replace")
            return text[-_LONGEST_LOG:]
        return ""

    def _answer(self, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        """What the process says at the end of a pass."""
        pipe = process.stdout
        if pipe is None:
            raise EOFError
        # By a thread, because not every system can wait for a pipe with a limit of time.
        lines: list[bytes] = []
        reader = threading.Thread(target=lambda: lines.append(pipe.readline()), daemon=True)
        reader.start()
        reader.join(self._job.seconds + _FOR_IMPORTS)
        if reader.is_alive():
            self._stop()
            reader.join()
            raise ConverterFailedError(
                f"did not end within {self._job.seconds:g} seconds", self._log()
            )
        written = b"".join(lines)
        if not written:
            raise EOFError
        answer: dict[str, Any] = json.loads(written)
        if "answer" in answer:
            answer = json.loads(Path(answer["answer"]).read_text())
        return answer


def _locked(path: Path) -> int | None:
    """A lock on a file, which ends with this process; ``None`` if another has it, or none can be."""
    try:
        import fcntl
    except ImportError:
        return None
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _remove_what_is_left() -> None:
    """Remove the folders of traces that were killed together with their converter."""
    with suppress(OSError):
        for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            with suppress(OSError):
                status = folder.lstat()
                is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
                is_old = time.time() - status.st_mtime > _YOUNG
                if not (is_ours and is_old and (folder / _LOCK).exists()):
                    continue
                lock = _locked(folder / _LOCK)
                if lock is not None:
                    shutil.rmtree(folder, ignore_errors=True)
                    os.close(lock)
