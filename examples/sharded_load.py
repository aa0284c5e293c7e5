"""Four workers load one checkpoint, and each reads the rows that it has, and nothing else.

    python examples/sharded_load.py ray            # four tasks of Ray, a slice each
    python examples/sharded_load.py torchrun       # four processes of torchrun, a DTensor
    python examples/sharded_load.py jax            # four processes of jax.distributed, a NamedSharding

With Ray, a worker says which rows it wants. The others say how the tensor lies over all workers, and each finds out
which rows these are. No worker sends tensors to another. `explain_load` says beforehand what a worker reads.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import tensorferry as ferry

WORKERS = 4
WEIGHT = np.arange(64 * 32, dtype="float32").reshape(64, 32)


def report(number, path, local, plan):
    """Check what a worker has, and say what it has read."""
    rows = len(WEIGHT) // WORKERS
    assert np.array_equal(local, WEIGHT[number * rows :][:rows])
    return f"worker {number}: {plan.bytes_read} of {Path(path).stat().st_size} bytes"


def with_slices(number, path):
    rows = len(WEIGHT) // WORKERS
    slices = {"weight": np.s_[number * rows : (number + 1) * rows]}
    plan = ferry.explain_load(path, slices=slices)
    return report(number, path, ferry.load(path, slices=slices)["weight"], plan)


def by_ray(path):
    import ray

    ray.init(num_cpus=WORKERS, include_dashboard=False)
    task = ray.remote(with_slices)
    for line in ray.get([task.remote(number, path) for number in range(WORKERS)]):
        print(line)  # noqa: T201 - what the example shows
    ray.shutdown()


def in_torchrun(path):
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard

    dist.init_process_group("gloo")
    device = init_device_mesh("cpu", (WORKERS,)), [Shard(0)]
    plan = ferry.explain_load(path, "torch", device=device)
    weight = ferry.load(path, "torch", device=device)["weight"]
    line = report(dist.get_rank(), path, weight.to_local().numpy(), plan)
    dist.destroy_process_group()
    return line


def in_jax(path, number, address):
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    jax.config.update("jax_platforms", "cpu")
    jax.distributed.initialize(address, num_processes=WORKERS, process_id=number)
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("rows",))
    device = NamedSharding(mesh, PartitionSpec("rows"))
    plan = ferry.explain_load(path, "jax", device=device)
    weight = ferry.load(path, "jax", device=device)["weight"]
    (own,) = weight.addressable_shards
    line = report(number, path, np.asarray(own.data), plan)
    jax.distributed.shutdown()
    return line


def by_torchrun(path):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    here = [__file__, "in-torchrun", path]
    subprocess.run([*launcher, f"--nproc-per-node={WORKERS}", *here], check=True)


def by_jax(path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    # A device for each process.
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=1"}
    workers = [
        subprocess.Popen(
            [sys.executable, __file__, "in-jax", path, str(number), address], env=environment
        )
        for number in range(WORKERS)
    ]
    ended = [worker.wait() for worker in workers]
    if any(ended):
        raise SystemExit("a worker failed")


def main(how="ray", path="", *more):
    if how == "in-torchrun":
        print(in_torchrun(path))  # noqa: T201
    elif how == "in-jax":
        print(in_jax(path, int(more[0]), more[1]))  # noqa: T201
    else:
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/model.safetensors"
            ferry.save({"weight": WEIGHT}, path)
            {"ray": by_ray, "torchrun": by_torchrun, "jax": by_jax}[how](path)


if __name__ == "__main__":
    main(*sys.argv[1:])
