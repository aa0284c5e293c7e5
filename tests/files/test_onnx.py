"""ONNX: initializers are read wherever and however a model keeps them; models are not written."""

from __future__ import annotations

import importlib.util
import os
import random
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import tensorferry as ferry
from tensorferry.errors import FileFormatError, FormatLimitError, UnsafeFileError
from tensorferry.files.encodings.array_parts import packed_bytes, unpacked
from tensorferry.files.encodings.protobuf import bytes_field, number_field, varint
from tensorferry.files.formats.onnx import FORMAT
from tensorferry.files.opening.paths import format_for, format_of

onnx = pytest.importorskip("onnx", reason="the onnx library is not installed")
_spec = importlib.util.spec_from_file_location(
    "files_support", Path(__file__).with_name("support.py")
)
support = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(support)


def model(*initializers, nodes=(), **fields):
    graph = onnx.helper.make_graph(list(nodes), "graph", [], [], list(initializers))
    return onnx.helper.make_model(graph, **fields)


def sample():
    """Every dtype in every shape; narrow integers in the low bits of their bytes, as casts make them."""
    return {name: low(array) for name, array in support.sample(FORMAT.dtypes).items()}


def low(array):
    bits = support.NARROW.get(array.dtype.name)
    return array if bits is None else (array.view(np.uint8) & ((1 << bits) - 1)).view(array.dtype)


def proto(name, array):
    return onnx.numpy_helper.from_array(array, name)


def test_reads_every_dtype_that_the_library_writes(tmp_path):
    """What numpy_helper.from_array made is read with its names, shapes and bits."""
    wanted = sample()
    onnx.save_model(
        model(*(proto(name, array) for name, array in wanted.items())), tmp_path / "a.onnx"
    )
    assert support.same_bits(support.arrays(FORMAT.read(tmp_path / "a.onnx")), wanted)


def test_every_data_type_of_the_library_is_known():
    """Each code of TensorProto.DataType means the dtype that the library gives it."""
    from tensorferry.files.formats.onnx import DTYPES

    kinds = onnx.TensorProto.DataType
    numbers = {code for name, code in kinds.items() if name not in ("UNDEFINED", "STRING")}
    assert set(DTYPES) == numbers
    for code, name in DTYPES.items():
        assert onnx.helper.tensor_dtype_to_np_dtype(code).name == name


def test_is_recognised_and_chosen_by_its_suffix(tmp_path):
    """ONNX has no magic bytes: the suffix and the first field say it."""
    path = tmp_path / "a.onnx"
    onnx.save_model(model(proto("a", np.zeros(2, np.float32))), path)
    assert format_of(path) is FORMAT
    assert format_for(path) is FORMAT
    (tmp_path / "b.onnx").write_bytes(b"\0\0\0\0 no model")
    with pytest.raises(FileFormatError, match=r"b\.onnx"):
        format_of(tmp_path / "b.onnx")


@pytest.mark.parametrize("dtype", sorted(FORMAT.dtypes))
def test_typed_fields_are_read(tmp_path, dtype):
    """Elements in float_data, int32_data and the other typed fields are read as the library reads them."""
    array = low(support.awkward(dtype)[:999])
    code = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    tensor = onnx.TensorProto(name="a", data_type=code, dims=array.shape)
    size = array.dtype.itemsize
    if dtype in ("float32", "complex64"):
        tensor.float_data.extend(array.view(np.float32).tolist())
    elif dtype in ("float64", "complex128"):
        tensor.double_data.extend(array.view(np.float64).tolist())
    elif dtype == "int64":
        tensor.int64_data.extend(array.tolist())
    elif dtype in ("uint32", "uint64"):
        tensor.uint64_data.extend(array.tolist())
    elif dtype in support.NARROW and support.NARROW[dtype] != 6:
        tensor.int32_data.extend(list(onnx.numpy_helper.from_array(array).raw_data))
    elif dtype in ("int8", "int16", "int32"):
        tensor.int32_data.extend(array.tolist())
    else:
        tensor.int32_data.extend(array.view(f"uint{8 * size}").tolist())
    onnx.save_model(model(tensor), tmp_path / "a.onnx")
    found = FORMAT.read(tmp_path / "a.onnx").tensors["a"]
    assert support.same_bits(found.array(), onnx.numpy_helper.to_array(tensor))
    if dtype not in ("float32", "complex64", "float64", "complex128"):
        # Python's floats quieten a signalling NaN before the library has it.
        assert support.same_bits(found.array(), array)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 7, 2**20 + 3, 3 * 2**20 + 1])
