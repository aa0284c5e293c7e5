"""``tensorferry doctor``: judged, complete, and never stopped by a framework that is not well."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest

for needed in ("typer", "rich"):
    pytest.importorskip(needed, reason=f"the command line needs {needed}, which is not installed")

WORLDS = ["python", "numpy", "torch", "tensorflow", "jax"]
TABLES = [
    name
    for name, module in {"arrow": "pyarrow", "pandas": "pandas", "polars": "polars"}.items()
    if find_spec(module)
]
BROKEN = 'raise OSError("libtorch_cpu.so: cannot open shared object file")\n'


@pytest.fixture(scope="module")
def measured(forked_cli_with_frameworks, once):
    code, stdout, stderr = once(
        "doctor", lambda: told(forked_cli_with_frameworks("doctor", "--json"))
    )
    assert (code, stderr) == (0, "")
    return json.loads(stdout)


def told(done):
    return [done.returncode, done.stdout, done.stderr]


def _cell(measured, source, target):
    return next(p for p in measured["pairs"] if (p["source"], p["target"]) == (source, target))


def test_everything_that_is_installed_with_its_version(measured):
    assert list(measured["frameworks"])[:4] == WORLDS[1:]
    for name in WORLDS[1:]:
        found = measured["frameworks"][name]
        assert found["installed"]
        assert found["version"]
        assert "cpu" in found["devices"]


def test_every_pair_held(measured):
    assert measured["held"]
    sources = {pair["source"].partition(",")[0] for pair in measured["pairs"]}
    assert sources == {*WORLDS, *TABLES}
    assert {pair["target"] for pair in measured["pairs"]} == {*WORLDS, *TABLES}
    assert (measured["findings"], measured["instead"], measured["unjudged"]) == ([], {}, {})
    assert measured["judged"] > 400


@pytest.mark.parametrize(
    ("source", "target", "word"),
    [
        ("numpy", "torch", "shares"),
        ("torch", "numpy", "shares"),
        ("python, array.array", "numpy", "shares"),
        ("pandas, one column", "polars", "copies"),
        ("python, list", "torch", "copies"),
        ("python, list", "jax", "copies"),
        ("torch, gradient", "numpy", "shares (read-only)"),
        ("numpy, read-only view", "numpy", "shares (read-only)"),
        ("numpy, read-only view", "jax", "copies"),
        ("tensorflow", "numpy", "shares (read-only)"),
        ("jax", "numpy", "shares (read-only)"),
        ("jax", "tensorflow", "shares"),
        ("tensorflow", "jax", "shares"),
        ("numpy", "tensorflow", "copies"),
        ("numpy", "jax", "copies"),
        ("torch", "jax", "copies"),
        ("jax", "torch", "copies"),
        ("torch", "python", "copies"),
    ],
)
def test_the_sharing_rule_as_judged(measured, source, target, word):
    """C27: what is judged is what is planned, which `held` says, and what the pages say."""
    if source.startswith("pandas") and not {"pandas", "polars"} <= set(TABLES):
        pytest.skip("pandas or polars is not installed")
    pair = _cell(measured, source, target)
    assert pair["default"]["word"] == word
    assert pair["default"]["shares"] is word.startswith("shares")
    assert pair["default"]["reason"]
    assert pair["held"]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("numpy", "tensorflow"),
        ("numpy", "jax"),
        ("torch", "tensorflow"),
        ("torch", "jax"),
        ("jax", "torch"),
    ],
)
def test_copy_false_shares(measured, source, target):
    forced = _cell(measured, source, target)["copy=False"]
    assert (forced["word"], forced["shares"], forced["held"]) == ("shares", True, True)


def test_what_cannot_be_shared_says_why(measured):
    refused = {
        (row["layout"], row["target"]): row["reason"]
        for row in measured["layouts"]
        if not row["shares"]
    }
    assert "16" in refused["offset", "jax"]
    assert "negative" in refused["negative", "torch"]
    shared = {(row["layout"], row["target"]) for row in measured["layouts"] if row["shares"]}
    assert {("fortran", "torch"), ("strided", "torch"), ("aligned", "jax")} <= shared
    assert {row["layout"]: row["words"] for row in measured["layouts"]}["fortran"] == "transposed"


def test_dtypes_arrive_bit_for_bit_or_are_refused(measured):
    for target in WORLDS:
        row = measured["dtypes"][target]
        assert row["wrong"] == []
        assert all(row["refused"].values())
    assert {"bfloat16", "float8_e4m3fn", "float64", "int64"} <= set(
        measured["dtypes"]["torch"]["exact"]
    )
    assert "float64" in measured["dtypes"]["jax"]["refused"]


@pytest.fixture(scope="module")
def unwell(cli, shadow, once):
    """What the doctor says where torch is broken, TensorFlow and JAX are absent."""
    absent = 'raise ModuleNotFoundError("No module named {0!r}", name={0!r})\n'
    folder = shadow(torch=BROKEN, tensorflow=absent.format("tensorflow"), jax=absent.format("jax"))
    plain = once("unwell", lambda: told(cli("doctor", "--json", shadows=folder)))
    return once("unwell-text", lambda: told(cli("doctor", shadows=folder))), json.loads(plain[1])


def test_a_broken_framework_is_told_not_suffered(unwell):
    (code, stdout, stderr), plain = unwell
    assert (code, stderr) == (0, "")
    assert "libtorch_cpu.so: cannot open shared object file" in " ".join(stdout.split())
    assert "broken" in stdout
    assert "libtorch_cpu.so" in plain["frameworks"]["torch"]["error"]
    assert "pip install" in plain["frameworks"]["torch"]["install"]


def test_a_framework_that_ends_the_process_is_told_too(cli, shadow):
    """A SystemExit while a framework is imported is a finding like any other."""
    folder = shadow(torch='raise SystemExit("no licence")\n', tensorflow=BROKEN, jax=BROKEN)
    code, plain, _ = told(cli("doctor", "--json", shadows=folder))
    assert code == 0
    assert "no licence" in json.loads(plain)["frameworks"]["torch"]["error"]


def test_an_absent_framework_comes_with_the_line_that_installs_it(unwell):
    (_, stdout, _), plain = unwell
    assert plain["frameworks"]["jax"]["installed"] is False
    assert plain["frameworks"]["jax"]["install"] in stdout
    assert {pair["target"] for pair in plain["pairs"]} == {"python", "numpy", *TABLES}


def test_without_frameworks_nothing_is_empty(cli, absent):
    """There is nobody to share an ndarray with: no table of rows without a word."""
    done = cli(
        "doctor",
        shadows=absent("torch", "tensorflow", "jax", "cupy", "pyarrow", "pandas", "polars"),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "Which ndarrays copy=False can share" not in done.stdout
    assert "What a conversion does" in done.stdout
    assert not [line for line in done.stdout.splitlines() if line.startswith("transposed")]


@pytest.mark.parametrize("columns", [80, 120])
def test_it_fits_the_terminal(forked_cli_with_frameworks, columns):
    done = forked_cli_with_frameworks("doctor", env={"COLUMNS": str(columns)})
    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) <= columns
    assert "\x1b" not in done.stdout
