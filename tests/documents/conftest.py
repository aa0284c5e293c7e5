"""The pages show what commands print where nothing says how wide a line may be."""

import pytest


@pytest.fixture(autouse=True)
def _no_columns(monkeypatch):
    """A person's or a runner's COLUMNS does not decide how wide the lines are that pages show."""
    monkeypatch.delenv("COLUMNS", raising=False)
