"""Words in names: a rule stands for one for each word, and makes what those make."""

from __future__ import annotations

import numpy as np
import pytest
from tests.maps.support import assert_made, kinds, table

import tensorferry as ferry
from tensorferry.maps.word_rules import folded

TEXT = """
drop = ["old.{part}"]

[words]
kind = ["weight", "bias"]

[words.part]
norm1 = "in.0"
"conv.1" = "in.2"

[map]
"b.{i}.{part}.{kind}" = "d.{i}.{part}.{kind}"
"q_{kind}" = { concat = ["q.{kind}", "k.{kind}"], axis = 0 }
"""
PARTS = {"norm1": "in.0", "conv.1": "in.2"}


def weights():
    random = np.random.default_rng(0)
    names = [
        f"d.{i}.{part}.{kind}"
        for kind in ("weight", "bias")
        for part in PARTS.values()
        for i in range(2)
    ]
    names += [f"{name}.{kind}" for name in "qk" for kind in ("weight", "bias")]
    return {name: random.random(3) for name in [*names, "old.in.0"]}


def test_each_word_makes_what_it_stands_for():
    source = weights()
    expected = {
        f"b.{i}.{ours}.{kind}": source[f"d.{i}.{theirs}.{kind}"]
        for ours, theirs in PARTS.items()
        for kind in ("weight", "bias")
        for i in range(2)
    }
    for kind in ("weight", "bias"):
        expected[f"q_{kind}"] = np.concatenate([source[f"q.{kind}"], source[f"k.{kind}"]])
    assert table(TEXT).check(source) == []
    assert_made(table(TEXT).apply(source), expected)


def test_what_is_printed_is_read_again():
    read = table(TEXT)
    assert ferry.WeightMap.parse(read.text) == read
    assert ferry.WeightMap.parse(read.text).text == read.text


def test_there_and_back():
    read = table("\n".join(TEXT.splitlines()[3:]))
    source = {name: each for name, each in weights().items() if not name.startswith("old")}
    made = read.apply(source)
    for back in (read.inverse(), read.inverse(source)):
        found = back.apply(
            made, dims={name: 3 for name, ways in back.dims.items() if ways == ("",)}
        )
        assert found.keys() == source.keys()
        for name, each in found.items():
            np.testing.assert_array_equal(each, source[name])
    assert '"d.{i}.{part}.{kind}" = "b.{i}.{part}.{kind}"' in read.inverse(source).text


def test_a_word_that_is_in_no_name_is_found():
    source = {name: each for name, each in weights().items() if "in.2" not in name}
    (found,) = table(TEXT).check(source)
    assert found.kind == "unknown"
    assert "in.2" in found.message


def test_a_rule_whose_words_are_in_no_name_is_found():
    read = table('[words]\nk = ["a", "b"]\n[map]\n"x.{k}" = "y.{k}"\n"z.{k}" = "{k}"')
    assert ("unfilled", "x.{k}") in kinds(read.check({"a": np.ones(1), "b": np.ones(1)}))


def test_two_words_for_one_tensor_are_found():
    """Words that can be read in two ways make a tensor twice."""
    read = table('[words]\nk = ["a", "a.b"]\nm = ["c", "b.c"]\n[map]\n"x.{k}.{m}" = "x.{k}.{m}"')
    assert ("twice", "x.a.b.c") in kinds(read.check({"x.a.b.c": np.ones(1)}))


@pytest.mark.parametrize(
    "text",
    [
        '[words]\nk = []\n[map]\n"x" = "y"',
        '[words]\nk = "a"\n[map]\n"x" = "y"',
        '[words]\nk = [""]\n[map]\n"x" = "y"',
        '[words]\nk = [1]\n[map]\n"x" = "y"',
        '[words]\nk = ["a", "a"]\n[map]\n"x" = "y"',
        '[words]\n"k k" = ["a"]\n[map]\n"x" = "y"',
        '[words]\nk = ["a"]\n[map]\n"x.{k+1}" = "y.{k+1}"',
        '[words]\nk = ["a"]\n[map]\n"x.{k}" = "y.{k}[k]"',
        '[words]\nk = ["a"]\n[map]\n"x" = { stack = "k", of = "y.{k}" }',
        '[dims]\nk = 3\n[words]\nk = ["a"]\n[map]\n"x.{k}" = "y.{k}"',
    ],
)
def test_words_that_are_none_are_refused(text):
    with pytest.raises(ferry.FileFormatError):
        table(text)


def test_words_that_stand_for_too_many_rules_are_refused():
    words = "\n".join(f"k{at} = {[str(each) for each in range(100)]}" for at in range(8))
    name = ".".join(f"{{k{at}}}" for at in range(8))
    with pytest.raises(ferry.FileFormatError, match="stand for"):
        table(f'[words]\n{words}\n[map]\n"{name}" = "{name}"')


