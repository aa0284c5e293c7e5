"""``tensorferry map``, ``convert --map`` and ``diff --map``, as a person types them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.maps.support import CONFIG, LLAMA, llama

import tensorferry as ferry

for needed in ("typer", "rich"):
    pytest.importorskip(needed, reason=f"the command line needs {needed}, which is not installed")


@pytest.fixture
def place(tmp_path):
    """A folder with a model, its table, and what that makes."""
    source, expected = llama()
    (tmp_path / "model").mkdir()
    ferry.save(source, tmp_path / "model" / "model.safetensors")
    (tmp_path / "model" / "config.json").write_text(json.dumps(CONFIG), "utf-8")
    ferry.save(expected, tmp_path / "target.npz")
    (tmp_path / "llama.toml").write_text(LLAMA, "utf-8")
    (tmp_path / "wrong.toml").write_text(LLAMA.replace("drop", "#"), "utf-8")
    return tmp_path


def test_check(forked_cli, place):
    done = forked_cli(
        "map", "check", place / "llama.toml", place / "model", "--against", place / "target.npz"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{place / 'llama.toml'}: ok\n", "")


def test_check_names_what_is_wrong(forked_cli, place):
    done = forked_cli("map", "check", place / "wrong.toml", place / "model")
    assert done.returncode == 1
    assert "unused" in done.stdout
    assert "model.layers.0.self_attn.rotary.inv_freq" in done.stdout
    assert "failed, 3 findings" in done.stdout


def test_check_as_json(forked_cli, place):
    done = forked_cli("map", "check", place / "wrong.toml", place / "model", "--json")
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert [each["kind"] for each in found["findings"]] == ["unused"] * 3


def test_explain(forked_cli, place):
    done = forked_cli("map", "explain", place / "llama.toml", place / "model")
    assert done.returncode == 0
    assert done.stdout.startswith("14 tensors, ")
    assert "Dropped: model.layers.0.self_attn.rotary.inv_freq" in " ".join(done.stdout.split())


def test_invert(forked_cli, place):
    (place / "small.toml").write_text('[map]\n"y" = "x : a b -> b a"\n', "utf-8")
    done = forked_cli("map", "invert", place / "small.toml")
    assert (done.returncode, done.stdout) == (0, '[map]\n"x" = "y : b a -> a b"\n')
    done = forked_cli("map", "invert", place / "small.toml", "-o", place / "back.toml")
    assert (done.returncode, done.stdout) == (0, "")
    assert (place / "back.toml").read_text("utf-8") == '[map]\n"x" = "y : b a -> a b"\n'


def test_invert_there_and_back(forked_cli, place):
    """Without the source, a length is left to be given; with it, it stands in the table."""
    text = LLAMA.replace('drop = ["*.inv_freq"]', "")
    (place / "one.toml").write_text(text, "utf-8")
    source = ferry.load(place / "model" / "model.safetensors", "numpy")
    source = {name: each for name, each in source.items() if not name.endswith("inv_freq")}
    (place / "a").mkdir()
    ferry.save(source, place / "a" / "a.safetensors")
    (place / "a" / "config.json").write_text(json.dumps(CONFIG), "utf-8")
    done = forked_cli("map", "invert", place / "one.toml", "-o", place / "open.toml")
    assert done.returncode == 0
    assert "to be given with --dim, or told by SOURCE: gate_length" in done.stderr
    done = forked_cli(
        "map",
        "invert",
        place / "one.toml",
        place / "a" / "a.safetensors",
        "-o",
        place / "back.toml",
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert "--dim" not in done.stderr
    table = ("--map", place / "one.toml", "--verify")
    assert (
        forked_cli("convert", place / "a" / "a.safetensors", place / "b.npz", *table).returncode
        == 0
    )
    for name, more in (("back", ()), ("open", ("--dim", "gate_length=10"))):
        dims = [*more, *[word for each in ("h=4", "kv=2", "hd=6") for word in ("--dim", each)]]
        table = ("--map", place / f"{name}.toml", "--verify", *dims)
        done = forked_cli("convert", place / "b.npz", place / f"{name}.safetensors", *table)
        assert done.returncode == 0, done.stderr
        again = ferry.load(place / f"{name}.safetensors", "numpy")
        assert {each: array.tobytes() for each, array in again.items()} == {
            each: array.tobytes() for each, array in source.items()
        }


def test_invert_names_what_cannot_be(forked_cli, place):
    done = forked_cli("map", "invert", place / "llama.toml", "-o", place / "back.toml")
    assert done.returncode == 2
    assert "*.inv_freq is dropped" in done.stderr
    assert not (place / "back.toml").exists()


def test_infer(forked_cli, place):
    done = forked_cli(
        "map", "infer", place / "model", place / "target.npz", "-o", place / "found.toml"
    )
    assert (done.returncode, done.stdout) == (0, "")
    table = ferry.WeightMap.read(place / "found.toml")
    assert table.check(place / "model", place / "target.npz") == []


def test_infer_says_what_it_does_not_know_and_what_it_guesses(forked_cli, tmp_path):
    np.savez(tmp_path / "a.npz", a=np.ones(3), b=np.ones(3), c=np.arange(6.0))
    np.savez(tmp_path / "b.npz", x=np.ones(3), y=np.arange(1, 7.0))
    done = forked_cli("map", "infer", tmp_path / "a.npz", tmp_path / "b.npz")
    assert done.returncode == 1
    assert "no tensor of the source has its elements" in done.stdout
    assert "not known" in done.stderr
    assert "assumed" in done.stderr


def test_convert_and_diff(forked_cli, place):
    done = forked_cli(
        "convert",
        place / "model",
        place / "out.safetensors",
        "--map",
        place / "llama.toml",
        "--verify",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "14 tensors" in done.stdout
    done = forked_cli("diff", place / "out.safetensors", place / "target.npz")
    assert done.returncode == 0
    done = forked_cli("diff", place / "model", place / "target.npz", "--map", place / "llama.toml")
    assert done.returncode == 0
    assert "all equal, bit for bit" in done.stdout


def test_a_hint_for_lengths_works_as_it_stands(forked_cli, place):
    (place / "model" / "config.json").unlink()
    arguments = ("convert", place / "model", place / "out.npz", "--map", place / "llama.toml")
    done = forked_cli(*arguments)
    assert done.returncode == 2
    assert (
        "Hint: --dim h=32 --dim kv=32 --dim hd=32" in done.stderr
        or "Hint: --dim h=32 --dim kv=32" in done.stderr
    )
    assert not (place / "out.npz").exists()
    done = forked_cli(*arguments, "--dim", "h=4", "--dim", "kv=2", "--dim", "hd=6")
    assert done.returncode == 0


@pytest.mark.parametrize("word", ["h", "h=", "=3", "h=x", "h=-1"])
def test_a_length_that_is_typed_wrong(forked_cli, place, word):
    done = forked_cli("map", "check", place / "llama.toml", place / "model", "--dim", word)
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not like h=32" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["check", "none.toml", "model"],
        ["check", "llama.toml", "none"],
        ["explain", "none.toml", "model"],
        ["invert", "none.toml"],
        ["infer", "none", "target.npz"],
    ],
)
def test_a_file_that_is_not_there(forked_cli, place, words):
    done = forked_cli("map", words[0], *[place / word for word in words[1:]])
    assert (done.returncode, done.stdout) == (2, "")
    assert "No such file" in done.stderr


def test_an_output_is_replaced_only_if_it_is_asked_for(forked_cli, place):
    (place / "small.toml").write_text('[map]\n"y" = "x"\n', "utf-8")
    (place / "back.toml").write_text("mine", "utf-8")
    arguments = ("map", "invert", place / "small.toml", "-o", place / "back.toml")
    done = forked_cli(*arguments)
    assert done.returncode != 0
    assert "exists already" in done.stderr
    assert "Hint: --overwrite" in done.stderr
    assert (place / "back.toml").read_text("utf-8") == "mine"
    assert forked_cli(*arguments, "--overwrite").returncode == 0
    assert (place / "back.toml").read_text("utf-8") == '[map]\n"x" = "y"\n'


def test_diff_says_what_a_table_leaves_out(forked_cli, tmp_path):
    ferry.save({"w": np.ones((2, 3)), "epoch": 3}, tmp_path / "a.safetensors")
    ferry.save({"y": np.ones((3, 2))}, tmp_path / "b.safetensors")
    (tmp_path / "t.toml").write_text('[map]\n"y" = "w : a b -> b a"\n', "utf-8")
    done = forked_cli(
        "diff", tmp_path / "a.safetensors", tmp_path / "b.safetensors", "--map", tmp_path / "t.toml"
    )
    assert done.returncode == 0
    assert "not compared" in done.stderr
    assert "epoch" in done.stderr


WORDS = """[words]
kind = ["weight", "bias"]

