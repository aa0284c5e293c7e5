"""`unknown="keep"` keeps whatever would be refused as a leaf; and nothing is refused where nothing is converted."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import tensorferry as ferry

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
tf = pytest.importorskip("tensorflow")
torch = pytest.importorskip("torch")


def scipy_matrix():
    return pytest.importorskip("scipy.sparse", reason="scipy is not in this environment").csr_array(
        np.eye(2)
    )


def quantized():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it goes away
        return torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8)


def deleted():
    x = jnp.ones(2)
    x.delete()
    return x


REFUSED = {
    "a sparse matrix of SciPy": scipy_matrix,
    "a sparse tensor": lambda: torch.eye(2).to_sparse(),
    "a quantized tensor": quantized,
    "a jagged tensor": lambda: torch.nested.nested_tensor(
        [torch.ones(2), torch.ones(3)], layout=torch.jagged
    ),
    "a meta tensor": lambda: torch.ones(2, device="meta"),
    "complex32": lambda: torch.zeros(2, dtype=torch.complex32),
    "a ragged tensor": lambda: tf.ragged.constant([[1], [2, 3]]),
    "a sparse tensor of TensorFlow": lambda: tf.sparse.from_dense([[1, 0]]),
    "a masked array": lambda: np.ma.masked_equal(np.arange(3), 1),
    "a matrix": lambda: np.array([[1.0]]).view(np.matrix),
    "extended precision": lambda: np.ones(2, np.longdouble),
    "bytes of no dtype": lambda: np.zeros(2, "V3"),
    "objects": lambda: np.array([1, "a"], object),
    "keys": lambda: jax.random.key(0),
    "a deleted array": deleted,
    "a column with nulls": lambda: pd.Series([1, None], dtype="Int64"),
    "integers of 128 bits": lambda: pl.Series([1], dtype=pl.Int128),
    "views of lists": lambda: pa.array([[1]], pa.list_view(pa.int64())),
    "several columns": lambda: pd.MultiIndex.from_tuples([(1, 2)]),
}
if np.dtype(np.longdouble) == np.float64:
    del REFUSED["extended precision"]

CALLS = {
    "convert_tree": lambda tree, **keep: ferry.convert_tree(tree, "numpy", **keep),
    "convert_tree, by a name": lambda tree, **keep: ferry.convert_tree(
        tree, "numpy", dtype={"n": "float32"}, **keep
    ),
    "convert_tree, by a kind": lambda tree, **keep: ferry.convert_tree(
        tree, "numpy", dtype="float32", **keep
    ),
    "convert_tree, like": lambda tree, **keep: ferry.convert_tree(tree, like=np.ones(1), **keep),
    "start": lambda tree, **keep: ferry.start(tree, "numpy", **keep).result(),
    "prefetch": lambda tree, **keep: next(iter(ferry.prefetch([tree], "numpy", **keep))),
    "collate": lambda tree, **keep: _first(ferry.collate([tree, tree], "numpy", **keep)),
}


def _first(batch):
    return {"x": batch["x"][0], "n": batch["n"][0]}


@pytest.mark.filterwarnings("ignore:ComplexHalf:UserWarning")
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_kept_on_request(name, call):
    """Only on request; everything else in the tree is converted."""
    tree = {"x": REFUSED[name](), "n": torch.ones(2)}
    with pytest.raises(ferry.UnsupportedTypeError):
        CALLS[call](tree)
    with pytest.raises(ferry.UnsupportedTypeError):
        CALLS[call](tree, unknown="error")
    made = CALLS[call](tree, unknown="keep")
    assert made["x"] is tree["x"]
    assert isinstance(made["n"], np.ndarray)
    assert made["n"].tolist() == [1, 1]


@pytest.mark.filterwarnings("ignore:ComplexHalf:UserWarning")
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_kept_is_listed(name):
    """By `explain_tree` and `explain_collate`, with its path."""
    tree = {"x": REFUSED[name](), "n": np.ones(2)}
    plan = ferry.explain_tree(tree, "numpy", unknown="keep")
    assert [kept.path for kept in plan.kept] == ['$["x"]']
    assert list(plan.plans) == ['$["n"]']
    batch = ferry.explain_collate([tree, tree], "numpy", unknown="keep")
    assert [kept.path for kept in batch.kept] == ['$["x"]']


@pytest.mark.filterwarnings("ignore:ComplexHalf:UserWarning")
@pytest.mark.parametrize("name", [each for each in REFUSED if each != "keys"])
def test_a_snapshot_keeps_it_on_request(name):
    """It is not copied, and that was asked for."""
    tree = {"x": REFUSED[name](), "n": np.ones(2)}
    with pytest.raises(ferry.UnsupportedTypeError):
        ferry.snapshot(tree)
    made = ferry.snapshot(tree, unknown="keep")
    assert made["x"] is tree["x"]
    assert not np.shares_memory(made["n"], tree["n"])


def test_what_a_request_cannot_do_is_still_refused():
    """To keep what is unknown is no consent to leave out what was asked for."""
    for call, error in (
        (
            lambda: ferry.convert_tree(
                [np.array([1.5])], "numpy", dtype={"0": "int8"}, unknown="keep"
            ),
            ferry.LossyCastError,
        ),
        (
            lambda: ferry.convert_tree([np.ones(2, "c8")], "arrow", unknown="keep"),
            ferry.ConversionError,
        ),
        (
            lambda: ferry.convert_tree([np.ones(2)], "numpy", device="cuda", unknown="keep"),
            ferry.DeviceError,
        ),
        (
            lambda: ferry.convert_tree([np.ones(2)], "torch", out=[np.ones(2)], unknown="keep"),
            ferry.UnsupportedTypeError,
        ),
        (
            lambda: ferry.convert_tree(
                {"x": np.ones(2)}, "torch", dtype={"y": "int8"}, unknown="keep"
            ),
            ferry.ConversionError,
        ),
    ):
        with pytest.raises(error):
            call()


def test_a_file_keeps_nothing_that_it_cannot_hold(tmp_path):
    with pytest.raises(ferry.UnsupportedTypeError):
        ferry.save({"x": torch.eye(2).to_sparse()}, tmp_path / "x.safetensors", unknown="keep")
    assert not list(tmp_path.iterdir())


# -- nothing is converted, so nothing is refused --------------------------------------------------


@pytest.fixture
def state():
    return {
        "key": jax.random.key(0),
        "keys": [jax.random.split(jax.random.key(1), 3)],
        "x": jnp.ones(2),
    }


def same_keys(one, other):
    return np.array_equal(jax.random.key_data(one), jax.random.key_data(other))


@pytest.mark.parametrize(
    "keywords",
    [{}, {"dtype": "fit"}, {"dtype": "int32"}, {"dtype": {"x": "float16"}}, {"copy": False}],
)
def test_typed_keys_stay_in_jax(state, keywords):
    """A dtype for integers is not one for keys."""
    made = ferry.convert_tree(state, "jax", **keywords)
    assert made["key"] is state["key"]
    assert made["keys"][0] is state["keys"][0]
    assert ferry.to_jax(state["key"]) is state["key"]
    plan = ferry.explain_tree(state, "jax", **keywords)
    assert set(plan.plans) == {'$["key"]', '$["keys"][0]', '$["x"]'}
    assert plan.plans['$["key"]'].shares_memory


def test_a_snapshot_copies_typed_keys(state):
    """They can be donated; the copy makes the same numbers."""
    made = ferry.snapshot(state)
    assert made["key"] is not state["key"]
    assert same_keys(made["key"], state["key"])
    assert same_keys(made["keys"][0], state["keys"][0])
    assert made["keys"][0].dtype == state["keys"][0].dtype
    expected = jax.random.uniform(state["key"], (2,))
    state["key"].delete()
    assert np.array_equal(jax.random.uniform(made["key"], (2,)), expected)


def test_typed_keys_are_refused_where_they_are_converted(state):
    """Elsewhere, and as numbers."""
    for call in (
        lambda: ferry.convert_tree({"key": state["key"]}, "numpy"),
        lambda: ferry.convert_tree(state, "jax", dtype={"key": "int32"}),
        lambda: ferry.to_jax(state["key"], dtype="float32"),
        lambda: ferry.convert(np.ones(2), like=state["key"]),
    ):
        with pytest.raises(ferry.UnsupportedTypeError, match=r"random keys|says no dtype"):
            call()


def test_a_structured_array_is_a_dict_wherever_it_is():
    """Also where NumPy's arrays have been leaves before."""
    fields = np.zeros(2, [("a", "f4"), ("b", "i8")])
    for _ in range(2):
        for tree in (
            {"n": np.ones(2), "x": fields},
            {"x": fields},
            {"x": fields, "n": torch.ones(2)},
        ):
            found = ferry.convert_tree(tree, "torch")["x"]
            assert {name: each.tolist() for name, each in found.items()} == {
                "a": [0, 0],
                "b": [0, 0],
            }
        assert ferry.snapshot({"n": np.ones(2), "x": fields})["x"]["a"].tolist() == [0, 0]
