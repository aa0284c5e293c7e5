"""Tensors of one signature are converted alike: what decides is in it, and what is not in it decides nothing."""

from __future__ import annotations

import contextlib
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import simulated
from tests.backends.plugins.packages import BACKEND
from tests.support import TARGETS, counted, examples, lives, memory_at

import tensorferry as ferry
from tensorferry import testing
from tensorferry.backends import registry
from tensorferry.core.info import MANY
from tensorferry.core.layout import compact_strides, packed_strides
from tensorferry.core.request import Request
from tensorferry.core.signature import signature_of
from tensorferry.execution import recipes, run
from tensorferry.execution.recipes import conversion_as
from tensorferry.host import memory
from tensorferry.testing import strategies as these
from tensorferry.testing.bits import FORMATS

pytestmark = pytest.mark.fast_paths

EVERYWHERE = (*TARGETS, "python")


# -- what is read off a tensor says no less than its description -----------------------------------


def told(x):
    """The signature of what a tensor is described as, or that it is refused."""
    try:
        return signature_of(ferry.describe(x))
    except ferry.ConversionError as error:
        return type(error), error.message


def assert_alike_if_of_one_signature(name, tensors):
    """Tensors that have the same read off them are described as having the same signature."""
    read = registry.ready(name).quick.signature
    seen = {}
    for x in tensors:
        signature = read(x)
        if signature is not None:
            first = seen.setdefault(signature, x)
            assert told(x) == told(first), signature
    return seen


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=examples(75))
@given(data=st.data())
def test_what_is_read_off_a_tensor_tells_what_describing_it_does(name, data):
    """Tensors of one dtype in any layouts: those of one signature have one signature when they are described."""
    dtype = data.draw(these.dtypes(name))
    assert_alike_if_of_one_signature(
        name, data.draw(st.lists(these.tensors(name, dtype), min_size=2, max_size=10))
    )


@pytest.mark.quick
@pytest.mark.parametrize("name", TARGETS)
def test_it_does_so_for_everything_that_a_framework_has(name):
    """Every layout and dtype that a witness makes, all beside each other: graphs, lazy bits, maps, subclasses."""
    witness = testing.witness_for(name)
    samples = (
        witness.make(layout, dtype)
        for layout in witness.layouts
        for dtype in FORMATS
        if witness.knows(dtype)
    )
    tensors = [sample.x for sample in samples if sample is not None]
    seen = assert_alike_if_of_one_signature(name, tensors)
    assert 10 < len(seen) < len(tensors)


@pytest.mark.quick
def test_it_does_so_for_arrays_that_may_be_written_or_not():
    """Through this array, through another over its memory, or through none; of memory of one's own and of another's."""
    arrays = []
    for own in (True, False):
        for writable, mutable in ((True, True), (False, True), (False, False)):
            array = memory_at((4,)) if not own else np.zeros(4, np.float32)
            if not writable:
                whole = array
                while whole is not None and not (mutable and whole is not array):
                    whole.flags.writeable = False
                    whole = whole.base
            arrays += [array, array[...], array.reshape(2, 2)]
    by_facts = {}
    read = registry.ready("numpy").quick.signature
    for array in arrays:
        # Of what decides, the address aside, which is the allocator's choice.
        signature, address = read(array), memory.address(array) & 63
        by_facts.setdefault(tuple(each for each in signature if each != address), []).append(array)
    for alike in by_facts.values():
        without_address = [ferry.describe(array)._replace(misalignment=0) for array in alike]
        assert len(set(map(signature_of, without_address))) == 1


