"""`load`, `save` and `open`: trees in files, from and into every framework."""

from __future__ import annotations

import gc
import inspect
import math
import re
import threading
import uuid
from collections import OrderedDict, UserDict, defaultdict
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import date
from enum import Enum, IntEnum
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest
from tests.support import TARGETS, address, survives

import tensorferry as ferry
from tensorferry.files.opening.paths import each_format
from tensorferry.files.reports.summary import values_of

_name = attrgetter("name")
SUFFIXES = (".safetensors", ".pt", ".npz")
DTYPES = (
    "bool",
    "int8",
    "uint8",
    "int64",
    "float16",
    "float32",
    "float64",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
)


def bits(x):
    """A tensor's dtype, shape and bytes, of any framework."""
    array = ferry.to_numpy(x)
    return str(array.dtype), array.shape, np.ascontiguousarray(array).tobytes()


def awkward(dtype, length=64):
    """Every byte pattern there is room for: NaNs with payloads, -0.0 and subnormals among them."""
    raw = np.random.default_rng(3).integers(0, 256, length * 16, np.uint8)
    if dtype == "bool":
        return (raw[:length] & 1).astype(bool)
    return raw.view(np.dtype(getattr(ml_dtypes, dtype, dtype)))[:length].copy()


def state(framework):
    """Tensors of a framework, one for each dtype that it has."""
    keywords = {"copy": True} if framework in ("numpy", "torch") else {}
    if framework == "jax":
        keywords = {"dtype": None}
    made = {}
    for dtype in DTYPES:
        try:
            made[dtype] = ferry.convert(awkward(dtype), framework, **keywords)
        except ferry.LossyCastError:  # JAX without x64 has no 64-bit types
            assert framework == "jax"
            assert dtype in ("int64", "float64")
    return made


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("source", TARGETS)
def test_saved_from_any_framework_and_loaded_into_any_the_bits_are_equal(source, suffix, tmp_path):
    """save from one framework, load into each: dtype, shape and every bit are kept."""
    tensors = state(source)
    ferry.save(tensors, tmp_path / f"state{suffix}")
    for target in TARGETS:
        held = [name for name in tensors if target != "jax" or name not in ("int64", "float64")]
        for name in tensors.keys() - held:
            with pytest.raises(ferry.LossyCastError, match=f"at '{name}'"):
                ferry.load(tmp_path / f"state{suffix}", target, names=name)
        loaded = ferry.load(tmp_path / f"state{suffix}", target, names=held)
        assert list(loaded) == held
        for name in held:
            tensor = tensors[name]
            assert ferry.describe(loaded[name]).framework == target
            assert bits(loaded[name]) == bits(tensor), name


def is_mapped(place, path):
    """Whether the system has mapped a file where an address is."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        begin, end = (int(each, 16) for each in line.split()[0].split("-"))
        if begin <= place < end:
            return line.endswith(str(path))
    return False


@pytest.mark.parametrize("target", ["numpy", "torch"])
@pytest.mark.parametrize("suffix", [*SUFFIXES, ".npy", ".gguf", ".h5"])
def test_writable_tensors_lie_over_a_map_that_no_write_leaves(suffix, target, tmp_path):
    """Not copied, and written in this process alone: neither the file nor another load sees it."""
    path = tmp_path / f"a{suffix}"
    ferry.save(
        np.arange(4000.0) if suffix == ".npy" else {"a": np.arange(4000.0), "b": np.ones(3)}, path
    )
    before = path.read_bytes()

    def loaded():
        found = ferry.load(path, target, lazy=True)
        return found["tensor" if suffix == ".npy" else "a"]

    first, second = loaded(), loaded()
    array = ferry.to_numpy(first, copy=False)
    assert is_mapped(address(first), path)
    assert array.flags.writeable
    assert ferry.shares_memory(first, array)
    assert not ferry.shares_memory(first, second)
    first[...] = -1
    assert ferry.to_numpy(second)[5] == 5
    assert ferry.to_numpy(loaded())[5] == 5
    assert path.read_bytes() == before


@pytest.mark.parametrize("target", ["numpy", "torch"])
def test_a_copy_is_asked_for(target, tmp_path):
    """copy=True gives memory of its own; a dtype of one's own too."""
    ferry.save({"a": np.arange(4000.0)}, tmp_path / "a.safetensors")
    for keywords in ({"copy": True}, {"dtype": "float32"}):
        made = ferry.load(tmp_path / "a.safetensors", target, lazy=True, **keywords)["a"]
        assert not is_mapped(address(made), tmp_path / "a.safetensors")


