"""Backends of outside packages: looked up on a miss only, and what is broken reaches nobody who has not named it."""

from __future__ import annotations

import re
from typing import ClassVar

import pytest
from tests.backends.plugins.packages import BACKEND, FRAMEWORK, install, loads
from tests.cli.plans import everything
from tests.support import lives, survives

from tensorferry.backends import registry, verbs
from tensorferry.backends.base import Backend
from tensorferry.core.capabilities import (
    Capabilities,
    Devices,
    Dtypes,
    Gradients,
    Memory,
    Objects,
    Options,
)

ORDINARY = """
import collections, dataclasses, typing, warnings
import numpy as np
import tensorferry as ferry

class Odd:
    pass

@dataclasses.dataclass
class Batch:
    x: object
    y: object

class Pair(typing.NamedTuple):
    x: object
    y: object

read_only = np.arange(3.0)
read_only.flags.writeable = False
tree = Batch({"a": [np.ones(2), 1]}, Pair(collections.OrderedDict(b=read_only), collections.deque([np.ones(1)])))
ferry.to_numpy([1.0], pinned=False), ferry.convert([1], to='np')
values = [[1, 2], 3.5, np.ones(2), np.float32(1), bytearray(4), memoryview(b"abcd"), read_only]
values.append(np.from_dlpack(np.ones(2)))
for x in values:
    assert ferry.to_list(ferry.to_numpy(x)) == ferry.to_list(x), x
    ferry.describe(x), ferry.explain(x, "torch"), ferry.convert(x, "numpy", dtype="float32", copy=True)
for refused in ({1}, None, "text", {"a": 1}):
    try:
        ferry.to_numpy(refused)
    except ferry.UnsupportedTypeError:
        pass
    else:
        raise SystemExit("converted")
assert ferry.convert_tree(tree, "python").y.x == {"b": [0.0, 1.0, 2.0]}
ferry.snapshot(tree), ferry.collate([tree, tree], "numpy")
ferry.to_numpy([1], dtype="torch.float32"), ferry.to_numpy([1], dtype=np.float16)
"""
WITH_A_FRAMEWORK = """
import torch
from torch.utils.data import default_collate
grad = torch.ones(3, requires_grad=True)
assert not ferry.to_numpy(grad).flags.writeable
assert ferry.to_torch(np.from_dlpack(torch.ones(3))).sum() == 3
ferry.to_numpy(np.from_dlpack(torch.ones(3))), ferry.to_numpy(torch.nn.Parameter(torch.ones(2)))
read = np.from_dlpack(torch.ones(3))
read.flags.writeable = False
ferry.describe(read), ferry.to_torch(read)
assert ferry.convert_tree({"a": grad, "b": torch.nn.utils.rnn.pack_sequence([torch.ones(2)])}, "numpy")["b"]
"""


def loaded(out):
    return out.splitlines()[-1].split()[1:]


def test_who_uses_the_built_in_frameworks_loads_no_outside_package(tmp_path):
    """Arrays, numbers, trees of containers, refusals, a framework with a tracer: no entry point is opened."""
    install(tmp_path, "slabs-ferry", "slabs")
    assert loaded(survives(loads(tmp_path, ORDINARY + WITH_A_FRAMEWORK))) == []


@pytest.mark.parametrize(
    "code",
    [
        "ferry.convert([1.0], 'slabs')",
        "ferry.explain([1.0], 'slabs')",
        "ferry.explain(ferry.TensorInfo('slabs', (3,), 'float32'), 'numpy')",
        "import slabs; ferry.to_numpy(slabs.Tensor(np.ones(2, np.float32)))",
        "import slabs; assert ferry.convert_tree([slabs.Tensor(np.ones(2, np.float32))], 'python') == [[1.0, 1.0]]",
        "import slabs; assert type(ferry.convert([1.0], slabs)) is slabs.Tensor",
        "import slabs; assert type(ferry.convert([1.0], slabs.Tensor)) is slabs.Tensor",
        "assert ferry.convert([1.0], 'slabby').array",
        "import slabs; ferry.describe(slabs.Tensor(np.ones(2, np.float32)))",
        "ferry.to_numpy([1], dtype='slabs.float32')",
        "ferry.frameworks()",
    ],
)
def test_a_miss_opens_what_is_asked_for(tmp_path, code):
    """A name, a type, a prefix that nobody known has: the entry point is found without anybody's registering it."""
    install(tmp_path, "slabs-ferry", "slabs", extra="aliases = ('slabby',)")
    assert loaded(lives(loads(tmp_path, f"import numpy as np, tensorferry as ferry\n{code}"))) == [
        "slabs_ferry"
    ]


