"""`load(lazy=True)`: a mapping over a map of the file; what copies it gets values, and a reference has none."""

from __future__ import annotations

import copy
import gc
import io
import multiprocessing
import pickle
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.support import address, survives

import tensorferry as ferry


def is_mapped(tensor, path):
    """Whether the system has mapped a file where a tensor is."""
    place = address(tensor)
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        begin, end = (int(each, 16) for each in line.split()[0].split("-"))
        if begin <= place < end:
            return line.endswith(str(path))
    return False


def again(raw):
    return pickle.loads(raw)  # noqa: S301 - made here


@pytest.fixture
def checkpoint(tmp_path):
    """A file of torch.save with ties, lists and values."""
    weight = torch.arange(1 << 12, dtype=torch.float32)
    tree = {"model": {"w": weight, "tied": weight}, "l": [torch.ones(2), 3, "x"], "n": 7}
    torch.save(tree, tmp_path / "a.pt")
    return tmp_path / "a.pt", tree


def through_torch(tree):
    """What torch.load gives of what torch.save wrote, in its safe mode."""
    file = io.BytesIO()
    torch.save(tree, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


COPIERS = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda tree: again(pickle.dumps(tree)),
    "an old pickle": lambda tree: again(pickle.dumps(tree, 0)),
    "torch.save": through_torch,
}


@pytest.mark.parametrize("name", COPIERS)
def test_what_copies_a_lazy_tree_gets_all_values(name, checkpoint):
    """In plain containers, with memory of their own; of a part, only the part."""
    path, tree = checkpoint
    lazy = ferry.load(path, "torch", lazy=True)
    for got, expected in (
        (COPIERS[name](lazy), tree),
        (COPIERS[name](lazy["model"]), tree["model"]),
    ):
        assert isinstance(got, dict)
        assert list(got) == list(expected)
        part = got.get("model", got)
        assert isinstance(part, dict)
        assert torch.equal(part["w"], tree["model"]["w"])
        assert part["w"].data_ptr() == part["tied"].data_ptr()
        assert not is_mapped(part["w"], path)
    assert COPIERS[name](lazy)["l"][1:] == [3, "x"]
    assert COPIERS[name](lazy)["n"] == 7


def test_tensors_of_a_lazy_tree_are_saved_with_their_values(checkpoint, tmp_path):
    """By torch.save, and by pickle with NumPy's arrays, though they are over a map."""
    path, tree = checkpoint
    lazy = ferry.load(path, "torch", lazy=True)
    assert is_mapped(lazy["model"]["w"], path)
    torch.save({"w": lazy["model"]["w"]}, tmp_path / "b.pt")
    assert torch.equal(torch.load(tmp_path / "b.pt")["w"], tree["model"]["w"])
    array = again(pickle.dumps(ferry.load(path, lazy=True)["model"]["w"]))
    assert array.tolist() == tree["model"]["w"].tolist()


def test_a_lazy_tree_can_be_saved_over_its_own_file(checkpoint):
    """torch.save truncates the file first, and the tensors are read before it begins to write them."""
    path, tree = checkpoint
    code = """
import sys, torch, tensorferry as ferry
torch.save(ferry.load(sys.argv[1], "torch", lazy=True).read(), sys.argv[1] + ".whole")
lazy = ferry.load(sys.argv[1], "torch", lazy=True)
import copy
own = copy.copy(lazy)
torch.save(own, sys.argv[1])
"""
    survives(code, str(path))
    for each in (path, f"{path}.whole"):
        assert torch.equal(torch.load(each)["model"]["w"], tree["model"]["w"])


