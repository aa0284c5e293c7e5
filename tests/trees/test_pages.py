"""Plans of trees and batches as HTML: one picture of all memories in one scale, and as many rows as can be read."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import numpy as np

import tensorferry as ferry
from tensorferry.trees.plans import TreePlan

SVG = "{http://www.w3.org/2000/svg}"


def parsed(plan):
    return ET.fromstring(plan._repr_html_().replace("&rarr;", "to"))  # noqa: S314 - made here


def wide(root):
    """The texts of the first picture, which is the one for a screen."""
    return [text.text for text in next(root.iter(f"{SVG}svg")).iter(f"{SVG}text")]


def bars(root):
    """How wide each memory is drawn."""
    return [float(row.get("width")) for row in next(root.iter(f"{SVG}svg")).iter(f"{SVG}rect")]


def rows(root):
    return [["".join(cell.itertext()) for cell in row.iter("td")] for row in root.iter("tr")][1:]


def test_leaves_that_are_one_memory_are_drawn_as_one():
    """A tied weight has one strip with both names; the others have one each, all in one scale."""
    weight = np.zeros((64, 32), np.float32)
    tree = {"a": weight, "b": {"c": np.zeros(1024, np.float32)}, "tied": weight}
    plan = ferry.explain_tree(tree, "torch")
    root = parsed(plan)
    assert bars(root) == [640, 320]
    texts = wide(root)
    assert texts[:4] == [
        "Each block is 128 B.",
        '$["a"]',
        '$["tied"]: the same memory',
        "source and result, 8 KiB on cpu",
    ]
    assert len(rows(root)) == 3
    assert rows(root)[2][2] == 'the same as $["a"]'
    assert "2 of 2 memories are shared" in next(root.iter(f"{SVG}desc")).text


def test_a_copy_has_two_strips_and_its_way():
    """Source above result, and the bytes that are copied between them; views are said to be copied together."""
    whole = np.zeros(1000, np.float32)
    root = parsed(
        ferry.explain_tree({"head": whole[:600], "tail": whole[400:]}, "numpy", copy=True)
    )
    texts = wide(root)
    assert len(bars(root)) == 4
    assert "3.91 KiB, as one memory with the views that overlap it" in texts
    assert 'copied as one memory with $["head"]' in texts


def test_every_second_element_fills_half_of_each_block():
    """What is touched is drawn here too, and Python numbers are none of it."""
    root = parsed(
        ferry.explain_tree(
            {"x": np.zeros(4096, np.float32)[::2], "y": np.zeros(0), "z": 1.0}, "numpy"
        )
    )
    path = next(
        each
        for each in next(root.iter(f"{SVG}svg")).iter(f"{SVG}path")
        if each.get("class") == "shared"
    )
    assert {part.split("h")[0].split("v")[1] for part in path.get("d").split("M")[1:]} == {"-5"}
    assert "no elements" in wide(root)


def test_a_batch_is_drawn_from_its_samples():
    """Samples lie apart, the batch is one block; numbers are objects."""
    samples = [{"x": np.zeros(20, np.float32), "y": each, "name": "a"} for each in range(8)]
    root = parsed(ferry.explain_collate(samples, "torch"))
    texts = wide(root)
    assert "8 tensors, each in memory of its own" in texts
    assert "8 Python objects" in texts
    assert [row[2] for row in rows(root)] == [
        "copies 640 B: 8 samples stacked",
        "copies 64 B: 8 samples stacked",
    ]


def test_a_page_is_short_however_many_leaves_there_are():
    """Of 300,000 leaves and as many that are kept, what can be read, and how many the others are."""
    plan = ferry.explain_tree([np.zeros(3), "text"], "torch")
    leaf, kept = plan.leaves[0], plan.kept[0]
    leaves = tuple(leaf._replace(path=f"$[{index}]") for index in range(300_000))
    large = TreePlan(leaves, (kept,) * 300_000, ())
    text = large._repr_html_()
    assert len(text) < 60_000
    assert "299,950 more leaves" in text
    assert "299,988 more memories" in text
    assert len(rows(parsed(large))) == 50


def test_an_empty_tree_is_a_page():
    """No leaf, no picture."""
    root = parsed(ferry.explain_tree([], "numpy"))
    assert not list(root.iter(f"{SVG}svg"))
    assert "0 leaves" in "".join(root.itertext())