def test_only_the_class_of_plain_tensors_names_an_outside_framework(tmp_path):
    """Not a subclass, of which no result is, and not another class of its module."""
    framework = FRAMEWORK + "\nclass Special(Tensor):\n    pass\n\nclass Other:\n    pass\n"
    install(tmp_path, "slabs-ferry", "slabs", framework=framework)
    code = """
    import slabs, tensorferry as ferry
    for kind in (slabs.Special, slabs.Other):
        try:
            ferry.convert([1.0], kind)
        except TypeError as error:
            assert '"slabs"' in str(error), error
        else:
            raise SystemExit(f"{kind} was a target")
    """
    lives(loads(tmp_path, code))


def test_a_name_opens_that_package_alone(tmp_path):
    """Who names one outside framework does not import the packages of others."""
    install(tmp_path, "slabs-ferry", "slabs")
    install(tmp_path, "glass-ferry", "glass", read_only=True)
    code = "import tensorferry as ferry; ferry.convert([1.0], 'glass')"
    assert loaded(lives(loads(tmp_path, code))) == ["glass_ferry"]


def test_an_outside_tensor_is_a_leaf_also_if_it_is_a_dataclass(tmp_path):
    """The first time it is met as the second: who owns its module is looked up before it is taken apart."""
    framework = "import dataclasses\n@dataclasses.dataclass\nclass Tensor:\n    array: object\n"
    install(tmp_path, "slabs-ferry", "slabs", framework=framework)
    code = """
    import numpy as np, slabs, tensorferry as ferry
    for _ in range(2):
        assert ferry.convert_tree([slabs.Tensor(np.ones(2, np.float32))], "python") == [[1.0, 1.0]]
    """
    lives(loads(tmp_path, code))


# -- what is broken ------------------------------------------------------------------------------

CLASS = BACKEND.format(module="slabs", kind="Mine", read_only=False)
BROKEN = {
    "an import that fails": (
        "import no_such_module",
        "ModuleNotFoundError: No module named 'no_such_module'",
    ),
    "an import that ends the process": ("raise SystemExit('no licence')", "SystemExit: no licence"),
    "an import that panics": (
        "class PanicException(BaseException): pass\nraise PanicException('index out of bounds')",
        "PanicException: index out of bounds",
    ),
    "a syntax error": ("def", "SyntaxError"),
    "no such name": ("", "AttributeError"),
    "a function": ("def Mine(): pass", "not of function"),
    "another class": ("class Mine: pass", "not of type"),
    "a number": ("Mine = 3", "not of int"),
    "an abstract class": (
        "from tensorferry.backends.base import Backend\nclass Mine(Backend): pass",
        "TypeError",
    ),
    "an error that cannot be shown": (
        "class Odd(Exception):\n    def __str__(self): raise RuntimeError\nraise Odd",
        "is broken: Odd.",
    ),
    "a constructor that fails": (
        CLASS + "\n    def __init__(self): raise OSError('no device')",
        "OSError: no device",
    ),
    "capabilities that raise": (
        CLASS + "\n    capabilities = property(lambda self: 1 / 0)",
        "ZeroDivisionError",
    ),
    "capabilities of another type": (CLASS + "\n    capabilities = {}", "capabilities must be"),
    "owns that raises": (CLASS + "\n    owns = property(lambda self: 1 / 0)", "ZeroDivisionError"),
    "owns that is a string": (CLASS + "\n    owns = 'slabs'", "owns must be a tuple of strings"),
    "aliases that are none": (
        CLASS + "\n    aliases = ['sl']",
        "aliases must be a tuple of strings",
    ),
    "another's module": (
        CLASS + "\n    owns = ('numpy',)",
        "owns 'numpy', which 'numpy' owns already",
    ),
    "another name": (CLASS + "\n    name = 'tiles'", "named 'slabs', and its backend 'tiles'"),
    "a wrong name": (CLASS + "\n    name = None", "name must be a string"),
    "a verb that is not there": (
        CLASS.replace("read_only=False", "read_only=True"),
        "has no verb read_only()",
    ),
}
UNNAMED = """
import json
out = None
try:
    ferry.to_numpy(Odd())
except ferry.UnsupportedTypeError as error:
    out = str(error)
assert "is not a tensor" in out and "slabs" not in out, out
"""
NAMED = """
for name in ("slabs",) * 2:
    try:
        ferry.convert([1.0], name)
    except ferry.FrameworkNotInstalledError as error:
        assert "slabs-ferry 1.0" in error.message and {why!r} in str(error), error
        assert error.hint == "pip install --upgrade slabs-ferry", error
        assert error.__cause__ is not None
    else:
        raise SystemExit("converted")
found = ferry.frameworks()["slabs"]
assert not found.installed and found.package == "slabs-ferry 1.0" and found.error, found
assert ferry.frameworks()["numpy"].package is None
"""


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_entry_point_reaches_only_who_names_it(tmp_path, what):
    """Everything else works, misses too; who names it is told the package and why; frameworks() lists it."""
    body, why = BROKEN[what]
    install(tmp_path, "slabs-ferry", "slabs", body or "Another = 1")
    lives(loads(tmp_path, ORDINARY + UNNAMED + NAMED.format(why=why)))


