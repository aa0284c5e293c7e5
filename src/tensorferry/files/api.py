"""The public functions for files. To import this module is fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from os import PathLike

    from ..typing import To, Unknown
    from .base.contents import Contents
    from .conversion.convert import Report

    Path = str | PathLike[str]

__all__ = ["convert_files", "load", "open", "save"]


def open(path: Path, /, *, allow: str | Iterable[str] = ()) -> Contents:  # noqa: A001 - `ferry.open`, as in `os.open`
    """Read the header of a file: names, dtypes, shapes, ties, metadata. No values are read, and no code is run.

    HDF5 is read by its library, which may end this process if the file is damaged; docs/reference/files.md says how to
    read such a file safely.

    >>> import numpy as np, tempfile, tensorferry as ferry
    >>> folder = tempfile.mkdtemp()
    >>> _ = ferry.save({"weight": np.zeros((2, 3), "float16")}, f"{folder}/model.safetensors")
    >>> contents = ferry.open(f"{folder}/model.safetensors")
    >>> contents.format, contents.tensors["weight"].dtype, contents.tensors["weight"].shape
    ('safetensors', 'float16', (2, 3))

    Args:
        path: A file of any format in docs/reference/files.md, a folder of shards, or its ``index.json``.
        allow: Names of classes, such as ``"package.Config"``, that a pickle may contain. Their objects become dicts of
            their attributes; the classes are never imported.

    Returns:
        What the file holds; ``contents.tensors`` has the dtype and shape of each tensor by its name.

    Raises:
        OSError: The file cannot be read.
        FileFormatError: The file breaks the rules of its format, or its format is not known.
        UnsafeFileError: The file asks for code to be run, or would need far more memory than its size.
        FrameworkNotInstalledError: The library that its format needs is not installed.

    .. versionadded:: 0.1
    """
    from .base.wording import path_of, several
    from .opening.shards import open_path

    return open_path(path_of(path, "open(path) and load(path)"), allow=frozenset(several("allow", allow)))


def load(
    path: Path,
    /,
    to: To = "numpy",
    *,
    names: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] = (),
    device: object = None,
    copy: bool | None = None,
    dtype: object = None,
    allow: str | Iterable[str] = (),
    strict: bool = False,
    dequantize: bool = False,
) -> Any:
    """Load a file as a read-only mapping, whose tensors are made when they are used.

    >>> import numpy as np, tempfile, tensorferry as ferry
    >>> folder = tempfile.mkdtemp()
    >>> _ = ferry.save({"weight": np.ones(2, "float16"), "step": 7}, f"{folder}/model.safetensors")
    >>> state = ferry.load(f"{folder}/model.safetensors")
    >>> state["weight"], state["step"]
    (array([1., 1.], dtype=float16), 7)

    The file is mapped into memory. Compressed or encoded tensors (in some ``.npz``, in Parquet, in Orbax) are decoded
    when they are used. All others share the memory of the map. In NumPy and PyTorch you can write to them; no write
    reaches the file, because the map is private. TensorFlow and JAX share the map if the tensor is aligned in the file,
    as `save` aligns it. If another process writes to the file meanwhile, you may or may not see the change. If it makes
    the file shorter, this process ends, as with every memory map. With ``copy=True`` tensors have their own memory. If
    the file is replaced before it is mapped, you get an error. Checksums are not compared here: ``tensorferry check``
    compares them.

    Args:
        path: As for `open`.
        to: As for `convert`: ``"numpy"``, ``"torch"``, ``"tensorflow"``, ``"jax"``, or ``"python"`` for lists …
        names: A pattern (``"encoder.*"``) of the tensors to load, or several; ``None`` loads everything.
        exclude: A pattern of the tensors to leave out, or several, as for `convert_files`.
        device: As for `to_numpy`, for each tensor.
        copy: As for `to_numpy`, for each tensor.
        dtype: As for `convert_tree`; names are those in the file. With ``"fit"``, JAX without 64-bit dtypes gets 32
            bits.
        allow: As for `open`.
        strict: Raise an error if something cannot be loaded (text, tensors without values …), instead of listing
            it in the result's ``skipped``.
        dequantize: As for `convert_files`; otherwise tensors in quantised blocks are arrays of their bytes.

    Returns:
        A `LazyTree`, nested as in the file; or the tensor, if the file holds one without a name. ``read()``
        gives all of it at once in plain containers.

    Warns:
        UserWarning: Something is left out, and the result is not a mapping that could list it. ``read()`` warns too.

    Raises:
        OSError: The file cannot be read.
        FileFormatError: As for `open`.
        UnsafeFileError: As for `open`.
        FileFormatError: When a tensor is used: the file has been replaced.
        TypeError: A keyword has a value of the wrong type.
        ValueError: `names` is empty.
        FormatLimitError: A pattern in `names` or `exclude`, or a name in `dtype`, matches no tensor; or with `strict`,
            something cannot be loaded.
        UnsupportedTypeError: The dtype does not exist.
        DeviceError: There is no such device.
        FrameworkNotInstalledError: The framework, or the library that the format needs, is not installed.
        ConversionError: When a tensor is used: as for `to_numpy`; the message ends in its name.

    .. versionadded:: 0.1
    """
    import os

    import numpy as np

    from ..backends.registry import canonical, ready
    from ..core.leaf_dtypes import rule_of
    from ..core.request import make_request
    from ..errors import validate_flags
    from ..execution.recipes import conversion_of
    from ..execution.run import foresee
    from .base.wording import several
    from .conversion.select import select
    from .lazy import lazily

    validate_flags(strict=strict, dequantize=dequantize)
    rule = rule_of(dtype)
    classes, exclude = several("allow", allow), several("exclude", exclude)
    contents = open(path, allow=classes)
    to = canonical(to)
    request = make_request(ready(to), copy, None, None, device, "detach", ())
    if request.device is not None and request.placement is None:
        # Any tensor tells whether there is such a device, which is better known before the first one is read. A layout
        # over several devices must fit the shape of each tensor, and has devices that exist.
        foresee(np.zeros(1, "float32"), conversion_of(ready(to), request._replace(copy=None)))
    taken: dict[str, Any] = {"exclude": exclude, "dequantize": dequantize}
    if names is not None:
        names = several("names", names)
        if not names:
            raise ValueError("names= is empty: name a tensor, or leave names= out for all")
        taken |= {"include": names, "include_as": "names"}
    if names is not None or exclude or dequantize:
        contents = select(contents, **taken)
    asked: dict[str, Any] = {"path": os.path.abspath(path), "to": to, "names": names, "exclude": exclude}  # noqa: PTH100
    asked |= {"device": device, "copy": copy, "dtype": dtype, "allow": classes, "strict": strict}
    return lazily(contents, load, {**asked, "dequantize": dequantize}, rule)


def save(
    tree: Any,
    path: Path,
    /,
    *,
    to: str | None = None,
    metadata: Mapping[str, str] | None = None,
    shard: int | str | None = None,
    ties: Literal["copy", "alias"] = "copy",
    verify: bool = False,
    overwrite: bool = False,
    unknown: Unknown = "error",
) -> Report:
    """Save a tree of tensors, of one framework or of several, to a file of any format.

    >>> import numpy as np, tempfile, tensorferry as ferry
    >>> folder = tempfile.mkdtemp()
    >>> report = ferry.save({"a": np.arange(3), "b": {"c": np.zeros(2)}}, f"{folder}/all.npz")
    >>> report.tensors, list(ferry.open(f"{folder}/all.npz").tensors)
    (2, ['a', 'b.c'])

    The file is complete, or there is none: it is written beside its place, flushed to the disk and renamed. Tensors
    are written one after the other, so host memory for one is enough. Every bit is kept, in every dtype. A tensor that
    appears twice is stored once if the format has a convention for it, and otherwise as `ties` says. Gradients and
    graphs are not saved.

    Args:
        tree: A tensor; or dicts, lists and tuples that contain tensors, plain values (numbers, strings, ``None``) and
            other such containers. A mapping becomes a dict. An OrderedDict stays one (if it is the whole tree, only if
            it has attributes or values that are not tensors), and so does a defaultdict of a Python type. So do dtypes,
            devices, layouts and sizes of PyTorch. Named tuples and other containers of `convert_tree` (dataclasses,
            attrs classes, namespaces …) become a dict of their fields, or a list if they have none. Flax's files have
            dicts in place of lists and tuples; the report says so.
        path: The file, or with `shard` the folder.
        to: The name of the format; ``None``: as the suffix of the path says.
        metadata: Strings to put beside the tensors, if the format has a place for them.
        shard: Write a folder of files of at most so many bytes (``"5GB"``) and their index.
        ties: As for `convert_files`.
        verify: Read the file again and compare, before it appears.
        overwrite: Replace a file that exists.
        unknown: As for `convert_tree`; but an object that holds a tensor is always refused, because a file cannot hold
            objects.

    Returns:
        What was written.

    Raises:
        ValueError: There is no format named `to`, `shard` is not a size, or `path` with it has the name of one file;
            or `ties` is neither of the two.
        OSError: The file cannot be written.
        OutputExistsError: The file exists already.
        FormatLimitError: The format cannot hold a dtype, a structure or a value, or ``ties="alias"``; nothing is
            written.
        UnsupportedTypeError: Something in the tree is neither a tensor nor a plain value; the message says where.
        VerificationError: The file did not read back the same; there is no file then.

    .. versionadded:: 0.1
    """
    from ..core.names import EXCHANGE
    from ..errors import ConversionError
    from .base.wording import FileHint, path_of
    from .conversion.convert import write_contents
    from .save import contents_of

    place = path_of(path, "save(tree, path)")
    try:
        contents = contents_of(tree, metadata, unknown)
        return write_contents(contents, place, to=to, shard=shard, ties=ties, verify=verify, overwrite=overwrite)
    except ConversionError as error:
        error.complete_hint("save", EXCHANGE)
        if isinstance(error.hint, FileHint):
            error.hint = error.hint.for_save
            error.args = (error.message, error.hint)
        raise


def convert_files(
    sources: Path | Sequence[Path],
    target: Path,
    /,
    *,
    to: str | None = None,
    dtype: object = None,
    overflow: Literal["raise", "saturate", "nan"] = "raise",
    include: str | Sequence[str] = (),
    exclude: str | Sequence[str] = (),
    rename: str | Sequence[str] = (),
    shard: int | str | None = None,
    tensors_only: bool = False,
    ties: Literal["copy", "alias"] = "copy",
    dequantize: bool = False,
    allow: str | Sequence[str] = (),
    verify: bool = False,
    dry_run: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    executor: Any = None,
    jobs: int = 1,
    engine: Literal["threads", "processes", "dask", "ray"] = "threads",
    part: tuple[int, int] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Report:
    r"""Convert a file to another format, without running code in it, and with little memory.

    >>> import numpy as np, tempfile, tensorferry as ferry
    >>> folder = tempfile.mkdtemp()
    >>> np.savez(f"{folder}/in.npz", weight=np.ones((2, 2), "float32"))
    >>> report = ferry.convert_files(f"{folder}/in.npz", f"{folder}/out.safetensors", dtype="bfloat16")
    >>> ferry.load(f"{folder}/out.safetensors")["weight"].dtype
    dtype(bfloat16)

    Args:
        sources: A file, a folder of shards, its ``index.json``, or several files that make one model.
        target: The file to write; a folder for several, or with `shard`.
        to: The name of the format; ``None``: as the suffix of the target says.
        dtype: As for `convert_tree`; names are those in the source. Or, as on the command line, one or several of
            ``"bfloat16"`` and ``"KEY=bfloat16"``. ``"fit"`` takes the nearest dtype that the format can hold.
        overflow: What happens to a float that is too large for the float dtype (also to an infinity, if the dtype has
            none): an error, the largest number of the dtype, or NaN. If the dtype has no NaN, it is an error. Integers
            have to fit.
        include: A pattern (``"encoder.*"``) of the tensors to convert, or several; without one, all are.
        exclude: A pattern of the tensors to leave out, or several.
        rename: Substitutions like ``"s/^module\\.//"``, applied to each name in order.
        shard: Write a folder of files of at most so many bytes (``"5GB"``) and their index.
        tensors_only: Leave out everything that is not a tensor, and the nesting.
        ties: What becomes of a tensor with several names, in a format that cannot say that they are one. ``"copy"``
            writes the values for each name, as other programs expect, and the report lists them. ``"alias"`` writes
            them once, with a record that only tensorferry reads. Safetensors, PyTorch's files and HDF5 have a
            convention of their own, and keep it.
        dequantize: Write the numbers of tensors in quantised blocks, as GGUF has them, in float32 or as `dtype` says,
            computed by the library of their format. Without it the bytes are kept, and the metadata says what they are.
        allow: As for `open`.
        verify: Read the output again and compare every bit, before it appears.
        dry_run: Raise the same errors, but write nothing.
        resume: Continue an interrupted conversion into a folder.
        overwrite: Replace an output that exists.
        executor: Any object with ``submit``: of `concurrent.futures`, a ``dask.distributed.Client``.
        jobs: How many files are written at the same time, without an `executor`.
        engine: What writes them, without an `executor`.
        part: ``(i, n)``: do the i-th of n parts, counted from 1, on machines that share a file system.
        progress: A function that is called with a number of bytes, each time after they are copied, and with `verify`
            after they are read again.

    Returns:
        What was written, or would be written.

    Raises:
        TypeError: A keyword has a value of the wrong type.
        ValueError: A keyword has no such value: ``engine="x"``, ``ties="x"``, ``shard="much"``, ``rename=["x"]``.
        OSError: A file cannot be read or written.
        OutputExistsError: The target exists already.
        FileFormatError: A source breaks the rules of its format, or a checksum is wrong.
        UnsafeFileError: A source asks for code to be run.
        FormatLimitError: The format cannot hold a tensor, a value or ``ties="alias"``, a pattern matches nothing, or
            `dequantize` has nothing to do; nothing is written.
        LossyCastError: A number does not fit into the dtype, and `overflow` does not say what it becomes.
        VerificationError: The output did not read back the same; there is no output then.
        ResumableError: It was stopped in the middle; ``resume=True`` continues it.

    .. versionadded:: 0.1
    """
    asked = dict(locals())
    from .conversion.convert import convert_files

    return convert_files(asked.pop("sources"), asked.pop("target"), **asked)
