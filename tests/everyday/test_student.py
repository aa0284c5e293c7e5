"""What a student types on the first day: lists, NumPy, one framework and another, and mistakes."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
from collections import OrderedDict, namedtuple

import numpy as np
import pytest

import tensorferry as ferry

jax = pytest.importorskip("jax", reason="jax is not installed")
tf = pytest.importorskip("tensorflow", reason="tensorflow is not installed")
torch = pytest.importorskip("torch", reason="torch is not installed")
jnp = jax.numpy


class Colour(enum.Enum):
    RED = 1


class Label(enum.IntEnum):
    CAT = 3
    DOG = 5


# -- from lists -----------------------------------------------------------------------------------


def test_rows_of_numbers_are_a_matrix():
    """Expected: what `torch.tensor` gives."""
    assert torch.equal(ferry.to_torch([[1, 2], [3, 4]]), torch.tensor([[1, 2], [3, 4]]))


def test_zipped_columns_are_rows():
    """Expected: tuples are rows like lists."""
    assert ferry.to_torch(list(zip([1, 2], [3, 4], strict=True))).tolist() == [[1, 3], [2, 4]]


def test_integers_and_floats_mix_to_floats():
    """Expected: as NumPy mixes them."""
    assert ferry.to_numpy([1, 2.5]).tolist() == [1.0, 2.5]


def test_a_nan_among_integers_makes_floats():
    """Expected: the NaN is kept."""
    result = ferry.to_torch([1, float("nan")])
    assert result[0] == 1
    assert result[1].isnan()


def test_a_list_of_arrays_is_stacked():
    """Expected: `np.stack`."""
    assert ferry.to_torch([np.ones(2), np.zeros(2)]).tolist() == [[1, 1], [0, 0]]


def test_losses_of_a_training_loop_become_numbers():
    """Expected: a list of floats from scalars that still require grad."""
    losses = [torch.tensor(1.5, requires_grad=True), torch.tensor(0.5, requires_grad=True)]
    assert ferry.to_list(losses) == [1.5, 0.5]


@pytest.mark.parametrize(
    "make", [np.array, torch.tensor, tf.constant], ids=["numpy", "torch", "tensorflow"]
)
def test_a_row_that_is_a_tensor_and_one_that_is_a_list(make):
    """Expected: the order of the rows makes no difference."""
    assert ferry.to_numpy([make([1, 2]), [3, 4]]).tolist() == [[1, 2], [3, 4]]
    assert ferry.to_numpy([[3, 4], make([1, 2])]).tolist() == [[3, 4], [1, 2]]


def test_an_empty_list_is_an_empty_tensor():
    """Expected: shape (0,), no error."""
    assert ferry.to_torch([]).shape == (0,)


def test_one_number_is_a_tensor_without_axes():
    """Expected: shape (), and the number back."""
    assert ferry.to_torch(3.5).shape == ()
    assert ferry.to_list(torch.tensor(3.5)) == 3.5


def test_labels_of_an_int_enum_are_integers():
    """Expected: their values."""
    assert ferry.to_torch([Label.CAT, Label.DOG]).tolist() == [3, 5]


def test_numpy_scalars_keep_their_dtype():
    """Expected: float32 in, float32 out."""
    assert ferry.to_torch(np.float32(1.5)).dtype == torch.float32


def test_a_range_and_bytes_are_sequences_of_numbers():
    """Expected: no list() around them."""
    assert ferry.to_torch(range(3)).tolist() == [0, 1, 2]
    assert ferry.to_numpy(b"ab").tolist() == [97, 98]


# -- one framework to another ---------------------------------------------------------------------


@pytest.mark.parametrize("to", ["numpy", "torch", "tensorflow", "jax"])
@pytest.mark.parametrize("make", [np.array, torch.tensor, tf.constant, jnp.array])
def test_every_framework_reaches_every_other(make, to):
    """Expected: the values, in one call that is spelled the same for all."""
    x = make(np.array([[1.5, 2.5]], "float32"))
    assert ferry.to_list(ferry.convert(x, to=to)) == [[1.5, 2.5]]


def test_a_weight_that_requires_grad_needs_no_detach():
    """Expected: values, and a NumPy array that cannot spoil the gradient."""
    weight = torch.nn.Parameter(torch.ones(2))
    array = ferry.to_numpy(weight)
    assert array.tolist() == [1, 1]
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 2


def test_numpy_and_torch_share():
    """Expected: as `torch.from_numpy`."""
    array = np.zeros(2)
    ferry.to_torch(array)[0] = 1
    assert array[0] == 1


def test_a_jax_array_in_numpy_cannot_be_written():
    """Expected: JAX arrays never change."""
    with pytest.raises(ValueError, match="read-only"):
        ferry.to_numpy(jnp.ones(2))[0] = 5


def test_bfloat16_reaches_numpy_and_lists():
    """Expected: values; `t.numpy()` raises."""
    assert ferry.to_list(torch.ones(2, dtype=torch.bfloat16)) == [1.0, 1.0]
    assert ferry.to_numpy(torch.ones(2, dtype=torch.bfloat16)).dtype.name == "bfloat16"


def test_a_reversed_array_reaches_torch():
    """Expected: values; `torch.from_numpy` raises for negative strides."""
    assert ferry.to_torch(np.arange(3)[::-1]).tolist() == [2, 1, 0]


def test_a_transposed_matrix_reaches_tensorflow():
    """Expected: values in their order, also where TensorFlow's own way raises."""
    x = torch.complex(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]]))
    assert ferry.to_list(ferry.to_tensorflow(x.T.conj())) == [[1 - 3j], [2 - 4j]]