@pytest.mark.parametrize(
    ("tree", "keys"),
    [
        ([np.ones(2), np.zeros(3)], [0, 1]),
        ((np.ones(2), [np.zeros(3), 5]), [0, 1]),
        (np.arange(4.0), ["tensor"]),
        (None, [""]),
    ],
    ids=["list", "tuple", "tensor", "None"],
)
@pytest.mark.parametrize("suffix", [".pt", ".safetensors", ".npz"])
def test_what_is_no_mapping_stands_in_one(tree, keys, suffix, tmp_path):
    """So that a lazy load always gives a LazyTree; `read` gives the thing itself, and so does a pickle."""
    path = tmp_path / f"a{suffix}"
    ferry.save(tree, path)
    lazy = ferry.load(path, lazy=True)
    assert type(lazy) is ferry.LazyTree
    assert list(lazy) == keys
    for got in (lazy.read(), copy.deepcopy(lazy), again(pickle.dumps(lazy)), ferry.load(path)):
        assert type(got) is type(tree)
        np.testing.assert_equal(got, tree)
    if isinstance(tree, np.ndarray):
        assert list(ferry.open(path).tensors) == keys
        assert lazy["tensor"].tolist() == tree.tolist()
    if isinstance(tree, tuple):
        assert lazy[1][0].tolist() == [0.0, 0.0, 0.0]
    assert list(lazy.reference().open()) == keys


def _sum(reference):
    return float(reference.open()["w"].sum())


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".npz"])
def test_a_reference_takes_a_lazy_tree_to_another_process(suffix, tmp_path):
    """Its path goes, with what was asked, not its values; from inside too."""
    path = tmp_path / f"a{suffix}"
    ferry.save({"model": {"w": np.ones(1 << 16, "float32")}, "n": 3, "other": np.ones(4)}, path)
    lazy = ferry.load(path, "torch", dtype="float64", exclude="other", lazy=True)
    raw = pickle.dumps(lazy.reference())
    assert len(raw) < 2000
    found = again(raw).open()
    assert type(found) is ferry.LazyTree
    assert found["model"]["w"].dtype == torch.float64
    assert list(found) == ["model", "n"]
    assert list(copy.deepcopy(lazy["model"].reference()).open()) == ["w"]
    assert repr(lazy["model"].reference()) == f"<LazyReference to {str(path)!r}['model']>"
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_sum, (ferry.load(path, lazy=True)["model"].reference(),)) == 1 << 16


def test_a_reference_notices_that_its_file_has_changed(tmp_path):
    """Rather than to give the values of another file."""
    path = tmp_path / "a.safetensors"
    ferry.save({"w": np.ones(3)}, path)
    raw = pickle.dumps(ferry.load(path, lazy=True).reference())
    assert again(raw).open()["w"].sum() == 3
    ferry.save({"w": np.ones(4)}, path, overwrite=True)
    with pytest.raises(ferry.FileFormatError, match="has changed") as refused:
        again(raw).open()
    assert (
        eval(refused.value.hint.removesuffix(" again"), {"load": ferry.load}).open()["w"].sum() == 4  # noqa: S307
    )


def test_what_is_closed_reads_no_more_and_keeps_what_it_gave(tmp_path):
    """with and close end further reads, inside too; tensors that are held live on."""
    ferry.save(
        {"a": np.arange(1000.0), "in": {"b": np.ones(2)}, "n": 1}, tmp_path / "a.safetensors"
    )
    with ferry.load(tmp_path / "a.safetensors", lazy=True) as lazy:
        held, inner = lazy["a"], lazy["in"]
    for use in (partial(lazy.__getitem__, "a"), partial(inner.__getitem__, "b"), lazy.read):
        with pytest.raises(ValueError, match=r"was closed.*\n\nHint: load\("):
            use()
    assert "float64[1000]" in repr(lazy)
    del lazy, inner
    gc.collect()
    assert held.sum() == 499500.0
    lazy = ferry.load(tmp_path / "a.safetensors", lazy=True)
    lazy.close()
    lazy.close()
    with ferry.open(tmp_path / "a.safetensors") as contents:
        assert list(contents.tensors) == ["a", "in.b"]


def test_copies_of_what_is_left_out_warn_as_read_does(tmp_path):
    """Plain dicts have no ``.skipped``: what is left out is said by one warning, each time."""
    np.savez(tmp_path / "x.npz", weight=np.ones(2), names=np.array(["a", "b"]))
    lazy = ferry.load(tmp_path / "x.npz", lazy=True, strict=False)
    assert list(lazy.skipped) == ["names"]
    for use in (lazy.read, partial(copy.copy, lazy), partial(pickle.dumps, lazy)):
        with pytest.warns(
            UserWarning, match=r"x\.npz also holds what is left out here: names \("
        ) as told:
            use()
        assert len(told) == 1
