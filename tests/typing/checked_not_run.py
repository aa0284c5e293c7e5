"""What a type checker sees; mypy and pyright read this file, nothing runs it."""

from typing import Any

import jax
import numpy as np
import torch
from typing_extensions import assert_type

import tensorferry as ferry

Array = np.ndarray[Any, np.dtype[Any]]

assert_type(ferry.to_numpy([1, 2]), Array)
assert_type(ferry.to_torch([1, 2], device="cuda", non_blocking=True), torch.Tensor)
assert_type(ferry.to_jax([1, 2], dtype=np.float32), jax.Array)
assert_type(ferry.convert([1, 2], "numpy"), Array)
assert_type(ferry.convert([1, 2], "torch", copy=True), torch.Tensor)
assert_type(ferry.convert([1, 2], "jax"), jax.Array)
assert_type(ferry.convert([1, 2], like=torch.ones(2)), torch.Tensor)
assert_type(ferry.describe([1, 2]), ferry.TensorInfo)
assert_type(ferry.explain([1, 2], "numpy"), ferry.Plan)
assert_type(ferry.explain([1, 2], "numpy").steps, tuple[ferry.Step, ...])
assert_type(ferry.shares_memory([1], [2]), bool)
assert_type(ferry.frameworks(), dict[str, ferry.FrameworkStatus])

ferry.to_numpy([1], casting="loose")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
ferry.to_numpy([1], grad="keep")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
ferry.to_numpy([1], True)  # type: ignore[call-arg, misc, unused-ignore]  # pyright: ignore[reportCallIssue]
