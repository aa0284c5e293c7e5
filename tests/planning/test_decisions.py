"""Decisions of the planner one by one: each by a tensor that is described, and by what the plan says."""

from __future__ import annotations

import re

import pytest

import tensorferry as ferry
from tensorferry import TensorInfo
from tensorferry.backends import registry
from tensorferry.backends.numpy.declared import DECLARED as NUMPY
from tensorferry.backends.pandas.declared import DECLARED as PANDAS
from tensorferry.backends.torch.declared import DECLARED as TORCH
from tensorferry.core.capabilities import Capabilities, Devices, Dtypes, Gradients, Memory, Options
from tensorferry.core.declaration import Declared, Placement
from tensorferry.core.labels import Labels, Wanted
from tensorferry.core.request import LEAVE, Request
from tensorferry.planning.planner import make_plan
from tensorferry.planning.rules import layout_obstacles


def verbs(plan):
    return [(step.backend, step.verb) for step in plan.steps]


@pytest.mark.parametrize("kind", ["rows", "stack"])
def test_tensors_that_are_stacked_by_their_framework_become_an_array_to_be_cast(kind):
    """What is read is the framework's own tensor: host memory casts an array, so it is exported first."""
    plan = ferry.explain(TensorInfo("torch", (2, 3), kind=kind), "torch", dtype="bfloat16")
    assert verbs(plan) == [
        ("torch", "stack"),
        ("torch", "export"),
        ("numpy", "cast"),
        ("torch", "adopt"),
    ]
    read = ferry.explain(TensorInfo("torch", (2, 3), kind=kind), "numpy")
    assert verbs(read) == [("torch", "stack"), ("torch", "export")]
    numbers = ferry.explain(TensorInfo("python", (2, 3), "float64"), "torch")
    assert verbs(numbers) == [("python", "read"), ("torch", "adopt")]


@pytest.mark.parametrize(
    ("weak", "target", "expected", "check"),
    [
        ("int8", "numpy", "int64", None),
        ("int64", "numpy", "int64", None),
        ("uint64", "numpy", "uint64", None),
        ("int8", "torch", "int64", None),
        ("uint64", "torch", "int64", "value"),
        ("int8", "tensorflow", "int32", "value"),
        ("int32", "tensorflow", "int32", "value"),
        ("uint32", "tensorflow", "int64", ""),
        ("uint64", "tensorflow", "int64", "value"),
        ("int8", "jax", "int32", "value"),
        ("int64", "jax", "int32", "value"),
        ("uint64", "jax", "int32", "value"),
    ],
)
def test_default_of_python_integers_is_what_the_targets_constructor_gives(
    weak, target, expected, check
):
    """The first of the target's dtypes for numbers that holds them; of none, its widest, and each is compared."""
    numbers = TensorInfo("python", (3,), "uint64" if weak == "uint64" else "int64", weak_dtype=weak)
    plan = ferry.explain(numbers, target, dtype="default")
    assert plan.result.dtype == expected
    (read,) = [step for step in plan.steps if step.verb == "read"]
    assert read.arguments[:2] == (() if check is None else (expected, check))


def test_python_integers_by_default_of_other_words():
    """Without a word, what no integer of the target holds is refused; what fits best is taken for "fit"."""
    large = TensorInfo("python", (3,), "uint64", weak_dtype="uint64")
    with pytest.raises(ferry.LossyCastError, match="need uint64; jax gives integers int32 here"):
        ferry.explain(large, "jax")
    assert ferry.explain(large, "torch", dtype="fit").result.dtype == "uint64"
    assert ferry.explain(large, "jax", dtype="fit").result.dtype == "uint32"


def declared(name="mine", memory=None, **groups):
    """What some framework declares: float32 and int32, writable, with a verb and a line of code for everything."""
    held = frozenset({"float32", "int32"})
    numbers = {"bool": ("int32",), "int": ("int32",), "float": ("float32",), "complex": ()}
    capabilities = Capabilities(Dtypes(held, numbers), memory or Memory(writable=True), **groups)
    return Declared(name, capabilities, lambda call: f"{call.verb}({call.x})", {})


