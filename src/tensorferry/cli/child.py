"""Commands on files whose library may end the process over damage (HDF5's does): each in a process of its own."""

from __future__ import annotations

import ctypes
import importlib
import os
import pickle
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from tensorferry.errors import FileFormatError
from tensorferry.files.base.wording import named
from tensorferry.files.registry import may_end_process

from .console import EXIT_INTERRUPTED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

__all__ = ["main", "run"]

_CODE = "import sys; sys.path[:] = {!r}; from tensorferry.cli.child import main; main()"
_DIES_WITH_PARENT = 1
"""PR_SET_PDEATHSIG, https://man7.org/linux/man-pages/man2/PR_SET_PDEATHSIG.2const.html"""


def run(command: str, sources: Sequence[Path], failed: Callable[[FileFormatError], int], /, **arguments: Any) -> int:
    """The exit code of a command, which runs in a process of its own if it has to.

    Args:
        command: The module in this package that has it.
        sources: What it reads.
        failed: Tells that the process was ended; gives the exit code.
        arguments: Of its function ``run``.
    """
    fragile = [path for path in sources if _may_end_process(path)]
    if not fragile:
        code: int = importlib.import_module(f"tensorferry.cli.{command}").run(**arguments)
        return code
    # In a session of its own, so that Ctrl-C comes from here, and once.
    words = [sys.executable, "-c", _CODE.format(sys.path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True) as process:  # noqa: S603 - our own code
        try:
            process.communicate(pickle.dumps((command, arguments)))
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            process.wait()
            return EXIT_INTERRUPTED
    if process.returncode >= 0:
        return process.returncode
    name = signal.Signals(-process.returncode).name
    which = f"{named(fragile)} is damaged" if len(fragile) == 1 else f"One of {named(fragile)} is damaged"
    return failed(
        FileFormatError(
            f"{which}: HDF5's library ended the process that read it ({name}).",
            "get the file anew" if len(fragile) == 1 else "one file at a time, to see which",
        )
    )


def _may_end_process(path: Path) -> bool:
    try:
        return may_end_process(path)
    except OSError:
        return False  # The command says what is wrong.


def main() -> None:
    """What the process does: the command and its arguments come on stdin, from the process that began this one.

    Raises:
        SystemExit: Always, with the exit code.
    """
    from . import end_with

    ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGTERM)
    command, arguments = pickle.loads(sys.stdin.buffer.read())  # noqa: S301 - from this very package
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    end_with(lambda: importlib.import_module(f"tensorferry.cli.{command}").run(**arguments))
