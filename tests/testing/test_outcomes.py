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
        assert witness.make(layout, "float32") is not None


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
