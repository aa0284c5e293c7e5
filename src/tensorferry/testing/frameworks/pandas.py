"""The witness for pandas: series and frames over NumPy's memory."""

# ruff: noqa: D102 - the methods are documented in the base class

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from ..witness import ColumnWitness
from .numpy import at_64, dtype_of, place_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ..memory import Place


class PandasWitness(ColumnWitness):
    """`pd.Series` and `pd.DataFrame`."""

    name = "pandas"
    module = "pandas"
    mutable = True

    def load(self) -> None:
        self.pd: Any = importlib.import_module("pandas")

    def build(self, content: bytes, dtype: str, shape: tuple[int, ...]) -> Any:
        kind = dtype_of(dtype)
        if kind.isbuiltin != 1:
            raise TypeError(f"pandas has no {dtype}")
        array = at_64(content).view(kind).reshape(shape)
        return (self.pd.Series if len(shape) == 1 else self.pd.DataFrame)(array, copy=False)

    def dtype(self, x: Any) -> str:
        return str(x.dtype if x.ndim == 1 else x.dtypes.iloc[0])

    def place(self, x: Any) -> Place | None:
        return place_of(x.to_numpy())

    def content(self, x: Any) -> bytes:
        return x.to_numpy().tobytes()  # type: ignore[no-any-return]

    def poker(self, x: Any) -> Callable[[bytes], None] | None:
        def poke(content: bytes) -> None:
            x.iloc[...] = np.frombuffer(content, x.to_numpy().dtype).reshape(x.shape)

        return poke

    def is_plain(self, x: Any) -> bool:
        return isinstance(x, (self.pd.Series, self.pd.DataFrame))

    def state(self, x: Any) -> Hashable:
        return (
            type(x),
            self.dtype(x),
            x.shape,
            x.index.equals(self.pd.RangeIndex(len(x))),
            self.place(x),
        )


WITNESS = PandasWitness()
