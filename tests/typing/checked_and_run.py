"""What a type checker sees of calls, and what they give: `tests/api/test_types.py` runs each line and compares."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np
import torch
from typing_extensions import assert_type

import tensorferry as ferry

Array = np.ndarray[Any, np.dtype[Any]]

numbers = [1.5, 2.5]
holes = [1.5, None]
uneven = [[1], [2, 3]]
array = np.ones(2, "float32")
tensor = torch.ones(2)
jaxs = jax.numpy.ones(2)
parameter = torch.nn.Parameter(torch.ones(2))

# -- the target's own function --------------------------------------------------------------------

assert_type(ferry.to_numpy(numbers), Array)
assert_type(
    ferry.to_numpy(numbers, dtype="float16", casting="same_kind", nulls=None, ragged=None), Array
)
assert_type(ferry.to_numpy(numbers, out=np.ones(2), pad=0), Array)
assert_type(ferry.to_numpy(holes, nulls=0.0), Array)
assert_type(ferry.to_numpy(holes, nulls="nan"), Array)
assert_type(ferry.to_numpy(holes, nulls="mask"), tuple[Array, Array])
assert_type(ferry.to_numpy(uneven, pad=0), Array)
assert_type(ferry.to_numpy(uneven, ragged="rows"), Array | list[Array])
assert_type(ferry.to_numpy([numbers], ragged="rows"), Array | list[Array])
assert_type(
    ferry.to_numpy(uneven, nulls="mask", ragged="rows"),
    tuple[Array | list[Array], Array | list[Array]],
)
assert_type(
    ferry.to_numpy([numbers], nulls="mask", ragged="rows"),
    tuple[Array | list[Array], Array | list[Array]],
)

assert_type(ferry.to_torch(numbers), torch.Tensor)
assert_type(ferry.to_torch(parameter, non_blocking=True), torch.Tensor)
assert_type(ferry.to_torch(numbers, out=torch.ones(2)), torch.Tensor)
assert_type(ferry.to_torch(holes, nulls="mask"), tuple[torch.Tensor, torch.Tensor])
assert_type(ferry.to_torch(uneven, ragged="rows"), torch.Tensor | list[torch.Tensor])

assert_type(ferry.to_jax(numbers, dtype="fit"), jax.Array)
assert_type(ferry.to_jax(holes, nulls="mask", dtype="float32"), tuple[jax.Array, jax.Array])
assert_type(ferry.to_jax(uneven, ragged="rows", dtype="fit"), jax.Array | list[jax.Array])

assert_type(ferry.to_list(numbers), Any)
assert_type(ferry.to_list(holes, nulls="mask"), Any)
assert_type(ferry.to_arrow(numbers), Any)
assert_type(ferry.to_pandas([numbers]), Any)
assert_type(ferry.to_polars(numbers), Any)

# -- convert, by name, class and module ------------------------------------------------------------

assert_type(ferry.convert(numbers, "numpy"), Array)
assert_type(ferry.convert(numbers, to="np", out=np.ones(2)), Array)
assert_type(ferry.convert(numbers, np.ndarray, copy=True), Array)
assert_type(ferry.convert(holes, "np", nulls=0), Array)
assert_type(ferry.convert(holes, "np", nulls="mask"), tuple[Array, Array])
assert_type(ferry.convert(uneven, "np", ragged="rows"), Array | list[Array])
assert_type(ferry.convert(numbers, "torch", grad="error"), torch.Tensor)
assert_type(ferry.convert(numbers, "pt"), torch.Tensor)
assert_type(ferry.convert(numbers, "pytorch"), torch.Tensor)
assert_type(ferry.convert(numbers, torch.Tensor), torch.Tensor)
assert_type(ferry.convert(holes, torch.Tensor, nulls="mask"), tuple[torch.Tensor, torch.Tensor])
assert_type(ferry.convert(uneven, "pt", ragged="rows"), torch.Tensor | list[torch.Tensor])
assert_type(ferry.convert(numbers, "jax"), jax.Array)
assert_type(ferry.convert(numbers, "jnp"), jax.Array)
assert_type(ferry.convert(numbers, "jax.numpy"), jax.Array)
assert_type(ferry.convert(numbers, jax.Array), jax.Array)
assert_type(ferry.convert(holes, "jax", nulls="mask", dtype="float32"), tuple[jax.Array, jax.Array])
assert_type(ferry.convert(uneven, "jax", ragged="rows", dtype="int32"), jax.Array | list[jax.Array])
assert_type(ferry.convert(numbers, np), Any)
assert_type(ferry.convert(numbers, jax.numpy), Any)
assert_type(ferry.convert(numbers, "list"), Any)
assert_type(ferry.convert(numbers, list), Any)
assert_type(ferry.convert([numbers], "pandas"), Any)

# -- like another tensor ---------------------------------------------------------------------------

assert_type(ferry.convert(numbers, like=array), Array)
assert_type(ferry.convert(numbers, like=tensor, dtype="float16"), torch.Tensor)
assert_type(ferry.convert(numbers, like=parameter), torch.Tensor)
assert_type(ferry.convert(numbers, like=jaxs), jax.Array)
assert_type(ferry.convert(numbers, like=(1.0, 2.0)), Any)
assert_type(ferry.convert(numbers, like=np.float32(1)), Any)
assert_type(ferry.convert(1.5, like=[1.0, 2.0]), Any)
assert_type(ferry.convert(numbers, like=ferry.TensorInfo("torch")), Any)
assert_type(ferry.convert(holes, like=tensor, nulls="mask"), Any)

# -- trees -----------------------------------------------------------------------------------------

assert_type(ferry.convert_tree((1, tensor), "numpy"), Any)
assert_type(ferry.collate([{"x": [1]}], "numpy", pad={"x": 0}, mask=True), Any)
assert_type(ferry.snapshot(array), Array)
assert_type(ferry.snapshot(tensor), torch.Tensor)
assert_type(ferry.snapshot(parameter), torch.Tensor)
assert_type(ferry.snapshot(jaxs), jax.Array)
assert_type(ferry.snapshot({"w": parameter}), dict[str, torch.Tensor])
assert_type(ferry.snapshot({"w": jaxs}), dict[str, jax.Array])
assert_type(ferry.snapshot([parameter]), Any)
assert_type(ferry.describe_tree([tensor]), dict[str, ferry.TensorInfo])
assert_type(ferry.explain_tree([tensor], "jax"), ferry.TreePlan)
assert_type(ferry.explain_collate([{"x": 1}], "numpy"), ferry.BatchPlan)

# -- what converts nothing, functions, transfers ---------------------------------------------------

assert_type(ferry.describe(numbers), ferry.TensorInfo)
assert_type(ferry.TensorInfo(torch, (2,)).ndim, int)
assert_type(ferry.explain(numbers, "numpy"), ferry.Plan)
assert_type(ferry.shares_memory(array, tensor), bool)
assert_type(ferry.is_tensor(array), bool)
assert_type(ferry.frameworks(), dict[str, ferry.FrameworkStatus])
assert_type(ferry.start(array, "torch"), ferry.Transfer)
assert_type(ferry.prefetch([array], "torch"), ferry.Prefetch)
assert_type(ferry.wrap(torch.sin, inner="torch"), Callable[..., Any])
assert_type(ferry.wrap(inner="torch")(torch.sin), Callable[..., Any])
assert_type(ferry.wrap_module(torch.nn.Linear(1, 1)), tuple[Callable[..., Any], dict[str, Any]])
assert_type(
    ferry.wrap_module(torch.nn.BatchNorm1d(1), state=True, dtype="fit"),
    tuple[Callable[..., Any], dict[str, Any], dict[str, Any]],
)

# -- a function of any tensor that gives back what came in -----------------------------------------

Given = TypeVar("Given")


def doubled(x: Given) -> Given:
    result: Given = ferry.convert(ferry.to_numpy(x) * 2, like=x)
    return result


assert_type(doubled(tensor), torch.Tensor)
assert_type(doubled(jaxs), jax.Array)
