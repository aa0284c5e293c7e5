"""The public conversions: `to_numpy`, `to_torch`, …, `convert`. They all have the same keywords.

Each function here is a declaration: its keywords, its types, and what it says. Its decorator is
what runs, and does the same for all: see `converts_to`.
"""

# mypy: disable-error-code="empty-body"
# pyright: reportReturnType=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from .execution.calls import converts, converts_to

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .typing import (
        AnyKeywords,
        Casting,
        Fill,
        Grad,
        JaxArray,
        JaxName,
        NumpyArray,
        NumpyKeywords,
        NumpyName,
        OneAnyKeywords,
        OneKeywords,
        OneNumpyKeywords,
        OneTensorflowKeywords,
        OneTorchKeywords,
        OneWritingKeywords,
        PlainKeywords,
        PlainNumpyKeywords,
        PlainTensorflowKeywords,
        PlainTorchKeywords,
        PlainWritingKeywords,
        Rows,
        TensorflowKeywords,
        TensorflowName,
        TensorflowTensor,
        TensorflowVariable,
        To,
        TorchKeywords,
        TorchName,
        TorchTensor,
        WritingKeywords,
    )

__all__ = [
    "convert",
    "to_arrow",
    "to_cupy",
    "to_jax",
    "to_list",
    "to_numpy",
    "to_pandas",
    "to_polars",
    "to_tensorflow",
    "to_torch",
]


# What happens in each of these functions (execution/calls.py, execution/run.py):
#
# 1. Without keywords, the fast path of `type(x)` is tried: it looks at x, and calls one function
#    of a framework, such as `t.numpy()`. All calls that it does not accept go on with step 2.
# 2. The target and the keywords give a `Conversion`, which is kept for the next such call.
# 3. The backend of `type(x)` reads the signature of x: its framework, dtype, layout …, no values.
# 4. The conversion has a recipe for that signature; else `planning` makes the plan that `explain`
#    shows, or raises the error that says why there is none.
# 5. The steps of the recipe are run.


