"""`start`: at once, complete or unreadable, and never wrong."""

from __future__ import annotations

import asyncio
import gc
import threading
import types
import weakref
from contextlib import contextmanager

import numpy as np
import pytest
from tests import simulated
from tests.support import ROOT, SOURCE, TARGETS, survives
from tests.transfers.conftest import ours, until

import tensorferry as ferry
from tensorferry.execution import run


@contextmanager
def stopped(backend):
    """No copy is queued until the block's function is called, or the block ends."""
    gate = threading.Event()

    def delay(nbytes):
        assert gate.wait(simulated.PATIENCE)
        return 0.0

    before, backend.delay = backend.delay, delay
    try:
        yield gate.set
    finally:
        gate.set()
        backend.delay = before


def reachable(thing):
    """Every object that an attribute, an item or a closure leads to, classes and modules aside."""
    seen, rest = {}, [thing]
    while rest:
        found = rest.pop()
        if id(found) in seen or isinstance(found, (type, types.ModuleType, types.FunctionType)):
            continue
        seen[id(found)] = found
        rest += gc.get_referents(found)
    return list(seen.values())


# -- on the host ----------------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
def test_what_stays_on_the_host_is_done_on_return(target):
    """The result is what `convert` gives, without a thread."""
    array = np.arange(6.0, dtype="float32").reshape(2, 3)
    transfer = ferry.start(array, target)
    assert transfer.done()
    assert not ours()
    assert type(transfer.result()) is type(ferry.convert(array, target))
    assert ferry.to_list(transfer.result()) == ferry.to_list(array)
    assert transfer.result() is transfer.result()


def test_a_tree_is_converted_as_a_tree():
    """A list is a tree here too, and what is no tensor stays."""
    tree = {"x": [np.zeros(2), np.ones(3)], "name": "n", "none": None}
    result = ferry.start(tree, "torch", dtype="float32").result()
    assert list(result) == ["x", "name", "none"]
    assert [x.tolist() for x in result["x"]] == [[0, 0], [1, 1, 1]]
    assert (result["name"], result["none"]) == ("n", None)


def test_what_a_plan_shows_is_raised_at_once():
    """Errors that need no value do not wait for `result`."""
    with pytest.raises(ferry.LossyCastError):
        ferry.start(np.array([2**40]), "jax")
    with pytest.raises(ferry.UnsupportedTypeError, match=r'\$\["x"\]'):
        ferry.start({"x": np.array(["a"], "S1").view("V1")}, "torch")
    with pytest.raises(ferry.DeviceError, match="There is no cuda:63 here"):
        ferry.start(np.zeros(2), "torch", device="cuda:63")
    with pytest.raises(TypeError, match="out="):
        ferry.start(np.zeros(2), "numpy", out=np.zeros(2))
    with pytest.raises(TypeError, match="give one of to and like"):
        ferry.start(np.zeros(2))
    with pytest.raises(ValueError, match="leaves must be"):
        ferry.start(np.zeros(2), "numpy", leaves="all")


def test_what_only_the_values_show_is_raised_by_result():
    """Each time, and `done` says that there is nothing to wait for."""
    transfer = ferry.start(np.array([1.5]), "torch", dtype="int32")
    assert transfer.done()
    assert "failed" in repr(transfer)
    for _ in range(2):
        with pytest.raises(ferry.LossyCastError):
            transfer.result()


# -- on a device ----------------------------------------------------------------------------------


def test_it_returns_before_the_copy_and_the_result_is_complete(device):
    """Nothing can be had until the copy is there: `result` runs out of time, no attribute leads to it."""
    with stopped(device) as go:
        transfer = ferry.start({"x": np.arange(5)}, "simulated", device="sim:1")
        assert not transfer.done()
        assert "going on" in repr(transfer)
        with pytest.raises(TimeoutError, match="goes on"):
            transfer.result(timeout=0.01)
        assert not [each for each in reachable(transfer) if isinstance(each, simulated.Tensor)]
        go()
        result = transfer.result(timeout=simulated.PATIENCE)
    assert transfer.done()
    assert result["x"].device == "sim:1"
    assert (device.values(result["x"]) == np.arange(5)).all(), (
        "complete without any waiting of the caller's"
    )
    assert transfer.result() is result
    assert [each for each in reachable(transfer) if isinstance(each, simulated.Tensor)] == [
        result["x"]
    ]


