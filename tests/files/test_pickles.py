"""Files that are pickles: of `pickle.dump`, joblib and old PyTorch, read where they stand; nothing is run."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import shutil
import struct
import subprocess
import sys
import tarfile
import warnings
import zlib
from collections import OrderedDict

import joblib
import ml_dtypes
import numpy as np
import pytest
from tests.files import hostile
from tests.files.support import arrays, same_bits, sample
from tests.support import lives, peak_of, survives

import tensorferry as ferry
from tensorferry.errors import FileFormatError, UnsafeFileError
from tensorferry.files.base.stored import Extent, View
from tensorferry.files.formats.pickle import FORMAT as PICKLE
from tensorferry.files.formats.pytorch import FORMAT as PYTORCH
from tensorferry.files.opening.paths import format_of
from tensorferry.files.reports.check import check_path

torch = pytest.importorskip("torch", reason="the files are compared with what torch itself reads")

HELD = [name for name in sorted(PYTORCH.dtypes) if hasattr(torch, name)]
"""Those of the format's dtypes that this release of PyTorch has."""
PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
CODE = sorted(hostile.code_pickles("x"))


def legacy(path, value, **keywords):
    torch.save(value, path, _use_new_zipfile_serialization=False, **keywords)
    return path


def state():
    """A checkpoint with every dtype, in the layouts and relations that tensors have."""
    whole = torch.arange(60, dtype=torch.float32).reshape(3, 4, 5)
    found = OrderedDict((name, torch.arange(40).to(getattr(torch, name))) for name in HELD)
    found |= {
        "whole": whole,
        "tied": whole,
        "part": whole[1:, ::2],
        "turned": whole.permute(2, 0, 1),
    }
    found |= {
        "conj": torch.randn(9, dtype=torch.complex64).conj(),
        "one": torch.tensor(3.5),
        "none": torch.ones(0, 3),
    }
    return {"model": found, "steps": [1, (2.5, None)], "grad": torch.nn.Parameter(torch.ones(2, 2))}


def agrees(found, expected):
    """Whether a tree as it was loaded has the values of another, bit by bit."""
    if isinstance(expected, torch.Tensor):
        mine, own = (
            found.detach().resolve_conj().contiguous(),
            expected.detach().resolve_conj().contiguous(),
        )
        raw = [
            each.reshape(-1).view(torch.uint8).tolist() if each.numel() else []
            for each in (mine, own)
        ]
        return mine.dtype == own.dtype and mine.shape == own.shape and raw[0] == raw[1]
    if isinstance(expected, dict):
        return list(found) == list(expected) and all(
            agrees(found[key], expected[key]) for key in expected
        )
    if isinstance(expected, (list, tuple)):
        return len(found) == len(expected) and all(map(agrees, found, expected))
    return type(found) is type(expected) and found == expected


def test_what_old_pytorch_wrote_is_read(tmp_path):
    """Every dtype and layout, ties and values, as they were saved; the file stays as it was."""
    tree = state()
    path = legacy(tmp_path / "old.pt", tree)
    contents = ferry.open(path)
    assert contents.format == "pytorch"
    assert contents.ties["model.tied"] == "model.whole"
    assert isinstance(contents.tensors["model.whole"], Extent)
    assert isinstance(contents.tensors["model.turned"], View)
    assert contents.tree["grad"].kind == "parameter"
    assert agrees(ferry.load(path, "torch"), tree)
    assert not list(check_path(path))
    ferry.convert_files(path, tmp_path / "new.pt", verify=True)
    assert agrees(torch.load(tmp_path / "new.pt", weights_only=True), tree)
    # Torch itself does not read back the dtypes that it has since then.
    recent = ("float8", "uint16", "uint32", "uint64")
    tree["model"] = OrderedDict(
        (name, each) for name, each in tree["model"].items() if not name.startswith(recent)
    )
    assert agrees(ferry.load(legacy(path, tree), "torch"), torch.load(path, weights_only=True))
    ferry.load(path, "torch")["model"]["whole"].fill_(7)
    assert ferry.load(path, "torch")["model"]["whole"].sum() == tree["model"]["whole"].sum()


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_protocol_of_old_pytorch(protocol, tmp_path):
    """Its pickles can have frames."""
    path = legacy(tmp_path / "a.bin", {"a": torch.arange(5)}, pickle_protocol=protocol)
    assert ferry.open(path).format == "pytorch"
    assert ferry.load(path)["a"].tolist() == [0, 1, 2, 3, 4]