def planned(info, source, target, **asked):
    return make_plan(info, Request(target.name, **asked), source, target, NUMPY)


def test_a_variable_has_newly_allocated_memory():
    """It is copied once: when it is adopted or in the end, wherever what comes in lies."""
    for at, steps in (
        (0, ["export", "adopt", "copy", "variable"]),
        (16, ["export", "copy", "adopt", "variable"]),
    ):
        plan = ferry.explain(
            TensorInfo("tensorflow", (4,), misalignment=at), "tensorflow", variable=True
        )
        assert [step.verb for step in plan.steps] == steps
        assert (plan.result.misalignment, str(plan.result.kind), plan.shares_memory) == (
            0,
            "Variable",
            False,
        )
    assert ferry.explain(TensorInfo("jax", (4,)), "tensorflow", variable=True).reason == (
        "variable=True has memory of its own"
    )
    with pytest.raises(ferry.CopyRequiredError, match="variable=True has memory of its own"):
        ferry.explain(TensorInfo("tensorflow", (4,)), "tensorflow", variable=True, copy=False)


def test_the_copy_for_a_variable_is_aligned_where_the_target_adopts_any_address():
    """What a target adopted as it lay is not where the variable's own memory is."""
    mine = declared(options=Options(finishers=frozenset({"variable"})))
    plan = planned(TensorInfo("numpy", (4,), misalignment=4), NUMPY, mine, options=("variable",))
    assert verbs(plan) == [("mine", "adopt"), ("mine", "copy"), ("mine", "variable")]
    assert plan.result.misalignment == 0
    shared = planned(TensorInfo("numpy", (4,), misalignment=4), NUMPY, mine)
    assert shared.shares_memory
    assert shared.result.misalignment == 4


def test_the_copy_for_a_variable_can_be_written_where_the_target_can():
    """Whoever permits no writes to the source has no say about the copy."""
    mine = declared(
        memory=Memory(writable=True, read_only=True),
        options=Options(finishers=frozenset({"variable"})),
    )
    plan = planned(TensorInfo("numpy", (4,), writable=False), NUMPY, mine, options=("variable",))
    assert verbs(plan) == [
        ("mine", "adopt"),
        ("mine", "read_only"),
        ("mine", "copy"),
        ("mine", "variable"),
    ]
    assert plan.result.writable
    assert plan.result.mutable


def test_a_scalar_of_arrays_is_read_into_one():
    """It is of the target's framework already, and no array of it."""
    plan = ferry.explain(TensorInfo("numpy", (), kind="scalar"), "numpy")
    assert verbs(plan) == [("numpy", "read")]
    assert not plan.shares_memory


@pytest.mark.parametrize(
    ("fields", "steps"),
    [
        ({}, ["place"]),
        ({"strides": (4, 8)}, ["place"]),
        ({"strides": (16, 4)}, ["copy", "place"]),
        ({"swapped": True}, ["copy", "place"]),
    ],
)
def test_the_bus_takes_packed_memory_to_a_target_without_a_host(fields, steps):
    """In whatever order of the axes; what lies apart, or in the other order of bytes, is packed first."""
    plan = ferry.explain(TensorInfo("numpy", (2, 3), **fields), "cupy")
    assert [step.verb for step in plan.steps] == steps
    assert plan.result.is_packed


def test_page_locked_memory_is_not_refused_where_it_is_there_already():
    """NumPy cannot lock memory; an array over memory that is locked is what was asked for."""
    assert ferry.explain(TensorInfo("numpy", (4,), pinned=True), "numpy", pinned=True).shares_memory
    with pytest.raises(ferry.DeviceError, match="numpy cannot lock memory"):
        ferry.explain(TensorInfo("numpy", (4,)), "numpy", pinned=True)


def test_more_axes_than_an_array_has():
    """The hint leaves axes of length 1 out where that is enough."""
    with pytest.raises(ferry.ShapeError) as caught:
        ferry.explain(TensorInfo("torch", (3, *(1,) * 70, 5)), "numpy")
    assert caught.value.hint.startswith("x.reshape((3, 5))")
    with pytest.raises(ferry.ShapeError) as caught:
        ferry.explain(TensorInfo("torch", (2,) * 66), "numpy")
    assert caught.value.hint == "x.reshape((-1,))"


