"""`pad=` and what goes with it: filled exactly, on the side and to the length that was asked for, marked on request."""

from __future__ import annotations

import collections
import dataclasses
import functools
import re
import warnings
from typing import Any

import numpy as np
import pytest
from tests.support import TARGETS, survives

import tensorferry as ferry


def test_ragged_leaves_are_padded_on_request():
    """To the largest length of each axis; what stacks as it is stays as it is."""
    samples = [
        {"x": np.array([[1, 2]]), "y": np.ones(2)},
        {"x": np.array([[3], [4]]), "y": np.zeros(2)},
    ]
    batch = ferry.collate(samples, "torch", pad=-100)
    assert batch["x"].tolist() == [[[1, 2], [-100, -100]], [[3, -100], [4, -100]]]
    assert batch["y"].tolist() == [[1.0, 1.0], [0.0, 0.0]]


@pytest.mark.parametrize("target", TARGETS)
def test_padding_works_for_every_target_and_source(target):
    """Mixed frameworks, another dtype; the padding is exact."""
    import torch

    samples = [{"x": torch.ones(1, dtype=torch.bfloat16)}, {"x": np.zeros(3, "float32")}]
    batch = ferry.collate(samples, target, pad=float("inf"))
    assert ferry.describe(batch["x"]).framework == target
    assert ferry.to_list(batch["x"]) == [[1.0, np.inf, np.inf], [0.0, 0.0, 0.0]]


def test_a_pad_value_that_does_not_fit_is_refused():
    """Never wrapped around, never rounded to an integer."""
    samples = [{"x": np.zeros(1, "uint8")}, {"x": np.zeros(2, "uint8")}]
    for value in (-100, 0.5, float("nan")):
        with pytest.raises(ferry.LossyCastError, match=r'\$\["x"\]'):
            ferry.collate(samples, "numpy", pad=value)


@pytest.mark.parametrize("target", TARGETS)
def test_rows_of_numbers_have_one_dtype_padded_or_not(target):
    """The next batch is of the same dtype, whether its rows are of one length or not."""
    for numbers in ([1.0, 2.0], [1, 2], [True, False]):
        batches = [
            ferry.collate([{"x": numbers}, {"x": other}], target, pad=0)
            for other in (numbers, numbers[:1])
        ]
        assert len({ferry.describe(batch["x"]).dtype for batch in batches}) == 1
        assert ferry.to_list(batches[1]["x"]) == [numbers, [numbers[0], type(numbers[0])(0)]]


@pytest.mark.parametrize(
    ("dtype", "value", "asked"),
    [
        ("float32", 0.1, None),
        ("bfloat16", -1e9, None),
        ("int64", float("nan"), "float32"),
        ("uint8", -1, "int16"),
    ],
)
def test_a_pad_value_is_a_number_of_the_result(dtype, value, asked):
    """A float is rounded to the dtype that the batch has, as any Python number is."""
    rows = [ferry.to_numpy([1, 2], dtype=dtype), ferry.to_numpy([1], dtype=dtype)]
    batch = ferry.collate(rows, "numpy", pad=value, dtype={dtype: asked})
    assert ferry.describe(batch).dtype == (asked or dtype)
    assert batch[1, 1:].tobytes() == ferry.to_numpy([value], dtype=asked or dtype).tobytes()


def test_padding_does_not_leave_a_graph_that_must_be_kept():
    """`grad="error"` means it."""
    import torch

    rows = [torch.ones(2, requires_grad=True), torch.ones(3)]
    assert not ferry.collate(rows, "torch", pad=0).requires_grad
    with pytest.raises(ferry.GradientError):
        ferry.collate(rows, "torch", pad=0, grad="error")


def test_unequal_numbers_of_axes_are_not_padded():
    """Which axis is missing nobody can say."""
    with pytest.raises(ferry.ShapeError, match="1 and with 2 axes") as caught:
        ferry.collate([np.zeros(2), np.zeros((1, 2))], "numpy", pad=0)
    assert caught.value.message.endswith(" - at $")


def test_samples_are_unchanged():
    """Also where they are padded."""
    samples = [{"x": np.arange(2)}, {"x": np.arange(3)}]
    ferry.collate(samples, "numpy", pad=0)
    assert [each["x"].tolist() for each in samples] == [[0, 1], [0, 1, 2]]


# -- which leaves, and with what ------------------------------------------------------------------

