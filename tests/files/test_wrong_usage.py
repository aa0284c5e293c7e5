"""Keywords that make no sense are a TypeError or a ValueError, and never an error about a file or a format."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import tensorferry as ferry
from tensorferry.errors import FileFormatError

VALUES = {
    "engine": (
        {"engine": "slurm"},
        'engine must be "threads", "processes", "dask" or "ray", not .slurm',
    ),
    "overflow": ({"overflow": "wrap"}, 'overflow must be "raise", "saturate" or "nan", not .wrap'),
    "format": ({"to": "floppy"}, "to must be the name of a format, one of .*npz.*, not 'floppy'"),
    "size": ({"shard": "many", "to": "safetensors"}, "'many' is not a size"),
    "no size": ({"shard": 0, "to": "safetensors"}, "'0' is not a size"),
    "half a unit": ({"shard": "5I", "to": "safetensors"}, "'5I' is not a size"),
    "digits": ({"shard": 10**5000, "to": "safetensors"}, "is not a size"),
    "one file": ({"shard": "5GB"}, "is the name of one file"),
    "substitution": ({"rename": ["a/b"]}, "'a/b' is not a substitution"),
    "regular expression": ({"rename": ["s/(/b/"]}, r"'s/\(/b/' is not a substitution"),
    "part": ({"part": (3, 2)}, r"the first is \(1, 2\), the last \(2, 2\)"),
    "jobs": ({"jobs": 0}, "jobs must be 1 or more, not 0"),
}
TYPES = {
    "include": ({"include": 1}, "include takes strings, not 1"),
    "exclude": ({"exclude": ["a", 1]}, "exclude takes strings, not 1"),
    "rename": ({"rename": b"s/a/b/"}, "rename takes strings, not"),
    "allow": ({"allow": True}, "allow takes strings, not True"),
    "overflow": ({"overflow": 1}, 'overflow must be "raise", "saturate" or "nan", not 1'),
    "engine": (
        {"engine": ["threads"]},
        'engine must be "threads", "processes", "dask" or "ray", not an object',
    ),
    "progress": (
        {"progress": "bar"},
        "progress must be a function of the number of bytes, not 'bar'",
    ),
    "part": ({"part": "1/2"}, "part must be two whole numbers"),
    "part of three": ({"part": (1, 2, 3)}, "part must be two whole numbers"),
    "jobs": ({"jobs": "2"}, "jobs must be a whole number"),
    "executor": ({"executor": "dask"}, "executor must have a method submit"),
}


@pytest.fixture
def source(tmp_path):
    np.savez(tmp_path / "in.npz", a=np.ones(2, "float32"))
    return tmp_path / "in.npz"


def refused(call, error, match, folder):
    """Raises that error itself, of no type of this package's, and leaves nothing behind."""
    before = sorted(folder.iterdir())
    with pytest.raises(error, match=match) as raised:
        call()
    assert not isinstance(raised.value, ferry.ConversionError)
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("case", VALUES)
def test_a_keyword_without_such_a_value_is_a_value_error(tmp_path, source, case):
    """Whether or not the file could be converted otherwise."""
    keywords, match = VALUES[case]
    target = tmp_path / ("out" if "to" in keywords else "out.safetensors")
    refused(lambda: ferry.convert_files(source, target, **keywords), ValueError, match, tmp_path)


@pytest.mark.parametrize("case", TYPES)
def test_a_value_of_the_wrong_type_is_a_type_error(tmp_path, source, case):
    """Not what comes up where it is used."""
    keywords, match = TYPES[case]
    target = tmp_path / "out.safetensors"
    refused(lambda: ferry.convert_files(source, target, **keywords), TypeError, match, tmp_path)


def test_nothing_to_convert_is_a_value_error(tmp_path):
    """An empty list of sources."""
    refused(
        lambda: ferry.convert_files([], tmp_path / "x.npz"),
        ValueError,
        "no source was named",
        tmp_path,
    )


@pytest.mark.parametrize(
    ("keywords", "match"),
    [({"to": "floppy"}, "not 'floppy'"), ({"shard": "many"}, "'many' is not a size")],
)
def test_saving_says_the_same(tmp_path, keywords, match):
    """`save` has some of the same keywords."""
    keywords = {"to": "safetensors", **keywords}
    refused(
        lambda: ferry.save({"a": np.ones(2)}, tmp_path / "out", **keywords),
        ValueError,
        match,
        tmp_path,
    )


