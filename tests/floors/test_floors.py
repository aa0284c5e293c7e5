"""The floors of pyproject.toml are one truth: what `make floors` installs and what the README says are read off it."""

from __future__ import annotations

import re
from importlib.metadata import version

import pytest
from tests.floors.floors import BUILDS, ROOT, TOOLS, floors, requirements, tools
from tests.support import survives

from tensorferry.backends import registry

NAMES = {"NumPy": "numpy", "PyTorch": "torch", "TensorFlow": "tensorflow", "JAX": "jax"}


@pytest.fixture(autouse=True)
def _no_release_between(monkeypatch):
    """Also in `make floors TORCH=…`."""
    monkeypatch.delenv("TORCH", raising=False)


def numbers(text):
    return tuple(int(part) for part in re.findall(r"\d+", text))


def test_every_requirement_is_tried_at_its_floor():
    """One exact pin for each requirement of the package and of its extras, at the very version written there."""
    pinned = floors()
    assert {
        "numpy",
        "optree",
        "torch",
        "tensorflow",
        "jax",
        "typer",
        "h5py",
        "zarr",
        "distributed",
        "ray",
    } <= set(pinned)
    for line in requirements():
        name, floor = line.partition(";")[0].strip().split(">=")
        assert pinned[name].partition(";")[0].strip() == f"{BUILDS.get(name, name)}=={floor}"


def test_a_release_between_can_be_tried(monkeypatch):
    """Only PyTorch's: the rest stays at the floors."""
    before = floors()
    monkeypatch.setenv("TORCH", "2.8")
    assert floors() == {**before, "torch": "torch==2.8"}


def test_a_requirement_that_is_no_floor_is_said(monkeypatch):
    """An exact pin or an upper bound in pyproject.toml does not pass by unseen."""
    monkeypatch.setattr("tests.floors.floors.requirements", lambda: ["numpy>=2.1,<3"])
    with pytest.raises(ValueError, match="no floor"):
        floors()


def test_the_tools_have_pins():
    """What runs the tests is pinned, for each Python."""
    assert {line.partition("==")[0] for line in tools()} == set(TOOLS)


def test_the_file_needs_no_package():
    """It is run in an environment that holds nothing yet."""
    printed = survives(
        f"import runpy; runpy.run_path({str(ROOT / 'tests/floors/floors.py')!r}, run_name='__main__')"
    )
    assert printed.splitlines() == [*floors().values(), *tools()]


def test_the_readme_names_these_floors():
    """The line for users cannot say less, or more, than what is tried."""
    said = re.search(
        r"You need Python .*? or a later version",
        (ROOT / "README.md").read_text(encoding="utf-8"),
        re.DOTALL,
    )[0]
    asked = dict(line.partition(";")[0].strip().split(">=") for line in requirements())
    for word, name in NAMES.items():
        assert numbers(re.search(rf"{word} ([\d.]+\d)", said)[1]) == numbers(asked[name])


@pytest.mark.parametrize("name", ["torch", "tensorflow", "jax", "polars"])
def test_a_release_has_the_dtypes_that_it_is_said_to_have(name):
    """What came after the floor is there from the release on that the errors name, and not before."""
    pytest.importorskip(name)
    dtypes = registry.ready(name).capabilities.dtypes
    here = numbers(
        version("jaxlib" if name == "jax" else BUILDS[name] if name == "tensorflow" else name)
    )[:2]
    assert dtypes.since
    for dtype, release in dtypes.since.items():
        assert (dtype in dtypes.held) is (here >= numbers(release)), dtype


@pytest.mark.parametrize("name", ["ml_dtypes", "numpy"])
def test_what_is_installed_is_not_below_its_floor(name):
    """The tests never run below what users may have."""
    assert numbers(version(name))[:3] >= numbers(floors()[name].partition(";")[0])