TEXTS = [{"input_ids": [5, 7, 2], "labels": [5, 7, 2]}, {"input_ids": [9], "labels": [9]}]


@pytest.mark.parametrize("target", [*TARGETS, "python"])
def test_each_leaf_is_padded_with_its_own_number(target):
    """As tokens and labels are: 0 for the one, what the loss ignores for the other."""
    batch = ferry.collate(TEXTS, target, pad={"input_ids": 0, "labels": -100})
    assert ferry.to_list(batch["input_ids"]) == [[5, 7, 2], [9, 0, 0]]
    assert ferry.to_list(batch["labels"]) == [[5, 7, 2], [9, -100, -100]]


@pytest.mark.parametrize(
    ("pad", "expected"),
    [
        ({"text.*": 1}, [1, 1]),
        ({"*": 1, "text.b": 2}, [1, 2]),
        ({"*": 1, "text.*": 3}, [3, 3]),
        ({"text.[ab]": 4}, [4, 4]),
    ],
)
def test_names_are_those_of_dtype(pad, expected):
    """Dotted, with `*`: an exact one wins, then the last."""
    samples = [{"text": {"a": np.zeros(n), "b": np.zeros(n)}} for n in (1, 2)]
    batch = ferry.collate(samples, "numpy", pad=pad)["text"]
    assert [batch["a"][0, 1], batch["b"][0, 1]] == expected


def test_places_in_a_list_are_names_too():
    """A number stands for the name that it has."""
    batch = ferry.collate(
        [(np.zeros(1), np.zeros(2)), (np.zeros(2), np.zeros(2))], "numpy", pad={0: 7}
    )
    assert batch[0].tolist() == [[0.0, 7.0], [0.0, 0.0]]


def test_a_ragged_leaf_that_no_name_covers_is_an_error():
    """With the hint that mends it."""
    with pytest.raises(ferry.ShapeError, match=r'\$\["labels"\]') as caught:
        ferry.collate(TEXTS, "torch", pad={"input_ids": 0})
    assert caught.value.hint == 'pad={"input_ids": 0, "labels": 0}'
    with pytest.raises(ferry.ShapeError) as caught:
        ferry.collate([np.ones(1), np.ones(2)], "torch", pad={})
    assert caught.value.hint == "pad=0"


@pytest.mark.parametrize("name", ["input_id", "labels.*", "", "text"])
def test_a_name_that_no_leaf_has_is_an_error(name):
    """A typing error would leave a leaf as it is without a word."""
    with pytest.raises(ferry.UnsupportedTypeError, match="pad= has the name") as caught:
        ferry.collate([{**each, "text": "a"} for each in TEXTS], "torch", pad={name: 0})
    assert caught.value.hint.startswith('pad={"')
    assert eval(f"dict({caught.value.hint})")["pad"]  # noqa: S307 - what a person would paste


def test_zero_false_and_minus_zero_are_what_was_written():
    """Numbers that are equal are not the same: each call has its own."""
    rows = [{"x": np.ones(1)}, {"x": np.ones(2)}]
    for value in (0, -0.0, 0.0):
        assert np.signbit(ferry.collate(rows, "numpy", pad={"x": value})["x"][0, 1]) == np.signbit(
            float(value)
        )
        with pytest.raises(ferry.LossyCastError, match="is a bool, but the leaf has float64"):
            ferry.collate(rows, "numpy", pad={"x": False})


@pytest.mark.parametrize(
    "keywords",
    [
        {"pad_to_multiple_of": 8},
        {"padding_side": "left"},
        {"mask": True},
        {"lengths": True},
        {"pad": 0, "pad_to_multiple_of": 2.5},
        {"pad": 0, "pad_to_multiple_of": True},
        {"pad": 0, "mask": 1},
        {"pad": {("x",): 0}},
    ],
)
def test_keywords_that_say_nothing_are_refused(keywords):
    """Without pad= they would do nothing without a word."""
    with pytest.raises(TypeError):
        ferry.collate(TEXTS, "torch", **keywords)


def test_a_multiple_is_at_least_one():
    """A multiple of 0 is refused."""
    with pytest.raises(ValueError, match="1 or more"):
        ferry.collate(TEXTS, "torch", pad=0, pad_to_multiple_of=0)


def test_the_old_keywords_are_unknown():
    """`ragged=` is no keyword any more."""
    with pytest.raises(TypeError, match="ragged"):
        ferry.collate(TEXTS, "torch", ragged="pad")


