"""Faults put into the library, one at a time: each is found by one of the probes, or this says which has escaped."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from tests.support import ROOT, SOURCE, forked

pytest.importorskip("torch")


class Fault(NamedTuple):
    """What a line is changed to.

    Args:
        name: What is wrong then.
        module: The module below ``tensorferry``.
        old: Text that stands there once.
        new: What stands there instead.
        probes: Those of which one has to find it.
    """

    name: str
    module: str
    old: str
    new: str
    probes: tuple[str, ...]


FAULTS = (
    Fault(
        "what comes into page-locked memory is not waited for",
        "devices.pinned",
        "    if stream is not None:\n        stream.record().wait()\n",
        "",
        ("pinned_results_are_complete",),
    ),
    Fault(
        "it is waited for by an event that is recorded before its copy",
        "devices.pinned",
        "    landed = landed.copy_(x, non_blocking=stream is not None)\n"
        "    if stream is not None:\n        stream.record().wait()\n",
        "    early = stream.record()\n    landed = landed.copy_(x, non_blocking=True)\n    early.wait()\n",
        ("pinned_results_are_complete",),
    ),
    Fault(
        "page-locked memory is given back before it is read",
        "devices.pinned",
        "    return x if locked is None else locked.copy_(x)\n",
        "    import ctypes, torch\n"
        "    at, shape = locked.copy_(x).data_ptr(), x.shape\n"
        "    return torch.frombuffer((ctypes.c_char * x.nbytes).from_address(at), dtype=x.dtype).reshape(shape)\n",
        ("the_source_may_change_at_once",),
    ),
    Fault(
        "page-locked memory is not filled",
        "devices.pinned",
        "    return x if locked is None else locked.copy_(x)\n",
        "    return x if locked is None else locked\n",
        ("the_source_may_change_at_once",),
    ),
    Fault(
        "the side stream does not wait for what makes the sources",
        "devices.streams",
        "                        stream.wait_for(reached.event)\n",
        "                        pass\n",
        ("a_started_transfer_is_complete",),
    ),
    Fault(
        "the events of a transfer are recorded before it is queued",
        "devices.streams",
        "                value = do()\n",
        "                early = {each: self.of(each).record() for each in places}\n"
        "                value = do()\n"
        "                return value, tuple(PlaceEvent(*each) for each in early.items())\n",
        ("a_started_transfer_is_complete", "batches_are_waited_for_by_the_consumers_stream"),
    ),
    Fault(
        "the side stream is not made the current one",
        "devices.streams",
        "                stack.enter_context(stream)\n",
        "",
        ("a_started_transfer_goes_beside_other_work",),
    ),
    Fault(
        "the stream that uses a result does not wait for it",
        "devices.streams",
        "            stream.wait_for(event)\n            for tensor",
        "            for tensor",
        ("batches_are_waited_for_by_the_consumers_stream",),
    ),
    Fault(
        "the allocator is not told who uses a result",
        "devices.streams",
        "                stream.uses(tensor)\n",
        "                pass\n",
        ("a_result_is_used_while_it_is_dropped", "a_batch_is_used_after_it_is_dropped"),
    ),
    Fault(
        "what is started is not waited for",
        "transfers.begin",
        "    for reached in after:\n        reached.event.wait()\n",
        "",
        ("a_started_transfer_is_complete", "a_started_transfer_keeps_its_source"),
    ),
    Fault(
        "a transfer is taken for one that needs no stream",
        "transfers.begin",
        "    before = events_of(sources)\n",
        "    before = ()\n",
        ("a_started_transfer_is_complete",),
    ),
    Fault(
        "the source writes on while its batch is read",
        "transfers.one_pass",
        "                reached.place.current.wait_for(reached.event)\n",
        "                pass\n",
        ("batches_of_a_device_that_are_written_again",),
    ),
    Fault(
        "the allocator is not told that a batch is read",
        "transfers.one_pass",
        "                self._streams.of(reached.place).uses(tensor)\n",
        "                pass\n",
        ("batches_of_another_stream_are_read_first",),
    ),
    Fault(
        "page-locked batches are not waited for before they are filled again",
        "transfers.one_pass",
        "        if any(plan.source.pinned for plan in plans):\n",
        "        if False:\n",
        ("batches_are_right_when_their_memory_is_filled_again",),
    ),
    Fault(
        "nobody waits for a consumer that is behind",
        "transfers.one_pass",
        "            for reached in () if skipped else taken:\n                reached.event.wait()\n",
        "",
        ("a_loop_that_never_waits_holds_few_batches",),
    ),
    Fault(
        "the stream is that of the current device, whichever is asked for",
        "backends.torch.devices",
        "current_stream(int(index) if index else None)",
        "current_stream(None)",
        ("the_current_device_is_nobodys_business",),
    ),
    Fault(
        "a side stream is one of the first device",
        "backends.torch.devices",
        "self.torch.Stream(device=self.torch.device(device))",
        "self.torch.Stream(device=self.torch.device(device).type + ':0')",
        ("a_started_transfer_is_for_every_stream",),
    ),
    Fault(
        "events wait for nothing on the host",
        "backends.torch.devices",
        "        self.event.synchronize()\n",
        "        pass\n",
        ("pinned_results_are_complete",),
    ),
    Fault(
        "a transfer to the host is not waited for",
        "backends.torch.bound",
        "to_host: Callable[[Any], Any] = backend.tensor.cpu",
        'to_host: Callable[[Any], Any] = lambda x: x.to("cpu", non_blocking=True)',
        ("to_the_host_is_complete", "to_the_host_is_complete_without_blocking"),
    ),
    Fault(
        "what is written into page-locked memory is not waited for",
        "backends.torch.tensors",
        "            self.accelerators.wait(x.device)\n",
        "            pass\n",
        ("written_memory_is_complete",),
    ),
    Fault(
        "leaves of several devices are taken for those of one",
        "trees.grouped",
        "return step.backend, step.verb, plan.source.device, step.arguments",
        "return step.backend, step.verb, 'sim:0', step.arguments",
        ("trees_to_the_host_are_complete",),
    ),
)
"""Each is what somebody could have written, or left out."""

IMPORTER = """
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder, SourceFileLoader

