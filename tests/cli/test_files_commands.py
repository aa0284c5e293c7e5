"""``tensorferry inspect, check, convert, diff``: what they say, to whom, and with which exit code."""

from __future__ import annotations

import json
import os
import pickle
import pty
import re
import subprocess
import sys
import warnings
from collections import OrderedDict
from functools import partial
from pathlib import Path

import gguf
import jsonschema
import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from tests.cli import built
from tests.files import hostile
from tests.support import peak_of

import tensorferry
from tensorferry.cli import convert as convert_command
from tensorferry.cli import inspect_arguments, process
from tensorferry.errors import FormatLimitError, LossyCastError, ResumableError, VerificationError
from tensorferry.files.base.pump import Pump

ROOT = Path(__file__).resolve().parents[2]
SOURCE = str(Path(tensorferry.__file__).parents[1])
SCHEMA = jsonschema.Draft202012Validator(
    json.loads((ROOT / "docs" / "reference" / "files-schema.json").read_text(encoding="utf-8"))
)
HOSTILE = "w\x1b[2J\x9b31m\u202e\r\n\x07"


class Done:
    """What a command did: its exit code, and its two streams."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def data(self):
        """The JSON, which is one object, fits the schema, and has nothing beside it."""
        assert self.err == ""
        data = json.loads(self.out, parse_constant=pytest.fail)
        SCHEMA.validate(data)
        return data


@pytest.fixture
def run(capsys):
    """Runs a command in this process."""

    def do(*arguments):
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            built.command([str(argument) for argument in arguments], prog_name="tensorferry")
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return Done(ended.value.code, out, err)

    return do


class Evil:
    """Runs a command when it is unpickled by others."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


@pytest.fixture(scope="module")
def state():
    """A state dict: two layers, and a head that is tied."""
    generator = torch.Generator().manual_seed(0)
    made = OrderedDict(embed=torch.randn(5, 4, generator=generator).bfloat16())
    for layer in range(3):
        made[f"layers.{layer}.weight"] = torch.randn(4, 4, generator=generator)
    made["head"] = made["embed"]
    return made


@pytest.fixture(scope="module")
def files(tmp_path_factory, state):
    """A folder of files, good and bad."""
    folder = tmp_path_factory.mktemp("files")
    torch.save(state, folder / "model.pt")
    torch.save({"model": state, "epoch": 3, "lr": [0.1, float("nan")]}, folder / "nested.pt")
    untied = {name: value.clone() for name, value in state.items()}
    safetensors.torch.save_file(untied, folder / "model.safetensors")
    other = {**untied, "layers.1.weight": untied["layers.1.weight"].clone()}
    other["layers.1.weight"][2, 3] += 0.5
    safetensors.torch.save_file(other, folder / "other.safetensors", {"note": "yes"})
    other["layers.1.weight"][0, 1] = float("nan")
    safetensors.torch.save_file(other, folder / "nan.safetensors")
    safetensors.torch.save_file(
        {HOSTILE: torch.ones(2)}, folder / "hostile.safetensors", {HOSTILE: HOSTILE}
    )
    torch.save({"a": torch.zeros(2), "evil": Evil(folder / "marker")}, folder / "evil.pt")
    data = (folder / "model.safetensors").read_bytes()
    (folder / "cut.safetensors").write_bytes(data[:-4])
    (folder / "empty.safetensors").touch()
    (folder / "text.txt").write_text("words\n" * 20)
    (folder / "text.pt").write_text("words\n" * 20)
    (folder / "folder").mkdir()
    return folder


def test_the_schema_is_one():
    """files-schema.json is a JSON Schema of the draft that it names, and refuses what no command prints."""
    jsonschema.Draft202012Validator.check_schema(SCHEMA.schema)
    assert not SCHEMA.is_valid({"schema": "tensorferry.files/1", "command": "inspect"})
    assert not SCHEMA.is_valid(
        {"schema": "tensorferry.files/2", "command": "inspect", "files": [], "error": None}
    )


def test_inspect_says_what_a_state_dict_holds(run, files):
    """Format, numbers, ties, and one line for each kind of tensor."""
    done = run("inspect", files / "model.pt")

    assert (done.code, done.err) == (0, "")
    lines = [line.split() for line in done.out.splitlines()]
    assert ["format", "pytorch"] in lines
    assert ["tensors", "5"] in lines
    assert ["parameters", "68", "(float32", "48,", "bfloat16", "20)"] in lines
    assert ["safe", "yes"] in lines
    assert ["tied", "head", "is", "embed"] in lines
    assert ["layers.#.weight", "3x", "float32", "[4,", "4]", "#", "0..2"] in lines
    assert ["embed", "bfloat16", "[5,", "4]"] in lines
    assert "\x1b" not in done.out


def test_inspect_as_data(run, files):
    """The same as JSON, the values beside the tensors as they are."""
    (told,) = run("inspect", files / "nested.pt", "--json").data["files"]

    assert told["format"] == "pytorch"
    assert told["bytes"] == (files / "nested.pt").stat().st_size
    assert told["parameters"] == {"bfloat16": 20, "float32": 48}
    assert told["tied"] == {"model.head": "model.embed"}
    assert told["values"] == {"epoch": 3, "lr.0": 0.1, "lr.1": "nan"}
    assert told["safe"] is True
    assert "torch._utils._rebuild_tensor_v2" in told["asks_for"]
    assert [(each["name"], each["numbers"], each["count"]) for each in told["folded"]][1] == (
        "model.layers.#.weight",
        ["0..2"],
        3,
    )


def test_all_unfolds(run, files, state):
    """With --all each tensor is a line and an entry, with the place of its bytes."""
    path = files / "model.safetensors"
    done = run("inspect", path, "--all")
    (told,) = run("inspect", path, "--all", "--json").data["files"]
    listed = done.out.partition("\n\n")[2]

    for name, tensor in state.items():
        (line,) = [line for line in listed.splitlines() if line.split()[:1] == [name]]
        (entry,) = [each for each in told["all"] if each["name"] == name]
        assert str(list(tensor.shape)) in line
        assert f"at {entry['offset']:,}" in line
        data = path.read_bytes()[entry["offset"] : entry["offset"] + entry["bytes"]]
        assert data == tensor.contiguous().view(torch.uint8).numpy().tobytes()
    assert "#" not in listed


def lines_of(done, word):
    """What stands beside a word of the facts, and below."""
    lines = done.out.partition("\n\n")[0].splitlines()[1:]
    start = next((place for place, line in enumerate(lines) if line.split()[:1] == [word]), None)
    if start is None:
        return []
    more = next(
        (n for n, line in enumerate(lines[start + 1 :]) if not line.startswith(" " * 8)), len(lines)
    )
    return [line[14:] for line in lines[start : start + 1 + more]]


