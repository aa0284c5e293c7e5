"""What the command line says held can also not hold, and then it says so."""

from __future__ import annotations

import numpy as np
import pytest
from examples.tour import report
from examples.tour.cases import Case
from examples.tour.stage import FAILED, HELD, Played, Stage
from tensorferry.cli.observe import Observation, observe

import tensorferry as ferry
from tensorferry.cli import doctor, measure


@pytest.fixture
def stage():
    names = {"np": np, "ferry": ferry, "a": np.arange(4.0)}
    return Stage(Played("C00", "a case"), names, frozenset({"numpy"}))


def test_a_case_where_everything_holds(stage):
    stage.today("a.copy()")
    stage.fails("a.no_such_method()")
    stage.now("ferry.to_numpy(a)")
    stage.memory("a", shared=True)
    stage.refuses("ferry.to_numpy({1})", ferry.UnsupportedTypeError)
    stage.check("equal", "np.array_equal(y, today)")
    assert stage.record.status == HELD
    kinds = [line.kind for line in stage.record.lines]
    assert kinds == ["today", "fails", "now", "memory", "refuses"]
    assert stage.record.lines[1].words.startswith(
        "AttributeError: 'numpy.ndarray' object has no attribute"
    )


@pytest.mark.parametrize(
    "wrong",
    [
        lambda s: s.check("equal", "a[0] == 1"),
        lambda s: s.check("no such name", "nothing"),
        lambda s: s.fails("a.copy()"),
        lambda s: s.refuses("ferry.to_numpy(a)", ferry.GradientError),
        lambda s: (s.now("ferry.to_numpy(a)"), s.memory("a", shared=False)),
        lambda s: (s.now("a.copy()"), s.memory("a", shared=True)),
    ],
)
def test_what_does_not_hold_fails_the_case(stage, wrong):
    wrong(stage)
    assert stage.record.status == FAILED


def test_an_error_of_another_kind_is_not_the_refusal(stage):
    with pytest.raises(AttributeError):
        stage.refuses("a.no_such_method()", ferry.ConversionError)


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize(
    "play", [lambda s: s.check("never", "False"), lambda s: s.now("1 / 0")], ids=["check", "crash"]
)
def test_one_failed_case_is_exit_code_1(monkeypatch, capsys, play, as_json):
    monkeypatch.setattr(ferry, "frameworks", lambda *, load: {})
    monkeypatch.setattr(doctor, "backends", lambda: {"numpy": None})
    monkeypatch.setitem(report.CASES, "C08", Case("C08", "fails", (), play))
    assert report.run(["C08"], brief=True, as_json=as_json) == 1
    assert "failed" in capsys.readouterr().out


def test_memory_is_observed_not_believed():
    a = np.arange(4.0)
    assert observe(a, a[:]) == Observation(True, by_address=True, by_mutation=True, writable=True)
    assert observe(a, a.copy()) == Observation(
        False, by_address=False, by_mutation=False, writable=True
    )
    assert np.array_equal(a, np.arange(4.0))
    assert not Observation(True, by_address=True, by_mutation=False, writable=True).agrees


def test_the_doctor_tells_a_plan_that_lies(monkeypatch):
    honest = ferry.convert
    monkeypatch.setattr(ferry, "convert", lambda x, to, copy=None: honest(x, to, copy=True))
    pairs = {(pair.source, pair.target): pair for pair in measure.pairs(frozenset({"numpy"}))}
    assert not measure.as_planned(pairs["numpy", "numpy"])


def test_the_doctor_tells_values_that_changed(monkeypatch):
    honest = ferry.convert
    monkeypatch.setattr(ferry, "convert", lambda x, to, copy=None: honest(x, to, copy=copy) + 1)
    pairs = {(pair.source, pair.target): pair for pair in measure.pairs(frozenset({"numpy"}))}
    assert not measure.as_planned(pairs["list", "numpy"])
    assert any(row.wrong for row in measure.dtypes(frozenset({"numpy"})))


def test_the_doctor_goes_on_after_a_crash(monkeypatch):
    def crash(*_, **__):
        raise KeyError("float")

    monkeypatch.setattr(ferry, "convert", crash)
    pairs = measure.pairs(frozenset({"numpy"}))
    assert pairs
    assert not any(map(measure.as_planned, pairs))
