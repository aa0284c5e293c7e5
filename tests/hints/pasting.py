"""Paste a hint into a process with the same objects, follow the hints of what it raises, and say what does not work."""

from __future__ import annotations

import ast
import atexit
import contextlib
import copy
import inspect
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from tests.hints.reading import Way, names_in, ways_of

import tensorferry as ferry
from tensorferry.functions.wrap import WRAPPED

STEPS = 4
"""How many hints may follow one another."""
SECONDS = 20
"""How long one way may take."""

WRITERS = {"save": 1, "convert_files": 1}
"""Functions that write, and which argument has the path."""

_GLOBAL = re.compile(r"pa\.\w+\(x|jax\.config|environ|set_default|torch\.cuda|torch\.set_")
"""What changes the state of the process."""

_MODULES = {
    "np": "numpy", "torch": "torch", "tf": "tensorflow", "jax": "jax", "jnp": "jax.numpy", "keras": "keras",
    "pd": "pandas", "pl": "polars", "pa": "pyarrow", "ml_dtypes": "ml_dtypes", "optree": "optree", "mx": "mlx.core",
    "nnx": "flax.nnx", "pq": "pyarrow.parquet", "cp": "cupy", "cupy": "cupy", "functools": "functools", "os": "os",
    "PIL": "PIL.Image", "scipy": "scipy", "pickle": "pickle", "array_api_strict": "array_api_strict",
}  # fmt: skip


Excused = Callable[[str], bool]


class Called(NamedTuple):
    """A call of a public function, and the hint of the error that it raised."""

    name: str
    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    hint: str | None
    message: str = ""


class Failed(Exception):  # noqa: N818 - what was found, not an error of the harness
    """A way of a hint that does not work."""


class _Tracked:
    """The public functions, each of which notes its call if it raises."""

    def __init__(self) -> None:
        self.depth = 0
        self.failed: Called | None = None

    def follow(self, name: str, function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.depth += 1
            try:
                return finished(function(*args, **kwargs))
            except ferry.ConversionError as error:
                if self.depth == 1:
                    self.failed = Called(
                        name, function, args, kwargs, hint_of(error), error_text(error)
                    )
                raise
            finally:
                self.depth -= 1

        return call


def hint_of(error: ferry.ConversionError) -> str | None:
    """The hint of an error; of a group, of its first that has one."""
    each = getattr(error, "exceptions", (error,))
    return next((one.hint for one in each if one.hint is not None), None)


def error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0][:300]


def finished(result: Any) -> Any:
    """The result, when it is there: what comes later is waited for, as far as its second part."""
    if isinstance(result, ferry.Transfer):
        return result.result()
    if isinstance(result, ferry.Prefetch):
        with contextlib.closing(result):
            return [each for each, _ in zip(result, range(2), strict=False)]
    return result