# -- how far, and on which side --------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
def test_to_a_multiple_on_the_left(target):
    """Also where all are of one length, or there is one sample."""
    batch = ferry.collate(TEXTS, target, pad=0, pad_to_multiple_of=4, padding_side="left")
    assert ferry.to_list(batch["input_ids"]) == [[0, 5, 7, 2], [0, 0, 0, 9]]
    alone = ferry.collate(TEXTS[:1], target, pad=0, pad_to_multiple_of=4)
    assert ferry.to_list(alone["input_ids"]) == [[5, 7, 2, 0]]


def test_side_and_multiple_are_of_the_first_ragged_axis():
    """Other axes are padded to the longest, on the right."""
    samples = [np.array([[[1, 2]], [[3, 4]]]), np.array([[[5], [6]], [[7], [8]]])]
    batch = ferry.collate(samples, "numpy", pad=0, pad_to_multiple_of=3, padding_side="left")
    assert batch.shape == (2, 2, 3, 2)
    assert batch[0].tolist() == [[[0, 0], [0, 0], [1, 2]], [[0, 0], [0, 0], [3, 4]]]
    assert batch[1].tolist() == [[[0, 0], [5, 0], [6, 0]], [[0, 0], [7, 0], [8, 0]]]


@pytest.mark.parametrize("seed", range(20))
def test_against_filling_one_by_one(seed):
    """Random ranks, lengths, dtypes, sides and multiples, from tensors, arrays and lists."""
    rng = np.random.default_rng(seed)
    axes = int(rng.integers(1, 4))
    side, multiple = ("left", "right")[seed % 2], int(rng.integers(1, 5))
    dtype = ("int64", "float32", "float64", "bool")[seed % 4]
    arrays = [rng.integers(0, 2, rng.integers(0, 4, axes)).astype(dtype) for _ in range(5)]
    lengths = np.array([array.shape for array in arrays])
    axis = next((axis for axis in range(axes) if len(set(lengths[:, axis])) > 1), 0)
    whole = lengths.max(0)
    whole[axis] = -(-whole[axis] // multiple) * multiple
    expected = np.full((5, *whole), 1, dtype)
    for place, array in zip(expected, arrays, strict=True):
        index = [slice(length) for length in array.shape]
        if side == "left":
            index[axis] = slice(whole[axis] - array.shape[axis], None)
        place[tuple(index)] = array
    for sources in (
        arrays,
        [ferry.to_torch(array, copy=True) for array in arrays],
        [*arrays[:2], *map(ferry.to_tensorflow, arrays[2:])],
    ):
        batch = ferry.collate(
            sources, "numpy", pad=1, pad_to_multiple_of=multiple, padding_side=side
        )
        assert batch.dtype == expected.dtype
        assert batch.tobytes() == expected.tobytes()


def test_rows_of_numbers_read_at_once_are_the_same_as_one_by_one():
    """Many floats, and many integers of 32 bits, are read in one pass; the rest is not."""
    rng = np.random.default_rng(0)
    for numbers in (rng.random(2000), rng.integers(-9, 9, 2000), rng.integers(2**40, 2**41, 2000)):
        cuts = np.sort(rng.integers(0, 2000, 40))
        rows = [part.tolist() for part in np.split(numbers, cuts)]
        batch = ferry.collate([{"x": row} for row in rows], "numpy", pad=-1, lengths=True)
        assert batch["x_lengths"].tolist() == list(map(len, rows))
        assert batch["x"].dtype == numbers.dtype
        for row, place in zip(rows, batch["x"].tolist(), strict=True):
            assert place == row + [-1] * (len(place) - len(row))


@pytest.mark.parametrize("target", TARGETS)
def test_the_batch_is_nobody_elses(target):
    """Also where nothing had to be filled in."""
    sample = {"x": np.zeros((2, 16), "float32")}
    for samples in ([sample], [sample, {"x": np.zeros((3, 16), "float32")}]):
        batch = ferry.collate(samples, target, pad=0)
        sample["x"][...] = 7
        assert ferry.to_numpy(batch["x"])[0, 0].max() == 0
        sample["x"][...] = 0


def test_freed_and_foreign_tensors_among_others():
    """Storage that was freed is refused in words, sparse ones are, and views and conjugates are read as they are."""
    import torch

    freed = torch.ones(3)
    freed.untyped_storage().resize_(0)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UserWarning
        )  # that PyTorch's nested tensors are a prototype
        nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.strided)
    for odd in (freed, torch.eye(2).to_sparse()[0], nested):
        for rows in ([torch.ones(2), odd], [odd, torch.ones(2)]):
            with pytest.raises(ferry.ConversionError):
                ferry.collate([{"x": row} for row in rows], "torch", pad=0)
    views = [
        torch.arange(6)[::2],
        torch.tensor([1 + 2j]).conj().imag.long(),
        torch.arange(2).expand(3, 2)[0],
    ]
    assert ferry.collate(views, "torch", pad=9).tolist() == [[0, 2, 4], [-2, 9, 9], [0, 1, 9]]


