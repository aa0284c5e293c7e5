"""What pickles have beside tensors: types, paths, dates, functions that are only named, and calls in other parts."""

# The values of `typing` are what is tried, in the forms that old programs have.
# ruff: noqa: UP006, UP007, UP045, PYI061

from __future__ import annotations

import argparse
import ast
import collections
import copyreg
import datetime as dt
import decimal
import fractions
import importlib
import json
import pathlib
import pickle
import pickletools
import sys
import types
import typing
import uuid
import zipfile

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from tests.files import hostile, hostile_objects
from tests.files.test_hostile_pickles import limited, write

import tensorferry as ferry
from tensorferry.errors import (
    FileFormatError,
    FormatLimitError,
    UnsafeFileError,
    UnsupportedTypeError,
)
from tensorferry.files.base.objects import Placeholder, objects_in
from tensorferry.files.formats.pickle import FORMAT as PICKLE
from tensorferry.files.formats.pytorch import FORMAT
from tensorferry.files.pickles.reader import root_of
from tensorferry.files.pickles.table import VALUES
from tensorferry.files.pickles.torch import Names

torch = pytest.importorskip(
    "torch", reason="the files are compared with what torch itself writes and reads"
)

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
CASES = sorted(hostile_objects.cases("x"))
BOMBS = sorted(hostile_objects.bombs())


class Config:
    """A class of a program."""

    def __init__(self, **values):
        vars(self).update(values)


class Settings(dict):
    """A dict of a program's own class."""


class Plan(Config):
    """Another class of a program."""


def name_of(kind):
    return f"{kind.__module__}.{kind.__qualname__}"


def pasted(error):
    """The names that a hint allows, as they stand in it."""
    return ast.literal_eval(error.hint.removeprefix("allow=").partition(", which")[0])


def globals_in(path):
    """What a pickle in a file of torch.save names, as Python's own tool says."""
    with zipfile.ZipFile(path) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith("/data.pkl")]
        return {
            arg.replace(" ", ".")
            for op, arg, _ in pickletools.genops(archive.read(name))
            if op.name == "GLOBAL"
        }


@pytest.fixture(scope="module")
def _evil_folder(tmp_path_factory):
    """One for all, whose path is in the cases: making all of them takes as long as reading one."""
    folder = tmp_path_factory.mktemp("evil")
    (folder / "evil.py").write_text(hostile.EVIL)
    return folder


@pytest.fixture
def evil(_evil_folder, monkeypatch):
    """A module whose code leaves a canary."""
    monkeypatch.syspath_prepend(_evil_folder)
    for nbytes, code in hostile.EXTENSIONS.items():
        copyreg.add_extension("evil", f"touch{nbytes}", code)
    yield _evil_folder / "canary"
    for nbytes, code in hostile.EXTENSIONS.items():
        copyreg.remove_extension("evil", f"touch{nbytes}", code)
    sys.modules.pop("evil", None)


# What is honest.

