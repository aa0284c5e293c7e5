"""What is said of a conversion is true and can be typed: a plan's code, an error and its hint."""

from __future__ import annotations

import ctypes
from inspect import signature

import numpy as np
import pytest
from tests.support import frozen, lives, memory_at

import tensorferry as ferry
from tensorferry import TensorInfo
from tensorferry.core.dtype_names import name_of
from tensorferry.host.numpy_dtypes import numpy_dtype

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
keras = pytest.importorskip("keras")
tf = pytest.importorskip("tensorflow")
torch = pytest.importorskip("torch")


def pasted(plan, x):
    names = {"x": x}
    exec(plan.code, names)  # noqa: S102 - that is what the code is for
    return names["y"]


# -- the code -------------------------------------------------------------------------------------


class Exporter:
    """Another library's tensor, which has only DLPack."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **keywords):
        return self.tensor.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


@pytest.mark.parametrize("dtype", ["float32", "int64", "bfloat16"])
@pytest.mark.parametrize("target", ["numpy", "torch"])
def test_code_of_what_has_only_dlpack(target, dtype):
    """np.asarray would make an object array of it."""
    x = Exporter(torch.tensor([1, 2], dtype=getattr(torch, dtype)))
    result, expected = pasted(ferry.explain(x, target), x), ferry.convert(x, target)
    assert (type(result), result.dtype) == (type(expected), expected.dtype)
    # PyTorch 2.6 exports a capsule that cannot say whether it may be written, and its own tensors
    # are all writable.
    says = "max_version" in signature(torch.Tensor.__dlpack__).parameters
    assert ferry.shares_memory(result, x.tensor) is (target == "numpy" or says)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int4", "float32"])
@pytest.mark.parametrize(
    "value", [[1.0, 2.0], 1.0, np.empty((0, 2))], ids=["vector", "scalar", "empty"]
)
@pytest.mark.parametrize("variable", [False, True], ids=["tensor", "variable"])
def test_code_gives_no_writable_memory_of_a_constant(dtype, value, variable):
    """What the plan calls shared and read-only is that when it is pasted, also where NumPy's own would be writable."""
    x = ferry.to_tensorflow(value, dtype=dtype, casting="unsafe", variable=variable)
    plan = ferry.explain(x, "numpy")
    assert plan.result.writable is False
    result = pasted(plan, x)
    assert not result.flags.writeable
    assert ferry.shares_memory(result, x) == plan.shares_memory == (result.size > 0)


@pytest.mark.parametrize("dtype", ["float32", "bool", "bfloat16", "int16"])
@pytest.mark.parametrize("shape", [(64,), ()])
@pytest.mark.parametrize("source", ["jax", "torch", "numpy"])
def test_code_shares_into_tensorflow(source, shape, dtype):
    """tf.constant copies: where memory is shared, the code goes over DLPack."""
    x = memory_at(shape, numpy_dtype(dtype))
    if source != "numpy":
        x = ferry.convert(x, source, copy=False)
    plan = ferry.explain(x, "tensorflow", copy=False)
    assert "tf.constant" not in plan.code
    assert ferry.shares_memory(pasted(plan, x), x)


@pytest.mark.parametrize(
    "x",
    [frozen(np.ones(4, "f4")), memory_at((4,), numpy_dtype("float8_e5m2"))],
    ids=["read-only", "float8"],
)
def test_code_says_where_it_copies_what_is_shared(x):
    """Where no public call shares, a remark says so."""
    plan = ferry.explain(x, "tensorflow", copy=False)
    assert plan.shares_memory
    remark, line = plan.code.splitlines()[-2:]
    assert remark.startswith("#")
    assert "tf.constant copies it" in remark
    assert line == "y = tf.constant(x)"
    assert not ferry.shares_memory(pasted(plan, x), x)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "int4", "uint4", "float32"])
@pytest.mark.parametrize("source", ["tensorflow", "jax", "numpy"])
def test_code_of_a_variable_pastes(source, dtype):
    """Also for dtypes of which TensorFlow has no operation that copies."""
    x = ferry.convert(frozen(np.ones(2, numpy_dtype(dtype))), source)
    result = pasted(ferry.explain(x, "tensorflow", variable=True), x)
    assert isinstance(result, tf.Variable)
    assert result.dtype.name == dtype
    assert ferry.to_list(result) == [1, 1]


# -- the same object shares memory with itself -----------------------------------------------------


def test_an_object_shares_memory_with_itself():
    """Also one whose address nobody tells; without elements there is nothing to share."""
    for x in (
        ferry.to_jax([1, 2], dtype="int4"),
        np.ones(3),
        ferry.to_jax(np.empty((0, 2), "f4")),
        [1, 2],
    ):
        shares = ferry.explain(x, ferry.describe(x).framework).shares_memory
        assert ferry.shares_memory(x, x) == shares == (not isinstance(x, list) and x.size > 0)


