"""Flax msgpack: `flax.serialization` reads what is written, and what it writes is read, without Flax."""

from __future__ import annotations

import subprocess
import sys
from collections import OrderedDict, defaultdict
from typing import NamedTuple

import ml_dtypes
import msgpack
import numpy as np
import pytest
from tests.files.support import arrays, contents, same_bits, sample

import tensorferry as ferry
from tensorferry.core.dtypes import DTYPES
from tensorferry.errors import FileFormatError, FormatLimitError, UnsafeFileError
from tensorferry.files.base.contents import Ref
from tensorferry.files.base.limits import refuse_contents
from tensorferry.files.base.pump import Pump
from tensorferry.files.base.stored import Extent
from tensorferry.files.formats import flax as module
from tensorferry.files.formats.flax import FORMAT
from tensorferry.files.opening.paths import format_of

serialization = pytest.importorskip("flax.serialization", reason="Flax is not installed")


def written(path, held):
    held = FORMAT.as_held(held)
    refuse_contents(FORMAT, held)
    FORMAT.write(held, path, Pump())
    return FORMAT.read(path)


def packed(*values):
    """An extension of Flax's as bytes."""
    return msgpack.ExtType(1, msgpack.packb(values))


def read(path, raw):
    path.write_bytes(raw)
    return FORMAT.read(path)


def test_none_alone_is_not_an_empty_dict(tmp_path):
    """As Flax writes it."""
    (tmp_path / "a.msgpack").write_bytes(serialization.to_bytes(None))
    assert ferry.load(tmp_path / "a.msgpack") is None


def test_every_dtype_round_trips(tmp_path):
    """Each dtype of the table is declared, comes back bit for bit, and is not copied to be looked at."""
    assert FORMAT.dtypes == set(DTYPES)
    held = sample()
    found = written(tmp_path / "all.msgpack", contents(held))
    assert same_bits(arrays(found), held)
    assert found.tree is None
    assert all(isinstance(stored, Extent) for stored in found.tensors.values())


def test_flax_reads_and_writes_the_same_bytes(tmp_path):
    """A mapping of tensors of every dtype is the file that Flax writes, byte for byte, and Flax reads its bits."""
    held = dict(sorted(sample().items()))
    written(tmp_path / "all.msgpack", contents(held))
    raw = (tmp_path / "all.msgpack").read_bytes()
    assert raw == serialization.msgpack_serialize(dict(held))
    assert same_bits(serialization.msgpack_restore(raw), held)


def test_a_state_of_flax_keeps_its_nesting(tmp_path):
    """Nested dicts and lists, scalars of NumPy and plain values stay as they are, here and in Flax."""
    kernel, bias = np.arange(6.0).reshape(2, 3), np.ones(3, "f2")
    state = {
        "params": {"dense": {"kernel": kernel, "bias": bias}},
        "step": np.int32(7),
        "values": [
            1,
            -1,
            127,
            128,
            -33,
            2**40,
            -(2**40),
            2**64 - 1,
            None,
            True,
            2.5,
            "text",
            "x" * 300,
            b"raw",
            1 + 2j,
        ],
        "list": [bias * 2],
    }
    (tmp_path / "state.msgpack").write_bytes(serialization.msgpack_serialize(state))
    found = FORMAT.read(tmp_path / "state.msgpack")
    expected = {
        "params.dense.kernel": kernel,
        "params.dense.bias": bias,
        "step": np.array(7, "i4"),
        "list.0": bias * 2,
    }
    assert same_bits(dict(sorted(arrays(found).items())), dict(sorted(expected.items())))
    assert found.tree["values"] == state["values"]
    assert found.tree["params"]["dense"]["kernel"] == Ref("params.dense.kernel")
    assert found.tree["step"] == Ref("step", "scalar")

    again = written(tmp_path / "again.msgpack", found)
    held = serialization.msgpack_restore(
        (tmp_path / "state.msgpack").read_bytes()
    )  # which are sorted there
    assert (tmp_path / "again.msgpack").read_bytes() == serialization.to_bytes(held)
    assert same_bits(arrays(again), arrays(found))
    restored = serialization.from_bytes(state, (tmp_path / "again.msgpack").read_bytes())
    assert restored["values"] == state["values"]
    assert isinstance(restored["step"], np.int32)
    assert same_bits(restored["params"]["dense"]["kernel"], kernel)


class Moments(NamedTuple):
    """A named tuple, as optimizers have them."""

    mu: object
    nu: object


