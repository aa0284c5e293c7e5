"""Orbax checkpoints: read as Orbax writes them, written as it restores them, without it and without JAX."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import shutil
import subprocess
import sys
import warnings
from collections import OrderedDict, defaultdict
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest

import tensorferry as ferry
from tensorferry.core.dtypes import DTYPES
from tensorferry.errors import (
    FileFormatError,
    FormatLimitError,
    FrameworkNotInstalledError,
    UnsafeFileError,
)
from tensorferry.files.base.contents import Contents, Ref, Special
from tensorferry.files.base.limits import refuse_contents
from tensorferry.files.base.nesting import written as written_out
from tensorferry.files.base.pump import Pump
from tensorferry.files.base.stored import Extent, InMemory
from tensorferry.files.formats.orbax import FORMAT
from tensorferry.files.opening.paths import format_for, format_of, open_path
from tensorferry.host.numpy_dtypes import of_numpy

tensorstore = pytest.importorskip("tensorstore", reason="tensorstore is not installed")
_spec = importlib.util.spec_from_file_location(
    "files_support", Path(__file__).with_name("support.py")
)
support = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(support)


def _is_known(dtype):
    try:
        tensorstore.dtype(dtype)
    except ValueError:
        return False
    return True


KNOWN = {name for name in DTYPES if _is_known(name)}


@pytest.fixture(scope="module")
def ocp():
    return pytest.importorskip("orbax.checkpoint", reason="orbax-checkpoint is not installed")


def written(path, contents):
    refuse_contents(FORMAT, contents)
    FORMAT.write(contents, path, Pump())
    return path


def filled_sample():
    """What Orbax can save: it refuses arrays without elements."""
    return {name: array for name, array in support.sample(KNOWN).items() if array.size}


@pytest.mark.parametrize(
    "options",
    [{}, {"use_ocdbt": False}, {"use_zarr3": True}, {"use_ocdbt": False, "use_zarr3": True}],
)
def test_reads_every_dtype_that_orbax_writes(ocp, tmp_path, options):
    """What PyTreeCheckpointer saved is read with its names, shapes and bits, in each of its layouts."""
    wanted = filled_sample()
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**options)) as saver:
        saver.save(tmp_path / "a", wanted)
    found = FORMAT.read(tmp_path / "a")
    assert found.tree is None
    assert set(found.tensors) == set(wanted)
    assert all(
        support.same_bits(array, wanted[name]) for name, array in support.arrays(found).items()
    )


def test_orbax_reads_every_dtype_that_is_written(ocp, tmp_path):
    """PyTreeCheckpointer restores the names, the shapes and the bits that were written, and the metadata."""
    wanted = support.sample(KNOWN)
    path = written(tmp_path / "a.orbax", support.contents(wanted, metadata={"note": "ünï"}))
    with ocp.PyTreeCheckpointer() as saver:
        found = saver.restore(path)
        assert saver.metadata(path).item_metadata.custom_metadata == {"note": "ünï"}
    assert set(found) == set(wanted)
    for name, array in wanted.items():
        assert support.same_bits(np.asarray(found[name]), array)
    with ocp.StandardCheckpointer() as saver:
        assert set(saver.restore(path)) == set(wanted)


def test_every_dtype_of_tensorstore_is_declared():
    """What tensorstore can hold, and tensorferry convert, is what the format declares; old ones lack two of them."""
    assert FORMAT.dtypes >= KNOWN
    assert FORMAT.dtypes - KNOWN <= {"float4_e2m1fn", "float8_e8m0fnu"}
    for name in KNOWN:
        assert of_numpy(tensorstore.dtype(name).numpy_dtype) == name


def test_a_dtype_that_the_installed_library_lacks_is_refused(monkeypatch):
    """An older tensorstore has fewer dtypes: they are refused before anything is written."""
    monkeypatch.setattr("tensorferry.files.formats.orbax.is_known", lambda dtype: dtype != "int4")
    with pytest.raises(FormatLimitError, match="no int4: narrow"):
        refuse_contents(
            FORMAT, support.contents({"narrow": support.awkward("int4"), "wide": np.ones(2)})
        )


def test_keeps_every_bit_the_order_and_the_metadata(tmp_path):
    """Names, order, shapes, bits and strings come back, whatever the names are."""
    wanted = dict(sorted(support.sample(KNOWN).items(), key=lambda item: item[0][::-1]))
    wanted |= {
        name: np.array([n])
        for n, name in enumerate(["a/b", "a", "a/0", "../x", "ü n%20ï", "a.b", "//", "'q'"])
    }
    strings = {
        "b": "plain",
        "a": '{"orbax.json":1}',
        "c": '{"orbax.json":"x"}',
        "d": '{"orbax.json":',
        "": "\n",
    }
    found = FORMAT.read(
        written(tmp_path / "sp ace%20#ü", support.contents(wanted, metadata=strings))
    )
    assert support.same_bits(support.arrays(found), wanted)
    assert found.metadata == strings
    assert sorted(each.name for each in tmp_path.iterdir()) == ["sp ace%20#ü"]


def test_trees_of_orbax_come_back(ocp, tmp_path):
    """Nesting, numbers, strings, None and empty containers are the tree; its names are the keys joined."""
    import jax.numpy as jnp

    tree = {
        "b": {
            "c": [np.ones(3, ml_dtypes.bfloat16), jnp.arange(4, dtype=jnp.int8)],
            "step": 7,
            "name": "ünï",
        },
        "a": np.zeros((2, 3), np.float32),
        "rest": {
            "none": None,
            "dict": {},
            "list": [],
            "lr": 0.1,
            "on": True,
            "many": [np.full(1, n) for n in range(12)],
        },
    }
    with ocp.PyTreeCheckpointer() as saver:
        saver.save(tmp_path / "a", tree)
    found = FORMAT.read(tmp_path / "a")
    many = [f"rest.many.{n}" for n in range(12)]
    assert set(found.tensors) == {"a", "b.c.0", "b.c.1", *many}
    assert found.tree == {
        "a": Ref("a"),
        "b": {"c": [Ref("b.c.0"), Ref("b.c.1")], "step": 7, "name": "ünï"},
        "rest": {
            "none": None,
            "dict": {},
            "list": [],
            "lr": 0.1,
            "on": True,
            "many": [Ref(name) for name in many],
        },
    }
    assert [found.tensors[name].array().item() for name in many] == list(range(12))
    assert support.same_bits(found.tensors["b.c.0"].array(), np.ones(3, ml_dtypes.bfloat16))


def test_a_tree_that_orbax_can_hold_is_written_as_it_is(ocp, tmp_path):
    """Dicts, lists, numbers and strings are restored by Orbax nested as they were, and read again the same."""
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    tree = {
        "m": {"w": Ref("m.w"), "v": [Ref("m.v.0"), 1]},
        "step": 2**62,
        "lr": 0.1,
        "on": True,
        "s": "ü",
        "n": None,
        "e": {},
    }
    path = written(tmp_path / "a", support.contents({"m.w": array, "m.v.0": array + 1}, tree=tree))
    with ocp.PyTreeCheckpointer() as saver:
        found = saver.restore(path)
    assert support.same_bits(np.asarray(found["m"]["w"]), array)
    assert support.same_bits(np.asarray(found["m"]["v"][0]), array + 1)
    assert (found["m"]["v"][1], found["step"], found["lr"], found["on"], found["s"]) == (
        1,
        2**62,
        0.1,
        True,
        "ü",
    )
    assert (found["n"], found["e"]) == (None, {})
    again = FORMAT.read(path)
    assert again.tree == tree
    assert list(again.tensors) == ["m.w", "m.v.0"]
    assert again.metadata == {}


class Moments(NamedTuple):
    """A named tuple, as optimizers have them."""

    mu: object
    nu: object


WEIGHT = np.arange(6, dtype=np.float32).reshape(2, 3)
TREES = {
    "a tuple": {"t": (WEIGHT, 1, (WEIGHT + 1, 2.5))},
    "a list": {"l": [WEIGHT, 2.5, None, [True]], "many": [np.full(1, n) for n in range(12)]},
    "a named tuple": {"m": Moments(WEIGHT, Moments(1, WEIGHT + 1))},
    "integer keys": {0: WEIGHT, 10: {2: WEIGHT + 1}, -1: 3},
    "other keys": {
        "k": {(1, 2): WEIGHT},
        "f": {1.5: WEIGHT},
        "n": {None: WEIGHT},
        "b": {True: WEIGHT},
    },
    "odd keys": {"": WEIGHT, "a.b": WEIGHT + 1, "a/b": WEIGHT + 2, "a": {"c": WEIGHT + 3}},
    "ties": {"a": WEIGHT, "b": {"c": WEIGHT}},
    "empty containers": {"d": {}, "l": [], "t": (), "w": WEIGHT, "deep": [{}, [()]]},
    "values": {"none": None, "i": -3, "u": 2**64 - 1, "f": float("inf"), "s": "ü", "on": True},
    "scalars": {"f": np.float32(1.5), "i": np.int64(7)},
    "bfloat16": {"w": WEIGHT.astype(ml_dtypes.bfloat16), "zero": np.zeros((), ml_dtypes.bfloat16)},
    "an ordered dict": {"o": OrderedDict(b=WEIGHT, a=1), "d": defaultdict(list, z=WEIGHT)},
    "a list alone": [WEIGHT, (WEIGHT + 1,)],
    "a named tuple alone": Moments(WEIGHT, 1),
    "an array alone": WEIGHT,
    "a number alone": 3,
}


def structure_of(path):
    """What a checkpoint says is at each place, with its kind."""
    entries = json.loads((path / "_METADATA").read_text())["tree_metadata"]
    return {
        (place, tuple((part["key"], part["key_type"]) for part in entry["key_metadata"])): (
            entry["value_metadata"]["value_type"].replace("jax.Array", "np.ndarray"),
            entry["value_metadata"]["skip_deserialize"],
        )
        for place, entry in entries.items()
    }


def arrays_of(path):
    """The arrays in the database of a checkpoint, by the names under which Orbax looks for them."""
    database = tensorstore.KvStore.open(
        {"driver": "ocdbt", "base": {"driver": "file", "path": f"{path}/"}}
    ).result()
    keys = [key.decode() for key in database.list().result()]
    return {key.removesuffix(".zarray") for key in keys if key.endswith(".zarray")}


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_the_structure_is_the_one_that_orbax_writes(ocp, tmp_path, tree):
    """The same places, kinds, names of arrays; Orbax restores the same, without a template and into the tree itself."""
    ferry.save(tree, tmp_path / "ours.orbax", verify=True)
    with ocp.PyTreeCheckpointer() as saver:
        saver.save(tmp_path / "theirs", tree)
        assert structure_of(tmp_path / "ours.orbax") == structure_of(tmp_path / "theirs")
        assert arrays_of(tmp_path / "ours.orbax") == arrays_of(tmp_path / "theirs")
        ours, theirs = saver.restore(tmp_path / "ours.orbax"), saver.restore(tmp_path / "theirs")
        assert repr(ours) == repr(theirs)
        ours, theirs = (
            saver.restore(tmp_path / name, item=tree) for name in ("ours.orbax", "theirs")
        )
        assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_a_tree_comes_back_as_it_was(tmp_path, tree):
    """What Orbax does not tell stands beside it: tuples, keys that are no text, scalars of NumPy."""
    ferry.save(tree, tmp_path / "a.orbax")
    ferry.save(tree, tmp_path / "a.safetensors", metadata={"why": "its tree is exact"})
    found, expected = (ferry.open(tmp_path / name) for name in ("a.orbax", "a.safetensors"))
    assert written_out(found.tree) == written_out(expected.tree)
    assert list(found.tensors) == list(expected.tensors)


def trained():
    """The state of a training with an optimizer of several parts, and a template for it with other values."""
    import jax
    import jax.numpy as jnp
    import optax
    from flax.training.train_state import TrainState

    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
    shared = jnp.ones((2, 3))
    params = {
        "dense": {"kernel": shared, "bias": jnp.arange(3.0, dtype=jnp.bfloat16)},
        "head": shared,
    }
    template = TrainState.create(apply_fn=None, params=params, tx=optimizer)
    return template.apply_gradients(grads=jax.tree.map(jnp.ones_like, params)), template


def test_orbax_restores_a_state_of_training(ocp, tmp_path):
    """Of optax, with parts without a state and an array that is used twice, by each of Orbax's ways; bit for bit."""
    import jax

    state, template = trained()
    held = {"step": state.step, "params": state.params, "opt_state": state.opt_state}
    held["params"]["head"] = held["params"]["dense"]["kernel"]
    report = ferry.save(held, tmp_path / "a.orbax", verify=True)
    assert [line.endswith("params.head is params.dense.kernel.") for line in report.warnings] == [
        True
    ]
    with ocp.PyTreeCheckpointer() as saver:
        ways = [saver.restore(tmp_path / "a.orbax", item=template)]
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as saver:
        ways.append(saver.restore(tmp_path / "a.orbax", args=ocp.args.PyTreeRestore(item=template)))
    with ocp.StandardCheckpointer() as saver:
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, template)
        ways.append(saver.restore(tmp_path / "a.orbax", abstract))
    for restored in ways:
        assert jax.tree.structure(restored) == jax.tree.structure(state)
        for one, other in zip(jax.tree.leaves(restored), jax.tree.leaves(state), strict=True):
            assert support.same_bits(np.asarray(one), np.asarray(other))