def test_an_array_on_several_devices_shares_memory_with_itself():
    """It has several addresses, and is one object."""
    told = lives(
        """
        import jax, numpy, tensorferry as ferry
        from jax.sharding import Mesh, NamedSharding, PartitionSpec
        x = jax.device_put(numpy.arange(4.0), NamedSharding(Mesh(jax.devices(), "i"), PartitionSpec("i")))
        print(ferry.describe(x).shards, ferry.shares_memory(x, x), ferry.explain(x, "jax").shares_memory)
        """,
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
    )
    assert told.split() == ["2", "True", "True"]


# -- descriptions and keywords that make no sense --------------------------------------------------


@pytest.mark.parametrize("shards", [0, -2])
def test_a_tensor_lies_in_one_shard_at_least(shards):
    """It is said where it is written."""
    with pytest.raises(ValueError, match="1 shard at least"):
        TensorInfo("jax", (2,), shards=shards)


def test_a_weak_dtype_is_a_dtype():
    """An unknown one is refused where it is written, another's name for one is understood."""
    with pytest.raises(ferry.UnsupportedTypeError, match="'foo' is not a dtype") as caught:
        TensorInfo("python", (2,), "float64", weak_dtype="foo")
    assert caught.value.hint
    assert TensorInfo("python", (2,), "float64", weak_dtype="half").weak_dtype == "float16"


@pytest.mark.parametrize(
    ("framework", "fields"),
    [
        ("numpy", {"shards": 2}),
        ("torch", {"shards": 2}),
        ("tensorflow", {"shards": 2}),
        ("torch", {"swapped": True}),
        ("tensorflow", {"swapped": True}),
        ("jax", {"swapped": True}),
    ],
)
def test_what_a_framework_cannot_have_is_refused(framework, fields):
    """Before anything is planned with it, with what to leave out."""
    with pytest.raises(ferry.UnsupportedTypeError, match=framework) as caught:
        ferry.explain(TensorInfo(framework, (2,), **fields), "numpy")
    usual = {"shards": 1, "swapped": False}[next(iter(fields))]
    assert caught.value.hint == f"x._replace({next(iter(fields))}={usual})"


def test_numpy_has_the_other_byte_order_and_jax_shards():
    """These are what they can have."""
    assert ferry.explain(TensorInfo("numpy", (2,), swapped=True), "torch").bytes_copied == 8
    assert ferry.explain(TensorInfo("jax", (2,), shards=2), "torch").bytes_copied == 8


@pytest.mark.parametrize(
    ("function", "keywords"),
    [
        (ferry.to_tensorflow, {"variable": "no"}),
        (ferry.to_torch, {"non_blocking": 2}),
        (ferry.to_torch, {"pinned": "yes"}),
        (ferry.to_numpy, {"pinned": 1}),
    ],
)
def test_an_option_is_true_or_false(function, keywords):
    """Whatever else it is, it is no yes, also after a True that compares equal."""
    [(name, value)] = keywords.items()
    target = function.__name__.removeprefix("to_")
    with pytest.raises(TypeError, match=f"{name} must be True or False, not {value!r}"):
        function([1], **keywords)
    for call in (
        lambda: ferry.explain([1], target, **{name: 0}),
        lambda: function([1], **{name: 0}),
    ):
        with pytest.raises(TypeError, match=f"{name} must be True or False, not 0"):
            call()


@pytest.mark.parametrize(
    "dtype",
    [np.zeros(3, "f4"), np.float32(1), "foo.float32", "torch.nn.float33", ["float32"], b"float32"],
)
def test_what_is_no_dtype_is_refused(dtype):
    """An array of a dtype, a wrong name of a framework, a list."""
    with pytest.raises(ferry.UnsupportedTypeError, match="is not a dtype") as caught:
        ferry.to_numpy([1], dtype=dtype)
    assert caught.value.hint.startswith('dtype="float32"')


@pytest.mark.parametrize(
    "dtype",
    [
        "torch.float32",
        "np.float32",
        "numpy.float32",
        "tf.float32",
        "tensorflow.float32",
        "jnp.float32",
        "jax.numpy.float32",
        "cupy.float32",
        jnp.float32,
        tf.float32,
        torch.float32,
    ],
)
def test_names_of_dtypes_behind_a_framework(dtype):
    """The name of its module, or what its users import it as."""
    assert name_of(dtype) == "float32"
    assert name_of("ml_dtypes.bfloat16") == "bfloat16"


# -- errors ---------------------------------------------------------------------------------------


class Watched(torch.Tensor):
    """A tensor that must not be written out: that could wait for a device."""

    def __repr__(self, **_):
        raise AssertionError("its values were asked for")

    __str__ = __format__ = __repr__


@pytest.mark.parametrize("word", ["copy", "dtype", "casting", "device", "to", "in a list"])
def test_no_message_contains_a_tensors_values(word):
    """Its type is named."""
    tensor = torch.arange(3.0).as_subclass(Watched)
    keywords = {"dtype": [tensor]} if word == "in a list" else {word: tensor}
    to = keywords.pop("to", "numpy")
    with pytest.raises((TypeError, ferry.ConversionError), match=r"of type (Watched|list)"):
        ferry.convert([1], to, **keywords)


