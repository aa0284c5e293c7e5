"""Each file that is written is read by its format's own tool: names, structure, dtypes, bits.

A matrix of formats, trees and ways. The trees are in `official_trees.py`, the readers in
`official_readers.py`.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from tests.files.official_readers import READERS
from tests.files.official_trees import SAMPLES, arrays, as_it_was, as_torch, mapped
from tests.support import ROOT

import tensorferry as ferry
from tensorferry.errors import FormatLimitError, UnsupportedTypeError
from tensorferry.files.opening.paths import own_formats

TOOLS = (
    *("flax", "gguf", "h5py", "keras", "numpy", "orbax-checkpoint", "safetensors", "tensorflow"),
    *("torch", "zarr"),
)

CELLS = [
    pytest.param(to, sample, route, id=f"{to}-{sample}-{route}")
    for to in READERS
    for sample, (_, routes) in SAMPLES.items()
    for route in routes
]
LIMIT, OBJECT = FormatLimitError, UnsupportedTypeError
LACKS = "cannot hold"
SEVERAL = "holds one tensor, not"
FOREIGN = "Keras would not find"
STATE = "TrainState"
REFUSED = {
    ("gguf", "dtypes"): (LIMIT, f"{LACKS} bool, complex128, complex64, uint8: bool, uint8"),
    ("gguf", "float8"): (LIMIT, f"{LACKS} float8_e4m3fn, float8_e5m2: matrix, vector"),
    ("keras", "plain"): (LIMIT, f"{FOREIGN} weight, scale, ids"),
    ("keras", "dtypes"): (LIMIT, f"{LACKS} complex128, complex64: complex64, complex128"),
    ("keras", "nested"): (LIMIT, f"{FOREIGN} model.layers.0.w"),
    ("keras", "tuple"): (LIMIT, f"{FOREIGN} pair.0, pair.1, one.0"),
    ("keras", "named tuple"): (LIMIT, f"{FOREIGN} point.x, point.y"),
    ("keras", "ties"): (LIMIT, f"{FOREIGN} tok, norm, head.weight, again"),
    ("keras", "tied model"): (LIMIT, f"{FOREIGN} embed.weight, norm.weight"),
    ("keras", "bfloat16"): (LIMIT, f"{FOREIGN} matrix, vector"),
    ("keras", "float8"): (LIMIT, f"{LACKS} float8_e4m3fn, float8_e5m2: matrix, vector"),
    ("keras", "scalars"): (LIMIT, f"{FOREIGN} loss, count"),
    ("keras", "values"): (LIMIT, f"{FOREIGN} w"),
    ("keras", "empty tensors"): (LIMIT, f"{FOREIGN} none, some"),
    ("keras", "empty containers"): (LIMIT, f"{FOREIGN} w"),
    ("keras", "integer keys"): (LIMIT, f"{FOREIGN} state.0, state.1, state.10, w"),
    ("keras", "alone"): (LIMIT, f"{FOREIGN} tensor"),
    ("keras", "alone in bfloat16"): (LIMIT, f"{FOREIGN} tensor"),
    ("keras", "list"): (LIMIT, f"{FOREIGN} 0, 1, 2"),
    ("keras", "torch training"): (LIMIT, f"{FOREIGN} model.embed.weight"),
    ("keras", "optax training"): (LIMIT, f"{FOREIGN} opt_state.0.count"),
    ("npy", "plain"): (LIMIT, f"{SEVERAL} 3: weight, scale, ids"),
    ("npy", "dtypes"): (LIMIT, f"{SEVERAL} 8: bool, uint8, int8"),
    ("npy", "nested"): (LIMIT, f"{SEVERAL} 13: model.layers.0.w"),
    ("npy", "tuple"): (LIMIT, f"{SEVERAL} 3: pair.0, pair.1, one.0"),
    ("npy", "named tuple"): (LIMIT, f"{SEVERAL} 2: point.x, point.y"),
    ("npy", "ties"): (LIMIT, f"{SEVERAL} 4: tok, norm, head.weight, again"),
    ("npy", "tied model"): (LIMIT, f"{SEVERAL} 7: embed.weight, norm.weight"),
    ("npy", "bfloat16"): (LIMIT, f"{SEVERAL} 2: matrix, vector"),
    ("npy", "float8"): (LIMIT, f"{SEVERAL} 2: matrix, vector"),
    ("npy", "scalars"): (LIMIT, f"{SEVERAL} [23]: loss, count"),
    ("npy", "empty tensors"): (LIMIT, f"{SEVERAL} 2: none, some"),
    ("npy", "integer keys"): (LIMIT, f"{SEVERAL} 4: state.0, state.1, state.10, w"),
    ("npy", "list"): (LIMIT, f"{SEVERAL} 3: 0, 1, 2"),
    ("npy", "layers"): (LIMIT, f"{SEVERAL} 4: dense.kernel, dense.bias, dense_1.kernel"),
    ("npy", "layers in bfloat16"): (LIMIT, f"{SEVERAL} 2: dense.kernel, dense.bias"),
    ("npy", "tied layers"): (LIMIT, f"{SEVERAL} 2: dense.kernel, dense_1.kernel"),
    ("npy", "torch training"): (LIMIT, f"{SEVERAL} 16: model.embed.weight"),
    ("npy", "optax training"): (LIMIT, f"{SEVERAL} 7: params.dense.bias"),
    ("safetensors", "dtypes"): (LIMIT, f"{LACKS} complex128: complex128"),
    # Flax's dataclass has functions in it, which no file holds.
    ("flax", "train state"): (OBJECT, STATE),
    ("gguf", "train state"): (OBJECT, STATE),
    ("hdf5", "train state"): (OBJECT, STATE),
    ("keras", "train state"): (OBJECT, STATE),
    ("npy", "train state"): (OBJECT, STATE),
    ("npz", "train state"): (OBJECT, STATE),
    ("orbax", "train state"): (OBJECT, STATE),
    ("pytorch", "train state"): (OBJECT, STATE),
    ("safetensors", "train state"): (OBJECT, STATE),
    ("tensorflow", "train state"): (OBJECT, STATE),
    ("zarr", "train state"): (OBJECT, STATE),
}
"""The cells that are refused, with the error and what its message names."""
NATIVE = ("flax", "orbax", "pytorch")
"""Formats that keep the scalars of NumPy in a file of PyTorch; to others they are tensors."""


def test_each_format_that_is_written_has_a_reader():
    """Expected: a new format that can be written fails here until the matrix has its reader."""
    assert sorted(READERS) == sorted(each.name for each in own_formats() if each.writes)


def test_each_refusal_is_a_cell():
    """Expected: no format or tree is misspelled in the table, where it would refuse nothing."""
    assert set(REFUSED) <= {(to, sample) for to in READERS for sample in SAMPLES}


def test_the_page_has_the_versions_that_are_tried():
    """Expected: what the page says of the tools is pinned here, and the matrix runs with it."""
    page = (ROOT / "docs" / "reference" / "files.md").read_text(encoding="utf-8")
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    for tool in TOOLS:
        ((version,),) = [re.findall(rf"\| {tool} ([\w.]+) \|", page)]
        assert re.search(
            rf"^{tool}=={re.escape(version)}($|; python_version >=)", pins, re.MULTILINE
        ), tool


# Keras asks TensorFlow for arrays in a way that NumPy 2 warns of.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning:keras")
@pytest.mark.parametrize(("to", "sample", "route"), CELLS)
def test_the_formats_own_tool_reads_it(tmp_path, to, sample, route):
    """Expected: the tool gives the tree, to the last bit; or an error names what is not held."""
    suffix, read = READERS[to]
    tree = SAMPLES[sample].build(as_torch if route in ("save torch", "convert") else np.array)
    target = tmp_path / f"made{suffix}"
    refused = REFUSED.get((to, sample))
    if refused is None:
        _write(tree, target, route)
        read(target, _expected(arrays(tree), to, route))
        return
    error, words = refused
    with pytest.raises(error, match=words):
        _write(tree, target, route)
    assert [each.name for each in tmp_path.iterdir() if each.name != "source.bin"] == []


def _write(tree, target, route):
    if route != "convert":
        ferry.save(tree, target)
        return
    source = target.with_name("source.bin")
    torch.save(tree, source)
    ferry.convert_files(source, target)


def _expected(tree, to, route):
    return tree if to in NATIVE or route != "convert" else mapped(tree, _with_axes, as_it_was)


def _with_axes(leaf):
    return np.asarray(leaf) if isinstance(leaf, np.generic) else leaf