@pytest.mark.parametrize(
    "tree",
    [
        {"x": Ref("x", "parameter"), "n": 1},
        {"x": Ref("x", requires_grad=True), "n": 1},
        {"x": Ref("x"), 3: "number"},
        {"x": Ref("x"), "t": (1, 2)},
        {"x": Ref("x"), "b": b"bytes"},
        {"x": Ref("x"), "set": {1, 2}, "c": 1 + 2j, "np": np.complex64(1j)},
        {"x": Ref("x"), "i": 2**64, "on": np.bool_(True), "bf": ml_dtypes.bfloat16(1.5)},
        {"x": Ref("x"), "time": np.datetime64("2020-01-01"), "text": np.str_("x")},
        {"x": Ref("x"), "l": [b"1", b"2"], "kind": Special("dtype", "float32")},
        {"x": Ref("x"), "": 1},
        {"nested": {"x": Ref("x")}},
        [1, Ref("x")],
        Ref("x"),
    ],
)
def test_any_other_tree_comes_back_too(ocp, tmp_path, tree):
    """Names that are no paths, and what Orbax has no form for, which restores the rest in its structure."""
    array = np.arange(6, dtype=np.float32)
    path = written(tmp_path / "a", support.contents({"x": array}, tree=tree))
    found = FORMAT.read(path)
    assert written_out(found.tree) == written_out(tree)
    assert list(found.tensors) == ["x"]
    assert support.same_bits(found.tensors["x"].array(), array)
    with ocp.PyTreeCheckpointer() as saver:
        restored = saver.restore(path)
    leaves = jax_leaves(restored)
    assert any(support.same_bits(np.asarray(leaf), array) for leaf in leaves)
    if isinstance(tree, dict):
        assert set(restored) == set(map(str, tree))