@pytest.mark.quick
@pytest.mark.parametrize("source", TARGETS)
@pytest.mark.parametrize("target", EVERYWHERE)
@pytest.mark.parametrize("copy", [None, False])
def test_what_is_read_for_one_target_decides_the_steps_to_it(source, target, copy):
    """Some targets need less of a signature, such as no address: tensors with the same take the same steps."""
    conversion, witness, steps = conversion_as(target, copy=copy), testing.witness_for(source), {}
    samples = (
        witness.make(layout, dtype)
        for layout in witness.layouts
        for dtype in FORMATS
        if witness.knows(dtype)
    )
    tensors = [sample.x for sample in samples if sample is not None]
    if source == "numpy":
        tensors += [
            memory_at((4,), dtype, offset).copy("K")
            for dtype in ("float64", "int8")
            for offset in (0, 8, 16)
        ]
        tensors += [
            memory_at((40,), "uint8", offset)[:32].view("float64") for offset in (0, 1, 4, 8)
        ]
        tensors += [np.empty(shape) for shape in ((3,), (500,), (2, 3), (0,), (70, 3))]
    for x in tensors:
        signature = registry.ready(source).quick.signature_reader(
            type(x), conversion.target, conversion.request
        )(x)
        if signature is not None:
            plan = planned(x, target, copy)
            assert steps.setdefault(signature, plan) == plan, signature
    assert len(steps) > 5


def planned(x, target, copy):
    """The steps of a conversion, or that it is refused."""
    try:
        return [step[:3] for step in ferry.explain(x, target, copy=copy).steps]
    except ferry.ConversionError as error:
        return type(error)


# -- what is not in a signature decides nothing ----------------------------------------------------

LENGTHS = st.sampled_from([0, 1, 1, 2, 3, 5])
REFUSED = (ferry.ConversionError, TypeError)


def layouts(shape, itemsize, draw):
    """Strides for a shape, in one of the ways in which memory lies."""
    order = draw(st.permutations(range(len(shape))))
    outermost_first = [len(order) - order.index(axis) for axis in range(len(shape))]
    packed = packed_strides(shape, outermost_first, itemsize)
    way = draw(
        st.sampled_from(
            ["compact", "packed", "gaps", "negative", "zero", "part of an element", "windows"]
        )
    )
    if way == "compact":
        # The stride of an axis of length 1 means nothing.
        odd = draw(st.integers(-3, 9)) * itemsize
        steps = compact_strides(shape, itemsize)
        return tuple(
            odd if length == 1 else step for length, step in zip(shape, steps, strict=True)
        )
    if way == "packed" or not shape:
        return packed
    axis = draw(st.integers(0, len(shape) - 1))
    change = {
        "gaps": lambda step: 2 * step,
        "negative": lambda step: -step,
        "zero": lambda _: 0,
        "part of an element": lambda step: step + 1,
        "windows": lambda _: itemsize,
    }[way]
    if way == "gaps":
        return tuple(map(change, packed))
    return tuple(change(step) if at == axis else step for at, step in enumerate(packed))


FACTS = {
    "numpy": {
        "misalignment": st.sampled_from([0, 0, 1, 4, 16]),
        "writable": st.booleans(),
        "mutable": st.booleans(),
        "swapped": st.sampled_from([False, False, True]),
        "memory_map": st.sampled_from([False, False, True]),
        "kind": st.sampled_from(["", "", "", "memmap", "scalar"]),
    },
    "torch": {
        "misalignment": st.sampled_from([0, 0, 1, 4, 16]),
        "requires_grad": st.booleans(),
        "conjugate": st.sampled_from([False, False, True]),
        "negative": st.sampled_from([False, False, True]),
        "pinned": st.sampled_from([False, False, True]),
        "kind": st.sampled_from(["", "", "Parameter", "Subclass"]),
    },
    "tensorflow": {
        "misalignment": st.sampled_from([0, 4]),
        "kind": st.sampled_from(["", "", "Variable"]),
    },
    "jax": {"misalignment": st.sampled_from([0, 4])},
    "python": {
        "weak_dtype": st.sampled_from(["int8", "int32", "int64", "uint64", "float64"]),
        # What numbers are described as; a description by hand that names no kind is planned and
        # kept nowhere.
        "kind": st.sampled_from(["numbers", "numbers", "objects", "stack"]),
    },
}
"""What a tensor of each framework can be besides its dtype, shape and strides."""