def test_storages_that_are_views_of_others(tmp_path):
    """As PyTorch before 0.4 wrote them: `torch.load` and we read the same of a file made by hand."""
    storage = ("storage", torch.FloatStorage, "7", "cpu", 10)

    class Pickler(pickle._Pickler):
        def persistent_id(self, value):
            return value.key if isinstance(value, Key) else None

    class Key:
        def __init__(self, key):
            self.key = key

    class Tensor:
        def __init__(self, *arguments):
            self.arguments = arguments

        def __reduce__(self):
            return torch._utils._rebuild_tensor_v2, self.arguments

    view = Key((*storage, ("8", 4, 5)))
    tree = {"root": Tensor(Key((*storage, None)), 0, (10,), (1,), False, OrderedDict())}
    tree["view"] = Tensor(view, 1, (2, 2), (2, 1), False, OrderedDict())
    out = io.BytesIO()
    for value in (torch.serialization.MAGIC_NUMBER, 1001, {"little_endian": True}):
        pickle.dump(value, out, 2)
    Pickler(out, 2).dump(tree)
    pickle.dump(["7"], out, 2)
    out.write(struct.pack("<q", 10) + np.arange(10, dtype="<f4").tobytes())
    path = tmp_path / "views.pt"
    path.write_bytes(out.getvalue())
    expected = torch.load(path, weights_only=False)
    assert agrees(ferry.load(path, "torch"), expected)
    assert expected["view"].tolist() == [[5, 6], [7, 8]]
    path.write_bytes(out.getvalue().replace(b"K\x04K\x05\x87", b"K\x04K\x07\x87"))
    with pytest.raises(FileFormatError, match="reaches past it"):
        ferry.open(path)


def test_quantised_tensors_of_old_files_are_their_parts(tmp_path):
    """Their bytes are known, so that what stands behind them is found."""
    with warnings.catch_warnings():
        # Torch says once in a process that they are deprecated.
        warnings.simplefilter("ignore")
        quantised = torch.quantize_per_tensor(torch.ones(7), 0.5, 1, torch.qint32)
    path = legacy(tmp_path / "q.pt", {"q": quantised, "a": torch.arange(5), "b": torch.ones(3)})
    contents = ferry.open(path)
    assert not contents.others
    assert contents.tensors["q.values"].load().tolist() == quantised.int_repr().tolist()
    assert contents.tensors["a"].load().tolist() == [0, 1, 2, 3, 4]
    assert contents.tensors["b"].load().tolist() == [1, 1, 1]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_pickle_dumps_is_read(protocol, tmp_path):
    """Tensors, arrays in every order, and plain values, by every protocol, as `pickle.load` gives them."""
    rng = np.random.default_rng(3)
    tree = {
        "torch": {
            "w": torch.arange(60.0).reshape(5, 12),
            "t": torch.arange(60).reshape(5, 12).T,
            "b": torch.ones(2).bfloat16(),
        },
        "c": rng.random((20, 30)),
        "fortran": np.asfortranarray(rng.random((20, 30))),
        "big": np.arange(99, dtype=">i4"),
        "small": np.arange(3, dtype=np.int16),
        "bf16": np.arange(200).astype(ml_dtypes.bfloat16),
        "scalar": np.float32(3.5),
        "none": np.ones((0, 2)),
        "values": [
            True,
            False,
            2**70,
            -5,
            1e300,
            "é\n\\",
            "",
            b"x" * 500,
            bytearray(b"y" * 500),
            None,
            (1,),
            {3: {4}},
        ],
    }
    path = tmp_path / "a.pkl"
    path.write_bytes(pickle.dumps(tree, protocol))
    found = ferry.open(path)
    assert (found.format, found.others) == ("pickle", {})
    loaded = ferry.load(path, "torch")
    assert agrees(loaded["torch"], tree["torch"])
    assert agrees(loaded["values"], tree["values"])
    for name in ("c", "fortran", "big", "small", "bf16", "scalar", "none"):
        assert same_bits(
            found.tensors[name].load(),
            np.asarray(tree[name]).astype(tree[name].dtype.newbyteorder("=")),
        )
    if protocol >= 3:
        # What is large stays where it is.
        assert isinstance(found.tensors["c"], Extent)
        assert isinstance(found.tensors["fortran"], View)
        assert isinstance(found.tensors["torch.w"], Extent)
    assert not list(check_path(path))


