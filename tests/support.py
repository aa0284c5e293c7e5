"""What several test files need: memory at a chosen address, addresses read without tensorferry, fresh interpreters."""

from __future__ import annotations

import atexit
import doctest
import gc
import inspect
import json
import os
import re
import subprocess
import sys
import textwrap
import tracemalloc
from contextlib import contextmanager
from functools import cache
from math import prod
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"

TARGETS = ("numpy", "torch", "tensorflow", "jax")
"""The frameworks whose tensors have memory."""

EVERYWHERE = (*TARGETS, "python")


def examples(count):
    """How many examples Hypothesis tries in a test: `count` in `make slow`, a quarter of them in `make test`."""
    return count if "FERRY_ALL_EXAMPLES" in os.environ else -(-count // 4)


def of_torch(*names):
    """Parameters, one for each dtype of PyTorch's; one that the installed release does not have is skipped."""
    torch = pytest.importorskip("torch")
    why = f"torch {torch.__version__} has no"
    lacking = [name for name in names if not hasattr(torch, name)]
    return [
        pytest.param(name, marks=pytest.mark.skip(reason=f"{why} {name}"))
        if name in lacking
        else name
        for name in names
    ]


def importable(name):
    """A library, or a skip if it cannot be imported, as one that needs a later release of PyTorch."""
    return pytest.importorskip(name, exc_type=ImportError)


def memory_at(shape, dtype="float32", offset=0):
    """Zeroed, writable, compact memory whose address is `offset` bytes past a multiple of 64."""
    kind = np.dtype(dtype)
    size = prod(shape) * kind.itemsize
    block = np.zeros(size + 128, np.uint8)
    start = -block.__array_interface__["data"][0] % 64 + offset
    return block[start : start + size].view(kind).reshape(shape)


def counted(shape, dtype="float32", offset=0):
    """Writable, compact memory at a chosen address that holds 0, 1, 2 …"""
    array = memory_at(shape, dtype, offset)
    array[...] = np.arange(prod(shape)).reshape(shape)
    return array


def frozen(array):
    """The same numbers in memory that nobody can write, 64-byte aligned."""
    whole = memory_at(array.shape, array.dtype)
    whole[...] = array
    base = whole
    while base is not None:
        base.flags.writeable = False
        base = base.base
    return whole


def address(x):
    """The address of a tensor's first element, as its own framework tells it."""
    module = type(x).__module__.partition(".")[0]
    if module == "torch":
        return x.data_ptr()
    if module.startswith("jax"):
        return x.unsafe_buffer_pointer()
    return np.asarray(x).__array_interface__["data"][0]


@contextmanager
def device_facts(framework="torch", **kinds):
    """Let a framework have kinds of device, as `DeviceFacts` says of each; what most have of all others."""
    from tensorferry.backends import registry
    from tensorferry.core.capabilities import DeviceFacts
    from tensorferry.execution import recipes

    backend = registry.backend_named(framework)
    recipes.forget_recipes()
    backend.device_facts = lambda kind: kinds.get(kind, DeviceFacts())
    try:
        yield
    finally:
        del backend.device_facts
        recipes.forget_recipes()


@contextmanager
def few_are_many():
    """Let two Python numbers be many, which are read as long lists are."""
    from tensorferry.backends.python import tensors
    from tensorferry.core import info, signature
    from tensorferry.execution import recipes

    def forget():
        """Plans and signatures are for a number of elements: those that were made for many are for few now."""
        recipes.forget_recipes()
        signature.signature_of.cache_clear()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(info, "MANY", 1)
        patch.setattr(tensors, "MANY", 1)
        forget()
        yield
    forget()


@contextmanager
def mps():
    """Let PyTorch have a device without 64-bit floats, as Apple's is."""
    from tensorferry.core.capabilities import DeviceFacts

    with device_facts(mps=DeviceFacts(1, absent=frozenset({"float64", "complex128"}))):
        yield


def bits(x):
    """The bytes of a tensor in C order, as its own framework tells them."""
    module = type(x).__module__.partition(".")[0]
    if module == "torch":
        import torch

        return (
            x.detach()
            .cpu()
            .resolve_conj()
            .resolve_neg()
            .contiguous()
            .reshape(-1)
            .view(torch.uint8)
            .numpy()
            .tobytes()
        )
    return np.asarray(x).tobytes()


def dtype_name(x):
    """The name of a tensor's dtype, as its own framework tells it."""
    return str(getattr(x.dtype, "name", x.dtype)).removeprefix("torch.")


def peak_of(call):
    """The bytes that Python and NumPy held at most, beyond what they held before, while a call ran; and its result.

    They are counted, not measured: no allocator's habits, no page and no other process is in it.
    What a library keeps with an allocator of its own is not in it either: the memory of whole
    processes is measured in `benchmarks`.
    """
    gc.collect()
    tracemalloc.start()
    try:
        result = call()
        return tracemalloc.get_traced_memory()[1], result
    finally:
        tracemalloc.stop()


PEAK = f"import gc, tracemalloc\n\n{inspect.getsource(peak_of)}\n"
"""`peak_of` as code for a process of its own."""


def python(code, *arguments, timeout=240, **environment):
    """Run code in a fresh interpreter; what it printed, its return code and its last words."""
    paths = [str(SOURCE), os.environ.get("PYTHONPATH", "")]
    settings = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        **environment,
    }
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=settings,
    )