# -- masks and lengths -----------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("side", ["right", "left"])
def test_masks_and_lengths_stand_beside_their_leaves(target, side):
    """The mask is bool, and along the ragged axis; lengths are int64, where there is such a thing."""
    samples = [
        {"x": np.ones((n, 2), "float32"), "deep": {"ids": list(range(n))}, "label": n}
        for n in (1, 3)
    ]
    batch = ferry.collate(samples, target, pad=0, padding_side=side, mask=True, lengths=True)
    expected = (
        [[True, False, False], [True] * 3]
        if side == "right"
        else [[False, False, True], [True] * 3]
    )
    assert list(batch) == ["x", "deep", "label", "x_mask", "x_lengths"]
    assert list(batch["deep"]) == ["ids", "ids_mask", "ids_lengths"]
    for mask, lengths in (
        (batch["x_mask"], batch["x_lengths"]),
        (batch["deep"]["ids_mask"], batch["deep"]["ids_lengths"]),
    ):
        assert ferry.describe(mask).framework == ferry.describe(lengths).framework == target
        assert ferry.describe(mask).dtype == "bool"
        assert ferry.describe(lengths).dtype == ("int32" if target == "jax" else "int64")
        assert ferry.to_list(mask) == expected
        assert ferry.to_list(lengths) == [1, 3]


def test_the_structure_does_not_depend_on_the_data():
    """Equal lengths, one sample, nothing in it: the same keys, dtypes and ranks."""
    batches = [
        ferry.collate([{"x": row} for row in rows], "torch", pad=0, mask=True, lengths=True)
        for rows in ([[1], [2, 3]], [[1, 2], [2, 3]], [[4]], [[], []], [[], [1]])
    ]
    assert {tuple((key, x.dtype, x.dim()) for key, x in batch.items()) for batch in batches} == {
        tuple((key, x.dtype, x.dim()) for key, x in batches[0].items())
    }
    assert batches[3]["x"].shape == (2, 0)


def test_only_what_pad_covers_has_a_mask():
    """Not its neighbours, numbers or text."""
    samples = [{"a": [1] * n, "b": [1, 2], "text": "x", "label": 1} for n in (1, 2)]
    batch = ferry.collate(samples, "numpy", pad={"a": 0}, mask=True)
    assert list(batch) == ["a", "b", "text", "label", "a_mask"]


def test_a_key_that_is_there_is_an_error():
    """It would be overwritten."""
    samples = [{"x": [1] * n, "x_mask": "mine"} for n in (1, 2)]
    with pytest.raises(ferry.UnsupportedTypeError, match=r'"x_mask".*\$\["x"\]'):
        ferry.collate(samples, "numpy", pad=0, mask=True)
    assert ferry.collate(samples, "numpy", pad=0, lengths=True)["x_mask"] == ["mine", "mine"]


@dataclasses.dataclass
class Sample:
    x: Any


@pytest.mark.parametrize(
    ("samples", "path"),
    [
        ([np.ones(1), np.ones(2)], "$"),
        ([(np.ones(1), 1), (np.ones(2), 1)], "$[0]"),
        ([{1: np.ones(1)}, {1: np.ones(2)}], "$[1]"),
        ([{"x": (np.ones(1),)}, {"x": (np.ones(2),)}], '$["x"][0]'),
        ([Sample(np.ones(1)), Sample(np.ones(2))], "$.x"),
    ],
)
def test_a_mask_needs_a_key_beside_which_it_stands(samples, path):
    """A place in a list or a field of a class has no neighbour of that name."""
    for keyword in ("mask", "lengths"):
        with pytest.raises(
            ferry.UnsupportedTypeError, match=f"{keyword}=True adds a leaf"
        ) as caught:
            ferry.collate(samples, "numpy", pad=0, **{keyword: True})
        assert caught.value.message.endswith(f" - at {path}")