def jax_leaves(tree):
    import jax

    return jax.tree.leaves(tree)


def test_what_orbax_cannot_hold_is_listed(ocp, tmp_path):
    """By its place and its type; Orbax has None there, and tensorferry the value."""
    tree = {"w": WEIGHT, "deep": [1 + 2j, 2**64, b"x"], "ok": 3}
    report = ferry.save(tree, tmp_path / "a.orbax", verify=True)
    (line,) = report.warnings
    assert line.endswith("deep.0 (a complex), deep.1 (an int), deep.2 (a bytes).")
    with ocp.PyTreeCheckpointer() as saver:
        restored = saver.restore(tmp_path / "a.orbax")
    assert (restored["deep"], restored["ok"]) == ([None] * 3, 3)
    assert list(ferry.load(tmp_path / "a.orbax")["deep"]) == tree["deep"]


@pytest.mark.parametrize(
    ("tree", "why"),
    [
        (
            {"a.b": WEIGHT, "a": {"b": WEIGHT + 1}},
            r"'a\.b': those at \['a\.b'\] and \['a'\]\['b'\]",
        ),
        ({"a.b": "x", "a": {"b": "y"}}, "two values under one name"),
        # Orbax drops a slash at the end of an array's name, and restores one of them for both.
        ({"a": WEIGHT, "a/": WEIGHT + 1}, r"'a/': those at \['a'\] and \['a/'\]"),
        ({"a": {"": 1, "/": 2}}, r"'a\./': those at \['a'\]\[''\] and \['a'\]\['/'\]"),
        # It takes the names of strings for JSON pointers, and fails over these.
        ({"a": "x", "a/b": "y"}, r"'a/b': those at \['a'\] and \['a/b'\]"),
        ({"a/b/c": "x", "a/b": "y"}, r"'a/b': those at \['a/b/c'\] and \['a/b'\]"),
        ({"a~1b": "x", "s": {"a~b": "y"}}, r"have ~ .*: 's\.a~b'"),
        ({"/" * 65: "x"}, "more than 64 slashes"),
        ({"x": {1: WEIGHT, "1": WEIGHT}}, "x: the keys 1 and '1' of a dict are both '1'"),
        ({"x": {"\0": 1}}, r"x\.\\x00"),
        ({"x": {"\udc80": 1}}, r"x\.\\udc80"),
    ],
)
def test_names_that_orbax_would_mix_up_are_refused(tmp_path, tree, why):
    """By their places, before anything is written: Orbax itself writes one value over the other."""
    with pytest.raises(FormatLimitError, match=why):
        ferry.save(tree, tmp_path / "a.orbax")
    assert not list(tmp_path.iterdir())


