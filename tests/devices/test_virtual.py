"""Several devices where there is one: JAX's virtual host devices, TensorFlow's logical ones."""

from __future__ import annotations

from tests.support import lives

FOUR = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}


def test_sharded_jax_is_gathered_and_says_so():
    """Every target gets the whole array; the plan says that it is gathered; copy=False is refused by name."""
    assert "done" in lives(
        """
        import numpy as np, jax, jax.numpy as jnp, tensorferry as ferry
        from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
        from tensorferry.backends import registry
        from tensorferry.execution.run import verifying

        assert len(jax.devices()) == 4
        mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("a", "b"))
        whole = np.arange(64, dtype=np.float32).reshape(8, 8)
        for spec in (P("a"), P("a", "b"), P(None, ("a", "b"))):
            x = jax.device_put(whole, NamedSharding(mesh, spec))
            shards = x.sharding.num_devices
            assert ferry.describe(x).shards == shards == 4
            for target in ("numpy", "torch", "tensorflow"):
                plan = ferry.explain(x, target)
                assert f"gathered from {shards} shards" in plan.reason, plan
                assert not plan.shares_memory and plan.bytes_copied >= whole.nbytes
                with verifying():
                    y = ferry.convert(x, target)
                assert np.array_equal(np.asarray(y), whole)
                assert not ferry.shares_memory(x, y)
                try:
                    ferry.convert(x, target, copy=False)
                except ferry.CopyRequiredError as error:
                    assert f"its {shards} shards have to be gathered" in str(error), error
                else:
                    raise SystemExit("shared")
            assert ferry.to_list(x) == whole.tolist()
            assert ferry.to_jax(x) is x
            out = np.zeros((8, 8), np.float32)
            ferry.to_numpy(x, out=out)
            assert np.array_equal(out, whole)

        copies = jax.device_put(whole, NamedSharding(mesh, P()))
        assert ferry.describe(copies).shards == 1
        assert ferry.explain(copies, "numpy").shares_memory
        exported = registry.ready("jax").export_dlpack(copies)
        assert exported.__dlpack_device__() == (1, 0)
        assert "dltensor" in repr(exported.__dlpack__())
        assert np.array_equal(ferry.to_numpy(copies), whole)
        print("done")
        """,
        **FOUR,
    )


def test_jax_on_a_device_that_is_not_the_first():
    """An array on another host device is host memory like any other."""
    assert "done" in lives(
        """
        import numpy as np, jax, tensorferry as ferry
        from tensorferry.execution.run import verifying
        for device in jax.devices("cpu"):
            x = jax.device_put(np.arange(64.0, dtype=np.float32), device)
            assert ferry.describe(x).device == "cpu"
            with verifying():
                assert ferry.shares_memory(x, ferry.to_numpy(x))
                assert ferry.to_list(ferry.to_torch(x)) == list(range(64))
                assert ferry.to_list(ferry.to_jax(x, device="cpu")) == list(range(64))
            assert ferry.to_jax(x) is x
            tree = {"a": np.ones(2, "float32"), "count": 2}
            found = ferry.convert_tree(tree, like=x, leaves=lambda each: isinstance(each, np.ndarray))
            assert ferry.describe(found["a"]).framework == "jax" and found["count"] == 2
        print("done")
        """,
        **FOUR,
    )


def test_tensorflow_on_logical_devices():
    """A tensor on a second logical CPU is host memory; only the first can be asked for."""
    assert "done" in lives(
        """
        import numpy as np, tensorflow as tf
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 3
        )
        import tensorferry as ferry
        from tensorferry.execution.run import verifying
        for number, device in enumerate(tf.config.list_logical_devices("CPU")):
            with tf.device(device.name):
                x = tf.range(64, dtype=tf.float32) + 0
            assert x.backing_device.endswith(f"CPU:{number}")
            assert ferry.describe(x).device == "cpu"
            with verifying():
                y = ferry.to_numpy(x)
                assert ferry.shares_memory(x, y)
                assert y.tolist() == list(range(64))
                assert ferry.to_torch(x).tolist() == list(range(64))
                assert ferry.to_list(ferry.to_tensorflow(x, device="cpu")) == list(range(64))
                try:
                    assert ferry.to_list(ferry.to_tensorflow(y, device=device)) == list(range(64))
                except ferry.DeviceError as error:
                    assert number > 0 and "first device" in str(error)
                else:
                    assert number == 0
        print("done")
        """
    )