class Empty(NamedTuple):
    """One without fields, as optimizers have for no state."""


WEIGHT = np.arange(6, dtype=np.float32).reshape(2, 3)
TREES = {
    "a tuple": {"t": (WEIGHT, 1, (WEIGHT + 1, "x"))},
    "a list": {"l": [WEIGHT, 2.5, None, [True]]},
    "a named tuple": {"m": Moments(WEIGHT, Moments(1, WEIGHT + 1))},
    "integer keys": {0: WEIGHT, 1: {2: WEIGHT + 1, "x": 3}},
    "other keys": {None: WEIGHT, 1.5: WEIGHT + 1, (1, 2): WEIGHT + 2, b"k": 1},
    "ties": {"a": WEIGHT, "b": {"c": WEIGHT}},
    "empty containers": {"d": {}, "l": [], "t": (), "n": Empty(), "w": WEIGHT},
    "values": {
        "none": None,
        "i": -3,
        "u": 2**64 - 1,
        "f": float("inf"),
        "c": 1 + 2j,
        "b": b"x",
        "s": "ü",
        "on": True,
    },
    "scalars": {
        "f": np.float32(1.5),
        "i": np.int64(7),
        "b": np.bool_(True),
        "bf": ml_dtypes.bfloat16(1.5),
    },
    "bfloat16": {"w": WEIGHT.astype(ml_dtypes.bfloat16), "zero": np.zeros((), ml_dtypes.bfloat16)},
    "a list alone": [WEIGHT, (WEIGHT + 1,)],
    "a named tuple alone": Moments(WEIGHT, 1),
    "an array alone": WEIGHT,
    "a number alone": 3,
    "nothing": None,
}


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_what_is_saved_is_what_flax_writes(tmp_path, tree):
    """Byte for byte, and so restored by Flax into the tree itself."""
    ferry.save(tree, tmp_path / "a.msgpack", verify=True)
    raw = (tmp_path / "a.msgpack").read_bytes()
    assert raw == serialization.to_bytes(tree)
    assert repr(serialization.from_bytes(tree, raw)) == repr(tree)


def trained():
    """The state of a training with an optimizer of several parts, and a template for it with other values."""
    import jax
    import jax.numpy as jnp
    import optax
    from flax.training.train_state import TrainState

    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
    params = {"dense": {"kernel": jnp.ones((2, 3)), "bias": jnp.arange(3.0, dtype=jnp.bfloat16)}}
    template = TrainState.create(apply_fn=None, params=params, tx=optimizer)
    return template.apply_gradients(grads=jax.tree.map(jnp.ones_like, params)), template


def test_flax_restores_a_state_of_training(tmp_path):
    """Of optax, with a chain and parts without a state, into another state of the same model; bit for bit."""
    import jax

    state, template = trained()
    held = {"step": state.step, "params": state.params, "opt_state": state.opt_state}
    report = ferry.save(held, tmp_path / "state.msgpack", verify=True)
    raw = (tmp_path / "state.msgpack").read_bytes()
    assert raw == serialization.to_bytes(state)
    restored = serialization.from_bytes(template, raw)
    assert jax.tree.structure(restored) == jax.tree.structure(state)
    for one, other in zip(jax.tree.leaves(restored), jax.tree.leaves(state), strict=True):
        assert same_bits(np.asarray(one), np.asarray(other))
    assert "opt_state.1.0.mu.dense.kernel" in ferry.open(tmp_path / "state.msgpack").tensors
    (line,) = report.warnings
    assert line.endswith(
        "lists and tuples became dicts of their positions (opt_state, opt_state.1)."
    )


def test_what_flax_has_no_place_for_is_listed(tmp_path):
    """Each change of form, with some of its places, by save and by convert; the second also in a rehearsal."""
    import torch

    state = OrderedDict(w=torch.nn.Parameter(torch.ones(3)))
    state._metadata = {"": {"version": 1}}
    tree = {
        "model": state,
        3: (1, 2),
        "many": [[n] for n in range(9)],
        "d": defaultdict(list),
        "n": np.float32(2),
    }
    torch.save(tree, tmp_path / "a.pt")
    reports = [
        ferry.save(tree, tmp_path / "saved.msgpack"),
        ferry.convert_files(tmp_path / "a.pt", tmp_path / "made.msgpack", dry_run=True),
        ferry.convert_files(tmp_path / "a.pt", tmp_path / "made.msgpack", verify=True),
    ]
    for report in reports:
        told = " ".join(report.warnings)
        assert (
            "lists and tuples became dicts of their positions (3, many, many.0 and 8 more)" in told
        )
        assert "keys became text (3)" in told
        assert "defaultdicts became dicts (d)" in told
        assert "attributes of OrderedDicts were left out (model)" in told
    assert reports[1].warnings == reports[2].warnings
    assert "parameters, storages and arrays became tensors (model.w)" in " ".join(
        reports[2].warnings
    )
    assert "requires_grad was left out (model.w)" in " ".join(reports[2].warnings)
    restored = serialization.msgpack_restore((tmp_path / "made.msgpack").read_bytes())
    assert set(restored) == {"model", "3", "many", "d", "n"}
    assert same_bits(restored["model"]["w"], np.ones(3, "f4"))
    assert restored["3"] == {"0": 1, "1": 2}


