"""What is skipped because a library is not installed: nothing else."""

from __future__ import annotations

import doctest

import pytest
from tests import absent


@pytest.fixture
def two(monkeypatch):
    """A library that is not installed, and one that is."""
    monkeypatch.setattr(absent, "OPTIONAL", frozenset({"no_such_library", "numpy"}))


@pytest.mark.parametrize(
    "error",
    [
        ModuleNotFoundError("No module named 'no_such_library.part'"),
        AssertionError("ended with 1\nModuleNotFoundError: No module named 'no_such_library'\n"),
        ValueError("no_such_library is not installed.\n\nHint: pip install no_such_library"),
        doctest.UnexpectedException(
            None, None, (None, ImportError("no_such_library is not installed"), None)
        ),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_library_that_is_not_installed_is_the_reason(two, error):
    """Whoever says so: Python, another process, this library."""
    with pytest.raises(pytest.skip.Exception, match="no_such_library is not installed"):
        absent.skip_if_absent(error)


@pytest.mark.parametrize("words", ["numpy is not installed", "No module named 'nunpy'", "Boom"])
def test_everything_else_fails(two, words):
    """A library that is installed, a misspelled name, any other error."""
    absent.skip_if_absent(ImportError(words))