PATHS = {
    "linear/~/w": WEIGHT,
    "linear/": WEIGHT + 1,
    "/": WEIGHT + 2,
    "up": {"/": 3, "": "in it"},
    "linear/note": "a string",
    "linear/other/": "another",
    "~0/~1": "escaped",
    "//": WEIGHT + 4,
}
"""Names with slashes, as Haiku has them, of arrays, numbers and strings."""


def _same_paths(found):
    assert set(found) == set(PATHS)
    assert found["up"] == PATHS["up"]
    for name, value in PATHS.items():
        if isinstance(value, np.ndarray):
            assert support.same_bits(np.asarray(found[name]), value), name
        else:
            assert found[name] == value, name


def test_names_with_slashes_are_where_orbax_has_them(ocp, tmp_path):
    """Orbax restores what was saved, and what Orbax saved is loaded: levels of JSON, paths of arrays."""
    ferry.save(PATHS, tmp_path / "ours.orbax", verify=True)
    with ocp.PyTreeCheckpointer() as saver:
        saver.save(tmp_path / "theirs", PATHS)
        _same_paths(saver.restore(tmp_path / "theirs"))
        _same_paths(saver.restore(tmp_path / "ours.orbax"))
    theirs, ours = (tmp_path / name / "_strings.json" for name in ("theirs", "ours.orbax"))
    assert json.loads(ours.read_text()) == json.loads(theirs.read_text())
    _same_paths(ferry.load(tmp_path / "theirs"))
    _same_paths(ferry.load(tmp_path / "ours.orbax"))


