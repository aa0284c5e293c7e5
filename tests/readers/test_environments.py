"""What `make readers` tries, and what it says of an environment that cannot be made."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.readers import environments as module
from tests.readers.environments import ROOT, environments, main


def test_each_environment_is_pinned():
    """Expected: exact versions, a test for each library, and both libraries old and new."""
    listed = environments()
    assert len({each.name for each in listed}) == len(listed)
    for each in listed:
        assert all(re.fullmatch(r"[\w-]+==[\w.]+", line) for line in each.requirements), each
        assert Path(__file__).with_name(f"test_{each.library}.py").is_file()
    assert [each.library for each in listed] == ["transformers"] * 3 + ["accelerate"] * 2


def test_the_page_has_the_versions_that_are_tried():
    """Expected: the page about files names the versions of each library, as environments.txt has them."""
    page = (ROOT / "docs" / "reference" / "files.md").read_text(encoding="utf-8")
    for library in {each.library for each in environments()}:
        mine = [each.requirements[0] for each in environments() if each.library == library]
        versions = ", ".join(line.partition("==")[2] for line in mine)
        assert f"| {library} {versions} |" in page


@pytest.mark.parametrize(
    ("why", "fine", "code", "told"),
    [
        (["", "no wheel", "", "", ""], True, 0, "skipped: no wheel"),
        (["no wheel"] * 5, True, 1, "skipped: no wheel"),
        (["", "no wheel", "", "", ""], False, 1, "FAILED"),
    ],
    ids=["some skipped", "all skipped", "failed"],
)
def test_what_is_skipped_is_told(monkeypatch, capsys, tmp_path, why, fine, code, told):
    """Expected: a reason for each environment that is skipped; a failure, or nothing tried, fails."""
    reasons = iter(why)
    monkeypatch.setattr(module, "made", lambda environment, folder: ("python", next(reasons)))
    monkeypatch.setattr(module, "passes", lambda environment, python: fine)
    assert main(tmp_path) == code
    assert re.search(rf"^\S+ +{told}$", capsys.readouterr().out, re.MULTILINE)


def test_what_cannot_be_made_has_a_reason(tmp_path):
    """Expected: the words of what failed, here of Python, which finds a file where a folder is due."""
    (tmp_path / "file").touch()
    _, why = module.made(module.Environment("x", ["accelerate==0"]), tmp_path / "file")
    assert str(tmp_path / "file") in why
