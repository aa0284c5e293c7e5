"""Converting files: bits, ties, trees and order survive, and what cannot is refused by name."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import textwrap
from collections import OrderedDict
from itertools import product

import numpy as np
import pytest
from tests.files.converting import (
    MANY,
    ROOT,
    SUFFIXES,
    arrays_of,
    bits,
    checkpoint,
    contents,
    model,
    names,
    same,
    sample,
    write,
)

import tensorferry as ferry
from tensorferry.errors import (
    ConversionError,
    FormatLimitError,
    LossyCastError,
    OutputExistsError,
    UnsafeFileError,
)
from tensorferry.files.conversion import jobs
from tensorferry.files.conversion.convert import Report, convert_files, write_contents
from tensorferry.files.opening.paths import format_named, formats, open_path
from tensorferry.files.reports.diff import diff


@pytest.mark.parametrize(("source", "target"), list(product(MANY, MANY)))
def test_every_pair_of_formats_keeps_every_bit(tmp_path, source, target):
    """All dtypes of whole bytes that both can hold: names, order, shapes and bytes, there and back, verified."""
    packed = {"int2", "int4", "uint2", "uint4", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"}
    dtypes = sorted((format_named(source).dtypes & format_named(target).dtypes) - packed)
    assert len(dtypes) > 10
    wanted = sample(dtypes)
    start = write(tmp_path / f"in{SUFFIXES[source]}", wanted)
    before = start.read_bytes()
    there = tmp_path / f"out{SUFFIXES[target]}"
    report = convert_files(start, there, verify=True)
    same(arrays_of(there), wanted)
    back = tmp_path / f"back{SUFFIXES[source]}"
    convert_files(there, back, verify=True)
    same(arrays_of(back), wanted)
    assert start.read_bytes() == before
    assert names(tmp_path) == sorted({start.name, there.name, back.name})
    assert report.tensors == len(wanted)
    assert (
        report.bytes_read == report.bytes_written == sum(array.nbytes for array in wanted.values())
    )


@pytest.mark.parametrize("other", MANY)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e5m2", "int8"])
def test_one_tensor_without_a_name(tmp_path, other, dtype):
    """From .npy into each format and back: the same bytes; more than one tensor is refused."""
    array = bits(dtype, (3, 4))
    start = write(tmp_path / "in.npy", {"x": array})
    middle = tmp_path / f"out{SUFFIXES[other]}"
    convert_files(start, middle, verify=True)
    (found,) = arrays_of(middle).values()
    assert (found.dtype, found.shape, found.tobytes()) == (
        array.dtype,
        array.shape,
        array.tobytes(),
    )
    convert_files(middle, tmp_path / "back.npy", verify=True, tensors_only=True)
    (found,) = arrays_of(tmp_path / "back.npy").values()
    assert (found.dtype, found.shape, found.tobytes()) == (
        array.dtype,
        array.shape,
        array.tobytes(),
    )
    many = write(tmp_path / f"many{SUFFIXES[other]}", {"a": array, "b": array.copy()})
    with pytest.raises(FormatLimitError, match="a, b"):
        convert_files(many, tmp_path / "many.npy")
    assert not (tmp_path / "many.npy").exists()


def test_the_report_says_what_happened(tmp_path):
    """Paths, counts and bytes, as plain values for JSON."""
    start = write(tmp_path / "in.npz", model(2, 8))
    target = tmp_path / "out.safetensors"
    report = convert_files(str(start), str(target), dtype="bfloat16", verify=True)
    assert isinstance(report, Report)
    told = json.loads(json.dumps(report.to_dict()))
    assert told.pop("seconds") > 0
    assert told == {
        "source": [str(start)],
        "target": str(target),
        "format": "safetensors",
        "tensors": 2,
        "bytes_read": 2 * 64 * 4,
        "bytes_written": 2 * 64 * 2,
        "warnings": [],
        "written": [str(target)],
        "skipped": [],
        "verified": True,
        "dry_run": False,
    }


def test_a_dry_run_tells_the_same_and_does_nothing(tmp_path):
    """Nothing is written, not even a hidden folder; what has to be refused is."""
    start = write(tmp_path / "in.npz", model())
    dry = convert_files(start, tmp_path / "out", to="safetensors", shard="40KB", dry_run=True)
    assert names(tmp_path) == ["in.npz"]
    assert dry.dry_run
    wet = convert_files(start, tmp_path / "out", to="safetensors", shard="40KB")
    for each in ("tensors", "bytes_read", "bytes_written", "written", "format", "target"):
        assert getattr(dry, each) == getattr(wet, each)
    assert sorted(wet.written) == sorted(str(each) for each in (tmp_path / "out").iterdir())
    with pytest.raises(OutputExistsError):
        convert_files(start, tmp_path / "out", to="safetensors", shard="40KB", dry_run=True)


def test_progress_adds_up_to_what_the_dry_run_says(tmp_path):
    """In this process, shard by shard, and when some shards were finished before."""
    start = write(tmp_path / "in.npz", model())
    total = convert_files(
        start, tmp_path / "x.safetensors", dtype="float16", dry_run=True
    ).bytes_written
    for number, keywords in enumerate(
        (
            {},
            {"to": "safetensors", "shard": "40KB"},
            {"to": "safetensors", "shard": "40KB", "jobs": 3},
        )
    ):
        moved = []
        target = tmp_path / (f"out{number}" if "shard" in keywords else "out.safetensors")
        convert_files(start, target, dtype="float16", progress=moved.append, **keywords)
        assert sum(moved) == total == 8 * 64 * 64 * 2


def test_tied_weights_are_stored_once_and_recorded(tmp_path):
    """Two names of one tensor: one copy of the bytes, if asked, and two names again when it comes back, in order."""
    array = bits("float32", (100, 100))
    wanted = {"a.embed": array, "middle": bits("int8", (3,)), "z.head": array}
    start = write(tmp_path / "in.pt", wanted)
    for suffix in (".safetensors", ".npz", ".pt"):
        target = tmp_path / f"out{suffix}"
        report = convert_files(start, target, verify=True, ties="alias")
        assert report.bytes_written == 40003
        assert not report.warnings
        assert target.stat().st_size < 45000
        back = tmp_path / f"back{suffix}.pt"
        convert_files(target, back, verify=True)
        found = open_path(back)
        same(arrays_of(back), wanted)
        assert found.ties == {"z.head": "a.embed"}


@pytest.mark.parametrize(
    "suffix", [".npz", ".zarr", ".gguf", ".msgpack", ".orbax", ".safetensors", ".pt", ".h5"]
)
def test_tied_weights_are_written_as_the_format_says(tmp_path, suffix):
    """Twice where it has no convention, and the report counts and names them, before and after; cast too."""
    array = np.random.default_rng(0).standard_normal((100, 100), np.float32)
    start = write(tmp_path / "in.pt", {"a": array, "b": np.ones(3, np.float32), "c": array})
    has_own = suffix in (".safetensors", ".pt", ".h5")
    moved = []
    for number, (keywords, itemsize) in enumerate([({}, 4), ({"dtype": "float16"}, 2)]):
        target = tmp_path / f"out{number}{suffix}"
        planned = convert_files(start, target, dry_run=True, **keywords)
        moved.clear()
        report = convert_files(start, target, progress=moved.append, **keywords)
        expected = (20003 - 10000 * has_own) * itemsize
        assert [each.bytes_written for each in (planned, report)] == [expected] * 2
        assert sum(moved) == expected
        assert [(each.tensors, each.bytes_read) for each in (planned, report)] == [(3, 40012)] * 2
        lines = [line for line in report.warnings if line.startswith("Written twice, since ")]
        end = " has no way to say that they are one: c is a."
        assert planned.warnings == report.warnings
        assert [line.endswith(end) for line in lines] == [True] * (not has_own)
        convert_files(start, target, verify=True, overwrite=True, **keywords)
        found = open_path(target)
        assert found.ties == ({"c": "a"} if has_own else {})
        assert diff(open_path(start), found, any_dtype=True, tolerance=0.01).equal


@pytest.mark.parametrize("suffix", [".msgpack", ".orbax"])
def test_no_alias_where_there_is_no_place_for_one(tmp_path, suffix):
    """The reason and what works instead are said, before anything is written."""
    array = np.ones(3, np.float32)
    start = write(tmp_path / "in.pt", {"a": array})
    for write_it in (
        lambda ties: ferry.save({"a": array, "b": array}, tmp_path / f"a{suffix}", ties=ties),
        lambda ties: convert_files(start, tmp_path / f"b{suffix}", ties=ties),
    ):
        with pytest.raises(ferry.FormatLimitError, match="no place for a record") as refused:
            write_it("alias")
        assert refused.value.hint.startswith('ties="copy"')
        with pytest.raises(ValueError, match='ties must be "copy" or "alias"'):
            write_it("both")
    assert [each.name for each in tmp_path.iterdir()] == ["in.pt"]


def test_ties_is_part_of_what_a_conversion_was(tmp_path):
    """Jobs in another process do as this one; a run is resumed only with the same."""
    array = np.ones(1000, np.float32)
    start = write(tmp_path / "in.pt", {"a": array, "b": array})
    for ties, count in (("copy", 2), ("alias", 1)):
        target = tmp_path / f"{ties}.npz"
        report = convert_files(start, target, ties=ties, engine="processes")
        assert report.bytes_written == count * 4000
        with np.load(target) as held:
            assert len(held.files) == count


def test_ties_survive_shards_and_casts(tmp_path):
    """In one shard, and both in the new dtype; if only one of them is cast, they are two, with a warning."""
    array = np.random.default_rng(0).standard_normal((50, 50), np.float32)
    wanted = {"a": array, "b": np.ones((50, 50), np.float32), "c": array}
    start = write(tmp_path / "in.pt", wanted)
    report = convert_files(
        start, tmp_path / "out", to="safetensors", shard="6KB", dtype="bfloat16", verify=True
    )
    found = open_path(tmp_path / "out")
    assert found.ties == {"c": "a"}
    assert {stored.dtype for stored in found.tensors.values()} == {"bfloat16"}
    assert report.bytes_written == 2 * 5000
    assert not report.warnings
    report = convert_files(start, tmp_path / "two.safetensors", dtype="c=bfloat16")
    assert "a and c" in report.warnings[0]
    assert open_path(tmp_path / "two.safetensors").ties == {}


def test_overlapping_views_are_written_in_full_with_a_warning(tmp_path):
    """Views of one storage that are not the same: each has its own values, and the report names them."""
    torch = pytest.importorskip("torch")
    base = torch.arange(24, dtype=torch.float32)
    state = {
        "whole": base,
        "part": base[4:10],
        "square": base.reshape(4, 6).T,
        "apart": torch.ones(2),
        "tie": base,
    }
    torch.save(state, tmp_path / "in.pt")
    report = convert_files(tmp_path / "in.pt", tmp_path / "out.safetensors", verify=True)
    (warning,) = report.warnings
    named = set(re.findall(r"\w+", warning.partition(":")[2]))
    assert named == {"whole", "part", "square", "and"}
    same(
        arrays_of(tmp_path / "out.safetensors"),
        {name: tensor.numpy() for name, tensor in state.items()},
    )


def test_views_that_only_interleave_are_no_overlap(tmp_path):
    """The even and the odd elements of a storage have no byte in common."""
    torch = pytest.importorskip("torch")
    base = torch.arange(24, dtype=torch.float32)
    torch.save({"even": base[::2], "odd": base[1::2]}, tmp_path / "in.pt")
    report = convert_files(tmp_path / "in.pt", tmp_path / "out.safetensors", verify=True)
    assert not report.warnings
    assert arrays_of(tmp_path / "out.safetensors")["odd"].tolist() == list(range(1, 24, 2))


@pytest.mark.parametrize("suffix", [".safetensors", ".npz"])
def test_a_nested_checkpoint_comes_back_equal(tmp_path, suffix):
    """Through a format that knows only tensors and strings, and back into a file that torch.load reads."""
    torch = pytest.importorskip("torch")
    state = checkpoint(torch)
    torch.save(state, tmp_path / "in.pt")
    convert_files(tmp_path / "in.pt", tmp_path / f"middle{suffix}", verify=True)
    convert_files(tmp_path / f"middle{suffix}", tmp_path / "out.pt", verify=True)
    found = torch.load(tmp_path / "out.pt", weights_only=True)

    def compare(a, b):
        assert type(a) is type(b)
        if isinstance(a, dict):
            assert list(a) == list(b)
            for key in a:
                compare(a[key], b[key])
        elif isinstance(a, (list, tuple)):
            assert len(a) == len(b)
            for x, y in zip(a, b, strict=True):
                compare(x, y)
        elif isinstance(a, torch.Tensor):
            assert a.dtype == b.dtype
            assert torch.equal(a, b)
        else:
            assert a == b

    compare(state, found)


def test_tensors_only_leaves_the_rest_out_and_says_so(tmp_path):
    """No tree, no metadata; the report has a warning."""
    torch = pytest.importorskip("torch")
    torch.save(checkpoint(torch), tmp_path / "in.pt")
    report = convert_files(
        tmp_path / "in.pt", tmp_path / "out.safetensors", tensors_only=True, verify=True
    )
    found = open_path(tmp_path / "out.safetensors")
    assert (found.tree, found.metadata) == (None, {"format": "pt"})
    assert list(found.tensors) == [
        "model.weight",
        "model.bias",
        "optimizer.state.0.step",
        "optimizer.state.0.exp_avg",
    ]
    assert any("left out" in warning for warning in report.warnings)


@pytest.mark.parametrize("to", [".safetensors", ".pt", ".npz"])
def test_the_weights_of_a_checkpoint_are_taken_out_of_it(tmp_path, to):
    """As everybody wants them: their container's name stripped from theirs, and nothing beside them."""
    torch = pytest.importorskip("torch")
    torch.save(checkpoint(torch), tmp_path / "in.pt")
    chosen = {"include": ["model.*"], "rename": [r"s/^model\.//"]}
    convert_files(tmp_path / "in.pt", tmp_path / f"out{to}", verify=True, **chosen)
    found = open_path(tmp_path / f"out{to}")
    assert list(found.tensors) == ["weight", "bias"]
    assert found.tree is None
    if to == ".pt":
        assert list(torch.load(tmp_path / "out.pt", weights_only=True)) == ["weight", "bias"]


