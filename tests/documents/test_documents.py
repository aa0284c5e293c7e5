"""The documents' examples run, and what they promise to name is named."""

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


def test_readme_examples_run():
    """Every example in the README gives what it shows, error messages included."""
    result = doctest.testfile(str(ROOT / "README.md"), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)

    assert result.attempted > 8
    assert result.failed == 0


@pytest.mark.parametrize(
    "document", sorted(p.name for p in (ROOT / "docs").glob("*.md") if ">>> " in p.read_text(encoding="utf-8"))
)
def test_examples_of_the_pages_run(document):
    """Every example in a page gives what it shows, error messages included."""
    page = str(ROOT / "docs" / document)
    result = doctest.testfile(page, module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)

    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize(
    "document",
    [
        *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "tests/README.md"),
        *sorted(p.name for p in (ROOT / "docs").glob("*.md")),
    ],
)
def test_links_lead_somewhere(document):
    """Every relative link in a document names a file that is there."""
    path = ROOT / document if (ROOT / document).exists() else ROOT / "docs" / document

    targets = re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text())

    assert [target for target in targets if not (path.parent / target).exists()] == []
