"""PyTorch files: what torch writes is read without it, what is written without it torch reads, with equal bits."""

from __future__ import annotations

import argparse
import re
import struct
import subprocess
import sys
import warnings
import zipfile
from collections import OrderedDict, defaultdict
from pathlib import Path

import numpy as np
import pytest
from tests.files import hostile
from tests.files.support import arrays, contents, same_bits, sample
from tests.support import of_torch, peak_of

import tensorferry as ferry
from tensorferry.errors import FileFormatError, FormatLimitError, UnsafeFileError
from tensorferry.files.base.contents import Ref, Special
from tensorferry.files.base.limits import refuse_contents
from tensorferry.files.base.pump import Pump
from tensorferry.files.base.stored import Packed, View
from tensorferry.files.formats.pytorch import FORMAT
from tensorferry.files.reports.check import check_path
from tensorferry.host.numpy_dtypes import numpy_dtype

torch = pytest.importorskip("torch", reason="the files are compared with those of torch itself")

ROOT = Path(__file__).resolve().parents[2]
DTYPES = sorted(FORMAT.dtypes)


def written(tmp_path, given, name="written.pt"):
    path = tmp_path / name
    refuse_contents(FORMAT, given)
    FORMAT.write(given, path, Pump())
    return path


def saved(tmp_path, value, name="saved.pt", **keywords):
    path = tmp_path / name
    torch.save(value, path, **keywords)
    return path


def bits(tensor):
    """The bytes of a tensor of torch, in order."""
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def as_torch(array, dtype):
    raw = (
        torch.from_numpy(np.frombuffer(bytearray(array.tobytes()), np.uint8))
        if array.size
        else torch.empty(0)
    )
    return (
        raw.view(getattr(torch, dtype)) if array.size else raw.to(getattr(torch, dtype))
    ).reshape(array.shape)


@pytest.mark.parametrize("dtype", of_torch(*DTYPES))
def test_what_torch_saves_is_read(dtype, tmp_path):
    """Every bit of every dtype: NaN payloads, negative zeros, subnormals, no axes, no elements."""
    expected = sample([dtype])
    path = saved(tmp_path, {name: as_torch(array, dtype) for name, array in expected.items()})
    found = FORMAT.read(path)
    assert found.tree is None
    assert same_bits(arrays(found), expected)
    assert list(FORMAT.check(path)) == []


@pytest.mark.parametrize("dtype", of_torch(*DTYPES))
def test_torch_reads_what_is_written(dtype, tmp_path):
    """`torch.load`, with ``weights_only=True``, into memory and mapped, gives every bit; so do we."""
    expected = sample([dtype])
    path = written(tmp_path, contents(expected))
    for mapped in (False, True):
        found = torch.load(path, weights_only=True, mmap=mapped)
        assert list(found) == list(expected)
        for name, array in expected.items():
            assert str(found[name].dtype) == f"torch.{dtype}"
            assert tuple(found[name].shape) == array.shape
            assert bits(found[name]) == array.tobytes()
    assert same_bits(arrays(FORMAT.read(path)), expected)
    assert list(FORMAT.check(path)) == []


def test_torch_finds_storages_by_counting(tmp_path):
    """The layout is that of `torch.save`, on which torch relies when it computes where storages lie."""
    config = pytest.importorskip("torch.utils.serialization", reason="PyTorch 2.6 does not").config
    expected = sample(["float32", "int8", "complex128"])
    path = written(tmp_path, contents(expected))
    config.load.calculate_storage_offsets = True
    try:
        found = torch.load(path, weights_only=True, mmap=True)
    finally:
        config.load.calculate_storage_offsets = False
    assert {name: bits(tensor) for name, tensor in found.items()} == {
        name: array.tobytes() for name, array in expected.items()
    }


def test_a_state_dict_is_written_with_the_very_pickle_of_torch(tmp_path):
    """What is read from a module's state dict and written again has the same pickle, opcode for opcode."""
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    source = saved(tmp_path, module.state_dict())
    path = written(tmp_path, FORMAT.read(source))
    with zipfile.ZipFile(source) as a, zipfile.ZipFile(path) as b:
        assert b.read("archive/data.pkl") == a.read("saved/data.pkl")
        theirs, ours = ({name.partition("/")[2] for name in each.namelist()} for each in (a, b))
    # PyTorch 2.6 writes neither.
    assert ours - theirs in (set(), {".format_version", ".storage_alignment"})
    assert theirs <= ours
    state = torch.load(path, weights_only=True)
    assert type(state) is OrderedDict
    assert state._metadata == module.state_dict()._metadata
    assert module.load_state_dict(state).missing_keys == []


def checkpoint():
    """A nested checkpoint with everything that stands beside tensors in one."""
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "parameters": [
            torch.nn.Parameter(torch.ones(2)),
            torch.nn.Parameter(torch.ones(2), requires_grad=False),
        ],
        "grad": torch.zeros(2, requires_grad=True),
        "epoch": 3,
        "step": 1 << 70,
        "negative": [-1, -129, -(1 << 31), -(1 << 31) - 1, 255, 256, 65535, 65536, 1 << 31],
        "loss": float("nan"),
        "rates": (0.1, -0.0, float("inf")),
        "empty": [(), [], {}, "", None, True, False],
        "name": "größe\n😀",
        "bytes": b"\x00\xff",
        "bytearray": bytearray(b"\x80"),
        "complex": complex(1, -2),
        "set": {"b", "a", 3},
        "dtype": torch.bfloat16,
        "size": torch.Size([2, 3]),
        "device": torch.device("cuda", 1),
        "cpu": torch.device("cpu"),
        "layout": torch.strided,
        ("a", 1): "tuple key",
        7: OrderedDict(x=torch.arange(3)),
        "many": list(range(2_500)),
    }


