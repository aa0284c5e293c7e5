"""Each format's own tool, and what it has to give for a tree: names, structure, dtypes and bits.

What is expected is a rule in plain Python, or what the tool gives for a file of its own. Nothing
here asks tensorferry.
"""

from __future__ import annotations

import tempfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch
from tests.files.official_trees import (
    as_it_was,
    as_torch,
    children,
    in_numpy,
    later_names,
    mapped,
    names,
    same_bits,
    same_tree,
)


def as_numpy_gives(array):
    """What NumPy has for an array: a dtype that is not its own is as many bytes."""
    return array if array.dtype.isbuiltin == 1 else array.view(f"V{array.itemsize}")


def read_npy(path, tree):
    """`numpy.load` gives the only tensor."""
    (array,) = names(tree).values()
    same_bits(np.load(path, allow_pickle=False), as_numpy_gives(array))


def read_npz(path, tree):
    """`numpy.load` gives each tensor by its dotted name, tied ones too."""
    wanted = names(tree)
    with np.load(path, allow_pickle=False) as file:
        assert sorted(file.files) == sorted(wanted)
        for name, array in wanted.items():
            same_bits(file[name], as_numpy_gives(array))


def read_safetensors(path, tree):
    """Dotted names; of tied tensors the first, the others as metadata: safetensors' convention."""
    import safetensors
    import safetensors.torch

    named = names(tree)
    tied = later_names(named)
    wanted = {name: array for name, array in named.items() if name not in tied}
    with safetensors.safe_open(path, framework="pt") as file:
        told = file.metadata()
        assert sorted(file.keys()) == sorted(wanted)
        for name, array in wanted.items():
            same_bits(in_numpy(file.get_tensor(name)), array)
    assert told["format"] == "pt"
    assert {key: text for key, text in told.items() if key in named} == tied
    found = safetensors.torch.load_file(path)
    assert sorted(found) == sorted(wanted)
    for name, array in wanted.items():
        same_bits(in_numpy(found[name]), array)
    # It has no float8 for NumPy.
    if not any(array.dtype.name.startswith("float8") for array in wanted.values()):
        _read_safetensors_in_numpy(path, wanted)
    _load_into_a_module(path, named)


def _read_safetensors_in_numpy(path, wanted):
    import safetensors.numpy

    found = safetensors.numpy.load_file(path)
    assert sorted(found) == sorted(wanted)
    for name, array in wanted.items():
        same_bits(found[name], array)


def _load_into_a_module(path, named):
    """`safetensors.torch.load_model` is strict with a module that has all names, and its ties."""
    import safetensors.torch

    module, parameters = torch.nn.Module(), {}
    for name, array in named.items():
        blank = torch.zeros_like(as_torch(array))
        shared = parameters.setdefault(id(array), torch.nn.Buffer(blank))
        *above, last = name.split(".")
        inner = module
        for each in above:
            inner._modules.setdefault(each, torch.nn.Module())
            inner = inner._modules[each]
        inner.register_buffer(last, shared)
    missing, unexpected = safetensors.torch.load_model(module, path)
    assert (list(missing), list(unexpected)) == ([], [])
    found = module.state_dict()
    for name, array in named.items():
        same_bits(in_numpy(found[name]), array)


def read_pytorch(path, tree):
    """`torch.load` gives the tree itself, its ties too; named tuples are dicts of their fields.

    Over scalars of NumPy it has to be told that they are safe, as with a file of `torch.save`.
    """
    wanted = mapped(tree, _as_tensor, _without_classes)
    tied = later_names(names(tree))
    own = path.with_name("own.pt")
    torch.save(wanted, own)
    asked = torch.serialization.get_unsafe_globals_in_checkpoint
    assert sorted(asked(path)) == sorted(asked(own))
    numpy = [np.dtype, np._core.multiarray.scalar, type(np.dtype(np.float32))] if asked(own) else []
    for how in ({}, {"mmap": True}):
        with torch.serialization.safe_globals(numpy):
            found = torch.load(path, weights_only=True, **how)
        same_tree(found, wanted)
        places = _places(found)
        for name, first in tied.items():
            assert places[name] == places[first], name
        assert len(set(places.values())) == len(places) - len(tied)


def _as_tensor(leaf):
    return as_torch(leaf) if isinstance(leaf, np.ndarray) else leaf