@pytest.mark.parametrize("options", [{}, {"use_zarr3": True}])
def test_names_with_slashes_are_folders_in_folders(ocp, tmp_path, options):
    """In the layout of one folder for each array, as Orbax saves it."""
    wanted = {"linear/~/w": WEIGHT, "linear/b": WEIGHT + 1, "x/": WEIGHT + 2, "a/note": "text"}
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=False, **options)) as saver:
        saver.save(tmp_path / "a", wanted)
    found = ferry.load(tmp_path / "a")
    assert set(found) == set(wanted)
    assert found.pop("a/note") == "text"
    assert all(support.same_bits(array, wanted[name]) for name, array in found.items())


def _told(change):
    def changed(note):
        custom = note["custom_metadata"]
        custom["tensorferry.tree"] = json.dumps(change(json.loads(custom["tensorferry.tree"])))

    return changed


@pytest.mark.parametrize(
    "change",
    [
        lambda tree: {**tree, "more": 1},
        lambda tree: {key: tree[key] for key in tree if key != "n"},
        lambda tree: {**tree, "n": 2},
        lambda tree: {**tree, "n": {"@": "ref"}},
        lambda tree: {**tree, "x": 1},
        lambda tree: {**tree, "t": {"@": "dict", "items": {"0": 1, "1": 2}}},
        lambda tree: {**tree, "x": {"@": "ref", "name": "y"}},
        lambda tree: {"@": "dict", "items": [[1, 1], ["1", 1]]},
        lambda _: [],
    ],
)
def test_a_tree_that_does_not_fit_is_refused(tmp_path, change):
    """If another program changed the checkpoint and kept the string, no other tree is made of the two."""
    tree = {"x": Ref("x"), "y": Ref("y"), "n": 1, "t": (1, 2)}
    path = written(tmp_path / "a", support.contents({"x": WEIGHT, "y": WEIGHT + 1}, tree=tree))
    assert FORMAT.read(path).tree == tree
    _changed(path, _told(change))
    with pytest.raises(FileFormatError, match=r"tensorferry\.tree|describes"):
        FORMAT.read(path)


def test_a_tensor_of_two_names_is_written_twice(ocp, tmp_path):
    """As Orbax does, which has no way to say that they are one."""
    array = np.random.default_rng(7).standard_normal(1 << 10)
    report = ferry.save(
        {"a": array, "b": np.ones(2), "c": array}, tmp_path / "a.orbax", verify=True
    )
    assert report.bytes_written == 2 * array.nbytes + 16
    with ocp.PyTreeCheckpointer() as saver:
        restored = saver.restore(tmp_path / "a.orbax")
    assert all(support.same_bits(np.asarray(restored[name]), array) for name in ("a", "c"))
    found = FORMAT.read(tmp_path / "a.orbax")
    assert list(found.tensors) == ["a", "b", "c"]
    assert found.ties == {}


def test_custom_metadata_of_every_kind_survives_a_journey(ocp, tmp_path):
    """Strings of the custom metadata are metadata; other JSON is kept with a mark, and written back as it was."""
    custom = {
        "s": "text",
        "n": 3,
        "none": None,
        "deep": {"a": [1, 2.5, None]},
        "looks": '{"orbax.json":3}',
    }
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as saver:
        saver.save(
            tmp_path / "a", args=ocp.args.PyTreeSave({"x": np.ones(2)}, custom_metadata=custom)
        )
    found = FORMAT.read(tmp_path / "a")
    assert found.metadata["s"] == "text"
    assert found.metadata["n"] == '{"orbax.json":3}'
    path = written(tmp_path / "b", found)
    assert json.loads((path / "_METADATA").read_text())["custom_metadata"] == custom
    assert FORMAT.read(path).metadata == found.metadata


def test_a_step_of_a_manager_is_read(ocp, tmp_path):
    """The folder of a step is read as the tree in it; other items are listed; the folder of all steps is refused."""
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        args = {
            "state": ocp.args.PyTreeSave({"w": np.ones(3)}),
            "notes": ocp.args.JsonSave({"a": 1}),
        }
        manager.save(1, args=ocp.args.Composite(**args))
        manager.wait_until_finished()
    found = open_path(tmp_path / "run" / "1")
    assert support.same_bits(found.tensors["w"].array(), np.ones(3))
    assert found.others == {"notes": "an item that is no tree of arrays"}
    assert format_of(tmp_path / "run" / "1") is FORMAT
    shutil.copytree(tmp_path / "run" / "1" / "state", tmp_path / "run" / "1" / "more")
    with pytest.raises(FileFormatError, match="more, state"):
        FORMAT.read(tmp_path / "run" / "1")


