"""HDF5 and Orbax in a process of their own: a damaged file that ends it is exit code 2 and a message."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import h5py
import jsonschema
import numpy as np
import pytest
from tests.support import ROOT

import tensorferry as ferry
from tensorferry.cli import process
from tensorferry.files.formats.hdf5 import FORMAT, LARGEST_CHUNK
from tensorferry.files.opening.paths import may_end_process

SCHEMA = jsonschema.Draft202012Validator(
    json.loads((ROOT / "docs" / "reference" / "files-schema.json").read_text())
)
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "500"}
ENDED = "FileFormatError: {} is damaged: HDF5's library ended the process that read it (SIG"


LISTENING = (
    "import os, signal, sys\n"
    "for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):\n"
    "    signal.signal(number, signal.SIG_DFL)\n"
    "os.execv(sys.argv[1], sys.argv[1:])"
)
"""What begins another program that signals end, also where those that began the tests ignore them."""


def command(*words, code=("-m", "tensorferry"), **keywords):
    return subprocess.Popen(
        [sys.executable, "-c", LISTENING, sys.executable, *map(str, code), *map(str, words)],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **keywords,
    )


def done(*words, **keywords):
    process = command(*words, **keywords)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


@pytest.fixture
def good(tmp_path):
    """A file whose links stand in a heap."""
    with h5py.File(tmp_path / "good.h5", "w") as file:
        group = file.create_group("g", track_order=True)
        for number in range(12):
            group[f"d{number}"] = np.ones(3)
    return tmp_path / "good.h5"


@pytest.fixture
def damaged(good, tmp_path):
    """One byte of it is another: the length of a name in that heap. h5py itself is ended by it."""
    raw = bytearray(good.read_bytes())
    raw[raw.find(b"\x02d5", raw.find(b"FHDB"))] = 255
    path = tmp_path / "damaged.h5"
    path.write_bytes(raw)
    reading = (
        f"import h5py; file = h5py.File({str(path)!r}); [each[()] for each in file['g'].values()]"
    )
    code, _, err = done("-c", reading, code=())
    if code >= 0:
        pytest.skip(f"the HDF5 of this h5py reads it or says what is wrong: {err[-200:]}")
    return path


@pytest.fixture
def ending(tmp_path_factory):
    """What begins the command where HDF5's library ends each process that it is in, as some damage makes it do."""
    folder = tmp_path_factory.mktemp("ending")
    (folder / "h5py.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    return (
        "-c",
        f"import sys; sys.path.insert(0, {str(folder)!r}); from tensorferry.cli import main; main()",
    )


def test_damage_that_ends_the_process_is_a_message(ending, good, tmp_path):
    """Of each command, as text and as JSON; the target and what was begun are not there."""
    kept = sorted(each.name for each in tmp_path.iterdir())
    for words in (["inspect"], ["check"], ["check", "--values"], ["convert"]):
        target = [tmp_path / "out.npz"] if words == ["convert"] else []
        code, out, err = done(*words, good, *target, code=ending)
        assert (code, out) == (2, "")
        assert ENDED.format(good) in err
        assert "Hint: " in err
        code, out, _ = done(*words, good, *target, "--json", code=ending)
        data = json.loads(out)
        SCHEMA.validate(data)
        assert code == 2
        error = data["error"] if words == ["convert"] else data["files"][0]["error"]
        assert "ended the process" in error["message"]
        assert sorted(each.name for each in tmp_path.iterdir()) == kept
    code, _, err = done("inspect", good, good, code=ending)
    assert code == 2
    assert f"One of {good}, {good} is damaged" in err


def test_real_damage_ends_no_command(damaged):
    """Whether HDF5 ends its process by it or says what is wrong, which depends on what else lies in memory."""
    code, out, err = done("inspect", damaged)
    assert (code, out) == (2, "")
    assert "FileFormatError: " in err


def test_it_can_be_read_in_process(damaged, good):
    """For who wants that, and knows what it means."""
    code, _, err = done("inspect", damaged, "--in-process")
    if code >= 0:
        pytest.skip(
            f"HDF5 says what is wrong: which it does depends on what else lies in memory: {err[-200:]}"
        )
    assert "FileFormatError" not in err
    assert done("inspect", good, "--in-process") == done("inspect", good)


