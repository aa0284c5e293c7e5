"""Containers of other libraries: entered by every function for trees, and the same type again where it can be."""

from __future__ import annotations

import argparse
import collections
import functools

import numpy as np
import pytest
from tests.support import importable, survives

import tensorferry as ferry

torch = pytest.importorskip("torch")


def paths(tree):
    return list(ferry.describe_tree(tree))


def cache():
    transformers = pytest.importorskip("transformers")
    result = transformers.DynamicCache()
    for layer in range(2):
        result.update(torch.ones(1, 2, 3, 4), torch.zeros(1, 2, 3, 4), layer)
    return result


@functools.cache
def model_class():
    pydantic = pytest.importorskip("pydantic")

    class Sample(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(arbitrary_types_allowed=True, extra="allow", frozen=True)
        image: torch.Tensor
        name: str = "digit"
        _hidden: object = pydantic.PrivateAttr(default=None)

    return Sample


def model():
    result = model_class()(image=torch.ones(2), more=torch.zeros(1))
    result._hidden = torch.ones(3)
    return result


def graphs():
    reason = "PyTorch Geometric is no test dependency: pip install torch_geometric"
    data = pytest.importorskip("torch_geometric.data", reason=reason)
    edges = torch.zeros(2, 1, dtype=torch.long)
    return data, [data.Data(x=torch.ones(n, 2), edge_index=edges, name="g") for n in (2, 3)]


def tensordict(**more):
    library = importable("tensordict")
    values = {"a": torch.ones(3, 2), "b": {"c": torch.zeros(3), "empty": {}}, "text": "words"}
    return library.TensorDict({**values, **more}, batch_size=[3], names=["time"], device="cpu")


# -- transformers ----------------------------------------------------------------------------------


def test_a_cache_is_entered_and_is_one_again():
    """Its layers hold arrays, and the one that came in is what it was."""
    source = cache()
    result = ferry.convert_tree({"cache": source}, "numpy")["cache"]
    assert type(result) is type(source)
    assert all(type(layer) is type(source.layers[0]) for layer in result.layers)
    assert isinstance(result.layers[1].keys, np.ndarray)
    assert isinstance(source.layers[1].keys, torch.Tensor)
    assert paths(source) == [
        f"$.layers[{i}].{name}" for i in range(2) for name in ("keys", "values")
    ]
    assert [leaf.path for leaf in ferry.explain_tree(source, "numpy").leaves] == paths(source)
    assert isinstance(ferry.convert_tree(result, "torch").layers[0].keys, torch.Tensor)


def test_a_snapshot_of_a_cache_does_not_move_with_it():
    """Neither when its tensors are written, nor when it grows, nor when it was empty."""
    source = cache()
    empty = type(source)()
    before, nothing = ferry.snapshot([source, empty])
    source.layers[0].keys += 1
    for each in (source, empty):
        each.update(torch.ones(1, 2, 1, 4), torch.ones(1, 2, 1, 4), 0)
    assert before.get_seq_length() == 3
    assert before.layers[0].keys.max() == 1
    assert nothing.get_seq_length() == 0
    before.update(torch.ones(1, 2, 1, 4), torch.ones(1, 2, 1, 4), 0)
    assert before.get_seq_length() == 4


def test_a_layer_says_what_its_keys_are_now():
    """What it allocates next is of that dtype."""

    def allocates(layer):
        # From transformers 5.24 on, a layer has only its keys to say so.
        return getattr(layer, "dtype", layer.keys.dtype)

    source = cache()
    assert (
        allocates(ferry.convert_tree(source, "torch", dtype="float16").layers[0]) is torch.float16
    )
    assert allocates(source.layers[0]) is torch.float32


def test_a_cache_of_two_caches_is_entered():
    """What it counts of itself is its own in the copy."""
    transformers = pytest.importorskip("transformers")
    source = transformers.EncoderDecoderCache(cache(), cache())
    assert len(paths(source)) == 8
    copied = ferry.snapshot(source)
    source.is_updated[0] = False
    assert type(copied) is type(source)
    assert copied.is_updated == {0: True, 1: True}


def test_caches_are_stacked():
    """Counts and flags are no tensors of a batch."""
    batch = ferry.collate([cache(), cache()], "torch")
    assert batch.layers[0].keys.shape == (2, 1, 2, 3, 4)
    assert batch.layers[0].is_initialized is True


def test_what_a_tokenizer_remembers_of_one_text_is_not_said_of_a_batch():
    """And two texts stack although it differs."""
    transformers = pytest.importorskip("transformers")
    samples = [
        transformers.BatchEncoding(
            {"input_ids": torch.tensor([i])}, encoding=[object()], n_sequences=1
        )
        for i in range(2)
    ]
    batch = ferry.collate(samples, "torch")
    assert type(batch) is type(samples[0])
    assert batch["input_ids"].tolist() == [[0], [1]]
    assert batch.encodings is None


# -- pydantic --------------------------------------------------------------------------------------


def test_a_model_is_entered_with_all_that_it_holds():
    """Its fields, what it was given beside them, and private attributes; no validator runs."""
    source = model()
    result = ferry.convert_tree(source, "numpy")
    assert type(result) is type(source)
    assert [type(x) for x in (result.image, result.more, result._hidden)] == [np.ndarray] * 3
    assert [type(x) for x in (source.image, source.more, source._hidden)] == [torch.Tensor] * 3
    assert result.name == "digit"
    assert result.model_fields_set == source.model_fields_set
    assert result.model_fields_set is not source.model_fields_set
    assert paths(source) == ["$.image", "$.more", "$._hidden"]


def test_models_are_stacked():
    """What is no number becomes a list."""
    batch = ferry.collate([model(), model()], "torch")
    assert batch.image.shape == (2, 2)
    assert batch.name == ["digit", "digit"]


# -- PyTorch Geometric -----------------------------------------------------------------------------


def test_a_graph_is_entered():
    """Its attributes are in a store, which belongs to the new one."""
    _, (graph, _) = graphs()
    result = ferry.convert_tree(graph, "numpy")
    assert isinstance(result.x, np.ndarray)
    assert result.name == "g"
    result.x = None
    assert isinstance(graph.x, torch.Tensor)
    assert paths(graph) == ["$.x", "$.edge_index"]
    assert ferry.collate([graph, graph], "torch").x.shape == (2, 2, 2)


def test_a_batch_of_graphs_can_be_parted_again():
    """A copy has its own slices."""
    data, samples = graphs()
    batch = data.Batch.from_data_list(samples)
    copied = ferry.snapshot(batch)
    batch._slice_dict["x"].zero_()
    batch.x.zero_()
    assert type(copied) is type(batch)
    assert [graph.x.shape for graph in copied.to_data_list()] == [(2, 2), (3, 2)]
    assert copied.x.min() == 1
    with pytest.raises(ferry.UnsupportedTypeError, match=r"from_data_list"):
        ferry.collate([batch, batch], "torch")


def test_a_graph_of_several_kinds_is_entered():
    """Each kind's tensors by its name."""
    data, _ = graphs()
    graph = data.HeteroData()
    graph["paper"].x = torch.ones(2, 1)
    graph["paper", "cites", "paper"].edge_index = torch.zeros(2, 1, dtype=torch.long)
    assert paths(graph) == ['$["paper"].x', "$[('paper', 'cites', 'paper')].edge_index"]
    assert isinstance(ferry.convert_tree(graph, "numpy")["paper"].x, np.ndarray)
    assert isinstance(graph["paper"].x, torch.Tensor)


# -- tensordict ------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["numpy", "jax", "tensorflow"])
def test_a_tensordict_is_a_dict_in_other_frameworks(target):
    """All the way down, and text is text."""
    pytest.importorskip(target)
    result = ferry.convert_tree(tensordict(), target)
    assert type(result) is dict
    assert type(result["b"]) is dict
    assert ferry.describe(result["b"]["c"]).framework == target
    assert result["b"]["empty"] == {}
    assert result["text"] == "words"


@pytest.mark.parametrize("locked", [True, False])
def test_a_tensordict_stays_one_while_its_tensors_are_of_its_framework(locked):
    """With its names, its device, what is no tensor, and its lock."""
    source = tensordict()
    if locked:
        source.lock_()
    for result in (ferry.convert_tree(source, "torch", dtype="float16"), ferry.snapshot(source)):
        assert type(result) is type(source)
        assert (result.batch_size, result.names, result.device) == (
            source.batch_size,
            ["time"],
            source.device,
        )
        assert (result.is_locked, result["b"].is_locked) == (locked, locked)
        assert result["text"] == "words"
        result.unlock_()["b"].set("new", torch.ones(3))
    assert "new" not in source["b"].keys()  # noqa: SIM118 - to iterate over one goes along its batch
    assert source.is_locked is locked


def test_a_batch_of_tensordicts_has_an_axis_in_front():
    """A text of each sample, and a name for the new axis of none."""
    batch = ferry.collate([tensordict(text=text) for text in ("first", "second")], "torch")
    assert batch.batch_size == (2, 3)
    assert batch.names == [None, "time"]
    assert batch["b"]["c"].shape == (2, 3)
    assert batch.get("text").tolist() == [["first"] * 3, ["second"] * 3]
    assert ferry.collate([tensordict(), tensordict()], "numpy")["text"] == ["words", "words"]


def test_a_class_of_tensors_and_a_lazy_stack():
    """The same again, or a dict and a list of dicts."""
    library = importable("tensordict")

    @library.tensorclass
    class Step:
        image: torch.Tensor
        name: str

    step = Step(image=torch.ones(3), name="first", batch_size=[3])
    assert type(ferry.convert_tree(step, "torch", copy=True)) is Step
    found = ferry.convert_tree(step, "numpy")
    assert (type(found), type(found["image"]), found["name"]) == (dict, np.ndarray, "first")
    stack = library.LazyStackedTensorDict(tensordict(), tensordict())
    assert type(ferry.snapshot(stack)) is type(stack)
    assert [type(each) for each in ferry.convert_tree(stack, "numpy")] == [dict, dict]


# -- frameworks and Python -------------------------------------------------------------------------


def test_parameters_stay_parameters_or_become_a_dict():
    """To wrap what has left the module would cut it off its graph."""
    held = torch.nn.ParameterDict({"weight": torch.ones(2)})
    rows = torch.nn.ParameterList([torch.ones(2), torch.zeros(1)])
    same = ferry.convert_tree([held, rows], "torch")
    assert [type(each) for each in same] == [type(held), type(rows)]
    assert same[0]["weight"] is held["weight"]
    assert [id(each) for each in same[1].parameters()] == [id(each) for each in rows.parameters()]
    same[0]["more"] = torch.ones(1)
    assert list(held) == ["weight"]
    cast = ferry.convert_tree(held, "torch", dtype="float64")
    assert type(cast) is dict
    assert cast["weight"].grad_fn is not None
    assert [type(each) for each in ferry.convert_tree([held, rows], "numpy")] == [dict, list]
    assert not ferry.snapshot(held)["weight"].requires_grad
    assert paths([held, rows]) == ['$[0]["weight"]', "$[1][0]", "$[1][1]"]


def test_what_a_module_of_tensorflow_has_wrapped_is_entered():
    """Its lists, dicts and tuples come out plain: what is tracked is the module's."""
    tf = pytest.importorskip("tensorflow")
    module = tf.Module()
    module.rows, module.named, module.pair = (
        [tf.Variable(1.0)],
        {"a": [tf.Variable(2.0)]},
        (tf.Variable(3.0),),
    )
    result = ferry.convert_tree([module.rows, module.named, module.pair], "numpy")
    assert [type(each) for each in result] == [list, dict, tuple]
    assert [float(x) for x in (result[0][0], result[1]["a"][0], result[2][0])] == [1, 2, 3]
    assert paths({"named": module.named}) == ['$["named"]["a"][0]']


@pytest.mark.parametrize(
    ("container", "values"),
    [
        (collections.UserList([np.ones(2), "text"]), list),
        (collections.UserDict(a=np.ones(2), b="text"), lambda x: list(x.values())),
        (argparse.Namespace(a=np.ones(2), b="text"), lambda x: list(vars(x).values())),
    ],
)
def test_containers_of_the_standard_library(container, values):
    """Entered, and of the same class again; what came in is what it was."""
    for tree in (container, ferry.snapshot(container)):
        result = ferry.convert_tree(tree, "torch")
        assert type(result) is type(container)
        assert isinstance(values(result)[0], torch.Tensor)
        assert values(result)[1] == "text"
        assert isinstance(values(tree)[0], np.ndarray)
    assert values(ferry.collate([container, container], "numpy"))[1] == ["text", "text"]


def test_an_attribute_of_a_user_list_is_kept():
    """As it is of a UserDict."""
    rows = collections.UserList([np.ones(2)])
    rows.note = "mine"
    assert ferry.convert_tree(rows, "torch").note == "mine"


def test_no_library_is_imported_and_no_registry_changed():
    """A tree of NumPy's loads none of them, and torch's registry is as it was after a cache has been entered."""
    survives(
        """
        import sys, numpy as np, tensorferry as ferry

        ferry.snapshot([np.ones(2), object()])
        libraries = ("transformers", "pydantic", "tensordict", "torch_geometric", "torch")
        assert not [name for name in libraries if name in sys.modules]
        """
    )
    cache_, dict_ = cache(), tensordict()
    from torch.utils import _pytree

    before = set(_pytree.SUPPORTED_NODES)
    ferry.convert_tree([cache_, dict_, model()], "numpy")
    assert set(_pytree.SUPPORTED_NODES) == before


def test_the_text_in_a_tensordict_keeps_its_order():
    """Whatever the hashes of its keys are in this process."""
    tensordict = pytest.importorskip("tensordict")
    text = {f"k{index}": f"text{index}" for index in range(20)}
    tree = tensordict.TensorDict({"x": torch.ones(2), **text}, batch_size=[2])
    assert [*ferry.snapshot(tree).keys()] == ["x", *text]
    assert [*ferry.collate([tree, tree], "torch").keys()] == ["x", *text]
