"""What a framework is called: its name, what people call it, its module, its tensor class."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from tests.simulated import installed
from tests.support import survives

import tensorferry as ferry
from tensorferry import TensorInfo
from tensorferry.backends import registry

jax = pytest.importorskip("jax")
torch = pytest.importorskip("torch")
tf = pytest.importorskip("tensorflow")

MEANT = {
    "numpy": ["numpy", "np", np, np.ndarray],
    "torch": ["torch", "pt", "pytorch", torch, torch.Tensor],
    "tensorflow": ["tensorflow", "tf", tf, tf.Tensor, type(tf.ones(()))],
    "jax": ["jax", "jnp", "jax.numpy", jax, jax.numpy, jax.Array, type(jax.numpy.ones(()))],
    "python": ["python", "list", list],
}
EACH = [(name, to) for name, names in MEANT.items() for to in names]
IDS = [
    f"{name}-{to}" if isinstance(to, str) else f"{name}-{type(to).__name__}-{to.__name__}"
    for name, to in EACH
]


@pytest.mark.parametrize(("name", "to"), EACH, ids=IDS)
def test_a_framework_is_what_people_call_it(name, to, tmp_path):
    """Wherever a target is named, and with the same plan, request and result."""
    ferry.save({"x": np.ones(2, "f4")}, tmp_path / "a.npz")
    expected = type(ferry.convert([1.5], name))
    assert type(ferry.convert([1.5], to)) is expected
    assert type(ferry.convert_tree({"x": np.ones(2, "f4")}, to)["x"]) is expected
    assert type(ferry.collate([1.5, 2.5], to)) is expected
    assert type(ferry.start(np.ones(2, "f4"), to).result()) is expected
    assert type(next(ferry.prefetch([np.ones(2, "f4")], to))) is expected
    assert type(ferry.load(tmp_path / "a.npz", to)["x"]) is expected
    assert ferry.explain([1.5], to) == ferry.explain([1.5], name)
    assert ferry.explain([1.5], to).request.target == name
    assert TensorInfo(to, (2,)) == TensorInfo(name, (2,))
    assert pickle.loads(pickle.dumps(TensorInfo(to, (2,)))).framework == name  # noqa: S301 - our own


def test_names_are_known_before_anything_else_is():
    """In a process that has called nothing yet; none but the named framework is imported."""
    survives(
        """
        import sys, tensorferry as ferry
        info = ferry.TensorInfo("tf", (2,))
        assert info.framework == "tensorflow" and info.writable is False
        assert ferry.explain(info, "pt").request.target == "torch"
        assert ferry.convert([1], "np").tolist() == [1]
        assert not {"torch", "tensorflow", "jax"} & set(sys.modules)
        assert type(ferry.convert([1], "pt")) is sys.modules["torch"].Tensor
        """
    )


@pytest.mark.parametrize(
    ("to", "meant"),
    [
        ("tourch", "torch"),
        ("Torch", "torch"),
        ("PyTorch", "torch"),
        ("numpi", "numpy"),
        ("tensorlow", "tensorflow"),
    ],
)
def test_a_wrong_name_is_a_value_error_with_the_nearest_right_one(to, meant):
    """Everywhere; a framework that is only not installed is another error."""
    for call in (
        lambda: ferry.convert([1.5], to),
        lambda: ferry.convert_tree([], to),
        lambda: ferry.explain([1.5], to=to),
        lambda: ferry.collate([1.5], to=to),
        lambda: ferry.start(np.ones(2, "f4"), to),
        lambda: ferry.prefetch([], to),
        lambda: ferry.explain(TensorInfo(to, (2,)), "numpy"),
    ):
        with pytest.raises(ValueError, match="is not the name of a framework") as caught:
            call()
        assert isinstance(caught.value, ferry.UnknownFrameworkError)
        assert caught.value.hint.partition("=")[2] == f'"{meant}"'
        assert caught.value.__context__ is None
    with pytest.raises(ferry.UnknownFrameworkError, match="no_such") as caught:
        ferry.convert([1.5], "no_such_framework_here")
    assert all(f'"{name}"' in caught.value.hint for name in MEANT)


def test_what_is_not_installed_is_not_a_wrong_name():
    """The name is right."""
    survives(
        """
        import sys, tensorferry as ferry
        sys.modules["cupy"] = None
        try:
            ferry.convert([1.5], "cupy")
        except ferry.FrameworkNotInstalledError as error:
            assert error.hint.startswith("pip install cupy")
        else:
            raise SystemExit("converted")
        """
    )


def test_a_device_is_told_from_a_framework():
    """It has a keyword of its own."""
    for name, device in (
        ("cuda:1", "cuda:1"),
        ("gpu", "cuda"),
        ("GPU:1", "cuda:1"),
        ("cpu:0", "cpu"),
    ):
        with pytest.raises(ferry.UnknownFrameworkError, match=f"'{name}' is a device") as caught:
            ferry.convert([1.5], name)
        framework, _, rest = caught.value.hint.removeprefix('to="').partition('"')
        assert device.partition(":")[0] in registry.known()[framework].capabilities.devices.kinds
        assert rest == f', device="{device}"'


@pytest.mark.parametrize(
    "to",
    [
        torch.nn.Parameter,
        np.matrix,
        np.float32,
        tf.Variable,
        torch.float32,
        3,
        object,
        float,
        np.ones(2, "f4"),
        [],
        {},
    ],
    ids=lambda to: getattr(to, "__name__", type(to).__name__),
)
def test_a_class_that_results_are_not_of_names_no_framework(to):
    """A parameter is not what `to_torch` gives, and a dtype is no framework."""
    with pytest.raises(TypeError, match="to must be a framework"):
        ferry.convert([1.5], to)


def test_a_module_that_is_no_frameworks_is_a_wrong_name():
    """Its own name is said."""
    with pytest.raises(ferry.UnknownFrameworkError, match="'math' is not the name"):
        ferry.convert([1.5], math)
    with pytest.raises(ferry.UnknownFrameworkError, match=r"'torch\.nn' is not the name") as caught:
        ferry.convert([1.5], torch.nn)
    assert caught.value.hint == 'to="torch"'


def test_another_packages_backend_declares_its_own():
    """Its aliases are known while it is."""
    with installed() as backend:
        type(backend).aliases = ("sim",)
        try:
            registry.register(backend)
            assert ferry.explain(np.ones(2, "f4"), "sim").request.target == backend.name
        finally:
            del type(backend).aliases
    with pytest.raises(ferry.UnknownFrameworkError):
        ferry.explain(np.ones(2, "f4"), "sim")


def test_an_alias_never_hides_a_name():
    """The one that comes later."""
    with installed() as backend:
        type(backend).aliases = ("torch", "np")
        try:
            registry.register(backend)
            assert (registry.canonical("torch"), registry.canonical("np")) == ("torch", "numpy")
        finally:
            del type(backend).aliases


@pytest.mark.parametrize(
    ("name", "dtypes"),
    [("float32", ["float32"]), ("bf16", ["bfloat16"]), ("int", ["int32", "int64"])],
)
def test_a_dtype_is_told_from_a_framework(name, dtypes):
    """``convert(x, "float32")`` has the dtype where the target is to be."""
    with pytest.raises(
        ferry.UnknownFrameworkError, match="is a dtype, and not the name of a framework"
    ) as caught:
        ferry.convert([1.5], name)
    assert caught.value.hint == " or ".join(f'to="numpy", dtype="{dtype}"' for dtype in dtypes)