def _without_classes(node, pairs):
    """The container as it is loaded: a named tuple as a dict of its fields."""
    return dict(pairs) if hasattr(node, "_fields") else as_it_was(node, pairs)


def _places(tree, prefix=""):
    """The addresses of the tensors that have elements, by dotted names."""
    inside = children(tree)
    if inside is None:
        held = isinstance(tree, torch.Tensor) and tree.numel()
        return {prefix: tree.data_ptr()} if held else {}
    result = {}
    for key, child in inside:
        result |= _places(child, f"{prefix}.{key}" if prefix else str(key))
    return result


def read_hdf5(path, tree):
    """A dataset with the dotted name of each tensor; tied ones are two links to one dataset."""
    import h5py

    wanted = names(tree)
    with h5py.File(path) as file:
        listed = []
        file.visititems_links(lambda name, _: listed.append(name))
        assert sorted(listed) == sorted(wanted)
        found = {name: file[name] for name in listed}
        for name, array in wanted.items():
            _same_in_hdf5(found[name], array)
        for name, first in later_names(wanted).items():
            assert found[name] == found[first]


IN_HDF5 = {"bfloat16": "float32", "float8_e5m2": "float16"}
"""What h5py reads from floats that NumPy does not have: the next one that holds all of them."""


def _same_in_hdf5(dataset, array):
    kind = array.dtype.name
    if kind in IN_HDF5:
        values = array.astype(IN_HDF5[kind])
        assert (dataset.dtype, dataset.shape) == (values.dtype, values.shape)
        # What a float that is no number holds is for the library to say.
        numbers = ~np.isnan(values)
        assert np.array_equal(np.isnan(dataset[()]), ~numbers)
        same_bits(dataset[()][numbers], values[numbers])
    elif kind.startswith("float8"):
        assert dataset.attrs["dtype"] == kind
        same_bits(dataset[()], array.view(f"V{array.itemsize}"))
    else:
        same_bits(np.asarray(dataset[()]), array)


def read_keras(path, tree):
    """`load_weights` fills a model with a layer of each size."""
    import keras

    units = [layer["kernel"].shape for layer in tree.values()]
    kinds = [layer["kernel"].dtype.name for layer in tree.values()]
    biases = ["bias" in layer for layer in tree.values()]
    keras.backend.clear_session()
    made = keras.Sequential([keras.Input((units[0][0],), dtype=kinds[0])])
    for shape, kind, has_bias in zip(units, kinds, biases, strict=True):
        made.add(keras.layers.Dense(shape[1], dtype=kind, use_bias=has_bias))
    made.load_weights(path)
    for layer, wanted in zip(made.layers, tree.values(), strict=True):
        same_bits(keras.ops.convert_to_numpy(layer.kernel), wanted["kernel"])
        if "bias" in wanted:
            same_bits(keras.ops.convert_to_numpy(layer.bias), wanted["bias"])


def read_tensorflow(path, tree):
    """`tf.train.load_checkpoint` gives each tensor by its dotted name, tied ones too."""
    import tensorflow as tf

    wanted = names(tree)
    reader = tf.train.load_checkpoint(str(path))
    found = [name for name, kind in reader.get_variable_to_dtype_map().items() if kind != tf.string]
    assert sorted(found) == sorted(wanted)
    for name, array in wanted.items():
        same_bits(np.asarray(reader.get_tensor(name)), array)


IN_GGUF = {
    "float32": "F32",
    "float16": "F16",
    "float64": "F64",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "bfloat16": "BF16",
}


def read_gguf(path, tree):
    """`GGUFReader` gives each tensor by its dotted name, tied ones too, and the last axis first."""
    import gguf

    wanted = names(tree)
    found = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    assert list(found) == list(wanted)
    for name, array in wanted.items():
        tensor = found[name]
        assert tensor.tensor_type.name == IN_GGUF[array.dtype.name]
        assert tensor.shape.tolist() == list(reversed(array.shape))
        assert tensor.data.tobytes() == array.tobytes()
        if array.dtype.name != "bfloat16":
            same_bits(tensor.data, array)


