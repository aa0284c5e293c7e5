"""Commands on files whose library may end the process over damage (HDF5's does): each in a process of its own."""

from __future__ import annotations

import importlib
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tensorferry.errors import ConversionError, FileFormatError
from tensorferry.files.base.wording import named
from tensorferry.files.registry import may_end_process

from .console import EXIT_INTERRUPTED
from .outcome import code_of, failed, result, told, writing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["main", "run"]

_CODE = "import sys; sys.path[:] = {!r}; from tensorferry.cli.child import main; main()"
_DIES_WITH_PARENT = 1
"""PR_SET_PDEATHSIG, https://man7.org/linux/man-pages/man2/PR_SET_PDEATHSIG.2const.html"""

_ALL: Mapping[str, dict[str, Any]] = {"inspect": {}, "check": {"ok": False}}
_EACH: Mapping[str, dict[str, Any]] = {"inspect": {}, "check": {"ok": False, "findings": []}}
"""What their JSON has, of all files and of each, if it came to nothing."""


def run(command: str, sources: Sequence[Path], /, *, in_process: bool, **arguments: Any) -> int:
    """The exit code of a command, which runs in a process of its own if it has to.

    Args:
        command: The module in this package that has it.
        sources: What it reads.
        in_process: Let it run here, whatever it reads.
        arguments: Of its function ``run``.
    """
    fragile = [] if in_process else [path for path in sources if _is_fragile(path)]
    if not fragile:
        code: int = importlib.import_module(f"tensorferry.cli.{command}").run(**arguments)
        return code
    # Larger than all that looking into a file needs.
    import pickle
    import signal
    import subprocess

    words = [sys.executable, "-c", _CODE.format(sys.path)]
    # In a session of its own, so that Ctrl-C comes from here, and once.
    with subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True) as process:  # noqa: S603 - our own code
        try:
            process.communicate(pickle.dumps((command, arguments)))
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            process.wait()
            return EXIT_INTERRUPTED
    if process.returncode >= 0:
        return process.returncode
    if command == "convert":
        _clean(arguments["target"], arguments["options"])
    which = f"{named(fragile)} is" if len(fragile) == 1 else f"One of {named(fragile)} is"
    error = FileFormatError(
        f"{which} damaged: HDF5's library ended the process that read it ({signal.Signals(-process.returncode).name}).",
        "get the file anew" if len(fragile) == 1 else "one file at a time, to see which",
    )
    if command == "convert" or not arguments["as_json"]:
        return failed(command, {"report": None}, error, as_json=arguments["as_json"])
    files = [{"path": str(path), **_EACH[command], "error": told(error, command)} for path in sources]
    with writing():
        result(command, {**_ALL[command], "files": files})
    return code_of(error)


def _is_fragile(path: Path) -> bool:
    try:
        return may_end_process(path)
    except OSError:
        return False  # The command says what is wrong.


def _clean(target: Path, options: Mapping[str, Any]) -> None:
    """Remove what an ended process has left, unless others write there too."""
    from tensorferry.files.workspace import Workspace

    if options["part"] is None and not options["dry_run"]:
        with suppress(ConversionError, OSError), Workspace(target) as space:
            space.recover()
            space.discard()


def main() -> None:
    """What the process does: the command and its arguments come on stdin, from the process that began this one.

    Raises:
        SystemExit: Always, with the exit code.
    """
    import ctypes
    import os
    import pickle
    import signal

    from . import end_with

    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGTERM)
    # What comes here is what the parent was told, also where Ctrl-C is ignored, as in a shell's background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    command, arguments = pickle.loads(sys.stdin.buffer.read())  # noqa: S301 - from this very package
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    end_with(lambda: importlib.import_module(f"tensorferry.cli.{command}").run(**arguments))
