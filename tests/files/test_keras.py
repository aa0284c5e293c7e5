"""Keras: its weights are read from each of its files, and it loads what is written."""

from __future__ import annotations

import ast
import io
import json
import os
import subprocess
import sys
import zipfile

import h5py
import ml_dtypes
import numpy as np
import pytest
from tests.files.support import arrays, contents, same_bits, sample

from tensorferry.errors import FileFormatError, FormatLimitError, UnsafeFileError
from tensorferry.files.base.contents import Ref
from tensorferry.files.base.limits import refuse_contents
from tensorferry.files.base.pump import Pump
from tensorferry.files.base.stored import Extent
from tensorferry.files.conversion.select import substitution
from tensorferry.files.formats.keras import FORMAT
from tensorferry.files.opening.paths import format_of


def written(path, held):
    refuse_contents(FORMAT, held)
    FORMAT.write(held, path, Pump())
    return FORMAT.read(path)


def weights(values, target):
    """An HDF5 file as ``H5IOStore`` of Keras writes it."""
    with h5py.File(target, "w") as file:
        for name, array in values.items():
            file.create_dataset(name, data=array)
            if array.dtype == ml_dtypes.bfloat16:
                file[name].attrs["dtype"] = "bfloat16"
            file[name].parent.attrs["name"] = "dense"


def archive(path, values, method=zipfile.ZIP_STORED, **more):
    """A .keras file as Keras writes it, with more members."""
    held = io.BytesIO()
    weights(values, held)
    with zipfile.ZipFile(path, "w", method) as file:
        file.writestr("metadata.json", '{"keras_version": "3"}')
        file.writestr(
            "config.json", json.dumps({"class_name": "Lambda", "config": {"function": "os.system"}})
        )
        file.writestr("model.weights.h5", held.getvalue())
        for name, raw in more.items():
            file.writestr(name, raw)


VALUES = {
    "layers/dense/vars/0": np.arange(6, dtype="f4").reshape(2, 3),
    "layers/dense/vars/1": np.arange(3).astype(ml_dtypes.bfloat16),
    "optimizer/vars/0": np.array(7),
}


def test_weights_inside_an_archive_are_read_in_place(tmp_path):
    """Nothing is unpacked: the tensors lie in the archive, under its checksum; the configuration is text."""
    archive(tmp_path / "model.keras", VALUES)
    assert format_of(tmp_path / "model.keras") is FORMAT
    found = FORMAT.read(tmp_path / "model.keras")
    assert same_bits(arrays(found), VALUES)
    assert all(isinstance(stored, Extent) and stored.record for stored in found.tensors.values())
    assert "os.system" in found.metadata["config.json"]
    assert found.metadata["layers/dense/vars@name"] == "dense"
    assert not found.others


def test_a_flipped_bit_in_the_archive_is_caught(tmp_path):
    """The archive's checksum is compared before a tensor's bytes are passed on."""
    archive(tmp_path / "model.keras", VALUES)
    stored = FORMAT.read(tmp_path / "model.keras").tensors["layers/dense/vars/0"]
    raw = bytearray((tmp_path / "model.keras").read_bytes())
    raw[stored.offset] ^= 1
    (tmp_path / "model.keras").write_bytes(raw)
    with pytest.raises(FileFormatError, match="CRC"):
        Pump().array(FORMAT.read(tmp_path / "model.keras").tensors["layers/dense/vars/0"])


def test_other_members_are_listed(tmp_path):
    """Assets are named; compressed or absent weights are refused."""
    archive(tmp_path / "model.keras", VALUES, **{"assets/words.txt": "a"})
    assert set(FORMAT.read(tmp_path / "model.keras").others) == {"assets/words.txt"}
    archive(tmp_path / "packed.keras", VALUES, zipfile.ZIP_DEFLATED)
    with pytest.raises(FileFormatError, match="compressed"):
        FORMAT.read(tmp_path / "packed.keras")
    with zipfile.ZipFile(tmp_path / "none.keras", "w") as file:
        file.writestr("config.json", "{}")
        file.writestr("model.weights.json", "{}")
    with pytest.raises(FileFormatError, match="several files"):
        FORMAT.read(tmp_path / "none.keras")


def test_weights_that_lie_elsewhere_are_refused_by_name(tmp_path):
    """An archive whose weights point to a file of the reader's is unsafe, and that file is not read."""
    (tmp_path / "secret").write_bytes(b"password")
    held = io.BytesIO()
    with h5py.File(held, "w") as file:
        file.create_dataset(
            "layers/dense/vars/0", (8,), "u1", external=[(str(tmp_path / "secret"), 0, 8)]
        )
        file["layers/dense/vars/1"] = h5py.ExternalLink(str(tmp_path / "secret.h5"), "/")
    with zipfile.ZipFile(tmp_path / "model.keras", "w") as file:
        file.writestr("config.json", "{}")
        file.writestr("model.weights.h5", held.getvalue())
    found = FORMAT.read(tmp_path / "model.keras")
    assert not found.tensors
    assert len(found.refuses) == 2