def test_a_framework_casts_on_its_device_what_all_cast_alike():
    """Narrower before the bus; a cast that devices do differently is done on the host, behind it."""
    alike = ferry.explain(
        TensorInfo("torch", (4,), "float64", "cuda"), "torch", device="cpu", dtype="float32"
    )
    assert [step.verb for step in alike.steps] == ["cast", "move"]
    apart = ferry.explain(
        TensorInfo("torch", (4,), "float64", "cuda"), "torch", device="cpu", dtype="float16"
    )
    assert [step.verb for step in apart.steps] == ["move", "cast"]
    up = ferry.explain(
        TensorInfo("torch", (4,), "float64"), "torch", device="cuda", dtype="float16"
    )
    assert [step.verb for step in up.steps] == ["cast", "move"]


def test_what_is_an_array_already_does_not_go_through_dlpack():
    """A target that takes another's tensor over DLPack is given the array where the source has no export."""
    mine = declared(
        memory=Memory(writable=False, host_array=True),
        devices=Devices(exports_dlpack=True),
        gradients=Gradients(graph=True),
    )
    taker = declared("taker", Memory(writable=False), devices=Devices(prefers_dlpack=True))
    info = TensorInfo("numpy", (4,), writable=False, requires_grad=True)
    assert [step.code for step in planned(info, mine, taker).steps] == [
        "detach(x)",
        "adopt(x)",
    ]


@pytest.mark.parametrize(("shards", "steps"), [(1, ["copy", "place_over"]), (2, ["place_over"])])
def test_a_layout_over_devices_may_keep_what_lies_there(shards, steps):
    """One whole replica on the host could be the source's own memory, so it is copied; parts of it are new."""
    mine = declared(memory=Memory(writable=False))
    info = TensorInfo("jax", (4,))._replace(framework="mine")
    plan = planned(info, mine, mine, placement=Placement("cpu", shards, object()))
    assert [step.verb for step in plan.steps] == steps
    assert (plan.result.shards, plan.shares_memory) == (shards, False)


def test_what_has_no_memory_stays_inside_unless_it_is_to_leave_its_graph():
    """A meta tensor is what it is in its own framework; a snapshot of it has nothing to copy."""
    meta = TensorInfo("torch", (4,), abstract="meta")
    assert planned(meta, TORCH, TORCH).steps == ()
    with pytest.raises(
        ferry.UnsupportedTypeError, match="a meta tensor has a shape and a dtype, but no memory"
    ):
        planned(meta, TORCH, TORCH, grad=LEAVE)


@pytest.mark.parametrize("name", ["torch", "jax", "tensorflow"])
def test_where_nothing_lies_nothing_is_in_the_way(name):
    """An empty tensor is adopted whatever its strides and address are; the order of its bytes counts."""
    target = registry.known()[name]
    odd = {"strides": (-12, 6), "misalignment": 3}
    assert layout_obstacles(TensorInfo("numpy", (0, 3), **odd), target) == []
    assert layout_obstacles(TensorInfo("numpy", (0, 3), **odd, swapped=True), target) == [
        "its bytes are in the other order"
    ]
    assert len(layout_obstacles(TensorInfo("numpy", (2, 3), **odd), target)) > 1


def test_only_a_table_of_several_columns_has_memory_for_each_column():
    """One column of a table shares an array's memory; a table of two axes cannot."""
    assert ferry.explain(TensorInfo("numpy", (3,)), "polars", copy=False).shares_memory
    with pytest.raises(ferry.CopyRequiredError, match="each column has its own memory"):
        ferry.explain(TensorInfo("numpy", (3, 2)), "polars", copy=False)


def test_what_is_stored_in_another_form_is_not_shared():
    """``copy=False`` is refused before anything is copied, unless there is nothing to copy."""
    for name, dtype in (("arrow", "bool"), ("polars", "bool"), ("jax", "int4")):
        why = "bit-packed" if dtype == "bool" else f"{name} stores {dtype} in another form"
        with pytest.raises(ferry.CopyRequiredError, match=why):
            ferry.explain(TensorInfo(name, (4,), dtype), "numpy", copy=False)
    assert ferry.explain(TensorInfo("jax", (0,), "int4"), "numpy", copy=False).bytes_copied == 0


