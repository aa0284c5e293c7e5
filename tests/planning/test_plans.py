"""Plans made from what a person writes by hand: for GPUs that are not here, and frameworks that need not be."""

from __future__ import annotations

import itertools
import json
import pickle
import re
from contextlib import nullcontext
from html.parser import HTMLParser

import numpy as np
import pytest
from tests.support import mps

import tensorferry as ferry
from tensorferry import TensorInfo
from tensorferry.backends import declared, registry
from tensorferry.core.request import Request, make_request

N = 1000
COMPARES = ', casting="same_value"' if np.lib.NumpyVersion(np.__version__) >= "2.4.0" else ""
"""What NumPy compares itself is left to it in the code, from the version on that does."""


def info(framework="torch", dtype="float32", device="cuda:0", **fields):
    return TensorInfo(framework, fields.pop("shape", (N,)), dtype, device, **fields)


def verbs(plan):
    return [step.verb for step in plan.steps]


def on(plan, path):
    """The bytes that a plan sends over a path."""
    return sum(step.bytes for step in plan.steps if step.path == path)


# -- order by cost --------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["numpy", "tensorflow", "jax", "python"])
def test_detach_comes_first(target):
    """Nothing that autograd would record happens before the graph is left."""
    for fields in ({}, {"conjugate": True, "dtype": "complex64"}, {"strides": (8,)}):
        plan = ferry.explain(info(requires_grad=True, **fields), target, device="cpu")
        assert verbs(plan)[0] == "detach"
        assert verbs(plan).count("detach") == 1


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [("float64", "float32"), ("float32", "float16"), ("float32", "bfloat16"), ("int64", "int8")],
)
def test_narrow_before_the_bus(wide, narrow):
    """A narrowing cast halves what crosses the bus, in both directions, where a device may do it."""
    casting = "unsafe" if wide == "int64" else None
    down = ferry.explain(info(dtype=wide), "numpy", dtype=narrow, casting=casting)
    assert verbs(down).index("cast") < verbs(down).index("move")
    assert on(down, "bus") == TensorInfo("numpy", (N,), narrow).nbytes
    up = ferry.explain(
        info("numpy", wide, "cpu"), "torch", device="cuda", dtype=narrow, casting=casting
    )
    assert verbs(up).index("cast") < verbs(up).index("move")
    assert on(up, "bus") == TensorInfo("numpy", (N,), narrow).nbytes


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [("float16", "float32"), ("bfloat16", "float64"), ("int8", "int64"), ("float32", "float64")],
)
def test_widen_after_the_bus(narrow, wide):
    """A widening cast waits until the value is where it goes."""
    down = ferry.explain(info(dtype=narrow), "numpy", dtype=wide)
    assert verbs(down).index("move") < verbs(down).index("cast")
    up = ferry.explain(info("numpy", narrow, "cpu"), "torch", device="cuda", dtype=wide)
    assert verbs(up).index("move") < verbs(up).index("cast")
    for plan in (down, up):
        assert on(plan, "bus") == TensorInfo("numpy", (N,), narrow).nbytes
        assert plan.result.dtype == wide


@pytest.mark.parametrize(
    ("source", "target"), [("float64", "float16"), ("float32", "float8_e4m3fn")]
)
def test_a_cast_that_devices_do_differently_is_done_on_the_host(source, target):
    """The same bits for every target: a device's own rounding is not used."""
    plan = ferry.explain(info(dtype=source), "numpy", dtype=target)
    [cast] = [step for step in plan.steps if step.verb == "cast"]
    assert (cast.backend, cast.path) == ("numpy", "host")


def test_values_are_compared_on_the_host():
    """A checked cast is never left to a device."""
    plan = ferry.explain(info(dtype="int64"), "numpy", dtype="int8")
    [cast] = [step for step in plan.steps if step.verb == "cast"]
    assert (cast.backend, cast.path, cast.arguments[:2]) == ("numpy", "host", ("int8", "value"))