@pytest.mark.parametrize("source", ["a.pkl", "a.joblib", "a.npz", "a.npy"])
def test_arrays_that_were_pickled_are_tensors_for_torch(source, tmp_path):
    """`torch.load` takes no arrays of NumPy by itself, so a file of PyTorch has tensors in their place."""
    rng = np.random.default_rng(5)
    tree = {
        "c": rng.random((20, 30)),
        "fortran": np.asfortranarray(rng.random((20, 30))),
        "l": [np.arange(3)],
    }
    path = tmp_path / source
    if path.suffix == ".joblib":
        joblib.dump(tree, path)
    elif path.suffix == ".pkl":
        path.write_bytes(pickle.dumps(tree))
    elif path.suffix == ".npz":
        np.savez(path, tree=np.array(tree, object))
    else:
        np.save(path, np.array(tree, object), allow_pickle=True)
    ferry.convert_files(path, tmp_path / "b.pt", verify=True)
    found = torch.load(tmp_path / "b.pt", weights_only=True)
    found = found.get("tree", found)
    assert list(found) == list(tree)
    assert same_bits(found["c"].numpy(), tree["c"])
    assert same_bits(found["fortran"].numpy(), np.ascontiguousarray(tree["fortran"]))
    assert same_bits(found["l"][0].numpy(), tree["l"][0])


@pytest.mark.parametrize("dtype", sorted(set(PICKLE.dtypes) - {"bfloat16"}))
def test_every_bit_of_every_dtype_of_an_array(dtype, tmp_path):
    """In a pickle, and in a file of joblib."""
    expected = sample([dtype])
    path = tmp_path / "a.pickle"
    path.write_bytes(pickle.dumps(expected))
    assert same_bits(arrays(PICKLE.read(path)), expected)
    joblib.dump(expected, tmp_path / "a.joblib")
    assert same_bits(arrays(PICKLE.read(tmp_path / "a.joblib")), expected)


def test_files_of_joblib_are_read(tmp_path):
    """Arrays behind what stands for them, aligned or not; one of objects is a pickle in the middle, and is told of."""
    tree = {
        "a": np.arange(1000.0).reshape(10, 100),
        "f": np.asfortranarray(np.arange(12).reshape(3, 4)),
        "objects": np.array(["x", None, {"deep": [1]}], object),
        "records": np.zeros(3, "i4,f8"),
        "text": np.array(["abc"]),
        "none": np.zeros((0, 3)),
        "one": np.array(5),
        "last": [np.arange(7, dtype=">u2"), 3],
    }
    joblib.dump(tree, tmp_path / "a.joblib")
    found = ferry.open(tmp_path / "a.joblib")
    assert sorted(found.others) == ["objects", "records", "text"]
    for name in ("a", "f", "none", "one"):
        assert same_bits(found.tensors[name].load(), tree[name])
    assert found.tensors["last.0"].load().tolist() == list(range(7))
    assert found.tensors["a"].offset % 16 == 0
    # As joblib before 1.2 had them: with no alignment.
    raw = (tmp_path / "a.joblib").read_bytes()
    one = io.BytesIO()
    joblib.dump(tree["a"], one, protocol=3)
    before, _, after = one.getvalue().partition(b"X\x1b\0\0\0numpy_array_alignment_bytes")
    old = before + after[after.index(b"ub") :][:2] + tree["a"].tobytes() + b"."
    (tmp_path / "old.joblib").write_bytes(old)
    assert same_bits(joblib.load(tmp_path / "old.joblib"), tree["a"])
    assert same_bits(ferry.open(tmp_path / "old.joblib").tensors["tensor"].load(), tree["a"])
    for cut in range(0, len(raw), 97):
        (tmp_path / "cut.joblib").write_bytes(raw[:cut])
        with pytest.raises((FileFormatError, UnsafeFileError)):
            ferry.open(tmp_path / "cut.joblib")


