"""Plans need no framework: the same tests, in an interpreter that cannot import one."""

from __future__ import annotations

from pathlib import Path

from tests.support import ROOT, survives

BLOCK = """
import importlib.abc
import sys

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "tensorflow", "jax", "jaxlib", "cupy"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
"""


def test_every_plan_can_be_made_where_no_framework_is():
    """The tests of plans pass with torch, TensorFlow, JAX and CuPy out of reach."""
    paths = [str(Path(__file__).with_name(name)) for name in ("test_plans.py", "test_devices.py")]
    code = BLOCK + (
        "import pytest\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "options = ['-q', '-p', 'no:cacheprovider', '-p', 'no:xdist', '--tb=short']\n"
        f"code = pytest.main([*options, '--rootdir', {str(ROOT)!r}, *{paths!r}])\n"
        "loaded = {'torch', 'tensorflow', 'jax', 'cupy'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
        "sys.exit(int(code))\n"
    )
    words = survives(code)
    assert " passed" in words
    assert "skipped" not in words


def test_conversions_among_what_is_there_work_and_the_rest_is_said():
    """NumPy and Python convert; a framework that is named is missed with the line that installs it."""
    survives(
        BLOCK
        + """
import numpy as np, tensorferry as ferry
assert ferry.to_numpy([1, 2]).tolist() == [1, 2]
assert ferry.to_list(np.ones(2)) == [1.0, 1.0]
for name, call in (("torch", ferry.to_torch), ("tensorflow", ferry.to_tensorflow), ("jax", ferry.to_jax)):
    for ask in (call, lambda x: ferry.explain(x, name)):
        try:
            ask(np.ones(2))
        except ferry.FrameworkNotInstalledError as error:
            assert isinstance(error, ImportError) and f"{name} is not installed" in str(error), error
            assert f"pip install {name}" in error.hint
        else:
            raise SystemExit(f"{name} was found")
"""
    )
