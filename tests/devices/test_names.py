"""Names of devices: words, each framework's own objects, and what is said of one that is not here."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

import tensorferry as ferry
from tensorferry import TensorInfo
from tensorferry.core.devices import device_name

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")
tf = pytest.importorskip("tensorflow")


class OnCuda:
    """What JAX says of a GPU."""

    platform = "gpu"
    id = 1


class CupyDevice:
    """What CuPy says of one (https://docs.cupy.dev/en/stable/reference/generated/cupy.cuda.Device.html)."""

    id = 1

    def __repr__(self):
        return "<CUDA Device 1>"


class LogicalDevice(NamedTuple):
    """What TensorFlow says of one (https://www.tensorflow.org/api_docs/python/tf/config/LogicalDevice)."""

    name: str
    device_type: str


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("cuda", "cuda"),
        ("CUDA:1", "cuda:1"),
        ("gpu:0", "cuda:0"),
        ("gpu", "cuda"),
        ("mps", "mps"),
        ("mps:0", "mps:0"),
        ("cpu", "cpu"),
        ("cpu:0", "cpu"),
        ("tpu:3", "tpu:3"),
        ("/GPU:0", "cuda:0"),
        ("/device:GPU:1", "cuda:1"),
        ("/job:localhost/replica:0/task:0/device:GPU:1", "cuda:1"),
        (torch.device("cuda"), "cuda"),
        (torch.device("cuda", 1), "cuda:1"),
        (torch.device("mps"), "mps"),
        (torch.device("cpu"), "cpu"),
        pytest.param(OnCuda(), "cuda:1", id="platform and id"),
        (CupyDevice(), "cuda:1"),
        (LogicalDevice("/device:GPU:1", "GPU"), "cuda:1"),
        (LogicalDevice("/physical_device:GPU:0", "GPU"), "cuda:0"),
    ],
    ids=str,
)
def test_every_name_of_a_device(device, name):
    """One canonical name, and the same plan as with the word."""
    assert device_name(device) == name
    if name.partition(":")[0] in ("cuda", "cpu"):
        x = TensorInfo("numpy", (4,))
        assert ferry.explain(x, "torch", device=device) == ferry.explain(x, "torch", device=name)


def test_the_frameworks_own_objects():
    """Those that are here, asked of the frameworks themselves."""
    for device in (
        *jax.devices("cpu"),
        *tf.config.list_logical_devices("CPU"),
        tf.constant(1).device,
    ):
        assert device_name(device) == "cpu"
        assert ferry.to_torch(np.ones(2), device=device).device.type == "cpu"
    assert ferry.to_jax(np.ones(2, np.float32), device=torch.device("cpu")).platform() == "cpu"


@pytest.mark.parametrize(
    "text", ["", "cuda:", "cuda:x", "card 7", ":1", "<CUDA Device>", "cuda:1:2"]
)
def test_what_is_no_name(text):
    """The text is repeated, and the hint has names."""
    with pytest.raises(ferry.DeviceError, match="is not the name of a device") as caught:
        device_name(text)
    assert 'device="cuda:1"' in caught.value.hint


@pytest.mark.parametrize("target", ["torch", "jax", "tensorflow"])
def test_a_device_that_is_not_here(target):
    """The error lists those that are; a plan on paper needs none."""
    x = np.ones(2, np.float32)
    for convert in (ferry.convert, ferry.explain):
        with pytest.raises(
            ferry.DeviceError, match=rf"There is no cuda:99 here: {target} sees cpu"
        ) as caught:
            convert(x, target, device="cuda:99")
        assert caught.value.hint == 'device="cpu"'
    assert (
        ferry.explain(TensorInfo("numpy", (2,)), target, device="cuda:99").result.device
        == "cuda:99"
    )


@pytest.mark.parametrize(
    ("target", "device", "knows"), [("numpy", "cuda", "cpu"), ("jax", "mps", "cpu, cuda, tpu")]
)
def test_a_device_that_a_framework_does_not_know(target, device, knows):
    """The error lists the kinds that it does."""
    with pytest.raises(
        ferry.DeviceError, match=f"{target} does not support {device}, only {knows}"
    ):
        ferry.convert(np.ones(2, np.float32), target, device=device)
