"""H86: what a format, a flag or a call cannot take is refused or listed, never left out in silence."""

from __future__ import annotations

import json
import warnings

import gguf
import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

import tensorferry as ferry
from tensorferry.files.reports.diff import diff


@pytest.fixture
def quantised(tmp_path):
    """A GGUF file with a float tensor and one in blocks of Q8_0 of the other byte order."""
    writer = gguf.GGUFWriter(str(tmp_path / "q.gguf"), "llama", endianess=gguf.GGUFEndian.BIG)
    writer.add_tensor("a", np.ones((2, 32), np.float32))
    kind = gguf.GGMLQuantizationType.Q8_0
    writer.add_tensor("q", gguf.quantize(np.ones((2, 32), np.float32), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tmp_path / "q.gguf"


@pytest.fixture
def odd(tmp_path):
    """A checkpoint with a tensor without values, one of a dtype that nobody else has, and values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch calls it experimental
        held = torch.zeros(2, dtype=torch.complex32)
        value = {
            "q": held,
            "w": torch.ones(2),
            "deep": {"s": unmade(), "n": 3},
            "l": [torch.zeros(1)],
        }
    torch.save(value, tmp_path / "odd.pt")
    return tmp_path / "odd.pt"


def unmade():
    return torch.ones(2, device="meta")


def parameter(**attributes):
    made = torch.nn.Parameter(torch.arange(2.0), requires_grad=False)
    vars(made).update(attributes)
    return made


def test_tensors_only_refuses_a_tensor_that_it_cannot_take(quantised, odd, tmp_path):
    """By name, with the hint that works; nothing is written."""
    for source, names in ((quantised, ["q"]), (odd, ["q", "deep.s"])):
        with pytest.raises(ferry.FormatLimitError, match=", ".join(names)) as refused:
            ferry.convert_files(source, tmp_path / "out.safetensors", tensors_only=True)
        assert refused.value.hint.startswith(f"exclude={json.dumps(names)}")
        assert "tensors_only" not in refused.value.hint
        assert not (tmp_path / "out.safetensors").exists()
        ferry.convert_files(source, tmp_path / "out.safetensors", tensors_only=True, exclude=names)
        (tmp_path / "out.safetensors").unlink()


def test_tensors_only_keeps_a_parameter_and_lists_its_attribute(tmp_path):
    """The tensor arrives, in every wrapping; what was left out stands in the report."""
    torch.save({"p": parameter(tag="mine"), "b": torch.zeros(1), "step": 3}, tmp_path / "in.pt")
    with pytest.raises(ferry.FormatLimitError, match="p@tag"):
        ferry.convert_files(tmp_path / "in.pt", tmp_path / "out.safetensors")
    report = ferry.convert_files(
        tmp_path / "in.pt", tmp_path / "out.safetensors", tensors_only=True
    )
    assert list(ferry.open(tmp_path / "out.safetensors").tensors) == ["p", "b"]
    assert ferry.load(tmp_path / "out.safetensors")["p"].tolist() == [0.0, 1.0]
    assert any("step" in warning and "p@tag" in warning for warning in report.warnings)


def test_an_attribute_that_may_hold_tensors_is_never_dropped(tmp_path):
    """It counts as a tensor: only its name in exclude leaves it out."""
    for value in (torch.ones(3), [torch.ones(3)], {"deep": [1, [torch.ones(1)]]}):
        torch.save({"p": parameter(grad_copy=value)}, tmp_path / "in.pt")
        with pytest.raises(ferry.FormatLimitError, match="p@grad_copy"):
            ferry.convert_files(tmp_path / "in.pt", tmp_path / "out.safetensors", tensors_only=True)
        ferry.convert_files(
            tmp_path / "in.pt", tmp_path / "out.npz", exclude=["p@*"], overwrite=True
        )
        assert list(ferry.open(tmp_path / "out.npz").tensors) == ["p"]


def test_an_attribute_stays_with_its_tensor(tmp_path):
    """Taken with it by include, gone with it by exclude."""
    torch.save({"p": parameter(tag="x"), "y": torch.zeros(1)}, tmp_path / "in.pt")
    with pytest.raises(ferry.FormatLimitError, match="p@tag"):
        ferry.convert_files(tmp_path / "in.pt", tmp_path / "out.safetensors", include=["p"])
    ferry.convert_files(tmp_path / "in.pt", tmp_path / "out.safetensors", exclude=["p"])


def test_a_tensor_named_like_an_attribute_is_kept(tmp_path):
    """The two are told apart."""
    torch.save({"p": parameter(tag="x"), "p@tag": torch.ones(4)}, tmp_path / "in.pt")
    assert set(ferry.open(tmp_path / "in.pt").tensors) == {"p", "p@tag"}
    assert ferry.load(tmp_path / "in.pt", exclude="p@tag@")["p@tag"].shape == (4,)


def test_what_several_sources_lose_is_listed(tmp_path):
    """With tensors_only the values of each are named."""
    for name in ("a", "b"):
        torch.save({name: torch.ones(1), f"epoch_{name}": 1}, tmp_path / f"{name}.pt")
    sources = [tmp_path / "a.pt", tmp_path / "b.pt"]
    report = ferry.convert_files(sources, tmp_path / "out.safetensors", tensors_only=True)
    assert any("epoch_a" in warning and "epoch_b" in warning for warning in report.warnings)


def test_diff_compares_what_tensors_only_keeps(quantised, tmp_path):
    """Two files are not equal as long as a tensor was not compared."""
    contents = ferry.open(quantised)
    assert not diff(contents, contents, tensors_only=True).equal


def test_a_text_column_is_told(tmp_path):
    """By an error, by a warning, in the repr and in skipped; names leave it out on purpose."""
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.table({"x": np.arange(3.0), "label": ["a", "b", "c"]}), path)
    lazy = ferry.load(path, lazy=True, strict=False)
    assert list(lazy) == ["x"]
    assert list(lazy.skipped) == ["label"]
    assert "1 skipped: 'label'" in repr(lazy)
    for how in (False, True):
        with pytest.raises(ferry.FormatLimitError, match=r"label \(holds text"):
            ferry.load(path, lazy=how)
    with pytest.warns(UserWarning, match=r"label \(holds text"):
        assert list(ferry.load(path, strict=False)) == ["x"]
    assert list(ferry.load(path, names="x")) == ["x"]
    assert not ferry.load(path, names="x", lazy=True).skipped
    report = ferry.convert_files(path, tmp_path / "out.safetensors", tensors_only=True)
    assert any("label" in warning for warning in report.warnings)


def test_a_tensor_that_cannot_be_carried_is_named(odd, quantised):
    """It is no key, in any mapping; to ask for it says why, not a bare KeyError."""
    for path, why in ((odd, "torch.complex32"), (quantised, "Q8_0")):
        lazy = ferry.load(path, lazy=True, strict=False)
        assert "q" not in lazy
        assert "q" not in list(lazy)
        with pytest.warns(UserWarning, match=r"left out here: q \("):
            assert len(lazy) == len(list(lazy)) == len(lazy.read())
        with pytest.warns(UserWarning, match=r"left out here: q \("):
            assert list(ferry.load(path, strict=False)) == list(lazy)
        with pytest.raises(ferry.FormatLimitError, match=f"'q' cannot be converted: .*{why}"):
            lazy["q"]
        with pytest.raises(ferry.FormatLimitError, match=r"q \("):
            ferry.load(path)
    lazy = ferry.load(odd, lazy=True, strict=False)
    assert set(lazy.skipped) == {"q", "deep.s"}
    assert (dict(lazy["deep"]), set(lazy["deep"].skipped)) == ({"n": 3}, {"deep.s"})
    assert "meta device" in repr(lazy["deep"])
    with pytest.warns(UserWarning, match=r"left out here: q \(.*, deep\.s \("):
        assert lazy.read()["deep"] == {"n": 3}
    with pytest.raises(KeyError):
        lazy["nothing of that name"]


def test_none_keeps_the_place_of_what_a_list_cannot_have(tmp_path):
    """Only if that is asked for: the places of the others would change without it."""
    torch.save({"l": [unmade(), torch.ones(1)], "w": torch.ones(1)}, tmp_path / "a.pt")
    with pytest.raises(ferry.FormatLimitError, match=r"l\.0 \(it is on the meta device") as refused:
        ferry.load(tmp_path / "a.pt")
    assert refused.value.hint.startswith("strict=False")  # exclude= would refuse it too
    lazy = ferry.load(tmp_path / "a.pt", lazy=True, strict=False)
    assert list(lazy.skipped) == ["l.0"]
    assert [each is None for each in lazy["l"]] == [True, False]
    for use in (lazy.read, lambda: ferry.load(tmp_path / "a.pt", strict=False)):
        with pytest.warns(UserWarning, match=r"l\.0 \(.*None stands in its place"):
            read = use()
        assert read["l"][0] is None
        assert read["l"][1].tolist() == read["w"].tolist() == [1.0]


def test_what_stands_beside_a_lone_tensor_is_told(tmp_path):
    """The result cannot list it."""
    path = tmp_path / "two.npy"
    with path.open("wb") as file:
        np.save(file, np.arange(3))
        np.save(file, np.arange(4))
    with pytest.warns(UserWarning, match="trailing"):
        assert ferry.load(path, strict=False).tolist() == [0, 1, 2]
    with pytest.raises(ferry.FormatLimitError, match="another array"):
        ferry.load(path)
    with pytest.raises(ferry.FormatLimitError, match="trailing"):
        ferry.convert_files(path, tmp_path / "out.safetensors", tensors_only=True)


def test_one_name_is_one_name(tmp_path):
    """names takes a string as one glob."""
    ferry.save({"weight": np.ones(3), "bias": np.zeros(2)}, tmp_path / "a.safetensors")
    assert list(ferry.load(tmp_path / "a.safetensors", names="weight")) == ["weight"]
    assert list(ferry.load(tmp_path / "a.safetensors", names="*")) == ["weight", "bias"]


def test_names_that_name_nothing_are_refused(tmp_path):
    """No names are not all names, and what is no string is said in our words."""
    ferry.save({"a": np.ones(2), "b": np.ones(3)}, tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match="names= is empty"):
        ferry.load(tmp_path / "a.safetensors", names=[])
    for wrong in (3, [3], b"a"):
        with pytest.raises(TypeError, match="names takes strings, not"):
            ferry.load(tmp_path / "a.safetensors", names=wrong)
    assert set(ferry.load(tmp_path / "a.safetensors", names="a")) == {"a"}


@pytest.mark.parametrize(
    ("dtype", "changes"),
    [("int8", False), ({"int64": "int8"}, False), ("float16", True), ("float32", True)],
)
def test_a_dtype_for_no_tensor_is_told(tmp_path, dtype, changes):
    """A dtype is for the tensors of its kind; where there are none, the report says that nothing changed."""
    ferry.save({"weight": np.ones(2, "float32")}, tmp_path / "in.safetensors")

    report = ferry.convert_files(tmp_path / "in.safetensors", tmp_path / "out.npz", dtype=dtype)

    assert any("dtype changes nothing" in warning for warning in report.warnings) is not changes
