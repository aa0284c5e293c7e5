"""What `explain` prints for a device gives the values of the conversion: casts that NumPy does, and DLPack's dtypes."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from tests.backends import paper_cupy

import tensorferry as ferry
from tensorferry import TensorInfo
from tensorferry.host import casts
from tensorferry.host.numpy_dtypes import numpy_dtype
from tensorferry.planning.rules import frameworks_agree

torch = pytest.importorskip("torch")

DTYPES = (
    *("bool", "int8", "uint16", "int32", "int64", "uint64"),
    *(
        "float16",
        "float32",
        "float64",
        "complex64",
        "complex128",
        "bfloat16",
        "float8_e4m3fn",
        "float8_e5m2",
    ),
)
NARROW = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
ON_HOST = {
    "torch": ("cuda:0", "cpu"),
    "jax": ('"gpu"', '"cpu"'),
    "tensorflow": ("device:GPU", "device:CPU"),
}
"""What to replace in code for a GPU, by framework, so that it runs on the host."""


def random_bits(name, shape=(16, 24)):
    kind = numpy_dtype(name)
    raw = np.random.default_rng(3).integers(
        0, 256, int(np.prod(shape)) * kind.itemsize, dtype=np.uint8
    )
    return (raw % 2 if name == "bool" else raw).view(kind).reshape(shape)


def run(plan, x, framework="torch", **names):
    """What the code of a plan makes of `x`, on the host."""
    names["x"] = x
    with np.errstate(all="ignore"):
        exec(plan.code.replace(*ON_HOST[framework]), names)  # noqa: S102 - that is what the code is for
    return names["y"]


def unlike(found, expected):
    """How many values differ; a NaN may have any payload."""
    found, expected = (np.ascontiguousarray(each).reshape(-1) for each in (found, expected))
    if found.dtype.kind == "c":
        found, expected = (each.view(each.real.dtype) for each in (found, expected))
    assert found.dtype == expected.dtype
    width = np.dtype(f"u{found.dtype.itemsize}")
    same = found.view(width) == expected.view(width)
    if found.dtype.kind not in "biu":
        with np.errstate(all="ignore"):
            same |= np.isnan(found) & np.isnan(expected)
    return int((~same).sum())


@pytest.mark.parametrize("framework", ["torch", "jax", "tensorflow"])
@pytest.mark.usefixtures("_wide_jax")
def test_casts_inside_a_framework(framework):
    """From each dtype to each on a device, without a warning."""
    pytest.importorskip(framework)
    wrong = []
    for before, after in itertools.permutations(DTYPES, 2):
        if framework != "torch" and frameworks_agree(before, after):
            continue  # on the host, XLA and TensorFlow turn subnormal numbers into zero
        plan = ferry.explain(
            TensorInfo(framework, (16, 24), before, "cuda:0"),
            framework,
            dtype=after,
            casting="unsafe",
        )
        array = random_bits(before)
        with np.errstate(all="ignore"):
            expected = casts.cast(array, after)
        found = ferry.to_numpy(run(plan, ferry.convert(array, framework, device="cpu"), framework))
        if unlike(found, expected):
            wrong.append(f"{unlike(found, expected)} values of {before} to {after}: {plan.code}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("shape", [(), (0, 3), (1, 3)])
def test_casts_of_other_shapes(shape):
    """No axes, no elements; lazy bits, and a gradient that nobody records."""
    array = random_bits("complex64", shape)
    x = ferry.to_torch(array)
    for each, fields in (
        (x, {}),
        (x.conj(), {"conjugate": True}),
        (x.clone().requires_grad_(), {"requires_grad": True}),
    ):
        with torch.no_grad():
            info = TensorInfo("torch", shape, "complex64", "cuda:0", **fields)
            y = run(ferry.explain(info, "torch", dtype="float8_e5m2", casting="unsafe"), each)
        assert tuple(y.shape) == shape
        assert not unlike(ferry.to_numpy(y), casts.cast(array, "float8_e5m2"))


def test_checks_are_in_the_code():
    """NumPy's own, or a remark."""
    x = TensorInfo("torch", (3,), "float32", "cuda:0")
    plan = ferry.explain(x, "torch", dtype="int8")
    if np.lib.NumpyVersion(np.__version__) >= "2.4.0":
        with pytest.raises(ValueError, match="same_value"):
            run(plan, torch.tensor([0.5, 1.0, 2.0]))
    else:
        assert "# before this, each value is looked at" in plan.code
    code = ferry.explain(x, "torch", dtype="bfloat16", casting="same_value").code
    assert "# before this, each value is looked at" in code