@st.composite
def crowds(draw, shapes=None):
    """Descriptions of tensors that differ in shape, strides and one fact at most, and lie in all the ways there are."""
    name = draw(st.sampled_from(EVERYWHERE))
    facts = {fact: draw(values) for fact, values in FACTS[name].items()}
    changed = draw(st.sampled_from(sorted(facts.keys() - {"weak_dtype"})))
    others = {**facts, changed: draw(FACTS[name][changed])}
    dtype = draw(
        st.sampled_from(
            ["float32", "float32", "float64", "bfloat16", "int64", "int8", "bool", "complex64"]
        )
    )
    if name == "python":
        dtype = {"float64": "float64", "uint64": "uint64"}.get(facts["weak_dtype"], "int64")
    itemsize = FORMATS[dtype].itemsize
    if shapes is None:
        rank = draw(st.integers(0, 3))
        shapes = draw(st.lists(st.tuples(*[LENGTHS] * rank), min_size=6, max_size=6))
        if name == "python" and rank:
            # So many numbers that the memory of an array of them counts, and one less.
            shapes += [(MANY + more, *shape[1:]) for shape in shapes for more in (0, 1)]
    strided = name in ("numpy", "torch")
    found = []
    for shape in shapes:
        strides = layouts(shape, itemsize, draw) if strided else None
        found.append(
            ferry.TensorInfo(
                name, shape, dtype, strides=strides, **draw(st.sampled_from([facts, others]))
            )
        )
    return found


REQUESTS = st.fixed_dictionaries(
    {},
    optional={
        "copy": st.sampled_from([None, True, False]),
        "dtype": st.sampled_from(
            ["fit", "default", "float32", "float64", "float16", "int32", "uint8", "complex128"]
        ),
        "casting": st.sampled_from(["safe", "same_value", "same_kind", "unsafe"]),
        "device": st.just("cpu"),
        "grad": st.sampled_from(["detach", "error"]),
    },
)


def claims(info, conversion, out=None):
    """The steps of a plan and what it claims of the result, or the class of the error that there is instead."""
    try:
        found = run.prepare_described(info, conversion, out).recipe
    except REFUSED as error:
        return type(error)
    plan, result = found.plan, found.plan.result
    steps = [step[:3] for step in plan.steps]
    kept = "framework dtype device writable mutable requires_grad conjugate negative kind abstract pinned shards"
    return steps, plan.shares_memory, found.copies, [getattr(result, fact) for fact in kept.split()]


@pytest.mark.parametrize("target", EVERYWHERE)
@settings(max_examples=examples(200))
@given(data=st.data())
def test_tensors_of_one_signature_are_converted_by_the_same_steps(target, data):
    """Whatever is asked, and whatever their shapes and strides: the same steps, the same claims, the same errors."""
    options = {"variable": st.booleans()} if target == "tensorflow" else {}
    asked = {**data.draw(REQUESTS), **{name: data.draw(values) for name, values in options.items()}}
    conversion = conversion_as(target, **asked)
    crowd = {}
    for info in data.draw(crowds()):
        first = crowd.setdefault(signature_of(info), info)
        assert claims(info, conversion) == claims(first, conversion), (first, info, asked)


@pytest.mark.parametrize("target", ["numpy", "torch"])
@settings(max_examples=examples(150))
@given(data=st.data())
def test_so_are_those_that_are_written_into_tensors_of_one_signature(target, data):
    """`out=` counts by its signature too, where it has the shape that it needs."""
    asked = {key: value for key, value in data.draw(REQUESTS).items() if key != "device"}
    conversion, crowd = conversion_as(target, **asked), {}
    sources = data.draw(crowds())
    facts = {fact: data.draw(values) for fact, values in FACTS[target].items()}
    dtype = data.draw(st.sampled_from(["float32", "float64", "int8"]))
    for info in sources:
        strides = layouts(info.shape, FORMATS[dtype].itemsize, data.draw)
        out = ferry.TensorInfo(target, info.shape, dtype, strides=strides, **facts)
        first = crowd.setdefault((signature_of(info), signature_of(out)), (info, out))
        assert claims(info, conversion, out) == claims(first[0], conversion, first[1]), (
            first,
            info,
            out,
            asked,
        )