@overload
def to_numpy(
    x: object,
    /,
    *,
    nulls: Literal["mask"],
    ragged: Literal["rows"],
    **keywords: Unpack[PlainNumpyKeywords],
) -> tuple[Rows[NumpyArray], Rows[NumpyArray]]: ...
@overload
def to_numpy(
    x: object,
    /,
    *,
    nulls: Literal["mask"],
    ragged: None = ...,
    **keywords: Unpack[PlainNumpyKeywords],
) -> tuple[NumpyArray, NumpyArray]: ...
@overload
def to_numpy(
    x: object,
    /,
    *,
    nulls: Fill = ...,
    ragged: Literal["rows"],
    **keywords: Unpack[PlainNumpyKeywords],
) -> Rows[NumpyArray]: ...
@overload
def to_numpy(x: object, /, **keywords: Unpack[OneNumpyKeywords]) -> NumpyArray: ...
@overload
def to_numpy(x: object, /, **keywords: Unpack[NumpyKeywords]) -> Any: ...
@converts_to("numpy")
def to_numpy(
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
    out: NumpyArray | None = None,
    non_blocking: bool = False,
    pinned: bool = False,
) -> NumpyArray | list[NumpyArray] | tuple[Any, Any]:
    """Any tensor as a NumPy array, which shares the tensor's memory if that is safe.

    >>> import tensorferry as ferry
    >>> ferry.to_numpy([[1, 2], [3, 4]])
    array([[1, 2],
           [3, 4]])
    >>> ferry.to_numpy(range(3), dtype="bfloat16")
    array([0, 1, 2], dtype=bfloat16)

    If the tensor requires grad or never changes (JAX, TensorFlow), the array is a read-only view.
    With ``copy=True`` it is writable and has its own memory. A scalar becomes an array of shape
    ``()``.

    Args:
        x: A tensor of any framework that has a backend; a Python number; nested lists or tuples of
            numbers or of tensors of equal shapes; ``range``, ``bytes``, ``bytearray``,
            ``array.array``, ``memoryview``; an object with ``__dlpack__``, a buffer,
            ``__array_interface__``, ``__array_struct__`` or ``__array__``.
        copy: ``None`` shares memory where the sharing rule allows it, ``True`` never shares,
            ``False`` always shares, or raises.
        dtype: A dtype of any framework, or a name. ``None`` keeps the source's, bit for bit, or
            raises if the target does not have it. ``"fit"`` keeps it if the target has it; if not,
            it takes the widest narrower dtype of the same kind, or the narrowest wider one that
            holds every value. ``"default"`` takes the dtype that the target gives Python numbers of
            that kind (PyTorch: float32 for floats).
        casting: ``None`` rounds floats to a named dtype and keeps every other value or raises;
            ``"safe"``, ``"same_value"``, ``"same_kind"`` and ``"unsafe"`` as in NumPy.
        device: ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or a framework's device; ``None`` stays on the
            source's device if the target can use it, and goes to the host if not.
        grad: What happens to a tensor in an autograd graph: ``"detach"`` leaves the graph,
            ``"error"`` raises.
        nulls: For columns of tables, and ``None`` in lists: a value that replaces nulls, of their
            dtype or of the one in `dtype`; ``"nan"`` for floats; or ``"mask"``, which gives a pair:
            the values, with zeros for nulls, and a mask that is true where there is a value. NaN by
            which pandas marks a missing value is a null here.
        ragged: For lists, and columns of lists, of unequal lengths: ``"rows"`` gives a list with a
            tensor for each row.
        pad: For the same: the number with which short rows are padded at their ends.
        out: An array of the source's shape, into which the values are written. It is the result.
        non_blocking: Copy from a PyTorch device through page-locked memory, if there is any; the
            result is then in that memory. It is complete when it is returned, with and without this
            keyword.
        pinned: Put the result into page-locked memory, from which a device copies at the full speed
            of the bus. (https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html)

    Returns:
        A plain ``np.ndarray``, never of dtype object. With ``nulls="mask"`` a pair of them. With
        ``ragged="rows"`` a list, or one array if the rows have equal lengths.

    Raises:
        UnsupportedTypeError: `x` is not a tensor, or has no memory (traced, meta, deleted …); or
            `nulls`, `ragged` or `pad` is given, and `x` is neither a column nor a list.
        CopyRequiredError: ``copy=False``, and memory cannot be shared.
        LossyCastError: A value would be lost, or the target does not have the dtype.
        GradientError: ``grad="error"``, and `x` requires grad.
        DeviceError: The device does not exist, or the target cannot use it; or ``pinned=True``, and
            no framework of the two can lock memory here.
        ShapeError: Rows have unequal lengths, or `out` has another shape.
        TypeError: A keyword has a value of the wrong type.
        ValueError: A keyword has a word that is not listed above: ``casting="safely"``.

    .. versionadded:: 0.1
    """


@overload
def to_torch(
    x: object,
    /,
    *,
    nulls: Literal["mask"],
    ragged: Literal["rows"],
    **keywords: Unpack[PlainTorchKeywords],
) -> tuple[Rows[TorchTensor], Rows[TorchTensor]]: ...
@overload
def to_torch(
    x: object,
    /,
    *,
    nulls: Literal["mask"],
    ragged: None = ...,
    **keywords: Unpack[PlainTorchKeywords],
) -> tuple[TorchTensor, TorchTensor]: ...
@overload
def to_torch(
    x: object,
    /,
    *,
    nulls: Fill = ...,
    ragged: Literal["rows"],
    **keywords: Unpack[PlainTorchKeywords],
) -> Rows[TorchTensor]: ...
@overload
def to_torch(x: object, /, **keywords: Unpack[OneTorchKeywords]) -> TorchTensor: ...
@overload
def to_torch(x: object, /, **keywords: Unpack[TorchKeywords]) -> Any: ...
@converts_to("torch")
def to_torch(
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
    out: TorchTensor | None = None,
    non_blocking: bool = False,
    pinned: bool = False,
) -> TorchTensor | list[TorchTensor] | tuple[Any, Any]:
    """Any tensor as a PyTorch tensor.

    >>> import numpy as np, tensorferry as ferry
    >>> array = np.zeros(2, dtype="float32")
    >>> tensor = ferry.to_torch(array)
    >>> tensor += 1
    >>> array
    array([1., 1.], dtype=float32)

    The tensor shares memory if that is safe. PyTorch has no read-only tensors, so a source that
    cannot be written is copied; ``copy=False`` consents to share. A conversion from PyTorch to
    PyTorch stays in the autograd graph.

    Arguments are as for `to_numpy`, except:

    Args:
        dtype: As for `to_numpy`; ``"default"`` follows ``torch.get_default_dtype()``.
        out: A tensor of the source's shape to write into; it must not require grad.
        non_blocking: Copy to a device through page-locked memory without waiting. You do not have
            to synchronize. (https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html)
            To the host: as for `to_numpy`.
        pinned: As for `to_numpy`; with ``device="cpu"``.

    Raises:
        ConversionError: As for `to_numpy`.
        FrameworkNotInstalledError: PyTorch is not installed.

    .. versionadded:: 0.1
    """


