"""`prefetch` to a device: never garbage, a bound on what lies there, and page-locked memory on the way."""

from __future__ import annotations

import threading
import warnings
import weakref
from time import perf_counter

import numpy as np
import pytest
from tests import simulated
from tests.transfers.conftest import ours, until

import tensorferry as ferry
from tensorferry.devices import streams


def reused(count, make, size=64):
    """One memory, filled again for each batch; what `make` makes of it is the batch."""
    array = np.zeros(size)
    for number in range(count):
        array[...] = number
        yield make(array, number)


def wrong_batches(backend, count, depth=2):
    """How many batches a consumer, who never waits for anything, finds wrong on the device."""
    source = reused(count, lambda array, number: {"x": array, "half": array[:32], "n": number})
    checked = []
    consumer = backend.side_stream("sim:0")
    with consumer, ferry.prefetch(source, "simulated", device="sim:0", depth=depth) as batches:
        for batch in batches:
            n = batch["n"]
            bad = backend.compute(
                lambda x, half, n=n: (x != n).sum() + (half != n).sum(), batch["x"], batch["half"]
            )
            checked.append(bad)
            del batch  # the device still works on it
        return sum(ferry.to_list(bad) != 0 for bad in checked), len(checked)


class Load:
    """Threads that keep the processor busy, so that everything happens in unusual orders."""

    def __enter__(self):
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self._work) for _ in range(2)]
        for thread in self.threads:
            thread.start()

    def _work(self):
        while not self.over.wait(0.0005):
            end = perf_counter() + 0.001
            while perf_counter() < end:
                pass

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()


@pytest.mark.parametrize("count", [150, pytest.param(1000, marks=pytest.mark.slow)])
def test_never_garbage_under_load(count):
    """Every value of every batch is right, as the consumer's stream sees it, though nobody waits on the host."""
    with simulated.installed(delay=(0.0, 0.0002)) as backend, Load():
        assert wrong_batches(backend, count) == (0, count)


BROKEN = {
    "events that lie": lambda monkeypatch: {"events_lie": True},
    "streams that do not wait": lambda monkeypatch: monkeypatch.setattr(
        streams.Landed, "result", lambda landed: landed.value
    ),
    "streams that are not recorded": lambda monkeypatch: monkeypatch.setattr(
        simulated.Stream, "uses", lambda stream, tensor: None
    ),
}


@pytest.mark.parametrize("how", BROKEN)
def test_what_is_broken_is_found(how, monkeypatch):
    """The same check finds each safeguard missing, so it is known to be able to fail."""
    settings = BROKEN[how](monkeypatch) or {}
    for slower in (
        1,
        10,
        100,
    ):  # on a busy machine the copies have to be slower yet to be overtaken
        with simulated.installed(delay=(0.002 * slower, 0.006 * slower), **settings) as backend:
            wrong, count = wrong_batches(backend, 60)
        assert count == 60
        if wrong:
            return
    pytest.fail("everything is right without it")


def test_copies_come_from_page_locked_memory_and_are_not_waited_for(device):
    """Every transfer of every leaf; nothing is locked any more at the end."""
    found = list(
        ferry.prefetch(reused(30, lambda array, n: [array, array[:3]]), "simulated", device="sim:1")
    )
    assert [ferry.to_list(batch[1]) for batch in found] == [[n] * 3 for n in range(30)]
    up = [copied for copied in device.transfers if copied.target == "sim:1"]
    assert len(up) == 30
    assert all(copied.pinned and copied.non_blocking for copied in up)
    assert device.locked == 0