@pytest.mark.parametrize("target", TARGETS)
def test_a_file_that_has_been_replaced_is_an_error(target, tmp_path):
    """Its header is another's: what is mapped already stays; nothing of the new file is taken for the old."""
    arrays = {"a": np.arange(3000, dtype="int32"), "b": np.ones(2, "int32")}
    for suffix, packed in ((".safetensors", False), (".npz", True)):
        path = tmp_path / f"a{suffix}"
        np.savez_compressed(path, **arrays) if packed else ferry.save(arrays, path)
        begun, fresh = ferry.load(path, target, lazy=True), ferry.load(path, target, lazy=True)
        held = begun["a"]
        ferry.save({"b": np.zeros(2, "int32"), "a": np.zeros(3000, "int32")}, path, overwrite=True)
        assert bits(held) == bits(arrays["a"])
        for use in (partial(fresh.__getitem__, "a"), partial(fresh.__getitem__, "b")):
            with pytest.raises(ferry.FileFormatError, match="has changed since it was opened"):
                use()
        # What cannot use the map is read from the file: then this is refused too.
        read = packed or target in ("jax", "tensorflow")
        with suppress(ferry.FileFormatError) if read else nullcontext():
            assert bits(begun["b"]) == bits(arrays["b"])


def test_a_link_that_leads_elsewhere_now_is_an_error(tmp_path):
    """Otherwise another file's bytes would be taken for those of the header that was read."""
    for name in ("one", "two"):
        ferry.save({"a": np.full(3, len(name) + ord(name[0]))}, tmp_path / f"{name}.safetensors")
    link = tmp_path / "latest.safetensors"
    link.symlink_to(tmp_path / "one.safetensors")
    begun = ferry.load(link, lazy=True)
    link.unlink()
    link.symlink_to(tmp_path / "two.safetensors")
    with pytest.raises(ferry.FileFormatError, match="has changed since it was opened"):
        begun["a"]


def test_the_tree_of_a_flat_file_is_one_object_however_often_it_is_used(tmp_path):
    """It is made when it is used, as that of nested ones was before."""
    values = {name: np.arange(2.0) for name in ("b", "a")}
    ferry.save(values, tmp_path / "a.npz")
    begun = ferry.load(tmp_path / "a.npz", lazy=True)
    assert len(begun) == 2
    assert list(begun) == ["b", "a"]
    assert "a" in begun
    assert "c" not in begun
    assert begun["a"] is begun["a"]
    assert {name: value.tolist() for name, value in begun.read().items()} == {
        name: value.tolist() for name, value in values.items()
    }
    assert begun.skipped == {}


def test_a_file_larger_than_memory_is_mapped(tmp_path):
    """Private maps set nothing aside: a sparse file of a tebibyte, of which one page is written."""
    path = tmp_path / "a.npy"
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f4", "fortran_order": False, "shape": (1 << 38,)}
        )
        file.truncate(file.tell() + (1 << 40))
    made = ferry.load(path, "torch", lazy=True)["tensor"]
    made[-1] = 3
    assert made[1 << 37] == 0
    assert ferry.load(path, lazy=True)["tensor"][-1] == 0


@pytest.mark.parametrize("target", ["jax", "tensorflow"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "int32"])
@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".npz"])
def test_jax_and_tensorflow_share_the_map(suffix, dtype, target, tmp_path):
    """What `save` wrote is aligned, so immutable frameworks use the map, for every dtype."""
    ferry.save({"x": awkward("int8", 3), "a": awkward(dtype, 1024)}, tmp_path / f"a{suffix}")
    view = ferry.open(tmp_path / f"a{suffix}").tensors["a"].array()
    tensor = ferry.load(tmp_path / f"a{suffix}", target, lazy=True, copy=False)["a"]
    assert address(tensor) == address(view)
    assert address(ferry.load(tmp_path / f"a{suffix}", target, lazy=True)["a"]) == address(view)


def test_a_tensor_is_the_same_object_while_somebody_holds_it(tmp_path):
    """While it is held, a tensor is made once, under each of its names; afterwards anew, over the same memory."""
    weight = np.arange(64.0)
    ferry.save({"a": weight, "tied": weight, "b": weight.copy()}, tmp_path / "a.safetensors")
    loaded = ferry.load(tmp_path / "a.safetensors", "torch", lazy=True)
    held = loaded["a"]
    assert loaded["a"] is held
    assert loaded["tied"] is held
    assert loaded["b"] is not held
    held += 1
    assert loaded["a"][0] == 1
    del held
    gc.collect()
    assert loaded["a"][0] == 1
    assert ferry.load(tmp_path / "a.safetensors", "torch", lazy=True)["a"][0] == 0