@contextlib.contextmanager
def _limit(seconds: int):
    """End what takes too long."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ended(number, frame):
        raise TimeoutError(f"not ended after {seconds} s")

    before = signal.signal(signal.SIGALRM, ended)
    left = signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(left)
        signal.signal(signal.SIGALRM, before)


def _public() -> dict[str, Any]:
    named = {name: getattr(ferry, name) for name in (*ferry.__all__, "open")}
    return {name: getattr(each, "__wrapped_by_harness__", each) for name, each in named.items()}


def _names(call: Called, tracked: _Tracked) -> dict[str, Any]:
    """What the names in a hint stand for, after a call."""
    public = _public()
    found: dict[str, Any] = {
        name: each if isinstance(each, type) or not callable(each) else tracked.follow(name, each)
        for name, each in public.items()
    }
    for short, module in _MODULES.items():
        if module.partition(".")[0] in sys.modules or re.search(rf"\b{short}\.", call.hint or ""):
            with contextlib.suppress(ImportError):
                whole = __import__(module)
                found[short] = whole if short == whole.__name__ else sys.modules[module]
    if call.name == "wrapped":
        found["function"] = call.function.source.function
        args = call.args[0]
        number = _argument(call)
        if number < len(args):
            found["x"] = args[number]
        return found
    for key, value in call.kwargs.items():
        if key not in found:
            found[key] = value
    if call.args:
        found["x"] = found["tree"] = found["source"] = call.args[0]
        # Given in the wrong order, they are not the first.
        found["samples"] = next((each for each in call.args if not isinstance(each, str)), None)
    place = WRITERS.get(call.name)
    if place is not None and len(call.args) > place:
        found["path"] = call.args[place]
    elif call.args:
        found["path"] = call.args[0]
    return found


def _argument(call: Called) -> int:
    """Which argument of a wrapped function an error is about."""
    found = re.search(r"\bargs\[(\d+)\]", call.message)
    return 0 if found is None else int(found[1])


def _wrapped_again(call: Called, way: Way, names: dict[str, Any], tracked: _Tracked) -> Any:
    """Do as one way says, for a call of a wrapped function."""
    owner, (args, keywords) = call.function, call.args
    if way.changes:
        changes = {name: eval(code, names) for name, code in way.changes.items()}  # noqa: S307
        kept = {name: getattr(owner.source, name) for name in _OF_SOURCE}
        given = {"inner": owner.inner, "outer": owner.outer, **kept, **changes}
        owner = vars(ferry.wrap(owner.source.function, **given))[WRAPPED]
    else:
        made = eval(way.code, names)  # noqa: S307
        if "wrap" in names_in(way.code):
            owner = vars(made)[WRAPPED]
        elif made is not None or "x" in names_in(way.code):
            number = _argument(call)
            args = (*args[:number], made, *args[number + 1 :])
    return tracked.follow("wrapped", owner)(args, keywords)


_OF_SOURCE = ("vjp", "jvp", "shapes", "dtype", "copy")
"""The keywords of `wrap` that are about the function itself."""


def _elsewhere(call: Called, folder: Path) -> Called:
    """The same call, whose output goes elsewhere: into a folder of its own, where what is at its path is, too."""
    if call.kwargs.get("out") is not None:
        with contextlib.suppress(Exception):  # what cannot be copied is written to in a child
            call = call._replace(kwargs={**call.kwargs, "out": copy.deepcopy(call.kwargs["out"])})
    place = WRITERS.get(call.name)
    if (
        place is None
        or len(call.args) <= place
        or not isinstance(call.args[place], (str, os.PathLike))
    ):
        return call
    path = Path(call.args[place])
    there = folder / (path.name or "out")
    if path.is_dir():
        shutil.copytree(path, there, symlinks=True)
    elif path.is_file():
        shutil.copy(path, there)
    args = list(call.args)
    args[place] = there
    return call._replace(args=tuple(args))


def _changed(
    call: Called, way: Way, names: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of the same call, as a way changes them."""
    bound = inspect.signature(call.function).bind(*call.args, **call.kwargs)
    values = {name: eval(code, dict(names)) for name, code in way.changes.items()}  # noqa: S307 - that is what it is for
    takes_any = any(each.kind is each.VAR_KEYWORD for each in bound.signature.parameters.values())
    unknown = [name for name in values if name not in bound.signature.parameters and not takes_any]
    if unknown:
        raise Failed(f"{call.name} does not take {unknown[0]}=")
    for name in way.without:
        bound.arguments.pop(name, None)
    positional = {name for name in bound.arguments if name not in call.kwargs}
    bound.arguments.update({name: value for name, value in values.items() if name in positional})
    given = {name: value for name, value in call.kwargs.items() if name not in way.without}
    return bound.args[: len(call.args)], {
        **given,
        **{k: v for k, v in values.items() if k not in positional},
    }


def _with_it_in_place(tree: Any, place: str, value: Any) -> Any:
    """The tree with another value at a place such as ``x["a"][0]``; the tree itself does not change."""
    steps: list[tuple[str, Any]] = []
    node = ast.parse(place, mode="eval").body
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            steps.append(("attribute", node.attr))
            node = node.value
        elif isinstance(node, ast.Subscript):
            steps.append(("item", ast.literal_eval(node.slice)))
            node = node.value
        else:
            raise Failed(f"{place} is no place in x")
    return _replaced(tree, steps[::-1], value)


def _replaced(tree: Any, steps: list[tuple[str, Any]], value: Any) -> Any:
    if not steps:
        return value
    (kind, key), *rest = steps
    if kind == "attribute":
        made = copy.copy(tree)
        object.__setattr__(made, key, _replaced(getattr(tree, key), rest, value))
        return made
    inner = _replaced(tree[key], rest, value)
    if isinstance(tree, tuple):
        return type(tree)([*tree[:key], inner, *tree[key + 1 :]])
    columns = getattr(tree, "column_names", None) or getattr(tree, "columns", None)
    if columns is not None and not callable(columns):
        # A table whose column is to be something else becomes a dict of its columns.
        return {**{name: tree[name] for name in columns}, key: inner}
    made = copy.copy(tree)
    made[key] = inner
    return made


