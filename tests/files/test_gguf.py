"""GGUF: read as the gguf library writes it, written as that library reads it, and no claim of a file believed."""

from __future__ import annotations

import importlib.util
import json
import random
import struct
import sys
import tracemalloc
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tensorferry as ferry
from tensorferry.errors import (
    FileFormatError,
    FormatLimitError,
    FrameworkNotInstalledError,
    UnsafeFileError,
)
from tensorferry.files.base.contents import Contents, Ref, blocks_of
from tensorferry.files.base.limits import refuse_contents
from tensorferry.files.base.pump import Pump
from tensorferry.files.base.stored import Extent, InMemory
from tensorferry.files.formats.gguf import FORMAT
from tensorferry.files.opening.paths import format_for, format_of

gguf = pytest.importorskip("gguf", reason="the gguf library is not installed")
_spec = importlib.util.spec_from_file_location(
    "files_support", Path(__file__).with_name("support.py")
)
support = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(support)


def written(path, contents):
    refuse_contents(FORMAT, contents)
    FORMAT.write(contents, path, Pump())
    return path


def sample():
    """Every dtype in every shape that the format holds; it has no bfloat16 without axes."""
    return {
        name: array
        for name, array in support.sample(FORMAT.dtypes).items()
        if name != "bfloat16.scalar"
    }


