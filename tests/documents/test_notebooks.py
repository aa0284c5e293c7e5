"""The notebooks: the tour is what the cases type, every cell runs, and what is kept of a run is what it shows."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
import warnings

import pytest
from tests.support import ROOT

FOLDER = ROOT / "examples"
NAMES = sorted(path.name for path in FOLDER.glob("*.ipynb"))

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: it needs Python 3.11")
pytest.importorskip("nbclient", reason="nbclient is not installed: it needs Python 3.11")
pytest.importorskip("ipykernel", reason="ipykernel is not installed: it needs Python 3.11")


@pytest.fixture(scope="module")
def made():
    """`docs/notebooks.py`."""
    sys.path.insert(0, str(ROOT / "docs"))
    yield importlib.import_module("notebooks")
    sys.path.remove(str(ROOT / "docs"))


def read(name):
    with warnings.catch_warnings(action="ignore"):  # jsonschema's, of nbformat's own schema
        return nbformat.read(FOLDER / name, as_version=4)


def sources(notebook):
    return [(cell.cell_type, cell.id, cell.source) for cell in notebook.cells]


def test_there_are_two():
    assert NAMES == ["memory.ipynb", "tour.ipynb"]


def test_the_tour_is_what_the_cases_type(made):
    """`make pictures` writes it anew when a case has changed."""
    assert sources(read("tour.ipynb")) == sources(made.tour())
    assert sum(source.startswith("## C") for _, _, source in sources(read("tour.ipynb"))) == 27


@pytest.mark.parametrize("name", NAMES)
def test_every_cell_runs(name, monkeypatch):
    """One after the other, as a person runs them; what is printed is what is kept, up to the words of the build."""
    monkeypatch.setitem(os.environ, "TF_CPP_MIN_LOG_LEVEL", "3")
    monkeypatch.syspath_prepend(FOLDER)  # as for a notebook that is opened there
    names = {"__name__": "__main__"}
    for cell in read(name).cells:
        if cell.cell_type == "code":
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(cell.source, f"{name}, {cell.id}", "exec"), names)  # noqa: S102 - ours
            kept = "".join(each.text for each in cell.outputs if each.output_type == "stream")
            if "cuda" not in cell.source:
                assert printed.getvalue() == kept or "display" in cell.source


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_kept_that_changes(name):
    """No picture but the one that a cell asks for, no place of this machine, no address, no count of runs beside."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert '"text/html"' not in text
    assert len(text) < 60_000
    for words in (str(ROOT), "0x", "site-packages", "/tmp", "/home"):  # noqa: S108 - looked for
        assert words not in text
    notebook = read(name)
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_gives_what_is_kept(made, name):
    """In a process of its own: the same words, and each plan as a page."""
    notebook, kept = read(name), made.same_words(read(name))
    assert made.same_words(made.executed(notebook, FOLDER)) == kept


def test_pictures_are_what_the_code_draws():
    """`make pictures` draws them anew when the code has changed."""
    sys.path.insert(0, str(ROOT / "docs"))
    drawn = importlib.import_module("pictures").drawn()
    sys.path.remove(str(ROOT / "docs"))
    assert [file.name for file in drawn] == ["plan.svg"]
    for file, text in drawn.items():
        assert file.read_text(encoding="utf-8") == text