def test_a_nested_checkpoint_comes_back_as_it_was(tmp_path):
    """Dicts with any keys, lists, tuples and plain values, with tensors of several frameworks among them."""
    import jax.numpy as jnp
    import torch

    tree = {
        "model": OrderedDict(weight=torch.ones(2, 3), bias=jnp.zeros(3)),
        "optimizer": {
            "state": {0: {"step": 5, "exp_avg": np.ones(4, "float16")}},
            "betas": (0.9, 0.999),
        },
        "history": [1.5, float("inf"), -0.0, None, True, "text", [np.arange(2)]],
    }
    for suffix in SUFFIXES:
        path = tmp_path / f"all{suffix}"
        ferry.save(tree, path)
        lazy = ferry.load(path, lazy=True)
        assert lazy["optimizer"]["betas"] == (0.9, 0.999)
        assert lazy["optimizer"]["state"][0]["step"] == 5
        assert np.signbit(lazy["history"][2])
        for read in (ferry.load(path), lazy.read()):
            assert type(read["model"]) is OrderedDict
            assert type(read) is dict
            assert list(read) == list(tree)
            assert bits(read["model"]["weight"]) == bits(tree["model"]["weight"])
            assert read["optimizer"]["betas"] == (0.9, 0.999)
            assert bits(read["optimizer"]["state"][0]["exp_avg"]) == bits(np.ones(4, "float16"))
            assert read["history"][:6] == tree["history"][:6]
            assert np.signbit(read["history"][2])
            assert bits(read["history"][6][0]) == bits(np.arange(2))


@pytest.mark.parametrize("lazy", [False, True])
def test_a_module_loads_its_state(lazy, tmp_path):
    """What `load` gives is a mapping that load_state_dict takes, with the versions that a state dict has."""
    import torch

    def model():
        return torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))

    one, other = model(), model()
    for suffix in SUFFIXES:
        ferry.save(one.state_dict(), tmp_path / f"m{suffix}")
        loaded = ferry.load(tmp_path / f"m{suffix}", "torch", lazy=lazy)
        other.load_state_dict(loaded)
        for (name, a), (_, b) in zip(
            one.state_dict().items(), other.state_dict().items(), strict=True
        ):
            assert torch.equal(a, b), name
        plain = loaded.read() if lazy else loaded
        assert plain._metadata == one.state_dict()._metadata


def test_a_lone_tensor_is_loaded_as_itself(tmp_path):
    """A file of one tensor without a name gives the tensor."""
    for suffix in (*SUFFIXES, ".npy"):
        ferry.save(np.arange(3), tmp_path / f"one{suffix}")
        assert bits(ferry.load(tmp_path / f"one{suffix}")) == bits(np.arange(3)), suffix


@pytest.mark.parametrize(
    "form", [form for form in each_format() if form.writes and not form.holds_one], ids=_name
)
def test_none_alone_is_loaded_as_itself(form, tmp_path):
    """In every format with a place for values, also after a conversion; an empty dict is something else."""
    pytest.importorskip(form.module or "tensorferry", reason=f"{form.module} is not installed")
    for tree in (None, {}):
        path = tmp_path / f"{tree}{form.suffixes[0] if form.suffixes else ''}"
        ferry.save(tree, path, to=form.name, verify=True)
        ferry.convert_files(path, tmp_path / f"again-{tree}.npz", verify=True)
        for found in map(ferry.load, (path, tmp_path / f"again-{tree}.npz")):
            assert found is None if tree is None else found == {}
    assert values_of(ferry.open(tmp_path / "again-None.npz")) == {"": None}


def test_names_choose_tensors(tmp_path):
    """Only what fits a glob is there; a glob that fits nothing is an error, not an empty mapping."""
    ferry.save({"a.x": np.ones(1), "a.y": np.ones(2), "b": np.ones(3)}, tmp_path / "n.safetensors")
    assert list(ferry.load(tmp_path / "n.safetensors", names=["a.*"])) == ["a.x", "a.y"]
    with pytest.raises(ferry.FormatLimitError, match=r"^names: no name fits 'c'") as refused:
        ferry.load(tmp_path / "n.safetensors", names=["c"])
    assert "names=" in refused.value.hint


