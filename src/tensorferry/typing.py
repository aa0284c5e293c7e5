"""Names for type checkers: frameworks' types, what a target can be called, the keywords of each.

At run time the frameworks' types are `Any`, and nothing is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, TypeVar

__all__ = [
    "AnyKeywords",
    "Casting",
    "Grad",
    "JaxArray",
    "JaxName",
    "Keywords",
    "Leaves",
    "NumpyArray",
    "NumpyKeywords",
    "NumpyName",
    "Options",
    "PandasKeywords",
    "PolarsKeywords",
    "PythonName",
    "Target",
    "TensorflowKeywords",
    "TensorflowName",
    "TensorflowTensor",
    "TensorflowVariable",
    "To",
    "TorchKeywords",
    "TorchName",
    "TorchTensor",
    "WritingKeywords",
]

if TYPE_CHECKING:
    import jax
    import numpy as np
    import tensorflow as tf  # type: ignore[import-untyped, unused-ignore]
    import torch

    NumpyArray: TypeAlias = np.ndarray[Any, np.dtype[Any]]
    TorchTensor: TypeAlias = torch.Tensor
    TensorflowTensor: TypeAlias = tf.Tensor
    TensorflowVariable: TypeAlias = tf.Variable
    JaxArray: TypeAlias = jax.Array
    # For the code of tensorferry. Of a `NumpyArray`, pyright does not know `real` and `imag`.
    Array: TypeAlias = np.ndarray[Any, Any]
else:
    NumpyArray = TorchTensor = TensorflowTensor = TensorflowVariable = JaxArray = Array = Any

NumpyName: TypeAlias = Literal["numpy", "np"]
TorchName: TypeAlias = Literal["torch", "pt", "pytorch"]
TensorflowName: TypeAlias = Literal["tensorflow", "tf"]
JaxName: TypeAlias = Literal["jax", "jnp", "jax.numpy"]
PythonName: TypeAlias = Literal["python", "list"]
TableName: TypeAlias = Literal["arrow", "pandas", "polars"]
Target: TypeAlias = (
    NumpyName | TorchName | TensorflowName | JaxName | PythonName | TableName | Literal["cupy"]
)
"""The names of the frameworks that have a backend here; a package can bring others."""
To: TypeAlias = Target | str | ModuleType | type[Any]
"""How a target can be given: as a name, as a framework's module, or as its tensor class."""

Casting: TypeAlias = Literal["safe", "same_value", "same_kind", "unsafe"]
Grad: TypeAlias = Literal["detach", "error"]
Unknown: TypeAlias = Literal["error", "keep"]
Leaves: TypeAlias = Literal["tensors", "numbers"] | Callable[[Any], bool]


class Keywords(TypedDict, total=False):
    """The keywords of every conversion."""

    copy: bool | None
    dtype: object
    casting: Casting | None
    device: object
    grad: Grad
    nulls: object
    ragged: Literal["rows"] | None
    pad: object


class Options(TypedDict, total=False):
    """The keywords of `to_numpy`, `to_torch` … and `convert`."""

    non_blocking: bool
    pinned: bool
    variable: bool


class NumpyKeywords(Keywords, total=False):
    """The keywords of a conversion to NumPy."""

    out: NumpyArray | None
    non_blocking: bool
    pinned: bool


class TorchKeywords(Keywords, total=False):
    """The keywords of a conversion to PyTorch."""

    out: TorchTensor | None
    non_blocking: bool
    pinned: bool


class TensorflowKeywords(Keywords, total=False):
    """The keywords of a conversion to TensorFlow, without ``variable``."""

    out: TensorflowVariable | None


class PolarsKeywords(Keywords, total=False):
    """The keywords of a conversion to polars."""

    columns: object


class PandasKeywords(PolarsKeywords, total=False):
    """The keywords of a conversion to pandas."""

    index: object


class WritingKeywords(Keywords, total=False):
    """The keywords of a conversion whose result may be a tensor that is given."""

    out: Any


class AnyKeywords(WritingKeywords, Options, PandasKeywords, total=False):
    """The keywords of a conversion to any framework."""


if TYPE_CHECKING:
    # For the overloads: the same keywords without `nulls` and `ragged`, which decide what the
    # result is.
    Framework = TypeVar("Framework")
    Rows: TypeAlias = Framework | list[Framework]
    """With ``ragged="rows"``: a list of tensors; or one tensor, if the rows have equal lengths."""
    Fill: TypeAlias = complex | np.generic | Literal["nan"] | None
    """A value of ``nulls=`` that replaces nulls."""

    class PlainKeywords(TypedDict, total=False):
        """`Keywords` without those two."""

        copy: bool | None
        dtype: object
        casting: Casting | None
        device: object
        grad: Grad
        pad: object

    class PlainNumpyKeywords(PlainKeywords, total=False):
        """`NumpyKeywords` without those two."""

        out: NumpyArray | None
        non_blocking: bool
        pinned: bool

    class PlainTorchKeywords(PlainKeywords, total=False):
        """`TorchKeywords` without those two."""

        out: TorchTensor | None
        non_blocking: bool
        pinned: bool

    class PlainTensorflowKeywords(PlainKeywords, total=False):
        """`TensorflowKeywords` without those two; a variable has overloads of its own."""

        out: None
        variable: Literal[False]

    class PlainWritingKeywords(PlainKeywords, total=False):
        """`WritingKeywords` without those two."""

        out: Any

    class PlainAnyKeywords(PlainWritingKeywords, Options, total=False):
        """`AnyKeywords` without those two."""

    # And for those overloads whose result is one tensor: with the values of these two for which it
    # is.
    class OneTensor(TypedDict, total=False):
        """The values of `nulls` and `ragged` with which the result is one tensor."""

        nulls: Fill
        ragged: None

    class OneKeywords(PlainKeywords, OneTensor, total=False):
        """`Keywords` with these values."""

    class OneNumpyKeywords(PlainNumpyKeywords, OneTensor, total=False):
        """`NumpyKeywords` with these values."""

    class OneTorchKeywords(PlainTorchKeywords, OneTensor, total=False):
        """`TorchKeywords` with these values."""

    class OneTensorflowKeywords(PlainTensorflowKeywords, OneTensor, total=False):
        """`TensorflowKeywords` with these values."""

    class OneWritingKeywords(PlainWritingKeywords, OneTensor, total=False):
        """`WritingKeywords` with these values."""

    class OneAnyKeywords(PlainAnyKeywords, OneTensor, total=False):
        """`AnyKeywords` with these values."""
