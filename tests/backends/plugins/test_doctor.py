"""``tensorferry doctor`` with outside packages: what they bring, whole or broken, and whose it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from tests.backends.plugins.packages import FORMAT, WITNESS, install
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


def bare(folder):
    """The folder, where no framework but NumPy is."""
    for name in ("torch", "tensorflow", "jax", "pyarrow", "pandas", "polars"):
        (folder / f"{name}.py").write_text(ABSENT.format(name), encoding="utf-8")
    return folder


def bring_witness(folder, body=WITNESS, name="slabs"):
    """A package with the witness of another package's framework."""
    points = {name: "looks_ferry:MyWitness"}
    install(folder, "looks-ferry", "looks", body, group="witnesses", points=points)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """No framework but NumPy, a backend, a format and a witness that work, and some that do not."""
    folder = bare(tmp_path_factory.mktemp("site"))
    install(folder, "slabs-ferry", "slabs")
    bring_witness(folder)
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


def test_it_tells_what_is_broken_and_judges_what_is_not(site):
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
        ("tensorferry.witnesses", "slabs", "looks-ferry 1.0", None),
    ]
    assert found["frameworks"]["slabs"]["installed"]
    assert found["frameworks"]["slabs"]["package"] == "slabs-ferry 1.0"
    assert found["frameworks"]["tiles"]["error"] == "SystemExit: no licence"
    assert found["frameworks"]["tiles"]["install"] == "pip install --upgrade tiles-ferry"
    (pair,) = [
        each for each in found["pairs"] if (each["source"], each["target"]) == ("numpy", "slabs")
    ]
    assert pair["default"]["word"] == "shares"
    assert pair["default"]["shares"]
    assert found["dtypes"]["slabs"]["exact"] == ["float32"]
    assert (found["held"], found["unjudged"]) == (True, {})


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


def test_a_framework_without_a_witness_is_not_said_to_be_right(tmp_path):
    """It is installed and listed; that nothing was judged is said, with who can change it."""
    install(bare(tmp_path), "slabs-ferry", "slabs")
    code, out, err = doctor(tmp_path, "doctor", "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert found["frameworks"]["slabs"]["installed"]
    assert "slabs" not in {pair["target"] for pair in found["pairs"]}
    assert "tensorferry.witnesses" in found["unjudged"]["slabs"]
    assert "slabs-ferry 1.0" in found["unjudged"]["slabs"]
    text = " ".join(doctor(tmp_path, "doctor")[1].split())
    assert "Not looked at" in text
    assert "slabs-ferry 1.0 for one" in text


@pytest.mark.parametrize(
    ("body", "name", "why"),
    [
        ("raise SystemExit('no licence')", "slabs", "SystemExit: no licence"),
        (
            "class MyWitness: pass",
            "slabs",
            "TypeError: MyWitness is no tensorferry.testing.Witness",
        ),
        (
            WITNESS,
            "slates",
            "ValueError: its entry point is named 'slates', and its witness 'slabs'",
        ),
    ],
)
def test_a_broken_witness_stops_nothing(tmp_path, body, name, why):
    """It is listed with its error, and its framework is not judged."""
    install(bare(tmp_path), "slabs-ferry", "slabs")
    bring_witness(tmp_path, body, name)
    code, out, err = doctor(tmp_path, "doctor", "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    (witness,) = [each for each in found["plugins"] if each["group"] == "tensorferry.witnesses"]
    assert (witness["name"], witness["package"]) == (name, "looks-ferry 1.0")
    assert witness["error"].startswith(why)
    assert list(found["unjudged"]) == ["slabs"]
    assert ("numpy", "numpy") in {(pair["source"], pair["target"]) for pair in found["pairs"]}


def test_a_package_that_breaks_the_contract_is_caught(tmp_path):
    """One that copies where its plan says that it shares: in the table, by name, and in the exit code."""
    install(bare(tmp_path), "slabs-ferry", "slabs")
    bring_witness(tmp_path)
    code = tmp_path / "slabs_ferry.py"
    body = code.read_text(encoding="utf-8").replace("memory.over(array)", "array.copy()")
    code.write_text(body, encoding="utf-8")
    done, out, _ = doctor(tmp_path, "doctor")
    text = " ".join(out.split())
    assert done == 1
    assert "WRONG" in text
    assert "numpy to slabs" in text
    assert "`pip install --upgrade tensorferry slabs-ferry`" in text
    done, out, _ = doctor(tmp_path, "doctor", "--json")
    found = json.loads(out)
    assert (done, found["held"]) == (1, False)
    assert {each["target"] for each in found["findings"]} == {"slabs"}


def test_a_witness_that_cannot_look_is_a_finding(tmp_path):
    """Every conversion that it is asked about is told, and the other frameworks are judged."""
    install(bare(tmp_path), "slabs-ferry", "slabs")
    bring_witness(tmp_path, WITNESS.replace("return Place(", "return Plaice("))
    code, out, _ = doctor(tmp_path, "doctor", "--json")
    found = json.loads(out)
    assert code == 1
    assert {each["about"] for each in found["findings"]} == {"witness"}
    assert all("Plaice" in each["text"] for each in found["findings"])
    assert all("slabs" in {each["source"], each["target"]} for each in found["findings"])