@overload
def to_tensorflow(
    x: object, /, *, variable: Literal[True], **keywords: Unpack[OneKeywords]
) -> TensorflowVariable: ...
@overload
def to_tensorflow(
    x: object,
    /,
    *,
    out: TensorflowVariable,
    variable: Literal[False] = ...,
    **keywords: Unpack[OneKeywords],
) -> TensorflowVariable: ...
@overload
def to_tensorflow(
    x: object,
    /,
    *,
    nulls: Literal["mask"],
    ragged: Literal["rows"],
    **keywords: Unpack[PlainTensorflowKeywords],
) -> tuple[Rows[TensorflowTensor], Rows[TensorflowTensor]]: ...
@overload
def to_tensorflow(
    x: object,
    /,
    *,
    nulls: Literal["mask"],
    ragged: None = ...,
    **keywords: Unpack[PlainTensorflowKeywords],
) -> tuple[TensorflowTensor, TensorflowTensor]: ...
@overload
def to_tensorflow(
    x: object,
    /,
    *,
    nulls: Fill = ...,
    ragged: Literal["rows"],
    **keywords: Unpack[PlainTensorflowKeywords],
) -> Rows[TensorflowTensor]: ...
@overload
def to_tensorflow(x: object, /, **keywords: Unpack[OneTensorflowKeywords]) -> TensorflowTensor: ...
@overload
def to_tensorflow(
    x: object, /, *, variable: bool = ..., **keywords: Unpack[TensorflowKeywords]
) -> Any: ...
@converts_to("tensorflow")
def to_tensorflow(
    x: object,
    /,
    *,
    variable: bool = False,
    copy: bool | None = None,
    dtype: object = None,
    casting: Casting | None = None,
    device: object = None,
    grad: Grad = "detach",
    nulls: object = None,
    ragged: Literal["rows"] | None = None,
    pad: object = None,
    out: TensorflowVariable | None = None,
) -> TensorflowTensor | TensorflowVariable | list[TensorflowTensor] | tuple[Any, Any]:
    """Any tensor as a TensorFlow tensor, or with ``variable=True`` as a ``tf.Variable``.

    >>> import tensorferry as ferry
    >>> ferry.to_tensorflow([1.5, 2.5]).dtype.name
    'float32'

    TensorFlow tensors never change, so a source that can be written is copied. ``copy=False``
    consents to share, which needs compact memory at an address that is a multiple of 64.

    Arguments are as for `to_numpy`, except:

    Args:
        out: A ``tf.Variable`` of the source's shape to assign to.
        variable: Make a ``tf.Variable``, which always has memory of its own.

    Raises:
        ConversionError: As for `to_numpy`.
        FrameworkNotInstalledError: TensorFlow is not installed.

    .. versionadded:: 0.1
    """