def test_is_recognised_by_its_files(tmp_path):
    """A folder is known by what is in it, and chosen for writing by its suffix."""
    path = written(tmp_path / "a", support.contents({"x": np.ones(2)}))
    assert format_of(path) is FORMAT
    assert format_for(tmp_path / "x.orbax") is FORMAT
    (tmp_path / "empty").mkdir()
    assert not FORMAT.recognises(tmp_path / "empty", b"")


@pytest.mark.parametrize("chunk", [None, 1 << 20])
def test_arrays_of_many_chunks_are_read(ocp, tmp_path, chunk):
    """An array that Orbax cut into chunks on several axes comes back in order."""
    wanted = np.random.default_rng(7).integers(0, 255, (300, 200, 100), np.uint8)
    save = {"x": ocp.SaveArgs(chunk_byte_size=chunk)}
    with ocp.PyTreeCheckpointer() as saver:
        saver.save(tmp_path / "a", {"x": wanted}, save_args=save)
    found = FORMAT.read(tmp_path / "a").tensors["x"]
    assert support.same_bits(
        np.concatenate([block.copy() for block in found.blocks()]).reshape(wanted.shape), wanted
    )
    assert support.same_bits(found.array(), wanted)


def test_arrays_of_many_boxes_are_written(ocp, tmp_path):
    """An array larger than a box is written in chunks, each of them a run of its rows, which Orbax restores."""
    wanted = np.random.default_rng(7).integers(0, 255, (5, 10_000_003), np.uint8)
    path = written(
        tmp_path / "a", support.contents({"small": np.ones(2), "x": wanted, "after": np.zeros(3)})
    )
    assert support.same_bits(FORMAT.read(path).tensors["x"].array(), wanted)
    with ocp.PyTreeCheckpointer() as saver:
        found = saver.restore(path)
    assert support.same_bits(np.asarray(found["x"]), wanted)
    assert np.asarray(found["after"]).tolist() == [0, 0, 0]


def test_a_checkpoint_of_nothing_is_read(tmp_path):
    """No tensors, and none that have elements, are a checkpoint too."""
    assert FORMAT.read(written(tmp_path / "a", support.contents({}))).tensors == {}
    found = FORMAT.read(written(tmp_path / "b", support.contents({"e": np.zeros((0, 3))})))
    assert support.same_bits(support.arrays(found), {"e": np.zeros((0, 3))})


@pytest.mark.parametrize(
    ("arrays", "named"),
    [
        ({"wide": support.awkward("uint4")}, "wide"),
        ({"a\0": np.zeros(2)}, "a.x00"),
        ({"a\udcff": np.zeros(2)}, "a.udcff"),
    ],
)
def test_refuses_what_the_format_cannot_hold(arrays, named):
    """A dtype that tensorstore has not, or a name that is no key, is refused."""
    with pytest.raises(FormatLimitError, match=named):
        refuse_contents(FORMAT, support.contents(arrays))


def test_a_missing_library_is_named(tmp_path, monkeypatch):
    """Without tensorstore, reading and writing say what to install."""
    path = written(tmp_path / "a", support.contents({"x": np.ones(2)}))
    monkeypatch.setitem(sys.modules, "tensorstore", None)
    with pytest.raises(FrameworkNotInstalledError, match="pip install tensorstore"):
        FORMAT.read(path)
    with pytest.raises(FrameworkNotInstalledError, match="pip install tensorstore"):
        FORMAT.write(support.contents({"x": np.ones(2)}), tmp_path / "b", Pump())
    assert not (tmp_path / "b").exists()


CHILD = """
import sys, tracemalloc; from pathlib import Path; import numpy as np
sys.modules["jax"] = sys.modules["orbax"] = None
from tensorferry.files.base.contents import Contents; from tensorferry.files.base.stored import Extent
from tensorferry.files.base.pump import Pump; from tensorferry.files.formats.orbax import FORMAT as F
def blocks(path): return [each.nbytes for each in F.read(path).tensors["a"].blocks()]
folder = Path(sys.argv[1]); size = 256 << 20
F.write(Contents("m", (), {"a": Extent("uint8", (1 << 20,), str(folder / "values"), 0)}), folder / "warm", Pump())
blocks(folder / "warm")
tracemalloc.start()
F.write(Contents("m", (), {"a": Extent("uint8", (size,), str(folder / "values"), 0)}), folder / "a", Pump())
sizes = blocks(folder / "a")
print(sum(sizes) == size, max(sizes), tracemalloc.get_traced_memory()[1])
"""