def test_a_gradient_stays_on_the_way_to_a_device():
    """torch to torch keeps the graph over a device and a dtype."""
    plan = ferry.explain(
        info(device="cpu", requires_grad=True), "torch", device="cuda", dtype="bfloat16"
    )
    assert plan.keeps_gradient
    assert "detach" not in verbs(plan)
    assert verbs(plan) == ["cast", "move"]
    assert not ferry.explain(
        info(device="cpu", requires_grad=True), "torch", dtype="int32", casting="unsafe"
    ).keeps_gradient


# -- places ---------------------------------------------------------------------------------------


def test_cuda_to_cuda_shares_the_memory():
    """Between frameworks that both live there, no byte crosses the bus."""
    for source, target in itertools.permutations(("torch", "jax", "tensorflow"), 2):
        plan = ferry.explain(info(source), target, copy=False)
        assert on(plan, "bus") == on(plan, "host") == 0
        assert plan.result.device == "cuda:0"
        assert plan.shares_memory
    plan = ferry.explain(info("torch"), "jax")
    assert verbs(plan) == ["copy", "import_dlpack"]
    assert on(plan, "device") == 4 * N


def test_a_gpu_tensor_that_has_to_go_through_the_host():
    """cuda to a CPU-only place is one transfer; copy=False names both devices."""
    for target in ("numpy", "python"):
        assert on(ferry.explain(info(), target), "bus") == 4 * N
    with pytest.raises(ferry.CopyRequiredError, match=r"cuda:0.*cpu"):
        ferry.explain(info(), "jax", device="cpu", copy=False)


def test_mps_stays_with_torch_and_goes_through_the_host_to_others():
    """No other framework lives on mps here: the result is on the host."""
    plan = ferry.explain(info(device="mps:0"), "numpy")
    assert plan.result.device == "cpu"
    assert on(plan, "bus") == 4 * N
    assert ferry.explain(info(device="mps:0"), "jax").result.device == "cpu"
    assert ferry.explain(info(device="mps:0"), "torch").steps == ()


@pytest.mark.parametrize(
    ("target", "dtype", "steps", "size", "code"),
    [
        ("numpy", None, ["read"], 8, "np.array(x)"),
        ("python", None, ["read", "adopt"], 8, "np.array(x)"),
        ("torch", None, ["read", "adopt"], 4, 'np.array(x, dtype="float32")'),
        ("jax", None, ["read", "adopt"], 4, 'np.array(x, dtype="float32")'),
        ("torch", "float64", ["read", "adopt"], 8, "np.array(x)"),
        ("tensorflow", "float64", ["read", "adopt"], 8, "np.array(x)"),
        (
            "torch",
            "bfloat16",
            ["read", "adopt"],
            2,
            'ferry.to_numpy(np.array(x), dtype="bfloat16")',
        ),
        ("numpy", "int8", ["read"], 1, f'np.array(x).astype("int8"{COMPARES})'),
    ],
)
def test_python_numbers_are_read_as_what_the_target_takes(target, dtype, steps, size, code):
    """One array, of the dtype that is wanted and where the target can adopt it: no wider one, no second copy."""
    numbers = TensorInfo("python", (N,), "float64", weak_dtype="float32")
    plan = ferry.explain(numbers, target, dtype=dtype)
    assert [step.verb for step in plan.steps] == steps
    assert plan.steps[0].code == code
    assert plan.steps[0].bytes == size * N


MANY = TensorInfo("python", (1000, 1000), "float64", weak_dtype="float32")


@pytest.mark.parametrize(
    ("dtype", "bits", "code"),
    [
        (None, 64, "np.array(x).tolist()"),
        ("float32", 32, 'np.array(x, dtype="float32").tolist()'),
        ("int8", 8, f'np.array(x).astype("int8"{COMPARES}).tolist()'),
        (
            "bfloat16",
            16,
            'ferry.to_numpy(np.array(x), dtype="bfloat16").astype(np.float32).tolist()',
        ),
    ],
)
def test_many_numbers_become_lists_in_one_step(dtype, bits, code):
    """No array stands between two long lists, and the plan claims none."""
    plan = ferry.explain(MANY, "python", dtype=dtype)
    assert [step.verb for step in plan.steps] == ["give_back"]
    assert plan.steps[0].code == code
    assert plan.bytes_copied == MANY.size * bits // 8
    assert plan.result.dtype == (dtype or "float64")
    assert not plan.shares_memory