def test_large_arrays_take_no_memory(tmp_path):
    """A pickle of 64 MiB and an old file of as much are read and converted within a few."""
    big = np.zeros((16, 1 << 20), np.float32)
    for name in ("a.pkl", "a.joblib", "a.pt"):
        path = tmp_path / name
        if name == "a.pkl":
            path.write_bytes(pickle.dumps({"a": big, "t": torch.from_numpy(big)}))
        elif name == "a.joblib":
            joblib.dump({"a": big}, path)
        else:
            legacy(path, {"a": torch.from_numpy(big)})
        out = path.with_suffix(".safetensors")
        peak, _ = peak_of(lambda path=path, out=out: ferry.convert_files(path, out, overwrite=True))
        assert peak < 16 << 20


@pytest.mark.parametrize("route", CODE)
def test_nothing_is_run(route, tmp_path, monkeypatch):
    """What would run code is refused by name in a pickle, in an old file, and in a tensor's own bytes in a pickle."""
    (tmp_path / "evil.py").write_text(hostile.EVIL)
    monkeypatch.syspath_prepend(tmp_path)
    canary = tmp_path / "canary"
    data, name = hostile.code_pickles(canary)[route]
    begin = b"".join(pickle.dumps(each, 2) for each in (torch.serialization.MAGIC_NUMBER, 1001, {}))
    old = begin + data + pickle.dumps([], 2)
    inner = (
        hostile.PROTO2
        + hostile.named("torch.storage", "_load_from_bytes")
        + b"B"
        + struct.pack("<I", len(old))
        + old
    )
    joblibs = (
        hostile.PROTO2 + hostile.named("joblib.numpy_pickle", "NumpyArrayWrapper") + b")\x81}("
    )
    joblibs += (
        hostile.text("shape")
        + b")"
        + hostile.text("order")
        + hostile.text("C")
        + hostile.text("dtype")
    )
    joblibs += hostile.named("numpy", "dtype") + hostile.text("O8") + b"\x85R" + b"ub" + data + b"."
    for number, raw in enumerate((data, old, inner + b"\x85R.", joblibs)):
        path = tmp_path / f"{number}.pt"
        path.write_bytes(raw)
        with pytest.raises(UnsafeFileError, match="asks for") as refused:
            ferry.open(path)
        assert name in refused.value.message
        assert any(name in each for each in format_of(path).asks_for(path))
    assert not canary.exists()
    assert "evil" not in sys.modules


def test_damage_is_an_error_of_ours_or_is_still_plain(tmp_path):
    """With any one byte changed, or cut off anywhere, each kind raises a named error, or gives plain values."""
    path = tmp_path / "a.pkl"
    goods = {
        "pickle": pickle.dumps({"a": torch.arange(50), "n": np.arange(50.0), "v": [1, "x"]}),
        "legacy": legacy(
            tmp_path / "a.pt", {"a": torch.arange(50), "b": torch.ones(2)}
        ).read_bytes(),
        "text": pickle.dumps({"a": np.arange(20), "v": [1, "x", True, 2.5]}, 0),
    }
    with io.BytesIO() as out:
        joblib.dump({"a": np.arange(50), "o": np.array([None, "x"])}, out)
        goods["joblib"] = out.getvalue()
    for good in goods.values():
        outcomes = set()
        for place in range(0, len(good), 7):
            changes = [
                good[:place] + bytes([byte]) + good[place + 1 :]
                for byte in (0, 0xFF, good[place] ^ 1, ord("."))
            ]
            for data in changes:
                path.write_bytes(data)
                try:
                    for stored in format_of(path).read(path).tensors.values():
                        stored.load()
                    outcomes.add("read")
                except (FileFormatError, UnsafeFileError) as error:
                    outcomes.add(type(error).__name__)
        assert "FileFormatError" in outcomes
        for length in range(1, len(good), 31):
            path.write_bytes(good[:length])
            with pytest.raises((FileFormatError, UnsafeFileError)):
                ferry.open(path)


