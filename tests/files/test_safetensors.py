"""safetensors: what the official library writes is read, and what is written here it reads, bit for bit."""

from __future__ import annotations

import json
import shlex
import struct
from collections import OrderedDict

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.files.support import arrays, awkward, contents, same_bits, sample
from tests.support import of_torch, peak_of, survives

from tensorferry.errors import FileFormatError, FormatLimitError, UnsafeFileError
from tensorferry.files.base.contents import Contents, Ref
from tensorferry.files.base.limits import refuse_contents
from tensorferry.files.base.pump import Pump
from tensorferry.files.base.stored import InMemory
from tensorferry.files.encodings.json_scan import Cut, blank, string
from tensorferry.files.formats.safetensors import FORMAT, header

safetensors = pytest.importorskip(
    "safetensors", reason="compares with the official library, which is not installed"
)
safetensors_numpy = pytest.importorskip("safetensors.numpy")

OFFICIAL = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "int16": "I16",
    "uint16": "U16",
    "float16": "F16",
    "bfloat16": "BF16",
    "int32": "I32",
    "uint32": "U32",
    "float32": "F32",
    "float64": "F64",
    "int64": "I64",
    "uint64": "U64",
    "complex64": "C64",
}


def written(path, held):
    """Written with ours, and read again with ours."""
    refuse_contents(FORMAT, held)
    FORMAT.write(held, path, Pump())
    return FORMAT.read(path)


def raw(header, data=b""):
    """A file with any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def header_of(path):
    """A file's header as it stands there, and the byte at which the data begin."""
    head = path.read_bytes()
    length = struct.unpack_from("<Q", head)[0]
    return json.loads(head[8 : 8 + length]), 8 + length


def test_every_dtype_survives_ours_to_ours(tmp_path):
    """Each dtype that is declared, with every awkward bit, empty, 0-d and in two axes, comes back the same."""
    held = sample(FORMAT.dtypes)
    del held["float4_e2m1fn.scalar"]
    assert same_bits(arrays(written(tmp_path / "a.safetensors", contents(held))), held)


def test_the_official_reader_sees_the_same_bits(tmp_path):
    """What is written here has, for the official reader, the same names, dtypes, shapes and bytes."""
    held = sample(OFFICIAL)
    written(tmp_path / "a.safetensors", contents(held, metadata={"who": "é\n\"'"}))
    found = dict(safetensors.deserialize((tmp_path / "a.safetensors").read_bytes()))
    assert set(found) == set(held)
    for name, array in held.items():
        assert found[name]["dtype"] == OFFICIAL[name.split(".")[0]]
        assert tuple(found[name]["shape"]) == array.shape
        assert bytes(found[name]["data"]) == array.tobytes()
    with safetensors.safe_open(tmp_path / "a.safetensors", "np") as file:
        assert file.metadata() == {"who": "é\n\"'"}


def test_what_the_official_library_writes_is_read(tmp_path):
    """Each dtype, written by the official library, has the same bits here, and its metadata the same strings."""
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    held = sample(name for name in OFFICIAL if hasattr(torch, name))
    tensors = {}
    for name, array in held.items():
        dtype = getattr(torch, name.split(".")[0])
        packed = torch.frombuffer(bytearray(array.tobytes() or b"\0"), dtype=torch.uint8)
        tensors[name] = (
            packed.view(dtype).reshape(array.shape)
            if array.size
            else torch.empty(array.shape, dtype=dtype)
        )
    save_file(tensors, tmp_path / "a.safetensors", {"format": "pt", "é": '"\\'})
    found = FORMAT.read(tmp_path / "a.safetensors")
    assert found.metadata == {"format": "pt", "é": '"\\'}
    assert list(FORMAT.check(tmp_path / "a.safetensors")) == []
    assert same_bits(dict(sorted(arrays(found).items())), dict(sorted(held.items())))