def test_batches_that_grow_and_shrink(device):
    """Whatever their sizes are, none at all too."""
    lengths = [5, 3, 50, 50, 7, 51, 52, 53, 0, 200, 1]
    found = list(ferry.prefetch((np.full(n, n) for n in lengths), "simulated", device="sim:0"))
    assert [ferry.to_list(x) for x in found] == [[n] * n for n in lengths]


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_no_more_batches_lie_on_the_device_than_are_wanted(depth):
    """A loop that never synchronises, far ahead of its device: the worker waits for that, the loop does not."""
    with simulated.installed(delay=(0.0, 0.0)) as backend:
        alive, most = [], []
        storage = backend._new

        def counted(shape, dtype, device):
            found = storage(shape, dtype, device)
            if device != "cpu" and shape == (64,):
                alive.append(None)
                # Memory that was used on the consumer's stream is given away when that has come
                # past.
                own = backend.consumer
                weakref.finalize(found._storage, lambda: own.queue(alive.pop)).atexit = False
                most.append(len(alive))
            return found

        backend._new = counted
        backend.consumer = backend.current_stream("sim:0")
        source = (np.full(64, n) for n in range(40))
        for _ in ferry.prefetch(source, "simulated", device="sim:0", depth=depth):
            backend.busy(0.003)
        backend.synchronize()
        assert depth <= max(most) <= depth + 2


@pytest.mark.parametrize("lockable", [0, 1000], ids=["at once", "when a batch is larger"])
def test_without_page_locked_memory_it_goes_on_with_one_message(lockable):
    """The values are right, and the message comes once."""
    lengths = [10, 20, 300, 300, 10, 300, 10]
    with simulated.installed(delay=(0.0, 0.001), lockable=lockable) as backend:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = list(
                ferry.prefetch((np.full(n, n) for n in lengths), "simulated", device="sim:0")
            )
        assert [ferry.to_list(x) for x in found] == [[n] * n for n in lengths]
        assert [each.category for each in caught] == [RuntimeWarning]
        assert "of host memory cannot be page-locked" in str(caught[0].message)
        assert "can be locked" in str(caught[0].message)
        assert any(copied.pinned for copied in backend.transfers) == bool(lockable)
        assert not all(copied.pinned for copied in backend.transfers)
        assert backend.locked == 0


def test_every_kind_of_leaf_beside_each_other(device):
    """Checked casts and lists of numbers beside leaves that do; the values are right all the same."""
    source = (
        {"x": np.full(4, n, "int32"), "checked": np.full(4, n, "int64"), "list": [n, n]}
        for n in range(20)
    )
    running = ferry.prefetch(
        source,
        "simulated",
        device="sim:0",
        dtype="int8",
        leaves=lambda x: isinstance(x, (np.ndarray, list)),
    )
    for n, batch in enumerate(running):
        assert {name: ferry.to_list(x) for name, x in batch.items()} == {
            "x": [n] * 4,
            "checked": [n] * 4,
            "list": [n, n],
        }


def test_casts_narrow_before_the_bus_and_widen_after_it(device):
    """The bytes that cross are those of the smaller dtype."""
    wide = list(
        ferry.prefetch([np.arange(100.0)] * 3, "simulated", device="sim:0", dtype="bfloat16")
    )
    narrow = list(
        ferry.prefetch(
            [np.arange(100, dtype="uint8")] * 3, "simulated", device="sim:0", dtype="float32"
        )
    )
    assert {x.dtype for x in wide} == {"bfloat16"}
    assert {x.dtype for x in narrow} == {"float32"}
    assert ferry.to_list(wide[2]) == ferry.to_list(narrow[2]) == list(range(100))
    assert {copied.nbytes for copied in device.transfers if copied.target == "sim:0"} == {200, 100}


def test_a_tensor_that_is_there_twice_crosses_once(device):
    """Tied leaves stay tied."""
    shared = np.ones(8)
    (batch,) = ferry.prefetch(
        [{"a": shared, "b": [shared, np.zeros(2)]}], "simulated", device="sim:0"
    )
    assert batch["a"] is batch["b"][0]
    assert [copied.nbytes for copied in device.transfers] == [128]


def test_many_leaves(device):
    """Packed into one page-locked block, and one transfer."""
    source = [[np.full(3, n) for n in range(73)]]
    (batch,) = ferry.prefetch(source, "simulated", device="sim:0")
    assert [(copied.pinned, copied.non_blocking) for copied in device.transfers] == [(True, True)]
    assert [ferry.to_list(x)[0] for x in batch] == list(range(73))


