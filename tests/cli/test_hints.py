"""Hints are spelled as options, whichever command shows them; and code is never broken inside a token."""

from __future__ import annotations

import ast
import json
import re
import shlex
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from safetensors.numpy import save_file
from tests.cli.plans import everything
from tests.hints.sources import PUT_IN, hints_of, texts_of

import tensorferry
from tensorferry.cli.app import app
from tensorferry.cli.explain import folded
from tensorferry.cli.outcome import OPTIONS, as_options
from tensorferry.files.base import limits as file_hints
from tensorferry.files.base.format import INSTEAD
from tensorferry.hints import (
    SOME,
    Caller,
    Code,
    Hint,
    InPython,
    OtherOutput,
    Spoken,
    again,
    described,
    keyword,
    keywords,
    without,
)

PACKAGE = Path(tensorferry.__file__).parent
COMMANDS = typer.main.get_command(app).commands
PYTHON_ONLY = {"copy", "lazy", "names", "metadata", "slices", "strict"}
"""Keywords of `load` and `save`, which no command calls with them."""


def _options(words):
    first, *rest = words.split()
    command = COMMANDS[first]
    for word in rest:
        command = getattr(command, "commands", {}).get(word, command)
    return {option for param in command.params for option in (*param.opts, *param.secondary_opts)}


def _keywords(text):
    """The keywords of Python that stand in a hint, but for those in calls, which are code."""
    return set(re.findall(r"(?<![\w.])([a-z_]+)=(?!=)", _without_calls(text)))


def _without_calls(text):
    while (found := re.search(r"[\w.]+\([^()]*\)", text)) is not None:
        text = text[: found.start()] + text[found.end() :]
    return text


def _typed(text):
    return set(re.findall(r"--[a-z-]+", re.sub(r"pip install [^,]*", "", text)))


_AT = {"a": ("a",)}
WAYS = (
    file_hints.Words(INSTEAD, INSTEAD),
    file_hints.Leaving(),
    file_hints.Without(_AT),
    file_hints.Renamed(_AT, frozenset("a"), str.upper),
    file_hints.OtherDtypes({"a": "float64"}, {"float64": "float32"}),
    file_hints.Undecoded(),
    file_hints.OneOf("a", ("a",)),
    file_hints.Metadataless(("a",)),
    file_hints.InPlace(("a",), "str({})"),
    file_hints.Keyed(("a",)),
)
"""One of each kind of which hints on files are made."""


@cache
def _hints_on_files():
    """Those that the modules make, and the text that they give as one."""
    modules = sorted((PACKAGE / "files").rglob("*.py"))
    given = file_hints.Given(("b",), ("s/a/b/",), metadata={"a": "1"}, nests=True)
    made = [hint for path in modules for hint in hints_of(path)]
    text = [Hint(each) for path in modules for each in _texts_in(path)]
    return (*made, *text, *(file_hints.FileHint(way).for_files(given) for way in WAYS))


def _texts_in(path):
    for node in ast.walk(ast.parse(path.read_text())):
        name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        if name.endswith("Error") and node.args[1:]:
            yield from texts_of(node.args[1])


def test_each_kind_of_way_is_among_those_that_are_spelled():
    kinds = {
        each
        for each in vars(file_hints).values()
        if isinstance(each, type) and hasattr(each, "for_save")
    }
    assert {type(way) for way in WAYS} == kinds - {file_hints.FileHint, file_hints.FileWay}


def test_each_option_of_the_table_is_one_of_its_command():
    for command, options in OPTIONS.items():
        for option in options.values():
            assert option.split()[0] in _options(command), (command, option)


@pytest.mark.parametrize("command", ["inspect", "check", "diff", "convert", "roundtrip"])
def test_every_hint_on_files_is_spelled_as_options(command):
    """No keyword of Python is left, and each option is one of the command that is to be typed."""
    found = [hint.for_call(Caller("convert_files")) for hint in _hints_on_files()]
    assert len(found) > 40
    assert sum(bool(_keywords(str(hint))) for hint in found) > 18
    for hint in found:
        text = as_options(hint, command)
        typed = "convert" if "tensorferry convert" in text else command
        assert _keywords(text) <= {*PYTHON_ONLY, PUT_IN}, (hint, text)
        assert _typed(text) <= _options(typed), (hint, text)