def library_writes(path, arrays, fill=lambda writer: None, **options):
    """A file by gguf.GGUFWriter, which knows bfloat16 only as bytes."""
    writer = gguf.GGUFWriter(path, "test", **options)
    fill(writer)
    for name, array in arrays.items():
        if array.dtype.name == "bfloat16":
            writer.add_tensor(name, array.view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def fields(path):
    """The keys of a file, their types and values, as the library sees them."""
    reader = gguf.GGUFReader(path)
    return {
        key: (field.types, [part.tobytes() for part in field.parts[3:]])
        for key, field in reader.fields.items()
        if not key.startswith("GGUF.") and key != "general.alignment"
    }


def test_reads_every_dtype_that_the_library_writes(tmp_path):
    """What GGUFWriter wrote is read with its names, shapes and bits."""
    wanted = {k: v for k, v in sample().items() if k.endswith(("flat", "matrix"))}
    found = FORMAT.read(library_writes(tmp_path / "a.gguf", wanted))
    assert support.same_bits(support.arrays(found), wanted)


def test_the_library_reads_every_dtype_that_is_written(tmp_path):
    """GGUFReader finds the names, the shapes and the bits that were written, each tensor at an aligned place."""
    wanted = sample()
    reader = gguf.GGUFReader(written(tmp_path / "a.gguf", support.contents(wanted)))
    assert [tensor.name for tensor in reader.tensors] == list(wanted)
    for tensor in reader.tensors:
        array = wanted[tensor.name]
        assert tuple(reversed(tensor.shape.tolist())) == array.shape
        assert tensor.data.tobytes() == array.tobytes()
        assert tensor.data_offset % 64 == 0
        assert tensor.tensor_type.name == {"bfloat16": "BF16"}.get(
            array.dtype.name, f"{array.dtype.kind.upper()}{8 * array.dtype.itemsize}"
        )


def test_keeps_every_bit_and_the_order(tmp_path):
    """Names, order, shapes, bits and metadata come back."""
    wanted = sample()
    wanted = dict(sorted(wanted.items(), key=lambda item: item[0][::-1]))
    strings = {"format": "pt", "ünï": "línes\nand \0", "empty": ""}
    path = written(tmp_path / "a.gguf", support.contents(wanted, metadata=strings))
    found = FORMAT.read(path)
    assert support.same_bits(support.arrays(found), wanted)
    assert found.metadata == strings
    assert found.tree is None


def test_is_recognised_by_its_magic_bytes(tmp_path):
    """A file is known by its first bytes whatever its name, and chosen for writing by its suffix."""
    path = written(tmp_path / "model.bin", support.contents({"a": np.zeros(2, np.float32)}))
    assert format_of(path) is FORMAT
    assert format_for(tmp_path / "x.gguf") is FORMAT


def test_keys_of_every_type_survive_a_journey(tmp_path):
    """Each key-value pair that the library wrote is metadata, and is written back with the same type and bytes."""

    def fill(writer):
        kinds = gguf.GGUFValueType
        for kind, value in [
            (kinds.UINT8, 255), (kinds.INT8, -128), (kinds.UINT16, 65535), (kinds.INT16, -32768),
            (kinds.UINT32, 2**32 - 1), (kinds.INT32, -(2**31)), (kinds.UINT64, 2**64 - 1), (kinds.INT64, -(2**63)),
            (kinds.FLOAT32, 0.1), (kinds.FLOAT64, 0.1), (kinds.BOOL, True), (kinds.STRING, "plain"),
        ]:  # fmt: skip
            writer.add_key_value(f"one.{kind.name}", value, kind)
        for name, value in [("nan", np.nan), ("inf", -np.inf), ("negative zero", -0.0)]:
            writer.add_key_value(f"f32.{name}", value, kinds.FLOAT32)
            writer.add_key_value(f"f64.{name}", value, kinds.FLOAT64)
        writer.add_array("tokens", ["<s>", "ünï", "", '{"gguf.uint8":1}'])
        writer.add_array("bytes", [b"\xff\xfe", b"plain"])
        writer.add_array("scores", [0.5, -1.25, float("nan")])
        writer.add_array("types", list(range(-3, 3)))
        writer.add_array("truths", [True, False])
        writer.add_array("nested", [[1, 2], [3]])
        writer.add_string("looks.like", '{"gguf.uint32":7}')
        writer.add_string("looks.like.text", '{"gguf.string":"x"}')
        writer.add_key_value("not.utf8", b"\xff\xfea", kinds.STRING)

    source = library_writes(tmp_path / "a.gguf", {"x": np.zeros(3, np.float32)}, fill)
    found = FORMAT.read(source)
    assert found.metadata["one.UINT8"] == '{"gguf.uint8":255}'
    assert found.metadata["one.STRING"] == "plain"
    assert (
        found.metadata["nested"]
        == '{"gguf.array.array":[{"gguf.array.int32":[1,2]},{"gguf.array.int32":[3]}]}'
    )
    again = written(tmp_path / "b.gguf", found)
    assert fields(again) == fields(source)
    assert FORMAT.read(again).metadata == found.metadata


@pytest.mark.parametrize(
    "text",
    [
        '{"gguf.uint8":256}', '{"gguf.uint8":1.0}', '{"gguf.uint8": 1}', '{"gguf.uint8":1}', '{"gguf.nothing":1}',
        '{"gguf.string":"x"}',
        '{"gguf.string":"{\\"gguf.uint8\\":1}"}', '{"gguf.string":1}', '{"gguf.string":"\\udcff"}',
        '{"gguf.float32":NaN}', '{"gguf.float32":Infinity}', '{"gguf.float32":"7fc00001"}',
        '{"gguf.float32":"3f800000"}',
        '{"gguf.float32":0.1}', '{"gguf.float32":1e999}', '{"gguf.float64":0.1}', '{"gguf.float32":"-0000001"}',
        '{"gguf.array.uint8":[1,true]}', '{"gguf.array.uint8":1}', '{"gguf.array.array":[{"gguf.uint8":1}]}',
        '{"gguf.bool":1}', '{"gguf.bool":true}', '{"gguf.uint8":1,"gguf.int8":1}', '{"gguf.', '{"gguf.uint8":[[[[[',
        '{"gguf.array.array":' * 400, '{"gguf.int64":' + "9" * 5000 + "}",
    ],
)  # fmt: skip
def test_metadata_that_looks_like_a_typed_value_comes_back_the_same(tmp_path, text):
    """Whatever string stands in the metadata is the string that is read again."""
    found = FORMAT.read(written(tmp_path / "a.gguf", support.contents({}, metadata={"key": text})))
    assert found.metadata == {"key": text}


def test_big_endian_files_are_read(tmp_path):
    """A file that was written for a big-endian machine has the same values."""
    wanted = {k: v for k, v in support.sample({"float32", "int16"}).items() if k.endswith("matrix")}
    path = library_writes(
        tmp_path / "a.gguf",
        wanted,
        lambda writer: writer.add_uint32("n", 7),
        endianess=gguf.GGUFEndian.BIG,
    )
    found = FORMAT.read(path)
    assert support.same_bits(support.arrays(found), wanted)
    assert found.metadata["n"] == '{"gguf.uint32":7}'


def in_blocks(path, **options):
    """A GGUF file by the library with a tensor of random bytes in blocks of each type, and a float one."""
    writer = gguf.GGUFWriter(path, "test", **options)
    generator = np.random.default_rng(1)
    for kind, (length, nbytes) in gguf.GGML_QUANT_SIZES.items():
        if length > 1:
            raw = generator.integers(0, 256, (3, 2 * nbytes), np.uint8)
            writer.add_tensor(f"blk.{kind.name}", raw, raw_dtype=kind)
    writer.add_tensor("f", np.ones(3, np.float32))
    writer.add_uint32("n", 7)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def seen(path):
    """What the library's reader finds: types, shapes and bytes."""
    return {
        each.name: (each.tensor_type.name, each.shape.tolist(), each.data.tobytes())
        for each in gguf.GGUFReader(path).tensors
    }


@pytest.mark.parametrize("through", [".gguf", ".safetensors", ".npz", ".pt", ".zarr", ".h5"])
def test_blocks_are_carried_as_they_are(tmp_path, through):
    """Blocks of every type come back bit-equal, from GGUF and from formats that have them as bytes, renamed or not."""
    source = in_blocks(tmp_path / "a.gguf")
    contents = FORMAT.read(source)
    assert not contents.others
    blocks = blocks_of(contents)
    assert {name: each.kind for name, each in blocks.items()} == {
        name: f"gguf.{name[4:]}" for name in contents.tensors if name != "f"
    }
    assert all(isinstance(stored, Extent) for stored in contents.tensors.values())
    between = tmp_path / f"between{through}"
    ferry.convert_files(source, between, verify=True, rename=["s/^blk/x/"])
    assert set(blocks_of(ferry.open(between))) == {f"x{name[3:]}" for name in blocks}
    ferry.convert_files(between, tmp_path / "b.gguf", verify=True, rename=["s/^x/blk/"])
    assert seen(tmp_path / "b.gguf") == seen(source)
    assert fields(tmp_path / "b.gguf") == fields(source)


def test_blocks_stay_blocks_whatever_else_is_left_out(tmp_path):
    """Without metadata, in shards, some of them only, with what the format can hold: the type goes with its tensor."""
    source = in_blocks(tmp_path / "a.gguf")
    whole = seen(source)
    report = ferry.convert_files(source, tmp_path / "b.safetensors", tensors_only=True)
    assert "tensorferry.blocks" not in str(report.warnings)
    ferry.convert_files(tmp_path / "b.safetensors", tmp_path / "b.gguf", tensors_only=True)
    assert seen(tmp_path / "b.gguf") == whole
    ferry.convert_files(source, tmp_path / "shards", to="safetensors", shard=1000)
    ferry.convert_files(tmp_path / "shards", tmp_path / "c.gguf", include=["blk.Q4*"], dtype="fit")
    assert seen(tmp_path / "c.gguf") == {
        name: each for name, each in whole.items() if name.startswith("blk.Q4")
    }
    ferry.convert_files(source, tmp_path / "one.gguf", include=["blk.Q8_0"])
    ferry.convert_files(source, tmp_path / "two.npz", include=["f", "blk.Q6_K"])
    ferry.convert_files([tmp_path / "one.gguf", tmp_path / "two.npz"], tmp_path / "both.gguf")
    assert seen(tmp_path / "both.gguf") == {
        name: whole[name] for name in ("blk.Q8_0", "f", "blk.Q6_K")
    }


@pytest.mark.parametrize("through", [None, "a.safetensors", "a.pt"])
def test_blocks_are_dequantised_as_the_library_does(tmp_path, through):
    """Each type has the library's own numbers, in float32 or as asked; types that it cannot do are named."""
    path = source = in_blocks(tmp_path / "a.gguf")
    if through:
        path = tmp_path / through
        ferry.convert_files(source, path)
    wanted, undone = {}, []
    with np.errstate(all="ignore"):
        for each in gguf.GGUFReader(source).tensors:
            try:
                wanted[each.name] = gguf.dequantize(each.data, each.tensor_type).reshape(
                    each.shape[::-1]
                )
            except NotImplementedError:
                undone.append(each.name)
    assert undone
    for name in undone:
        with pytest.raises(FormatLimitError, match=f"{name} is in blocks"):
            ferry.load(path, dequantize=True, names=name)
    found = ferry.load(path, dequantize=True, names=list(wanted))
    assert support.same_bits({name: found[name] for name in wanted}, wanted)
    some = ["blk.Q[2-6]_?", "blk.Q8_0", "f"]
    ferry.convert_files(
        path, tmp_path / "b.npz", dequantize=True, dtype="float64", verify=True, include=some
    )
    held = ferry.open(tmp_path / "b.npz")
    assert not blocks_of(held)
    assert held.tensors["blk.Q8_0"].array().tobytes() == wanted["blk.Q8_0"].astype("f8").tobytes()


def test_what_cannot_be_done_with_blocks_is_refused(tmp_path):
    """Their bytes have no dtype, where there are none none are dequantised, and the library has to be there."""
    source = in_blocks(tmp_path / "a.gguf")
    for dtype in ("uint8=int32", "blk.Q8_0=float32", "int32"):
        with pytest.raises(FormatLimitError, match="in blocks of gguf") as refused:
            ferry.convert_files(source, tmp_path / "b.npz", dtype=[dtype])
        assert refused.value.hint.startswith("dequantize=True")
    with pytest.raises(FormatLimitError, match="no tensor that is taken is in blocks"):
        ferry.convert_files(source, tmp_path / "b.npz", dequantize=True, include=["f"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "gguf", None)
        assert len(FORMAT.read(source).tensors) > 1
        with pytest.raises(FrameworkNotInstalledError, match="pip install gguf"):
            ferry.load(source, dequantize=True)


def test_blocks_in_big_endian_are_listed(tmp_path):
    """The numbers inside of a block cannot be turned around here."""
    found = FORMAT.read(in_blocks(tmp_path / "a.gguf", endianess=gguf.GGUFEndian.BIG))
    assert list(found.tensors) == ["f"]
    assert "Q8_0, quantised in big-endian blocks" in found.others["blk.Q8_0"]


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "5", "{}", '{"a":["gguf.Q8_0",32]}', '{"a":["gguf.Q8_0",32,0]}', '{"a":["gguf.Q8_0",32,-34]}',
     '{"a":["gguf.Q8_0",32,true]}', '{"a":["gguf.Q8_0",1e9,34]}', '{"a":[5,32,34]}', '{"b":["gguf.Q8_0",32,34]}',
     '{"f":["gguf.Q8_0",32,34]}', '{"s":["gguf.Q8_0",32,34]}', '{"a":["gguf.Q8_0",32,33]}', '{"a":null}'],
)  # fmt: skip
def test_notes_on_blocks_that_do_not_fit_count_for_nothing(tmp_path, text):
    """They are strings beside bytes, which GGUF has no type for."""
    held = {"a": np.zeros((2, 68), "u1"), "f": np.zeros(34, "f4"), "s": np.zeros((), "u1")}
    ferry.save(held, tmp_path / "a.safetensors", metadata={"tensorferry.blocks": text})
    assert not blocks_of(ferry.open(tmp_path / "a.safetensors"))
    with pytest.raises(FormatLimitError, match="cannot hold uint8: a, s"):
        ferry.convert_files(tmp_path / "a.safetensors", tmp_path / "a.gguf")


