"""Random trees keep their structure and every bit; failures and threads leave nothing behind."""

from __future__ import annotations

import collections
import dataclasses
import gc
import threading
import tracemalloc
import weakref
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support import examples

import tensorferry as ferry


@dataclasses.dataclass(frozen=True)
class Box:
    first: Any
    second: Any = None


Pair = collections.namedtuple("Pair", "left right")  # noqa: PYI024 - an untyped one is a container too

DTYPES = ("bool", "int8", "uint16", "int32", "int64", "float16", "float32", "float64", "complex64")
FRAMEWORKS = ("numpy", "torch", "tensorflow", "jax")


def array(shape, dtype, seed):
    """Random bits, NaNs and all, of a dtype."""
    bits = np.random.default_rng(seed).integers(
        0, 2 if dtype == "bool" else 256, (*shape, np.dtype(dtype).itemsize)
    )
    return np.ascontiguousarray(bits.astype("uint8")).view(dtype).reshape(shape)


def tensor(framework, shape, dtype, seed):
    """The same bits as a tensor of a framework; JAX has no 64-bit dtypes here."""
    if framework == "jax" and np.dtype(dtype).itemsize == 8 and dtype != "complex64":
        framework = "torch"
    return ferry.convert(array(shape, dtype, seed), framework, copy=True)


@pytest.fixture(autouse=True, scope="module")
def _frameworks_are_started():
    """A framework that starts draws random numbers of its own, which Hypothesis would take for the test's."""
    for framework in FRAMEWORKS:
        tensor(framework, (1,), "float32", 0)


SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)
TENSORS = st.builds(
    tensor, st.sampled_from(FRAMEWORKS), SHAPES, st.sampled_from(DTYPES), st.integers(0, 2**32)
)
OTHERS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3)
)
KEYS = st.one_of(st.text(max_size=3), st.integers(), st.booleans())


def containers(children):
    """Any container around such children."""
    few = st.lists(children, max_size=3)
    named = st.dictionaries(KEYS, children, max_size=3)
    return st.one_of(
        few,
        few.map(tuple),
        few.map(lambda values: collections.deque(values, maxlen=5)),
        named,
        named.map(collections.OrderedDict),
        named.map(lambda values: collections.defaultdict(list, values)),
        named.map(collections.UserDict),
        st.builds(Pair, children, children),
        st.builds(Box, children, children),
        st.builds(SimpleNamespace, a=children, b=children),
        # The same object in two places, with something after it.
        st.builds(lambda each, other: [each, (each, other), other], children, children),
    )


TREES = st.recursive(st.one_of(TENSORS, OTHERS), containers, max_leaves=8)


def leaves_of(tree):
    """The leaves in order, found without tensorferry and without optree."""
    if isinstance(tree, (dict, collections.UserDict)):
        values = list(tree.values())
    elif isinstance(tree, (list, tuple, collections.deque)):
        values = list(tree)
    elif isinstance(tree, (Box, SimpleNamespace)):
        values = list(vars(tree).values())
    else:
        return [tree]
    return [leaf for value in values for leaf in leaves_of(value)]


def skeleton(tree):
    """Types and keys, without the leaves."""
    if isinstance(tree, (dict, collections.UserDict)):
        return type(tree), [(type(key), key, skeleton(value)) for key, value in tree.items()]
    if isinstance(tree, (list, tuple, collections.deque)):
        return type(tree), [skeleton(value) for value in tree]
    if isinstance(tree, (Box, SimpleNamespace)):
        return type(tree), [(key, skeleton(value)) for key, value in vars(tree).items()]
    return None


def check(tree, target):
    """Convert a tree, and compare structure, kept leaves and bits with what came in."""
    result = ferry.convert_tree(tree, target)
    assert skeleton(result) == skeleton(tree)
    before, after = leaves_of(tree), leaves_of(result)
    converted = 0
    for old, new in zip(before, after, strict=True):
        if old is None or isinstance(old, (bool, int, float, str)):
            assert new is old
        else:
            converted += 1
            info = ferry.describe(new)
            assert info.framework == target
            assert info.dtype == ferry.describe(old).dtype
            assert ferry.to_numpy(new).tobytes() == ferry.to_numpy(old).tobytes()
    assert len(ferry.describe_tree(tree)) == converted
    return result


MANY = settings(
    max_examples=5000,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("target", ["numpy", "torch"])
@settings(MANY, max_examples=250)
@given(tree=TREES)
def test_random_trees_keep_structure_and_bits(target, tree):
    """Containers, keys, order, what is no tensor, and every bit of what is."""
    check(tree, target)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["numpy", "torch"])
