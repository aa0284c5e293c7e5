"""What goes wrong with a device behind the host: each function looks for one thing, and raises what is wrong.

They are tests (`test_under_delays.py`), and what the faults of `test_broken_on_purpose.py` are
caught by. As a program: ``python -m tests.device.probes NAME …``. Where all is right, none depends
on time: a delay is how long what is wrong has to be early.
"""

from __future__ import annotations

import gc
import os
import sys
import warnings
from functools import wraps

import numpy as np
import pytest
import torch
from tests.device import sim

import tensorferry as ferry

SIZE = 1 << 14
SLOWNESS = float(os.environ.get("FERRY_DEVICE_SLOWNESS", "1"))
"""How much slower the device is than it is at first: the host of a busy machine is late itself."""

PROBES = {}
FOUND = 3
"""What the program ends with when a probe finds something."""


def probe(function):
    """Run a probe with slow copies and slow kernels, and see that nothing of it is left."""

    @wraps(function)
    def probing():
        with sim.nothing_left():
            sim.set_delays(copy=0.02 * SLOWNESS, kernel=0.004 * SLOWNESS)
            try:
                function()
            finally:
                for index in range(sim.device_count()):
                    sim.synchronize(index)
                sim.set_delays()
                sim.set_pinned_limit()
                gc.collect()

    PROBES[function.__name__] = probing
    return probing


def computed(value, device="sim:0", size=SIZE):
    """A tensor whose values the device has yet to compute."""
    x = torch.zeros(size, device=device)
    for _ in range(2):
        x += value / 2
    return x


def is_all(x, value):
    """Whether each element is this number, by way of NumPy alone."""
    array = x.detach().cpu().numpy() if isinstance(x, torch.Tensor) else np.asarray(x)
    return array.size > 0 and bool((array == value).all())


def streams(count=1, device="sim:0"):
    """Streams of the user's."""
    return [sim.Stream(device) for _ in range(count)]


# -- to the host ----------------------------------------------------------------------------------


@probe
def to_the_host_is_complete():
    """What the device still computes is there when the call returns."""
    assert is_all(ferry.to_numpy(computed(3)), 3)
    assert set(ferry.to_list(computed(4))) == {4.0}
    assert is_all(ferry.to_torch(computed(5), device="cpu"), 5)


@probe
def to_the_host_is_complete_without_blocking():
    """``non_blocking=True`` gives no unfinished bytes either."""
    assert is_all(ferry.to_torch(computed(3), device="cpu", non_blocking=True), 3)
    found = ferry.convert_tree([computed(4), computed(5)], "torch", device="cpu", non_blocking=True)
    assert is_all(found[0], 4)
    assert is_all(found[1], 5)


@probe
def pinned_results_are_complete():
    """A result in page-locked memory, which the device writes when it comes to it."""
    assert is_all(ferry.to_numpy(computed(3), pinned=True), 3)
    assert is_all(ferry.to_torch(computed(4), device="cpu", pinned=True), 4)


@probe
def pinned_results_keep_their_memory():
    """They are views of nothing that somebody else gets."""
    found = [ferry.to_numpy(computed(each), pinned=True) for each in (1, 2, 3)]
    gc.collect()
    for each, array in enumerate(found, 1):
        assert is_all(array, each)
    del array, found


@probe
def written_memory_is_complete():
    """``out=`` in page-locked and in ordinary memory."""
    for out in (torch.zeros(SIZE, pin_memory=True), torch.zeros(SIZE), np.zeros(SIZE, np.float32)):
        target = "torch" if isinstance(out, torch.Tensor) else "numpy"
        assert is_all(ferry.convert(computed(6), target, out=out), 6)


@probe
def a_source_of_the_users_stream_is_waited_for():
    """Computed on another stream than the default one, which is current."""
    (own,) = streams()
    with sim.stream(own):
        x = computed(3)
        assert is_all(ferry.to_numpy(x), 3)
        assert is_all(ferry.to_numpy(x, pinned=True), 3)
        assert is_all(ferry.start(x, "numpy").result(), 3)
        assert is_all(ferry.convert_tree({"x": x, "y": x + 1}, "numpy")["y"], 4)