def test_inspect_says_where_the_parameters_are(run, tmp_path):
    """By the parts of the model that have most of them; ties count once; what has no parts has no such line."""
    held = {
        f"model.layers.{n}.{part}.weight": torch.ones(4, 4)
        for n in range(3)
        for part in ("attn", "mlp.up")
    }
    held |= {"model.embed.weight": torch.ones(3, 4), "model.norm": torch.ones(4)}
    held["head.weight"] = held["model.embed.weight"]
    torch.save(held, tmp_path / "a.pt")
    done = run("inspect", tmp_path / "a.pt")
    assert lines_of(done, "modules") == [
        "model.layers.#.attn 48 (43%)", "model.layers.#.mlp 48 (43%)", "model.embed 12 (11%)", "model.norm 4 (4%)",
    ]  # fmt: skip
    (told,) = run("inspect", tmp_path / "a.pt", "--json").data["files"]
    assert told["modules"] == {
        "model.layers.#.attn": 48, "model.layers.#.mlp": 48, "model.embed": 12, "model.norm": 4
    }  # fmt: skip
    assert told["memory"] == 4 * 112
    assert "448 B in memory" in done.out
    for plain in (
        {},
        {"x": torch.ones(1)},
        {"x": torch.ones(1), "y": torch.ones(2)},
        {"a.x": torch.ones(1)},
    ):
        torch.save(plain, tmp_path / "b.pt")
        assert lines_of(run("inspect", tmp_path / "b.pt"), "modules") == []


def test_inspect_says_whether_shards_are_complete(run, tmp_path):
    """Of a folder, and of one file out of it; those that are missing by name."""
    held = {f"layers.{n}": torch.ones(64) for n in range(3)}
    tensorferry.save(held, tmp_path / "model", to="safetensors", shard=300)
    assert lines_of(run("inspect", tmp_path / "model"), "shards") == ["3 of 3, complete"]
    first, second, third = (f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3))
    (tmp_path / "model" / second).unlink()
    done = run("inspect", tmp_path / "model" / first)
    assert lines_of(done, "shards") == [f"2 of 3; missing: {second}"]
    (told,) = run("inspect", tmp_path / "model" / third, "--json").data["files"]
    assert told["shards"] == {"total": 3, "missing": [second]}
    odd = ["a-00000-of-00003", "a-00004-of-00003", "a-00001-of-99999", "a-1-of-3"]
    for name in odd:
        tensorferry.save(held, tmp_path / f"{name}.safetensors")
        (told,) = run("inspect", tmp_path / f"{name}.safetensors", "--json").data["files"]
        assert told["shards"] is None


def test_inspect_shows_what_is_there_of_shards(run, tmp_path):
    """What the others hold, which are missing and what is in them; exit code 2. convert refuses, naming them."""
    held = {f"layers.{n}": torch.ones(64) for n in range(3)} | {"step": 3}
    tensorferry.save(
        held | {"again": held["layers.0"]}, tmp_path / "model", to="safetensors", shard=300
    )
    second = "model-00002-of-00003.safetensors"
    (tmp_path / "model" / second).unlink()
    done = run("inspect", tmp_path / "model", "--values")
    assert done.code == 2
    assert lines_of(done, "shards") == [f"2 of 3; missing: {second}"]
    assert lines_of(done, "tensors") == ["3"]
    assert lines_of(done, "others") == [f"layers.1: its shard {second} is missing"]
    assert f"missing: {second}, with layers.1." in done.err
    told = run("inspect", tmp_path / "model", "--json")
    (file,) = told.data["files"]
    assert (told.code, file["tensors"], file["error"]["type"]) == (2, 3, "FileFormatError")
    assert file["others"] == {"layers.1": f"its shard {second} is missing"}
    refused = run("convert", tmp_path / "model", tmp_path / "out.safetensors")
    assert refused.code == 2
    assert f"missing: {second}, with layers.1." in refused.err
    assert not (tmp_path / "out.safetensors").exists()
    for each in (tmp_path / "model").glob("*.safetensors"):
        each.unlink()
    assert lines_of(run("inspect", tmp_path / "model"), "tensors") == ["0"]