def test_notes_on_blocks_out_of_all_proportion_are_not_read(tmp_path):
    """Lists of lists as JSON would take twenty times their length in memory."""
    text = '{"a":[' + ",".join(["[]"] * 1_000_000) + "]}"
    ferry.save(
        {"a": np.zeros(34, "u1")}, tmp_path / "a.safetensors", metadata={"tensorferry.blocks": text}
    )
    contents = ferry.open(tmp_path / "a.safetensors")
    tracemalloc.start()
    assert not blocks_of(contents)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    held = {"[,{" * 9: np.zeros(34, "u1")}
    note = json.dumps({name: ["gguf.Q8_0", 32, 34] for name in held})
    ferry.save(held, tmp_path / "b.safetensors", metadata={"tensorferry.blocks": note})
    assert set(blocks_of(ferry.open(tmp_path / "b.safetensors"))) == set(held)


@pytest.mark.parametrize(
    "note", [["gguf.Q8_0", 16, 34], ["gguf.Q99", 32, 34], ["mine.Q8_0", 32, 34]]
)
def test_blocks_of_no_known_type_are_refused(tmp_path, note):
    """By GGUF, and where they are to be dequantised."""
    text = json.dumps({"a": note})
    ferry.save(
        {"a": np.zeros((2, 68), "u1")}, tmp_path / "a.npz", metadata={"tensorferry.blocks": text}
    )
    with pytest.raises(FormatLimitError, match="cannot hold uint8"):
        ferry.convert_files(tmp_path / "a.npz", tmp_path / "a.gguf")
    with pytest.raises(FormatLimitError, match="a is in blocks of"):
        ferry.load(tmp_path / "a.npz", dequantize=True)


