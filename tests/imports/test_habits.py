"""What contributors are told is what there is: make targets, versions, folders, and since when a function is there."""

from __future__ import annotations

import inspect
import re
from itertools import pairwise

import pytest
import yaml
from tests.support import ROOT

import tensorferry
import tensorferry.testing
from tensorferry.files.base.contents import Contents
from tensorferry.transfers.prefetch import PrefetchStats

HOSTED = sorted((ROOT / ".github").rglob("*.yml"))
WORKFLOWS = {path.stem: path for path in HOSTED if path.parent.name == "workflows"}
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "tests/README.md",
    ".github/PULL_REQUEST_TEMPLATE.md",
)
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
TARGETS = set(
    re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
)


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def jobs():
    """Each job of the workflows, and its name."""
    for path in WORKFLOWS.values():
        yield from yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].items()


def commands():
    """Each command of the hosted workflows, with what its matrix puts into it."""
    for _, job in jobs():
        matrix = job.get("strategy", {}).get("matrix", {})
        for step in job["steps"]:
            if "run" in step:
                name = re.search(r"\${{ matrix\.([\w-]+) }}", step["run"])
                values = matrix[name[1]] if name else [""]
                yield from (
                    step["run"].replace(name[0], value) if name else step["run"] for value in values
                )


def made(command):
    """The targets of one ``make …``: its words up to a variable's, or a comment."""
    words = re.sub(r"'[^']*'", "", command.partition("#")[0]).split()
    assert words[0] == "make", command
    return [word for word in words[1:] if "=" not in word]


@pytest.mark.parametrize("path", HOSTED, ids=lambda path: path.name)
def test_what_a_host_reads_can_be_parsed(path):
    """Every template and workflow is YAML, and a mapping."""
    assert isinstance(yaml.safe_load(path.read_text(encoding="utf-8")), dict)


def test_the_makefile_names_files_that_are_there():
    """Tests that are moved take their names in the Makefile with them."""
    named = set(re.findall(r"tests/[\w./]+", read("Makefile")))
    assert len(named) > 10
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_the_tests_of_files_run_if_anything_that_they_rest_on_has_changed():
    """All that files import, and what that imports, by the arrows that the page draws."""
    drawn = re.findall(r"^(\w+) +-> (.+)$", read("docs/architecture.md"), re.MULTILINE)
    arrows = {name: to.split() for name, to in drawn}
    rest, left = set(), ["files"]
    while left:
        name = left.pop()
        left += [to for to in arrows.get(name, []) if to not in rest]
        rest.add(name)
    listed = re.search(r"addprefix src/tensorferry/,(.*?)\)", read("Makefile"))[1].split()
    assert {name.removesuffix(".py") for name in listed} >= rest
    assert all((ROOT / "src" / "tensorferry" / name).exists() for name in listed)


def test_the_workflows_run_targets_that_are_there():
    """A target that is renamed is renamed there too; all that a hosted run does can be done by hand."""
    asked = [target for command in commands() for target in made(command)]
    assert set(asked) <= TARGETS
    needed = {"lint", "types", "test", "coverage", "release-check", "floors", "everyday", "slow"}
    assert needed <= set(asked)


def test_what_lands_is_checked_and_built():
    """The script that decides runs `make check`, whose targets hosted runs have too: the package is one of them."""
    script = [line for line in read(".ci/run").splitlines() if line.startswith("make ")]
    assert script == ["make check"]
    (recipe,) = re.findall(r"^check:.*\n((?:\t.*\n)+)", read("Makefile"), re.MULTILINE)
    runs = re.findall(r"\$\(MAKE\)((?: [\w-]+)+)(?: \$\(VENV\)/\.docs)?$", recipe, re.MULTILINE)
    runs += re.findall(r"\$\(MAKE\) -j 2 --output-sync=target(.*)", recipe)
    runs += re.findall(r"set -e; for target in (.*?); do", recipe)
    assert len(runs) == len(recipe.splitlines())
    checked = {each for run in runs for each in made(f"make {run}".replace('"', ""))}
    # They are the two of `make types`.
    if {"mypy", "pyright"} <= checked:
        checked = checked - {"mypy", "pyright", "install"} | {"types"}
    assert {"lint", "types", "test", "test-without-extension", "wheel"} <= checked <= TARGETS
    hosted = {target for command in commands() for target in made(command)}
    assert checked <= hosted


