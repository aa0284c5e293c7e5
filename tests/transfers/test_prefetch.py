"""`prefetch`: order, exceptions in their place, bounds, and an end without a thread left; on the host and beside it."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import traceback
import warnings
import weakref

import numpy as np
import pytest
from tests import simulated
from tests.support import ROOT, SOURCE, survives
from tests.transfers.conftest import ours, until

import tensorferry as ferry
from tensorferry.transfers import one_pass

HOST, DEVICE = {"to": "torch"}, {"to": "simulated", "device": "sim:0"}
BOTH = pytest.mark.parametrize("where", [HOST, DEVICE], ids=["host", "device"])


def batches_of(count, size=3):
    return ({"x": np.full(size, i), "i": i} for i in range(count))


def prefetch(source, where, **keywords):
    where = dict(where)
    return ferry.prefetch(source, where.pop("to"), **where, **keywords)


def seen(batch):
    """The number of a batch of `batches_of`, as its values tell it."""
    numbers = set(ferry.to_list(batch["x"]))
    assert numbers == {batch["i"]}
    return batch["i"]


class Source:
    """An iterable that counts how far it has been read."""

    def __init__(self, count, fails_at=None):
        self.count = count
        self.fails_at = fails_at
        self.read = 0
        self.ended = False

    def __iter__(self):
        try:
            for batch in batches_of(self.count):
                if batch["i"] == self.fails_at:
                    raise KeyError("the source broke")
                self.read += 1
                yield batch
        finally:
            self.ended = True


# -- what is promised -----------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("depth", [1, 2, 5])
def test_order_and_completeness(device, where, depth):
    """Every batch once, in the source's order, whatever the depth; containers and other leaves as they are."""
    found = [seen(batch) for batch in prefetch(batches_of(40), where, depth=depth)]
    assert found == list(range(40))


@BOTH
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_no_more_than_depth_batches_are_ahead(device, where, depth):
    """Read from the source and not given: at most `depth`; the device makes use of all of them."""
    source = Source(30)
    handed, most = 0, 0
    for batch in prefetch(source, where, depth=depth):
        handed += 1
        expected = min(depth, 30 - handed) if where is DEVICE else 0
        assert until(lambda expected=expected, handed=handed: source.read - handed == expected)
        most = max(most, source.read - handed)
        del batch
    assert most <= depth
    assert handed == 30


@BOTH
@pytest.mark.parametrize("at", [0, 1, 7])
def test_an_exception_comes_in_its_place_with_its_traceback(device, where, at):
    """The good batches before it come first; afterwards there is nothing more, and the thread is gone."""
    running = prefetch(Source(20, fails_at=at), where)
    found = []
    with pytest.raises(KeyError, match="the source broke") as caught:
        found += (seen(batch) for batch in iter(lambda: next(running), None))
    assert found == list(range(at))
    assert "__iter__" in [frame.name for frame in traceback.extract_tb(caught.tb)]
    with pytest.raises(StopIteration):
        next(running)
    assert until(lambda: not ours())


@BOTH
def test_a_batch_that_cannot_be_converted_raises_in_its_place(device, where):
    """The error of the conversion, with the path in the batch, after the batches before it."""
    source = [{"x": np.ones(2)}, {"x": np.ones(2)}, {"x": np.array([0.5])}, {"x": np.ones(2)}]
    running = prefetch(source, where, dtype={"x": "int8"})
    assert [ferry.to_list(next(running)["x"]) for _ in range(2)] == [[1, 1], [1, 1]]
    with pytest.raises(ferry.LossyCastError, match=r'\$\["x"\]'):
        next(running)
    assert list(iter(lambda: next(running, None), None)) == []


@BOTH
def test_a_conversion_that_stops_is_not_the_end(device, where):
    """A StopIteration of the caller's own is an error, and not an empty loop."""
    answers = iter([True])
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(prefetch([np.ones(2)] * 3, where, leaves=lambda _: next(answers)))


@BOTH
def test_nothing_is_read_before_the_first_batch_is_asked_for(device, where):
    """Like a generator."""
    source = Source(3)
    running = prefetch(source, where)
    assert source.read == 0
    assert not ours()
    next(running)
    assert source.read >= 1
    running.close()