def test_random_numbers_of_a_generator():
    """Expected: float64, as NumPy drew them."""
    drawn = np.random.default_rng(0).normal(size=3)
    assert ferry.to_torch(drawn).dtype == torch.float64
    assert ferry.to_torch(drawn).tolist() == drawn.tolist()


def test_a_masked_array_without_a_mask_is_an_array():
    """Expected: values; with a masked element an error that says what to type."""
    assert ferry.to_torch(np.ma.array([1, 2, 3])).tolist() == [1, 2, 3]
    with pytest.raises(ferry.ConversionError, match="mask") as caught:
        ferry.to_torch(np.ma.array([1, 2, 3], mask=[0, 1, 0]))
    assert "filled" in caught.value.hint


def test_jit_says_that_there_are_no_values_yet():
    """Expected: an error that says what a tracer is and where to convert."""
    with pytest.raises(ferry.UnsupportedTypeError, match="tracer"):
        jax.jit(ferry.to_numpy)(jnp.ones(2))


def test_random_keys_of_jax_are_named():
    """Expected: an error with `jax.random.key_data`; raw keys are integers."""
    with pytest.raises(ferry.UnsupportedTypeError) as caught:
        ferry.to_numpy(jax.random.key(0))
    assert "jax.random.key_data" in caught.value.hint
    assert ferry.to_numpy(jax.random.key_data(jax.random.key(0))).dtype == np.uint32


# -- 64-bit numbers and JAX -----------------------------------------------------------------------


def test_integers_for_jax_are_refused_with_one_word_to_type():
    """Expected: no value lost in silence, and the hint's dtype works."""
    with pytest.raises(ferry.LossyCastError) as caught:
        ferry.to_jax(np.arange(3))
    assert 'dtype="fit"' in caught.value.hint
    assert ferry.to_jax(np.arange(3), dtype="fit").dtype == jnp.int32


def test_fit_keeps_what_the_target_has():
    """Expected: PyTorch has int64 and float64; float32 stays float32 in JAX."""
    assert ferry.to_torch(np.arange(3), dtype="fit").dtype == torch.int64
    assert ferry.to_torch(np.ones(3), dtype="fit").dtype == torch.float64
    assert ferry.to_jax(np.ones(3, "float32"), dtype="fit").dtype == jnp.float32