def test_nested_checkpoints_go_there_and_back(tmp_path):
    """Every value beside the tensors, its type and its order, and parameters with whether they require grad."""
    value = checkpoint()
    source = saved(tmp_path, value)
    found = FORMAT.read(source)
    assert found.tree["dtype"] == Special("dtype", "bfloat16")
    assert found.tree["device"] == Special("device", "cuda:1")
    assert found.tree["parameters"] == [
        Ref("parameters.0", "parameter", requires_grad=True),
        Ref("parameters.1", "parameter", requires_grad=False),
    ]
    assert "optimizer.state.0.exp_avg" in found.tensors
    assert type(found.tree["model"]) is OrderedDict
    again = torch.load(written(tmp_path, found), weights_only=True)
    assert outline(again) == outline(value)


@pytest.mark.parametrize("suffix", [".pt", ".safetensors", ".npz"])
@pytest.mark.parametrize("target", ["torch", "numpy"])
def test_what_is_loaded_is_saved_again_as_it_was(tmp_path, target, suffix):
    """Dtypes, devices, layouts and sizes too: they are PyTorch's own in PyTorch, and are told as values elsewhere."""
    others = {
        "dtype": torch.bfloat16,
        "size": torch.Size([2, 3]),
        "device": torch.device("cuda", 1),
    }
    others |= {"layout": torch.strided, "listed": [(torch.Size([]), torch.int8)]}
    source, target_path = saved(tmp_path, {"w": torch.ones(2), **others}), tmp_path / f"b{suffix}"
    loaded = ferry.load(source, target, lazy=True)
    read = ferry.load(source, target)
    if target == "torch":
        assert {key: loaded[key] for key in others} == others
        assert type(loaded["size"]) is torch.Size
    else:
        assert (read["dtype"], read["size"]) == (
            Special("dtype", "bfloat16"),
            Special("size", [2, 3]),
        )
    for tree in (loaded, read):
        ferry.save(tree, target_path, overwrite=True)
        again = ferry.load(target_path, "torch")
        assert {key: outline(again[key]) for key in others} == {
            key: outline(value) for key, value in others.items()
        }


@pytest.mark.parametrize(
    "special", [Special("dtype", "onnx"), Special("dtype", "ones"), Special("device", "nowhere:x")]
)
def test_values_that_pytorch_does_not_have_stay_told(tmp_path, special):
    """So a name in a file imports and calls nothing."""
    ferry.save({"w": torch.ones(2), "odd": special}, tmp_path / "a.safetensors")
    assert ferry.load(tmp_path / "a.safetensors", "torch")["odd"] == special


@pytest.mark.parametrize(
    "make", [torch.Tensor.to_sparse, lambda x: x.to("meta")], ids=["sparse", "meta"]
)
def test_a_tensor_without_values_is_refused_with_its_place(tmp_path, make):
    """Before anything is written."""
    with pytest.raises(ferry.UnsupportedTypeError, match=r'no values.* - at \$\["a"\]\[0\]\["w"\]'):
        ferry.save({"first": torch.ones(2), "a": [{"w": make(torch.eye(2))}]}, tmp_path / "a.pt")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("key", "plain"),
    [
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        ((1, np.int64(2)), str((1, np.int64(2)))),
        (frozenset({1}), "frozenset({1})"),
    ],
    ids=repr,
)
def test_a_key_with_which_a_file_would_not_be_read_is_refused(tmp_path, key, plain):
    """Nothing is written. `torch.load` with its safe settings would not read such a file either."""
    with pytest.raises(
        ferry.FormatLimitError, match=r"^a has a key that is a.* not be read again"
    ) as caught:
        ferry.save(x := {"a": {key: torch.ones(2), "n": 1}}, tmp_path / "a.pt")
    assert not list(tmp_path.iterdir())
    x["a"] = eval(caught.value.hint.removesuffix(" in its place"), {"x": x})  # noqa: S307
    ferry.save(x, tmp_path / "a.pt")
    read = torch.load(tmp_path / "a.pt", weights_only=True)["a"]
    assert [(type(each), each) for each in read] == [(type(plain), plain), (str, "n")]


@pytest.mark.skipif(np.dtype(np.longdouble).itemsize == 8, reason="here it is float64")
@pytest.mark.parametrize("kind", ["longdouble", "clongdouble"])
def test_a_number_of_extended_precision_is_refused(tmp_path, kind):
    """It was written, and read as no tensor."""
    x = {"a": [getattr(np, kind)(2)], "w": np.ones(2)}
    with pytest.raises(
        ferry.FormatLimitError, match=r"^a\.0 is a NumPy scalar of .* would not be read again"
    ) as caught:
        ferry.save(x, tmp_path / "a.pt")
    assert not list(tmp_path.iterdir())
    ferry.save(
        [eval(caught.value.hint.partition(" in its")[0], {"x": x})],  # noqa: S307
        tmp_path / "a.pt",
        verify=True,
    )


@pytest.mark.parametrize("zipped", [True, False])
def test_none_alone_is_not_an_empty_dict(tmp_path, zipped):
    """As `torch.save` writes it, in both of its formats, and as `torch.load` reads ours."""
    torch.save(None, tmp_path / "none.pt", _use_new_zipfile_serialization=zipped)
    assert ferry.load(tmp_path / "none.pt") is None
    ferry.convert_files(tmp_path / "none.pt", tmp_path / "again.pt")
    assert torch.load(tmp_path / "again.pt", weights_only=True) is None


def outline(value):
    """All that can be told of a value, so that two can be compared: types, order, bits, grad, attributes."""
    kind = type(value)
    if isinstance(value, torch.Tensor):
        return kind, value.dtype, tuple(value.shape), bits(value), value.requires_grad
    if isinstance(value, dict):
        return (
            kind,
            [(outline(key), outline(child)) for key, child in value.items()],
            outline_of(vars_of(value)),
        )
    if kind in (list, tuple):
        return kind, [outline(child) for child in value]
    if kind is float:
        return np.float64(value).tobytes()
    return kind, repr(value) if kind is not set else sorted(map(repr, value))


def outline_of(attributes):
    return [(name, outline(child)) for name, child in attributes.items()]


def vars_of(value):
    return getattr(value, "__dict__", {})


