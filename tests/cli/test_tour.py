"""The tour in examples: all 27 cases held here, and what is missing is skipped with the reason."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
from tests.support import FRAMEWORKS, ROOT, SOURCE, forked

for needed in ("typer", "rich"):
    pytest.importorskip(needed, reason=f"the command line needs {needed}, which is not installed")

from rich.cells import cell_len  # noqa: E402 - where Rich is installed

IDS = [f"C{number:02d}" for number in range(1, 28)]
NEED_GPU = {"C05", "C06", "C07", "C20", "C21"}


RUN = f"""
import os, runpy, sys
os.environ.pop("TF_CPP_MIN_LOG_LEVEL", None)
sys.path.insert(0, {str(ROOT)!r})
sys.argv[0] = "examples.tour"
runpy.run_module("examples.tour", run_name="__main__", alter_sys=True)
"""


def quickly(*arguments, **environment):
    """Run the tour in a forked process where every framework is imported: its code, stdout and stderr."""
    return forked(FRAMEWORKS, RUN, *arguments, **environment)


def alone(*arguments, shadows=None):
    """Run ``python -m examples.tour`` as a person does; packages in `shadows` stand before the others."""
    paths = [*filter(None, [shadows and str(shadows)]), str(SOURCE)]
    return subprocess.run(
        [sys.executable, "-m", "examples.tour", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


@pytest.fixture(scope="module")
def tour(once):
    code, stdout, stderr = once("tour", lambda: quickly("--json"))
    assert stderr == ""
    told = json.loads(stdout)
    assert code == 0, [case for case in told["cases"] if case["status"] == "failed"]
    return told


def test_all_cases_in_order(tour):
    assert [case["id"] for case in tour["cases"]] == IDS
    assert sum(tour["summary"].values()) == len(IDS)
    assert tour["summary"]["failed"] == 0
    assert tour["summary"]["skipped"] == 0


@pytest.mark.parametrize("name", IDS)
def test_case(tour, name):
    case = next(case for case in tour["cases"] if case["id"] == name)
    assert case["status"] == "held" or (name in NEED_GPU and case["status"] == "planned")
    assert case["checks"]
    assert all(check["held"] for check in case["checks"])
    assert any(line["kind"] in {"now", "plan", "note"} for line in case["lines"])


@pytest.mark.gpu
def test_with_a_gpu_nothing_is_only_planned(tour):
    assert tour["summary"]["planned"] == 0


def test_predictions_are_equal_in_every_world_and_good(tour):
    assert [row["target"] for row in tour["predictions"]] == [
        "numpy",
        "tensorflow",
        "jax",
        "python",
    ]
    assert all(row["equal"] for row in tour["predictions"])
    assert len({row["accuracy"] for row in tour["predictions"]}) == 1
    assert tour["predictions"][0]["accuracy"] > 0.9


def test_the_frameworks_own_words(tour):
    words = [
        line["words"] for case in tour["cases"] for line in case["lines"] if line["kind"] == "fails"
    ]
    assert any(
        word.startswith("RuntimeError: Can't call numpy() on Tensor that requires grad")
        for word in words
    )
    assert any("BFloat16" in word or "bfloat16" in word for word in words)
    assert any("has no attribute 'detach'" in word for word in words)
    predictions = next(case for case in tour["cases"] if case["id"] == "C26")
    assert any(
        "detach" in line["words"] for line in predictions["lines"] if line["kind"] == "fails"
    )


def test_chosen_cases_in_text():
    code, out, err = quickly("c03", "C10", COLUMNS="80")
    assert (code, err) == (0, "")
    assert "C03" in out
    assert "C10" in out
    assert "C11" not in out
    assert "Can't call numpy() on Tensor that requires grad" in " ".join(out.split())
    assert "\x1b" not in out
    assert out.rstrip().splitlines()[-1].startswith("2 cases")


@pytest.mark.parametrize("columns", [40, 80, 100, 200])
def test_it_fits_the_terminal(columns):
    """No line is wider, no name of a framework is broken, and no name of a module of ours is shown."""
    code, out, _ = quickly("C05", "C23", "C26", "C27", COLUMNS=str(columns))
    assert code == 0
    assert max(map(cell_len, out.splitlines())) <= columns
    assert {"tensorflow", "polars"} <= set(re.findall(r"\w+", out))
    assert "tensorferry.backends" not in out


@pytest.mark.parametrize(
    ("words", "said"),
    [(["C28"], "no case C28; they are C01 to C27"), (["--brief", "--json"], "not allowed with")],
)
def test_wrong_usage(words, said):
    done = alone(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_missing_frameworks_are_skipped_with_the_reason(absent):
    done = alone("--json", shadows=absent("torch", "tensorflow", "jax"))
    assert done.returncode == 0
    told = json.loads(done.stdout)
    by_id = {case["id"]: case for case in told["cases"]}
    assert by_id["C01"]["status"] == "skipped"
    assert by_id["C01"]["reason"] == "torch is not installed"
    assert by_id["C08"]["status"] == "held"
    assert by_id["C27"]["status"] == "held"
    assert told["predictions"] == []


def test_without_scikit_learn_the_line_that_installs_it(absent):
    done = alone(shadows=absent("sklearn"))
    assert (done.returncode, done.stdout) == (1, "")
    assert "Hint: pip install scikit-learn" in done.stderr
    assert "Traceback" not in done.stderr


def test_brief_is_a_line_for_each_case():
    code, out, _ = quickly("--brief", "C01", "C02", "C03", COLUMNS="100")
    assert code == 0
    lines = [line for line in out.splitlines() if line.strip().startswith("C0")]
    assert [line.split()[0] for line in lines] == ["C01", "C02", "C03"]
    assert all(line.endswith("held") for line in lines)


@pytest.mark.parametrize("cases", [[], ["C03", "C26"]])
def test_the_command_line_says_where_it_is(forked_cli, cases):
    """What it prints runs in a clone: the module is there, and so is the target."""
    done = forked_cli("tour", *cases)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert " ".join(["python -m examples.tour", *cases]) in lines
    assert (ROOT / "examples" / "tour" / "__main__.py").exists()
    asked = re.search(r"pip install -r (\S+)", done.stdout)[1]
    assert "scikit-learn" in (ROOT / asked).read_text(encoding="utf-8")
    if not cases:
        assert "\ndemo:" in (ROOT / "Makefile").read_text(encoding="utf-8")