def test_an_operation_on_what_is_traced_stays_inside():
    """There is no memory that an array could be made over."""
    for name in ("jax", "tensorflow"):
        info = TensorInfo(name, (4,), abstract="traced")
        assert verbs(ferry.explain(info, name, copy=True)) == [(name, "copy")]
        assert verbs(ferry.explain(info, name, dtype="float16")) == [(name, "cast")]


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_a_layout_that_is_there_already_is_not_made_again(device):
    """If nothing was done before; else it is lost, and made in the end.

    It crosses a bus if its device is elsewhere.
    """
    mine = declared(memory=Memory(writable=False))
    info = TensorInfo("jax", (4,))._replace(framework="mine")
    there = Placement(device, 1, object(), lies=True)
    assert planned(info, mine, mine, placement=there).steps == ()
    cast = planned(info, mine, mine, placement=there, dtype="int32").steps[-1]
    assert (cast.verb, cast.path) == ("place_over", "host" if device == "cpu" else "bus")
    away = planned(info, mine, mine, placement=there._replace(lies=False)).steps[-1]
    assert (away.verb, away.path) == ("place_over", "host" if device == "cpu" else "bus")


def test_the_stride_of_an_axis_of_one_element_is_in_nobodys_way():
    """It is never taken."""
    torch = registry.known()["torch"]
    assert layout_obstacles(TensorInfo("numpy", (1, 3), strides=(-12, 4)), torch) == []
    assert layout_obstacles(TensorInfo("numpy", (1, 3), strides=(6, 4)), torch) == []
    assert layout_obstacles(TensorInfo("numpy", (2, 3), strides=(-12, 4)), torch) == [
        "negative stride on axis 0"
    ]


@pytest.mark.parametrize(("alignment", "arguments"), [(0, ()), (4, ()), (64, ("int32", ""))])
def test_numbers_are_read_into_aligned_memory_where_the_target_needs_it(alignment, arguments):
    """An array of their own dtype is aligned to its elements in any case."""
    mine = declared(memory=Memory(writable=True, alignment=alignment))
    numbers = TensorInfo("python", (3,), "int32", weak_dtype="int32", kind="numbers")
    plan = planned(numbers, registry.known()["python"], mine)
    assert plan.steps[0].verb == "read"
    assert plan.steps[0].arguments[:2] == arguments


def test_a_plan_says_whether_shared_memory_can_be_written():
    """In its summary; and how to get a result that can, where the target has one."""
    how = "read-only; writable with copy=True"
    for name, target, mode in (
        ("jax", "numpy", how),
        ("torch", "numpy", "writable"),
        ("jax", "tensorflow", "read-only"),
        ("jax", "arrow", "read-only"),
        ("arrow", "pandas", how),
    ):
        plan = ferry.explain(TensorInfo(name, (4,)), target)
        assert f"shares memory ({mode}), copies nothing" in str(plan)
        assert f"shares memory ({mode}), copies nothing" in repr(plan)
        assert f"shares memory ({mode}), copies nothing" in plan._repr_html_()


@pytest.mark.parametrize("target", ["numpy", "pandas"])
def test_a_copy_can_be_written_as_the_plan_says(target):
    """The result itself is written, in the place where the shared one refuses."""
    jax = pytest.importorskip("jax")
    pytest.importorskip("pandas")
    x = jax.numpy.arange(64.0)
    assert "writable with copy=True" in str(ferry.explain(x, target))
    shared, copied = ferry.convert(x, target), ferry.convert(x, target, copy=True)
    with pytest.raises(ValueError, match="read-only"):
        shared[0] = 5
    copied[0] = 5
    assert copied[0] == 5
    assert x[0] == 0