def test_arrays_and_scalars_of_numpy_go_there_and_back(tmp_path):
    """NumPy's own, in either byte order and layout, bfloat16 too, times and strings; torch reads them as its own."""
    import ml_dtypes

    value = {
        "array": np.arange(6, dtype=">i4").reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "bfloat16": np.array([1, np.nan, -0.0], ml_dtypes.bfloat16),
        "empty": np.zeros((0, 3), "float16"),
        "lone": np.array(3, "uint64"),
        "scalar": np.float32(0.1),
        "truth": np.bool_(True),
        "time": np.datetime64("2020-01-02T03", "h"),
        "text": np.str_("größe"),
    }
    for protocol in (2, 4, 5):
        found = FORMAT.read(saved(tmp_path, value, pickle_protocol=protocol))
        assert {name: ref.kind for name, ref in found.tree.items() if type(ref) is Ref} == {
            **dict.fromkeys(("array", "fortran", "bfloat16", "empty", "lone"), "array"),
            **dict.fromkeys(("scalar", "truth"), "scalar"),
        }
        for name, stored in found.tensors.items():
            assert same_bits(
                stored.array(), np.asarray(value[name]).astype(value[name].dtype.newbyteorder("="))
            )
    path = written(tmp_path, found)
    again = torch.load(path, weights_only=False)
    for name, each in value.items():
        native = each.astype(each.dtype.newbyteorder("=")) if isinstance(each, np.ndarray) else each
        assert type(again[name]) is type(each)
        assert same_bits(again[name], native)
    allowed = [
        np._core.multiarray._reconstruct,
        np._core.multiarray.scalar,
        np.ndarray,
        np.dtype,
        ml_dtypes.bfloat16,
    ]
    allowed += [
        type(np.dtype(code))
        for code in ("i4", "f8", "f2", "u8", "f4", "?", "M8[h]", "U5", ml_dtypes.bfloat16)
    ]
    with torch.serialization.safe_globals(allowed):
        assert list(torch.load(path, weights_only=True)) == list(value)


@pytest.mark.parametrize("verify", [False, True])
def test_values_that_become_tensors_are_told(tmp_path, verify):
    """A pickle lists NumPy's scalars as tensors: so does the report, by name, and what is verified."""
    value = {
        "x": np.float32(1.5),
        "inner": [np.bool_(True), {"w": torch.ones(2)}],
        "day": np.datetime64("2020-01-02"),
    }
    ferry.save(value, tmp_path / "in.npz")
    assert list(ferry.open(tmp_path / "in.npz").tensors) == ["inner.1.w"]
    for name, write in {
        "saved.pt": lambda path: ferry.save(value, path, verify=verify),
        "converted.pt": lambda path: ferry.convert_files(tmp_path / "in.npz", path, verify=verify),
        "by a process.pt": lambda path: ferry.convert_files(
            tmp_path / "in.npz", path, verify=verify, engine="processes"
        ),
    }.items():
        report = write(tmp_path / name)
        assert report.warnings == (
            "PyTorch has NumPy's scalars as tensors; these were values: x, inner.0.",
        )
        found = ferry.open(tmp_path / name)
        assert (report.tensors, report.bytes_written) == (len(found.tensors), 4 + 1 + 8)
        assert list(found.tensors) == ["x", "inner.0", "inner.1.w"]
        assert found.tree["day"] == value["day"]
        again = torch.load(tmp_path / name, weights_only=False)
        assert (type(again["x"]), type(again["inner"][0])) == (np.float32, np.bool_)
        assert (
            ferry.convert_files(
                tmp_path / name, tmp_path / "again.pt", verify=True, overwrite=True
            ).warnings
            == ()
        )


def test_tied_tensors_share_a_storage(tmp_path):
    """Two names of one tensor have equal keys, are stored once, and are one memory again where torch reads them."""
    weight = torch.arange(6.0)
    found = FORMAT.read(saved(tmp_path, {"a": weight, "b": weight.view(6), "c": weight.clone()}))
    assert found.ties == {"b": "a"}
    path = written(tmp_path, found)
    state = torch.load(path, weights_only=True)
    assert state["a"].data_ptr() == state["b"].data_ptr() != state["c"].data_ptr()
    with zipfile.ZipFile(path) as archive:
        assert (
            len([name for name in archive.namelist() if "/data/" in name and "serial" not in name])
            == 2
        )
    assert FORMAT.read(path).ties == {"b": "a"}


def test_the_same_tensor_object_twice_is_one(tmp_path):
    """A tensor that pickle fetches from its memo is found, also behind the quick way through a pickle."""
    state = {f"layer.{place}": torch.full((2, 2), float(place)) for place in range(300)}
    state["last"] = state["layer.299"]
    state["first"] = state["layer.0"]
    found = FORMAT.read(saved(tmp_path, state))
    assert found.ties == {"last": "layer.299", "first": "layer.0"}
    assert same_bits(arrays(found), {name: tensor.numpy() for name, tensor in state.items()})


def test_views_are_read_where_they_lie(tmp_path):
    """Slices are packed in their storage, transposed, stepped and repeated views are not; all have the right values."""
    base = torch.arange(48.0).reshape(6, 8)
    value = {
        "slice": base[2:4],
        "transposed": base.T,
        "stepped": base[::2, 1::3],
        "repeated": base[0, :1].expand(5),
        "column": base[:, 3],
        "one": base[:1, :1].T,
        "none": base[:0].T,
    }
    found = FORMAT.read(saved(tmp_path, value))
    kinds = {name: isinstance(stored, Packed) for name, stored in found.tensors.items()}
    assert kinds == dict.fromkeys(value, False) | dict.fromkeys(("slice", "one", "none"), True)
    assert all(isinstance(stored, (Packed, View)) for stored in found.tensors.values())
    expected = {name: np.ascontiguousarray(tensor.numpy()) for name, tensor in value.items()}
    assert same_bits(arrays(found), expected)
    again = FORMAT.read(written(tmp_path, found))
    assert same_bits(arrays(again), expected)
    assert all(isinstance(stored, Packed) for stored in again.tensors.values())


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_conjugate_and_negative_views_have_their_values(dtype, tmp_path):
    """Tensors whose bits say that they are read conjugated or negated are resolved, zeros and NaNs with their signs."""
    base = torch.view_as_complex(
        torch.tensor([[1.0, -2], [0, 0.0], [-0.0, float("nan")]], dtype=dtype.to_real())
    )
    for name, view in {"conj": base.conj(), "imag": base.conj().imag, "plain": base}.items():
        found = FORMAT.read(saved(tmp_path, {name: view}))
        assert found.tensors[name].array().tobytes() == bits(view)
        assert found.tensors[name].record.nbytes == base.nbytes