class _Places(ast.NodeVisitor):
    """The places of a name that an expression reads."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.found: list[str] = []

    def generic_visit(self, node: ast.AST) -> None:
        inner: Any = node
        while isinstance(inner, ast.Subscript) and isinstance(
            inner.slice, (ast.Constant, ast.UnaryOp)
        ):
            inner = inner.value
        if isinstance(inner, ast.Name) and inner.id == self.name:
            self.found.append(ast.unparse(node))
        else:
            super().generic_visit(node)


def _place_in(code: str, name: str) -> str:
    """The place in `name` that an expression reads; `name` itself if it reads several."""
    places = _Places(name)
    places.visit(ast.parse(code, mode="eval"))
    return min(places.found, key=len, default=name)


def _do(call: Called, way: Way, tracked: _Tracked, first: list[str]) -> Any:
    """Do as one way says."""
    names = _names(call, tracked)
    again = tracked.follow(call.name, call.function)
    if way.script or way.command:
        made = _run(call, way, names)
        if made is None and way.command:
            return None  # it is several files, or the command is not here
        return again(*((made, *call.args[1:]) if made is not None else call.args), **call.kwargs)
    for code in first:
        exec(code, names)  # noqa: S102 - that is what it is for
    if call.name == "wrapped":
        return _wrapped_again(call, way, names, tracked)
    if not way.code:
        args, kwargs = _changed(call, way, names)
        return again(*args, **kwargs)
    read = names_in(way.code)
    if read & _public().keys() and "sample" not in read and not way.in_place:
        return finished(eval(way.code, names))  # noqa: S307
    # Of a loader it is each batch, as of a batch each sample.
    each_has = (
        "sample" if "sample" in read else "x" if call.name == "prefetch" and "x" in read else None
    )
    if each_has is not None:
        place = _place_in(way.code, each_has)
        made = [
            _with_it_in_place(each, place, eval(way.code, {**names, each_has: each}))  # noqa: S307
            for each in call.args[0]
        ]
        return again(made, *call.args[1:], **call.kwargs)
    made = eval(way.code, names)  # noqa: S307
    if read & {"like", "out"}:
        raise Failed(f"{way} does not say what it is for")
    if made is None and not read & {"x", "samples"}:
        return again(*call.args, **call.kwargs)
    name = "samples" if "samples" in read else "x"
    tree = _with_it_in_place(call.args[0], _place_in(way.code, name), made)
    return again(tree, *call.args[1:], **call.kwargs)


def _run(call: Called, way: Way, names: dict[str, Any]) -> Any:
    """Run statements or a command; the path of what they make, if they make a file."""
    given = call.args[0] if call.args else None
    if way.script:
        # As those name it who read from somewhere else than a file.
        space = {**names, **dict.fromkeys(("buffer", "data", "file", "url"), given)}
        before = space.get("path")
        exec(way.script, space)  # noqa: S102 - that is what it is for
        if space.get("path") is not before:
            return Path(space["path"]).absolute()
    elif shutil.which(way.command.split()[0]) is not None:
        options = {"capture_output": True, "text": True, "timeout": SECONDS, "check": False}
        done = subprocess.run(way.command, shell=True, **options)  # noqa: PLW1510, S602
        if done.returncode:
            raise Failed(f"{way} ends with {done.returncode}: {done.stderr[-300:]}")
    words = re.findall(r"'([^']+)'|\"([^\"]+)\"|([^\s'\"]+)", str(way))
    paths = [Path(word) for word in ("".join(each) for each in words) if word.startswith("/")]
    made = [path for path in paths if path.is_file() and path != Path(os.fspath(given))]
    return made[-1] if made else None


_made: list[str] = []
"""The folder for what is written."""


def _folder() -> str:
    if not _made or not Path(_made[0]).is_dir():
        _made[:] = [tempfile.mkdtemp(prefix="hints-")]
        atexit.register(shutil.rmtree, _made[0], ignore_errors=True)
    return _made[0]


def new_folder() -> str:
    """A new folder, which stays until `clean`."""
    return tempfile.mkdtemp(dir=_folder())


def clean() -> None:
    """Remove what was written."""
    for folder in _made:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _without_new_files(call: Called):
    """Remove what is made beside the paths of a call: the test that called it does not expect it."""
    paths = [
        Path(each)
        for each in call.args[:2]
        if isinstance(each, (str, os.PathLike)) and len(str(each)) < 1000
    ]
    folders = {path.parent for path in paths if path.is_absolute() and path.parent.is_dir()}
    before = {folder: set(folder.iterdir()) for folder in folders}
    try:
        yield
    finally:
        for folder, there in before.items():
            for path in set(folder.iterdir()) - there if folder.is_dir() else ():
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(
                    missing_ok=True
                )


def _try(call: Called, way: Way, first: list[str]) -> Called | None:
    """Do as one way says; the call that it led to, if that raised an error with a hint."""
    tracked = _Tracked()
    # Not removed before all hints are followed: it may be named in one of them.
    folder = new_folder()
    with _without_new_files(call), warnings.catch_warnings(), _limit(SECONDS):
        warnings.simplefilter("ignore")
        try:
            with contextlib.chdir(folder) if way.script else contextlib.nullcontext():
                _do(_elsewhere(call, Path(folder)), way, tracked, first)
        except Failed:
            raise
        except ferry.ConversionError as error:
            if tracked.failed is None or tracked.failed.hint is None:
                raise Failed(f"{way} raises {error_text(error)}") from None
            return tracked.failed
        except Exception as error:  # noqa: BLE001 - pasted code may raise anything
            where = traceback.extract_tb(error.__traceback__)[-1]
            raise Failed(
                f"{way} raises {error_text(error)} ({Path(where.filename).name}:{where.lineno})"
            ) from None
    return None


def _forked(
    call: Called, way: Way, first: list[str], seen: tuple[str, ...], excused: Excused
) -> None:
    """Do as one way says in a child of this process, whose state it may change."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        status = 0
        try:
            signal.alarm(2 * SECONDS)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            follow(call, way, first, seen, excused)
        except BaseException as error:  # noqa: BLE001 - the parent is told
            os.write(writing, str(error).encode()[:4000])
            status = 1
        os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        words = told.read().decode(errors="replace")
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        raise Failed(words or f"{way} ends the process with {status}")