[words.part]
norm1 = "in.0"
conv1 = "in.2"

[map]
"b.{i}.{part}.{kind}" = "d.{i}.{part}.{kind} : a b -> b a"
"""


@pytest.fixture
def worded(tmp_path):
    """A file, a table with words for it, and what that makes by plain NumPy."""
    source, target = {}, {}
    for at, (ours, theirs) in enumerate((("norm1", "in.0"), ("conv1", "in.2"))):
        for kind in ("weight", "bias"):
            array = np.random.default_rng((at, len(kind))).random((2, 3))
            source[f"d.0.{theirs}.{kind}"] = array
            target[f"b.0.{ours}.{kind}"] = array.T.copy()
    ferry.save(source, tmp_path / "a.safetensors")
    np.savez(tmp_path / "b.npz", **target)
    (tmp_path / "t.toml").write_text(WORDS, "utf-8")
    return tmp_path


def test_words_are_checked_explained_and_inverted(forked_cli, worded):
    source = worded / "a.safetensors"
    done = forked_cli("map", "check", worded / "t.toml", source, "--against", worded / "b.npz")
    assert (done.returncode, done.stdout) == (0, f"{worded / 't.toml'}: ok\n")
    done = forked_cli("map", "explain", worded / "t.toml", source)
    assert done.returncode == 0
    assert "b.0.conv1.bias" in done.stdout
    assert "1 move out of d.0.in.2.bias" in done.stdout
    done = forked_cli("map", "invert", worded / "t.toml")
    assert done.returncode == 0
    assert '[words.part]\n"in.0" = "norm1"\n"in.2" = "conv1"\n' in done.stdout
    assert '"d.{i}.{part}.{kind}" = "b.{i}.{part}.{kind} : b a -> a b"' in done.stdout
    (worded / "t.toml").write_text(WORDS.replace('"bias"', '"scale"'), "utf-8")
    done = forked_cli("map", "check", worded / "t.toml", source)
    assert done.returncode == 1
    assert "no rule finds the word 'scale' of kind" in done.stdout


def test_files_are_compared_through_words(forked_cli, worded):
    paths = worded / "a.safetensors", worded / "b.npz"
    done = forked_cli("diff", *paths, "--map", worded / "t.toml")
    assert done.returncode == 0
    assert "all equal, bit for bit" in done.stdout
    (worded / "t.toml").write_text(
        WORDS.replace('"in.0"', '"x"').replace('"in.2"', '"in.0"').replace('"x"', '"in.2"'), "utf-8"
    )
    done = forked_cli("diff", *paths, "--map", worded / "t.toml")
    assert done.returncode == 1
    assert "b.0.conv1.bias" in done.stdout
