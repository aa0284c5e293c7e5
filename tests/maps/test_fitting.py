"""From where each element comes from to an expression: whatever NumPy can rearrange, and what that is called."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.maps.test_tracing import carried_out
from tests.support import examples

from tensorferry.maps.fitting import NotFittedError, fit, fitted
from tensorferry.maps.generalizing import Output, exact_rule
from tensorferry.maps.language import read_table, written_table
from tensorferry.maps.lowering import Header
from tensorferry.maps.table import Table

SHAPES = {"q": (32, 6), "k": (16, 6), "v": (16, 6), "w": (96, 6), "b": (24,), "x": (4, 6, 8)}
SHAPES |= {"one": (1, 6), "square": (6, 6)}


def numbered():
    """Arrays in which each element has its own number, counted through."""
    found, start = {}, 0
    for name, shape in SHAPES.items():
        found[name] = np.arange(start, start + prod(shape)).reshape(shape)
        start += prod(shape)
    return found


ARRAYS = numbered()
Q, K, V, W, B, X, ONE, SQUARE = ARRAYS.values()


def made_of(index):
    """What the table of a fit makes of the numbered arrays, by NumPy alone."""
    form = fitted(index.reshape(-1), index.shape, SHAPES)
    output = Output("t", Header(index.shape, "int64"), form, None, (-1, -2), "int64")
    rule, dims = exact_rule(output)
    table = Table((rule,), (), dims)
    text = written_table(table)
    assert written_table(read_table(text)) == text
    return carried_out(table, ARRAYS)["t"]


def rope(each, heads):
    rows, width = each.shape
    return each.reshape(heads, 2, rows // heads // 2, width).swapaxes(1, 2).reshape(rows, width)


SAID = {
    "q": Q,
    "q : a b -> b a": Q.T,
    "q : a b -> a~ b": Q[::-1],
    "b : a -> a~": B[::-1],
    "w[5:40]": W[5:40],
    "w[1::3]": W[1::3],
    "w[:, 2:4]": W[:, 2:4],
    "x[2]": X[2],
    "x[:, 1]": X[:, 1],
    "q[3, 2]": Q[3, 2],
    "x : a b c -> (a b c)": X.reshape(-1),
    "b : (a 12) -> a 12": B.reshape(2, 12),
    "q : (a 2 4) b -> (a 4 2) b": rope(Q, 4),
    "w : (a 24[:8]) b -> (a 8) b": W.reshape(4, 3, 8, 6)[:, 0].reshape(32, 6),
    "w : (a 24[16:]) b -> b (a 8~)": W.reshape(4, 3, 8, 6)[:, 2, ::-1].reshape(32, 6).T,
    "k : a b -> (a 3) b": np.repeat(K, 3, 0),
    "k : a b -> (2 a) b": np.tile(K, (2, 1)),
    "b : a -> 3 a": np.broadcast_to(B, (3, 24)),
    "q : a b -> 1 a b": Q[None],
    "x : a b c -> c (a b)": X.transpose(2, 0, 1).reshape(8, 24),
}


@pytest.mark.parametrize("text", SAID)
def test_one_source_is_a_reference(text):
    """With slices and a pattern, as somebody would write it."""
    index = np.asarray(SAID[text])
    assert str(fit(index.reshape(-1), index.shape, SHAPES)) == text
    np.testing.assert_array_equal(made_of(index), index)


JOINED = {
    "concatenated": np.concatenate([Q, K, V]),
    "and turned": np.concatenate([Q, K, V]).T,
    "halves that are swapped": np.concatenate([W[48:], W[:48]]),
    "in the middle": np.concatenate([X[:, 3:], X[:, :3]], 1),
    "stacked": np.stack([K, V], 1),
    "interleaved": np.stack([K, V], 1).reshape(32, 6),
    "by head": np.stack([K.reshape(2, 8, 6), V.reshape(2, 8, 6)], 1).reshape(-1, 6),
    "by group": np.concatenate(
        [Q.reshape(2, 16, 6), K.reshape(2, 8, 6), V.reshape(2, 8, 6)], 1
    ).reshape(-1, 6),
    "with rope": np.concatenate([rope(Q, 4), rope(K, 2), V]),
    "filled below": np.concatenate([Q, np.full((4, 6), -1)]),
    "filled around": np.pad(Q, 2, constant_values=-2),
    "of blocks": np.block([[Q[:8], np.full((8, 6), -1)], [np.full((8, 6), -2), K[:8]]]),
    "one row and more": np.concatenate([ONE, Q]),
    "picked": W[[3, 1, 7, 20]],
    "shuffled": np.random.default_rng(0).permutation(B),
    "a diagonal": SQUARE[np.arange(6), np.arange(6)],
    "windows": np.lib.stride_tricks.sliding_window_view(B, 4),
    "equal lengths": W[:64].reshape(4, 4, 4, 6).transpose(2, 1, 0, 3).reshape(64, 6),
    "nothing": np.zeros((0, 3), np.int64),
}


@pytest.mark.parametrize("name", JOINED)
def test_several_pieces_are_joined(name):
    """Each element is where NumPy put it."""
    np.testing.assert_array_equal(made_of(JOINED[name]), JOINED[name])


def test_swapped_halves_are_joined_and_not_reversed():
    """Pieces along an axis come before what is so by accident."""
    index = JOINED["halves that are swapped"]
    text = written_table(Table((exact_rule(output_of(index))[0],)))
    assert '{ concat = ["w[48:]", "w[:48]"], axis = 0 }' in text


def output_of(index):
    form = fitted(index.reshape(-1), index.shape, SHAPES)
    return Output("t", Header(index.shape, "int64"), form, None, (), "int64")


def test_what_has_no_order_is_refused():
    """Rather than a table of a move for each element."""
    shapes = {"w": (200, 200)}
    index = np.random.default_rng(0).permutation(40_000)
    with pytest.raises(NotFittedError):
        fitted(index, (200, 200), shapes)


def test_one_element_elsewhere_is_seen():
    """Also if it is one of many."""
    index = np.arange(9_000_000)
    index[4_567_890] = 7
    shapes = {"w": (3000, 3000)}
    form = fitted(index, (3000, 3000), shapes)
    output = Output("t", Header((3000, 3000), "int64"), form, None, (), "int64")
    ours = carried_out(
        Table((exact_rule(output)[0],)), {"w": np.arange(9_000_000).reshape(3000, 3000)}
    )
    np.testing.assert_array_equal(ours["t"].reshape(-1), index)


@st.composite
def rearranged(draw):
    """Arrays that a few calls of NumPy make of the numbered ones."""
    made = [draw(st.sampled_from([Q, K, V, W, B, X, SQUARE]))]
    for _ in range(draw(st.integers(1, 5))):
        each = made[-1]
        verb = draw(
            st.sampled_from(
                [
                    "turn",
                    "flip",
                    "slice",
                    "step",
                    "join",
                    "pad",
                    "split",
                    "merge",
                    "repeat",
                    "index",
                ]
            )
        )
        made.append(_applied(draw, verb, each))
        if not made[-1].size or made[-1].size > 20_000 or made[-1].ndim > 6:
            made.pop()
    return made[-1]


def _applied(draw, verb, each):
    if not each.ndim:
        return each[None]
    axis = draw(st.integers(0, each.ndim - 1))
    length = each.shape[axis]
    if verb == "turn":
        return each.transpose(draw(st.permutations(range(each.ndim))))
    if verb == "flip":
        return np.flip(each, axis)
    if verb in ("slice", "step"):
        start = draw(st.integers(0, length - 1))
        stop = draw(st.integers(start + 1, length))
        step = draw(st.integers(1, 3)) if verb == "step" else 1
        return each[(*[slice(None)] * axis, slice(start, stop, step))]
    if verb == "index":
        return each[(*[slice(None)] * axis, draw(st.integers(0, length - 1)))]
    if verb == "join":
        other = draw(st.sampled_from([each, np.flip(each, axis), each[..., ::-1]]))
        if draw(st.booleans()):
            return np.concatenate([each, other], axis)
        return np.stack([other, each], axis)
    if verb == "pad":
        widths = [(0, 0)] * each.ndim
        widths[axis] = (draw(st.integers(0, 2)), draw(st.integers(0, 2)))
        return np.pad(each, widths, constant_values=-1)
    if verb == "split":
        divisors = [number for number in range(1, length + 1) if not length % number]
        outer = draw(st.sampled_from(divisors))
        return each.reshape(*each.shape[:axis], outer, -1, *each.shape[axis + 1 :])
    if verb == "merge":
        if axis + 1 >= each.ndim:
            return each
        return each.reshape(*each.shape[:axis], -1, *each.shape[axis + 2 :])
    return np.repeat(each, draw(st.integers(1, 3)), axis)


@given(rearranged())
@settings(max_examples=examples(600))
def test_whatever_numpy_rearranges_is_fitted_exactly(index):
    """Or refused, but never another element."""
    try:
        ours = made_of(index)
    except NotFittedError:
        return
    np.testing.assert_array_equal(ours, index)