def test_on_the_host_there_is_no_thread_and_nothing_is_ahead():
    """A pass-through: what `convert` gives, when it is asked for, with the memory that it shares."""
    arrays = [np.zeros(3) for _ in range(4)]
    running = ferry.prefetch(iter(arrays), "torch")
    for array, tensor in zip(arrays, running, strict=True):
        assert ferry.shares_memory(array, tensor)
        assert not ours()
    assert running.stats() == (4, *running.stats()[1:3], False)


@pytest.mark.parametrize("dtype", [None, "fit", "default", "float32"])
def test_on_the_host_batches_of_any_kind_come_one_after_the_other(dtype):
    """Trees and tensors alone, whatever the dtype says of both."""
    batches = [{"x": np.ones(2)}, {"x": np.zeros(3)}, np.ones(2), np.zeros(3), [np.ones(2)]]
    found = list(ferry.prefetch(batches, "torch", dtype=dtype))
    assert [type(each) for each in found] == [
        dict,
        dict,
        type(found[0]["x"]),
        type(found[0]["x"]),
        list,
    ]
    expected = ferry.convert_tree(batches, "torch", dtype=dtype)
    told = [
        {path: info.dtype for path, info in ferry.describe_tree(each).items()}
        for each in (found, expected)
    ]
    assert told[0] == told[1]
    assert ferry.to_list(found[3]) == [0, 0, 0]


def test_leaves_that_are_no_tensors_decide_nothing(device):
    """A first batch without a tensor says nothing about the rest."""
    found = list(ferry.prefetch([None, "text", {"x": np.ones(2)}], "simulated", device="sim:1"))
    assert found[:2] == [None, "text"]
    assert found[2]["x"].device == "sim:1"


def test_stats_tell_what_has_been_done(device):
    """Batches that were given, and that there is a thread."""
    with prefetch(batches_of(5), DEVICE) as running:
        assert running.stats() == (0, 0.0, 0.0, False)
        next(running), next(running)
        stats = running.stats()
        assert (stats.batches, stats.threaded) == (2, True)
        assert stats.data_seconds > 0


def asking(monkeypatch):
    """What is set once a consumer asks the thread for a batch."""
    found, take = threading.Event(), one_pass.Worker.take
    monkeypatch.setattr(one_pass.Worker, "take", lambda self: found.set() or take(self))
    return found


def test_stats_put_waiting_down_to_what_the_thread_does_meanwhile(device, monkeypatch):
    """While it reads the source: data; while it converts: copies; while nobody waits: nothing."""
    now = [0.0]
    for module in (one_pass, one_pass):
        monkeypatch.setattr(module, "perf_counter", lambda: now[0])
    asked = asking(monkeypatch)

    class Slow:
        def __array__(self, dtype=None, copy=None):
            now[0] += 5
            return np.ones(2)

    def source():
        yield np.ones(2)
        asked.wait(simulated.PATIENCE)
        now[0] += 3
        yield Slow()

    leaves = lambda x: isinstance(x, (Slow, np.ndarray))  # noqa: E731
    running = ferry.prefetch(source(), "simulated", device="sim:0", depth=1, leaves=leaves)
    next(running)
    asked.clear()
    now[0] += 100
    next(running)
    assert running.stats()[1:3] == (3, 5)


# -- sources --------------------------------------------------------------------------------------


@BOTH
def test_a_dataloader(device, where):
    """torch.utils.data.DataLoader, with the batches that it makes."""
    torch = pytest.importorskip("torch")
    data = torch.utils.data.TensorDataset(torch.arange(20.0).reshape(10, 2), torch.arange(10))
    loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=0)
    found = list(prefetch(loader, where))
    assert [type(batch) for batch in found] == [list] * 3
    assert [ferry.to_list(labels) for _, labels in found] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert ferry.to_list(found[2][0]) == [[16, 17], [18, 19]]


@BOTH
def test_a_tensorflow_dataset(device, where):
    """tf.data.Dataset, dicts of tensors."""
    tensorflow = pytest.importorskip("tensorflow")
    data = tensorflow.data.Dataset.from_tensor_slices(
        {"x": np.arange(6.0), "y": np.arange(6)}
    ).batch(2)
    found = list(prefetch(data, where))
    assert [ferry.to_list(batch["y"]) for batch in found] == [[0, 1], [2, 3], [4, 5]]
    assert ferry.to_list(found[1]["x"]) == [2, 3]