def test_what_is_no_tensor_is_refused_with_its_place(tmp_path):
    """A set that PyTorch does not read, one of an object, a cycle: refused, and no file appears."""
    for held in (frozenset({1, 2}), {frozenset({1})}, {date(2020, 1, 1)}):
        with pytest.raises(ferry.UnsupportedTypeError, match=r"\$\[\"a\"\]\[1\]"):
            ferry.save({"a": [np.ones(1), held]}, tmp_path / "bad.safetensors")
    cycle = []
    cycle.append(cycle)
    with pytest.raises(ferry.UnsupportedTypeError, match="contains itself"):
        ferry.save({"a": cycle}, tmp_path / "bad.safetensors")
    assert not list(tmp_path.iterdir())


@dataclass
class Meeting:
    """A container of a date."""

    when: object


@pytest.mark.parametrize(
    "tree", [{"when": date(2020, 1, 1)}, [Meeting(date(2020, 1, 1))], {"rows": [np.dtype("int8")]}]
)
def test_the_hint_for_an_object_is_what_can_stand_in_its_place(tree, tmp_path):
    """Its code gives a value that is saved; for the whole tree there is no such code."""
    with pytest.raises(ferry.UnsupportedTypeError, match="is not a tensor") as caught:
        ferry.save(tree, tmp_path / "a.pt")
    code, _, rest = caught.value.hint.partition(" in its place")
    assert not rest
    assert caught.value.message.endswith(f" - at ${code.removeprefix('str(x').removesuffix(')')}")
    ferry.save([eval(code, {"x": tree})], tmp_path / "a.pt")  # noqa: S307
    with pytest.raises(ferry.UnsupportedTypeError, match="A file holds tensors, plain values"):
        ferry.save(date(2020, 1, 1), tmp_path / "b.pt")


class Color(Enum):
    """A value with a class of its own."""

    RED = "red"


class Box:
    """No container."""

    def __init__(self):
        self.held = np.ones(2)


@pytest.mark.parametrize(
    "held", [Color.RED, Box(), Path("runs"), np.float32, math.sqrt, uuid.UUID(int=1)], ids=type
)
def test_what_the_hint_puts_in_the_place_of_an_object_is_saved(held, tmp_path):
    """The attributes of an enumeration are no plain values; a path in a tree is one, and no file to load."""
    x = {"a": [held]}
    with pytest.raises(ferry.UnsupportedTypeError, match=r' - at \$\["a"\]\[0\]') as caught:
        ferry.save(x, tmp_path / "a.pt")
    codes = [
        re.split(" in its place|, which", code)[0] for code in caught.value.hint.split("; or ")
    ]
    saved = [eval(code, {"x": x}) for code in codes if code != 'x["a"][0]()']  # noqa: S307
    ferry.save(saved, tmp_path / "a.pt")
    assert ferry.load(tmp_path / "a.pt") is not None


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".npz"])
def test_a_set_of_plain_values_is_kept(suffix, tmp_path):
    """As by a conversion of a file that `torch.save` wrote."""
    tree = {"w": np.ones(2), "done": {1, "a", (2, None)}, "none": set()}
    ferry.save(tree, tmp_path / f"a{suffix}")
    read = ferry.load(tmp_path / f"a{suffix}")
    assert (read["done"], read["none"]) == (tree["done"], tree["none"])
    if suffix == ".pt":
        torch = pytest.importorskip("torch", reason="reads the file, and is not installed")
        assert torch.load(tmp_path / "a.pt", weights_only=True)["done"] == tree["done"]


def test_an_array_of_objects_leads_to_its_first_object(tmp_path):
    """`convert_tree` would refuse it in the same way."""
    x = {"a": np.array([Color.RED], object)}
    for hint in ('np.asarray(x["a"]).tolist()', 'x["a"][0].value'):
        with pytest.raises(ferry.UnsupportedTypeError, match="is not a tensor") as caught:
            ferry.save(x, tmp_path / "a.pt")
        assert caught.value.hint.startswith(f"{hint} in its place")
        x = {"a": x["a"].tolist()} if isinstance(x["a"], np.ndarray) else x


class Level(IntEnum):
    """A value that is more than a number."""

    LOW = 1


