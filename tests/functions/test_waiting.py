"""Callbacks never wait for each other: large arrays, more threads than processors, callbacks inside callbacks."""

from __future__ import annotations

import pytest
from tests.support import python

PROGRAM = """
import faulthandler, sys, threading
faulthandler.dump_traceback_later(60, exit=True)  # the watchdog: who waits is shown
import jax, jax.numpy as jnp, numpy as np, torch
import tensorferry as ferry

modes, calls = sys.argv[1].split(), int(sys.argv[2])
torch.set_num_threads(1)
x = jnp.asarray(np.random.default_rng(0).normal(size=(700, 700)).astype("float32"))
double = ferry.wrap(lambda x: x * 2 + 1, inner="torch")
inside = ferry.wrap(jax.jit(lambda x: jnp.sin(x) @ x), inner="jax")
around = ferry.wrap(lambda x: inside(x) * 2, inner="torch", shapes=lambda x: x)
steps = {
    "jit": jax.jit(lambda x: jax.grad(lambda x: double(x).sum())(x) + double(x)),
    "inside": jax.jit(lambda x: jax.grad(lambda x: around(x).sum())(x) + around(x)),
    "eager": double,
}

def work(mode):
    for _ in range(calls):
        steps[mode](steps[mode](x)).block_until_ready()

for mode in modes:
    threads = [threading.Thread(target=work, args=(mode,)) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
print("done")
"""


def finishes(modes, calls):
    done = python(PROGRAM, modes, calls, timeout=90)
    assert done.stdout == "done\n", done.stderr[-4000:]


def test_four_threads():
    finishes("jit inside", 6)


@pytest.mark.slow
@pytest.mark.parametrize("run", range(20))
@pytest.mark.parametrize(("mode", "calls"), [("jit", 100), ("eager", 100), ("inside", 15)])
def test_four_threads_many_times(mode, calls, run):
    finishes(mode, calls)