def test_inspect_says_how_it_is_quantised(run, tmp_path):
    """By the names and shapes that GPTQ, AWQ and bitsandbytes store, and by what PyTorch's parts say."""
    ints, halves, whole = (partial(np.zeros, dtype=dtype) for dtype in ("i4", "f2", "f4"))
    gptq, awq, nf4, int8 = {}, {}, {}, {}
    for n, width in enumerate((64, 64, 96)):
        name = f"model.layers.{n}.q"
        gptq |= {f"{name}.qweight": ints((16, width)), f"{name}.qzeros": ints((2, width // 8))}
        gptq |= {f"{name}.scales": halves((2, width)), f"{name}.g_idx": ints(128)}
        awq |= {f"{name}.qweight": ints((128, width // 8)), f"{name}.qzeros": ints((2, width // 8))}
        awq |= {f"{name}.scales": halves((2, width))}
        nf4 |= {f"{name}.weight": np.zeros((32, 1), "u1"), f"{name}.weight.absmax": whole(1)}
        nf4 |= {f"{name}.weight.quant_state.bitsandbytes__nf4": np.zeros(9, "u1")}
        int8 |= {f"{name}.weight": np.zeros((4, 4), "i1"), f"{name}.SCB": whole(4)}
    wanted = {
        "gptq": (gptq, {"GPTQ, 4 bits in groups of 64": 3}),
        "awq": (awq, {"AWQ, 4 bits in groups of 64": 3}),
        "nf4": (nf4, {"bitsandbytes, 4 bits (nf4)": 3}),
        "int8": (int8, {"bitsandbytes, 8 bits": 3}),
        "none": (
            {
                "qweight": ints(3),
                "a.qweight": whole((2, 2)),
                "a.scales": whole((2, 2)),
                "SCB": whole(1),
            },
            {},
        ),
        "empty": ({"a.qweight": ints((0, 2)), "a.scales": whole((0, 2)), "a.g_idx": ints(0)}, {}),
    }
    for name, (held, kinds) in wanted.items():
        tensorferry.save(held, tmp_path / f"{name}.safetensors")
        (told,) = run("inspect", tmp_path / f"{name}.safetensors", "--json").data["files"]
        assert told["quantised"] == kinds, name
    assert lines_of(run("inspect", tmp_path / "gptq.safetensors"), "quantised") == [
        "GPTQ, 4 bits in groups of 64: 3 tensors"
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch calls it deprecated
        torch.save(
            [torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8)] * 2, tmp_path / "q.pt"
        )
    (told,) = run("inspect", tmp_path / "q.pt", "--json").data["files"]
    assert told["quantised"] == {"qint8 per_tensor_affine": 2}


def test_inspect_shows_blocks_as_the_numbers_that_they_are(run, tmp_path):
    """By their type and the shape of the numbers, in GGUF and wherever else their bytes are."""
    writer, kind = gguf.GGUFWriter(str(tmp_path / "a.gguf"), "test"), gguf.GGMLQuantizationType.Q8_0
    for name in ("blk.0.w", "blk.1.w"):
        writer.add_tensor(name, gguf.quantize(np.ones((2, 64), np.float32), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tensorferry.convert_files(tmp_path / "a.gguf", tmp_path / "a.npz")
    for path in (tmp_path / "a.gguf", tmp_path / "a.npz"):
        done = run("inspect", path)
        assert ["blk.#.w", "2x", "gguf.Q8_0", "[2,", "64]", "#", "0..1"] in [
            line.split() for line in done.out.splitlines()
        ]
        assert lines_of(done, "parameters") == ["gguf.Q8_0 256"]
        assert lines_of(done, "quantised") == ["Q8_0: 2 tensors"]
        assert "tensorferry.blocks" not in done.out
        (told,) = run("inspect", path, "--all", "--values", "--json").data["files"]
        assert [(each["dtype"], each["shape"], each["bytes"]) for each in told["all"]] == [
            ("gguf.Q8_0", [2, 64], 136)
        ] * 2
        assert (told["memory"], told["statistics"]) == (272, {"blk.0.w": None, "blk.1.w": None})
        assert "quantised blocks" in run("inspect", path, "--values").out


def test_values_are_summed_up_in_a_line(run, tmp_path):
    """The smallest, largest, mean, zeros, NaN and infinities, and the spread, on a terminal of 80 columns."""
    held = {
        "model.layers.0.self_attn.w": np.linspace(-1, 1, 1001, dtype="f4"),
        "odd": np.array([np.nan, 1, np.inf, 0, 0]),
    }
    held |= {
        "empty": np.zeros((0, 3)),
        "wide": np.array([2**63 - 1, -(2**63)]),
        "lost": np.full(3, np.nan, "f2"),
    }
    tensorferry.save(held, tmp_path / "a.safetensors")
    done = run("inspect", tmp_path / "a.safetensors", "--values")
    head, *lines = done.out.partition("\n\n")[2].splitlines()
    assert head.split() == ["min", "max", "mean", "zeros", "spread"]
    assert [line.split() for line in lines] == [
        ["model.layers.0.self_attn.w", "-1", "1", lines[0].split()[3], "1", "@" * 10],
        ["odd", "0", "1", "0.3333", "2", "@________+", "1", "NaN,", "1", "inf"],
        ["empty", "no", "values"],
        ["wide", "-9.223e+18", "9.223e+18", "0", "0", "@________@"],
        ["lost", "3", "NaN"],
    ]
    (told,) = run("inspect", tmp_path / "a.safetensors", "--values", "--json").data["files"]
    assert (told["statistics"]["wide"]["largest"], told["statistics"]["wide"]["smallest"]) == (
        2**63 - 1,
        -(2**63),
    )
    assert "statistics" not in run("inspect", tmp_path / "a.safetensors", "--json").data["files"][0]


def test_values_of_a_layer_fit_into_80_columns(run, tmp_path):
    """Names as models have them, numbers as weights are."""
    generator = np.random.default_rng(0)
    name = "layers.{}.mlp.up.weight"
    held = {name.format(n): generator.standard_normal(1000, np.float32) / 1e4 for n in range(9, 11)}
    tensorferry.save(held, tmp_path / "a.safetensors")
    listed = (
        run("inspect", tmp_path / "a.safetensors", "--values").out.partition("\n\n")[2].splitlines()
    )
    assert len(listed) == 3
    assert max(map(len, listed)) <= 80


def test_diff_puts_what_differs_most_first_and_finds_new_names(run, tmp_path):
    """Renamed tensors are one line each, and no less a difference."""
    a = {
        "small": np.zeros(3),
        "large": np.zeros(3),
        "nan": np.zeros(3),
        "shape": np.zeros(3),
        "old.w": np.arange(5.0),
    }
    b = {
        "small": np.full(3, 0.1),
        "large": np.full(3, 9.0),
        "nan": np.full(3, np.nan),
        "shape": np.zeros(4),
    }
    tensorferry.save(a | {"gone": np.ones(7)}, tmp_path / "a.npz")
    tensorferry.save(b | {"new.w": np.arange(5.0), "come": np.ones(8)}, tmp_path / "b.npz")
    done = run("diff", tmp_path / "a.npz", tmp_path / "b.npz")
    assert done.code == 1
    assert [line.split()[:3] for line in done.out.splitlines()[:-1]] == [
        ["renamed", "old.w", "->"],
        ["only", "in", "A"],
        ["only", "in", "B"],
        ["shape", "shape", "float64"],
        ["values", "nan", "float64"],
        ["values", "large", "float64"],
        ["values", "small", "float64"],
    ]
    data = run("diff", tmp_path / "a.npz", tmp_path / "b.npz", "--json").data
    assert data["renamed"] == [{"a": "old.w", "b": "new.w"}]
    assert (data["only_a"], data["only_b"], data["equal"]) == (["gone"], ["come"], False)


def test_long_facts_are_shortened_and_counted(run, tmp_path):
    """Much metadata is cut, and says so; --all has it whole."""
    path = tmp_path / "a.safetensors"
    metadata = {f"key{n}": "v" * 1000 for n in range(20)}
    safetensors.torch.save_file({"x": torch.ones(1)}, path, metadata)

    short, whole = run("inspect", path).out, run("inspect", path, "--all").out

    assert len(short) < 3000
    assert "and 15 more (--all)" in short
    assert all(f"{key}: {value}" in whole for key, value in metadata.items())


@pytest.mark.parametrize("command", ["inspect", "check"])
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_pickle_that_asks_for_more_is_refused_and_not_run(run, files, command, options):
    """Exit code 3, with what it asks for; the other files are still told, and nothing is run."""
    done = run(command, files / "evil.pt", files / "model.pt", *options)

    assert done.code == 3
    assert "posix.system" in done.out + done.err
    if options:
        refused, fine = done.data["files"]
        assert refused["error"]["type"] == "UnsafeFileError"
        assert "posix.system" in refused.get("asks_for", ["posix.system"])
        assert fine["error"] is None
    else:
        assert "model.pt" in done.out
        assert "Hint:" in done.err
    assert not (files / "marker").exists()


def test_an_allowed_class_is_a_container(run, tmp_path):
    """With --allow the class is read as a container: inspected, checked, compared and converted."""
    path, target = tmp_path / "a.pt", tmp_path / "b.pt"
    torch.save({"x": torch.ones(2), "config": _Config()}, path)

    for command in (
        ["inspect", path],
        ["check", path, "--values"],
        ["diff", path, path],
        ["convert", path, target],
    ):
        assert run(*command).code == 3
        name = f"{_Config.__module__}._Config"
        done = run(*command, "--allow", name)
        told = f"config ({name})" in done.err if command[0] == "convert" else not done.err
        assert (done.code, told) == (0, True)


def test_inspect_says_what_was_allowed(run, tmp_path):
    """A file is not called safe because somebody allowed what it asks for; one that needs no permission is."""
    path, plain = tmp_path / "a.pt", tmp_path / "b.pt"
    torch.save({"x": torch.ones(2), "config": _Config()}, path)
    torch.save({"x": torch.ones(2)}, plain)
    name = f"{_Config.__module__}._Config"

    done = run("inspect", path, "--allow", name)
    assert f"allowed     {name}: read as plain values, not imported (--allow)" in done.out
    assert not [line for line in done.out.splitlines() if line.split()[:1] == ["safe"]]
    (told,) = run("inspect", path, "--allow", name, "--json").data["files"]
    assert (told["safe"], told["allowed"], told["refuses"]) == (False, [name], [])
    (told,) = run("inspect", plain, "--allow", name, "--json").data["files"]
    assert (told["safe"], told["allowed"]) == (True, [])


def test_roundtrip_of_an_allowed_class(run, tmp_path):
    """What the hint of a refusal says can be typed."""
    path = tmp_path / "a.pt"
    torch.save({"x": torch.ones(2), "config": _Config()}, path)
    done = run("roundtrip", path)
    assert (done.code, done.out) == (3, "")
    pasted = re.search(r"Hint: (--allow \S+),", done.err)[1]
    assert run("roundtrip", path, *pasted.split()).code == 0


def test_objects_of_a_pickle_are_listed(run, tmp_path):
    """What is kept as text is told with what it was; a name with control characters is told without them."""
    path = tmp_path / "a.pt"
    torch.save({"x": torch.ones(2), "out": Path("/runs/1"), "kind": float}, path)
    assert (
        "objects     out: pathlib.PosixPath\n              kind: the type float\n"
        in run("inspect", path).out
    )
    (told,) = run("inspect", path, "--json").data["files"]
    assert told["values"] == {"out": "/runs/1", "kind": "float"}
    assert told["objects"] == {"out": "pathlib.PosixPath", "kind": "the type float"}
    done = run("convert", path, tmp_path / "b.safetensors")
    assert (done.code, "out (pathlib.PosixPath), kind (the type float)" in done.err) == (0, True)
    assert run("diff", path, tmp_path / "b.safetensors").code == 0
    body = hostile.PROTO4 + hostile.text("evil") + hostile.text("a\x1b[2J\n\u202e") + b"\x93."
    (tmp_path / "c.pkl").write_bytes(body)
    done = run("inspect", tmp_path / "c.pkl")
    assert done.code == 0
    assert r"evil.a\x1b[2J\n\u202e" in done.out
    assert not any(each in done.out for each in ("\x1b[2J", "\u202e"))


@pytest.mark.parametrize(
    "name", ["a", "a.pt", "a.npy", "a.npz", "a.safetensors", "a.h5", "a.txt", "a.pkl"]
)
@pytest.mark.parametrize("command", ["inspect", "check"])
def test_an_empty_file_is_called_empty(run, tmp_path, command, name):
    (tmp_path / name).touch()
    done = run(command, tmp_path / name)
    assert (done.code, done.out) == (2, "")
    assert f"{name} is empty" in done.err


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("name", ["a.pkl", "a.pickle", "a.pt", "a.bin"])
def test_a_bare_pickle_is_looked_into(run, tmp_path, protocol, name):
    """Whatever its protocol and its suffix; those of before 2 have no mark of their own, and show by their suffix."""
    path = tmp_path / name
    for value in ({"x": np.ones(2)}, [1, 2], (1.5, None), OrderedDict(a=1), [], {"a"}):
        path.write_bytes(pickle.dumps(value, protocol=protocol))
        done = run("inspect", path, "--json")
        assert (done.code, done.data["files"][0]["format"]) == (0, "pickle")
        assert done.data["files"][0]["tensors"] == int(isinstance(value, dict) and "x" in value)


def test_an_allowed_class_is_one_in_every_shard(run, tmp_path):
    """With --allow each shard may hold it, also for check; another class is still told, in whatever shard it is."""
    for number in (1, 2):
        state = {f"x{number}": torch.ones(2), f"config{number}": _Config()}
        torch.save(state, tmp_path / f"pytorch_model-0000{number}-of-00002.bin")
    where = {f"x{number}": f"pytorch_model-0000{number}-of-00002.bin" for number in (1, 2)}
    (tmp_path / "pytorch_model.bin.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": where})
    )

    for command in ("inspect", "check"):
        done = run(command, tmp_path, "--allow", f"{_Config.__module__}._Config")
        assert (done.code, done.err) == (0, "")
        other = run(command, tmp_path, "--allow", "some.Other")
        assert other.code == 3
        assert "_Config" in other.out + other.err


@pytest.mark.parametrize("options", [(), ("--json",)])
@pytest.mark.parametrize("named", ["folder", "index"])
@pytest.mark.parametrize("kind", ["leads out", "asks"])
def test_a_hostile_folder_of_shards_is_refused(run, tmp_path, options, named, kind):
    """Exit code 3 with its format, as for a file, whether it is the index that is hostile or a shard."""
    stem = "model.safetensors" if kind == "leads out" else "pytorch_model.bin"
    shard = "../x.safetensors" if kind == "leads out" else stem
    (tmp_path / f"{stem}.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": {"a": shard}})
    )
    if kind == "asks":
        torch.save({"a": torch.zeros(2), "evil": Evil(tmp_path / "marker")}, tmp_path / stem)

    done = run(
        "inspect", tmp_path if named == "folder" else tmp_path / f"{stem}.index.json", *options
    )

    assert done.code == 3
    assert ("safetensors" if kind == "leads out" else "pytorch") in done.out
    assert ("posix.system" in done.out) == (kind == "asks")
    if options:
        (refused,) = done.data["files"]
        assert (refused["error"]["type"], refused["safe"]) == ("UnsafeFileError", False)
    else:
        assert "UnsafeFileError" in done.err
    assert not (tmp_path / "marker").exists()


class _Config:
    def __init__(self):
        self.width = 3


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("nothing", 2, "No such file"),
        ("folder", 2, "folder"),
        ("text.txt", 2, "no format"),
        ("text.pt", 2, "no format"),
        ("empty.safetensors", 2, "is empty"),
        ("cut.safetensors", 2, "cut.safetensors"),
    ],
)
@pytest.mark.parametrize("command", ["inspect", "diff", "convert"])
def test_what_cannot_be_read(run, files, tmp_path, command, name, code, words):
    """Exit code 2, the reason on stderr, nothing on stdout; with --json in the JSON; nothing is written."""
    target = tmp_path / "out.npz"
    more = {"inspect": [], "diff": [files / "model.pt"], "convert": [target]}[command]

    done = run(command, files / name, *more)

    assert (done.code, done.out) == (code, "")
    assert words in done.err
    data = run(command, files / name, *more, "--json")
    assert data.code == code
    error = data.data["error"] or data.data["files"][0]["error"]
    assert words in error["message"]
    assert list(tmp_path.iterdir()) == []


def test_check_tells_good_from_bad(run, files):
    """Exit code 0 for a good file, 1 for a bad one with the tensor and the byte, the worst for several."""
    assert run("check", files / "model.pt", files / "model.safetensors").code == 0
    done = run("check", files / "model.safetensors", files / "cut.safetensors", "--json")

    assert done.code == 1
    good, bad = done.data["files"]
    assert (good["ok"], good["findings"]) == (True, [])
    assert not bad["ok"]
    assert all(each["tensor"] and each["offset"] for each in bad["findings"])
    text = run("check", files / "cut.safetensors")
    assert text.code == 1
    for each in bad["findings"]:
        assert (
            f"cut.safetensors:{each['offset']}: error: {each['tensor']}: {each['message']}"
            in text.out
        )
    assert "failed" in text.out


def test_check_values(run, files):
    """NaN is looked for with --values only, and then exit code 1; what is all zero is a note, and exit code 0."""
    assert run("check", files / "nan.safetensors").code == 0
    done = run("check", files / "nan.safetensors", "--values")
    assert done.code == 1
    assert "layers.1.weight: 1 of 16 is NaN, the first at [0, 1]" in done.out
    assert run("check", files / "model.safetensors", "--values").code == 0


@pytest.mark.parametrize(
    ("name", "code"),
    [("nothing", 2), ("folder", 2), ("text.txt", 2), ("empty.safetensors", 2), ("evil.pt", 3)],
)
def test_check_of_what_is_no_model(run, files, name, code):
    """What cannot be checked is exit code 2, what is of a format and broken 1, what is unsafe 3."""
    assert run("check", files / name).code == code
    assert run("check", files / name, "--json").code == code


def test_diff_of_two_formats(run, files):
    """The same tensors in two formats are equal, and said to be."""
    done = run("diff", files / "model.pt", files / "model.safetensors")

    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("equal: 5 tensors in common")


def test_diff_tells_what_differs(run, files):
    """Exit code 1, with the largest |a-b| and its place; a tolerance covers it, but not the metadata."""
    a, b = files / "model.safetensors", files / "other.safetensors"
    done = run("diff", a, b)

    assert done.code == 1
    assert "1 of 16 differ, largest |a-b| 0.5 at [2, 3]" in done.out
    assert "note" in done.out
    assert run("diff", a, b, "--tol", "0.5").code == 1
    assert run("diff", a, b, "--tol", "0.5", "--tensors-only").code == 0
    assert run("diff", a, b, "--tol", "0.4", "--tensors-only").code == 1
    data = run("diff", a, b, "--tol", "0.5", "--json").data
    assert data["tolerance"] == 0.5
    (found,) = data["differing"]
    assert (found["name"], found["largest"], found["position"]) == ("layers.1.weight", 0.5, [2, 3])
    assert found["accepted"]
    assert data["metadata"] == [{"place": "note", "a": None, "b": "'yes'"}]


def test_diff_says_within_what_it_is_equal(run, files):
    """With a tolerance: equal within which, or equal to the last bit; what differs beyond it is counted apart."""
    a, b = files / "model.safetensors", files / "other.safetensors"
    assert run("diff", a, b, "--tol", "0.5", "--tensors-only").out.splitlines()[-1] == (
        "equal within atol=0.5, rtol=0: 5 tensors in common, accepted: 1"
    )
    assert (
        run("diff", a, a, "--tol", "0.5").out
        == "equal: 5 tensors in common, all equal, bit for bit\n"
    )
    done = run("diff", a, b, "--tol", "0.5")
    assert (done.code, done.out.splitlines()[-1]) == (
        1,
        "different: 5 tensors in common, within atol=0.5, rtol=0: 1; metadata: 1",
    )
    assert run("diff", a, b, "--tol", "0.4", "--tensors-only").out.endswith(
        "in common, differing: 1\n"
    )


def test_diff_of_two_dtypes_says_that_values_are_equal(run, tmp_path):
    for name, dtype in (("a", "float32"), ("b", "float64")):
        np.save(tmp_path / f"{name}.npy", np.ones(3, dtype))
    done = run("diff", tmp_path / "a.npy", tmp_path / "b.npy", "--any-dtype")
    assert (done.code, done.out.splitlines()[-1]) == (
        0,
        "equal in value: 1 tensor in common, accepted: 1",
    )


def test_diff_of_infinities_is_json(run, tmp_path):
    """A distance that JSON has no number for is a string."""
    for name, value in (("a", np.inf), ("b", 0.0)):
        np.save(tmp_path / f"{name}.npy", np.array([value]))

    (found,) = run("diff", tmp_path / "a.npy", tmp_path / "b.npy", "--json").data["differing"]

    assert found["largest"] == "inf"


def test_convert_and_back(run, files, tmp_path):
    """There and back gives the same, and the report says what was written."""
    there, back = tmp_path / "a.safetensors", tmp_path / "b.pt"
    done = run("convert", files / "nested.pt", there, "--verify", "--json")

    report = done.data["report"]
    assert done.code == 0
    assert (report["written"], report["verified"], report["tensors"]) == ([str(there)], True, 5)
    text = run("convert", there, back)
    assert (text.code, text.err) == (0, "")
    assert str(back) in text.out
    assert run("diff", files / "nested.pt", back).code == 0
    assert torch.load(back, weights_only=True)["epoch"] == 3


def test_a_part_is_converted_with_metadata(run, files, tmp_path):
    """Nothing of the rest, and the strings that were given; a container's name leads to its pattern."""
    target = tmp_path / "a.safetensors"
    done = run("convert", files / "nested.pt", target, "--include", "model")
    assert (done.code, "Hint: --include 'model.*', for all that is in it" in done.err) == (2, True)
    options = [
        "--include",
        "model.*",
        "--rename",
        r"s/^model\.//",
        "--metadata",
        "format=tf",
        "--metadata",
        "note=a=b",
    ]
    assert run("convert", files / "nested.pt", target, *options).code == 0
    with safetensors.safe_open(target, "np") as file:
        # The rest are the names of tied tensors.
        assert {key: file.metadata()[key] for key in ("format", "note")} == {
            "format": "tf",
            "note": "a=b",
        }
        assert "tensorferry.tree" not in file.metadata()
    assert "metadata: 1" in run("diff", files / "model.pt", target).out


def test_a_format_that_readers_refuse_is_told(run, tmp_path):
    """On stderr, as every warning."""
    safetensors.torch.save_file(
        {"w": torch.ones(2)}, tmp_path / "in.safetensors", {"format": "odd"}
    )
    done = run("convert", tmp_path / "in.safetensors", tmp_path / "out.safetensors")
    assert done.code == 0
    assert "careful: The metadata 'format' was 'odd'" in done.err
    assert run("roundtrip", tmp_path / "in.safetensors").code == 0


def test_dry_run_writes_nothing(run, files, tmp_path):
    """--dry-run says what would be written, refuses what has to be refused, and leaves no file."""
    done = run("convert", files / "model.pt", tmp_path / "a.safetensors", "--dry-run")
    assert done.code == 0
    assert "nothing written" in done.out
    assert run("convert", files / "nested.pt", tmp_path / "a.npy", "--dry-run").code == 2
    assert list(tmp_path.iterdir()) == []


def test_what_exists_is_kept_unless_told(run, files, tmp_path):
    """An output that exists is exit code 2 and stays as it was; --overwrite replaces it."""
    target = tmp_path / "a.safetensors"
    target.write_bytes(b"precious")

    assert run("convert", files / "model.pt", target).code == 2
    assert target.read_bytes() == b"precious"
    assert run("convert", files / "model.pt", target, "--overwrite").code == 0
    assert run("diff", files / "model.pt", target).code == 0


def test_an_output_that_does_not_verify_is_not_published(run, files, tmp_path, monkeypatch):
    """A writer that spoils a byte is exit code 4 with --verify, and there is no output."""
    honest = Pump.copy

    def spoiled(self, stored, descriptor, *, crc=None):
        result = honest(self, stored, descriptor, crc=crc)
        os.pwrite(descriptor, b"\x55", os.lseek(descriptor, 0, os.SEEK_CUR) - 1)
        return result

    monkeypatch.setattr(Pump, "copy", spoiled)
    done = run("convert", files / "model.safetensors", tmp_path / "a.safetensors", "--verify")

    assert (done.code, done.out) == (4, "")
    assert "VerificationError" in done.err
    assert not (tmp_path / "a.safetensors").exists()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (VerificationError("v"), 4),
        (ResumableError("r", "--resume"), 5),
        (FormatLimitError("f", "--exclude"), 2),
        (LossyCastError("l"), 2),
        (PermissionError(13, "Permission denied", "/x/a"), 2),
        (OSError(28, "No space left on device", "/x/a"), 2),
        (KeyboardInterrupt(), 130),
    ],
)
def test_each_error_of_a_conversion_has_its_exit_code(
    run, files, tmp_path, monkeypatch, error, code
):
    """The table in docs/reference/files.md holds, with the message on stderr and in the JSON."""

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(convert_command, "convert_files", fail)
    command = ["convert", files / "model.pt", tmp_path / "a.npz"]
    done = run(*command)

    assert (done.code, done.out) == (code, "")
    assert type(error).__name__ in done.err or code == 130
    if code != 130:
        assert run(*command, "--json").data["error"]["type"] == type(error).__name__