_CODE = [
    ({"a": np.ones(2), "b": np.zeros(3)}, ".npy"),
    ({"x": {"a": [np.ones(2), "text"], "b": np.zeros(3)}}, ".npy"),
    ({"z": np.ones(2, "complex128"), "w": np.ones(2)}, ".safetensors"),
]
_WORDS = [
    ({"z": np.ones(2, "complex128")}, ".gguf", {}),
    ({}, ".npy", {}),
    ({"level": [Level.LOW]}, ".pt", {}),
    ({"key": {1j: 1}}, ".npz", {}),
    ({"value": np.longdouble(1)}, ".npz", {}),
    ({"integer": 1 << 9000}, ".npz", {}),
    ({"../a": np.ones(2)}, ".npz", {}),
    ({"__metadata__": np.ones(2)}, ".safetensors", {}),
    ({"w": np.ones(2)}, ".keras", {}),
    ({"w": np.ones((1,) * 50)}, ".gguf", {}),
    ({"a" * 100: np.ones(2)}, ".gguf", {}),
    ({}, ".npz", {"metadata": {"k": "a" * 70_000}}),
    ({"w": np.ones(2)}, "", {"to": "tensorflow", "metadata": {"w": "a"}}),
]


@pytest.mark.parametrize(("x", "suffix"), _CODE)
def test_the_code_in_a_hint_of_save_can_be_pasted(x, suffix, tmp_path):
    """It calls `save`, with what it takes; for files it says the keywords of `convert_files`."""
    path = tmp_path / f"a{suffix}"
    with pytest.raises(ferry.FormatLimitError) as caught:
        ferry.save(x, path)
    code = re.split("[;,] or ", caught.value.hint)[0]
    assert code.startswith("save(")
    eval(code, {"save": ferry.save, "convert_tree": ferry.convert_tree, "x": x, "path": path})  # noqa: S307
    assert path.exists()

    ferry.save(x, tmp_path / "in.pt")
    if "" in x:
        return  # a name that no file is converted with
    with pytest.raises(ferry.FormatLimitError, match=r"Hint: (include|dtype)="):
        ferry.convert_files(tmp_path / "in.pt", tmp_path / f"b{suffix}")


@pytest.mark.parametrize(("tree", "suffix", "keywords"), _WORDS)
def test_a_hint_of_save_has_no_keywords_that_it_lacks(tree, suffix, keywords, tmp_path):
    """Those of `convert_files` would be an error."""
    with pytest.raises(ferry.ConversionError) as caught:
        ferry.save(tree, tmp_path / f"a{suffix}", **keywords)
    assert set(re.findall(r"(\w+)=", caught.value.hint)) <= set(
        inspect.signature(ferry.save).parameters
    )


def test_a_number_that_is_more_than_a_number_is_refused_with_its_place(tmp_path):
    """Before a format is asked, because it would come back as a plain number."""
    x = {"level": [Level.LOW], "w": np.ones(2)}
    with pytest.raises(
        ferry.UnsupportedTypeError, match=r"A Level is no plain int.* at \$\[\"level\"\]\[0\]"
    ) as caught:
        ferry.save(x, tmp_path / "a.pt")
    assert eval(caught.value.hint.removesuffix(" in its place"), {"x": x}) == 1  # noqa: S307


@pytest.mark.parametrize(
    "metadata", [{"epoch": 3}, {3: "epoch"}, {"none": None}, {b"a": "b"}, "text", ["ab"]]
)
def test_metadata_that_is_no_mapping_of_strings_is_refused(metadata, tmp_path):
    """Before anything is written, with what makes strings of it."""
    for suffix in (".safetensors", ".pt", ".npz", ".gguf"):
        with pytest.raises(ferry.UnsupportedTypeError, match="strings") as caught:
            ferry.save({"w": np.ones(2, "float32")}, tmp_path / f"a{suffix}", metadata=metadata)
        assert (caught.value.hint is not None and "str(value)" in caught.value.hint) is isinstance(
            metadata, dict
        )
    assert not list(tmp_path.iterdir())


def test_mappings_of_other_classes_are_saved(tmp_path):
    """Any mapping is entered: one that load gave too, from file to file."""
    ferry.save(UserDict(a=np.ones(2), n=1), tmp_path / "one.safetensors")
    again = ferry.load(tmp_path / "one.safetensors", lazy=True)
    ferry.save(again, tmp_path / "two.npz")
    assert bits(ferry.load(tmp_path / "two.npz")["a"]) == bits(np.ones(2))
    assert ferry.load(tmp_path / "two.npz")["n"] == 1


class Pair(NamedTuple):
    """Two of something."""

    one: object
    other: object