@MANY
@given(tree=TREES)
def test_ten_thousand_random_trees_keep_structure_and_bits(target, tree):
    """The same of five thousand to each target."""
    check(tree, target)


@settings(MANY, max_examples=examples(250))
@given(tree=TREES, target=st.sampled_from(["numpy", "torch"]))
def test_random_trees_come_back_like_they_were(tree, target):
    """There and back: each tensor in the framework that it had, bit for bit."""
    result = check(tree, target)
    back = ferry.convert_tree(result, like=tree) if ferry.describe_tree(tree) else result
    for old, new in zip(leaves_of(tree), leaves_of(back), strict=True):
        if hasattr(old, "shape"):
            assert ferry.describe(new).framework == ferry.describe(old).framework
            assert ferry.to_numpy(new).tobytes() == ferry.to_numpy(old).tobytes()


@settings(MANY, max_examples=examples(250))
@given(tree=TREES)
def test_paths_lead_to_the_leaves(tree):
    """Each path is code that evaluates to the tensor that it is the path of."""
    tensors = [leaf for leaf in leaves_of(tree) if hasattr(leaf, "shape")]
    paths = list(ferry.describe_tree(tree))
    found = [eval(path.replace("$", "tree", 1), {"tree": tree}) for path in paths]  # noqa: S307 - our own paths
    assert all(a is b for a, b in zip(found, tensors, strict=True))


@settings(MANY, max_examples=examples(250))
@given(tree=TREES)
def test_snapshots_of_random_trees_share_nothing(tree):
    """The same bits in the same frameworks, in memory of their own."""
    copied = ferry.snapshot(tree)
    assert skeleton(copied) == skeleton(tree)
    for old, new in zip(leaves_of(tree), leaves_of(copied), strict=True):
        if hasattr(old, "shape"):
            assert ferry.describe(new).framework == ferry.describe(old).framework
            assert ferry.to_numpy(new).tobytes() == ferry.to_numpy(old).tobytes()
            assert not ferry.shares_memory(new, old)


# -- nothing is left behind ---------------------------------------------------------------------


def failing_tree(many=20):
    """A leaf in the middle cannot be converted; the others can, by copies."""
    tree = {str(number): np.full(1000, float(number)) for number in range(many)}
    tree[str(many // 2)] = np.array([0.5])
    return tree


@pytest.mark.parametrize("target", ["numpy", "torch", "jax"])
def test_a_leaf_that_fails_in_the_middle_leaves_nothing_behind(target):
    """No tensor that was made, no reference to what came in, once the error is gone."""
    tree = failing_tree()
    watched = [weakref.ref(each) for each in tree.values()]
    for _ in range(3):
        with pytest.raises(ferry.LossyCastError, match=r'\$\["10"\]'):
            ferry.convert_tree(tree, target, dtype={"float": "int32"})
    del tree
    gc.collect()
    assert not [each for each in watched if each() is not None]


def test_failing_keeps_nothing():
    """A hundred failures, each of which had made megabytes before."""
    tree = {"a": np.ones(1_000_000), "b": np.array([0.5])}

    def fail(times):
        for _ in range(times):
            with pytest.raises(ferry.LossyCastError):
                ferry.convert_tree(tree, "numpy", dtype={"float": "int32"})
        gc.collect()

    fail(5)
    tracemalloc.start()
    try:
        fail(100)
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < 8 << 20


def test_results_do_not_keep_the_tree():
    """Containers that came in are free once they are converted; shared memory is all that stays."""
    tree = Box(np.ones(3), Box(np.ones(2)))
    watched = [weakref.ref(tree), weakref.ref(tree.second)]
    result = ferry.convert_tree(tree, "torch")
    del tree
    gc.collect()
    assert [each() for each in watched] == [None, None]
    assert result.first.tolist() == [1.0, 1.0, 1.0]


def test_eight_threads_convert_trees_at_once():
    """The same results as one after the other."""
    import torch

    trees = [
        {
            "x": torch.full((3,), float(number)),
            "n": number,
            "box": Box(np.full(2, number), [None, "text"]),
        }
        for number in range(40)
    ]
    start = threading.Barrier(8)

    def worker(_):
        start.wait()
        for _ in range(20):
            for number, tree in enumerate(trees):
                result = ferry.convert_tree(tree, "numpy")
                assert result["x"].tolist() == [float(number)] * 3
                assert result["box"].first.tolist() == [number] * 2
                batch = ferry.collate([tree, tree], "torch")
                assert batch["n"].tolist() == [number] * 2
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(worker, range(8)))
