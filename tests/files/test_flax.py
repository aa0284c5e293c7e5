"""Flax msgpack: `flax.serialization` reads what is written, and what it writes is read, without Flax."""

from __future__ import annotations

import subprocess
import sys

import msgpack
import numpy as np
import pytest
from tests.files.support import arrays, contents, same_bits, sample

import tensorferry as ferry
from tensorferry.core.dtypes import DTYPES
from tensorferry.errors import FileFormatError, FormatLimitError, UnsafeFileError
from tensorferry.files.base.contents import Ref
from tensorferry.files.base.pump import Pump
from tensorferry.files.base.stored import Extent
from tensorferry.files.formats import flax as module
from tensorferry.files.formats.flax import FORMAT
from tensorferry.files.opening.registry import format_of

serialization = pytest.importorskip("flax.serialization", reason="Flax is not installed")


def written(path, held):
    FORMAT.refuse(held)
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
    expected = {"params.dense.kernel": kernel, "params.dense.bias": bias, "step": np.array(7, "i4"), "list.0": bias * 2}
    assert same_bits(dict(sorted(arrays(found).items())), dict(sorted(expected.items())))
    assert found.tree["values"] == state["values"]
    assert found.tree["params"]["dense"]["kernel"] == Ref("params.dense.kernel")
    assert found.tree["step"] == Ref("step", "scalar")

    again = written(tmp_path / "again.msgpack", found)
    assert again.tree == found.tree
    assert same_bits(arrays(again), arrays(found))
    restored = serialization.msgpack_restore((tmp_path / "again.msgpack").read_bytes())
    assert restored["values"] == state["values"]
    assert isinstance(restored["step"], np.int32)
    assert same_bits(restored["params"]["dense"]["kernel"], kernel)


def test_what_flax_has_no_place_for_is_kept_beside(tmp_path):
    """Ties, metadata, tuples and gradients come back; the tensors stand under their names for Flax."""
    shared = np.ones(3)
    tree = {"w": Ref("w", "parameter", requires_grad=True), "pair": (Ref("pair.0"), 1)}
    held = contents({"w": shared, "pair.0": shared}, metadata={"format": "pt", "pair.0": "w"}, tree=tree)
    found = written(tmp_path / "odd.msgpack", held)
    assert found.tree == tree
    assert found.metadata == {"format": "pt", "pair.0": "w"}
    assert found.ties == {"pair.0": "w"}
    restored = serialization.msgpack_restore((tmp_path / "odd.msgpack").read_bytes())
    assert same_bits(restored["w"], shared)
    assert set(restored) == {"w", "__tensorferry__"}


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
        {"a": packed([1], "str32", b"abcd"), "b": msgpack.ExtType(9, b"x"), "c": packed([1], "int8", b"1")}
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
    "bytes after the array": msgpack.packb({"a": msgpack.ExtType(1, msgpack.packb([[1], "int8", b"1"]) + b"x")}),
    "bytes after the value": msgpack.packb({"a": 1}) + b"x",
    "twice the same key": b"\x82\xa1a\x01\xa1a\x02",
    "a map of 2**32": b"\xdf\xff\xff\xff\xff\x01",
    "an extension of 2**32": b"\x81\xa1a\xc9\xff\xff\xff\xff\x01",
    "reserved byte": b"\x91\xc1",
    "no UTF-8": b"\x91\xa1\xff",
    "an array for a key": b"\x81\x90\x01",
    "half a complex number": msgpack.packb({"a": msgpack.ExtType(2, msgpack.packb([1.0]))}),
    "chunks that do not fit": msgpack.packb(
        {"a": {"__msgpack_chunked_array__": True, "shape": {"0": 5}, "chunks": {"0": packed([1], "int8", b"1")}}}
    ),
    "chunks that are none": msgpack.packb({"a": {"__msgpack_chunked_array__": True, "shape": {}, "chunks": {}}}),
    "text that is no tree": msgpack.packb({"__tensorferry__": {"tensorferry.tree": "{"}}),
    "text of another type": msgpack.packb({"__tensorferry__": 5}),
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
    for name in ("__tensorferry__", "__msgpack_chunked_array__", "\udc80"):
        with pytest.raises(FormatLimitError):
            FORMAT.refuse(contents({name: np.ones(2)}))


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
        [sys.executable, "-c", code, str(tmp_path / "x.msgpack")], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