@probe
def trees_to_the_host_are_complete():
    """Many leaves in one transfer."""
    tree = {"a": computed(1), "b": [computed(2), computed(3, "sim:1")], "c": np.ones(2)}
    found = ferry.convert_tree(tree, "numpy")
    assert is_all(found["a"], 1)
    assert is_all(found["b"][0], 2)
    assert is_all(found["b"][1], 3)


# -- to a device ----------------------------------------------------------------------------------


@probe
def the_source_may_change_at_once():
    """After a call with ``non_blocking=True`` ordinary memory has been read."""
    array = np.empty(SIZE, np.float32)
    found = []
    for each in range(6):
        array[...] = each
        found.append(ferry.to_torch(array, device="sim", non_blocking=True))
    array[...] = -1
    for each, x in enumerate(found):
        assert is_all(x, each), each


@probe
def a_dropped_source_is_read_first():
    """Page-locked memory that nobody holds any more is given away only after it has been read."""
    for each in range(6):
        up = ferry.to_torch(np.full(SIZE, each, np.float32), device="sim", non_blocking=True)
        pinned = torch.full((SIZE,), float(each)).pin_memory()
        there = ferry.to_torch(pinned, device="sim", non_blocking=True)
        del pinned
        torch.full((SIZE,), -1.0).pin_memory()
        assert is_all(up, each)
        assert is_all(there, each)


@probe
def a_dropped_slice_of_pinned_memory_is_read_first():
    """H83: also a part that does not begin where the block does, to which NumPy has been in between."""
    pinned = torch.arange(4.0 * SIZE, pin_memory=True)
    there = ferry.to_torch(pinned[SIZE : 2 * SIZE], device="sim", non_blocking=True)
    again = ferry.to_torch(pinned.numpy()[SIZE : 2 * SIZE], device="sim", non_blocking=True)
    del pinned
    torch.zeros(4 * SIZE, pin_memory=True)
    expected = np.arange(SIZE, 2 * SIZE)
    assert (there.cpu().numpy() == expected).all()
    assert (again.cpu().numpy() == expected).all()


@probe
def packed_leaves_may_change_at_once():
    """A tree that goes in one transfer, in page-locked memory."""
    arrays = [np.full(100 + each, each, np.float32) for each in range(20)]
    found = ferry.convert_tree(arrays, "torch", device="sim", non_blocking=True)
    for array in arrays:
        array[...] = -1
    for each, x in enumerate(found):
        assert is_all(x, each), each