@pytest.mark.parametrize(
    ("numbers", "target", "out", "steps", "size"),
    [
        (MANY, "numpy", {"dtype": "float32"}, ["look", "write"], 4),
        (MANY, "torch", {"dtype": "int8"}, ["look", "write"], 1),
        (MANY, "torch", {"dtype": "complex64", "conjugate": True}, ["read", "write"], 16),
        (MANY, "torch", {"dtype": "float32", "device": "cuda:0"}, ["read", "adopt", "write"], 8),
        (MANY, "tensorflow", {"dtype": "float32", "kind": "Variable"}, ["read", "write"], 8),
        (MANY._replace(shape=(4, 4)), "numpy", {"dtype": "int8"}, ["read", "write"], 2),
    ],
)
def test_many_numbers_are_written_into_host_memory_as_they_are_read(
    numbers, target, out, steps, size
):
    """Into an array or a tensor that is given, without an array between; elsewhere with one of its own dtype."""
    plan = ferry.explain(numbers, target, out=TensorInfo(target, numbers.shape, **out))
    assert [step.verb for step in plan.steps] == steps
    assert plan.bytes_copied == numbers.size * size


@pytest.mark.parametrize(
    ("source", "target", "keywords", "warns"),
    [
        ("tensorflow", "tensorflow", {"dtype": "float64"}, True),
        ("tensorflow", "tensorflow", {"copy": True}, True),
        ("tensorflow", "tensorflow", {}, False),
        ("tensorflow", "tensorflow", {"dtype": "int32", "casting": "unsafe"}, False),
        ("tensorflow", "torch", {"dtype": "float64"}, False),
        ("numpy", "tensorflow", {"dtype": "float64"}, False),
    ],
)
def test_leaving_a_tape_and_coming_back_is_warned_of(source, target, keywords, warns):
    """TensorFlow's tape is in no tensor: what goes over the host and back to TensorFlow is cut off from it."""
    plan = ferry.explain(TensorInfo(source, (4,)), target, **keywords)
    assert any("GradientTape" in warning for warning in plan.warnings) == warns


@pytest.mark.parametrize("is_here", [True, False])
@pytest.mark.parametrize("source", ["numpy", "torch", "jax", "tensorflow"])
def test_H105_float64_cannot_go_to_a_device_that_has_none(source, is_here):
    """It raises with the dtype to ask for, and goes when that is asked for, wherever the plan is made."""
    with mps() if is_here else nullcontext():
        with pytest.raises(ferry.LossyCastError, match="mps does not support float64") as caught:
            ferry.explain(info(source, "float64", "cpu"), "torch", device="mps")
        assert caught.value.hint == 'dtype="fit", or device="cpu"'
        with pytest.raises(ferry.LossyCastError, match="mps does not support float64") as caught:
            ferry.explain(info(source, "float32", "cpu"), "torch", device="mps", dtype="float64")
        assert caught.value.hint == 'dtype="float32", or device="cpu"'
        for dtype in ("float32", "fit"):
            plan = ferry.explain(info(source, "float64", "cpu"), "torch", device="mps", dtype=dtype)
            assert plan.result.dtype == "float32"
            assert verbs(plan).index("cast") < verbs(plan).index("move")
    # Of other kinds that are not here nobody knows.
    assert (
        ferry.explain(info(source, "float64", "cpu"), "torch", device="hpu").result.dtype
        == "float64"
    )


def test_H105_a_tensor_that_a_device_cannot_have_is_not_described():
    """Nor what would stay there."""
    for dtype in ("float64", "complex128"):
        with pytest.raises(ferry.UnsupportedTypeError, match=f"torch has no {dtype} on mps"):
            ferry.explain(info("torch", dtype, "mps"), "numpy")
    with pytest.raises(ferry.LossyCastError, match="mps:0 does not support float64"):
        ferry.explain(info("torch", "float32", "mps:0"), "torch", dtype="float64")
    with pytest.raises(ferry.LossyCastError, match="mps does not support float64"):
        declared.explain(info("numpy", "float64", "cpu"), "torch", device="mps")