def test_an_archive_with_two_weights_is_unsafe(tmp_path):
    """Two members of one name are refused: readers differ in which they take."""
    archive(tmp_path / "model.keras", VALUES)
    with (
        zipfile.ZipFile(tmp_path / "model.keras", "a") as file,
        pytest.warns(UserWarning, match="Duplicate"),
    ):
        file.writestr("model.weights.h5", b"")
    with pytest.raises(UnsafeFileError):
        FORMAT.read(tmp_path / "model.keras")


def test_the_order_of_keras_2_is_kept(tmp_path):
    """The .h5 of Keras 2 lists its layers and weights: that is the order of the tensors."""
    with h5py.File(tmp_path / "old.h5", "w") as file:
        root = file.create_group("model_weights")
        root.attrs["layer_names"] = np.array([b"z", b"a"])
        for layer in ("a", "z"):
            root.create_group(layer).attrs["weight_names"] = np.array([b"w/kernel:0", b"w/bias:0"])
            root[layer]["w/kernel:0"] = np.ones((2, 2), "f4")
            root[layer]["w/bias:0"] = np.zeros(2, "f4")
        file.attrs["keras_version"] = "2.12.0"
        file.attrs["model_config"] = '{"class_name": "Sequential"}'
    assert format_of(tmp_path / "old.h5") is FORMAT
    found = FORMAT.read(tmp_path / "old.h5")
    order = [
        f"model_weights/{layer}/w/{weight}:0" for layer in "za" for weight in ("kernel", "bias")
    ]
    assert list(found.tensors) == order
    assert found.metadata["model_config"] == '{"class_name": "Sequential"}'