@pytest.mark.parametrize("command", ["inspect", "check", "diff"])
def test_ctrl_c(run, files, monkeypatch, command):
    """Ctrl-C is exit code 130 in each command, without a traceback."""

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    for place in ("inspect.open_path", "diff.open_path", "check.check_path"):
        monkeypatch.setattr(f"tensorferry.cli.{place}", interrupt)
    done = run(command, *[files / "model.pt"] * (2 if command == "diff" else 1))

    assert (done.code, done.out) == (130, "")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], {}),
        (["--to", "npz"], {"to": "npz"}),
        (["--dtype", "bf16", "--dtype", "*.w=f32"], {"dtype": ["bf16", "*.w=f32"]}),
        (["--overflow", "saturate"], {"overflow": "saturate"}),
        (["--include", "a*", "--include", "b"], {"include": ["a*", "b"]}),
        (["--exclude", "a*"], {"exclude": ["a*"]}),
        (["--rename", "s/a/b/"], {"rename": ["s/a/b/"]}),
        (["--metadata", "format=tf", "--metadata", "note=a=b "], {"metadata": {"format": "tf", "note": "a=b "}}),
        (["--shard", "5GB"], {"shard": "5GB"}),
        (["--verify", "--dry-run", "--resume", "--overwrite", "--tensors-only"],
         dict.fromkeys(["verify", "dry_run", "resume", "overwrite", "tensors_only"], True)),
        (["--ties", "alias"], {"ties": "alias"}),
        (["--dequantize"], {"dequantize": True}),
        (["--allow", "a.B"], {"allow": ["a.B"]}),
        (["--jobs", "4", "--engine", "processes"], {"jobs": 4, "engine": "processes"}),
        (["--part", "2/16"], {"part": (2, 16)}),
    ],
)  # fmt: skip
def test_options_reach_the_conversion(run, monkeypatch, options, expected):
    """Each option is handed on as it was typed, the others with their defaults; several inputs and one output."""
    plain = {
        "storage_options": {},
        "to": None, "dtype": None, "overflow": "raise", "include": (), "exclude": (), "rename": (), "metadata": {},
        "shard": None, "tensors_only": False, "ties": "copy", "dequantize": False, "nulls": None, "ragged": None,
        "pad": None, "allow": (), "verify": False, "dry_run": False, "resume": False, "overwrite": False, "jobs": 1,
        "engine": "threads", "part": None, "progress": None,
    }  # fmt: skip
    told = {}

    def note(sources, target, **keywords):
        told.update(sources=sources, target=target, keywords=keywords)
        raise FormatLimitError("enough")

    monkeypatch.setattr(convert_command, "convert_files", note)
    run("convert", "a", "b", "out", *options)

    assert (told["sources"], told["target"]) == ([Path("a"), Path("b")], Path("out"))
    assert told["keywords"] == {**plain, **expected}


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect"],
        ["inspect", "--no-such", "a"],
        ["check"],
        ["diff", "a"],
        ["diff", "a", "b", "c"],
        ["diff", "a", "b", "--tol", "-1"],
        ["diff", "a", "b", "--tol", "nan"],
        ["diff", "a", "b", "--tol", "x"],
        ["convert", "a"],
        ["convert", "a", "b", "--overflow", "wrap"],
        ["convert", "a", "b", "--engine", "slurm"],
        *(["convert", "a", "b", "--metadata", word] for word in ("format", "=pt", "")),
        ["convert", "a", "b", "--metadata", "k=1", "--metadata", "k=2"],
        ["convert", "a", "b", "--ties", "both"],
        ["convert", "a", "b", "--jobs", "0"],
        *(
            ["convert", "a", "b", "--part", part]
            for part in ("0/2", "3/2", "1", "x/y", "1/", "-1/2", "1/2/3")
        ),
        ["convert", "a", "b", "--part", "1/" + "9" * 5000],
        ["convert", "a", "b.safetensors", "--shard", "20"],
        ["convert", "a", "b.pt", "--shard", "20", "--json"],
    ],
)
def test_wrong_usage(run, arguments):
    """Exit code 2, with how it is meant on stderr."""
    done = run(*arguments)

    assert (done.code, done.out) == (2, "")
    assert "Usage" in done.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--to", "floppy"], "floppy"),
        (["--dtype", "float33"], "float33"),
        (["--shard", "many"], "many"),
        (["--shard", "9" * 400 + "GB"], "is not a size"),
        (["--shard", "9" * 5000], "is not a size"),
        (["--rename", "nonsense"], "nonsense"),
        (["--rename", "s/(a){99999999999}/b/"], "99999999999"),
        (["--include", "nothing*"], "nothing*"),
    ],
)
def test_words_that_mean_nothing(run, files, tmp_path, options, words):
    """What only the conversion can tell to be wrong is exit code 2 too, before anything is written."""
    target = [] if options[0] == "--to" else ["--to", "safetensors"]
    done = run("convert", files / "model.pt", tmp_path / "a", *target, *options)

    assert (done.code, done.out) == (2, "")
    assert words in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_no_file_gives_orders_to_a_terminal(run, files, tmp_path, options):
    """Names and metadata with control characters are written out, on stdout, on stderr and in JSON, and not lost."""
    path, target = files / "hostile.safetensors", tmp_path / f"{HOSTILE}.npz"
    commands = [
        ["inspect", path],
        ["inspect", path, "--all"],
        ["check", path, "--values"],
        ["diff", path, files / "model.pt"],
        ["convert", path, target],
        ["convert", path, target],
        ["convert", path, tmp_path / "a.npz", "--exclude", HOSTILE + "?"],
        ["inspect", tmp_path / HOSTILE],
        ["check", target, tmp_path / HOSTILE],
        ["diff", target, path],
    ]
    for command in commands:
        done = run(*command, *options)
        text = done.out + done.err
        assert not set(text) & set(HOSTILE) - set("w[2J31m\n"), command
        assert all(line == line.rstrip("\r") for line in text.split("\n"))
        if options and command[0] == "inspect" and command[1] == path:
            assert done.data["files"][0]["metadata"] == {HOSTILE: HOSTILE}


