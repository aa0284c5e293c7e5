"""TorchScript and `torch.export`: the tensors of programs, bit by bit what torch itself gives; nothing is run."""

from __future__ import annotations

import json
import sys
import warnings
import zipfile

import pytest
from tests.files import hostile
from tests.files.test_pickles import agrees

import tensorferry as ferry
from tensorferry.errors import FileFormatError, UnsafeFileError
from tensorferry.files.opening.paths import asked_for
from tensorferry.files.reports.check import check_path

torch = pytest.importorskip("torch", reason="the files are compared with what torch itself reads")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class Inner(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)
        self.scale = 1.5
        self.names = ["a", "b"]
        self.register_buffer("mask", torch.tensor([True, False]))

    def forward(self, x):
        return torch.where(self.mask, self.linear(x) * self.scale, 0.0)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.inner = Inner()
        self.norm = torch.nn.BatchNorm1d(2)
        self.stack = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
        self.tied = self.inner.linear
        self.plain = torch.ones(2, dtype=torch.float64)
        self.part = torch.nn.Parameter(torch.arange(12.0).reshape(3, 4).T[:2, 1])

    def forward(self, x):
        return self.stack(self.norm(self.inner(x))) + self.plain * self.part


def scripted(path, how=torch.jit.script):
    model = Model().eval()
    torch.jit.save(how(model), path)
    return path


def exported(path):
    """What this PyTorch writes."""
    with warnings.catch_warnings():
        # A parameter that is a view of something else.
        warnings.filterwarnings("ignore", "No complete tensor")
        torch.export.save(torch.export.export(Model().eval(), (torch.ones(2, 3),)), path)
    return path


def exported_today(path):
    """An archive as PyTorch writes it today; a skip with one that writes a zip of zips."""
    with zipfile.ZipFile(exported(path)) as archive:
        if "serialized_exported_program.json" in archive.namelist():
            pytest.skip(f"torch {torch.__version__} writes archives of before")
    return path


def changed(path, member, data):
    """The same archive with other bytes in a member, or without it."""
    with zipfile.ZipFile(path) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    kept = [
        (name, data if name == member else old)
        for name, old in members
        if data is not None or name != member
    ]
    assert any(name == member for name, _ in members)
    path.write_bytes(hostile.zip_bytes([(name, raw, hostile.Lies()) for name, raw in kept]))


@pytest.mark.parametrize("name", ["a.pt", "a.torchscript", "a.bin"])
def test_the_tensors_of_torchscript(name, tmp_path):
    """All parameters and buffers by the attributes that lead to them, ties among them, and the other attributes."""
    path = scripted(tmp_path / name)
    found = ferry.open(path)
    assert found.format == "torchscript"
    expected = torch.jit.load(path).state_dict()
    loaded = ferry.load(path, "torch")
    for key, tensor in expected.items():
        value = loaded
        for part in key.split("."):
            value = value[part]
        assert agrees(value, tensor), key
    assert expected.keys() | {"plain"} == found.tensors.keys()
    assert found.ties == {"tied.weight": "inner.linear.weight", "tied.bias": "inner.linear.bias"}
    assert loaded["inner"]["scale"] == 1.5
    assert loaded["inner"]["names"] == ["a", "b"]
    assert not list(check_path(path))
    ferry.convert_files(path, tmp_path / "out.safetensors", verify=True)
    ferry.convert_files(path, tmp_path / "new.pt", verify=True)
    assert agrees(
        torch.load(tmp_path / "new.pt", weights_only=True)["inner"]["linear"]["weight"],
        expected["tied.weight"],
    )