def test_a_string_is_one_of_several(tmp_path):
    """And never its letters: a pattern, a substitution, a class."""
    np.savez(tmp_path / "in.npz", ab=np.ones(2, "float32"), c=np.ones(2, "float32"))
    taken = {
        "include": ({"include": "a*"}, ["ab"]),
        "exclude": ({"exclude": "a*"}, ["c"]),
        "rename": ({"rename": "s/ab/d/"}, ["c", "d"]),
        "allow": ({"allow": "package.Config"}, ["ab", "c"]),
    }
    for keyword, (keywords, names) in taken.items():
        report = ferry.convert_files(tmp_path / "in.npz", tmp_path / f"{keyword}.npz", **keywords)
        assert sorted(ferry.open(report.target).tensors) == names
    assert list(ferry.load(tmp_path / "in.npz", names="a*")) == ["ab"]
    assert list(ferry.load(tmp_path / "in.npz", allow="package.Config")) == ["ab", "c"]
    assert list(ferry.open(tmp_path / "in.npz", allow="package.Config").tensors) == ["ab", "c"]


def test_loading_leaves_out_what_exclude_names(tmp_path):
    """Of all, or of what `names` takes, also after it was pickled; a pattern that fits nothing is refused."""
    np.savez(tmp_path / "in.npz", a=np.ones(2), b=np.ones(2), c=np.ones(2))
    assert list(ferry.load(tmp_path / "in.npz", exclude="a")) == ["b", "c"]
    assert list(ferry.load(tmp_path / "in.npz", names=["a", "b"], exclude=["b"])) == ["a"]
    reference = ferry.load(tmp_path / "in.npz", exclude="a", lazy=True).reference()
    assert list(pickle.loads(pickle.dumps(reference)).open()) == ["b", "c"]  # noqa: S301 - our own
    with pytest.raises(
        ferry.FormatLimitError, match="exclude: no name fits 'd'; there are a, b, c"
    ):
        ferry.load(tmp_path / "in.npz", exclude="d")


def test_files_that_others_read_say_by_what(tmp_path, monkeypatch):
    """A table of text, JSON, an image, sound: the code of the hint gives what tensorferry takes."""
    pd, image = pytest.importorskip("pandas"), pytest.importorskip("PIL.Image")
    wavfile = pytest.importorskip("scipy.io.wavfile")
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"a": [1, 2], "b": [0.5, 1.5]}).to_csv("rows.csv", index=False)
    pd.DataFrame({"a": [1, 2], "b": [0.5, 1.5]}).to_csv("rows.tsv", index=False, sep="\t")
    pd.DataFrame({"a": [1, 2], "b": [0.5, 1.5]}).to_json("rows.jsonl", orient="records", lines=True)
    image.fromarray(np.zeros((2, 3), "uint8")).save("picture.PNG")
    wavfile.write("sound.wav", 8000, np.zeros(4, "int16"))
    names = {"pd": pd, "PIL": pytest.importorskip("PIL"), "scipy": pytest.importorskip("scipy")}
    names |= {"convert_tree": ferry.convert_tree, "to_numpy": ferry.to_numpy}
    for name in ("rows.csv", "rows.tsv", "rows.jsonl", "picture.PNG", "sound.wav"):
        with pytest.raises(
            ferry.FileFormatError, match="of no format that tensorferry knows: it is"
        ) as caught:
            ferry.load(name)
        made = eval(caught.value.hint, names)  # noqa: S307 - the code of the hint
        assert len(ferry.describe_tree(made)) == (2 if name.startswith("rows") else 1)
    with pytest.raises(ferry.FileFormatError, match="does not say which format") as caught:
        ferry.save({"a": np.ones(2)}, "weights.csv")
    assert caught.value.hint == 'to="safetensors", in a file such as weights.safetensors'


@pytest.mark.parametrize("suffix", ["__init__", "a b", "1", "os", "ünï", "_"])
def test_a_suffix_that_is_the_name_of_something_else_names_no_format(tmp_path, suffix):
    """A format's module is found by the suffix; nothing else is taken for one."""
    path = tmp_path / f"weights.{suffix}"
    path.write_bytes(b"of no format at all")
    with pytest.raises(FileFormatError, match="of no format that tensorferry knows"):
        ferry.load(path)
