"""Columns of pandas whose arrays another package brings, as datasets does: what they give to Arrow is read."""

from __future__ import annotations

import numpy as np
import pytest

import tensorferry as ferry

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
torch = pytest.importorskip("torch")

IMAGES = np.arange(24, dtype="uint8").reshape(2, 3, 4)


class ImageDtype(pd.api.extensions.ExtensionDtype):
    """As in datasets, where `_metadata` is a string, so that neither the hash nor a comparison works."""

    name = "images"
    type = np.ndarray
    kind = "O"
    _metadata = "broken"

    @classmethod
    def construct_array_type(cls):
        return Images


class Images(pd.api.extensions.ExtensionArray):
    """Matrices, one in each row."""

    dtype = ImageDtype()

    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def __getitem__(self, key):
        return type(self)(self.values[key]) if isinstance(key, slice) else self.values[key]

    def copy(self):
        return type(self)(self.values.copy())

    def isna(self):
        return np.zeros(len(self), bool)

    def __arrow_array__(self, **_):
        return pa.FixedShapeTensorArray.from_numpy_ndarray(self.values)


class Wordless(Images):
    """Arrow does not take them."""

    def __arrow_array__(self, **_):
        raise NotImplementedError("not yet")


def test_what_arrow_takes_is_a_tensor():
    """As one column, and in a table; each time with a dtype whose hash raises."""
    column = pd.Series(Images(IMAGES))
    with pytest.raises(AttributeError):
        hash(column.dtype)
    assert ferry.to_numpy(column).tolist() == IMAGES.tolist()
    table = pd.DataFrame({"image": column, "label": [5, 7], "also": column})
    for _ in range(2):
        found = ferry.convert_tree(table, "torch")
        assert found["image"].tolist() == found["also"].tolist() == IMAGES.tolist()
        assert found["label"].tolist() == [5, 7]
    assert ferry.explain_tree({"a": column, "b": column}, "torch").plans['$["b"]'].result.shape == (
        2,
        3,
        4,
    )


def test_what_arrow_does_not_take_stays_as_it_is():
    """Alone it is refused with the name of its dtype."""
    column = pd.Series(Wordless(IMAGES))
    with pytest.raises(
        ferry.UnsupportedTypeError, match="has dtype images, which cannot be converted"
    ):
        ferry.to_numpy(column)
    found = ferry.convert_tree(pd.DataFrame({"image": column, "label": [5, 7]}), "torch")
    assert isinstance(found["image"], pd.Series)
    assert found["label"].tolist() == [5, 7]


def test_objects_of_which_there_are_none_stay():
    """With keywords as without them; if their dtype is named, they are that."""
    x = pd.DataFrame({"o": np.empty(0, object), "n": np.empty(0, "int64")})
    for keywords, names in (
        ({}, "on"),
        ({"nulls": 0}, "on"),
        ({"nulls": "mask"}, ["o", "n", "n_mask"]),
    ):
        found = ferry.convert_tree(x, "numpy", **keywords)
        assert [*found] == [*names]
        assert isinstance(found["o"], pd.Series)
    assert ferry.convert_tree(x, "numpy", nulls=0, dtype={"o": "int32"})["o"].dtype == "int32"


def test_categories_of_which_there_are_none_stay():
    """As those of text in other batches do; without a dtype of their own they were floats."""
    x = pd.DataFrame({"c": pd.Categorical([]), "n": np.empty(0, "int64")})
    found = ferry.convert_tree(x, "numpy", nulls="mask")
    assert [*found] == ["c", "n", "n_mask"]
    assert isinstance(found["c"], pd.Series)
    assert ferry.to_numpy(x["c"], dtype="int64").dtype == "int64"
    assert (
        ferry.to_numpy(pd.Categorical([], categories=pd.Index([], dtype="float32"))).dtype
        == "float32"
    )
