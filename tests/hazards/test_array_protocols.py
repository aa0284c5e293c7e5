"""Hazards of array protocols: exports that say nothing of writing, and arrays that are made when they are asked for."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from tests.support import EVERYWHERE, TARGETS, address, counted

import tensorferry as ferry

jax = pytest.importorskip("jax")
torch = pytest.importorskip("torch")
pytest.importorskip("tensorflow")

NO_MLX = "mlx is not in the test environment: it has no wheels for every platform"
NO_XARRAY = "xarray is not in the test environment: it brings pandas"


class Unversioned:
    """Exports as before DLPack 1.0, which has no word for read-only memory."""

    def __init__(self, x):
        self.x = x

    def __dlpack__(self, stream=None):
        return self.x.__dlpack__()

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()


class Given:
    """Gives by ``__array__`` what a function makes."""

    def __init__(self, make):
        self.make, self.asked = make, 0

    def __array__(self, dtype=None, copy=None):
        self.asked += 1
        return self.make()


# -- H74, H91: DLPack without a version ---------------------------------------------------------


def test_H74_an_export_without_a_version_is_read_only():
    """A wrapper over a JAX array does not make it writable, as `np.from_dlpack` does not."""
    x = jax.numpy.arange(4.0)
    view = ferry.to_numpy(Unversioned(x))
    assert address(view) == address(x)
    assert not view.flags.writeable
    assert ferry.to_numpy(Unversioned(x), copy=True).flags.writeable
    assert ferry.describe(Unversioned(x)).writable is False


@pytest.mark.parametrize("target", ["torch", "tensorflow", "jax"])
def test_H74_what_may_be_written_elsewhere_is_copied(target):
    """Nobody knows who writes it; ``copy=False`` is the caller's consent, and the plan names the hazard."""
    array = counted((64,))
    x = Unversioned(array)
    assert not ferry.shares_memory(ferry.convert(x, target), array)
    assert address(ferry.convert(x, target, copy=False)) == address(array)
    assert ferry.explain(x, target, copy=False).warnings


def test_H74_an_export_without_a_version_may_be_a_copy():
    """It has no flag for that: its address is compared with the next one's."""

    class Copies(Unversioned):
        def __dlpack__(self, stream=None):
            return self.x.copy().__dlpack__()

    x = Copies(np.arange(4.0))
    with pytest.raises(ferry.CopyRequiredError):
        ferry.to_numpy(x, copy=False)
    result = ferry.to_numpy(x)
    assert result.flags.writeable
    assert result.tolist() == [0, 1, 2, 3]
    assert not ferry.explain(x, "numpy").shares_memory


def test_H74_an_export_that_says_that_it_is_a_copy_shares_nothing():
    """The flag came with the version."""

    class Copies:
        def __init__(self, x):
            self.x = x

        def __dlpack__(self, *, max_version=None, **keywords):
            return self.x.__dlpack__(max_version=max_version, copy=True)

        def __dlpack_device__(self):
            return self.x.__dlpack_device__()

    x = Copies(np.arange(4.0))
    with pytest.raises(ferry.CopyRequiredError):
        ferry.to_numpy(x, copy=False)
    assert ferry.to_torch(x).tolist() == [0, 1, 2, 3]


def test_H91_an_array_of_mlx_is_read_only():
    """It is immutable and lazy: a write would change what is still to be computed from it."""
    mx = pytest.importorskip("mlx.core", reason=NO_MLX)
    x = mx.arange(4)
    later = x + 1
    view = ferry.to_numpy(x)
    assert not view.flags.writeable
    tensor = ferry.to_torch(x)
    tensor.add_(7)
    assert later.tolist() == [1, 2, 3, 4]
    assert x.tolist() == [0, 1, 2, 3]
    assert ferry.to_numpy(x.astype(mx.bfloat16)).dtype.name == "bfloat16"


# -- H90: what `__array__` gives ------------------------------------------------------------------


def dask_array():
    return pytest.importorskip("dask.array").arange(6, chunks=3, dtype="f4")


def zarr_array():
    return pytest.importorskip("zarr").array(np.arange(6, dtype="f4"))


def hdf5_dataset():
    h5py = pytest.importorskip("h5py")
    return h5py.File("in memory", "w", driver="core", backing_store=False).create_dataset(
        "d", data=np.arange(6, dtype="f4")
    )


