"""Arrow's extension types of other libraries: Ray's tensors are converted, and numbers do not stay in silence."""

from __future__ import annotations

import uuid

import numpy as np
import pytest
from tests.support import EVERYWHERE

import tensorferry as ferry

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
torch = pytest.importorskip("torch")

DTYPES = ["bool", "uint8", "int32", "int64", "float16", "float32", "float64"]


@pytest.fixture(scope="module")
def ray():
    """The module of Ray's extension types; nothing of Ray is started."""
    pytest.importorskip("ray", reason="ray is not installed")
    return pytest.importorskip(
        "ray.data._internal.tensor_extensions.arrow", reason="Ray has moved its types"
    )


def tensors(dtype, shape=(4, 2, 3)):
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


def typed(ray, array, version):
    """A column of Ray's, by its older or newer type, and what Ray itself makes of it."""
    kind = {1: ray.ArrowTensorType, 2: ray.ArrowTensorTypeV2}[version]
    offsets = np.arange(len(array) + 1) * int(np.prod(array.shape[1:]))
    make, width = (pa.ListArray, "int32") if version == 1 else (pa.LargeListArray, "int64")
    flat = pa.array(array.ravel())
    storage = make.from_arrays(pa.array(offsets.astype(width)), flat)
    return pa.ExtensionArray.from_storage(kind(array.shape[1:], flat.type), storage)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("version", [1, 2])
def test_rays_tensors_are_what_ray_makes_of_them(ray, version, dtype):
    """Alone, in chunks, a slice, in a table of a tree, without rows."""
    array = tensors(dtype)
    x = typed(ray, array, version)
    assert np.array_equal(x.to_numpy(zero_copy_only=False), array)
    chunks = pa.chunked_array([x[:1], x[1:]])
    for given, expected in ((x, array), (x[1:3], array[1:3]), (chunks, array), (x[:0], array[:0])):
        found = ferry.to_numpy(given)
        assert (found.dtype, found.shape) == (array.dtype, expected.shape)
        assert np.array_equal(found, expected)
    table = pa.table({"image": chunks, "label": [1, 2, 3, 4]})
    tree = ferry.convert_tree({"t": table}, "torch")["t"]
    assert np.array_equal(tree["image"].numpy(), array)
    assert (
        ferry.explain_tree({"t": table}, "torch").plans['$["t"]["image"]'].result.shape
        == array.shape
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray's own, of its own settings
def test_what_ray_itself_makes_of_an_array(ray):
    """By the type that it chooses."""
    array = tensors("float32")
    x = ray.ArrowTensorArray.from_numpy(array)
    for target in EVERYWHERE:
        assert ferry.to_list(ferry.convert(x, target)) == array.tolist()
    assert ferry.shares_memory(ferry.to_numpy(x, copy=False), x)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_rays_tensors_of_unequal_shapes_are_refused_by_name(ray):
    """In a tree too: they do not stay among what has no numbers."""
    x = ray.ArrowVariableShapedTensorArray.from_numpy([np.ones((1, 2)), np.ones((2, 2))])
    for call in (
        lambda: ferry.to_numpy(x),
        lambda: ferry.convert_tree({"t": pa.table({"x": x})}, "numpy"),
    ):
        with pytest.raises(
            ferry.UnsupportedTypeError, match=r"has type ray.data.arrow_variable_shaped_tensor"
        ):
            call()


@pytest.mark.parametrize(
    "metadata", [b"", b"7", b"[7]", b"[-1, 2]", b"\x80\x04", b'{"shape": [2]}']
)
def test_metadata_that_do_not_fit_make_no_tensor(metadata):
    """They may be pickled, which nobody runs here."""

    class Odd(pa.ExtensionType):
        def __init__(self):
            super().__init__(pa.large_list(pa.float64()), "ray.data.arrow_tensor_v2")

        def __arrow_ext_serialize__(self):
            return metadata

    x = pa.ExtensionArray.from_storage(Odd(), pa.array([[1.0, 2.0]], pa.large_list(pa.float64())))
    with pytest.raises(ferry.UnsupportedTypeError, match=r"has type ray.data.arrow_tensor_v2"):
        ferry.to_numpy(x)


def unknown(storage):
    """A column of a type that nobody knows."""

    class Unknown(pa.ExtensionType):
        def __init__(self):
            super().__init__(storage.type, "not.known")

        def __arrow_ext_serialize__(self):
            return b""

    return pa.ExtensionArray.from_storage(Unknown(), storage)


NUMBERS = {
    "integers": pa.array([1, 2]),
    "booleans": pa.array([True, False]),
    "lists": pa.array([[1.5], [2.5, 3.5]]),
    "rows": pa.array([[1.5, 2.5]], pa.list_(pa.float64(), 2)),
    "fields": pa.array([{"x": 1.5, "name": "a"}]),
    "numbers in a dictionary": pa.array([1.5, 2.5]).dictionary_encode(),
}
NO_NUMBERS = {
    "text": pa.array(["a"]),
    "bytes": pa.array([b"a"]),
    "fixed bytes": pa.array([uuid.UUID(int=1).bytes], pa.binary(16)),
    "words": pa.array([["a"], ["b", "c"]]),
    "text in a dictionary": pa.array(["a"]).dictionary_encode(),
    "dates": pa.array([0], pa.timestamp("us")),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_an_unknown_type_do_not_stay_in_silence(name):
    """What they mean is not known: the tree is refused with the path, and the hint gives the storage."""
    x = unknown(NUMBERS[name])
    for tree in ({"t": pa.table({"x": x, "y": pa.array([1] * len(x))})}, {"t": {"x": x}}):
        for call in (ferry.convert_tree, ferry.explain_tree):
            with pytest.raises(
                ferry.UnsupportedTypeError, match=r'has type not.known.* - at \$\["t"\]\["x"\]'
            ):
                call(tree, "numpy")
    series = pd.Series(x, dtype=pd.ArrowDtype(x.type))
    with pytest.raises(ferry.UnsupportedTypeError, match=r"has type not.known"):
        ferry.convert_tree({"x": series}, "numpy")


@pytest.mark.parametrize("name", NO_NUMBERS)
def test_what_has_no_numbers_stays(name):
    """As it does without the name of a type."""
    x = unknown(NO_NUMBERS[name])
    assert ferry.convert_tree({"x": x}, "numpy")["x"] is x
    with pytest.raises(ferry.UnsupportedTypeError, match=r"has type not.known"):
        ferry.to_numpy(x)
