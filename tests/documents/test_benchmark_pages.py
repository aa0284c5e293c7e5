"""docs/benchmarks: a page for each group of sections, written as they were measured."""

from __future__ import annotations

import re

import pytest
from benchmarks import report
from benchmarks.case import Measured, Target, Unmeasured
from benchmarks.registered import GROUPS, SECTIONS

FOLDER = report.PAGE.with_suffix("")
ROWS = [
    Measured("to_numpy(t) / t.numpy()", 2e-6, 1e-6, Target(ratio=1.5), medians=(2e-6, 1e-6)),
    Measured("a | b / c", 1e-6, 1e-6, Target(ratio=1.5)),
    Measured("import tensorferry / import numpy", 1e-3, 1e-3, Target()),
    Unmeasured("to_numpy(c) / c.cpu()", Target(ratio=2), "there is no GPU"),
]


def _verdicts(text):
    """The last cell of each row of figures: those that begin with code."""
    return [
        line.split(" | ")[-1].removesuffix("|").strip()
        for line in text.splitlines()
        if line.startswith("| `")
    ]


def _listed(text):
    """The pages in the list of the page above, with their numbers."""
    rows = re.findall(
        r"^\| \[(.+)\]\(benchmarks/(.+)\.md\) \| (\d+) \| (\d+) \| (\d+) \|$", text, re.MULTILINE
    )
    return {name: (title, *map(int, numbers)) for title, name, *numbers in rows}


def test_each_section_has_a_place_on_one_page():
    """Its heading is on the page of its group, in the order in which they are measured."""
    found = {
        path.stem: re.findall(r"^## (.+)$", path.read_text("utf-8"), re.MULTILINE)
        for path in FOLDER.glob("*.md")
    }

    assert found == {group.name: [section.title for section in group.sections] for group in GROUPS}
    assert len({section.title for section in SECTIONS}) == len(SECTIONS)


def test_the_list_counts_what_is_on_the_pages():
    """Rows, targets that are met and targets that are missed, on each page and in all."""
    text = report.PAGE.read_text(encoding="utf-8")
    listed = _listed(text)
    for group in GROUPS:
        verdicts = _verdicts((FOLDER / f"{group.name}.md").read_text(encoding="utf-8"))
        missed = sum(each.startswith("MISS") for each in verdicts)

        assert listed[group.name] == (group.title, len(verdicts), verdicts.count("ok"), missed)
    met, missed = (sum(each[column] for each in listed.values()) for column in (2, 3))
    assert f"\n{met} of {met + missed} measured targets are met, {missed} are missed;" in text


@pytest.fixture
def written(tmp_path):
    """A page with markers, and what is written of four rows in each section."""
    page = tmp_path / "benchmarks.md"
    page.write_text(f"# Above\n\n{report.BEGIN}\nold\n{report.END}\n\nbelow\n", encoding="utf-8")
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "gone.md").write_text(
        "# Of a group that is no more\n", encoding="utf-8"
    )
    report.write_pages(
        GROUPS, {section.title: ROWS for section in SECTIONS}, report.summary(ROWS), page
    )
    return page


def test_what_is_measured_is_written(written):
    """Each row into the table of its section; a bar in a cell is no border of it."""
    text = (written.parent / "benchmarks" / "gpu.md").read_text(encoding="utf-8")
    (gpu,) = (group for group in GROUPS if group.name == "gpu")
    missed = "| `to_numpy(t) / t.numpy()` | 2 us | 1 us | 2.00x | 2.00x | <= 1.5x | MISS |"
    many = len(gpu.sections)

    assert text.count(f"\n{missed}\n") == many
    assert text.count(r"| `a \| b / c` | 1 us | 1 us | 1.00x |") == many
    assert text.count("| not measured: there is no GPU |") == many


def test_the_page_of_a_group_that_is_gone_goes(written):
    """The folder has the pages of the groups and no others."""
    found = sorted(path.stem for path in (written.parent / "benchmarks").glob("*.md"))

    assert found == sorted(group.name for group in GROUPS)


def test_the_page_above_keeps_what_is_around_its_list(written):
    """And has the numbers of each page in the list."""
    text = written.read_text(encoding="utf-8")

    assert text.startswith(
        f"# Above\n\n{report.BEGIN}\n1 of 2 measured targets are met, 1 are missed; 1 rows have no"
    )
    assert text.endswith(f"{report.END}\n\nbelow\n")
    assert "old" not in text
    assert _listed(text) == {
        group.name: (group.title, 4 * many, many, many)
        for group in GROUPS
        for many in [len(group.sections)]
    }


def test_a_page_without_markers_is_left_as_it_is(tmp_path):
    """Nothing is written, and the error names the page."""
    page = tmp_path / "benchmarks.md"
    page.write_text("# No markers\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"benchmarks\.md has lost its markers"):
        report.write_pages(GROUPS, {}, "", page)

    assert [path.name for path in tmp_path.iterdir()] == ["benchmarks.md"]
