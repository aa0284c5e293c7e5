"""The witness for polars: series, and frames, whose columns each have their own memory."""

# ruff: noqa: D102 - the methods are documented in the base class

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ..witness import ColumnWitness
from .numpy import at_64, place_of

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ..memory import Place


class PolarsWitness(ColumnWitness):
    """`pl.Series` and `pl.DataFrame`."""

    name = "polars"
    module = "polars"

    def load(self) -> None:
        self.pl: Any = importlib.import_module("polars")

    def build(self, content: bytes, dtype: str, shape: tuple[int, ...]) -> Any:
        name = {"bool": "Boolean"}.get(dtype, dtype.capitalize().replace("Uint", "UInt"))
        if not hasattr(self.pl, name):
            raise TypeError(f"polars has no {dtype}")
        array = at_64(content).view(dtype).reshape(shape)
        if len(shape) == 1:
            return self.pl.Series(array, dtype=getattr(self.pl, name))
        return self.pl.DataFrame(
            [self.pl.Series(f"c{index}", column) for index, column in enumerate(array.T)]
        )

    def dtype(self, x: Any) -> str:
        name = str(x.dtype if isinstance(x, self.pl.Series) else x.dtypes[0]).lower()
        return {"boolean": "bool"}.get(name, name)

    def place(self, x: Any) -> Place | None:
        if not isinstance(x, self.pl.Series) or self.dtype(x) == "bool":
            return None
        return place_of(x.to_numpy())

    def content(self, x: Any) -> bytes:
        return x.to_numpy().tobytes()  # type: ignore[no-any-return]

    def is_plain(self, x: Any) -> bool:
        return isinstance(x, (self.pl.Series, self.pl.DataFrame))

    def state(self, x: Any) -> Hashable:
        return type(x), self.dtype(x), x.shape, self.place(x)


WITNESS = PolarsWitness()
