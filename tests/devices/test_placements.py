"""JAX's shardings as ``device=``: one mechanism for every conversion, on four devices of the host."""

from __future__ import annotations

import pytest
from tests.support import lives

import tensorferry as ferry

pytest.importorskip("jax")

SETUP = """
import numpy as np, jax, jax.numpy as jnp, tensorferry as ferry
from jax.sharding import NamedSharding, PartitionSpec as P, SingleDeviceSharding
from tensorferry.execution.run import verifying

jax.config.update("jax_platforms", "cpu")
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
rows, whole, columns = (NamedSharding(mesh, spec) for spec in (P("x"), P(), P(None, "x")))
squared = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 2), ("a", "b"))
partly = NamedSharding(squared, P("a"))
last = SingleDeviceSharding(jax.devices()[3])

def pointers(y):
    return [shard.data.unsafe_buffer_pointer() for shard in y.addressable_shards]

"""


def on_four_devices(code):
    """Run code where the host has four devices for JAX, each conversion compared with its plan."""
    body = "".join(f"    {line}\n" for line in code.strip("\n").splitlines())
    return lives(
        f"{SETUP}with verifying():\n{body}", XLA_FLAGS="--xla_force_host_platform_device_count=4"
    )


def test_every_source_is_laid_out_as_the_sharding_says():
    """From NumPy, PyTorch, Python numbers and JAX, each with the values and the sharding."""
    on_four_devices(
        """
import torch
values = np.arange(32, dtype=np.float32).reshape(8, 4)
read_only = values.copy()
read_only.flags.writeable = False
sources = [values, read_only, values[::-1][::-1], torch.from_numpy(values), values.tolist(), jnp.array(values)]
sources += [jax.device_put(values, rows), jax.device_put(values, whole), jax.device_put(values, last)]
for sharding in (rows, whole, columns, partly, last):
    for x in sources:
        for copy in (None, True):
            y = ferry.to_jax(x, device=sharding, copy=copy)
            assert y.sharding == sharding, (y.sharding, sharding)
            assert np.array_equal(np.asarray(y), values)
            assert y.dtype == np.float32
    y = ferry.convert(values, "jax", device=sharding, dtype="bfloat16")
    assert y.sharding == sharding and y.dtype == jnp.bfloat16
"""
    )


def test_nothing_of_the_source_shows_in_the_result():
    """A later write to the source changes no shard; with copy=True no shard is JAX's own source either."""
    on_four_devices(
        """
block = np.zeros(64 * 64 + 16, np.float32)
start = (-block.ctypes.data % 64) // 4
values = block[start : start + 64 * 64].reshape(64, 64)
for sharding in (rows, whole, columns, partly, last):
    values[...] = 1
    y = ferry.to_jax(values, device=sharding)
    values[...] = 2
    assert (np.asarray(y) == 1).all(), sharding
    for x in (jnp.ones((64, 64)), jax.device_put(jnp.ones((64, 64)), sharding)):
        z = ferry.to_jax(x, device=sharding, copy=True)
        assert not set(pointers(z)) & set(pointers(x)), sharding
"""
    )


def test_what_lies_so_already_is_given_back():
    """The very array, alone and in a tree, though memory has to be shared; another sharding would have to copy."""
    on_four_devices(
        """
import pytest
for sharding in (rows, whole, partly, last, SingleDeviceSharding(jax.devices()[0])):
    x = jax.device_put(jnp.ones((8, 4)), sharding)
    for copy in (None, False):
        assert ferry.convert(x, "jax", copy=copy, device=sharding) is x
        assert ferry.convert_tree([x], "jax", copy=copy, device=x.sharding)[0] is x
        assert ferry.explain(x, "jax", copy=copy, device=sharding).steps == ()
    y = ferry.convert(x, "jax", copy=True, device=sharding)
    assert y.sharding == sharding and not set(pointers(x)) & set(pointers(y))
    assert ferry.convert(x, "jax", device=sharding, dtype="float16").sharding == sharding
    with pytest.raises(ferry.CopyRequiredError):
        ferry.convert(x, "jax", copy=False, device=columns)
"""
    )


