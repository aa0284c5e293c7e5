"""The public functions for files. To import this module is fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from .. import hints
from ..backends import registry
from ..execution.named_arguments import by_name
from ..hints import Hint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from os import PathLike

    from ..maps.table import Table
    from ..typing import To, Unknown
    from .base.contents import Contents
    from .conversion.convert import Report
    from .lazy import LazyTree
    from .load_plan import LoadPlan
    from .source import Source

    Path = str | PathLike[str]
    Map = Table | Path | None

__all__ = ["convert_files", "explain_load", "load", "open", "save"]


def open(  # noqa: A001 - `ferry.open`, as in `os.open`
    path: Path,
    /,
    *,
    allow: str | Iterable[str] = (),
    storage_options: Mapping[str, Any] | None = None,
) -> Contents:
    """Read the header of a file: names, dtypes, shapes, ties, metadata.

    No values are read, and no code is run.

    HDF5 is read by its library, which may end this process if the file is damaged;
    docs/reference/files.md says how to read such a file safely.

    >>> import numpy as np, tempfile, tensorferry as ferry
    >>> folder = tempfile.mkdtemp()
    >>> _ = ferry.save({"weight": np.zeros((2, 3), "float16")}, f"{folder}/model.safetensors")
    >>> contents = ferry.open(f"{folder}/model.safetensors")
    >>> contents.format, contents.tensors["weight"].dtype, contents.tensors["weight"].shape
    ('safetensors', 'float16', (2, 3))

    Args:
        path: A file of any format in docs/reference/files.md, a folder of shards, or its
            ``index.json``. A string that begins ``http://`` or ``https://`` is a URL: of a file of
            safetensors, ``.npy``, ``.npz``, ``.pt`` or GGUF, or of an ``index.json``. One that
            begins ``hf://``, as ``hf://org/model[@revision][/path]``, is of the Hugging Face Hub.
            Those of other schemes, such as ``s3://``, ``gs://`` and ``memory://``, are of the file
            systems of fsspec; they may also name a folder with a model.
        allow: Names of classes, such as ``"package.Config"``, that a pickle may contain. Their
            objects become dicts of their attributes; the classes are never imported. What a pickle
            only names, and objects of some classes of Python (docs/reference/files.md lists them),
            need no permission.
        storage_options: What the file system of a URL is made with: ``{"anon": True}`` for
            ``s3://``. For ``http://`` and ``https://``, ``{"headers": {…}}`` is sent to the server
            that the URL names. No message has them; what refers to a file in a pickle has.

    Returns:
        What the file holds; ``contents.tensors`` has the dtype and shape of each tensor by its
        name.

    Raises:
        TypeError: `path` is not a path, or `allow` no string and no strings.
        UnsupportedTypeError: `path` is a buffer or an open file; the hint is the code that makes a
            file of it.
        OSError: The file cannot be read; or the server does not give it, with a PermissionError
            for credentials and a FileNotFoundError for a file that it does not have.
        FileFormatError: The file breaks the rules of its format, or its format is not known; or
            `path` is a URL that cannot be read in parts, and the hint is the code that downloads
            it; or a server does not give what it is asked for.
        UnsafeFileError: The file asks for code to be run, or would need far more memory than its
            size.
        FrameworkNotInstalledError: The library that its format needs, or the file system of a URL,
            is not installed.

    .. versionadded:: 0.1
    """
    from .base.wording import several
    from .opening.paths import open_path, place_of

    place = place_of(path, "open(path) and load(path)", storage_options)
    return open_path(place, allow=frozenset(several("allow", allow)))


@overload
def load(
    path: Path,
    /,
    to: To = "numpy",
    *,
    lazy: Literal[True],
    names: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] = (),
    device: object = None,
    copy: bool | None = None,
    dtype: object = None,
    allow: str | Iterable[str] = (),
    strict: bool = True,
    dequantize: bool = False,
    nulls: object = None,
    ragged: Literal["rows"] | None = None,
    pad: object = None,
    map: Map = None,
    dims: Mapping[str, int] | None = None,
    slices: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> LazyTree: ...
@overload
def load(
    path: Path,
    /,
    to: To = "numpy",
    *,
    lazy: bool = False,
    names: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] = (),
    device: object = None,
    copy: bool | None = None,
    dtype: object = None,
    allow: str | Iterable[str] = (),
    strict: bool = True,
    dequantize: bool = False,
    nulls: object = None,
    ragged: Literal["rows"] | None = None,
    pad: object = None,
    map: Map = None,
    dims: Mapping[str, int] | None = None,
    slices: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Any: ...
@by_name
def load(
    path: Path,
    /,
    to: To = "numpy",
    *,
    lazy: bool = False,
    names: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] = (),
    device: object = None,
    copy: bool | None = None,
    dtype: object = None,
    allow: str | Iterable[str] = (),
    strict: bool = True,
    dequantize: bool = False,
    nulls: object = None,
    ragged: Literal["rows"] | None = None,
    pad: object = None,
    map: Map = None,  # noqa: A002 - the word for it
    dims: Mapping[str, int] | None = None,
    slices: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Any:
    """Load what a file holds: dicts, lists and values as saved, with tensors of a framework.

    >>> import numpy as np, tempfile, tensorferry as ferry
    >>> folder = tempfile.mkdtemp()
    >>> _ = ferry.save({"weight": np.ones(2, "float16"), "step": 7}, f"{folder}/model.safetensors")
    >>> ferry.load(f"{folder}/model.safetensors")
    {'weight': array([1., 1.], dtype=float16), 'step': 7}

    Each tensor is read once, into memory of its own, which the framework takes over: nothing that
    happens to the file later changes it. Names of tied weights have one object. Checksums are not
    compared here: ``tensorferry check`` compares them.

    Of a file on a server, headers are read, and then only the bytes that are needed, by as few
    requests as `explain_load` says. A file that changes meanwhile is an error.

    With ``lazy=True`` the result is a `LazyTree`. The file is mapped into memory, and a tensor is
    made when it is used. That is for files larger than memory, and for those of which little is
    used. Compressed or encoded tensors (in some ``.npz``, in Parquet, in Orbax) are decoded then.
    All others share the memory of the map. In NumPy and PyTorch you can write to them; no write
    reaches the file, because the map is private. TensorFlow and JAX share the map if the tensor is
    aligned in the file, as `save` aligns it. If somebody writes to the file meanwhile, you may or
    may not see the change. If somebody makes the file shorter, which also happens when this process
    writes it anew (``torch.save(…, path)``), this process ends, as with every memory map. If the
    file is replaced before it is mapped, you get an error.

    Args:
        path: As for `open`.
        to: As for `convert`: ``"numpy"``, ``"torch"``, ``"tensorflow"``, ``"jax"``, or ``"python"``
            for lists …
        lazy: Make tensors when they are used, over a map of the file.
        names: A pattern (``"encoder.*"``) of what to load, or several, as for `convert_files`;
            ``None`` loads everything.
        exclude: A pattern of what to leave out, or several, as for `convert_files`.
        device: As for `to_numpy`, for each tensor. Of a tensor that is laid out over devices (by a
            sharding of JAX, or by ``(mesh, placements)`` of PyTorch), only what the devices of this
            process have is read, and what several of them have only once. Or a mapping from names
            or patterns to devices: a tensor's own name is first, then the first pattern that fits.
        copy: As for `to_numpy`, for each tensor, with ``lazy=True``. Otherwise tensors always have
            their own memory.
        dtype: As for `convert_tree`; names are those in the file. With ``"fit"``, JAX without
            64-bit dtypes gets 32 bits.
        allow: As for `open`.
        strict: Raise an error if something cannot be loaded (text, tensors without values …). With
            ``strict=False`` it is left out, with one warning that names it; with ``lazy=True`` the
            result's ``skipped`` lists it, and `LazyTree.read` warns.
        dequantize: As for `convert_files`; otherwise tensors in quantised blocks are arrays of
            their bytes.
        nulls: For columns of tables (Parquet, Arrow), as for `convert_tree`: a value, ``"nan"`` or
            ``"mask"``.
        ragged: For columns of lists of unequal lengths, as for `convert_tree`: ``"rows"`` for a
            list of tensors.
        pad: For such columns, as for `convert_tree`: what is put after the elements of short lists.
        map: A `WeightMap`, or the path of its file: the tensors are those that it makes. `names`,
            `exclude` and `dtype` are about these.
        dims: As for `convert_files`.
        slices: Parts of tensors, by their names or by patterns as in `device`: integers, slices
            with steps from 1 on, and ``...``, as ``np.s_[0:100, ..., ::2]`` gives them. All others
            are loaded whole. Only the bytes of a part are read, if the file has the tensor as it
            is, also of what a `map` makes. Of a tensor in chunks (Zarr, HDF5, Orbax, blocks of
            GGUF), only the chunks of the part are decoded; all others are decoded up to the part's
            end. With ``lazy=True``, a part is a view of the map. `dtype` and `device` are for what
            is cut out.
        storage_options: As for `open`.

    Returns:
        What was saved, nested as in the file; or with ``lazy=True`` a `LazyTree`.

    Warns:
        UserWarning: `dtype` is for no tensor of the file; or with ``strict=False`` or `map`,
            something is left out.

    Raises:
        OSError: The file cannot be read.
        FileFormatError: As for `open`; or the file has changed since it was opened.
        UnsafeFileError: As for `open`; with `names` or `exclude`, only if what is taken asks for
            code to be run.
        TypeError: `path` is not a path, or a keyword has a value of the wrong type.
        ValueError: `names` is empty.
        CopyRequiredError: ``copy=False`` without ``lazy=True``.
        FormatLimitError: Something cannot be loaded; a pattern in `names` or `exclude` matches
            nothing, or a part of a list; or a name in `dtype`, `slices` or `device` matches no
            tensor.
        IndexError: An index in `slices` has too many axes, or is outside of one.
        ShapeError: A step in `slices` is below 1; or a tensor cannot be laid out as `device` says.
        NotEnoughMemoryError: It is more than the memory that is free; nothing was read.
        UnsupportedTypeError: As for `open`; or the dtype does not exist.
        DeviceError: There is no such device.
        FrameworkNotInstalledError: The framework, or the library that the format needs, is not
            installed.
        ConversionError: As for `to_numpy`; the message ends in the name of the tensor. With
            ``lazy=True``, when the tensor is used.
        TreeError: Several tensors cannot be converted.

    .. versionadded:: 0.1
    """
    given: dict[str, Any] = {"names": names, "exclude": exclude, "device": device, "copy": copy}
    given |= {"dtype": dtype, "allow": allow, "strict": strict, "dequantize": dequantize}
    given |= {"nulls": nulls, "ragged": ragged, "pad": pad, "map": map, "dims": dims}
    given |= {"slices": slices, "storage_options": storage_options}
    return _with_source(path, to, _lazily if lazy else _at_once, lazy=lazy, **given)


def _lazily(source: Source) -> LazyTree:
    from .lazy import lazy_tree

    return lazy_tree(source)


def _at_once(source: Source) -> Any:
    from .loading import loaded

    return loaded(source, source.tree)


def _planned(source: Source) -> LoadPlan:
    from .load_plan import plan_of

    return plan_of(source)


@by_name
def explain_load(
    path: Path,
    /,
    to: To = "numpy",
    *,
    names: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] = (),
    device: object = None,
    dtype: object = None,
    allow: str | Iterable[str] = (),
    strict: bool = True,
    dequantize: bool = False,
    nulls: object = None,
    ragged: Literal["rows"] | None = None,
    pad: object = None,
    map: Map = None,  # noqa: A002 - the word for it
    dims: Mapping[str, int] | None = None,
    slices: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> LoadPlan:
    """Say what `load` would read of a file, and how, without reading it: headers are enough.

    >>> import numpy as np, tempfile, tensorferry as ferry
    >>> path = f"{tempfile.mkdtemp()}/model.safetensors"
    >>> _ = ferry.save({"emb": np.zeros((1000, 64), "float32")}, path)
    >>> plan = ferry.explain_load(path, slices={"emb": np.s_[0:100]})
    >>> plan.bytes_needed, plan.bytes_read
    (25600, 25600)
    >>> plan.tensors[0].how
    'read: 1 run'

    The `load` with the same keywords executes this plan.

    Args:
        path: As for `load`, as are all others.
        to: The framework.
        names: What to load.
        exclude: What to leave out.
        device: Where to.
        dtype: The dtypes.
        allow: Names of classes that a pickle may contain.
        strict: Whether it is an error if something cannot be loaded.
        dequantize: Whether tensors in quantised blocks are decoded.
        nulls: For columns of tables.
        ragged: For columns of lists.
        pad: For columns of lists.
        map: A `WeightMap`, or the path of its file.
        dims: Lengths for it.
        slices: Parts of tensors.
        storage_options: What the file system of a URL is made with.

    Returns:
        A row for each tensor, and sums; ``print`` shows them as a table.

    Warns:
        UserWarning: `dtype` is for no tensor of the file.

    Raises:
        OSError: The file cannot be read.
        ConversionError: As for `load`, of all that is known before tensors are read.
        TypeError: As for `load`.
        ValueError: As for `load`.
        IndexError: As for `load`.

    .. versionadded:: 0.1
    """
    given: dict[str, Any] = {"names": names, "exclude": exclude, "device": device, "copy": None}
    given |= {"dtype": dtype, "allow": allow, "strict": strict, "dequantize": dequantize}
    given |= {"nulls": nulls, "ragged": ragged, "pad": pad, "map": map, "dims": dims}
    given |= {"slices": slices, "storage_options": storage_options}
    return _with_source(path, to, _planned, **given)  # type: ignore[no-any-return]


def _with_source(
    path: Path,
    to: To,
    finish: Callable[[Source], Any],
    *,
    names: Any,
    exclude: Any,
    device: object,
    copy: bool | None,
    dtype: object,
    allow: Any,
    strict: bool,
    dequantize: bool,
    nulls: object,
    ragged: object,
    pad: object,
    map: Map,  # noqa: A002 - the word for it
    dims: Mapping[str, int] | None,
    slices: Mapping[str, Any] | None,
    storage_options: Mapping[str, Any] | None,
    lazy: bool = False,
) -> Any:
    """What is made of a file's tensors for a framework; the keywords are those of `load`."""
    import os

    from ..core.leaf_dtypes import rule_of
    from ..errors import ConversionError, CopyRequiredError, validate_flags
    from .base.raw import is_on_server
    from .base.wording import several
    from .opening.paths import open_path, place_of
    from .source import Source, target_of

    validate_flags(lazy=lazy, strict=strict, dequantize=dequantize)
    has_column_keywords = not nulls is ragged is pad is None
    if has_column_keywords:
        from ..execution.column_keywords import validate

        validate(nulls, ragged, pad)
    rule = rule_of(dtype)
    classes, exclude = several("allow", allow), several("exclude", exclude)
    if names is not None:
        names = several("names", names)
        if not names:
            raise ValueError("names= is empty: name a tensor, or leave names= out for all")
    if copy is False and not lazy:
        raise CopyRequiredError(
            "load reads tensors into memory of their own, so copy=False cannot be kept.",
            Hint(hints.keywords(lazy=True, copy=False), ", for tensors over a map of the file"),
        )
    place = place_of(path, "open(path) and load(path)", storage_options)
    contents = open_path(
        place,
        allow=frozenset(classes),
        partly=names is not None or bool(exclude),
        names=() if names is None or map is not None else names,
    )
    asked: dict[str, Any] = {
        "path": place if is_on_server(place) else os.path.abspath(place),  # noqa: PTH100
        "to": target_of(to, copy, device),
        "names": names,
    }
    asked |= {"exclude": exclude, "device": device, "copy": copy if lazy else None, "dtype": dtype}
    asked |= {"allow": classes, "strict": strict, "dequantize": dequantize}
    asked |= {"nulls": nulls, "ragged": ragged, "pad": pad}
    whole = contents
    try:
        if map is not None:
            from .mapped import contents_map

            mapping = contents_map(map, dims, [os.fspath(place), *contents.paths])
            asked |= {"map": mapping.table, "dims": dict(mapping.dims)}
            contents = whole = mapping.mapped(contents, warns=True)
        if names is not None or exclude or dequantize:
            from .conversion.select import select

            chosen: dict[str, Any] = {"exclude": exclude, "dequantize": dequantize}
            contents = select(contents, include=names or (), include_as="names", **chosen)
        if contents.columns is not None or has_column_keywords:
            from .base.contents import ColumnKeywords, with_columns

            keywords = ColumnKeywords(nulls, ragged, pad)
            about = {"call": "load", "target": asked["to"], "strict": strict, "exclude": exclude}
            contents = with_columns(contents, keywords, rule, **about)
        # Other files than pickles have no objects.
        if contents.asks_for:
            from .base.objects import in_plain_values

            contents = in_plain_values(contents)
        if slices is not None:
            from .slicing import sliced

            asked |= {"slices": slices}
            contents = sliced(contents, slices)
        source = Source(contents, load, asked, rule)
        return finish(source)
    except ConversionError as error:
        from .base.limits import Given, complete  # here, because only an error needs it
        from .conversion.select import names_taken

        taken = names_taken(whole, names or (), exclude)
        complete(error, Given(exclude=exclude, rule=rule, names=taken))
        raise


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
    storage_options: Mapping[str, Any] | None = None,
) -> Report:
    """Save a tree of tensors, of one framework or of several, to a file of any format.

    >>> import numpy as np, tempfile, tensorferry as ferry
    >>> folder = tempfile.mkdtemp()
    >>> report = ferry.save({"a": np.arange(3), "b": {"c": np.zeros(2)}}, f"{folder}/all.npz")
    >>> report.tensors, list(ferry.open(f"{folder}/all.npz").tensors)
    (2, ['a', 'b.c'])

    The file is complete, or there is none: it is written beside its place, flushed to the disk and
    renamed. Tensors are written one after the other, so host memory for one is enough. Every bit is
    kept, in every dtype. A tensor that appears twice is stored once if the format has a convention
    for it, and otherwise as `ties` says. Gradients and graphs are not saved.

    Args:
        tree: A tensor; or dicts, lists and tuples that contain tensors, plain values (numbers,
            strings, ``None``) and other such containers. A mapping becomes a dict. An OrderedDict
            stays one (if it is the whole tree, only if it has attributes or values that are not
            tensors), and so does a defaultdict of a Python type. So do sets of plain values, and
            dtypes, devices, layouts and sizes of PyTorch. Named tuples and other containers of
            `convert_tree` (dataclasses, attrs classes, namespaces …) become a dict of their fields,
            or a list if they have none. Flax's files have dicts in place of lists and tuples; the
            report says so.
        path: The file, or with `shard` the folder; or a URL of ``s3://``, ``gs://`` or
            ``memory://``, to which a temporary file is uploaded, so that it is there when it is
            complete.
        to: The name of the format; ``None``: as the suffix of the path says.
        metadata: Strings to put beside the tensors, if the format has a place for them. A
            safetensors file also has ``"format": "pt"``, which its readers ask for, unless you give
            another.
        shard: Write a folder of files of at most so many bytes (``"5GB"``) and their index.
        ties: As for `convert_files`.
        verify: Read the file again and compare, before it appears.
        overwrite: Replace a file that exists.
        unknown: As for `convert_tree`; but an object that holds a tensor is always refused, because
            a file cannot hold objects.
        storage_options: As for `open`.

    Returns:
        What was written.

    Raises:
        TypeError: `path` is not a path, or a keyword has a value of the wrong type.
        ValueError: There is no format named `to`, `shard` is not a size, or `path` with it has the
            name of one file; or `ties` is neither of the two.
        OSError: The file cannot be written.
        FileFormatError: The name of the file does not say which format to write; or `path` is
            another URL, and the hint is the code that uploads a file; or `storage_options` are for
            no URL.
        FrameworkNotInstalledError: The file system of a URL is not installed.
        OutputExistsError: The file exists already.
        FormatLimitError: The format cannot hold a dtype, a structure or a value, or
            ``ties="alias"``; or the name of the file is that of another format. Nothing is written.
        UnsupportedTypeError: Something in the tree is neither a tensor nor a plain value; the
            message says where. Or `path` is a buffer or an open file; the hint is the code that
            puts a file into it.
        VerificationError: The file did not read back the same; there is no file then.

    .. versionadded:: 0.1
    """
    from functools import partial

    from ..core.names import EXCHANGE
    from ..errors import ConversionError
    from .base.limits import Saved, complete
    from .base.wording import path_of
    from .conversion.convert import write_contents
    from .opening.paths import url_of_target
    from .save import contents_of, places_in

    url = url_of_target(path, storage_options)
    if url is not None:
        from .conversion.uploads import uploaded  # here, because most files are on this machine

        asked: dict[str, Any] = {"to": to, "metadata": metadata, "shard": shard, "ties": ties}
        asked |= {"verify": verify, "overwrite": overwrite, "unknown": unknown}
        write = partial(save, tree, **asked)
        return uploaded(url, storage_options, write, overwrite=overwrite)
    place = path_of(path, "save(tree, path)")
    try:
        contents = contents_of(tree, metadata, unknown)
        return write_contents(
            contents, place, to=to, shard=shard, ties=ties, verify=verify, overwrite=overwrite
        )
    except ConversionError as error:
        error.complete_hint(registry.caller("save", EXCHANGE))
        complete(error, Saved(tree, metadata or {}, places_in))
        raise