HOUR = dt.timedelta(hours=1)
MOMENT = dt.datetime(2024, 2, 29, 23, 59, 58, 123456)  # noqa: DTZ001 - naive, as many are
TEXTS = {
    str: (
        pathlib.PurePosixPath("/runs/1/a b"),
        pathlib.PurePosixPath(),
        pathlib.PureWindowsPath("c:/x", "y"),
        pathlib.Path("é/\n"),
        dt.timedelta(-3, 4, 5),
        dt.timezone.utc,
        dt.timezone(-HOUR),
        dt.timezone(HOUR, "CET"),
        decimal.Decimal("1.50"),
        decimal.Decimal("-Infinity"),
        decimal.Decimal("NaN123"),
        decimal.Decimal("1e999999"),
        fractions.Fraction(-6, 4),
        uuid.UUID(int=(1 << 128) - 1),
    ),
    repr: (
        *(slice(None), slice(1, None, -2), range(5), range(3, -(10**30), -7), ..., NotImplemented),
        *(
            typing.Any,
            typing.List,
            typing.Union,
            typing.Optional[int],
            typing.Union[int, str, None],
        ),
        *(typing.List[typing.Dict[str, typing.Tuple[int, ...]]], typing.Literal["a", 1, None]),
        *(typing.Callable[[int, str], float], typing.Callable[..., int]),
        *(typing.Callable[[], None], typing.Tuple[()], typing.Type[Config]),
        *(typing.Annotated[int, "m"], list[int], dict[str, list[float]], tuple[int, ...]),
        *(int | str, int | None, list[int] | None, typing.Optional[np.float32]),
    ),
    lambda value: value.isoformat(): (
        *(MOMENT.date(), MOMENT.time(), MOMENT.time().replace(fold=1, tzinfo=dt.timezone.utc)),
        *(MOMENT, MOMENT.replace(tzinfo=dt.timezone(HOUR)), MOMENT.replace(year=1, day=1)),
    ),
    lambda value: value.__name__: (
        *(
            bool,
            bytearray,
            bytes,
            complex,
            dict,
            float,
            frozenset,
            int,
            list,
            object,
            range,
            set,
            slice,
        ),
        *(str, tuple, type, type(None), type(...), type(NotImplemented), np.float32, np.int8),
        *(ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.bool_),
    ),
    lambda value: f"{value.__module__}.{value.__qualname__}": (
        *(np.floating, np.generic, np.ndarray, np.dtype, dt.datetime, decimal.Decimal),
        *(collections.OrderedDict, argparse.Namespace, np.str_, ml_dtypes.int1),
    ),
    lambda value: value.name: (
        np.dtype("float32"),
        np.dtype(ml_dtypes.bfloat16),
        np.dtype("m8[ns]"),
        np.dtype(bool),
    ),
    lambda value: value.str: (np.dtype(">f4"), np.dtype("<U7")),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_values_of_python_and_numpy_are_their_texts(protocol, tmp_path):
    """As Python prints them, in each protocol, from `pickle.dumps`; and they are told with what they were."""
    path = tmp_path / "a.pkl"
    for printed, values in TEXTS.items():
        for value in values:
            path.write_bytes(pickle.dumps({"a": value, "n": 1}, protocol))
            found = ferry.open(path)
            expected = printed(value)
            if isinstance(value, np.dtype) and value.kind == "m":
                expected = value.str
            assert found.tree["a"].text == expected, value
            assert list(objects_in(found.tree)) == ["a"]
            assert ferry.load(path)["a"] == expected
            assert type(ferry.load(path)["a"]) is str


def test_each_row_of_the_table_is_what_python_pickles(tmp_path):
    """Each name that can be found here is pickled as just this name, and read as a text and never as a placeholder."""
    path, tried = tmp_path / "a.pkl", []
    for name in VALUES:
        module, _, last = name.rpartition(".")
        try:
            value = getattr(importlib.import_module(module), last)
        except (ImportError, AttributeError):
            continue  # of another release
        data = pickle.dumps(value, 4)
        written = [arg for op, arg, _ in pickletools.genops(data) if "UNICODE" in op.name]
        if written != [module, last]:
            continue  # another name for the same
        path.write_bytes(data)
        assert ferry.open(path).tree.text == VALUES[name]
        tried.append(name)
    assert len(tried) > 120
    assert {"numpy.float32", "ml_dtypes.bfloat16", "typing.Any", "builtins.float", "uuid.UUID"} <= {
        *tried
    }


def test_values_of_jax_are_read(tmp_path):
    """Arrays bit by bit, in each protocol, and scalar types by the names of their dtypes."""
    jax = pytest.importorskip("jax", reason="needs JAX to pickle its arrays")
    rng = np.random.default_rng(4)
    arrays = {
        "f": rng.random((20, 30)).astype("float32"),
        "b": rng.random(300).astype(ml_dtypes.bfloat16),
        "i": np.array(5, "int32"),
        "n": np.zeros((0, 3), "float32"),
    }
    tree = {name: jax.numpy.asarray(array) for name, array in arrays.items()}
    for protocol in PROTOCOLS:
        (tmp_path / "a.pkl").write_bytes(pickle.dumps({**tree, "t": jax.numpy.bfloat16}, protocol))
        loaded = ferry.load(tmp_path / "a.pkl")
        for name, array in arrays.items():
            assert (loaded[name].dtype, loaded[name].shape) == (array.dtype, array.shape)
            assert loaded[name].tobytes() == array.tobytes()
        assert loaded["t"] == "bfloat16"
    torch.save({**tree, "t": jax.numpy.float32}, tmp_path / "a.pt")
    assert ferry.load(tmp_path / "a.pt", "torch")["f"].numpy().tobytes() == arrays["f"].tobytes()
    # JAX makes its own of what NumPy reads, and so it is no array of NumPy in another file.
    for source in ("a.pt", "a.pkl"):
        ferry.convert_files(tmp_path / source, tmp_path / "b.pt", overwrite=True)
        found = torch.load(tmp_path / "b.pt", weights_only=True)
        assert found["f"].numpy().tobytes() == arrays["f"].tobytes()


def test_forms_of_other_releases(tmp_path):
    """Paths of Python 3.13, fractions of 3.10, arrays of JAX before 0.4.1, names of Python 2."""
    text, number = hostile.text, hostile.number
    forms = {
        hostile_objects.called("pathlib._local", "PosixPath", text("/a/b")): "/a/b",
        hostile_objects.called("pathlib._local", "PureWindowsPath", text("c:/x")): "c:\\x",
        hostile_objects.called("fractions", "Fraction", text("-6/4")): "-3/2",
        hostile_objects.called(
            "__builtin__", "xrange", number(1), number(10**30), number(1)
        ): f"range(1, {10**30})",
        hostile_objects.called("decimal", "Decimal", text("1E+999999999")): "1E+999999999",
        hostile.named("__builtin__", "unicode"): "str",
    }
    for body, expected in forms.items():
        (tmp_path / "a.pkl").write_bytes(hostile.PROTO2 + body + hostile.STOP)
        assert ferry.open(tmp_path / "a.pkl").tree.text == expected
    for module in ("pathlib", "pathlib._local"):
        for body, kind in (
            (hostile_objects.called(module, "PurePosixPath", text("a")), "pathlib.PurePosixPath"),
            (hostile.named(module, "PosixPath"), "the type pathlib.PosixPath"),
        ):
            (tmp_path / "a.pkl").write_bytes(hostile.PROTO2 + body + hostile.STOP)
            assert ferry.open(tmp_path / "a.pkl").tree.kind == kind
    reduced = np.arange(3.0).__reduce__()
    data = pickle.dumps(reduced, 2)[:-1]
    body = hostile.named("jax._src.device_array", "reconstruct_device_array") + b"(" + data[2:]
    whole = pickle.dumps((*reduced[:2], reduced[2], {"weak_type": False}), 2)[2:-1]
    body = hostile.named("jax._src.device_array", "reconstruct_device_array") + whole + b"R"
    (tmp_path / "a.pkl").write_bytes(hostile.PROTO2 + body + hostile.STOP)
    assert ferry.load(tmp_path / "a.pkl").tolist() == [0, 1, 2]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_namespaces_counters_and_deques_are_dicts_and_lists(protocol, tmp_path):
    """With tensors in them, and with attributes that are named like our own keys."""
    tree = {
        "args": argparse.Namespace(lr=0.1, arguments=[1], w=torch.ones(2), out=pathlib.Path("x")),
        "simple": types.SimpleNamespace(items=3),
        "counts": collections.Counter("aab"),
        "last": collections.deque([1, 2], maxlen=5),
    }
    path = tmp_path / "a.pkl"
    path.write_bytes(pickle.dumps(tree, protocol))
    loaded = ferry.load(path, "torch")
    assert loaded["args"]["w"].tolist() == [1, 1]
    assert {key: loaded["args"][key] for key in ("lr", "arguments", "out")} == {
        "lr": 0.1,
        "arguments": [1],
        "out": "x",
    }
    assert dict(loaded["simple"]) == {"items": 3}
    assert dict(loaded["counts"]) == {"a": 2, "b": 1}
    assert loaded["last"] == [1, 2]
    told = objects_in(ferry.open(path).tree)
    assert told == {
        "args": "argparse.Namespace",
        "args.out": f"pathlib.{type(pathlib.Path()).__name__}",
        "simple": "types.SimpleNamespace",
        "counts": "collections.Counter",
    }


def checkpoint(path):
    """A checkpoint as trainers save it: weights, and objects of the program beside them."""
    tree = {
        "state_dict": {"w": torch.arange(3.0), "b": torch.ones(1)},
        "hyper": Settings(lr=0.1, inner=Config(x=1, w=torch.zeros(2))),
        "activation": torch.nn.functional.relu,
        "loss": Config,
        "path": pathlib.Path("/runs/1"),
        "callbacks": [Plan(patience=3), 5],
        "kinds": [float, typing.Any, np.dtype("float32"), np.float32, torch.float16],
    }
    torch.save(tree, path)
    return path


def test_all_names_are_in_one_hint_that_works_pasted(tmp_path):
    """With it everything is read: objects as dicts, dicts of a class as dicts, and names as placeholders."""
    path = checkpoint(tmp_path / "a.ckpt")
    with pytest.raises(UnsafeFileError) as refused:
        ferry.open(path)
    assert sorted(pasted(refused.value)) == sorted(map(name_of, (Config, Settings, Plan)))
    loaded = ferry.load(path, "torch", allow=pasted(refused.value))
    assert loaded["hyper"]["lr"] == 0.1
    assert loaded["hyper"]["inner"]["w"].tolist() == [0, 0]
    assert loaded["callbacks"] == [{"patience": 3}, 5]
    assert loaded["kinds"] == ["float", "typing.Any", "float32", "float32", torch.float16]
    assert loaded["path"] == "/runs/1"
    assert repr(loaded["activation"]) == "<torch.nn.functional.relu, which is only named>"


@pytest.mark.parametrize(
    "name", ["builtins.float", "builtins.len", "torch.nn.functional.relu", "os.system"]
)
def test_allowing_what_is_only_named_changes_nothing(name, tmp_path):
    """Nothing is refused, with it or without it."""
    module, _, last = name.rpartition(".")
    (tmp_path / "a.pkl").write_bytes(hostile.PROTO2 + hostile.named(module, last) + hostile.STOP)
    trees = [ferry.open(tmp_path / "a.pkl", allow=allow).tree for allow in ((), [name])]
    assert repr(trees[0]) == repr(trees[1])


def test_parts_that_are_not_wanted_refuse_nothing(tmp_path):
    """With names=, exclude=, include= and tensors_only=, as long as no wanted part has what is not allowed."""
    path, out = checkpoint(tmp_path / "a.ckpt"), tmp_path / "out.safetensors"
    assert ferry.load(path, names="state_dict.*")["state_dict"]["w"].tolist() == [0, 1, 2]
    assert sorted(ferry.load(path, exclude=["hyper", "callbacks.*"])) == [
        *("activation", "kinds", "loss", "path", "state_dict")
    ]
    ferry.convert_files(path, out, include="state_dict.*", verify=True)
    with safetensors.safe_open(out, "np") as file:
        assert sorted(file.keys()) == ["state_dict.b", "state_dict.w"]
    for wanted in (
        {"names": ["state_dict.*", "hyper*"]},
        {"exclude": "callbacks.*"},
        {"names": "*"},
    ):
        with pytest.raises(UnsafeFileError, match=r"Settings.* \(at hyper") as refused:
            ferry.load(path, **wanted)
        ferry.load(path, **wanted, allow=pasted(refused.value))
    # An object may hold tensors, which tensors_only never leaves out.
    with pytest.raises(UnsafeFileError, match="Settings") as refused:
        ferry.convert_files(path, out, tensors_only=True, overwrite=True)
    report = ferry.convert_files(
        path, out, tensors_only=True, overwrite=True, allow=pasted(refused.value)
    )
    assert report.tensors == 3
    torch.save({"w": torch.ones(2), "c": Config(x=[1, {"y": "z"}])}, tmp_path / "b.pt")
    report = ferry.convert_files(tmp_path / "b.pt", out, tensors_only=True, overwrite=True)
    assert (report.tensors, "c" in report.warnings[0]) == (1, True)
    ferry.convert_files(
        path, tmp_path / "shards", include="state_dict.*", to="safetensors", shard="1KB", jobs=2
    )


@pytest.mark.parametrize("kind", ["zip", "old", "pickle"])
def test_a_refused_object_is_reached_through_the_memo(kind, tmp_path):
    """One object in two parts: either of them asks for it; a part without it does not."""
    one = Config(x=1)
    tree = {
        "a": {"one": one},
        "b": {"again": one, "inside": [{"c": (one,)}]},
        "w": {"x": torch.ones(2)},
    }
    path = tmp_path / "a.pt"
    if kind == "pickle":
        path.write_bytes(pickle.dumps(tree))
    else:
        torch.save(tree, path, _use_new_zipfile_serialization=kind == "zip")
    assert ferry.load(path, names="w.*")["w"]["x"].tolist() == [1, 1]
    for part in ("a.*", "b.again", "b.inside.*"):
        with pytest.raises(UnsafeFileError, match=name_of(Config)):
            ferry.load(path, names=part)


def test_objects_of_tensors_and_of_attributes_are_refused_with_them(tmp_path):
    """A tensor with an attribute that asks for a call is refused where it is wanted; so are attributes of dicts."""
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.loader = Config(x=1)
    torch.save({"w": torch.zeros(1), "p": parameter}, tmp_path / "a.pt")
    assert list(ferry.load(tmp_path / "a.pt", names="w")) == ["w"]
    with pytest.raises(UnsafeFileError, match="Config"):
        ferry.load(tmp_path / "a.pt", names="p")
    state = collections.OrderedDict(w=torch.zeros(1))
    state.extra = Config(x=1)
    torch.save({"model": state, "v": torch.ones(1)}, tmp_path / "b.pt")
    with pytest.raises(UnsafeFileError, match="Config"):
        ferry.load(tmp_path / "b.pt", names="v")


# What is only named.


def test_a_placeholder_is_inert(tmp_path):
    """It is equal to itself alone, cannot be called, and is written nowhere as what it names."""
    torch.save(
        {"f": torch.nn.functional.relu, "g": [len, len], "w": torch.ones(1)}, tmp_path / "a.pt"
    )
    found, again = (ferry.load(tmp_path / "a.pt") for _ in range(2))
    mark = found["f"]
    assert type(mark) is Placeholder
    assert mark == found["f"]
    assert mark != again["f"]
    assert mark != mark.name
    assert len({mark, again["f"], found["g"][0], found["g"][1]}) == 3
    assert not callable(mark)
    with pytest.raises(UnsupportedTypeError, match=r'only named - at \$\["f"\]') as refused:
        ferry.save(dict(found), tmp_path / "b.pt")
    assert refused.value.hint.startswith('x["f"].name in its place')
    ferry.save({**found, "f": mark.name, "g": []}, tmp_path / "b.pt")
    assert ferry.load(tmp_path / "b.pt")["f"] == mark.name


@pytest.mark.parametrize(
    "between", [(), ("b.safetensors",), ("b.npz", "c.h5"), ("b.pt", "c.msgpack")]
)
def test_names_are_texts_after_each_conversion(between, tmp_path):
    """Through any formats and back to .pt: no name comes back as a global, as torch and pickletools see it."""
    names = [
        ("posix", "system"),
        ("builtins", "eval"),
        ("evil", "a\nposix\nsystem\n)R."),
        ("x" * 300, "y" * 300),
    ]
    body = b"}(" + hostile.text("w") + hostile.tensor()
    for place, (module, name) in enumerate(names):
        body += hostile.text(f"n{place}") + hostile_objects.stacked(module, name)
    body += (
        hostile.text("p")
        + hostile_objects.called("pathlib", "PosixPath", hostile.text("posix\nsystem"))
        + b"u"
    )
    path = write(tmp_path, hostile.torch_zip(hostile.PROTO4 + body + hostile.STOP))
    for step in (*between, "last.pt"):
        report = ferry.convert_files(path, tmp_path / step, verify=True)
        if path.name == "hostile.pt":
            assert (
                "n0 (only named: posix.system), n1 (only named: builtins.eval)"
                in report.warnings[0]
            )
            assert "\n" not in report.warnings[0]
        path = tmp_path / step
    assert globals_in(path) <= {
        "torch._utils._rebuild_tensor_v2",
        "torch.FloatStorage",
        "collections.OrderedDict",
    }
    loaded = torch.load(path, weights_only=True)
    assert (loaded["n0"], loaded["n1"], loaded["p"]) == (
        "posix.system",
        "builtins.eval",
        "posix\nsystem",
    )
    assert loaded["n2"] == r"evil.a\nposix\nsystem\n)R."
    assert loaded["n3"] == "x" * 200 + "…"


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("dtype", "hub.load"),
        ("dtype", "float32\n)R(Vx\n"),
        ("dtype", "nn.Linear"),
        ("size", ["1"]),
        ("size", "x"),
        ("device", "cpu:x"),
        ("device", ["cpu"]),
        ("layout", ["strided"]),
        ("global", "posix.system"),
    ],
)
def test_texts_of_other_files_name_nothing_in_a_pickle(kind, value, tmp_path):
    """A tree in a safetensors file may say anything of a dtype: only what PyTorch has is written as a name."""
    safetensors.numpy.save_file(
        {"w": np.ones(2, "float32")},
        tmp_path / "a.safetensors",
        {
            "tensorferry.tree": json.dumps(
                {"w": {"@": "ref"}, "d": {"@": "special", "kind": kind, "value": value}}
            )
        },
    )
    with pytest.raises(FormatLimitError, match="d is a"):
        ferry.convert_files(tmp_path / "a.safetensors", tmp_path / "a.pt")
    assert not (tmp_path / "a.pt").exists()