def test_from_a_device_to_the_host(device):
    """Sources on a device are converted ahead too, and arrive complete."""
    there = (
        ferry.convert(np.full(4, i), "simulated", device="sim:0", non_blocking=True)
        for i in range(20)
    )
    running = ferry.prefetch(there, "numpy")
    assert [array.tolist() for array in running] == [[i] * 4 for i in range(20)]
    assert running.stats().threaded


def test_from_one_device_to_another(device):
    """Values that the first device is still computing arrive on the second one."""
    there = [ferry.convert(np.full(4, i), "simulated", device="sim:0") for i in range(20)]
    computed = (device.compute(lambda values: values * 2, x) for x in there)
    found = list(ferry.prefetch(computed, "simulated", device="sim:1"))
    assert {x.device for x in found} == {"sim:1"}
    assert [ferry.to_list(x)[0] for x in found] == [2 * i for i in range(20)]


# -- the end --------------------------------------------------------------------------------------


def test_leaving_a_with_ends_the_thread(device):
    """And the source is let go of, in the middle."""
    source = Source(100)
    with prefetch(source, DEVICE) as running:
        next(running)
        assert len(ours()) == 1
    assert until(lambda: not ours() and source.ended)
    with pytest.raises(ValueError, match="is closed"):
        next(running)
    with pytest.raises(ValueError, match="is closed"):
        iter(running)
    running.close()


def test_a_break_and_dropping_it_end_the_thread(device):
    """Without a collection: there is no reference cycle, and the thread holds no reference to it."""
    source = Source(100)
    running = prefetch(source, DEVICE)
    for batch in running:
        if seen(batch) == 3:
            break
    gone = weakref.ref(running)
    gc.disable()
    try:
        del running, batch
        assert gone() is None
        assert until(lambda: not ours() and source.ended)
    finally:
        gc.enable()


@BOTH
@pytest.mark.unwatched  # which keeps what a call was given
def test_its_memory_is_given_back(device, where):
    """Batches that were ahead are not kept by a closed one."""
    arrays = [np.zeros(10) for _ in range(10)]
    alive = [weakref.ref(array) for array in arrays]
    running = prefetch(iter(arrays), where, depth=4)
    del arrays
    next(running)
    running.close()
    assert until(lambda: not [each for each in alive if each() is not None])
    device.synchronize()
    assert device.locked == 0


def test_a_source_that_never_answers_does_not_hold_close_up(device):
    """Closing gives up after its patience; the thread ends when the source answers."""
    answer = threading.Event()

    def stuck():
        yield np.ones(2)
        answer.wait(simulated.PATIENCE)
        yield np.ones(2)

    running = ferry.prefetch(stuck(), "simulated", device="sim:0")
    next(running)
    running.close()
    assert len(ours()) == 1
    answer.set()


def test_what_a_source_gives_after_the_end_is_not_converted(device):
    """Nobody wants it."""
    answer, seen = threading.Event(), []

    class Late:
        def __array__(self, dtype=None, copy=None):
            seen.append(self)
            return np.ones(2)

    def stuck():
        yield np.ones(2)
        answer.wait(simulated.PATIENCE)
        yield Late()

    running = ferry.prefetch(stuck(), "simulated", device="sim:0")
    next(running)
    running.close()
    answer.set()
    assert until(lambda: not ours())
    assert not seen


def test_closing_wakes_a_consumer_that_waits(device, monkeypatch):
    """It raises instead of waiting for ever, and does not take this for the source's end."""
    monkeypatch.setattr(one_pass, "PATIENCE", 0.0)
    asked = asking(monkeypatch)
    answer = threading.Event()

    def stuck():
        yield np.ones(2)
        answer.wait(simulated.PATIENCE)

    running = ferry.prefetch(stuck(), "simulated", device="sim:0")
    next(running)
    asked.clear()
    raised = []

    def consume():
        try:
            next(running)
        except ValueError as error:
            raised.append(error)

    thread = threading.Thread(target=consume)
    thread.start()
    assert asked.wait(simulated.PATIENCE)
    running.close()
    thread.join(simulated.PATIENCE)
    answer.set()
    assert len(raised) == 1