@pytest.mark.parametrize(
    "x", [lambda w: [w, w], lambda w: [[w], [w]], lambda w: [w, np.ones(2, "f4")]]
)
def test_the_hint_of_a_list_in_a_graph_can_be_typed(x):
    """What is to be done first leaves the graph of each row."""
    rows = x(torch.ones(2, requires_grad=True))
    with pytest.raises(ferry.GradientError) as caught:
        ferry.to_numpy(rows, grad="error")
    code = caught.value.hint.partition(", or ")[2].removesuffix(" first")
    detached = eval(code, {"x": rows, "to_numpy": ferry.to_numpy})  # noqa: S307 - that is what the hint is for
    assert ferry.to_numpy(detached, grad="error").shape == np.shape(ferry.to_list(rows))


class Failing:
    """An object whose one attribute of this name fails when it is called."""

    def __init__(self, name):
        self.__dict__["name"] = name

    def __dlpack_device__(self):
        return 1, 0

    def __getattr__(self, name):
        if name != self.name:
            raise AttributeError(name)

        def fails(*_, **__):
            raise OSError("lost")

        return fails


class FailingArray:
    def __array__(self, dtype=None, copy=None):
        raise OSError("lost")


@pytest.mark.parametrize(
    ("x", "hint"),
    [
        (lambda: None, 'float("nan")'),
        (lambda: ["a"], "np.unique(x, return_inverse=True)[1]"),
        (lambda: [1, {2}], "sorted(x[1])"),
        (lambda: [{"a": 1}], 'convert_tree(x, "numpy")'),
        (lambda: Failing("__dlpack__"), "x.__dlpack__()"),
        (FailingArray, "np.asarray(x)"),
        (lambda: ctypes.c_void_p(1), 'np.frombuffer(x, "uint8")'),
        (lambda: keras.Input((2,)), "keras.Model(inputs, x)(values)"),
        (lambda: np.zeros(2, jax.dtypes.float0), "np.zeros(x.shape)"),
    ],
    ids=["None", "text", "set", "dict", "dlpack", "array", "ctypes", "keras", "float0"],
)
def test_each_refusal_has_a_hint(x, hint):
    """With code that can be typed for this very object."""
    with pytest.raises(ferry.UnsupportedTypeError) as caught:
        ferry.to_numpy(x())
    assert caught.value.hint.startswith(hint)


# -- masks ----------------------------------------------------------------------------------------


class GivesMasked:
    def __array__(self, dtype=None, copy=None):
        return np.ma.array([1.0, 2.0, 3.0], mask=[False, True, False])


class InterfaceWithMask:
    def __init__(self):
        self.array, self.valid = np.array([1.0, 2.0, 3.0]), np.array([True, False, True])
        self.__array_interface__ = {**self.array.__array_interface__, "mask": self.valid}


@pytest.mark.parametrize("kind", [GivesMasked, InterfaceWithMask])
@pytest.mark.parametrize("target", ["numpy", "torch", "python"])
def test_a_mask_is_not_dropped(kind, target):
    """Whichever protocol brings it: it is refused, and the hint fills what is masked."""
    x = kind()
    with pytest.raises(ferry.UnsupportedTypeError, match="mask would be lost") as caught:
        ferry.convert(x, target)
    code = caught.value.hint.partition(", or")[0]
    filled = eval(code, {"x": x, "np": np})  # noqa: S307 - that is what the hint is for
    assert ferry.to_list(filled) == [1.0, 0.0, 3.0]
    assert kind is GivesMasked or ferry.to_list(x.array) == [1.0, 2.0, 3.0]


def test_large_values_are_not_written_out():
    """Neither a number of thousands of digits, which Python refuses to write, nor a long text."""
    with pytest.raises(TypeError, match="not an object of type int"):
        ferry.to_numpy([1], copy=10**5000)
    for device in (10**5000, "c " * 5000, [1]):
        with pytest.raises(ferry.DeviceError) as caught:
            ferry.to_numpy([1], device=device)
        assert len(str(caught.value)) < 200
        assert caught.value.hint


def test_an_array_of_objects_that_is_no_list():
    """One of shape () that holds a tensor, and one that contains itself."""
    alone, itself = np.empty((), object), np.empty(1, object)
    alone[()] = np.ones(3)
    itself[0] = itself
    with pytest.raises(ferry.UnsupportedTypeError, match="holds an ndarray") as caught:
        ferry.to_numpy(alone)
    assert ferry.to_numpy(eval(caught.value.hint, {"x": alone})).shape == (3,)  # noqa: S307 - our own hint
    with pytest.raises(ferry.ShapeError, match="contains itself"):
        ferry.to_numpy(itself)


def test_what_pytorch_does_not_stack_is_our_error():
    """Rows of unequal lengths have no stack."""
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    with pytest.raises(ferry.UnsupportedTypeError, match="does not stack"):
        ferry.to_torch([nested, nested])


def test_an_article_goes_with_its_name():
    """Sentences about a framework, whatever it is called."""
    info = TensorInfo("numpy", (2,))
    assert (
        ferry.explain(info, "arrow").reason
        == "a later write to the source would change an arrow constant"
    )
    assert (
        ferry.explain(info, "jax").reason
        == "a later write to the source would change a jax constant"
    )
