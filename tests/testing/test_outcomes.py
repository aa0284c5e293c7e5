"""The outcomes of the suite: which are made, what each says, and that a witness can fail too."""

from __future__ import annotations

import numpy as np
import pytest

import tensorferry as ferry
from tensorferry import testing
from tensorferry.execution.run import is_verifying

ALIGNED = testing.Group("numpy", "aligned", "numpy")
LISTS = testing.Group("numpy", "aligned", "python")


def test_those_that_are_asked_for():
    """By group, dtype and copy=; a group for the fast paths has calls without keywords only."""
    found = list(
        testing.outcomes(
            ALIGNED, LISTS, LISTS._replace(paths=True), dtypes=["int8"], copies=[True, False]
        )
    )
    assert [(each.cell.group.target, each.cell.copy) for each in found] == [
        ("numpy", True),
        ("numpy", False),
        ("python", True),
        ("python", False),
        ("python", None),
    ]
    assert {each.cell.dtype for each in found} == {"int8"}
    assert len(list(testing.outcomes(ALIGNED))) == testing.check(ALIGNED)


def test_what_each_must_do_and_why():
    """As NumPy itself says: a copy has other memory, and a list has none."""
    copied, refused = (
        next(testing.outcomes(group, dtypes=["float32"], copies=[copy]))
        for group, copy in ((ALIGNED, True), (LISTS, False))
    )
    assert (copied.verdict.shares, copied.verdict.error, copied.findings) == (False, None, ())
    a = np.arange(3.0)
    assert not np.shares_memory(a, ferry.to_numpy(a, copy=True))
    assert copied.reason == ferry.explain(a, "numpy", copy=True).reason
    assert refused.verdict.error is ferry.CopyRequiredError
    with pytest.raises(ferry.CopyRequiredError) as raised:
        ferry.to_list(a, copy=False)
    assert refused.reason == raised.value.message


@pytest.mark.parametrize("paths", [True, False])
def test_the_mode_is_as_before_afterwards(paths):
    """Also if the caller stops in the middle."""
    before = is_verifying()
    some = testing.outcomes(ALIGNED._replace(paths=paths), dtypes=["int8", "int16"])
    next(some)
    assert is_verifying() is not paths
    some.close()
    assert is_verifying() is before


@pytest.mark.parametrize("method", ["knows", "make", "place", "content", "shape"])
def test_a_witness_that_raises_is_a_finding_and_its_error_is_kept(monkeypatch, method):
    """Of each conversion, so that the others are judged; pytest shows the traceback of the first."""
    witness = testing.witness_for("numpy")

    def fail(*_):
        raise ZeroDivisionError("the witness itself")

    monkeypatch.setattr(type(witness), method, fail)
    found = list(testing.outcomes(ALIGNED, dtypes=["float32"], copies=[True]))
    assert [each.findings[-1].about for each in found] == ["witness"]
    assert found[0].findings[-1].text == "ZeroDivisionError: the witness itself"
    with pytest.raises(testing.NonConformance, match="the witness itself") as raised:
        testing.check(ALIGNED)
    assert type(raised.value.__cause__) is ZeroDivisionError


@pytest.mark.parametrize("name", sorted(testing.witnesses()))
def test_everyday_tensors_are_among_the_layouts(name):
    """Each can be made, so that no row of the doctor's table is missing."""
    witness = testing.witnesses()[name]
    if not witness.is_installed():
        pytest.skip(f"{witness.module} is not installed")
    witness = testing.witness_for(name)
    assert witness.everyday
    for layout in witness.everyday:
        assert layout in witness.layouts
        dtypes = [dtype for dtype in ("float32", "float64") if witness.knows(dtype)]
        assert any(witness.make(layout, dtype) is not None for dtype in dtypes)


@pytest.mark.parametrize(
    ("to", "dtypes"),
    [
        ("numpy", {"bool": "bool", "int64": "int64", "float64": "float64"}),
        ("torch", {"bool": "bool", "int64": "int64", "float64": "float32"}),
        ("tensorflow", {"bool": "bool", "int64": "int32", "float64": "float32"}),
    ],
)
def test_numbers_get_the_dtype_of_the_constructor(monkeypatch, to, dtypes):
    """As `np.array`, `torch.tensor` and `tf.constant` give it to them; another one is a finding."""
    if not testing.witnesses()[to].is_installed():
        pytest.skip(f"{to} is not installed")
    group = testing.Group("python", "list", to)
    found = list(testing.outcomes(group, copies=[None]))
    assert [each.cell.dtype for each in found] == list(dtypes)
    assert not [each for each in found if each.findings]
    witness, wide = testing.witness_for(to), {}
    true = testing.suite.api.convert

    def convert(x, to, **keywords):
        wide[str(type(x[0][0]))] = witness.dtype(true(x, to))
        return true(x, to, dtype="complex128", **keywords)

    monkeypatch.setattr(testing.suite.api, "convert", convert)
    found = list(testing.outcomes(group, copies=[None]))
    assert all({"dtype", "values"} <= {every.about for every in each.findings} for each in found)
    assert list(wide.values()) == list(dtypes.values())


@pytest.mark.parametrize("paths", [True, False])
def test_numbers_that_are_read_wrongly_are_found(monkeypatch, paths):
    """In the call that people write too."""
    group = testing.Group("python", "list", "numpy", paths=paths)
    for name in ("convert", "to_numpy"):
        true = getattr(testing.suite.api, name)
        monkeypatch.setattr(
            testing.suite.api,
            name,
            lambda *words, true=true, **keywords: np.nan_to_num(true(*words, **keywords)),
        )
    (found,) = testing.outcomes(group, dtypes=["float64"], copies=[None])
    told = [each.text for each in found.findings if each.about == "values"]
    assert "instead of inf (000000000000f07f)" in told[0]


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint16", "int64", "float16", "float32", "float64"]
)
def test_numbers_are_written_as_numpy_writes_them(dtype):
    values = [0, 1, True, 0] if dtype == "bool" else [0, 1, 100, 7]
    assert testing.bits.encode(dtype, values) == np.array(values, dtype).tobytes()
    assert testing.bits.decode(dtype, testing.bits.encode(dtype, values)) == values


def test_numbers_of_a_dtype_that_python_has_not_are_an_error():
    with pytest.raises(ValueError, match="int4"):
        testing.bits.encode("int4", [1])


def test_values_that_differ_are_told_as_numbers_and_bytes(monkeypatch):
    """Which element, what it is and was to be, and how many differ."""
    true = testing.suite.api.convert

    def convert(x, to, **keywords):
        y = true(x, to, **keywords)
        y[0, 1] = 5
        return y

    monkeypatch.setattr(testing.suite.api, "convert", convert)
    (found,) = testing.outcomes(ALIGNED, dtypes=["int16"], copies=[True])
    told = [each.text for each in found.findings if each.about == "values"]
    was = int.from_bytes(testing.memory.image("aligned", "int16").content[2:4], "little")
    assert told == [f"element 1 is 5 (0500) instead of {was} (0100); 1 of 24 differ"]
    assert was == 1
