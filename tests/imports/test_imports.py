"""What an import loads."""

from __future__ import annotations

import json

import pytest
from tests.support import forked, lives, python, survives

FRAMEWORKS = ("torch", "tensorflow", "jax", "jaxlib", "sklearn", "pandas", "typer", "rich")
ALLOWED = {"numpy", "ml_dtypes", "tensorferry", "typing_extensions", "optree"}


def loaded_by(code):
    """The top-level modules, outside the standard library, that code loads in a fresh interpreter."""
    tail = (
        "\nimport json, sys\n"
        "names = {name.partition('.')[0] for name in sys.modules}\n"
        "print(json.dumps(sorted(names - set(sys.stdlib_module_names) - set(before))))\n"
    )
    head = "import sys; before = {n.partition('.')[0] for n in sys.modules}\n"
    return set(json.loads(survives(head + code + tail).splitlines()[-1]))


def test_importing_loads_numpy_and_the_standard_library_only():
    """`import tensorferry` loads what its requirements name, and no framework."""
    found = loaded_by("import tensorferry")
    assert "tensorferry" in found
    assert found <= ALLOWED, found - ALLOWED


def test_looking_around_loads_no_framework():
    """describe, frameworks, plans from TensorInfo and refusals load nothing either."""
    found = loaded_by(
        """
import numpy as np, tensorferry as ferry
ferry.frameworks()
ferry.describe(np.zeros(3)); ferry.describe([1, 2]); ferry.describe(b"ab")
ferry.shares_memory(np.zeros(3), np.zeros(3))
for source in ("torch", "jax", "tensorflow", "numpy"):
    for target in ("torch", "jax", "tensorflow", "numpy", "python"):
        ferry.explain(ferry.TensorInfo(source, (3,)), target)
for thing in ({1}, "text", None, object()):
    try:
        ferry.to_numpy(thing)
    except ferry.ConversionError:
        pass
"""
    )
    assert not found & set(FRAMEWORKS), found


def test_trees_load_optree_only_if_somebody_registers_a_class_with_it():
    """It takes 20 ms in the first call; before it has been loaded, nothing is registered with it."""
    survives(
        """
import sys, collections, dataclasses, numpy as np, tensorferry as ferry
@dataclasses.dataclass
class Box:
    held: object
class Own:
    def __init__(self, held): self.held = held
x, own = np.ones(2), Own(np.ones(1))
tree = {"a": [x, (x, collections.deque([x]))], "b": Box(collections.OrderedDict(x=x)), "own": own}
for function in (ferry.describe_tree, ferry.snapshot, lambda tree: ferry.explain_tree(tree, "numpy", unknown="keep")):
    try:
        function(tree)
    except ferry.UnsupportedTypeError:
        pass
ferry.convert_tree(tree, "list", unknown="keep")
ferry.collate([tree["b"], tree["b"]], "numpy")
assert "optree" not in sys.modules
import optree
from optree.registry import __GLOBAL_NAMESPACE as everywhere
optree.register_pytree_node(Own, lambda own: ((own.held,), None), lambda _, values: Own(*values), namespace=everywhere)
assert ferry.convert_tree(tree, "list")["own"].held == [1.0]
"""
    )


def test_plain_arrays_load_no_masked_arrays():
    """NumPy loads `numpy.ma` where its name is first used, 10 ms in what may be the first call of a process."""
    survives(
        """
import sys, numpy as np, tensorferry as ferry
array = np.arange(6.0).reshape(2, 3)
ferry.describe(array), ferry.to_numpy(array[:, ::2], dtype="float32"), ferry.to_list(array.astype(object))
ferry.convert_tree({"a": array.view("f8,f8,f8"), "b": array}, "numpy", copy=True), ferry.to_numpy(memoryview(array))
assert "numpy.ma" not in sys.modules
masked = np.ma.array([1.0, 2.0], mask=[True, False])
try:
    ferry.to_numpy(masked)
except ferry.UnsupportedTypeError as error:
    assert "mask would be lost" in error.message
else:
    raise AssertionError("a mask was lost")
"""
    )