root, module, old, new, *names = sys.argv[1:]
sys.path.append(root)

class Faulty(SourceFileLoader):
    def get_code(self, name):
        text = self.get_source(name)
        assert text.count(old) == 1
        return compile(text.replace(old, new), self.path, "exec")

class Finder(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != module:
            return None
        spec = PathFinder.find_spec(name, path)
        spec.loader = Faulty(name, spec.origin)
        return spec

sys.meta_path.insert(0, Finder())
from tests.device.probes import main
sys.exit(main(names))
"""
"""A process in which a module's source is changed when it is imported, and then probes are run."""

FOUND = 3
"""What such a process ends with when a probe has found something."""


def run(fault, slowness=1):
    """What the probes say of a fault: how the process ended, what it printed, its errors."""
    # PyTorch is there already; the device and the library are not.
    return forked(
        ("pytest", "torch"),
        IMPORTER,
        *(ROOT, f"tensorferry.{fault.module}", fault.old, fault.new, *fault.probes),
        FERRY_DEVICE_SLOWNESS=str(slowness),
    )


def test_there_are_many_faults():
    """No fewer than were promised, and each changes what stands in the source once."""
    assert len(FAULTS) >= 12
    for fault in FAULTS:
        text = (
            SOURCE.joinpath("tensorferry", *fault.module.split("."))
            .with_suffix(".py")
            .read_text(encoding="utf-8")
        )
        assert text.count(fault.old) == 1, f"{fault.name}: not in {fault.module}, or more than once"


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name.replace(" ", "-") for fault in FAULTS])
def test_a_fault_is_found(sim, fault):
    """By a probe that says what is wrong: not by a process that cannot begin."""
    status, out, err = run(fault)
    if status == 0:  # what is wrong has been too early by less than this machine is late
        status, out, err = run(fault, slowness=10)
    assert status != 0, f"it has escaped: {fault.name}"
    assert status == FOUND, f"ended with {status}\n{out[-1000:]}\n{err[-3000:]}"


def test_without_a_fault_nothing_is_found(sim):
    """In the same way, of a module that is changed to what it is."""
    status, out, err = run(FAULTS[0]._replace(new=FAULTS[0].old))
    assert status == 0, f"ended with {status}\n{out[-1000:]}\n{err[-3000:]}"