def test_torch_reads_what_is_written_and_the_other_way_round(tmp_path):
    """bfloat16 and float8 pass between torch's own reader and writer and ours."""
    torch = pytest.importorskip("torch")
    codes = torch.arange(256, dtype=torch.uint8)
    tensors = {
        "bf16": torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(torch.bfloat16),
        "e4m3": codes.clone().view(torch.float8_e4m3fn),
        "e5m2": codes.clone().view(torch.float8_e5m2),
    }
    found = through_torch(tmp_path, tensors)
    assert np.array_equal(
        found.tensors["bf16"].array().view(np.uint16), np.arange(65536, dtype=np.uint16)
    )


@pytest.mark.parametrize("name", of_torch("float8_e8m0fnu", "float4_e2m1fn_x2"))
def test_the_same_for_dtypes_of_later_releases(name, tmp_path):
    """PyTorch has a pair of float4 in each element, and ours one, along an axis that is twice as long."""
    import torch

    codes = torch.arange(256, dtype=torch.uint8)
    stored = through_torch(
        tmp_path, {"x": codes.reshape(16, 16).view(getattr(torch, name))}
    ).tensors["x"]
    expected = codes.numpy().reshape(16, 16)
    if name == "float4_e2m1fn_x2":
        expected = np.stack([expected & 15, expected >> 4], axis=-1).reshape(16, 32)
    assert (stored.dtype, stored.shape) == (name.removesuffix("_x2"), expected.shape)
    assert stored.array().view(np.uint8).tobytes() == expected.tobytes()


def through_torch(folder, tensors):
    """What we read of torch's file; what we write of that, torch reads as it was."""
    import torch
    from safetensors.torch import load_file, save_file

    save_file(tensors, folder / "theirs.safetensors")
    found = FORMAT.read(folder / "theirs.safetensors")
    written(folder / "ours.safetensors", found)
    again = load_file(folder / "ours.safetensors")
    for name, tensor in tensors.items():
        assert again[name].dtype == tensor.dtype
        assert torch.equal(again[name].view(torch.uint8), tensor.view(torch.uint8))
    return found


def test_names_keep_their_order_and_bytes_are_aligned(tmp_path):
    """Names come back in their order, though the bytes lie in another: each tensor at the best place there is."""
    lengths = {"a": 3, "b": 64, "c": 16, "d": 5, "e": 128, "f": 32, "g": 0}
    held = {name: np.arange(length, dtype=np.uint8) for name, length in lengths.items()}
    found = written(tmp_path / "a.safetensors", contents(held))
    assert list(found.tensors) == list(held)
    header, data = header_of(tmp_path / "a.safetensors")
    assert list(header) == list(held)
    assert data % 64 == 0
    assert {found.tensors[name].offset % 64 for name in "be"} == {0}
    assert found.tensors["f"].offset % 32 == 0
    assert found.tensors["c"].offset % 16 == 0
    assert (
        dict(safetensors.deserialize((tmp_path / "a.safetensors").read_bytes())).keys()
        == held.keys()
    )


@given(
    st.lists(
        st.tuples(st.sampled_from(["int8", "float16", "float32", "complex64"]), st.integers(0, 9)),
        min_size=1,
        max_size=12,
    )
)
@settings(max_examples=30, deadline=None)
def test_each_tensor_is_aligned_to_its_elements(tmp_path_factory, kinds):
    """Whatever the sizes, a tensor begins at a multiple of its element's, and the official reader takes the file."""
    path = tmp_path_factory.mktemp("aligned") / "a.safetensors"
    held = {f"{n}": np.arange(length).astype(dtype) for n, (dtype, length) in enumerate(kinds)}
    found = written(path, contents(held))
    assert same_bits(arrays(found), held)
    assert all(found.tensors[name].offset % array.itemsize == 0 for name, array in held.items())
    assert len(safetensors.deserialize(path.read_bytes())) == len(held)


