"""Hostile ``.pt`` files: whatever a pickle asks for, nothing runs, and neither memory nor time is taken for it."""

from __future__ import annotations

import contextlib
import copyreg
import io
import pickle
import sys
import zipfile

import pytest
from tests.files import hostile
from tests.support import forked

from tensorferry.errors import FileFormatError, UnsafeFileError
from tensorferry.files.base.objects import objects_in
from tensorferry.files.formats.pytorch import FORMAT
from tensorferry.files.pickles.reader import described, globals_of, root_of
from tensorferry.files.pickles.torch import Names

CODE = sorted(hostile.code_pickles("x"))
PERSISTENT = sorted(hostile.persistent_pickles("x"))
BOMBS = sorted(hostile.bombs())
IMPOSSIBLE = sorted(hostile.impossible_tensors())


def read(data):
    """What a pickle holds."""
    vocabulary = Names("file", frozenset())
    return described(root_of(lambda: data, vocabulary), vocabulary, len(data))


@pytest.fixture
def evil(tmp_path, monkeypatch):
    """The module that the hostile pickles name can be imported, so that a reader which imports it is found out."""
    (tmp_path / "evil.py").write_text(hostile.EVIL)
    monkeypatch.syspath_prepend(tmp_path)
    for nbytes, code in hostile.EXTENSIONS.items():
        copyreg.add_extension("evil", f"touch{nbytes}", code)
    yield tmp_path / "canary"
    for nbytes, code in hostile.EXTENSIONS.items():
        copyreg.remove_extension("evil", f"touch{nbytes}", code)
    copyreg.clear_extension_cache() if hasattr(copyreg, "clear_extension_cache") else None
    sys.modules.pop("evil", None)


def write(tmp_path, data):
    path = tmp_path / "hostile.pt"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("route", CODE)
def test_code_of_a_pickle_is_not_run_and_is_named(route, evil, tmp_path):
    """On each route by which a pickle runs code: a refusal that says what was asked for, and no canary."""
    data, name = hostile.code_pickles(evil)[route]
    path = write(tmp_path, hostile.torch_zip(data))
    with pytest.raises(UnsafeFileError) as caught:
        FORMAT.read(path)
    assert f"asks for {name}" in caught.value.message
    assert any(asked.startswith(name) for asked in FORMAT.asks_for(path))
    assert any(name in finding.message for finding in FORMAT.check(path))
    assert not evil.exists()
    assert "evil" not in sys.modules


class _TrustingUnpickler(pickle.Unpickler):
    """Python's own, which does what a pickle says, and takes every persistent id."""

    def persistent_load(self, key):
        return key


@pytest.mark.parametrize("route", CODE)
def test_the_hostile_pickles_are_hostile(route, evil):
    """Each of them does leave the canary where Python's own unpickler reads it."""
    if route in ("hooks", "tensor of a class"):
        pytest.importorskip(
            "torch", reason="Python's unpickler imports torch before it comes to the code"
        )
    data, _ = hostile.code_pickles(evil)[route]
    unpickler = _TrustingUnpickler(io.BytesIO(data))
    with contextlib.suppress(TypeError, ValueError, AttributeError, pickle.UnpicklingError):
        unpickler.load()
    assert evil.exists()


@pytest.mark.parametrize("route", PERSISTENT)
def test_persistent_ids_are_storages_or_refused(route, evil, tmp_path):
    """An id that is no storage, or that asks for code while it is made, is refused by name."""
    data, name = hostile.persistent_pickles(evil)[route]
    path = write(tmp_path, hostile.torch_zip(data))
    with pytest.raises(UnsafeFileError, match=name.replace(".", r"\.")):
        FORMAT.read(path)
    assert not evil.exists()


@pytest.mark.parametrize("name", ["posix.system", "builtins.eval", "evil.Evil"])
def test_allowing_a_name_never_imports_or_calls_it(name, evil, tmp_path):
    """`allow` makes a container of what a class was given, whatever that class is."""
    route = {
        "posix.system": "posix.system",
        "builtins.eval": "builtins.eval",
        "evil.Evil": "BUILD",
    }[name]
    data, _ = hostile.code_pickles(evil)[route]
    contents = FORMAT.read(write(tmp_path, hostile.torch_zip(data)), allow=frozenset({name}))
    assert isinstance(contents.tree, dict)
    assert objects_in(contents.tree) == {"The whole": name}
    assert name in contents.asks_for
    assert not evil.exists()
    assert "evil" not in sys.modules