@BOTH
def test_a_source_that_can_be_read_again_is_read_again(device, where):
    """Each `for` is a pass from the beginning, after the end, after a `break` and after an error."""
    source = Source(4)
    running = prefetch(source, where)
    for _ in range(2):
        assert [seen(batch) for batch in running] == [0, 1, 2, 3]
    for batch in running:
        if seen(batch) == 1:
            break
    assert [seen(batch) for batch in running] == [0, 1, 2, 3]
    assert running.stats().batches == 14
    source.fails_at = 2
    with pytest.raises(KeyError):
        list(running)
    assert list(iter(lambda: next(running, None), None)) == []
    source.fails_at = None
    assert [seen(batch) for batch in running] == [0, 1, 2, 3]
    running.close()
    assert until(lambda: not ours())


@BOTH
def test_a_second_loop_ends_the_first(device, where):
    """Which says so, instead of going on somewhere in the other's batches; `next` goes on with the latest."""
    running = prefetch(Source(4), where)
    first = iter(running)
    assert iter(first) is first
    assert seen(next(first)) == 0
    second = iter(running)
    assert seen(next(second)) == 0
    with pytest.raises(ValueError, match="another one over the same prefetch has begun"):
        next(first)
    assert seen(next(running)) == 1
    assert [seen(batch) for batch in second] == [2, 3]


@BOTH
def test_a_generator_gives_one_pass_and_then_an_error_instead_of_an_empty_loop(device, where):
    """A loop after a `break` goes on with it, as with the generator itself."""
    running = prefetch(batches_of(4), where)
    assert seen(next(iter(running))) == 0
    assert [seen(batch) for batch in running] == [1, 2, 3]
    with pytest.raises(RuntimeError, match="make another"):
        iter(running)


class Kept:
    """As a DataLoader with persistent workers: one iterator, which is set back for each pass."""

    def __init__(self, count):
        self.count = count
        self.iterator = None

    def __len__(self):
        return self.count

    def __iter__(self):
        self.iterator = self.iterator or KeptIterator()
        self.iterator.left = batches_of(self.count)
        return self.iterator


class KeptIterator:
    def __iter__(self):
        return self

    def __next__(self):
        return next(self.left)


@BOTH
def test_a_loader_in_epochs_that_keeps_its_iterator(device, where):
    """A pass that was left does not read on in the next one's batches: each epoch has every batch once."""
    torch = pytest.importorskip("torch")
    for loader in (
        Kept(6),
        torch.utils.data.DataLoader([{"x": np.full(3, i), "i": i} for i in range(6)], None),
    ):
        with prefetch(loader, where) as running:
            assert len(running) == 6
            for _ in range(3):
                assert [seen(batch) for batch in running] == list(range(6))
                next(iter(running))


def test_len_is_the_sources():
    """Where it has one; and what has none says so as Python does, and is true all the same."""
    assert len(ferry.prefetch([np.ones(1)] * 3, "torch")) == 3
    assert not ferry.prefetch([], "torch")
    running = ferry.prefetch(iter([np.ones(1)]), "torch")
    with pytest.raises(TypeError, match="has no len"):
        len(running)
    assert running
    running.close()
    with pytest.raises(ValueError, match="is closed"):
        len(running)


# -- what cannot be converted ---------------------------------------------------------------------


def some_bad(count, bad):
    """Batches of which some have values that no int8 holds."""
    return [{"x": np.full(3, 1000 if i in bad else i), "i": i} for i in range(count)]