def test_every_type_of_the_library_is_known_by_name():
    """No type of the library's is kept under a wrong name or size, or called unknown."""
    from tensorferry.files.formats import gguf as module
    from tensorferry.files.formats.gguf import BLOCKS_BY_CODE

    names = {code: {"bfloat16": "BF16"}.get(name) or f"{name[0]}{name[-2:].strip('t')}".upper() for code, name in
             module._DTYPES.items()}  # fmt: skip
    names |= {code: blocks.kind[5:] for code, blocks in BLOCKS_BY_CODE.items()}
    assert names == {int(kind): kind.name for kind in gguf.GGMLQuantizationType}
    for code, (_, length, nbytes) in BLOCKS_BY_CODE.items():
        assert gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(code)] == (length, nbytes)


def test_the_library_finds_all_of_a_training(tmp_path):
    """Each tensor under the name that follows from its place, also the second of two that are one."""
    tree, named = support.training()
    report = ferry.save(tree, tmp_path / "a.gguf", verify=True)
    assert [line.endswith("model.head is model.embed.") for line in report.warnings] == [True]
    theirs = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "a.gguf").tensors}
    assert set(theirs) == set(named)
    for name, array in named.items():
        assert theirs[name].data.tobytes() == array.tobytes()
        assert tuple(theirs[name].shape.tolist()[::-1]) == array.shape
    ferry.save(tree, tmp_path / "b.gguf", ties="alias", verify=True)
    assert {tensor.name for tensor in gguf.GGUFReader(tmp_path / "b.gguf").tensors} == set(
        named
    ) - {"model.head"}
    assert ferry.open(tmp_path / "b.gguf").ties == {"model.head": "model.embed"}


