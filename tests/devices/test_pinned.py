"""Page-locked memory on an accelerator that is simulated: what goes through it, in which order, and without it."""

from __future__ import annotations

import gc
import threading
import warnings

import numpy as np
import pytest
from tests import simulated

import tensorferry as ferry

N = 5_000
"""Elements of float32."""


def numbers(seed=0, count=N):
    return np.random.default_rng(seed).standard_normal(count, dtype=np.float32)


def up(array, **keywords):
    return ferry.convert(array, "simulated", device="sim:0", **keywords)


def verbs(x, *target, **keywords):
    return [step.verb for step in ferry.explain(x, *target, **keywords).steps]


# -- order ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("non_blocking", [False, True])
def test_down_and_up_keep_every_bit(non_blocking):
    """What comes back is what went; through page-locked memory where it is to go on beside the host's work."""
    with simulated.installed(delay=(0.0, 0.001)) as device:
        array = numbers()
        x = up(array, non_blocking=non_blocking)
        assert ferry.to_numpy(x, non_blocking=non_blocking).tobytes() == array.tobytes()
        assert [each.pinned for each in device.transfers] == [non_blocking] * 2


@pytest.mark.parametrize("keywords", [{}, {"non_blocking": True}, {"pinned": True}])
def test_down_waits_for_the_streams_work(keywords):
    """A tensor that is still being computed on the current stream is read after that, and given complete."""
    with simulated.installed() as device:
        array = numbers()
        x = up(array)
        for round_ in range(20):
            device.busy(0.002)
            y = device.compute(lambda values, by=round_: values * by, x)
            assert (ferry.to_numpy(y, **keywords) == array * np.float32(round_)).all(), round_


@pytest.mark.parametrize("non_blocking", [False, True])
def test_up_is_ordered_before_what_the_stream_does_next(non_blocking):
    """The tensor is used on the stream at once, and its source changes at once."""
    with simulated.installed(delay=(0.0, 0.002)) as device:
        for round_ in range(20):
            array = numbers(round_)
            expected = array * 2
            y = device.compute(lambda values: values * 2, up(array, non_blocking=non_blocking))
            array.fill(-1)
            assert (ferry.to_numpy(y) == expected).all(), round_


def test_on_a_stream_of_ones_own():
    """Inside a side stream both directions are ordered with it."""
    with simulated.installed(delay=(0.0, 0.001)) as device:
        array = numbers()
        with device.side_stream("sim:0"):
            device.busy(0.005)
            y = device.compute(lambda values: values + 1, up(array, non_blocking=True))
            assert (ferry.to_numpy(y, pinned=True) == array + 1).all()