@pytest.mark.parametrize(
    "before", ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
)
@pytest.mark.parametrize(
    "after", ["float8_e4m3fn", "float8_e5m2", "float16", "float32", "bfloat16"]
)
def test_casts_in_a_graph(before, after):
    """PyTorch's own, with NumPy's values wherever that fits in a line; the others say so."""
    random = np.random.default_rng(5)
    edges = [
        464.0,
        -464.0,
        464 + 1e-9,
        464.0001,
        448.0,
        np.inf,
        -np.inf,
        np.nan,
        2.0**-10,
        65519.99,
        65520.0,
    ]
    array = np.concatenate(
        [random.uniform(-600, 600, 20_000), random.standard_normal(20_000), edges]
    )
    if before in ("float16", "bfloat16"):
        array = np.arange(1 << 16, dtype=np.uint16).view(numpy_dtype(before))
    array = casts.cast(array, before)
    x = ferry.to_torch(array).requires_grad_()
    if before == after:
        return
    plan = ferry.explain(x, "torch", dtype=after, casting="unsafe")
    y = run(plan, x)
    assert y.requires_grad
    assert y.data_ptr() != x.data_ptr()
    differ = unlike(ferry.to_numpy(y), casts.cast(array, after))
    twice = before in ("float64", "complex128") and after != "float32"
    assert twice == ("# PyTorch rounds this to float32 first" in plan.code)
    assert twice or not differ, (differ, plan.code)


def test_a_cast_in_a_graph_that_crosses_the_bus_with_less():
    """An expanded tensor that is cast and moved in one step."""
    whole = torch.tensor([500.0, 1.0], requires_grad=True).expand(3, 2)
    info = TensorInfo("torch", (3, 2), "float32", "cuda:0", strides=(0, 4), requires_grad=True)
    y = run(ferry.explain(info, "torch", dtype="float8_e4m3fn"), whole)
    assert not unlike(ferry.to_numpy(y), casts.cast(ferry.to_numpy(whole), "float8_e4m3fn"))