PYTHON = """
import multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
import tensorferry as ferry

def read(call, *arguments):
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as child:
        try:
            return type(child.submit(call, *arguments).result()).__name__
        except BrokenProcessPool:
            return "ended"

if __name__ == "__main__":
    good, damaged, out = sys.argv[1:]
    print(read(ferry.open, good), read(ferry.convert_files, good, out), read(ferry.convert_files, damaged, out + "2"))
    print(ferry.load(out)["g/d3"].tolist(), flush=True)
    ferry.open(damaged)
"""


def test_python_reads_it_where_it_is_called(damaged, good, tmp_path):
    """As documented: in this process, which damage ends, or in one of the caller's, as the page shows."""
    (tmp_path / "reads.py").write_text(PYTHON)
    code, out, _ = done(good, damaged, tmp_path / "out.safetensors", code=(tmp_path / "reads.py",))
    if code >= 0:
        pytest.skip(
            f"HDF5 says what is wrong: which it does depends on what else lies in memory: {out[-200:]}"
        )
    assert out.splitlines() == ["Contents Report ended", "[1.0, 1.0, 1.0]"]


def test_a_good_file_is_read_as_ever(good, tmp_path):
    """Its output and exit codes come through, arguments of all kinds go in."""
    assert done("inspect", good, "--json")[0] == 0
    assert done("check", good, "--values")[:2] == (0, f"{good}: ok\n")
    nan = tmp_path / "nan.h5"
    with h5py.File(nan, "w") as file:
        file["x"] = np.array([np.nan])
    assert done("check", "--values", nan, good)[0] == 1
    target = tmp_path / "out"
    words = [
        "--to",
        "safetensors",
        "--shard",
        "30",
        "--include",
        "g/d1*",
        "--rename",
        "s,g/,,",
        "--part",
        "1/1",
    ]
    code, _, err = done("convert", good, target, *words)
    assert (code, err) == (0, "")
    assert len(list(target.iterdir())) == 4
    assert done("convert", good, target, "--to", "safetensors", "--shard", "30")[0] == 2


def test_the_process_is_begun_with_the_same_modules(good, tmp_path):
    """Not with those that lie where the command is typed."""
    (tmp_path / "pickle.py").write_text("raise SystemExit('hijacked')")
    (tmp_path / "tensorferry.py").write_text("raise SystemExit('hijacked')")
    code = "import sys; sys.path.remove(''); from tensorferry.cli import main; main()"
    found, out, err = done("inspect", good, code=("-c", code), cwd=tmp_path)
    assert (found, err) == (0, "")
    assert "12x" in out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda each: each.name)
def test_a_signal_reaches_the_process(good, tmp_path, number):
    """It cleans up, and the exit code is that of the signal."""
    module = tmp_path / "modules"
    module.mkdir()
    (module / "h5py_slow.py").write_text(
        "import os, threading, tensorferry.files.base.pump as pump\n"
        "def blocks(*_, **__):\n"
        "    print('begun', os.getpid(), flush=True)\n"
        "    threading.Event().wait(60)\n"
        "pump.Pump.copy = blocks\n"
    )
    # The process has its parent's path, and this module where the library's own is.
    (module / "h5py.py").write_text(
        f"import sys\nhere = {str(module)!r}\nsys.path.remove(here)\ndel sys.modules['h5py']\nimport h5py\n"
        "sys.path.append(here)\nimport h5py_slow\nsys.modules['h5py'] = h5py\n"
    )
    code = (
        f"import sys; sys.path.insert(0, {str(module)!r}); from tensorferry.cli import main; main()"
    )
    process = command("convert", good, tmp_path / "out.npz", code=("-c", code))
    line = process.stdout.readline()
    assert line, process.stderr.read()
    word, child = line.split()
    assert word == "begun"
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else 128 + number)
    assert "interrupted" in err
    with pytest.raises(ProcessLookupError):
        os.kill(int(child), 0)
    assert not [each for each in tmp_path.iterdir() if each.name.startswith((".out", "out"))]


