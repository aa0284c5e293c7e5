"""H70: integers in the other byte order are compared like all others, on every way that casts them."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import tensorferry as ferry

jax = pytest.importorskip("jax")
torch = pytest.importorskip("torch")
tf = pytest.importorskip("tensorflow")

OTHER = "<" if sys.byteorder == "big" else ">"


def swapped(numbers, dtype):
    return np.array(numbers, f"{OTHER}{dtype}")


TOO_LARGE = {
    "i8 to int32": (swapped([1, 2**40], "i8"), "int32"),
    "u2 to int8": (swapped([1, 200], "u2"), "int8"),
    "i4 to uint8": (swapped([1, -1], "i4"), "uint8"),
    "u8 to int32": (swapped([1, 2**63], "u8"), "int32"),
}


def views(array):
    """The same numbers as one may meet them: strided, as a field, with more axes, as one element."""
    fields = np.zeros(len(array), [("a", "u1"), ("b", array.dtype)])
    fields["b"] = array
    return {
        "whole": array,
        "strided": np.repeat(array, 2)[::2],
        "reversed": array[::-1],
        "field": fields["b"],
        "rows": np.broadcast_to(array, (3, len(array))),
        "one": array[-1:].reshape(()),
    }


def ways(x, dtype, tmp_path):
    """Every way on which an array is cast to a dtype, as functions."""
    path = tmp_path / "swapped.npy"
    np.save(path, x)
    like = (
        torch.zeros(1, dtype=getattr(torch, dtype)) if hasattr(torch, dtype) else np.zeros(1, dtype)
    )
    return {
        "numpy": lambda: ferry.to_numpy(x, dtype=dtype),
        "torch": lambda: ferry.to_torch(x, dtype=dtype),
        "tensorflow": lambda: ferry.to_tensorflow(x, dtype=dtype),
        "jax": lambda: ferry.to_jax(x, dtype=dtype),
        "list": lambda: ferry.to_list(x, dtype=dtype),
        "same_value": lambda: ferry.to_numpy(x, dtype=dtype, casting="same_value"),
        "like": lambda: ferry.convert(x, like=like),
        "out": lambda: ferry.to_numpy(x, out=np.zeros(x.shape, dtype)),
        "tree": lambda: ferry.convert_tree({"x": x}, "torch", dtype=dtype),
        "collate": lambda: ferry.collate([x, x], "numpy", dtype=dtype),
        "start": lambda: ferry.start({"x": x}, "torch", dtype=dtype).result(),
        "prefetch": lambda: list(ferry.prefetch([{"x": x}], "torch", dtype=dtype)),
        "map": lambda: ferry.to_torch(np.load(path, mmap_mode="r"), dtype=dtype),
    }


@pytest.mark.parametrize("view", ["whole", "strided", "reversed", "field", "rows", "one"])
@pytest.mark.parametrize("case", TOO_LARGE)
def test_H70_what_does_not_fit_is_refused_on_every_way(case, view, tmp_path):
    """NumPy 2.4's own `astype(casting="same_value")` gives 0 for 2**40 here, and -56 for 200."""
    array, dtype = TOO_LARGE[case]
    x = views(array)[view]
    for way, convert in ways(x, dtype, tmp_path).items():
        with pytest.raises(ferry.LossyCastError, match="does not fit"):
            pytest.fail(f"{way} gave {convert()!r}")


@pytest.mark.parametrize("view", ["whole", "strided", "reversed", "field", "rows", "one"])
def test_H70_what_fits_arrives(view, tmp_path):
    """The same ways convert numbers that fit."""
    x = views(swapped([-3, 100], "i8"))[view]
    for way, convert in ways(x, "int8", tmp_path).items():
        result = convert()
        while isinstance(result, dict) or (isinstance(result, list) and way == "prefetch"):
            result = result["x"] if isinstance(result, dict) else result[0]
        expected = np.stack([x, x]) if way == "collate" else x
        assert ferry.to_list(result) == expected.tolist(), way


@pytest.mark.parametrize("case", TOO_LARGE)
def test_H70_the_pasted_code_refuses_too(case):
    """A plan's code brings the numbers into the machine's order first, or says that each is looked at."""
    x, dtype = TOO_LARGE[case]
    code = ferry.explain(x, "numpy", dtype=dtype).code
    if "same_value" not in code:
        assert "each value is looked at" in code
        return
    with pytest.raises(ValueError, match="same_value"):
        exec(code, {"x": x})  # noqa: S102 - that is what the code is for