ASKED = {
    "claims": "def claims(self, kind): raise OSError('cannot tell')",
    "load": "def load(self): raise OSError('cannot tell')",
    "a load that ends the process": "def load(self): raise SystemExit('cannot tell')",
    "is_imported": "def is_imported(self): raise OSError('cannot tell')",
    "refusal": "def claims(self, kind): return False\ndef refusal(self, kind): raise OSError('cannot tell')",
}
NOT_CLAIMED = """
import slabs
try:
    ferry.to_numpy(slabs.Tensor(np.ones(2)))
except ferry.UnsupportedTypeError as error:
    assert "slabs.Tensor is not a tensor" in error.message, error
    assert "The backend 'slabs' of slabs-ferry 1.0 is broken" in error.message and "cannot tell" in error.message, error
    assert error.hint == "pip install --upgrade slabs-ferry"
else:
    raise SystemExit("converted")
assert "cannot tell" in ferry.frameworks()["slabs"].error
"""


@pytest.mark.parametrize("what", ASKED)
def test_a_backend_that_cannot_say_what_is_its_own(tmp_path, what):
    """An object of its module is no tensor then, and the error says whose fault that is; nothing else is touched."""
    install(tmp_path, "slabs-ferry", "slabs", extra=ASKED[what])
    lives(loads(tmp_path, "import slabs\n" + ORDINARY + UNNAMED + NOT_CLAIMED))


def test_who_names_a_backend_whose_load_fails_is_told_whose_it_is(tmp_path):
    """The same words as for one that cannot be imported; and the next call tries again."""
    install(
        tmp_path,
        "slabs-ferry",
        "slabs",
        extra="def load(self):\n    assert slabs.ready, 'not ready'\n",
    )
    code = """
    import slabs, tensorferry as ferry
    slabs.ready = False
    for _ in range(2):
        try:
            ferry.convert([1.0], "slabs")
        except ferry.FrameworkNotInstalledError as error:
            assert str(error).startswith("The backend 'slabs' of slabs-ferry 1.0 is broken: AssertionError: not ready")
            assert isinstance(error.__cause__, AssertionError)
        assert ferry.frameworks()["slabs"].error == "AssertionError: not ready"
    slabs.ready = True
    assert ferry.to_list(ferry.convert([1.0], "slabs")) == [1.0]
    assert ferry.frameworks()["slabs"].error is None
    """
    lives(loads(tmp_path, code))