def test_selection_reaches_the_file(tmp_path):
    """Globs, names and dtypes, the tree along with them."""
    torch = pytest.importorskip("torch")
    torch.save(checkpoint(torch), tmp_path / "in.pt")
    convert_files(
        tmp_path / "in.pt",
        tmp_path / "out.pt",
        include=["model.*"],
        rename=["s/weight/w/"],
        dtype=["float64", "*.bias=float32"],
        verify=True,
    )
    found = torch.load(tmp_path / "out.pt", weights_only=True)
    assert list(found["model"]) == ["w", "bias"]
    assert found["model"]["w"].dtype == torch.float64
    assert found["model"]["bias"].dtype == torch.float32
    assert list(found) == ["model"]


@pytest.mark.parametrize(
    ("name", "to"),
    [
        ("w", "npz"),
        ("v1.5", "safetensors"),
        ("w.pkl", "pytorch"),
        ("w.ckpt", "tensorflow"),
        ("w.weights.h5", "hdf5"),
    ],
)
def test_a_name_that_says_no_other_format_is_taken(name, to, tmp_path):
    """No known suffix; or one that files of the format have too, though without a word it means another."""
    if format_named(to).module:
        pytest.importorskip(
            format_named(to).module, reason="writes the format, and is not installed"
        )
    np.savez(tmp_path / "in.npz", w=np.arange(2.0))
    assert convert_files(tmp_path / "in.npz", tmp_path / name, to=to).format == to
    assert ferry.load(tmp_path / name)["w"].tolist() == [0, 1]


