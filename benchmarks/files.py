"""Files of 1 GiB: each line in processes of its own, from a cold and a warm page cache, with peak memory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .case import Measured, Target, Unmeasured

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "FERRY",
    "LOOKS",
    "MAKE",
    "MANY",
    "MEMORY",
    "PT_TO_SAFETENSORS",
    "SECTIONS",
    "TORCH",
    "VERIFIED",
    "Line",
    "measure",
    "why_not",
    "workplace",
]

TENSORS = 64
LENGTH = 1 << 22
"""float32 elements of each tensor: 16 MiB, 1 GiB together."""
MANY = 100_000
"""Tensors in the file that is only looked at."""
MEMORY = Target(total=32 * 2**20)
_LAYERS_BYTES = 4 * (32_000 * 1024 + 20 * (4 * 1024**2 + 3 * 2560 * 1024 + 8 * 1024))
_AS_LARGE = Target(total=_LAYERS_BYTES + 32 * 2**20)
"""What a load of `_LAYERS` may take."""
ROUNDS = 5
_ROOM = 9 << 30

_SCRIPT = """
import json, os, threading, time
{imports}

def status(field):
    with open("/proc/self/status") as lines:
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(field)), 0)

class Heap(threading.Thread):
    peak, going = 0, True
    def run(self):
        while self.going:
            self.peak = max(self.peak, status("RssAnon"))
            time.sleep(0.002)

rss, anonymous = status("VmRSS"), status("RssAnon")
with open("/proc/self/clear_refs", "w") as marks:
    marks.write("5")
heap = Heap(daemon=True)
heap.start()
begin = time.perf_counter()
{code}
seconds = time.perf_counter() - begin
heap.going = False
heap.join()
print(json.dumps([seconds, status("VmHWM") - rss, heap.peak - anonymous]))
"""

TORCH = "import os, torch; from safetensors import safe_open; from safetensors.torch import load_file, save_file"
_NUMPY = "import os, shutil, numpy as np; from safetensors.numpy import load_file"
# What ours does with all that it writes.
_FLUSH = """
with open("out", "rb") as file:
    os.fsync(file.fileno())