def test_masks_in_containers_of_every_kind():
    """Ordered and default dicts, a UserDict, a dict in a dataclass in a list."""
    for make in (
        dict,
        collections.OrderedDict,
        collections.UserDict,
        functools.partial(collections.defaultdict, list),
    ):
        batch = ferry.collate([make({"x": [1] * n}) for n in (1, 2)], "numpy", pad=0, mask=True)
        assert type(batch) is type(make())
        assert batch["x_mask"].tolist() == [[True, False], [True, True]]
    batch = ferry.collate([[Sample({"x": [1] * n})] for n in (1, 2)], "numpy", pad=0, mask=True)
    assert batch[0].x["x_mask"].tolist() == [[True, False], [True, True]]


def test_samples_have_no_new_keys():
    """They are as they came, the first one too."""
    samples = [{"x": [1]}, {"x": [1, 2]}]
    ferry.collate(samples, "torch", pad=0, mask=True, lengths=True)
    assert samples == [{"x": [1]}, {"x": [1, 2]}]


# -- with other keywords, and in loaders -----------------------------------------------------------


def test_dtypes_are_of_the_leaves_not_of_the_marks():
    """A named dtype, and a mapping by kinds, leave masks and lengths alone."""
    import torch

    samples = [{"x": np.ones(n)} for n in (1, 2)]
    for dtype in ("bfloat16", {"float": "bfloat16", "bool": "uint8", "int": "int16"}):
        batch = ferry.collate(samples, "torch", dtype=dtype, pad=0.1, mask=True, lengths=True)
        assert [batch[key].dtype for key in batch] == [torch.bfloat16, torch.bool, torch.int64]


def test_lists_of_numbers_as_samples_are_padded_as_the_hint_says():
    """A list is a container; that it is one leaf has to be said."""
    samples = [[5, 7, 2], [9]]
    with pytest.raises(ferry.UnsupportedTypeError, match="different trees") as caught:
        ferry.collate(samples, "numpy", pad=0)
    keyword, _, code = caught.value.hint.partition(", if ")[0].partition("=")
    batch = ferry.collate(samples, "numpy", pad=0, **{keyword: eval(code)})  # noqa: S307 - that is what the hint is for
    assert batch.tolist() == [[5, 7, 2], [9, 0, 0]]
    with pytest.raises(ferry.UnsupportedTypeError, match="different trees") as caught:
        ferry.collate([{"a": 1}, {"b": 1}], "numpy")
    assert caught.value.hint is None


def test_padding_does_not_depend_on_other_samples_types():
    """Arrays, tensors, lists and numbers' rows in one leaf: the tensors' dtype."""
    import torch

    rows = [[1, 2], torch.tensor([3], dtype=torch.int16), np.arange(3, dtype=np.int8), []]
    batch = ferry.collate([{"x": row} for row in rows], "torch", pad=-1)
    assert batch["x"].dtype is torch.int16
    assert batch["x"].tolist() == [[1, 2, -1], [3, -1, -1], [0, 1, 2], [-1, -1, -1]]