def test_names_of_files_that_are_no_text(run, files, tmp_path):
    """A path of any bytes is read, converted and told."""
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe.safetensors"))
    path.write_bytes((files / "model.safetensors").read_bytes())

    assert "\\udcff" in run("inspect", path).out
    assert run("inspect", path, "--json").data["files"][0]["path"] == str(path)
    assert run("convert", path, tmp_path / "b.pt").code == 0
    assert run("diff", path, tmp_path / "b.pt").code == 0
    assert run("check", path).code == 0


@pytest.mark.parametrize(
    ("words", "quick"),
    [
        (["inspect", "a"], True),
        (["inspect", "--all", "a", "--json", "b"], True),
        (["inspect", "a", "--values"], True),
        (["inspect", "a", "--allow", "x.Y", "--allow", "z.W", ""], True),
        (["inspect"], False),
        (["inspect", "--all"], False),
        (["inspect", "-h"], False),
        (["inspect", "a", "--help"], False),
        (["inspect", "a", "--allow"], False),
        (["inspect", "a", "--allow", "--all"], False),
        (["inspect", "--allow=x", "a"], False),
        (["inspect", "--", "--all"], False),
        (["inspect", "a", "--no-such"], False),
        (["inspect", "a", "-"], False),
        (["check", "a"], False),
        (["--version", "inspect", "a"], False),
        ([], False),
    ],
)
def test_a_plain_inspect_is_read_as_typer_reads_it(run, monkeypatch, words, quick):
    """What is read without Typer, whose start takes longer, comes out as with it; the rest is left to it."""
    told = {}

    def note(command, sources, **keywords):
        assert (command, sources) == ("inspect", keywords["paths"])
        told.update(keywords)
        return 0

    monkeypatch.setattr(process, "run", note)
    found = inspect_arguments(words)

    assert (found is not None) is quick
    if quick:
        assert run(*words).code == 0
        assert {**told, "allow": list(told["allow"])} == found