def test_a_number_that_does_not_fit_stops_it(tmp_path):
    """The error names tensor and place, and nothing is written; the other modes write what they say."""
    arrays = model(2, 8)
    arrays["layers.1.weight"][3, 4] = -7e4
    start = write(tmp_path / "in.safetensors", arrays)
    with pytest.raises(
        LossyCastError, match=r"layers\.1\.weight: float32 to float16: the value at \[3, 4\]"
    ):
        convert_files(start, tmp_path / "out.safetensors", dtype="float16")
    assert names(tmp_path) == ["in.safetensors"]
    for overflow, wanted in (("saturate", -65504.0), ("nan", np.nan)):
        convert_files(
            start,
            tmp_path / "out.safetensors",
            dtype="float16",
            overflow=overflow,
            overwrite=True,
            verify=True,
        )
        np.testing.assert_equal(
            arrays_of(tmp_path / "out.safetensors")["layers.1.weight"][3, 4], wanted
        )


def test_what_a_format_cannot_hold_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    """The tensors are named; the writer is not called, and no folder is made."""
    start = write(
        tmp_path / "in.npz", {"fits": bits("float32", (2,)), "odd": bits("complex128", (2,))}
    )
    writer = type(format_named("safetensors"))
    monkeypatch.setattr(writer, "write", lambda *_: pytest.fail("it was written"))
    with pytest.raises(FormatLimitError, match=r"complex128.*odd"):
        convert_files(start, tmp_path / "out.safetensors")
    assert names(tmp_path) == ["in.npz"]