@BOTH
@pytest.mark.parametrize("bad", [{0}, {1, 2, 5}, {9}, set(range(10)), set()])
def test_bad_batches_are_skipped_and_counted(device, where, bad):
    """With one warning, at the line that asks; the others are all there, in order, in each pass."""
    running = prefetch(some_bad(10, bad), where, dtype={"x": "int8"}, on_error="skip")
    for turn in (1, 2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert [seen(batch) for batch in running] == [i for i in range(10) if i not in bad]
        assert running.skipped == turn * len(bad)
        assert len(caught) == (1 if bad and turn == 1 else 0)
        for each in caught:
            assert each.category is RuntimeWarning
            assert '$["x"]' in str(each.message)
            assert each.filename == __file__
    assert running.stats().batches == 2 * (10 - len(bad))
    assert until(lambda: not ours())


@BOTH
def test_skipped_batches_make_room_for_others(device, where):
    """Never more than `depth` are ahead, however many are skipped."""
    running = prefetch(
        some_bad(30, set(range(1, 30, 2))), where, dtype={"x": "int8"}, on_error="skip", depth=1
    )
    with pytest.warns(RuntimeWarning, match="skipped"):
        assert [seen(batch) for batch in running] == list(range(0, 30, 2))
    assert running.skipped == 15
    device.synchronize()
    assert device.locked == 0


@BOTH
def test_what_the_source_raises_is_never_skipped(device, where):
    """A KeyError of a source, a conversion that raises what is no ConversionError: raised in its place."""
    running = prefetch(Source(5, fails_at=2), where, on_error="skip")
    with pytest.raises(KeyError, match="the source broke"):
        list(running)

    def broken(_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(prefetch([np.ones(1)], where, on_error="skip", leaves=broken))


@BOTH
def test_a_conversion_error_of_the_source_is_the_sources(device, where):
    """One that the source raises, with a conversion of its own, ends it: it is not taken for a batch's."""

    def source():
        yield {"x": np.ones(3), "i": 1}
        ferry.to_numpy(np.array([0.5]), dtype="int8")

    running = prefetch(source(), where, on_error="skip")
    assert seen(next(running)) == 1
    with pytest.raises(ferry.LossyCastError):
        next(running)
    assert running.skipped == 0


# -- interrupts -----------------------------------------------------------------------------------


class Interrupted:
    """An iterator that is interrupted once in the middle, and can go on."""

    def __init__(self, count, at):
        self.left = iter(batches_of(count))
        self.at = at
        self.asked = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.asked += 1
        if self.asked == self.at:
            raise KeyboardInterrupt
        return next(self.left)


@pytest.mark.parametrize("at", [1, 2, 4])
def test_on_the_host_an_interrupt_in_the_source_leaves_it_usable(at):
    """The next batch is the one that would have come; no thread is there."""
    running = prefetch(Interrupted(4, at), HOST)
    found = []
    with pytest.raises(KeyboardInterrupt):
        found.extend(seen(batch) for batch in running)
    assert found == list(range(at - 1))
    found += [seen(batch) for batch in running]
    assert found == [0, 1, 2, 3]
    assert not ours()


def test_on_the_host_an_interrupt_in_a_conversion_loses_no_batch():
    """What has been read is converted when it is asked for again."""
    interrupts = [True]

    class Once:
        def __array__(self, dtype=None, copy=None):
            if interrupts:
                interrupts.pop()
                raise KeyboardInterrupt
            return np.ones(2)

    running = ferry.prefetch(
        iter([Once(), np.zeros(2)]), "torch", leaves=lambda x: not isinstance(x, dict)
    )
    with pytest.raises(KeyboardInterrupt):
        next(running)
    assert [batch.tolist() for batch in running] == [[1, 1], [0, 0]]


def test_a_loop_begins_anew_after_an_interrupt():
    """What can be read again is read again, from the beginning."""
    interrupts = [True]

    class Batches(list):
        def __iter__(self):
            for i, batch in enumerate(batches_of(3)):
                if i == 1 and interrupts:
                    interrupts.pop()
                    raise KeyboardInterrupt
                yield batch

    running = prefetch(Batches(), HOST)
    with pytest.raises(KeyboardInterrupt):
        list(running)
    assert [seen(batch) for batch in running] == [0, 1, 2]


@pytest.mark.parametrize("at", [1, 2])
def test_to_a_device_an_interrupt_in_the_source_leaves_no_thread(device, at):
    """Before there is a thread it can go on; in the thread it is the source's end, in its place."""
    running = prefetch(Interrupted(4, at), DEVICE)
    with pytest.raises(KeyboardInterrupt):
        list(running)
    assert [seen(batch) for batch in running] == [0, 1, 2, 3] if at == 1 else True
    assert until(lambda: not ours())


def test_an_interrupt_while_a_thread_is_started_loses_nothing(device, monkeypatch):
    """The thread runs or it does not: batches come once, in order, and no thread is left."""
    start = threading.Thread.start
    for before in (True, False):

        def interrupted(thread, before=before):
            if thread.name != "tensorferry prefetch":
                return start(thread)
            monkeypatch.setattr(threading.Thread, "start", start)
            if not before:
                start(thread)
            raise KeyboardInterrupt

        monkeypatch.setattr(threading.Thread, "start", interrupted)
        running = prefetch(batches_of(5), DEVICE)
        with pytest.raises(KeyboardInterrupt):
            next(running)
        assert [seen(batch) for batch in running] == [0, 1, 2, 3, 4]
        assert until(lambda: not ours())


@pytest.mark.unwatched  # it counts what is read
def test_wrong_arguments_are_said_at_once():
    """Before anything is read."""
    source = Source(1)
    for wrong, error, words in [
        ({"depth": 0}, ValueError, "at least 1"),
        ({"depth": 1.5}, TypeError, "depth must be an integer, not 1.5"),
        ({"depth": "2"}, TypeError, "depth must be an integer, not '2'"),
        ({"dtype": "no such"}, TypeError, "no such"),
        ({"casting": "wild"}, ValueError, "casting"),
        ({"grad": "keep"}, ValueError, "grad"),
        ({"device": "cuda:63"}, ferry.DeviceError, "cuda"),
        ({"leaves": "all"}, ValueError, "leaves"),
        ({"out": np.zeros(1)}, TypeError, "out="),
        ({"wings": True}, TypeError, "wings"),
        ({"on_error": "ignore"}, ValueError, "on_error"),
        ({"like": np.ones(1)}, TypeError, "one of to and like"),
    ]:
        with pytest.raises(error, match=words):
            ferry.prefetch(source, "torch", **wrong)
    with pytest.raises(TypeError, match="one of to and like"):
        ferry.prefetch(source)
    with pytest.raises(TypeError, match="not an int"):
        ferry.prefetch(3, "torch")
    for one in ({"x": np.ones(2)}, "abc", b"abc"):
        with pytest.raises(TypeError, match="is one value"):
            ferry.prefetch(one, "torch")
    with pytest.raises(ferry.UnknownFrameworkError):
        ferry.prefetch(source, "nobody")
    assert source.read == 0


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, pickle.dumps])
def test_neither_a_prefetch_nor_a_transfer_is_copied(again):
    """Two would read one source by one thread."""
    for each in (ferry.prefetch([np.ones(2)], "torch"), ferry.start(np.ones(2), "torch")):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            again(each)