def test_the_constants_of_a_frozen_program(tmp_path):
    """A frozen module has its weights among the constants, under the names that its code has for them."""
    path = scripted(tmp_path / "a.pt", lambda model: torch.jit.freeze(torch.jit.script(model)))
    found = ferry.open(path)
    assert found.format == "torchscript"
    graph = torch.jit.load(path).graph
    constants = graph.findAllNodes("prim::Constant")
    expected = [
        node.t("value")
        for node in constants
        if node.hasAttribute("value") and node.kindOf("value") == "t"
    ]
    mine = [torch.from_numpy(each.load()) for each in found.tensors.values()]
    assert list(found.tensors) == [f"CONSTANTS.c{place}" for place in range(len(mine))]
    assert all(any(agrees(one, other) for one in mine) for other in expected)
    assert any(agrees(one, Model().inner.linear.weight) for one in mine)


# PyTorch 2.11's own `torch.export.load` warns of the buffers that it reads.
@pytest.mark.filterwarnings("ignore:The given buffer is not writable")
def test_old_and_new_archives_of_torch_export(tmp_path):
    """What PyTorch writes today, and the zip of zips of before, which `torch.export.load` still reads."""
    from torch._export.serde.serialize import serialize

    path = exported(tmp_path / "a.pt2")
    program = torch.export.load(path)
    parts = serialize(program)
    old = tmp_path / "old.pt2"
    with zipfile.ZipFile(old, "w") as archive:
        archive.writestr("version", "8.0")
        archive.writestr("serialized_exported_program.json", parts.exported_program)
        archive.writestr("serialized_state_dict.pt", parts.state_dict)
        archive.writestr("serialized_constants.pt", parts.constants)
        archive.writestr("serialized_example_inputs.pt", parts.example_inputs)
    assert agrees(torch.export.load(old).state_dict, program.state_dict)
    for each in (path, old, old.rename(tmp_path / "odd.bin")):
        if not each.exists():
            continue
        found = ferry.open(each)
        assert found.format == "torch_export"
        loaded = ferry.load(each, "torch")
        assert agrees({name: loaded[name] for name in program.state_dict}, dict(program.state_dict))
        rest = {
            name: value
            for name, value in program.constants.items()
            if name not in program.state_dict
        }
        assert agrees({name: loaded[name] for name in rest}, rest)
        assert (
            found.ties["tied.weight"] == "inner.linear.weight"
            or found.ties["inner.linear.weight"] == "tied.weight"
        )
        assert not list(check_path(each))


@pytest.mark.parametrize("route", sorted(hostile.code_pickles("x")))
def test_nothing_in_a_program_is_run(route, tmp_path, monkeypatch):
    """Neither in its module nor in its constants; the code in it is not looked at."""
    (tmp_path / "evil.py").write_text(hostile.EVIL)
    monkeypatch.syspath_prepend(tmp_path)
    canary = tmp_path / "canary"
    data, name = hostile.code_pickles(canary)[route]
    plain = hostile.PROTO2 + b")."
    for pickles in ((data, plain), (hostile.PROTO2 + b"}.", data)):
        members = zip(
            ("a/data.pkl", "a/constants.pkl", "a/code/x.py"), (*pickles, b"exit()"), strict=True
        )
        path = tmp_path / "a.pt"
        path.write_bytes(
            hostile.zip_bytes([(member, raw, hostile.Lies()) for member, raw in members])
        )
        with pytest.raises(UnsafeFileError, match="asks for") as refused:
            ferry.open(path)
        assert name in refused.value.message
        kind, asked = asked_for(path)
        assert kind == "torchscript"
        assert any(name in each for each in asked)
    assert not canary.exists()
    assert "evil" not in sys.modules


def test_programs_that_are_damaged(tmp_path):
    """Members that are missing or changed, cut off anywhere: an error of ours; a flipped bit of a value is found."""
    path = scripted(tmp_path / "script.pt")
    good = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        inner = archive.getinfo("script/data/0")
        begin = inner.header_offset + 64
    path.write_bytes(good[:begin] + bytes([good[begin] ^ 1]) + good[begin + 1 :])
    assert any(finding.error for finding in check_path(path))
    for cut in range(10, len(good), 997):
        path.write_bytes(good[:cut])
        with pytest.raises((FileFormatError, UnsafeFileError)):
            ferry.open(path)
    path.write_bytes(good)
    changed(path, "script/data/1", None)
    with pytest.raises(FileFormatError, match="data/1, are not there"):
        ferry.open(path)


