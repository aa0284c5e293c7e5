"""``tensorferry doctor`` with outside packages: what they bring, whole or broken, and whose it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from tests.backends.plugins.packages import FORMAT, install
from tests.support import SOURCE

for needed in ("typer", "rich"):
    pytest.importorskip(needed, reason=f"the command line needs {needed}, which is not installed")

ABSENT = 'raise ModuleNotFoundError("No module named {0!r}", name={0!r})\n'


def doctor(folder, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "tensorferry", *arguments],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(folder), str(SOURCE)]),
            "COLUMNS": "100",
        },
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """No framework but NumPy, a backend and a format that work, and one of each that does not."""
    folder = tmp_path_factory.mktemp("site")
    for name in ("torch", "tensorflow", "jax"):
        (folder / f"{name}.py").write_text(ABSENT.format(name), encoding="utf-8")
    install(folder, "slabs-ferry", "slabs")
    install(folder, "tiles-ferry", "tiles", "raise SystemExit('no licence')")
    install(
        folder, "rows-ferry", "rows", FORMAT, group="formats", points={"rows": "rows_ferry:Rows"}
    )
    install(
        folder,
        "lines-ferry",
        "lines",
        "import no_such_module",
        group="formats",
        points={"lines": "lines_ferry:L"},
    )
    return folder


def test_it_tells_what_is_broken_and_measures_what_is_not(site):
    """Each with its package; a working outside framework is in the tables, and a broken one stops nothing."""
    code, out, err = doctor(site, "doctor", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert [tuple(each.values()) for each in found["plugins"]] == [
        ("tensorferry.backends", "slabs", "slabs-ferry 1.0", None),
        ("tensorferry.backends", "tiles", "tiles-ferry 1.0", "SystemExit: no licence"),
        (
            "tensorferry.formats",
            "lines",
            "lines-ferry 1.0",
            "ModuleNotFoundError: No module named 'no_such_module'",
        ),
        ("tensorferry.formats", "rows", "rows-ferry 1.0", None),
    ]
    assert found["frameworks"]["slabs"]["installed"]
    assert found["frameworks"]["slabs"]["package"] == "slabs-ferry 1.0"
    assert found["frameworks"]["tiles"]["error"] == "SystemExit: no licence"
    assert found["frameworks"]["tiles"]["install"] == "pip install --upgrade tiles-ferry"
    (pair,) = [
        each for each in found["pairs"] if (each["source"], each["target"]) == ("numpy", "slabs")
    ]
    assert pair["default"]["word"] == "shares"
    assert pair["default"]["by_address"]
    assert found["dtypes"]["slabs"]["exact"] == ["float32"]
    assert found["held"]


def test_a_person_reads_it_too(site):
    """The message, the package and the command that may fix it."""
    code, out, err = doctor(site, "doctor")
    text = " ".join(out.split())
    assert (code, err) == (0, "")
    assert "tensorferry.backends tiles tiles-ferry 1.0 broken: SystemExit: no licence" in text
    assert "tensorferry.formats rows rows-ferry 1.0 ok" in text
    assert "pip install --upgrade tiles-ferry" in text


def test_who_names_a_broken_one_on_the_command_line_is_told(site):
    """Not only that there is no such name."""
    code, out, err = doctor(site, "explain", "--from", "numpy", "--shape", "3", "--to", "tiles")
    assert code == 2
    assert "tiles-ferry 1.0" in " ".join((out + err).split())