def test_needs_neither_jax_nor_the_tensors_size_in_memory(tmp_path):
    """256 MiB are written and read, without JAX and Orbax, in a few boxes' memory."""
    block = np.random.default_rng(7).integers(0, 256, 1 << 22, np.uint8).tobytes()
    with (tmp_path / "values").open("wb") as file:
        for _ in range(64):
            file.write(block)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ},
    )
    complete, largest, heap = done.stdout.split()
    assert complete == "True"
    assert int(largest) <= 8 << 20
    assert int(heap) <= 64 << 20


def _changed(path, change):
    note = json.loads((path / "_METADATA").read_text())
    change(note)
    (path / "_METADATA").write_text(json.dumps(note))


def _entry(note):
    return next(iter(note["tree_metadata"].values()))


def _key(*keys):
    return lambda note: _entry(note).update(
        key_metadata=[{"key": key, "key_type": form} for key, form in keys]
    )


def _and(value, *keys):
    parts = {"key_metadata": [{"key": key, "key_type": form} for key, form in keys]}
    return lambda note: note["tree_metadata"].update(
        more={**parts, "value_metadata": {"value_type": value}}
    )


HOSTILE = {
    "no tree": lambda note: note.pop("tree_metadata"),
    "a tree that is a list": lambda note: note.update(tree_metadata=[1]),
    "an entry that is a number": lambda note: note["tree_metadata"].update(more=3),
    "an entry without keys": lambda note: _entry(note).pop("key_metadata"),
    "keys without types": lambda note: _entry(note).update(key_metadata=[{"key": "x"}]),
    "an array that is not there": _key(("y", 2)),
    "a list without its first item": _key(("x", 2), ("1", 1)),
    "a list with a name": _and("None", ("y", 2), ("one", 1)),
    "a list that is a dict": lambda note: (
        _and("None", ("y", 2), ("0", 1))(note),
        note["tree_metadata"].update(last=note["tree_metadata"].pop("more")),
        _and("None", ("y", 2), ("z", 2))(note),
    ),
    "a value with keys below": _and("None", ("x", 2), ("y", 2)),
    "two values at one place": _and("None", ("x", 2)),
    "keys a thousand deep": _key(*[("x", 2)] * 1000),
    "a string that is not there": _and("string", ("s", 2)),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_hostile_trees_are_refused(tmp_path, change):
    """A tree that contradicts itself or the arrays is refused by a named error."""
    path = written(tmp_path / "a", support.contents({"x": np.ones(2)}))
    _changed(path, change)
    with pytest.raises((FileFormatError, UnsafeFileError)):
        FORMAT.read(path)


@pytest.mark.parametrize(
    "name", ["../secret", "/etc", "..", ".", "", "/", "x/../../secret", "x//y", "./x", "x/."]
)
def test_arrays_cannot_be_asked_for_outside_the_folder(ocp, tmp_path, name):
    """In the layout of one folder for each array, a name that may lead out of it is refused."""
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=False)) as saver:
        saver.save(tmp_path / "a", {"x": np.ones(2)})
    shutil.copytree(tmp_path / "a" / "x", tmp_path / "secret")
    _changed(tmp_path / "a", _key((name, 2)))
    with pytest.raises(UnsafeFileError, match="no name in its folder"):
        FORMAT.read(tmp_path / "a")


@pytest.mark.parametrize(
    "text", [b"", b"[1]", b"{", b"\xff", b'{"tree_metadata": ' + b"[" * 100_000]
)
def test_metadata_that_is_no_json_is_refused(tmp_path, text):
    """A broken _METADATA is refused by name."""
    path = written(tmp_path / "a", support.contents({"x": np.ones(2)}))
    (path / "_METADATA").write_bytes(text)
    with pytest.raises(FileFormatError, match="_METADATA"):
        FORMAT.read(path)


def test_values_of_an_unknown_kind_are_listed(tmp_path):
    """A value that Orbax's own handlers do not write stands among what cannot be converted."""
    path = written(tmp_path / "a", support.contents({"x": np.ones(2)}))
    _changed(path, _and("my.Handler", ("y", 2)))
    assert FORMAT.read(path).others == {"y": "a value of type my.Handler"}


def test_damaged_databases_raise_nothing_but_named_errors(tmp_path):
    """A file of the database that is cut off or changed gives a named error, or an array of the same shape."""
    wanted = np.arange(4096, dtype=np.float32)
    path = written(tmp_path / "whole", support.contents({"x": wanted}))
    draw = random.Random(7)  # noqa: S311 - a drawn test, no secret
    refused = 0
    for round_ in range(120):
        shutil.copytree(path, tmp_path / "a")
        files = sorted(
            each
            for each in (tmp_path / "a").rglob("*")
            if each.is_file() and "METADATA" not in each.name
        )
        victim = draw.choice(files)
        data = bytearray(victim.read_bytes())
        if round_ % 2:
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        else:
            data = data[: draw.randrange(len(data))]
        victim.write_bytes(data)
        try:
            found = FORMAT.read(tmp_path / "a").tensors["x"].array()
        except (FileFormatError, UnsafeFileError):
            refused += 1
        else:
            assert found.shape == wanted.shape
        shutil.rmtree(tmp_path / "a")
    assert refused > 40