def test_hdf5_of_others_is_not_taken_for_keras(tmp_path):
    """An HDF5 file without the marks of Keras is of the format HDF5; so is a broken one."""
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["x"] = 1
    assert format_of(tmp_path / "data.h5").name == "hdf5"
    (tmp_path / "broken.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + b"\0" * 100)
    assert format_of(tmp_path / "broken.h5").name == "hdf5"


def test_every_dtype_round_trips(tmp_path):
    """Each dtype that is declared comes back bit for bit, and bfloat16 stands there as Keras has it."""
    held = {f"layers/x/vars/{name}": array for name, array in sample(FORMAT.dtypes).items()}
    assert same_bits(arrays(written(tmp_path / "all.weights.h5", contents(held))), held)
    with h5py.File(tmp_path / "all.weights.h5") as file:
        theirs = file["layers/x/vars/bfloat16.flat"]
        assert theirs.attrs["dtype"] == "bfloat16"
        assert same_bits(np.array(theirs, ml_dtypes.bfloat16), held["layers/x/vars/bfloat16.flat"])


def test_ties_and_names_of_layers_come_back(tmp_path):
    """Tied variables are one dataset; the attributes that name layers go back to their groups."""
    shared = np.ones(9)
    held = contents(
        {"layers/a/vars/0": shared, "layers/b/vars/0": shared},
        metadata={"layers/a/vars@name": "embed"},
    )
    found = written(tmp_path / "tied.weights.h5", held)
    assert found.ties == {"layers/b/vars/0": "layers/a/vars/0"}
    assert found.metadata == {"layers/a/vars@name": "embed"}
    with h5py.File(tmp_path / "tied.weights.h5") as file:
        assert file["layers/a/vars"].attrs["name"] == "embed"


def test_what_keras_could_not_load_is_refused():
    """Names that are no variables of Keras, trees, and dtypes that it has not, are refused by name."""
    for name in (
        "dense.weight",
        "model_weights/dense/kernel:0",
        "vars//0",
        "vars/.",
        "a..kernel",
        "./kernel",
    ):
        with pytest.raises(FormatLimitError) as caught:
            refuse_contents(FORMAT, contents({name: np.ones(2)}))
        assert name in str(caught.value)
        (typed,) = ast.literal_eval(str(caught.value).rpartition("rename=")[2])
        assert substitution(typed)(name) == "layers/dense/vars/0"
    several = {name: np.ones(2) for name in ("w", "b", "0.weight")}
    with pytest.raises(FormatLimitError) as caught:
        refuse_contents(FORMAT, contents(several))
    typed = ast.literal_eval(str(caught.value).rpartition("rename=")[2])
    for each in map(substitution, typed):
        several = {each(name): array for name, array in several.items()}
    refuse_contents(FORMAT, contents(several))  # no tensor is left that Keras would not find
    with pytest.raises(FormatLimitError, match="a/vars/0"):
        refuse_contents(FORMAT, contents({"a/vars/0": np.ones(2), "a/vars/0/vars/1": np.ones(2)}))
    with pytest.raises(FormatLimitError, match="float8_e4m3fn"):
        refuse_contents(FORMAT, contents({"vars/0": np.ones(2, ml_dtypes.float8_e4m3fn)}))
    for one, other in (
        ("a.kernel", "a/kernel"),
        ("kernel", "vars/0"),
        ("layers.kernel", "layers/vars/0"),
    ):
        with pytest.raises(FormatLimitError, match="no place for both"):
            refuse_contents(FORMAT, contents({one: np.ones(2), other: np.ones(2)}))


def test_a_plain_tree_goes_where_keras_looks(tmp_path):
    """Variables named as layers name them are numbered as layers make them; names, order and values come back."""
    names = ["bias", "kernel", "moving_variance", "gamma", "beta", "moving_mean"]
    held = {f"dense.{name}": np.full(2, place, "f4") for place, name in enumerate(names[:2])}
    held |= {
        f"batch_normalization.{name}": np.full(2, place, "f4")
        for place, name in enumerate(names[2:])
    }
    tree = {"dense": {}, "batch_normalization": {}, "step": 7}
    for name in held:
        layer, _, last = name.partition(".")
        tree[layer][last] = Ref(name)
    found = written(tmp_path / "a.weights.h5", contents(held, tree=tree, metadata={"note": "x"}))
    assert same_bits(arrays(found), held)
    assert (found.tree, found.metadata) == (tree, {"note": "x"})
    with h5py.File(tmp_path / "a.weights.h5") as file:
        found = {place: file[f"layers/{place}"][0] for place in ("dense/vars/0", "dense/vars/1")}
        assert found == {"dense/vars/0": 1, "dense/vars/1": 0}
        assert [file[f"layers/batch_normalization/vars/{n}"][0] for n in range(4)] == [1, 2, 3, 0]
    written(
        tmp_path / "b.weights.h5", contents({"kernel": np.ones(2), "a/layers/vars/0": np.ones(1)})
    )
    with h5py.File(tmp_path / "b.weights.h5") as file:
        assert file["vars/0"].shape == (2,)


def test_a_whole_model_is_not_written(tmp_path):
    """A .keras file needs a configuration that tensors do not have: it is refused, and nothing is written."""
    with pytest.raises(FormatLimitError, match=r"model\.weights\.h5"):
        FORMAT.write(contents({"vars/0": np.ones(2)}), tmp_path / "model.keras", Pump())
    assert not list(tmp_path.iterdir())


_KERAS = """
import sys, numpy as np, keras, tensorferry as ferry
from pathlib import Path
from tensorferry.files.base.pump import Pump
from tensorferry.files.formats.keras import FORMAT

folder = Path(sys.argv[1])

def model(seed):
    keras.utils.set_random_seed(seed)
    inputs = keras.Input((4,))
    x = keras.layers.BatchNormalization()(keras.layers.Dense(3, name="first")(inputs))
    outputs = keras.layers.Dense(2, dtype="bfloat16")(keras.Sequential([keras.layers.Dense(5)])(x))
    made = keras.Model(inputs, outputs)
    made.compile("adam", "mse")
    return made

def bits(made):
    return [np.asarray(keras.ops.convert_to_numpy(each)).tobytes() for each in made.weights]

saved = model(1)
saved.fit(np.ones((2, 4)), np.ones((2, 2)), verbose=0)
saved.save(folder / "model.keras")
saved.save_weights(folder / "model.weights.h5")
saved.save(folder / "model.h5")
for name in ("model.keras", "model.weights.h5"):
    found = FORMAT.read(folder / name)
    assert not found.others and not found.refuses, (found.others, found.refuses)
    held = [stored.array().tobytes() for path, stored in found.tensors.items() if not path.startswith("optimizer")]
    assert sorted(held) == sorted(bits(saved)), name
    refuse_contents(FORMAT, found)
    target = folder / (name.partition(".")[2] + ".again.weights.h5")
    FORMAT.write(found, target, Pump())
    loaded = model(2)
    assert bits(loaded) != bits(saved)
    # The optimizer of the new model has no variables yet, which Keras remarks upon.
    loaded.load_weights(target, skip_mismatch=False)
    assert bits(loaded) == bits(saved), name
old = FORMAT.read(folder / "model.h5")
held = [stored.array().tobytes() for path, stored in old.tensors.items() if path.startswith("model_weights")]
assert set(held) <= set(bits(saved)) and held
assert all("opaque" in why for why in old.others.values())
keras.utils.clear_session()
layers = [keras.layers.Dense(3), keras.layers.BatchNormalization(), keras.layers.Dense(2)]
plain = keras.Sequential([keras.Input((4,)), *layers])
tree = {}
for number, variable in enumerate(plain.weights):
    layer, last = variable.path.split("/")[-2:]
    tree.setdefault(layer, {})[last] = np.full(variable.shape, number, "f4")
ferry.save(tree, folder / "plain.weights.h5")
plain.load_weights(folder / "plain.weights.h5", skip_mismatch=False)
assert [np.ravel(keras.ops.convert_to_numpy(each))[0] for each in plain.weights] == [*range(8)]
print("equal")
"""


@pytest.mark.slow
def test_keras_itself(tmp_path):
    """Keras's own files are read bit for bit, and a fresh model loads what is written from them."""
    pytest.importorskip("keras", reason="Keras is not installed")
    environment = os.environ | {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-c", _KERAS, str(tmp_path)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.stdout.strip() == "equal", done.stderr
