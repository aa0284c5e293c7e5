"""The functions on files that users call: thin, and light to import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from os import PathLike

    from ..typing import To, Unknown
    from .base.contents import Contents
    from .convert import Report

    Path = str | PathLike[str]

__all__ = ["convert_files", "load", "open", "save"]


def open(path: Path, /, *, allow: str | Iterable[str] = ()) -> Contents:  # noqa: A001 - `ferry.open`, as in `os.open`
    """What a file holds, from its header: names, dtypes, shapes, ties, metadata. No data is read, and no code run.

    HDF5 is read by its library in this process, which damage may end; docs/reference/files.md says how to bound that.

    >>> import numpy as np, tempfile, tensorferry as ferry
    >>> folder = tempfile.mkdtemp()
    >>> _ = ferry.save({"weight": np.zeros((2, 3), "float16")}, f"{folder}/model.safetensors")
    >>> contents = ferry.open(f"{folder}/model.safetensors")
    >>> contents.format, contents.tensors["weight"].dtype, contents.tensors["weight"].shape
    ('safetensors', 'float16', (2, 3))

    Args:
        path: A file of any format in docs/reference/files.md, a folder of shards, or its ``index.json``.
        allow: Names of classes, such as ``"package.Config"``, that a pickle may contain as plain containers of
            their attributes; they are never imported.

    Raises:
        OSError: It cannot be read.
        FileFormatError: It breaks its format's rules, or its format is not known.
        UnsafeFileError: It asks for code to be run, or would take memory out of all proportion.
        FrameworkNotInstalledError: The library that its format needs is not installed.

    .. versionadded:: 0.1
    """
    from .base.wording import path_of, several
    from .shards import open_path

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
    """The content of a file as a read-only mapping, whose tensors are made when they are used.

    >>> import numpy as np, tempfile, tensorferry as ferry
    >>> folder = tempfile.mkdtemp()
    >>> _ = ferry.save({"weight": np.ones(2, "float16"), "step": 7}, f"{folder}/model.safetensors")
    >>> state = ferry.load(f"{folder}/model.safetensors")
    >>> state["weight"], state["step"]
    (array([1., 1.], dtype=float16), 7)

    The file is mapped into memory; compressed or encoded tensors (in some ``.npz``, in Parquet, in Orbax) are decoded
    when they are used. The others share the memory of the map. In NumPy and PyTorch they can be written, and no write
    reaches the file: the map is private. TensorFlow and JAX share it if the tensor is aligned in the file, as `save`
    aligns it. If another process writes to the file meanwhile, the change may show or not; if it shortens the file,
    this process ends, as with every memory map: ``copy=True`` gives tensors with memory of their own. A file that has
    been replaced is an error. Checksums are not compared here: ``tensorferry check`` compares them.

    Args:
        path: As for `open`.
        to: As for `convert`: ``"numpy"``, ``"torch"``, ``"tensorflow"``, ``"jax"``, or ``"python"`` for lists …
        names: A pattern (``"encoder.*"``) of the tensors to load, or several; ``None``: all, and the other values.
        exclude: A pattern of what is left out of those, or several, as for `convert_files`.
        device: As for `to_numpy`, for each tensor.
        copy: As for `to_numpy`, for each tensor.
        dtype: As for `convert_tree`, by the names that tensors have in the file; ``"fit"`` lets JAX without 64-bit
            types have them narrowed.
        allow: As for `open`.
        strict: Refuse a file with something that cannot be loaded (text, tensors without values …), instead of listing
            it in the result's ``skipped``.
        dequantize: As for `convert_files`; otherwise tensors in quantised blocks are arrays of their bytes.

    Returns:
        A `LazyTree`, nested as the file is; the tensor itself if the file holds one without a name. ``read()``
        gives all of it at once in plain containers.

    Warns:
        UserWarning: Something is left out, and the result is not a mapping that could list it; by ``read()`` likewise.

    Raises:
        OSError: It cannot be read.
        FileFormatError: As for `open`.
        UnsafeFileError: As for `open`.
        FileFormatError: When a tensor is used: the file has been replaced.
        TypeError: A keyword has a value of the wrong type.
        ValueError: `names` is empty.
        FormatLimitError: A pattern in `names` or `exclude`, or a name in `dtype`, fits no tensor; or `strict`, and
            something cannot be loaded.
        UnsupportedTypeError: There is no such dtype.
        FrameworkNotInstalledError: The framework, or the library that the format needs, is not installed.
        ConversionError: When a tensor is used: as for `to_numpy`; the message ends in its name.

    .. versionadded:: 0.1
    """
    import os

    from ..backends.registry import canonical, ready
    from ..core.leaf_dtypes import rule_of
    from ..core.request import make_request
    from ..errors import validate_flags
    from .base.wording import several
    from .lazy import lazily
    from .select import select

    validate_flags(strict=strict, dequantize=dequantize)
    rule = rule_of(dtype)
    classes, exclude = several("allow", allow), several("exclude", exclude)
    contents = open(path, allow=classes)
    to = canonical(to)
    make_request(ready(to), copy, None, None, None, "detach", ())
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
    verify: bool = False,
    overwrite: bool = False,
    unknown: Unknown = "error",
) -> Report:
    """Write tensors of any framework, also of several, with the containers around them, to a file of any format.

    >>> import numpy as np, tempfile, tensorferry as ferry
    >>> folder = tempfile.mkdtemp()
    >>> report = ferry.save({"a": np.arange(3), "b": {"c": np.zeros(2)}}, f"{folder}/all.npz")
    >>> report.tensors, list(ferry.open(f"{folder}/all.npz").tensors)
    (2, ['a', 'b.c'])

    The file appears whole or not at all: it is written beside its place, flushed to the disk and renamed. Tensors
    go there one after the other, without the host memory for all of them. Bits are kept, in every dtype; a tensor
    that appears twice is stored once. Gradients and graphs are not saved.

    Args:
        tree: A tensor, or dicts, lists and tuples of tensors, of plain values (numbers, strings, ``None``) and of each
            other. A named tuple becomes a tuple, and a mapping a dict: an OrderedDict that holds more than tensors,
            or has attributes, stays one, and so does a defaultdict of a type of Python. Other containers that
            `convert_tree` enters become a dict of their fields, or a list: dataclasses, attrs classes, namespaces …
        path: The file, or with `shard` the folder.
        to: The format's name; ``None`` goes by the path's suffix.
        metadata: Strings to put beside the tensors, where the format has a place for them.
        shard: Write a folder of files of at most so many bytes (``"5GB"``) and their index.
        verify: Read it back and compare, before it appears.
        overwrite: Replace what is there.
        unknown: As for `convert_tree`, but a file has no place for an object: both refuse one that holds a tensor.

    Returns:
        What was written.

    Raises:
        ValueError: There is no format named `to`, or `shard` is not a size.
        OSError: It cannot be written.
        OutputExistsError: It is there already.
        FormatLimitError: The format cannot hold a dtype, a structure or a value; nothing is written.
        UnsupportedTypeError: Something in the tree is neither a tensor nor a plain value; the message says where.
        VerificationError: It did not read back the same; nothing is published.

    .. versionadded:: 0.1
    """
    from ..core.names import EXCHANGE
    from ..errors import ConversionError
    from .save import write

    asked = {"to": to, "metadata": metadata, "shard": shard, "verify": verify, "overwrite": overwrite}
    try:
        return write(tree, path, unknown=unknown, **asked)
    except ConversionError as error:
        error.said_of("save", EXCHANGE)
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
    r"""Convert a file of one format into another, without running its code and without its size in memory.

    >>> import numpy as np, tempfile, tensorferry as ferry
    >>> folder = tempfile.mkdtemp()
    >>> np.savez(f"{folder}/in.npz", weight=np.ones((2, 2), "float32"))
    >>> report = ferry.convert_files(f"{folder}/in.npz", f"{folder}/out.safetensors", dtype="bfloat16")
    >>> ferry.load(f"{folder}/out.safetensors")["weight"].dtype
    dtype(bfloat16)

    Args:
        sources: A file, a folder of shards, its ``index.json``, or several files that make one model.
        target: The file to write; a folder for several, or with `shard`.
        to: The format's name; ``None`` goes by the target's suffix.
        dtype: As for `convert_tree`, by the names that tensors have in the source; or as on the command line, one
            or several of ``"bfloat16"`` and ``"KEY=bfloat16"``. ``"fit"`` is what the format can hold.
        overflow: What becomes of a finite number that the dtype has no room for: an error, its largest number, or NaN.
        include: A glob of the tensors to take, or several; none: all.
        exclude: A glob of the tensors to leave out, or several.
        rename: Substitutions like ``"s/^module\\.//"``, applied to each name in order.
        shard: Write a folder of files of at most so many bytes (``"5GB"``) and their index.
        tensors_only: Leave out what is not a tensor, and how they nest.
        dequantize: Write the numbers of tensors in quantised blocks, as GGUF has them, in float32 or as `dtype` says,
            by the library of their format; otherwise they are carried as bytes, and the metadata says what these are.
        allow: As for `open`.
        verify: Read the output back and compare every bit, before it appears.
        dry_run: Plan it and refuse what has to be refused; write nothing.
        resume: Go on where an interrupted conversion into a folder stopped.
        overwrite: Replace what is there.
        executor: Anything with ``submit``: of `concurrent.futures`, a ``dask.distributed.Client``.
        jobs: How many files are written at once, without an `executor`.
        engine: By what.
        part: ``(i, n)``: do the i-th of n parts, from 1, for machines that share a file system.
        progress: Is told the number of bytes each time some have been moved, and with `verify` read back.

    Returns:
        What was written, or would be.

    Raises:
        TypeError: A keyword has a value of the wrong type.
        ValueError: A keyword has no such value: ``engine="x"``, ``shard="much"``, ``rename=["x"]``.
        OSError: A file cannot be read or written.
        OutputExistsError: The target exists already.
        FileFormatError: A source breaks its format's rules; a checksum does not fit.
        UnsafeFileError: A source asks for code to be run.
        FormatLimitError: The format cannot hold a tensor or a value, a pattern fits nothing, or `dequantize` finds
            nothing to do; nothing is written.
        LossyCastError: ``overflow="raise"``, and a number does not fit.
        VerificationError: The output did not read back the same; nothing is published.
        ResumableError: Stopped in the middle; ``resume=True`` goes on.

    .. versionadded:: 0.1
    """
    asked = dict(locals())
    from .convert import convert_files

    return convert_files(asked.pop("sources"), asked.pop("target"), **asked)