def test_what_follows_is_not_passed_over(tmp_path):
    """Two objects in one file are refused: a reader of the first would lose the second without a word."""
    path = tmp_path / "two.pkl"
    path.write_bytes(pickle.dumps({"a": 1}) + pickle.dumps({"b": 1}))
    with pytest.raises(FileFormatError, match="another pickle follows"):
        ferry.open(path)
    old = legacy(tmp_path / "a.pt", {"a": torch.ones(2)})
    old.write_bytes(old.read_bytes() * 2)
    with pytest.raises(FileFormatError, match="bytes follow its storages"):
        ferry.open(old)


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        (struct.pack("<q", 50), struct.pack("<q", 49), "elements of storage"),
        (struct.pack("<q", 50), struct.pack("<q", -1), "elements of storage"),
        (b"M\xe9\x03", b"M\xe8\x03", "no version"),
        (b"K\x32\x85", b"K\x33\x85", "reaches past its storage"),
    ],
)
def test_old_files_that_contradict_themselves(before, after, what, tmp_path):
    """Sizes in the pickle and before the storage, and the version."""
    path = legacy(tmp_path / "a.pt", {"a": torch.arange(50)})
    good = path.read_bytes()
    assert before in good
    path.write_bytes(good.replace(before, after))
    with pytest.raises(FileFormatError, match=what):
        ferry.open(path)


def test_bombs_in_files_are_refused_within_seconds(tmp_path):
    """As those in archives are; and text without end, which no array's bytes are."""
    path = tmp_path / "a.pkl"
    for name in (
        "lists that share",
        "length of bytes",
        "length of a bytearray",
        "frame",
        "no end",
        "marks",
        "sets",
    ):
        path.write_bytes(hostile.bombs()[name])
        with pytest.raises((FileFormatError, UnsafeFileError)):
            PICKLE.read(path)
    with path.open("wb") as file:
        file.write(hostile.PROTO4 + b"(")
        for _ in range(3):
            file.write(b"\x8d" + struct.pack("<Q", 100 << 20))
            file.seek(100 << 20, 1)
        file.write(b"l.")
    with pytest.raises(UnsafeFileError, match="beside those of arrays"):
        PICKLE.read(path)


def joblib_array(shape, dtype):
    """The opcodes of what stands for an array of joblib's, up to the array."""
    body = (
        hostile.named("joblib.numpy_pickle", "NumpyArrayWrapper")
        + b")\x81}("
        + hostile.text("shape")
    )
    body += hostile.several(*map(hostile.number, shape)) + hostile.text("order") + hostile.text("C")
    return (
        body
        + hostile.text("dtype")
        + hostile.named("numpy", "dtype")
        + hostile.text(dtype)
        + b"\x85Rub"
    )


@pytest.mark.parametrize(
    ("data", "error", "what"),
    [
        (hostile.PROTO2 + joblib_array((1 << 40,), "f8") + b".", FileFormatError, "is cut off"),
        (
            hostile.PROTO2 + joblib_array((1 << 62, 1 << 62), "f8") + b".",
            FileFormatError,
            "is cut off",
        ),
        (
            hostile.PROTO2 + joblib_array((1,) * 70, "f8") + bytes(8) + b".",
            FileFormatError,
            "do not fit",
        ),
        (
            (hostile.PROTO2 + joblib_array((), "O8")) * 3000 + b"N.",
            UnsafeFileError,
            "nests objects",
        ),
    ],
)
def test_arrays_of_joblib_that_lie(data, error, what, tmp_path):
    """Lengths past the end, and arrays in arrays in arrays."""
    path = tmp_path / "a.joblib"
    path.write_bytes(data)
    with pytest.raises(error, match=what):
        ferry.open(path)


