"""`make replay` shows a text that was changed by hand, and says so when none was."""

from __future__ import annotations

import ast
import shutil

import pytest
from tests.replay.replay import recorded, report, ways
from tests.support import ROOT

PAIR = ("--frameworks", "numpy", "list")
GROUPS = ("--groups", "states", "calls", "helps", "signatures")


@pytest.fixture(scope="module")
def checkouts(tmp_path_factory):
    """Two copies of the package, in which a text of the planner and a docstring differ; and what both say."""
    folder = tmp_path_factory.mktemp("replay")
    for name in ("one", "other"):
        shutil.copytree(
            ROOT / "src", folder / name / "src", ignore=shutil.ignore_patterns("__pycache__")
        )
    (one,) = recorded([folder / "one"], folder, *PAIR, *GROUPS)
    said = _said_by_the_planner("\n".join(one["states"].values()))
    _change(folder / "other/src/tensorferry/planning", said, "changed by hand")
    _change(folder / "other/src/tensorferry/api.py", "Any tensor as a NumPy array", "Changed too")
    (other,) = recorded([folder / "other"], folder, *PAIR, *GROUPS)
    return one, other, said


def _change(where, text, instead):
    for path in where.rglob("*.py") if where.is_dir() else [where]:
        source = path.read_text(encoding="utf-8")
        path.write_text(source.replace(text, instead), encoding="utf-8")


def _said_by_the_planner(texts):
    """The longest text in the planner's source that a plan says."""
    written = [
        node.value
        for path in (ROOT / "src/tensorferry/planning").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return max((text for text in written if text.isascii() and text in texts), key=len)


def test_a_text_that_was_changed_is_shown(checkouts):
    """The change alone, with the line before and after."""
    one, other, said = checkouts
    differing = ways(one, other)
    assert {group for group, _ in differing} == {"states", "signatures"}
    assert all("changed by hand" in lines for group, lines in differing if group == "states")
    (signature,) = [lines for group, lines in differing if group == "signatures"]
    assert [line[0] for line in signature.splitlines()] == ["-", "+"]
    assert "+Changed too" in signature
    shown = report(one, other, differing, 20)
    assert said in shown
    assert "+Changed too" in shown
    assert f"texts differ, in {len(differing)} ways" in shown


def test_a_text_that_is_gone_is_shown(checkouts):
    one, *_ = checkouts
    fewer = {**one, "helps": dict(list(one["helps"].items())[1:])}
    ((group, lines),) = ways(one, fewer)
    assert group == "helps"
    assert all(line.startswith("-") for line in lines.splitlines())


def test_nothing_is_shown_where_nothing_differs(checkouts):
    one, *_ = checkouts
    assert ways(one, one) == {}
    assert report(one, one, {}, 20).startswith("All ")


def test_everything_is_recorded(checkouts):
    """Results and errors of both, each command, and methods too."""
    one, *_ = checkouts
    assert {"Hint:" in text for text in one["states"].values()} == {True, False}
    assert {"Hint:" in text for text in one["calls"].values()} == {True, False}
    assert {f"tensorferry {name} --help" for name in ("inspect", "convert", "explain")} < {
        *one["helps"]
    }
    assert "tensorferry.Plan.to_dict" in one["signatures"]
