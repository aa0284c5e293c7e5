"""What each form of a table makes is what NumPy makes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.maps.support import CONFIG, LLAMA, assert_made, kinds, llama, table

import tensorferry as ferry

A = np.arange(24, dtype="int32").reshape(4, 6)
B = np.arange(100, 124, dtype="int32").reshape(4, 6)
C = np.arange(210, dtype="int16").reshape(5, 6, 7)

FORMS = {
    '"y" = "a"': A,
    '"y" = "a : a b -> b a"': A.T,
    '"y" = "a : a b -> b~ a"': A.T[::-1],
    '"y" = "a : (a 2) b -> (2 a) b"': A.reshape(2, 2, 6).transpose(1, 0, 2).reshape(4, 6),
    '"y" = "a : a (b 3) -> a b 3"': A.reshape(4, 2, 3),
    '"y" = "a : a b -> (a b)"': A.reshape(-1),
    '"y" = "a : a b -> a 1 b 1"': A[:, None, :, None],
    '"y" = "a : a b -> (a 3) b"': np.repeat(A, 3, 0),
    '"y" = "a : a b -> (3 a) b"': np.tile(A, (3, 1)),
    '"y" = "c : a ... -> ... a"': np.moveaxis(C, 0, -1),
    '"y" = "c : a (b 2) ... -> (2 a) b ..."': C.reshape(5, 3, 2, 7)
    .transpose(2, 0, 1, 3)
    .reshape(10, 3, 7),
    '"y" = "a[1:3]"': A[1:3],
    '"y" = "a[:, 1::2]"': A[:, 1::2],
    '"y" = "a[-1:, :-2]"': A[-1:, :-2],
    '"y" = "a[2]"': A[2],
    '"y" = "a[:, -1]"': A[:, -1],
    '"y" = "c[1:4, 2, 1:7:3] : a b -> b a"': C[1:4, 2, 1:7:3].T,
    '"y" = { concat = ["a", "b"], axis = 0 }': np.concatenate([A, B]),
    '"y" = { concat = ["a", "b", "a"], axis = 1 }': np.concatenate([A, B, A], 1),
    '"y" = { concat = ["a[1:]", "b : a b -> a~ b"], axis = -2 }': np.concatenate([A[1:], B[::-1]]),
    '"y" = { stack = ["a", "b"], axis = 0 }': np.stack([A, B]),
    '"y" = { stack = ["a", "b"], axis = -1 }': np.stack([A, B], -1),
    '"y" = { stack = ["a", "b"], axis = 1, pattern = "a two b -> (a two) b" }': np.stack(
        [A, B], 1
    ).reshape(8, 6),
    '"y" = { concat = ["a", "b"], axis = 0, pattern = "(2 a) b -> b (a 2)" }': np.concatenate(
        [A, B]
    )
    .reshape(2, 4, 6)
    .transpose(2, 1, 0)
    .reshape(6, 8),
    '"y" = { cast = "float16", of = "a" }': A.astype("float16"),
    '"y" = { add = 5, of = "a" }': A + np.int32(5),
    '"y" = { scale = -3, of = "a" }': A * np.int32(-3),
    '"y" = { scale = 0.5, of = { cast = "float32", of = "a" } }': A.astype("float32")
    * np.float32(0.5),
    '"y" = { view = "uint8", of = "a" }': A.view("uint8"),
    '"y" = { view = "float64", of = "a : a b -> b a" }': A.T.copy().view("float64"),
    '"y" = { view = "float32", from = "int32", of = "a[1:]" }': A[1:].view("float32"),
    '"y" = { view = "bfloat16", of = { concat = ["a", "b"], axis = 0 } }': np.concatenate(
        [A, B]
    ).view(ml_dtypes.bfloat16),
    '"y" = { view = "uint16", of = { cast = "float16", of = "a" } }': A.astype("float16").view(
        "uint16"
    ),
    '"y" = { cast = "int64", of = { view = "int16", of = "a" } }': A.view("int16").astype("int64"),
    '"y" = { same = ["a", "a"] }': A,
    '"y" = { fill = 1.5, shape = [2, 3], dtype = "bfloat16" }': np.full(
        (2, 3), 1.5, ml_dtypes.bfloat16
    ),
    '"y" = { fill = -1, shape = [], dtype = "int8" }': np.array(-1, "int8"),
    '"y" = { moves = [["a", [4, 6], [0, 6, 1], [0, 6, 1]]], shape = [4, 6] }': A,
    '"y" = { moves = [["a", [6], [0, 1], [23, -1]], ["b", [2], [6, 1], [3, 6]]], shape = [8] }': np.concatenate(
        [A.reshape(-1)[23:17:-1], B.reshape(-1)[[3, 9]]]
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_form_makes_what_numpy_makes(form):
    made = table(f'drop = ["*"]\n[map]\n{form}').apply({"a": A, "b": B, "c": C})
    assert_made(made, {"y": np.asarray(FORMS[form], order="C")})


@pytest.mark.parametrize("form", FORMS)
def test_a_table_is_read_as_it_is_written(form):
    one = table(form)
    again = ferry.WeightMap.parse(str(one))
    assert again == one
    assert again.rules == one.rules
    assert str(again) == str(one)


def test_a_whole_model():
    source, expected = llama()
    found = table(LLAMA)
    assert found.check(source, config=CONFIG) == []
    assert found.check(source, expected, config=CONFIG) == []
    made = found.apply(source, config=CONFIG)
    assert made.keys() == expected.keys()
    assert_made(made, {name: expected[name] for name in made})


def test_experts_are_stacked_by_their_numbers():
    """Not by the order of their names, in which 10 comes before 2."""
    experts = {
        f"layers.{i}.experts.{e}.w": np.full((2, 3), 100 * i + e) for i in (0, 1) for e in range(12)
    }
    shuffled = dict(sorted(experts.items(), reverse=True))
    made = table(
        '"l.{i}.w" = { stack = "e", of = "layers.{i}.experts.{e}.w : a b -> b a", axis = 0 }'
    ).apply(shuffled)
    for i in (0, 1):
        expected = np.stack([experts[f"layers.{i}.experts.{e}.w"].T for e in range(12)])
        assert np.array_equal(made[f"l.{i}.w"], expected)


def test_a_number_in_a_name_can_be_a_formula():
    source = {f"input.{n}.w": np.array([n]) for n in (1, 2, 4, 5, 7, 8)}
    made = table('"down.{i}.{j}.w" = "input.{3*i+j+1}.w"').apply(source)
    expected = {(0, 0): 1, (0, 1): 2, (1, 0): 4, (1, 1): 5, (2, 0): 7, (2, 1): 8}
    assert {name: int(x[0]) for name, x in made.items()} == {
        f"down.{i}.{j}.w": n for (i, j), n in expected.items()
    }


def test_a_number_can_be_a_position():
    made = table('"experts.{e}.w" = "all[e] : a b -> b a"').apply({"all": C})
    assert_made(made, {f"experts.{e}.w": np.ascontiguousarray(C[e].T) for e in range(5)})


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_rounding_is_that_of_the_dtype(dtype):
    """The number takes the dtype, and the result is rounded once, as NumPy does."""
    x = np.linspace(-3, 300, 1000).astype(dtype)
    for number in (1, -1, 0.3, 1e-3):
        scalar = np.array(number, dtype)
        made = table(f'"y" = {{ add = {number}, of = "x" }}').apply({"x": x})["y"]
        assert made.tobytes() == (x + scalar).astype(dtype).tobytes()
        made = table(f'"y" = {{ scale = {number}, of = "x" }}').apply({"x": x})["y"]
        assert made.tobytes() == (x * scalar).astype(dtype).tobytes()


def test_nan_payloads_and_signs_are_moved_as_they_are():
    bits = np.array([0x7FC1, 0xFFA5, 0x8000, 0x7F80, 0x0001, 0x7F81], "uint16")
    made = table('"y" = "x : (a 2) -> (2 a)"').apply({"x": bits.view(ml_dtypes.bfloat16)})["y"]
    assert made.view("uint16").tolist() == bits.reshape(3, 2).T.reshape(-1).tolist()


@st.composite
def rearrangements(draw):
    """A pattern, the shape that it takes, and what it makes, by plain NumPy."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    order = draw(st.permutations(range(len(sizes))))
    flips = [draw(st.booleans()) for _ in sizes]
    names = [f"n{place}" for place in range(len(sizes))]

    def groups(places):
        found, at = [], 0
        while at < len(places):
            count = draw(st.integers(1, 3))
            found.append(places[at : at + count])
            at += count
        return found

    left, right = groups([*range(len(sizes))]), groups(order)

    def text(axes, marks):
        words = [" ".join(f"{names[at]}{marks[at]}" for at in axis) for axis in axes]
        return " ".join(f"({word})" for word in words)

    marks = ["~" if flip else "" for flip in flips]
    pattern = f"{text(left, [''] * len(sizes))} -> {text(right, marks)}"
    shape = tuple(int(np.prod([sizes[at] for at in axis])) for axis in left)
    x = np.arange(int(np.prod(sizes))).reshape(shape)
    turned = np.flip(x.reshape(sizes), [at for at, flip in enumerate(flips) if flip]).transpose(
        order
    )
    made = turned.reshape([int(np.prod([sizes[at] for at in axis])) for axis in right])
    return pattern, dict(zip(names, sizes, strict=True)), x, np.ascontiguousarray(made)


