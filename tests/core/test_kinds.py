"""The kind of a tensor is a value with named fields, and its text is what a person sees and writes."""

from __future__ import annotations

import copy
import datetime as dt
import decimal
import json
import operator
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorferry as ferry
from tensorferry import TensorInfo
from tensorferry.core.kinds import (
    APART,
    BIT_PACKED,
    DECIMALS,
    OBJECTS,
    PLAIN,
    Kind,
    Reason,
    kind_of_text,
)

TEXTS = {
    Kind(): "",
    Kind("Parameter"): "Parameter",
    Kind("Foo", by_dlpack=True): "Foo.__dlpack__",
    Kind("Image", copied=True, of_palette=True): "copied Image of palette indices",
    Kind(counts="days"): "counting days",
    Kind(has_index=True): "with an index",
    Kind(counts="days", has_index=True): "counting days with an index",
    Kind(of_rows=True): "of rows",
    Kind(is_column=True): "column",
    Kind(is_column=True, filled="nan", padded="0"): "column with nulls as nan padded with 0",
    Kind("Series", copied=True): "copied Series",
    Kind("Series", copied=True, counts="days", has_index=True, reasons=(Reason("3 chunks"),)): (
        "copied Series counting days with an index: 3 chunks"
    ),
    Kind("Series", copied=True, reasons=(Reason("nulls"), BIT_PACKED)): (
        "copied Series: nulls, bit-packed"
    ),
    Kind("DataFrame", copied=True, is_column=True, filled="-1", reasons=(APART,)): (
        "copied DataFrame column with nulls as -1: each column has its own memory"
    ),
    Kind("Array", copied=True, reasons=(Reason.read_as("days", "int64"), DECIMALS)): (
        "copied Array: days read as int64, decimals"
    ),
    Kind("Series", copied=True, reasons=(OBJECTS, Reason.encoded("by a dictionary"))): (
        "copied Series: Python objects, encoded by a dictionary"
    ),
}


@pytest.mark.parametrize("kind", TEXTS, ids=TEXTS.get)
def test_its_text_says_all_of_it(kind):
    """So that it can be read again from the text, which a person may write."""
    assert str(kind) == f"{kind}" == TEXTS[kind]
    assert TensorInfo("numpy", (2,), kind=TEXTS[kind]).kind == kind
    assert bool(kind) == bool(TEXTS[kind])


@pytest.mark.parametrize("kind", TEXTS, ids=TEXTS.get)
def test_it_is_a_value(kind):
    """Equal by its fields, wherever it comes from."""
    for same in (
        pickle.loads(pickle.dumps(kind)),  # noqa: S301 - our own
        copy.copy(kind),
        copy.deepcopy(kind),
        Kind(**kind._asdict()),
        eval(repr(kind), {"Kind": Kind, "Reason": Reason}),  # noqa: S307 - our own
    ):
        assert same == kind
        assert hash(same) == hash(kind)
        assert {kind: "found"}[same] == "found"
    assert [each for each in TEXTS if each == kind] == [kind]
    with pytest.raises(AttributeError):
        kind.name = "another"


@pytest.mark.parametrize("kind", TEXTS, ids=TEXTS.get)
def test_a_description_shows_its_text(kind):
    """In its own text, in code that makes it again, and in JSON."""
    info = TensorInfo("numpy", (2,), kind=kind)
    assert str(info).startswith(f"numpy {TEXTS[kind]}".rstrip() + " float32[2] on cpu")
    assert repr(info) == (
        f'TensorInfo("numpy", (2,), "float32", kind="{TEXTS[kind]}")'
        if kind
        else 'TensorInfo("numpy", (2,), "float32")'
    )
    assert eval(repr(info), {"TensorInfo": TensorInfo}) == info  # noqa: S307 - our own
    data = json.loads(json.dumps(info.to_dict()))
    assert data["kind"] == TEXTS[kind]
    assert TensorInfo(**data) == info
    assert pickle.loads(pickle.dumps(info)) == info  # noqa: S301 - our own


words = st.text("abcXYZ_019", min_size=1, max_size=8).filter(lambda word: word != "column")
flags = st.booleans()
reasons = st.sampled_from([APART, BIT_PACKED, DECIMALS, OBJECTS]) | words.map(Reason)
kinds = st.builds(
    Kind,
    name=words,
    copied=st.just(True),
    by_dlpack=flags,
    of_palette=flags,
    counts=st.just("") | words,
    has_index=flags,
    of_rows=flags,
    is_column=flags,
    filled=st.sampled_from(["", "0", "-1.5", "nan", "True"]),
    padded=st.sampled_from(["", "0", "1e-05"]),
    reasons=st.lists(reasons, max_size=3).map(tuple),
)