@overload
def to_jax(
    x: object,
    /,
    *,
    nulls: Literal["mask"],
    ragged: Literal["rows"],
    **keywords: Unpack[PlainWritingKeywords],
) -> tuple[Rows[JaxArray], Rows[JaxArray]]: ...
@overload
def to_jax(
    x: object,
    /,
    *,
    nulls: Literal["mask"],
    ragged: None = ...,
    **keywords: Unpack[PlainWritingKeywords],
) -> tuple[JaxArray, JaxArray]: ...
@overload
def to_jax(
    x: object,
    /,
    *,
    nulls: Fill = ...,
    ragged: Literal["rows"],
    **keywords: Unpack[PlainWritingKeywords],
) -> Rows[JaxArray]: ...
@overload
def to_jax(x: object, /, **keywords: Unpack[OneWritingKeywords]) -> JaxArray: ...
@overload
def to_jax(x: object, /, **keywords: Unpack[WritingKeywords]) -> Any: ...
@converts_to("jax")
def to_jax(
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
) -> JaxArray | list[JaxArray] | tuple[Any, Any]:
    """Any tensor as a JAX array.

    >>> import tensorferry as ferry
    >>> ferry.to_jax([1, 2]).dtype
    dtype('int32')

    JAX arrays never change, so a source that can be written is copied. ``copy=False`` consents to
    share, which needs compact memory at an address that is a multiple of 64. Without
    ``jax_enable_x64`` JAX has no 64-bit dtypes
    (https://docs.jax.dev/en/latest/default_dtypes.html). A source that has one raises an error;
    with ``dtype="fit"`` it gets 32 bits.

    Arguments are as for `to_numpy`, except:

    Args:
        x: As for `to_numpy`; a tracer is returned unchanged.
        device: As for `to_numpy`, or a ``jax.sharding.Sharding``, over whose devices the result is
            laid out.
        out: Always an error: JAX arrays never change.

    Raises:
        ConversionError: As for `to_numpy`.
        FrameworkNotInstalledError: JAX is not installed.

    .. versionadded:: 0.1
    """


@converts_to("cupy")
def to_cupy(
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
    """Any tensor as a CuPy array, on a GPU.

    >>> import tensorferry as ferry
    >>> on_gpu = ferry.TensorInfo("torch", (2,), device="cuda:0")
    >>> ferry.explain(on_gpu, "cupy").shares_memory  # `to_cupy(x)` does what the plan says
    True

    A tensor of another framework on the same GPU shares its memory, if that is safe. CuPy has no
    read-only arrays, so a source that cannot be written is copied, and so is one that requires
    grad; ``copy=False`` consents to share the first, and is refused for the second.

    Arguments are as for `to_numpy`, except:

    Args:
        device: ``"cuda"``, ``"cuda:1"`` or a device of CuPy; ``None`` stays on the source's GPU,
            and goes from the host to the current one.
        out: A CuPy array of the source's shape to write into.

    Raises:
        ConversionError: As for `to_numpy`.
        FrameworkNotInstalledError: CuPy is not installed.

    .. versionadded:: 0.1
    """


@converts_to("python")
def to_list(
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
    """Any tensor as nested lists of Python numbers; a tensor of shape ``()`` as one number.

    >>> import numpy as np, tensorferry as ferry
    >>> ferry.to_list(np.float32([[1, 2], [3, 4]]))
    [[1.0, 2.0], [3.0, 4.0]]
    >>> ferry.to_list(np.float32(0.5))
    0.5

    Arguments are as for `to_numpy`, except:

    Args:
        copy: ``False`` is always an error: Python numbers share no memory.
        dtype: The dtype to which values are cast before they become Python numbers.
        device: Only ``"cpu"``.
        out: Always an error: values cannot be written into a list.

    Raises:
        ConversionError: As for `to_numpy`.

    .. versionadded:: 0.1
    """


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
) -> Any:
    """Any tensor in Arrow: a ``pa.Array`` for one axis, a ``pa.FixedShapeTensorArray`` for more.

    >>> import tensorferry as ferry
    >>> ferry.to_arrow([1.5, 2.5]).type
    DataType(double)

    Arrow arrays never change, so a source that can be written is copied; ``copy=False`` consents to
    share. They cannot hold complex numbers or bfloat16, and have at least one axis.

    Arguments are as for `to_numpy`, except:

    Args:
        device: Only ``"cpu"``.

    Raises:
        ConversionError: As for `to_numpy`.
        FrameworkNotInstalledError: PyArrow is not installed.

    .. versionadded:: 0.1
    """


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
    columns: object = None,
    index: object = None,
) -> Any:
    """Any tensor as a ``pd.Series`` (one axis) or a ``pd.DataFrame`` (two axes).

    >>> import tensorferry as ferry
    >>> ferry.to_pandas([[1, 2], [3, 4]], index=["x", "y"], columns=["a", "b"]).loc["y", "a"]
    np.int64(3)

    pandas expects that nobody else writes to its memory, so a source that can be written is copied;
    ``copy=False`` consents to share. A result that shares memory with JAX, TensorFlow, Arrow or
    polars is read-only. Without ``index=``, rows are numbered from 0, so ``frame["p"] =
    to_pandas(p)`` can put values into other rows: pandas compares labels. A series or a frame keeps
    its own index and names.

    Arguments are as for `to_numpy`, except:

    Args:
        device: Only ``"cpu"``.
        index: The labels of the rows: ``frame.index``, or anything of which pandas makes an index.
        columns: The names of a frame's columns, all different.

    Raises:
        ConversionError: As for `to_numpy`.
        ShapeError: `index` or `columns` does not fit the result.
        FrameworkNotInstalledError: pandas is not installed.

    .. versionadded:: 0.1
    """


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
    columns: object = None,
) -> Any:
    """Any tensor as a ``pl.Series`` (one axis) or a ``pl.DataFrame`` (two axes).

    >>> import tensorferry as ferry
    >>> ferry.to_polars(range(3)).to_list()
    [0, 1, 2]
    >>> ferry.to_polars([[1, 2], [3, 4]], columns=["a", "b"]).columns
    ['a', 'b']

    Columns of polars never change, so a source that can be written is copied; ``copy=False``
    consents to share. A ``pl.DataFrame`` has a separate memory for each column, so it is always a
    copy. A series or a frame keeps its names.

    Arguments are as for `to_numpy`, except:

    Args:
        device: Only ``"cpu"``.
        columns: The names of a frame's columns, all different.

    Raises:
        ConversionError: As for `to_numpy`.
        ShapeError: `columns` does not fit the result.
        FrameworkNotInstalledError: polars is not installed.

    .. versionadded:: 0.1
    """


