"""How far a reader walks who follows a first call: the modules that it enters, and how often it climbs.

A room is a module of ours that is entered on the way to the result. A climb is a return into a module
of a higher floor that then goes on. What an import runs is not counted, and neither are the methods that every
named tuple has.
"""

from __future__ import annotations

import json

import pytest
from tests.imports.architecture import FLOORS
from tests.support import survives

WALK = """
import json, os, sys
import numpy as np, torch
import tensorferry as ferry

FLOORS = {floors!r}
SOURCE = os.path.dirname(ferry.__file__) + os.sep
NAMED_TUPLE = os.path.join(SOURCE, "hints", "named_tuple.py")
t = torch.ones(3)
{before}

def floor_of(module):
    return next(place for place, names in enumerate(FLOORS) if module.partition(".")[0] in names)

events, importing = [], 0
def follow(frame, event, argument):
    global importing
    if event not in ("call", "return"):
        return
    file = frame.f_code.co_filename
    if file.startswith("<frozen importlib"):
        importing += 1 if event == "call" else -1
    elif file.startswith(SOURCE) and file != NAMED_TUPLE and not importing:
        events.append((event, file[len(SOURCE):-3].replace(os.sep, ".")))

sys.setprofile(follow)
try:
    {call}
finally:
    sys.setprofile(None)
rooms, stack, climbs, left = [], [], [], None
for event, module in events:
    if event == "call":
        if left and stack[-1] == left[1]:
            climbs.append(left)
        left = None
        stack.append(module)
        if module not in rooms:
            rooms.append(module)
        continue
    stack.pop()
    if stack and stack[-1] != module:
        left = (module, stack[-1]) if floor_of(stack[-1]) < floor_of(module) else None
print(json.dumps([rooms, climbs]))
"""
LOADED = "ferry.to_torch(torch.ones(2)); ferry.to_numpy(np.ones(2))"
"""After this, both frameworks are loaded, and no tensor has been converted to the other."""


def walk(call, before=""):
    """The rooms, and the climbs as pairs of the room that is left and the one that goes on."""
    pytest.importorskip("torch")
    code = WALK.format(call=call, before=before, floors=FLOORS)
    return json.loads(survives(code).splitlines()[-1])


def test_a_first_conversion_walks_ten_rooms():
    """With both frameworks imported, and nothing of ours used yet: the function is only looked up."""
    rooms, climbs = walk("ferry.to_numpy(t)", "ferry.to_numpy")
    assert rooms[0] == "execution.calls"
    assert {"backends.registry", "backends.torch.quick", "backends.numpy.quick"} <= set(rooms)
    assert len(rooms) <= 10, rooms
    assert len(climbs) <= 2, climbs


def test_a_second_conversion_stays_in_its_room():
    """The fast path is called where the call arrives."""
    rooms, climbs = walk("ferry.to_numpy(t)", "ferry.to_numpy(t)")
    assert (rooms, climbs) == (["execution.calls"], [])


def test_a_plan_for_the_host_does_not_ask_about_devices():
    """What is planned is entered once for each of its subjects, and none of them is about a device."""
    rooms, climbs = walk("ferry.to_numpy(t, copy=True)", LOADED)
    planned = {room for room in rooms if room.startswith("planning.")}
    assert planned == {f"planning.{name}" for name in PLANNED}
    assert not {"host.plugins", "backends.torch.containers", "backends.torch.autograd"} & set(rooms)
    # The code of the steps is what `explain` prints. That a table of `core` is asked between two
    # decisions counts as a climb, too.
    assert not {"backends.torch.declared", "backends.numpy.declared"} & set(rooms)
    # The functions that steps are bound to are a room of their own, which a fast path does not need.
    assert len(rooms) <= 25, rooms
    assert len(climbs) <= 33, climbs


PLANNED = ("planner", "builder", "preconditions", "rules", "host_steps")
"""The order of decisions; the plan in the making; what is impossible; the contract; the steps."""
