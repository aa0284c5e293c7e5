"""The example of an outside package, as people copy it: it is short, it installs, and it keeps the contract."""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
from tests.conformance.outside import installed
from tests.support import ROOT, SOURCE, address, memory_at

import tensorferry as ferry
from tensorferry import testing
from tensorferry.backends import registry
from tensorferry.execution import recipes
from tensorferry.execution.run import verifying

EXAMPLE = ROOT / "examples" / "backend"
PAGE = ROOT / "docs" / "howto" / "add-a-framework.md"
PACKAGE = ("pyproject.toml", "tensorferry_array_api_strict.py")
UNREACHABLE = re.compile(
    r"ConnectionError|connection|name resolution|No matching distribution|timed out", re.IGNORECASE
)
"""What pip says where no index can be reached; whatever else it says is a finding."""


def module_of(name):
    """A file of the example as a module, whose name is nobody's in `sys.modules`."""
    spec = spec_from_file_location(f"example_{name}", EXAMPLE / f"{name}.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def strict():
    """array-api-strict with the example's backend and witness, which are gone again afterwards."""
    xp = pytest.importorskip(
        "array_api_strict", reason="array-api-strict is not installed: pip install it"
    )
    backend = module_of("tensorferry_array_api_strict").StrictBackend()
    witness = module_of("tensorferry_array_api_strict_witness").StrictWitness()
    with installed(xp, backend, witness):
        yield xp


def test_the_package_has_less_than_100_lines():
    """All of the backend: the project file with the entry points, and the one module."""
    lines = [(EXAMPLE / name).read_text(encoding="utf-8").splitlines() for name in PACKAGE]
    assert sum(map(len, lines)) < 100
    assert {path.name for path in EXAMPLE.iterdir() if path.is_file()} == {
        *PACKAGE,
        "tensorferry_array_api_strict_witness.py",
        "test_contract.py",
    }


def lines_of(text):
    """The lines without what they begin with, none of them empty: a page's formatter sets methods by themselves."""
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def test_the_page_shows_the_example_as_it_is():
    """Each block of code on the page is a piece of the example, word by word, or an example that runs."""
    files = [
        lines_of(path.read_text(encoding="utf-8")) for path in EXAMPLE.iterdir() if path.is_file()
    ]
    blocks = re.findall(
        r"```(?:python|toml)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )
    shown = [block for block in blocks if not block.startswith(">>>")]
    assert len(shown) >= 5
    for block in shown:
        for piece in re.split(r"\n *…\n", block):
            assert any(lines_of(piece) in text for text in files), piece


def test_it_registers_and_converts(strict):
    """A target and a source like any other: memory is shared, read-only stays read-only, out= is written."""
    x = strict.asarray([[1.5, 2.5], [3.5, 4.5]])
    array = ferry.to_numpy(x)
    assert address(array) == address(np.asarray(x))
    assert type(ferry.convert(array, "strict")) is type(x)
    assert ferry.convert(array, like=x).dtype == strict.float64
    assert ferry.to_list(ferry.to_torch(x, dtype="float32")) == [[1.5, 2.5], [3.5, 4.5]]
    closed = ferry.convert(np.frombuffer(b"abcd", np.uint8), "strict")
    assert np.asarray(closed).flags.writeable is False
    out = strict.zeros(3, dtype=strict.int8)
    assert ferry.convert([1, 2, 3], "strict", out=out, casting="unsafe") is out
    assert ferry.to_list(out) == [1, 2, 3]
    tree = ferry.convert_tree({"w": x, "n": 3}, "torch")
    assert tree["n"] == 3
    assert tree["w"].tolist() == [[1.5, 2.5], [3.5, 4.5]]
    assert ferry.frameworks()["array_api_strict"].install == "pip install array-api-strict"


def test_it_refuses_in_words(strict):
    """A dtype that it lacks, and an array on one of its made-up devices: the hint works when it is pasted."""
    with pytest.raises(ferry.LossyCastError):
        ferry.convert(ferry.to_torch([1.5], dtype="bfloat16"), "strict")
    away = strict.ones(2, device=strict.Device("device1"))
    with pytest.raises(ferry.UnsupportedTypeError, match="device1") as caught:
        ferry.to_numpy(away)
    back = eval(caught.value.hint, {"x": away, "array_api_strict": strict})  # noqa: S307 - as a person would paste it
    assert ferry.to_list(back) == [1.0, 1.0]


def quick_of_the_page():
    """The class that the page shows for speed."""
    blocks = re.findall(r"```python\n(>>> .*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names = {}
    for block in (block for block in blocks if "class StrictQuick" in block):
        for example in doctest.DocTestParser().get_examples(block):
            exec(example.source, names)  # noqa: S102 - what the page shows
    return names["StrictQuick"]


@pytest.mark.quick
def test_what_the_page_shows_for_speed(strict, monkeypatch):
    """Another array of the same signature is not described; results are the same, and what is refused is refused."""
    # With one address modulo 64, which is in the signature.
    first, second = (strict.asarray(memory_at((size,), "float64"), copy=False) for size in (2, 3))
    first[:], second[:] = 1.5, 2.5
    ferry.to_numpy(first)  # now its framework is loaded
    backend = registry.backend_named("array_api_strict")
    monkeypatch.setattr(backend, "quick", quick_of_the_page()(backend))
    recipes.forget_recipes()
    with verifying(False):
        assert ferry.to_numpy(first, copy=True).tolist() == [1.5, 1.5]
        with monkeypatch.context() as patch:
            patch.setattr(backend, "describe", None)
            assert ferry.to_numpy(second, copy=True).tolist() == [2.5, 2.5, 2.5]
        away = strict.ones(2, device=strict.Device("device1"))
        with pytest.raises(ferry.UnsupportedTypeError, match="device1"):
            ferry.to_numpy(away, copy=True)
    recipes.forget_recipes()


def test_the_code_of_its_plans_can_be_pasted(strict):
    """What `explain` prints runs, and gives what the conversion gives."""
    sources = [
        np.arange(3.0),
        np.arange(4, dtype=np.int32)[::-2],
        np.frombuffer(b"abcd", np.uint8),
        [1, 2],
    ]
    for source in sources:
        names = {"x": source}
        exec(ferry.explain(source, "strict").code, names)  # noqa: S102 - as a person would paste it
        assert ferry.to_list(names["y"]) == ferry.to_list(ferry.convert(source, "strict"))
    names = {"x": [1, 2], "out": strict.zeros(2, dtype=strict.float32)}
    exec(ferry.explain([1, 2], "strict", out=names["out"]).code, names)  # noqa: S102 - likewise
    assert ferry.to_list(names["out"]) == [1.0, 2.0]
    names = {"x": strict.asarray([True, False])}
    exec(ferry.explain(names["x"], "numpy").code, names)  # noqa: S102 - likewise
    assert names["y"].tolist() == [True, False]


@pytest.mark.parametrize("other", ["numpy", "python", "array_api_strict"])
def test_it_keeps_the_contract_in_every_layout(strict, other):
    """The public suite, here from and to what needs no other framework; all of them are in the slow test."""
    judged = [
        group
        for group in testing.groups("array_api_strict")
        if other in (group.source, group.target)
    ]
    judged = [
        group for group in judged if {group.source, group.target} <= {other, "array_api_strict"}
    ]
    assert len(judged) >= 14
    assert all(map(testing.check, judged))
    assert registry.backend_named("array_api_strict").loaded


def test_the_suite_is_worth_its_minute(strict, monkeypatch):
    """As the page says: without the view a conversion closes the caller's array, which "broadcast" finds."""
    kind = type(registry.backend_named("array_api_strict"))
    # Before Python 3.12 NumPy gives this array; since then it makes a view by itself.
    monkeypatch.setattr(kind, "export", lambda self, x: x._array)
    with pytest.raises(testing.NonConformance, match="metadata changed"):
        testing.check(testing.Group("array_api_strict", "broadcast", "numpy"))


def run_in(environment, *arguments, cwd):
    """A command of the fresh environment, to which nothing of this one's settings leads."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PYTHONHOME")
    }
    return subprocess.run(
        [environment / "bin" / "python", *arguments],
        cwd=cwd,
        env={**kept, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


@pytest.mark.slow
def test_it_installs_into_a_fresh_environment_and_keeps_the_contract(tmp_path):
    """tensorferry and the example, built and installed by pip; the suite from and to every framework that is here."""
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    found = run_in(
        environment, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path
    )
    # Frameworks of some GB are not installed again: they are seen where they are, behind what is
    # installed here.
    here = Path(pytest.__file__).resolve().parents[1]
    (Path(found.stdout.strip()) / "frameworks.pth").write_text(f"{here}\n", encoding="utf-8")
    pip = (
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "-q",
        "-c",
        ROOT / "constraints.txt",
    )
    done = run_in(environment, *pip, ROOT, EXAMPLE, cwd=tmp_path)
    if done.returncode and UNREACHABLE.search(done.stderr):
        pytest.skip(f"pip reaches no index here: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr[-4000:]

    asked = """
        import tensorferry as ferry
        assert "environment" in ferry.__file__, ferry.__file__
        y = ferry.convert([1.5, 2.5], "array_api_strict")
        assert type(y).__module__.startswith("array_api_strict"), type(y)
        found = ferry.frameworks()["array_api_strict"]
        assert found.package == "tensorferry-array-api-strict 0.1.0", found
        assert found.error is None, found
        from tensorferry import testing
        assert type(testing.witness_for("array_api_strict")).__name__ == "StrictWitness"
    """
    code = "\n".join(line.strip() for line in asked.splitlines())
    done = run_in(environment, "-W", "error", "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]

    shutil.copy(EXAMPLE / "test_contract.py", tmp_path)
    (tmp_path / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\nfilterwarnings = ["error"]\n', encoding="utf-8"
    )
    pytest_run = (
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "test_contract.py",
    )
    done = run_in(environment, *pytest_run, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    (passed,) = re.findall(r"^(\d+) passed in", done.stdout, re.MULTILINE)
    assert int(passed) > 100
    assert str(SOURCE) not in done.stdout
