"""A picture of moves has, in each cell, the element that NumPy says is there."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from tests.maps.support import table

import tensorferry as ferry

A = np.arange(24).reshape(4, 6)
NUMBERS = {
    '"y" = "a : p q -> q p"': A.T,
    '"y" = "a : (2 n) d -> (n 2) d"': A.reshape(2, 2, 6).swapaxes(0, 1),
    '"y" = "a[1:, ::2]"': A[1:, ::2],
    '"y" = { concat = ["a[2:]", "a : p q -> p q~"], axis = 0 }': np.concatenate(
        [A[2:], A[:, ::-1]]
    ),
}
CELL = "{http://www.w3.org/2000/svg}"


def picture(text, source, **keywords):
    return table(text).explain(source).picture(**keywords)


@pytest.mark.parametrize("text", NUMBERS)
def test_each_cell_has_the_number_of_its_element(text):
    svg = picture(
        text if "a[1:" not in text else f'drop = ["a[:1]", "a[1:, 1::2]"]\n[map]\n{text}', {"a": A}
    )
    expected = " ".join(map(str, NUMBERS[text].reshape(-1)))
    root = ET.fromstring(svg)  # noqa: S314 - our own
    assert expected in root.find(f"{CELL}desc").text
    drawn = [each.text for group in root.iter(f"{CELL}g") for each in group.iter(f"{CELL}text")]
    assert drawn == [*map(str, range(24)), *expected.split()]
    assert len([*root.iter(f"{CELL}rect")]) == len(drawn)


def test_what_is_filled_is_no_element():
    svg = picture(
        '"y" = { concat = ["a", { fill = 7, shape = [1, 6], dtype = "int64" }], axis = 0 }',
        {"a": A},
    )
    assert svg.count("class='none'") == 6


def test_sources_and_parts_have_colours():
    two = picture('"y" = { concat = ["a", "b"], axis = 0 }', {"a": A, "b": A})
    assert two.count("class='shared'") == two.count("class='source'") == 48
    one = picture('"y" = "a : p q -> q p"', {"a": A}, colours=2)
    kinds = re.findall(r"class='(shared|source|result)'", one)
    assert kinds[:24] == ["shared"] * 12 + ["source"] * 12
    assert kinds[24:] == ["shared", "shared", "source", "source"] * 6


def test_a_picture_of_many_elements_is_refused():
    with pytest.raises(ferry.FormatLimitError, match="at most 512 elements"):
        picture('"y" = "a"', {"a": ferry.TensorInfo("numpy", (1 << 20, 1 << 20), "float32")})