def test_an_unfinished_checkpoint_is_refused(tmp_path):
    """Without its manifest a database is not there; with a damaged one it is not opened."""
    path = written(tmp_path / "a", support.contents({"x": np.ones(2)}))
    manifest = path / "manifest.ocdbt"
    data = manifest.read_bytes()
    for at in range(len(data)):
        for damaged in (data[:at], bytes([*data[:at], data[at] ^ 4, *data[at + 1 :]])):
            manifest.write_bytes(damaged)
            with pytest.raises(FileFormatError, match=r"manifest\.ocdbt"):
                FORMAT.read(path)
    (path / "manifest.ocdbt").unlink()
    with pytest.raises(FileFormatError, match="not finished"):
        FORMAT.read(path)


def test_shapes_out_of_all_proportion_are_refused(tmp_path):
    """A chunk of more bytes than are read is refused before anything of its size is made."""
    path = written(tmp_path / "a", support.contents({"x": np.ones(2)}))
    place = {"driver": "ocdbt", "base": {"driver": "file", "path": f"{path}/"}}
    database = tensorstore.KvStore.open(place).result()
    note = json.loads(database.read("x/.zarray").result().value)
    database.write(
        "x/.zarray", json.dumps({**note, "shape": [2**50], "chunks": [2**50]}).encode()
    ).result()
    with pytest.raises(UnsafeFileError, match="chunks of"):
        FORMAT.read(path)
    database.write(
        "x/.zarray", json.dumps({**note, "shape": [2**62] * 3, "chunks": [1] * 3}).encode()
    ).result()
    with pytest.raises(FileFormatError, match="'x'"):
        FORMAT.read(path)


def test_no_warning_is_raised(tmp_path):
    """Reading and writing are silent."""
    tensors = {"x": InMemory(np.ones(2), "float64", 0), "y": Extent("uint8", (4,), __file__, 0)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(FORMAT.read(written(tmp_path / "a", Contents("m", (), tensors))).tensors) == 2


def test_only_the_checkpoint_is_its_own(ocp, tmp_path):
    """All that is written here or by Orbax, in each of its layouts, is its own; other files are not, however deep."""
    held = {"w": np.ones((3, 2), np.float32), "n": np.arange(4)}
    tree = {"state": {"w": Ref("state.w")}, "name": "x", "step": 3}
    arrays = {"state.w": held["w"]}
    written(tmp_path / "ours", support.contents(arrays, tree=tree))
    for number, options in enumerate(
        [{}, {"use_ocdbt": False}, {"use_zarr3": True}, {"use_ocdbt": False, "use_zarr3": True}]
    ):
        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**options)) as saver:
            saver.save(tmp_path / f"theirs{number}", held)
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        manager.save(7, args=ocp.args.StandardSave(held))
    for path in (*tmp_path.glob("*ours"), *tmp_path.glob("theirs*"), tmp_path / "run" / "7"):
        own = sorted(each.name for each in path.iterdir())
        assert sorted(FORMAT.own_entries(path)) == own
        (path / "train.py").write_text("")
        assert sorted(FORMAT.own_entries(path)) == own
    (tmp_path / "ours" / "d" / "mine.txt").write_text("")
    assert "d" not in FORMAT.own_entries(tmp_path / "ours")


def test_the_tree_of_keys_is_read_once(tmp_path):
    """A database's node is not read again for each array, or time would grow with the square of their number."""
    values = {f"layer.{number}.weight": np.full(3, number, "f4") for number in range(600)}
    read = files_read()
    ferry.save(values, tmp_path / "a.orbax")
    database = tmp_path / "a.orbax" / "d"
    manifest = (tmp_path / "a.orbax" / "manifest.ocdbt").stat().st_size
    held = sum(each.stat().st_size for each in database.iterdir())
    assert files_read() - read < held + 100 * manifest

    found = FORMAT.read(tmp_path / "a.orbax")
    read = files_read()
    assert all(np.array_equal(found.tensors[name].load(), each) for name, each in values.items())
    assert files_read() - read < held + len(values) * 2 * manifest


def files_read():
    """How many bytes tensorstore has read from files."""
    found = tensorstore.experimental_collect_matching_metrics(
        "/tensorstore/kvstore/file/bytes_read"
    )
    return sum(each["value"] for metric in found for each in metric["values"])
