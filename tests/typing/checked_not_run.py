"""What a type checker sees of files, backends and mistakes; mypy and pyright read this file, nothing runs it."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import torch
from typing_extensions import assert_type

import tensorferry as ferry
from tensorferry.backends import verbs
from tensorferry.backends.array_like import tensors as array_like
from tensorferry.backends.cupy import tensors as cupy
from tensorferry.backends.jax import tensors as of_jax
from tensorferry.backends.numpy import tensors as numpy
from tensorferry.backends.python import tensors as python
from tensorferry.backends.tensorflow import tensors as tensorflow
from tensorferry.backends.torch import tensors as of_torch
from tensorferry.backends.torch.declared import DECLARED
from tensorferry.core.declaration import Declaration

Array = np.ndarray[Any, np.dtype[Any]]

assert_type(ferry.to_numpy([1, 2]), Array)
assert_type(ferry.to_torch([1, 2], device="cuda", non_blocking=True), torch.Tensor)
assert_type(ferry.to_jax([1, 2], dtype=np.float32), jax.Array)
assert_type(ferry.convert([1, 2], "numpy"), Array)
assert_type(ferry.convert([1, 2], "torch", copy=True), torch.Tensor)
assert_type(ferry.convert([1, 2], "jax"), jax.Array)
assert_type(ferry.convert([1, 2], like=torch.ones(2)), torch.Tensor)
assert_type(ferry.convert([1, 2], to="numpy"), Array)
assert_type(ferry.convert([1, 2], to="np", pinned=True, out=np.ones(2)), Array)
assert_type(ferry.convert([1, 2], to="pt", non_blocking=True, casting="safe"), torch.Tensor)
assert_type(ferry.convert([1, 2], to="jnp", device="cpu"), jax.Array)
assert_type(ferry.convert([1, 2], to=torch.Tensor), torch.Tensor)
assert_type(ferry.convert([1, 2], to=np.ndarray), Array)
assert_type(ferry.convert([1, 2], to=jax.Array), jax.Array)
assert_type(ferry.convert([1, 2], to=torch), Any)
assert_type(ferry.convert([1, 2], to="of a package of its own"), Any)
assert_type(ferry.convert([1, 2], like=torch.ones(2), dtype="float16"), torch.Tensor)
assert_type(ferry.convert([1, 2], like=ferry.to_numpy([1.5]), grad="error"), Array)
assert_type(ferry.convert_tree({"x": [1, 2]}, to="torch", leaves="numbers", non_blocking=True), Any)
assert_type(ferry.collate([{"x": 1}], to=np, pad={"x": 0}, mask=True), Any)
assert_type(ferry.snapshot({"x": torch.ones(2)}), dict[str, torch.Tensor])
assert_type(ferry.explain_tree([1], to="jax"), ferry.TreePlan)
assert_type(ferry.explain_collate([{"x": 1}], to=np, pad={"x": 0}, mask=True), ferry.BatchPlan)
assert_type(ferry.start([1], to="tf", variable=True), ferry.Transfer)
assert_type(ferry.prefetch([[1]], to=torch.Tensor, device="cuda"), ferry.Prefetch)
assert_type(ferry.TensorInfo(torch, (2,)), ferry.TensorInfo)
assert_type(ferry.describe([1, 2]), ferry.TensorInfo)
assert_type(ferry.explain([1, 2], to="numpy", pinned=True), ferry.Plan)
assert_type(ferry.explain([1, 2], "numpy").steps, tuple[ferry.Step, ...])
assert_type(ferry.shares_memory([1], [2]), bool)
assert_type(ferry.frameworks(), dict[str, ferry.FrameworkStatus])
assert_type(ferry.load("a.npz", "torch", lazy=True), ferry.LazyTree)
assert_type(ferry.load("a.npz", "torch", lazy=True).reference().open(), ferry.LazyTree)
assert_type(ferry.load("a.npz", "torch", strict=False), Any)

collate: Callable[[list[Any]], Any] = functools.partial(ferry.collate, to="torch")
annotated: tuple[type[ferry.LazyTree], type[ferry.Report], type[ferry.TreePlan]] | None = None

# Plans are made from either.
declarations: list[Declaration] = [DECLARED, of_torch.BACKEND]

# Each backend here has its verbs as the protocols say that they are called.
read_only: verbs.PresentsReadOnly = numpy.BACKEND
writes: list[verbs.Writes] = [numpy.BACKEND, of_torch.BACKEND, tensorflow.BACKEND, cupy.BACKEND]
reads: list[verbs.Reads] = [numpy.BACKEND, python.BACKEND, array_like.BACKEND]
values: verbs.HasValues = tensorflow.BACKEND
copies: list[verbs.Copies] = [
    numpy.BACKEND,
    of_torch.BACKEND,
    tensorflow.BACKEND,
    of_jax.BACKEND,
    cupy.BACKEND,
]
casts: list[verbs.Casts] = [
    numpy.BACKEND,
    of_torch.BACKEND,
    tensorflow.BACKEND,
    of_jax.BACKEND,
    cupy.BACKEND,
]
moves: list[verbs.Moves] = [of_torch.BACKEND, tensorflow.BACKEND, of_jax.BACKEND, cupy.BACKEND]
hands: list[verbs.ImportsDlpack] = [
    of_torch.BACKEND,
    tensorflow.BACKEND,
    of_jax.BACKEND,
    cupy.BACKEND,
]
places: verbs.Places = cupy.BACKEND
fetches: list[verbs.Fetches] = [tensorflow.BACKEND, of_jax.BACKEND, cupy.BACKEND]
ahead: verbs.FetchesAhead = of_jax.BACKEND
packs: list[verbs.Packs] = [of_torch.BACKEND, cupy.BACKEND]
straightens: list[verbs.Straightens] = [of_torch.BACKEND, cupy.BACKEND]
spreads: verbs.Spreads = of_torch.BACKEND
detaches: verbs.Detaches = of_torch.BACKEND
stacks: verbs.Stacks = of_torch.BACKEND
resolves: verbs.Resolves = of_torch.BACKEND
pins: verbs.Pins = of_torch.BACKEND
wrong: verbs.Writes = of_jax.BACKEND  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]

ferry.to_numpy([1], devcie="cpu")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
ferry.to_tensorflow([1], devcie="cpu")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
ferry.convert([1], to="numpy", devcie="cpu")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
ferry.convert([1], to="other", devcie="cpu")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
ferry.convert([1], like=torch.ones(2), devcie=1)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
ferry.convert([1], to="numpy", casting="loose")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
ferry.convert([1], to=3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
ferry.convert_tree([1], to="numpy", devcie="cpu")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
ferry.convert_tree([1], to="numpy", leaves="all")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
ferry.collate([1], to="numpy", casting="loose")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
ferry.explain([1], to="numpy", devcie="cpu")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
ferry.explain_tree([1], to="numpy", devcie="cpu")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
ferry.start([1], to="numpy", devcie="cpu")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
ferry.prefetch([1], to="numpy", devcie="cpu")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
ferry.to_numpy([1], casting="loose")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
ferry.to_numpy([1], grad="keep")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
ferry.to_numpy([1], True)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