QUICK = """
quick_code = __name__
def load(self):
    from tensorferry.backends.quick import Quick
    class Hasty(Quick):
        def fast_paths(self): {}
    self.tensor, globals()["QUICK"] = slabs.Tensor, Hasty
"""
MEDDLES = {
    "accepts_foreign": "def accepts_foreign(self, x): raise OSError('cannot tell')",
    "knows": "def knows(self, kind): raise OSError('cannot tell')",
    "has_node": "def has_node(self, kind): raise OSError('cannot tell')",
    "open_node": "def has_node(self, kind): return True\ndef open_node(self, x): raise OSError('cannot tell')",
    "holds": "def holds(self, owner): raise OSError('cannot tell')",
    "shield": "is_traced = True\ndef shield(self, function): raise OSError('cannot tell')",
    "fast_paths": QUICK.format("raise OSError('cannot tell')"),
    "paths of others": QUICK.format("return {(np.ndarray, 'numpy'): lambda x: 'cannot tell'}"),
}


@pytest.mark.parametrize("what", MEDDLES)
def test_what_is_asked_of_every_backend_stops_at_nobody(tmp_path, what):
    """A loaded outside backend that fails where all are asked: it is recorded, and the others are asked."""
    install(tmp_path, "slabs-ferry", "slabs", extra=MEDDLES[what])
    code = "import slabs, tensorferry as ferry\nassert ferry.to_list(ferry.convert([1.0], 'slabs')) == [1.0]\n"
    code += ORDINARY + UNNAMED + WITH_A_FRAMEWORK
    code += "assert ferry.to_list(ferry.convert([1.0], 'slabs')) == [1.0]\n"
    if what != "holds":  # which is only asked of backends whose tensors are immutable
        code += "said = ferry.frameworks()['slabs'].error\nassert said and 'slabs' in str(ferry.frameworks()), said\n"
    lives(loads(tmp_path, code))


def test_names_that_are_taken(tmp_path):
    """tensorferry's own names are its own; of two packages with one name the first is used, and the other told."""
    install(tmp_path, "evil", "evil", points={"numpy": "evil_ferry:Mine", "np": "evil_ferry:Mine"})
    install(tmp_path, "a-slabs", "slabs")
    install(tmp_path, "b-slabs", "tiles", points={"slabs": "tiles_ferry:Mine"})
    code = """
    import numpy as np, tensorferry as ferry
    assert type(ferry.convert([1.0], "numpy")) is np.ndarray
    assert type(ferry.convert([1.0], "slabs")).__module__ == "slabs"
    found = ferry.frameworks()
    assert found["numpy"].installed and found["numpy"].package is None
    assert "of tensorferry itself" in found["numpy (evil 1.0)"].error
    assert "of tensorferry itself" in found["np"].error and type(ferry.convert([1.0], "np")) is np.ndarray
    assert found["slabs"].installed and found["slabs"].package == "a-slabs 1.0" and found["slabs"].error is None
    assert found["slabs (b-slabs 1.0)"].error == (
        "ValueError: a-slabs 1.0 also has a backend of that name, which is used instead"
    )
    """
    assert loaded(lives(loads(tmp_path, code))) == ["slabs_ferry"]


def test_a_package_whose_list_of_entry_points_is_damaged(tmp_path):
    """One that cannot be read hides the others from `importlib.metadata`, and not from here; it is told."""
    install(tmp_path, "slabs-ferry", "slabs")
    install(tmp_path, "aaa", "aaa")
    (tmp_path / "aaa-1.0.dist-info" / "entry_points.txt").write_text(
        "[tensorferry.backends]\nno value\n"
    )
    code = """
    import tensorferry as ferry
    assert ferry.to_list(ferry.convert([1.0], "slabs")) == [1.0]
    (name,) = [name for name, found in ferry.frameworks().items() if found.package == "aaa 1.0"]
    assert ferry.frameworks()[name].error
    """
    lives(loads(tmp_path, code))


def test_a_name_that_nobody_has_is_told_what_there_is(tmp_path):
    """The names of outside packages are among those that could have been meant."""
    install(tmp_path, "slabs-ferry", "slabs")
    code = """
    import tensorferry as ferry
    try:
        ferry.convert([1.0], "slaps")
    except ferry.ConversionError as error:
        assert "slaps" in str(error) and "slabs" in str(error), error
    else:
        raise SystemExit("converted")
    """
    lives(loads(tmp_path, code))