def test_the_crowds_have_tensors_of_one_signature_and_of_many():
    """Nothing is shown by tensors of which no two are alike, nor if all are."""
    alike, found = set(), set()

    @settings(max_examples=100)
    @given(crowd=crowds())
    def look(crowd):
        seen = [signature_of(info) for info in crowd]
        found.update(seen)
        shapes = {}
        for signature, info in zip(seen, crowd, strict=True):
            shapes.setdefault(signature, set()).add((info.shape, info.strides))
        alike.update(signature for signature, each in shapes.items() if len(each) > 1)

    look()
    assert {fact for signature in alike for fact in signature if isinstance(fact, str)} >= {
        "compact",
        "spread",
        "empty",
    }
    assert len(found) > 2 * len(alike) > 40


# -- what has changed since is not forgotten -------------------------------------------------------

PRELUDE = """
import warnings
warnings.simplefilter("ignore")
import numpy as np, jax, jax.experimental, torch, tensorflow as tf, tensorferry as ferry
import jax.numpy as jnp
from tests.support import memory_at
from tensorferry import testing
from tensorferry.backends import registry

with (jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64)(True):
    wide = [jnp.arange(3), jnp.arange(3.0), jnp.float64(1)]
graph = torch.ones(3, requires_grad=True)
floats = memory_at((3,), "float64")
sources = [floats, memory_at((3,), "float32"), memory_at((3,), "int64"), memory_at((3,), "int8", 1), graph, graph * 2,
           torch.nn.Parameter(torch.ones(2)), torch.ones(3, dtype=torch.float64), torch.arange(3), tf.ones(3),
           tf.constant([1, 2]), jnp.ones(3), [1.5, 2], [1, 2], memory_at((2, 3), "float64").T, *wide]
asked = [{}, {"copy": True}, {"copy": False}, {"dtype": "default"}, {"dtype": "fit"}, {"dtype": "float64"},
         {"dtype": "float16"}, {"dtype": "int32", "casting": "unsafe"}, {"device": "cpu"}]
targets = ["numpy", "torch", "jax", "tensorflow", "python"]

def seen(result):
    if isinstance(result, (list, int, float)):
        return repr(result)
    info = ferry.describe(result)
    content = testing.witness_for(info.framework).content(result)
    return type(result).__name__, info.dtype, info.shape, info.writable, info.requires_grad, content

def outcomes():
    found = []
    for number, x in enumerate(sources):
        for to in targets:
            for keywords in asked:
                calls = [lambda: ferry.convert(x, to, **keywords)]
                if not isinstance(x, list):
                    calls.append(lambda: ferry.convert_tree([x, 1], to, **keywords)[0])
                for call in calls:
                    try:
                        result = call()
                        outcome = seen(result), not isinstance(x, list) and ferry.shares_memory(x, result)
                    except ferry.ConversionError as error:
                        outcome = type(error).__name__, str(error)
                    found.append((number, to, keywords, outcome))
    return found
"""
ENDING = """
print(*outcomes(), sep="\\n")
"""
WAYS = {
    "x64": (
        "jax.config.update('jax_enable_x64', True)",
        "jax.config.update('jax_enable_x64', False)",
    ),
    "default dtype": (
        "torch.set_default_dtype(torch.float64)",
        "torch.set_default_dtype(torch.float32)",
    ),
    "narrow default dtype": (
        "torch.set_default_dtype(torch.bfloat16)",
        "torch.set_default_dtype(torch.float32)",
    ),
    "grad mode": ("torch.set_grad_enabled(False)", "torch.set_grad_enabled(True)"),
}
SLABS = """
import sys, types
slabs = sys.modules["slabs"] = types.ModuleType("slabs")
slabs.Tensor = type("Tensor", (), {"__init__": lambda self, array: vars(self).update(array=array)})
"""
SLABS += BACKEND.format(kind="Slabs", module="slabs", read_only=False)
SLABS += """
class Compact(Slabs):
    capabilities = Slabs.capabilities._replace(
        dtypes=Slabs.capabilities.dtypes._replace(held=frozenset({"float32", "float16"})),
        memory=Memory(writable=False, strides="compact", alignment=64),
    )

def seen(result):
    return result.array.dtype, result.array.shape, result.array.flags.c_contiguous, result.array.tobytes()

single = memory_at((4, 6), "float32")
read_only = single[:2]
read_only.flags.writeable = False
sources = [single, single[1:], single.T, single[:, ::2], read_only, torch.ones(3), tf.ones(3), jnp.ones(3), [1.5, 2]]
targets = ["slabs"]
"""


