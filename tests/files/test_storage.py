"""Files of object stores, by fsspec: what is asked is what the plan says, and what was opened is what is read."""

from __future__ import annotations

import json
import pickle
import re
import threading

import numpy as np
import pytest
from safetensors.numpy import load as read_safetensors
from tests.files.servers import chain, holds_in_a_fork

import tensorferry as ferry

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
memory = pytest.importorskip("fsspec.implementations.memory")

ROWS, COLUMNS = 300, 200
SECRET = "SECRET-KEY"  # noqa: S105 - no password


class Counted(memory.MemoryFileSystem):
    """A file system in memory that counts what it is asked, and takes a key."""

    protocol = "counted"
    store: dict = {}  # noqa: RUF012 - as its base
    pseudo_dirs = [""]  # noqa: RUF012 - as its base
    asked = []  # noqa: RUF012 - of all that are made
    made = []  # noqa: RUF012 - of all that are made
    meanwhile = None

    def __init__(self, key="", tells=True, **more):
        super().__init__(**more)
        self.key, self.tells = key, tells
        self.made.append(key)

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.replace("counted://", "memory://"))

    def info(self, path, **more):
        found = super().info(path, **more)
        if not self.tells:
            found.pop("created", None)
        return found

    def modified(self, path):
        if not self.tells:
            raise NotImplementedError
        return super().modified(path)

    def cat_file(self, path, start=None, end=None, **more):
        self.asked.append((path, start, end))
        if self.meanwhile is not None:
            type(self).meanwhile(self)
        return super().cat_file(path, start=start, end=end, **more)


@pytest.fixture
def counted():
    """The counting file system, which is empty."""
    fsspec.register_implementation("counted", Counted, clobber=True)
    Counted.store.clear()
    Counted.pseudo_dirs[:] = [""]
    Counted.asked.clear()
    Counted.made.clear()
    yield Counted
    Counted.meanwhile = None


def tree():
    rng = np.random.default_rng(0)
    big = {f"layer.{n}": rng.standard_normal((ROWS, COLUMNS)).astype("float32") for n in range(3)}
    return {**big, "bias": np.arange(70, dtype="float16")}


def put(system, url, tmp_path, of=None):
    """Save a tree at a URL, with the file system's own means."""
    name = url.rpartition("/")[2]
    ferry.save(tree() if of is None else of, tmp_path / name, overwrite=True)
    system.pipe_file(url, (tmp_path / name).read_bytes())
    return tmp_path / name


def opened_elsewhere(lazy):
    """What another process opens, that got a tree's reference."""
    return pickle.loads(pickle.dumps(lazy.reference())).open()  # noqa: S301 - its own


def same(found, wanted):
    assert list(found) == list(wanted)
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def positions(plan):
    return sorted(place for runs in plan.requests for place in runs.positions())


def spans(system):
    return sorted(each[1:] for each in system.asked)


@pytest.mark.parametrize("suffix", ["safetensors", "npz", "pt", "gguf", "npy"])
@pytest.mark.parametrize("slices", [None, {"layer.*": np.s_[:, 5:9], "bias": np.s_[::3]}])
def test_a_load_asks_for_what_the_plan_says(counted, tmp_path, suffix, slices):
    """To the byte, and gives what a local file gives."""
    held = np.arange(600.0).reshape(30, 20) if suffix == "npy" else None
    if suffix == "npy":
        slices = None
    url = f"counted://bucket/model.{suffix}"
    local = put(counted(), url, tmp_path, held)
    plan = ferry.explain_load(url, slices=slices)
    counted.asked.clear()
    found = ferry.load(url, slices=slices)
    assert spans(counted) == positions(plan)
    assert plan.bytes_read == sum(stop - start for start, stop in spans(counted))
    wanted = ferry.load(local, slices=slices)
    if suffix == "npy":
        np.testing.assert_array_equal(found, wanted)
    else:
        same(found, wanted)


# -- opening ---------------------------------------------------------------------------------------


def test_open_asks_once(counted, tmp_path):
    put(counted(), "counted://b/m.safetensors", tmp_path)
    assert ferry.open("counted://b/m.safetensors").tensors["layer.0"].shape == (ROWS, COLUMNS)
    assert spans(counted) == [(0, 64 << 10)]