def test_storages_stay_storages(tmp_path):
    """Typed and untyped storages by themselves are read as flat tensors, and written as what they were."""
    untyped = torch.arange(4, dtype=torch.uint8).untyped_storage()
    source = saved(tmp_path, {"untyped": untyped})
    found = FORMAT.read(source)
    assert found.tree == {"untyped": Ref("untyped", "untyped_storage")}
    again, first = (
        torch.load(path, weights_only=True)["untyped"]
        for path in (written(tmp_path, found), source)
    )
    assert type(again) is type(first)
    assert bytes(again._untyped_storage) == bytes(first._untyped_storage) == b"\0\1\2\3"


def test_a_tensor_alone(tmp_path):
    """A file of one tensor has it under a name, and is written as one tensor again."""
    found = FORMAT.read(saved(tmp_path, torch.arange(3)))
    assert found.tree == Ref("tensor")
    again = torch.load(written(tmp_path, found), weights_only=True)
    assert again.tolist() == [0, 1, 2]


def test_names_that_clash_get_numbers(tmp_path):
    """Keys that join to the same name do not hide each other."""
    found = FORMAT.read(saved(tmp_path, {"a": {"b": torch.zeros(1)}, "a.b": torch.ones(2)}))
    assert {name: stored.shape for name, stored in found.tensors.items()} == {
        "a.b": (1,),
        "a.b#2": (2,),
    }
    assert found.tree == {"a": {"b": Ref("a.b")}, "a.b": Ref("a.b#2")}


def test_big_endian_files_are_swapped(tmp_path):
    """A file whose ``byteorder`` says big has its values in the machine's order."""
    big = np.arange(6, dtype=">f4").tobytes()
    lies = hostile.Lies()
    path = tmp_path / "big.pt"
    path.write_bytes(
        hostile.zip_bytes(
            [
                (
                    "archive/data.pkl",
                    hostile.state_dict(a=hostile.tensor(), t=hostile.tensor(stride=(1, 2))),
                    lies,
                ),
                ("archive/byteorder", b"big", lies),
                ("archive/data/0", big, lies),
            ]
        )
    )
    found = FORMAT.read(path)
    assert found.tensors["a"].array().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found.tensors["t"].array().tolist() == [[0, 2, 4], [1, 3, 5]]
    path.write_bytes(path.read_bytes().replace(b"archive/byteorderbig", b"archive/byteorderbag"))
    with pytest.raises(FileFormatError):
        FORMAT.read(path)


def test_what_is_no_tensor_to_carry_is_listed(tmp_path):
    """Meta tensors, dtypes without a counterpart, and attributes of tensors, stand among the others."""
    attributed = torch.nn.Parameter(torch.zeros(1))
    attributed.note = "mine"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch calls it experimental
        half = torch.zeros(2, dtype=torch.complex32)
    value = {
        "meta": torch.zeros(2, device="meta"),
        "attributed": attributed,
        "half": half,
        "kept": torch.zeros(2),
        "objects": np.array(["a", None], dtype=object),
    }
    found = FORMAT.read(saved(tmp_path, value))
    assert list(found.tensors) == ["attributed", "kept"]
    assert set(found.others) == {"meta", "half", "objects", "attributed@note"}
    assert "meta" in found.others["meta"]


def quantised(kind=torch.qint8):
    return torch.quantize_per_tensor(torch.linspace(-1, 1, 12).reshape(3, 4), 0.1, 3, kind)


def per_channel(axis, scales=torch.float64, zero_points=torch.int64):
    count = (3, 4)[axis]
    scales, zero_points = (
        torch.linspace(0.1, 0.4, count, dtype=scales),
        torch.arange(count).to(zero_points),
    )
    return torch.quantize_per_channel(
        torch.linspace(-1, 1, 12).reshape(3, 4), scales, zero_points, axis, torch.quint8
    )


def rebuilt(parts):
    """The tensor that parts are of, by torch's own functions."""
    if "layout" in parts:
        layout, size, values = parts["layout"], parts["size"].tolist(), parts["values"]
        if layout == "sparse_coo":
            return torch.sparse_coo_tensor(
                parts["indices"], values, size, is_coalesced=parts["is_coalesced"]
            )
        rows = layout[-3:] in ("csr", "bsr")
        indices = ("crow_indices", "col_indices") if rows else ("ccol_indices", "row_indices")
        of = {"layout": getattr(torch, layout), "check_invariants": True}
        return torch.sparse_compressed_tensor(
            *(parts[each] for each in indices), values, size, **of
        )
    values, scale, zero_point = (parts[each] for each in ("values", "scale", "zero_point"))
    if "axis" in parts:
        return torch._make_per_channel_quantized_tensor(
            values, scale, zero_point, int(parts["axis"])
        )
    return torch._make_per_tensor_quantized_tensor(values, float(scale), int(zero_point))