def test_ties_and_trees_come_back(tmp_path):
    """A tensor with two names is stored once; nesting and plain values come back beside it."""
    array = np.arange(64, dtype=np.float32)
    tied = support.contents({"a": array, "b": np.ones(2, np.float16), "c": array})
    path = written(tmp_path / "a.gguf", tied)
    assert [tensor.name for tensor in gguf.GGUFReader(path).tensors] == ["a", "b"]
    found = FORMAT.read(path)
    assert list(found.tensors) == ["a", "b", "c"]
    assert found.ties == {"c": "a"}
    tree = {"m": {"w": Ref("m.w")}, "step": 3, "list": [None, (1.5, "x")]}
    nested = support.contents({"m.w": array}, tree=tree)
    assert FORMAT.read(written(tmp_path / "b.gguf", nested)).tree == tree


@pytest.mark.parametrize(
    ("arrays", "strings", "named"),
    [
        ({"wide": np.zeros(2, np.complex64)}, {}, "wide"),
        ({"n" * 64: np.zeros(2, np.float32)}, {}, "n" * 64),
        ({"é" * 32: np.zeros(2, np.float32)}, {}, "é" * 32),
        ({"deep": np.zeros((1, 1, 1, 1, 1), np.float32)}, {}, "deep"),
        ({"bare": np.zeros((), np.float32).astype(ml_dtypes.bfloat16)}, {}, "bare"),
        ({}, {"general.alignment": "64"}, "general.alignment"),
        ({}, {"k" * 65536: ""}, "kkk"),
        ({"\udcff": np.zeros(2, np.float32)}, {}, "udcff"),
        ({}, {"\udcff": ""}, "udcff"),
        ({}, {"text": "\udcff"}, "udcff"),
    ],
)
def test_refuses_what_the_format_cannot_hold(arrays, strings, named):
    """A dtype, a name, a rank or a key that GGUF has no room for is refused, and named."""
    with pytest.raises(FormatLimitError, match=named):
        refuse_contents(FORMAT, support.contents(arrays, metadata=strings))