def xarray_of_dask():
    return pytest.importorskip("xarray", reason=NO_XARRAY).DataArray(dask_array())


def made_anew():
    return Given(lambda: np.arange(6, dtype="f4"))


def view_of_what_is_made():
    return Given(lambda: np.arange(12, dtype="f4").reshape(2, 6)[0])


def one_of_two_in_turn():
    """Memory of its own, at another address each time: whose it is cannot be shown."""
    slots = [np.arange(6, dtype="f4"), np.arange(6, dtype="f4")]

    def make():
        slots.reverse()
        return slots[0]

    return Given(make)


COPIED = [
    dask_array,
    zarr_array,
    hdf5_dataset,
    xarray_of_dask,
    made_anew,
    view_of_what_is_made,
    one_of_two_in_turn,
]


@pytest.mark.parametrize("target", EVERYWHERE)
@pytest.mark.parametrize("make", COPIED)
def test_H90_a_copy_is_called_a_copy(make, target):
    """By the plan, by ``copy=False``, by `shares_memory`; the values arrive, in memory of one's own."""
    x = make()
    plan = ferry.explain(x, target)
    assert not plan.shares_memory
    assert plan.bytes_copied >= 24
    with pytest.raises(ferry.CopyRequiredError):
        ferry.convert(x, target, copy=False)
    with pytest.raises(ferry.CopyRequiredError):
        ferry.explain(x, target, copy=False)
    assert not ferry.shares_memory(x, x) or x is x  # noqa: PLR0124 - one object has its own bytes
    assert ferry.to_list(ferry.convert(x, target)) == list(range(6))


@pytest.mark.parametrize("make", COPIED)
def test_H90_the_copy_is_nobody_elses(make):
    """It can be written, and what the object gives next is as before."""
    x = make()
    for _ in range(2):
        result = ferry.to_numpy(x)
        result += 1
    assert ferry.to_numpy(x).tolist() == list(range(6))


@pytest.mark.parametrize("target", TARGETS)
def test_H90_what_has_its_own_memory_shares_it(target):
    """The same address each time, while the first array is held."""
    array = counted((64,))
    x = Given(lambda: array)
    assert address(ferry.convert(x, target, copy=False)) == address(array)
    assert ferry.explain(x, "numpy").shares_memory
    part = Given(lambda: array[3:])
    assert address(ferry.to_numpy(part, copy=False)) == array.ctypes.data + 12
    part.make = lambda: array[:0]
    assert ferry.to_numpy(part, copy=False).shape == (0,)


def test_H90_what_is_made_is_made_once():
    """An array that nobody else holds was made for the caller: it is not asked for again."""
    x = Given(lambda: np.arange(6, dtype="f4"))
    ferry.to_numpy(x)
    assert x.asked == 1


def test_H90_what_is_cached_is_the_objects():
    """A write to it would show in what it gives next."""

    class Cached(Given):
        def __array__(self, dtype=None, copy=None):
            if not hasattr(self, "kept"):
                self.kept = np.arange(6, dtype="f4")
            return self.kept

    x = Cached(None)
    shared = ferry.to_numpy(x, copy=False)
    shared[0] = 9
    assert x.kept[0] == 9


def test_H90_what_is_remembered_by_a_weak_reference_is_not_taken_for_ones_own():
    """Somebody may come back to it."""
    import weakref

    remembered = []

    def make():
        array = np.arange(6, dtype="f4")
        remembered.append(weakref.ref(array))
        return array

    result = ferry.to_numpy(Given(make))
    assert all(each() is not result for each in remembered)


@pytest.mark.parametrize("make", [dask_array, zarr_array, hdf5_dataset, xarray_of_dask])
def test_H90_nothing_is_computed_to_explain(make, monkeypatch):
    """Shape and dtype are known before the values are."""
    x = make()
    monkeypatch.setattr(np, "asarray", lambda *_, **__: pytest.fail("was read"))
    info = ferry.describe(x)
    assert (info.shape, info.dtype) == ((6,), "float32")
    assert ferry.explain(x, "torch", dtype="float16").result.dtype == "float16"


