"""The recipe of `tensorferry.testing`, word by word, in a project of its own whose warnings are errors."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.backends.plugins.packages import WITNESS, install
from tests.support import SOURCE

from tensorferry import testing

BACKEND = "from slabs_ferry import Mine as MyBackend\n"
RECIPE = "\n".join(line[4:] for line in testing.__doc__.splitlines() if line.startswith("    "))


def project(folder, recipe=RECIPE):
    """A project with a backend that is installed, a strict pytest, and one test file."""
    install(folder, "slabs-ferry", "slabs")
    (folder / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\nfilterwarnings = ["error"]\n', encoding="utf-8"
    )
    (folder / "tests").mkdir()
    (folder / "tests" / "test_contract.py").write_text(
        BACKEND + WITNESS + recipe.replace('"mine"', '"slabs"')
    )


def judged(folder, *options, path=()):
    """How many tests passed, and what pytest said; all must have."""
    done = subprocess.run(
        [
            sys.executable,
            *options,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "tests",
        ],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, (folder, *path, SOURCE))),
            "TF_CPP_MIN_LOG_LEVEL": "3",
        },
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    (passed,) = re.findall(r"^(\d+) passed in", done.stdout, re.MULTILINE)
    return int(passed)


@pytest.fixture
def bare(tmp_path_factory):
    """A folder with what tensorferry and pytest need, and no framework: `sys.path` of an empty environment."""
    folder = tmp_path_factory.mktemp("site")
    needed = (
        "numpy",
        "ml_dtypes",
        "optree",
        "typing_extensions",
        "pytest",
        "_pytest",
        "pluggy",
        "iniconfig",
        "packaging",
    )
    if sys.version_info < (3, 11):
        needed += ("exceptiongroup", "tomli")
    for name in (*needed, "py", "pygments"):
        origin = Path(importlib.util.find_spec(name).origin)
        whole = origin.parent if origin.name == "__init__.py" else origin
        for each in (whole, whole.parent / f"{name}.libs"):
            if each.exists():
                (folder / each.name).symlink_to(each)
    return folder


@pytest.mark.parametrize("registered", [True, False], ids=["registered", "by its entry point"])
def test_the_recipe_works_in_an_empty_environment(tmp_path, bare, registered):
    """Only NumPy and pytest: the suite judges what can be, and nothing fails for a framework that is not there."""
    register = "registry.register(MyBackend())\n"
    assert register in RECIPE
    project(tmp_path, RECIPE if registered else RECIPE.replace(register, ""))
    assert judged(tmp_path, "-S", path=[bare]) > 20


@pytest.mark.slow
def test_the_recipe_works_beside_every_framework(tmp_path):
    """From and to each of them, whose own warnings are errors too."""
    project(tmp_path)
    assert judged(tmp_path) > 60


def test_a_witness_by_its_entry_point_needs_no_line_in_the_tests(tmp_path, bare):
    """Once it is in the package, the tests and the doctor look at the framework with the same one."""
    add = "testing.add_witness(MyWitness())\n"
    assert add in RECIPE
    project(tmp_path, RECIPE.replace(add, ""))
    with pytest.raises(AssertionError, match="has no witness"):
        judged(tmp_path, "-S", path=[bare])
    points = {"slabs": "looks_ferry:MyWitness"}
    install(tmp_path, "looks-ferry", "looks", WITNESS, group="witnesses", points=points)
    assert judged(tmp_path, "-S", path=[bare]) > 20


def test_a_backend_that_breaks_the_contract_fails_there(tmp_path, bare):
    """The recipe can fail: a backend that adopts a copy in silence."""
    project(tmp_path)
    body = (
        (tmp_path / "slabs_ferry.py")
        .read_text(encoding="utf-8")
        .replace("memory.over(array)", "array.copy()")
    )
    (tmp_path / "slabs_ferry.py").write_text(body, encoding="utf-8")
    with pytest.raises(AssertionError, match="NonConformance"):
        judged(tmp_path, "-S", path=[bare])


def test_a_name_that_nobody_witnesses_is_not_an_empty_suite():
    """A misspelt name would make pytest skip everything in silence."""
    with pytest.raises(LookupError, match="add_witness"):
        testing.groups("slaps")