@given(
    st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=5),
    st.lists(st.text(), unique=True),
)
@settings(max_examples=50, deadline=None)
def test_any_name_and_string_survives(tmp_path_factory, metadata, names):
    """Names and strings of any characters come back as they were."""
    metadata = {key: text for key, text in metadata.items() if not key.startswith("tensorferry")}
    names = [name for name in names if name != "__metadata__" and name not in metadata.values()]
    held = {name: np.full(3, number, np.int16) for number, name in enumerate(names)}
    path = tmp_path_factory.mktemp("names") / "a.safetensors"
    found = written(path, contents(held, metadata=metadata))
    assert same_bits(arrays(found), held)
    assert found.metadata == metadata
    assert {name for name, _ in safetensors.deserialize(path.read_bytes())} == set(names)


def test_ties_are_stored_once_and_come_back(tmp_path):
    """A tensor with three names is stored under the first, and has all three again, in their places."""
    shared = np.arange(1000, dtype=np.float32)
    held = {"a": shared, "b": np.ones(2), "c": shared, "d": shared, "e": np.zeros(3)}
    found = written(tmp_path / "a.safetensors", contents(held))
    assert same_bits(arrays(found), held)
    assert found.ties == {"c": "a", "d": "a"}
    assert found.metadata == {}
    assert (tmp_path / "a.safetensors").stat().st_size < 2 * shared.nbytes
    assert [
        name
        for name, _ in sorted(safetensors.deserialize((tmp_path / "a.safetensors").read_bytes()))
    ] == [
        "a",
        "b",
        "e",
    ]


def test_ties_of_torch_save_model_are_understood(tmp_path):
    """The names that `safetensors.torch.save_model` leaves in the metadata are names of the tensor."""
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_model

    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(3, 3)
            self.second = torch.nn.Linear(3, 3)
            self.second.weight = self.first.weight

    save_model(Tied(), tmp_path / "a.safetensors")
    found = FORMAT.read(tmp_path / "a.safetensors")
    assert found.ties == {"second.weight": "first.weight"}
    assert found.metadata == {}
    again = written(tmp_path / "b.safetensors", found)
    assert again.ties == found.ties
    with safetensors.safe_open(tmp_path / "b.safetensors", "np") as file:
        assert file.metadata()["second.weight"] == "first.weight"


def test_a_tree_and_metadata_survive(tmp_path):
    """What is not a tensor, and how all of it nests, comes back, besides metadata."""
    tree = OrderedDict(
        model=OrderedDict(w=Ref("model.w", "parameter", requires_grad=True)), epoch=3, lr=0.1
    )
    held = contents(
        {"model.w": np.ones((2, 2), ml_dtypes.bfloat16)}, metadata={"format": "pt"}, tree=tree
    )
    found = written(tmp_path / "a.safetensors", held)
    assert found.tree == tree
    assert type(found.tree) is OrderedDict
    assert found.metadata == {"format": "pt"}


def test_what_it_cannot_hold_is_refused_by_name(tmp_path):
    """Dtypes that safetensors lacks, an odd number of packed values, a taken name and broken Unicode are refused."""
    with pytest.raises(FormatLimitError, match="complex128: z"):
        refuse_contents(FORMAT, contents({"z": np.zeros(2, np.complex128)}))
    with pytest.raises(FormatLimitError, match="odd: packed"):
        refuse_contents(FORMAT, contents({"packed": awkward("float4_e2m1fn")[:3]}))
    with pytest.raises(FormatLimitError, match="__metadata__"):
        refuse_contents(FORMAT, contents({"__metadata__": np.zeros(2)}))
    with pytest.raises(FormatLimitError, match="Unicode"):
        refuse_contents(FORMAT, contents({"\ud800": np.zeros(2)}))
    with pytest.raises(FormatLimitError, match="Unicode"):
        refuse_contents(FORMAT, contents({"a": np.zeros(2)}, metadata={"k": "\udfff"}))
    with pytest.raises(FormatLimitError, match=r"epoch is a builtins\.object"):
        refuse_contents(
            FORMAT, contents({"a": np.zeros(2)}, tree={"a": Ref("a"), "epoch": object()})
        )


def test_a_header_beyond_the_limit_is_refused(tmp_path):
    """A header that readers would not take is refused before anything is written."""
    with pytest.raises(FormatLimitError, match="readers take 100000000"):
        refuse_contents(FORMAT, contents({"a": np.zeros(2)}, metadata={"k": "v" * 100_000_000}))