@pytest.fixture
def in_parts():
    """Quantised and sparse tensors of every kind that torch saves."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UserWarning
        )  # torch calls all of it deprecated, or a prototype
        square = torch.tensor([[0.0, 1.5], [-0.0, 2.0]])
        made = {kind: quantised(getattr(torch, kind)) for kind in ("qint8", "quint8", "qint32")}
        made |= {"turned": quantised().t(), "part": quantised()[1:, 1:3], "none": quantised()[:0]}
        made |= {f"axis {axis}": per_channel(axis) for axis in (0, 1)}
        made["floats"] = per_channel(1, torch.float32, torch.float32)
        made["coo"] = square.to_sparse()
        made["twice"] = torch.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (3,))
        made["hybrid"] = torch.sparse_coo_tensor(
            [[0, 2]], torch.eye(2, dtype=torch.bfloat16), (3, 2)
        )
        made |= {each: getattr(square, f"to_sparse_{each}")() for each in ("csr", "csc")}
        made |= {
            each: getattr(torch.ones(4, 6), f"to_sparse_{each}")((2, 3)) for each in ("bsr", "bsc")
        }
        yield made


def same_tensor(found, wanted):
    """Whether two tensors are the same, of the same layout or with the same scales."""
    if wanted.is_quantized:
        return (
            found.dtype == wanted.dtype
            and torch.equal(found, wanted)
            and found.qscheme() == wanted.qscheme()
        )
    return (
        found.layout == wanted.layout
        and found.shape == wanted.shape
        and torch.equal(found.to_dense(), wanted.to_dense())
    )


@pytest.mark.parametrize("through", [None, "a.safetensors", "a.npz", "again.pt"])
def test_quantised_and_sparse_tensors_are_parts(tmp_path, in_parts, through):
    """In a dict, a list and a module's state: torch makes the same tensor of them, after any format that has values."""
    lasting = {
        name: each for name, each in in_parts.items() if name != "floats"
    }  # torch has no function for those
    path = saved(tmp_path, {"by name": in_parts, "in a list": [*lasting.values(), torch.ones(1)]})
    if through:
        ferry.convert_files(path, tmp_path / through, verify=True)
        path = tmp_path / through
    found = ferry.load(path, "torch")
    for name, tensor in lasting.items():
        assert same_tensor(rebuilt(found["by name"][name]), tensor), name
    for parts, tensor in zip(found["in a list"], lasting.values(), strict=False):
        assert same_tensor(rebuilt(parts), tensor)
    floats = found["by name"]["floats"]
    assert torch.equal(floats["values"], in_parts["floats"].int_repr())
    assert floats["scale"].dtype == floats["zero_point"].dtype == torch.float32
    assert (floats["scheme"], floats["dtype"]) == ("per_channel_affine", "quint8")


@pytest.fixture
def packed():
    """Tensors quantised to two and to four numbers in a byte, their last byte full and not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch calls them deprecated
        scales, zero_points = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.0, 1.0, 2.0])
        of = {kind: getattr(torch, kind) for kind in ("quint4x2", "quint2x4")}
        rows = {
            4: torch.linspace(0, 1.5, 12).reshape(3, 4),
            5: torch.linspace(0, 1.5, 15).reshape(3, 5),
        }
        channels = {
            f"{kind} {count}": torch.quantize_per_channel(each, scales, zero_points, 0, dtype)
            for kind, dtype in of.items()
            for count, each in rows.items()
        }
        yield channels | {"one scale": torch.quantize_per_tensor(rows[5], 0.1, 3, torch.quint4x2)}


@pytest.mark.parametrize("through", [None, "a.safetensors", "a.npz", "again.pt"])
def test_several_numbers_in_a_byte_are_the_bytes_that_torch_has(tmp_path, packed, through):
    """As `int_repr` gives them, with scales, zero points, axis, size and how they are packed."""
    path = saved(tmp_path, packed)
    if through:
        ferry.convert_files(path, tmp_path / through, verify=True, tensors_only=through == "a.npz")
        path = tmp_path / through
    found = ferry.load(path, "torch")
    for name, wanted in packed.items():
        values, scale, zero_point, size = (
            found[f"{name}.{part}"] if through == "a.npz" else found[name][part]
            for part in ("values", "scale", "zero_point", "size")
        )
        assert torch.equal(values, wanted.int_repr()), name
        assert tuple(size.tolist()) == tuple(wanted.shape)
        if name == "one scale":
            assert (scale.item(), zero_point.item()) == (wanted.q_scale(), wanted.q_zero_point())
            continue
        assert torch.equal(scale, wanted.q_per_channel_scales())
        assert torch.equal(zero_point, wanted.q_per_channel_zero_points())
        # The first number of a byte is in its low bits: what unpacks so is what torch computes
        # with.
        bits = 4 if "4x2" in name else 2
        each = torch.stack(
            [values >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)], 1
        ).flatten()
        numbers = each[: wanted.numel()].reshape(wanted.shape).float()
        exact = (numbers - zero_point[:, None]) * scale[:, None]
        assert torch.allclose(exact, wanted.dequantize(), rtol=0, atol=1e-6), name


def test_a_part_of_a_packed_tensor_is_listed(tmp_path, packed):
    """Whose first number need not begin a byte."""
    try:
        part = packed["one scale"][1:]
    except RuntimeError:
        pytest.skip("this PyTorch cannot make one (2.11)")
    found = FORMAT.read(saved(tmp_path, {"q": part, "w": torch.ones(1)}))
    assert (list(found.tensors), list(found.others)) == (["w"], ["q"])
    assert "several numbers in a byte" in found.others["q"]


def ragged(layout):
    """Two tensors in one, of each layout that torch has for it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch calls it a prototype
        parts = [torch.arange(6.0).reshape(2, 3), torch.arange(12.0, 24.0).reshape(4, 3)]
        return torch.nested.nested_tensor(
            parts, layout=layout, requires_grad=layout is torch.jagged
        )


@pytest.mark.parametrize("through", [None, "a.safetensors", "again.pt"])
def test_nested_tensors_are_parts(tmp_path, through):
    """Of which torch makes the same tensors again."""
    plain, jagged = ragged(torch.strided), ragged(torch.jagged)
    narrow = torch.nested.narrow(
        torch.ones(2, 5, 3), 1, torch.tensor([0, 1]), torch.tensor([3, 2]), torch.jagged
    )
    path = saved(
        tmp_path,
        {"plain": plain, "turned": plain.transpose(1, 2), "jagged": jagged, "narrow": narrow},
    )
    if through:
        ferry.convert_files(path, tmp_path / through, verify=True)
        path = tmp_path / through
    found = ferry.load(path, "torch")
    for name, wanted in (("plain", plain), ("turned", plain.transpose(1, 2))):
        parts = found[name]
        assert parts["layout"] == "nested"
        for size, stride, offset, each in zip(
            *(parts[part].tolist() for part in ("sizes", "strides", "offsets")),
            wanted.unbind(),
            strict=True,
        ):
            assert torch.equal(parts["values"].as_strided(size, stride, offset), each)
    for name, wanted in (("jagged", jagged), ("narrow", narrow)):
        parts = found[name]
        again = torch.nested.nested_tensor_from_jagged(
            parts["values"],
            parts["offsets"],
            parts.get("lengths"),
            jagged_dim=int(parts["jagged_dim"]),
        )
        assert parts["layout"] == "jagged"
        assert all(map(torch.equal, again.unbind(), wanted.unbind()))
    assert FORMAT.read(saved(tmp_path, {"j": jagged})).tree["j"]["values"] == Ref(
        "j.values", "tensor", True
    )