def test_a_folder_is_its_index_or_its_usual_file(counted, tmp_path):
    """All shards of it, or only those that have what is named; else the model; else an error."""
    parts = {"a": np.arange(9), "b": np.ones(5)}
    for name, array in parts.items():
        put(counted(), f"counted://b/m/{name}.safetensors", tmp_path, {name: array})
    with pytest.raises(ferry.FileFormatError, match=r"'a\.safetensors', 'b\.safetensors'"):
        ferry.load("counted://b/m")
    where = {name: f"{name}.safetensors" for name in parts}
    index = json.dumps({"weight_map": where}).encode()
    counted().pipe_file("counted://b/m/model.safetensors.index.json", index)
    for url in ("counted://b/m", "counted://b/m/", "counted://b/m/model.safetensors.index.json"):
        same(ferry.load(url), parts)
    counted.asked.clear()
    same(ferry.load("counted://b/m", names=["b"]), {"b": parts["b"]})
    assert not [each for each in counted.asked if each[0].endswith("/a.safetensors")]
    put(counted(), "counted://b/n/model.safetensors", tmp_path)
    same(ferry.load("counted://b/n"), tree())


@pytest.mark.parametrize("name", ["../a.safetensors", "a%2fb", "memory://x/y", "a?b", "a#b", ".."])
def test_an_index_leads_nowhere_else(counted, name):
    index = json.dumps({"weight_map": {"a": name}}).encode()
    counted().pipe_file("counted://b/m/model.safetensors.index.json", index)
    with pytest.raises(ferry.UnsafeFileError, match="leads out of its folder"):
        ferry.load("counted://b/m")
    assert len(counted.asked) == 1


def test_what_there_is_not(counted):
    with pytest.raises(FileNotFoundError):
        ferry.load("counted://b/m.safetensors")
    counted().pipe_file("counted://b/empty.safetensors", b"")
    with pytest.raises(ferry.FileFormatError, match="empty"):
        ferry.load("counted://b/empty.safetensors")


# -- what was opened is what is read ---------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "between", "pickled"])
def test_a_file_that_changes_is_never_mixed(counted, tmp_path, when):
    """Before a request, between a request and what is told after it, and in another process."""
    url = "counted://b/m.safetensors"
    put(counted(), url, tmp_path)
    lazy = ferry.load(url, lazy=True)
    other = {name: array + 1 for name, array in tree().items()}

    def change(_=None):
        counted.meanwhile = None
        put(counted(), url, tmp_path, other)

    if when == "between":
        counted.meanwhile = change
    else:
        change()
    use = {"pickled": lambda: opened_elsewhere(lazy)}.get(when, lambda: lazy["layer.1"])
    with pytest.raises(ferry.FileFormatError, match="has changed"):
        use()


def test_what_cannot_be_pinned_is_said(counted, tmp_path):
    """A file system that tells only a size; one that tells more is not mentioned."""
    url = "counted://b/m.safetensors"
    put(counted(), url, tmp_path)
    assert ferry.explain_load(url).unpinned == ()
    plan = ferry.explain_load(url, storage_options={"tells": False})
    assert plan.unpinned == (url,)
    assert "only its size" in str(plan)


@pytest.mark.filterwarnings("ignore:os.fork")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_forked_process_has_a_file_system_of_its_own(counted, tmp_path):
    url = "counted://b/m.safetensors"
    put(counted(), url, tmp_path)
    contents = ferry.open(url)
    before = len(counted.made)

    def reads_by_a_file_system_of_its_own():
        good = np.array_equal(contents.tensors["layer.2"].load(), tree()["layer.2"])
        return good and len(counted.made) > before

    assert holds_in_a_fork(reads_by_a_file_system_of_its_own)


# -- storage_options -------------------------------------------------------------------------------


def test_options_reach_the_file_system_and_no_message(counted, tmp_path):
    """Nor what is printed of contents, plans and references; a pickle has them."""
    url, options = "counted://me:SECRET-KEY@b/m.safetensors", {"key": SECRET}
    put(counted(), url, tmp_path)
    counted.made.clear()
    contents = ferry.open(url, storage_options=options)
    plan = ferry.explain_load(url, storage_options=options)
    lazy = ferry.load(url, lazy=True, storage_options=options)
    assert set(counted.made) <= {SECRET}
    shown = f"{contents!r}{contents.paths}{contents.tensors}{plan}{plan!r}{plan.requests}"
    assert SECRET not in f"{shown}{lazy!r}{lazy.reference()!r}"
    same(opened_elsewhere(lazy).read(), tree())
    assert set(counted.made) == {SECRET}

    def fail(*_):
        raise RuntimeError(f"{SECRET} in {url}")

    counted.meanwhile = fail
    with pytest.raises(OSError, match="RuntimeError") as caught:
        ferry.load(url, storage_options=options)
    assert SECRET not in chain(caught.value)