@pytest.mark.parametrize("suffix", [".safetensors", ".pt", ".npz"])
def test_types_of_containers_come_back_as_far_as_they_are_kept(suffix, tmp_path):
    """Those of dicts with their default factories; a named tuple is a dict, an OrderedDict of tensors only a dict."""
    weight = np.ones(2)
    lists = defaultdict(list, {"w": weight, "a": [1]})
    tree = {"lists": lists, "none": defaultdict(None, w=weight), "ordered": OrderedDict(w=weight)}
    ferry.save(tree | {"pair": Pair(weight, 1)}, tmp_path / f"a{suffix}")
    read = ferry.load(tmp_path / f"a{suffix}", "numpy")
    assert [type(held) for held in read.values()] == [defaultdict, defaultdict, OrderedDict, dict]
    assert (read["lists"].default_factory, read["none"].default_factory) == (list, None)
    assert list(read["pair"]) == ["one", "other"]
    assert bits(read["pair"]["one"]) == bits(weight)
    assert read["pair"]["other"] == 1
    assert read["lists"]["missing"] == []
    assert read["lists"]["a"] == [1]

    flat = [OrderedDict(w=weight), OrderedDict(w=weight, n=1), defaultdict(int, w=weight)]
    for given, kept in zip(flat, (dict, OrderedDict, defaultdict), strict=True):
        ferry.save(given, tmp_path / f"b{suffix}", overwrite=True)
        assert type(ferry.load(tmp_path / f"b{suffix}")) is kept


def test_a_named_tuple_with_attributes_of_its_own_is_refused(tmp_path):
    """They would be lost without a word. The hint works when it is pasted."""

    class Measured(NamedTuple("Measured", [("value", object)])):  # noqa: SLOT002 - that is the point
        """Has a place for attributes."""

    made = Measured(np.ones(2))
    ferry.save({"m": made}, tmp_path / "plain.npz")
    assert ferry.load(tmp_path / "plain.npz")["m"]["value"].tolist() == [1, 1]
    made.unit = "m"
    x = {"m": made}
    with pytest.raises(
        ferry.UnsupportedTypeError, match="has attributes beside its fields"
    ) as caught:
        ferry.save(x, tmp_path / "a.npz")
    assert not (tmp_path / "a.npz").exists()
    code = caught.value.hint.partition(" in its place")[0]
    x["m"] = eval(code, {"x": x})  # noqa: S307 - as a person would paste it
    ferry.save(x, tmp_path / "a.npz")
    assert list(ferry.load(tmp_path / "a.npz")["m"]) == ["value"]


def test_a_named_tuple_is_a_dict_of_its_fields(tmp_path):
    """So are the result types of PyTorch and one without fields; what only calls itself so is a tuple."""
    import torch

    class Odd(tuple):
        """A tuple with fewer fields than values."""

        _fields = ("one",)
        __slots__ = ()

    class Empty(NamedTuple):
        """No state, as of an optimizer."""

    tree = {
        "top": torch.eye(2).max(dim=0),
        "pair": [Pair(np.ones(2), Pair(1, 2))],
        "none": Empty(),
        "odd": Odd((1, 2)),
    }
    ferry.save(tree, tmp_path / "a.safetensors")
    names = {"top.values", "top.indices", "pair.0.one"}
    assert set(ferry.open(tmp_path / "a.safetensors").tensors) == names
    read = ferry.load(tmp_path / "a.safetensors")
    assert dict(read["pair"][0]["other"]) == {"one": 1, "other": 2}
    assert dict(read["none"]) == {}
    assert tuple(read["odd"]) == (1, 2)


def test_the_hint_for_an_object_with_attributes_saves_its_values(tmp_path):
    """As a dict of what is a value in it, without what is not, which is code in a training state."""
    import flax.struct

    @flax.struct.dataclass
    class State:
        """A state with a function in it."""

        params: object
        step: int
        apply: object = flax.struct.field(pytree_node=False)

    x = State({"w": np.ones(2)}, 3, len)
    with pytest.raises(ferry.UnsupportedTypeError, match="State holds a tensor") as refused:
        ferry.save(x, tmp_path / "a.npz")
    code = refused.value.hint.partition(" in its place")[0]
    ferry.save(eval(code, {"x": x}), tmp_path / "a.npz")  # noqa: S307 - the hint, as somebody would paste it
    assert list(ferry.open(tmp_path / "a.npz").tensors) == ["params.w"]
    assert ferry.load(tmp_path / "a.npz")["step"] == 3