def test_the_parts_of_a_lone_tensor_and_of_a_parameter(tmp_path):
    """What stands alone is the parts; a sparse parameter's values are one; an attribute is told, and not lost."""
    assert ferry.load(saved(tmp_path, quantised()))["scale"] == 0.1
    parameter = torch.nn.Parameter(torch.eye(2).to_sparse())
    found = FORMAT.read(saved(tmp_path, {"p": parameter}))
    assert found.tree["p"]["values"] == Ref("p.values", "parameter", True)
    noted = torch.eye(2).to_sparse()
    noted.note = "mine"
    assert set(FORMAT.read(saved(tmp_path, {"x": noted})).others) == {"x.values@note"}


def test_a_module_quantised_dynamically_is_read(tmp_path):
    """The state of torch's own quantised layers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls it deprecated
        layers = torch.nn.Sequential(torch.nn.Linear(3, 2))
        state = torch.ao.quantization.quantize_dynamic(layers, {torch.nn.Linear}).state_dict()
        weight, bias = state["0._packed_params._packed_params"]
        found = ferry.load(saved(tmp_path, state), "torch")["0._packed_params._packed_params"]
        assert same_tensor(rebuilt(found[0]), weight)
        assert torch.equal(found[1], bias)


def opcodes(value):
    """A pickle of plain values, without its frame; bytes are opcodes already."""
    if isinstance(value, float):
        return b"G" + struct.pack(">d", value)
    if isinstance(value, list):
        return b"](" + b"".join(map(opcodes, value)) + b"e"
    plain = {bytes: bytes, int: hostile.number, str: hostile.text}
    return (
        hostile.several(*map(opcodes, value))
        if isinstance(value, tuple)
        else plain[type(value)](value)
    )


_KEY = ("storage", hostile.named("torch", "QInt8Storage"), "0", "cpu", 24)
_RAW, _DENSE = opcodes(_KEY) + b"Q", hostile.tensor()
_EACH, _AXIS = (hostile.named("torch", f"per_{kind}_affine") for kind in ("tensor", "channel"))
_COO, _CSR, _STRIDED = (
    hostile.named("torch.serialization", "_get_layout") + opcodes((f"torch.{kind}",)) + b"R"
    for kind in ("sparse_coo", "sparse_csr", "strided")
)
_INDICES = hostile.tensor(kind="Long", key="1", size=(2, 1), stride=(1, 1), numel=2)
_OFFSETS = hostile.tensor(kind="Long", key="1", size=(2,), stride=(1,), numel=2)
_FLAT = hostile.tensor(size=(6,), stride=(1,))
_FOUR = opcodes(("storage", hostile.named("torch", "QUInt4x2Storage"), "0", "cpu", 24)) + b"Q"
HOSTILE_PARTS = {
    "quantised without a storage": (5, 0, (2,), (1,), (_EACH, 0.1, 3)),
    "a scale that is text": (_RAW, 0, (2,), (1,), (_EACH, "x", 3)),
    "no quantiser": (_RAW, 0, (2,), (1,), 5),
    "no scheme": (_RAW, 0, (2,), (1,), (5, 0.1, 3)),
    "no scheme of axes": (_RAW, 0, (2,), (1,), (_EACH, [0.1] * 2, [1] * 2, 0)),
    "past its storage": (_RAW, 0, (99,), (1,), (_EACH, 0.1, 3)),
    "sizes that are none": (_RAW, 0, 5, (1,), (_EACH, 0.1, 3)),
    "an endless zero point": (_RAW, 0, (2,), (1,), (_EACH, 0.1, 1 << 70)),
    "another axis": (_RAW, 0, (2,), (1,), (_AXIS, [0.1] * 2, [1] * 2, 1)),
    "a negative axis": (_RAW, 0, (2,), (1,), (_AXIS, [0.1] * 2, [1] * 2, -1)),
    "too few scales": (_RAW, 0, (2,), (1,), (_AXIS, [0.1], [1] * 2, 0)),
    "scales of text": (_RAW, 0, (2,), (1,), (_AXIS, ["a"] * 2, [1] * 2, 0)),
    "endless zero points": (_RAW, 0, (2,), (1,), (_AXIS, [0.1] * 2, [1 << 70] * 2, 0)),
    "scales that are none": (_RAW, 0, (2,), (1,), (_AXIS, 5, 6, 0)),
    "sparse without a layout": (5, (_INDICES, _DENSE, (2, 3))),
    "sparse without parts": (_COO, ()),
    "parts that are none": (_COO, 5),
    "numbers for tensors": (_COO, (1, 2, (3,))),
    "a layout that is not sparse": (_STRIDED, (_INDICES, _DENSE, (2, 3))),
    "too few parts": (_CSR, (_INDICES, _DENSE, (2, 3))),
    "too many parts": (_COO, (_INDICES, _DENSE, (2, 3), b"\x88", 5)),
    "indices that are floats": (_COO, (_DENSE, _DENSE, (2, 3))),
    "a negative size": (_COO, (_INDICES, _DENSE, (-2, 3))),
    "an endless size": (_COO, (_INDICES, _DENSE, (1 << 70, 3))),
    "values that do not fit": (_COO, (_INDICES, _DENSE, (2, 3))),
    "packed past its storage": (_FOUR, 0, (99,), (1,), (_EACH, 0.1, 3)),
    "packed without sizes": (_FOUR, 0, 5, (1,), (_EACH, 0.1, 3)),
    "packed in negative sizes": (_FOUR, 0, (-2,), (1,), (_EACH, 0.1, 3)),
    "nested without a buffer": (5, _INDICES, _INDICES, _OFFSETS),
    "nested in places that do not fit": (_DENSE, _INDICES, _INDICES, _INDICES),
    "nested without strides": (_FLAT, _INDICES, 5, _OFFSETS),
    "nested at offsets of text": (_FLAT, _INDICES, _INDICES, ["a", "b"]),
}


class Config(argparse.Namespace):
    """A class of a program."""


@pytest.mark.parametrize("case", HOSTILE_PARTS)
def test_hostile_parts_are_refused(tmp_path, case):
    """What torch could not have saved is an error that says so, in the file's words."""
    arguments = HOSTILE_PARTS[case]
    function = {2: "_rebuild_sparse_tensor", 4: "_rebuild_nested_tensor"}.get(
        len(arguments), "_rebuild_qtensor"
    )
    body = hostile.named("torch._utils", function) + opcodes(arguments) + b"R"
    path = tmp_path / "a.pt"
    path.write_bytes(hostile.torch_zip(hostile.PROTO2 + body + hostile.STOP))
    with pytest.raises(FileFormatError, match=r"describes a|its pickle is damaged"):
        FORMAT.read(path)