@pytest.mark.parametrize("what", BOMBS)
def test_bombs_are_refused_within_a_gigabyte_and_seconds(what, tmp_path):
    """Small pickles that would take memory or time out of all proportion, or end the process, are refused by name."""
    path = write(tmp_path, hostile.torch_zip(hostile.bombs()[what]))
    found = limited(path)
    assert found in ("FileFormatError", "UnsafeFileError"), found


def test_limited_processes_do_fail():
    """The process of the test above would say so if it took too much."""
    assert limited(None) == "MemoryError"


def limited(path):
    """The name of what reading raises, in a process that may take a gigabyte and 20 seconds of the processor."""
    needed = ("tensorferry.files.formats.pytorch", "tensorferry.files.pickles.reader")
    program = """
        import resource, sys
        from pathlib import Path
        from tensorferry.files.formats.pytorch import FORMAT
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
        try:
            if sys.argv[1] == "None":
                bytearray(1 << 30)
            print(FORMAT.read(Path(sys.argv[1])).tree)
        except Exception as error:
            print(type(error).__name__)
    """
    status, out, err = forked((*needed, "tensorferry.files.encodings.zip_archive"), program, path)
    return out.strip() or f"exit {status}: {err[-500:]}"


def test_a_huge_memo_index_takes_no_memory(tmp_path):
    """An index of two thousand million is a number like any other."""
    data = hostile.PROTO2 + b"Nr\xff\xff\xff\x7fj\xff\xff\xff\x7f\x86" + hostile.STOP
    path = write(tmp_path, hostile.torch_zip(data))
    assert limited(path) == "(None, None)"


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (
            hostile.named("collections", "defaultdict")
            + hostile.named("posix", "system")
            + b"\x85R",
            "posix.system",
        ),
        (hostile.named("torch", "FloatStorage") + b")R", "a call of torch.FloatStorage"),
        (hostile.named("torch", "Size") + b"}b", r"the state of torch\.Size to be set"),
        (
            hostile.named("collections", "OrderedDict") + b")R}" + hostile.text("items") + b"Nsb",
            "replaces",
        ),
        (
            hostile.named("numpy", "dtype") + hostile.text("f4") + b"\x85RNa",
            "items to be put into a dtype",
        ),
        (b"\x98", "READONLY_BUFFER"),
    ],
)
def test_what_is_no_data_is_refused_by_name(body, name, tmp_path):
    """Functions as values, calls of what is no function, states of what has none: each is told by name."""
    with pytest.raises(UnsafeFileError, match=name):
        FORMAT.read(write(tmp_path, hostile.torch_zip(hostile.PROTO2 + body + hostile.STOP)))


@pytest.mark.parametrize("what", ["deep lists", "deeper lists", "list in itself"])
def test_nesting_is_refused_by_name(what, tmp_path):
    """More than 64 levels are refused, and the message says that it is the nesting."""
    with pytest.raises(UnsafeFileError, match="64 levels"):
        FORMAT.read(write(tmp_path, hostile.torch_zip(hostile.bombs()[what])))


def test_sixty_four_levels_are_read(tmp_path):
    """The limit is where it is said to be."""
    data = hostile.PROTO2 + b"]" * 64 + b"a" * 63 + hostile.STOP
    tree = FORMAT.read(write(tmp_path, hostile.torch_zip(data))).tree
    levels = 0
    while tree:
        tree, levels = tree[0], levels + 1
    assert levels == 63


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_impossible_tensors_are_refused(what, tmp_path):
    """Sizes that are negative, overflow, or reach past the storage or the file, are an error and never a tensor."""
    data = hostile.state_dict(a=hostile.impossible_tensors()[what])
    with pytest.raises((FileFormatError, UnsafeFileError)):
        FORMAT.read(write(tmp_path, hostile.torch_zip(data)))


def test_the_tensor_that_the_impossible_ones_are_made_from_is_possible(tmp_path):
    """Without a lie it is read, so that each refusal above is for its lie."""
    contents = FORMAT.read(
        write(tmp_path, hostile.torch_zip(hostile.state_dict(a=hostile.tensor())))
    )
    assert contents.tensors["a"].array().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_damage_at_each_byte_of_a_pickle_is_an_error_of_ours_or_still_plain(tmp_path):
    """A pickle with any one byte changed raises a named error or gives plain values; nothing else gets out."""
    good = hostile.state_dict(
        a=hostile.tensor(), b=hostile.tensor(size=(), stride=()), c=hostile.several(b"N", b"]")
    )
    outcomes = set()
    for place in range(len(good)):
        for byte in (0, 0xFF, 0x80, *b".(]tRQbhj0123456789", good[place] ^ 1):
            data = good[:place] + bytes([byte]) + good[place + 1 :]
            try:
                read(data)
                outcomes.add("read")
            except (FileFormatError, UnsafeFileError) as error:
                outcomes.add(type(error).__name__)
    assert outcomes == {"read", "FileFormatError", "UnsafeFileError"}