def test_tensorflow_code_reaches_its_device():
    """The code of a plan that ends on a device, pasted: on a second logical CPU, for there is no GPU."""
    assert "done" in lives(
        """
        import numpy as np, tensorflow as tf
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
        )
        import tensorferry as ferry
        from tensorferry.backends import registry
        a = np.arange(16, dtype=np.float32)
        for x, source in ((a, "numpy"), (tf.constant(a), "tensorflow")):
            wider = {"dtype": "float64"} if source == "tensorflow" else {}  # whose cast wants aligned memory on a CPU
            for keywords in ({}, {"dtype": "bfloat16"}, wider):
                plan = ferry.explain(ferry.TensorInfo(source, (16,)), "tensorflow", device="cuda:1", **keywords)
                assert plan.steps[-1].verb in ("move", "cast"), plan
                names = {"x": x}
                exec(plan.code.replace("/device:GPU:", "/device:CPU:"), names)
                y = names["y"]
                assert y.backing_device.endswith("CPU:1"), (y.backing_device, plan.code)
                assert y.dtype.name == plan.result.dtype
                assert y.numpy().astype(np.float32).tolist() == a.tolist()
        with tf.device("CPU:1"):
            x = tf.identity(tf.constant(a)) + 0
        for dtype in ("float64", "float8_e4m3fn"):
            assert registry.ready("tensorflow").cast(x, dtype).backing_device.endswith("CPU:1")
        print("done")
        """
    )


def test_tensorflow_makes_nothing_on_another_device_than_it_is_told():
    """What it would place on the first GPU stays where the value is; a second logical CPU stands for another device."""
    assert "done" in lives(
        """
        import numpy as np, tensorflow as tf
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
        )
        import tensorferry as ferry
        from tensorferry.backends import registry
        backend = registry.ready("tensorflow")
        backend.all_host = False
        with tf.device("CPU:1"):
            scalar = tf.identity(tf.constant(1.5)) + 0
        assert backend._reshape(scalar, (1,)).backing_device.endswith("CPU:1")
        assert backend.variable(scalar).device.endswith("CPU:1")
        assert ferry.to_numpy(scalar).tolist() == 1.5
        assert ferry.shares_memory(scalar, ferry.to_numpy(scalar))

        with tf.device("CPU:1"):  # for its own scope says nothing about ours
            found = ferry.to_tensorflow(np.array(2.5, "bfloat16"))
            assert found.backing_device.endswith("CPU:0") and float(found) == 2.5
            variable = ferry.to_tensorflow(np.ones(3, np.float32), variable=True)
        assert variable.device.endswith("CPU:0") and variable.numpy().tolist() == [1, 1, 1]

        for dtype in ("float32", "bool", "int16", "complex64", "float8_e4m3fn"):
            with tf.device("CPU:1"):
                x = tf.identity(ferry.to_tensorflow(np.arange(2), dtype=dtype))
            copied = backend.copy(x)
            assert copied.backing_device.endswith("CPU:1"), dtype
            assert ferry.to_numpy(copied).tobytes() == ferry.to_numpy(x).tobytes()
            assert not ferry.shares_memory(copied, x)
        print("done")
        """
    )


def test_jax_without_the_host_is_said():
    """Started for a GPU alone, it has no memory where an array could begin; and no array that came from it there."""
    assert "done" in lives(
        """
        import jax, numpy as np, tensorferry as ferry
        from tensorferry.backends import registry
        known = jax.local_devices

        def without_host(*arguments, backend=None):
            if backend == "cpu":
                raise RuntimeError("Unknown backend cpu. Available backends are ['cuda']")
            return known(*arguments, backend=backend)

        jax.local_devices = without_host
        assert not registry.ready("jax").holds(object())
        try:
            ferry.to_jax(np.ones(3, np.float32))
        except ferry.DeviceError as error:
            assert "Available backends are ['cuda']" in str(error) and "JAX_PLATFORMS" in error.hint
        else:
            raise SystemExit("adopted")
        jax.local_devices = known
        assert ferry.to_jax(np.ones(3, np.float32)).tolist() == [1, 1, 1]
        print("done")
        """
    )


def test_jaxs_host_memory_is_known_while_a_gpu_is_its_default():
    """What lies under its narrow arrays is learnt from one on the host, wherever JAX would make one."""
    assert "done" in lives(
        """
        import jax, jax.numpy as jnp, numpy as np, tensorferry as ferry
        x = jax.device_put(np.ones(64, jnp.bfloat16), jax.devices("cpu")[0])
        array = ferry.to_numpy(x)
        jnp.zeros = np.zeros  # as if on a GPU: the array that it gives owns its memory
        assert ferry.shares_memory(x, array)
        assert not ferry.describe(array).mutable
        print("done")
        """
    )