def test_what_cannot_be_carried_is_named_or_left_out(tmp_path):
    """Strings in an .npz: refused by name, gone when excluded or with tensors only."""
    np.savez(tmp_path / "in.npz", a=np.ones(3, np.float32), words=np.array(["x", "y"]))
    with pytest.raises(ConversionError, match="words"):
        convert_files(tmp_path / "in.npz", tmp_path / "out.safetensors")
    for keywords in ({"exclude": ["words"]}, {"tensors_only": True}, {"include": ["a"]}):
        convert_files(tmp_path / "in.npz", tmp_path / "out.safetensors", overwrite=True, **keywords)
        assert list(arrays_of(tmp_path / "out.safetensors")) == ["a"]


@pytest.mark.parametrize("to", [".safetensors", ".pt"])
@pytest.mark.parametrize("keywords", [{"exclude": ["p"]}, {"include": ["y"]}])
def test_an_output_without_what_cannot_be_carried_reads_back(tmp_path, to, keywords):
    """A parameter with attributes of its own stands in no tree of an output that leaves it out."""
    torch = pytest.importorskip("torch")
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.foo = 3
    for kind in (dict, OrderedDict):
        torch.save(kind(p=parameter, y=torch.ones(1)), tmp_path / "in.pt")
        convert_files(
            tmp_path / "in.pt", tmp_path / f"out{to}", verify=True, overwrite=True, **keywords
        )
        assert list(arrays_of(tmp_path / f"out{to}")) == ["y"]


