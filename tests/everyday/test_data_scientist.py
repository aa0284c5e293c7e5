"""What a data scientist has in hand: frames, columns, images, tables, arrays with names, files, sparse matrices."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import tensorferry as ferry

torch = pytest.importorskip("torch", reason="torch is not installed")

EXACT = 2**53 + 1
"""The first integer that float64 rounds."""


def needed(name):
    return pytest.importorskip(name, reason=f"{name} is not installed; `make everyday` installs it")


@pytest.fixture
def pd():
    return needed("pandas")


@pytest.fixture
def pl():
    return needed("polars")


@pytest.fixture
def pa():
    return needed("pyarrow")


@pytest.fixture
def xr():
    return needed("xarray")


@pytest.fixture
def sparse():
    return needed("scipy.sparse")


@pytest.fixture
def datasets():
    return needed("datasets")


@pytest.fixture
def image():
    return needed("PIL.Image").fromarray(np.arange(24, dtype=np.uint8).reshape(2, 4, 3))


@pytest.fixture
def frame(pd):
    return pd.DataFrame({"a": [1, 2, 3], "b": [4, 5, 6], "c": [0.5, 1.5, 2.5], "name": list("xyz")})


# -- pandas ---------------------------------------------------------------------------------------


def test_two_columns_are_a_matrix(frame):
    """Expected: rows and columns as in the frame, integers as integers."""
    assert torch.equal(ferry.to_torch(frame[["a", "b"]]), torch.tensor([[1, 4], [2, 5], [3, 6]]))


def test_a_column_is_a_vector(frame):
    """Expected: by position, whatever the index is."""
    assert ferry.to_torch(frame["c"][frame.a > 1]).tolist() == [1.5, 2.5]


def test_a_row_is_a_vector(frame):
    """Expected: the row's numbers."""
    assert ferry.to_torch(frame[["a", "b"]].iloc[0]).tolist() == [1, 4]


def test_an_index_is_a_vector(frame):
    """Expected: its integers."""
    assert ferry.to_torch(frame.index).tolist() == [0, 1, 2]


def test_a_column_of_text_is_named(frame):
    """Expected: the error says which column, and a line to type."""
    with pytest.raises(ferry.ConversionError, match="name") as caught:
        ferry.to_torch(frame)
    assert caught.value.hint
    assert "convert it to an array" not in caught.value.hint


def test_categories_are_answered_with_their_codes(pd):
    """Expected: the error says categories and `.cat.codes`."""
    with pytest.raises(ferry.ConversionError, match="categor") as caught:
        ferry.to_torch(pd.Series(["a", "b", "a"], dtype="category"))
    assert "codes" in caught.value.hint


def test_dates_are_answered_with_their_integers(pd):
    """Expected: a line that makes integers of them."""
    with pytest.raises(ferry.ConversionError, match="date") as caught:
        ferry.to_torch(pd.Series(pd.to_datetime(["2024-01-01"])))
    assert "int64" in caught.value.hint


def test_a_nullable_column_without_nulls_is_exact(pd):
    """Expected: 2**53 + 1 stays what it is."""
    assert ferry.to_numpy(pd.Series([EXACT, 3], dtype="Int64")).tolist() == [EXACT, 3]
    assert ferry.to_torch(pd.Series([True, False], dtype="boolean")).tolist() == [True, False]


def test_a_null_is_refused(pd):
    """Expected: no rounded float for an integer column with a hole, but a line that fills it."""
    with pytest.raises(ferry.ConversionError) as caught:
        ferry.to_numpy(pd.Series([EXACT, None], dtype="Int64"))
    assert "nulls=" in caught.value.hint


def test_a_null_in_a_frame_is_refused_by_column(pd):
    """Expected: the column's name."""
    with pytest.raises(ferry.ConversionError, match="visits"):
        ferry.to_numpy(
            pd.DataFrame({"id": [1, 2], "visits": pd.array([EXACT, None], dtype="Int64")})
        )