@pytest.mark.parametrize("page", PAGES)
def test_the_pages_name_targets_that_are_there(page):
    """In code within a line, and in lines of shell."""
    text = read(page)
    shell = [
        line
        for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
        for line in block.splitlines()
    ]
    within = [
        " ".join(code.split())
        for code in re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    ]
    asked = [
        target for line in [*shell, *within] if line.startswith("make ") for target in made(line)
    ]
    assert set(asked) <= TARGETS
    assert asked or page == "SECURITY.md"


def test_the_pythons_are_those_that_are_promised():
    """Each that the classifiers name is tested and is given the package; the lowest is the one that is required."""
    promised = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', PROJECT)
    matrices = {
        name: job["strategy"]["matrix"]["python-version"]
        for name, job in jobs()
        if name in ("test", "package")
    }
    assert matrices == {"test": promised, "package": promised}
    assert re.search(r'requires-python = ">=(.*?)"', PROJECT)[1] == promised[0]


def test_one_version_of_ruff():
    """What runs before a commit is what `make lint` runs."""
    (hook,) = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"]
    assert f"ruff=={hook['rev'].removeprefix('v')}" in read("constraints.txt").splitlines()
    assert {each["id"] for each in hook["hooks"]} == {"ruff-check", "ruff-format"}


def numbers(version):
    return tuple(int(part) for part in version.split("."))


def test_one_version_of_the_package():
    """It stands in two files, which a release changes together."""
    assert re.search(r'^version = "(.*?)"', PROJECT, re.MULTILINE)[1] == tensorferry.__version__


PUBLIC = {
    getattr(module, name)
    for module in (tensorferry, tensorferry.testing)
    for name in module.__all__
    if inspect.isroutine(getattr(module, name)) or inspect.isclass(getattr(module, name))
} | {tensorferry.open, Contents, PrefetchStats}


@pytest.mark.parametrize(
    "named", sorted(PUBLIC, key=lambda each: each.__name__), ids=lambda each: each.__name__
)
def test_a_public_name_says_since_when_it_is_there(named):
    """One `versionadded`, of this version or of one before it."""
    (added,) = re.findall(r"^ *\.\. versionadded:: (\d+\.\d+)$", named.__doc__, re.MULTILINE)
    assert numbers(added) <= numbers(tensorferry.__version__)[:2]


def test_the_folders_are_told_from_the_bottom_up():
    """The table of the source names every folder, each below what it may import from."""
    drawn = re.search(r"```floors\n(.*?)```", read("docs/architecture.md"), re.DOTALL)[
        1
    ].splitlines()
    height = {name: len(drawn) - index for index, line in enumerate(drawn) for name in line.split()}
    told = re.findall(r"^\| `(\w+)/` \|", read("CONTRIBUTING.md"), re.MULTILINE)
    package = ROOT / "src" / "tensorferry"
    assert sorted(told) == sorted(path.parent.name for path in package.glob("*/__init__.py"))
    assert all(height[low] <= height[high] for low, high in pairwise(told))


def test_the_folders_of_tests_are_told():
    """A stranger finds every folder in the table, and no other."""
    told = re.findall(
        r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \|", read("tests/README.md"), re.MULTILINE))
    )
    there = {path.parent.name for path in (ROOT / "tests").glob("*/*.py")}
    assert sorted(told) == sorted(there)


def test_folders_of_tests_have_names_of_the_source_or_of_a_subject():
    """Each folder of the source has its tests under its own name."""
    there = {path.parent.name for path in (ROOT / "tests").glob("*/*.py")}
    assert {
        path.parent.name for path in (ROOT / "src" / "tensorferry").glob("*/__init__.py")
    } <= there