def test_boxes_of_which_a_sample_has_none():
    """An empty list is no row, of as many axes as the others."""
    batch = ferry.collate(
        [{"boxes": [[1.0, 2.0], [3.0, 4.0]]}, {"boxes": []}], "torch", pad=-1, lengths=True
    )
    assert batch["boxes"].tolist() == [[[1.0, 2.0], [3.0, 4.0]], [[-1.0, -1.0], [-1.0, -1.0]]]
    assert batch["boxes_lengths"].tolist() == [2, 0]


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_a_padding_collate_fn_in_workers(method, tmp_path):
    """As one writes it: `functools.partial`, in a loader's worker, and over prefetch."""
    script = tmp_path / "main.py"
    script.write_text(
        f"""
import functools
import tensorferry as ferry
from torch.utils.data import DataLoader

if __name__ == "__main__":
    samples = [{{"ids": [1] * n, "labels": [2] * n}} for n in (1, 3, 2, 2)]
    collate = functools.partial(
        ferry.collate, to="torch", pad={{"ids": 0, "labels": -100}}, pad_to_multiple_of=4, mask=True
    )
    loader = DataLoader(
        samples, batch_size=2, num_workers=1, collate_fn=collate, multiprocessing_context={method!r}
    )
    for batches in (list(loader), list(ferry.prefetch(loader, "numpy"))):
        assert batches[0]["labels"].tolist() == [[2, -100, -100, -100], [2, 2, 2, -100]]
        assert batches[1]["ids_mask"].tolist() == [[True, True, False, False]] * 2
    print("done")
"""
    )
    assert "done" in survives(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')")


@pytest.mark.parametrize(
    ("leaves", "expected"),
    [
        ([[[1, 2]], [[]]], [[[1, 2]], [[0, 0]]]),
        ([[[]], [[1, 2]]], [[[0, 0]], [[1, 2]]]),
        ([[[1, 2]], [[], []], []], [[[1, 2], [0, 0]], [[0, 0], [0, 0]], [[0, 0], [0, 0]]]),
    ],
    ids=str,
)
def test_lists_of_empty_lists_take_the_dtype_of_the_others(leaves, expected):
    batch = ferry.collate([{"x": leaf} for leaf in leaves], "numpy", pad=0)
    assert batch["x"].dtype == np.int64
    assert batch["x"].tolist() == expected


def test_lists_of_empty_lists_have_their_own_axes():
    with pytest.raises(ferry.ShapeError, match="1 and with 2 axes"):
        ferry.collate([{"x": [1]}, {"x": [[]]}], "numpy", pad=0)


@pytest.mark.parametrize("target", ["numpy", "torch", "tensorflow", "jax"])
def test_a_list_of_floats_does_not_become_infinite_where_another_is_longer(target):
    """As it does not where all are equally long.

    Nobody has named the dtype, which is the target's own.
    """
    pytest.importorskip(target)
    samples = [{"p": [1e300]}, {"p": [1.0, 2.0]}]
    if target == "numpy":
        assert ferry.collate(samples, target, pad=0)["p"].tolist() == [[1e300, 0.0], [1.0, 2.0]]
        return
    for longer in (
        samples,
        [{"p": [1e300]}, {"p": [1.0]}],
        [{"p": [[1e300]]}, {"p": [[1.0], [2.0]]}],
    ):
        with pytest.raises(
            ferry.LossyCastError, match=r"float64 to float32: the value at .* does not fit"
        ):
            ferry.collate(longer, target, pad=0)
    infinite = ferry.collate([{"p": [float("inf")]}, {"p": [1.0, 0.1]}], target, pad=0)["p"]
    assert ferry.to_list(infinite) == [[float("inf"), 0.0], [1.0, float(np.float32(0.1))]]


def test_a_float_beside_tensors_is_rounded_but_not_to_infinity():
    beside = [{"a": np.float32(1)}, {"a": 0.1}]
    assert ferry.collate(beside, "numpy")["a"].tolist() == [1.0, float(np.float32(0.1))]
    with pytest.raises(
        ferry.LossyCastError, match=r"does not fit. - in samples\[1\] - at \$\[\"a\"\]"
    ):
        ferry.collate([{"a": np.float32(1)}, {"a": 1e300}], "numpy")
    assert np.isinf(
        ferry.collate([{"a": np.float32(1)}, {"a": 1e300}], "numpy", casting="unsafe")["a"][1]
    )


@pytest.mark.parametrize(
    ("dtype", "pad"), [("float16", -1e9), ("float32", 1e300), ("float16", 10**9), ("int8", 300)]
)
def test_a_number_that_the_dtype_does_not_hold_pads_nothing(dtype, pad):
    """It is not made infinite, as in masks of attention."""
    samples = [np.ones(1, dtype), np.ones(2, dtype)]
    for number in (pad, np.float64(pad), complex(pad, 1)):
        written = re.escape(str(number))
        with pytest.raises(
            ferry.LossyCastError, match=f"pad= is {written}, which {dtype} does not hold"
        ):
            ferry.collate(samples, "numpy", pad=number)


def test_a_float_that_pads_is_rounded():
    samples = [np.ones(1, "f2"), np.ones(2, "f2")]
    assert ferry.collate(samples, "numpy", pad=0.1).tolist() == [
        [1.0, float(np.float16(0.1))],
        [1.0, 1.0],
    ]
    assert ferry.collate(samples, "numpy", pad=-np.inf).tolist() == [[1.0, -np.inf], [1.0, 1.0]]
    assert np.isnan(ferry.collate(samples, "numpy", pad=float("nan"))[0, 1])