def test_a_thousand_results_under_load_are_those_of_a_synchronised_reference():
    """From four threads, each result is what waiting for every step would have given."""
    with simulated.installed(delay=(0.0, 0.0001)) as device:
        failed = []

        def worker(number):
            try:
                for round_ in range(250):
                    array = numbers(number * 1000 + round_)
                    y = device.compute(lambda values: values * 3, up(array, non_blocking=True))
                    assert (ferry.to_numpy(y, non_blocking=True) == array * np.float32(3)).all(), (
                        number,
                        round_,
                    )
            except BaseException as error:  # noqa: BLE001 - told by the test's own thread
                failed.append(error)

        threads = [threading.Thread(target=worker, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed, failed[0]
        gc.collect()
        device.synchronize()
        assert device.locked == 0


def test_these_tests_can_fail():
    """Where events lie, what is read too early is garbage: nothing else orders the copies."""
    with simulated.installed(delay=(0.0, 0.0), events_lie=True) as device:
        array = numbers()
        x = up(array)
        device.synchronize()
        with device.held() as go:
            got = ferry.to_numpy(x, pinned=True)
        assert not (got == array).all()
        go()
        device.synchronize()


# -- results --------------------------------------------------------------------------------------


def test_pinned_lands_in_page_locked_memory():
    """`pinned=True`: one crossing, no copy on the host, complete when it is given; from the host a copy."""
    with simulated.installed(delay=(0.001, 0.002)) as device:
        array = numbers()
        x = up(array)
        plan = ferry.explain(x, "numpy", pinned=True)
        assert [step.verb for step in plan.steps if step.copies] == ["land"]
        assert plan.result.pinned
        result = ferry.to_numpy(x, pinned=True)
        assert device._block_of(result) is not None
        assert result.tobytes() == array.tobytes()
        there = ferry.convert(array, "simulated", pinned=True)
        assert ferry.describe(there).pinned
        assert ferry.to_numpy(there).tobytes() == array.tobytes()
        assert ferry.shares_memory(ferry.convert(there, "simulated", pinned=True), there)
        before = device.locked
        del result, there
        gc.collect()
        assert device.locked < before


def test_a_pinned_source_is_not_taken_for_one_that_is_not():
    """The steps for a tensor that lies in ordinary memory are not those for one that is page-locked already."""
    with simulated.installed():
        plain = ferry.convert(numbers(), "simulated", copy=True)
        assert verbs(plain, "simulated", pinned=True) == ["pin"]
        pinned = ferry.convert(plain, "simulated", pinned=True)
        assert pinned is not plain
        assert ferry.convert(pinned, "simulated", pinned=True) is pinned


def test_pinned_views_of_one_memory_are_pinned_each():
    """A tree's leaves get what was asked for also where they overlap, and would be copied together without it."""
    with simulated.installed():
        array = np.arange(12.0)
        tree = {"all": array, "part": array[2:8]}
        result = ferry.convert_tree(tree, "simulated", copy=True, pinned=True)
        for path, each in result.items():
            assert ferry.describe(each).pinned
            assert ferry.to_list(each) == tree[path].tolist()


def test_pinned_where_nothing_can_be_locked_is_an_error():
    """What was asked for by name is not silently left out; how much it was is said."""
    with simulated.installed(lockable=0):
        x = up(numbers(0, 16))
        with pytest.raises(
            ferry.DeviceError, match="64 B of host memory cannot be page-locked"
        ) as caught:
            ferry.to_numpy(x, pinned=True)
        assert caught.value.hint == "without pinned="


def test_without_page_locked_memory_it_goes_on_with_one_message():
    """`ulimit -l` is no error: ordinary memory, the same values, and one warning that says how much was asked for."""
    with simulated.installed(delay=(0.0, 0.0), lockable=0):
        array = numbers()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for _ in range(3):
                x = up(array, non_blocking=True)
                assert ferry.to_numpy(x, non_blocking=True).tobytes() == array.tobytes()
        assert [each.category for each in told] == [RuntimeWarning]
        assert "19.5 KiB of host memory cannot be page-locked" in str(told[0].message)


# -- many leaves ----------------------------------------------------------------------------------


@pytest.mark.parametrize("non_blocking", [False, True])
def test_small_leaves_are_packed_into_page_locked_memory_once(non_blocking):
    """One block for all of them, none for each; and one transfer."""
    with simulated.installed() as device:
        tree = {str(number): numbers(number, 10) for number in range(50)}
        there = ferry.convert_tree(tree, "simulated", device="sim:0", non_blocking=non_blocking)
        assert [(each.pinned, each.non_blocking) for each in device.transfers] == [
            (non_blocking, non_blocking)
        ]
        assert device.pinnings == int(non_blocking)
        back = ferry.convert_tree(there, "numpy", non_blocking=non_blocking)
        assert all(back[key].tobytes() == array.tobytes() for key, array in tree.items())
        assert [each.pinned for each in device.transfers] == [non_blocking] * 2


# -- casts, layouts, maps -------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "target"), [("float32", "float16"), ("float16", "float32")])
def test_fewer_bytes_cross_the_bus(source, target):
    """Narrower before it, wider after it, never inside the copy; and the host's own bits."""
    with simulated.installed(delay=(0.0, 0.0)) as device:
        array = numbers().astype(source)
        x = up(array, dtype=target)
        assert ferry.to_numpy(x).tobytes() == array.astype(target).tobytes()
        y = up(array)
        device.transfers.clear()
        up(array, dtype=target)
        assert ferry.to_numpy(y, dtype=target).tobytes() == array.astype(target).tobytes()
        assert [each.nbytes for each in device.transfers] == [N * 2] * 2


@pytest.mark.parametrize(
    "layout", ["transposed", "strided", "reversed", "swapped", "0-d", "read-only"]
)
@pytest.mark.parametrize("non_blocking", [False, True])
def test_layouts_on_the_way_up(layout, non_blocking):
    """Memory that is not one run is packed first."""
    base = numbers(count=6 * 15).reshape(6, 15)
    array = {
        "transposed": base.T,
        "strided": base[:, ::2],
        "reversed": base[::-1],
        "swapped": base.astype(">f4"),
        "0-d": base[0, 0, ...],
        "read-only": np.frombuffer(base.tobytes(), np.float32),
    }[layout]
    with simulated.installed(delay=(0.0, 0.0)):
        assert ferry.to_numpy(up(array, non_blocking=non_blocking)).tolist() == array.tolist()


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_a_memory_map_is_never_read_by_the_device(tmp_path, mode):
    """However small: its bytes are copied first."""
    path = tmp_path / "values"
    np.arange(100, dtype=np.float32).tofile(path)
    mapped = np.memmap(path, np.float32, mode)
    with simulated.installed(delay=(0.0, 0.0)):
        plan = ferry.explain(mapped, "simulated", device="sim:0")
        assert [(step.verb, step.path) for step in plan.steps if step.copies] == [
            ("copy", "host"),
            ("move", "bus"),
        ]
        assert not plan.result.memory_map
        assert ferry.to_numpy(up(mapped)).tolist() == list(range(100))