@pytest.mark.parametrize("to", [".safetensors", ".pt", ".npz"])
def test_sets_are_verified(tmp_path, to):
    """However the set of the source came to be."""
    torch = pytest.importorskip("torch")
    torch.save({"x": {8, 16, 0, 32, 64}, "w": torch.ones(2)}, tmp_path / "in.pt")
    convert_files(tmp_path / "in.pt", tmp_path / f"out{to}", verify=True)
    assert open_path(tmp_path / f"out{to}").tree["x"] == {0, 8, 16, 32, 64}


def test_a_file_that_asks_for_code_is_refused(tmp_path):
    """By the name of what it asks for; nothing is run or written."""
    torch = pytest.importorskip("torch")

    class Evil:
        def __reduce__(self):
            return (os.system, (f"touch {tmp_path}/pwned",))

    torch.save({"w": torch.ones(2), "evil": Evil()}, tmp_path / "in.pt")
    with pytest.raises(UnsafeFileError, match=r"posix\.system"):
        convert_files(tmp_path / "in.pt", tmp_path / "out.safetensors")
    assert names(tmp_path) == ["in.pt"]


def test_contents_in_memory_are_written_the_same_way(tmp_path):
    """One file or shards, verified, whole or not at all."""
    wanted = model()
    report = write_contents(contents(wanted), tmp_path / "a.npz", verify=True)
    assert report.verified
    same(arrays_of(tmp_path / "a.npz"), wanted)
    with pytest.raises(OutputExistsError):
        write_contents(contents(wanted), tmp_path / "a.npz")
    write_contents(contents(wanted), tmp_path / "b", to="safetensors", shard="40KB", verify=True)
    same(arrays_of(tmp_path / "b"), wanted)
    write_contents(contents(wanted), tmp_path / "b", to="safetensors", shard="80KB", overwrite=True)
    assert len(names(tmp_path / "b")) == 3
    with pytest.raises(FormatLimitError, match="complex128"):
        write_contents(contents({"x": bits("complex128", (2,))}), tmp_path / "c.safetensors")
    assert names(tmp_path) == ["a.npz", "b"]


