"""The command line as a person runs it: in a process of its own, its two streams apart."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests import support

SOURCE = Path(__file__).resolve().parents[2] / "src"


class Cli:
    """Runs ``tensorferry …``; packages in `shadows` stand before the installed ones."""

    def __call__(self, *arguments, shadows=None, env=None, timeout=240):
        paths = [str(shadows)] if shadows else []
        paths += [str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])]
        clean = {key: value for key, value in os.environ.items() if key not in _DECIDES_LOOKS}
        return subprocess.run(
            [sys.executable, "-m", "tensorferry", *arguments],
            env={**clean, "PYTHONPATH": os.pathsep.join(paths), **(env or {})},
            capture_output=True,
            encoding="utf-8",
            timeout=timeout,
            check=False,
        )


def _runner(*modules):
    """Runs ``tensorferry …`` in a process of its own that is forked, not started: what it imports is there already."""

    def run(*arguments, env=None):
        unset = _DECIDES_LOOKS.difference(env or {})
        return support.forked_command(modules, arguments, unset=unset, **(env or {}))

    return run


_DECIDES_LOOKS = {"COLUMNS", "FORCE_COLOR", "NO_COLOR", "TERM", "TF_CPP_MIN_LOG_LEVEL", "PY_COLORS"}


@pytest.fixture(autouse=True)
def _no_columns(monkeypatch):
    """A person's or a runner's COLUMNS does not decide how wide the lines are that tests read."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(scope="session")
def cli():
    return Cli()


@pytest.fixture(scope="session")
def forked_cli():
    """The commands for words, where it is not the question how the process starts: a third of the time of `cli`."""
    return _runner(*support.COMMAND_LINE)


@pytest.fixture(scope="session")
def forked_cli_with_frameworks():
    """The same with every framework imported, for commands that convert with all of them."""
    return _runner(*support.FRAMEWORKS)


@pytest.fixture(scope="session")
def once(tmp_path_factory):
    """Computes plain data once for a whole run, in whichever process asks first."""

    def ask(name, compute):
        if "PYTEST_XDIST_WORKER" not in os.environ:
            return compute()
        kept = tmp_path_factory.getbasetemp().parent / f"{name}.json"
        with kept.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not kept.exists():
                kept.write_text(json.dumps(compute()), encoding="utf-8")
            return json.loads(kept.read_text(encoding="utf-8"))

    return ask


@pytest.fixture(scope="session")
def shadow(tmp_path_factory):
    """Makes a folder with packages that fail on import, in the words given."""

    def make(**modules):
        folder = tmp_path_factory.mktemp("shadows")
        for name, body in modules.items():
            package = folder / name
            package.mkdir()
            (package / "__init__.py").write_text(body, encoding="utf-8")
        return folder

    return make


ABSENT = 'raise ModuleNotFoundError("No module named {0!r}", name={0!r})\n'


@pytest.fixture(scope="session")
def absent(shadow):
    """Makes a folder that hides packages, as if they were not installed."""
    return lambda *names: shadow(**{name: ABSENT.format(name) for name in names})
