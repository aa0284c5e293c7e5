"""A tutorial's first ten calls where only PyTorch, or only JAX, can be imported."""

from __future__ import annotations

import pytest
from tests.support import survives

BLOCK = """
import importlib.abc, sys

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

BLOCKED = {blocked!r}
sys.meta_path.insert(0, Blocked())
"""

NEIGHBOURS = {"pandas", "polars", "pyarrow", "h5py", "zarr", "tensorstore", "rich", "typer"} | {
    "transformers",
    "flax",
    "optax",
    "equinox",
}

ONLY_TORCH = """
import numpy as np, torch, tensorferry as ferry

x = torch.ones(2, 3, requires_grad=True)
assert ferry.to_numpy(x).tolist() == [[1, 1, 1], [1, 1, 1]]
assert ferry.to_torch(np.arange(3)).dtype == torch.int64
assert ferry.to_torch([[1, 2], [3, 4]]).shape == (2, 2)
assert ferry.to_list(torch.ones(2, dtype=torch.bfloat16)) == [1.0, 1.0]
assert isinstance(ferry.convert(np.ones(2), to="torch"), torch.Tensor)
assert isinstance(ferry.convert(np.ones(2), like=x), torch.Tensor)
assert ferry.convert_tree({"x": x, "name": "a"}, "numpy")["name"] == "a"
assert ferry.collate([{"x": np.ones(2), "y": 1}] * 2, "torch")["y"].tolist() == [1, 1]
assert ferry.describe(x).framework == "torch"
assert "torch" in str(ferry.explain(x, "numpy"))
assert ferry.shares_memory(x, ferry.to_numpy(x))
state = torch.nn.Linear(2, 2).state_dict()
ferry.save(state, sys.argv[1])
loaded = ferry.load(sys.argv[1], to="torch")
assert torch.equal(loaded["weight"], state["weight"])
assert [batch.tolist() for batch in ferry.prefetch([np.ones(1)], "torch")] == [[1]]
"""

ONLY_JAX = """
import numpy as np, jax, jax.numpy as jnp, tensorferry as ferry

x = jnp.ones((2, 3))
assert ferry.to_numpy(x).tolist() == [[1, 1, 1], [1, 1, 1]]
assert ferry.to_jax(np.ones(3, "float32")).dtype == jnp.float32
assert ferry.to_jax([[1, 2], [3, 4]]).shape == (2, 2)
assert ferry.to_jax(np.arange(3), dtype="fit").dtype == jnp.int32
assert ferry.to_list(jnp.ones(2, jnp.bfloat16)) == [1.0, 1.0]
assert isinstance(ferry.convert(np.ones(2, "float32"), to="jax"), jax.Array)
assert isinstance(ferry.convert(np.ones(2), like=x), jax.Array)
assert ferry.convert_tree({"x": x, "name": "a"}, "numpy")["name"] == "a"
assert ferry.collate([{"x": np.ones(2, "float32"), "y": 1}] * 2, "jax")["y"].tolist() == [1, 1]
assert ferry.describe(x).framework == "jax"
assert "jax" in str(ferry.explain(x, "numpy"))
assert ferry.shares_memory(x, ferry.to_numpy(x))
grads = jax.grad(lambda p: p["w"].sum())({"w": x})
assert ferry.convert_tree(grads, "numpy")["w"].shape == (2, 3)
ferry.save({"w": x}, sys.argv[1])
assert ferry.load(sys.argv[1], to="jax")["w"].shape == (2, 3)
"""

ONLY_NUMPY = """
import numpy as np, tensorferry as ferry

assert ferry.to_numpy([[1, 2], [3, 4]]).shape == (2, 2)
assert ferry.to_list(np.ones(2)) == [1.0, 1.0]
assert ferry.convert_tree({"x": [1], "y": np.ones(1)}, "python") == {"x": [1], "y": [1.0]}
assert ferry.collate([{"x": np.ones(2)}] * 2, "numpy")["x"].shape == (2, 2)
assert "numpy" in str(ferry.explain([1, 2], "numpy"))
assert "torch" in str(ferry.explain(ferry.TensorInfo("torch", (2,)), "numpy"))
ferry.save({"x": np.ones(2)}, sys.argv[1])
assert ferry.load(sys.argv[1])["x"].tolist() == [1, 1]
"""

MISSED = """
for name in BLOCKED & {"torch", "tensorflow", "jax"}:
    try:
        ferry.convert(np.ones(1), name)
    except ferry.FrameworkNotInstalledError as error:
        assert f"pip install {name}" in error.hint and "[" not in error.hint, error
    else:
        raise SystemExit(f"{name} was found")
assert not BLOCKED & set(sys.modules), BLOCKED & set(sys.modules)
"""


@pytest.mark.parametrize(
    ("only", "code"),
    [("torch", ONLY_TORCH), ("jax", ONLY_JAX), ("", ONLY_NUMPY)],
    ids=["torch", "jax", "nothing"],
)
def test_a_tutorial_where_nothing_else_is_installed(only, code, tmp_path):
    """Expected: every first call works, and what is not there is named with the line that installs it."""
    if only:
        pytest.importorskip(only, reason=f"{only} is not installed")
    own = {"jax": {"jax", "jaxlib"}}.get(only, {only})
    blocked = ({"torch", "tensorflow", "jax", "jaxlib", "cupy", "keras"} | NEIGHBOURS) - own
    survives(BLOCK.format(blocked=blocked) + code + MISSED, tmp_path / "a.safetensors")
