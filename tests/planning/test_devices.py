"""Plans for devices that are not here: DLPack, peer copies, the bus, page-locked memory, ``out=``, shards, maps."""

from __future__ import annotations

import itertools
import re
from math import prod

import pytest
from tests.support import device_facts

import tensorferry as ferry
from tensorferry import TensorInfo
from tensorferry.backends import registry
from tensorferry.core import dtypes
from tensorferry.core.capabilities import DeviceFacts
from tensorferry.core.request import Request
from tensorferry.planning.rules import target_device

ON_CUDA = ("torch", "jax", "tensorflow", "cupy")
PAIRS = [*itertools.permutations(ON_CUDA, 2)]
STRIDED = ("torch", "cupy")
"""Those whose tensors have strides, and can be written."""
LARGE = (1 << 22,)
"""The shape of a float32 of 16 MiB."""


def info(framework, shape=(1000,), dtype="float32", device="cuda:0", **fields):
    return TensorInfo(framework, shape, dtype, device, **fields)


def verbs(plan):
    return [step.verb for step in plan.steps]


def on(plan, path):
    return sum(step.bytes for step in plan.steps if step.path == path)


# -- the same GPU ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_the_same_gpu_moves_no_bytes(source, target):
    """Every pair, on every device: shared on consent, by the consumer asking the producer with its stream."""
    for device in ("cuda:0", "cuda:3"):
        plan = ferry.explain(info(source, device=device), target, copy=False)
        assert plan.shares_memory
        assert plan.bytes_copied == 0
        assert plan.result.device == device
        assert verbs(plan)[-1] == "import_dlpack"
        assert plan.steps[-1].arguments == (source,)
        assert ("wait" in verbs(plan)) == (target == "tensorflow")


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_without_consent_the_sharing_rule_holds_on_a_gpu_too(source, target):
    """What one side could break is copied on the device, before it is exported."""
    plan = ferry.explain(info(source), target)
    writable = {name: registry.backend_named(name).capabilities.memory.writable for name in ON_CUDA}
    assert plan.shares_memory == (writable[source] == writable[target])
    assert on(plan, "device") == (0 if plan.shares_memory else 4000)
    assert on(plan, "bus") == on(plan, "host") == 0


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_cast_on_the_same_gpu_is_the_reason_of_the_copy(source, target):
    """The words are those of the host, with and without copy=False; where a lazy bit comes first, that is it."""
    words = "the dtype changes from float32 to float16"
    plan = ferry.explain(info(source), target, dtype="float16")
    assert (plan.reason, plan.shares_memory) == (words, False)
    with pytest.raises(ferry.CopyRequiredError, match=words):
        ferry.explain(info(source), target, dtype="float16", copy=False)
    there = ferry.explain(info(source), target, dtype="float16", device="cuda:1")
    assert there.reason == "the source is on cuda:0, the result on cuda:1"
    if source == "torch":
        assert (
            "negative bit"
            in ferry.explain(info(source, negative=True), target, dtype="float16").reason
        )


@pytest.mark.parametrize("target", ON_CUDA)
@pytest.mark.parametrize("source", STRIDED)
def test_layouts_that_a_target_cannot_take(source, target):
    """JAX and TensorFlow get compact, aligned memory, copied on the device; torch and CuPy take strides as they are."""
    if source == target:
        return
    for fields in ({"shape": (4, 6), "strides": (4, 16)}, {"misalignment": 16}):
        x = info(source, **fields)
        if target in STRIDED:
            assert ferry.explain(x, target).shares_memory
            continue
        with pytest.raises(ferry.CopyRequiredError, match=r"strides|address % 64"):
            ferry.explain(x, target, copy=False)
        plan = ferry.explain(x, target)
        assert on(plan, "device") == x.nbytes
        assert plan.result.is_compact
        assert plan.result.misalignment == 0