@overload
def convert(
    x: object, /, to: NumpyName | type[NumpyArray], **keywords: Unpack[OneNumpyKeywords]
) -> NumpyArray: ...
@overload
def convert(
    x: object,
    /,
    to: NumpyName | type[NumpyArray],
    *,
    nulls: Literal["mask"],
    ragged: None = ...,
    **keywords: Unpack[PlainNumpyKeywords],
) -> tuple[NumpyArray, NumpyArray]: ...
@overload
def convert(
    x: object,
    /,
    to: NumpyName | type[NumpyArray],
    *,
    nulls: Fill = ...,
    ragged: Literal["rows"],
    **keywords: Unpack[PlainNumpyKeywords],
) -> Rows[NumpyArray]: ...
@overload
def convert(
    x: object, /, to: TorchName | type[TorchTensor], **keywords: Unpack[OneTorchKeywords]
) -> TorchTensor: ...
@overload
def convert(
    x: object,
    /,
    to: TorchName | type[TorchTensor],
    *,
    nulls: Literal["mask"],
    ragged: None = ...,
    **keywords: Unpack[PlainTorchKeywords],
) -> tuple[TorchTensor, TorchTensor]: ...
@overload
def convert(
    x: object,
    /,
    to: TorchName | type[TorchTensor],
    *,
    nulls: Fill = ...,
    ragged: Literal["rows"],
    **keywords: Unpack[PlainTorchKeywords],
) -> Rows[TorchTensor]: ...
@overload
def convert(
    x: object, /, to: JaxName | type[JaxArray], **keywords: Unpack[OneKeywords]
) -> JaxArray: ...
@overload
def convert(
    x: object,
    /,
    to: JaxName | type[JaxArray],
    *,
    nulls: Literal["mask"],
    ragged: None = ...,
    **keywords: Unpack[PlainKeywords],
) -> tuple[JaxArray, JaxArray]: ...
@overload
def convert(
    x: object,
    /,
    to: JaxName | type[JaxArray],
    *,
    nulls: Fill = ...,
    ragged: Literal["rows"],
    **keywords: Unpack[PlainKeywords],
) -> Rows[JaxArray]: ...
@overload
def convert(
    x: object,
    /,
    to: TensorflowName | type[TensorflowTensor],
    **keywords: Unpack[OneTensorflowKeywords],
) -> TensorflowTensor: ...
@overload
def convert(
    x: object,
    /,
    to: TensorflowName | type[TensorflowTensor],
    *,
    variable: Literal[True],
    **keywords: Unpack[OneKeywords],
) -> TensorflowVariable: ...
@overload
def convert(x: object, /, to: To, **keywords: Unpack[AnyKeywords]) -> Any: ...
@overload
def convert(
    x: object, /, *, like: NumpyArray, **keywords: Unpack[OneAnyKeywords]
) -> NumpyArray: ...
@overload
def convert(
    x: object, /, *, like: TorchTensor, **keywords: Unpack[OneAnyKeywords]
) -> TorchTensor: ...
@overload
def convert(x: object, /, *, like: JaxArray, **keywords: Unpack[OneAnyKeywords]) -> JaxArray: ...
@overload
def convert(
    x: object,
    /,
    *,
    like: TensorflowTensor | TensorflowVariable,
    **keywords: Unpack[OneTensorflowKeywords],
) -> TensorflowTensor: ...
@overload
def convert(x: object, /, *, like: object, **keywords: Unpack[AnyKeywords]) -> Any: ...
@converts
def convert(
    x: object,
    /,
    to: To | None = None,
    *,
    like: object = None,
    copy: bool | None = None,
    dtype: object = None,
    casting: Casting | None = None,
    device: object = None,
    grad: Grad = "detach",
    nulls: object = None,
    ragged: Literal["rows"] | None = None,
    pad: object = None,
    out: Any = None,
    non_blocking: bool = False,
    pinned: bool = False,
    variable: bool = False,
    columns: object = None,
    index: object = None,
) -> Any:
    """Any tensor as a tensor of the framework that you name, or like another tensor.

    >>> import numpy as np, tensorferry as ferry
    >>> ferry.convert([1, 2], to="numpy")
    array([1, 2])
    >>> ferry.convert([1, 2], like=np.ones(3, dtype="float16"))
    array([1., 2.], dtype=float16)
    >>> ferry.convert(np.array([True, False]), like=np.ones(3, dtype="float16"))
    array([ True, False])

    An outside package's backend may take its own keywords. Arguments are as for `to_numpy`, except:

    Args:
        to: ``"numpy"``, ``"torch"``, ``"tensorflow"``, ``"jax"``, ``"cupy"``, ``"python"`` or the
            name of a registered backend; a short name (``"np"``, ``"pt"``, ``"tf"``, ``"jnp"`` …);
            a framework's module (``jax.numpy``) or tensor class (``torch.Tensor``).
        like: Instead of `to`: a tensor whose framework and device the result takes. It takes the
            dtype too if `x` is of its kind (floats, signed and unsigned integers, complex numbers,
            bools) or is Python numbers, which have no dtype; otherwise `x` keeps its own, so that a
            mask stays a mask, and an index an index. The result is a plain tensor of that
            framework, even if `like` is a parameter, a variable or another subclass. With a series
            or a frame, the result takes its index where the numbers of rows are equal, and its
            names where the numbers of columns are. A series is one column.
        dtype: As for `to_numpy`; it wins over the dtype of `like`.
        device: As for `to_numpy`; it wins over the device of `like`.
        non_blocking: As for `to_numpy` and `to_torch`; other targets refuse it.
        pinned: As for `to_numpy` and `to_torch`; other targets refuse it.
        variable: As for `to_tensorflow`; other targets refuse it.
        index: As for `to_pandas`; it wins over the index of `like`. Other targets refuse it.
        columns: As for `to_pandas` and `to_polars`; they win over the names of `like`. Other
            targets refuse them.

    Raises:
        ConversionError: As for `to_numpy`.
        UnknownFrameworkError: `to` is not the name of a framework; the hint has the nearest name.
        TypeError: Neither or both of `to` and `like`; or a keyword that does not exist, or not for
            this target.

    .. versionadded:: 0.1
    """