def test_six_bit_floats_are_listed_not_carried(tmp_path):
    """What the official reader takes and has no packing laid down is among the others, with the reason."""
    path = tmp_path / "a.safetensors"
    path.write_bytes(
        raw(
            {
                "six": {"dtype": "F6_E2M3", "shape": [4], "data_offsets": [0, 3]},
                "one": {"dtype": "U8", "shape": [1], "data_offsets": [3, 4]},
            },
            bytes(4),
        )
    )
    found = FORMAT.read(path)
    assert list(found.tensors) == ["one"]
    assert "F6_E2M3 [4]" in found.others["six"]
    assert found.tensors["one"].offset == path.stat().st_size - 1


@pytest.mark.parametrize(
    "header",
    [
        b'{ "a" :\n{"shape":[ 2 , 3 ],\t"data_offsets":[0,6],"dtype":"U8"}\r\n}  ',
        b'{"a":{"dtype":"U8","shape":[2,3],"data_offsets":[0,6]},"__metadata__":{}}',
        b'{"__metadata__":null,"\\u0061":{"dtype":"U8","shape":[2,3],"data_offsets":[0,6]}}',
        b'{"__metadata__" : { "\\"," : "{" } , "a":{"dtype":"U8","shape":[2,3],"data_offsets":[0,6]}}   \n',
        b' \n\t{"a":{"dtype":"U8","shape":[2,3],"data_offsets":[0,6]}}',
        b" " * 300_000 + b'{"a":{"dtype":"U8","shape":[2,3],"data_offsets":[0,6]}}',
        b'{"a":["U8",[2,3],[0,6]]}',
    ],
)
def test_unusual_but_valid_headers_are_read(tmp_path, header):
    """Blanks, fields in any order, escapes and empty metadata are read as the official reader reads them."""
    path = tmp_path / "a.safetensors"
    path.write_bytes(raw(header, bytes(range(6))))
    ((name, official),) = safetensors.deserialize(path.read_bytes())
    found = FORMAT.read(path)
    assert list(found.tensors) == [name] == ["a"]
    assert found.tensors["a"].array().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert official["shape"] == [2, 3]


NAMES = st.sampled_from(
    ["a", "b.c", "é", "]},", "]}", "__metadata__", *(f"layer.{number}" for number in range(9))]
)
KINDS = st.sampled_from(
    [
        ("F32", "2", 8),
        ("I64", "1,2", 16),
        ("BF16", "", 2),
        ("U8", "0,3", 0),
        ("F4", "2", 1),
        ("F6_E2M3", "4", 3),
        ("X9", "1", 1),
        ("U8", "01", 1),
        ("U8", "1", 1),
        ("U8", "true", 1),
        ("U8", "1.0", 1),
        ("U8", "false,3", 0),
        ("U8", "null", 1),
        ("U8", "NaN", 1),
        ("U8", "-0", 0),
        ("U8", "2,,", 2),
        ("U8", ",".join("1" * 70), 1),
    ]
)


def as_other_number(place):
    """Equal to it in Python, and no place in JSON."""
    return {0: "false", 1: "true"}.get(place, f"{place}.0")


def beyond_files(place):
    return str(place + 2**63 - 4)


def before_files(place):
    return str(place - 2**62)


@st.composite
def headers(draw):
    """Headers as the official writer puts them, with and without faults; and how many bytes of data they are for."""
    entries, at = [], 0
    for name in draw(st.lists(NAMES, min_size=1, max_size=12)):
        dtype, shape, nbytes = draw(KINDS) if not draw(st.integers(0, 3)) else ("F32", "2", 8)
        at += draw(st.sampled_from([0] * 20 + [1]))
        end = at + nbytes + draw(st.sampled_from([0] * 20 + [1]))
        turned = draw(st.sampled_from([str] * 20 + [as_other_number, beyond_files, before_files]))
        entries.append(
            f'"{name}":{{"dtype":"{dtype}","shape":[{shape}],'
            f'"data_offsets":[{turned(at)},{turned(end)}]}}'
        )
        at = end
    if draw(st.booleans()):
        entries.insert(0, '"__metadata__":{"key":"value"}')
    entries = draw(st.permutations(entries)) if not draw(st.integers(0, 3)) else entries
    text = ("{" + ",".join(entries) + "}").encode()
    for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
        place = draw(st.integers(0, len(text)))
        text = text[:place] + draw(st.binary(max_size=3)) + text[place + draw(st.integers(0, 30)) :]
    return text, at