def test_the_longest_name_and_the_most_axes_are_written(tmp_path):
    """What is just within the limits is kept."""
    wanted = {"n" * 63: np.arange(16, dtype=np.int8).reshape(2, 2, 2, 2)}
    assert support.same_bits(
        support.arrays(FORMAT.read(written(tmp_path / "a.gguf", support.contents(wanted)))), wanted
    )


def _text(text):
    return struct.pack("<Q", len(text)) + text.encode()


def _file(tensors=0, pairs=0, rest=b"", version=3):
    return b"GGUF" + struct.pack("<IQQ", version, tensors, pairs) + rest


def _info(name="a", lengths=(4,), code=0, offset=0):
    return _text(name) + struct.pack(f"<I{len(lengths)}QIQ", len(lengths), *lengths, code, offset)


HOSTILE = {
    "a count past the end": _file(tensors=2**63),
    "a key count past the end": _file(pairs=2**40),
    "a text past the end": _file(pairs=1, rest=struct.pack("<Q", 2**62) + bytes(32)),
    "an array past the end": _file(
        pairs=1, rest=_text("k") + struct.pack("<IIQ", 9, 0, 2**50) + bytes(8)
    ),
    "an array of texts past the end": _file(
        pairs=1, rest=_text("k") + struct.pack("<IIQ", 9, 8, 2**22) + bytes(64)
    ),
    "arrays in arrays": _file(
        pairs=1, rest=_text("k") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 100
    ),
    "an unknown value": _file(pairs=1, rest=_text("k") + struct.pack("<I", 77) + bytes(32)),
    "a truth value of two": _file(pairs=1, rest=_text("k") + struct.pack("<IB", 7, 2) + bytes(32)),
    "the same key twice": _file(pairs=2, rest=(_text("k") + struct.pack("<IB", 0, 2)) * 2),
    "an alignment of three": _file(
        pairs=1, rest=_text("general.alignment") + struct.pack("<II", 4, 3)
    ),
    "an alignment of zero": _file(
        pairs=1, rest=_text("general.alignment") + struct.pack("<II", 4, 0)
    ),
    "an alignment that is a text": _file(
        pairs=1, rest=_text("general.alignment") + struct.pack("<I", 8) + _text("8")
    ),
    "data past the end": _file(tensors=1, rest=_info(offset=2**40) + bytes(64)),
    "data cut off": _file(tensors=1, rest=_info(lengths=(400,)) + bytes(64)),
    "blocks that are cut off": _file(tensors=1, rest=_info(lengths=(64,), code=8) + bytes(67)),
    "half a block": _file(tensors=1, rest=_info(lengths=(48,), code=8) + bytes(1000)),
    "blocks without axes": _file(tensors=1, rest=_info(lengths=(), code=8) + bytes(1000)),
    "quantised data past the end": _file(tensors=1, rest=_info(code=2, offset=2**40) + bytes(64)),
    "a crooked offset": _file(tensors=1, rest=_info(offset=4) + bytes(96)),
    "overlapping data": _file(
        tensors=2, rest=_info(lengths=(16,)) + _info("b", (16,), 0, 32) + bytes(256)
    ),
    "the same name twice": _file(tensors=2, rest=_info() + _info(offset=32) + bytes(256)),
    "a shape that overflows": _file(tensors=1, rest=_info(lengths=(2**32, 2**32)) + bytes(64)),
    "an empty shape that overflows": _file(
        tensors=1, rest=_info(lengths=(2**63, 2**63, 0)) + bytes(64)
    ),
    "a thousand axes": _file(tensors=1, rest=_info(lengths=(1,) * 1000) + bytes(64)),
    "a name that is no text": _file(tensors=1, rest=struct.pack("<Q", 1) + b"\xff" + bytes(64)),
    "version 1": _file(version=1, rest=bytes(64)),
    "version 9": _file(version=9, rest=bytes(64)),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_files_are_refused_in_little_memory(tmp_path, data):
    """A header that lies is refused by a named error, and nothing of the size that it claims is made."""
    path = tmp_path / "a.gguf"
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises((FileFormatError, UnsafeFileError), match=r"a\.gguf"):
            FORMAT.read(path)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_a_huge_header_is_refused(tmp_path):
    """An array that the file has, but that no model has, is not made into Python objects."""
    path = tmp_path / "a.gguf"
    with path.open("wb") as file:
        file.write(_file(pairs=1, rest=_text("k") + struct.pack("<IIQ", 9, 0, 10**8 + 1)))
        file.truncate(2 * 10**8)
    with pytest.raises(UnsafeFileError, match="100,000,001"):
        FORMAT.read(path)


def test_a_file_that_ends_anywhere_is_refused(tmp_path):
    """However much of its end is missing, the file is refused, or still has all its data."""
    wanted = {"a": np.arange(8, dtype=np.float32), "b": np.ones((2, 3), np.int16)}
    data = written(
        tmp_path / "whole.gguf", support.contents(wanted, metadata={"k": "v"})
    ).read_bytes()
    end = FORMAT.read(tmp_path / "whole.gguf").tensors["b"].offset + 12
    path = tmp_path / "a.gguf"
    for length in range(len(data)):
        path.write_bytes(data[:length])
        if length < end:
            with pytest.raises(FileFormatError):
                FORMAT.read(path)
        else:
            assert support.same_bits(support.arrays(FORMAT.read(path)), wanted)


def test_flipped_bytes_raise_nothing_but_named_errors(tmp_path):
    """A damaged header gives contents or a named error, never another exception."""
    wanted = {"a": np.arange(8, dtype=np.float32)}
    data = written(
        tmp_path / "whole.gguf",
        support.contents(wanted, metadata={"k": '{"gguf.array.uint8":[1,2]}'}),
    )
    data = data.read_bytes()
    draw = random.Random(7)  # noqa: S311 - a drawn test, no secret
    refused = 0
    for _ in range(500):
        damaged = bytearray(data)
        for _ in range(draw.randint(1, 3)):
            damaged[draw.randrange(len(data) - 64)] = draw.choice([0, 1, 255, draw.randrange(256)])
        (tmp_path / "a.gguf").write_bytes(damaged)
        try:
            found = FORMAT.read(tmp_path / "a.gguf")
        except (FileFormatError, UnsafeFileError):
            refused += 1
        else:
            assert isinstance(found, Contents)
    assert 0 < refused < 500


def test_takes_no_memory_of_the_tensors_size(tmp_path):
    """Reading and writing a tensor of 64 MiB takes a few blocks of memory, from a file and from values."""
    source = tmp_path / "values"
    with source.open("wb") as file:
        file.truncate(64 << 20)
    stored = Extent("float32", (16 << 20,), str(source), 0)
    tracemalloc.start()
    try:
        path = written(tmp_path / "a.gguf", Contents("memory", (), {"a": stored}))
        assert FORMAT.read(path).tensors["a"].nbytes == 64 << 20
        swapped = Extent("float32", (16 << 20,), str(source), 0, swapped=True)
        written(tmp_path / "b.gguf", Contents("memory", (), {"a": swapped}))
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_a_large_vocabulary_is_read_at_once(tmp_path):
    """A hundred thousand tensors and strings are read without a library's array for each."""
    strings = '{"gguf.array.string":[' + ",".join(f'"token {n}"' for n in range(100_000)) + "]}"
    tensors = {f"layer.{n}": InMemory(np.zeros(1, np.float32), "float32", n) for n in range(20_000)}
    path = written(tmp_path / "a.gguf", Contents("memory", (), tensors, {"tokens": strings}))
    found = FORMAT.read(path)
    assert list(found.tensors) == list(tensors)
    assert found.metadata == {"tokens": strings}