def test_H90_a_dask_array_of_unknown_length_is_computed():
    """There is no other way to know."""
    x = dask_array()
    assert ferry.to_numpy(x[x > 2]).tolist() == [3, 4, 5]
    with pytest.raises(ferry.CopyRequiredError):
        ferry.to_numpy(x[x > 2], copy=False)


@pytest.mark.parametrize("dtype", [">f4", "bool", "uint16", "complex64"])
def test_H90_datasets_of_other_dtypes(dtype):
    """In the machine's byte order, with a shape of no axes too."""
    h5py = pytest.importorskip("h5py")
    with h5py.File("in memory", "w", driver="core", backing_store=False) as file:
        x = file.create_dataset("d", data=np.array([0, 1], dtype))
        for target in TARGETS:
            assert ferry.to_list(ferry.convert(x, target)) == [0, 1]
        assert ferry.to_numpy(x).dtype == np.dtype(dtype).newbyteorder("=")
        assert ferry.to_numpy(file.create_dataset("one", data=1.5)).shape == ()


def test_H90_text_of_a_file_is_kept_in_a_tree_and_refused_alone():
    """As NumPy's arrays of text are."""
    h5py = pytest.importorskip("h5py")
    with h5py.File("in memory", "w", driver="core", backing_store=False) as file:
        x = file.create_dataset("d", data=["a", "b"])
        assert ferry.convert_tree({"x": x}, "torch")["x"] is x
        with pytest.raises(ferry.UnsupportedTypeError):
            ferry.to_torch(x)


def test_H90_an_array_with_names_shares_the_memory_that_it_has():
    """xarray over NumPy."""
    xr = pytest.importorskip("xarray", reason=NO_XARRAY)
    array = np.arange(6, dtype="f4")
    assert ferry.shares_memory(ferry.to_torch(xr.DataArray(array)), array)


def test_H90_a_dataset_of_arrays_with_names_loses_no_coordinate(tmp_path):
    """In a tree it is a dict of all its variables; alone and in a file it is refused with code for such a dict."""
    xr = pytest.importorskip("xarray", reason=NO_XARRAY)
    x = xr.Dataset(
        {"a": ("t", np.ones(2)), "words": ("t", ["u", "v"])},
        coords={"t": [10, 20], "u": ("t", [0.5, 1.5])},
    )
    for tree, made in (
        ({"x": x}, ferry.convert_tree({"x": x}, "torch")["x"]),
        ({"x": x}, ferry.snapshot({"x": x})["x"]),
        ({"x": xr.DataTree(x)}, ferry.convert_tree({"x": xr.DataTree(x)}, "torch")["x"]),
    ):
        assert made.keys() == set(x.variables)
        assert {name: ferry.to_list(made[name]) for name in "atu"} == {
            "a": [1, 1],
            "t": [10, 20],
            "u": [0.5, 1.5],
        }
        assert list(ferry.describe_tree(tree)) == ['$["x"]["a"]', '$["x"]["t"]', '$["x"]["u"]']
    assert ferry.collate([x, x], "torch")["t"].tolist() == [[10, 20], [10, 20]]
    below = ferry.convert_tree(xr.DataTree(x, children={"b": xr.DataTree(x)}), "torch")
    assert below["b"]["t"].tolist() == below["t"].tolist() == [10, 20]
    names = {
        "x": x,
        "convert_tree": ferry.convert_tree,
        "save": ferry.save,
        "path": tmp_path / "all.npz",
    }
    with pytest.raises(
        ferry.UnsupportedTypeError, match="A Dataset is several arrays with names"
    ) as caught:
        ferry.to_torch(x)
    assert eval(caught.value.hint, names).keys() == set(x.variables)  # noqa: S307 - that is what the hint is for
    with pytest.raises(
        ferry.UnsupportedTypeError, match="A DataTree is several datasets with names"
    ) as caught:
        ferry.to_torch(xr.DataTree(x, children={"b": xr.DataTree(x)}))
    names["x"] = xr.DataTree(x, children={"b": xr.DataTree(x)})
    assert eval(caught.value.hint, names).keys() >= {"a", "t", "u", "b/a", "b/t", "b/u"}  # noqa: S307 - that is what the hint is for
    numbers = x.drop_vars("words")
    for held, count in (
        (numbers, 3),
        (xr.DataTree(numbers), 3),
        (xr.DataTree(children={"b": xr.DataTree(numbers)}), 3),
    ):
        with pytest.raises(
            ferry.UnsupportedTypeError, match=r'several .* with names. - at \$\["x"\]'
        ) as caught:
            ferry.save({"x": held}, names["path"])
        code = caught.value.hint.removesuffix(" in its place")
        ferry.save({"x": eval(code, {**names, "x": {"x": held}})}, names["path"])  # noqa: S307 - that is what it is for
        assert len(ferry.open(names["path"]).tensors) == count
        names["path"].unlink()