@given(
    made=headers(),
    window=st.sampled_from([100, 300, 1 << 17]),
    together=st.sampled_from([100, 300, 1 << 17]),
)
@settings(max_examples=300)
def test_entries_that_are_read_together_are_read_as_one_by_one(
    tmp_path_factory, made, window, together
):
    """The same tensors, findings and metadata, whatever the header, and wherever a window of it ends."""
    path = tmp_path_factory.mktemp("header") / "a.safetensors"
    path.write_bytes(raw(made[0], bytes(made[1])))
    found = []
    for read in (header.Scan._entries_alike, lambda *_: 0):  # the second reads none
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(header.Scan, "_entries_alike", read)
            patch.setattr(header, "_TOGETHER", together)
            patch.setattr(header, "_WINDOW", window)
            scan = header.Scan(path)
        places = [(name, each.dtype, each.shape, each.key) for name, each in scan.tensors.items()]
        found.append((places, scan.others, scan.metadata, scan.findings))
    assert found[0] == found[1]


def test_numbers_that_equal_another_entrys_are_not_taken_for_them(tmp_path):
    """`true` and `1.0` are equal to `1`, which stands there before; and no file has a place beyond 2**63."""
    fine = '"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}'
    for shape, places in (
        ("[true]", "[1,2]"),
        ("[1.0]", "[1,2]"),
        ("[1]", "[true,2]"),
        ("[1]", "[1,2.0]"),
        ("[1]", f"[{2**63},{2**63 + 1}]"),
        ("[1]", f"[{2**64},{2**64 + 1}]"),
        ("{}", "[1,2]"),
        ('""', "[1,2]"),
    ):
        path = tmp_path / "a.safetensors"
        path.write_bytes(
            raw(
                f'{{{fine},"true":{{"dtype":"U8","shape":{shape},"data_offsets":{places}}}}}'.encode(),
                b"ab",
            )
        )
        with pytest.raises(safetensors.SafetensorError):
            safetensors_numpy.load_file(path)
        with pytest.raises(FileFormatError, match="breaks the rules of safetensors"):
            FORMAT.read(path)


def test_a_tensor_may_be_named_true(tmp_path):
    values = {"true": np.arange(2), "false": np.zeros(1, "f4"), "NaN": np.ones(3)}
    safetensors_numpy.save_file(values, tmp_path / "a.safetensors")
    assert same_bits(
        dict(sorted(arrays(FORMAT.read(tmp_path / "a.safetensors")).items())),
        dict(sorted(values.items())),
    )


def test_entries_of_the_official_writer_are_read_together(tmp_path, monkeypatch):
    """None of them is read alone, in any window."""
    path = tmp_path / "a.safetensors"
    values = {f"layer.{number}": np.full(number % 3, number, "f4") for number in range(3000)}
    safetensors_numpy.save_file(values, path, metadata={"format": "np"})
    others = []
    read = header.Scan._other_entry
    monkeypatch.setattr(
        header.Scan, "_other_entry", lambda *given: others.append(given[3]) or read(*given)
    )
    found = FORMAT.read(path)
    assert same_bits(dict(sorted(arrays(found).items())), dict(sorted(values.items())))
    assert found.metadata == {"format": "np"}
    # Only the metadata, and at the end of each window the beginning of an entry.
    assert len(others) <= 1 + path.stat().st_size // header._WINDOW + 1


