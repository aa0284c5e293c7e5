"""The conversions to columns and tables that users call: as those of `api`, with the same keywords."""

from __future__ import annotations

import sys
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, cast

from .execution.calls import DECLARED, converts_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import ParamSpec

    from .typing import Casting, Grad

    Keywords = ParamSpec("Keywords")

__all__ = ["to_arrow", "to_pandas", "to_polars"]

# From Python 3.13 on the compiler takes it away: https://docs.python.org/3/whatsnew/3.13.html#other-language-changes
_MARGIN = "    " if sys.version_info < (3, 13) else ""


def _keywords(
    x: object,
    /,
    *,
    copy: bool | None = None,
    dtype: object = None,
    casting: Casting | None = None,
    device: object = None,
    grad: Grad = "detach",
    nulls: object = None,
    ragged: Literal["rows"] | None = None,
    pad: object = None,
) -> Any:
    """Args:
        x: As for `to_numpy`.
        copy: As for `to_numpy`.
        dtype: As for `to_numpy`.
        casting: As for `to_numpy`.
        device: Only ``"cpu"``.
        grad: As for `to_numpy`.
        nulls: As for `to_numpy`.
        ragged: As for `to_numpy`.
        pad: As for `to_numpy`.

    Raises:
        ConversionError: As for `to_numpy`.
        FrameworkNotInstalledError: The library is not installed.

    .. versionadded:: 0.1
    """  # noqa: D205 - it is the end of another
    return DECLARED


def _with(declared: Callable[Keywords, Any]) -> Callable[[Callable[[object], Any]], Callable[Keywords, Any]]:
    """Decorate a function that has the keywords of another, which says them in the end of its docstring."""

    def decorate(function: Callable[[object], Any]) -> Callable[Keywords, Any]:
        source = cast("FunctionType", declared)
        made = FunctionType(source.__code__, source.__globals__, function.__name__)
        made.__kwdefaults__, made.__annotations__ = source.__kwdefaults__, source.__annotations__
        made.__doc__ = f"{(function.__doc__ or '').rstrip()}\n\n{_MARGIN}{source.__doc__}"
        made.__qualname__ = function.__qualname__
        return cast("Callable[Keywords, Any]", made)

    return decorate


@converts_to("arrow")
@_with(_keywords)
def to_arrow(x: object) -> Any:
    """Any tensor as an Arrow array: a ``pa.Array`` for one axis, a ``pa.FixedShapeTensorArray`` for more.

    >>> import tensorferry as ferry
    >>> ferry.to_arrow([1.5, 2.5]).type
    DataType(double)

    Arrow arrays never change, so a source that can be written is copied; ``copy=False`` consents to share. They cannot
    hold complex numbers or bfloat16, and have at least one axis.
    """


@converts_to("pandas")
@_with(_keywords)
def to_pandas(x: object) -> Any:
    """Any tensor as a ``pd.Series`` (one axis) or a ``pd.DataFrame`` (two axes).

    >>> import tensorferry as ferry
    >>> ferry.to_pandas([[1, 2], [3, 4]]).shape
    (2, 2)

    pandas expects that nobody else writes to its memory, so a source that can be written is copied; ``copy=False``
    consents to share. A result that shares memory with JAX, TensorFlow, Arrow or polars is read-only.
    """


@converts_to("polars")
@_with(_keywords)
def to_polars(x: object) -> Any:
    """Any tensor as a ``pl.Series`` (one axis) or a ``pl.DataFrame`` (two axes).

    >>> import tensorferry as ferry
    >>> ferry.to_polars(range(3)).to_list()
    [0, 1, 2]

    Columns of polars never change, so a source that can be written is copied; ``copy=False`` consents to share. A
    ``pl.DataFrame`` has a separate memory for each column, so it is always a copy.
    """