def test_integers_beside_floats_are_not_rounded(pd):
    """Expected: an id beyond 2**53 is refused by column rather than changed."""
    with pytest.raises(ferry.ConversionError, match="id"):
        ferry.to_numpy(pd.DataFrame({"id": [EXACT, 3], "price": [0.5, 1.5]}))


def test_truth_beside_floats_names_the_column(pd):
    """Expected: a message with the column, not dtype object."""
    with pytest.raises(ferry.ConversionError, match="seen"):
        ferry.to_torch(pd.DataFrame({"seen": [True, False], "price": [1.0, 2.0]}))


def test_a_dict_of_columns_keeps_their_dtypes(pd):
    """Expected: each column its own tensor."""
    result = ferry.convert_tree(dict(pd.DataFrame({"a": [1, 2], "b": [0.5, 1.5]})), "torch")
    assert [result["a"].dtype, result["b"].dtype] == [torch.int64, torch.float64]


def test_groups_are_a_dict_of_tensors(pd):
    """Expected: one tensor for each group."""
    groups = pd.DataFrame({"k": [1, 1, 2], "v": [1.0, 2.0, 3.0]}).groupby("k")
    result = ferry.convert_tree({key: group["v"] for key, group in groups}, "torch")
    assert {key: value.tolist() for key, value in result.items()} == {1: [1.0, 2.0], 2: [3.0]}


def test_rows_of_a_frame_are_samples(frame):
    """Expected: columns again, text as a list."""
    batch = ferry.collate(frame.to_dict("records"), "torch")
    assert batch["a"].tolist() == [1, 2, 3]
    assert batch["name"] == ["x", "y", "z"]


def test_a_write_does_not_reach_the_frame(pd):
    """Expected: pandas' own values are read-only; a tensor of them is the caller's."""
    series = pd.Series([1.0, 2.0])
    tensor = ferry.to_torch(series)
    tensor[0] = 9
    assert series.tolist() == [1.0, 2.0] or ferry.to_numpy(series).flags.writeable


# -- polars and Arrow -----------------------------------------------------------------------------


def test_polars_columns_are_vectors_and_matrices(pl):
    """Expected: as pandas."""
    frame = pl.DataFrame({"a": [1, 2], "b": [3, 4]})
    assert ferry.to_torch(frame["a"]).tolist() == [1, 2]
    assert ferry.to_torch(frame).tolist() == [[1, 3], [2, 4]]
    assert ferry.to_torch(pl.Series([True, False])).dtype == torch.bool


def test_a_polars_null_is_refused(pl):
    """Expected: no rounded float."""
    with pytest.raises(ferry.ConversionError) as caught:
        ferry.to_numpy(pl.Series("visits", [EXACT, None]))
    assert "nulls=" in caught.value.hint


def test_polars_integers_beside_floats_are_not_rounded(pl):
    """Expected: refused by column."""
    with pytest.raises(ferry.ConversionError, match="id"):
        ferry.to_numpy(pl.DataFrame({"id": [EXACT, 3], "price": [0.5, 1.5]}))


def test_a_polars_column_of_fixed_lists_is_a_matrix(pl):
    """Expected: embeddings come out two-dimensional."""
    assert ferry.to_torch(pl.Series([[1, 2], [3, 4]], dtype=pl.Array(pl.Int64, 2))).shape == (2, 2)


def test_polars_text_is_answered_with_a_line(pl):
    """Expected: what the column is, and what to type."""
    with pytest.raises(ferry.ConversionError) as caught:
        ferry.to_torch(pl.DataFrame({"a": [1], "name": ["x"]}))
    assert "name" in str(caught.value)


def test_an_arrow_array_is_a_vector(pa):
    """Expected: its numbers."""
    assert ferry.to_torch(pa.array([1, 2, 3])).tolist() == [1, 2, 3]