def test_an_empty_array_with_impossible_lengths_is_told_of(tmp_path):
    """It has no element, and yet no array can have its shape."""
    path = tmp_path / "a.joblib"
    path.write_bytes(hostile.PROTO2 + joblib_array((0, 1 << 62), "f8") + b".")
    assert "larger than that of any array" in ferry.open(path).others["tensor"]


def test_an_allowed_class_in_a_pickle_is_a_dict(tmp_path):
    """`allow` works as for other files; a whole module of old PyTorch is told of by its class."""
    path = tmp_path / "a.pkl"
    path.write_bytes(
        hostile.PROTO2
        + hostile.named("evil", "Config")
        + b")\x81}"
        + hostile.text("x")
        + b"K\x05sb."
    )
    with pytest.raises(UnsafeFileError, match=r"evil\.Config"):
        ferry.open(path)
    assert ferry.open(path, allow=["evil.Config"]).tree == {"x": 5}
    old = legacy(tmp_path / "module.pt", torch.nn.Linear(2, 2))
    with pytest.raises(UnsafeFileError, match=r"torch\.nn\.modules\.linear\.Linear"):
        ferry.open(old)
    assert (
        next(iter(ferry.open(old, allow=["torch.nn.modules.linear.Linear"]).tensors))
        == "_parameters.weight"
    )


@pytest.mark.parametrize("kind", ["gzip", "bzip2", "xz", "zstd", "lz4", "zlib", "LZMA"])
def test_files_inside_of_others_are_named_with_the_command(kind, tmp_path):
    """The hint, pasted, takes the file out, which is then read; where its command is installed."""
    path = tmp_path / "a b.pt"
    torch.save({"a": torch.arange(3)}, path)
    raw = path.read_bytes()
    packs = {
        "gzip": gzip.compress,
        "bzip2": bz2.compress,
        "xz": lzma.compress,
        "zlib": zlib.compress,
    }
    packs["LZMA"] = lambda data: lzma.compress(data, lzma.FORMAT_ALONE)
    # The standard library writes neither. Without their command only the first bytes are there,
    # which are looked at.
    magic = {"zstd": b"\x28\xb5\x2f\xfd", "lz4": b"\x04\x22\x4d\x18"}
    if kind in packs:
        path.write_bytes(packs[kind](raw))
    elif shutil.which(kind):
        path.write_bytes(subprocess.run([kind, "-c", path], check=True, capture_output=True).stdout)
    else:
        path.write_bytes(magic[kind] + raw)
    with pytest.raises(FileFormatError, match="is compressed, by") as refused:
        ferry.open(path)
    code = refused.value.hint
    plain = tmp_path / "a b.unpacked.pt"
    assert str(plain) in code
    if kind in magic:
        assert code.startswith(f"{kind} -d ")
    if kind in magic and not shutil.which(kind):
        return
    assert kind in magic or "has a zip archive inside" in refused.value.message
    if code.startswith("in Python: "):
        survives(code.removeprefix("in Python: "))
    elif shutil.which(code.split()[0]):
        subprocess.run(["sh", "-c", code], check=True)
    else:
        plain.write_bytes(raw)
    assert ferry.load(plain)["a"].tolist() == [0, 1, 2]


def test_compressed_joblib_is_named_with_what_reads_it(tmp_path):
    """By zlib, as is usual; in Python, for there is no command that everybody has."""
    path = tmp_path / "a.joblib"
    joblib.dump({"a": np.arange(300)}, path, compress=3)
    with pytest.raises(
        FileFormatError, match="zlib, as joblib does, and has a pickle inside"
    ) as refused:
        ferry.open(path)
    survives(refused.value.hint.removeprefix("in Python: "))
    assert ferry.load(tmp_path / "a.unpacked.joblib")["a"].tolist() == list(range(300))


