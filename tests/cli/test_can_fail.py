"""What the command line says held can also not hold, and then it says so."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from examples.tour import report
from examples.tour.cases import Case
from examples.tour.observe import Observation, observe
from examples.tour.stage import FAILED, HELD, Played, Stage
from typer.testing import CliRunner

import tensorferry as ferry
from tensorferry.backends import fast_paths, registry
from tensorferry.cli import doctor
from tensorferry.cli.app import app
from tensorferry.execution import recipes


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


# -- the doctor, where a backend is broken ------------------------------------------------------


def torch_adopts_a_copy(monkeypatch):
    """Memory that is said to be shared is not."""
    backend = registry.ready("torch")
    true = backend.adopt
    monkeypatch.setattr(backend, "adopt", lambda array: true(array.copy()))


def a_copy_is_an_alias(monkeypatch):
    """Memory that is said to be copied is shared."""
    monkeypatch.setattr(registry.ready("numpy"), "copy", lambda x, *_: x)


def torch_negates(monkeypatch):
    """Values are wrong, in the caller's own memory."""
    backend = registry.ready("torch")
    true = backend.export

    def export(x):
        array = true(x)
        if array.dtype.kind == "f":
            np.negative(array, out=array)
        return array

    monkeypatch.setattr(backend, "export", export)


def torch_changes_a_dtype(monkeypatch):
    """One of the dtypes arrives with other bits, in a copy."""
    backend = registry.ready("torch")
    true = backend.adopt

    def adopt(array):
        return true(array + 1 if array.dtype == np.int16 else array)

    monkeypatch.setattr(backend, "adopt", adopt)


def torch_adopts_a_word(monkeypatch):
    """The result is no tensor, so that nobody can read it."""
    monkeypatch.setattr(registry.ready("torch"), "adopt", lambda _: "a tensor")


def torch_fails_in_its_own_words(monkeypatch):
    """A conversion raises what is none of tensorferry's errors."""

    def adopt(_):
        raise KeyError("float")

    monkeypatch.setattr(registry.ready("torch"), "adopt", adopt)


def the_fast_path_is_wrong(monkeypatch):
    """Only calls without keywords give wrong values."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    paths = fast_paths._by_backend["torch"]
    broken = {**paths.paths, (torch.Tensor, "numpy"): lambda x: np.zeros(x.shape, np.float32)}
    monkeypatch.setitem(fast_paths._by_backend, "torch", paths._replace(paths=broken))


HERE = frozenset({"numpy", "python", "torch"})
FAULTS = {
    torch_adopts_a_copy: ("numpy", "torch"),
    a_copy_is_an_alias: ("numpy", "torch"),
    torch_negates: ("torch", "numpy"),
    torch_changes_a_dtype: ("numpy", "torch"),
    torch_adopts_a_word: ("numpy", "torch"),
    torch_fails_in_its_own_words: ("numpy", "torch"),
    the_fast_path_is_wrong: ("torch", "numpy"),
}


@pytest.fixture
def told(monkeypatch, capsys):
    """The doctor's exit code, text and data, where NumPy and PyTorch are."""
    pytest.importorskip("torch", reason="torch is not installed")
    status = {name: ferry.FrameworkStatus(True, "1", ("cpu",), None, "") for name in HERE}
    monkeypatch.setattr(ferry, "frameworks", lambda *, load: status)
    monkeypatch.setattr(doctor, "working", lambda _: HERE)
    monkeypatch.setenv("COLUMNS", "200")

    def run():
        code = doctor.run(as_json=False)
        text = capsys.readouterr().out
        assert doctor.run(as_json=True) == code
        return code, text, json.loads(capsys.readouterr().out)

    recipes.forget_recipes()
    yield run
    monkeypatch.undo()
    recipes.forget_recipes()


def test_the_doctor_finds_nothing_where_nothing_is_broken(told):
    code, text, found = told()
    assert (code, found["held"], found["findings"]) == (0, True, [])
    assert "all are right" in text
    assert "WRONG" not in text


def test_tensors_on_a_device_are_not_said_to_be_right(told, monkeypatch, capsys):
    """The suite is about the host; the command that is named shows the plan."""
    devices = {"numpy": ("cpu",), "torch": ("cpu", "cuda:0", "cuda:1")}
    status = {
        name: ferry.FrameworkStatus(True, "1", there, None, "") for name, there in devices.items()
    }
    monkeypatch.setattr(ferry, "frameworks", lambda *, load: status)
    code, text, found = told()
    assert code == 0
    assert list(found["unjudged"]) == ["torch on cuda:0, cuda:1"]
    assert "torch on cuda:0, cuda:1" in text
    (command,) = re.findall(r"`tensorferry (.*?)`", found["unjudged"]["torch on cuda:0, cuda:1"])
    assert CliRunner().invoke(app, command.split()).exit_code == 0
    assert command in text


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_doctor_finds_each_fault(told, monkeypatch, fault):
    """In the exit code, in a table, by name, and in the data; nothing stops it."""
    fault(monkeypatch)
    code, text, found = told()
    source, target = FAULTS[fault]
    assert (code, found["held"]) == (1, False)
    assert (source, target) in {(each["source"], each["target"]) for each in found["findings"]}
    assert "WRONG" in text
    assert f"\n{source} to {target}\n" in text
    assert "all are right" not in text
    assert "pip install --upgrade tensorferry" in text
    assert ("torch", "torch") not in {
        (each["source"], each["target"]) for each in found["findings"]
    }


def test_the_doctor_says_which_values_are_wrong(told, monkeypatch):
    """The first element, as a number and as bytes; the pattern 1 is the smallest float32."""
    the_fast_path_is_wrong(monkeypatch)
    _, text, found = told()
    values = [each["text"] for each in found["findings"] if each["about"] == "values"]
    assert "element 1 is 0.0 (00000000) instead of -0.0 (00000080); " in values[0]
    assert values[0] in text


def test_the_doctor_says_which_dtype_is_wrong(told, monkeypatch):
    torch_changes_a_dtype(monkeypatch)
    _, text, found = told()
    assert found["dtypes"]["torch"]["wrong"] == ["int16"]
    assert "WRONG: int16" in text


def test_what_to_use_instead_is_right(told, monkeypatch):
    """The code is run as it is printed, where the backend is broken, and torch itself compares."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    torch_adopts_a_copy(monkeypatch)
    _, text, found = told()
    code = found["instead"]["numpy to torch"]
    assert f"`{code}` is right, from numpy" in text
    x = np.arange(6.0, dtype=np.float32)
    y = eval(code, {"ferry": ferry, "x": x})  # noqa: S307 - what the doctor has printed
    assert torch.equal(y, torch.arange(6.0))
    assert y.data_ptr() != x.ctypes.data


def test_nothing_is_said_to_be_right_that_is_not(told, monkeypatch):
    """With values that are wrong each time, no call is offered."""
    torch_fails_in_its_own_words(monkeypatch)
    assert "numpy to torch" not in told()[2]["instead"]