def test_an_arrow_null_is_answered_with_what_stands_for_it(pa):
    """Expected: no word about DLPack."""
    for column in (pa.array([EXACT, None]), pa.chunked_array([[EXACT], [None, 3]])):
        with pytest.raises(ferry.ConversionError) as caught:
            ferry.to_torch(column)
        assert "nulls=" in caught.value.hint


# -- images ---------------------------------------------------------------------------------------


def test_an_image_is_height_width_channels(image):
    """Expected: uint8, as `np.asarray` has it; nothing is transposed or scaled."""
    assert np.array_equal(ferry.to_numpy(ferry.to_torch(image)), np.asarray(image))
    assert ferry.to_torch(image.convert("L")).shape == (2, 4)
    assert ferry.to_torch(image.convert("1")).dtype == torch.bool


def test_an_image_cannot_be_shared(image):
    """Expected: what PIL gives is a copy, so copy=False says so, and explain too."""
    with pytest.raises(ferry.CopyRequiredError):
        ferry.to_numpy(image, copy=False)
    assert "copies nothing" not in str(ferry.explain(image, "numpy"))


def test_a_palette_image_is_said_to_be_indices(image):
    """Expected: somebody says that these are no grey values."""
    assert "indices" in str(ferry.explain(image.convert("P"), "numpy"))


def test_images_make_a_batch(image):
    """Expected: default_collate refuses them; this does not."""
    batch = ferry.collate([{"image": image, "label": 1}, {"image": image, "label": 0}], "torch")
    assert batch["image"].shape == (2, 2, 4, 3)
    assert batch["label"].tolist() == [1, 0]


# -- arrays with names, files, sparse matrices ----------------------------------------------------


def test_a_data_array_shares_its_values(xr):
    """Expected: `da.values`, shared."""
    array = xr.DataArray(np.arange(6.0).reshape(2, 3), dims=("x", "y"))
    assert ferry.to_torch(array).shape == (2, 3)
    assert ferry.shares_memory(array.values, ferry.to_torch(array))


def test_a_dataset_is_a_tree_of_its_variables(xr):
    """Expected: a dict of tensors by the variables' names."""
    data = xr.Dataset({"t": ("x", [1.0, 2.0]), "n": ("x", [1, 2])})
    result = ferry.convert_tree(data, "torch")
    assert [result["t"].tolist(), result["n"].tolist()] == [[1.0, 2.0], [1, 2]]


@pytest.mark.parametrize("kind", ["csr_matrix", "csr_array", "coo_array", "csc_matrix"])
def test_a_sparse_matrix_is_answered_with_toarray(sparse, kind):
    """Expected: nothing dense unasked; the line that makes it dense."""
    matrix = getattr(sparse, kind)(np.eye(3))
    with pytest.raises(ferry.UnsupportedTypeError) as caught:
        ferry.to_torch(matrix)
    assert ".toarray()" in caught.value.hint
    assert ferry.to_torch(matrix.toarray()).tolist() == np.eye(3).tolist()