def test_allowed_classes_are_dicts_of_their_attributes(tmp_path):
    """A class that the caller allows is read as what it was given, tensors too; without that it is refused by name."""
    path = saved(tmp_path, {"args": Config(lr=0.1, weight=torch.ones(2)), "w": torch.zeros(1)})
    name = f"{Config.__module__}.Config"
    with pytest.raises(UnsafeFileError, match=f"asks for {re.escape(name)}"):
        FORMAT.read(path)
    assert name in FORMAT.asks_for(path)
    found = FORMAT.read(path, allow=frozenset({name}))
    assert found.tree == {"args": {"lr": 0.1, "weight": Ref("args.weight")}, "w": Ref("w")}
    assert same_bits(
        arrays(found), {"args.weight": np.ones(2, "float32"), "w": np.zeros(1, "float32")}
    )


def test_defaultdicts_of_builtin_types_are_kept(tmp_path):
    """With their factory, which is only ever one of Python's plain types."""
    value = {"d": defaultdict(list, a=[1]), "n": defaultdict(None, b=torch.ones(1))}
    again = torch.load(written(tmp_path, FORMAT.read(saved(tmp_path, value))), weights_only=False)
    assert again["d"] == value["d"]
    assert again["d"].default_factory is list
    assert type(again["n"]) is defaultdict


def test_factories_are_kept_under_the_names_of_each_protocol(tmp_path):
    """Protocol 2 has `int` and `str` by their names in Python 2."""
    value = {each.__name__: defaultdict(each, a=torch.ones(1)) for each in (int, str, list, float)}
    for protocol in (2, 4):
        found = FORMAT.read(saved(tmp_path, value, pickle_protocol=protocol))
        assert [held.default_factory for held in found.tree.values()] == [int, str, list, float]


def test_a_lone_surrogate_is_read_and_written_as_pickle_does(tmp_path):
    """Such text, as names of files may be, stands in values and in names of tensors."""
    # More tensors of one kind than one, so that names are read in the quick way too.
    value = {f"{number}\udcff": torch.full((2,), float(number)) for number in range(5)} | {
        "s": "x\udcff"
    }
    for protocol in (2, 4):
        found = FORMAT.read(saved(tmp_path, value, pickle_protocol=protocol))
        assert found.tree["s"] == "x\udcff"
        assert list(found.tensors) == [name for name in value if name != "s"]
        again = torch.load(written(tmp_path, found, f"{protocol}.pt"), weights_only=True)
        assert list(again) == list(value)
        assert again["s"] == "x\udcff"


def test_metadata_is_kept_where_torch_does_not_look(tmp_path):
    """Strings of another format, such as safetensors, come back; `torch.load` reads the same file."""
    given = contents({"a": np.ones(2)}, metadata={"format": "pt", "größe": "ü\n"})
    path = written(tmp_path, given)
    assert FORMAT.read(path).metadata == given.metadata
    assert torch.load(path, weights_only=True)["a"].tolist() == [1, 1]


def test_what_torch_cannot_hold_is_refused_before_writing(tmp_path):
    """Dtypes that torch lacks, integers too long, objects: named errors, and no file."""
    for given, message in (
        (contents({"layer.w": np.zeros(2, hostile_dtype())}), "layer.w"),
        (contents({}, tree={"deep": {"n": 1 << 3_000}}), "deep.n"),
        (contents({}, tree={"deep": [object()]}), "deep.0"),
        (contents({}, tree=nested(70)), "64 levels"),
    ):
        with pytest.raises(FormatLimitError, match=message.replace(".", r"\.")):
            written(tmp_path, given)
    assert list(tmp_path.iterdir()) == []


def hostile_dtype():

    return numpy_dtype("float8_e4m3b11fnuz")


def nested(levels):
    tree = []
    for _ in range(levels):
        tree = [tree]
    return tree


def test_writing_is_deterministic(tmp_path):
    """Equal contents make equal bytes, sets of strings too, whatever their hash."""
    given = contents({"a": np.arange(3)}, tree={"a": Ref("a"), "s": {"x", "y", "z", 1}})
    assert (
        written(tmp_path, given, "1.pt").read_bytes()
        == written(tmp_path, given, "2.pt").read_bytes()
    )


def test_a_flipped_bit_is_found_by_check_and_by_copying(tmp_path):
    """The finding has the tensor's name and the byte; a copy raises instead of writing the wrong values."""
    path = written(tmp_path, contents({"first": np.arange(4.0), "second": np.arange(5.0)}))
    stored = FORMAT.read(path).tensors["second"]
    raw = bytearray(path.read_bytes())
    raw[stored.offset + 9] ^= 4
    path.write_bytes(raw)
    (finding,) = FORMAT.check(path)
    assert (finding.path, finding.tensor) == (str(path), "second")
    assert finding.offset is not None
    assert finding.offset < stored.offset
    with pytest.raises(FileFormatError, match="corrupt"):
        Pump().array(FORMAT.read(path).tensors["second"])