def test_a_copy_inside_a_framework_keeps_the_order_of_the_axes():
    """copy=True on a GPU is the framework's own copy."""
    plan = ferry.explain(info("torch", shape=(4, 6), strides=(4, 16)), "torch", copy=True)
    assert verbs(plan) == ["copy"]
    assert plan.result.strides == (4, 16)


def test_a_negative_stride_is_copied_on_the_device():
    """CuPy has them, PyTorch does not."""
    x = info("cupy", shape=(8,), strides=(-4,))
    with pytest.raises(ferry.CopyRequiredError, match="negative stride"):
        ferry.explain(x, "torch", copy=False)
    assert verbs(ferry.explain(x, "torch")) == ["compact", "import_dlpack"]


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_narrow_floats_on_the_same_gpu(source, target, dtype):
    """They are shared too; float8 to and from TensorFlow, which cannot name it, goes by the host, and says so."""
    plan = ferry.explain(info(source, dtype=dtype), target)
    if "tensorflow" in (source, target) and dtype.startswith("float8"):
        assert "import_dlpack" not in verbs(plan)
        assert "cannot name float8" in plan.reason
        assert on(plan, "bus") == 2000
        with pytest.raises(ferry.CopyRequiredError, match="tensorflow cannot name float8"):
            ferry.explain(info(source, dtype=dtype), target, copy=False)
        return
    assert verbs(plan)[-1] == "import_dlpack"
    assert on(plan, "bus") == on(plan, "host") == 0


# -- two GPUs -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "target"), [*itertools.product(ON_CUDA, repeat=2)])
def test_two_gpus_are_one_copy_and_never_the_host(source, target):
    """The source's own framework moves it, then the target imports it; both devices are named."""
    plan = ferry.explain(info(source), target, device="cuda:1")
    moves = [step for step in plan.steps if step.copies]
    assert [(step.verb, step.backend, step.path, step.bytes) for step in moves] == [
        ("move", source, "bus", 4000)
    ]
    assert plan.steps[-1].verb == ("move" if source == target else "import_dlpack")
    assert plan.result.device == "cuda:1"
    if source != target:
        assert "cuda:0" in plan.reason
        assert "cuda:1" in plan.reason
    with pytest.raises(ferry.CopyRequiredError):
        ferry.explain(info(source), target, device="cuda:1", copy=False)


@pytest.mark.parametrize(("source", "target"), [("torch", "jax"), ("cupy", "torch")])
def test_a_cast_between_two_gpus_crosses_with_fewer_bytes(source, target):
    """Narrower before the copy between them, wider after it."""
    narrow = ferry.explain(info(source), target, device="cuda:1", dtype="float16")
    assert verbs(narrow) == ["cast", "move", "import_dlpack"]
    assert on(narrow, "bus") == 2000
    wide = ferry.explain(info(source, dtype="float16"), target, device="cuda:1", dtype="float32")
    assert verbs(wide) == ["move", "cast", "import_dlpack"]
    assert on(wide, "bus") == 2000


WIDTHS = {"float8_e4m3fn": 1, "float16": 2, "bfloat16": 2, "int32": 4, "float32": 4, "float64": 8}


@pytest.mark.parametrize(
    ("dtype", "becomes", "is_alike"),
    [
        ("float32", "float64", True),
        ("float32", "float16", True),
        ("float8_e4m3fn", "float32", True),
        ("float64", "bfloat16", False),  # rounded in two ways
        ("float16", "int32", False),  # whose values are looked at
    ],
)
@pytest.mark.parametrize(
    ("here", "there"), [("cuda:0", "cuda:1"), ("cpu", "cuda:0"), ("cuda:0", "cpu")]
)
@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_a_cast_inside_a_framework_crosses_with_the_fewest_bytes(
    framework, here, there, dtype, becomes, is_alike
):
    """Narrower before, wider after; what devices do not cast alike is cast on the host, on the way."""
    before, after = (1000 * WIDTHS[each] for each in (dtype, becomes))
    plan = ferry.explain(
        info(framework, dtype=dtype, device=here), framework, device=there, dtype=becomes
    )
    crossings = [step.bytes for step in plan.steps if step.path == "bus"]
    if is_alike:
        assert crossings == [min(before, after)]
        return
    down, up = [before] * (here != "cpu"), [after] * (there != "cpu")
    assert crossings == down + up
    assert [step.path for step in plan.steps if step.verb == "cast"] == ["host"]