def test_pinned_memory_is_not_pinned_again():
    """What is page-locked already goes straight over the bus."""
    staged = ferry.explain(info("numpy", device="cpu"), "torch", device="cuda:1", non_blocking=True)
    assert verbs(staged) == ["adopt", "pin", "move"]
    assert staged.steps[-1].arguments == ("cuda:1", True)
    direct = ferry.explain(
        info(device="cpu", pinned=True), "torch", device="cuda:1", non_blocking=True
    )
    assert verbs(direct) == ["move"]
    blocking = ferry.explain(info("numpy", device="cpu"), "torch", device="cuda:1")
    assert verbs(blocking) == ["adopt", "move"]
    assert blocking.steps[-1].arguments == ("cuda:1", False)


def test_non_blocking_narrows_before_it_pins():
    """Cast, pin, move: the fewest bytes are pinned."""
    plan = ferry.explain(
        info("numpy", "float64", "cpu"), "torch", device="cuda", dtype="float32", non_blocking=True
    )
    assert verbs(plan) == ["cast", "adopt", "pin", "move"]
    assert all(step.bytes == 4 * N for step in plan.steps if step.copies)


def test_sharded_jax_is_gathered():
    """Said in the plan, refused without a copy, and counted once over each path."""
    for device in ("cpu", "cuda", "tpu"):
        sharded = info("jax", device=device, shards=4)
        for target in ("numpy", "torch", "tensorflow"):
            plan = ferry.explain(sharded, target, device="cpu")
            assert "gathered from 4 shards" in plan.reason + " ".join(
                step.why for step in plan.steps
            )
            assert plan.result.shards == 1
            assert not plan.shares_memory
            assert plan.bytes_copied == 4 * N, str(plan)
            with pytest.raises(ferry.CopyRequiredError):
                ferry.explain(sharded, target, device="cpu", copy=False)
        assert ferry.explain(sharded, "jax").steps == ()


def test_a_device_that_the_target_cannot_live_on():
    """The error lists the kinds that it knows."""
    for target, device in (
        ("numpy", "cuda"),
        ("jax", "mps"),
        ("python", "cuda"),
        ("tensorflow", "xpu"),
    ):
        with pytest.raises(
            ferry.DeviceError, match=f"{target} does not support {device}, only cpu"
        ):
            ferry.explain(info("numpy", device="cpu"), target, device=device)


def test_a_device_of_another_name_is_answered_with_the_nearest():
    """One that is a device of another framework's has none that is nearer than the first."""
    words = {"gpux": "cuda", "cudda": "cuda", "tpux": "tpu", "mps": "cpu", "card": "cpu"}
    for device, meant in words.items():
        with pytest.raises(
            ferry.DeviceError, match=f"jax does not support {device}, only cpu"
        ) as caught:
            ferry.explain(info("numpy", device="cpu"), "jax", device=device)
        assert caught.value.hint == f'device="{meant}"'


def test_a_device_that_the_source_cannot_live_on():
    """A description that cannot be is refused with the framework's devices, not planned."""
    for source, device, known in (
        ("numpy", "cuda", "cpu"),
        ("python", "cuda:1", "cpu"),
        ("cupy", "cpu", "cuda"),
    ):
        with pytest.raises(
            ferry.DeviceError, match=f"{source} does not support {device}, only {known}"
        ) as caught:
            ferry.explain(info(source, device=device), "torch")
        assert caught.value.hint == f'x._replace(device="{known}")'


def test_what_is_left_out_of_a_description_is_the_frameworks_own_place():
    """The host, or the first kind of device of a framework that does not support it, as source, out= and like=."""
    for name, backend in registry.backends().items():
        known = backend.capabilities.devices.kinds
        assert TensorInfo(name, (3,)).device == ("cpu" if "cpu" in known else known[0])
    bare = TensorInfo("cupy", (3,))
    assert ferry.explain(bare, "torch").result.device == "cuda"
    assert ferry.explain(TensorInfo("numpy", (3,)), like=bare).result.device == "cuda"
    assert ferry.explain(TensorInfo("torch", (3,)), "cupy", out=bare).result == bare