def test_a_backend_is_found_once_what_it_needs_is_there(tmp_path):
    """Who names it after the repair gets it, in the same process."""
    install(tmp_path, "slabs-ferry", "slabs", "import needed_by_slabs\n" + CLASS)
    code = f"""
    import pathlib, importlib, tensorferry as ferry
    try:
        ferry.convert([1.0], "slabs")
    except ferry.FrameworkNotInstalledError:
        pathlib.Path({str(tmp_path)!r}, "needed_by_slabs.py").write_text("")
        importlib.invalidate_caches()
    assert ferry.to_list(ferry.convert([1.0], "slabs")) == [1.0]
    assert ferry.frameworks()["slabs"].error is None
    """
    survives(loads(tmp_path, code))


# -- imports that call back, and threads ----------------------------------------------------------


def test_a_package_may_use_tensorferry_while_it_is_imported(tmp_path):
    """Its own framework, its own objects, unknown ones: no deadlock, no recursion, and nothing wrong is recorded."""
    call_back = """
    import numpy as np, slabs, tensorferry as ferry
    class Odd: pass
    for call in (
        lambda: ferry.to_numpy(Odd()), lambda: ferry.convert([1.0], "slabs"), lambda: ferry.frameworks(),
        lambda: ferry.convert_tree([Odd(), slabs.Tensor(np.ones(2, np.float32))], "numpy"),
    ):
        try:
            call()
        except ferry.ConversionError:
            pass
    assert ferry.to_list(np.ones(2)) == [1.0, 1.0]
    """
    lines = "\n".join("    " + line for line in call_back.replace("\n    ", "\n").splitlines())
    body = f"def call_back():\n{lines}\n\ncall_back()\n{CLASS}\n    def __init__(self): call_back()\n\ncall_back()\n"
    install(tmp_path, "slabs-ferry", "slabs", body)
    for first in (
        "import slabs_ferry",
        "ferry.convert([1.0], 'slabs')",
        "ferry.to_numpy(slabs.Tensor(np.ones(1, 'f')))",
    ):
        code = f"""
        import faulthandler; faulthandler.dump_traceback_later(100, exit=True)
        import numpy as np, slabs, tensorferry as ferry
        {first}
        assert ferry.to_list(ferry.convert([1.0], "slabs")) == [1.0]
        assert ferry.to_list(slabs.Tensor(np.ones(1, np.float32))) == [1.0]
        assert ferry.frameworks()["slabs"].error is None, ferry.frameworks()["slabs"]
        """
        lives(loads(tmp_path, code))


def test_threads_that_miss_at_once_all_find_it(tmp_path):
    """Whoever comes while another thread opens the door waits for it, and gets the same backend."""
    body = "import time, tensorferry as ferry\ntime.sleep(0.2); ferry.to_list([1])\n" + CLASS
    install(tmp_path, "slabs-ferry", "slabs", body)
    code = """
    import faulthandler; faulthandler.dump_traceback_later(100, exit=True)
    import threading, numpy as np, slabs, tensorferry as ferry
    from tensorferry.backends import registry
    calls = [
        lambda: ferry.convert([1.0], "slabs"),
        lambda: ferry.to_numpy(slabs.Tensor(np.ones(1, np.float32))),
        lambda: __import__("slabs_ferry"),
        lambda: ferry.convert_tree([slabs.Tensor(np.ones(1, np.float32))], "numpy"),
    ] * 4
    failed, seen, together = [], set(), threading.Barrier(len(calls))
    def run(call):
        together.wait()
        try:
            call()
            seen.add(registry.backend_named("slabs"))
        except BaseException as error:
            failed.append(error)
    threads = [threading.Thread(target=run, args=(call,), daemon=True) for call in calls]
    for each in threads: each.start()
    for each in threads: each.join()
    assert not failed and len(seen) == 1, (failed, seen)
    """
    survives(loads(tmp_path, code))