@pytest.mark.parametrize("target", ["torch", "jax", "cupy"])
def test_rows_that_share_memory_cross_once(target):
    """To another device: in the same framework, in another one, and into ``out=``."""
    rows = info("torch", shape=(1000, 8), strides=(0, 4))
    plans = [ferry.explain(rows, target, device="cuda:1")]
    if target in STRIDED:
        out = info(target, shape=(1000, 8), device="cuda:1", writable=True)
        plans.append(ferry.explain(rows, target, out=out))
    for plan in plans:
        assert verbs(plan)[:3] == ["narrow", "move", "spread"]
        assert on(plan, "bus") == 32


# -- the bus --------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(10,), LARGE])
@pytest.mark.parametrize("target", ["numpy", "torch", "jax", "tensorflow", "python"])
@pytest.mark.parametrize("source", ON_CUDA)
def test_down_is_one_call_whatever_the_size(source, target, shape):
    """One step over the bus, of the source's own; every byte once."""
    keywords = {} if target in ("numpy", "python") else {"device": "cpu"}
    plan = ferry.explain(info(source, shape), target, **keywords)
    [step] = [step for step in plan.steps if step.path == "bus"]
    assert (step.backend, step.verb) in ((source, "move"), (source, "fetch"))
    assert step.bytes == plan.source.nbytes
    assert plan.result.device == "cpu"


@pytest.mark.parametrize("shape", [(10,), LARGE])
@pytest.mark.parametrize("target", ON_CUDA)
@pytest.mark.parametrize("source", ["numpy", "torch", "jax"])
def test_up_is_one_call_whatever_the_size(source, target, shape):
    """The same in the other direction, of the target's own."""
    plan = ferry.explain(info(source, shape, device="cpu"), target, device="cuda:1")
    [step] = [step for step in plan.steps if step.path == "bus"]
    assert (step.backend, step.verb) in ((target, "move"), (target, "place"))
    assert step.bytes == plan.source.nbytes
    assert plan.result.device == "cuda:1"


@pytest.mark.parametrize(
    "device", ["cuda:0", "xpu:0", "mps:0", "hpu:0", "mtia:0", "privateuseone:3"]
)
def test_any_kind_of_device_is_planned_for(device):
    """PyTorch's tensors stay where they are, go there and come back, whatever kind of device it is."""
    there = info("torch", device=device)
    assert ferry.explain(there, "torch").steps == ()
    assert verbs(ferry.explain(there, "numpy")) == ["move", "export"]
    assert verbs(ferry.explain(info("numpy", device="cpu"), "torch", device=device)) == [
        "adopt",
        "move",
    ]
    assert ferry.explain(there, "jax", dtype="float32").result.device == (
        device if device == "cuda:0" else "cpu"
    )


def test_a_kind_without_page_locked_memory():
    """It is slower, and never refused; a result that is to be page-locked comes there on the host."""
    up = info("numpy", device="cpu")
    assert verbs(ferry.explain(up, "torch", device="mtia", non_blocking=True)) == [
        "adopt",
        "pin",
        "move",
    ]
    with device_facts(hpu=DeviceFacts(1, pins=False)):
        plan = ferry.explain(up, "torch", device="hpu", non_blocking=True)
        assert verbs(plan) == ["adopt", "move"]
        assert plan.steps[-1].arguments == ("hpu", False)
        down = ferry.explain(info("torch", device="hpu:0"), "numpy", pinned=True)
        assert verbs(down) == ["move", "pin", "export"]
        assert down.result.pinned


