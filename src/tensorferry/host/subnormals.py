"""Keep subnormal floats, also on threads where a framework makes the processor flush them to zero.

TensorFlow's and XLA's threads, on which callbacks run (`tf.py_function`, `tf.data.Dataset.map`,
`jax.pure_callback`), and `torch.set_flush_denormal` switch that on: then every float operation,
also a cast or a comparison, treats a subnormal as zero. The switch is a register of each thread
(https://en.cppreference.com/w/c/numeric/fenv).
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from functools import cache, partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from ..core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Function = TypeVar("Function", bound=Callable[..., Any])

__all__ = ["are_flushed", "cast_to", "unflushed_callback", "with_subnormals"]

_SMALLEST = 5e-324


def are_flushed() -> bool:
    """Whether float operations on this thread treat subnormals as zero.

    >>> are_flushed()
    False
    """
    return not _SMALLEST * 1.0


def with_subnormals(function: Function) -> Function:
    """Decorate a function that casts or compares floats: same bits on each thread, no warning."""

    @wraps(function)
    def on_any_thread(*arguments: Any, **keywords: Any) -> Any:
        before = _be_quiet()
        try:
            if _SMALLEST * 1.0:
                return function(*arguments, **keywords)
            with _use_ordinary():
                return function(*arguments, **keywords)
        finally:
            _be_as(before)

    return cast("Function", on_any_thread)


def unflushed_callback(function: Function) -> Function:
    """Decorate a function called on a framework's thread: it keeps subnormals, as on Python's."""

    @wraps(function)
    def on_any_thread(*arguments: Any) -> Any:
        if _SMALLEST * 1.0:
            return function(*arguments)
        # Written out, since the ``with`` block of `_use_ordinary` takes as long as a small function.
        get, put, default = _find_environment()
        before = _free.pop() if _free else _new_room()
        get(before)
        put(default)
        try:
            return function(*arguments)
        finally:
            put(before)
            _free.append(before)

    return cast("Function", on_any_thread)


def cast_to(dtype: np.dtype[Any]) -> Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
    """NumPy's cast of an array to one dtype, as `with_subnormals` would give it, but faster."""

    def on_any_thread(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        before = _be_quiet()
        try:
            if _SMALLEST * 1.0:
                # Positional, because named arguments make the call half as slow again.
                return x.astype(dtype, "K", "unsafe", False)
            with _use_ordinary():
                return x.astype(dtype, "K", "unsafe", False)
        finally:
            _be_as(before)

    return on_any_thread


def _find_switch() -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """A function that makes NumPy ignore floating-point flags on this thread, and one to undo it.

    ``np.errstate`` takes as long as ten casts of a small array. What it sets is not public, so it
    is tested here.
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
    if works:
        return partial(variable.set, ignored), variable.reset
    return public, undo


_be_quiet, _be_as = _find_switch()


class _Environment(NamedTuple):
    """C's functions that read and set a thread's floating-point environment.

    With the default one; all as addresses.
    """

    get: Callable[[int], int]
    set: Callable[[int], int]
    default: int


_ROOM = 512
"""A size in bytes that is larger than `fenv_t` on any platform."""
_made: list[Any] = []
_free: list[int] = []
"""Addresses of free memory for environments, to be used again."""


def _new_room() -> int:
    _made.append(ctypes.create_string_buffer(_ROOM))
    return ctypes.addressof(_made[-1])


@cache
def _find_environment() -> _Environment:
    # `PyDLL` does not release the interpreter's lock.
    for name in (None, "libm.so.6"):
        library = ctypes.PyDLL(name)
        # `fegetmode` reads the modes without the flags, in half the time. Where it does not exist,
        # `fegetenv` is used.
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
def _use_ordinary() -> Iterator[None]:
    """Use the floating-point environment of a new program on this thread, inside the block."""
    get, put, default = _find_environment()
    before = _free.pop() if _free else _new_room()
    get(before)
    put(default)
    try:
        yield
    finally:
        put(before)
        _free.append(before)