def test_a_thread_that_imports_the_framework_and_one_that_converts_do_not_wait_for_each_other(
    tmp_path,
):
    """The framework registers its own backend while it is imported, which another thread has asked to be loaded."""
    framework = (
        "import threading\n"
        "class Tensor:\n    def __init__(self, array): self.array = array\n"
        "import gate\ngate.inside.set(); gate.go_on.wait(60)\n"
        "import tensorferry as ferry, numpy as np\n"
        "ferry.to_list(ferry.to_numpy([1, 2])), ferry.describe(np.ones(2))\n"
        "from tensorferry.backends import registry\nregistry.register(registry.backend_named('slabs'))\n"
    )
    (tmp_path / "gate.py").write_text(
        "import threading\ninside, go_on = threading.Event(), threading.Event()\n"
    )
    body = CLASS.replace("import slabs\n", "").replace(
        "    def load(self):", "    def load(self):\n        import slabs"
    )
    body = body.replace("slabs.Tensor)", "__import__('slabs').Tensor)").replace(
        "return slabs.", "return self."
    )
    body = body.replace("self.Tensor(", "self.tensor(")
    install(tmp_path, "slabs-ferry", "slabs", body, framework=framework)
    code = """
    import faulthandler; faulthandler.dump_traceback_later(100, exit=True)
    import threading, gate, tensorferry as ferry
    from tensorferry.backends import registry
    registry.backend_named("slabs")
    importing = threading.Thread(target=__import__, args=("slabs",), daemon=True)
    importing.start(); gate.inside.wait(60)
    results = []
    asked = threading.Event()
    def convert():
        asked.set()
        results.append(ferry.to_list(ferry.convert([1.0], "slabs")))
    converting = threading.Thread(target=convert, daemon=True)
    converting.start(); asked.wait(60)
    # What the importing thread does next needs the registry, while the other waits for the import.
    threading.Timer(0.2, gate.go_on.set).start()
    importing.join(); converting.join()
    assert results == [[1.0]], results
    """
    survives(loads(tmp_path, code))


# -- what is declared has its verb ----------------------------------------------------------------


class Plain(Backend):
    """The least that a backend is."""

    name = module = "plain"
    declared: ClassVar = {}

    @property
    def capabilities(self):
        return Capabilities(
            **{"dtypes": Dtypes(frozenset(), {}), "memory": Memory(writable=True), **self.declared}
        )

    def _(self, *arguments):
        raise NotImplementedError

    load = claims = describe = pointer = export = adopt = snippet = _


FLOATS = {"dtypes": Dtypes(frozenset({"float32"}), {}, unexported=frozenset({"float32"}))}
DECLARED = {
    "read_only": ({"memory": Memory(writable=True, read_only=True)}, ["read_only"]),
    "out": ({"memory": Memory(writable=True, out=True)}, ["write"]),
    "lazy_bits": ({"memory": Memory(writable=True, lazy_bits=True)}, ["resolve"]),
    "an accelerator": ({"devices": Devices(("cpu", "sim")), **FLOATS}, ["copy", "cast", "move"]),
    "an accelerator of others": (
        {"devices": Devices(("cpu", "sim")), "dtypes": Dtypes(frozenset({"float32"}), {})},
        ["copy", "cast", "move", "wait", "import_dlpack", "compact"],
    ),
    "no host": (
        {"devices": Devices(("sim",)), **FLOATS},
        ["copy", "cast", "move", "place", "fetch"],
    ),
    "shards": ({"devices": Devices(shards=True)}, ["fetch"]),
    "fetches": ({"devices": Devices(fetches=True)}, ["fetch"]),
    "fetches_ahead": ({"devices": Devices(fetches_ahead=True)}, ["start_fetch", "fetch"]),
    "packs": ({"devices": Devices(packs=True)}, ["pack", "unpack"]),
    "pins": ({"devices": Devices(pins=True)}, ["pin", "land"]),
    "spreads": (
        {"devices": Devices(spreads=True)},
        ["narrow", "span", "spread", "cross", "copy_together"],
    ),
    "others": ({"devices": Devices(others=True), **FLOATS}, ["copy", "cast", "move"]),
    "a graph": ({"gradients": Gradients(graph=True)}, ["detach", "stack", "copy", "cast"]),
    "read_kinds": ({"objects": Objects(read_kinds=frozenset({"scalar"}))}, ["read"]),
    "reads_copies": ({"objects": Objects(reads_copies=True)}, ["read"]),
    "value_kinds": ({"objects": Objects(value_kinds=frozenset({"Variable"}))}, ["value"]),
    "taken_kinds": ({"objects": Objects(taken_kinds=frozenset({"__dlpack__"}))}, ["take"]),
    "inside_only": ({"objects": Objects(inside_only=frozenset({"traced"}))}, ["copy", "cast"]),
    "a tracer": ({"objects": Objects(tracer="a tracer")}, ["copy", "cast"]),
    "labels": ({"options": Options(labels=frozenset({"index"}))}, ["labels_given", "label"]),
    "finishers": ({"options": Options(finishers=frozenset({"variable"}))}, ["variable", "copy"]),
}