@pytest.mark.parametrize(("target", "device"), [("numpy", "cpu"), ("cupy", "cuda:0")])
def test_code_names_what_it_writes(target, device):
    """What is written is used twice, so it has a name before."""
    plan = ferry.explain(
        TensorInfo("jax", (4,)), target, out=TensorInfo(target, (4,), "float64", device=device)
    )
    lines = plan.code.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("y = "))
    assert not any(re.search(r"\by\b", line) for line in lines[:first]), plan.code


def test_code_names_what_is_used_twice():
    """It would be computed twice."""
    twice = declared().capabilities
    mine = Declared("mine", twice, lambda call: f"{call.verb}({call.x}, {call.x})", {})
    plan = planned(TensorInfo("numpy", (4,), swapped=True), NUMPY, mine)
    assert len(plan.steps) == 2
    first, second = plan.code.splitlines()[-2:]
    assert first.startswith("y = ")
    assert second == "y = adopt(y, y)"


def test_a_plan_warns_of_a_file_only_where_writes_reach_it():
    """What is shared with memory that is mapped, and can be written; a copy is nobody's file."""
    mapped = TensorInfo("numpy", (3,), memory_map=True)
    warning = "writes reach the file that is mapped, unless it is mapped copy-on-write"
    assert ferry.explain(mapped, "torch").warnings == (warning,)
    assert ferry.explain(mapped, "torch", copy=True).warnings == ()
    assert ferry.explain(mapped._replace(writable=False), "numpy").warnings == ()


def test_numbers_that_are_described_are_read_as_the_widest_of_their_kind():
    """The dtype of a description by hand is what the numbers need, as if they had been looked at."""
    for needed, read in (("int8", "int64"), ("uint64", "uint64"), ("float16", "float64")):
        source = ferry.explain(TensorInfo("python", (3,), needed), "numpy").source
        assert (source.dtype, source.weak_dtype) == (read, needed)
    typed = ferry.explain(TensorInfo("python", (3,), "int8", kind="array"), "numpy").source
    assert (typed.dtype, typed.weak_dtype) == ("int8", None)


@pytest.mark.parametrize(
    ("keywords", "reason"),
    [
        ({"dtype": "float64"}, "the dtype changes from float32 to float64"),
        ({"device": "cuda"}, "the source is on cpu, the result on cuda"),
        (
            {"dtype": "float64", "device": "cuda"},
            "the dtype changes from float32 to float64",
        ),
    ],
)
def test_a_copy_inside_one_framework_says_what_changes(keywords, reason):
    """A dtype or a device."""
    plan = ferry.explain(TensorInfo("torch", (3,), "float32"), "torch", **keywords)
    assert plan.reason == reason
    assert not plan.shares_memory


def test_what_no_dtype_of_the_target_fits_is_refused():
    """Nothing of its kind, and nothing wider, is there: complex numbers have no room in real ones."""
    numbers = TensorInfo("numpy", (2,), "complex64")
    for dtype in ("fit", "default"):
        with pytest.raises(ferry.LossyCastError, match="mine has no complex64"):
            planned(numbers, NUMPY, declared(), dtype=dtype)


def test_numbers_that_are_looked_at_part_by_part_are_no_array():
    """What fills `out` directly is of no dtype before it; what was read, of its own."""
    out = TensorInfo("numpy", (100_000,), "float32")
    many = TensorInfo("python", (100_000,), "float64")
    plan = ferry.explain(many, "numpy", out=out)
    assert verbs(plan) == [("python", "look"), ("numpy", "write")]
    assert plan.written is None
    array = ferry.explain(
        TensorInfo("torch", (3,), "float64"), "numpy", out=out._replace(shape=(3,))
    )
    assert array.written == "float64"


def test_labels_have_to_be_as_many_as_rows():
    """As many are taken, and one more is refused, before anything is converted."""
    given = [Wanted(given=Labels("pandas", ["a"] * count, None)) for count in (2, 3)]
    numbers = TensorInfo("numpy", (2, 3), "float32")
    plan = planned(numbers, NUMPY, PANDAS, labels=given[0])
    assert plan.steps[-1].why == "labelled by index="
    with pytest.raises(ferry.ShapeError, match="index= has 3 labels, and the result has 2 rows"):
        planned(numbers, NUMPY, PANDAS, labels=given[1])