def test_an_hdf5_dataset_is_read(tmp_path):
    """Expected: its values; a group is a tree of them; it cannot be shared."""
    h5py = needed("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["group/x"] = np.arange(6.0).reshape(2, 3)
        assert ferry.to_torch(file["group/x"]).shape == (2, 3)
        assert ferry.to_torch(file["group/x"][:1]).tolist() == [[0.0, 1.0, 2.0]]
        assert ferry.convert_tree(file["group"], "torch")["x"].shape == (2, 3)
        with pytest.raises(ferry.CopyRequiredError):
            ferry.to_numpy(file["group/x"], copy=False)


def test_a_saved_npz_is_loaded(tmp_path):
    """Expected: `np.savez` and back, with a hint where it is given as a tensor."""
    np.savez(tmp_path / "a.npz", x=np.ones(2), y=np.arange(3))
    loaded = ferry.load(tmp_path / "a.npz", to="torch")
    assert loaded["y"].tolist() == [0, 1, 2]
    with np.load(tmp_path / "a.npz") as opened, pytest.raises(ferry.UnsupportedTypeError) as caught:
        ferry.to_torch(opened)
    assert "load" in caught.value.hint


def test_a_memory_map_is_not_written(tmp_path):
    """Expected: mapped read-only means that the file stays as it is."""
    np.save(tmp_path / "a.npy", np.ones(3))
    tensor = ferry.to_torch(np.load(tmp_path / "a.npy", mmap_mode="r"))
    tensor[0] = 5
    assert np.load(tmp_path / "a.npy")[0] == 1


def test_what_scikit_learn_gives_is_a_tensor():
    """Expected: a scaled matrix is one, a sparse one-hot matrix is answered with `.toarray()`."""
    preprocessing = needed("sklearn.preprocessing")
    scaled = preprocessing.StandardScaler().fit_transform([[1.0, 2.0], [3.0, 5.0]])
    assert torch.equal(ferry.to_torch(scaled), torch.tensor(scaled))
    with pytest.raises(ferry.UnsupportedTypeError) as caught:
        ferry.to_torch(preprocessing.OneHotEncoder().fit_transform([["a"], ["b"]]))
    assert ".toarray()" in caught.value.hint


# -- Hugging Face datasets ------------------------------------------------------------------------


@pytest.fixture
def rows(datasets):
    return datasets.Dataset.from_dict(
        {"x": [[1.0, 2.0], [3.0, 4.0]], "y": [0, 1], "text": ["a", "b"]}
    )


def test_a_slice_in_numpy_format_keeps_its_text(rows):
    """Expected: numbers become tensors, the column of text stays."""
    batch = ferry.convert_tree(rows.with_format("numpy")[:2], "torch")
    assert batch["x"].shape == (2, 2)
    assert batch["y"].tolist() == [0, 1]
    assert list(batch["text"]) == ["a", "b"]


def test_a_slice_in_torch_format_goes_to_jax(rows):
    """Expected: with dtype="fit" no word about 64 bits."""
    jax = needed("jax")
    batch = ferry.convert_tree(rows.with_format("torch")[:2], "jax", dtype="fit")
    assert isinstance(batch["y"], jax.Array)
    assert batch["text"] == ["a", "b"]


def test_the_page_on_hugging_face_does_what_it_says(rows):
    """Expected: the lines that the page cannot run without the package give a batch, whole and in a loop."""
    page = Path(__file__).parents[2] / "docs" / "howto" / "hugging-face-batches.md"
    (block,) = re.findall(
        r"^```python\n((?!>>> ).*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    first, *loop = block.splitlines()

    for lines in ([first], loop):
        names = {"dataset": rows, "ferry": ferry}
        exec("\n".join(lines), names)  # noqa: S102 - our own page
        assert torch.equal(
            names["batch"]["x"], torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
        )
        assert names["batch"]["y"].tolist() == [0, 1]
        assert names["batch"]["text"].to_pylist() == ["a", "b"]


def test_ragged_rows_are_refused_by_their_path(datasets):
    """Expected: the column's name, never an object array."""
    ragged = datasets.Dataset.from_dict({"ids": [[1, 2], [3]], "y": [0, 1]})
    with pytest.raises(ferry.ConversionError, match="ids"):
        ferry.convert_tree(ragged.with_format("numpy")[:2], "torch")


def test_equal_rows_in_an_object_array_are_stacked():
    """Expected: an object array of equal arrays is a matrix."""
    column = np.empty(2, object)
    column[:] = [np.ones(2), np.zeros(2)]
    assert ferry.convert_tree({"x": column}, "torch")["x"].tolist() == [[1, 1], [0, 0]]


def test_an_object_array_of_text_stays():
    """Expected: text is kept beside numbers, also in an object array."""
    text = np.array(["a", "b"], object)
    result = ferry.convert_tree({"text": text, "x": np.ones(1)}, "torch")
    assert list(result["text"]) == ["a", "b"]
    assert isinstance(result["x"], torch.Tensor)
