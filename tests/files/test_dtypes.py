"""dtype= of files: the rule of trees by the names in the file, and what a format can hold."""

from __future__ import annotations

import numpy as np
import pytest
from tests.files.converting import contents

import tensorferry as ferry
from tensorferry.core.leaf_dtypes import dtype_of_leaf, rule_of
from tensorferry.errors import FormatLimitError, LossyCastError, UnsupportedTypeError
from tensorferry.files.conversion.select import select
from tensorferry.host.numpy_dtypes import numpy_dtype

ARRAYS = {
    "encoder.weight": np.array([0.5, 1.5], "float32"),
    "encoder.bias": np.array([0.5], "float64"),
    "ids": np.array([1, 257], "uint16"),
    "label": np.array([3, 257]),
    "mask": np.array([True, False]),
}
ASKED = [
    None,
    "bfloat16",
    "int32",
    "bool",
    {"encoder.*": "float16", "encoder.bias": None, "int64": "int32"},
    {"float": "bfloat16", "bool": "uint8", "uint": "uint32"},
    {np.float64: "float32", bool: np.uint8},
    {},
]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "in.npz"
    np.savez(path, **ARRAYS)
    return path


def found(path):
    return {name: stored.dtype for name, stored in ferry.open(path).tensors.items()}


@pytest.mark.parametrize("asked", ASKED)
def test_files_go_by_the_rule_of_trees(asked, file, tmp_path):
    """load, convert_files and convert_tree give each tensor the same dtype."""
    expected = {
        name: dtype_of_leaf(rule_of(asked), array.dtype.name, name)
        for name, array in ARRAYS.items()
    }
    expected = {name: dtype or ARRAYS[name].dtype.name for name, dtype in expected.items()}
    loaded = ferry.load(file, dtype=asked)
    assert {name: ferry.describe(loaded[name]).dtype for name in ARRAYS} == expected
    ferry.convert_files(file, tmp_path / "out.safetensors", dtype=asked, verify=True)
    assert found(tmp_path / "out.safetensors") == expected
    tree = ferry.convert_tree(ARRAYS, "numpy", dtype=asked)
    assert {name: ferry.describe(array).dtype for name, array in tree.items()} == expected
    for name, array in ferry.load(tmp_path / "out.safetensors").items():
        assert array.tobytes() == tree[name].tobytes() == loaded[name].tobytes()


@pytest.mark.parametrize(
    ("words", "mapping"),
    [
        ("bf16", {"float": "bfloat16"}),
        ("int=int32", {"int": "int32"}),
        (["bf16", "int32"], {"float": "bfloat16", "int": "int32", "uint": "int32"}),
        (["bf16", "f32"], {"float": "float32"}),
        (["*.weight=f32", "bf16"], {"float": "bfloat16", "*.weight": "float32"}),
        (["encoder.*=f32", "*.bias=bf16"], {"encoder.*": "float32", "*.bias": "bfloat16"}),
        (("float64=fit",), {"float64": "fit"}),
    ],
)
def test_words_say_what_a_mapping_says(words, mapping):
    """As the command line has them."""
    assert _dtypes(words) == _dtypes(mapping)


def _dtypes(asked, **keywords):
    chosen = select(contents(ARRAYS), dtype=asked, **keywords)
    return {name: stored.dtype for name, stored in chosen.tensors.items()}


def test_a_name_that_no_tensor_has_is_an_error(file, tmp_path):
    """With the nearest; nothing is written, and nothing is loaded."""
    with pytest.raises(FormatLimitError) as caught:
        ferry.convert_files(file, tmp_path / "out.safetensors", dtype={"encoder.wieght": "float16"})
    assert caught.value.hint == 'dtype={"encoder.weight": "float16"}'
    assert not (tmp_path / "out.safetensors").exists()
    with pytest.raises(FormatLimitError, match="which no tensor has"):
        ferry.load(file, dtype={"encoder": "float16"})
    with pytest.raises(FormatLimitError, match="which no tensor has"):
        ferry.load(file, names=["ids"], dtype={"label": "int8"})


def test_fit_is_what_the_format_can_hold(tmp_path):
    """What it has stays to the bit; integers are compared; what has no place at all is refused by name."""
    arrays = {"c": np.array([1 + 2j]), "w": np.array([0.1]), "n": np.array([2**40])}
    ferry.save({**arrays, "q": ferry.to_numpy([-8, 7], dtype="int4")}, tmp_path / "in.npz")
    with pytest.raises(FormatLimitError, match="complex128"):
        ferry.convert_files(tmp_path / "in.npz", tmp_path / "out.safetensors")
    ferry.convert_files(tmp_path / "in.npz", tmp_path / "out.safetensors", dtype="fit", verify=True)
    result = ferry.load(tmp_path / "out.safetensors")
    assert {name: result[name].dtype.name for name in result} == {
        "c": "complex64",
        "w": "float64",
        "n": "int64",
        "q": "int8",
    }
    assert result["q"].tolist() == [-8, 7]
    assert result["w"][0] == 0.1
    with pytest.raises(FormatLimitError, match="complex128"):
        ferry.convert_files(tmp_path / "in.npz", tmp_path / "out.gguf", dtype="fit")