"""
# Modules that are imported at first use are imported here, as theirs are.
FERRY = (
    "import tensorferry as ferry, tensorferry.files.api, tensorferry.files.conversion.convert, tensorferry.files.lazy; "
    "import tensorferry.files.loading, tensorferry.execution.calls; "
    "from tensorferry.files.opening import paths; paths.formats()"
)
# One byte of every page of every tensor.
_TOUCH = "for each in state.values(): np.asarray(each).view(np.uint8)[::4096].sum()"
_READ = "for each in state.values(): each.sum()"
_ALL = "state = {name: lazy[name] for name in lazy}"
# Whoever allocates much after the import of PyTorch pays for a collection of its objects, which is
# not ours.
_ALONE = "import gc, tensorferry as ferry; gc.disable()"


@dataclass(frozen=True)
class Line:
    """What is typed, and what has to be imported for it; the import is not measured."""

    code: str
    imports: str

    def run(self, folder: Path) -> _Result:
        script = _SCRIPT.format(code=self.code, imports=self.imports)
        ran = subprocess.run(  # noqa: S603
            [sys.executable, "-c", script],
            cwd=folder,
            check=False,
            capture_output=True,
            text=True,
            env=_compiled(),
        )
        if ran.returncode:
            raise RuntimeError(ran.stderr.strip().rpartition("\n")[2])
        return _Result(*json.loads(ran.stdout.splitlines()[-1]))


class _Result(NamedTuple):
    seconds: float
    resident: int
    heap: int


class _Pair(NamedTuple):
    """Two lines that end in the same, the file that both start from, and what is asked of ours."""

    name: str
    ours: Line
    theirs: Line
    source: str
    target: Target
    memory: Target = Target()
    rounds: int = ROUNDS


def _touched(framework: str, imports: str, ratio: float, *, first: bool = False) -> _Pair:
    """Every page of every tensor, loaded lazily by ours and by their own `load_file`; or also our first use."""
    ours = f'lazy = ferry.load("model.safetensors", to="{framework}", lazy=True)'
    warm_up = f'{FERRY}; {imports}; ferry.convert([1.0], "{framework}")'
    alone = f"{imports}; {_ALONE}"
    what = "first use, every page touched" if first else "every page touched"
    return _Pair(
        f'load(..., to="{framework}", lazy=True), {what} / safetensors\' load_file',
        Line(
            f"{ours}\n{_ALL}\n{_TOUCH}",
            f"import numpy as np; {alone if first else warm_up}",
        ),
        Line(f'state = load_file("model.safetensors")\n{_TOUCH}', f"import numpy as np; {imports}"),
        "model.safetensors",
        Target(ratio=ratio),
    )


def _from_its_import(what: str, use: str) -> _Pair:
    """A first use in a process that has imported PyTorch and NumPy: each side from its own import on."""
    both = "import gc, numpy as np, torch; gc.disable()"
    return _Pair(
        f'import and load(..., to="torch", lazy=True), {what} / import and safetensors\' load_file',
        Line(
            "import tensorferry as ferry\n"
            f'lazy = ferry.load("layers.safetensors", to="torch", lazy=True)\n{_ALL}\n{use}',
            both,
        ),
        Line(
            "from safetensors.torch import load_file\n"
            f'state = load_file("layers.safetensors")\n{use}',
            both,
        ),
        "layers.safetensors",
        Target(),
        rounds=9,
    )


def _loaded(
    suffix: str, framework: str, name: str, theirs: str, imports: str, ratio: float
) -> _Pair:
    """Everything in memory of its own, by ours and by theirs."""
    return _Pair(
        f'load("….{suffix}", to="{framework}") / {name}',
        Line(
            f'state = ferry.load("layers.{suffix}", to="{framework}")',
            f'{FERRY}; {imports}; ferry.convert([1.0], "{framework}")',
        ),
        Line(theirs, imports),
        f"layers.{suffix}",
        Target(ratio=ratio),
        memory=_AS_LARGE,
        rounds=9,
    )


_UP = "layers.*.up.weight"
"""Twenty matrices of 2560 rows and 1024 columns."""
_UP_BYTES = 4 * 20 * 2560 * 1024


def _part(what: str, index: str) -> _Pair:
    """An eighth of some matrices, by ours and by safetensors."""
    return _Pair(
        f"load(..., slices=), an eighth of the {what} of 20 matrices / safe_open(...).get_slice",
        Line(
            f'state = ferry.load("layers.safetensors", names="{_UP}", slices={{"*": np.s_[{index}]}})',
            f"import numpy as np; {FERRY}; import tensorferry.files.slicing",
        ),
        Line(
            'with safe_open("layers.safetensors", "np") as file:\n'
            f'    state = {{name: file.get_slice(name)[{index}] for name in file.keys() if ".up." in name}}',
            "from safetensors import safe_open",
        ),
        "layers.safetensors",
        Target(ratio=1.5),
    )


_SERVED = "from benchmarks.range_server import serving; url = serving() + '/layers.safetensors'"


def _served(what: str, index: str, other: str, nbytes: int | None, ratio: float) -> _Pair:
    """All or parts of a file on a server of loopback, by ours and by requests."""
    part = f', names="{_UP}", slices={{"*": np.s_[{index}]}}' if index else ""
    asked = "" if nbytes is None else f', headers={{"Range": "bytes=0-{nbytes - 1}"}}'
    return _Pair(
        f"load(url), {what} / requests.get(url).content, {other}",
        Line(
            f"state = ferry.load(url{part})",
            f"import numpy as np; {FERRY}; import tensorferry.files.remote.reading; {_SERVED}",
        ),
        Line(f"state = requests.get(url{asked}).content", f"import requests; {_SERVED}"),
        "layers.safetensors",
        Target(ratio=ratio),
    )


_DEVICES = (
    "import json, mmap, os, numpy as np; "
    'os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"; '
    'os.environ["JAX_PLATFORMS"] = "cpu"; import jax; from jax.sharding import NamedSharding, PartitionSpec as P; '
    'mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",)); '
    "warm = jax.block_until_ready(jax.make_array_from_callback((8, 8), NamedSharding(mesh, P('x')), "
    "lambda index: np.zeros((8, 8))[index]))"
)
_BY_CALLBACK = """
with open("layers.safetensors", "rb") as file:
    length = int.from_bytes(file.read(8), "little")
    header = json.loads(file.read(length))
    pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