# What is hostile.


def _tried(read, path):
    """The result, or the error of ours."""
    try:
        return read(path)
    except (FileFormatError, UnsafeFileError) as error:
        return error


def _refused_or_told(form, path):
    """Read it for a part: what is not an error is among what cannot be loaded."""
    found = _tried(form.read_partly, path)
    told = [found.message] if isinstance(found, Exception) else [*found.others.values()]
    assert all(why.isprintable() for why in told)
    assert isinstance(found, Exception) or any("asks for" in why for why in told)


@pytest.mark.parametrize("partly", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_hostile_objects_are_refused(name, partly, evil, tmp_path):
    """By the right error, with the name of what was asked for; nothing runs, wanted or not."""
    case = hostile_objects.cases(evil)[name]
    for form, data in ((FORMAT, hostile.torch_zip(case.data)), (PICKLE, case.data)):
        path = write(tmp_path, data)
        if partly:
            _refused_or_told(form, path)
        else:
            with pytest.raises(case.error, match=case.what) as refused:
                form.read(path)
            assert type(refused.value) is case.error
            assert refused.value.message.isprintable()
        form.asks_for(path)
    assert not evil.exists()
    assert "evil" not in sys.modules


def test_there_are_forty_of_them_and_more():
    """Forty that try names which stand alone and the table, beside those for the routes of code."""
    assert len(hostile_objects.placeholders("x")) + len(hostile_objects.rows("x")) > 80


@pytest.mark.parametrize("name", BOMBS)
def test_large_values_are_not_copied_without_end(name, tmp_path):
    """Within a gigabyte and 20 seconds of the processor."""
    path = write(tmp_path, hostile.torch_zip(hostile_objects.bombs()[name]))
    assert limited(path) == "UnsafeFileError"


def test_bombs_of_objects_are_bombs():
    """One call of each is read, so that each refusal above is for their number."""
    for data in hostile_objects.bombs().values():
        once = data.replace(b"h\x01h\x02R" * 100_000, b"h\x01h\x02R")
        assert len(root_of(lambda once=once: once, Names("file", frozenset()))) == 3


AGAIN = sorted(hostile_objects.used_again(1))


@pytest.mark.parametrize("name", AGAIN)
def test_values_and_names_do_not_grow_without_end(name, tmp_path):
    """A value or a key that a pickle uses again takes a byte or two there, and its size in a tree or a name."""
    path = write(tmp_path, hostile.torch_zip(hostile_objects.used_again(100_000)[name]))
    assert limited(path) == "UnsafeFileError"


@pytest.mark.parametrize("name", sorted({*AGAIN} - {"key of many elements"}))
def test_what_is_used_a_few_times_is_read(name, tmp_path):
    """So that each refusal above is for the number of uses."""
    path = write(tmp_path, hostile.torch_zip(hostile_objects.used_again(3)[name]))
    found = FORMAT.read(path)
    assert len(found.tensors) == (3 if "tensors" in name else 0)


@pytest.mark.parametrize("what", ["values", "only named"])
def test_paths_of_values_do_not_grow_without_end(what, tmp_path):
    """A long key that leads to many values is in the path of each, where paths are needed."""
    value = b"N" if what == "values" else hostile.named("pkg", "f")
    body = b"}" + hostile_objects.long_text("k" * 100_000) + b"(" + value + b"2" * 20_000 + b"ls"
    path = tmp_path / "a.pkl"
    path.write_bytes(hostile.PROTO4 + body + hostile.STOP)
    with pytest.raises(FormatLimitError, match="characters: long keys"):
        ferry.load(path, names="w")
    (found,) = ferry.load(path).values()
    assert len(found) == 20_001


def test_damage_of_objects_is_an_error_of_ours_or_still_plain(tmp_path):
    """With any one byte changed, named errors alone."""
    values = [value for values in TEXTS.values() for value in values][:40]
    good = pickle.dumps(
        {"values": values, "n": argparse.Namespace(a=1), "c": Config(x=1), "f": len}, 4
    )
    path = tmp_path / "a.pkl"
    outcomes = collections.Counter()
    for place in range(0, len(good), 2):
        for byte in (0, 0xFF, ord("R"), good[place] ^ 1):
            path.write_bytes(good[:place] + bytes([byte]) + good[place + 1 :])
            try:
                objects_in(PICKLE.read_partly(path).tree)
                outcomes["read"] += 1
            except (FileFormatError, UnsafeFileError) as error:
                outcomes[type(error).__name__] += 1
    assert set(outcomes) == {"read", "FileFormatError", "UnsafeFileError"}
