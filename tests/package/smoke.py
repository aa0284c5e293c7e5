"""What a user has right after ``pip install tensorferry``: run by `make package` in an environment with nothing else.

It needs no test library, and is run with ``python -I -W error``, so that only what is installed is
found.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import tensorferry as ferry
from tensorferry.sequences.numbers import HAS_EXTENSION

NAME = "tensorferry"


def plain(name):
    """A distribution's name as installers compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def run(*command):
    """A command's exit code, output and messages."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    return done.returncode, done.stdout, done.stderr


def _is_for_older(line):
    """Whether a requirement is only for Pythons older than this one."""
    found = re.search(r"python_version < .(\d+)\.(\d+)", line)
    return found is not None and sys.version_info >= tuple(map(int, found.groups()))


def installed():
    """The package comes out of this environment, whole, and with nothing but what it asks for."""
    assert Path(ferry.__file__).is_relative_to(sys.prefix), ferry.__file__
    assert metadata.version(NAME) == ferry.__version__
    files = {str(path) for path in metadata.files(NAME)}
    assert f"{NAME}/py.typed" in files
    assert any(path.endswith("licenses/LICENSE") for path in files)
    # What was built is used, and in a wheel of Python alone there is nothing built.
    for name in (
        "host/_casts.",
        "host/_joins.",
        "sequences/_fill.",
        "backends/torch/_tensors.",
        "trees/_walks.",
    ):
        assert any(path.startswith(f"{NAME}/{name}") for path in files) == HAS_EXTENSION, files
    assert not any(path.endswith((".c", ".h")) for path in files)
    tops = {path.partition("/")[0] for path in files if not path.startswith("..")}
    assert tops == {NAME, f"{NAME}-{ferry.__version__}.dist-info"}, tops
    needed = {
        plain(re.match(r"[\w.-]+", line)[0])
        for line in metadata.requires(NAME)
        if "extra ==" not in line and not _is_for_older(line)
    }
    there = {plain(each.metadata["Name"]) for each in metadata.distributions()}
    assert there - {"pip", "setuptools"} == {NAME, *needed}, there


def numbers():
    """Lists become arrays, exactly; what is not installed is named with the line that installs it."""
    made = ferry.to_numpy([[1, 2], [3, 4]])
    assert made.dtype == np.int64
    assert made.tolist() == [[1, 2], [3, 4]]
    assert str(ferry.to_numpy([0.5, 1.5], dtype="bfloat16").dtype) == "bfloat16"
    assert ferry.to_list(np.float32([0.5, 1.5])) == [0.5, 1.5]
    assert ferry.shares_memory(made, ferry.to_numpy(made))
    assert "int64" in str(ferry.explain([1, 2], "numpy"))
    hint = ""
    try:
        ferry.to_torch(made)
    except ferry.FrameworkNotInstalledError as error:
        hint = error.hint
    assert "pip install torch" in hint, "torch is here"


@dataclass
class Pair:
    """A container as users write them."""

    left: object
    right: object


def trees():
    """Every leaf is converted, everything else is kept."""
    made = ferry.convert_tree(
        {"a": [np.ones(2), "text"], "b": Pair(np.arange(3.0), None)}, "numpy", dtype="float32"
    )
    assert made["a"][1] == "text"
    assert isinstance(made["b"], Pair)
    assert made["b"].right is None
    assert made["a"][0].dtype == made["b"].left.dtype == np.float32
    assert made["b"].left.tolist() == [0, 1, 2]


def files():
    """What is saved is what is loaded."""
    tree = {"weight": np.arange(6, dtype="float32").reshape(2, 3), "bias": np.ones(3, "float16")}
    with TemporaryDirectory() as folder:
        for name in ("model.npz", "model.safetensors"):
            path = Path(folder, name)
            ferry.save(tree, path)
            loaded = ferry.load(path, to="numpy", copy=True)
            for key, value in tree.items():
                assert loaded[key].dtype == value.dtype
                assert np.array_equal(loaded[key], value), (name, key)


def commands():
    """The version needs nothing; what needs Typer says so, in words and not in a traceback."""
    script = str(Path(sysconfig.get_path("scripts"), NAME))
    for program in ((sys.executable, "-I", "-m", NAME), (script,)):
        assert run(*program, "--version") == (0, f"{NAME} {ferry.__version__}\n", "")
        code, out, words = run(*program, "--help")
        assert (code, out) == (1, ""), (code, out)
        assert "Typer" in words
        assert "Hint: pip install" in words
        assert "Traceback" not in words, words


if __name__ == "__main__":
    for part in (installed, numbers, trees, files, commands):
        part()
    extension = "with" if HAS_EXTENSION else "without"
    sys.stdout.write(
        f"{NAME} {ferry.__version__} alone with NumPy {np.__version__}, {extension} its extension: fine\n"
    )
