"""``tensorferry tour``: all 27 cases held here, and what is missing is skipped with the reason."""

from __future__ import annotations

import json

import pytest

for needed in ("typer", "rich"):
    pytest.importorskip(needed, reason=f"the command line needs {needed}, which is not installed")

IDS = [f"C{number:02d}" for number in range(1, 28)]
NEED_GPU = {"C05", "C06", "C07", "C20", "C21"}


@pytest.fixture(scope="module")
def tour(forked_cli_with_frameworks, once):
    code, stdout, stderr = once("tour", lambda: run_tour(forked_cli_with_frameworks))
    assert stderr == ""
    told = json.loads(stdout)
    assert code == 0, [case for case in told["cases"] if case["status"] == "failed"]
    return told


def run_tour(cli):
    done = cli("tour", "--json")
    return [done.returncode, done.stdout, done.stderr]


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


def test_chosen_cases_in_text(forked_cli_with_frameworks):
    done = forked_cli_with_frameworks("tour", "c03", "C10", env={"COLUMNS": "80"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "C03" in done.stdout
    assert "C10" in done.stdout
    assert "C11" not in done.stdout
    assert "Can't call numpy() on Tensor that requires grad" in " ".join(done.stdout.split())
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "\x1b" not in done.stdout
    assert done.stdout.rstrip().splitlines()[-1].startswith("2 cases")


def test_an_unknown_case_is_wrong_usage(cli):
    done = cli("tour", "C28")
    assert (done.returncode, done.stdout) == (2, "")
    assert "C28" in done.stderr


def test_missing_frameworks_are_skipped_with_the_reason(cli, absent):
    done = cli("tour", "--json", shadows=absent("torch", "tensorflow", "jax"))
    assert done.returncode == 0
    told = json.loads(done.stdout)
    by_id = {case["id"]: case for case in told["cases"]}
    assert by_id["C01"]["status"] == "skipped"
    assert by_id["C01"]["reason"] == "torch is not installed"
    assert by_id["C08"]["status"] == "held"
    assert by_id["C27"]["status"] == "held"
    assert told["predictions"] == []


def test_without_scikit_learn_the_line_that_installs_it(cli, absent):
    done = cli("tour", shadows=absent("sklearn"))
    assert (done.returncode, done.stdout) == (1, "")
    assert "Hint: pip install scikit-learn" in done.stderr
    assert "Traceback" not in done.stderr


def test_brief_is_a_line_for_each_case(forked_cli_with_frameworks):
    done = forked_cli_with_frameworks(
        "tour", "--brief", "C01", "C02", "C03", env={"COLUMNS": "100"}
    )
    assert done.returncode == 0
    lines = [line for line in done.stdout.splitlines() if line.strip().startswith("C0")]
    assert [line.split()[0] for line in lines] == ["C01", "C02", "C03"]
    assert all(line.endswith("held") for line in lines)