def test_pinned_sources_go_straight():
    """Page-locked memory is not copied into other page-locked memory."""
    plan = ferry.explain(info("torch", LARGE, device="cpu", pinned=True), "torch", device="cuda")
    assert verbs(plan) == ["move"]


def test_a_graph_is_kept():
    """torch to torch with a gradient keeps torch's own transfer, in both directions."""
    for device, to in (("cuda:0", "cpu"), ("cpu", "cuda")):
        plan = ferry.explain(
            info("torch", LARGE, device=device, requires_grad=True), "torch", device=to
        )
        assert verbs(plan) == ["move"]
        assert plan.keeps_gradient


# -- casts that only the host can do --------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "int8"])
@pytest.mark.parametrize("device", ["cuda:0", "cuda:1", "cpu"])
@pytest.mark.parametrize("framework", ON_CUDA)
def test_they_are_planned_where_they_happen(framework, device, dtype):
    """One crossing each way, the second one of the new dtype's bytes; also where the value stays on its device."""
    if (framework, device) == ("cupy", "cpu"):
        return
    plan = ferry.explain(info(framework), framework, device=device, dtype=dtype)
    bus = [step.bytes for step in plan.steps if step.path == "bus"]
    assert bus == ([4000] if device == "cpu" else [4000, 1000])
    [cast] = [step for step in plan.steps if step.verb == "cast"]
    assert (cast.path, cast.bytes) == ("host", 1000)
    assert plan.result.device == device


def test_a_graph_is_not_left_for_them():
    """The host's cast is one that autograd follows."""
    plan = ferry.explain(info("torch", requires_grad=True), "torch", dtype="float8_e4m3fn")
    assert verbs(plan) == ["move", "cast", "move"]
    assert plan.keeps_gradient


def test_frameworks_share_only_memory_of_a_kind_of_device_that_is_the_same():
    """From one kind to another the way is over the host, in which each is at home."""
    for source, target in (("cuda:0", "tpu:0"), ("xpu:0", "cuda:0")):
        plan = ferry.explain(info("torch", device=source), "jax", device=target)
        assert [step.arguments[0] for step in plan.steps if step.verb == "move"] == ["cpu", target]


# -- memory that elements share -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "strides", "crosses"),
    [
        ((1000, 8), (0, 4), 8),
        ((8, 1000), (4, 0), 8),
        ((90, 10), (4, 4), 99),
        ((4, 6), (24, 4), 24),
        ((4, 6), (48, 8), 24),
    ],
)
def test_as_many_bytes_cross_as_there_are(shape, strides, crosses):
    """Expanded tensors and windows cross at the size of their memory, where that is smaller than the shape's."""
    x = info("torch", shape, strides=strides)
    for target, keywords in (
        ("numpy", {}),
        ("torch", {"device": "cpu"}),
        ("torch", {"device": "cuda:1"}),
    ):
        plan = ferry.explain(x, target, **keywords)
        assert on(plan, "bus") == crosses * 4
        assert plan.result.shape == shape
        assert plan.result.is_compact or strides == (48, 8)
        assert on(ferry.explain(x, target, **keywords, dtype="float16"), "bus") == crosses * 2
    up = info("numpy", shape, strides=strides, device="cpu")
    plan = ferry.explain(up, "torch", device="cuda")
    assert on(plan, "bus") == crosses * 4
    assert (plan.steps[-1].verb == "spread") == (crosses < prod(shape)), (
        "there it has its shape again"
    )
    for dtype, itemsize in (("float16", 2), ("float64", 4), ("float8_e4m3fn", 1)):
        assert (
            on(ferry.explain(up, "torch", device="cuda", dtype=dtype), "bus") == crosses * itemsize
        )