def test_in_a_child_process_nobody_waits_for_ever(device, monkeypatch):
    """The thread that goes on with it is the parent's."""
    with stopped(device) as go:
        transfer = ferry.start(np.arange(5), "simulated", device="sim:1")
        with monkeypatch.context() as child:
            child.setattr("os.getpid", lambda: -1)
            with pytest.raises(RuntimeError, match="not in this process"):
                transfer.result()
        go()
        assert device.values(transfer.result(timeout=simulated.PATIENCE)).tolist() == [
            0,
            1,
            2,
            3,
            4,
        ]
        with monkeypatch.context() as child:
            child.setattr("os.getpid", lambda: -1)
            with pytest.raises(
                ferry.DeviceError, match="sim:1, which a forked child process cannot reach"
            ):
                transfer.result()
        down = ferry.start(transfer.result(), "numpy")
        assert down.result().tolist() == [0, 1, 2, 3, 4]
        with monkeypatch.context() as child:
            child.setattr("os.getpid", lambda: -1)
            assert down.result() is down.result()


def test_it_waits_for_an_event_and_not_for_the_device(device):
    """Work of the caller's that never ends does not hold a transfer up."""
    gate = threading.Event()
    device.current_stream("sim:0").queue(lambda: gate.wait(simulated.PATIENCE))
    try:
        result = ferry.start(np.ones(4), "simulated", device="sim:0").result(
            timeout=simulated.PATIENCE
        )
        assert (device.values(result) == 1).all()
        assert not gate.is_set()
    finally:
        gate.set()


def start_reading_what_is_being_computed(device):
    """A transfer to the host of what the caller's stream computes, and what lets that go on."""
    x = ferry.convert(np.zeros(3), "simulated", device="sim:0")
    with device.held() as go:
        y = device.compute(lambda values: values + 1, x)
    return ferry.start(y, "numpy"), go


def test_it_reads_what_the_callers_stream_has_computed():
    """The side stream waits for what was queued before; with events that lie this fails, so it is tested."""
    with simulated.installed() as honest:
        transfer, go = start_reading_what_is_being_computed(honest)
        assert not transfer.done()
        go()
        assert (transfer.result() == 1).all()
    with simulated.installed(events_lie=True) as liar:
        transfer, go = start_reading_what_is_being_computed(liar)
        assert not (transfer.result() == 1).all()
        go()


def test_the_host_gets_an_ordinary_array(device):
    """Device to host: the bytes are there, the array is writable and nobody else's."""
    x = ferry.convert(np.arange(4.0), "simulated", device="sim:0")
    result = ferry.start(x, "numpy", dtype="float32").result()
    assert result.tolist() == [0, 1, 2, 3]
    assert result.dtype == np.float32
    result[0] = 7
    assert ferry.to_numpy(x)[0] == 0


@pytest.mark.unwatched  # which keeps what a call was given
def test_sources_live_until_it_is_complete_and_no_longer(device):
    """The caller's last reference may go at once."""
    source = np.arange(5)
    alive = weakref.ref(source)
    with stopped(device) as go:
        transfer = ferry.start([source], "simulated", device="sim:0")
        del source
        assert alive() is not None
        go()
        assert ferry.to_list(transfer.result()[0]) == [0, 1, 2, 3, 4]
    assert until(lambda: alive() is None)


def test_a_dropped_transfer_does_no_harm(device):
    """It goes on, and then both sides' memory is given back."""
    sources = [np.full(1000, i) for i in range(20)]
    alive = [weakref.ref(source) for source in sources]
    with stopped(device):
        for source in sources:
            ferry.start(source, "simulated", device="sim:0", non_blocking=True)
        del source, sources
        assert all(each() is not None for each in alive)
    assert until(lambda: not ours())
    device.synchronize()
    assert all(each() is None for each in alive)
    assert device.locked == 0
    assert len(device.transfers) == 20


def test_transfers_of_a_device_share_one_thread(device):
    """However many there are; it is gone when they are done."""
    with stopped(device):
        transfers = [ferry.start(np.full(3, i), "simulated", device="sim:0") for i in range(30)]
        assert len(ours()) == 1
    assert [ferry.to_list(each.result())[0] for each in transfers] == list(range(30))
    assert until(lambda: not ours())


def test_a_failing_leaf_leaves_nothing_behind(device):
    """The error comes from `result` with the leaf's path, and holds no more than itself."""
    tree = {"good": np.ones(3), "bad": np.array([1.5])}
    alive = weakref.ref(tree["good"])
    transfer = ferry.start(
        tree, "simulated", device="sim:0", dtype={"float": "int32"}, coalesce=False
    )
    with pytest.raises(ferry.LossyCastError, match=r'\$\["bad"\]'):
        transfer.result()
    del tree, transfer
    gc.collect()  # an error and the frames that it has come through hold each other
    assert until(lambda: alive() is None)


