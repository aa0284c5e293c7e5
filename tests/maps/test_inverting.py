"""The table back makes of what a table makes what it was made of, to the bit: plain NumPy is the oracle."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.maps.support import CONFIG, LLAMA, assert_made, llama, table

import tensorferry as ferry

RANDOM = np.random.default_rng(5)


def words(*shape, dtype="uint16"):
    return RANDOM.integers(0, 256**2, shape).astype(dtype)


A, B, C = words(4, 6), words(5, 6), words(3, 4, 2)

ALONE = {
    "a rename": ('"y" = "a"', {"a": A}),
    "axes": ('"y" = "c : a 4 d -> d~ (4 a)"', {"c": C}),
    "a length": ('"y" = { concat = ["a : 4 ... -> 4 ...", "b"], axis = 0 }', {"a": A, "b": B}),
    "slices": ('"y" = "a[:1]"\n"z" = "a[1:3]"\n"w" = "a[3:]"', {"a": A}),
    "the end": ('"y" = "a[:-2]"\n"z" = "a[-2:]"', {"a": A}),
    "between": ('"y" = "a[:1]"\n"z" = "a[1:-1]"\n"w" = "a[-1:]"', {"a": A}),
    "corners": ('"y" = "a[:1, :2]"\n"z" = "a[:1, 2:]"\n"w" = "a[1:]"', {"a": A}),
    "indices": ('"y" = "c[0]"\n"z" = "c[1]"\n"w" = "c[2]"', {"c": C}),
    "an index of each": ('"y.{e}" = "c[e] : a b -> b a"', {"c": C}),
    "two indices": (
        "\n".join(f'"y{i}{j}" = "c[{i}, {j}]"' for i in range(3) for j in range(4)),
        {"c": C},
    ),
    "steps": ('"y" = "a[0::2]"\n"z" = "a[1::2]"', {"a": A}),
    "a part of a part": (
        '"q" = "a : (2[0] n) d -> n d"\n"k" = "a : (2[1] n) d -> d n"',
        {"a": A},
    ),
    "parts of a part": (
        '"q" = "a : (4[:1] 1) (2 n) -> 1 n 2"\n"k" = "a : (4[1:] 1) (2 n) -> 3 (2 n)"',
        {"a": A},
    ),
    "halves that are swapped": (
        '"y" = { concat = ["a : (2[1] n) d -> n d", "a : (2[0] n) d -> n d"], axis = 0 }',
        {"a": A},
    ),
    "a pattern of what is stacked": (
        '"y" = { stack = ["a", "b"], axis = 1, pattern = "h two d -> (h two) d" }',
        {"a": A, "b": words(4, 6)},
    ),
    "three of each head": (
        '"y" = { stack = ["q : (2 n) d -> 2 n d", "k", "v"], axis = 1, pattern = "2 h n d -> (2 h n) d" }',
        {"k": words(2, 2, 6), "q": A, "v": words(2, 2, 6)},
    ),
    "a repetition": ('"y" = "a : a b -> (a 3) b"', {"a": A}),
    "a tie": ('"y" = "a"\n"z" = "a : a b -> b a"', {"a": A}),
    "whole and in parts": ('"y" = "a"\n"z" = "a[:1]"\n"w" = "a[1:]"', {"a": A}),
    "what is filled": (
        '"y" = { concat = ["a", { fill = 0, shape = [2, 6], dtype = "uint16" }], axis = 0 }',
        {"a": A},
    ),
    "equal sources": ('"y" = { same = ["a", "b"] }', {"a": A, "b": A.copy()}),
    "a wider dtype": (
        '"y" = { cast = "float32", from = "bfloat16", of = "a : a b -> b a" }',
        {"a": np.arange(24.0).reshape(4, 6).astype(ml_dtypes.bfloat16)},
    ),
    "a view": ('"y" = { view = "bfloat16", from = "uint16", of = "a : a b -> b a" }', {"a": A}),
    "a wide view": ('"y" = { view = "uint64", from = "uint16", of = "c : a b 4 -> b a 4" }', {"c": words(3, 2, 4)}),
    "a narrow view": ('"y" = { view = "uint8", from = "uint16", of = "c : a (3 c) -> (a 3) c" }', {"c": words(2, 12)}),
    "views of experts": (
        '"y" = { view = "uint32", from = "uint16", of = { stack = "e", of = "x.{e}" } }',
        {"x.0": A, "x.1": words(4, 6)},
    ),
}  # fmt: skip
"""Tables that have an inverse of their own."""

DIMS = {"halves that are swapped": {"n": 2}}

WITH_LENGTHS = {
    "two lengths": ('"y" = { concat = ["a", "b"], axis = 0 }', {"a": A, "b": B}, {"a_length": 4}),
    "three lengths": (
        '"y.{i}" = { concat = ["l.{i}.q", "l.{i}.k", "l.{i}.v"], axis = 0 }',
        {
            f"l.{i}.{name}": words(size, 6)
            for i in (0, 1)
            for name, size in zip("qkv", (4, 3, 2), strict=True)
        },
        {"q_length": 4, "k_length": 3},
    ),
    "a length in the middle": (
        '"y" = { concat = ["a", "b : 5 d -> 5 d", "d"], axis = 0 }',
        {"a": A, "b": B, "d": words(2, 6)},
        {"a_length": 4},
    ),
    "words that are taken": (
        '"y" = { concat = ["x : (a_length n) d -> (n a_length) d", "a", "b"], axis = 0 }',
        {"x": words(6, 6), "a": A, "b": B},
        {"a_length": 2, "a_length_2": 4, "n": 3},
    ),
}
"""Tables that have one with lengths that are to be given: of the concatenation, or else not told."""

BY_SHAPES = {
    "lengths of two axes": ('"y" = "c : a b d -> d (b a)"', {"c": C}),
    "parts of one length": (
        '"q" = "a : (2[0] 2) d -> 2 d"\n"k" = "a : (2[1] 2) d -> d 2"',
        {"a": A},
    ),
    "the last axis": ('"y" = { concat = ["a", "b"], axis = -2 }', {"a": A, "b": B}),
    "moves": (
        '"y" = { moves = [["a", [4, 6], [0, 1, 4], [0, 6, 1]]], shape = [24] }',
        {"a": A},
    ),
    "lengths that differ": (
        '"y.{i}" = { concat = ["a.{i}", "b.{i}"], axis = 0 }',
        {"a.0": A, "b.0": B, "a.1": B, "b.1": words(1, 6)},
    ),
    "a pattern that takes the joined axis apart": (
        '"y" = { concat = ["a", "b"], axis = 0, pattern = "(2 a) b -> b (a 2)" }',
        {"a": A, "b": words(4, 6)},
    ),
    "an axis that is merged": ('"y" = "c : a (b 2) d -> (a b 2 d)"', {"c": C}),
    "experts of layers": (
        '"y" = { stack = "i", of = { stack = "e", of = "l.{i}.{e}" } }',
        {f"l.{i}.{e}": words(2, 3) for i in range(2) for e in range(3)},
    ),
    "alternating, of unequal parts": ('"y" = "a[0::2]"\n"z" = "a[1:2]"\n"w" = "a[3:]"', {"a": A}),
    "indices and slices": ('"y" = "a[0]"\n"z" = "a[1:]"', {"a": A}),
    "a view without a word": ('"y" = { view = "uint8", of = "a" }', {"a": A}),
    "a cast without a word": ('"y" = { cast = "uint64", of = "a" }', {"a": A}),
    "nothing": ('"y" = { concat = ["a", "b"], axis = 0 }', {"a": A[:0], "b": B}),
    "a name that repeats": ('[dims]\nn = 3\n[map]\n"y" = "a : a b -> (a n) b"', {"a": A}),
    "what is not dropped here": ('drop = ["*.inv"]\n[map]\n"y" = "a"', {"a": A}),
}
"""Tables that have one if the shapes of their source are known."""

ASKED = (
    "the last axis",
    "moves",
    "a pattern that takes the joined axis apart",
    "experts of layers",
    "indices and slices",
    "a name that repeats",
    "a view without a word",
    "a cast without a word",
)
"""Those of them that have none without."""


def assert_again(found, source):
    assert_made(dict(sorted(found.items())), dict(sorted(source.items())))


@pytest.mark.parametrize("name", ALONE)
def test_an_inverse_makes_the_source_again(name):
    text, source = ALONE[name]
    one = table(text)
    made = one.apply(source)
    back = one.inverse()
    assert back == ferry.WeightMap.parse(str(back))
    again = back.apply(made, dims=DIMS.get(name))
    assert_again(again, source)
    assert_again(one.inverse(source).apply(made), source)


@pytest.mark.parametrize("name", WITH_LENGTHS)
def test_lengths_that_only_the_source_tells_have_names(name):
    text, source, lengths = WITH_LENGTHS[name]
    one = table(text)
    given = {
        each: number
        for each, number in lengths.items()
        if each in ("a_length", "n") and "x" in source
    }
    made = one.apply(source, dims=given)
    back = one.inverse()
    assert set(back.dims) == lengths.keys() - given.keys()
    assert {each.kind for each in back.check(made)} == {"length"}
    assert_again(back.apply(made, dims=lengths), source)
    known = one.inverse(source, dims=given)
    assert_again(known.apply(made), source)


@pytest.mark.parametrize("name", BY_SHAPES)
def test_shapes_of_the_source_tell_what_the_table_does_not(name):
    text, source = BY_SHAPES[name]
    one = table(text)
    made = one.apply(source)
    back = one.inverse(source)
    assert back == ferry.WeightMap.parse(str(back))
    assert back.check(made, source) == []
    assert_again(back.apply(made), source)


# -- any table -------------------------------------------------------------------------------------


class Drawn:
    """Rules over sources of their own, and what they make by plain NumPy.

    Args:
        draw: Hypothesis' function.
    """

    def __init__(self, draw):
        self.draw = draw
        self.lines, self.dims = [], {}
        self.source, self.made = {}, {}

    def number(self, least, most):
        return self.draw(st.integers(least, most))

    def new(self, shape):
        """A source of this shape, each element of which is another."""
        name = f"s.{len(self.source)}.w"
        start = sum(each.size for each in self.source.values())
        count = int(np.prod(shape))
        self.source[name] = np.arange(start, start + count, dtype="uint16").reshape(shape)
        return name, self.source[name]

    def makes(self, expression, array):
        name = f"t.{len(self.made)}"
        self.lines.append(f'"{name}" = {expression}')
        self.made[name] = np.ascontiguousarray(array)

    def shape(self):
        return tuple(self.number(1, 4) for _ in range(self.number(1, 3)))

    def split(self):
        """A tensor in parts: along one axis, and some of the parts along others."""
        name, array = self.new(self.shape())
        waiting = [[(0, length) for length in array.shape]]
        for _ in range(self.number(0, 3)):
            box = waiting.pop(self.number(0, len(waiting) - 1))
            axis = self.number(0, len(box) - 1)
            start, stop = box[axis]
            at = self.number(start, stop)
            if at in (start, stop):
                waiting.append(box)
                continue
            parts = (start, at), (at, stop)
            waiting += [[*box[:axis], part, *box[axis + 1 :]] for part in parts]
        for box in waiting:
            text = ", ".join(f"{start}:{stop}" for start, stop in box)
            taken = array[tuple(slice(*each) for each in box)]
            self.makes(f'"{name}[{text}]"', taken)
            if self.number(0, 4) == 0:
                self.makes(f'"{name}[{text}] : ... -> ..."', taken)

    def steps(self):
        """Every n-th row, and sometimes all of it a second time."""
        count = self.number(2, 3)
        name, array = self.new((count * self.number(1, 3), *self.shape()))
        for first in range(count):
            self.makes(f'"{name}[{first}::{count}]"', array[first::count])
        if self.number(0, 2) == 0:
            self.makes(f'"{name}"', array)

    def joined(self, shape=None, depth=0):
        """An expression of a shape, and what it is."""
        shape = shape or self.shape()
        axis = self.number(0, len(shape) - 1)
        kind = self.number(0, 3) if depth < 3 else 0
        if kind == 1 and shape[axis] > 1:
            at = self.number(1, shape[axis] - 1)
            parts = [
                self.joined((*shape[:axis], length, *shape[axis + 1 :]), depth + 1)
                for length in (at, shape[axis] - at)
            ]
            array = np.concatenate([each for _, each in parts], axis)
            verb = "concat"
        elif kind == 2 and len(shape) > 1:
            parts = [
                self.joined((*shape[:axis], *shape[axis + 1 :]), depth + 1)
                for _ in range(shape[axis])
            ]
            array = np.stack([each for _, each in parts], axis)
            verb = "stack"
        else:
            name, array = self.new(shape)
            flipped = self.number(0, 2) == 0
            letters = "pqr"[: len(shape)]
            if not flipped:
                return f'"{name}"', array
            right = " ".join(f"{each}~" for each in letters)
            return f'"{name} : {" ".join(letters)} -> {right}"', np.flip(array)
        texts = ", ".join(text for text, _ in parts)
        axis -= len(shape) if self.number(0, 1) else 0
        return f"{{ {verb} = [{texts}], axis = {axis} }}", array

    def several(self):
        """What is joined of several, here and there with a pattern outside."""
        text, array = self.joined()
        if text[0] == "{" and self.number(0, 2) == 0:
            letters = "pqr"[: array.ndim]
            pattern = f"{' '.join(letters)} -> ({' '.join(reversed(letters))})"
            text = f'{text[:-2]}, pattern = "{pattern}" }}'
            array = array.transpose().reshape(-1)
        self.makes(text, array)

    def rearranged(self):
        """A pattern with parts of axes, some repeated."""
        sizes = [self.number(1, 3) for _ in range(self.number(1, 4))]
        names = [f"n{len(self.dims) + place}" for place in range(len(sizes))]
        self.dims |= dict(zip(names, sizes, strict=True))
        cut = self.number(0, len(sizes))
        shape = [int(np.prod(sizes[:cut])), int(np.prod(sizes[cut:]))]
        name, array = self.new(tuple(shape))
        order = self.draw(st.permutations(range(len(sizes))))
        turned = array.reshape(sizes).transpose(order)
        right = " ".join(names[at] for at in order)
        left = f"({' '.join(names[:cut])}) ({' '.join(names[cut:])})"
        times = self.number(1, 3)
        if times > 1:
            turned = np.broadcast_to(turned, (times, *turned.shape))
            right = f"{times} {right}"
        self.makes(f'"{name} : {left} -> ({right})"', turned.reshape(-1))


@st.composite
def tables(draw):
    drawn = Drawn(draw)
    kinds = [drawn.split, drawn.steps, drawn.several, drawn.rearranged]
    for _ in range(draw(st.integers(1, 4))):
        draw(st.sampled_from(kinds))()
    dims = "\n".join(f"{name} = {size}" for name, size in drawn.dims.items())
    return f"[dims]\n{dims}\n[map]\n" + "\n".join(drawn.lines), drawn.source, drawn.made


@given(tables())
def test_any_table_and_back(case):
    text, source, made = case
    one = table(text)
    assert_made(one.apply(source), made)
    back = one.inverse(source)
    assert back == ferry.WeightMap.parse(str(back))
    assert_again(back.apply(made), source)
    try:
        alone = one.inverse()
        found = alone.apply(made)
    except (ferry.FormatLimitError, ferry.TreeError):
        return  # without shapes, it may be told no length
    assert_again(found, source)


@given(tables())
def test_an_inverse_of_an_inverse(case):
    text, source, made = case
    back = table(text).inverse(source)
    again = back.inverse(made)
    assert_again(again.apply(source), made)


# -- what has none ---------------------------------------------------------------------------------

NONE = {
    '"y" = { add = 1, of = "a" }': "y cannot be inverted: add goes one way only",
    '"y" = { scale = 2, of = "a" }': "y cannot be inverted: scale goes one way only",
    '"y" = { cast = "uint8", of = "a" }': "y cannot be inverted: cast",
    '"y" = { cast = "uint8", from = "uint16", of = "a" }': "loses values of uint16",
    '"y" = { reason = "arithmetic" }': "it is not known what it is (arithmetic)",
    'drop = ["b"]\n[map]\n"y" = "a"': "b is dropped",
    'drop = ["a[2:]"]\n[map]\n"y" = "a[:2]"': "is dropped",
}


@pytest.mark.parametrize("text", NONE)
def test_what_is_lost_has_no_inverse_and_is_named(text):
    one = table(text)
    source = {"a": A, "b": B} if '"b"' in text else {"a": A}
    for shapes in (None, source):
        with pytest.raises(
            ferry.ConversionError, match=re.escape(NONE[text].split(":")[0])
        ) as raised:
            one.inverse(shapes)
    assert "inverse(source)" not in (raised.value.hint or "")


def test_several_that_have_none_are_all_named():
    with pytest.raises(ferry.TreeError) as raised:
        table("\n".join(f'"y{at}" = {{ add = 1, of = "a{at}" }}' for at in range(3))).inverse()
    assert [str(each)[:2] for each in raised.value.exceptions] == ["y0", "y1", "y2"]


@pytest.mark.parametrize("name", ASKED)
def test_a_source_that_would_help_is_asked_for(name):
    text, source = BY_SHAPES[name]
    with pytest.raises(ferry.FormatLimitError) as raised:
        table(text).inverse()
    assert raised.value.hint == "inverse(source), with what the table is applied to"
    assert table(text).inverse(source).complete


def test_a_source_that_does_not_fit_is_refused():
    with pytest.raises(ferry.TreeError, match="does not fit at 2 places") as raised:
        table('"y" = { concat = ["a", "b"], axis = -1 }').inverse({"b": A})
    assert "the source has no a" in str(raised.value.exceptions[0])
    with pytest.raises(ferry.FormatLimitError, match="c: is in no tensor of the target"):
        table('"y" = "a"').inverse({"a": A, "c": C})


def test_copies_that_differ_are_said():
    one = table('"y" = "a"\n"z" = { concat = ["a[:1]", "b"], axis = 0 }\n"w" = "a[1:]"')
    source = {"a": A, "b": B}
    made = one.apply(source)
    back = one.inverse(source)
    assert_again(back.apply(made), source)
    for name, place in (("z", (0, 3)), ("w", (1, 2)), ("y", (0, 0))):
        changed = {each: array.copy() for each, array in made.items()}
        changed[name][place] += 1
        with pytest.raises(ferry.VerificationError, match="a is made of y and"):
            back.apply(changed)


def test_copies_inside_of_what_is_joined_are_compared():
    one = table('"y" = { concat = [{ same = ["a", "b"] }, "c"], axis = 0, pattern = "p q -> q p" }')
    source = {"a": A, "b": A.copy(), "c": B}
    assert np.array_equal(one.apply(source)["y"], np.concatenate([A, B]).T)
    source["b"][3, 5] += 1
    with pytest.raises(ferry.VerificationError, match="a and"):
        one.apply(source)


# -- whole models and files ------------------------------------------------------------------------


def test_a_whole_model_and_back():
    text = LLAMA.replace('drop = ["*.inv_freq"]', "")
    source, _ = llama()
    source = {name: each for name, each in source.items() if not name.endswith("inv_freq")}
    one = table(text)
    made = one.apply(source, config=CONFIG)
    back = one.inverse(source, config=CONFIG)
    assert len(back.rules) == len(one.rules) + 1
    assert '"model.layers.{i}.mlp.gate" = "layers.{i}.mlp.w13[:gate_length]"' in str(back)
    assert back.dims["gate_length"] == (10,)
    assert back.dims["h"] == ("num_attention_heads", 4)
    assert_again(back.apply(made), source)
    alone = one.inverse()
    assert_again(alone.apply(made, config=CONFIG, dims={"gate_length": 10}), source)


TO_FILES = """
"y" = { concat = ["a", "b"], axis = 0 }
"z" = "c : a b d -> d (b a)"
"w.{i}" = { view = "uint64", from = "uint16", of = "l.{i} : a (b 4) -> b (a 4)" }
"t" = "e"
"u" = "e : p q -> q p"
"""


@pytest.mark.parametrize("suffix", ["safetensors", "npz", "pt"])
def test_files_there_and_back(suffix, tmp_path):
    """The same bits, by both roads: a table made by the file, and one by the command."""
    first, second, third = [tmp_path / f"{name}.{suffix}" for name in "abc"]
    source = {"a": A, "b": B, "c": C, "e": words(9, 2)}
    source |= {f"l.{i}": words(3, 8) for i in range(2)}
    one = table(TO_FILES)
    ferry.save(source, first)
    ferry.convert_files(first, second, map=one, verify=True)
    ferry.convert_files(second, third, map=one.inverse(first), verify=True)
    assert_again(ferry.load(third, "numpy"), source)