@pytest.mark.parametrize("more", ['{"}": [{"y": "\\\\"}]}', "[[], null, 0.5]", '"{\\""', "{}"])
@pytest.mark.parametrize("at", [0, 3])
def test_fields_that_no_reader_knows_are_metadata(tmp_path, more, at):
    """What the official reader passes over in an entry is kept, as text under the tensor's name, and written again."""
    fields = ['"dtype":"U8"', '"shape":[2,3]', '"data_offsets":[0,6]']
    fields.insert(at, f'"quant.type" : {more}')
    path = tmp_path / "a.safetensors"
    path.write_bytes(raw(f'{{"a":{{{",".join(fields)}}}}}'.encode(), bytes(range(6))))
    ((name, official),) = safetensors.deserialize(path.read_bytes())
    found = FORMAT.read(path)
    assert (
        found.tensors[name].array().tolist()
        == np.frombuffer(official["data"], "u1").reshape(2, 3).tolist()
    )
    text = found.metadata["a@quant.type"]
    assert text == json.loads(more) or json.loads(text) == json.loads(more)
    assert not list(FORMAT.check(path))
    again = tmp_path / "b.safetensors"
    FORMAT.write(found, again, Pump())
    assert FORMAT.read(again).metadata == found.metadata


def test_metadata_of_such_a_name_stays_what_it_is(tmp_path):
    """Neither takes the place of the other."""
    entry = '"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":"field"}'
    path = tmp_path / "a.safetensors"
    path.write_bytes(
        raw(f'{{{entry},"__metadata__":{{"a@x":"string","a@x#":"other"}}}}'.encode(), b"\0")
    )
    assert FORMAT.read(path).metadata == {"a@x": "string", "a@x#": "other", "a@x##": "field"}


def test_fields_out_of_all_proportion_are_refused(tmp_path):
    """Megabytes of lists in entries are refused after the first of them."""
    lists = b"[" + b",".join([b"[]"] * 20_000) + b"]"
    entry = b'"a%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":' + lists + b"}"
    path = tmp_path / "a.safetensors"
    path.write_bytes(raw(b"{" + b",".join(entry % number for number in range(100)) + b"}"))
    with pytest.raises(UnsafeFileError, match="fields that no tensor has"):
        FORMAT.read(path)


@pytest.mark.parametrize("shape", ["{}", '{"a":1}', '""', "null", "0"])
def test_a_shape_that_is_no_list_is_refused(tmp_path, shape):
    """The official reader refuses it too; an empty object is no shape of a single number."""
    path = tmp_path / "a.safetensors"
    entry = f'{{"a":{{"dtype":"F32","shape":{shape},"data_offsets":[0,4]}}}}'
    path.write_bytes(raw(entry.encode(), b"\0\0\0\0"))
    with pytest.raises(safetensors.SafetensorError):
        safetensors_numpy.load_file(path)
    with pytest.raises(FileFormatError, match="are not a name and lengths"):
        FORMAT.read(path)


def test_a_file_without_tensors(tmp_path):
    """A file may hold nothing, or metadata alone."""
    assert written(tmp_path / "a.safetensors", Contents("memory", ())).tensors == {}
    found = written(tmp_path / "b.safetensors", contents({}, metadata={"a": "b"}))
    assert (found.tensors, found.metadata) == ({}, {"a": "b"})


def test_long_metadata_is_read_across_windows(tmp_path):
    """Strings that are longer than what is read at a time, and full of escapes, come back."""
    metadata = {"long": '\\"' * 400_000, "é" * 50_000: "x"}
    names = {f"layer.{n}": np.array([n], np.int32) for n in range(5000)}
    found = written(tmp_path / "a.safetensors", contents(names, metadata=metadata))
    assert found.metadata == metadata
    assert same_bits(arrays(found), names)


def test_a_large_tensor_in_another_layout_is_written_row_by_row(tmp_path):
    """An array that is not packed is stored packed."""
    array = np.arange(3_000_000, dtype=np.float64).reshape(1500, 2000).T
    held = Contents("memory", (), {"t": InMemory(array, "float64", 0)})
    assert same_bits(
        written(tmp_path / "a.safetensors", held).tensors["t"].array(), np.ascontiguousarray(array)
    )