# --- as processes of their own
# ---------------------------------------------------------------------


@pytest.fixture
def start():
    """Starts the command in a process of its own, from Bash if it is one string."""

    def do(*arguments, shell=None, **keywords):
        environment = {
            key: value for key, value in os.environ.items() if key not in {"COLUMNS", "FORCE_COLOR"}
        }
        environment |= {"PYTHONPATH": SOURCE, "TERM": "xterm-256color", "NO_COLOR": ""}
        environment |= keywords.pop("env", {})
        command = [sys.executable, "-m", "tensorferry", *map(str, arguments)]
        if shell is not None:
            command = [
                "bash",
                "-o",
                "pipefail",
                "-c",
                shell.format(f"{sys.executable} -m tensorferry"),
            ]
        return subprocess.run(command, env=environment, timeout=120, check=False, **keywords)

    return do


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("{} inspect --all big.safetensors | head -1", 0),
        ("{} inspect --all --json big.safetensors | head -1", 0),
        ("{} diff big.safetensors other.safetensors | head -1", 1),
        ("{} inspect big.safetensors > /dev/full", 2),
        ("{} inspect big.safetensors --json > /dev/full", 2),
        ("{} diff big.safetensors big.safetensors >&-", 0),
    ],
)
def test_streams_that_end_early(start, tmp_path, command, code):
    """A reader that leaves early is no error; a disk that is full is, in one line."""
    names = {f"n{number}.x{number * 7}": np.zeros(1, np.int8) for number in range(3000)}
    safetensors.numpy.save_file(names, tmp_path / "big.safetensors")
    safetensors.numpy.save_file(
        {f"{name}y": array for name, array in names.items()}, tmp_path / "other.safetensors"
    )

    done = start(shell=command, cwd=tmp_path, capture_output=True)

    assert done.returncode == code, done.stderr
    assert b"Traceback" not in done.stderr
    assert b"Exception" not in done.stderr
    assert (b"No space left" in done.stderr) is ("full" in command)