def survives(code, *arguments, **environment):
    """Run code in a fresh interpreter, which must reach its end; what it printed."""
    done = python(code, *arguments, **environment)
    assert done.returncode == 0, (
        f"ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    )
    return done.stdout


_NURSERY = """
import gc, importlib, json, os, signal, sys, tempfile, traceback, warnings
root, *names = sys.argv[1:]
sys.path.append(root)
for name in names:
    try:
        importlib.import_module(name)
    except ImportError:
        pass
sys.path.remove(root)
gc.collect()
gc.freeze()  # else each collection in a child walks through all that the frameworks hold, which takes 0.25 s
pipe = os.fdopen(os.dup(1), "w")
for line in sys.stdin:
    job = json.loads(line)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            child = os.fork()
        if child == 0:
            signal.alarm(300)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno() if job["apart"] else 1, 2)
            os.environ.update(job["environment"])
            sys.argv[1:] = job["arguments"]
            status = 1
            try:
                exec(compile(job["code"], "<test>", "exec"), {"__name__": "__main__"})
                status = 0
            except SystemExit as ended:
                status = ended.code or 0
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        words = []
        for told in (out, err):
            told.seek(0)
            words.append(told.read().decode(errors="replace"))
    print(json.dumps([status, *words]), file=pipe, flush=True)
"""


@cache
def _nursery(*modules):
    """A process that has imported modules and used none; it forks a child for each piece of code."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", _NURSERY, str(ROOT), *modules],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "TF_CPP_MIN_LOG_LEVEL": "3"},
    )

    def end():
        # It has nothing to tidy up, and on a busy machine frameworks take long to end.
        process.kill()
        process.communicate()

    atexit.register(end)
    return process


# A PyTorch built for CUDA brings Triton, which ends the process if TensorFlow is there before it.
FRAMEWORKS = ("numpy", "torch", "torch._dynamo", "tensorflow", "jax", "tensorferry")


def forked(modules, code, *arguments, apart=True, **environment):
    """Run code in a process of its own in which modules are imported; its return code, what it printed, its errors."""
    nursery = _nursery(*modules)
    job = {
        "code": textwrap.dedent(code),
        "arguments": [str(argument) for argument in arguments],
        "environment": environment,
        "apart": apart,
    }
    print(json.dumps(job), file=nursery.stdin, flush=True)
    return json.loads(nursery.stdout.readline())


def lives(code, *arguments, **environment):
    """Run code in a process of its own in which every framework is imported; it must reach its end.

    What it printed.
    """
    status, words, _ = forked(FRAMEWORKS, code, *arguments, apart=False, **environment)
    assert status == 0, f"ended with {status}\n{words[-4000:]}"
    return words


_COMMAND = """
import os, sys
os.chdir(sys.argv[1])
for name in sys.argv[2].split():
    os.environ.pop(name, None)
sys.argv = ["tensorferry", *sys.argv[3:]]
from tensorferry.cli import main
main()
"""
_FORMATS = "tensorferry.files.formats"
# The last are what Typer and NumPy's dtypes import when they are first used, in each child else.
COMMAND_LINE = (
    *sorted(
        f"{_FORMATS}.{each.stem}"
        for each in SOURCE.joinpath(*_FORMATS.split(".")).iterdir()
        if not each.stem.startswith("_")
    ),
    "tensorferry.cli.app",
    "tensorferry.cli.check",
    "tensorferry.cli.convert",
    "tensorferry.cli.diff",
    "tensorferry.cli.explain",
    "tensorferry.cli.inspect",
    "tensorferry.files.conversion.convert",
    "tensorferry.inspection",
    "typer.rich_utils",
    "importlib.metadata",
    "pydantic.main",
    "pydantic.type_adapter",
    "pydantic.types",
    "ml_dtypes",
    "tests.cli.built",
)


def forked_command(modules, words, *, folder=None, unset=(), **environment):
    """Run ``tensorferry …`` in a process of its own in which modules are imported; as `subprocess.run` does.

    Variables of the environment are unset, or set.
    """
    folder = Path.cwd() if folder is None else folder
    # Else the metadata of all that is installed is read, which takes longer than most commands.
    environment = {"PYDANTIC_DISABLE_PLUGINS": "1", **environment}
    status, out, err = forked(modules, _COMMAND, folder, " ".join(unset), *words, **environment)
    return subprocess.CompletedProcess(words, status, out, err)


class _WithoutSuggestions(doctest.OutputChecker):
    """Compares errors without what Python adds by itself, in more cases from release to release."""

    def check_output(self, want, got, optionflags):
        return super().check_output(
            want, re.sub(r"\. Did you mean: [^\n]*\?$", "", got), optionflags
        )


def run_examples(path):
    """Run the examples of a page; gives `doctest.TestResults`, and prints what went wrong."""
    examples = doctest.DocTestParser().get_doctest(
        path.read_text(encoding="utf-8"), {}, path.name, str(path), 0
    )
    runner = doctest.DocTestRunner(_WithoutSuggestions(), optionflags=doctest.NORMALIZE_WHITESPACE)
    return runner.run(examples)