@pytest.mark.parametrize(
    ("device", "to"), [("cuda:0", "cuda:1"), ("cpu", "cuda:1"), ("cuda:0", "cpu")]
)
def test_values_that_are_looked_at_are_where_the_error_says(device, to):
    """Before a cast that compares each value, an expanded tensor has its own axes, and windows their own shape."""
    found = {}
    for name, shape, strides in (("expanded", (1000, 8), (0, 4)), ("windows", (90, 10), (4, 4))):
        x = info("torch", shape, strides=strides, device=device)
        plan = ferry.explain(x, "torch", device=to, dtype="int8")
        found[name] = verbs(plan)
        assert "cast" in found[name]
    assert found["expanded"][0] == "narrow"
    assert not {"span", "spread"} & {*found["windows"][found["windows"].index("cast") :]}


def test_what_is_in_a_graph_crosses_as_one_conversion():
    """The gradient of each element arrives."""
    plan = ferry.explain(
        info("torch", (1000, 8), strides=(0, 4), requires_grad=True), "torch", device="cpu"
    )
    assert verbs(plan) == ["cross"]
    assert on(plan, "bus") == 32
    assert plan.keeps_gradient


# -- out= on a device -----------------------------------------------------------------------------


def into(framework, device="cuda:0", **fields):
    return {"out": info(framework, device=device, **fields)}


@pytest.mark.parametrize(("source", "target"), [*itertools.product(ON_CUDA, STRIDED)])
def test_out_on_the_same_device_crosses_no_bus(source, target):
    """Written there, by the framework that owns it, from any framework's tensor."""
    plan = ferry.explain(info(source), target, **into(target))
    assert on(plan, "bus") == on(plan, "host") == 0
    assert verbs(plan)[-1] == "write"
    assert not plan.shares_memory


@pytest.mark.parametrize("target", STRIDED)
def test_out_on_a_peer_is_one_crossing(target):
    """No way over the host."""
    plan = ferry.explain(info(target), target, **into(target, "cuda:1"))
    assert [(step.verb, step.path) for step in plan.steps] == [("write", "bus")]


def test_out_on_a_device_from_the_host_is_as_other_transfers():
    """Through page-locked memory if it is to go on beside the host's work, and wider after the bus."""
    plan = ferry.explain(info("numpy", device="cpu"), "torch", **into("torch"), non_blocking=True)
    assert verbs(plan) == ["adopt", "pin", "write"]
    assert plan.steps[-1].path == "bus"
    wider = ferry.explain(info("numpy", device="cpu"), "torch", **into("torch", dtype="float64"))
    assert verbs(wider) == ["adopt", "move", "cast", "write"]
    assert on(wider, "bus") == 4000
    narrower = ferry.explain(info("torch", device="cpu"), "torch", **into("torch", dtype="float16"))
    assert on(narrower, "bus") == 2000


@pytest.mark.parametrize("pinned", [False, True])
def test_out_on_the_host_is_written_by_the_bus(pinned):
    """PyTorch copies from a device straight to where its tensor lies."""
    for target in ("torch", "numpy"):
        plan = ferry.explain(info("torch"), target, **into(target, "cpu", pinned=pinned))
        assert [(step.verb, step.path, step.bytes) for step in plan.steps] == [
            ("write", "bus", 4000)
        ]
    assert plan.code.endswith("torch.from_numpy(out).copy_(y)\ny = out")
    reversed_ = ferry.explain(info("torch"), "numpy", **into("numpy", "cpu", strides=(-4,)))
    assert verbs(reversed_) == ["move", "export", "write"]