@cache
def printed(*parts):
    return lives(PRELUDE + "".join(f"\n{part}\n" for part in parts) + ENDING).splitlines()


@pytest.mark.parametrize("back", [False, True], ids=["there", "back"])
@pytest.mark.parametrize("way", WAYS)
def test_a_change_of_the_environment_counts_at_once(way, back):
    """After it the same calls give what they give in a process that has known nothing else."""
    before, after = WAYS[way][::-1] if not back else WAYS[way]
    changed = printed(before, "first = outcomes()", after)
    assert changed == printed(after)
    assert changed != printed(before)


def test_a_backend_that_is_registered_anew_counts_at_once():
    """What was worked out for the one of its name before is forgotten."""
    before, after = "registry.register(Slabs())", "registry.register(Compact())"
    changed = printed(SLABS, before, "first = outcomes()", after)
    assert changed == printed(SLABS, after)
    assert changed != printed(SLABS, before)


def test_devices_that_come_and_go_count_at_once(monkeypatch):
    """A device that is gone is refused by `convert` as by `explain`, and is used again when it is back."""
    with simulated.installed() as backend:
        array, there = np.ones(3), backend.devices()
        for devices in (there, ("cpu",), there):
            monkeypatch.setattr(type(backend), "devices", lambda _, devices=devices: devices)
            for call in (ferry.convert, ferry.explain, ferry.convert_tree):
                known = contextlib.nullcontext()
                with (
                    known
                    if devices is there
                    else pytest.raises(ferry.DeviceError, match="no sim:0 here")
                ):
                    call(array, "simulated", device="sim:0")


def test_recipes_that_are_used_are_kept():
    """However many others have been made since, those that have not been used go."""
    conversion = recipes.Conversion(registry.ready("numpy"), Request("numpy"))
    for number in range(3 * recipes.MOST):
        conversion.keep(number, number)
        if conversion.find("used") is None:
            assert number == 0
            conversion.keep("used", "recipe")
    assert conversion.find("used") == "recipe"
    assert conversion.find(3 * recipes.MOST - 1) is not None
    assert conversion.find(1) is None


def test_what_is_followed_is_looked_at_each_time():
    """`like=` on the host's second device is refused, whatever of its signature has been followed before."""
    lives(
        """
        import jax, jax.numpy as jnp, numpy as np, pytest, tensorferry as ferry
        jax.config.update("jax_num_cpu_devices", 2)
        first, second = (jax.device_put(jnp.ones(4), device) for device in jax.devices())
        x = np.ones(3, np.float32)
        for _ in range(2):
            assert ferry.convert(x, like=first).shape == (3,)
            assert ferry.convert(x, like=second, device="cpu").shape == (3,)
            with pytest.raises(ferry.DeviceError, match="cpu:1"):
                ferry.convert(x, like=second)
        """
    )


# -- many at once ----------------------------------------------------------------------------------


def many_signatures():
    """Arrays of more signatures than a conversion keeps recipes, each with the numbers that it holds."""
    found = []
    dtypes = [
        "float32",
        "float64",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "float16",
        ">f4",
        ">i4",
        ">f8",
    ]
    for dtype, rank, offset in product(dtypes, range(1, 5), range(0, 64, 8)):
        array = counted((3,) + (2,) * (rank - 1), dtype, offset)
        frozen = array[...]
        frozen.flags.writeable = False
        found += [array, frozen, array[::-1]]
    return found


