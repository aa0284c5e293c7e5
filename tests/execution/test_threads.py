"""Many threads at once: the same results, nothing leaked, nothing held."""

from __future__ import annotations

import gc
import sys
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tests.support import counted, lives

import tensorferry as ferry
from tensorferry.backends import registry
from tensorferry.core.request import Request
from tensorferry.execution import recipes
from tensorferry.execution.run import verifying

jnp = pytest.importorskip("jax.numpy")
tf = pytest.importorskip("tensorflow")
torch = pytest.importorskip("torch")

THREADS = 8


def jobs():
    """Conversions over every pair of worlds, copied and shared, with the values that must come out."""
    array = counted((16, 16))
    values = array.tolist()
    sources = {
        "numpy": array,
        "torch": torch.from_numpy(counted((16, 16))),
        "tensorflow": tf.constant(array),
        "jax": jnp.array(array),
        "python": values,
    }
    found = []
    for source in sources.values():
        for target in sources:
            found += [(source, target, {}), (source, target, {"dtype": "float16"})]
            if target != "python":
                found.append((source, target, {"copy": True}))
    return found, values


@pytest.mark.parametrize("paths", [True, False], ids=["fast_paths", "planned"])
def test_eight_threads_give_the_same_results(paths):
    """Thousands of conversions of every pair from eight threads, each with the right values and dtype."""
    work, values = jobs()
    start = threading.Barrier(THREADS)
    # The switch is one for all threads, so it is thrown outside of them.
    with verifying(on=not paths):

        def worker(offset):
            start.wait()
            count = 0
            for index in range(300 if paths else 150):
                source, target, keywords = work[(index * 7 + offset * 13) % len(work)]
                result = ferry.convert(source, target, **keywords)
                assert ferry.to_list(result) == values
                count += 2
            return count

        with ThreadPoolExecutor(THREADS) as pool:
            counts = list(pool.map(worker, range(THREADS)))
    assert sum(counts) == THREADS * (600 if paths else 300)


def test_first_calls_from_eight_threads():
    """The backends load once, whichever thread comes first, and the fast paths open for all."""
    lives(
        """
        import sys, threading
        import numpy as np, tensorferry as ferry
        sys.setswitchinterval(1e-6)
        start, failed = threading.Barrier(8), []
        def worker(number):
            start.wait()
            try:
                for target in ("torch", "jax", "torch", "jax"):
                    y = ferry.convert(np.full((3,), number, np.float32), target)
                    assert ferry.to_list(y) == [float(number)] * 3
                    assert ferry.to_numpy(y).tolist() == [float(number)] * 3
            except BaseException as error:
                failed.append(error)
        threads = [threading.Thread(target=worker, args=(number,)) for number in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert not failed, failed
        """
    )


def ten_thousand(sources, targets, keywords):
    """10,000 conversions from eight threads."""

    def worker(offset):
        for index in range(10_000 // THREADS):
            ferry.convert(
                sources[(index + offset) % len(sources)], targets[index % len(targets)], **keywords
            )

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(worker, range(THREADS)))


@pytest.mark.parametrize("keywords", [{}, {"copy": True}], ids=["default", "copy"])
@pytest.mark.parametrize("paths", [True, False], ids=["fast_paths", "planned"])
def test_ten_thousand_conversions_leak_nothing(paths, keywords):
    """Reference counts return to where they were, and nothing of the results is kept."""
    size = 64 * 1024
    array = counted((size // 4,))
    sources = [array, torch.from_numpy(counted((size // 4,))), tf.constant(array), jnp.array(array)]
    targets = ("numpy", "torch", "tensorflow", "jax")
    with verifying(on=False):
        for source in sources:
            for target in targets:
                if not paths:
                    keywords = {**keywords, "casting": "unsafe"}  # any keyword closes the fast path
                ferry.convert(source, target, **keywords)
        ten_thousand(sources, targets, keywords)
        gc.collect()
        counts = [sys.getrefcount(source) for source in sources]
        tracemalloc.start()
        try:
            ten_thousand(sources, targets, keywords)
            gc.collect()
            kept = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
    assert [sys.getrefcount(source) for source in sources] == counts
    # One leaked result in a hundred would be 6 MB.
    assert kept < 4 << 20, f"{kept >> 10} KiB"


def test_lists_and_errors_leak_nothing():
    """Refused conversions hold neither their source nor their frames."""
    array = counted((1024,))
    reversed_ = array[::-1]
    ragged = [[1.0, 2.0], [3.0]]
    leaves = [array, array]

    def once():
        for target in ("torch", "tensorflow", "jax"):
            with pytest.raises(ferry.CopyRequiredError):
                ferry.convert(reversed_, target, copy=False)
            with pytest.raises(ferry.ShapeError):
                ferry.convert(ragged, target)
            ferry.convert(leaves, target)

    once()
    gc.collect()
    counts = [sys.getrefcount(thing) for thing in (array, reversed_, ragged, leaves)]
    for _ in range(50):
        once()
    gc.collect()
    assert [sys.getrefcount(thing) for thing in (array, reversed_, ragged, leaves)] == counts


def test_plans_are_not_kept_without_end():
    """The plans and recipes that are remembered are bounded, however many shapes and addresses pass by."""
    from tensorferry.execution import recipes

    conversion = recipes.conversion_of(registry.ready("torch"), Request("torch"))
    for length in range(1, 6000):
        ferry.to_torch(np.ones(3)[:length], copy=None)
        ferry.explain(ferry.TensorInfo("numpy", (length,)), "torch")
        ferry.explain(ferry.TensorInfo("numpy", (length,), strides=(-4,)), "torch")
    for cache in (recipes._plan_of.cache_info(), recipes._conversion_of.cache_info()):
        assert cache.maxsize is not None
        assert cache.currsize <= cache.maxsize
    assert 0 < conversion.kept <= 2 * recipes.MOST


CHANGES = {
    "a list gets integers": (lambda: [1.0, 2.0], lambda x: x.__setitem__(slice(2), [1, 2])),
    "a tensor requires grad": (lambda: torch.tensor([1.0, 2.0]), lambda x: x.requires_grad_()),
    "a leaf requires grad": (
        lambda: {"a": torch.tensor([1.0, 2.0])},
        lambda x: x["a"].requires_grad_(),
    ),
}
"""How to make something, and what another thread does to it while it is looked at for the first time."""


@pytest.mark.fast_paths
@pytest.mark.parametrize("target", ["torch", "numpy", "jax"])
@pytest.mark.parametrize("name", CHANGES)
def test_what_another_thread_changes_leaves_no_recipe_for_what_it_was(name, target, monkeypatch):
    """The change comes after the tensor's signature was read, and before it is described."""
    make, change = CHANGES[name]
    convert = ferry.convert_tree if name == "a leaf requires grad" else ferry.convert
    keywords, x = {"device": "cpu"}, make()
    leaf = x["a"] if isinstance(x, dict) else x
    backend = type(registry.backend_of(leaf))
    before = backend.open

    def open_late(self, given, *rest):
        if given is leaf:
            change(x)
        return before(self, given, *rest)

    recipes.forget_recipes()
    with monkeypatch.context() as patched:
        patched.setattr(backend, "open", open_late)
        convert(x, target, **keywords)
        patched.undo()
        for _ in range(2):
            result = convert(make(), target, **keywords)
            result = result["a"] if isinstance(result, dict) else result
            assert ferry.to_list(result) == [1.0, 2.0]
            info = ferry.describe(result)
            assert info.dtype in ("float32", "float64")
            assert not info.requires_grad
            assert info.writable == (target != "jax")