def test_the_copy_call_never_casts():
    """Each step over the bus writes as many bytes as its dtype has, whichever dtypes are asked for."""
    for source, target, dtype in itertools.product(
        STRIDED, ("numpy", "jax"), ("float16", "float64", "bfloat16")
    ):
        x = info(source, LARGE)
        if target == "jax" and dtype == "float64":
            continue
        down = ferry.explain(x, target, device="cpu", dtype=dtype)
        narrow = min(dtypes.find(dtype).itemsize, 4)
        # CuPy has no cast to bfloat16 of its own, so all of float32 crosses.
        crossing = 4 if (source, dtype) == ("cupy", "bfloat16") else narrow
        assert on(down, "bus") == crossing * LARGE[0]
        up = ferry.explain(info("numpy", LARGE, device="cpu"), source, device="cuda", dtype=dtype)
        # Nor has it one from float32 to float64 that keeps subnormal numbers, so all of float64
        # crosses.
        crossing = 8 if (source, dtype) == ("cupy", "float64") else narrow
        assert on(up, "bus") == crossing * LARGE[0]
        for plan in (down, up):
            # CuPy copies bfloat16 as integers, so its code has the name in a view.
            codes = {
                step.verb: step.code.replace(".view(ml_dtypes.bfloat16)", "") for step in plan.steps
            }
            assert all(dtype not in codes[step.verb] for step in plan.steps if step.path == "bus")


@pytest.mark.parametrize("target", ON_CUDA)
@pytest.mark.parametrize("shape", [(10,), LARGE])
@pytest.mark.parametrize("writable", [False, True])
def test_no_device_reads_a_memory_map(target, shape, writable):
    """The first copy of mapped memory is one on the host, whatever its size."""
    mapped = info(
        "numpy", shape, device="cpu", memory_map=True, writable=writable, mutable=writable
    )
    plan = ferry.explain(mapped, target, device="cuda")
    copies = [step for step in plan.steps if step.copies]
    assert copies[0].path == "host"
    assert copies[0].verb == "copy"
    if target in STRIDED:
        assert "memory map" in copies[0].why
    assert not plan.result.memory_map
    assert on(plan, "bus") == mapped.nbytes


# -- pinned results -------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["pinned", "non_blocking"])
def test_pinned_is_one_crossing(option):
    """The bus writes where the result lies; so it does for what is to go on beside the host's work."""
    for target in ("numpy", "torch"):
        plan = ferry.explain(info("torch"), target, device="cpu", **{option: True})
        assert on(plan, "bus") == plan.source.nbytes
        assert on(plan, "host") == 0
        assert plan.result.pinned
        assert verbs(plan)[0] == "land"
        assert plan.steps[0].arguments == (option == "pinned",)


def test_pinned_after_a_cast_on_the_host():
    """What is widened on the host ends in page-locked memory as well."""
    plan = ferry.explain(info("torch", dtype="float16"), "numpy", dtype="float32", pinned=True)
    assert plan.result.pinned
    assert verbs(plan)[-4:] == ["cast", "adopt", "pin", "export"]


@pytest.mark.parametrize("source", ["numpy", "torch", "jax", "python"])
def test_pinned_from_the_host(source):
    """A copy that PyTorch locks, which is what is given; a source that is page-locked already is shared."""
    plan = ferry.explain(info(source, device="cpu"), "torch", pinned=True)
    assert plan.result.pinned
    assert verbs(plan)[-1] == "pin"
    with pytest.raises(ferry.CopyRequiredError):
        ferry.explain(info(source, device="cpu"), "torch", pinned=True, copy=False)
    for target in ("numpy", "torch"):
        assert ferry.explain(
            info("torch", device="cpu", pinned=True), target, pinned=True, copy=False
        ).shares_memory


def test_pinned_keeps_a_graph():
    """torch to torch: page-locked, and still in the graph."""
    for device in ("cpu", "cuda:0"):
        plan = ferry.explain(
            info("torch", device=device, requires_grad=True), "torch", device="cpu", pinned=True
        )
        assert plan.keeps_gradient
        assert plan.result.pinned


@pytest.mark.parametrize(
    ("source", "target", "keywords"),
    [
        ("numpy", "numpy", {}),
        ("jax", "numpy", {}),
        ("tensorflow", "numpy", {}),
        ("numpy", "torch", {"device": "cuda"}),
        ("torch", "torch", {}),
    ],
)
def test_pinned_that_cannot_be(source, target, keywords):
    """Nobody can lock memory, or the result is not on the host."""
    device = "cpu" if source == "numpy" else "cuda:0"
    with pytest.raises(ferry.DeviceError, match=r"can(not)? lock memory|the result is on"):
        ferry.explain(info(source, device=device), target, pinned=True, **keywords)
    with pytest.raises(TypeError, match="no option pinned="):
        ferry.explain(info(source, device=device), "jax", pinned=True)