@pytest.mark.parametrize("count", [20_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_file_of_many_tensors_is_read_in_little_memory(tmp_path, count):
    """The header of many tensors is read in two thirds of the memory that its JSON alone takes elsewhere."""
    entries = ",".join(
        f'"model.layers.{n // 9}.self_attn.{n % 9}_proj.weight":{{"dtype":"BF16","shape":[2,2],'
        f'"data_offsets":[{8 * n},{8 * n + 8}]}}'
        for n in range(count)
    )
    path = tmp_path / "big.safetensors"
    with path.open("wb") as file:
        file.write(raw(b"{" + entries.encode() + b"}"))
        file.truncate(file.tell() + 8 * count)
    peak, found = peak_of(lambda: FORMAT.read(path))
    assert len(found.tensors) == count
    header = "{" + entries + "}"
    assert peak < peak_of(lambda: json.loads(header))[0] * 2 / 3


def test_recognised_by_its_first_bytes(tmp_path):
    """A file is recognised under any name; one whose bytes are wrong by its suffix, for the sake of the error."""
    written(tmp_path / "model.weights", contents({"a": np.zeros(2)}))
    assert FORMAT.recognises(
        tmp_path / "model.weights", (tmp_path / "model.weights").read_bytes()[:64]
    )
    assert FORMAT.is_named(tmp_path / "cut.safetensors", b"\1\2\3")
    assert not FORMAT.recognises(tmp_path / "model.pt", b"PK\3\4" + bytes(60))
    (tmp_path / "cut.safetensors").write_bytes(b"\1\2\3")
    with pytest.raises(FileFormatError, match="shorter than the 8 bytes"):
        FORMAT.read(tmp_path / "cut.safetensors")


def test_a_hint_can_be_typed(tmp_path):
    """The command that it names has the path as one word, whatever is in it."""
    path = tmp_path / "my $model's.safetensors"
    path.write_bytes(b"\x02\0\0\0\0\0\0\0{]")
    with pytest.raises(FileFormatError) as refused:
        FORMAT.read(path)
    assert shlex.split(refused.value.hint) == ["tensorferry", "check", str(path)]


@pytest.mark.parametrize("spaces", [0, 7, 63, 4000])
def test_an_ordinary_header_needs_no_pattern(tmp_path, spaces):
    """Patterns take half a millisecond to compile: a third of a first call; writers add spaces."""
    entry = b'{"__metadata__":{"format":"pt"},"w":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}'
    path = tmp_path / "a.safetensors"
    path.write_bytes(raw(entry + b" " * spaces, b"\1\1\1"))
    assert "done" in survives(
        f"""
        import tensorferry as ferry
        from tensorferry.files.encodings import json_scan
        loaded = ferry.load({str(path)!r}, "numpy")
        assert loaded["w"].tolist() == [1, 1, 1]
        assert json_scan._compiled.cache_info().currsize == 0
        print("done")
        """
    )


@pytest.mark.parametrize("spaces", [0, 1, 15, 16, 17, 100, 70_000])
def test_any_white_space_is_skipped(spaces):
    """A little, and more than is looked at first; at the end of the text too."""
    for text in (b"x" + b" \t\n\r" * spaces + b"y", b"x" + b"\n" * spaces):
        assert blank(text, 1) == len(text) - text.endswith(b"y")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (rb'"a"', "a"),
        (rb'"a\"b" "', 'a"b'),
        (rb'"a\\" "', "a\\"),
        (rb'"\\\"" "', '\\"'),
        ('"é"'.encode(), "é"),
        (rb'"\u00e9"', "é"),
        (b'""', ""),
    ],
)
def test_strings_are_read_as_the_standard_library_reads_them(text, found):
    """Up to the quote that ends them, with and without backslashes."""
    value, end = string(text, 0)
    assert (value, json.loads(text[:end])) == (found, found)


@pytest.mark.parametrize(
    "text", [b'"a', rb'"a\"', rb'"\\\"', b'"a\x01b"', b'"\xff"', rb'"\ud800"', b"a"]
)
def test_what_is_no_string_is_cut_off_or_malformed(text):
    with pytest.raises(Cut):
        string(text, 0)