def test_eight_threads_at_once(device):
    """Each gets its own values, to the device and back."""
    wrong = []

    def use(number):
        for turn in range(25):
            array = np.full(50, 100 * number + turn)
            there = ferry.start({"x": array}, "simulated", device=f"sim:{turn % 2}")
            back = ferry.start(there.result(), "numpy")
            if (back.result()["x"] != array).any():
                wrong.append((number, turn))

    threads = [threading.Thread(target=use, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_like_takes_the_place_of_a_tensor_or_of_each_leaf(device):
    """Framework, dtype and device are those of `like`."""
    there = ferry.convert(np.zeros(1, "float32"), "simulated", device="sim:1")
    assert ferry.start(np.arange(3), like=there).result().device == "sim:1"
    result = ferry.start(
        {"a": np.arange(3), "b": np.arange(2)}, like={"a": there, "b": np.zeros(1)}
    ).result()
    assert (result["a"].device, result["a"].dtype) == ("sim:1", "int64")
    assert result["b"].tolist() == [0, 1]
    result = ferry.start(
        {"a": np.ones(3), "b": np.float16(1)}, like={"a": there, "b": np.zeros(1)}
    ).result()
    assert (result["a"].device, result["a"].dtype) == ("sim:1", "float32")


# -- awaiting -------------------------------------------------------------------------------------


def test_it_can_be_awaited_while_the_loop_goes_on(device):
    """The loop itself lets the copy go, so awaiting neither blocks it nor asks again and again."""

    async def main():
        with stopped(device) as go:
            transfers = [ferry.start(np.full(2, i), "simulated", device="sim:0") for i in range(3)]
            asyncio.get_running_loop().call_soon(go)
            results = await asyncio.gather(*map(_awaited, transfers))
            assert [each.result() for each in transfers] == results
            return [ferry.to_list(each)[0] for each in results]

    assert asyncio.run(main()) == [0, 1, 2]


async def _awaited(transfer):
    return await transfer


def test_awaiting_what_is_done_and_what_fails():
    """A complete one gives its result at once, a failed one raises."""

    async def main():
        assert (await ferry.start(np.arange(2), "numpy")).tolist() == [0, 1]
        with pytest.raises(ferry.LossyCastError):
            await ferry.start(np.array([1.5]), "numpy", dtype="int8")

    asyncio.run(main())


def test_a_cancelled_await_leaves_the_transfer_as_it_was(device):
    """Running out of time is the waiter's affair: the result can still be had, also after the loop is closed."""

    async def main(transfer):
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(_awaited(transfer), 0.01)

    with stopped(device):
        transfer = ferry.start(np.arange(2), "simulated", device="sim:0")
        asyncio.run(main(transfer))
    assert ferry.to_list(transfer.result()) == [0, 1]


# -- the end --------------------------------------------------------------------------------------


def test_the_interpreter_ends_cleanly_while_a_transfer_goes_on():
    """It is finished first; no hang, and nothing is printed but what is asked for here."""
    printed = survives(
        """
        import atexit, threading, numpy as np, tensorferry as ferry
        from tests import simulated
        installed = simulated.installed()
        device = installed.__enter__()
        with device.held() as go:
            transfer = ferry.start(np.ones(3), "simulated", device="sim:0", non_blocking=True)
            while not device.transfers:
                pass  # its thread has not queued the copy yet
        assert not transfer.done()
        threading.Timer(0.2, go).start()  # after the main thread's end, most likely
        atexit.register(lambda: print(transfer.done(), device.values(transfer.result())))
        """,
        PYTHONPATH=f"{SOURCE}:{ROOT}",
    )
    assert printed.strip() == "True [1. 1. 1.]"


def test_importing_starts_no_thread_and_loads_none_of_this():
    """H46: what a process that only converts does not need is not there."""
    survives(
        """
        import sys, threading, numpy as np, tensorferry as ferry
        assert ferry.Transfer and ferry.Prefetch and ferry.start and ferry.prefetch
        ferry.to_numpy([1.0])
        assert threading.active_count() == 1
        loaded = {"asyncio", "concurrent.futures", "optree", "tensorferry.transfers.one_pass"}
        assert not loaded & set(sys.modules), loaded & set(sys.modules)
        """
    )


def test_what_is_planned_is_what_is_run(monkeypatch, device):
    """Each leaf is prepared once, also where another thread converts it; so is the tensor that comes alone."""
    seen = []
    prepare = run.prepare
    monkeypatch.setattr(run, "prepare", lambda x, *rest: seen.append(x) or prepare(x, *rest))
    tree = {"x": np.zeros(2), "y": np.ones(3)}
    for to, place in (("numpy", None), ("simulated", "sim:0")):
        seen.clear()
        ferry.start(tree, to, device=place, copy=True).result(timeout=simulated.PATIENCE)
        assert [id(x) for x in seen] == [id(x) for x in tree.values()]
        seen.clear()
        ferry.start(tree["x"], to, device=place, copy=True).result(timeout=simulated.PATIENCE)
        assert [id(x) for x in seen] == [id(tree["x"])]