def test_H90_a_time_that_is_a_coordinate_stays():
    """It is no number, and nothing is left out; by its name it is a count."""
    xr = pytest.importorskip("xarray", reason=NO_XARRAY)
    x = xr.Dataset({"a": ("t", np.ones(1))}, coords={"t": np.array(["2024-01-01"], "M8[ns]")})
    assert ferry.convert_tree({"x": x}, "torch")["x"]["t"] is x.variables["t"]
    found = ferry.convert_tree({"x": x}, "torch", dtype={"x.t": "int64"})["x"]
    assert found["t"].tolist() == x.variables["t"].values.astype("int64").tolist()


def test_H90_an_object_of_python_objects_is_read_as_an_array_of_them():
    """Numbers are converted, as those of an array of objects are; others are refused where they stand."""
    assert ferry.to_numpy(Given(lambda: np.array([1, 2], object))).tolist() == [1, 2]
    with pytest.raises(ferry.UnsupportedTypeError, match=r"x\[1\]"):
        ferry.to_numpy(Given(lambda: np.array([1, "a"], object)))


def test_H90_a_file_that_is_closed_is_an_error_of_ours():
    """The library's own error is the cause, alone and in a tree."""
    h5py = pytest.importorskip("h5py")
    with h5py.File("in memory", "w", driver="core", backing_store=False) as file:
        x = file.create_dataset("d", data=[1.0])
    for call in (ferry.describe, ferry.to_torch, lambda x: ferry.convert_tree({"x": x}, "torch")):
        with pytest.raises(ferry.UnsupportedTypeError, match="cannot be read") as caught:
            call(x)
        assert caught.value.__cause__ is not None


def test_H90_what_fails_while_it_is_computed_is_an_error_of_ours():
    """It is read when the plan runs."""
    da = pytest.importorskip("dask.array")

    def fails(block):
        raise OSError("the disk is gone")

    x = da.zeros(4).map_blocks(fails, dtype="f8", meta=np.empty(0))
    with pytest.raises(ferry.UnsupportedTypeError, match="the disk is gone") as caught:
        ferry.to_numpy(x)
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize(
    "array", [np.array(["2020"], "M8[D]"), np.array(["a"]), np.ones(2, np.longdouble)]
)
def test_H90_the_hint_for_what_is_no_tensor_pastes(array):
    """What is written there runs."""
    if array.dtype == np.float64:
        pytest.skip("long double is float64 on this platform")
    x = Given(lambda: array)
    with pytest.raises(ferry.UnsupportedTypeError) as caught:
        ferry.to_numpy(x)
    code = caught.value.hint.partition(", which")[0]
    eval(code, {"np": np, "x": x, "to_numpy": ferry.to_numpy})  # noqa: S307 - that is what the hint is for


def test_H90_the_source_lives_as_long_as_what_shares_it():
    """The array that an object gives keeps its memory."""

    class Holds:
        def __init__(self):
            self.array = counted((1 << 12,))

        def __array__(self, dtype=None, copy=None):
            return self.array

    result = ferry.to_numpy(Holds(), copy=False)
    gc.collect()
    assert result[-1] == (1 << 12) - 1


def test_H90_a_mask_is_not_dropped_when_it_is_computed():
    """dask computes masked arrays too; one without a masked element is its data."""
    da = pytest.importorskip("dask.array")
    x = da.ma.masked_equal(da.arange(3), 1)
    with pytest.raises(ferry.UnsupportedTypeError, match="mask would be lost") as caught:
        ferry.to_numpy(x)
    code = caught.value.hint.partition(", or")[0]
    assert eval(code, {"x": x}).tolist() == [0, 0, 2]  # noqa: S307 - that is what the hint is for
    assert ferry.to_numpy(da.ma.masked_equal(da.arange(3), 9)).tolist() == [0, 1, 2]