def test_the_oldest_files_of_pytorch_are_refused_with_what_reads_them(tmp_path):
    """A tar archive, made as PyTorch 0.1 did: the hint, pasted, makes a file that is read."""
    members = {"sys_info": pickle.dumps({"protocol_version": 1000, "little_endian": True}, 2)}
    storages = pickle.dumps(1, 2) + pickle.dumps(("5", "cpu", torch.FloatStorage), 2)
    storages += struct.pack("<q", 6) + np.arange(6, dtype="<f4").tobytes() + pickle.dumps([], 2)
    tensors = pickle.dumps(1, 2) + pickle.dumps((9, "5", torch.FloatTensor), 2)
    tensors += struct.pack("<iiqqqqq", 2, 0, 2, 3, 3, 1, 0)
    members |= {
        "storages": storages,
        "tensors": tensors,
        "pickle": b"\x80\x02}X\x01\x00\x00\x00aX\x01\x00\x00\x009Qs.",
    }
    path = tmp_path / "a.pt"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    with pytest.raises(
        FileFormatError, match=r"is a tar archive, as torch\.save wrote them before 0\.2"
    ) as refused:
        ferry.open(path)
    # Python 3.12 and 3.13 warn of how PyTorch opens the archive.
    quiet = "import warnings; warnings.filterwarnings('ignore', 'Python 3.14 will', DeprecationWarning)\n"
    lives(quiet + refused.value.hint.partition("in Python: ")[2])
    assert ferry.load(path)["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
    with tarfile.open(path, "w") as tar:
        tar.addfile(tarfile.TarInfo("model/config.json"))
    with pytest.raises(
        FileFormatError, match=r"is a tar archive, which begins with 'model/config\.json'"
    ):
        ferry.open(path)


OTHER_OPCODES = {
    "text of Python 2": (b"U\x01aT\x02\0\0\0\xe9b", ["a", "éb"]),
    "text of Python 2 in lines": (b"S'a\\x41'\nS\"b\"\n", ["aA", "b"]),
    "a long integer": (b"\x8b\x09\0\0\0" + (1 << 64).to_bytes(9, "little"), [1 << 64]),
    "a frozenset": (b"cbuiltins\nfrozenset\n]K\x01a\x85R", [frozenset({1})]),
    "values that were popped": (b"K\x010K\x02(K\x031K\x04", [2, 4]),
}


@pytest.mark.parametrize("name", OTHER_OPCODES)
def test_opcodes_that_python_3_no_longer_writes(name, tmp_path):
    """Python reads them, so files have them: its result is the one that is expected."""
    body, expected = OTHER_OPCODES[name]
    data = b"\x80\x02](" + body + b"e."
    assert pickle.loads(data, encoding="latin-1") == expected  # noqa: S301 - made here
    (tmp_path / "a.pkl").write_bytes(data)
    found = ferry.open(tmp_path / "a.pkl").tree
    assert found == expected
    assert [*map(type, found)] == [*map(type, expected)]


class Reduced:
    """An object whose pickle is a call."""

    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


def test_tensors_of_devices_without_storages(tmp_path):
    """Those of XLA and others are arrays, or tensors of the CPU, with their dtype and their device."""
    from_array = torch._utils._rebuild_device_tensor_from_numpy
    from_cpu = torch._utils._rebuild_device_tensor_from_cpu_tensor
    values = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    tree = {
        "array": Reduced(from_array, (values.numpy(), torch.float32, "xla:0", True)),
        "cpu": Reduced(from_cpu, (values + 1, torch.float32, "xla:0", True)),
    }
    torch.save(tree, tmp_path / "a.pt")
    contents = ferry.open(tmp_path / "a.pt")
    assert {name: stored.array().tolist() for name, stored in contents.tensors.items()} == {
        "array": values.tolist(),
        "cpu": (values + 1).tolist(),
    }
    assert [contents.tree[name].requires_grad for name in tree] == [True, True]
    tree = {
        "array": Reduced(from_array, (values.numpy(), torch.bfloat16, "xla:0", False)),
        "cpu": Reduced(from_cpu, (values, torch.bfloat16, "xla:0", False)),
    }
    torch.save(tree, tmp_path / "a.pt")
    contents = ferry.open(tmp_path / "a.pt")
    assert not contents.tensors
    assert "it was bfloat16" in contents.others["array"]
    assert "no storages" in contents.others["cpu"]
