"""What the process does that runs a converter: import it, fork for each pass, write what it gives."""

from __future__ import annotations

import difflib
import dis
import importlib
import inspect
import json
import os
import pickle
import pkgutil
import random
import select
import shutil
import struct
import sys
import time
import traceback
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.random

from ..backends import registry
from ..core.dtypes import find
from ..core.names import EXCHANGE
from ..errors import ConversionError
from ..host.numpy_dtypes import numpy_dtype, of_numpy
from ..trees.api import convert_tree
from .dyes import Dye, Pass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ..typing import Array
    from .child import Job

__all__ = ["main"]

_DEEPEST = 50
_WEIGHTS = "model.safetensors"
_MOST_NAMED = 3
"""How many other names are shown."""
_MOST_SAID = 2000
"""How many letters of an exception are shown."""


def main(folder: str) -> None:
    """Run passes until nobody asks for one."""
    place = Path(folder)
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    log = os.open(place / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    asked = os.fdopen(os.dup(0), "rb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    job: Job = pickle.loads((place / "job.pickle").read_bytes())  # noqa: S301 - our own
    failed, convert = None, None
    try:
        # Not loaded: that starts threads, in some frameworks.
        registry.backend_named(registry.canonical(job.framework)).import_framework()
        convert = _function(*job.function)
        _import_what_it_imports(convert)
    except BaseException as error:  # noqa: BLE001 - whatever its module does
        failed = {
            **_failure("could not be imported", error),
            "instead": _instead(job.function[0], error),
        }
    salts = [0]
    _salt(salts)
    can_fork = hasattr(os, "fork") and _threads() == 1
    pending = b""
    while True:
        while b"\n" not in pending:
            more = os.read(asked.fileno(), 1 << 16)
            if not more:
                _end(place)
            pending += more
        line, _, pending = pending.partition(b"\n")
        number, *fields = json.loads(line)
        one = Pass(*fields)
        if failed is not None or convert is None:
            answer: dict[str, Any] = failed or {}
        elif can_fork:
            answer = _in_fork(job, convert, number, one, salts, (replies, asked))
            if _import_again(answer.pop("modules", ())):
                _salt(salts)
                can_fork = _threads() == 1
        else:
            answer = _run(job, convert, number, one, salts)
            answer["is_over"] = True
        target = place / f"{number}.json"
        target.write_text(json.dumps(answer))
        try:
            replies.write(json.dumps({"answer": str(target)}) + "\n")
            replies.flush()
        except OSError:
            _end(place)
        if answer.get("is_over"):
            os._exit(0)


def _end(folder: Path) -> None:
    """End this process, whose trace is gone, and remove what both have written."""
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def _threads() -> int:
    """How many threads this process has: a fork has only one, and what the others held is lost."""
    with suppress(OSError):
        return len(list(Path("/proc/self/task").iterdir()))
    return 2


def _function(name: str, pickled: bytes | None) -> Callable[..., Any]:
    if pickled is not None:
        function: Any = pickle.loads(pickled)  # noqa: S301 - the user's own function
        return function  # type: ignore[no-any-return]
    module, _, path = name.partition(":")
    function = importlib.import_module(module)
    for part in path.split("."):
        function = getattr(function, part)
    if not callable(function):
        raise TypeError(
            f"{path} of {module} is no function, but of the type {type(function).__name__}"
        )
    return function  # type: ignore[no-any-return]


def _instead(name: str, error: BaseException) -> str | None:
    """What to name instead of a function that is not there; ``None`` if it is not for its name."""
    module, _, path = name.partition(":")
    if isinstance(error, ImportError) and module not in sys.modules:
        missing = error.name or ""
        if missing and not f"{module}.".startswith(f"{missing}."):
            return f"install {missing}, which {module} imports"
        return _other_module(missing)
    place: Any = sys.modules.get(module)
    if place is None or not isinstance(error, (AttributeError, TypeError)):
        return None
    before = ""
    for part in path.split("."):
        inner = getattr(place, part, None)
        if inner is None or not (inspect.isclass(inner) or inspect.ismodule(inner)):
            break
        place, before = inner, f"{before}{part}."
    names = [
        name_there
        for name_there, inner in vars(place).items()
        if not name_there.startswith("_") and inspect.isroutine(inner)
    ]
    own = [
        name_there
        for name_there in names
        if getattr(vars(place)[name_there], "__module__", None) == module
    ]
    wanted = path[len(before) :]
    close = difflib.get_close_matches(wanted, names, _MOST_NAMED) or (own or names)[:_MOST_NAMED]
    if not close:
        return f"put a function into {module}: there is none"
    return ", or ".join([f'"{module}:{before}{name_there}"' for name_there in close])


def _other_module(missing: str) -> str:
    """What to do about a module that is not there: one of a name like it, or where it is looked for."""
    outer, _, last = missing.rpartition(".")
    place = getattr(sys.modules.get(outer), "__path__", None)
    names = [module.name for module in pkgutil.iter_modules(place)] if outer and place else []
    if not outer:
        names = [*sys.stdlib_module_names, *[module.name for module in pkgutil.iter_modules()]]
    close = difflib.get_close_matches(last, names, _MOST_NAMED)
    if close:
        dotted = [f"{outer}.{module}" if outer else module for module in close]
        return f"there is {' and '.join(dotted)}, but no {missing}"
    return "put the converter into a module that can be imported, as from this folder or PYTHONPATH"


def _import_again(names: Sequence[str]) -> bool:
    """Import what a pass has imported, so that the next need not; whether there was anything."""
    new = [name for name in names if name not in sys.modules]
    for name in new:
        # A module that does not like it is imported by each pass.
        with suppress(BaseException):
            importlib.import_module(name)
    return bool(new)


def _import_what_it_imports(convert: Callable[..., Any]) -> None:
    """Import what a function imports when it is called, once for all passes."""
    code = getattr(convert, "__code__", None)
    module: Any = None
    for instruction in dis.get_instructions(code) if code is not None else ():
        with suppress(Exception):  # which it then raises itself
            if instruction.opname == "IMPORT_NAME":
                module = importlib.import_module(instruction.argval)
            elif instruction.opname == "IMPORT_FROM" and module is not None:
                getattr(module, instruction.argval)


def _failure(what: str, error: BaseException) -> dict[str, Any]:
    """What an exception says, and where it was raised, in one line."""
    try:
        text = "".join(traceback.format_exception_only(type(error), error))
    except Exception:  # noqa: BLE001 - an exception that cannot be shown
        text = type(error).__qualname__
    frames = traceback.extract_tb(error.__traceback__)
    own = [
        frame
        for frame in frames
        if Path(frame.filename) != Path(__file__) and not frame.filename.startswith("<")
    ]
    where = ""
    if own:
        last = own[-1]
        where = f" ({Path(last.filename).name}, line {last.lineno}, in {last.name})"
    kind = type(error).__qualname__
    shown = " ".join(text.split())
    if what.endswith(kind):
        shown = shown.removeprefix(f"{kind}: ")
    shown = shown[:_MOST_SAID]
    return {"failed": what, "detail": f"{shown}{where}", "kind": kind}


# -- one pass in a process of its own ----------------------------------------------------------------


def _in_fork(
    job: Job,
    convert: Callable[..., Any],
    number: int,
    one: Pass,
    salts: list[int],
    pipes: tuple[Any, Any],
) -> dict[str, Any]:
    target = Path(job.folder) / f"{number}.part.json"
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if not child:
        # Whatever happens, it never goes on as its parent would.
        try:
            for pipe in pipes:
                os.close(pipe.fileno())
            before = set(sys.modules)
            made = _run(job, convert, number, one, salts)
            made["modules"] = [name for name in sys.modules if name not in before]
            target.write_text(json.dumps(made))
        finally:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(0)
    status = _wait(child, job.seconds, pipes[1], Path(job.folder))
    if status is None:
        return {"failed": f"did not end within {job.seconds:g} seconds"}
    if target.exists():
        answer: dict[str, Any] = json.loads(target.read_text())
        target.unlink()
        return answer
    if os.WIFSIGNALED(status):
        signal = os.WTERMSIG(status)
        why = "was ended by the system, mostly for want of memory"
        return {"failed": why if signal == 9 else f"was ended by the signal {signal}"}
    return {"failed": f"ended the process (exit code {os.WEXITSTATUS(status)})"}


def _wait(child: int, seconds: float, asked: Any, folder: Path) -> int | None:
    """How a process ended; ``None`` if it takes too long, and was ended."""
    end, pause = time.monotonic() + seconds, 0.001
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        # If nobody waits for the result any more, the pipe has ended.
        readable, _, _ = select.select([asked], [], [], pause)
        if time.monotonic() > end or readable:
            os.kill(child, 9)
            os.waitpid(child, 0)
            if readable:
                _end(folder)
            return None
        pause = min(pause * 1.5, 0.05)


def _limit(memory: int | None) -> None:
    """Bound the memory that this process can still take."""
    if memory is None:
        return
    try:
        import resource
    except ImportError:
        return
    with suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        # Each thread reserves addresses that it does not use.
        spare = (128 << 20) * (os.cpu_count() or 1)
        limit = pages * resource.getpagesize() + memory + spare
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def _run(
    job: Job, convert: Callable[..., Any], number: int, one: Pass, salts: list[int]
) -> dict[str, Any]:
    """Run the converter, and write what it gives."""
    _limit(job.memory)
    salts[0] = one.seed
    _seed(one.seed)
    try:
        arrays = _arrays(job, one)
        argument = _argument(job, convert, arrays, number)
        del arrays
    except MemoryError as error:
        return _failure("gets more than there is memory for", error)
    except ConversionError as error:
        return _failure(f"cannot get these tensors as {job.framework}", error)
    start = time.perf_counter()
    try:
        result = convert(argument)
        seconds = time.perf_counter() - start
    except BaseException as error:  # noqa: BLE001 - SystemExit too
        return _failure(f"raised {type(error).__qualname__}", error)
    del argument
    try:
        return {**_written(Path(job.folder) / f"{number}.bin", result), "seconds": seconds}
    except BaseException as error:  # noqa: BLE001 - what a tensor of another library raises
        return _failure("gave what cannot be read", error)


def _arrays(job: Job, one: Pass) -> dict[str, Array]:
    if one.kind != "given":
        dye = Dye(job.headers)
        return {name: dye.array(name, one) for name in job.headers}
    arrays, start = {}, 0
    file = Path(job.folder) / "given.bin"
    for name, header in job.headers.items():
        kind = numpy_dtype(header.dtype)
        array = np.fromfile(file, kind, header.size, offset=start)
        arrays[name] = array.reshape(header.shape)
        start += array.nbytes
    return arrays


# -- what the converter gets -------------------------------------------------------------------------


def _argument(
    job: Job, convert: Callable[..., Any], arrays: Mapping[str, Array], number: int
) -> Any:
    if not takes_path(convert):
        return convert_tree(dict(arrays), job.framework)
    folder = Path(job.folder) / f"source-{number}"
    folder.mkdir()
    if job.config is not None:
        (folder / "config.json").write_text(json.dumps(job.config))
    single = isinstance(job.files, str)
    files = job.files if job.files is not None else {_WEIGHTS: list(arrays)}
    if isinstance(files, str):
        files = {files: list(arrays)}
    weights = {}
    for name, inside in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(inside, str):
            target.write_bytes(Path(inside).read_bytes())
            continue
        weights[name] = inside
        _write(target, {inner_name: arrays[inner_name] for inner_name in inside}, job.framework)
    if len(weights) > 1:
        index = {inner_name: name for name, inside in weights.items() for inner_name in inside}
        text = json.dumps({"metadata": {}, "weight_map": index})
        (folder / f"{_WEIGHTS}.index.json").write_text(text)
    result = folder / next(iter(files)) if single else folder
    return str(result) if _annotation(convert) in _TEXTS else result


_TEXTS = (str, "str")


def _annotation(convert: Callable[..., Any]) -> Any:
    """What the first parameter of a function says that it is."""
    with suppress(TypeError, ValueError):
        for parameter in inspect.signature(convert).parameters.values():
            return parameter.annotation
    return None


def takes_path(convert: Callable[..., Any]) -> bool:
    """Whether a function takes a path: its first parameter says so."""
    annotation = _annotation(convert)
    if isinstance(annotation, str):
        words = annotation.replace("|", " ").replace("[", " ").split()
        return any(word.rpartition(".")[2] in ("str", "Path", "PathLike") for word in words[:3])
    every = [annotation, *getattr(annotation, "__args__", ())]
    kinds = [kind for kind in every if isinstance(kind, type)]
    return any(issubclass(kind, (str, os.PathLike)) for kind in kinds)


def _write(path: Path, arrays: Mapping[str, Array], framework: str) -> None:
    """A file of weights, by its ending."""
    if path.suffix == ".npz":
        with zipfile.ZipFile(path, "w") as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, array, allow_pickle=False)
        return
    if path.suffix != ".safetensors":
        module: Any = sys.modules[registry.ready(framework).module]
        module.save(convert_tree(dict(arrays), framework), path)
        return
    header, start = {}, 0
    for name, array in arrays.items():
        dtype = _SAFETENSORS.get(of_numpy(array.dtype) or "")
        if dtype is None:
            raise ConversionError(f"{path.name} cannot hold {array.dtype}, which {name} has.")
        stop = start + array.nbytes
        header[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": [start, stop]}
        start = stop
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in arrays.values():
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


_SAFETENSORS = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e8m0fnu": "F8_E8M0",
    "int16": "I16",
    "uint16": "U16",
    "float16": "F16",
    "bfloat16": "BF16",
    "int32": "I32",
    "uint32": "U32",
    "float32": "F32",
    "complex64": "C64",
    "float64": "F64",
    "int64": "I64",
    "uint64": "U64",
}


# -- what it gives -----------------------------------------------------------------------------------


def _written(path: Path, result: Any) -> dict[str, Any]:
    tensors: list[Any] = []
    others: dict[str, str] = {}
    names: set[str] = set()
    start = 0
    with path.open("wb") as file:
        for name, leaf in _leaves(result, "", 0):
            if not name:
                raise ValueError("it returned a tensor, and not a dict of them")
            if name in others or name in names:
                raise ValueError(f"it gave two tensors of the name {name}")
            names.add(name)
            if not registry.is_tensor(type(leaf)):
                others[name] = type(leaf).__qualname__
                continue
            try:
                array = convert_tree(leaf, EXCHANGE)
            except ConversionError as error:
                why, _, _ = error.message.partition(" - at ")
                others[name] = f"{type(leaf).__qualname__}: {why}"
                continue
            flat = np.ascontiguousarray(array).reshape(-1)
            dtype = of_numpy(flat.dtype)
            if dtype is None:
                others[name] = f"an array of {flat.dtype}"
                continue
            file.write(flat.astype(numpy_dtype(dtype), copy=False).view(np.uint8).data)
            tensors.append((name, array.shape, dtype, start))
            start += flat.size * find(dtype).itemsize
    return {"tensors": tensors, "others": others}


def _leaves(value: Any, name: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield what is in a result, by dotted names."""
    if depth > _DEEPEST:
        raise ValueError("it is nested too deeply")
    if registry.is_tensor(type(value)):
        yield name, value
        return
    items: Any = None
    if hasattr(value, "state_dict") and callable(value.state_dict):
        items = value.state_dict().items()
    elif hasattr(value, "items") and callable(value.items):
        items = value.items()
    elif isinstance(value, (list, tuple)):
        items = enumerate(value)
    if items is None:
        if not name:
            kind = type(value).__qualname__
            raise ValueError(f"it returned {kind}, and not a dict or an object with state_dict()")
        # A variable that holds a tensor.
        inner = getattr(value, "value", None)
        yield name, inner if registry.is_tensor(type(inner)) else value
        return
    for key, inner in list(items):
        text = f"{name}.{key}" if name else str(key)
        yield from _leaves(inner, text, depth + 1)


# -- seeds -------------------------------------------------------------------------------------------

_SALTED = "salted"
"""The module that functions seem to be of that are replaced."""
_SEEDING = {"seed", "manual_seed", "set_seed", "PRNGKey", "key", "default_rng", "set_random_seed"}


def _salt(salts: list[int]) -> None:
    """Make the functions that seed generators add a number, so that a second run has other seeds.

    A converter that makes up weights, with a seed of its own too, gives others then.
    """
    replaced: dict[int, Any] = {}

    def wrap(function: Any) -> Any:
        def seeding(*args: Any, **keywords: Any) -> Any:
            if salts[0] and args and type(args[0]) is int:
                args = ((args[0] + 7919 * salts[0]) % (1 << 31), *args[1:])
            for key in ("seed", "x"):
                if salts[0] and type(keywords.get(key)) is int:
                    keywords[key] = (keywords[key] + 7919 * salts[0]) % (1 << 31)
            return function(*args, **keywords)

        seeding.__name__ = getattr(function, "__name__", "seeding")
        seeding.__module__ = _SALTED
        return seeding

    modules = list(sys.modules.values())
    for module in modules:
        name = getattr(module, "__name__", "")
        if name.startswith("tensorferry"):
            continue
        names = vars(module)
        for key in _SEEDING & names.keys():
            value = names[key]
            is_random = "random" in name or "random" in (getattr(value, "__module__", "") or "")
            is_salted = getattr(value, "__module__", "") == _SALTED
            if callable(value) and not isinstance(value, type) and is_random and not is_salted:
                replaced.setdefault(id(value), (value, wrap(value)))
    kinds = _salted_kinds(salts)
    for module in modules:
        if getattr(module, "__name__", "").startswith("tensorferry"):
            continue
        names = vars(module)
        for key, value in list(names.items()):
            known = replaced.get(id(value)) or kinds.get(id(value))
            if known is not None and known[0] is value:
                with suppress(Exception):
                    setattr(module, key, known[1])


def _salted_kinds(salts: list[int]) -> dict[int, Any]:
    """The classes of generators of the standard library and of NumPy, with another seed."""

    class Salted(random.Random):
        def seed(self, a: Any = None, version: int = 2) -> None:
            super().seed(a + 7919 * salts[0] if type(a) is int and salts[0] else a, version)

    state: Any = np.random.RandomState

    class SaltedState(np.random.RandomState):
        def __init__(self, seed: Any = None) -> None:
            super().__init__((seed + salts[0]) % (1 << 32) if type(seed) is int else seed)

    kinds: dict[int, Any] = {}
    for kind, salted in ((random.Random, Salted), (state, SaltedState)):
        if kind.__module__ != _SALTED:
            salted.__module__ = _SALTED
            kinds[id(kind)] = kind, salted
    return kinds


def _seed(seed: int) -> None:
    """Seed what a converter uses that does not do it itself."""
    random.seed(1234 + seed)
    np.random.seed(1234 + seed)  # noqa: NPY002 - what it may use
    for module in list(sys.modules.values()):
        function = getattr(module, "manual_seed", None)
        if function is not None and getattr(module, "__name__", "").endswith("random"):
            with suppress(Exception):
                function(1234 + seed)