state = {{}}
for name, each in header.items():
    if ".up." in name:
        there = np.ndarray(each["shape"], np.float32, pages, 8 + length + each["data_offsets"][0])
        state[name] = jax.make_array_from_callback(
            there.shape, NamedSharding(mesh, {spec}), lambda index: np.array(there[index])
        )
jax.block_until_ready(state)
"""


def _sharded(what: str, spec: str) -> _Pair:
    """Some matrices over eight devices, by ours and by JAX's own function over a map."""
    return _Pair(
        f'load(..., "jax", device=), {what} of 20 matrices over 8 devices / make_array_from_callback over a map',
        Line(
            f'state = ferry.load("layers.safetensors", "jax", names="{_UP}", '
            f"device=NamedSharding(mesh, {spec}))\njax.block_until_ready(state)",
            f"{_DEVICES}; {FERRY}; import tensorferry.files.sharding; ferry.to_jax([1.0])",
        ),
        Line(_BY_CALLBACK.format(spec=spec), _DEVICES),
        "layers.safetensors",
        Target(ratio=1.3),
    )


PT_TO_SAFETENSORS = _Pair(
    ".pt -> .safetensors / torch.load(mmap=True) + save_file + fsync",
    Line('ferry.convert_files("model.pt", "out", to="safetensors")', FERRY),
    Line(f'save_file(torch.load("model.pt", mmap=True), "out"){_FLUSH}', TORCH),
    "model.pt",
    Target(ratio=0.8),
    memory=MEMORY,
    rounds=9,
)
VERIFIED = _Pair(
    ".pt -> .safetensors, verify=True / without",
    Line('ferry.convert_files("model.pt", "out", to="safetensors", verify=True)', FERRY),
    PT_TO_SAFETENSORS.ours,
    "model.pt",
    Target(ratio=2),
    memory=MEMORY,
)
_PAIRS = (
    PT_TO_SAFETENSORS,
    VERIFIED,
    _Pair(
        ".safetensors -> .npz / load_file + np.savez + fsync",
        Line('ferry.convert_files("model.safetensors", "out", to="npz")', FERRY),
        Line(f'np.savez(open("out", "wb"), **load_file("model.safetensors")){_FLUSH}', _NUMPY),
        "model.safetensors",
        Target(ratio=0.7),
        memory=MEMORY,
    ),
    _Pair(
        ".safetensors float32 -> bfloat16 / shutil.copyfile + fsync",
        Line(
            'ferry.convert_files("model.safetensors", "out", to="safetensors", dtype="bfloat16")',
            FERRY,
        ),
        Line(f'shutil.copyfile("model.safetensors", "out"){_FLUSH}', _NUMPY),
        "model.safetensors",
        Target(ratio=1 / 0.8),
        memory=MEMORY,
    ),
    _Pair(
        'load(..., to="torch", lazy=True), before the first touch / safe_open(...).keys()',
        Line(
            'lazy = ferry.load("layers.safetensors", to="torch", lazy=True)',
            f"{FERRY}; {TORCH}; ferry.to_torch([1.0])",
        ),
        Line('names = safe_open("layers.safetensors", "pt").keys()', TORCH),
        "layers.safetensors",
        Target(ratio=2),
    ),
    _Pair(
        'load(..., to="torch", lazy=True), first use, before the first touch / safe_open(...).keys()',
        Line(
            'lazy = ferry.load("layers.safetensors", to="torch", lazy=True)',
            f"{TORCH}; {_ALONE}",
        ),
        Line('names = safe_open("layers.safetensors", "pt").keys()', TORCH),
        "layers.safetensors",
        Target(),
    ),
    _touched("torch", TORCH, 1.1),
    _touched("torch", TORCH, 1.1, first=True),
    _Pair(
        'load(..., to="torch", lazy=True), first use, every value read / safetensors\' load_file',
        Line(
            f'lazy = ferry.load("layers.safetensors", to="torch", lazy=True)\n{_ALL}\n{_READ}',
            f"{TORCH}; {_ALONE}",
        ),
        Line(f'state = load_file("layers.safetensors")\n{_READ}', TORCH),
        "layers.safetensors",
        Target(ratio=1.1),
        rounds=9,
    ),
    _from_its_import("every page touched", _TOUCH),
    _from_its_import("every value read", _READ),
    _touched("jax", "import jax; from safetensors.flax import load_file", 0.7),
    _touched(
        "tensorflow", "import tensorflow as tf; from safetensors.tensorflow import load_file", 0.3
    ),
    _loaded(
        "safetensors",
        "torch",
        "load_file, each tensor cloned",
        'state = {name: each.clone() for name, each in load_file("layers.safetensors").items()}',
        TORCH,
        1.1,
    ),
    _loaded(
        "safetensors",
        "numpy",
        "safetensors.numpy.load_file",
        'state = load_file("layers.safetensors")',
        "from safetensors.numpy import load_file",
        1.1,
    ),
    _loaded("pt", "torch", "torch.load", 'state = torch.load("layers.pt")', TORCH, 1.0),
    _part("rows", ":320"),
    _part("columns", ":, :128"),
    _served("all of a file", "", "all of it", None, 0.8),
    _served("an eighth of the rows of 20 matrices", ":320", "as many bytes", _UP_BYTES // 8, 1.2),
    _served("an eighth of the columns of 20 matrices", ":, :128", "all of them", _UP_BYTES, 0.8),
    _sharded("rows", 'P("x")'),
    _sharded("columns", 'P(None, "x")'),
)


class _Conversions:
    title = "Files of 1 GiB, in fresh processes; both sides flush what they write to the disk"

    def rows(self) -> Iterator[Measured | Unmeasured]:
        why = why_not()
        if why is not None:
            yield from (Unmeasured(pair.name, pair.target, why) for pair in _PAIRS)
            return
        with workplace() as folder:
            for make in (MAKE, _LAYERS):
                Line(make, "import torch; from safetensors.torch import save_file").run(folder)
            os.sync()  # the disk's work on these is nobody's below
            for pair in _PAIRS:
                yield from measure(pair, folder)


MAKE = f"""
state = {{f"layer.{{i}}.weight": torch.randn({LENGTH}) for i in range({TENSORS})}}
torch.save(state, "model.pt")
save_file(state, "model.safetensors")
"""
_LAYERS = """
d, state = 1024, {"embed.weight": torch.randn(32000, 1024)}
shapes = {"q": (d, d), "k": (d, d), "v": (d, d), "o": (d, d), "up": (2560, d), "gate": (2560, d), "down": (d, 2560)}
shapes |= {f"norm{n}": (d,) for n in range(8)}
for layer in range(20):
    state |= {f"layers.{layer}.{name}.weight": torch.randn(*shape) for name, shape in shapes.items()}
torch.save(state, "layers.pt")
save_file(state, "layers.safetensors")
"""
"""A transformer's 301 tensors, of 4 KiB to 125 MiB, 1 GiB together."""


def measure(pair: _Pair, folder: Path) -> Iterator[Measured | Unmeasured]:
    colds: dict[str, _Result] = {}
    warms: dict[str, list[_Result]] = {"ours": [], "theirs": []}
    try:
        for side in ("theirs", "ours"):
            _forget(folder / pair.source)
            colds[side] = _once(pair, side, folder)
        for round_ in range(pair.rounds):
            for side in ("ours", "theirs") if round_ % 2 else ("theirs", "ours"):
                warms[side].append(_once(pair, side, folder))
    except RuntimeError as error:
        yield Unmeasured(pair.name, pair.target, str(error))
        return
    times = ([each.seconds for each in warms["ours"]], [each.seconds for each in warms["theirs"]])
    yield Measured.of(pair.name, times, pair.target)
    yield Measured(f"{pair.name}, cold", colds["ours"].seconds, colds["theirs"].seconds, Target())
    for word, index in (("extra resident", 1), ("extra heap", 2)):
        most = {side: max(each[index] for each in warms[side]) for side in warms}
        yield Measured(
            f"{pair.name}, {word}",
            max(most["ours"], 1000),
            max(most["theirs"], 1000),
            pair.memory,
            "B",
        )


def _once(pair: _Pair, side: str, folder: Path) -> _Result:
    (folder / "out").unlink(missing_ok=True)
    return (pair.ours if side == "ours" else pair.theirs).run(folder)


def _forget(path: Path) -> None:
    """Take a file out of the page cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())  # only clean pages can go
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class _Look(NamedTuple):
    """A file of many tensors: how it is made, what people type to see what is in it, and what is asked of ours."""

    name: str
    make: str
    theirs: str
    seconds: Target
    memory: Target = Target(ratio=1)


LOOKS = (
    _Look(
        "many.safetensors",
        "from safetensors.numpy import save_file; import numpy as np; "
        "save_file({f'model.layers.{i // 1000}.mlp.experts.{i % 1000 // 4}.{\"abcd\"[i % 4]}_proj.weight': "
        f"np.zeros(4, 'f4') for i in range({MANY})}}, 'many.safetensors')",
        "from safetensors import safe_open; f = safe_open('many.safetensors', 'np'); "
        "[f.get_slice(name).get_shape() for name in f.keys()]",
        Target(ratio=0.5),
    ),
    _Look(
        "many.pt",
        f"import torch; torch.save({{f'layers.{{i}}.weight': torch.zeros(4) for i in range({MANY})}}, 'many.pt')",
        "import torch; torch.load('many.pt', map_location='meta')",
        Target(ratio=1.5),
    ),
)
_TIMED = """
import json, resource, subprocess, sys, time
begin = time.perf_counter()
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
seconds = time.perf_counter() - begin
print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024]))
"""


class _Inspection:
    title = f"Looking into a file of {MANY:,} tensors, process start included"

    def rows(self) -> Iterator[Measured | Unmeasured]:
        why = why_not()
        if why is not None:
            yield from (
                Unmeasured(f"tensorferry inspect {look.name}", look.seconds, why) for look in LOOKS
            )
            return
        with workplace() as folder:
            for look in LOOKS:
                subprocess.run([sys.executable, "-c", look.make], cwd=folder, check=True)  # noqa: S603
                ours = _best(["-m", "tensorferry", "inspect", look.name], folder)
                theirs = _best(["-c", look.theirs], folder)
                name = f"tensorferry inspect {look.name} / {look.theirs.rpartition('; ')[2]}"
                yield Measured(name, ours[0], theirs[0], look.seconds)
                yield Measured(f"{name}, resident", ours[1], theirs[1], look.memory, "B")


def _best(arguments: list[str], folder: Path) -> tuple[float, float]:
    """The shortest time and the smallest memory of some processes."""
    command = [sys.executable, "-c", _TIMED, sys.executable, *arguments]
    runs = []
    for _ in range(ROUNDS + 1):
        ran = subprocess.run(  # noqa: S603
            command, cwd=folder, check=True, capture_output=True, text=True, env=_compiled()
        )
        runs.append(json.loads(ran.stdout))
    return min(run[0] for run in runs), min(run[1] for run in runs)


def _compiled() -> dict[str, str]:
    """An environment in which modules are compiled once, as everything that pip installs is."""
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}


def why_not() -> str | None:
    if sys.platform != "linux":
        return "reads /proc, which only Linux has"
    if shutil.disk_usage(tempfile.gettempdir()).free < _ROOM:
        return f"needs {_ROOM >> 30} GiB of disk"
    return None if find_spec("safetensors") else "safetensors is not installed"


@contextmanager
def workplace() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


SECTIONS = (_Conversions(), _Inspection())