def test_no_framework_is_imported(tmp_path):
    """Between all first-class formats, in a process of its own."""
    write(tmp_path / "in.pt", model(2, 8))
    code = textwrap.dedent("""
        import sys
        from tensorferry.files.conversion.convert import convert_files
        folder = sys.argv[1]
        path = f"{folder}/in.pt"
        for number, suffix in enumerate((".safetensors", ".npz", ".pt", ".safetensors")):
            convert_files(path, f"{folder}/{number}{suffix}", verify=True, dtype="float16")
            path = f"{folder}/{number}{suffix}"
        convert_files(path, f"{folder}/one.npy", include=["layers.0.weight"], tensors_only=True, verify=True)
        convert_files(path, f"{folder}/many", to="safetensors", shard=100, verify=True, jobs=2)
        heavy = ("torch", "tensorflow", "jax", "h5py", "safetensors", "onnx", "zarr", "pyarrow", "dask", "ray")
        print([name for name in heavy if name in sys.modules])
    """)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_every_registered_format_that_writes_takes_floats(tmp_path):
    """From safetensors into each format whose library is here: verified, and back with the same bits."""
    wanted = {"a.weight": bits("float32", (4, 6)), "b": bits("float32", (3,), 1)}
    start = write(tmp_path / "in.safetensors", wanted)
    done, refused = [], {}
    for each in formats().values():
        if not each.writes or each.holds_one:
            continue
        try:
            each.ensure_loaded()
        except ConversionError:
            continue
        target = tmp_path / f"out-{each.name}{each.suffixes[0]}"
        try:
            convert_files(start, target, to=each.name, verify=True)
        except FormatLimitError as error:
            refused[each.name] = str(error)
            continue
        back = tmp_path / f"back-{each.name}.safetensors"
        convert_files(target, back, verify=True, tensors_only=True)
        found = arrays_of(back)
        assert {name: array.tobytes() for name, array in found.items()} == {
            name: array.tobytes() for name, array in wanted.items()
        }
        done.append(each.name)
    assert set(MANY) <= set(done)
    assert all("named like" in why for why in refused.values()), refused


def test_a_job_is_a_small_message(tmp_path, monkeypatch):
    """Paths and options, never tensors or their names: a few hundred bytes whatever the model."""
    import pickle

    seen = []
    real = jobs.run_job

    def record(job, progress=None):
        seen.append(len(pickle.dumps(job)))
        return real(job, progress)

    monkeypatch.setattr("tensorferry.files.conversion.work.run_job", record)
    start = write(tmp_path / "in.safetensors", model(300, 8))
    convert_files(start, tmp_path / "out", to="safetensors", shard="10KB")
    assert len(seen) > 5
    assert max(seen) < 1500


@pytest.mark.parametrize("fails", [errno.EXDEV, errno.ENOSYS, errno.EINVAL, "none", "later"])
def test_where_the_system_cannot_copy_ranges(tmp_path, monkeypatch, fails):
    """Between file systems, or without that call, the bytes are read and written: the same file comes out."""
    start = write(tmp_path / "in.safetensors", model())
    real, calls = os.copy_file_range, []

    def copy(source, target, count, offset):
        calls.append(count)
        if fails == "none":
            return 0
        if fails == "later":
            if len(calls) % 2:
                return real(source, target, count // 2, offset)
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        raise OSError(fails, os.strerror(fails))

    monkeypatch.setattr(os, "copy_file_range", copy)
    moved = []
    convert_files(start, tmp_path / "out.safetensors", progress=moved.append, verify=True)
    assert calls
    # Written, and read back.
    assert sum(moved) == 2 * 8 * 64 * 64 * 4
    assert (tmp_path / "out.safetensors").read_bytes() == start.read_bytes()