def of_every_value(name):
    """Each value of a dtype of at most a byte, but NaN."""
    dtype = numpy_dtype(name)
    if "float" not in name:
        return np.arange(8).astype(dtype)
    every = np.arange(256, dtype=np.uint8).view(dtype)
    return every[~np.isnan(every)]


@pytest.mark.parametrize("name", ["float8_e4m3", "float8_e3m4", "float8_e4m3b11fnuz", "int4"])
def test_the_hint_for_a_dtype_that_the_format_lacks_keeps_every_value(name, tmp_path):
    """A float of eight bits became one of four, which has sixteen values, though a wider one was there."""
    safetensors_torch = pytest.importorskip(
        "safetensors.torch", reason="reads the file, and is not installed"
    )
    x = {"w": of_every_value(name)}
    with pytest.raises(FormatLimitError) as caught:
        ferry.save(x, tmp_path / "w.safetensors")
    code = caught.value.hint.partition("; or ")[0]
    names = {
        "save": ferry.save,
        "convert_tree": ferry.convert_tree,
        "path": tmp_path / "w.safetensors",
        "x": x,
    }
    eval(code, names)  # noqa: S307 - it is the code of the hint
    read = safetensors_torch.load_file(tmp_path / "w.safetensors")["w"]
    np.testing.assert_array_equal(read.double().numpy(), x["w"].astype("float64"))


def test_fit_is_the_same_in_every_job(tmp_path):
    """Each shard is planned again by the process that writes it."""
    ferry.save({str(n): np.full(300, 1j * n) for n in range(4)}, tmp_path / "in.npz")
    report = ferry.convert_files(
        tmp_path / "in.npz",
        tmp_path / "out",
        to="safetensors",
        shard="3KB",
        dtype="fit",
        jobs=2,
        engine="processes",
        verify=True,
    )
    assert len(report.written) > 2
    assert set(found(tmp_path / "out").values()) == {"complex64"}


def test_an_interrupted_conversion_goes_on_with_the_same_mapping_only(tmp_path, monkeypatch):
    """The mapping is part of what is recorded, and another one begins anew."""
    from tensorferry.files.conversion import work

    seen = []
    inner = work.Work._conversion
    monkeypatch.setattr(work.Work, "_conversion", lambda self: seen.append(inner(self)) or seen[-1])
    ferry.save({"a": np.ones(300), "b": np.ones(300)}, tmp_path / "in.npz")
    for number, asked in enumerate(
        ["float32", {"float": "float32"}, {np.float64: "float32"}, {"a": None}]
    ):
        ferry.convert_files(
            tmp_path / "in.npz", tmp_path / str(number), to="safetensors", shard="3KB", dtype=asked
        )
    said = [each["selection"]["dtype"] for each in seen]
    assert len(said) >= 4
    assert len({str(each) for each in said}) == 3


def test_a_file_has_no_default_dtype(file, tmp_path):
    """Nothing is guessed."""
    with pytest.raises(UnsupportedTypeError, match="no default dtype") as caught:
        ferry.convert_files(file, tmp_path / "out.safetensors", dtype={"float": "default"})
    assert caught.value.hint == 'dtype="float32", or dtype="fit"'


def test_jax_loads_what_fits(tmp_path):
    """Without 64-bit types each tensor is narrowed, and integers are compared."""
    pytest.importorskip("jax")
    ferry.save(
        {"x": np.ones(2), "n": np.arange(2), "big": np.array([2**40]), "h": np.ones(2, "float16")},
        tmp_path / "a.npz",
    )
    lazy = ferry.load(tmp_path / "a.npz", "jax", dtype="fit", lazy=True)
    for loaded in (lazy, ferry.load(tmp_path / "a.npz", "jax", dtype="fit", exclude="big")):
        assert [loaded[name].dtype.name for name in ("x", "n", "h")] == [
            "float32",
            "int32",
            "float16",
        ]
    with pytest.raises(LossyCastError, match="'big'"):
        lazy["big"]
    with pytest.raises(LossyCastError, match="'big'"):
        ferry.load(tmp_path / "a.npz", "jax", dtype="fit")


def test_one_tensor_under_two_names_with_two_dtypes(tmp_path):
    """Each name gives its own, and the same object as long as it is held."""
    weight = np.arange(4.0)
    ferry.save({"a": weight, "b": weight}, tmp_path / "a.safetensors")
    loaded = ferry.load(tmp_path / "a.safetensors", "torch", dtype={"b": "float32"})
    a, b = loaded["a"], loaded["b"]
    assert [str(each.dtype) for each in (a, b)] == ["torch.float64", "torch.float32"]
    assert loaded["a"] is a
    assert loaded["b"] is b