@pytest.mark.parametrize(
    "call",
    [
        ferry.open,
        ferry.load,
        ferry.explain_load,
        lambda path, **more: ferry.convert_files(path, f"{path}.npz", **more),
        lambda path, **more: ferry.save({"a": np.arange(3)}, f"{path}.npz", **more),
    ],
)
def test_options_are_for_urls(tmp_path, call):
    path = str(tmp_path / "m.safetensors")
    ferry.save({"a": np.arange(3)}, path)
    with pytest.raises(ferry.FileFormatError, match="storage_options say nothing"):
        call(path, storage_options={"key": SECRET})
    with pytest.raises(TypeError, match="a mapping from names"):
        call(path, storage_options=[SECRET])
    call(path, storage_options={})


def test_options_that_a_file_system_does_not_take(counted):
    class Strict(counted):
        def __init__(self):
            super().__init__()

    fsspec.register_implementation("strict", Strict, clobber=True)
    with pytest.raises(ferry.FileFormatError, match="no such storage_options as key") as caught:
        ferry.open("strict://b/m.safetensors", storage_options={"key": SECRET})
    assert SECRET not in chain(caught.value)


def test_schemes_that_are_not_known():
    with pytest.raises(ferry.FileFormatError, match="nothing:// is no kind of URL"):
        ferry.load("nothing://b/m.safetensors")
    with pytest.raises(ferry.FileFormatError, match="chain of file systems"):
        ferry.load("zip://m.safetensors::memory://a.zip")


def test_a_package_that_is_not_installed(monkeypatch):
    """The hint is the line that installs it."""
    import sys

    registry = sys.modules["fsspec.registry"]
    monkeypatch.setitem(
        registry.known_implementations, "away", {"class": "no_such_package.Away", "err": "x"}
    )
    with pytest.raises(ferry.FrameworkNotInstalledError) as caught:
        ferry.load("away://b/m.safetensors")
    assert "pip install no_such_package" in str(caught.value)
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    monkeypatch.setattr(registry, "_registry", {})
    with pytest.raises(ferry.FrameworkNotInstalledError) as caught:
        ferry.load("gs://b/m.safetensors")
    assert "pip install gcsfs" in str(caught.value)
    monkeypatch.setitem(sys.modules, "fsspec.registry", None)
    with pytest.raises(ferry.FrameworkNotInstalledError) as caught:
        ferry.load("memory://b/m.safetensors")
    assert "pip install fsspec" in str(caught.value)


# -- conversions and uploads -----------------------------------------------------------------------


def test_a_conversion_streams_and_uploads(counted, tmp_path):
    """From one store to another, verified; the report has the URLs."""
    put(counted(), "counted://b/m.safetensors", tmp_path)
    target = f"memory://{tmp_path.name}/out.npz"
    report = ferry.convert_files("counted://b/m.safetensors", target, verify=True)
    assert (report.target, report.written) == (target, (target,))
    same(ferry.load(target), tree())


@pytest.fixture
def bucket(tmp_path):
    """A folder in memory, which is removed afterwards."""
    system = fsspec.filesystem("memory")
    yield f"memory://{tmp_path.name}"
    if system.exists(f"/{tmp_path.name}"):
        system.rm(f"/{tmp_path.name}", recursive=True)


def test_saving_and_replacing(bucket):
    report = ferry.save(tree(), f"{bucket}/m.safetensors", verify=True)
    assert report.target == f"{bucket}/m.safetensors"
    theirs = read_safetensors(fsspec.filesystem("memory").cat(f"{bucket}/m.safetensors"))
    same({name: theirs[name] for name in sorted(theirs, key=list(tree()).index)}, tree())
    same(ferry.load(f"{bucket}/m.safetensors"), tree())
    with pytest.raises(ferry.OutputExistsError, match="exists already"):
        ferry.save({"a": np.arange(3)}, f"{bucket}/m.safetensors")
    ferry.save({"a": np.arange(3)}, f"{bucket}/m.safetensors", overwrite=True)
    same(ferry.load(f"{bucket}/m.safetensors"), {"a": np.arange(3)})
    with pytest.raises(ferry.OutputExistsError, match="never changed"):
        ferry.convert_files(f"{bucket}/m.safetensors", f"{bucket}/m.safetensors", overwrite=True)


@pytest.mark.parametrize("end", ["/shards", "/shards/", ""])
def test_a_folder_is_never_replaced(bucket, end):
    """Not with overwrite= either; the hint names a file in it."""
    ferry.save(tree(), f"{bucket}/shards/m.safetensors")
    for overwrite in (False, True):
        with pytest.raises(ferry.OutputExistsError, match="is a folder") as refused:
            ferry.save(tree(), bucket + end, to="safetensors", overwrite=overwrite)
    (named,) = re.findall("'(.+)'", refused.value.hint)
    ferry.save(tree(), named)
    same(ferry.load(named), tree())
    same(ferry.load(f"{bucket}/shards/m.safetensors"), tree())


