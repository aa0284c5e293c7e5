"""The languages of the site, and those that were built for this run: `make docs-test LANGUAGES=en`."""

from __future__ import annotations

import os

import pytest

ALL = ("en", "ko", "ja", "zh_CN")
BUILT = tuple(os.environ.get("FERRY_LANGUAGES", " ".join(ALL)).split())
NOT_BUILT = tuple(each for each in ALL if each not in BUILT)
EACH = [
    pytest.param(
        each,
        marks=pytest.mark.skipif(
            each in NOT_BUILT, reason=f"is not built: make docs-test LANGUAGES={each}"
        ),
    )
    for each in ALL
]
"""Values of a parameter."""
