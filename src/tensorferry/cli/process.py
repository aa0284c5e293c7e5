"""Processes: what every one sets up, and one of its own for a file, with a limit of memory."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..errors import ConversionError, FileFormatError
from ..files.base.raw import names_url
from ..files.base.wording import named
from ..files.encodings.paths import size_of
from ..files.opening.paths import format_of, index_of, lone, may_end_process
from .console import EXIT_INTERRUPTED, EXIT_USAGE, printable
from .outcome import code_of, error_data, failed, result, show_note, writing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path


__all__ = ["end_with", "expanded", "main", "run"]


# -- what every process sets up --------------------------------------------------------------------


def end_with(call: Callable[[], int]) -> None:
    """Run a call, and end the process with its exit code, or with the one for an exception.

    Raises:
        SystemExit: Always.
    """
    _fix_streams()
    received = _interrupt_on_signals()
    code: Any = 0
    try:
        try:
            code = call()
        except SystemExit as ended:
            code = ended.code
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except OSError as error:
        if error.filename is not None:
            raise
        # Python would try to write the rest of the output again when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        # It is not an error if the reader of a pipe stops early.
        if not isinstance(error, BrokenPipeError):
            sys.stderr.write(f"tensorferry: the output cannot be written: {error.strerror}\n")
            code = EXIT_USAGE
    raise SystemExit(128 + received[0] if received and code == EXIT_INTERRUPTED else code)


def _interrupt_on_signals() -> list[int]:
    """Treat SIGHUP and SIGTERM like Ctrl-C. The list gets the number of the signal."""
    received: list[int] = []

    def interrupt(number: int, _: object) -> None:
        # Only once, so that the clean-up is not interrupted.
        if not received:
            received.append(number)
            raise KeyboardInterrupt

    for name in ("SIGHUP", "SIGTERM"):
        number = getattr(signal, name, None)
        # A signal that is ignored (nohup) stays ignored. Only the main thread can set handlers.
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:
            with contextlib.suppress(ValueError):
                signal.signal(number, interrupt)
    return received


def _fix_streams() -> None:
    """Open closed streams to the null device, and make all characters writable."""
    while True:  # the lowest free descriptors belong to the closed streams
        descriptor = os.open(os.devnull, os.O_RDWR)
        if descriptor > 2:
            os.close(descriptor)
            break
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r+", encoding="utf-8"))  # noqa: SIM115, PTH123 - for good
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


# -- temporary folders of processes ----------------------------------------------------------------


def expanded(paths: Sequence[Path], *, is_quiet: bool) -> list[Path]:
    """The paths, with the files of a folder in the place of a folder that is no model itself.

    Args:
        paths: Files and folders.
        is_quiet: Whether to be silent about what is left out of a folder.
    """
    return [member for path in paths for member in _members(path, is_quiet=is_quiet)]


def _members(path: Path, *, is_quiet: bool) -> list[Path]:
    if names_url(path):
        return [path]
    try:
        if not path.is_dir() or index_of(path) is not None:
            return [path]
        entries = sorted(path.iterdir())
        whole = _lone(path)
    except (ConversionError, OSError):
        return [path]  # the command reports the error
    if whole == path:
        return [path]
    known = [entry for entry in entries if not entry.name.startswith(".") and _is_known(entry)]
    shown = known if whole is None else [path]
    if shown and not is_quiet:
        for what, left in _left_out(entries, known, whole):
            show_note(f"{printable(str(path))}: {what}: {printable(named(left))}")
    return shown or [path]


def _left_out(
    entries: Sequence[Path], known: Sequence[Path], whole: Path | None
) -> Iterator[tuple[str, list[str]]]:
    """What is left out of a folder: why, and the names."""
    if whole is not None:
        others = [entry.name for entry in known if entry != whole]
        groups = {f"not read, since {whole.name} is the model": others}
    else:
        left = [entry for entry in entries if entry not in known]
        files = [entry.name for entry in left if not entry.is_dir()]
        folders = [entry.name for entry in left if entry.is_dir()]
        groups = {
            "not of a format that is known": files,
            "folders that are not looked into": folders,
        }
    yield from ((what, names) for what, names in groups.items() if names)


def _lone(path: Path) -> Path | None:
    """The file that is a folder's model, or the folder, if it is one; ``None`` if it is none."""
    try:
        return lone(path)
    except ConversionError:
        return None


def _is_known(path: Path) -> bool:
    """Whether it is a file or a folder of a known format, or a folder that is one model."""
    try:
        if path.is_dir() and (index_of(path) is not None or _lone(path) is not None):
            return True
        format_of(path)
    except (ConversionError, OSError):
        return False
    return True


# -- a process of its own for a file ---------------------------------------------------------------
#
# HDF5's library does. So does tensorstore, which also expands the tree of keys of a database
# without a limit, so its process has one.

_CODE = "import sys; sys.path[:] = {!r}; from tensorferry.cli.process import main; main()"
_DIES_WITH_PARENT = 1
"""PR_SET_PDEATHSIG, https://man7.org/linux/man-pages/man2/PR_SET_PDEATHSIG.2const.html"""

_LEAST_MEMORY = 1 << 30
_PER_PROCESSOR = 1 << 26
"""The stacks and buffers of threads, which every library has for each processor."""
_RATIO = 64
"""Memory bytes for a byte of a database: a node is compressed, its keys share beginnings."""

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
    if in_process:
        fragile = []
    else:
        fragile = [path for path in sources if _is_fragile(path)]
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
    if len(fragile) == 1:
        which = f"{named(fragile)} is"
    else:
        which = f"One of {named(fragile)} is"
    ended = f"ended the process that read it ({signal.Signals(-process.returncode).name})."
    what = f"damaged: HDF5's library {ended}"
    if memory is not None:
        what = f"damaged, or takes more than {memory:,} bytes of memory: its library {ended}"
    if memory is None:
        hint = "get the file again"
    else:
        hint = "--in-process, which has no limit, if you trust who made it"
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
    from ..files.conversion.publish import Workspace

    if options["part"] is None and not options["dry_run"] and not names_url(target):
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
        if limit == resource.RLIM_INFINITY:
            most = memory
        else:
            most = min(memory, limit)
        resource.setrlimit(resource.RLIMIT_DATA, (most, limit))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        end_with(lambda: importlib.import_module(f"tensorferry.cli.{command}").run(**arguments))
    except MemoryError:
        os.abort()  # as a library does