@pytest.mark.parametrize("dtype", ["int2", "uint4", "float6_e2m3fn"])
def test_packing_of_every_size_comes_back(dtype, size):
    """Elements of fewer than eight bits come back from the bytes into which the library packs them."""
    array = np.resize(low(support.awkward(dtype)), size)
    raw = onnx.numpy_helper.from_array(array).raw_data
    assert len(raw) == packed_bytes(size, support.NARROW[dtype])
    blocks = iter(np.array_split(np.frombuffer(raw, np.uint8), 5))
    back = [block.copy() for block in unpacked(blocks, dtype, size)]
    assert support.same_bits(np.concatenate([np.zeros(0, array.dtype), *back]), array)


@pytest.mark.parametrize("together", [True, False])
def test_external_data_is_read(tmp_path, together):
    """Tensors that lie in other files beside the model are read, and those files are among its paths."""
    wanted = {k: v for k, v in sample().items() if v.size}
    onnx.save_model(
        model(*(proto(name, array) for name, array in wanted.items())),
        tmp_path / "a.onnx",
        save_as_external_data=True,
        all_tensors_to_one_file=together,
        location="w.bin" if together else None,
        size_threshold=0,
    )
    found = FORMAT.read(tmp_path / "a.onnx")
    assert support.same_bits(support.arrays(found), wanted)
    expected = {str(each) for each in tmp_path.iterdir()}
    assert set(found.paths) == expected
    assert len(expected) == (2 if together else 1 + len(wanted))


def external(path, **entries):
    tensor = onnx.TensorProto(name="weights", data_type=1, dims=[2], data_location=1)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    path.write_bytes(model(tensor).SerializeToString())
    return path


@pytest.mark.parametrize(
    "location",
    [
        "../secret",
        "sub/../../secret",
        "/etc/passwd",
        "",
        "link",
        "sub/link",
        "..\\secret",
        "C:secret",
        "folder",
        "a\0b",
        "fifo",
    ],
)
def test_external_data_cannot_leave_the_folder(tmp_path, location):
    """A location that is absolute, goes up, follows a link out of the folder, or is no plain file is refused."""
    (tmp_path / "secret").write_bytes(bytes(64))
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / "folder").mkdir()
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "sub" / "link").symlink_to(tmp_path)
    os.mkfifo(folder / "fifo")
    path = external(
        folder / "a.onnx", location=location + ("/secret" if location == "sub/link" else "")
    )
    with pytest.raises(UnsafeFileError, match="weights"):
        FORMAT.read(path)


@pytest.mark.parametrize(
    "entries",
    [
        {"location": "missing"},
        {"location": "data", "offset": "60"},
        {"location": "data", "offset": "-8"},
        {"location": "data", "offset": "9" * 5000},
        {"location": "data", "length": "16"},
        {"location": "data", "length": "x"},
        {"location": "data", "length": "18446744073709551608"},
    ],
)
def test_external_data_that_is_not_there_is_an_error(tmp_path, entries):
    """A missing file, a place past its end, or a length that is not the shape's names the tensor."""
    (tmp_path / "data").write_bytes(bytes(64))
    with pytest.raises(FileFormatError, match="weights"):
        FORMAT.read(external(tmp_path / "a.onnx", **entries))


def test_external_data_may_lie_in_a_folder_below(tmp_path):
    """A location below the model's folder is no escape, nor is a name that begins with dots."""
    (tmp_path / "sub").mkdir()
    values = np.array([1.5, -2.5], np.float32)
    (tmp_path / "sub" / "..data").write_bytes(bytes(4) + values.tobytes())
    found = FORMAT.read(
        external(tmp_path / "a.onnx", location="sub/..data", offset="4", length="8")
    )
    assert support.same_bits(found.tensors["weights"].array(), values)


def test_initializers_of_graphs_inside_nodes_are_read(tmp_path):
    """The branches of an If have initializers of their own: they are named after the node and the attribute."""
    inner = onnx.helper.make_graph([], "branch", [], [], [proto("w", np.ones(2, np.float32))])
    other = onnx.helper.make_graph([], "branch", [], [], [proto("w", np.zeros(3, np.float32))])
    named = onnx.helper.make_node(
        "If", ["c"], [], name="choose", then_branch=inner, else_branch=other
    )
    bare = onnx.helper.make_node("If", ["c"], [], then_branch=inner, else_branch=other)
    path = tmp_path / "a.onnx"
    path.write_bytes(
        model(proto("w", np.full(4, 2, np.float32)), nodes=[named, bare]).SerializeToString()
    )
    found = support.arrays(FORMAT.read(path))
    assert {name: array.shape for name, array in found.items()} == {
        "w": (4,),
        "choose.then_branch.w": (2,),
        "choose.else_branch.w": (3,),
        "node1.then_branch.w": (2,),
        "node1.else_branch.w": (3,),
    }


