"""Libraries whose objects are not opened by their protocols, by their top-level modules.

A library is imported already when one of its objects is met.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import hints
from ...columns.column import TEXT
from ...core.named_tuple import NamedTuple
from ...errors import UnsupportedTypeError, an
from ...hints import Hint
from ...host.numpy_dtypes import of_numpy
from .. import registry
from .protocols import from_array, open_by_protocol, open_contents, open_later_values

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ...core.info import TensorInfo
    from ...typing import Array
    from ..base import Backend, Opening

    Opened = tuple[Backend | None, TensorInfo, Any]

__all__ = ["CLASSES", "KnownClass", "Together", "known_class"]


class Together(NamedTuple):
    """How to read many objects of a class, of which all have equal shapes and one dtype.

    Args:
        key: Gives what decides the shape and the dtype of an object, without reading its values.
        lengths: Gives the shape.
        read: Gives an array of the values, which is only read.
    """

    key: Callable[[Any], Hashable]
    lengths: Callable[[Any], tuple[int, ...]]
    read: Callable[[Any], Array]


class KnownClass(NamedTuple):
    """How to open the objects of a class.

    Args:
        open: As `Backend.open`, with ``None`` in place of a backend for array-like objects.
        is_text: Whether an object has only text.
        made_like: Code that makes an object of the class of `x`, as one in ``like=``; then,
            perhaps, a comma and a remark.
        together: How many are read together; ``None`` if they are opened one by one.
    """

    open: Callable[[Any, Opening], Opened]
    is_text: Callable[[Any], bool] = lambda _: False
    made_like: str = ""
    together: Together | None = None


# -- arrays whose values are computed, or read from a file, at each access -------------------------


def _open_later(x: Any, opening: Opening, take: Callable[[Any], Any] = from_array, /) -> Opened:
    """Open an array by its shape and dtype. Nothing is computed or read before `take` is called."""
    shape, dtype = x.shape, x.dtype
    if isinstance(dtype, np.dtype):
        name = of_numpy(dtype)
    else:
        name = None
    # The shape may be unknown before the values are computed.
    if (
        name is None
        or shape is None
        or not all(isinstance(length, (int, np.integer)) for length in shape)
    ):
        return open_contents(x, take, opening)
    return None, *open_later_values(x, partial(take, x), tuple(map(int, shape)), name)


def _is_text_or_dates(x: Any) -> bool:
    """Whether an array holds text or dates, by its dtype."""
    return x.dtype.kind in "USTmM"


# -- dask: arrays are computed when they are converted; tables must be computed by the user first --


def _class_of_dask(kind: type) -> KnownClass | None:
    """How to open a class of dask, or a subclass; ``None`` for others."""
    names = {base.__name__ for base in kind.__mro__}
    if "Array" in names:
        return KnownClass(_open_dask, _is_text_or_dates)
    if names & {"DataFrame", "Series", "Index"}:
        return KnownClass(_refuse_dask)
    return None


def _open_dask(x: Any, opening: Opening) -> Opened:
    # Not through `__array__`, which drops a mask.
    return _open_later(x, opening, lambda x: from_array(x.compute(), "x.compute()"))


def _refuse_dask(x: Any, _opening: Opening) -> Opened:
    raise UnsupportedTypeError(
        f"{an(type(x).__name__, 'A')} of dask is a computation that has not run.", "x.compute()"
    )


# -- Hugging Face datasets: a column is read when it is sliced; a dataset has several columns ------


def _class_of_datasets(kind: type) -> KnownClass | None:
    """How to open a class of datasets, or a subclass; ``None`` for others."""
    names = {base.__name__ for base in kind.__mro__}
    if "Column" in names:
        return KnownClass(_open_column_datasets, _is_text_datasets)
    if names & {"Dataset", "IterableDataset"}:
        return KnownClass(_refuse_datasets)
    return None


def _open_column_datasets(x: Any, opening: Opening) -> Opened:
    values = x[:]
    return registry.backend_of(values).open(values, opening)


def _is_text_datasets(x: Any) -> bool:
    return len(x) > 0 and isinstance(x[0], (str, bytes))


def _refuse_datasets(x: Any, _opening: Opening) -> Opened:
    kind = type(x).__name__
    # Without a format, batches are lists of Python objects, which stay as they are in a tree.
    hint = Hint(hints.call("prefetch", 'x.with_format("arrow").iter(32)'))
    if kind != "IterableDataset":
        hint = Hint(hints.tree(), ", or batch by batch: ", hint)
    raise UnsupportedTypeError(f"{an(kind, 'A')} of datasets is several columns.", hint)


# -- h5py: datasets are read from their file at each access ----------------------------------------


def _class_of_h5py(kind: type) -> KnownClass | None:
    """How to open a class of h5py, or a subclass; ``None`` for others."""
    import h5py

    if issubclass(kind, h5py.Dataset):
        return KnownClass(_open_h5py, _is_text_h5py)
    return None


def _open_h5py(x: Any, opening: Opening) -> Opened:
    if _is_text_h5py(x):
        raise UnsupportedTypeError(
            f"This Dataset {TEXT}.",
            Hint(
                hints.code("np.unique(x.asstr()[()], return_inverse=True)[1]"),
                ", which numbers the words",
            ),
        )
    return _open_later(x, opening)


def _is_text_h5py(x: Any) -> bool:
    import h5py

    return _is_text_or_dates(x) or h5py.check_string_dtype(x.dtype) is not None


# -- Pillow: pixels are decoded when an image is read; those of a palette image are indices --------


def _class_of_pillow(kind: type) -> KnownClass | None:
    """How to open a class of Pillow, or a subclass; ``None`` for others."""
    from PIL import Image

    if issubclass(kind, Image.Image):
        return KnownClass(_open_pillow, together=Together(_mode_and_size, _lengths, _seen_pillow))
    return None


def _open_pillow(x: Any, opening: Opening) -> Opened:
    from PIL import ImageMode

    mode = ImageMode.getmode(x.mode)
    dtype = of_numpy(np.dtype(mode.typestr))
    if dtype is None:
        return open_by_protocol(x, opening)
    of_palette = x.mode in ("P", "PA")
    return None, *open_later_values(
        x, partial(_read_pillow, x), _lengths(x), dtype, of_palette=of_palette
    )


def _mode_and_size(x: Any) -> Hashable:
    return x.mode, x.size


def _lengths(x: Any) -> tuple[int, ...]:
    from PIL import ImageMode

    bands = ImageMode.getmode(x.mode).bands
    return (x.height, x.width, *((len(bands),) if len(bands) > 1 else ()))


def _read_pillow(x: Any) -> Any:
    return np.array(_loaded(x))


def _seen_pillow(x: Any) -> Any:
    return np.asarray(_loaded(x))


def _loaded(x: Any) -> Any:
    # This raises for a broken file, from which NumPy would make an image of zeros.
    x.load()
    return x


# -- SciPy: sparse matrices are refused, because they have no dense memory -------------------------


def _class_of_scipy(kind: type) -> KnownClass | None:
    """How to open a class of SciPy, or a subclass; ``None`` for others."""
    from scipy import sparse

    if issubclass(kind, (sparse.sparray, sparse.spmatrix)):
        return KnownClass(_refuse_scipy)
    return None


def _refuse_scipy(x: Any, _opening: Opening) -> Opened:
    raise UnsupportedTypeError(
        f"A {type(x).__name__} is sparse: indices and values, not one tensor.",
        Hint(hints.code("x.toarray()"), ", which has every zero"),
    )


# -- xarray: a `DataArray` is opened as its array; a dataset has several ---------------------------


def _class_of_xarray(kind: type) -> KnownClass | None:
    """How to open a class of xarray, or a subclass; ``None`` for others."""
    import xarray as xr

    if issubclass(kind, xr.Dataset):
        return KnownClass(_refuse_xarray)
    if issubclass(kind, getattr(xr, "DataTree", xr.Dataset)):
        return KnownClass(_refuse_tree_xarray)
    made_like = "like.copy(data=to_numpy(x)), which keeps its dimensions and coordinates"
    is_array = issubclass(kind, (xr.DataArray, xr.Variable))
    if is_array:
        return KnownClass(_open_xarray, _is_text_or_dates, made_like)
    return None


def _open_xarray(x: Any, opening: Opening) -> Opened:
    # Through the private attribute, because the public one would read the data. Unknown data count
    # as read later.
    lies_here = isinstance(getattr(getattr(x, "variable", x), "_data", None), np.ndarray)
    return (open_by_protocol if lies_here else _open_later)(x, opening)


def _refuse_xarray(_x: Any, _opening: Opening) -> Opened:
    raise UnsupportedTypeError(
        "A Dataset is several arrays with names.", Hint(hints.tree("dict(x.variables)"))
    )


def _refuse_tree_xarray(_x: Any, _opening: Opening) -> Opened:
    hint = Hint(
        hints.tree(
            'dict(((node.path + "/" + name).strip("/"), value)'
            " for node in x.subtree for name, value in node.to_dataset().variables.items())"
        )
    )
    raise UnsupportedTypeError("A DataTree is several datasets with names.", hint)


# -- zarr: arrays are read from their store at each access -----------------------------------------


def _class_of_zarr(kind: type) -> KnownClass | None:
    """How to open a class of zarr, or a subclass; ``None`` for others."""
    import zarr

    if issubclass(kind, zarr.Array):
        return KnownClass(_open_later, _is_text_or_dates)
    return None


# -- all of them -----------------------------------------------------------------------------------


CLASSES = {
    "dask": _class_of_dask,
    "datasets": _class_of_datasets,
    "h5py": _class_of_h5py,
    "PIL": _class_of_pillow,
    "scipy": _class_of_scipy,
    "xarray": _class_of_xarray,
    "zarr": _class_of_zarr,
}
"""For each library, by its top-level module, a function that gives how to open a class."""


def _look(kind: type) -> KnownClass | None:
    for base in kind.__mro__:
        class_of = CLASSES.get(base.__module__.partition(".")[0])
        library_class = None if class_of is None else class_of(kind)
        if library_class is not None:
            return library_class
    return None


known_class: Callable[[type], KnownClass | None] = lru_cache(maxsize=4096)(_look)
"""How to open a class; ``None`` if its protocols are enough."""