@pytest.mark.quick
def test_threads_that_convert_everything_at_once_get_the_right_results():
    """Sixteen of them, each in an order of its own; and the recipes that are kept remain bounded."""
    arrays = many_signatures()
    read = registry.ready("numpy").quick.signature
    assert len({read(array) for array in arrays}) > 4 * recipes.MOST
    expected = [array.astype("float64") for array in arrays]
    recipes.forget_recipes()
    threads = 16
    start = threading.Barrier(threads)

    def work(number):
        order = np.random.default_rng(number).permutation(len(arrays))
        start.wait()
        for index in order:
            result = ferry.to_torch(arrays[index], dtype="float64")
            assert np.array_equal(result.numpy(), expected[index])
            again = ferry.to_numpy(arrays[index], copy=True)
            assert np.array_equal(again, expected[index])
            assert again.flags.writeable
            assert again.dtype.isnative

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))
    for conversion in (conversion_as("torch", dtype="float64"), conversion_as("numpy", copy=True)):
        # Each thread may have put in one more before it saw that there were enough, or have begun
        # anew after another.
        assert 0 < conversion.kept < 2 * (recipes.MOST + threads)


# -- what has no ordinary memory -------------------------------------------------------------------


def freed(look):
    import torch

    x = torch.arange(5000.0)
    views = [x, x[16:], x[16:].reshape(-1, 2), x[::2]]
    x.untyped_storage().resize_(0)
    for view in views:
        look(view)


def faked(look):
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    real = torch.ones(3)
    with FakeTensorMode():
        look(real)
        look(torch.ones(3))


def functorch(look):
    import torch

    def inside(x):
        look(x)
        return x.sum()

    torch.func.vmap(inside)(torch.ones(3, 2))
    torch.func.grad(inside)(torch.ones(3))
    torch.func.functionalize(inside)(torch.ones(3))


def dual(look):
    import torch

    with warnings.catch_warnings(), torch.autograd.forward_ad.dual_level():
        warnings.simplefilter("ignore")  # what PyTorch itself warns of when the first is made
        look(torch.autograd.forward_ad.make_dual(torch.ones(3), torch.ones(3)))


def lazy_bits(look):
    import torch

    x = torch.tensor([1 + 2j, 3 - 1j])
    look(x.conj())
    look(x.conj().imag)
    look(torch._neg_view(torch.ones(2)))


def nested(look):
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that nested tensors are a prototype
        rows = [torch.ones(2), torch.ones(3)]
        look(torch.nested.nested_tensor(rows))
        look(torch.nested.nested_tensor(rows, layout=torch.jagged))


def not_dense(look):
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that these are in beta, or deprecated
        x = torch.eye(3)
        for found in (
            x.to_sparse(),
            x.to_sparse_csr(),
            x.to_mkldnn(),
            torch._efficientzerotensor(3),
        ):
            look(found)
        look(torch.quantize_per_tensor(torch.ones(3), 0.5, 0, torch.qint8))
        look(torch.ones(3, device="meta"))


def empty(look):
    import jax.numpy as jnp
    import tensorflow as tf
    import torch

    for make in (np.zeros, torch.zeros, tf.zeros, jnp.zeros):
        for shape in ((0,), (0, 3), (3, 0)):
            look(make(shape))


def axes(look):
    import tensorflow as tf
    import torch

    look(torch.ones((1,) * 65))
    look(torch.ones((1,) * 63 + (2, 2)).transpose(-1, -2))
    look(tf.ones((1,) * 65))


def traced_by_torch(look):
    import torch

    def inside(x):
        look(x)
        look(x.T)
        return x

    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # that what leaves PyTorch is a constant, and that this is deprecated
        torch.jit.trace(inside, torch.ones(2, 3), check_trace=False)


def in_jax(look):
    import jax
    import jax.numpy as jnp

    deleted, concrete = jnp.ones(3), jnp.ones(3)
    deleted.delete()
    look(deleted)
    look(jax.random.key(0))

    def inside(x):
        look(x)
        look(concrete)
        return x

    jax.jit(inside)(jnp.ones(3))