def test_what_is_no_dense_number_is_listed(tmp_path):
    """Strings and sparse tensors stand among what cannot be converted."""
    whole = model(
        onnx.helper.make_tensor("text", onnx.TensorProto.STRING, [2], [b"a", b"b"]),
        proto("w", np.ones(2)),
    )
    sparse = onnx.helper.make_sparse_tensor(
        proto("s", np.ones(1, np.float32)), proto("", np.array([3])), [9]
    )
    whole.graph.sparse_initializer.append(sparse)
    (tmp_path / "a.onnx").write_bytes(whole.SerializeToString())
    found = FORMAT.read(tmp_path / "a.onnx")
    assert list(found.tensors) == ["w"]
    assert found.others == {"text": "strings", "s": "a sparse tensor"}


def test_tensors_of_training_and_of_functions(tmp_path):
    """The graphs of a training step, and those in the nodes of functions, have names of their own; none is lost."""
    inner = onnx.helper.make_graph([], "inner", [], [], [proto("d", np.full(2, 4.0))])
    node = onnx.helper.make_node(
        "If", ["c"], ["y"], name="choice", then_branch=inner, else_branch=inner
    )
    function = onnx.helper.make_function(
        "own", "step", ["c"], ["y"], [node], [onnx.helper.make_opsetid("", 18)]
    )
    made = model(proto("a", np.full(2, 1.0)), functions=[function])
    part = made.training_info.add()
    for graph, name, value in ((part.initialization, "b", 2.0), (part.algorithm, "c", 3.0)):
        graph.CopyFrom(onnx.helper.make_graph([], name, [], [], [proto(name, np.full(2, value))]))
    (tmp_path / "a.onnx").write_bytes(made.SerializeToString())
    assert {
        name: stored.array()[0] for name, stored in FORMAT.read(tmp_path / "a.onnx").tensors.items()
    } == {
        "a": 1.0,
        "training.initialization.b": 2.0,
        "training.algorithm.c": 3.0,
        "step.choice.then_branch.d": 4.0,
        "step.choice.else_branch.d": 4.0,
    }


def _tensor(*parts, name="a", code=1):
    return b"".join(parts) + number_field(2, code) + bytes_field(8, name)


def _model(*parts):
    return number_field(1, 8) + b"".join(parts)


def _graph(*tensors):
    return bytes_field(7, b"".join(bytes_field(5, each) for each in tensors))


_TWO = number_field(1, 2)
_RAW = bytes_field(9, bytes(8))
_deep = b""
for _ in range(200):
    _deep = bytes_field(1, bytes_field(5, bytes_field(6, _deep)))

