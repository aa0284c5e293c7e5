"""Skips what needs a library that is not installed here, and says which: `conftest.py` makes pytest ask this module.

Where every library of the tests is installed nothing is skipped by it. A name that is not in
`OPTIONAL`, which may be misspelled, fails as ever.
"""

from __future__ import annotations

import doctest
import importlib.util
import re
import sys

import pytest

OPTIONAL = frozenset(
    {
        *(
            "accelerate",
            "array_api_strict",
            "attrs",
            "babel",
            "datasets",
            "docutils",
            "duckdb",
            "equinox",
        ),
        *("flax", "gguf"),
        *(
            "google_crc32c",
            "gymnasium",
            "h5py",
            "jax",
            "joblib",
            "jsonschema",
            "msgpack",
            "nanoarrow",
        ),
        *(
            "nbclient",
            "nbformat",
            "numcodecs",
            "onnx",
            "optax",
            "orbax",
            "pandas",
            "PIL",
            "polars",
            "pyarrow",
        ),
        *(
            "pygments",
            "rich",
            "safetensors",
            "scipy",
            "sklearn",
            "sphinx",
            "tensordict",
            "tensorflow",
        ),
        *("tensorstore", "torch", "transformers", "typer", "xarray", "yaml", "zarr"),
    }
)
"""Libraries beside NumPy that tests use, by the names they are imported by."""

_SAID = re.compile(r"No module named '(?P<module>\w+)|\b(?P<named>\w+) is not installed")


def skip_if_absent(error, what=""):
    """Skip if an error says that a library of `OPTIONAL` is not installed, and that is so.

    The words tell it, for it may come from another process.
    """
    if isinstance(error, doctest.UnexpectedException):
        error = error.exc_info[1]
    for said in _SAID.finditer(str(error)):
        library = said["module"] or said["named"]
        if library in OPTIONAL and importlib.util.find_spec(library) is None:
            # The place is the test's, not this one.
            reason = f"{what}{library} is not installed"
            raise pytest.skip.Exception(reason, allow_module_level=True, _use_item_location=True)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """A module that imports such a library is skipped as a whole."""
    collect = collector.collect

    def collected():
        try:
            return list(collect())
        except pytest.Collector.CollectError as error:
            # Half of the module is there, which another that imports it would get.
            for name, module in list(sys.modules.items()):
                if getattr(module, "__file__", None) == str(collector.path):
                    del sys.modules[name]
            skip_if_absent(error, f"{collector.nodeid}: ")
            raise

    collector.collect = collected
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    """A test whose fixtures need such a library is skipped."""
    return (yield from _skipping())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """A test that needs such a library is skipped where it needs it."""
    return (yield from _skipping())


def _skipping():
    try:
        return (yield)
    except Exception as error:
        skip_if_absent(error)
        raise