def test_all_of_a_file_system_is_no_target():
    """And is told as it was written."""
    with pytest.raises(ferry.OutputExistsError, match=r"^memory:// is a folder"):
        ferry.save(tree(), "memory://", to="safetensors", overwrite=True)


def test_a_file_system_that_tells_no_size_is_refused(bucket, monkeypatch):
    """With the name of the file."""
    ferry.save(tree(), f"{bucket}/m.safetensors")
    kind = fsspec.get_filesystem_class("memory")
    info = kind.info
    monkeypatch.setattr(kind, "info", lambda *given, **more: {**info(*given, **more), "size": None})
    with pytest.raises(ferry.FileFormatError, match=rf"how long {bucket}/m\.safetensors is"):
        ferry.open(f"{bucket}/m.safetensors")


def test_a_dry_run_uploads_nothing(bucket):
    ferry.save(tree(), f"{bucket}/m.safetensors")
    report = ferry.convert_files(f"{bucket}/m.safetensors", f"{bucket}/m.npz", dry_run=True)
    assert report.target == f"{bucket}/m.npz"
    with pytest.raises(FileNotFoundError):
        ferry.load(f"{bucket}/m.npz")


def test_shards_are_uploaded_before_their_index(bucket, monkeypatch):
    """If one fails, nothing is left of the others."""
    put_file, names = memory.MemoryFileSystem.pipe_file, []

    def pipe_file(self, path, value, **more):
        names.append(path.rpartition("/")[2])
        if len(names) == fails_at:
            raise RuntimeError(SECRET)
        put_file(self, path, value, **more)

    monkeypatch.setattr(memory.MemoryFileSystem, "pipe_file", pipe_file)
    fails_at = 3
    with pytest.raises(OSError, match="RuntimeError") as caught:
        ferry.save(tree(), f"{bucket}/m", to="safetensors", shard=300_000)
    assert SECRET not in chain(caught.value)
    with pytest.raises(FileNotFoundError):
        ferry.load(f"{bucket}/m")
    names.clear()
    fails_at = 0
    report = ferry.save(tree(), f"{bucket}/m", to="safetensors", shard=300_000)
    assert names[-1].endswith(".index.json")
    assert len(names) == len(report.written) == 4
    same(ferry.load(f"{bucket}/m"), tree())


@pytest.mark.parametrize(
    "url", ["http://h/m.safetensors", "hf://org/model/m.safetensors", "ftp://h/m.safetensors"]
)
def test_targets_to_which_nothing_is_uploaded(url, tmp_path, monkeypatch):
    """They are refused by name before anything is written, and no folder is made for them."""
    monkeypatch.chdir(tmp_path)
    ferry.save({"a": np.arange(3)}, "m.safetensors")
    for call in (
        lambda: ferry.save({"a": np.arange(3)}, url),
        lambda: ferry.convert_files("m.safetensors", url),
    ):
        with pytest.raises(ferry.FileFormatError, match="is a URL, and files are written to"):
            call()
    assert [each.name for each in tmp_path.iterdir()] == ["m.safetensors"]


def test_what_cannot_be_continued_there(bucket, tmp_path):
    ferry.save(tree(), tmp_path / "m.safetensors")
    with pytest.raises(ferry.FileFormatError, match="is on this machine"):
        ferry.convert_files(tmp_path / "m.safetensors", f"{bucket}/m", resume=True)