MAKE = {
    "numpy": "import numpy as np; x = np.ones((2, 3), np.float32)",
    "python": "x = [[1.0, 2.0], [3.0, 4.0]]",
    "torch": "import torch; x = torch.ones(2, 3)",
    "tensorflow": "import tensorflow as tf; x = tf.ones((2, 3))",
    "jax": "import jax.numpy as jnp; x = jnp.ones((2, 3))",
}


CONVERSIONS = """
import sys
import tensorferry as ferry

worlds = {}
for name, make in %r:
    worlds[name] = make
    exec(make)
    already = set(sys.modules)  # TensorFlow, for one, loads others by itself
    for source in worlds:
        exec(worlds[source])
        for target in worlds:
            y = ferry.convert(x, target)
            ferry.convert(x, target, dtype="float16"), ferry.convert(x, target, copy=True)
            ferry.explain(x, target), ferry.shares_memory(x, y), ferry.describe(y)
            found = ({"torch", "tensorflow", "jax"} - already) & set(sys.modules)
            assert not found, (source, target, found)
"""


@pytest.mark.parametrize("used", [("torch", "jax"), ("jax",), ("tensorflow",)], ids="+".join)
def test_a_conversion_loads_no_third_framework(used):
    """Between NumPy, Python and the frameworks in use, one after the other, every conversion loads none but those."""
    survives(CONVERSIONS % [(name, MAKE[name]) for name in ("numpy", "python", *used)])


ADDED = """
import json, sys
import numpy
before = set(sys.modules)
import tensorferry
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_importing_adds_few_modules_to_numpy():
    """What takes the time is counted here, and the time is in the benchmarks: most of the package comes when needed."""
    added = json.loads(survives(ADDED))
    others = [name for name in added if name.partition(".")[0] != "tensorferry"]
    # Four of them are folders, with a docstring alone; `hints.named_tuple` saves ten times its time.
    assert len(added) - len(others) <= 28, added
    assert len(others) <= 10, others
    assert not {"ml_dtypes", "difflib", "fnmatch", "dataclasses", "inspect"} & set(others), others
    later = (
        "planning.planner",
        "planning.plan",
        "core.capabilities",
        "backends.verbs",
        "transfers.prefetch",
    )
    assert not {f"tensorferry.{name}" for name in later} & set(added), added


FIRST_CALL = """
import os, sys, tempfile
import numpy as np, torch
from safetensors.torch import save_file
t, a = torch.ones(3), np.ones(3)
path = os.path.join(tempfile.mkdtemp(), "a.safetensors")
save_file({{"w": t}}, path)
import tensorferry as ferry
{call}
print(sum(name.partition(".")[0] == "tensorferry" for name in sys.modules))
"""
CALLS = {
    "ferry.to_numpy(t)": 54,
    "ferry.to_torch(a)": 44,
    "ferry.to_torch([1., 2.])": 52,
    "ferry.convert(t, 'numpy', dtype='float16')": 65,
    "str(ferry.explain(t, 'numpy'))": 62,
    "ferry.convert_tree({'a': t}, 'numpy')": 76,
    "ferry.collate([{'a': t, 'y': 1}] * 2, 'torch')": 76,
    "ferry.load(path, 'torch')": 60,
    "ferry.load(path, 'torch', lazy=True)['w']": 54,
}


def beside_torch(code):
    """Run code in a process that has imported NumPy and PyTorch, and nothing of ours; what it printed."""
    status, out, err = forked(("numpy", "torch", "safetensors.torch"), code)
    assert status == 0, err[-4000:]
    return out


@pytest.mark.parametrize("call", CALLS)
def test_a_first_call_imports_few_modules(call):
    """A process pays for them once.

    The time is in the benchmarks; what takes it is counted here.
    """
    assert int(beside_torch(FIRST_CALL.format(call=call)).splitlines()[-1]) <= CALLS[call]


LATER = ("sequences.numbers", "sequences.reader", "backends.no_tensor", "backends.lists")
"""What only lists, or only errors, need."""


@pytest.mark.parametrize(
    "call", ["ferry.to_numpy(t)", "ferry.convert(t, 'numpy', dtype='float16')"]
)
def test_a_first_call_of_a_tensor_imports_nothing_for_lists_or_errors(call):
    """How lists of numbers are read is imported with the first list, and errors with the first."""
    told = f"print([name for name in {LATER} if 'tensorferry.' + name in sys.modules])"
    assert beside_torch(FIRST_CALL.format(call=f"{call}\n{told}")).splitlines()[-2] == "[]"


UNUSED = (
    *("host.casts", "host.subnormals", "host.free_memory", "devices", "planning", "trees"),
    *("backends.numpy", "backends.torch.devices", "backends.together", "backends.torch.bound"),
    *("api", "core.request", "execution.run", "execution.recipes", "execution.groups"),
    *("files.loading", "files.base.nesting"),
    *("files.base.tree_strings", "files.pickles", "files.conversion", "files.reports"),
)
"""What reads, casts, plans or moves tensors: a tensor over a map needs none of it."""


def test_a_first_lazy_load_imports_nothing_that_reads_casts_or_plans():
    """Neither before a tensor is used nor then, and not with the metadata that all tools write."""
    call = (
        "save_file({'w': t}, path, {'format': 'pt'})\n"
        "assert ferry.load(path, 'torch', lazy=True)['w'].tolist() == [1.0] * 3\n"
        f"print([name for name in {UNUSED} if 'tensorferry.' + name in sys.modules])"
    )
    assert beside_torch(FIRST_CALL.format(call=call)).splitlines()[-2] == "[]"


ASKED = """
import builtins, json, sys
asked, real = set(), builtins.__import__
def noting(name, globals=None, locals=None, fromlist=(), level=0):
    if not level and str((globals or {}).get("__name__")).partition(".")[0] == "tensorferry":
        asked.add(name)
    return real(name, globals, locals, fromlist, level)
