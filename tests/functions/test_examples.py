"""The worked examples, which compare what they compute with each framework's own."""

from __future__ import annotations

import runpy

import pytest
from tests.support import ROOT

FOLDER = ROOT / "examples" / "functions"


def run(name):
    return runpy.run_path(str(FOLDER / name))["main"]()


def test_optax_trains_a_network_of_pytorchs(capsys):
    """Equal to PyTorch's own training after every step, which the example itself compares; and it learns."""
    losses = run("optax_trains_pytorch.py")
    assert losses[-1][0] < losses[0][0] / 2
    assert "loss by optax" in capsys.readouterr().out


def test_jax_and_numpy_in_a_loop_of_pytorchs(capsys):
    """The simulator's gradient is the same in both, and the fit gets better."""
    losses = run("jax_and_numpy_in_pytorch.py")
    assert losses[-1] < losses[0] / 50
    assert "diffusivity" in capsys.readouterr().out


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_the_page_leads_to_each(path):
    assert f"examples/functions/{path.name}" in (
        ROOT / "docs" / "reference" / "functions.md"
    ).read_text(encoding="utf-8")