@pytest.mark.parametrize(
    ("tree", "why"),
    [
        ({"deep": [2**64]}, r"deep\.0 \(an integer of 65 bits\)"),
        ({"low": -(2**63) - 1}, "low"),
        (
            {"kind": np.datetime64("2020-01-01"), "text": np.str_("x")},
            r"kind \(a datetime64\), text \(a str_\)",
        ),
        ({"bad": "\udc80"}, "bad"),
        ({"x": {"__msgpack_chunked_array__": WEIGHT}}, r"x\.__msgpack_chunked_array__"),
        ({"x": {"\udc80": 1}}, r"x\..udc80"),
        ({"x": {1: WEIGHT, "1": WEIGHT}}, "x: the keys 1 and '1' of a dict are both '1'"),
    ],
)
def test_what_flax_cannot_hold_is_refused(tmp_path, tree, why):
    """By its place, before anything is written."""
    with pytest.raises(FormatLimitError, match=why):
        ferry.save(tree, tmp_path / "a.msgpack")
    assert not list(tmp_path.iterdir())


def test_metadata_has_no_place(tmp_path):
    """Flax would take it for a part of the tree."""
    with pytest.raises(FormatLimitError, match="no place for metadata: note"):
        ferry.save({"w": WEIGHT}, tmp_path / "a.msgpack", metadata={"note": "x"})


@pytest.mark.parametrize("dtype", ["float32", "complex128", "bfloat16", "uint8"])
def test_large_arrays_are_in_chunks_as_in_flax(tmp_path, monkeypatch, dtype):
    """Arrays above Flax's limit are split as Flax splits them, both ways."""
    held = {"x": sample([dtype])[f"{dtype}.flat"][:250].reshape(10, -1), "y": np.ones(2, "u1")}
    monkeypatch.setattr(module, "_MOST_CHUNK", 100)
    monkeypatch.setattr(serialization, "MAX_CHUNK_SIZE", 100)
    found = written(tmp_path / "big.msgpack", contents(held))
    assert same_bits(arrays(found), held)
    raw = (tmp_path / "big.msgpack").read_bytes()
    assert b"__msgpack_chunked_array__" in raw
    assert raw == serialization.msgpack_serialize(dict(held))
    assert same_bits(serialization.msgpack_restore(raw), held)


def test_a_lone_array_is_one_tensor(tmp_path):
    """A file that is one array, without a dict around it, stays so."""
    found = read(tmp_path / "one.msgpack", serialization.msgpack_serialize(np.arange(3)))
    assert same_bits(arrays(found), {"tensor": np.arange(3)})
    assert found.tree == Ref("tensor")
    written(tmp_path / "two.msgpack", found)
    assert (tmp_path / "two.msgpack").read_bytes() == (tmp_path / "one.msgpack").read_bytes()


def test_what_is_no_tensor_is_listed(tmp_path):
    """Arrays of strings and extensions of others are named with the reason."""
    raw = msgpack.packb(
        {
            "a": packed([1], "str32", b"abcd"),
            "b": msgpack.ExtType(9, b"x"),
            "c": packed([1], "int8", b"1"),
        }
    )
    found = read(tmp_path / "odd.msgpack", raw)
    assert list(found.tensors) == ["c"]
    assert "str32" in found.others["a"]
    assert "type 9" in found.others["b"]