@given(rearrangements())
def test_any_pattern(case):
    pattern, sizes, x, made = case
    dims = "\n".join(f"{name} = {size}" for name, size in sizes.items())
    found = table(f'[dims]\n{dims}\n[map]\n"y" = "x : {pattern}"')
    assert kinds(found.check({"x": x})) == []
    assert_made(found.apply({"x": x}), {"y": made})
    back = found.inverse()
    assert_made(back.apply({"y": made}), {"x": x})


@given(rearrangements(), rearrangements())
def test_a_pattern_of_what_is_joined(one, other):
    """A pattern on moves that are there already, which must not follow the axes of it."""
    _, _, x, _ = one
    y = np.arange(1000, 1000 + x.size).reshape(x.shape)
    joined = np.concatenate([x, y])
    _, sizes, like, _ = other
    if joined.size % like.size:
        return
    names = " ".join(sizes)
    rest = joined.size // like.size
    lengths = [*sizes.values()]
    dims = "\n".join(f"{name} = {size}" for name, size in sizes.items())
    found = table(
        f'[dims]\n{dims}\n[map]\n"y" = {{ concat = ["x : ... -> ...", "y"], axis = 0, '
        f'pattern = "{_axes(joined.shape)} -> {_axes(joined.shape)}" }}'
    )
    assert_made(found.apply({"x": x, "y": y}), {"y": joined})
    flat = (
        table(f'[dims]\n{dims}\n[map]\n"z" = {{ concat = ["x", "y"], axis = 0 }}')
        .apply({"x": x, "y": y})["z"]
        .reshape(-1)
    )
    again = table(f'[dims]\n{dims}\n[map]\n"y" = "z : ({names} rest) -> (rest {names})"')
    expected = np.moveaxis(flat.reshape(*lengths, rest), -1, 0).reshape(-1)
    assert np.array_equal(again.apply({"z": flat})["y"], expected)


def _axes(shape):
    return " ".join(f"m{place}" for place in range(len(shape)))