# -- shards ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["numpy", "torch", "tensorflow", "cupy"])
def test_shards_on_gpus(target):
    """Gathered on the host, or on the one device that is asked for by a copy between devices; refused by name."""
    sharded = info("jax", device="cuda", shards=4)
    with pytest.raises(ferry.CopyRequiredError, match="its 4 shards have to be gathered"):
        ferry.explain(sharded, target, copy=False, device=None if target == "numpy" else "cuda:1")
    if target != "numpy":
        there = ferry.explain(sharded, target, device="cuda:1")
        assert [step.verb for step in there.steps if step.copies] == ["move"]
        assert "gathered from 4 shards" in there.reason
        assert there.result.shards == 1
    if target != "cupy":
        here = ferry.explain(sharded, target)
        assert here.result.device == "cpu"
        assert on(here, "bus") == 4000
        assert "gathered from 4 shards" in here.reason


# -- CuPy -----------------------------------------------------------------------------------------


def test_cupy_lives_on_gpus_only():
    """A host source goes to the current GPU, and the host is refused."""
    for source in ("numpy", "torch", "python"):
        plan = ferry.explain(info(source, dtype="float64", device="cpu"), "cupy")
        assert plan.result.device == "cuda"
        assert plan.result.writable
        assert verbs(plan)[-1] == "place"
        with pytest.raises(
            ferry.DeviceError, match="cupy does not support cpu, only cuda"
        ) as caught:
            ferry.explain(info(source, device="cpu"), "cupy", device="cpu")
        assert caught.value.hint == 'device="cuda"'
    assert ferry.explain(info("cupy"), "cupy").steps == ()
    assert verbs(ferry.explain(info("cupy"), "cupy", copy=True)) == ["copy"]


def test_dtypes_of_cupy():
    """It keeps bfloat16 and float8 as they are; what is narrower than a byte it lacks, and the error says why."""
    for dtype in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "complex64", "bool"):
        assert ferry.explain(info("numpy", dtype=dtype, device="cpu"), "cupy").keeps_dtype
    with pytest.raises(
        ferry.LossyCastError, match="cupy has no int4: its elements are narrower than a byte"
    ):
        ferry.explain(info("numpy", dtype="int4", device="cpu"), "cupy")


def test_cupy_casts_only_what_it_can_be_relied_on_for():
    """bfloat16 is cast on the host, by the casts that give every target the same bits."""
    plan = ferry.explain(info("cupy", dtype="bfloat16"), "numpy", dtype="float32")
    assert [(step.verb, step.path) for step in plan.steps if step.copies] == [
        ("fetch", "bus"),
        ("cast", "host"),
    ]
    plan = ferry.explain(info("numpy", dtype="bfloat16", device="cpu"), "cupy", dtype="float32")
    assert [(step.verb, step.path) for step in plan.steps if step.copies] == [
        ("cast", "host"),
        ("place", "bus"),
    ]


def test_out_on_a_gpu():
    """An array of CuPy's can be written into, from any framework."""
    for source in ("numpy", "torch", "jax"):
        out = info("cupy")
        plan = ferry.explain(info(source, device="cpu"), "cupy", out=out)
        assert verbs(plan)[-1] == "write"
        assert plan.steps[-1].path == "bus"


# -- what every plan claims -----------------------------------------------------------------------


