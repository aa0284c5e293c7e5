"""The harness finds hints that do not work: each kind of them, made on purpose."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests import support
from tests.hints.commands import Command, type_ways, ways_typed
from tests.hints.exceptions import MOST, PLACES, Place
from tests.hints.pasting import STEPS, Called, Failed, paste
from tests.hints.reading import ways_of
from tests.hints.recording import Watch, unneeded
from tests.support import lives

import tensorferry as ferry
from tensorferry.cli.app import app

X = np.arange(3.0)


def called(hint, function=ferry.to_numpy, *args, **kwargs):
    return Called(function.__name__, function, args or (X,), kwargs, hint)


def function_with_hints(*hints):
    """A function that raises as long as there are hints left, each with the next of them."""
    left = list(hints)

    def to_numpy(x, /, **keywords):
        raise ferry.UnsupportedTypeError("no", left.pop(0) if len(left) > 1 else left[0])

    return to_numpy


WORK = {
    "a call": 'to_numpy(x, dtype="float32")',
    "code for the tensor": "x.copy()",
    "code for a part": "sorted(x)",
    "a keyword": 'dtype="float32", which rounds',
    "keywords that belong together": 'dtype="float32", copy=True',
    "several": 'dtype="float32"; or copy=True',
    "one of two": "load(x) if it is a path; to_numpy(list(x)) if it is numbers",
    "something first": "np.seterr(); to_numpy(x)",
}
FAIL = {
    "prose": ("try something else", "no code"),
    "no such name": ("to_numpy(y)", "NameError"),
    "no such method": ("x.to_dense()", "AttributeError"),
    "no such keyword": ("shape=3", "does not take"),
    "another error": ('casting="safely"', "ValueError"),
    "one of several": ("to_numpy(x); or x.to_dense()", "AttributeError"),
    "neither of two": ("load(x) if it is a path; to_numpy(x.split()) if it is text", "split"),
}


@pytest.mark.parametrize("kind", WORK)
def test_a_hint_that_works_is_no_finding(kind):
    paste(called(WORK[kind]))


@pytest.mark.parametrize("kind", FAIL)
def test_a_hint_that_does_not_work_is_found(kind):
    hint, why = FAIL[kind]
    with pytest.raises(Failed, match=why):
        paste(called(hint))


def test_a_circle_is_found():
    """Of one hint, and of two that lead to each other."""
    for hints in (["copy=True"], ["copy=True", "copy=None", "copy=True"]):
        function = function_with_hints(*hints)
        with pytest.raises(Failed, match="a circle: "):
            paste(called(hints[0], function))


def test_hints_without_end_are_found():
    """More than some steps, though each is another."""
    hints = [f"dtype={number}" for number in range(STEPS + 4)]
    with pytest.raises(Failed, match="no end: "):
        paste(called(hints[0], function_with_hints(*hints[1:])))


def test_a_place_in_a_tree_gets_the_value():
    """And the tree itself stays as it was."""
    tree = {"a": [X, {1.0, 2.0}], "b": (X,)}
    paste(called('sorted(x["a"][1]) in its place', ferry.convert_tree, tree, "torch"))
    assert tree["a"][1] == {1.0, 2.0}
    samples = [{"a": {2.0, 1.0}}, {"a": {4.0, 3.0}}]
    paste(called('sorted(sample["a"]) in its place', ferry.collate, samples, "numpy"))


def test_files_are_written_elsewhere(tmp_path):
    """What is at the path stays."""
    path = tmp_path / "a.npy"
    np.save(path, X)
    paste(called("overwrite=True", ferry.save, X * 2, path))
    paste(called("save(x, path, overwrite=True)", ferry.save, X * 2, path))
    assert np.load(path).tolist() == X.tolist()


def test_what_is_global_is_done_in_a_child():
    """JAX keeps its dtypes here."""
    jax = pytest.importorskip("jax")
    before = jax.config.jax_enable_x64
    paste(called('to_numpy(x); jax.config.update("jax_enable_x64", True) first'))
    assert jax.config.jax_enable_x64 == before
    with pytest.raises(Failed, match="AttributeError"):
        paste(called('jax.config.updaet("jax_enable_x64", True) first'))


def test_errors_are_recorded_where_they_are_raised():
    """Once for each kind; the function is as before afterwards."""
    before = ferry.to_numpy
    watch = Watch(())
    with watch.watching():
        for _ in range(2):
            with pytest.raises(ferry.ConversionError):
                ferry.to_numpy(int)
            with pytest.raises(ferry.ConversionError):
                ferry.to_numpy({1, 2})
    assert ferry.to_numpy is before
    assert watch.tried == 2
    assert [finding.hint for finding in watch.findings] == ["an object of it"]


def test_functions_that_are_imported_late_are_watched():
    """`load` is no attribute of the package before it is first used."""
    lives("""
        import tempfile
        from pathlib import Path
        import numpy as np, pytest, tensorferry as ferry
        assert "load" not in vars(ferry)
        from tests.hints.recording import Watch
        watch = Watch(())
        path = Path(tempfile.mkdtemp(), "a.npz")
        np.savez(path, a=np.ones(2))
        with watch.watching(), pytest.raises(ferry.ConversionError):
            ferry.load(path, exclude="zzz")
        assert watch.tried == 1
    """)


@pytest.fixture
def archive(tmp_path):
    """An archive with two arrays."""
    np.savez(tmp_path / "two.npz", a=X, b=X)
    return str(tmp_path / "two.npz")


def command(hint, *words):
    def again(other):
        return support.forked_command(support.COMMAND_LINE, other)

    return Command(words, hint, "", str(Path.cwd()), again)


COMMANDS_THAT_WORK = {
    "an option": "--include a, or another of them",
    "several ways": "--include a; or --exclude b, which leaves it out",
    "a way when something is so": "--include zzz, if it is there; or --include b",
    "what leads to another": "--tensors-only",
    "a command": "tensorferry --version",
    "Python": "python3 -c 'import sys'",
}
COMMANDS_THAT_FAIL = {
    "prose": ("another name", "nothing to type"),
    "no such option": ("--included a", "ends with 2"),
    "one of several": ("--include a; or --to nothing", "ends with 2|no end|a circle"),
    "a command": ("tensorferry nothing", "ends with 2"),
}


@pytest.mark.parametrize("kind", COMMANDS_THAT_WORK)
def test_a_hint_that_works_when_it_is_typed_is_no_finding(kind, archive, tmp_path):
    """And what it makes is elsewhere."""
    out = tmp_path / "one.npy"
    type_ways(command(COMMANDS_THAT_WORK[kind], "convert", archive, str(out)), (), lambda _: False)
    assert not out.exists()


@pytest.mark.parametrize("kind", COMMANDS_THAT_FAIL)
def test_a_hint_that_does_not_work_when_it_is_typed_is_found(kind, archive, tmp_path):
    hint, why = COMMANDS_THAT_FAIL[kind]
    with pytest.raises(Failed, match=why):
        type_ways(command(hint, "convert", archive, str(tmp_path / "one.npy")), (), lambda _: False)


@pytest.mark.parametrize("how", ["forked", "started", "called"])
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_errors_of_the_command_line_are_recorded(how, options, archive, tmp_path, capfd):
    """Whichever way it is run, and in the words of both outputs."""
    words = ["convert", archive, str(tmp_path / "one.npy"), *options]
    watch = Watch(())
    with watch.watching():
        if how == "forked":
            support.forked_command(support.COMMAND_LINE, words)
        elif how == "started":
            whole = [sys.executable, "-m", "tensorferry", *words]
            subprocess.run(whole, capture_output=True, check=False)
        else:
            with pytest.raises(SystemExit):
                app(words, prog_name="tensorferry")
    assert watch.tried == 1
    assert not watch.findings


@pytest.mark.parametrize(
    ("hint", "ways"),
    [
        ("--include a --tensors-only, or another of them", ["--include a --tensors-only"]),
        ("--exclude 'b c', without --rename, which leaves it out", ["--exclude 'b c' without --rename"]),
        ("--device cpu, or a kind and an index: --device cuda:1", ["--device cpu", "--device cuda:1"]),
        ("leaving --no-copy out (the default) shares", ["without --no-copy"]),
        ("try again", []),
    ],
)  # fmt: skip
def test_what_a_hint_says_to_type(hint, ways):
    name = "explain" if "device" in hint or "copy" in hint else "convert"
    assert [str(way).strip() for way in ways_typed(hint, name)] == ways


def test_a_place_of_the_list_is_needed_or_is_told(tmp_path):
    """A list may have what nobody needs only until `make hints`."""
    places = (Place("a.py", "an object of it", "why"), Place("b.py", "what nobody says", "why"))
    watch = Watch(places)
    with watch.watching(), pytest.raises(ferry.ConversionError):
        ferry.to_numpy(int)
    assert not watch.findings
    (tmp_path / "1.json").write_text(
        json.dumps({"needed": sorted(watch.needed), "tried": watch.tried})
    )
    assert unneeded(tmp_path, places) == ([places[1]], 1)


def test_the_list_excuses_no_single_tensor_in_host_memory():
    """Whatever its patterns."""
    watch = Watch((Place("a.py", ".*", "all"),))
    watch.look_at(called("no code"))
    watch.look_at(called("no code either", ferry.convert_tree, {"a": X}, "numpy"))
    assert [finding.hint for finding in watch.findings] == ["no code"]


def test_the_list_is_short_and_has_reasons():
    assert len(PLACES) <= MOST
    assert all(place.reason and place.hint and place.module for place in PLACES)
    assert len({place.hint for place in PLACES}) == len(PLACES)


@pytest.mark.parametrize(
    ("hint", "ways"),
    [
        ("[[float(number) for number in row] for row in x]", ["[[float(number) for number in row] for row in x]"]),
        ('nulls=0, or dtype="float64", nulls="nan"', ["nulls=0", 'dtype="float64", nulls="nan"']),
        ('to="torch", without like=', ['to="torch", without like=']),
        ('x["a b"].tolist() in its place; unknown="keep" keeps it', ['x["a b"].tolist()', 'unknown="keep"']),
        ("", []),
    ],
)  # fmt: skip
def test_what_a_hint_says(hint, ways):
    assert [str(way) for way in ways_of(hint)] == ways
