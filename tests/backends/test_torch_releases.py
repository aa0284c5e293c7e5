"""What older releases of PyTorch lack.

`make floors` runs this on one of them; on later ones, it is taken away.
"""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from packaging.requirements import Requirement
from tests.support import address, frozen, lives, survives

import tensorferry as ferry
from tensorferry.backends import registry
from tensorferry.backends.torch.tensors import skip
from tensorferry.execution import recipes

torch = pytest.importorskip("torch")

SCALES = np.ones(2, ml_dtypes.float8_e8m0fnu)


@pytest.fixture
def older(monkeypatch):
    """The backend, as it is for a release of PyTorch without float8_e8m0fnu and without read-only capsules."""
    backend = registry.ready("torch")
    names = backend.dtypes.keys() - {"float8_e8m0fnu"}
    settings = backend.default_dtype(), backend.is_recording(), backend.is_tracing()
    monkeypatch.setitem(backend.by_default, settings, backend.capabilities.holding(names))
    monkeypatch.setattr(backend, "takes_read_only", False)
    recipes.forget_recipes()
    yield backend
    recipes.forget_recipes()


# -- dtypes -------------------------------------------------------------------------------------------


def pip_takes(code):
    """A command for pip that names one release of one package, or a later one."""
    words = code.split()
    assert words[:2] == ["pip", "install"]
    return Requirement(words[2].strip('"'))


@pytest.mark.parametrize("convert", [ferry.to_torch, lambda x: ferry.explain(x, "torch")])
def test_the_release_that_has_a_dtype_is_named(convert, older):
    """What fits here, or the command that installs a PyTorch which has the dtype."""
    with pytest.raises(
        ferry.LossyCastError, match=r"torch has no float8_e8m0fnu before 2\.7\."
    ) as caught:
        convert(SCALES)
    fitting, command = caught.value.hint.split(", or ")
    assert fitting == 'dtype="fit"'
    assert ferry.to_torch(SCALES, dtype="fit").tolist() == [1.0, 1.0]
    newest = pip_takes(command)
    assert (newest.name, "2.7" in newest.specifier, "2.6" in newest.specifier) == (
        "torch",
        True,
        False,
    )


def test_a_description_of_such_a_tensor_says_the_same(older):
    """No tensor of this release can be described so."""
    with pytest.raises(
        ferry.UnsupportedTypeError, match=r"torch has no float8_e8m0fnu before 2\.7\."
    ) as caught:
        ferry.explain(ferry.TensorInfo("torch", (2,), "float8_e8m0fnu"), "numpy")
    assert pip_takes(caught.value.hint).name == "torch"


def test_a_dtype_that_no_release_has_is_refused_without_one(older):
    """Neither a release nor a command is named."""
    with pytest.raises(ferry.LossyCastError, match=r"torch has no int4\.") as caught:
        ferry.to_torch(np.ones(2, ml_dtypes.int4))
    assert "pip" not in caught.value.hint


# -- memory that is read-only -------------------------------------------------------------------------


def test_read_only_memory_is_shared_without_a_warning(older):
    """PyTorch's own function warns, once in a process; the conversion does not, the first time and the next ones."""
    array = frozen(np.arange(3.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            assert address(ferry.to_torch(array, copy=False)) == address(array)


def test_the_code_of_a_plan_says_that_it_warns(older):
    """It shares the memory, too. That of writable memory says nothing."""
    array = frozen(np.arange(3.0))
    code = ferry.explain(array, "torch", copy=False).code
    assert "# PyTorch before 2.9 warns that the memory is read-only" in code
    assert "warns" not in ferry.explain(np.arange(3.0), "torch", copy=False).code
    # In a process of its own, where it is the first one.
    survives(
        f"import warnings\nimport numpy as np\ncode = {code!r}\n"
        """
names = {"x": np.arange(3.0)}
names["x"].flags.writeable = False
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    exec(code, names)
assert [str(each.message).partition(",")[0] for each in caught] == ["The given NumPy array is not writable"], caught
assert names["y"].data_ptr() == names["x"].ctypes.data
"""
    )


# -- the compiler -------------------------------------------------------------------------------------

SKIPPED = """
import sys
import torch
from tensorferry.backends.torch.tensors import skip

def inside(x):
    return x * 3

def outside(x, *rest, key=None, **more):
    print("called", x.tolist())
    return inside(x) + 1

outside._torchdynamo_disable = True
if sys.argv[1] == "before":
    assert "torch._dynamo" not in sys.modules
    skip(torch, outside)
    assert "torch._dynamo" not in sys.modules
else:
    import torch._dynamo
    skip(torch, outside)

traced = []

def backend(graph, examples):
    traced.extend(node.target.__name__ for node in graph.graph.nodes if node.op == "call_function")
    return graph.forward

compiled = torch.compile(lambda x: outside(x + 4) - 2, backend=backend)
for length in (1, 2):
    assert compiled(torch.ones(length)).tolist() == [14.0] * length
assert set(traced) == {"add", "sub"}, traced
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_compiler_skips_a_function_and_what_it_calls(when):
    """Not the function that calls it; whether the compiler has been imported or not.

    To keep it out calls nothing.
    """
    run = survives if when == "before" else lives  # in which it has been imported
    assert run(SKIPPED, when).split("\n") == ["called [5.0]", "called [5.0, 5.0]", ""]


def test_the_oldest_release_is_told_by_a_call_without_effect():
    """PyTorch 2.6 looks at each call that begins.

    The call knows no names; the look at calls ends with it.
    """
    looking, effects, held = ["before"], [], [1]

    def set_eval_frame(callback):
        looking.append(callback)
        return looking[-2]

    def function(x, y=0, *rest, key, other=1, **more):
        looked.append(looking[-1]())
        effects.append(len(held))

    frames = SimpleNamespace(skip_code_recursive_flag="skip", set_eval_frame=set_eval_frame)
    looked = []
    skip(SimpleNamespace(_C=SimpleNamespace(_dynamo=SimpleNamespace(eval_frame=frames))), function)
    assert (effects, looked) == ([], [])
    assert len(looking) == 3
    assert looking[1]() == "skip"
    assert looking[2] == "before"


COMPILED = """
import warnings
import torch, numpy as np
import tensorferry as ferry

# PyTorch 2.10 says so where a graph ends before a tensor is read in C.
warnings.filterwarnings("ignore", "Dynamo does not know how to trace the builtin", UserWarning)

graphs = []

def backend(graph, examples):
    graphs.append(graph.code)
    return graph.forward

@torch.compile(backend=backend)
def crossing(x):
    return torch.from_numpy(ferry.to_numpy(x * 2) + 1) - 3

@torch.compile(backend=backend)
def in_a_tree(x):
    return ferry.convert_tree({"a": x * 2}, "numpy", copy=True)["a"]

# What is imported at the first call is looked at by the compiler, as every import in a compiled function.
ferry.convert_tree({"a": torch.ones(2)}, "numpy", copy=True)
for compiled, expected in ((crossing, 0.0), (in_a_tree, 2.0)):
    graphs.clear()
    assert compiled(torch.ones(2)).tolist() == [expected] * 2
    assert graphs and not any("copy" in each or "detach" in each for each in graphs), graphs
"""


def test_nothing_of_a_conversion_is_compiled():
    """What is done for it is no part of a graph."""
    lives(COMPILED)
