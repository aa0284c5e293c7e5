"""Transfers through page-locked slots, on an accelerator that is simulated: streams, events, reuse, failure."""

from __future__ import annotations

import gc
import threading
import warnings
import weakref

import numpy as np
import pytest
from tests.devices.staged import CHUNK, POISON, staged
from tests.support import survives

import tensorferry as ferry
from tensorferry.core.layout import ALIGNMENT
from tensorferry.devices import buffer_pool as blocks
from tensorferry.devices import copy_threads as copiers
from tensorferry.devices import staging
from tensorferry.host import memory

N = 50_000
"""Elements of float32: 49 slots, the last of them not full."""


def numbers(seed=0, count=N):
    return np.random.default_rng(seed).standard_normal(count, dtype=np.float32)


def up(array, **keywords):
    return ferry.convert(array, "simulated", device="sim:0", **keywords)


def verbs(x, *target, **keywords):
    return [step.verb for step in ferry.explain(x, *target, **keywords).steps]


# -- order ----------------------------------------------------------------------------------------


def test_down_and_up_keep_every_bit():
    """What comes back is what went, through more chunks than there are slots, and nothing went another way."""
    with staged(delay=(0.0, 0.001)) as device:
        array = numbers()
        assert verbs(array, "simulated", device="sim:0") == ["fill", "send"]
        x = up(array)
        assert verbs(x, "numpy") == ["stage", "unload"]
        assert ferry.to_numpy(x).tobytes() == array.tobytes()
        assert not device.transfers
        for direction in ("up", "down"):
            sizes = [size for way, size in device.crossed if way == direction]
            assert sum(sizes) == array.nbytes
            assert max(sizes) == CHUNK
            assert len(sizes) > staging.SLOTS


def test_down_waits_for_the_streams_work():
    """A tensor that is still being computed on the current stream is read after that."""
    with staged() as device:
        array = numbers()
        x = up(array)
        for round_ in range(20):
            device.busy(0.002)
            y = device.compute(lambda values, by=round_: values * by, x)
            assert (ferry.to_numpy(y) == array * np.float32(round_)).all(), round_


def test_up_is_ordered_before_what_the_stream_does_next():
    """The tensor is used on the stream at once, and its source changes at once."""
    with staged(delay=(0.0, 0.002)) as device:
        for round_ in range(20):
            array = numbers(round_)
            expected = array * 2
            y = device.compute(lambda values: values * 2, up(array))
            array.fill(-1)
            assert (ferry.to_numpy(y) == expected).all(), round_


def test_on_a_stream_of_ones_own():
    """Inside a side stream both directions are ordered with it."""
    with staged(delay=(0.0, 0.001)) as device:
        array = numbers()
        with device.side_stream("sim:0"):
            device.busy(0.005)
            y = device.compute(lambda values: values + 1, up(array))
            assert (ferry.to_numpy(y) == array + 1).all()