@by_name
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
    map: Map = None,  # noqa: A002 - the word for it
    dims: Mapping[str, int] | None = None,
    metadata: Mapping[str, str] | None = None,
    shard: int | str | None = None,
    tensors_only: bool = False,
    ties: Literal["copy", "alias"] = "copy",
    dequantize: bool = False,
    nulls: object = None,
    ragged: Literal["rows"] | None = None,
    pad: object = None,
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
    storage_options: Mapping[str, Any] | None = None,
) -> Report:
    r"""Convert a file to another format, without running code in it, and with little memory.

    >>> import numpy as np, tempfile, tensorferry as ferry
    >>> folder = tempfile.mkdtemp()
    >>> np.savez(f"{folder}/in.npz", weight=np.ones((2, 2), "float32"))
    >>> report = ferry.convert_files(
    ...     f"{folder}/in.npz", f"{folder}/out.safetensors", dtype="bfloat16"
    ... )
    >>> ferry.load(f"{folder}/out.safetensors")["weight"].dtype
    dtype(bfloat16)

    Args:
        sources: A file, a folder of shards, its ``index.json``, or several files that make one
            model.
        target: The file to write; a folder for several, or with `shard`. Or a URL, as for `save`.
        to: The name of the format; ``None``: as the suffix of the target says.
        dtype: As for `convert_tree`; names are those in the source. Or, as on the command line, one
            or several of ``"bfloat16"`` and ``"KEY=bfloat16"``. ``"fit"`` takes the nearest dtype
            that the format can hold.
        overflow: What happens to a float that is too large for the float dtype (also to an
            infinity, if the dtype has none): an error, the largest number of the dtype, or NaN. If
            the dtype has no NaN, it is an error. Integers have to fit.
        include: A pattern (``"encoder.*"``) of what to convert, or several; without one, all is. It
            is compared with the names of tensors, and with those of the values beside them
            (``"epoch"``, ``"optimizer.groups.0.lr"``), as ``tensorferry inspect`` shows them. A
            container of which nothing stays is left out, too.
        exclude: A pattern of what to leave out, or several.
        rename: Substitutions like ``"s/^module\\.//"``, applied to the name of each tensor in
            order.
        map: A `WeightMap`, or the path of its file: the tensors of the target are those that it
            makes. `include`, `exclude`, `rename` and `dtype` are about these. What is no tensor is
            left out.
        dims: Lengths for `map` that no shape tells, by name: ``{"h": 32}``. Without them they are
            taken from ``config.json`` beside the source.
        metadata: Strings to put beside the tensors. They take the place of those in the source with
            the same keys.
        shard: Write a folder of files of at most so many bytes (``"5GB"``) and their index.
        tensors_only: Leave out everything that is not a tensor, and the nesting.
        ties: What becomes of a tensor with several names, in a format that cannot say that they are
            one. ``"copy"`` writes the values for each name, as other programs expect, and the
            report lists them. ``"alias"`` writes them once, with a record that only tensorferry
            reads. Safetensors, PyTorch's files and HDF5 have a convention of their own, and keep
            it.
        dequantize: Write the numbers of tensors in quantised blocks, as GGUF has them, in float32
            or as `dtype` says, computed by the library of their format. Without it the bytes are
            kept, and the metadata says what they are.
        nulls: For columns of tables, as for `load`.
        ragged: For columns of tables, as for `load`; rows have names like ``"x.0"``.
        pad: For columns of tables, as for `load`.
        allow: As for `open`.
        verify: Read the output again and compare every bit, before it appears.
        dry_run: Raise the same errors, but write nothing.
        resume: Continue an interrupted conversion into a folder.
        overwrite: Replace an output that exists.
        executor: Any object with ``submit``: of `concurrent.futures`, a
            ``dask.distributed.Client``.
        jobs: How many files are written at the same time, without an `executor`.
        engine: What writes them, without an `executor`.
        part: ``(i, n)``: do the i-th of n parts, counted from 1, on machines that share a file
            system.
        progress: A function that is called with a number of bytes, each time after they are copied,
            and with `verify` after they are read again.
        storage_options: As for `open`; for each URL of a file system among the sources and the
            target.

    Returns:
        What was written, or would be written.

    Raises:
        TypeError: A source or the target is not a path, or a keyword has a value of the wrong type.
        ValueError: A keyword has no such value: ``engine="x"``, ``ties="x"``, ``shard="much"``,
            ``rename=["x"]``.
        OSError: A file cannot be read or written.
        OutputExistsError: The target exists already.
        FileFormatError: A source breaks the rules of its format, or a checksum is wrong; the name
            of the target does not say which format to write; or a path is a URL, as for `open` and
            `save`.
        UnsafeFileError: A source asks for code to be run; with `include` or `exclude`, only if what
            is taken does.
        FormatLimitError: The format cannot hold a tensor, a value or ``ties="alias"``; a pattern
            matches nothing, or a part of a list; `include` and `exclude` leave nothing;
            `dequantize` has nothing to do; or the name of the target is that of another format.
            Nothing is written.
        LossyCastError: A number does not fit into the dtype, and `overflow` does not say what it
            becomes.
        VerificationError: The output did not read back the same; there is no output then.
        ResumableError: It was stopped in the middle; ``resume=True`` continues it.
        UnsupportedTypeError: There is no such dtype, or `metadata` is not a mapping from strings to
            strings; or a path is a buffer or an open file, as for `open` and `save`.

    .. versionadded:: 0.1
    """
    asked = dict(locals())
    from ..execution.column_keywords import validate
    from .conversion.convert import convert_files

    validate(nulls, ragged, pad)
    table, lengths = asked.pop("map"), asked.pop("dims")
    if table is not None:
        from .mapped import mapping_of

        asked["mapping_of"] = mapping_of(table, lengths)
    return convert_files(asked.pop("sources"), asked.pop("target"), **asked)
