"""What differs between versions of JAX: arrays that it keeps in a cache, and dtypes of six bits."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.support import lives

import tensorferry as ferry
from tensorferry import testing

jax = pytest.importorskip("jax")

PACKED = ("int2", "int4", "uint2", "uint4", "float4_e2m1fn")
SIX_BITS = ("float6_e2m3fn", "float6_e3m2fn")


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize(
    "way",
    [ferry.to_numpy, lambda x: ferry.convert_tree([x, x + 0], "numpy")[0]],
    ids=["one", "many"],
)
def test_what_jax_unpacked_is_copied(name, way):
    """JAX keeps the unpacked array, which since JAX 0.11.1 does not own its memory: it looked like a view."""
    x = jax.device_put(np.ones(8, getattr(ml_dtypes, name)))
    first, second = way(x), way(x)
    assert not np.shares_memory(first, second)
    first[...] = 0
    assert second.tolist() == np.asarray(x).tolist() == [1] * 8


def test_what_jax_gathered_is_copied():
    """Likewise, since JAX 0.12."""
    assert "done" in lives(
        """
        import numpy as np, jax, tensorferry as ferry
        from jax.sharding import Mesh, NamedSharding, PartitionSpec
        sharding = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), PartitionSpec("x"))
        for values in (np.arange(8.0, dtype="float32"), np.arange(8, dtype="int8")):
            x = jax.device_put(values, sharding)
            for way in (ferry.to_numpy, lambda x: ferry.convert_tree([x, x], "numpy", copy=True)[0]):
                first, second = way(x), way(x)
                assert first.flags.writeable and not np.shares_memory(first, second)
                first[...] = 0
                assert second.tolist() == np.asarray(x).tolist() == values.tolist()
        print("done")
        """,
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
    )


@pytest.mark.parametrize("name", SIX_BITS)
def test_what_is_declared_of_six_bits_is_what_jax_has(name):
    """JAX has them from 0.11 on.

    Every pattern crosses, and is cast on the host, because XLA cannot.
    """
    patterns = np.arange(64, dtype=np.uint8).view(getattr(ml_dtypes, name))
    if not testing.witness_for("jax").knows(name):
        with pytest.raises(ferry.LossyCastError, match=f"jax has no {name}"):
            ferry.to_jax(patterns)
        return
    x = ferry.to_jax(patterns)
    assert x.dtype == patterns.dtype
    assert ferry.to_numpy(x, copy=True).tobytes() == patterns.tobytes()
    assert np.shares_memory(ferry.to_numpy(x), np.asarray(x))
    wide = ferry.to_jax(x, dtype="float32")
    assert np.asarray(wide).tobytes() == patterns.astype("float32").tobytes()
    assert np.asarray(ferry.to_jax(wide, dtype=name)).tobytes() == patterns.tobytes()
