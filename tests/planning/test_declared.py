"""Plans by declarations alone say what `explain` says, where no framework has been imported."""

from __future__ import annotations

import json

from tests.support import SOURCE, survives

COUNT = 500

COMPARE = f"""
import json, random, sys
import tensorferry as ferry
from tensorferry.backends import declared, registry
from tensorferry.core.dtypes import CASTINGS, DTYPES

rng = random.Random(27)
names = [name for name in declared.declarations() if name != "array-like"]
assert sorted(names) == sorted(name for name, each in registry.known().items() if each.is_target)
widths = [*["float32", "int32", "int8", "bool"] * 8, *DTYPES]
devices = [*[None] * 12, "cpu", "cuda", "cuda:1", "mps", "tpu:0"]

def tensor():
    shape = tuple(rng.choice((0, 1, 2, 3, 7)) for _ in range(rng.randrange(4)))
    some = lambda value: value if rng.random() < 0.06 else None
    asked = dict(
        device=rng.choice(devices), strides=some([rng.choice((0, 4, -4, 8, 48, 3)) for _ in shape]),
        misalignment=some(4), requires_grad=some(True), writable=some(False), conjugate=some(True), swapped=some(True),
        memory_map=some(True), pinned=some(True), weak_dtype=some("float32"),
    )
    told = {{key: value for key, value in asked.items() if value is not None}}
    return rng.choice(names), shape, rng.choice(widths), told

def request():
    asked = dict(
        copy=rng.choice((True, False)), dtype=rng.choice(["default", "fit", "float", "flot32", *widths]),
        casting=rng.choice([*CASTINGS, "sure"]), device=rng.choice(devices), grad=rng.choice(("error", "detach")),
        pinned=True, non_blocking=rng.choice((True, 1)), variable=True,
    )
    return {{key: value for key, value in asked.items() if rng.random() < 0.12}}

def said(explain, info, to, asked):
    try:
        plan = explain(info, to, **asked)
    except (ferry.ConversionError, TypeError, ValueError) as error:
        return type(error).__name__, str(error), getattr(error, "hint", None)
    return str(plan), repr(plan), plan.to_dict(), plan.imports, plan._repr_html_()

plans, errors = 0, set()
for number in range({COUNT}):
    while True:
        framework, shape, dtype, rest = tensor()
        try:
            info = ferry.TensorInfo(framework, shape, dtype, **rest)
        except ferry.ConversionError:
            continue
        break
    to, asked = rng.choice(names), request()
    theirs, ours = said(ferry.explain, info, to, asked), said(declared.explain, info, to, asked)
    assert ours == theirs, (info, to, asked, ours, theirs)
    plans += len(ours) > 3
    errors |= {{ours[0]}} if len(ours) == 3 else set()
loaded = sorted({{"torch", "tensorflow", "jax", "cupy"}} & set(sys.modules))
print(json.dumps([plans, sorted(errors), loaded]))
"""


def test_random_settings_have_the_same_plan_or_the_same_error():
    """Text, code, data, picture and hint; of tensors and requests of every kind, impossible ones among them."""
    plans, errors, loaded = json.loads(survives(COMPARE).splitlines()[-1])
    assert 100 < plans < COUNT - 100
    assert {
        "UnsupportedTypeError",
        "DeviceError",
        "CopyRequiredError",
        "LossyCastError",
        "TypeError",
    } <= set(errors)
    assert not loaded


STANDING_IN = """
import sys, types
sys.modules["numpy"] = None  # an import of it raises
package = types.ModuleType("tensorferry")  # whose own __init__ is all of tensorferry
package.__path__ = [{path!r}]
sys.modules["tensorferry"] = package
from tensorferry.backends.declared import explain, stand_in
from tensorferry.core.info import TensorInfo
from tensorferry.errors import UnknownFrameworkError
assert TensorInfo("tensorflow", (3,)).writable is None
stand_in()
assert TensorInfo("tensorflow", (3,)).writable is False
assert TensorInfo("cupy", (3,)).device == "cuda"
for ask in (lambda: explain(TensorInfo("numpy", (3,)), "torhc"), lambda: explain(TensorInfo("torhc", (3,)), "numpy")):
    try:
        ask()
    except UnknownFrameworkError as error:
        assert "'torhc' is not the name of a framework" in str(error) and "torch" in error.hint, str(error)
    else:
        raise SystemExit("there is no such framework")
"""


def test_descriptions_know_what_is_usual_in_a_framework_by_its_declaration():
    """Where the registry of backends is not loaded: who may write, on which device."""
    survives(STANDING_IN.format(path=str(SOURCE / "tensorferry")))


def test_the_registry_of_backends_is_left_in_its_place():
    """What stands in for it asks nothing of who has loaded it."""
    survives(
        "import tensorferry as ferry\n"
        "from tensorferry.backends import declared\n"
        "from tensorferry.core.names import LOOKUPS\n"
        "before = [*LOOKUPS]\n"
        "declared.stand_in()\n"
        "assert before == LOOKUPS\n"
        'assert ferry.TensorInfo("pytorch", (3,)).framework == "torch"\n'
    )
