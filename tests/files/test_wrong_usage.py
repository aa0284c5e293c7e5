"""Keywords that make no sense are a TypeError or a ValueError, and never an error about a file or a format."""

from __future__ import annotations

import numpy as np
import pytest

import tensorferry as ferry

VALUES = {
    "engine": ({"engine": "slurm"}, "engine must be one of threads, processes, dask, ray, not 'slurm'"),
    "overflow": ({"overflow": "wrap"}, "overflow must be one of raise, saturate, nan, not 'wrap'"),
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
    "include": ({"include": "a*"}, r"include must be a list of strings, as in include=\['a\*'\]"),
    "exclude": ({"exclude": "a*"}, "exclude must be a list"),
    "rename": ({"rename": "s/a/b/"}, "rename must be a list"),
    "allow": ({"allow": "package.Config"}, "allow must be a list"),
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
    """A string alone would be taken for its letters where several are due."""
    keywords, match = TYPES[case]
    target = tmp_path / "out.safetensors"
    refused(lambda: ferry.convert_files(source, target, **keywords), TypeError, match, tmp_path)


def test_nothing_to_convert_is_a_value_error(tmp_path):
    """An empty list of sources."""
    refused(lambda: ferry.convert_files([], tmp_path / "x.npz"), ValueError, "no source was named", tmp_path)


@pytest.mark.parametrize(
    ("keywords", "match"), [({"to": "floppy"}, "not 'floppy'"), ({"shard": "many"}, "'many' is not a size")]
)
def test_saving_says_the_same(tmp_path, keywords, match):
    """`save` has some of the same keywords."""
    keywords = {"to": "safetensors", **keywords}
    refused(lambda: ferry.save({"a": np.ones(2)}, tmp_path / "out", **keywords), ValueError, match, tmp_path)


def test_names_of_tensors_to_load_are_a_list(source):
    """As for `convert_files`; or one name."""
    assert list(ferry.load(source, names="a*")) == ["a"]
    with pytest.raises(TypeError, match="allow must be a list of strings") as raised:
        ferry.load(source, allow="a*")
    assert not isinstance(raised.value, ferry.ConversionError)
    with pytest.raises(TypeError, match="allow must be a list of strings"):
        ferry.open(source, allow="package.Config")