def test_only_files_of_that_library_are_read_so(good, tmp_path):
    """By their first bytes; those of Keras's archives too."""
    assert may_end_process(good)
    good.rename(tmp_path / "model.keras")
    assert may_end_process(tmp_path / "model.keras")
    for name in ("a.npz", "a.npy"):
        np.save(tmp_path / name, np.ones(2))
    assert not may_end_process(tmp_path / "a.npy")
    assert not may_end_process(tmp_path)
    assert not may_end_process(tmp_path / "nothing.h5")


def test_only_folders_with_databases_are_read_so(tmp_path):
    """Also if they are an item of a step."""
    (tmp_path / "item").mkdir()
    (tmp_path / "item" / "manifest.ocdbt").touch()
    assert may_end_process(tmp_path / "item")
    assert not may_end_process(tmp_path)
    (tmp_path / "_CHECKPOINT_METADATA").touch()
    assert may_end_process(tmp_path)


@pytest.mark.parametrize(
    "filters", [{"compression": "gzip"}, {"shuffle": True, "compression": "lzf"}]
)
def test_a_compressed_chunk_that_is_too_large_is_not_read(tmp_path, filters):
    """It would be in memory twice: it is listed, and refused by name; one that is not compressed is read by parts."""
    count = LARGEST_CHUNK + 1
    with h5py.File(tmp_path / "a.h5", "w") as file:
        made = file.create_dataset("z", (count,), "u1", chunks=(count,), **filters)
        made[-1:] = [1]
        file.create_dataset("plain", (count,), "u1", chunks=(count,))
    contents = FORMAT.read(tmp_path / "a.h5")
    assert list(contents.tensors) == ["plain"]
    assert f"{count:,} bytes" in contents.others["z"]
    code, out, _ = done("check", tmp_path / "a.h5")
    assert code == 0
    assert "z: it is not looked at" in out
    code, _, err = done("convert", tmp_path / "a.h5", tmp_path / "out.npz", "--tensors-only")
    assert code == 2
    assert "--exclude z" in err


def test_a_database_that_takes_too_much_memory_is_refused(tmp_path, monkeypatch, capfd):
    """A node of its keys: 512 MiB of zeros, which Zstandard makes small.

    Another checkpoint needs less than allowed.
    """
    tensorstore = pytest.importorskip("tensorstore", reason="tensorstore is not installed")
    if sys.platform != "linux":
        pytest.skip("only Linux limits the memory of a process so")
    ferry.save({"a": np.arange(4.0)}, tmp_path / "good.orbax")
    bomb = tmp_path / "bomb.orbax"
    ferry.save({"a": np.arange(4.0)}, bomb)
    (bomb / "manifest.ocdbt").unlink()
    place = {"driver": "file", "path": f"{bomb}/"}
    config = {"max_inline_value_bytes": 1 << 20, "max_decoded_node_bytes": 1 << 30}
    database = tensorstore.KvStore.open(
        {"driver": "ocdbt", "base": place, "config": config}
    ).result()
    good = {"driver": "ocdbt", "base": {"driver": "file", "path": f"{tmp_path}/good.orbax/"}}
    transaction = tensorstore.Transaction()
    for key in (b"a/.zarray", b"a/0"):
        database.with_transaction(transaction)[key] = tensorstore.KvStore.open(good).result()[key]
    for number in range(512):
        database.with_transaction(transaction)[f"z{number}"] = bytes(1 << 20)
    transaction.commit_async().result()
    assert sum(each.stat().st_size for each in bomb.rglob("*") if each.is_file()) < 100_000

    monkeypatch.setattr(process, "_LEAST_MEMORY", 400 << 20)
    monkeypatch.setattr(process, "_PER_PROCESSOR", 1 << 22)
    arguments = {"paths": [tmp_path / "good.orbax"], "values": False, "allow": (), "as_json": True}
    assert process.run("check", arguments["paths"], in_process=False, **arguments) == 0, (
        capfd.readouterr().err
    )
    capfd.readouterr()
    assert process.run("check", [bomb], in_process=False, **{**arguments, "paths": [bomb]}) == 2
    error = json.loads(capfd.readouterr().out)["files"][0]["error"]
    assert "takes more than" in error["message"]
    assert "--in-process" in error["hint"]
