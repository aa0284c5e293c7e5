"""The conversions to columns and tables that users call: as those of `api`, with the same keywords."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from .execution.calls import DECLARED, converts_to

if TYPE_CHECKING:
    from .typing import Casting, Grad

__all__ = ["to_arrow", "to_pandas", "to_polars"]


@converts_to("arrow")
def to_arrow(
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
    out: Any = None,
) -> Any:
    """Any tensor as an array of Arrow's: a ``pa.Array`` of one axis, a ``pa.FixedShapeTensorArray`` of more.

    >>> import tensorferry as ferry
    >>> ferry.to_arrow([1.5, 2.5]).type
    DataType(double)

    Arrow's arrays are immutable, so a writable source is copied unless ``copy=False`` consents to share. They have
    neither complex numbers nor bfloat16, and one axis at least.

    Args:
        x: As for `to_numpy`.
        copy: As for `to_numpy`.
        dtype: As for `to_numpy`.
        casting: As for `to_numpy`.
        device: Only the host.
        grad: As for `to_numpy`.
        nulls: As for `to_numpy`.
        ragged: As for `to_numpy`.
        pad: As for `to_numpy`.
        out: Refused: Arrow's arrays are immutable.

    Raises:
        ConversionError: As for `to_numpy`.
        FrameworkNotInstalledError: pyarrow is not installed.

    .. versionadded:: 0.1
    """
    return DECLARED


@converts_to("pandas")
def to_pandas(
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
    out: Any = None,
) -> Any:
    """Any tensor of one axis as a ``pd.Series``, of two as a ``pd.DataFrame``.

    >>> import tensorferry as ferry
    >>> ferry.to_pandas([[1, 2], [3, 4]]).shape
    (2, 2)

    pandas takes its memory for its own, so a writable source is copied unless ``copy=False`` consents to share.
    What is over memory of an immutable framework can be read, and not be written.

    Args:
        x: As for `to_numpy`.
        copy: As for `to_numpy`.
        dtype: As for `to_numpy`.
        casting: As for `to_numpy`.
        device: Only the host.
        grad: As for `to_numpy`.
        nulls: As for `to_numpy`.
        ragged: As for `to_numpy`.
        pad: As for `to_numpy`.
        out: Refused: a frame is not memory.

    Raises:
        ConversionError: As for `to_numpy`.
        FrameworkNotInstalledError: pandas is not installed.

    .. versionadded:: 0.1
    """
    return DECLARED


@converts_to("polars")
def to_polars(
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
    out: Any = None,
) -> Any:
    """Any tensor of one axis as a ``pl.Series``, of two as a ``pl.DataFrame``.

    >>> import tensorferry as ferry
    >>> ferry.to_polars(range(3)).to_list()
    [0, 1, 2]

    polars' columns are immutable, so a writable source is copied unless ``copy=False`` consents to share; a frame
    has a memory for each column, and is always copied.

    Args:
        x: As for `to_numpy`.
        copy: As for `to_numpy`.
        dtype: As for `to_numpy`.
        casting: As for `to_numpy`.
        device: Only the host.
        grad: As for `to_numpy`.
        nulls: As for `to_numpy`.
        ragged: As for `to_numpy`.
        pad: As for `to_numpy`.
        out: Refused: polars' columns are immutable.

    Raises:
        ConversionError: As for `to_numpy`.
        FrameworkNotInstalledError: polars is not installed.

    .. versionadded:: 0.1
    """
    return DECLARED