def _on_a_terminal(start, columns, *arguments, env=None):
    """What a command writes to a terminal of that width, stdout and stderr together."""
    import fcntl
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    done = start(*arguments, stdin=theirs, stdout=theirs, stderr=theirs, env=env or {})
    os.close(theirs)
    text = b""
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:
            break
        if not part:
            break
        text += part
    os.close(ours)
    return done.returncode, text.decode()


@pytest.mark.parametrize("columns", [1, 20, 100])
def test_a_terminal_of_any_width(start, files, columns):
    """Whatever the width, nothing is cut: names are whole, and can be copied."""
    code, text = _on_a_terminal(start, columns, "inspect", files / "model.pt")

    assert code == 0
    assert "layers.#.weight" in text
    assert "\x1b[1m" in text


def test_progress_is_for_terminals(start, files, tmp_path):
    """A bar with rate and time is drawn on a terminal, and gone in the end; NO_COLOR keeps colours away."""
    code, text = _on_a_terminal(
        start, 100, "convert", files / "model.pt", tmp_path / "a.npz", env={"NO_COLOR": "1"}
    )

    assert code == 0
    assert "converting" in text
    assert " of " in text, "sizes as everywhere else"
    assert "bytes" not in text
    assert "\x1b[3" not in text
    done = start("convert", files / "model.pt", tmp_path / "b.safetensors", capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def test_no_framework_is_imported(start, files, tmp_path):
    """The four commands on first-class formats import neither torch nor TensorFlow, nor JAX, nor safetensors."""
    code = (
        "import sys\n"
        "from tensorferry.cli.app import app\n"
        "for line in sys.stdin.read().splitlines():\n"
        "    try:\n"
        "        app(line.split('\\t'), prog_name='tensorferry')\n"
        "    except SystemExit as ended:\n"
        "        assert ended.code == 0, line\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(loaded & {'torch', 'tensorflow', 'jax', 'safetensors', 'h5py', 'ssl'}))\n"
    )
    model, other = files / "nested.pt", tmp_path / "a.safetensors"
    lines = [
        ["inspect", model],
        ["convert", model, other],
        ["check", other, "--values"],
        ["diff", model, other],
    ]
    text = "\n".join("\t".join(map(str, line)) for line in lines)
    environment = {**os.environ, "PYTHONPATH": SOURCE}

    done = subprocess.run(
        [sys.executable, "-c", code],
        input=text,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        check=True,
    )

    assert done.stdout.splitlines()[-1] == "[]"


_COUNTED = """\
import sys, tracemalloc
from tensorferry.cli import main
sys.argv[0] = "tensorferry"
tracemalloc.start()
try:
    main()
finally:
    print(tracemalloc.get_traced_memory()[1], file=sys.stderr)
"""


@pytest.mark.parametrize("count", [20_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_inspect_of_many_tensors_is_small(tmp_path, count):
    """It takes two thirds of what the header's JSON alone takes; the process and the time, the benchmarks tell."""
    path = tmp_path / "big.safetensors"
    entries = {}
    for number in range(count):
        name = f"model.layers.{number // 1000}.mlp.experts.{number % 1000 // 4}.{'abcd'[number % 4]}_proj.weight"
        entries[name] = {
            "dtype": "BF16",
            "shape": [2, 4],
            "data_offsets": [16 * number, 16 * number + 16],
        }
    header = json.dumps(entries, separators=(",", ":")).encode()
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + 16 * count)
    done = subprocess.run(
        [sys.executable, "-c", _COUNTED, "inspect", str(path)],
        env={**os.environ, "PYTHONPATH": SOURCE},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )

    assert f"{count // 4:,}x" in done.stdout
    assert int(done.stderr) < peak_of(lambda: json.loads(header))[0] * 2 / 3


@pytest.mark.parametrize("command", ["check", "diff", "convert", "roundtrip"])
def test_a_file_that_may_not_be_read(run, files, monkeypatch, command):
    """It is an error of the command, with JSON and the other files, not wrong usage."""
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    path = files / "model.safetensors"
    others = {
        "check": [files / "model.pt"],
        "diff": [files / "model.pt"],
        "convert": [files / "new.npz", "--dry-run"],
    }
    done = run(command, path, *others.get(command, []), "--json")
    assert done.data["command"] == command


def test_a_part_says_that_the_others_are_not_done(run, files, tmp_path):
    """The folder does not exist before the last part; then nothing is announced."""
    words = [
        "convert",
        files / "model.pt",
        tmp_path / "shards",
        "--to",
        "safetensors",
        "--shard",
        "100",
    ]
    first, last = (run(*words, "--part", part).out for part in ("1/2", "2/2"))
    assert ", part 1 of 2, " in first
    assert first.endswith("the output appears when all parts are done\n")
    assert ", part 2 of 2, " in last
    assert last.endswith(" s\n")


def test_files_with_no_name_in_common(run, tmp_path):
    """Nothing is called equal."""
    for name in "ab":
        np.savez(tmp_path / f"{name}.npz", **{name: np.full(2, ord(name))})
    done = run("diff", tmp_path / "a.npz", tmp_path / "b.npz")
    assert (done.code, done.out.splitlines()[-1]) == (
        1,
        "different: 0 tensors in common; only in A: 1; only in B: 1",
    )


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--to", "safetensor"], "Did you mean 'safetensors'?"),
        (["--to", "torchscript"], "out.safetensors, or another format"),
        (["--part", "3/2"], "'3/2' is not a part I/N such as 3/16, with I from 1 to N"),
        (
            ["--engine", "threds"],
            "'threds' is not one of threads, processes, dask, ray. Did you mean 'threads'?",
        ),
    ],
)
def test_a_wrong_word_names_the_right_ones(run, files, tmp_path, monkeypatch, words, text):
    """On a terminal of any width."""
    monkeypatch.setenv("COLUMNS", "400")
    done = run("convert", files / "model.pt", tmp_path / "out.npz", *words)
    assert (done.code, done.out) == (2, "")
    assert text in done.err
