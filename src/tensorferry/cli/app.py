"""The commands and their options. The work of each is in its own module."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path  # noqa: TC003 - Typer reads the annotations at run time
from typing import TYPE_CHECKING, Annotated

import typer

import tensorferry
from tensorferry.core.dtypes import CASTINGS

from . import completion
from .completion import words
from .files_app import add_commands
from .usage import Command, CommandGroup

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["app"]

app = typer.Typer(
    help="Convert tensors between Python sequences, NumPy, PyTorch, TensorFlow, JAX, CuPy and files.",
    epilog=(
        "Exit codes: 0, fine or equal; 1, something differs, failed a check or did not hold, or there is no such "
        "conversion; 2, wrong usage, or a file that cannot be read or written so; 3, refused for safety; 4, what was "
        "written did not verify, and was not published; 5, interrupted, and --resume goes on; 130, Ctrl-C."
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
    typer.echo(f"  python -m examples.tour{''.join(f' {each}' for each in cases or [])}")
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