HOSTILE = {
    "empty": b"",
    "too few bytes": msgpack.packb({"a": packed([2], "float32", b"1234")}),
    "too many bytes": msgpack.packb({"a": packed([1], "float32", b"12345678")}),
    "negative length": msgpack.packb({"a": packed([-1, -1], "int8", b"1")}),
    "overflowing shape": msgpack.packb({"a": packed([2**40, 2**40], "int8", b"")}),
    "shape of floats": msgpack.packb({"a": packed([1.0], "int8", b"1")}),
    "shape of bools": msgpack.packb({"a": packed([True], "int8", b"1")}),
    "no shape": msgpack.packb({"a": packed(None, "int8", b"1")}),
    "many axes": msgpack.packb({"a": packed([1] * 100, "int8", b"1")}),
    "no dtype": msgpack.packb({"a": packed([1], 7, b"1")}),
    "bytes after the array": msgpack.packb(
        {"a": msgpack.ExtType(1, msgpack.packb([[1], "int8", b"1"]) + b"x")}
    ),
    "bytes after the value": msgpack.packb({"a": 1}) + b"x",
    "twice the same key": b"\x82\xa1a\x01\xa1a\x02",
    "a map of 2**32": b"\xdf\xff\xff\xff\xff\x01",
    "an extension of 2**32": b"\x81\xa1a\xc9\xff\xff\xff\xff\x01",
    "reserved byte": b"\x91\xc1",
    "no UTF-8": b"\x91\xa1\xff",
    "an array for a key": b"\x81\x90\x01",
    "half a complex number": msgpack.packb({"a": msgpack.ExtType(2, msgpack.packb([1.0]))}),
    "chunks that do not fit": msgpack.packb(
        {
            "a": {
                "__msgpack_chunked_array__": True,
                "shape": {"0": 5},
                "chunks": {"0": packed([1], "int8", b"1")},
            }
        }
    ),
    "chunks that are none": msgpack.packb(
        {"a": {"__msgpack_chunked_array__": True, "shape": {}, "chunks": {}}}
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_are_refused(tmp_path, case):
    """Whatever does not add up is a named error, found from the header."""
    with pytest.raises(FileFormatError, match=r"hostile\.msgpack"):
        read(tmp_path / "hostile.msgpack", HOSTILE[case])


@pytest.mark.parametrize("begin", [b"\x91", b"\x81\xa1a"])
def test_deep_nesting_is_refused(tmp_path, begin):
    """A hundred thousand levels are refused, not followed."""
    with pytest.raises(UnsafeFileError, match="deeper"):
        read(tmp_path / "deep.msgpack", begin * 100_000 + b"\x01")


def test_every_cut_is_refused(tmp_path):
    """A file that ends anywhere before its end is refused."""
    raw = serialization.msgpack_serialize({"a": np.arange(9), "b": {"c": [1.5, "text", 2**40]}})
    for length in range(len(raw)):
        with pytest.raises(FileFormatError):
            read(tmp_path / "cut.msgpack", raw[:length])


def test_reserved_names_are_refused():
    """Tensors whose names mean something else in the file are refused by name."""
    for name in ("__msgpack_chunked_array__", "\udc80"):
        with pytest.raises(FormatLimitError):
            FORMAT.as_held(contents({name: np.ones(2)}))


def test_a_file_is_known_by_suffix_and_first_byte(tmp_path):
    """There are no magic bytes: the suffix and a first byte that fits."""
    assert not FORMAT.recognises(tmp_path / "x.msgpack", b"hello")
    assert not FORMAT.recognises(tmp_path / "x.bin", b"\x81")
    written(tmp_path / "x.msgpack", contents({"x": np.ones(2)}))
    assert format_of(tmp_path / "x.msgpack") is FORMAT


@pytest.mark.parametrize("value", ["a", 1, -3, 2.5, True], ids=repr)
def test_a_value_alone_is_read_again(tmp_path, value):
    """Its first byte could be one of any file, so the name decides."""
    ferry.save(value, tmp_path / "x.msgpack")
    assert ferry.load(tmp_path / "x.msgpack") == value


def test_neither_flax_nor_jax_is_imported(tmp_path):
    """Reading and writing import no framework and no MessagePack library."""
    code = """
import sys
import numpy as np
from pathlib import Path
from tensorferry.files.base.contents import Contents
from tensorferry.files.base.pump import Pump
from tensorferry.files.base.stored import InMemory
from tensorferry.files.formats.flax import FORMAT
path = Path(sys.argv[1])
FORMAT.write(Contents("memory", (), {"x": InMemory(np.ones(3), "float64", 0)}), path, Pump())
assert FORMAT.read(path).tensors["x"].array().sum() == 3
print(sorted({"flax", "jax", "msgpack"} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "x.msgpack")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