def test_a_thousand_results_under_load_are_those_of_a_synchronised_reference():
    """From four threads, each result is what waiting for every step would have given."""
    with staged(delay=(0.0, 0.0001)) as device:
        failed = []

        def worker(number):
            try:
                for round_ in range(250):
                    array = numbers(number * 1000 + round_, 5000)
                    y = device.compute(lambda values: values * 3, up(array))
                    assert (ferry.to_numpy(y) == array * np.float32(3)).all(), (number, round_)
            except BaseException as error:  # noqa: BLE001 - told by the test's own thread
                failed.append(error)

        threads = [threading.Thread(target=worker, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed, failed[0]


def test_these_tests_can_fail():
    """Where events lie, what is read too early is garbage: nothing else orders the copies."""
    with staged(delay=(0.0, 0.0), events_lie=True) as device:
        array = numbers()
        x = up(array)
        device.synchronize()
        with device.held() as go:
            got = ferry.to_numpy(x)
        assert not (got == array).all()
        go()
        device.synchronize()


# -- slots ----------------------------------------------------------------------------------------


def test_slots_are_locked_once_and_kept():
    """Fifty transfers lock no more memory than the first ones."""
    with staged(delay=(0.0, 0.0)) as device:
        array = numbers()
        for _ in range(25):
            assert ferry.to_numpy(up(array)).tobytes() == array.tobytes()
        assert device.pinnings == staging.SLOTS
        assert device.locked == staging.SLOTS * CHUNK
        staging.release()
        gc.collect()
        assert device.locked == 0


def test_transfers_at_once_each_get_a_slot():
    """More transfers than slots do not wait for each other for ever, and only so many slots are kept."""
    with staged(delay=(0.0, 0.001)) as device:
        xs = [up(numbers(seed)) for seed in range(staging.SLOTS + 4)]
        begun = [device.stage(x, CHUNK) for x in xs]
        for seed, each in enumerate(begun):
            assert (device.unload(each) == numbers(seed)).all()
        del begun, each
        gc.collect()
        assert device.locked == staging.SLOTS * CHUNK


def test_a_transfer_that_is_dropped_gives_its_slots_back():
    """Begun and never asked for: nothing is lost, and nothing is written into what others have by then."""
    with staged(delay=(0.0, 0.001)) as device:
        array = numbers()
        x = up(array)
        for _ in range(5):
            begun = device.stage(x, CHUNK)
            del begun
            gone = device.fill(array, "sim:0", CHUNK)
            del gone
        assert ferry.to_numpy(x).tobytes() == array.tobytes()
        assert device.pinnings == staging.SLOTS


@pytest.mark.parametrize("verb", ["take_down", "put_up"])
def test_a_transfer_that_fails_gives_its_slots_back(verb, monkeypatch):
    """An error in the middle comes out as it is, and the next transfer is right."""
    with staged(delay=(0.0, 0.001)) as device:
        array = numbers()
        x = up(array)
        real, calls = getattr(device, verb), []

        def fails(*arguments):
            calls.append(1)
            if len(calls) == 20:
                raise RuntimeError("the bus is gone")
            real(*arguments)

        monkeypatch.setattr(device, verb, fails)
        with pytest.raises(RuntimeError, match="the bus is gone"):
            ferry.to_numpy(x) if verb == "take_down" else up(array)
        monkeypatch.undo()
        gc.collect()
        assert ferry.to_numpy(up(array)).tobytes() == array.tobytes()
        assert device.pinnings <= staging.SLOTS + 1


def test_without_page_locked_memory_it_goes_on_with_one_message():
    """`ulimit -l` is no error: ordinary memory, the same values, and one warning however many transfers."""
    with staged(delay=(0.0, 0.0), lockable=0):
        array = numbers()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for _ in range(3):
                assert ferry.to_numpy(up(array)).tobytes() == array.tobytes()
        assert len(told) == 1
        assert "page-locked" in str(told[0].message)


# -- results --------------------------------------------------------------------------------------


def test_a_result_is_ordinary_memory_that_may_be_written():
    """Aligned, writable, apart from the source, and not page-locked."""
    with staged() as device:
        x = up(numbers())
        result = ferry.to_numpy(x)
        assert result.flags.writeable
        assert result.flags.c_contiguous
        assert memory.address(result) % ALIGNMENT == 0
        assert device._block_of(result) is None
        result[...] = 0
        assert ferry.to_numpy(x).any()


def test_memory_of_a_result_that_is_gone_is_used_again():
    """Its pages are there already; memory of one that still lives is never touched."""
    with staged():
        x, y = up(numbers(1)), up(numbers(2))
        first = ferry.to_numpy(x)
        view, place = first[10:], memory.address(first)
        del first
        second = ferry.to_numpy(y)
        assert memory.address(second) != place, "a view still lies over it"
        assert (view == numbers(1)[10:]).all()
        del view
        gc.collect()
        third = ferry.to_numpy(y)
        assert memory.address(third) == place
        assert (third == numbers(2)).all()


def test_kept_memory_is_bounded(monkeypatch):
    """What is kept is never more than the bound, and what is larger than that is not kept at all."""
    monkeypatch.setattr(blocks, "KEPT_BYTES", 3 * 4 * N)
    with staged(delay=(0.0, 0.0)):
        x = up(numbers())
        results = [ferry.to_numpy(x) for _ in range(6)]
        del results
        gc.collect()
        kept = blocks._blocks
        assert 0 < kept.nbytes <= 3 * 4 * N
        assert kept.nbytes == sum(block.size for block in kept.kept)
        large = up(numbers(0, 4 * N))
        ferry.to_numpy(large)
        gc.collect()
        assert all(block.size < 16 * N for block in kept.kept)


def test_pinned_lands_in_page_locked_memory():
    """`pinned=True`: one crossing, no copy on the host, complete when it is handed out; from the host a copy."""
    with staged(delay=(0.001, 0.002)) as device:
        array = numbers()
        x = up(array)
        plan = ferry.explain(x, "numpy", pinned=True)
        assert [step.verb for step in plan.steps] == ["land"]
        assert plan.result.pinned
        result = ferry.to_numpy(x, pinned=True)
        assert device._block_of(result) is not None
        assert result.tobytes() == array.tobytes()
        there = ferry.convert(array, "simulated", pinned=True)
        assert ferry.describe(there).pinned
        assert ferry.to_numpy(there).tobytes() == array.tobytes()
        assert ferry.convert(there, "simulated", pinned=True) is there or ferry.shares_memory(
            ferry.convert(there, "simulated", pinned=True), there
        )
        before = device.locked
        del result, there
        gc.collect()
        assert device.locked < before


def test_pinned_views_of_one_memory_are_pinned_each():
    """A tree's leaves get what was asked for also where they overlap, and would be copied together without it."""
    with staged():
        array = np.arange(12.0)
        tree = {"all": array, "part": array[2:8]}
        result = ferry.convert_tree(tree, "simulated", copy=True, pinned=True)
        for path, each in result.items():
            assert ferry.describe(each).pinned
            assert ferry.to_list(each) == tree[path].tolist()


def test_pinned_where_nothing_can_be_locked_is_an_error():
    """What was asked for by name is not silently left out."""
    with staged(lockable=0):
        x = ferry.convert(numbers(0, 16), "simulated", device="sim:0")
        with pytest.raises(ferry.DeviceError, match="page-lock") as caught:
            ferry.to_numpy(x, pinned=True)
        assert "pinned=False" in caught.value.hint


# -- casts, layouts, maps -------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "target"), [("float32", "float16"), ("float16", "float32")])
def test_fewer_bytes_cross_the_bus(source, target):
    """Narrower before it, wider after it, never inside the copy; and the host's own bits."""
    with staged(limit=1, delay=(0.0, 0.0)) as device:
        array = numbers(count=9000).astype(source)
        x = up(array, dtype=target)
        assert sum(size for way, size in device.crossed if way == "up") == 9000 * 2
        assert ferry.to_numpy(x).tobytes() == array.astype(target).tobytes()
        device.crossed.clear()
        y = up(array)
        device.crossed.clear()
        assert ferry.to_numpy(y, dtype=target).tobytes() == array.astype(target).tobytes()
        assert sum(size for way, size in device.crossed if way == "down") == 9000 * 2


@pytest.mark.parametrize("layout", ["transposed", "strided", "reversed", "swapped", "0-d", "read-only"])
def test_layouts_on_the_way_up(layout):
    """Memory that is not one run is packed first."""
    base = numbers(count=6 * 1500).reshape(6, 1500)
    array = {
        "transposed": base.T,
        "strided": base[:, ::2],
        "reversed": base[::-1],
        "swapped": base.astype(">f4"),
        "0-d": base[0, 0, ...],
        "read-only": np.frombuffer(base.tobytes(), np.float32),
    }[layout]
    with staged(limit=1, delay=(0.0, 0.0)) as device:
        x = up(array)
        assert any(way == "up" for way, _ in device.crossed)
        assert ferry.to_numpy(x).tolist() == array.tolist()


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_a_memory_map_is_never_read_by_the_device(tmp_path, mode):
    """However small: its bytes go into slots first."""
    path = tmp_path / "values"
    np.arange(100, dtype=np.float32).tofile(path)
    mapped = np.memmap(path, np.float32, mode)
    with staged(limit=1 << 30, delay=(0.0, 0.0)) as device:
        plan = ferry.explain(mapped, "simulated", device="sim:0")
        assert [step.verb for step in plan.steps if step.copies] == ["fill", "send"]
        x = up(mapped)
        assert not device.transfers
        assert ferry.to_numpy(x).tolist() == list(range(100))


def test_small_ones_go_in_one_call():
    """Below the threshold nothing is staged and no thread is started."""
    with staged(limit=1 << 14, delay=(0.0, 0.0)) as device:
        array = numbers(count=(1 << 12) - 1)
        assert ferry.to_numpy(up(array)).tobytes() == array.tobytes()
        assert not device.crossed
        assert len(device.transfers) == 2
        assert verbs(numbers(count=1 << 12), "simulated", device="sim:0") == ["fill", "send"]


def test_memory_is_poisoned_until_it_is_written():
    """The simulation shows what the tests above rely on: unwritten memory is recognisable."""
    with staged() as device:
        x = device.room((8,), (1,), "uint8", "sim:0")
        assert (device.values(x) == POISON).all()


# -- processes ------------------------------------------------------------------------------------


def test_a_forked_child_has_its_own_threads():
    """The parent's copying threads are not waited for in a child."""
    assert "done" in survives(
        """
        import os
        from tensorferry.devices import copy_threads as copiers
        assert copiers.submit(int, 1).result(120) is None
        child = os.fork()
        if child == 0:
            os._exit(0 if copiers.submit(int, 2).result(120) is None else 1)
        assert os.waitpid(child, 0)[1] == 0
        print("done")
        """
    )


def test_a_forked_child_gives_no_slot_back(monkeypatch):
    """An allocator of page-locked memory asks the device when a slot is given back, which is the parent's."""
    with staged():
        assert (ferry.to_numpy(up(numbers())) == numbers()).all()
        (lot,) = staging._lots.values()
        slots = [weakref.ref(slot) for slot, _ in lot.free]
        del lot
        monkeypatch.setattr(staging, "_inherited", [])
        staging._begin_anew()
        gc.collect()
        assert not staging._lots
        assert slots
        assert all(slot() is not None for slot in slots)
        assert (ferry.to_numpy(up(numbers())) == numbers()).all()


def test_the_copying_threads_end_when_there_is_nothing_to_copy():
    """Within a second of the last transfer."""

    def ours():
        return [thread for thread in threading.enumerate() if thread.name == "tensorferry staging"]

    with staged(delay=(0.0, 0.0)):
        x = up(numbers())
        assert ours()
        for thread in ours():
            thread.join(120)
        assert not ours()
        assert (ferry.to_numpy(x) == numbers()).all()


def test_copies_still_go_on_while_the_interpreter_ends():
    """When threads end or cannot be started any more, what is asked for is done."""
    assert "done 3" in survives(
        """
        import atexit
        from tensorferry.devices import copy_threads as copiers
        late = bytearray(1)

        def at_the_end():
            copiers.submit(late.__setitem__, 0, 3).result(120)
            print("done", late[0])

        atexit.register(at_the_end)
        copiers.submit(int, 1).result(120)
        """
    )


def test_where_no_thread_can_be_started_this_one_copies(monkeypatch):
    """At the interpreter's end, or at the system's limit."""

    def start(self):
        raise RuntimeError("can't start new thread")

    with staged(delay=(0.0, 0.0)) as device:
        x = up(numbers())
        event = device.current_stream("sim:0").record()
        event.wait()
        monkeypatch.setattr(copiers, "_copiers", copiers.Copiers(2))
        monkeypatch.setattr(threading.Thread, "start", start)
        late = bytearray(1)
        copiers.submit(late.__setitem__, 0, 7).result(120)
        assert late[0] == 7
        monkeypatch.undo()
        assert (ferry.to_numpy(x) == numbers()).all()
