"""Keep PyTorch's compiler out of functions, and out of everything that they call."""

from __future__ import annotations

from types import CellType, FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["skip"]


def skip(torch: Any, function: Callable[..., Any]) -> None:
    """Let the compiler skip a function and everything that it calls, from the next call on.

    This is like `torch.compiler.disable`, but without a wrapper around each call, and without
    importing the compiler, which takes a second.

    Raises:
        AttributeError: This release of PyTorch has no such way.
    """
    frames = torch._C._dynamo.eval_frame
    if not hasattr(frames, "skip_code_recursive_flag"):
        skipped = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
        frames.set_code_exec_strategy(function.__code__, skipped)
        return
    # In PyTorch 2.6, only what looks at each call that begins can say so; the answer is kept with
    # the code.
    call, arguments, keywords = _without_effect(function.__code__)
    before = frames.set_eval_frame(lambda *_: frames.skip_code_recursive_flag)
    try:
        # No other call of Python's may begin here.
        call(*arguments, **keywords)
    except Exception:  # noqa: BLE001, S110 - it ends at once, in one way or another
        pass
    finally:
        frames.set_eval_frame(before)


def _without_effect(code: Any) -> tuple[FunctionType, list[None], dict[str, None]]:
    """A function of this code that ends where it needs the first name, and what it takes: ``None`` for everything."""
    names = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    cells = tuple(CellType() for _ in code.co_freevars)
    return (
        FunctionType(code, {"__builtins__": {}}, closure=cells),
        [None] * code.co_argcount,
        dict.fromkeys(names),
    )