HOSTILE = {
    "no graph": _model(),
    "two graphs": _model(_graph(), _graph()),
    "the same name twice": _model(_graph(_tensor(_TWO, _RAW), _tensor(_TWO, _RAW))),
    "too few bytes": _model(_graph(_tensor(number_field(1, 3), _RAW))),
    "too many bytes": _model(_graph(_tensor(number_field(1, 1), _RAW))),
    "no bytes": _model(_graph(_tensor(_TWO))),
    "bytes in two fields": _model(_graph(_tensor(_TWO, _RAW, bytes_field(4, bytes(8))))),
    "bytes in the wrong field": _model(_graph(_tensor(_TWO, bytes_field(10, bytes(16))))),
    "a negative axis": _model(_graph(_tensor(number_field(1, -2), _RAW))),
    "axes that overflow": _model(_graph(_tensor(*[number_field(1, 2**40)] * 4, _RAW))),
    "axes that overflow in nothing": _model(
        _graph(_tensor(*[number_field(1, 2**62)] * 4, number_field(1, 0)))
    ),
    "a thousand axes": _model(
        _graph(_tensor(*[number_field(1, 1)] * 1000, bytes_field(9, bytes(4))))
    ),
    "a length past the end": _model(varint(7 << 3 | 2) + varint(2**40)),
    "a length past the message": _model(
        bytes_field(7, varint(5 << 3 | 2) + varint(100)), bytes_field(2, "x" * 200)
    ),
    "a number that does not end": _model(b"\xff" * 40),
    "a group": _model(b"\x3b"),
    "field zero": _model(b"\x00\x00"),
    "a name that is a number": _model(bytes_field(7, bytes_field(5, number_field(8, 1)))),
    "a name that is no text": _model(_graph(number_field(2, 1) + bytes_field(8, b"\xff\xfe"))),
    "graphs 200 deep": _model(bytes_field(7, _deep)),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_files_are_refused_in_little_memory(tmp_path, data):
    """A model that lies is refused by a named error, and nothing of the size that it claims is made."""
    path = tmp_path / "a.onnx"
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises((FileFormatError, UnsafeFileError), match=r"a\.onnx"):
            FORMAT.read(path)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_numbers_that_are_too_few_or_do_not_end_are_an_error(tmp_path):
    """Numbers of variable length are counted when they are read; the shape has to fit."""
    for count, raw in (
        (2, b"\x01\x81\x01\x01"),
        (4, b"\x01\x81\x01\x01"),
        (2, b"\xff" * 12),
        (3, b"\x01\x01\x81"),
    ):
        (tmp_path / "a.onnx").write_bytes(
            _model(_graph(_tensor(number_field(1, count), bytes_field(5, raw), code=6)))
        )
        with pytest.raises(FileFormatError, match=r"a\.onnx"):
            FORMAT.read(tmp_path / "a.onnx").tensors["a"].array()


def test_fields_without_end_are_refused(tmp_path, monkeypatch):
    """A file of nothing but tiny fields is given up on, not read for hours."""
    monkeypatch.setattr("tensorferry.files.encodings.protobuf._MOST_FIELDS", 10_000)
    (tmp_path / "a.onnx").write_bytes(_model(bytes_field(7, b"\x60\x00" * 20_000)))
    with pytest.raises(UnsafeFileError, match="10,000 fields"):
        FORMAT.read(tmp_path / "a.onnx")


def test_a_file_that_ends_anywhere_is_refused(tmp_path):
    """However much of its end is missing, a model is refused."""
    wanted = {"a": np.arange(8, dtype=np.float32), "b": np.ones((2, 3), np.int16)}
    made = model(*(proto(name, array) for name, array in wanted.items()))
    del made.opset_import[
        :
    ]  # so that the graph comes last: what is cut off behind it holds no tensor
    data = made.SerializeToString()
    for length in range(1, len(data)):
        (tmp_path / "a.onnx").write_bytes(data[:length])
        with pytest.raises(FileFormatError):
            FORMAT.read(tmp_path / "a.onnx")


def test_flipped_bytes_raise_nothing_but_named_errors(tmp_path):
    """A damaged model gives contents or a named error, never another exception."""
    tensor = onnx.helper.make_tensor("i", onnx.TensorProto.INT4, [5], [1, 2, 3, 4, 5])
    data = model(
        proto("a", np.arange(8, dtype=np.float32)), tensor, doc_string="x"
    ).SerializeToString()
    draw = random.Random(7)  # noqa: S311 - a drawn test, no secret
    refused = 0
    for _ in range(500):
        damaged = bytearray(data)
        for _ in range(draw.randint(1, 3)):
            damaged[draw.randrange(len(data))] = draw.choice([0, 1, 255, draw.randrange(256)])
        (tmp_path / "a.onnx").write_bytes(damaged)
        try:
            support.arrays(FORMAT.read(tmp_path / "a.onnx"))
        except (FileFormatError, UnsafeFileError):
            refused += 1
    assert 0 < refused < 500


def test_takes_no_memory_of_the_tensors_size(tmp_path):
    """Reading 64 MiB takes a few blocks of memory, packed elements too."""
    path = tmp_path / "a.onnx"
    wide = proto("wide", np.zeros(16 << 20, np.float32))
    onnx.save_model(
        model(wide, proto("narrow", np.zeros(64 << 20, support.numpy_dtype("int4")))), path
    )
    tracemalloc.start()
    try:
        found = FORMAT.read(path)
        assert sum(block.size for block in found.tensors["narrow"].blocks()) == 64 << 20
        assert sum(block.size for block in found.tensors["wide"].blocks()) == 16 << 20
        assert tracemalloc.get_traced_memory()[1] < 24 << 20
    finally:
        tracemalloc.stop()


def test_models_are_read_but_not_written(tmp_path):
    """Weights alone are no model: the hint names a file that readers of weights have."""
    with pytest.raises(FormatLimitError, match="can be read, not written") as caught:
        ferry.save({"w": np.ones(2)}, tmp_path / "a.onnx")
    assert caught.value.hint.startswith('save(x, "a.safetensors")')
    assert not list(tmp_path.iterdir())