@probe
def a_batch_on_a_device_is_its_samples():
    """`collate`, whose memory may be used again at once."""
    for non_blocking in (False, True):
        samples = [{"x": np.full(SIZE // 8, each, np.float32)} for each in range(8)]
        batch = ferry.collate(samples, "torch", device="sim:1", non_blocking=non_blocking)
        for sample in samples:
            sample["x"][...] = -1
        found = batch["x"].cpu().numpy()
        assert all((row == each).all() for each, row in enumerate(found))


@probe
def results_are_ordered_with_the_callers_stream():
    """What is queued next on the stream of the caller sees the tensor."""
    (own,) = streams()
    with sim.stream(own):
        x = ferry.to_torch(np.full(SIZE, 3, np.float32), device="sim", non_blocking=True)
        x *= 2
        assert is_all(x, 6)


# -- between devices ------------------------------------------------------------------------------


@probe
def peers_are_ordered():
    """From one device to the other, each with work of its own, and back."""
    x = computed(3)
    there = ferry.to_torch(x, device="sim:1", non_blocking=True)
    x.fill_(-1)
    there *= 2
    assert is_all(ferry.to_torch(there, device="sim:0"), 6)
    assert is_all(ferry.to_torch(there, device="sim:0", dtype="int8"), 6)


@probe
def the_current_device_is_nobodys_business():
    """Each device's tensors, whichever is current; which stays as it is."""
    for index in (0, 1):
        with sim.device(index):
            x, y = computed(3, "sim:0"), computed(4, "sim:1")
            assert is_all(ferry.to_numpy(x), 3)
            assert is_all(ferry.to_numpy(y, pinned=True), 4)
            assert is_all(ferry.start(x, "numpy").result(), 3)
            assert is_all(ferry.start(y, "numpy").result(), 4)
            assert is_all(ferry.start(y, "torch", device="sim:0").result(), 4)
            assert is_all(ferry.start(x, "torch", device="sim:1").result(), 3)
            found = ferry.convert_tree([x, y], "torch", device="sim:1", non_blocking=True)
            assert is_all(found[0], 3)
            assert is_all(found[1], 4)
            assert torch.accelerator.current_device_index() == index
            assert ferry.to_torch(np.ones(3), device="sim").get_device() == index


# -- start ----------------------------------------------------------------------------------------


@probe
def a_started_transfer_is_complete():
    """What `result` gives can be read on the host, and by the stream that asks for it."""
    assert is_all(ferry.start(computed(3), "numpy").result(), 3)
    up = ferry.start(np.full(SIZE, 4, np.float32), "torch", device="sim:1").result()
    up += 1
    assert is_all(up, 5)
    tree = ferry.start(
        {"x": computed(6), "y": np.full(SIZE, 7, np.float32)}, "torch", device="sim:1"
    ).result()
    assert is_all(tree["x"], 6)
    assert is_all(tree["y"], 7)


@probe
def a_started_transfer_is_for_every_stream():
    """Also for one that is current only when the result is used, on each device."""
    for device in ("sim:0", "sim:1"):
        transfer = ferry.start(np.full(SIZE, 4, np.float32), "torch", device=device)
        (own,) = streams(device=device)
        with sim.stream(own):
            x = transfer.result()
            x += 1
            assert is_all(x, 5)


@probe
def a_started_transfer_goes_beside_other_work():
    """Up while the caller's stream is at a halt, for another one to use, and down without blocking."""
    for device in (0, 1):
        (own,) = streams(device=f"sim:{device}")
        with sim.gate(device) as gate:
            up = ferry.start(np.full(SIZE, 4, np.float32), "torch", device=f"sim:{device}")
            with sim.stream(own):
                assert is_all(up.result(timeout=20), 4)
            there = up.result()
            down = ferry.start(there + 1, "numpy")
            assert not gate.is_open()
            assert not down.done()
        assert is_all(down.result(), 5)
    del up, there, down, gate


@probe
def a_started_transfer_keeps_its_source():
    """Sources that nobody else holds, in memory that others ask for at once."""
    transfers = []
    for each in range(6):
        transfers += [
            (each, ferry.start(computed(each), "numpy")),
            (
                each,
                ferry.start(torch.full((SIZE,), float(each)).pin_memory(), "torch", device="sim"),
            ),
            (each, ferry.start(np.full(SIZE, each, np.float32), "torch", device="sim:1")),
        ]
        torch.full((SIZE,), -1.0, device="sim"), torch.full((SIZE,), -1.0).pin_memory()
    for each, transfer in transfers:
        assert is_all(transfer.result(), each), each


@probe
def the_source_may_change_after_the_result():
    """Nothing reads it any more."""
    array = np.full(SIZE, 3, np.float32)
    x, pinned = computed(5), torch.full((SIZE,), 4.0).pin_memory()
    up, down = ferry.start([array, pinned], "torch", device="sim"), ferry.start(x, "numpy")
    found, below = up.result(), down.result()
    array[...], pinned[...] = -1, -1
    x.fill_(-1)
    assert is_all(found[0], 3)
    assert is_all(found[1], 4)
    assert is_all(below, 5)


@probe
def dropped_transfers_do_no_harm():
    """Nobody asks for their results."""
    for each in range(8):
        ferry.start(computed(each), "numpy")
        ferry.start(np.full(SIZE, each, np.float32), "torch", device="sim")
        ferry.start({"x": torch.full((SIZE,), float(each)).pin_memory()}, "torch", device="sim:1")
    gc.collect()
    assert is_all(ferry.start(computed(9), "numpy").result(), 9)


@probe
def a_result_is_used_while_it_is_dropped():
    """Memory of a side stream's that the caller's stream still works on."""
    (own,) = streams()
    kept = []
    with sim.stream(own):
        for each in range(6):
            x = ferry.start(np.full(SIZE, each, np.float32), "torch", device="sim").result()
            for _ in range(3):
                x = x + 0
            kept.append(x)
            del x
    for each, x in enumerate(kept):
        assert is_all(x, each), each
    del x, kept


# -- prefetch -------------------------------------------------------------------------------------


def reused(count, make=lambda: np.zeros(SIZE, np.float32)):
    """The same memory, filled again for each batch."""
    memory = make()
    for each in range(count):
        memory[...] = each
        yield {"x": memory, "n": each}


@probe
def batches_are_right_when_their_memory_is_filled_again():
    """By a source that knows one array only, ordinary or page-locked."""
    for make in (lambda: np.zeros(SIZE, np.float32), lambda: torch.zeros(SIZE, pin_memory=True)):
        with ferry.prefetch(reused(8, make), "torch", device="sim") as batches:
            kept = [(batch["n"], batch["x"]) for batch in batches]
        for each, x in kept:
            assert is_all(x, each), each
        del kept, x, batches


@probe
def batches_are_waited_for_by_the_consumers_stream():
    """The host never waits; each batch is used at once, and dropped while it is used."""
    (own,) = streams()
    with sim.stream(own):
        wrong = torch.zeros(1, device="sim")
        with ferry.prefetch(reused(12), "torch", device="sim") as batches:
            for batch in batches:
                doubled = batch["x"] * 2
                number = batch["n"]
                del batch
                wrong += (doubled != 2 * number).sum()
        assert is_all(wrong, 0)
        del doubled, batches


@probe
def a_batch_is_used_after_it_is_dropped():
    """By work that its consumer's stream has yet to come to, while the next ones arrive."""
    (own,) = streams()
    found = []
    with sim.stream(own), ferry.prefetch(reused(10), "torch", device="sim", depth=1) as batches:
        for batch in batches:
            x, number = batch["x"], batch["n"]
            del batch
            torch.zeros(1, device="sim").add_(1).add_(1).add_(1)
            found.append((number, x * 1))
            del x
    for number, x in found:
        assert is_all(x, number), number
    del found, x, batches


@probe
def batches_of_a_device_are_complete():
    """A source that computes on the device, and whose memory is its own again afterwards."""
    for given in ((computed(each) for each in range(8)), [computed(each) for each in range(8)]):
        for each, array in enumerate(ferry.prefetch(given, "numpy")):
            assert is_all(array, each), each
    del given, array


@probe
def batches_of_another_stream_are_read_first():
    """Memory of a stream of the source's own, which takes it for the next batch at once."""
    (own,) = streams()

    def computing():
        for each in range(8):
            with sim.stream(own):
                x = torch.full((SIZE,), float(each), device="sim")
            sim.current_stream("sim:0").wait_stream(own)
            yield x
            del x

    for each, x in enumerate(ferry.prefetch(computing(), "torch", device="sim:1")):
        assert is_all(x, each), each
    del x


@probe
def batches_of_a_device_that_are_written_again():
    """A source that fills one device tensor for each batch, in the order of its stream."""

    def filled():
        x = torch.zeros(SIZE, device="sim")
        for each in range(8):
            x.fill_(each)
            yield x

    for each, array in enumerate(ferry.prefetch(filled(), "numpy")):
        assert is_all(array, each), each
    for each, x in enumerate(ferry.prefetch(filled(), "torch", device="sim:1")):
        assert is_all(x, each), each
    del array, x


@probe
def an_early_end_leaves_nothing():
    """`break`, `close`, an exception in the loop, and one in the source."""
    batches = ferry.prefetch(reused(100), "torch", device="sim")
    for batch in batches:
        if batch["n"] == 2:
            break
    assert is_all(batch["x"], 2)
    del batch
    batches.close()

    def fails():
        yield from reused(3)
        raise OSError("the end of the disk")

    with ferry.prefetch(fails(), "torch", device="sim") as batches:
        assert [next(batches)["n"] for _ in range(3)] == [0, 1, 2]
        with pytest.raises(OSError, match="disk"):
            next(batches)
    del batches


@probe
def a_loop_that_never_waits_holds_few_batches():
    """At most ``depth + 2`` of them are in a device's memory, those included that its streams still use."""
    size = 1 << 18
    for depth in (1, 2, 4):
        sim.set_delays(copy=0.0005, kernel=0.004 * SLOWNESS)
        sim.synchronize(0)
        before = sim.memory(0, from_now=True).active
        total = torch.zeros(1, device="sim")
        with ferry.prefetch(
            (np.ones(size, np.float32) for _ in range(24)), "torch", device="sim", depth=depth
        ) as batches:
            for batch in batches:
                total += batch.sum()
        del batch, batches
        peak = sim.memory(0).peak - before
        assert is_all(total, 24 * size)
        assert peak < (depth + 2) * 4 * size + (1 << 19), (
            f"depth {depth}: {peak / 4 / size:.1f} batches"
        )
        del total


# -- errors, and too little memory ----------------------------------------------------------------


@probe
def an_error_leaves_nothing():
    """In the middle of a tree, of a transfer and of a loop; what comes next is right."""
    bad = {"a": computed(1), "b": computed(1.5), "c": np.full(SIZE, 2.5, np.float32)}
    for call in (
        lambda: ferry.convert_tree(bad, "numpy", dtype={"float": "int8"}),
        lambda: ferry.convert_tree(
            bad, "torch", device="sim:1", dtype={"float": "int8"}, non_blocking=True
        ),
        lambda: ferry.start(bad, "torch", device="sim:1", dtype={"float": "int8"}).result(),
        lambda: list(ferry.prefetch([bad], "torch", device="sim:1", dtype={"float": "int8"})),
        lambda: ferry.collate([bad, bad], "torch", device="sim:1", dtype={"float": "int8"}),
    ):
        with pytest.raises(ferry.ConversionError):
            call()
        assert is_all(ferry.to_numpy(computed(3)), 3)
        assert is_all(
            ferry.to_torch(np.full(SIZE, 4, np.float32), device="sim:1", non_blocking=True), 4
        )
    out = np.zeros(SIZE, np.int8)
    with pytest.raises(ferry.LossyCastError):
        ferry.to_numpy(computed(1.5), out=out)
    assert is_all(out, 0)


@probe
def without_page_locked_memory_all_goes_on():
    """Slower, with the same values, and never with more than a warning."""
    sim.set_pinned_limit(0)
    size = 3 * SIZE  # of which nothing is kept for the next one
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        array = np.full(size, 3, np.float32)
        x = ferry.to_torch(array, device="sim", non_blocking=True)
        array[...] = -1
        assert is_all(x, 3)
        assert is_all(ferry.to_numpy(computed(4, size=size)), 4)
        assert is_all(ferry.start(computed(5, size=size), "numpy").result(), 5)
        assert is_all(ferry.start(np.full(size, 6, np.float32), "torch", device="sim").result(), 6)
        kept = list(
            ferry.prefetch(reused(4, lambda: np.zeros(size, np.float32)), "torch", device="sim")
        )
        assert all(is_all(batch["x"], batch["n"]) for batch in kept)
        tree = [np.full(size + each, each, np.float32) for each in range(3)]
        found = ferry.convert_tree(tree, "torch", device="sim", non_blocking=True)
        assert all(is_all(each, number) for number, each in enumerate(found))
        del kept, found, x


def main(names):
    """Run probes; the name of the first that finds something is printed, with what it found."""
    for name in names or PROBES:
        try:
            PROBES[name]()
        except BaseException as error:  # noqa: BLE001 - what it is, is the answer
            sys.stdout.write(f"{name}: {type(error).__name__}: {error}\n"[:2000])
            return FOUND
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