@pytest.mark.parametrize("what", DECLARED)
def test_what_is_declared_without_its_verb_is_refused(what):
    """When it is registered, naming each verb; with all but one that one is named; with every one it is taken."""
    declared, names = DECLARED[what]
    lacking = type("Lacking", (Plain,), {"declared": declared})()
    with pytest.raises(TypeError) as caught:
        registry.register(lacking)
    assert "'plain'" in str(caught.value)
    assert set(re.findall(r"no verb (\w+)\(\)", str(caught.value))) == set(names)
    for left_out in names:
        others = dict.fromkeys(set(names) - {left_out}, Plain._)
        with pytest.raises(TypeError, match=rf"no verb {left_out}\(\)$"):
            registry.register(type("Lacking", (Plain,), {"declared": declared, **others})())
    assert "plain" not in registry.known()
    whole = type("Whole", (Plain,), {"declared": declared, **dict.fromkeys(names, Plain._)})()
    assert verbs.missing_verbs(whole) == []


def test_every_backend_here_has_the_verbs_that_it_declares():
    """The table says of none of tensorferry's own that something is lacking, and each row is some backend's."""
    verbs_needed = {}
    for backend in registry.known().values():
        assert verbs.missing_verbs(backend) == []
        verbs_needed |= verbs.verbs_needed(backend.capabilities)
    named = {name for _, names in DECLARED.values() for name in names}
    assert {name for names in verbs_needed.values() for name in names} == named
    assert len(verbs_needed) == len(DECLARED) - 1  # a tracer and what it traces are one row


def test_a_plan_names_no_verb_that_is_not_called_for():
    """A backend that was taken has what plans ask of it: none of some ten thousand names another of its verbs."""
    always = {"export", "adopt", "export_dlpack", "place_over"}  # of every backend, by `Backend`
    own = {
        "numpy": {"copy", "cast", "check"},  # as the currency of host memory
        "python": {"give_back", "look"},  # of numbers that are not one array
        "torch": {"resolve"},  # of the bits that only its `describe` sets
    }
    named = everything()[3]
    assert {"adopt", "move", "cast", "import_dlpack", "place"} <= {verb for _, verb in named}
    for name, verb in named:
        verbs_needed = verbs.verbs_needed(registry.backend_named(name).capabilities).values()
        assert verb in always | own.get(name, set()) | {
            each for group in verbs_needed for each in group
        }, (name, verb)


def test_a_verbs_protocol_is_a_base_that_cannot_be_left_empty():
    """Whoever derives from one is told by Python itself, before anything is registered."""
    with pytest.raises(TypeError, match="write"):
        type("Mine", (Plain, verbs.Writes), {})()
    whole = type(
        "Mine", (Plain, verbs.Writes), {"write": Plain._, "declared": DECLARED["out"][0]}
    )()
    assert verbs.missing_verbs(whole) == []


def test_capabilities_are_a_cheap_key():
    """They are a part of the key of every plan: one object is itself, and none of the fields is hashed or compared."""
    for backend in registry.known().values():
        declared = backend.capabilities
        assert declared is backend.capabilities, backend.name
        assert type(declared).__hash__ is object.__hash__
        alike = declared._replace()
        assert alike != declared
        assert not alike == declared  # noqa: SIM201 - both operators
        assert tuple(alike) == tuple(declared)
    with pytest.raises(AttributeError):
        registry.backend_named("numpy").capabilities.memory.writable = False


def test_what_is_no_backend_is_not_registered():
    """A class instead of an instance, somebody else's module: said at once, and nothing is changed."""
    with pytest.raises(TypeError, match="not of ABCMeta"):
        registry.register(Plain)
    thief = type("Thief", (Plain,), {"owns": ("numpy",)})()
    with pytest.raises(ValueError, match="'numpy' owns already"):
        registry.register(thief)
    assert registry.backend_named("numpy").name == "numpy"
    assert "plain" not in registry.known()