def test_rules_that_differ_in_words_are_folded():
    pairs = {f"ours{at}": f"theirs.{at}" for at in range(6)}
    rules = [
        f'"{side}.{ours}.{kind}" = "old.{side}.{theirs}.{kind} : a b -> b a"'
        for side in ("left", "right")
        for ours, theirs in pairs.items()
        for kind in ("weight", "scale")
    ]
    plain = table("\n".join(rules))
    source = {
        f"old.{side}.{theirs}.{kind}": np.random.default_rng(1).random((2, 3))
        for side in ("left", "right")
        for theirs in pairs.values()
        for kind in ("weight", "scale")
    }
    short = ferry.WeightMap.of(folded(plain, [source]))
    assert len(short.rules) <= 2
    assert short.check(source) == []
    made = short.apply(source)
    assert made.keys() == {
        f"{side}.{ours}.{kind}"
        for side in ("left", "right")
        for ours in pairs
        for kind in ("weight", "scale")
    }
    for side in ("left", "right"):
        for ours, theirs in pairs.items():
            for kind in ("weight", "scale"):
                np.testing.assert_array_equal(
                    made[f"{side}.{ours}.{kind}"], source[f"old.{side}.{theirs}.{kind}"].T
                )
    assert short.inverse().inverse() == short


PARTED = """[words]
kind = ["weight", "bias"]

[words.part]
norm1 = "in.0"
conv1 = "in.2"

[map]
"b.{i}.{part}.{kind}" = "d.{i}.{part}.{kind} : a b -> b a"
"""


def parted():
    """Weights for `PARTED`, and what it makes of them by plain NumPy."""
    random = np.random.default_rng(2)
    source, expected = {}, {}
    for ours, theirs in (("norm1", "in.0"), ("conv1", "in.2")):
        for kind in ("weight", "bias"):
            for i in range(2):
                source[f"d.{i}.{theirs}.{kind}"] = random.random((2, 3))
                expected[f"b.{i}.{ours}.{kind}"] = source[f"d.{i}.{theirs}.{kind}"].T
    return source, {name: np.ascontiguousarray(each) for name, each in expected.items()}


def assert_equal(found, expected):
    """The same names, in any order, with the same bits."""
    assert_made({name: found[name] for name in expected}, expected)
    assert found.keys() == expected.keys()


def test_files_through_words(tmp_path):
    source, expected = parted()
    ferry.save(source, tmp_path / "a.safetensors")
    (tmp_path / "t.toml").write_text(PARTED, "utf-8")
    for given in (tmp_path / "t.toml", table(PARTED)):
        assert_equal(ferry.load(tmp_path / "a.safetensors", "numpy", map=given), expected)
    ferry.convert_files(
        tmp_path / "a.safetensors", tmp_path / "b.npz", map=tmp_path / "t.toml", verify=True
    )
    with np.load(tmp_path / "b.npz") as found:
        assert_equal(dict(found), expected)
    back = table(PARTED).inverse()
    assert_equal(ferry.load(tmp_path / "b.npz", "numpy", map=back), source)


def test_a_file_is_not_made_if_a_word_is_in_no_name(tmp_path):
    source, _ = parted()
    kept = {name: each for name, each in source.items() if "in.2" not in name}
    ferry.save(kept, tmp_path / "a.safetensors")
    with pytest.raises(ferry.ConversionError, match="no rule finds the word"):
        ferry.convert_files(tmp_path / "a.safetensors", tmp_path / "b.npz", map=table(PARTED))
    assert not (tmp_path / "b.npz").exists()


def test_words_are_inferred():
    """Two rules for what would be twelve, and what they make is what was given."""
    pairs = {f"ours{at}": f"theirs.{at}" for at in range(6)}
    random = np.random.default_rng(3)
    source, target = {}, {}
    for side in ("left", "right"):
        for ours, theirs in pairs.items():
            for kind in ("weight", "scale"):
                each = random.random((4, 3))
                source[f"old.{side}.{theirs}.{kind}"] = each
                target[f"{side}.{ours}.{kind}"] = np.ascontiguousarray(each.T)
    found = ferry.WeightMap.infer(source, target)
    assert len(found.rules) <= 2
    assert found.text.startswith("[words]")
    assert found.check(source, target) == []
    assert_equal(found.apply(source), target)
    assert_equal(found.inverse().apply(target), source)


def test_an_axis_that_is_too_long_for_a_tensor_each_is_named():
    """It is there: that it is not would be said of another."""
    (found, *_) = table('"e.{i}" = "a[i]"').check({"a": np.empty((1 << 20) + 1, "int8")})
    assert found.kind == "length"
    assert "1,048,577 tensors along an axis of a are too many" in found.message
