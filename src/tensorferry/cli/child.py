"""Run commands in a child process, for files whose library may end the process if they are damaged.

HDF5's library does. So does tensorstore, which also expands the tree of keys of a database without
a limit, so its process has one.
"""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tensorferry.errors import ConversionError, FileFormatError
from tensorferry.files.base.wording import named
from tensorferry.files.encodings.paths import size_of
from tensorferry.files.opening.paths import may_end_process

from .console import EXIT_INTERRUPTED
from .folders import expanded
from .outcome import code_of, error_data, failed, result, writing
from .process import end_with

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["main", "run"]

_CODE = "import sys; sys.path[:] = {!r}; from tensorferry.cli.child import main; main()"
_DIES_WITH_PARENT = 1
"""PR_SET_PDEATHSIG, https://man7.org/linux/man-pages/man2/PR_SET_PDEATHSIG.2const.html"""

_LEAST_MEMORY = 1 << 30
_PER_PROCESSOR = 1 << 26
"""The stacks and buffers of threads, which every library has for each processor."""
_RATIO = 64
"""Bytes of memory for a byte of a database: a node is compressed, and its keys share their beginnings."""

_ALL: Mapping[str, dict[str, Any]] = {"inspect": {}, "check": {"ok": False}}
_EACH: Mapping[str, dict[str, Any]] = {"inspect": {}, "check": {"ok": False, "findings": []}}
"""The JSON of these commands if the child process ends early, for all files and for each."""


def run(command: str, sources: Sequence[Path], /, *, in_process: bool, **arguments: Any) -> int:
    """Run a command, in a child process if necessary, and give the exit code.

    Args:
        command: The module of the command in this package.
        sources: The files that it reads.
        in_process: Whether to run it in this process in any case.
        arguments: The arguments of its function ``run``.
    """
    if command in _EACH:
        sources = arguments["paths"] = expanded(sources, is_quiet=arguments["as_json"])
    fragile = [] if in_process else [path for path in sources if _is_fragile(path)]
    if not fragile:
        code: int = importlib.import_module(f"tensorferry.cli.{command}").run(**arguments)
        return code
    memory = _memory(fragile)
    # Imported here, because it takes more memory than to inspect a file.
    import pickle
    import signal
    import subprocess

    words = [sys.executable, "-c", _CODE.format(sys.path)]
    # In its own session, so that only this process sends it Ctrl-C.
    with subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True) as process:  # noqa: S603 - our own code
        try:
            process.communicate(pickle.dumps((command, arguments, memory)))
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            process.wait()
            return EXIT_INTERRUPTED
    if process.returncode >= 0:
        return process.returncode
    if command == "convert":
        _clean(arguments["target"], arguments["options"])
    which = f"{named(fragile)} is" if len(fragile) == 1 else f"One of {named(fragile)} is"
    ended = f"ended the process that read it ({signal.Signals(-process.returncode).name})."
    what = f"damaged: HDF5's library {ended}"
    if memory is not None:
        what = f"damaged, or takes more than {memory:,} bytes of memory: its library {ended}"
    hint = (
        "get the file again"
        if memory is None
        else "--in-process, which has no limit, if you trust who made it"
    )
    error = FileFormatError(
        f"{which} {what}", hint if len(fragile) == 1 else "one file at a time, to see which"
    )
    if command == "convert" or not arguments["as_json"]:
        return failed(command, {"report": None}, error, as_json=arguments["as_json"])
    files = [
        {"path": str(path), **_EACH[command], "error": error_data(error, command)}
        for path in sources
    ]
    with writing():
        result(command, {**_ALL[command], "files": files})
    return code_of(error)


def _is_fragile(path: Path) -> bool:
    try:
        return may_end_process(path)
    except OSError:
        return False  # the command reports the error


def _memory(fragile: Sequence[Path]) -> int | None:
    """The most bytes of memory for the process that reads these; ``None`` if it has no limit."""
    folders = [path for path in fragile if path.is_dir()]
    if not folders:
        return None
    return (
        _LEAST_MEMORY + _PER_PROCESSOR * (os.cpu_count() or 1) + _RATIO * sum(map(size_of, folders))
    )


def _clean(target: Path, options: Mapping[str, Any]) -> None:
    """Remove what the ended process has left, unless other processes write there too."""
    from tensorferry.files.conversion.publish import Workspace

    if options["part"] is None and not options["dry_run"]:
        with suppress(ConversionError, OSError), Workspace(target) as space:
            space.recover()
            space.discard()


def main() -> None:
    """The main function of the child process, which gets the command and its arguments on stdin.

    Raises:
        SystemExit: Always, with the exit code.
    """
    import ctypes
    import pickle
    import signal

    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGTERM)
    # The parent passes Ctrl-C on, so it must not be ignored here, even in the background of a
    # shell.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    command, arguments, memory = pickle.loads(sys.stdin.buffer.read())  # noqa: S301 - from this very package
    if memory is not None and sys.platform == "linux":  # elsewhere it does nothing
        import resource

        limit = resource.getrlimit(resource.RLIMIT_DATA)[1]
        most = memory if limit == resource.RLIM_INFINITY else min(memory, limit)
        resource.setrlimit(resource.RLIMIT_DATA, (most, limit))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        end_with(lambda: importlib.import_module(f"tensorferry.cli.{command}").run(**arguments))
    except MemoryError:
        os.abort()  # as a library does