def test_a_defaultdict_of_code_is_refused(tmp_path):
    """By its place, before anything is written."""
    with pytest.raises(ferry.UnsupportedTypeError, match=r"which is code - at \$\[\"a\"\]"):
        ferry.save({"a": defaultdict(lambda: 3, w=np.ones(2))}, tmp_path / "a.pt")
    assert not list(tmp_path.iterdir())


def test_tensors_are_loaded_as_values_of_python(tmp_path):
    """Lists and numbers; those of a lazy tree have no weak references, and are made each time."""
    ferry.save(
        {"a": np.arange(3.0), "n": np.array(2.5), "t": [np.arange(2)]}, tmp_path / "a.safetensors"
    )
    for lazy in (False, True):
        loaded = ferry.load(tmp_path / "a.safetensors", to="python", lazy=lazy)
        assert (loaded["a"], loaded["n"], loaded["t"]) == ([0.0, 1.0, 2.0], 2.5, [[0, 1]])
    assert loaded["a"] is not loaded["a"]


class Fresh:
    """An object whose array is another one each time."""

    def __init__(self, value):
        self.value = value

    def __array__(self, dtype=None, copy=None):
        return np.full(3, self.value, dtype)


def look_alikes():
    """Pairs of tensors that lie alike in one memory, or in memory that has been another's, and are not the same."""
    import torch

    z, w = torch.tensor([1 + 2j]), torch.tensor([1 + 2j, 3 - 4j])
    swapped = np.arange(3, dtype="<i2")
    return {
        "conjugate": (z, z.conj()),
        "negative": (w.imag, w.conj().imag),
        "swapped": (swapped, swapped.view(">i2")),
        "ranges": (range(4), range(1, 5)),
        "fresh arrays": (Fresh(1.0), Fresh(2.0)),
    }


@pytest.mark.parametrize("suffix", ["pt", "npz", "safetensors"])
@pytest.mark.parametrize("pair", ["conjugate", "negative", "swapped", "ranges", "fresh arrays"])
def test_what_only_looks_like_a_tie_is_stored_for_itself(tmp_path, pair, suffix):
    """Two tensors at one address may have other values: by their bits, their byte order, or another time."""
    first, second = look_alikes()[pair]
    path = tmp_path / f"a.{suffix}"
    ferry.save({"a": first, "b": second}, path, verify=True)
    loaded = ferry.load(path, to="numpy")
    for name, tensor in (("a", first), ("b", second)):
        assert loaded[name].tobytes() == ferry.to_numpy(tensor).tobytes()
    assert ferry.open(path).ties == {}


def test_verify_sees_what_was_taken_for_a_tie(tmp_path, monkeypatch):
    """It reads what was to be written under each name, whatever was thought to be the same."""
    monkeypatch.setattr("tensorferry.files.save.Held.key", property(lambda _: 0))
    with pytest.raises(ferry.VerificationError, match="b"):
        ferry.save({"a": np.zeros(2), "b": np.ones(2)}, tmp_path / "a.safetensors", verify=True)


def test_tied_weights_are_stored_once(tmp_path):
    """One memory under two names takes its bytes once, if asked; a view of another shape is another tensor."""
    import torch

    weight = torch.randn(4096)
    for suffix in SUFFIXES:
        path = tmp_path / f"tied{suffix}"
        ferry.save(
            {"a": weight, "b": weight.detach(), "view": weight.view(64, 64)}, path, ties="alias"
        )
        contents = ferry.open(path)
        assert contents.ties == {"b": "a"}
        assert path.stat().st_size < 3 * weight.nbytes
        assert contents.tensors["view"].shape == (64, 64)


def test_saving_leaves_the_input_as_it_is_and_may_replace_its_own_source(tmp_path):
    """A lazy tree over a file can be saved over that file, because `save` replaces it; the bits are what they were."""
    path = tmp_path / "a.safetensors"
    ferry.save({"a": np.arange(5000.0)}, path)
    with pytest.raises(ferry.OutputExistsError):
        ferry.save({"a": np.zeros(1)}, path)
    loaded = ferry.load(path, lazy=True)
    held = loaded["a"]
    ferry.save(loaded, path, overwrite=True)
    assert bits(held) == bits(np.arange(5000.0))
    assert bits(ferry.load(path)["a"]) == bits(np.arange(5000.0))