@given(kinds)
def test_every_kind_can_be_read_from_its_text(kind):
    """Whichever facts come together."""
    assert kind_of_text(str(kind)) == kind


@given(
    st.text(max_size=30)
    | st.lists(st.sampled_from([*TEXTS.values(), "copied", ":", ",", "counting"])).map(" ".join)
)
def test_whatever_a_person_writes_is_kept(text):
    """Also what is no kind's text: it is a name then."""
    info = TensorInfo("numpy", (2,), kind=text)
    assert str(info.kind) == text
    assert eval(repr(info), {"TensorInfo": TensorInfo}) == info  # noqa: S307 - our own


@given(kinds | words.map(Kind))
def test_a_kind_equals_its_text_and_no_other(kind):
    """`info.kind == "Parameter"` is true of a parameter, whichever stands first."""
    text = str(kind)
    assert kind == text
    assert text == kind
    assert not operator.ne(kind, text)
    assert kind != f"{text}_"
    assert f"{text}_" != kind
    assert kind != (*kind, None)
    assert hash(kind) == hash(Kind(*kind))
    assert {kind: 1}[Kind(*kind)] == 1


def test_the_kind_that_was_written_is_the_one_that_is_read():
    """As in the example of `TensorInfo`; an ordinary tensor's kind is the empty text."""
    info = TensorInfo("torch", (2,), kind="Parameter")
    assert info.kind == "Parameter"
    assert info.kind != "Variable"
    assert TensorInfo("torch", (2,)).kind == ""
    assert bool(info.kind)
    assert not TensorInfo("torch", (2,)).kind


def test_objects_of_frameworks_have_the_kinds_that_are_read_here():
    """Each fact in a field of its own."""
    pd, pl, pa = map(pytest.importorskip, ("pandas", "polars", "pyarrow"))
    torch = pytest.importorskip("torch")

    def kind_of(x):
        kind = ferry.describe(x).kind
        assert type(kind) is Kind
        return kind

    assert kind_of(np.zeros(2)) == kind_of(torch.zeros(2)) == PLAIN
    assert kind_of(torch.nn.Parameter(torch.zeros(2))).name == "Parameter"
    assert kind_of(np.float32(1)).name == "scalar"
    assert kind_of([1, 2]).is_numbers
    assert kind_of([np.zeros(2), np.ones(2)]).joined_by == "stack"
    assert kind_of(pd.Series([1, 2], index=["a", "b"])).has_index
    packed = kind_of(pl.Series([True, False]))
    assert (packed.name, packed.copied, packed.reasons) == ("Series", True, (BIT_PACKED,))
    assert kind_of(pl.Series([[1, 2], [3, 4]])).of_rows
    assert kind_of(pl.DataFrame({"a": [1], "b": [2]})).reasons == (APART,)
    assert kind_of(pa.array([decimal.Decimal(1)])).reasons == (DECIMALS,)
    assert kind_of(pa.array([7, 7]).dictionary_encode()).reasons == (
        Reason.encoded("by a dictionary"),
    )
    days = pd.Series(np.array(["2020-01-01"], "datetime64[s]"), index=["x"])
    info = ferry.explain(days, "numpy", dtype="int64").source
    assert (info.kind.counts, info.kind.has_index) == ("seconds since 1970", True)


def test_a_warning_says_what_the_numbers_count_and_nothing_else():
    """Beside what else the kind says: an index, or rows."""
    pd, pl = map(pytest.importorskip, ("pandas", "polars"))
    dates = np.array(["2020-01-01"], "datetime64[s]")
    kept = "the index does not come along: index=True keeps it as a column, in a tree"
    plan = ferry.explain(pd.Series(dates, index=["x"]), "numpy", dtype="int64")
    assert plan.warnings == (f"the numbers count seconds since 1970; {kept}",)
    series = pd.Series(dates, index=["x"])
    assert ferry.explain(series, "pandas", dtype="int64").warnings == (
        "the numbers count seconds since 1970",
    )
    rows = pl.Series([[dt.date(2020, 1, 1)]], dtype=pl.List(pl.Date))
    assert ferry.explain(rows, "numpy", dtype="int32").warnings == (
        "the numbers count days since 1970",
    )
