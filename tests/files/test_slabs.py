"""Boxes cover an array once, in order, and pieces of blocks are the values that went in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorferry.files.encodings.array_parts import filled, is_bomb, slabs
from tensorferry.files.encodings.paths import paths_for, walked

lengths = st.lists(st.integers(0, 6), max_size=4)


@given(shape=lengths, chunk=st.integers(1, 7), nbytes=st.integers(1, 200), chunked=st.booleans())
def test_slabs_are_the_array_in_order(shape, chunk, nbytes, chunked):
    """Box after box, an array's values come once each, in row-major order, and no box is larger than allowed."""
    array = np.arange(int(np.prod(shape))).reshape(shape)
    chunks = [chunk] * len(shape) if chunked and shape else None
    parts = [array[box] for box in slabs(shape, 8, chunks, nbytes)]
    assert np.concatenate(
        [part.reshape(-1) for part in parts] or [array.reshape(-1)]
    ).tolist() == list(range(array.size))
    most = max(nbytes, 8 * chunk ** len(shape) if chunks else 0, 8)
    assert all(part.nbytes <= most for part in parts)


@given(blocks=st.lists(st.integers(1, 9), max_size=8), data=st.data())
def test_pieces_are_the_blocks(blocks, data):
    """However blocks are cut anew, and their memory reused, the pieces hold the same values in the same order."""
    total = sum(blocks)
    sizes = []
    while sum(sizes) < total:
        sizes.append(data.draw(st.integers(1, total - sum(sizes))))
    buffer = np.empty(9, "i4")

    def reused():
        start = 0
        for count in blocks:
            buffer[:count] = np.arange(start, start + count)
            yield buffer[:count]
            start += count

    pieces = [piece.tolist() for piece in filled(reused(), sizes, np.dtype("i4"))]
    assert [len(piece) for piece in pieces] == sizes
    assert [value for piece in pieces for value in piece] == list(range(total))


@given(names=st.lists(st.text("ab/", max_size=5), max_size=8, unique=True))
def test_paths_do_not_lie_in_each_other(names):
    """Every name has a path of its own, and none of them leads through another."""
    paths = list(paths_for(names, lambda name: all(name.split("/"))).values())
    assert len(set(paths)) == len(names)
    above = {path[:at] for path in paths for at, letter in enumerate(path) if letter == "/"}
    assert not above & set(paths)
    assert sorted(walked(paths)) == sorted(paths)


@pytest.mark.parametrize(
    ("declared", "held", "bomb"),
    [(1 << 20, 1, False), (1 << 40, 1 << 30, False), (1 << 40, 1 << 20, True)],
)
def test_bombs(declared, held, bomb):
    """Small files may declare what they like up to 64 MiB, larger ones what deflate could have packed."""
    assert is_bomb(declared, held) is bomb