def test_every_hint_of_explain_is_spelled_as_options():
    """What is asked for and what the tensor is told to be have options of their own: each hint has the right ones."""
    _, asked, described, _ = everything()
    assert len(asked) > 8
    assert len(described) > 4
    for about, hints in (("explain", asked), ("explain --from", described)):
        for hint in filter(None, hints):
            text = as_options(hint, about)
            assert not _keywords(text), (hint, text)
            assert _typed(text) <= _options("explain"), (hint, text)
            for word in ("dtype", "device"):
                assert f"--{word}" not in text or about == "explain --from"
                assert f"--to-{word}" not in text or about == "explain"


@pytest.mark.parametrize(
    ("hint", "command", "text"),
    [
        (
            Hint(keyword("dtype", "float32"), ", or ", keyword("exclude", ["a b"])),
            "convert",
            "--dtype float32, or --exclude 'a b'",
        ),
        (
            Hint(keyword("dtype", {"int64": "int32", "float": "bf16"})),
            "convert",
            "--dtype int64=int32 --dtype float=bf16",
        ),
        (
            Hint(keyword("exclude", SOME), ", or ", keyword("dtype"), " with another"),
            "convert",
            "--exclude …, or --dtype with another",
        ),
        (
            without("shard"),
            "convert",
            "without --shard",
        ),
        (
            Hint(
                keyword("ragged", "rows"),
                ", or ",
                keyword("pad", 0),
                ", or ",
                keyword("nulls", "nan"),
            ),
            "convert",
            "--ragged rows, or --pad 0, or --nulls nan",
        ),
        (
            Hint(keyword("pad", False)),
            "convert",
            "--pad False",
        ),
        (
            Hint(keywords(dtype="int8", pad=0)),
            "convert",
            "--dtype int8 --pad 0",
        ),
        (
            Hint(keyword("dtype", "int8"), " and ", keyword("pad", 0)),
            "convert",
            "--dtype int8 --pad 0",
        ),
        (
            Hint(keywords(metadata=None, tensors_only=True)),
            "convert",
            "leaving --metadata out, --tensors-only",
        ),
        (
            Hint(keyword("allow", ["a.B"])),
            "inspect",
            "--allow a.B",
        ),
        (
            Hint(keyword("tensors_only", True)),
            "inspect",
            "first tensorferry convert IN OUT with --tensors-only",
        ),
        (
            Hint(keyword("copy", True)),
            "explain",
            "--copy",
        ),
        (
            Hint(keyword("copy", False)),
            "explain",
            "--no-copy",
        ),
        (
            Hint(keyword("copy", None), " shares"),
            "explain",
            "leaving --no-copy out shares",
        ),
        (
            without("pinned"),
            "explain",
            "without --option pinned",
        ),
        (
            Hint(keyword("dtype", "fit"), ", or ", keyword("device", "cpu")),
            "explain",
            "--to-dtype fit, or --to-device cpu",
        ),
        (
            Hint(described(device="cpu"), ", or ", described(swapped=False)),
            "explain --from",
            "--device cpu, or leaving --swapped out",
        ),
        (
            Hint(described(device="cpu")),
            "explain",
            'x._replace(device="cpu")',
        ),
        (
            Hint("f(path, dtype=(1, 2), allow=3), ", keyword("dtype", Code("x.y"))),
            "convert",
            "f(path, dtype=(1, 2), allow=3), --dtype x.y",
        ),
        (
            Hint(keyword("dtype", "fit")),
            "doctor",
            'dtype="fit"',
        ),
        (
            Hint("if dtype == 3"),
            "convert",
            "if dtype == 3",
        ),
        (
            Hint(keyword("overwrite", True), ", which replaces it"),
            "convert",
            "--overwrite, which replaces it",
        ),
        (
            Hint(OtherOutput("/a b/c.npz")),
            "convert",
            "tensorferry convert IN '/a b/c.npz'",
        ),
        (
            Hint(InPython("import a; a.b('c')")),
            "convert",
            """python3 -c 'import a; a.b('"'"'c'"'"')'""",
        ),
        (
            Hint(Spoken("load('a')", "tensorferry inspect a")),
            "inspect",
            "tensorferry inspect a",
        ),
        (
            Hint("convert(x)") | Hint(keyword("nulls", 0)),
            "convert",
            "--nulls 0",
        ),
        (
            Hint("convert(x)") | Hint("load(x)"),
            "convert",
            "convert(x); or load(x)",
        ),
        (
            Hint(again(nulls=0)).for_call(Caller("convert_files")),
            "convert",
            "--nulls 0",
        ),
        (
            Hint(again(nulls=0)),
            "convert",
            "to_numpy(x, nulls=0)",
        ),
    ],
)
def test_how_a_hint_is_spelled(hint, command, text):
    assert as_options(hint, command) == text


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_hints_as_they_are_shown(forked_cli, tmp_path, options):
    """On stderr and in the JSON, of files and of plans."""
    np.savez(tmp_path / "two.npz", a=np.ones(2), b=np.ones(2))
    for command, hint in (
        (["convert", "two.npz", "one.npy"], "--include a, or another of them"),
        (["convert", "two.npz", "folder"], "--to safetensors"),
        (["explain", "--from", "numpy", "--to", "torch", "--device", "cuda"], "--device cpu"),
        (["explain", "--from", "numpy", "--to", "jax", "--to-device", "mps"], "--to-device cpu"),
    ):
        paths = [
            str(tmp_path / word) if word.startswith(("two", "one", "folder")) else word
            for word in command
        ]
        done = forked_cli(*paths, *options)
        shown = (
            json.loads(done.stdout)["error"]["hint"]
            if options
            else done.stderr.partition("Hint: ")[2].strip()
        )
        assert shown == hint