builtins.__import__ = noting
import tensorferry
print(json.dumps(sorted(asked)))
"""
LIGHT = {
    *(
        "__future__",
        "abc",
        "collections",
        "collections.abc",
        "contextlib",
        "ctypes",
        "datetime",
        "functools",
        "importlib",
    ),
    *(
        "itertools",
        "math",
        "mmap",
        "numpy",
        "operator",
        "pickle",
        "os",
        "re",
        "struct",
        "sys",
        "threading",
        "types",
        "typing",
        "weakref",
    ),
}
"""What NumPy cannot do without either, and two that take a quarter and half of a millisecond: mmap, threading."""


def test_importing_asks_for_light_modules_only():
    """Whoever has loaded it before: no dataclasses, which makes a class in milliseconds, no inspect, no enum."""
    asked = set(json.loads(survives(ASKED)))
    assert "numpy" in asked
    assert asked <= LIGHT, asked - LIGHT


FIRST = {
    "ndarray to tensorflow": "y = ferry.to_tensorflow(np.ones(4, np.float32))",
    "bfloat16 to tensorflow": "y = ferry.to_tensorflow(np.ones(4, ml_dtypes.bfloat16))",
    "read-only to tensorflow": "a = np.ones(4); a.flags.writeable = False; y = ferry.to_tensorflow(a)",
    "empty to tensorflow": "y = ferry.to_tensorflow(np.ones((0, 2)))",
    "variable": "y = ferry.to_tensorflow([1.0], variable=True)",
    "list to tensorflow": "y = ferry.to_tensorflow([1.0])",
    "ndarray to jax": "y = ferry.to_jax(np.ones(4, np.float32))",
    "list to jax": "y = ferry.to_jax([1, 2])",
    "bfloat16 to torch": "y = ferry.to_torch(np.ones(4, ml_dtypes.bfloat16))",
}


def test_the_first_call_of_a_process_works():
    """Nothing has to be warmed up: each child's call is the first use of a framework that is only imported."""
    for call in FIRST.values():
        lives(
            "import ml_dtypes, numpy as np, tensorferry as ferry\n"
            f"{call}\n"
            "assert ferry.to_numpy(y, copy=True).size in (0, 1, 2, 4)\n"
        )


def test_the_first_call_inside_a_trace():
    """The backend may be loaded while JAX or TensorFlow traces: what it learns then is not about tracers."""
    lives(
        """
        import jax, numpy as np, tensorferry as ferry
        @jax.jit
        def traced(x):
            assert ferry.to_jax(x) is x
            for call in (ferry.to_numpy, ferry.to_torch, ferry.to_list):
                try:
                    call(x)
                except ferry.UnsupportedTypeError as error:
                    assert "traced" in str(error)
                else:
                    raise SystemExit("converted a tracer")
            constant = ferry.to_jax(np.ones(3, np.float32))
            return x + constant
        assert traced(np.ones(3, np.float32)).tolist() == [2.0, 2.0, 2.0]
        x = jax.numpy.ones(3)
        view = ferry.to_numpy(x)
        assert view.tolist() == [1.0] * 3 and not view.flags.writeable
        assert ferry.to_jax(x) is x
        """
    )


