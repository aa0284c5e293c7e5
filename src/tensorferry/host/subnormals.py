"""Subnormal floats keep their bits on every thread, also where a framework has the processor flush them to zero.

TensorFlow's and XLA's threads, on which callbacks run (`tf.py_function`, `tf.data.Dataset.map`, `jax.pure_callback`),
and `torch.set_flush_denormal` switch that on: each float operation then takes a subnormal for zero, a cast and a
comparison too. It is a register of each thread's (https://en.cppreference.com/w/c/numeric/fenv).
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from functools import cache, partial, wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Function = TypeVar("Function", bound=Callable[..., Any])

__all__ = ["are_flushed", "cast_to", "kept", "kept_of", "unflushed"]

_SMALLEST = 5e-324


def are_flushed() -> bool:
    """Whether this thread's float operations take subnormals for zero.

    >>> are_flushed()
    False
    """
    return not _SMALLEST * 1.0


def kept(function: Function) -> Function:
    """Decorate a function that casts or compares floats: it gives the same bits on every thread, and no warning."""

    @wraps(function)
    def on_any_thread(*arguments: Any, **keywords: Any) -> Any:
        before = _be_quiet()
        try:
            if _SMALLEST * 1.0:
                return function(*arguments, **keywords)
            with _ordinary():
                return function(*arguments, **keywords)
        finally:
            _be_as(before)

    return cast("Function", on_any_thread)


def unflushed(function: Function) -> Function:
    """Decorate a function that a framework's thread calls: it meets subnormals as on a thread of Python's."""

    @wraps(function)
    def on_any_thread(*arguments: Any) -> Any:
        if _SMALLEST * 1.0:
            return function(*arguments)
        # As `_ordinary` does, of which the block takes as long as a small function.
        get, put, default = _environment()
        before = _free.pop() if _free else _room()
        get(before)
        put(default)
        try:
            return function(*arguments)
        finally:
            put(before)
            _free.append(before)

    return cast("Function", on_any_thread)


def kept_of(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same for a function of one thing, for which the call takes less."""

    def on_any_thread(x: Any) -> Any:
        before = _be_quiet()
        try:
            if _SMALLEST * 1.0:
                return function(x)
            with _ordinary():
                return function(x)
        finally:
            _be_as(before)

    return on_any_thread


def cast_to(dtype: np.dtype[Any]) -> Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
    """The same for NumPy's cast of an array to one dtype, of which each call within takes a tenth."""

    def on_any_thread(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        before = _be_quiet()
        try:
            if _SMALLEST * 1.0:
                # By their names these arguments take half as long again as the cast.
                return x.astype(dtype, "K", "unsafe", False)
            with _ordinary():
                return x.astype(dtype, "K", "unsafe", False)
        finally:
            _be_as(before)

    return on_any_thread


def _find_switch() -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """What has NumPy ignore all floating-point flags for this thread, and what takes that back.

    ``np.errstate`` takes as long as ten casts of a small array. What it sets is not public, so it is tried out here.
    """

    def public() -> dict[str, str]:
        return np.seterr(all="ignore")  # type: ignore[return-value]

    def undo(before: Mapping[str, Any]) -> None:
        np.seterr(**before)

    try:
        from numpy._core import umath

        variable, ignored = umath._extobj_contextvar, umath._make_extobj(all="ignore")  # noqa: SLF001
        before = variable.set(ignored)
        works = set(np.geterr().values()) == {"ignore"}
        variable.reset(before)
    except (ImportError, AttributeError, TypeError):
        return public, undo
    return (partial(variable.set, ignored), variable.reset) if works else (public, undo)


_be_quiet, _be_as = _find_switch()


class _Environment(NamedTuple):
    """C's functions for what a thread's floating-point unit is set to, and its default; all take addresses."""

    get: Callable[[int], int]
    set: Callable[[int], int]
    default: int


_ROOM = 512
"""Bytes, more than any platform's `fenv_t` has."""
_made: list[Any] = []
_free: list[int] = []
"""Addresses of memory for an environment: as many as there were threads at once that needed one."""


def _room() -> int:
    _made.append(ctypes.create_string_buffer(_ROOM))
    return ctypes.addressof(_made[-1])


@cache
def _environment() -> _Environment:
    # Without giving the interpreter's lock away: the register is this thread's.
    for name in (None, "libm.so.6"):
        library = ctypes.PyDLL(name)
        # The modes alone, without the flags, take half the time; where there are none, all.
        for get, put in (("fegetmode", "fesetmode"), ("fegetenv", "fesetenv")):
            if not hasattr(library, get):
                continue
            functions = getattr(library, get), getattr(library, put)
            for function in functions:
                function.argtypes = (ctypes.c_void_p,)
            try:
                default = ctypes.addressof(ctypes.c_char.in_dll(library, "_FE_DFL_ENV"))
            except ValueError:
                default = -1  # so it is written in glibc and in musl
            return _Environment(*functions, default)
    raise OSError("this platform has no fegetenv")


@contextmanager
def _ordinary() -> Iterator[None]:
    """The environment that a program starts with, for this thread and the time of the block."""
    get, put, default = _environment()
    before = _free.pop() if _free else _room()
    get(before)
    put(default)
    try:
        yield
    finally:
        put(before)
        _free.append(before)
