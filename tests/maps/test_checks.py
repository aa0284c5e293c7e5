"""What is wrong between a table and tensors is found before anything is made, and named."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from tests.maps.support import CONFIG, LLAMA, kinds, llama, table

import tensorferry as ferry
from tensorferry.maps.names import KnownNames, template

A = np.zeros((4, 6), "float32")


def found(text, source, target=None, **keywords):
    return kinds(table(text).check(source, target, **keywords))


def test_a_source_that_nothing_uses():
    assert found('"y" = "a"', {"a": A, "b": A}) == [("unused", "b")]


def test_a_part_that_nothing_uses():
    (finding,) = table('"y" = "a[1:]"').check({"a": A})
    assert (finding.kind, finding.tensor) == ("unused", "a")
    assert "6 of 24 elements" in finding.message
    assert "[0, 0]" in finding.message


def test_a_part_can_be_dropped():
    assert found('drop = ["a[:1]", "b"]\n[map]\n"y" = "a[1:]"', {"a": A, "b": A}) == []
    assert found('drop = ["a[2:]"]\n[map]\n"y" = "a[1:]"', {"a": A}) == [("unused", "a")]


def test_names_to_drop_may_have_stars():
    source = {"a": A, "m.0.inv_freq": A, "m.1.inv_freq": A}
    assert found('drop = ["*.inv_freq"]\n[map]\n"y" = "a"', source) == []
    assert found('drop = ["m.{i}.inv_freq"]\n[map]\n"y" = "a"', source) == []
    assert found('drop = ["m.1.*"]\n[map]\n"y" = "a"', source) == [("unused", "m.0.inv_freq")]


def test_a_source_that_is_not_there():
    assert found('"y" = "a"\n"z" = "b"', {"a": A}) == [("unfilled", "z")]
    assert found(
        '"l.{i}" = { concat = ["a.{i}", "b.{i}"], axis = 0 }', {"a.0": A, "b.0": A, "a.1": A}
    ) == [
        ("unfilled", "l.1"),
    ]


def test_an_expert_that_is_missing():
    source = {f"e.{number}": A for number in (0, 1, 3)}
    (first, *_) = table('"y" = { stack = "e", of = "e.{e}", axis = 0 }').check(source)
    assert first.kind == "unfilled"
    assert "e = 2" in first.message


def test_two_rules_for_one_tensor():
    assert ("twice", "y.0") in found('"y.{i}" = "a.{i}"\n"y.0" = "b"', {"a.0": A, "b": A})


def test_elements_that_are_written_twice_or_not():
    moves = '"y" = {{ moves = [["a", [12], [0, 1], [0, 1]], ["a", [12], [{}, 1], [12, 1]]], shape = [24] }}'
    assert found(moves.format(12), {"a": A}) == []
    assert found(moves.format(11), {"a": A}) == [("unfilled", "y")]
    twice = (
        '"y" = { moves = [["a", [24], [0, 1], [0, 1]], ["a", [1], [5, 1], [5, 1]]], shape = [24] }'
    )
    assert found(twice, {"a": A}) == [("twice", "y")]


@pytest.mark.parametrize(
    "form",
    [
        '"a[2:5]"',
        '"a[4]"',
        '"a[-5]"',
        '"a[3:2]"',
        '{ moves = [["a", [2], [0, 1], [23, 1]]], shape = [2] }',
        '{ moves = [["a", [2], [1, 1], [0, 1]]], shape = [2] }',
        '{ moves = [["a", [2], [0, -1], [0, 1]]], shape = [2] }',
    ],
)
def test_elements_that_do_not_exist(form):
    assert ("bounds", "y") in found(f'"y" = {form}', {"a": A})


@pytest.mark.parametrize(
    "form",
    [
        '{ concat = ["a", "b"], axis = 0 }',
        '{ concat = ["a", "a"], axis = 2 }',
        '{ stack = ["a", "b"], axis = 0 }',
        '"a[:, :, 0]"',
        '{ concat = [{ cast = "float16", of = "a" }, "a"], axis = 0 }',
    ],
)
def test_shapes_that_do_not_fit(form):
    assert ("shape", "y") in found(f'"y" = {form}', {"a": A, "b": A[:, :5]})


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        ('{ view = "float64", of = "a : a b -> (a b) 1" }', "shape"),
        ('{ view = "int8", of = "a[0, 0]" }', "shape"),
        ('{ view = "int8", from = "int32", of = "a" }', "dtype"),
        ('{ cast = "float64", from = "float16", of = "a" }', "dtype"),
        ('{ view = "int8", of = { cast = "bool", of = "a" } }', "dtype"),
        ('{ view = "float4_e2m1fn", of = "a" }', "dtype"),
        ('{ concat = [{ view = "int32", of = "a" }], axis = 0 }', "shape"),
    ],
)
def test_views_that_do_not_fit(form, kind):
    assert (kind, "y") in found(f'"y" = {form}', {"a": A})


def test_dtypes_that_do_not_join():
    assert ("dtype", "y") in found(
        '"y" = { concat = ["a", "b"], axis = 0 }', {"a": A, "b": A.astype("float16")}
    )


def test_a_target_that_differs():
    text = '"x" = "a"\n"y" = "b"\n"z" = "c"\n"more" = "d"'
    source = dict.fromkeys("abcd", A)
    target = {"x": A.T, "y": A.astype("float16"), "z": A, "w": A}
    assert found(text, source, target) == [
        ("shape", "x"),
        ("dtype", "y"),
        ("unfilled", "w"),
        ("unknown", "more"),
    ]


def test_a_length_that_nothing_tells():
    text = '[dims]\nh = "heads"\n[map]\n"y" = "a : (h k) b -> (k h) b"'
    (finding,) = table(text).check({"a": A})
    assert finding.kind == "length"
    assert "h is not given" in finding.message
    assert "heads in config.json" in finding.message
    assert found(text, {"a": A}, dims={"h": 2}) == []
    assert found(text, {"a": A}, config={"heads": 2}) == []
    assert found(text, {"a": A}, dims={"h": 3}) == [("length", "y")]
    assert ("unknown", "") in found(text, {"a": A}, dims={"h": 2, "q": 3})


def test_a_length_that_a_shape_tells_is_known_everywhere():
    text = '[dims]\nd = ""\n[map]\n"x" = "b[:d]"\n"y" = "b[d:]"\n"z" = "a : d e -> e d"'
    assert found(text, {"a": A, "b": np.zeros(9)}) == []
    made = table(text).apply({"a": A, "b": np.arange(9)})
    assert made["x"].tolist() == [0, 1, 2, 3]


def test_a_rule_that_says_nothing_is_not_complete():
    text = '"x" = "a"\n"y" = { reason = "affine 1*x+1" }'
    one = table(text)
    assert not one.complete
    assert [rule.reason for rule in one.rules] == [None, "affine 1*x+1"]
    (finding,) = one.check({"a": A})
    assert (finding.kind, finding.tensor) == ("unfilled", "y")
    with pytest.raises(ferry.FormatLimitError, match=re.escape("affine 1*x+1")):
        one.apply({"a": A})


def test_apply_refuses_what_check_finds():
    with pytest.raises(ferry.FormatLimitError, match="b: is in no tensor") as raised:
        table('"y" = "a"').apply({"a": A, "b": A})
    assert raised.value.hint == 'drop = ["b"] in the table, if that is not wanted'
    with pytest.raises(ferry.TreeError) as raised:
        table('"y" = "a"').apply({"a": A, "b": A, "c": A})
    assert len(raised.value.exceptions) == 2
    hint = 'drop = ["b", "c"] in the table, if that is not wanted'
    assert raised.value.exceptions[0].hint == hint
    dropped = f'{hint.partition(" in the table")[0]}\n[map]\n"y" = "a"'
    assert table(dropped).check({"a": A, "b": A, "c": A}) == []


def test_layers_that_are_alike_are_one_error():
    source = {"a": A} | {f"m.{i}.inv_freq": A for i in range(30)}
    with pytest.raises(ferry.FormatLimitError, match="and 29 more like it") as raised:
        table('"y" = "a"').apply(source)
    dropped = f'{raised.value.hint.partition(" in the table")[0]}\n[map]\n"y" = "a"'
    assert table(dropped).check(source) == []


def test_lengths_that_are_missing_are_one_hint():
    text = '[dims]\nh = ""\nk = ""\n[map]\n"x" = "a : (h n) b -> (n h) b"\n"y" = "b : (k n) b -> (n k) b"'
    with pytest.raises(ferry.TreeError) as raised:
        table(text).apply({"a": A, "b": A})
    hints = [each.hint for each in raised.value.exceptions]
    assert hints == ['dims={"h": 32, "k": 32}, with the lengths that they have', None]


def test_many_tensors_are_checked_from_their_headers():
    """20,000 of them, by their shapes alone: no memory is taken for elements."""
    source = {
        f"layers.{i}.w": ferry.TensorInfo("numpy", (4096, 1 << 20), "float32")
        for i in range(20_000)
    }
    text = '"l.{i}.a" = "layers.{i}.w[:1024] : a b -> b a"\n"l.{i}.b" = "layers.{i}.w[1024:]"'
    assert table(text).check(source) == []
    text = text.replace("[1024:]", "[1025:]")
    assert len(table(text).check(source)) == 20_000


# -- mutations -------------------------------------------------------------------------------------


def _mutated(text, rng):
    """A table with one small change: a number, a name, an operator, a line."""
    lines = text.splitlines()
    start = lines.index("[map]") + 1
    place = rng.randrange(start, len(lines))
    line = lines[place]
    which = rng.randrange(7)
    if which == 0:
        del lines[place]
    elif which == 1:
        lines.insert(place, line)
    elif which == 2:
        digits = [*re.finditer(r"\d", line)]
        if digits:
            at = rng.choice(digits)
            line = line[: at.start()] + str(rng.randrange(10)) + line[at.end() :]
    elif which == 3:
        words = [*re.finditer(r"[A-Za-z_]+", line)]
        one, other = rng.choice(words), rng.choice(words)
        line = line[: one.start()] + other[0] + line[one.end() :]
    elif which == 4:
        at = rng.randrange(len(line))
        line = line[:at] + rng.choice("~:[]{}()0123 *+-/") + line[at + 1 :]
    elif which == 5:
        at = rng.randrange(len(line))
        line = line[:at] + line[at + 1 :]
    else:
        other = rng.randrange(start, len(lines))
        line = f"{line.split(' = ', 1)[0]} = {lines[other].split(' = ', 1)[1]}"
    if which > 1:
        lines[place] = line
    return "\n".join(lines)


def test_a_thousand_mutations_are_found_or_equal_in_effect():
    """A changed table is refused by the parser or by `check` with the target's header; or it makes the same.

    A permutation between axes of one length passes every header: then what it makes is another
    arrangement of the same elements, which only values can tell.
    """
    source, expected = llama()
    rng = random.Random(7)  # noqa: S311 - no secrets
    outcomes = dict.fromkeys(("refused", "found", "equal", "rearranged"), 0)
    for _ in range(1000):
        text = _mutated(LLAMA, rng)
        try:
            one = ferry.WeightMap.parse(text)
        except ferry.FileFormatError:
            outcomes["refused"] += 1
            continue
        if one.check(source, expected, config=CONFIG):
            outcomes["found"] += 1
            continue
        made = one.apply(source, config=CONFIG)
        assert made.keys() == expected.keys()
        if all(np.array_equal(made[name], expected[name]) for name in expected):
            outcomes["equal"] += 1
            continue
        wrong = [name for name in expected if not np.array_equal(made[name], expected[name])]
        assert text != LLAMA
        for name in wrong:
            assert made[name].shape == expected[name].shape
        every = np.sort(np.concatenate([made[name].reshape(-1) for name in expected]))
        there = np.sort(np.concatenate([expected[name].reshape(-1) for name in expected]))
        assert np.array_equal(every, there)
        outcomes["rearranged"] += 1
    assert outcomes["refused"] + outcomes["found"] > 700, outcomes


def test_names_are_looked_up_by_some_of_their_numbers():
    """As if each name that matches were looked at."""
    names = [f"a.{i}.b.{j}.w{k}" for i in range(4) for j in range(i + 1) for k in (1, 2)]
    known = KnownNames([*names, "a.01.b.0.w1", "a.1.b.0", "a.1.b.0.w1.2", "a.x.b.0.w1"])
    for text in ("a.{i}.b.{j}.w1", "a.{i}.b.{i}.w2", "a.{2*i+j}.b.{j}.w1", "a.{i}.b.{2*j}.w1", "n"):
        every = known.matching(template(text))
        matches = [(name, template(text).match(name)) for name in names]
        assert every == [(name, values) for name, values in matches if values is not None]
        for values in ({}, {"i": 2}, {"j": 1}, {"i": 3, "j": 0, "k": 5}, {"i": 9}):
            kept = [each for each in every if {**each[1], **values} == {**values, **each[1]}]
            assert known.matching(template(text), values) == kept
    assert len(known.matching(template("a.{i}.b.{j}.w1"), {"i": 2})) == 3