def every_plan():
    sources = [
        info(framework, shape, dtype, device)
        for framework in (*ON_CUDA, "numpy")
        for device in ("cpu", "cuda:0")
        for shape in ((10,), LARGE, (0, 3))
        for dtype in ("float32", "bfloat16", "int32")
        if (framework == "cupy") <= (device != "cpu")
        and (framework == "numpy") <= (device == "cpu")
    ]
    for source, target in itertools.product(sources, (*ON_CUDA, "numpy", "python")):
        for keywords in (
            {},
            {"device": "cuda:1"},
            {"device": "cpu"},
            {"dtype": "float16", "casting": "unsafe"},
        ):
            try:
                yield ferry.explain(source, target, **keywords)
            except ferry.DeviceError:
                assert "device" in keywords


def test_a_variable_is_made_of_a_tensor_of_ones_own_on_a_gpu():
    """The last step is not left out where the rest is the framework's own affair."""
    for keywords in ({}, {"dtype": "float16"}, {"copy": True}):
        info = ferry.TensorInfo("tensorflow", (2,), device="cuda:0")
        plan = ferry.explain(info, "tensorflow", variable=True, **keywords)
        assert (plan.steps[-1].verb, str(plan.result.kind), plan.shares_memory) == (
            "variable",
            "Variable",
            False,
        )
        assert sum(step.copies for step in plan.steps) == 1


def test_every_plan_adds_up_and_is_code():
    """Bytes per path, a reason for each step, and code that compiles, for every pair, size and device."""
    count = 0
    for plan in every_plan():
        count += 1
        assert plan.bytes_copied == sum(on(plan, path) for path in ("host", "bus", "device"))
        assert plan.reason
        assert all(step.why and step.copies == (step.path != "none") for step in plan.steps)
        assert "{" not in plan.code
        compile(plan.code, "plan", "exec")
        used = re.search(r"\by\b(?! =)", plan.code)
        assert used is None or re.search(r"\by = ", plan.code[: used.start()]), plan.code
        crosses = plan.source.device != plan.result.device and plan.source.size > 0
        assert (on(plan, "bus") > 0) >= crosses
    assert count > 500


# -- devices that are not here --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("present", "sees", "hint"),
    [
        (("cpu",), "sees cpu", 'device="cpu"'),
        (("cuda:0", "cuda:1"), "sees cuda:0, cuda:1", 'device="cuda:0"'),
        ((), "sees no device", None),
    ],
)
def test_a_device_that_is_not_here_is_refused_where_it_is_asked_for(present, sees, hint):
    """With what there is instead; a name without a number is any of its kind."""
    torch = registry.known()["torch"]
    wanted = Request("torch", device="cuda:7", present=present)
    with pytest.raises(ferry.DeviceError, match=f"There is no cuda:7 here: torch {sees}") as caught:
        target_device(info("numpy", device="cpu"), wanted, torch, "float32")
    assert caught.value.hint == hint
    if "cuda:0" in present:
        wanted = wanted._replace(device="cuda")
        assert target_device(info("numpy", device="cpu"), wanted, torch, "float32") == "cuda"


def test_a_device_that_nobody_asks_for_need_not_be_seen():
    """Memory that is given is on a device that there is, whatever the framework lists."""
    torch = registry.known()["torch"]
    into = Request("torch", out=info("torch", device="cuda:7"), present=("cpu",))
    assert target_device(info("numpy", device="cpu"), into, torch, "float32") == "cuda:7"


@pytest.mark.parametrize("target", ["torch", "cupy"])
def test_memory_of_the_host_is_not_shared_on_a_device(target):
    """JAX may keep an array of a device in page-locked memory: it goes over the host, as the plan says."""
    offloaded = TensorInfo("jax", (3,), "float32", device="cuda:0", pinned=True)
    plan = ferry.explain(offloaded, target)
    assert [step.path for step in plan.steps if step.copies] == ["bus", "bus"]
    assert "memory of the host" in plan.reason
    assert not plan.result.pinned
    with pytest.raises(ferry.CopyRequiredError):
        ferry.explain(offloaded, target, copy=False)
    assert ferry.explain(offloaded._replace(pinned=False), target).bytes_copied == 12