# -- what a plan claims ---------------------------------------------------------------------------


def every_plan():
    """A few hundred plans over frameworks, devices, layouts and keywords; those that raise are left out."""
    sources = [
        info(framework, dtype, device, **fields)
        for framework in ("numpy", "torch", "tensorflow", "jax", "python")
        for dtype in ("float32", "bfloat16", "int64")
        for device in ("cpu", "cuda:0")
        if device == "cpu" or framework not in ("numpy", "python")
        for fields in (
            {},
            {"shape": (4, 6), "strides": (96, 8)},
            {"shape": (0, 3)},
            {"misalignment": 16},
        )
    ]
    for source, target in itertools.product(
        sources, ("numpy", "torch", "tensorflow", "jax", "python")
    ):
        for keywords in (
            {},
            {"copy": True},
            {"copy": False},
            {"dtype": "float16", "casting": "unsafe"},
        ):
            try:
                yield ferry.explain(source, target, **keywords)
            except ferry.ConversionError as error:
                assert "\n\nHint: " in str(error)  # noqa: PT017 - a refusal is no plan


def test_every_plan_adds_up():
    """bytes_copied is the sum of the steps, steps without a copy write nothing, and sharing plans copy nothing."""
    count = 0
    for plan in every_plan():
        count += 1
        assert plan.bytes_copied == sum(step.bytes for step in plan.steps)
        for step in plan.steps:
            assert "{" not in step.code
            assert step.copies == (step.path != "none")
            assert step.copies or step.bytes == 0
            assert step.path in ("none", "host", "bus", "device")
            assert step.why
            assert step.code
        if plan.shares_memory:
            assert plan.bytes_copied == 0
            assert plan.keeps_dtype
            assert plan.result.device == plan.source.device
        assert plan.reason
        assert plan.result.shape == plan.source.shape
    assert count > 500


@pytest.mark.parametrize("name", ["numpy", "torch", "tensorflow", "jax", "python"])
def test_an_ordinary_call_asks_for_what_its_keywords_say(name):
    """The request that is kept for a call without keywords is the one that its defaults would make."""
    target = registry.backend_named(name)
    spelled_out = make_request(target, None, None, None, None, "detach", ())
    assert Request(target.name) == spelled_out


def test_every_plan_is_plain_data():
    """Picklable, as JSON, as text and as HTML, all with the same numbers."""
    for plan in itertools.islice(every_plan(), 0, None, 7):
        assert pickle.loads(pickle.dumps(plan)) == plan  # noqa: S301 - just pickled here
        told = json.loads(json.dumps(plan.to_dict()))
        assert told["bytes_copied"] == plan.bytes_copied
        assert told["shares_memory"] == plan.shares_memory
        assert [step["code"] for step in told["steps"]] == [step.code for step in plan.steps]
        text = str(plan)
        assert plan.source.dtype in text
        assert plan.reason in text
        parser = HTMLParser()
        parser.feed(plan._repr_html_())
        parser.close()
        assert "<svg" in plan._repr_html_()


def test_every_plan_is_code_that_compiles():
    """What a person would have typed is Python, and ends in y."""
    for plan in every_plan():
        assert "{" not in plan.code
        compile(plan.code, "plan", "exec")
        assert plan.code.splitlines()[-1].startswith(("y", "with", "np.copyto", "out"))