def test_the_plan_says_it_and_its_code_works():
    """Shards in the result, a step of its own, and code that runs when pasted."""
    on_four_devices(
        """
import json
x = np.ones((8, 4), np.float32)
plan = ferry.explain(x, "jax", device=rows)
assert plan.result.shards == 4 and "4 shards" in str(plan), plan
assert ferry.explain(x, "jax", device=whole).result.shards == 1
assert ferry.describe(ferry.to_jax(x, device=rows)).shards == 4
names = {"x": x, "sharding": rows}
exec(plan.code, names)
assert names["y"].sharding == rows and "# sharding is" in plan.code
json.dumps(plan.to_dict())
assert plan != ferry.explain(x, "jax", device=columns) and plan == ferry.explain(x, "jax", device=rows)
described = ferry.explain(ferry.TensorInfo("torch", (8, 4), device="cuda:0"), "jax", device=rows)
assert described.result.shards == 4 and described.result.device == "cpu"
"""
    )


def test_what_does_not_fit_is_refused_before_anything_is_done():
    """A shape that is not divided, an axis that is not there, and memory that would have to be shared."""
    on_four_devices(
        """
import pytest
for shape, sharding, words in [((6, 4), rows, "divide"), ((), rows, "1 axes"), ((8,), columns, "2 axes")]:
    with pytest.raises(ferry.ShapeError, match=words) as caught:
        ferry.to_jax(np.ones(shape), device=sharding, dtype="float32")
    hinted = str(caught.value).partition("Hint: device=")[2].partition(", which")[0]
    device = eval(hinted, {"jax": jax, "sharding": sharding})
    assert ferry.to_jax(np.ones(shape), device=device, dtype="float32").shape == shape
with pytest.raises(ferry.ShapeError, match=r'\\$\\["b"\\]'):
    ferry.convert_tree({"a": np.ones(4, "f4"), "b": np.ones(3, "f4")}, "jax", device=rows)
with pytest.raises(ferry.CopyRequiredError, match="lays it out"):
    ferry.to_jax(jnp.ones(8), device=rows, copy=False)
for target in ("numpy", "torch", "python"):
    with pytest.raises(ferry.DeviceError, match="NamedSharding"):
        ferry.convert(np.ones(8), target, device=rows)
"""
    )


def test_trees_batches_transfers_and_loops():
    """The same keyword everywhere: convert_tree, like=, collate, start, prefetch."""
    on_four_devices(
        """
tree = {"a": np.ones((8, 2), "f4"), "b": [np.arange(4, dtype="i4"), "text"]}
twice = [tree["a"], tree["a"], tree["a"][::2]]
for sharding in (rows, whole):
    found = ferry.convert_tree(tree, "jax", device=sharding)
    assert found["a"].sharding == found["b"][0].sharding == sharding and found["b"][1] == "text"
    found = ferry.convert_tree(twice, "jax", device=sharding)
    assert found[0] is found[1] and found[2].sharding == sharding
    assert ferry.convert(tree["a"], like=jnp.ones(1), device=sharding).sharding == sharding
    batch = ferry.collate([{"x": np.ones(3, "f4"), "y": 1}] * 8, "jax", device=sharding)
    assert batch["x"].sharding == batch["y"].sharding == sharding, batch
    assert ferry.start(tree, "jax", device=sharding).result()["a"].sharding == sharding
    with ferry.prefetch([{"x": np.full((8, 3), i, "f4"), "n": i} for i in range(5)], "jax", device=sharding) as batches:
        for i, batch in enumerate(batches):
            assert batch["n"] == i and batch["x"].sharding == sharding
            assert (np.asarray(batch["x"]) == i).all()
            assert float(jax.jit(lambda x: x.sum())(batch["x"])) == 24 * i
    assert i == 4
traced = jax.jit(lambda x: ferry.to_jax(x, device=rows) * 2)(jnp.ones(8))
assert (traced == 2).all()
assert ferry.to_numpy(ferry.to_jax(tree["a"], device=rows)).tolist() == tree["a"].tolist()
"""
    )


def test_one_device_is_a_layout_too():
    """Without several devices: a sharding over the only one."""
    import jax
    import numpy as np

    sharding = jax.sharding.NamedSharding(
        jax.sharding.Mesh(np.array(jax.devices()[:1]), ("x",)), jax.P("x")
    )
    y = ferry.to_jax(np.ones(4, "f4"), device=sharding)
    assert y.sharding == sharding
    assert ferry.describe(y).shards == 1