def read_zarr(path, tree):
    """An array with the dotted name of each tensor, tied ones too; bits of what zarr lacks."""
    import zarr

    wanted = names(tree)
    group = zarr.open_group(str(path), mode="r")
    found = dict(group.members(max_depth=None))
    assert sorted(found) == sorted(wanted)
    for name, array in wanted.items():
        stored, kind = found[name], array.dtype.name
        if kind == "bfloat16" or kind.startswith("float8"):
            assert stored.attrs["tensorferry.dtype"] == kind
            same_bits(np.asarray(stored[...]), array.view(f"u{array.itemsize}"))
        else:
            same_bits(np.asarray(stored[...]), array)


def read_flax(path, tree):
    """`msgpack_restore` gives what Flax's own file gives, and `from_bytes` fills a template."""
    from flax import serialization

    own = mapped(tree, lambda leaf: leaf, _without_order)
    raw, theirs = path.read_bytes(), serialization.to_bytes(own)
    same_tree(serialization.msgpack_restore(raw), serialization.msgpack_restore(theirs))
    same_tree(serialization.from_bytes(_blank(own), raw), own)


def _without_order(node, pairs):
    """The container as JAX's libraries take it: an ordered dict is no dict to them."""
    return dict(pairs) if isinstance(node, OrderedDict) else as_it_was(node, pairs)


def _blank(tree):
    """The tree with other values: what a restore does not fill is seen."""
    return mapped(tree, _zeros, as_it_was)


def _zeros(leaf):
    return np.zeros_like(leaf) if isinstance(leaf, np.ndarray) else leaf


def read_orbax(path, tree):
    """Each checkpointer restores what it does from Orbax's own checkpoint, into a template too."""
    import orbax.checkpoint as ocp

    own = mapped(tree, lambda leaf: leaf, _without_order)
    kinds = (ocp.PyTreeCheckpointer, ocp.StandardCheckpointer)
    with tempfile.TemporaryDirectory() as folder:
        theirs = [Path(folder) / kind.__name__ for kind in kinds if _can_save(kind, own)]
        for place in theirs:
            with getattr(ocp, place.name)() as saver:
                saver.save(place, own)
        for kind in kinds:
            with kind() as restorer:
                # Orbax itself saves no arrays without elements, but it restores them.
                wanted = [_with_empty(restorer.restore(each), own) for each in theirs] or [own]
                _same_as_one(restorer.restore(path), wanted)
                if _takes_template(kind, own):
                    wanted = [restorer.restore(each, _blank(own)) for each in theirs] or [own]
                    _same_as_one(restorer.restore(path, _blank(own)), wanted)


def _with_empty(found, own):
    """What Orbax restores of its own, with the dict that a named tuple without fields is in files.

    Orbax has ``None`` for it, which Flax does not take for a state of it.
    """
    inside = children(own)
    if inside is None:
        return found
    if not inside and hasattr(own, "_fields"):
        assert found is None
        return {}
    below = {str(key): child for key, child in inside}
    return as_it_was(
        found, [(key, _with_empty(child, below[str(key)])) for key, child in children(found)]
    )


def _leaves(tree):
    import jax

    return jax.tree.leaves(tree)


def _can_save(kind, own):
    """Whether a checkpointer can save a tree: none saves arrays without elements, one no text."""
    if any(isinstance(leaf, np.ndarray) and not leaf.size for leaf in _leaves(own)):
        return False
    has_text = any(isinstance(leaf, str) for leaf in _leaves(own))
    return kind.__name__ != "StandardCheckpointer" or not has_text


def _takes_template(kind, own):
    """Whether the tree can be a template: the standard one wants arrays and Python's numbers."""
    odd = any(isinstance(leaf, (str, np.generic)) for leaf in _leaves(own))
    return kind.__name__ != "StandardCheckpointer" or not odd


def _same_as_one(found, wanted):
    """A restored tree is as the first of these, or as another: they differ in scalars of NumPy."""
    for each in wanted[1:]:
        try:
            same_tree(found, each)
        except AssertionError:
            continue
        return
    same_tree(found, wanted[0])


READERS = {
    "flax": (".msgpack", read_flax),
    "gguf": (".gguf", read_gguf),
    "hdf5": (".h5", read_hdf5),
    "keras": (".weights.h5", read_keras),
    "npy": (".npy", read_npy),
    "npz": (".npz", read_npz),
    "orbax": (".orbax", read_orbax),
    "pytorch": (".pt", read_pytorch),
    "safetensors": (".safetensors", read_safetensors),
    "tensorflow": (".tfckpt", read_tensorflow),
    "zarr": (".zarr", read_zarr),
}
"""The suffix of each format that is written, and its official reader."""
