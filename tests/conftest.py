"""What every test shares: quiet frameworks, conversions that are checked, and a reason for each skip."""

from __future__ import annotations

import os

# Read when the frameworks are imported, so set before the first test module is.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("GLOG_minloglevel", "3")
# TensorFlow imports Keras, which imports scikit-learn and pandas if they are there: a third of the 5 s of each process
# that a test starts. The Keras before 3, for which it is asked instead, is not installed. `import keras` works as ever.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
# Else a thread of PyTorch's that has nothing to do spins, which takes the processor from the other
# tests.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Frameworks share one GPU: none may take all of its memory when it starts.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")

import contextlib
import gc
import importlib
import sys
from functools import cache

import pytest
from hypothesis import settings
from tests import absent

# Some hundred processes are started here: what one of them has compiled is read by all others.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

_NO_QUICK = int(os.environ.get("FERRY_NO_QUICK", "0"))
"""Not 0: the tests run without what backends have for speed only (`Quick`); one in so many of them."""

# How long an example takes is the machine's business. Which ones there are is not left to chance but where all are
# tried (`make slow`): a change that breaks nothing must pass.
settings.register_profile(
    "unhurried", deadline=None, derandomize="FERRY_ALL_EXAMPLES" not in os.environ
)
settings.load_profile("unhurried")


def pytest_configure(config):
    # Registered, it is asked about the doctests of src too, which this file is not.
    config.pluginmanager.register(absent)
    config.addinivalue_line(
        "markers", "fast_paths: runs with the fast paths open instead of checking every plan"
    )
    config.addinivalue_line(
        "markers", "unwatched: hints are not pasted, which would be in the way of what it counts"
    )
    config.addinivalue_line(
        "markers",
        "quick: is about what backends have for speed only, and not run with FERRY_NO_QUICK",
    )
    if _NO_QUICK:
        from tensorferry.backends import base
        from tensorferry.backends.quick import Quick

        base.quick_of = Quick
    # With `-n` this process hands out the tests, and needs no framework for that.
    if getattr(config.option, "dist", "no") == "no":
        # A PyTorch built for CUDA brings Triton, which ends the process if TensorFlow is there
        # before it.
        with contextlib.suppress(ImportError):
            importlib.import_module("torch._dynamo")


def pytest_collection_modifyitems(config, items):
    """Without what is there for speed, leave out the tests about it; of the others, run one in so many."""
    if not _NO_QUICK:
        return
    others = [item for item in items if item.get_closest_marker("quick") is None]
    kept = others[::_NO_QUICK]
    left = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in left])
    items[:] = kept


def pytest_collection_finish():
    """Keep what the imports made out of every later collection: with three frameworks each takes 0.25 s."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _frozen():
    """Keep what earlier modules have left out of the collections of this one, of which some make hundreds."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _verified(request):
    """Every conversion of a test is checked against its plan, unless it is about the fast paths."""
    from tensorferry.execution.run import verifying

    with verifying(request.node.get_closest_marker("fast_paths") is None):
        yield


@pytest.fixture(scope="module")
def _wide_jax():
    """JAX with its 64-bit dtypes."""
    jax = pytest.importorskip("jax")
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


_PASTED = tuple(
    f"tests/{folder}/"
    for folder in ("api", "cases", "conformance", "functions", "hazards", "sequences", "trees")
)
"""Tests whose hints are pasted by `make test` too; `make hints` pastes those of all."""


@cache
def _watch():
    """What pastes the hint of each error, in this process."""
    from tests.hints.recording import Watch

    return Watch()


@pytest.fixture(autouse=True)
def _hints_work(request):
    """The hint of each error that a public function raises in a test is pasted, and has to work."""
    everywhere = "FERRY_HINTS" in os.environ
    if request.node.get_closest_marker("unwatched") or not (
        everywhere or request.node.nodeid.startswith(_PASTED)
    ):
        yield
        return
    watch = _watch()
    found = len(watch.findings)
    with watch.watching():
        yield
    if watch.findings[found:]:
        pytest.fail("\n".join(map(str, watch.findings[found:])), pytrace=False)


def pytest_sessionfinish(session):
    """Write down what was pasted in this process, for `make hints`."""
    folder = os.environ.get("FERRY_HINTS")
    if folder and _watch.cache_info().currsize:
        from tests.hints.recording import write

        write(_watch(), session.config.rootpath / folder)


@cache
def _why_no_gpu():
    """Why tests marked ``gpu`` cannot run here, or ``None``."""
    try:
        import torch
    except ImportError as error:
        return f"needs a CUDA device, and torch cannot be imported: {error}"
    if not torch.cuda.is_available():
        return f"needs a CUDA device; torch {torch.__version__} sees none"
    return None


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu") is not None:
        reason = _why_no_gpu()
        if reason is not None:
            pytest.skip(reason)
