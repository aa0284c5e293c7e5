"""The notebooks in ``examples``: the tour of cases from the cases themselves, and what a run of one gives.

What a run shows is kept as words: a plan's picture is drawn where the notebook is opened and run,
and would be some hundred thousand characters in the repository, in which no change can be read.
"""

from __future__ import annotations

import ast
import os
import re
from typing import TYPE_CHECKING, Any

import nbformat
from examples.tour.cases import CASES
from examples.tour.report import World
from examples.tour.stage import Played, Stage
from nbclient import NotebookClient

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = ["executed", "same_words", "tour"]

OPENING = """\
# A tour of tensorferry

The 27 cases of `python -m examples.tour`, to be read and run: what people type today, what goes wrong with it, and the
one call. Where a case needs a GPU, the plan is shown that would be run there.

Run it, and each plan is a picture of its memory. `make pictures` makes this notebook from the cases."""

SETTING = """\
import jax.numpy as jnp
import numpy as np
import tensorflow as tf
import torch

import tensorferry as ferry
from tour import digits  # the folder examples/tour

data = digits.load()  # scikit-learn's handwritten digits
model = digits.classifier(data)  # nn.Linear(64, 10), trained on them


def fresh():
    images = data.images.copy()
    return images, data.labels.copy(), model(torch.tensor(images))


class refused:
    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        print("no error" if kind is None else f"{kind.__name__}: {str(error).splitlines()[0]}")
        return True"""

MEASURED = """\
from tensorferry.cli.doctor import pairs

for pair in pairs(frozenset(["jax", "numpy", "python", "tensorflow", "torch"])):
    assert pair.held
    print(f"{pair.source:<34} to {pair.target:<12} {pair.word}")"""

_TARGETS = {"to_list": "python"}


class Writer(Stage):
    """A stage that also writes its lines down as cells, as if there were no GPU: a notebook is the same everywhere."""

    def __init__(self, record: Played, names: dict[str, Any], frameworks: frozenset[str]) -> None:
        super().__init__(record, names, frameworks)
        self.cells: list[nbformat.NotebookNode] = []
        self._lines: list[str] = ["images, labels, scores = fresh()"]
        self._shown = False

    @property
    def accelerator(self) -> str:
        """None, for what is written."""
        return ""

    def given(self, code: str) -> None:
        """As it is."""
        super().given(code)
        self._lines += code.replace("; ", "\n").splitlines()

    def then(self, code: str) -> None:
        """As it is."""
        super().then(code)
        self._lines.append(code)

    def today(self, code: str) -> Any:
        """With its value in `today`."""
        self._lines.append(f"today = {code}")
        return super().today(code)

    def today_elsewhere(self, code: str) -> None:
        """As a remark."""
        super().today_elsewhere(code)
        self._lines.append(f"# today, where there is a GPU: {code}")

    def now(self, code: str) -> Any:
        """With its value in `y`; of a case's first one call, the plan."""
        value = super().now(code)
        self._lines.append(f"y = {code}")
        plan = _explained(code)
        if plan is not None and not self._shown:
            self._show(plan)
        return value

    def memory(self, source: str, *, shared: bool) -> None:
        """Whether `y` shares memory with a source."""
        super().memory(source, shared=shared)
        self._lines.append(f"assert {'' if shared else 'not '}ferry.shares_memory({source}, y)")

    def plan(self, code: str) -> Any:
        """The plan, at the end of a cell, where it is drawn."""
        value = super().plan(code)
        self._lines.append(f"plan = {code}")
        self._show("plan")
        return value

    def note(self, words: str) -> None:
        """As a remark."""
        super().note(words)
        self._lines.append(f"# {words}")

    def check(self, what: str, expression: str) -> None:
        """As what must hold."""
        super().check(what, expression)
        self._lines.append(f"assert {expression}  # {what}")

    def _refusal(self, kind: Any, code: str, expected: type[Exception]) -> None:
        super()._refusal(kind, code, expected)
        self._lines += ["with refused():", f"    {code}"]

    def _show(self, expression: str) -> None:
        self._shown = True
        self._lines.append(expression)
        self.end()

    def end(self) -> None:
        """Make a cell of what has been written since the last one."""
        if self._lines:
            self._add("code", "\n".join(self._lines))
            self._lines = []

    def _add(self, kind: str, text: str) -> None:
        self.cells.append(_cell(kind, text))


def _cell(kind: str, text: str) -> nbformat.NotebookNode:
    return (
        nbformat.v4.new_markdown_cell(text)
        if kind == "markdown"
        else nbformat.v4.new_code_cell(text)
    )


def _explained(code: str) -> str | None:
    """The plan of the one call that code is, or begins with: ``ferry.to_torch(a, copy=True)``."""
    call: Any = ast.parse(code, mode="eval").body
    while isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        if getattr(call.func.value, "id", "") == "ferry":
            target = _TARGETS.get(call.func.attr, call.func.attr.removeprefix("to_"))
            words = [ast.unparse(call.args[0]), f'"{target}"', *map(ast.unparse, call.keywords)]
            return f"ferry.explain({', '.join(words)})"
        call = call.func.value
    return None


def tour() -> nbformat.NotebookNode:
    """The cases as cells, each played once to know what it types."""
    cells = [_cell("markdown", OPENING), _cell("code", SETTING)]
    world = World(frozenset(["jax", "numpy", "python", "tensorflow", "torch"]))
    for name, case in sorted(CASES.items()):
        writer = Writer(Played(name, case.title), world.fresh(), world.here)
        cells.append(_cell("markdown", f"## {name}: {case.title}"))
        if name == "C27":  # which plays without typing anything
            cells.append(_cell("code", MEASURED))
            continue
        case.play(writer)
        writer.end()
        cells += writer.cells
    return _numbered(nbformat.v4.new_notebook(cells=cells))


def _numbered(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """With names of cells that are the same each time, and nothing of who made it."""
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
    notebook["metadata"] = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


def executed(notebook: nbformat.NotebookNode, folder: Path) -> nbformat.NotebookNode:
    """A notebook after a run in a process of its own; of what it shows, the words.

    Raises:
        nbclient.exceptions.CellExecutionError: A cell has failed.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    place = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=place).execute()
    for cell in notebook.cells:
        cell.metadata.clear()
        if cell.cell_type == "code":
            cell.outputs = list(_in_words(cell.outputs))
    return _numbered(notebook)


def _in_words(outputs: Iterable[nbformat.NotebookNode]) -> Iterator[nbformat.NotebookNode]:
    """Outputs without what is said to a terminal, all that is printed as one, and of pages the words."""
    printed = "".join(each.text for each in outputs if each.get("name") == "stdout")
    if printed:
        yield nbformat.v4.new_output("stream", text=printed)
    for each in outputs:
        if "data" in each:
            each.data.pop("text/html", None)
            yield each


def same_words(notebook: nbformat.NotebookNode) -> list[str]:
    """What the cells show, without where in its 64-byte line some memory began this time."""
    outputs = [each for cell in notebook.cells if cell.cell_type == "code" for each in cell.outputs]
    texts = [each.get("text") or each.data["text/plain"] for each in outputs]
    return [re.sub(r", address % 64 == \d+", "", text) for text in texts]