@pytest.mark.parametrize("shared", [False, True], ids=["one each", "one for all"])
def test_eight_threads(device, shared):
    """Each its own prefetch, or all the same one: every batch comes once, with its values."""
    common = prefetch(batches_of(80), DEVICE, depth=3) if shared else None
    found, lock = [], threading.Lock()

    def consume():
        for batch in common if shared else prefetch(batches_of(10), DEVICE):
            with lock:
                found.append(seen(batch))

    threads = [threading.Thread(target=consume) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == (list(range(80)) if shared else sorted(list(range(10)) * 8))


@pytest.mark.parametrize("state", ["ahead", "in the source", "raised", "on the host"])
def test_the_interpreter_ends_cleanly(state):
    """In the middle of a loop, with a thread in a source that never answers: no hang, no word on stderr."""
    survives(
        """
        import sys, threading, numpy as np, tensorferry as ferry
        from tests import simulated
        installed = simulated.installed(delay=(0.0, 0.01))
        installed.__enter__()
        state = sys.argv[1]
        def source():
            yield np.ones(1000)
            if state == "in the source":
                threading.Event().wait()
            if state == "raised":
                raise KeyError("never read")
            while True:
                yield np.ones(1000)
        running = ferry.prefetch(source(), "simulated", device="cpu" if state == "on the host" else "sim:0")
        next(running)
        """,
        state,
        PYTHONPATH=f"{SOURCE}:{ROOT}",
    )


@BOTH
@pytest.mark.parametrize("closes", [False, True])
def test_a_thread_that_waits_for_its_turn_while_another_comes_to_the_end(
    device, monkeypatch, where, closes
):
    """It has asked before the end, and gets its turn after it: there is nothing more, and no error of ours."""
    asked, over, found = threading.Event(), threading.Event(), []
    running = prefetch(batches_of(2), where)
    iterator, step = iter(running), one_pass.OnePass._next

    def in_turn(self):
        if threading.current_thread() is late:
            asked.set()
            assert over.wait(simulated.PATIENCE)
        return step(self)

    def consume():
        try:
            found.extend(iterator)
        except ValueError as error:
            found.append(error)

    late = threading.Thread(target=consume)
    monkeypatch.setattr(one_pass.OnePass, "_next", in_turn)
    late.start()
    assert asked.wait(simulated.PATIENCE)
    assert [seen(batch) for batch in iterator] == [0, 1]
    if closes:
        running.close()
    over.set()
    late.join(simulated.PATIENCE)
    assert not late.is_alive()
    assert ["closed" in str(error) for error in found] == [True] * closes