def test_explain_raises_what_the_conversion_would():
    """A refused conversion is a refused plan, with the same class."""
    refused = [
        (info(abstract="meta"), "numpy", {}, ferry.UnsupportedTypeError),
        (
            info("jax", "float64", "cpu"),
            "torch",
            {"copy": False, "dtype": "float32"},
            ferry.CopyRequiredError,
        ),
        (info("numpy", "float64", "cpu"), "jax", {}, ferry.LossyCastError),
        (info(requires_grad=True), "numpy", {"grad": "error"}, ferry.GradientError),
        (info(device="cpu"), "numpy", {"device": "cuda"}, ferry.DeviceError),
        (
            info("numpy", device="cpu"),
            "numpy",
            {"out": TensorInfo("numpy", (3,))},
            ferry.ShapeError,
        ),
        (
            info("numpy", device="cpu"),
            "jax",
            {"out": TensorInfo("jax", (N,))},
            ferry.UnsupportedTypeError,
        ),
        (info("numpy", device="cpu"), "mxnet", {}, ferry.UnknownFrameworkError),
    ]
    for source, target, keywords, error in refused:
        with pytest.raises(error):
            ferry.explain(source, target, **keywords)
    for keywords in ({"casting": "round"}, {"grad": "keep"}):
        with pytest.raises(ValueError, match="must be"):
            ferry.explain(info(), "torch", **keywords)
    for keywords in ({"copy": "yes"}, {"variable": True}):
        with pytest.raises(TypeError):
            ferry.explain(info(device="cpu"), "numpy", **keywords)


# -- descriptions that no framework can have -------------------------------------------------------


@pytest.mark.parametrize(
    ("framework", "fields", "words"),
    [
        ("tensorflow", {"requires_grad": True}, "in no autograd graph"),
        ("torch", {"dtype": "int4"}, "torch has no int4"),
        ("numpy", {"dtype": "complex64", "conjugate": True}, "no lazy bits"),
        ("torch", {"dtype": "int64", "requires_grad": True}, "int64 has no gradients"),
        ("torch", {"dtype": "bool", "requires_grad": True}, "bool has no gradients"),
        ("torch", {"conjugate": True}, "for complex numbers, and float32 is not"),
        (
            "torch",
            {"device": "cuda:0", "pinned": True},
            "in host memory, and this tensor is on cuda:0",
        ),
        (
            "torch",
            {"device": "cuda:0", "memory_map": True},
            "in host memory, and this tensor is on cuda:0",
        ),
        (
            "cupy",
            {"device": "cuda:0", "pinned": True},
            "in host memory, and this tensor is on cuda:0",
        ),
    ],
)
def test_a_description_that_its_framework_cannot_have(framework, fields, words):
    """It is refused with what is wrong with it, and what the hint leaves out makes it one that can be."""
    described = {"framework": framework, "device": "cpu", **fields}
    with pytest.raises(ferry.UnsupportedTypeError, match=words) as caught:
        ferry.explain(info(**described), "torch")
    left = re.search(r"^leave (\w+)= ", caught.value.hint)
    if left:
        del described[left[1]]
        ferry.explain(info(**described), "torch")


@pytest.mark.parametrize(
    "fields",
    [
        {"dtype": "float8_e5m2", "requires_grad": True},
        {"dtype": "complex64", "requires_grad": True, "conjugate": True},
        {"negative": True},
        {"pinned": True},
        {"memory_map": True},
    ],
)
def test_a_description_of_what_there_can_be(fields):
    assert ferry.explain(info("torch", device="cpu", **fields), "numpy").steps


def test_a_dtype_that_a_framework_lacks_for_now_can_be_described():
    """JAX may have 64 bits where x64 is on."""
    assert ferry.explain(info("jax", "float64", "cpu"), "numpy").result.dtype == "float64"


def test_nobody_locks_memory_is_said_once():
    """One framework on both sides is named once."""
    with pytest.raises(ferry.DeviceError, match=r"^numpy cannot lock memory"):
        ferry.explain(info("numpy", device="cpu"), "numpy", pinned=True)


@pytest.mark.parametrize("device", ["cpu:9", "/device:CPU:1"])
def test_devices_of_the_host_are_not_told_apart(device):
    """A second one would be ignored, so it is refused; the first has a name."""
    with pytest.raises(ferry.DeviceError, match="first device"):
        ferry.explain(info("numpy", device="cpu"), "jax", device=device)
    assert ferry.explain(info("numpy", device="cpu"), "jax", device="cpu:0").result.device == "cpu"
