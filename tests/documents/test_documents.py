"""The documents' examples run, their links lead somewhere, and every page of the site is found from its start page."""

import re
from pathlib import Path

import pytest
from tests.support import run_examples

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in (ROOT / "docs").rglob("*.md")
    if path.parent.name != "locale"
)
OTHERS = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "tests/README.md",
    "docs/locale/README.md",
)
FENCED = re.compile(r"^(`{3,}|:{3,}).*?^\1\s*$", re.MULTILINE | re.DOTALL)


def _text(document):
    return (ROOT / document).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "document", ["README.md", *(page for page in PAGES if ">>> " in _text(page))]
)
def test_examples_run(document, capsys):
    """Every example in a page gives what it shows, error messages included."""
    result = run_examples(ROOT / document)

    assert result.attempted > 0
    assert result.failed == 0, capsys.readouterr().out


def _links(document):
    """The relative links of a document: the file and the anchor of each."""
    prose = FENCED.sub("", _text(document))
    for target in re.findall(r"\]\((?!https?:)<?([^)\s>]+)", re.sub(r"`[^`\n]*`", "", prose)):
        path, _, anchor = target.partition("#")
        yield target, (ROOT / document).parent / path if path else ROOT / document, anchor


def _anchors(path):
    """The anchors that a hosting site and MyST make of a document's headings, and those of generated entries."""
    seen = {}
    for heading in re.findall(
        r"^#+ (.+)", FENCED.sub("", path.read_text(encoding="utf-8")), re.MULTILINE
    ):
        shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.strip().lower()).replace(" ", "-")
        yield slug if slug not in seen else f"{slug}-{seen[slug]}"
        seen[slug] = seen.get(slug, 0) + 1


@pytest.mark.parametrize("document", [*OTHERS, *PAGES])
def test_links_lead_somewhere(document):
    """Every relative link in a document names a file that is there, and a heading that is in it."""
    lost = [
        target
        for target, path, anchor in _links(document)
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in _anchors(path))
    ]

    assert lost == []


def test_anchors_are_looked_for(tmp_path):
    """The check of links finds a heading by the name that hosting sites give it, and no other."""
    page = tmp_path / "page.md"
    page.write_text("# `copy=`: who shares?\n\n```python\n# a comment\n```\n## Twice\n## Twice\n")

    assert list(_anchors(page)) == ["copy-who-shares", "twice", "twice-1"]


def _listed(page):
    """The pages in the lists of a page that Sphinx makes its navigation from, and those in theirs."""
    for block in re.findall(r"^```\{toctree\}\n(.*?)^```", _text(page), re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line and not line.startswith(":"):
                name = re.sub(r".*<(.*)>", r"\1", line)
                found = str(((ROOT / page).parent / f"{name}.md").resolve().relative_to(ROOT))
                yield found
                yield from _listed(found)


def test_every_page_is_found_from_the_start_page():
    """Every page of the site is in the navigation, once."""
    assert sorted(_listed("docs/index.md")) == [page for page in PAGES if page != "docs/index.md"]