def test_the_first_call_inside_a_tf_function():
    """The same for TensorFlow: an array that is converted inside is a tensor with its values."""
    lives(
        """
        import numpy as np, tensorflow as tf, tensorferry as ferry
        @tf.function
        def traced(x):
            assert ferry.to_tensorflow(x) is x
            return x + ferry.to_tensorflow(np.ones(3, np.float32)) + ferry.to_tensorflow([1.0, 1.0, 1.0])
        assert traced(tf.ones(3)).numpy().tolist() == [3.0] * 3
        assert ferry.to_tensorflow([1.0]).numpy().tolist() == [1.0]
        assert ferry.to_numpy(tf.ones(3)).tolist() == [1.0] * 3
        """
    )


def test_a_broken_framework_is_said_and_breaks_nothing_else(tmp_path):
    """A torch whose import fails: NumPy works, and the error has its words and the line that installs it."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(
        "raise OSError('libtorch is damaged')\n", encoding="utf-8"
    )
    done = python(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "sys.modules.update(dict.fromkeys(('tensorflow', 'jax')))\n"  # an import of them raises, and takes no time
        "import tensorferry as ferry\n"
        "assert ferry.to_numpy([1]).tolist() == [1]\n"
        "status = ferry.frameworks(load=True)['torch']\n"
        "assert not status.installed and 'libtorch is damaged' in status.error, status\n"
        "try:\n"
        "    ferry.to_torch([1])\n"
        "except ferry.FrameworkNotInstalledError as error:\n"
        "    assert 'libtorch is damaged' in str(error) and error.hint == 'pip install torch'\n"
        "    assert isinstance(error.__cause__, OSError)\n"
        "else:\n"
        "    raise SystemExit('a broken torch converted')\n"
    )
    assert done.returncode == 0, done.stderr


def test_a_framework_that_must_not_be_imported_is_not_installed():
    """`None` in its place is how tests say that it is missing; then everything else still works."""
    done = python(
        "import sys\n"
        "sys.modules.update(dict.fromkeys(('torch', 'tensorflow', 'jax', 'pandas', 'pydantic', 'uuid')))\n"
        "import numpy as np, tensorferry as ferry\n"
        "assert ferry.to_numpy([1]).tolist() == [1]\n"
        "batch = {'x': np.ones(2), 'words': np.array(['a', None], object), 'o': object()}\n"
        "assert ferry.convert_tree(batch, 'numpy')['words'] is batch['words']\n"
        "assert ferry.collate([{'x': np.ones(2)}] * 2, 'numpy')['x'].shape == (2, 2)\n"
        "assert not ferry.is_tensor('a') and not ferry.frameworks()['torch'].installed\n"
        "for call in (ferry.to_torch, ferry.to_jax, ferry.to_tensorflow):\n"
        "    try:\n"
        "        call([1])\n"
        "    except ImportError as error:\n"
        "        assert 'is not installed' in str(error), error\n"
        "    else:\n"
        "        raise SystemExit('it converted')\n"
    )
    assert done.returncode == 0, done.stderr


def test_another_module_with_the_name_of_a_framework_is_said(tmp_path):
    """A torch.py beside the program: it was an AttributeError about torch.strided."""
    (tmp_path / "torch.py").write_text("x = 1\n", encoding="utf-8")
    done = python(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import tensorferry as ferry\n"
        "assert ferry.to_numpy([1]).tolist() == [1]\n"
        "try:\n"
        "    ferry.to_torch([1])\n"
        "except ferry.FrameworkNotInstalledError as error:\n"
        f"    assert {str(tmp_path / 'torch.py')!r} in error.message, error\n"
        "    assert isinstance(error.__cause__, AttributeError)\n"
        "else:\n"
        "    raise SystemExit('another module converted')\n"
    )
    assert done.returncode == 0, done.stderr