@pytest.mark.usefixtures("_wide_jax")
def test_jax_leaves_out_the_imaginary_part_in_words():
    """JAX warns, and will raise, if a traced function casts complex numbers to real ones; so do code and verb not."""
    import jax

    x = jax.numpy.array([1 + 2j, 3 - 1j])
    for after in ("float16", "float64", "int32", "bfloat16", "bool"):

        def traced(x, after=after):
            assert "astype" in ferry.explain(x, "jax", dtype=after, casting="unsafe").code
            pasted = run(ferry.explain(x, "jax", dtype=after, casting="unsafe"), x, "jax")
            return ferry.to_jax(x, dtype=after, casting="unsafe"), pasted

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for y in jax.jit(traced)(x):
                assert np.asarray(y).tolist() == casts.cast(np.asarray(x), after).tolist()


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("other", ["torch", "jax", "tensorflow"])
def test_narrow_floats_to_and_from_cupy(other, name):
    """CuPy's DLPack does not know them: the code exchanges integers of the same width.

    On a stand-in for CuPy.
    """
    library = pytest.importorskip(other)
    if other == "tensorflow" and name.startswith("float8"):
        return  # which goes over the host
    if other == "tensorflow" and not hasattr(library.constant(1), "__dlpack__"):
        pytest.skip(
            f"the code is for a later TensorFlow: tensors of {library.__version__} have no __dlpack__"
        )
    array = random_bits(name)
    with paper_cupy.installed():
        here, there = (TensorInfo(each, array.shape, name, "cuda:0") for each in (other, "cupy"))
        out = ferry.explain(here, "cupy", copy=False)
        back = ferry.explain(there, other, copy=False if other == "torch" else None)
        y = run(out, ferry.convert(array, other), other)
        assert (type(y).__module__, y.dtype, y.array.tobytes()) == (
            "cupy",
            array.dtype,
            array.tobytes(),
        )
        x = ferry.convert(array, "cupy")
        again = run(back, x, other)
        assert ferry.describe(again).dtype == name
        assert ferry.to_numpy(again).tobytes() == array.tobytes()
        if other == "torch":
            assert again.data_ptr() == x.data.ptr
        # JAX makes a new array of what it views as another dtype, and the code says that the
        # conversion does not.
        copied = "# tensorferry uses this memory; view copies it in JAX\n"
        assert [copied in plan.code for plan in (out, back)] == [other == "jax"] * 2
        assert ferry.explain(there._replace(dtype="float32"), other).code.count("#") == 0


@pytest.mark.parametrize("name", ["float32", *NARROW])
def test_code_of_cupys_own(name):
    """What CuPy only stores is copied as integers: down, up, to a peer, in another layout, into out=."""
    array = random_bits(name)
    with paper_cupy.installed():
        x = ferry.convert(array, "cupy")
        info = ferry.describe(x)
        turned = info._replace(strides=(array.itemsize, 16 * array.itemsize))
        apart = info._replace(strides=(48 * array.itemsize, 2 * array.itemsize))
        for plan, value in (
            (ferry.explain(info, "numpy"), x),
            (ferry.explain(info, "cupy", copy=True), x),
            (ferry.explain(info, "cupy", device="cuda:1"), x),
            (ferry.explain(TensorInfo("numpy", array.shape, name), "cupy"), array),
        ):
            y = run(plan, value)
            assert ferry.to_numpy(y).tobytes() == array.tobytes()
        for layout, source in itertools.product((info, turned, apart), ("cupy", "numpy")):
            block = ferry.convert(np.zeros((1600,), array.dtype), "cupy")
            out = paper_cupy.ndarray(array.shape, array.dtype, block.data, layout.strides)
            taken = info if source == "cupy" else TensorInfo("numpy", array.shape, "float64")
            values = x if source == "cupy" else casts.cast(array, "float64")
            y = run(ferry.explain(taken, "cupy", out=layout, casting="unsafe"), values, out=out)
            assert y is out
            assert not unlike(out.array, array)
        y = paper_cupy.ndarray(array.shape, array.dtype, x.data, turned.strides)
        assert (
            ferry.to_numpy(run(ferry.explain(turned, "jax"), y, "jax")).tobytes()
            == y.array.tobytes()
        )


def test_one_element_with_a_negative_stride():
    """NumPy's `as_strided` does not know float8."""
    for name in (*NARROW, "float32"):
        x = random_bits(name, (3, 4))[::-1, ::-3][:1, :1]
        y = run(ferry.explain(x, "torch"), x)
        assert ferry.to_numpy(y).tobytes() == x.tobytes()


@pytest.mark.parametrize("before", ["float16", "float32", "float64"])
@pytest.mark.parametrize("after", ["int32", "uint8", "int64"])
def test_minus_zero_is_the_integer_zero(before, after):
    """NumPy 2.4 refuses it with casting="same_value", from float16."""
    x = np.array([-0.0, 3.0], before)
    plan = ferry.explain(x, "numpy", dtype=after, casting="same_value")
    assert (
        run(plan, x).tolist()
        == ferry.to_list(ferry.to_numpy(x, dtype=after, casting="same_value"))
        == [0, 3]
    )
