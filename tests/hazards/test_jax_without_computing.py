"""H72, H73: a conversion of a JAX array compiles nothing and is a transfer that was asked for in so many words."""

from __future__ import annotations

import pytest
from tests.support import lives

pytest.importorskip("jax")
pytest.importorskip("torch")

FORKED = """
import os, signal, sys, traceback, warnings
import numpy as np, torch
import jax, jax.numpy as jnp
import tensorferry as ferry

x, b, packed = jnp.arange(8.0), jnp.ones(4, jnp.bfloat16), jnp.ones(4, jnp.int4)
jax.block_until_ready([x, b, packed])
warnings.simplefilter("ignore")  # of the fork, which is what this is about
for call in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # one that hangs ends here
        try:
            print(type(eval(call)).__name__, flush=True)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, f"{call} in a forked child: {status}"
"""

CALLS = [
    "ferry.to_numpy(x)",
    "ferry.to_numpy(b)",
    "ferry.to_numpy(x, dtype='int32')",
    "ferry.to_torch(x)",
    "ferry.to_torch(b)",
    "ferry.to_list(x)",
    "ferry.to_jax(x, copy=True)",
    "ferry.to_jax(np.ones(3, 'float32'))",
    "ferry.to_torch(np.asarray(b))",
    "ferry.describe(x)",
    "ferry.snapshot({'x': x})",
    "ferry.convert_tree({'x': x}, 'torch')",
    "ferry.collate([{'x': x, 'label': 1}] * 2, 'torch')",
    "ferry.collate([x, x], 'jax')",
]


def test_H72_the_first_conversion_in_a_forked_child_ends():
    """JAX's compiler never answers in a forked child, as in a DataLoader's worker: one for each call."""
    lives(FORKED, *CALLS)


def test_H72_a_forked_loader_worker_converts():
    """The case that people have: a PyTorch DataLoader whose workers turn JAX arrays into tensors."""
    lives(
        """
        import warnings
        import torch
        import jax.numpy as jnp
        import tensorferry as ferry

        warnings.simplefilter("ignore")
        samples = [jnp.full(2, float(i)) for i in range(4)]
        loader = torch.utils.data.DataLoader(
            range(4),
            batch_size=2,
            num_workers=1,
            multiprocessing_context="fork",
            collate_fn=lambda numbers: ferry.collate([samples[i] for i in numbers], "torch"),
            timeout=60,
        )
        assert [batch.tolist() for batch in loader] == [[[0.0, 0.0], [1.0, 1.0]], [[2.0, 2.0], [3.0, 3.0]]]
        """
    )


GUARDED = """
import sys
import numpy as np, torch
import jax, jax.numpy as jnp
import tensorferry as ferry

x, b, packed, scalar = jnp.arange(8.0), jnp.ones(4, jnp.bfloat16), jnp.ones(4, jnp.int4), jnp.ones(())
array = np.ones(8, "float32")
for call in sys.argv[1:]:
    print(call, flush=True)
    with jax.transfer_guard("disallow"):
        print(type(eval(call)).__name__)
        try:
            jnp.add(array, 1)
        except Exception as error:
            assert "Disallowed" in str(error)
        else:
            raise AssertionError("the guard is on, and has to be on afterwards")
"""
GUARDED_CALLS = [
    *(each for each in CALLS if each != "ferry.describe(x)"),
    "ferry.to_numpy(packed)",
    "ferry.to_list(scalar)",
    "ferry.to_jax(1.5)",
    "ferry.to_jax([1.5, 2])",
    "ferry.to_jax(array)",
    "ferry.to_jax(np.ones(0, 'float32'))",
    "ferry.to_jax(torch.ones(3, dtype=torch.bfloat16))",
    "ferry.to_jax(x, dtype='bfloat16')",
    "ferry.to_jax(array[::2])",
    "ferry.convert([1, 2], like=x)",
    "ferry.start({'x': array}, 'jax').result()",
    "list(ferry.prefetch([{'x': array}], 'jax'))",
]


def test_H73_a_transfer_guard_lets_conversions_pass():
    """`jax.transfer_guard("disallow")` forbids transfers that nobody asked for; a conversion was asked for."""
    lives(GUARDED, *GUARDED_CALLS)


@pytest.mark.slow
@pytest.mark.parametrize("call", GUARDED_CALLS)
def test_H73_so_it_does_if_it_is_the_first_of_its_process(call):
    """Nothing was made ready by a call before it."""
    lives(GUARDED, call)


def test_H73_the_same_over_several_devices():
    """Shards are gathered, and copies kept, under a guard too."""
    lives(
        """
        import numpy as np, jax
        from jax.sharding import Mesh, NamedSharding, PartitionSpec
        import tensorferry as ferry

        mesh = Mesh(np.array(jax.devices()), "d")
        for spec in (PartitionSpec("d"), PartitionSpec()):
            x = jax.device_put(np.arange(8, dtype="float32"), NamedSharding(mesh, spec))
            with jax.transfer_guard("disallow"):
                assert ferry.to_numpy(x).tolist() == list(range(8))
                assert ferry.to_list(ferry.to_torch(x)) == list(range(8))
                assert ferry.to_list(ferry.to_numpy(x, dtype="int8")) == list(range(8))
                assert ferry.to_list(ferry.snapshot([x])[0]) == list(range(8))
        """,
        XLA_FLAGS="--xla_force_host_platform_device_count=4",
    )


def test_without_the_private_type_conversions_are_planned(monkeypatch):
    """Were JAX's array type not where it is, its arrays would come without a fast path, and the same."""
    lives(
        """
        import sys
        import jax.numpy as jnp
        import jax._src.array
        import tensorferry as ferry

        del jax._src.array.ArrayImpl
        x = jnp.arange(3.0)
        assert ferry.to_numpy(x).tolist() == [0, 1, 2]
        assert not ferry.to_numpy(x).flags.writeable
        assert ferry.to_jax(x) is x
        """
    )