WEIGHT = {
    "path_name": "weight_0",
    "is_param": True,
    "use_pickle": False,
    "tensor_meta": {
        "dtype": 7,
        "sizes": [{"as_int": 2}],
        "requires_grad": True,
        "device": {"type": "cpu"},
        "strides": [{"as_int": 1}],
        "storage_offset": {"as_int": 0},
        "layout": 7,
    },
}


@pytest.mark.parametrize(
    ("config", "what"),
    [
        (b"[", "is no JSON"),
        (b"[" * 100_000, "is no JSON"),
        (b'{"config": 3}', "does not say where"),
        (b'{"config": {"a": 3}}', "does not say where"),
        ({"path_name": "../../secret"}, "are not there"),
        ({"path_name": "weight_99"}, "are not there"),
        ({"tensor_meta": {"sizes": [{"as_int": 1000}]}}, "reaches past its storage"),
        ({"tensor_meta": {"sizes": [{"as_name": "s0"}]}}, "negative size or stride"),
        ({"tensor_meta": {"sizes": 5}}, "sizes and strides do not fit"),
        (
            {"tensor_meta": {"sizes": [{"as_int": 1 << 62}], "strides": [{"as_int": 0}]}},
            "more elements than",
        ),
        ({"tensor_meta": {"storage_offset": {"as_int": -1}}}, "negative offset"),
        ({"tensor_meta": {"dtype": 99}}, "unknown dtype"),
        ({"tensor_meta": {"dtype": []}}, "unknown dtype"),
    ],
)
def test_configs_that_lie(config, what, tmp_path):
    """What the JSON of a program says of its weights is compared with what is there."""
    path = exported_today(tmp_path / "a.pt2")
    if isinstance(config, dict):
        entry = (
            WEIGHT | config | {"tensor_meta": WEIGHT["tensor_meta"] | config.get("tensor_meta", {})}
        )
        config = json.dumps({"config": {"w": entry}}).encode()
    changed(path, "a/data/weights/model_weights_config.json", config)
    with pytest.raises(FileFormatError, match=what):
        ferry.open(path)


def test_what_a_program_pickles_is_listed(tmp_path):
    """A weight that is an object, or sparse, has no bytes of its own there: it is told of, and not passed over."""
    path = exported_today(tmp_path / "a.pt2")
    sparse = WEIGHT | {"tensor_meta": WEIGHT["tensor_meta"] | {"layout": 1}}
    config = {"config": {"object": WEIGHT | {"use_pickle": True}, "sparse": sparse, "w": WEIGHT}}
    changed(path, "a/data/weights/model_weights_config.json", json.dumps(config).encode())
    found = ferry.open(path)
    assert set(found.others) == {"object", "sparse"}
    with pytest.raises(ferry.errors.FormatLimitError, match="object, sparse"):
        ferry.convert_files(path, tmp_path / "a.safetensors")


def test_programs_are_not_written(tmp_path):
    """A target of theirs is refused before anything is made."""
    torch.save({"a": torch.ones(2)}, tmp_path / "a.pt")
    for to in ("torchscript", "torch_export", "pickle"):
        with pytest.raises(ferry.errors.FormatLimitError, match="can be read, not written"):
            ferry.convert_files(tmp_path / "a.pt", tmp_path / "b.out", to=to)
    with pytest.raises(ferry.errors.FormatLimitError, match=r"can be read, not written"):
        ferry.convert_files(tmp_path / "a.pt", tmp_path / "b.pt2")
    assert not (tmp_path / "b.out").exists()