def test_several_threads_save_at_once(bucket):
    def save(number):
        ferry.save({"a": np.full(9, number)}, f"{bucket}/{number}.npz")

    threads = [threading.Thread(target=save, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        assert ferry.load(f"{bucket}/{number}.npz")["a"][0] == number


# -- on the command line ---------------------------------------------------------------------------


def run(*words):
    from typer.testing import CliRunner

    from tensorferry.cli.app import app

    return CliRunner().invoke(app, [str(word) for word in words])


def test_the_command_line_takes_options(counted, bucket, tmp_path):
    """JSON if it is, else a string; no value is printed."""
    local = put(counted(), "counted://b/m.safetensors", tmp_path)
    url, target = "counted://b/m.safetensors", f"{bucket}/m.npz"
    option = ("--storage-option", f"key={SECRET}")
    counted.made.clear()
    for words in (
        ["inspect", url, *option],
        ["inspect", "--json", url, *option],
        ["diff", url, local, *option, "--storage-option", "tells=true"],
        ["convert", url, tmp_path / "out.npz", *option],
    ):
        done = run(*words)
        assert done.exit_code == 0, done.output
        assert SECRET not in done.output
    assert set(counted.made) == {SECRET}
    same(ferry.load(tmp_path / "out.npz"), tree())
    done = run("convert", tmp_path / "out.npz", target, "--verify")
    assert done.exit_code == 0, done.output
    assert target in done.output.replace("\n", "")
    same(ferry.load(target), tree())


def test_options_that_are_typed_wrongly(counted, tmp_path):
    ferry.save({"a": np.arange(3)}, tmp_path / "m.npz")
    for words, match in (
        (["counted://b/m", "--storage-option", SECRET], "is not like anon=true"),
        (["counted://b/m", "--storage-option", "a=1", "--storage-option", "a=2"], "there twice"),
        ([tmp_path / "m.npz", "--storage-option", f"key={SECRET}"], "there is none"),
    ):
        done = run("inspect", *words)
        assert done.exit_code == 2
        assert match in done.output.replace("\n", " ")
        assert SECRET not in done.output


@pytest.mark.parametrize("words", [["inspect"], ["inspect", "--json"], ["diff", "--json"]])
@pytest.mark.parametrize("url", ["ftp://me:SECRET-KEY@/m?a=SECRET-KEY", "nothing://b/m?SECRET-KEY"])
def test_a_refused_url_is_not_repeated(words, url):
    """Neither a password nor what follows the ? is printed."""
    done = run(*words, url, *([url] if "diff" in words else []))
    assert done.exit_code == 2
    assert SECRET not in done.output


# -- what is wrong with a file ---------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["safetensors", "npz"])
def test_a_check_reads_headers_and_with_values_everything(counted, tmp_path, suffix):
    """NaN is found, and a checksum that is wrong; without the values it is said that none is compared."""
    url, held = f"counted://b/m.{suffix}", tree()
    local = put(counted(), url, tmp_path, held)
    counted.asked.clear()
    done = run("check", "--json", url)
    assert done.exit_code == 0, done.output
    read = sum(stop - start for _, start, stop in counted.asked)
    assert read < local.stat().st_size / 2
    notes = [each["message"] for each in json.loads(done.output)["files"][0]["findings"]]
    assert [("checksums are compared" in note) for note in notes] == [True] * (suffix == "npz")
    held["layer.1"][3, 4] = np.nan
    put(counted(), url, tmp_path, held)
    done = run("check", "--json", "--values", url)
    assert done.exit_code == 1, done.output
    assert "1 of 60,000 is NaN" in done.output
    if suffix == "npz":
        data = bytearray(local.read_bytes())
        data[200_000] ^= 1
        counted().pipe_file(url, bytes(data))
        done = run("check", "--values", url)
        assert done.exit_code != 0
        assert "CRC-32" in done.output


def test_a_check_tells_what_is_wrong_with_a_header(counted):
    counted().pipe_file("counted://b/m.safetensors", (9).to_bytes(8, "little") + b'{"a": 0} ')
    done = run("check", "counted://b/m.safetensors")
    assert done.exit_code == 1, done.output
    assert "counted://b/m.safetensors" in done.output.replace("\n", "")


# -- tables of weights -----------------------------------------------------------------------------


def test_tables_are_about_urls_too(counted, tmp_path):
    """From headers alone, or by values where those are needed; a part of what is made, by its bytes."""
    source, target = "counted://b/a.safetensors", "counted://b/b.safetensors"
    held = {"layer.0": tree()["layer.0"], "bias": tree()["bias"]}
    put(counted(), source, tmp_path, held)
    put(counted(), target, tmp_path, {"x": held["layer.0"].T.copy(), "y": held["bias"]})
    table = tmp_path / "table.toml"
    counted.asked.clear()
    done = run("map", "infer", source, target, "-o", table, "--storage-option", f"key={SECRET}")
    assert done.exit_code == 0, done.output
    assert sum(stop - start for _, start, stop in counted.asked) > 2 * held["layer.0"].nbytes
    assert ferry.WeightMap.read(table).rules
    counted.asked.clear()
    for words in (
        ["check", table, source, "--against", target],
        ["explain", table, source],
        ["invert", table, source],
    ):
        done = run("map", *words)
        assert done.exit_code == 0, done.output
    assert {each[1:] for each in counted.asked} == {(0, 64 << 10)}
    wanted = held["layer.0"].T[7:9]
    found = ferry.load(source, map=table, names=["x"], slices={"x": np.s_[7:9]})["x"]
    np.testing.assert_array_equal(found, wanted)