def test_a_pickle_cut_off_anywhere_is_an_error_of_ours():
    """No part of a pickle is taken for the whole."""
    good = hostile.state_dict(a=hostile.tensor())
    for length in range(len(good)):
        with pytest.raises((FileFormatError, UnsafeFileError)):
            read(good[:length])


def test_globals_are_told_of_files_that_cannot_be_read():
    """What a damaged pickle named before its damage is told too, so that `inspect` can show it."""
    data = hostile.PROTO2 + hostile.named("posix", "system") + b"\xff"
    assert globals_of(lambda: data, Names("file", frozenset())) == ("posix.system",)


def test_names_and_tensors_that_come_again(tmp_path):
    """Dicts that have the names of others, storages and whole tensors that stood there before: as torch has them."""
    torch = pytest.importorskip("torch", reason="needs torch to write such a file")
    model = {f"layer.{place}": torch.full((3,), float(place)) for place in range(100)}
    average = {name: tensor + 1 for name, tensor in model.items()}
    tied = [tensor[1:] for tensor in model.values()]
    path = tmp_path / "state.pt"
    torch.save(
        {"model": model, "average": average, "again": list(model.values()), "tied": tied}, path
    )
    found = FORMAT.read(path)
    for place in range(100):
        of = {
            key: found.tensors[f"{key}.{place}"]
            for key in ("again", "tied", "model.layer", "average.layer")
        }
        assert of["model.layer"].array().tolist() == of["again"].array().tolist() == [place] * 3
        assert of["average.layer"].array().tolist() == [place + 1] * 3
        assert of["tied"].array().tolist() == [place] * 2
        assert of["model.layer"].key == of["again"].key
        assert of["model.layer"].record == of["tied"].record
    assert found.ties == {f"again.{place}": f"model.layer.{place}" for place in range(100)}


def test_numbers_that_are_spelled_oddly_are_other_storages(tmp_path):
    """``07`` is not ``7``, and a storage that two tensors share is described once."""
    names = ("6", "7", "07", "8", "7")
    pieces = [
        hostile.text(f"t{place}") + hostile.tensor(key=key) for place, key in enumerate(names)
    ]
    data = hostile.PROTO2 + b"}(" + b"".join(pieces) + b"u."
    assert [leaf.storage.key for leaf in read(data).leaves.values()] == list(names)


def test_overwritten_memo_entries_are_what_was_put_last(tmp_path):
    """The quick way through tensors notices when a memo entry that it relies on, or left out, is used otherwise."""
    torch = pytest.importorskip("torch", reason="needs torch to write the pickle that is changed")
    state = {f"layer.{place}": torch.full((2,), float(place)) for place in range(200)}
    path = tmp_path / "state.pt"
    torch.save(state, path)
    with zipfile.ZipFile(path) as archive:
        data = archive.read("state/data.pkl")
    assert data.endswith(b"u.")
    plain = read(data)
    indices = [
        int.from_bytes(data[at + 1 : at + 5], "little")
        for at in range(len(data))
        if data[at : at + 1] == b"r"
    ]
    last = max(index for index in indices if index < 4_000)
    names = list(plain.leaves)
    # The tensor and the sizes of the last one, fetched again: the first was kept, the second left
    # out.
    for back, what in ((0, "tensor"), (4, "tuple")):
        again = (
            data[:-2] + hostile.text("again") + b"j" + (last - back).to_bytes(4, "little") + b"u."
        )
        found = read(again)
        if what == "tensor":
            assert found.leaves["again"] is found.leaves[names[-1]]
        else:
            assert type(found.tree["again"]) is tuple
    # Another class is put where that of the storages was: tensors after it are of the other dtype.
    place = data.index(hostile.text("layer.150"))
    index = data.index(hostile.named("torch", "FloatStorage")) + len(
        hostile.named("torch", "FloatStorage")
    )
    assert data[index : index + 1] == b"q"
    other = (
        data[:place]
        + hostile.named("torch", "IntStorage")
        + data[index : index + 2]
        + b"0"
        + data[place:]
    )
    dtypes = [leaf.view.dtype for leaf in read(other).leaves.values()]
    assert dtypes == ["float32"] * 150 + ["int32"] * 50
