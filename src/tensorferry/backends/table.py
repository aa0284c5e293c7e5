"""The backends of this package, as the registry knows them before it imports their code.

To import all of them would take longer than a first conversion. So a backend is imported when it is
named, or when its framework is there and one of its types is met. `tests/backends/test_table.py`
compares the table with the backends.
"""

from __future__ import annotations

import sys

from ..core.named_tuple import NamedTuple

__all__ = ["OWNERS", "ROWS", "Row"]


class Row(NamedTuple):
    """What is known of a backend without its code. The fields are those of `Backend`.

    Args:
        name: Its canonical name.
        module: The module of its framework.
        owns: The top-level modules whose types belong to it.
        aliases: Other names that users may write.
        is_traced: Whether the framework has a tracer that traces the functions that a user calls.
    """

    name: str
    module: str
    owns: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    is_traced: bool = False

    def is_imported(self) -> bool:
        """Whether its framework has been imported. ``None`` in its place says that it cannot be."""
        return sys.modules.get(self.module) is not None


_ROWS = (
    Row(
        "python",
        "builtins",
        owns=("builtins", "array", "collections", "decimal", "fractions", "pathlib", "tensorferry"),
        aliases=("list",),
    ),
    Row("numpy", "numpy", owns=("numpy", "ml_dtypes"), aliases=("np",)),
    Row("torch", "torch", owns=("torch",), aliases=("pt", "pytorch"), is_traced=True),
    Row("tensorflow", "tensorflow", owns=("tensorflow", "keras"), aliases=("tf",)),
    Row("jax", "jax", owns=("jax", "jaxlib"), aliases=("jnp", "jax.numpy")),
    Row("cupy", "cupy", owns=("cupy", "cupyx")),
    Row("arrow", "pyarrow", owns=("pyarrow",), aliases=("pyarrow", "pa")),
    Row("pandas", "pandas", owns=("pandas",), aliases=("pd",)),
    Row("polars", "polars", owns=("polars",), aliases=("pl",)),
    Row("array-like", "builtins"),
)

ROWS = {row.name: row for row in _ROWS}
"""The rows by canonical name, in the order of tables of frameworks (`Backend.rank`)."""
OWNERS = {module: row.name for row in _ROWS for module in row.owns}
"""The canonical name of the backend that owns a top-level module."""