def test_fit_never_loses_an_integer():
    """Expected: 2**40 has no place in int32, and is not made 0."""
    with pytest.raises(ferry.LossyCastError):
        ferry.to_jax(np.array([2**40]), dtype="fit")


# -- names that people type -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("pt", torch.Tensor),
        ("pytorch", torch.Tensor),
        (torch, torch.Tensor),
        (torch.Tensor, torch.Tensor),
        ("np", np.ndarray),
        (np, np.ndarray),
        (np.ndarray, np.ndarray),
        ("tf", tf.Tensor),
        (tf, tf.Tensor),
        (tf.Tensor, tf.Tensor),
        ("jnp", jax.Array),
        (jax, jax.Array),
        (jnp, jax.Array),
        (jax.Array, jax.Array),
    ],
    ids=lambda x: getattr(x, "__name__", x),
)
def test_a_framework_by_any_of_its_names(name, kind):
    """Expected: the short names of the tutorials, the module and the class mean the framework."""
    assert isinstance(ferry.convert(np.ones(2, "float32"), to=name), kind)


def test_a_wrong_name_is_answered_with_the_right_one():
    """Expected: a ValueError that says torch, not that something should be installed."""
    with pytest.raises(ValueError, match="torch"):
        ferry.convert(np.ones(2), to="troch")


def test_a_wrong_keyword_is_answered_with_the_right_one():
    """Expected: Python's own words and the nearest keyword."""
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'devcie'.*device"):
        ferry.convert(np.ones(2), to="torch", devcie="cpu")


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("f4", "float32"), ("Float32", "float32"), ("long", "int64"), ("half", "float16")],
)
def test_a_dtype_by_the_names_of_numpy_pandas_and_torch(name, dtype):
    """Expected: what the name means where it comes from, or an error with the right one."""
    x = np.ones(2, "int32" if dtype == "int64" else "float64")
    assert ferry.to_torch(x, dtype=name).dtype == getattr(torch, dtype)


def test_a_dtype_of_another_framework():
    """Expected: torch.float32 says float32, in every library."""
    assert ferry.to_jax(np.ones(2), dtype=torch.float32).dtype == jnp.float32
    assert ferry.to_torch(np.ones(2), dtype=np.float32).dtype == torch.float32
    assert ferry.to_numpy(np.ones(2), dtype=tf.float32).dtype == np.float32


def test_a_value_that_does_not_fit_is_refused():
    """Expected: 300 is not 44, 1.5 is not 1."""
    with pytest.raises(ferry.LossyCastError):
        ferry.to_torch(np.array([300]), dtype="uint8")
    with pytest.raises(ferry.LossyCastError):
        ferry.to_torch(np.array([1.5]), dtype="int64")


# -- mistakes -------------------------------------------------------------------------------------