def follow(
    call: Called, way: Way, first: list[str], seen: tuple[str, ...], excused: Excused
) -> None:
    """Do as one way says, and as the hints say that it leads to.

    Raises:
        Failed: It does not work.
    """
    later = _try(call, way, first)
    if later is not None and not excused(later.hint or ""):
        paste(later, (*seen, str(way)), excused)


def _key(call: Called) -> str:
    return f"{call.name}: {call.hint}"


def _none(_hint: str) -> bool:
    return False


def paste(call: Called, seen: tuple[str, ...] = (), excused: Excused = _none) -> None:
    """Paste each way of a hint, and follow where it leads.

    Args:
        call: The call, and the hint.
        seen: What was followed to there.
        excused: Whether a hint that this leads to need not be tried.

    Raises:
        Failed: A way does not work, or goes in a circle, or there is no code in the hint.
    """
    if _key(call) in seen:
        raise Failed(f"a circle: {' -> '.join(seen)}")
    if len(seen) > 2 * STEPS:
        raise Failed(f"no end: {' -> '.join(seen)}")
    ways = ways_of(call.hint or "")
    if not ways:
        raise Failed("no code")
    first = [way.code for way in ways if way.code and f"; {way.code} first" in (call.hint or "")]
    failures, worked = [], 0
    for way in ways:
        if way.code in first or _is_of_what_is_described(call, way) or _lacks_module(way, first):
            continue
        fork = any(map(_GLOBAL.search, (str(way), *first))) or _is_used_up(call)
        try:
            (_forked if fork else follow)(call, way, first, (*seen, _key(call)), excused)
            worked += 1
        except Failed as error:
            failures.append((way, str(error)))  # not the error, whose frames would keep `x` alive
    wrong = [why for way, why in failures if not way.conditional]
    if not worked and failures:
        wrong = [why for _, why in failures]
    if wrong:
        raise Failed("; ".join(wrong))


def _is_used_up(call: Called) -> bool:
    """Whether an argument can be read only once, or is written to and cannot be copied."""
    if any(hasattr(each, "__next__") for each in call.args):
        return True
    try:
        copy.deepcopy(call.kwargs.get("out"))
    except Exception:  # noqa: BLE001 - whatever it is
        return True
    return False


def _lacks_module(way: Way, first: list[str]) -> bool:
    """Whether code is of a library that is not installed where this runs."""
    code = " ".join([str(way), *first])
    used = {
        module.partition(".")[0]
        for short, module in _MODULES.items()
        if re.search(rf"\b{short}\.", code)
    }
    return not all(map(_is_installed, used - sys.modules.keys()))


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:  # a test hides it
        return False


def _is_of_what_is_described(call: Called, way: Way) -> bool:
    """Whether a way is code for a tensor of which the call has only a description, without its values."""
    described = bool(call.args) and isinstance(call.args[0], ferry.TensorInfo)
    return (
        described
        and bool(way.code)
        and "x" in names_in(way.code)
        and not way.code.startswith("x._replace(")
    )
