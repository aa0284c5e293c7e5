"""What an engineer types: loaders, checkpoints, optimizers, models and agents of the libraries around a framework."""

from __future__ import annotations

import functools
import types
import warnings

import numpy as np
import pytest

import tensorferry as ferry

torch = pytest.importorskip("torch", reason="torch is not installed")


def needed(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a library says while it is imported is its own
        return pytest.importorskip(
            name, reason=f"{name} is not installed; `make everyday` installs it"
        )


@pytest.fixture
def jax():
    return needed("jax")


@pytest.fixture
def transformers():
    return needed("transformers")


@pytest.fixture
def gymnasium():
    return needed("gymnasium")


@pytest.fixture
def optax():
    return needed("optax")


@pytest.fixture
def eqx():
    return needed("equinox")


@pytest.fixture
def tf():
    return needed("tensorflow")


SAMPLES = [{"x": np.full(2, n, "float32"), "y": n, "name": f"n{n}"} for n in range(4)]


def first_batch(**keywords):
    return next(iter(torch.utils.data.DataLoader(SAMPLES, batch_size=2, **keywords)))


# -- loaders --------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["torch", "numpy"])
def test_collate_is_a_collate_fn(to):
    """Expected: `functools.partial(ferry.collate, to=…)`, as one would write any collate_fn."""
    batch = first_batch(collate_fn=functools.partial(ferry.collate, to=to))
    assert batch["x"].shape == (2, 2)
    assert batch["y"].tolist() == [0, 1]
    assert batch["name"] == ["n0", "n1"]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_collate_fn_in_workers(method):
    """Expected: it is pickled, and works in a process of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # Python and JAX warn of every fork of a process with threads
        batch = first_batch(
            collate_fn=functools.partial(ferry.collate, to="torch"),
            num_workers=1,
            multiprocessing_context=method,
        )
    assert batch["y"].tolist() == [0, 1]


def test_samples_that_are_pairs():
    """Expected: a pair of batches, as default_collate makes it."""
    x, y = ferry.collate([(np.ones(2), 1), (np.zeros(2), 0)], "torch")
    assert x.tolist() == [[1, 1], [0, 0]]
    assert y.tolist() == [1, 0]


def test_rows_of_unequal_lengths_are_padded_on_request():
    """Expected: an error that says how, and then the padded batch."""
    samples = [{"x": np.ones(2)}, {"x": np.ones(3)}]
    with pytest.raises(ferry.ShapeError) as caught:
        ferry.collate(samples, "torch")
    assert caught.value.hint == 'pad={"x": 0}'
    assert ferry.collate(samples, "torch", pad=0)["x"].tolist() == [[1, 1, 0], [1, 1, 1]]


def test_a_missing_key_is_named():
    """Expected: which key, of which samples."""
    with pytest.raises(ferry.ConversionError, match="y"):
        ferry.collate([{"x": 1}, {"x": 1, "y": 2}], "torch")


def test_a_loader_of_torch_feeds_jax(jax):
    """Expected: labels and features in JAX, with dtype="fit" no word about 64 bits."""
    batches = list(
        ferry.prefetch(torch.utils.data.DataLoader(SAMPLES, batch_size=2), "jax", dtype="fit")
    )
    assert len(batches) == 2
    assert isinstance(batches[0]["y"], jax.Array)
    assert batches[1]["x"].tolist() == [[2, 2], [3, 3]]


def test_a_tf_dataset_feeds_torch(tf):
    """Expected: its batches as tensors, in order."""
    source = tf.data.Dataset.from_tensor_slices({"x": [1.0, 2.0, 3.0]}).batch(2)
    assert [batch["x"].tolist() for batch in ferry.prefetch(source, "torch")] == [[1, 2], [3]]


# -- checkpoints and optimizers -------------------------------------------------------------------


def test_a_state_dict_to_numpy_and_back():
    """Expected: all keys match, buffers too."""
    source, target = (
        torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)) for _ in range(2)
    )
    arrays = ferry.convert_tree(source.state_dict(), "numpy")
    assert all(isinstance(each, np.ndarray) for each in arrays.values())
    target.load_state_dict(ferry.convert_tree(arrays, "torch"))
    assert all(
        torch.equal(source.state_dict()[name], each) for name, each in target.state_dict().items()
    )


def test_a_module_is_answered_with_its_state_dict():
    """Expected: no module that is handed back unconverted."""
    for call in (ferry.to_numpy, lambda x: ferry.convert_tree(x, "numpy")):
        with pytest.raises(ferry.UnsupportedTypeError) as caught:
            call(torch.nn.Linear(1, 1))
        assert "state_dict()" in caught.value.hint


def test_a_list_of_parameters():
    """Expected: arrays that cannot be written, since gradients are taken of them."""
    arrays = ferry.convert_tree(list(torch.nn.Linear(2, 2).parameters()), "numpy")
    assert [array.shape for array in arrays] == [(2, 2), (2,)]
    assert not any(array.flags.writeable for array in arrays)


def test_the_state_of_an_optimizer_and_back():
    """Expected: steps and moments as arrays, the rest as it is, and training goes on from them."""
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    arrays = ferry.convert_tree(optimizer.state_dict(), "numpy", copy=True)
    assert arrays["state"][0]["exp_avg"].shape == (1, 2)
    assert arrays["param_groups"][0]["betas"] == (0.9, 0.999)
    optimizer.load_state_dict(ferry.convert_tree(arrays, "torch"))
    optimizer.step()


def test_a_snapshot_does_not_move_with_training():
    """Expected: the weights as they were."""
    model = torch.nn.Linear(1, 1)
    before = ferry.snapshot(model.state_dict())
    old = before["weight"].clone()
    with torch.no_grad():
        model.weight += 1
    assert torch.equal(before["weight"], old)


def test_gradients_of_a_model_by_name():
    """Expected: a dict of arrays; None where there is no gradient."""
    model = torch.nn.Linear(2, 1)
    model(torch.ones(1, 2)).sum().backward()
    model.bias.grad = None
    arrays = ferry.convert_tree({name: p.grad for name, p in model.named_parameters()}, "numpy")
    assert arrays["weight"].tolist() == [[1, 1]]
    assert arrays["bias"] is None


def test_an_object_with_tensors_that_nobody_knows_is_refused():
    """Expected: an error with the path rather than a batch half converted; kept on request."""

    class Result:
        def __init__(self):
            self.scores = torch.ones(2)

    tree = {"result": Result(), "x": torch.ones(1)}
    with pytest.raises(ferry.ConversionError, match="scores"):
        ferry.convert_tree(tree, "numpy")
    assert ferry.convert_tree(tree, "numpy", unknown="keep")["result"] is tree["result"]


def test_a_namespace_is_entered():
    """Expected: as a dict."""
    argparse = needed("argparse")
    for kind in (types.SimpleNamespace, argparse.Namespace):
        assert isinstance(ferry.convert_tree(kind(x=torch.ones(1)), "numpy").x, np.ndarray)


def test_weights_of_keras_reach_torch(tf):
    """Expected: `get_weights()` and `weights` alike."""
    keras = needed("keras")
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    assert [tuple(each.shape) for each in ferry.convert_tree(model.get_weights(), "torch")] == [
        (2, 3),
        (3,),
    ]
    assert [tuple(each.shape) for each in ferry.convert_tree(model.weights, "torch")] == [
        (2, 3),
        (3,),
    ]


def test_a_checkpoint_of_torch_opens_without_running_it(tmp_path):
    """Expected: tensors and the epoch; a pickled module is refused, not run."""
    torch.save({"model": torch.nn.Linear(1, 1).state_dict(), "epoch": 3}, tmp_path / "a.pt")
    loaded = ferry.load(tmp_path / "a.pt", to="numpy")
    assert loaded["epoch"] == 3
    assert loaded["model"]["weight"].shape == (1, 1)
    torch.save(torch.nn.Linear(1, 1), tmp_path / "b.pt")
    with pytest.raises(ferry.UnsafeFileError):
        ferry.load(tmp_path / "b.pt")


# -- transformers ---------------------------------------------------------------------------------


@pytest.fixture
def bert(transformers):
    shape = {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 8,
    }
    return transformers.BertModel(transformers.BertConfig(vocab_size=20, **shape)).eval()


@pytest.fixture
def tokenizer(transformers):
    tokenizers = needed("tokenizers")
    words = tokenizers.models.WordLevel({"a": 0, "b": 1, "[UNK]": 2, "[PAD]": 3}, unk_token="[UNK]")  # noqa: S106 - no password
    built = tokenizers.Tokenizer(words)
    built.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=built,
        unk_token="[UNK]",  # noqa: S106
        pad_token="[PAD]",  # noqa: S106
    )


def test_a_models_output_keeps_its_class(bert):
    """Expected: the same output class with arrays in it."""
    output = bert(input_ids=torch.tensor([[1, 2, 3]]))
    arrays = ferry.convert_tree(output, "numpy")
    assert type(arrays) is type(output)
    assert arrays.last_hidden_state.shape == (1, 3, 8)


def test_a_tokenizers_batch_feeds_a_model(bert, tokenizer):
    """Expected: `model(**batch)` after one call."""
    batch = ferry.convert_tree(tokenizer(["a b", "a"], padding=True, return_tensors="np"), "torch")
    assert bert(**batch).last_hidden_state.shape == (2, 2, 8)


def test_a_tokenizers_batch_for_jax(tokenizer, jax):
    """Expected: int32 ids with dtype="fit"."""
    batch = ferry.convert_tree(tokenizer(["a b"], return_tensors="np"), "jax", dtype="fit")
    assert batch["input_ids"].dtype == jax.numpy.int32


def test_ids_that_are_lists(tokenizer):
    """Expected: a matrix from the lists of one key; `leaves=` says the same for all keys."""
    batch = tokenizer(["a b", "a"], padding=True)
    assert ferry.to_torch(batch["input_ids"]).tolist() == [[0, 1], [0, 3]]
    tensors = ferry.convert_tree(dict(batch), "torch", leaves=lambda x: isinstance(x, list))
    assert tensors["attention_mask"].tolist() == [[1, 1], [1, 0]]


def test_tokenized_samples_make_a_padded_batch(tokenizer):
    """Expected: what the tokenizer gives goes in as it is, and comes out padded to the longest."""
    for samples in (
        [dict(tokenizer("a b")), dict(tokenizer("a"))],
        [tokenizer("a b"), tokenizer("a")],
    ):
        batch = ferry.collate(samples, "torch", pad={"input_ids": 3, "*_mask": 0})
        assert batch["input_ids"].tolist() == [[0, 1], [0, 3]]
        assert batch["attention_mask"].tolist() == [[1, 1], [1, 0]]


def test_a_cache_is_entered(transformers):
    """Expected: keys and values in the other framework, or an error: never a cache of torch in a tree of arrays."""
    cache = transformers.DynamicCache()
    cache.update(torch.ones(1, 1, 2, 4), torch.zeros(1, 1, 2, 4), 0)
    assert len(ferry.describe_tree({"cache": cache})) == 2
    snapshot = ferry.snapshot({"cache": cache})["cache"]
    assert isinstance(snapshot, transformers.DynamicCache)
    cache.layers[0].keys += 1
    assert snapshot.layers[0].keys.max() == 1


# -- agents ---------------------------------------------------------------------------------------


def test_an_observation_and_an_action(gymnasium):
    """Expected: a float32 tensor out, a plain int in."""
    with gymnasium.make("CartPole-v1") as world:
        observation, _ = world.reset(seed=0)
        assert ferry.to_torch(observation).dtype == torch.float32
        step = world.step(ferry.to_list(torch.tensor(1)))
        assert isinstance(ferry.convert_tree(step, "torch")[0], torch.Tensor)


def test_observations_that_are_dicts_make_a_batch(gymnasium):
    """Expected: arrays and discrete numbers stacked by key."""
    spaces = gymnasium.spaces
    space = spaces.Dict({"position": spaces.Box(0, 1, (2,)), "door": spaces.Discrete(3)}, seed=0)
    batch = ferry.collate([space.sample() for _ in range(3)], "torch")
    assert batch["position"].shape == (3, 2)
    assert batch["door"].dtype == torch.int64
    assert isinstance(
        ferry.convert_tree(space.sample(), "torch", leaves="numbers")["door"], torch.Tensor
    )


def test_many_worlds_at_once(gymnasium, jax):
    """Expected: what a vector environment gives, in JAX."""
    worlds = gymnasium.make_vec("CartPole-v1", num_envs=2)
    observation, _ = ferry.convert_tree(worlds.reset(seed=0), "jax")
    worlds.close()
    assert isinstance(observation, jax.Array)
    assert observation.shape == (2, 4)


# -- JAX and its libraries ------------------------------------------------------------------------


@pytest.fixture
def params(jax):
    return {"w": jax.numpy.ones((2, 2)), "b": jax.numpy.zeros(2)}


def test_the_state_of_optax_and_back(optax, params):
    """Expected: the named tuples of optax, and an update that takes them."""
    optimizer = optax.adam(1e-3)
    state = optimizer.init(params)
    arrays = ferry.convert_tree(state, "numpy")
    assert type(arrays[0]) is type(state[0])
    assert isinstance(arrays[0].mu["w"], np.ndarray)
    updates, _ = optimizer.update(params, ferry.convert_tree(arrays, "jax"))
    assert updates["w"].shape == (2, 2)


def test_gradients_of_jax_reach_torch(jax, params):
    """Expected: the same tree."""
    grads = ferry.convert_tree(jax.grad(lambda p: p["w"].sum())(params), "torch")
    assert grads["w"].tolist() == [[1, 1], [1, 1]]


def test_parameters_of_flax_and_back(jax):
    """Expected: a nested dict, also frozen, and a model that takes it."""
    linen, core = needed("flax.linen"), needed("flax.core")
    model, x = linen.Dense(2), jax.numpy.ones((1, 3))
    variables = model.init(jax.random.key(0), x)
    tensors = ferry.convert_tree(variables, "torch")
    assert tensors["params"]["kernel"].shape == (3, 2)
    assert np.array_equal(
        model.apply(ferry.convert_tree(tensors, "jax"), x), model.apply(variables, x)
    )
    assert isinstance(ferry.convert_tree(core.freeze(variables), "torch"), core.FrozenDict)


def test_a_parameter_of_nnx_cannot_be_written_through_numpy(jax):
    """Expected: JAX's memory never changes, in any wrapper."""
    nnx = needed("flax.nnx")
    linear = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    array = ferry.to_numpy(linear.kernel)
    assert not (array.flags.writeable and ferry.shares_memory(array, linear.kernel[...]))
    assert ferry.convert_tree(nnx.to_pure_dict(nnx.state(linear)), "torch")["kernel"].shape == (
        2,
        2,
    )


def test_an_equinox_module_keeps_its_static_fields(eqx, jax):
    """Expected: arrays change, sizes and functions stay, and the module can be called again."""
    model = eqx.nn.MLP(2, 1, 4, 1, key=jax.random.key(0))
    arrays = ferry.convert_tree(model, "numpy")
    assert isinstance(arrays.layers[0].weight, np.ndarray)
    assert (arrays.in_size, arrays.depth) == (2, 1)
    x = jax.numpy.ones(2)
    assert np.array_equal(ferry.convert_tree(arrays, "jax")(x), model(x))


def test_equinox_samples_with_other_static_fields_make_no_batch(eqx):
    """Expected: refused, since a batch has one static field."""

    class Sample(eqx.Module):
        x: np.ndarray
        name: str = eqx.field(static=True)

    with pytest.raises(ferry.ConversionError):
        ferry.collate([Sample(np.ones(2), "a"), Sample(np.ones(2), "b")], "torch")


def test_random_keys_in_a_tree_are_named_by_path(jax):
    """Expected: where the key is, and what to type."""
    with pytest.raises(ferry.UnsupportedTypeError, match=r'\$\["key"\]') as caught:
        ferry.convert_tree({"key": jax.random.key(0), "x": np.ones(1, "f")}, "numpy")
    assert "key_data" in caught.value.hint


def test_a_train_state_of_flax(optax, jax):
    """Expected: parameters and the optimizer's state; functions stay."""
    linen, train = needed("flax.linen"), needed("flax.training.train_state")
    model = linen.Dense(2)
    variables = model.init(jax.random.key(0), jax.numpy.ones((1, 3)))
    state = train.TrainState.create(
        apply_fn=model.apply, params=variables["params"], tx=optax.adam(1e-3)
    )
    arrays = ferry.convert_tree(state, "numpy")
    assert isinstance(arrays.params["kernel"], np.ndarray)
    assert isinstance(arrays.opt_state[0].mu["kernel"], np.ndarray)
    assert arrays.apply_fn == state.apply_fn