def in_tensorflow(look):
    import tensorflow as tf

    eager, variable = tf.ones(3), tf.Variable([1.0, 2.0])
    look(variable)
    look(tf.constant(["text"]))

    @tf.function(autograph=False)
    def inside(x):
        look(x)
        look(eager)
        look(variable)
        return x

    inside(tf.ones(3))


def in_numpy(look):
    look(np.ma.array([1.0, 2.0], mask=[0, 1]))
    look(np.ma.array([1.0, 2.0]))
    look(np.array([1, 2.5], object))
    look(np.zeros(0, object))
    look(np.zeros(3, "f4,i4"))
    look(np.rec.array([(1, 2)], dtype="f4,i4"))
    look(np.zeros(3, "V4"))
    look(np.array(["text"]))
    look(np.zeros(2, "M8[s]"))
    look(np.zeros(2, np.longdouble))
    look(np.float32(3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that matrices are no longer recommended
        look(np.asmatrix([[1.0, 2.0]]))


ODD = [
    *(freed, faked, functorch, dual, lazy_bits, nested, not_dense, empty, axes, traced_by_torch),
    *(in_jax, in_tensorflow, in_numpy),
]
KEYWORDS = [
    {"copy": True},
    {"dtype": "float16"},
    {"device": "cpu"},
    {"dtype": "float32", "casting": "unsafe"},
]


def ordinary():
    """Tensors of the dtypes and numbers of axes of the odd ones, in each framework."""
    import jax.numpy as jnp
    import tensorflow as tf
    import torch

    found = []
    for rank, dtype in product((0, 1, 2, 3), ("float32", "float64", "int8")):
        array = memory_at((2,) * rank, dtype)
        found += [array, torch.from_numpy(array).clone(), tf.constant(array)]
        if dtype != "float64":
            found.append(jnp.asarray(array))
    whole = torch.ones(4, 6)
    many = torch.ones((1,) * 65)
    return [
        *found,
        whole.T,
        whole[:, ::2],
        torch.ones(0),
        torch.ones(2, dtype=torch.complex64),
        many,
    ]


def outcome(call):
    try:
        result = call()
    except ferry.ConversionError as error:
        return type(error), str(error)
    try:
        info = ferry.describe(result)
    except ferry.ConversionError:
        return repr(result)  # a tree of its own
    facts = (
        info.framework,
        info.dtype,
        info.shape,
        info.writable,
        info.requires_grad,
        info.kind,
        info.abstract,
    )
    if info.abstract is not None:
        return facts
    try:
        return facts, testing.witness_for(info.framework).content(result)
    except Exception as error:  # noqa: BLE001 - its own framework does not look into it
        return facts, type(error)


def calls_with(x):
    for target, keywords in product(EVERYWHERE, KEYWORDS):
        yield lambda to=target, asked=keywords: ferry.convert(x, to, **asked)
        yield lambda to=target, asked=keywords: ferry.convert_tree([x], to, **asked)[0]


def outcomes(x):
    return [outcome(call) for call in calls_with(x)]


@pytest.mark.parametrize("make", ODD, ids=lambda make: make.__name__.replace("_", " "))
def test_what_is_no_ordinary_tensor_takes_no_ordinary_tensors_recipe(make):
    """After ordinary ones of its dtype and its axes it comes, or is refused, as if there had been none."""
    after, alone = [], []

    def look_alone(x):
        recipes.forget_recipes()
        alone.append(outcomes(x))

    for call in (call for each in ordinary() for call in calls_with(each)):
        with contextlib.suppress(ferry.ConversionError):
            call()
    make(lambda x: after.append(outcomes(x)))
    make(look_alone)
    assert after == alone != []


@pytest.mark.parametrize(
    "make", [freed, faked, functorch, dual, lazy_bits, nested, not_dense], ids=lambda m: m.__name__
)
def test_what_pytorch_keeps_elsewhere_has_no_signature(make):
    """It has to be described: no attribute that is read off it says what it is."""
    read = registry.ready("torch").quick.signature

    def look(x):
        with contextlib.suppress(RuntimeError, NotImplementedError):
            assert read(x) is None

    make(look)