def test_open_tells_names_dtypes_and_shapes_without_a_framework(tmp_path):
    """open and load to NumPy import no framework."""
    ferry.save(
        {"a": awkward("bfloat16", 6).reshape(2, 3)},
        tmp_path / "a.safetensors",
        metadata={"license": "mit"},
    )
    ferry.save({"a": awkward("bfloat16", 6)}, tmp_path / "a.pt")
    code = f"""
import sys, tensorferry as ferry
for suffix in (".safetensors", ".pt"):
    contents = ferry.open({str(tmp_path / "a")!r} + suffix)
    assert contents.tensors["a"].dtype == "bfloat16"
    ferry.load({str(tmp_path / "a")!r} + suffix)["a"]
    ferry.load({str(tmp_path / "a")!r} + suffix, lazy=True)["a"]
assert not {{"torch", "tensorflow", "jax", "safetensors"}} & set(sys.modules)
"""
    survives(code)
    assert ferry.open(tmp_path / "a.safetensors").metadata == {"license": "mit", "format": "pt"}


def test_threads_may_read_one_mapping(tmp_path):
    """Eight threads that use one lazy mapping get the same bits."""
    expected = {f"t{index}": awkward("float32", 1000 + index) for index in range(50)}
    ferry.save(expected, tmp_path / "t.safetensors")
    loaded = ferry.load(tmp_path / "t.safetensors", "torch", lazy=True)
    wrong = []

    def work():
        wrong.extend(name for name, array in expected.items() if bits(loaded[name]) != bits(array))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_map_of_a_file_that_is_gone_still_reads(tmp_path):
    """It outlives the name of its file."""
    ferry.save({"a": np.arange(3000)}, tmp_path / "a.safetensors")
    held = ferry.load(tmp_path / "a.safetensors", lazy=True)["a"]
    (tmp_path / "a.safetensors").unlink()
    assert bits(held) == bits(np.arange(3000))


def test_contents_are_short_to_look_at(tmp_path):
    """In a session, a file of many tensors is one line, and so is a tensor."""
    ferry.save(
        {f"t{index}": np.zeros((2, 3), "float16") for index in range(2000)},
        tmp_path / "many.safetensors",
    )
    contents = ferry.open(tmp_path / "many.safetensors")
    assert repr(contents) == "<Contents of safetensors: 2,000 tensors>"
    assert "float16[2, 3]" in repr(contents.tensors["t0"])
    assert len(repr(ferry.load(tmp_path / "many.safetensors", lazy=True))) < 120


@pytest.mark.parametrize("target", ["torch", "jax", "tensorflow"])
def test_large_tensors_that_cannot_lie_over_the_map_are_read_whole(target, tmp_path):
    """At an address that no framework adopts, 20 MB of all bit patterns come over, once, in the result's memory."""
    import safetensors.numpy

    state = {"a": awkward("uint8", 1 << 16).repeat(300)[:19_999_999]}
    safetensors.numpy.save_file(state, tmp_path / "a.safetensors", {"shift": "x"})
    loaded = ferry.load(tmp_path / "a.safetensors", target, lazy=True)["a"]
    if target == "torch":
        assert not ferry.shares_memory(
            loaded, ferry.load(tmp_path / "a.safetensors", lazy=True)["a"]
        )
    assert bits(loaded) == bits(state["a"])


@pytest.mark.parametrize(
    ("to", "device"), [("torch", "cuda:99"), ("torch", "cdua"), ("numpy", "cuda"), ("jax", "x")]
)
def test_a_device_that_there_is_not_is_refused_before_a_tensor_is_read(to, device, tmp_path):
    """By `load` itself, with the same words as `convert`."""
    path = tmp_path / "a.safetensors"
    ferry.save({"a": np.ones(3, "float32")}, path)
    with pytest.raises(ferry.DeviceError) as caught:
        ferry.load(path, to=to, device=device, lazy=True)
    with pytest.raises(ferry.DeviceError) as also:
        ferry.convert(np.ones(3, "float32"), to, device=device)
    assert (str(caught.value), caught.value.hint) == (str(also.value), also.value.hint)
    assert ferry.to_list(ferry.load(path, to=to, device="cpu")["a"]) == [1, 1, 1]


def test_a_layout_over_devices_is_for_the_shapes_of_the_tensors(tmp_path):
    """It is not refused by `load`, which knows no shape yet."""
    jax = pytest.importorskip("jax")
    path = tmp_path / "a.safetensors"
    ferry.save({"a": np.ones((4, 6), "float32")}, path)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("x",))
    asked = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, "x"))
    for lazy in (False, True):
        assert ferry.load(path, to="jax", device=asked, lazy=lazy)["a"].sharding == asked