def _ways(hint):
    """What a hint says to type, without remarks."""
    for way in re.split(r"; or |, or (?=--)", hint):
        yield re.split(r", (?=which|or )", way)[0]


def test_hints_work_when_they_are_typed(forked_cli, tmp_path):
    """Each way, after the same command; where it leads to another error, the way of that one comes too."""
    np.savez(
        tmp_path / "two.npz",
        **{"a": np.ones(2), "b[0]": np.ones(2, "complex128"), "it's": np.ones(2)},
    )
    column = pa.array([[1, None], [2]])
    pq.write_table(pa.table({"x": column, "n [1]": pa.array([1, None])}), tmp_path / "a.parquet")
    save_file({"../a": np.ones(2), "b c": np.ones(2, "complex64")}, tmp_path / "in.safetensors")
    tensorferry.save({"w": np.ones(2), "steps": [1, 2]}, tmp_path / "tree.pt")
    tried = 0
    for source, target, *options in (
        ("two.npz", "one.npy"),
        ("two.npz", "out.gguf"),
        ("two.npz", "out.safetensors", "--include", "c*"),
        ("two.npz", "out.safetensors", "--exclude", "zzz"),
        ("a.parquet", "out.npz"),
        ("a.parquet", "out.npz", "--ragged", "rows"),
        ("in.safetensors", "out.npz"),
        ("in.safetensors", "out.npz", "--exclude", "b c"),
        ("in.safetensors", "out.gguf", "--rename", "s/b/e/"),
        ("tree.pt", "out.npy"),
    ):
        first = ("convert", str(tmp_path / source), str(tmp_path / target))
        left = [(tuple(options), 0)]
        while left:
            given, depth = left.pop()
            done = forked_cli(*first, *given, "--json")
            if done.returncode == 0:
                made = tmp_path / target
                assert made.exists()
                if source != target and target.startswith(("o", "on")):
                    made.unlink()
                continue
            assert done.stdout, (first, given, done.stderr)
            error = json.loads(done.stdout)["error"]
            hint = error["hint"]
            if hint is None:  # each column was left out, as the hints said
                assert error["message"].startswith("Nothing is left by exclude"), (
                    first,
                    given,
                    done.stdout,
                )
                continue
            assert depth < 4, (first, given, hint)
            for way in _ways(hint):
                tried += 1
                left.append((_replaced(given, way), depth + 1))
    assert tried > 20


def _replaced(given, way):
    """The options of a call, with those of a hint; one that the hint has is not given as before."""
    way, _, without = way.partition(", without ")
    typed = shlex.split(way)
    if typed[0] in ("leaving", "without"):
        gone, typed = {word for word in typed if word.startswith("--")}, []
    else:
        gone = {without, *(word for word in typed if word.startswith("--"))}
    kept, words = [], list(given)
    while words:
        option = words.pop(0)
        values = []
        while words and not words[0].startswith("--"):
            values.append(words.pop(0))
        kept += [] if option in gone else [option, *values]
    return (*kept, *typed)


@pytest.mark.parametrize("width", [40, 77, 200])
def test_code_is_folded_between_tokens_and_is_the_same_code(width):
    """All plans and their steps: what is pasted does the same, and what can be brought into the width is."""
    codes, *_ = everything()
    assert max(map(len, codes)) > 200
    for code in codes:
        text = folded(code, width)
        assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(code))
        if width > 70:
            assert max(map(len, text.split("\n"))) <= width, text