@pytest.mark.parametrize("keep", [0.2, 0.6, 0.95, 0.999])
def test_a_file_cut_off_is_an_error(keep, tmp_path):
    """Part of a file is never taken for the whole; `check` says so too."""
    path = written(tmp_path, contents({"a": np.arange(4_000.0)}))
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])
    with pytest.raises(FileFormatError):
        FORMAT.read(path)
    assert [finding.error for finding in FORMAT.check(path)] == [True]


def test_recognised_by_what_it_is(tmp_path):
    """By its first member, whatever the file's name; archives of others are not taken for it."""
    ours = saved(tmp_path, {"a": torch.zeros(1)}, "without-a-suffix")
    long = saved(tmp_path, {"a": torch.zeros(1)}, "x" * 100 + ".weights")
    theirs = tmp_path / "arrays.npz"
    np.savez(theirs, a=np.zeros(1))
    text = tmp_path / "text.bin"
    text.write_bytes(b"hello")
    for path, expected in ((ours, True), (long, True), (theirs, False), (text, False)):
        assert FORMAT.recognises(path, path.read_bytes()[:64]) is expected


def test_nothing_is_imported_for_it(tmp_path):
    """Reading and writing PyTorch's files needs no torch."""
    path = saved(tmp_path, checkpoint())
    program = (
        "import sys; from pathlib import Path; from tensorferry.files.formats.pytorch import FORMAT\n"
        "from tensorferry.files.base.limits import refuse_contents\n"
        "from tensorferry.files.base.pump import Pump\n"
        "found = FORMAT.read(Path(sys.argv[1])); refuse_contents(FORMAT, found)\n"
        "FORMAT.write(found, Path(sys.argv[2]), Pump()); list(FORMAT.check(Path(sys.argv[2])))\n"
        "print(sorted({'torch', 'jax', 'tensorflow'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, path, tmp_path / "copy.pt"],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT / "src")},
    )
    assert done.stdout.strip() == "[]"
    assert outline(torch.load(tmp_path / "copy.pt", weights_only=True)) == outline(
        torch.load(path, weights_only=True)
    )


@pytest.mark.parametrize("count", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_header_of_many_tensors_takes_little_memory(tmp_path, count):
    """Two kilobytes for each tensor: its names, and all that is temporary while the pickle is read."""
    state = contents(
        {f"model.layers.{place}.weight": np.zeros((1, 2), "float32") for place in range(count)}
    )
    path = written(tmp_path, state)
    peak, found = peak_of(lambda: FORMAT.read(path))
    assert len(found.tensors) == count
    assert peak < 2_500 * count


@pytest.fixture
def without_sums(tmp_path):
    """A checkpoint that was saved without checksums."""
    torch.serialization.set_crc32_options(False)
    try:
        yield saved(
            tmp_path, {"w": torch.arange(1 << 20, dtype=torch.float32), "n": 3}, "unsummed.pt"
        )
    finally:
        torch.serialization.set_crc32_options(True)


def test_a_file_without_checksums_is_read(without_sums, tmp_path):
    """None are compared where none are; check says so, in a note."""
    assert (
        ferry.load(without_sums)["w"].sum()
        == torch.arange(1 << 20, dtype=torch.float32).numpy().sum()
    )
    for suffix in (".pt", ".safetensors", ".npz"):
        ferry.convert_files(without_sums, tmp_path / f"out{suffix}", verify=True)
        assert ferry.load(tmp_path / f"out{suffix}")["w"][-1] == (1 << 20) - 1
    (finding,) = check_path(without_sums)
    assert "without checksums" in finding.message
    assert not finding.error


def test_a_file_with_one_checksum_is_compared(tmp_path):
    """Zeros are none only where all are."""
    path = saved(tmp_path, {"w": torch.arange(4.0), "v": torch.ones(9)})
    raw = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        summed = archive.getinfo("saved/data/0").CRC
    while (at := raw.find(summed.to_bytes(4, "little"))) >= 0:
        raw[at : at + 4] = bytes(4)
    path.write_bytes(raw)
    with pytest.raises(FileFormatError, match="corrupt"):
        ferry.convert_files(path, tmp_path / "out.safetensors")


def test_a_shape_that_no_array_has_is_told(tmp_path):
    """An empty tensor of torch's may have lengths whose product no 64-bit number counts: listed, refused by name."""
    path = saved(tmp_path, {"z": torch.empty((1 << 40, 0, 1 << 40)), "w": torch.ones(1)})
    lazy = ferry.load(path, lazy=True, strict=False)
    assert list(lazy) == ["w"]
    assert "larger than that of any array" in lazy.skipped["z"]
    with pytest.raises(FormatLimitError, match="z"):
        ferry.convert_files(path, tmp_path / "out.safetensors", tensors_only=True)
    with pytest.raises(FormatLimitError, match="z"):
        lazy["z"]


@pytest.mark.parametrize(
    "body",
    [
        hostile.named("torch._utils", "_rebuild_tensor_v2") + b")R",
        hostile.named("numpy", "dtype") + hostile.text("f4") + b"\x85R" + hostile.text("x") + b"b",
        hostile.named("collections", "OrderedDict") + b")R" + b"K\1b",
        hostile.named("torch", "Size") + b"K\1\x85R" + b"](K\1eb",
        hostile.tensor() + b"](K\1eb",
        hostile.tensor() + b"K\1a",
        b"K\1K\2s",
        hostile.named("torch._tensor", "_rebuild_from_type_v2")
        + hostile.several(b"N", b"N", b"N", b"N")
        + b"R",
    ],
)
def test_damage_is_told_without_names_of_ours(tmp_path, body):
    """Neither a method's nor a stand-in's, nor as an error of Python's."""
    (tmp_path / "a.pt").write_bytes(hostile.torch_zip(hostile.PROTO2 + body + hostile.STOP))
    with pytest.raises((UnsafeFileError, FileFormatError)) as refused:
        FORMAT.read(tmp_path / "a.pt")
    assert not re.search(
        r"\w+Of\b|\w+\(\)|_v2|Words|Names|object has no",
        refused.value.message.replace("_rebuild_tensor_v2", ""),
    )
