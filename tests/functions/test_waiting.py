"""Callbacks never wait for each other: large arrays, more threads than processors, callbacks inside callbacks."""

from __future__ import annotations

import pytest
from tests.support import lives, python

PROGRAM = """
import faulthandler, sys, threading
import jax, jax.numpy as jnp, numpy as np, torch
import tensorferry as ferry

modes, calls = sys.argv[1].split(), int(sys.argv[2])
torch.set_num_threads(1)
x = jnp.asarray(np.random.default_rng(0).normal(size=(700, 700)).astype("float32"))
double = ferry.wrap(lambda x: x * 2 + 1, inner="torch")
inside = ferry.wrap(jax.jit(lambda x: jnp.sin(x) * x), inner="jax")
around = ferry.wrap(lambda x: inside(x) * 2, inner="torch", shapes=lambda x: x)
gradient = lambda function: jax.jit(lambda x: jax.grad(lambda x: function(x).sum())(x) + function(x))
steps = {"jit": jax.jit(double), "grad": gradient(double), "inside": gradient(around), "eager": double}

def watched():
    faulthandler.dump_traceback_later(60, exit=True)  # the watchdog, anew for each call that ends: who waits is shown

def work(step, own):
    for _ in range(calls):
        (own or step)(x).block_until_ready()
        watched()

for mode in modes:
    watched()
    # Jitted in the threads: each compiles, too.
    made = [jax.jit(lambda x, k=k: steps[mode](x) + k) if mode == "jit" else None for k in range(4)]
    threads = [threading.Thread(target=work, args=(steps[mode], own)) for own in made]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
print("done")
"""
MODES = ["jit", "grad", "inside", "eager"]


def test_four_threads():
    assert lives(PROGRAM, " ".join(MODES), 6) == "done\n"


@pytest.mark.slow
@pytest.mark.parametrize("run", range(20))
@pytest.mark.parametrize("mode", MODES)
def test_four_threads_many_times(mode, run):
    """4 threads with 200 calls each; the watchdog waits 60 seconds for a call, however busy the machine is."""
    done = python(PROGRAM, mode, 200, timeout=900)
    assert done.stdout == "done\n", done.stderr[-4000:]


def test_the_thread_that_compiles_first_may_end():
    """With a PyTorch 2.11 for CUDA where there is no GPU, the next backward pass ended the process."""
    program = """
    import threading
    import jax, jax.numpy as jnp, torch
    import tensorferry as ferry

    def run(function):
        thread = threading.Thread(target=function)
        thread.start()
        thread.join()

    double = ferry.wrap(lambda x: x * 2, inner="torch")
    run(lambda: print(jax.jit(double)(jnp.ones(3)).tolist()))
    kept = [bytes(500) for _ in range(10000)]
    run(lambda: print(jax.grad(lambda x: double(x).sum())(jnp.ones(3)).tolist()))
    """
    assert lives(program) == "[2.0, 2.0, 2.0]\n" * 2