MISTAKES = {
    "ragged": ([[1, 2], [3]], "pad"),
    "none": (None, "nan"),
    "none among numbers": ([1, None], "nulls=0"),
    "words": (["1", "2"], "float"),
    "text": ("hello", ""),
    "array of text": (np.array(["a"]), "np.unique"),
    "decimal": (decimal.Decimal("1.5"), "float"),
    "datetime": (dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc), ""),
    "dates": (np.array(["2024-01-01"], "M8[s]"), "int64"),
    "enum": (Colour.RED, ""),
    "set": ({1, 2}, "sorted"),
    "generator": ((n for n in [1]), "list"),
    "dict": ({"a": [1.0]}, "convert_tree"),
    "module": (torch.nn.Linear(1, 1), "state_dict"),
    "class": (np.ndarray, ""),
    "dataset": (tf.data.Dataset.range(3), "prefetch"),
    "ragged tensor": (tf.ragged.constant([[1], [2, 3]]), "to_tensor"),
    "text tensor": (tf.constant(["a"]), "numpy"),
    "sparse tensor": (torch.eye(2).to_sparse(), "to_dense"),
    "file": ("model.npy", "load"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_answered_with_code(case):
    """Expected: one kind of error, which says why and what to type."""
    x, word = MISTAKES[case]
    with pytest.raises(ferry.ConversionError) as caught:
        ferry.to_torch(x)
    assert isinstance(caught.value, (TypeError, ValueError))
    assert word in caught.value.hint


def test_a_class_is_called_a_class():
    """Expected: no words about a method of the class that failed."""
    with pytest.raises(ferry.UnsupportedTypeError, match="class"):
        ferry.to_numpy(np.ndarray)


# -- a dict at a time -----------------------------------------------------------------------------


def test_a_batch_keeps_what_is_no_tensor():
    """Expected: text, None, enums, dates and paths stay as they are."""
    day = dt.date(2024, 1, 1)
    batch = {
        "x": np.ones(2),
        "names": ["a", "b"],
        "n": None,
        "c": Colour.RED,
        "d": decimal.Decimal(1),
        "day": day,
    }
    result = ferry.convert_tree(batch, "torch")
    assert isinstance(result.pop("x"), torch.Tensor)
    assert result == {
        "names": ["a", "b"],
        "n": None,
        "c": Colour.RED,
        "d": decimal.Decimal(1),
        "day": day,
    }


def test_named_tuples_and_ordered_dicts_stay_what_they_are():
    """Expected: the same classes."""
    point = namedtuple("point", "x y")  # noqa: PYI024 - what people write
    result = ferry.convert_tree(OrderedDict(p=point(np.ones(1), 2)), "torch")
    assert type(result) is OrderedDict
    assert type(result["p"]) is point
    assert isinstance(result["p"].x, torch.Tensor)


def test_an_empty_batch_is_an_empty_batch():
    """Expected: no error."""
    assert ferry.convert_tree({}, "torch") == {}


def test_metrics_for_json():
    """Expected: what `json.dumps` takes."""
    metrics = {
        "loss": torch.tensor(1.5),
        "histogram": np.arange(2),
        "accuracy": jnp.float32(0.5),
        "epoch": 3,
    }
    assert ferry.convert_tree(metrics, "python") == {
        "loss": 1.5,
        "histogram": [0, 1],
        "accuracy": 0.5,
        "epoch": 3,
    }


def test_half_precision_for_a_batch_leaves_the_labels():
    """Expected: as `module.to(dtype)`: floats change, integers and masks stay."""
    batch = {"x": np.ones(2), "y": np.arange(2), "m": np.ones(2, bool)}
    result = ferry.convert_tree(batch, "torch", dtype="bfloat16")
    assert [result[key].dtype for key in "xym"] == [torch.bfloat16, torch.int64, torch.bool]


def test_a_dtype_for_each_kind():
    """Expected: the mapping of the keyword table."""
    batch = {"image": np.ones(2), "y": np.arange(2), "m": np.ones(2, bool)}
    result = ferry.convert_tree(
        batch, "torch", dtype={"image": "bfloat16", "int64": "int32", "bool": "uint8"}
    )
    assert [t.dtype for t in result.values()] == [torch.bfloat16, torch.int32, torch.uint8]


def test_a_batch_for_jax_with_one_word():
    """Expected: labels int32, features float32, nothing said about x64."""
    result = ferry.convert_tree({"x": np.ones(2), "y": np.arange(2)}, "jax", dtype="fit")
    assert [result["x"].dtype, result["y"].dtype] == [jnp.float32, jnp.int32]


def test_arrays_of_text_stay_in_a_batch():
    """Expected: the numbers are converted, the text is kept, in NumPy and in TensorFlow."""
    words, tensors = np.array(["a"]), tf.constant(["a"])
    result = ferry.convert_tree({"w": words, "t": tensors, "x": tf.constant([1.0])}, "torch")
    assert result["w"] is words
    assert result["t"] is tensors
    assert isinstance(result["x"], torch.Tensor)


def test_a_failing_leaf_is_named():
    """Expected: the path in the batch, as one would type it."""
    with pytest.raises(ferry.ConversionError, match=r'\$\["a"\]\["b"\]\[1\]'):
        ferry.convert_tree({"a": {"b": [1, np.ma.array([1, 2], mask=[0, 1])]}}, "torch")