def test_a_source_that_fills_its_own_page_locked_memory_again(device):
    """It is asked for the next batch only when this one has been read: no further copy, no garbage."""
    slot = ferry.convert(device.pinned_memory(64 * 8).view(np.float64), "simulated", copy=False)

    def source():
        for n in range(50):
            device.export(slot)[...] = n
            yield {"pinned": slot, "other": np.full(3, n)}

    for n, batch in enumerate(ferry.prefetch(source(), "simulated", device="sim:0")):
        assert ferry.to_list(batch["pinned"]) == [n] * 64
        assert ferry.to_list(batch["other"]) == [n] * 3


def test_a_source_that_fills_memory_of_a_device_again(device):
    """What it does on its stream comes after the copy to the other device."""
    memory = ferry.convert(np.zeros(64), "simulated", device="sim:0")

    def source():
        for n in range(30):
            ferry.convert(np.full(64, n), "simulated", out=memory)
            yield memory

    for n, x in enumerate(ferry.prefetch(source(), "simulated", device="sim:1")):
        assert ferry.to_list(x) == [n] * 64


def test_a_source_works_on_the_consumers_stream(device):
    """As it would if the consumer read it: what the consumer queued before comes first."""
    mine = device.side_stream("sim:0")
    seen = []

    def source():
        for _ in range(3):
            seen.append(device.current_stream("sim:0"))
            yield np.ones(2)

    with mine:
        list(ferry.prefetch(source(), "simulated", device="sim:0"))
    assert seen == [mine] * 3


def test_one_side_stream_for_the_life_of_the_iterator(device, monkeypatch):
    """However many batches there are; and the next one's is the same, with the memory that is kept for it."""
    made = []
    monkeypatch.setattr(
        type(device),
        "side_stream",
        lambda self, where: made.append(where) or self._stream(where, "side"),
    )
    for _ in range(3):
        list(ferry.prefetch([np.ones(2)] * 20, "simulated", device="sim:0"))
        assert until(lambda: not ours())
        ferry.start(np.ones(2), "simulated", device="sim:0").result()
        assert until(lambda: not ours())
    assert made == ["sim:0"]


def test_keys_that_look_alike(device):
    """Two leaves with one path are two leaves: a key may print like another."""

    class Key:
        def __repr__(self):
            return "key"

    batch = {Key(): np.ones(3), Key(): np.zeros(3)}
    (found,) = ferry.prefetch([batch], "simulated", device="sim:0")
    assert [ferry.to_list(found[key]) for key in batch] == [[1] * 3, [0] * 3]


@pytest.mark.parametrize("many", [2, 100])
def test_a_dtype_is_decided_once_by_what_a_leaf_was(device, many):
    """On its way a leaf may have another dtype already, which the mapping names too."""
    asked = {
        "float64": "float32",
        "float32": "bfloat16",
        "bool": "uint8",
        "uint8": "float32",
        "rest.0": "float64",
    }
    tree = {
        "a": np.ones(4),
        "b": np.ones(4, "float32"),
        "c": np.ones(4, bool),
        "d": np.ones(4, "uint8"),
    }
    tree["rest"] = [np.ones(4, "float32") for _ in range(many)]
    expected = {
        path: info.dtype
        for path, info in ferry.describe_tree(
            ferry.convert_tree(tree, "numpy", dtype=asked)
        ).items()
    }
    assert [expected[f'$["{name}"]'] for name in "abcd"] == [
        "float32",
        "bfloat16",
        "uint8",
        "float32",
    ]
    for batch in ferry.prefetch([tree] * 3, "simulated", device="sim:0", dtype=asked):
        assert {path: info.dtype for path, info in ferry.describe_tree(batch).items()} == expected
        assert ferry.to_list(batch["c"]) == [1] * 4


def test_a_tensor_alone_is_converted_as_by_convert_and_in_a_mapping_as_a_leaf(device):
    """One dtype is for it, whatever its kind; a mapping speaks of its own."""
    source = [np.arange(4)] * 2
    assert {
        x.dtype for x in ferry.prefetch(source, "simulated", device="sim:0", dtype="float32")
    } == {"float32"}
    mapping = {"int64": "int32", "int32": "int8"}
    assert {
        x.dtype for x in ferry.prefetch(source, "simulated", device="sim:0", dtype=mapping)
    } == {"int32"}
